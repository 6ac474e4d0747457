//! Statics of the kernel.
//!
//! Every core maps its own copy of .data and .bss, and its kernel runs on one thread with
//! interrupts off: a [`CoreLocal`] therefore needs no lock, only a guard against re-entry, which
//! would be a bug of ours and panics. [`Shared`] is the opposite: one value for the machine,
//! written by core 0 while it is the only core, read-only (also in the page tables of other cores,
//! and in the copies of other NUMA nodes) ever after. On the host a `CoreLocal` is one ordinary
//! static: tests that use one from several threads must not.

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;

/// A static of this core.
pub struct CoreLocal<T> {
    value: UnsafeCell<T>,
    busy: Cell<bool>,
}

// SAFETY: in the kernel each core has its own copy and one thread of execution; on the host tests
// keep to one thread (see above).
unsafe impl<T> Sync for CoreLocal<T> {}

impl<T> CoreLocal<T> {
    /// A static with this initial value on every core.
    pub const fn new(value: T) -> Self {
        CoreLocal { value: UnsafeCell::new(value), busy: Cell::new(false) }
    }

    /// Runs `f` with the value. Panics when the value is already in use further up the stack.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        assert!(!self.busy.replace(true), "core-local value used while in use");
        // SAFETY: one thread per copy, and `busy` excludes a second borrow by the same thread.
        let result = f(unsafe { &mut *self.value.get() });
        self.busy.set(false);
        result
    }

    /// A copy of the value.
    #[inline(always)]
    pub fn get(&self) -> T
    where
        T: Copy,
    {
        assert!(!self.busy.get(), "core-local value read while in use");
        // SAFETY: as in `with`.
        unsafe { *self.value.get() }
    }

    /// Where the value is, for code that shares its layout with assembly.
    pub const fn as_ptr(&self) -> *mut T {
        self.value.get()
    }
}

/// A static of the whole machine. Must carry `#[unsafe(link_section = ".bss.shared")]`. Starts as
/// zero bytes.
#[repr(transparent)]
pub struct Shared<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: written only by core 0 before any other core runs, or under the conditions of
// `write_alone`.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Zero bytes, whatever `T` is.
    pub const fn zeroed() -> Self {
        Shared(UnsafeCell::new(MaybeUninit::zeroed()))
    }

    /// Reads it.
    ///
    /// # Safety
    /// Zero bytes must be a valid `T`, or a valid `T` has been written; nobody holds the reference
    /// of [`Shared::write_alone`].
    pub const unsafe fn get(&self) -> &T {
        // SAFETY: by contract.
        unsafe { (*self.0.get()).assume_init_ref() }
    }

    /// Writes it.
    ///
    /// # Safety
    /// As [`Shared::get`]; and the caller is core 0 during boot with no other reference alive.
    #[allow(clippy::mut_from_ref)]
    pub const unsafe fn write_alone(&self) -> &mut T {
        // SAFETY: by contract.
        unsafe { (*self.0.get()).assume_init_mut() }
    }

    /// Where it is.
    pub const fn as_ptr(&self) -> *mut T {
        self.0.get().cast()
    }
}
