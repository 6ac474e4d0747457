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

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::*;

    /// A group whose descriptor is behind those of three others, in the second block of them.
    const NUMBER: u32 = 67;
    const AT: usize = 3 * 64;
    const BLOCKS: u64 = 0x5_0000_4000;
    const INODES: u32 = 2048;
    /// Blocks of 2048 inodes of 256 bytes.
    const TABLE: u64 = 128;

    fn geometry() -> Geometry {
        Geometry {
            blocks: BLOCKS,
            inodes: 200 * INODES,
            groups: 200,
            inodes_per_group: INODES,
            inode_bytes: 256,
            hash_seed: [0; 4],
            is_hash_unsigned: false,
            needs_recovery: false,
            checksum_seed: 77,
        }
    }

    /// A block with a descriptor whose numbers stand where the format has them; `changes` are other
    /// bytes of it. Its checksum is right.
    fn block(changes: &[(usize, &[u8])]) -> Box<Block> {
        let fields: [(usize, &[u8]); 15] = [
            (0x00, &0x11_2233u32.to_le_bytes()),
            (0x04, &0x44_5566u32.to_le_bytes()),
            (0x08, &0x77_8899u32.to_le_bytes()),
            (0x0C, &0x7001u16.to_le_bytes()),
            (0x0E, &0x0702u16.to_le_bytes()),
            (0x10, &0x0103u16.to_le_bytes()),
            (0x12, &0x0004u16.to_le_bytes()),
            (0x18, &0xA1A2u16.to_le_bytes()),
            (0x1A, &0xB1B2u16.to_le_bytes()),
            (0x1C, &0x0305u16.to_le_bytes()),
            (0x20, &4u32.to_le_bytes()),
            (0x24, &3u32.to_le_bytes()),
            (0x28, &2u32.to_le_bytes()),
            (0x38, &0xA3A4u16.to_le_bytes()),
            (0x3A, &0xB3B4u16.to_le_bytes()),
        ];
        let mut block = Box::new([0x5A; BLOCK_BYTES]);
        block[AT..AT + 64].fill(0);
        for (at, bytes) in fields.iter().chain(changes) {
            block[AT + at..][..bytes.len()].copy_from_slice(bytes);
        }
        let sum = sum(Checksum(geometry().checksum_seed), NUMBER, &block[AT..AT + 64]);
        block[AT + CHECKSUM_AT..][..2].copy_from_slice(&sum.to_le_bytes());
        block
    }

    fn decoded(block: &Block, number: u32) -> Result<Group, Stop> {
        decode(&geometry(), number, Found { block, known: None })
    }

    fn what_is_wrong(changes: &[(usize, &[u8])]) -> Option<&'static str> {
        match decoded(&block(changes), NUMBER) {
            Ok(_) => None,
            Err(Stop::Failed(Error::Corrupt { what, at: 67 })) => Some(what),
            Err(stop) => panic!("{stop:?}"),
        }
    }

    fn expected() -> Group {
        Group {
            block_bitmap: 0x4_0011_2233,
            inode_bitmap: 0x3_0044_5566,
            inode_table: 0x2_0077_8899,
            free_blocks: 0x7001,
            free_inodes: 0x0702,
            directories: 0x0103,
            unused_inodes: 0x0305,
            flags: 4,
            block_bitmap_sum: 0xA3A4_A1A2,
            inode_bitmap_sum: 0xB3B4_B1B2,
        }
    }

    #[test]
    fn a_block_has_sixty_four_descriptors_and_the_first_is_behind_the_super_block() {
        assert_eq!([0, 63, 64, 127, 128, 1000].map(descriptor_block), [1, 1, 2, 2, 3, 16]);
        assert_eq!(table_blocks(&geometry()), TABLE);
    }

    #[test]
    fn a_descriptor_has_both_halves_of_its_numbers() {
        assert_eq!(decoded(&block(&[]), NUMBER), Ok(expected()));
    }

    #[test]
    fn a_descriptor_that_is_not_this_groups_or_not_whole_is_refused() {
        let mut wrong = block(&[]);
        let refusal = |number| Err(Error::corrupt("a group descriptor's checksum", number));
        assert_eq!(decoded(&wrong, 3), refusal(3), "it is another group's");
        wrong[AT + 63] ^= 1;
        assert_eq!(decoded(&wrong, NUMBER), refusal(67));
    }

    #[test]
    fn the_parts_of_a_group_are_inside_the_volume() {
        const WRONG: Option<&str> = Some("where a group's parts lie");
        let at = |low: usize, number: u64| {
            let (low_half, high_half) = ((number as u32).to_le_bytes(), ((number >> 32) as u32).to_le_bytes());
            what_is_wrong(&[(low, &low_half), (low + 0x20, &high_half)])
        };
        for (low, blocks) in [(0x00, 1), (0x04, 1), (0x08, TABLE)] {
            let last = BLOCKS - blocks;
            assert_eq!([1, last - 1, last].map(|number| at(low, number)), [None; 3], "{low:#x}");
            assert_eq!([0, last + 1, BLOCKS, BLOCKS + 1, u64::MAX].map(|number| at(low, number)), [WRONG; 5]);
        }
    }

    #[test]
    fn a_group_has_no_more_free_than_it_has() {
        const WRONG: Option<&str> = Some("the counts of a group");
        for (low, high, most) in [
            (0x0C, 0x2C, 32_768),
            (0x0E, 0x2E, INODES as u16),
            (0x10, 0x30, INODES as u16),
            (0x1C, 0x32, INODES as u16),
        ] {
            let count = |number: u16| what_is_wrong(&[(low, &number.to_le_bytes())]);
            assert_eq!([0, most - 1, most, most + 1].map(count), [None, None, None, WRONG], "{low:#x}");
            assert_eq!(what_is_wrong(&[(high, &[1])]), WRONG, "the high half at {high:#x}");
        }
    }

    #[test]
    fn what_is_encoded_is_decoded_and_all_else_of_the_block_stays() {
        let mut block = block(&[]);
        let before = block.clone();
        let group = Group {
            free_blocks: 0x8000,
            free_inodes: 0x0708,
            directories: 0x0201,
            unused_inodes: 0x0605,
            flags: 3,
            block_bitmap_sum: 0xC1C2_C3C4,
            inode_bitmap_sum: 0xD1D2_D3D4,
            ..expected()
        };
        encode(&geometry(), NUMBER, &mut block, &group);
        assert_eq!(decoded(&block, NUMBER), Ok(group));
        assert!(block[..AT] == before[..AT] && block[AT + 64..] == before[AT + 64..]);
        encode(&geometry(), NUMBER, &mut block, &expected());
        assert!(block == before);
    }
}
