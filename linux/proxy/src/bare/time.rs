//! Clocks, sleeping, and time that was used.

use personality::Errno;
use personality::layouts::{SystemInfo, TimeSpec, TimeVal, Times, Usage};

use super::errors::{Failure, Outcome};
use super::exec::TICKS_PER_S;
use super::proxy::proxy;
use super::threads;
use super::user::{self, with_state};
use super::wait::sleep_until;

/// TIMER_ABSTIME.
const ABSOLUTE: u64 = 1;
const CLOCK_LAST: u64 = 11;
/// CLOCK_SGI_CYCLE: no machine has it.
const CLOCK_ABSENT: u64 = 10;

/// The clocks that tell the time of day: CLOCK_REALTIME, its coarse and alarm forms, CLOCK_TAI.
pub fn is_of_day(which: u64) -> bool {
    matches!(which, 0 | 5 | 8 | 11)
}

/// The moment of [`runtime::now_ns`] at which a clock shows `ns`.
pub fn moment(which: u64, ns: u64) -> u64 {
    if is_of_day(which) { runtime::realtime_moment(ns) } else { ns }
}

/// A deadline from a relative `timespec` that may be absent (= never). `EINVAL`.
pub fn deadline(relative: Option<TimeSpec>) -> Result<u64, Errno> {
    match relative {
        None => Ok(u64::MAX),
        Some(relative) => Ok(runtime::now_ns().saturating_add(relative.to_ns().ok_or(Errno::EINVAL)?)),
    }
}

/// May one sleep by a clock? `EOPNOTSUPP` by those of used time, raw and coarse ones; `EINVAL`.
fn may_sleep_by(which: u64) -> Result<(), Errno> {
    match which {
        0 | 1 | 7..=9 | CLOCK_LAST => Ok(()),
        2..=6 => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

/// nanosleep and clock_nanosleep.
pub async fn sleep(which: u64, flags: u64, wanted_at: u64, left_at: u64) -> Outcome {
    may_sleep_by(which)?;
    let wanted = user::read::<TimeSpec>(wanted_at)?.to_ns().ok_or(Errno::EINVAL)?;
    let absolute = flags & ABSOLUTE != 0;
    let until = if absolute { moment(which, wanted) } else { runtime::now_ns().saturating_add(wanted) };
    let mut slept = sleep_until(until).await;
    // The time of day may have been slowed meanwhile.
    while slept.is_ok() && absolute && is_of_day(which) && runtime::realtime_ns() < wanted {
        slept = sleep_until(moment(which, wanted)).await;
    }
    match slept {
        Err(Failure::Interrupted) => {
            if !absolute {
                user::write_if(left_at, &TimeSpec::from_ns(until.saturating_sub(runtime::now_ns())))?;
            }
            Err(Errno::EINTR.into())
        }
        other => other.map(|()| 0),
    }
}

/// A clock of used time, of whom (0: of the caller) and what.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Used {
    Process(u64),
    Thread(u64),
}

/// The clock of used time that a number names, as clock_getcpuclockid(3) makes them.
fn used_clock(which: u64) -> Option<Used> {
    const OF_THREAD: i32 = 4;
    const KIND: i32 = 3;
    const DESCRIPTOR: i32 = 3;
    match which as i32 {
        2 => Some(Used::Process(0)),
        3 => Some(Used::Thread(0)),
        clock if clock < 0 && clock & KIND != DESCRIPTOR => {
            let id = u64::from(!(clock >> 3) as u32);
            Some(if clock & OF_THREAD != 0 { Used::Thread(id) } else { Used::Process(id) })
        }
        _ => None,
    }
}

/// clock_gettime; of the clocks that nobody has to be asked for.
pub fn clock(which: u64, at: u64) -> Option<Outcome> {
    let process = u64::from(with_state(|state| state.process));
    let ns = match (used_clock(which), which) {
        (Some(Used::Process(id)), _) if id == 0 || id == process => own_used_ns(),
        (Some(Used::Process(_)), _) => return None,
        (Some(Used::Thread(id)), _) => match threads::used_ns(id) {
            Some(ns) => ns,
            None => return Some(Err(Errno::EINVAL.into())),
        },
        (None, which) if is_of_day(which) => runtime::realtime_ns(),
        (None, 0..=CLOCK_LAST) if which != CLOCK_ABSENT => runtime::now_ns(),
        _ => return Some(Err(Errno::EINVAL.into())),
    };
    Some(user::write(at, &TimeSpec::from_ns(ns)).map(|()| 0).map_err(Failure::from))
}

/// clock_gettime of the time that another process used. `EINVAL` if there is none.
pub async fn of_another(which: u64, at: u64) -> Outcome {
    let Some(Used::Process(id)) = used_clock(which) else { return Err(Errno::EINVAL.into()) };
    let line = proxy().process.list(id as u32).await.map_err(|_| Errno::EIO)?;
    let line = line.filter(|line| u64::from(line.process) == id).ok_or(Errno::EINVAL)?;
    user::write(at, &TimeSpec::from_ns(line.cpu_ns))?;
    Ok(0)
}

/// Time that this process used.
pub fn own_used_ns() -> u64 {
    // Its own state nobody may refuse it.
    sys::domain_state(abi::Handle::SELF_DOMAIN).map_or(0, |state| state.cpu_ns)
}

/// clock_settime: of the time of day; no other clock can be set.
pub fn set_clock(which: u64, at: u64) -> Outcome {
    if which == 0 { set(at) } else { Err(Errno::EINVAL.into()) }
}

/// settimeofday: the clock is the machine's, and every program's.
pub fn set(at: u64) -> Outcome {
    user::read_if::<TimeSpec>(at)?;
    Err(Errno::EPERM.into())
}

/// clock_getres.
pub fn resolution(which: u64, at: u64) -> Outcome {
    if (which > CLOCK_LAST || which == CLOCK_ABSENT) && used_clock(which).is_none() {
        return Err(Errno::EINVAL.into());
    }
    user::write_if(at, &TimeSpec::from_ns(1))?;
    Ok(0)
}

/// gettimeofday.
pub fn time_of_day(at: u64, zone_at: u64) -> Outcome {
    user::write_if(at, &TimeVal::from_ns(runtime::realtime_ns()))?;
    user::write_if(zone_at, &[0u32; 2])?;
    Ok(0)
}

/// time.
pub fn seconds(at: u64) -> Outcome {
    let seconds = runtime::realtime_ns() / 1_000_000_000;
    user::write_if(at, &seconds)?;
    Ok(seconds)
}

/// times: in ticks; all that was used counts as the program's own.
pub async fn times(at: u64) -> Outcome {
    const TICK_NS: u64 = 1_000_000_000 / TICKS_PER_S;
    let (own_ns, children_ns) = used_ns().await?;
    let told = Times { user: own_ns / TICK_NS, children_user: children_ns / TICK_NS, ..Times::default() };
    user::write_if(at, &told)?;
    Ok(runtime::now_ns() / TICK_NS)
}

/// What the process used, and the children it waited for.
async fn used_ns() -> Result<(u64, u64), Failure> {
    let own = with_state(|state| state.process);
    let line = proxy().process.list(own).await.map_err(|_| Errno::EIO)?;
    Ok((own_used_ns(), line.map_or(0, |line| line.children_cpu_ns)))
}

/// `struct rusage` of so much time, which counts as the program's own.
pub fn usage(cpu_ns: u64, pages: u64) -> Usage {
    Usage { user: TimeVal::from_ns(cpu_ns), resident_kib: pages * abi::PAGE_BYTES / 1024, ..Usage::default() }
}

/// getrusage.
pub async fn resources(of: u64, at: u64) -> Outcome {
    const CHILDREN: i32 = -1;
    const SELF: i32 = 0;
    const THREAD: i32 = 1;
    let pages = || sys::ram_stat(abi::Handle::SELF_RAM).unwrap_or_default().1;
    let told = match of as i32 {
        CHILDREN => usage(used_ns().await?.1, 0),
        SELF => usage(own_used_ns(), pages()),
        THREAD => usage(threads::used_ns(0).unwrap_or_default(), pages()),
        _ => return Err(Errno::EINVAL.into()),
    };
    user::write(at, &told)?;
    Ok(0)
}

/// sysinfo.
pub async fn system(at: u64) -> Outcome {
    let processes = proxy().process.ids(0).await.map_or(1, |ids| ids.len() as u16);
    let (limit, used, free) = sys::ram_stat(abi::Handle::SELF_RAM).unwrap_or_default();
    let total = limit.min(used + free);
    let info = SystemInfo {
        uptime: runtime::now_ns() / 1_000_000_000,
        total,
        free,
        processes,
        unit: abi::PAGE_BYTES as u32,
        ..SystemInfo::default()
    };
    user::write(at, &info)?;
    Ok(0)
}

/// sched_yield, where another thread goes on afterwards.
pub fn yield_to_threads() -> Option<Outcome> {
    (!threads::is_alone()).then_some(Ok(0))
}

/// sched_yield, where no other thread is ready: lets tasks of the proxy and others of the core run.
pub async fn yield_now() -> Outcome {
    let _ = sys::yield_slice();
    let _ = sleep_until(runtime::now_ns()).await;
    Ok(0)
}
