//! IP as a whole on the host: a fake driver below, a fake TCP above, real packets, restarts of each
//! side, and packets that lie.

mod counted;
mod machine;

use ip::{Host, Ip, Link};
use machine::*;
use packet::{BUFFERS, BufferSet, Pool, Span};
use smoltcp::wire::*;
use std::net::Ipv4Addr;

#[test]
fn arp_and_echo_are_answered() {
    let machine = Machine::new();
    let mut ip = running(&machine);
    ip.received(&[machine.arrive(1, &ping())], 2);
    let output = ip.take_output();
    assert_eq!(output.released, [1]);
    let reply = machine.sent(output.transmit[0]);
    let frame = EthernetFrame::new_checked(&reply[..]).unwrap();
    assert_eq!((frame.dst_addr(), frame.src_addr()), (PEER_ETHERNET, OUR_ETHERNET));
    let packet = Ipv4Packet::new_checked(frame.payload()).unwrap();
    assert!(packet.verify_checksum());
    assert_eq!((packet.src_addr(), packet.dst_addr()), (OURS, PEER));
    let message = Icmpv4Packet::new_checked(packet.payload()).unwrap();
    let echo = Icmpv4Repr::parse(&message, &Default::default()).unwrap();
    assert_eq!(echo, Icmpv4Repr::EchoReply { ident: 1, seq_no: 2, data: b"hello" });
}

#[test]
fn segments_pass_by_reference_without_padding() {
    let machine = Machine::new();
    let mut ip = running(&machine);
    let mut frame = ethernet(OUR_ETHERNET, EthernetProtocol::Ipv4, &ipv4(PEER, OURS, IpProtocol::Tcp, &[1, 2, 3]));
    frame.resize(60, 0);
    ip.received(&[machine.arrive(9, &frame)], 2);
    let output = ip.take_output();
    assert_eq!(output.received, [Span { buffer: 9, offset: 26, length: 23 }]);
    assert!(output.released.is_empty());
    ip.release_buffers(&[9, 9, 700]);
    assert_eq!(ip.take_output().released, [9]);
    assert_eq!(ip.counters().bad_releases, 2);
}

/// A new IP is told at once of all that its predecessor left, and TCP comes after that.
#[test]
fn what_comes_before_tcp_waits_for_it_and_not_for_ever() {
    const SECOND_NS: u64 = 1_000_000_000;
    let all = BufferSet::range(0, BUFFERS);
    let machine = Machine::new();
    let attached = || {
        let mut ip = machine.ip();
        ip.attach_driver(link(BufferSet::EMPTY), 0);
        let packet = ethernet(OUR_ETHERNET, EthernetProtocol::Ipv4, &ipv4(PEER, OURS, IpProtocol::Tcp, &[1]));
        ip.received(&all.iter().map(|buffer| machine.arrive(buffer, &packet)).collect::<Vec<_>>(), 0);
        ip
    };
    let mut ip = attached();
    ip.poll(SECOND_NS - 1);
    assert_eq!(ip.take_output(), Default::default());
    assert_eq!(ip.next_ns(), Some(SECOND_NS));
    assert_eq!(ip.detach_driver(), all, "held meanwhile");
    ip.attach_driver(link(BufferSet::EMPTY), 5);
    ip.attach_tcp();
    let received: Vec<u16> = ip.take_output().received.iter().map(|span| span.buffer).collect();
    assert_eq!(received, all.iter().collect::<Vec<_>>());
    assert_eq!(ip.next_ns(), None);
    ip.release_buffers(&received);
    assert_eq!(ip.take_output().released.len(), 256);

    let mut ip = attached();
    let packet = ethernet(OUR_ETHERNET, EthernetProtocol::Ipv4, &ipv4(PEER, OURS, IpProtocol::Tcp, &[1]));
    ip.received(&[machine.arrive(7, &packet)], 1);
    assert_eq!(ip.counters().no_tcp, 1, "a driver that tells a frame twice fills no memory");
    assert_eq!(ip.take_output().released, [7]);
    let mut ip = attached();
    ip.poll(SECOND_NS);
    assert_eq!((ip.take_output().released.len(), ip.counters().no_tcp), (256, 256));
    assert_eq!((ip.next_ns(), ip.detach_driver()), (None, BufferSet::EMPTY));
}

#[test]
fn a_packet_waits_for_its_neighbour_and_a_stranger_goes_by_the_gateway() {
    let machine = Machine::new();
    let mut ip = machine.ip();
    ip.attach_driver(link(BufferSet::EMPTY), 0);
    ip.attach_tcp();
    ip.send(&[machine.packet(40, Ipv4Addr::new(8, 8, 8, 8))], 5);
    assert!(ip.take_output().transmit.is_empty());
    ip.poll(5);
    let question = ip.take_output().transmit;
    assert_eq!(question.len(), 1);
    ip.received(&[machine.arrive(3, &arp(ArpOperation::Reply, OURS))], 6);
    let output = ip.take_output();
    assert_eq!(output.transmit[0].buffer, 40);
    assert_eq!(&machine.sent(output.transmit[0])[..6], &PEER_ETHERNET.0);
    ip.transmitted(&[40]);
    assert_eq!(ip.take_output().sent, [40]);
    assert_eq!(ip.next_ns(), None);
}

#[test]
fn what_tcp_says_is_checked() {
    let machine = Machine::new();
    let mut ip = running(&machine);
    let good = machine.packet(40, PEER);
    let wrong = [
        Span { buffer: 3, ..good },
        Span { buffer: 300, ..good },
        Span { offset: 10, ..good },
        Span { length: 3, ..good },
        Span { length: 2040, ..good },
        Span { offset: 2040, ..good },
    ];
    ip.send(&wrong, 2);
    assert_eq!(ip.take_output(), Default::default());
    ip.send(&[good, good], 2);
    assert_eq!(ip.take_output().transmit.len(), 1);
    assert_eq!(ip.counters().bad_send, 7);
    ip.send(&[machine.packet(41, Ipv4Addr::BROADCAST)], 2);
    assert_eq!(ip.take_output().sent, [41]);
}

#[test]
fn a_new_driver_gets_what_the_old_one_did_not_send() {
    let machine = Machine::new();
    let mut ip = running(&machine);
    ip.send(&[machine.packet(40, PEER), machine.packet(41, PEER)], 2);
    let before = ip.take_output().transmit;
    let tcp_packet = ethernet(OUR_ETHERNET, EthernetProtocol::Ipv4, &ipv4(PEER, OURS, IpProtocol::Tcp, &[1]));
    ip.received(&[machine.arrive(5, &tcp_packet)], 2);
    ip.transmitted(&[40]);
    ip.take_output();

    // Dead; TCP goes on meanwhile.
    let held = ip.detach_driver();
    assert_eq!(held, BufferSet::range(5, 6));
    ip.release_buffers(&[5]);
    ip.send(&[machine.packet(42, PEER)], 3);
    let output = ip.take_output();
    assert!(output.transmit.is_empty() && output.released.is_empty());

    ip.attach_driver(link(BufferSet::EMPTY), 4);
    let output = ip.take_output();
    assert_eq!(output.transmit.iter().map(|span| span.buffer).collect::<Vec<_>>(), [41, 42]);
    assert_eq!(output.transmit[0], before[1]);
    assert_eq!((output.released, output.resumed), (vec![5], true));
}

/// A new driver tells how far the device has come: what it has read is not sent again, though the
/// driver that should have said so is dead; round the end of the numbers too. After a reset nobody
/// knows, and all goes out again.
#[test]
fn what_the_device_has_read_is_not_sent_again() {
    let machine = Machine::new();
    for first in [0, u16::MAX - 1] {
        let at = |epoch, count, busy| Link { next: number(epoch, first.wrapping_add(count)), kept: true, ..link(busy) };
        let attached = || {
            let mut ip = running(&machine);
            ip.detach_driver();
            ip.attach_driver(at(7, 0, BufferSet::EMPTY), 2);
            ip.take_output();
            ip.send(&[40, 41, 42, 43].map(|buffer| machine.packet(buffer, PEER)), 3);
            assert_eq!(ip.take_output().transmit.len(), 4);
            ip.detach_driver();
            ip.send(&[machine.packet(44, PEER)], 4);
            ip
        };
        let buffers = |spans: &[Span]| spans.iter().map(|span| span.buffer).collect::<Vec<_>>();

        let mut ip = attached();
        // It was given three, and has one of them still.
        ip.attach_driver(at(7, 3, BufferSet::range(41, 42)), 5);
        let output = ip.take_output();
        assert_eq!((buffers(&output.transmit), output.sent), (vec![43, 44], vec![40, 42]));
        // The next driver dies as soon as both are out.
        ip.detach_driver();
        ip.attach_driver(at(7, 5, BufferSet::EMPTY), 6);
        let output = ip.take_output();
        assert_eq!((buffers(&output.transmit), output.sent), (vec![], vec![41, 43, 44]));

        let mut ip = attached();
        ip.attach_driver(at(8, 3, BufferSet::EMPTY), 5);
        let output = ip.take_output();
        assert_eq!((buffers(&output.transmit), output.sent), (vec![40, 41, 42, 43, 44], vec![]));
    }
}

#[test]
fn a_new_ip_knows_its_neighbours_and_waits_for_what_the_device_has() {
    let machine = Machine::new();
    let mut ip = running(&machine);
    ip.send(&[machine.packet(40, PEER), machine.packet(41, PEER)], 2);
    drop(ip);

    let mut ip = machine.ip();
    assert_eq!(ip.detach_driver(), BufferSet::EMPTY);
    ip.attach_driver(link(BufferSet::range(41, 42)), 3);
    assert_eq!(ip.attach_tcp().busy, BufferSet::range(41, 42));
    assert!(ip.take_output().transmit.is_empty());
    ip.send(&[machine.packet(40, PEER)], 4);
    assert_eq!(ip.take_output().transmit.len(), 1, "the neighbour is known");
    ip.transmitted(&[41]);
    assert_eq!(ip.take_output().sent, [41]);
}

/// IP dies with five frames out, of which the driver had come to three, and nobody was told: the
/// next one tells TCP which have left, also if the driver died too, and after frames of its own.
#[test]
fn a_new_ip_knows_what_has_left() {
    let machine = Machine::new();
    for first in [0, u16::MAX - 3] {
        let at = |epoch, count: u16| Link {
            next: number(epoch, first.wrapping_add(count)),
            kept: true,
            ..link(BufferSet::range(41, 42))
        };
        let sending = || {
            let mut ip = running(&machine);
            ip.detach_driver();
            ip.attach_driver(Link { busy: BufferSet::EMPTY, ..at(7, 0) }, 2);
            ip.take_output();
            ip.send(&[40, 41, 42, 43, 44].map(|buffer| machine.packet(buffer, PEER)), 3);
            assert_eq!(ip.take_output().transmit.len(), 5);
            ip
        };
        let dead = || {
            drop(sending());
            machine.ip()
        };
        let pool = Pool::new(machine.transmit.clone());
        // As TCP sees it.
        let left = |ip: &mut Ip<Region>| {
            let busy = ip.attach_tcp().busy;
            (40..45).filter(|buffer| !busy.contains(*buffer) && pool.number(*buffer).is_some()).collect::<Vec<_>>()
        };

        let mut ip = dead();
        ip.attach_driver(at(7, 3), 5);
        // An answer, by which it comes to the numbers of what the driver did not see.
        ip.received(&[machine.arrive(1, &ping()), machine.arrive(2, &ping())], 6);
        assert_eq!(ip.take_output().transmit.len(), 2);
        assert_eq!(ip.attach_tcp().busy, BufferSet::range(41, 42));
        assert_eq!(left(&mut ip), [40, 42]);
        // Written again, and not given to IP.
        machine.packet(42, PEER);
        assert_eq!(left(&mut ip), [40]);
        // What goes to this one is on its way, and then has left.
        ip.send(&[machine.packet(43, PEER)], 7);
        assert_eq!(left(&mut ip), [40]);
        ip.transmitted(&[41, 43]);
        assert_eq!(left(&mut ip), [40, 41, 43]);

        // Of a device that was reset nobody knows it.
        let mut ip = dead();
        ip.attach_driver(Link { kept: false, ..at(8, 3) }, 5);
        assert!(!ip.attach_tcp().kept);
        assert!(ip.attach_tcp().kept && left(&mut ip).is_empty());

        // After a reset all went out under new numbers.
        let mut ip = sending();
        ip.detach_driver();
        ip.attach_driver(Link { busy: BufferSet::EMPTY, ..at(8, 0) }, 4);
        let mut ip = machine.ip();
        ip.attach_driver(at(8, 3), 5);
        assert_eq!(left(&mut ip), [40, 42]);
    }
}

#[test]
fn a_new_tcp_holds_nothing() {
    let machine = Machine::new();
    let mut ip = running(&machine);
    let tcp_packet = ethernet(OUR_ETHERNET, EthernetProtocol::Ipv4, &ipv4(PEER, OURS, IpProtocol::Tcp, &[1]));
    ip.received(&[machine.arrive(5, &tcp_packet)], 2);
    ip.send(&[machine.packet(40, PEER), machine.packet(41, Ipv4Addr::new(10, 0, 2, 99))], 2);
    assert_eq!(ip.attach_tcp().busy, BufferSet::range(40, 41));
    let output = ip.take_output();
    assert_eq!(output.released, [5]);
    assert!(output.received.is_empty() && output.sent.is_empty());
}

#[test]
fn dhcp_finds_an_address_and_a_successor_keeps_it() {
    let machine = Machine::new();
    let new = || Ip::new(machine.receive.clone(), machine.transmit.clone(), machine.state.clone(), None);
    let mut ip = new();
    ip.attach_driver(link(BufferSet::EMPTY), 0);
    ip.attach_tcp();
    for kind in [DhcpMessageType::Offer, DhcpMessageType::Ack] {
        ip.poll(ip.next_ns().unwrap());
        let question = machine.sent(ip.take_output().transmit[0]);
        let packet = DhcpPacket::new_checked(&question[14 + 20 + 8..]).unwrap();
        let asked = DhcpRepr::parse(&packet).unwrap();
        let answer = DhcpRepr {
            message_type: kind,
            your_ip: OURS,
            subnet_mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
            router: Some(PEER),
            server_identifier: Some(PEER),
            lease_duration: Some(3600),
            parameter_request_list: None,
            requested_ip: None,
            client_identifier: None,
            ..asked
        };
        let mut bytes = vec![0; answer.buffer_len()];
        answer.emit(&mut DhcpPacket::new_unchecked(&mut bytes[..])).unwrap();
        let udp = UdpRepr { src_port: 67, dst_port: 68 };
        let mut datagram = vec![0; 8 + bytes.len()];
        udp.emit(
            &mut UdpPacket::new_unchecked(&mut datagram[..]),
            &PEER.into(),
            &OURS.into(),
            bytes.len(),
            |payload| payload.copy_from_slice(&bytes),
            &Default::default(),
        );
        let frame = ethernet(OUR_ETHERNET, EthernetProtocol::Ipv4, &ipv4(PEER, OURS, IpProtocol::Udp, &datagram));
        ip.received(&[machine.arrive(2, &frame)], 5);
    }
    let host = Host { address: OURS, prefix_bits: 24, gateway: Some(PEER) };
    assert_eq!(ip.take_output().address, Some(Some(host)));
    drop(ip);
    let mut ip = new();
    assert_eq!(ip.host(), Some(host));
    ip.attach_driver(link(BufferSet::EMPTY), 6);
    ip.poll(6);
    assert!(ip.take_output().transmit.is_empty(), "no question while the lease is fresh");
}

/// xorshift64: the same packets in every run.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn no_packet_panics_it_and_none_is_lost_count_of() {
    let machine = Machine::new();
    let mut ip = running(&machine);
    let good = [ping(), arp(ArpOperation::Request, OURS), arp(ArpOperation::Reply, OURS), {
        ethernet(OUR_ETHERNET, EthernetProtocol::Ipv4, &ipv4(PEER, OURS, IpProtocol::Tcp, &[5; 30]))
    }];
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    let mut held = BufferSet::EMPTY;
    for round in 0..200_000u64 {
        let mut frame = good[(random(&mut seed) % 4) as usize].clone();
        for _ in 0..random(&mut seed) % 4 {
            let index = random(&mut seed) as usize % frame.len();
            frame[index] = random(&mut seed) as u8;
        }
        if random(&mut seed).is_multiple_of(8) {
            frame.truncate(random(&mut seed) as usize % (frame.len() + 1));
        }
        let buffer = (0..256).find(|&buffer| !held.contains(buffer)).unwrap();
        let mut span = machine.arrive(buffer, &frame);
        if random(&mut seed).is_multiple_of(64) {
            span = Span { buffer, offset: random(&mut seed) as u16, length: random(&mut seed) as u16 };
        }
        held.insert(buffer);
        ip.received(&[span], round * 1000);
        ip.poll(round * 1000);
        let output = ip.take_output();
        ip.transmitted(&output.transmit.iter().map(|span| span.buffer).collect::<Vec<_>>());
        ip.release_buffers(&output.received.iter().map(|span| span.buffer).collect::<Vec<_>>());
        for buffer in output.released.iter().chain(&ip.take_output().released) {
            assert!(held.remove(*buffer));
        }
        assert!(held.is_empty());
    }
    let counters = ip.counters();
    for (name, count) in counters.list() {
        println!("{name} {count}");
    }
    assert!(counters.bad_checksum > 0 && counters.bad_icmp > 0 && counters.bad_arp > 0 && counters.bad_header > 0);
    assert_eq!(counters.no_buffer, 0);
}
