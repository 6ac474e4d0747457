//! The ring against a queue, and against a peer that writes anything.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use ring::{AtomicU64, BODY_BYTES, Buffer, Header, Kind, Ordering, Reader, Refused, Slot, Writer};

#[derive(Clone, Debug)]
enum Step {
    Write(usize, u8),
    Read,
    /// The monitor raises the generation; both sides begin again.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..=BODY_BYTES, any::<u8>()).prop_map(|(length, fill)| Step::Write(length, fill)),
        6 => (0..100usize, any::<u8>()).prop_map(|(length, fill)| Step::Write(length, fill)),
        10 => Just(Step::Read),
        1 => Just(Step::Restart),
    ]
}

fn slots(count: usize) -> Vec<Slot> {
    (0..count).map(|_| Slot::empty()).collect()
}

fn header(correlation: u32) -> Header {
    Header { kind: Kind::Request, operation: correlation as u16, correlation }
}

proptest! {
    #[test]
    fn behaves_like_a_bounded_queue(steps in prop::collection::vec(step(), 1..300), size in 4..7u32) {
        let slots = slots(1 << size);
        let index = AtomicU64::new(0);
        let mut generation = 1;
        let (mut writer, mut reader) = (Writer::new(generation), Reader::new(generation, &index));
        let mut model: VecDeque<(Header, Vec<u8>)> = VecDeque::new();
        let mut buffer = Buffer::default();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Write(length, fill) => {
                    let body = vec![fill; length];
                    match writer.write(&slots, &index, header(number as u32), &body) {
                        Ok(()) => model.push_back((header(number as u32), body)),
                        Err(Refused::Full) => prop_assert!(!model.is_empty(), "an empty ring takes every message"),
                        Err(other) => prop_assert!(false, "{other:?}"),
                    }
                }
                Step::Read => {
                    let got = reader.read(&slots, &index, &mut buffer).unwrap();
                    let got = got.map(|(header, bytes)| (header, buffer.0[..bytes].to_vec()));
                    prop_assert_eq!(got, model.pop_front());
                }
                Step::Restart => {
                    generation += 1;
                    (writer, reader) = (Writer::new(generation), Reader::new(generation, &index));
                    model.clear();
                }
            }
        }
    }

    #[test]
    fn nothing_a_peer_leaves_in_the_slots_panics(
        contents in prop::collection::vec((prop::array::uniform7(any::<u64>()), any::<u64>(), 0..4u8), 16),
        header in any::<u64>(), index_word in any::<u64>(),
    ) {
        // Stamps are right in most cases, so that the reader believes them and goes on to decode.
        let slots: Vec<Slot> = contents.iter().enumerate().map(|(position, (words, stamp, kind))| {
            let mut words = *words;
            if *kind == 1 { words[0] = header & 0xffff_ffff_ffff_3ff7; }
            Slot::of(words, if *kind == 0 { *stamp } else { 1 << 32 | position as u64 })
        }).collect();
        let index = AtomicU64::new(0);
        let mut reader = Reader::new(1, &index);
        let mut buffer = Buffer::default();
        for _ in 0..20 {
            let _ = reader.read(&slots, &index, &mut buffer);
        }
        let mut writer = Writer::new((index_word >> 32) as u32);
        for _ in 0..20 {
            index.store(index_word, Ordering::Relaxed);
            let _ = writer.write(&slots, &index, Header { kind: Kind::Event, operation: 1, correlation: 2 }, &[7; 300]);
        }
    }
}

/// The writer writes the last word of a message's first line last, and that is what the reader
/// polls: all the rest of a message may be there and is not seen.
#[test]
fn a_message_that_lacks_its_last_word_is_not_seen() {
    const GENERATION: u64 = 1 << 32;
    const LINES: u64 = 16;
    let index = AtomicU64::new(0);
    let mut reader = Reader::new(1, &index);
    for lacks in [0, 1, 2, 3] {
        // Words that look like a header of whatever kind and length.
        for word in [0, 1, 0x100, 0x01ff_ffff, u64::MAX] {
            let last = |line: u64| if line == 0 { lacks << 32 } else { GENERATION | line };
            let lines: Vec<_> = (0..LINES).map(|line| Slot::of([word; 7], last(line))).collect();
            if lacks == 1 {
                assert!(reader.ready(&lines), "whole");
                continue;
            }
            assert!(!reader.ready(&lines));
            let read = reader.read(&lines, &index, &mut Buffer::default());
            assert!(read.is_ok_and(|message| message.is_none()), "a part of a message was taken");
            assert_eq!(index.load(Ordering::Relaxed), GENERATION, "and its room given back");
        }
    }
}

#[test]
fn positions_wrap_around() {
    // 2^32 slots are too many for a test; the arithmetic is the same for each lap, so many laps of
    // the smallest ring must do.
    let slots = slots(16);
    let index = AtomicU64::new(0);
    let (mut writer, mut reader) = (Writer::new(9), Reader::new(9, &index));
    let mut buffer = Buffer::default();
    for number in 0..100_000u32 {
        let body = vec![number as u8; (number % 200) as usize];
        writer.write(&slots, &index, header(number), &body).unwrap();
        let (got, bytes) = reader.read(&slots, &index, &mut buffer).unwrap().unwrap();
        assert_eq!((got, &buffer.0[..bytes]), (header(number), &body[..]));
    }
}

#[test]
fn each_byte_has_its_place_in_a_body_of_any_length() {
    let slots = slots(16);
    let index = AtomicU64::new(0);
    let (mut writer, mut reader) = (Writer::new(1), Reader::new(1, &index));
    let mut buffer = Buffer::default();
    for length in 0..=BODY_BYTES {
        let body: Vec<u8> = (0..length).map(|place| (place * 7 + length) as u8).collect();
        writer.write(&slots, &index, header(1), &body).unwrap();
        let (_, bytes) = reader.read(&slots, &index, &mut buffer).unwrap().unwrap();
        assert_eq!(buffer.0[..bytes], body, "{length} bytes");
    }
}

#[test]
fn what_is_too_long_is_refused() {
    let slots = slots(16);
    let index = AtomicU64::new(0);
    assert_eq!(Writer::new(1).write(&slots, &index, header(1), &[0; BODY_BYTES + 1]), Err(Refused::TooLong));
}

/// Of one message, which takes microseconds; who waits longer waits for nothing.
const LIMIT: Duration = Duration::from_secs(100);

/// Told by a thread that fails, so that the other does not wait for it.
struct Failed<'a>(&'a AtomicBool);

impl Drop for Failed<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(std::thread::panicking(), Ordering::Relaxed);
    }
}

#[test]
fn two_threads_pass_a_million_messages() {
    let slots = slots(64);
    let index = AtomicU64::new(0);
    const COUNT: u32 = 1_000_000;
    let mut reader = Reader::new(1, &index);
    let failed = AtomicBool::new(false);
    let goes_on = |begun: Instant| begun.elapsed() < LIMIT && !failed.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _failed = Failed(&failed);
            let mut writer = Writer::new(1);
            for number in 0..COUNT {
                let begun = Instant::now();
                let bytes = number.to_le_bytes().repeat(1 + number as usize % 40);
                while writer.write(&slots, &index, header(number), &bytes) == Err(Refused::Full) {
                    assert!(goes_on(begun), "the reader takes nothing after message {number}");
                    std::thread::yield_now();
                }
            }
        });
        let _failed = Failed(&failed);
        let mut buffer = Buffer::default();
        for number in 0..COUNT {
            let begun = Instant::now();
            let (got, bytes) = loop {
                match reader.read(&slots, &index, &mut buffer).unwrap() {
                    Some(message) => break message,
                    None => std::thread::yield_now(),
                }
                assert!(goes_on(begun), "message {number} does not come");
            };
            assert_eq!(got, header(number));
            assert_eq!(bytes, 4 * (1 + number as usize % 40));
            assert!(buffer.0[..bytes].as_chunks::<4>().0.iter().all(|word| *word == number.to_le_bytes()));
        }
    });
}
