//! Group descriptors: where a group's bitmaps and its inodes lie.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::Checksum;
use crate::error::{Error, Stop};
use crate::known::{Found, Part};
use crate::super_block::{DESCRIPTOR_BYTES, GROUP_BLOCKS, Geometry};
use crate::{BLOCK_BYTES, Block};

/// Descriptors of a block.
pub(crate) const DESCRIPTORS_OF_BLOCK: u32 = (BLOCK_BYTES / DESCRIPTOR_BYTES) as u32;
/// Where the checksum stands in a descriptor.
const CHECKSUM_AT: usize = 30;

/// The group has no inodes in use, and its bitmap of inodes may be anything.
pub(crate) const FLAG_NO_INODES: u16 = 0x1;
/// The group has no blocks in use but superblock and descriptors, and those of its own bitmaps and
/// inodes that lie in it; its bitmap of blocks may be anything.
pub(crate) const FLAG_NO_BLOCKS: u16 = 0x2;
/// All inodes that were never used are zeros.
pub(crate) const FLAG_INODES_ZEROED: u16 = 0x4;

/// A descriptor as it lies on the disk, from block 1 on.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Descriptor {
    pub block_bitmap_low: U32,
    pub inode_bitmap_low: U32,
    pub inode_table_low: U32,
    pub free_blocks_low: U16,
    pub free_inodes_low: U16,
    pub directories_low: U16,
    pub flags: U16,
    pub exclude_bitmap_low: U32,
    pub block_bitmap_checksum_low: U16,
    pub inode_bitmap_checksum_low: U16,
    pub unused_inodes_low: U16,
    pub checksum: U16,
    pub block_bitmap_high: U32,
    pub inode_bitmap_high: U32,
    pub inode_table_high: U32,
    pub free_blocks_high: U16,
    pub free_inodes_high: U16,
    pub directories_high: U16,
    pub unused_inodes_high: U16,
    pub exclude_bitmap_high: U32,
    pub block_bitmap_checksum_high: U16,
    pub inode_bitmap_checksum_high: U16,
    pub reserved: U32,
}

const _: () = assert!(size_of::<Descriptor>() == DESCRIPTOR_BYTES);

/// What a descriptor says. The parts of the group are inside the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    /// First block of the inodes.
    pub inode_table: u64,
    pub free_blocks: u32,
    pub free_inodes: u32,
    pub directories: u32,
    /// Inodes at the table's end that were never used.
    pub unused_inodes: u32,
    pub flags: u16,
    pub block_bitmap_sum: u32,
    pub inode_bitmap_sum: u32,
}

/// Blocks of a group's table of inodes.
pub(crate) fn table_blocks(geometry: &Geometry) -> u64 {
    u64::from(geometry.inodes_per_group) * u64::from(geometry.inode_bytes) / BLOCK_BYTES as u64
}

/// The block that group `group`'s descriptor is in.
pub(crate) fn descriptor_block(group: u32) -> u64 {
    1 + u64::from(group / DESCRIPTORS_OF_BLOCK)
}

/// The checksum of a group's descriptor, whatever checksum it has.
pub(crate) fn sum(seed: Checksum, group: u32, descriptor: &[u8]) -> u16 {
    let (head, tail) = descriptor.split_at(CHECKSUM_AT);
    seed.with_u32(group).with(head).with(&[0; 2]).with(&tail[2..]).0 as u16
}

/// Decodes the descriptor of `group` out of its block.
///
/// # Errors
/// [`Error::Corrupt`]: checksum, or a part that is not inside the volume.
pub(crate) fn decode(geometry: &Geometry, group: u32, found: Found<'_>) -> Result<Group, Stop> {
    let corrupt = |what| Error::corrupt(what, u64::from(group));
    let at = (group % DESCRIPTORS_OF_BLOCK) as usize * DESCRIPTOR_BYTES;
    let block = found.once(Part::of(at, DESCRIPTOR_BYTES), |block| {
        let (bytes, told) = (&block[at..at + DESCRIPTOR_BYTES], &block[at + CHECKSUM_AT..at + CHECKSUM_AT + 2]);
        let sum = sum(Checksum(geometry.checksum_seed), group, bytes);
        if told == sum.to_le_bytes() { Ok(()) } else { Err(corrupt("a group descriptor's checksum")) }
    })?;
    let bytes = &block[at..at + DESCRIPTOR_BYTES];
    let descriptor = Descriptor::ref_from_bytes(bytes).map_err(|_| corrupt("a group descriptor"))?;
    let number = |high: U32, low: U32| u64::from(high.get()) << 32 | u64::from(low.get());
    let parts = [
        (number(descriptor.block_bitmap_high, descriptor.block_bitmap_low), 1),
        (number(descriptor.inode_bitmap_high, descriptor.inode_bitmap_low), 1),
        (number(descriptor.inode_table_high, descriptor.inode_table_low), table_blocks(geometry)),
    ];
    for (first, blocks) in parts {
        if first == 0 || first >= geometry.blocks || blocks > geometry.blocks - first {
            return Err(corrupt("where a group's parts lie"));
        }
    }
    let join = |high: U16, low: U16| u32::from(high.get()) << 16 | u32::from(low.get());
    let group = Group {
        block_bitmap: parts[0].0,
        inode_bitmap: parts[1].0,
        inode_table: parts[2].0,
        free_blocks: join(descriptor.free_blocks_high, descriptor.free_blocks_low),
        free_inodes: join(descriptor.free_inodes_high, descriptor.free_inodes_low),
        directories: join(descriptor.directories_high, descriptor.directories_low),
        unused_inodes: join(descriptor.unused_inodes_high, descriptor.unused_inodes_low),
        flags: descriptor.flags.get(),
        block_bitmap_sum: join(descriptor.block_bitmap_checksum_high, descriptor.block_bitmap_checksum_low),
        inode_bitmap_sum: join(descriptor.inode_bitmap_checksum_high, descriptor.inode_bitmap_checksum_low),
    };
    let inodes = geometry.inodes_per_group;
    let counts = [group.free_inodes, group.directories, group.unused_inodes];
    if u64::from(group.free_blocks) > GROUP_BLOCKS || counts.iter().any(|count| *count > inodes) {
        return Err(corrupt("the counts of a group"));
    }
    Ok(group)
}

/// Writes what changes of the descriptor of group `number` into its block, which was decoded.
pub(crate) fn encode(geometry: &Geometry, number: u32, block: &mut Block, group: &Group) {
    let at = (number % DESCRIPTORS_OF_BLOCK) as usize * DESCRIPTOR_BYTES;
    let bytes = &mut block[at..at + DESCRIPTOR_BYTES];
    let Ok(descriptor) = Descriptor::mut_from_bytes(bytes) else { return };
    let split = |value: u32| (U16::new((value >> 16) as u16), U16::new(value as u16));
    (descriptor.free_blocks_high, descriptor.free_blocks_low) = split(group.free_blocks);
    (descriptor.free_inodes_high, descriptor.free_inodes_low) = split(group.free_inodes);
    (descriptor.directories_high, descriptor.directories_low) = split(group.directories);
    (descriptor.unused_inodes_high, descriptor.unused_inodes_low) = split(group.unused_inodes);
    (descriptor.block_bitmap_checksum_high, descriptor.block_bitmap_checksum_low) = split(group.block_bitmap_sum);
    (descriptor.inode_bitmap_checksum_high, descriptor.inode_bitmap_checksum_low) = split(group.inode_bitmap_sum);
    descriptor.flags = U16::new(group.flags);
    let sum = sum(Checksum(geometry.checksum_seed), number, bytes);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum.to_le_bytes());
}
