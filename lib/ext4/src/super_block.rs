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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Blocks;
    use crate::testing::{Memory, options};

    const BLOCKS: u64 = 2048;

    /// A right super block with a change, and the checksum of that.
    fn changed(change: impl FnOnce(&mut SuperBlock)) -> Block {
        let mut block = *Memory::formatted(BLOCKS).block(0).unwrap();
        let bytes = &mut block[OFFSET..OFFSET + BYTES];
        change(SuperBlock::mut_from_bytes(bytes).unwrap());
        let sum = Checksum::START.with(&bytes[..BYTES - 4]).0;
        bytes[BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        block
    }

    fn decoded(change: impl FnOnce(&mut SuperBlock)) -> Result<Geometry, Stop> {
        Geometry::decode(&changed(change), 1 << 50)
    }

    fn corrupt<T>(what: &'static str) -> Result<T, Stop> {
        Err(Error::corrupt(what, 0))
    }

    #[test]
    fn what_is_no_super_block_or_has_a_wrong_checksum_is_refused() {
        assert_eq!(decoded(|it| it.magic = U16::new(0xEF51)), Err(Error::NotExt4.into()));
        let wrong = corrupt("the super block's checksum");
        assert_eq!(decoded(|it| it.checksum_type = 2), wrong);
        let mut block = changed(|_| {});
        block[OFFSET + 0x78] ^= 1;
        assert_eq!(Geometry::decode(&block, BLOCKS), wrong);
    }

    #[test]
    fn sizes_that_are_others_here_are_refused_by_name() {
        type Change = fn(&mut SuperBlock);
        let cases: [(&str, u64, Change); 14] = [
            ("revision", 0, |it| it.revision = U32::new(0)),
            ("log_block_size", 0, |it| it.log_block_size = U32::new(0)),
            ("log_cluster_size", 6, |it| it.log_cluster_size = U32::new(6)),
            ("first_data_block", 1, |it| it.first_data_block = U32::new(1)),
            ("blocks_per_group", 8192, |it| it.blocks_per_group = U32::new(8192)),
            ("clusters_per_group", 8192, |it| it.clusters_per_group = U32::new(8192)),
            ("descriptor size", 32, |it| it.descriptor_bytes = U16::new(32)),
            ("journal's inode", 12, |it| it.journal_inode = U32::new(12)),
            ("journal's device", 1, |it| it.journal_device = U32::new(1)),
            ("inode size", 128, |it| it.inode_bytes = U16::new(128)),
            ("inode size", 8192, |it| it.inode_bytes = U16::new(8192)),
            ("inode size", 384, |it| it.inode_bytes = U16::new(384)),
            ("inode size", 96, |it| it.inode_bytes = U16::new(96)),
            ("inode size", 0, |it| it.inode_bytes = U16::new(0)),
        ];
        for (name, value, change) in cases {
            assert_eq!(decoded(change), Err(Error::Refused(Refusal::Size(name, value)).into()), "{name}");
        }
        for bytes in [256, 512, 4096] {
            assert_eq!(decoded(|it| it.inode_bytes = U16::new(bytes)).unwrap().inode_bytes, bytes);
        }
    }

    #[test]
    fn a_volume_is_no_larger_than_its_device_and_than_its_descriptors() {
        let of = |blocks: u64| {
            decoded(|it| {
                it.blocks_count_low = U32::new(blocks as u32);
                it.blocks_count_high = U32::new((blocks >> 32) as u32);
                let groups = blocks.div_ceil(GROUP_BLOCKS) as u32;
                it.inodes_per_group = U32::new(16);
                it.inodes_count = U32::new(groups.wrapping_mul(16));
            })
        };
        let wrong = corrupt("the number of blocks");
        assert_eq!([0, 1, 2].map(of), [wrong.clone(), wrong.clone(), wrong.clone()]);
        let large = 0x2_0001_8001;
        for (blocks, groups) in [(3, 1), (32_768, 1), (32_769, 2), (65 * 32_768, 65), (large, 0x4_0004)] {
            let geometry = of(blocks).unwrap();
            assert_eq!((geometry.blocks, geometry.groups), (blocks, groups));
        }
        assert_eq!(of(1 << 48), wrong);
        let device = Geometry::decode(&changed(|_| {}), BLOCKS - 1);
        let refusal = Refusal::Device { blocks: BLOCKS - 1, volume: BLOCKS };
        assert_eq!(device, Err(Error::Refused(refusal).into()));
    }

    #[test]
    fn counts_of_inodes_fit_each_other() {
        // Of a volume with two groups.
        let of = |per_group: u32, inodes: u32, first: u32| {
            decoded(|it| {
                it.blocks_count_low = U32::new(65_536);
                it.inodes_per_group = U32::new(per_group);
                it.inodes_count = U32::new(inodes);
                it.first_inode = U32::new(first);
            })
        };
        let per_group = corrupt("inodes of a group");
        assert_eq!(of(0, 0, 11), per_group);
        assert_eq!(of(1000, 2000, 11), per_group, "the last block of the table is not full");
        assert_eq!(of(32_784, 65_568, 11), per_group, "more than a bitmap has bits");
        let inodes = corrupt("the number of inodes");
        for (count, first) in [(2047, 11), (1024, 11), (2049, 11), (2048, 10), (2048, 2049), (2047, 2048)] {
            assert_eq!(of(1024, count, first), inodes, "{count} from {first} on");
        }
        for (per_group, first) in [(16, 11), (1024, 2048), (32_768, 11)] {
            let geometry = of(per_group, 2 * per_group, first).unwrap();
            assert_eq!((geometry.inodes_per_group, geometry.inodes), (per_group, 2 * per_group));
        }
    }

    #[test]
    fn checksums_start_from_the_uuid_or_from_what_stands_there() {
        let uuid = options(BLOCKS).uuid;
        let seed = |change: fn(&mut SuperBlock)| decoded(change).unwrap().checksum_seed;
        assert_eq!(seed(|it| it.checksum_seed = U32::new(99)), Checksum::START.with(&uuid).0);
        let has_seed = |it: &mut SuperBlock| {
            it.checksum_seed = U32::new(99);
            it.incompat |= U32::new(feature::CSUM_SEED);
        };
        assert_eq!(seed(has_seed), 99);
    }

    #[test]
    fn a_super_block_says_how_names_are_hashed_and_whether_to_recover() {
        let of = |flags: u32, recover: u32| {
            let geometry = decoded(|it| {
                it.flags = U32::new(flags);
                it.incompat |= U32::new(recover);
            });
            geometry.map(|geometry| (geometry.is_hash_unsigned, geometry.needs_recovery)).unwrap()
        };
        assert_eq!([of(0, 0), of(1, 0), of(2, 0)], [(false, false), (false, false), (true, false)]);
        assert_eq!(of(1, feature::RECOVER), (false, true));
    }

    #[test]
    fn a_writer_is_told_what_the_volume_has() {
        type Change = fn(&mut SuperBlock);
        let of = |change: Change| Settings::decode(&changed(change)).unwrap();
        let all = of(|_| {});
        assert!(all.has_xattrs && all.has_index && all.has_many_links && all.is_sparse);
        let without: [(Change, Settings); 4] = [
            (|it| it.compat &= U32::new(!0x8), Settings { has_xattrs: false, ..all.clone() }),
            (|it| it.compat &= U32::new(!0x20), Settings { has_index: false, ..all.clone() }),
            (|it| it.ro_compat &= U32::new(!0x20), Settings { has_many_links: false, ..all.clone() }),
            (|it| it.ro_compat &= U32::new(!0x1), Settings { is_sparse: false, ..all.clone() }),
        ];
        for (change, expected) in without {
            assert_eq!(of(change), expected);
        }
        let refused = Settings::decode(&changed(|it| it.compat |= U32::new(0x200)));
        assert_eq!(refused, Err(Error::Refused(Refusal::Has("sparse_super2")).into()));
    }

    #[test]
    fn a_new_inode_has_as_many_bytes_as_the_volume_wants_if_they_have_room() {
        let extra = |bytes: u16| Settings::decode(&changed(|it| it.want_extra_bytes = U16::new(bytes))).unwrap();
        for (wanted, given) in [(0, 32), (28, 32), (32, 32), (33, 32), (36, 36), (128, 128), (132, 32)] {
            assert_eq!(extra(wanted).extra_bytes, given, "{wanted}");
        }
    }

    #[test]
    fn a_clean_volume_has_both_halves_of_its_free_blocks_in_one_sector() {
        let mut block = changed(|it| it.incompat |= U32::new(feature::RECOVER));
        let before = block;
        change(&mut block, &Change::Clean { free_blocks: 0x3_8765_4321, free_inodes: 1234, now: 5678 });
        let bytes = &block[OFFSET..OFFSET + BYTES];
        let it = SuperBlock::ref_from_bytes(bytes).unwrap();
        assert_eq!((it.free_blocks_low.get(), it.free_blocks_high.get()), (0x8765_4321, 3));
        assert_eq!((it.free_inodes.get(), it.write_time.get()), (1234, 5678));
        assert!(!Geometry::decode(&block, BLOCKS).unwrap().needs_recovery, "its checksum is right");
        assert!(block[OFFSET + SECTOR..] == before[OFFSET + SECTOR..]);
    }
}
