//! On a host each thread is a component of its own, so that tests run in parallel.

use core::cell::RefCell;
use core::mem::ManuallyDrop;
use std::thread_local;

use crate::Executor;

thread_local! {
    /// Never dropped, as in a component: tasks and ports would look for it while it goes.
    static EXECUTOR: ManuallyDrop<RefCell<Executor>> = const { ManuallyDrop::new(RefCell::new(Executor::new())) };
}

pub fn with<T>(work: impl FnOnce(&RefCell<Executor>) -> T) -> T {
    EXECUTOR.with(|executor| work(executor))
}
