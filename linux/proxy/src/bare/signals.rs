//! Signals on the machine: faults of the program, delivery to handlers, the way back, and the calls
//! about them.

use abi::{ExceptionInfo, Handle};
use contracts::process::{ChildState, Ended, SignalCause};
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;
use personality::memory::{PAGE, protection};
use personality::signal_frame::{
    RED_ZONE_BYTES, SignalFrame, SignalInfo, SignalRecord, VECTOR_BYTES, address_at_return, build,
};
use personality::signals::number::*;
use personality::signals::{
    Action, AlternateStack, Cause, Delivery, ON_STACK, QUEUED_FIRST, STACK_DISABLED, Signals, code,
};

use super::entry::{self, machine};
use super::errors::{Failure, Outcome};
use super::input_output::description;
use super::paging;
use super::process;
use super::proxy::proxy;
use super::threads;
use super::time::deadline;
use super::timers;
use super::user::{self, Target, with_signals, with_state, with_thread};
use super::wait::{sleep_until, until_signalled};
use zerocopy::IntoBytes;

/// The processor's vector for memory that is not there, or not for that.
const PAGE_FAULT: u64 = 14;

/// A fault of the program, a notification while it ran, or the end of its slice.
pub fn upcall(exception: &ExceptionInfo) {
    match exception.vector {
        ExceptionInfo::NOTIFICATION | ExceptionInfo::PREEMPTION => {}
        ExceptionInfo::NO_MEMORY if paging::relieve() => {}
        ExceptionInfo::NO_MEMORY => {
            out_of_memory(with_state(|state| state.process));
            process::end(Ended::Signalled(SIGKILL));
        }
        PAGE_FAULT if paging::is_out(exception.address) => {
            if !paging::fault(exception.address) {
                return;
            }
        }
        vector => fault(vector, exception),
    }
    // Takes what came in, and tells the servers to ring for the next.
    runtime::rest(true);
    let changed = match exception.vector {
        ExceptionInfo::PREEMPTION => {
            threads::stop_sharing_if_alone();
            threads::make_room(true)
        }
        _ => threads::make_room_when_due(),
    };
    // Another thread has seen its own signals already.
    if changed.is_none() {
        deliver();
    }
}

/// What became of a child as siginfo tells it: si_code and si_status.
pub fn child_code(state: ChildState) -> (i32, u8) {
    match state {
        ChildState::Ended(Ended::Exited(status)) => (code::CLD_EXITED, status),
        ChildState::Ended(Ended::Signalled(number)) => (code::CLD_KILLED, number),
        ChildState::Stopped(number) => (code::CLD_STOPPED, number),
        ChildState::Continued => (code::CLD_CONTINUED, SIGCONT),
    }
}

/// A signal's cause as the process server tells it.
pub fn cause_of(cause: &SignalCause) -> Cause {
    match *cause {
        SignalCause::Process(process) => Cause::of_process(code::SI_USER, process),
        SignalCause::Queued { process, code, value } => claimed(process, code, value),
        SignalCause::Child { process, state } => {
            let (code, status) = child_code(state);
            Cause { code, errno: 0, words: [process.into(), status.into()] }
        }
    }
}

/// Sent by a process with data. That it is a timer's is not to be believed.
fn claimed(process: u32, told: i32, value: u64) -> Cause {
    let code = if told == code::SI_TIMER { code::SI_USER } else { told };
    Cause { code, errno: 0, words: [process.into(), value] }
}

/// Says which limit was met, and whose it is.
fn out_of_memory(process: u32) {
    let Ok((limit, used, free)) = sys::ram_stat(Handle::SELF_RAM) else {
        return runtime::log!("process {process}: out of memory");
    };
    let mib = |pages: u64| (pages * PAGE) >> 20;
    if free > limit.saturating_sub(used) {
        runtime::log!(
            "process {process}: out of memory: it has {} of the {} MiB that [linux] in the system's description gives a program; \"all\" is what its core has, and run -m sets the machine's memory",
            mib(used),
            mib(limit)
        );
    } else {
        runtime::log!(
            "process {process}: out of memory: it has {} MiB, and its core has no more; give the machine more by run -m",
            mib(used)
        );
    }
}

fn fault(vector: u64, exception: &ExceptionInfo) {
    const ACCESS: i32 = 2;
    const ABSENT: i32 = 1;
    let rip = entry::registers().rip;
    let (signal, code, address) = match vector {
        PAGE_FAULT => {
            let mapped = with_state(|state| state.memory.find(exception.address).is_some());
            (SIGSEGV, if mapped { ACCESS } else { ABSENT }, exception.address)
        }
        0 => (SIGFPE, 1, rip),
        1 | 3 => (SIGTRAP, 1, rip),
        6 => (SIGILL, 2, rip),
        16 | 19 => (SIGFPE, 3, rip),
        17 => (SIGBUS, 1, rip),
        // Linux tells no address for a general protection fault.
        _ => (SIGSEGV, 0x80, 0),
    };
    with_signals(|signals, thread| signals.force(thread, signal, Cause::fault(code, address)));
    let stack = with_state(|state| state.memory.stack_start());
    if signal == SIGSEGV && (stack - PAGE..stack).contains(&address) {
        runtime::log!("process {}: its stack is full", with_state(|state| state.process));
    }
}

/// Makes the program see its signals: ends it or enters handlers.
pub fn deliver() {
    if !with_signals(|signals, thread| signals.is_quiet(thread)) {
        deliver_all();
    }
}

#[cold]
#[inline(never)]
fn deliver_all() {
    while let Some((delivery, mut cause)) = with_signals(Signals::take) {
        timers::delivered(&mut cause);
        match delivery {
            Delivery::End(signal) => {
                report(signal, &cause);
                process::die(signal);
            }
            Delivery::Handle(signal, action) => handle(signal, &action, &cause),
            Delivery::Stop(signal) => {
                runtime::block_on(stop(signal));
                // The wait took the bells down that a running program needs.
                runtime::rest(true);
            }
        }
    }
    with_thread(|thread| thread.signals.restore_mask());
}

/// Stops until SIGCONT comes, if the process server agrees: who could never be continued is not
/// stopped. SIGKILL ends the domain from outside; every other signal waits.
pub async fn stop(signal: u8) {
    if proxy().process.stop(signal).await == Ok(true) {
        proxy().wait_queue.until(|| with_state(|state| state.signals.take_continued())).await;
        let _ = proxy().process.resumed();
    }
}

/// A crash is worth a line: the program and where.
fn report(signal: u8, cause: &Cause) {
    if matches!(signal, SIGSEGV | SIGILL | SIGBUS | SIGFPE) && cause.code > 0 {
        let (process, program) = with_state(|state| (state.process, state.program));
        let rip = entry::registers().rip;
        runtime::log!(
            "process {process} ({}): signal {signal} at {rip:#x}, address {:#x}",
            program.as_str(),
            cause.words[0]
        );
    }
}

fn handle(signal: u8, action: &Action, cause: &Cause) {
    let before = entry::registers();
    let (alternate, mask) = with_thread(|thread| (thread.signals.alternate, thread.signals.take_lasting_mask()));
    let built = build(&before, signal, action, cause, mask, &alternate);
    let bytes = VECTOR_BYTES + RED_ZONE_BYTES + size_of::<SignalFrame>() as u64;
    let fits = with_state(|state| {
        state.memory.allows(built.vector_address, VECTOR_BYTES, protection::WRITE)
            && state.memory.allows(built.address, bytes.min(built.vector_address - built.address), protection::WRITE)
    });
    if !fits || user::write(built.address, &built.frame).is_err() {
        process::die(SIGSEGV);
    }
    // SAFETY: 64-byte aligned by construction, checked to be the program's writable memory.
    unsafe { machine::save_vectors(built.vector_address) };
    with_thread(|thread| thread.signals.blocked = thread.signals.mask_for(signal, action));
    entry::set_registers(&built.registers);
}

/// rt_sigreturn: everything as it was, all registers exactly.
pub fn sigreturn() -> Outcome {
    let address = address_at_return(entry::registers().rsp);
    let frame: SignalFrame = user::read(address)?;
    let (registers, mask, vectors) = frame.restore();
    if vectors != 0 {
        let mut image = machine::Image([0; 512]);
        user::with_bytes(vectors, VECTOR_BYTES, |bytes| image.0.copy_from_slice(bytes))?;
        // SAFETY: an image of our own.
        unsafe { machine::load_vectors(&raw mut image as u64) };
    }
    with_thread(|thread| thread.signals.change_mask(2, mask).map(drop))?;
    entry::set_registers(&registers);
    Ok(registers.rax)
}

/// rt_sigaction.
pub fn action(signal: u64, new_at: u64, old_at: u64, set_bytes: u64) -> Outcome {
    if set_bytes != 8 {
        return Err(Errno::EINVAL.into());
    }
    let new: Option<Action> = user::read_if(new_at)?;
    let old = with_state(|state| state.signals.set_action(signal, new))?;
    user::write_if(old_at, &old)?;
    if let Some(new) = new.filter(|_| signal == u64::from(SIGCHLD)) {
        const NO_CHILD_STOP: u64 = 1;
        const NO_CHILD_WAIT: u64 = 2;
        let discards = new.handler == personality::signals::action::IGNORE || new.flags & NO_CHILD_WAIT != 0;
        let _ = proxy().process.watch_children(discards, new.flags & NO_CHILD_STOP == 0);
    }
    Ok(0)
}

/// rt_sigprocmask.
pub fn change_mask(how: u64, new_at: u64, old_at: u64, set_bytes: u64) -> Outcome {
    if set_bytes != 8 {
        return Err(Errno::EINVAL.into());
    }
    let old = with_thread(|thread| thread.signals.blocked);
    if let Some(set) = user::read_if::<u64>(new_at)? {
        with_thread(|thread| thread.signals.change_mask(how, set))?;
    }
    user::write_if(old_at, &old)?;
    Ok(0)
}

/// Blocks with another mask for one call (rt_sigsuspend, ppoll and friends); `deliver` puts the old
/// one back, after handlers.
pub fn mask_for_this_call(mask: u64) {
    with_thread(|thread| thread.signals.mask_for_a_call(mask));
}

/// pause and rt_sigsuspend.
pub async fn suspend(mask: Option<u64>) -> Outcome {
    if let Some(mask) = mask {
        mask_for_this_call(mask);
    }
    match sleep_until(u64::MAX).await {
        Err(Failure::Interrupted) => Err(Errno::EINTR.into()),
        other => other.map(|()| 0),
    }
}

/// rt_sigpending.
pub fn pending(at: u64) -> Outcome {
    let set = with_signals(|signals, thread| signals.pending(thread) & thread.blocked);
    user::write(at, &set)?;
    Ok(0)
}

/// rt_sigtimedwait: takes a signal of a set that the thread blocks. `EAGAIN` at the end of the
/// time.
pub async fn wait_for(set_at: u64, info_at: u64, timeout_at: u64, set_bytes: u64) -> Outcome {
    if set_bytes != 8 {
        return Err(Errno::EINVAL.into());
    }
    let set: u64 = user::read(set_at)?;
    let deadline_ns = deadline(user::read_if(timeout_at)?)?;
    with_thread(|thread| thread.signals.awaited = set);
    let take = || with_signals(|signals, thread| signals.take_of(thread, set));
    let found = match take() {
        Some(found) => Ok(Some(found)),
        None => until_signalled(deadline_ns, take).await,
    };
    with_thread(|thread| thread.signals.awaited = 0);
    match found {
        Ok(Some((signal, mut cause))) => {
            timers::delivered(&mut cause);
            user::write_if(info_at, &SignalInfo::new(signal, &cause))?;
            Ok(signal.into())
        }
        Ok(None) => Err(Errno::EAGAIN.into()),
        Err(_) => Err(Errno::EINTR.into()),
    }
}

/// sigaltstack.
pub fn alternate_stack(new_at: u64, old_at: u64) -> Outcome {
    const SMALLEST: u64 = 2048;
    let stack_pointer = entry::registers().rsp;
    let old = with_thread(|thread| thread.signals.alternate);
    let in_use = old.holds(stack_pointer);
    let new: Option<AlternateStack> = user::read_if(new_at)?;
    user::write_if(old_at, &AlternateStack { flags: if in_use { ON_STACK } else { old.flags }, ..old })?;
    let Some(new) = new else { return Ok(0) };
    if in_use {
        return Err(Errno::EPERM.into());
    }
    if new.flags & !(STACK_DISABLED | ON_STACK) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let disabled = new.flags & STACK_DISABLED != 0;
    if !disabled && new.bytes < SMALLEST {
        return Err(Errno::ENOMEM.into());
    }
    with_thread(|thread| {
        thread.signals.alternate =
            if disabled { AlternateStack::default() } else { AlternateStack { flags: 0, reserved: 0, ..new } };
    });
    Ok(0)
}

/// signalfd and signalfd4: a descriptor for a set of signals, or another set for one.
pub fn open(descriptor: u64, set_at: u64, set_bytes: u64, flags: u64) -> Outcome {
    if set_bytes != 8 || flags & !u64::from(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let set: u64 = user::read(set_at)?;
    if descriptor as i32 != -1 {
        if description(descriptor)?.server != server::SIGNALS {
            return Err(Errno::EINVAL.into());
        }
        with_state(|state| state.descriptors.get_mut(descriptor).map(|found| found.cookie = set))?;
        threads::tell_readers();
        return Ok(descriptor);
    }
    let flags = flags as u32;
    let made = Description {
        server: server::SIGNALS,
        flags: O_RDWR | flags & O_NONBLOCK,
        cookie: set,
        ..Description::default()
    };
    Ok(with_state(|state| state.descriptors.add(made, flags & O_CLOEXEC != 0))?)
}

/// Can a signalfd be read by the thread now?
pub fn is_readable(found: &Description) -> bool {
    with_signals(|signals, thread| signals.pending(thread) & found.cookie != 0)
}

/// Reads records of pending signals from a signalfd: as many as fit, and waits for the first.
pub async fn read(found: &Description, mut into: Target<'_>, wait: bool) -> Outcome {
    let bytes = size_of::<SignalRecord>();
    let room = into.len() / bytes;
    if room == 0 {
        return Err(Errno::EINVAL.into());
    }
    let take = || with_signals(|signals, thread| signals.take_of(thread, found.cookie));
    let first = match take() {
        None if wait => until_signalled(u64::MAX, take).await?,
        first => first,
    };
    let mut next = Some(first.ok_or(Errno::EAGAIN)?);
    let mut done = 0;
    while let Some((signal, mut cause)) = next {
        timers::delivered(&mut cause);
        into.rest(done).put(SignalRecord::new(signal, &cause).as_bytes())?;
        done += bytes;
        next = if done / bytes < room { take() } else { None };
    }
    Ok(done as u64)
}

/// rt_sigqueueinfo, and rt_tgsigqueueinfo with a thread: a signal with data. Of siginfo the sender
/// is told as it is, whatever the program says.
pub async fn queue(process: u64, thread: Option<u64>, number: u64, info_at: u64) -> Outcome {
    let info: SignalInfo = user::read(info_at)?;
    if thread.is_some_and(|thread| thread as i32 <= 0 || process as i32 <= 0) {
        return Err(Errno::EINVAL.into());
    }
    let (own, cause) = (with_state(|state| state.process), info.cause());
    let is_own = process == u64::from(own);
    // As from a process: nobody else's faults and children can be claimed.
    if (cause.code >= 0 || cause.code == code::SI_TKILL) && !is_own {
        return Err(Errno::EPERM.into());
    }
    if number > 64 {
        return Err(Errno::EINVAL.into());
    }
    if process as i32 <= 0 {
        return Err(Errno::ESRCH.into());
    }
    if !is_own || number == u64::from(SIGKILL) {
        let target = contracts::process::Target::Process(process as u32);
        proxy().process.queue_signal(target, number as u8, cause.code, cause.words[1]).await?;
        return Ok(0);
    }
    let cause = claimed(cause.words[0] as u32, cause.code, cause.words[1]);
    let is_queued = number >= u64::from(QUEUED_FIRST) && cause.code != code::SI_USER;
    if is_queued && !threads::has_room(thread).ok_or(Errno::ESRCH)? {
        return Err(Errno::EAGAIN.into());
    }
    match thread {
        Some(thread) => drop(threads::post_to(thread, number as u8, cause).ok_or(Errno::ESRCH)?),
        None => drop(threads::post(number as u8, cause)),
    }
    Ok(0)
}
