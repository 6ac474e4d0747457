//! Blocks that were read last, decrypted: a second read of one is answered in the call (NOVA's
//! preprocessing), without the server behind.
//!
//! Invariants: each client has its own, which its worker alone reaches. A block is given out only
//! if nothing was written since it was asked for: of that is a count for all clients, which is
//! raised before a write or a discard is answered, whichever way it came, and when a client's life
//! begins, as what its earlier one wrote is done by then. A slot of which this server does not know
//! whether it is under way behind neither gives nor takes.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

use contracts::blocks::Extent;
use zeroize::Zeroizing;

use crate::SLOTS;

/// 64 KiB for each client.
const BLOCKS: usize = 16;
const BLOCK_BYTES: usize = 4096;
const BLOCK_SECTORS: u32 = 8;
/// The sector of a block that has none.
const NOWHERE: u64 = u64::MAX;
/// Of a slot: it may be under way since an earlier life of this server,
const UNKNOWN: u64 = 0;
/// or it is free. Else it was asked at that count.
const FREE: u64 = 1;

/// The bytes of a block.
pub(super) type Bytes = Zeroizing<[u8; BLOCK_BYTES]>;

/// Counts what was written, from the least that no slot's word means otherwise.
pub(super) struct Changes(AtomicU64);

impl Changes {
    pub fn new() -> Changes {
        Changes(AtomicU64::new(FREE + 1))
    }

    /// Something was written.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

struct Block {
    sector: AtomicU64,
    /// The count when it was asked for.
    asked_at: AtomicU64,
    words: [AtomicU64; BLOCK_BYTES / 8],
}

/// See the head.
pub(super) struct Cache {
    blocks: Box<[Block]>,
    slots: [AtomicU64; SLOTS],
}

impl Cache {
    pub fn new() -> Cache {
        let block = |_| Block {
            sector: AtomicU64::new(NOWHERE),
            asked_at: AtomicU64::new(UNKNOWN),
            words: [const { AtomicU64::new(0) }; BLOCK_BYTES / 8],
        };
        Cache { blocks: (0..BLOCKS).map(block).collect(), slots: [const { AtomicU64::new(UNKNOWN) }; SLOTS] }
    }

    fn block(&self, extent: Extent) -> Option<&Block> {
        let is_one = extent.sectors == BLOCK_SECTORS && extent.sector.is_multiple_of(BLOCK_SECTORS.into());
        is_one.then(|| &self.blocks[(extent.sector / u64::from(BLOCK_SECTORS)) as usize % BLOCKS])
    }

    /// What a read by that slot gives, if it is here.
    pub fn look_up(&self, slot: usize, extent: Extent, changes: &Changes) -> Option<Bytes> {
        let block = self.block(extent)?;
        let is_it = block.sector.load(Ordering::Relaxed) == extent.sector
            && block.asked_at.load(Ordering::Relaxed) == changes.now()
            && self.slots[slot].load(Ordering::Relaxed) == FREE;
        is_it.then(|| {
            let mut bytes = Zeroizing::new([0; BLOCK_BYTES]);
            for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(&block.words) {
                *bytes = word.load(Ordering::Relaxed).to_le_bytes();
            }
            bytes
        })
    }

    /// A slot is asked of the server behind. One that is asked again keeps its count: it may have
    /// been done long ago.
    pub fn asked(&self, slot: usize, changes: &Changes) {
        if self.slots[slot].load(Ordering::Relaxed) == FREE {
            self.slots[slot].store(changes.now(), Ordering::Relaxed);
        }
    }

    /// A slot has ended.
    pub fn ended(&self, slot: usize) {
        self.slots[slot].store(FREE, Ordering::Relaxed);
    }

    /// A slot has ended with a block: takes what `read` gives.
    pub fn fill(&self, slot: usize, extent: Extent, read: impl FnOnce(&mut [u8]) -> bool) {
        let asked_at = self.slots[slot].load(Ordering::Relaxed);
        let Some(block) = self.block(extent).filter(|_| asked_at > FREE) else { return };
        let mut bytes: Bytes = Zeroizing::new([0; BLOCK_BYTES]);
        // Stopped anywhere it is nobody's.
        block.sector.store(NOWHERE, Ordering::Relaxed);
        if read(&mut bytes[..]) {
            for (bytes, word) in bytes.as_chunks().0.iter().zip(&block.words) {
                word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
            }
            block.asked_at.store(asked_at, Ordering::Relaxed);
            block.sector.store(extent.sector, Ordering::Relaxed);
        }
    }
}
