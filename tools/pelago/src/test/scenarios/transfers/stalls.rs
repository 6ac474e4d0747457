//! How long a client waits between two bytes.
//!
//! Times are since the start of the load, so that the meter has no clock of its own. What lies
//! between two transfers counts: a connection that is slow to open is a stall like another.

use std::time::Duration;

/// A client must not wait longer than this for its next byte.
pub const STALL_MAX: Duration = Duration::from_secs(1);

/// A wait of more than [`STALL_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    pub from: Duration,
    pub to: Duration,
}

/// The waits of one client.
pub struct Meter {
    /// Since when it waits.
    since: Duration,
    last_byte: Duration,
    longest: Duration,
    stalls: Vec<Stall>,
}

impl Meter {
    /// Starts to measure; what was before `now` does not count.
    pub fn new(now: Duration) -> Meter {
        Meter { since: now, last_byte: now, longest: Duration::ZERO, stalls: Vec::new() }
    }

    /// Takes note that bytes moved at `now`.
    pub fn moved(&mut self, now: Duration) {
        self.give_up(now);
        self.last_byte = now;
    }

    /// Takes note that the client waits no longer: it begins something else.
    pub fn give_up(&mut self, now: Duration) {
        let wait = now.saturating_sub(self.since);
        self.longest = self.longest.max(wait);
        if wait > STALL_MAX {
            self.stalls.push(Stall { from: self.since, to: now });
        }
        self.since = now;
    }

    /// When the last byte moved.
    pub fn last_byte(&self) -> Duration {
        self.last_byte
    }

    /// The longest wait, and all that were too long.
    pub fn finish(self) -> (Duration, Vec<Stall>) {
        (self.longest, self.stalls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waits_above_the_limit_are_stalls() {
        let at = Duration::from_millis;
        let mut meter = Meter::new(at(100));
        [400, 1400, 2401, 2401, 2500].into_iter().for_each(|ms| meter.moved(at(ms)));
        let (longest, stalls) = meter.finish();
        assert_eq!((longest, stalls), (at(1001), vec![Stall { from: at(1400), to: at(2401) }]));
    }

    #[test]
    fn the_first_byte_is_waited_for_since_the_start() {
        let at = Duration::from_secs;
        let mut meter = Meter::new(at(3));
        meter.moved(at(5));
        assert_eq!(meter.finish().1, [Stall { from: at(3), to: at(5) }]);
        assert_eq!(Meter::new(at(3)).finish(), (Duration::ZERO, Vec::new()));
    }

    #[test]
    fn who_gives_up_begins_to_wait_anew() {
        let at = Duration::from_secs;
        let mut meter = Meter::new(at(0));
        meter.give_up(at(20));
        assert_eq!(meter.last_byte(), at(0));
        meter.moved(at(21));
        assert_eq!((meter.last_byte(), meter.finish().1), (at(21), vec![Stall { from: at(0), to: at(20) }]));
    }
}
