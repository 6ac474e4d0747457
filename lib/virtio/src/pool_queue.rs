//! A split virtqueue (virtio 1.2, section 2.7) whose descriptor `n` always stands for buffer `n` of
//! a pool, in a region that outlives its driver.
//!
//! Only this side reads what it wrote itself from its own copies; of what the device writes nothing
//! is trusted: a number that it does not have, or an index that runs ahead of what it was given, is
//! [`Broken`].
//!
//! What a successor needs to go on with the running device stands beside the rings:
//!
//! - the *mark* of each buffer that is with the device: at which count it was given. It is written
//!   before the available index that shows the buffer to the device, and cleared before
//!   - the *taken count*, how far the used ring was taken, moves behind it.
//!
//! So after a death at any store [`Queue::adopt`] knows of each buffer whether the device has it:
//!
//! ```text
//!         give: descriptor, entry, mark      publish           accept: mark, taken count
//!   ours ───────────────────────────────► shown soon ───► with the device ───────────────► ours
//!    ▲    no successor sees it as given ◄────┘                 │ mark cleared, count not moved:
//!    └─────────────────────────────────────────────────────────┘ the successor moves it
//! ```
//!
//! A successor believes none of it unless all of it fits: see [`Unlike`].
//!
//! A "buffer" may be a table of descriptors (section 2.7.5.3), for requests of several parts: what
//! its driver writes there, a successor of that driver compares.

use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};
use packet::{BUFFERS, BufferSet, Memory, OutOfBounds};

use crate::transport::QueueAddresses;

/// Entries of a queue: one per buffer of its pool.
pub const ENTRIES: u16 = BUFFERS;
/// Bytes of a queue in its region: descriptor table, available ring and used ring, each at a page
/// of its own.
pub const QUEUE_BYTES: usize = 3 * 4096;
/// Where the parts begin.
pub const AVAILABLE_OFFSET: usize = 4096;
/// See [`AVAILABLE_OFFSET`].
pub const USED_OFFSET: usize = 2 * 4096;
/// In the available and in the used ring: how many entries were ever written.
pub const INDEX_OFFSET: usize = 2;
/// The marks, behind the available ring on its page.
pub const MARKS_OFFSET: usize = AVAILABLE_OFFSET + 1024;
/// The taken count, on the same page.
pub const TAKEN_OFFSET: usize = AVAILABLE_OFFSET + 2048;

const RING_OFFSET: usize = 4;
/// Descriptor flags: the device writes; a table of descriptors.
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// VIRTIO_F_EVENT_IDX, in the available ring: the index from which on to be interrupted; in the
/// used ring: the one from which on to be notified.
const USED_EVENT_OFFSET: usize = AVAILABLE_OFFSET + RING_OFFSET + 2 * ENTRIES as usize;
const AVAILABLE_EVENT_OFFSET: usize = USED_OFFSET + RING_OFFSET + 8 * ENTRIES as usize;
/// Available-ring flag: no interrupt wanted.
const NO_INTERRUPT: u16 = 1;
/// Used-ring flag: no notification wanted.
const NO_NOTIFY: u16 = 1;
/// In a mark: the device has the buffer. The count stands below.
const MARKED: u32 = 1 << 16;

/// The device said something impossible; remedy: reset it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// What a successor found that its predecessor would not have left; remedy: reset the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlike {
    /// The counts of what was given, marked and taken are out of step.
    Counts,
    /// An entry of the available ring names another buffer than the mark does; so do two marks with
    /// one count.
    Entry,
    /// A descriptor is not its buffer's: address, length or flags.
    Descriptor,
    /// The device used more than it was given, or what it does not have.
    Used,
    /// A buffer is with the device and with the next user of what it wrote.
    Told,
}

/// A buffer the device has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// Which.
    pub buffer: u16,
    /// Bytes the device says it wrote; not checked.
    pub written: u32,
}

/// What a descriptor says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Where its buffer's bytes begin, as the device sees it.
    pub physical: u64,
    /// Bytes from there on.
    pub bytes: u32,
}

/// What the descriptors of a queue lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Buffers that the device reads; it does not interrupt for them at first.
    Read,
    /// Buffers that it writes.
    Written,
    /// Tables of descriptors: `Descriptor` says where a table lies, and its bytes.
    Tables,
}

/// One queue in a region.
pub struct Queue<M> {
    memory: M,
    base: usize,
    target: Target,
    has_event_index: bool,
    /// Buffers given, ever; of these shown to the device; and used ones taken.
    available: u16,
    shown: u16,
    seen: u16,
    given: BufferSet,
}

impl<M: Memory> Queue<M> {
    fn over(memory: M, base: usize, target: Target) -> Queue<M> {
        let given = BufferSet::EMPTY;
        Queue { memory, base, target, has_event_index: false, available: 0, shown: 0, seen: 0, given }
    }

    /// An empty queue at `base` of the region. The device must be reset, or have its queues
    /// elsewhere. `OutOfBounds` if the region is too small.
    pub fn new(memory: M, base: usize, target: Target) -> Result<Queue<M>, OutOfBounds> {
        let zeros = [0u8; 4096];
        for page in 0..QUEUE_BYTES / zeros.len() {
            memory.write(base + page * zeros.len(), &zeros)?;
        }
        let queue = Queue::over(memory, base, target);
        queue.want_interrupts(target != Target::Read);
        Ok(queue)
    }

    /// The queue at `base` that a predecessor left and the device goes on with. `is_right` tells
    /// whether a descriptor is one that the predecessor gave for that buffer, `is_told` whether the
    /// predecessor had written down what the device did with it: of one such it may have died
    /// before it cleared the mark.
    pub fn adopt(
        memory: M,
        base: usize,
        target: Target,
        is_right: impl Fn(u16, Descriptor) -> bool,
        is_told: impl Fn(u16) -> bool,
    ) -> Result<Queue<M>, Unlike> {
        let mut queue = Queue::over(memory, base, target);
        queue.available = queue.load(AVAILABLE_OFFSET + INDEX_OFFSET);
        queue.shown = queue.available;
        queue.seen = queue.load(TAKEN_OFFSET);
        let hidden = queue.hide_unshown();
        for buffer in 0..BUFFERS {
            let Some(count) = queue.mark(buffer)? else { continue };
            queue.given.insert(buffer);
            let slot = usize::from(count % ENTRIES);
            // Who was given so long ago was read from an entry that is another's now.
            let is_recent = queue.available.wrapping_sub(count) <= ENTRIES && !hidden.contains(count % ENTRIES);
            if is_recent && queue.load(AVAILABLE_OFFSET + RING_OFFSET + 2 * slot) != buffer {
                return Err(Unlike::Entry);
            }
            match queue.descriptor(buffer) {
                Some(descriptor) if is_right(buffer, descriptor) => {}
                _ => return Err(Unlike::Descriptor),
            }
        }
        queue.finish_accept(is_told)?;
        queue.check_counts()?;
        if target != Target::Read {
            queue.want_interrupts(true);
        }
        Ok(queue)
    }

    /// VIRTIO_F_EVENT_IDX was agreed on (section 2.7.10): each side tells by an index from where on
    /// it wants to hear. The device interrupts for the next buffer that it uses.
    pub fn use_event_index(&mut self) {
        self.has_event_index = true;
        self.want_interrupts(true);
    }

    /// Clears the marks of buffers that the device was not shown; gives the entries they took, and
    /// that of one which the predecessor may have been giving when it died. The device has read
    /// what these entries said before: else it had all buffers, and there was none to give.
    fn hide_unshown(&self) -> BufferSet {
        let mut hidden = BufferSet::EMPTY;
        let mut marked = 0;
        for buffer in 0..BUFFERS {
            let mark = self.load_mark(buffer);
            let count = mark as u16;
            marked += u16::from(mark & MARKED != 0);
            if mark & MARKED != 0 && count.wrapping_sub(self.available) < ENTRIES {
                hidden.insert(count % ENTRIES);
                self.store_mark(buffer, 0);
            }
        }
        if marked < BUFFERS {
            hidden.insert(self.available.wrapping_add(hidden.len() as u16) % ENTRIES);
        }
        hidden
    }

    /// The count at which a buffer was given that the device has.
    fn mark(&self, buffer: u16) -> Result<Option<u16>, Unlike> {
        match self.load_mark(buffer) {
            0 => Ok(None),
            mark if mark & !0xffff == MARKED => Ok(Some(mark as u16)),
            _ => Err(Unlike::Counts),
        }
    }

    /// Ends what the predecessor was doing when it died: taking the next used buffer.
    fn finish_accept(&mut self, is_told: impl Fn(u16) -> bool) -> Result<(), Unlike> {
        let told = self.given.iter().filter(|buffer| is_told(*buffer)).collect::<Vec<_>>();
        let is_used = self.progress() != self.seen;
        let next = used_entry(&self.memory, self.base, self.seen).filter(|_| is_used).map(|used| used.buffer);
        match (told.as_slice(), next) {
            // It was written down; the mark is still there.
            ([buffer], Some(next)) if *buffer == next => self.accept(next).map_err(|Broken| Unlike::Used),
            ([], _) => {
                let given = self.available.wrapping_sub(self.seen);
                let is_cleared = usize::from(given) == self.given.len() + 1;
                if is_cleared && next.is_some_and(|next| !self.given.contains(next)) {
                    self.seen = self.seen.wrapping_add(1);
                    self.keep_taken();
                }
                Ok(())
            }
            _ => Err(Unlike::Told),
        }
    }

    fn check_counts(&self) -> Result<(), Unlike> {
        if usize::from(self.available.wrapping_sub(self.seen)) != self.given.len() {
            return Err(Unlike::Counts);
        }
        let used = self.progress().wrapping_sub(self.seen);
        let mut rest = self.given;
        let mut is_given = |offset: u16| {
            let entry = used_entry(&self.memory, self.base, self.seen.wrapping_add(offset));
            entry.is_some_and(|entry| rest.remove(entry.buffer))
        };
        let fits = usize::from(used) <= self.given.len() && (0..used).all(&mut is_given);
        if fits { Ok(()) } else { Err(Unlike::Used) }
    }

    /// Buffers the device has.
    pub fn given(&self) -> BufferSet {
        self.given
    }

    /// Buffers given, ever; of a queue that was gone on with, those that the device was shown.
    pub fn count(&self) -> u16 {
        self.available
    }

    /// Gives a buffer to the device; false if it has it already. Not seen by the device before
    /// [`Queue::publish`].
    pub fn give(&mut self, buffer: u16, Descriptor { physical, bytes }: Descriptor) -> bool {
        if !self.given.insert(buffer) {
            return false;
        }
        let mut descriptor = [0u8; 16];
        descriptor[..8].copy_from_slice(&physical.to_le_bytes());
        descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
        descriptor[12..14].copy_from_slice(&self.flags().to_le_bytes());
        self.write(usize::from(buffer) * 16, &descriptor);
        let slot = usize::from(self.available % ENTRIES);
        self.store(AVAILABLE_OFFSET + RING_OFFSET + slot * 2, buffer);
        self.store_mark(buffer, MARKED | u32::from(self.available));
        self.available = self.available.wrapping_add(1);
        assert!(usize::from(self.available.wrapping_sub(self.seen)) == self.given.len());
        true
    }

    /// Shows the device what was given; true if it wants to be notified.
    pub fn publish(&mut self) -> bool {
        // The entries before the index, the index before the question whether to notify (section
        // 2.7.13).
        fence(Ordering::SeqCst);
        self.store(AVAILABLE_OFFSET + INDEX_OFFSET, self.available);
        fence(Ordering::SeqCst);
        let before = core::mem::replace(&mut self.shown, self.available);
        if !self.has_event_index {
            return self.load(USED_OFFSET) & NO_NOTIFY == 0;
        }
        let event = self.load(AVAILABLE_EVENT_OFFSET);
        // Has the index passed the one that it wants to hear of?
        self.shown.wrapping_sub(event).wrapping_sub(1) < self.shown.wrapping_sub(before)
    }

    /// The next buffer the device is done with. It is the device's until [`Queue::accept`].
    pub fn next_used(&self) -> Result<Option<Used>, Broken> {
        match usize::from(self.progress().wrapping_sub(self.seen)) {
            0 => Ok(None),
            ahead if ahead > self.given.len() => Err(Broken),
            _ => used_entry(&self.memory, self.base, self.seen).map(Some).ok_or(Broken),
        }
    }

    /// Takes the buffer that [`Queue::next_used`] gave. `Broken` if the device did not have it.
    pub fn accept(&mut self, buffer: u16) -> Result<(), Broken> {
        if !self.given.remove(buffer) {
            return Err(Broken);
        }
        self.store_mark(buffer, 0);
        self.seen = self.seen.wrapping_add(1);
        self.keep_taken();
        Ok(())
    }

    /// Whether the device has something to do: not all that it was shown is used.
    pub fn is_behind(&self) -> bool {
        self.progress() != self.load(AVAILABLE_OFFSET + INDEX_OFFSET)
    }

    /// Buffers that the device used, ever.
    pub fn progress(&self) -> u16 {
        self.load(USED_OFFSET + INDEX_OFFSET)
    }

    /// Asks for interrupts, or for none. With event indices for one, at the next used buffer: who
    /// asks looks once more afterwards.
    pub fn want_interrupts(&self, wanted: bool) {
        match (self.has_event_index, wanted) {
            (false, true) => self.store(AVAILABLE_OFFSET, 0),
            (false, false) => self.store(AVAILABLE_OFFSET, NO_INTERRUPT),
            (true, true) => self.store(USED_EVENT_OFFSET, self.seen),
            // One that was passed comes again after 65,535 more.
            (true, false) => self.store(USED_EVENT_OFFSET, self.seen.wrapping_sub(1)),
        }
        fence(Ordering::SeqCst);
    }

    fn flags(&self) -> u16 {
        match self.target {
            Target::Read => 0,
            Target::Written => WRITE,
            Target::Tables => INDIRECT,
        }
    }

    /// What a buffer's descriptor says; `None` if it has other flags than ours.
    fn descriptor(&self, buffer: u16) -> Option<Descriptor> {
        let mut bytes = [0; 16];
        self.memory.read(self.base + usize::from(buffer) * 16, &mut bytes).ok()?;
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, next @ ..] = bytes;
        let is_ours = u16::from_le_bytes([m, n]) == self.flags() && next == [0; 2];
        is_ours.then_some(Descriptor {
            physical: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            bytes: u32::from_le_bytes([i, j, k, l]),
        })
    }

    fn keep_taken(&self) {
        self.store(TAKEN_OFFSET, self.seen);
    }

    fn load_mark(&self, buffer: u16) -> u32 {
        // In bounds, as all that follow: looked at when the queue was made; else nothing is marked.
        self.memory.load_u32(self.base + MARKS_OFFSET + 4 * usize::from(buffer)).unwrap_or(0)
    }

    fn store_mark(&self, buffer: u16, mark: u32) {
        let _ = self.memory.store_u32(self.base + MARKS_OFFSET + 4 * usize::from(buffer), mark);
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        let _ = self.memory.write(self.base + offset, bytes);
    }

    fn load(&self, offset: usize) -> u16 {
        self.memory.load_u16(self.base + offset).unwrap_or(0)
    }

    fn store(&self, offset: usize, value: u16) {
        let _ = self.memory.store_u16(self.base + offset, value);
    }
}

/// Where a device sees the queue at `base` of a region that it sees at `physical`.
pub fn addresses(base: usize, physical: u64) -> QueueAddresses {
    let descriptors = physical + base as u64;
    QueueAddresses {
        descriptors,
        available: descriptors + AVAILABLE_OFFSET as u64,
        used: descriptors + USED_OFFSET as u64,
    }
}

/// An entry of the used ring; `None` if it names no buffer of the pool.
fn used_entry(memory: &impl Memory, base: usize, index: u16) -> Option<Used> {
    let slot = usize::from(index % ENTRIES);
    let mut entry = [0; 8];
    memory.read(base + USED_OFFSET + RING_OFFSET + slot * 8, &mut entry).ok()?;
    let [a, b, c, d, e, f, g, h] = entry;
    let buffer = u16::try_from(u32::from_le_bytes([a, b, c, d])).ok().filter(|buffer| *buffer < BUFFERS)?;
    Some(Used { buffer, written: u32::from_le_bytes([e, f, g, h]) })
}

/// What a device that was reset had completed of the queue at `base` and nobody had taken, in
/// order. Numbers past the pool are left out; an index that cannot be gives nothing.
pub fn unclaimed_completions(memory: &impl Memory, base: usize) -> Vec<Used> {
    let words = [TAKEN_OFFSET, USED_OFFSET + INDEX_OFFSET].map(|offset| memory.load_u16(base + offset));
    // A region too short for this reads as nothing left.
    let [Ok(taken), Ok(end)] = words else { return Vec::new() };
    let count = end.wrapping_sub(taken);
    let believed = if count > ENTRIES { 0 } else { count };
    (0..believed).filter_map(|offset| used_entry(memory, base, taken.wrapping_add(offset))).collect()
}

#[cfg(test)]
mod tests;
