//! Wires the cipher to its key, its regions, the disk's server and the client of `blocks`.
//!
//! A client's numbers go on to the disk's server as they are, so what that server knows of requests
//! that are repeated holds for both. The key lies in a region that outlives this component: one
//! that is started again takes it from there.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::rc::Rc;
use channel::CallError;
use contracts::blocks::{self, BlocksClient, BlocksError, BlocksServer, Disk, Extent, Flushed, serve_blocks};
use contracts::keys::{self, KeyError, KeysServer, serve_keys};
use core::cell::RefCell;
use crypto_core::{Direction, How, Path, Place};
use luks::{HANDOVER_BYTES, Handover};
use runtime::{Bulk, Peer, Region, Start, Watch};
use zeroize::Zeroizing;

/// Status of a component that cannot do its work: the supervisor sees a failure.
const FAILED: u64 = 1;

struct Service {
    disk: BlocksClient,
    /// The client's bytes, the disk's, and the key.
    plain: Region,
    encrypted: Region,
    key: Region,
    /// Once it is open; an error, if it never will be.
    path: RefCell<Option<Result<Path<Bulk>, BlocksError>>>,
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
    /// of an earlier life is with the disk any more, so that nothing reads or writes in our region
    /// but what is asked from now on.
    async fn open(self: Rc<Self>) {
        let handover = self.key_arrived.until(|| self.key()).await;
        let disk = match self.disk.attach(runtime::now_ns()).await {
            Ok(disk) => disk,
            Err(CallError::Server(BlocksError::NoDevice)) => {
                self.path.replace(Some(Err(BlocksError::NoDevice)));
                return self.opened.changed();
            }
            Err(error) => fail(format_args!("no disk: {error:?}")),
        };
        let (plain, encrypted) = (self.plain.memory(), self.encrypted.memory());
        let Some(path) = Path::new(&handover, disk, plain, self.plain.bytes, encrypted) else {
            fail(format_args!("the volume does not fit the disk of {} sectors", disk.sectors))
        };
        let (sector, sectors, how) = (path.seen().block_bytes, path.seen().sectors, path.how());
        let how = if how == How::Instructions { "the processor's instructions" } else { "software" };
        runtime::log!("{sectors} sectors, encrypted in blocks of {sector} bytes by {how}");
        self.path.replace(Some(Ok(path)));
        self.opened.changed();
    }

    async fn opened(&self) {
        self.opened.until(|| self.path.borrow().is_some().then_some(())).await;
    }

    /// Does `work` with the cipher's path, when it is open.
    fn with<T>(&self, work: impl FnOnce(&mut Path<Bulk>) -> Result<T, BlocksError>) -> Result<T, BlocksError> {
        match self.path.borrow_mut().as_mut() {
            Some(Ok(path)) => work(path),
            Some(Err(error)) => Err(*error),
            None => Err(BlocksError::Io),
        }
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

/// The one client.
struct Session(Rc<Service>);

impl BlocksServer for Session {
    async fn attach(&self, _: &Peer, first: u64) -> Result<Disk, BlocksError> {
        self.0.opened().await;
        answered(self.0.disk.attach(first).await)?;
        self.0.with(|path| Ok(path.seen()))
    }

    async fn read(&self, _: &Peer, number: u64, extent: Extent, offset: u32) -> Result<(), BlocksError> {
        self.0.opened().await;
        let place = Place { extent, offset };
        let from = self.0.with(|path| path.prepare(Direction::Read, place))?;
        answered(self.0.disk.read(number, from.extent, from.offset).await)?;
        self.0.with(|path| path.complete(place))
    }

    async fn write(&self, _: &Peer, number: u64, extent: Extent, offset: u32) -> Result<(), BlocksError> {
        self.0.opened().await;
        let to = self.0.with(|path| path.prepare(Direction::Write, Place { extent, offset }))?;
        answered(self.0.disk.write(number, to.extent, to.offset).await)
    }

    async fn flush(&self, _: &Peer, number: u64) -> Result<Flushed, BlocksError> {
        self.0.opened().await;
        answered(self.0.disk.flush(number).await)
    }

    async fn discard(&self, _: &Peer, number: u64, extent: Extent) -> Result<(), BlocksError> {
        self.0.opened().await;
        let extent = self.0.with(|path| path.discard(extent))?;
        answered(self.0.disk.discard(number, extent).await)
    }

    async fn write_zeroes(&self, _: &Peer, _: u64, _: Extent, _: bool) -> Result<(), BlocksError> {
        Err(BlocksError::Unsupported)
    }

    async fn identify(&self, _: &Peer, number: u64) -> Result<[u8; blocks::NAME_BYTES], BlocksError> {
        answered(self.0.disk.identify(number).await)
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

async fn component(start: Start) {
    let Ok(disk) = start.client("disk") else { fail(format_args!("no channel to a disk: correct system/*.toml")) };
    let mut clients = start.servers(blocks::NAME);
    let (Some(client), true) = (clients.pop(), clients.is_empty()) else {
        // Two would have the same numbers and the same places.
        fail(format_args!("not one component uses what is encrypted here: correct system/*.toml"))
    };
    let service = Rc::new(Service {
        disk,
        plain: region(&start, "plain-data"),
        encrypted: region(&start, "disk-data"),
        key: region(&start, keys::REGION),
        path: RefCell::default(),
        opened: Watch::new(),
        key_arrived: Watch::new(),
    });
    runtime::spawn(service.clone().open());
    for channel in start.servers(keys::NAME) {
        runtime::spawn(serve_keys(Rc::new(Keys(service.clone())), channel));
    }
    start.serving();
    serve_blocks(Rc::new(Session(service)), client).await;
}

runtime::main!(component);
