//! The one `Threads` that runs on this host thread.

use core::cell::Cell;

use crate::threads::Inner;

std::thread_local! {
    static RUNNING: Cell<*const Inner> = const { Cell::new(core::ptr::null()) };
}

/// Makes it this one; `false` if there is one already.
pub fn enter(inner: &Inner) -> bool {
    let is_free = RUNNING.get().is_null();
    if is_free {
        RUNNING.set(inner);
    }
    is_free
}

/// It runs no more.
pub fn leave() {
    RUNNING.set(core::ptr::null());
}

/// Does something with it.
pub fn with<T>(work: impl FnOnce(&Inner) -> T) -> Option<T> {
    // SAFETY: `run` borrows it from `enter` to `leave`.
    unsafe { RUNNING.get().as_ref() }.map(work)
}
