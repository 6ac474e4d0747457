//! What the JSON of a header says, checked: the segment, the digest of its key, and the slots that
//! have this key.
//!
//! Invariants of [`Metadata`]: the areas of slots lie between the headers and the segment; the
//! segment has whole sectors, all of them on the device. So nothing that is written into the
//! segment changes a header or a slot.
//!
//! A slot that is not supported does not stand in the way of others: it is kept with its refusal.

use alloc::string::String;
use alloc::vec::Vec;
use base64ct::{Base64, Encoding};
use core::ops::Range;

use super::derive::{Budget, Derivation};
use super::error::{Error, Refusal};
use super::hash::Hash;
use super::slot::{AREA_BYTES, Slot};
use super::splitter::STRIPES;
use super::text::{self, Text};
use crate::key::{KEY_BYTES, VolumeKey};
use crate::sector::{SectorBytes, Segment};

/// The one cipher, of segments and of areas.
pub(crate) const CIPHER: &str = "aes-xts-plain64";
/// Slots, segments and digests that a header may have of each.
const PARTS_MAX: usize = 32;
/// Bytes that a salt has at least (argon2) and at most, which is twice what cryptsetup makes.
const SALT_BYTES: core::ops::RangeInclusive<usize> = 8..=64;

/// What tells the volume's key from others.
pub(crate) struct Digest {
    hash: Hash,
    iterations: u32,
    salt: Vec<u8>,
    value: Vec<u8>,
}

impl Digest {
    /// Whether this is the key.
    pub fn fits(&self, key: &VolumeKey, budget: &mut Budget) -> Result<bool, Refusal> {
        budget.take_iterations(self.hash, self.iterations, self.value.len())?;
        let mut sum = [0; Hash::BYTES_MAX];
        let sum = &mut sum[..self.value.len()];
        self.hash.pbkdf2(key.bytes(), &self.salt, self.iterations, sum);
        // Comparing may take its time: the value stands in the header for everybody to read.
        Ok(sum == self.value)
    }

    /// The digest of a new key.
    pub fn of(key: &VolumeKey, hash: Hash, iterations: u32, salt: Vec<u8>) -> Digest {
        let mut value = alloc::vec![0; hash.bytes()];
        hash.pbkdf2(key.bytes(), &salt, iterations, &mut value);
        Digest { hash, iterations, salt, value }
    }

    /// As it stands in a header, for slot 0 and segment 0.
    pub fn text(&self) -> text::Digest {
        text::Digest {
            kind: "pbkdf2".into(),
            keyslots: alloc::vec!["0".into()],
            segments: alloc::vec!["0".into()],
            hash: Some(self.hash.name().into()),
            iterations: Some(self.iterations),
            salt: Some(Base64::encode_string(&self.salt)),
            digest: Some(Base64::encode_string(&self.value)),
        }
    }
}

/// What a header says.
pub(crate) struct Metadata {
    pub segment: Segment,
    pub digest: Digest,
    /// By their order: those that are preferred, then by number.
    pub slots: Vec<Slot>,
    /// Slots of the segment that are not supported, by their number.
    pub refused: Vec<(u8, Refusal)>,
}

impl Metadata {
    /// Decodes the JSON of a header of `header_bytes` on a device of `device_bytes`.
    pub fn decode(json: &[u8], header_bytes: u64, device_bytes: u64) -> Result<Metadata, Error> {
        let text: Text = serde_json::from_slice(json).map_err(|_| Error::Damaged("the JSON of the header"))?;
        if let Some(name) = text.config.requirements.iter().flat_map(|all| &all.mandatory).next() {
            return Err(Refusal::name("a requirement", name).into());
        }
        let slots_end = slots_end(&text.config, header_bytes)?;
        let name = only_segment(&text)?;
        let mut segment = segment(&text.segments[&name], slots_end, device_bytes)?;
        segment.allows_discards = text.config.flags.iter().any(|flag| flag == "allow-discards");
        let raw = digest_of(&text, &name)?;
        let areas = 2 * header_bytes..slots_end;
        let (mut slots, mut refused) = (Vec::new(), Vec::new());
        for (name, raw) in text.keyslots.iter().filter(|(name, _)| raw.keyslots.contains(name)) {
            let number = number(name).filter(|number| *number < PARTS_MAX as u64);
            let number = number.ok_or(Error::Damaged("the number of a key slot"))? as u8;
            match slot(number, raw, &areas) {
                // A slot of priority 0 is for who names it.
                Ok(slot) if raw.priority != Some(0) => slots.push(slot),
                Ok(_) => {}
                Err(Error::Refused(refusal)) => refused.push((number, refusal)),
                Err(error) => return Err(error),
            }
        }
        slots.sort_by_key(|slot| (!slot.is_preferred, slot.number));
        Ok(Metadata { segment, digest: digest(raw)?, slots, refused })
    }
}

/// A number in digits, as JSON of LUKS2 has those of 64 bits.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Bytes in base 64.
fn bytes(what: &'static str, text: Option<&String>) -> Result<Vec<u8>, Error> {
    text.and_then(|text| Base64::decode_vec(text).ok()).ok_or(Error::Damaged(what))
}

fn salt(text: Option<&String>) -> Result<Vec<u8>, Error> {
    let salt = bytes("a salt", text)?;
    if SALT_BYTES.contains(&salt.len()) {
        Ok(salt)
    } else {
        Err(Refusal::Size("bytes of a salt", salt.len() as u64).into())
    }
}

/// Where the areas of slots end.
fn slots_end(config: &text::Config, header_bytes: u64) -> Result<u64, Error> {
    let json = number(&config.json_size).filter(|bytes| Some(*bytes) == header_bytes.checked_sub(4096));
    let end = number(&config.keyslots_size).and_then(|bytes| bytes.checked_add(2 * header_bytes));
    json.and(end).ok_or(Error::Damaged("sizes in the header's configuration"))
}

/// The name of the segment, which has to be the only one.
fn only_segment(text: &Text) -> Result<String, Error> {
    let mut names = text.segments.keys();
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name.clone()),
        (None, _) => Err(Error::Damaged("there is no segment")),
        _ => Err(Refusal::Has("several segments").into()),
    }
}

fn segment(raw: &text::Segment, slots_end: u64, device_bytes: u64) -> Result<Segment, Error> {
    if raw.kind != "crypt" {
        return Err(Refusal::name("the segment", &raw.kind).into());
    }
    for (what, is_there) in [("integrity", raw.integrity.is_some()), ("a segment with flags", raw.flags.is_some())] {
        if is_there {
            return Err(Refusal::Has(what).into());
        }
    }
    let cipher = raw.encryption.as_deref().ok_or(Error::Damaged("the segment's cipher"))?;
    if cipher != CIPHER {
        return Err(Refusal::name("the segment's cipher", cipher).into());
    }
    let sector = match raw.sector_size.ok_or(Error::Damaged("bytes of a sector"))? {
        512 => SectorBytes::B512,
        4096 => SectorBytes::B4096,
        other => return Err(Refusal::Size("bytes of a sector", other).into()),
    };
    let tweak = raw.iv_tweak.as_deref().and_then(number).ok_or(Error::Damaged("the segment's tweak"))?;
    let Range { start: offset, end } = range(raw, sector, device_bytes)?;
    if offset < slots_end {
        return Err(Refusal::Has("its header apart from the data, or over them").into());
    }
    Ok(Segment { offset, bytes: end - offset, sector, tweak, allows_discards: false })
}

/// Whole sectors, all of them on the device.
fn range(raw: &text::Segment, sector: SectorBytes, device_bytes: u64) -> Result<Range<u64>, Error> {
    let sector = sector.get() as u64;
    let damaged = Error::Damaged("the segment's offset or size");
    let offset = number(&raw.offset).ok_or(damaged.clone())?;
    if !offset.is_multiple_of(sector) {
        return Err(Refusal::Size("the segment's offset", offset).into());
    }
    let too_large = |needed| Error::Refused(Refusal::Device { bytes: device_bytes, needed });
    if raw.size == "dynamic" {
        let bytes = device_bytes.checked_sub(offset).filter(|bytes| *bytes >= sector);
        let bytes = bytes.ok_or(too_large(offset.saturating_add(sector)))?;
        return Ok(offset..offset + bytes / sector * sector);
    }
    let bytes = number(&raw.size).filter(|bytes| *bytes > 0 && bytes.is_multiple_of(sector)).ok_or(damaged.clone())?;
    let end = offset.checked_add(bytes).ok_or(damaged)?;
    if end > device_bytes { Err(too_large(end)) } else { Ok(offset..end) }
}

/// The digest of the segment's key.
fn digest_of<'a>(text: &'a Text, segment: &String) -> Result<&'a text::Digest, Error> {
    let mut digests = text.digests.values().filter(|digest| digest.segments.contains(segment));
    match (digests.next(), digests.next()) {
        (Some(digest), None) => Ok(digest),
        _ => Err(Error::Damaged("there is not one digest of the segment's key")),
    }
}

fn digest(raw: &text::Digest) -> Result<Digest, Error> {
    if raw.kind != "pbkdf2" {
        return Err(Refusal::name("a digest", &raw.kind).into());
    }
    let damaged = Error::Damaged("the digest");
    let hash = Hash::of_name("the digest's hash", raw.hash.as_deref().ok_or(damaged.clone())?)?;
    let iterations = raw.iterations.filter(|count| *count > 0).ok_or(damaged.clone())?;
    let value = bytes("the digest", raw.digest.as_ref())?;
    if value.len() != hash.bytes() {
        return Err(damaged);
    }
    Ok(Digest { hash, iterations, salt: salt(raw.salt.as_ref())?, value })
}

fn slot(number: u8, raw: &text::KeySlot, areas: &Range<u64>) -> Result<Slot, Error> {
    if raw.kind != "luks2" {
        return Err(Refusal::name("a key slot", &raw.kind).into());
    }
    let incomplete = Error::Damaged("a key slot lacks a part");
    let (Some(splitter), Some(area), Some(kdf)) = (&raw.af, &raw.area, &raw.kdf) else { return Err(incomplete) };
    let names = [("a splitter", &splitter.kind, "luks1"), ("an area", &area.kind, "raw")];
    for (what, name, ours) in names {
        if name != ours {
            return Err(Refusal::name(what, name).into());
        }
    }
    let cipher = area.encryption.as_deref().ok_or(incomplete.clone())?;
    if cipher != CIPHER {
        return Err(Refusal::name("an area's cipher", cipher).into());
    }
    let sizes = [
        ("bytes of a key", raw.key_size, KEY_BYTES),
        ("bytes of an area's key", area.key_size.ok_or(incomplete)?, KEY_BYTES),
        ("stripes of a splitter", splitter.stripes, STRIPES),
    ];
    for (what, value, ours) in sizes {
        if value != ours as u64 {
            return Err(Refusal::Size(what, value).into());
        }
    }
    Ok(Slot {
        number,
        area: place(area, areas)?,
        derivation: derivation(kdf)?,
        splitter: Hash::of_name("a splitter's hash", &splitter.hash)?,
        is_preferred: raw.priority == Some(2),
    })
}

/// Where an area begins.
fn place(area: &text::Area, areas: &Range<u64>) -> Result<u64, Error> {
    let place = number(&area.offset).zip(number(&area.size)).filter(|(offset, size)| {
        let end = offset.checked_add(*size);
        *offset >= areas.start && end.is_some_and(|end| end <= areas.end) && *size >= AREA_BYTES as u64
    });
    place.map(|(offset, _)| offset).ok_or(Error::Damaged("the place of a key slot's area"))
}

fn derivation(raw: &text::Kdf) -> Result<Derivation, Error> {
    let positive =
        |count: Option<u32>| count.filter(|count| *count > 0).ok_or(Error::Damaged("the cost of a key slot"));
    match raw.kind.as_str() {
        "pbkdf2" => Ok(Derivation::Pbkdf2 {
            hash: Hash::of_name("a key slot's hash", raw.hash.as_deref().unwrap_or_default())?,
            iterations: positive(raw.iterations)?,
            salt: salt(Some(&raw.salt))?,
        }),
        "argon2id" => Ok(Derivation::Argon2id {
            memory_kib: positive(raw.memory)?,
            passes: positive(raw.time)?,
            lanes: positive(raw.cpus)?,
            salt: salt(Some(&raw.salt))?,
        }),
        other => Err(Refusal::name("a key slot's derivation", other).into()),
    }
}
