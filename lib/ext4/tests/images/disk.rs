//! A disk with a volatile write cache, for tests of all that writes.
//!
//! What was written is there for every reader, but lasts only when it was flushed, or when it was
//! written with FUA. [`Disk::cut`] takes the power away: of each block that was not flushed, the
//! disk then has what lasted, or any version written since, or sectors of 512 bytes of several. All
//! comes from a seed, so that a failure can be had again. Reads, writes and flushes fail when a
//! test has it so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::rc::Rc;

use crate::common::{Image, program};
use ext4::{BLOCK_BYTES, Block};

/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True once in `count`, on average.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// The disk failed: EIO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskError;

/// What fails.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Reads of these blocks.
    pub reads: BTreeSet<u64>,
    /// Writes of these blocks.
    pub writes: BTreeSet<u64>,
    /// Each flush, and each write with FUA.
    pub flushes: bool,
    /// Flushes and FUA are said to be done, and are not.
    pub lies: bool,
}

/// A disk.
#[derive(Clone)]
pub struct Disk {
    /// What it began as; disks after a cut share it.
    base: Rc<Image>,
    /// Blocks that are others since, and last.
    lasting: BTreeMap<u64, Rc<Block>>,
    /// Versions of blocks that were written since the last flush, the oldest first.
    volatile: BTreeMap<u64, Vec<Rc<Block>>>,
    pub faults: Faults,
}

impl Disk {
    pub fn new(base: &Rc<Image>) -> Disk {
        Disk { base: base.clone(), lasting: BTreeMap::new(), volatile: BTreeMap::new(), faults: Faults::default() }
    }

    pub fn blocks(&self) -> u64 {
        self.base.blocks()
    }

    /// What a reader sees.
    pub fn read(&self, block: u64) -> Result<Block, DiskError> {
        if self.faults.reads.contains(&block) {
            return Err(DiskError);
        }
        Ok(match self.volatile.get(&block).and_then(|versions| versions.last()) {
            Some(bytes) => **bytes,
            None => *self.lasts(block),
        })
    }

    /// What would be there after a cut, if of this block nothing was written since the last flush.
    fn lasts(&self, block: u64) -> &Block {
        if let Some(bytes) = self.lasting.get(&block) {
            return bytes;
        }
        self.base.block(block).unwrap_or_else(|| panic!("block {block} is not on the disk"))
    }

    /// Writes into the cache.
    pub fn write(&mut self, block: u64, bytes: &Block) -> Result<(), DiskError> {
        assert!(block < self.blocks(), "block {block} is not on the disk");
        if self.faults.writes.contains(&block) {
            return Err(DiskError);
        }
        self.volatile.entry(block).or_default().push(Rc::new(*bytes));
        Ok(())
    }

    /// Has the newest version of a block last, and of no other: the end of a write with FUA.
    pub fn persist(&mut self, block: u64) -> Result<(), DiskError> {
        if self.faults.flushes {
            return Err(DiskError);
        }
        if self.faults.lies {
            return Ok(());
        }
        if let Some(newest) = self.volatile.remove(&block).and_then(|mut versions| versions.pop()) {
            self.lasting.insert(block, newest);
        }
        Ok(())
    }

    /// Has all last that was written.
    pub fn flush(&mut self) -> Result<(), DiskError> {
        if self.faults.flushes {
            return Err(DiskError);
        }
        if self.faults.lies {
            return Ok(());
        }
        for (block, mut versions) in std::mem::take(&mut self.volatile) {
            self.lasting.extend(versions.pop().map(|newest| (block, newest)));
        }
        Ok(())
    }

    /// The disk after its power was cut now.
    pub fn cut(&self, random: &mut Random) -> Disk {
        let mut after = Disk { volatile: BTreeMap::new(), faults: Faults::default(), ..self.clone() };
        // Of some cuts nearly all is there, of others nearly nothing.
        let kept = random.below(5);
        for (block, versions) in &self.volatile {
            let mut bytes = *self.lasts(*block);
            let is_torn = random.one_in(3);
            let one = choose(random, versions, kept);
            for (at, sector) in bytes.chunks_mut(SECTOR_BYTES).enumerate() {
                let version = if is_torn { choose(random, versions, kept) } else { one };
                if let Some(version) = version {
                    sector.copy_from_slice(&version[at * SECTOR_BYTES..][..SECTOR_BYTES]);
                }
            }
            after.lasting.insert(*block, Rc::new(bytes));
        }
        after
    }

    /// Whether something would be lost by a cut.
    pub fn is_volatile(&self) -> bool {
        !self.volatile.is_empty()
    }

    /// All of it, as a reader sees it.
    pub fn image(&self) -> Image {
        let mut bytes = Vec::with_capacity(self.base.0.len());
        for block in 0..self.blocks() {
            bytes.extend(self.read(block).unwrap());
        }
        Image(bytes)
    }
}

/// In `kept` of four cases a version, mostly the newest; else none.
fn choose<'a>(random: &mut Random, versions: &'a [Rc<Block>], kept: usize) -> Option<&'a Block> {
    if random.below(4) >= kept {
        return None;
    }
    let any = random.below(versions.len());
    let index = if random.one_in(3) { any } else { versions.len() - 1 };
    Some(&versions[index])
}

/// A file that is like one disk after the other, for e2fsck.
pub struct Judge {
    base: Rc<Image>,
    folder: tempfile::TempDir,
    file: File,
    fsck: String,
    /// Blocks in which the file is not like the base.
    others: BTreeSet<u64>,
}

impl Judge {
    /// One for disks that began as `base`; `None` if there is no e2fsck.
    pub fn new(base: &Rc<Image>) -> Option<Judge> {
        let fsck = program("e2fsck")?;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        fs::write(&path, &base.0).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        Some(Judge { base: base.clone(), folder, file, fsck, others: BTreeSet::new() })
    }

    /// Makes the file as the disk is.
    fn take(&mut self, disk: &Disk) {
        assert!(Rc::ptr_eq(&self.base, &disk.base), "the disk began as something else");
        let blocks: BTreeSet<u64> = disk.lasting.keys().chain(disk.volatile.keys()).copied().collect();
        for block in self.others.union(&blocks) {
            let bytes = disk.read(*block).unwrap();
            self.file.write_all_at(&bytes, block * BLOCK_BYTES as u64).unwrap();
        }
        self.file.flush().unwrap();
        self.others = blocks;
    }

    /// Runs e2fsck with `option` on the disk.
    fn run(&mut self, option: &str) -> (Option<i32>, String) {
        let path = self.folder.path().join("image");
        let done = Command::new(&self.fsck).arg(option).arg(path).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// Whether `e2fsck -fn` finds nothing; else what it says.
    pub fn check(&mut self, disk: &Disk) -> Result<(), String> {
        self.take(disk);
        self.check_now()
    }

    fn check_now(&mut self) -> Result<(), String> {
        let (code, told) = self.run("-fn");
        if code == Some(0) { Ok(()) } else { Err(told) }
    }

    /// Whether `e2fsck -p` brings it in order by the journal and the orphan list only, and finds
    /// nothing afterwards; else what it says.
    pub fn recover(&mut self, disk: &Disk) -> Result<(), String> {
        const KNOWN: [&str; 4] =
            ["recovering journal", "Clearing orphaned inode", "Truncating orphaned inode", "clean, "];
        self.take(disk);
        let (code, told) = self.run("-p");
        let other = told.lines().find(|line| !KNOWN.iter().any(|known| line.contains(known)));
        let is_right = matches!(code, Some(0 | 1)) && other.is_none();
        // When e2fsck 1.47 has cut off an orphan whose extents take nodes, it does not count the
        // nodes that it has freed; of a short link it does not free the block of attributes. After
        // that there is something to find, whatever program wrote the volume.
        let is_miscounted = ["Truncating orphaned inode", "mode=012"].iter().any(|words| told.contains(words));
        let done = match is_right {
            true if is_miscounted => Ok(()),
            true => self.check_now().map_err(|again| format!("{told}{again}")),
            false => Err(told),
        };
        // e2fsck wrote to blocks that are not known here.
        self.file.write_all_at(&self.base.0, 0).unwrap();
        self.others.clear();
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        Disk::new(&Rc::new(Image(vec![0; 8 * BLOCK_BYTES])))
    }

    #[test]
    fn what_was_flushed_or_written_by_fua_lasts_through_every_cut() {
        let mut disk = disk();
        disk.write(1, &[1; BLOCK_BYTES]).unwrap();
        disk.write(1, &[2; BLOCK_BYTES]).unwrap();
        disk.flush().unwrap();
        disk.write(2, &[3; BLOCK_BYTES]).unwrap();
        disk.write(3, &[4; BLOCK_BYTES]).unwrap();
        disk.persist(2).unwrap();
        for seed in 0..100 {
            let after = disk.cut(&mut Random::new(seed));
            assert!(!after.is_volatile());
            assert_eq!(after.read(1), Ok([2; BLOCK_BYTES]));
            assert_eq!(after.read(2), Ok([3; BLOCK_BYTES]));
        }
    }

    #[test]
    fn cuts_keep_any_subset_and_tear_at_sectors() {
        let mut disk = disk();
        let mut seen = BTreeSet::new();
        for value in 1..=2 {
            disk.write(1, &[value; BLOCK_BYTES]).unwrap();
            disk.write(2, &[value; BLOCK_BYTES]).unwrap();
        }
        let mut torn = 0;
        for seed in 0..1000 {
            let after = disk.cut(&mut Random::new(seed));
            let [one, two] = [1, 2].map(|block| after.read(block).unwrap());
            for bytes in [one, two] {
                assert!(bytes.chunks(SECTOR_BYTES).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
                torn += u32::from(bytes.iter().any(|byte| *byte != bytes[0]));
            }
            seen.insert((one[0], two[0]));
        }
        assert_eq!(seen.len(), 9, "each version of each block is met with each of the other");
        assert!(torn > 100, "{torn} of 2000 are torn");
        assert_eq!(disk.read(1), Ok([2; BLOCK_BYTES]), "a reader sees the newest");
    }

    #[test]
    fn what_shall_fail_fails_and_changes_nothing() {
        let mut disk = disk();
        disk.faults = Faults { reads: [1].into(), writes: [2].into(), flushes: true, lies: false };
        assert_eq!(disk.read(1), Err(DiskError));
        assert_eq!(disk.write(2, &[1; BLOCK_BYTES]), Err(DiskError));
        assert_eq!(disk.read(2), Ok([0; BLOCK_BYTES]));
        disk.write(3, &[1; BLOCK_BYTES]).unwrap();
        assert_eq!(disk.flush(), Err(DiskError));
        assert_eq!(disk.persist(3), Err(DiskError));
        assert!(disk.is_volatile());
    }

    #[test]
    fn the_judge_sees_each_disk_as_it_is() {
        let Some(image) = crate::common::make(24, &[]) else { return };
        let base = Rc::new(image);
        let Some(mut judge) = Judge::new(&base) else { return };
        let good = Disk::new(&base);
        let mut bad = good.clone();
        bad.write(1, &[0; BLOCK_BYTES]).unwrap();
        for _ in 0..2 {
            assert_eq!(judge.check(&good), Ok(()));
            assert!(judge.check(&bad).is_err());
            assert_eq!(judge.recover(&good), Ok(()));
            assert!(judge.recover(&bad).is_err());
        }
    }
}
