//! What a client knows of its folder: how that was after each change, and from which on it lasts.
//!
//! Changes of one client come one after the other, and the volume's transactions have them in that
//! order. So what a death leaves is the folder after one of them: the last one that a sync covered,
//! or a later one. Bytes of a file may be newer than its size and names, for they are written
//! before the transaction that names them.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::disk::Random;

/// A file, whatever its names are.
pub type Object = u32;

/// A path in the client's folder, which itself is the empty one.
pub type Path = &'static str;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Opens a file and keeps it open; makes it if there is none.
    Open(Path),
    Close(Path),
    /// At a place, so many bytes.
    Write(Path, usize, usize),
    /// The same with O_SYNC.
    WriteSynced(Path, usize, usize),
    /// Compares all bytes.
    Read(Path),
    Truncate(Path, usize),
    Sync(Path),
    DataSync(Path),
    /// fsync of a folder.
    SyncFolder(Path),
    SyncAll,
    MakeFolder(Path),
    RemoveFolder(Path),
    /// Makes a symbolic link to a text.
    MakeLink(Path, &'static str),
    /// One more name for a file.
    Link(Path, Path),
    Rename(Path, Path),
    Remove(Path),
    /// Writes to and reads from what has no name any more.
    UseRemoved,
    CloseRemoved,
    /// Milliseconds.
    Pause(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    File(Object),
    Folder,
    Link(String),
}

/// The folder at one time. Bytes of files stay when their names go.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub names: BTreeMap<String, Node>,
    pub bytes: BTreeMap<Object, Rc<Vec<u8>>>,
}

/// What was found: of a file its inode and bytes.
pub enum Found {
    File(u64, Vec<u8>),
    Folder,
    Link(String),
}

/// The folder that a path lies in.
pub fn above(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

/// Bytes that no other write has, of any file.
pub fn pattern(object: Object, writes: u32, length: usize) -> Vec<u8> {
    let mut random = Random(u64::from(object) << 32 | u64::from(writes));
    (0..length.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(length).collect()
}

/// All of a client's folder.
#[derive(Clone, Default)]
pub struct Model {
    /// After each change, the last one with what was asked and not answered.
    states: Vec<Rc<Tree>>,
    /// What a death leaves is one of them from here on.
    floor: usize,
    /// The last change of each file, by its object, and of each folder.
    files: BTreeMap<Object, usize>,
    folders: BTreeMap<String, usize>,
    next_object: Object,
    /// In which life of the server it was so.
    life: u32,
}

impl Model {
    /// An empty folder. Numbers of files are from `first` on.
    pub fn new(first: Object) -> Model {
        Model { states: vec![Rc::default()], next_object: first, ..Model::default() }
    }

    pub fn now(&self) -> &Tree {
        self.states.last().unwrap()
    }

    pub fn file(&self, path: &str) -> Option<Object> {
        match self.now().names.get(path) {
            Some(Node::File(object)) => Some(*object),
            _ => None,
        }
    }

    pub fn is_folder(&self, path: &str) -> bool {
        path.is_empty() || self.now().names.get(path) == Some(&Node::Folder)
    }

    /// Has it a name?
    pub fn is_named(&self, object: Object) -> bool {
        self.now().names.values().any(|node| *node == Node::File(object))
    }

    /// The number of the next change.
    pub fn change(&self) -> usize {
        self.states.len()
    }

    fn begin(&mut self, files: &[Object], folders: &[&str], change: impl FnOnce(&mut Tree)) {
        let number = self.change();
        self.files.extend(files.iter().map(|object| (*object, number)));
        self.folders.extend(folders.iter().map(|folder| ((*folder).to_owned(), number)));
        let mut tree = self.now().clone();
        change(&mut tree);
        self.states.push(Rc::new(tree));
    }

    /// A file was asked for that is not there.
    pub fn create(&mut self, path: &str) {
        let object = self.next_object;
        self.next_object += 1;
        self.begin(&[object], &[above(path)], |tree| {
            tree.names.insert(path.into(), Node::File(object));
            tree.bytes.insert(object, Rc::default());
        });
    }

    pub fn write(&mut self, object: Object, at: usize, bytes: &[u8]) {
        self.begin(&[object], &[], |tree| {
            let all = Rc::make_mut(tree.bytes.get_mut(&object).unwrap());
            all.resize(all.len().max(at + bytes.len()), 0);
            all[at..at + bytes.len()].copy_from_slice(bytes);
        });
    }

    pub fn truncate(&mut self, object: Object, size: usize) {
        self.begin(&[object], &[], |tree| Rc::make_mut(tree.bytes.get_mut(&object).unwrap()).resize(size, 0));
    }

    /// Something that is no file comes to a path.
    pub fn make(&mut self, path: &str, node: Node) {
        self.begin(&[], &[above(path)], |tree| drop(tree.names.insert(path.into(), node)));
    }

    pub fn remove(&mut self, path: &str) {
        self.begin(&[], &[above(path)], |tree| drop(tree.names.remove(path)));
    }

    /// What is at `from`, with all below it, goes to `to`.
    pub fn rename(&mut self, from: &str, to: &str) {
        self.begin(&[], &[above(from), above(to)], |tree| {
            let below = format!("{from}/");
            let moves = |name: &String| name == from || name.starts_with(&below);
            let moved: Vec<String> = tree.names.keys().filter(|name| moves(name)).cloned().collect();
            for name in moved {
                let node = tree.names.remove(&name).unwrap();
                tree.names.insert(format!("{to}{}", &name[from.len()..]), node);
            }
        });
    }

    /// How much a sync covers that is asked now: of a file, a folder, or all.
    pub fn covers_file(&self, object: Object) -> usize {
        self.files.get(&object).copied().unwrap_or(0)
    }

    pub fn covers_folder(&self, path: &str) -> usize {
        self.folders.get(path).copied().unwrap_or(0)
    }

    pub fn covers_all(&self) -> usize {
        self.states.len() - 1
    }

    /// A sync that covers so much was acknowledged.
    pub fn acknowledge(&mut self, covers: usize) {
        self.floor = self.floor.max(covers);
    }

    /// A server has ended the volume: all lasts that was asked of it.
    pub fn acknowledge_all(&mut self, life: u32) {
        if life == self.life {
            self.acknowledge(self.covers_all());
        }
    }

    /// The folder was found so in a life of the server: it is one of those that it may be, and from
    /// now on lasts as it is. Else how it differs from each.
    pub fn adopt(&mut self, life: u32, found: BTreeMap<String, Found>) -> Result<(), String> {
        let mut told = String::new();
        for index in (self.floor..self.states.len()).rev() {
            match self.differs(index, &found) {
                Ok(bytes) => {
                    let names = self.states[index].names.clone();
                    let (first, next) = (Tree { names, bytes }, self.next_object);
                    *self = Model { states: vec![Rc::new(first)], next_object: next, life, ..Model::default() };
                    return Ok(());
                }
                Err(how) => told += &format!("\n  not as after change {index} of {}: {how}", self.covers_all()),
            }
        }
        Err(told)
    }

    /// The bytes of all files, if what was found is this state.
    fn differs(&self, index: usize, found: &BTreeMap<String, Found>) -> Result<BTreeMap<Object, Rc<Vec<u8>>>, String> {
        let names = &self.states[index].names;
        if let Some(name) = found.keys().find(|name| !names.contains_key(*name)) {
            return Err(format!("{name} is there"));
        }
        let (mut bytes, mut inodes) = (BTreeMap::new(), BTreeMap::new());
        for (name, node) in names {
            match (node, found.get(name)) {
                (Node::Folder, Some(Found::Folder)) => {}
                (Node::Link(text), Some(Found::Link(other))) if text == other => {}
                (Node::File(object), Some(Found::File(inode, all))) => {
                    if *inodes.entry(*object).or_insert(*inode) != *inode {
                        return Err(format!("{name} is another file"));
                    }
                    self.compare(index, *object, all)
                        .map_err(|at| format!("byte {at} of {name}, {} long", all.len()))?;
                    bytes.insert(*object, Rc::new(all.clone()));
                }
                (_, None) => return Err(format!("{name} is not there")),
                _ => return Err(format!("{name} is something else")),
            }
        }
        let different: BTreeSet<u64> = inodes.values().copied().collect();
        if different.len() == inodes.len() { Ok(bytes) } else { Err("two files are one".into()) }
    }

    /// Each byte is as it was then, or became later.
    fn compare(&self, index: usize, object: Object, found: &[u8]) -> Result<(), usize> {
        let versions: Vec<&[u8]> =
            self.states[index..].iter().filter_map(|tree| tree.bytes.get(&object)).map(|bytes| &bytes[..]).collect();
        if found.len() != versions[0].len() {
            return Err(found.len());
        }
        let is_one = |at: usize| versions.iter().any(|bytes| bytes.get(at).copied().unwrap_or(0) == found[at]);
        if found == versions[0] { Ok(()) } else { (0..found.len()).find(|at| !is_one(*at)).map_or(Ok(()), Err) }
    }
}

/// Something that a program does, at random.
pub fn any(random: &mut Random) -> Op {
    const FILES: [Path; 6] = ["a", "b", "c", "d/a", "d/b", "e/a"];
    const FOLDERS: [Path; 3] = ["", "d", "e"];
    let file = FILES[random.below(FILES.len())];
    let other = FILES[random.below(FILES.len())];
    let folder = FOLDERS[random.below(FOLDERS.len())];
    let at = [0, 1, 4000, 4096, 9000, 30_000][random.below(6)];
    let length = [1, 100, 4096, 10_000, 40_000][random.below(5)];
    match random.below(32) {
        0..3 => Op::Open(file),
        3 => Op::Close(file),
        4..9 => Op::Write(file, at, length),
        9 | 10 => Op::WriteSynced(file, at, length),
        11 | 12 => Op::Read(file),
        13 => Op::Truncate(file, at),
        14..17 => Op::Sync(file),
        17 => Op::DataSync(file),
        18 | 19 => Op::SyncFolder(folder),
        20 => Op::SyncAll,
        21 | 22 => Op::MakeFolder(if random.one_in(2) { "d" } else { "e" }),
        23 => Op::RemoveFolder(if random.one_in(2) { "d" } else { "e" }),
        24 => Op::MakeLink("l", "a/b"),
        25 => Op::Link(file, other),
        26 | 27 => Op::Rename(file, other),
        28 => Op::Remove(if random.one_in(3) { "l" } else { file }),
        29 => Op::UseRemoved,
        30 => Op::CloseRemoved,
        _ => Op::Pause(random.below(4000) as u64),
    }
}
