//! What outlives the driver beside its queues: whether the device runs and in which half of the
//! region its queues are, and which frames IP was told of and has not given back.
//!
//! With it a successor finds what its predecessor left half done: frames told to an IP that died
//! before it looked and, where it has to reset the device, frames that this had completed and
//! nobody had taken. All are told (again) when IP attaches, in the order in which they came. A
//! frame that [`DEATHS_MAX`] IPs were told of before they died is dropped: it must not kill IP for
//! ever.
//!
//! Invariants: a frame is written down before the queue's record says that it was taken; a buffer
//! stands here at most once. One byte says what counts of the rest of the head, and is written
//! last:
//!
//! ```text
//!              before a reset                      the device has the other half
//!   RUNNING n ────────────────► STARTING, from n ──────────────────────────► RUNNING 1 - n
//! ```
//!
//! What is read back is checked as if a stranger had written it: numbers below the pool's size,
//! each once, lengths that a frame can have; anything else is not there.

use alloc::vec::Vec;
use packet::{BUFFER_BYTES, BUFFERS, BufferSet, Memory, OutOfBounds, Span};

use virtio::pool_queue::unclaimed_completions;
use virtio::takeover;

use crate::driver::{FRAME_MIN, HEADER_BYTES};

/// Bytes in the ring region: the head and an entry for each receive buffer.
pub const JOURNAL_BYTES: usize = ENTRIES_OFFSET + BUFFERS as usize * ENTRY_BYTES;
/// So many IPs may die with a frame.
pub const DEATHS_MAX: u8 = 2;

/// "VNET" and the layout's version.
const MAGIC: u64 = 0x564e_4554_0000_0003;
/// The byte that counts: a state and, in its low bit, a half.
const STATE_OFFSET: usize = 8;
/// Drivers that went on with the device one after the other, and none of them for long.
const HEIRS_OFFSET: usize = 9;
/// How often the device was reset.
const EPOCH_OFFSET: usize = 12;
/// Features agreed with the device.
const FEATURES_OFFSET: usize = 16;
const ENTRIES_OFFSET: usize = 24;
/// States. A region that nobody wrote has another.
const STARTING: u8 = 0x10;
const RUNNING: u8 = 0x20;
const ENTRY_BYTES: usize = 8;
/// In the last byte of an entry that is in use.
const USED: u8 = 0xa5;

/// A frame that IP has, or is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Position among all frames.
    order: u32,
    /// Bytes without the header.
    length: u16,
    /// IPs that were told of it and died.
    deaths: u8,
}

impl Entry {
    fn encode(entry: Option<Entry>) -> [u8; ENTRY_BYTES] {
        let Some(Entry { order, length, deaths }) = entry else { return [0; ENTRY_BYTES] };
        let ([a, b, c, d], [e, f]) = (order.to_le_bytes(), length.to_le_bytes());
        [a, b, c, d, e, f, deaths, USED]
    }

    fn decode([a, b, c, d, e, f, deaths, used]: [u8; ENTRY_BYTES]) -> Option<Entry> {
        let entry = Entry { order: u32::from_le_bytes([a, b, c, d]), length: u16::from_le_bytes([e, f]), deaths };
        (used == USED && deaths < DEATHS_MAX && is_length(entry.length.into())).then_some(entry)
    }
}

/// Can a frame have so many bytes?
pub fn is_length(bytes: usize) -> bool {
    (FRAME_MIN..=BUFFER_BYTES - HEADER_BYTES).contains(&bytes)
}

/// The journal of one device's receive queue.
pub struct Journal<M> {
    memory: M,
    base: usize,
    entries: [Option<Entry>; BUFFERS as usize],
    order: u32,
    epoch: u32,
}

/// How a predecessor left the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// It works with the queues of that half, or was being reset, and until then did.
    pub half: u8,
    /// As of any device.
    pub device: takeover::Left,
}

impl<M: Memory> Journal<M> {
    /// Reads what a predecessor left at `base`, and how it left the device, if there was one. A
    /// region nobody wrote, or that is damaged, gives an empty journal; `OutOfBounds` if it is too
    /// small.
    pub fn recover(memory: M, base: usize) -> Result<(Journal<M>, Option<Left>), OutOfBounds> {
        let mut bytes = [0; JOURNAL_BYTES];
        memory.read(base, &mut bytes)?;
        let (head, entries) = bytes.split_at(ENTRIES_OFFSET);
        // Whatever stands there: the next is another.
        let epoch = head[EPOCH_OFFSET..FEATURES_OFFSET].iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte));
        let mut journal = Journal { memory, base, entries: [None; BUFFERS as usize], order: 0, epoch };
        if head[..STATE_OFFSET] != MAGIC.to_le_bytes() {
            journal.put(STATE_OFFSET, &[0; EPOCH_OFFSET - STATE_OFFSET]);
            (0..BUFFERS).for_each(|buffer| journal.write(buffer));
            journal.put(0, &MAGIC.to_le_bytes());
            return Ok((journal, None));
        }
        for (slot, bytes) in journal.entries.iter_mut().zip(entries.as_chunks().0) {
            *slot = Entry::decode(*bytes);
        }
        let newest = journal.entries.iter().flatten().map(|entry| entry.order).max();
        journal.order = newest.map_or(0, |newest| newest.wrapping_add(1));
        let state = head[STATE_OFFSET];
        let features = head[FEATURES_OFFSET..].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        let features = (state & !1 == RUNNING).then_some(features);
        let left = Left { half: state & 1, device: takeover::Left { features, heirs: head[HEIRS_OFFSET] } };
        Ok((journal, matches!(state & !1, STARTING | RUNNING).then_some(left)))
    }

    /// The device is about to be reset, which had its queues in that half: another epoch begins.
    pub fn starts(&mut self, from: u8) {
        self.epoch = self.epoch.wrapping_add(1);
        self.put(EPOCH_OFFSET, &self.epoch.to_le_bytes());
        self.put(STATE_OFFSET, &[STARTING | from]);
    }

    /// The device works with the queues of that half.
    pub fn runs(&mut self, half: u8, features: u64) {
        self.put(FEATURES_OFFSET, &features.to_le_bytes());
        self.keep_heirs(0);
        self.put(STATE_OFFSET, &[RUNNING | half]);
    }

    /// The device's life from one reset to the next. What was counted in another says nothing.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// So many drivers went on with the device, and none of them served for long.
    pub fn keep_heirs(&mut self, count: u8) {
        self.put(HEIRS_OFFSET, &[count]);
    }

    /// Takes over what a device that was reset had completed of the queue at `base` and nobody had
    /// taken.
    pub fn take_over(&mut self, base: usize) {
        for used in unclaimed_completions(&self.memory, base) {
            let length = (used.written as usize).checked_sub(HEADER_BYTES).filter(|length| is_length(*length));
            if let Some(length) = length
                && !self.is_told(used.buffer)
            {
                self.tell(used.buffer, length as u16);
            }
        }
    }

    /// Whether IP was told of that buffer and has not given it back.
    pub fn is_told(&self, buffer: u16) -> bool {
        self.entries.get(usize::from(buffer)).is_some_and(Option::is_some)
    }

    /// A frame is told to IP.
    pub fn tell(&mut self, buffer: u16, length: u16) {
        let Some(entry) = self.entries.get_mut(usize::from(buffer)) else { return };
        *entry = Some(Entry { order: self.order, length, deaths: 0 });
        self.order = self.order.wrapping_add(1);
        self.write(buffer);
    }

    /// IP died.
    pub fn discard_lost(&mut self) {
        for buffer in 0..BUFFERS {
            let Some(slot) = self.entries.get_mut(usize::from(buffer)) else { continue };
            if let Some(entry) = slot {
                entry.deaths += 1;
                *slot = slot.filter(|entry| entry.deaths < DEATHS_MAX);
                self.write(buffer);
            }
        }
    }

    /// Frames for an IP that attaches and holds the buffers of `held`, in order.
    pub fn frames(&self, held: &BufferSet) -> Vec<Span> {
        self.spans((0..BUFFERS).filter(|buffer| !held.contains(*buffer)))
    }

    /// The frames in those buffers that stand here, in order.
    pub fn spans(&self, buffers: impl Iterator<Item = u16>) -> Vec<Span> {
        let mut frames: Vec<(Entry, Span)> = buffers
            .filter_map(|buffer| {
                let entry = self.entries.get(usize::from(buffer)).copied().flatten()?;
                Some((entry, Span { buffer, offset: HEADER_BYTES as u16, length: entry.length }))
            })
            .collect();
        // The oldest is furthest from the next order; 2^32 frames do not pass while one is held.
        frames.sort_unstable_by_key(|(entry, _)| core::cmp::Reverse(self.order.wrapping_sub(entry.order)));
        frames.into_iter().map(|(_, frame)| frame).collect()
    }

    /// The buffer goes to the device.
    pub fn remove(&mut self, buffer: u16) {
        if let Some(entry) = self.entries.get_mut(usize::from(buffer))
            && entry.take().is_some()
        {
            self.write(buffer);
        }
    }

    fn write(&self, buffer: u16) {
        let entry = self.entries.get(usize::from(buffer)).copied().flatten();
        self.put(ENTRIES_OFFSET + usize::from(buffer) * ENTRY_BYTES, &Entry::encode(entry));
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        // In bounds: the whole journal was read when it was made.
        let _ = self.memory.write(self.base + offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{rc::Rc, vec};
    use core::cell::RefCell;
    use virtio::pool_queue::{ENTRIES, QUEUE_BYTES, TAKEN_OFFSET, USED_OFFSET};

    type Region = Rc<RefCell<Vec<u8>>>;

    fn region() -> Region {
        Rc::new(RefCell::new(vec![0; QUEUE_BYTES + JOURNAL_BYTES]))
    }

    fn journal(region: &Region) -> Journal<Region> {
        let (mut journal, _) = Journal::recover(region.clone(), QUEUE_BYTES).unwrap();
        journal.take_over(0);
        journal
    }

    fn used(region: &Region, index: u16, buffer: u32, written: u32) {
        let at = USED_OFFSET + 4 + usize::from(index % ENTRIES) * 8;
        region.write(at, &buffer.to_le_bytes()).unwrap();
        region.write(at + 4, &written.to_le_bytes()).unwrap();
        region.write(USED_OFFSET + 2, &index.wrapping_add(1).to_le_bytes()).unwrap();
    }

    fn buffers(spans: &[Span]) -> Vec<u16> {
        spans.iter().map(|span| span.buffer).collect()
    }

    #[test]
    fn told_and_left_frames_come_in_order_and_not_for_ever() {
        let region = region();
        let mut first = journal(&region);
        first.tell(9, 60);
        first.tell(3, 61);
        first.tell(7, 62);
        first.remove(3);
        region.store_u16(TAKEN_OFFSET, 65535).unwrap();
        for (index, buffer) in [(65535, 200), (0, 1)] {
            used(&region, index, buffer, 100);
        }
        let frames = journal(&region).frames(&BufferSet::EMPTY);
        assert_eq!(buffers(&frames), [9, 7, 200, 1]);
        assert_eq!((frames[0].length, frames[2].length, frames[2].offset), (60, 88, 12));
        // Nobody died of them yet, however often the driver did.
        let mut journal = journal(&region);
        assert_eq!(buffers(&journal.frames(&BufferSet::range(1, 2))), [9, 7, 200]);
        journal.discard_lost();
        journal.tell(30, 60);
        journal.discard_lost();
        assert_eq!(buffers(&journal.frames(&BufferSet::EMPTY)), [30]);
        journal.discard_lost();
        assert!(journal.frames(&BufferSet::EMPTY).is_empty());
        assert!(Journal::recover(region, QUEUE_BYTES).unwrap().0.frames(&BufferSet::EMPTY).is_empty());
    }

    #[test]
    fn a_region_of_something_else_becomes_an_empty_journal_and_no_more_is_written() {
        for there in [0, 0xff] {
            let region = region();
            region.borrow_mut().fill(there);
            assert!(Journal::recover(region.clone(), QUEUE_BYTES).unwrap().1.is_none());
            let bytes = region.borrow();
            assert!(bytes[..QUEUE_BYTES].iter().all(|byte| *byte == there), "the queue is not its own");
            let head = &bytes[QUEUE_BYTES..][..ENTRIES_OFFSET];
            assert_eq!((&head[..8], &head[8..12]), (&MAGIC.to_le_bytes()[..], &[0; 4][..]));
            assert!(head[EPOCH_OFFSET..].iter().all(|byte| *byte == there), "epochs go on");
        }
    }

    #[test]
    fn a_frame_in_any_buffer_is_found_again() {
        let region = region();
        let mut first = journal(&region);
        (0..BUFFERS).for_each(|buffer| first.tell(buffer, 60));
        assert!(buffers(&journal(&region).frames(&BufferSet::EMPTY)).into_iter().eq(0..BUFFERS));
    }

    #[test]
    fn what_cannot_be_is_not_there() {
        let region = region();
        journal(&region);
        let bad = [(256, 100), (u32::MAX, 100), (4, 25), (4, 2049), (4, u32::MAX), (5, 26), (5, 99), (6, 2048)];
        for (index, (buffer, written)) in (0..).zip(bad) {
            used(&region, index, buffer, written);
        }
        let frames = journal(&region).frames(&BufferSet::EMPTY);
        assert_eq!(frames.iter().map(|span| (span.buffer, span.length)).collect::<Vec<_>>(), [(5, 14), (6, 2036)]);
        // An index that ran ahead of the ring says nothing that can be believed.
        used(&region, 5000, 8, 100);
        assert!(!buffers(&journal(&region).frames(&BufferSet::EMPTY)).contains(&8));
        assert!(Journal::recover(region, QUEUE_BYTES + 1).is_err());
    }

    #[test]
    fn an_entry_that_no_driver_writes_is_not_there() {
        let region = region();
        let mut journal = journal(&region);
        journal.tell(4, 60);
        let at = QUEUE_BYTES + ENTRIES_OFFSET + 4 * ENTRY_BYTES;
        let found = || Journal::recover(region.clone(), QUEUE_BYTES).unwrap().0.is_told(4);
        // Of a length the low byte, of which the high one is 0; how many died; what ends it.
        for (byte, right) in [(4, 14..=255), (6, 0..=DEATHS_MAX - 1), (7, USED..=USED)] {
            let kept = region.borrow()[at + byte];
            for value in 0..=255 {
                region.borrow_mut()[at + byte] = value;
                assert_eq!(found(), right.contains(&value), "byte {byte} is {value}");
            }
            region.borrow_mut()[at + byte] = kept;
        }
        assert!(found());
    }

    #[test]
    fn no_two_resets_begin_the_same_epoch() {
        let region = region();
        journal(&region);
        for last in [0, 1, 254, 255, 256, 65_535, 1 << 16, u32::MAX >> 8, u32::MAX] {
            region.store_u32(QUEUE_BYTES + EPOCH_OFFSET, last).unwrap();
            // Of one driver, and of its successor.
            let mut journal = journal(&region);
            journal.starts(0);
            assert_eq!((journal.epoch(), self::journal(&region).epoch()), (last.wrapping_add(1), last.wrapping_add(1)));
        }
    }

    #[test]
    fn how_the_device_was_left_is_one_byte() {
        let region = region();
        let recovered = || Journal::recover(region.clone(), QUEUE_BYTES).unwrap();
        let (mut journal, before) = recovered();
        assert_eq!(before, None);
        journal.starts(1);
        let left = |half, features, heirs| Some(Left { half, device: takeover::Left { features, heirs } });
        assert_eq!(recovered().1, left(1, None, 0));
        journal.runs(0, 0x1_0000_0020);
        journal.keep_heirs(1);
        assert_eq!(recovered().1, left(0, Some(0x1_0000_0020), 1));
        journal.starts(0);
        assert_eq!(recovered().1, left(0, None, 1));
        for state in (0..=255u8).filter(|state| !matches!(state & !1, STARTING | RUNNING)) {
            journal.put(STATE_OFFSET, &[state]);
            assert_eq!(recovered().1, None);
        }
    }
}
