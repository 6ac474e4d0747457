//! One TCP segment as far as this component looks into it: who, which numbers, which flags.
//!
//! Decoded from bytes that nobody else can change any more. Sequence numbers compare modulo 2^32
//! ([`before`]).

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use etherparse::checksum::Sum16BitWords;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv4Repr, TcpControl, TcpOption, TcpPacket, TcpRepr, TcpSeqNumber};

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// Our end.
    pub local: SocketAddrV4,
    /// The other.
    pub remote: SocketAddrV4,
}

/// A segment, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Sender.
    pub source: SocketAddrV4,
    /// Receiver.
    pub destination: SocketAddrV4,
    /// Number of its first byte.
    pub sequence: u32,
    /// Number after its last byte, SYN and FIN counted.
    pub end: u32,
    /// What it acknowledges.
    pub acknowledged: Option<u32>,
    /// Its window field, not scaled.
    pub window: u16,
    /// Flags.
    pub syn: bool,
    /// Flags.
    pub fin: bool,
    /// Flags.
    pub reset: bool,
    /// Options of a SYN: window scale and largest segment.
    pub scale: Option<u8>,
    /// Largest segment, 0 if not said.
    pub segment_max: u16,
    /// Its sender can be told which pieces came after a gap (SACK permitted, RFC 2018).
    pub takes_pieces: bool,
}

/// Is `a` before `b`? Sequence numbers wrap.
pub fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Segment {
    /// Decodes an IPv4 packet; `None` if it is malformed. With `verify`, also if TCP's checksum is
    /// wrong.
    pub fn decode(packet: &[u8], verify: bool) -> Option<Segment> {
        let ip = Ipv4Packet::new_checked(packet).ok()?;
        if ip.next_header() != IpProtocol::Tcp {
            return None;
        }
        let tcp = TcpPacket::new_checked(ip.payload()).ok()?;
        if verify && checksum(packet) != 0 || tcp.src_port() == 0 || tcp.dst_port() == 0 {
            return None;
        }
        let (mut scale, mut segment_max, mut takes_pieces, mut options) = (None, 0, false, tcp.options());
        while tcp.syn() && !options.is_empty() {
            let (rest, option) = TcpOption::parse(options).ok()?;
            match option {
                TcpOption::WindowScale(value) => scale = Some(value.min(14)),
                TcpOption::MaxSegmentSize(value) => segment_max = value,
                TcpOption::SackPermitted => takes_pieces = true,
                TcpOption::EndOfList => break,
                _ => {}
            }
            options = rest;
        }
        let sequence = tcp.seq_number().0 as u32;
        Some(Segment {
            source: SocketAddrV4::new(ip.src_addr(), tcp.src_port()),
            destination: SocketAddrV4::new(ip.dst_addr(), tcp.dst_port()),
            sequence,
            end: sequence.wrapping_add(tcp.segment_len() as u32),
            acknowledged: tcp.ack().then(|| tcp.ack_number().0 as u32),
            window: tcp.window_len(),
            syn: tcp.syn(),
            fin: tcp.fin(),
            reset: tcp.rst(),
            scale,
            segment_max,
            takes_pieces,
        })
    }

    /// Whether it is an acknowledgement and nothing else.
    pub fn is_bare(&self) -> bool {
        self.acknowledged.is_some() && self.end == self.sequence && !self.reset
    }

    /// The connection of a segment that we received.
    pub fn received_pair(&self) -> Pair {
        Pair { local: self.destination, remote: self.source }
    }

    /// The connection of a segment that we sent.
    pub fn sent_pair(&self) -> Pair {
        Pair { local: self.source, remote: self.destination }
    }
}

/// TCP's checksum of a whole IPv4 packet with TCP in it (RFC 9293, section 3.1); 0 if the one that
/// it holds is right.
fn checksum(packet: &[u8]) -> u16 {
    let ip = Ipv4Packet::new_unchecked(packet);
    let payload = ip.payload();
    Sum16BitWords::new()
        .add_4bytes(ip.src_addr().octets())
        .add_4bytes(ip.dst_addr().octets())
        .add_2bytes([0, IpProtocol::Tcp.into()])
        .add_2bytes((payload.len() as u16).to_be_bytes())
        .add_slice(payload)
        .ones_complement()
        .to_be()
}

/// Makes the checksum of TCP in such a packet.
pub fn fill_checksum(packet: &mut [u8]) {
    let set = |packet: &mut [u8], sum| {
        TcpPacket::new_unchecked(Ipv4Packet::new_unchecked(packet).payload_mut()).set_checksum(sum)
    };
    set(packet, 0);
    let sum = checksum(packet);
    set(packet, sum);
}

/// Tells a window by so many units shorter, or none; the checksum is left as it is.
pub fn shorten_window(packet: &mut [u8], units: u16) {
    let mut ip = Ipv4Packet::new_unchecked(packet);
    if ip.next_header() == IpProtocol::Tcp {
        let mut tcp = TcpPacket::new_unchecked(ip.payload_mut());
        tcp.set_window_len(tcp.window_len().saturating_sub(units));
    }
}

/// The first bytes of a packet's, without the end of the stream; TCP's checksum is left as it is.
pub fn shortened(packet: &[u8], bytes: usize) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let mut ip = Ipv4Packet::new_unchecked(&mut packet[..]);
    let mut tcp = TcpPacket::new_unchecked(ip.payload_mut());
    tcp.set_fin(false);
    let headers = ip.header_len() as usize + TcpPacket::new_unchecked(ip.payload_mut()).header_len() as usize;
    let length = (ip.total_len() as usize).min(headers + bytes);
    ip.set_total_len(length as u16);
    ip.fill_checksum();
    packet.truncate(length);
    packet
}

/// The same packet with another acknowledgement; its checksum is left as it is.
pub fn with_acknowledgement(packet: &[u8], number: u32, window: u16) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let mut ip = Ipv4Packet::new_unchecked(&mut packet[..]);
    let mut tcp = TcpPacket::new_unchecked(ip.payload_mut());
    tcp.set_ack_number(TcpSeqNumber(number as i32));
    tcp.set_window_len(window);
    packet
}

/// Bytes of an acknowledgement.
pub const ACKNOWLEDGEMENT_BYTES: usize = 40;

/// An acknowledgement without data, as a whole IPv4 packet.
pub fn acknowledgement(pair: Pair, sequence: u32, acknowledged: u32, window: u16) -> [u8; ACKNOWLEDGEMENT_BYTES] {
    let segment = TcpRepr {
        src_port: pair.local.port(),
        dst_port: pair.remote.port(),
        control: TcpControl::None,
        seq_number: TcpSeqNumber(sequence as i32),
        ack_number: Some(TcpSeqNumber(acknowledged as i32)),
        window_len: window,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    let (source, destination): (Ipv4Addr, Ipv4Addr) = (*pair.local.ip(), *pair.remote.ip());
    let header = Ipv4Repr {
        src_addr: source,
        dst_addr: destination,
        next_header: IpProtocol::Tcp,
        payload_len: segment.buffer_len(),
        hop_limit: 64,
    };
    let mut bytes = [0; ACKNOWLEDGEMENT_BYTES];
    let checksums = ChecksumCapabilities::default();
    header.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[..]), &checksums);
    let mut packet = TcpPacket::new_unchecked(&mut bytes[header.buffer_len()..]);
    segment.emit(&mut packet, &source.into(), &destination.into(), &checksums);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_decodes_and_damage_does_not() {
        let end = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, last), port);
        let pair = Pair { local: end(15, 80), remote: end(2, 4000) };
        let bytes = acknowledgement(pair, u32::MAX, 7, 1000);
        let segment = Segment::decode(&bytes, true).unwrap();
        assert_eq!(segment.sent_pair(), pair);
        assert_eq!(
            (segment.sequence, segment.end, segment.acknowledged, segment.window),
            (u32::MAX, u32::MAX, Some(7), 1000)
        );
        for index in 20..bytes.len() {
            let mut bad = bytes;
            bad[index] ^= 0x20;
            assert_eq!(Segment::decode(&bad, true), None, "byte {index}");
            let _ = Segment::decode(&bytes[..index], true);
        }
    }

    #[test]
    fn the_checksum_is_the_librarys() {
        for payload in [0, 1, 2, 3, 7, 8, 13, 64, 1459, 1460] {
            let ip = Ipv4Repr {
                src_addr: Ipv4Addr::new(10, 0, 2, 15),
                dst_addr: Ipv4Addr::new(192, 168, 255, 254),
                next_header: IpProtocol::Tcp,
                payload_len: 20 + payload,
                hop_limit: 64,
            };
            let mut packet: Vec<u8> = (0..40 + payload).map(|index| (index * index) as u8).collect();
            ip.emit(&mut Ipv4Packet::new_unchecked(&mut packet[..]), &ChecksumCapabilities::default());
            TcpPacket::new_unchecked(&mut packet[20..]).set_header_len(20);
            fill_checksum(&mut packet);
            let tcp = TcpPacket::new_checked(&packet[20..]).unwrap();
            assert!(tcp.verify_checksum(&ip.src_addr.into(), &ip.dst_addr.into()), "{payload} bytes");
            assert_eq!(checksum(&packet), 0, "{payload} bytes");
            packet[39 + payload] ^= 1;
            assert_ne!(checksum(&packet), 0, "{payload} bytes, one of them another");
        }
    }

    #[test]
    fn only_an_acknowledgement_with_nothing_else_is_bare_and_a_shortened_packet_is_as_long_as_it_says() {
        let end = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, last), port);
        let pair = Pair { local: end(15, 80), remote: end(2, 4000) };
        let bare = Segment::decode(&acknowledgement(pair, 5, 7, 1000), true).unwrap();
        assert!(bare.is_bare());
        assert!(!Segment { end: 6, ..bare }.is_bare() && !Segment { acknowledged: None, ..bare }.is_bare());
        assert!(!Segment { reset: true, ..bare }.is_bare());
        let mut packet = acknowledgement(pair, 5, 7, 1000).to_vec();
        packet.extend([7; 100]);
        Ipv4Packet::new_unchecked(&mut packet[..]).set_total_len(140);
        for (bytes, length) in [(0, 40), (10, 50), (100, 140), (200, 140)] {
            let short = shortened(&packet, bytes);
            assert_eq!((short.len(), Ipv4Packet::new_unchecked(&short[..]).total_len()), (length, length as u16));
        }
    }

    #[test]
    fn sequence_numbers_wrap() {
        assert!(before(u32::MAX, 0) && before(1, 2) && !before(2, 2) && !before(0, u32::MAX));
    }
}
