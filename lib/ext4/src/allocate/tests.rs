//! Blocks and inodes of a volume in memory are given out and taken back.

#![expect(clippy::single_range_in_vec_init, reason = "stretches of bits, of which there may be one")]

use alloc::vec::Vec;
use core::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::group::FLAG_INODES_ZEROED;
use crate::testing::{Memory, NOW};
use crate::{BLOCK_BYTES, Geometry, Mount};

/// Blocks of a group.
const GROUP: u64 = GROUP_BLOCKS;
/// Five groups, of which the last is half a one. All bitmaps and inodes lie in group 0, and groups
/// 1 and 3 begin with two blocks of copies.
const BLOCKS: u64 = 4 * GROUP + GROUP / 2;
/// Inodes of each group.
const INODES: u32 = 7376;
/// The first block that is free, in group 0.
const FIRST_FREE: u64 = 6418;

fn volume() -> (Memory, Mount) {
    let memory = Memory::formatted(BLOCKS);
    let mount = memory.mount();
    assert_eq!(mount.volume().geometry().inodes_per_group, INODES);
    (memory, mount)
}

fn sums(geometry: &Geometry, blocks: &Block, inodes: &Block) -> (u32, u32) {
    let sum = |bytes: &[u8]| Checksum(geometry.checksum_seed).with(bytes).0;
    (sum(blocks), sum(&inodes[..geometry.inodes_per_group as usize / 8]))
}

/// A volume of which a group says something else, with checksums that are right: its descriptor,
/// its bitmap of blocks and that of inodes.
fn altered(number: u32, change: impl FnOnce(&mut Group, &mut Block, &mut Block)) -> (Memory, Mount) {
    let mut memory = Memory::formatted(BLOCKS);
    alter(&mut memory, number, change);
    let mount = memory.mount();
    (memory, mount)
}

fn alter(memory: &mut Memory, number: u32, change: impl FnOnce(&mut Group, &mut Block, &mut Block)) {
    let mount = memory.mount();
    let geometry = mount.volume().geometry();
    let mut group = mount.volume().group(memory, number).unwrap();
    let (mut blocks, mut inodes) = (*memory.edit(group.block_bitmap), *memory.edit(group.inode_bitmap));
    change(&mut group, &mut blocks, &mut inodes);
    (group.block_bitmap_sum, group.inode_bitmap_sum) = sums(geometry, &blocks, &inodes);
    *memory.edit(group.block_bitmap) = blocks;
    *memory.edit(group.inode_bitmap) = inodes;
    group::encode(geometry, number, memory.edit(group::descriptor_block(number)), &group);
}

/// The stretches of a bitmap that are set.
fn stretches(bitmap: &Block) -> Vec<Range<u32>> {
    let mut stretches: Vec<Range<u32>> = Vec::new();
    for (byte, bits) in (0..).zip(bitmap).filter(|(_, bits)| **bits != 0) {
        for bit in (byte * 8..byte * 8 + 8).filter(|bit| bits >> (bit % 8) & 1 != 0) {
            match stretches.last_mut() {
                Some(last) if last.end == bit => last.end += 1,
                _ => stretches.push(bit..bit + 1),
            }
        }
    }
    stretches
}

/// What a group says now, whose bitmaps are there, and what is set in them.
fn told(memory: &Memory, mount: &Mount, number: u32) -> (Group, Vec<Range<u32>>, Vec<Range<u32>>) {
    let (view, volume) = (mount.view(memory), mount.volume());
    let group = volume.group(&view, number).unwrap();
    let [blocks, inodes] = [group.block_bitmap, group.inode_bitmap].map(|block| view.block(block).unwrap());
    let (block_sum, inode_sum) = sums(volume.geometry(), blocks, inodes);
    assert!(group.flags & FLAG_NO_BLOCKS != 0 || group.block_bitmap_sum == block_sum);
    assert!(group.flags & FLAG_NO_INODES != 0 || group.inode_bitmap_sum == inode_sum);
    (group, stretches(blocks), stretches(inodes))
}

/// What a group says of its blocks, and which are taken.
fn blocks_of(memory: &Memory, mount: &Mount, number: u32) -> (u32, Vec<Range<u32>>) {
    let (group, blocks, _) = told(memory, mount, number);
    (group.free_blocks, blocks)
}

fn allocate(memory: &Memory, mount: &mut Mount, goal: u64, most: u32) -> Result<Run, Stop> {
    mount.change(memory, NOW, |operation| operation.allocate(goal, most))
}

fn free(memory: &Memory, mount: &mut Mount, first: u64, blocks: u64) -> Result<(), Stop> {
    mount.change(memory, NOW, |operation| operation.free(first, blocks, false))
}

fn allocate_inode(memory: &Memory, mount: &mut Mount, parent: u32, kind: Kind) -> Result<u32, Stop> {
    mount.change(memory, NOW, |operation| operation.allocate_inode(parent, kind))
}

fn free_inode(memory: &Memory, mount: &mut Mount, inode: u32, kind: Kind) -> Result<(), Stop> {
    mount.change(memory, NOW, |operation| operation.free_inode(inode, kind))
}

fn run(first: u64, blocks: u32) -> Result<Run, Stop> {
    Ok(Run { first, blocks })
}

/// A bitmap with these stretches set.
fn bitmap(taken: &[Range<u32>]) -> Block {
    let mut bitmap = [0; BLOCK_BYTES];
    for range in taken {
        assert!(put_bits(&mut bitmap, range.start, range.end - range.start, true));
    }
    bitmap
}

proptest! {
    #[test]
    fn clear_bits_are_found_and_counted_as_one_by_one(
        words in proptest::collection::vec(prop_oneof![Just(0), Just(u64::MAX), any::<u64>()], 512),
        from in 0..GROUP_BLOCKS as u32,
        end in 0..=GROUP_BLOCKS as u32,
    ) {
        let mut bitmap = [0; BLOCK_BYTES];
        for (bytes, word) in bitmap.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        let is_clear = |bit: &u32| !is_set(&bitmap, *bit);
        prop_assert_eq!(find_clear(&bitmap, from, end), (from..end).find(is_clear));
        let clear = (from..end).take_while(is_clear).count() as u32;
        prop_assert_eq!(count_clear(&bitmap, from, end.max(from)), clear);
    }
}

#[test]
fn clear_bits_are_found_and_counted_at_the_edges_of_words_and_of_the_bitmap() {
    let shapes: [&[Range<u32>]; 6] = [&[], &[0..64], &[1..64], &[63..65], &[64..128, 130..200], &[0..300]];
    for taken in shapes {
        let bitmap = bitmap(taken);
        let is_clear = |bit: &u32| taken.iter().all(|range| !range.contains(bit));
        for from in [0, 1, 63, 64, 65, 130] {
            for end in [0, 1, 64, 65, 128, 130, 150, 201, 260] {
                let what = (taken, from, end);
                assert_eq!(find_clear(&bitmap, from, end), (from..end).find(is_clear), "{what:?}");
                let clear = (from..end).take_while(is_clear).count() as u32;
                assert_eq!(count_clear(&bitmap, from, end.max(from)), clear, "{what:?}");
            }
        }
    }
    let end = GROUP as u32;
    let (empty, full, last) = (bitmap(&[]), bitmap(&[0..end]), bitmap(&[0..end - 1]));
    assert_eq!([&empty, &full, &last].map(|bitmap| find_clear(bitmap, 0, end)), [Some(0), None, Some(end - 1)]);
    assert_eq!([&empty, &full, &last].map(|bitmap| count_clear(bitmap, 0, end)), [end, 0, 0]);
    assert_eq!((find_clear(&empty, end, end), count_clear(&empty, end, end)), (None, 0));
}

#[test]
fn bits_that_are_put_twice_stay_and_are_told() {
    let mut bits = bitmap(&[6..76]);
    assert_eq!(stretches(&bits), [6..76]);
    assert!(!put_bits(&mut bits, 70, 10, true));
    assert_eq!(stretches(&bits), [6..80]);
    assert!(!put_bits(&mut bits, 0, 10, false));
    assert_eq!(stretches(&bits), [10..80]);
    assert!(put_bits(&mut bits, 10, 70, false));
    assert_eq!(stretches(&bits), []);
}

#[test]
fn a_run_is_at_the_goal_or_the_first_that_is_long_enough_or_the_longest() {
    let bits = bitmap(&[0..10, 20..100, 105..200, 300..310, 315..1000]);
    let cases = [
        // What is at the goal, however short.
        ((12, 1000, 4), Some((12, 4))),
        ((15, 1000, 100), Some((15, 5))),
        // Behind it, as soon as it is long enough.
        ((20, 1000, 5), Some((100, 5))),
        ((20, 1000, 50), Some((200, 50))),
        // The longest, and of two the first.
        ((20, 1000, 500), Some((200, 100))),
        ((50, 200, 8), Some((10, 8))),
        ((50, 200, 12), Some((10, 10))),
        ((50, 105, 4), Some((100, 4))),
        ((300, 1000, 5), Some((310, 5))),
        // Nothing is behind the goal.
        ((400, 1000, 8), Some((10, 8))),
        ((5, 10, 8), None),
    ];
    for ((goal, end, most), expected) in cases {
        assert_eq!(find_run(&bits, goal, end, most), expected, "from {goal} to {end}, {most} of them");
    }
    let two = bitmap(&[0..100, 105..310, 315..400]);
    assert_eq!(find_run(&two, 50, 400, 7), Some((100, 5)));
    let end = GROUP as u32;
    assert_eq!(find_run(&bitmap(&[0..end - 8]), 0, end, 100), Some((end - 8, 8)));
    assert_eq!(find_run(&bitmap(&[0..end]), 7, end, 1), None);
}

#[test]
fn blocks_are_at_their_goal_or_in_the_next_group_that_has_some() {
    let (memory, mut mount) = volume();
    let (memory, mount) = (&memory, &mut mount);
    let cases = [
        ((40_000, 10), run(40_000, 10)),
        ((40_000, 10), run(40_010, 10)),
        // Behind the copies at the head of a group.
        ((GROUP, 1), run(GROUP + 2, 1)),
        // All that is left of a group: the longest first, and then the next group's.
        ((GROUP, u32::MAX), run(40_020, (2 * GROUP - 40_020) as u32)),
        ((GROUP, u32::MAX), run(GROUP + 3, (40_000 - GROUP - 3) as u32)),
        ((40_000, 7), run(2 * GROUP, 7)),
        // Behind the end the volume begins anew.
        ((BLOCKS, 1), run(FIRST_FREE, 1)),
        ((u64::MAX, 1), run(FIRST_FREE + 1, 1)),
        ((BLOCKS - 1, 5), run(BLOCKS - 1, 1)),
        ((4 * GROUP, u32::MAX), run(4 * GROUP, (GROUP / 2 - 1) as u32)),
        ((BLOCKS - 1, 1), run(FIRST_FREE + 2, 1)),
    ];
    let before = mount.free().0;
    let mut given = 0;
    for ((goal, most), expected) in cases {
        assert_eq!(allocate(memory, mount, goal, most), expected, "{most} at {goal}");
        given += u64::from(expected.unwrap().blocks);
    }
    assert_eq!(mount.free().0, before - given);
    assert_eq!(blocks_of(memory, mount, 0), ((GROUP - FIRST_FREE - 3) as u32, Vec::from([0..FIRST_FREE as u32 + 3])));
    assert_eq!(blocks_of(memory, mount, 1), (0, Vec::from([0..GROUP as u32])));
    assert_eq!(blocks_of(memory, mount, 2), (GROUP as u32 - 7, Vec::from([0..7])));
    assert_eq!(blocks_of(memory, mount, 4), (0, Vec::from([0..GROUP as u32])), "with the bits behind the end");
}

#[test]
fn the_bitmap_of_a_group_that_nobody_used_has_what_each_reader_knows() {
    let half = GROUP as u32 / 2;
    let expected: [(u32, &[Range<u32>]); 4] = [
        (GROUP as u32 - 3, &[0..3]),
        (GROUP as u32 - 1, &[0..1]),
        (GROUP as u32 - 3, &[0..3]),
        (half - 1, &[0..1, half..GROUP as u32]),
    ];
    let (memory, mut mount) = altered(4, |group, blocks, _| {
        group.flags |= FLAG_NO_BLOCKS;
        blocks.fill(0xA5);
    });
    for (number, (free, taken)) in (1..).zip(expected) {
        let goal = u64::from(number) * GROUP;
        allocate(&memory, &mut mount, goal, 1).unwrap();
        let (group, blocks, _) = told(&memory, &mount, number);
        assert_eq!((group.free_blocks, &blocks[..]), (free, taken), "group {number}");
        assert_eq!(group.flags & (FLAG_NO_BLOCKS | FLAG_INODES_ZEROED), FLAG_INODES_ZEROED, "group {number}");
        assert_ne!(group.flags & FLAG_NO_INODES, 0, "group {number} has no inode");
    }
}

#[test]
fn blocks_that_are_given_back_are_free_as_before() {
    let (memory, mut mount) = volume();
    let (before, middle) = (mount.free(), 2 * GROUP);
    assert_eq!(allocate(&memory, &mut mount, middle - 4, 4), run(middle - 4, 4));
    assert_eq!(allocate(&memory, &mut mount, middle, 4), run(middle, 4));
    assert_eq!(mount.free().0, before.0 - 8);
    // Of two groups at once.
    free(&memory, &mut mount, middle - 4, 8).unwrap();
    assert_eq!(mount.free(), before);
    assert_eq!(blocks_of(&memory, &mount, 1), (GROUP as u32 - 2, Vec::from([0..2])));
    assert_eq!(blocks_of(&memory, &mount, 2), (GROUP as u32, Vec::new()));
    // The parts of three, and all of one.
    let (mut memory, mut mount) = volume();
    let all = [(middle - 1, 1), (middle, GROUP as u32), (middle + GROUP + 2, 9)];
    for (first, blocks) in all {
        assert_eq!(allocate(&memory, &mut mount, first, blocks), run(first, blocks));
    }
    free(&memory, &mut mount, middle - 1, 1 + GROUP).unwrap();
    free(&memory, &mut mount, middle + GROUP + 2, 9).unwrap();
    assert_eq!(mount.free(), before);
    assert_eq!(blocks_of(&memory, &mount, 2), (GROUP as u32, Vec::new()));
    assert_eq!(blocks_of(&memory, &mount, 3), (GROUP as u32 - 2, Vec::from([0..2])));
    assert_eq!(allocate(&memory, &mut mount, 40_000, 5), run(40_000, 5));
    mount.close();
    memory.write(&mut mount);
    assert_eq!(memory.mount().free(), (before.0 - 5, before.1), "by its groups");
    let count = |at: usize| u32::from_le_bytes(memory.block(0).unwrap()[at..at + 4].try_into().unwrap());
    assert_eq!((count(1024 + 12), count(1024 + 16)), (before.0 as u32 - 5, before.1 as u32), "by its super block");
}

#[test]
fn freed_blocks_are_given_out_again_only_when_that_lasts() {
    let (mut memory, mut mount) = volume();
    let middle = 2 * GROUP;
    mount
        .change(&memory, NOW, |operation| {
            operation.allocate(middle - 4, 4)?;
            operation.allocate(middle, 4)?;
            operation.free(middle - 4, 8, false)?;
            // Neither in the operation that freed them, nor in another.
            assert_eq!(operation.allocate(middle, 3), run(middle + 4, 3));
            Ok(())
        })
        .unwrap();
    assert_eq!(allocate(&memory, &mut mount, middle - 4, 4), run(GROUP + 2, 4));
    assert_eq!(allocate(&memory, &mut mount, middle + 1, 2), run(middle + 7, 2));
    assert_eq!(allocate(&memory, &mut mount, middle - 5, 9), run(middle - 5, 1));
    memory.write(&mut mount);
    assert_eq!(allocate(&memory, &mut mount, middle - 4, 9), run(middle - 4, 4));
    assert_eq!(allocate(&memory, &mut mount, middle, 9), run(middle, 4));
}

#[test]
fn a_full_volume_says_so_and_asks_for_the_commit_that_makes_room() {
    let (mut memory, mut mount) = volume();
    let mut given = 0;
    let end = loop {
        match allocate(&memory, &mut mount, 40_000, u32::MAX) {
            Ok(run) => given += u64::from(run.blocks),
            Err(stop) => break stop,
        }
    };
    assert_eq!(end, Error::NoSpace.into());
    assert_eq!((mount.free().0, given), (0, memory.mount().free().0));
    free(&memory, &mut mount, 70_000, 1).unwrap();
    let number = mount.running();
    assert_eq!(allocate(&memory, &mut mount, 40_000, 1), Err(Stop::Commit(number)));
    memory.write(&mut mount);
    assert_eq!(mount.lasts(number), Ok(true));
    assert_eq!(allocate(&memory, &mut mount, 40_000, 1), run(70_000, 1));
    assert_eq!(allocate(&memory, &mut mount, 40_000, 1), Err(Error::NoSpace.into()));
}

/// Expects that it ends so, and that nothing is changed.
fn expect_corrupt<T: core::fmt::Debug + PartialEq>(
    (memory, mut mount): (Memory, Mount),
    expected: (&'static str, u64),
    operation: impl FnOnce(&mut Operation<'_, Memory>) -> Result<T, Stop>,
) {
    let before = mount.free();
    let (what, at) = expected;
    assert_eq!(mount.change(&memory, NOW, operation), Err(Error::corrupt(what, at)));
    assert_eq!((mount.free(), mount.sync_all()), (before, None));
}

#[test]
fn bitmaps_of_blocks_that_lie_are_refused() {
    let mut memory = Memory::formatted(BLOCKS);
    let bitmap = memory.mount().volume().group(&memory, 0).unwrap().block_bitmap;
    memory.edit(bitmap)[4000] ^= 1;
    let mount = memory.mount();
    let sum = ("the checksum of a bitmap of blocks", 0);
    expect_corrupt((memory, mount), sum, |operation| operation.allocate(FIRST_FREE, 1));
    // More is clear than the group says.
    let few = altered(0, |group, _, _| group.free_blocks = 3);
    expect_corrupt(few, ("a bitmap of blocks", 0), |operation| operation.allocate(FIRST_FREE, 4));
    let less = altered(1, |group, _, _| group.free_blocks -= 1);
    expect_corrupt(less, ("the free blocks of a group", 1), |operation| operation.allocate(GROUP, 1));
    // The copies at the head of a group are no file's.
    let headless = || {
        altered(1, |group, _, _| {
            group.flags &= !FLAG_NO_BLOCKS;
            group.free_blocks += 2;
        })
    };
    expect_corrupt(headless(), ("a bitmap of blocks", 1), |operation| operation.allocate(GROUP, 1));
    expect_corrupt(headless(), ("a bitmap of blocks", 1), |operation| operation.allocate(GROUP, 100));
}

#[test]
fn no_block_behind_the_volumes_end_is_given_out() {
    let (memory, mut mount) = altered(4, |_, blocks, _| blocks.fill(0));
    assert_eq!(allocate(&memory, &mut mount, BLOCKS - 1, 2), run(BLOCKS - 1, 1));
    assert_eq!(allocate(&memory, &mut mount, 4 * GROUP, u32::MAX), run(4 * GROUP, (GROUP / 2 - 1) as u32));
}

#[test]
fn only_blocks_that_a_file_can_have_are_freed_and_only_once() {
    const WRONG: &str = "blocks that are to be freed";
    for (first, blocks) in [(BLOCKS - 1, 2), (BLOCKS, 1), (u64::MAX, 2)] {
        expect_corrupt(volume(), (WRONG, 0), |operation| operation.free(first, blocks, false));
    }
    // Free ones, and one of three.
    expect_corrupt(volume(), (WRONG, 2), |operation| operation.free(2 * GROUP, 1, false));
    let one = altered(4, |group, blocks, _| {
        put_bits(blocks, 5, 1, true);
        group.free_blocks -= 1;
    });
    expect_corrupt(one, (WRONG, 4), |operation| operation.free(4 * GROUP + 4, 3, false));
    // What is no file's.
    expect_corrupt(volume(), (WRONG, 1), |operation| operation.free(GROUP, 1, false));
    expect_corrupt(volume(), (WRONG, 0), |operation| operation.free(2, 1, false));
    // A group has no more free blocks than blocks.
    let full = altered(4, |_, blocks, _| assert!(put_bits(blocks, 5, 1, true)));
    expect_corrupt(full, (WRONG, 4), |operation| operation.free(4 * GROUP + 5, 1, false));
    // Twice.
    let (memory, mut mount) = volume();
    allocate(&memory, &mut mount, 70_000, 4).unwrap();
    free(&memory, &mut mount, 70_000, 4).unwrap();
    assert_eq!(free(&memory, &mut mount, 70_000, 4), Err(Error::corrupt(WRONG, 2)));
}

#[test]
fn an_inode_is_in_its_parents_group_and_directories_in_the_root_are_apart() {
    let (memory, mut mount) = volume();
    let before = mount.free();
    let first = |group: u32| group * INODES + 1;
    let cases = [
        ((ROOT, Kind::File), 12),
        ((INODES, Kind::File), 13),
        ((first(1), Kind::File), first(1)),
        ((first(1), Kind::Directory), first(1) + 1),
        ((2 * INODES, Kind::Link), first(1) + 2),
        // Group 0 has two directories already, and group 1 now has one.
        ((ROOT, Kind::Directory), first(2)),
        ((ROOT, Kind::Directory), first(3)),
        ((ROOT, Kind::Directory), first(4)),
        ((ROOT, Kind::File), 14),
    ];
    for ((parent, kind), expected) in cases {
        assert_eq!(allocate_inode(&memory, &mut mount, parent, kind), Ok(expected), "{kind:?} in {parent}");
    }
    assert_eq!(mount.free(), (before.0, before.1 - 9));
    let (group, blocks, inodes) = told(&memory, &mount, 1);
    assert_eq!((group.free_inodes, group.unused_inodes, group.directories), (INODES - 3, INODES - 3, 1));
    assert_eq!(group.flags, FLAG_INODES_ZEROED, "both bitmaps are there");
    assert_eq!(blocks, [0..2]);
    assert_eq!(inodes, [0..3, INODES..GROUP as u32]);
    let (group, _, inodes) = told(&memory, &mount, 0);
    assert_eq!((group.free_inodes, group.unused_inodes, group.directories), (INODES - 14, INODES - 14, 2));
    assert_eq!(inodes, [0..14, INODES..GROUP as u32]);
}

#[test]
fn an_inode_of_a_group_in_use_changes_its_bitmap_and_its_descriptor_only() {
    let (memory, mut mount) = volume();
    let bitmap = mount.volume().group(&memory, 0).unwrap().inode_bitmap;
    let changed = mount.change(&memory, NOW, |operation| {
        operation.allocate_inode(ROOT, Kind::File)?;
        Ok(operation.blocks.changes.blocks.keys().copied().collect::<Vec<u64>>())
    });
    assert_eq!(changed, Ok(Vec::from([1, bitmap])));
}

#[test]
fn a_directory_in_the_root_is_where_room_is_for_it_and_its_files() {
    let mut memory = Memory::formatted(BLOCKS);
    alter(&mut memory, 1, |group, _, _| group.directories = 1);
    alter(&mut memory, 2, |group, _, _| group.free_inodes = 0);
    alter(&mut memory, 3, |group, _, _| group.free_blocks = 0);
    alter(&mut memory, 4, |group, _, _| group.directories = 1);
    let mut mount = memory.mount();
    assert_eq!(allocate_inode(&memory, &mut mount, ROOT, Kind::Directory), Ok(INODES + 1));
    // Now group 1 has two, too, but group 4 only one.
    assert_eq!(allocate_inode(&memory, &mut mount, ROOT, Kind::Directory), Ok(4 * INODES + 1));
}

#[test]
fn the_next_group_with_a_free_inode_gives_it_and_the_first_after_the_last() {
    let mut memory = Memory::formatted(BLOCKS);
    let none = |group: &mut Group, _: &mut Block, _: &mut Block| group.free_inodes = 0;
    for number in [1, 4] {
        alter(&mut memory, number, none);
    }
    let mut mount = memory.mount();
    assert_eq!(allocate_inode(&memory, &mut mount, INODES + 1, Kind::File), Ok(2 * INODES + 1));
    assert_eq!(allocate_inode(&memory, &mut mount, 4 * INODES + 1, Kind::File), Ok(12));
    for number in [0, 2, 3] {
        alter(&mut memory, number, none);
    }
    let mut mount = memory.mount();
    assert_eq!(allocate_inode(&memory, &mut mount, ROOT, Kind::File), Err(Error::NoSpace.into()));
    assert_eq!(allocate_inode(&memory, &mut mount, ROOT, Kind::Directory), Err(Error::NoSpace.into()));
}

#[test]
fn bitmaps_of_inodes_that_lie_are_refused() {
    const COUNT: &str = "the free inodes of a group";
    let file = |operation: &mut Operation<'_, Memory>| operation.allocate_inode(ROOT, Kind::File);
    let mut memory = Memory::formatted(BLOCKS);
    let bitmap = memory.mount().volume().group(&memory, 0).unwrap().inode_bitmap;
    memory.edit(bitmap)[INODES as usize / 8 - 1] ^= 1;
    let mount = memory.mount();
    expect_corrupt((memory, mount), ("the checksum of a bitmap of inodes", 0), file);
    expect_corrupt(altered(0, |_, _, inodes| inodes.fill(0xFF)), (COUNT, 0), file);
    let less = altered(1, |group, _, _| group.free_inodes -= 1);
    expect_corrupt(less, (COUNT, 1), |operation| operation.allocate_inode(INODES + 1, Kind::File));
    // An inode that is somebody's by its number; the first that is nobody's can be free.
    let reserved = altered(0, |_, _, inodes| assert!(put_bits(inodes, 9, 1, false)));
    expect_corrupt(reserved, ("a bitmap of inodes", 0), file);
    let lowest = altered(0, |_, _, inodes| assert!(put_bits(inodes, 4, 1, false)));
    expect_corrupt(lowest, ("a bitmap of inodes", 0), file);
    let (memory, mut mount) = altered(0, |group, _, inodes| {
        assert!(put_bits(inodes, 10, 1, false));
        group.free_inodes += 1;
    });
    assert_eq!(allocate_inode(&memory, &mut mount, ROOT, Kind::File), Ok(11));
    assert_eq!(told(&memory, &mount, 0).0.unused_inodes, INODES - 11, "as before");
}

#[test]
fn an_inode_that_is_given_back_is_free_and_zeros() {
    let mut memory = Memory::formatted(BLOCKS);
    // The last one of group 0 is taken, and has bytes, as has the one before.
    alter(&mut memory, 0, |group, _, inodes| {
        assert!(put_bits(inodes, INODES - 1, 1, true));
        group.free_inodes -= 1;
        group.unused_inodes = 0;
    });
    let (block, at) = memory.mount().volume().inode_place(&memory, INODES).unwrap();
    memory.edit(block).fill(0x5A);
    let mut mount = memory.mount();
    let before = mount.free();
    free_inode(&memory, &mut mount, INODES, Kind::File).unwrap();
    assert_eq!(mount.free(), (before.0, before.1 + 1));
    let (group, _, inodes) = told(&memory, &mount, 0);
    assert_eq!((group.free_inodes, group.directories), (INODES - 11, 2));
    assert_eq!(inodes, [0..11, INODES..GROUP as u32]);
    let view = mount.view(&memory);
    let bytes = view.block(block).unwrap();
    assert!(bytes[at..at + 256].iter().all(|byte| *byte == 0) && bytes[..at].iter().all(|byte| *byte == 0x5A));
    let again = free_inode(&memory, &mut mount, INODES, Kind::File);
    assert_eq!(again, Err(Error::corrupt("an inode that is to be freed", 0)), "once");
    // A directory in another group.
    let directory = allocate_inode(&memory, &mut mount, ROOT, Kind::Directory).unwrap();
    assert_eq!((directory, told(&memory, &mount, 2).0.directories), (2 * INODES + 1, 1));
    free_inode(&memory, &mut mount, directory, Kind::Directory).unwrap();
    let (group, _, inodes) = told(&memory, &mount, 2);
    assert_eq!((group.free_inodes, group.directories), (INODES, 0));
    assert_eq!(inodes, [INODES..GROUP as u32]);
    assert_eq!(mount.free(), (before.0, before.1 + 1));
}

#[test]
fn an_inode_of_a_group_in_which_all_are_free_is_not_freed() {
    let full = altered(0, |group, _, _| group.free_inodes = INODES);
    expect_corrupt(full, ("an inode that is to be freed", 0), |operation| operation.free_inode(11, Kind::Directory));
}
