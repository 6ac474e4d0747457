//! What outlives the driver beside its rings: how far it had taken the receive queue, and which
//! frames IP was told of and has not given back.
//!
//! With it a successor finds what its predecessor left half done: frames that the device had
//! completed and nobody had taken, and frames told to an IP that died before it looked. Both are
//! told (again) when IP attaches, in the order in which they came. A frame that [`DEATHS_MAX`] IPs
//! were told of before they died is dropped: it must not kill IP for ever.
//!
//! Invariants: a frame is written down before the index that says it was taken, so a crash between
//! the two finds it twice and never not at all; a buffer stands here at most once. What is read
//! back is checked as if a stranger had written it: numbers below the pool's size, each once,
//! lengths that a frame can have; anything else is not there.

use alloc::vec::Vec;
use packet::{BUFFER_BYTES, BUFFERS, BufferSet, Memory, OutOfBounds, Span};

use crate::driver::{FRAME_MIN, HEADER_BYTES};
use crate::queue::left_behind;

/// Bytes in the ring region: the head and an entry for each receive buffer.
pub const JOURNAL_BYTES: usize = ENTRIES_OFFSET + BUFFERS as usize * ENTRY_BYTES;
/// So many IPs may die with a frame.
pub const DEATHS_MAX: u8 = 2;

/// "VNET" and the layout's version.
const MAGIC: u64 = 0x564e_4554_0000_0001;
const TAKEN_OFFSET: usize = 8;
const HALF_OFFSET: usize = 10;
const ENTRIES_OFFSET: usize = 16;
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
    /// Where a predecessor had its queues, and how far it had taken the receive queue; until that
    /// is taken over.
    before: Option<(u8, u16)>,
}

impl<M: Memory> Journal<M> {
    /// Reads what a predecessor left at `base`. A region nobody wrote, or that is damaged, gives an
    /// empty journal; `OutOfBounds` if it is too small.
    pub fn recover(memory: M, base: usize) -> Result<Journal<M>, OutOfBounds> {
        let mut bytes = [0; JOURNAL_BYTES];
        memory.read(base, &mut bytes)?;
        let mut journal = Journal { memory, base, entries: [None; BUFFERS as usize], order: 0, before: None };
        let (head, entries) = bytes.split_at(ENTRIES_OFFSET);
        if head[..TAKEN_OFFSET] == MAGIC.to_le_bytes() {
            let taken = u16::from_le_bytes([head[TAKEN_OFFSET], head[TAKEN_OFFSET + 1]]);
            journal.before = Some((head[HALF_OFFSET] & 1, taken));
            for (slot, bytes) in journal.entries.iter_mut().zip(entries.as_chunks().0) {
                *slot = Entry::decode(*bytes);
            }
            let newest = journal.entries.iter().flatten().map(|entry| entry.order).max();
            journal.order = newest.map_or(0, |newest| newest.wrapping_add(1));
        } else {
            (0..BUFFERS).for_each(|buffer| journal.write(buffer));
            journal.begin(0);
            journal.put(0, &MAGIC.to_le_bytes());
        }
        Ok(journal)
    }

    /// The half of the ring region that a predecessor's queues are not in.
    pub fn other_half(&self) -> u8 {
        self.before.map_or(0, |(half, _)| 1 - half)
    }

    /// Takes over what the device had completed for a predecessor and nobody had taken. `queue`
    /// tells where a half has its receive queue. That half's device must be quiet.
    pub fn take_over(&mut self, queue: impl Fn(u8) -> usize) {
        let Some((half, taken)) = self.before.take() else { return };
        for (buffer, written) in left_behind(&self.memory, queue(half), taken) {
            let length = (written as usize).checked_sub(HEADER_BYTES).filter(|length| is_length(*length));
            if let Some(length) = length
                && self.entries.get(usize::from(buffer)) == Some(&None)
            {
                self.tell(buffer, length as u16);
            }
        }
    }

    /// The queues begin at 0, in that half of the region.
    pub fn begin(&mut self, half: u8) {
        self.put(TAKEN_OFFSET, &[0, 0, half]);
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

    /// The receive queue was taken up to here.
    pub fn taken(&mut self, index: u16) {
        self.put(TAKEN_OFFSET, &index.to_le_bytes());
    }

    /// Frames for an IP that attaches and holds the buffers of `held`, in order.
    pub fn frames(&self, held: &BufferSet) -> Vec<Span> {
        let mut frames: Vec<(Entry, Span)> = (0..BUFFERS)
            .filter(|buffer| !held.contains(*buffer))
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
    pub fn forget(&mut self, buffer: u16) {
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
    use crate::queue::{ENTRIES, QUEUE_BYTES, USED_OFFSET};
    use alloc::{rc::Rc, vec};
    use core::cell::RefCell;

    type Region = Rc<RefCell<Vec<u8>>>;

    fn region() -> Region {
        Rc::new(RefCell::new(vec![0; QUEUE_BYTES + JOURNAL_BYTES]))
    }

    fn journal(region: &Region) -> Journal<Region> {
        let mut journal = Journal::recover(region.clone(), QUEUE_BYTES).unwrap();
        journal.take_over(|half| usize::from(half) * QUEUE_BYTES);
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
        first.forget(3);
        first.taken(65535);
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
        assert!(Journal::recover(region, QUEUE_BYTES).unwrap().frames(&BufferSet::EMPTY).is_empty());
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
}
