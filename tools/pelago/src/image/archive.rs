//! The boot archive: an uncompressed `newc` cpio, the format Linux documents for its initial RAM
//! disk.
//!
//! Invariants: every folder precedes what is in it, and what is in it lies in no link; paths are
//! relative, without `.` or `..`, in the text of [`system::file_name`]; the system's own files come
//! before the Linux programs' root directory, since kernel and monitor search from the start;
//! entries come in one order whatever the host's directory order, so equal inputs give equal bytes;
//! a content of a page or more begins on a page, so that a program's text can be mapped where it
//! lies (the name is padded with zeros, as dracut-cpio does it).
//!
//! Links of the root directory are followed as a program there would: what is added below `bin`
//! where `bin` leads to `usr/bin` goes to `usr/bin`, whichever came first.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use system::ROOT_FOLDER;

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const KIND: u32 = 0o170_000;
const PAGE_BYTES: usize = 4096;
/// Before the name.
const HEADER_BYTES: usize = 110;
/// Links followed on one way, as Linux has it.
const LINKS_MAX: usize = 40;

/// Entries by path.
#[derive(Default)]
pub struct Archive {
    entries: BTreeMap<String, Entry>,
}

/// Ids of a user and a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
}

struct Entry {
    mode: u32,
    owner: Owner,
    /// Seconds since 1970.
    modified: u32,
    content: Content,
    /// Device and inode of the host's file, if that has several names.
    shared: Option<(u64, u64)>,
}

enum Content {
    Bytes(Vec<u8>),
    /// Read when the archive is written.
    OfHost {
        path: PathBuf,
        bytes: u64,
    },
}

/// What is known of a file of the host.
pub struct HostFile {
    pub path: PathBuf,
    pub bytes: u64,
    pub permissions: u32,
    pub modified: u32,
    pub owner: Owner,
    /// Device and inode, if it has several names.
    pub shared: Option<(u64, u64)>,
}

impl Entry {
    fn new(mode: u32, content: Vec<u8>) -> Entry {
        Entry { mode, owner: Owner::default(), modified: 0, content: Content::Bytes(content), shared: None }
    }

    fn is(&self, kind: u32) -> bool {
        self.mode & KIND == kind
    }

    /// Where a link leads.
    fn target(&self) -> Option<&str> {
        match &self.content {
            Content::Bytes(bytes) if self.is(LINK) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    fn bytes(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::OfHost { bytes, .. } => *bytes,
        }
    }
}

impl Archive {
    /// Adds a regular file; `permissions` are the low twelve mode bits. An earlier file of that
    /// path is replaced.
    pub fn file(&mut self, path: &str, permissions: u32, content: Vec<u8>) {
        self.insert(path, Entry::new(FILE | permissions & 0o7777, content));
    }

    /// Adds a file of the host, with its time.
    pub fn host_file(&mut self, path: &str, file: HostFile) {
        let HostFile { path: host, bytes, permissions, modified, owner, shared } = file;
        let content = Content::OfHost { path: host, bytes };
        self.insert(path, Entry { mode: FILE | permissions & 0o7777, owner, modified, content, shared });
    }

    /// Adds a symbolic link. What was in a folder of that path goes to where the link leads.
    pub fn link(&mut self, path: &str, target: &str) {
        self.link_of(path, target, 0);
    }

    /// As [`link`](Self::link), with its time.
    pub fn link_of(&mut self, path: &str, target: &str, modified: u32) {
        self.insert(path, Entry { modified, ..Entry::new(LINK | 0o777, target.into()) });
    }

    /// Adds a folder.
    pub fn folder(&mut self, path: &str, permissions: u32) {
        self.folder_of(path, permissions, 0, Owner::default());
    }

    /// As [`folder`](Self::folder), with its time and owner.
    pub fn folder_of(&mut self, path: &str, permissions: u32, modified: u32, owner: Owner) {
        self.insert(path, Entry { modified, owner, ..Entry::new(FOLDER | permissions & 0o7777, Vec::new()) });
    }

    /// Adds all entries of another archive.
    pub fn merge(&mut self, other: Archive) {
        for (path, entry) in other.entries {
            self.insert(&path, entry);
        }
    }

    /// True if `path` leads to a regular file.
    pub fn has_file(&self, path: &str) -> bool {
        self.entry(path).is_some_and(|entry| entry.is(FILE))
    }

    /// True if `path` leads to a file that somebody may execute.
    pub fn is_program(&self, path: &str) -> bool {
        self.entry(path).is_some_and(|entry| entry.is(FILE) && entry.mode & 0o111 != 0)
    }

    /// True if `path` leads to a folder.
    pub fn has_folder(&self, path: &str) -> bool {
        self.entry(path).is_some_and(|entry| entry.is(FOLDER))
    }

    /// True if there is a link at `path`, wherever it leads.
    pub fn has_link(&self, path: &str) -> bool {
        self.entries.get(&self.located(&clean(path))).is_some_and(|entry| entry.is(LINK))
    }

    /// The first file of that name in a folder or one of its folders, but for links.
    pub fn find_below(&self, folder: &str, name: &str) -> Option<&str> {
        let folder = self.real(folder) + "/";
        let below = self.entries.range(folder.clone()..).take_while(|(path, _)| path.starts_with(&folder));
        let is_it = |path: &str| path.rsplit('/').next() == Some(name);
        below.filter(|(path, entry)| is_it(path) && entry.is(FILE)).map(|(path, _)| path.as_str()).next()
    }

    /// The first bytes of the file that `path` leads to, at most `limit`.
    pub fn read(&self, path: &str, limit: u64) -> Option<Result<Vec<u8>>> {
        let entry = self.entry(path).filter(|entry| entry.is(FILE))?;
        Some(match &entry.content {
            Content::Bytes(bytes) => Ok(bytes.iter().copied().take(limit as usize).collect()),
            Content::OfHost { path, .. } => crate::host::files::read_start(path, limit),
        })
    }

    /// The host's file that `path` leads to, if its bytes come from there.
    pub fn source(&self, path: &str) -> Option<&Path> {
        match &self.entry(path)?.content {
            Content::OfHost { path, .. } => Some(path),
            Content::Bytes(_) => None,
        }
    }

    /// Where `path` leads, in the archive.
    pub fn real(&self, path: &str) -> String {
        self.located(&(clean(path) + "/.")).trim_end_matches("/.").to_owned()
    }

    /// Bytes of all contents.
    pub fn content_bytes(&self) -> u64 {
        self.entries.values().map(Entry::bytes).sum()
    }

    fn entry(&self, path: &str) -> Option<&Entry> {
        self.entries.get(&self.real(path))
    }

    /// Follows the links above the last part. What leads in a circle stays as it is, and is found
    /// when the archive is written.
    fn located(&self, path: &str) -> String {
        let mut rest: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut at: Vec<String> = Vec::new();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            match part.as_str() {
                "" | "." if !rest.is_empty() || part.is_empty() => continue,
                // The root's parent is the root.
                ".." if at.len() == 1 && at[0] == ROOT_FOLDER => continue,
                ".." => drop(at.pop()),
                _ => at.push(part),
            }
            if rest.is_empty() {
                break;
            }
            let Some(target) = self.entries.get(&at.join("/")).and_then(Entry::target) else { continue };
            links += 1;
            if links > LINKS_MAX {
                return path.to_owned();
            }
            at.pop();
            if target.starts_with('/') {
                at = vec![ROOT_FOLDER.to_owned()];
            }
            rest.extend(target.split('/').rev().map(str::to_owned));
        }
        at.join("/")
    }

    fn insert(&mut self, path: &str, entry: Entry) {
        let path = self.located(&clean(path));
        if path.is_empty() {
            return;
        }
        for (index, _) in path.match_indices('/') {
            let parent = || Entry::new(FOLDER | 0o755, Vec::new());
            self.entries.entry(path[..index].to_owned()).or_insert_with(parent);
        }
        let there = self.entries.get(&path);
        if entry.is(FOLDER) && there.is_some_and(|there| there.is(LINK)) && !self.leads_nowhere(&path) {
            let target = self.real(&path);
            self.entries.entry(target).or_insert(entry);
            return;
        }
        let is_emptied = there.is_some_and(|there| there.is(FOLDER)) && entry.is(LINK);
        self.entries.insert(path.clone(), entry);
        if is_emptied {
            let start = path + "/";
            let below: Vec<_> = self
                .entries
                .range(start.clone()..)
                .map(|(path, _)| path.clone())
                .take_while(|path| path.starts_with(&start))
                .collect();
            let moved: Vec<_> = below.into_iter().filter_map(|path| self.entries.remove_entry(&path)).collect();
            moved.into_iter().for_each(|(path, entry)| self.insert(&path, entry));
        }
    }

    /// A link in a circle, or to what is above the archive.
    fn leads_nowhere(&self, link: &str) -> bool {
        let real = self.real(link);
        real.is_empty() || real == link
    }

    /// Writes it as a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        self.check()?;
        crate::host::files::write_by(path, |out| self.encode(out))
    }

    /// What the guest could not take is told here, by its name.
    fn check(&self) -> Result<()> {
        for (path, entry) in &self.entries {
            if let Some((parent, _)) = path.rsplit_once('/') {
                let parent_is_folder = self.entries.get(parent).is_some_and(|parent| parent.is(FOLDER));
                ensure!(
                    parent_is_folder,
                    "{path} cannot lie in {parent}, which is a file, or a link in a circle; leave out one of them"
                );
            }
            let name_bytes = path.rsplit('/').next().unwrap_or(path).len();
            ensure!(
                name_bytes <= system::NAME_BYTES_MAX,
                "the name {path} is too long for the guest by {} bytes; rename it",
                name_bytes - system::NAME_BYTES_MAX
            );
            ensure!(
                u32::try_from(entry.bytes()).is_ok(),
                "{path} has {} bytes, and a file that is copied in has less than 4 GiB; leave it out",
                entry.bytes()
            );
        }
        let files = self.entries.keys().filter(|path| is_in_root(path)).count();
        let most = system::ROOT_FILES_MAX;
        ensure!(files <= most, "{files} files and folders are copied in, and the guest holds {most}; leave some out");
        Ok(())
    }

    fn encode(&self, out: &mut impl Write) -> Result<()> {
        let mut names = BTreeMap::<(u64, u64), u32>::new();
        for shared in self.entries.values().filter_map(|entry| entry.shared) {
            *names.entry(shared).or_default() += 1;
        }
        let mut numbers = BTreeMap::new();
        let (own, root): (Vec<_>, Vec<_>) = self.entries.iter().partition(|(path, _)| !is_in_root(path));
        let mut out = Counted { out, bytes: 0 };
        for (next, (path, entry)) in (1..).zip(own.into_iter().chain(root)) {
            let links = entry.shared.and_then(|shared| names.get(&shared)).copied().unwrap_or(1);
            let number = entry.shared.map_or(next, |shared| *numbers.entry(shared).or_insert(next));
            // The first name has the bytes.
            let bytes = if number == next { entry.bytes() } else { 0 };
            let name = padded(path, out.bytes, bytes);
            let header =
                cpio::newc::Builder::new(&name).ino(number).nlink(links).mode(entry.mode).mtime(entry.modified);
            let header = header.uid(entry.owner.user).gid(entry.owner.group);
            let problem = || format!("cannot write {path} to the boot archive");
            let mut writer = header.write(&mut out, u32::try_from(bytes).with_context(problem)?);
            if bytes > 0 {
                copy(&entry.content, bytes, &mut writer)?;
            }
            writer.finish().with_context(problem)?;
        }
        cpio::newc::trailer(&mut out).context("cannot end the boot archive")?;
        Ok(())
    }
}

fn copy(content: &Content, bytes: u64, to: &mut impl Write) -> Result<()> {
    match content {
        Content::Bytes(bytes) => to.write_all(bytes).context("cannot write the boot archive"),
        Content::OfHost { path, .. } => {
            let problem = || format!("cannot copy {} in", path.display());
            let mut file = File::open(path).with_context(problem)?.take(bytes);
            let copied = std::io::copy(&mut file, to).with_context(problem)?;
            if copied != bytes {
                bail!("{} was cut while it was copied in; run again", path.display());
            }
            Ok(())
        }
    }
}

struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

fn is_in_root(path: &str) -> bool {
    path.strip_prefix(ROOT_FOLDER).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The name of a member that begins at `start`, with the zeros that bring a large content to a
/// page.
fn padded(path: &str, start: u64, content_bytes: u64) -> String {
    let after_name = start + (HEADER_BYTES + path.len() + 1) as u64;
    let page = PAGE_BYTES as u64;
    let zeros = if content_bytes < page { 0 } else { after_name.next_multiple_of(page) - after_name };
    path.to_owned() + &"\0".repeat(zeros as usize)
}

fn clean(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(archive: &Archive) -> Vec<&str> {
        archive.entries.keys().map(String::as_str).collect()
    }

    #[test]
    fn parents_come_first_and_only_once() {
        let mut archive = Archive::default();
        archive.file("/a/b/../c/file", 0o644, b"hello".to_vec());
        archive.folder("a/c", 0o700);
        assert_eq!(paths(&archive), ["a", "a/c", "a/c/file"]);
        assert!(archive.has_file("/a/c/file") && !archive.has_file("/a/c"));
    }

    #[test]
    fn what_lies_behind_a_link_goes_to_where_it_leads() {
        let wanted = ["root", "root/bin", "root/usr", "root/usr/bin", "root/usr/bin/ls", "root/usr/bin/sh"];
        let link_first = |target: &str| {
            let mut archive = Archive::default();
            archive.link("root/bin", target);
            archive.file("root/bin/sh", 0o755, vec![1]);
            archive.folder("root/bin", 0o755);
            archive.file("root/usr/bin/ls", 0o755, vec![2]);
            archive
        };
        let mut link_last = Archive::default();
        link_last.file("root/bin/sh", 0o755, vec![1]);
        link_last.folder("root/usr/bin", 0o755);
        link_last.file("root/usr/bin/ls", 0o755, vec![2]);
        link_last.link("root/bin", "usr/bin");
        for archive in [link_first("usr/bin"), link_first("/usr/bin"), link_first("../../usr/bin"), link_last] {
            assert_eq!(paths(&archive), wanted);
            assert!(archive.has_file("root/bin/ls") && archive.has_folder("root/bin") && archive.has_link("root/bin"));
            assert_eq!(archive.real("root/bin/sh"), "root/usr/bin/sh");
            archive.check().unwrap();
        }
    }

    #[test]
    fn what_the_guest_cannot_take_is_named() {
        let told = |fill: &dyn Fn(&mut Archive)| {
            let mut archive = Archive::default();
            fill(&mut archive);
            archive.check().unwrap_err().to_string()
        };
        let circle = told(&|archive| {
            archive.link("root/a", "b");
            archive.link("root/b", "a");
            archive.file("root/a/x", 0o644, vec![]);
        });
        assert!(circle.contains("root/a/x"), "{circle}");
        let file = told(&|archive| {
            archive.file("root/a", 0o644, vec![]);
            archive.file("root/a/x", 0o644, vec![]);
        });
        assert!(file.contains("root/a/x"), "{file}");
        assert!(told(&|archive| archive.file(&"n".repeat(256), 0o644, vec![])).contains("rename"));
    }

    #[test]
    fn a_reader_finds_what_was_written() {
        let mut archive = Archive::default();
        let host = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(host.path(), [8; 6]).unwrap();
        let owner = Owner { user: 5, group: 60 };
        let path = host.path();
        let file = |shared| HostFile { path: path.into(), bytes: 6, permissions: 0o600, modified: 77, owner, shared };
        archive.file("bin/x", 0o755, vec![7; 5]);
        archive.file("bin/z", 0o755, vec![9; PAGE_BYTES]);
        archive.link("bin/y", "x");
        archive.host_file("root/one", file(Some((1, 2))));
        archive.host_file("root/other", file(Some((1, 2))));
        assert_eq!((archive.source("root/one"), archive.source("bin/x")), (Some(host.path()), None));
        archive.file("sbin/monitor", 0o755, vec![]);
        let mut bytes = Vec::new();
        archive.encode(&mut bytes).unwrap();
        let mut rest = bytes.as_slice();
        let mut seen = Vec::new();
        loop {
            let reader = cpio::newc::Reader::new(rest).unwrap();
            let entry = reader.entry();
            if entry.is_trailer() {
                break;
            }
            seen.push((entry.name().to_owned(), entry.mode(), entry.file_size(), entry.nlink(), entry.mtime()));
            let is_owned = entry.name().starts_with("root/");
            assert_eq!((entry.uid(), entry.gid()), if is_owned { (5, 60) } else { (0, 0) });
            rest = reader.finish().unwrap();
        }
        let entry = |name: &str, mode, bytes, links, time| (name.to_owned(), mode, bytes, links, time);
        assert_eq!(
            seen,
            [
                entry("bin", 0o40755, 0, 1, 0),
                entry("bin/x", 0o100_755, 5, 1, 0),
                entry("bin/y", 0o120_777, 1, 1, 0),
                entry("bin/z", 0o100_755, PAGE_BYTES as u32, 1, 0),
                entry("sbin", 0o40755, 0, 1, 0),
                entry("sbin/monitor", 0o100_755, 0, 1, 0),
                entry("root", 0o40755, 0, 1, 0),
                entry("root/one", 0o100_600, 6, 2, 77),
                entry("root/other", 0o100_600, 0, 2, 77),
            ]
        );
        assert_eq!(bytes.iter().position(|byte| *byte == 9), Some(PAGE_BYTES));
    }

    #[test]
    fn a_file_that_shrinks_meanwhile_is_no_damage() {
        let host = tempfile::NamedTempFile::new().unwrap();
        let mut archive = Archive::default();
        let file = HostFile {
            path: host.path().into(),
            bytes: 6,
            permissions: 0o600,
            modified: 0,
            owner: Owner::default(),
            shared: None,
        };
        archive.host_file("root/file", file);
        let problem = archive.encode(&mut Vec::new()).unwrap_err().to_string();
        assert!(problem.contains("run again"), "{problem}");
    }
}
