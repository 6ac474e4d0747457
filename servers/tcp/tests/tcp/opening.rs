//! Sequence numbers and ports of connections that we open or that are opened to us.

use crate::common::*;
use contracts::sockets::{Family, SocketAddress, SocketKind, SocketOption};
use std::collections::BTreeSet;

const SECOND_NS: u64 = 1_000_000_000;

/// Sequence number, source port and whether it acknowledges, of the last SYN among these.
fn syn(packets: &[Vec<u8>]) -> (u32, u16, bool) {
    let is_syn = |packet: &&Vec<u8>| packet[33] & 2 != 0;
    let packet = packets.iter().rfind(is_syn).expect("a SYN");
    let word = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
    (word(24), (word(20) >> 16) as u16, packet[33] & 16 != 0)
}

/// The SYN of a connection that is opened at that time, from a port or any.
fn opened(machine: &mut Machine, from: Option<u16>, now_ns: u64) -> (u32, u16) {
    let id = machine.sockets.socket(ME, Family::Internet, SocketKind::Stream).unwrap();
    if let Some(port) = from {
        let address = SocketAddress { address: [0; 4], port };
        machine.sockets.bind(ME, id, address).unwrap();
    }
    let to = SocketAddress { address: CLIENT, port: 80 };
    machine.sockets.connect(ME, id, to, now_ns).unwrap();
    let (sequence, port, acknowledges) = syn(&machine.turn(now_ns));
    assert!(!acknowledges);
    machine.sockets.set_option(ME, id, SocketOption::Linger(Some(0))).unwrap();
    machine.sockets.close(ME, id).unwrap();
    machine.turn(now_ns);
    (sequence, port)
}

#[test]
fn numbers_of_one_pair_follow_a_clock_and_pairs_tell_nothing_of_each_other() {
    let mut machine = Machine::new(SERVER);
    let (first, port) = opened(&mut machine, Some(5000), SECOND_NS);
    let (second, _) = opened(&mut machine, Some(5000), 2 * SECOND_NS);
    assert_eq!((port, second.wrapping_sub(first)), (5000, 250_000), "a tick each 4 microseconds");
    for at in 3..300 {
        let (now, _) = opened(&mut machine, Some(5000), at * SECOND_NS);
        assert_eq!(now.wrapping_sub(first), (at as u32 - 1) * 250_000);
    }
    let (other, _) = opened(&mut machine, Some(5001), 2 * SECOND_NS);
    assert!(other.abs_diff(second) > 1 << 16, "{other} is too near {second}");
    // Another secret: other numbers for the same pair at the same time.
    let mut another = Machine::with_secret(SERVER, [9; 16]);
    assert!(opened(&mut another, Some(5000), SECOND_NS).0.abs_diff(first) > 1 << 16);
}

/// The library's generator is not asked for a number but given a seed; of these sequence numbers
/// the seed that would be found first makes it draw once more, and so begin elsewhere.
#[test]
fn a_connection_begins_where_it_shall_if_a_seed_would_draw_0() {
    const TICK_NS: u64 = 4000;
    let (first, _) = opened(&mut Machine::new(SERVER), Some(5000), 0);
    for wanted in [29_006, 126_006, 169_562, 200_993] {
        let ticks = u64::from(u32::wrapping_sub(wanted, first));
        assert_eq!(opened(&mut Machine::new(SERVER), Some(5000), ticks * TICK_NS).0, wanted);
    }
}

/// Numbers, not only different ones: of the same pair at the same time the same.
#[test]
fn answers_begin_by_the_same_rule() {
    let answers = answers();
    assert!(answers.iter().all(|(_, port, acknowledges)| *port == 80 && *acknowledges));
    assert!(answers[0].0.abs_diff(answers[1].0) > 1 << 16, "the pairs differ in a port");
    assert_eq!(answers, self::answers(), "another machine with the same secret answers the same");
}

/// What a server answers to two clients, a second apart.
fn answers() -> Vec<(u32, u16, bool)> {
    let mut net = Net::new();
    net.server.listen(80);
    let mut answers = Vec::new();
    for _ in 0..2 {
        let (_, client) = {
            let client = net.client.connect(SERVER, 80, net.now_ns);
            let asked = net.client.turn(net.now_ns);
            asked.iter().for_each(|packet| net.server.deliver(packet, net.now_ns));
            let answer = net.server.turn(net.now_ns);
            answers.push(syn(&answer));
            answer.iter().for_each(|packet| net.client.deliver(packet, net.now_ns));
            ((), client)
        };
        net.client.sockets.close(ME, client).unwrap();
        net.pass(SECOND_NS);
    }
    answers
}

/// Answers to one pair of ends are a clock too: a number drawn at random, or from a seed, is not.
#[test]
fn answers_to_one_pair_follow_the_clock() {
    let (mut client, mut server) = (Machine::new(CLIENT), Machine::new(SERVER));
    server.listen(80);
    let mut answered = |now_ns: u64| {
        let id = client.sockets.socket(ME, Family::Internet, SocketKind::Stream).unwrap();
        client.sockets.bind(ME, id, SocketAddress { address: [0; 4], port: 5000 }).unwrap();
        client.sockets.connect(ME, id, SocketAddress { address: SERVER, port: 80 }, now_ns).unwrap();
        client.turn(now_ns).iter().for_each(|packet| server.deliver(packet, now_ns));
        let answer = server.turn(now_ns);
        let (sequence, port, acknowledges) = syn(&answer);
        assert_eq!((port, acknowledges), (80, true));
        answer.iter().for_each(|packet| client.deliver(packet, now_ns));
        // A reset, so that the pair is free again.
        client.sockets.set_option(ME, id, SocketOption::Linger(Some(0))).unwrap();
        client.sockets.close(ME, id).unwrap();
        client.turn(now_ns).iter().for_each(|packet| server.deliver(packet, now_ns));
        server.turn(now_ns);
        sequence
    };
    let first = answered(SECOND_NS);
    for at in 2..20 {
        assert_eq!(answered(at * SECOND_NS).wrapping_sub(first), (at as u32 - 1) * 250_000);
    }
}

#[test]
fn ports_follow_no_order() {
    let mut machine = Machine::new(SERVER);
    let ports: Vec<u16> = (0..100).map(|_| opened(&mut machine, None, SECOND_NS).1).collect();
    assert!(ports.iter().all(|port| *port >= 49152));
    assert!(ports.iter().collect::<BTreeSet<_>>().len() > 95);
    assert!(ports.windows(2).filter(|two| two[0].abs_diff(two[1]) < 64).count() < 10, "{ports:?}");
}
