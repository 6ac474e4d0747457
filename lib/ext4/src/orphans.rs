//! Inodes without a name, and files that are being cut off: a list in the super block, so that what
//! a cut leaves behind is found. Each inode on it names the next one, the newest is the first.

use alloc::vec::Vec;

use crate::error::{Error, Stop};
use crate::extent;
use crate::inode::{CHANGED, Inode, Kind};
use crate::operation::Operation;
use crate::super_block::{self, Change, Settings};
use crate::{BLOCK_BYTES, Blocks, need, xattr};

/// Extents that one operation cuts off: each may lie in two groups, and the transaction has to have
/// room for the bitmaps and descriptors of all.
const CUT_MAX: usize = 32;

/// Whether an operation of several steps is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do: call [`Operation::trim`] or [`Operation::reclaim`] again, each time in
    /// an operation of its own. If the machine ends before,
    /// [`Mount::orphans`](crate::Mount::orphans) tells of it.
    More,
    /// It is done.
    Done,
}

/// Whether an inode has blocks by extents.
pub(crate) fn has_extents(inode: &Inode) -> bool {
    match inode.kind {
        Kind::File | Kind::Directory => true,
        Kind::Link => !inode.is_short_link(),
        _ => false,
    }
}

impl<B: Blocks> Operation<'_, B> {
    /// The orphan list as the operation sees it, the newest last.
    fn orphans(&self) -> Vec<u32> {
        let mut orphans: Vec<u32> = self.mount.orphans().into();
        for &(inode, is_added) in &self.blocks.changes.orphans {
            orphans.retain(|other| *other != inode);
            if is_added {
                orphans.push(inode);
            }
        }
        orphans
    }

    pub(crate) fn is_orphan(&self, inode: u32) -> bool {
        let own = self.blocks.changes.orphans.iter().rev().find(|(other, _)| *other == inode);
        own.map_or_else(|| self.mount.orphans().contains(&inode), |(_, is_added)| *is_added)
    }

    /// Puts an inode onto the list; it is to be written behind it.
    pub(crate) fn add_orphan(&mut self, inode: &mut Inode) -> Result<(), Stop> {
        inode.delete_time = Settings::decode(need(self, 0)?)?.last_orphan;
        super_block::change(self.blocks.edit(0)?, &Change::Orphan(inode.number));
        self.blocks.changes.orphans.push((inode.number, true));
        Ok(())
    }

    /// Takes an inode from the list; it is to be written or freed behind it.
    pub(crate) fn remove_orphan(&mut self, inode: &mut Inode) -> Result<(), Stop> {
        let orphans = self.orphans();
        let at = orphans.iter().position(|other| *other == inode.number).ok_or(Error::Invalid)?;
        match orphans.get(at + 1) {
            None => super_block::change(self.blocks.edit(0)?, &Change::Orphan(inode.delete_time)),
            Some(&newer) => {
                let mut newer = self.inode(newer)?;
                newer.delete_time = inode.delete_time;
                self.put_inode(&newer)?;
            }
        }
        inode.delete_time = 0;
        self.blocks.changes.orphans.push((inode.number, false));
        Ok(())
    }

    /// Takes what is behind a file's size from it, as far as one operation can. Returns whether
    /// nothing is left there. The inode is to be written behind it.
    pub(crate) fn cut(&mut self, inode: &mut Inode, size: u64) -> Result<bool, Stop> {
        let from = size.div_ceil(BLOCK_BYTES as u64);
        let is_metadata = inode.kind != Kind::File;
        Ok(!has_extents(inode) || extent::remove_last(self, inode, from, CUT_MAX, is_metadata)?)
    }

    /// Goes on with cutting off what is behind a file's size.
    ///
    /// # Errors
    /// [`Stop::Need`], [`Stop::Commit`]; [`Error::Invalid`] if it is not on the orphan list;
    /// [`Error::Corrupt`].
    pub fn trim(&mut self, number: u32) -> Result<Progress, Stop> {
        if !self.is_orphan(number) {
            return Err(Error::Invalid.into());
        }
        let mut inode = self.inode(number)?;
        let size = inode.size;
        let is_done = self.cut(&mut inode, size)?;
        if is_done && inode.links > 0 {
            self.remove_orphan(&mut inode)?;
        }
        self.put_inode(&inode)?;
        Ok(if is_done { Progress::Done } else { Progress::More })
    }

    /// Goes on with an inode of the orphan list that nobody has open: takes its blocks, and frees
    /// it. One that has a name is trimmed.
    ///
    /// # Errors
    /// As for [`Operation::trim`].
    pub fn reclaim(&mut self, number: u32) -> Result<Progress, Stop> {
        let mut inode = self.inode(number)?;
        if inode.links > 0 || !self.is_orphan(number) {
            return self.trim(number);
        }
        if !self.cut(&mut inode, 0)? {
            self.put_inode(&inode)?;
            return Ok(Progress::More);
        }
        self.remove_orphan(&mut inode)?;
        xattr::free_block(self, &mut inode)?;
        self.free_inode(number, inode.kind)?;
        self.blocks.changes.inodes.insert(number);
        Ok(Progress::Done)
    }

    /// Whether a file is being cut off.
    pub(crate) fn is_being_cut(&self, inode: &Inode) -> Result<bool, Stop> {
        Ok(self.is_orphan(inode.number) && extent::end(self, inode)? > inode.blocks())
    }

    /// One name of an inode is gone. Without another it comes onto the orphan list; the inode is
    /// written.
    pub(crate) fn drop_link(&mut self, inode: &mut Inode, links: u16) -> Result<(), Stop> {
        inode.links = links;
        inode.times[CHANGED] = self.now;
        if links == 0 {
            self.add_orphan(inode)?;
        }
        self.put_inode(inode)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::testing::{self, Memory, NOW, geometry, new};
    use crate::{How, Mount, ROOT};

    /// Does an operation, which has to end well.
    fn change<T>(
        mount: &mut Mount,
        memory: &Memory,
        operation: impl FnOnce(&mut Operation<'_, Memory>) -> Result<T, Stop>,
    ) -> T {
        mount.change(memory, NOW, operation).unwrap()
    }

    fn unnamed(mount: &mut Mount, memory: &Memory) -> u32 {
        change(mount, memory, |operation| operation.create_unnamed(ROOT, &new(Kind::File)))
    }

    fn read(mount: &Mount, memory: &Memory, number: u32) -> Inode {
        mount.volume().inode(&mount.view(memory), number).unwrap()
    }

    /// A file with so many extents of a block, each behind a hole of one.
    fn holey(mount: &mut Mount, memory: &Memory, name: &[u8], extents: u64) -> u32 {
        change(mount, memory, |operation| {
            let number = operation.create(ROOT, name, &new(Kind::File))?;
            for at in 0..extents {
                operation.write(number, (2 * at + 1) * BLOCK_BYTES as u64, &[1; BLOCK_BYTES])?;
            }
            Ok(number)
        })
    }

    fn orphans_on_disk(memory: &Memory) -> Vec<u32> {
        memory.mount().orphans().into()
    }

    #[test]
    fn the_list_is_in_order_when_any_of_it_leaves_and_after_a_restart() {
        let mut memory = Memory::formatted(4096);
        let mut mount = memory.mount();
        let [first, second, third, fourth] = [0; 4].map(|_| unnamed(&mut mount, &memory));
        assert_eq!(mount.orphans(), [first, second, third, fourth]);
        memory.write(&mut mount);
        assert_eq!(orphans_on_disk(&memory), [first, second, third, fourth]);
        // From the middle, the newest, the oldest; with one that comes again in between.
        let name = |name: &'static [u8], number| {
            move |operation: &mut Operation<'_, Memory>| {
                assert!(operation.is_orphan(number));
                operation.link_unnamed(number, ROOT, name)?;
                assert!(!operation.is_orphan(number));
                Ok::<_, Stop>(())
            }
        };
        let others = |operation: &Operation<'_, Memory>| operation.orphans();
        let left = change(&mut mount, &memory, |operation| {
            name(b"second", second)(operation)?;
            Ok(others(operation))
        });
        assert_eq!(left, [first, third, fourth]);
        memory.write(&mut mount);
        assert_eq!(orphans_on_disk(&memory), [first, third, fourth]);
        let left = change(&mut mount, &memory, |operation| {
            name(b"fourth", fourth)(operation)?;
            assert!(operation.unlink(ROOT, b"second")?.is_last);
            assert!(operation.is_orphan(second) && operation.is_orphan(third));
            name(b"first", first)(operation)?;
            Ok(others(operation))
        });
        assert_eq!((left.as_slice(), mount.orphans()), ([third, second].as_slice(), [third, second].as_slice()));
        memory.write(&mut mount);
        assert_eq!(orphans_on_disk(&memory), [third, second]);
        for number in [second, third] {
            let done = change(&mut mount, &memory, |operation| operation.reclaim(number));
            assert_eq!(done, Progress::Done);
        }
        memory.write(&mut mount);
        assert_eq!(orphans_on_disk(&memory), []);
        assert_eq!(read(&mount, &memory, first).delete_time, 0);
    }

    #[test]
    fn a_list_that_goes_in_circles_or_leads_to_a_free_inode_is_corrupt() {
        let mut memory = Memory::formatted(4096);
        let mut mount = memory.mount();
        let [first, second] = [0; 2].map(|_| unnamed(&mut mount, &memory));
        memory.write(&mut mount);
        let volume = mount.volume().clone();
        let recovered = |memory: &Memory, next| {
            let mut memory = Memory::clone(memory);
            let (block, at) = volume.inode_place(&memory, first).unwrap();
            let mut inode = volume.inode(&memory, first).unwrap();
            inode.delete_time = next;
            inode.encode(&mut memory.edit(block)[at..at + 256]);
            memory.begin().map(|mount| mount.orphans().to_vec())
        };
        assert_eq!(recovered(&memory, 0), Ok(vec![first, second]));
        assert_eq!(recovered(&memory, second), Err(Error::corrupt("the orphan list", u64::from(second))));
        assert_eq!(recovered(&memory, first), Err(Error::corrupt("the orphan list", u64::from(first))));
        let free = second + 5;
        assert_eq!(recovered(&memory, free), Err(Error::corrupt("the orphan list", u64::from(free))));
    }

    #[test]
    fn files_directories_and_long_links_have_extents() {
        let inode = |kind, size, sectors| Inode { size, sectors, ..testing::inode(&geometry(1000), 12, kind) };
        assert!(has_extents(&inode(Kind::File, 0, 0)) && has_extents(&inode(Kind::Directory, 4096, 8)));
        assert!(has_extents(&inode(Kind::Link, 100, 8)) && !has_extents(&inode(Kind::Link, 50, 0)));
        for kind in [Kind::Pipe, Kind::Socket, Kind::BlockDevice, Kind::CharacterDevice] {
            assert!(!has_extents(&inode(kind, 0, 0)), "{kind:?}");
        }
    }

    #[test]
    fn a_file_of_many_extents_is_cut_in_steps_and_not_written_meanwhile() {
        let mut memory = Memory::formatted(4096);
        let mut mount = memory.mount();
        let number = holey(&mut mount, &memory, b"file", 70);
        let free = mount.free();
        let step = change(&mut mount, &memory, |operation| operation.truncate(number, 3 * BLOCK_BYTES as u64));
        assert_eq!((step, mount.orphans()), (Progress::More, [number].as_slice()));
        assert_eq!(read(&mount, &memory, number).size, 3 * BLOCK_BYTES as u64);
        let write = mount.change(&memory, NOW, |operation| operation.write(number, 0, b"a"));
        assert_eq!(write, Err(Error::BeingCut.into()));
        // 32 of the 69 extents at a time, also after a restart.
        memory.write(&mut mount);
        let mut mount = memory.mount();
        assert_eq!(mount.orphans(), [number]);
        let step = change(&mut mount, &memory, |operation| operation.trim(number));
        assert_eq!((step, mount.orphans()), (Progress::More, [number].as_slice()));
        // It has a name, so it stays.
        let step = change(&mut mount, &memory, |operation| operation.reclaim(number));
        assert_eq!((step, mount.orphans()), (Progress::Done, [].as_slice()));
        // The first extent stays, and the node that it is in.
        assert_eq!(mount.free(), (free.0 + 69, free.1));
        let inode = read(&mount, &memory, number);
        assert_eq!((inode.sectors, inode.links, inode.delete_time), (16, 1, 0));
        assert_eq!(change(&mut mount, &memory, |operation| operation.write(number, 0, b"a")), 1);
        let again = mount.change(&memory, NOW, |operation| operation.trim(number));
        assert_eq!(again, Err(Error::Invalid.into()), "nothing is to be cut off");
    }

    #[test]
    fn an_open_file_without_a_name_is_cut_and_stays_until_it_is_reclaimed() {
        let memory = Memory::formatted(4096);
        let mut mount = memory.mount();
        let free = mount.free();
        let number = holey(&mut mount, &memory, b"file", 40);
        change(&mut mount, &memory, |operation| operation.unlink(ROOT, b"file"));
        assert_eq!(change(&mut mount, &memory, |operation| operation.truncate(number, 0)), Progress::More);
        assert_eq!(change(&mut mount, &memory, |operation| operation.trim(number)), Progress::Done);
        assert_eq!(mount.orphans(), [number], "nobody has reclaimed it");
        assert_eq!(change(&mut mount, &memory, |operation| operation.write(number, 0, b"a")), 1);
        assert_eq!(change(&mut mount, &memory, |operation| operation.reclaim(number)), Progress::Done);
        assert_eq!((mount.orphans(), mount.free()), ([].as_slice(), free));
        let gone = mount.change(&memory, NOW, |operation| operation.reclaim(number));
        assert_eq!(gone, Err(Error::NotFound.into()));
    }

    #[test]
    fn what_is_not_on_the_list_is_not_reclaimed() {
        let memory = Memory::formatted(4096);
        let mut mount = memory.mount();
        let named = holey(&mut mount, &memory, b"file", 1);
        let refused = mount.change(&memory, NOW, |operation| operation.reclaim(named));
        assert_eq!(refused, Err(Error::Invalid.into()));
        // A volume that was written badly: no name, and not on the list.
        let lost = mount.change(&memory, NOW, |operation| {
            let mut inode = operation.inode(named)?;
            inode.links = 0;
            operation.put_inode(&inode)?;
            operation.reclaim(named)
        });
        assert_eq!(lost, Err(Error::Invalid.into()));
        assert_eq!(read(&mount, &memory, named).links, 1);
    }

    #[test]
    fn all_that_links_and_directories_took_comes_back() {
        let memory = Memory::formatted(4096);
        let mut mount = memory.mount();
        let free = mount.free();
        change(&mut mount, &memory, |operation| {
            operation.symlink(ROOT, b"short", &[b's'; 59], 1, 2)?;
            operation.symlink(ROOT, b"long", &[b'l'; 60], 1, 2)?;
            operation.create(ROOT, b"pipe", &new(Kind::Pipe))?;
            operation.create(ROOT, b"directory", &new(Kind::Directory)).map(drop)
        });
        assert_eq!(mount.free(), (free.0 - 2, free.1 - 4));
        let orphans = change(&mut mount, &memory, |operation| {
            for name in [b"short".as_slice(), b"long", b"pipe"] {
                operation.unlink(ROOT, name)?;
            }
            operation.rmdir(ROOT, b"directory")?;
            Ok(operation.orphans())
        });
        for number in orphans {
            assert_eq!(change(&mut mount, &memory, |operation| operation.reclaim(number)), Progress::Done);
        }
        assert_eq!(mount.free(), free);
    }

    /// An old version of a directory's block in the log must not be written over a file's bytes.
    #[test]
    fn blocks_of_directories_do_not_count_any_more_in_the_log_and_those_of_files_were_never_there() {
        let memory = Memory::formatted(4096);
        let mut mount = memory.mount();
        let file = holey(&mut mount, &memory, b"file", 1);
        let directory = change(&mut mount, &memory, |operation| operation.create(ROOT, b"one", &new(Kind::Directory)));
        let place = |number| {
            let inode = read(&mount, &memory, number);
            let logical = inode.blocks() as u32 - 1;
            match mount.volume().find(&mount.view(&memory), &inode, logical).unwrap().place {
                extent::Place::Written(block) => block,
                other => panic!("{other:?}"),
            }
        };
        let (data, metadata) = (place(file), place(directory));
        change(&mut mount, &memory, |operation| {
            operation.unlink(ROOT, b"file")?;
            operation.rmdir(ROOT, b"one")?;
            operation.reclaim(file)?;
            operation.reclaim(directory)?;
            assert!(!operation.blocks.changes.revoked.contains(&data));
            assert_eq!(operation.blocks.changes.revoked, [metadata].into());
            Ok(())
        });
    }

    #[test]
    fn a_name_that_is_replaced_leaves_an_orphan() {
        let memory = Memory::formatted(4096);
        let mut mount = memory.mount();
        let [old, kept] = [b"old", b"new"].map(|name| holey(&mut mount, &memory, name, 1));
        let rename =
            |operation: &mut Operation<'_, Memory>| operation.rename((ROOT, b"new"), (ROOT, b"old"), How::Replace);
        let removed = change(&mut mount, &memory, rename).unwrap();
        assert_eq!((removed.inode, removed.is_last, mount.orphans()), (old, true, [old].as_slice()));
        assert_eq!(read(&mount, &memory, kept).links, 1);
    }
}
