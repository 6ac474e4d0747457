//! Inodes: what a file is, apart from its names and bytes.

#[cfg(test)]
mod tests;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::Checksum;
use crate::error::{Error, Refusal, Stop};
use crate::super_block::Geometry;
use crate::{BLOCK_BYTES, extent};

/// The root directory's inode.
pub const ROOT: u32 = 2;
/// Bytes of an inode that all volumes have.
pub(crate) const BASE_BYTES: usize = 128;
/// Bytes behind them that a checksum of 32 bits needs.
const EXTRA_BYTES_MIN: usize = 4;
/// Where the two halves of the checksum stand.
const CHECKSUM_AT: [usize; 2] = [124, 130];
/// Bytes of the map, or of a short link's target.
pub(crate) const MAP_BYTES: usize = 60;
/// Most bytes of a file: a block has a number of 32 bits in it.
pub(crate) const SIZE_MAX: u64 = (1 << 32) * BLOCK_BYTES as u64;
/// Most blocks of a directory: an index names them by 28 bits.
const DIRECTORY_BLOCKS_MAX: u64 = 1 << 28;

/// The file is mapped by extents.
pub(crate) const FLAG_EXTENTS: u32 = 0x8_0000;
/// It counts blocks instead of sectors.
const FLAG_HUGE: u32 = 0x4_0000;
/// Sectors of a block.
pub(crate) const SECTORS: u64 = BLOCK_BYTES as u64 / 512;
/// The directory has an index.
const FLAG_INDEX: u32 = 0x1000;
/// Flags of inodes that are refused.
const FLAGS_REFUSED: [(u32, &str); 5] = [
    (0x800, "encrypt"),
    (0x10_0000, "verity"),
    (0x20_0000, "ea_inode"),
    (0x1000_0000, "inline_data"),
    (0x4000_0000, "casefold"),
];

/// An inode as it lies on the disk, without what lies behind its times.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Raw {
    pub mode: U16,
    pub user_low: U16,
    pub size_low: U32,
    pub access_time: U32,
    pub change_time: U32,
    pub modify_time: U32,
    pub delete_time: U32,
    pub group_low: U16,
    pub links: U16,
    pub sectors_low: U32,
    pub flags: U32,
    pub version: U32,
    pub map: [u8; MAP_BYTES],
    pub generation: U32,
    pub attributes_low: U32,
    pub size_high: U32,
    pub fragment: U32,
    pub sectors_high: U16,
    pub attributes_high: U16,
    pub user_high: U16,
    pub group_high: U16,
    pub checksum_low: U16,
    pub reserved: U16,
    pub extra_bytes: U16,
    pub checksum_high: U16,
}

/// Of an inode's times, which is which.
pub(crate) const ACCESSED: usize = 0;
pub(crate) const MODIFIED: usize = 1;
pub(crate) const CHANGED: usize = 2;
/// Where a time's part behind the base lies, and where its seconds are.
const TIMES: [(usize, usize); 3] = [(8, 140), (16, 136), (12, 132)];

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A named pipe.
    Pipe,
    /// A character device.
    CharacterDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A socket.
    Socket,
}

impl Kind {
    /// What a mode's upper four bits say.
    fn of_mode(mode: u16) -> Option<Kind> {
        Some(match mode >> 12 {
            1 => Kind::Pipe,
            2 => Kind::CharacterDevice,
            4 => Kind::Directory,
            6 => Kind::BlockDevice,
            8 => Kind::File,
            10 => Kind::Link,
            12 => Kind::Socket,
            _ => return None,
        })
    }

    /// What entries of a directory call it.
    pub(crate) fn of_entry(self) -> u8 {
        match self {
            Kind::File => 1,
            Kind::Directory => 2,
            Kind::CharacterDevice => 3,
            Kind::BlockDevice => 4,
            Kind::Pipe => 5,
            Kind::Socket => 6,
            Kind::Link => 7,
        }
    }

    /// A mode's upper four bits.
    fn mode(self) -> u16 {
        let bits = match self {
            Kind::Pipe => 1,
            Kind::CharacterDevice => 2,
            Kind::Directory => 4,
            Kind::BlockDevice => 6,
            Kind::File => 8,
            Kind::Link => 10,
            Kind::Socket => 12,
        };
        bits << 12
    }
}

/// A time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds, as the disk has them: up to 2^30.
    pub nanoseconds: u32,
}

/// An inode that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub number: u32,
    /// What it is.
    pub kind: Kind,
    /// Permissions, and the bits for set-user-ID, set-group-ID and sticky.
    pub permissions: u16,
    /// The owner.
    pub user: u32,
    /// The owning group.
    pub group: u32,
    /// Names that it has; for a directory 1 stands for more than 64,998.
    pub links: u16,
    /// Bytes.
    pub size: u64,
    /// Sectors of 512 bytes that it takes.
    pub sectors: u64,
    /// When it was last read, changed in its bytes, changed at all.
    pub times: [Time; 3],
    /// The block of its extended attributes, or 0.
    pub attributes: u64,
    /// Whether the directory has an index.
    pub(crate) has_index: bool,
    /// When it was deleted; on the orphan list, the next one of it.
    pub(crate) delete_time: u32,
    /// The root of the map, or a short link's target.
    pub(crate) map: [u8; MAP_BYTES],
    /// What checksums of its blocks start from.
    pub(crate) checksum_seed: u32,
}

impl Inode {
    /// Decodes inode `number` out of its bytes, of which there are as many as the geometry says.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is free; [`Error::Refused`] for flags that are not supported;
    /// [`Error::Corrupt`].
    pub(crate) fn decode(geometry: &Geometry, number: u32, bytes: &[u8]) -> Result<Inode, Stop> {
        let corrupt = |what| Error::corrupt(what, u64::from(number));
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| corrupt("an inode"))?;
        if raw.is_none() {
            return Err(Error::NotFound.into());
        }
        let extra = usize::from(raw.extra_bytes.get());
        if extra < EXTRA_BYTES_MIN || !extra.is_multiple_of(4) || extra > bytes.len() - BASE_BYTES {
            return Err(corrupt("an inode's size"));
        }
        let seed = raw.seed(geometry, number);
        let flags = raw.flags.get();
        if let Some((_, name)) = FLAGS_REFUSED.iter().find(|(bit, _)| flags & bit != 0) {
            return Err(Error::Refused(Refusal::Has(name)).into());
        }
        let inode = Inode {
            number,
            kind: Kind::of_mode(raw.mode.get()).ok_or(corrupt("an inode's kind"))?,
            permissions: raw.mode.get() & 0o7777,
            user: u32::from(raw.user_high.get()) << 16 | u32::from(raw.user_low.get()),
            group: u32::from(raw.group_high.get()) << 16 | u32::from(raw.group_low.get()),
            links: raw.links.get(),
            size: u64::from(raw.size_high.get()) << 32 | u64::from(raw.size_low.get()),
            sectors: raw.sectors(),
            times: TIMES.map(|(seconds, more)| time(bytes, seconds, more, BASE_BYTES + extra)),
            attributes: u64::from(raw.attributes_high.get()) << 32 | u64::from(raw.attributes_low.get()),
            has_index: flags & FLAG_INDEX != 0,
            delete_time: raw.delete_time.get(),
            map: raw.map,
            checksum_seed: seed.0,
        };
        inode.check(geometry, flags & FLAG_EXTENTS != 0)?;
        Ok(inode)
    }

    /// Compares the checksum in the bytes of an inode, if they are one.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn check_sum(geometry: &Geometry, number: u32, bytes: &[u8]) -> Result<(), Stop> {
        let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else { return Ok(()) };
        let told = u32::from(raw.checksum_high.get()) << 16 | u32::from(raw.checksum_low.get());
        if raw.is_none() || raw.sum(raw.seed(geometry, number), bytes) == told {
            Ok(())
        } else {
            Err(Error::corrupt("an inode's checksum", u64::from(number)))
        }
    }

    /// Whether what it says of itself fits the volume and its kind.
    fn check(&self, geometry: &Geometry, has_extents: bool) -> Result<(), Stop> {
        let corrupt = |what| Error::corrupt(what, u64::from(self.number));
        if self.attributes >= geometry.blocks {
            return Err(corrupt("where an inode's attributes lie"));
        }
        // No two blocks of a directory are one, so it has no more than the volume.
        let directory_max = geometry.blocks.min(DIRECTORY_BLOCKS_MAX);
        let fits = match self.kind {
            Kind::File => self.size <= SIZE_MAX,
            Kind::Directory => {
                self.size > 0 && self.size.is_multiple_of(BLOCK_BYTES as u64) && self.blocks() <= directory_max
            }
            Kind::Link if self.is_short_link() => return Ok(()),
            Kind::Link => self.size > 0 && self.size < BLOCK_BYTES as u64,
            _ => return Ok(()),
        };
        if !fits {
            return Err(corrupt("a file's size"));
        }
        if !has_extents {
            return Err(Error::Refused(Refusal::Lacks("extent")).into());
        }
        extent::check_root(self)
    }

    /// Whether a link's target is in the inode: then it takes no block but that of attributes.
    pub(crate) fn is_short_link(&self) -> bool {
        let attributes = if self.attributes == 0 { 0 } else { SECTORS };
        self.kind == Kind::Link && self.sectors == attributes && self.size > 0 && self.size < MAP_BYTES as u64
    }

    /// What checksums of its blocks start from.
    pub(crate) fn seed(&self) -> Checksum {
        Checksum(self.checksum_seed)
    }

    /// Blocks that its bytes reach into.
    pub(crate) fn blocks(&self) -> u64 {
        self.size.div_ceil(BLOCK_BYTES as u64)
    }
}

impl Raw {
    /// Nothing is there.
    fn is_none(&self) -> bool {
        self.mode.get() == 0 && self.links.get() == 0
    }

    /// What checksums of the inode and its blocks start from.
    fn seed(&self, geometry: &Geometry, number: u32) -> Checksum {
        Checksum(geometry.checksum_seed).with_u32(number).with_u32(self.generation.get())
    }

    /// The checksum that the inode should have.
    pub fn sum(&self, seed: Checksum, bytes: &[u8]) -> u32 {
        let [low, high] = CHECKSUM_AT;
        let sum = seed.with(&bytes[..low]).with(&[0; 2]).with(&bytes[low + 2..high]).with(&[0; 2]);
        sum.with(&bytes[high + 2..]).0
    }

    /// Sectors of 512 bytes; inodes that count in blocks say so.
    fn sectors(&self) -> u64 {
        let count = u64::from(self.sectors_high.get()) << 32 | u64::from(self.sectors_low.get());
        if self.flags.get() & FLAG_HUGE != 0 { count * SECTORS } else { count }
    }
}

/// What a new inode gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct New {
    /// What it is.
    pub kind: Kind,
    /// Permissions, and the bits for set-user-ID, set-group-ID and sticky.
    pub permissions: u16,
    /// The owner.
    pub user: u32,
    /// The owning group.
    pub group: u32,
    /// Of a device, its number as Linux has it in 32 bits: twelve bits of the major one behind the
    /// lowest eight of the minor one, then the rest of that. 0 for all else.
    pub device: u32,
}

impl Inode {
    /// Begins a new inode in its `bytes`. It has no name, no block and no size yet.
    pub(crate) fn begin(geometry: &Geometry, number: u32, bytes: &mut [u8], extra: u16, new: &New, now: Time) -> Inode {
        const CREATED: (usize, usize) = (144, 148);
        let seed = Checksum(geometry.checksum_seed).with_u32(number);
        // What tells it from others that had its number.
        let generation = seed.with(&now.seconds.to_le_bytes()).with_u32(now.nanoseconds).0;
        bytes.fill(0);
        let has_extents = matches!(new.kind, Kind::File | Kind::Directory);
        if let Ok((raw, _)) = Raw::mut_from_prefix(bytes) {
            raw.generation = U32::new(generation);
            raw.extra_bytes = U16::new(extra);
            raw.flags = U32::new(if has_extents { FLAG_EXTENTS } else { 0 });
        }
        put_time(bytes, now, CREATED.0, CREATED.1, BASE_BYTES + usize::from(extra));
        let mut map = if has_extents { extent::root_of(0..0) } else { [0; MAP_BYTES] };
        if matches!(new.kind, Kind::BlockDevice | Kind::CharacterDevice) {
            // Small numbers stand where they always stood.
            let at = if new.device < 1 << 16 { 0 } else { 4 };
            map[at..at + 4].copy_from_slice(&new.device.to_le_bytes());
        }
        Inode {
            number,
            kind: new.kind,
            permissions: new.permissions & 0o7777,
            user: new.user,
            group: new.group,
            links: 0,
            size: 0,
            sectors: 0,
            times: [now; 3],
            attributes: 0,
            has_index: false,
            delete_time: 0,
            map,
            checksum_seed: seed.with_u32(generation).0,
        }
    }

    /// Says in the inode's bytes that it has extents, as a long link does.
    pub(crate) fn begin_extents(&mut self, bytes: &mut [u8]) {
        self.map = extent::root_of(0..0);
        if let Ok((raw, _)) = Raw::mut_from_prefix(bytes) {
            raw.flags |= U32::new(FLAG_EXTENTS);
        }
    }

    /// Of a device, its number, as [`New::device`] has it.
    pub fn device(&self) -> u32 {
        let word = |at: usize| self.map[at..at + 4].iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        if word(0) != 0 { word(0) } else { word(4) }
    }

    /// Writes what is known of it over its bytes, and the checksum. What is not known stays.
    pub(crate) fn encode(&self, bytes: &mut [u8]) {
        let Ok((raw, _)) = Raw::mut_from_prefix(bytes) else { return };
        raw.mode = U16::new(self.kind.mode() | self.permissions);
        (raw.user_low, raw.user_high) = (U16::new(self.user as u16), U16::new((self.user >> 16) as u16));
        (raw.group_low, raw.group_high) = (U16::new(self.group as u16), U16::new((self.group >> 16) as u16));
        raw.links = U16::new(self.links);
        (raw.size_low, raw.size_high) = (U32::new(self.size as u32), U32::new((self.size >> 32) as u32));
        raw.delete_time = U32::new(self.delete_time);
        raw.attributes_low = U32::new(self.attributes as u32);
        raw.attributes_high = U16::new((self.attributes >> 32) as u16);
        raw.map = self.map;
        let index = if self.has_index { FLAG_INDEX } else { 0 };
        let flags = raw.flags.get() & !FLAG_INDEX | index;
        raw.flags = U32::new(flags);
        let sectors = if flags & FLAG_HUGE != 0 { self.sectors / SECTORS } else { self.sectors };
        (raw.sectors_low, raw.sectors_high) = (U32::new(sectors as u32), U16::new((sectors >> 32) as u16));
        let end = BASE_BYTES + usize::from(raw.extra_bytes.get());
        for (time, (seconds, more)) in self.times.iter().zip(TIMES) {
            put_time(bytes, *time, seconds, more, end);
        }
        put_sum(bytes, Checksum(self.checksum_seed));
    }
}

/// Puts the checksum of an inode's bytes right.
pub(crate) fn put_sum(bytes: &mut [u8], seed: Checksum) {
    let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else { return };
    let sum = raw.sum(seed, bytes);
    if let Ok((raw, _)) = Raw::mut_from_prefix(bytes) {
        (raw.checksum_low, raw.checksum_high) = (U16::new(sum as u16), U16::new((sum >> 16) as u16));
    }
}

/// Writes a time whose seconds stand at `seconds`, and the rest at `more` if that is before `end`.
pub(crate) fn put_time(bytes: &mut [u8], time: Time, seconds: usize, more: usize, end: usize) {
    bytes[seconds..seconds + 4].copy_from_slice(&(time.seconds as u32).to_le_bytes());
    if more + 4 <= end {
        // What is behind the first 32 bits, as they are read: with a sign.
        let epoch = ((time.seconds - i64::from(time.seconds as i32)) >> 32) as u32 & 3;
        bytes[more..more + 4].copy_from_slice(&(time.nanoseconds << 2 | epoch).to_le_bytes());
    }
}

/// The time whose seconds stand at `seconds` and the rest at `more`, if that is inside the inode.
fn time(bytes: &[u8], seconds: usize, more: usize, end: usize) -> Time {
    let word = |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes);
    let more = if more + 4 <= end { word(more) } else { 0 };
    // Two bits are an epoch of 2^32 s; those before 1970 are negative in the first.
    let seconds = i64::from(word(seconds) as i32) + (i64::from(more & 3) << 32);
    Time { seconds, nanoseconds: more >> 2 }
}
