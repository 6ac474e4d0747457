//! A volume that was recognised, and what can be asked of it.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use crate::directory::{self, Content, Entry};
use crate::error::{Error, Stop};
use crate::extent::{self, Place, Stretch};
use crate::group::{self, Group};
use crate::inode::{Inode, Kind};
use crate::known::{Found, Part, find};
use crate::super_block::Geometry;
use crate::{BLOCK_BYTES, Block, Blocks, ZEROS, hash, index, need};

/// A volume. It keeps nothing but its geometry; all else is in blocks.
#[derive(Clone, Debug)]
pub struct Volume {
    geometry: Geometry,
}

/// The way through an index to a block of entries: of each node its block in the directory, and
/// which of its entries is taken.
pub(crate) type Path = Vec<(u32, usize)>;

impl Volume {
    /// Recognises the volume on a device of `device_blocks` blocks of 4 KiB.
    ///
    /// # Errors
    /// [`Stop::Need`] of block 0; [`Error::NotExt4`]; [`Error::Refused`] with what is not
    /// supported, by name; [`Error::Corrupt`].
    pub fn open<B: Blocks>(blocks: &B, device_blocks: u64) -> Result<Volume, Stop> {
        let geometry = Geometry::decode(need(blocks, 0)?, device_blocks)?;
        Ok(Volume { geometry })
    }

    /// The volume's numbers.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The inode `number`.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::NotFound`] if the number is none of the volume's, or the inode is
    /// free; [`Error::Refused`] for what its flags say; [`Error::Corrupt`].
    pub fn inode<B: Blocks>(&self, blocks: &B, number: u32) -> Result<Inode, Stop> {
        let (block, at) = self.inode_place(blocks, number)?;
        let bytes = usize::from(self.geometry.inode_bytes);
        let check = |block: &Block| Inode::check_sum(&self.geometry, number, &block[at..at + bytes]);
        let block = find(blocks, block)?.once(Part::of(at, bytes), check)?;
        Inode::decode(&self.geometry, number, &block[at..at + bytes])
    }

    /// Where inode `number` is: its block, and the first byte in that.
    pub(crate) fn inode_place<B: Blocks>(&self, blocks: &B, number: u32) -> Result<(u64, usize), Stop> {
        let geometry = &self.geometry;
        let index = number.checked_sub(1).filter(|index| *index < geometry.inodes).ok_or(Error::NotFound)?;
        let table = self.group(blocks, index / geometry.inodes_per_group)?.inode_table;
        let at = u64::from(index % geometry.inodes_per_group) * u64::from(geometry.inode_bytes);
        Ok((table + at / BLOCK_BYTES as u64, (at % BLOCK_BYTES as u64) as usize))
    }

    /// The descriptor of group `number`.
    pub(crate) fn group<B: Blocks>(&self, blocks: &B, number: u32) -> Result<Group, Stop> {
        group::decode(&self.geometry, number, find(blocks, group::descriptor_block(number))?)
    }

    /// Free blocks, by what the groups say of themselves.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::Corrupt`].
    pub fn free_blocks<B: Blocks>(&self, blocks: &B) -> Result<u64, Stop> {
        (0..self.geometry.groups)
            .try_fold(0, |free, number| Ok(free + u64::from(self.group(blocks, number)?.free_blocks)))
    }

    /// Where block `logical` of a file, directory or long link is.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::Corrupt`].
    pub fn find<B: Blocks>(&self, blocks: &B, inode: &Inode, logical: u32) -> Result<Stretch, Stop> {
        extent::find(&self.geometry, blocks, inode, logical)
    }

    /// Reads bytes of a file from byte `offset` on, up to the end of the block that it is in.
    /// Returns how many; none at the file's end.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::IsDirectory`]; [`Error::Corrupt`].
    pub fn read<B: Blocks>(&self, blocks: &B, file: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize, Stop> {
        let bytes = self.bytes(blocks, file, offset, buffer.len())?;
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    /// The same where they lie, at most so many.
    ///
    /// # Errors
    /// As for [`Volume::read`].
    pub fn bytes<'a, B: Blocks>(
        &self,
        blocks: &'a B,
        file: &Inode,
        offset: u64,
        most: usize,
    ) -> Result<&'a [u8], Stop> {
        match file.kind {
            Kind::File => {}
            Kind::Directory => return Err(Error::IsDirectory.into()),
            _ => return Ok(&[]),
        }
        let left = file.size.saturating_sub(offset);
        let Ok(logical) = u32::try_from(offset / BLOCK_BYTES as u64) else { return Ok(&[]) };
        let at = (offset % BLOCK_BYTES as u64) as usize;
        let count = most.min(BLOCK_BYTES - at).min(usize::try_from(left).unwrap_or(usize::MAX));
        if count == 0 {
            return Ok(&[]);
        }
        let block = match self.find(blocks, file, logical)?.place {
            Place::Written(block) => need(blocks, block)?,
            Place::Hole | Place::Unwritten(_) => &ZEROS,
        };
        Ok(&block[at..at + count])
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::NotLink`]; [`Error::Corrupt`].
    pub fn target<B: Blocks>(&self, blocks: &B, link: &Inode) -> Result<Box<[u8]>, Stop> {
        if link.kind != Kind::Link {
            return Err(Error::NotLink.into());
        }
        // The size was checked: a short one fits into the map, a long one into a block.
        let size = link.size as usize;
        if link.is_short_link() {
            return Ok(link.map[..size].into());
        }
        let block = self.block_of(blocks, link, 0)?;
        Ok(block[..size].into())
    }

    /// The inode that `name` names in a directory.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::NotDirectory`]; [`Error::InvalidName`]; [`Error::NotFound`];
    /// [`Error::Corrupt`].
    pub fn lookup<B: Blocks>(&self, blocks: &B, directory: &Inode, name: &[u8]) -> Result<u32, Stop> {
        let found = self.search(blocks, directory, name)?;
        found.map(|(_, inode)| inode).ok_or(Error::NotFound.into())
    }

    /// The block of a directory that has `name`, and the inode that it names.
    pub(crate) fn search<B: Blocks>(
        &self,
        blocks: &B,
        directory: &Inode,
        name: &[u8],
    ) -> Result<Option<(u32, u32)>, Stop> {
        expect_directory(directory)?;
        directory::check_name(name)?;
        let levels = match directory.has_index && name != b"." && name != b".." {
            true => index::levels(directory, self.block_of(blocks, directory, 0)?.block)?,
            false => None,
        };
        match levels {
            Some(levels) => self.search_by_index(blocks, directory, name, levels),
            None => self.search_from_beginning(blocks, directory, name),
        }
    }

    /// The entries of a directory from byte `from` on, up to the end of a block; none at the
    /// directory's end. `from` is 0 or an entry's `next`.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::NotDirectory`]; [`Error::Corrupt`].
    pub fn list<B: Blocks>(&self, blocks: &B, directory: &Inode, from: u64) -> Result<Vec<Entry>, Stop> {
        expect_directory(directory)?;
        let mut at = (from % BLOCK_BYTES as u64) as usize;
        for logical in from / BLOCK_BYTES as u64..directory.blocks() {
            // A directory's size was checked: its blocks have numbers of 28 bits.
            let logical = logical as u32;
            let block = self.block_of(blocks, directory, logical)?;
            if let Content::Entries(entries) = directory::content(directory, logical, block)? {
                let found = directory::list(&self.geometry, directory, logical, entries, at)?;
                if !found.is_empty() {
                    return Ok(found);
                }
            }
            at = 0;
        }
        Ok(Vec::new())
    }

    /// Block `logical` of a directory or link: these have no holes.
    pub(crate) fn block_of<'a, B: Blocks>(
        &self,
        blocks: &'a B,
        inode: &Inode,
        logical: u32,
    ) -> Result<Found<'a>, Stop> {
        match self.find(blocks, inode, logical)?.place {
            Place::Written(block) if u64::from(logical) < inode.blocks() => find(blocks, block),
            _ => Err(directory::corrupt(inode, "a hole in a directory or link")),
        }
    }

    fn search_from_beginning<B: Blocks>(
        &self,
        blocks: &B,
        directory: &Inode,
        name: &[u8],
    ) -> Result<Option<(u32, u32)>, Stop> {
        for logical in 0..directory.blocks() as u32 {
            let block = self.block_of(blocks, directory, logical)?;
            if let Content::Entries(entries) = directory::content(directory, logical, block)?
                && let Some(inode) = directory::search(&self.geometry, directory, entries, name)?
            {
                return Ok(Some((logical, inode)));
            }
        }
        Ok(None)
    }

    fn search_by_index<B: Blocks>(
        &self,
        blocks: &B,
        directory: &Inode,
        name: &[u8],
        levels: usize,
    ) -> Result<Option<(u32, u32)>, Stop> {
        let geometry = &self.geometry;
        let hash = self.hash(name);
        let mut path = Path::with_capacity(index::LEVELS_MAX);
        let mut logical = self.descend(blocks, directory, &mut path, levels, |node| node.find(hash))?;
        // Names of one hash may go on in the next block, at most through all of the directory.
        for _ in 0..directory.blocks() {
            let block = self.block_of(blocks, directory, logical)?;
            let Content::Entries(entries) = directory::content(directory, logical, block)? else {
                return Err(directory::corrupt(directory, "an index that leads to itself"));
            };
            if let Some(inode) = directory::search(geometry, directory, entries, name)? {
                return Ok(Some((logical, inode)));
            }
            match self.next(blocks, directory, &mut path, levels, hash)? {
                ControlFlow::Continue(next) => logical = next,
                ControlFlow::Break(()) => return Ok(None),
            }
        }
        Err(directory::corrupt(directory, "an index that leads to itself"))
    }

    /// The hash of a name, by which the index of a directory is in order.
    pub fn hash(&self, name: &[u8]) -> u32 {
        hash::half_md4(name, self.geometry.hash_seed, self.geometry.is_hash_unsigned)
    }

    /// Goes on from `path` down to a block of entries, in each node by the entry that `choose`
    /// gives.
    pub(crate) fn descend<B: Blocks>(
        &self,
        blocks: &B,
        directory: &Inode,
        path: &mut Path,
        levels: usize,
        choose: impl Fn(&index::Node<'_>) -> usize,
    ) -> Result<u32, Stop> {
        loop {
            let logical = match path.last() {
                None => 0,
                Some(&(logical, at)) => self.branch(blocks, directory, logical, at)?.block,
            };
            if path.len() > levels {
                return Ok(logical);
            }
            if !path.is_empty() && logical == 0 {
                return Err(directory::corrupt(directory, "an index that leads to its root"));
            }
            path.push((logical, choose(&self.node(blocks, directory, logical)?)));
        }
    }

    /// The next block of entries, if names of `hash` go on in it.
    fn next<B: Blocks>(
        &self,
        blocks: &B,
        directory: &Inode,
        path: &mut Path,
        levels: usize,
        hash: u32,
    ) -> Result<ControlFlow<(), u32>, Stop> {
        while let Some((logical, at)) = path.pop() {
            if at + 1 < self.node(blocks, directory, logical)?.count() {
                if self.branch(blocks, directory, logical, at + 1)?.hash != hash | 1 {
                    return Ok(ControlFlow::Break(()));
                }
                path.push((logical, at + 1));
                return self.descend(blocks, directory, path, levels, |_| 0).map(ControlFlow::Continue);
            }
        }
        Ok(ControlFlow::Break(()))
    }

    /// The node in block `logical` of a directory; 0 is the root.
    pub(crate) fn node<'a, B: Blocks>(
        &self,
        blocks: &'a B,
        directory: &Inode,
        logical: u32,
    ) -> Result<index::Node<'a>, Stop> {
        let block = self.block_of(blocks, directory, logical)?;
        if logical != 0 && !index::is_node(&block) {
            return Err(directory::corrupt(directory, "a node of an index"));
        }
        let at = if logical == 0 { index::ROOT_AT } else { index::NODE_AT };
        let check = |block| index::check_sum(directory, block, at);
        index::node(directory, block.once(Part::whole(directory.seed().0), check)?, at)
    }

    fn branch<B: Blocks>(&self, blocks: &B, directory: &Inode, logical: u32, at: usize) -> Result<index::Branch, Stop> {
        let branch = self.node(blocks, directory, logical)?.branch(at);
        branch.ok_or(directory::corrupt(directory, "an entry of an index"))
    }
}

pub(crate) fn expect_directory(inode: &Inode) -> Result<(), Error> {
    if inode.kind == Kind::Directory { Ok(()) } else { Err(Error::NotDirectory) }
}
