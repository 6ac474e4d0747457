//! Trees of extents made by hand, that are right or lie.

use alloc::vec::Vec;

use super::*;
use crate::Kind;
use crate::testing::{self, Memory};

/// Blocks of the volume; some numbers of them have more than 32 bits.
const BLOCKS: u64 = 1 << 36;
const NUMBER: u32 = 12;
const HEAD: &str = "the head of an extent node";

fn geometry() -> Geometry {
    testing::geometry(BLOCKS)
}

fn file() -> Inode {
    testing::inode(&geometry(), NUMBER, Kind::File)
}

/// An entry of a leaf; `length` as it is stored.
fn extent_of(logical: u32, length: u16, physical: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&logical.to_le_bytes());
    bytes[4..6].copy_from_slice(&length.to_le_bytes());
    bytes[6..8].copy_from_slice(&((physical >> 32) as u16).to_le_bytes());
    bytes[8..].copy_from_slice(&(physical as u32).to_le_bytes());
    bytes
}

/// An entry of a node above.
fn index_of(logical: u32, child: u64) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&logical.to_le_bytes());
    bytes[4..10].copy_from_slice(&child.to_le_bytes()[..6]);
    bytes
}

/// Writes a node that says that it has room for `max` entries.
fn put(node: &mut [u8], depth: u16, max: u16, entries: &[[u8; 12]]) {
    for (word, at) in [(0xF30A, 0), (entries.len() as u16, 2), (max, 4), (depth, 6)] {
        node[at..at + 2].copy_from_slice(&word.to_le_bytes());
    }
    for (entry, place) in entries.iter().zip(node[12..].chunks_exact_mut(12)) {
        place.copy_from_slice(entry);
    }
}

/// Writes a node below the root, with its checksum.
fn put_block(memory: &mut Memory, number: u64, depth: u16, max: u16, entries: &[[u8; 12]]) {
    let block = memory.edit(number);
    put(block, depth, max, entries);
    sum(block, max);
}

fn sum(block: &mut Block, max: u16) {
    let end = 12 * (1 + usize::from(max));
    let sum = file().seed().with(&block[..end]).0;
    block[end..end + 4].copy_from_slice(&sum.to_le_bytes());
}

fn with_root(depth: u16, entries: &[[u8; 12]]) -> Inode {
    let mut inode = file();
    put(&mut inode.map, depth, 4, entries);
    inode
}

/// Why it is refused.
fn refused<T: core::fmt::Debug>(result: Result<T, Stop>) -> &'static str {
    match result {
        Err(Stop::Failed(Error::Corrupt { what, at })) if at == u64::from(NUMBER) => what,
        other => panic!("{other:?}"),
    }
}

fn at(place: Place, blocks: u64) -> Result<Stretch, Stop> {
    Ok(Stretch { place, blocks })
}

#[test]
fn blocks_are_found_through_two_levels_and_holes_are_told_to_their_end() {
    let mut memory = Memory::zeros(BLOCKS);
    let far = 0x2_0000_0005;
    let inode = with_root(2, &[index_of(10, far), index_of(1000, 6)]);
    put_block(&mut memory, far, 1, 340, &[index_of(20, 7), index_of(100, 8)]);
    // A node may have room for less than a block has.
    let unwritten = 0x8000 + 4;
    put_block(&mut memory, 7, 0, 3, &[extent_of(20, 5, 0x3_0000_0100), extent_of(30, unwritten, 200)]);
    put_block(&mut memory, 8, 0, 340, &[extent_of(100, 900, 1000)]);
    put_block(&mut memory, 6, 1, 340, &[index_of(1000, 9)]);
    put_block(&mut memory, 9, 0, 340, &[extent_of(1000, 0x8000, 0x5_0000_0000)]);
    let cases = [
        // In front of all nodes, and of all entries of one below.
        (0, Place::Hole, 10),
        (9, Place::Hole, 1),
        (12, Place::Hole, 8),
        (20, Place::Written(0x3_0000_0100), 5),
        (24, Place::Written(0x3_0000_0104), 1),
        (25, Place::Hole, 5),
        (30, Place::Unwritten(200), 4),
        (33, Place::Unwritten(203), 1),
        (34, Place::Hole, 66),
        (99, Place::Hole, 1),
        (100, Place::Written(1000), 900),
        (999, Place::Written(1899), 1),
        (1000, Place::Written(0x5_0000_0000), 0x8000),
        (0x8000 + 1000, Place::Hole, (1 << 32) - 0x8000 - 1000),
        (u32::MAX, Place::Hole, 1),
    ];
    for (logical, place, blocks) in cases {
        assert_eq!(find(&geometry(), &memory, &inode, logical), at(place, blocks), "{logical}");
    }
}

#[test]
fn a_map_of_blocks_that_follow_each_other_leads_to_them() {
    let mut inode = file();
    let first = 0x3_0000_0010;
    inode.map = root_of(first..first + 40_000);
    let memory = Memory::zeros(BLOCKS);
    let find = |logical| find(&geometry(), &memory, &inode, logical);
    assert_eq!(find(0), at(Place::Written(first), 32_768));
    assert_eq!(find(32_768), at(Place::Written(first + 32_768), 7232));
    assert_eq!(find(40_000), at(Place::Hole, (1 << 32) - 40_000));
    inode.map = root_of(0..0);
    let empty = super::find(&geometry(), &memory, &inode, 5);
    assert_eq!(empty, at(Place::Hole, (1 << 32) - 5));
}

#[test]
fn a_root_is_of_five_levels_at_most_and_has_a_right_head() {
    assert_eq!(check_root(&with_root(5, &[index_of(0, 5)])), Ok(()));
    assert_eq!(refused(check_root(&with_root(6, &[index_of(0, 5)]))), "the depth of an extent tree");
    assert_eq!(check_root(&with_root(0, &[])), Ok(()));
    let head = |at: usize, value: u8| {
        let mut inode = with_root(0, &[extent_of(0, 1, 5)]);
        inode.map[at] = value;
        check_root(&inode)
    };
    assert_eq!(head(4, 1), Ok(()), "with room for one entry only");
    // Another magic number; more entries than room; more room than there is.
    for (at, value) in [(0, 0x0B), (2, 5), (4, 0), (4, 5)] {
        assert_eq!(refused(head(at, value)), HEAD, "byte {at}");
    }
}

#[test]
fn a_node_below_the_root_is_refused_for_what_is_wrong_with_it() {
    let inode = with_root(1, &[index_of(0, 5)]);
    let good = |block: &mut Block| put(block, 0, 340, &[extent_of(0, 1, 9)]);
    let result = |change: &dyn Fn(&mut Block), max| {
        let mut memory = Memory::zeros(BLOCKS);
        let block = memory.edit(5);
        good(block);
        change(block);
        if max > 0 {
            sum(block, max);
        }
        find(&geometry(), &memory, &inode, 0)
    };
    assert_eq!(result(&|_| {}, 340), at(Place::Written(9), 1));
    assert_eq!(refused(result(&|block| block[0] = 0x0B, 340)), HEAD);
    assert_eq!(refused(result(&|block| block[2] = 0, 340)), HEAD, "no entry");
    assert_eq!(refused(result(&|block| block[2..6].copy_from_slice(&[3, 0, 2, 0]), 2)), HEAD, "more than it has room");
    assert_eq!(refused(result(&|block| block[4..6].copy_from_slice(&[0x55, 1]), 0)), HEAD, "room for 341");
    assert_eq!(refused(result(&|block| block[6] = 1, 340)), "the depth of an extent node");
    let sum_is_wrong = "an extent node's checksum";
    assert_eq!(refused(result(&|_| {}, 0)), sum_is_wrong, "no checksum");
    assert_eq!(
        refused(result(&|block| block[4..6].copy_from_slice(&[9, 0]), 340)),
        sum_is_wrong,
        "not behind its room"
    );
}

/// What is said of a node of that depth with these entries, whose parent says 10..20.
fn checked(depth: u16, entries: &[[u8; 12]]) -> Result<(), Stop> {
    let inode = with_root(depth, entries);
    check_entries(&geometry(), &inode, &inode.map, depth, Span { first: 10, end: 20 })
}

#[test]
fn extents_are_in_order_inside_their_node_and_inside_the_volume() {
    const LAST: u64 = BLOCKS - 1;
    let right: [&[[u8; 12]]; 5] = [
        &[],
        &[extent_of(10, 10, 100)],
        &[extent_of(10, 5, 100), extent_of(15, 5, 50)],
        &[extent_of(12, 1, LAST)],
        &[extent_of(12, 0x8001, 1)],
    ];
    for entries in right {
        assert_eq!(checked(0, entries), Ok(()), "{entries:?}");
    }
    let wrong: [&[[u8; 12]]; 10] = [
        &[extent_of(9, 1, 100)],
        &[extent_of(10, 11, 100)],
        &[extent_of(15, 9, 100)],
        &[extent_of(12, 0, 100)],
        &[extent_of(12, 1, 0)],
        &[extent_of(12, 1, BLOCKS)],
        &[extent_of(12, 2, LAST)],
        &[extent_of(12, 0x8002, LAST)],
        &[extent_of(10, 5, 100), extent_of(14, 2, 200)],
        &[extent_of(15, 2, 100), extent_of(10, 2, 200)],
    ];
    for entries in wrong {
        assert_eq!(refused(checked(0, entries)), "an extent", "{entries:?}");
    }
}

#[test]
fn entries_above_are_in_order_inside_their_node_and_lead_into_the_volume() {
    let right: [&[[u8; 12]]; 3] =
        [&[index_of(10, 5)], &[index_of(10, 5), index_of(19, BLOCKS - 1)], &[index_of(12, 5), index_of(13, 6)]];
    for entries in right {
        assert_eq!(checked(1, entries), Ok(()), "{entries:?}");
    }
    let wrong: [&[[u8; 12]]; 8] = [
        &[index_of(9, 5)],
        &[index_of(12, 5), index_of(12, 6)],
        &[index_of(15, 5), index_of(12, 6)],
        &[index_of(20, 5)],
        &[index_of(25, 5)],
        &[index_of(10, 5), index_of(25, 6)],
        &[index_of(10, 0)],
        &[index_of(10, BLOCKS)],
    ];
    for entries in wrong {
        assert_eq!(refused(checked(1, entries)), "an entry of an extent node", "{entries:?}");
    }
    assert_eq!(refused(checked(1, &[])), ORDER, "a node above has children");
}

#[test]
fn a_root_with_wrong_entries_leads_nowhere() {
    let memory = Memory::zeros(BLOCKS);
    let overlapping = with_root(0, &[extent_of(0, 5, 100), extent_of(4, 2, 200)]);
    assert_eq!(refused(find(&geometry(), &memory, &overlapping, 0)), "an extent");
    let swapped = with_root(1, &[index_of(5, 100), index_of(4, 200)]);
    assert_eq!(refused(find(&geometry(), &memory, &swapped, 5)), "an entry of an extent node");
}

/// What was found right once may have been about another part of the file.
#[test]
fn a_node_does_not_tell_of_blocks_that_it_does_not_cover() {
    let span = Span { first: 10, end: 20 };
    let find_in = |entries: &[[u8; 12]], logical| {
        let inode = with_root(0, entries);
        leaf(&geometry(), &inode, &inode.map, span, logical)
    };
    assert_eq!(find_in(&[], 19), at(Place::Hole, 1));
    assert_eq!(refused(find_in(&[], 20)), ORDER);
    assert_eq!(find_in(&[extent_of(20, 1, 100)], 15), at(Place::Hole, 5));
    assert_eq!(refused(find_in(&[extent_of(21, 1, 100)], 15)), ORDER);
    let empty = with_root(1, &[]);
    let (child, below) = descend(&geometry(), &empty, &empty.map, span, 19).unwrap();
    assert_eq!((child, below.first, below.end), (None, 10, 20));
    let behind = descend(&geometry(), &empty, &empty.map, span, 20).map(|(child, _)| child);
    assert_eq!(refused(behind), ORDER);
    let children: Vec<_> = [12, 14, 15]
        .map(|logical| {
            let inode = with_root(1, &[index_of(12, 5), index_of(15, 6)]);
            descend(&geometry(), &inode, &inode.map, span, logical).unwrap().0
        })
        .into();
    assert_eq!(children, [Some(5), Some(5), Some(6)]);
}
