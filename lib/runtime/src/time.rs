//! Waiting with a limit.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use abi::ClockPage;
use abi::clock::Setting;
use executor::SleepUntil;

use crate::now_ns;
use crate::platform::clock_page;

/// The limit passed first; what was waited for has been dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

/// Nanoseconds since 1970, without a call. Counts from the start of the machine where that has no
/// clock.
pub fn realtime_ns() -> u64 {
    setting().day_at(now_ns())
}

/// The moment of [`now_ns`] at which [`realtime_ns`] is `ns`, now if that has passed. The time of
/// day may be corrected meanwhile, by 1/20 at most.
pub fn realtime_moment(ns: u64) -> u64 {
    setting().moment(ns).max(now_ns())
}

fn setting() -> Setting {
    clock_page().map_or(Setting::new(0, 0), ClockPage::setting)
}

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

#[cfg(all(test, not(target_os = "none")))]
mod tests {
    use super::*;

    #[test]
    fn without_a_clock_the_time_of_day_runs_from_the_machines_start() {
        let before_ns = now_ns();
        let day_ns = realtime_ns();
        assert!(before_ns < day_ns && day_ns < now_ns());
        assert_eq!(realtime_moment(day_ns + 1_000_000), day_ns + 1_000_000);
        let passed_ns = realtime_moment(1);
        assert!(day_ns < passed_ns && passed_ns < now_ns());
    }
}
