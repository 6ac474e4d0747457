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

#[cfg(test)]
mod tests {
    use super::*;

    /// A value that is seen says that all that was written before is there.
    #[test]
    fn who_sees_a_word_sees_what_was_written_before_it() {
        const ROUNDS: u64 = 20_000;
        let (word, bytes) = (Word::new(), [const { Byte::new() }; 256]);
        assert_eq!((word.read(), bytes[0].read()), (0, 0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    bytes[round as usize % 256].write((round >> 8) as u8);
                    word.write(round);
                }
            });
            let mut seen = 0;
            while seen < ROUNDS {
                let now = word.read();
                assert!(now >= seen);
                seen = now;
                // It may be newer, not older.
                let byte = bytes[seen as usize % 256].read();
                assert!(byte.wrapping_sub((seen >> 8) as u8) <= ((ROUNDS - seen) >> 8) as u8 + 1);
            }
        });
        assert_eq!((word.read(), bytes[ROUNDS as usize % 256].read()), (ROUNDS, (ROUNDS >> 8) as u8));
    }
}
