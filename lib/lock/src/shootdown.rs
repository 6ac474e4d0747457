//! TLB shootdown: how a core asks others to invalidate what they cached of memory that both read,
//! and knows when they have.
//!
//! Each core has a [`Shootdown`]: a bit per asking core. An asker sets its bit there and rings; the
//! core invalidates, and only then clears the bits that it had seen.
//!
//! ```text
//!   asker                          asked
//!   change what is read
//!   set own bit; 0 before: ring    bits = those set
//!                                  invalidate everything
//!   own bit is clear  <----------  clear those bits (release); again while others are set
//!   use the memory otherwise
//! ```
//! A bit set after the look stays set and is looked at again, so no asker is answered by an
//! invalidation that came before its change. An asker has one question under way. Who waits for an
//! answer answers others meanwhile: so two that ask each other both go on, and nothing is waited
//! for in a circle.

use crate::{AtomicU64, Ordering};

/// Bits of a word.
const BITS: usize = 64;

/// What a core is asked by `64 * WORDS` others.
pub struct Shootdown<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Shootdown<WORDS> {
    /// Nobody asks.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Shootdown([const { AtomicU64::new(0) }; WORDS])
    }

    /// Nobody asks.
    #[cfg(loom)]
    pub fn new() -> Self {
        Shootdown(core::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// `asker` asks; tells whether to send the core an interrupt.
    pub fn ask(&self, asker: usize) -> bool {
        // Everything that was changed comes before, for the processor's walks too.
        self.0[asker / BITS].fetch_or(1 << (asker % BITS), Ordering::SeqCst) == 0
    }

    /// Whether what `asker` asked for is done.
    pub fn is_answered(&self, asker: usize) -> bool {
        self.0[asker / BITS].load(Ordering::Acquire) >> (asker % BITS) & 1 == 0
    }

    /// By the core itself: whether a shootdown is pending.
    pub fn is_asked(&self) -> bool {
        self.0.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// By the core itself: serves pending shootdowns, each by `flush` and an acknowledgement.
    /// Tells how often that was.
    pub fn answer(&self, mut flush: impl FnMut()) -> u64 {
        let mut times = 0;
        for word in &self.0 {
            let mut bits = word.load(Ordering::Acquire);
            while bits != 0 {
                flush();
                times += 1;
                bits = word.fetch_and(!bits, Ordering::SeqCst) & !bits;
            }
        }
        times
    }
}

impl<const WORDS: usize> Default for Shootdown<WORDS> {
    fn default() -> Self {
        Shootdown::new()
    }
}
