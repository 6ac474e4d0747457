//! The handler's side of clients that call (`lib/block-calls`): what they ask goes to the driver,
//! and they hear when something has ended. Those of other cores call workers there, of the other
//! dispatchers of this program ([`crate::part`]).

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use abi::{Error, Handle, Rights};
use block_calls::desk::{Client, Shared};
use block_calls::limits::Limits;
use block_calls::{Desk, Ended, start_worker};
use channel::{Beside, Listen, ServerChannel};
use contracts::blocks::Disk;
use packet::Notify;
use runtime::{Calls, Worker};
use virtio_blk::{Completion, Request};

use crate::words;

/// A worker that has had so much processor time beyond its callers' deadlines hangs: what a monitor
/// gives a component (decision 10).
const STALL_NS: u64 = 100_000_000;

/// Badge bits of the handler.
#[derive(Clone, Copy, Debug)]
pub struct Bits {
    /// A worker has news.
    pub news: u64,
    /// A worker hangs.
    pub stall: u64,
}

/// How a client asks, but for the messages of its channel.
pub enum Way {
    /// Not at all.
    Messages,
    /// It calls a worker of this core.
    Calls(Calls),
    /// It calls a worker of another core's, with which we share this.
    Part(Beside, &'static Shared),
}

impl Way {
    /// That of a channel.
    pub fn of(channel: &ServerChannel, calls: Option<Calls>) -> Way {
        let part = || {
            let beside = channel.peer().beside()?;
            Some(Way::Part(beside, Shared::over(beside.words)?))
        };
        calls.map(Way::Calls).or_else(part).unwrap_or(Way::Messages)
    }

    /// The same as calls.
    fn calls(&self) -> Option<&Calls> {
        match self {
            Way::Calls(calls) => Some(calls),
            Way::Messages | Way::Part(..) => None,
        }
    }

    fn signal(&self) -> Option<Signal> {
        match *self {
            Way::Messages => None,
            Way::Calls(Calls { semaphore, .. }) => Some(Signal::Semaphore(semaphore)),
            Way::Part(Beside { peer, .. }, shared) => Some(Signal::Part(peer, shared)),
        }
    }
}

/// How a client hears that something has ended.
enum Signal {
    /// It waits at this.
    Semaphore(Handle),
    /// Its core's dispatcher tells it.
    Part(Handle, &'static Shared),
}

impl Signal {
    fn raise(&self) {
        match self {
            // Refused at a count that nobody takes from: it hears of none more.
            Signal::Semaphore(semaphore) => drop(sys::semaphore_up(*semaphore, 1)),
            Signal::Part(peer, shared) if shared.tell_end() => drop(sys::notify(*peer)),
            Signal::Part(..) => (),
        }
    }
}

/// Looks whether a worker of another core has asked for something.
struct Asked {
    shared: &'static Shared,
    wakeup: Rc<Notify>,
}

impl Listen for Asked {
    fn is_ready(&self) -> bool {
        self.shared.is_asked()
    }

    fn take(&self) {
        self.wakeup.notify();
    }
}

/// Starts the workers of a desk, and has those clients' portals lead to them.
///
/// # Errors
/// Those of `ContextAlloc` and `PortalSet`: the account is full.
pub fn start_workers<'c>(
    desk: &'static Desk,
    all: impl Iterator<Item = &'c Calls>,
    stall: u64,
) -> Result<BTreeMap<u8, Worker>, Error> {
    let mut workers = BTreeMap::new();
    for calls in all {
        let worker = match workers.entry(calls.worker) {
            Entry::Occupied(started) => started.into_mut(),
            Entry::Vacant(place) => place.insert(start_worker(desk, STALL_NS, stall)?),
        };
        worker.lead(calls.portal)?;
    }
    Ok(workers)
}

/// The clients that call, by the order of the server's channels.
pub struct Callers {
    desk: &'static Desk,
    /// How each hears.
    signals: Vec<Option<Signal>>,
    /// Clients, a bit each, of which something has ended since they were told.
    ended: Cell<u64>,
    /// What was taken and is not with the device yet, by client and slot.
    taken: RefCell<Vec<(usize, usize)>>,
    /// They serve as long as this.
    workers: BTreeMap<u8, Worker>,
}

impl Callers {
    /// Starts the workers, and has the clients' portals lead to them. Each client is told: what it
    /// asked of a predecessor it is to ask again. `all` are the server's clients, each with what it
    /// is told of the disk; `core` is ours. What workers of other cores ask for is told by
    /// `wakeup`.
    ///
    /// # Errors
    /// Those of `CapMint`, `ContextAlloc` and `PortalSet`: the account is full.
    pub fn start(all: &[(Way, Disk)], bits: Bits, core: u32, wakeup: &Rc<Notify>) -> Result<Callers, Error> {
        let signals = all.iter().map(|(way, _)| way.signal()).collect();
        let handler = sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, bits.news)?;
        let client = |(way, disk): &(Way, Disk)| match way {
            Way::Messages => None,
            Way::Calls(calls) => Some(Client::new(calls.badge, calls.page, Limits::of(*disk), handler)),
            Way::Part(_, shared) => Some(Client::of_handler(shared)),
        };
        let desk = Desk::leak(all.iter().map(client).collect(), core);
        let workers = start_workers(desk, all.iter().filter_map(|(way, _)| way.calls()), bits.stall)?;
        for (way, _) in all {
            if let Way::Part(beside, shared) = way {
                beside.listen(Asked { shared, wakeup: wakeup.clone() });
            }
        }
        let callers = Callers { desk, signals, ended: Cell::new(u64::MAX), taken: RefCell::default(), workers };
        callers.signal();
        Ok(callers)
    }

    /// How many workers serve.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Gives `submit` what they have asked.
    pub fn take(&self, mut submit: impl FnMut(Request) -> Result<(), Ended>) {
        for client in 0..self.signals.len() {
            while let Some(asked) = self.desk.take(client) {
                match submit(words::called(client as u8, &asked.request)) {
                    Ok(()) => self.taken.borrow_mut().push((client, asked.slot)),
                    Err(ended) => {
                        let now_ns = runtime::now_ns();
                        self.end_one(client, asked.request.number, ended, [now_ns; 2]);
                    }
                }
            }
        }
    }

    /// What was taken was given to the device.
    pub fn programmed(&self) {
        let mut taken = self.taken.borrow_mut();
        if !taken.is_empty() {
            self.desk.programmed(&taken, runtime::now_ns());
            taken.clear();
        }
    }

    /// A request ended, as was seen at `seen_ns`. False: none that was called for.
    pub fn end(&self, end: &Completion, seen_ns: u64) -> bool {
        let Completion { client, id, outcome } = *end;
        self.end_one(client.into(), id, words::ended(outcome), [seen_ns, runtime::now_ns()])
    }

    fn end_one(&self, client: usize, number: u64, ended: Ended, [seen_ns, now_ns]: [u64; 2]) -> bool {
        let is_ours = self.desk.end(client, number, ended, seen_ns, now_ns);
        self.ended.set(self.ended.get() | u64::from(is_ours) << client);
        is_ours
    }

    /// Tells those of which something has ended. It never waits, whatever they do.
    pub fn signal(&self) {
        let ended = self.ended.take();
        let told = self.signals.iter().enumerate().filter(|(client, _)| ended & 1 << client != 0);
        told.filter_map(|(_, signal)| signal.as_ref()).for_each(Signal::raise);
    }

    /// A life of a client begins; see [`Desk::attached`].
    pub fn attached(&self, client: u8, first: u64) {
        self.desk.attached(client.into(), first);
    }

    /// The disk has another size.
    pub fn resize(&self, sectors: u64) {
        self.desk.resize(sectors);
    }
}
