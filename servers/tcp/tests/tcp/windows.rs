//! What is told of the room for a peer's bytes, and what happens to bytes that do not fit.

use crate::common::*;
use tcp::Record;
use tcp::segment::{Pair, Segment, acknowledgement};

const SECOND_NS: u64 = 1_000_000_000;

/// A connection with a peer that the test plays, which is told of no pieces.
fn played() -> (Net, u64, Record) {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    net.client.connect(SERVER, 80, net.now_ns);
    let mut syn = net.client.turn(net.now_ns).pop().unwrap();
    without_pieces(&mut syn);
    net.server.deliver(&syn, net.now_ns);
    net.settle();
    let server = net.server.sockets.accept(ME, listener).unwrap().id;
    let record = net.server.sockets.tcp.records().next().unwrap();
    (net, server, record)
}

/// A segment of the peer's: the connection's bytes from `first` to `end`.
fn bytes_of_peer(record: &Record, first: u32, end: u32) -> Vec<u8> {
    use smoltcp::wire::{Ipv4Packet, TcpPacket};
    let pair = Pair { local: record.pair.remote, remote: record.pair.local };
    let mut packet = acknowledgement(pair, first, record.send_next, 4096).to_vec();
    packet.resize(packet.len() + end.wrapping_sub(first) as usize, 7);
    let length = packet.len() as u16;
    Ipv4Packet::new_unchecked(&mut packet[..]).set_total_len(length);
    Ipv4Packet::new_unchecked(&mut packet[..]).fill_checksum();
    TcpPacket::new_unchecked(&mut packet[20..]).set_psh(true);
    repair(&mut packet);
    packet
}

/// What a peer is owed about a gap is said although another window was told meanwhile: passt takes
/// two acknowledgements for the loss of a segment only if their windows are the same.
#[test]
fn a_gap_is_told_of_although_the_window_has_changed() {
    let (mut net, server, opened) = played();
    let mut next = opened.receive_next;
    // The program leaves what comes where it is, and a segment is lost.
    while net.server.sockets.tcp.records().next().unwrap().receive_window > 8192 {
        net.server.deliver(&bytes_of_peer(&opened, next, next + 1460), net.now_ns);
        (next, net.now_ns) = (next + 1460, net.now_ns + SECOND_NS / 50);
        net.server.turn(net.now_ns);
    }
    let lost = next;
    for segment in 1..9 {
        let first = lost + segment * 1460;
        net.server.deliver(&bytes_of_peer(&opened, first, first + 1460), net.now_ns);
    }
    let before = net.server.sockets.tcp.records().next().unwrap();
    while net.server.read(server, 99_999).is_ok() {}
    assert!(net.server.turn(net.now_ns).len() >= 3);
    let window = net.server.sockets.tcp.records().next().unwrap();
    assert!(window.receive_next == lost && window.receive_window > 2 * before.receive_window);
    let next_ns = net.server.sockets.tcp.next_ns().unwrap();
    assert_eq!(next_ns, net.now_ns + SECOND_NS / 50);
    net.now_ns = next_ns;
    let said = net.server.turn(net.now_ns);
    let [once, twice] = &said[..] else { panic!("{} were said", said.len()) };
    assert_eq!(Segment::decode(once, true), Segment::decode(twice, true));
    net.server.deliver(&bytes_of_peer(&opened, lost, lost + 1460), net.now_ns);
    assert_eq!(net.server.read(server, 99_999).unwrap().len(), 9 * 1460);
}

/// A peer that sends a hundredth more than the window allows loses nothing, whatever of its room a
/// program has read: passt does that where a window became smaller by less.
#[test]
fn a_hundredth_more_than_the_window_finds_room() {
    let (mut net, server, opened) = played();
    let (mut next, mut got) = (opened.receive_next, 0);
    for read in [1, 50, 1460, 16_384, 60_000, 99_999, 99_999] {
        let record = net.server.sockets.tcp.records().next().unwrap();
        let window = u32::from(record.receive_window) << record.receive_scale.unwrap();
        let end = record.receive_next + window + window / 100;
        while next != end {
            let segment_end = (next + 1460).min(end);
            net.server.deliver(&bytes_of_peer(&opened, next, segment_end), net.now_ns);
            next = segment_end;
        }
        net.now_ns += SECOND_NS / 50;
        net.server.turn(net.now_ns);
        let record = net.server.sockets.tcp.records().next().unwrap();
        assert_eq!(record.receive_next, end, "{window} were told");
        got += net.server.read(server, read).map_or(0, |bytes| bytes.len());
        net.server.turn(net.now_ns);
    }
    while let Ok(bytes) = net.server.read(server, 99_999) {
        got += bytes.len();
    }
    assert_eq!(got as u32, next - opened.receive_next);
}

/// A peer that sends more than it was told there is room for, right after the SYN or later, ends
/// nothing: what does not fit is not taken.
#[test]
fn more_than_the_window_is_left_out() {
    for is_first in [true, false] {
        let (mut net, server, opened) = played();
        let mut next = opened.receive_next;
        if !is_first {
            net.server.deliver(&bytes_of_peer(&opened, next, next + 1000), net.now_ns);
            (next, net.now_ns) = (next + 1000, net.now_ns + SECOND_NS / 50);
            net.server.turn(net.now_ns);
        }
        let first = next;
        for begin in [66_000, 130_000, 140_000] {
            net.server.deliver(&bytes_of_peer(&opened, first + begin, first + begin + 1460), net.now_ns);
        }
        while next < first + 200_000 {
            net.server.deliver(&bytes_of_peer(&opened, next, next + 1000), net.now_ns);
            next += 1000;
        }
        net.now_ns += SECOND_NS / 50;
        net.server.turn(net.now_ns);
        let record = net.server.sockets.tcp.records().next().unwrap();
        assert!((65_536 - 1312..=67_536).contains(&(record.receive_next - first)), "{}", record.receive_next - first);
        let mut got = 0;
        while let Ok(bytes) = net.server.read(server, 99_999) {
            assert!(bytes.iter().all(|&byte| byte == 7));
            got += bytes.len();
        }
        assert_eq!(got as u32, record.receive_next - opened.receive_next);
    }
}

/// The end of a stream is not taken with a segment of which bytes are left out.
#[test]
fn an_end_behind_bytes_that_do_not_fit_is_not_taken() {
    let (mut net, server, opened) = played();
    let mut next = opened.receive_next;
    let record = |net: &Net| net.server.sockets.tcp.records().next().unwrap();
    while record(&net).receive_window > 0 {
        net.server.deliver(&bytes_of_peer(&opened, next, next + 1400), net.now_ns);
        net.now_ns += SECOND_NS / 50;
        net.server.turn(net.now_ns);
        next = record(&net).receive_next;
    }
    let mut last = bytes_of_peer(&opened, next, next + 1460);
    smoltcp::wire::TcpPacket::new_unchecked(&mut last[20..]).set_fin(true);
    repair(&mut last);
    let mut got = 0;
    for _ in 0..2 {
        net.server.deliver(&last, net.now_ns);
        net.now_ns += SECOND_NS / 50;
        net.server.turn(net.now_ns);
        while let Ok(bytes) = net.server.read(server, 99_999) {
            if bytes.is_empty() {
                break;
            }
            got += bytes.len();
        }
        net.server.turn(net.now_ns);
    }
    assert_eq!(got as u32, next + 1460 - opened.receive_next);
    assert_eq!(net.server.read(server, 99_999), Ok(Vec::new()), "and then it is");
}

/// What is said after a reset of the card, right after the answer to a SYN, is no larger a window.
#[test]
fn the_window_of_a_syn_is_not_scaled() {
    let (mut net, _, opened) = played();
    let window = u32::from(opened.receive_window) << opened.receive_scale.unwrap();
    assert!((60_000..=65_535).contains(&window), "{window}");
    net.server.sockets.tcp.resume(net.now_ns);
    let said = net.server.turn(net.now_ns);
    assert_eq!(Segment::decode(&said[0], true).unwrap().window, opened.receive_window);
}
