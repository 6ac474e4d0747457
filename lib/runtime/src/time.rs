//! Waiting with a limit.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use executor::SleepUntil;

use crate::now_ns;

/// The limit passed first; what was waited for has been dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

/// Completes `duration_ns` from now.
pub fn sleep(duration_ns: u64) -> SleepUntil {
    executor::sleep_until(now_ns().saturating_add(duration_ns))
}

/// The future's output, if it comes within `limit_ns` from now.
pub async fn timeout<F: Future>(limit_ns: u64, future: F) -> Result<F::Output, TimedOut> {
    let mut future = pin!(future);
    let mut limit = pin!(sleep(limit_ns));
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        limit.as_mut().poll(context).map(|()| Err(TimedOut))
    })
    .await
}
