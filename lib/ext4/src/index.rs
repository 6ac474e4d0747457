//! The index of a large directory: nodes of hashes in order, at most [`LEVELS_MAX`] of them above
//! the blocks of entries.
//!
//! A hash is even; the lowest bit of an entry's says that names of the hash before it go on there.

use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::directory::corrupt;
use crate::error::Stop;
use crate::inode::Inode;
use crate::{BLOCK_BYTES, Block};

/// Nodes on the way to a block of entries.
pub(crate) const LEVELS_MAX: usize = 2;
/// Where entries begin in the root: behind ".", ".." and eight bytes about the index.
pub(crate) const ROOT_AT: usize = 32;
/// Where they begin in other nodes: behind an entry that reaches over the whole block.
pub(crate) const NODE_AT: usize = 8;
/// Bytes of an entry, of the first one's counts, and of the tail with the checksum.
const ENTRY_BYTES: usize = 8;
/// The hashes that are known, besides which a directory is searched from its beginning.
const HALF_MD4: [u8; 2] = [1, 4];
/// Of an entry's block number these bits count.
const BLOCK_MASK: u32 = 0x0FFF_FFFF;

/// What the root says of the index.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Info {
    reserved: U32,
    hash: u8,
    length: u8,
    levels: u8,
    flags: u8,
}

/// The first entry of a node: its hash is that of the node, so counts stand there.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Counts {
    limit: U16,
    count: U16,
    block: U32,
}

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Pair {
    hash: U32,
    block: U32,
}

/// An entry of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    /// The hash that it begins with; 0 for a node's first.
    pub hash: u32,
    /// The block of the directory that it leads to.
    pub block: u32,
}

/// A node that was checked.
pub(crate) struct Node<'a> {
    first: u32,
    rest: &'a [Pair],
}

impl Node<'_> {
    /// Entries, at least 1.
    pub fn count(&self) -> usize {
        1 + self.rest.len()
    }

    /// Entry `at`, of as many as [`Node::count`] says.
    pub fn branch(&self, at: usize) -> Option<Branch> {
        if at == 0 {
            return Some(Branch { hash: 0, block: self.first & BLOCK_MASK });
        }
        let pair = self.rest.get(at - 1)?;
        Some(Branch { hash: pair.hash.get(), block: pair.block.get() & BLOCK_MASK })
    }

    /// All entries.
    pub fn branches(&self) -> Vec<Branch> {
        (0..self.count()).filter_map(|at| self.branch(at)).collect()
    }

    /// The last entry that does not begin behind `hash`.
    pub fn find(&self, hash: u32) -> usize {
        self.rest.partition_point(|pair| pair.hash.get() <= hash)
    }
}

/// Whether a hash by its number in the super block is one that is known.
pub(crate) fn is_known(hash: u8) -> bool {
    HALF_MD4.contains(&hash)
}

/// Entries that the node whose entries begin at `at` can have.
pub(crate) fn limit(at: usize) -> usize {
    // The tail takes as much as an entry.
    (BLOCK_BYTES - at) / ENTRY_BYTES - 1
}

/// Makes block 0 of a directory, behind its first two entries, the root of an index.
pub(crate) fn begin_root(block: &mut Block, hash: u8) {
    block[ROOT_AT - 8..].fill(0);
    let info = Info { reserved: U32::new(0), hash, length: 8, levels: 0, flags: 0 };
    block[ROOT_AT - 8..ROOT_AT].copy_from_slice(info.as_bytes());
}

/// Says how many levels of nodes are below the root.
pub(crate) fn put_levels(block: &mut Block, levels: u8) {
    block[ROOT_AT - 2] = levels;
}

/// Makes a block a node below the root.
pub(crate) fn begin_node(block: &mut Block) {
    block.fill(0);
    block[4..6].copy_from_slice(&(BLOCK_BYTES as u16).to_le_bytes());
}

/// Writes the entries of a node, which begin at `at`, and its checksum.
pub(crate) fn put_branches(directory: &Inode, block: &mut Block, at: usize, branches: &[Branch]) {
    for (branch, bytes) in branches.iter().zip(block[at..].chunks_exact_mut(ENTRY_BYTES)) {
        let pair = Pair { hash: U32::new(branch.hash), block: U32::new(branch.block) };
        bytes.copy_from_slice(pair.as_bytes());
    }
    let (limit, count) = (U16::new(limit(at) as u16), U16::new(branches.len() as u16));
    let counts = Counts { limit, count, block: U32::new(branches.first().map_or(0, |first| first.block)) };
    block[at..at + ENTRY_BYTES].copy_from_slice(counts.as_bytes());
    put_sum(directory, block, at);
}

/// Puts the checksum right of the node whose entries begin at `at`.
pub(crate) fn put_sum(directory: &Inode, block: &mut Block, at: usize) {
    if let Some(sum) = sum(directory, block, at) {
        block[BLOCK_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The checksum that a node should have, if its counts can be.
fn sum(directory: &Inode, block: &Block, at: usize) -> Option<u32> {
    let (limit, count, _) = counts(block, at)?;
    let tail = at + limit * ENTRY_BYTES;
    let sum = directory.seed().with(&block[..at + count * ENTRY_BYTES]);
    Some(sum.with(&block[tail..tail + 4]).with(&[0; 4]).0)
}

/// Whether a block of a directory with an index is a node below the root.
pub(crate) fn is_node(block: &Block) -> bool {
    block[..NODE_AT] == [0, 0, 0, 0, (BLOCK_BYTES & 0xFF) as u8, (BLOCK_BYTES >> 8) as u8, 0, 0]
}

/// How many levels of nodes are below the root, if names have a hash that is known.
///
/// # Errors
/// [`Error::Corrupt`](crate::Error::Corrupt).
pub(crate) fn levels(directory: &Inode, root: &Block) -> Result<Option<usize>, Stop> {
    let (info, _) =
        Info::ref_from_prefix(&root[ROOT_AT - 8..]).map_err(|_| corrupt(directory, "the root of an index"))?;
    let levels = usize::from(info.levels);
    if info.reserved.get() != 0 || info.length != 8 || levels >= LEVELS_MAX {
        return Err(corrupt(directory, "the root of an index"));
    }
    Ok(HALF_MD4.contains(&info.hash).then_some(levels))
}

/// The counts of the node whose entries begin at `at`, if they can be.
fn counts(block: &Block, at: usize) -> Option<(usize, usize, u32)> {
    let (counts, _) = Counts::ref_from_prefix(&block[at..]).ok()?;
    let (limit, count) = (usize::from(counts.limit.get()), usize::from(counts.count.get()));
    let is_right = limit == self::limit(at) && (1..=limit).contains(&count);
    is_right.then_some((limit, count, counts.block.get()))
}

/// Compares the checksum of the node whose entries begin at `at`.
pub(crate) fn check_sum(directory: &Inode, block: &Block, at: usize) -> Result<(), Stop> {
    let sum = sum(directory, block, at).ok_or(corrupt(directory, "the counts of an index"))?;
    if block[BLOCK_BYTES - 4..] == sum.to_le_bytes() { Ok(()) } else { Err(corrupt(directory, "an index's checksum")) }
}

/// Decodes the node whose entries begin at `at`. Its checksum was compared.
///
/// # Errors
/// [`Error::Corrupt`](crate::Error::Corrupt): counts, or hashes that are not in order.
pub(crate) fn node<'a>(directory: &Inode, block: &'a Block, at: usize) -> Result<Node<'a>, Stop> {
    let (_, count, first) = counts(block, at).ok_or(corrupt(directory, "the counts of an index"))?;
    let rest = <[Pair]>::ref_from_bytes(&block[at + ENTRY_BYTES..at + count * ENTRY_BYTES])
        .map_err(|_| corrupt(directory, "the entries of an index"))?;
    if !rest.is_sorted_by_key(|pair| pair.hash.get()) {
        return Err(corrupt(directory, "the order of an index"));
    }
    Ok(Node { first, rest })
}

#[cfg(test)]
mod tests;
