//! Adding entries to directories and taking them away, with their index.
//!
//! A directory of one block has no index; when that is full it gets one, if the volume has them. A
//! full block of entries is split by hash into two, and so is a full node.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::directory::{self, Content, ENTRIES_BYTES, Named, corrupt};
use crate::error::{Error, Refusal, Stop};
use crate::extent::{self, Place};
use crate::index::{self, Branch, LEVELS_MAX, NODE_AT, ROOT_AT};
use crate::inode::{Inode, Kind};
use crate::known::{Part, find};
use crate::operation::Operation;
use crate::transaction::copy_of;
use crate::volume::Path;
use crate::{BLOCK_BYTES, Block, Blocks};

/// Most blocks of a directory that is written: an index of two levels leads to no more.
const BLOCKS_MAX: u64 = 507 * 511;

impl<B: Blocks> Operation<'_, B> {
    /// Where block `logical` of a directory is.
    fn directory_block(&self, directory: &Inode, logical: u32) -> Result<u64, Stop> {
        match self.volume().find(self, directory, logical)?.place {
            Place::Written(block) if !self.mount.system().has(block..block + 1) => Ok(block),
            _ => Err(corrupt(directory, "a block of a directory")),
        }
    }

    /// Changes the entries of block `logical` of a directory; whatever `change` returns, if it is
    /// true the block was changed.
    fn change_entries(
        &mut self,
        directory: &Inode,
        logical: u32,
        change: impl FnOnce(&mut [u8]) -> Result<bool, Stop>,
    ) -> Result<bool, Stop> {
        let number = self.directory_block(directory, logical)?;
        let found = find(self, number)?;
        let Content::Entries(_) = directory::content(directory, logical, found)? else { return Ok(false) };
        let mut copy = copy_of(found.block);
        let block = Arc::make_mut(&mut copy);
        if !change(directory::entries_mut(directory, logical, block))? {
            return Ok(false);
        }
        directory::put_sum(directory, logical, block);
        self.blocks.put_right(number, copy, Part::whole(directory.seed().0));
        Ok(true)
    }

    /// Has an entry in block `logical` name another inode, or none.
    pub(crate) fn change_entry(
        &mut self,
        directory: &Inode,
        logical: u32,
        name: &[u8],
        to: Option<(u32, Kind)>,
    ) -> Result<(), Stop> {
        let geometry = self.volume().geometry();
        let to = to.map(|(inode, kind)| (inode, kind.of_entry()));
        let is_there = self
            .change_entries(directory, logical, |entries| directory::change(geometry, directory, entries, name, to))?;
        if is_there { Ok(()) } else { Err(corrupt(directory, "an entry of a directory")) }
    }

    fn insert_into(&mut self, directory: &Inode, logical: u32, new: &Named) -> Result<bool, Stop> {
        let geometry = self.volume().geometry();
        self.change_entries(directory, logical, |entries| directory::insert(geometry, directory, entries, new))
    }

    /// Adds an entry to a directory, which has none of that name. The directory's inode is to be
    /// written behind it.
    pub(crate) fn add_entry(&mut self, directory: &mut Inode, name: &[u8], to: (u32, Kind)) -> Result<(), Stop> {
        let new = Named { inode: to.0, kind: to.1.of_entry(), name: name.into() };
        if directory.has_index {
            return self.add_by_index(directory, new);
        }
        for logical in 0..directory.blocks() as u32 {
            if self.insert_into(directory, logical, &new)? {
                return Ok(());
            }
        }
        if directory.blocks() == 1 && self.mount.settings.has_index && index::is_known(self.mount.settings.hash) {
            self.make_index(directory)?;
            return self.add_by_index(directory, new);
        }
        let (_, block) = self.append_block(directory)?;
        directory::fill(directory.seed(), self.blocks.fresh(block), &[new]);
        Ok(())
    }

    /// Gives a directory one more block. Returns its number in the directory and in the volume.
    pub(crate) fn append_block(&mut self, directory: &mut Inode) -> Result<(u32, u64), Stop> {
        if directory.blocks() >= BLOCKS_MAX {
            return Err(Error::NoSpace.into());
        }
        let logical = directory.blocks() as u32;
        let run = self.allocate(self.goal(directory, logical)?, 1)?;
        extent::insert(self, directory, logical, run)?;
        directory.size += BLOCK_BYTES as u64;
        Ok((logical, run.first))
    }

    /// Makes the one block of a directory the root of an index, and its entries another block.
    fn make_index(&mut self, directory: &mut Inode) -> Result<(), Stop> {
        let number = self.directory_block(directory, 0)?;
        let Content::Entries(entries) = directory::content(directory, 0, find(self, number)?)? else {
            return Err(corrupt(directory, "a block of a directory"));
        };
        let mut all = directory::all(self.volume().geometry(), directory, entries)?;
        let is_right = all.len() > 1 && *all[0].name == *b"." && *all[1].name == *b"..";
        if !is_right {
            return Err(corrupt(directory, "the first entries of a directory"));
        }
        let rest = all.split_off(2);
        let (logical, block) = self.append_block(directory)?;
        directory::fill(directory.seed(), self.blocks.fresh(block), &rest);
        directory.has_index = true;
        let hash = self.mount.settings.hash;
        let root = self.blocks.fresh(number);
        directory::put(root, 0, all[0].bytes(), &all[0]);
        directory::put(root, all[0].bytes(), BLOCK_BYTES - all[0].bytes(), &all[1]);
        index::begin_root(root, hash);
        index::put_branches(directory, root, ROOT_AT, &[Branch { hash: 0, block: logical }]);
        Ok(())
    }

    fn add_by_index(&mut self, directory: &mut Inode, new: Named) -> Result<(), Stop> {
        let volume = self.volume();
        let root = volume.block_of(self, directory, 0)?;
        let unknown = Error::Refused(Refusal::Has("another hash in a directory"));
        let levels = index::levels(directory, &root)?.ok_or(unknown)?;
        let hash = volume.hash(&new.name);
        let mut path = Path::with_capacity(LEVELS_MAX);
        let logical = volume.descend(self, directory, &mut path, levels, |node| node.find(hash))?;
        if self.insert_into(directory, logical, &new)? {
            return Ok(());
        }
        self.split_entries(directory, path, logical, new)
    }

    /// Splits a full block of entries, with one more, by their hashes.
    fn split_entries(&mut self, directory: &mut Inode, path: Path, logical: u32, new: Named) -> Result<(), Stop> {
        let volume = self.volume();
        let number = self.directory_block(directory, logical)?;
        let Content::Entries(entries) = directory::content(directory, logical, find(self, number)?)? else {
            return Err(corrupt(directory, "an index that leads to itself"));
        };
        let mut all = directory::all(volume.geometry(), directory, entries)?;
        all.push(new);
        let mut all: Vec<(u32, Named)> = all.into_iter().map(|entry| (volume.hash(&entry.name), entry)).collect();
        all.sort_by_key(|(hash, _)| *hash);
        let middle = middle(&all);
        let (before, hash) = match (all.get(middle.wrapping_sub(1)), all.get(middle)) {
            (Some(before), Some(behind)) => (before.0, behind.0),
            _ => return Err(corrupt(directory, "a full block of a directory")),
        };
        // The lowest bit says that names of the hash before it go on there.
        let hash = if before == hash { hash | 1 } else { hash };
        let all: Vec<Named> = all.into_iter().map(|(_, entry)| entry).collect();
        let (behind, block) = self.append_block(directory)?;
        directory::fill(directory.seed(), self.blocks.fresh(number), &all[..middle]);
        directory::fill(directory.seed(), self.blocks.fresh(block), &all[middle..]);
        self.add_branch(directory, path, Branch { hash, block: behind })
    }

    /// The entries of a node of an index, and where they begin in its block.
    fn branches(&self, directory: &Inode, logical: u32) -> Result<(usize, Vec<Branch>), Stop> {
        let at = if logical == 0 { ROOT_AT } else { NODE_AT };
        Ok((at, self.volume().node(self, directory, logical)?.branches()))
    }

    fn edit_node(&mut self, directory: &Inode, logical: u32) -> Result<&mut Block, Stop> {
        let number = self.directory_block(directory, logical)?;
        self.blocks.edit(number)
    }

    /// Adds an entry to the last node of `path`, behind the one that the path has in it.
    fn add_branch(&mut self, directory: &mut Inode, mut path: Path, new: Branch) -> Result<(), Stop> {
        let (logical, taken) = path.pop().ok_or(corrupt(directory, "an index"))?;
        let (at, mut branches) = self.branches(directory, logical)?;
        let is_full = branches.len() >= index::limit(at);
        if is_full && path.is_empty() {
            return self.deepen(directory, &branches, taken, new);
        }
        branches.insert(taken + 1, new);
        let Some(&(root, way)) = path.last().filter(|_| is_full) else {
            index::put_branches(directory, self.edit_node(directory, logical)?, at, &branches);
            return Ok(());
        };
        // Half of the node's entries go into a new one behind it.
        let (root_at, mut ways) = self.branches(directory, root)?;
        if ways.len() >= index::limit(root_at) {
            return Err(Error::NoSpace.into());
        }
        let behind = branches.split_off(branches.len() / 2);
        let (block, _) = self.append_node(directory, &behind)?;
        ways.insert(way + 1, Branch { hash: behind[0].hash, block });
        index::put_branches(directory, self.edit_node(directory, logical)?, at, &branches);
        index::put_branches(directory, self.edit_node(directory, root)?, root_at, &ways);
        Ok(())
    }

    /// Moves the entries of a full root, and one more, into a node below it.
    fn deepen(&mut self, directory: &mut Inode, branches: &[Branch], taken: usize, new: Branch) -> Result<(), Stop> {
        let mut branches = branches.to_vec();
        branches.insert(taken + 1, new);
        let (block, _) = self.append_node(directory, &branches)?;
        let root = self.edit_node(directory, 0)?;
        index::put_levels(root, 1);
        index::put_branches(directory, root, ROOT_AT, &[Branch { hash: 0, block }]);
        Ok(())
    }

    fn append_node(&mut self, directory: &mut Inode, branches: &[Branch]) -> Result<(u32, u64), Stop> {
        let (logical, block) = self.append_block(directory)?;
        let node = self.blocks.fresh(block);
        index::begin_node(node);
        index::put_branches(directory, node, NODE_AT, branches);
        Ok((logical, block))
    }

    /// Whether a directory has only "." and "..".
    pub(crate) fn is_empty(&self, directory: &Inode) -> Result<bool, Stop> {
        let geometry = self.volume().geometry();
        for logical in 0..directory.blocks() as u32 {
            let block = self.volume().block_of(self, directory, logical)?;
            if let Content::Entries(entries) = directory::content(directory, logical, block)?
                && directory::all(geometry, directory, entries)?
                    .iter()
                    .any(|entry| *entry.name != *b"." && *entry.name != *b"..")
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Where entries are split so that both halves have about as many bytes.
fn middle(all: &[(u32, Named)]) -> usize {
    let mut bytes = 0;
    let fits = |(_, entry): &&(u32, Named)| {
        bytes += entry.bytes();
        bytes <= ENTRIES_BYTES / 2
    };
    all.iter().take_while(fits).count()
}

#[cfg(test)]
pub(crate) mod tests;
