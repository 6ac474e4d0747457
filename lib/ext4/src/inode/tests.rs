//! What lies on the disk is what an inode is, and what cannot be is refused.

use super::*;
use crate::testing::{self, NOW, geometry, new};

const NUMBER: u32 = 12;
const BLOCKS: u64 = 1 << 40;

fn begun(kind: Kind, extra: u16, bytes: &mut [u8; 256]) -> Inode {
    Inode::begin(&geometry(BLOCKS), NUMBER, bytes, extra, &new(kind), NOW)
}

/// The bytes of a new inode with a name.
fn bytes(kind: Kind) -> [u8; 256] {
    let mut bytes = [0; 256];
    let mut inode = begun(kind, 32, &mut bytes);
    inode.links = 1;
    inode.size = BLOCK_BYTES as u64;
    inode.encode(&mut bytes);
    bytes
}

fn raw(bytes: &mut [u8; 256]) -> &mut Raw {
    Raw::mut_from_prefix(bytes).unwrap().0
}

fn decode(bytes: &[u8]) -> Result<Inode, Stop> {
    Inode::decode(&geometry(BLOCKS), NUMBER, bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn corrupt<T>(what: &'static str) -> Result<T, Stop> {
    Err(Error::corrupt(what, u64::from(NUMBER)))
}

#[test]
fn what_an_inode_has_is_on_the_disk_in_its_halves() {
    let mut bytes = [0; 256];
    let inode = Inode {
        permissions: 0o7654,
        user: 0x1234_5678,
        group: 0x9ABC_DEF0,
        links: 0xFEDC,
        size: 0xABC_1234_5678,
        sectors: 0x9876_5432_1098,
        attributes: 0xFE_DCBA_9876,
        delete_time: 0x1357_9BDF,
        ..begun(Kind::File, 32, &mut bytes)
    };
    inode.encode(&mut bytes);
    assert_eq!(decode(&bytes), Ok(inode.clone()));
    assert_eq!(Inode::check_sum(&geometry(BLOCKS), NUMBER, &bytes), Ok(()));
    // By the places of ext4: mode and user, then size; group and links; sectors.
    assert_eq!((word(&bytes, 0), word(&bytes, 4)), (0x5678_8FAC, 0x1234_5678));
    assert_eq!((word(&bytes, 24), word(&bytes, 28)), (0xFEDC_DEF0, 0x5432_1098));
    assert_eq!((word(&bytes, 104), word(&bytes, 108)), (0xDCBA_9876, 0xABC));
    assert_eq!((word(&bytes, 116), word(&bytes, 120)), (0x00FE_9876, 0x9ABC_1234));
    assert_eq!(word(&bytes, 20), 0x1357_9BDF);
}

#[test]
fn every_kind_is_told_by_the_mode() {
    let kinds = [
        (1, Kind::Pipe),
        (2, Kind::CharacterDevice),
        (4, Kind::Directory),
        (6, Kind::BlockDevice),
        (8, Kind::File),
        (12, Kind::Socket),
    ];
    for (mode, kind) in kinds {
        let mut bytes = bytes(kind);
        assert_eq!(word(&bytes, 0) as u16, mode << 12 | 0o640);
        assert_eq!(decode(&bytes).unwrap().kind, kind);
        raw(&mut bytes).mode = U16::new((mode | 1) << 12);
        let other = decode(&bytes);
        assert_eq!(other.is_ok(), mode == 1, "{other:?}");
    }
}

#[test]
fn an_inode_counts_in_blocks_if_it_says_so() {
    let mut bytes = bytes(Kind::File);
    raw(&mut bytes).flags |= U32::new(FLAG_HUGE);
    (raw(&mut bytes).sectors_low, raw(&mut bytes).sectors_high) = (U32::new(5), U16::new(1));
    let mut inode = decode(&bytes).unwrap();
    assert_eq!(inode.sectors, 8 * 0x1_0000_0005);
    inode.sectors = 8 * 0x2_0000_0003;
    inode.encode(&mut bytes);
    assert_eq!((word(&bytes, 28), raw(&mut bytes).sectors_high.get()), (3, 2));
    raw(&mut bytes).flags &= U32::new(!FLAG_HUGE);
    assert_eq!(decode(&bytes).unwrap().sectors, 0x2_0000_0003);
}

#[test]
fn times_reach_from_1901_to_2446_with_nanoseconds() {
    const LAST: i64 = (3 << 32) + (1 << 31) - 1;
    let times = [
        (-(1 << 31), 0, 0x8000_0000, 0),
        (-1, 999_999_999, 0xFFFF_FFFF, 999_999_999 << 2),
        (0x7FFF_FFFF, 1, 0x7FFF_FFFF, 1 << 2),
        (0x8000_0000, 7, 0x8000_0000, 7 << 2 | 1),
        (0x1_0000_0005, 0, 5, 1),
        (0x2_8000_0000, 3, 0x8000_0000, 3 << 2 | 3),
        (LAST, 999_999_999, 0x7FFF_FFFF, 999_999_999 << 2 | 3),
    ];
    for (seconds, nanoseconds, low, more) in times {
        let mut bytes = [0; 256];
        let mut inode = begun(Kind::File, 32, &mut bytes);
        inode.links = 1;
        inode.times[MODIFIED] = Time { seconds, nanoseconds };
        inode.encode(&mut bytes);
        assert_eq!((word(&bytes, 16), word(&bytes, 136)), (low, more), "{seconds}");
        assert_eq!(decode(&bytes).unwrap().times, [NOW, inode.times[MODIFIED], NOW]);
    }
}

/// What is behind those bytes may be an extended attribute.
#[test]
fn only_what_an_inode_says_that_it_has_is_read_and_written() {
    let mut bytes = [0xA5; 256];
    let mut inode = begun(Kind::File, 4, &mut bytes);
    inode.links = 1;
    bytes[132..].fill(0xA5);
    inode.encode(&mut bytes);
    assert_eq!(bytes[132..], [0xA5; 124]);
    let seconds = Time { nanoseconds: 0, ..NOW };
    assert_eq!(decode(&bytes).unwrap().times, [seconds; 3]);
    // Of the times the rest is in front of byte 144, of the creation in front of 152.
    for (extra, creation) in [(12, (0, 0)), (20, (2_000_000_000, 0)), (24, (2_000_000_000, 20))] {
        let mut bytes = [0; 256];
        let mut inode = begun(Kind::File, extra, &mut bytes);
        inode.links = 1;
        inode.encode(&mut bytes);
        let accessed = if extra >= 16 { NOW } else { seconds };
        assert_eq!(decode(&bytes).unwrap().times, [accessed, NOW, NOW], "{extra}");
        if extra >= 20 {
            assert_eq!((word(&bytes, 144), word(&bytes, 148)), creation, "{extra}");
        }
    }
}

#[test]
fn an_inode_has_room_for_its_checksum_and_no_more_than_there_is() {
    let with_extra = |extra: u16| {
        let mut bytes = bytes(Kind::File);
        raw(&mut bytes).extra_bytes = U16::new(extra);
        decode(&bytes).map(drop)
    };
    for extra in [4, 32, 128] {
        assert_eq!(with_extra(extra), Ok(()), "{extra}");
    }
    for extra in [0, 3, 30, 132, 0xFFFC] {
        assert_eq!(with_extra(extra), corrupt("an inode's size"), "{extra}");
    }
}

#[test]
fn a_changed_byte_does_not_fit_the_checksum() {
    let geometry = geometry(BLOCKS);
    let mut bytes = bytes(Kind::File);
    for at in [0, 40, 124, 125, 130, 131, 200, 255] {
        bytes[at] ^= 1;
        let wrong = corrupt("an inode's checksum");
        assert_eq!(Inode::check_sum(&geometry, NUMBER, &bytes), wrong, "{at}");
        bytes[at] ^= 1;
    }
    assert_eq!(Inode::check_sum(&geometry, NUMBER, &bytes), Ok(()));
    assert!(Inode::check_sum(&geometry, NUMBER + 1, &bytes).is_err(), "it is about the number, too");
    assert_eq!(Inode::check_sum(&geometry, NUMBER, &[0; 256]), Ok(()), "a free one has none");
    assert_eq!(decode(&[0; 256]), Err(Error::NotFound.into()));
}

#[test]
fn sizes_fit_the_kind_and_the_volume() {
    let size_is_wrong = || corrupt("a file's size");
    let result = |kind, size: u64, blocks| {
        let mut bytes = bytes(Kind::File);
        let mut inode = decode(&bytes).unwrap();
        (inode.kind, inode.size, inode.sectors) = (kind, size, 8);
        inode.encode(&mut bytes);
        Inode::decode(&geometry(blocks), NUMBER, &bytes).map(drop)
    };
    const MOST: u64 = 1 << 44;
    for (kind, size) in [
        (Kind::File, 0),
        (Kind::File, MOST),
        (Kind::Directory, 4096),
        (Kind::Directory, (1 << 28) * 4096),
        (Kind::Link, 1),
        (Kind::Link, 4095),
        (Kind::Socket, MOST + 1),
    ] {
        assert_eq!(result(kind, size, BLOCKS), Ok(()), "{kind:?} {size}");
    }
    for (kind, size) in [
        (Kind::File, MOST + 1),
        (Kind::Directory, 0),
        (Kind::Directory, 4097),
        (Kind::Directory, ((1 << 28) + 1) * 4096),
        (Kind::Link, 0),
        (Kind::Link, 4096),
    ] {
        assert_eq!(result(kind, size, BLOCKS), size_is_wrong(), "{kind:?} {size}");
    }
    assert_eq!(result(Kind::Directory, 100 * 4096, 100), Ok(()));
    assert_eq!(result(Kind::Directory, 101 * 4096, 100), size_is_wrong(), "more than the volume has");
}

#[test]
fn a_file_directory_or_long_link_without_extents_is_refused() {
    for kind in [Kind::File, Kind::Directory, Kind::Link] {
        let mut bytes = bytes(Kind::File);
        let mut inode = decode(&bytes).unwrap();
        (inode.kind, inode.sectors) = (kind, 8);
        if kind == Kind::Link {
            inode.size = 100;
        }
        inode.encode(&mut bytes);
        assert!(decode(&bytes).is_ok(), "{kind:?}");
        raw(&mut bytes).flags = U32::new(0);
        assert_eq!(decode(&bytes), Err(Error::Refused(Refusal::Lacks("extent")).into()), "{kind:?}");
        raw(&mut bytes).flags = U32::new(FLAG_EXTENTS);
        raw(&mut bytes).map[0] ^= 1;
        assert_eq!(decode(&bytes), corrupt("the head of an extent node"), "{kind:?}");
    }
}

#[test]
fn attributes_lie_inside_the_volume() {
    let mut bytes = bytes(Kind::File);
    let mut inode = decode(&bytes).unwrap();
    inode.attributes = BLOCKS - 1;
    inode.encode(&mut bytes);
    assert_eq!(decode(&bytes).unwrap().attributes, BLOCKS - 1);
    inode.attributes = BLOCKS;
    inode.encode(&mut bytes);
    assert_eq!(decode(&bytes), corrupt("where an inode's attributes lie"));
}

#[test]
fn a_link_is_short_if_its_target_fits_and_it_has_no_block_but_that_of_attributes() {
    let is_short = |kind, size, sectors, attributes| {
        let inode = testing::inode(&geometry(BLOCKS), NUMBER, kind);
        Inode { size, sectors, attributes, ..inode }.is_short_link()
    };
    assert!(is_short(Kind::Link, 1, 0, 0));
    assert!(is_short(Kind::Link, 59, 0, 0));
    assert!(is_short(Kind::Link, 59, 8, 5));
    assert!(!is_short(Kind::Link, 0, 0, 0));
    assert!(!is_short(Kind::Link, 60, 0, 0));
    assert!(!is_short(Kind::Link, 59, 8, 0));
    assert!(!is_short(Kind::Link, 59, 16, 5));
    assert!(!is_short(Kind::File, 59, 0, 0));
}

#[test]
fn the_number_of_a_device_is_where_linux_looks_for_it() {
    for (device, at) in [(5, 0), (0xFFFF, 0), (0x1_0000, 4), (0xFEDC_BA98, 4)] {
        let new = New { device, ..new(Kind::BlockDevice) };
        let inode = Inode::begin(&geometry(BLOCKS), NUMBER, &mut [0; 256], 32, &new, NOW);
        assert_eq!((word(&inode.map, at), word(&inode.map, 4 - at)), (device, 0));
        assert_eq!(inode.device(), device);
    }
}

#[test]
fn an_inode_of_another_time_has_another_generation() {
    let generation = |now| {
        let mut bytes = [0xFF; 256];
        let inode = Inode::begin(&geometry(BLOCKS), NUMBER, &mut bytes, 32, &new(Kind::File), now);
        (word(&bytes, 100), inode.checksum_seed)
    };
    let (first, seed) = generation(NOW);
    let later = Time { nanoseconds: 6, ..NOW };
    assert!(generation(later).0 != first && generation(later).1 != seed);
    assert_eq!(generation(NOW), (first, seed));
}
