//! Who waits for a description to change.
//!
//! Invariants: of one description, who has waited longest is woken first; who was woken waits no
//! more. Waiting and being woken search no tree: there are lines, and descriptions, whose ids are
//! given out one after the other, have each the line of its id's last bits.

use alloc::collections::VecDeque;
use core::task::Waker;

use contracts::descriptions::DescriptionId;

/// A power of two.
const LINES: usize = 64;

#[derive(Debug)]
struct Waiter {
    of: DescriptionId,
    number: u64,
    waker: Waker,
}

/// All of them.
#[derive(Debug)]
pub struct Waiters {
    lines: [VecDeque<Waiter>; LINES],
    last: u64,
}

impl Default for Waiters {
    fn default() -> Waiters {
        Waiters { lines: [const { VecDeque::new() }; LINES], last: 0 }
    }
}

impl Waiters {
    fn line(&mut self, of: DescriptionId) -> &mut VecDeque<Waiter> {
        &mut self.lines[of as usize % LINES]
    }

    /// One more waits; gives the number of this wait.
    pub fn add(&mut self, of: DescriptionId, waker: &Waker) -> u64 {
        self.last += 1;
        let number = self.last;
        self.line(of).push_back(Waiter { of, number, waker: waker.clone() });
        number
    }

    /// Wakes all who wait for that one.
    pub fn wake(&mut self, of: DescriptionId) {
        let line = self.line(of);
        if line.is_empty() {
            return;
        }
        line.retain(|waiter| {
            let is_woken = waiter.of == of;
            if is_woken {
                waiter.waker.wake_by_ref();
            }
            !is_woken
        });
    }

    /// A wait is given up. Fine if it is over.
    pub fn remove(&mut self, of: DescriptionId, number: u64) {
        let line = self.line(of);
        if let Some(place) = line.iter().position(|waiter| waiter.number == number) {
            line.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::task::Wake;

    struct Named(u32, Sender<u32>);

    impl Wake for Named {
        fn wake(self: Arc<Self>) {
            self.1.send(self.0).unwrap();
        }
    }

    #[test]
    fn who_waits_for_it_is_woken_once_and_in_order() {
        let (mut waiters, (tells, woken)) = (Waiters::default(), channel());
        let waker = |name| Waker::from(Arc::new(Named(name, tells.clone())));
        // The second description shares the first one's line.
        let same_line = 5 + LINES as u64;
        let numbers: Vec<_> =
            [(5, 1), (same_line, 2), (5, 3), (5, 4)].map(|(of, name)| waiters.add(of, &waker(name))).into();
        waiters.remove(5, numbers[2]);
        waiters.wake(6);
        waiters.wake(5);
        waiters.wake(5);
        assert_eq!(woken.try_iter().collect::<Vec<_>>(), [1, 4]);
        waiters.remove(5, numbers[0]);
        waiters.add(same_line, &waker(5));
        waiters.wake(same_line);
        assert_eq!(woken.try_iter().collect::<Vec<_>>(), [2, 5]);
        assert!(waiters.lines.iter().all(VecDeque::is_empty));
        // Ids ascend as long as the machine runs.
        for of in [1 << 20, u64::MAX] {
            waiters.add(of, &waker(6));
            waiters.wake(of);
            assert_eq!(woken.try_iter().collect::<Vec<_>>(), [6]);
        }
    }
}
