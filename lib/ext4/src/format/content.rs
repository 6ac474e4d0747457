//! What the blocks of a new volume have in them.

use alloc::boxed::Box;
use core::ops::Range;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::layout::{self, FLEX_SHIFT, INODE_BYTES, LOST_FOUND_BLOCKS, Layout};
use super::{FormatOptions, MARK};
use crate::checksum::Checksum;
use crate::group::{self, DESCRIPTORS_OF_BLOCK, Descriptor};
use crate::inode::{self, FLAG_EXTENTS, MAP_BYTES, ROOT, Raw, SECTORS};
use crate::super_block::{DESCRIPTOR_BYTES, GROUP_BLOCKS, JOURNAL_INODE, MAGIC, OFFSET, SuperBlock};
use crate::{BLOCK_BYTES, Block, Time, directory, extent, feature, journal};

/// The inode of `/lost+found`: the first that is nobody's by its number.
const LOST_FOUND: u32 = 11;
/// Inodes that are taken: the first eleven.
const INODES_USED: u32 = LOST_FOUND;
/// Bytes of an inode behind its first 128 that have a meaning.
const EXTRA_BYTES: u16 = 32;
/// Where the four times of an inode have their seconds, and where what does not fit in there.
const TIMES: [(usize, usize); 4] = [(8, 140), (12, 132), (16, 136), (144, 148)];
/// xattr and acl, which mkfs.ext4 has Linux mount with.
const MOUNT_OPTIONS: u32 = 0x4 | 0x8;

/// All that the bytes depend on.
#[derive(Debug)]
pub(super) struct Content {
    pub layout: Layout,
    uuid: [u8; 16],
    hash_seed: [U32; 4],
    label: [u8; 16],
    now_seconds: u64,
    /// What checksums start from.
    seed: Checksum,
}

/// A file that a new volume has.
struct File {
    mode: u16,
    links: u16,
    blocks: Range<u64>,
}

fn zeroed() -> Box<Block> {
    Box::new([0; BLOCK_BYTES])
}

/// The low and the high half of a number.
fn halves(number: u64) -> (U32, U32) {
    (U32::new(number as u32), U32::new((number >> 32) as u32))
}

/// The same of one that has 32 bits.
fn halves_u32(number: u32) -> (U16, U16) {
    (U16::new(number as u16), U16::new((number >> 16) as u16))
}

/// Sets bits.
fn fill(bitmap: &mut Block, bits: Range<u64>) {
    for bit in bits {
        bitmap[(bit / 8) as usize] |= 1 << (bit % 8);
    }
}

impl Content {
    pub fn new(layout: Layout, options: &FormatOptions) -> Content {
        let (words, _) = options.hash_seed.as_chunks();
        Content {
            layout,
            uuid: options.uuid,
            hash_seed: [0, 1, 2, 3].map(|word| U32::from_bytes(words[word])),
            label: options.label,
            now_seconds: options.now_seconds,
            seed: Checksum::START.with(&options.uuid),
        }
    }

    /// Block 0 while nothing is there but the mark.
    pub fn mark(&self) -> Box<Block> {
        let mut block = zeroed();
        block[..MARK.len()].copy_from_slice(MARK);
        block
    }

    /// Block 0 with the mark and the superblock.
    pub fn marked_super_block(&self) -> Box<Block> {
        let mut block = self.super_block();
        block[..MARK.len()].copy_from_slice(MARK);
        block
    }

    /// Block 0.
    pub fn super_block(&self) -> Box<Block> {
        let mut block = zeroed();
        let bytes = self.super_block_of(0);
        block[OFFSET..][..bytes.as_bytes().len()].copy_from_slice(bytes.as_bytes());
        block
    }

    /// The block with the superblock's copy at the beginning of `group`.
    pub fn copy(&self, group: u32) -> Box<Block> {
        let mut block = zeroed();
        let bytes = self.super_block_of(group);
        block[..bytes.as_bytes().len()].copy_from_slice(bytes.as_bytes());
        block
    }

    fn super_block_of(&self, group: u32) -> SuperBlock {
        let layout = &self.layout;
        let mut it = SuperBlock::new_zeroed();
        it.block_group = U16::new(group as u16);
        it.inodes_count = U32::new(layout.inodes_per_group * layout.groups);
        it.free_inodes = U32::new(layout.inodes_per_group * layout.groups - INODES_USED);
        (it.blocks_count_low, it.blocks_count_high) = halves(layout.blocks);
        let free = (0..layout.groups).map(|group| layout.free_blocks(group)).sum();
        (it.free_blocks_low, it.free_blocks_high) = halves(free);
        // Of what is taken, directories are no overhead.
        it.overhead = U32::new((layout.blocks - free - 1 - LOST_FOUND_BLOCKS) as u32);
        it.inodes_per_group = U32::new(layout.inodes_per_group);
        self.put_constants(&mut it);
        self.put_identity(&mut it);
        self.put_journal(&mut it);
        let bytes = it.as_bytes();
        it.checksum = U32::new(Checksum::START.with(&bytes[..bytes.len() - 4]).0);
        it
    }

    /// What is the same in all volumes.
    fn put_constants(&self, it: &mut SuperBlock) {
        it.magic = U16::new(MAGIC);
        it.revision = U32::new(1);
        it.state = U16::new(1);
        it.errors = U16::new(1);
        it.max_mount_count = U16::new(!0);
        (it.log_block_size, it.log_cluster_size) = (U32::new(2), U32::new(2));
        it.blocks_per_group = U32::new(GROUP_BLOCKS as u32);
        it.clusters_per_group = it.blocks_per_group;
        it.first_inode = U32::new(LOST_FOUND);
        it.inode_bytes = U16::new(INODE_BYTES as u16);
        (it.min_extra_bytes, it.want_extra_bytes) = (U16::new(EXTRA_BYTES), U16::new(EXTRA_BYTES));
        it.descriptor_bytes = U16::new(DESCRIPTOR_BYTES as u16);
        it.log_groups_per_flex = FLEX_SHIFT;
        it.checksum_type = 1;
        it.compat = U32::new(feature::COMPAT_NEW);
        it.incompat = U32::new(feature::INCOMPAT_NEW);
        it.ro_compat = U32::new(feature::RO_COMPAT_NEW);
        it.default_mount_options = U32::new(MOUNT_OPTIONS);
        // Names are hashed by half an MD4 that takes bytes as signed.
        (it.default_hash, it.flags) = (1, U32::new(1));
    }

    fn put_identity(&self, it: &mut SuperBlock) {
        (it.uuid, it.hash_seed, it.label) = (self.uuid, self.hash_seed, self.label);
        let (low, high) = (U32::new(self.now_seconds as u32), (self.now_seconds >> 32) as u8);
        (it.make_time, it.write_time, it.last_check) = (low, low, low);
        // In the order of the high bytes: write, mount, make, check; then of errors.
        it.times_high = [high, 0, high, high, 0, 0, 0, 0];
        it.kbytes_written = U64::ZERO;
    }

    /// The journal, and the copy of its map, by which e2fsck finds it without its inode.
    fn put_journal(&self, it: &mut SuperBlock) {
        it.journal_inode = U32::new(JOURNAL_INODE);
        it.journal_backup_type = 1;
        let journal = &self.layout.journal;
        let map = extent::root_of(journal.clone());
        for (word, bytes) in it.journal_blocks.iter_mut().zip(map.as_chunks().0) {
            *word = U32::from_bytes(*bytes);
        }
        let (low, high) = halves((journal.end - journal.start) * BLOCK_BYTES as u64);
        (it.journal_blocks[15], it.journal_blocks[16]) = (high, low);
    }

    /// Block `index` of the descriptors.
    pub fn descriptors(&self, index: u32) -> Box<Block> {
        let mut block = zeroed();
        let first = index * DESCRIPTORS_OF_BLOCK;
        let (places, _) = block.as_chunks_mut::<DESCRIPTOR_BYTES>();
        for (group, place) in (first..self.layout.groups).zip(places) {
            let mut descriptor = self.descriptor(group);
            descriptor.checksum = U16::new(group::sum(self.seed, group, descriptor.as_bytes()));
            place.copy_from_slice(descriptor.as_bytes());
        }
        block
    }

    /// A group's descriptor, still without its checksum.
    fn descriptor(&self, group: u32) -> Descriptor {
        let layout = &self.layout;
        let mut it = Descriptor::new_zeroed();
        (it.block_bitmap_low, it.block_bitmap_high) = halves(layout.block_bitmap(group));
        (it.inode_bitmap_low, it.inode_bitmap_high) = halves(layout.inode_bitmap(group));
        (it.inode_table_low, it.inode_table_high) = halves(layout.inode_table(group).start);
        (it.free_blocks_low, it.free_blocks_high) = halves_u32(layout.free_blocks(group) as u32);
        let mut flags = group::FLAG_INODES_ZEROED;
        let mut unused = layout.inodes_per_group;
        if group == 0 {
            unused -= INODES_USED;
            it.directories_low = U16::new(2);
            // The sum is about the bits that mean inodes.
            let bytes = (layout.inodes_per_group / 8) as usize;
            let sum = self.seed.with(&self.inode_bitmap()[..bytes]);
            (it.inode_bitmap_checksum_low, it.inode_bitmap_checksum_high) = halves_u32(sum.0);
        } else {
            flags |= group::FLAG_NO_INODES;
        }
        if layout.is_untouched(group) {
            flags |= group::FLAG_NO_BLOCKS;
        } else {
            let sum = self.seed.with(&self.block_bitmap(group)[..]);
            (it.block_bitmap_checksum_low, it.block_bitmap_checksum_high) = halves_u32(sum.0);
        }
        (it.free_inodes_low, it.free_inodes_high) = halves_u32(unused);
        (it.unused_inodes_low, it.unused_inodes_high) = halves_u32(unused);
        it.flags = U16::new(flags);
        it
    }

    /// Which of a group's blocks are taken.
    pub fn block_bitmap(&self, group: u32) -> Box<Block> {
        let mut bitmap = zeroed();
        let first = self.layout.first(group);
        for stretch in self.layout.used(group).into_iter().filter(|stretch| !stretch.is_empty()) {
            fill(&mut bitmap, stretch.start - first..stretch.end - first);
        }
        fill(&mut bitmap, self.layout.end(group) - first..GROUP_BLOCKS);
        bitmap
    }

    /// Which inodes of group 0 are taken.
    pub fn inode_bitmap(&self) -> Box<Block> {
        let mut bitmap = zeroed();
        fill(&mut bitmap, 0..u64::from(INODES_USED));
        fill(&mut bitmap, u64::from(self.layout.inodes_per_group)..GROUP_BLOCKS);
        bitmap
    }

    /// The first block of inodes, which has all that are taken.
    pub fn inodes(&self) -> Box<Block> {
        let layout = &self.layout;
        let files = [
            (ROOT, File { mode: 0o4_0755, links: 3, blocks: layout.root()..layout.root() + 1 }),
            (JOURNAL_INODE, File { mode: 0o10_0600, links: 1, blocks: layout.journal.clone() }),
            (LOST_FOUND, File { mode: 0o4_0700, links: 2, blocks: layout.lost_found() }),
        ];
        let mut block = zeroed();
        let (places, _) = block.as_chunks_mut::<{ INODE_BYTES as usize }>();
        for (number, file) in files {
            places[number as usize - 1] = self.inode(number, &file);
        }
        block
    }

    fn inode(&self, number: u32, file: &File) -> [u8; INODE_BYTES as usize] {
        let blocks = file.blocks.end - file.blocks.start;
        let mut raw = Raw::new_zeroed();
        raw.mode = U16::new(file.mode);
        raw.links = U16::new(file.links);
        (raw.size_low, raw.size_high) = halves(blocks * BLOCK_BYTES as u64);
        // At most 2^17 blocks, so the number of sectors has 20 bits.
        raw.sectors_low = U32::new((blocks * SECTORS) as u32);
        raw.flags = U32::new(FLAG_EXTENTS);
        raw.map = extent::root_of(file.blocks.clone());
        raw.extra_bytes = U16::new(EXTRA_BYTES);
        let mut bytes = [0; INODE_BYTES as usize];
        bytes[..size_of::<Raw>()].copy_from_slice(raw.as_bytes());
        let now = Time { seconds: self.now_seconds as i64, nanoseconds: 0 };
        for (seconds, more) in TIMES {
            inode::put_time(&mut bytes, now, seconds, more, INODE_BYTES as usize);
        }
        inode::put_sum(&mut bytes, self.seed_of(number));
        bytes
    }

    /// What the checksums of an inode and its blocks start from. All inodes are of generation 0.
    fn seed_of(&self, inode: u32) -> Checksum {
        self.seed.with_u32(inode).with_u32(0)
    }

    /// The block of the root directory.
    pub fn root(&self) -> Box<Block> {
        let names: [(&[u8], u32); 3] = [(b".", ROOT), (b"..", ROOT), (b"lost+found", LOST_FOUND)];
        directory::new_block(self.seed_of(ROOT), &names)
    }

    /// Block `index` of `/lost+found`.
    pub fn lost_found(&self, index: u64) -> Box<Block> {
        let names: [(&[u8], u32); 2] = [(b".", LOST_FOUND), (b"..", ROOT)];
        directory::new_block(self.seed_of(LOST_FOUND), if index == 0 { &names } else { &[] })
    }

    /// The first block of the journal.
    pub fn journal(&self) -> Box<Block> {
        let journal = &self.layout.journal;
        journal::new_super_block((journal.end - journal.start) as u32, &self.uuid)
    }
}

const _: () = assert!(MAP_BYTES == 15 * size_of::<U32>());
const _: () = assert!(LOST_FOUND as u64 <= BLOCK_BYTES as u64 / INODE_BYTES);
const _: () = assert!(layout::BLOCKS_MAX <= 1 << 32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Blocks;
    use crate::group::decode;
    use crate::known::Found;
    use crate::testing::{Memory, options};

    /// Seventy groups, of which the last has 5000 blocks. What is expected of it mkfs.ext4 made,
    /// too.
    const BLOCKS: u64 = 69 * GROUP_BLOCKS + 5000;

    fn content(blocks: u64) -> Content {
        Content::new(Layout::new(blocks).unwrap(), &options(blocks))
    }

    fn set_bits(bitmap: &Block) -> u32 {
        bitmap.iter().map(|byte| byte.count_ones()).sum()
    }

    #[test]
    fn the_super_block_counts_as_that_of_mkfs_ext4() {
        let it = content(BLOCKS).super_block_of(0);
        assert_eq!((it.inodes_count.get(), it.free_inodes.get()), (566_720, 566_709));
        assert_eq!((it.blocks_count_low.get(), it.blocks_count_high.get()), (2_265_992, 0));
        assert_eq!((it.free_blocks_low.get(), it.free_blocks_high.get()), (2_214_016, 0));
        assert_eq!((it.overhead.get(), it.inodes_per_group.get()), (51_971, 8096));
        assert_eq!(it.max_mount_count.get(), 0xFFFF, "it is not checked by how often it is mounted");
        let (high, low) = (it.journal_blocks[15].get(), it.journal_blocks[16].get());
        assert_eq!((high, low), (0, 16_384 * 4096), "the bytes of the journal");
        let it = content(2048).super_block_of(0);
        assert_eq!((it.inodes_count.get(), it.free_inodes.get()), (2048, 2037));
        assert_eq!((it.free_blocks_low.get(), it.overhead.get()), (887, 1156));
    }

    #[test]
    fn the_largest_volume_has_the_33rd_bit_of_its_blocks() {
        let it = content(layout::BLOCKS_MAX).super_block_of(0);
        assert_eq!((it.blocks_count_low.get(), it.blocks_count_high.get()), (0, 1));
        let (high, low) = (it.journal_blocks[15].get(), it.journal_blocks[16].get());
        assert_eq!((high, low), (0, 512 << 20));
    }

    #[test]
    fn times_behind_2106_have_a_high_byte() {
        let options = FormatOptions { now_seconds: 0x1_0400_0005, ..options(2048) };
        let it = Content::new(Layout::new(2048).unwrap(), &options).super_block_of(0);
        for low in [it.make_time, it.write_time, it.last_check] {
            assert_eq!(low.get(), 0x0400_0005);
        }
        assert_eq!(it.times_high, [1, 0, 1, 1, 0, 0, 0, 0]);
    }

    /// Of groups: where the bitmaps and the inodes are, free blocks and inodes, flags.
    #[test]
    fn descriptors_are_those_of_mkfs_ext4() {
        let (memory, content) = (Memory::formatted(BLOCKS), content(BLOCKS));
        let volume = memory.volume();
        let expected = [
            // Here the journal's 16,384 blocks are in the first group; mkfs.ext4 has them in
            // another.
            (0, (3, 19, 35), (24_632 - 16_384, 8085), 0x4),
            (1, (4, 20, 541), (32_765, 8096), 0x7),
            (16, (524_288, 524_304, 524_320), (24_640, 8096), 0x5),
            (17, (524_289, 524_305, 524_826), (32_768, 8096), 0x7),
            (63, (1_572_879, 1_572_895, 1_580_486), (32_768, 8096), 0x7),
            (64, (2_097_152, 2_097_158, 2_097_164), (29_720, 8096), 0x5),
            (68, (2_097_156, 2_097_162, 2_099_188), (32_768, 8096), 0x7),
            (69, (2_097_157, 2_097_163, 2_099_694), (5000, 8096), 0x5),
        ];
        for (number, parts, free, flags) in expected {
            let block = content.descriptors(number / DESCRIPTORS_OF_BLOCK);
            let group = decode(volume.geometry(), number, Found { block: &block, known: None }).unwrap();
            assert_eq!((group.block_bitmap, group.inode_bitmap, group.inode_table), parts, "group {number}");
            assert_eq!((group.free_blocks, group.free_inodes), free, "group {number}");
            assert_eq!((group.flags, group.unused_inodes), (flags, group.free_inodes), "group {number}");
            assert_eq!(group.directories, if number == 0 { 2 } else { 0 });
            if flags & group::FLAG_NO_BLOCKS == 0 {
                let bitmap = memory.block(group.block_bitmap).unwrap();
                assert_eq!(GROUP_BLOCKS as u32 - set_bits(bitmap), group.free_blocks, "group {number}");
                assert_eq!(group.block_bitmap_sum, content.seed.with(bitmap).0, "group {number}");
            }
        }
    }

    #[test]
    fn a_bitmap_has_the_bits_of_what_is_taken_and_of_what_is_behind_the_volume() {
        let content = content(BLOCKS);
        let taken = |group| {
            let bitmap = content.block_bitmap(group);
            move |bit: usize| bitmap[bit / 8] >> (bit % 8) & 1 != 0
        };
        let (first, flex, last) = (taken(0), taken(16), taken(69));
        assert!((0..8136 + 16_384).all(&first) && !(8136 + 16_384..32_768).any(&first));
        assert!((0..8128).all(&flex) && !(8128..32_768).any(&flex));
        assert!((5000..32_768).all(&last) && !(0..5000).any(&last));
        let inodes = content.inode_bitmap();
        assert_eq!(set_bits(&inodes), 11 + 32_768 - 8096);
    }
}
