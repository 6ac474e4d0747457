//! Blocks that are no file's: super blocks, descriptors, bitmaps, tables of inodes, the journal.
//!
//! No two of them are one, and a file that has one of them is corrupt.

use alloc::vec::Vec;
use core::ops::Range;

use crate::BLOCK_BYTES;
use crate::error::{Error, Stop};
use crate::group::{self, Group};
use crate::super_block::{DESCRIPTOR_BYTES, GROUP_BLOCKS, Geometry, Settings};

/// The blocks that are no file's: ranges in order, none of them touching another.
#[derive(Clone, Debug)]
pub(crate) struct System(Vec<Range<u64>>);

impl System {
    /// Those of a volume with these groups, and a journal in these blocks.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: one of them is two things.
    pub fn new(geometry: &Geometry, settings: &Settings, groups: &[Group], journal: &[u64]) -> Result<System, Stop> {
        let mut ranges: Vec<Range<u64>> = journal.iter().map(|block| *block..block + 1).collect();
        for (number, group) in (0..).zip(groups) {
            ranges.extend(head(geometry, settings, number));
            ranges.extend([group.block_bitmap..group.block_bitmap + 1, group.inode_bitmap..group.inode_bitmap + 1]);
            ranges.push(group.inode_table..group.inode_table + group::table_blocks(geometry));
        }
        ranges.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.start < last.end => return Err(Error::corrupt("where the groups' parts lie", 0)),
                Some(last) if range.start == last.end => last.end = range.end,
                _ => joined.push(range),
            }
        }
        Ok(System(joined))
    }

    /// Those of them that are among `blocks`.
    pub fn among(&self, blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|range| range.end <= blocks.start);
        let among = self.0[first..].iter().take_while(move |range| range.start < blocks.end);
        among.map(move |range| range.start.max(blocks.start)..range.end.min(blocks.end))
    }

    /// Whether one of `blocks` is no file's.
    pub fn has(&self, blocks: Range<u64>) -> bool {
        self.among(blocks).next().is_some()
    }
}

/// The super block and the descriptors at the head of group `number`, or their copies.
fn head(geometry: &Geometry, settings: &Settings, number: u32) -> Option<Range<u64>> {
    let is_power = |base: u32| {
        let mut power = base;
        while power < number {
            power = power.saturating_mul(base);
        }
        power == number
    };
    if settings.is_sparse && number > 1 && !is_power(3) && !is_power(5) && !is_power(7) {
        return None;
    }
    let descriptors = (u64::from(geometry.groups) * DESCRIPTOR_BYTES as u64).div_ceil(BLOCK_BYTES as u64);
    let first = u64::from(number) * GROUP_BLOCKS;
    Some(first..(first + 1 + descriptors + u64::from(settings.reserved_descriptor_blocks)).min(geometry.blocks))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::testing::Memory;

    /// Sixty-five groups, of which the last has two blocks: descriptors take two blocks too.
    fn geometry() -> Geometry {
        Geometry {
            blocks: 64 * GROUP_BLOCKS + 2,
            inodes: 65 * 16,
            groups: 65,
            inodes_per_group: 16,
            inode_bytes: 256,
            hash_seed: [0; 4],
            is_hash_unsigned: false,
            needs_recovery: false,
            checksum_seed: 1,
        }
    }

    fn settings(is_sparse: bool, reserved_descriptor_blocks: u16) -> Settings {
        Settings {
            first_inode: 11,
            has_xattrs: true,
            has_index: true,
            has_many_links: true,
            hash: 1,
            extra_bytes: 32,
            last_orphan: 0,
            reserved_descriptor_blocks,
            is_sparse,
        }
    }

    #[test]
    fn copies_of_the_super_block_are_in_groups_0_and_1_and_powers_of_3_5_and_7_or_in_all() {
        let with = |is_sparse| -> Vec<u32> {
            (0..65).filter(|group| head(&geometry(), &settings(is_sparse, 0), *group).is_some()).collect()
        };
        assert_eq!(with(true), [0, 1, 3, 5, 7, 9, 25, 27, 49]);
        assert_eq!(with(false), (0..65).collect::<Vec<_>>());
    }

    #[test]
    fn the_head_of_a_group_has_super_block_descriptors_and_what_is_kept_for_more() {
        let of = |group, reserved| head(&geometry(), &settings(false, reserved), group);
        assert_eq!(of(0, 0), Some(0..3));
        assert_eq!(of(3, 0), Some(98_304..98_307));
        assert_eq!(of(3, 100), Some(98_304..98_407));
        assert_eq!(of(64, 100), Some(2_097_152..2_097_154), "no further than the volume");
    }

    #[test]
    fn what_is_among_blocks_has_no_block_besides_them() {
        let system = System(vec![5..10, 20..30]);
        let among = |blocks: Range<u64>| system.among(blocks).collect::<Vec<_>>();
        assert_eq!(among(0..100), [5..10, 20..30]);
        assert_eq!(among(9..21), [9..10, 20..21]);
        assert_eq!(among(22..24), [22..24; 1]);
        for nothing in [0..5, 10..20, 30..40] {
            assert_eq!(among(nothing.clone()), []);
            assert!(!system.has(nothing));
        }
        assert!(system.has(4..6) && system.has(9..10) && system.has(29..30));
    }

    #[test]
    fn a_block_that_is_two_things_is_corrupt() {
        let group = Group {
            block_bitmap: 100,
            inode_bitmap: 101,
            inode_table: 102,
            free_blocks: 0,
            free_inodes: 0,
            directories: 0,
            unused_inodes: 0,
            flags: 0,
            block_bitmap_sum: 0,
            inode_bitmap_sum: 0,
        };
        let new = |group: Group, journal: &[u64]| System::new(&geometry(), &settings(true, 0), &[group], journal);
        // The table of sixteen inodes of 256 bytes has one block.
        assert_eq!(new(group, &[200, 103, 201]).unwrap().0, [0..3, 100..104, 200..202]);
        let wrong = Error::corrupt("where the groups' parts lie", 0);
        for journal in [100, 102, 2] {
            assert_eq!(new(group, &[journal]).err(), Some(wrong));
        }
        assert_eq!(new(Group { inode_bitmap: 100, ..group }, &[]).err(), Some(wrong));
    }

    #[test]
    fn of_a_new_volume_all_is_a_files_but_heads_bitmaps_tables_and_journal() {
        // Of dumpe2fs: super block and descriptors, then bitmaps and tables of both groups.
        let memory = Memory::formatted(65_536);
        let mount = memory.mount();
        let journal = memory.recover().unwrap().places;
        let (first, behind) = (journal[0], journal[0] + 4096);
        let ranges: Vec<_> = mount.system().among(0..65_536).collect();
        assert_eq!(ranges, [0..4102, first..behind, 32_768..32_770]);
        assert_eq!(first, 4107, "behind the root directory and /lost+found");
    }
}
