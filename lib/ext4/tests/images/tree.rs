//! Work with a tree of files: names, bytes, links, sizes, and files that nobody names.
//!
//! Bytes of files are written in place, so after a cut a sector may be newer than the transaction
//! that is found; all else is exactly as it was. A sector is filled with one tag, and all clones of
//! a tree share the list of the tags that were ever written to it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ext4::{Attributes, Error, How, Inode, Kind, New, Progress, ROOT, SetXattr, Time};

use crate::power::{Failed, Machine, Work};

const SECTOR: usize = 512;
const LOST_FOUND: u32 = 11;
/// Names that there are.
const NAMES: usize = 90;
/// Sectors at which a write begins, at most, and that it has.
const OFFSET_MAX: usize = 1600;
const LENGTH_MAX: usize = 200;

/// What a file, directory or link is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// Sectors, and the tags of those that are not zeros.
    File(u32, BTreeMap<u32, u8>),
    Link(Vec<u8>),
    Directory(BTreeMap<Vec<u8>, u32>),
}

#[derive(Clone, Debug)]
struct Node {
    content: Content,
    permissions: u16,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Of each sector of each inode: which tags were written, after which step.
type Written = BTreeMap<(u32, u32), Vec<(u32, u8)>>;

/// A tree, by inode numbers, which the volume gives.
#[derive(Clone)]
pub struct Tree {
    nodes: BTreeMap<u32, Rc<Node>>,
    /// Inodes without a name, and those of them that may get one.
    open: BTreeSet<u32>,
    unnamed: BTreeSet<u32>,
    /// Files with a name that are being cut off.
    cutting: BTreeSet<u32>,
    steps: u32,
    written: Rc<RefCell<Written>>,
}

fn node(content: Content, permissions: u16) -> Rc<Node> {
    Rc::new(Node { content, permissions, xattrs: BTreeMap::new() })
}

/// What is not done for want of room has not happened.
fn done<T>(result: Result<T, Failed>) -> Option<T> {
    match result {
        Ok(result) => Some(result),
        Err(Failed::Volume(Error::NoSpace)) => None,
        Err(failed) => panic!("{failed:?}"),
    }
}

fn pick<T: Clone>(machine: &mut Machine, from: &[T]) -> Option<T> {
    if from.is_empty() { None } else { Some(from[machine.random.below(from.len())].clone()) }
}

fn name(machine: &mut Machine) -> Vec<u8> {
    let number = machine.random.below(NAMES);
    // Twenty long ones fill a block, so directories become large.
    if number.is_multiple_of(3) { format!("{number}") } else { format!("{number:0>200}") }.into_bytes()
}

impl Tree {
    fn names(&self, directory: u32) -> &BTreeMap<Vec<u8>, u32> {
        match &self.nodes[&directory].content {
            Content::Directory(names) => names,
            other => panic!("{other:?}"),
        }
    }

    fn names_mut(&mut self, directory: u32) -> &mut BTreeMap<Vec<u8>, u32> {
        match &mut self.node_mut(directory).content {
            Content::Directory(names) => names,
            other => panic!("{other:?}"),
        }
    }

    fn node_mut(&mut self, number: u32) -> &mut Node {
        Rc::make_mut(self.nodes.get_mut(&number).expect("the node is there"))
    }

    fn is_directory(&self, number: u32) -> bool {
        matches!(self.nodes[&number].content, Content::Directory(_))
    }

    /// Directories that have a name.
    fn directories(&self) -> Vec<u32> {
        self.nodes.keys().copied().filter(|node| self.is_directory(*node) && !self.open.contains(node)).collect()
    }

    /// Files that can be written.
    fn files(&self) -> Vec<u32> {
        let is_file = |node: &u32| matches!(self.nodes[node].content, Content::File(..));
        self.nodes.keys().copied().filter(|node| is_file(node) && !self.cutting.contains(node)).collect()
    }

    fn links(&self, number: u32) -> usize {
        let directories = self.nodes.values().filter_map(|node| match &node.content {
            Content::Directory(names) => Some(names),
            _ => None,
        });
        directories.flat_map(BTreeMap::values).filter(|other| **other == number).count()
    }

    /// Whether `directory` is `above`, or below it.
    fn is_inside(&self, directory: u32, above: u32) -> bool {
        let below = |next: &u32| self.is_directory(*next) && self.is_inside(directory, *next);
        directory == above || self.names(above).values().any(below)
    }

    /// A name and the directory that has it.
    fn some_name(&self, machine: &mut Machine) -> Option<(u32, Vec<u8>, u32)> {
        let directory = pick(machine, &self.directories())?;
        let names: Vec<_> = self.names(directory).iter().map(|(name, number)| (name.clone(), *number)).collect();
        pick(machine, &names).map(|(name, number)| (directory, name, number))
    }

    /// A directory, and a name that it does not have.
    fn free_name(&self, machine: &mut Machine) -> Option<(u32, Vec<u8>)> {
        let (directory, name) = (pick(machine, &self.directories())?, name(machine));
        (!self.names(directory).contains_key(&name)).then_some((directory, name))
    }

    fn add(&mut self, directory: u32, name: Vec<u8>, number: u32, node: Rc<Node>) {
        assert!(self.nodes.insert(number, node).is_none(), "inode {number} is given out twice");
        self.names_mut(directory).insert(name, number);
    }

    /// A name of `number` is gone.
    fn lose(&mut self, number: u32) {
        if self.is_directory(number) || self.links(number) == 0 {
            self.open.insert(number);
            self.cutting.remove(&number);
        }
    }

    fn create(&mut self, machine: &mut Machine) -> Option<()> {
        let (directory, name) = self.free_name(machine)?;
        let is_directory = machine.random.one_in(5);
        let kind = if is_directory { Kind::Directory } else { Kind::File };
        let new = New { kind, permissions: 0o750, user: 70_000, group: 3, device: 0 };
        let number = done(machine.change(|operation| operation.create(directory, &name, &new)))?;
        let content =
            if is_directory { Content::Directory(BTreeMap::new()) } else { Content::File(0, BTreeMap::new()) };
        let sets_group = if is_directory { self.nodes[&directory].permissions & 0o2000 } else { 0 };
        self.add(directory, name, number, node(content, 0o750 | sets_group));
        Some(())
    }

    fn create_unnamed(&mut self, machine: &mut Machine) -> Option<()> {
        let directory = pick(machine, &self.directories())?;
        let new = New { kind: Kind::File, permissions: 0o640, user: 1, group: 3, device: 0 };
        let number = done(machine.change(|operation| operation.create_unnamed(directory, &new)))?;
        let made = node(Content::File(0, BTreeMap::new()), 0o640);
        assert!(self.nodes.insert(number, made).is_none(), "inode {number} is given out twice");
        self.open.insert(number);
        self.unnamed.insert(number);
        Some(())
    }

    fn link_unnamed(&mut self, machine: &mut Machine) -> Option<()> {
        let (directory, name) = self.free_name(machine)?;
        let number = pick(machine, &self.unnamed.iter().copied().collect::<Vec<_>>())?;
        done(machine.change(|operation| operation.link_unnamed(number, directory, &name)))?;
        self.names_mut(directory).insert(name, number);
        self.unnamed.remove(&number);
        self.open.remove(&number);
        if machine.mount.orphans().contains(&number) {
            self.cutting.insert(number);
        }
        Some(())
    }

    fn symlink(&mut self, machine: &mut Machine) -> Option<()> {
        let (directory, name) = self.free_name(machine)?;
        let target = vec![b'a' + machine.random.below(26) as u8; 1 + machine.random.below(100)];
        let number = done(machine.change(|operation| operation.symlink(directory, &name, &target, 1, 2)))?;
        self.add(directory, name, number, node(Content::Link(target), 0o777));
        Some(())
    }

    fn link(&mut self, machine: &mut Machine) -> Option<()> {
        let ((directory, name), (_, _, number)) = (self.free_name(machine)?, self.some_name(machine)?);
        if self.is_directory(number) {
            return None;
        }
        done(machine.change(|operation| operation.link(number, directory, &name)))?;
        self.names_mut(directory).insert(name, number);
        Some(())
    }

    fn remove(&mut self, machine: &mut Machine) -> Option<()> {
        let (directory, name, number) = self.some_name(machine)?;
        let removed = if !self.is_directory(number) {
            done(machine.change(|operation| operation.unlink(directory, &name)))?
        } else if self.names(number).is_empty() && number != LOST_FOUND {
            done(machine.change(|operation| operation.rmdir(directory, &name)))?
        } else {
            return None;
        };
        self.names_mut(directory).remove(&name);
        self.lose(number);
        assert_eq!((removed.inode, removed.is_last), (number, self.open.contains(&number)));
        Some(())
    }

    fn rename(&mut self, machine: &mut Machine) -> Option<()> {
        let (from, old, moved) = self.some_name(machine)?;
        let (to, new) = match machine.random.one_in(2) {
            true => self.free_name(machine)?,
            false => self.some_name(machine).map(|(to, new, _)| (to, new))?,
        };
        let there = self.names(to).get(&new).copied();
        let exchanges = there.is_some() && machine.random.one_in(2);
        if !self.can_rename((from, moved), (to, there), exchanges) {
            return None;
        }
        let how = if exchanges { How::Exchange } else { How::Replace };
        done(machine.change(|operation| operation.rename((from, &old), (to, &new), how)))?;
        self.names_mut(from).remove(&old);
        self.names_mut(to).insert(new, moved);
        match there {
            Some(there) if exchanges => drop(self.names_mut(from).insert(old, there)),
            Some(there) => self.lose(there),
            None => {}
        }
        Some(())
    }

    fn can_rename(&self, (from, moved): (u32, u32), (to, there): (u32, Option<u32>), exchanges: bool) -> bool {
        let moves_in = self.is_directory(moved) && self.is_inside(to, moved);
        let fits = there.is_none_or(|there| {
            let replaces = self.is_directory(there) == self.is_directory(moved)
                && (!self.is_directory(there) || self.names(there).is_empty());
            let swaps = !self.is_directory(there) || !self.is_inside(from, there);
            there != moved && if exchanges { swaps } else { replaces }
        });
        !moves_in && fits && moved != LOST_FOUND && there != Some(LOST_FOUND)
    }

    /// Notes that these sectors of a file were written.
    fn note(&mut self, number: u32, sectors: impl Iterator<Item = u32>, tag: u8) {
        let mut written = self.written.borrow_mut();
        for sector in sectors {
            written.entry((number, sector)).or_default().push((self.steps, tag));
        }
    }

    fn write(&mut self, machine: &mut Machine) -> Option<()> {
        let number = pick(machine, &self.files())?;
        let random = &mut machine.random;
        let (first, count) = (random.below(OFFSET_MAX) as u32, 1 + random.below(LENGTH_MAX));
        let tag = 1 + random.below(255) as u8;
        let bytes = vec![tag; count * SECTOR];
        let offset = u64::from(first) * SECTOR as u64;
        let count = done(machine.change(|operation| operation.write(number, offset, &bytes)))?;
        assert!(count > 0 && count.is_multiple_of(SECTOR), "{count} bytes are written");
        let sectors = first..first + (count / SECTOR) as u32;
        self.note(number, sectors.clone(), tag);
        let Content::File(size, tags) = &mut self.node_mut(number).content else { panic!("no file") };
        *size = sectors.end.max(*size);
        tags.extend(sectors.map(|sector| (sector, tag)));
        Some(())
    }

    fn truncate(&mut self, machine: &mut Machine) -> Option<()> {
        let number = pick(machine, &self.files())?;
        let to = machine.random.below(OFFSET_MAX) as u32;
        let size = u64::from(to) * SECTOR as u64;
        let progress = done(machine.change(|operation| operation.truncate(number, size)))?;
        // Zeros are written up to the end of the block.
        self.note(number, to..to.next_multiple_of(8), 0);
        let Content::File(size, tags) = &mut self.node_mut(number).content else { panic!("no file") };
        let old = std::mem::replace(size, to);
        tags.retain(|sector, _| *sector < to);
        self.note(number, old..old.next_multiple_of(8), 0);
        if progress == Progress::More && !self.open.contains(&number) {
            self.cutting.insert(number);
        }
        Some(())
    }

    fn trim(&mut self, machine: &mut Machine) -> Option<()> {
        let cutting: Vec<u32> = self.cutting.iter().copied().collect();
        let number = pick(machine, &cutting)?;
        if done(machine.change(|operation| operation.trim(number)))? == Progress::Done {
            self.cutting.remove(&number);
        }
        Some(())
    }

    /// One without a name is closed.
    fn reclaim(&mut self, machine: &mut Machine) -> Option<()> {
        let open: Vec<u32> = self.open.iter().copied().collect();
        let number = pick(machine, &open)?;
        self.unnamed.remove(&number);
        if done(machine.change(|operation| operation.reclaim(number)))? == Progress::Done {
            self.open.remove(&number);
            self.nodes.remove(&number);
        }
        Some(())
    }

    fn set(&mut self, machine: &mut Machine) -> Option<()> {
        let number = pick(machine, &self.nodes.keys().copied().collect::<Vec<_>>())?;
        let permissions = machine.random.below(0o10000) as u16;
        let modified = Time { seconds: machine.random.below(1 << 33) as i64, nanoseconds: 999_999_999 };
        let attributes =
            Attributes { permissions: Some(permissions), modified: Some(modified), ..Attributes::default() };
        done(machine.change(|operation| operation.set(number, &attributes)))?;
        self.node_mut(number).permissions = permissions;
        Some(())
    }

    fn set_xattr(&mut self, machine: &mut Machine) -> Option<()> {
        let number = pick(machine, &self.nodes.keys().copied().collect::<Vec<_>>())?;
        let name = format!("user.{}", machine.random.below(4)).into_bytes();
        if self.nodes[&number].xattrs.contains_key(&name) && machine.random.one_in(2) {
            done(machine.change(|operation| operation.remove_xattr(number, &name)))?;
            self.node_mut(number).xattrs.remove(&name);
            return Some(());
        }
        let value = vec![machine.random.next() as u8; machine.random.below(300)];
        done(machine.change(|operation| operation.set_xattr(number, &name, &value, SetXattr::Any)))?;
        self.node_mut(number).xattrs.insert(name, value);
        Some(())
    }

    fn compare_xattrs(&self, inode: &Inode, machine: &mut Machine) -> Result<(), String> {
        let failed = |failed: Failed| format!("{failed:?}");
        let mut there = BTreeMap::new();
        for name in machine.ask(|volume, blocks| volume.xattrs(blocks, inode)).map_err(failed)? {
            let value = machine.ask(|volume, blocks| volume.xattr(blocks, inode, &name)).map_err(failed)?;
            there.insert(name.to_vec(), value.to_vec());
        }
        let ours = &self.nodes[&inode.number].xattrs;
        if there == *ours { Ok(()) } else { Err(format!("attributes {there:?}, not {ours:?}")) }
    }

    fn compare_node(&self, number: u32, machine: &mut Machine) -> Result<(), String> {
        let inode = machine.inode(number).map_err(|failed| format!("{failed:?}"))?;
        let node = &self.nodes[&number];
        if inode.permissions != node.permissions {
            return Err(format!("permissions {:o}, not {:o}", inode.permissions, node.permissions));
        }
        let links = self.links(number);
        if !self.is_directory(number) && usize::from(inode.links) != links {
            return Err(format!("{} links, not {links}", inode.links));
        }
        self.compare_xattrs(&inode, machine)?;
        match &node.content {
            Content::File(size, tags) => self.compare_file(&inode, *size, tags, machine),
            Content::Link(target) => {
                let there = machine.ask(|volume, blocks| volume.target(blocks, &inode));
                let is_right = there.as_ref().is_ok_and(|there| there[..] == target[..]);
                if is_right { Ok(()) } else { Err(format!("target {there:?}")) }
            }
            Content::Directory(names) => {
                let there = machine.names(&inode).map_err(|failed| format!("{failed:?}"))?;
                if there == *names { Ok(()) } else { Err(format!("names {there:?}, not {names:?}")) }
            }
        }
    }

    fn compare_file(
        &self,
        inode: &Inode,
        size: u32,
        tags: &BTreeMap<u32, u8>,
        machine: &mut Machine,
    ) -> Result<(), String> {
        let all = machine.read(inode).map_err(|failed| format!("{failed:?}"))?;
        if all.len() != size as usize * SECTOR {
            return Err(format!("{} bytes, not {} sectors", all.len(), size));
        }
        let written = self.written.borrow();
        for (bytes, sector) in all.chunks(SECTOR).zip(0u32..) {
            let tag = tags.get(&sector).copied().unwrap_or(0);
            let newer = written.get(&(inode.number, sector)).map_or(&[][..], Vec::as_slice);
            let is_newer = |(step, tag): &(u32, u8)| *step > self.steps && *tag == bytes[0];
            let is_whole = bytes.iter().all(|byte| *byte == bytes[0]);
            if !is_whole || bytes[0] != tag && !newer.iter().any(is_newer) {
                return Err(format!("sector {sector} has {}, not {tag}", bytes[0]));
            }
        }
        Ok(())
    }
}

impl Work for Tree {
    fn begin(machine: &mut Machine) -> Tree {
        let mut nodes = BTreeMap::new();
        for number in [ROOT, LOST_FOUND] {
            let inode = machine.inode(number).unwrap();
            let names = machine.names(&inode).unwrap();
            nodes.insert(number, node(Content::Directory(names), inode.permissions));
        }
        Tree {
            nodes,
            open: BTreeSet::new(),
            unnamed: BTreeSet::new(),
            cutting: BTreeSet::new(),
            steps: 0,
            written: Rc::default(),
        }
    }

    fn step(&mut self, machine: &mut Machine) {
        self.steps += 1;
        let _ = match machine.random.below(29) {
            0..6 => self.create(machine),
            6..11 => self.write(machine),
            11 | 12 => self.truncate(machine),
            13..16 => self.remove(machine),
            16..18 => self.rename(machine),
            18 => self.link(machine),
            19 => self.symlink(machine),
            20 => self.set(machine),
            21 => self.trim(machine),
            22 | 23 => self.set_xattr(machine),
            24 | 25 => self.create_unnamed(machine),
            26 => self.link_unnamed(machine),
            _ => self.reclaim(machine),
        };
    }

    fn finish(&mut self, machine: &mut Machine) -> bool {
        self.steps += 1;
        self.trim(machine).or_else(|| self.reclaim(machine)).is_some()
    }

    fn compare(&self, _: &[&Tree], machine: &mut Machine) -> Result<(), String> {
        let orphans: BTreeSet<u32> = machine.mount.orphans().iter().copied().collect();
        let ours: BTreeSet<u32> = self.open.union(&self.cutting).copied().collect();
        if orphans != ours {
            return Err(format!("orphans {orphans:?}, not {ours:?}"));
        }
        self.nodes.keys().try_for_each(|number| {
            self.compare_node(*number, machine).map_err(|differs| format!("inode {number}: {differs}"))
        })
    }
}
