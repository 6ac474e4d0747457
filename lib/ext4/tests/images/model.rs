//! A tree of files in memory that does what the volume is to do, and random operations on both.

use std::collections::BTreeMap;

use ext4::{Attributes, Error, How, Kind, New, ROOT};

use crate::disk::Random;
use crate::host::Host;

/// Most bytes of a file here.
const SIZE_MAX: usize = 300_000;

/// A file, directory or link.
#[derive(Clone, Debug)]
pub enum Node {
    File(Vec<u8>),
    Link(Vec<u8>),
    /// Names and what they name. The parent is another entry's.
    Directory(BTreeMap<Vec<u8>, u32>),
}

/// A tree, by inode numbers, which the volume gives.
#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: BTreeMap<u32, Node>,
    pub permissions: BTreeMap<u32, u16>,
    /// Inodes without a name that somebody has open.
    pub open: Vec<u32>,
}

fn pick<T: Clone>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len())].clone()
}

fn name(random: &mut Random) -> Vec<u8> {
    let number = random.below(14);
    if number == 0 { vec![b'x'; 255] } else { format!("name-{number}").into_bytes() }
}

fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
    let start = random.below(256);
    (0..count).map(|at| (start + at * 7 + at / 251) as u8).collect()
}

pub fn new(kind: Kind) -> New {
    New { kind, permissions: 0o640, user: 70_000, group: 5, device: 0 }
}

impl Model {
    /// The tree of a new volume.
    pub fn of(host: &mut impl Host) -> Model {
        let names: BTreeMap<Vec<u8>, u32> = host.names(ROOT).into_iter().collect();
        let below = names.values().map(|number| (*number, Node::Directory(BTreeMap::new())));
        let mut nodes: BTreeMap<u32, Node> = below.collect();
        nodes.insert(ROOT, Node::Directory(names));
        Model { nodes, permissions: BTreeMap::new(), open: Vec::new() }
    }

    fn names(&self, directory: u32) -> &BTreeMap<Vec<u8>, u32> {
        match &self.nodes[&directory] {
            Node::Directory(names) => names,
            other => panic!("{other:?}"),
        }
    }

    fn names_mut(&mut self, directory: u32) -> &mut BTreeMap<Vec<u8>, u32> {
        match self.nodes.get_mut(&directory) {
            Some(Node::Directory(names)) => names,
            other => panic!("{other:?}"),
        }
    }

    fn is_directory(&self, number: u32) -> bool {
        matches!(self.nodes[&number], Node::Directory(_))
    }

    fn directories(&self) -> Vec<u32> {
        self.nodes.keys().copied().filter(|number| self.is_directory(*number) && !self.open.contains(number)).collect()
    }

    fn files(&self) -> Vec<u32> {
        let is_file = |number: &u32| matches!(self.nodes[number], Node::File(_));
        self.nodes.keys().copied().filter(is_file).collect()
    }

    fn count(&self, number: u32) -> usize {
        let names = self.nodes.values().filter_map(|node| match node {
            Node::Directory(names) => Some(names),
            _ => None,
        });
        names.map(|names| names.values().filter(|other| **other == number).count()).sum()
    }

    /// Whether `directory` is `above` or below it.
    fn is_inside(&self, directory: u32, above: u32) -> bool {
        directory == above
            || self.is_directory(above)
                && self.names(above).values().any(|next| self.is_directory(*next) && self.is_inside(directory, *next))
    }

    /// A name is gone: what has none any more is open for a while.
    fn lose(&mut self, number: u32) {
        if self.is_directory(number) || self.count(number) == 0 {
            self.open.push(number);
        }
    }

    /// Does something random to both, and compares how it ends.
    pub fn step(&mut self, host: &mut impl Host, random: &mut Random) {
        match random.below(20) {
            0..4 => self.create(host, random),
            4..9 => self.write(host, random),
            9 | 10 => self.truncate(host, random),
            11 | 12 => self.remove(host, random),
            13 | 14 => self.rename(host, random),
            15 => self.link(host, random),
            16 => self.symlink(host, random),
            17 => self.set(host, random),
            18 => self.reclaim(host, random),
            _ if random.below(2) == 0 => host.sync(),
            _ => host.write_places(),
        }
    }

    fn create(&mut self, host: &mut impl Host, random: &mut Random) {
        let (parent, name) = (pick(random, &self.directories()), name(random));
        let is_directory = random.below(3) == 0;
        let kind = if is_directory { Kind::Directory } else { Kind::File };
        let result = host.change(|operation| operation.create(parent, &name, &new(kind)));
        if self.names(parent).contains_key(&name) {
            return assert_eq!(result, Err(Error::Exists));
        }
        let node = if is_directory { Node::Directory(BTreeMap::new()) } else { Node::File(Vec::new()) };
        self.add(parent, name, result.unwrap(), node);
    }

    fn add(&mut self, parent: u32, name: Vec<u8>, number: u32, node: Node) {
        assert!(self.nodes.insert(number, node).is_none(), "inode {number} is given out twice");
        self.permissions.remove(&number);
        self.names_mut(parent).insert(name, number);
    }

    fn symlink(&mut self, host: &mut impl Host, random: &mut Random) {
        let (parent, name) = (pick(random, &self.directories()), name(random));
        let length = pick(random, &[1, 59, 60, 4095]);
        // ext4-view takes no longer names in it than 255 bytes.
        let letter = b'a' + random.below(26) as u8;
        let target: Vec<u8> = (0..length).map(|at| if at % 100 == 99 { b'/' } else { letter }).collect();
        let result = host.change(|operation| operation.symlink(parent, &name, &target, 1, 2));
        if self.names(parent).contains_key(&name) {
            return assert_eq!(result, Err(Error::Exists));
        }
        self.add(parent, name, result.unwrap(), Node::Link(target));
    }

    fn link(&mut self, host: &mut impl Host, random: &mut Random) {
        let (parent, name) = (pick(random, &self.directories()), name(random));
        let number = pick(random, &self.nodes.keys().copied().collect::<Vec<_>>());
        let result = host.change(|operation| operation.link(number, parent, &name));
        if self.names(parent).contains_key(&name) {
            assert_eq!(result, Err(Error::Exists));
        } else if self.is_directory(number) {
            assert_eq!(result, Err(Error::IsDirectory));
        } else if self.open.contains(&number) {
            assert_eq!(result, Err(Error::NotFound));
        } else {
            result.unwrap();
            self.names_mut(parent).insert(name, number);
        }
    }

    fn write(&mut self, host: &mut impl Host, random: &mut Random) {
        let files = self.files();
        if files.is_empty() {
            return;
        }
        let number = pick(random, &files);
        let offset = pick(random, &[0, 1, 4095, 4096, 5000, 40_000, 200_000]) + random.below(3) * 4096;
        let length = pick(random, &[1, 100, 4096, 10_000, 60_000]);
        let bytes = bytes(random, length);
        let Some(Node::File(all)) = self.nodes.get_mut(&number) else { panic!("no file") };
        all.resize(all.len().max(offset + bytes.len()), 0);
        all[offset..offset + bytes.len()].copy_from_slice(&bytes);
        host.write_bytes(number, offset as u64, &bytes).unwrap();
    }

    fn truncate(&mut self, host: &mut impl Host, random: &mut Random) {
        let files = self.files();
        if files.is_empty() {
            return;
        }
        let number = pick(random, &files);
        let Some(Node::File(all)) = self.nodes.get_mut(&number) else { panic!("no file") };
        let size = if random.below(2) == 0 { random.below(all.len() + 1) } else { random.below(SIZE_MAX) };
        all.resize(size, 0);
        host.truncate(number, size as u64);
    }

    fn remove(&mut self, host: &mut impl Host, random: &mut Random) {
        let (parent, name) = (pick(random, &self.directories()), name(random));
        let there = self.names(parent).get(&name).copied();
        let by_unlink = random.below(2) == 0;
        let result = host.change(|operation| match by_unlink {
            true => operation.unlink(parent, &name),
            false => operation.rmdir(parent, &name),
        });
        let Some(number) = there else { return assert_eq!(result, Err(Error::NotFound)) };
        match (by_unlink, self.is_directory(number)) {
            (true, true) => return assert_eq!(result, Err(Error::IsDirectory)),
            (false, false) => return assert_eq!(result, Err(Error::NotDirectory)),
            (false, true) if !self.names(number).is_empty() => return assert_eq!(result, Err(Error::NotEmpty)),
            _ => {}
        }
        self.names_mut(parent).remove(&name);
        self.lose(number);
        let removed = result.unwrap();
        assert_eq!((removed.inode, removed.is_last), (number, self.open.contains(&number)));
    }

    fn rename(&mut self, host: &mut impl Host, random: &mut Random) {
        let (from, to) = (pick(random, &self.directories()), pick(random, &self.directories()));
        let (old, new) = (name(random), name(random));
        let how = pick(random, &[How::Replace, How::Replace, How::NoReplace, How::Exchange]);
        let result = host.change(|operation| operation.rename((from, &old), (to, &new), how));
        let (moved, there) = (self.names(from).get(&old).copied(), self.names(to).get(&new).copied());
        let Some(moved) = moved else { return assert_eq!(result, Err(Error::NotFound)) };
        if let Some(error) = self.rename_error((from, moved), (to, there), how) {
            return assert_eq!(result, Err(error), "{moved} in {from} to {there:?} in {to}, {how:?}");
        }
        let removed = result.unwrap();
        if there == Some(moved) {
            return assert_eq!(removed, None);
        }
        self.names_mut(from).remove(&old);
        self.names_mut(to).insert(new, moved);
        match (how, there) {
            (How::Exchange, Some(there)) => {
                self.names_mut(from).insert(old, there);
            }
            (_, Some(there)) => {
                self.lose(there);
                assert_eq!(removed.map(|removed| removed.is_last), Some(self.open.contains(&there)));
            }
            _ => assert_eq!(removed, None),
        }
    }

    fn rename_error(&self, from: (u32, u32), to: (u32, Option<u32>), how: How) -> Option<Error> {
        let ((from, moved), (to, there)) = (from, to);
        if self.is_directory(moved) && self.is_inside(to, moved) {
            return Some(Error::Invalid);
        }
        let there = match (how, there) {
            (How::NoReplace, Some(_)) => return Some(Error::Exists),
            (How::Exchange, None) => return Some(Error::NotFound),
            (_, there) => there.filter(|there| *there != moved)?,
        };
        if how == How::Exchange {
            return (self.is_directory(there) && self.is_inside(from, there)).then_some(Error::Invalid);
        }
        match (self.is_directory(moved), self.is_directory(there)) {
            (true, false) => Some(Error::NotDirectory),
            (false, true) => Some(Error::IsDirectory),
            (true, true) if !self.names(there).is_empty() => Some(Error::NotEmpty),
            _ => None,
        }
    }

    fn set(&mut self, host: &mut impl Host, random: &mut Random) {
        let number = pick(random, &self.nodes.keys().copied().collect::<Vec<_>>());
        let permissions = random.below(0o1000) as u16;
        let attributes = Attributes { permissions: Some(permissions), ..Attributes::default() };
        host.change(|operation| operation.set(number, &attributes)).unwrap();
        self.permissions.insert(number, permissions);
    }

    /// One that has no name is closed.
    fn reclaim(&mut self, host: &mut impl Host, random: &mut Random) {
        if !self.open.is_empty() {
            let number = self.open.swap_remove(random.below(self.open.len()));
            host.reclaim(number);
            self.nodes.remove(&number);
        }
    }

    /// Closes all that has no name.
    pub fn reclaim_all(&mut self, host: &mut impl Host) {
        for number in core::mem::take(&mut self.open) {
            host.reclaim(number);
            self.nodes.remove(&number);
        }
    }

    /// Compares the volume with the tree; what is open without a name may be gone. Bytes of files
    /// may be those of `later` trees. If it differs, it is said where.
    pub fn compare(&self, later: &[&Model], host: &mut impl Host) -> Result<(), String> {
        for (&number, node) in self.nodes.iter().filter(|(number, _)| !self.open.contains(number)) {
            let inode = host.ask(|volume, blocks| volume.inode(blocks, number)).map_err(|error| error.to_string())?;
            let is_right = match node {
                Node::File(bytes) => {
                    let ours = if inode.kind == Kind::File { host.read(number) } else { return Err("kind".into()) };
                    let later: Vec<&[u8]> = later.iter().filter_map(|model| model.bytes_of(number)).collect();
                    ours.len() == bytes.len()
                        && (0..bytes.len()).all(|at| {
                            let mut others = later.iter().map(|bytes| bytes.get(at).copied().unwrap_or(0));
                            ours[at] == bytes[at] || others.any(|other| ours[at] == other)
                        })
                }
                Node::Link(target) => {
                    host.ask(|volume, blocks| volume.target(blocks, &inode)).is_ok_and(|ours| *ours == target[..])
                }
                Node::Directory(names) => {
                    inode.kind == Kind::Directory
                        && host.names(number).into_iter().collect::<BTreeMap<_, _>>() == *names
                }
            };
            let has_links = self.is_directory(number) || self.count(number) == usize::from(inode.links);
            let permissions = self.permissions.get(&number).copied().unwrap_or(inode.permissions);
            if !is_right || !has_links || permissions != inode.permissions {
                return Err(format!("inode {number}: {inode:?}"));
            }
        }
        Ok(())
    }

    fn bytes_of(&self, number: u32) -> Option<&[u8]> {
        match self.nodes.get(&number) {
            Some(Node::File(bytes)) => Some(bytes),
            _ => None,
        }
    }
}
