//! On a host, for tests: no upcalls come, and each host thread has a control page of its own.

use abi::{ControlPage, Error};
use core::cell::UnsafeCell;
use std::vec::Vec;

std::thread_local! {
    static CONTROL: UnsafeCell<[u64; 512]> = const { UnsafeCell::new([0; 512]) };
}

/// As in `platform_bare.rs`.
pub fn control() -> *mut ControlPage {
    CONTROL.with(UnsafeCell::get).cast()
}

/// As in `platform_bare.rs`.
///
/// # Safety
/// None is needed: nothing is done.
pub unsafe fn register(_entry: u64, _stack_top: u64, _flags: u64) -> Result<(), Error> {
    Ok(())
}

/// As in `platform_bare.rs`.
pub struct Stack(Vec<u128>);

/// A test's machinery needs more than a component.
const PAGES_MIN: u64 = 64;

impl Stack {
    /// As in `platform_bare.rs`.
    pub fn new(pages: u64) -> Result<Stack, Error> {
        Ok(Stack(std::vec![0; pages.max(PAGES_MIN) as usize * 256]))
    }

    /// As in `platform_bare.rs`.
    pub fn top(&self) -> u64 {
        self.0.as_ptr_range().end as u64
    }
}
