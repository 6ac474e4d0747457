//! One direction of a port: a split virtqueue (virtio 1.2, section 2.7) whose buffers are used in
//! turn, so that two counters tell all about it.
//!
//! Invariants: descriptor `n` always names buffer `n`, and entry `n` of the available ring names
//! descriptor `n`. What lies in the region is enough for a successor to go on with a device that
//! was not reset. Of what the device writes nothing is trusted: a count that runs ahead, a buffer
//! out of turn or a length past its end is [`Broken`].

use core::sync::atomic::{Ordering, fence};
use packet::{Memory, OutOfBounds};

use crate::transport::QueueAddresses;

/// Entries of a queue.
pub const ENTRIES: u16 = 32;
/// Bytes of the rings in the region: descriptor table, available ring and used ring.
pub const RING_BYTES: usize = 4096;
const AVAILABLE_OFFSET: usize = 1024;
const USED_OFFSET: usize = 2048;
/// In the available and in the used ring: how many entries were ever written.
const INDEX_OFFSET: usize = 2;
/// Descriptor flag: the device writes.
const WRITE: u16 = 2;

/// The device said something impossible; remedy: reset it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// How far a reader has come: buffers taken whole, and bytes of the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Buffers, counted for ever.
    pub taken: u16,
    /// Bytes of the buffer after them.
    pub offset: u16,
}

/// One queue in a region.
pub struct Queue<M> {
    memory: M,
    ring: usize,
    buffers: usize,
    buffer_bytes: usize,
}

impl<M: Memory> Queue<M> {
    /// The queue whose rings are at `ring` of the region and whose buffers at `buffers`.
    pub fn new(memory: M, ring: usize, buffers: usize, buffer_bytes: usize) -> Queue<M> {
        Queue { memory, ring, buffers, buffer_bytes }
    }

    /// Empties it. The device must be reset; it sees the region at `physical`.
    pub fn clear(&self, physical: u64, device_writes: bool) -> Result<(), OutOfBounds> {
        self.memory.write(self.ring, &[0; RING_BYTES])?;
        self.memory.read(self.buffers + usize::from(ENTRIES) * self.buffer_bytes - 1, &mut [0])?;
        for entry in 0..ENTRIES {
            let descriptor = self.descriptor(entry, self.buffer_bytes as u32, physical, device_writes);
            self.write(16 * usize::from(entry), &descriptor);
            self.write(AVAILABLE_OFFSET + 4 + 2 * usize::from(entry), &entry.to_le_bytes());
        }
        Ok(())
    }

    /// Whether its descriptors and entries are as [`Queue::clear`] and [`Queue::fill`] leave them,
    /// and interrupts wanted.
    pub fn is_ours(&self, physical: u64, device_writes: bool) -> bool {
        let is_right = |entry| {
            let mut found = [0; 16];
            let _ = self.memory.read(self.ring + 16 * usize::from(entry), &mut found);
            let [a, b, c, d, ..] = *found.split_at(8).1 else { return false };
            let bytes = u32::from_le_bytes([a, b, c, d]);
            let fits = match bytes as usize {
                bytes if device_writes => bytes == self.buffer_bytes,
                bytes => (1..=self.buffer_bytes).contains(&bytes),
            };
            let named = self.read_u16(AVAILABLE_OFFSET + 4 + 2 * usize::from(entry));
            fits && named == entry && found == self.descriptor(entry, bytes, physical, device_writes)
        };
        self.read_u16(AVAILABLE_OFFSET) == 0 && (0..ENTRIES).all(is_right)
    }

    /// Whether the counts are in step: the device used no more than it was shown, and was shown no
    /// more than `given`. It was shown less if a predecessor died before [`Queue::give`].
    pub fn is_in_step(&self, given: u16) -> bool {
        let (shown, used) = (self.given(), self.used());
        let all = given.wrapping_sub(used);
        all <= ENTRIES && shown.wrapping_sub(used) <= all
    }

    /// Whether a reader can have come there: what the device wrote after it is sound, and of the
    /// next buffer less was read than is in it.
    pub fn is_position(&self, at: Position) -> bool {
        let is_partial = at.offset > 0;
        let is_within = || self.used() != at.taken && self.written(at.taken).is_ok_and(|all| all > at.offset.into());
        self.held(at).is_ok() && (!is_partial || is_within())
    }

    fn descriptor(&self, entry: u16, bytes: u32, physical: u64, device_writes: bool) -> [u8; 16] {
        let buffer = physical + (self.buffers + usize::from(entry) * self.buffer_bytes) as u64;
        let mut descriptor = [0; 16];
        descriptor[..8].copy_from_slice(&buffer.to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[12..14].copy_from_slice(&if device_writes { WRITE } else { 0 }.to_le_bytes());
        descriptor
    }

    /// Where a device sees it.
    pub fn addresses(&self, physical: u64) -> QueueAddresses {
        let descriptors = physical + self.ring as u64;
        QueueAddresses {
            descriptors,
            available: descriptors + AVAILABLE_OFFSET as u64,
            used: descriptors + USED_OFFSET as u64,
        }
    }

    /// Buffers that the device was given, ever.
    pub fn given(&self) -> u16 {
        self.read_u16(AVAILABLE_OFFSET + INDEX_OFFSET)
    }

    /// Gives the device all buffers below `count`; false if it has them already.
    pub fn give(&self, count: u16) -> bool {
        if self.given() == count {
            return false;
        }
        // Buffers and entries before the index, the index before the notification (section
        // 2.7.13).
        fence(Ordering::SeqCst);
        // In bounds: `clear` looked.
        let _ = self.memory.store_u16(self.ring + AVAILABLE_OFFSET + INDEX_OFFSET, count);
        fence(Ordering::SeqCst);
        true
    }

    /// Buffers that the device has of those below `given`.
    pub fn outstanding(&self, given: u16) -> Result<u16, Broken> {
        let count = given.wrapping_sub(self.used());
        if count <= ENTRIES { Ok(count) } else { Err(Broken) }
    }

    /// Writes bytes for the device behind the buffers below `given`, which [`Queue::give`] then
    /// shows it. Gives the new count and how many bytes had room.
    pub fn fill(&self, given: u16, bytes: &[u8]) -> Result<(u16, usize), Broken> {
        let room = ENTRIES - self.outstanding(given)?;
        let mut done = 0;
        let mut count = given;
        for piece in bytes.chunks(self.buffer_bytes).take(room.into()) {
            let slot = usize::from(count % ENTRIES);
            // In bounds: `clear` looked.
            let _ = self.memory.write(self.buffers + slot * self.buffer_bytes, piece);
            // At once: a length that a death cut off may be past the buffer's end.
            let _ = self.memory.store_u32(self.ring + 16 * slot + 8, piece.len() as u32);
            done += piece.len();
            count = count.wrapping_add(1);
        }
        Ok((count, done))
    }

    /// Bytes that [`Queue::fill`] has room for.
    pub fn room(&self, given: u16) -> Result<usize, Broken> {
        Ok(usize::from(ENTRIES - self.outstanding(given)?) * self.buffer_bytes)
    }

    /// Copies bytes that the device wrote, from `at` on. Gives how many, and the position after
    /// them.
    pub fn peek(&self, at: Position, into: &mut [u8]) -> Result<(usize, Position), Broken> {
        let ready = self.used().wrapping_sub(at.taken);
        if ready > ENTRIES {
            return Err(Broken);
        }
        fence(Ordering::SeqCst);
        let (mut done, mut at) = (0, at);
        for _ in 0..ready {
            let written = self.written(at.taken)?;
            let offset = usize::from(at.offset);
            let count = written.saturating_sub(offset).min(into.len() - done);
            let start = self.buffers + usize::from(at.taken % ENTRIES) * self.buffer_bytes + offset;
            // In bounds: `clear` looked.
            let _ = self.memory.read(start, &mut into[done..done + count]);
            done += count;
            if offset + count < written {
                at.offset += count as u16;
                break;
            }
            at = Position { taken: at.taken.wrapping_add(1), offset: 0 };
        }
        Ok((done, at))
    }

    /// Writes over bytes that [`Queue::peek`] gives from `at` on, so that nothing of them is left.
    pub fn overwrite(&self, at: Position, bytes: &[u8]) -> Result<(), Broken> {
        let (mut at, mut left) = (at, bytes);
        while !left.is_empty() {
            let offset = usize::from(at.offset);
            let count = self.written(at.taken)?.checked_sub(offset).ok_or(Broken)?.min(left.len());
            let start = self.buffers + usize::from(at.taken % ENTRIES) * self.buffer_bytes + offset;
            // In bounds: `clear` looked.
            let _ = self.memory.write(start, &left[..count]);
            left = &left[count..];
            at = Position { taken: at.taken.wrapping_add(1), offset: 0 };
        }
        Ok(())
    }

    /// Bytes that [`Queue::peek`] has.
    pub fn held(&self, at: Position) -> Result<usize, Broken> {
        let ready = self.used().wrapping_sub(at.taken);
        if ready > ENTRIES {
            return Err(Broken);
        }
        let all = (0..ready).try_fold(0, |all, index| Ok(all + self.written(at.taken.wrapping_add(index))?))?;
        Ok(usize::saturating_sub(all, at.offset.into()))
    }

    /// Bytes that the device wrote into a buffer.
    fn written(&self, index: u16) -> Result<usize, Broken> {
        let slot = index % ENTRIES;
        let mut entry = [0; 8];
        let _ = self.memory.read(self.ring + USED_OFFSET + 4 + usize::from(slot) * 8, &mut entry);
        let [a, b, c, d, e, f, g, h] = entry;
        let (buffer, bytes) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) as usize);
        if buffer == u32::from(slot) && bytes <= self.buffer_bytes { Ok(bytes) } else { Err(Broken) }
    }

    fn used(&self) -> u16 {
        self.read_u16(USED_OFFSET + INDEX_OFFSET)
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        // In bounds: `clear` looked.
        let _ = self.memory.write(self.ring + offset, bytes);
    }

    fn read_u16(&self, offset: usize) -> u16 {
        // In bounds: `clear` looked.
        self.memory.load_u16(self.ring + offset).unwrap_or(0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::{rc::Rc, vec, vec::Vec};
    use core::cell::RefCell;

    pub(crate) type Region = Rc<RefCell<Vec<u8>>>;

    /// What a device does with a queue: uses the next buffer, with those bytes in it.
    pub(crate) fn device_writes(region: &Region, ring: usize, buffers: usize, buffer_bytes: usize, data: &[u8]) {
        let mut bytes = region.borrow_mut();
        let used_at = ring + USED_OFFSET + INDEX_OFFSET;
        let used = u16::from_le_bytes([bytes[used_at], bytes[used_at + 1]]);
        let slot = usize::from(used % ENTRIES);
        bytes[buffers + slot * buffer_bytes..][..data.len()].copy_from_slice(data);
        let entry = ring + USED_OFFSET + 4 + slot * 8;
        bytes[entry..entry + 4].copy_from_slice(&(slot as u32).to_le_bytes());
        bytes[entry + 4..entry + 8].copy_from_slice(&(data.len() as u32).to_le_bytes());
        bytes[used_at..used_at + 2].copy_from_slice(&used.wrapping_add(1).to_le_bytes());
    }

    /// The device has read all it was given: their bytes.
    pub(crate) fn device_reads(region: &Region, ring: usize, buffers: usize, buffer_bytes: usize) -> Vec<u8> {
        let mut all = Vec::new();
        let number = |at: usize| u16::from_le_bytes([region.borrow()[at], region.borrow()[at + 1]]);
        let (given, mut used) =
            (number(ring + AVAILABLE_OFFSET + INDEX_OFFSET), number(ring + USED_OFFSET + INDEX_OFFSET));
        while used != given {
            let slot = usize::from(used % ENTRIES);
            let length = usize::from(number(ring + 16 * slot + 8));
            all.extend_from_slice(&region.borrow()[buffers + slot * buffer_bytes..][..length]);
            device_writes(region, ring, buffers, buffer_bytes, &[]);
            used = used.wrapping_add(1);
        }
        all
    }

    const PHYSICAL: u64 = 0x1_0000;
    /// Neither begins where the region does.
    const RING: usize = 64;
    const BUFFERS: usize = RING + RING_BYTES;
    const END: usize = BUFFERS + 8 * ENTRIES as usize;

    fn queue(device_writes: bool) -> (Region, Queue<Region>) {
        let region: Region = Rc::new(RefCell::new(vec![0xaa; END]));
        let queue = Queue::new(region.clone(), RING, BUFFERS, 8);
        queue.clear(PHYSICAL, device_writes).unwrap();
        (region, queue)
    }

    fn uses(region: &Region, data: &[u8]) {
        device_writes(region, RING, BUFFERS, 8, data);
    }

    #[test]
    fn bytes_go_in_order_and_no_further_than_there_is_room() {
        let (region, queue) = queue(false);
        let data: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let (mut given, mut sent, mut got) = (0, 0, Vec::new());
        assert_eq!(queue.room(0), Ok(256));
        while sent < data.len() {
            let (count, taken) = queue.fill(given, &data[sent..]).unwrap();
            assert!(queue.give(count) && !queue.give(count) && taken > 0 && taken <= 256);
            assert_eq!((queue.given(), queue.room(count)), (count, Ok(256 - taken.next_multiple_of(8))));
            assert_eq!(queue.fill(count, b"x").unwrap().1, usize::from(count.wrapping_sub(given) < ENTRIES));
            (given, sent) = (count, sent + taken);
            got.extend(device_reads(&region, RING, BUFFERS, 8));
        }
        assert_eq!(got, data);
        assert_eq!((queue.outstanding(given), queue.room(given)), (Ok(0), Ok(256)));
        assert_eq!(queue.outstanding(given.wrapping_sub(1)), Err(Broken));
        assert_eq!(queue.room(given.wrapping_sub(1)), Err(Broken));
    }

    #[test]
    fn what_was_peeked_is_there_until_the_position_moves() {
        let (region, queue) = queue(true);
        queue.give(ENTRIES);
        uses(&region, b"abcdefgh");
        uses(&region, b"ij");
        let mut bytes = [0; 9];
        let start = Position::default();
        let (count, after) = queue.peek(start, &mut bytes).unwrap();
        assert_eq!((&bytes[..count], queue.held(start)), (&b"abcdefghi"[..], Ok(10)));
        assert_eq!(queue.peek(start, &mut bytes), Ok((count, after)));
        let (count, after) = queue.peek(after, &mut bytes).unwrap();
        assert_eq!((&bytes[..count], after), (&b"j"[..], Position { taken: 2, offset: 0 }));
        assert_eq!(queue.peek(after, &mut bytes), Ok((0, after)));
        queue.overwrite(Position { taken: 0, offset: 6 }, b"...").unwrap();
        let mut bytes = [0; 10];
        queue.peek(start, &mut bytes).unwrap();
        assert_eq!(&bytes, b"abcdef...j");
        assert_eq!(queue.overwrite(Position { taken: 0, offset: 9 }, b"."), Err(Broken));
        region.borrow_mut()[RING + USED_OFFSET + 4] = 7;
        assert_eq!(queue.peek(start, &mut bytes), Err(Broken));
    }

    #[test]
    fn a_device_uses_all_it_has_and_no_more() {
        let (region, queue) = queue(true);
        queue.give(ENTRIES);
        (0..ENTRIES).for_each(|_| uses(&region, b"12345678"));
        let (start, mut bytes) = (Position::default(), [0; 300]);
        assert_eq!((queue.held(start), queue.peek(start, &mut bytes).map(|(count, _)| count)), (Ok(256), Ok(256)));
        uses(&region, b"");
        assert_eq!((queue.held(start), queue.peek(start, &mut bytes)), (Err(Broken), Err(Broken)));
    }

    #[test]
    fn a_region_that_is_too_short_holds_no_queue() {
        for (bytes, fits) in [(END, true), (END - 1, false), (BUFFERS, false), (RING + 100, false)] {
            let region: Region = Rc::new(RefCell::new(vec![0; bytes]));
            assert_eq!(Queue::new(region, RING, BUFFERS, 8).clear(PHYSICAL, true).is_ok(), fits, "{bytes}");
        }
    }

    #[test]
    fn a_queue_is_ours_if_we_left_it_so() {
        const LENGTH: usize = 8;
        let (table, available) = (0..16 * usize::from(ENTRIES), AVAILABLE_OFFSET..AVAILABLE_OFFSET + 4 + 2 * 32);
        for device_writes in [false, true] {
            let (region, queue) = queue(device_writes);
            let is_ours = || queue.is_ours(PHYSICAL, device_writes);
            assert!(is_ours() && !queue.is_ours(PHYSICAL + 8, device_writes));
            assert!(!queue.is_ours(PHYSICAL, !device_writes));
            // What was given and used does not matter to it.
            queue.give(3);
            uses(&region, b"");
            assert!(is_ours());
            let counts = AVAILABLE_OFFSET + INDEX_OFFSET..AVAILABLE_OFFSET + 4;
            for at in table.clone().chain(available.clone()).filter(|at| !counts.contains(at)) {
                let right = region.borrow()[RING + at];
                region.borrow_mut()[RING + at] = right ^ 0x80;
                assert!(!is_ours(), "{at}");
                region.borrow_mut()[RING + at] = right;
            }
            // What leaves may be shorter than its buffer; what comes finds a whole one.
            for (bytes, fits) in [(0, false), (1, !device_writes), (7, !device_writes), (8, true), (9, false)] {
                region.borrow_mut()[RING + 16 * 5 + LENGTH] = bytes;
                assert_eq!(is_ours(), fits, "{bytes}");
            }
        }
    }

    #[test]
    fn counts_are_in_step_if_no_more_was_used_than_shown_and_shown_than_given() {
        let in_step = |given: u16, shown: u16, used: u16| {
            let (region, queue) = queue(false);
            queue.give(shown);
            region.borrow_mut()[RING + USED_OFFSET + INDEX_OFFSET..][..2].copy_from_slice(&used.to_le_bytes());
            queue.is_in_step(given)
        };
        for right in [(0, 0, 0), (4, 4, 2), (4, 3, 2), (4, 2, 2), (4, 4, 4), (32, 32, 0), (1, 0xffff, 0xfff0)] {
            assert!(in_step(right.0, right.1, right.2), "{right:?}");
        }
        // Used ahead of what was shown, shown ahead of what was given, more than there are entries.
        for wrong in [(4, 3, 4), (4, 4, 5), (4, 5, 2), (33, 33, 0), (33, 1, 0), (1, 2, 0xfff0)] {
            assert!(!in_step(wrong.0, wrong.1, wrong.2), "{wrong:?}");
        }
    }

    #[test]
    fn a_reader_can_have_come_as_far_as_bytes_have() {
        let (region, queue) = queue(true);
        queue.give(ENTRIES);
        let fits = |taken, offset| queue.is_position(Position { taken, offset });
        // In a buffer that was not used it has come nowhere, whatever stands there.
        region.borrow_mut()[RING + USED_OFFSET + 4..][..8].copy_from_slice(&[0, 0, 0, 0, 8, 0, 0, 0]);
        assert!(fits(0, 0) && !fits(0, 1));
        uses(&region, b"abc");
        uses(&region, b"");
        assert_eq!([0, 1, 2, 3, 4].map(|offset| fits(0, offset)), [true, true, true, false, false]);
        assert!(fits(1, 0) && !fits(1, 1) && fits(2, 0) && !fits(2, 1));
        assert!(!fits(3, 0), "further than the device");
        // What the device wrote behind it is not sound.
        region.borrow_mut()[RING + USED_OFFSET + 4 + 8] = 9;
        assert!(!fits(0, 0) && !fits(0, 1) && !fits(1, 0) && fits(2, 0));
    }
}
