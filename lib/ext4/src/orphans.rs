//! Inodes without a name, and files that are being cut off: a list in the super block, so that what
//! a cut leaves behind is found. Each inode on it names the next one, the newest is the first.

use alloc::vec::Vec;

use crate::error::{Error, Stop};
use crate::extent;
use crate::inode::{CHANGED, Inode, Kind};
use crate::operation::Operation;
use crate::super_block::{self, Change, Settings};
use crate::{BLOCK_BYTES, Blocks, need, xattr};

/// Extents that one operation cuts off: each may lie in two groups, and the transaction has to have
/// room for the bitmaps and descriptors of all.
const CUT_MAX: usize = 32;

/// Whether an operation of several steps is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do: call [`Operation::trim`] or [`Operation::reclaim`] again, each time in
    /// an operation of its own. If the machine ends before,
    /// [`Mount::orphans`](crate::Mount::orphans) tells of it.
    More,
    /// It is done.
    Done,
}

/// Whether an inode has blocks by extents.
pub(crate) fn has_extents(inode: &Inode) -> bool {
    match inode.kind {
        Kind::File | Kind::Directory => true,
        Kind::Link => !inode.is_short_link(),
        _ => false,
    }
}

impl<B: Blocks> Operation<'_, B> {
    /// The orphan list as the operation sees it, the newest last.
    fn orphans(&self) -> Vec<u32> {
        let mut orphans: Vec<u32> = self.mount.orphans().into();
        for &(inode, is_added) in &self.blocks.changes.orphans {
            orphans.retain(|other| *other != inode);
            if is_added {
                orphans.push(inode);
            }
        }
        orphans
    }

    pub(crate) fn is_orphan(&self, inode: u32) -> bool {
        let own = self.blocks.changes.orphans.iter().rev().find(|(other, _)| *other == inode);
        own.map_or_else(|| self.mount.orphans().contains(&inode), |(_, is_added)| *is_added)
    }

    /// Puts an inode onto the list; it is to be written behind it.
    pub(crate) fn add_orphan(&mut self, inode: &mut Inode) -> Result<(), Stop> {
        inode.delete_time = Settings::decode(need(self, 0)?)?.last_orphan;
        super_block::change(self.blocks.edit(0)?, &Change::Orphan(inode.number));
        self.blocks.changes.orphans.push((inode.number, true));
        Ok(())
    }

    /// Takes an inode from the list; it is to be written or freed behind it.
    pub(crate) fn remove_orphan(&mut self, inode: &mut Inode) -> Result<(), Stop> {
        let orphans = self.orphans();
        let at = orphans.iter().position(|other| *other == inode.number).ok_or(Error::Invalid)?;
        match orphans.get(at + 1) {
            None => super_block::change(self.blocks.edit(0)?, &Change::Orphan(inode.delete_time)),
            Some(&newer) => {
                let mut newer = self.inode(newer)?;
                newer.delete_time = inode.delete_time;
                self.put_inode(&newer)?;
            }
        }
        inode.delete_time = 0;
        self.blocks.changes.orphans.push((inode.number, false));
        Ok(())
    }

    /// Takes what is behind a file's size from it, as far as one operation can. Returns whether
    /// nothing is left there. The inode is to be written behind it.
    pub(crate) fn cut(&mut self, inode: &mut Inode, size: u64) -> Result<bool, Stop> {
        let from = size.div_ceil(BLOCK_BYTES as u64);
        let is_metadata = inode.kind != Kind::File;
        Ok(!has_extents(inode) || extent::remove_last(self, inode, from, CUT_MAX, is_metadata)?)
    }

    /// Goes on with cutting off what is behind a file's size.
    ///
    /// # Errors
    /// [`Stop::Need`], [`Stop::Commit`]; [`Error::Invalid`] if it is not on the orphan list;
    /// [`Error::Corrupt`].
    pub fn trim(&mut self, number: u32) -> Result<Progress, Stop> {
        if !self.is_orphan(number) {
            return Err(Error::Invalid.into());
        }
        let mut inode = self.inode(number)?;
        let size = inode.size;
        let is_done = self.cut(&mut inode, size)?;
        if is_done && inode.links > 0 {
            self.remove_orphan(&mut inode)?;
        }
        self.put_inode(&inode)?;
        Ok(if is_done { Progress::Done } else { Progress::More })
    }

    /// Goes on with an inode of the orphan list that nobody has open: takes its blocks, and frees
    /// it. One that has a name is trimmed.
    ///
    /// # Errors
    /// As for [`Operation::trim`].
    pub fn reclaim(&mut self, number: u32) -> Result<Progress, Stop> {
        let mut inode = self.inode(number)?;
        if inode.links > 0 || !self.is_orphan(number) {
            return self.trim(number);
        }
        if !self.cut(&mut inode, 0)? {
            self.put_inode(&inode)?;
            return Ok(Progress::More);
        }
        self.remove_orphan(&mut inode)?;
        xattr::free_block(self, &mut inode)?;
        self.free_inode(number, inode.kind)?;
        self.blocks.changes.inodes.insert(number);
        Ok(Progress::Done)
    }

    /// Whether a file is being cut off.
    pub(crate) fn is_being_cut(&self, inode: &Inode) -> Result<bool, Stop> {
        Ok(self.is_orphan(inode.number) && extent::end(self, inode)? > inode.blocks())
    }

    /// One name of an inode is gone. Without another it comes onto the orphan list; the inode is
    /// written.
    pub(crate) fn drop_link(&mut self, inode: &mut Inode, links: u16) -> Result<(), Stop> {
        inode.links = links;
        inode.times[CHANGED] = self.now;
        if links == 0 {
            self.add_orphan(inode)?;
        }
        self.put_inode(inode)
    }
}
