//! sched_*, priorities and memory barriers: what a program may ask about who runs when, told for a
//! process whose threads all run on one core.

use contracts::process::capability;
use personality::Errno;
use personality::layouts::TimeSpec;

use super::errors::Outcome;
use super::process::groups;
use super::threads;
use super::user::{self, with_state};

/// Length of a slice, as the monitor gives it.
const SLICE_NS: u64 = 2_000_000;
/// SCHED_OTHER, SCHED_BATCH and SCHED_IDLE: no priorities among them here.
const ORDINARY: [u64; 3] = [0, 3, 5];
/// SCHED_FIFO and SCHED_RR.
const REAL_TIME: [u64; 2] = [1, 2];

/// SCHED_DEADLINE.
const DEADLINE: u64 = 6;

/// What a call gives that is about this process or one of its threads; `None` if it is about
/// another's.
pub fn of_own(id: u64, act: impl FnOnce() -> Outcome) -> Option<Outcome> {
    is_own(id).then(act)
}

fn is_own(id: u64) -> bool {
    id == 0 || id == u64::from(with_state(|state| state.process)) || threads::exists(id)
}

/// The same of another process, which is as this one; what is set there is accepted too. `ESRCH`.
pub async fn of_another(id: u64, act: impl FnOnce() -> Outcome) -> Outcome {
    if id as i32 <= 0 {
        return Err(Errno::EINVAL.into());
    }
    groups(id).await?;
    act()
}

/// The same of calls about its cores, which say of an id that nobody can have that nobody has it.
pub async fn cores_of_another(id: u64, act: impl FnOnce() -> Outcome) -> Outcome {
    if id as i32 <= 0 { Err(Errno::ESRCH.into()) } else { of_another(id, act).await }
}

/// sched_getaffinity.
pub fn affinity(bytes: u64, at: u64) -> Outcome {
    if bytes < 8 || !bytes.is_multiple_of(8) {
        return Err(Errno::EINVAL.into());
    }
    user::write(at, &1u64)?;
    Ok(8)
}

/// sched_setaffinity: a set without the one core is refused.
pub fn set_affinity(bytes: u64, at: u64) -> Outcome {
    let first: u8 = if bytes == 0 { 0 } else { user::read(at)? };
    if first & 1 == 0 { Err(Errno::EINVAL.into()) } else { Ok(0) }
}

/// sched_getscheduler.
pub fn policy() -> Outcome {
    Ok(ORDINARY[0])
}

/// sched_setscheduler, and sched_setparam with `None`.
pub fn set_policy(policy: Option<u64>, at: u64) -> Outcome {
    const RESET_ON_FORK: u64 = 0x4000_0000;
    let priority: u32 = user::read(at)?;
    match policy.map(|policy| policy & !RESET_ON_FORK) {
        None if priority == 0 => Ok(0),
        Some(policy) if ORDINARY.contains(&policy) && priority == 0 => Ok(0),
        Some(policy) if REAL_TIME.contains(&policy) && (1..100).contains(&priority) => Err(Errno::EPERM.into()),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// sched_getparam.
pub fn parameters(at: u64) -> Outcome {
    user::write(at, &0u32)?;
    Ok(0)
}

/// sched_get_priority_min, and _max.
pub fn priority_bound(policy: u64, bound: u64) -> Outcome {
    match policy {
        policy if ORDINARY.contains(&policy) => Ok(0),
        policy if REAL_TIME.contains(&policy) => Ok(bound),
        DEADLINE => Ok(0),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// sched_rr_get_interval.
pub fn interval(at: u64) -> Outcome {
    user::write(at, &TimeSpec::from_ns(SLICE_NS))?;
    Ok(0)
}

/// What getpriority and setpriority are about (PRIO_PROCESS, _PGRP, _USER).
const OF_PROCESS: u64 = 0;
const OF_USER: u64 = 2;

/// getpriority: 20 less the niceness, which others are taken not to have.
pub fn priority(which: u64, id: u64) -> Outcome {
    match which {
        OF_PROCESS if is_own(id) => Ok((20 - with_state(|state| state.niceness)) as u64),
        0..=OF_USER => Ok(20),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// setpriority: kept and told of this process, accepted for others, and without effect. `EACCES`
/// for who is not root and would be less nice.
pub fn set_priority(which: u64, id: u64, niceness: u64) -> Outcome {
    let niceness = i64::from(niceness as i32).clamp(-20, 19);
    match which {
        OF_PROCESS if is_own(id) => with_state(|state| {
            if niceness < state.niceness && !state.identity.may(capability::SYS_NICE) {
                return Err(Errno::EACCES.into());
            }
            state.niceness = niceness;
            Ok(0)
        }),
        0..=OF_USER => Ok(0),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// getcpu.
pub fn core(core_at: u64, node_at: u64) -> Outcome {
    user::write_if(core_at, &0u32)?;
    user::write_if(node_at, &0u32)?;
    Ok(0)
}

/// membarrier: threads that run one after the other on one core see each other's stores in order.
pub fn barrier(command: u64, flags: u64) -> Outcome {
    const COMMANDS: u64 = 0x1ff;
    /// MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, and the flag that it alone has.
    const OF_A_CORE: u64 = 0x80;
    const KNOWN: u64 = 1;
    match command {
        _ if flags & !KNOWN != 0 || flags != 0 && command != OF_A_CORE => Err(Errno::EINVAL.into()),
        0 => Ok(COMMANDS),
        command if command & COMMANDS == command && command.is_power_of_two() => Ok(0),
        _ => Err(Errno::EINVAL.into()),
    }
}
