//! What a device tells of itself (virtio 1.2, sections 5.2.3 and 5.2.4), decoded: whatever it says,
//! the limits here are some that can be kept.

use crate::command::SEGMENTS_MAX;
use crate::request::{Operation, Refused, Request, SECTOR_BYTES, SECTORS_MAX};

/// Feature bits.
pub mod feature {
    /// There is a most of bytes of a segment.
    pub const SIZE_MAX: u64 = 1 << 1;
    /// There is a most of segments of a request.
    pub const SEG_MAX: u64 = 1 << 2;
    /// It may not be written.
    pub const READ_ONLY: u64 = 1 << 5;
    /// It tells its blocks.
    pub const BLOCK_SIZE: u64 = 1 << 6;
    /// It may keep back what was written, until it is told to flush.
    pub const FLUSH: u64 = 1 << 9;
    /// It tells how its blocks lie on what it is made of.
    pub const TOPOLOGY: u64 = 1 << 10;
    /// It can give up what is of no use.
    pub const DISCARD: u64 = 1 << 13;
    /// It can write zeros that it is not sent.
    pub const WRITE_ZEROES: u64 = 1 << 14;
    /// Tables of descriptors.
    pub const INDIRECT: u64 = 1 << 28;
    /// Event indices.
    pub const EVENT_INDEX: u64 = 1 << 29;
    /// virtio 1.
    pub const VERSION_1: u64 = 1 << 32;
    /// What this driver cannot do without.
    pub const NEEDED: u64 = VERSION_1 | INDIRECT;
    /// What it takes where it is offered.
    pub const WANTED: [u64; 9] =
        [SIZE_MAX, SEG_MAX, READ_ONLY, BLOCK_SIZE, FLUSH, TOPOLOGY, DISCARD, WRITE_ZEROES, EVENT_INDEX];
}

/// Largest block that is taken: a page.
const BLOCK_BYTES_MAX: u32 = 4096;
/// So often the size is read until two in a row are equal: it may change between its bytes.
const LOOKS_MAX: usize = 8;

/// A device that says what cannot be; remedy: another device model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadGeometry {
    /// Its blocks are no power of two of 512 to 4,096 bytes.
    Block,
    /// Its limits of segments leave no room for a block.
    Segments,
    /// Its size does not stand still.
    Size,
}

/// A disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Its size, in sectors of 512 bytes.
    pub sectors: u64,
    /// Requests are made of such blocks.
    pub block_bytes: u32,
    /// Best are those of so many bytes.
    pub optimal_bytes: u32,
    /// It may not be written.
    pub is_read_only: bool,
    /// It may keep back what was written, until it is told to flush.
    pub keeps_back: bool,
    /// Most sectors of a discard; 0: it has none.
    pub discard_sectors_max: u32,
    /// Most sectors that are made zeros at once; 0: it has no such.
    pub zeroes_sectors_max: u32,
    /// Most segments of data of a command.
    pub segments_max: u32,
    /// Most bytes of one.
    pub segment_bytes_max: u32,
    /// Most sectors of a command with data.
    pub sectors_max: u32,
}

impl Geometry {
    /// Reads a device's configuration by bytes, of which it has those that these features bring.
    pub fn read(features: u64, mut byte: impl FnMut(u64) -> u8) -> Result<Geometry, BadGeometry> {
        let sectors = size(&mut byte).ok_or(BadGeometry::Size)?;
        let has = |feature| features & feature != 0;
        let mut word = |offset| (0..4u64).rev().fold(0u32, |all, index| all << 8 | u32::from(byte(offset + index)));
        let block_bytes = if has(feature::BLOCK_SIZE) { word(20) } else { SECTOR_BYTES };
        if !block_bytes.is_power_of_two() || !(SECTOR_BYTES..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err(BadGeometry::Block);
        }
        let segment_bytes_max = if has(feature::SIZE_MAX) { word(8) } else { u32::MAX };
        // Section 5.2.5: a device that offers it may say 0 and mean that one is all right.
        let segments_max = if has(feature::SEG_MAX) { word(12).clamp(1, SEGMENTS_MAX) } else { 1 };
        let bytes_max = segment_bytes_max.saturating_mul(segments_max) / block_bytes * block_bytes;
        let sectors_max = (bytes_max / SECTOR_BYTES).min(SECTORS_MAX);
        if sectors_max == 0 {
            return Err(BadGeometry::Segments);
        }
        // In blocks.
        let optimal = if has(feature::TOPOLOGY) { word(28) } else { 0 };
        let whole = |sectors: u32| sectors / (block_bytes / SECTOR_BYTES) * (block_bytes / SECTOR_BYTES);
        let discard = if has(feature::DISCARD) && word(40) > 0 { whole(word(36)) } else { 0 };
        let zeroes = if has(feature::WRITE_ZEROES) && word(52) > 0 { whole(word(48)) } else { 0 };
        Ok(Geometry {
            sectors: sectors / u64::from(block_bytes / SECTOR_BYTES) * u64::from(block_bytes / SECTOR_BYTES),
            block_bytes,
            optimal_bytes: optimal.saturating_mul(block_bytes),
            is_read_only: has(feature::READ_ONLY),
            keeps_back: has(feature::FLUSH),
            discard_sectors_max: discard,
            zeroes_sectors_max: zeroes,
            segments_max,
            segment_bytes_max,
            sectors_max,
        })
    }

    /// Whether the device can be given such a request.
    pub fn check(&self, request: &Request) -> Result<(), Refused> {
        let (is_write, most) = match request.operation {
            Operation::Read => (false, self.sectors_max),
            Operation::Write => (true, self.sectors_max),
            Operation::Discard => (true, self.discard_sectors_max),
            Operation::WriteZeroes { .. } => (true, self.zeroes_sectors_max),
            Operation::Flush | Operation::Identify => return Ok(()),
        };
        if is_write && self.is_read_only {
            return Err(Refused::ReadOnly);
        }
        if most == 0 {
            return Err(Refused::Unsupported);
        }
        let block = self.block_bytes / SECTOR_BYTES;
        let is_whole = request.sector.is_multiple_of(block.into()) && request.sectors.is_multiple_of(block);
        let is_inside = request.end().is_some_and(|end| end <= self.sectors);
        if (1..=most).contains(&request.sectors) && is_whole && is_inside { Ok(()) } else { Err(Refused::Range) }
    }
}

/// The size in sectors, of one time.
fn size(byte: &mut impl FnMut(u64) -> u8) -> Option<u64> {
    let mut read = || (0..8u64).rev().fold(0u64, |all, index| all << 8 | u64::from(byte(index)));
    let mut before = read();
    for _ in 0..LOOKS_MAX {
        let now = read();
        if now == before {
            return Some(now);
        }
        before = now;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use feature::*;

    /// A configuration of those words.
    fn space(words: &[(usize, u32)]) -> [u8; 64] {
        let mut space = [0; 64];
        for (at, word) in words {
            space[*at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        space
    }

    fn read(features: u64, words: &[(usize, u32)]) -> Result<Geometry, BadGeometry> {
        let space = space(words);
        Geometry::read(features, |offset| space[offset as usize])
    }

    #[test]
    fn a_plain_device_has_one_segment_and_writes_through() {
        let plain = read(NEEDED, &[(0, 100), (8, 7), (12, 9), (20, 3), (36, 5), (48, 5)]).unwrap();
        let expected = Geometry {
            sectors: 100,
            block_bytes: 512,
            optimal_bytes: 0,
            is_read_only: false,
            keeps_back: false,
            discard_sectors_max: 0,
            zeroes_sectors_max: 0,
            segments_max: 1,
            segment_bytes_max: u32::MAX,
            sectors_max: 2048,
        };
        assert_eq!(plain, expected, "fields without their features are not read");
    }

    #[test]
    fn limits_are_whole_blocks() {
        let all = u64::MAX;
        let words = [(0, 103), (4, 1), (8, 9_000), (12, 3), (20, 4096), (28, 16), (36, 33), (40, 1), (48, 70), (52, 1)];
        let disk = read(all, &words).unwrap();
        assert_eq!((disk.sectors, disk.block_bytes, disk.optimal_bytes), ((1 << 32) + 96, 4096, 65_536));
        assert_eq!((disk.segments_max, disk.segment_bytes_max, disk.sectors_max), (3, 9_000, 48));
        assert_eq!((disk.discard_sectors_max, disk.zeroes_sectors_max), (32, 64));
        assert!(disk.is_read_only && disk.keeps_back);
        assert_eq!(read(SEG_MAX, &[(12, u32::MAX)]).unwrap().segments_max, SEGMENTS_MAX);
        assert_eq!(read(SEG_MAX, &[(12, 0)]).unwrap().segments_max, 1);
    }

    #[test]
    fn what_goes_in_no_segment_cannot_be_done() {
        let words = [(36, 64), (40, 0), (48, 64), (52, 0)];
        let disk = read(DISCARD | WRITE_ZEROES, &words).unwrap();
        assert_eq!((disk.discard_sectors_max, disk.zeroes_sectors_max), (0, 0));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for block in [0, 1, 256, 513, 768, 8192, u32::MAX] {
            assert_eq!(read(BLOCK_SIZE, &[(20, block)]), Err(BadGeometry::Block), "{block}");
        }
        assert_eq!(read(SIZE_MAX, &[(8, 511)]), Err(BadGeometry::Segments));
        assert_eq!(read(SIZE_MAX, &[(8, 0)]), Err(BadGeometry::Segments));
        assert_eq!(read(SIZE_MAX, &[(8, 512)]).unwrap().sectors_max, 1);
        let mut looks = 0u8;
        let restless = Geometry::read(0, |_| {
            looks = looks.wrapping_add(1);
            looks
        });
        assert_eq!(restless, Err(BadGeometry::Size));
    }

    #[test]
    fn a_request_is_whole_blocks_of_the_disk() {
        let words = [(0, 80), (20, 4096), (36, 16), (40, 1), (12, 9)];
        let disk = read(BLOCK_SIZE | DISCARD | SEG_MAX, &words).unwrap();
        let asked = |operation, sector, sectors| {
            disk.check(&Request { client: 0, id: 0, operation, sector, sectors, offset: 0 })
        };
        assert_eq!(asked(Operation::Read, 72, 8), Ok(()));
        for (sector, sectors) in [(72, 16), (0, 0), (4, 8), (8, 4), (80, 8), (u64::MAX - 7, 8), (0, 0x8000_0000)] {
            assert_eq!(asked(Operation::Write, sector, sectors), Err(Refused::Range), "{sector} {sectors}");
        }
        assert_eq!((asked(Operation::Discard, 0, 16), asked(Operation::Discard, 0, 24)), (Ok(()), Err(Refused::Range)));
        let zeroes = Operation::WriteZeroes { may_discard: true };
        assert_eq!(asked(zeroes, 0, 8), Err(Refused::Unsupported));
        assert_eq!(asked(Operation::Flush, 0, 0), Ok(()));
        let locked = Geometry { is_read_only: true, ..disk };
        let write = Request { client: 0, id: 0, operation: Operation::Write, sector: 0, sectors: 8, offset: 0 };
        assert_eq!(locked.check(&write), Err(Refused::ReadOnly));
        assert_eq!(locked.check(&Request { operation: Operation::Read, ..write }), Ok(()));
    }
}
