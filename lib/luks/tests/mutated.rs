//! 10,000 wrong headers, most of them under checksums that fit: whatever they say, reading one and
//! trying a passphrase ends with a result or an error, in little memory and after little work.
//!
//! Alone in its program, because it measures the memory that is taken.

#[path = "images/common.rs"]
#[allow(dead_code, reason = "the other tests use more of it")]
mod common;

use common::{DEVICE_BYTES, HEADER_BYTES, PASSPHRASE, SMALL, cheap, json, put_sums, with_json};
use luks::{AREA_BYTES, DATA_OFFSET, HEAD_BYTES, Header, SectorCipher};
use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use serde_json::Value;
use std::cell::Cell;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Bytes that a header may have taken while it is read and tried: what `SMALL` allows argon2id, an
/// area, and 2 MiB for all that is decoded of 64 KiB.
const BYTES_MAX: usize = ((SMALL.memory_kib as usize) << 10) + AREA_BYTES + (2 << 20);

/// A change of a header.
#[derive(Clone, Debug)]
enum Change {
    /// Other bytes, in the first header or the second.
    Bytes { at: usize, value: Vec<u8> },
    /// Another value in the JSON text, or none.
    Value { which: prop::sample::Index, value: Option<String> },
    /// Another cost of the slot or the digest, mostly a possible one.
    Cost { path: &'static str, value: u32 },
    /// Another name, or the same one again, of a part.
    Name { which: prop::sample::Index, name: String },
    /// A text instead of the JSON text.
    Text(String),
    /// The device ends here.
    End(usize),
}

/// Where costs stand in the JSON text.
const COSTS: [&str; 4] =
    ["/keyslots/0/kdf/memory", "/keyslots/0/kdf/time", "/keyslots/0/kdf/cpus", "/digests/0/iterations"];

/// Values that are at the ends of what there can be.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[1-9][0-9]{0,3}",
        "[0-9]{1,22}",
        "\"[0-9]{1,22}\"",
        "-[0-9]{1,3}(\\.[0-9]{1,3})?(e[0-9]{1,4})?",
        "\"[a-z0-9:+/=-]{0,40}\"",
        Just(String::from("null")),
        Just(String::from("{}")),
        Just(String::from("[]")),
        Just(String::from("true")),
        Just(String::from("\"0\"")),
        Just(String::from("4294967295")),
        Just(String::from("18446744073709551615")),
        Just(String::from("\"18446744073709551615\"")),
        Just(String::from("\"18446744073709550592\"")),
        Just(String::from("\"\\u0000\\ud800\"")),
        Just(format!("\"{}\"", "A".repeat(8000))),
        Just(format!("[{}\"0\"]", "\"0\",".repeat(2000))),
        (100..4000usize).prop_map(|deep| "[".repeat(deep)),
        (100..1000usize).prop_map(|deep| "{\"a\":".repeat(deep)),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<prop::sample::Index>;
    let at = prop_oneof![0..512usize, 4096..4900usize, 0..HEADER_BYTES + 512, 0..2 * HEADER_BYTES];
    prop_oneof![
        3 => (at, prop::collection::vec(any::<u8>(), 1..9)).prop_map(|(at, value)| Change::Bytes { at, value }),
        6 => (index(), proptest::option::weighted(0.8, value())).prop_map(|(which, value)| Change::Value { which, value }),
        4 => (prop::sample::select(&COSTS), prop_oneof![3 => 1..300u32, 1 => any::<u32>()])
            .prop_map(|(path, value)| Change::Cost { path, value }),
        2 => (index(), "[a-z_0-9]{0,12}").prop_map(|(which, name)| Change::Name { which, name }),
        1 => value().prop_map(Change::Text),
        1 => "\\PC{0,200}".prop_map(Change::Text),
        1 => (0..HEAD_BYTES).prop_map(Change::End),
    ]
}

/// All values below `value`, itself among them, as paths.
fn paths(value: &Value, path: String, all: &mut Vec<String>) {
    match value {
        // A byte that was changed before may have put either into a name.
        Value::Object(parts) => parts.iter().for_each(|(name, part)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            paths(part, format!("{path}/{name}"), all);
        }),
        Value::Array(parts) => (0..).zip(parts).for_each(|(at, part)| paths(part, format!("{path}/{at}"), all)),
        _ => {}
    }
    all.push(path);
}

/// A text with one value replaced by another text, which may be no JSON.
fn with_value(text: &str, which: prop::sample::Index, new: Option<String>) -> String {
    const MARK: &str = "the value that is replaced";
    let Ok(mut tree) = serde_json::from_str::<Value>(text) else { return text.into() };
    let mut all = Vec::new();
    paths(&tree, String::new(), &mut all);
    let path = which.get(&all);
    match new {
        Some(new) => {
            *tree.pointer_mut(path).unwrap() = MARK.into();
            tree.to_string().replace(&format!("\"{MARK}\""), &new)
        }
        None => {
            let (parent, name) = path.rsplit_once('/').unwrap_or_default();
            if let Some(Value::Object(parts)) = tree.pointer_mut(parent) {
                parts.remove(name);
            }
            tree.to_string()
        }
    }
}

fn apply(image: &[u8], change: Change) -> Vec<u8> {
    let text = json(image);
    match change {
        Change::Bytes { at, value } => {
            let mut image = image.to_vec();
            image[at..at + value.len()].copy_from_slice(&value);
            image
        }
        Change::Value { which, value } => with_json(image, with_value(&text, which, value).as_bytes()),
        Change::Cost { path, value } => {
            let mut tree: Value = serde_json::from_str(&text).unwrap_or_default();
            if let Some(place) = tree.pointer_mut(path) {
                *place = value.into();
            }
            with_json(image, tree.to_string().as_bytes())
        }
        Change::Name { which, name } => {
            let names: Vec<&str> = text.split('"').skip(1).step_by(2).chain(["luks2"]).collect();
            with_json(image, text.replace(&format!("\"{}\"", which.get(&names)), &format!("\"{name}\"")).as_bytes())
        }
        Change::Text(text) => with_json(image, text.as_bytes()),
        Change::End(at) => image[..at].to_vec(),
    }
}

/// How far a header led.
#[derive(Default)]
struct Counts {
    read: Cell<u32>,
    tried: Cell<u32>,
    opened: Cell<u32>,
}

/// Reads a header, tries its slots, and checks what a reader relies on.
fn read_and_try(image: &[u8], counts: &Counts) {
    let Ok(header) = Header::read(&image[..image.len().min(HEAD_BYTES)], DEVICE_BYTES) else { return };
    counts.read.update(|count| count + 1);
    let segment = header.segment();
    let sector = segment.sector.get() as u64;
    assert!(segment.bytes > 0 && segment.bytes % sector == 0 && segment.offset % sector == 0);
    assert!(segment.offset.checked_add(segment.bytes).unwrap() <= DEVICE_BYTES);
    if let Some(write) = header.repair(&[0; 64]) {
        assert!(write.at + write.bytes.len() as u64 <= segment.offset);
    }
    let mut budget = SMALL;
    for slot in header.slots() {
        assert!(slot.area >= 2 * HEADER_BYTES as u64 && slot.area + AREA_BYTES as u64 <= segment.offset);
        let mut area = image.get(slot.area as usize..).and_then(|rest| rest.get(..AREA_BYTES)).map(<[u8]>::to_vec);
        let Some(area) = &mut area else { continue };
        counts.tried.update(|count| count + 1);
        if let Ok(Some(key)) = header.open_slot(slot.number, PASSPHRASE, area, &mut budget) {
            counts.opened.update(|count| count + 1);
            let cipher = SectorCipher::new(&key, segment);
            cipher.decrypt(segment.bytes - sector, &mut area[..sector as usize]).unwrap();
        }
    }
    assert!(budget.filled_kib <= SMALL.filled_kib && budget.iterations <= SMALL.iterations);
}

#[test]
fn wrong_headers_are_refused_in_little_memory() {
    let image = cheap();
    assert!(DATA_OFFSET > image.len() as u64);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(10_000));
    let counts = Counts::default();
    let changes = (prop::collection::vec(change(), 1..3), any::<bool>());
    runner
        .run(&changes, |(changes, with_sums)| {
            let mut wrong = image.to_vec();
            for change in changes {
                if wrong.len() == image.len() {
                    wrong = apply(&wrong, change);
                }
            }
            if with_sums && wrong.len() == image.len() {
                put_sums(&mut wrong);
            }
            MEMORY.reset_peak_usage();
            let before = MEMORY.current_usage();
            read_and_try(&wrong, &counts);
            let taken = MEMORY.peak_usage() - before;
            prop_assert!(taken <= BYTES_MAX, "{taken} bytes were taken");
            Ok(())
        })
        .unwrap();
    let Counts { read, tried, opened } = counts;
    // Enough of them got so far that what comes there was looked at.
    let (read, tried, opened) = (read.get(), tried.get(), opened.get());
    assert!(read > 1500 && tried > 800 && opened > 500 && tried - opened > 100, "{read}, {tried}, {opened}");
}
