//! The queues of futexes: who sleeps on words of memory that processes share.
//!
//! Invariants: a sleeper that is woken is in no queue; a word's sleepers are woken in the order in
//! which they went to sleep.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

/// A word: the memory's number, and the byte in it.
pub type Word = (u64, u64);
/// One sleep.
pub type Ticket = u64;

/// All queues.
#[derive(Debug, Default)]
pub struct FutexQueues {
    by_word: BTreeMap<Word, VecDeque<(Ticket, u32)>>,
    woken: BTreeSet<Ticket>,
    last: Ticket,
}

impl FutexQueues {
    /// Queues a sleeper on a word, to be woken by a wake that has one of `bits`.
    pub fn add(&mut self, word: Word, bits: u32) -> Ticket {
        self.last += 1;
        self.by_word.entry(word).or_default().push_back((self.last, bits));
        self.last
    }

    /// Wakes up to `count` of those; gives how many.
    pub fn wake(&mut self, word: Word, count: u32, bits: u32) -> u32 {
        let Some(queue) = self.by_word.get_mut(&word) else { return 0 };
        let mut left = count;
        queue.retain(|(ticket, theirs)| {
            let wakes = left > 0 && theirs & bits != 0;
            if wakes {
                left -= 1;
                self.woken.insert(*ticket);
            }
            !wakes
        });
        if queue.is_empty() {
            self.by_word.remove(&word);
        }
        count - left
    }

    /// Whether the sleeper was woken; told once.
    pub fn take_woken(&mut self, ticket: Ticket) -> bool {
        self.woken.remove(&ticket)
    }

    /// Removes a sleeper, woken or not.
    pub fn remove(&mut self, word: Word, ticket: Ticket) {
        self.woken.remove(&ticket);
        if let Some(queue) = self.by_word.get_mut(&word) {
            queue.retain(|(other, _)| *other != ticket);
            if queue.is_empty() {
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
        let (mut queues, word) = (FutexQueues::default(), (7, 64));
        let all = [1, 2, 3, 1].map(|bits| queues.add(word, bits));
        assert_eq!(queues.wake((7, 68), 9, u32::MAX), 0);
        assert_eq!(queues.wake(word, 2, 2), 2);
        assert_eq!(all.map(|ticket| queues.take_woken(ticket)), [false, true, true, false]);
        assert!(!queues.take_woken(all[1]));
        queues.remove(word, all[0]);
        assert_eq!((queues.wake(word, 9, u32::MAX), queues.take_woken(all[3])), (1, true));
        assert!(queues.by_word.is_empty() && queues.woken.is_empty());
        let more = [1; 3].map(|bits| queues.add(word, bits));
        assert_eq!((queues.wake(word, 0, 1), queues.wake(word, 2, 1)), (0, 2), "no more than asked for");
        assert_eq!(more.map(|ticket| queues.take_woken(ticket)), [true, true, false]);
    }

    #[test]
    fn a_sleep_that_was_given_up_leaves_nothing() {
        let mut queues = FutexQueues::default();
        let (one, other) = (queues.add((1, 0), 1), queues.add((1, 4), 1));
        queues.wake((1, 0), 1, 1);
        queues.remove((1, 0), one);
        queues.remove((1, 4), other);
        assert!(queues.by_word.is_empty() && queues.woken.is_empty());
    }
}
