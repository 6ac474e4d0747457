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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::{Place, Stretch, find};
    use crate::testing::{self, Memory, NOW};
    use crate::{Kind, Mount};

    const NUMBER: u32 = 12;
    /// Blocks of the volume.
    const BLOCKS: u64 = 20_000;

    fn item(first: u32, blocks: u32, is_written: bool, at: u64) -> Item {
        Item { first, blocks, is_written, at }
    }

    fn file(mount: &Mount) -> Inode {
        testing::inode(mount.volume().geometry(), NUMBER, Kind::File)
    }

    /// Does it in an operation with an empty file, and a volume that has room.
    fn with_file(test: impl FnOnce(&mut Operation<'_, Memory>, &mut Inode)) {
        let memory = Memory::formatted(BLOCKS);
        let mount = memory.mount();
        let mut inode = file(&mount);
        test(&mut Operation::begin(&mount, &memory, NOW), &mut inode);
    }

    /// Gives the file one block of the volume.
    fn add(operation: &mut Operation<'_, Memory>, inode: &mut Inode, logical: u32) {
        let run = operation.allocate(0, 1).unwrap();
        insert(operation, inode, logical, run).unwrap();
    }

    /// All extents, as readers find them.
    fn extents(operation: &Operation<'_, Memory>, inode: &Inode) -> Vec<(u32, Stretch)> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < LOGICAL_END {
            let stretch = find(operation.volume().geometry(), operation, inode, at as u32).unwrap();
            if stretch.place != Place::Hole {
                found.push((at as u32, stretch));
            }
            at += stretch.blocks;
        }
        found
    }

    fn written(first: u32, at: u64, blocks: u64) -> (u32, Stretch) {
        (first, Stretch { place: Place::Written(at), blocks })
    }

    fn unwritten(first: u32, at: u64, blocks: u64) -> (u32, Stretch) {
        (first, Stretch { place: Place::Unwritten(at), blocks })
    }

    fn firsts(items: &[Item]) -> Vec<u32> {
        items.iter().map(|item| item.first).collect()
    }

    fn depth(inode: &Inode) -> u16 {
        head(inode, &inode.map).unwrap().depth.get()
    }

    #[test]
    fn an_extent_goes_on_in_file_and_volume_and_is_not_too_long() {
        let left = item(10, 5, true, 100);
        assert!(left.joins(&item(15, 3, true, 105)));
        for other in [item(16, 3, true, 105), item(15, 3, true, 106), item(15, 3, false, 105), item(5, 3, true, 95)] {
            assert!(!left.joins(&other), "{other:?}");
        }
        for (is_written, most) in [(true, 32_768), (false, 32_767)] {
            let left = item(0, 30_000, is_written, 100);
            assert!(left.joins(&item(30_000, most - 30_000, is_written, 30_100)));
            assert!(!left.joins(&item(30_000, most - 29_999, is_written, 30_100)));
        }
    }

    #[test]
    fn entries_keep_numbers_of_48_bits() {
        let mut inode = testing::inode(&testing::geometry(1), NUMBER, Kind::File);
        let leaf = [item(1, 0x8000, true, 0x1234_5678_9ABC), item(0x9000_0000, 0x7FFF, false, 0xFFFF_FFFF_FFFF)];
        put_items(&mut inode.map, 0, &leaf);
        let extents: &[Extent] = entries(&inode, &inode.map).unwrap();
        assert_eq!(extents.iter().map(Item::from).collect::<Vec<_>>(), leaf);
        let above = [item(0, 0, true, 0x1234_5678_9ABC), item(7, 0, true, 0xFFFF_0000_0000)];
        put_items(&mut inode.map, 3, &above);
        let indices: &[Index] = entries(&inode, &inode.map).unwrap();
        assert_eq!(indices.iter().map(Item::from).collect::<Vec<_>>(), above);
        assert_eq!(depth(&inode), 3);
    }

    #[test]
    fn blocks_join_the_extents_before_and_behind_them() {
        with_file(|operation, inode| {
            let mut insert = |logical, first, blocks| {
                insert(operation, inode, logical, Run { first, blocks }).unwrap();
                extents(operation, inode)
            };
            insert(2, 5000, 2);
            assert_eq!(insert(4, 5002, 3), [written(2, 5000, 5)]);
            insert(12, 5010, 1);
            assert_eq!(insert(11, 5009, 1), [written(2, 5000, 5), written(11, 5009, 2)]);
            // Behind in the file, but elsewhere; and the other way round.
            insert(13, 6000, 1);
            let apart = [written(2, 5000, 5), written(11, 5009, 2), written(13, 6000, 1), written(20, 6001, 1)];
            assert_eq!(insert(20, 6001, 1), apart);
            assert_eq!(insert(7, 5005, 4), [written(2, 5000, 11), written(13, 6000, 1), written(20, 6001, 1)]);
            assert_eq!(inode.sectors, 8 * 13);
            assert_eq!(end(operation, inode), Ok(21));
        });
    }

    #[test]
    fn what_is_written_of_an_unwritten_extent_is_split_from_it_and_joined() {
        with_file(|operation, inode| {
            assert_eq!(end(operation, inode), Ok(0));
            let before = [item(8, 2, true, 4998), item(10, 10, false, 5000)];
            put_items(&mut inode.map, 0, &before);
            let mut mark = |logical, blocks| {
                mark_written(operation, inode, logical, blocks)?;
                Ok::<_, Stop>(extents(operation, inode))
            };
            let first = written(8, 4998, 2);
            let middle = [first, unwritten(10, 5000, 3), written(13, 5003, 2), unwritten(15, 5005, 5)];
            assert_eq!(mark(13, 2).unwrap(), middle);
            assert_eq!(mark(15, 1).unwrap()[2..], [written(13, 5003, 3), unwritten(16, 5006, 4)]);
            // From the beginning, block by block: one extent with what was written before it.
            assert_eq!(mark(10, 1).unwrap()[..2], [written(8, 4998, 3), unwritten(11, 5001, 2)]);
            // Up to what was written behind it, then all between.
            assert_eq!(mark(12, 1).unwrap()[1..3], [unwritten(11, 5001, 1), written(12, 5002, 4)]);
            assert_eq!(mark(11, 1).unwrap(), [written(8, 4998, 8), unwritten(16, 5006, 4)]);
            for (logical, blocks) in [(7, 1), (10, 1), (16, 5), (20, 1)] {
                assert_eq!(
                    mark(logical, blocks),
                    Err(corrupt(&testing::inode(&testing::geometry(1), NUMBER, Kind::File), "an extent"))
                );
            }
            assert_eq!(mark(16, 4).unwrap(), [written(8, 4998, 12)]);
            assert_eq!(inode.sectors, 0, "it has no more blocks than before");
        });
    }

    #[test]
    fn a_file_with_more_extents_than_its_inode_has_room_for_gets_a_node() {
        with_file(|operation, inode| {
            for logical in [0, 2, 4, 6] {
                add(operation, inode, logical);
            }
            assert_eq!((depth(inode), inode.sectors), (0, 4 * 8));
            add(operation, inode, 8);
            assert_eq!((depth(inode), inode.sectors), (1, 6 * 8));
            assert_eq!(extents(operation, inode).len(), 5);
            let node = path(operation, inode, 0).unwrap()[1].block;
            assert!(operation.blocks.changes.blocks.contains_key(&node), "it goes through the log");
            // In front of the first: the root has to know.
            let run = operation.allocate(0, 1).unwrap();
            let mut later = testing::inode(operation.volume().geometry(), NUMBER, Kind::File);
            for logical in [10, 12, 14, 16, 18] {
                add(operation, &mut later, logical);
            }
            insert(operation, &mut later, 5, run).unwrap();
            assert_eq!(extents(operation, &later)[0], written(5, run.first, 1));
            assert_eq!(firsts(&path(operation, &later, 18).unwrap()[0].items), [5]);
        });
    }

    #[test]
    fn what_is_appended_leaves_nodes_full_and_what_comes_between_leaves_halves() {
        with_file(|operation, inode| {
            let before = operation.blocks.changes.free_blocks;
            for logical in 0..340 {
                add(operation, inode, 2 * logical);
            }
            let shape = |operation: &Operation<'_, Memory>, inode: &Inode| -> Vec<(u32, usize)> {
                let root = path(operation, inode, 0).unwrap().remove(0).items;
                let leaf = |first: &u32| (*first, path(operation, inode, *first).unwrap()[1].items.len());
                firsts(&root).iter().map(leaf).collect()
            };
            assert_eq!(shape(operation, inode), [(0, 340)]);
            add(operation, inode, 680);
            assert_eq!(shape(operation, inode), [(0, 340), (680, 1)]);
            add(operation, inode, 682);
            assert_eq!(shape(operation, inode), [(0, 340), (680, 2)]);
            add(operation, inode, 1);
            let items = shape(operation, inode);
            assert_eq!(items.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [170, 171, 2]);
            let found: Vec<u32> = extents(operation, inode).iter().map(|(first, _)| *first).collect();
            let mut expected: Vec<u32> = (0..342).map(|logical| 2 * logical).collect();
            expected.insert(1, 1);
            assert_eq!(found, expected);
            assert_eq!(inode.sectors, 8 * (343 + 3));
            assert_eq!(before - operation.blocks.changes.free_blocks, 343 + 3);

            // Of all that, nothing is left; only what the log may have of nodes does not count.
            let nodes: Vec<u64> = firsts(&path(operation, inode, 0).unwrap()[0].items)
                .iter()
                .map(|first| path(operation, inode, *first).unwrap()[1].block)
                .collect();
            assert_eq!(remove_last(operation, inode, 0, 342, false), Ok(false));
            assert_eq!((depth(inode), end(operation, inode), inode.sectors), (1, Ok(1), 2 * 8));
            assert_eq!(remove_last(operation, inode, 0, 2, false), Ok(true));
            assert_eq!((depth(inode), end(operation, inode), inode.sectors), (0, Ok(0), 0));
            assert_eq!(operation.blocks.changes.free_blocks, before);
            assert_eq!(operation.blocks.changes.revoked, nodes.into_iter().collect());
        });
    }

    #[test]
    fn a_file_is_cut_inside_an_extent() {
        with_file(|operation, inode| {
            for (logical, goal) in [(0, 10_000), (10, 12_000), (20, 14_000)] {
                let run = operation.allocate(goal, 10).unwrap();
                insert(operation, inode, logical, run).unwrap();
            }
            assert_eq!(remove_last(operation, inode, 14, 5, true), Ok(true));
            assert_eq!(extents(operation, inode), [written(0, 10_000, 10), written(10, 12_000, 4)]);
            assert_eq!(inode.sectors, 8 * 14);
            let changes = &operation.blocks.changes;
            assert_eq!(changes.free_blocks, -14);
            assert_eq!(changes.freed, [(12_004, 6), (14_000, 10)].into());
            assert_eq!(changes.revoked, (12_004..12_010).chain(14_000..14_010).collect());
        });
    }

    /// A root, a full node and a full leaf, which has the last extents.
    #[test]
    fn a_full_node_above_is_split_in_its_middle() {
        with_file(|operation, inode| {
            let [node, leaf] = [0; 2].map(|_| operation.allocate(15_000, 1).unwrap().first);
            let above: Vec<Item> = (0..340).map(|at| item(1000 * at, 0, true, 16_000 + u64::from(at))).collect();
            let above: Vec<Item> =
                above.into_iter().map(|it| if it.first == 339_000 { Item { at: leaf, ..it } } else { it }).collect();
            let below: Vec<Item> =
                (0..340).map(|at| item(339_000 + 2 * at, 1, true, 17_000 + 2 * u64::from(at))).collect();
            put_node(operation, inode, node, 1, &above);
            put_node(operation, inode, leaf, 0, &below);
            put_items(&mut inode.map, 2, &[item(0, 0, true, node)]);
            insert(operation, inode, 339_001, Run { first: 19_000, blocks: 1 }).unwrap();
            assert_eq!((depth(inode), inode.sectors), (2, 3 * 8));
            let levels = path(operation, inode, 339_001).unwrap();
            assert_eq!(firsts(&levels[0].items), [0, 170_000]);
            assert_eq!(firsts(&levels[1].items).last_chunk(), Some(&[339_000, 339_678]));
            assert_eq!((levels[1].items.len(), levels[2].items.len()), (171, 340));
            assert_eq!(levels[2].items[1], item(339_001, 1, true, 19_000));
            assert_eq!(path(operation, inode, 339_678).unwrap()[2].items, below[339..]);
        });
    }

    #[test]
    fn a_node_that_lies_where_no_file_has_blocks_is_refused() {
        with_file(|operation, inode| {
            let all: Vec<_> = operation.mount.system().among(0..BLOCKS).collect();
            for block in [all[1].start, all[1].end - 1] {
                put_node(operation, inode, block, 0, &[item(0, 1, true, 19_000)]);
                put_items(&mut inode.map, 1, &[item(0, 0, true, block)]);
                let wrong = corrupt(inode, "where an extent node lies");
                assert_eq!(insert(operation, inode, 5, Run { first: 18_000, blocks: 1 }), Err(wrong));
            }
            let block = all[1].end;
            put_node(operation, inode, block, 0, &[item(0, 1, true, 19_000)]);
            put_items(&mut inode.map, 1, &[item(0, 0, true, block)]);
            assert_eq!(insert(operation, inode, 5, Run { first: 18_000, blocks: 1 }), Ok(()));
        });
    }
}
