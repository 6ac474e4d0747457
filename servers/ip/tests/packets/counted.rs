//! Each frame and packet is counted once, as what it is; its buffer comes back or is somebody's.

use crate::machine::*;
use ip::Ip;
use packet::{BUFFERS, BufferSet, IP_TRANSMIT_BUFFERS, Memory, OutOfBounds, Span};
use smoltcp::wire::*;
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;

/// Which counters moved since, and by how much.
fn moved(before: &[(&'static str, u64)], ip: &Ip<Region>) -> Vec<(&'static str, u64)> {
    let now = ip.counters().list();
    let all = before.iter().zip(now).map(|((name, before), (_, now))| (*name, now - before));
    all.filter(|(_, count)| *count > 0).collect()
}

fn counts(ip: &Ip<Region>) -> Vec<(&'static str, u64)> {
    ip.counters().list().collect()
}

/// As the counters stand.
fn in_order<const N: usize>(mut counts: [(&'static str, u64); N]) -> Vec<(&'static str, u64)> {
    let names: Vec<_> = ip::Counters::default().list().map(|(name, _)| name).collect();
    counts.sort_by_key(|(name, _)| names.iter().position(|known| known == name));
    counts.into()
}

fn change(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

fn udp(port: u16) -> Vec<u8> {
    let datagram = [[0x12, 0x34], port.to_be_bytes(), [0, 8], [0, 0]].concat();
    ethernet(OUR_ETHERNET, EthernetProtocol::Ipv4, &ipv4(PEER, OURS, IpProtocol::Udp, &datagram))
}

fn tcp_to(destination: Ipv4Addr) -> Vec<u8> {
    ethernet(OUR_ETHERNET, EthernetProtocol::Ipv4, &ipv4(PEER, destination, IpProtocol::Tcp, &[7; 20]))
}

/// Where fields of an Ethernet frame with ARP lie (RFC 826).
const SOURCE: usize = 6;
const ARP_SOURCE: usize = 14 + 8;
const ARP_SOURCE_PROTOCOL: usize = 14 + 14;
const MULTICAST: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];

#[test]
fn each_frame_is_counted_as_what_it_is() {
    let request = || arp(ArpOperation::Request, OURS);
    let stranger = EthernetAddress([2, 0, 0, 0, 0, 77]);
    let cases: [(&str, Vec<u8>); 13] = [
        ("bad_ethernet", vec![0; 10]),
        ("bad_ethernet", change(ping(), SOURCE, &MULTICAST)),
        ("other_ethernet", ethernet(stranger, EthernetProtocol::Arp, &request()[14..])),
        ("other_protocol", ethernet(OUR_ETHERNET, EthernetProtocol::Ipv6, &[0; 40])),
        ("bad_arp", ethernet(OUR_ETHERNET, EthernetProtocol::Arp, &[0; 28])),
        ("bad_arp", change(request(), ARP_SOURCE, &MULTICAST)),
        ("bad_arp", change(request(), ARP_SOURCE_PROTOCOL, &[8, 8, 8, 8])),
        ("bad_arp", change(request(), ARP_SOURCE_PROTOCOL, &[0, 0, 0, 0])),
        ("other_destination", tcp_to(Ipv4Addr::new(10, 0, 2, 16))),
        ("bad_dhcp", udp(68)),
        ("to_tcp", udp(69)),
        ("to_tcp", tcp_to(OURS)),
        ("echoes", ping()),
    ];
    for (name, frame) in cases {
        let machine = Machine::new();
        let mut ip = running(&machine);
        let before = counts(&ip);
        ip.received(&[machine.arrive(9, &frame)], 2);
        assert_eq!(moved(&before, &ip), in_order([("frames", 1), (name, 1)]), "{frame:x?}");
        let output = ip.take_output();
        let passed = output.received.iter().map(|span| span.buffer).chain(output.released.iter().copied());
        assert_eq!(passed.collect::<Vec<_>>(), [9]);
        assert_eq!(output.received.len() == 1, name == "to_tcp");
        assert_eq!(output.transmit.len() == 1, name == "echoes");
    }
    let machine = Machine::new();
    let mut ip = running(&machine);
    let before = counts(&ip);
    ip.received(&[Span { buffer: 9, offset: 2040, length: 60 }], 2);
    assert_eq!(moved(&before, &ip), [("frames", 1), ("bad_span", 1)]);
    assert_eq!(ip.take_output().released, [9]);
}

/// A segment whose IPv4 header is another one, with a right sum if that is to be.
fn header(sum: bool, change: impl FnOnce(&mut Ipv4Packet<&mut [u8]>)) -> Vec<u8> {
    let mut frame = tcp_to(OURS);
    let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
    change(&mut packet);
    if sum {
        packet.fill_checksum();
    }
    frame
}

fn icmp(kind: u8) -> Vec<u8> {
    let mut message = [kind, 1, 0, 0, 0, 0, 0, 0].to_vec();
    message.extend_from_slice(&[7; 28]);
    Icmpv4Packet::new_unchecked(&mut message[..]).fill_checksum();
    ethernet(OUR_ETHERNET, EthernetProtocol::Ipv4, &ipv4(PEER, OURS, IpProtocol::Icmp, &message))
}

#[test]
fn each_packet_is_counted_as_what_it_is() {
    let whole = (20 + 20) as u16;
    let cases: [(&str, Vec<u8>); 17] = [
        ("bad_header", tcp_to(OURS)[..14 + 19].to_vec()),
        ("bad_header", header(true, |packet| packet.set_version(5))),
        ("bad_header", header(true, |packet| packet.set_header_len(16))),
        ("bad_header", header(true, |packet| packet.set_total_len(19))),
        ("bad_header", header(true, |packet| packet.set_total_len(whole + 1))),
        ("bad_checksum", header(false, |packet| packet.set_hop_limit(9))),
        ("bad_time_to_live", header(true, |packet| packet.set_hop_limit(0))),
        ("fragment", header(true, |packet| packet.set_more_frags(true))),
        ("fragment", header(true, |packet| packet.set_frag_offset(8))),
        ("bad_source", header(true, |packet| packet.set_src_addr(Ipv4Addr::BROADCAST))),
        ("bad_source", header(true, |packet| packet.set_src_addr(OURS))),
        ("other_transport", header(true, |packet| packet.set_next_header(IpProtocol::IpSecEsp))),
        ("bad_icmp", change(icmp(8), 14 + 20 + 2, &[0, 0])),
        ("bad_icmp", icmp(8)[..14 + 20].to_vec()),
        ("other_icmp", icmp(0)),
        ("to_tcp", icmp(3)),
        ("echoes", icmp(8)),
    ];
    for (name, mut frame) in cases {
        let machine = Machine::new();
        let mut ip = running(&machine);
        let before = counts(&ip);
        if frame.len() == 14 + 20 {
            let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
            packet.set_total_len(20);
            packet.fill_checksum();
        }
        ip.received(&[machine.arrive(9, &frame)], 2);
        assert_eq!(moved(&before, &ip), in_order([("frames", 1), (name, 1)]), "{frame:x?}");
        let output = ip.take_output();
        assert_eq!((output.received.len(), output.released.len()), if name == "to_tcp" { (1, 0) } else { (0, 1) });
    }
    // Without TCP nobody is told of what met nobody, and datagrams are dropped.
    for (name, frame) in [("other_icmp", icmp(3)), ("no_tcp", udp(69))] {
        let machine = Machine::new();
        let mut ip = running(&machine);
        ip.detach_tcp();
        let before = counts(&ip);
        ip.received(&[machine.arrive(9, &frame)], 2);
        assert_eq!(moved(&before, &ip), in_order([("frames", 1), (name, 1)]));
        assert_eq!(ip.take_output().released, [9]);
    }
}

#[test]
fn answers_that_are_none_of_dhcps_are_counted() {
    let machine = Machine::new();
    let datagram = |from: u16, bytes: u16| {
        let datagram = [from.to_be_bytes(), 68u16.to_be_bytes(), bytes.to_be_bytes(), [0; 2]].concat();
        ethernet(OUR_ETHERNET, EthernetProtocol::Ipv4, &ipv4(PEER, OURS, IpProtocol::Udp, &datagram))
    };
    // From another port; longer than it is; empty.
    for frame in [datagram(66, 8), datagram(67, 9), datagram(67, 8)] {
        let mut ip = running(&machine);
        let before = counts(&ip);
        ip.received(&[machine.arrive(9, &frame)], 2);
        assert_eq!(moved(&before, &ip), in_order([("frames", 1), ("bad_dhcp", 1)]));
    }
}

/// A driver writes while IP looks: from the second look on a byte is another.
struct Changing {
    bytes: Region,
    looks: Cell<u32>,
    at: usize,
    value: u8,
}

impl Memory for Changing {
    fn read(&self, offset: usize, bytes: &mut [u8]) -> core::result::Result<(), OutOfBounds> {
        self.looks.set(self.looks.get() + 1);
        if self.looks.get() == 2 {
            self.bytes.write(self.at, &[self.value])?;
        }
        self.bytes.read(offset, bytes)
    }
    fn write(&self, offset: usize, bytes: &[u8]) -> core::result::Result<(), OutOfBounds> {
        self.bytes.write(offset, bytes)
    }
}

#[test]
fn a_header_that_changes_while_it_is_looked_at_is_not_sent_back() {
    // Version and header length; the total length, from both its ends.
    for (at, value) in [(0, 0x55), (0, 0x46), (2, 1), (3, 1), (3, 60)] {
        let machine = Machine::new();
        let span = machine.arrive(0, &ping());
        let at = usize::from(span.offset) + 14 + at;
        let memory = Rc::new(Changing { bytes: machine.receive.clone(), looks: Cell::default(), at, value });
        let other = |bytes: &Region| Rc::new(Changing { bytes: bytes.clone(), looks: Cell::new(2), at: 0, value: 0 });
        let host = ip::Host { address: OURS, prefix_bits: 24, gateway: None };
        let mut ip = Ip::new(memory, other(&machine.transmit), other(&machine.state), Some(host));
        ip.attach_driver(link(BufferSet::EMPTY), 0);
        ip.received(&[span], 1);
        let counters = ip.counters();
        assert_eq!((counters.bad_header, counters.echoes), (1, 0), "{at} {value}");
        assert!(ip.take_output().transmit.is_empty());
    }
}

/// Only who asks for our address is answered, and believed unasked.
#[test]
fn arp_for_others_and_answers_that_nobody_asked_for_are_nothing() {
    let machine = Machine::new();
    for frame in [arp(ArpOperation::Request, Ipv4Addr::new(10, 0, 2, 99)), arp(ArpOperation::Reply, OURS)] {
        let mut ip = machine.ip();
        ip.attach_driver(link(BufferSet::EMPTY), 0);
        ip.attach_tcp();
        ip.received(&[machine.arrive(0, &frame)], 1);
        assert!(ip.take_output().transmit.is_empty());
        ip.send(&[machine.packet(40, PEER)], 2);
        assert!(ip.take_output().transmit.is_empty(), "it does not know the neighbour");
    }
}

#[test]
fn arp_says_who_asks_and_who_is_asked() {
    let machine = Machine::new();
    let mut ip = machine.ip();
    let sent = |ip: &mut Ip<Region>| {
        let frame = machine.sent(ip.take_output().transmit[0]);
        ArpRepr::parse(&ArpPacket::new_checked(&frame[14..]).unwrap()).unwrap()
    };
    let said = |operation, target_hardware_addr| ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: OUR_ETHERNET,
        source_protocol_addr: OURS,
        target_hardware_addr,
        target_protocol_addr: PEER,
    };
    ip.attach_driver(link(BufferSet::EMPTY), 0);
    ip.attach_tcp();
    ip.send(&[machine.packet(40, PEER)], 2);
    ip.poll(2);
    assert_eq!(sent(&mut ip), said(ArpOperation::Request, EthernetAddress([0; 6])));
    let mut ip = machine.ip();
    ip.attach_driver(link(BufferSet::EMPTY), 0);
    ip.received(&[machine.arrive(0, &arp(ArpOperation::Request, OURS))], 1);
    assert_eq!(sent(&mut ip), said(ArpOperation::Reply, PEER_ETHERNET));
}

#[test]
fn what_tcp_sends_is_counted_and_comes_back() {
    let machine = Machine::new();
    let mut ip = running(&machine);
    let before = counts(&ip);
    // Its first buffer and its last.
    let buffers = [IP_TRANSMIT_BUFFERS, BUFFERS - 1];
    ip.send(&buffers.map(|buffer| machine.packet(buffer, PEER)), 2);
    assert_eq!(moved(&before, &ip), [("from_tcp", 2)]);
    ip.take_output();
    ip.transmitted(&buffers);
    assert_eq!(ip.take_output().sent, buffers);

    // Nobody is told who is not there.
    ip.send(&[machine.packet(40, PEER)], 3);
    ip.detach_tcp();
    ip.transmitted(&[40]);
    assert!(ip.take_output().sent.is_empty());
}

#[test]
fn who_cannot_be_reached_costs_no_buffer() {
    let machine = Machine::new();
    let nobody = Ipv4Addr::new(10, 0, 2, 99);
    let mut ip = running(&machine);
    let before = counts(&ip);
    ip.send(&[machine.packet(40, Ipv4Addr::BROADCAST)], 2);
    assert_eq!(moved(&before, &ip), [("from_tcp", 1), ("unreachable", 1)]);
    assert_eq!(ip.take_output().sent, [40]);

    // One that does not answer.
    let before = counts(&ip);
    ip.send(&[41, 42].map(|buffer| machine.packet(buffer, nobody)), 3);
    let mut sent = Vec::new();
    while let Some(now) = ip.next_ns() {
        ip.poll(now);
        let output = ip.take_output();
        ip.transmitted(&output.transmit.iter().map(|span| span.buffer).collect::<Vec<_>>());
        sent.extend(output.sent);
    }
    assert_eq!((moved(&before, &ip), sent), (vec![("from_tcp", 2), ("unreachable", 2)], vec![41, 42]));

    // More than may wait.
    let before = counts(&ip);
    let buffers: Vec<u16> = (40..120).collect();
    ip.send(&buffers.iter().map(|&buffer| machine.packet(buffer, nobody)).collect::<Vec<_>>(), 4);
    let refused = ip.take_output().sent;
    assert_eq!(moved(&before, &ip), [("from_tcp", 80), ("unreachable", refused.len() as u64)]);
    assert_eq!(refused, (104..120).collect::<Vec<_>>());
}

/// It has buffers of its own for what it says itself, each of which is on its way once.
#[test]
fn its_own_buffers_are_used_one_at_a_time() {
    let machine = Machine::new();
    let mut ip = running(&machine);
    let before = counts(&ip);
    let echo = |ip: &mut Ip<Region>| {
        ip.received(&[machine.arrive(9, &ping())], 2);
        ip.take_output().transmit.iter().map(|span| span.buffer).collect::<Vec<_>>()
    };
    let mut used = BufferSet::EMPTY;
    for _ in 0..IP_TRANSMIT_BUFFERS {
        let [buffer] = echo(&mut ip)[..] else { panic!("an answer") };
        assert!(buffer < IP_TRANSMIT_BUFFERS && used.insert(buffer), "{buffer}");
    }
    assert!(echo(&mut ip).is_empty());
    let count = u64::from(IP_TRANSMIT_BUFFERS) + 1;
    assert_eq!(moved(&before, &ip), [("frames", count), ("echoes", count), ("no_buffer", 1)]);
    ip.transmitted(&[3]);
    assert_eq!(echo(&mut ip), [3]);
}

/// What waited for a driver says who sends it, if that driver's card has another address; what a
/// predecessor sent is nobody's to write to.
#[test]
fn what_waits_for_another_card_is_sent_from_that() {
    const OTHER: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 3]);
    let machine = Machine::new();
    let mut ip = running(&machine);
    assert!(ip.driver_attached());
    ip.detach_driver();
    assert!(!ip.driver_attached());
    ip.send(&[machine.packet(40, PEER)], 3);
    ip.take_output();
    ip.attach_driver(link(BufferSet::range(50, 51)), 4);
    let frame = machine.sent(ip.take_output().transmit[0]);
    ip.detach_driver();
    let marked = Span { buffer: 50, offset: 0, length: 20 };
    let before = machine.sent(marked);
    ip.attach_driver(ip::Link { ethernet: OTHER, ..link(BufferSet::range(50, 51)) }, 5);
    let output = ip.take_output();
    assert_eq!(output.transmit.len(), 1);
    assert_eq!(machine.sent(output.transmit[0]), change(frame, SOURCE, &OTHER.0));
    assert_eq!(machine.sent(marked), before);
    assert_eq!(ip.counters().resubmitted, 2);
}

/// Machines that start together do not speak of one transaction.
#[test]
fn each_card_has_a_transaction_of_its_own() {
    let machine = Machine::new();
    for now_ns in [0, u64::from(u32::MAX), 1 << 20] {
        let transaction = |last: u8| {
            let mut ip = Ip::new(machine.receive.clone(), machine.transmit.clone(), machine.state.clone(), None);
            let ethernet = EthernetAddress([0x52, 0x54, 0, 0, 0, last]);
            ip.attach_driver(ip::Link { ethernet, ..link(BufferSet::EMPTY) }, now_ns);
            ip.poll(now_ns);
            let question = machine.sent(ip.take_output().transmit[0]);
            DhcpPacket::new_checked(&question[14 + 20 + 8..]).unwrap().transaction_id()
        };
        let mut all: Vec<u32> = (0..=u8::MAX).map(transaction).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 256, "{now_ns}");
    }
}
