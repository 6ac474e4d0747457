//! Tasks, timers and ports of one component: everything that makes `async` run, without knowing on
//! what.
//!
//! A component is one thread. Tasks are polled first come, first served; a port (one side of a
//! channel) is polled while it is *hot* and costs nothing while it is *cold*: then its peer has
//! been told to ring. So a turn costs what is active, not what is connected. A component that wakes
//! up looks at everything once a second all the same, so that a wake-up that was lost delays its
//! task and does not stop it.
//!
//! Invariants: wakers carry a task's number and count, not a pointer, so a late wake-up is at worst
//! ignored; no borrow of the executor is held while foreign code (poll, drop, wake, port) runs,
//! save what a [`Port`] promises not to call us from; every queue is bounded by what was spawned or
//! registered. Deliberately unknown here: system calls (see [`Platform`]), what ports carry.
#![no_std]

extern crate alloc;
#[cfg(not(target_os = "none"))]
extern crate std;

#[cfg(target_os = "none")]
#[path = "local_bare.rs"]
mod local;
#[cfg(not(target_os = "none"))]
#[path = "local_host.rs"]
mod local;

mod account;
mod port;
mod signal;
mod task;
mod timer;
mod turn;

#[cfg(all(test, not(target_os = "none")))]
mod tests;

pub use account::{Account, Work, away, close_account, end_account, open_account, work, work_for};
#[cfg(not(target_os = "none"))]
pub use local::{pass, ticks};
pub use port::{Port, PortId, Rank, announce, mark, register, take_in_all, unregister};
pub use signal::{Notified, notified, post};
#[cfg(not(target_os = "none"))]
pub use task::abort_all;
pub use task::{BoxedTask, TaskId, YieldNow, abort, begin, reserve, spawn, yield_now};
pub use timer::{SleepUntil, sleep_until};
pub use turn::{Platform, block_on, is_at_rest, is_due, rest};

use core::cell::RefCell;

/// All state of the component's executor.
pub(crate) struct Executor {
    tasks: task::Tasks,
    timers: timer::Timers,
    ports: port::Ports,
    signals: signal::Signals,
    accounts: account::Accounts,
    /// Work since notifications were looked for: turns, and ports beyond the first few of each.
    work: u32,
    /// This turn looks for what need not be looked for in each.
    looks: bool,
    /// When all tasks and ports were looked at last.
    swept_ns: u64,
}

impl Executor {
    const fn new() -> Executor {
        Executor {
            tasks: task::Tasks::new(),
            timers: timer::Timers::new(),
            ports: port::Ports::new(),
            signals: signal::Signals::new(),
            accounts: account::Accounts::new(),
            work: 0,
            looks: false,
            swept_ns: 0,
        }
    }

    /// Begins a turn.
    fn begin_turn(&mut self) {
        self.work += 1;
        self.looks = self.work >= turn::WORK_BETWEEN_LOOKS;
        if self.looks {
            self.work = 0;
        }
    }

    /// Is it time to look at everything? At most once in a while.
    fn sweeps(&mut self, now_ns: u64) -> bool {
        let is_time = now_ns.saturating_sub(self.swept_ns) >= turn::SWEEP_NS;
        if is_time {
            self.swept_ns = now_ns;
        }
        is_time
    }

    /// Has all that is known been handled, and every due notification sent?
    fn is_done(&self) -> bool {
        self.tasks.ready_count() == 0 && !self.signals.has_posted() && !self.ports.any_dirty()
    }

    /// Is this a turn for what need not be looked at in each?
    fn looks(&self) -> bool {
        self.looks
    }
}

/// Runs `work` on this component's executor. `work` must not run foreign code.
#[inline(always)]
pub(crate) fn with<T>(work: impl FnOnce(&mut Executor) -> T) -> T {
    local::with(|cell: &RefCell<Executor>| work(&mut cell.borrow_mut()))
}
