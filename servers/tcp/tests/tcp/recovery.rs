//! What happens when IP or the driver dies under connections, and what no packet may do.

use crate::common::*;
use contracts::descriptions::{DescriptionError, WatchFor, ready};
use contracts::sockets::{Family, SocketAddress, SocketKind};
use packet::{BUFFERS, BufferSet, IP_TRANSMIT_BUFFERS, Number, Pool, Span};
use tcp::segment::{Pair, Segment, acknowledgement, before};

const SECOND_NS: u64 = 1_000_000_000;

/// Everything sent is lost for 20 ms; then the link is back.
fn gap(net: &mut Net) {
    net.cut = true;
    net.pass(20_000_000);
    net.cut = false;
    net.server.sockets.tcp.attached(&BufferSet::EMPTY, false, net.now_ns);
}

#[test]
fn data_goes_on_at_once_after_a_gap() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    net.server.write(server, &[1; 1000]).unwrap();
    net.settle();
    assert_eq!(net.client.read(client, 9999).unwrap().len(), 1000);
    net.cut = true;
    net.server.write(server, &[2; 40_000]).unwrap();
    gap(&mut net);
    let now = net.now_ns;
    net.settle();
    assert_eq!(net.now_ns, now);
    assert!(net.client.read(client, 99_999).is_ok_and(|bytes| !bytes.is_empty()), "no time had to pass");
    net.pass(50_000_000);
    let mut rest = 0;
    while let Ok(bytes) = net.client.read(client, 99_999) {
        rest += bytes.len();
        net.pass(1_000_000);
    }
    assert!(rest > 0);
}

#[test]
fn a_syn_and_an_end_that_were_lost_are_repeated() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    net.client.connect(SERVER, 80, net.now_ns);
    for packet in net.client.turn(net.now_ns) {
        net.server.deliver(&packet, net.now_ns);
    }
    gap(&mut net);
    // The answer to the SYN is left to its timer.
    net.pass(SECOND_NS / 2);
    let server = net.server.sockets.accept(ME, listener).unwrap().id;
    net.cut = true;
    net.server.sockets.close(ME, server).unwrap();
    gap(&mut net);
    net.settle();
    assert!(!net.server.sockets.tcp.records().next().unwrap().unacknowledged());
}

#[test]
fn an_idle_connection_says_what_it_has() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    net.client.write(client, b"hello").unwrap();
    net.pass(SECOND_NS);
    assert_eq!(net.server.read(server, 9).unwrap(), b"hello");
    net.settle();
    net.server.sockets.tcp.resume(net.now_ns);
    let packets = net.server.turn(net.now_ns);
    let segment = Segment::decode(&packets[0], true).unwrap();
    let record = net.client.sockets.tcp.records().next().unwrap();
    assert_eq!((segment.acknowledged, segment.sequence), (Some(record.send_next), record.receive_next));
    net.settle();
    assert_eq!(net.client.read(client, 1), Err(DescriptionError::WouldBlock));
}

/// Only IP died: what the device had arrives, and nobody says anything twice.
#[test]
fn nothing_is_repeated_if_the_link_was_kept() {
    for kept in [true, false] {
        let mut net = Net::new();
        let listener = net.server.listen(80);
        let (server, _) = net.connection(listener, 80);
        net.server.write(server, &[1; 1000]).unwrap();
        net.server.sockets.tcp.turn(net.now_ns);
        let sent = net.server.sockets.tcp.take_output().send;
        let busy = BufferSet::range(sent[0].buffer, sent[0].buffer + 1);
        assert_eq!((sent.len(), net.server.sockets.tcp.attached(&busy, kept, net.now_ns)), (1, 0));
        assert_eq!(net.server.turn(net.now_ns).is_empty(), kept);
    }
}

#[test]
fn many_crashes_do_not_slow_a_connection_down() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    let mut received = 0;
    for round in 0..50 {
        net.cut = true;
        net.server.write(server, &[round; 5000]).unwrap();
        gap(&mut net);
        net.settle();
        while let Ok(bytes) = net.client.read(client, 99_999) {
            received += bytes.len();
            net.settle();
        }
        assert!(received > usize::from(round) * 5000, "round {round}");
        net.pass(30_000_000);
    }
    // An ordinary loss after all that is repaired in the ordinary time.
    net.cut = true;
    net.server.write(server, &[0; 1000]).unwrap();
    net.settle();
    net.cut = false;
    while net.client.read(client, 99_999).is_ok() {}
    net.pass(SECOND_NS / 4);
    assert!(net.client.read(client, 99_999).is_ok());
}

#[test]
fn a_loss_is_repaired_after_200_ms_and_then_twice_as_long_each_time() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    net.pass(SECOND_NS);
    net.cut = true;
    net.server.write(server, &[1; 1000]).unwrap();
    let (start, mut sent) = (net.now_ns, Vec::new());
    while net.now_ns < start + 7 * SECOND_NS {
        for packet in net.server.turn(net.now_ns) {
            let segment = Segment::decode(&packet, true).unwrap();
            sent.push(((net.now_ns - start) / 1_000_000, segment.end - segment.sequence));
        }
        net.now_ns = net.server.sockets.tcp.next_ns().unwrap().max(net.now_ns + 1);
    }
    assert_eq!(sent, [0, 200, 600, 1400, 3000, 6200].map(|ms| (ms, 1000)), "in milliseconds, with bytes");
    net.cut = false;
    net.pass(7 * SECOND_NS);
    assert_eq!(net.client.read(client, 9999).unwrap().len(), 1000);
    net.settle();
    assert_eq!(net.server.sockets.tcp.next_ns(), None, "no timer runs for a connection that waits for nothing");
}

/// A driver that was killed or hangs keeps a frame for a while. Sent again, it would go out twice.
#[test]
fn what_has_not_left_the_machine_is_not_sent_again() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    net.pass(SECOND_NS);
    net.server.holds = true;
    net.server.write(server, &[1; 1000]).unwrap();
    let start = net.now_ns;
    let held = net.server.turn(start);
    assert_eq!(held.len(), 1);
    while net.now_ns < start + 300_000_000 {
        net.now_ns = net.server.sockets.tcp.next_ns().unwrap().max(net.now_ns + 1);
        assert_eq!(net.server.turn(net.now_ns), Vec::<Vec<u8>>::new(), "after {} ns", net.now_ns - start);
    }
    // It leaves at last, just before the timer ends, and is lost: TCP waits as long as for any
    // other, and no longer.
    net.server.holds = false;
    net.now_ns = net.server.sockets.tcp.next_ns().unwrap() - 2_000_000;
    let told: Vec<u16> = (IP_TRANSMIT_BUFFERS..BUFFERS).collect();
    net.server.sockets.tcp.sent(&told, net.now_ns);
    let left = net.now_ns;
    let again = loop {
        let packets = net.server.turn(net.now_ns);
        if !packets.is_empty() {
            break packets;
        }
        net.now_ns = net.server.sockets.tcp.next_ns().unwrap().max(net.now_ns + 1);
    };
    assert_eq!(again, held);
    assert_eq!((net.now_ns - left) / 1_000_000, 200);
    again.iter().for_each(|packet| net.client.deliver(packet, net.now_ns));
    net.settle();
    assert_eq!(net.client.read(client, 9999).unwrap().len(), 1000);
}

/// A peer may say what it received only with bytes that we have or that do not fit, and not again.
#[test]
fn what_a_segment_acknowledges_counts_where_its_bytes_do_not() {
    for case in ["acknowledged before", "came just now", "more than fits", "no bytes, behind the window"] {
        let mut net = Net::new();
        let listener = net.server.listen(80);
        let (server, client) = net.connection(listener, 80);
        net.client.write(client, b"data").unwrap();
        let data = net.client.turn(net.now_ns).pop().unwrap();
        if case != "came just now" {
            net.server.deliver(&data, net.now_ns);
        }
        // The program does not read.
        while case == "more than fits" && net.client.write(client, &[1; 9999]).is_ok() {
            net.pass(SECOND_NS / 50);
        }
        net.pass(SECOND_NS / 50);
        net.server.write(server, &[1; 1000]).unwrap();
        assert!(!net.server.turn(net.now_ns).is_empty());
        let record = net.server.sockets.tcp.records().next().unwrap();
        assert!(record.unacknowledged(), "{case}");
        let mut useless = data.clone();
        match case {
            "came just now" => net.server.deliver(&data, net.now_ns),
            "no bytes, behind the window" => {
                let pair = Pair { local: record.pair.remote, remote: record.pair.local };
                let end = record.receive_next + u32::from(record.receive_window);
                useless = acknowledgement(pair, end, 0, 4096).to_vec();
            }
            "more than fits" => useless[24..28].copy_from_slice(&record.receive_next.to_be_bytes()),
            _ => {}
        }
        useless[28..32].copy_from_slice(&record.send_next.to_be_bytes());
        repair(&mut useless);
        net.server.deliver(&useless, net.now_ns);
        assert!(!net.server.sockets.tcp.records().next().unwrap().unacknowledged(), "{case}");
        assert_eq!(net.server.write(server, &[1; 65_536]), Ok(65_536), "{case}: all room is free again");
    }
}

#[test]
fn what_a_dead_ip_had_goes_to_the_next_except_what_the_device_has() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    // So that several segments may be on their way at once.
    net.server.write(server, &[1; 20_000]).unwrap();
    net.pass(SECOND_NS / 2);
    assert_eq!(net.client.read(client, 99_999).unwrap().len(), 20_000);
    net.pass(SECOND_NS / 2);
    net.server.write(server, &[1; 60_000]).unwrap();
    net.server.sockets.tcp.turn(net.now_ns);
    let sent = net.server.sockets.tcp.take_output().send;
    assert!(sent.len() > 1);
    let busy = BufferSet::range(sent[0].buffer, sent[0].buffer + 1);
    assert_eq!(net.server.sockets.tcp.attached(&busy, true, net.now_ns), sent.len() - 1);
    assert_eq!(net.server.sockets.tcp.take_output().send, sent[1..]);
    net.server.sockets.tcp.sent(&[sent[0].buffer, sent[0].buffer, 3, 999], 0);
    assert_eq!(net.server.sockets.tcp.counters().bad_sent, 3);
    // The one that the device had is lost on its way, the others come: no timer of a second is
    // waited for.
    assert_eq!(net.server.sockets.tcp.attached(&BufferSet::EMPTY, false, net.now_ns), sent.len() - 1);
    let mut received = 0;
    for _ in 0..45 {
        net.pass(SECOND_NS / 50);
        received += net.client.read(client, 99_999).map_or(0, |bytes| bytes.len());
    }
    assert_eq!(received, 60_000);
}

/// IP dies a hundred times with packets in its hands; afterwards every transmit buffer is free.
#[test]
fn a_hundred_deaths_of_ip_lose_no_buffer() {
    let mut net = Net::new();
    let all = net.server.sockets.tcp.free_buffers();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    let mut seed = 0x1bad_5eed_0000_0001;
    let (mut written, mut received) = (0, 0);
    for _ in 0..100 {
        written += net.server.write(server, &[7; 20_000]).unwrap_or(0);
        net.server.sockets.tcp.turn(net.now_ns);
        let sent = net.server.sockets.tcp.take_output().send;
        // Some of them the device got and sent, some it still has, some IP never saw.
        let (gone, rest) = sent.split_at(random(&mut seed) as usize % (sent.len() + 1));
        let (with_device, _) = rest.split_at(random(&mut seed) as usize % (rest.len() + 1));
        let busy = set(&with_device.iter().map(|span| span.buffer).collect::<Vec<_>>());
        // IP numbered all that it gave to the driver, and told TCP of half of what is gone.
        let pool = Pool::new(net.server.transmit.clone());
        for span in gone.iter().chain(with_device) {
            pool.set_number(span.buffer, Some(Number { epoch: 1, number: 7 })).unwrap();
        }
        let gone: Vec<u16> = gone.iter().map(|span| span.buffer).collect();
        net.server.sockets.tcp.sent(&gone[gone.len() / 2..], 0);
        // What is written meanwhile went to nobody.
        written += net.server.write(server, &[7; 1]).unwrap_or(0);
        net.server.sockets.tcp.turn(net.now_ns);
        let meanwhile = net.server.sockets.tcp.take_output().send.len();
        let again = net.server.sockets.tcp.attached(&busy, false, net.now_ns);
        assert_eq!(again, rest.len() - with_device.len() + meanwhile, "what has left goes out twice");
        net.server.sockets.tcp.sent(&busy.iter().collect::<Vec<_>>(), 0);
        net.pass(20_000_000);
        while let Ok(bytes) = net.client.read(client, 99_999) {
            received += bytes.len();
            net.settle();
        }
    }
    net.pass(3 * SECOND_NS);
    while let Ok(bytes) = net.client.read(client, 99_999) {
        received += bytes.len();
        net.pass(SECOND_NS);
    }
    assert_eq!((received, net.server.sockets.tcp.free_buffers()), (written, all));
    assert_eq!(net.server.sockets.tcp.counters().bad_sent, 0);
}

/// Who found no room for a datagram is told when a new IP shows that all has left: nothing else
/// would tell it.
#[test]
fn datagrams_go_on_where_a_new_ip_shows_that_all_has_left() {
    let Net { server: mut machine, now_ns, .. } = Net::new();
    let socket = machine.sockets.socket(ME, Family::Internet, SocketKind::Datagram).unwrap();
    let to = Some(SocketAddress { address: CLIENT, port: 53 });
    let sends = |machine: &mut Machine| machine.sockets.send_datagram(ME, socket, 4, to, |room| room.len() == 4);
    while sends(&mut machine).is_ok() {}
    assert_eq!(sends(&mut machine), Err(DescriptionError::WouldBlock));
    machine.sockets.tcp.turn(now_ns);
    let sent = machine.sockets.tcp.take_output().send;
    assert!(machine.sockets.settle().is_empty());
    let pool = Pool::new(machine.transmit.clone());
    for span in sent {
        pool.set_number(span.buffer, Some(Number { epoch: 1, number: 7 })).unwrap();
    }
    let mask = ready::WRITE;
    machine.sockets.poll(ME, socket, mask, WatchFor::Level).unwrap();
    assert_eq!(machine.sockets.tcp.attached(&BufferSet::EMPTY, true, 0), 0);
    assert!(machine.sockets.settle().iter().any(|told| told.id == socket), "nobody was told");
    assert!(sends(&mut machine).is_ok());
}

fn set(buffers: &[u16]) -> BufferSet {
    buffers.iter().fold(BufferSet::EMPTY, |mut set, buffer| {
        set.insert(*buffer);
        set
    })
}

/// xorshift64: the same packets in every run.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn no_packet_panics_it_and_a_connection_beside_lives() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    let mut seed = 0x2545_f491_4f6c_dd1d;
    let mut good = Vec::new();
    for round in 0..40_000u64 {
        if round % 64 == 0 {
            // Fresh material: a SYN, data, an end.
            let other = net.client.connect(SERVER, 80, net.now_ns);
            good = net.client.turn(net.now_ns);
            good.iter().for_each(|packet| net.server.deliver(packet, net.now_ns));
            net.client.write(client, b"data").unwrap();
            good.extend(net.client.turn(net.now_ns));
            let _ = net.client.sockets.close(ME, other);
            good.extend(net.client.turn(net.now_ns));
        }
        let mut packet = good[random(&mut seed) as usize % good.len()].clone();
        for _ in 0..1 + random(&mut seed) % 3 {
            let index = 20 + random(&mut seed) as usize % (packet.len() - 20);
            packet[index] = random(&mut seed) as u8;
        }
        // Half of them with a checksum that fits, so that they get further.
        if random(&mut seed).is_multiple_of(2) {
            repair(&mut packet);
        }
        // Not those that end the connection under test by right.
        let segment = Segment::decode(&packet, false);
        if segment.is_some_and(|segment| segment.source.port() == client_port(&mut net, client)) {
            continue;
        }
        net.server.deliver(&packet, net.now_ns);
        let span = Span {
            buffer: random(&mut seed) as u16,
            offset: random(&mut seed) as u16,
            length: random(&mut seed) as u16,
        };
        net.server.deliver_span(span, net.now_ns);
        for answer in net.server.turn(net.now_ns) {
            assert!(Segment::decode(&answer, true).is_some());
        }
        net.now_ns += 1_000_000;
        while let Ok(accepted) = net.server.sockets.accept(ME, listener) {
            net.server.sockets.close(ME, accepted.id).unwrap();
        }
    }
    net.pass(100 * SECOND_NS);
    while net.server.read(server, 99_999).is_ok() {}
    net.client.write(client, b"still").unwrap();
    net.pass(SECOND_NS);
    assert!(net.server.read(server, 99).is_ok());
    assert!(net.server.sockets.tcp.counters().bad > 1000);
}

fn client_port(net: &mut Net, client: u64) -> u16 {
    net.client.sockets.names(ME, client).unwrap().0.port
}

/// What comes with an acknowledgement that was overtaken by another is taken all the same.
#[test]
fn bytes_count_where_what_is_acknowledged_beside_is_old() {
    for back in [1000, 200_000] {
        let mut net = Net::new();
        let listener = net.server.listen(80);
        let (server, client) = net.connection(listener, 80);
        net.client.write(client, b"data").unwrap();
        let data = net.client.turn(net.now_ns).pop().unwrap();
        net.server.write(server, &[1; 1000]).unwrap();
        net.server.turn(net.now_ns);
        let record = net.server.sockets.tcp.records().next().unwrap();
        let pair = Pair { local: record.pair.remote, remote: record.pair.local };
        let newer = acknowledgement(pair, record.receive_next, record.send_next, 4096);
        net.server.deliver(&newer, net.now_ns);
        let mut overtaken = data.clone();
        overtaken[28..32].copy_from_slice(&record.send_next.wrapping_sub(back).to_be_bytes());
        overtaken[34..36].copy_from_slice(&0u16.to_be_bytes());
        repair(&mut overtaken);
        net.server.deliver(&overtaken, net.now_ns);
        let read = net.server.read(server, 99);
        assert_eq!(read, if back == 1000 { Ok(b"data".to_vec()) } else { Err(DescriptionError::WouldBlock) });
        // The window is the one that came last, not that of the segment.
        net.server.write(server, &[1; 1000]).unwrap();
        assert!(net.server.turn(net.now_ns).len() == 1);
    }
}

/// A peer that has lost a segment of many is not answered once for each of those that follow, save
/// if each answer names pieces.
#[test]
fn equal_acknowledgements_are_said_three_times_and_then_seldom() {
    for takes_pieces in [false, true] {
        let mut net = Net::new();
        let listener = net.server.listen(80);
        let at_client = net.client.connect(SERVER, 80, net.now_ns);
        let mut syn = net.client.turn(net.now_ns).pop().unwrap();
        if !takes_pieces {
            without_pieces(&mut syn);
        }
        net.server.deliver(&syn, net.now_ns);
        net.settle();
        let server = net.server.sockets.accept(ME, listener).unwrap().id;
        // Until many may be on the way at once.
        for _ in 0..4 {
            net.client.write(at_client, &[1; 20_000]).unwrap();
            net.pass(SECOND_NS / 50);
            while net.server.read(server, 99_999).is_ok() {}
            net.pass(SECOND_NS / 50);
        }
        net.client.write(at_client, &[1; 14_600]).unwrap();
        let packets = net.client.turn(net.now_ns);
        assert_eq!(packets.len(), 10);
        // The window may be news.
        net.server.deliver(&packets[1], net.now_ns);
        assert_eq!(net.server.turn(net.now_ns).len(), 1);
        let mut answers = |packets: &[Vec<u8>]| -> usize {
            let answer = |packet: &Vec<u8>| {
                net.server.deliver(packet, net.now_ns);
                net.server.turn(net.now_ns).len()
            };
            packets.iter().map(answer).sum()
        };
        let (first, rest) = (answers(&packets[2..5]), answers(&packets[5..]));
        assert!(first >= 2, "{first}");
        assert_eq!(rest, if takes_pieces { 5 } else { 0 });
        if !takes_pieces {
            for again in 0..7 {
                let next_ns = net.server.sockets.tcp.next_ns().unwrap();
                assert_eq!(next_ns, net.now_ns + ((SECOND_NS / 50) << again), "once more, should those be lost");
                net.now_ns = next_ns;
                assert_eq!(net.server.turn(net.now_ns).len(), 2);
            }
            assert_eq!(net.server.sockets.tcp.next_ns(), None);
        }
        net.server.deliver(&packets[0], net.now_ns);
        assert_eq!(net.server.read(server, 99_999).unwrap().len(), 14_600, "and nothing is asked for twice");
    }
}

/// An answer to a SYN goes out once, whatever happens to IP and the card, until its timer repeats
/// it: passt is at its end if it reads two at once. What else has left is said again after a reset.
#[test]
fn the_answer_to_a_syn_is_not_said_again_at_once() {
    let mut net = Net::new();
    net.server.listen(80);
    net.client.connect(SERVER, 80, net.now_ns);
    let syn = net.client.turn(net.now_ns).pop().unwrap();
    net.server.deliver(&syn, 0);
    net.server.deliver(&syn, 0);
    let answer = net.server.turn(0);
    net.server.sockets.tcp.resume(1_000_000);
    assert_eq!((answer.len(), net.server.turn(1_000_000)), (1, vec![]));
    assert_eq!(net.server.turn(SECOND_NS / 2), answer);

    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, _) = net.connection(listener, 80);
    let now_ns = net.now_ns;
    let bytes = |machine: &mut Machine| machine.turn(now_ns).iter().filter(|packet| packet.len() > 100).count();
    net.server.holds = true;
    net.server.write(server, &[1; 100]).unwrap();
    assert_eq!(bytes(&mut net.server), 1);
    net.server.sockets.tcp.resume(now_ns);
    assert_eq!(bytes(&mut net.server), 0, "it waits here");
    net.server.holds = false;
    net.server.sockets.tcp.sent(&(IP_TRANSMIT_BUFFERS..BUFFERS).collect::<Vec<_>>(), net.now_ns);
    net.server.sockets.tcp.resume(now_ns);
    assert_eq!(bytes(&mut net.server), 1);
}

/// passt acknowledges each byte once, and may lose that.
#[test]
fn a_peer_that_has_all_and_does_not_say_so_is_sent_something_new() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let at_client = net.client.connect(SERVER, 80, net.now_ns);
    let mut syn = net.client.turn(net.now_ns).pop().unwrap();
    let scale = syn.windows(2).rposition(|option| option == [3, 3]).unwrap();
    syn[scale + 2] = 8;
    repair(&mut syn);
    net.server.deliver(&syn, net.now_ns);
    net.settle();
    net.client.sockets.connected(ME, at_client).unwrap();
    let server = net.server.sockets.accept(ME, listener).unwrap().id;
    let Net { server: machine, now_ns, .. } = &mut net;
    let record = machine.sockets.tcp.records().next().unwrap();
    let pair = Pair { local: record.pair.remote, remote: record.pair.local };
    let ends = |machine: &mut Machine, now_ns: u64| {
        let packets = machine.turn(now_ns);
        packets.iter().map(|packet| Segment::decode(packet, true).unwrap().end).collect::<Vec<_>>()
    };
    let acknowledge = |machine: &mut Machine, end: u32, now_ns: u64| {
        machine.deliver(&acknowledgement(pair, record.receive_next, end, 2100), now_ns);
    };
    // Until a whole buffer may be on the way at once.
    for _ in 0..20 {
        let _ = machine.write(server, &[1; 20_000]);
        for end in ends(machine, *now_ns) {
            *now_ns += 1_000_000;
            acknowledge(machine, end, *now_ns);
        }
    }
    while let Some(end) = ends(machine, *now_ns).pop() {
        acknowledge(machine, end, *now_ns);
    }
    assert_eq!(machine.write(server, &[1; 99_999]), Ok(65_536));
    // But for less than a segment, which waits.
    let last = ends(machine, *now_ns).pop().unwrap();
    assert_eq!(machine.sockets.tcp.records().next().unwrap().send_unacknowledged.wrapping_add(44 * 1460), last);
    let start_ns = *now_ns;
    // After a first repeat there is room for one segment more. Few buffers are free.
    *now_ns = machine.sockets.tcp.next_ns().unwrap();
    assert_eq!(ends(machine, *now_ns).len(), 1);
    assert_eq!(machine.write(server, &[2; 99_999]), Ok(1460));
    machine.sockets.tcp.attached(&BufferSet::range(IP_TRANSMIT_BUFFERS, BUFFERS - 10), true, *now_ns);
    assert!(ends(machine, *now_ns).is_empty());
    *now_ns = machine.sockets.tcp.next_ns().unwrap();
    assert!(*now_ns < start_ns + SECOND_NS);
    let sent: Vec<u32> = (0..10).flat_map(|_| ends(machine, *now_ns)).collect();
    let new = sent.into_iter().find(|end| before(last, *end)).expect("nothing new");
    assert_eq!(new, last.wrapping_add(1460), "one segment");
    acknowledge(machine, new, *now_ns);
    assert_eq!(machine.write(server, &[1; 99_999]), Ok(65_536 - 1296));
    assert!(ends(machine, *now_ns).len() <= 4, "as slowly as after any loss");
}
