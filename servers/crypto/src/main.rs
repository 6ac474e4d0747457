//! Wires the cipher to its key, its regions, the disk's server and the clients of `blocks`.
//!
//! Each client has a channel to the disk's server of its own, on which its numbers go on as they
//! are, so what that server knows of requests that are repeated holds for both. Clients of this
//! core may call workers, which call on to the disk's; the signals of its handler are passed on to
//! them. The key lies in a region that outlives this component: one
//! that is started again takes it from there.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::rc::Rc;
use alloc::vec::Vec;
use block_calls::front::{Client, Front, Pair};
use block_calls::path::{Direction, How, Path, Place, Shared};
use block_calls::{settle, start_front_worker};
use channel::{CallError, ServerChannel};
use contracts::blocks::{self, BlocksClient, BlocksError, BlocksServer, Disk, Extent, Flushed, serve_blocks};
use contracts::keys::{self, KeyError, KeysServer, serve_keys};
use core::cell::RefCell;
use luks::{HANDOVER_BYTES, Handover};
use runtime::{Calls, Peer, Region, Relay, Start, Watch, Worker};
use zeroize::Zeroizing;

/// Status of a component that cannot do its work: the supervisor sees a failure.
const FAILED: u64 = 1;
/// A worker that has had so much processor time beyond its callers' deadlines hangs: what a monitor
/// gives a component (decision 10).
const STALL_NS: u64 = 100_000_000;
/// Badge bit of a worker that hangs.
const STALL: u64 = 1 << 59;
/// The priority of the description, in classes.
const PRIORITY: u64 = 5;
const PAGE_BYTES: u64 = 4096;

/// What goes with each client: its channel to the disk's server, and its calls and ours.
struct Way {
    disk: BlocksClient,
    client_calls: Option<Calls>,
    behind_calls: Option<Calls>,
}

struct Service {
    ways: Vec<Way>,
    /// The clients' bytes, the disk's, and the key.
    plain: Region,
    encrypted: Region,
    key: Region,
    /// Once it is open; an error, if it never will be.
    front: RefCell<Option<Result<&'static Front<Shared>, BlocksError>>>,
    /// They serve and pass on as long as this.
    workers: RefCell<BTreeMap<u8, Worker>>,
    relays: RefCell<Vec<Relay>>,
    opened: Watch,
    key_arrived: Watch,
}

impl Service {
    /// The key, if it has come.
    fn key(&self) -> Option<Handover> {
        let mut record = Zeroizing::new([0; HANDOVER_BYTES]);
        self.key.memory().read(0, &mut *record).ok()?;
        Handover::decode(&record)
    }

    /// Opens the volume once both are there, the key and the disk; requests wait until then. None
    /// of an earlier life is with the disk any more, so that nothing reads or writes in our regions
    /// but what is asked from now on.
    async fn open(self: Rc<Self>) {
        let handover = self.key_arrived.until(|| self.key()).await;
        let mut clients = Vec::new();
        for (number, way) in self.ways.iter().enumerate() {
            match way.disk.attach(runtime::now_ns()).await {
                Ok(disk) => clients.push(self.client(&handover, number, way, disk)),
                Err(CallError::Server(BlocksError::NoDevice)) => {
                    self.front.replace(Some(Err(BlocksError::NoDevice)));
                    return self.opened.changed();
                }
                Err(error) => fail(format_args!("no disk: {error:?}")),
            }
        }
        let front = Front::leak(clients);
        let Some(path) = front.client(0).map(Client::path) else { return };
        let (sector, sectors, how) = (path.seen().block_bytes, path.seen().sectors, path.how());
        let how = if how == How::Instructions { "the processor's instructions" } else { "software" };
        runtime::log!("{sectors} sectors, encrypted in blocks of {sector} bytes by {how}");
        if let Err(error) = self.start_workers(front) {
            fail(format_args!("no workers for calls: {error:?}"));
        }
        self.front.replace(Some(Ok(front)));
        self.opened.changed();
    }

    /// A client, with its part of our region.
    fn client(&self, handover: &Handover, number: usize, way: &Way, disk: Disk) -> Client<Shared> {
        let each = self.plain.bytes / self.ways.len() as u64 / PAGE_BYTES * PAGE_BYTES;
        let part = [number as u64 * each, each].map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        let (plain, encrypted) = (Shared(self.plain), Shared(self.encrypted));
        let Some(path) = Path::new(handover, disk, plain, part.into(), encrypted) else {
            fail(format_args!("the volume does not fit the disk of {} sectors", disk.sectors))
        };
        let pair = match (&way.client_calls, &way.behind_calls) {
            (Some(client), Some(behind)) => Some(Pair { client: client.clone(), behind: behind.clone() }),
            (None, _) => None,
            (Some(_), None) => fail(format_args!("a client calls, and the disk's server has no workers: add some")),
        };
        Client::new(path, pair)
    }

    /// Starts the workers, has the clients' portals lead to them, and passes on what the disk's
    /// handler signals. Each client is told: what it asked of a predecessor it is to ask again.
    fn start_workers(&self, front: &'static Front<Shared>) -> Result<(), abi::Error> {
        let (mut workers, mut relays) = (self.workers.borrow_mut(), self.relays.borrow_mut());
        for Pair { client, behind } in front.clients().iter().filter_map(Client::calls) {
            let worker = match workers.entry(client.worker) {
                Entry::Occupied(started) => started.into_mut(),
                Entry::Vacant(place) => place.insert(start_front_worker(front, STALL_NS, STALL)?),
            };
            worker.lead(client.portal)?;
            relays.push(Relay::start(behind.semaphore, client.semaphore, PRIORITY)?);
            // Refused at a count that nobody takes from: it hears of none more.
            let _ = sys::semaphore_up(client.semaphore, 1);
        }
        match workers.len() {
            0 => (),
            1 => runtime::log!("1 worker for calls"),
            workers => runtime::log!("{workers} workers for calls"),
        }
        Ok(())
    }

    async fn opened(&self) {
        self.opened.until(|| self.front.borrow().is_some().then_some(())).await;
    }
}

/// What the disk's server answered, for our client.
fn answered<T>(answer: Result<T, CallError<BlocksError>>) -> Result<T, BlocksError> {
    answer.map_err(|error| match error {
        CallError::Server(error) => error,
        CallError::Full => BlocksError::Full,
        _ => BlocksError::Io,
    })
}

/// One client.
struct Session {
    service: Rc<Service>,
    number: usize,
}

impl Session {
    fn disk(&self) -> Result<&BlocksClient, BlocksError> {
        self.service.ways.get(self.number).map(|way| &way.disk).ok_or(BlocksError::Io)
    }

    fn front(&self) -> Result<&'static Front<Shared>, BlocksError> {
        self.service.front.borrow().unwrap_or(Err(BlocksError::Io))
    }

    /// The client's way through the cipher, when that is open.
    fn path(&self) -> Result<&'static Path<Shared>, BlocksError> {
        self.front()?.client(self.number).map(Client::path).ok_or(BlocksError::Io)
    }
}

impl BlocksServer for Session {
    async fn attach(&self, _: &Peer, first: u64) -> Result<Disk, BlocksError> {
        self.service.opened().await;
        answered(self.disk()?.attach(first).await)?;
        if let Some(Pair { client, .. }) = self.front()?.client(self.number).and_then(Client::calls) {
            settle(client.portal).await;
        }
        self.front()?.attached(self.number, first);
        Ok(self.path()?.seen())
    }

    async fn read(&self, _: &Peer, number: u64, extent: Extent, offset: u32) -> Result<(), BlocksError> {
        self.service.opened().await;
        let (path, place) = (self.path()?, Place { extent, offset });
        let from = path.prepare(Direction::Read, place)?;
        answered(self.disk()?.read(number, from.extent, from.offset).await)?;
        path.complete(place)
    }

    async fn write(&self, _: &Peer, number: u64, extent: Extent, offset: u32) -> Result<(), BlocksError> {
        self.service.opened().await;
        let to = self.path()?.prepare(Direction::Write, Place { extent, offset })?;
        let written = answered(self.disk()?.write(number, to.extent, to.offset).await);
        self.front()?.written();
        written
    }

    async fn flush(&self, _: &Peer, number: u64) -> Result<Flushed, BlocksError> {
        self.service.opened().await;
        answered(self.disk()?.flush(number).await)
    }

    async fn discard(&self, _: &Peer, number: u64, extent: Extent) -> Result<(), BlocksError> {
        self.service.opened().await;
        let extent = self.path()?.discard(extent)?;
        let discarded = answered(self.disk()?.discard(number, extent).await);
        self.front()?.written();
        discarded
    }

    async fn write_zeroes(&self, _: &Peer, _: u64, _: Extent, _: bool) -> Result<(), BlocksError> {
        Err(BlocksError::Unsupported)
    }

    async fn identify(&self, _: &Peer, number: u64) -> Result<[u8; blocks::NAME_BYTES], BlocksError> {
        answered(self.disk()?.identify(number).await)
    }
}

/// Who brings the key.
struct Keys(Rc<Service>);

impl KeysServer for Keys {
    async fn arrived(&self, _: &Peer) -> Result<(), KeyError> {
        self.0.key().ok_or(KeyError::Damaged)?;
        self.0.key_arrived.changed();
        Ok(())
    }
}

/// Says why, and ends.
fn fail(reason: core::fmt::Arguments<'_>) -> ! {
    runtime::log!("{reason}");
    sys::domain_exit(FAILED)
}

fn region(start: &Start, name: &str) -> Region {
    match start.region(name) {
        Some(region) => region,
        None => fail(format_args!("the region {name} is missing: correct system/*.toml")),
    }
}

/// A worker that hangs ends with all of this: its callers hear it, and ask the next.
async fn workers_hang() {
    runtime::notified(STALL).await;
    fail(format_args!("a worker hangs"));
}

/// The clients, and what goes with each.
fn clients(start: &Start) -> (Vec<ServerChannel>, Vec<Way>) {
    let served = start.servers_that_are_called(blocks::NAME);
    let behind = start.clients_that_call::<BlocksClient>();
    if served.is_empty() || served.len() != behind.len() {
        fail(format_args!("{} clients, and {} channels to a disk: correct system/*.toml", served.len(), behind.len()));
    }
    let pairs = served.into_iter().zip(behind);
    pairs
        .map(|((channel, client_calls), (_, disk, behind_calls))| (channel, Way { disk, client_calls, behind_calls }))
        .unzip()
}

async fn component(start: Start) {
    let (channels, ways) = clients(&start);
    let service = Rc::new(Service {
        ways,
        plain: region(&start, "plain-data"),
        encrypted: region(&start, "disk-data"),
        key: region(&start, keys::REGION),
        front: RefCell::default(),
        workers: RefCell::default(),
        relays: RefCell::default(),
        opened: Watch::new(),
        key_arrived: Watch::new(),
    });
    runtime::spawn(service.clone().open());
    runtime::spawn(workers_hang());
    for channel in start.servers(keys::NAME) {
        runtime::spawn(serve_keys(Rc::new(Keys(service.clone())), channel));
    }
    for (number, channel) in channels.into_iter().enumerate() {
        runtime::spawn(serve_blocks(Rc::new(Session { service: service.clone(), number }), channel));
    }
    start.serving();
    core::future::pending().await
}

runtime::main!(component);
