//! Blocks of the disk in memory, as many as may be, in `lib/buffers` (Corey section 5.3).
//!
//! Invariants: what is here is what the disk has; a block that is pinned stays, and so the limit is
//! passed only by pinned ones. Whoever writes a block to the disk puts it here.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::Cell;

use buffers::{FrameId, Local, Section};
use ext4::{BLOCK_BYTES, Block, Blocks, Known};

/// Frames that are free and kept: a block that is there already is written into another one.
const SPARE: usize = 1;

/// Of a part that is alone: nobody is waited for.
#[derive(Default)]
struct Alone;

impl lock::Relax for Alone {
    fn relax(&mut self) {}
}

/// What is noted of the block in a frame.
#[derive(Default)]
struct Mark {
    /// Somebody looked since the hand passed.
    is_used: Cell<bool>,
    known: Known,
}

/// The cache. Blocks that nobody looked at since the hand passed them go first.
pub struct Cache {
    blocks: Local<Block>,
    /// Blocks that are there.
    count: usize,
    limit: usize,
    pins: BTreeMap<u64, u32>,
    /// Of each frame.
    marks: Vec<Mark>,
    /// The frame where the search for one to drop goes on.
    hand: usize,
}

/// The blocks as they are: they stay until this is dropped. One at a time.
pub struct Seen<'a> {
    section: Section<'a, Block>,
    marks: &'a [Mark],
}

/// There is no memory for a block, and none that can be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Cache {
    /// Holds up to `limit` blocks, at least one, of a disk of `blocks`.
    pub fn new(limit: usize, blocks: u64) -> Cache {
        // One core, and no frame yet: nothing is asked for.
        let mut parts = buffers::locals(1, blocks, 0, || [0; BLOCK_BYTES]).unwrap_or_default();
        let blocks = parts.pop().expect("a part for one core");
        Cache { blocks, count: 0, limit: limit.max(1), pins: BTreeMap::new(), marks: Vec::new(), hand: 0 }
    }

    /// The blocks that are there. While this is there, nothing else is asked of the cache.
    pub fn seen(&self) -> Seen<'_> {
        Seen { section: self.blocks.read(), marks: &self.marks }
    }

    /// Blocks that may be there.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// From now on there may be so many, at least one; the others are dropped, but for pinned ones,
    /// and their memory is given back.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.max(1);
        while self.count > self.limit && self.drop_one() {}
        while self.blocks.free() > SPARE && self.blocks.shrink::<Alone>() {}
    }

    /// Blocks that are there.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Is none there?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Is a block there?
    pub fn has(&self, number: u64) -> bool {
        self.blocks.read().get(number).is_some()
    }

    /// A block that was read or written: `fill` writes all of it.
    ///
    /// # Errors
    /// [`Full`]; then no version of it is there.
    pub fn insert(&mut self, number: u64, fill: impl FnOnce(&mut Block)) -> Result<(), Full> {
        let is_there = self.has(number);
        while !is_there && self.count >= self.limit && self.drop_one() {}
        if self.blocks.free() == 0 && self.blocks.grow().is_err() {
            self.drop_one();
        }
        let Ok(frame) = self.blocks.insert::<Alone>(number, fill) else {
            self.remove(number);
            return Err(Full);
        };
        self.count += usize::from(!is_there);
        if self.marks.len() < self.blocks.places() {
            self.marks.resize_with(self.blocks.places(), Mark::default);
        }
        let mark = &self.marks[frame.index()];
        mark.is_used.set(true);
        mark.known.clear();
        Ok(())
    }

    /// Keeps a block here until it is unpinned as often; false if it is not here.
    pub fn pin(&mut self, number: u64) -> bool {
        self.has(number) && {
            *self.pins.entry(number).or_default() += 1;
            true
        }
    }

    /// The opposite.
    pub fn unpin(&mut self, number: u64) {
        match self.pins.get_mut(&number) {
            Some(pins) if *pins > 1 => *pins -= 1,
            _ => drop(self.pins.remove(&number)),
        }
    }

    /// Drops all that are not pinned.
    pub fn clear(&mut self) {
        for place in 0..self.blocks.places() {
            if let Some(number) = self.number(place)
                && !self.pins.contains_key(&number)
            {
                self.remove(number);
            }
        }
    }

    /// The block in the frame at a place.
    fn number(&self, place: usize) -> Option<u64> {
        self.blocks.at(place).and_then(|frame: FrameId| self.blocks.key_of(frame))
    }

    fn remove(&mut self, number: u64) {
        self.count -= usize::from(self.blocks.remove(number));
    }

    /// Drops a block; false if all are pinned. Goes round twice at most.
    fn drop_one(&mut self) -> bool {
        let places = self.blocks.places();
        for _ in 0..2 * places {
            let place = self.hand % places;
            self.hand = place + 1;
            let Some(number) = self.number(place) else { continue };
            let stays = self.marks[place].is_used.take() || self.pins.contains_key(&number);
            if !stays {
                self.remove(number);
                return true;
            }
        }
        false
    }
}

impl Blocks for Seen<'_> {
    fn block(&self, number: u64) -> Option<&Block> {
        self.block_known(number).map(|(block, _)| block)
    }

    fn block_known(&self, number: u64) -> Option<(&Block, Option<&Known>)> {
        let (frame, bytes) = self.section.get(number)?;
        let mark = &self.marks[frame.index()];
        mark.is_used.set(true);
        Some((bytes, Some(&mark.known)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(limit: usize) -> Cache {
        Cache::new(limit, 100)
    }

    fn put(cache: &mut Cache, numbers: core::ops::Range<u64>) {
        numbers.for_each(|number| cache.insert(number, |block| block.fill(number as u8)).unwrap());
    }

    fn first(cache: &Cache, number: u64) -> Option<u8> {
        cache.seen().block(number).map(|block| block[0])
    }

    fn there(cache: &Cache, numbers: core::ops::Range<u64>) -> Vec<u64> {
        numbers.filter(|number| cache.has(*number)).collect()
    }

    #[test]
    fn what_was_not_looked_at_goes_first() {
        let mut cache = cache(4);
        put(&mut cache, 0..4);
        // The hand passes all, and comes round to the first.
        put(&mut cache, 4..5);
        assert_eq!(there(&cache, 0..9), [1, 2, 3, 4]);
        assert_eq!(first(&cache, 2), Some(2));
        put(&mut cache, 5..7);
        assert_eq!(there(&cache, 0..9), [2, 4, 5, 6]);
        assert_eq!(first(&cache, 3), None);
        cache.insert(2, |block| block.fill(9)).unwrap();
        assert_eq!((cache.len(), first(&cache, 2)), (4, Some(9)));
    }

    #[test]
    fn a_lower_limit_drops_all_but_pinned_ones() {
        let mut cache = cache(8);
        put(&mut cache, 0..8);
        assert!(cache.pin(3) && cache.pin(4));
        cache.set_limit(4);
        assert_eq!((cache.len(), cache.has(3), cache.has(4)), (4, true, true));
        cache.set_limit(0);
        assert_eq!((there(&cache, 0..8), cache.limit()), (vec![3, 4], 1));
        let frames = (0..cache.blocks.places()).filter(|place| cache.blocks.at(*place).is_some()).count();
        assert_eq!(frames, 2 + SPARE, "memory is given back");
        cache.set_limit(8);
        put(&mut cache, 0..8);
        assert_eq!(cache.len(), 8);
    }

    #[test]
    fn what_is_pinned_stays() {
        let mut cache = cache(2);
        put(&mut cache, 0..2);
        assert!(cache.pin(0) && cache.pin(0) && cache.pin(1) && !cache.pin(7));
        put(&mut cache, 2..3);
        assert_eq!(there(&cache, 0..9), [0, 1, 2], "more than the limit, but none is lost");
        cache.clear();
        assert_eq!(there(&cache, 0..9), [0, 1]);
        cache.unpin(0);
        cache.unpin(1);
        put(&mut cache, 3..4);
        assert_eq!(there(&cache, 0..9), [0, 3]);
        cache.unpin(0);
        put(&mut cache, 4..6);
        assert_eq!(there(&cache, 0..9).len(), 2);
        assert!(!there(&cache, 0..9).contains(&0));
    }

    #[test]
    fn the_one_that_is_not_pinned_is_found_wherever_it_is() {
        let mut cache = cache(4);
        assert!(cache.is_empty());
        put(&mut cache, 0..4);
        assert!(!cache.is_empty() && (0..3).all(|number| cache.pin(number)));
        put(&mut cache, 4..5);
        assert_eq!(there(&cache, 0..9), [0, 1, 2, 4]);
    }

    #[test]
    fn what_no_disk_has_is_not_kept() {
        let mut cache = cache(2);
        assert_eq!(cache.insert(5000, |block| block.fill(1)), Err(Full));
        assert_eq!((cache.len(), cache.has(5000)), (0, false));
    }
}
