//! What names can be given, taken, moved and exchanged, in a small volume in memory.

use alloc::vec;

use super::*;
use crate::entries::tests::Small;
use crate::testing::new;

fn failed<T>(error: Error) -> Result<T, Stop> {
    Err(error.into())
}

impl Small {
    fn links(&self, number: u32) -> u16 {
        self.inode(number).links
    }

    fn rename(&mut self, from: (u32, &[u8]), to: (u32, &[u8]), how: How) -> Result<Option<Removed>, Stop> {
        self.change(|operation| operation.rename(from, to, how))
    }

    fn link(&mut self, number: u32, parent: u32, name: &[u8]) -> Result<(), Stop> {
        self.change(|operation| operation.link(number, parent, name))
    }

    fn unlink(&mut self, parent: u32, name: &[u8]) -> Result<Removed, Stop> {
        self.change(|operation| operation.unlink(parent, name))
    }

    fn rmdir(&mut self, parent: u32, name: &[u8]) -> Result<Removed, Stop> {
        self.change(|operation| operation.rmdir(parent, name))
    }

    fn create(&mut self, parent: u32, name: &[u8], kind: Kind) -> Result<u32, Stop> {
        self.change(|operation| operation.create(parent, name, &new(kind)))
    }

    fn symlink(&mut self, name: &[u8], target: &[u8]) -> Result<u32, Stop> {
        self.change(|operation| operation.symlink(ROOT, name, target, 1, 2))
    }

    fn set_links(&mut self, number: u32, links: u16) {
        self.change(|operation| {
            let mut inode = operation.inode(number)?;
            inode.links = links;
            operation.put_inode(&inode)
        })
        .unwrap();
    }

    /// What the entry of a directory says that a name is.
    fn kind_of(&self, directory: u32, name: &[u8]) -> Option<Kind> {
        self.list(directory).into_iter().find(|entry| *entry.name == *name).and_then(|entry| entry.kind)
    }

    /// How many names a directory has, besides "." and "..".
    fn count(&self, directory: u32) -> usize {
        self.list(directory).len() - 2
    }
}

/// A volume with the directories `one` and `two`, and in `one` a file and a directory.
fn two_directories() -> (Small, u32, u32, u32, u32) {
    let mut small = Small::new();
    let (one, two) = (small.make(ROOT, b"one", Kind::Directory), small.make(ROOT, b"two", Kind::Directory));
    let (file, inner) = (small.make(one, b"file", Kind::File), small.make(one, b"inner", Kind::Directory));
    (small, one, two, file, inner)
}

#[test]
fn names_that_each_directory_has_and_what_is_no_name_are_not_made_moved_or_removed() {
    let (mut small, one, two, file, _) = two_directories();
    let long = [b'n'; 256];
    let own = [b".".as_slice(), b".."].map(|name| (name, Error::Invalid));
    let none = [b"".as_slice(), b"a/b", b"a\0b", &long].map(|name| (name, Error::InvalidName));
    for (name, error) in own.into_iter().chain(none) {
        assert_eq!(small.create(one, name, Kind::File), failed(error), "{name:?}");
        assert_eq!(small.create(one, name, Kind::Directory), failed(error), "{name:?}");
        assert_eq!(small.symlink(name, b"target"), failed(error), "{name:?}");
        assert_eq!(small.link(file, two, name), failed(error), "{name:?}");
        assert_eq!(small.rmdir(one, name), failed(error), "{name:?}");
        for how in [How::Replace, How::NoReplace, How::Exchange] {
            assert_eq!(small.rename((one, name), (two, b"new"), how), failed(error), "{name:?}");
            assert_eq!(small.rename((one, b"file"), (two, name), how), failed(error), "{name:?}");
        }
        let told = small.unlink(one, name);
        assert_eq!(told, failed(if error == Error::Invalid { Error::IsDirectory } else { error }), "{name:?}");
    }
    assert_eq!((small.count(one), small.count(two)), (2, 0));
    assert_eq!(small.create(two, &long[1..], Kind::File).map(drop), Ok(()));
}

#[test]
fn each_kind_but_a_link_is_made_with_its_links_and_told_by_its_directory() {
    let mut small = Small::new();
    let top = small.make(ROOT, b"top", Kind::Directory);
    let kinds = [Kind::File, Kind::Directory, Kind::Pipe, Kind::Socket, Kind::BlockDevice, Kind::CharacterDevice];
    for kind in kinds {
        let number = small.make(top, b"name", kind);
        let inode = small.inode(number);
        assert_eq!((inode.kind, inode.links), (kind, if kind == Kind::Directory { 2 } else { 1 }));
        assert_eq!(small.kind_of(top, b"name"), Some(kind));
        assert_eq!(small.create(top, b"name", kind), failed(Error::Exists));
        let removed = if kind == Kind::Directory { small.rmdir(top, b"name") } else { small.unlink(top, b"name") };
        assert_eq!(removed, Ok(Removed { inode: number, is_last: true }));
        assert_eq!((small.count(top), small.links(top)), (0, 2));
    }
    assert_eq!(small.create(top, b"name", Kind::Link), failed(Error::Invalid));
    assert_eq!(small.lookup(top, b"name"), failed(Error::NotFound));
}

#[test]
fn a_directory_counts_those_in_it_up_to_64_999() {
    let mut small = Small::new();
    let top = small.make(ROOT, b"top", Kind::Directory);
    assert_eq!((small.links(top), small.links(ROOT)), (2, 4), "and lost+found");
    small.make(top, b"a", Kind::Directory);
    assert_eq!(small.links(top), 3);
    small.set_links(top, 64_998);
    small.make(top, b"b", Kind::Directory);
    assert_eq!(small.links(top), 64_999);
    small.mount.settings.has_many_links = false;
    assert_eq!(small.create(top, b"c", Kind::Directory), failed(Error::TooManyLinks));
    assert_eq!((small.links(top), small.count(top)), (64_999, 2));
    // A file is no other directory.
    small.make(top, b"file", Kind::File);
    small.mount.settings.has_many_links = true;
    small.make(top, b"c", Kind::Directory);
    assert_eq!(small.links(top), 1, "it counts no more");
    small.make(top, b"d", Kind::Directory);
    small.rmdir(top, b"d").unwrap();
    assert_eq!(small.links(top), 1);
    // What is counted wrong does not become less than a directory has.
    for (links, left) in [(64_999, 64_998), (3, 2), (2, 2)] {
        small.set_links(top, links);
        small.rmdir(top, [b"a", b"b", b"c"][usize::from(links.min(4)) - 2]).unwrap();
        assert_eq!(small.links(top), left);
    }
}

#[test]
fn a_link_has_a_target_of_1_to_4095_bytes_without_a_zero() {
    let mut small = Small::new();
    for target in [b"".as_slice(), b"\0", b"a\0b", b"target\0"] {
        assert_eq!(small.symlink(b"link", target), failed(Error::Invalid), "{target:?}");
    }
    assert_eq!(small.symlink(b"link", &[b't'; 4096]), failed(Error::TooLarge));
    assert_eq!(small.lookup(ROOT, b"link"), failed(Error::NotFound));
    // Up to 59 bytes are in the inode.
    for (bytes, sectors) in [(1, 0), (59, 0), (60, 8), (61, 8), (4095, 8)] {
        let number = small.symlink(b"link", &vec![b't'; bytes]).unwrap();
        let link = small.inode(number);
        assert_eq!((link.kind, link.links, link.size, link.sectors), (Kind::Link, 1, bytes as u64, sectors));
        let target = small.mount.volume().target(&small.mount.view(&small.memory), &link);
        assert_eq!(*target.unwrap(), vec![b't'; bytes]);
        assert_eq!(small.kind_of(ROOT, b"link"), Some(Kind::Link));
        assert_eq!(small.symlink(b"link", b"target"), failed(Error::Exists));
        assert_eq!(small.unlink(ROOT, b"link"), Ok(Removed { inode: number, is_last: true }));
    }
}

#[test]
fn a_file_has_at_most_65_000_names_and_a_directory_one() {
    let (mut small, one, two, file, inner) = two_directories();
    assert_eq!(small.link(inner, two, b"name"), failed(Error::IsDirectory));
    assert_eq!(small.link(file, one, b"inner"), failed(Error::Exists));
    assert_eq!(small.link(file, file, b"name"), failed(Error::NotDirectory));
    small.set_links(file, 64_999);
    assert_eq!(small.link(file, two, b"name"), Ok(()));
    assert_eq!((small.links(file), small.lookup(two, b"name")), (65_000, Ok(file)));
    for links in [65_000, 65_001, u16::MAX] {
        small.set_links(file, links);
        assert_eq!(small.link(file, two, b"more"), failed(Error::TooManyLinks));
        assert_eq!((small.links(file), small.count(two)), (links, 1));
    }
    // The one that goes is counted, until it is the last.
    small.set_links(file, 2);
    assert_eq!(small.unlink(two, b"name"), Ok(Removed { inode: file, is_last: false }));
    assert_eq!(small.mount.orphans(), []);
    assert_eq!(small.unlink(one, b"file"), Ok(Removed { inode: file, is_last: true }));
    assert_eq!((small.links(file), small.mount.orphans()), (0, [file].as_slice()));
    // It is gone, and gets no name any more but that of one that never had any.
    assert_eq!(small.link(file, two, b"name"), failed(Error::NotFound));
    assert_eq!(small.change(|operation| operation.link_unnamed(file, two, b"name")), Ok(()));
    assert_eq!((small.links(file), small.lookup(two, b"name")), (1, Ok(file)));
    assert_eq!(small.mount.orphans(), []);
}

#[test]
fn only_an_empty_directory_is_removed_as_one() {
    let (mut small, one, two, file, inner) = two_directories();
    assert_eq!(small.rmdir(ROOT, b"one"), failed(Error::NotEmpty));
    assert_eq!(small.rmdir(one, b"file"), failed(Error::NotDirectory));
    assert_eq!(small.rmdir(one, b"none"), failed(Error::NotFound));
    assert_eq!(small.unlink(one, b"inner"), failed(Error::IsDirectory));
    assert_eq!(small.unlink(one, b"none"), failed(Error::NotFound));
    assert_eq!(small.unlink(file, b"name"), failed(Error::NotDirectory));
    assert_eq!((small.count(one), small.links(one)), (2, 3));
    assert_eq!(small.rmdir(one, b"inner"), Ok(Removed { inode: inner, is_last: true }));
    assert_eq!((small.count(one), small.links(one), small.links(inner)), (1, 2, 0));
    assert_eq!(small.mount.orphans(), [inner]);
    assert_eq!(small.rmdir(ROOT, b"one"), failed(Error::NotEmpty));
    // In one that was removed nothing is made any more.
    assert_eq!(small.create(inner, b"name", Kind::File), failed(Error::NotFound));
    assert_eq!(small.rename((one, b"file"), (inner, b"name"), How::Replace), failed(Error::NotFound));
    assert_eq!(small.rmdir(ROOT, b"two"), Ok(Removed { inode: two, is_last: true }));
    assert_eq!((small.links(ROOT), small.count(ROOT)), (4, 2));
}

#[test]
fn a_name_is_moved_within_a_directory_and_to_another_one() {
    let (mut small, one, two, file, inner) = two_directories();
    for (name, number) in [(b"file".as_slice(), file), (b"inner", inner)] {
        let before = small.links(number);
        assert_eq!(small.rename((one, name), (one, b"new"), How::NoReplace), Ok(None));
        assert_eq!((small.lookup(one, name), small.lookup(one, b"new")), (failed(Error::NotFound), Ok(number)));
        assert_eq!((small.links(one), small.links(number), small.count(one)), (3, before, 2));
        assert_eq!(small.rename((one, b"new"), (two, name), How::Replace), Ok(None));
        assert_eq!((small.lookup(one, b"new"), small.lookup(two, name)), (failed(Error::NotFound), Ok(number)));
        assert_eq!(small.links(number), before);
        if number == file {
            assert_eq!((small.links(one), small.links(two)), (3, 2), "a file has no \"..\"");
            small.rename((two, name), (one, name), How::Replace).unwrap();
        }
    }
    assert_eq!((small.links(one), small.links(two)), (2, 3));
    assert_eq!((small.lookup(inner, b".."), small.lookup(inner, b".")), (Ok(two), Ok(inner)));
    assert_eq!((small.kind_of(one, b"file"), small.kind_of(two, b"inner")), (Some(Kind::File), Some(Kind::Directory)));
    assert_eq!(small.rename((one, b"none"), (two, b"new"), How::Replace), failed(Error::NotFound));
    assert_eq!(small.rename((one, b"file"), (file, b"new"), How::Replace), failed(Error::NotDirectory));
}

#[test]
fn a_directory_does_not_come_into_itself() {
    let (mut small, one, two, _, inner) = two_directories();
    let deep = small.make(inner, b"deep", Kind::Directory);
    for below in [one, inner, deep] {
        for how in [How::Replace, How::NoReplace] {
            assert_eq!(small.rename((ROOT, b"one"), (below, b"new"), how), failed(Error::Invalid));
        }
    }
    small.make(deep, b"file", Kind::File);
    assert_eq!(small.rename((ROOT, b"one"), (deep, b"file"), How::Exchange), failed(Error::Invalid));
    assert_eq!(small.rename((deep, b"file"), (ROOT, b"one"), How::Exchange), failed(Error::Invalid));
    // Out of it and beside it is right.
    assert_eq!(small.rename((inner, b"deep"), (two, b"deep"), How::Replace), Ok(None));
    assert_eq!(small.rename((ROOT, b"one"), (deep, b"one"), How::Replace), Ok(None));
    assert_eq!((small.lookup(one, b".."), small.lookup(deep, b"..")), (Ok(deep), Ok(two)));
    assert_eq!((small.links(ROOT), small.links(two), small.links(deep), small.links(one)), (4, 3, 3, 3));
}

#[test]
fn a_name_that_is_there_is_replaced_by_one_of_its_kind() {
    let (mut small, one, two, file, inner) = two_directories();
    let (other, empty) = (small.make(two, b"other", Kind::Pipe), small.make(two, b"empty", Kind::Directory));
    let within = small.make(empty, b"within", Kind::Socket);
    let mut rename = |from: &[u8], to: &[u8]| small.rename((one, from), (two, to), How::Replace);
    assert_eq!(rename(b"inner", b"other"), failed(Error::NotDirectory));
    assert_eq!(rename(b"file", b"empty"), failed(Error::IsDirectory));
    assert_eq!(rename(b"inner", b"empty"), failed(Error::NotEmpty));
    assert_eq!(small.rename((one, b"file"), (two, b"other"), How::NoReplace), failed(Error::Exists));
    assert_eq!((small.count(one), small.count(two), small.lookup(two, b"other")), (2, 2, Ok(other)));
    assert_eq!(small.unlink(empty, b"within"), Ok(Removed { inode: within, is_last: true }));
    let mut rename = |from: &[u8], to: &[u8]| small.rename((one, from), (two, to), How::Replace);
    assert_eq!(rename(b"inner", b"empty"), Ok(Some(Removed { inode: empty, is_last: true })));
    assert_eq!(rename(b"file", b"other"), Ok(Some(Removed { inode: other, is_last: true })));
    assert_eq!((small.count(one), small.count(two)), (0, 2));
    assert_eq!((small.lookup(two, b"empty"), small.lookup(two, b"other")), (Ok(inner), Ok(file)));
    assert_eq!((small.kind_of(two, b"empty"), small.kind_of(two, b"other")), (Some(Kind::Directory), Some(Kind::File)));
    assert_eq!((small.links(one), small.links(two), small.lookup(inner, b"..")), (2, 3, Ok(two)));
    assert_eq!(small.mount.orphans(), [within, empty, other]);
}

#[test]
fn names_of_one_file_stay_both_when_one_is_moved_over_the_other() {
    let (mut small, one, two, file, inner) = two_directories();
    small.link(file, two, b"other").unwrap();
    for how in [How::Replace, How::Exchange] {
        assert_eq!(small.rename((one, b"file"), (two, b"other"), how), Ok(None));
        assert_eq!((small.lookup(one, b"file"), small.lookup(two, b"other")), (Ok(file), Ok(file)));
        assert_eq!(small.rename((one, b"inner"), (one, b"inner"), how), Ok(None));
        assert_eq!((small.lookup(one, b"inner"), small.links(one), small.links(file)), (Ok(inner), 3, 2));
    }
    assert_eq!(small.rename((one, b"file"), (two, b"other"), How::NoReplace), failed(Error::Exists));
}

#[test]
fn two_names_are_exchanged_whatever_they_are() {
    let (mut small, one, two, file, inner) = two_directories();
    assert_eq!(small.rename((one, b"inner"), (two, b"other"), How::Exchange), failed(Error::NotFound));
    let other = small.make(two, b"other", Kind::Pipe);
    assert_eq!(small.rename((one, b"inner"), (two, b"other"), How::Exchange), Ok(None));
    assert_eq!((small.lookup(one, b"inner"), small.lookup(two, b"other")), (Ok(other), Ok(inner)));
    assert_eq!((small.kind_of(one, b"inner"), small.kind_of(two, b"other")), (Some(Kind::Pipe), Some(Kind::Directory)));
    assert_eq!((small.links(one), small.links(two), small.lookup(inner, b"..")), (2, 3, Ok(two)));
    // In one directory, and one that is not empty.
    small.make(inner, b"within", Kind::Pipe);
    assert_eq!(small.rename((one, b"inner"), (one, b"file"), How::Exchange), Ok(None));
    assert_eq!((small.lookup(one, b"inner"), small.lookup(one, b"file")), (Ok(file), Ok(other)));
    assert_eq!(small.rename((one, b"file"), (two, b"other"), How::Exchange), Ok(None));
    assert_eq!((small.lookup(inner, b".."), small.links(one), small.links(two)), (Ok(one), 3, 2));
    assert_eq!((small.links(file), small.links(other), small.mount.orphans()), (1, 1, [].as_slice()));
}
