//! How extended attributes lie on the disk: a list of entries from the beginning of an area, and
//! their values from its end.

use alloc::boxed::Box;
use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Refusal};

/// What both kinds of areas begin with.
pub(super) const MAGIC: u32 = 0xEA02_0000;
/// Bytes of an entry in front of its name.
const HEAD_BYTES: usize = size_of::<Head>();
/// Zeros behind the last entry.
const END_BYTES: usize = 4;
/// Names and values are filled up to this.
const ALIGN: usize = 4;

/// The beginnings of names, and the numbers that stand for them. Access lists (2 and 3) have
/// another form on the disk than programs give, and are not known.
const PREFIXES: [(&[u8], u8); 3] = [(b"user.", 1), (b"trusted.", 4), (b"security.", 6)];

/// An entry as it lies on the disk, in front of its name.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    name_bytes: u8,
    prefix: u8,
    value_at: U16,
    value_inode: U32,
    value_bytes: U32,
    hash: U32,
}

/// A name: which prefix, and what is behind it. In the order that a block has them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    prefix: u8,
    bytes: u8,
    rest: Box<[u8]>,
}

impl Name {
    /// The name that a program gives.
    ///
    /// # Errors
    /// [`Error::NotSupported`] for other prefixes; [`Error::InvalidName`] if nothing is behind it,
    /// too much, or a zero.
    pub fn decode(whole: &[u8]) -> Result<Name, Error> {
        let prefix = PREFIXES.iter().find(|(prefix, _)| whole.starts_with(prefix)).ok_or(Error::NotSupported)?;
        let rest = &whole[prefix.0.len()..];
        let bytes = u8::try_from(rest.len()).ok().filter(|bytes| *bytes > 0 && !rest.contains(&0));
        let bytes = bytes.ok_or(Error::InvalidName)?;
        Ok(Name { prefix: prefix.1, bytes, rest: rest.into() })
    }

    /// What a program is told, if it is to know of it.
    pub fn whole(&self) -> Option<Box<[u8]>> {
        let (prefix, _) = PREFIXES.iter().find(|(_, number)| *number == self.prefix)?;
        Some([prefix, &self.rest[..]].concat().into())
    }
}

/// An attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    pub name: Name,
    pub value: Box<[u8]>,
}

impl Attribute {
    /// Bytes that its entry and its value take.
    fn taken(&self) -> usize {
        HEAD_BYTES + self.rest().next_multiple_of(ALIGN) + self.value.len().next_multiple_of(ALIGN)
    }

    fn rest(&self) -> usize {
        self.name.rest.len()
    }

    /// The hash by which Linux finds blocks that are the same.
    fn hash(&self) -> u32 {
        let hash = self.name.rest.iter().fold(0u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte));
        self.value.chunks(ALIGN).fold(hash, |hash, chunk| {
            let mut word = [0; ALIGN];
            word[..chunk.len()].copy_from_slice(chunk);
            hash.rotate_left(16) ^ u32::from_le_bytes(word)
        })
    }
}

/// Whether the attributes fit into an area whose entries begin at `first`.
pub(super) fn fit(attributes: &[Attribute], area_bytes: usize, first: usize) -> bool {
    let taken: usize = attributes.iter().map(Attribute::taken).sum();
    first + taken + END_BYTES <= area_bytes
}

/// The attributes of an area whose entries begin at `first`. Where values are is counted from byte
/// `base`.
///
/// # Errors
/// [`Error::Refused`] if a value is in an inode of its own; else what cannot be.
pub(super) fn decode(area: &[u8], first: usize, base: usize) -> Result<Vec<Attribute>, Wrong> {
    let mut attributes = Vec::new();
    let mut values = Vec::new();
    let mut rest = area.get(first..).ok_or(Wrong::Corrupt)?;
    // As Linux reads it: four zeros are the end.
    while rest.get(..END_BYTES).ok_or(Wrong::Corrupt)? != [0; END_BYTES] {
        let (head, behind) = Head::ref_from_prefix(rest).map_err(|_| Wrong::Corrupt)?;
        if head.value_inode.get() != 0 {
            return Err(Wrong::Refused(Refusal::Has("ea_inode")));
        }
        let name = behind.get(..usize::from(head.name_bytes)).ok_or(Wrong::Corrupt)?;
        let value = value(&area[base..], head).ok_or(Wrong::Corrupt)?;
        let name = Name { prefix: head.prefix, bytes: head.name_bytes, rest: name.into() };
        attributes.push(Attribute { name, value: value.into() });
        values.extend((!value.is_empty()).then(|| base + usize::from(head.value_at.get())));
        rest = behind.get(usize::from(head.name_bytes).next_multiple_of(ALIGN)..).ok_or(Wrong::Corrupt)?;
    }
    let end = area.len() - rest.len() + END_BYTES;
    let is_behind = values.iter().all(|at| *at >= end);
    // What lies over each other, or twice, would not fit when it is written again.
    if is_behind && fit(&attributes, area.len(), first) { Ok(attributes) } else { Err(Wrong::Corrupt) }
}

fn value<'a>(values: &'a [u8], head: &Head) -> Option<&'a [u8]> {
    let bytes = usize::try_from(head.value_bytes.get()).ok()?;
    if bytes == 0 {
        return Some(&[]);
    }
    let at = usize::from(head.value_at.get());
    values.get(at..at.checked_add(bytes)?)
}

/// Why an area cannot be read.
pub(super) enum Wrong {
    Refused(Refusal),
    Corrupt,
}

/// Writes the attributes, which fit, into an area; all else of it behind `first` becomes zeros.
/// Returns the hash of all, for a block; entries have their hashes if `has_hashes`.
pub(super) fn encode(attributes: &[Attribute], area: &mut [u8], first: usize, base: usize, has_hashes: bool) -> u32 {
    assert!(fit(attributes, area.len(), first), "who writes attributes has looked at their size");
    area[first..].fill(0);
    let (mut at, mut end, mut all) = (first, area.len(), 0u32);
    for attribute in attributes {
        let (name, value) = (&attribute.name, &attribute.value);
        let hash = attribute.hash();
        all = all.rotate_left(16) ^ hash;
        end -= value.len().next_multiple_of(ALIGN);
        area[end..][..value.len()].copy_from_slice(value);
        let head = Head {
            name_bytes: name.bytes,
            prefix: name.prefix,
            value_at: U16::new(if value.is_empty() { 0 } else { (end - base) as u16 }),
            value_inode: U32::ZERO,
            value_bytes: U32::new(value.len() as u32),
            hash: U32::new(if has_hashes { hash } else { 0 }),
        };
        area[at..][..HEAD_BYTES].copy_from_slice(head.as_bytes());
        area[at + HEAD_BYTES..][..name.rest.len()].copy_from_slice(&name.rest);
        at += HEAD_BYTES + name.rest.len().next_multiple_of(ALIGN);
    }
    // A block with an entry without a hash has none itself.
    if attributes.iter().any(|attribute| attribute.hash() == 0) { 0 } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: usize = 4;

    fn attribute(name: &[u8], value: &[u8]) -> Attribute {
        Attribute { name: Name::decode(name).unwrap(), value: value.into() }
    }

    fn area() -> [u8; 96] {
        let mut area = [0xFF; 96];
        let attributes = [attribute(b"user.one", b"value"), attribute(b"trusted.b", b"")];
        encode(&attributes, &mut area, FIRST, FIRST, false);
        area
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let Ok(found) = decode(&area(), FIRST, FIRST) else { panic!("it is right") };
        assert_eq!(found, [attribute(b"user.one", b"value"), attribute(b"trusted.b", b"")]);
        assert_eq!(&area()[88..], b"value\0\0\0");
        assert_eq!(found[0].name.whole().as_deref(), Some(&b"user.one"[..]));
    }

    /// As `ext4_xattr_hash_entry` and `ext4_xattr_rehash` of Linux have it.
    #[test]
    fn a_block_and_its_entries_have_the_hashes_by_which_linux_finds_it() {
        let hash = |attributes: &[Attribute]| {
            let mut area = [0; 128];
            let all = encode(attributes, &mut area, 0, 0, true);
            (u32::from_le_bytes(area[12..16].try_into().unwrap()), all)
        };
        assert_eq!(hash(&[attribute(b"user.a", b"")]), (0x61, 0x61));
        assert_eq!(hash(&[attribute(b"user.ab", b"")]), (0x0C42, 0x0C42));
        assert_eq!(hash(&[attribute(b"user.b", b"\x01")]), (0x0062_0001, 0x0062_0001));
        // 0x61 and 0x62_0001, the first turned by 16 bits.
        let two = [attribute(b"user.a", b""), attribute(b"user.b", b"\x01")];
        assert_eq!(hash(&two), (0x61, 0x0003_0001));
        let none = attribute(b"user.a", b"\0\0\x61\0");
        assert_eq!(hash(core::slice::from_ref(&none)), (0, 0));
        assert_eq!(hash(&[two[1].clone(), none]), (0x0062_0001, 0), "one without a hash: nor has the block one");
    }

    #[test]
    fn a_value_over_the_zeros_behind_the_last_entry_is_corrupt() {
        let mut area = [0; 64];
        encode(&[attribute(b"user.abcd", b"1234")], &mut area, FIRST, FIRST, false);
        // The entry takes 20 bytes, the zeros four.
        let mut is_read = |at: u8| {
            area[FIRST + 2] = at;
            decode(&area, FIRST, FIRST).is_ok()
        };
        assert_eq!([16, 20, 23, 24, 56, 57].map(&mut is_read), [false, false, false, true, true, false]);
    }

    #[test]
    fn what_reaches_out_of_the_area_or_over_entries_is_corrupt() {
        let is_corrupt = |at: usize, value: u8| {
            let mut area = area();
            area[at] = value;
            matches!(decode(&area, FIRST, FIRST), Err(Wrong::Corrupt))
        };
        // Of the first entry: the length of its name, where its value is, and the value's length.
        let cases = [(FIRST, 200), (FIRST + 2, 93), (FIRST + 2, 20), (FIRST + 3, 1), (FIRST + 8, 9), (FIRST + 11, 1)];
        for (at, value) in cases {
            assert!(is_corrupt(at, value), "{value} at {at}");
        }
        assert!(!is_corrupt(FIRST + 2, 80));
        // No end behind the last entry.
        assert!(matches!(decode(&area()[..FIRST + 20], FIRST, FIRST), Err(Wrong::Corrupt)));
        assert!(matches!(decode(&[], FIRST, FIRST), Err(Wrong::Corrupt)));
        let mut other = area();
        other[FIRST + 4] = 12;
        assert!(matches!(decode(&other, FIRST, FIRST), Err(Wrong::Refused(Refusal::Has("ea_inode")))));
    }
}
