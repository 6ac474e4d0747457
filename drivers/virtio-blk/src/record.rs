//! What a successor finds of its predecessor beside the queue: the head, and a record of each
//! request.
//!
//! ```text
//! ring region:  queue | head | slot 0 | slot 1 | ... | slot 255
//! slot:         header | status | range or name | state, record | table of descriptors
//! ```
//!
//! Invariants: a record's state is one word and is written after the rest of it, so a death leaves
//! the record whole or not there. No byte that somebody else changes makes another record or
//! another state of it: the state has its own check, the rest a sum.

use packet::{Memory, OutOfBounds};
use virtio::pool_queue::{ENTRIES, QUEUE_BYTES};
use virtio::takeover::Left;

use crate::request::{Operation, Request};

/// Where the head is in the ring region; the queue is at its begin.
pub const HEAD_OFFSET: usize = QUEUE_BYTES;
/// Where the slots are.
pub const SLOTS_OFFSET: usize = HEAD_OFFSET + 4096;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 1024;
/// Slots: the device has one entry for each.
pub const SLOTS: u16 = ENTRIES;
/// Bytes that the ring region must have.
pub const RING_BYTES: usize = SLOTS_OFFSET + SLOTS as usize * SLOT_BYTES;

/// In a slot: the header that the device reads,
pub const HEADER_OFFSET: usize = 0;
/// the byte that it writes last,
pub const STATUS_OFFSET: usize = 16;
/// sectors that it is to discard, or its name,
pub const EXTRA_OFFSET: usize = 32;
/// state and record of a request,
pub const STATE_OFFSET: usize = 64;
const BODY_OFFSET: usize = 72;
/// and the table of descriptors of a command that has this slot.
pub const TABLE_OFFSET: usize = 128;

/// Where a slot begins in the ring region.
pub fn slot_offset(slot: u16) -> usize {
    SLOTS_OFFSET + usize::from(slot) * SLOT_BYTES
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// How often the device had to be reset while it had the request; at most [`ATTEMPTS_MAX`].
    pub attempts: u8,
    /// See [`Place`].
    pub place: Place,
}

/// See [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It waits to be given to the device; `alone`: not together with others.
    Waiting {
        /// See there.
        alone: bool,
    },
    /// It is the part of that number of the command that has that slot.
    In {
        /// Slot of the command.
        command: u16,
        /// Its part, from 0.
        part: u8,
    },
}

/// More resets than this with one request make it fail; two bits.
pub const ATTEMPTS_MAX: u8 = 3;
const FREE: u32 = 0;
const WAITING: u8 = 0xa1;
const IN: u8 = 0xb6;

impl State {
    /// One word, never [`FREE`].
    fn encode(self) -> u32 {
        let (kind, what, slot) = match self.place {
            Place::Waiting { alone } => (WAITING, u8::from(alone), 0),
            // In bounds: slots have numbers of 8 bits.
            Place::In { command, part } => (IN, part, command as u8),
        };
        let middle = self.attempts | what << 2;
        u32::from_le_bytes([kind, middle, slot, check_of(kind, middle, slot)])
    }

    fn decode(word: u32) -> Option<State> {
        let [kind, middle, slot, check] = word.to_le_bytes();
        let (attempts, what) = (middle & 3, middle >> 2);
        let place = match kind {
            WAITING if slot == 0 && what <= 1 => Place::Waiting { alone: what == 1 },
            IN => Place::In { command: slot.into(), part: what },
            _ => return None,
        };
        (check == check_of(kind, middle, slot)).then_some(State { attempts, place })
    }
}

/// Differs if one of them does.
fn check_of(kind: u8, middle: u8, slot: u8) -> u8 {
    !(kind ^ middle ^ slot)
}

const BODY_BYTES: usize = 48;

/// FNV-1a: a change of one byte always changes it.
fn sum(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn encode(slot: u16, number: u64, request: &Request) -> [u8; BODY_BYTES] {
    let operation = match request.operation {
        Operation::Read => 1,
        Operation::Write => 2,
        Operation::Flush => 3,
        Operation::Identify => 4,
        Operation::Discard => 5,
        Operation::WriteZeroes { may_discard } => 6 + u8::from(may_discard),
    };
    let mut body = [0; BODY_BYTES];
    let words = [number, request.id, request.sector];
    for (place, word) in body.as_chunks_mut().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    body[24..28].copy_from_slice(&request.sectors.to_le_bytes());
    body[28..32].copy_from_slice(&request.offset.to_le_bytes());
    (body[32], body[33]) = (operation, request.client);
    let sum = sum(slot.to_le_bytes().into_iter().chain(body[..40].iter().copied()));
    body[40..].copy_from_slice(&sum.to_le_bytes());
    body
}

/// Number and request of a body whose sum is right.
fn decode(slot: u16, body: &[u8; BODY_BYTES]) -> Option<(u64, Request)> {
    let own = sum(slot.to_le_bytes().into_iter().chain(body[..40].iter().copied()));
    if body[40..] != own.to_le_bytes() {
        return None;
    }
    let word = |at: usize| body[at..at + 8].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let operation = match body[32] {
        1 => Operation::Read,
        2 => Operation::Write,
        3 => Operation::Flush,
        4 => Operation::Identify,
        5 => Operation::Discard,
        6 => Operation::WriteZeroes { may_discard: false },
        7 => Operation::WriteZeroes { may_discard: true },
        _ => return None,
    };
    let (sectors, offset) = (word(24) as u32, (word(24) >> 32) as u32);
    let request = Request { client: body[33], id: word(8), operation, sector: word(16), sectors, offset };
    Some((word(0), request))
}

/// A record as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its place among all requests that were accepted.
    pub number: u64,
    /// What was asked.
    pub request: Request,
    /// How far it had come.
    pub state: State,
}

/// The records in a ring region.
#[derive(Clone)]
pub struct Records<M> {
    memory: M,
}

impl<M: Memory> Records<M> {
    /// Those of a region; `OutOfBounds` if it is too small.
    pub fn new(memory: M) -> Result<Records<M>, OutOfBounds> {
        memory.read(RING_BYTES - 1, &mut [0])?;
        Ok(Records { memory })
    }

    /// The record of a slot; `None` if there is none, or one that nobody wrote so.
    pub fn load(&self, slot: u16) -> Option<Found> {
        let at = slot_offset(slot);
        let state = State::decode(self.memory.load_u32(at + STATE_OFFSET).ok()?)?;
        let mut body = [0; BODY_BYTES];
        self.memory.read(at + BODY_OFFSET, &mut body).ok()?;
        let (number, request) = decode(slot, &body)?;
        Some(Found { number, request, state })
    }

    /// Writes a record where none is.
    pub fn enter(&self, slot: u16, number: u64, request: &Request, state: State) {
        // In bounds, as all that follow: looked at when this was made.
        let _ = self.memory.write(slot_offset(slot) + BODY_OFFSET, &encode(slot, number, request));
        self.set(slot, state);
    }

    /// The request stands there now.
    pub fn set(&self, slot: u16, state: State) {
        let _ = self.memory.store_u32(slot_offset(slot) + STATE_OFFSET, state.encode());
    }

    /// There is no record any more.
    pub fn free(&self, slot: u16) {
        let _ = self.memory.store_u32(slot_offset(slot) + STATE_OFFSET, FREE);
    }

    /// The memory of the region.
    pub fn memory(&self) -> &M {
        &self.memory
    }
}

/// "VBLK" and the layout's version.
const MAGIC: u64 = 0x5642_4c4b_0000_0001;
/// In the head: how the device was left, one byte that is written last;
const LEFT_OFFSET: usize = HEAD_OFFSET + 8;
/// drivers that went on with it one after the other, and none of them for long;
const HEIRS_OFFSET: usize = HEAD_OFFSET + 9;
/// the features that were agreed, and their sum.
const FEATURES_OFFSET: usize = HEAD_OFFSET + 16;
const STARTING: u8 = 0x17;
const RUNNING: u8 = 0x28;

/// The head of a ring region.
pub struct Head<M> {
    memory: M,
}

impl<M: Memory> Head<M> {
    /// That of a region which is large enough, and how a predecessor left the device; `None`:
    /// nobody knows, and no record counts.
    pub fn recover(memory: M) -> (Head<M>, Option<Left>) {
        let mut head = [0; 32];
        let is_there = memory.read(HEAD_OFFSET, &mut head).is_ok() && head[..8] == MAGIC.to_le_bytes();
        let word = |at: usize| head[at..at + 8].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        let is_right = word(24) == sum(head[16..24].iter().copied());
        let features = (head[8] == RUNNING && is_right).then_some(word(16));
        (Head { memory }, is_there.then_some(Left { features, heirs: head[9] }))
    }

    /// From here on the region is this driver's. No record may be left.
    pub fn claim(&self) {
        let _ = self.memory.write(LEFT_OFFSET, &[STARTING, 0]);
        let _ = self.memory.write(HEAD_OFFSET, &MAGIC.to_le_bytes());
    }

    /// The device is about to be reset.
    pub fn starts(&self) {
        let _ = self.memory.write(LEFT_OFFSET, &[STARTING]);
    }

    /// The device works, with these features.
    pub fn runs(&self, features: u64) {
        let bytes = features.to_le_bytes();
        let _ = self.memory.write(FEATURES_OFFSET, &bytes);
        let _ = self.memory.write(FEATURES_OFFSET + 8, &sum(bytes).to_le_bytes());
        self.keep_heirs(0);
        let _ = self.memory.write(LEFT_OFFSET, &[RUNNING]);
    }

    /// So many drivers went on with the device, and none of them served for long.
    pub fn keep_heirs(&self, count: u8) {
        let _ = self.memory.write(HEIRS_OFFSET, &[count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{rc::Rc, vec, vec::Vec};
    use core::cell::RefCell;

    type Region = Rc<RefCell<Vec<u8>>>;

    fn region() -> Region {
        Rc::new(RefCell::new(vec![0; RING_BYTES]))
    }

    fn states() -> Vec<State> {
        let waiting = [false, true].map(|alone| Place::Waiting { alone });
        let parts = (0..64).flat_map(|part| [0, 1, 17, 254, 255].map(|command| Place::In { command, part }));
        let places = waiting.into_iter().chain(parts);
        places.flat_map(|place| (0..=ATTEMPTS_MAX).map(move |attempts| State { attempts, place })).collect()
    }

    #[test]
    fn a_state_is_itself_and_no_byte_makes_it_another() {
        for state in states() {
            let word = state.encode();
            assert_eq!(State::decode(word), Some(state));
            for (at, value) in (0..4).flat_map(|at| (0..=255).map(move |value| (at, value))) {
                let mut bytes = word.to_le_bytes();
                bytes[at] = value;
                let found = State::decode(u32::from_le_bytes(bytes));
                assert!(bytes == word.to_le_bytes() || found.is_none(), "{state:?} became {found:?}");
            }
        }
        let of_free = (0..4).flat_map(|at| (0..=255).map(move |value: u32| value << (8 * at)));
        assert!(of_free.map(State::decode).all(|state| state.is_none()), "what was free is there again");
    }

    #[test]
    fn a_word_that_no_driver_writes_is_no_state() {
        // One that waits has no command: neither its slot nor more than one bit says anything.
        let waiting = [0, 1, 255].into_iter().flat_map(|slot| (0..=u16::MAX).map(move |rest| (slot, rest)));
        for (slot, rest) in waiting {
            let [middle, check] = rest.to_le_bytes();
            let word = u32::from_le_bytes([WAITING, middle, slot, check]);
            assert!(State::decode(word).is_none_or(|state| state.encode() == word), "{word:#x}");
        }
        // Memory that somebody filled.
        assert!((0..=255).all(|byte| State::decode(u32::from_le_bytes([byte; 4])).is_none()));
    }

    #[test]
    fn a_record_is_itself_or_not_there() {
        let region = region();
        let records = Records::new(region.clone()).unwrap();
        let operations = [
            Operation::Read,
            Operation::Write,
            Operation::Flush,
            Operation::Identify,
            Operation::Discard,
            Operation::WriteZeroes { may_discard: false },
            Operation::WriteZeroes { may_discard: true },
        ];
        for operation in operations {
            let request =
                Request { client: 3, id: !5, operation, sector: 1 << 40 | 9, sectors: 1_000, offset: 0xfff0_0200 };
            let state = State { attempts: 1, place: Place::Waiting { alone: true } };
            records.enter(200, 1 << 50, &request, state);
            assert_eq!(records.load(200), Some(Found { number: 1 << 50, request, state }));
            assert_eq!(records.load(201), None);
            for at in (STATE_OFFSET..STATE_OFFSET + 4).chain(BODY_OFFSET..BODY_OFFSET + BODY_BYTES) {
                let at = slot_offset(200) + at;
                for bit in 0..8 {
                    region.borrow_mut()[at] ^= 1 << bit;
                    assert_eq!(records.load(200), None, "byte {at}, bit {bit}");
                    region.borrow_mut()[at] ^= 1 << bit;
                }
            }
            // The same bytes are no record of another slot.
            region.borrow_mut().copy_within(slot_offset(200)..slot_offset(201), slot_offset(7));
            assert_eq!(records.load(7), None);
            records.free(200);
            assert_eq!(records.load(200), None);
        }
        let small: Region = Rc::new(RefCell::new(vec![0; RING_BYTES - 1]));
        assert!(Records::new(small).is_err());
    }

    #[test]
    fn how_the_device_was_left_is_one_byte() {
        let region = region();
        let recovered = || Head::recover(region.clone()).1;
        let (head, left) = Head::recover(region.clone());
        assert_eq!(left, None);
        head.claim();
        assert_eq!(recovered(), Some(Left { features: None, heirs: 0 }));
        head.runs(0x1_2000_0040);
        head.keep_heirs(2);
        assert_eq!(recovered(), Some(Left { features: Some(0x1_2000_0040), heirs: 2 }));
        for at in (LEFT_OFFSET..=LEFT_OFFSET).chain(FEATURES_OFFSET..FEATURES_OFFSET + 16) {
            region.borrow_mut()[at] ^= 0x40;
            assert_eq!(recovered(), Some(Left { features: None, heirs: 2 }), "byte {at}");
            region.borrow_mut()[at] ^= 0x40;
        }
        head.starts();
        assert_eq!(recovered(), Some(Left { features: None, heirs: 2 }));
        region.borrow_mut()[HEAD_OFFSET + 3] ^= 1;
        assert_eq!(recovered(), None);
    }
}
