//! How long a connection lives that its peer leaves alone, what is known of it afterwards, and what
//! is said of it after the link came back.

use crate::common::*;
use contracts::descriptions::{DescriptionError, DescriptionId};
use contracts::sockets::{ConnectionInfo, Shutdown, SocketOption, SocketOptionName};
use packet::Span;
use smoltcp::wire::{Ipv4Packet, TcpPacket, TcpSeqNumber};
use std::net::Ipv4Addr;
use tcp::record::Phase;
use tcp::segment::{Pair, Segment, acknowledgement};

const MS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MS;
/// How long an ended connection is remembered.
const TIME_WAIT_NS: u64 = 10 * SECOND_NS;

fn seen(packet: &[u8]) -> Segment {
    Segment::decode(packet, true).unwrap()
}

/// What a machine says to a packet at once.
fn said(machine: &mut Machine, packet: &[u8], now_ns: u64) -> Vec<Segment> {
    machine.deliver(packet, now_ns);
    machine.turn(now_ns).iter().map(|packet| seen(packet)).collect()
}

/// A SYN between the ends of a segment, with these options.
fn syn(of: &Segment, sequence: u32, options: &[u8]) -> Vec<u8> {
    let mut packet = acknowledgement(of.sent_pair(), sequence, 0, 4096).to_vec();
    packet.extend_from_slice(options);
    let length = packet.len();
    let mut ip = Ipv4Packet::new_unchecked(&mut packet[..]);
    ip.set_total_len(length as u16);
    ip.fill_checksum();
    let mut tcp = TcpPacket::new_unchecked(&mut packet[20..]);
    tcp.set_header_len((length - 20) as u8);
    tcp.set_syn(true);
    tcp.set_ack(false);
    tcp.set_ack_number(TcpSeqNumber(0));
    repair(&mut packet);
    packet
}

/// A connection that the server ended first: its peer's last segment, and how that was answered.
fn ended(net: &mut Net, listener: DescriptionId) -> (Vec<u8>, Segment) {
    let (server, client) = net.connection(listener, 80);
    net.server.sockets.close(ME, server).unwrap();
    net.settle();
    net.client.sockets.close(ME, client).unwrap();
    let last = net.client.turn(net.now_ns);
    assert_eq!(last.len(), 1);
    let answers = said(&mut net.server, &last[0], net.now_ns);
    assert_eq!(answers.len(), 1);
    assert!(seen(&last[0]).fin && answers[0].is_bare() && answers[0].acknowledged == Some(seen(&last[0]).end));
    assert_eq!(net.server.sockets.tcp.records().count(), 0, "its buffers are free");
    (last.into_iter().next().unwrap(), answers[0])
}

#[test]
fn a_peer_that_lost_our_last_word_hears_it_again_for_10_s() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let all = [(); 3].map(|()| ended(&mut net, listener));
    net.now_ns += TIME_WAIT_NS - 1;
    for (last, answer) in &all {
        assert_eq!(said(&mut net.server, last, net.now_ns), [*answer]);
        // What takes no place is not answered: two of these servers would do that for ever.
        let of_peer = Pair { local: seen(last).source, remote: seen(last).destination };
        let bare = acknowledgement(of_peer, seen(last).end, answer.sequence, 9);
        assert!(said(&mut net.server, &bare, net.now_ns).is_empty());
    }
    net.now_ns += 1;
    for (last, _) in &all {
        let answers = said(&mut net.server, last, net.now_ns);
        assert!(answers.len() == 1 && answers[0].reset, "it is forgotten");
    }
}

#[test]
fn a_reset_ends_what_is_remembered_and_is_not_answered() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (last, _) = ended(&mut net, listener);
    let mut reset = last.clone();
    let mut tcp = TcpPacket::new_unchecked(&mut reset[20..]);
    tcp.set_fin(false);
    tcp.set_rst(true);
    repair(&mut reset);
    assert!(said(&mut net.server, &reset, net.now_ns).is_empty());
    assert_eq!(net.server.sockets.tcp.counters().no_socket, 0);
    assert!(said(&mut net.server, &last, net.now_ns)[0].reset);
}

#[test]
fn only_newer_numbers_open_a_connection_of_the_same_ends_again() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (last, answer) = ended(&mut net, listener);
    let end = seen(&last).end;
    for sequence in [end.wrapping_sub(9), end] {
        assert_eq!(said(&mut net.server, &syn(&seen(&last), sequence, &[]), net.now_ns), [answer]);
    }
    let sequence = end.wrapping_add(1);
    let mut answering = syn(&seen(&last), sequence, &[]);
    TcpPacket::new_unchecked(&mut answering[20..]).set_ack(true);
    repair(&mut answering);
    assert_eq!(said(&mut net.server, &answering, net.now_ns), [answer], "that opens none");
    assert_eq!(net.server.sockets.tcp.records().count(), 0);
    let answers = said(&mut net.server, &syn(&seen(&last), sequence, &[]), net.now_ns);
    assert!(answers.len() == 1 && answers[0].syn && answers[0].acknowledged == Some(sequence.wrapping_add(1)));
    assert_eq!(net.server.sockets.tcp.records().count(), 1);
}

/// Options behind the end of their list are none, and a SYN needs none at all.
#[test]
fn a_syn_opens_whatever_lies_behind_its_options() {
    for options in [&[][..], &[1, 1, 1, 0], &[0, 2, 9, 9], &[2, 4, 5, 180, 0, 3, 77, 1]] {
        let mut net = Net::new();
        net.server.listen(80);
        net.client.connect(SERVER, 80, net.now_ns);
        let first = net.client.turn(net.now_ns).pop().unwrap();
        let packet = syn(&seen(&first), 7, options);
        let answers = said(&mut net.server, &packet, net.now_ns);
        assert!(answers.len() == 1 && answers[0].syn && answers[0].acknowledged == Some(8), "{options:?}");
        assert_eq!((net.server.sockets.tcp.counters().segments, net.server.sockets.tcp.counters().bad), (1, 0));
    }
}

#[test]
fn a_record_tells_where_its_connection_stands() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let phases =
        |net: &Net| [&net.server, &net.client].map(|side| side.sockets.tcp.records().next().map(|record| record.phase));
    let at_client = net.client.connect(SERVER, 80, net.now_ns);
    assert_eq!(phases(&net), [None, Some(Phase::Opening)]);
    net.settle();
    assert_eq!(phases(&net), [Some(Phase::Open); 2]);
    let at_server = net.server.sockets.accept(ME, listener).unwrap().id;
    net.server.sockets.shutdown(ME, at_server, Shutdown::Write).unwrap();
    net.settle();
    assert_eq!(phases(&net), [Some(Phase::WeEnded), Some(Phase::TheyEnded)]);
    net.client.sockets.shutdown(ME, at_client, Shutdown::Write).unwrap();
    net.client.turn(net.now_ns);
    assert_eq!(phases(&net), [Some(Phase::WeEnded), Some(Phase::Ending)]);
}

#[test]
fn what_is_not_taken_is_counted() {
    let mut net = Net::new();
    let client = net.client.connect(SERVER, 81, net.now_ns);
    let packet = net.client.turn(net.now_ns).pop().unwrap();
    let mut damaged = packet.clone();
    damaged[30] ^= 1;
    for _ in 0..2 {
        assert!(said(&mut net.server, &damaged, net.now_ns).is_empty());
        assert!(said(&mut net.server, &packet, net.now_ns)[0].reset);
        net.server.deliver_span(Span { buffer: 7, offset: u16::MAX, length: u16::MAX }, net.now_ns);
    }
    let counters = net.server.sockets.tcp.counters();
    assert_eq!((counters.segments, counters.bad, counters.no_socket), (4, 4, 2));
    assert_eq!(net.client.sockets.connected(ME, client), Err(DescriptionError::InProgress));
}

/// Lets one machine alone for a time, its timers firing; what it says is lost.
fn leave(machine: &mut Machine, now_ns: &mut u64, until_ns: u64) {
    machine.turn(*now_ns);
    while let Some(next_ns) = machine.sockets.tcp.next_ns().filter(|next_ns| *next_ns <= until_ns) {
        *now_ns = next_ns.max(*now_ns);
        machine.turn(*now_ns);
    }
    *now_ns = until_ns;
}

#[test]
fn a_connection_that_its_peer_only_began_is_kept_for_10_s() {
    let mut net = Net::new();
    net.server.listen(80);
    net.client.connect(SERVER, 80, net.now_ns);
    let (first, begin) = (net.client.turn(net.now_ns).pop().unwrap(), net.now_ns);
    net.server.deliver(&first, begin);
    leave(&mut net.server, &mut net.now_ns, begin + 10 * SECOND_NS - 1);
    assert_eq!(net.server.sockets.tcp.records().count(), 1);
    leave(&mut net.server, &mut net.now_ns, begin + 10 * SECOND_NS);
    assert_eq!(net.server.sockets.tcp.records().count(), 0);
    assert!(net.server.sockets.tcp.take_notices().is_empty(), "strangers fill no log");
}

#[test]
fn a_peer_that_does_not_answer_is_waited_for_a_minute() {
    let mut net = Net::new();
    let begin = net.now_ns;
    let id = net.client.connect(SERVER, 80, begin);
    leave(&mut net.client, &mut net.now_ns, begin + 60 * SECOND_NS - 1);
    assert_eq!(net.client.sockets.connected(ME, id), Err(DescriptionError::InProgress));
    leave(&mut net.client, &mut net.now_ns, begin + 60 * SECOND_NS);
    assert_eq!(net.client.sockets.connected(ME, id), Err(DescriptionError::TimedOut));
    assert!(net.client.sockets.tcp.take_notices().is_empty());
}

#[test]
fn a_peer_that_does_not_end_its_half_is_waited_for_a_minute() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    net.server.sockets.close(ME, server).unwrap();
    net.settle();
    let begin = net.now_ns;
    net.pass(60 * SECOND_NS - 1);
    assert_eq!(net.server.sockets.tcp.records().count(), 1);
    assert_eq!(net.client.read(client, 9), Ok(Vec::new()));
    net.pass(1);
    assert_eq!(net.now_ns, begin + 60 * SECOND_NS);
    assert_eq!(net.server.sockets.tcp.records().count(), 0);
    assert_eq!(net.client.write(client, b"x"), Err(DescriptionError::ConnectionReset));
}

/// Three acknowledgements after the first make a peer repeat at once; one that was quiet for 2 s
/// has nothing on the way.
#[test]
fn after_the_link_came_back_who_was_heard_lately_is_told_four_times() {
    for (quiet_ns, times) in [(0, 4), (2 * SECOND_NS - 1, 4), (2 * SECOND_NS, 1), (9 * SECOND_NS, 1)] {
        let mut net = Net::new();
        let listener = net.server.listen(80);
        net.connection(listener, 80);
        net.now_ns += quiet_ns;
        net.server.sockets.tcp.resume(net.now_ns);
        let told: Vec<_> = net.server.turn(net.now_ns).iter().map(|packet| seen(packet)).collect();
        assert!(told.len() == times && told.iter().all(|one| one.is_bare() && *one == told[0]), "{quiet_ns}");
        assert_eq!(net.server.sockets.tcp.counters().resumes, 1);
    }
}

fn info(machine: &mut Machine, id: DescriptionId, now_ns: u64) -> ConnectionInfo {
    let Ok(SocketOption::Info(info)) = machine.sockets.option(ME, id, SocketOptionName::Info, now_ns) else {
        panic!("a connection has it")
    };
    info
}

#[test]
fn a_round_trip_is_measured_and_what_was_lost_is_not_on_the_way() {
    let mut net = Net::new();
    net.server.listen(80);
    let client = net.client.connect(SERVER, 80, net.now_ns);
    let syn = net.client.turn(net.now_ns);
    let answer = said_packets(&mut net.server, &syn, net.now_ns);
    net.now_ns += 40 * MS;
    let rest = said_packets(&mut net.client, &answer, net.now_ns);
    said_packets(&mut net.server, &rest, net.now_ns);
    let told = info(&mut net.client, client, net.now_ns);
    assert_eq!((told.round_trip_us, told.variation_us, told.repeats_after_us), (40_000, 20_000, 240_000));

    assert_eq!(told.bytes_acknowledged, 1, "the SYN");

    // Many at once, which come and are acknowledged; then one that is lost.
    net.client.write(client, &[7; 30_000]).unwrap();
    net.pass(SECOND_NS);
    assert!(info(&mut net.client, client, net.now_ns).most_segments > 1);
    net.client.write(client, b"x").unwrap();
    assert_eq!(net.client.turn(net.now_ns).len(), 1);
    net.now_ns = net.client.sockets.tcp.next_ns().unwrap();
    assert_eq!(net.client.turn(net.now_ns).len(), 1, "it is sent again");
    let told = info(&mut net.client, client, net.now_ns);
    assert_eq!((told.in_vain, told.most_segments, told.repeated_segments), (1, 1, 1));
}

#[test]
fn what_a_program_may_know_counts_milliseconds_and_bytes_that_did_not_leave() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    net.client.write(client, b"question").unwrap();
    net.settle();
    net.server.write(server, b"answer").unwrap();
    net.settle();
    net.now_ns += 1234 * MS;
    let told = info(&mut net.client, client, net.now_ns);
    assert_eq!([told.bytes_sent_before_ms, told.bytes_came_before_ms, told.acknowledged_before_ms], [1234; 3]);
    assert_eq!((told.unsent_bytes, told.segments_on_the_way), (0, 0));
    // More than may be on the way at once.
    net.cut = true;
    let written = net.client.write(client, &[7; 60_000]).unwrap();
    net.settle();
    let on_the_way = net.client.sockets.tcp.records().next().unwrap().on_the_way() as usize;
    let told = info(&mut net.client, client, net.now_ns);
    assert!(0 < on_the_way && on_the_way < written);
    assert_eq!(told.unsent_bytes as usize, written - on_the_way);
    assert_eq!(told.segments_on_the_way as usize, on_the_way.div_ceil(told.segment_bytes as usize));
}

/// A stranger who knows the ends but no number (RFC 5961, section 3.2).
#[test]
fn a_reset_from_outside_the_window_ends_nothing() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    net.client.write(client, b"question").unwrap();
    let question = net.client.turn(net.now_ns).pop().unwrap();
    let mut reset = question.clone();
    let mut tcp = TcpPacket::new_unchecked(&mut reset[20..]);
    tcp.set_rst(true);
    tcp.set_seq_number(TcpSeqNumber(seen(&question).sequence.wrapping_sub(99) as i32));
    repair(&mut reset);
    said(&mut net.server, &reset, net.now_ns);
    assert_eq!(net.server.read(server, 9), Err(DescriptionError::WouldBlock));
    net.server.deliver(&question, net.now_ns);
    assert_eq!(net.server.read(server, 9), Ok(b"question".to_vec()));
    assert_eq!(net.server.write(server, b"answer"), Ok(6));
    net.settle();
    assert_eq!(net.client.read(client, 9), Ok(b"answer".to_vec()));
}

#[test]
fn bytes_that_come_twice_are_counted_once_and_answered_seldom() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    let said_now = |net: &mut Net, bytes: &[u8]| {
        net.client.write(client, bytes).unwrap();
        let packet = net.client.turn(net.now_ns).pop().unwrap();
        net.server.deliver(&packet, net.now_ns);
        net.pass(SECOND_NS);
        packet
    };
    let first = said_now(&mut net, b"question");
    said_now(&mut net, b"more");
    let before = net.server.sockets.tcp.counters().old;
    let answers = [(); 3].map(|()| said(&mut net.server, &first, net.now_ns).len());
    assert_eq!((answers, net.server.sockets.tcp.counters().old - before), ([1, 0, 0], 2));
    assert_eq!(info(&mut net.server, server, net.now_ns).bytes_received, 12);
}

#[test]
fn only_a_syn_alone_opens_a_connection() {
    let mut net = Net::new();
    net.server.listen(80);
    net.client.connect(SERVER, 80, net.now_ns);
    let first = net.client.turn(net.now_ns).pop().unwrap();
    for (is_syn, acknowledges, resets) in [(false, true, false), (true, true, false), (true, false, true)] {
        let mut packet = first.clone();
        let mut tcp = TcpPacket::new_unchecked(&mut packet[20..]);
        tcp.set_syn(is_syn);
        tcp.set_ack(acknowledges);
        tcp.set_rst(resets);
        repair(&mut packet);
        let before = net.server.sockets.tcp.counters().no_socket;
        let answers = said(&mut net.server, &packet, net.now_ns);
        assert!(answers.iter().all(|answer| answer.reset) && answers.is_empty() == resets);
        assert_eq!(net.server.sockets.tcp.counters().no_socket - before, 1);
    }
    assert_eq!(net.server.sockets.tcp.records().count(), 0);
}

#[test]
fn nobodys_address_and_no_networks_are_no_hosts() {
    let mut server = Machine::new(SERVER);
    let (own, nobody) = (Ipv4Addr::from(SERVER), Ipv4Addr::UNSPECIFIED);
    for (address, bits, is_host) in [(own, 32, true), (own, 33, false), (nobody, 24, false), (own, 0, true)] {
        server.sockets.tcp.set_host(Some((address, bits)));
        assert_eq!(server.sockets.tcp.host().is_some(), is_host, "{address}/{bits}");
    }
}

#[test]
fn a_write_of_nothing_writes_nothing_at_once() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, _) = net.connection(listener, 80);
    assert_eq!(net.server.write(server, b""), Ok(0));
    while net.server.write(server, &[7; 9000]).is_ok() {}
    assert_eq!((net.server.write(server, b""), net.server.write(server, b"x").is_err()), (Ok(0), true));
}

fn said_packets(machine: &mut Machine, packets: &[Vec<u8>], now_ns: u64) -> Vec<Vec<u8>> {
    packets.iter().for_each(|packet| machine.deliver(packet, now_ns));
    machine.turn(now_ns)
}
