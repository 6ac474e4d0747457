//! A pipe: a bounded queue of bytes between writers and readers.
//!
//! Invariants: at most [`CAPACITY_BYTES`] wait; a write of at most [`ATOMIC_BYTES`] is taken whole
//! or not at all (POSIX PIPE_BUF).

use alloc::collections::VecDeque;

/// Bytes a pipe holds, as Linux's default.
pub const CAPACITY_BYTES: usize = 64 << 10;
/// Writes up to this size never mix with others.
pub const ATOMIC_BYTES: usize = 4096;

/// The queue and whether both sides are there.
#[derive(Debug, Default)]
pub struct Pipe {
    bytes: VecDeque<u8>,
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
        let room = CAPACITY_BYTES - self.bytes.len();
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
        let count = from.len().min(CAPACITY_BYTES - self.bytes.len());
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
        let mut pipe = Pipe::default();
        assert_eq!(pipe.readable(10), Room::Wait);
        assert_eq!(pipe.put(&[7; CAPACITY_BYTES - 100]), CAPACITY_BYTES - 100);
        assert_eq!(pipe.writable(101), Room::Wait);
        assert_eq!(pipe.writable(ATOMIC_BYTES + 1), Room::Bytes(100));
        assert_eq!(pipe.put(&[8; 200]), 100);
        assert_eq!(pipe.writable(1), Room::Wait);
        let all = pipe.front(CAPACITY_BYTES + 1).concat();
        assert_eq!(all.len(), CAPACITY_BYTES);
        assert!(
            all[..CAPACITY_BYTES - 100].iter().all(|byte| *byte == 7)
                && all[CAPACITY_BYTES - 100..].iter().all(|byte| *byte == 8)
        );
    }

    #[test]
    fn the_other_side_going_is_seen_after_the_bytes() {
        let mut pipe = Pipe::default();
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
