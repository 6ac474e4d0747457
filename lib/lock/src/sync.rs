//! The atomics: the processor's, or the model checker's.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
