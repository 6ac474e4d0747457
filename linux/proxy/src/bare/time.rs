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

/// The clocks that tell the time of day: CLOCK_REALTIME, its coarse and alarm forms, CLOCK_TAI.
pub fn is_of_day(which: u64) -> bool {
    matches!(which, 0 | 5 | 8 | 11)
}

/// The moment of [`runtime::now_ns`] at which a clock shows `ns`.
pub fn moment(which: u64, ns: u64) -> u64 {
    if is_of_day(which) { runtime::now_ns().saturating_add(ns.saturating_sub(runtime::realtime_ns())) } else { ns }
}

/// A deadline from a relative `timespec` that may be absent (= never). `EINVAL`.
pub fn deadline(relative: Option<TimeSpec>) -> Result<u64, Errno> {
    match relative {
        None => Ok(u64::MAX),
        Some(relative) => Ok(runtime::now_ns().saturating_add(relative.to_ns().ok_or(Errno::EINVAL)?)),
    }
}

/// nanosleep and clock_nanosleep.
pub async fn sleep(which: u64, flags: u64, wanted_at: u64, left_at: u64) -> Outcome {
    if which > CLOCK_LAST {
        return Err(Errno::EINVAL.into());
    }
    let wanted = user::read::<TimeSpec>(wanted_at)?.to_ns().ok_or(Errno::EINVAL)?;
    let absolute = flags & ABSOLUTE != 0;
    let until = if absolute { moment(which, wanted) } else { runtime::now_ns().saturating_add(wanted) };
    match sleep_until(until).await {
        Err(Failure::Interrupted) => {
            if !absolute {
                user::write_if(left_at, &TimeSpec::from_ns(until.saturating_sub(runtime::now_ns())))?;
            }
            Err(Errno::EINTR.into())
        }
        other => other.map(|()| 0),
    }
}

/// clock_gettime; of the clocks that nobody has to be asked for.
pub fn clock(which: u64, at: u64) -> Option<Outcome> {
    /// CLOCK_PROCESS_CPUTIME_ID and CLOCK_THREAD_CPUTIME_ID.
    const USED: [u64; 2] = [2, 3];
    let ns = match which {
        which if is_of_day(which) => runtime::realtime_ns(),
        which if USED.contains(&which) => return None,
        0..=CLOCK_LAST => runtime::now_ns(),
        _ => return Some(Err(Errno::EINVAL.into())),
    };
    Some(user::write(at, &TimeSpec::from_ns(ns)).map(|()| 0).map_err(Failure::from))
}

/// clock_gettime of the time that the process used.
pub async fn used(at: u64) -> Outcome {
    user::write(at, &TimeSpec::from_ns(used_ns().await?.0))?;
    Ok(0)
}

/// clock_settime and settimeofday: the clock is the machine's, and every program's.
pub fn set(at: u64) -> Outcome {
    user::read_if::<TimeSpec>(at)?;
    Err(Errno::EPERM.into())
}

/// clock_getres.
pub fn resolution(which: u64, at: u64) -> Outcome {
    if which > CLOCK_LAST {
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
    Ok(line.map_or((0, 0), |line| (line.cpu_ns, line.children_cpu_ns)))
}

/// `struct rusage` of so much time, which counts as the program's own.
pub fn usage(cpu_ns: u64, pages: u64) -> Usage {
    Usage { user: TimeVal::from_ns(cpu_ns), resident_kib: pages * abi::PAGE_BYTES / 1024, ..Usage::default() }
}

/// getrusage.
pub async fn resources(of: u64, at: u64) -> Outcome {
    const CHILDREN: i32 = -1;
    const SELF_OR_THREAD: [i32; 2] = [0, 1];
    let (own_ns, children_ns) = used_ns().await?;
    let told = match of as i32 {
        CHILDREN => usage(children_ns, 0),
        of if SELF_OR_THREAD.contains(&of) => {
            let (_, used, _) = sys::ram_stat(abi::Handle::SELF_RAM).unwrap_or_default();
            usage(own_ns, used)
        }
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
