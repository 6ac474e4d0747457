//! A split virtqueue (virtio 1.2, section 2.7) whose descriptor `n` always stands for buffer `n`.
//!
//! Only this side reads what it wrote itself from its own copies; of what the device writes nothing
//! is trusted: an unknown number is skipped and counted, an index that runs ahead of what was given
//! breaks the queue.

use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};
use packet::{BUFFERS, BufferSet, Memory, OutOfBounds};

/// Entries of a queue: one per buffer of its pool.
pub const ENTRIES: u16 = BUFFERS;
/// Bytes of a queue in the ring region: descriptor table, available ring and used ring, each at a
/// page of its own.
pub const QUEUE_BYTES: usize = 3 * 4096;
/// Where the parts begin.
pub const AVAILABLE_OFFSET: usize = 4096;
/// See [`AVAILABLE_OFFSET`].
pub const USED_OFFSET: usize = 2 * 4096;

/// In the available and in the used ring: how many entries were ever written.
pub const INDEX_OFFSET: usize = 2;

/// Descriptor flag: the device writes.
const WRITE: u16 = 2;
/// Available-ring flag: no interrupt wanted.
const NO_INTERRUPT: u16 = 1;
/// Used-ring flag: no notification wanted.
const NO_NOTIFY: u16 = 1;

/// The device said something impossible; remedy: reset it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// A buffer the device has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Which.
    pub buffer: u16,
    /// Bytes the device says it wrote; not checked.
    pub written: u32,
}

/// One queue in a region.
pub struct Queue<M> {
    memory: M,
    base: usize,
    device_writes: bool,
    available: u16,
    seen: u16,
    given: BufferSet,
    /// Numbers the device should not have said.
    pub lies: u64,
}

impl<M: Memory> Queue<M> {
    /// An empty queue at `base` of the ring region. The device must be reset. `OutOfBounds` if the
    /// region is too small.
    pub fn new(memory: M, base: usize, device_writes: bool) -> Result<Queue<M>, OutOfBounds> {
        let zeros = [0u8; 4096];
        for page in 0..QUEUE_BYTES / zeros.len() {
            memory.write(base + page * zeros.len(), &zeros)?;
        }
        let queue = Queue { memory, base, device_writes, available: 0, seen: 0, given: BufferSet::EMPTY, lies: 0 };
        queue.want_interrupts(device_writes);
        Ok(queue)
    }

    /// Buffers the device has.
    pub fn given(&self) -> BufferSet {
        self.given
    }

    /// Gives a buffer to the device; false if it has it already. Not seen by the device before
    /// [`Queue::publish`].
    pub fn give(&mut self, buffer: u16, physical: u64, bytes: u32) -> bool {
        if !self.given.insert(buffer) {
            return false;
        }
        let mut descriptor = [0u8; 16];
        descriptor[..8].copy_from_slice(&physical.to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        let flags = if self.device_writes { WRITE } else { 0 };
        descriptor[12..14].copy_from_slice(&flags.to_le_bytes());
        self.write(usize::from(buffer) * 16, &descriptor);
        let slot = usize::from(self.available % ENTRIES);
        self.write(AVAILABLE_OFFSET + 4 + slot * 2, &buffer.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        true
    }

    /// Shows the device what was given; true if it wants to be notified.
    pub fn publish(&self) -> bool {
        // The entries before the index, the index before the question whether to notify (section
        // 2.7.13).
        fence(Ordering::SeqCst);
        self.write(AVAILABLE_OFFSET + INDEX_OFFSET, &self.available.to_le_bytes());
        fence(Ordering::SeqCst);
        self.read_u16(USED_OFFSET) & NO_NOTIFY == 0
    }

    /// The next buffer the device is done with.
    pub fn take(&mut self) -> Result<Option<Used>, Broken> {
        loop {
            let index = self.read_u16(USED_OFFSET + INDEX_OFFSET);
            if index == self.seen {
                return Ok(None);
            }
            if usize::from(index.wrapping_sub(self.seen)) > self.given.len() + usize::from(ENTRIES) {
                return Err(Broken);
            }
            fence(Ordering::SeqCst);
            let mut entry = [0u8; 8];
            let slot = usize::from(self.seen % ENTRIES);
            // In bounds: checked when the queue was made.
            let _ = self.memory.read(self.base + USED_OFFSET + 4 + slot * 8, &mut entry);
            self.seen = self.seen.wrapping_add(1);
            let [number, written] = [&entry[..4], &entry[4..]]
                .map(|bytes| bytes.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte)));
            match u16::try_from(number).ok().filter(|buffer| self.given.remove(*buffer)) {
                Some(buffer) => return Ok(Some(Used { buffer, written })),
                None => self.lies += 1,
            }
        }
    }

    /// How far [`Queue::take`] has come.
    pub fn taken(&self) -> u16 {
        self.seen
    }

    /// Asks for interrupts, or for none.
    pub fn want_interrupts(&self, wanted: bool) {
        let flags = if wanted { 0 } else { NO_INTERRUPT };
        self.write(AVAILABLE_OFFSET, &flags.to_le_bytes());
        fence(Ordering::SeqCst);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        // In bounds: checked when the queue was made.
        let _ = self.memory.write(self.base + offset, bytes);
    }

    fn read_u16(&self, offset: usize) -> u16 {
        let mut bytes = [0; 2];
        let _ = self.memory.read(self.base + offset, &mut bytes);
        u16::from_le_bytes(bytes)
    }
}

/// What a device that is quiet now had completed of the queue at `base` and nobody had taken:
/// buffers with the bytes written, in order. `taken` is how far they were taken. Numbers past the
/// pool are left out; an index that cannot be gives nothing.
pub fn left_behind(memory: &impl Memory, base: usize, taken: u16) -> Vec<(u16, u32)> {
    let mut index = [0; 2];
    // A region too short for this reads as nothing left.
    let end = memory.read(base + USED_OFFSET + INDEX_OFFSET, &mut index).map_or(taken, |()| u16::from_le_bytes(index));
    let count = end.wrapping_sub(taken);
    let entry = |offset: u16| {
        let slot = usize::from(taken.wrapping_add(offset) % ENTRIES);
        let mut entry = [0; 8];
        memory.read(base + USED_OFFSET + 4 + slot * 8, &mut entry).ok()?;
        let [a, b, c, d, e, f, g, h] = entry;
        let buffer = u16::try_from(u32::from_le_bytes([a, b, c, d])).ok().filter(|buffer| *buffer < BUFFERS)?;
        Some((buffer, u32::from_le_bytes([e, f, g, h])))
    };
    let believed = if count > ENTRIES { 0 } else { count };
    (0..believed).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{rc::Rc, vec};
    use core::cell::RefCell;

    type Region = Rc<RefCell<Vec<u8>>>;

    fn used(region: &Region, slot: usize, number: u32, written: u32, index: u16) {
        let mut bytes = region.borrow_mut();
        let at = USED_OFFSET + 4 + slot * 8;
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&written.to_le_bytes());
        bytes[USED_OFFSET + 2..USED_OFFSET + 4].copy_from_slice(&index.to_le_bytes());
    }

    #[test]
    fn buffers_go_and_come_and_lies_are_counted() {
        let region: Region = Rc::new(RefCell::new(vec![0xaa; QUEUE_BYTES]));
        let mut queue = Queue::new(region.clone(), 0, true).unwrap();
        assert!(queue.give(7, 0x1234_5000, 2048) && !queue.give(7, 0, 0) && queue.give(9, 0x2000, 2048));
        assert!(queue.publish());
        assert_eq!(region.borrow()[AVAILABLE_OFFSET + 2..AVAILABLE_OFFSET + 8], [2, 0, 7, 0, 9, 0]);
        assert_eq!(region.borrow()[7 * 16..7 * 16 + 8], 0x1234_5000u64.to_le_bytes());
        assert_eq!(queue.take(), Ok(None));
        used(&region, 0, 9, 60, 1);
        assert_eq!(queue.take(), Ok(Some(Used { buffer: 9, written: 60 })));
        used(&region, 1, 9, 60, 2);
        assert_eq!((queue.take(), queue.lies), (Ok(None), 1));
        used(&region, 2, u32::MAX, 0, 3);
        assert_eq!((queue.take(), queue.lies), (Ok(None), 2));
        used(&region, 3, 7, 0, 60_000);
        assert_eq!(queue.take(), Err(Broken));
        assert!(Queue::new(region, 1, true).is_err());
    }
}
