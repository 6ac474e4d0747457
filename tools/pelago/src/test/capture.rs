//! What the record of the card's frames (pcap, by the emulator's filter-dump) says about TCP: what
//! was sent a second time, by whom ([`look`]), and what was not, though it was asked for
//! ([`silent_peers`]).
//!
//! - A segment is *sent again* if it has a SYN, a FIN or data of which a part was sent before on
//!   the same connection. What fills a gap in the record is new: the card may not have sent it.
//! - A *duplicate of the card* is a frame that the driver gave the card twice: it was sent, and the
//!   driver died before it said so. The successor gets such frames in their order before all others
//!   and so sends the last frames of its predecessor once more, byte for byte. A lone frame that
//!   equals an earlier one proves nothing: TCP repeats a segment with the same bytes if nothing was
//!   received meanwhile. So a frame is a duplicate only if it stands in a block of frames that
//!   equals the block right before it.
//! - A *probe* is one byte while the peer's window is closed (RFC 9293, section 3.8.6.1), or one
//!   byte in front of what is sent next, which no segment of its own brought before (keep-alive,
//!   section 3.8.4).
//!
//! This module knows neither components nor faults.

use anyhow::{Result, ensure};
use std::collections::{BTreeMap, HashMap};

/// QEMU's first card.
const GUEST_MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
/// So much of a frame is enough: Ethernet, and the longest headers of IP and TCP. TCP's checksum is
/// among them, so that two frames with equal heads have equal data.
pub const FRAME_BYTES: u32 = 14 + 60 + 60;
const FILE_HEAD_BYTES: usize = 24;
const FRAME_HEAD_BYTES: usize = 16;
/// The first word of a record with microseconds, written by a machine of our byte order.
const MAGIC: [u8; 4] = [0xd4, 0xc3, 0xb2, 0xa1];
/// More frames than the card's queue holds.
const BLOCK_FRAMES_MAX: usize = 512;
/// Between two frames of a load: longer than a driver is away, and shorter than the least wait
/// (200 ms) after which TCP sends again. The host, or the emulator's own network, did something
/// else.
const STILL_US: u64 = 150_000;
/// What is sent again was sent so long before at most, as long as it was not sent again before.
const BEFORE_US: u64 = 1_000_000;

/// A peer that sends nothing for so long, though it was asked for what is missing, has forgotten
/// it: TCP sends again after a few seconds at most.
const SILENCE_US: u64 = 5_000_000;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A frame of the record.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame<'a> {
    /// Microseconds of the emulator's clock.
    pub at_us: u64,
    /// On the wire; less may be in the record.
    pub length: u32,
    pub bytes: &'a [u8],
}

/// Reads a record. The last frame may be half written.
pub fn frames(record: &[u8]) -> Result<Vec<Frame<'_>>> {
    ensure!(record.starts_with(&MAGIC) && record.len() >= FILE_HEAD_BYTES, "the emulator wrote no record of frames");
    let mut rest = &record[FILE_HEAD_BYTES..];
    let mut frames = Vec::new();
    while let Some((head, behind)) = rest.split_at_checked(FRAME_HEAD_BYTES) {
        let word = |index: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| head[4 * index + byte]));
        let Some((bytes, next)) = behind.split_at_checked(word(2) as usize) else { break };
        frames.push(Frame { at_us: u64::from(word(0)) * 1_000_000 + u64::from(word(1)), length: word(3), bytes });
        rest = next;
    }
    Ok(frames)
}

/// A segment that the guest sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    pub at_us: u64,
    /// Port of the guest, address and port of its peer.
    pub pair: Pair,
    /// Since the connection's first byte.
    pub offset: u32,
    pub bytes: u32,
    pub kind: &'static str,
}

impl std::fmt::Display for Again {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Again { pair: Pair { port, peer, peer_port }, offset, bytes, kind, .. } = self;
        let [a, b, c, d] = peer;
        write!(formatter, "{kind}, {bytes} bytes at {offset}, from port {port} to {a}.{b}.{c}.{d}:{peer_port}")
    }
}

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    pub port: u16,
    pub peer: [u8; 4],
    pub peer_port: u16,
}

/// What a record shows.
#[derive(Debug, Default)]
pub struct Seen {
    pub from_guest: usize,
    pub to_guest: usize,
    /// Segments that the guest sent again.
    pub again: Vec<Again>,
    /// Segments that the card sent twice.
    pub duplicates: usize,
    pub probes: usize,
    /// Segments that the other side sent again: what it sent, or its acknowledgement, was lost.
    pub peer_again: usize,
    /// When the last frame went each way: one side may have fallen silent.
    pub last_from_us: u64,
    pub last_to_us: u64,
}

/// Looks at all frames, in their order.
pub fn look(frames: &[Frame]) -> Seen {
    let mut seen = Seen::default();
    let (mut guest, mut peer): (HashMap<Pair, Stream>, HashMap<Pair, Stream>) = Default::default();
    // Frames of the guest, and where the last equal one stands.
    let mut sent: Vec<Frame> = Vec::new();
    let mut equals: HashMap<(u32, &[u8]), usize> = HashMap::new();
    let mut suspects: Vec<(usize, Option<usize>, Again)> = Vec::new();
    for frame in frames {
        let is_guest = frame.bytes.get(6..12) == Some(&GUEST_MAC);
        let segment = Segment::of(frame.bytes, is_guest);
        if !is_guest {
            (seen.to_guest, seen.last_to_us) = (seen.to_guest + 1, frame.at_us);
            if let Some(segment) = segment {
                seen.peer_again += usize::from(peer.entry(segment.pair).or_default().send(&segment) == Sent::Again);
                guest.entry(segment.pair).or_default().peer_window = Some(segment.window);
            }
            continue;
        }
        (seen.from_guest, seen.last_from_us) = (seen.from_guest + 1, frame.at_us);
        let place = sent.len();
        sent.push(*frame);
        let before = equals.insert((frame.length, frame.bytes), place);
        let Some(segment) = segment else { continue };
        let stream = guest.entry(segment.pair).or_default();
        match stream.send(&segment) {
            Sent::New => {}
            Sent::Probe => seen.probes += 1,
            Sent::Again => suspects.push((place, before, stream.again(&segment, frame.at_us))),
        }
    }
    for (place, before, again) in suspects {
        if before.is_some_and(|before| is_in_block(&sent, place, place - before)) {
            seen.duplicates += 1;
        } else {
            seen.again.push(again);
        }
    }
    seen
}

/// Whether the frame at `place` is in a block of `length` frames that equals the block before it.
fn is_in_block(sent: &[Frame], place: usize, length: usize) -> bool {
    let is_equal = |&at: &usize| {
        let earlier = at.checked_sub(length).map(|earlier| &sent[earlier]);
        earlier.is_some_and(|earlier| (earlier.length, earlier.bytes) == (sent[at].length, sent[at].bytes))
    };
    let before = (0..place).rev().take(length).take_while(is_equal).count();
    let from_here = (place..sent.len()).take(length).take_while(is_equal).count();
    length <= BLOCK_FRAMES_MAX && before + from_here >= length
}

/// Whether no frame went either way for a while, not long before that time: then what was on its
/// way was late, and TCP repeats it whether it is lost or not.
pub fn stood_still(frames: &[Frame], at_us: u64) -> bool {
    let before = at_us.saturating_sub(BEFORE_US)..=at_us;
    let is_pause = |two: &[Frame]| two[1].at_us.saturating_sub(two[0].at_us) >= STILL_US;
    frames.windows(2).any(|two| before.contains(&two[1].at_us) && is_pause(two))
}

/// On how many connections the peer fell silent: bytes of it are missing, the guest said so after
/// they were sent last, and for a while they were not sent again. The guest sent none of its own.
/// (A guest that does not take what comes, or has all and does not answer, is not among them.)
pub fn silent_peers(frames: &[Frame]) -> usize {
    let mut open: HashMap<Pair, Asked> = HashMap::new();
    let mut silent = 0;
    for frame in frames {
        let is_guest = frame.bytes.get(6..12) == Some(&GUEST_MAC);
        let Some(segment) = Segment::of(frame.bytes, is_guest) else { continue };
        let is_over = segment.flags & (SYN | FIN | RST) != 0;
        // What ends a connection, or begins the next one with the same ports.
        if !is_guest
            && is_over
            && let Some(asked) = open.remove(&segment.pair)
        {
            silent += usize::from(asked.is_silent(frame.at_us));
        }
        let asked = open.entry(segment.pair).or_default();
        if is_guest {
            asked.guest_sent |= segment.data > 0;
            (asked.acknowledged, asked.asked_us) = (segment.acknowledged.or(asked.acknowledged), frame.at_us);
        } else if segment.length() > 0 {
            (asked.end, asked.sent_us) = (Some(segment.sequence.wrapping_add(segment.length())), frame.at_us);
        }
    }
    let end_us = frames.last().map_or(0, |frame| frame.at_us);
    silent + open.values().filter(|asked| asked.is_silent(end_us)).count()
}

/// What the guest lacks of its peer's, on a connection.
#[derive(Default)]
struct Asked {
    /// Behind what the peer sent last, and when.
    end: Option<u32>,
    sent_us: u64,
    /// What the guest acknowledged, and when it sent anything last.
    acknowledged: Option<u32>,
    asked_us: u64,
    guest_sent: bool,
}

impl Asked {
    /// Whether the peer owes something until now.
    fn is_silent(&self, now_us: u64) -> bool {
        let lacks = self.end.zip(self.acknowledged).is_some_and(|(end, has)| (has.wrapping_sub(end) as i32) < 0);
        !self.guest_sent && lacks && self.asked_us > self.sent_us && now_us - self.sent_us >= SILENCE_US
    }
}

/// Whether a frame of the guest has bytes for a program.
pub fn has_data(frame: &[u8]) -> bool {
    Segment::of(frame, true).is_some_and(|segment| segment.data > 0)
}

/// A TCP segment's part in its connection.
struct Segment {
    pair: Pair,
    sequence: u32,
    acknowledged: Option<u32>,
    window: u16,
    flags: u8,
    data: u32,
}

impl Segment {
    /// Of an Ethernet frame with IPv4 and TCP.
    fn of(frame: &[u8], is_guest: bool) -> Option<Segment> {
        let ip = frame.get(14..34).filter(|ip| frame[12..14] == [8, 0] && ip[0] >> 4 == 4 && ip[9] == 6)?;
        let ip_bytes = usize::from(ip[0] & 15) * 4;
        let tcp = frame.get(14 + ip_bytes..14 + ip_bytes + 20)?;
        let short = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let head_bytes = ip_bytes + usize::from(tcp[12] >> 4) * 4;
        let data = usize::from(u16::from_be_bytes([ip[2], ip[3]])).checked_sub(head_bytes)?;
        let address = |at: usize| [ip[at], ip[at + 1], ip[at + 2], ip[at + 3]];
        let pair = if is_guest {
            Pair { port: short(0), peer: address(16), peer_port: short(2) }
        } else {
            Pair { port: short(2), peer: address(12), peer_port: short(0) }
        };
        let long = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| tcp[at + byte]));
        Some(Segment {
            pair,
            sequence: long(4),
            acknowledged: (tcp[13] & ACK != 0).then(|| long(8)),
            window: short(14),
            flags: tcp[13],
            data: data as u32,
        })
    }

    /// What it takes of the sequence numbers.
    fn length(&self) -> u32 {
        self.data + u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0)
    }
}

/// What a segment is to those before it.
#[derive(PartialEq, Eq)]
enum Sent {
    New,
    Probe,
    Again,
}

/// One direction of a connection.
#[derive(Default)]
struct Stream {
    first: Option<u32>,
    /// What was sent, as offsets from `first`: beginnings and ends of stretches that do not touch.
    sent: BTreeMap<u32, u32>,
    /// Beginning, end and data of the segment that reached farthest.
    farthest: (u32, u32, u32),
    peer_window: Option<u16>,
}

impl Stream {
    /// Takes note of a segment.
    fn send(&mut self, segment: &Segment) -> Sent {
        if segment.flags & SYN != 0 && self.first != Some(segment.sequence) {
            // The same ports, and another connection.
            *self = Stream { first: Some(segment.sequence), ..Stream::default() };
        }
        let length = segment.length();
        if length == 0 {
            return Sent::New;
        }
        let start = segment.sequence.wrapping_sub(*self.first.get_or_insert(segment.sequence));
        let end = start.saturating_add(length);
        let (last_start, last_end, last_data) = self.farthest;
        let keeps_alive = end == last_end && (start != last_start || last_data == 0);
        if length == 1 && segment.data == 1 && (keeps_alive || self.peer_window == Some(0)) {
            return Sent::Probe;
        }
        if end > last_end {
            self.farthest = (start, end, segment.data);
        }
        let (mut from, mut to, mut is_again) = (start, end, false);
        let touching = self.sent.range(..=end).rev().take_while(|(_, other_end)| **other_end >= start);
        let touching: Vec<(u32, u32)> = touching.map(|(other, other_end)| (*other, *other_end)).collect();
        for (other, other_end) in touching {
            is_again |= other < end && other_end > start;
            (from, to) = (from.min(other), to.max(other_end));
            self.sent.remove(&other);
        }
        self.sent.insert(from, to);
        if is_again { Sent::Again } else { Sent::New }
    }

    fn again(&self, segment: &Segment, at_us: u64) -> Again {
        let kind = match segment.flags & (SYN | FIN) {
            0 => "data",
            FIN => "FIN",
            _ => "SYN",
        };
        let offset = segment.sequence.wrapping_sub(self.first.unwrap_or_default());
        Again { at_us, pair: segment.pair, offset, bytes: segment.data, kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: [u8; 6] = [0x52, 0x55, 10, 0, 2, 2];

    /// A segment of the guest's port 80 (or to it), with its head only in the record.
    #[derive(Clone)]
    struct Made {
        is_guest: bool,
        peer_port: u16,
        sequence: u32,
        acknowledged: u32,
        flags: u8,
        data: u16,
        window: u16,
    }

    fn guest(peer_port: u16, sequence: u32, flags: u8, data: u16) -> Made {
        Made { is_guest: true, peer_port, sequence, acknowledged: 1, flags, data, window: 8000 }
    }

    fn peer(peer_port: u16, sequence: u32, flags: u8, data: u16) -> Made {
        Made { is_guest: false, ..guest(peer_port, sequence, flags, data) }
    }

    fn record(all: &[Made]) -> Vec<u8> {
        let mut record = [&MAGIC[..], &[0; FILE_HEAD_BYTES - 4]].concat();
        for (number, made) in (0u32..).zip(all) {
            let (us, them) = ([10, 0, 2, 15], [10, 0, 2, 2]);
            let (source, destination, macs, ports) = if made.is_guest {
                (us, them, [PEER, GUEST_MAC], [80, made.peer_port])
            } else {
                (them, us, [GUEST_MAC, PEER], [made.peer_port, 80])
            };
            let length = (40 + made.data).to_be_bytes();
            let ip = [0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, 6, 0, 0];
            let mut frame = [&macs.concat()[..], &[8, 0], &ip, &source, &destination].concat();
            frame.extend(ports.map(u16::to_be_bytes).concat());
            frame.extend([made.sequence.to_be_bytes(), made.acknowledged.to_be_bytes()].concat());
            frame.extend([5 << 4, made.flags]);
            frame.extend([made.window.to_be_bytes(), [0; 2], [0; 2]].concat());
            let on_wire = frame.len() as u32 + u32::from(made.data);
            record.extend([number, 7, frame.len() as u32, on_wire].map(u32::to_le_bytes).concat());
            record.extend(frame);
        }
        record
    }

    fn seen(all: &[Made]) -> Seen {
        look(&frames(&record(all)).unwrap())
    }

    #[test]
    fn a_transfer_without_loss_has_nothing_again() {
        let first = u32::MAX - 100;
        let at = |offset: u32| first.wrapping_add(offset);
        let seen = seen(&[
            peer(5, 77, SYN, 0),
            guest(5, first, SYN | ACK, 0),
            peer(5, 78, ACK, 30),
            guest(5, at(1), ACK, 1460),
            guest(5, at(1461), ACK, 1460),
            // Acknowledgements may repeat.
            guest(5, at(2921), ACK, 0),
            guest(5, at(2921), ACK, 0),
            guest(5, at(2921), ACK | FIN, 0),
        ]);
        assert_eq!((seen.from_guest, seen.to_guest, seen.peer_again, seen.duplicates), (6, 2, 0, 0));
        assert_eq!((seen.again, seen.last_from_us, seen.last_to_us), (vec![], 7_000_007, 2_000_007));
    }

    #[test]
    fn what_tcp_sends_again_is_found() {
        let segments = [
            peer(5, 77, SYN, 0),
            guest(5, 1000, SYN | ACK, 0),
            guest(5, 1001, ACK, 100),
            guest(6, 1, ACK, 100),
            guest(5, 1101, ACK, 100),
            // The first one again, as it was; then a part with what follows; then SYN and FIN.
            guest(5, 1001, ACK, 100),
            guest(5, 1150, ACK, 100),
            guest(5, 1000, SYN | ACK, 0),
            guest(5, 1250, ACK | FIN, 0),
            guest(6, 101, ACK, 100),
            guest(5, 1250, ACK | FIN, 0),
            peer(5, 77, SYN, 0),
        ];
        let seen = seen(&segments);
        let again: Vec<_> = seen.again.iter().map(|again| (again.kind, again.offset, again.bytes)).collect();
        assert_eq!(again, [("data", 1, 100), ("data", 150, 100), ("SYN", 0, 0), ("FIN", 250, 0)]);
        assert_eq!((seen.duplicates, seen.peer_again), (0, 1));
        assert_eq!(seen.again[0].to_string(), "data, 100 bytes at 1, from port 80 to 10.0.2.2:5");
    }

    /// Frames with a pause of so many seconds before each.
    fn at(mut frames: Vec<u8>, pauses: &[u32]) -> Vec<u8> {
        let (mut place, mut seconds) = (FILE_HEAD_BYTES, 0);
        for pause in pauses {
            seconds += pause;
            frames[place..place + 4].copy_from_slice(&u32::to_le_bytes(seconds));
            place += FRAME_HEAD_BYTES + u32::from_le_bytes([8, 9, 10, 11].map(|byte| frames[place + byte])) as usize;
        }
        frames
    }

    #[test]
    fn a_peer_is_silent_that_was_asked_and_sends_nothing() {
        let silent = |all: &[Made], pauses: &[u32]| silent_peers(&super::frames(&at(record(all), pauses)).unwrap());
        let has = |acknowledged| Made { acknowledged, ..guest(5, 1001, ACK, 0) };
        let opened = || [peer(5, 77, SYN, 0), Made { acknowledged: 78, ..guest(5, 1000, SYN | ACK, 0) }];
        let request = || peer(5, 78, ACK, 30);
        let rest = || peer(5, 108, FIN | ACK, 0);
        // The request was lost, the guest says so, and 20 s later the peer gives up.
        let forgotten = [&opened()[..], &[request(), has(78), rest()]].concat();
        assert_eq!(silent(&forgotten, &[0, 0, 0, 1, 19]), 1);
        // It was late, and came.
        assert_eq!(silent(&forgotten, &[0, 0, 0, 1, 2]), 0);
        // The guest has all and does not answer; it does not ask; it does not take what comes.
        assert_eq!(silent(&[&opened()[..], &[request(), has(108), rest()]].concat(), &[0, 0, 0, 1, 19]), 0);
        assert_eq!(silent(&[&opened()[..], &[request(), rest()]].concat(), &[0, 0, 0, 20]), 0);
        assert_eq!(
            silent(&[&opened()[..], &[request(), has(78), request(), rest()]].concat(), &[0, 0, 0, 1, 1, 19]),
            0
        );
        // It has answered some.
        let answer = Made { acknowledged: 78, ..guest(5, 1001, ACK, 10) };
        assert_eq!(silent(&[&opened()[..], &[request(), answer, rest()]].concat(), &[0, 0, 0, 1, 19]), 0);
        // The record ends, or the ports are used again, before the peer gives up.
        let other = guest(6, 1, ACK, 10);
        assert_eq!(silent(&[&opened()[..], &[request(), has(78), other]].concat(), &[0, 0, 0, 1, 19]), 1);
        let again = [&opened()[..], &[request(), has(78)], &opened()].concat();
        assert_eq!(silent(&again, &[0, 0, 0, 1, 19, 0]), 1);
    }

    #[test]
    fn what_fills_a_gap_is_new() {
        let seen = seen(&[guest(5, 0, ACK, 10), guest(5, 20, ACK, 10), guest(5, 10, ACK, 10), guest(5, 30, ACK, 10)]);
        assert_eq!((seen.again, seen.duplicates), (vec![], 0));
    }

    #[test]
    fn ports_that_are_used_again_are_another_connection() {
        let seen =
            seen(&[guest(5, 0, SYN | ACK, 0), guest(5, 1, ACK, 10), guest(5, 2, SYN | ACK, 0), guest(5, 3, ACK, 9)]);
        assert_eq!(seen.again, []);
    }

    #[test]
    fn the_cards_last_frames_in_their_order_are_its_duplicates() {
        // Three frames that the card had sent and the driver had not told of, and those behind.
        let seen = seen(&[
            guest(5, 0, ACK, 10),
            guest(6, 0, ACK, 10),
            guest(7, 0, ACK, 0),
            guest(5, 10, ACK, 10),
            guest(6, 0, ACK, 10),
            guest(7, 0, ACK, 0),
            guest(5, 10, ACK, 10),
            guest(6, 10, ACK, 10),
            // That was TCP: what lies between does not come again.
            guest(5, 10, ACK, 10),
        ]);
        let again: Vec<_> = seen.again.iter().map(|again| (again.pair.peer_port, again.offset)).collect();
        assert_eq!((seen.duplicates, again), (2, vec![(5, 10)]));
    }

    #[test]
    fn a_byte_for_a_closed_window_is_a_probe() {
        let closed = Made { window: 0, ..peer(5, 1, ACK, 0) };
        let seen = seen(&[
            guest(5, 0, ACK, 10),
            closed,
            guest(5, 10, ACK, 1),
            guest(5, 10, ACK, 1),
            peer(5, 1, ACK, 0),
            guest(5, 10, ACK, 10),
        ]);
        assert_eq!((seen.probes, seen.again), (2, vec![]));
    }

    #[test]
    fn a_byte_in_front_of_the_next_is_a_probe_unless_it_was_a_segment() {
        let seen = seen(&[
            guest(5, 100, SYN | ACK, 0),
            guest(5, 100, ACK, 1),
            guest(5, 101, ACK, 10),
            guest(5, 110, ACK, 1),
            guest(5, 111, ACK, 1),
            guest(6, 0, ACK, 1),
            guest(5, 111, ACK, 1),
        ]);
        let again: Vec<_> = seen.again.iter().map(|again| (again.offset, again.bytes)).collect();
        assert_eq!((seen.probes, again), (2, vec![(11, 1)]));
    }

    #[test]
    fn only_a_pause_just_before_is_a_standstill() {
        // A frame a second.
        let record = record(&[0, 1, 2].map(|number| guest(5, number, ACK, 1)));
        let mut frames = frames(&record).unwrap();
        assert!(stood_still(&frames, 2_000_007) && stood_still(&frames, 2_900_000));
        assert!(!stood_still(&frames, 3_000_008), "it was long before");
        for (frame, at_us) in frames.iter_mut().zip([1_900_000, 2_000_000, 2_149_999]) {
            frame.at_us = at_us;
        }
        assert!(!stood_still(&frames, 2_149_999));
    }

    #[test]
    fn a_half_written_frame_is_left_out() {
        let whole = record(&[guest(5, 0, ACK, 0), guest(5, 0, ACK, 0)]);
        assert_eq!(frames(&whole[..whole.len() - 1]).unwrap().len(), 1);
        assert!(frames(b"no record").is_err());
    }
}
