//! Signals on the machine: faults of the program, delivery to handlers, the way back, and the calls
//! about them.

use abi::{ExceptionInfo, Handle};
use contracts::process::Ended;
use personality::Errno;
use personality::memory::{PAGE, STACK_BYTES, STACK_TOP, protection};
use personality::signal_frame::{RED_ZONE_BYTES, SignalFrame, VECTOR_BYTES, address_at_return, build};
use personality::signals::number::*;
use personality::signals::{Action, AlternateStack, Cause, Delivery, ON_STACK, STACK_DISABLED};

use super::entry::{self, machine};
use super::errors::{Failure, Outcome};
use super::process;
use super::proxy::proxy;
use super::user::{self, with_state};
use super::wait::sleep_until;

/// A fault of the program, or a notification while it ran.
pub fn upcall(exception: &ExceptionInfo) {
    match exception.vector {
        ExceptionInfo::NOTIFICATION => {}
        ExceptionInfo::NO_MEMORY => {
            out_of_memory(with_state(|state| state.process));
            process::end(Ended::Signalled(SIGKILL));
        }
        vector => fault(vector, exception),
    }
    // Takes what came in, and tells the servers to ring for the next.
    runtime::rest();
    deliver();
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
        14 => {
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
    with_state(|state| state.signals.force(signal, Cause { code, process: 0, address }));
    let guard = STACK_TOP - STACK_BYTES - PAGE..STACK_TOP - STACK_BYTES;
    if signal == SIGSEGV && guard.contains(&address) {
        runtime::log!("process {}: its stack is full", with_state(|state| state.process));
    }
}

/// Makes the program see its signals: ends it or enters handlers.
pub fn deliver() {
    while let Some((delivery, cause)) = with_state(|state| state.signals.take()) {
        match delivery {
            Delivery::End(signal) => {
                report(signal, &cause);
                process::end(Ended::Signalled(signal));
            }
            Delivery::Handle(signal, action) => handle(signal, &action, &cause),
            Delivery::Stop(signal) => {
                runtime::block_on(stop(signal));
                // The wait took the bells down that a running program needs.
                runtime::rest();
            }
        }
    }
    with_state(|state| {
        if core::mem::take(&mut state.restores_mask) != 0 {
            state.signals.blocked = state.mask_to_restore;
        }
    });
}

/// Stops until SIGCONT comes, if the process server agrees: who could never be continued is not
/// stopped. SIGKILL ends the domain from outside; every other signal waits.
pub async fn stop(signal: u8) {
    if proxy().process.stop(signal).await == Ok(true) {
        proxy().happenings.until(|| with_state(|state| state.signals.take_continued())).await;
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
            cause.address
        );
    }
}

fn handle(signal: u8, action: &Action, cause: &Cause) {
    let before = entry::registers();
    let (alternate, mask) = with_state(|state| {
        let restored = core::mem::take(&mut state.restores_mask) != 0;
        (state.signals.alternate, if restored { state.mask_to_restore } else { state.signals.blocked })
    });
    let built = build(&before, signal, action, cause, mask, &alternate);
    let bytes = VECTOR_BYTES + RED_ZONE_BYTES + size_of::<SignalFrame>() as u64;
    let fits = with_state(|state| {
        state.memory.allows(built.vector_address, VECTOR_BYTES, protection::WRITE)
            && state.memory.allows(built.address, bytes.min(built.vector_address - built.address), protection::WRITE)
    });
    if !fits || user::write(built.address, &built.frame).is_err() {
        process::end(Ended::Signalled(SIGSEGV));
    }
    // SAFETY: 64-byte aligned by construction, checked to be the program's writable memory.
    unsafe { machine::save_vectors(built.vector_address) };
    with_state(|state| state.signals.blocked = state.signals.mask_for(signal, action));
    entry::set_registers(&built.registers);
}

/// rt_sigreturn: everything as it was, all registers exactly.
pub fn sigreturn() -> Outcome {
    let address = address_at_return(entry::registers().rsp);
    let frame: SignalFrame = user::read(address)?;
    let (registers, mask, vectors) = frame.restore();
    if vectors != 0 {
        let mut image = machine::Image([0; 512]);
        image.0.copy_from_slice(user::bytes(vectors, VECTOR_BYTES)?);
        machine::load_vectors(image);
    }
    with_state(|state| state.signals.change_mask(2, mask).map(drop))?;
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
    let old = with_state(|state| state.signals.blocked);
    if let Some(set) = user::read_if::<u64>(new_at)? {
        with_state(|state| state.signals.change_mask(how, set))?;
    }
    user::write_if(old_at, &old)?;
    Ok(0)
}

/// Blocks with another mask for one call (rt_sigsuspend, ppoll and friends); `deliver` puts the old
/// one back, after handlers.
pub fn mask_for_this_call(mask: u64) {
    with_state(|state| {
        let old = state.signals.blocked;
        if state.signals.change_mask(2, mask).is_ok() {
            (state.mask_to_restore, state.restores_mask) = (old, 1);
        }
    });
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
    let set = with_state(|state| state.signals.pending & state.signals.blocked);
    user::write(at, &set)?;
    Ok(0)
}

/// sigaltstack.
pub fn alternate_stack(new_at: u64, old_at: u64) -> Outcome {
    const SMALLEST: u64 = 2048;
    let stack_pointer = entry::registers().rsp;
    let old = with_state(|state| state.signals.alternate);
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
    with_state(|state| {
        state.signals.alternate =
            if disabled { AlternateStack::default() } else { AlternateStack { flags: 0, reserved: 0, ..new } };
    });
    Ok(0)
}
