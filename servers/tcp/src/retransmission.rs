//! When what a peer leaves unacknowledged is sent again: RFC 6298 with the floor that Linux has.
//!
//! The library rounds its timer up to a second (RFC 6298, section 2.4), which a client feels as a
//! second's silence after every loss, and does not tell what it measured. So the round trip is
//! measured here, by one segment at a time and never by a repeated one (Karn's algorithm), and the
//! library's timer is made to expire when ours does ([`crate::engine::Tcp::repeat`]). Ours comes
//! first: the library doubles its own as often. Only where a segment waits in the machine for
//! longer than a second, and ours is put off, does the library's come first.

use crate::segment::{Segment, before};

/// Time for the peer's answer beyond the smoothed round trip, at least: 200 ms, as in Linux
/// (`TCP_RTO_MIN`), since a peer may hold an acknowledgement back that long.
const MARGIN_MIN_NS: u64 = 200_000_000;
/// The first wait, before there is a measurement. RFC 6298 (section 2.1) has a second, which a
/// client feels where the answer to our part of the handshake is lost.
const FIRST_NS: u64 = 500_000_000;
/// Most that it doubles to (RFC 6298, section 2.5).
const MOST_NS: u64 = 60_000_000_000;

/// What a connection knows of its round trip, and how long it has waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retransmission {
    /// Smoothed round trip and its variation, once there was a measurement.
    measured: Option<(u64, u64)>,
    /// The number whose acknowledgement ends the measurement under way, and when it left.
    timed: Option<(u32, u64)>,
    /// Times in a row that nothing came.
    doubled: u32,
    /// Since when something is unacknowledged and nothing new was acknowledged.
    waits_since_ns: Option<u64>,
}

impl Retransmission {
    /// A segment left. `next` was the number after all that had left before it.
    pub fn sent(&mut self, segment: &Segment, next: u32, now_ns: u64) {
        if segment.end == segment.sequence || segment.reset {
            return;
        }
        self.waits_since_ns = self.waits_since_ns.or(Some(now_ns));
        let is_new = if segment.syn { segment.end != next } else { !before(segment.sequence, next) };
        self.timed = match self.timed {
            // What is sent again says nothing of the round trip, nor does what lies behind it.
            _ if !is_new => None,
            None => Some((segment.end, now_ns)),
            timed => timed,
        };
    }

    /// The peer acknowledged all before `acknowledged` for the first time; `rest` if more is on
    /// the way.
    pub fn acknowledged(&mut self, acknowledged: u32, rest: bool, now_ns: u64) {
        self.doubled = 0;
        self.waits_since_ns = rest.then_some(now_ns);
        if let Some((end, sent_ns)) = self.timed
            && !before(acknowledged, end)
        {
            self.timed = None;
            self.measure(now_ns.saturating_sub(sent_ns));
        }
    }

    /// RFC 6298, sections 2.2 and 2.3.
    fn measure(&mut self, round_trip_ns: u64) {
        self.measured = Some(match self.measured {
            None => (round_trip_ns, round_trip_ns / 2),
            Some((smoothed, variation)) => {
                ((smoothed * 7 + round_trip_ns) / 8, (variation * 3 + smoothed.abs_diff(round_trip_ns)) / 4)
            }
        });
    }

    /// When it is time to send again; `None` while nothing is unacknowledged.
    pub fn due_ns(&self) -> Option<u64> {
        Some(self.waits_since_ns?.saturating_add(self.wait_ns()))
    }

    /// How long it waits for an answer.
    pub fn wait_ns(&self) -> u64 {
        let wait_ns = self.measured.map_or(FIRST_NS, |(smoothed, variation)| {
            smoothed.saturating_add(variation.saturating_mul(4).max(MARGIN_MIN_NS))
        });
        wait_ns.saturating_mul(1 << self.doubled.min(20)).min(MOST_NS)
    }

    /// Smoothed round trip and its variation, in ns, once there was a measurement.
    pub fn measured(&self) -> Option<(u64, u64)> {
        self.measured
    }

    /// How often it was sent again without an answer.
    pub fn retries(&self) -> u32 {
        self.doubled
    }

    /// What would be sent again has not left the machine or only now: it waits as long again.
    /// What is measured then would be our own delay.
    pub fn put_off(&mut self, now_ns: u64) {
        (self.timed, self.waits_since_ns) = (None, Some(now_ns));
    }

    /// It was time and all was sent again: the next wait is twice as long.
    pub fn repeated(&mut self, now_ns: u64) {
        self.doubled = self.doubled.saturating_add(1);
        (self.timed, self.waits_since_ns) = (None, Some(now_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, SocketAddrV4};

    const MS: u64 = 1_000_000;

    fn bytes(sequence: u32, count: u32) -> Segment {
        let end = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80);
        Segment {
            source: end,
            destination: end,
            sequence,
            end: sequence.wrapping_add(count),
            acknowledged: Some(0),
            window: 0,
            syn: false,
            fin: false,
            reset: false,
            scale: None,
            segment_max: 0,
            takes_pieces: false,
        }
    }

    fn measured(round_trip_ns: u64) -> Retransmission {
        let mut timer = Retransmission::default();
        timer.sent(&bytes(0, 1), 0, 0);
        timer.acknowledged(1, false, round_trip_ns);
        timer
    }

    #[test]
    fn half_a_second_before_a_round_trip_is_known_and_nothing_while_all_is_acknowledged() {
        let mut timer = Retransmission::default();
        timer.sent(&bytes(0, 10), 0, MS);
        assert_eq!(timer.due_ns(), Some(501 * MS));
        timer.acknowledged(10, false, 2 * MS);
        assert_eq!(timer.due_ns(), None);
        timer.sent(&bytes(10, 0), 10, 3 * MS);
        assert_eq!(timer.due_ns(), None, "an acknowledgement is not answered");
    }

    #[test]
    fn it_waits_200_ms_beyond_the_round_trip_and_twice_as_long_each_time() {
        let mut timer = measured(MS);
        timer.sent(&bytes(1, 10), 1, 10 * MS);
        timer.sent(&bytes(11, 10), 11, 15 * MS);
        assert_eq!(timer.due_ns(), Some(211 * MS), "counted from the first");
        timer.repeated(211 * MS);
        assert_eq!(timer.due_ns(), Some((211 + 402) * MS));
        timer.sent(&bytes(1, 10), 21, 211 * MS);
        (0..100).for_each(|_| timer.repeated(1000 * MS));
        assert_eq!(timer.due_ns(), Some(1000 * MS + MOST_NS));
        timer.acknowledged(11, true, 1001 * MS);
        assert_eq!(timer.due_ns(), Some(1202 * MS), "the rest, from now on");
        timer.acknowledged(21, false, 1002 * MS);
        assert_eq!(timer.due_ns(), None);
    }

    #[test]
    fn what_was_sent_again_is_not_measured() {
        let mut timer = measured(MS);
        timer.sent(&bytes(1, 10), 1, 0);
        timer.sent(&bytes(1, 10), 11, 500 * MS);
        timer.acknowledged(11, false, 501 * MS);
        timer.sent(&bytes(11, 10), 11, 600 * MS);
        assert_eq!(timer.due_ns(), Some(801 * MS));
    }

    #[test]
    fn a_slow_and_changing_way_gets_more_time() {
        let mut timer = measured(300 * MS);
        let mut next = 1;
        for round_trip in [300, 500, 300, 500, 300, 500, 300, 500] {
            timer.sent(&bytes(next, 1), next, 0);
            next += 1;
            timer.acknowledged(next, false, round_trip * MS);
        }
        timer.sent(&bytes(next, 1), next, 0);
        let due = timer.due_ns().unwrap() / MS;
        assert!((700..1100).contains(&due), "{due} ms");
    }
}
