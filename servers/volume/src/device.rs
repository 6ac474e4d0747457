//! Blocks between the cache and the disk's server.
//!
//! Blocks that lie side by side are one request. Each request is a task of its own, which nobody
//! can end: its places in the data region are in use until the disk has answered. Who waits for a
//! block that is being read waits for that request. A request of several that fails is made again
//! for each of them: the disk's word is about the whole, a loss is of one file.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;

use contracts::blocks::{BlocksClient, Disk, Extent};
use ext4::{BLOCK_BYTES, Put, Write};
use runtime::{Bulk, Watch};
use volume_core::budget::{Balance, Budget};
use volume_core::cache::{Cache, Full};
use volume_core::places::Places;

/// Sectors of a block.
const SECTORS: u32 = (BLOCK_BYTES / 512) as u32;
/// Most blocks of a request: 128 KiB, what a component that encrypts takes at once.
const REQUEST_BLOCKS_MAX: u32 = 32;
/// A request has at most this part of the places, so that others go on beside it.
const PLACES_PART: u32 = 4;

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

/// Memory for blocks.
pub struct Memory {
    pub budget: Budget,
    /// Pages that the component can still have.
    pub available: Box<dyn Fn() -> usize>,
}

/// The disk and the cache before it.
pub struct Device {
    blocks: BlocksClient,
    data: Bulk,
    disk: Disk,
    /// Most blocks of a request.
    most: u32,
    /// Number of the next request.
    next: Cell<u64>,
    /// What is free of the data region, and of the requests that may be under way.
    places: RefCell<Places>,
    place_freed: Watch,
    fetches: RefCell<BTreeMap<u64, Rc<Fetch>>>,
    /// What the journal of a volume that is only read has for places: it is read from there.
    redirects: RefCell<BTreeMap<u64, Write>>,
    memory: Memory,
    balance: Cell<Balance>,
    pub cache: RefCell<Cache>,
}

impl Device {
    /// `first` is the number of the client's first request, `disk` what the server said of it.
    pub fn new(blocks: BlocksClient, data: Bulk, disk: Disk, first: u64, memory: Memory) -> Device {
        let places = disk.data_bytes / BLOCK_BYTES as u32;
        // One request at a time has no bytes: a flush.
        let requests = u32::from(disk.requests_max).saturating_sub(1);
        Device {
            most: REQUEST_BLOCKS_MAX.min(disk.sectors_max / SECTORS).min(places / PLACES_PART).max(1),
            places: RefCell::new(Places::new(places, requests)),
            blocks,
            data,
            disk,
            next: Cell::new(first),
            place_freed: Watch::new(),
            fetches: RefCell::default(),
            redirects: RefCell::default(),
            cache: RefCell::new(Cache::new(1, disk.sectors / u64::from(SECTORS))),
            balance: Cell::new(Balance::of(memory.budget)),
            memory,
        }
    }

    /// What the disk is.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// How much memory blocks may take.
    pub fn budget(&self) -> Budget {
        self.memory.budget
    }

    /// So many blocks are newer than the disk: there is so much less room for clean ones.
    pub fn hold(&self, blocks: usize) {
        let mut balance = self.balance.get();
        if balance.hold(blocks) {
            self.balance.set(balance);
            self.make_room();
        }
    }

    /// Drops clean blocks of which there are too many, or lets them become more.
    fn make_room(&self) {
        let (mut balance, mut cache) = (self.balance.get(), self.cache.borrow_mut());
        let limit = balance.clean_max(cache.len(), (self.memory.available)());
        cache.set_limit(limit);
        self.balance.set(balance);
    }

    /// Blocks that it has.
    pub fn size(&self) -> u64 {
        self.disk.sectors / u64::from(SECTORS)
    }

    fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// Places for up to `wanted` blocks, at least one.
    async fn places(&self, wanted: usize) -> Range<u32> {
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).min(self.most);
        self.place_freed.until(|| self.places.borrow_mut().take(wanted)).await
    }

    fn free_places(&self, places: Range<u32>) {
        self.places.borrow_mut().give(places);
        self.place_freed.changed();
    }

    /// Where a place begins in the data region.
    fn offset(&self, place: u32) -> u32 {
        self.disk.data_offset + place * BLOCK_BYTES as u32
    }

    /// Begins to read blocks, those that are not there and not being read.
    pub fn begin(self: &Rc<Self>, blocks: impl IntoIterator<Item = u64>) {
        let mut run = Vec::new();
        for block in blocks {
            if self.cache.borrow().has(block) || self.fetches.borrow().contains_key(&block) {
                continue;
            }
            if !self.goes_on(&run, block) {
                self.fetch(core::mem::take(&mut run));
            }
            run.push(block);
            // From now on it is being read.
            self.fetches.borrow_mut().insert(block, Rc::default());
        }
        self.fetch(run);
    }

    /// Whether a block is read by the same request as those before it.
    fn goes_on(&self, run: &[u64], block: u64) -> bool {
        let redirects = self.redirects.borrow();
        let is_apart = |block: &u64| redirects.contains_key(block);
        run.last().is_none_or(|last| {
            last + 1 == block && run.len() < self.most as usize && !is_apart(last) && !is_apart(&block)
        })
    }

    /// Pins a block, when it was read.
    pub async fn pin(self: &Rc<Self>, number: u64) -> Result<(), Failed> {
        loop {
            if self.cache.borrow_mut().pin(number) {
                return Ok(());
            }
            self.begin([number]);
            let fetch = self.fetches.borrow().get(&number).cloned();
            let Some(fetch) = fetch else { continue };
            fetch.ended.until(|| fetch.outcome.get()).await?;
        }
    }

    /// Reads blocks that lie side by side, which are noted as being read.
    fn fetch(self: &Rc<Self>, run: Vec<u64>) {
        if run.is_empty() {
            return;
        }
        let own = self.clone();
        runtime::spawn(async move {
            let mut left = &run[..];
            while !left.is_empty() {
                let places = own.places(left.len()).await;
                let (now, later) = left.split_at(places.len());
                own.read(now, &places).await;
                own.free_places(places);
                left = later;
            }
        });
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

    /// Reads blocks that lie side by side, and has them in the cache.
    async fn read(&self, run: &[u64], places: &Range<u32>) {
        let together = self.read_at(run, places.start).await;
        self.make_room();
        for (&block, place) in run.iter().zip(places.clone()) {
            let read = match together {
                // What lies beside it may be what cannot be read.
                Err(Failed) if run.len() > 1 => self.read_at(&[block], place).await,
                outcome => outcome,
            };
            self.end_fetch(block, read, place);
        }
    }

    async fn read_at(&self, run: &[u64], place: u32) -> Result<(), Failed> {
        let first = self.redirects.borrow().get(&run[0]).map_or(run[0], |write| write.from);
        let answer = self.blocks.read(self.number(), extent(first, run.len()), self.offset(place)).await;
        if let (Err(error), [block]) = (&answer, run) {
            runtime::log!("block {block} cannot be read: {error:?}");
        }
        answer.map_err(|_| Failed)
    }

    /// A block was read into a place, or cannot be.
    fn end_fetch(&self, block: u64, read: Result<(), Failed>, place: u32) {
        let Some(fetch) = self.fetches.borrow_mut().remove(&block) else { return };
        // What was written meanwhile is newer, and may be there.
        let is_wanted = read.is_ok() && !fetch.is_overtaken.get();
        let outcome = if is_wanted { self.take_in(block, place) } else { read };
        fetch.outcome.set(Some(outcome));
        fetch.ended.changed();
    }

    /// Has a block in the cache that was read into a place.
    fn take_in(&self, block: u64, place: u32) -> Result<(), Failed> {
        let redirect = self.redirects.borrow().get(&block).copied();
        let from = self.offset(place) as usize;
        let mut copied = Ok(());
        let kept = self.cache.borrow_mut().insert(block, |bytes| {
            copied = self.data.read(from, bytes).map_err(|_| Failed);
            if let Some(write) = redirect {
                *bytes = write.bytes(bytes);
            }
        });
        copied.and(kept.map_err(|Full| Failed))
    }

    /// Writes blocks that lie side by side, and has them in the cache: what is read meanwhile does
    /// not count. Gives the files of which some could not be written.
    async fn write(&self, run: &[Put], places: &Range<u32>) -> Vec<u32> {
        let together = self.write_at(run, places.start).await;
        self.make_room();
        let mut lost = Vec::new();
        for (put, place) in run.iter().zip(places.clone()) {
            let written = match together {
                // What cannot be written may be another file's.
                Err(Failed) if run.len() > 1 => self.write_at(core::slice::from_ref(put), place).await,
                outcome => outcome,
            };
            if let Some(fetch) = self.fetches.borrow().get(&put.block) {
                fetch.is_overtaken.set(true);
            }
            // Without memory it is read again.
            let _ = self.cache.borrow_mut().insert(put.block, |bytes| bytes.copy_from_slice(&put.bytes[..]));
            lost.extend(written.is_err().then_some(put.inode));
        }
        lost
    }

    async fn write_at(&self, run: &[Put], place: u32) -> Result<(), Failed> {
        for (put, place) in run.iter().zip(place..) {
            self.data.write(self.offset(place) as usize, &put.bytes[..]).map_err(|_| Failed)?;
        }
        let answer = self.blocks.write(self.number(), extent(run[0].block, run.len()), self.offset(place)).await;
        if let (Err(error), [put]) = (&answer, run) {
            runtime::log!("block {} cannot be written: {error:?}", put.block);
        }
        answer.map_err(|_| Failed)
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
    pub async fn write_all(self: &Rc<Self>, mut puts: Vec<Put>) -> Vec<u32> {
        puts.sort_unstable_by_key(|put| put.block);
        let left = Rc::new((Cell::new(puts.len()), Watch::new(), RefCell::new(Vec::new())));
        for run in puts.chunk_by(|one, next| one.block + 1 == next.block) {
            for run in run.chunks(self.most as usize) {
                let (own, left, run) = (self.clone(), left.clone(), run.to_vec());
                runtime::spawn(async move {
                    let mut to_write = &run[..];
                    while !to_write.is_empty() {
                        let places = own.places(to_write.len()).await;
                        let (now, later) = to_write.split_at(places.len());
                        let lost = own.write(now, &places).await;
                        own.free_places(places);
                        left.2.borrow_mut().extend(lost);
                        to_write = later;
                    }
                    left.0.set(left.0.get() - run.len());
                    left.1.changed();
                });
            }
        }
        left.1.until(|| (left.0.get() == 0).then_some(())).await;
        left.2.take()
    }
}

/// The sectors of so many blocks from one on.
fn extent(first: u64, blocks: usize) -> Extent {
    Extent { sector: first * u64::from(SECTORS), sectors: blocks as u32 * SECTORS }
}
