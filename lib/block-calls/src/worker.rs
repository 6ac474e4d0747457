//! The worker of a desk.

use abi::Error;
use runtime::{Serve, Vectors, Worker};

use crate::desk::Desk;

impl Serve for Desk {
    fn serve(&self, badge: u64, words: [u64; 4]) -> [u64; 3] {
        let worked = self.call(badge, words, runtime::now_ns);
        if worked.is_news {
            // The handler's context is there as long as this one is.
            let _ = sys::notify(self.handler);
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
