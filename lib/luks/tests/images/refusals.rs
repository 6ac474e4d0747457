//! What is LUKS2 and not supported is refused by its name, and slots that cost too much are not
//! tried.

use crate::common::{DEVICE_BYTES, PASSPHRASE, SMALL, cheap, json, open, put_sums, read, replaced, with_json};
use luks::{Budget, DATA_OFFSET, Error, Refusal};

fn refusal(image: &[u8]) -> String {
    match read(image) {
        Err(Error::Refused(refusal)) => refusal.to_string(),
        Err(error) => panic!("{error}"),
        Ok(header) => panic!("it is read: {:?}", header.segment()),
    }
}

#[test]
fn volumes_are_refused_by_name() {
    let segment = r#""0":{"type":"crypt","offset":"16777216","size":"dynamic","iv_tweak":"0""#;
    let cases = [
        (r#""type":"crypt""#, r#""type":"linear""#, "the segment is `linear`"),
        (r#""aes-xts-plain64","sector_size""#, r#""aes-cbc-essiv:sha256","sector_size""#, "aes-cbc-essiv:sha256"),
        (r#""sector_size":4096"#, r#""sector_size":2048"#, "bytes of a sector is 2048"),
        (r#""sector_size":4096"#, r#""sector_size":4096,"integrity":{"type":"hmac(sha256)"}"#, "integrity"),
        (r#""sector_size":4096"#, r#""sector_size":4096,"flags":["in-reencryption"]"#, "a segment with flags"),
        (segment, r#""0":{"type":"crypt","offset":"0","size":"dynamic","iv_tweak":"0""#, "apart from the data"),
        (segment, r#""0":{"type":"crypt","offset":"16777728","size":"dynamic","iv_tweak":"0""#, "offset is 16777728"),
        (segment, r#""0":{"type":"crypt","offset":"16777216","size":"40960000","iv_tweak":"0""#, "of a device of"),
        (r#""segments":{"#, r#""segments":{"1":{"type":"linear","offset":"0","size":"512"},"#, "several segments"),
        (r#""type":"pbkdf2","keyslots""#, r#""type":"scrypt","keyslots""#, "a digest is `scrypt`"),
        (r#""hash":"sha256","iterations""#, r#""hash":"ripemd160","iterations""#, "hash is `ripemd160`"),
        (
            r#""config":{"#,
            r#""config":{"requirements":{"mandatory":["online-reencrypt-v2"]},"#,
            "a requirement is `online-reencrypt-v2`",
        ),
        (r#""type":"crypt""#, "\"type\":\"a\\u001b[31m\"", "`a\\u{1b}[31m`"),
    ];
    for (old, new, told) in cases {
        let refusal = refusal(&replaced(old, new));
        assert!(refusal.contains(told), "{new} gives: {refusal}");
    }
}

#[test]
fn other_versions_sizes_and_sums_are_refused_by_name() {
    let cases =
        [(6, vec![0, 1], "the version of LUKS is 1"), (8, vec![0, 0, 0, 0, 0, 2, 0, 0], "bytes of a header is 131072")];
    for (at, bytes, told) in cases {
        let mut image = cheap().to_vec();
        image[at..at + bytes.len()].copy_from_slice(&bytes);
        image[16384] = 0;
        assert!(refusal(&image).contains(told), "{}", refusal(&image));
    }
    let mut image = cheap().to_vec();
    for at in [72, 72 + 16384] {
        image[at..at + 6].copy_from_slice(b"blake2");
    }
    assert!(refusal(&image).contains("the header's checksum is `blake2`"));
}

/// Slots that are not supported, by themselves and beside one that is.
#[test]
fn a_slot_that_is_not_supported_leaves_the_others() {
    let cases = [
        (r#""type":"luks2""#, r#""type":"reencrypt""#, "a key slot is `reencrypt`"),
        (r#""type":"argon2id""#, r#""type":"argon2i""#, "derivation is `argon2i`"),
        (r#""type":"luks1""#, r#""type":"luks9""#, "a splitter is `luks9`"),
        (r#""type":"raw""#, r#""type":"datashift""#, "an area is `datashift`"),
        (r#""stripes":4000"#, r#""stripes":40000000000"#, "stripes of a splitter is 40000000000"),
        (r#""key_size":64,"af""#, r#""key_size":32,"af""#, "bytes of a key is 32"),
        (r#""aes-xts-plain64","key_size":64"#, r#""serpent-xts-plain64","key_size":64"#, "serpent-xts-plain64"),
        (r#""stripes":4000,"hash":"sha256""#, r#""stripes":4000,"hash":"sha1""#, "hash is `sha1`"),
    ];
    for (old, new, told) in cases {
        let header = read(&replaced(old, new)).unwrap();
        assert!(header.slots().is_empty());
        let [(0, refusal)] = header.refused_slots() else { panic!("{:?}", header.refused_slots()) };
        assert!(refusal.to_string().contains(told), "{refusal}");
    }
}

#[test]
fn slots_are_tried_by_priority_and_those_of_no_digest_are_not() {
    let text = crate::common::json(cheap());
    let start = text.find(r#"{"type":"luks2""#).unwrap();
    let slot = &text[start..text.find(r#","tokens""#).unwrap() - 1];
    let more = |name: &str, priority| {
        let with = slot.replacen("\"key_size\":64", &format!("\"key_size\":64,\"priority\":{priority}"), 1);
        format!("\"{name}\":{with}")
    };
    let slots = format!("{},{},{},{},\"0\":{slot}", more("10", 1), more("2", 2), more("3", 0), more("9", 2));
    let text = text.replace(&format!("\"0\":{slot}"), &slots);
    let text = text.replace(r#""keyslots":["0"]"#, r#""keyslots":["0","2","3","10"]"#);
    let header = read(&crate::common::with_json(cheap(), text.as_bytes())).unwrap();
    assert_eq!(header.slots().iter().map(|slot| slot.number).collect::<Vec<_>>(), [2, 0, 10]);
    assert_eq!(header.refused_slots(), []);
}

#[test]
fn damage_is_told_from_what_is_not_supported() {
    let cases = [
        (r#""offset":"32768""#, r#""offset":"28672""#),
        (r#""offset":"32768""#, r#""offset":"18446744073709551615""#),
        (r#""size":"258048""#, r#""size":"4096""#),
        (r#""size":"258048""#, r#""size":"18446744073709551615""#),
        (r#""keyslots_size":"16744448""#, r#""keyslots_size":"18446744073709551615""#),
        (r#""keyslots_size":"16744448""#, r#""keyslots_size":"+16744448""#),
        (r#""json_size":"12288""#, r#""json_size":"12287""#),
        (r#""memory":64"#, r#""memory":0"#),
        (r#""time":1"#, r#""time":4294967296"#),
        (r#""cpus":1"#, r#""cpus":-1"#),
        (r#""iterations":1000"#, r#""iterations":0"#),
        (r#""segments":["0"]"#, r#""segments":[]"#),
        (r#""segments":{"#, r#""segments":{},"others":{"#),
        (r#""size":"dynamic""#, r#""size":"513""#),
        (r#""size":"dynamic""#, r#""size":"0""#),
        (r#""salt":""#, r#""salt":"!"#),
    ];
    for (old, new) in cases {
        let read = read(&replaced(old, new));
        assert!(matches!(read, Err(Error::Damaged(_))), "{new}: {:?}", read.err());
    }
}

#[test]
fn slots_have_numbers_below_32() {
    let numbered = |number: &str| {
        let text = json(cheap()).replace(r#""keyslots":{"0""#, &format!(r#""keyslots":{{"{number}""#));
        let text = text.replace(r#""keyslots":["0"]"#, &format!(r#""keyslots":["{number}"]"#));
        read(&with_json(cheap(), text.as_bytes()))
    };
    assert_eq!(numbered("31").unwrap().slots()[0].number, 31);
    for number in ["32", "x"] {
        assert_eq!(numbered(number).err(), Some(Error::Damaged("the number of a key slot")), "{number}");
    }
}

#[test]
fn a_segment_may_end_with_the_device_and_begin_where_the_areas_end() {
    let segment = |old: &str, new: &str| read(&replaced(old, new)).map(|header| header.segment().clone());
    let rest = DEVICE_BYTES - DATA_OFFSET;
    let whole = segment(r#""size":"dynamic""#, &format!(r#""size":"{rest}""#)).unwrap();
    assert_eq!((whole.offset, whole.bytes), (DATA_OFFSET, rest));
    let longer = format!(r#""size":"{}""#, rest + 4096);
    let refusal = Refusal::Device { bytes: DEVICE_BYTES, needed: DEVICE_BYTES + 4096 };
    assert_eq!(segment(r#""size":"dynamic""#, &longer), Err(Error::Refused(refusal)));
    // One block more of areas.
    let told = segment(r#""keyslots_size":"16744448""#, r#""keyslots_size":"16748544""#).unwrap_err().to_string();
    assert!(told.contains("apart from the data"), "{told}");
}

#[test]
fn discards_are_allowed_by_their_flag_only() {
    let allows = |flags: &str| {
        let image = replaced(r#""config":{"#, &format!(r#""config":{{"flags":[{flags}],"#));
        read(&image).unwrap().segment().allows_discards
    };
    assert!(allows(r#""allow-discards""#) && allows(r#""no-read-workqueue","allow-discards""#));
    assert!(!allows("") && !allows(r#""no-read-workqueue""#));
}

#[test]
fn iterations_are_counted_for_each_sum_of_a_key() {
    let old = r#""type":"argon2id","time":1,"memory":64,"cpus":1"#;
    let image = replaced(old, r#""type":"pbkdf2","hash":"sha256","iterations":300"#);
    let mut budget = Budget { iterations: 599, ..SMALL };
    // A key has 64 bytes, a sum 32.
    let refusal = Refusal::Costs { what: "iterations of PBKDF2", needed: 600, left: 599 };
    assert_eq!(open(&image, PASSPHRASE, budget).unwrap_err(), Error::Refused(refusal));
    budget.iterations = 600 + 1000;
    assert!(open(&image, PASSPHRASE, budget).unwrap().is_none(), "with its digest's 1,000 it is enough");
}

#[test]
fn a_slot_that_costs_too_much_is_not_tried() {
    let tried = |image: &[u8], budget| match open(image, PASSPHRASE, budget) {
        Err(Error::Refused(Refusal::Costs { what, needed, left })) => (what, needed, left),
        other => panic!("{other:?}"),
    };
    let needed = |memory_kib, filled_kib, iterations| Budget { memory_kib, filled_kib, iterations };
    assert!(open(cheap(), PASSPHRASE, needed(64, 64, 1000)).unwrap().is_some(), "so much is enough");
    assert_eq!(tried(cheap(), needed(63, 64, 1000)), ("KiB for argon2id", 64, 63));
    assert_eq!(tried(cheap(), needed(64, 63, 1000)), ("KiB filled by argon2id", 64, 63));
    assert_eq!(tried(cheap(), needed(64, 64, 999)), ("iterations of PBKDF2", 1000, 999));
    // What cryptsetup makes on a large machine, and the most that can be written.
    let image = replaced(r#""memory":64"#, r#""memory":1048576"#);
    assert_eq!(tried(&image, Budget::GUEST), ("KiB for argon2id", 1_048_576, 65_536));
    let image = replaced(r#""time":1"#, r#""time":4294967295"#);
    assert_eq!(tried(&image, Budget::GUEST), ("KiB filled by argon2id", 64 * 4_294_967_295, 2_097_152));
    let image = replaced(r#""iterations":1000"#, r#""iterations":4294967295"#);
    assert_eq!(tried(&image, Budget::GUEST), ("iterations of PBKDF2", 4_294_967_295, 20_000_000));
}

#[test]
fn a_budget_is_for_all_slots_together() {
    let header = read(cheap()).unwrap();
    let mut budget = SMALL;
    let slots = SMALL.filled_kib / 64;
    for tries in 0..=slots {
        let key = header.open_slot(0, b"wrong", &mut vec![0; luks::AREA_BYTES], &mut budget);
        match key {
            Ok(key) => assert!(key.is_none() && tries < slots),
            Err(error) => assert!(matches!(error, Error::Refused(Refusal::Costs { .. })) && tries == slots),
        }
    }
}

#[test]
fn parameters_that_argon2id_does_not_have_are_damage() {
    let image = replaced(r#""cpus":1"#, r#""cpus":9"#);
    assert_eq!(
        open(&image, PASSPHRASE, SMALL).unwrap_err(),
        Error::Damaged("a key slot's parameters of argon2id"),
        "64 KiB are too few for nine lanes"
    );
    let mut image = cheap().to_vec();
    put_sums(&mut image);
    assert_eq!(image, cheap(), "what is replaced has the checksums of what was formatted");
}
