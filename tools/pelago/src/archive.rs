//! The boot archive: an uncompressed `newc` cpio, the format Linux documents for its initial RAM
//! disk.
//!
//! Invariants: every folder precedes what is in it; paths are relative, without `.` or `..`;
//! entries come in one order whatever the host's directory order, so equal inputs give equal bytes;
//! a content of a page or more begins on a page, so that a program's text can be mapped where it
//! lies (the name is padded with zeros, as dracut-cpio does it).

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const PAGE_BYTES: usize = 4096;
/// Before the name.
const HEADER_BYTES: usize = 110;

/// Entries by path.
#[derive(Default)]
pub struct Archive {
    entries: BTreeMap<String, Entry>,
}

struct Entry {
    mode: u32,
    content: Vec<u8>,
}

impl Archive {
    /// Adds a regular file; `permissions` are the low twelve mode bits. An earlier entry of that
    /// path is replaced.
    pub fn file(&mut self, path: &str, permissions: u32, content: Vec<u8>) {
        self.insert(path, Entry { mode: FILE | permissions & 0o7777, content });
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.insert(path, Entry { mode: LINK | 0o777, content: target.into() });
    }

    /// Adds a folder.
    pub fn folder(&mut self, path: &str, permissions: u32) {
        self.insert(path, Entry { mode: FOLDER | permissions & 0o7777, content: Vec::new() });
    }

    /// Adds all entries of another archive.
    pub fn merge(&mut self, other: Archive) {
        self.entries.extend(other.entries);
    }

    /// True if there is a regular file or a link at `path`.
    pub fn has_file(&self, path: &str) -> bool {
        self.entries.get(&clean(path)).is_some_and(|entry| entry.mode & FOLDER == 0 || entry.mode & FILE == FILE)
    }

    /// Bytes of all contents.
    pub fn content_bytes(&self) -> u64 {
        self.entries.values().map(|entry| entry.content.len() as u64).sum()
    }

    fn insert(&mut self, path: &str, entry: Entry) {
        let path = clean(path);
        for (index, _) in path.match_indices('/') {
            let parent = || Entry { mode: FOLDER | 0o755, content: Vec::new() };
            self.entries.entry(path[..index].to_owned()).or_insert_with(parent);
        }
        if !path.is_empty() {
            self.entries.insert(path, entry);
        }
    }

    /// Writes it as a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let bytes = self.encode().context("the boot archive could not be encoded")?;
        crate::files::write(path, &bytes)
    }

    fn encode(&self) -> std::io::Result<Vec<u8>> {
        let mut out = Vec::new();
        for (number, (path, entry)) in (1..).zip(&self.entries) {
            let name = padded(path, out.len(), entry.content.len());
            let header = cpio::newc::Builder::new(&name).ino(number).mode(entry.mode).nlink(1);
            let size = u32::try_from(entry.content.len())
                .map_err(|_| std::io::Error::other(format!("{path} is larger than 4 GiB")))?;
            let mut writer = header.write(&mut out, size);
            writer.write_all(&entry.content)?;
            writer.finish()?;
        }
        cpio::newc::trailer(&mut out)?;
        Ok(out)
    }
}

/// The name of a member that begins at `start`, with the zeros that bring a large content to a
/// page.
fn padded(path: &str, start: usize, content_bytes: usize) -> String {
    let after_name = start + HEADER_BYTES + path.len() + 1;
    let zeros = if content_bytes < PAGE_BYTES { 0 } else { after_name.next_multiple_of(PAGE_BYTES) - after_name };
    path.to_owned() + &"\0".repeat(zeros)
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

    #[test]
    fn parents_come_first_and_only_once() {
        let mut archive = Archive::default();
        archive.file("/a/b/../c/file", 0o644, b"hello".to_vec());
        archive.folder("a/c", 0o700);
        let paths: Vec<_> = archive.entries.keys().cloned().collect();
        assert_eq!(paths, ["a", "a/c", "a/c/file"]);
        assert!(archive.has_file("/a/c/file") && !archive.has_file("/a/c"));
    }

    #[test]
    fn a_reader_finds_what_was_written() {
        let mut archive = Archive::default();
        archive.file("bin/x", 0o755, vec![7; 5]);
        archive.file("bin/z", 0o755, vec![9; PAGE_BYTES]);
        archive.link("bin/y", "x");
        let bytes = archive.encode().unwrap();
        let mut rest = bytes.as_slice();
        let mut seen = Vec::new();
        loop {
            let reader = cpio::newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            seen.push((reader.entry().name().to_owned(), reader.entry().mode(), reader.entry().file_size()));
            rest = reader.finish().unwrap();
        }
        let small = [("bin".into(), 0o40755, 0), ("bin/x".into(), 0o100_755, 5), ("bin/y".into(), 0o120_777, 1)];
        assert_eq!(seen[..3], small);
        assert_eq!(seen[3..], [("bin/z".into(), 0o100_755, PAGE_BYTES as u32)]);
        assert_eq!(bytes.iter().position(|byte| *byte == 9), Some(PAGE_BYTES));
    }
}
