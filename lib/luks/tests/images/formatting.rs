//! What is formatted is opened again, and its headers are mended when one is lost.

use crate::common::{
    CHEAP, DEVICE_BYTES, HEADER_BYTES, PASSPHRASE, SMALL, cheap, json, laid_out, make, open, put_sum, put_sums, read,
};
use luks::{
    AREA_BYTES, Budget, CopyState, DATA_OFFSET, Derivation, Error, Format, HEAD_BYTES, Hash, Header, KEY_BYTES,
    Refusal, SectorBytes, Strength,
};

#[test]
fn a_new_volume_opens_with_its_passphrase_only() {
    for sector in [SectorBytes::B512, SectorBytes::B4096] {
        let formatted = make(sector, CHEAP);
        let image = laid_out(&formatted);
        let header = read(&image).unwrap();
        assert_eq!(header.segment(), &formatted.segment);
        assert_eq!((header.segment().offset, header.segment().bytes), (DATA_OFFSET, DEVICE_BYTES - DATA_OFFSET));
        assert_eq!((header.uuid(), header.sequence()), (formatted.uuid.as_str(), 1));
        assert_eq!(header.states(), &[CopyState::Current, CopyState::Current]);
        assert_eq!(header.repair(&[0; 64]), None);
        let key = open(&image, PASSPHRASE, SMALL).unwrap().unwrap();
        assert_eq!(key.bytes(), formatted.key.bytes());
        assert!(open(&image, b"correct hors", SMALL).unwrap().is_none());
        assert!(open(&image, b"", SMALL).unwrap().is_none());
    }
}

#[test]
fn a_guests_volume_costs_what_a_guest_allows() {
    let formatted = make(SectorBytes::B4096, Strength::GUEST);
    let header = read(&laid_out(&formatted)).unwrap();
    let Derivation::Argon2id { memory_kib: 32768, passes: 4, lanes: 1, salt } = &header.slots()[0].derivation else {
        panic!("{:?}", header.slots());
    };
    assert_eq!(salt.len(), 32);
    let key = open(&laid_out(&formatted), PASSPHRASE, Budget::GUEST).unwrap().unwrap();
    assert_eq!(key.bytes(), formatted.key.bytes());
}

#[test]
fn two_volumes_have_nothing_random_in_common() {
    let options =
        Format { device_bytes: DEVICE_BYTES, sector: SectorBytes::B512, passphrase: PASSPHRASE, strength: CHEAP };
    let [one, other] = [3, 5].map(|seed| luks::format(&options, &mut crate::common::noise(seed)).unwrap());
    assert_ne!(one.key.bytes(), other.key.bytes());
    assert_ne!(one.uuid, other.uuid);
    assert_eq!(one.uuid.len(), 36);
    let same = one.writes[0].bytes.iter().zip(&other.writes[0].bytes).filter(|(one, other)| one == other).count();
    assert!(same < AREA_BYTES / 100, "{same} bytes of the areas are the same");
    let header = |formatted| read(&laid_out(formatted)).unwrap().slots()[0].derivation.clone();
    assert_ne!(header(&one), header(&other), "the salts are others");
}

#[test]
fn a_device_that_is_too_small_is_not_formatted() {
    let options =
        Format { device_bytes: DATA_OFFSET, sector: SectorBytes::B512, passphrase: PASSPHRASE, strength: CHEAP };
    let refusal = Refusal::Device { bytes: DATA_OFFSET, needed: luks::DEVICE_BYTES_MIN };
    assert_eq!(luks::format(&options, &mut |_| {}).unwrap_err(), Error::Refused(refusal));
    let smallest = Format { device_bytes: luks::DEVICE_BYTES_MIN, ..options };
    assert_eq!(luks::format(&smallest, &mut |_| {}).unwrap().segment.bytes, 1 << 20);
}

#[test]
fn an_identity_is_a_random_one_of_version_4() {
    let options =
        Format { device_bytes: DEVICE_BYTES, sector: SectorBytes::B512, passphrase: PASSPHRASE, strength: CHEAP };
    for filled in [0x00, 0x5a, 0xa5, 0xff_u8] {
        let uuid = luks::format(&options, &mut |bytes| bytes.fill(filled)).unwrap().uuid;
        let byte = format!("{filled:02x}");
        let (version, variant) = (0x40 | filled & 0x0f, 0x80 | filled & 0x3f);
        let [four, two, six] = [4, 2, 6].map(|count| byte.repeat(count));
        assert_eq!(uuid, format!("{four}-{two}-{version:02x}{byte}-{variant:02x}{byte}-{six}"));
    }
}

#[test]
fn either_header_is_enough_and_the_other_is_repaired() {
    let healthy = cheap();
    for (place, at) in [(0, 0), (1, HEADER_BYTES)] {
        // A bit, and all of it.
        for damage in [at + 5000..at + 5001, at..at + HEADER_BYTES] {
            let mut image = healthy.to_vec();
            let is_bit = damage.len() == 1;
            image[damage].iter_mut().for_each(|byte| *byte = if is_bit { *byte ^ 0x20 } else { 0 });
            let header = read(&image).unwrap();
            assert_eq!(header.states()[1 - place], CopyState::Current);
            assert!(matches!(header.states()[place], CopyState::Bad(_)));
            assert!(open(&image, PASSPHRASE, SMALL).unwrap().is_some());
            let salt = [9; 64];
            let write = header.repair(&salt).unwrap();
            assert_eq!((write.at, write.bytes.len()), (at as u64, HEADER_BYTES));
            image[at..at + HEADER_BYTES].copy_from_slice(&write.bytes);
            assert_eq!(read(&image).unwrap().states(), &[CopyState::Current, CopyState::Current]);
            assert_eq!(image[at + 104..at + 168], salt);
            assert_eq!(image[at + 4096..at + HEADER_BYTES], healthy[at + 4096..at + HEADER_BYTES]);
        }
    }
}

#[test]
fn what_was_written_over_a_volume_is_no_volume() {
    let mut image = cheap().to_vec();
    // As mkfs.ext4 leaves it: zeros, then a super block.
    image[..1024].fill(0);
    (image[1080], image[1081]) = (0x53, 0xEF);
    let refusal = Refusal::Has("something else over its first header");
    assert_eq!(read(&image).err(), Some(Error::Refused(refusal)));
}

#[test]
fn the_newer_header_counts_if_it_is_whole() {
    for (place, at) in [(0, 0), (1, HEADER_BYTES)] {
        let mut image = cheap().to_vec();
        image[at + 23] = 2;
        image[at + 168] = b'x';
        put_sums(&mut image);
        let header = read(&image).unwrap();
        assert!(header.sequence() == 2 && header.uuid().starts_with('x'));
        assert_eq!(header.states()[1 - place], CopyState::Older);
        assert_eq!(header.repair(&[0; 64]).unwrap().at, (HEADER_BYTES - at) as u64, "the older one is written over");
        image[at + 4100] ^= 1;
        let header = read(&image).unwrap();
        assert_eq!(header.sequence(), 1);
        assert_eq!(header.states()[place], CopyState::Bad(Error::Damaged("a header's checksum")));
        // Its checksum fits, but its text is none.
        put_sums(&mut image);
        assert_eq!(read(&image).unwrap().states()[place], CopyState::Bad(Error::Damaged("the JSON of the header")));
    }
}

/// The cheap volume with headers of `size` bytes, and its slot's area behind them.
fn with_larger_headers(size: usize) -> Vec<u8> {
    let mut text = json(cheap());
    let changes = [
        (r#""json_size":"12288""#, format!(r#""json_size":"{}""#, size - 4096)),
        (r#""offset":"32768""#, format!(r#""offset":"{}""#, 2 * size)),
        (r#""keyslots_size":"16744448""#, format!(r#""keyslots_size":"{}""#, DATA_OFFSET as usize - 2 * size)),
    ];
    for (old, new) in changes {
        assert!(text.contains(old), "{old} is not in {text}");
        text = text.replace(old, &new);
    }
    let mut image = vec![0; 2 * size];
    for (place, header) in image.chunks_mut(size).enumerate() {
        header[..4096].copy_from_slice(&cheap()[place * HEADER_BYTES..][..4096]);
        header[8..16].copy_from_slice(&(size as u64).to_be_bytes());
        header[256..264].copy_from_slice(&((place * size) as u64).to_be_bytes());
        header[4096..4096 + text.len()].copy_from_slice(text.as_bytes());
        put_sum(header);
    }
    image.extend(&cheap()[2 * HEADER_BYTES..][..AREA_BYTES]);
    image
}

#[test]
fn larger_headers_are_read_and_the_second_is_found_without_the_first() {
    for size in [32 << 10, 64 << 10] {
        let mut image = with_larger_headers(size);
        assert_eq!(read(&image).unwrap().states(), &[CopyState::Current, CopyState::Current]);
        assert!(open(&image, PASSPHRASE, SMALL).unwrap().is_some());
        image[..size].fill(0);
        let header = read(&image).unwrap();
        assert_eq!(header.states(), &[CopyState::Bad(Error::NotLuks), CopyState::Current]);
        let write = header.repair(&[3; 64]).unwrap();
        assert_eq!((write.at, write.bytes.len()), (0, size));
        assert!(open(&image, PASSPHRASE, SMALL).unwrap().is_some());
    }
}

#[test]
fn of_two_headers_of_one_age_the_first_counts() {
    let mut image = cheap().to_vec();
    image[HEADER_BYTES + 168] = b'x';
    put_sums(&mut image);
    let header = read(&image).unwrap();
    assert!(!header.uuid().starts_with('x'));
    assert_eq!(header.states(), &[CopyState::Current, CopyState::Current]);
}

#[test]
fn sizes_and_places_that_a_header_cannot_have_are_damage() {
    for (at, value) in [(8, 8192_u64), (8, 20_000), (8, 8 << 20), (256, 16 << 10)] {
        let mut image = cheap().to_vec();
        image[at..at + 8].copy_from_slice(&value.to_be_bytes());
        put_sums(&mut image);
        let bad = CopyState::Bad(Error::Damaged("the size or place of a header"));
        assert_eq!(read(&image).unwrap().states(), &[bad, CopyState::Current], "{value}");
    }
}

#[test]
fn without_a_whole_header_there_is_a_reason() {
    let mut image = cheap().to_vec();
    (image[5000], image[HEADER_BYTES + 5000]) = (b'?', b'?');
    assert_eq!(read(&image).err(), Some(Error::Damaged("a header's checksum")));
    assert_eq!(read(&[0; 4096]).err(), Some(Error::NotLuks));
    assert_eq!(read(&[]).err(), Some(Error::NotLuks));
    assert_eq!(read(&cheap()[..8192]).err(), Some(Error::Damaged("the device ends in a header")));
    image[..HEADER_BYTES].fill(0);
    assert_eq!(read(&image).err(), Some(Error::Damaged("a header's checksum")), "that of the second");
    // What is not supported says more than damage.
    let mut image = cheap().to_vec();
    image[5000] = b'?';
    image[HEADER_BYTES + 7] = 1;
    assert_eq!(read(&image).err(), Some(Error::Refused(Refusal::Size("the version of LUKS", 1))));
    // A magic number where no second header can begin.
    let mut image = vec![0; HEAD_BYTES];
    image[HEADER_BYTES + 2..HEADER_BYTES + 8].copy_from_slice(b"SKUL\xba\xbe");
    assert_eq!(read(&image).err(), Some(Error::NotLuks));
}

#[test]
fn a_key_is_taken_without_a_passphrase_if_it_is_the_volumes() {
    let formatted = make(SectorBytes::B4096, CHEAP);
    let header = read(&laid_out(&formatted)).unwrap();
    let mut bytes = *formatted.key.bytes();
    let key = header.open_with_key(&mut bytes, &mut SMALL.clone()).unwrap();
    assert_eq!((key.bytes(), bytes), (formatted.key.bytes(), [0; KEY_BYTES]), "and wiped where it was");
    let mut wrong = [1; KEY_BYTES];
    assert_eq!(header.open_with_key(&mut wrong, &mut SMALL.clone()).unwrap_err(), Error::WrongKey);
}

#[test]
fn an_area_is_wiped_when_it_was_tried() {
    let image = cheap();
    let header = read(image).unwrap();
    let slot = &header.slots()[0];
    let mut area = image[slot.area as usize..][..AREA_BYTES].to_vec();
    assert!(header.open_slot(0, PASSPHRASE, &mut area, &mut SMALL.clone()).unwrap().is_some());
    assert!(area.iter().all(|byte| *byte == 0));
    let needed = Error::WrongLength { needed: AREA_BYTES };
    assert_eq!(header.open_slot(0, PASSPHRASE, &mut area[1..], &mut SMALL.clone()).unwrap_err(), needed);
    assert_eq!(header.open_slot(1, PASSPHRASE, &mut area, &mut SMALL.clone()).unwrap_err(), Error::NoSlot(1));
    assert_eq!(slot.derivation, header.slots()[0].derivation);
    assert_eq!(Hash::Sha256.bytes(), 32);
}

#[test]
fn a_header_is_read_from_no_more_than_its_device() {
    let head = &cheap()[..2 * HEADER_BYTES];
    let sector = 4096;
    assert_eq!(Header::read(head, DATA_OFFSET + sector + 5).unwrap().segment().bytes, sector);
    let refusal = Refusal::Device { bytes: DATA_OFFSET + sector - 1, needed: DATA_OFFSET + sector };
    assert_eq!(Header::read(head, DATA_OFFSET + sector - 1).err(), Some(Error::Refused(refusal)));
}
