//! The requests that were accepted and have not ended: which wait, which the device has, and which
//! of them it has together.
//!
//! Invariants: each has a slot with a record in the ring region, and each client's requests have
//! slots of its own. A command has the slot of the one of its requests that was oldest, and its
//! requests are a row of sectors of one client. What the records say is written before the device
//! can know of it:
//!
//! ```text
//!          enter              give                    queue's mark
//!   free ─────────► waiting ────────► in a command ─────────────────► with the device
//!     ▲                ▲  a successor that finds no mark │                 │
//!     │                └──────────────◄──────────────────┘                 │
//!     └──────────────────── end, after the queue's mark is cleared ────────┘
//! ```
//!
//! So a request whose record is there has not been confirmed to anybody, and may be carried out
//! again. Clients have turns, and each client's requests are given in their order, save those that
//! are carried out with an earlier one.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use packet::Memory;

use crate::command;
use crate::geometry::Geometry;
use crate::record::{ATTEMPTS_MAX, Place, Records, SLOTS, State};
use crate::request::{CLIENTS_MAX, REQUESTS_EACH_MAX, Refused, Request};

const _: () = assert!(CLIENTS_MAX as usize * REQUESTS_EACH_MAX == SLOTS as usize);

/// The slots of a client.
fn own(client: u8) -> Range<usize> {
    let first = usize::from(client) * REQUESTS_EACH_MAX;
    first..first + REQUESTS_EACH_MAX
}

/// A request that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What was asked.
    pub request: Request,
    /// Its place among all that were accepted.
    pub number: u64,
    /// How often the device had to be reset while it had it.
    attempts: u8,
    /// It is given without others: together with some it failed.
    is_alone: bool,
    /// Nobody waits for it any more.
    pub is_orphan: bool,
}

/// All requests of a driver.
pub struct Ledger<M> {
    records: Records<M>,
    entries: Vec<Option<Entry>>,
    /// Slots of those that wait, by client, the oldest first.
    waiting: [VecDeque<u16>; CLIENTS_MAX as usize],
    /// Slots of those that the device has, in the order of their sectors, by the command's slot.
    commands: BTreeMap<u16, Vec<u16>>,
    next: u64,
    /// Whose turn it is, or [`CLIENTS_MAX`]: the first one's.
    turn: u8,
}

impl<M: Memory> Ledger<M> {
    /// An empty one: no record counts.
    pub fn clear(records: Records<M>) -> Ledger<M> {
        (0..SLOTS).for_each(|slot| records.free(slot));
        Ledger {
            records,
            entries: (0..SLOTS).map(|_| None).collect(),
            waiting: Default::default(),
            commands: BTreeMap::new(),
            next: 0,
            turn: 0,
        }
    }

    /// What a predecessor left. A record that it would not have written, or whose request
    /// `is_right` refuses, is dropped: who asked that asks again.
    pub fn recover(records: Records<M>, is_right: impl Fn(&Request) -> bool) -> Ledger<M> {
        let found: Vec<_> = (0..SLOTS).map(|slot| records.load(slot)).collect();
        let mut parts: BTreeMap<u16, Vec<(u8, u16)>> = BTreeMap::new();
        let mut ledger = Ledger {
            records,
            entries: Vec::new(),
            waiting: Default::default(),
            commands: BTreeMap::new(),
            next: 0,
            turn: 0,
        };
        for (slot, found) in (0..SLOTS).zip(found) {
            let is_own = |request: &Request| own(request.client).contains(&slot.into());
            let Some(found) = found.filter(|found| is_own(&found.request) && is_right(&found.request)) else {
                ledger.records.free(slot);
                ledger.entries.push(None);
                continue;
            };
            let State { attempts, place } = found.state;
            let is_alone = place == Place::Waiting { alone: true };
            let (request, number) = (found.request, found.number);
            ledger.next = ledger.next.max(number.saturating_add(1));
            ledger.entries.push(Some(Entry { request, number, attempts, is_alone, is_orphan: false }));
            if let Place::In { command, part } = place {
                parts.entry(command).or_default().push((part, slot));
            }
        }
        for (command, mut parts) in parts {
            parts.sort_unstable();
            let is_whole = (0..).zip(&parts).all(|(number, (part, _))| *part == number);
            if is_whole && parts.iter().any(|(_, slot)| *slot == command) {
                ledger.commands.insert(command, parts.into_iter().map(|(_, slot)| slot).collect());
            }
        }
        let given: Vec<u16> = ledger.commands.values().flatten().copied().collect();
        (0..SLOTS).filter(|slot| !given.contains(slot)).for_each(|slot| ledger.wait(slot));
        ledger
    }

    /// Of the commands that were found, the device has only those of these slots.
    pub fn keep(&mut self, has: impl Fn(u16) -> bool) {
        let rest: Vec<u16> = self.commands.keys().copied().filter(|command| !has(*command)).collect();
        for command in rest {
            self.commands.remove(&command).into_iter().flatten().for_each(|slot| self.wait(slot));
        }
    }

    /// The requests of a command, in the order of their sectors; none if there is no such.
    pub fn requests(&self, command: u16) -> Vec<Request> {
        let slots = self.commands.get(&command).map_or(&[][..], Vec::as_slice);
        slots.iter().filter_map(|slot| self.entry(*slot)).map(|entry| entry.request).collect()
    }

    /// Commands that the device has.
    pub fn given(&self) -> usize {
        self.commands.len()
    }

    /// Requests that have not ended.
    pub fn pending(&self) -> usize {
        self.entries.iter().flatten().count()
    }

    /// Whether there are requests of a client's with numbers below `id`.
    pub fn holds(&self, client: u8, id: u64) -> bool {
        self.entries.get(own(client)).into_iter().flatten().flatten().any(|entry| entry.request.id < id)
    }

    /// Nobody waits any more for those: what the device does not have is dropped.
    pub fn abandon(&mut self, client: u8, id: u64) {
        for entry in self.entries.get_mut(own(client)).into_iter().flatten().flatten() {
            entry.is_orphan |= entry.request.id < id;
        }
        self.drop_orphans();
    }

    fn drop_orphans(&mut self) {
        let is_orphan = |slot: &u16| self.entry(*slot).is_some_and(|entry| entry.is_orphan);
        let orphans: Vec<u16> = self.waiting.iter().flatten().copied().filter(is_orphan).collect();
        self.waiting.iter_mut().for_each(|waiting| waiting.retain(|slot| !orphans.contains(slot)));
        for slot in orphans {
            self.take(slot);
        }
    }

    /// Accepts a request; false if it is one that has not ended, for which its client waits again.
    pub fn enter(&mut self, request: Request) -> Result<bool, Refused> {
        let entries = self.entries.get(own(request.client)).ok_or(Refused::Range)?;
        if let Some(entry) = entries.iter().flatten().find(|entry| entry.request.id == request.id) {
            return if entry.request == request && !entry.is_orphan { Ok(false) } else { Err(Refused::Number) };
        }
        let free = own(request.client).zip(entries).find(|(_, entry)| entry.is_none());
        let (slot, _) = free.ok_or(Refused::Full)?;
        let number = self.next;
        self.next += 1;
        self.entries[slot] = Some(Entry { request, number, attempts: 0, is_alone: false, is_orphan: false });
        let slot = slot as u16;
        self.records.enter(slot, number, &request, State { attempts: 0, place: Place::Waiting { alone: false } });
        self.waiting[usize::from(request.client)].push_back(slot);
        Ok(true)
    }

    /// The next command: its slot. Its requests are the device's from here on.
    pub fn give(&mut self, disk: &Geometry) -> Option<u16> {
        let clients = (0..CLIENTS_MAX).map(|more| (self.turn + more) % CLIENTS_MAX);
        let client = clients.into_iter().find(|client| !self.waiting[usize::from(*client)].is_empty())?;
        self.turn = client + 1;
        let command = self.waiting[usize::from(client)].pop_front()?;
        let slots = self.row(client, command, disk);
        self.waiting[usize::from(client)].retain(|slot| !slots.contains(slot));
        for (part, slot) in (0..).zip(&slots) {
            let Some(entry) = self.entry(*slot) else { continue };
            self.records.set(*slot, State { attempts: entry.attempts, place: Place::In { command, part } });
        }
        self.commands.insert(command, slots);
        Some(command)
    }

    /// What waits and can be carried out with that one, in the order of sectors.
    fn row(&self, client: u8, first: u16, disk: &Geometry) -> Vec<u16> {
        let mut slots = Vec::from([first]);
        let alone = |slot: u16| self.entry(slot).is_none_or(|entry| entry.is_alone);
        if alone(first) {
            return slots;
        }
        // Each round adds one, and there are no more than a client may have.
        loop {
            let waiting = self.waiting[usize::from(client)].iter().copied();
            let longer = waiting.filter(|slot| !slots.contains(slot) && !alone(*slot)).find_map(|slot| {
                let before = [&[slot], slots.as_slice()].concat();
                let behind = [slots.as_slice(), &[slot]].concat();
                [behind, before].into_iter().find(|slots| command::fit(&self.asked(slots), disk))
            });
            match longer {
                Some(longer) => slots = longer,
                None => return slots,
            }
        }
    }

    fn asked(&self, slots: &[u16]) -> Vec<Request> {
        slots.iter().filter_map(|slot| self.entry(*slot)).map(|entry| entry.request).collect()
    }

    /// The device is done with a command: its requests end.
    pub fn end(&mut self, command: u16) -> Vec<Entry> {
        let slots = self.commands.remove(&command).unwrap_or_default();
        slots.into_iter().filter_map(|slot| self.take(slot)).collect()
    }

    /// A command of several requests failed: each of them is to be tried alone. False if it is of
    /// one.
    pub fn split(&mut self, command: u16) -> bool {
        if self.commands.get(&command).is_none_or(|slots| slots.len() < 2) {
            return false;
        }
        for slot in self.commands.remove(&command).unwrap_or_default() {
            if let Some(Some(entry)) = self.entries.get_mut(usize::from(slot)) {
                entry.is_alone = true;
            }
            self.wait(slot);
        }
        self.drop_orphans();
        true
    }

    /// The device was reset and has nothing any more: what it had waits again, in order. With
    /// `is_blamed` it was for what the device did: those with which that happened too often are
    /// taken out.
    pub fn take_back(&mut self, is_blamed: bool) -> Vec<Entry> {
        let slots: Vec<u16> = core::mem::take(&mut self.commands).into_values().flatten().collect();
        let mut failed = Vec::new();
        for slot in slots {
            let Some(Some(entry)) = self.entries.get_mut(usize::from(slot)) else { continue };
            if is_blamed && entry.attempts == ATTEMPTS_MAX {
                failed.extend(self.take(slot));
                continue;
            }
            entry.attempts += u8::from(is_blamed);
            self.wait(slot);
        }
        self.drop_orphans();
        failed
    }

    fn entry(&self, slot: u16) -> Option<&Entry> {
        self.entries.get(usize::from(slot))?.as_ref()
    }

    /// Puts an entry among those that wait, by its number.
    fn wait(&mut self, slot: u16) {
        let Some(Entry { request, number, attempts, is_alone, .. }) = self.entry(slot).copied() else { return };
        self.records.set(slot, State { attempts, place: Place::Waiting { alone: is_alone } });
        let entries = &self.entries;
        let number_of = |slot: &u16| entries.get(usize::from(*slot)).and_then(Option::as_ref).map(|entry| entry.number);
        let waiting = &mut self.waiting[usize::from(request.client)];
        let at = waiting.partition_point(|other| number_of(other) < Some(number));
        waiting.insert(at, slot);
    }

    fn take(&mut self, slot: u16) -> Option<Entry> {
        let entry = self.entries.get_mut(usize::from(slot))?.take();
        self.records.free(slot);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RING_BYTES;
    use crate::request::Operation;
    use alloc::rc::Rc;
    use core::cell::RefCell;

    #[test]
    fn a_client_has_slots_of_its_own_and_what_is_found_in_anothers_is_dropped() {
        let region = Rc::new(RefCell::new(alloc::vec![0u8; RING_BYTES]));
        let request =
            |client, id| Request { client, id, operation: Operation::Flush, sector: 0, sectors: 0, offset: 0 };
        let mut ledger = Ledger::clear(Records::new(region.clone()).unwrap());
        assert_eq!(ledger.enter(request(1, 7)), Ok(true));
        assert_eq!(ledger.enter(request(CLIENTS_MAX, 7)), Err(Refused::Range));
        let (found, own) = (REQUESTS_EACH_MAX as u16, REQUESTS_EACH_MAX as u16 + 1);
        assert_eq!(ledger.entry(found).map(|entry| entry.request), Some(request(1, 7)));
        let state = State { attempts: 0, place: Place::Waiting { alone: false } };
        ledger.records.enter(own, 1, &request(1, 8), state);
        ledger.records.enter(0, 2, &request(1, 9), state);
        let mut ledger = Ledger::recover(Records::new(region).unwrap(), |_| true);
        assert_eq!(ledger.pending(), 2);
        assert_eq!([7, 8, 9].map(|id| ledger.enter(request(1, id))), [Ok(false), Ok(false), Ok(true)]);
    }

    #[test]
    fn a_command_that_lacks_a_part_is_none_and_its_requests_wait() {
        let read = |id| Request { client: 0, id, operation: Operation::Read, sector: id * 8, sectors: 8, offset: 0 };
        // Slots and parts of what says that it is in the command of slot 2; whether that is one.
        for (found, is_command) in [
            (&[(1, 0), (2, 1), (3, 2)][..], true),
            (&[(2, 0)], true),
            (&[(1, 0), (2, 2)], false),
            (&[(1, 1), (2, 2)], false),
            (&[(1, 0), (2, 0)], false),
            (&[(1, 0), (3, 1)], false),
        ] {
            let region = Rc::new(RefCell::new(alloc::vec![0u8; RING_BYTES]));
            let records = Records::new(region.clone()).unwrap();
            for (number, (slot, part)) in (0..).zip(found) {
                let state = State { attempts: 0, place: Place::In { command: 2, part: *part } };
                records.enter(*slot, number, &read(number), state);
            }
            let ledger = Ledger::recover(records, |_| true);
            let requests = if is_command { (0..found.len() as u64).map(read).collect() } else { Vec::new() };
            assert_eq!((ledger.requests(2), ledger.given()), (requests, is_command.into()), "{found:?}");
            let waits = if is_command { 0 } else { found.len() };
            assert_eq!((ledger.pending(), ledger.waiting[0].len()), (found.len(), waits), "{found:?}");
        }
    }
}
