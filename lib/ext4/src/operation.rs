//! An operation under way: what it sees, and what it changes.

use crate::error::Stop;
use crate::inode::{ACCESSED, CHANGED, Inode, MODIFIED};
use crate::mount::{Mount, View};
use crate::transaction::{Changes, Overlay};
use crate::volume::Volume;
use crate::{Block, Blocks, Known, Time};

/// An operation under way.
///
/// Each call changes all that it says, or ends with a [`Stop`]; then the whole operation has to end
/// with it.
#[derive(Debug)]
pub struct Operation<'a, B> {
    pub(crate) mount: &'a Mount,
    pub(crate) blocks: Overlay<View<'a, B>>,
    pub(crate) now: Time,
}

impl<B: Blocks> Blocks for Operation<'_, B> {
    fn block(&self, number: u64) -> Option<&Block> {
        self.blocks.block(number)
    }

    fn block_known(&self, number: u64) -> Option<(&Block, Option<&Known>)> {
        self.blocks.block_known(number)
    }
}

impl<'a, B: Blocks> Operation<'a, B> {
    pub(crate) fn begin(mount: &'a Mount, cache: &'a B, now: Time) -> Operation<'a, B> {
        let blocks = Overlay { below: mount.view(cache), changes: Changes::default() };
        Operation { mount, blocks, now }
    }

    pub(crate) fn into_changes(self) -> Changes {
        self.blocks.changes
    }

    /// What can be asked of the volume, with this operation as its blocks.
    pub fn volume(&self) -> &'a Volume {
        self.mount.volume()
    }

    /// An inode as the operation sees it.
    ///
    /// # Errors
    /// Those of [`Volume::inode`].
    pub fn inode(&self, number: u32) -> Result<Inode, Stop> {
        self.volume().inode(self, number)
    }

    /// Writes an inode that was read and changed.
    pub(crate) fn put_inode(&mut self, inode: &Inode) -> Result<(), Stop> {
        let (block, at) = self.volume().inode_place(self, inode.number)?;
        let bytes = usize::from(self.volume().geometry().inode_bytes);
        inode.encode(&mut self.blocks.edit(block)?[at..at + bytes]);
        self.blocks.changes.inodes.insert(inode.number);
        Ok(())
    }

    /// Sets attributes of an inode, and when it was changed.
    ///
    /// # Errors
    /// Those of [`Volume::inode`].
    pub fn set(&mut self, number: u32, attributes: &Attributes) -> Result<(), Stop> {
        let mut inode = self.inode(number)?;
        inode.permissions = attributes.permissions.map_or(inode.permissions, |permissions| permissions & 0o7777);
        inode.user = attributes.user.unwrap_or(inode.user);
        inode.group = attributes.group.unwrap_or(inode.group);
        inode.times[ACCESSED] = attributes.accessed.unwrap_or(inode.times[ACCESSED]);
        inode.times[MODIFIED] = attributes.modified.unwrap_or(inode.times[MODIFIED]);
        inode.times[CHANGED] = self.now;
        self.put_inode(&inode)
    }
}

/// Attributes to be set; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, and the bits for set-user-ID, set-group-ID and sticky.
    pub permissions: Option<u16>,
    /// The owner.
    pub user: Option<u32>,
    /// The owning group.
    pub group: Option<u32>,
    /// When it was last read.
    pub accessed: Option<Time>,
    /// When its bytes were last changed.
    pub modified: Option<Time>,
}
