//! A pipe: a bounded queue of bytes between writers and readers.
//!
//! Invariants: at most [`CAPACITY_BYTES`] wait, or [`SMALL_BYTES`], or as many as were asked for
//! below that, and the memory for them is no more; a write of at most [`ATOMIC_BYTES`] is taken
//! whole or not at all (POSIX PIPE_BUF).

use alloc::collections::VecDeque;

use contracts::descriptions::DescriptionError as Error;

/// Bytes a pipe holds, as Linux's default.
pub const CAPACITY_BYTES: usize = 64 << 10;
/// Bytes that a pipe holds beyond those that get the default, as on Linux.
pub const SMALL_BYTES: usize = 8 << 10;
/// Writes up to this size never mix with others.
pub const ATOMIC_BYTES: usize = 4096;

/// The queue and whether both sides are there.
#[derive(Debug)]
pub struct Pipe {
    bytes: VecDeque<u8>,
    /// So many may wait.
    most: usize,
    is_small: bool,
    /// The last reader went.
    pub readers_gone: bool,
    /// The last writer went.
    pub writers_gone: bool,
}

/// What a read or write can do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// So many bytes.
    Bytes(usize),
    /// Nothing now.
    Wait,
    /// The other side is gone: end of file, or broken pipe.
    Over,
}

impl Pipe {
    /// An empty one between living ends, of the default size or a small one.
    pub fn new(is_small: bool) -> Pipe {
        let most = if is_small { SMALL_BYTES } else { CAPACITY_BYTES };
        Pipe { bytes: VecDeque::new(), most, is_small, readers_gone: false, writers_gone: false }
    }

    /// Is it one of the small ones?
    pub fn is_small(&self) -> bool {
        self.is_small
    }

    /// Bytes that may wait.
    pub fn capacity(&self) -> usize {
        self.most
    }

    /// Lets at least so many wait, in pages by powers of two; gives how many. `Denied` for more
    /// than a pipe of its size may hold, `Busy` if more wait already.
    pub fn set_capacity(&mut self, bytes: usize) -> Result<usize, Error> {
        let ceiling = if self.is_small { SMALL_BYTES } else { CAPACITY_BYTES };
        let wanted = bytes.max(ATOMIC_BYTES).checked_next_power_of_two().filter(|wanted| *wanted <= ceiling);
        let wanted = wanted.ok_or(Error::Denied)?;
        if self.bytes.len() > wanted {
            return Err(Error::Busy);
        }
        self.bytes.shrink_to(wanted);
        self.most = wanted;
        Ok(wanted)
    }

    /// What a read of `wanted` bytes can have now.
    pub fn readable(&self, wanted: usize) -> Room {
        match self.bytes.len() {
            _ if wanted == 0 => Room::Bytes(0),
            0 if self.writers_gone => Room::Over,
            0 => Room::Wait,
            held => Room::Bytes(held.min(wanted)),
        }
    }

    /// What a write of `offered` bytes can put now.
    pub fn writable(&self, offered: usize) -> Room {
        let room = self.most - self.bytes.len();
        match offered {
            _ if self.readers_gone => Room::Over,
            0 => Room::Bytes(0),
            small if small <= ATOMIC_BYTES && room < small => Room::Wait,
            _ if room == 0 => Room::Wait,
            _ => Room::Bytes(room.min(offered)),
        }
    }

    /// The oldest bytes, in the two pieces they lie in; at most what [`readable`](Self::readable)
    /// said.
    pub fn front(&self, count: usize) -> [&[u8]; 2] {
        let (first, second) = self.bytes.as_slices();
        let from_first = count.min(first.len());
        [&first[..from_first], &second[..(count - from_first).min(second.len())]]
    }

    /// The oldest bytes were taken.
    pub fn remove(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
    }

    /// Appends; what does not fit is left out.
    pub fn put(&mut self, from: &[u8]) -> usize {
        let count = from.len().min(self.most - self.bytes.len());
        let held = self.bytes.len() + count;
        if held > self.bytes.capacity() {
            // By doubling, but not past the most.
            self.bytes.reserve_exact(held.next_power_of_two().min(self.most) - self.bytes.len());
        }
        self.bytes.extend(&from[..count]);
        count
    }

    /// Bytes that wait.
    pub fn held(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_and_small_writes_whole() {
        let mut pipe = Pipe::new(false);
        assert_eq!(pipe.readable(10), Room::Wait);
        assert_eq!(pipe.put(&[7; CAPACITY_BYTES - 100]), CAPACITY_BYTES - 100);
        assert_eq!((pipe.writable(101), pipe.writable(100)), (Room::Wait, Room::Bytes(100)));
        assert_eq!(pipe.writable(ATOMIC_BYTES + 1), Room::Bytes(100));
        assert_eq!(pipe.put(&[8; 200]), 100);
        assert_eq!((pipe.writable(1), pipe.writable(0)), (Room::Wait, Room::Bytes(0)));
        let all = pipe.front(CAPACITY_BYTES + 1).concat();
        assert_eq!(all.len(), CAPACITY_BYTES);
        assert!(
            all[..CAPACITY_BYTES - 100].iter().all(|byte| *byte == 7)
                && all[CAPACITY_BYTES - 100..].iter().all(|byte| *byte == 8)
        );
    }

    #[test]
    fn no_more_is_shown_than_was_asked_for() {
        let mut pipe = Pipe::new(false);
        pipe.set_capacity(4096).unwrap();
        pipe.put(&[1; 4096]);
        pipe.remove(4000);
        pipe.put(&[2; 1000]);
        assert!(!pipe.front(4096)[1].is_empty(), "it lies in two pieces");
        for count in [0, 1, 96, 97, 500, 1096] {
            assert_eq!(pipe.front(count).concat().len(), count);
        }
    }

    #[test]
    fn few_bytes_take_little_memory() {
        let mut pipe = Pipe::new(false);
        for count in [100, 100, 50] {
            pipe.put(&vec![1; count]);
        }
        assert!(pipe.bytes.capacity() <= 256, "{} for 250", pipe.bytes.capacity());
    }

    #[test]
    fn memory_is_no_more_than_may_wait() {
        for (is_small, most) in [(true, SMALL_BYTES), (false, CAPACITY_BYTES)] {
            let mut pipe = Pipe::new(is_small);
            assert_eq!(pipe.is_small(), is_small);
            for count in [1, 3000, 4000, 40_000, 30_000] {
                pipe.put(&vec![1; count]);
                assert!(pipe.bytes.capacity() <= most, "{} of {most}", pipe.bytes.capacity());
            }
            assert_eq!((pipe.held(), pipe.writable(9000)), (most, Room::Wait));
            pipe.remove(1000);
            assert_eq!((pipe.writable(9000), pipe.writable(ATOMIC_BYTES)), (Room::Bytes(1000), Room::Wait));
            assert_eq!((pipe.put(&[2; 5000]), pipe.bytes.capacity()), (1000, most));
        }
    }

    #[test]
    fn a_capacity_is_what_was_asked_for_in_whole_pages() {
        let mut pipe = Pipe::new(false);
        assert_eq!((pipe.capacity(), pipe.set_capacity(5000)), (CAPACITY_BYTES, Ok(8192)));
        assert_eq!((pipe.put(&[1; 9000]), pipe.writable(5000)), (8192, Room::Wait));
        assert_eq!((pipe.set_capacity(0), pipe.set_capacity(8192)), (Err(Error::Busy), Ok(8192)));
        assert_eq!(pipe.set_capacity(CAPACITY_BYTES + 1), Err(Error::Denied));
        assert_eq!(pipe.set_capacity(usize::MAX), Err(Error::Denied));
        assert_eq!((pipe.set_capacity(60_000), pipe.put(&[2; 1000])), (Ok(CAPACITY_BYTES), 1000));
        assert_eq!(Pipe::new(true).set_capacity(SMALL_BYTES + 1), Err(Error::Denied));
        let mut small = Pipe::new(true);
        assert_eq!((small.set_capacity(1), small.is_small(), small.capacity()), (Ok(4096), true, 4096));
    }

    #[test]
    fn a_smaller_capacity_gives_memory_back() {
        let mut pipe = Pipe::new(false);
        pipe.put(&[1; 40_000]);
        pipe.remove(39_000);
        assert_eq!((pipe.set_capacity(1), pipe.held()), (Ok(4096), 1000));
        assert!(pipe.bytes.capacity() <= 4096, "{} bytes", pipe.bytes.capacity());
    }

    #[test]
    fn the_other_side_going_is_seen_after_the_bytes() {
        let mut pipe = Pipe::new(false);
        pipe.put(b"x");
        pipe.writers_gone = true;
        assert_eq!(pipe.readable(5), Room::Bytes(1));
        pipe.remove(5);
        assert_eq!(pipe.readable(5), Room::Over);
        pipe.readers_gone = true;
        assert_eq!(pipe.writable(5), Room::Over);
        assert_eq!(pipe.readable(0), Room::Bytes(0));
    }
}
