//! The tree: inodes with names, links, times and contents.
//!
//! Invariants: an inode lives while a name or an open description holds it; a directory has exactly
//! one name, and lists exactly what it names; the root is inode 1 and never goes; `budget` counts
//! exactly the written pages of living files. Operations act whole or not at all.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use contracts::descriptions::{DescriptionError as Error, Entry, Kind, Status};
use contracts::files::{Change, Unnamed, seal};

use system::{NAME_BYTES_MAX, file_name};

use crate::archive::{MemberKind, members};
use crate::data::{Budget, Data, PAGE};
use crate::walk::{Located, walk};

mod renaming;

/// Names an inode; never used again.
pub type InodeId = u64;

/// The root directory.
pub const ROOT: InodeId = 1;
/// Most inodes: what the archive may bring, and as many for programs. Each costs about 200 bytes of
/// the server's heap.
pub const INODES_MAX: usize = 2 * system::ROOT_FILES_MAX;
/// Sectors of 512 bytes of a page.
const SECTORS: u64 = PAGE as u64 / 512;
/// Bytes of one answer with entries: a message of the contract carries 888.
const ENTRIES_BYTES_MAX: usize = 700;
/// Encoded size of an entry besides its name, at most.
const ENTRY_BYTES: usize = 14;
/// The store's device number.
pub const DEVICE: u64 = contracts::files::STORE_DEVICE;

/// What an inode holds.
#[derive(Debug)]
pub enum Content {
    /// Bytes.
    File(Data),
    /// A directory.
    Directory {
        /// What is in it.
        names: BTreeMap<String, InodeId>,
        /// The same in the order of listing.
        listed: BTreeSet<(InodeId, String)>,
        /// The directory above.
        parent: InodeId,
    },
    /// A symbolic link.
    Link(String),
    /// A character device, major << 8 | minor.
    Device(u32),
    /// What a socket is bound to.
    Socket,
    /// A named pipe, which is at `process`.
    Pipe,
    /// Where /proc is mounted.
    Processes,
    /// Where the volume on the disk is.
    Volume,
}

/// One inode.
#[derive(Debug)]
pub struct Inode {
    /// What it holds.
    pub content: Content,
    permissions: u32,
    user: u32,
    group: u32,
    links: u32,
    opens: u32,
    modified_ns: u64,
    accessed_ns: u64,
    /// It may be given a name though it has none.
    may_link: bool,
    /// What cannot be done to it, as `seal::*`; `None` if it cannot be sealed.
    seals: Option<u32>,
}

/// The store.
#[derive(Debug)]
pub struct Store {
    inodes: BTreeMap<InodeId, Inode>,
    last_id: InodeId,
    /// Where the volume is mounted, and the directory that this is in.
    volume: Option<(InodeId, InodeId)>,
    /// Pages written and allowed.
    pub budget: Budget,
}

impl Content {
    /// A directory with nothing in it.
    pub fn empty_directory(parent: InodeId) -> Content {
        Content::Directory { names: BTreeMap::new(), listed: BTreeSet::new(), parent }
    }
}

impl Inode {
    /// Its type as clients see it.
    pub fn kind(&self) -> Kind {
        match self.content {
            Content::File(_) => Kind::File,
            Content::Directory { .. } | Content::Processes | Content::Volume => Kind::Directory,
            Content::Link(_) => Kind::SymbolicLink,
            Content::Device(number) if number >> 8 == 5 => Kind::Terminal,
            Content::Device(_) => Kind::Device,
            Content::Socket => Kind::Socket,
            Content::Pipe => Kind::Pipe,
        }
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    match name {
        "" | "." | ".." => Err(Error::Exists),
        name if name.len() > NAME_BYTES_MAX => Err(Error::NameTooLong),
        name if name.contains(['/', '\0']) => Err(Error::Invalid),
        _ => Ok(()),
    }
}

impl Store {
    /// An empty root that may hold so many written pages.
    pub fn new(pages_limit: u64) -> Store {
        let mut store = Store {
            inodes: BTreeMap::new(),
            last_id: ROOT,
            volume: None,
            budget: Budget { used: 0, limit: pages_limit },
        };
        let content = Content::empty_directory(ROOT);
        store.inodes.insert(ROOT, Inode { links: 1, ..inode(content, 0o755, 0) });
        store
    }

    /// An inode that must be there.
    pub fn get(&self, id: InodeId) -> Result<&Inode, Error> {
        self.inodes.get(&id).ok_or(Error::BadId)
    }

    fn get_mut(&mut self, id: InodeId) -> Result<&mut Inode, Error> {
        self.inodes.get_mut(&id).ok_or(Error::BadId)
    }

    /// Names of a directory. `NotDirectory`.
    pub fn names(&self, id: InodeId) -> Result<(&BTreeMap<String, InodeId>, InodeId), Error> {
        match &self.get(id)?.content {
            Content::Directory { names, parent, .. } => Ok((names, *parent)),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Puts a name into a directory, for whatever was there before.
    fn put_name(&mut self, id: InodeId, name: &str, inode: InodeId) -> Result<(), Error> {
        self.take_name(id, name)?;
        match &mut self.get_mut(id)?.content {
            Content::Directory { names, listed, .. } => {
                names.insert(name.into(), inode);
                listed.insert((inode, name.into()));
                Ok(())
            }
            _ => Err(Error::NotDirectory),
        }
    }

    /// Takes a name out, if it is there.
    fn take_name(&mut self, id: InodeId, name: &str) -> Result<(), Error> {
        match &mut self.get_mut(id)?.content {
            Content::Directory { names, listed, .. } => {
                if let Some((name, inode)) = names.remove_entry(name) {
                    listed.remove(&(inode, name));
                }
                Ok(())
            }
            _ => Err(Error::NotDirectory),
        }
    }

    /// By which path a file was opened that had `name` in `directory`; ` (deleted)` is behind it if
    /// that no longer leads there.
    pub fn path_by(&self, (directory, name): (InodeId, &str), id: InodeId) -> String {
        let is_there = self.names(directory).is_ok_and(|(names, _)| names.get(name) == Some(&id));
        let above = self.path_of(directory).unwrap_or_default();
        let gone = if is_there { "" } else { " (deleted)" };
        format!("{}/{name}{gone}", above.trim_end_matches('/'))
    }

    /// Where a directory is. `NotFound` if it was removed.
    pub fn path_of(&self, mut id: InodeId) -> Result<String, Error> {
        let mut path = String::new();
        while id != ROOT {
            let above = match self.get(id)?.content {
                Content::Directory { parent, .. } => parent,
                Content::Processes => ROOT,
                _ => return Err(Error::NotDirectory),
            };
            let names = self.names(above).map_err(|_| Error::NotFound)?.0;
            let (name, _) = names.iter().find(|(_, inode)| **inode == id).ok_or(Error::NotFound)?;
            path.insert_str(0, name);
            path.insert(0, '/');
            id = above;
        }
        Ok(if path.is_empty() { "/".into() } else { path })
    }

    /// Makes an inode under a new name. A directory's parent is set here. `Exists`, `NoSpace`,
    /// `NameTooLong`, `NotFound` if the directory was removed.
    pub fn create(
        &mut self,
        directory: InodeId,
        name: &str,
        mut content: Content,
        permissions: u32,
        now_ns: u64,
    ) -> Result<InodeId, Error> {
        check_name(name)?;
        if self.get(directory)?.links == 0 {
            return Err(Error::NotFound);
        }
        if self.names(directory)?.0.contains_key(name) {
            return Err(Error::Exists);
        }
        if let Content::Directory { parent, .. } = &mut content {
            *parent = directory;
        }
        let id = self.add(Inode { links: 1, ..inode(content, permissions, now_ns) })?;
        self.put_name(directory, name, id)?;
        self.touch(directory, now_ns);
        Ok(id)
    }

    fn add(&mut self, inode: Inode) -> Result<InodeId, Error> {
        if self.inodes.len() >= INODES_MAX {
            return Err(Error::NoSpace);
        }
        self.last_id += 1;
        self.inodes.insert(self.last_id, inode);
        Ok(self.last_id)
    }

    /// Makes an empty file without a name and opens it, as [`Store::open`] does. `NoSpace`.
    pub fn open_unnamed(&mut self, permissions: u32, purpose: Unnamed, now_ns: u64) -> Result<InodeId, Error> {
        let (may_link, seals) = match purpose {
            Unnamed::Temporary { may_link } => (may_link, None),
            Unnamed::Memory { may_seal } => (false, Some(if may_seal { 0 } else { seal::SEAL })),
        };
        let made = inode(Content::File(Data::default()), permissions, now_ns);
        self.add(Inode { opens: 1, may_link, seals, ..made })
    }

    /// The seals of a file. `Invalid` if it cannot have any.
    pub fn seals(&self, id: InodeId) -> Result<u32, Error> {
        self.get(id)?.seals.ok_or(Error::Invalid)
    }

    /// Adds seals. `Invalid` as for [`Store::seals`] and for none that is known, `Denied` if they
    /// are sealed.
    pub fn add_seals(&mut self, id: InodeId, seals: u32) -> Result<(), Error> {
        const ALL: u32 = seal::SEAL | seal::SHRINK | seal::GROW | seal::WRITE | seal::FUTURE_WRITE;
        let old = self.seals(id)?;
        if seals & !ALL != 0 {
            return Err(Error::Invalid);
        }
        if old & seal::SEAL != 0 {
            return Err(Error::Denied);
        }
        self.get_mut(id)?.seals = Some(old | seals);
        Ok(())
    }

    /// Whose a new inode is that is, or could be, in a directory: in one with set-group-ID its
    /// group's, and a directory there has that bit, too.
    pub fn assign_owner(&mut self, id: InodeId, directory: InodeId, (user, group): (u32, u32)) {
        const SET_GROUP_ID: u32 = 0o2000;
        let above = self.inodes.get(&directory).map_or((0, group), |above| (above.permissions, above.group));
        let Some(inode) = self.inodes.get_mut(&id) else { return };
        (inode.user, inode.group) = (user, group);
        if above.0 & SET_GROUP_ID != 0 {
            inode.group = above.1;
            inode.permissions |= if inode.kind() == Kind::Directory { SET_GROUP_ID } else { 0 };
        }
    }

    fn touch(&mut self, id: InodeId, now_ns: u64) {
        if let Some(inode) = self.inodes.get_mut(&id) {
            inode.modified_ns = now_ns;
        }
    }

    /// A second name for a file. `Denied` for directories.
    pub fn link(&mut self, existing: InodeId, directory: InodeId, name: &str, now_ns: u64) -> Result<(), Error> {
        check_name(name)?;
        if self.get(existing)?.kind() == Kind::Directory {
            return Err(Error::Denied);
        }
        let file = self.get(existing)?;
        if self.get(directory)?.links == 0 || file.links == 0 && !file.may_link {
            return Err(Error::NotFound);
        }
        if self.names(directory)?.0.contains_key(name) {
            return Err(Error::Exists);
        }
        self.put_name(directory, name, existing)?;
        self.get_mut(existing)?.links += 1;
        self.touch(directory, now_ns);
        Ok(())
    }

    /// Removes a name. `wants_directory` must fit the inode: `NotDirectory`, `IsDirectory`;
    /// `NotEmpty`.
    pub fn remove(&mut self, directory: InodeId, name: &str, wants_directory: bool, now_ns: u64) -> Result<(), Error> {
        let id = *self.names(directory)?.0.get(name).ok_or(Error::NotFound)?;
        self.check_removable(id, wants_directory)?;
        self.take_name(directory, name)?;
        self.touch(directory, now_ns);
        self.unlink(id)
    }

    fn check_removable(&self, id: InodeId, wants_directory: bool) -> Result<(), Error> {
        match &self.get(id)?.content {
            Content::Processes => Err(Error::Denied),
            Content::Volume if wants_directory => Err(Error::Busy),
            Content::Volume => Err(Error::IsDirectory),
            Content::Directory { .. } if !wants_directory => Err(Error::IsDirectory),
            Content::Directory { names, .. } if !names.is_empty() => Err(Error::NotEmpty),
            Content::Directory { .. } => Ok(()),
            _ if wants_directory => Err(Error::NotDirectory),
            _ => Ok(()),
        }
    }

    fn unlink(&mut self, id: InodeId) -> Result<(), Error> {
        self.get_mut(id)?.links -= 1;
        self.collect(id);
        Ok(())
    }

    fn collect(&mut self, id: InodeId) {
        let gone = self.inodes.get(&id).is_some_and(|inode| inode.links == 0 && inode.opens == 0);
        if gone && let Some(Inode { content: Content::File(mut data), .. }) = self.inodes.remove(&id) {
            data.clear(&mut self.budget);
        }
    }

    /// A description holds it now.
    pub fn open(&mut self, id: InodeId) -> Result<(), Error> {
        self.get_mut(id)?.opens += 1;
        Ok(())
    }

    /// No longer; a file without names goes.
    pub fn close(&mut self, id: InodeId) {
        if let Some(inode) = self.inodes.get_mut(&id) {
            inode.opens = inode.opens.saturating_sub(1);
            self.collect(id);
        }
    }

    /// The bytes of a file. `IsDirectory`, `Invalid` for others.
    pub fn data(&self, id: InodeId) -> Result<&Data, Error> {
        match &self.get(id)?.content {
            Content::File(data) => Ok(data),
            Content::Directory { .. } | Content::Processes | Content::Volume => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Writes into a file.
    pub fn write(&mut self, id: InodeId, at: u64, bytes: &[u8], now_ns: u64) -> Result<usize, Error> {
        let inode = self.inodes.get_mut(&id).ok_or(Error::BadId)?;
        let Content::File(data) = &mut inode.content else { return Err(Error::Invalid) };
        let seals = inode.seals.unwrap_or(0);
        // What cannot grow takes what it has room for.
        let room = if seals & seal::GROW != 0 { data.size().saturating_sub(at) } else { u64::MAX };
        let bytes = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        if seals & (seal::WRITE | seal::FUTURE_WRITE) != 0 || room == 0 {
            return Err(Error::Denied);
        }
        inode.modified_ns = now_ns;
        data.write(at, bytes, &mut self.budget)
    }

    /// Sets a file's size.
    pub fn resize(&mut self, id: InodeId, size: u64, now_ns: u64) -> Result<(), Error> {
        let inode = self.inodes.get_mut(&id).ok_or(Error::BadId)?;
        match &mut inode.content {
            Content::File(data) => {
                let seals = inode.seals.unwrap_or(0);
                if size < data.size() && seals & seal::SHRINK != 0 || size > data.size() && seals & seal::GROW != 0 {
                    return Err(Error::Denied);
                }
                inode.modified_ns = now_ns;
                data.resize(size, &mut self.budget)
            }
            Content::Directory { .. } => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// stat.
    pub fn status(&self, id: InodeId) -> Result<Status, Error> {
        let inode = self.get(id)?;
        let (size, special) = match &inode.content {
            Content::File(data) => (data.size(), 0),
            Content::Directory { names, .. } => (names.len() as u64 * 32, 0),
            Content::Link(target) => (file_name::to_bytes(target).len() as u64, 0),
            Content::Device(number) => (0, *number),
            Content::Socket | Content::Pipe | Content::Processes | Content::Volume => (0, 0),
        };
        // A directory counts its own "." and its children's "..".
        let links = match &inode.content {
            Content::Directory { names, .. } => {
                let folders = names
                    .values()
                    .filter(|id| self.get(**id).is_ok_and(|inode| inode.kind() == Kind::Directory))
                    .count();
                if inode.links == 0 { 0 } else { 2 + folders as u32 }
            }
            _ => inode.links,
        };
        let sectors = if let Content::File(data) = &inode.content { data.pages() * SECTORS } else { 0 };
        Ok(Status {
            kind: inode.kind(),
            permissions: inode.permissions,
            size,
            inode: id,
            device: DEVICE,
            links,
            user: inode.user,
            group: inode.group,
            special,
            sectors,
            modified_ns: inode.modified_ns,
            accessed_ns: inode.accessed_ns,
        })
    }

    /// chmod, chown, utimens.
    pub fn change(&mut self, id: InodeId, change: &Change) -> Result<(), Error> {
        let inode = self.get_mut(id)?;
        inode.permissions = change.permissions.map_or(inode.permissions, |permissions| permissions & 0o7777);
        inode.user = change.user.unwrap_or(inode.user);
        inode.group = change.group.unwrap_or(inode.group);
        inode.modified_ns = change.modified_ns.unwrap_or(inode.modified_ns);
        inode.accessed_ns = change.accessed_ns.unwrap_or(inode.accessed_ns);
        Ok(())
    }

    /// Directory entries after `from` (0 = from the start; `.` and `..` come first), and where to
    /// go on.
    ///
    /// Cookies: 1 and 2 after the dots, then inode number + 2. Names are listed by inode, so what
    /// is added or removed meanwhile moves no other.
    pub fn entries(&self, id: InodeId, from: u64, limit: usize) -> Result<(Vec<Entry>, u64), Error> {
        let Content::Directory { listed, parent, .. } = &self.get(id)?.content else {
            return Err(Error::NotDirectory);
        };
        let dots = [(1, ".", id), (2, "..", *parent)].into_iter().filter(|(cookie, ..)| *cookie > from);
        // Hard links in one directory share an inode number: they get the same cookie, so such a
        // run is never split. Nothing that was listed is looked at again: all from there on is new.
        let first = (from.saturating_sub(1), String::new());
        let named = listed.range(first..).map(|(inode, name)| (inode + 2, name.as_str(), *inode));
        let mut entries = Vec::new();
        let mut next = from;
        let mut bytes = 0;
        for (cookie, name, inode) in dots.chain(named) {
            bytes += name.len() + ENTRY_BYTES;
            if (entries.len() >= limit || bytes > ENTRIES_BYTES_MAX) && cookie != next && !entries.is_empty() {
                break;
            }
            entries.push(Entry { name: name.into(), inode, kind: self.get(inode)?.kind() });
            next = cookie;
        }
        Ok((entries, next))
    }

    /// Fills the root from the archive's members below `folder/`, with their owners and times.
    /// Members of one number are names of one file, whose bytes the first has. Gives how many were
    /// taken; damage and double names end it early.
    pub fn fill(&mut self, archive: &'static [u8], folder: &str) -> Result<usize, Error> {
        let mut taken = 0;
        let mut files = BTreeMap::new();
        for member in members(archive) {
            let member = member.map_err(|_| Error::Failed)?;
            let Some(path) = member.path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) else { continue };
            let content = match member.kind {
                MemberKind::File => Content::File(Data::over(member.bytes)),
                MemberKind::Directory => Content::empty_directory(ROOT),
                MemberKind::SymbolicLink => {
                    Content::Link(core::str::from_utf8(member.bytes).map_err(|_| Error::Failed)?.into())
                }
                MemberKind::Other => continue,
            };
            let now_ns = u64::from(member.modified_seconds) * 1_000_000_000;
            let (directory, name) = self.make_way(path, now_ns)?;
            let directory_ns = self.get(directory)?.modified_ns;
            let is_shared = member.kind == MemberKind::File && member.links > 1;
            if is_shared && let Some(file) = files.get(&member.number) {
                self.link(*file, directory, name, now_ns)?;
            } else {
                match self.create(directory, name, content, member.permissions, now_ns) {
                    // A directory that was made on the way to an earlier member.
                    Err(Error::Exists) if member.kind == MemberKind::Directory => {}
                    other => {
                        let made = other?;
                        let inode = self.get_mut(made)?;
                        (inode.user, inode.group) = (member.user, member.group);
                        files.insert(member.number, made);
                    }
                }
            }
            // What is put into a directory here does not change it.
            self.touch(directory, directory_ns);
            taken += 1;
        }
        Ok(taken)
    }

    /// The directory a member belongs in, made if the archive lists it late or never.
    fn make_way<'a>(&mut self, path: &'a str, now_ns: u64) -> Result<(InodeId, &'a str), Error> {
        let Some((above, name)) = path.rsplit_once('/') else { return Ok((ROOT, path)) };
        let mut at = ROOT;
        for part in above.split('/') {
            at = match self.names(at)?.0.get(part) {
                Some(id) => *id,
                None => self.make_directory(at, part, 0o755, now_ns)?,
            };
        }
        Ok((at, name))
    }

    /// An empty directory.
    pub fn make_directory(&mut self, at: InodeId, name: &str, permissions: u32, now_ns: u64) -> Result<InodeId, Error> {
        self.create(at, name, Content::empty_directory(at), permissions, now_ns)
    }

    /// Has the volume seen at an absolute path, whose directories are made if they are not there.
    /// What is in the last is hidden. `NotDirectory`, `Loop` and the like; `Exists` for the root
    /// and for /proc.
    pub fn mount(&mut self, path: &str) -> Result<(), Error> {
        let mut at = ROOT;
        let mut last = None;
        for end in path
            .char_indices()
            .filter(|(index, each)| *each == '/' && *index > 0)
            .map(|(index, _)| index)
            .chain([path.len()])
        {
            let walked = walk(self, &path[..end], true)?;
            at = match walked.place {
                Located::Inode(inode) => inode,
                Located::Vacant { directory, name } => self.make_directory(directory, &name, 0o755, 0)?,
                Located::Processes(_) | Located::Beyond(_) => return Err(Error::Exists),
            };
            last = Some(self.names(at)?.1);
        }
        let above = last.filter(|_| at != ROOT).ok_or(Error::Exists)?;
        self.get_mut(at)?.content = Content::Volume;
        self.volume = Some((at, above));
        Ok(())
    }

    /// Adds /dev, /proc and /tmp, if the archive did not bring them. Gives the number of the file
    /// for what is said to the log, unless the archive brought another.
    pub fn add_missing_directories(&mut self) -> Result<Option<InodeId>, Error> {
        const DEVICES: [(&str, u32); 7] = [
            ("null", 0x103),
            ("zero", 0x105),
            ("full", 0x107),
            ("random", 0x108),
            ("urandom", 0x109),
            ("tty", 0x500),
            ("console", 0x501),
        ];
        const LINKS: [(&str, &str); 4] = [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ];
        let fine = |result: Result<InodeId, Error>| match result {
            Ok(_) | Err(Error::Exists) => Ok(()),
            Err(error) => Err(error),
        };
        fine(self.make_directory(ROOT, "dev", 0o755, 0))?;
        fine(self.make_directory(ROOT, "tmp", 0o1777, 0))?;
        let dev = *self.names(ROOT)?.0.get("dev").ok_or(Error::Failed)?;
        // Where the C library has semaphores and memory that have names.
        fine(self.make_directory(dev, "shm", 0o1777, 0))?;
        for (name, number) in DEVICES {
            fine(self.create(dev, name, Content::Device(number), 0o666, 0))?;
        }
        for (name, target) in LINKS {
            fine(self.create(dev, name, Content::Link(target.into()), 0o777, 0))?;
        }
        if self.names(ROOT)?.0.contains_key("proc") {
            self.remove(ROOT, "proc", true, 0)?;
        }
        self.create(ROOT, "proc", Content::Processes, 0o555, 0)?;
        match self.create(dev, "log", Content::Socket, 0o666, 0) {
            Err(Error::Exists) => Ok(None),
            made => made.map(Some),
        }
    }
}

fn inode(content: Content, permissions: u32, now_ns: u64) -> Inode {
    Inode {
        content,
        permissions: permissions & 0o7777,
        user: 0,
        group: 0,
        links: 0,
        opens: 0,
        modified_ns: now_ns,
        accessed_ns: now_ns,
        may_link: false,
        seals: None,
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
