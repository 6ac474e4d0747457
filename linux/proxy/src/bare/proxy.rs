//! The proxy's control state: its channels and what came in over them. Made afresh in every
//! process, never inherited.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::cell::{Cell, OnceCell, RefCell, UnsafeCell};

use channel::{CALLS_MAX, Client};
use contracts::descriptions::{DescriptionId, DescriptionsClient, DescriptionsEvent};
use contracts::files::FilesClient;
use contracts::process::{ProcessClient, ProcessEvent};
use contracts::sockets::SocketsClient;
use personality::Errno;
use personality::block_cache::BlockCache;
use personality::descriptors::server;
use personality::epoll::Candidates;
use personality::read_ahead::ReadAhead;
use personality::state::{PARENT_UNKNOWN, ProcessState};
use runtime::{Start, Watch, WireError};

use super::fast_io::Begun;
use super::poll;
use super::signals::cause_of;
use super::threads;
use super::timers::{self, Timers, USED_TIMERS, UsedTimer};
use super::user::with_state;
use super::wait::WaitQueue;

/// So many closes under way leave room for other calls.
const CLOSING_FEW: u64 = CALLS_MAX as u64 / 2;

/// Channels and the like. A channel is opened at its first use: most processes need few of them.
pub struct Proxy {
    start: Start,
    /// Processes.
    pub process: ProcessClient,
    files: [OnceCell<Option<FilesClient>>; SERVERS.len()],
    sockets: [OnceCell<Option<SocketsClient>>; SERVERS.len()],
    descriptions: [OnceCell<Option<DescriptionsClient>>; SERVERS.len()],
    /// A read or write that a server was asked for and has not answered yet.
    pub begun: Begun,
    /// Whose bulk areas are in use, by bits.
    taken: Cell<u32>,
    turn_ended: Watch,
    /// What each server was told to close.
    closes: [Cell<Closes>; SERVERS.len()],
    closed: Watch,
    /// Badge bits by which signals arrive.
    pub signal_bits: u64,
    /// Signals and readiness.
    pub wait_queue: WaitQueue,
    /// Numbers of reads and writes that may be repeated.
    requests: Cell<u64>,
    /// What epoll sets have to ask for.
    pub candidates: RefCell<Candidates>,
    /// Those of timer_create.
    pub timers: RefCell<Timers>,
    /// ITIMER_VIRTUAL, ITIMER_PROF and RLIMIT_CPU.
    pub used_timers: RefCell<[UsedTimer; USED_TIMERS]>,
    /// Numbers of files by the descriptions that name them, as far as anybody asked.
    pub inodes: RefCell<BTreeMap<DescriptionId, u64>>,
    /// What comes next of files that are read in pieces.
    pub read_ahead: RefCell<ReadAhead>,
    /// Blocks of files that are read again and again.
    pub block_cache: RefCell<BlockCache>,
    /// Where event counters went for which a thread waited here.
    moved_counters: RefCell<BTreeMap<u64, DescriptionId>>,
}

/// Servers of descriptions, in the order of their numbers, from 1
/// (`personality::descriptors::server`).
const SERVERS: [&str; 5] = ["fs", "process", "console", "tcp", "volume"];

/// A generation of each, in that order; 0 where this process has not spoken to it.
pub type Generations = [u32; SERVERS.len()];

/// Closes that a server was told of, and how many of them it has done.
#[derive(Clone, Copy, Default)]
struct Closes {
    told: u64,
    done: u64,
    /// Many were under way, and some are.
    are_many: bool,
}

impl Closes {
    fn one_told(self) -> Closes {
        let told = self.told + 1;
        Closes { told, are_many: self.are_many || told - self.done >= CLOSING_FEW, ..self }
    }

    fn one_done(self) -> Closes {
        let done = self.done + 1;
        Closes { done, are_many: self.are_many && done != self.told, ..self }
    }
}

struct Global(UnsafeCell<Option<&'static Proxy>>);
// SAFETY: one context runs proxy code.
unsafe impl Sync for Global {}
static PROXY: Global = Global(UnsafeCell::new(None));

/// The proxy, once bound.
pub fn proxy() -> &'static Proxy {
    // SAFETY: written once, before any Linux call or background task can ask.
    match unsafe { *PROXY.0.get() } {
        Some(proxy) => proxy,
        None => panic!("used before it was bound"),
    }
}

impl Proxy {
    /// The channel to a description's server.
    pub fn server(&'static self, number: u32) -> Result<&'static DescriptionsClient, Errno> {
        let index = (number as usize).wrapping_sub(1);
        let (cell, name) = self.descriptions.get(index).zip(SERVERS.get(index)).ok_or(Errno::EBADF)?;
        let open = || {
            let client: DescriptionsClient = client(&self.start, name).ok()?;
            runtime::spawn(readiness(number, client.clone()));
            Some(client)
        };
        cell.get_or_init(open).as_ref().ok_or(Errno::EBADF)
    }

    /// Which generation of each server this process saw last.
    pub fn generations(&self) -> Generations {
        let seen = |client: &DescriptionsClient| client.channel().generation();
        self.descriptions.each_ref().map(|cell| cell.get().and_then(|client| client.as_ref()).map_or(0, seen))
    }

    /// The number of a new request that may be repeated: none before it had the same.
    pub fn new_request(&self) -> u64 {
        self.requests.set(self.requests.get() + 1);
        self.requests.get()
    }

    /// An event counter went to the process server: who waits for it here has to know.
    pub fn counter_moved(&self, number: u64, id: DescriptionId) {
        if self.wait_queue.has((server::COUNTER, number)) {
            self.moved_counters.borrow_mut().insert(number, id);
        }
    }

    /// Where an event counter went.
    pub fn moved_counter(&self, number: u64) -> Option<DescriptionId> {
        self.moved_counters.borrow().get(&number).copied()
    }

    /// Waits until no other thread has data in the bulk area of a server, and takes it; so with
    /// what else bears such a number. Its holder waits for nothing but answers that are made at
    /// once.
    pub async fn turn(&'static self, server: u32) -> Turn {
        let bit = 1 << server;
        self.turn_ended.until(|| (self.taken.get() & bit == 0).then_some(())).await;
        self.taken.set(self.taken.get() | bit);
        Turn { proxy: self, bit }
    }

    /// The same, if it need not be waited for.
    pub fn try_turn(&'static self, server: u32) -> Option<Turn> {
        let bit = 1 << server;
        if self.taken.get() & bit != 0 {
            return None;
        }
        self.taken.set(self.taken.get() | bit);
        Some(Turn { proxy: self, bit })
    }

    /// Has somebody the turn?
    pub fn is_taken(&self, number: u32) -> bool {
        self.taken.get() & 1 << number != 0
    }

    /// Waits until no thread has data in a bulk area: then none is written to by a server.
    pub async fn until_none_is_taken(&self) {
        self.turn_ended.until(|| (self.taken.get() == 0).then_some(())).await;
    }

    /// Drops a reference at a server, without waiting for the answer: requests of one contract are
    /// served in order, but for closes that are more than may be under way at once. Those of
    /// sockets are another contract: see [`Proxy::until_closed`].
    pub fn close(&'static self, server: u32, id: DescriptionId) {
        self.read_ahead.borrow_mut().close((server, id));
        self.block_cache.borrow_mut().close((server, id));
        let (Ok(client), Some(closes)) = (self.server(server), self.closes_at(server)) else { return };
        let (call, client) = (client.close(id), client.clone());
        closes.set(closes.get().one_told());
        runtime::spawn(async move {
            // A server that is gone has closed all.
            let _ = call.or_queued(|| client.close(id)).await;
            closes.set(closes.get().one_done());
            self.closed.changed();
        });
    }

    fn closes_at(&self, server: u32) -> Option<&Cell<Closes>> {
        self.closes.get((server as usize).wrapping_sub(1))
    }

    /// Waits until all is closed if there was so much of it that servers may not have been asked to
    /// close some, or that there may be no room to ask them for anything else.
    pub async fn until_few_are_closing(&self) {
        self.closed.until(|| self.closes.iter().all(|closes| !closes.get().are_many).then_some(())).await;
    }

    /// Waits until a server has done what it was told to close before.
    pub async fn until_closed(&self, server: u32) {
        let Some(closes) = self.closes_at(server) else { return };
        let told = closes.get().told;
        // Many are not done in the order in which they were told.
        self.closed.until(|| (closes.get().done >= told && !closes.get().are_many).then_some(())).await;
    }

    /// Waits until servers have done all that was to be closed.
    pub async fn until_all_is_closed(&self) {
        for server in 1..=SERVERS.len() as u32 {
            self.until_closed(server).await;
        }
    }

    /// Paths of the root.
    pub fn files(&self) -> Result<&FilesClient, Errno> {
        self.files_at(server::FS)
    }

    /// The same at the server that keeps a file.
    pub fn files_of(&self, id: DescriptionId) -> Result<&FilesClient, Errno> {
        self.files_at(server::of_file(id))
    }

    /// The same at a server, if the system has it.
    pub fn files_at(&self, number: u32) -> Result<&FilesClient, Errno> {
        let index = (number as usize).wrapping_sub(1);
        let (cell, name) = self.files.get(index).zip(SERVERS.get(index)).ok_or(Errno::ENOSYS)?;
        cell.get_or_init(|| client(&self.start, name).ok()).as_ref().ok_or(Errno::ENOSYS)
    }

    /// Has the system a volume on a disk?
    pub fn has_volume(&self) -> bool {
        self.files_at(server::VOLUME).is_ok()
    }

    /// Sockets of a server, if the system has them.
    pub fn sockets(&self, number: u32) -> Option<&SocketsClient> {
        let index = (number as usize).wrapping_sub(1);
        let (cell, name) = self.sockets.get(index).zip(SERVERS.get(index))?;
        cell.get_or_init(|| client(&self.start, name).ok()).as_ref()
    }

    /// Servers other than the terminal's, by their numbers, of whose descriptions this process
    /// holds some, which a child has to be given.
    pub fn heritable(&'static self) -> impl Iterator<Item = (u32, &'static DescriptionsClient)> {
        let used = |number: &u32| {
            let are_mapped = |state: &mut ProcessState| !state.pieces.is_empty() || !state.backings.is_empty();
            server::keeps_files(*number) && with_state(are_mapped)
                || with_state(|state| state.descriptors.uses(*number))
        };
        let servers = [server::FS, server::PROCESS, server::TCP, server::VOLUME].into_iter().filter(used);
        servers.filter_map(|number| Some((number, self.server(number).ok()?)))
    }
}

/// The bulk area of a server is one thread's until this is dropped.
pub struct Turn {
    proxy: &'static Proxy,
    bit: u32,
}

impl Turn {
    /// Whose it is.
    pub fn server(&self) -> u32 {
        self.bit.trailing_zeros()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.proxy.taken.set(self.proxy.taken.get() & !self.bit);
        self.proxy.turn_ended.changed();
    }
}

/// A client of the contract over a channel that asks at once: a call of the program's waits for it.
fn client<C: Client>(start: &Start, server: &str) -> Result<C, WireError> {
    let client: C = start.client(server)?;
    client.channel().notify_at_once();
    Ok(client)
}

fn badge(start: &Start, contract: &str) -> u64 {
    let is = |record: &&abi::start::StartRecord| {
        record.kind == abi::start::kind::CHANNEL && abi::start::text(&record.name) == contract
    };
    start.records().iter().find(is).map_or(0, |record| record.a)
}

/// Binds to the process server. Names it if it is missing.
pub fn bind(start: Start) -> Result<&'static Proxy, &'static str> {
    let process: ProcessClient = client(&start, "process").map_err(|_| "process")?;
    let signal_bits = badge(&start, contracts::process::NAME);
    let proxy: &'static Proxy = Box::leak(Box::new(Proxy {
        start,
        process,
        files: Default::default(),
        sockets: Default::default(),
        descriptions: Default::default(),
        begun: Begun::default(),
        taken: Cell::new(0),
        turn_ended: Watch::new(),
        closes: Default::default(),
        closed: Watch::new(),
        signal_bits,
        wait_queue: WaitQueue::default(),
        // Those of an earlier process of this domain's name were smaller.
        requests: Cell::new(runtime::now_ns()),
        candidates: RefCell::default(),
        timers: RefCell::default(),
        used_timers: RefCell::default(),
        inodes: RefCell::default(),
        read_ahead: RefCell::default(),
        block_cache: RefCell::default(),
        moved_counters: RefCell::default(),
    }));
    // SAFETY: nobody reads it yet.
    unsafe { *PROXY.0.get() = Some(proxy) };
    Ok(proxy)
}

/// Listens for signals. The process state must be mapped by now.
pub fn listen() {
    runtime::spawn(signals());
}

async fn signals() {
    loop {
        match proxy().process.next_event().await {
            ProcessEvent::SignalSent { number, cause } => {
                threads::post(number, cause_of(&cause));
            }
            ProcessEvent::Expired { timer, times } => timers::expired(timer, times),
            ProcessEvent::Adopted { parent } => with_state(|state| state.parent = parent),
            ProcessEvent::Lost => {
                runtime::log!("signals were lost");
                with_state(|state| state.parent = PARENT_UNKNOWN);
            }
            // For servers that export descriptions.
            ProcessEvent::Settled { .. } => {}
            ProcessEvent::PeerRestarted => with_state(|state| state.parent = PARENT_UNKNOWN),
            ProcessEvent::Closed => return,
        }
        proxy().wait_queue.signalled();
    }
}

async fn readiness(number: u32, client: DescriptionsClient) {
    loop {
        // Who waits asks again: what exactly came to hold the answer tells.
        match client.next_event().await {
            DescriptionsEvent::Ready { id, .. } => poll::changed((number, id)),
            DescriptionsEvent::Lost => poll::all_changed(number),
            DescriptionsEvent::PeerRestarted => {
                proxy().read_ahead.borrow_mut().restarted(number);
                proxy().block_cache.borrow_mut().restarted(number);
                poll::all_changed(number);
            }
            DescriptionsEvent::Closed => return,
        }
    }
}
