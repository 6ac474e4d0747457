//! Ids, groups, waiting, ending, limits: calls about the process as a whole.

use contracts::process::{ChildState, Ended, Interest, ProcessId, Target};
use personality::Errno;
use personality::descriptors::DESCRIPTORS_MAX;
use personality::flags::{WCONTINUED, WEXITED, WNOHANG, WUNTRACED};
use personality::layouts::{ChildInfo, Limit};
use personality::memory::STACK_BYTES;
use personality::signals::Cause;
use personality::signals::number::{SIGCHLD, SIGCONT, SIGKILL};

use super::errors::{Failure, Outcome};
use super::proxy::proxy;
use super::user::{self, with_state};
use super::wait::answer;

/// Ends the process: its domain's end tells the process server how, and all servers that it is
/// gone.
pub fn end(how: Ended) -> ! {
    sys::domain_exit(how.to_status())
}

/// exit and exit_group.
pub fn exit(status: u64) -> ! {
    // The thread id is cleared for who might look: nobody shares the memory, but the program may
    // have asked.
    let at = with_state(|state| state.clear_id_at);
    let _ = user::write_if(at, &0u32);
    end(Ended::Exited(status as u8))
}

fn target(id: u64) -> Target {
    match id as i32 {
        -1 => Target::Any,
        0 => Target::OwnGroup,
        id if id > 0 => Target::Process(id as ProcessId),
        group => Target::Group(group.unsigned_abs()),
    }
}

fn interest(options: u64) -> Interest {
    let has = |option| options & option != 0;
    Interest { ended: has(WEXITED), stopped: has(WUNTRACED), continued: has(WCONTINUED) }
}

/// wait4.
pub async fn wait4(id: u64, status_at: u64, options: u64, usage_at: u64) -> Outcome {
    const KNOWN: u64 = 0xe000_000b;
    if options & !KNOWN & 0xffff_ffff != 0 {
        return Err(Errno::EINVAL.into());
    }
    let Some((child, state)) =
        answer(proxy().process.wait(target(id), interest(options | WEXITED), options & WNOHANG == 0)).await?
    else {
        return Ok(0);
    };
    let status = match state {
        ChildState::Ended(Ended::Exited(status)) => u32::from(status) << 8,
        ChildState::Ended(Ended::Signalled(number)) => number.into(),
        ChildState::Stopped(number) => u32::from(number) << 8 | 0x7f,
        ChildState::Continued => 0xffff,
    };
    user::write_if(status_at, &status)?;
    user::write_if(usage_at, &[0u64; 18])?;
    Ok(child.into())
}

/// waitid.
pub async fn waitid(kind: u64, id: u64, info_at: u64, options: u64) -> Outcome {
    let target = match kind {
        0 => Target::Any,
        1 => Target::Process(id as ProcessId),
        2 if id == 0 => Target::OwnGroup,
        2 => Target::Group(id as ProcessId),
        _ => return Err(Errno::EINVAL.into()),
    };
    const NO_WAIT: u64 = 0x0100_0000;
    if options & (WEXITED | WUNTRACED | WCONTINUED) == 0 || options & NO_WAIT != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut info = ChildInfo::default();
    let found = answer(proxy().process.wait(target, interest(options), options & WNOHANG == 0)).await?;
    if let Some((child, state)) = found {
        let (code, status) = match state {
            ChildState::Ended(Ended::Exited(status)) => (1, status.into()),
            ChildState::Ended(Ended::Signalled(number)) => (2, number.into()),
            ChildState::Stopped(number) => (5, number.into()),
            ChildState::Continued => (6, SIGCONT.into()),
        };
        info = ChildInfo { signal: SIGCHLD.into(), code, process: child, status, ..info };
    }
    user::write_if(info_at, &info)?;
    Ok(0)
}

/// kill; to itself a process sends at once, so that the handler runs before the call ends.
pub async fn kill(id: u64, number: u64) -> Outcome {
    if number > 64 {
        return Err(Errno::EINVAL.into());
    }
    let own = with_state(|state| state.process);
    if id == u64::from(own) && number != u64::from(SIGKILL) {
        if number != 0 {
            with_state(|state| state.signals.post(number as u8, Cause { code: 0, process: own, address: 0 }));
        }
        return Ok(0);
    }
    proxy().process.signal(target(id), number as u8).await?;
    Ok(0)
}

/// tkill and tgkill: the only thread of a process has its id.
pub async fn kill_thread(thread: u64, number: u64) -> Outcome {
    if thread as i32 <= 0 { Err(Errno::EINVAL.into()) } else { kill(thread, number).await }
}

/// getpgid and getsid.
pub async fn groups(id: u64) -> Result<(ProcessId, ProcessId), Failure> {
    Ok(proxy().process.groups(id as ProcessId).await?)
}

/// prctl: names only.
pub fn prctl(option: u64, argument: u64) -> Outcome {
    const SET_NAME: u64 = 15;
    const GET_NAME: u64 = 16;
    match option {
        SET_NAME => {
            let text = user::text_bytes(argument, 16, Errno::EINVAL)
                .or_else(|_| user::bytes(argument, 15).map(<[u8]>::to_vec))?;
            let mut name = [0; 16];
            let length = text.len().min(15);
            name[..length].copy_from_slice(&text[..length]);
            with_state(|state| state.name = name);
        }
        GET_NAME => user::write(argument, &with_state(|state| state.name))?,
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(0)
}

/// getrlimit and the reading half of prlimit64.
pub fn limit(resource: u64, at: u64) -> Outcome {
    const STACK: u64 = 3;
    const PROCESSES: u64 = 6;
    const DESCRIPTORS: u64 = 7;
    let both = |value| Limit { current: value, maximum: value };
    let limit = match resource {
        STACK => both(STACK_BYTES),
        PROCESSES => both(1000),
        DESCRIPTORS => both(DESCRIPTORS_MAX as u64),
        4 => Limit { current: 0, maximum: u64::MAX },
        0..16 => both(u64::MAX),
        _ => return Err(Errno::EINVAL.into()),
    };
    user::write_if(at, &limit)?;
    Ok(0)
}
