//! Blocks of the disk in memory, as many as may be.
//!
//! Invariants: what is here is what the disk has; a block that is pinned stays, and so the limit is
//! passed only by pinned ones. Whoever writes a block to the disk puts it here.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::cell::Cell;

use ext4::{Block, Blocks};

struct Entry {
    bytes: Arc<Block>,
    pins: u32,
    /// Somebody looked since the hand passed.
    is_used: Cell<bool>,
}

/// The cache. Blocks that nobody looked at since the hand passed them go first.
pub struct Cache {
    all: BTreeMap<u64, Entry>,
    limit: usize,
    /// Where the search for one to drop goes on.
    hand: u64,
}

impl Cache {
    /// Holds up to `limit` blocks, at least one.
    pub fn new(limit: usize) -> Cache {
        Cache { all: BTreeMap::new(), limit: limit.max(1), hand: 0 }
    }

    /// Blocks that may be there.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// From now on there may be so many, at least one; the others are dropped, but for pinned ones.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(1);
        while self.all.len() > self.limit && self.drop_one() {}
    }

    /// Blocks that are there.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Is none there?
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Is a block there?
    pub fn has(&self, number: u64) -> bool {
        self.all.contains_key(&number)
    }

    /// A block's bytes, to be kept.
    pub fn bytes(&self, number: u64) -> Option<Arc<Block>> {
        self.all.get(&number).map(|entry| entry.bytes.clone())
    }

    /// A block that was read or written.
    pub fn insert(&mut self, number: u64, bytes: Arc<Block>) {
        if let Some(entry) = self.all.get_mut(&number) {
            entry.bytes = bytes;
            return;
        }
        while self.all.len() >= self.limit && self.drop_one() {}
        self.all.insert(number, Entry { bytes, pins: 0, is_used: Cell::new(true) });
    }

    /// Keeps a block here until it is unpinned as often; false if it is not here.
    pub fn pin(&mut self, number: u64) -> bool {
        self.all.get_mut(&number).map(|entry| entry.pins += 1).is_some()
    }

    /// The opposite.
    pub fn unpin(&mut self, number: u64) {
        if let Some(entry) = self.all.get_mut(&number) {
            entry.pins = entry.pins.saturating_sub(1);
        }
    }

    /// Drops all that are not pinned.
    pub fn clear(&mut self) {
        self.all.retain(|_, entry| entry.pins > 0);
    }

    /// Drops a block; false if all are pinned. Goes round twice at most.
    fn drop_one(&mut self) -> bool {
        for _ in 0..2 * self.all.len() {
            let next = self.all.range(self.hand..).next().or_else(|| self.all.iter().next());
            let Some((&number, entry)) = next else { return false };
            let is_used = entry.is_used.take();
            let stays = is_used || entry.pins > 0;
            self.hand = number + 1;
            if !stays {
                self.all.remove(&number);
                return true;
            }
        }
        false
    }
}

impl Blocks for Cache {
    fn block(&self, number: u64) -> Option<&Block> {
        let entry = self.all.get(&number)?;
        entry.is_used.set(true);
        Some(&entry.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> Arc<Block> {
        Arc::new([byte; ext4::BLOCK_BYTES])
    }

    fn there(cache: &Cache, numbers: core::ops::Range<u64>) -> Vec<u64> {
        numbers.filter(|number| cache.has(*number)).collect()
    }

    #[test]
    fn what_was_not_looked_at_goes_first() {
        let mut cache = Cache::new(4);
        (0..4).for_each(|number| cache.insert(number, block(number as u8)));
        // The hand passes all, and comes round to the first.
        cache.insert(4, block(4));
        assert_eq!(there(&cache, 0..9), [1, 2, 3, 4]);
        assert_eq!(cache.block(2).map(|block| block[7]), Some(2));
        cache.insert(5, block(5));
        cache.insert(6, block(6));
        assert_eq!(there(&cache, 0..9), [2, 4, 5, 6]);
        assert!(cache.block(3).is_none());
        cache.insert(2, block(9));
        assert_eq!((cache.len(), cache.block(2).map(|block| block[0])), (4, Some(9)));
    }

    #[test]
    fn a_lower_limit_drops_all_but_pinned_ones() {
        let mut cache = Cache::new(8);
        (0..8).for_each(|number| cache.insert(number, block(1)));
        assert!(cache.pin(3) && cache.pin(4));
        cache.set_limit(4);
        assert_eq!((cache.len(), cache.has(3), cache.has(4)), (4, true, true));
        cache.set_limit(0);
        assert_eq!((there(&cache, 0..8), cache.limit()), (vec![3, 4], 1));
        cache.set_limit(8);
        (0..8).for_each(|number| cache.insert(number, block(1)));
        assert_eq!(cache.len(), 8);
    }

    #[test]
    fn what_is_pinned_stays() {
        let mut cache = Cache::new(2);
        (0..2).for_each(|number| cache.insert(number, block(1)));
        assert!(cache.pin(0) && cache.pin(0) && cache.pin(1) && !cache.pin(7));
        cache.insert(2, block(1));
        assert_eq!(there(&cache, 0..9), [0, 1, 2], "more than the limit, but none is lost");
        cache.unpin(0);
        cache.unpin(1);
        cache.insert(3, block(1));
        assert_eq!(there(&cache, 0..9), [0, 3]);
        cache.unpin(0);
        cache.insert(4, block(1));
        cache.insert(5, block(1));
        assert_eq!(there(&cache, 0..9).len(), 2);
        assert!(!there(&cache, 0..9).contains(&0));
    }
}
