//! The workers of a desk, and of a server before another.

use core::ptr;
use core::sync::atomic::AtomicU64;

use abi::{Error, Handle};
use runtime::{Serve, Vectors, Worker, now_ns};

use crate::desk::{self, Desk};
use crate::front::{BEHIND_NS, Front};
use crate::path::Shared;

/// Each try to have a worker's call ended keeps the component so long at most, and so long apart.
const SETTLE_NS: u64 = 10_000_000;
const APART_NS: u64 = 1_000_000;

impl Serve for Desk {
    fn serve(&self, badge: u64, words: [u64; 4]) -> [u64; 3] {
        let worked = self.call(badge, words, now_ns);
        if let (true, Some(handler)) = (worked.is_news, self.handler(badge)) {
            // The handler's context is there as long as this one is, or all ends.
            let _ = sys::notify(handler);
        }
        worked.words
    }
}

impl Serve for Front<Shared> {
    fn serve(&self, badge: u64, words: [u64; 4]) -> [u64; 3] {
        let (worked, pair) = self.call(badge, words, now_ns, |behind, words| {
            sys::portal_call(behind.portal, words, now_ns().saturating_add(BEHIND_NS))
        });
        if let (true, Some(pair)) = (worked.is_more, pair) {
            // Refused at a count that nobody takes from: that client hears of none more.
            let _ = sys::semaphore_up(pair.client.semaphore, 1);
        }
        worked.words
    }
}

/// Starts a worker of the desk; see [`Worker::start`] for `limit_ns` and `bit`.
///
/// # Errors
/// Those of `ContextAlloc` and `ContextWatch`: the account is full.
pub fn start_worker(desk: &'static Desk, limit_ns: u64, bit: u64) -> Result<Worker, Error> {
    // SAFETY: `Desk::call` neither allocates nor frees; it reaches atomic words only, and stopped
    // anywhere it leaves an entry that is free, or one that is asked.
    unsafe { Worker::start(desk, Vectors::None, limit_ns, bit) }
}

/// Starts a worker of a server before another. It has vector registers: the component's description
/// says `vectors = true`.
///
/// # Errors
/// As [`start_worker`].
pub fn start_front_worker(front: &'static Front<Shared>, limit_ns: u64, bit: u64) -> Result<Worker, Error> {
    // SAFETY: `Front::call` neither allocates nor frees; it reaches atomic words, regions, which
    // are shared memory, and a cipher that nobody writes. What it leaves half done its client asks
    // again.
    unsafe { Worker::start(front, Vectors::Own, limit_ns, bit) }
}

/// Server: has a call that an earlier life of a client's left under way carried to its end, so that
/// it touches nothing of the client's any more. A worker has no time of its own: when the caller
/// dies it stands where it was until the next call, whose time it takes. This is one, of nothing,
/// on the component's time; `portal` is the client's.
pub async fn settle(portal: Handle) {
    // A worker that hangs is found while we are in line, and this component ends by its watch.
    // Another error: there is no worker.
    while let Err(Error::Timeout | Error::Busy) = sys::portal_call(portal, [0; 4], now_ns().saturating_add(SETTLE_NS)) {
        runtime::sleep(APART_NS).await;
    }
}

impl desk::Shared {
    /// Over words that two domains share; `None` if they are too few.
    pub fn over(words: &'static [AtomicU64]) -> Option<&'static Self> {
        let is_enough = size_of_val(words) >= size_of::<Self>();
        // SAFETY: it is made of atomic words only, in the order in which they are written down, and
        // so many are there.
        is_enough.then(|| unsafe { &*ptr::from_ref(words).cast::<Self>() })
    }
}
