//! The loop: what comes in, what is ready, what goes out, and sleep.

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll};

use crate::{Account, Rank, account, port, task, timer, with};

/// What the executor needs from below.
pub trait Platform {
    /// Nanoseconds since boot.
    fn now_ns(&self) -> u64;
    /// How long the component ran, by the kernel's account, in ticks of the processor's clock.
    fn ran_ticks(&self) -> u64;
    /// Badge bits that came, or 0 when `deadline_ns` passed (0 = only look, `u64::MAX` = no
    /// deadline).
    fn wait(&self, deadline_ns: u64) -> u64;
}

/// How long to look for an answer from another core before sleeping: about what a wake-up costs.
const POLL_NS: u64 = 6_000;
/// Looks between two readings of the clock.
const POLL_BATCH: usize = 64;
/// While busy, notifications are looked for once in so many turns, and sooner where turns are long:
/// who is found not to look for long is taken for one that hangs.
pub(crate) const WORK_BETWEEN_LOOKS: u32 = 16;
/// How often all tasks are polled and all ports looked at by a component that wakes up at all, and
/// its monitor's beat of everybody sees to that: a wake-up that was lost, by whatever mistake,
/// costs this and the time between two such beats, and no more.
pub(crate) const SWEEP_NS: u64 = 1_000_000_000;
/// Ports that count as a turn.
pub(crate) const PORTS_OF_A_TURN: usize = 8;

/// Runs the component until `future` is done. Not to be called from inside a task.
pub fn block_on<F: Future>(platform: &impl Platform, future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = task::waker(task::MAIN);
    let mut context = Context::from_waker(&waker);
    with(|executor| executor.tasks.wake(task::MAIN));
    loop {
        receive(platform, true, false);
        if with(|executor| executor.tasks.take_main_ready()) {
            account::work_for(Account::OWN);
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                port::flush();
                return output;
            }
        }
        work(platform, true);
    }
}

/// Handles all there is to handle and tells all peers to ring, as before sleep, but does not sleep:
/// for a component that now does something else until a notification comes (a Linux program running
/// beside its proxy). `looks`: there may be one already, so look for it first.
pub fn rest(platform: &impl Platform, mut looks: bool) {
    // Mostly all is done, and peers are to be told.
    if !looks && with(|executor| executor.is_done()) && !idle(platform, false) {
        return;
    }
    loop {
        receive(platform, false, looks);
        looks = false;
        if !work(platform, false) {
            return;
        }
    }
}

/// Is nothing ready, nothing to be announced, and every peer told to ring? Then [`rest`] has only
/// notifications to look for. Reads memory only.
pub fn is_at_rest() -> bool {
    with(|executor| executor.is_done() && executor.ports.are_cold())
}

/// Has a time come that somebody waits for? Reads memory only.
pub fn is_due(now_ns: u64) -> bool {
    with(|executor| executor.timers.is_due(now_ns))
}

/// First half of a turn: takes in what has come. Looks for notifications if it `must`, and now and
/// then.
fn receive(platform: &impl Platform, may_sleep: bool, must: bool) {
    let (looks, posted, is_quiet) = with(|executor| {
        executor.begin_turn();
        let is_quiet = executor.tasks.ready_count() == 0 && executor.ports.are_cold();
        (executor.looks() || must, executor.signals.take_posted(), is_quiet)
    });
    if is_quiet && !looks && posted == 0 {
        return;
    }
    deliver(posted | if looks { platform.wait(0) } else { 0 });
    port::poll_hot(Rank::Response);
    // Whom an answer wakes goes on before new work begins.
    run_ready();
    port::poll_hot(Rank::Request);
    if looks {
        if with(|executor| executor.accounts.is_unsettled()) {
            account::settle(platform.ran_ticks());
        }
        let now_ns = platform.now_ns();
        timer::expire(now_ns);
        if may_sleep && with(|executor| executor.sweeps(now_ns)) {
            look_at_all();
        }
    }
}

/// Has the next turn look at everything.
#[cold]
fn look_at_all() {
    with(|executor| executor.tasks.wake_all());
    port::heat_all();
}

/// Second half: runs what is ready and rings whom it concerns. False if there was nothing to do and
/// nothing is hot any more; sleeps then, if `may_sleep`.
fn work(platform: &impl Platform, may_sleep: bool) -> bool {
    run_ready();
    port::flush();
    // A main future that is ready belongs to `block_on`: `rest` must not wait for it.
    if with(|executor| executor.tasks.ready_count() > 0 || may_sleep && executor.tasks.any_ready()) {
        return true;
    }
    // Mostly the answer is there: a server on this core had our time. Now and then the long
    // way, so that quiet ports become cold.
    if !with(|executor| executor.looks()) && port::may_be_answered() && port::any_hot_ready() {
        return true;
    }
    idle(platform, may_sleep)
}

/// Polls the tasks that are ready now; what they wake runs after new messages.
#[inline]
fn run_ready() {
    if with(|executor| executor.tasks.ready_count() > 0) {
        run_each();
    }
}

fn run_each() {
    for _ in 0..with(|executor| executor.tasks.ready_count()) {
        task::poll_next();
    }
}

#[inline]
fn deliver(bits: u64) {
    if bits != 0 {
        deliver_each(bits);
    }
}

fn deliver_each(bits: u64) {
    let rest = port::deliver(bits);
    if rest == 0 {
        return;
    }
    let wakers = with(|executor| executor.signals.keep(rest));
    wakers.into_iter().for_each(|waker| waker.wake());
}

/// Nothing is ready: timers, a short poll if other cores talk to us, then sleep.
fn idle(platform: &impl Platform, may_sleep: bool) -> bool {
    let now_ns = platform.now_ns();
    if timer::expire(now_ns) {
        return true;
    }
    if may_sleep && port::any_remote_hot() && poll_until(platform, now_ns + POLL_NS) {
        return true;
    }
    if !port::cool_all() {
        return true;
    }
    let posted = with(|executor| executor.signals.take_posted());
    if posted != 0 {
        deliver(posted);
        return true;
    }
    if may_sleep {
        let (is_time, first_ns) = with(|executor| (executor.sweeps(now_ns), executor.timers.first_ns()));
        if is_time {
            look_at_all();
        } else {
            deliver(account::asleep(|| platform.wait(first_ns)));
        }
        return true;
    }
    false
}

fn poll_until(platform: &impl Platform, deadline_ns: u64) -> bool {
    while platform.now_ns() < deadline_ns {
        for _ in 0..POLL_BATCH {
            if port::any_hot_ready() {
                return true;
            }
        }
    }
    false
}
