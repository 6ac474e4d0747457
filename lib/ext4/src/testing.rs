//! What tests of the package share: a volume in memory of which each block is there, and what is
//! done to it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::{
    Action, Batch, Block, Blocks, Format, FormatOptions, Geometry, Inode, Kind, Mount, New, Operation, Recovered,
    Recovery, Step, Stop, Time, Volume, ZEROS,
};

/// When all is done that tests do.
pub(crate) const NOW: Time = Time { seconds: 2_000_000_000, nanoseconds: 5 };

/// How a new volume of so many blocks is made.
pub(crate) fn options(device_blocks: u64) -> FormatOptions {
    let (uuid, hash_seed, label) = (*b"0123456789abcdef", [9; 16], *b"a label of ours.");
    FormatOptions { device_blocks, uuid, hash_seed, label, now_seconds: NOW.seconds as u64, is_zero: true }
}

/// Blocks of which most are zeros.
#[derive(Clone)]
pub(crate) struct Memory {
    blocks: BTreeMap<u64, Box<Block>>,
    end: u64,
}

impl Blocks for Memory {
    fn block(&self, number: u64) -> Option<&Block> {
        (number < self.end).then(|| self.blocks.get(&number).map_or(&ZEROS, |block| block))
    }
}

impl Memory {
    /// So many blocks of zeros.
    pub fn zeros(end: u64) -> Memory {
        Memory { blocks: BTreeMap::new(), end }
    }

    /// A new volume of so many blocks.
    pub fn formatted(end: u64) -> Memory {
        let mut memory = Memory::zeros(end);
        for action in Format::new(&options(end)).unwrap() {
            if let Action::Write { block, bytes } = action {
                memory.blocks.insert(block, bytes);
            }
        }
        memory
    }

    /// A block, to be changed.
    pub fn edit(&mut self, number: u64) -> &mut Block {
        assert!(number < self.end, "there is no block {number}");
        self.blocks.entry(number).or_insert_with(|| Box::new(ZEROS))
    }

    pub fn volume(&self) -> Volume {
        Volume::open(self, self.end).unwrap()
    }

    pub fn inode(&self, number: u32) -> Inode {
        self.volume().inode(self, number).unwrap()
    }

    /// Writes an inode to its place.
    pub fn put_inode(&mut self, inode: &Inode) {
        let (block, at) = self.volume().inode_place(self, inode.number).unwrap();
        inode.encode(&mut self.edit(block)[at..at + 256]);
    }

    /// Makes an inode a file without bytes, whatever it was.
    pub fn make_file(&mut self, number: u32) {
        let volume = self.volume();
        let (block, at) = volume.inode_place(self, number).unwrap();
        let bytes = &mut self.edit(block)[at..at + 256];
        let mut inode = Inode::begin(volume.geometry(), number, bytes, 32, &new(Kind::File), NOW);
        inode.links = 1;
        inode.encode(bytes);
    }

    /// What the journal has.
    pub fn recover(&self) -> Result<Recovered, Stop> {
        let volume = self.volume();
        let mut recovery = Recovery::begin(&volume, self)?;
        for _ in 0..10_000 {
            if let Step::Done(recovered) = recovery.step(volume.geometry(), self)? {
                return Ok(recovered);
            }
        }
        panic!("a recovery ends");
    }

    /// Mounts it. The journal has nothing that is not in its place.
    pub fn mount(&self) -> Mount {
        self.begin().unwrap()
    }

    /// Tries to.
    pub fn begin(&self) -> Result<Mount, Stop> {
        let recovered = self.recover().unwrap();
        assert_eq!(recovered.writes, [], "all is in its place");
        Mount::begin(self, self.end, &recovered)
    }

    /// Writes all that was changed, until it lasts.
    pub fn write(&mut self, mount: &mut Mount) {
        mount.sync_all();
        mount.write_places();
        while !self.write_now(mount).is_empty() {
            mount.write_places();
        }
    }

    /// Writes all that is to be written now, and gives it.
    pub fn write_now(&mut self, mount: &mut Mount) -> Vec<Batch> {
        let batches = core::iter::from_fn(|| {
            let batch = mount.next(NOW)?;
            batch.writes.iter().for_each(|put| *self.edit(put.block) = *put.bytes);
            mount.done(true);
            Some(batch)
        });
        batches.collect()
    }
}

/// Changes a volume of which all blocks are there.
pub(crate) fn change<T>(
    mount: &mut Mount,
    memory: &Memory,
    operation: impl FnOnce(&mut Operation<'_, Memory>) -> Result<T, Stop>,
) -> Result<T, Stop> {
    mount.change(memory, NOW, operation)
}

/// What a test makes of a kind.
pub(crate) fn new(kind: Kind) -> New {
    New { kind, permissions: 0o640, user: 1, group: 2, device: 0 }
}

/// A new inode that no volume knows of.
pub(crate) fn inode(geometry: &Geometry, number: u32, kind: Kind) -> Inode {
    Inode::begin(geometry, number, &mut [0; 256], 32, &new(kind), NOW)
}

/// Numbers of a volume of so many blocks.
pub(crate) fn geometry(blocks: u64) -> Geometry {
    Geometry {
        blocks,
        inodes: 64,
        groups: 1,
        inodes_per_group: 64,
        inode_bytes: 256,
        hash_seed: [0; 4],
        is_hash_unsigned: false,
        needs_recovery: false,
        checksum_seed: 77,
    }
}
