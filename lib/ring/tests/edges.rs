//! What a ring does at its edges, case by case: each of these fails with a small change of code
//! that the comparison with a queue (`properties.rs`) does not see.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

use ring::{
    AtomicU64, BODY_BYTES, Broken, Buffer, Header, Kind, MESSAGE_SLOTS, Ordering, Reader, Refused, Slot, Writer,
    is_ring_size,
};

const GENERATION: u64 = 1 << 32;
const HEADER: Header = Header { kind: Kind::OneWay, operation: 0xfedc, correlation: 0x8765_4321 };

fn slots(count: usize) -> Vec<Slot> {
    (0..count).map(|_| Slot::empty()).collect()
}

/// A ring of so many slots as a peer may leave it: each line is stamped, but for the one that
/// `lacks`, and each word is `word`.
fn written(count: u64, word: u64, lacks: u64) -> Vec<Slot> {
    (0..count).map(|line| Slot::of([word; 7], if line == lacks { 0 } else { GENERATION | line })).collect()
}

/// The first word of a one-way message with so many body bytes.
fn first_word(body_bytes: u64) -> u64 {
    Kind::OneWay as u64 | body_bytes << 4
}

fn read(slots: &[Slot]) -> Result<Option<(Header, usize)>, Broken> {
    Reader::new(1, &AtomicU64::new(0)).read(slots, &AtomicU64::new(0), &mut Buffer::default())
}

#[test]
fn each_kind_of_message_arrives_as_that() {
    let (slots, index) = (slots(16), AtomicU64::new(0));
    let (mut writer, mut reader) = (Writer::new(1), Reader::new(1, &index));
    for kind in [Kind::Request, Kind::Reply, Kind::Event, Kind::Cancel, Kind::Cancelled, Kind::OneWay] {
        let header = Header { kind, ..HEADER };
        writer.write(&slots, &index, header, &[7]).unwrap();
        assert_eq!(reader.read(&slots, &index, &mut Buffer::default()), Ok(Some((header, 1))));
    }
    for unknown in [0, 7, 15] {
        assert_eq!(read(&written(16, unknown, u64::MAX)), Err(Broken), "kind {unknown}");
    }
}

#[test]
fn the_longest_message_fills_all_lines_that_one_may_take() {
    let (slots, index) = (slots(64), AtomicU64::new(0));
    let mut writer = Writer::new(1);
    writer.write(&slots, &index, HEADER, &[7; BODY_BYTES]).unwrap();
    assert_eq!((writer.position(), BODY_BYTES), (MESSAGE_SLOTS as u32, 16 * 7 * 8 - 8));
}

#[test]
fn a_message_of_which_a_later_line_is_missing_is_broken() {
    let word = first_word(13 * 8);
    assert_eq!(read(&written(16, word, 2)).unwrap().unwrap().1, 13 * 8, "two lines are there");
    assert_eq!(read(&written(16, word, 1)), Err(Broken));
}

/// In a ring that has room for what its first word says, too.
#[test]
fn a_message_longer_than_any_may_be_is_broken() {
    let bytes = BODY_BYTES as u64;
    assert_eq!(read(&written(128, first_word(bytes), u64::MAX)).unwrap().unwrap().1, BODY_BYTES);
    for longer in [bytes + 1, 0xfff] {
        assert_eq!(read(&written(128, first_word(longer), u64::MAX)), Err(Broken));
    }
}

/// Looking at the index costs a cache line of the reader's, so a writer with room leaves it alone.
#[test]
fn a_writer_looks_at_the_index_only_when_it_has_no_room() {
    let slots = slots(16);
    let mut writer = Writer::new(1);
    // Ahead of the writer: no reader says that.
    let index = AtomicU64::new(GENERATION | 100);
    for number in 1..=16 {
        assert_eq!(writer.write(&slots, &index, HEADER, &[]), Ok(()));
        assert_eq!(writer.position(), number);
    }
    assert_eq!(writer.write(&slots, &index, HEADER, &[]), Err(Refused::Broken));
    index.store(0, Ordering::Relaxed);
    assert_eq!(writer.write(&slots, &index, HEADER, &[]), Err(Refused::Full), "of another generation");
    index.store(GENERATION, Ordering::Relaxed);
    assert_eq!(writer.write(&slots, &index, HEADER, &[]), Err(Refused::Full), "nothing was read");
    index.store(GENERATION | 1, Ordering::Relaxed);
    assert_eq!(writer.write(&slots, &index, HEADER, &[]), Ok(()));
    assert_eq!(writer.position(), 17, "what was refused took no place");
}

#[test]
fn a_message_is_unread_until_the_index_has_passed_it() {
    let (slots, index) = (slots(16), AtomicU64::new(0));
    let mut writer = Writer::new(1);
    assert!(!writer.is_unread(&index), "nothing was sent");
    writer.write(&slots, &index, HEADER, &[]).unwrap();
    assert!(writer.is_unread(&index));
    let mut reader = Reader::new(1, &index);
    assert!(writer.is_unread(&index));
    reader.read(&slots, &index, &mut Buffer::default()).unwrap();
    assert!(!writer.is_unread(&index));
}

#[test]
fn a_ring_has_a_power_of_two_of_slots_and_room_for_the_longest_message() {
    let sizes: Vec<_> = (0..=1 << 18).filter(|slots| is_ring_size(*slots)).collect();
    assert_eq!(sizes, (4..=16).map(|power| 1 << power).collect::<Vec<_>>());
}
