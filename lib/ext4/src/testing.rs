//! What tests share: a volume in memory, and what is done to it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::inode::Inode;
use crate::{
    Action, BLOCK_BYTES, Batch, Block, Blocks, Format, FormatOptions, Kind, Mount, New, Operation, Recovered, Recovery,
    Step, Stop, Time, Volume, ZEROS,
};

/// When all happens.
pub(crate) const NOW: Time = Time { seconds: 1_700_000_000, nanoseconds: 7 };

pub(crate) fn options(device_blocks: u64) -> FormatOptions {
    let (uuid, hash_seed, label) = (*b"0123456789abcdef", *b"seed of all hash", *b"a label of ours.");
    FormatOptions { device_blocks, uuid, hash_seed, label, now_seconds: NOW.seconds as u64, is_zero: true }
}

/// A device whose blocks are zeros until they are written.
#[derive(Clone)]
pub(crate) struct Memory {
    written: BTreeMap<u64, Box<Block>>,
    blocks: u64,
}

impl Blocks for Memory {
    fn block(&self, number: u64) -> Option<&Block> {
        (number < self.blocks).then(|| self.written.get(&number).map_or(&ZEROS, |block| block))
    }
}

impl Memory {
    /// A new volume on a device of so many blocks.
    pub fn formatted(blocks: u64) -> Memory {
        let mut memory = Memory { written: BTreeMap::new(), blocks };
        for action in Format::new(&options(blocks)).unwrap() {
            if let Action::Write { block, bytes } = action {
                memory.written.insert(block, bytes);
            }
        }
        memory
    }

    pub fn block_mut(&mut self, number: u64) -> &mut Block {
        assert!(number < self.blocks, "block {number} is not on the device");
        self.written.entry(number).or_insert_with(|| Box::new([0; BLOCK_BYTES]))
    }

    pub fn volume(&self) -> Volume {
        Volume::open(self, self.blocks).unwrap()
    }

    pub fn inode(&self, number: u32) -> Inode {
        self.volume().inode(self, number).unwrap()
    }

    /// Writes an inode to its place.
    pub fn put_inode(&mut self, inode: &Inode) {
        let (block, at) = self.volume().inode_place(self, inode.number).unwrap();
        inode.encode(&mut self.block_mut(block)[at..at + 256]);
    }

    /// Makes an inode a file without bytes, whatever it was.
    pub fn make_file(&mut self, number: u32) {
        let volume = self.volume();
        let (block, at) = volume.inode_place(self, number).unwrap();
        let bytes = &mut self.block_mut(block)[at..at + 256];
        let mut inode = Inode::begin(volume.geometry(), number, bytes, 32, &file(), NOW);
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

    pub fn mount(&self) -> Mount {
        Mount::begin(self, self.blocks, &self.recover().unwrap()).unwrap()
    }
}

/// A file that is to be.
pub(crate) fn file() -> New {
    New { kind: Kind::File, permissions: 0o644, user: 1, group: 2, device: 0 }
}

/// Changes a volume of which all blocks are there.
pub(crate) fn change<T>(
    mount: &mut Mount,
    memory: &Memory,
    operation: impl FnOnce(&mut Operation<'_, Memory>) -> Result<T, Stop>,
) -> Result<T, Stop> {
    mount.change(memory, NOW, operation)
}

/// Writes all that is to be written now, and returns it.
pub(crate) fn write_all(mount: &mut Mount, memory: &mut Memory) -> Vec<Batch> {
    let mut batches = Vec::new();
    while let Some(batch) = mount.next(NOW) {
        for put in &batch.writes {
            *memory.block_mut(put.block) = *put.bytes;
        }
        mount.done(true);
        batches.push(batch);
    }
    batches
}
