//! Nodes of an index, made by hand.

use alloc::vec;

use super::*;
use crate::checksum::Checksum;
use crate::inode::Kind;
use crate::testing;

fn directory() -> Inode {
    testing::inode(&testing::geometry(1000), 12, Kind::Directory)
}

/// Branches with the hashes 0, 100, 200 and so on, to the blocks 1, 2, 3.
fn branches(count: u32) -> Vec<Branch> {
    (0..count).map(|at| Branch { hash: 100 * at, block: 1 + at }).collect()
}

/// A node below the root.
fn node_of(directory: &Inode, branches: &[Branch]) -> Block {
    let mut block = [0xEE; BLOCK_BYTES];
    begin_node(&mut block);
    put_branches(directory, &mut block, NODE_AT, branches);
    block
}

fn read(directory: &Inode, block: &Block, at: usize) -> Result<Vec<Branch>, Stop> {
    check_sum(directory, block, at)?;
    node(directory, block, at).map(|node| node.branches())
}

#[test]
fn a_root_is_what_e2fsck_writes() {
    // `/many` of a volume of mkfs.ext4 with the identity 3112f7b7-a1e6-4c53-b667-f6e6a1880767, and
    // 40 names in it, by e2fsck -fD; its inode is 12, of generation 0.
    let words = [
        (0, 0xC),
        (1, 0x0201_000C),
        (2, 0x2E),
        (3, 2),
        (4, 0x0202_0FF4),
        (5, 0x2E2E),
        (7, 0x801),
        (8, 0x3_01FB),
        (9, 1),
        (10, 0x5E55_D1F8),
        (11, 2),
        (12, 0xB97A_C3A8),
        (13, 3),
        (1023, 0xCC79_986F_u32),
    ];
    let mut expected: Block = [0; BLOCK_BYTES];
    for (at, word) in words {
        expected[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
    }
    let identity = b"\x31\x12\xF7\xB7\xA1\xE6\x4C\x53\xB6\x67\xF6\xE6\xA1\x88\x07\x67";
    let mut directory = directory();
    directory.checksum_seed = Checksum::START.with(identity).with_u32(12).with_u32(0).0;
    let branches = [(0, 1), (0x5E55_D1F8, 2), (0xB97A_C3A8, 3)].map(|(hash, block)| Branch { hash, block });
    // What was in the block behind the first two entries is gone.
    let mut block = [0xEE; BLOCK_BYTES];
    block[..ROOT_AT - 8].copy_from_slice(&expected[..ROOT_AT - 8]);
    begin_root(&mut block, 1);
    put_branches(&directory, &mut block, ROOT_AT, &branches);
    assert!(block == expected);
    assert_eq!(read(&directory, &expected, ROOT_AT), Ok(branches.to_vec()));
    assert_eq!(levels(&directory, &expected), Ok(Some(0)));
}

#[test]
fn a_node_begins_with_an_entry_over_its_whole_block() {
    let directory = directory();
    let mut block = node_of(&directory, &branches(2));
    assert_eq!(block[..NODE_AT], [0, 0, 0, 0, 0, 0x10, 0, 0]);
    // Limit and count, then the pairs.
    assert_eq!(block[8..24], [0xFE, 1, 2, 0, 1, 0, 0, 0, 100, 0, 0, 0, 2, 0, 0, 0]);
    assert!(block[24..BLOCK_BYTES - 4].iter().all(|byte| *byte == 0));
    assert!(is_node(&block));
    for at in 0..NODE_AT {
        block[at] ^= 0x20;
        assert!(!is_node(&block), "byte {at}");
        block[at] ^= 0x20;
    }
    assert!(!is_node(&crate::directory::new_block(directory.seed(), &[(b".", 12), (b"..", 2)])));
    assert!(!is_node(&[0; BLOCK_BYTES]));
}

#[test]
fn nodes_have_room_for_as_many_as_in_linux() {
    assert_eq!((limit(ROOT_AT), limit(NODE_AT)), (507, 510));
    let directory = directory();
    let mut root = [0; BLOCK_BYTES];
    begin_root(&mut root, 1);
    for (block, at, most) in [(&mut root, ROOT_AT, 507), (&mut node_of(&directory, &[]), NODE_AT, 510)] {
        for count in [1, 2, most] {
            put_branches(&directory, block, at, &branches(count));
            assert_eq!(read(&directory, block, at), Ok(branches(count)));
        }
    }
}

#[test]
fn counts_that_cannot_be_are_refused() {
    let directory = directory();
    let wrong = Err(corrupt(&directory, "the counts of an index"));
    for (limit, count) in [(510, 0), (510, 511), (509, 3), (511, 3), (507, 3), (0, 0), (0, 3), (3, 3), (u16::MAX, 3)] {
        let mut block = node_of(&directory, &branches(3));
        let sum = block[BLOCK_BYTES - 4..].to_vec();
        block[NODE_AT..NODE_AT + 2].copy_from_slice(&u16::to_le_bytes(limit));
        block[NODE_AT + 2..NODE_AT + 4].copy_from_slice(&u16::to_le_bytes(count));
        assert_eq!(read(&directory, &block, NODE_AT), wrong, "{limit} {count}");
        assert_eq!(node(&directory, &block, NODE_AT).map(|node| node.branches()), wrong, "{limit} {count}");
        put_sum(&directory, &mut block, NODE_AT);
        assert_eq!(block[BLOCK_BYTES - 4..], sum, "it has no checksum, so none is written");
    }
}

#[test]
fn the_checksum_is_of_all_that_counts() {
    let directory = directory();
    let right = node_of(&directory, &branches(3));
    let wrong = Err(corrupt(&directory, "an index's checksum"));
    // The first entry, the node's block, the last pair, the tail before the sum, and the sum.
    for at in [0, 12, 16, 31, BLOCK_BYTES - 8, BLOCK_BYTES - 5, BLOCK_BYTES - 4, BLOCK_BYTES - 1] {
        let mut block = right;
        block[at] ^= 1;
        assert_eq!(check_sum(&directory, &block, NODE_AT), wrong, "byte {at}");
        if at < BLOCK_BYTES - 4 {
            put_sum(&directory, &mut block, NODE_AT);
            assert_eq!(check_sum(&directory, &block, NODE_AT), Ok(()), "byte {at}");
        }
    }
    // What lies behind the entries does not count.
    for at in [32, 2000, BLOCK_BYTES - 9] {
        let mut block = right;
        block[at] ^= 1;
        assert_eq!(check_sum(&directory, &block, NODE_AT), Ok(()), "byte {at}");
    }
    let other = testing::inode(&testing::geometry(1000), 13, Kind::Directory);
    assert!(check_sum(&other, &right, NODE_AT).is_err(), "it is another directory's");
}

#[test]
fn hashes_out_of_order_are_refused_and_equal_ones_are_not() {
    let directory = directory();
    let of = |hashes: [u32; 4]| {
        let branches = hashes.map(|hash| Branch { hash, block: 7 });
        read(&directory, &node_of(&directory, &branches), NODE_AT).map(drop)
    };
    assert_eq!(of([0, 1, 2, u32::MAX]), Ok(()));
    assert_eq!(of([0, 5, 5, 5]), Ok(()));
    for hashes in [[0, 2, 1, 3], [0, 1, 3, 2], [0, u32::MAX, 0, 1]] {
        assert_eq!(of(hashes), Err(corrupt(&directory, "the order of an index")), "{hashes:?}");
    }
}

#[test]
fn the_last_entry_that_is_not_behind_a_hash_is_found() {
    let directory = directory();
    let block = node_of(&directory, &branches(4));
    let node = node(&directory, &block, NODE_AT).unwrap();
    let found = [(0, 0), (99, 0), (100, 1), (101, 1), (199, 1), (200, 2), (299, 2), (300, 3), (u32::MAX, 3)];
    for (hash, at) in found {
        assert_eq!(node.find(hash), at, "{hash}");
    }
    assert_eq!(node.count(), 4);
    assert_eq!(node.branch(3), Some(Branch { hash: 300, block: 4 }));
    assert_eq!(node.branch(4), None);
}

#[test]
fn only_28_bits_of_a_block_count() {
    let directory = directory();
    let all = [0xF000_0003, 0x8FFF_FFFF, 0x1000_0000].map(|block| Branch { hash: 0, block });
    let read = read(&directory, &node_of(&directory, &all), NODE_AT).unwrap();
    assert_eq!(read.iter().map(|branch| branch.block).collect::<Vec<_>>(), vec![3, 0x0FFF_FFFF, 0]);
}

#[test]
fn a_root_tells_its_levels_if_names_have_a_hash_that_is_known() {
    let directory = directory();
    let mut root = [0; BLOCK_BYTES];
    for (hash, is_half_md4) in [(0, false), (1, true), (2, false), (3, false), (4, true), (5, false), (6, false)] {
        assert_eq!(is_known(hash), is_half_md4, "{hash}");
        begin_root(&mut root, hash);
        for count in [0, 1] {
            put_levels(&mut root, count);
            assert_eq!(root[30], count);
            assert_eq!(levels(&directory, &root), Ok(is_half_md4.then_some(usize::from(count))), "{hash}");
        }
    }
    // Reserved bytes, the length of what the root says, more levels than can be.
    for (at, byte) in [(24, 1), (27, 1), (29, 7), (29, 9), (29, 0), (30, 2), (30, 255)] {
        begin_root(&mut root, 1);
        root[at] = byte;
        assert_eq!(levels(&directory, &root), Err(corrupt(&directory, "the root of an index")), "byte {at}");
    }
}
