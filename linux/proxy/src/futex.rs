//! Who sleeps at which address (futex(2)): queues of tickets, first come, first served.
//!
//! Invariants: a ticket stands in at most one queue; queues are never empty. What wakes a sleeper
//! is not known here: whoever takes tickets out tells their owners.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Names one sleep of one thread.
pub type Ticket = u64;

/// Set in the word of a futex with an owner: somebody sleeps (FUTEX_WAITERS).
pub const WAITERS: u32 = 0x8000_0000;
/// Set when the owner of a robust futex ended without giving it back (FUTEX_OWNER_DIED).
pub const OWNER_DIED: u32 = 0x4000_0000;
/// The owner's thread id (FUTEX_TID_MASK).
pub const OWNER: u32 = 0x3fff_ffff;

#[derive(Clone, Copy, Debug)]
struct Sleeper {
    ticket: Ticket,
    bits: u32,
}

/// All queues of a process.
#[derive(Debug, Default)]
pub struct Sleepers {
    queues: BTreeMap<u64, VecDeque<Sleeper>>,
    places: BTreeMap<Ticket, u64>,
    last: Ticket,
}

impl Sleepers {
    /// Begins to sleep at an address, behind the others; woken by wakes that share a bit.
    pub fn add(&mut self, address: u64, bits: u32) -> Ticket {
        self.last += 1;
        self.queues.entry(address).or_default().push_back(Sleeper { ticket: self.last, bits });
        self.places.insert(self.last, address);
        self.last
    }

    /// Gives a sleep up: the time is over or a signal came. `false` if it was woken before.
    pub fn remove(&mut self, ticket: Ticket) -> bool {
        let Some(address) = self.places.remove(&ticket) else { return false };
        if let Some(queue) = self.queues.get_mut(&address) {
            queue.retain(|sleeper| sleeper.ticket != ticket);
            if queue.is_empty() {
                self.queues.remove(&address);
            }
        }
        true
    }

    /// Does it sleep still?
    pub fn sleeps(&self, ticket: Ticket) -> bool {
        self.places.contains_key(&ticket)
    }

    /// Does anybody sleep at the address?
    pub fn has_sleepers(&self, address: u64) -> bool {
        self.queues.contains_key(&address)
    }

    /// Takes out the first `count` that share one of the bits.
    pub fn wake(&mut self, address: u64, count: usize, bits: u32) -> Vec<Ticket> {
        let Some(queue) = self.queues.get_mut(&address) else { return Vec::new() };
        let mut woken = Vec::new();
        queue.retain(|sleeper| {
            let wakes = woken.len() < count && sleeper.bits & bits != 0;
            if wakes {
                woken.push(sleeper.ticket);
            }
            !wakes
        });
        if queue.is_empty() {
            self.queues.remove(&address);
        }
        for ticket in &woken {
            self.places.remove(ticket);
        }
        woken
    }

    /// Lets up to `count` sleep on at another address, behind those there; gives how many.
    pub fn move_to(&mut self, address: u64, to: u64, count: usize) -> usize {
        if address == to {
            return self.queues.get(&address).map_or(0, |queue| queue.len().min(count));
        }
        let Some(queue) = self.queues.get_mut(&address) else { return 0 };
        let moved: Vec<Sleeper> = queue.drain(..queue.len().min(count)).collect();
        if queue.is_empty() {
            self.queues.remove(&address);
        }
        for sleeper in &moved {
            self.places.insert(sleeper.ticket, to);
        }
        if !moved.is_empty() {
            self.queues.entry(to).or_default().extend(&moved);
        }
        moved.len()
    }
}

/// What FUTEX_WAKE_OP does to the second word: the new value, and whether the old one asks for a
/// wake there too. `None` for an operation or comparison that there is not.
pub fn change_and_compare(encoded: u32, old: u32) -> Option<(u32, bool)> {
    let (operation, comparison) = (encoded >> 28, encoded >> 24 & 15);
    let signed_12 = |bits: u32| ((bits << 20) as i32 >> 20) as u32;
    let (mut argument, against) = (signed_12(encoded >> 12), signed_12(encoded));
    if operation & 8 != 0 {
        argument = 1 << (argument & 31);
    }
    let new = match operation & 7 {
        0 => argument,
        1 => old.wrapping_add(argument),
        2 => old | argument,
        3 => old & !argument,
        4 => old ^ argument,
        _ => return None,
    };
    let (old, against) = (old as i32, against as i32);
    let holds = match comparison {
        0 => old == against,
        1 => old != against,
        2 => old < against,
        3 => old <= against,
        4 => old > against,
        5 => old >= against,
        _ => return None,
    };
    Some((new, holds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_are_woken_in_their_order_and_by_their_bits() {
        let mut sleepers = Sleepers::default();
        let all: Vec<Ticket> = [u32::MAX, 1, 2, u32::MAX].iter().map(|bits| sleepers.add(64, *bits)).collect();
        assert_eq!(sleepers.wake(64, 2, 2), [all[0], all[2]]);
        assert!(!sleepers.sleeps(all[0]) && sleepers.sleeps(all[1]));
        assert!(sleepers.remove(all[1]) && !sleepers.remove(all[1]) && !sleepers.remove(all[0]));
        assert_eq!((sleepers.wake(64, usize::MAX, 1), sleepers.wake(64, 1, 1)), (vec![all[3]], vec![]));
        assert!(!sleepers.has_sleepers(64) && sleepers.places.is_empty());
    }

    #[test]
    fn moved_sleepers_are_found_at_the_new_address() {
        let mut sleepers = Sleepers::default();
        let all: Vec<Ticket> = (0..4).map(|_| sleepers.add(64, 1)).collect();
        let other = sleepers.add(128, 1);
        assert_eq!((sleepers.move_to(64, 128, 2), sleepers.move_to(64, 64, 9)), (2, 2));
        assert_eq!(sleepers.wake(128, 2, 1), [other, all[0]]);
        assert!(sleepers.remove(all[1]) && !sleepers.has_sleepers(128));
        assert_eq!(sleepers.move_to(64, 8, usize::MAX), 2);
        assert_eq!(sleepers.wake(8, 9, 1), [all[2], all[3]]);
        assert!(sleepers.places.is_empty() && sleepers.queues.is_empty());
    }

    #[test]
    fn the_second_word_is_changed_and_compared() {
        let encode = |operation: u32, comparison: u32, argument: u32, against: u32| {
            operation << 28 | comparison << 24 | (argument & 0xfff) << 12 | against & 0xfff
        };
        assert_eq!(change_and_compare(encode(0, 0, 5, 3), 3), Some((5, true)));
        assert_eq!(change_and_compare(encode(1, 4, u32::MAX, 1), 2), Some((1, true)));
        assert_eq!(change_and_compare(encode(10, 5, 4, 0), u32::MAX), Some((u32::MAX, false)));
        assert_eq!(change_and_compare(encode(3, 1, 1, 7), 7), Some((6, false)));
        assert_eq!(change_and_compare(encode(5, 0, 0, 0), 0), None);
        assert_eq!(change_and_compare(encode(0, 6, 0, 0), 0), None);
    }
}
