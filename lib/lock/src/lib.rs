//! What cores of one machine may share: locks of four kinds, read sections, a table that is read
//! without a lock, and how one core has others invalidate what they cached of it.
//!
//! All of it works on [`Line`]s, cache lines of eight atomic words that the caller provides:
//! whatever a wrong pointer or a peer wrote there is a wrong value, never undefined behaviour.
//! Invariants: a lock's holder alone changes what it guards; a waiter calls its [`Relax`], which
//! says how; what a table gave up is in nobody's sight when [`Reader::wait_for_all`]
//! returns. Deliberately unknown here: where the lines lie, what an entry names, how a core spends
//! the time it waits.
#![no_std]
#![forbid(unsafe_code)]

mod kinds;
mod section;
mod shootdown;
mod sync;
mod table;

pub use kinds::{Guard, Kind, Lock, Stat};
pub use section::{Reader, Section};
pub use shootdown::Shootdown;
pub use sync::{AtomicU64, Ordering, fence};
pub use table::{Entry, LineIndex, Memory, Spare, Table};

/// Words of a line.
pub const LINE_WORDS: usize = 8;

/// A cache line that cores share.
#[repr(C, align(64))]
pub struct Line(pub [AtomicU64; LINE_WORDS]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    /// All zero.
    pub fn new() -> Line {
        Line(core::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Default for Line {
    fn default() -> Self {
        Line::new()
    }
}

/// What a core does between two looks at what it waits for. A fresh one is made for each wait, so
/// it can count.
pub trait Relax: Default {
    /// Once per look.
    fn relax(&mut self);
}
