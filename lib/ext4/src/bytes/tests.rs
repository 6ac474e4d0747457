//! Bytes of files are written into a volume in memory.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::*;
use crate::testing::{Memory, NOW, geometry, inode, new};
use crate::{Mount, ROOT};

/// Five groups: see the tests of allocation.
const BLOCKS: u64 = 4 * GROUP_BLOCKS + GROUP_BLOCKS / 2;
/// Inodes of each group.
const INODES: u32 = 7376;

/// A volume with a file.
struct Host {
    memory: Memory,
    mount: Mount,
    file: u32,
}

impl Host {
    fn new() -> Host {
        let memory = Memory::formatted(BLOCKS);
        let mut mount = memory.mount();
        let create = |operation: &mut Operation<'_, Memory>| operation.create(ROOT, b"file", &new(Kind::File));
        let file = mount.change(&memory, NOW, create).unwrap();
        Host { memory, mount, file }
    }

    fn change<T>(&mut self, operation: impl FnOnce(&mut Operation<'_, Memory>) -> Result<T, Stop>) -> Result<T, Stop> {
        self.mount.change(&self.memory, NOW, operation)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<usize, Stop> {
        let file = self.file;
        self.change(|operation| operation.write(file, offset, bytes))
    }

    fn truncate(&mut self, size: u64) -> Result<Progress, Stop> {
        let file = self.file;
        self.change(|operation| operation.truncate(file, size))
    }

    fn inode(&self) -> Inode {
        self.mount.volume().inode(&self.mount.view(&self.memory), self.file).unwrap()
    }

    fn find(&self, logical: u32) -> (Place, u64) {
        let stretch = self.mount.volume().find(&self.mount.view(&self.memory), &self.inode(), logical).unwrap();
        (stretch.place, stretch.blocks)
    }

    /// Bytes of the file, none of them behind its end.
    fn read(&self, range: Range<u64>) -> Vec<u8> {
        let (inode, view) = (self.inode(), self.mount.view(&self.memory));
        let (mut all, mut part) = (Vec::new(), [0; BLOCK_BYTES]);
        while all.len() < (range.end - range.start) as usize {
            let at = range.start + all.len() as u64;
            let most = BLOCK_BYTES.min((range.end - at) as usize);
            match self.mount.volume().read(&view, &inode, at, &mut part[..most]).unwrap() {
                0 => return all,
                count => all.extend_from_slice(&part[..count]),
            }
        }
        all
    }

    /// Has the file's 40 extents cut off, which takes two operations. The first is done.
    fn being_cut() -> Host {
        let mut host = Host::new();
        for block in 0..40 {
            host.write(block * 2 * BLOCK, b"x").unwrap();
        }
        assert_eq!(host.truncate(0), Ok(Progress::More));
        assert_eq!(host.mount.orphans(), [host.file]);
        host
    }
}

#[test]
fn only_a_file_has_bytes_to_be_written() {
    let mut host = Host::new();
    let pipe = host.change(|operation| operation.create(ROOT, b"pipe", &new(Kind::Pipe))).unwrap();
    for (number, error) in [(ROOT, Error::IsDirectory), (pipe, Error::Invalid), (pipe + 1, Error::NotFound)] {
        assert_eq!(host.change(|operation| operation.write(number, 0, b"x")), Err(error.into()));
        assert_eq!(host.change(|operation| operation.truncate(number, 0)), Err(error.into()));
    }
}

#[test]
fn a_file_ends_before_the_block_that_has_no_number() {
    const LAST: u64 = (1 << 44) - 4096;
    let mut host = Host::new();
    assert_eq!(host.write(LAST, b"x"), Err(Error::TooLarge.into()));
    assert_eq!(host.write(LAST - 1, b"xy"), Ok(1));
    assert_eq!((host.inode().size, host.read(LAST - 1..LAST)), (LAST, b"x".to_vec()));
    assert_eq!(host.truncate(7), Ok(Progress::Done));
    assert_eq!(host.truncate(LAST + 1), Err(Error::TooLarge.into()));
    assert_eq!(host.truncate(u64::MAX), Err(Error::TooLarge.into()));
    assert_eq!(host.inode().size, 7);
    assert_eq!(host.truncate(LAST), Ok(Progress::Done));
    assert_eq!(host.inode().size, LAST);
}

#[test]
fn a_write_takes_no_more_than_256_blocks() {
    let bytes: Vec<u8> = (0..3 << 19).map(|at| (at / 512) as u8).collect();
    let mut host = Host::new();
    let count = (1 << 20) - 5000 % 4096;
    assert_eq!(host.write(5000, &bytes), Ok(count));
    assert_eq!(host.inode().size, 5000 + count as u64);
    assert_eq!(host.read(0..5000), vec![0; 5000]);
    assert!(host.read(5000..2 << 20) == bytes[..count]);
}

#[test]
fn what_was_cut_off_is_zeros_when_a_file_grows_again() {
    for size in [100, 4096, 5000] {
        let mut host = Host::new();
        host.write(0, &[0xEE; 3 * BLOCK_BYTES]).unwrap();
        assert_eq!(host.truncate(size), Ok(Progress::Done));
        assert_eq!(host.truncate(3 * BLOCK), Ok(Progress::Done));
        let mut expected = vec![0xEE; size as usize];
        expected.resize(3 * BLOCK_BYTES, 0);
        assert!(host.read(0..4 * BLOCK) == expected, "cut off at {size}");
    }
}

#[test]
fn what_lies_behind_the_end_is_zeros_when_a_write_begins_beyond_it() {
    let mut host = Host::new();
    host.write(0, &[1; 100]).unwrap();
    let (Place::Written(block), 1) = host.find(0) else { panic!("{:?}", host.find(0)) };
    host.memory.write(&mut host.mount);
    assert_eq!(host.memory.edit(block)[..101], [&[1; 100][..], &[0]].concat());
    host.memory.edit(block)[100..].fill(0xEE);
    assert_eq!(host.write(5000, &[2; 10]), Ok(10));
    let expected = [vec![1; 100], vec![0; 4900], vec![2; 10]].concat();
    assert!(host.read(0..9000) == expected);
}

#[test]
fn a_file_goes_on_behind_its_last_block_and_begins_in_its_inodes_group() {
    let mut host = Host::new();
    let other = host.change(|operation| operation.create(ROOT, b"other", &new(Kind::File))).unwrap();
    host.write(0, &[1; 3 * BLOCK_BYTES]).unwrap();
    let (Place::Written(first), 3) = host.find(0) else { panic!("{:?}", host.find(0)) };
    assert!(first < GROUP_BLOCKS, "in the root's group");
    // Others that begin elsewhere are not in its way.
    host.change(|operation| operation.write(other, 0, &[2; BLOCK_BYTES])).unwrap();
    let own = host.inode();
    let goals = host.change(|operation| {
        assert_eq!(operation.volume().geometry().inodes_per_group, INODES);
        let of = |number: u32| inode(&geometry(BLOCKS), number, Kind::File);
        let begins = [INODES, INODES + 1, 4 * INODES, 4 * INODES + 1];
        let begins = begins.map(|number| operation.goal(&of(number), 0));
        Ok((operation.goal(&own, 3)?, operation.goal(&own, 5)?, begins))
    });
    let begins = [0, 1, 3, 4].map(|group| Ok(group * GROUP_BLOCKS));
    assert_eq!(goals, Ok((first + 3, 0, begins)), "behind a hole as at the beginning");
}

#[test]
fn bytes_are_not_written_over_what_is_no_files() {
    let mut host = Host::new();
    // The copy of the super block.
    let mut inode = host.inode();
    inode.map = extent::root_of(GROUP_BLOCKS..GROUP_BLOCKS + 1);
    inode.size = BLOCK;
    host.change(|operation| operation.put_inode(&inode)).unwrap();
    let wrong = Error::corrupt("a file with blocks that are no file's", u64::from(host.file));
    assert_eq!(host.write(10, b"x"), Err(wrong));
    assert_eq!(host.truncate(10), Err(wrong));
}

#[test]
fn a_file_that_is_being_cut_grows_only_when_it_is_done() {
    let mut host = Host::being_cut();
    assert_eq!(host.write(0, b"x"), Err(Error::BeingCut.into()));
    assert_eq!(host.truncate(1), Err(Error::BeingCut.into()));
    let file = host.file;
    assert_eq!(host.change(|operation| operation.trim(file)), Ok(Progress::Done));
    assert_eq!((host.mount.orphans(), host.inode().sectors), (&[][..], 0));
    assert_eq!(host.truncate(1), Ok(Progress::Done));
    assert_eq!(host.write(0, b"x"), Ok(1));
}

#[test]
fn a_file_that_is_being_cut_is_cut_on_by_a_second_cut() {
    let mut host = Host::being_cut();
    assert_eq!(host.truncate(0), Ok(Progress::Done));
    assert_eq!((host.mount.orphans(), host.inode().sectors), (&[][..], 0), "all its blocks are free");
    assert_eq!(host.truncate(81 * BLOCK), Ok(Progress::Done));
    assert!(host.read(0..81 * BLOCK).iter().all(|byte| *byte == 0), "nothing comes back");
}

#[test]
fn a_file_without_a_name_stays_to_be_reclaimed_when_it_is_cut() {
    let mut host = Host::being_cut();
    let file = host.file;
    host.change(|operation| operation.trim(file)).unwrap();
    assert_eq!(host.write(0, &[1; 5000]), Ok(5000));
    host.change(|operation| operation.unlink(ROOT, b"file")).unwrap();
    assert_eq!(host.truncate(10), Ok(Progress::Done));
    assert_eq!((host.mount.orphans(), host.read(0..20)), (&[file][..], vec![1; 10]));
}
