//! Words that a core writes in its own memory for others to read: one writer, any number of
//! readers, which write nothing there.
//!
//!   writer                      reader (woken by a wake bit, or polling)
//!   write the data
//!   Word::write (Release) --->  Word::read (Acquire)
//!                               read the data
//! On this machine both are plain moves; nothing here is a locked instruction.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A word: a reader of a value also sees what its writer wrote before.
#[derive(Default)]
pub struct Word(AtomicU64);

impl Word {
    /// A word of 0.
    pub const fn new() -> Word {
        Word(AtomicU64::new(0))
    }

    /// Reads what its core wrote last.
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Writes a value; only for its own core.
    pub fn write(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }
}

/// A byte that a [`Word`] tells of, and that its writer may write anew while others read.
#[derive(Default)]
pub struct Byte(AtomicU8);

impl Byte {
    /// A byte of 0.
    pub const fn new() -> Byte {
        Byte(AtomicU8::new(0))
    }

    /// What is there.
    pub fn read(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// Only for its own core.
    pub fn write(&self, value: u8) {
        self.0.store(value, Ordering::Relaxed);
    }
}
