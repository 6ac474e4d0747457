//! Timers: when each expires next, and how often it did.
//!
//! Invariants: times are nanoseconds since boot, given by the caller; a timer that expired and is
//! not periodic is disarmed. Nobody is woken more often than every [`WAKE_NS`] by one timer: what
//! expires meanwhile is counted.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use contracts::process::{TimerStart, TimerState};

/// The shortest time between two wake-ups by one periodic timer.
pub const WAKE_NS: u64 = 500_000;

/// The clock as one request finds it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Since boot.
    pub ns: u64,
    /// Since 1970, if the timer counts from there; else as `ns`.
    pub of_timer_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Timer {
    /// When it expires next; `None` = disarmed.
    due_ns: Option<u64>,
    interval_ns: u64,
    /// When to look at it.
    wake_ns: u64,
    /// Expirations that nobody took.
    expired: u64,
}

impl Timer {
    fn advance(&mut self, now_ns: u64) {
        let Some(due_ns) = self.due_ns.filter(|due_ns| *due_ns <= now_ns) else { return };
        let more = (now_ns - due_ns).checked_div(self.interval_ns).unwrap_or(0);
        self.expired = self.expired.saturating_add(1 + more);
        let next_ns = due_ns.saturating_add(self.interval_ns.saturating_mul(1 + more));
        self.due_ns = (self.interval_ns != 0).then_some(next_ns);
        self.wake_ns = next_ns.max(now_ns.saturating_add(WAKE_NS));
    }

    fn state(&self, now_ns: u64) -> TimerState {
        // One that is due and was not looked at yet still has a moment to go.
        let left_ns = self.due_ns.map_or(0, |due_ns| due_ns.saturating_sub(now_ns).max(1));
        TimerState { left_ns, interval_ns: self.interval_ns }
    }
}

/// Timers by key.
#[derive(Debug)]
pub struct Timers<K> {
    all: BTreeMap<K, Timer>,
    wakes: BTreeSet<(u64, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Timers { all: BTreeMap::new(), wakes: BTreeSet::new() }
    }
}

impl<K: Copy + Ord> Timers<K> {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    fn work<T>(&mut self, key: K, work: impl FnOnce(&mut Timer) -> T) -> T {
        let timer = self.all.entry(key).or_default();
        if timer.due_ns.is_some() {
            self.wakes.remove(&(timer.wake_ns, key));
        }
        let result = work(timer);
        if timer.due_ns.is_some() {
            self.wakes.insert((timer.wake_ns, key));
        }
        result
    }

    /// Arms or disarms one, which is made if it is not there; gives how it stood.
    pub fn set(&mut self, key: K, now: Now, start: TimerStart, interval_ns: u64) -> TimerState {
        self.work(key, |timer| {
            timer.advance(now.ns);
            let before = timer.state(now.ns);
            let due_ns = match start {
                TimerStart::Never => None,
                TimerStart::In(ns) => Some(now.ns.saturating_add(ns)),
                TimerStart::At(ns) if ns >= now.of_timer_ns => Some(now.ns.saturating_add(ns - now.of_timer_ns)),
                TimerStart::At(ns) => Some(now.ns.saturating_sub(now.of_timer_ns - ns)),
            };
            let wake_ns = due_ns.unwrap_or(0);
            *timer = Timer { due_ns, interval_ns, wake_ns, expired: 0 };
            before
        })
    }

    /// How one stands; one that is not there is disarmed.
    pub fn state(&self, key: K, now_ns: u64) -> TimerState {
        let mut timer = self.all.get(&key).copied().unwrap_or_default();
        timer.advance(now_ns);
        timer.state(now_ns)
    }

    /// Has it expired since that was taken last?
    pub fn has_expired(&self, key: K) -> bool {
        self.all.get(&key).is_some_and(|timer| timer.expired > 0)
    }

    /// How often it expired until now since this was asked last.
    pub fn take(&mut self, key: K, now_ns: u64) -> u64 {
        self.work(key, |timer| {
            timer.advance(now_ns);
            core::mem::take(&mut timer.expired)
        })
    }

    /// Removes one.
    pub fn remove(&mut self, key: K) {
        self.remove_all(key..=key);
    }

    /// Removes those with keys of a range.
    pub fn remove_all(&mut self, keys: RangeInclusive<K>) {
        let gone: Vec<_> = self.all.range(keys).map(|(key, timer)| (timer.wake_ns, *key)).collect();
        for (wake_ns, key) in gone {
            self.all.remove(&key);
            self.wakes.remove(&(wake_ns, key));
        }
    }

    /// When to ask for [`expire`](Self::expire) next.
    pub fn next_ns(&self) -> Option<u64> {
        self.wakes.first().map(|(wake_ns, _)| *wake_ns)
    }

    /// Those that expired now, beside what they did before.
    pub fn expire(&mut self, now_ns: u64) -> Vec<K> {
        let due: Vec<_> =
            self.wakes.iter().take_while(|(wake_ns, _)| *wake_ns <= now_ns).map(|(_, key)| *key).collect();
        // Nobody looks at one before it is due.
        due.iter().for_each(|key| self.work(*key, |timer| timer.advance(now_ns)));
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ns: u64) -> Now {
        Now { ns, of_timer_ns: ns + 1000 * MS }
    }

    #[test]
    fn expirations_are_counted_whenever_somebody_looks() {
        let mut timers = Timers::default();
        assert_eq!(timers.set(1, at(0), TimerStart::In(10 * MS), 2 * MS), TimerState::default());
        assert_eq!((timers.next_ns(), timers.expire(10 * MS - 1)), (Some(10 * MS), vec![]));
        assert_eq!(timers.expire(10 * MS), [1]);
        assert!(timers.has_expired(1));
        assert_eq!(timers.next_ns(), Some(12 * MS));
        assert_eq!(timers.state(1, 11 * MS), TimerState { left_ns: MS, interval_ns: 2 * MS });
        assert_eq!((timers.take(1, 15 * MS), timers.take(1, 15 * MS)), (3, 0));
        assert_eq!(timers.next_ns(), Some(16 * MS));
        timers.set(1, at(15 * MS), TimerStart::Never, 0);
        assert_eq!((timers.next_ns(), timers.state(1, 99 * MS)), (None, TimerState::default()));
    }

    #[test]
    fn a_short_interval_wakes_seldom_and_loses_nothing() {
        let mut timers = Timers::default();
        timers.set(1, at(0), TimerStart::In(1000), 1000);
        assert_eq!((timers.expire(1000), timers.next_ns()), (vec![1], Some(1000 + WAKE_NS)));
        assert_eq!(timers.expire(1000 + WAKE_NS), [1]);
        assert_eq!(timers.take(1, 1000 + WAKE_NS), 1 + WAKE_NS / 1000);
        timers.set(1, at(0), TimerStart::In(u64::MAX), u64::MAX);
        assert_eq!(timers.take(1, u64::MAX), 1);
        timers.remove(1);
        assert_eq!((timers.count(), timers.next_ns()), (0, None));
    }

    #[test]
    fn a_time_of_day_that_is_to_come_is_waited_for() {
        let mut timers = Timers::default();
        timers.set(1, at(50 * MS), TimerStart::At(1080 * MS), 0);
        assert_eq!(timers.count(), 1);
        assert_eq!((timers.expire(80 * MS - 1), timers.expire(80 * MS)), (vec![], vec![1]));
    }

    #[test]
    fn a_time_of_day_that_was_expires_at_once_with_all_since() {
        let mut timers = Timers::default();
        timers.set(2, at(50 * MS), TimerStart::At(1050 * MS), 0);
        timers.set(1, at(50 * MS), TimerStart::At(1030 * MS), 10 * MS);
        assert_eq!(timers.expire(50 * MS), [1, 2]);
        assert_eq!((timers.take(1, 50 * MS), timers.take(2, 50 * MS)), (3, 1));
        timers.set(2, at(0), TimerStart::In(7), 0);
        timers.remove_all(1..=2);
        assert_eq!(timers.next_ns(), None);
    }
}
