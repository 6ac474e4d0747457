//! An event counter, as eventfd(2) has it: writers add to it, readers take from it.
//!
//! Invariant: the count is at most [`COUNT_MAX`], so that a reader can tell it from an error.
//! Deliberately unknown here: who keeps it, and who waits for it.
#![no_std]
#![forbid(unsafe_code)]

/// The largest count.
pub const COUNT_MAX: u64 = u64::MAX - 1;
/// What is read and written at a time.
pub const BYTES: usize = 8;

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    count: u64,
    is_semaphore: bool,
}

/// Why nothing was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No count can hold that much.
    TooLarge,
    /// There is no room now.
    Full,
}

impl Counter {
    /// A counter that stands at `count`, or at the largest. Of a semaphore a read takes one, not
    /// all.
    pub fn new(count: u64, is_semaphore: bool) -> Counter {
        Counter { count: count.min(COUNT_MAX), is_semaphore }
    }

    /// Where it stands.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes from it; `None` at 0.
    pub fn take(&mut self) -> Option<u64> {
        let taken = if self.is_semaphore { self.count.min(1) } else { self.count };
        self.count -= taken;
        (taken != 0).then_some(taken)
    }

    /// Adds to it.
    pub fn add(&mut self, more: u64) -> Result<(), Refused> {
        match self.count.checked_add(more) {
            _ if more > COUNT_MAX => Err(Refused::TooLarge),
            Some(count) if count <= COUNT_MAX => {
                self.count = count;
                Ok(())
            }
            _ => Err(Refused::Full),
        }
    }

    /// Is there something to take?
    pub fn is_readable(&self) -> bool {
        self.count > 0
    }

    /// Is there room for one?
    pub fn is_writable(&self) -> bool {
        self.count < COUNT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_takes_all_or_one() {
        let mut counter = Counter::new(3, false);
        assert_eq!((counter.take(), counter.take()), (Some(3), None));
        counter.add(2).unwrap();
        counter.add(5).unwrap();
        assert_eq!(counter.take(), Some(7));
        let mut semaphore = Counter::new(2, true);
        assert_eq!((semaphore.take(), semaphore.take(), semaphore.take()), (Some(1), Some(1), None));
    }

    /// Where it stands is what is told of a counter that another keeper takes over.
    #[test]
    fn where_it_stands_is_told() {
        for is_semaphore in [false, true] {
            let mut counter = Counter::new(5, is_semaphore);
            assert_eq!(counter.count(), 5);
            counter.add(4).unwrap();
            assert_eq!(counter.count(), 9);
            counter.take();
            assert_eq!((counter.count(), counter.is_readable()), if is_semaphore { (8, true) } else { (0, false) });
            assert_eq!(Counter::new(u64::MAX, is_semaphore).count(), COUNT_MAX);
        }
    }

    #[test]
    fn the_count_never_passes_its_limit() {
        let mut counter = Counter::new(0, false);
        assert!(!counter.is_readable() && counter.is_writable());
        assert_eq!(counter.add(u64::MAX), Err(Refused::TooLarge));
        counter.add(COUNT_MAX).unwrap();
        assert!(counter.is_readable() && !counter.is_writable());
        assert_eq!((counter.add(1), counter.add(0)), (Err(Refused::Full), Ok(())));
        assert_eq!(counter.take(), Some(COUNT_MAX));
    }
}
