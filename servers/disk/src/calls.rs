//! The handler's side of clients that call (`lib/block-calls`): what they ask goes to the driver,
//! and they hear when something has ended.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use abi::{Error, Handle, Rights};
use block_calls::desk::Client;
use block_calls::limits::Limits;
use block_calls::{Desk, Ended, start_worker};
use contracts::blocks::Disk;
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

/// The clients that call, by the order of the server's channels.
pub struct Callers {
    desk: &'static Desk,
    /// What each waits at.
    semaphores: Vec<Option<Handle>>,
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
    /// is told of the disk; `core` is ours.
    ///
    /// # Errors
    /// Those of `CapMint`, `ContextAlloc` and `PortalSet`: the account is full.
    pub fn start(all: Vec<(Option<Calls>, Disk)>, bits: Bits, core: u32) -> Result<Callers, Error> {
        let semaphores = all.iter().map(|(calls, _)| calls.as_ref().map(|calls| calls.semaphore)).collect();
        let handler = sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, bits.news)?;
        let client = |(calls, disk): &(Option<Calls>, Disk)| {
            let calls = calls.as_ref()?;
            Some(Client::new(calls.badge, calls.page, Limits::of(*disk)))
        };
        let desk = Desk::leak(all.iter().map(client).collect(), handler, core);
        let mut workers = BTreeMap::new();
        for calls in all.iter().filter_map(|(calls, _)| calls.as_ref()) {
            let worker = match workers.entry(calls.worker) {
                Entry::Occupied(started) => started.into_mut(),
                Entry::Vacant(place) => place.insert(start_worker(desk, STALL_NS, bits.stall)?),
            };
            worker.lead(calls.portal)?;
        }
        let callers = Callers { desk, semaphores, ended: Cell::new(u64::MAX), taken: RefCell::default(), workers };
        callers.signal();
        Ok(callers)
    }

    /// How many workers serve.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Gives `submit` what they have asked.
    pub fn take(&self, mut submit: impl FnMut(Request) -> Result<(), Ended>) {
        for client in 0..self.semaphores.len() {
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
        let told = self.semaphores.iter().enumerate().filter(|(client, _)| ended & 1 << client != 0);
        for semaphore in told.filter_map(|(_, semaphore)| *semaphore) {
            // Refused at a count that nobody takes from: it hears of none more.
            let _ = sys::semaphore_up(semaphore, 1);
        }
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
