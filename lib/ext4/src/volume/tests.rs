//! A small volume is asked, and a directory whose index was made by hand.

use alloc::format;
use alloc::string::String;
use alloc::vec;

use super::*;
use crate::directory::Named;
use crate::index::{Branch, NODE_AT, ROOT_AT};
use crate::testing::{self, Memory, NOW, new};
use crate::{Mount, Operation, ROOT};

/// A mounted volume with what an operation made.
fn made<T>(operation: impl FnOnce(&mut Operation<'_, Memory>) -> Result<T, Stop>) -> (Memory, Mount, T) {
    let memory = Memory::formatted(4096);
    let mut mount = memory.mount();
    let result = mount.change(&memory, NOW, operation).unwrap();
    (memory, mount, result)
}

fn failed<T>(error: Error) -> Result<T, Stop> {
    Err(error.into())
}

#[test]
fn inodes_that_the_volume_does_not_have_are_not_found() {
    let memory = Memory::formatted(4096);
    let volume = Volume::open(&memory, 4096).unwrap();
    let most = volume.geometry().inodes;
    assert_eq!(volume.inode_place(&memory, most).map(|(_, at)| at), Ok(BLOCK_BYTES - 256));
    for number in [0, 12, most, most + 1, u32::MAX] {
        assert_eq!(volume.inode(&memory, number), failed(Error::NotFound), "{number}");
    }
    assert_eq!(volume.inode(&memory, ROOT).map(|inode| inode.kind), Ok(Kind::Directory));
    assert!(Volume::open(&memory, 4095).map(drop).is_err(), "it has more blocks than the device");
}

#[test]
fn free_blocks_are_those_that_no_bitmap_has() {
    let memory = Memory::formatted(40_000);
    let volume = Volume::open(&memory, 40_000).unwrap();
    let of_group = |number| {
        let bitmap = volume.group(&memory, number).unwrap().block_bitmap;
        u64::from(memory.block(bitmap).unwrap().iter().map(|byte| byte.count_zeros()).sum::<u32>())
    };
    assert!(of_group(0) > 1 && of_group(1) > 1 && volume.geometry().groups == 2);
    assert_eq!(volume.free_blocks(&memory), Ok(of_group(0) + of_group(1)));
}

#[test]
fn bytes_are_read_to_the_end_of_a_block_and_of_the_file() {
    let bytes: Vec<u8> = (0..9000_u32).map(|at| (at / 7) as u8).collect();
    let (memory, mount, file) = made(|operation| {
        let file = operation.create(ROOT, b"file", &new(Kind::File))?;
        operation.write(file, 0, &bytes)?;
        // A hole of one block, then a byte.
        operation.write(file, 4 * BLOCK_BYTES as u64, b"x")?;
        Ok(file)
    });
    let (volume, view) = (mount.volume(), mount.view(&memory));
    let inode = volume.inode(&view, file).unwrap();
    let read = |offset, most: usize| {
        let mut buffer = vec![0xEE; most];
        let count = volume.read(&view, &inode, offset, &mut buffer).unwrap();
        buffer.truncate(count);
        buffer
    };
    assert_eq!(read(0, 10), bytes[..10]);
    assert_eq!(read(4090, 100), bytes[4090..4096]);
    assert_eq!(read(4096, 5000), bytes[4096..8192]);
    assert_eq!(read(8192, 5000), [&bytes[8192..], &[0; 3 * 4096 - 9000]].concat());
    assert_eq!(read(3 * 4096 + 5, 5000), [0; 4091], "the hole");
    assert_eq!(read(4 * 4096, 100), b"x");
    for (offset, most) in [(4 * 4096 + 1, 100), (5 * 4096, 1), (1 << 44, 1), (u64::MAX, 1), (0, 0)] {
        assert_eq!(read(offset, most), b"", "{offset}");
    }
    assert_eq!(volume.bytes(&view, &inode, 4000, 7).unwrap(), &bytes[4000..4007]);
}

#[test]
fn what_is_no_file_has_no_bytes_and_what_is_no_link_no_target() {
    let (memory, mount, [pipe, short, long]) = made(|operation| {
        let pipe = operation.create(ROOT, b"pipe", &new(Kind::Pipe))?;
        let short = operation.symlink(ROOT, b"short", &[b's'; 59], 1, 2)?;
        let long = operation.symlink(ROOT, b"long", &[b'l'; 4095], 1, 2)?;
        Ok([pipe, short, long])
    });
    let (volume, view) = (mount.volume(), mount.view(&memory));
    let [root, pipe, short, long] = [ROOT, pipe, short, long].map(|number| volume.inode(&view, number).unwrap());
    assert_eq!(volume.bytes(&view, &root, 0, 9), failed(Error::IsDirectory));
    assert_eq!(volume.bytes(&view, &pipe, 0, 9), Ok([].as_slice()));
    assert_eq!(volume.bytes(&view, &short, 0, 9), Ok([].as_slice()));
    assert_eq!(volume.target(&view, &pipe), failed(Error::NotLink));
    assert_eq!(*volume.target(&view, &short).unwrap(), [b's'; 59]);
    assert_eq!(*volume.target(&view, &long).unwrap(), [b'l'; 4095]);
    assert_eq!(volume.lookup(&view, &pipe, b"name"), failed(Error::NotDirectory));
    assert_eq!(volume.list(&view, &long, 0), failed(Error::NotDirectory));
    assert_eq!(volume.lookup(&view, &root, b"pipe"), Ok(pipe.number));
    assert_eq!(volume.lookup(&view, &root, b"pip"), failed(Error::NotFound));
    assert_eq!(volume.lookup(&view, &root, b"a/b"), failed(Error::InvalidName));
}

#[test]
fn a_directory_is_listed_on_from_each_of_its_entries() {
    let name = |number: u32| format!("{number:0>200}").into_bytes();
    let (memory, mount, directory) = made(|operation| {
        let directory = operation.create(ROOT, b"directory", &new(Kind::Directory))?;
        for number in 0..60 {
            operation.create(directory, &name(number), &new(Kind::Pipe))?;
        }
        // A block in between has nothing.
        let in_block = |operation: &Operation<'_, Memory>, number| {
            let inode = operation.inode(directory)?;
            Ok::<_, Stop>(operation.volume().search(operation, &inode, &name(number))?.unwrap().0)
        };
        for number in 0..60 {
            if in_block(operation, number)? == 2 {
                operation.unlink(directory, &name(number))?;
            }
        }
        Ok(directory)
    });
    let (volume, view) = (mount.volume(), mount.view(&memory));
    let directory = volume.inode(&view, directory).unwrap();
    assert!(directory.blocks() > 4 && directory.has_index);
    let list = |from| volume.list(&view, &directory, from).unwrap();
    let (mut all, mut from, mut blocks) = (Vec::new(), 0, 0);
    loop {
        let part = list(from);
        let Some(last) = part.last() else { break };
        // From the entries in between the rest is the same.
        for (at, entry) in part.iter().enumerate().take(part.len() - 1) {
            assert_eq!(list(entry.next), part[at + 1..]);
        }
        (from, blocks) = (last.next, blocks + 1);
        all.extend(part);
    }
    assert_eq!(blocks, directory.blocks() - 1, "all but the block that has nothing");
    assert_eq!(list(directory.size), []);
    assert_eq!((&*all[0].name, &*all[1].name), (b".".as_slice(), b"..".as_slice()));
    let mut names: Vec<_> = all[2..].iter().map(|entry| entry.name.clone()).collect();
    names.sort();
    let expected = (0..60).map(name).filter(|name| volume.lookup(&view, &directory, name).is_ok());
    assert_eq!(names, expected.map(Into::into).collect::<Vec<Box<[u8]>>>());
    assert!(names.len() > 30 && names.len() < 60);
    for name in [b".".as_slice(), b".."] {
        let expected = if name == b"." { directory.number } else { ROOT };
        assert_eq!(volume.lookup(&view, &directory, name), Ok(expected), "with an index");
    }
}

#[test]
fn names_are_hashed_as_linux_does() {
    let memory = Memory::formatted(4096);
    let volume = Volume::open(&memory, 4096).unwrap();
    // By debugfs: dx_hash -h half_md4 -s 09090909-0909-0909-0909-090909090909.
    assert_eq!(volume.hash(b"a"), 0xA6BE_170E);
    assert_eq!(volume.hash(b"hello"), 0x2FAA_A642);
}

/// A directory with an index, made by hand: block `n` of it is block 100 + `n`.
struct Indexed {
    memory: Memory,
    volume: Volume,
    directory: Inode,
    /// Names, in order of their hashes.
    names: Vec<String>,
}

const FIRST: u64 = 100;

impl Indexed {
    /// With a root, two nodes, and four blocks of two names each.
    fn new() -> Indexed {
        let volume = Volume { geometry: testing::geometry(1000) };
        let mut directory = testing::inode(&volume.geometry, 12, Kind::Directory);
        (directory.size, directory.has_index) = (7 * BLOCK_BYTES as u64, true);
        directory.map = extent::root_of(FIRST..FIRST + 7);
        let mut names: Vec<String> = (0..8).map(|number| format!("name{number}")).collect();
        names.sort_by_key(|name| volume.hash(name.as_bytes()));
        let mut it = Indexed { memory: Memory::zeros(1000), volume, directory, names };
        let root = it.memory.edit(FIRST);
        let named = |inode, name: &str| Named { inode, kind: 2, name: name.as_bytes().into() };
        directory::put(root, 0, 12, &named(12, "."));
        directory::put(root, 12, BLOCK_BYTES - 12, &named(2, ".."));
        index::begin_root(root, 1);
        index::put_levels(root, 1);
        let [h2, h4, h6] = [2, 4, 6].map(|at| it.hash(at));
        it.put(0, &[(0, 1), (h4, 2)]);
        it.put(1, &[(0, 3), (h2, 4)]);
        it.put(2, &[(0, 5), (h6, 6)]);
        for block in 0..4 {
            it.fill(3 + block as u32, &[2 * block, 2 * block + 1]);
        }
        it
    }

    fn hash(&self, name: usize) -> u32 {
        self.volume.hash(self.names[name].as_bytes())
    }

    /// Writes the entries of a node.
    fn put(&mut self, logical: u32, branches: &[(u32, u32)]) {
        let branches: Vec<Branch> = branches.iter().map(|&(hash, block)| Branch { hash, block }).collect();
        let block = self.memory.edit(FIRST + u64::from(logical));
        if logical != 0 {
            index::begin_node(block);
        }
        index::put_branches(&self.directory, block, if logical == 0 { ROOT_AT } else { NODE_AT }, &branches);
    }

    /// Has these names, and no others, in a block. Each names the inode 20 + its place.
    fn fill(&mut self, logical: u32, names: &[usize]) {
        let named = |&at: &usize| Named { inode: 20 + at as u32, kind: 1, name: self.names[at].as_bytes().into() };
        let entries: Vec<Named> = names.iter().map(named).collect();
        directory::fill(self.directory.seed(), self.memory.edit(FIRST + u64::from(logical)), &entries);
    }

    fn search(&self, name: &str) -> Result<Option<(u32, u32)>, Stop> {
        self.volume.search(&self.memory, &self.directory, name.as_bytes())
    }

    /// In which block a name is found.
    fn block_of(&self, name: usize) -> Result<Option<u32>, Stop> {
        let found = self.search(&self.names[name])?;
        if let Some((_, inode)) = found {
            assert_eq!(inode, 20 + name as u32);
        }
        Ok(found.map(|(logical, _)| logical))
    }
}

fn corrupt<T>(what: &'static str) -> Result<T, Stop> {
    Err(Error::corrupt(what, 12))
}

#[test]
fn a_name_is_found_by_its_hash_through_two_levels() {
    let mut it = Indexed::new();
    for name in 0..8 {
        assert_eq!(it.block_of(name), Ok(Some(3 + name as u32 / 2)), "{name}");
    }
    assert_eq!(it.search("other"), Ok(None));
    assert_eq!((it.search("."), it.search("..")), (Ok(Some((0, 12))), Ok(Some((0, 2)))));
    // Where its hash does not lead to, a name is not looked for.
    it.fill(3, &[0]);
    it.fill(5, &[4, 5, 1]);
    assert_eq!((it.block_of(1), it.block_of(5)), (Ok(None), Ok(Some(5))));
    // With a hash that is not known every block is looked at.
    index::begin_root(it.memory.edit(FIRST), 2);
    it.put(0, &[(0, 1)]);
    assert_eq!(it.block_of(1), Ok(Some(5)));
}

#[test]
fn names_of_one_hash_go_on_in_the_blocks_that_say_so() {
    // In the next block of the same node; then in the first one of the next node, too.
    let mut it = Indexed::new();
    let hash = it.hash(0);
    it.put(1, &[(0, 3), (hash | 1, 4)]);
    it.fill(3, &[]);
    it.fill(4, &[0]);
    assert_eq!(it.block_of(0), Ok(Some(4)));
    it.fill(4, &[]);
    it.fill(5, &[0]);
    assert_eq!(it.block_of(0), Ok(None), "the next node begins with another hash");
    it.put(0, &[(0, 1), (hash | 1, 2)]);
    assert_eq!(it.block_of(0), Ok(Some(5)));
    it.fill(5, &[]);
    it.fill(6, &[0]);
    assert_eq!(it.block_of(0), Ok(None));
    it.put(2, &[(0, 5), (hash | 1, 6)]);
    assert_eq!(it.block_of(0), Ok(Some(6)));
    it.fill(6, &[]);
    assert_eq!(it.block_of(0), Ok(None), "nothing is behind the last");
    // Without the mark, names of the hash are not in the next block.
    it.fill(4, &[0]);
    it.put(1, &[(0, 3), (hash + 2, 4)]);
    assert_eq!(it.block_of(0), Ok(None));
}

#[test]
fn an_index_that_leads_astray_is_corrupt() {
    let mut it = Indexed::new();
    it.put(0, &[(0, 0)]);
    assert_eq!(it.block_of(0), corrupt("an index that leads to its root"));
    it.put(0, &[(0, 3)]);
    assert_eq!(it.block_of(0), corrupt("a node of an index"));
    it.put(0, &[(0, 1)]);
    it.put(1, &[(0, 2)]);
    assert_eq!(it.block_of(0), corrupt("an index that leads to itself"));
    // The same block again and again.
    let hash = it.hash(0);
    it.put(1, &[[(0, 4)].as_slice(), &[(hash | 1, 4); 20]].concat());
    it.fill(4, &[1]);
    assert_eq!(it.block_of(0), corrupt("an index that leads to itself"));
    it.put(0, &[(0, 7)]);
    assert_eq!(it.block_of(0), corrupt("a hole in a directory or link"));
    it.memory.edit(FIRST)[ROOT_AT + 4] ^= 1;
    assert_eq!(it.block_of(0), corrupt("an index's checksum"));
}

#[test]
fn a_block_of_a_directory_that_is_behind_its_end_or_never_written_is_corrupt() {
    let mut it = Indexed::new();
    let block_of = |it: &Indexed, logical| it.volume.block_of(&it.memory, &it.directory, logical).map(drop);
    assert_eq!(block_of(&it, 6), Ok(()));
    assert_eq!(block_of(&it, 7), corrupt("a hole in a directory or link"));
    it.directory.size = 6 * BLOCK_BYTES as u64;
    assert_eq!(block_of(&it, 5), Ok(()));
    assert_eq!(block_of(&it, 6), corrupt("a hole in a directory or link"));
    // The same blocks, as if nobody had written them.
    it.directory.map[17] |= 0x80;
    assert_eq!(block_of(&it, 5), corrupt("a hole in a directory or link"));
}
