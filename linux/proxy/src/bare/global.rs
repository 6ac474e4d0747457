//! A value of the whole proxy.

/// A static that need not be shared.
pub struct Global<T>(pub T);

// SAFETY: one context runs proxy code.
unsafe impl<T> Sync for Global<T> {}
