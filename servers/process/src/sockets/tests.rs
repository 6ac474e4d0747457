//! Tests of sockets within the machine.

use super::*;

const A: DescriptionId = 1;
const B: DescriptionId = 2;
const C: DescriptionId = 3;
const NEW: DescriptionId = 100;

fn who(process: u32) -> Credentials {
    Credentials { process, user: process + 1000, group: process + 2000 }
}

fn named(name: &str) -> LocalAddress {
    LocalAddress { file: None, name: format!("\0{name}").into_bytes() }
}

fn pair(kind: SocketKind) -> Sockets {
    let mut all = Sockets::default();
    all.add(A, kind, who(10));
    all.add(B, kind, who(20));
    all.join([A, B]);
    all
}

fn send(all: &mut Sockets, id: DescriptionId, bytes: &[u8]) -> Result<usize, Error> {
    send_to(all, id, None, bytes)
}

fn send_to(all: &mut Sockets, id: DescriptionId, to: Option<&LocalAddress>, bytes: &[u8]) -> Result<usize, Error> {
    let sender = Sender { who: who(id as u32), to, ..Sender::default() };
    all.send(id, &sender, bytes.len(), |into| {
        into.copy_from_slice(&bytes[..into.len()]);
        true
    })
}

fn receive(all: &mut Sockets, id: DescriptionId, room: usize) -> Result<Vec<u8>, Error> {
    taken(all, id, room, false).map(|(bytes, _)| bytes)
}

fn taken(all: &mut Sockets, id: DescriptionId, room: usize, peek: bool) -> Result<(Vec<u8>, Received), Error> {
    let mut bytes = vec![0; room];
    let got = all.receive(id, ReceiveOptions { room, peek, rights: 0 }, |offset, part| {
        bytes[offset..offset + part.len()].copy_from_slice(part);
        true
    })?;
    bytes.truncate(got.bytes as usize);
    Ok((bytes, got))
}

/// What waits costs exactly what it is said to.
fn is_sound(all: &Sockets) {
    for socket in all.all.values() {
        let cost = |message: &Message| message.bytes.len() - message.taken + MESSAGE_COST;
        assert_eq!(socket.held, socket.incoming.iter().map(cost).sum());
        assert!(socket.held <= CAPACITY_BYTES || socket.incoming.len() == 1);
        if let (State::Connected(peer), true) = (&socket.state, socket.kind != SocketKind::Datagram) {
            assert!(all.all[peer].peer().is_some());
        }
    }
}

#[test]
fn a_stream_joins_and_splits() {
    let mut all = pair(SocketKind::Stream);
    assert_eq!(receive(&mut all, B, 9), Err(Error::WouldBlock));
    send(&mut all, A, b"one ").unwrap();
    send(&mut all, A, b"two").unwrap();
    assert_eq!(all.available(B), Ok(7));
    assert_eq!(taken(&mut all, B, 5, true).unwrap().0, b"one t");
    assert_eq!(receive(&mut all, B, 5).unwrap(), b"one t");
    assert_eq!(receive(&mut all, B, 5).unwrap(), b"wo");
    assert_eq!(send(&mut all, A, b""), Ok(0));
    assert_eq!(receive(&mut all, B, 5), Err(Error::WouldBlock));
    is_sound(&all);
}

#[test]
fn packets_keep_their_bounds_and_may_be_empty() {
    for kind in [SocketKind::Packets, SocketKind::Datagram] {
        let mut all = pair(kind);
        for part in [&b"first"[..], b"", b"third"] {
            send(&mut all, A, part).unwrap();
        }
        let (bytes, got) = taken(&mut all, B, 3, false).unwrap();
        assert_eq!((&bytes[..], got.bytes, got.whole), (&b"fir"[..], 3, 5));
        assert_eq!(receive(&mut all, B, 9).unwrap(), b"");
        assert_eq!(receive(&mut all, B, 9).unwrap(), b"third");
        assert_eq!(send(&mut all, A, &[1; MESSAGE_MAX + 1]), Err(Error::MessageTooLong));
        is_sound(&all);
    }
}

#[test]
fn a_full_socket_keeps_senders_waiting_until_there_is_room() {
    for kind in [SocketKind::Stream, SocketKind::Packets, SocketKind::Datagram] {
        let mut all = pair(kind);
        let mut sent = 0;
        while let Ok(count) = send(&mut all, A, &[sent as u8; 5000]) {
            sent += count;
            is_sound(&all);
        }
        assert!(sent > CAPACITY_BYTES / 2 && all.ready(A) & ready::WRITE == 0);
        all.changed.clear();
        let mut received = 0;
        while all.ready(A) & ready::WRITE == 0 {
            received += receive(&mut all, B, 5000).unwrap().len();
            is_sound(&all);
        }
        assert!(all.changed.contains(&A), "who polls is told");
        while let Ok(bytes) = receive(&mut all, B, 70_000) {
            received += bytes.len();
        }
        assert_eq!(received, sent);
        assert_eq!(all.all[&B].held, 0);
    }
}

#[test]
fn connections_wait_to_be_accepted() {
    let mut all = Sockets::default();
    [A, B, C].into_iter().for_each(|id| all.add(id, SocketKind::Stream, who(id as u32)));
    assert_eq!(all.connect(B, &named("x"), who(2), NEW), Err(Error::ConnectionRefused));
    assert_eq!(all.listen(A, 0, who(1)), Err(Error::Invalid));
    all.bind(A, named("x")).unwrap();
    assert_eq!(all.bind(A, named("y")), Err(Error::Invalid));
    assert_eq!(all.bind(B, named("x")), Err(Error::AddressInUse));
    assert_eq!(all.connect(B, &named("x"), who(2), NEW), Err(Error::ConnectionRefused));
    all.listen(A, 0, who(11)).unwrap();
    assert_eq!(all.accept(A), Err(Error::WouldBlock));
    all.connect(B, &named("x"), who(22), NEW).unwrap();
    assert_eq!(all.connect(B, &named("x"), who(22), NEW + 1), Err(Error::AlreadyConnected));
    assert_eq!(all.connect(C, &named("x"), who(33), NEW + 1), Err(Error::WouldBlock));
    // It may be written to before it is accepted.
    send(&mut all, B, b"early").unwrap();
    assert_eq!(all.ready(A), ready::READ);
    all.changed.clear();
    assert_eq!(all.accept(A), Ok(NEW));
    assert_eq!(all.changed, [C]);
    assert_eq!(receive(&mut all, NEW, 9).unwrap(), b"early");
    assert_eq!(all.names(NEW), Ok((named("x"), Some(LocalAddress::default()))));
    assert_eq!(all.names(B), Ok((LocalAddress::default(), Some(named("x")))));
    assert_eq!((all.peer_owner(NEW), all.peer_owner(B)), (Ok(who(22)), Ok(who(11))));
    // A listener's end refuses who was not accepted, and leaves the others.
    all.connect(C, &named("x"), who(33), NEW + 1).unwrap();
    all.close(A);
    assert_eq!(all.take_error(C), Ok(Some(Error::ConnectionReset)));
    assert_eq!(receive(&mut all, C, 9), Ok(vec![]));
    send(&mut all, NEW, b"still").unwrap();
    all.add(A, SocketKind::Stream, who(1));
    all.bind(A, named("x")).unwrap();
    is_sound(&all);
    [A, B, C, NEW].into_iter().for_each(|id| all.close(id));
    assert!(all.all.is_empty() && all.names.is_empty());
}

#[test]
fn an_end_is_seen_by_the_other() {
    let mut all = pair(SocketKind::Stream);
    send(&mut all, A, b"last").unwrap();
    all.shutdown(A, Shutdown::Write).unwrap();
    assert_eq!(send(&mut all, A, b"x"), Err(Error::BrokenPipe));
    assert_eq!(all.ready(B) & (ready::READ_HANGUP | ready::HANGUP), ready::READ_HANGUP);
    assert_eq!(receive(&mut all, B, 9).unwrap(), b"last");
    assert_eq!(receive(&mut all, B, 9), Ok(vec![]));
    send(&mut all, B, b"unread").unwrap();
    all.changed.clear();
    all.close(A);
    assert_eq!(all.changed, [B]);
    assert_eq!(all.ready(B), ready::READ | ready::WRITE | ready::ERROR | ready::READ_HANGUP | ready::HANGUP);
    assert_eq!(receive(&mut all, B, 9), Err(Error::ConnectionReset));
    assert_eq!(receive(&mut all, B, 9), Ok(vec![]));
    assert_eq!(send(&mut all, B, b"x"), Err(Error::BrokenPipe));
}

#[test]
fn datagrams_find_names_and_tell_their_source() {
    let mut all = Sockets::default();
    [A, B, C].into_iter().for_each(|id| all.add(id, SocketKind::Datagram, who(id as u32)));
    all.bind(A, LocalAddress { file: Some(7), name: b"/tmp/a".into() }).unwrap();
    all.bind(B, LocalAddress::default()).unwrap();
    assert_eq!(send(&mut all, B, b"x"), Err(Error::NotConnected));
    let to = LocalAddress { file: Some(7), name: b"a".into() };
    send_to(&mut all, B, Some(&to), b"hello").unwrap();
    *all.tells_sender(A).unwrap() = true;
    let (bytes, got) = taken(&mut all, A, 9, false).unwrap();
    assert_eq!((&bytes[..], got.sender), (&b"hello"[..], Some(who(B as u32))));
    let own = all.names(B).unwrap().0;
    assert!(own.name.starts_with(b"\0") && own.name.len() == 6);
    assert_eq!(got.source, Some(Address::Local(own.clone())));
    // Who finds no room is told when there is, as one who is connected.
    while send_to(&mut all, B, Some(&to), &[0; 9000]).is_ok() {}
    assert_eq!(all.ready(B) & ready::WRITE, 0);
    all.changed.clear();
    while all.ready(B) & ready::WRITE == 0 {
        receive(&mut all, A, 9000).unwrap();
    }
    assert!(all.changed.contains(&B));
    send_to(&mut all, B, Some(&to), &[0; MESSAGE_MAX]).unwrap();
    while receive(&mut all, A, 9).is_ok() {}
    // Who is connected takes from its peer only.
    all.connect(A, &own, who(1), NEW).unwrap();
    send(&mut all, A, b"back").unwrap();
    assert_eq!(send_to(&mut all, C, Some(&to), b"x"), Err(Error::Denied));
    all.close(B);
    assert_eq!(send(&mut all, A, b"x"), Err(Error::ConnectionRefused));
    send_to(&mut all, C, Some(&to), b"x").unwrap();
    // A stream does not reach a datagram's file, and may have a datagram's abstract name.
    all.add(B, SocketKind::Stream, who(2));
    assert_eq!(all.connect(B, &to, who(2), NEW), Err(Error::WrongKind));
}

/// Streams against a plain queue of bytes, by a generator of fixed seed.
#[test]
fn a_stream_is_a_queue_of_bytes() {
    let mut all = pair(SocketKind::Stream);
    let (mut sent, mut model, mut seed) = (0u8, VecDeque::<u8>::new(), 1u64);
    let mut random = |limit: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % limit
    };
    for _ in 0..5_000 {
        let size = random(9000);
        if random(2) == 0 {
            let bytes: Vec<_> = (0..size).map(|at| sent.wrapping_add(at as u8)).collect();
            if let Ok(count) = send(&mut all, A, &bytes) {
                assert!(count > 0 || size == 0);
                model.extend(&bytes[..count]);
                sent = sent.wrapping_add(count as u8);
            }
        } else if size > 0 {
            match receive(&mut all, B, size) {
                Ok(bytes) => assert!(!bytes.is_empty() && model.drain(..bytes.len()).eq(bytes)),
                Err(error) => assert!(error == Error::WouldBlock && model.is_empty()),
            }
        }
        assert_eq!(all.available(B).unwrap(), model.len());
    }
    is_sound(&all);
}

#[test]
fn what_is_sent_to_the_log_is_lines_of_it() {
    let mut all = Sockets::default();
    let log = LocalAddress { file: Some(7), name: b"/dev/log".to_vec() };
    for (id, kind) in [(A, SocketKind::Datagram), (B, SocketKind::Stream), (C, SocketKind::Packets)] {
        all.add(id, kind, who(id as u32));
    }
    assert_eq!(all.connect(A, &log, who(1), NEW), Err(Error::ConnectionRefused), "there is no log yet");
    all.open_log(7, [50, 51]);
    all.open_log(8, [60, 61]);
    assert_eq!((all.is_log(50), all.is_log(60), all.all.len()), (true, false, 5));
    // It is nobody's: its name cannot be taken, and it takes no place.
    assert_eq!(all.bind(A, log.clone()), Err(Error::AddressInUse));
    assert_eq!((all.room(SOCKETS_MAX - 3), all.room(SOCKETS_MAX - 2)), (Ok(()), Err(Error::TooMany)));
    assert_eq!(all.connect(C, &log, who(3), NEW), Err(Error::WrongKind));

    // Messages, to an address and over a connection.
    assert_eq!(send_to(&mut all, A, Some(&log), b"<13>one"), Ok(7));
    all.connect(A, &log, who(1), NEW).unwrap();
    assert_eq!(send(&mut all, A, b"<13>two\nthree"), Ok(13));
    assert_eq!(send(&mut all, A, &vec![0; MESSAGE_MAX + 1]), Err(Error::MessageTooLong));
    // A stream, in pieces; its last line ends with it.
    all.connect(B, &log, who(2), NEW).unwrap();
    assert_eq!(all.connect(B, &log, who(2), NEW), Err(Error::AlreadyConnected));
    for piece in ["<14>fo", "ur\0", "<14>five"] {
        assert_eq!(send(&mut all, B, piece.as_bytes()), Ok(piece.len()));
    }
    assert_ne!(all.ready(B) & ready::WRITE, 0);
    assert_eq!(receive(&mut all, B, 10), Err(Error::WouldBlock));
    all.shutdown(B, Shutdown::Write).unwrap();
    assert_eq!(send(&mut all, B, b"x"), Err(Error::BrokenPipe));
    all.close(B);
    let logged: Vec<_> = all.logged.drain(..).collect();
    let expected = [(A, "one"), (A, "two"), (A, "three"), (B, "four"), (B, "five")];
    assert_eq!(logged, expected.map(|(id, line)| (id as u32, String::from(line))));

    // Who comes later finds it as it was; what was sent with a message is nobody's.
    all.add(B, SocketKind::Stream, who(2));
    all.connect(B, &log, who(2), NEW).unwrap();
    let rights = [Right { origin: contracts::descriptions::Origin::Files, token: 9, note: 0 }];
    let sender = Sender { who: who(2), to: None, rights: &rights };
    let put = |into: &mut [u8]| {
        into.copy_from_slice(b"x\n");
        true
    };
    assert_eq!(all.send(B, &sender, 2, put), Ok(2));
    assert_eq!((all.lost.len(), all.logged.len(), all.all.len()), (1, 1, 5));
    [A, B, C].into_iter().for_each(|id| all.close(id));
    assert_eq!(all.all.len(), 2);
    is_sound(&all);
}

/// A part of a stream is taken where it fits, of a message all or nothing.
#[test]
fn a_stream_fills_the_room_there_is_and_a_message_does_not() {
    for kind in [SocketKind::Stream, SocketKind::Packets] {
        let mut all = pair(kind);
        assert_eq!(send(&mut all, A, &[1; MESSAGE_MAX]), Ok(MESSAGE_MAX));
        let left = CAPACITY_BYTES - MESSAGE_MAX - 2 * MESSAGE_COST;
        let expected = if kind == SocketKind::Stream { Ok(left) } else { Err(Error::WouldBlock) };
        assert_eq!(send(&mut all, A, &[2; MESSAGE_MAX]), expected);
        is_sound(&all);
    }
}

/// Who sends little at a time finds the same room.
#[test]
fn small_pieces_of_a_stream_are_joined_unless_they_are_of_two_senders() {
    for (size, count) in [(1, 10_000), (100, 1000)] {
        let mut all = pair(SocketKind::Stream);
        (0..count).for_each(|_| assert_eq!(send(&mut all, A, &vec![1; size]), Ok(size)));
        assert!(all.all[&B].incoming.iter().all(|message| message.bytes.len() <= JOINED_MAX));
        is_sound(&all);
    }
    let mut all = pair(SocketKind::Stream);
    *all.tells_sender(B).unwrap() = true;
    for (process, bytes) in [(1, b"one"), (2, b"two"), (2, b"too")] {
        let put = |into: &mut [u8]| {
            into.copy_from_slice(bytes);
            true
        };
        let sender = Sender { who: who(process), ..Sender::default() };
        assert_eq!(all.send(A, &sender, 3, put), Ok(3));
    }
    for (process, bytes) in [(1, &b"one"[..]), (2, b"twotoo")] {
        let (got, told) = taken(&mut all, B, 9, false).unwrap();
        assert_eq!((&got[..], told.sender), (bytes, Some(who(process))));
    }
}

#[test]
fn a_read_of_a_stream_takes_as_many_pieces_as_fit() {
    for tells_sender in [false, true] {
        let mut all = pair(SocketKind::Stream);
        *all.tells_sender(B).unwrap() = tells_sender;
        let bytes: Vec<_> = (0..9000).map(|at| (at % 251) as u8).collect();
        bytes.chunks(3000).for_each(|part| assert_eq!(send(&mut all, A, part), Ok(3000)));
        assert_eq!(receive(&mut all, B, 7000).unwrap(), bytes[..7000]);
        assert_eq!(receive(&mut all, B, 7000).unwrap(), bytes[7000..]);
        is_sound(&all);
    }
}

#[test]
fn a_message_says_whether_some_of_its_rights_were_not_taken() {
    let mut all = pair(SocketKind::Packets);
    let right = |token| Right { origin: contracts::descriptions::Origin::Files, token, note: 0 };
    for (wanted, lost) in [(2, vec![]), (1, vec![right(2)]), (0, vec![right(1), right(2)])] {
        let rights = [right(1), right(2)];
        all.send(A, &Sender { rights: &rights, ..Sender::default() }, 0, |_| true).unwrap();
        let options = ReceiveOptions { room: 9, rights: wanted, peek: false };
        let got = all.receive(B, options, |_, _| true).unwrap();
        assert_eq!((got.rights.len(), got.lost_rights), (wanted, wanted < 2));
        assert_eq!(core::mem::take(&mut all.lost), lost);
    }
}

/// Those who poll are told when a message of any size fits again, once, and nobody else.
#[test]
fn who_polls_for_room_is_told_when_there_is_again() {
    for kind in [SocketKind::Stream, SocketKind::Packets, SocketKind::Datagram] {
        let mut all = pair(kind);
        (10..12).for_each(|id| all.add(id, kind, who(7)));
        all.join([10, 11]);
        let other = if kind == SocketKind::Stream { SocketKind::Packets } else { SocketKind::Stream };
        all.add(C, other, who(3));
        all.all.get_mut(&C).unwrap().state = State::Connected(B);
        send(&mut all, A, &[1; 1000]).unwrap();
        assert_ne!(all.ready(A) & ready::WRITE, 0, "little waits");
        (0..14).for_each(|_| _ = send(&mut all, A, &[1; 5000]).unwrap());
        assert_eq!(all.ready(A) & ready::WRITE, 0);
        all.changed.clear();
        while all.ready(A) & ready::WRITE == 0 {
            assert_eq!(all.changed, []);
            receive(&mut all, B, 5000).unwrap();
        }
        assert_eq!(core::mem::take(&mut all.changed), [A]);
        receive(&mut all, B, 5000).unwrap();
        assert_eq!(all.changed, [], "there was room before");
    }
}

#[test]
fn names_have_a_longest_and_who_asks_for_none_gets_one_that_is_free() {
    let mut all = Sockets::default();
    (1..=6).for_each(|id| all.add(id, SocketKind::Datagram, who(1)));
    let of_length = |length| LocalAddress { file: None, name: vec![b'x'; length] };
    assert_eq!(all.bind(1, of_length(LOCAL_NAME_MAX + 1)), Err(Error::NameTooLong));
    assert_eq!(all.bind(1, of_length(LOCAL_NAME_MAX)), Ok(()));
    let mut chosen = |id| {
        all.bind(id, LocalAddress::default()).unwrap();
        all.names(id).unwrap().0
    };
    assert_eq!([2, 3, 4].map(&mut chosen), ["00001", "00002", "00003"].map(named));
    all.last_name = 0xf_ffff;
    let mut chosen = |id| {
        all.bind(id, LocalAddress::default()).unwrap();
        all.names(id).unwrap().0
    };
    assert_eq!([5, 6].map(&mut chosen), ["00000", "00004"].map(named), "after the last comes the first that is free");
}

#[test]
fn an_address_is_for_datagrams() {
    let mut all = Sockets::default();
    [A, B].into_iter().for_each(|id| all.add(id, SocketKind::Datagram, who(id as u32)));
    all.bind(A, named("a")).unwrap();
    all.bind(B, named("b")).unwrap();
    all.connect(A, &named("b"), who(1), NEW).unwrap();
    assert_eq!(send_to(&mut all, B, Some(&named("a")), b"from its peer"), Ok(13));
    // One that is connected does not end with its peer.
    all.connect(B, &named("a"), who(1), NEW).unwrap();
    all.close(A);
    assert_eq!(all.ready(B), ready::WRITE);
    assert_eq!(send(&mut all, B, b"x"), Err(Error::ConnectionRefused));
    assert_eq!(send(&mut all, B, b"x"), Err(Error::NotConnected));

    let mut all = pair(SocketKind::Stream);
    assert_eq!(send_to(&mut all, A, Some(&named("b")), b"x"), Err(Error::AlreadyConnected));
    all.close(B);
    assert_eq!(send_to(&mut all, A, Some(&named("b")), b"x"), Err(Error::AlreadyConnected));
    all.add(C, SocketKind::Stream, who(3));
    assert_eq!(send_to(&mut all, C, Some(&named("b")), b"x"), Err(Error::NotSupported));
    assert_eq!(send(&mut all, C, b"x"), Err(Error::NotConnected));
}

#[test]
fn what_is_not_connected_has_nothing_to_receive() {
    let mut all = Sockets::default();
    let kinds = [SocketKind::Stream, SocketKind::Packets, SocketKind::Datagram];
    (1..).zip(kinds).for_each(|(id, kind)| all.add(id, kind, who(1)));
    let outcomes = [Error::Invalid, Error::NotConnected, Error::WouldBlock];
    assert_eq!([1, 2, 3].map(|id| receive(&mut all, id, 9).unwrap_err()), outcomes);
    assert_eq!(
        [1, 2, 3].map(|id| all.ready(id)),
        [ready::WRITE | ready::HANGUP, ready::WRITE | ready::HANGUP, ready::WRITE]
    );
    assert_eq!([1, 2, 3].map(|id| all.is_listening(id)), [Ok(false); 3]);
    for (id, name) in [(1, "a"), (2, "b")] {
        all.bind(id, named(name)).unwrap();
        all.listen(id, 1, who(7)).unwrap();
        assert_eq!((all.is_listening(id), all.peer_owner(id)), (Ok(true), Ok(who(7))));
    }
    assert_eq!([1, 2].map(|id| receive(&mut all, id, 9).unwrap_err()), outcomes[..2]);
    assert_eq!(all.is_listening(9), Err(Error::BadId));
}

#[test]
fn who_reads_no_more_tells_the_other_that_it_writes_in_vain() {
    let mut all = pair(SocketKind::Stream);
    assert_eq!(all.ready(B), ready::WRITE);
    send(&mut all, A, b"x").unwrap();
    assert_eq!(all.ready(B), ready::READ | ready::WRITE);
    receive(&mut all, B, 9).unwrap();
    all.changed.clear();
    all.shutdown(B, Shutdown::Read).unwrap();
    assert_eq!(all.changed, [B, A]);
    assert_eq!(all.ready(B), ready::READ | ready::WRITE | ready::READ_HANGUP);
    assert_eq!((receive(&mut all, B, 9), send(&mut all, A, b"x")), (Ok(vec![]), Err(Error::BrokenPipe)));
    assert_eq!((send(&mut all, B, b"back"), receive(&mut all, A, 9)), (Ok(4), Ok(b"back".to_vec())));
    all.shutdown(B, Shutdown::Write).unwrap();
    let over = ready::READ_HANGUP | ready::HANGUP;
    assert_eq!([A, B].map(|id| all.ready(id) & over), [over; 2], "both directions are");
    assert_eq!((receive(&mut all, A, 9), all.take_error(A)), (Ok(vec![]), Ok(None)));
}

/// A packet without bytes that nobody read breaks no connection.
#[test]
fn only_bytes_that_nobody_read_break_a_connection() {
    for (sent, error) in [(&b""[..], None), (b"x", Some(Error::ConnectionReset))] {
        let mut all = pair(SocketKind::Packets);
        send(&mut all, A, sent).unwrap();
        all.close(B);
        assert_eq!(all.take_error(A), Ok(error));
    }
}
