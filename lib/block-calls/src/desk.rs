//! What workers and the handler share: an entry for each slot of each client, and a ring of the
//! slots that were asked.
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
        Phases { preprocess_ns, submit_ns, program_ns, interrupt_ns, signal_ns }
    }
}

/// Slots in the order in which they were asked: the worker writes, the handler reads.
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

/// One client of the desk.
pub struct Client {
    /// The badge of its portal.
    badge: u64,
    page: &'static Page,
    limits: Limits,
    /// The number that it attached with; 0: it has not.
    first: AtomicU64,
    entries: [Entry; SLOTS],
    ring: Ring,
}

impl Client {
    /// One that is told of its limits.
    pub fn new(badge: u64, page: &'static Page, limits: Limits) -> Client {
        let entries = core::array::from_fn(|_| Entry::default());
        Client { badge, page, limits, first: AtomicU64::new(0), entries, ring: Ring::new() }
    }

    /// Worker: a call.
    fn call(&self, ask: u64, pick_up: u64, now_ns: impl Fn() -> u64) -> Worked {
        let refuse = |why| Worked { words: [0, 0, why], is_news: false };
        if ask & pick_up != 0 || (ask | pick_up).count_ones() > BATCH_MAX {
            return refuse(refused::BATCH);
        }
        if self.first.load(Ordering::Acquire) == 0 {
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
            let phases = Phases { preprocess_ns, ..Phases::default() };
            slot::answer(self.page, slot, ended, &phases);
            None
        };
        let request = match slot::copy(self.page, slot) {
            Ok(request) => request,
            Err(why) => return answer_now(Ended::Failed(why)),
        };
        let (first, entry) = (self.first.load(Ordering::Relaxed), &self.entries[slot]);
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
        if let Some(ended) = self.limits.answer(&request) {
            return answer_now(ended);
        }
        entry.store(&request);
        entry.preprocess_ns.store(preprocess_ns, Ordering::Relaxed);
        for phase in [&entry.program_ns, &entry.interrupt_ns, &entry.signal_ns] {
            phase.store(0, Ordering::Relaxed);
        }
        entry.submit_ns.store(now_ns(), Ordering::Relaxed);
        entry.set(ASKED);
        Some(self.ring.push(slot))
    }

    /// Whether the slot has its answer.
    fn pick_up(&self, slot: usize) -> bool {
        let entry = &self.entries[slot];
        match entry.state() {
            DONE => {
                let ended = Ended::decode(entry.answer.load(Ordering::Relaxed));
                slot::answer(self.page, slot, ended, &entry.phases());
                entry.set(FREE);
            }
            FREE => slot::answer(self.page, slot, Ended::NotAsked, &Phases::default()),
            _ => return false,
        }
        true
    }
}

/// The desk of a server: its clients, in the order of the server's channels. Those that only ring
/// have none.
pub struct Desk {
    clients: Box<[Option<Client>]>,
    /// What a worker notifies of news.
    pub(crate) handler: Handle,
}

impl Desk {
    /// The desk of those clients, which lives as long as the server.
    pub fn leak(clients: Vec<Option<Client>>, handler: Handle) -> &'static Desk {
        Box::leak(Box::new(Desk { clients: clients.into(), handler }))
    }

    /// Worker: a call of the client with that badge; see the crate's head.
    pub fn call(&self, badge: u64, words: [u64; 4], now_ns: impl Fn() -> u64) -> Worked {
        let client = self.clients.iter().flatten().find(|client| client.badge == badge);
        let unknown = Worked { words: [0, 0, refused::CALLER], is_news: false };
        client.map_or(unknown, |client| client.call(words[0], words[1], now_ns))
    }

    /// Handler: the next request that a client asked. Those of an earlier life are dropped.
    pub fn take(&self, client: usize) -> Option<Asked> {
        let client = self.client(client)?;
        loop {
            let slot = client.ring.pop()?;
            let entry = client.entries.get(slot).filter(|entry| entry.state() == ASKED);
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
            if let Some(entry) = self.client(*client).and_then(|client| client.entries.get(*slot)) {
                entry.program_ns.store(now_ns, Ordering::Relaxed);
            }
        }
    }

    /// Handler: a request ended, as was seen at `seen_ns`. False: nobody called for it.
    pub fn end(&self, client: usize, number: u64, ended: Ended, seen_ns: u64, now_ns: u64) -> bool {
        let Some(client) = self.client(client) else { return false };
        let taken = |entry: &&Entry| entry.state() == TAKEN && entry.number() == number;
        let Some(entry) = client.entries.iter().find(taken) else { return false };
        entry.answer.store(ended.encode(), Ordering::Relaxed);
        entry.interrupt_ns.store(seen_ns, Ordering::Relaxed);
        entry.signal_ns.store(now_ns, Ordering::Relaxed);
        entry.set(DONE);
        true
    }

    /// Handler: a life of the client's begins, whose numbers are not below `first`; of those before
    /// nothing is under way.
    pub fn attached(&self, client: usize, first: u64) {
        let Some(client) = self.client(client) else { return };
        client.first.store(first, Ordering::Release);
        let old = client.entries.iter().filter(|entry| entry.state() == TAKEN && entry.number() < first);
        old.for_each(|entry| entry.set(FREE));
    }

    /// Handler: the disk has another size.
    pub fn resize(&self, sectors: u64) {
        self.clients.iter().flatten().for_each(|client| client.limits.resize(sectors));
    }

    fn client(&self, client: usize) -> Option<&Client> {
        self.clients.get(client)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::tests::DISK;
    use std::sync::mpsc;
    use std::thread;

    const BADGE: u64 = 9;
    const FIRST: u64 = 1000;

    fn page() -> &'static Page {
        Box::leak(Box::new([const { AtomicU64::new(0) }; 512]))
    }

    /// A desk whose second client is alone in calling.
    fn desk() -> (&'static Desk, &'static Page) {
        let page = page();
        let client = Client::new(BADGE, page, Limits::of(DISK));
        let desk = Desk::leak(Vec::from([None, Some(client)]), Handle::NONE);
        desk.attached(1, FIRST);
        (desk, page)
    }

    fn read(number: u64) -> Request {
        Request { operation: Operation::Read, number, extent: Extent { sector: 0, sectors: 8 }, offset: 8192 }
    }

    fn call(desk: &Desk, ask: u64, pick_up: u64) -> Worked {
        desk.call(BADGE, [ask, pick_up, 0, 0], || 5)
    }

    #[test]
    fn a_batch_is_asked_carried_out_and_picked_up() {
        let (desk, page) = desk();
        (0..32).for_each(|slot| slot::fill(page, slot, &read(FIRST + slot as u64)));
        let all = u64::from(u32::MAX);
        assert_eq!(call(desk, all, 0), Worked { words: [0, all, 0], is_news: true });
        for slot in 0..32 {
            assert_eq!(desk.take(1), Some(Asked { slot, request: read(FIRST + slot as u64) }), "in order");
        }
        assert_eq!(desk.take(1), None);
        assert_eq!(call(desk, 0, all).words, [0, all, 0], "nothing has ended");
        for slot in (0..32).filter(|slot| slot % 2 == 0) {
            let ended = if slot == 4 { Ended::Failed(BlocksError::Io) } else { Ended::Done };
            assert!(desk.end(1, FIRST + slot, ended, 20, 21));
            assert!(!desk.end(1, FIRST + slot, ended, 20, 21), "once");
        }
        let even = all & 0x5555_5555;
        // Half is picked up and asked anew in the same call.
        (32..48).for_each(|slot| slot::fill(page, slot, &read(FIRST + slot as u64)));
        assert_eq!(call(desk, 0xffff << 32, even), Worked { words: [even, 0xffff << 32, 0], is_news: true });
        assert_eq!(slot::ended(page, 4), Ended::Failed(BlocksError::Io));
        assert_eq!(slot::ended(page, 6), Ended::Done);
        assert_eq!(call(desk, 0, even).words, [even, 0, 0]);
        assert_eq!(slot::ended(page, 6), Ended::NotAsked, "it was picked up");
    }

    #[test]
    fn a_call_of_too_much_or_of_a_stranger_is_refused() {
        let (desk, page) = desk();
        let why = |ask, pick_up| call(desk, ask, pick_up).words;
        assert_eq!(why(0x1_ffff_ffff, 0), [0, 0, refused::BATCH]);
        assert_eq!(why(0xffff_ffff, 1 << 40), [0, 0, refused::BATCH]);
        assert_eq!(why(1, 1), [0, 0, refused::BATCH]);
        assert_eq!(desk.call(BADGE + 1, [1, 0, 0, 0], || 0).words, [0, 0, refused::CALLER]);
        let fresh = Desk::leak(Vec::from([Some(Client::new(BADGE, page, Limits::of(DISK)))]), Handle::NONE);
        assert_eq!(call(fresh, 1, 0).words, [0, 0, refused::CALLER], "it has not attached");
    }

    #[test]
    fn what_is_refused_is_answered_without_the_handler() {
        let (desk, page) = desk();
        let behind = Request { extent: Extent { sector: 80, sectors: 8 }, ..read(FIRST) };
        slot::fill(page, 0, &behind);
        slot::fill(page, 1, &read(FIRST - 1));
        assert_eq!(call(desk, 7, 0), Worked { words: [7, 0, 0], is_news: false });
        let ended = [0, 1, 2].map(|slot| slot::ended(page, slot));
        let errors = [BlocksError::Range, BlocksError::Number, BlocksError::Number];
        assert_eq!(ended, errors.map(Ended::Failed));
        assert_eq!(desk.take(1), None);
    }

    #[test]
    fn who_asks_again_joins_and_another_request_does_not() {
        let (desk, page) = desk();
        slot::fill(page, 5, &read(FIRST));
        assert!(call(desk, 1 << 5, 0).is_news);
        assert_eq!(call(desk, 1 << 5, 0), Worked { words: [0, 1 << 5, 0], is_news: false });
        slot::fill(page, 5, &read(FIRST + 1));
        assert_eq!(call(desk, 1 << 5, 0).words, [1 << 5, 0, 0]);
        assert_eq!(slot::ended(page, 5), Ended::Failed(BlocksError::Number));
        assert!(desk.take(1).is_some() && desk.take(1).is_none(), "it is in the ring once");
        assert!(desk.end(1, FIRST, Ended::Done, 0, 0));
        slot::fill(page, 5, &read(FIRST));
        assert_eq!(call(desk, 1 << 5, 0).words, [1 << 5, 0, 0]);
        assert_eq!(slot::ended(page, 5), Ended::Done);
    }

    #[test]
    fn what_a_life_left_is_nobodys() {
        let (desk, page) = desk();
        (0..3).for_each(|slot| slot::fill(page, slot, &read(FIRST + slot as u64)));
        assert_eq!(call(desk, 3, 0).words, [0, 3, 0]);
        assert!(desk.take(1).is_some() && desk.take(1).is_some());
        assert!(desk.end(1, FIRST, Ended::Done, 0, 0));
        // One that was asked for the dead client after its successor had attached.
        assert_eq!(call(desk, 4, 0).words, [0, 4, 0]);
        desk.attached(1, FIRST + 100);
        (0..3).for_each(|slot| slot::fill(page, slot, &read(FIRST + 100 + slot as u64)));
        assert_eq!(call(desk, 7, 0).words, [4, 3, 0]);
        assert_eq!(slot::ended(page, 2), Ended::Failed(BlocksError::Full), "the old one is in the ring");
        assert_eq!([desk.take(1), desk.take(1)].map(|asked| asked.unwrap().request.number), [FIRST + 100, FIRST + 101]);
        assert_eq!(desk.take(1), None);
        assert!(!desk.end(1, FIRST + 1, Ended::Done, 0, 0), "nobody waits for the old one");
        assert_eq!(call(desk, 4, 0).words, [0, 4, 0]);
        assert_eq!(desk.take(1).unwrap().request.number, FIRST + 102);
    }

    #[test]
    fn a_client_reads_when_its_request_was_where() {
        let (desk, page) = desk();
        let clock = AtomicU64::new(100);
        let call = |ask, pick_up| {
            let now_ns = || clock.fetch_add(1, Ordering::Relaxed);
            desk.call(BADGE, [ask, pick_up, 0, 0], now_ns).words
        };
        (2..4).for_each(|slot| slot::fill(page, slot, &read(FIRST + slot as u64)));
        assert_eq!(call(12, 0), [0, 12, 0]);
        assert!(desk.take(1).is_some() && desk.take(1).is_some());
        desk.programmed(&[(0, 2), (1, 3), (1, 64), (2, 3)], 200);
        assert!(desk.end(1, FIRST + 2, Ended::Done, 300, 400) && desk.end(1, FIRST + 3, Ended::Done, 500, 600));
        assert_eq!(call(0, 12), [12, 0, 0]);
        let phases = Phases { preprocess_ns: 102, submit_ns: 103, program_ns: 200, interrupt_ns: 500, signal_ns: 600 };
        assert_eq!(slot::phases(page, 3), phases);
        let never = Phases { preprocess_ns: 100, submit_ns: 101, program_ns: 101, interrupt_ns: 300, signal_ns: 400 };
        assert_eq!(slot::phases(page, 2), never, "it was not told of as given to the device");
        // What a slot was asked before is not told of what it is asked next.
        slot::fill(page, 3, &read(FIRST + 4));
        assert_eq!(call(8, 0), [0, 8, 0]);
        assert!(desk.take(1).is_some() && desk.end(1, FIRST + 4, Ended::Done, 107, 108));
        assert_eq!(call(0, 8), [8, 0, 0]);
        let anew = Phases { preprocess_ns: 104, submit_ns: 105, program_ns: 105, interrupt_ns: 107, signal_ns: 108 };
        assert_eq!(slot::phases(page, 3), anew);
    }

    #[test]
    fn a_client_that_attaches_once_more_keeps_what_is_under_way() {
        let (desk, page) = desk();
        (0..2).for_each(|slot| slot::fill(page, slot, &read(FIRST + slot as u64)));
        assert_eq!(call(desk, 3, 0).words, [0, 3, 0]);
        assert!(desk.take(1).is_some() && desk.take(1).is_some());
        desk.attached(1, FIRST);
        assert!(desk.end(1, FIRST, Ended::Done, 0, 0) && desk.end(1, FIRST + 1, Ended::Done, 0, 0));
        assert_eq!(call(desk, 0, 3).words, [3, 0, 0]);
    }

    #[test]
    fn all_clients_hear_that_the_disk_grew() {
        let (desk, page) = desk();
        let behind = Request { extent: Extent { sector: 80, sectors: 8 }, ..read(FIRST) };
        slot::fill(page, 0, &behind);
        assert_eq!(call(desk, 1, 0).words, [1, 0, 0]);
        assert_eq!(slot::ended(page, 0), Ended::Failed(BlocksError::Range));
        desk.resize(88);
        assert_eq!(call(desk, 1, 0).words, [0, 1, 0]);
    }

    /// A handler that sleeps until it is notified misses nothing.
    #[test]
    fn no_news_is_lost() {
        const ROUNDS: u64 = 20_000;
        let (desk, page) = desk();
        let (notify, notified) = mpsc::channel();
        let handler = thread::spawn(move || {
            let mut done = 0;
            while notified.recv().is_ok() {
                while let Some(asked) = desk.take(1) {
                    assert!(desk.end(1, asked.request.number, Ended::Done, 0, 0));
                    done += 1;
                }
            }
            done
        });
        let (mut number, mut free, mut done) = (FIRST, u64::MAX, 0);
        let begin = std::time::Instant::now();
        while done < ROUNDS {
            assert!(begin.elapsed().as_secs() < 120, "the handler sleeps over {number}");
            let ask = slots(free).take(16).fold(0, |all, slot| all | 1 << slot);
            slots(ask).for_each(|slot| {
                slot::fill(page, slot, &read(number));
                number += 1;
            });
            let pick_up = slots(!free).take(16).fold(0, |all, slot| all | 1 << slot);
            let Worked { words: [ended, pending, why], is_news } = call(desk, ask, pick_up);
            assert_eq!((why, ended & pending), (0, 0));
            if is_news {
                notify.send(()).unwrap();
            }
            assert!(slots(ended).all(|slot| slot::ended(page, slot) == Ended::Done));
            free = free & !pending | ended;
            done += u64::from(ended.count_ones());
        }
        drop(notify);
        let all = handler.join().unwrap() + core::iter::from_fn(|| desk.take(1)).count() as u64;
        assert_eq!(all, number - FIRST, "each was seen once");
    }
}
