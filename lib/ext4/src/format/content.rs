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
