//! What happens when the card had to be reset: everything that may be lost is said again at once.
//!
//! The library has no such call. Its retransmission timer is made to expire by putting the
//! connection's own clock forward, so that it does what it would have done later anyway; and an
//! acknowledgement is made from the connection's record, since the library sends none it does not
//! think is owed. No back-off builds up: the next new data acknowledged gives a fresh measure of
//! the round trip.

use alloc::vec::Vec;
use packet::Memory;
use smoltcp::iface::PollResult;
use smoltcp::socket::tcp::State;
use smoltcp::time::Duration;

use crate::connection::{Again, Connection};
use crate::engine::{BURST, ConnectionId, Tcp};
use crate::segment::{acknowledgement, before};

/// Acknowledgements after the first: three of the same make a peer repeat what it has on the way
/// (RFC 5681, section 3.2) instead of waiting for its timer.
const DUPLICATES: usize = 3;
/// Only for connections whose peer was heard this recently: others have nothing on the way.
const RECENT_NS: u64 = 2_000_000_000;

impl<M: Memory> Tcp<M> {
    /// The link came back and packets may be lost: what is unacknowledged is repeated now and every
    /// connection says what it has and takes.
    pub fn resume(&mut self, now_ns: u64) {
        self.counters.resumes += 1;
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in all {
            if self.repeats_at_resume(id) {
                self.repeat(id, Again::First, now_ns);
            }
            self.acknowledge(id, now_ns);
            self.touch(id);
        }
        // After everyone had a turn, with the buffers that are left.
        let recent = |connection: &&Connection| now_ns.saturating_sub(connection.heard_ns) < RECENT_NS;
        let busy: Vec<ConnectionId> =
            self.connections.values().filter(recent).map(|connection| connection.record.connection).collect();
        for _ in 0..DUPLICATES {
            busy.iter().for_each(|&id| self.acknowledge(id, now_ns));
        }
    }

    /// Not what has not left yet, as it goes out once. The answer to a SYN neither: its timer is
    /// early enough, and passt, if it reads two of these at once, sends the first bytes of that
    /// connection for ever and does nothing else.
    fn repeats_at_resume(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|connection| {
            let record = &connection.record;
            connection.state != State::SynReceived
                && !self.wire.has_on_the_way(&record.pair, record.send_unacknowledged)
        })
    }

    /// Makes the library's retransmission timer expire by putting the connection's clock forward, a
    /// few times at most: another of its timers may come first.
    pub(crate) fn repeat(&mut self, id: ConnectionId, again: Again, now_ns: u64) {
        const TIMERS: usize = 4;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if again == Again::All {
            connection.unbind();
        }
        for _ in 0..TIMERS {
            if !connection.record.unacknowledged() {
                break;
            }
            let (now, oldest) = (connection.instant(now_ns), connection.record.send_unacknowledged);
            match self.interface.poll_at(now, &connection.sockets) {
                Some(when) if when > now => connection.advance_clock(when - now + Duration::from_micros(1)),
                Some(_) => {}
                None => break,
            }
            let now = connection.instant(now_ns);
            let mut repeated = false;
            for _ in 0..BURST {
                if self.interface.poll_egress(now, &mut self.wire, &mut connection.sockets) == PollResult::None {
                    break;
                }
                for segment in self.wire.take_sent() {
                    repeated |= !before(oldest, segment.sequence) && segment.end != segment.sequence;
                    connection.sent(&segment, now_ns);
                }
            }
            if repeated {
                break;
            }
        }
    }

    /// Says the acknowledgement that a connection did not say too often, if that is due. It says it
    /// twice: where passt passed over a change of the window, the first is none of two equal ones.
    pub(crate) fn tell_after_all(&mut self, id: ConnectionId, now_ns: u64) {
        if self.connections.get(&id).is_some_and(|connection| connection.quiet.is_due(now_ns)) {
            self.acknowledge(id, now_ns);
            self.acknowledge(id, now_ns);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.quiet.told_after_all(connection.has_gap());
            }
        }
    }

    /// Says what was received and how much more may come, whether the library thinks it has to or
    /// not.
    pub(crate) fn acknowledge(&mut self, id: ConnectionId, now_ns: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let synchronised =
            !matches!(connection.state, State::Closed | State::Listen | State::SynSent | State::SynReceived);
        if synchronised {
            let record = &connection.record;
            let packet = acknowledgement(record.pair, record.send_next, record.receive_next, record.receive_window);
            self.wire.send(&packet);
            self.wire.take_sent().iter().for_each(|segment| connection.sent(segment, now_ns));
        }
    }
}
