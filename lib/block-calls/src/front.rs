//! A server of `blocks` before another, by calls: what its workers do with one.
//!
//! ```text
//! client ──call──► worker: check, encrypt ──call──► worker behind ──► device
//!    ▲                                                                  │
//!    └── semaphore ◄── relay ◄── semaphore ◄────────────────────────────┘
//!    └── second call ──► worker: picks up behind, decrypts
//! ```
//!
//! Invariants: a client has a session of its own with the server behind, whose slots and numbers
//! are the client's. So what is known of a request is known behind; here is only, for each slot,
//! whether it ended there and is not decrypted yet, and a few blocks that were read last (`cache`).
//! All of it is lost with this server, and asked again. A call encrypts and decrypts
//! [`SECTORS_MAX`] sectors at most. The time is the client's.
//!
//! Deliberately unknown here: devices, channels, keys, who restarts whom.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::Error;
use contracts::blocks::{BlocksError, Extent};
use packet::Memory;
use runtime::Calls;

use cache::{Cache, Changes};

use crate::path::{Direction, Path, Place, SECTORS_MAX};
use crate::slot::{self, Ended, Operation, Phases, Request};
use crate::{BATCH_MAX, refused, slots};

mod cache;

/// A worker waits so long for the one behind: less than clients give a call.
pub(crate) const BEHIND_NS: u64 = 500_000_000;

/// A client that calls, and its session with the server behind.
pub struct Pair {
    /// What the client calls by.
    pub client: Calls,
    /// What we call by.
    pub behind: Calls,
}

/// A client of the server before.
pub struct Client<M> {
    path: Path<M>,
    calls: Option<Pair>,
    /// The number that it attached with; 0: it has not.
    first: AtomicU64,
    /// Slots of reads that have ended behind, and are to be decrypted.
    ended_behind: AtomicU64,
    cache: Cache,
}

/// What a worker did with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worked {
    /// The answer, as a desk's.
    pub words: [u64; 3],
    /// Some slots can be picked up, but were too much for this call: the client is to call again.
    pub is_more: bool,
}

const fn refuse(why: u64) -> Worked {
    Worked { words: [0, 0, why], is_more: false }
}

/// How much is left of what a call may encrypt and decrypt.
struct Budget(u32);

impl Budget {
    /// False: it is for the next call.
    fn take(&mut self, sectors: u32) -> bool {
        self.0.checked_sub(sectors).map(|left| self.0 = left).is_some()
    }
}

impl<M: Memory> Client<M> {
    /// One that goes that path; with `calls`, if it may call.
    pub fn new(path: Path<M>, calls: Option<Pair>) -> Client<M> {
        Client { path, calls, first: AtomicU64::new(0), ended_behind: AtomicU64::new(0), cache: Cache::new() }
    }

    /// Its path.
    pub fn path(&self) -> &Path<M> {
        &self.path
    }

    /// What it calls by.
    pub fn calls(&self) -> Option<&Pair> {
        self.calls.as_ref()
    }

    /// Worker: a call. `behind` calls the server behind.
    fn call(
        &self,
        pair: &Pair,
        changes: &Changes,
        [ask, pick_up, ..]: [u64; 4],
        now_ns: impl Fn() -> u64,
        behind: impl Fn(&Calls, [u64; 4]) -> Result<[u64; 3], Error>,
    ) -> Worked {
        let first = self.first.load(Ordering::Acquire);
        if ask & pick_up != 0 || (ask | pick_up).count_ones() > BATCH_MAX {
            return refuse(refused::BATCH);
        }
        if first == 0 {
            return refuse(refused::CALLER);
        }
        let mut budget = Budget(SECTORS_MAX);
        let (mut ended, mut ask_behind) = (0, 0);
        for slot in slots(ask) {
            match self.ask(pair, changes, slot, &mut budget, &now_ns) {
                Ok(true) => ask_behind |= 1 << slot,
                // It ended behind: it is picked up below.
                Ok(false) => {}
                Err(how) => {
                    let phases = Phases { preprocess_ns: now_ns(), ..Phases::default() };
                    slot::answer(pair.client.page, slot, how, &phases);
                    ended |= 1 << slot;
                }
            }
        }
        let pick_up_behind = pick_up & !self.ended_behind.load(Ordering::Relaxed);
        if ask_behind | pick_up_behind != 0 {
            match behind(&pair.behind, [ask_behind, pick_up_behind, 0, 0]) {
                Ok([ended_behind, _, 0]) => ended |= self.take_ends(pair, changes, ended_behind),
                Ok([.., refused::CALLER]) | Err(Error::PeerDead) => return refuse(refused::CALLER),
                Ok(_) | Err(_) => return refuse(refused::LATE),
            }
        }
        let mut is_more = false;
        let to_decrypt = (ask | pick_up) & !ended & self.ended_behind.load(Ordering::Relaxed);
        for slot in slots(to_decrypt) {
            match self.decrypt(pair, slot, &mut budget) {
                Some(how) => {
                    self.cache.ended(slot);
                    self.answer(pair, slot, how);
                    self.ended_behind.fetch_and(!(1 << slot), Ordering::Relaxed);
                    ended |= 1 << slot;
                }
                None => is_more = true,
            }
        }
        Worked { words: [ended, (ask | pick_up) & !ended, 0], is_more }
    }

    /// Prepares what a slot asks. Whether the server behind is to be asked: not for one that is
    /// asked again and has ended there. An error is how it ends.
    fn ask(
        &self,
        pair: &Pair,
        changes: &Changes,
        slot: usize,
        budget: &mut Budget,
        now_ns: impl Fn() -> u64,
    ) -> Result<bool, Ended> {
        let (preprocess_ns, first) = (now_ns(), self.first.load(Ordering::Relaxed));
        let asked = slot::copy(pair.client.page, slot).map_err(Ended::Failed)?;
        if asked.number < first {
            return Err(Ended::Failed(BlocksError::Number));
        }
        let request = self.checked(&asked).map_err(Ended::Failed)?;
        if self.ended_behind.load(Ordering::Relaxed) & 1 << slot != 0 {
            match slot::copy(pair.behind.page, slot) {
                Ok(before) if before == request => return Ok(false),
                Ok(before) if before.number >= first => return Err(Ended::Failed(BlocksError::Number)),
                // It is of an earlier life.
                _ => self.ended_behind.fetch_and(!(1 << slot), Ordering::Relaxed),
            };
        }
        if asked.operation == Operation::Read
            && let Some(bytes) = self.cache.look_up(slot, asked.extent, changes)
        {
            return Err(self.path.give(place(&asked), &bytes[..]).map_or_else(Ended::Failed, |()| Ended::Done));
        }
        if asked.operation == Operation::Write {
            if !budget.take(asked.extent.sectors) {
                return Err(Ended::NotAsked);
            }
            self.path.prepare(Direction::Write, place(&asked)).map_err(Ended::Failed)?;
        }
        slot::fill(pair.behind.page, slot, &request);
        self.cache.asked(slot, changes);
        let phases = Phases { preprocess_ns, submit_ns: now_ns(), ..Phases::default() };
        slot::answer(pair.client.page, slot, Ended::NotAsked, &phases);
        Ok(true)
    }

    /// The request for the server behind.
    fn checked(&self, asked: &Request) -> Result<Request, BlocksError> {
        let Place { extent, offset } = match asked.operation {
            Operation::Read => self.path.check(Direction::Read, place(asked))?,
            Operation::Write => self.path.check(Direction::Write, place(asked))?,
            Operation::Discard => Place { extent: self.path.discard(asked.extent)?, offset: 0 },
            Operation::Flush => Place { extent: Extent { sector: 0, sectors: 0 }, offset: 0 },
            // Zeros on the disk are noise to its client.
            Operation::WriteZeroes { .. } => return Err(BlocksError::Unsupported),
        };
        Ok(Request { extent, offset, ..*asked })
    }

    /// What ended behind: reads are to be decrypted; the others, which it gives, have ended here.
    fn take_ends(&self, pair: &Pair, changes: &Changes, ended_behind: u64) -> u64 {
        let mut ended = 0;
        for slot in slots(ended_behind) {
            let how = slot::ended(pair.behind.page, slot);
            let operation = slot::copy(pair.behind.page, slot).map(|request| request.operation);
            if operation == Ok(Operation::Read) && how == Ended::Done {
                self.ended_behind.fetch_or(1 << slot, Ordering::Relaxed);
            } else {
                if !matches!(operation, Ok(Operation::Read | Operation::Flush)) {
                    changes.count();
                }
                self.cache.ended(slot);
                self.answer(pair, slot, how);
                ended |= 1 << slot;
            }
        }
        ended
    }

    /// Decrypts what a read has brought. `None`: it is too much for this call.
    fn decrypt(&self, pair: &Pair, slot: usize, budget: &mut Budget) -> Option<Ended> {
        let read = slot::copy(pair.behind.page, slot).and_then(|request| self.path.back(place(&request)));
        let read = match read {
            Ok(read) => read,
            Err(why) => return Some(Ended::Failed(why)),
        };
        if !budget.take(read.extent.sectors) {
            return None;
        }
        if let Err(why) = self.path.complete(read) {
            return Some(Ended::Failed(why));
        }
        self.cache.fill(slot, read.extent, |bytes| self.path.take(read, bytes).is_ok());
        Some(Ended::Done)
    }

    /// Answers a slot that was asked: when it was where is known here, and behind.
    fn answer(&self, pair: &Pair, slot: usize, how: Ended) {
        let Phases { preprocess_ns, submit_ns, .. } = slot::phases(pair.client.page, slot);
        let phases = Phases { preprocess_ns, submit_ns, ..slot::phases(pair.behind.page, slot) };
        slot::answer(pair.client.page, slot, how, &phases);
    }
}

/// Where a request's bytes are.
fn place(request: &Request) -> Place {
    Place { extent: request.extent, offset: request.offset }
}

/// The clients of a server before another, in the order of its channels.
pub struct Front<M> {
    clients: Box<[Client<M>]>,
    changes: Changes,
}

impl<M: Memory> Front<M> {
    /// With those clients; it lives as long as the server.
    pub fn leak(clients: Vec<Client<M>>) -> &'static Front<M> {
        Box::leak(Box::new(Front { clients: clients.into(), changes: Changes::new() }))
    }

    /// A client.
    pub fn client(&self, client: usize) -> Option<&Client<M>> {
        self.clients.get(client)
    }

    /// All of them.
    pub fn clients(&self) -> &[Client<M>] {
        &self.clients
    }

    /// A life of a client's begins, whose numbers are not below `first`; the server behind has been
    /// told, so that of its earlier lives nothing is under way. Asked again with the same number it
    /// goes on.
    pub fn attached(&self, client: usize, first: u64) {
        self.written();
        if let Some(client) = self.client(client) {
            client.first.store(first, Ordering::Release);
        }
    }

    /// A write or a discard that came by a ring has ended, and is not answered yet: what was read
    /// before it is given out no more.
    pub fn written(&self) {
        self.changes.count();
    }

    /// Worker: a call of the client with that badge, and the client.
    pub fn call(
        &self,
        badge: u64,
        words: [u64; 4],
        now_ns: impl Fn() -> u64,
        behind: impl Fn(&Calls, [u64; 4]) -> Result<[u64; 3], Error>,
    ) -> (Worked, Option<&Pair>) {
        let all = self.clients.iter().filter_map(|client| Some((client, client.calls()?)));
        let found = all.into_iter().find(|(_, pair)| pair.client.badge == badge);
        let unknown = (refuse(refused::CALLER), None);
        found.map_or(unknown, |(client, pair)| (client.call(pair, &self.changes, words, now_ns, behind), Some(pair)))
    }
}

#[cfg(test)]
mod tests;
