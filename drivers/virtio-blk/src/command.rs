//! What the device is given for some requests that are carried out together: a header, where their
//! data is, a byte for the answer (virtio 1.2, section 5.2.6), and the table that leads to all of
//! it.
//!
//! All of it follows from the requests, so that a successor can compare it.

use alloc::vec::Vec;

use crate::geometry::Geometry;
use crate::record::{EXTRA_OFFSET, HEADER_OFFSET, SLOT_BYTES, STATUS_OFFSET, TABLE_OFFSET, slot_offset};
use crate::request::{IDENTITY_BYTES, Operation, Request};

const DESCRIPTOR_BYTES: usize = 16;
/// Most segments of data: what a slot's table has room for beside header and status.
pub const SEGMENTS_MAX: u32 = ((SLOT_BYTES - TABLE_OFFSET) / DESCRIPTOR_BYTES - 2) as u32;
/// Bytes of a header, and of the sectors of a discard.
const HEADER_BYTES: usize = 16;
/// Descriptor flags: another one follows; the device writes.
const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// What a device can answer.
pub mod status {
    /// It is done.
    pub const OK: u8 = 0;
    /// It failed.
    pub const IO_ERROR: u8 = 1;
    /// It cannot be done.
    pub const UNSUPPORTED: u8 = 2;
    /// What no device answers.
    pub const NONE: u8 = 0xff;
}

/// Some bytes that a device sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where they begin.
    pub physical: u64,
    /// How many.
    pub bytes: u32,
}

/// Where a device sees ring region and data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Physical address of the ring region.
    pub rings: u64,
    /// Physical address of the data region.
    pub data: u64,
}

/// The parts of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What the device reads first.
    pub header: [u8; HEADER_BYTES],
    /// What it reads next, of a discard and the like.
    pub range: Option<[u8; HEADER_BYTES]>,
    /// The table of descriptors.
    pub table: Vec<u8>,
    /// Most bytes that the device writes, its status included.
    pub writable: u32,
}

/// Where the data of these requests is, in so few segments as the device takes: what lies together
/// is one.
pub fn segments(requests: &[Request], data: u64, bytes_max: u32) -> Vec<Segment> {
    let mut all: Vec<Segment> = Vec::new();
    for request in requests {
        let (mut physical, mut left) = (data + u64::from(request.offset), request.bytes());
        if let Some(last) = all.last_mut()
            && last.physical + u64::from(last.bytes) == physical
        {
            let more = left.min(bytes_max - last.bytes);
            last.bytes += more;
            (physical, left) = (physical + u64::from(more), left - more);
        }
        while left > 0 {
            let bytes = left.min(bytes_max);
            all.push(Segment { physical, bytes });
            (physical, left) = (physical + u64::from(bytes), left - bytes);
        }
    }
    all
}

/// Whether these requests, each right behind the one before, can be one command.
pub fn fit(requests: &[Request], disk: &Geometry) -> bool {
    let sectors = requests.iter().fold(0u32, |all, request| all.saturating_add(request.sectors));
    let (Some(first), Some(last)) = (requests.first(), requests.last()) else { return false };
    let is_row = requests.is_sorted_by(|one, next| one.operation == next.operation && one.end() == Some(next.sector));
    let is_one = requests.len() == 1;
    let is_small =
        sectors <= disk.sectors_max && segments(requests, 0, disk.segment_bytes_max).len() as u32 <= disk.segments_max;
    last.end().is_some() && (is_one && !first.operation.has_data() || is_row && first.operation.has_data() && is_small)
}

impl Command {
    /// That of some requests that [`fit`], in that slot.
    pub fn new(requests: &[Request], slot: u16, seen: Seen, disk: &Geometry) -> Option<Command> {
        let first = requests.first().filter(|_| fit(requests, disk))?;
        let own = seen.rings + slot_offset(slot) as u64;
        let extra = own + EXTRA_OFFSET as u64;
        let mut parts = Vec::from([(own + HEADER_OFFSET as u64, HEADER_BYTES as u32, 0)]);
        let (kind, range): (u32, _) = match first.operation {
            Operation::Read => (0, None),
            Operation::Write => (1, None),
            Operation::Flush => (4, None),
            Operation::Identify => (8, None),
            Operation::Discard => (11, Some(range(first, 0))),
            Operation::WriteZeroes { may_discard } => (13, Some(range(first, may_discard.into()))),
        };
        let flags = if first.operation == Operation::Read { WRITE } else { 0 };
        let data = segments(requests, seen.data, disk.segment_bytes_max);
        parts.extend(data.iter().map(|segment| (segment.physical, segment.bytes, flags)));
        if range.is_some() {
            parts.push((extra, HEADER_BYTES as u32, 0));
        }
        if first.operation == Operation::Identify {
            parts.push((extra, IDENTITY_BYTES as u32, WRITE));
        }
        parts.push((own + STATUS_OFFSET as u64, 1, WRITE));
        let writable = parts.iter().filter(|(.., flags)| *flags == WRITE).map(|(_, bytes, _)| bytes).sum();
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        if first.operation.has_data() {
            header[8..].copy_from_slice(&first.sector.to_le_bytes());
        }
        Some(Command { header, range, table: table(&parts), writable })
    }
}

/// Sectors to discard or to make zeros.
fn range(request: &Request, flags: u32) -> [u8; HEADER_BYTES] {
    let mut range = [0; HEADER_BYTES];
    range[..8].copy_from_slice(&request.sector.to_le_bytes());
    range[8..12].copy_from_slice(&request.sectors.to_le_bytes());
    range[12..].copy_from_slice(&flags.to_le_bytes());
    range
}

/// Descriptors one behind the other: address, bytes, flags.
fn table(parts: &[(u64, u32, u16)]) -> Vec<u8> {
    let mut table = Vec::with_capacity(parts.len() * DESCRIPTOR_BYTES);
    for (number, (physical, bytes, flags)) in (1u16..).zip(parts) {
        let is_last = usize::from(number) == parts.len();
        let (flags, next) = if is_last { (*flags, 0) } else { (flags | NEXT, number) };
        table.extend(physical.to_le_bytes());
        table.extend(bytes.to_le_bytes());
        table.extend(flags.to_le_bytes());
        table.extend(next.to_le_bytes());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Geometry = Geometry {
        sectors: 1 << 20,
        block_bytes: 512,
        optimal_bytes: 0,
        is_read_only: false,
        keeps_back: true,
        discard_sectors_max: 64,
        zeroes_sectors_max: 64,
        segments_max: 4,
        segment_bytes_max: 4096,
        sectors_max: 40,
    };

    fn request(operation: Operation, sector: u64, sectors: u32, offset: u32) -> Request {
        Request { client: 0, id: 0, operation, sector, sectors, offset }
    }

    #[test]
    fn what_lies_together_is_one_segment_of_what_the_device_takes() {
        let read = |sector, sectors, offset| request(Operation::Read, sector, sectors, offset);
        let places = |requests: &[Request]| -> Vec<(u64, u32)> {
            segments(requests, 0x10_0000, 4096).iter().map(|one| (one.physical, one.bytes)).collect()
        };
        assert_eq!(places(&[read(0, 8, 0)]), [(0x10_0000, 4096)]);
        assert_eq!(places(&[read(0, 9, 0)]), [(0x10_0000, 4096), (0x10_1000, 512)]);
        assert_eq!(places(&[read(0, 2, 0), read(2, 2, 1024)]), [(0x10_0000, 2048)]);
        assert_eq!(places(&[read(0, 2, 0), read(2, 8, 1024)]), [(0x10_0000, 4096), (0x10_1000, 1024)]);
        assert_eq!(places(&[read(0, 2, 0), read(2, 2, 4096)]), [(0x10_0000, 1024), (0x10_1000, 1024)]);
        assert_eq!(places(&[request(Operation::Flush, 0, 0, 0)]), []);
    }

    #[test]
    fn only_a_row_of_what_the_device_takes_is_one_command() {
        let write = |sector, sectors, offset| request(Operation::Write, sector, sectors, offset);
        assert!(fit(&[write(0, 8, 0), write(8, 8, 8192), write(16, 8, 4096)], &DISK));
        assert!(!fit(&[write(0, 8, 0), write(9, 8, 8192)], &DISK), "a gap");
        assert!(!fit(&[write(8, 8, 0), write(0, 8, 8192)], &DISK), "backwards");
        assert!(!fit(&[write(0, 8, 0), request(Operation::Read, 8, 8, 4096)], &DISK), "two operations");
        assert!(!fit(&[write(0, 24, 0), write(24, 24, 12_288)], &DISK), "too long");
        let apart: Vec<Request> = (0..5).map(|number| write(number, 1, number as u32 * 1024)).collect();
        assert!(fit(&apart[..4], &DISK) && !fit(&apart, &DISK), "too many segments");
        let discard = request(Operation::Discard, 0, 64, 0);
        assert!(fit(&[discard], &DISK) && !fit(&[discard, request(Operation::Discard, 64, 8, 0)], &DISK));
        assert!(!fit(&[], &DISK) && !fit(&[write(u64::MAX, 8, 0)], &DISK));
    }

    #[test]
    fn a_command_is_what_the_device_expects() {
        let seen = Seen { rings: 0x30_0000, data: 0x10_0000 };
        let descriptor = |physical: u64, bytes: u32, flags: u16, next: u16| {
            let mut all = physical.to_le_bytes().to_vec();
            all.extend(bytes.to_le_bytes());
            all.extend([flags.to_le_bytes(), next.to_le_bytes()].concat());
            all
        };
        let own = 0x30_0000 + slot_offset(3) as u64;
        let read = Command::new(&[request(Operation::Read, 0x1_0000_0007, 10, 512)], 3, seen, &DISK).unwrap();
        let table = [
            descriptor(own, 16, 1, 1),
            descriptor(0x10_0200, 4096, 3, 2),
            descriptor(0x10_1200, 1024, 3, 3),
            descriptor(own + 16, 1, 2, 0),
        ];
        assert_eq!((read.table, read.writable, read.range), (table.concat(), 5121, None));
        assert_eq!(read.header, [0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0]);
        let zeroes = request(Operation::WriteZeroes { may_discard: true }, 5, 6, 0);
        let zeroes = Command::new(&[zeroes], 3, seen, &DISK).unwrap();
        let table = [descriptor(own, 16, 1, 1), descriptor(own + 32, 16, 1, 2), descriptor(own + 16, 1, 2, 0)];
        assert_eq!((zeroes.table, zeroes.writable, zeroes.header[0]), (table.concat(), 1, 13));
        assert_eq!(zeroes.range, Some([5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0]));
        let name = Command::new(&[request(Operation::Identify, 0, 0, 0)], 3, seen, &DISK).unwrap();
        let table = [descriptor(own, 16, 1, 1), descriptor(own + 32, 20, 3, 2), descriptor(own + 16, 1, 2, 0)];
        assert_eq!((name.table, name.writable, name.header[0]), (table.concat(), 21, 8));
        // A full table ends with its slot.
        let most = Geometry { segments_max: SEGMENTS_MAX, segment_bytes_max: 512, sectors_max: 2048, ..DISK };
        let full = Command::new(&[request(Operation::Write, 0, SEGMENTS_MAX, 0)], 3, seen, &most).unwrap();
        assert_eq!(TABLE_OFFSET + full.table.len(), SLOT_BYTES);
        assert_eq!(Command::new(&[], 3, seen, &DISK), None);
    }
}
