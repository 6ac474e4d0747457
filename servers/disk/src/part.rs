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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use channel::Layout;
    use core::cell::{Cell, RefCell};

    const FROM: Extent = Extent { sector: 16, sectors: 8 };
    pub(crate) const DISK: Disk = Disk {
        sectors: 80,
        block_bytes: 4096,
        optimal_bytes: 0,
        is_read_only: false,
        keeps_back: true,
        sectors_max: 32,
        discard_sectors_max: 16,
        zeroes_sectors_max: 0,
        data_offset: 8192,
        data_bytes: 8192,
        requests_max: 64,
    };

    /// A handler that notes what it is asked, and refuses what has an odd number.
    #[derive(Default)]
    struct Handler(RefCell<Vec<(&'static str, u64, Extent, u64)>>);

    impl Handler {
        fn asked<T>(&self, what: &'static str, number: u64, at: Extent, more: u64, done: T) -> Result<T, BlocksError> {
            self.0.borrow_mut().push((what, number, at, more));
            if number.is_multiple_of(2) { Ok(done) } else { Err(BlocksError::Range) }
        }
    }

    const NOWHERE: Extent = Extent { sector: 0, sectors: 0 };

    impl BlocksServer for Handler {
        async fn attach(&self, _: &Peer, first: u64) -> Result<Disk, BlocksError> {
            self.asked("attach", first, NOWHERE, 0, DISK)
        }
        async fn read(&self, _: &Peer, number: u64, from: Extent, offset: u32) -> Result<(), BlocksError> {
            self.asked("read", number, from, offset.into(), ())
        }
        async fn write(&self, _: &Peer, number: u64, to: Extent, offset: u32) -> Result<(), BlocksError> {
            self.asked("write", number, to, offset.into(), ())
        }
        async fn flush(&self, _: &Peer, number: u64) -> Result<Flushed, BlocksError> {
            self.asked("flush", number, NOWHERE, 0, Flushed::WritesThrough)
        }
        async fn discard(&self, _: &Peer, number: u64, extent: Extent) -> Result<(), BlocksError> {
            self.asked("discard", number, extent, 0, ())
        }
        async fn write_zeroes(&self, _: &Peer, number: u64, extent: Extent, may: bool) -> Result<(), BlocksError> {
            self.asked("zeroes", number, extent, may.into(), ())
        }
        async fn identify(&self, _: &Peer, number: u64) -> Result<[u8; blocks::NAME_BYTES], BlocksError> {
            self.asked("identify", number, NOWHERE, 0, [b'n'; blocks::NAME_BYTES])
        }
    }

    fn client_of(server: Rc<impl BlocksServer + 'static>) -> (BlocksClient, Peer) {
        let (client, channel) = channel::loopback(Layout::default());
        let peer = channel.peer().clone();
        runtime::spawn(serve_blocks(server, channel));
        (BlocksClient::new(client), peer)
    }

    fn session(handler: BlocksClient) -> Rc<Session> {
        Rc::new(Session { desk: Desk::leak([None].into(), 1), handler, number: 0 })
    }

    #[test]
    fn messages_go_on_to_the_handler_and_its_answers_come_back() {
        runtime::testing::run(async {
            let played = Rc::new(Handler::default());
            let client = client_of(session(client_of(played.clone()).0)).0;
            assert_eq!(client.attach(2).await, Ok(DISK));
            assert_eq!(client.read(4, FROM, 8192).await, Ok(()));
            assert_eq!(client.write(6, FROM, 12288).await, Ok(()));
            assert_eq!(client.flush(8).await, Ok(Flushed::WritesThrough));
            assert_eq!(client.discard(10, FROM).await, Ok(()));
            assert_eq!(client.write_zeroes(12, FROM, true).await, Ok(()));
            assert_eq!(client.identify(14).await, Ok([b'n'; blocks::NAME_BYTES]));
            let asked = [
                ("attach", 2, NOWHERE, 0),
                ("read", 4, FROM, 8192),
                ("write", 6, FROM, 12288),
                ("flush", 8, NOWHERE, 0),
                ("discard", 10, FROM, 0),
                ("zeroes", 12, FROM, 1),
                ("identify", 14, NOWHERE, 0),
            ];
            assert_eq!(*played.0.borrow(), asked);
            let refused = Err(CallError::Server(BlocksError::Range));
            assert_eq!(client.attach(1).await.map(drop), refused);
            assert_eq!((client.read(1, FROM, 0).await, client.write(1, FROM, 0).await), (refused, refused));
            assert_eq!((client.discard(1, FROM).await, client.write_zeroes(1, FROM, true).await), (refused, refused));
            assert_eq!((client.flush(1).await.map(drop), client.identify(1).await.map(drop)), (refused, refused));
        });
    }

    #[test]
    fn what_is_no_answer_of_the_handlers_is_a_failure_or_asks_to_wait() {
        let told =
            [CallError::Full, CallError::PeerRestarted, CallError::Closed].map(|error| answered::<()>(Err(error)));
        assert_eq!(told, [BlocksError::Full, BlocksError::Io, BlocksError::Io].map(Err));
    }

    #[test]
    fn clients_hear_of_another_size_as_long_as_the_handler_is_there() {
        runtime::testing::run(async {
            let (channel, served) = channel::loopback(Layout::default());
            let (handler, handlers_peer) = (BlocksClient::new(channel), served.peer().clone());
            let serving = runtime::spawn(serve_blocks(Rc::new(Handler::default()), served));
            let (client, peer) = client_of(Rc::new(NoDevice));
            let passing = pass_events(Desk::leak(Vec::new(), 1), handler.clone(), peer);
            let heard = Rc::new(Cell::new(false));
            let hears = heard.clone();
            runtime::spawn(async move {
                BlocksEvents::new(&handlers_peer).resized(99).unwrap();
                assert!(matches!(client.next_event().await, BlocksEvent::Resized { sectors: 99 }));
                hears.set(true);
                runtime::abort(serving);
            });
            passing.await;
            assert!(heard.get());
        });
    }

    #[test]
    fn without_a_device_all_is_refused() {
        runtime::testing::run(async {
            let (client, _) = client_of(Rc::new(NoDevice));
            let refused = Err(CallError::Server(BlocksError::NoDevice));
            assert_eq!(client.attach(1).await.map(drop), refused);
            assert_eq!((client.read(1, FROM, 0).await, client.write(1, FROM, 0).await), (refused, refused));
            assert_eq!((client.discard(1, FROM).await, client.write_zeroes(1, FROM, true).await), (refused, refused));
            assert_eq!((client.flush(1).await.map(drop), client.identify(1).await.map(drop)), (refused, refused));
        });
    }

    #[test]
    fn an_end_is_taken_once() {
        let words: &'static [core::sync::atomic::AtomicU64] =
            (0..4096).map(|_| core::sync::atomic::AtomicU64::new(0)).collect::<Vec<_>>().leak();
        let shared = Shared::over(words).unwrap();
        let ends = Ends { shared, semaphore: Handle::NONE };
        assert!(!ends.is_ready());
        assert!(shared.tell_end() && ends.is_ready());
        ends.take();
        assert!(!ends.is_ready());
    }
}
