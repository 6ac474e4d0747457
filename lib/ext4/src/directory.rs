//! Directories: blocks of entries, with or without an index.

use alloc::boxed::Box;
use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::Checksum;
use crate::error::{Error, Stop};
use crate::inode::Inode;
use crate::super_block::Geometry;
use crate::{BLOCK_BYTES, Block, index};

/// Bytes of an entry in front of its name.
const HEAD_BYTES: usize = 8;
/// Bytes of the entry at a block's end that has its checksum.
const TAIL_BYTES: usize = 12;
/// What that entry says it names.
const TAIL_KIND: u8 = 0xDE;
/// Most bytes of a name.
pub const NAME_MAX: usize = 255;

/// The head of an entry as it lies on the disk.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    inode: U32,
    length: U16,
    name_bytes: u8,
    kind: u8,
}

const _: () = assert!(size_of::<Head>() == HEAD_BYTES);

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode that it names.
    pub inode: u32,
    /// Where the next one begins: bytes from the directory's beginning.
    pub next: u64,
    /// Its name, up to 255 bytes.
    pub name: Box<[u8]>,
}

/// What a block of a directory has in it.
pub(crate) enum Content<'a> {
    /// Entries in these bytes.
    Entries(&'a [u8]),
    /// A node of the index below its root.
    Node,
}

/// Whether `name` can be one.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Error> {
    let is_right = (1..=NAME_MAX).contains(&name.len()) && !name.contains(&0) && !name.contains(&b'/');
    if is_right { Ok(()) } else { Err(Error::InvalidName) }
}

/// What block `logical` of a directory has in it, checked by its checksum.
pub(crate) fn content<'a>(directory: &Inode, logical: u32, block: &'a Block) -> Result<Content<'a>, Stop> {
    if directory.has_index && logical == 0 {
        index::check_sum(directory, block, index::ROOT_AT)?;
        // The entries "." and ".."; the second reaches over the root of the index.
        return Ok(Content::Entries(&block[..]));
    }
    if directory.has_index && index::is_node(block) {
        index::check_sum(directory, block, index::NODE_AT)?;
        return Ok(Content::Node);
    }
    let (entries, tail) = block.split_at(BLOCK_BYTES - TAIL_BYTES);
    let (head, sum) = Head::ref_from_prefix(tail).map_err(|_| corrupt(directory, "a directory's block"))?;
    let is_tail = head.inode.get() == 0
        && usize::from(head.length.get()) == TAIL_BYTES
        && head.name_bytes == 0
        && head.kind == TAIL_KIND;
    if !is_tail || sum != Checksum(directory.checksum_seed).with(entries).0.to_le_bytes() {
        return Err(corrupt(directory, "the checksum of a directory's block"));
    }
    Ok(Content::Entries(entries))
}

pub(crate) fn corrupt(directory: &Inode, what: &'static str) -> Stop {
    Error::corrupt(what, u64::from(directory.number))
}

/// An entry inside a block: where it ends, its inode (0 if it is free) and its name.
struct Slot<'a> {
    end: usize,
    inode: u32,
    name: &'a [u8],
}

/// The entry that begins at `at`.
fn slot<'a>(geometry: &Geometry, directory: &Inode, entries: &'a [u8], at: usize) -> Result<Slot<'a>, Stop> {
    let wrong = || corrupt(directory, "an entry of a directory");
    let (head, rest) = Head::ref_from_prefix(&entries[at..]).map_err(|_| wrong())?;
    let (length, name_bytes) = (usize::from(head.length.get()), usize::from(head.name_bytes));
    let inode = head.inode.get();
    let end = at + length;
    let is_right = length.is_multiple_of(4)
        && length >= HEAD_BYTES + name_bytes
        && end <= entries.len()
        && inode <= geometry.inodes
        && (inode == 0 || name_bytes > 0);
    let name = rest.get(..name_bytes).filter(|_| is_right).ok_or_else(wrong)?;
    if inode != 0 && check_name(name).is_err() {
        return Err(corrupt(directory, "a name in a directory"));
    }
    Ok(Slot { end, inode, name })
}

/// The inode that `name` names in these entries.
pub(crate) fn search(geometry: &Geometry, directory: &Inode, entries: &[u8], name: &[u8]) -> Result<Option<u32>, Stop> {
    let mut at = 0;
    while at < entries.len() {
        let slot = slot(geometry, directory, entries, at)?;
        if slot.inode != 0 && slot.name == name {
            return Ok(Some(slot.inode));
        }
        at = slot.end;
    }
    Ok(None)
}

/// The entries of block `logical` that begin at byte `from` of it or later.
pub(crate) fn list(
    geometry: &Geometry,
    directory: &Inode,
    logical: u32,
    entries: &[u8],
    from: usize,
) -> Result<Vec<Entry>, Stop> {
    let base = u64::from(logical) * BLOCK_BYTES as u64;
    let mut found = Vec::new();
    let mut at = 0;
    while at < entries.len() {
        let slot = slot(geometry, directory, entries, at)?;
        if slot.inode != 0 && at >= from {
            // Behind a block's last entry is its checksum; the next block begins there.
            let end = if slot.end == entries.len() { BLOCK_BYTES } else { slot.end };
            found.push(Entry { inode: slot.inode, next: base + end as u64, name: slot.name.into() });
        }
        at = slot.end;
    }
    Ok(found)
}
