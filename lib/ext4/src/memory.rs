//! A volume in memory, for tests of what is inside the package. Each of its blocks is there.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use crate::{Action, Block, Blocks, Format, FormatOptions, Geometry, Inode, Kind, Mount, New, Recovery, Step, Stop};
use crate::{Time, Volume, ZEROS};

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
        let options = FormatOptions {
            device_blocks: end,
            uuid: [7; 16],
            hash_seed: [9; 16],
            label: [0; 16],
            now_seconds: 1_000_000_000,
            is_zero: true,
        };
        let mut memory = Memory::zeros(end);
        for action in Format::new(&options).unwrap() {
            if let Action::Write { block, bytes } = action {
                memory.blocks.insert(block, bytes);
            }
        }
        memory
    }

    /// A block, to be changed.
    pub fn edit(&mut self, number: u64) -> &mut Block {
        self.blocks.entry(number).or_insert_with(|| Box::new(ZEROS))
    }

    /// Mounts it. The log has nothing that is not in its place.
    pub fn mount(&self) -> Mount {
        self.begin().unwrap()
    }

    /// Tries to.
    pub fn begin(&self) -> Result<Mount, Stop> {
        let volume = Volume::open(self, self.end).unwrap();
        let mut recovery = Recovery::begin(&volume, self).unwrap();
        let recovered = loop {
            if let Step::Done(recovered) = recovery.step(volume.geometry(), self).unwrap() {
                break recovered;
            }
        };
        assert_eq!(recovered.writes, [], "all is in its place");
        Mount::begin(self, self.end, &recovered)
    }

    /// Writes all that was changed, until it lasts.
    pub fn write(&mut self, mount: &mut Mount) {
        mount.sync_all();
        mount.write_places();
        while let Some(batch) = mount.next(NOW) {
            for put in batch.writes {
                *self.edit(put.block) = *put.bytes;
            }
            mount.done(true);
            mount.write_places();
        }
    }
}

/// When all is done that tests do.
pub(crate) const NOW: Time = Time { seconds: 2_000_000_000, nanoseconds: 5 };

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
