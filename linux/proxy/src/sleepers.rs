//! Who sleeps at which key (the word of a futex, the number of an event counter): queues, first
//! come, first served.
//!
//! Going to sleep and being woken are most of what threads do to each other, so neither searches a
//! tree nor takes memory: entries are kept for the next sleeper, and a key leads to a list of those
//! whose keys share some bits.
//!
//! Invariants: an entry is free or on the list of its key, where those that came before stand
//! before it; a ticket names one sleep, and nothing when that is over. What is done to whom is
//! woken is not known here.

use alloc::vec::Vec;

/// Names one sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    index: u32,
    count: u32,
}

/// Lists; a power of two.
const LISTS: usize = 64;
/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Entry<W> {
    /// Raised when a sleep is over, so that its ticket means nothing.
    count: u32,
    bits: u32,
    key: u64,
    before: u32,
    /// On its list, or among the free ones.
    next: u32,
    /// `None` if it is free.
    who: Option<W>,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

/// All queues of a kind. `W` says who sleeps.
#[derive(Debug)]
pub struct Sleepers<W> {
    entries: Vec<Entry<W>>,
    free: u32,
    lists: [List; LISTS],
}

/// The list of a key. Neighbours, which are 1 or 4 apart, have different ones.
fn list_of(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - LISTS.trailing_zeros())) as usize
}

impl<W> Default for Sleepers<W> {
    fn default() -> Sleepers<W> {
        Sleepers::new()
    }
}

impl<W> Sleepers<W> {
    /// Nobody sleeps.
    pub const fn new() -> Sleepers<W> {
        Sleepers { entries: Vec::new(), free: NONE, lists: [List { first: NONE, last: NONE }; LISTS] }
    }

    /// Begins to sleep at a key, behind the others; woken by wakes that share one of the bits.
    pub fn add(&mut self, key: u64, bits: u32, who: W) -> Ticket {
        let index = self.free;
        let index = match self.entries.get_mut(index as usize) {
            Some(entry) => {
                (entry.bits, entry.who) = (bits, Some(who));
                self.free = entry.next;
                index
            }
            None => {
                self.entries.push(Entry { count: 0, bits, key, before: NONE, next: NONE, who: Some(who) });
                self.entries.len() as u32 - 1
            }
        };
        self.put_last(index, key);
        Ticket { index, count: self.entries[index as usize].count }
    }

    /// Puts an entry at the end of the list of a key, which is its own from then on.
    fn put_last(&mut self, index: u32, key: u64) {
        let list = &mut self.lists[list_of(key)];
        let last = core::mem::replace(&mut list.last, index);
        if last == NONE {
            list.first = index;
        } else {
            self.entries[last as usize].next = index;
        }
        let entry = &mut self.entries[index as usize];
        (entry.key, entry.before, entry.next) = (key, last, NONE);
    }

    /// Takes an entry from its list.
    fn take_out(&mut self, index: u32) {
        let Entry { key, before, next, .. } = self.entries[index as usize];
        let list = &mut self.lists[list_of(key)];
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.next = next,
            None => list.first = next,
        }
        match self.entries.get_mut(next as usize) {
            Some(entry) => entry.before = before,
            None => list.last = before,
        }
    }

    /// Ends a sleep.
    fn end(&mut self, index: u32) -> Option<W> {
        self.take_out(index);
        let entry = &mut self.entries[index as usize];
        entry.count = entry.count.wrapping_add(1);
        entry.next = core::mem::replace(&mut self.free, index);
        entry.who.take()
    }

    /// The first from `at` on, on its list, that sleeps at the key and has one of the bits.
    fn find(&self, mut at: u32, key: u64, bits: u32) -> Option<u32> {
        loop {
            let entry = self.entries.get(at as usize)?;
            if entry.key == key && entry.bits & bits != 0 {
                return Some(at);
            }
            at = entry.next;
        }
    }

    /// Who sleeps with that ticket, if the sleep is not over.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut W> {
        self.entries.get_mut(ticket.index as usize).filter(|entry| entry.count == ticket.count)?.who.as_mut()
    }

    /// Gives a sleep up. `None` if it was over before.
    pub fn remove(&mut self, ticket: Ticket) -> Option<W> {
        self.get_mut(ticket)?;
        self.end(ticket.index)
    }

    /// Does anybody sleep at the key?
    pub fn has_sleepers(&self, key: u64) -> bool {
        self.find(self.lists[list_of(key)].first, key, u32::MAX).is_some()
    }

    /// Ends the sleep of the first, whatever its bits.
    pub fn wake_first(&mut self, key: u64) -> Option<W> {
        let first = self.find(self.lists[list_of(key)].first, key, u32::MAX)?;
        self.end(first)
    }

    /// Ends the sleep of the first `count` that share one of the bits, and gives them to `wake`;
    /// gives how many.
    pub fn wake(&mut self, key: u64, count: usize, bits: u32, mut wake: impl FnMut(W)) -> usize {
        let (mut woken, mut at) = (0, self.lists[list_of(key)].first);
        while woken < count
            && let Some(found) = self.find(at, key, bits)
        {
            at = self.entries[found as usize].next;
            self.end(found).into_iter().for_each(&mut wake);
            woken += 1;
        }
        woken
    }

    /// Lets up to `count` sleep on at another key, behind those there; gives how many.
    pub fn move_to(&mut self, key: u64, to: u64, count: usize) -> usize {
        let (mut moved, mut at) = (0, self.lists[list_of(key)].first);
        while moved < count
            && let Some(found) = self.find(at, key, u32::MAX)
        {
            at = self.entries[found as usize].next;
            if key != to {
                self.take_out(found);
                self.put_last(found, to);
            }
            moved += 1;
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(sleepers: &mut Sleepers<u32>, key: u64, count: usize, bits: u32) -> Vec<u32> {
        let mut all = Vec::new();
        assert_eq!(sleepers.wake(key, count, bits, |who| all.push(who)), all.len());
        all
    }

    /// Nobody sleeps: all entries are free, and all lists empty.
    fn is_empty(sleepers: &Sleepers<u32>) -> bool {
        let mut free = 0;
        let mut at = sleepers.free;
        while let Some(entry) = sleepers.entries.get(at as usize) {
            assert!(entry.who.is_none());
            (free, at) = (free + 1, entry.next);
        }
        free == sleepers.entries.len() && sleepers.lists.iter().all(|list| (list.first, list.last) == (NONE, NONE))
    }

    #[test]
    fn sleepers_are_woken_in_their_order_and_by_their_bits() {
        let mut sleepers = Sleepers::new();
        let all: Vec<Ticket> =
            (0..4).zip([u32::MAX, 1, 2, u32::MAX]).map(|(who, bits)| sleepers.add(64, bits, who)).collect();
        assert_eq!(woken(&mut sleepers, 64, 2, 2), [0, 2]);
        assert_eq!([all[0], all[1]].map(|ticket| sleepers.get_mut(ticket).copied()), [None, Some(1)]);
        assert_eq!([all[1], all[1], all[0]].map(|ticket| sleepers.remove(ticket)), [Some(1), None, None]);
        assert_eq!((woken(&mut sleepers, 64, usize::MAX, 1), woken(&mut sleepers, 64, 1, 1)), (vec![3], vec![]));
        assert!(!sleepers.has_sleepers(64) && is_empty(&sleepers));
    }

    #[test]
    fn moved_sleepers_are_found_at_the_new_key() {
        let mut sleepers = Sleepers::new();
        let all: Vec<Ticket> = (0..4).map(|who| sleepers.add(64, 1, who)).collect();
        sleepers.add(128, 1, 9);
        assert_eq!((sleepers.move_to(64, 128, 2), sleepers.move_to(64, 64, 9)), (2, 2));
        assert_eq!(woken(&mut sleepers, 128, 2, 1), [9, 0]);
        assert!(sleepers.remove(all[1]) == Some(1) && !sleepers.has_sleepers(128));
        assert_eq!(sleepers.move_to(64, 8, usize::MAX), 2);
        assert_eq!((sleepers.wake_first(8), sleepers.wake_first(16)), (Some(2), None));
        assert_eq!(woken(&mut sleepers, 8, 9, 1), [3]);
        assert!(is_empty(&sleepers));
    }

    #[test]
    fn a_ticket_means_nothing_once_its_place_is_another_ones() {
        let mut sleepers = Sleepers::new();
        let old = sleepers.add(4, 1, 1);
        assert_eq!(woken(&mut sleepers, 4, 1, 1), [1]);
        let new = sleepers.add(4, 1, 2);
        assert_eq!(sleepers.get_mut(old), None);
        assert_eq!((sleepers.remove(old), sleepers.remove(new)), (None, Some(2)));
        assert_eq!(sleepers.entries.len(), 1);
    }

    /// Against queues in plain lists, with keys of which several share a list.
    #[test]
    fn queues_follow_a_model() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |limit: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % limit
        };
        let keys: Vec<u64> = (0..).step_by(4).filter(|key| list_of(*key) < 2).take(8).collect();
        let (mut sleepers, mut model) = (Sleepers::new(), Vec::<(u64, u32, u32, Ticket)>::new());
        for step in 0..40_000u32 {
            let (key, other, bits) = (keys[random(8) as usize], keys[random(8) as usize], 1 << random(3));
            let count = random(4) as usize;
            match random(8) {
                0..=3 => model.push((key, bits, step, sleepers.add(key, bits, step))),
                4 if !model.is_empty() => {
                    let (_, _, who, ticket) = model.remove(random(model.len() as u64) as usize);
                    assert_eq!(sleepers.remove(ticket), Some(who));
                    assert_eq!(sleepers.get_mut(ticket), None);
                }
                5 => {
                    let there: Vec<_> = model.iter().filter(|one| one.0 == key).take(count).copied().collect();
                    assert_eq!(sleepers.move_to(key, other, count), there.len());
                    if key != other {
                        model.retain(|one| !there.contains(one));
                        model.extend(there.into_iter().map(|one| (other, one.1, one.2, one.3)));
                    }
                }
                _ => {
                    let there = model.iter().filter(|one| one.0 == key && one.1 & bits != 0);
                    let there: Vec<u32> = there.take(count).map(|one| one.2).collect();
                    model.retain(|one| !there.contains(&one.2));
                    assert_eq!(woken(&mut sleepers, key, count, bits), there);
                }
            }
            assert_eq!(sleepers.has_sleepers(key), model.iter().any(|one| one.0 == key));
        }
        keys.iter().for_each(|key| drop(woken(&mut sleepers, *key, usize::MAX, u32::MAX)));
        assert!(is_empty(&sleepers));
    }
}
