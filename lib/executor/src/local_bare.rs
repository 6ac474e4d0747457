//! The executor's one instance in a component.

use core::cell::{OnceCell, RefCell};

use crate::Executor;

struct Local(OnceCell<RefCell<Executor>>);

// SAFETY: a component has one execution context that runs Rust code of this crate; no second thread can reach the static. (Threads of a
// Linux program are contexts of their own, but enter the proxy one at a time.)
unsafe impl Sync for Local {}

static EXECUTOR: Local = Local(OnceCell::new());

pub fn with<T>(work: impl FnOnce(&RefCell<Executor>) -> T) -> T {
    work(EXECUTOR.0.get_or_init(Default::default))
}
