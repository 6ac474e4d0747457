//! The one `Threads` that runs.

use core::cell::Cell;

use crate::threads::Inner;

struct Running(Cell<*const Inner>);

// SAFETY: only the program's first context runs threads, and none of the functions here is
// interrupted: all are called closed.
unsafe impl Sync for Running {}

static RUNNING: Running = Running(Cell::new(core::ptr::null()));

/// Makes it this one; `false` if there is one already.
pub fn enter(inner: &Inner) -> bool {
    let is_free = RUNNING.0.get().is_null();
    if is_free {
        RUNNING.0.set(inner);
    }
    is_free
}

/// It runs no more.
pub fn leave() {
    RUNNING.0.set(core::ptr::null());
}

/// Does something with it.
pub fn with<T>(work: impl FnOnce(&Inner) -> T) -> Option<T> {
    // SAFETY: `run` borrows it from `enter` to `leave`.
    unsafe { RUNNING.0.get().as_ref() }.map(work)
}
