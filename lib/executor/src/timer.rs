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
    next: u64,
}

impl Timers {
    pub const fn new() -> Timers {
        Timers { waiting: BTreeMap::new(), next: 0 }
    }

    pub fn first_ns(&self) -> Option<u64> {
        self.waiting.first_key_value().map(|(key, _)| key.0)
    }

    fn take_due(&mut self, now_ns: u64) -> Option<Waker> {
        let first = self.waiting.first_entry()?;
        (first.key().0 <= now_ns).then(|| first.remove())
    }
}

/// Wakes all whose time has come; true if there were any.
pub(crate) fn expire(now_ns: u64) -> bool {
    let mut any = false;
    while let Some(waker) = with(|executor| executor.timers.take_due(now_ns)) {
        waker.wake();
        any = true;
    }
    any
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
                    timers.waiting.insert(key, context.waker().clone());
                    (Some(key), None)
                }
                Some(key) => match timers.waiting.get_mut(&key) {
                    Some(waker) if waker.will_wake(context.waker()) => (Some(key), None),
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
            drop(with(|executor| executor.timers.waiting.remove(&key)));
        }
    }
}
