//! What is there besides the volume's server, and outlives it: the disk and its server, the region
//! of the disk's data, and the channels of clients.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::rc::Rc;

use channel::{Bulk, Layout, Memory, Peer, ServerChannel, Wiring, loopback, loopback_memory, loopback_wiring};
use contracts::blocks::{BlocksClient, BlocksError, BlocksServer, Extent, Flushed, NAME_BYTES, serve_blocks};
use contracts::descriptions::{DescriptionsClient, serve_descriptions};
use contracts::files::{FilesClient, serve_files};
use contracts::storage::{StorageClient, serve_storage};
use ext4::{BLOCK_BYTES, Block};
use runtime::{TaskId, Watch};
use volume_core::budget::Budget;

use super::disk::{Disk, Random};
use crate::device::Memory as Pages;
use crate::keep_up;
use crate::mounting::{attach_to, use_disk};
use crate::server::Server;

/// Lives of a server in one world, at most.
const LIVES_MAX: usize = 6;
/// Who reads much waits for places.
const DATA: Layout = Layout { ring_slots: 64, bulk_bytes: 64 << 12 };
const BULK: Layout = Layout { ring_slots: 64, bulk_bytes: 64 << 10 };
/// Pages of the server's account: some blocks are dropped and read again.
const PAGES: usize = 400;
const SECTORS: u32 = (BLOCK_BYTES / 512) as u32;

/// One more side of a channel for each life of the server, and the monitor's, which is the first.
type Views = RefCell<Vec<Memory>>;

/// Channels of a client: what it has, and what the server's lives get.
struct Channels {
    set: u32,
    files: Views,
    descriptions: Views,
}

/// What a client has.
pub struct Ends {
    pub files: FilesClient,
    pub descriptions: DescriptionsClient,
}

/// What is left of the requests of a server that died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The device had none yet: all are dropped.
    None,
    /// It had all: all are carried out.
    All,
    Some,
}

pub struct World {
    pub disk: RefCell<Disk>,
    pub random: RefCell<Random>,
    data: Bulk,
    /// Requests that were accepted and have not ended, by number, of which life.
    under_way: RefCell<BTreeMap<u64, u32>>,
    next: Cell<u64>,
    ended: Watch,
    left: Left,
    /// The server's life. Between a death and the next start it is the next one's.
    life: Cell<u32>,
    is_alive: Cell<bool>,
    /// Steps of this life, and of each life after how many it ends.
    steps: Cell<u64>,
    deaths: RefCell<VecDeque<u64>>,
    /// The server died, or a client is done.
    pub news: Watch,
    /// The server's.
    tasks: RefCell<Vec<TaskId>>,
    channels: RefCell<Vec<Channels>>,
    storage: Views,
}

fn views(count: usize) -> (Memory, Vec<Memory>) {
    const ALL: usize = LIVES_MAX + 2;
    assert!(count == 1 || count == 2);
    let mut all: Vec<Memory> = loopback_memory::<ALL>(if count == 1 { Layout::default() } else { BULK }).into();
    (all.pop().unwrap(), all)
}

/// As the monitor does when the server of a channel has ended.
fn raise(views: &Views) {
    views.borrow()[0].raise_generation();
}

impl World {
    pub fn new(disk: Disk, seed: u64, deaths: &[u64], left: Left) -> (Rc<World>, StorageClient) {
        assert!(deaths.len() < LIVES_MAX);
        let (_, region) = loopback(DATA);
        let (own, storage) = views(1);
        let world = World {
            disk: RefCell::new(disk),
            random: RefCell::new(Random(seed)),
            data: region.peer().bulk(),
            under_way: RefCell::default(),
            next: Cell::new(0),
            ended: Watch::new(),
            left,
            life: Cell::new(0),
            is_alive: Cell::new(false),
            steps: Cell::new(0),
            deaths: RefCell::new(deaths.iter().copied().collect()),
            news: Watch::new(),
            tasks: RefCell::default(),
            channels: RefCell::default(),
            storage: RefCell::new(storage),
        };
        let storage = StorageClient::new(channel::ClientChannel::new(loopback_wiring(own, true)));
        (Rc::new(world), storage)
    }

    /// One more client, before the first life begins.
    pub fn client(&self) -> Ends {
        let ((files, files_views), (descriptions, descriptions_views)) = (views(1), views(2));
        let mut channels = self.channels.borrow_mut();
        let set = channels.len() as u32 + 1;
        let (files_views, descriptions_views) = (RefCell::new(files_views), RefCell::new(descriptions_views));
        channels.push(Channels { set, files: files_views, descriptions: descriptions_views });
        let client = |memory| channel::ClientChannel::new(loopback_wiring(memory, true));
        Ends { files: FilesClient::new(client(files)), descriptions: DescriptionsClient::new(client(descriptions)) }
    }

    /// Which life of the server is, or comes next.
    pub fn life(&self) -> u32 {
        self.life.get()
    }

    /// Something changed outside of the server, by its doing. It may have been the last thing.
    pub fn step(&self) {
        if !self.is_alive.get() {
            return;
        }
        self.steps.set(self.steps.get() + 1);
        if self.deaths.borrow().front().is_some_and(|steps| *steps <= self.steps.get()) {
            self.deaths.borrow_mut().pop_front();
            self.die();
        }
    }

    /// The server is no more; the monitor raises the generation of its channels. Of its requests
    /// the device has some, those that only waited go.
    fn die(&self) {
        self.is_alive.set(false);
        self.under_way.borrow_mut().retain(|_, _| match self.left {
            Left::None => false,
            Left::All => true,
            Left::Some => self.random.borrow_mut().one_in(2),
        });
        self.ended.changed();
        for channels in &*self.channels.borrow() {
            [&channels.files, &channels.descriptions].iter().for_each(|views| raise(views));
        }
        raise(&self.storage);
        self.tasks.take().into_iter().for_each(runtime::abort);
        self.life.set(self.life.get() + 1);
        self.news.changed();
    }

    pub fn is_alive(&self) -> bool {
        self.is_alive.get()
    }

    /// What the disk has when the power goes now.
    pub fn cut(&self) -> Disk {
        self.disk.borrow().cut(&mut self.random.borrow_mut())
    }

    /// Deaths that are still to come.
    pub fn deaths_left(&self) -> usize {
        self.deaths.borrow().len()
    }

    /// Begins the next life of the server, as `component` does it.
    pub fn begin(self: &Rc<World>) {
        self.steps.set(0);
        self.is_alive.set(true);
        let (blocks, served) = loopback(DATA);
        runtime::spawn(serve_blocks(Rc::new(Served { world: self.clone(), life: self.life() }), served));
        let server = Rc::new(Server::new("/data".into(), None));
        let mut tasks: Vec<TaskId> = keep_up(&server).into();
        let (opened, data) = (server.clone(), self.data.clone());
        tasks.push(runtime::spawn(async move {
            let memory = Pages { budget: Budget::of(PAGES), available: Box::new(|| PAGES) };
            let device = attach_to(BlocksClient::new(blocks), data, u64::MAX >> 1, memory).await.unwrap();
            use_disk(opened, Rc::new(device), false).await;
        }));
        let next = |views: &Views, set| {
            let wiring = loopback_wiring(views.borrow_mut().pop().unwrap(), false);
            ServerChannel::new(Wiring { peer_set: set, ..wiring })
        };
        for Channels { set, files, descriptions } in &*self.channels.borrow() {
            tasks.push(runtime::spawn(serve_files(server.clone(), next(files, *set))));
            tasks.push(runtime::spawn(serve_descriptions(server.clone(), next(descriptions, *set))));
        }
        tasks.push(runtime::spawn(serve_storage(server, next(&self.storage, 0))));
        self.tasks.replace(tasks);
    }

    /// Bytes that a server left in the region are of no use to the next one.
    fn spoil(&self) {
        let places = self.data.len() / BLOCK_BYTES;
        let blocks: Vec<Block> = (0..places).map(|place| self.block_in(place * BLOCK_BYTES)).collect();
        let shift = self.random.borrow_mut().below(places);
        for (place, bytes) in blocks.iter().enumerate() {
            self.data.write((place + shift) % places * BLOCK_BYTES, bytes).unwrap();
        }
    }

    fn block_in(&self, offset: usize) -> Block {
        let mut bytes = [0; BLOCK_BYTES];
        self.data.read(offset, &mut bytes).unwrap();
        bytes
    }
}

/// The disk's server, as one life of the volume's has it.
struct Served {
    world: Rc<World>,
    life: u32,
}

impl Served {
    fn is_alive(&self) -> bool {
        self.world.is_alive.get() && self.world.life() == self.life
    }

    /// Gives the device something to do, and waits for its end. The dead hear of none.
    async fn ask(&self, work: Work) -> Result<(), BlocksError> {
        let world = &self.world;
        if !self.is_alive() {
            pending::<()>().await;
        }
        let number = world.next.replace(world.next.get() + 1);
        world.under_way.borrow_mut().insert(number, self.life);
        world.step();
        runtime::spawn(carry_out(world.clone(), number, work));
        world.ended.until(|| (!world.under_way.borrow().contains_key(&number)).then_some(())).await;
        if !self.is_alive() {
            pending::<()>().await;
        }
        Ok(())
    }
}

enum Work {
    Read(Extent, u32),
    Write(Extent, u32),
    /// What was written before it was asked: so many writes.
    Flush(u64),
}

/// Does something some time after it was asked, unless it is dropped before that.
async fn carry_out(world: Rc<World>, number: u64, work: Work) {
    const LONGEST_NS: usize = 200_000;
    let takes_ns = 1 + world.random.borrow_mut().below(LONGEST_NS);
    runtime::sleep(takes_ns as u64).await;
    if world.under_way.borrow_mut().remove(&number).is_none() {
        return;
    }
    let disk = &mut *world.disk.borrow_mut();
    match work {
        Work::Read(from, offset) => {
            each(from, offset, |block, at| world.data.write(at, disk.read(block)).unwrap());
        }
        Work::Write(to, offset) => each(to, offset, |block, at| disk.write(block, world.block_in(at))),
        Work::Flush(writes) => disk.flush(writes),
    }
    world.ended.changed();
    world.step();
}

impl BlocksServer for Served {
    /// Answered when the device has none of an earlier life's requests (decision 86).
    async fn attach(&self, _: &Peer, _: u64) -> Result<contracts::blocks::Disk, BlocksError> {
        let world = &self.world;
        let earlier = || world.under_way.borrow().values().any(|life| *life < self.life);
        world.ended.until(|| (!earlier()).then_some(())).await;
        world.spoil();
        Ok(contracts::blocks::Disk {
            sectors: world.disk.borrow().blocks() * u64::from(SECTORS),
            block_bytes: 512,
            optimal_bytes: 0,
            is_read_only: false,
            keeps_back: true,
            sectors_max: 2048,
            discard_sectors_max: 0,
            zeroes_sectors_max: 0,
            data_offset: 0,
            data_bytes: DATA.bulk_bytes,
            requests_max: 64,
        })
    }

    async fn read(&self, _: &Peer, _: u64, from: Extent, offset: u32) -> Result<(), BlocksError> {
        self.ask(Work::Read(from, offset)).await
    }

    async fn write(&self, _: &Peer, _: u64, to: Extent, offset: u32) -> Result<(), BlocksError> {
        self.ask(Work::Write(to, offset)).await
    }

    async fn flush(&self, _: &Peer, _: u64) -> Result<Flushed, BlocksError> {
        let writes = self.world.disk.borrow().writes();
        self.ask(Work::Flush(writes)).await.map(|()| Flushed::Stored)
    }

    async fn discard(&self, _: &Peer, _: u64, _: Extent) -> Result<(), BlocksError> {
        Err(BlocksError::Unsupported)
    }

    async fn write_zeroes(&self, _: &Peer, _: u64, _: Extent, _: bool) -> Result<(), BlocksError> {
        Err(BlocksError::Unsupported)
    }

    async fn identify(&self, _: &Peer, _: u64) -> Result<[u8; NAME_BYTES], BlocksError> {
        Err(BlocksError::Unsupported)
    }
}

/// The blocks of an extent, each with its place in the region.
fn each(extent: Extent, offset: u32, mut work: impl FnMut(u64, usize)) {
    let first = extent.sector / u64::from(SECTORS);
    for index in 0..u64::from(extent.sectors / SECTORS) {
        work(first + index, offset as usize + index as usize * BLOCK_BYTES);
    }
}
