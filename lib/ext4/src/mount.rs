//! A volume that can be written.
//!
//! How a component uses it, with a device and a cache of blocks:
//!
//! 1. [`Volume::open`], then [`Recovery`](crate::Recovery) to its end. Make the writes of
//!    [`Recovered`], flush, and have none of those blocks, nor block 0, in the cache any more. Then
//!    [`Mount::begin`].
//! 2. To read: [`Mount::view`] gives the blocks as they are now, for the calls of [`Volume`]. The
//!    cache alone is behind: it has what the disk has.
//! 3. To change something: [`Mount::change`]. With [`Stop::Need`] read that block into the cache
//!    and call again; with [`Stop::Commit`] wait for that transaction and call again. Nothing has
//!    changed in either case, and none of it holds up other operations.
//! 4. fsync: [`Mount::sync`] tells the number of the transaction that has to last. Wait until
//!    [`Mount::lasts`] says so. All who wait meanwhile are served by the same commit.
//! 5. To write: whenever nothing is under way, and something was changed, asked for, or done, ask
//!    [`Mount::next`]. Write the batch, in any order; put each block that was written into the
//!    cache; flush as the batch says; then call [`Mount::done`] and ask again.
//! 6. After 5 s with changes, or when dirty blocks become many ([`Mount::dirty_blocks`]): call
//!    [`Mount::sync_all`]. When memory is short: [`Mount::write_places`], which lets the blocks go
//!    that only the log has.
//! 7. At the end: [`Mount::close`], then 5 until [`Mount::is_closed`].
//!
//! Invariant: a block that is newer than the disk is held here, until [`Mount::done`] says that it
//! was written. So the cache may drop any block at any time, except while an operation runs.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::error::{Error, Stop};
use crate::group::Group;
use crate::journal::{Batch, End, Recovered, Writer, is_newer};
use crate::operation::Operation;
use crate::super_block::Settings;
use crate::system::System;
use crate::transaction::{Changes, Transaction, check_room};
use crate::volume::Volume;
use crate::{Block, Blocks, Known, Time, need};

/// A volume that can be written.
#[derive(Clone, Debug)]
pub struct Mount {
    volume: Volume,
    pub(crate) settings: Settings,
    system: System,
    writer: Writer,
    running: Transaction,
    /// The newest transaction that somebody waits for.
    wanted: Option<u32>,
    /// Inodes without a name that are not free yet, the newest last.
    orphans: Vec<u32>,
    free_blocks: u64,
    free_inodes: u64,
    is_closing: bool,
    is_lost: bool,
}

/// The blocks as they are now: changes that the disk does not have, then the cache.
#[derive(Debug)]
pub struct View<'a, B> {
    mount: &'a Mount,
    cache: &'a B,
}

impl<B> Clone for View<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for View<'_, B> {}

impl<B: Blocks> Blocks for View<'_, B> {
    fn block(&self, number: u64) -> Option<&Block> {
        self.block_known(number).map(|(block, _)| block)
    }

    fn block_known(&self, number: u64) -> Option<(&Block, Option<&Known>)> {
        let changed = self.mount.running.changes.block(number).or_else(|| self.mount.writer.block(number));
        changed.or_else(|| self.cache.block_known(number))
    }
}

impl Mount {
    /// Begins to write a volume on a device of `device_blocks` blocks. All that was recovered is in
    /// its place, and was flushed.
    ///
    /// # Errors
    /// [`Stop::Need`]; those of [`Volume::open`]; [`Error::Refused`] with what can only be read;
    /// [`Error::Corrupt`].
    pub fn begin<B: Blocks>(blocks: &B, device_blocks: u64, recovered: &Recovered) -> Result<Mount, Stop> {
        let volume = Volume::open(blocks, device_blocks)?;
        let super_block = need(blocks, 0)?;
        let settings = Settings::decode(super_block)?;
        let groups = read_groups(&volume, blocks)?;
        let system = System::new(volume.geometry(), &settings, &groups, &recovered.places)?;
        let free_blocks = groups.iter().map(|group| u64::from(group.free_blocks)).sum();
        let free_inodes = groups.iter().map(|group| u64::from(group.free_inodes)).sum();
        let orphans = read_orphans(&volume, blocks, settings.last_orphan)?;
        let first = recovered.places.first().ok_or(Error::corrupt("the size of the journal", 0))?;
        let needs_recovery = volume.geometry().needs_recovery;
        let writer = Writer::begin(recovered, need(blocks, *first)?, super_block, needs_recovery);
        let running = Transaction { number: writer.lasting.wrapping_add(1), ..Transaction::default() };
        Ok(Mount {
            volume,
            settings,
            system,
            writer,
            running,
            wanted: None,
            orphans,
            free_blocks,
            free_inodes,
            is_closing: false,
            is_lost: false,
        })
    }

    /// What can be asked of the volume, with the blocks of [`Mount::view`].
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The blocks as they are now.
    pub fn view<'a, B: Blocks>(&'a self, cache: &'a B) -> View<'a, B> {
        View { mount: self, cache }
    }

    /// Does an operation. Its changes count all together, if it ends well, or not at all.
    /// `operation` is called once; it changes nothing but by its argument, so that it can be done
    /// again.
    ///
    /// # Errors
    /// [`Stop::Need`] and [`Stop::Commit`]; [`Error::ReadOnly`]; [`Error::TooLarge`] if it changes
    /// more than a transaction may have; those of the operation.
    pub fn change<B: Blocks, T>(
        &mut self,
        cache: &B,
        now: Time,
        operation: impl FnOnce(&mut Operation<'_, B>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        if self.is_closing || self.is_lost {
            return Err(Error::ReadOnly.into());
        }
        let mut under_way = Operation::begin(self, cache, now);
        let ended = operation(&mut under_way).and_then(|result| {
            let changes = under_way.into_changes();
            check_room(&self.running, &changes, self.writer.limit())?;
            Ok((result, changes))
        });
        match ended {
            Ok((result, changes)) => {
                self.join(changes);
                Ok(result)
            }
            Err(stop) => {
                if let Stop::Commit(number) = stop {
                    self.wanted = Some(number);
                }
                Err(stop)
            }
        }
    }

    fn join(&mut self, changes: Changes) {
        self.free_blocks = self.free_blocks.saturating_add_signed(changes.free_blocks);
        self.free_inodes = self.free_inodes.saturating_add_signed(changes.free_inodes);
        for &(inode, is_added) in &changes.orphans {
            self.orphans.retain(|other| *other != inode);
            if is_added {
                self.orphans.push(inode);
            }
        }
        self.running.join(changes);
    }

    /// The number of the transaction that has what was changed of this inode so far, if it does
    /// not last yet. It is committed as soon as can be.
    pub fn sync(&mut self, inode: u32) -> Option<u32> {
        let in_commit =
            self.writer.committing.as_ref().filter(|transaction| transaction.changes.inodes.contains(&inode));
        if self.running.changes.inodes.contains(&inode) {
            self.wanted = Some(self.running.number);
            return self.wanted;
        }
        in_commit.map(|transaction| transaction.number)
    }

    /// The same for all that was changed so far.
    pub fn sync_all(&mut self) -> Option<u32> {
        if !self.running.changes.is_empty() {
            self.wanted = Some(self.running.number);
            return self.wanted;
        }
        self.writer.committing.as_ref().map(|transaction| transaction.number)
    }

    /// Whether transaction `number` lasts.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]: it never will, for the journal could not be written.
    pub fn lasts(&self, number: u32) -> Result<bool, Error> {
        if !is_newer(number, self.writer.lasting) {
            return Ok(true);
        }
        if self.is_lost { Err(Error::ReadOnly) } else { Ok(false) }
    }

    /// The number of the transaction that has what is changed next.
    pub fn running(&self) -> u32 {
        self.running.number
    }

    /// What has to be written next; `None` while a batch is under way, or if nothing has to be.
    pub fn next(&mut self, now: Time) -> Option<Batch> {
        if self.is_lost {
            return None;
        }
        let is_wanted = self.wanted.is_some_and(|wanted| !is_newer(self.running.number, wanted));
        let is_full = self.running.log_blocks(&Changes::default()) > self.writer.limit() / 2;
        let end = End { free_blocks: self.free_blocks, free_inodes: self.free_inodes as u32, now };
        let commits = is_wanted || is_full || self.is_closing;
        self.writer.next(&mut self.running, commits, self.is_closing.then_some(end), now)
    }

    /// The batch of [`Mount::next`] was written and flushed as it says. `is_written` is false if
    /// that failed: then nothing is changed any more, and transactions that do not last are lost.
    /// If only bytes of files could not be written, tell their fsync, and say true here.
    pub fn done(&mut self, is_written: bool) {
        if is_written {
            self.writer.done();
        } else {
            self.is_lost = true;
        }
    }

    /// Blocks of files that are newer than the disk, and of metadata that are newer than the log: a
    /// commit writes them.
    pub fn dirty_blocks(&self) -> usize {
        self.uncommitted().map(|transaction| transaction.changes.data.len() + transaction.changes.blocks.len()).sum()
    }

    /// Blocks of metadata that only the log has.
    pub fn log_blocks(&self) -> usize {
        self.writer.committed.len()
    }

    /// Has blocks that only the log has written to their places, so that they can be let go.
    pub fn write_places(&mut self) {
        self.writer.wants_places = true;
    }

    /// Free blocks and free inodes.
    pub fn free(&self) -> (u64, u64) {
        (self.free_blocks, self.free_inodes)
    }

    /// Inodes that have no name, or are being cut off, and are to be reclaimed when nobody has them
    /// open. After [`Mount::begin`] those that were left behind.
    pub fn orphans(&self) -> &[u32] {
        &self.orphans
    }

    /// Ends: nothing is changed any more, and [`Mount::next`] gives all that is left to be written.
    pub fn close(&mut self) {
        self.is_closing = true;
    }

    /// Inodes with changes that do not last; one may be there twice.
    pub fn uncommitted_inodes(&self) -> Vec<u32> {
        self.uncommitted().flat_map(|transaction| &transaction.changes.inodes).copied().collect()
    }

    /// Whether the journal could not be written: nothing is changed any more.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether all is written and the volume says so.
    pub fn is_closed(&self) -> bool {
        self.writer.is_closed()
    }

    /// The transactions that do not last, the newest last.
    pub(crate) fn uncommitted(&self) -> impl Iterator<Item = &Transaction> {
        self.writer.committing.iter().chain([&self.running])
    }

    /// The blocks that are no file's.
    pub(crate) fn system(&self) -> &System {
        &self.system
    }
}

fn read_groups<B: Blocks>(volume: &Volume, blocks: &B) -> Result<Vec<Group>, Stop> {
    (0..volume.geometry().groups).map(|number| volume.group(blocks, number)).collect()
}

/// The orphan list, the newest last. Each inode says which one is behind it.
fn read_orphans<B: Blocks>(volume: &Volume, blocks: &B, first: u32) -> Result<Vec<u32>, Stop> {
    let (mut orphans, mut seen, mut next) = (Vec::new(), BTreeSet::new(), first);
    while next != 0 {
        if !seen.insert(next) {
            return Err(Error::corrupt("the orphan list", u64::from(next)));
        }
        orphans.push(next);
        next = match volume.inode(blocks, next) {
            Ok(inode) => inode.delete_time,
            Err(Stop::Failed(Error::NotFound)) => return Err(Error::corrupt("the orphan list", u64::from(next))),
            Err(stop) => return Err(stop),
        };
    }
    orphans.reverse();
    Ok(orphans)
}

#[cfg(test)]
mod tests {
    use core::ops::Range;

    use super::*;
    use crate::Kind;
    use crate::ROOT;
    use crate::journal::Flush;
    use crate::testing::{Memory, NOW, change, new};

    /// Blocks that are nobody's, on a volume of 2048. Its journal has a ring of 1023 blocks, and so
    /// a transaction at most 255 of the log.
    const FREE: u64 = 1400;

    fn begin() -> (Mount, Memory) {
        let memory = Memory::formatted(2048);
        (memory.mount(), memory)
    }

    /// Changes blocks of metadata, counted from the first free one.
    fn touch(mount: &mut Mount, memory: &Memory, blocks: Range<u64>) -> Result<(), Stop> {
        change(mount, memory, |operation| {
            for block in blocks {
                operation.blocks.fresh(FREE + block);
            }
            Ok(())
        })
    }

    /// The same in a transaction of its own, of which nothing but the log is written.
    fn commit(mount: &mut Mount, memory: &mut Memory, blocks: Range<u64>) {
        touch(mount, memory, blocks).unwrap();
        let number = mount.sync_all().unwrap();
        while mount.lasts(number) == Ok(false) {
            let batch = mount.next(NOW).expect("the transaction is being written");
            for put in &batch.writes {
                *memory.edit(put.block) = *put.bytes;
            }
            mount.done(true);
        }
    }

    #[test]
    fn changes_that_take_more_than_half_of_a_transaction_are_committed_unasked() {
        let (mut mount, memory) = begin();
        // With a descriptor and a commit, 125 blocks take 127 of 255.
        touch(&mut mount, &memory, 0..1).unwrap();
        assert!(mount.next(NOW).is_none());
        touch(&mut mount, &memory, 1..125).unwrap();
        assert!(mount.next(NOW).is_none());
        touch(&mut mount, &memory, 125..126).unwrap();
        assert!(mount.next(NOW).is_some());
    }

    #[test]
    fn an_operation_changes_no_more_than_a_transaction_has_and_waits_if_another_is_there() {
        let (mut mount, memory) = begin();
        assert_eq!(touch(&mut mount, &memory, 0..254), Err(Error::TooLarge.into()), "it takes two descriptors");
        assert_eq!(touch(&mut mount, &memory, 0..1), Ok(()));
        let running = mount.running();
        assert_eq!(touch(&mut mount, &memory, 1..254), Err(Stop::Commit(running)));
        assert_eq!(mount.dirty_blocks(), 1, "nothing else has changed");
        assert_eq!(touch(&mut mount, &memory, 0..253), Ok(()), "one of them is there already");
    }

    #[test]
    fn blocks_go_to_their_places_unasked_when_the_log_is_more_than_half_full() {
        let (mut mount, mut memory) = begin();
        // Each has a descriptor and a commit: 202, 202 and 107 blocks, half of 1023 less one half.
        for blocks in [0..200, 200..400, 400..505] {
            commit(&mut mount, &mut memory, blocks);
        }
        assert!(mount.next(NOW).is_none());
        assert_eq!(mount.log_blocks(), 505);
        commit(&mut mount, &mut memory, 505..506);
        let batches = memory.write_now(&mut mount);
        let counts: Vec<_> = batches.iter().map(|batch| (batch.writes.len(), batch.flush)).collect();
        assert_eq!(counts, [(256, Flush::No), (250, Flush::All), (1, Flush::Own)], "and the log's tail");
        assert_eq!(mount.log_blocks(), 0);
    }

    #[test]
    fn a_log_without_room_gets_some_and_a_transaction_goes_on() {
        let (mut mount, mut memory) = begin();
        for turn in 0..20 {
            commit(&mut mount, &mut memory, 0..200 + turn);
        }
        let last = mount.running();
        mount.close();
        memory.write_now(&mut mount);
        assert!(mount.is_closed());
        assert_eq!((mount.lasts(last - 1), mount.lasts(last)), (Ok(true), Ok(false)));
        assert_eq!(memory.recover().unwrap().writes, []);
    }

    #[test]
    fn what_is_dirty_is_counted_until_it_lasts_and_what_the_log_has_until_it_is_in_its_place() {
        let (mut mount, mut memory) = begin();
        assert_eq!((mount.dirty_blocks(), mount.log_blocks()), (0, 0));
        let number =
            change(&mut mount, &memory, |operation| operation.create(ROOT, b"file", &new(Kind::File))).unwrap();
        change(&mut mount, &memory, |operation| operation.write(number, 0, &[7; 3 * 4096])).unwrap();
        let dirty = mount.dirty_blocks();
        mount.sync_all();
        assert!(mount.next(NOW).is_some(), "the super block's mark");
        mount.done(true);
        mount.next(NOW).expect("the log's beginning");
        mount.done(true);
        // The file's bytes, a descriptor, and the blocks of metadata.
        let log = mount.next(NOW).unwrap();
        assert_eq!(log.writes.iter().filter(|put| put.inode == number).count(), 3);
        let metadata = log.writes.len() - 3 - 1;
        assert_eq!((dirty, mount.dirty_blocks(), mount.log_blocks()), (3 + metadata, 3 + metadata, 0));
        // What is changed meanwhile counts besides.
        touch(&mut mount, &memory, 500..510).unwrap();
        assert_eq!(mount.dirty_blocks(), 3 + metadata + 10);
        mount.done(true);
        mount.next(NOW).expect("the commit");
        mount.done(true);
        assert_eq!((mount.dirty_blocks(), mount.log_blocks()), (10, metadata));
        mount.write_places();
        memory.write_now(&mut mount);
        assert_eq!((mount.dirty_blocks(), mount.log_blocks()), (10, 0));
    }

    #[test]
    fn a_mount_whose_journal_cannot_be_written_is_lost() {
        let (mut mount, memory) = begin();
        touch(&mut mount, &memory, 0..1).unwrap();
        let number = mount.sync_all().unwrap();
        assert!(mount.next(NOW).is_some() && !mount.is_lost());
        mount.done(false);
        assert!(mount.is_lost() && mount.next(NOW).is_none());
        assert_eq!(mount.lasts(number), Err(Error::ReadOnly));
        assert_eq!(touch(&mut mount, &memory, 1..2), Err(Error::ReadOnly.into()));
    }
}
