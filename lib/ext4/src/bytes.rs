//! Writing bytes of files. They do not go through the log: they are written to their places before
//! the transaction is committed that gives the file its blocks.

use alloc::sync::Arc;

use crate::allocate::Run;
use crate::error::{Error, Stop};
use crate::extent::{self, Place};
use crate::inode::{CHANGED, Inode, Kind, MODIFIED, SIZE_MAX};
use crate::operation::Operation;
use crate::orphans::Progress;
use crate::super_block::GROUP_BLOCKS;
use crate::transaction::copy_of;
use crate::{BLOCK_BYTES, Blocks, ZEROS, need};

/// Most blocks that one operation writes.
const WRITE_MAX: u64 = 256;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// Most bytes of a file that is written: Linux uses no block with the number 2^32 - 1.
const END: u64 = SIZE_MAX - BLOCK;

impl<B: Blocks> Operation<'_, B> {
    fn file(&self, number: u32) -> Result<Inode, Stop> {
        let inode = self.inode(number)?;
        match inode.kind {
            Kind::File => Ok(inode),
            Kind::Directory => Err(Error::IsDirectory.into()),
            _ => Err(Error::Invalid.into()),
        }
    }

    /// Writes bytes of a file from byte `offset` on. Returns how many, at least one: an operation
    /// writes at most 1 MiB, and what there is room for.
    ///
    /// # Errors
    /// [`Stop::Need`], [`Stop::Commit`]; [`Error::IsDirectory`]; [`Error::Invalid`] if it has no
    /// bytes; [`Error::TooLarge`] behind 16 TiB; [`Error::BeingCut`]; [`Error::NoSpace`];
    /// [`Error::Corrupt`].
    pub fn write(&mut self, number: u32, offset: u64, bytes: &[u8]) -> Result<usize, Stop> {
        let mut inode = self.file(number)?;
        self.expect_whole(&inode)?;
        let room = END.checked_sub(offset).filter(|room| *room > 0).ok_or(Error::TooLarge)?;
        let room = room.min(WRITE_MAX * BLOCK - offset % BLOCK);
        let bytes = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        if offset > inode.size {
            self.zero_tail(&inode, inode.size)?;
        }
        let mut written = 0;
        while written < bytes.len() {
            match self.write_run(&mut inode, offset + written as u64, &bytes[written..], written > 0)? {
                Some(count) => written += count,
                // What was written so far counts: the caller sees the cause when it goes on.
                None => break,
            }
        }
        inode.size = inode.size.max(offset + written as u64);
        self.put_changed(&mut inode)?;
        Ok(written)
    }

    fn expect_whole(&self, inode: &Inode) -> Result<(), Stop> {
        if self.is_being_cut(inode)? { Err(Error::BeingCut.into()) } else { Ok(()) }
    }

    /// Writes an inode whose bytes were changed.
    fn put_changed(&mut self, inode: &mut Inode) -> Result<(), Stop> {
        inode.times[MODIFIED] = self.now;
        inode.times[CHANGED] = self.now;
        self.put_inode(inode)
    }

    /// Writes into blocks that follow each other. Returns how many bytes; `None` if there is no
    /// block for them and the caller `can_end`. Without a block for a node of extents it fails: by
    /// then something was changed.
    fn write_run(
        &mut self,
        inode: &mut Inode,
        offset: u64,
        bytes: &[u8],
        can_end: bool,
    ) -> Result<Option<usize>, Stop> {
        let logical = (offset / BLOCK) as u32;
        let wanted = (offset % BLOCK + bytes.len() as u64).div_ceil(BLOCK);
        let stretch = self.volume().find(self, inode, logical)?;
        let most = wanted.min(stretch.blocks) as u32;
        let (run, is_new) = match stretch.place {
            Place::Written(first) => (Run { first, blocks: most }, false),
            Place::Unwritten(first) => {
                extent::mark_written(self, inode, logical, most)?;
                (Run { first, blocks: most }, true)
            }
            Place::Hole => {
                let run = match self.allocate(self.goal(inode, logical)?, most) {
                    Err(Stop::Commit(_) | Stop::Failed(Error::NoSpace)) if can_end => return Ok(None),
                    run => run?,
                };
                extent::insert(self, inode, logical, run)?;
                (run, true)
            }
        };
        self.put_run(inode, run, is_new, offset, bytes).map(Some)
    }

    /// Where block `logical` of a file would best be.
    pub(crate) fn goal(&self, inode: &Inode, logical: u32) -> Result<u64, Stop> {
        if let Some(before) = logical.checked_sub(1)
            && let Place::Written(block) = self.volume().find(self, inode, before)?.place
        {
            return Ok(block + 1);
        }
        let group = (inode.number - 1) / self.volume().geometry().inodes_per_group;
        Ok(u64::from(group) * GROUP_BLOCKS)
    }

    /// Puts bytes into the blocks of `run`, of which the first has byte `offset`.
    fn put_run(&mut self, inode: &Inode, run: Run, is_new: bool, offset: u64, bytes: &[u8]) -> Result<usize, Stop> {
        if self.mount.system().has(run.first..run.first + u64::from(run.blocks)) {
            return Err(Error::corrupt("a file with blocks that are no file's", u64::from(inode.number)));
        }
        let mut done = 0;
        for block in run.first..run.first + u64::from(run.blocks) {
            let at = ((offset + done as u64) % BLOCK) as usize;
            let count = (BLOCK_BYTES - at).min(bytes.len() - done);
            let part = &bytes[done..done + count];
            let whole = match part.try_into() {
                Ok(whole) => copy_of(whole),
                Err(_) => {
                    let mut whole = copy_of(if is_new { &ZEROS } else { need(self, block)? });
                    Arc::make_mut(&mut whole)[at..at + count].copy_from_slice(part);
                    whole
                }
            };
            self.blocks.put_data(block, inode.number, whole);
            done += count;
        }
        Ok(done)
    }

    /// Fills with zeros what is behind byte `size` in its block.
    fn zero_tail(&mut self, inode: &Inode, size: u64) -> Result<(), Stop> {
        let at = (size % BLOCK) as usize;
        if at == 0 {
            return Ok(());
        }
        // The size of a file was checked: its blocks have numbers of 32 bits.
        if let Place::Written(block) = self.volume().find(self, inode, (size / BLOCK) as u32)?.place {
            let run = Run { first: block, blocks: 1 };
            self.put_run(inode, run, false, size, &[0; BLOCK_BYTES][at..])?;
        }
        Ok(())
    }

    /// Sets a file's size: cuts off what is behind it, or adds zeros.
    ///
    /// # Errors
    /// As for [`Operation::write`].
    pub fn truncate(&mut self, number: u32, size: u64) -> Result<Progress, Stop> {
        let mut inode = self.file(number)?;
        if size > END {
            return Err(Error::TooLarge.into());
        }
        if size > inode.size {
            self.expect_whole(&inode)?;
        }
        self.zero_tail(&inode, size.min(inode.size))?;
        // Nothing is behind a larger size; behind the same may be what was not cut off yet.
        let is_cut = size > inode.size || self.cut(&mut inode, size)?;
        inode.size = size;
        match (is_cut, self.is_orphan(number)) {
            (false, false) => self.add_orphan(&mut inode)?,
            (true, true) if inode.links > 0 => self.remove_orphan(&mut inode)?,
            _ => {}
        }
        self.put_changed(&mut inode)?;
        Ok(if is_cut { Progress::Done } else { Progress::More })
    }
}

#[cfg(test)]
mod tests;
