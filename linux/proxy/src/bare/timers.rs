//! Timers: those that send signals (setitimer, timer_create), and those that are read (timerfd).
//!
//! All run at the process server; for those of used time it tells when to look at that. Of the ones
//! that send signals it tells by events; what to send then is known here alone, so that it costs
//! nobody else anything.

use alloc::vec::Vec;

use contracts::process::{Ended, TIMERS_MAX, TimerStart, TimerState};
use personality::Errno;
use personality::descriptors::{Description, server};
use personality::flags::*;
use personality::layouts::{IntervalTimer, SignalEvent, TimeSpec, TimeVal, TimerSpec};
use personality::signals::number::{SIGALRM, SIGKILL, SIGPROF, SIGVTALRM};
use personality::signals::{Cause, Posted, code};

use super::errors::{Failure, Outcome};
use super::input_output::description;
use super::process;
use super::proxy::proxy;
use super::threads;
use super::time::{is_of_day, moment, own_used_ns};
use super::user::{self, with_state};

/// The process server's number of the timer of alarm and setitimer; the program's others follow.
const REAL: u32 = 0;
/// The first number past those of timer_create; those of used time follow.
const OWN_MAX: u32 = TIMERS_MAX - USED_TIMERS as u32;
/// What ITIMER_VIRTUAL and ITIMER_PROF send.
const USED: [u8; 2] = [SIGVTALRM, SIGPROF];
/// The timer of used time that watches over RLIMIT_CPU.
const LIMIT: usize = USED.len();
/// Timers of used time.
pub const USED_TIMERS: usize = LIMIT + 1;
/// How often used time is looked at, at most; and of a process that uses none, at least.
const LOOK_NS: [u64; 2] = [4_000_000, 64_000_000];
/// CLOCK_MONOTONIC, CLOCK_BOOTTIME and its alarm form.
const OF_BOOT: [u64; 3] = [1, 7, 9];

/// Coarse clocks and the raw one, which no timers follow.
const WITHOUT_TIMERS: [u64; 3] = [4, 5, 6];
/// CLOCK_TAI, which no timer follows that is read.
const TAI: u64 = 11;

/// A clock that timers may follow. `EOPNOTSUPP`; `EINVAL`, also for those of used time.
fn clock(which: u64) -> Result<u64, Errno> {
    match which {
        _ if WITHOUT_TIMERS.contains(&which) => Err(Errno::EOPNOTSUPP),
        _ if is_of_day(which) || OF_BOOT.contains(&which) => Ok(which),
        _ => Err(Errno::EINVAL),
    }
}

fn spec(state: TimerState) -> TimerSpec {
    TimerSpec { interval: TimeSpec::from_ns(state.interval_ns), value: TimeSpec::from_ns(state.left_ns) }
}

/// First expiration and interval as the program wants them.
fn wish(at: u64) -> Result<(u64, u64), Errno> {
    let wanted: TimerSpec = user::read(at)?;
    Ok((wanted.value.to_ns().ok_or(Errno::EINVAL)?, wanted.interval.to_ns().ok_or(Errno::EINVAL)?))
}

/// alarm.
pub async fn alarm(seconds: u64) -> Outcome {
    let start = match seconds & 0xffff_ffff {
        0 => TimerStart::Never,
        seconds => TimerStart::In(seconds * 1_000_000_000),
    };
    let left = proxy().process.set_alarm(REAL, start, 0).await?.left_ns;
    Ok(if left == 0 { 0 } else { left.div_ceil(1_000_000_000) })
}

fn interval_timer(state: TimerState) -> IntervalTimer {
    let interval = TimeVal::from_ns(state.interval_ns);
    // Less than a microsecond left is not nothing.
    let left_ns = if state.left_ns == 0 { 0 } else { state.left_ns.max(1000) };
    IntervalTimer { interval, value: TimeVal::from_ns(left_ns) }
}

/// setitimer.
pub async fn set_interval(which: u64, new_at: u64, old_at: u64) -> Outcome {
    if which > USED.len() as u64 {
        return Err(Errno::EINVAL.into());
    }
    let new: IntervalTimer = user::read_if(new_at)?.unwrap_or_default();
    let (value, interval) = (new.value.to_ns().ok_or(Errno::EINVAL)?, new.interval.to_ns().ok_or(Errno::EINVAL)?);
    let start = if value == 0 { TimerStart::Never } else { TimerStart::In(value) };
    let before = match (which as usize).checked_sub(1) {
        None => proxy().process.set_alarm(REAL, start, interval).await?,
        Some(index) => {
            let used_ns = own_used_ns();
            let due_ns = if value == 0 { 0 } else { used_ns.saturating_add(value) };
            let new = UsedTimer { due_ns, interval_ns: interval, seen: (used_ns, runtime::now_ns()), pause_ns: 0 };
            let before = core::mem::replace(&mut proxy().used_timers.borrow_mut()[index], new);
            look_later(index);
            before.state(used_ns)
        }
    };
    user::write_if(old_at, &interval_timer(before))?;
    Ok(0)
}

/// getitimer.
pub async fn interval(which: u64, at: u64) -> Outcome {
    let state = match (which as usize).checked_sub(1) {
        None => proxy().process.alarm(REAL).await?,
        Some(index) if index < USED.len() => proxy().used_timers.borrow()[index].state(own_used_ns()),
        Some(_) => return Err(Errno::EINVAL.into()),
    };
    user::write(at, &interval_timer(state))?;
    Ok(0)
}

/// RLIMIT_CPU was set, met or inherited: has used time looked at when it could be met.
pub fn watch_limit() {
    let due_ns = with_state(|state| state.limits.cpu_ns()).unwrap_or(0);
    // Who has none, and a child of such a one, pays for nothing here.
    if proxy().used_timers.borrow()[LIMIT].due_ns != due_ns {
        let seen = (own_used_ns(), runtime::now_ns());
        proxy().used_timers.borrow_mut()[LIMIT] = UsedTimer { due_ns, seen, ..UsedTimer::default() };
        look_later(LIMIT);
    }
}

/// RLIMIT_CPU is met, or has been changed meanwhile.
fn meet_limit(used_ns: u64) {
    match with_state(|state| state.limits.meet_cpu(used_ns)) {
        Some(SIGKILL) => process::end(Ended::Signalled(SIGKILL)),
        Some(signal) => drop(threads::post(signal, Cause::of_process(code::SI_KERNEL, 0))),
        None => {}
    }
    watch_limit();
}

/// A timer of the time that the process uses: looked after when it could be due at the earliest.
#[derive(Clone, Copy, Default)]
pub struct UsedTimer {
    /// Of used time; 0 = not set.
    due_ns: u64,
    interval_ns: u64,
    /// What was used when it was looked at last, and when that was.
    seen: (u64, u64),
    /// How long the process is left alone, as it uses little.
    pause_ns: u64,
}

impl UsedTimer {
    fn state(&self, used_ns: u64) -> TimerState {
        let left_ns = if self.due_ns == 0 { 0 } else { self.due_ns.saturating_sub(used_ns).max(1) };
        TimerState { left_ns, interval_ns: self.interval_ns }
    }

    /// It is looked at; `true` if it expired.
    fn look(&mut self, used_ns: u64, now_ns: u64) -> bool {
        let (seen_ns, seen_at_ns) = core::mem::replace(&mut self.seen, (used_ns, now_ns));
        let sleeps = used_ns.saturating_sub(seen_ns) < now_ns.saturating_sub(seen_at_ns) / 4;
        self.pause_ns = if sleeps { (self.pause_ns * 2).clamp(LOOK_NS[0], LOOK_NS[1]) } else { 0 };
        if self.due_ns == 0 || used_ns < self.due_ns {
            return false;
        }
        self.due_ns = match self.interval_ns {
            0 => 0,
            interval_ns => self.due_ns + ((used_ns - self.due_ns) / interval_ns + 1) * interval_ns,
        };
        true
    }
}

/// Has the process server tell when a timer of used time is to be looked at again.
fn look_later(index: usize) {
    let timer = proxy().used_timers.borrow()[index];
    let start = match timer.due_ns {
        0 => TimerStart::Never,
        due_ns => TimerStart::In(due_ns.saturating_sub(timer.seen.0).max(LOOK_NS[0]).max(timer.pause_ns)),
    };
    let call = proxy().process.set_alarm(OWN_MAX + index as u32, start, 0);
    // The server does it before what is asked next; nobody needs the answer.
    runtime::spawn(async move {
        let _ = call.await;
    });
}

fn look(index: usize) {
    let used_ns = own_used_ns();
    let is_due = proxy().used_timers.borrow_mut()[index].look(used_ns, runtime::now_ns());
    match USED.get(index).filter(|_| is_due) {
        Some(signal) => drop(threads::post(*signal, Cause::of_process(code::SI_KERNEL, 0))),
        None if is_due => return meet_limit(used_ns),
        None => {}
    }
    look_later(index);
}

/// A timer of timer_create.
#[derive(Clone, Copy)]
struct Timer {
    clock: u64,
    /// 0 = nothing is sent.
    signal: u8,
    value: u64,
    /// Who gets it; `None` = the process.
    thread: Option<u64>,
    /// Expirations beyond the one that is pending.
    more: u64,
    is_pending: bool,
    /// As told with the signal that was delivered last.
    overrun: u64,
}

/// The program's timers by their ids.
#[derive(Default)]
pub struct Timers(Vec<Option<Timer>>);

impl Timers {
    fn get(&mut self, id: u64) -> Result<&mut Timer, Errno> {
        self.0.get_mut(id as u32 as usize).and_then(Option::as_mut).ok_or(Errno::EINVAL)
    }
}

fn with<T>(work: impl FnOnce(&mut Timers) -> T) -> T {
    work(&mut proxy().timers.borrow_mut())
}

/// The process server's number of a timer.
fn number(id: u64) -> u32 {
    id as u32 + 1
}

/// timer_create.
pub fn create(which: u64, event_at: u64, id_at: u64) -> Outcome {
    /// SIGEV_SIGNAL, and SIGEV_THREAD which the C library makes of it.
    const TO_PROCESS: [i32; 2] = [0, 2];
    const NONE: i32 = 1;
    const TO_THREAD: i32 = 4;
    let clock = clock(which)?;
    let event: Option<SignalEvent> = user::read_if(event_at)?;
    let (notify, signal) = event.map_or((TO_PROCESS[0], SIGALRM.into()), |event| (event.notify, event.signal));
    let thread = event.filter(|_| notify == TO_THREAD).map(|event| event.thread as u64);
    let known = TO_PROCESS.contains(&notify) || notify == NONE || thread.is_some_and(threads::exists);
    if !known || notify != NONE && !(1..=64).contains(&signal) {
        return Err(Errno::EINVAL.into());
    }
    let signal = if notify == NONE { 0 } else { signal as u8 };
    let id = with(|timers| {
        let free = timers.0.iter().position(Option::is_none).unwrap_or(timers.0.len());
        if number(free as u64) >= OWN_MAX {
            return Err(Errno::EAGAIN);
        }
        let value = event.map_or(free as u64, |event| event.value);
        let made = Some(Timer { clock, signal, value, thread, more: 0, is_pending: false, overrun: 0 });
        match timers.0.get_mut(free) {
            Some(place) => *place = made,
            None => timers.0.push(made),
        }
        Ok(free as u64)
    })?;
    if let Err(fault) = user::write(id_at, &(id as u32)) {
        with(|timers| timers.0[id as usize] = None);
        return Err(fault.into());
    }
    Ok(0)
}

/// timer_settime.
pub async fn set(id: u64, flags: u64, new_at: u64, old_at: u64) -> Outcome {
    let (value, interval_ns) = wish(new_at)?;
    let clock = with(|timers| {
        let timer = timers.get(id)?;
        timer.more = 0;
        Ok::<_, Errno>(timer.clock)
    })?;
    let start = match value {
        0 => TimerStart::Never,
        at if flags & TFD_TIMER_ABSTIME != 0 => TimerStart::At(moment(clock, at)),
        value => TimerStart::In(value),
    };
    let before = proxy().process.set_alarm(number(id), start, interval_ns).await?;
    user::write_if(old_at, &spec(before))?;
    Ok(0)
}

/// timer_gettime.
pub async fn state(id: u64, at: u64) -> Outcome {
    with(|timers| timers.get(id).map(drop))?;
    user::write(at, &spec(proxy().process.alarm(number(id)).await?))?;
    Ok(0)
}

/// timer_getoverrun.
pub fn overrun(id: u64) -> Outcome {
    Ok(with(|timers| timers.get(id).map(|timer| timer.overrun))?)
}

/// timer_delete.
pub async fn delete(id: u64) -> Outcome {
    with(|timers| timers.get(id).map(drop))?;
    with(|timers| timers.0[id as u32 as usize] = None);
    proxy().process.set_alarm(number(id), TimerStart::Never, 0).await?;
    Ok(0)
}

/// execve: timers of timer_create go.
pub fn delete_all() {
    for (id, _) in with(core::mem::take).0.into_iter().enumerate().filter(|(_, timer)| timer.is_some()) {
        // The server does it before what is asked next; nobody needs the answer.
        let call = proxy().process.set_alarm(number(id as u64), TimerStart::Never, 0);
        runtime::spawn(async move {
            let _ = call.await;
        });
    }
}

/// The process server says that one expired.
pub fn expired(number: u32, times: u64) {
    if let Some(index) = number.checked_sub(OWN_MAX) {
        return look(index as usize % USED_TIMERS);
    }
    let Some(id) = number.checked_sub(REAL + 1) else {
        threads::post(SIGALRM, Cause::of_process(code::SI_KERNEL, 0));
        return;
    };
    let Ok(timer) = with(|timers| timers.get(id.into()).copied()) else { return };
    if timer.signal == 0 {
        return;
    }
    let (is_pending, more) = match timer.is_pending {
        true => (true, timer.more.saturating_add(times)),
        false => {
            let cause = Cause::timer(id, timer.value);
            let posted = match timer.thread {
                None => threads::post(timer.signal, cause),
                Some(thread) => threads::post_to(thread, timer.signal, cause).unwrap_or(Posted::Ignored),
            };
            (posted == Posted::Kept, times.saturating_sub(1))
        }
    };
    with(|timers| {
        if let Ok(timer) = timers.get(id.into()) {
            (timer.is_pending, timer.more) = (is_pending, more);
        }
    });
}

/// A signal is delivered: one of a timer says how often that expired beyond once.
pub fn delivered(cause: &mut Cause) {
    let Some(id) = cause.timer_of() else { return };
    with(|timers| {
        let Ok(timer) = timers.get(id.into()) else { return };
        timer.overrun = core::mem::take(&mut timer.more).min(i32::MAX as u64);
        timer.is_pending = false;
        cause.words[0] = u64::from(id) | timer.overrun << 32;
    });
}

/// timerfd_create.
pub async fn open(which: u64, flags: u64) -> Outcome {
    only(flags, (O_CLOEXEC | O_NONBLOCK).into())?;
    let clock = clock(which).ok().filter(|clock| *clock != TAI).ok_or(Errno::EINVAL)?;
    with_state(|state| state.descriptors.room(1))?;
    let id = proxy().process.timer(is_of_day(clock)).await.map_err(|_| Errno::ENFILE)?;
    let flags = flags as u32;
    let made =
        Description { id, server: server::PROCESS, flags: O_RDWR | flags & O_NONBLOCK, ..Description::default() };
    Ok(with_state(|state| state.descriptors.add(made, flags & O_CLOEXEC != 0))?)
}

/// Its id at the process server. `EINVAL` for what can be no timer.
fn opened(descriptor: u64) -> Result<u64, Failure> {
    let found = description(descriptor)?;
    if found.server == server::PROCESS { Ok(found.id) } else { Err(Errno::EINVAL.into()) }
}

/// timerfd_settime. The clock is never set, so nothing is ever cancelled by that.
pub async fn set_opened(descriptor: u64, flags: u64, new_at: u64, old_at: u64) -> Outcome {
    if flags & !(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let id = opened(descriptor)?;
    let (value, interval_ns) = wish(new_at)?;
    let start = match value {
        0 => TimerStart::Never,
        at if flags & TFD_TIMER_ABSTIME != 0 => TimerStart::At(at),
        value => TimerStart::In(value),
    };
    let before = proxy().process.set_timer(id, start, interval_ns).await?;
    user::write_if(old_at, &spec(before))?;
    Ok(0)
}

/// timerfd_gettime.
pub async fn opened_state(descriptor: u64, at: u64) -> Outcome {
    user::write(at, &spec(proxy().process.timer_state(opened(descriptor)?).await?))?;
    Ok(0)
}
