//! One connection: a socket of the library alone in its own set, its record, its clock and its
//! owner.
//!
//! Why a set each: the library looks through all sockets of a set for every packet and every poll.
//! With one in the set that is no search, and only connections that have something to do are
//! polled. Why a clock each: putting it forward is how a connection is made to retransmit at once
//! ([`Connection::advance_clock`]) without touching any other.

use alloc::vec;
use alloc::vec::Vec;
use contracts::descriptions::DescriptionError as Error;
use contracts::sockets::ConnectionInfo;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};

use crate::cork::Cork;
use crate::quiet::{Quiet, Told};
use crate::record::{Phase, Record, brings_bytes};
use crate::retransmission::Retransmission;
use crate::segment::{ACKNOWLEDGEMENT_BYTES, Pair, Segment, before};
use crate::traffic::Traffic;

/// Bytes a connection can hold that the program has not read. A window of less than 64 KiB makes
/// passt crawl: what it frees in its own socket is then less than a segment on the host's loopback,
/// and the host sends the next only when its timer of 200 ms says so.
pub const RECEIVE_BYTES: usize = 64 * 1024;
/// A window is told shorter than the room is by so many of its units: passt passes over a window
/// that became smaller by less than a hundredth, and sends as much as the one before allowed. What
/// finds no room then it repeats after 2 s.
pub const UNTOLD: u16 = u16::MAX / 100 + 1;
/// Bytes in a unit of the window, with room for up to 128 KiB.
const WINDOW_UNIT: usize = 2;
/// Bytes a connection can hold that the peer has not acknowledged: what may be on the way at once.
pub const SEND_BYTES: usize = 64 * 1024;
/// Room beyond that for a segment while the peer is silent, see [`Connection::send_room`].
const PROBE_BYTES: usize = 1460;
/// Repeats in vain after which all is sent again, not the first segment alone.
const VAIN_MAX: u32 = 1;
/// A reset that leaves the machine waits so long at most until the last bytes are acknowledged:
/// passt drops what it reads together with a reset.
const RESET_AFTER_NS: u64 = 100_000_000;
/// Sockets of ended connections kept for new ones, with their buffers: saves clearing 130 KiB per
/// connection.
pub const SPARE_MAX: usize = 64;

/// Who decides about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It waits at the listener of this port to be accepted.
    Listener(u16),
    /// A description.
    Description,
    /// Nobody any more: it ends by itself.
    Nobody,
}

/// Why a connection ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer reset it.
    Reset,
    /// The peer refused it.
    Refused,
    /// The peer did not answer.
    TimedOut,
}

/// What is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The first segment that is unacknowledged, and more as acknowledgements come.
    First,
    /// All that the peer takes, what it was not sent before too.
    All,
}

/// One connection; see the file's head.
pub struct Connection {
    /// Its set of one socket.
    pub sockets: SocketSet<'static>,
    handle: SocketHandle,
    /// What is known of it from the segments that came and went.
    pub record: Record,
    /// The number after the last byte that came; what lies before may still be missing.
    heard_to: u32,
    /// When it sends again what is unacknowledged.
    retransmission: Retransmission,
    /// It sends without regard to congestion.
    is_unbound: bool,
    /// Who decides about it.
    pub owner: Owner,
    /// Microseconds its clock is ahead.
    ahead_us: i64,
    /// Entry in the engine's timers.
    pub timer_ns: Option<u64>,
    /// It is in the engine's list of those to be polled.
    pub dirty: bool,
    /// Last time the peer was heard, or the connection was made.
    pub heard_ns: u64,
    /// What it does not say too often.
    pub quiet: Quiet,
    /// The peer is told which pieces came after a gap.
    takes_pieces: bool,
    /// As the engine saw it last.
    pub state: State,
    /// Why it ended, until somebody is told.
    pub fault: Option<Fault>,
    /// It is reset as soon as what was sent is acknowledged, or was long enough ago.
    pub is_to_reset: bool,
    /// When bytes were sent last.
    bytes_sent_ns: u64,
    /// What waits for more to be written.
    pub cork: Cork,
    /// A short segment waits while others are not acknowledged (Nagle's algorithm).
    delays: bool,
    /// What it has carried.
    traffic: Traffic,
}

impl Connection {
    /// A connection around a socket that [`BufferPool::take`] gave.
    pub fn new(
        sockets: SocketSet<'static>,
        handle: SocketHandle,
        id: u64,
        pair: Pair,
        owner: Owner,
        now_ns: u64,
    ) -> Connection {
        Connection {
            sockets,
            handle,
            record: Record::new(id, pair),
            heard_to: 0,
            retransmission: Retransmission::default(),
            is_unbound: false,
            owner,
            ahead_us: 0,
            timer_ns: None,
            dirty: false,
            heard_ns: now_ns,
            quiet: Quiet::default(),
            takes_pieces: false,
            state: State::Closed,
            fault: None,
            is_to_reset: false,
            bytes_sent_ns: 0,
            cork: Cork::default(),
            delays: true,
            traffic: Traffic::default(),
        }
    }

    /// The library's socket.
    pub fn socket(&self) -> &Socket<'static> {
        self.sockets.get(self.handle)
    }

    /// The same, to change it.
    pub fn socket_mut(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Is there something to read, be it the end?
    pub fn is_readable(&self) -> bool {
        self.socket().recv_queue() > 0 || !self.socket().may_recv()
    }

    /// The time on its clock.
    pub fn instant(&self, now_ns: u64) -> Instant {
        Instant::from_micros((now_ns / 1000) as i64 + self.ahead_us)
    }

    /// Advances its clock.
    pub fn advance_clock(&mut self, by: Duration) {
        self.ahead_us += by.total_micros() as i64;
    }

    /// It sent a segment.
    pub fn sent(&mut self, segment: &Segment, now_ns: u64) {
        self.retransmission.sent(segment, self.record.send_next, now_ns);
        self.quiet.sent(segment, now_ns);
        let next = self.record.send_next;
        self.record.sent(segment);
        self.traffic.sent(segment, next, self.record.on_the_way());
        if brings_bytes(segment) {
            self.bytes_sent_ns = now_ns;
        }
    }

    /// A segment came that it took as its own.
    pub fn received(&mut self, segment: &Segment, now_ns: u64) {
        let acknowledges = self.record.acknowledges_more(segment);
        let unacknowledged = self.record.send_unacknowledged;
        self.record.received(segment);
        let more = self.record.send_unacknowledged.wrapping_sub(unacknowledged);
        self.traffic.received(segment, if acknowledges { more } else { 0 }, now_ns);
        if acknowledges {
            self.bind();
            let acknowledged = self.record.send_unacknowledged;
            self.retransmission.acknowledged(acknowledged, self.record.unacknowledged(), now_ns);
        }
        self.takes_pieces |= segment.takes_pieces;
        if segment.syn || brings_bytes(segment) && before(self.heard_to, segment.end) {
            if !segment.syn {
                self.traffic.bytes_received += u64::from(segment.end.wrapping_sub(self.heard_to));
            }
            self.heard_to = segment.end;
        }
        self.heard_ns = now_ns;
    }

    /// Something is missing before what came.
    pub fn has_gap(&self) -> bool {
        before(self.record.receive_next, self.heard_to)
    }

    /// The acknowledgement that it shall not say once more. A peer that is told of pieces learns
    /// from each of them.
    pub fn suppressed(&self, now_ns: u64) -> Option<Told> {
        let told = (self.record.receive_next, self.record.receive_window);
        (!self.takes_pieces && !self.quiet.may_tell(told, now_ns)).then_some(told)
    }

    /// Makes what a segment acknowledges a segment of its own, if the library may leave the whole
    /// of it since no byte of it is new or fits: a peer that acknowledges something only there does
    /// not say it again.
    pub fn acknowledged_alone(&self, segment: &Segment) -> Option<[u8; ACKNOWLEDGEMENT_BYTES]> {
        let is_nothing_new = brings_bytes(segment) && !before(self.heard_to, segment.end);
        let may_be_left = is_nothing_new || self.record.is_beyond(segment);
        if may_be_left && self.record.acknowledges_more(segment) { self.record.without_bytes(segment) } else { None }
    }

    /// When it sends again what is unacknowledged; `None` while that is not for it to decide.
    pub fn repeats_at_ns(&self) -> Option<u64> {
        let may = self.record.unacknowledged() && !matches!(self.state, State::Closed | State::Listen);
        if may { self.retransmission.due_ns() } else { None }
    }

    /// What it sends again now, if that is due. `waits_here` tells of a number whether it has not
    /// left the machine yet: what has not is not lost, and waits as long again.
    pub fn repeats_now(&mut self, waits_here: impl FnOnce(&Pair, u32) -> bool, now_ns: u64) -> Option<Again> {
        self.repeats_at_ns().filter(|due_ns| *due_ns <= now_ns)?;
        if waits_here(&self.record.pair, self.record.send_unacknowledged) {
            self.retransmission.put_off(now_ns);
            return None;
        }
        let again = if self.retransmission.retries() < VAIN_MAX { Again::First } else { Again::All };
        self.retransmission.repeated(now_ns);
        self.traffic.lost();
        Some(again)
    }

    /// Bytes from this number on left the machine only now. If nothing before them is
    /// unacknowledged the wait for the peer begins now; true then.
    pub fn sent_late(&mut self, first: u32, now_ns: u64) -> bool {
        let is_oldest = self.record.unacknowledged() && first == self.record.send_unacknowledged;
        if is_oldest {
            self.retransmission.put_off(now_ns);
        }
        is_oldest
    }

    /// When it may be reset, if it is to be; `is_local` if its peer is in this machine.
    pub fn resets_at_ns(&self, is_local: bool) -> Option<u64> {
        let waits = !is_local && self.record.unacknowledged();
        self.is_to_reset.then_some(if waits { self.bytes_sent_ns + RESET_AFTER_NS } else { 0 })
    }

    /// Lets it send all that the peer's window takes, as soon as there are buffers, until something
    /// is acknowledged. Else the library sends the first segment alone.
    pub fn unbind(&mut self) {
        self.is_unbound = true;
        self.socket_mut().set_congestion_control(CongestionControl::None);
    }

    /// The peer has answered: it sends as slowly again as after any loss.
    fn bind(&mut self) {
        if core::mem::take(&mut self.is_unbound) {
            self.socket_mut().set_congestion_control(CongestionControl::Reno);
        }
    }

    /// Bytes a program may write now. While the peer leaves repeated segments unanswered there is
    /// room for one more: it may have them all, as passt, which acknowledges each byte once only
    /// and may lose that; new bytes it answers (the probe of RFC 8985, section 7).
    pub fn send_room(&self) -> usize {
        let most = if self.retransmission.retries() > 0 { SEND_BYTES + PROBE_BYTES } else { SEND_BYTES };
        most.saturating_sub(self.socket().send_queue() + self.cork.len())
    }

    /// Bytes that the library has and did not send yet.
    fn unsent(&self) -> usize {
        self.socket().send_queue().saturating_sub(self.record.on_the_way() as usize)
    }

    /// Writes at most `length` bytes that `source` fills in, given an offset, as far as there is
    /// room; with `holds` a rest that would go in a short segment waits for more. `BrokenPipe`,
    /// `Invalid` if the source could not.
    pub fn write(
        &mut self,
        length: usize,
        holds: bool,
        mut source: impl FnMut(usize, &mut [u8]) -> bool,
    ) -> Result<usize, Error> {
        if !self.socket().may_send() {
            return Err(Error::BrokenPipe);
        }
        let length = length.min(self.send_room());
        let all = Some(length).filter(|_| !holds);
        let goes = all.or_else(|| self.cork.goes(self.unsent(), length, self.record.segment_bytes()));
        let mut taken = 0;
        if let Some(goes) = goes {
            self.push_held();
            let delays = self.delays;
            self.socket_mut().set_nagle_enabled(delays);
            for _ in 0..2 {
                let piece = self.socket_mut().send(|room| {
                    let bytes = room.len().min(goes - taken);
                    if source(taken, &mut room[..bytes]) { (bytes, Some(bytes)) } else { (0, None) }
                });
                taken += piece.map_err(|_| Error::BrokenPipe)?.ok_or(Error::Invalid)?;
            }
        }
        let rest = length - goes.unwrap_or(0);
        if rest > 0 && !self.cork.hold(rest, |bytes| source(taken, bytes)) {
            return Err(Error::Invalid);
        }
        Ok(taken + rest)
    }

    /// Whether a short segment waits while others are not acknowledged.
    pub fn set_delays(&mut self, delays: bool) {
        // What was let go goes all the same.
        if core::mem::replace(&mut self.delays, delays) != delays {
            self.socket_mut().set_nagle_enabled(delays);
        }
    }

    /// Lets go what waits for more; it waits for no acknowledgement either, as on Linux, where it
    /// would for one of a short segment only.
    pub fn release(&mut self) {
        if self.cork.len() > 0 {
            self.push_held();
            self.socket_mut().set_nagle_enabled(false);
        }
    }

    /// Gives the library what is held. There is room for it: it was part of what could be written.
    fn push_held(&mut self) {
        let held = self.cork.take();
        if !held.is_empty() {
            // It fails only if nothing can be sent any more.
            let _ = self.socket_mut().send_slice(&held);
        }
    }

    /// What a program may know of it.
    pub fn info(&self, now_ns: u64) -> ConnectionInfo {
        let since = |then_ns: u64| (now_ns.saturating_sub(then_ns) / 1_000_000) as u32;
        // As on Linux none is 0.
        let measured = self.retransmission.measured().map(|(smoothed, variation)| (smoothed.max(1000), variation));
        let (round_trip_ns, variation_ns) = measured.unwrap_or_default();
        let [round_trip_us, variation_us, repeats_after_us] =
            [round_trip_ns, variation_ns, self.retransmission.wait_ns()].map(|ns| (ns / 1000) as u32);
        let segment_bytes = self.record.segment_bytes() as u32;
        ConnectionInfo {
            state: number_of(self.socket().state()),
            in_vain: self.retransmission.retries(),
            takes_pieces: self.takes_pieces,
            scales: self.record.send_scale.zip(self.record.receive_scale),
            repeats_after_us,
            segment_bytes,
            segments_on_the_way: self.record.on_the_way().div_ceil(segment_bytes),
            bytes_sent_before_ms: since(self.bytes_sent_ns),
            bytes_came_before_ms: since(self.traffic.bytes_came_ns),
            acknowledged_before_ms: since(self.traffic.acknowledged_ns),
            round_trip_us,
            variation_us,
            most_segments: self.traffic.most_on_the_way.div_ceil(segment_bytes).max(1),
            repeated_segments: self.traffic.repeated_segments,
            bytes_acknowledged: self.traffic.bytes_acknowledged,
            bytes_received: self.traffic.bytes_received,
            segments: [self.traffic.segments_sent, self.traffic.segments_received],
            segments_with_bytes: [self.traffic.with_bytes_sent, self.traffic.with_bytes_received],
            unsent_bytes: (self.unsent() + self.cork.len()) as u32,
            send_window: self.record.send_window,
        }
    }

    /// Nothing more will be sent for it: over, and its last reset is out.
    pub fn is_gone(&self) -> bool {
        let socket = self.socket();
        matches!(socket.state(), State::Closed | State::Listen) && socket.remote_endpoint().is_none()
    }

    /// What the record calls the state it is in.
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Closed | State::Listen | State::SynSent | State::SynReceived => Phase::Opening,
            State::Established => Phase::Open,
            State::FinWait1 | State::FinWait2 => Phase::WeEnded,
            State::CloseWait => Phase::TheyEnded,
            State::Closing | State::LastAck | State::TimeWait => Phase::Ending,
        }
    }

    /// Takes it apart; the socket can serve again.
    pub fn into_socket(self) -> SocketSet<'static> {
        self.sockets
    }
}

/// As Linux numbers them (`net/tcp_states.h`).
fn number_of(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Listen => 10,
        State::Closing => 11,
    }
}

/// Sockets in sets, new or used before.
#[derive(Default)]
pub struct BufferPool(Vec<(SocketSet<'static>, SocketHandle)>);

impl BufferPool {
    /// One with the settings of a new connection.
    pub fn take(&mut self) -> (SocketSet<'static>, SocketHandle) {
        let (mut set, handle) = self.0.pop().unwrap_or_else(|| {
            let mut set = SocketSet::new(Vec::with_capacity(1));
            let (receive, send) = (RECEIVE_BYTES + usize::from(UNTOLD) * WINDOW_UNIT, SEND_BYTES + PROBE_BYTES);
            let [receive, send] = [receive, send].map(|bytes| SocketBuffer::new(vec![0; bytes]));
            let handle = set.add(Socket::new(receive, send));
            (set, handle)
        });
        let socket = set.get_mut::<Socket<'_>>(handle);
        socket.set_congestion_control(CongestionControl::Reno);
        socket.set_keep_alive(None);
        socket.set_nagle_enabled(true);
        socket.set_timeout(None);
        (set, handle)
    }

    /// Keeps one for later, or frees it.
    pub fn put(&mut self, connection: Connection) {
        if self.0.len() < SPARE_MAX {
            let handle = connection.handle;
            let mut set = connection.into_socket();
            set.get_mut::<Socket<'_>>(handle).abort();
            self.0.push((set, handle));
        }
    }
}
