//! A ring of cache lines with one writer and one reader (Barrelfish's URPC), whole messages, and
//! generations.
//!
//! A slot is seven payload words and a stamp `(generation << 32 | position)`. A message takes 1 to
//! [`MESSAGE_SLOTS`] slots; the stamp of its first slot is written last, so a message appears whole
//! or not at all. A slot whose stamp is not exactly the expected one is empty: what an earlier lap
//! or an earlier generation left there needs no clearing. The reader publishes how far it has read
//! in an index word of the same form; the writer never overruns it.
//!
//! Invariants: all shared words are atomics, so whatever the other side writes, at any time, is at
//! worst a wrong value; it is decoded into a message, [`Broken`] or nothing. Positions count slots
//! and wrap at 2^32; the number of slots is a power of two. Deliberately unknown here: who shares
//! the memory, doorbells, what messages mean.
#![no_std]
#![forbid(unsafe_code)]

mod header;
mod reader;
mod sync;
mod writer;

pub use header::{Header, Kind};
pub use reader::{Buffer, Reader};
pub use sync::{AtomicU64, Ordering, fence};
pub use writer::{Refused, Writer};

/// Payload words of a slot.
pub const SLOT_WORDS: usize = 7;
/// Most slots of a message.
pub const MESSAGE_SLOTS: usize = 16;
/// Most body bytes: all payload words but the header's.
pub const BODY_BYTES: usize = (MESSAGE_SLOTS * SLOT_WORDS - 1) * 8;
/// Most body bytes of a message that takes one slot, as most do.
const SLOT_BODY_BYTES: usize = (SLOT_WORDS - 1) * 8;
/// Fewest slots of a ring: the longest message must fit.
pub const RING_SLOTS_MIN: usize = MESSAGE_SLOTS;

/// One cache line of a ring.
#[repr(C, align(64))]
pub struct Slot {
    words: [AtomicU64; SLOT_WORDS],
    stamp: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64);

impl Slot {
    /// An empty slot: no generation is 0.
    pub fn empty() -> Slot {
        Slot::of([0; SLOT_WORDS], 0)
    }

    /// A slot with that content, as a peer might have left it.
    pub fn of(words: [u64; SLOT_WORDS], stamp: u64) -> Slot {
        Slot { words: words.map(AtomicU64::new), stamp: AtomicU64::new(stamp) }
    }
}

/// The other side wrote what no correct peer writes. Remedy: close the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// `(generation << 32 | position)`.
const fn stamp(generation: u32, position: u32) -> u64 {
    (generation as u64) << 32 | position as u64
}

/// The slot of a position. `slots.len()` is a power of two (checked where rings are made).
#[inline]
fn slot(slots: &[Slot], position: u32) -> &Slot {
    &slots[position as usize & (slots.len() - 1)]
}

/// Slots that a message with `body_bytes` takes.
const fn slots_of(body_bytes: usize) -> usize {
    (body_bytes.div_ceil(8) + 1).div_ceil(SLOT_WORDS)
}

/// Is that a usable ring size?
pub const fn is_ring_size(slots: usize) -> bool {
    slots.is_power_of_two() && slots >= RING_SLOTS_MIN && slots <= 1 << 16
}
