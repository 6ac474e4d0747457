//! The executor's one instance in a component.

use core::arch::x86_64::_rdtsc;
use core::cell::RefCell;

use crate::Executor;
use crate::account::Now;

struct Local {
    executor: RefCell<Executor>,
    now: Now,
}

// SAFETY: a component has one execution context that runs Rust code of this crate; no second thread
// can reach the static. (Threads of a Linux program are contexts of their own, but enter the proxy
// one at a time.)
unsafe impl Sync for Local {}

static LOCAL: Local = Local { executor: RefCell::new(Executor::new()), now: Now::new() };

#[inline(always)]
pub fn with<T>(work: impl FnOnce(&RefCell<Executor>) -> T) -> T {
    work(&LOCAL.executor)
}

#[inline(always)]
pub fn now<T>(work: impl FnOnce(&Now) -> T) -> T {
    work(&LOCAL.now)
}

/// The processor's clock.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: reads a counter that every processor we run on has.
    unsafe { _rdtsc() }
}
