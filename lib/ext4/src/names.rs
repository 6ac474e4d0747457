//! Making, naming, renaming and removing files and directories.

use crate::directory::{self, Named};
use crate::error::{Error, Stop};
use crate::inode::{CHANGED, Inode, Kind, MAP_BYTES, MODIFIED, New, ROOT};
use crate::operation::Operation;
use crate::volume::expect_directory;
use crate::{BLOCK_BYTES, Blocks};

use alloc::collections::BTreeSet;

/// Most names of a file. A directory with more others in it counts none of them.
const LINKS_MAX: u16 = 65_000;

/// Of a directory: what is made in it has its group, and so on below.
const SET_GROUP_ID: u16 = 0o2000;

/// A name that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The inode that it named.
    pub inode: u32,
    /// It was the last one: when nobody has the inode open, it is to be reclaimed, by
    /// [`Operation::reclaim`].
    pub is_last: bool,
}

/// What a rename does with a name that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It is removed.
    Replace,
    /// [`Error::Exists`].
    NoReplace,
    /// It has to be there, and takes the other's place.
    Exchange,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
struct Name<'a> {
    directory: u32,
    name: &'a [u8],
}

/// Refuses the names that each directory has.
fn expect_own(name: &[u8]) -> Result<(), Error> {
    directory::check_name(name)?;
    if name == b"." || name == b".." { Err(Error::Invalid) } else { Ok(()) }
}

impl<B: Blocks> Operation<'_, B> {
    /// A directory that was not removed.
    fn directory(&self, number: u32) -> Result<Inode, Stop> {
        let directory = self.inode(number)?;
        expect_directory(&directory)?;
        if directory.links == 0 { Err(Error::NotFound.into()) } else { Ok(directory) }
    }

    /// A directory in which a name is to be made, and has none of it yet.
    fn directory_without(&self, number: u32, name: &[u8]) -> Result<Inode, Stop> {
        let directory = self.directory(number)?;
        match self.volume().search(self, &directory, name)? {
            Some(_) => Err(Error::Exists.into()),
            None => Ok(directory),
        }
    }

    /// Writes a directory whose entries were changed.
    fn put_directory(&mut self, directory: &mut Inode) -> Result<(), Stop> {
        directory.times[MODIFIED] = self.now;
        directory.times[CHANGED] = self.now;
        self.put_inode(directory)
    }

    /// The inode that a name names, and the block of the directory that has it.
    fn named(&self, at: Name<'_>) -> Result<Option<(u32, Inode)>, Stop> {
        let directory = self.directory(at.directory)?;
        match self.volume().search(self, &directory, at.name)? {
            Some((logical, number)) => Ok(Some((logical, self.inode(number)?))),
            None => Ok(None),
        }
    }

    /// What a new inode gets that a directory has a say in.
    fn in_group_of(&self, parent: u32, new: &New) -> Result<New, Stop> {
        let directory = self.inode(parent)?;
        let (sets_group, mut new) = (directory.permissions & SET_GROUP_ID != 0, *new);
        if sets_group {
            new.group = directory.group;
        }
        if sets_group && new.kind == Kind::Directory {
            new.permissions |= SET_GROUP_ID;
        }
        Ok(new)
    }

    fn begin_inode(&mut self, parent: u32, new: &New) -> Result<Inode, Stop> {
        let new = self.in_group_of(parent, new)?;
        let number = self.allocate_inode(parent, new.kind)?;
        let (block, at) = self.volume().inode_place(self, number)?;
        let geometry = self.volume().geometry();
        let (extra, now) = (self.mount.settings.extra_bytes, self.now);
        let bytes = &mut self.blocks.edit(block)?[at..at + usize::from(geometry.inode_bytes)];
        Ok(Inode::begin(geometry, number, bytes, extra, &new, now))
    }

    /// Makes a file, directory, pipe, device or socket. Returns its inode. In a directory with
    /// set-group-ID it has that one's group, and a directory has that bit, too.
    ///
    /// # Errors
    /// [`Stop::Need`], [`Stop::Commit`]; [`Error::InvalidName`]; [`Error::Invalid`] for a link;
    /// [`Error::NotDirectory`], [`Error::NotFound`] for what is to have it; [`Error::Exists`];
    /// [`Error::TooManyLinks`]; [`Error::NoSpace`]; [`Error::Corrupt`].
    pub fn create(&mut self, parent: u32, name: &[u8], new: &New) -> Result<u32, Stop> {
        expect_own(name)?;
        let mut directory = self.directory_without(parent, name)?;
        let mut inode = match new.kind {
            Kind::Link => return Err(Error::Invalid.into()),
            Kind::Directory => {
                self.count_parent(&mut directory, true)?;
                self.begin_directory(parent, new)?
            }
            _ => self.begin_inode(parent, new)?,
        };
        inode.links = if new.kind == Kind::Directory { 2 } else { 1 };
        self.put_inode(&inode)?;
        self.add_entry(&mut directory, name, (inode.number, new.kind))?;
        self.put_directory(&mut directory)?;
        Ok(inode.number)
    }

    /// Makes a file without a name, as if it were in `parent`. It is on the orphan list, to be
    /// reclaimed when nobody has it open, until [`Operation::link_unnamed`] gives it a name.
    ///
    /// # Errors
    /// [`Stop::Need`], [`Stop::Commit`]; [`Error::Invalid`] for what is no file;
    /// [`Error::NotDirectory`], [`Error::NotFound`] for `parent`; [`Error::NoSpace`];
    /// [`Error::Corrupt`].
    pub fn create_unnamed(&mut self, parent: u32, new: &New) -> Result<u32, Stop> {
        if new.kind != Kind::File {
            return Err(Error::Invalid.into());
        }
        self.directory(parent)?;
        let mut inode = self.begin_inode(parent, new)?;
        self.add_orphan(&mut inode)?;
        self.put_inode(&inode)?;
        Ok(inode.number)
    }

    fn begin_directory(&mut self, parent: u32, new: &New) -> Result<Inode, Stop> {
        let mut inode = self.begin_inode(parent, new)?;
        let (_, block) = self.append_block(&mut inode)?;
        let entry = |inode: u32, name: &[u8]| Named { inode, kind: Kind::Directory.of_entry(), name: name.into() };
        let entries = [entry(inode.number, b"."), entry(parent, b"..")];
        directory::fill(inode.seed(), self.blocks.fresh(block), &entries);
        Ok(inode)
    }

    /// A directory is to have one more other in it, or one less.
    fn count_parent(&self, parent: &mut Inode, is_added: bool) -> Result<(), Error> {
        parent.links = match (parent.links, is_added) {
            (1, _) => 1,
            (links, true) if links < LINKS_MAX - 1 => links + 1,
            (_, true) if self.mount.settings.has_many_links => 1,
            (_, true) => return Err(Error::TooManyLinks),
            (links, false) => links.saturating_sub(1).max(2),
        };
        Ok(())
    }

    /// Makes a symbolic link. Returns its inode.
    ///
    /// # Errors
    /// As for [`Operation::create`]; [`Error::Invalid`] for a target that is empty, and
    /// [`Error::TooLarge`] for one of more than 4,095 bytes.
    pub fn symlink(&mut self, parent: u32, name: &[u8], target: &[u8], user: u32, group: u32) -> Result<u32, Stop> {
        expect_own(name)?;
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Invalid.into());
        }
        if target.len() >= BLOCK_BYTES {
            return Err(Error::TooLarge.into());
        }
        let mut directory = self.directory_without(parent, name)?;
        let new = New { kind: Kind::Link, permissions: 0o777, user, group, device: 0 };
        let mut inode = self.begin_inode(parent, &new)?;
        inode.links = 1;
        if target.len() < MAP_BYTES {
            inode.map[..target.len()].copy_from_slice(target);
        } else {
            self.put_long_target(&mut inode, target)?;
        }
        inode.size = target.len() as u64;
        self.put_inode(&inode)?;
        self.add_entry(&mut directory, name, (inode.number, Kind::Link))?;
        self.put_directory(&mut directory)?;
        Ok(inode.number)
    }

    /// A long target is in a block of its own, which goes through the log.
    fn put_long_target(&mut self, inode: &mut Inode, target: &[u8]) -> Result<(), Stop> {
        let (block, at) = self.volume().inode_place(self, inode.number)?;
        let bytes = usize::from(self.volume().geometry().inode_bytes);
        inode.begin_extents(&mut self.blocks.edit(block)?[at..at + bytes]);
        let (_, block) = self.append_block(inode)?;
        self.blocks.fresh(block)[..target.len()].copy_from_slice(target);
        Ok(())
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// As for [`Operation::create`]; [`Error::IsDirectory`]; [`Error::NotFound`] if it has no name
    /// any more.
    pub fn link(&mut self, number: u32, parent: u32, name: &[u8]) -> Result<(), Stop> {
        self.give_name(number, parent, name, false)
    }

    /// Gives a file that [`Operation::create_unnamed`] made its first name, or one more.
    ///
    /// # Errors
    /// As for [`Operation::link`].
    pub fn link_unnamed(&mut self, number: u32, parent: u32, name: &[u8]) -> Result<(), Stop> {
        self.give_name(number, parent, name, true)
    }

    fn give_name(&mut self, number: u32, parent: u32, name: &[u8], may_be_first: bool) -> Result<(), Stop> {
        expect_own(name)?;
        let mut directory = self.directory_without(parent, name)?;
        let mut inode = self.inode(number)?;
        match (inode.kind, inode.links) {
            (Kind::Directory, _) => return Err(Error::IsDirectory.into()),
            (_, 0) if !may_be_first || !self.is_orphan(number) => return Err(Error::NotFound.into()),
            (_, LINKS_MAX..) => return Err(Error::TooManyLinks.into()),
            _ => {}
        }
        if inode.links == 0 && !self.is_being_cut(&inode)? {
            self.remove_orphan(&mut inode)?;
        }
        inode.links += 1;
        inode.times[CHANGED] = self.now;
        self.put_inode(&inode)?;
        self.add_entry(&mut directory, name, (number, inode.kind))?;
        self.put_directory(&mut directory)
    }

    /// Removes a name of what is no directory.
    ///
    /// # Errors
    /// [`Stop::Need`], [`Stop::Commit`]; [`Error::InvalidName`]; [`Error::NotFound`];
    /// [`Error::NotDirectory`]; [`Error::IsDirectory`]; [`Error::Corrupt`].
    pub fn unlink(&mut self, parent: u32, name: &[u8]) -> Result<Removed, Stop> {
        let at = Name { directory: parent, name };
        let (logical, inode) = self.named(at)?.ok_or(Error::NotFound)?;
        if inode.kind == Kind::Directory {
            return Err(Error::IsDirectory.into());
        }
        let mut directory = self.directory(parent)?;
        self.change_entry(&directory, logical, name, None)?;
        self.put_directory(&mut directory)?;
        self.lose_name(inode, parent)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As for [`Operation::unlink`]; [`Error::NotEmpty`]; [`Error::Invalid`] for "." and "..".
    pub fn rmdir(&mut self, parent: u32, name: &[u8]) -> Result<Removed, Stop> {
        expect_own(name)?;
        let at = Name { directory: parent, name };
        let (logical, inode) = self.named(at)?.ok_or(Error::NotFound)?;
        expect_directory(&inode)?;
        if !self.is_empty(&inode)? {
            return Err(Error::NotEmpty.into());
        }
        let mut directory = self.directory(parent)?;
        self.change_entry(&directory, logical, name, None)?;
        self.put_directory(&mut directory)?;
        self.lose_name(inode, parent)
    }

    /// A name of `inode` in a directory is gone.
    fn lose_name(&mut self, mut inode: Inode, parent: u32) -> Result<Removed, Stop> {
        let links = if inode.kind == Kind::Directory {
            let mut parent = self.inode(parent)?;
            self.count_parent(&mut parent, false)?;
            self.put_inode(&parent)?;
            0
        } else {
            let gone = Error::Corrupt { what: "the links of an inode", at: u64::from(inode.number) };
            inode.links.checked_sub(1).ok_or(gone)?
        };
        self.drop_link(&mut inode, links)?;
        Ok(Removed { inode: inode.number, is_last: links == 0 })
    }

    /// Renames. Returns the name that is gone by it.
    ///
    /// # Errors
    /// As for [`Operation::create`] and [`Operation::unlink`]; [`Error::NotEmpty`];
    /// [`Error::Invalid`] for "." and "..", and for a directory that would be inside itself.
    pub fn rename(&mut self, from: (u32, &[u8]), to: (u32, &[u8]), how: How) -> Result<Option<Removed>, Stop> {
        let (from, to) = (Name { directory: from.0, name: from.1 }, Name { directory: to.0, name: to.1 });
        expect_own(from.name)?;
        expect_own(to.name)?;
        let (_, moved) = self.named(from)?.ok_or(Error::NotFound)?;
        let there = self.named(to)?;
        self.expect_outside(&moved, to.directory)?;
        match (how, there) {
            (How::NoReplace, Some(_)) => Err(Error::Exists.into()),
            (How::Exchange, None) => Err(Error::NotFound.into()),
            (_, Some((_, there))) if there.number == moved.number => Ok(None),
            (How::Exchange, Some((_, there))) => {
                self.expect_outside(&there, from.directory)?;
                self.exchange(from, to, moved, there).map(|()| None)
            }
            (_, there) => self.replace(from, to, moved, there.map(|(_, there)| there)),
        }
    }

    /// Refuses to move a directory into one that is below it, or is it.
    fn expect_outside(&self, moved: &Inode, parent: u32) -> Result<(), Stop> {
        let (mut seen, mut above) = (BTreeSet::new(), parent);
        while moved.kind == Kind::Directory && above != ROOT {
            if above == moved.number {
                return Err(Error::Invalid.into());
            }
            if !seen.insert(above) {
                return Err(Error::corrupt("a directory that is above itself", u64::from(above)));
            }
            let directory = self.inode(above)?;
            above = self.volume().lookup(self, &directory, b"..")?;
        }
        Ok(())
    }

    fn replace(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        mut moved: Inode,
        there: Option<Inode>,
    ) -> Result<Option<Removed>, Stop> {
        if let Some(there) = &there {
            self.expect_replaceable(&moved, there)?;
        }
        match &there {
            Some(_) => self.point(to, &moved)?,
            None => {
                let mut directory = self.directory(to.directory)?;
                self.add_entry(&mut directory, to.name, (moved.number, moved.kind))?;
                self.put_directory(&mut directory)?;
            }
        }
        // To make room for one name the other may have been moved.
        let (logical, _) = self.named(from)?.ok_or(Error::NotFound)?;
        let mut directory = self.directory(from.directory)?;
        self.change_entry(&directory, logical, from.name, None)?;
        self.put_directory(&mut directory)?;
        let removed = there.map(|there| self.lose_name(there, to.directory)).transpose()?;
        self.put_moved(&mut moved, from.directory, to.directory)?;
        Ok(removed)
    }

    fn expect_replaceable(&self, moved: &Inode, there: &Inode) -> Result<(), Stop> {
        match (moved.kind == Kind::Directory, there.kind == Kind::Directory) {
            (true, false) => Err(Error::NotDirectory.into()),
            (false, true) => Err(Error::IsDirectory.into()),
            (true, true) if !self.is_empty(there)? => Err(Error::NotEmpty.into()),
            _ => Ok(()),
        }
    }

    fn exchange(&mut self, from: Name<'_>, to: Name<'_>, mut moved: Inode, mut there: Inode) -> Result<(), Stop> {
        self.point(to, &moved)?;
        self.point(from, &there)?;
        self.put_moved(&mut moved, from.directory, to.directory)?;
        self.put_moved(&mut there, to.directory, from.directory)
    }

    /// Has a name that is there name another inode.
    fn point(&mut self, at: Name<'_>, inode: &Inode) -> Result<(), Stop> {
        let mut directory = self.directory(at.directory)?;
        let (logical, _) = self.volume().search(self, &directory, at.name)?.ok_or(Error::NotFound)?;
        self.change_entry(&directory, logical, at.name, Some((inode.number, inode.kind)))?;
        self.put_directory(&mut directory)
    }

    /// Writes an inode whose name is in another directory now.
    fn put_moved(&mut self, moved: &mut Inode, from: u32, to: u32) -> Result<(), Stop> {
        moved.times[CHANGED] = self.now;
        self.put_inode(moved)?;
        if moved.kind != Kind::Directory || from == to {
            return Ok(());
        }
        self.change_entry(moved, 0, b"..", Some((to, Kind::Directory)))?;
        for (number, is_added) in [(from, false), (to, true)] {
            let mut parent = self.inode(number)?;
            self.count_parent(&mut parent, is_added)?;
            self.put_inode(&parent)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
