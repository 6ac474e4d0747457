//! TIME-WAIT without a socket: a few numbers per ended connection, so that 129 KiB of buffers are
//! free at once.
//!
//! No timer: an entry is looked at when a segment or a new connection names its pair, and the
//! oldest goes when the table is full.

use packet::Memory;

use crate::engine::{ConnectionId, Tcp};
use crate::segment::{Pair, Segment, acknowledgement, before};

/// Ended connections remembered so that late segments find an answer; the oldest go first.
pub const TIME_WAIT_MAX: usize = 4096;
/// How long they are remembered: twice the lifetime of a segment, taken as 5 s (smoltcp's figure)
/// instead of RFC 9293's two minutes.
pub const TIME_WAIT_NS: u64 = 10_000_000_000;
/// What answers late segments.
pub(crate) struct TimeWait {
    sequence: u32,
    acknowledged: u32,
    window: u16,
    until_ns: u64,
}

impl<M: Memory> Tcp<M> {
    /// A segment of a connection that is over; true if that was all about it.
    pub(crate) fn answer_late(&mut self, pair: Pair, segment: &Segment, now_ns: u64) -> bool {
        let Some(late) = self.time_wait.get(&pair) else { return false };
        // A SYN with newer numbers opens a new connection (RFC 6191 allows it).
        let renewed = segment.syn && segment.acknowledged.is_none() && before(late.acknowledged, segment.sequence);
        if late.until_ns <= now_ns || segment.reset || renewed {
            self.time_wait.remove(&pair);
            return segment.reset;
        }
        if segment.end != segment.sequence {
            let packet = acknowledgement(pair, late.sequence, late.acknowledged, late.window);
            self.wire.send(&packet);
            self.wire.take_sent();
        }
        true
    }

    /// Keeps what TIME-WAIT needs of a connection, and acknowledges the peer's end at once.
    pub(crate) fn remember(&mut self, id: ConnectionId, now_ns: u64) {
        let Some(connection) = self.connections.get(&id) else { return };
        let record = connection.record;
        let acknowledged = record.receive_end.unwrap_or(record.receive_next);
        let late = TimeWait {
            sequence: record.send_next,
            acknowledged,
            window: record.receive_window,
            until_ns: now_ns + TIME_WAIT_NS,
        };
        if record.receive_next != acknowledged {
            self.wire.send(&acknowledgement(record.pair, late.sequence, acknowledged, late.window));
            self.wire.take_sent();
        }
        if self.time_wait_order.len() >= TIME_WAIT_MAX
            && let Some(oldest) = self.time_wait_order.pop_front()
        {
            self.time_wait.remove(&oldest);
        }
        if self.time_wait.insert(record.pair, late).is_none() {
            self.time_wait_order.push_back(record.pair);
        }
    }
}
