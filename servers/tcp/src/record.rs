//! The record of a connection: everything another TCP would need to go on with it.
//!
//! Today it is kept by looking at every segment that comes and goes, drives the acknowledgements
//! after a link came back, and is what lists show. It is made to survive TCP's own crash, which is
//! not built yet: the receive and send buffers would have to live in a kept region too
//! (`send_buffer`, `receive_buffer` name their places), and the library would have to start a
//! socket from given numbers.
//!
//! Commit rule for that day: a record is written before any segment or reply that depends on it
//! leaves, and only then is the slot's `committed` set to the `version` written; a reader takes the
//! slot whose checksum fits and whose `committed` equals its `version`. Two slots per connection
//! are written in turn, so that a crash while writing leaves the older one. Numbers only grow
//! within a connection, so an older record makes the peer repeat something and never loses a byte
//! that was acknowledged.

use core::net::SocketAddrV4;
use packet::MTU;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::connection::{SEND_BYTES, UNTOLD};
use crate::quiet::Told;
use crate::segment::{ACKNOWLEDGEMENT_BYTES, Pair, Segment, acknowledgement, before};

/// "TCPR" and the layout's version.
pub const MAGIC: u64 = 0x5443_5052_0000_0001;

/// States of RFC 9293, section 3.3.2, as stored; 0 is an empty slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// A connection attempt of ours or theirs.
    Opening = 1,
    /// Both directions open.
    Open = 2,
    /// We have ended our direction.
    WeEnded = 3,
    /// They have ended theirs.
    TheyEnded = 4,
    /// Both have; waiting for the last answers.
    Ending = 5,
}

impl Phase {
    fn decode(value: u8) -> Option<Phase> {
        [Phase::Opening, Phase::Open, Phase::WeEnded, Phase::TheyEnded, Phase::Ending]
            .into_iter()
            .find(|phase| *phase as u8 == value)
    }
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Identity: never used again by this TCP.
    pub connection: u64,
    /// Its two ends.
    pub pair: Pair,
    /// Where it stands.
    pub phase: Phase,
    /// Oldest number sent and not acknowledged; next number to send; the peer's window (bytes).
    pub send_unacknowledged: u32,
    /// See above.
    pub send_next: u32,
    /// See above.
    pub send_window: u32,
    /// Next number expected and acknowledged; the window field we last sent (not scaled).
    pub receive_next: u32,
    /// See above.
    pub receive_window: u16,
    /// Window scales: theirs, ours. `None` until a SYN said it.
    pub send_scale: Option<u8>,
    /// See above.
    pub receive_scale: Option<u8>,
    /// Largest segment they take; 0 if they did not say.
    pub segment_max: u16,
    /// Number of their FIN plus one, once it came.
    pub receive_end: Option<u32>,
    /// Places of the buffers in a kept region: offset and bytes. Zero until they live in one.
    pub send_buffer: (u32, u32),
    /// See above.
    pub receive_buffer: (u32, u32),
}

impl Record {
    /// A connection nothing was heard or said of yet.
    pub fn new(connection: u64, pair: Pair) -> Record {
        Record {
            connection,
            pair,
            phase: Phase::Opening,
            send_unacknowledged: 0,
            send_next: 0,
            send_window: 0,
            receive_next: 0,
            receive_window: 0,
            send_scale: None,
            receive_scale: None,
            segment_max: 0,
            receive_end: None,
            send_buffer: (0, 0),
            receive_buffer: (0, 0),
        }
    }

    /// We sent a segment.
    pub fn sent(&mut self, segment: &Segment) {
        if segment.reset {
            return;
        }
        if segment.syn {
            self.receive_scale = segment.scale;
            (self.send_unacknowledged, self.send_next) = (segment.sequence, segment.end);
        }
        if before(self.send_next, segment.end) {
            self.send_next = segment.end;
        }
        if let Some(acknowledged) = segment.acknowledged {
            self.receive_next = acknowledged;
            // The window of a SYN is not scaled (RFC 7323, section 2.2).
            self.receive_window =
                if segment.syn { segment.window >> segment.scale.unwrap_or(0) } else { segment.window };
        }
    }

    /// A segment came that the connection took as its own.
    pub fn received(&mut self, segment: &Segment) {
        if segment.reset {
            return;
        }
        if segment.syn {
            self.send_scale = segment.scale;
            self.segment_max = segment.segment_max;
            if segment.scale.is_none() {
                self.receive_scale = None;
            }
        }
        if segment.fin {
            self.receive_end = Some(segment.end);
        }
        let Some(acknowledged) = segment.acknowledged else { return };
        // Only what we sent can be acknowledged; old news changes nothing.
        if !before(acknowledged, self.send_unacknowledged) && !before(self.send_next, acknowledged) {
            self.send_unacknowledged = acknowledged;
            let scale = if segment.syn { 0 } else { self.send_scale.unwrap_or(0) };
            self.send_window = u32::from(segment.window) << scale;
        }
    }

    /// Whether a segment brings bytes, and all of them were acknowledged before.
    pub fn is_old(&self, segment: &Segment) -> bool {
        brings_bytes(segment) && !before(self.receive_next, segment.end)
    }

    /// Whether a segment begins behind the window that we told last.
    pub fn is_beyond(&self, segment: &Segment) -> bool {
        !segment.syn && !segment.reset && !before(segment.sequence, self.window_end())
    }

    /// How many bytes of a segment are taken, if it brings more than the window that we told
    /// allows. Its end is not taken then: it comes behind bytes that are missing.
    pub fn fitting(&self, segment: &Segment) -> Option<usize> {
        let bytes_end = segment.end.wrapping_sub(u32::from(segment.fin));
        if !brings_bytes(segment) || !before(self.window_end(), bytes_end) {
            return None;
        }
        let room_end = self.window_end().wrapping_add(u32::from(UNTOLD) << self.receive_scale.unwrap_or(0));
        let end = if before(room_end, bytes_end) { room_end } else { bytes_end };
        Some(if before(segment.sequence, end) { end.wrapping_sub(segment.sequence) as usize } else { 0 })
    }

    /// Whether a segment acknowledges what nothing before it did, of what we sent.
    pub fn acknowledges_more(&self, segment: &Segment) -> bool {
        segment.acknowledged.is_some_and(|acknowledged| {
            before(self.send_unacknowledged, acknowledged) && !before(self.send_next, acknowledged)
        })
    }

    /// The acknowledgement that stands for that of a segment which brings bytes and acknowledges
    /// less than others before it did: what was said last. Such a segment was overtaken, or is sent
    /// again by a peer that does not renew it; one that acknowledges what lies further back than
    /// can be on the way is not its peer's (RFC 5961, section 5).
    pub fn renewed(&self, segment: &Segment) -> Option<Told> {
        let back = self.send_unacknowledged.wrapping_sub(segment.acknowledged?);
        let is_overtaken = brings_bytes(segment) && (1..=SEND_BYTES as u32).contains(&back);
        let window = self.send_window >> self.send_scale.unwrap_or(0);
        is_overtaken.then_some((self.send_unacknowledged, window as u16))
    }

    /// What a segment acknowledges, as a segment of its own that lies in the window.
    pub fn without_bytes(&self, segment: &Segment) -> Option<[u8; ACKNOWLEDGEMENT_BYTES]> {
        // The last place of the window: more may have been received than was acknowledged yet.
        let last = if self.receive_window == 0 { self.receive_next } else { self.window_end().wrapping_sub(1) };
        let from_peer = Pair { local: self.pair.remote, remote: self.pair.local };
        Some(acknowledgement(from_peer, last, segment.acknowledged?, segment.window))
    }

    /// The number after the last that we said we take.
    fn window_end(&self) -> u32 {
        self.receive_next.wrapping_add(u32::from(self.receive_window) << self.receive_scale.unwrap_or(0))
    }

    /// Bytes, SYN and FIN among them, that were sent and not acknowledged.
    pub fn on_the_way(&self) -> u32 {
        self.send_next.wrapping_sub(self.send_unacknowledged)
    }

    /// Bytes of a whole segment that we send (RFC 9293, section 3.7.1).
    pub fn segment_bytes(&self) -> usize {
        const SMALLEST: u16 = 536;
        let taken = if self.segment_max == 0 { SMALLEST } else { self.segment_max };
        usize::from(taken).min(MTU - ACKNOWLEDGEMENT_BYTES)
    }

    /// Is something sent and not acknowledged?
    pub fn unacknowledged(&self) -> bool {
        self.send_unacknowledged != self.send_next
    }

    /// The stored form, committed as `version`.
    pub fn encode(&self, version: u64) -> Stored {
        let (local, remote) = (self.pair.local, self.pair.remote);
        let scale = |scale: Option<u8>| scale.map_or(0xff, |scale| scale);
        let mut stored = Stored {
            magic: MAGIC,
            checksum: 0,
            version,
            committed: version,
            connection: self.connection,
            local_address: local.ip().octets(),
            remote_address: remote.ip().octets(),
            local_port: local.port(),
            remote_port: remote.port(),
            phase: self.phase as u8,
            send_scale: scale(self.send_scale),
            receive_scale: scale(self.receive_scale),
            ended: u8::from(self.receive_end.is_some()),
            send_unacknowledged: self.send_unacknowledged,
            send_next: self.send_next,
            send_window: self.send_window,
            receive_next: self.receive_next,
            receive_end: self.receive_end.unwrap_or(0),
            receive_window: self.receive_window,
            segment_max: self.segment_max,
            send_buffer: [self.send_buffer.0, self.send_buffer.1],
            receive_buffer: [self.receive_buffer.0, self.receive_buffer.1],
        };
        stored.checksum = stored.sum();
        stored
    }

    /// Reads a stored record; `None` if it is empty, damaged, not committed or senseless.
    pub fn decode(stored: &Stored) -> Option<Record> {
        if stored.magic != MAGIC || stored.checksum != stored.sum() || stored.version != stored.committed {
            return None;
        }
        let scale = |value: u8| if value == 0xff { Some(None) } else { (value <= 14).then_some(Some(value)) };
        let end = |address: [u8; 4], port| SocketAddrV4::new(address.into(), port);
        let buffer = |[offset, bytes]: [u32; 2]| (offset, bytes);
        Some(Record {
            connection: stored.connection,
            pair: Pair {
                local: end(stored.local_address, stored.local_port),
                remote: end(stored.remote_address, stored.remote_port),
            },
            phase: Phase::decode(stored.phase)?,
            send_unacknowledged: stored.send_unacknowledged,
            send_next: stored.send_next,
            send_window: stored.send_window,
            receive_next: stored.receive_next,
            receive_window: stored.receive_window,
            send_scale: scale(stored.send_scale)?,
            receive_scale: scale(stored.receive_scale)?,
            segment_max: stored.segment_max,
            receive_end: (stored.ended == 1).then_some(stored.receive_end),
            send_buffer: buffer(stored.send_buffer),
            receive_buffer: buffer(stored.receive_buffer),
        })
    }
}

/// Whether a segment takes places in the sequence, and neither begins nor resets a connection.
pub fn brings_bytes(segment: &Segment) -> bool {
    segment.end != segment.sequence && !segment.syn && !segment.reset
}

/// A record as it lies in a region: 96 bytes, no padding, the machine's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Stored {
    magic: u64,
    checksum: u64,
    version: u64,
    committed: u64,
    connection: u64,
    local_address: [u8; 4],
    remote_address: [u8; 4],
    local_port: u16,
    remote_port: u16,
    phase: u8,
    send_scale: u8,
    receive_scale: u8,
    ended: u8,
    send_unacknowledged: u32,
    send_next: u32,
    send_window: u32,
    receive_next: u32,
    receive_end: u32,
    receive_window: u16,
    segment_max: u16,
    send_buffer: [u32; 2],
    receive_buffer: [u32; 2],
}

impl Stored {
    /// FNV-1a over everything but the checksum and `committed`, which is set afterwards.
    fn sum(&self) -> u64 {
        let plain = Stored { checksum: 0, committed: 0, ..*self };
        plain
            .as_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
    }
}

impl core::fmt::Display for Record {
    /// A line of a list: ends, phase, bytes on the way.
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let on_the_way = self.send_next.wrapping_sub(self.send_unacknowledged);
        write!(formatter, "tcp {} {} {:?} {on_the_way}", self.pair.local, self.pair.remote, self.phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn sample() -> Record {
        let end = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, last), port);
        let mut record = Record::new(7, Pair { local: end(15, 80), remote: end(2, 4000) });
        record.phase = Phase::TheyEnded;
        (record.send_unacknowledged, record.send_next, record.send_window) = (u32::MAX - 3, 9, 65535 << 7);
        (record.receive_next, record.receive_window, record.receive_end) = (5, 512, Some(6));
        (record.send_scale, record.receive_scale, record.segment_max) = (Some(7), None, 1460);
        (record.send_buffer, record.receive_buffer) = ((4096, 65536), (69632, 32768));
        record
    }

    #[test]
    fn what_was_written_is_read_and_damage_is_not() {
        let stored = sample().encode(3);
        assert_eq!(size_of::<Stored>(), 96);
        assert_eq!(Record::decode(&stored), Some(sample()));
        for index in 0..size_of::<Stored>() {
            let mut bad = stored;
            bad.as_mut_bytes()[index] ^= 1;
            assert_eq!(Record::decode(&bad), None, "byte {index}");
        }
        assert_eq!(Record::decode(&Stored { committed: 2, ..stored }), None, "written but not committed");
        assert_eq!(Stored { committed: 2, ..stored }.sum(), stored.sum(), "it is committed afterwards");
    }

    #[test]
    fn numbers_follow_the_segments() {
        let mut record = sample();
        let pair = record.pair;
        let segment = Segment {
            source: pair.local,
            destination: pair.remote,
            sequence: 100,
            end: 101,
            acknowledged: None,
            window: 64,
            syn: true,
            fin: false,
            reset: false,
            scale: Some(2),
            segment_max: 1400,
            takes_pieces: false,
        };
        record.sent(&segment);
        assert!(record.unacknowledged());
        let reply = Segment {
            source: pair.remote,
            destination: pair.local,
            sequence: 500,
            end: 501,
            acknowledged: Some(101),
            ..segment
        };
        record.received(&reply);
        assert!(!record.unacknowledged());
        assert_eq!((record.send_window, record.segment_max), (64, 1400));
        record.sent(&Segment { sequence: 101, end: 201, acknowledged: Some(501), syn: false, ..segment });
        record.received(&Segment { syn: false, acknowledged: Some(150), ..reply });
        assert_eq!((record.send_unacknowledged, record.send_next, record.send_window), (150, 201, 64 << 2));
        record.received(&Segment { syn: false, acknowledged: Some(900), ..reply });
        assert_eq!(record.send_unacknowledged, 150, "nobody acknowledges what was not sent");
    }

    /// What acknowledges, windows and places of `sample`'s connection decide about a segment.
    #[test]
    fn only_what_was_sent_and_is_new_is_acknowledged_and_only_bytes_lie_beyond() {
        let record = Record { receive_scale: Some(1), ..sample() };
        let bytes = Segment {
            source: record.pair.remote,
            destination: record.pair.local,
            sequence: 5,
            end: 15,
            acknowledged: Some(record.send_next),
            window: 64,
            syn: false,
            fin: false,
            reset: false,
            scale: None,
            segment_max: 0,
            takes_pieces: false,
        };
        let first = record.send_unacknowledged;
        for (acknowledged, is_more) in [(first.wrapping_sub(1), false), (first, false), (9, true), (10, false)] {
            let segment = Segment { acknowledged: Some(acknowledged), ..bytes };
            assert_eq!(record.acknowledges_more(&segment), is_more, "{acknowledged}");
        }
        assert!(!record.acknowledges_more(&Segment { acknowledged: None, ..bytes }));
        // The window is 512 units of two bytes.
        for (sequence, is_beyond) in [(4, false), (5 + 1023, false), (5 + 1024, true), (9999, true)] {
            let segment = Segment { sequence, end: sequence + 1, ..bytes };
            assert_eq!(record.is_beyond(&segment), is_beyond, "{sequence}");
            assert!(!record.is_beyond(&Segment { syn: true, ..segment }));
            assert!(!record.is_beyond(&Segment { reset: true, ..segment }));
        }
        // One that was overtaken is read as if it acknowledged what was said last.
        let overtaken = Segment { acknowledged: Some(first.wrapping_sub(1)), ..bytes };
        assert_eq!(record.renewed(&overtaken), Some((first, 65535)));
        assert_eq!(record.renewed(&Segment { end: 5, ..overtaken }), None);
        assert_eq!(record.renewed(&bytes), None);
    }

    #[test]
    fn a_segment_is_as_long_as_they_take_and_a_packet_holds() {
        let taken = |segment_max| Record { segment_max, ..sample() }.segment_bytes();
        assert_eq!([0, 1, 536, 1400, 1460, 1461, 9000].map(taken), [536, 1, 536, 1400, 1460, 1460, 1460]);
    }
}
