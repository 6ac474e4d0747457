//! A dispatcher of the disk's program on another core than the device (decision 95): its workers
//! put what clients of its core ask into rings that the handler takes from, and it tells them when
//! something has ended.
//!
//! It has a channel to the handler for each of its clients, in their order, on which their messages
//! go on as they are; beside it lie the words that both share.
//!
//! Deliberately unknown here: devices, data. It has neither.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;

use abi::Handle;
use block_calls::Desk;
use block_calls::desk::{Client, Shared};
use block_calls::limits::Limits;
use channel::{Beside, CallError, Listen, ServerChannel};
use contracts::blocks::{
    self, BlocksClient, BlocksError, BlocksEvent, BlocksEvents, BlocksServer, Disk, Extent, Flushed, serve_blocks,
};
use runtime::{Calls, Peer, Start, Worker};

use crate::calls::start_workers;
use crate::without::NoDevice;

/// A number below all that clients choose: to attach with it ends nothing.
const BEFORE_ALL: u64 = 1;

/// Why this cannot serve: the program ends.
#[derive(Debug)]
pub enum Failure {
    /// Not as many channels to the handler as clients. Remedy: correct `lib/wiring`.
    Channels,
    /// The handler gave no answer that makes sense.
    Handler(CallError<BlocksError>),
    /// The account is full, or a call was refused.
    Kernel(abi::Error),
}

/// A client, and what leads on.
struct Way {
    channel: ServerChannel,
    calls: Option<Calls>,
    handler: BlocksClient,
}

/// Serves the clients of this core; the workers serve as long as what it gives.
///
/// # Errors
/// [`Failure`] says cause and remedy.
pub async fn serve(start: &Start, stall: u64) -> Result<BTreeMap<u8, Worker>, Failure> {
    let served = start.servers_that_are_called(blocks::NAME);
    let handlers = start.clients::<BlocksClient>();
    if served.len() != handlers.len() {
        return Err(Failure::Channels);
    }
    let pairs = served.into_iter().zip(handlers);
    let ways: Vec<Way> = pairs.map(|((channel, calls), (_, handler))| Way { channel, calls, handler }).collect();
    let mut disks = Vec::new();
    for way in &ways {
        // Whoever answers has cleared what we share.
        match way.handler.attach(BEFORE_ALL).await {
            Ok(disk) => disks.push(disk),
            Err(CallError::Server(BlocksError::NoDevice)) => {
                for Way { channel, .. } in ways {
                    runtime::spawn(serve_blocks(Rc::new(NoDevice), channel));
                }
                return Ok(BTreeMap::new());
            }
            Err(error) => return Err(Failure::Handler(error)),
        }
    }
    let desk = Desk::leak(ways.iter().zip(disks).map(|(way, disk)| client(way, disk)).collect(), start.core());
    let workers = start_workers(desk, ways.iter().filter_map(|way| way.calls.as_ref()), stall);
    for (number, Way { channel, calls, handler }) in ways.into_iter().enumerate() {
        if let Some(Calls { semaphore, .. }) = calls {
            // It asks again what it asked of a predecessor.
            raise(semaphore);
        }
        runtime::spawn(pass_events(desk, handler.clone(), channel.peer().clone()));
        runtime::spawn(serve_blocks(Rc::new(Session { desk, handler, number }), channel));
    }
    workers.map_err(Failure::Kernel)
}

/// A client of the desk, whose ends are listened for from now on.
fn client(Way { calls, handler, .. }: &Way, disk: Disk) -> Option<Client> {
    let (calls, beside): (_, Beside) = (calls.as_ref()?, handler.channel().beside()?);
    let shared = Shared::over(beside.words)?;
    beside.listen(Ends { shared, semaphore: calls.semaphore });
    Some(Client::of_worker(calls.badge, calls.page, Limits::of(disk), beside.peer, shared))
}

fn raise(semaphore: Handle) {
    // Refused at a count that nobody takes from: it hears of none more.
    let _ = sys::semaphore_up(semaphore, 1);
}

/// Tells a client that something has ended.
struct Ends {
    shared: &'static Shared,
    semaphore: Handle,
}

impl Listen for Ends {
    fn is_ready(&self) -> bool {
        self.shared.has_end()
    }

    fn take(&self) {
        if self.shared.take_end() {
            raise(self.semaphore);
        }
    }
}

/// Hears from the handler what all clients are told.
async fn pass_events(desk: &'static Desk, handler: BlocksClient, client: Peer) {
    loop {
        match handler.next_event().await {
            BlocksEvent::Resized { sectors } => {
                desk.resize(sectors);
                // One that cannot be told finds out: what is behind the end is refused.
                let _ = BlocksEvents::new(&client).resized(sectors);
            }
            BlocksEvent::Closed => return,
            BlocksEvent::Lost | BlocksEvent::PeerRestarted => (),
        }
    }
}

/// One client.
struct Session {
    desk: &'static Desk,
    handler: BlocksClient,
    number: usize,
}

/// What the handler answered. One that has ended takes this dispatcher with it.
fn answered<T>(answer: Result<T, CallError<BlocksError>>) -> Result<T, BlocksError> {
    answer.map_err(|error| match error {
        CallError::Server(error) => error,
        CallError::Full => BlocksError::Full,
        _ => BlocksError::Io,
    })
}

impl BlocksServer for Session {
    async fn attach(&self, _: &Peer, first: u64) -> Result<Disk, BlocksError> {
        let disk = answered(self.handler.attach(first).await)?;
        self.desk.worker_attached(self.number, first);
        Ok(disk)
    }

    async fn read(&self, _: &Peer, number: u64, from: Extent, offset: u32) -> Result<(), BlocksError> {
        answered(self.handler.read(number, from, offset).await)
    }

    async fn write(&self, _: &Peer, number: u64, to: Extent, offset: u32) -> Result<(), BlocksError> {
        answered(self.handler.write(number, to, offset).await)
    }

    async fn flush(&self, _: &Peer, number: u64) -> Result<Flushed, BlocksError> {
        answered(self.handler.flush(number).await)
    }

    async fn discard(&self, _: &Peer, number: u64, extent: Extent) -> Result<(), BlocksError> {
        answered(self.handler.discard(number, extent).await)
    }

    async fn write_zeroes(&self, _: &Peer, number: u64, extent: Extent, may_discard: bool) -> Result<(), BlocksError> {
        answered(self.handler.write_zeroes(number, extent, may_discard).await)
    }

    async fn identify(&self, _: &Peer, number: u64) -> Result<[u8; blocks::NAME_BYTES], BlocksError> {
        answered(self.handler.identify(number).await)
    }
}
