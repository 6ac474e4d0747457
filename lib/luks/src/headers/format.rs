//! A new volume: two headers, one key slot and one segment, as `cryptsetup luksFormat` makes them.
//!
//! The rest of the device is left as it is; what was never written reads as noise.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use base64ct::{Base64, Encoding};
use core::fmt::Write as _;

use super::derive::{Budget, Derivation};
use super::error::{Error, Refusal};
use super::hash::Hash;
use super::header::{self, BINARY_BYTES, HEADER_BYTES_MIN, SALT_BYTES, Write};
use super::metadata::{CIPHER, Digest};
use super::slot::{AREA_BYTES, Slot};
use super::splitter::STRIPES;
use super::text;
use crate::key::VolumeKey;
use crate::sector::SectorBytes;
use crate::{KEY_BYTES, Segment};

/// Where the data begins: 16 MiB, cryptsetup's place.
pub const DATA_OFFSET: u64 = 16 << 20;
/// The smallest device: one that has room for a file system.
pub const DEVICE_BYTES_MIN: u64 = DATA_OFFSET + (1 << 20);
/// Where the areas of slots begin.
const AREAS_OFFSET: u64 = 2 * HEADER_BYTES_MIN as u64;
/// Bytes of an area with its rest: whole blocks of 4 KiB.
const AREA_ROUNDED: u64 = (AREA_BYTES as u64).next_multiple_of(4096);
/// Bytes of the salts of derivations, as cryptsetup makes them.
const DERIVATION_SALT_BYTES: usize = 32;

/// How dear a guess of the passphrase is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strength {
    /// KiB that argon2id fills.
    pub memory_kib: u32,
    /// Times that it fills them.
    pub passes: u32,
    /// Iterations of the key's digest. The key is random, so nobody guesses it: these are few.
    pub digest_iterations: u32,
}

impl Strength {
    /// For volumes that a guest opens: 32 MiB and four passes, in one lane as the guest has one
    /// processor for it. OWASP's least is 19 MiB and two; cryptsetup's own measure on a host gives
    /// up to 1 GiB, which a guest has not. The digest has cryptsetup's least number of iterations.
    pub const GUEST: Strength = Strength { memory_kib: 32 << 10, passes: 4, digest_iterations: 1000 };
}

/// What volume is made.
#[derive(Clone, Copy, Debug)]
pub struct Format<'a> {
    /// Bytes of the device, at least [`DEVICE_BYTES_MIN`].
    pub device_bytes: u64,
    /// Bytes of a sector. 4,096 is cheaper, and is right where the device never tears as many.
    pub sector: SectorBytes,
    /// The passphrase of slot 0: any bytes.
    pub passphrase: &'a [u8],
    /// How dear a guess of it is.
    pub strength: Strength,
}

/// A new volume.
#[derive(Debug)]
pub struct Formatted {
    /// What has to be written, in this order: the key slot's area, then the headers.
    pub writes: Vec<Write>,
    /// The volume's key.
    pub key: VolumeKey,
    /// The volume's identity.
    pub uuid: String,
    /// Where its data is.
    pub segment: Segment,
}

/// Makes a volume. `random` fills bytes with a cryptographic generator's: key, salts, identity and
/// stripes are made of them, 256,208 in all. Nothing else differs between two volumes; there is no
/// time in a header.
///
/// # Errors
/// [`Error::Refused`] for a device that is too small; [`Error::OutOfMemory`];
/// [`Error::Damaged`] for a strength that argon2id does not have.
pub fn format(format: &Format, random: &mut dyn FnMut(&mut [u8])) -> Result<Formatted, Error> {
    if format.device_bytes < DEVICE_BYTES_MIN {
        return Err(Refusal::Device { bytes: format.device_bytes, needed: DEVICE_BYTES_MIN }.into());
    }
    let mut bytes = [0; KEY_BYTES];
    random(&mut bytes);
    let key = VolumeKey::take(&mut bytes);
    let slot = slot(format.strength, random);
    let mut area = alloc::vec![0; AREA_BYTES];
    random(&mut area);
    slot.seal(format.passphrase, &key, &mut area, &mut Budget::HOST.clone())?;
    let digest = Digest::of(&key, Hash::Sha256, format.strength.digest_iterations, salt(random));
    let json = serde_json::to_vec(&text(format, &slot, &digest)).map_err(|_| Error::Damaged("the new header"))?;
    assert!(json.len() < HEADER_BYTES_MIN - BINARY_BYTES, "one slot fits the smallest header");
    let uuid = uuid(random);
    let mut writes = alloc::vec![Write { at: slot.area, bytes: area }];
    for place in [0, 1] {
        let mut salt = [0; SALT_BYTES];
        random(&mut salt);
        let at = (place * HEADER_BYTES_MIN) as u64;
        writes.push(Write { at, bytes: header::encode(place, &uuid, &salt, &json) });
    }
    let sector = format.sector.get() as u64;
    let bytes = (format.device_bytes - DATA_OFFSET) / sector * sector;
    let segment = Segment { offset: DATA_OFFSET, bytes, sector: format.sector, tweak: 0, allows_discards: false };
    Ok(Formatted { writes, key, uuid, segment })
}

fn salt(random: &mut dyn FnMut(&mut [u8])) -> Vec<u8> {
    let mut salt = alloc::vec![0; DERIVATION_SALT_BYTES];
    random(&mut salt);
    salt
}

fn slot(strength: Strength, random: &mut dyn FnMut(&mut [u8])) -> Slot {
    let Strength { memory_kib, passes, .. } = strength;
    let derivation = Derivation::Argon2id { memory_kib, passes, lanes: 1, salt: salt(random) };
    Slot { number: 0, area: AREAS_OFFSET, derivation, splitter: Hash::Sha256, is_preferred: false }
}

/// A random identity (RFC 9562, version 4).
fn uuid(random: &mut dyn FnMut(&mut [u8])) -> String {
    let mut bytes = [0; 16];
    random(&mut bytes);
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        let dash = if [4, 6, 8, 10].contains(&at) { "-" } else { "" };
        let _ = write!(text, "{dash}{byte:02x}");
    }
    text
}

fn text(format: &Format, slot: &Slot, digest: &Digest) -> text::Text {
    let one = |name: &str| String::from(name);
    text::Text {
        keyslots: BTreeMap::from([(one("0"), slot_text(slot))]),
        tokens: BTreeMap::new(),
        segments: BTreeMap::from([(one("0"), segment_text(format.sector))]),
        digests: BTreeMap::from([(one("0"), digest.text())]),
        config: text::Config {
            json_size: decimal((HEADER_BYTES_MIN - BINARY_BYTES) as u64),
            keyslots_size: decimal(DATA_OFFSET - AREAS_OFFSET),
            flags: Vec::new(),
            requirements: None,
        },
    }
}

fn segment_text(sector: SectorBytes) -> text::Segment {
    text::Segment {
        kind: "crypt".into(),
        offset: decimal(DATA_OFFSET),
        size: "dynamic".into(),
        iv_tweak: Some(decimal(0)),
        encryption: Some(CIPHER.into()),
        sector_size: Some(sector.get() as u64),
        integrity: None,
        flags: None,
    }
}

fn slot_text(slot: &Slot) -> text::KeySlot {
    let kdf = match &slot.derivation {
        Derivation::Pbkdf2 { hash, iterations, salt } => text::Kdf {
            kind: "pbkdf2".into(),
            hash: Some(hash.name().into()),
            iterations: Some(*iterations),
            time: None,
            memory: None,
            cpus: None,
            salt: Base64::encode_string(salt),
        },
        Derivation::Argon2id { memory_kib, passes, lanes, salt } => text::Kdf {
            kind: "argon2id".into(),
            hash: None,
            iterations: None,
            time: Some(*passes),
            memory: Some(*memory_kib),
            cpus: Some(*lanes),
            salt: Base64::encode_string(salt),
        },
    };
    text::KeySlot {
        kind: "luks2".into(),
        key_size: KEY_BYTES as u64,
        priority: None,
        af: Some(text::Splitter { kind: "luks1".into(), stripes: STRIPES as u64, hash: slot.splitter.name().into() }),
        area: Some(text::Area {
            kind: "raw".into(),
            offset: decimal(slot.area),
            size: decimal(AREA_ROUNDED),
            encryption: Some(CIPHER.into()),
            key_size: Some(KEY_BYTES as u64),
        }),
        kdf: Some(kdf),
    }
}

fn decimal(number: u64) -> String {
    alloc::format!("{number}")
}
