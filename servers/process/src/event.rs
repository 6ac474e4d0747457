//! An event counter, as eventfd(2) has it.
//!
//! Invariant: the count is at most [`COUNT_MAX`], so that a reader can tell it from an error.

use contracts::descriptions::{DescriptionError as Error, ready};

/// The largest count.
pub const COUNT_MAX: u64 = u64::MAX - 1;
/// What is read and written at a time.
pub const BYTES: usize = 8;

/// A counter that writers add to and readers take from.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    count: u64,
    /// A read takes one, not all.
    is_semaphore: bool,
}

impl Event {
    /// A counter that stands at `count`.
    pub fn new(count: u64, is_semaphore: bool) -> Event {
        Event { count: count.min(COUNT_MAX), is_semaphore }
    }

    /// Takes from it. `WouldBlock` at 0.
    pub fn take(&mut self) -> Result<u64, Error> {
        let taken = if self.is_semaphore { self.count.min(1) } else { self.count };
        self.count -= taken;
        if taken == 0 { Err(Error::WouldBlock) } else { Ok(taken) }
    }

    /// Adds to it. `Invalid` for what no count can hold, `WouldBlock` while there is no room.
    pub fn add(&mut self, more: u64) -> Result<(), Error> {
        match self.count.checked_add(more) {
            _ if more > COUNT_MAX => Err(Error::Invalid),
            Some(count) if count <= COUNT_MAX => {
                self.count = count;
                Ok(())
            }
            _ => Err(Error::WouldBlock),
        }
    }

    /// What holds of `ready`.
    pub fn ready(&self) -> u32 {
        let reads = if self.count > 0 { ready::READ } else { 0 };
        reads | if self.count < COUNT_MAX { ready::WRITE } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_takes_all_or_one() {
        let mut event = Event::new(3, false);
        assert_eq!((event.take(), event.take()), (Ok(3), Err(Error::WouldBlock)));
        event.add(2).unwrap();
        event.add(5).unwrap();
        assert_eq!(event.take(), Ok(7));
        let mut semaphore = Event::new(2, true);
        assert_eq!((semaphore.take(), semaphore.take()), (Ok(1), Ok(1)));
        assert_eq!(semaphore.take(), Err(Error::WouldBlock));
    }

    #[test]
    fn the_count_never_passes_its_limit() {
        let mut event = Event::new(0, false);
        assert_eq!(event.ready(), ready::WRITE);
        assert_eq!(event.add(u64::MAX), Err(Error::Invalid));
        event.add(COUNT_MAX).unwrap();
        assert_eq!((event.ready(), event.add(1)), (ready::READ, Err(Error::WouldBlock)));
        assert_eq!(event.add(0), Ok(()));
        assert_eq!(event.take(), Ok(COUNT_MAX));
    }
}
