//! The super block: what the volume is and how large its parts are.
//!
//! Invariant of [`Geometry`]: all its numbers fit each other, so that an inode number or a group
//! number that was checked against it leads to a block inside the volume, without overflow.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::Checksum;
use crate::error::{Error, Refusal, Stop};
use crate::{BLOCK_BYTES, Block, feature};

/// Where the super block begins in block 0.
const OFFSET: usize = 1024;
/// Bytes of the super block.
const BYTES: usize = 1024;
/// Its magic number.
const MAGIC: u16 = 0xEF53;
/// Blocks of a group: as many as one block has bits.
pub(crate) const GROUP_BLOCKS: u64 = 8 * BLOCK_BYTES as u64;
/// Bytes of a group descriptor.
pub(crate) const DESCRIPTOR_BYTES: usize = 64;
/// Most blocks of a volume: extents have 48 bits for a block.
const BLOCKS_MAX: u64 = 1 << 48;
/// The journal's inode.
pub const JOURNAL_INODE: u32 = 8;
/// The first inode that is nobody's by its number, at least.
const FIRST_INODE_MIN: u32 = 11;
/// Bytes of an inode: at least as many as a checksum of 32 bits needs.
const INODE_BYTES_MIN: u16 = 256;

/// The super block as it lies on the disk, from byte 1024 of the volume.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SuperBlock {
    inodes_count: U32,
    blocks_count_low: U32,
    reserved_blocks_low: U32,
    free_blocks_low: U32,
    free_inodes: U32,
    first_data_block: U32,
    log_block_size: U32,
    log_cluster_size: U32,
    blocks_per_group: U32,
    clusters_per_group: U32,
    inodes_per_group: U32,
    mount_time: U32,
    write_time: U32,
    mount_count: U16,
    max_mount_count: U16,
    magic: U16,
    state: U16,
    errors: U16,
    minor_revision: U16,
    last_check: U32,
    check_interval: U32,
    creator: U32,
    revision: U32,
    reserved_user: U16,
    reserved_group: U16,
    first_inode: U32,
    inode_bytes: U16,
    block_group: U16,
    compat: U32,
    incompat: U32,
    ro_compat: U32,
    uuid: [u8; 16],
    label: [u8; 16],
    last_mounted: [u8; 64],
    algorithms: U32,
    preallocate: [u8; 2],
    reserved_descriptor_blocks: U16,
    journal_uuid: [u8; 16],
    journal_inode: U32,
    journal_device: U32,
    last_orphan: U32,
    hash_seed: [U32; 4],
    default_hash: u8,
    journal_backup_type: u8,
    descriptor_bytes: U16,
    default_mount_options: U32,
    first_meta_group: U32,
    make_time: U32,
    journal_blocks: [U32; 17],
    blocks_count_high: U32,
    reserved_blocks_high: U32,
    free_blocks_high: U32,
    min_extra_bytes: U16,
    want_extra_bytes: U16,
    flags: U32,
    raid_stride: U16,
    mmp_interval: U16,
    mmp_block: U64,
    raid_stripe_width: U32,
    log_groups_per_flex: u8,
    checksum_type: u8,
    reserved_pad: U16,
    kbytes_written: U64,
    snapshot: [U32; 5],
    error_log: [u8; 108],
    mount_options: [u8; 64],
    quota_inodes: [U32; 2],
    overhead: U32,
    backup_groups: [U32; 2],
    encryption: [u8; 20],
    lost_found_inode: U32,
    project_quota_inode: U32,
    checksum_seed: U32,
    times_high: [u8; 8],
    encoding: [U16; 2],
    orphan_file_inode: U32,
    reserved: [U32; 94],
    checksum: U32,
}

const _: () = assert!(size_of::<SuperBlock>() == BYTES);

/// The numbers of a super block that were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of the volume.
    pub blocks: u64,
    /// Inodes of the volume.
    pub inodes: u32,
    /// Groups of the volume.
    pub groups: u32,
    /// Inodes of each group.
    pub inodes_per_group: u32,
    /// Bytes of an inode.
    pub inode_bytes: u16,
    /// What hashes of names start from.
    pub hash_seed: [u32; 4],
    /// Hashes of names take bytes as unsigned.
    pub is_hash_unsigned: bool,
    /// The journal has transactions that are not in their places yet.
    pub needs_recovery: bool,
    /// What all checksums but the super block's own start from.
    pub checksum_seed: u32,
}

impl Geometry {
    /// Decodes block 0 of a volume on a device of `device_blocks`.
    ///
    /// # Errors
    /// [`Error::NotExt4`]; [`Error::Refused`] with what is not supported; [`Error::Corrupt`] if the
    /// checksum does not fit or numbers do not fit each other.
    pub fn decode(block: &Block, device_blocks: u64) -> Result<Geometry, Stop> {
        let bytes = &block[OFFSET..OFFSET + BYTES];
        let super_block = SuperBlock::ref_from_bytes(bytes).map_err(|_| Error::NotExt4)?;
        if super_block.magic.get() != MAGIC {
            return Err(Error::NotExt4.into());
        }
        // Features come first: without metadata_csum there is no checksum to look at.
        feature::check(super_block.compat.get(), super_block.incompat.get(), super_block.ro_compat.get())?;
        let sum = Checksum::START.with(&bytes[..BYTES - 4]);
        if super_block.checksum_type != 1 || sum.0 != super_block.checksum.get() {
            return Err(Error::corrupt("the super block's checksum", 0));
        }
        super_block.check_sizes()?;
        super_block.geometry(device_blocks)
    }
}

impl SuperBlock {
    /// Blocks of the volume.
    fn blocks(&self) -> u64 {
        u64::from(self.blocks_count_high.get()) << 32 | u64::from(self.blocks_count_low.get())
    }

    /// Refuses sizes that are others here.
    fn check_sizes(&self) -> Result<(), Error> {
        let sizes = [
            ("revision", self.revision.get(), 1),
            ("log_block_size", self.log_block_size.get(), 2),
            ("log_cluster_size", self.log_cluster_size.get(), 2),
            ("first_data_block", self.first_data_block.get(), 0),
            ("blocks_per_group", self.blocks_per_group.get(), GROUP_BLOCKS as u32),
            ("clusters_per_group", self.clusters_per_group.get(), GROUP_BLOCKS as u32),
            ("descriptor size", u32::from(self.descriptor_bytes.get()), DESCRIPTOR_BYTES as u32),
            ("journal's inode", self.journal_inode.get(), JOURNAL_INODE),
            ("journal's device", self.journal_device.get(), 0),
        ];
        for (name, value, ours) in sizes {
            if value != ours {
                return Err(Error::Refused(Refusal::Size(name, u64::from(value))));
            }
        }
        let inode_bytes = self.inode_bytes.get();
        let fits = inode_bytes.is_power_of_two() && (INODE_BYTES_MIN..=BLOCK_BYTES as u16).contains(&inode_bytes);
        if fits { Ok(()) } else { Err(Error::Refused(Refusal::Size("inode size", u64::from(inode_bytes)))) }
    }

    /// The numbers, if they fit each other and the device.
    fn geometry(&self, device_blocks: u64) -> Result<Geometry, Stop> {
        let blocks = self.blocks();
        if blocks > device_blocks {
            return Err(Error::Refused(Refusal::Device { blocks: device_blocks, volume: blocks }).into());
        }
        let corrupt = |what| Error::corrupt(what, 0);
        let groups = u32::try_from(blocks.div_ceil(GROUP_BLOCKS)).map_err(|_| corrupt("the number of blocks"))?;
        let descriptor_blocks = (u64::from(groups) * DESCRIPTOR_BYTES as u64).div_ceil(BLOCK_BYTES as u64);
        if blocks >= BLOCKS_MAX || blocks <= 1 + descriptor_blocks {
            return Err(corrupt("the number of blocks"));
        }
        let per_group = self.inodes_per_group.get();
        let per_block = BLOCK_BYTES as u32 / u32::from(self.inode_bytes.get());
        if per_group == 0 || u64::from(per_group) > GROUP_BLOCKS || !per_group.is_multiple_of(per_block) {
            return Err(corrupt("inodes of a group"));
        }
        let inodes = self.inodes_count.get();
        if per_group.checked_mul(groups) != Some(inodes)
            || !(FIRST_INODE_MIN..=inodes).contains(&self.first_inode.get())
        {
            return Err(corrupt("the number of inodes"));
        }
        let has_seed = self.incompat.get() & feature::CSUM_SEED != 0;
        let checksum_seed = if has_seed { self.checksum_seed.get() } else { Checksum::START.with(&self.uuid).0 };
        Ok(Geometry {
            blocks,
            inodes,
            groups,
            inodes_per_group: per_group,
            inode_bytes: self.inode_bytes.get(),
            hash_seed: self.hash_seed.map(U32::get),
            is_hash_unsigned: self.flags.get() & 0x2 != 0,
            needs_recovery: self.incompat.get() & feature::RECOVER != 0,
            checksum_seed,
        })
    }
}
