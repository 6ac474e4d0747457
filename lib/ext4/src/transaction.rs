//! Transactions: what operations have changed and the disk does not have yet.
//!
//! An operation collects its changes in [`Changes`], beside everything. If it ends well they join
//! the running [`Transaction`]; else they are dropped, so an operation that missed a block, or
//! failed, has changed nothing.
//!
//! A block is never changed where others see it: a version that the log or a place in the volume is
//! being written from stays as it is, and a change takes a copy.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use crate::error::{Error, Stop};
use crate::known::{self, Part};
use crate::{BLOCK_BYTES, Block, Blocks, Known, ZEROS};

/// A block of a file's bytes.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    /// The file.
    pub inode: u32,
    pub bytes: Arc<Block>,
}

/// A block of metadata.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub bytes: Arc<Block>,
    pub known: Known,
}

/// What one operation changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Metadata: these go through the log.
    pub blocks: BTreeMap<u64, Version>,
    /// Bytes of files: these go to their places before the commit.
    pub data: BTreeMap<u64, Data>,
    /// Freed blocks: how many there are from one on. Nobody gets them before the commit.
    pub freed: BTreeMap<u64, u64>,
    /// Freed blocks of metadata: no older version of them counts.
    pub revoked: BTreeSet<u64>,
    /// Inodes that were changed, or something of theirs.
    pub inodes: BTreeSet<u32>,
    /// Inodes that came onto the orphan list (true) or left it, in this order.
    pub orphans: Vec<(u32, bool)>,
    /// By how much the volume's free blocks became more.
    pub free_blocks: i64,
    /// By how much its free inodes became more.
    pub free_inodes: i64,
}

/// What all operations since the last commit have changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transaction {
    /// Its number in the log.
    pub number: u32,
    pub changes: Changes,
}

impl Changes {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.data.is_empty() && self.revoked.is_empty()
    }

    /// The version of a block that these changes have.
    pub fn block(&self, number: u64) -> Option<(&Block, Option<&Known>)> {
        match self.blocks.get(&number) {
            Some(version) => Some((&version.bytes, Some(&version.known))),
            None => self.data.get(&number).map(|data| (&*data.bytes, None)),
        }
    }

    /// Drops `blocks` blocks that were freed, and notes them as such.
    pub fn free(&mut self, first: u64, blocks: u64) {
        drop_range(&mut self.blocks, first..first + blocks);
        drop_range(&mut self.data, first..first + blocks);
        match self.freed.range_mut(..first).next_back() {
            Some((before, count)) if before + *count == first => *count += blocks,
            _ => {
                self.freed.insert(first, blocks);
            }
        }
    }
}

fn drop_range<T>(map: &mut BTreeMap<u64, T>, range: Range<u64>) {
    while let Some(number) = map.range(range.clone()).next().map(|(number, _)| *number) {
        map.remove(&number);
    }
}

impl Transaction {
    /// Blocks of the log that it needs if `more` joins it: those of metadata, and for descriptors,
    /// revokes and the commit.
    pub fn log_blocks(&self, more: &Changes) -> usize {
        let ours = &self.changes;
        let news = more.blocks.keys().filter(|number| !ours.blocks.contains_key(number)).count();
        log_blocks(ours.blocks.len() + news, ours.revoked.len() + more.revoked.len())
    }

    /// Takes what an operation changed.
    pub fn join(&mut self, changes: Changes) {
        let ours = &mut self.changes;
        for (first, blocks) in changes.freed {
            ours.free(first, blocks);
        }
        ours.blocks.extend(changes.blocks);
        ours.data.extend(changes.data);
        ours.revoked.extend(changes.revoked);
        ours.inodes.extend(changes.inodes);
    }
}

/// Tags of a descriptor, and records of a revoke, that fit into a block.
pub(crate) const TAGS_MAX: usize = (BLOCK_BYTES - 12 - 16 - 4) / 16;
pub(crate) const REVOKES_MAX: usize = (BLOCK_BYTES - 16 - 4) / 8;

/// Blocks of the log for so many blocks and revokes.
pub(crate) fn log_blocks(blocks: usize, revokes: usize) -> usize {
    blocks + blocks.div_ceil(TAGS_MAX) + revokes.div_ceil(REVOKES_MAX) + 1
}

/// A block of the volume as an operation sees it: what it changed itself, else the newest version.
#[derive(Debug)]
pub(crate) struct Overlay<B> {
    pub below: B,
    pub changes: Changes,
}

impl<B: Blocks> Blocks for Overlay<B> {
    fn block(&self, number: u64) -> Option<&Block> {
        self.block_known(number).map(|(block, _)| block)
    }

    fn block_known(&self, number: u64) -> Option<(&Block, Option<&Known>)> {
        self.changes.block(number).or_else(|| self.below.block_known(number))
    }
}

/// A copy of a block, made where it stays: not on the stack first.
pub(crate) fn copy_of(block: &Block) -> Arc<Block> {
    Arc::<[u8]>::from(&block[..]).try_into().expect("it has a block's bytes")
}

impl<B: Blocks> Overlay<B> {
    /// A block of metadata, to be changed.
    ///
    /// # Errors
    /// [`Stop::Need`].
    pub fn edit(&mut self, number: u64) -> Result<&mut Block, Stop> {
        if !self.changes.blocks.contains_key(&number) {
            let found = known::find(self, number)?;
            let (bytes, known) = (copy_of(found.block), found.known.cloned().unwrap_or_default());
            self.changes.blocks.insert(number, Version { bytes, known });
        }
        let version = self.changes.blocks.get_mut(&number).ok_or(Stop::Need(number))?;
        Ok(Arc::make_mut(&mut version.bytes))
    }

    /// A block of metadata that was nothing before: zeros.
    pub fn fresh(&mut self, number: u64) -> &mut Block {
        Arc::make_mut(&mut self.put(number, copy_of(&ZEROS)).bytes)
    }

    /// All of a block of metadata, of which nothing is known.
    fn put(&mut self, number: u64, bytes: Arc<Block>) -> &mut Version {
        let version = Version { bytes, known: Known::default() };
        self.changes.blocks.entry(number).insert_entry(version).into_mut()
    }

    /// Sets all of a block of metadata, which is right: its checksum was just made.
    pub fn put_right(&mut self, number: u64, bytes: Arc<Block>, part: Part) {
        self.put(number, bytes).known.note_right(part);
    }

    /// A part of a changed block is right, as its checksum was just made.
    pub fn note_right(&self, number: u64, part: Part) {
        if let Some(version) = self.changes.blocks.get(&number) {
            version.known.note_right(part);
        }
    }

    /// Sets all of a block of a file's bytes.
    pub fn put_data(&mut self, number: u64, inode: u32, bytes: Arc<Block>) {
        self.changes.data.insert(number, Data { inode, bytes });
    }
}

/// What an operation's changes may be at most.
///
/// # Errors
/// [`Stop::Commit`] if they would fit into an empty transaction, else [`Error::TooLarge`].
pub(crate) fn check_room(running: &Transaction, changes: &Changes, limit: usize) -> Result<(), Stop> {
    if running.log_blocks(changes) <= limit {
        return Ok(());
    }
    if log_blocks(changes.blocks.len(), changes.revoked.len()) <= limit {
        return Err(Stop::Commit(running.number));
    }
    Err(Error::TooLarge.into())
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::testing::Memory;

    fn overlay() -> Overlay<Memory> {
        Overlay { below: Memory::zeros(1000), changes: Changes::default() }
    }

    /// Changes of these blocks, with as many revokes.
    fn changes(blocks: Range<u64>, revokes: Range<u64>) -> Changes {
        let mut overlay = overlay();
        for number in blocks {
            overlay.fresh(number);
        }
        overlay.changes.revoked.extend(revokes);
        overlay.changes
    }

    #[test]
    fn freed_blocks_are_dropped_and_no_others() {
        let mut overlay = overlay();
        for number in 9..25 {
            overlay.fresh(number);
            overlay.put_data(number + 100, 12, copy_of(&ZEROS));
        }
        overlay.changes.free(10, 2);
        overlay.changes.free(110, 3);
        let left: Vec<u64> = overlay.changes.blocks.keys().copied().collect();
        assert_eq!(left, [vec![9], (12..25).collect()].concat());
        let left: Vec<u64> = overlay.changes.data.keys().copied().collect();
        assert_eq!(left, [vec![109], (113..125).collect()].concat());
    }

    #[test]
    fn freed_blocks_that_follow_each_other_are_one_stretch() {
        let mut changes = Changes::default();
        for (first, blocks) in [(10, 2), (12, 3), (20, 1), (16, 2)] {
            changes.free(first, blocks);
        }
        assert_eq!(changes.freed, [(10, 5), (16, 2), (20, 1)].into());
        let mut all = Transaction { number: 1, changes: Changes::default() };
        all.changes.free(8, 2);
        all.join(changes);
        assert_eq!(all.changes.freed, [(8, 7), (16, 2), (20, 1)].into());
    }

    #[test]
    fn the_log_takes_descriptors_for_254_blocks_each_and_revokes_of_509() {
        let cases = [
            ((0, 0), 1),
            ((1, 0), 3),
            ((254, 0), 256),
            ((255, 0), 258),
            ((0, 1), 2),
            ((0, 509), 2),
            ((0, 510), 3),
            ((255, 510), 260),
        ];
        for ((blocks, revokes), most) in cases {
            assert_eq!(log_blocks(blocks, revokes), most, "{blocks} and {revokes}");
        }
    }

    #[test]
    fn a_block_that_changes_twice_in_a_transaction_is_logged_once() {
        let running = Transaction { number: 1, changes: changes(0..250, 0..500) };
        assert_eq!(running.log_blocks(&Changes::default()), 250 + 3);
        // Of ten, four are there already.
        assert_eq!(running.log_blocks(&changes(246..256, 0..0)), 256 + 2 + 1 + 1);
        assert_eq!(running.log_blocks(&changes(0..4, 900..909)), 250 + 3);
        assert_eq!(running.log_blocks(&changes(0..4, 900..910)), 250 + 4);
        let mut joined = running.clone();
        joined.join(changes(246..256, 900..910));
        assert_eq!((joined.changes.blocks.len(), joined.changes.revoked.len()), (256, 510));
    }

    #[test]
    fn changes_wait_for_a_commit_if_an_empty_transaction_has_room() {
        let running = Transaction { number: 77, changes: changes(0..10, 0..0) };
        let more = changes(10..18, 0..0);
        // 18 blocks, a descriptor and the commit; without those that are there, 10.
        assert_eq!(check_room(&running, &more, 20), Ok(()));
        assert_eq!(check_room(&running, &more, 19), Err(Stop::Commit(77)));
        assert_eq!(check_room(&running, &more, 10), Err(Stop::Commit(77)));
        assert_eq!(check_room(&running, &more, 9), Err(Error::TooLarge.into()));
    }

    #[test]
    fn what_was_just_summed_is_not_summed_again_until_it_is_made_anew() {
        let mut overlay = overlay();
        overlay.fresh(5)[0] = 1;
        let is_checked = |overlay: &Overlay<Memory>| {
            let mut is_checked = false;
            let check = |_: &Block| {
                is_checked = true;
                Ok(())
            };
            known::find(overlay, 5).unwrap().once(Part::whole(3), check).unwrap();
            is_checked
        };
        overlay.note_right(5, Part::whole(3));
        assert!(!is_checked(&overlay));
        overlay.edit(5).unwrap()[1] = 2;
        assert!(!is_checked(&overlay), "who changes it sums it");
        overlay.fresh(5);
        assert!(is_checked(&overlay));
        overlay.put_right(5, copy_of(&ZEROS), Part::whole(3));
        assert!(!is_checked(&overlay));
    }

    #[test]
    fn an_operation_sees_its_own_changes_and_else_what_is_below() {
        let mut overlay = overlay();
        overlay.below.edit(5)[0] = 1;
        overlay.below.edit(6)[0] = 2;
        overlay.edit(5).unwrap()[1] = 3;
        overlay.put_data(7, 12, copy_of(&[4; BLOCK_BYTES]));
        assert_eq!(overlay.block(5).unwrap()[..2], [1, 3]);
        assert_eq!(overlay.block(6).unwrap()[..2], [2, 0]);
        assert_eq!(overlay.block(7).unwrap()[..2], [4, 4]);
        assert_eq!(overlay.below.block(5).unwrap()[..2], [1, 0]);
        assert_eq!(overlay.edit(1000), Err(Stop::Need(1000)));
    }
}
