//! TCP_CORK and MSG_MORE hold short segments back; TCP_INFO tells how a connection stands.

use crate::common::*;
use contracts::descriptions::{DescriptionError, DescriptionId};
use contracts::sockets::{ConnectionInfo, Shutdown, SocketOption, SocketOptionName};

const MS: u64 = 1_000_000;
const SEGMENT_BYTES: usize = 1460;
/// States as Linux numbers them.
const ESTABLISHED: u8 = 1;
const CLOSED: u8 = 7;
const CLOSE_WAIT: u8 = 8;
const LISTENS: u8 = 10;

/// A connection whose server holds short segments back.
fn corked() -> (Net, DescriptionId, DescriptionId) {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    net.server.sockets.set_option(ME, server, SocketOption::Cork(true)).unwrap();
    (net, server, client)
}

/// How many bytes have come.
fn came(net: &mut Net, client: DescriptionId) -> usize {
    net.settle();
    let mut all = 0;
    while let Ok(bytes) = net.client.read(client, 99_999) {
        all += bytes.len();
        if bytes.is_empty() {
            break;
        }
    }
    all
}

fn info(machine: &mut Machine, id: DescriptionId, now_ns: u64) -> ConnectionInfo {
    match machine.sockets.option(ME, id, SocketOptionName::Info, now_ns) {
        Ok(SocketOption::Info(info)) => info,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_corked_connection_sends_whole_segments() {
    let (mut net, server, client) = corked();
    assert_eq!(net.server.write(server, &[1; 100]), Ok(100));
    assert_eq!(came(&mut net, client), 0);
    assert_eq!(net.server.write(server, &[1; 1500]), Ok(1500));
    assert_eq!(came(&mut net, client), SEGMENT_BYTES);
    assert_eq!(info(&mut net.server, server, net.now_ns).unsent_bytes, 140);
    net.server.sockets.set_option(ME, server, SocketOption::Cork(false)).unwrap();
    assert_eq!(came(&mut net, client), 140);
    assert_eq!(net.server.write(server, &[1; 3]), Ok(3));
    assert_eq!(came(&mut net, client), 3);
}

#[test]
fn what_is_held_back_goes_after_200_ms() {
    let (mut net, server, client) = corked();
    for round in 0..3 {
        net.server.write(server, &[1; 10]).unwrap();
        net.pass(100 * MS);
        net.server.write(server, &[1; 10]).unwrap();
        net.pass(99 * MS);
        assert_eq!(came(&mut net, client), 0, "round {round}");
        net.pass(2 * MS);
        assert_eq!(came(&mut net, client), 20, "round {round}");
    }
    net.pass(100 * MS);
    assert_eq!(net.server.sockets.tcp.next_ns(), None, "no timer while nothing is held");
}

#[test]
fn what_is_held_back_takes_room_and_keeps_its_order() {
    let (mut net, server, client) = corked();
    net.cut = true;
    let content: Vec<u8> = (0..99_999u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut written = 0;
    for bytes in [1, 1459, 1, 2919, 7, 40_000, 99_999] {
        let end = content.len().min(written + bytes);
        written += net.server.write(server, &content[written..end]).unwrap();
    }
    assert_eq!(written, 65_536);
    assert_eq!(net.server.write(server, &[1]), Err(DescriptionError::WouldBlock));
    net.cut = false;
    let mut all = Vec::new();
    for _ in 0..100 {
        net.pass(100 * MS);
        all.extend(net.client.read(client, 99_999).unwrap_or_default());
    }
    assert!(all == content[..65_536], "{} bytes", all.len());
}

#[test]
fn the_end_and_no_delay_let_go_what_is_held_back() {
    let (mut net, server, client) = corked();
    net.server.write(server, &[1; 10]).unwrap();
    net.server.sockets.set_option(ME, server, SocketOption::NoDelay(true)).unwrap();
    assert_eq!(came(&mut net, client), 10);
    net.server.write(server, &[1; 11]).unwrap();
    assert_eq!(came(&mut net, client), 0);
    net.server.sockets.shutdown(ME, server, Shutdown::Write).unwrap();
    net.settle();
    assert_eq!(net.client.read(client, 99).unwrap().len(), 11);
    assert_eq!(net.client.read(client, 99), Ok(Vec::new()));

    let (mut net, server, client) = corked();
    net.server.write(server, &[1; 12]).unwrap();
    net.server.sockets.close(ME, server).unwrap();
    net.settle();
    assert_eq!(net.client.read(client, 99).unwrap().len(), 12);
    assert_eq!(net.client.read(client, 99), Ok(Vec::new()));
}

#[test]
fn more_makes_one_segment_of_two_writes() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    assert_eq!(net.server.write_with(server, b"12", true), Ok(2));
    assert_eq!(came(&mut net, client), 0);
    let before = info(&mut net.server, server, net.now_ns).segments_with_bytes[0];
    assert_eq!(net.server.write(server, b"345"), Ok(3));
    net.settle();
    assert_eq!(net.client.read(client, 99).unwrap(), b"12345");
    assert_eq!(info(&mut net.server, server, net.now_ns).segments_with_bytes[0], before + 1);
    net.server.write_with(server, b"6", true).unwrap();
    net.pass(201 * MS);
    assert_eq!(came(&mut net, client), 1);
}

#[test]
fn an_accepted_socket_begins_as_its_listener_was_told() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let told = [SocketOption::Cork(true), SocketOption::KeepAlive(true), SocketOption::Linger(Some(3))];
    for option in told {
        net.server.sockets.set_option(ME, listener, option).unwrap();
    }
    let (server, client) = net.connection(listener, 80);
    let names = [SocketOptionName::Cork, SocketOptionName::KeepAlive, SocketOptionName::Linger];
    assert_eq!(names.map(|name| net.server.sockets.option(ME, server, name, net.now_ns).unwrap()), told);
    net.server.write(server, &[1; 9]).unwrap();
    assert_eq!(came(&mut net, client), 0);
}

#[test]
fn a_connection_tells_how_it_stands() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    assert_eq!(info(&mut net.server, listener, 0).state, LISTENS);
    let (server, client) = net.connection(listener, 80);
    // Half of the way there takes 5 ms.
    net.server.write(server, &[1; 1000]).unwrap();
    let sent = net.server.turn(net.now_ns);
    assert_eq!(info(&mut net.server, server, net.now_ns).segments_on_the_way, 1);
    net.now_ns += 5 * MS;
    sent.iter().for_each(|packet| net.client.deliver(packet, net.now_ns));
    net.pass(20 * MS);
    let told = info(&mut net.server, server, net.now_ns);
    assert_eq!((told.state, told.segment_bytes, told.segments_on_the_way), (ESTABLISHED, SEGMENT_BYTES as u32, 0));
    assert!(told.round_trip_us > 0 && told.round_trip_us <= 20_000, "{told:?}");
    assert_eq!((told.bytes_acknowledged / 1000, told.repeated_segments, told.in_vain), (1, 0, 0));
    assert_eq!(info(&mut net.client, client, net.now_ns).bytes_received, 1000);
    // A loss.
    net.cut = true;
    net.server.write(server, &[1; 1000]).unwrap();
    net.pass(1000 * MS);
    let told = info(&mut net.server, server, net.now_ns);
    assert!(told.in_vain >= 1 && told.repeated_segments >= 1 && told.segments_on_the_way == 1, "{told:?}");
    assert!(told.repeats_after_us >= 400_000, "{told:?}");
    net.cut = false;
    net.pass(2000 * MS);
    let told = info(&mut net.server, server, net.now_ns);
    assert_eq!((told.in_vain, told.segments_on_the_way, told.bytes_acknowledged / 1000), (0, 0, 2), "{told:?}");
    net.server.sockets.shutdown(ME, server, Shutdown::Write).unwrap();
    net.settle();
    assert_eq!(info(&mut net.client, client, net.now_ns).state, CLOSE_WAIT);
    net.client.sockets.close(ME, client).unwrap();
    net.pass(20_000 * MS);
    assert_eq!(info(&mut net.server, server, net.now_ns).state, CLOSED);
}
