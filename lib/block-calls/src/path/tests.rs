//! The path of requests, against the volume that lib/luks makes of the same bytes.

extern crate std;

use super::*;
use luks::{SectorBytes, VolumeKey};
use std::cell::RefCell;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

type Bytes = Rc<RefCell<Vec<u8>>>;

const REGION_BYTES: usize = 1 << 20;
/// Where the disk's server gives us a part of its region.
const PART: u32 = 8192;
/// And where the client has a part of its region.
const PLAIN: u32 = 4096;

const DISK: Disk = Disk {
    sectors: 1 << 17,
    block_bytes: 512,
    optimal_bytes: 0,
    is_read_only: false,
    keeps_back: true,
    sectors_max: 2048,
    discard_sectors_max: 100,
    zeroes_sectors_max: 100,
    data_offset: PART,
    data_bytes: REGION_BYTES as u32 - PART,
    requests_max: 64,
};

fn segment(sector: SectorBytes) -> Segment {
    Segment { offset: 16 << 20, bytes: 48 << 20, sector, tweak: 0, allows_discards: false }
}

fn handover(segment: &Segment) -> Handover {
    Handover { key: VolumeKey::take(&mut core::array::from_fn(|at| at as u8)), segment: segment.clone() }
}

struct World {
    path: Path<Bytes>,
    plain: Bytes,
    encrypted: Bytes,
}

fn world(segment: &Segment, disk: Disk) -> Option<World> {
    let [plain, encrypted] = [(); 2].map(|()| Rc::new(RefCell::new(vec![0; REGION_BYTES])));
    let path =
        Path::new(&handover(segment), disk, plain.clone(), (PLAIN, REGION_BYTES as u32 - PLAIN), encrypted.clone())?;
    Some(World { path, plain, encrypted })
}

fn place(sector: u64, sectors: u32, offset: u32) -> Place {
    Place { extent: Extent { sector, sectors }, offset }
}

const SIZES: [SectorBytes; 2] = [SectorBytes::B512, SectorBytes::B4096];

/// What is written is the volume's cipher of it at another place, and is read back; the client's
/// bytes stay as they are.
#[test]
fn what_is_written_is_encrypted_and_read_back() {
    for sector in SIZES {
        let World { path, plain, encrypted } = world(&segment(sector), DISK).unwrap();
        let text: Vec<u8> = (0..3 * 4096).map(|at| (at / 7) as u8).collect();
        plain.borrow_mut()[8192..][..text.len()].copy_from_slice(&text);
        let asked = place(80, 24, PLAIN + 4096);
        let to = path.prepare(Direction::Write, asked).unwrap();
        assert_eq!(to, place(80 + (16 << 11), 24, PART + 4096));
        assert_eq!(path.back(to), Ok(asked));
        let mut expected = text.clone();
        SectorCipher::new(&handover(&segment(sector)).key, &segment(sector)).encrypt(80 * 512, &mut expected).unwrap();
        assert_eq!(encrypted.borrow()[to.offset as usize..][..text.len()], expected);
        assert_eq!(plain.borrow()[8192..][..text.len()], text);
        // Made again, it is the same.
        path.prepare(Direction::Write, asked).unwrap();
        assert_eq!(encrypted.borrow()[to.offset as usize..][..text.len()], expected);
        plain.borrow_mut().fill(0xee);
        path.prepare(Direction::Read, asked).unwrap();
        assert!(plain.borrow().iter().all(|byte| *byte == 0xee), "nothing is there yet");
        path.complete(asked).unwrap();
        assert_eq!(plain.borrow()[8192..][..text.len()], text);
        let around = plain.borrow().iter().filter(|byte| **byte == 0xee).count();
        assert!(around >= REGION_BYTES - text.len(), "{around}");
    }
}

/// The last piece of a request may be short: what is behind it in both regions is others'.
#[test]
fn no_byte_behind_a_request_is_touched() {
    let World { path, plain, encrypted } = world(&segment(SectorBytes::B512), DISK).unwrap();
    let asked = place(3, 9, PLAIN);
    encrypted.borrow_mut().fill(0xdd);
    let to = path.prepare(Direction::Write, asked).unwrap();
    let touched = |bytes: &Bytes, fresh: u8| {
        let touched = bytes.borrow().iter().rposition(|byte| *byte != fresh);
        touched.map(|last| last + 1)
    };
    assert_eq!(touched(&encrypted, 0xdd), Some(to.offset as usize + 9 * 512));
    plain.borrow_mut().fill(0xee);
    path.complete(asked).unwrap();
    assert_eq!(touched(&plain, 0xee), Some(PLAIN as usize + 9 * 512));
}

/// The volume's headers are before its segment, and nothing of anybody's behind it.
#[test]
fn nothing_but_whole_blocks_of_the_segment_is_reached() {
    let world = world(&segment(SectorBytes::B4096), DISK).unwrap();
    let seen = world.path.seen();
    assert_eq!((seen.sectors, seen.block_bytes, seen.sectors_max), (48 << 11, 4096, SECTORS_MAX));
    assert_eq!((seen.data_offset, seen.data_bytes, seen.zeroes_sectors_max), (PLAIN, REGION_BYTES as u32 - PART, 0));
    let last = (48 << 11) - 8;
    for direction in [Direction::Read, Direction::Write] {
        assert!(world.path.prepare(direction, place(last, 8, PLAIN)).is_ok());
        assert!(world.path.prepare(direction, place(0, 8, PLAIN + seen.data_bytes - 4096)).is_ok());
        for wrong in [
            place(last + 8, 8, PLAIN),
            place(last, 16, PLAIN),
            place(u64::MAX - 7, 8, PLAIN),
            place(u64::MAX - (16 << 11) + 1, 8, PLAIN),
            place(1, 8, PLAIN),
            place(0, 4, PLAIN),
            place(0, 0, PLAIN),
            place(0, SECTORS_MAX + 8, PLAIN),
            place(0, u32::MAX / 8 * 8, PLAIN),
            place(0, 8, PLAIN + seen.data_bytes - 4095),
            place(0, 8, PLAIN - 512),
            place(0, 8, u32::MAX),
        ] {
            assert_eq!(world.path.prepare(direction, wrong), Err(BlocksError::Range), "{wrong:?}");
            assert_eq!(world.path.complete(wrong), Err(BlocksError::Range), "{wrong:?}");
        }
    }
}

#[test]
fn discards_are_passed_on_only_if_the_volume_allows_it() {
    let extent = Extent { sector: 8, sectors: 96 };
    let refusing = world(&segment(SectorBytes::B4096), DISK).unwrap().path;
    assert_eq!((refusing.seen().discard_sectors_max, refusing.discard(extent)), (0, Err(BlocksError::Unsupported)));
    let allows = Segment { allows_discards: true, ..segment(SectorBytes::B4096) };
    let allowing = world(&allows, DISK).unwrap().path;
    assert_eq!(allowing.seen().discard_sectors_max, 96, "whole blocks");
    assert_eq!(allowing.discard(extent), Ok(Extent { sector: 8 + (16 << 11), sectors: 96 }));
    assert_eq!(allowing.discard(Extent { sector: 48 << 11, sectors: 8 }), Err(BlocksError::Range));
}

#[test]
fn a_disk_that_may_not_be_written_is_read_only() {
    let disk = Disk { is_read_only: true, ..DISK };
    let path = world(&Segment { allows_discards: true, ..segment(SectorBytes::B512) }, disk).unwrap().path;
    assert_eq!(path.prepare(Direction::Write, place(0, 1, PLAIN)), Err(BlocksError::ReadOnly));
    assert_eq!(path.discard(Extent { sector: 0, sectors: 1 }), Err(BlocksError::ReadOnly));
    assert!(path.prepare(Direction::Read, place(0, 1, PLAIN)).is_ok());
}

#[test]
fn a_volume_that_is_not_on_the_disk_is_refused() {
    assert!(world(&segment(SectorBytes::B512), Disk { sectors: (64 << 11) - 1, ..DISK }).is_none());
    assert!(world(&segment(SectorBytes::B512), Disk { sectors: 64 << 11, ..DISK }).is_some());
    let odd = Segment { offset: (16 << 20) + 512, bytes: 1 << 20, ..segment(SectorBytes::B512) };
    assert!(world(&odd, Disk { block_bytes: 4096, ..DISK }).is_none());
    // Blocks of the disk that are larger than the volume's sectors are its client's, too.
    let world = world(&segment(SectorBytes::B512), Disk { block_bytes: 4096, ..DISK }).unwrap();
    assert_eq!(world.path.seen().block_bytes, 4096);
}
