//! A user semaphore: a count that its users share, and a kernel semaphore for those who must sleep
//! (NOVA section 3).
//!
//! `down` takes one from the count and `up` adds to it, each by one atomic operation. Below zero
//! the count says how many came down and found nothing; they go to the kernel semaphore, and an
//! `up` that saw them releases as many there. The kernel semaphore counts too, so it does not
//! matter whether the release or the sleeper comes first:
//!
//!   down                       up                         count   kernel semaphore
//!   add(-1) = 0, must sleep                                  -1   0
//!                              add(1) = -1, must release      0   0
//!                              kernel up                      0   1
//!   kernel down                                               0   0
//!
//! A sleeper whose deadline passes takes itself off the count, unless the count is not negative any
//! more: then an `up` has counted it as woken, and it takes what that one releases. Invariant,
//! whenever nobody is inside an operation: the kernel semaphore's count is 0 and its sleepers are
//! as many as the count is below zero. First come, first served among those who sleep.
//!
//! The kernel knows nothing of the count. Any thread that shares it can write anything there: then
//! users of this semaphore wait to their deadlines or do not wait, and nobody else notices.
//! Deliberately unknown here: how the kernel is called, what the semaphore protects.
#![no_std]
#![forbid(unsafe_code)]

use abi::Error;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// How long after its deadline a sleeper still waits for an `up` that has counted it and not
/// released it yet.
pub const RELEASE_LIMIT_NS: u64 = 1_000_000_000;
/// The first look after it; each further one comes after twice the time.
const RELEASE_STEP_NS: u64 = 100_000;

/// The shared count: these operations of an atomic number.
pub trait Count {
    /// Adds, wrapping, and gives what was there before.
    fn add(&self, change: i64, order: Ordering) -> i64;
    /// What is there now, unordered.
    fn get(&self) -> i64;
    /// Replaces `old` by `new` if it is still there; tells whether it was.
    fn replace(&self, old: i64, new: i64, order: Ordering) -> bool;
}

impl Count for AtomicI64 {
    #[inline]
    fn add(&self, change: i64, order: Ordering) -> i64 {
        self.fetch_add(change, order)
    }
    #[inline]
    fn get(&self) -> i64 {
        self.load(Ordering::Relaxed)
    }
    #[inline]
    fn replace(&self, old: i64, new: i64, order: Ordering) -> bool {
        self.compare_exchange(old, new, order, Ordering::Relaxed).is_ok()
    }
}

/// In a word of memory that cores share: the count's two's complement.
impl Count for AtomicU64 {
    #[inline]
    fn add(&self, change: i64, order: Ordering) -> i64 {
        self.fetch_add(change as u64, order) as i64
    }
    #[inline]
    fn get(&self) -> i64 {
        self.load(Ordering::Relaxed) as i64
    }
    #[inline]
    fn replace(&self, old: i64, new: i64, order: Ordering) -> bool {
        self.compare_exchange(old as u64, new as u64, order, Ordering::Relaxed).is_ok()
    }
}

impl<C: Count> Count for &C {
    #[inline]
    fn add(&self, change: i64, order: Ordering) -> i64 {
        (*self).add(change, order)
    }
    #[inline]
    fn get(&self) -> i64 {
        (*self).get()
    }
    #[inline]
    fn replace(&self, old: i64, new: i64, order: Ordering) -> bool {
        (*self).replace(old, new, order)
    }
}

/// The kernel's counting semaphore.
pub trait KernelSemaphore {
    /// Adds to its count, or wakes as many as that.
    fn up(&self, count: u64) -> Result<(), Error>;
    /// Takes one, sleeping until there is one; `Timeout` once `deadline_ns` (since boot;
    /// `u64::MAX`: none) has passed.
    fn down(&self, deadline_ns: u64) -> Result<(), Error>;
}

/// A user semaphore over a count and a kernel semaphore. All users of one must name the same two.
#[derive(Debug)]
pub struct Semaphore<C, K> {
    count: C,
    kernel: K,
}

impl<C: Count, K: KernelSemaphore> Semaphore<C, K> {
    /// Over a count that is 0 or more and a kernel semaphore of count 0, or over those of a
    /// semaphore that exists.
    pub const fn new(count: C, kernel: K) -> Semaphore<C, K> {
        Semaphore { count, kernel }
    }

    /// The kernel semaphore.
    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Takes one if there is one, without sleeping.
    #[inline]
    pub fn try_down(&self) -> bool {
        let mut count = self.count.get();
        while count > 0 {
            if self.count.replace(count, count - 1, Ordering::Acquire) {
                return true;
            }
            count = self.count.get();
        }
        false
    }

    /// Takes one; sleeps until there is one, at most until `deadline_ns` since boot (`u64::MAX`: no
    /// limit; 0: not at all).
    ///
    /// `Timeout`: the deadline passed; nothing was taken. `PeerDead`: an `up` let us through but
    /// did not release us within [`RELEASE_LIMIT_NS`], as its thread died in between, or the kernel
    /// semaphore was taken back: make another semaphore. What the kernel refuses besides is passed
    /// on.
    #[inline]
    pub fn down(&self, deadline_ns: u64) -> Result<(), Error> {
        if deadline_ns == 0 {
            return if self.try_down() { Ok(()) } else { Err(Error::Timeout) };
        }
        if self.count.add(-1, Ordering::Acquire) > 0 {
            return Ok(());
        }
        self.sleep(deadline_ns)
    }

    #[cold]
    fn sleep(&self, deadline_ns: u64) -> Result<(), Error> {
        let Err(error) = self.kernel.down(deadline_ns) else { return Ok(()) };
        let mut grace_ns = RELEASE_STEP_NS;
        loop {
            let count = self.count.get();
            if count < 0 {
                if self.count.replace(count, count + 1, Ordering::Relaxed) {
                    return Err(error);
                }
                continue;
            }
            if grace_ns > RELEASE_LIMIT_NS {
                return Err(Error::PeerDead);
            }
            // In steps: another that came down since may take the release that was for us; then the
            // count is below zero again, for us.
            match self.kernel.down(deadline_ns.saturating_add(grace_ns)) {
                Err(Error::Timeout) => grace_ns *= 2,
                taken_or_refused => return taken_or_refused,
            }
        }
    }

    /// Adds `count` and wakes as many sleepers as that. Fails only where the kernel does:
    /// `BadArgument` if its count would pass 2^31, which takes a damaged count.
    #[inline]
    pub fn up(&self, count: u32) -> Result<(), Error> {
        let before = self.count.add(i64::from(count), Ordering::Release);
        if before < 0 {
            return self.kernel.up(before.unsigned_abs().min(u64::from(count)));
        }
        Ok(())
    }
}
