//! Who sleeps on words of memory that processes have in common (futex).
//!
//! Invariants: whoever is woken sleeps no more; of a word, those are woken first who slept first.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

/// A word: the memory's number, and where in it.
pub type Word = (u64, u64);
/// One sleep.
pub type Ticket = u64;

/// All of them.
#[derive(Debug, Default)]
pub struct Sleepers {
    by_word: BTreeMap<Word, VecDeque<(Ticket, u32)>>,
    woken: BTreeSet<Ticket>,
    last: Ticket,
}

impl Sleepers {
    /// Goes to sleep on a word, to be woken by who has one of `bits`.
    pub fn add(&mut self, word: Word, bits: u32) -> Ticket {
        self.last += 1;
        self.by_word.entry(word).or_default().push_back((self.last, bits));
        self.last
    }

    /// Wakes up to `count` of those; gives how many.
    pub fn wake(&mut self, word: Word, count: u32, bits: u32) -> u32 {
        let Some(sleepers) = self.by_word.get_mut(&word) else { return 0 };
        let mut left = count;
        sleepers.retain(|(ticket, theirs)| {
            let wakes = left > 0 && theirs & bits != 0;
            if wakes {
                left -= 1;
                self.woken.insert(*ticket);
            }
            !wakes
        });
        if sleepers.is_empty() {
            self.by_word.remove(&word);
        }
        count - left
    }

    /// Was it woken? Asked once more, it was not.
    pub fn take_woken(&mut self, ticket: Ticket) -> bool {
        self.woken.remove(&ticket)
    }

    /// Forgets a sleep, woken or not.
    pub fn remove(&mut self, word: Word, ticket: Ticket) {
        self.woken.remove(&ticket);
        if let Some(sleepers) = self.by_word.get_mut(&word) {
            sleepers.retain(|(other, _)| *other != ticket);
            if sleepers.is_empty() {
                self.by_word.remove(&word);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_are_woken_first_who_slept_first_and_have_a_bit() {
        let (mut sleepers, word) = (Sleepers::default(), (7, 64));
        let all = [1, 2, 3, 1].map(|bits| sleepers.add(word, bits));
        assert_eq!(sleepers.wake((7, 68), 9, u32::MAX), 0);
        assert_eq!(sleepers.wake(word, 2, 2), 2);
        assert_eq!(all.map(|ticket| sleepers.take_woken(ticket)), [false, true, true, false]);
        assert!(!sleepers.take_woken(all[1]));
        sleepers.remove(word, all[0]);
        assert_eq!((sleepers.wake(word, 9, u32::MAX), sleepers.take_woken(all[3])), (1, true));
        assert!(sleepers.by_word.is_empty() && sleepers.woken.is_empty());
    }

    #[test]
    fn a_sleep_that_was_given_up_leaves_nothing() {
        let mut sleepers = Sleepers::default();
        let (one, other) = (sleepers.add((1, 0), 1), sleepers.add((1, 4), 1));
        sleepers.wake((1, 0), 1, 1);
        sleepers.remove((1, 0), one);
        sleepers.remove((1, 4), other);
        assert!(sleepers.by_word.is_empty() && sleepers.woken.is_empty());
    }
}
