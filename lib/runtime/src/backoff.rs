//! How long to wait before something that failed is started again. Pure: times in, times out.

/// Failures that follow each other and are answered at once.
pub const FREE: u32 = 8;
/// The first wait; each further one is twice the last.
pub const FIRST_NS: u64 = 10_000_000;
/// The longest wait.
pub const LONGEST_NS: u64 = 5_000_000_000;
/// What ran for so long begins again with [`FREE`] failures.
pub const QUIET_NS: u64 = 10_000_000_000;

/// Exponential back-off, without end: whatever is short may be there later.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
    /// When it was or is to be started last.
    started_ns: u64,
}

impl Backoff {
    /// Takes note of a failure and gives how long to wait before the next start.
    pub fn failed(&mut self, now_ns: u64) -> u64 {
        if now_ns.saturating_sub(self.started_ns) > QUIET_NS {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let wait_ns = match self.failures.checked_sub(FREE + 1) {
            None => 0,
            Some(doublings) => FIRST_NS.saturating_mul(1 << doublings.min(32)).min(LONGEST_NS),
        };
        self.started_ns = now_ns.saturating_add(wait_ns);
        wait_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_longest_and_never_end() {
        let (mut backoff, mut now_ns) = (Backoff::default(), 0);
        let mut waits = [0; 100];
        for wait_ns in &mut waits {
            *wait_ns = backoff.failed(now_ns);
            now_ns += *wait_ns;
        }
        assert_eq!(waits[..FREE as usize], [0; FREE as usize]);
        assert_eq!(waits[FREE as usize..][..4], [1, 2, 4, 8].map(|times| times * FIRST_NS));
        assert!(waits.is_sorted() && waits[99] == LONGEST_NS);
    }

    #[test]
    fn what_ran_for_long_is_started_at_once() {
        let mut backoff = Backoff::default();
        let wait_ns = (0..50).map(|_| backoff.failed(0)).max().unwrap();
        assert_eq!(backoff.failed(wait_ns + QUIET_NS), LONGEST_NS);
        assert_eq!(backoff.failed(wait_ns + LONGEST_NS + 2 * QUIET_NS + 1), 0);
        // One death a second for a minute, each at once until they are too many.
        let mut backoff = Backoff::default();
        let waits: u64 = (0..u64::from(FREE)).map(|second| backoff.failed(second * 1_000_000_000)).sum();
        assert_eq!(waits, 0);
    }
}
