//! A volume that is written: a disk in memory, and a cache that has nothing but what was asked for.

use std::collections::BTreeMap;

use ext4::{Batch, Block, Blocks, Error, Known, Mount, Operation, Recovered, Recovery, Step, Stop, Time, View, Volume};

use crate::common::{Cache, Image};
use crate::host::Host;

/// A mounted volume and its disk.
pub struct Writer {
    pub disk: Image,
    cache: There,
    pub mount: Mount,
    /// All batches that were written, in order.
    pub written: Vec<Batch>,
    seconds: i64,
}

/// The cache of a [`Writer`].
#[derive(Default)]
pub struct There(BTreeMap<u64, (Block, Known)>);

impl Blocks for There {
    fn block(&self, number: u64) -> Option<&Block> {
        self.0.get(&number).map(|(block, _)| block)
    }

    fn block_known(&self, number: u64) -> Option<(&Block, Option<&Known>)> {
        self.0.get(&number).map(|(block, known)| (block, Some(known)))
    }
}

/// Recovers an image as a component does.
pub fn recover(disk: &mut Image) -> Result<Recovered, Error> {
    let found = {
        let mut cache = Cache::new(disk);
        let volume = cache.run(|blocks| Volume::open(blocks, disk.blocks()))?;
        let mut recovery = cache.run(|blocks| Recovery::begin(&volume, blocks))?;
        loop {
            if let Step::Done(found) = cache.run(|blocks| recovery.step(volume.geometry(), blocks))? {
                break found;
            }
        }
    };
    for write in &found.writes {
        let bytes = write.bytes(disk.block(write.from).unwrap());
        *disk.block_mut(write.to) = bytes;
    }
    Ok(found)
}

impl Writer {
    pub fn new(mut disk: Image) -> Result<Writer, Error> {
        let recovered = recover(&mut disk)?;
        let mut cache = Cache::new(&disk);
        let mount = cache.run(|blocks| Mount::begin(blocks, disk.blocks(), &recovered))?;
        drop(cache);
        Ok(Writer { disk, cache: There::default(), mount, written: Vec::new(), seconds: 2_000_000_000 })
    }

    fn now(&mut self) -> Time {
        self.seconds += 1;
        Time { seconds: self.seconds, nanoseconds: 5 }
    }

    fn load(&mut self, number: u64) {
        let block = self.disk.block(number).unwrap_or_else(|| panic!("block {number} is not in the volume"));
        assert!(self.cache.0.insert(number, (*block, Known::default())).is_none(), "block {number} was there");
    }

    /// Writes all that is to be written now.
    pub fn write(&mut self) {
        while self.step() {}
    }

    /// Writes the next batch, if there is one.
    pub fn step(&mut self) -> bool {
        let now = self.now();
        let Some(batch) = self.mount.next(now) else { return false };
        assert!(self.mount.next(now).is_none(), "one batch at a time");
        for put in &batch.writes {
            *self.disk.block_mut(put.block) = *put.bytes;
            self.cache.0.insert(put.block, (*put.bytes, Known::default()));
        }
        self.written.push(batch);
        self.mount.done(true);
        true
    }

    /// Ends, and gives the image.
    pub fn close(mut self) -> Image {
        self.mount.close();
        self.write();
        assert!(self.mount.is_closed());
        self.disk
    }
}

impl Host for Writer {
    type Cache = There;

    fn change<T>(
        &mut self,
        mut operation: impl FnMut(&mut Operation<'_, There>) -> Result<T, Stop>,
    ) -> Result<T, Error> {
        let now = self.now();
        self.cache.0.clear();
        loop {
            match self.mount.change(&self.cache, now, &mut operation) {
                Ok(result) => return Ok(result),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Need(number)) => self.load(number),
                Err(Stop::Commit(number)) => {
                    self.write();
                    assert_eq!(self.mount.lasts(number), Ok(true), "what is waited for is committed");
                }
            }
        }
    }

    fn ask<T>(&mut self, mut question: impl FnMut(&Volume, &View<'_, There>) -> Result<T, Stop>) -> Result<T, Error> {
        loop {
            match question(self.mount.volume(), &self.mount.view(&self.cache)) {
                Ok(result) => return Ok(result),
                Err(Stop::Need(number)) => self.load(number),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Commit(number)) => panic!("transaction {number} is waited for by a reader"),
            }
        }
    }

    fn sync(&mut self) {
        if let Some(number) = self.mount.sync_all() {
            self.write();
            assert_eq!(self.mount.lasts(number), Ok(true));
        }
    }

    fn write_places(&mut self) {
        self.mount.write_places();
        self.write();
    }
}
