//! Blocks between the cache and the disk's server.
//!
//! Each request is a task of its own, which nobody can end: its place in the data region is in use
//! until the disk has answered. Who waits for a block that is being read waits for that request.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use contracts::blocks::{BlocksClient, Disk, Extent};
use ext4::{BLOCK_BYTES, Block, Put, Write};
use runtime::{Bulk, Watch};
use volume_core::cache::Cache;

/// Sectors of a block.
const SECTORS: u32 = (BLOCK_BYTES / 512) as u32;

/// The disk failed, or is gone: it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// A block that is being read.
#[derive(Default)]
struct Fetch {
    outcome: Cell<Option<Result<(), Failed>>>,
    ended: Watch,
    /// It was written meanwhile: what is read may be older.
    is_overtaken: Cell<bool>,
}

/// The disk and the cache before it.
pub struct Device {
    blocks: BlocksClient,
    data: Bulk,
    disk: Disk,
    /// Number of the next request.
    next: Cell<u64>,
    /// Places in the data region that nobody uses.
    places: RefCell<Vec<u32>>,
    place_freed: Watch,
    fetches: RefCell<BTreeMap<u64, Rc<Fetch>>>,
    /// What the journal of a volume that is only read has for places: it is read from there.
    redirects: RefCell<BTreeMap<u64, Write>>,
    pub cache: RefCell<Cache>,
}

impl Device {
    /// `first` is the number of the client's first request, `disk` what the server said of it.
    pub fn new(blocks: BlocksClient, data: Bulk, disk: Disk, first: u64, cache: Cache) -> Device {
        let fit = disk.data_bytes / BLOCK_BYTES as u32;
        // One request at a time has no bytes: a flush.
        let most = u32::from(disk.requests_max).saturating_sub(1);
        let places = (0..fit.min(most)).map(|at| disk.data_offset + at * BLOCK_BYTES as u32);
        Device {
            places: RefCell::new(places.collect()),
            blocks,
            data,
            disk,
            next: Cell::new(first),
            place_freed: Watch::new(),
            fetches: RefCell::default(),
            redirects: RefCell::default(),
            cache: RefCell::new(cache),
        }
    }

    /// What the disk is.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Blocks that it has.
    pub fn size(&self) -> u64 {
        self.disk.sectors / u64::from(SECTORS)
    }

    fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    async fn place(&self) -> u32 {
        self.place_freed.until(|| self.places.borrow_mut().pop()).await
    }

    fn free_place(&self, place: u32) {
        self.places.borrow_mut().push(place);
        self.place_freed.changed();
    }

    /// Begins to read a block, unless it is there or being read.
    pub fn begin(self: &Rc<Self>, number: u64) {
        if !self.cache.borrow().has(number) {
            self.fetch(number);
        }
    }

    /// Pins a block, when it was read.
    pub async fn pin(self: &Rc<Self>, number: u64) -> Result<(), Failed> {
        loop {
            if self.cache.borrow_mut().pin(number) {
                return Ok(());
            }
            let fetch = self.fetch(number);
            fetch.ended.until(|| fetch.outcome.get()).await?;
        }
    }

    fn fetch(self: &Rc<Self>, number: u64) -> Rc<Fetch> {
        let mut fetches = self.fetches.borrow_mut();
        if let Some(fetch) = fetches.get(&number) {
            return fetch.clone();
        }
        let fetch = Rc::new(Fetch::default());
        fetches.insert(number, fetch.clone());
        let (own, begun) = (self.clone(), fetch.clone());
        runtime::spawn(async move {
            let outcome = own.read(number).await;
            own.fetches.borrow_mut().remove(&number);
            if let Ok(bytes) = &outcome
                && !begun.is_overtaken.get()
            {
                own.cache.borrow_mut().insert(number, bytes.clone());
            }
            begun.outcome.set(Some(outcome.map(drop)));
            begun.ended.changed();
        });
        fetch
    }

    /// From now on blocks of these places are read where the journal has them.
    pub fn redirect(&self, writes: Vec<Write>) {
        self.redirects.borrow_mut().extend(writes.into_iter().map(|write| (write.to, write)));
        self.drop_blocks();
    }

    /// Drops all blocks that nobody needs just now.
    pub fn drop_blocks(&self) {
        self.cache.borrow_mut().clear();
    }

    async fn read(&self, number: u64) -> Result<Arc<Block>, Failed> {
        let redirect = self.redirects.borrow().get(&number).copied();
        let bytes = self.read_at(redirect.map_or(number, |write| write.from)).await?;
        Ok(Arc::new(redirect.map_or(bytes, |write| write.bytes(&bytes))))
    }

    async fn read_at(&self, number: u64) -> Result<Block, Failed> {
        let place = self.place().await;
        let from = Extent { sector: number * u64::from(SECTORS), sectors: SECTORS };
        let answer = self.blocks.read(self.number(), from, place).await;
        let mut bytes = [0; BLOCK_BYTES];
        let copied = self.data.read(place as usize, &mut bytes);
        self.free_place(place);
        if let Err(error) = answer {
            runtime::log!("block {number} cannot be read: {error:?}");
            return Err(Failed);
        }
        copied.map(|()| bytes).map_err(|_| Failed)
    }

    /// Writes a block, and has it in the cache. What is read meanwhile does not count.
    pub async fn write(&self, number: u64, bytes: Arc<Block>) -> Result<(), Failed> {
        let place = self.place().await;
        let copied = self.data.write(place as usize, &bytes[..]);
        let to = Extent { sector: number * u64::from(SECTORS), sectors: SECTORS };
        let answer = self.blocks.write(self.number(), to, place).await;
        self.free_place(place);
        if let Some(fetch) = self.fetches.borrow().get(&number) {
            fetch.is_overtaken.set(true);
        }
        self.cache.borrow_mut().insert(number, bytes);
        if let Err(error) = answer {
            runtime::log!("block {number} cannot be written: {error:?}");
            return Err(Failed);
        }
        copied.map_err(|_| Failed)
    }

    /// What was written lasts.
    pub async fn flush(&self) -> Result<(), Failed> {
        let answer = self.blocks.flush(self.number()).await;
        if let Err(error) = &answer {
            runtime::log!("the disk cannot flush: {error:?}");
        }
        answer.map(drop).map_err(|_| Failed)
    }

    /// Writes blocks, in any order, and gives the files (0: metadata) of which some could not be
    /// written.
    pub async fn write_all(self: &Rc<Self>, puts: Vec<Put>) -> Vec<u32> {
        let left = Rc::new((Cell::new(puts.len()), Watch::new(), RefCell::new(Vec::new())));
        for Put { block, bytes, inode } in puts {
            let (own, left) = (self.clone(), left.clone());
            runtime::spawn(async move {
                if own.write(block, bytes).await.is_err() {
                    left.2.borrow_mut().push(inode);
                }
                left.0.set(left.0.get() - 1);
                left.1.changed();
            });
        }
        left.1.until(|| (left.0.get() == 0).then_some(())).await;
        left.2.take()
    }
}
