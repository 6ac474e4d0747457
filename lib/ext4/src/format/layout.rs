//! Where the parts of a new volume lie.
//!
//! As mkfs.ext4 does it: bitmaps and inode tables of sixteen groups lie together in the first of
//! them, so that the others are free from end to end; groups 0 and 1 and the powers of 3, 5 and 7
//! begin with a copy of the superblock and of all descriptors. The journal has no more extents than
//! its inode has room for: it is behind the first sixteen groups' parts if group 0 has room, else
//! in the groups 10 to 13, which have nothing else.

use core::ops::Range;

use super::FormatError;
use crate::BLOCK_BYTES;
use crate::super_block::{DESCRIPTOR_BYTES, GROUP_BLOCKS};

/// Bytes of an inode.
pub(super) const INODE_BYTES: u64 = 256;
/// Groups whose parts lie together, as a power of 2.
pub(super) const FLEX_SHIFT: u8 = 4;
const FLEX_GROUPS: u32 = 1 << FLEX_SHIFT;
/// Blocks of `/lost+found`, so that e2fsck has room for names without looking for blocks.
pub(super) const LOST_FOUND_BLOCKS: u64 = 4;
/// Fewest blocks of a volume: those of the smallest journal, and as many for all else.
pub(super) const BLOCKS_MIN: u64 = 2048;
/// Most blocks of a volume, 16 TiB: above, mkfs.ext4 would take other sizes too.
pub(super) const BLOCKS_MAX: u64 = 1 << 32;
/// The last group has as many blocks besides its parts, or it is left out.
const LAST_GROUP_FREE_MIN: u64 = 50;
/// The first of the groups that can be a journal from end to end.
const JOURNAL_GROUP: u64 = 10;
/// Below so many blocks (512 MiB) there is an inode for each 4 KiB, else for each 16 KiB.
const SMALL_BLOCKS: u64 = (512 << 20) / BLOCK_BYTES as u64;

/// Blocks of the journal of a volume that has fewer blocks than this.
const JOURNALS: [(u64, u64); 7] = [
    (32 << 10, 1024),
    (256 << 10, 4096),
    (512 << 10, 8192),
    (4 << 20, 16 << 10),
    (8 << 20, 32 << 10),
    (16 << 20, 64 << 10),
    (u64::MAX, 128 << 10),
];

/// The sizes of a volume, and with them where everything is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub blocks: u64,
    pub groups: u32,
    pub inodes_per_group: u32,
    /// Blocks of all descriptors.
    pub descriptor_blocks: u64,
    pub journal: Range<u64>,
}

impl Layout {
    /// That of the largest volume on a device of `device_blocks`.
    pub fn new(device_blocks: u64) -> Result<Layout, FormatError> {
        if device_blocks < BLOCKS_MIN {
            return Err(FormatError::TooSmall { blocks: device_blocks });
        }
        if device_blocks > BLOCKS_MAX {
            return Err(FormatError::TooLarge { blocks: device_blocks });
        }
        let mut layout = Layout::sized(device_blocks);
        let last = device_blocks % GROUP_BLOCKS;
        let needed = layout.front(layout.groups - 1).end + 2 + layout.table_blocks() + LAST_GROUP_FREE_MIN;
        if layout.groups > 1 && last > 0 && last < needed - layout.first(layout.groups - 1) {
            layout = Layout::sized(device_blocks - last);
        }
        layout.journal = layout.find_journal();
        Ok(layout)
    }

    /// The sizes for `blocks`, still without a journal.
    fn sized(blocks: u64) -> Layout {
        let groups = blocks.div_ceil(GROUP_BLOCKS);
        let blocks_per_inode = if blocks < SMALL_BLOCKS { 1 } else { 4 };
        let per_block = BLOCK_BYTES as u64 / INODE_BYTES;
        let inodes_per_group = (blocks / blocks_per_inode).div_ceil(groups).next_multiple_of(per_block);
        let descriptor_blocks = (groups * DESCRIPTOR_BYTES as u64).div_ceil(BLOCK_BYTES as u64);
        // At most 2^32 blocks make 2^17 groups, of 2^15 inodes each.
        let (groups, inodes_per_group) = (groups as u32, inodes_per_group as u32);
        Layout { blocks, groups, inodes_per_group, descriptor_blocks, journal: 0..0 }
    }

    fn find_journal(&self) -> Range<u64> {
        let blocks = JOURNALS.iter().find(|(below, _)| self.blocks < *below).map_or(0, |(_, blocks)| *blocks);
        let behind = self.lost_found().end;
        let first = if behind + blocks <= self.end(0) { behind } else { JOURNAL_GROUP * GROUP_BLOCKS };
        first..first + blocks
    }

    /// The first block of a group.
    pub fn first(&self, group: u32) -> u64 {
        u64::from(group) * GROUP_BLOCKS
    }

    /// The block behind a group's last.
    pub fn end(&self, group: u32) -> u64 {
        self.blocks.min(self.first(group) + GROUP_BLOCKS)
    }

    /// Blocks of a group's inodes.
    pub fn table_blocks(&self) -> u64 {
        u64::from(self.inodes_per_group) * INODE_BYTES / BLOCK_BYTES as u64
    }

    /// Superblock and descriptors at the beginning of a group, if it has them.
    pub fn front(&self, group: u32) -> Range<u64> {
        let first = self.first(group);
        if has_copy(group) { first..first + 1 + self.descriptor_blocks } else { first..first }
    }

    /// The groups whose parts lie together with those of `group`.
    fn flex(&self, group: u32) -> Range<u32> {
        let first = group / FLEX_GROUPS * FLEX_GROUPS;
        first..self.groups.min(first + FLEX_GROUPS)
    }

    /// The block of a group's bitmap of blocks.
    pub fn block_bitmap(&self, group: u32) -> u64 {
        let flex = self.flex(group);
        self.front(flex.start).end + u64::from(group - flex.start)
    }

    /// The block of a group's bitmap of inodes.
    pub fn inode_bitmap(&self, group: u32) -> u64 {
        self.block_bitmap(group) + self.flex(group).len() as u64
    }

    /// The blocks of a group's inodes.
    pub fn inode_table(&self, group: u32) -> Range<u64> {
        let flex = self.flex(group);
        let tables = self.front(flex.start).end + 2 * flex.len() as u64;
        let first = tables + u64::from(group - flex.start) * self.table_blocks();
        first..first + self.table_blocks()
    }

    /// The blocks of all bitmaps and inode tables that lie in a group.
    fn parts(&self, group: u32) -> Range<u64> {
        let flex = self.flex(group);
        let first = self.front(group).end;
        if flex.start == group { first..self.inode_table(flex.end - 1).end } else { first..first }
    }

    /// The block of the root directory.
    pub fn root(&self) -> u64 {
        self.parts(0).end
    }

    /// The blocks of `/lost+found`.
    pub fn lost_found(&self) -> Range<u64> {
        self.root() + 1..self.root() + 1 + LOST_FOUND_BLOCKS
    }

    /// The stretches of a group's blocks that are not free.
    pub fn used(&self, group: u32) -> [Range<u64>; 4] {
        let directories = if group == 0 { self.root()..self.lost_found().end } else { 0..0 };
        let journal = self.journal.start.max(self.first(group))..self.journal.end.min(self.end(group));
        [self.front(group), self.parts(group), directories, journal]
    }

    /// Free blocks of a group.
    pub fn free_blocks(&self, group: u32) -> u64 {
        let used: u64 = self.used(group).into_iter().map(|stretch| stretch.end.saturating_sub(stretch.start)).sum();
        self.end(group) - self.first(group) - used
    }

    /// Whether a group's bitmap of blocks needs not be on the disk: nothing is used but what every
    /// reader knows of. The last group's has bits behind the volume's end, so it is there.
    pub fn is_untouched(&self, group: u32) -> bool {
        let [_, parts, directories, journal] = self.used(group);
        group + 1 < self.groups && parts.is_empty() && directories.is_empty() && journal.is_empty()
    }
}

/// Whether a group begins with a superblock and the descriptors.
pub(super) fn has_copy(group: u32) -> bool {
    let is_power_of = |base: u32| (1..21).map_while(|power| base.checked_pow(power)).any(|power| power == group);
    group < 2 || [3, 5, 7].into_iter().any(is_power_of)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn copies_are_in_groups_0_and_1_and_the_powers_of_3_5_and_7() {
        let groups: Vec<u32> = (0..2500).filter(|group| has_copy(*group)).collect();
        assert_eq!(groups, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343, 625, 729, 2187, 2401]);
    }

    #[test]
    fn sizes_are_those_of_mkfs_ext4() {
        // Blocks; then inodes of a group, blocks of descriptors and of the journal, free blocks.
        let expected = [
            (2048, (2048, 1, 1024, 887)),
            (32_767, (32_768, 1, 1024, 29_686)),
            (32_768, (32_768, 1, 4096, 26_615)),
            (131_071, (32_768, 1, 4096, 118_764)),
            (131_072, (8192, 1, 4096, 124_909)),
            (2_265_992, (8096, 2, 16_384, 2_214_016)),
            (4_194_304, (8192, 2, 32_768, 4_095_706)),
        ];
        for (blocks, sizes) in expected {
            let layout = Layout::new(blocks).unwrap();
            let free: u64 = (0..layout.groups).map(|group| layout.free_blocks(group)).sum();
            let journal = layout.journal.end - layout.journal.start;
            assert_eq!((layout.inodes_per_group, layout.descriptor_blocks, journal, free), sizes, "{blocks}");
        }
    }

    #[test]
    fn a_journal_without_room_in_group_0_has_the_groups_from_10_on() {
        assert_eq!(Layout::new(2_265_992).unwrap().journal, 8136..8136 + 16_384);
        assert_eq!(Layout::new(4_194_304).unwrap().journal, 327_680..360_448);
    }

    #[test]
    fn a_journal_that_fills_group_0_to_its_end_is_there() {
        let mut layout = Layout::new(2048).unwrap();
        // All but what is in front of the journal and the journal itself.
        layout.blocks = layout.lost_found().end + 1024;
        assert_eq!(layout.find_journal(), layout.blocks - 1024..layout.blocks);
    }

    #[test]
    fn groups_without_anything_but_their_head_are_untouched() {
        let untouched = |blocks| -> Vec<u32> {
            let layout = Layout::new(blocks).unwrap();
            (0..layout.groups).filter(|group| layout.is_untouched(*group)).collect()
        };
        // The first of each sixteen has parts; the last has bits behind the volume's end.
        assert_eq!(untouched(2048), []);
        assert_eq!(untouched(18 * GROUP_BLOCKS), (1..16).collect::<Vec<_>>());
        assert_eq!(untouched(19 * GROUP_BLOCKS), (1..16).chain([17]).collect::<Vec<_>>());
        let large: Vec<u32> = untouched(4_194_304).into_iter().filter(|group| *group < 16).collect();
        assert_eq!(large, [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15], "group 10 is the journal");
    }

    /// All stretches of the volume, each inside its group, in order, none over another.
    #[test]
    fn nothing_lies_over_anything_else() {
        let sizes = [0, 1, 30_000, 31_000, 32_767, 32_768, 33_000, 65_536, 65_600, 131_071, 131_072, 520_000];
        let sizes = sizes.into_iter().map(|more| BLOCKS_MIN + more);
        let powers = (12..=32).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) * 3 / 4 + 531]);
        for blocks in sizes.chain(powers).filter(|blocks| *blocks >= BLOCKS_MIN) {
            let layout = Layout::new(blocks).unwrap();
            assert!(layout.blocks <= blocks && layout.blocks + 2200 > blocks, "{blocks}: {layout:?}");
            assert!(layout.journal.end - layout.journal.start >= 1024);
            let mut journal = 0;
            for group in 0..layout.groups {
                let mut used = layout.used(group);
                journal += used[3].end.saturating_sub(used[3].start);
                used.sort_by_key(|stretch| stretch.start);
                let mut end = layout.first(group);
                for stretch in used.into_iter().filter(|stretch| !stretch.is_empty()) {
                    assert!(stretch.start >= end && stretch.end <= layout.end(group), "{blocks}: group {group}");
                    end = stretch.end;
                }
            }
            assert_eq!(journal, layout.journal.end - layout.journal.start, "{blocks}");
        }
    }
}
