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
pub(crate) const OFFSET: usize = 1024;
/// Bytes of the super block.
const BYTES: usize = 1024;
/// Its magic number.
pub(crate) const MAGIC: u16 = 0xEF53;
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
pub(crate) struct SuperBlock {
    pub inodes_count: U32,
    pub blocks_count_low: U32,
    pub reserved_blocks_low: U32,
    pub free_blocks_low: U32,
    pub free_inodes: U32,
    pub first_data_block: U32,
    pub log_block_size: U32,
    pub log_cluster_size: U32,
    pub blocks_per_group: U32,
    pub clusters_per_group: U32,
    pub inodes_per_group: U32,
    pub mount_time: U32,
    pub write_time: U32,
    pub mount_count: U16,
    pub max_mount_count: U16,
    pub magic: U16,
    pub state: U16,
    pub errors: U16,
    pub minor_revision: U16,
    pub last_check: U32,
    pub check_interval: U32,
    pub creator: U32,
    pub revision: U32,
    pub reserved_user: U16,
    pub reserved_group: U16,
    pub first_inode: U32,
    pub inode_bytes: U16,
    pub block_group: U16,
    pub compat: U32,
    pub incompat: U32,
    pub ro_compat: U32,
    pub uuid: [u8; 16],
    pub label: [u8; 16],
    pub last_mounted: [u8; 64],
    pub algorithms: U32,
    pub preallocate: [u8; 2],
    pub reserved_descriptor_blocks: U16,
    pub journal_uuid: [u8; 16],
    pub journal_inode: U32,
    pub journal_device: U32,
    pub last_orphan: U32,
    pub hash_seed: [U32; 4],
    pub default_hash: u8,
    pub journal_backup_type: u8,
    pub descriptor_bytes: U16,
    pub default_mount_options: U32,
    pub first_meta_group: U32,
    pub make_time: U32,
    pub journal_blocks: [U32; 17],
    pub blocks_count_high: U32,
    pub reserved_blocks_high: U32,
    pub free_blocks_high: U32,
    pub min_extra_bytes: U16,
    pub want_extra_bytes: U16,
    pub flags: U32,
    pub raid_stride: U16,
    pub mmp_interval: U16,
    pub mmp_block: U64,
    pub raid_stripe_width: U32,
    pub log_groups_per_flex: u8,
    pub checksum_type: u8,
    pub reserved_pad: U16,
    pub kbytes_written: U64,
    pub snapshot: [U32; 5],
    pub error_log: [u8; 108],
    pub mount_options: [u8; 64],
    pub quota_inodes: [U32; 2],
    pub overhead: U32,
    pub backup_groups: [U32; 2],
    pub encryption: [u8; 20],
    pub lost_found_inode: U32,
    pub project_quota_inode: U32,
    pub checksum_seed: U32,
    pub times_high: [u8; 8],
    pub encoding: [U16; 2],
    pub orphan_file_inode: U32,
    pub reserved: [U32; 94],
    pub checksum: U32,
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

/// Bytes of a sector: the disk writes one whole or not at all.
const SECTOR: usize = 512;
/// Four bytes of the first sector that nobody reads (`s_snapshot_id`).
const FREE_AT: usize = 0x184;

/// What a writer asks of the super block, beside the geometry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The first inode that is nobody's by its number.
    pub first_inode: u32,
    /// Inodes may have extended attributes.
    pub has_xattrs: bool,
    /// Large directories get an index.
    pub has_index: bool,
    /// Directories may have more than 65,000 others in them.
    pub has_many_links: bool,
    /// The way bytes of names are hashed.
    pub hash: u8,
    /// Bytes behind the base of a new inode.
    pub extra_bytes: u16,
    /// The first inode of the orphan list, or 0.
    pub last_orphan: u32,
    /// Blocks that are kept for more group descriptors.
    pub reserved_descriptor_blocks: u16,
    /// Only some groups have a copy of the super block.
    pub is_sparse: bool,
}

impl Settings {
    /// Decodes block 0, which [`Geometry::decode`] has accepted.
    ///
    /// # Errors
    /// [`Error::Refused`] with what only a reader can do.
    pub fn decode(block: &Block) -> Result<Settings, Stop> {
        const DIR_INDEX: u32 = 0x20;
        const EXT_ATTR: u32 = 0x8;
        const DIR_NLINK: u32 = 0x20;
        const SPARSE_SUPER: u32 = 0x1;
        const SPARSE_SUPER_2: u32 = 0x200;
        let super_block = SuperBlock::ref_from_bytes(&block[OFFSET..OFFSET + BYTES]).map_err(|_| Error::NotExt4)?;
        if super_block.compat.get() & SPARSE_SUPER_2 != 0 {
            return Err(Error::Refused(Refusal::Has("sparse_super2")).into());
        }
        let inode_bytes = super_block.inode_bytes.get();
        let extra_bytes = super_block.want_extra_bytes.get();
        // Times with nanoseconds and the creation time take 32 bytes.
        let fits = extra_bytes.is_multiple_of(4) && (32..=inode_bytes.saturating_sub(128)).contains(&extra_bytes);
        Ok(Settings {
            first_inode: super_block.first_inode.get(),
            has_xattrs: super_block.compat.get() & EXT_ATTR != 0,
            has_index: super_block.compat.get() & DIR_INDEX != 0,
            has_many_links: super_block.ro_compat.get() & DIR_NLINK != 0,
            hash: super_block.default_hash,
            extra_bytes: if fits { extra_bytes } else { 32 },
            last_orphan: super_block.last_orphan.get(),
            reserved_descriptor_blocks: super_block.reserved_descriptor_blocks.get(),
            is_sparse: super_block.ro_compat.get() & SPARSE_SUPER != 0,
        })
    }
}

/// Changes block 0 so that its checksum stays as it is: all that is changed, and four bytes that
/// make up for it, are in one sector, so a cut leaves the old super block or the new one.
pub(crate) fn change(block: &mut Block, change: &Change) {
    let (bytes, _) = block[OFFSET..].split_at_mut(BYTES);
    let Ok(super_block) = SuperBlock::mut_from_bytes(bytes) else { return };
    match *change {
        Change::NeedsRecovery => super_block.incompat |= U32::new(feature::RECOVER),
        Change::Orphan(first) => super_block.last_orphan = U32::new(first),
        Change::Clean { free_blocks, free_inodes, now } => {
            super_block.incompat &= U32::new(!feature::RECOVER);
            super_block.free_blocks_low = U32::new(free_blocks as u32);
            super_block.free_blocks_high = U32::new((free_blocks >> 32) as u32);
            super_block.free_inodes = U32::new(free_inodes);
            super_block.write_time = U32::new(now);
        }
    }
    let right = Checksum(super_block.checksum.get());
    let before = Checksum::START.with(&bytes[..FREE_AT]);
    let word = before.word_to(right.before(&bytes[FREE_AT + 4..BYTES - 4]));
    bytes[FREE_AT..FREE_AT + 4].copy_from_slice(&word.to_le_bytes());
    debug_assert!(FREE_AT + 4 <= SECTOR && Checksum::START.with(&bytes[..BYTES - 4]) == right);
}

/// What changes in the super block of a volume that is written.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// The journal may have transactions from now on.
    NeedsRecovery,
    /// The orphan list begins with this inode; 0 if there is none.
    Orphan(u32),
    /// All is in its place.
    Clean {
        /// Free blocks.
        free_blocks: u64,
        /// Free inodes.
        free_inodes: u32,
        /// Seconds since 1970.
        now: u32,
    },
}
