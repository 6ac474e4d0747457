//! Extents: which blocks of the volume the blocks of a file are.
//!
//! A tree of at most [`DEPTH_MAX`] levels below the root, which is in the inode. Each node is
//! checked whole before it is followed, once while its block is there: its entries are in order,
//! and inside what its parent says it covers. The entry that is followed is checked each time.

mod edit;
#[cfg(test)]
mod tests;

use core::ops::Range;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Stop};
use crate::inode::{Inode, MAP_BYTES};
use crate::known::{self, Part};
use crate::super_block::Geometry;
use crate::{BLOCK_BYTES, Block, Blocks};

/// Levels below the root: enough for 2^32 extents, whatever the nodes hold.
const DEPTH_MAX: u16 = 5;
const MAGIC: u16 = 0xF30A;
const ORDER: &str = "the order of an extent node";
/// Bytes of a node's head and of each of its entries.
const ENTRY_BYTES: usize = 12;
/// Most blocks of an extent that was written; longer ones are that much longer, and not written.
const WRITTEN_MAX: u16 = 1 << 15;
/// One past the last block of a file.
const LOGICAL_END: u64 = 1 << 32;

#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Head {
    pub magic: U16,
    pub entries: U16,
    pub max: U16,
    pub depth: U16,
    pub generation: U32,
}

/// An entry of a leaf.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Extent {
    pub logical: U32,
    pub length: U16,
    pub physical_high: U16,
    pub physical_low: U32,
}

/// An entry of a node above.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Index {
    logical: U32,
    child_low: U32,
    child_high: U16,
    unused: U16,
}

const _: () = assert!(size_of::<Head>() == ENTRY_BYTES && size_of::<Extent>() == ENTRY_BYTES);
const _: () = assert!(size_of::<Index>() == ENTRY_BYTES);

/// What a stretch of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// No block: zeros.
    Hole,
    /// These blocks of the volume, from this one on.
    Written(u64),
    /// The same, but they have never been written: zeros.
    Unwritten(u64),
}

/// Where a block of a file is, and how many behind it go on in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Where it is.
    pub place: Place,
    /// Blocks, at least 1.
    pub blocks: u64,
}

/// What a node covers: logical blocks from `first` to before `end`.
#[derive(Clone, Copy)]
struct Span {
    first: u64,
    end: u64,
}

pub(crate) use edit::{end, insert, mark_written, remove_last};

/// Whether the root in an inode is one.
pub(crate) fn check_root(inode: &Inode) -> Result<(), Stop> {
    let head = head(inode, &inode.map)?;
    if head.depth.get() > DEPTH_MAX {
        return Err(corrupt(inode, "the depth of an extent tree"));
    }
    Ok(())
}

/// The map of a file whose blocks are these, of which there are at most four times 2^15.
pub(crate) fn root_of(blocks: Range<u64>) -> [u8; MAP_BYTES] {
    const ENTRIES_MAX: u16 = (MAP_BYTES / ENTRY_BYTES - 1) as u16;
    assert!(blocks.end - blocks.start <= u64::from(ENTRIES_MAX) * u64::from(WRITTEN_MAX), "the map has one node");
    let mut map = [0; MAP_BYTES];
    let (nodes, _) = map.as_chunks_mut::<ENTRY_BYTES>();
    let starts = blocks.clone().step_by(usize::from(WRITTEN_MAX));
    let mut entries = 0;
    for (start, node) in starts.zip(&mut nodes[1..]) {
        let extent = Extent {
            logical: U32::new((start - blocks.start) as u32),
            length: U16::new((blocks.end - start).min(u64::from(WRITTEN_MAX)) as u16),
            physical_high: U16::new((start >> 32) as u16),
            physical_low: U32::new(start as u32),
        };
        node.copy_from_slice(extent.as_bytes());
        entries += 1;
    }
    let head = Head {
        magic: U16::new(MAGIC),
        entries: U16::new(entries),
        max: U16::new(ENTRIES_MAX),
        depth: U16::ZERO,
        generation: U32::ZERO,
    };
    nodes[0].copy_from_slice(head.as_bytes());
    map
}

/// Where block `logical` of the file is.
///
/// # Errors
/// [`Stop::Need`]; [`Error::Corrupt`].
pub(crate) fn find<B: Blocks>(geometry: &Geometry, blocks: &B, inode: &Inode, logical: u32) -> Result<Stretch, Stop> {
    let mut node: &[u8] = &inode.map;
    let mut depth = head(inode, node)?.depth.get();
    let mut span = Span { first: 0, end: LOGICAL_END };
    check_entries(geometry, inode, node, depth, span)?;
    while depth > 0 {
        let (child, below) = descend(geometry, inode, node, span, u64::from(logical))?;
        let Some(child) = child else {
            return Ok(Stretch { place: Place::Hole, blocks: below.end - u64::from(logical) });
        };
        depth -= 1;
        (node, span) = (below_node(geometry, blocks, inode, child, depth, below)?, below);
    }
    leaf(geometry, inode, node, span, u64::from(logical))
}

/// The node of that depth in block `child`, checked.
fn below_node<'a, B: Blocks>(
    geometry: &Geometry,
    blocks: &'a B,
    inode: &Inode,
    child: u64,
    depth: u16,
    span: Span,
) -> Result<&'a Block, Stop> {
    let found = known::find(blocks, child)?;
    if head(inode, found.block)?.depth.get() != depth {
        return Err(corrupt(inode, "the depth of an extent node"));
    }
    found.once(Part::whole(inode.seed().0), |block| {
        check_sum(inode, block)?;
        check_entries(geometry, inode, block, depth, span)
    })
}

fn corrupt(inode: &Inode, what: &'static str) -> Stop {
    Error::corrupt(what, u64::from(inode.number))
}

/// The head of a node, if its magic number and counts can be.
fn head<'a>(inode: &Inode, node: &'a [u8]) -> Result<&'a Head, Stop> {
    let (head, rest) = Head::ref_from_prefix(node).map_err(|_| corrupt(inode, "an extent node"))?;
    // A block keeps four bytes behind its entries for the checksum; 340 entries leave just those.
    let capacity = rest.len() / ENTRY_BYTES;
    let is_right = head.magic.get() == MAGIC
        && head.entries.get() <= head.max.get()
        && usize::from(head.max.get()) <= capacity
        && (node.len() == MAP_BYTES || head.entries.get() > 0);
    if is_right { Ok(head) } else { Err(corrupt(inode, "the head of an extent node")) }
}

/// Compares the checksum behind the entries that a node in a block could have.
fn check_sum(inode: &Inode, block: &[u8; BLOCK_BYTES]) -> Result<(), Stop> {
    let end = ENTRY_BYTES * (1 + usize::from(head(inode, block)?.max.get()));
    let told = block.get(end..end + 4).and_then(|told| told.try_into().ok()).map(u32::from_le_bytes);
    if told == Some(inode.seed().with(&block[..end]).0) {
        Ok(())
    } else {
        Err(corrupt(inode, "an extent node's checksum"))
    }
}

/// The entries behind a node's head.
fn entries<'a, T: FromBytes + Immutable + KnownLayout + Unaligned>(
    inode: &Inode,
    node: &'a [u8],
) -> Result<&'a [T], Stop> {
    let count = usize::from(head(inode, node)?.entries.get());
    node.get(ENTRY_BYTES..ENTRY_BYTES * (1 + count))
        .and_then(|bytes| <[T]>::ref_from_bytes(bytes).ok())
        .ok_or(corrupt(inode, "the entries of an extent node"))
}

/// The child that covers `logical`, and what it covers; no child if `logical` is before the first.
fn descend(
    geometry: &Geometry,
    inode: &Inode,
    node: &[u8],
    span: Span,
    logical: u64,
) -> Result<(Option<u64>, Span), Stop> {
    let entries: &[Index] = entries(inode, node)?;
    let behind = entries.partition_point(|entry| u64::from(entry.logical.get()) <= logical);
    let Some(at) = behind.checked_sub(1) else {
        let end = entries.first().map_or(span.end, |entry| u64::from(entry.logical.get()));
        return if end > logical { Ok((None, Span { end, ..span })) } else { Err(corrupt(inode, ORDER)) };
    };
    let (child, below) = branch(geometry, inode, entries, at, span)?;
    if (below.first..below.end).contains(&logical) { Ok((Some(child), below)) } else { Err(corrupt(inode, ORDER)) }
}

/// Where entry `at` of a node above leads to, and what that covers.
fn branch(geometry: &Geometry, inode: &Inode, entries: &[Index], at: usize, span: Span) -> Result<(u64, Span), Stop> {
    let first = |entry: &Index| u64::from(entry.logical.get());
    let below = Span { first: first(&entries[at]), end: entries.get(at + 1).map_or(span.end, first) };
    let child = u64::from(entries[at].child_high.get()) << 32 | u64::from(entries[at].child_low.get());
    let is_right = span.first <= below.first && below.first < below.end && below.end <= span.end;
    if is_right && child > 0 && child < geometry.blocks {
        Ok((child, below))
    } else {
        Err(corrupt(inode, "an entry of an extent node"))
    }
}

/// An extent: what it covers, and where that is.
fn extent(geometry: &Geometry, inode: &Inode, entry: &Extent, span: Span) -> Result<(Span, Place), Stop> {
    let (first, length) = (u64::from(entry.logical.get()), entry.length.get());
    let is_written = length <= WRITTEN_MAX;
    let length = u64::from(if is_written { length } else { length - WRITTEN_MAX });
    let physical = u64::from(entry.physical_high.get()) << 32 | u64::from(entry.physical_low.get());
    let is_inside = physical > 0 && physical < geometry.blocks && length <= geometry.blocks - physical;
    if first < span.first || length == 0 || first + length > span.end || !is_inside {
        return Err(corrupt(inode, "an extent"));
    }
    let place = if is_written { Place::Written(physical) } else { Place::Unwritten(physical) };
    Ok((Span { first, end: first + length }, place))
}

/// Looks at all entries of a node of that depth: each is right, and they are in order.
fn check_entries(geometry: &Geometry, inode: &Inode, node: &[u8], depth: u16, span: Span) -> Result<(), Stop> {
    if depth > 0 {
        let entries: &[Index] = entries(inode, node)?;
        if entries.is_empty() {
            return Err(corrupt(inode, ORDER));
        }
        return (0..entries.len()).try_for_each(|at| branch(geometry, inode, entries, at, span).map(drop));
    }
    let mut rest = span;
    for entry in entries::<Extent>(inode, node)? {
        rest.first = extent(geometry, inode, entry, rest)?.0.end;
    }
    Ok(())
}

/// Where `logical` is by a leaf.
fn leaf(geometry: &Geometry, inode: &Inode, node: &[u8], span: Span, logical: u64) -> Result<Stretch, Stop> {
    let entries: &[Extent] = entries(inode, node)?;
    let behind = entries.partition_point(|entry| u64::from(entry.logical.get()) <= logical);
    if let Some(at) = behind.checked_sub(1) {
        let (covered, place) = extent(geometry, inode, &entries[at], span)?;
        if (covered.first..covered.end).contains(&logical) {
            let offset = logical - covered.first;
            let place = match place {
                Place::Written(first) => Place::Written(first + offset),
                Place::Unwritten(first) => Place::Unwritten(first + offset),
                Place::Hole => Place::Hole,
            };
            return Ok(Stretch { place, blocks: covered.end - logical });
        }
    }
    let end = entries.get(behind).map_or(span.end, |entry| u64::from(entry.logical.get()));
    if end > logical && end <= span.end {
        Ok(Stretch { place: Place::Hole, blocks: end - logical })
    } else {
        Err(corrupt(inode, ORDER))
    }
}
