//! Group descriptors: where a group's bitmaps and its inodes lie.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::Checksum;
use crate::error::{Error, Stop};
use crate::super_block::{DESCRIPTOR_BYTES, Geometry};
use crate::{BLOCK_BYTES, Block};

/// Descriptors of a block.
const PER_BLOCK: u32 = (BLOCK_BYTES / DESCRIPTOR_BYTES) as u32;
/// Where the checksum stands in a descriptor.
const CHECKSUM_AT: usize = 30;

/// A descriptor as it lies on the disk, from block 1 on.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Descriptor {
    block_bitmap_low: U32,
    inode_bitmap_low: U32,
    inode_table_low: U32,
    free_blocks_low: U16,
    free_inodes_low: U16,
    directories_low: U16,
    flags: U16,
    exclude_bitmap_low: U32,
    block_bitmap_checksum_low: U16,
    inode_bitmap_checksum_low: U16,
    unused_inodes_low: U16,
    checksum: U16,
    block_bitmap_high: U32,
    inode_bitmap_high: U32,
    inode_table_high: U32,
    free_blocks_high: U16,
    free_inodes_high: U16,
    directories_high: U16,
    unused_inodes_high: U16,
    exclude_bitmap_high: U32,
    block_bitmap_checksum_high: U16,
    inode_bitmap_checksum_high: U16,
    reserved: U32,
}

const _: () = assert!(size_of::<Descriptor>() == DESCRIPTOR_BYTES);

/// Where the parts of a group are; all of them are inside the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// First block of the inodes.
    pub inode_table: u64,
}

/// The block that group `group`'s descriptor is in.
pub(crate) fn descriptor_block(group: u32) -> u64 {
    1 + u64::from(group / PER_BLOCK)
}

/// Decodes the descriptor of `group` out of its block.
///
/// # Errors
/// [`Error::Corrupt`]: checksum, or a part that is not inside the volume.
pub(crate) fn decode(geometry: &Geometry, group: u32, block: &Block) -> Result<Group, Stop> {
    let corrupt = |what| Error::corrupt(what, u64::from(group));
    let at = (group % PER_BLOCK) as usize * DESCRIPTOR_BYTES;
    let bytes = &block[at..at + DESCRIPTOR_BYTES];
    let descriptor = Descriptor::ref_from_bytes(bytes).map_err(|_| corrupt("a group descriptor"))?;
    let sum = Checksum(geometry.checksum_seed)
        .with_u32(group)
        .with(&bytes[..CHECKSUM_AT])
        .with(&[0; 2])
        .with(&bytes[CHECKSUM_AT + 2..]);
    if sum.0 as u16 != descriptor.checksum.get() {
        return Err(corrupt("a group descriptor's checksum"));
    }
    let number = |high: U32, low: U32| u64::from(high.get()) << 32 | u64::from(low.get());
    let table_blocks = u64::from(geometry.inodes_per_group) * u64::from(geometry.inode_bytes) / BLOCK_BYTES as u64;
    let parts = [
        (number(descriptor.block_bitmap_high, descriptor.block_bitmap_low), 1),
        (number(descriptor.inode_bitmap_high, descriptor.inode_bitmap_low), 1),
        (number(descriptor.inode_table_high, descriptor.inode_table_low), table_blocks),
    ];
    for (first, blocks) in parts {
        if first == 0 || first >= geometry.blocks || blocks > geometry.blocks - first {
            return Err(corrupt("where a group's parts lie"));
        }
    }
    Ok(Group { inode_table: parts[2].0 })
}
