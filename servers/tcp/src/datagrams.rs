//! UDP (RFC 768): endpoints with their queues, and the packets that are made and read for them.
//!
//! Invariants: a datagram is kept or sent whole, or lost; what waits is bounded for each endpoint
//! ([`QUEUE_BYTES`]) and for all ([`ALL_BYTES`]). A datagram for this machine itself goes from
//! endpoint to endpoint and into no packet.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use contracts::descriptions::{DescriptionError as Error, DescriptionId};
use core::net::{Ipv4Addr, SocketAddrV4};
use packet::{MTU, Memory};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IPV4_HEADER_LEN, Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, Icmpv4Repr, IpProtocol, Ipv4Packet, Ipv4Repr,
    UDP_HEADER_LEN, UdpPacket, UdpRepr,
};

use crate::changes::Change;
use crate::engine::Tcp;
use crate::wire::is_host;

/// What waits at one endpoint, at most (Linux: net.core.rmem_default).
pub const QUEUE_BYTES: usize = 212_992;
/// What waits at all endpoints, at most.
const ALL_BYTES: usize = 8 << 20;
/// A datagram that waits counts so much beside its bytes.
const OVERHEAD_BYTES: usize = 64;
/// The longest datagram within the machine: what an IPv4 packet's length can say.
pub const DATAGRAM_MAX: usize = 65_507;
/// The longest one that leaves: packets are not cut into fragments.
pub const SENT_MAX: usize = MTU - IPV4_HEADER_LEN - UDP_HEADER_LEN;
/// Transmit buffers that datagrams leave to TCP.
const LEFT_TO_TCP: usize = 32;
/// "Nobody is here" is said once in this time (RFC 1812, section 4.3.2.8).
const UNREACHABLE_NS: u64 = 10_000_000;
/// What a refusal quotes of the packet: its header and eight bytes (RFC 792).
const QUOTED_BYTES: usize = 8;
const HOPS: u8 = 64;

/// A datagram that waits.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub source: SocketAddrV4,
    pub bytes: Vec<u8>,
}

impl Datagram {
    fn counted(&self) -> usize {
        self.bytes.len() + OVERHEAD_BYTES
    }
}

/// A socket's end.
#[derive(Debug, Default)]
pub(crate) struct Endpoint {
    pub local: Option<SocketAddrV4>,
    pub peer: Option<SocketAddrV4>,
    /// Others that allow it, too, may have the same port.
    pub shares: bool,
    /// What was sent met nobody.
    pub refused: bool,
    pub read_ended: bool,
    pub write_ended: bool,
    queue: VecDeque<Datagram>,
    queued_bytes: usize,
    /// It found no buffer to send.
    wants_room: bool,
}

impl Endpoint {
    pub fn first(&self) -> Option<&Datagram> {
        self.queue.front()
    }

    pub fn may_send(&self) -> bool {
        !self.wants_room
    }

    /// How well it fits a datagram; `None` if not at all.
    fn fits(&self, source: SocketAddrV4, destination: SocketAddrV4) -> Option<(bool, bool)> {
        let local = self.local.filter(|local| local.port() == destination.port())?;
        let is_named = local.ip() == destination.ip();
        if !is_named && !local.ip().is_unspecified() || self.peer.is_some_and(|peer| peer != source) {
            return None;
        }
        Some((self.peer.is_some(), is_named))
    }
}

/// All endpoints, by their descriptions.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    endpoints: BTreeMap<DescriptionId, Endpoint>,
    /// Who is bound to each port, oldest first.
    ports: BTreeMap<u16, Vec<DescriptionId>>,
    queued_bytes: usize,
    unreachable_ns: u64,
}

impl Datagrams {
    pub fn add(&mut self, id: DescriptionId) {
        self.endpoints.insert(id, Endpoint::default());
    }

    pub fn get(&self, id: DescriptionId) -> Result<&Endpoint, Error> {
        self.endpoints.get(&id).ok_or(Error::BadId)
    }

    pub fn get_mut(&mut self, id: DescriptionId) -> Result<&mut Endpoint, Error> {
        self.endpoints.get_mut(&id).ok_or(Error::BadId)
    }

    pub fn remove(&mut self, id: DescriptionId) {
        let Some(endpoint) = self.endpoints.remove(&id) else { return };
        self.queued_bytes -= endpoint.queued_bytes;
        if let Some(local) = endpoint.local
            && let Some(bound) = self.ports.get_mut(&local.port())
        {
            bound.retain(|other| *other != id);
            if bound.is_empty() {
                self.ports.remove(&local.port());
            }
        }
    }

    /// Is nobody bound to the port?
    pub fn is_free(&self, port: u16) -> bool {
        !self.ports.contains_key(&port)
    }

    /// `AddressInUse` if another has it that does not share.
    pub fn bind(&mut self, id: DescriptionId, local: SocketAddrV4) -> Result<(), Error> {
        let shares = self.get(id)?.shares;
        let meets = |other: &SocketAddrV4| {
            other.ip() == local.ip() || other.ip().is_unspecified() || local.ip().is_unspecified()
        };
        let others = self.ports.get(&local.port()).into_iter().flatten().filter_map(|id| self.endpoints.get(id));
        let mut in_the_way = others.filter(|other| other.local.as_ref().is_some_and(meets));
        if in_the_way.any(|other| !(shares && other.shares)) {
            return Err(Error::AddressInUse);
        }
        self.get_mut(id)?.local = Some(local);
        self.ports.entry(local.port()).or_default().push(id);
        Ok(())
    }

    /// Takes the oldest datagram that waits.
    pub fn take(&mut self, id: DescriptionId) -> Option<Datagram> {
        let endpoint = self.endpoints.get_mut(&id)?;
        let datagram = endpoint.queue.pop_front()?;
        endpoint.queued_bytes -= datagram.counted();
        self.queued_bytes -= datagram.counted();
        Some(datagram)
    }

    /// Whom a datagram is for: one that is connected to its source before others, one that is bound
    /// to the address before those of all, and of those that share the youngest.
    fn find(&self, source: SocketAddrV4, destination: SocketAddrV4) -> Option<DescriptionId> {
        let bound = self.ports.get(&destination.port())?;
        let fit = |id: &DescriptionId| Some((self.endpoints.get(id)?.fits(source, destination)?, *id));
        bound.iter().filter_map(fit).max().map(|(_, id)| id)
    }

    /// Keeps it for whom it is for: `None` if that is nobody. One for which there is no room is
    /// lost.
    fn deliver(&mut self, source: SocketAddrV4, destination: SocketAddrV4, bytes: &[u8]) -> Option<DescriptionId> {
        let id = self.find(source, destination)?;
        let endpoint = self.endpoints.get_mut(&id)?;
        let datagram = Datagram { source, bytes: bytes.into() };
        let counted = datagram.counted();
        let has_room = endpoint.queued_bytes + counted <= QUEUE_BYTES && self.queued_bytes + counted <= ALL_BYTES;
        if has_room && !endpoint.read_ended {
            endpoint.queued_bytes += counted;
            self.queued_bytes += counted;
            endpoint.queue.push_back(datagram);
        }
        Some(id)
    }
}

impl<M: Memory> Tcp<M> {
    /// Where datagrams to `to` come from. `Unreachable` without an address.
    pub(crate) fn source_for(&self, to: Ipv4Addr) -> Result<Ipv4Addr, Error> {
        if to.is_loopback() { Ok(Ipv4Addr::LOCALHOST) } else { self.host.ok_or(Error::Unreachable) }
    }

    /// Sends from an endpoint that is bound. `MessageTooLong`, `Unreachable`, `WouldBlock` while no
    /// buffer is free.
    pub(crate) fn send_datagram(&mut self, id: DescriptionId, to: SocketAddrV4, bytes: &[u8]) -> Result<(), Error> {
        let local = self.datagrams.get(id)?.local.ok_or(Error::Failed)?;
        let address = if local.ip().is_unspecified() { self.source_for(*to.ip())? } else { *local.ip() };
        let source = SocketAddrV4::new(address, local.port());
        if bytes.len() > DATAGRAM_MAX {
            return Err(Error::MessageTooLong);
        }
        if to.ip().is_loopback() || self.host == Some(*to.ip()) {
            match self.datagrams.deliver(source, to, bytes) {
                Some(receiver) => self.changes.note(Change::Datagrams(receiver)),
                None => self.met_nobody(id, to),
            }
            return Ok(());
        }
        if bytes.len() > SENT_MAX {
            return Err(Error::MessageTooLong);
        }
        if self.host.is_none() || address.is_loopback() || !is_host(*to.ip()) {
            return Err(Error::Unreachable);
        }
        if self.wire.free() <= LEFT_TO_TCP || !self.wire.pass(&packet_of(source, to, bytes)) {
            self.datagrams.get_mut(id)?.wants_room = true;
            return Err(Error::WouldBlock);
        }
        Ok(())
    }

    /// Only who is connected hears of it, as on Linux.
    fn met_nobody(&mut self, id: DescriptionId, to: SocketAddrV4) {
        if let Ok(endpoint) = self.datagrams.get_mut(id)
            && endpoint.peer == Some(to)
        {
            endpoint.refused = true;
            self.changes.note(Change::Datagrams(id));
        }
    }

    /// Buffers came back: who found none is told.
    pub(crate) fn datagrams_may_go(&mut self) {
        if self.wire.free() <= LEFT_TO_TCP {
            return;
        }
        for (id, endpoint) in self.datagrams.endpoints.iter_mut().filter(|(_, endpoint)| endpoint.wants_room) {
            endpoint.wants_room = false;
            self.changes.note(Change::Datagrams(*id));
        }
    }

    /// A packet from outside with a datagram in it.
    pub(crate) fn datagram_arrived(&mut self, packet: &[u8], now_ns: u64) {
        let Some((source, destination, bytes)) = opened(packet) else {
            self.counters.bad += 1;
            return;
        };
        match self.datagrams.deliver(source, destination, bytes) {
            Some(id) => self.changes.note(Change::Datagrams(id)),
            None => {
                self.counters.no_socket += 1;
                self.refuse_datagram(packet, now_ns);
            }
        }
    }

    /// Says that nobody is there, seldom.
    fn refuse_datagram(&mut self, packet: &[u8], now_ns: u64) {
        if now_ns < self.datagrams.unreachable_ns || self.wire.free() <= LEFT_TO_TCP {
            return;
        }
        self.datagrams.unreachable_ns = now_ns + UNREACHABLE_NS;
        if let Some(answer) = refusal(packet) {
            self.wire.pass(&answer);
        }
    }

    /// An ICMP message that something which we sent met nobody.
    pub(crate) fn refusal_arrived(&mut self, packet: &[u8]) {
        let Some((from, to)) = refused(packet) else { return };
        let connected = |(_, endpoint): &(&DescriptionId, &Endpoint)| {
            endpoint.peer == Some(to) && endpoint.local.is_some_and(|local| local.port() == from.port())
        };
        let id = self.datagrams.endpoints.iter().find(connected).map(|(id, _)| *id);
        if let Some(id) = id {
            self.met_nobody(id, to);
        }
    }
}

/// A whole IPv4 packet with a datagram in it.
fn packet_of(from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) -> Vec<u8> {
    let datagram = UdpRepr { src_port: from.port(), dst_port: to.port() };
    let header = Ipv4Repr {
        src_addr: *from.ip(),
        dst_addr: *to.ip(),
        next_header: IpProtocol::Udp,
        payload_len: UDP_HEADER_LEN + bytes.len(),
        hop_limit: HOPS,
    };
    let mut packet = alloc::vec![0; IPV4_HEADER_LEN + header.payload_len];
    let checksums = ChecksumCapabilities::default();
    header.emit(&mut Ipv4Packet::new_unchecked(&mut packet[..]), &checksums);
    datagram.emit(
        &mut UdpPacket::new_unchecked(&mut packet[IPV4_HEADER_LEN..]),
        &(*from.ip()).into(),
        &(*to.ip()).into(),
        bytes.len(),
        |payload| payload.copy_from_slice(bytes),
        &checksums,
    );
    packet
}

/// Source, destination and bytes of the datagram in a packet; `None` if it is malformed or its
/// checksum wrong.
fn opened(packet: &[u8]) -> Option<(SocketAddrV4, SocketAddrV4, &[u8])> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let datagram = UdpPacket::new_checked(ip.payload()).ok()?;
    let (source, destination) = (ip.src_addr(), ip.dst_addr());
    if datagram.src_port() == 0 || !datagram.verify_checksum(&source.into(), &destination.into()) {
        return None;
    }
    let from = SocketAddrV4::new(source, datagram.src_port());
    let to = SocketAddrV4::new(destination, datagram.dst_port());
    let payload = &ip.payload()[UDP_HEADER_LEN..usize::from(datagram.len())];
    Some((from, to, payload))
}

/// The answer to a datagram for nobody (RFC 1122, section 3.2.2.1).
fn refusal(packet: &[u8]) -> Option<Vec<u8>> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let (source, own) = (ip.src_addr(), ip.dst_addr());
    let quoted = &ip.payload()[..ip.payload().len().min(QUOTED_BYTES)];
    let header = Ipv4Repr::parse(&ip, &ChecksumCapabilities::ignored()).ok()?;
    let message = Icmpv4Repr::DstUnreachable { reason: Icmpv4DstUnreachable::PortUnreachable, header, data: quoted };
    let outer = Ipv4Repr {
        src_addr: own,
        dst_addr: source,
        next_header: IpProtocol::Icmp,
        payload_len: message.buffer_len(),
        hop_limit: HOPS,
    };
    let mut answer = alloc::vec![0; IPV4_HEADER_LEN + outer.payload_len];
    let checksums = ChecksumCapabilities::default();
    outer.emit(&mut Ipv4Packet::new_unchecked(&mut answer[..]), &checksums);
    message.emit(&mut Icmpv4Packet::new_unchecked(&mut answer[IPV4_HEADER_LEN..]), &checksums);
    Some(answer)
}

/// What an ICMP message says that nobody took: from where and to where it was sent.
fn refused(packet: &[u8]) -> Option<(SocketAddrV4, SocketAddrV4)> {
    let ip = Ipv4Packet::new_checked(packet).ok()?;
    let message = Icmpv4Packet::new_checked(ip.payload()).ok().filter(Icmpv4Packet::verify_checksum)?;
    let is_refusal = message.msg_type() == Icmpv4Message::DstUnreachable
        && message.msg_code() == Icmpv4DstUnreachable::PortUnreachable.into();
    // It quotes the beginning of a packet: a header whose length says more than is there.
    let quoted = message.data();
    let header = Ipv4Packet::new_unchecked(quoted);
    if !is_refusal || quoted.len() < IPV4_HEADER_LEN || header.version() != 4 {
        return None;
    }
    let ports = quoted.get(usize::from(header.header_len())..)?.first_chunk::<4>()?;
    let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
    let ends = (SocketAddrV4::new(header.src_addr(), port(0)), SocketAddrV4::new(header.dst_addr(), port(2)));
    (header.next_header() == IpProtocol::Udp).then_some(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(last: u8, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::new(10, 0, 2, last), port)
    }

    #[test]
    fn a_packet_opens_and_damage_does_not() {
        let made = packet_of(end(15, 53), end(2, 4000), b"question");
        assert_eq!(opened(&made), Some((end(15, 53), end(2, 4000), &b"question"[..])));
        for index in IPV4_HEADER_LEN..made.len() {
            let mut bad = made.clone();
            bad[index] ^= 0x20;
            assert_eq!(opened(&bad), None, "{index}");
        }
        (0..made.len()).for_each(|length| assert_eq!(opened(&made[..length]), None));
    }

    #[test]
    fn a_refusal_names_what_was_refused() {
        let made = packet_of(end(2, 4000), end(15, 53), b"question");
        let answer = refusal(&made).unwrap();
        assert_eq!(refused(&answer), Some((end(2, 4000), end(15, 53))));
        assert_eq!(refused(&made), None);
        (0..answer.len()).for_each(|length| assert_eq!(refused(&answer[..length]), None));
    }

    #[test]
    fn only_a_port_that_nobody_has_is_a_refusal() {
        let answer = refusal(&packet_of(end(2, 4000), end(15, 53), b"question")).unwrap();
        let changed = |at: usize, value: u8| {
            let mut packet = answer.clone();
            packet[at] = value;
            Icmpv4Packet::new_unchecked(&mut packet[IPV4_HEADER_LEN..]).fill_checksum();
            refused(&packet)
        };
        let quoted = IPV4_HEADER_LEN + 8;
        assert!(changed(quoted, 0x45).is_some(), "as it was");
        assert_eq!(changed(IPV4_HEADER_LEN + 1, 1), None, "a host that is not reached");
        assert_eq!(changed(IPV4_HEADER_LEN, 11), None, "a packet that was too long on its way");
        assert_eq!(changed(quoted, 0x65), None, "of IPv6");
        assert_eq!(changed(quoted + 9, 6), None, "of TCP");
        for length in quoted..quoted + IPV4_HEADER_LEN {
            let mut short = answer[..length].to_vec();
            Ipv4Packet::new_unchecked(&mut short[..]).set_total_len(length as u16);
            Icmpv4Packet::new_unchecked(&mut short[IPV4_HEADER_LEN..]).fill_checksum();
            assert_eq!(refused(&short), None, "{length}");
        }
    }

    #[test]
    fn a_datagram_goes_to_who_fits_best() {
        let mut all = Datagrams::default();
        let any = |port| SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
        (1..=4).for_each(|id| all.add(id));
        all.bind(1, any(53)).unwrap();
        assert_eq!(all.bind(2, end(15, 53)), Err(Error::AddressInUse));
        [1, 2, 3].into_iter().for_each(|id| all.get_mut(id).unwrap().shares = true);
        all.bind(2, end(15, 53)).unwrap();
        all.bind(3, end(15, 53)).unwrap();
        assert_eq!(all.bind(4, end(15, 53)), Err(Error::AddressInUse));
        all.bind(4, end(16, 54)).unwrap();
        assert_eq!(all.find(end(2, 9), end(15, 53)), Some(3));
        assert_eq!(all.find(end(2, 9), end(16, 53)), Some(1));
        assert_eq!(all.find(end(2, 9), end(15, 54)), None);
        all.get_mut(2).unwrap().peer = Some(end(2, 9));
        assert_eq!(all.find(end(2, 9), end(15, 53)), Some(2));
        all.remove(2);
        assert_eq!(all.find(end(2, 9), end(15, 53)), Some(3));
        [1, 3].into_iter().for_each(|id| all.remove(id));
        assert!(all.is_free(53) && !all.is_free(54));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut all = Datagrams::default();
        for id in 0..64 {
            all.add(id);
            all.bind(id, end(15, 1000 + id as u16)).unwrap();
            for _ in 0..QUEUE_BYTES / 1000 + 10 {
                assert_eq!(all.deliver(end(2, 9), end(15, 1000 + id as u16), &[7; 1000]), Some(id));
            }
            assert!(all.get(id).unwrap().queued_bytes <= QUEUE_BYTES && all.queued_bytes <= ALL_BYTES);
        }
        let counted = |all: &Datagrams| (all.get(0).unwrap().queued_bytes, all.queued_bytes);
        let (of_one, of_all) = counted(&all);
        all.take(0);
        assert_eq!(counted(&all), (of_one - 1000 - OVERHEAD_BYTES, of_all - 1000 - OVERHEAD_BYTES));
        (0..64).for_each(|id| while all.take(id).is_some() {});
        assert_eq!(all.queued_bytes, 0);
        all.deliver(end(2, 9), end(15, 1000), b"again");
        all.remove(0);
        assert_eq!(all.queued_bytes, 0);
    }
}
