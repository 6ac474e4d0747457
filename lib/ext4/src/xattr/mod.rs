//! Extended attributes: names with values, in the room behind an inode, and in one block when that
//! is full.
//!
//! Names begin with `user.`, `trusted.` or `security.`; who may have which is not known here.
//! Others that are there stay, and are not shown. To change one, all of its area are read and
//! written again.

mod block;
mod format;

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::error::{Error, Stop};
use crate::inode::{BASE_BYTES, CHANGED, Inode};
use crate::operation::Operation;
use crate::super_block::GROUP_BLOCKS;
use crate::volume::Volume;
use crate::{Blocks, need};
pub(crate) use block::free_block;
use format::{Attribute, MAGIC, Name, Wrong};

/// Where entries begin behind an inode. Where values are is counted from there too.
const ENTRIES_AT: usize = 4;

/// What setting an attribute does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattr {
    /// It makes it, or gives it another value.
    Any,
    /// It makes it: [`Error::Exists`] if it is there.
    Create,
    /// It gives it another value: [`Error::NoXattr`] if it is not there.
    Replace,
}

/// The attributes of an inode, by where they are.
struct Areas {
    /// Behind the inode.
    inner: Vec<Attribute>,
    /// In the block, in order.
    outer: Vec<Attribute>,
}

fn wrong(inode: &Inode, what: Wrong) -> Stop {
    match what {
        Wrong::Refused(refusal) => Error::Refused(refusal).into(),
        Wrong::Corrupt => Error::corrupt("extended attributes", u64::from(inode.number)),
    }
}

/// Where the room behind an inode begins. The inode was decoded, so that is inside of it.
fn inner_at(inode: &[u8]) -> usize {
    const EXTRA_AT: usize = 128;
    BASE_BYTES + usize::from(u16::from_le_bytes([inode[EXTRA_AT], inode[EXTRA_AT + 1]]))
}

impl Volume {
    fn xattr_areas<B: Blocks>(&self, blocks: &B, inode: &Inode) -> Result<Areas, Stop> {
        let (table, at) = self.inode_place(blocks, inode.number)?;
        let bytes = &need(blocks, table)?[at..at + usize::from(self.geometry().inode_bytes)];
        let area = bytes.get(inner_at(bytes)..).ok_or(wrong(inode, Wrong::Corrupt))?;
        let inner = match area.starts_with(&MAGIC.to_le_bytes()) {
            true => format::decode(area, ENTRIES_AT, ENTRIES_AT).map_err(|what| wrong(inode, what))?,
            false => Vec::new(),
        };
        Ok(Areas { inner, outer: block::read(self.geometry(), blocks, inode)? })
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::NoXattr`]; [`Error::NotSupported`] and [`Error::InvalidName`] for
    /// names that none has; [`Error::Refused`] if its value is in an inode; [`Error::Corrupt`].
    pub fn xattr<B: Blocks>(&self, blocks: &B, inode: &Inode, name: &[u8]) -> Result<Box<[u8]>, Stop> {
        let name = Name::decode(name)?;
        let Areas { inner, outer } = self.xattr_areas(blocks, inode)?;
        let found = inner.into_iter().chain(outer).find(|attribute| attribute.name == name);
        Ok(found.ok_or(Error::NoXattr)?.value)
    }

    /// The names of all extended attributes of an inode.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::Refused`]; [`Error::Corrupt`].
    pub fn xattrs<B: Blocks>(&self, blocks: &B, inode: &Inode) -> Result<Vec<Box<[u8]>>, Stop> {
        let Areas { inner, outer } = self.xattr_areas(blocks, inode)?;
        Ok(inner.iter().chain(&outer).filter_map(|attribute| attribute.name.whole()).collect())
    }
}

impl<B: Blocks> Operation<'_, B> {
    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`Stop::Need`], [`Stop::Commit`]; [`Error::Exists`] and [`Error::NoXattr`] as `how` says;
    /// [`Error::NoSpace`] if all attributes of the inode would not fit into it and one block, or
    /// none is free; those of [`Volume::xattr`].
    pub fn set_xattr(&mut self, number: u32, name: &[u8], value: &[u8], how: SetXattr) -> Result<(), Stop> {
        let name = Name::decode(name)?;
        if !self.mount.settings.has_xattrs {
            return Err(Error::NotSupported.into());
        }
        let inode = self.inode(number)?;
        let mut areas = self.volume().xattr_areas(self, &inode)?;
        let before = areas.remove(&name);
        match (how, before) {
            (SetXattr::Create, Some(_)) => return Err(Error::Exists.into()),
            (SetXattr::Replace, None) => return Err(Error::NoXattr.into()),
            _ => {}
        }
        let is_outer = areas.add(Attribute { name, value: value.into() }, self.inner_bytes(&inode)?)?;
        self.put_xattrs(inode, &areas, is_outer || before == Some(true))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Stop::Need`], [`Stop::Commit`]; those of [`Volume::xattr`].
    pub fn remove_xattr(&mut self, number: u32, name: &[u8]) -> Result<(), Stop> {
        let name = Name::decode(name)?;
        let inode = self.inode(number)?;
        let mut areas = self.volume().xattr_areas(self, &inode)?;
        let was_outer = areas.remove(&name).ok_or(Error::NoXattr)?;
        self.put_xattrs(inode, &areas, was_outer)
    }

    /// Bytes of the room behind an inode.
    fn inner_bytes(&self, inode: &Inode) -> Result<usize, Stop> {
        let (table, at) = self.volume().inode_place(self, inode.number)?;
        let bytes = usize::from(self.volume().geometry().inode_bytes);
        Ok(bytes - inner_at(&need(self, table)?[at..at + bytes]))
    }

    /// Writes the attributes of an inode, those of its block only if they changed.
    fn put_xattrs(&mut self, mut inode: Inode, areas: &Areas, is_outer_changed: bool) -> Result<(), Stop> {
        if is_outer_changed && areas.outer.is_empty() {
            free_block(self, &mut inode)?;
        } else if is_outer_changed {
            let group = (inode.number - 1) / self.volume().geometry().inodes_per_group;
            block::write(self, &mut inode, u64::from(group) * GROUP_BLOCKS, &areas.outer)?;
        }
        let (table, at) = self.volume().inode_place(self, inode.number)?;
        let bytes = usize::from(self.volume().geometry().inode_bytes);
        let bytes = &mut self.blocks.edit(table)?[at..at + bytes];
        let first = inner_at(bytes);
        let area = &mut bytes[first..];
        if areas.inner.is_empty() {
            area.fill(0);
        } else {
            area[..ENTRIES_AT].copy_from_slice(&MAGIC.to_le_bytes());
            format::encode(&areas.inner, area, ENTRIES_AT, ENTRIES_AT, false);
        }
        inode.times[CHANGED] = self.now;
        self.put_inode(&inode)
    }
}

impl Areas {
    /// Takes an attribute out. Returns whether it was in the block, if it was there.
    fn remove(&mut self, name: &Name) -> Option<bool> {
        for (area, is_outer) in [(&mut self.inner, false), (&mut self.outer, true)] {
            if let Some(at) = area.iter().position(|attribute| attribute.name == *name) {
                area.remove(at);
                return Some(is_outer);
            }
        }
        None
    }

    /// Adds one that is not there, if it has room. Returns whether it came into the block.
    fn add(&mut self, new: Attribute, inner_bytes: usize) -> Result<bool, Error> {
        self.inner.push(new);
        if format::fit(&self.inner, inner_bytes, ENTRIES_AT) {
            return Ok(false);
        }
        self.outer.extend(self.inner.pop());
        self.outer.sort_by(|a, b| a.name.cmp(&b.name));
        if block::fit(&self.outer) { Ok(true) } else { Err(Error::NoSpace) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Memory, change};

    #[test]
    fn the_room_behind_an_inode_begins_behind_all_that_it_knows() {
        let mut inode = [0xFF; 1024];
        for (extra, at) in [(32u16, 160), (4, 132), (0x0204, 644)] {
            inode[128..130].copy_from_slice(&extra.to_le_bytes());
            assert_eq!(inner_at(&inode), at);
        }
    }

    #[test]
    fn a_block_of_attributes_is_in_the_group_of_its_inode() {
        let mut memory = Memory::formatted(2 * GROUP_BLOCKS);
        let last = memory.volume().geometry().inodes_per_group;
        for (number, group) in [(12, 0), (last - 1, 0), (last, 0), (last + 1, 1), (2 * last, 1)] {
            memory.make_file(number);
            let mut mount = memory.mount();
            let set = |operation: &mut Operation<'_, Memory>| {
                operation.set_xattr(number, b"user.large", &[1; 1000], SetXattr::Any)?;
                operation.inode(number)
            };
            let inode = change(&mut mount, &memory, set).unwrap();
            assert_eq!(inode.attributes / GROUP_BLOCKS, group, "inode {number}");
            assert!(!mount.system().has(inode.attributes..inode.attributes + 1));
        }
    }
}
