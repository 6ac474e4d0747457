//! Connections from end to end on the host: opening, data, closing in every order, and many at
//! once.

use crate::common::*;
use contracts::descriptions::{DescriptionError, WatchFor, ready};
use contracts::sockets::{Family, Shutdown, SocketAddress, SocketKind, SocketOption, SocketOptionName};
use tcp::listener::{DropCause, Notice, TOLD_EVERY_NS, WAITING_MAX, WAITING_MIN};

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn data_flows_both_ways_and_ends_in_order() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    assert_eq!(net.server.sockets.accept(ME, listener), Err(DescriptionError::WouldBlock));
    let (server, client) = net.connection(listener, 80);
    assert_eq!(net.client.write(client, b"question"), Ok(8));
    net.settle();
    assert_eq!(net.server.sockets.available(ME, server), Ok(8));
    assert_eq!(net.server.sockets.peek(ME, server, 4, |bytes| bytes == b"ques"), Ok(4));
    assert_eq!(net.server.read(server, 3).unwrap(), b"que");
    assert_eq!(net.server.read(server, 100).unwrap(), b"stion");
    assert_eq!(net.server.read(server, 100), Err(DescriptionError::WouldBlock));

    // Half close: the client has ended, the server still answers.
    net.client.sockets.shutdown(ME, client, Shutdown::Write).unwrap();
    net.settle();
    assert_eq!(net.client.write(client, b"x"), Err(DescriptionError::BrokenPipe));
    assert_eq!(net.server.read(server, 100).unwrap(), b"");
    assert_eq!(
        net.server.sockets.poll(ME, server, ready::READ | ready::READ_HANGUP, WatchFor::Nothing),
        Ok(ready::READ | ready::READ_HANGUP)
    );
    net.server.write(server, b"answer").unwrap();
    net.server.sockets.close(ME, server).unwrap();
    net.pass(SECOND_NS);
    assert_eq!(net.client.read(client, 100).unwrap(), b"answer");
    assert_eq!(net.client.read(client, 100).unwrap(), b"");
    net.client.sockets.close(ME, client).unwrap();
    net.pass(SECOND_NS);
    assert_eq!(net.server.sockets.tcp.records().count(), 0);
    assert_eq!(net.client.sockets.tcp.records().count(), 0);
    assert_eq!(net.server.sockets.tcp.next_ns(), None, "no timer while nothing is open");
    assert_eq!(net.client.sockets.tcp.next_ns(), None);
}

#[test]
fn a_big_transfer_arrives_whole() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    let all: Vec<u8> = (0..3_000_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (mut written, mut read) = (0, Vec::new());
    while read.len() < all.len() {
        match net.server.write(server, &all[written..]) {
            Ok(bytes) => written += bytes,
            Err(error) => assert_eq!(error, DescriptionError::WouldBlock),
        }
        net.pass(1_000_000);
        while let Ok(bytes) = net.client.read(client, 100_000) {
            read.extend(bytes);
        }
    }
    assert!(read == all);
}

#[test]
fn two_hundred_connections_at_once() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let clients: Vec<_> = (0..200).map(|_| net.client.connect(SERVER, 80, net.now_ns)).collect();
    let mut servers = Vec::new();
    for _ in 0..8 {
        net.settle();
        while let Ok(accepted) = net.server.sockets.accept(ME, listener) {
            servers.push(accepted.id);
        }
        if servers.len() == 200 {
            break;
        }
        net.pass(SECOND_NS);
    }
    assert_eq!(servers.len(), 200);
    for &server in &servers {
        net.server.write(server, &[9; 10_000]).unwrap();
    }
    net.pass(SECOND_NS);
    for client in clients {
        assert_eq!(net.client.read(client, 20_000).unwrap().len(), 10_000);
        net.client.sockets.close(ME, client).unwrap();
    }
    net.settle();
    servers.into_iter().for_each(|server| net.server.sockets.close(ME, server).unwrap());
    net.pass(70 * SECOND_NS);
    assert_eq!((net.server.sockets.tcp.records().count(), net.client.sockets.tcp.records().count()), (0, 0));
}

#[test]
fn no_more_connections_are_opened_than_there_may_be() {
    const MOST: usize = tcp::engine::CONNECTIONS_MAX;
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let mut servers = Vec::new();
    while servers.len() < MOST {
        (0..64.min(MOST - servers.len())).for_each(|_| _ = net.client.connect(SERVER, 80, net.now_ns));
        net.settle();
        servers.extend(std::iter::from_fn(|| net.server.sockets.accept(ME, listener).ok()));
    }
    net.server.sockets.tcp.take_notices();
    let mut another = Machine::new([10, 0, 2, 3]);
    let opens = |server: &mut Machine, another: &mut Machine, now_ns| {
        another.connect(SERVER, 80, now_ns);
        another.turn(now_ns).iter().for_each(|packet| server.deliver(packet, now_ns));
        server.turn(now_ns).len()
    };
    assert_eq!(opens(&mut net.server, &mut another, net.now_ns), 0, "it is to ask again later");
    let notices = net.server.sockets.tcp.take_notices();
    assert_eq!(notices, [Notice::NotTaken { port: 80, cause: DropCause::Connections, dropped: 1, most: MOST }]);
    net.server.sockets.set_option(ME, servers[0].id, SocketOption::Linger(Some(0))).unwrap();
    net.server.sockets.close(ME, servers[0].id).unwrap();
    net.server.turn(net.now_ns);
    assert_eq!(opens(&mut net.server, &mut another, net.now_ns), 1);
    assert_eq!(net.server.sockets.tcp.records().count(), MOST);
}

#[test]
fn whose_bytes_come_first_is_told_first() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let [(older, from_older), (younger, from_younger)] = [(); 2].map(|()| net.connection(listener, 80));
    for id in [older, younger] {
        net.server.sockets.poll(ME, id, ready::READ, WatchFor::Level).unwrap();
    }
    // An acknowledgement alone gives nothing to read, so it does not count as having come first.
    net.server.write(older, b"answer").unwrap();
    net.server.turn(net.now_ns).iter().for_each(|packet| net.client.deliver(packet, net.now_ns));
    net.now_ns += SECOND_NS / 10;
    let acknowledgement = net.client.turn(net.now_ns);
    assert_eq!(acknowledgement.len(), 1);
    let mut packets = acknowledgement;
    for id in [from_younger, from_older] {
        net.client.write(id, b"question").unwrap();
        packets.extend(net.client.turn(net.now_ns));
    }
    assert_eq!(packets.len(), 3);
    packets.iter().for_each(|packet| net.server.deliver(packet, net.now_ns));
    let told: Vec<_> = net.server.sockets.settle().iter().map(|ready| ready.id).collect();
    assert_eq!(told, [younger, older]);
}

#[test]
fn nobody_listens() {
    let mut net = Net::new();
    let client = net.client.connect(SERVER, 81, net.now_ns);
    assert_eq!(net.client.sockets.poll(ME, client, ready::WRITE, WatchFor::Level), Ok(0));
    net.settle();
    assert_ne!(net.client.sockets.poll(ME, client, ready::WRITE, WatchFor::Nothing).unwrap() & ready::ERROR, 0);
    let error = net.client.sockets.option(ME, client, SocketOptionName::Error, net.now_ns);
    assert_eq!(error, Ok(SocketOption::Error(Some(DescriptionError::ConnectionRefused))));
    assert_eq!(
        net.client.sockets.option(ME, client, SocketOptionName::Error, net.now_ns),
        Ok(SocketOption::Error(None))
    );
}

#[test]
fn closing_with_unread_bytes_resets() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    net.client.write(client, b"never read").unwrap();
    net.settle();
    net.server.sockets.close(ME, server).unwrap();
    net.settle();
    assert_eq!(net.client.read(client, 10), Err(DescriptionError::ConnectionReset));
    assert_eq!(net.client.read(client, 10).unwrap(), b"");
    assert_eq!(net.client.write(client, b"x"), Err(DescriptionError::BrokenPipe));

    let (server, client) = net.connection(listener, 80);
    net.server.sockets.set_option(ME, server, SocketOption::Linger(Some(0))).unwrap();
    net.server.sockets.close(ME, server).unwrap();
    let own = net.client.sockets.names(ME, client).unwrap().0;
    net.settle();
    assert_eq!(net.client.sockets.names(ME, client), Ok((own, None)), "who was reset has no peer");
    assert_eq!(net.client.write(client, b"x"), Err(DescriptionError::ConnectionReset));
    assert_eq!(net.server.sockets.tcp.records().count(), 0);
}

#[test]
fn a_reset_waits_until_what_was_written_is_acknowledged() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let all = [7; 1000];
    for linger in [None, Some(0)] {
        let (server, client) = net.connection(listener, 80);
        if linger.is_none() {
            net.client.write(client, b"never read").unwrap();
            net.settle();
        }
        net.server.sockets.set_option(ME, server, SocketOption::Linger(linger)).unwrap();
        net.server.write(server, &all).unwrap();
        // In the same turn.
        net.server.sockets.close(ME, server).unwrap();
        let written = net.server.turn(net.now_ns);
        assert_eq!(written.len(), 1, "it is not reset at once");
        net.now_ns += 50_000_000;
        assert_eq!(net.server.turn(net.now_ns).len(), 0, "nor because time passes");
        net.client.deliver(&written[0], net.now_ns);
        assert_eq!(net.client.read(client, 2000).unwrap(), all);
        net.pass(20_000_000);
        assert_eq!(net.client.read(client, 2000), Err(DescriptionError::ConnectionReset));
        assert_eq!(net.server.sockets.tcp.records().count(), 0);
        assert_eq!(net.server.sockets.tcp.next_ns(), None);
    }
}

#[test]
fn a_reset_waits_for_100_ms_at_most() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, _) = net.connection(listener, 80);
    net.server.sockets.set_option(ME, server, SocketOption::Linger(Some(0))).unwrap();
    net.server.write(server, &[7; 1000]).unwrap();
    net.server.sockets.close(ME, server).unwrap();
    net.cut = true;
    net.pass(99_000_000);
    assert_eq!(net.server.sockets.tcp.records().count(), 1);
    net.pass(2_000_000);
    assert_eq!(net.server.sockets.tcp.records().count(), 0);
}

#[test]
fn within_a_machine_a_reset_follows_what_was_written_at_once() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let client = net.server.connect(SERVER, 80, net.now_ns);
    net.settle();
    let server = net.server.sockets.accept(ME, listener).unwrap().id;
    net.server.write(client, b"never read").unwrap();
    net.settle();
    net.server.write(server, b"answer").unwrap();
    net.server.sockets.close(ME, server).unwrap();
    net.settle();
    assert_eq!(net.server.read(client, 100).unwrap(), b"answer");
    assert_eq!(net.server.read(client, 100), Err(DescriptionError::ConnectionReset));
}

#[test]
fn a_listener_that_closes_resets_what_waits_and_its_port_is_free() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let client = net.client.connect(SERVER, 80, net.now_ns);
    net.settle();
    let other = net.server.sockets.socket(ME, Family::Internet, SocketKind::Stream).unwrap();
    let address = SocketAddress { address: [0; 4], port: 80 };
    assert_eq!(net.server.sockets.bind(ME, other, address), Err(DescriptionError::AddressInUse));
    net.server.sockets.close(ME, listener).unwrap();
    net.settle();
    assert_eq!(net.client.read(client, 1), Err(DescriptionError::ConnectionReset));
    assert_eq!(net.server.sockets.bind(ME, other, address), Ok(()));
    let wrong = SocketAddress { address: [1, 2, 3, 4], port: 81 };
    let third = net.server.sockets.socket(ME, Family::Internet, SocketKind::Stream).unwrap();
    assert_eq!(net.server.sockets.bind(ME, third, wrong), Err(DescriptionError::AddressNotAvailable));
}

#[test]
fn references_keep_a_connection_and_strangers_cannot_reach_it() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    assert_eq!(net.server.sockets.available(2, server), Err(DescriptionError::BadId));
    net.server.sockets.inherit(ME, 2);
    net.server.sockets.client_gone(ME..=ME, |_| true);
    net.client.write(client, b"still here").unwrap();
    net.settle();
    assert_eq!(net.server.sockets.available(2, server), Ok(10));
    net.server.sockets.client_gone(0..=9, |client| client == 2);
    net.settle();
    assert_eq!(net.client.read(client, 1), Err(DescriptionError::ConnectionReset));
    let _ = net.client.connect(SERVER, 80, net.now_ns);
    net.settle();
    assert_eq!(net.server.sockets.accept(ME, listener), Err(DescriptionError::BadId));
}

#[test]
fn what_is_in_flight_lives_until_it_is_settled() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    let sockets = &mut net.server.sockets;
    assert_eq!(sockets.export(2, server, 77), Err(DescriptionError::BadId));
    assert_eq!(sockets.export(ME, server, 77), Ok(77));
    sockets.close(ME, server).unwrap();
    assert_eq!(sockets.claim(2, 78), Err(DescriptionError::BadId));
    assert_eq!(sockets.claim(2, 77), Ok(server));
    assert_eq!(sockets.claim(2, 77), Ok(server));
    sockets.settle_ticket(77);
    sockets.settle_ticket(77);
    assert_eq!(sockets.claim(2, 77), Err(DescriptionError::BadId));
    sockets.close(2, server).unwrap();
    net.client.write(client, b"still here").unwrap();
    net.settle();
    assert_eq!(net.server.sockets.available(2, server), Ok(10));
    assert_eq!(net.server.sockets.export(2, server, 79), Ok(79));
    net.server.sockets.client_gone(2..=2, |_| true);
    net.settle();
    assert_eq!(net.client.read(client, 1), Err(DescriptionError::WouldBlock), "it is on its way to somebody");
    net.server.sockets.settle_ticket(79);
    net.settle();
    assert_eq!(net.client.read(client, 1), Err(DescriptionError::ConnectionReset));
}

#[test]
fn a_watcher_is_told_once() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    assert_eq!(net.server.sockets.poll(ME, server, ready::READ, WatchFor::Level), Ok(0));
    net.client.write(client, b"1").unwrap();
    for packet in net.client.turn(net.now_ns) {
        net.server.deliver(&packet, net.now_ns);
    }
    net.server.sockets.tcp.turn(net.now_ns);
    let events = net.server.sockets.settle();
    assert_eq!(events, [tcp::Ready { client: ME, id: server, mask: ready::READ }]);
    net.client.write(client, b"2").unwrap();
    for packet in net.client.turn(net.now_ns) {
        net.server.deliver(&packet, net.now_ns);
    }
    net.server.sockets.tcp.turn(net.now_ns);
    assert!(net.server.sockets.settle().is_empty());
}

#[test]
fn a_machine_talks_to_itself() {
    for address in [[127, 0, 0, 1], [0; 4], SERVER] {
        let mut net = Net::new();
        let listener = net.server.listen(80);
        let client = net.server.connect(address, 80, net.now_ns);
        net.settle();
        let server = net.server.sockets.accept(ME, listener).unwrap().id;
        net.server.write(client, &[5; 60_000]).unwrap();
        let mut read = 0;
        while read < 60_000 {
            net.pass(1_000_000);
            while let Ok(bytes) = net.server.read(server, 100_000) {
                read += bytes.len();
            }
        }
        assert_eq!(net.carried, 0, "nothing left the machine");
    }
}

#[test]
fn a_backlog_counts_and_a_full_queue_is_told_once() {
    for (backlog, most) in [(0, WAITING_MIN), (300, 300), (1_000_000, WAITING_MAX)] {
        let mut net = Net::new();
        net.server.listen_with(80, backlog);
        (0..400).for_each(|_| assert!(net.client.connect(SERVER, 80, net.now_ns) > 0));
        net.settle();
        assert_eq!(net.server.sockets.tcp.records().count(), most);
        let notices = net.server.sockets.tcp.take_notices();
        assert_eq!(notices, [Notice::NotTaken { port: 80, cause: DropCause::Backlog, dropped: 1, most }]);
        net.now_ns += TOLD_EVERY_NS;
        net.client.connect(SERVER, 80, net.now_ns);
        net.settle();
        let later = net.server.sockets.tcp.take_notices();
        let many = (400 - most) as u64;
        assert!(matches!(later[..], [Notice::NotTaken { dropped, .. }] if dropped >= many), "{later:?}");
    }
}

#[test]
fn limits_hold() {
    let mut net = Net::new();
    net.server.listen(80);
    for _ in 0..300 {
        net.client.connect(SERVER, 80, net.now_ns);
    }
    net.settle();
    assert_eq!(net.server.sockets.tcp.records().count(), WAITING_MIN);
    assert_eq!(net.server.sockets.tcp.counters().dropped_syns, 300 - WAITING_MIN as u64);
    let mut all = |client| {
        (0..2000).filter(|_| net.server.sockets.socket(client, Family::Internet, SocketKind::Stream).is_ok()).count()
    };
    // One listens already. Nobody has more than are left to others.
    let most = tcp::sockets::DESCRIPTIONS_MAX / 2;
    assert_eq!([all(ME), all(ME + 1), all(ME + 2), all(ME)], [most - 1, most / 2, most / 4, 0]);
    assert_eq!(
        net.server.sockets.socket(ME, Family::Internet, SocketKind::Packets),
        Err(DescriptionError::NotSupported)
    );
}

#[test]
fn nothing_is_lost_between_programs_of_one_machine() {
    const CONNECTIONS: usize = 40;
    const BYTES: usize = 200_000;
    let mut machine = Machine::new(SERVER);
    let listener = machine.listen(80);
    let mut now_ns = SECOND_NS;
    // All at once, and each sends all it may before anybody reads.
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| machine.connect([127, 0, 0, 1], 80, now_ns)).collect();
    let (mut servers, mut written, mut read) = (Vec::new(), vec![0; CONNECTIONS], 0);
    let all = vec![7; BYTES];
    let begin_ns = now_ns;
    while read < CONNECTIONS * BYTES {
        for (client, written) in clients.iter().zip(&mut written) {
            match machine.write(*client, &all[*written..]) {
                Ok(bytes) => *written += bytes,
                Err(error) => assert!(matches!(error, DescriptionError::WouldBlock | DescriptionError::NotConnected)),
            }
        }
        assert!(machine.turn(now_ns).is_empty(), "nothing leaves the machine");
        while let Ok(accepted) = machine.sockets.accept(ME, listener) {
            servers.push(accepted.id);
        }
        for server in &servers {
            read += machine.read(*server, BYTES).map_or(0, |bytes| bytes.len());
        }
        // Time for delayed acknowledgements, not for what is sent again.
        now_ns += 1_000_000;
        assert!(now_ns - begin_ns < SECOND_NS / 2, "{read} bytes of {} in half a second", CONNECTIONS * BYTES);
    }
}

/// Frames that come again, as around the death of a component, do not start a storm: three equal
/// acknowledgements would have the peer repeat all of it once more.
#[test]
fn what_was_acknowledged_before_is_answered_seldom() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    net.client.write(client, b"question").unwrap();
    let question = net.client.turn(net.now_ns);
    question.iter().for_each(|packet| net.server.deliver(packet, net.now_ns));
    net.pass(SECOND_NS);
    for _ in 0..3 {
        let answers = (0..50).map(|_| {
            net.now_ns += 1_000_000;
            question.iter().for_each(|packet| net.server.deliver(packet, net.now_ns));
            net.server.turn(net.now_ns).len()
        });
        assert_eq!(answers.sum::<usize>(), 1, "in 50 ms");
        net.pass(SECOND_NS / 10);
    }
    assert_eq!(net.server.read(server, 100).unwrap(), b"question");
    // New bytes are acknowledged as always.
    net.client.write(client, b", another").unwrap();
    net.settle();
    assert_eq!(net.server.read(server, 100).unwrap(), b", another");
    net.pass(SECOND_NS);
    assert_eq!(net.client.sockets.tcp.next_ns(), None, "all is acknowledged");
}

#[test]
fn a_peer_that_says_nothing_for_long_is_given_up_with_a_line() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, _) = net.connection(listener, 80);
    net.cut = true;
    net.server.write(server, b"is anybody there?").unwrap();
    net.pass(890 * SECOND_NS);
    assert_eq!(net.server.sockets.tcp.take_notices(), []);
    assert_eq!(net.server.read(server, 100), Err(DescriptionError::WouldBlock));
    net.pass(20 * SECOND_NS);
    let notices = net.server.sockets.tcp.take_notices();
    assert!(matches!(notices[..], [Notice::GivenUp { count: 1, .. }]), "{notices:?}");
    assert_eq!(net.server.read(server, 100), Err(DescriptionError::TimedOut));
}

#[test]
fn the_page_of_limits_has_the_numbers_of_connections() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/limits.md");
    let row = format!(
        "| TCP connections; waiting per listener, as it asks | {}; {WAITING_MIN} to {WAITING_MAX} |",
        tcp::engine::CONNECTIONS_MAX
    );
    assert!(std::fs::read_to_string(page).unwrap().contains(&row), "docs/limits.md does not say `{row}`");
}
