//! What waits to be told to a process that does not read yet: signals and expired timers.
//!
//! Invariants: of a number below [`QUEUED_FIRST`] one signal waits at most, as on Linux; of higher
//! ones, and of all together, no more than [`NOTICES_MAX`] and one of each number.

use alloc::collections::VecDeque;

use contracts::process::SignalCause;

/// The first signal of which each one sent is told (SIGRTMIN of the kernel).
pub const QUEUED_FIRST: u8 = 32;
/// Most that wait for one process, some 40 bytes each.
pub const NOTICES_MAX: usize = 128;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A signal.
    Signal(u8, SignalCause),
    /// A timer and how often it expired.
    Expired(u32, u64),
}

/// In the order they came.
#[derive(Debug, Default)]
pub struct Notices(VecDeque<Notice>);

impl Notices {
    /// Is there room for one more that must not be lost?
    pub fn has_room(&self) -> bool {
        self.0.len() < NOTICES_MAX
    }

    /// Adds one, or joins it with what waits already.
    pub fn put(&mut self, notice: Notice) {
        let has_room = self.has_room();
        let known = self.0.iter_mut().find(|waiting| match (waiting, notice) {
            (Notice::Signal(known, _), Notice::Signal(number, _)) => {
                *known == number && (number < QUEUED_FIRST || !has_room)
            }
            (Notice::Expired(known, _), Notice::Expired(timer, _)) => *known == timer,
            _ => false,
        });
        match (known, notice) {
            (Some(Notice::Expired(_, times)), Notice::Expired(_, more)) => *times = times.saturating_add(more),
            (Some(_), _) => {}
            (None, notice) => self.0.push_back(notice),
        }
    }

    /// The oldest.
    pub fn take(&mut self) -> Option<Notice> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_signals_join_and_others_queue_up_to_a_limit() {
        let mut notices = Notices::default();
        let from = |process| SignalCause::Process(process);
        notices.put(Notice::Signal(10, from(1)));
        notices.put(Notice::Signal(10, from(2)));
        notices.put(Notice::Expired(0, 1));
        notices.put(Notice::Signal(40, from(3)));
        notices.put(Notice::Signal(40, from(4)));
        notices.put(Notice::Expired(0, 2));
        let all = [
            Notice::Signal(10, from(1)),
            Notice::Expired(0, 3),
            Notice::Signal(40, from(3)),
            Notice::Signal(40, from(4)),
        ];
        all.into_iter().for_each(|notice| assert_eq!(notices.take(), Some(notice)));
        assert_eq!(notices.take(), None);
        for number in [QUEUED_FIRST - 1, QUEUED_FIRST] {
            [3, 4].into_iter().for_each(|process| notices.put(Notice::Signal(number, from(process))));
        }
        assert_eq!(core::iter::from_fn(|| notices.take()).count(), 3);
        (0..1000).for_each(|process| notices.put(Notice::Signal(41, from(process))));
        notices.put(Notice::Signal(42, from(1)));
        assert!(!notices.has_room());
        assert_eq!(core::iter::from_fn(|| notices.take()).count(), NOTICES_MAX + 1);
    }
}
