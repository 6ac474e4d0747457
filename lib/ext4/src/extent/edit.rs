//! Changing which blocks a file has.
//!
//! The way from the root to one leaf is read as a list of [`Level`]s; the leaf's items are changed
//! there; then the levels are written from the leaf up, as far as they change. A node without room
//! is split, an empty one is freed, and an entry of a node begins where its child does.

use alloc::vec::Vec;

use super::{
    DEPTH_MAX, ENTRY_BYTES, Extent, Head, Index, LOGICAL_END, MAGIC, Span, WRITTEN_MAX, below_node, check_entries,
    corrupt, descend, entries, head,
};
use crate::allocate::Run;
use crate::error::{Error, Stop};
use crate::inode::{Inode, MAP_BYTES, SECTORS};
use crate::known::Part;
use crate::operation::Operation;
use crate::{BLOCK_BYTES, Blocks};

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

/// Entries that fit into the root, and into a block with its checksum.
const ROOT_ITEMS: usize = MAP_BYTES / ENTRY_BYTES - 1;
const NODE_ITEMS: usize = (BLOCK_BYTES - 4) / ENTRY_BYTES - 1;
/// Most blocks of an extent that was not written.
const UNWRITTEN_MAX: u32 = WRITTEN_MAX as u32 - 1;

/// An entry of a leaf, or of a node above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    /// The first block of the file that it covers.
    first: u32,
    /// Blocks; 0 in a node above a leaf.
    blocks: u32,
    is_written: bool,
    /// The first block of the volume, or the child.
    at: u64,
}

impl Item {
    fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.blocks)
    }

    /// Whether `next` goes on where this one ends, in one extent.
    fn joins(&self, next: &Item) -> bool {
        let most = if self.is_written { u32::from(WRITTEN_MAX) } else { UNWRITTEN_MAX };
        self.is_written == next.is_written
            && self.end() == u64::from(next.first)
            && self.at + u64::from(self.blocks) == next.at
            && self.blocks + next.blocks <= most
    }
}

/// A node on the way to a leaf.
#[derive(Clone, Debug)]
struct Level {
    /// Its block; 0 for the root.
    block: u64,
    items: Vec<Item>,
    /// The entry that leads on.
    at: usize,
}

/// Reads the way to the leaf that has `logical`, or would get it.
fn path<B: Blocks>(operation: &Operation<'_, B>, inode: &Inode, logical: u32) -> Result<Vec<Level>, Stop> {
    let geometry = operation.volume().geometry();
    let mut levels = Vec::new();
    let (mut block, mut node): (u64, &[u8]) = (0, &inode.map);
    let mut depth = head(inode, node)?.depth.get();
    let mut span = Span { first: 0, end: LOGICAL_END };
    check_entries(geometry, inode, node, depth, span)?;
    while depth > 0 {
        let entries: &[Index] = entries(inode, node)?;
        let first = entries.first().map_or(0, |entry| entry.logical.get());
        let (child, below) = descend(geometry, inode, node, span, u64::from(logical.max(first)))?;
        let child = child.ok_or(corrupt(inode, "an entry of an extent node"))?;
        let at = entries.partition_point(|entry| entry.logical.get() <= logical.max(first)) - 1;
        levels.push(Level { block, items: entries.iter().map(Item::from).collect(), at });
        depth -= 1;
        if operation.mount.system().has(child..child + 1) {
            return Err(corrupt(inode, "where an extent node lies"));
        }
        (block, node, span) = (child, below_node(geometry, operation, inode, child, depth, below)?, below);
    }
    let entries: &[Extent] = entries(inode, node)?;
    levels.push(Level { block, items: entries.iter().map(Item::from).collect(), at: 0 });
    Ok(levels)
}

impl From<&Index> for Item {
    fn from(entry: &Index) -> Item {
        let at = u64::from(entry.child_high.get()) << 32 | u64::from(entry.child_low.get());
        Item { first: entry.logical.get(), blocks: 0, is_written: true, at }
    }
}

impl From<&Extent> for Item {
    fn from(entry: &Extent) -> Item {
        let length = entry.length.get();
        let is_written = length <= WRITTEN_MAX;
        let blocks = u32::from(if is_written { length } else { length - WRITTEN_MAX });
        let at = u64::from(entry.physical_high.get()) << 32 | u64::from(entry.physical_low.get());
        Item { first: entry.logical.get(), blocks, is_written, at }
    }
}

fn put_head(node: &mut [u8], depth: u16, items: usize) {
    let most = if node.len() == MAP_BYTES { ROOT_ITEMS } else { NODE_ITEMS };
    let head = Head {
        magic: U16::new(MAGIC),
        entries: U16::new(items as u16),
        max: U16::new(most as u16),
        depth: U16::new(depth),
        generation: U32::new(0),
    };
    node[..ENTRY_BYTES].copy_from_slice(head.as_bytes());
}

/// Writes a node's head and entries.
fn put_items(node: &mut [u8], depth: u16, items: &[Item]) {
    put_head(node, depth, items.len());
    for (item, bytes) in items.iter().zip(node[ENTRY_BYTES..].chunks_exact_mut(ENTRY_BYTES)) {
        let (low, high) = (U32::new(item.at as u32), U16::new((item.at >> 32) as u16));
        if depth > 0 {
            let index = Index { logical: U32::new(item.first), child_low: low, child_high: high, unused: U16::new(0) };
            bytes.copy_from_slice(index.as_bytes());
        } else {
            let length = item.blocks as u16 + if item.is_written { 0 } else { WRITTEN_MAX };
            let length = U16::new(length);
            let extent = Extent { logical: U32::new(item.first), length, physical_high: high, physical_low: low };
            bytes.copy_from_slice(extent.as_bytes());
        }
    }
}

/// Writes a node in a block, with its checksum.
fn put_node<B: Blocks>(operation: &mut Operation<'_, B>, inode: &Inode, block: u64, depth: u16, items: &[Item]) {
    const SUM_AT: usize = ENTRY_BYTES * (1 + NODE_ITEMS);
    let bytes = operation.blocks.fresh(block);
    put_items(bytes, depth, items);
    let sum = inode.seed().with(&bytes[..SUM_AT]);
    bytes[SUM_AT..SUM_AT + 4].copy_from_slice(&sum.0.to_le_bytes());
    operation.blocks.note_right(block, Part::whole(inode.seed().0));
}

fn allocate_node<B: Blocks>(operation: &mut Operation<'_, B>, inode: &mut Inode, near: u64) -> Result<u64, Stop> {
    let Run { first, .. } = operation.allocate(near, 1)?;
    inode.sectors += SECTORS;
    Ok(first)
}

/// Writes the levels, of which the last was changed, as far up as they change.
fn store<B: Blocks>(operation: &mut Operation<'_, B>, inode: &mut Inode, mut levels: Vec<Level>) -> Result<(), Stop> {
    let height = levels.len();
    while let Some(level) = levels.pop() {
        let depth = (height - 1 - levels.len()) as u16;
        let Some(parent) = levels.last_mut() else { return store_root(operation, inode, depth, &level.items) };
        let Some(first) = level.items.first().map(|item| item.first) else {
            operation.free(level.block, 1, true)?;
            inode.sectors = inode.sectors.saturating_sub(SECTORS);
            parent.items.remove(parent.at);
            continue;
        };
        let is_split = level.items.len() > NODE_ITEMS;
        let mut kept = level.items.len();
        if is_split {
            // What is appended leaves the node before it full.
            let is_appended = parent.at + 1 == parent.items.len();
            kept = if is_appended && depth == 0 { NODE_ITEMS } else { level.items.len() / 2 };
            let at = allocate_node(operation, inode, level.block)?;
            put_node(operation, inode, at, depth, &level.items[kept..]);
            let right = Item { first: level.items[kept].first, blocks: 0, is_written: true, at };
            parent.items.insert(parent.at + 1, right);
        }
        put_node(operation, inode, level.block, depth, &level.items[..kept]);
        let is_moved = parent.items[parent.at].first != first;
        parent.items[parent.at].first = first;
        if !is_split && !is_moved {
            return Ok(());
        }
    }
    Ok(())
}

/// Writes the root; without room in it, its items go into a node of their own.
fn store_root<B: Blocks>(
    operation: &mut Operation<'_, B>,
    inode: &mut Inode,
    depth: u16,
    items: &[Item],
) -> Result<(), Stop> {
    inode.map.fill(0);
    if items.len() <= ROOT_ITEMS {
        put_items(&mut inode.map, if items.is_empty() { 0 } else { depth }, items);
        return Ok(());
    }
    if depth >= DEPTH_MAX {
        return Err(Error::TooLarge.into());
    }
    let near = items[0].at;
    let at = allocate_node(operation, inode, near)?;
    put_node(operation, inode, at, depth, items);
    put_items(&mut inode.map, depth + 1, &[Item { first: items[0].first, blocks: 0, is_written: true, at }]);
    Ok(())
}

/// Joins the item at `at` and the ones beside it, where they go on from each other.
fn join(items: &mut Vec<Item>, at: usize) {
    for left in (at.saturating_sub(1)..=at).rev() {
        if left + 1 < items.len() && items[left].joins(&items[left + 1]) {
            items[left].blocks += items[left + 1].blocks;
            items.remove(left + 1);
        }
    }
}

/// Gives a hole of the file these blocks, from block `logical` of it on. The inode is to be written
/// behind it.
///
/// # Errors
/// [`Stop::Need`]; those of allocation; [`Error::Corrupt`].
pub(crate) fn insert<B: Blocks>(
    operation: &mut Operation<'_, B>,
    inode: &mut Inode,
    logical: u32,
    run: Run,
) -> Result<(), Stop> {
    let mut levels = path(operation, inode, logical)?;
    let level = levels.last_mut().ok_or(corrupt(inode, "an extent node"))?;
    let at = level.items.partition_point(|item| item.first <= logical);
    level.items.insert(at, Item { first: logical, blocks: run.blocks, is_written: true, at: run.first });
    join(&mut level.items, at);
    inode.sectors += u64::from(run.blocks) * SECTORS;
    store(operation, inode, levels)
}

/// Marks `blocks` blocks from `logical` on, which are of one extent that was not written, as
/// written. The inode is to be written behind it.
///
/// # Errors
/// As for [`insert`].
pub(crate) fn mark_written<B: Blocks>(
    operation: &mut Operation<'_, B>,
    inode: &mut Inode,
    logical: u32,
    blocks: u32,
) -> Result<(), Stop> {
    let mut levels = path(operation, inode, logical)?;
    let level = levels.last_mut().ok_or(corrupt(inode, "an extent node"))?;
    let at = level.items.partition_point(|item| item.first <= logical).checked_sub(1);
    let at = at.filter(|at| !level.items[*at].is_written).ok_or(corrupt(inode, "an extent"))?;
    let old = level.items[at];
    let (from, to) = (u64::from(logical), u64::from(logical) + u64::from(blocks));
    let part = |first: u64, end: u64, is_written| Item {
        first: first as u32,
        blocks: (end - first) as u32,
        is_written,
        at: old.at + (first - u64::from(old.first)),
    };
    if to > old.end() {
        return Err(corrupt(inode, "an extent"));
    }
    let parts = [part(u64::from(old.first), from, false), part(from, to, true), part(to, old.end(), false)];
    level.items.splice(at..=at, parts.into_iter().filter(|item| item.blocks > 0));
    join(&mut level.items, if from > u64::from(old.first) { at + 1 } else { at });
    store(operation, inode, levels)
}

/// Takes up to `most` of the last extents from the file, or the parts of them that are not before
/// block `from`, and frees their blocks. Returns whether none is left there. The inode is to be
/// written behind it.
///
/// # Errors
/// [`Stop::Need`]; [`Error::Corrupt`].
pub(crate) fn remove_last<B: Blocks>(
    operation: &mut Operation<'_, B>,
    inode: &mut Inode,
    from: u64,
    most: usize,
    is_metadata: bool,
) -> Result<bool, Stop> {
    for _ in 0..most {
        let mut levels = path(operation, inode, u32::MAX)?;
        let level = levels.last_mut().ok_or(corrupt(inode, "an extent node"))?;
        let Some(item) = level.items.pop_if(|item| item.end() > from) else { return Ok(true) };
        let kept = from.saturating_sub(u64::from(item.first)) as u32;
        let freed = item.blocks - kept;
        operation.free(item.at + u64::from(kept), u64::from(freed), is_metadata)?;
        inode.sectors = inode.sectors.saturating_sub(u64::from(freed) * SECTORS);
        if kept > 0 {
            level.items.push(Item { blocks: kept, ..item });
        }
        store(operation, inode, levels)?;
    }
    Ok(false)
}

/// One past the last block of the file that has one of the volume.
///
/// # Errors
/// [`Stop::Need`]; [`Error::Corrupt`].
pub(crate) fn end<B: Blocks>(operation: &Operation<'_, B>, inode: &Inode) -> Result<u64, Stop> {
    let levels = path(operation, inode, u32::MAX)?;
    Ok(levels.last().and_then(|level| level.items.last()).map_or(0, Item::end))
}
