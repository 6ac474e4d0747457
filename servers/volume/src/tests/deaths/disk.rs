//! A disk with a volatile cache, and the judgement of e2fsck on it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::rc::Rc;

use ext4::{BLOCK_BYTES, Block};

const SECTOR: usize = 512;

/// Numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
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

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// Blocks by their numbers. What was written is there for who reads, and lasts when it was flushed.
#[derive(Clone)]
pub struct Disk {
    /// What it began as.
    base: Rc<Vec<u8>>,
    lasting: BTreeMap<u64, Rc<Block>>,
    /// Versions that a loss of power may take, the oldest first, each with the count of writes.
    volatile: BTreeMap<u64, Vec<(u64, Rc<Block>)>>,
    writes: u64,
}

impl Disk {
    pub fn new(base: Rc<Vec<u8>>) -> Disk {
        Disk { base, lasting: BTreeMap::new(), volatile: BTreeMap::new(), writes: 0 }
    }

    pub fn blocks(&self) -> u64 {
        (self.base.len() / BLOCK_BYTES) as u64
    }

    /// Writes so far.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    fn lasts(&self, block: u64) -> &Block {
        let base = || &self.base.as_chunks::<BLOCK_BYTES>().0[block as usize];
        self.lasting.get(&block).map_or_else(base, Rc::as_ref)
    }

    pub fn read(&self, block: u64) -> &Block {
        let newest = self.volatile.get(&block).and_then(|versions| versions.last());
        newest.map_or_else(|| self.lasts(block), |(_, bytes)| bytes)
    }

    pub fn write(&mut self, block: u64, bytes: Block) {
        assert!(block < self.blocks(), "block {block} is not on the disk");
        self.writes += 1;
        self.volatile.entry(block).or_default().push((self.writes, Rc::new(bytes)));
    }

    /// The first `writes` of all last. Of later ones nothing is said.
    pub fn flush(&mut self, writes: u64) {
        for (block, versions) in &mut self.volatile {
            let covered = versions.partition_point(|(number, _)| *number <= writes);
            if let Some((_, newest)) = versions.drain(..covered).next_back() {
                self.lasting.insert(*block, newest);
            }
        }
        self.volatile.retain(|_, versions| !versions.is_empty());
    }

    /// What is left when the power goes now: of each block what lasts, a version that was written
    /// since, or sectors of several.
    pub fn cut(&self, random: &mut Random) -> Disk {
        let mut after = Disk { volatile: BTreeMap::new(), ..self.clone() };
        // Of some cuts nearly all is there, of others nearly nothing.
        let kept = random.below(5);
        for (block, versions) in &self.volatile {
            let mut bytes = *self.lasts(*block);
            let is_torn = random.one_in(3);
            let mut any = || (random.below(4) < kept).then(|| &versions[random.below(versions.len())].1);
            let one = any();
            for (at, sector) in bytes.chunks_mut(SECTOR).enumerate() {
                if let Some(version) = if is_torn { any() } else { one } {
                    sector.copy_from_slice(&version[at * SECTOR..][..SECTOR]);
                }
            }
            after.lasting.insert(*block, Rc::new(bytes));
        }
        after
    }

    /// Whether all that was written lasts.
    pub fn lasts_all(&self) -> bool {
        self.volatile.is_empty()
    }
}

/// A file that is like one disk after the other, for e2fsck.
pub struct Judge {
    base: Rc<Vec<u8>>,
    folder: tempfile::TempDir,
    file: File,
    /// Blocks in which the file is not like the base.
    others: Vec<u64>,
}

impl Judge {
    pub fn new(base: &Rc<Vec<u8>>) -> Judge {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        fs::write(&path, &**base).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        Judge { base: base.clone(), folder, file, others: Vec::new() }
    }

    /// Whether e2fsck finds nothing; else what it says.
    pub fn check(&mut self, disk: &Disk) -> Result<(), String> {
        let put = |block: u64, bytes: &[u8]| self.file.write_all_at(bytes, block * BLOCK_BYTES as u64).unwrap();
        for block in &self.others {
            put(*block, &self.base[*block as usize * BLOCK_BYTES..][..BLOCK_BYTES]);
        }
        self.others = disk.lasting.keys().chain(disk.volatile.keys()).copied().collect();
        for block in &self.others {
            put(*block, disk.read(*block));
        }
        let mut fsck = Command::new("/usr/sbin/e2fsck");
        let done = fsck.arg("-fn").arg(self.folder.path().join("image")).output().unwrap();
        if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stdout).into_owned()) }
    }
}
