//! References that wait to be sent, in messages of [`BATCH`] at most.

use crate::BATCH;
use alloc::vec::Vec;

/// A queue before a channel. Bounded by what it refers to: a buffer is in it at most once.
#[derive(Debug)]
pub struct Outbox<T> {
    waiting: Vec<T>,
}

impl<T> Default for Outbox<T> {
    fn default() -> Outbox<T> {
        Outbox { waiting: Vec::new() }
    }
}

impl<T: Clone> Outbox<T> {
    /// Adds.
    pub fn extend(&mut self, items: Vec<T>) {
        if self.waiting.is_empty() {
            self.waiting = items;
        } else {
            self.waiting.extend(items);
        }
    }

    /// Discards all: the receiver was restarted.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Hands all to `send`, message by message, until it says no; true if all are out. What it
    /// refused is kept in order.
    pub fn flush(&mut self, mut send: impl FnMut(Vec<T>) -> bool) -> bool {
        let mut sent = 0;
        for batch in self.waiting.chunks(BATCH) {
            if !send(batch.to_vec()) {
                break;
            }
            sent += batch.len();
        }
        self.waiting.drain(..sent);
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_kept_in_order() {
        let mut outbox = Outbox::default();
        outbox.extend((0..250).collect());
        let mut got = Vec::new();
        let mut room = 1;
        let mut send = |batch: Vec<i32>| {
            room -= 1;
            if room >= 0 {
                got.extend(batch);
            }
            room >= 0
        };
        assert!(!outbox.flush(&mut send));
        room = 9;
        outbox.extend(alloc::vec![250]);
        let mut send = |batch: Vec<i32>| {
            room -= 1;
            got.extend(batch);
            room >= 0
        };
        assert!(outbox.flush(&mut send));
        assert_eq!(got, (0..251).collect::<Vec<_>>());
    }
}
