//! Domains, contexts, cores.

use abi::{Call, DomainState, Error, Handle, Rights};

use crate::{Outcome, call};

/// `DomainAlloc`: the domain and its object id. It has the caller's name in the log.
pub fn domain_alloc(ram: Handle, flags: u64) -> Outcome<(Handle, u64)> {
    domain_alloc_named(ram, flags, Handle::NONE, "", Handle::NONE)
}

/// `DomainAlloc` by one who holds the core and says what the domain is called. `log_of`: whose part
/// of the log it shares, or none.
pub fn domain_alloc_named(
    ram: Handle,
    flags: u64,
    pcore: Handle,
    name: &str,
    log_of: Handle,
) -> Outcome<(Handle, u64)> {
    let (address, length) = (name.as_ptr() as u64, name.len() as u64);
    // SAFETY: makes an object; the kernel reads `length` bytes of `name`.
    let results = unsafe { call(Call::DomainAlloc, [ram.0, flags, pcore.0, address, length, log_of.0]) }?;
    Ok((Handle(results.words[0]), results.words[1]))
}

/// `DomainGrant`: the handle in the other domain's share.
pub fn domain_grant(domain: Handle, source: Handle, rights: Rights) -> Outcome<Handle> {
    // SAFETY: only adds a slot there.
    let results = unsafe { call(Call::DomainGrant, [domain.0, source.0, rights.0.into(), 0, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `DomainRange`: the domain's address range.
pub fn domain_range(domain: Handle) -> Outcome<Handle> {
    // SAFETY: only adds a slot.
    let results = unsafe { call(Call::DomainRange, [domain.0, 0, 0, 0, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `DomainKill`. Does not return if the domain is the caller's.
pub fn domain_kill(domain: Handle, status: u64) -> Outcome<()> {
    // SAFETY: an ended domain runs no code that could miss its memory.
    unsafe { call(Call::DomainKill, [domain.0, status, 0, 0, 0, 0]) }.map(drop)
}

/// `DomainExit`.
pub fn domain_exit(status: u64) -> ! {
    loop {
        // SAFETY: nothing of ours runs afterwards. It cannot be refused; the loop is for the type.
        let _ = unsafe { call(Call::DomainExit, [status, 0, 0, 0, 0, 0]) };
    }
}

/// `DomainState`.
pub fn domain_state(domain: Handle) -> Outcome<DomainState> {
    let mut state = DomainState::default();
    // SAFETY: the kernel fills `state`, plain data of this layout.
    unsafe { call(Call::DomainState, [domain.0, &raw mut state as u64, 0, 0, 0, 0]) }?;
    Ok(state)
}

/// `DomainOnDeath`.
pub fn domain_on_death(domain: Handle, notification: Handle) -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::DomainOnDeath, [domain.0, notification.0, 0, 0, 0, 0]) }.map(drop)
}

/// `DomainFork`.
pub fn domain_fork(child: Handle) -> Outcome<()> {
    // SAFETY: the caller's memory keeps its contents; it only becomes copy-on-write.
    unsafe { call(Call::DomainFork, [child.0, 0, 0, 0, 0, 0]) }.map(drop)
}

/// `ContextAlloc`: a context of `domain` with its control page at `control_page`, which may give
/// priorities up to `priority_max`.
pub fn context_alloc(ram: Handle, domain: Handle, control_page: u64, flags: u64, priority_max: u64) -> Outcome<Handle> {
    // SAFETY: maps one page where there was none (`Busy` otherwise).
    let results = unsafe { call(Call::ContextAlloc, [ram.0, domain.0, control_page, flags, priority_max, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `ContextSchedule`: the new scheduling context.
pub fn context_schedule(ram: Handle, context: Handle, priority: u64, slice_us: u64) -> Outcome<Handle> {
    // SAFETY: makes an object.
    let results = unsafe { call(Call::ContextSchedule, [ram.0, context.0, priority, slice_us, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `ContextStart`.
///
/// # Safety
/// If the context is of the caller's own domain, instruction and stack pointer must be those of
/// code meant to run beside the caller's.
pub unsafe fn context_start(context: Handle, instruction: u64, stack: u64, arguments: [u64; 2]) -> Outcome<()> {
    // SAFETY: passed on.
    unsafe { call(Call::ContextStart, [context.0, instruction, stack, arguments[0], arguments[1], 0]) }.map(drop)
}

/// `ContextProxy`; `flags` of `layout::upcall`.
///
/// # Safety
/// The entries must follow `abi::control`; the stack must be theirs alone.
pub unsafe fn context_proxy(call_entry: u64, upcall_entry: u64, stack_top: u64, flags: u64) -> Outcome<()> {
    // SAFETY: passed on.
    unsafe { call(Call::ContextProxy, [call_entry, upcall_entry, stack_top, flags, 0, 0]) }.map(drop)
}

/// `ContextBase`: FS (0) or GS (1).
///
/// # Safety
/// No code of the caller may use that segment with another base.
pub unsafe fn context_base(which: u64, address: u64) -> Outcome<()> {
    // SAFETY: passed on.
    unsafe { call(Call::ContextBase, [which, address, 0, 0, 0, 0]) }.map(drop)
}

/// `ContextResume`: goes on with the control page's program registers; returns only if refused.
///
/// # Safety
/// Whatever the abandoned stack held is never returned to.
pub unsafe fn context_resume() -> Error {
    // SAFETY: passed on.
    match unsafe { call(Call::ContextResume, [0; 6]) } {
        Ok(_) => Error::BadArgument,
        Err(error) => error,
    }
}

/// `ContextWatch`.
pub fn context_watch(context: Handle, limit_ns: u64, notification: Handle) -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::ContextWatch, [context.0, limit_ns, notification.0, 0, 0, 0]) }.map(drop)
}

/// `ContextEnd`: returns only if the context is another or the call is refused.
pub fn context_end(context: Handle) -> Outcome<()> {
    // SAFETY: what its stack held stays where it is, unused; nothing of ours is taken away.
    unsafe { call(Call::ContextEnd, [context.0, 0, 0, 0, 0, 0]) }.map(drop)
}

/// `ContextUpcall`; entry 0: none from now on.
///
/// # Safety
/// The entry must follow `abi::control`; the stack must be its alone.
pub unsafe fn context_upcall(upcall_entry: u64, stack_top: u64, flags: u64) -> Outcome<()> {
    // SAFETY: passed on.
    unsafe { call(Call::ContextUpcall, [upcall_entry, stack_top, flags, 0, 0, 0]) }.map(drop)
}

/// `ScheduleStat`: nanoseconds that ran on it, slice_us, priority.
pub fn schedule_stat(schedule: Handle) -> Outcome<(u64, u64, u64)> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::ScheduleStat, [schedule.0, 0, 0, 0, 0, 0]) }?;
    Ok((results.words[0], results.words[1], results.words[2]))
}

/// `ScheduleSet`; period 0: no budget.
pub fn schedule_set(schedule: Handle, slice_us: u64, period_us: u64) -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::ScheduleSet, [schedule.0, slice_us, period_us, 0, 0, 0]) }.map(drop)
}

/// `ScheduleGang`: runs in `[n * period + phase, + slice)` of the clock only; all 0: at any time
/// again.
pub fn schedule_gang(pcore: Handle, schedule: Handle, period_us: u64, slice_us: u64, phase_us: u64) -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::ScheduleGang, [pcore.0, schedule.0, period_us, slice_us, phase_us, 0]) }.map(drop)
}

/// `PcoreThrottle`: programs run in so many of each 8 ms.
pub fn pcore_throttle(pcore: Handle, eighths: u64) -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::PcoreThrottle, [pcore.0, eighths, 0, 0, 0, 0]) }.map(drop)
}

/// `Yield`.
pub fn yield_slice() -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::Yield, [0; 6]) }.map(drop)
}

/// `PowerOff`: returns only if refused.
pub fn power_off(pcore: Handle, status: u64) -> Error {
    // SAFETY: nothing runs afterwards.
    match unsafe { call(Call::PowerOff, [pcore.0, status, 0, 0, 0, 0]) } {
        Ok(_) => Error::BadArgument,
        Err(error) => error,
    }
}

/// `TraceRead`: bytes written into `buffer`, records lost.
pub fn trace_read(pcore: Handle, buffer: &mut [u8]) -> Outcome<(u64, u64)> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into it; any bytes are valid u8.
    let results =
        unsafe { call(Call::TraceRead, [pcore.0, buffer.as_mut_ptr() as u64, buffer.len() as u64, 0, 0, 0]) }?;
    Ok((results.words[0], results.words[1]))
}
