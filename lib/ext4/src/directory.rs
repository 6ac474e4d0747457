//! Directories: blocks of entries, with or without an index.

use alloc::boxed::Box;
use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::Checksum;
use crate::error::{Error, Stop};
use crate::inode::{Inode, Kind};
use crate::known::{Found, Part};
use crate::super_block::Geometry;
use crate::{BLOCK_BYTES, Block, index};

/// Bytes of an entry in front of its name.
const HEAD_BYTES: usize = 8;
/// Bytes of the entry at a block's end that has its checksum.
const TAIL_BYTES: usize = 12;
/// What that entry says it names.
const TAIL_KIND: u8 = 0xDE;
/// What an entry says that names a directory.
const DIRECTORY_KIND: u8 = 2;
/// Most bytes of a name.
pub const NAME_MAX: usize = 255;

/// The head of an entry as it lies on the disk.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    inode: U32,
    length: U16,
    name_bytes: u8,
    kind: u8,
}

const _: () = assert!(size_of::<Head>() == HEAD_BYTES);

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode that it names.
    pub inode: u32,
    /// What the directory says that this is; `None` if it does not say.
    pub kind: Option<Kind>,
    /// Where the next one begins: bytes from the directory's beginning.
    pub next: u64,
    /// Its name, up to 255 bytes.
    pub name: Box<[u8]>,
}

/// A block of a directory with these names, all of directories; with none it is free. The last name
/// has the room that is left.
pub(crate) fn new_block(seed: Checksum, names: &[(&[u8], u32)]) -> Box<Block> {
    let entry = |&(name, inode): &(&[u8], u32)| Named { inode, kind: DIRECTORY_KIND, name: name.into() };
    let entries: Vec<Named> = names.iter().map(entry).collect();
    let mut block = Box::new([0; BLOCK_BYTES]);
    fill(seed, &mut block, &entries);
    block
}

/// What a block of a directory has in it.
pub(crate) enum Content<'a> {
    /// Entries in these bytes.
    Entries(&'a [u8]),
    /// A node of the index below its root.
    Node,
}

/// Whether `name` can be one.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Error> {
    let is_right = (1..=NAME_MAX).contains(&name.len()) && !name.contains(&0) && !name.contains(&b'/');
    if is_right { Ok(()) } else { Err(Error::InvalidName) }
}

/// What block `logical` of a directory has in it, checked by its checksum.
pub(crate) fn content<'a>(directory: &Inode, logical: u32, found: Found<'a>) -> Result<Content<'a>, Stop> {
    let whole = Part::whole(directory.seed().0);
    if directory.has_index && logical == 0 {
        let block = found.once(whole, |block| index::check_sum(directory, block, index::ROOT_AT))?;
        // The entries "." and ".."; the second reaches over the root of the index.
        return Ok(Content::Entries(&block[..]));
    }
    if directory.has_index && index::is_node(&found) {
        found.once(whole, |block| index::check_sum(directory, block, index::NODE_AT))?;
        return Ok(Content::Node);
    }
    let block = found.once(whole, |block| check_entries_sum(directory, block))?;
    Ok(Content::Entries(&block[..ENTRIES_BYTES]))
}

/// Compares the checksum of a block that has entries.
fn check_entries_sum(directory: &Inode, block: &Block) -> Result<(), Stop> {
    let (entries, tail) = block.split_at(ENTRIES_BYTES);
    let (head, sum) = Head::ref_from_prefix(tail).map_err(|_| corrupt(directory, "a directory's block"))?;
    let is_tail = head.inode.get() == 0
        && usize::from(head.length.get()) == TAIL_BYTES
        && head.name_bytes == 0
        && head.kind == TAIL_KIND;
    if !is_tail || sum != directory.seed().with(entries).0.to_le_bytes() {
        return Err(corrupt(directory, "the checksum of a directory's block"));
    }
    Ok(())
}

pub(crate) fn corrupt(directory: &Inode, what: &'static str) -> Stop {
    Error::corrupt(what, u64::from(directory.number))
}

/// An entry inside a block: where it ends, its inode (0 if it is free) and its name.
struct Slot<'a> {
    end: usize,
    inode: u32,
    kind: u8,
    name: &'a [u8],
}

/// The entry that begins at `at`.
fn slot<'a>(geometry: &Geometry, directory: &Inode, entries: &'a [u8], at: usize) -> Result<Slot<'a>, Stop> {
    let wrong = || corrupt(directory, "an entry of a directory");
    let (head, rest) = Head::ref_from_prefix(&entries[at..]).map_err(|_| wrong())?;
    let (length, name_bytes) = (usize::from(head.length.get()), usize::from(head.name_bytes));
    let inode = head.inode.get();
    let end = at + length;
    let is_right = length.is_multiple_of(4)
        && length >= HEAD_BYTES + name_bytes
        && end <= entries.len()
        && inode <= geometry.inodes
        && (inode == 0 || name_bytes > 0);
    let name = rest.get(..name_bytes).filter(|_| is_right).ok_or_else(wrong)?;
    if inode != 0 && check_name(name).is_err() {
        return Err(corrupt(directory, "a name in a directory"));
    }
    Ok(Slot { end, inode, kind: head.kind, name })
}

/// What the byte of an entry says that it names.
fn kind(byte: u8) -> Option<Kind> {
    let kinds =
        [Kind::File, Kind::Directory, Kind::CharacterDevice, Kind::BlockDevice, Kind::Pipe, Kind::Socket, Kind::Link];
    kinds.get(usize::from(byte.checked_sub(1)?)).copied()
}

/// The inode that `name` names in these entries.
pub(crate) fn search(geometry: &Geometry, directory: &Inode, entries: &[u8], name: &[u8]) -> Result<Option<u32>, Stop> {
    let mut at = 0;
    while at < entries.len() {
        let slot = slot(geometry, directory, entries, at)?;
        if slot.inode != 0 && slot.name == name {
            return Ok(Some(slot.inode));
        }
        at = slot.end;
    }
    Ok(None)
}

/// The entries of block `logical` that begin at byte `from` of it or later.
pub(crate) fn list(
    geometry: &Geometry,
    directory: &Inode,
    logical: u32,
    entries: &[u8],
    from: usize,
) -> Result<Vec<Entry>, Stop> {
    let base = u64::from(logical) * BLOCK_BYTES as u64;
    let mut found = Vec::new();
    let mut at = 0;
    while at < entries.len() {
        let slot = slot(geometry, directory, entries, at)?;
        if slot.inode != 0 && at >= from {
            // Behind a block's last entry is its checksum; the next block begins there.
            let end = if slot.end == entries.len() { BLOCK_BYTES } else { slot.end };
            let kind = kind(slot.kind);
            found.push(Entry { inode: slot.inode, kind, next: base + end as u64, name: slot.name.into() });
        }
        at = slot.end;
    }
    Ok(found)
}

/// An entry that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub inode: u32,
    /// What it names, by [`Kind::of_entry`](crate::Kind).
    pub kind: u8,
    pub name: Box<[u8]>,
}

impl Named {
    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        entry_bytes(self.name.len())
    }
}

fn entry_bytes(name: usize) -> usize {
    (HEAD_BYTES + name).next_multiple_of(4)
}

/// Bytes for entries in a block with a checksum.
pub(crate) const ENTRIES_BYTES: usize = BLOCK_BYTES - TAIL_BYTES;

/// Writes an entry of `length` bytes at `at`.
pub(crate) fn put(entries: &mut [u8], at: usize, length: usize, entry: &Named) {
    let head = Head {
        inode: U32::new(entry.inode),
        length: U16::new(length as u16),
        name_bytes: entry.name.len() as u8,
        kind: entry.kind,
    };
    entries[at..at + HEAD_BYTES].copy_from_slice(head.as_bytes());
    entries[at + HEAD_BYTES..at + HEAD_BYTES + entry.name.len()].copy_from_slice(&entry.name);
}

fn put_length(entries: &mut [u8], at: usize, length: usize) {
    entries[at + 4..at + 6].copy_from_slice(&(length as u16).to_le_bytes());
}

/// All entries of a block.
pub(crate) fn all(geometry: &Geometry, directory: &Inode, entries: &[u8]) -> Result<Vec<Named>, Stop> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < entries.len() {
        let slot = slot(geometry, directory, entries, at)?;
        if slot.inode != 0 {
            found.push(Named { inode: slot.inode, kind: entries[at + 7], name: slot.name.into() });
        }
        at = slot.end;
    }
    Ok(found)
}

/// Adds an entry, if there is room. Returns whether there was.
pub(crate) fn insert(geometry: &Geometry, directory: &Inode, entries: &mut [u8], new: &Named) -> Result<bool, Stop> {
    let mut at = 0;
    while at < entries.len() {
        let slot = slot(geometry, directory, entries, at)?;
        let used = if slot.inode == 0 { 0 } else { entry_bytes(slot.name.len()) };
        let end = slot.end;
        if end - at >= used + new.bytes() {
            if used > 0 {
                put_length(entries, at, used);
            }
            put(entries, at + used, end - at - used, new);
            return Ok(true);
        }
        at = end;
    }
    Ok(false)
}

/// Removes an entry, or has it name another inode. Returns whether it was there.
pub(crate) fn change(
    geometry: &Geometry,
    directory: &Inode,
    entries: &mut [u8],
    name: &[u8],
    to: Option<(u32, u8)>,
) -> Result<bool, Stop> {
    let (mut at, mut before) = (0, None);
    while at < entries.len() {
        let slot = slot(geometry, directory, entries, at)?;
        let end = slot.end;
        if slot.inode != 0 && slot.name == name {
            match (to, before) {
                (Some((inode, kind)), _) => {
                    entries[at..at + 4].copy_from_slice(&inode.to_le_bytes());
                    entries[at + 7] = kind;
                }
                // The entry in front of it reaches over it.
                (None, Some(before)) => put_length(entries, before, end - before),
                (None, None) => entries[at..at + 4].fill(0),
            }
            return Ok(true);
        }
        (before, at) = (Some(at), end);
    }
    Ok(false)
}

/// Fills a block with these entries, for which there is room, and its checksum.
pub(crate) fn fill(seed: Checksum, block: &mut Block, entries: &[Named]) {
    block.fill(0);
    let mut at = 0;
    for (index, entry) in entries.iter().enumerate() {
        let is_last = index + 1 == entries.len();
        let length = if is_last { ENTRIES_BYTES - at } else { entry.bytes() };
        put(block, at, length, entry);
        at += length;
    }
    if entries.is_empty() {
        put_length(block, 0, ENTRIES_BYTES);
    }
    let tail = Head { inode: U32::new(0), length: U16::new(TAIL_BYTES as u16), name_bytes: 0, kind: TAIL_KIND };
    block[ENTRIES_BYTES..ENTRIES_BYTES + HEAD_BYTES].copy_from_slice(tail.as_bytes());
    put_entries_sum(seed, block);
}

/// The bytes of block `logical` that have entries.
pub(crate) fn entries_mut<'a>(directory: &Inode, logical: u32, block: &'a mut Block) -> &'a mut [u8] {
    if directory.has_index && logical == 0 { block } else { &mut block[..ENTRIES_BYTES] }
}

/// Puts the checksum of block `logical` right, which has entries.
pub(crate) fn put_sum(directory: &Inode, logical: u32, block: &mut Block) {
    if directory.has_index && logical == 0 {
        return index::put_sum(directory, block, index::ROOT_AT);
    }
    put_entries_sum(directory.seed(), block);
}

fn put_entries_sum(seed: Checksum, block: &mut Block) {
    let sum = seed.with(&block[..ENTRIES_BYTES]).0;
    block[BLOCK_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;
    use crate::inode::{Kind, New};
    use crate::{ROOT, Time};

    fn geometry() -> Geometry {
        Geometry {
            blocks: 1000,
            inodes: 100,
            groups: 1,
            inodes_per_group: 100,
            inode_bytes: 256,
            hash_seed: [0; 4],
            is_hash_unsigned: false,
            needs_recovery: false,
            checksum_seed: 1,
        }
    }

    fn directory() -> Inode {
        let new = New { kind: Kind::Directory, permissions: 0, user: 0, group: 0, device: 0 };
        Inode::begin(&geometry(), ROOT, &mut [0; 256], 32, &new, Time::default())
    }

    fn named(name: &str) -> Named {
        Named { inode: 5, kind: 1, name: name.as_bytes().into() }
    }

    #[test]
    fn a_block_of_entries_ends_with_a_checksum_that_is_right() {
        let directory = directory();
        let mut block = [0; BLOCK_BYTES];
        fill(directory.seed(), &mut block, &[named("a")]);
        let is_right = |block: &Block| content(&directory, 1, Found { block, known: None }).is_ok();
        assert!(is_right(&block));
        // A name, then of the tail: inode, length, name's length, kind, checksum.
        for at in [20, ENTRIES_BYTES, ENTRIES_BYTES + 4, ENTRIES_BYTES + 6, ENTRIES_BYTES + 7, ENTRIES_BYTES + 8] {
            block[at] ^= 1;
            assert!(!is_right(&block), "byte {at}");
            block[at] ^= 1;
        }
    }

    #[test]
    fn an_entry_that_reaches_over_the_checksum_is_corrupt() {
        let (geometry, directory) = (geometry(), directory());
        let mut block = [0; BLOCK_BYTES];
        fill(directory.seed(), &mut block, &[named("a"), named("b")]);
        assert_eq!(search(&geometry, &directory, &block[..ENTRIES_BYTES], b"b"), Ok(Some(5)));
        put_length(&mut block, named("a").bytes(), BLOCK_BYTES - named("a").bytes());
        let wrong = Err(corrupt(&directory, "an entry of a directory"));
        assert_eq!(search(&geometry, &directory, &block[..ENTRIES_BYTES], b"b"), wrong);
        assert_eq!(all(&geometry, &directory, &block[..ENTRIES_BYTES]).err(), wrong.err());
    }

    #[test]
    fn entries_are_inserted_where_there_is_room_and_removed_into_the_one_before() {
        let (geometry, directory) = (geometry(), directory());
        let mut block = [0; BLOCK_BYTES];
        fill(directory.seed(), &mut block, &[]);
        let entries = &mut block[..ENTRIES_BYTES];
        let name = |number: usize| format!("{number:0>240}");
        // 248 bytes each.
        for number in 0..16 {
            assert_eq!(insert(&geometry, &directory, entries, &named(&name(number))), Ok(true));
        }
        assert_eq!(insert(&geometry, &directory, entries, &named(&name(16))), Ok(false));
        for number in [0, 7, 15] {
            assert_eq!(change(&geometry, &directory, entries, name(number).as_bytes(), None), Ok(true));
            assert_eq!(change(&geometry, &directory, entries, name(number).as_bytes(), None), Ok(false));
            assert_eq!(insert(&geometry, &directory, entries, &named(&name(20 + number))), Ok(true));
        }
        let left = all(&geometry, &directory, entries).unwrap();
        let mut names: Vec<_> = left.iter().map(|entry| entry.name.to_vec()).collect();
        names.sort();
        let mut expected: Vec<Vec<u8>> =
            (1..7).chain(8..15).chain([20, 27, 35]).map(|number| name(number).into()).collect();
        expected.sort();
        assert_eq!(names, expected);
    }

    /// What the entries of a block are, from byte `from` of it on.
    fn listed(directory: &Inode, block: &Block, from: usize) -> Vec<(u32, Option<Kind>, u64, Vec<u8>)> {
        let entries = list(&geometry(), directory, 3, &block[..ENTRIES_BYTES], from).unwrap();
        entries.into_iter().map(|entry| (entry.inode, entry.kind, entry.next, entry.name.into())).collect()
    }

    #[test]
    fn a_block_is_what_mke2fs_writes() {
        // The root of a volume of mke2fs with the identity 3112f7b7-a1e6-4c53-b667-f6e6a1880767.
        let names: [(&[u8], u32); 4] = [(b".", 2), (b"..", 2), (b"lost+found", 11), (b"many", 12)];
        let mut expected = [0; BLOCK_BYTES];
        let head = b"\x02\0\0\0\x0C\0\x01\x02.\0\0\0\x02\0\0\0\x0C\0\x02\x02..\0\0\
                     \x0B\0\0\0\x14\0\x0A\x02lost+found\0\0\x0C\0\0\0\xC8\x0F\x04\x02many";
        expected[..head.len()].copy_from_slice(head);
        expected[ENTRIES_BYTES..].copy_from_slice(b"\0\0\0\0\x0C\0\0\xDE\x06\x72\x29\xBE");
        let identity = b"\x31\x12\xF7\xB7\xA1\xE6\x4C\x53\xB6\x67\xF6\xE6\xA1\x88\x07\x67";
        let seed = Checksum::START.with(identity).with_u32(2).with_u32(0);
        assert!(*new_block(seed, &names) == expected);
        let mut directory = directory();
        directory.checksum_seed = seed.0;
        let content = content(&directory, 0, Found { block: &expected, known: None });
        let Ok(Content::Entries(entries)) = content else { panic!("it has entries") };
        assert_eq!(search(&geometry(), &directory, entries, b"many"), Ok(Some(12)));
        assert_eq!(search(&geometry(), &directory, entries, b"man"), Ok(None));
    }

    #[test]
    fn a_block_of_entries_has_a_tail_and_a_checksum_that_are_right() {
        let directory = directory();
        let mut block = [0; BLOCK_BYTES];
        fill(directory.seed(), &mut block, &[named("a")]);
        let told = |block: &Block| check_entries_sum(&directory, block);
        assert_eq!(told(&block), Ok(()));
        let wrong = Err(corrupt(&directory, "the checksum of a directory's block"));
        // A name, free bytes; of the tail its inode, length, name's length, kind and sum.
        for at in [8, 2000, 4084, 4087, 4088, 4089, 4090, 4091, 4092, 4095] {
            block[at] ^= 1;
            assert_eq!(told(&block), wrong, "byte {at}");
            block[at] ^= 1;
        }
    }

    #[test]
    fn the_root_of_an_index_has_another_checksum_and_no_tail() {
        let mut directory = directory();
        let mut block = [0; BLOCK_BYTES];
        for (has_index, logical, bytes) in [(false, 0, 4084), (false, 1, 4084), (true, 1, 4084), (true, 0, 4096)] {
            directory.has_index = has_index;
            fill(directory.seed(), &mut block, &[named("."), named("..")]);
            if (has_index, logical) == (true, 0) {
                index::begin_root(&mut block, 1);
                index::put_branches(&directory, &mut block, index::ROOT_AT, &[index::Branch { hash: 0, block: 1 }]);
            }
            assert_eq!(entries_mut(&directory, logical, &mut block).len(), bytes);
            block[0] ^= 1;
            let is_right = |block: &Block| content(&directory, logical, Found { block, known: None }).map(drop).is_ok();
            assert!(!is_right(&block));
            put_sum(&directory, logical, &mut block);
            assert!(is_right(&block), "{has_index} {logical}");
        }
    }

    #[test]
    fn an_entry_that_lies_is_refused() {
        let directory = directory();
        let put = |inode, length: u16, name_bytes, name: &[u8]| {
            let mut block = [0; BLOCK_BYTES];
            fill(directory.seed(), &mut block, &[named("a"), named("b")]);
            let head = Head { inode: U32::new(inode), length: U16::new(length), name_bytes, kind: 1 };
            block[12..20].copy_from_slice(head.as_bytes());
            block[20..20 + name.len()].copy_from_slice(name);
            all(&geometry(), &directory, &block[..ENTRIES_BYTES]).map(|entries| entries.len())
        };
        // The second of two entries: it reaches up to the block's checksum.
        let (most, all_names) = (4072, [b'n'; 255]);
        assert_eq!(put(5, most, 1, b"b"), Ok(2));
        assert_eq!(put(100, most, 255, &all_names), Ok(2));
        assert_eq!(put(0, most, 0, b""), Ok(1));
        assert_eq!(put(0, most, 2, b"/."), Ok(1), "the name of a free entry is nothing");
        let wrong = |what| Err(corrupt(&directory, what));
        let lies: [(u32, u16, u8, &[u8]); 9] = [
            (5, 0, 1, b"b"),
            (5, 4, 0, b""),
            (5, 8, 1, b"b"),
            (5, 12, 5, b"names"),
            (5, 4070, 1, b"b"),
            (5, most + 4, 1, b"b"),
            (5, u16::MAX, 1, b"b"),
            (101, most, 1, b"b"),
            (5, most, 0, b""),
        ];
        for (inode, length, name_bytes, name) in lies {
            let told = put(inode, length, name_bytes, name);
            assert_eq!(told, wrong("an entry of a directory"), "{inode} {length} {name_bytes}");
        }
        for name in [b"a/b", b"a\0b"] {
            assert_eq!(put(5, most, 3, name), wrong("a name in a directory"));
        }
        // Fewer bytes are left than an entry's head has.
        assert_eq!(put(5, most - 4, 1, b"b"), wrong("an entry of a directory"));
    }

    #[test]
    fn each_entry_tells_its_kind_and_where_the_next_one_begins() {
        let directory = directory();
        let kinds = [0, 1, 2, 3, 4, 5, 6, 7, 8, 255];
        let entries: Vec<Named> =
            kinds.iter().map(|&kind| Named { inode: 50, kind, name: format!("{kind}").as_bytes().into() }).collect();
        let mut block = [0; BLOCK_BYTES];
        fill(directory.seed(), &mut block, &entries);
        let expected = [
            None,
            Some(Kind::File),
            Some(Kind::Directory),
            Some(Kind::CharacterDevice),
            Some(Kind::BlockDevice),
            Some(Kind::Pipe),
            Some(Kind::Socket),
            Some(Kind::Link),
            None,
            None,
        ];
        // Block 3 of a directory, in entries of 12 bytes; the next block is behind the last one.
        let base = 3 * 4096;
        let next = (1..10).map(|number| base + 12 * number).chain([base + 4096]);
        let expected: Vec<_> = kinds
            .iter()
            .zip(expected)
            .zip(next)
            .map(|((kind, expected), next)| (50, expected, next, format!("{kind}").into_bytes()))
            .collect();
        assert_eq!(listed(&directory, &block, 0), expected);
        assert_eq!(listed(&directory, &block, 1), expected[1..]);
        assert_eq!(listed(&directory, &block, 12), expected[1..]);
        assert_eq!(listed(&directory, &block, 108), expected[9..]);
        assert_eq!(listed(&directory, &block, 109), []);
        for kind in expected.iter().filter_map(|entry| entry.1) {
            assert_eq!(super::kind(kind.of_entry()), Some(kind));
        }
    }

    #[test]
    fn a_name_goes_into_the_first_gap_and_one_that_goes_leaves_its_room_to_the_one_before() {
        let (geometry, directory) = (geometry(), directory());
        let mut block = [0; BLOCK_BYTES];
        fill(directory.seed(), &mut block, &[named("first"), named("second"), named("third")]);
        let next = |block: &Block| -> Vec<(Vec<u8>, u64)> {
            listed(&directory, block, 0).into_iter().map(|entry| (entry.3, entry.2 - 3 * 4096)).collect()
        };
        let entry = |name: &str, next| (name.as_bytes().to_vec(), next);
        assert_eq!(next(&block), [entry("first", 16), entry("second", 32), entry("third", 4096)]);
        // It names another inode, in its place.
        assert_eq!(change(&geometry, &directory, &mut block[..ENTRIES_BYTES], b"second", Some((77, 2))), Ok(true));
        let second = (77, Some(Kind::Directory), 3 * 4096 + 32, b"second".to_vec());
        assert_eq!(listed(&directory, &block, 16)[0], second);
        let entries = |block: &mut Block, name: &str, is_new: bool| {
            let entries = &mut block[..ENTRIES_BYTES];
            if is_new {
                insert(&geometry, &directory, entries, &named(name))
            } else {
                change(&geometry, &directory, entries, name.as_bytes(), None)
            }
        };
        assert_eq!(entries(&mut block, "second", false), Ok(true));
        assert_eq!(next(&block), [entry("first", 32), entry("third", 4096)]);
        // 13 bytes do not fit into 16, 8 do.
        assert_eq!(entries(&mut block, "seconds", true), Ok(true));
        assert_eq!(next(&block), [entry("first", 16), entry("seconds", 32), entry("third", 4096)]);
        assert_eq!(entries(&mut block, "first", false), Ok(true));
        assert_eq!(next(&block), [entry("seconds", 32), entry("third", 4096)]);
        assert_eq!(entries(&mut block, "nine char", true), Ok(true));
        assert_eq!(next(&block), [entry("seconds", 32), entry("third", 48), entry("nine char", 4096)]);
        assert_eq!(entries(&mut block, "eight ch", true), Ok(true));
        assert_eq!(next(&block)[0], entry("eight ch", 16), "where the first one was");
        assert_eq!(entries(&mut block, "none", false), Ok(false));
    }
}
