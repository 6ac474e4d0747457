//! Badge bits: those of ports make the port hot, the rest are kept for tasks that await them.

use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use crate::with;

pub(crate) struct Signals {
    /// Came in by [`post`], not yet delivered.
    posted: u64,
    /// Delivered bits of no port that nobody has taken yet.
    kept: u64,
    waiting: Vec<(u64, Waker)>,
}

impl Signals {
    pub const fn new() -> Signals {
        Signals { posted: 0, kept: 0, waiting: Vec::new() }
    }

    pub fn has_posted(&self) -> bool {
        self.posted != 0
    }

    pub fn take_posted(&mut self) -> u64 {
        core::mem::take(&mut self.posted)
    }

    /// Keeps `bits`; gives the wakers of those who wait for one of them.
    pub fn keep(&mut self, bits: u64) -> Vec<Waker> {
        self.kept |= bits;
        let woken = self.waiting.extract_if(.., |(mask, _)| *mask & bits != 0);
        woken.map(|(_, waker)| waker).collect()
    }
}

/// Badge bits from inside the component: the doorbell of loopback channels.
pub fn post(bits: u64) {
    with(|executor| executor.signals.posted |= bits);
}

/// Waits until one of the badge bits in `mask` came, and takes those that did. The bits must not be
/// those of channels.
pub fn notified(mask: u64) -> Notified {
    Notified { mask }
}

/// Future of [`notified`].
pub struct Notified {
    mask: u64,
}

impl Future for Notified {
    type Output = u64;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u64> {
        with(|executor| {
            let signals = &mut executor.signals;
            let bits = signals.kept & self.mask;
            signals.kept &= !bits;
            if bits != 0 {
                return Poll::Ready(bits);
            }
            // One entry for each waker and mask, however often it is polled.
            if !signals.waiting.iter().any(|(mask, waker)| *mask == self.mask && waker.will_wake(context.waker())) {
                signals.waiting.push((self.mask, context.waker().clone()));
            }
            Poll::Pending
        })
    }
}
