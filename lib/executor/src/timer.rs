//! Timers: an ordered map, so that a timer given up early leaves nothing behind.

use alloc::collections::BTreeMap;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use crate::with;

/// Deadline, and a number that makes it unique.
type Key = (u64, u64);

pub(crate) struct Timers {
    waiting: BTreeMap<Key, Waker>,
    /// The deadline of the first of them, `u64::MAX` if there is none: asked for in each turn.
    first_ns: u64,
    next: u64,
}

impl Timers {
    pub const fn new() -> Timers {
        Timers { waiting: BTreeMap::new(), first_ns: u64::MAX, next: 0 }
    }

    /// `u64::MAX`: no timer.
    pub fn first_ns(&self) -> u64 {
        self.first_ns
    }

    fn add(&mut self, key: Key, waker: Waker) {
        self.first_ns = self.first_ns.min(key.0);
        self.waiting.insert(key, waker);
    }

    fn remove(&mut self, key: &Key) -> Option<Waker> {
        let removed = self.waiting.remove(key);
        self.look_for_first();
        removed
    }

    fn look_for_first(&mut self) {
        self.first_ns = self.waiting.first_key_value().map_or(u64::MAX, |(key, _)| key.0);
    }

    /// Has the first one's time come?
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.first_ns <= now_ns
    }

    fn take_due(&mut self, now_ns: u64) -> Option<Waker> {
        if !self.is_due(now_ns) {
            return None;
        }
        let (_, waker) = self.waiting.pop_first()?;
        self.look_for_first();
        Some(waker)
    }
}

/// Wakes all whose time has come; true if there were any.
#[inline]
pub(crate) fn expire(now_ns: u64) -> bool {
    let is_due = with(|executor| executor.timers.is_due(now_ns));
    if is_due {
        expire_each(now_ns);
    }
    is_due
}

fn expire_each(now_ns: u64) {
    while let Some(waker) = with(|executor| executor.timers.take_due(now_ns)) {
        waker.wake();
    }
}

/// Completes at `deadline_ns` since boot.
pub fn sleep_until(deadline_ns: u64) -> SleepUntil {
    SleepUntil { deadline_ns, key: None, done: false }
}

/// Future of [`sleep_until`].
pub struct SleepUntil {
    deadline_ns: u64,
    key: Option<Key>,
    done: bool,
}

impl Future for SleepUntil {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (deadline_ns, known, done) = (self.deadline_ns, self.key, self.done);
        if done {
            return Poll::Ready(());
        }
        let (key, old) = with(|executor| {
            let timers = &mut executor.timers;
            match known {
                None => {
                    let key = (deadline_ns, timers.next);
                    timers.next += 1;
                    timers.add(key, context.waker().clone());
                    (Some(key), None)
                }
                Some(key) => match timers.waiting.get_mut(&key) {
                    Some(waker) => (Some(key), Some(core::mem::replace(waker, context.waker().clone()))),
                    // Expired: only then an entry vanishes while its future lives.
                    None => (None, None),
                },
            }
        });
        drop(old);
        self.key = key;
        match key {
            Some(_) => Poll::Pending,
            None => {
                self.done = true;
                Poll::Ready(())
            }
        }
    }
}

impl Drop for SleepUntil {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            drop(with(|executor| executor.timers.remove(&key)));
        }
    }
}

#[cfg(all(test, not(target_os = "none")))]
mod tests {
    use super::*;

    #[test]
    fn the_first_deadline_is_known_whatever_comes_and_goes() {
        let (mut timers, waker) = (Timers::new(), Waker::noop());
        assert_eq!((timers.first_ns(), timers.take_due(u64::MAX - 1).is_some()), (u64::MAX, false));
        let firsts = [5, 3, 9, 2].into_iter().zip(0..).map(|(ns, number)| {
            timers.add((ns, number), waker.clone());
            timers.first_ns()
        });
        assert!(firsts.eq([5, 3, 3, 2]));
        assert!(timers.remove(&(2, 3)).is_some() && timers.remove(&(2, 3)).is_none());
        assert_eq!((timers.first_ns(), timers.take_due(2).is_some(), timers.take_due(3).is_some()), (3, false, true));
        assert_eq!((timers.first_ns(), timers.take_due(4).is_some()), (5, false));
        assert!(timers.take_due(9).is_some() && timers.take_due(9).is_some() && timers.take_due(9).is_none());
        assert_eq!(timers.first_ns(), u64::MAX);
    }
}
