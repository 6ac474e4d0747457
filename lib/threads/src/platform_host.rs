//! On a host, for tests: no upcalls come, and each host thread has a control page of its own.

use abi::{ControlPage, Error};
use core::cell::{Cell, UnsafeCell};
use std::vec::Vec;

std::thread_local! {
    static CONTROL: UnsafeCell<[u64; 512]> = const { UnsafeCell::new([0; 512]) };
    /// Where upcalls go, 0 for nowhere; tests make them.
    pub static UPCALL: Cell<u64> = const { Cell::new(0) };
    /// How many stacks there are.
    pub static STACKS: Cell<usize> = const { Cell::new(0) };
}

/// As in `platform_bare.rs`.
pub fn control() -> *mut ControlPage {
    CONTROL.with(UnsafeCell::get).cast()
}

/// As in `platform_bare.rs`.
///
/// # Safety
/// None is needed: it is only kept.
pub unsafe fn register(entry: u64, _stack_top: u64, _flags: u64) -> Result<(), Error> {
    UPCALL.set(entry);
    Ok(())
}

/// As in `platform_bare.rs`.
pub struct Stack(Vec<u128>);

/// A test's machinery needs more than a component.
const PAGES_MIN: u64 = 64;

impl Stack {
    /// As in `platform_bare.rs`.
    pub fn new(pages: u64) -> Result<Stack, Error> {
        STACKS.set(STACKS.get() + 1);
        Ok(Stack(std::vec![0; pages.max(PAGES_MIN) as usize * 256]))
    }

    /// As in `platform_bare.rs`.
    pub fn top(&self) -> u64 {
        self.0.as_ptr_range().end as u64
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        STACKS.set(STACKS.get() - 1);
    }
}
