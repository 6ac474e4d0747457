//! On a host each thread is a component of its own, so that tests run in parallel.

use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;
use std::thread_local;

use crate::Executor;
use crate::account::Now;

thread_local! {
    /// Never dropped, as in a component: tasks and ports would look for it while it goes.
    static EXECUTOR: ManuallyDrop<RefCell<Executor>> = const { ManuallyDrop::new(RefCell::new(Executor::new())) };
    static NOW: Now = const { Now::new() };
    static TICKS: Cell<u64> = const { Cell::new(1) };
}

pub fn with<T>(work: impl FnOnce(&RefCell<Executor>) -> T) -> T {
    EXECUTOR.with(|executor| work(executor))
}

pub fn now<T>(work: impl FnOnce(&Now) -> T) -> T {
    NOW.with(work)
}

/// What [`pass`] was told, and 1.
pub fn ticks() -> u64 {
    TICKS.get()
}

/// For tests: work that takes so many ticks of the clock of accounts.
pub fn pass(ticks: u64) {
    TICKS.set(TICKS.get() + ticks);
}
