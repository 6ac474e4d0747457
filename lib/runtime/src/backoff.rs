//! How long to wait before something that failed is started again. Pure: times in, times out.
//!
//! Invariants: only what cannot start waits for long. What served [`SERVED_NS`] is started at once,
//! however often it fails; what came to serve at all at most [`APART_LONGEST_NS`] after its last
//! start; the rest within [`LONGEST_NS`]. It never gives up: whatever is short may be there later.
//! Deliberately unknown here: what is started, and by whom.

/// What served so long is started at once, and its failures are forgotten.
pub const SERVED_NS: u64 = 200_000_000;
/// Failures of what served for less that follow each other and are answered at once.
pub const FREE: u32 = 8;
/// From start to start after those, at least; each further one is twice the last.
pub const APART_NS: u64 = 100_000_000;
/// The longest such time.
pub const APART_LONGEST_NS: u64 = 1_000_000_000;
/// The first wait of what never served; each further one is twice the last.
pub const FIRST_NS: u64 = 10_000_000;
/// The longest wait.
pub const LONGEST_NS: u64 = 5_000_000_000;
/// Who refused to start something is left alone for so long at least.
pub const REFUSED_NS: u64 = 100_000_000;

/// Exponential back-off of one thing that is started again and again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    /// Failures after less than [`SERVED_NS`], since it last served longer. Starts that did not
    /// come to serve in between do not end the row, or they made every second failure free.
    brief: u32,
    /// Starts in a row that did not come to serve.
    silent: u32,
    /// When it was or is to be started last.
    started_ns: u64,
}

impl Backoff {
    /// Takes note of a failure at `now_ns` and gives how many nanoseconds to wait before the next
    /// start. `served_ns`: from when it came to serve to its death or stall; `None`: it never did.
    pub fn failed(&mut self, now_ns: u64, served_ns: Option<u64>) -> u64 {
        let wait_ns = match served_ns {
            Some(SERVED_NS..) => {
                *self = Backoff::default();
                0
            }
            Some(_) => {
                (self.brief, self.silent) = (self.brief.saturating_add(1), 0);
                let apart_ns = match self.brief.checked_sub(FREE + 1) {
                    None => 0,
                    Some(doublings) => doubled(APART_NS, doublings, APART_LONGEST_NS),
                };
                self.started_ns.saturating_add(apart_ns).saturating_sub(now_ns).min(apart_ns)
            }
            None => {
                self.silent = self.silent.saturating_add(1);
                doubled(FIRST_NS, self.silent - 1, LONGEST_NS)
            }
        };
        self.started_ns = now_ns.saturating_add(wait_ns);
        wait_ns
    }

    /// As [`failed`](Self::failed) without having served, of a start that somebody else refused.
    pub fn refused(&mut self, now_ns: u64) -> u64 {
        let wait_ns = self.failed(now_ns, None).max(REFUSED_NS);
        self.started_ns = now_ns.saturating_add(wait_ns);
        wait_ns
    }
}

fn doubled(first_ns: u64, doublings: u32, longest_ns: u64) -> u64 {
    first_ns.saturating_mul(1 << doublings.min(32)).min(longest_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Waits of one that fails each time so long after its start, of which it served.
    fn waits(backoff: &mut Backoff, times: usize, lived_ns: u64, served_ns: Option<u64>) -> Vec<u64> {
        let mut now_ns = 0;
        let wait_ns = |_| {
            now_ns += lived_ns;
            let wait_ns = backoff.failed(now_ns, served_ns);
            now_ns += wait_ns;
            wait_ns
        };
        (0..times).map(wait_ns).collect()
    }

    #[test]
    fn what_never_serves_waits_twice_as_long_each_time_up_to_5_s_and_is_not_given_up() {
        let waits = waits(&mut Backoff::default(), 100, 1, None);
        assert_eq!(waits[..10], [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5000].map(|ms| ms * 1_000_000));
        assert!(waits[10..].iter().all(|wait_ns| *wait_ns == LONGEST_NS));
    }

    #[test]
    fn what_serves_briefly_is_started_at_once_eight_times_and_then_at_least_100_ms_to_1_s_apart() {
        let lived_ns = 30_000_000;
        let waits = waits(&mut Backoff::default(), 100, lived_ns, Some(SERVED_NS - 1));
        assert_eq!(waits[..8], [0; 8]);
        let apart = |wait_ns: &u64| wait_ns + lived_ns;
        let first: Vec<u64> = waits[8..13].iter().map(apart).collect();
        assert_eq!(first, [100, 200, 400, 800, 1000].map(|ms| ms * 1_000_000));
        assert!(waits[13..].iter().all(|wait_ns| apart(wait_ns) == SECOND_NS));
    }

    #[test]
    fn who_took_longer_from_start_to_start_than_it_has_to_is_started_at_once() {
        // Most of it goes by before it serves.
        assert_eq!(waits(&mut Backoff::default(), 100, SECOND_NS, Some(0)), [0; 100]);
    }

    #[test]
    fn what_is_killed_once_a_second_for_an_hour_is_always_started_at_once() {
        assert_eq!(waits(&mut Backoff::default(), 3600, SECOND_NS, Some(SECOND_NS - 10_000_000)), [0; 3600]);
        assert_eq!(waits(&mut Backoff::default(), 3600, SERVED_NS, Some(SERVED_NS)), [0; 3600]);
    }

    #[test]
    fn having_served_for_long_makes_up_for_everything() {
        for served_ns in [None, Some(0)] {
            let mut backoff = Backoff::default();
            let before = waits(&mut backoff, 50, 0, served_ns);
            let mut fresh = Backoff::default();
            assert_eq!(backoff.failed(1_000 * SECOND_NS, Some(SERVED_NS)), 0);
            fresh.failed(1_000 * SECOND_NS, Some(SERVED_NS));
            // From then on it is as new.
            let after = (0..50).map(|_| backoff.failed(1_000 * SECOND_NS, served_ns));
            assert!(before[49] > 0 && after.eq((0..50).map(|_| fresh.failed(1_000 * SECOND_NS, served_ns))));
        }
    }

    #[test]
    fn having_served_briefly_ends_a_row_of_starts_that_did_not_come_to_serve_and_not_the_other_way_round() {
        let mut backoff = Backoff::default();
        waits(&mut backoff, 50, 0, None);
        assert_eq!(backoff.failed(0, Some(1)), 0);
        assert_eq!(backoff.failed(0, None), FIRST_NS);
        let mut backoff = Backoff::default();
        assert_eq!((0..8).map(|_| backoff.failed(0, Some(1)) + backoff.failed(0, None)).max(), Some(FIRST_NS));
        assert_eq!(backoff.failed(FIRST_NS, Some(1)), APART_NS);
    }

    #[test]
    fn who_refuses_is_asked_again_after_100_ms_to_5_s() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..11).map(|_| backoff.refused(0) / 1_000_000).collect();
        assert_eq!(waits, [100, 100, 100, 100, 160, 320, 640, 1280, 2560, 5000, 5000]);
    }

    /// A failure: how long it lived, whether it served, and for which part of that, in per cent.
    fn failure() -> impl Strategy<Value = (u64, Option<u64>)> {
        let lived_ns = prop_oneof![0..SERVED_NS, 0..3 * SECOND_NS];
        (lived_ns, prop::option::of(0..=100u64))
            .prop_map(|(lived_ns, part)| (lived_ns, part.map(|it| lived_ns * it / 100)))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Whatever fails in whatever way: no wait passes its limit, and there are no more starts
        /// than its limits allow.
        #[test]
        fn no_wait_is_longer_nor_shorter_than_is_promised(failures in prop::collection::vec(failure(), 1..200)) {
            let (mut backoff, mut now_ns, mut started_ns) = (Backoff::default(), 0, 0);
            // By the rules' words: since it served for long, and in a row.
            let (mut brief, mut silent) = (0u32, 0u32);
            for (lived_ns, served_ns) in failures {
                now_ns += lived_ns;
                let wait_ns = backoff.failed(now_ns, served_ns);
                let apart_ns = now_ns + wait_ns - started_ns;
                match served_ns {
                    Some(served_ns) if served_ns >= 200_000_000 => {
                        prop_assert_eq!(wait_ns, 0);
                        (brief, silent) = (0, 0);
                    }
                    Some(_) => {
                        (brief, silent) = (brief + 1, 0);
                        prop_assert!(wait_ns == 0 || apart_ns <= SECOND_NS);
                        prop_assert!(brief > 8 || wait_ns == 0);
                        prop_assert!(brief <= 8 || apart_ns >= 100_000_000);
                        prop_assert!(brief <= 12 || apart_ns >= SECOND_NS);
                    }
                    None => {
                        silent += 1;
                        prop_assert!((10_000_000..=5_000_000_000).contains(&wait_ns));
                        prop_assert!(silent < 10 || wait_ns == 5_000_000_000);
                    }
                }
                now_ns += wait_ns;
                started_ns = now_ns;
            }
        }
    }
}
