//! The two headers at the beginning of a device: which of them counts, and what it says.
//!
//! A header is 4 KiB and a JSON text behind them, under one checksum. The first begins the device,
//! the second follows it. Whoever changes a volume writes one after the other, with a number that
//! is one more; so after a cut one of them is whole. The newer one that is whole counts. If the
//! first is not, the second is looked for behind each size that a header may have.
//!
//! If there is neither a magic number at the beginning nor zeros, the volume is refused although a
//! second header is left: it may be another file system's by now. `cryptsetup repair` decides that.
//!
//! Nothing is written here. [`Header::repair`] is for the one that opens the device to write, once
//! and before anything else; cryptsetup does the same by itself whenever it opens it so.

use alloc::string::String;
use alloc::vec::Vec;
use zerocopy::big_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::derive::Budget;
use super::error::{Error, Refusal};
use super::hash::Hash;
use super::metadata::Metadata;
use super::slot::Slot;
use crate::key::{KEY_BYTES, VolumeKey};
use crate::sector::Segment;

/// Bytes from the beginning of a device that both headers lie in; what has to be read.
pub const HEAD_BYTES: usize = 2 * HEADER_BYTES_MAX;
/// The largest header that is read. cryptsetup makes 16 KiB; 64 KiB have room for 32 slots.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// The smallest that there is.
pub(crate) const HEADER_BYTES_MIN: usize = 16 << 10;
/// The largest that there is anywhere.
const HEADER_BYTES_ANY: u64 = 4 << 20;
/// Bytes before the JSON text.
pub(crate) const BINARY_BYTES: usize = 4096;
/// Bytes of the random number that no two headers have in common.
pub(crate) const SALT_BYTES: usize = 64;
const MAGIC: [[u8; 6]; 2] = [*b"LUKS\xba\xbe", *b"SKUL\xba\xbe"];
const VERSION: u16 = 2;

/// What stands before the JSON text.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Binary {
    magic: [u8; 6],
    version: U16,
    bytes: U64,
    sequence: U64,
    label: [u8; 48],
    checksum_name: [u8; 32],
    salt: [u8; SALT_BYTES],
    uuid: [u8; 40],
    subsystem: [u8; 48],
    offset: U64,
    padding: [u8; 184],
    checksum: [u8; 64],
    rest: [u8; 3584],
}

const _: () = assert!(size_of::<Binary>() == BINARY_BYTES);

/// How it is with one of the two headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// It is the one that counts, or the same.
    Current,
    /// It is whole, but older than the other.
    Older,
    /// It is not there or not whole: what is wrong with it.
    Bad(Error),
}

/// Bytes for a place on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The first byte.
    pub at: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The header that counts.
pub struct Header {
    metadata: Metadata,
    /// Its bytes, whole.
    image: Vec<u8>,
    states: [CopyState; 2],
    uuid: String,
    sequence: u64,
}

impl Header {
    /// Reads the headers of a device of `device_bytes` from its first bytes: [`HEAD_BYTES`], or all
    /// if it has fewer.
    ///
    /// # Errors
    /// [`Error::NotLuks`]; [`Error::Refused`] with what is not supported; [`Error::Damaged`] if
    /// none is whole.
    pub fn read(head: &[u8], device_bytes: u64) -> Result<Header, Error> {
        let first = whole(head, 0, 0);
        let second = match &first {
            Ok(copy) => whole(head, 1, copy.len()),
            Err(_) => find_second(head),
        };
        // A cut tears no magic number; where there is another, somebody wrote over the volume.
        if first == Err(Error::NotLuks) && second.is_ok() && head[..BINARY_BYTES].iter().any(|byte| *byte != 0) {
            return Err(Refusal::Has("something else over its first header").into());
        }
        let mut copies = [first, second];
        // The metadata counts, too: a text that is no header's is damage like another.
        let mut decoded = [None, None];
        for place in by_age(&copies) {
            let Ok(image) = copies[place] else { continue };
            match Metadata::decode(json(image), image.len() as u64, device_bytes) {
                Ok(metadata) => {
                    decoded[place] = Some(metadata);
                    break;
                }
                Err(Error::Damaged(what)) => copies[place] = Err(Error::Damaged(what)),
                Err(error) => return Err(error),
            }
        }
        let [metadata_0, metadata_1] = decoded;
        let (place, metadata) = match (metadata_0, metadata_1) {
            (Some(metadata), _) => (0, metadata),
            (None, Some(metadata)) => (1, metadata),
            (None, None) => return Err(worst(copies)),
        };
        Ok(Header::of(copies, place, metadata))
    }

    fn of(copies: [Result<&[u8], Error>; 2], place: usize, metadata: Metadata) -> Header {
        let image = copies[place].as_ref().map(|image| image.to_vec()).unwrap_or_default();
        let current = sequence(&image);
        let states = copies.map(|copy| match copy {
            Ok(image) if sequence(image) == current => CopyState::Current,
            Ok(_) => CopyState::Older,
            Err(error) => CopyState::Bad(error),
        });
        let uuid = binary(&image).map(|binary| text_of(&binary.uuid)).unwrap_or_default();
        Header { metadata, image, states, uuid, sequence: current }
    }

    /// How it is with the first header and the second.
    pub fn states(&self) -> &[CopyState; 2] {
        &self.states
    }

    /// The number that grows by one with each change of the header.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The volume's identity, as text.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// Where the data is and how it is encrypted.
    pub fn segment(&self) -> &Segment {
        &self.metadata.segment
    }

    /// The key slots to try, in this order. Slots that are there for who names them are left out.
    pub fn slots(&self) -> &[Slot] {
        &self.metadata.slots
    }

    /// Numbers of key slots that are not supported, and why.
    pub fn refused_slots(&self) -> &[(u8, Refusal)] {
        &self.metadata.refused
    }

    /// Tries a passphrase at slot `number`, with the bytes of its area, which are wiped. Gives
    /// nothing if it is not the slot's passphrase. One call computes for as long as the slot's
    /// parameters say, and takes that from `budget`, with what checking the key costs.
    ///
    /// # Errors
    /// [`Error::Refused`] if it costs more than is left; [`Error::OutOfMemory`];
    /// [`Error::NoSlot`]; [`Error::WrongLength`] if these are not
    /// [`AREA_BYTES`](crate::AREA_BYTES).
    pub fn open_slot(
        &self,
        number: u8,
        passphrase: &[u8],
        area: &mut [u8],
        budget: &mut Budget,
    ) -> Result<Option<VolumeKey>, Error> {
        let slot = self.slots().iter().find(|slot| slot.number == number).ok_or(Error::NoSlot(number))?;
        let key = slot.unseal(passphrase, area, budget)?;
        Ok(self.metadata.digest.fits(&key, budget)?.then_some(key))
    }

    /// The volume's key from its bytes, for who has it without a passphrase. The bytes are wiped.
    ///
    /// # Errors
    /// [`Error::WrongKey`]; [`Error::Refused`] if checking costs more than is left of `budget`.
    pub fn open_with_key(&self, bytes: &mut [u8; KEY_BYTES], budget: &mut Budget) -> Result<VolumeKey, Error> {
        let key = VolumeKey::take(bytes);
        if self.metadata.digest.fits(&key, budget)? { Ok(key) } else { Err(Error::WrongKey) }
    }

    /// What makes the other header the same as this one, if it is not: to be written, and flushed,
    /// before anything else is. `salt` is random.
    pub fn repair(&self, salt: &[u8; SALT_BYTES]) -> Option<Write> {
        let place = self.states.iter().position(|state| *state != CopyState::Current)?;
        let mut bytes = self.image.clone();
        seal(&mut bytes, place, salt);
        Some(Write { at: (place * bytes.len()) as u64, bytes })
    }
}

/// A new header's bytes for `place`, 0 or 1.
pub(crate) fn encode(place: usize, uuid: &str, salt: &[u8; SALT_BYTES], json: &[u8]) -> Vec<u8> {
    let mut bytes = alloc::vec![0; HEADER_BYTES_MIN];
    bytes[BINARY_BYTES..][..json.len()].copy_from_slice(json);
    if let Ok((binary, _)) = Binary::mut_from_prefix(&mut bytes) {
        binary.version = VERSION.into();
        binary.bytes = (HEADER_BYTES_MIN as u64).into();
        binary.sequence = 1.into();
        binary.checksum_name[..6].copy_from_slice(b"sha256");
        binary.uuid[..uuid.len()].copy_from_slice(uuid.as_bytes());
    }
    seal(&mut bytes, place, salt);
    bytes
}

/// Makes a header the one of `place`, with a checksum that fits.
fn seal(bytes: &mut [u8], place: usize, salt: &[u8; SALT_BYTES]) {
    let offset = (place * bytes.len()) as u64;
    if let Ok((binary, _)) = Binary::mut_from_prefix(bytes) {
        (binary.magic, binary.offset, binary.salt) = (MAGIC[place], offset.into(), *salt);
    }
    let sum = checksum(bytes).expect("what is written has a checksum that is known");
    if let Ok((binary, _)) = Binary::mut_from_prefix(bytes) {
        binary.checksum = sum;
    }
}

/// The checksum that a header's bytes should have.
fn checksum(bytes: &[u8]) -> Result<[u8; 64], Error> {
    let (binary, json) = Binary::ref_from_prefix(bytes).map_err(|_| Error::NotLuks)?;
    let hash = Hash::of_name("the header's checksum", &text_of(&binary.checksum_name))?;
    let without = Binary { checksum: [0; 64], ..binary.clone() };
    Ok(hash.sum(&[without.as_bytes(), json]))
}

/// The bytes of the header that begins at `at`, if it is whole and the one of `place`.
fn whole(head: &[u8], place: usize, at: usize) -> Result<&[u8], Error> {
    let bytes = head.get(at..).unwrap_or_default();
    let binary = binary(bytes).filter(|binary| binary.magic == MAGIC[place]).ok_or(Error::NotLuks)?;
    if binary.version.get() != VERSION {
        return Err(Refusal::Size("the version of LUKS", binary.version.get().into()).into());
    }
    let size = binary.bytes.get();
    if size > HEADER_BYTES_MAX as u64 && size <= HEADER_BYTES_ANY && size.is_power_of_two() {
        return Err(Refusal::Size("bytes of a header", size).into());
    }
    let is_possible = size.is_power_of_two() && size >= HEADER_BYTES_MIN as u64 && size <= HEADER_BYTES_MAX as u64;
    if !is_possible || binary.offset.get() != at as u64 || (place == 1 && size != at as u64) {
        return Err(Error::Damaged("the size or place of a header"));
    }
    let image = bytes.get(..size as usize).ok_or(Error::Damaged("the device ends in a header"))?;
    if checksum(image)? != binary.checksum {
        return Err(Error::Damaged("a header's checksum"));
    }
    Ok(image)
}

/// The second header, where the first does not say where it is.
fn find_second(head: &[u8]) -> Result<&[u8], Error> {
    let mut at = HEADER_BYTES_MIN;
    let mut found = Err(Error::NotLuks);
    while at <= HEADER_BYTES_MAX {
        match whole(head, 1, at) {
            Ok(image) => return Ok(image),
            Err(Error::NotLuks) => {}
            Err(error) => found = Err(error),
        }
        at *= 2;
    }
    found
}

/// The places of whole headers, newest first; of the same age, the first one first.
fn by_age(copies: &[Result<&[u8], Error>; 2]) -> [usize; 2] {
    match copies {
        [Ok(first), Ok(second)] if sequence(second) > sequence(first) => [1, 0],
        _ => [0, 1],
    }
}

/// What to tell when none is whole: that it is not supported, or what is damaged, or nothing.
fn worst(copies: [Result<&[u8], Error>; 2]) -> Error {
    let mut errors: Vec<Error> = copies.into_iter().filter_map(Result::err).collect();
    errors.sort_by_key(|error| match error {
        Error::Refused(_) => 0,
        Error::NotLuks => 2,
        _ => 1,
    });
    errors.into_iter().next().unwrap_or(Error::NotLuks)
}

fn binary(bytes: &[u8]) -> Option<&Binary> {
    Binary::ref_from_prefix(bytes).ok().map(|(binary, _)| binary)
}

fn sequence(image: &[u8]) -> u64 {
    binary(image).map_or(0, |binary| binary.sequence.get())
}

/// The JSON text of a header, to its first zero.
fn json(image: &[u8]) -> &[u8] {
    let area = image.get(BINARY_BYTES..).unwrap_or_default();
    let end = area.iter().position(|byte| *byte == 0).unwrap_or(area.len());
    &area[..end]
}

/// A text that ends at its first zero. What is not text becomes question marks.
fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes[..end].iter().map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }).collect()
}
