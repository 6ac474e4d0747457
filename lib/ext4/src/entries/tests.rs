//! Directories that grow in a small volume in memory, and indexes that are filled by hand.

use alloc::format;

use super::*;
use crate::inode::ROOT;
use crate::testing::{Memory, NOW, new};
use crate::{Entry, Mount};

/// A mounted volume of which all blocks are there.
pub(crate) struct Small {
    pub memory: Memory,
    pub mount: Mount,
}

impl Small {
    pub fn new() -> Small {
        Small::of(4096)
    }

    fn of(blocks: u64) -> Small {
        let memory = Memory::formatted(blocks);
        Small { mount: memory.mount(), memory }
    }

    pub fn change<T>(
        &mut self,
        operation: impl FnOnce(&mut Operation<'_, Memory>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        self.mount.change(&self.memory, NOW, operation)
    }

    pub fn make(&mut self, parent: u32, name: &[u8], kind: Kind) -> u32 {
        self.change(|operation| operation.create(parent, name, &new(kind))).unwrap()
    }

    pub fn inode(&self, number: u32) -> Inode {
        self.mount.volume().inode(&self.mount.view(&self.memory), number).unwrap()
    }

    pub fn lookup(&self, directory: u32, name: &[u8]) -> Result<u32, Stop> {
        self.mount.volume().lookup(&self.mount.view(&self.memory), &self.inode(directory), name)
    }

    /// All entries of a directory, as they lie there.
    pub fn list(&self, directory: u32) -> Vec<Entry> {
        let directory = self.inode(directory);
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let part = self.mount.volume().list(&self.mount.view(&self.memory), &directory, from).unwrap();
            let Some(last) = part.last() else { return all };
            from = last.next;
            all.extend(part);
        }
    }

    /// A directory with so many names, all of one pipe.
    fn filled(&mut self, count: usize) -> u32 {
        let directory = self.make(ROOT, b"directory", Kind::Directory);
        self.change(|operation| {
            let pipe = operation.create(directory, &name(0), &new(Kind::Pipe))?;
            (1..count).try_for_each(|number| operation.link(pipe, directory, &name(number)))
        })
        .unwrap();
        directory
    }

    /// Gives the pipe of such a directory more names.
    fn add(&mut self, directory: u32, names: &[Vec<u8>]) -> Result<(), Stop> {
        let pipe = self.lookup(directory, &name(0)).unwrap();
        self.change(|operation| names.iter().try_for_each(|name| operation.link(pipe, directory, name)))
    }

    fn hash(&self, name: &[u8]) -> u32 {
        self.mount.volume().hash(name)
    }

    /// So many names that are new there, with hashes from `first` on and before `end`.
    fn names(&self, count: usize, first: u32, end: u32) -> Vec<Vec<u8>> {
        let is_right = |name: &Vec<u8>| (first..end).contains(&self.hash(name));
        (100..).map(name).filter(is_right).take(count).collect()
    }

    /// The levels of a directory's index, and the branches of its root.
    fn root(&self, directory: u32) -> (usize, Vec<(u32, u32)>) {
        let (view, directory) = (self.mount.view(&self.memory), self.inode(directory));
        let root = self.mount.volume().block_of(&view, &directory, 0).unwrap();
        (index::levels(&directory, &root).unwrap().unwrap(), self.node(directory.number, 0))
    }

    /// Hash and block of each branch of a node.
    fn node(&self, directory: u32, logical: u32) -> Vec<(u32, u32)> {
        let (view, directory) = (self.mount.view(&self.memory), self.inode(directory));
        let node = self.mount.volume().node(&view, &directory, logical).unwrap();
        node.branches().iter().map(|branch| (branch.hash, branch.block)).collect()
    }

    /// The names in a block of a directory.
    fn block(&self, directory: u32, logical: u32) -> Vec<Vec<u8>> {
        let (view, directory) = (self.mount.view(&self.memory), self.inode(directory));
        let block = self.mount.volume().block_of(&view, &directory, logical).unwrap();
        let Content::Entries(entries) = directory::content(&directory, logical, block).unwrap() else {
            panic!("block {logical} is a node")
        };
        let all = directory::all(self.mount.volume().geometry(), &directory, entries).unwrap();
        all.into_iter().map(|entry| entry.name.into()).collect()
    }

    /// Expects that a directory has these names once, and that each is found.
    fn expect(&self, directory: u32, mut names: Vec<Vec<u8>>) {
        let mut listed: Vec<Vec<u8>> = self.list(directory).into_iter().map(|entry| entry.name.into()).collect();
        assert_eq!(listed[..2], [b".".to_vec(), b"..".to_vec()]);
        names.sort();
        listed[2..].sort();
        assert_eq!(listed[2..], names);
        let pipe = self.lookup(directory, &name(0));
        assert!(pipe.is_ok() && names.iter().all(|name| self.lookup(directory, name) == pipe));
        assert_eq!((self.lookup(directory, b"."), self.lookup(directory, b"..")), (Ok(directory), Ok(ROOT)));
    }
}

/// A name of 240 bytes: 16 of them fit into a block behind "." and "..", and without these.
fn name(number: usize) -> Vec<u8> {
    format!("{number:0>240}").into_bytes()
}

fn names(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(name).collect()
}

/// Writes the branches of a node.
fn put(
    operation: &mut Operation<'_, Memory>,
    directory: u32,
    logical: u32,
    levels: u8,
    branches: &[(u32, u32)],
) -> Result<(), Stop> {
    let directory = operation.inode(directory)?;
    let branches: Vec<Branch> = branches.iter().map(|&(hash, block)| Branch { hash, block }).collect();
    let block = operation.edit_node(&directory, logical)?;
    if logical == 0 {
        index::put_levels(block, levels);
    }
    index::put_branches(&directory, block, if logical == 0 { ROOT_AT } else { NODE_AT }, &branches);
    Ok(())
}

/// More branches behind these, up to so many, with hashes that no name has here. All lead to
/// block 2.
fn padded(branches: &[(u32, u32)], count: u32) -> Vec<(u32, u32)> {
    let more = count - branches.len() as u32;
    branches.iter().copied().chain((0..more).map(|at| (FIRST_UNUSED + 2 * at, 2))).collect()
}

/// Names here have hashes before this one.
const FIRST_UNUSED: u32 = 0xFFFF_0000;

#[test]
fn a_directory_gets_an_index_when_its_block_is_full() {
    let mut small = Small::new();
    let directory = small.filled(16);
    let inode = small.inode(directory);
    assert_eq!((inode.has_index, inode.blocks()), (false, 1));
    small.add(directory, &[name(16)]).unwrap();
    let inode = small.inode(directory);
    assert_eq!((inode.has_index, inode.blocks()), (true, 3));
    small.expect(directory, names(17));
    // The block of entries was split in the middle of the names' hashes.
    let mut all = names(17);
    all.sort_by_key(|name| small.hash(name));
    let hash = small.hash(&all[8]);
    assert_eq!(small.root(directory), (0, Vec::from([(0, 1), (hash, 2)])));
    assert_eq!((small.block(directory, 1), small.block(directory, 2)), (all[..8].to_vec(), all[8..].to_vec()));
    // Others go where their hash leads; what is full is split, and what is in front stays.
    let more = small.names(8, hash, FIRST_UNUSED);
    small.add(directory, &more).unwrap();
    assert_eq!((small.inode(directory).blocks(), small.block(directory, 1)), (4, all[..8].to_vec()));
    let branches = small.root(directory).1;
    assert_eq!(branches.iter().map(|branch| branch.1).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(branches.is_sorted() && branches[2].0.is_multiple_of(2));
    let less = small.names(9, 0, hash);
    small.add(directory, &less).unwrap();
    assert_eq!(small.root(directory).1.iter().map(|branch| branch.1).collect::<Vec<_>>(), [1, 4, 2, 3]);
    small.expect(directory, [names(17), more, less].concat());
}

#[test]
fn an_index_is_there_after_a_restart() {
    let mut small = Small::new();
    let directory = small.filled(40);
    let root = small.root(directory);
    small.memory.write(&mut small.mount);
    small.mount = small.memory.mount();
    assert_eq!(small.root(directory), root);
    small.expect(directory, names(40));
    let more = small.names(40, 0, FIRST_UNUSED);
    small.add(directory, &more).unwrap();
    assert!(small.root(directory).1.len() > root.1.len());
    small.expect(directory, [names(40), more].concat());
}

#[test]
fn a_directory_has_plain_blocks_if_the_volume_wants_no_index_or_one_that_is_not_known() {
    for (has_index, hash) in [(false, 1), (true, 2)] {
        let mut small = Small::new();
        (small.mount.settings.has_index, small.mount.settings.hash) = (has_index, hash);
        let directory = small.filled(17);
        let inode = small.inode(directory);
        assert_eq!((inode.has_index, inode.blocks()), (false, 2));
        assert_eq!((small.block(directory, 0).len(), small.block(directory, 1)), (18, Vec::from([name(16)])));
        small.expect(directory, names(17));
        // It stays so when the volume could have one.
        (small.mount.settings.has_index, small.mount.settings.hash) = (true, 1);
        small.add(directory, &names(33)[17..]).unwrap();
        let inode = small.inode(directory);
        assert_eq!((inode.has_index, inode.blocks()), (false, 3));
        small.expect(directory, names(33));
    }
}

#[test]
fn a_directory_that_does_not_begin_with_itself_and_the_one_above_gets_no_index() {
    let mut small = Small::new();
    let directory = small.filled(1);
    let mut begin = |first: &[&str]| {
        small.change(|operation| {
            let mut inode = operation.inode(directory)?;
            let block = operation.directory_block(&inode, 0)?;
            let named = |name: &&str| Named { inode: ROOT, kind: 2, name: name.as_bytes().into() };
            let entries: Vec<Named> = first.iter().map(named).collect();
            directory::fill(inode.seed(), operation.blocks.fresh(block), &entries);
            operation.make_index(&mut inode)
        })
    };
    let wrong = Err(Error::corrupt("the first entries of a directory", u64::from(directory)));
    for first in [[].as_slice(), &["."], &[".."], &["..", "."], &[".", "a"], &["a", ".."], &["a", "b"]] {
        assert_eq!(begin(first), wrong, "{first:?}");
    }
    assert_eq!(begin(&[".", ".."]), Ok(()));
}

#[test]
fn a_directory_in_blocks_that_are_no_files_is_corrupt() {
    // Group 1 begins with a copy of the super block, and the block in front of it is free.
    let mut small = Small::of(40_000);
    let directory = small.filled(1);
    let mut add = |first: u64, size: u64| {
        small.change(|operation| {
            let mut inode = operation.inode(directory)?;
            inode.map = extent::root_of(first..first + 1);
            inode.size = size * BLOCK_BYTES as u64;
            operation.add_entry(&mut inode, b"name", (ROOT, Kind::Directory))
        })
    };
    let corrupt = |what| Err(Error::corrupt(what, u64::from(directory)));
    assert_eq!(add(32_768, 1), corrupt("a block of a directory"));
    assert_eq!(add(32_767, 1), corrupt("the checksum of a directory's block"));
    let first = small.change(|operation| operation.directory_block(&operation.inode(directory)?, 0)).unwrap();
    assert!(first > 1 && small.lookup(directory, b"name").is_err());
    let block = |logical| {
        let under_way = Operation::begin(&small.mount, &small.memory, NOW);
        under_way.directory_block(&small.inode(directory), logical)
    };
    assert_eq!((block(0), block(1)), (Ok(first), corrupt("a block of a directory").map(|()| 0)));
}

#[test]
fn a_full_root_gets_a_node_below_it() {
    for taken in [0, 1] {
        let mut small = Small::new();
        let directory = small.filled(17);
        let (_, branches) = small.root(directory);
        let (hash, full) = (branches[1].0, padded(&branches, 507));
        small.change(|operation| put(operation, directory, 0, 0, &full)).unwrap();
        small.expect(directory, names(17));
        // As many as there is room for in the block; with one more it is split.
        let (room, first, end) = [(8, 0, hash), (7, hash, FIRST_UNUSED)][taken];
        let more = small.names(room + 1, first, end);
        small.add(directory, &more[..room]).unwrap();
        assert_eq!((small.inode(directory).blocks(), small.root(directory)), (3, (0, full.clone())));
        small.add(directory, &more[room..]).unwrap();
        assert_eq!((small.inode(directory).blocks(), small.root(directory)), (5, (1, Vec::from([(0, 4)]))));
        let mut node = small.node(directory, 4);
        let new = node.remove(taken + 1);
        assert!(new.1 == 3 && (first..end).contains(&new.0) && new.0.is_multiple_of(2), "{new:?}");
        assert_eq!(node, full);
        small.expect(directory, [names(17), more].concat());
    }
}

/// A directory of 17 names with an index of two levels: the first node below the root, in block 3,
/// has so many branches, and the root so many ways. Returns also the hash that block 2 begins with.
fn deep(small: &mut Small, branches: u32, ways: u32) -> (u32, u32) {
    let directory = small.filled(17);
    let (_, two) = small.root(directory);
    small
        .change(|operation| {
            let mut inode = operation.inode(directory)?;
            operation.append_node(&mut inode, &[Branch { hash: 0, block: 1 }])?;
            operation.put_inode(&inode)?;
            put(operation, directory, 3, 1, &padded(&two, branches))?;
            let last = FIRST_UNUSED + 0x8000;
            let ways: Vec<_> = [(0, 3)].into_iter().chain((1..ways).map(|at| (last + 2 * at, 3))).collect();
            put(operation, directory, 0, 1, &ways)
        })
        .unwrap();
    assert_eq!((small.root(directory).0, small.root(directory).1.len()), (1, ways as usize));
    small.expect(directory, names(17));
    (directory, two[1].0)
}

#[test]
fn a_node_with_room_gets_what_is_split_below_it() {
    let mut small = Small::new();
    let (directory, hash) = deep(&mut small, 2, 2);
    let (more, root) = (small.names(9, 0, hash), small.root(directory));
    small.add(directory, &more).unwrap();
    assert_eq!(small.root(directory), root);
    let node = small.node(directory, 3);
    assert_eq!(node.iter().map(|branch| branch.1).collect::<Vec<_>>(), [1, 4, 2]);
    assert!(node.is_sorted() && node[2].0 == hash);
    small.expect(directory, [names(17), more].concat());
}

#[test]
fn a_full_node_is_split_in_the_middle() {
    let mut small = Small::new();
    let (directory, hash) = deep(&mut small, 510, 2);
    let (more, before, root) = (small.names(9, 0, hash), small.node(directory, 3), small.root(directory).1);
    small.add(directory, &more).unwrap();
    assert_eq!(small.inode(directory).blocks(), 6, "one more of entries, and one node");
    let (first, second) = (small.node(directory, 3), small.node(directory, 5));
    assert_eq!((first.len(), second.len()), (255, 256));
    // The first of a node has no hash of its own: the root has it.
    assert_eq!(small.root(directory), (1, Vec::from([root[0], (before[254].0, 5), root[1]])));
    assert_eq!((second[0], second[1..].to_vec()), ((0, before[254].1), before[255..].to_vec()));
    assert_eq!((first[0], first[1].1, first[2..].to_vec()), (before[0], 4, before[1..254].to_vec()));
    small.expect(directory, [names(17), more].concat());
}

#[test]
fn a_directory_whose_index_is_full_has_no_room() {
    let mut small = Small::new();
    let (directory, hash) = deep(&mut small, 510, 507);
    let more = small.names(9, 0, hash);
    small.add(directory, &more[..8]).unwrap();
    let (node, root) = (small.node(directory, 3), small.root(directory));
    assert_eq!(small.add(directory, &more[8..]), Err(Error::NoSpace.into()));
    assert_eq!((small.node(directory, 3), small.root(directory)), (node, root));
    assert_eq!(small.inode(directory).blocks(), 4);
    small.expect(directory, [&names(17), &more[..8]].concat());
    // With one way less the node can be split.
    let mut small = Small::new();
    let (directory, _) = deep(&mut small, 510, 506);
    small.add(directory, &more).unwrap();
    assert_eq!(small.root(directory).1.len(), 507);
    small.expect(directory, [names(17), more].concat());
}

#[test]
fn a_directory_has_no_more_blocks_than_its_index_leads_to() {
    let mut small = Small::new();
    let directory = small.filled(1);
    let told = small.change(|operation| {
        let mut inode = operation.inode(directory)?;
        inode.size = 507 * 511 * BLOCK_BYTES as u64;
        operation.append_block(&mut inode)
    });
    assert_eq!(told, Err(Error::NoSpace.into()));
}

#[test]
fn names_of_one_hash_are_found_on_both_sides_of_a_split() {
    let mut small = Small::new();
    // Two of one hash, in the seed of these volumes.
    let [one, other] = [111_267, 25_037].map(|number| format!("{number:0>32}").into_bytes());
    let hash = small.hash(&one);
    assert_eq!((hash, small.hash(&other)), (0x3027_1432, 0x3027_1432));
    let directory = small.make(ROOT, b"directory", Kind::Directory);
    // Eight names before them are nearly half of a block: the first of the two goes with them.
    let all = [small.names(8, 0, hash), Vec::from([one, other]), small.names(9, hash + 1, u32::MAX)].concat();
    small
        .change(|operation| {
            let pipe = operation.create(directory, &all[0], &new(Kind::Pipe))?;
            all[1..].iter().try_for_each(|name| operation.link(pipe, directory, name))
        })
        .unwrap();
    assert_eq!(small.root(directory), (0, Vec::from([(0, 1), (hash | 1, 2)])), "they go on");
    let has = |block: u32, name| small.block(directory, block).contains(name);
    assert!((has(1, &all[8]) && has(2, &all[9])) || (has(1, &all[9]) && has(2, &all[8])));
    let pipe = small.lookup(directory, &all[0]);
    assert!(pipe.is_ok() && all.iter().all(|name| small.lookup(directory, name) == pipe));
    // Each of them is removed from where it is.
    for name in &all[8..10] {
        assert!(small.change(|operation| operation.unlink(directory, name)).is_ok());
        assert_eq!(small.lookup(directory, name), Err(Error::NotFound.into()));
    }
    assert_eq!(small.list(directory).len(), 2 + 17);
}

#[test]
fn an_index_of_another_hash_is_read_and_not_changed() {
    let mut small = Small::new();
    let directory = small.filled(17);
    let branches = small.root(directory).1;
    small
        .change(|operation| {
            let inode = operation.inode(directory)?;
            index::begin_root(operation.edit_node(&inode, 0)?, 2);
            put(operation, directory, 0, 0, &branches)
        })
        .unwrap();
    small.expect(directory, names(17));
    let refused = Error::Refused(Refusal::Has("another hash in a directory"));
    assert_eq!(small.add(directory, &[name(17)]), Err(refused.into()));
}

#[test]
fn a_branch_that_leads_to_a_node_is_corrupt() {
    let mut small = Small::new();
    let (directory, _) = deep(&mut small, 2, 1);
    small.change(|operation| put(operation, directory, 0, 0, &[(0, 3)])).unwrap();
    let told = small.change(|operation| {
        let mut inode = operation.inode(directory)?;
        operation.add_entry(&mut inode, b"name", (ROOT, Kind::Directory))
    });
    assert_eq!(told, Err(Error::corrupt("an index that leads to itself", u64::from(directory))));
}

#[test]
fn a_directory_is_empty_if_no_block_has_another_name() {
    let mut small = Small::new();
    let (directory, _) = deep(&mut small, 2, 1);
    let is_empty =
        |small: &mut Small| small.change(|operation| operation.is_empty(&operation.inode(directory)?)).unwrap();
    assert!(!is_empty(&mut small));
    for number in 0..17 {
        assert!(!is_empty(&mut small), "{number}");
        small.change(|operation| operation.unlink(directory, &name(number))).unwrap();
    }
    assert!(is_empty(&mut small), "a node has no names");
    for name in [b"...".as_slice(), b"a", b".a", b"..a"] {
        small.make(directory, name, Kind::Pipe);
        assert!(!is_empty(&mut small), "{name:?}");
        small.change(|operation| operation.unlink(directory, name)).unwrap();
        assert!(is_empty(&mut small));
    }
}

#[test]
fn entries_are_split_where_half_of_a_block_is() {
    let of = |bytes: &[usize]| -> usize {
        let entry = |bytes: &usize| (0, Named { inode: 1, kind: 1, name: alloc::vec![b'n'; *bytes].into() });
        middle(&bytes.iter().map(entry).collect::<Vec<_>>())
    };
    // Entries have 8 bytes more than names; the half of 4,084 bytes is 2,042.
    assert_eq!(of(&[240; 17]), 8);
    assert_eq!(of(&[248, 248, 248, 248, 248, 248, 248, 240, 1]), 8, "2,040 bytes");
    assert_eq!(of(&[248, 248, 248, 248, 248, 248, 248, 244, 1]), 7, "2,044 bytes");
    assert_eq!((of(&[4; 400]), of(&[12; 200]), of(&[]), of(&[1])), (170, 102, 0, 1));
}
