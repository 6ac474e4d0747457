//! What workers and the handler share: an entry for each slot of each client, and a ring of the
//! slots that were asked.
//!
//! A worker on another core is in another domain (decision 95): what both reach of a client lies in
//! words that both map, [`Shared`], and each has a desk of its own over them.
//!
//! An entry has one writer at a time, told by its state:
//!
//! ```text
//! worker:   FREE ──ask──► ASKED          DONE ──pick up──► FREE
//! handler:                ASKED ──take──► TAKEN ──end──► DONE
//! ```
//!
//! Invariants: each slot is in the ring once at most, so that the ring has room for all. A request
//! of an earlier life of the client's (a number below the one it attached with) is nobody's: the
//! worker asks over it, the handler drops it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Handle;
use contracts::blocks::{BlocksError, Extent};
use runtime::Page;

use crate::limits::Limits;
use crate::slot::{self, Ended, Operation, Phases, Request};
use crate::{BATCH_MAX, SLOTS, refused, slots};

const FREE: u64 = 0;
const ASKED: u64 = 1;
const TAKEN: u64 = 2;
const DONE: u64 = 3;

/// What a worker did with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worked {
    /// The answer: slots that have ended, slots that are pending, and why the call was refused.
    pub words: [u64; 3],
    /// The handler is to be notified: it may have seen all before.
    pub is_news: bool,
}

/// A request that the handler has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its slot.
    pub slot: usize,
    /// What is asked.
    pub request: Request,
}

#[derive(Default)]
#[repr(C)]
struct Entry {
    state: AtomicU64,
    operation: AtomicU64,
    number: AtomicU64,
    sector: AtomicU64,
    sectors: AtomicU64,
    offset: AtomicU64,
    answer: AtomicU64,
    preprocess_ns: AtomicU64,
    submit_ns: AtomicU64,
    program_ns: AtomicU64,
    interrupt_ns: AtomicU64,
    signal_ns: AtomicU64,
    /// The worker's << 32 | the handler's.
    cores: AtomicU64,
}

impl Entry {
    fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    fn set(&self, state: u64) {
        self.state.store(state, Ordering::Release);
    }

    fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    fn store(&self, request: &Request) {
        let Request { operation, number, extent, offset } = *request;
        self.operation.store(operation.encode(), Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
        self.sector.store(extent.sector, Ordering::Relaxed);
        self.sectors.store(extent.sectors.into(), Ordering::Relaxed);
        self.offset.store(offset.into(), Ordering::Relaxed);
    }

    fn request(&self) -> Option<Request> {
        let extent = Extent {
            sector: self.sector.load(Ordering::Relaxed),
            sectors: self.sectors.load(Ordering::Relaxed) as u32,
        };
        Some(Request {
            operation: Operation::decode(self.operation.load(Ordering::Relaxed))?,
            number: self.number(),
            extent,
            offset: self.offset.load(Ordering::Relaxed) as u32,
        })
    }

    fn phases(&self) -> Phases {
        let [preprocess_ns, submit_ns, program_ns, interrupt_ns, signal_ns] =
            [&self.preprocess_ns, &self.submit_ns, &self.program_ns, &self.interrupt_ns, &self.signal_ns]
                .map(|at| at.load(Ordering::Relaxed));
        let cores = self.cores.load(Ordering::Relaxed);
        let (submit_core, program_core) = ((cores >> 32) as u32, cores as u32);
        Phases { preprocess_ns, submit_ns, program_ns, interrupt_ns, signal_ns, submit_core, program_core }
    }
}

/// Slots in the order in which they were asked: the worker writes, the handler reads.
#[repr(C)]
struct Ring {
    order: [AtomicU64; SLOTS],
    produced: AtomicU64,
    consumed: AtomicU64,
}

impl Ring {
    fn new() -> Ring {
        let order = [const { AtomicU64::new(0) }; SLOTS];
        Ring { order, produced: AtomicU64::new(0), consumed: AtomicU64::new(0) }
    }

    /// Tells whether the reader had seen all before: then it may not look again.
    fn push(&self, slot: usize) -> bool {
        let at = self.produced.load(Ordering::Relaxed);
        self.order[at as usize % SLOTS].store(slot as u64, Ordering::Relaxed);
        self.produced.store(at.wrapping_add(1), Ordering::SeqCst);
        self.consumed.load(Ordering::SeqCst) == at
    }

    /// A reader that gets nothing has looked after it had seen all.
    fn pop(&self) -> Option<usize> {
        let at = self.consumed.load(Ordering::Relaxed);
        if self.produced.load(Ordering::SeqCst) == at {
            return None;
        }
        let slot = self.order[at as usize % SLOTS].load(Ordering::Relaxed);
        self.consumed.store(at.wrapping_add(1), Ordering::SeqCst);
        Some(slot as usize)
    }
}

/// What the worker and the handler of a client both reach: atomic words, and nothing else.
#[repr(C)]
pub struct Shared {
    entries: [Entry; SLOTS],
    ring: Ring,
    /// Something has ended since the worker's component looked; of a worker on another core.
    ended: AtomicU64,
}

const _: () = assert!(size_of::<Shared>() <= contracts::blocks::DESK_BYTES as usize);

impl Shared {
    fn new() -> Shared {
        let entries = core::array::from_fn(|_| Entry::default());
        Shared { entries, ring: Ring::new(), ended: AtomicU64::new(0) }
    }

    /// Handler: nothing is asked, as at the begin.
    fn clear(&self) {
        self.entries.iter().for_each(|entry| entry.set(FREE));
        for word in [&self.ring.produced, &self.ring.consumed, &self.ended] {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Handler: whether there is something to be taken.
    pub fn is_asked(&self) -> bool {
        self.ring.produced.load(Ordering::SeqCst) != self.ring.consumed.load(Ordering::Relaxed)
    }

    /// Handler: something has ended. Tells whether the worker's component had seen all before: then
    /// it may not look again.
    pub fn tell_end(&self) -> bool {
        self.ended.swap(1, Ordering::SeqCst) == 0
    }

    /// Worker's component: whether something has ended since the last [`take_end`](Self::take_end).
    pub fn has_end(&self) -> bool {
        self.ended.load(Ordering::SeqCst) != 0
    }

    /// Worker's component: the same, and it has seen all.
    pub fn take_end(&self) -> bool {
        self.ended.swap(0, Ordering::SeqCst) != 0
    }
}

/// What a worker knows of a client.
struct Caller {
    /// The badge of its portal.
    badge: u64,
    page: &'static Page,
    limits: Limits,
    /// What the worker notifies of news.
    handler: Handle,
}

/// One client of the desk.
pub struct Client {
    /// `None`: its worker has another desk.
    caller: Option<Caller>,
    /// The number that it attached with; 0: it has not.
    first: AtomicU64,
    shared: &'static Shared,
}

impl Client {
    /// One that is told of its limits, whose worker and handler have the same desk.
    /// `badge` is its portal's; its worker notifies `handler` of news.
    pub fn new(badge: u64, page: &'static Page, limits: Limits, handler: Handle) -> Client {
        Client::of_worker(badge, page, limits, handler, Box::leak(Box::new(Shared::new())))
    }

    /// For the desk of a worker whose handler is elsewhere, and has cleared what they share.
    pub fn of_worker(
        badge: u64,
        page: &'static Page,
        limits: Limits,
        handler: Handle,
        shared: &'static Shared,
    ) -> Client {
        Client { caller: Some(Caller { badge, page, limits, handler }), first: AtomicU64::new(0), shared }
    }

    /// For the desk of a handler whose worker is elsewhere, and does nothing yet.
    pub fn of_handler(shared: &'static Shared) -> Client {
        shared.clear();
        Client { caller: None, first: AtomicU64::new(0), shared }
    }
}

/// A call of a client, as it is carried out.
struct Call<'a> {
    client: &'a Client,
    caller: &'a Caller,
    /// The worker's.
    core: u32,
}

impl Call<'_> {
    fn carry_out(&self, ask: u64, pick_up: u64, now_ns: impl Fn() -> u64) -> Worked {
        let refuse = |why| Worked { words: [0, 0, why], is_news: false };
        if ask & pick_up != 0 || (ask | pick_up).count_ones() > BATCH_MAX {
            return refuse(refused::BATCH);
        }
        if self.client.first.load(Ordering::Acquire) == 0 {
            return refuse(refused::CALLER);
        }
        let (mut ended, mut pending, mut is_news) = (0, 0, false);
        for slot in slots(ask) {
            match self.ask(slot, &now_ns) {
                Some(news) => {
                    is_news |= news;
                    pending |= 1 << slot;
                }
                None => ended |= 1 << slot,
            }
        }
        for slot in slots(pick_up) {
            match self.pick_up(slot) {
                true => ended |= 1 << slot,
                false => pending |= 1 << slot,
            }
        }
        Worked { words: [ended, pending, 0], is_news }
    }

    /// `None`: the slot has its answer. Else it is pending, and whether the handler is to hear.
    fn ask(&self, slot: usize, now_ns: impl Fn() -> u64) -> Option<bool> {
        let preprocess_ns = now_ns();
        let answer_now = |ended| {
            let (submit_core, program_core) = (self.core, self.core);
            let phases = Phases { preprocess_ns, submit_core, program_core, ..Phases::default() };
            slot::answer(self.caller.page, slot, ended, &phases);
            None
        };
        let request = match slot::copy(self.caller.page, slot) {
            Ok(request) => request,
            Err(why) => return answer_now(Ended::Failed(why)),
        };
        let (first, entry) = (self.client.first.load(Ordering::Relaxed), &self.client.shared.entries[slot]);
        if request.number < first {
            return answer_now(Ended::Failed(BlocksError::Number));
        }
        match entry.state() {
            FREE => (),
            DONE if entry.number() < first => (),
            // The handler has not come to drop it yet.
            _ if entry.number() < first => return answer_now(Ended::Failed(BlocksError::Full)),
            _ if entry.request() != Some(request) => return answer_now(Ended::Failed(BlocksError::Number)),
            // It is asked again, by a client that did not hear.
            _ => return (!self.pick_up(slot)).then_some(false),
        }
        if let Some(ended) = self.caller.limits.answer(&request) {
            return answer_now(ended);
        }
        entry.store(&request);
        entry.preprocess_ns.store(preprocess_ns, Ordering::Relaxed);
        for phase in [&entry.program_ns, &entry.interrupt_ns, &entry.signal_ns] {
            phase.store(0, Ordering::Relaxed);
        }
        entry.submit_ns.store(now_ns(), Ordering::Relaxed);
        entry.cores.store(u64::from(self.core) << 32 | u64::from(self.core), Ordering::Relaxed);
        entry.set(ASKED);
        Some(self.client.shared.ring.push(slot))
    }

    /// Whether the slot has its answer.
    fn pick_up(&self, slot: usize) -> bool {
        let entry = &self.client.shared.entries[slot];
        match entry.state() {
            DONE => {
                let ended = Ended::decode(entry.answer.load(Ordering::Relaxed));
                slot::answer(self.caller.page, slot, ended, &entry.phases());
                entry.set(FREE);
            }
            FREE => slot::answer(self.caller.page, slot, Ended::NotAsked, &Phases::default()),
            _ => return false,
        }
        true
    }
}

/// The desk of a server: its clients, in the order of the server's channels. Those that only ring
/// have none.
pub struct Desk {
    clients: Box<[Option<Client>]>,
    /// Where it is.
    core: u32,
}

impl Desk {
    /// The desk of those clients on this core, which lives as long as the server.
    pub fn leak(clients: Vec<Option<Client>>, core: u32) -> &'static Desk {
        Box::leak(Box::new(Desk { clients: clients.into(), core }))
    }

    /// Worker: a call of the client with that badge; see the crate's head.
    pub fn call(&self, badge: u64, words: [u64; 4], now_ns: impl Fn() -> u64) -> Worked {
        let Some((client, caller)) = self.caller(badge) else {
            return Worked { words: [0, 0, refused::CALLER], is_news: false };
        };
        Call { client, caller, core: self.core }.carry_out(words[0], words[1], now_ns)
    }

    fn caller(&self, badge: u64) -> Option<(&Client, &Caller)> {
        let mut callers = self.clients.iter().flatten().filter_map(|client| Some((client, client.caller.as_ref()?)));
        callers.find(|(_, caller)| caller.badge == badge)
    }

    /// Worker: what is to be notified of news of that client's.
    pub(crate) fn handler(&self, badge: u64) -> Option<Handle> {
        self.caller(badge).map(|(_, caller)| caller.handler)
    }

    /// Handler: the next request that a client asked. Those of an earlier life are dropped.
    pub fn take(&self, client: usize) -> Option<Asked> {
        let client = self.client(client)?;
        loop {
            let slot = client.shared.ring.pop()?;
            let entry = client.shared.entries.get(slot).filter(|entry| entry.state() == ASKED);
            let asked = entry.and_then(|entry| Some((entry, entry.request()?)));
            let Some((entry, request)) = asked else { continue };
            if request.number < client.first.load(Ordering::Relaxed) {
                entry.set(FREE);
                continue;
            }
            entry.set(TAKEN);
            return Some(Asked { slot, request });
        }
    }

    /// Handler: what was taken since the last time has been given to the device by now.
    pub fn programmed(&self, taken: &[(usize, usize)], now_ns: u64) {
        for (client, slot) in taken {
            if let Some(entry) = self.client(*client).and_then(|client| client.shared.entries.get(*slot)) {
                entry.program_ns.store(now_ns, Ordering::Relaxed);
                let cores = entry.cores.load(Ordering::Relaxed) >> 32 << 32 | u64::from(self.core);
                entry.cores.store(cores, Ordering::Relaxed);
            }
        }
    }

    /// Handler: a request ended, as was seen at `seen_ns`. False: nobody called for it.
    pub fn end(&self, client: usize, number: u64, ended: Ended, seen_ns: u64, now_ns: u64) -> bool {
        let Some(client) = self.client(client) else { return false };
        let taken = |entry: &&Entry| entry.state() == TAKEN && entry.number() == number;
        let Some(entry) = client.shared.entries.iter().find(taken) else { return false };
        entry.answer.store(ended.encode(), Ordering::Relaxed);
        entry.interrupt_ns.store(seen_ns, Ordering::Relaxed);
        entry.signal_ns.store(now_ns, Ordering::Relaxed);
        entry.set(DONE);
        true
    }

    /// Handler: a life of the client's begins, whose numbers are not below `first`; of those before
    /// nothing is under way. A worker of another desk is told afterwards, by
    /// [`worker_attached`](Self::worker_attached).
    pub fn attached(&self, client: usize, first: u64) {
        let Some(client) = self.client(client) else { return };
        client.first.store(first, Ordering::Release);
        let old = client.shared.entries.iter().filter(|entry| entry.state() == TAKEN && entry.number() < first);
        old.for_each(|entry| entry.set(FREE));
    }

    /// The same, for a worker whose handler is elsewhere and has answered.
    pub fn worker_attached(&self, client: usize, first: u64) {
        if let Some(client) = self.client(client) {
            client.first.store(first, Ordering::Release);
        }
    }

    /// The disk has another size.
    pub fn resize(&self, sectors: u64) {
        let callers = self.clients.iter().flatten().filter_map(|client| client.caller.as_ref());
        callers.for_each(|caller| caller.limits.resize(sectors));
    }

    fn client(&self, client: usize) -> Option<&Client> {
        self.clients.get(client)?.as_ref()
    }
}

#[cfg(test)]
mod tests;
