//! Tests of the open descriptions.

use alloc::vec;

use super::*;

impl Descriptions {
    /// Who must look again since this was asked last.
    pub(super) fn take_changed(&mut self) -> Vec<DescriptionId> {
        let mut changed = Vec::new();
        self.move_changed(&mut changed);
        changed
    }
}

pub(super) const ME: u64 = 1 << 32;
pub(super) const CHILD: u64 = 2 << 32;

fn who(process: u32) -> Credentials {
    Credentials { process, ..Credentials::default() }
}

pub(super) fn read(all: &mut Descriptions, client: u64, id: DescriptionId, room: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; room];
    let count = all.read(client, id, room, 0, |offset, part| {
        bytes[offset..offset + part.len()].copy_from_slice(part);
        true
    })?;
    bytes.truncate(count);
    Ok(bytes)
}

pub(super) fn write(all: &mut Descriptions, client: u64, id: DescriptionId, from: &[u8]) -> Result<usize, Error> {
    all.write(
        client,
        id,
        || who(7),
        from.len(),
        |into| {
            into.copy_from_slice(&from[..into.len()]);
            true
        },
    )
}

#[test]
fn a_pipe_carries_bytes_and_names_who_must_look_again() {
    let mut all = Descriptions::default();
    let (reading, writing) = all.pipe(ME).unwrap();
    assert_eq!(read(&mut all, ME, reading, 9), Err(Error::WouldBlock));
    assert_eq!(all.ready(reading, ready::READ), 0);
    assert_eq!(write(&mut all, ME, writing, b"hello"), Ok(5));
    assert_eq!(all.take_changed(), [reading]);
    assert_eq!(all.ready(reading, ready::READ), ready::READ);
    assert_eq!(all.available(ME, reading), Ok(5));
    assert_eq!(read(&mut all, ME, reading, 4).unwrap(), b"hell");
    assert_eq!(all.take_changed(), [writing]);
    // Neither the wrong end nor somebody else's.
    assert_eq!(read(&mut all, ME, writing, 1), Err(Error::BadId));
    assert_eq!(write(&mut all, ME, reading, b"x"), Err(Error::BadId));
    assert_eq!(read(&mut all, CHILD, reading, 1), Err(Error::BadId));
    // What cannot be put anywhere stays.
    assert_eq!(all.read(ME, reading, 9, 0, |_, _| false), Err(Error::Invalid));
    assert_eq!(read(&mut all, ME, reading, 9).unwrap(), b"o");
}

#[test]
fn ends_close_with_their_last_holder() {
    let mut all = Descriptions::default();
    let (reading, writing) = all.pipe(ME).unwrap();
    all.inherit(ME, CHILD);
    all.close(ME, writing).unwrap();
    assert_eq!(all.close(ME, writing), Err(Error::BadId));
    assert_eq!(read(&mut all, ME, reading, 1), Err(Error::WouldBlock));
    all.take_changed();
    all.remove_clients(CHILD..=CHILD, |_| true);
    assert_eq!(all.take_changed(), [writing, reading]);
    // Nothing is left to read but the end.
    assert_eq!(all.ready(reading, ready::READ), ready::HANGUP);
    assert_eq!(read(&mut all, ME, reading, 1), Ok(Vec::new()));
    all.close(ME, reading).unwrap();
    assert!(all.all.is_empty() && all.pipes.is_empty());
}

#[test]
fn what_is_left_is_read_before_the_end() {
    let mut all = Descriptions::default();
    let (reading, writing) = all.pipe(ME).unwrap();
    assert_eq!(write(&mut all, ME, writing, b"last"), Ok(4));
    all.close(ME, writing).unwrap();
    assert_eq!(all.ready(reading, ready::READ), ready::READ | ready::HANGUP);
    assert_eq!(read(&mut all, ME, reading, 9).unwrap(), b"last");
    assert_eq!((all.ready(reading, ready::READ), read(&mut all, ME, reading, 9)), (ready::HANGUP, Ok(Vec::new())));
}

#[test]
fn pipes_are_shared_and_hold_no_more_than_the_server_has() {
    let mut all = Descriptions::default();
    let mut made = Vec::new();
    let most = |client, all: &mut Descriptions, made: &mut Vec<_>| {
        (0..PIPES_MAX).map_while(|_| all.pipe(client).ok()).map(|ends| made.push((client, ends))).count()
    };
    let counts = [ME, CHILD, ME].map(|client| most(client, &mut all, &mut made));
    assert_eq!(counts, [PIPES_MAX / 2, PIPES_MAX / 4, 0]);
    let mut held = [0; 2];
    for (client, (_, writing)) in &made {
        let put: usize = std::iter::from_fn(|| write(&mut all, *client, *writing, &[1; 5000]).ok()).sum();
        assert!(matches!(put, pipe::CAPACITY_BYTES | pipe::SMALL_BYTES));
        held[usize::from(*client != ME)] += usize::from(put == pipe::CAPACITY_BYTES);
    }
    // The first ones are of the default size; nobody has more of those than are left to others.
    assert_eq!(held, [LARGE_PIPES_MAX / 2, LARGE_PIPES_MAX / 4]);
    all.remove_clients(ME..=ME, |_| true);
    let again = all.pipe(ME + 1).unwrap();
    assert_eq!(write(&mut all, ME + 1, again.1, &[1; 20_000]), Ok(20_000), "there is room again");
    all.remove_clients(ME..=CHILD, |_| true);
    assert!(all.all.is_empty() && all.pipes.is_empty() && all.large_pipes == 0);
}

#[test]
fn an_event_counts_and_is_bounded() {
    let mut all = Descriptions::default();
    let event = all.event(ME, 2, false).unwrap();
    assert_eq!(all.kind(ME, event), Ok(Kind::Anonymous));
    assert_eq!(read(&mut all, ME, event, 7), Err(Error::Invalid));
    assert_eq!(read(&mut all, ME, event, 64).unwrap(), 2u64.to_ne_bytes());
    assert_eq!(read(&mut all, ME, event, 8), Err(Error::WouldBlock));
    assert_eq!(write(&mut all, ME, event, &[1; 4]), Err(Error::Invalid));
    all.take_changed();
    assert_eq!(write(&mut all, ME, event, &5u64.to_ne_bytes()), Ok(8));
    assert_eq!((all.take_changed(), all.ready(event, u32::MAX)), (vec![event], ready::READ | ready::WRITE));
    // Nobody has more than are left to others.
    let more: Vec<_> = (1..EVENTS_MAX / 2).map(|_| all.event(ME, 0, true).unwrap()).collect();
    assert_eq!(all.event(ME, 0, false), Err(Error::TooMany));
    let others = (0..EVENTS_MAX).take_while(|_| all.event(CHILD, 0, false).is_ok()).count();
    assert_eq!(others, EVENTS_MAX / 4);
    all.remove_clients(CHILD..=CHILD, |_| true);
    more.into_iter().for_each(|id| all.close(ME, id).unwrap());
    all.close(ME, event).unwrap();
    assert!(all.all.is_empty() && all.event(ME, 0, false).is_ok());
}

#[test]
fn a_socket_is_read_and_written_as_others() {
    let mut all = Descriptions::default();
    let (one, two) = all.pair(ME, SocketKind::Stream, who(7)).unwrap();
    assert_eq!(all.kind(ME, one), Ok(Kind::Socket));
    all.inherit(ME, CHILD);
    assert_eq!(write(&mut all, ME, one, b"hello"), Ok(5));
    assert_eq!(all.take_changed(), [two]);
    assert_eq!(read(&mut all, CHILD, two, 9).unwrap(), b"hello");
    let listener = all.socket(ME, SocketKind::Stream, who(7)).unwrap();
    let address = LocalAddress { file: Some(3), name: b"/s".into() };
    all.sockets(ME, listener).unwrap().bind(listener, address.clone()).unwrap();
    all.sockets(ME, listener).unwrap().listen(listener, 1, who(7)).unwrap();
    let client = all.socket(CHILD, SocketKind::Stream, who(8)).unwrap();
    all.connect(CHILD, client, &address, who(8)).unwrap();
    let taken = all.accept(ME, listener).unwrap();
    assert_eq!(write(&mut all, CHILD, client, b"x"), Ok(1));
    assert_eq!(read(&mut all, CHILD, taken, 9), Err(Error::BadId));
    assert_eq!(read(&mut all, ME, taken, 9).unwrap(), b"x");
    // A program's end ends its connections, and one that nobody accepted goes with its listener.
    all.remove_clients(CHILD..=CHILD, |_| true);
    assert_eq!(read(&mut all, ME, taken, 9), Ok(Vec::new()));
    let late = all.socket(ME, SocketKind::Stream, who(7)).unwrap();
    all.connect(ME, late, &address, who(7)).unwrap();
    all.remove_clients(ME..=ME, |_| true);
    assert!(all.all.is_empty() && all.sockets.room(crate::sockets::SOCKETS_MAX).is_ok());
    let event = all.event(ME, 0, false).unwrap();
    assert_eq!(all.sockets(ME, event).err(), Some(Error::NotSupported));
}

fn right(origin: Origin, token: u64) -> Right {
    Right { origin, token, note: 3 }
}

fn send(all: &mut Descriptions, client: u64, id: DescriptionId, rights: &[Right]) -> Result<usize, Error> {
    all.send(client, id, &Sender { who: who(7), to: None, rights }, 1, |into| {
        into.fill(b'r');
        true
    })
}

fn receive(all: &mut Descriptions, client: u64, id: DescriptionId, rights: usize) -> Result<Vec<Right>, Error> {
    all.receive(client, id, ReceiveOptions { room: 9, rights, peek: false }, |_, _| true).map(|got| got.rights)
}

#[test]
fn descriptions_travel_in_messages_and_live_there() {
    let mut all = Descriptions::default();
    let (one, two) = all.pair(ME, SocketKind::Stream, who(7)).unwrap();
    let event = all.event(ME, 5, false).unwrap();
    all.inherit(ME, CHILD);
    all.close(CHILD, event).unwrap();
    assert_eq!(send(&mut all, CHILD, one, &[right(Origin::Process, event)]), Err(Error::BadId));
    send(&mut all, ME, one, &[right(Origin::Process, event)]).unwrap();
    write(&mut all, ME, one, b"more").unwrap();
    all.close(ME, event).unwrap();
    assert_eq!(read(&mut all, ME, event, 8), Err(Error::BadId));
    // A look gives a reference, and leaves it there.
    let peeked = all.receive(ME, two, ReceiveOptions { room: 9, rights: 9, peek: true }, |_, _| true).unwrap();
    assert_eq!((peeked.bytes, peeked.rights.len()), (1, 1));
    all.close(ME, event).unwrap();
    assert_eq!(receive(&mut all, CHILD, two, 9).unwrap(), [right(Origin::Process, event)]);
    assert_eq!(read(&mut all, CHILD, event, 8).unwrap(), 5u64.to_ne_bytes());
    assert_eq!(read(&mut all, ME, two, 9).unwrap(), b"more");
    // Twice given, twice given back.
    for _ in 0..2 {
        assert_eq!(send(&mut all, CHILD, one, &[right(Origin::Process, event)]), Ok(1));
    }
    for _ in 0..2 {
        assert_eq!(receive(&mut all, CHILD, two, 9).map(|rights| rights.len()), Ok(1));
    }
    (0..3).for_each(|_| all.close(CHILD, event).unwrap());
    assert_eq!(all.events, 0);
}

#[test]
fn what_nobody_can_receive_is_closed() {
    let mut all = Descriptions::default();
    let (one, two) = all.pair(ME, SocketKind::Datagram, who(7)).unwrap();
    let (reading, writing) = all.pipe(ME).unwrap();
    // Read without asking for it, and too many of them.
    send(&mut all, ME, one, &[right(Origin::Process, reading), right(Origin::Process, writing)]).unwrap();
    [reading, writing].iter().for_each(|id| all.close(ME, *id).unwrap());
    assert_eq!(receive(&mut all, ME, two, 1).unwrap().len(), 1);
    assert_eq!(read(&mut all, ME, reading, 1), Ok(Vec::new()), "the writing end went");
    all.close(ME, reading).unwrap();
    // Ends that lie in each other's messages, in a listener's waiting connection too.
    send(&mut all, ME, one, &[right(Origin::Process, one)]).unwrap();
    send(&mut all, ME, two, &[right(Origin::Process, two)]).unwrap();
    let listener = all.socket(ME, SocketKind::Stream, who(7)).unwrap();
    let address = LocalAddress { file: Some(3), name: b"/s".into() };
    all.sockets(ME, listener).unwrap().bind(listener, address.clone()).unwrap();
    all.sockets(ME, listener).unwrap().listen(listener, 1, who(7)).unwrap();
    let client = all.socket(ME, SocketKind::Stream, who(8)).unwrap();
    all.connect(ME, client, &address, who(8)).unwrap();
    send(&mut all, ME, client, &[right(Origin::Process, listener), right(Origin::Process, one)]).unwrap();
    all.close(ME, one).unwrap();
    all.close(ME, two).unwrap();
    assert_eq!(all.all.len(), 4, "the connection may still be accepted, and so all of it received");
    all.remove_clients(ME..=ME, |_| true);
    assert!(all.all.is_empty() && all.pipes.is_empty() && all.sockets.room(crate::sockets::SOCKETS_MAX).is_ok());
}

#[test]
fn tickets_are_settled_once_whatever_becomes_of_them() {
    let mut all = Descriptions::default();
    let (one, two) = all.pair(ME, SocketKind::Packets, who(7)).unwrap();
    let ticket = |number| right(if number % 2 == 0 { Origin::Files } else { Origin::Network }, number);
    for number in 10..14 {
        send(&mut all, ME, one, &[ticket(number)]).unwrap();
    }
    assert_eq!(send(&mut all, ME, one, &[ticket(10)]), Err(Error::Invalid));
    all.lose(&[ticket(10), ticket(99)]);
    assert_eq!(all.take_settled(), [(Origin::Network, 99)], "what is on its way is not lost");
    assert_eq!(all.unsettled(&[9, 10, 13]), [10, 13]);
    all.inherit(ME, CHILD);
    assert_eq!(receive(&mut all, CHILD, two, 9).unwrap(), [ticket(10)]);
    assert_eq!(receive(&mut all, CHILD, two, 9).unwrap(), [ticket(11)]);
    all.claimed(ME, &[10]);
    assert_eq!((all.take_settled(), all.unsettled(&[10])), (vec![], vec![10]));
    all.claimed(CHILD, &[10, 12]);
    assert_eq!(all.take_settled(), [(Origin::Files, 10)]);
    all.remove_clients(CHILD..=CHILD, |_| true);
    assert_eq!(all.take_settled(), [(Origin::Network, 11)]);
    all.remove_clients(ME..=ME, |_| true);
    let mut settled = all.take_settled();
    settled.sort();
    assert_eq!(settled, [(Origin::Files, 12), (Origin::Network, 13)]);
    assert!(all.tickets.is_empty());
}

#[test]
fn timers_and_handles_are_ready_when_something_happened() {
    let mut all = Descriptions::default();
    let timer = all.timer(ME, false).unwrap();
    let now = |ns| Now { ns, of_timer_ns: ns };
    assert_eq!((all.is_of_day(ME, timer), all.is_of_day(CHILD, timer)), (Ok(false), Err(Error::BadId)));
    all.set_timer(timer, now(0), TimerStart::In(100), 100);
    assert_eq!((all.next_ns(), all.ready(timer, ready::READ)), (Some(100), 0));
    let read_at = |all: &mut Descriptions, now_ns| all.read(ME, timer, 8, now_ns, |_, _| true);
    assert_eq!(read_at(&mut all, 99), Err(Error::WouldBlock));
    all.expire(100);
    assert_eq!((all.take_changed(), all.ready(timer, ready::READ | ready::WRITE)), (vec![timer], ready::READ));
    assert_eq!((read_at(&mut all, 350), all.ready(timer, ready::READ)), (Ok(8), 0));
    assert_eq!(all.read(ME, timer, 7, 999, |_, _| true), Err(Error::Invalid));
    all.inherit(ME, CHILD);
    all.close(ME, timer).unwrap();
    assert!(all.next_ns().is_some(), "the child has it");
    all.close(CHILD, timer).unwrap();
    assert_eq!(all.next_ns(), None);

    let handle = all.handle(ME, 9, 77, false).unwrap();
    assert_eq!((all.process_of(ME, handle), all.ready(handle, ready::READ)), (Ok((9, 77)), 0));
    all.process_ended(78);
    assert_eq!(all.ready(handle, ready::READ), 0);
    all.take_changed();
    all.process_ended(77);
    assert_eq!((all.take_changed(), all.ready(handle, ready::READ)), (vec![handle], ready::READ));
    assert_eq!(all.process_of(ME, timer), Err(Error::BadId));
    assert_eq!(write(&mut all, ME, handle, b"x"), Err(Error::Invalid));
}

#[test]
fn a_pipe_is_looked_into_without_taking() {
    let mut all = Descriptions::default();
    let (reading, writing) = all.pipe(ME).unwrap();
    let peek = |all: &mut Descriptions, from, room| {
        let mut bytes = vec![0; room];
        let count = all.peek(ME, reading, from, room, |offset, part| {
            bytes[offset..offset + part.len()].copy_from_slice(part);
            true
        })?;
        bytes.truncate(count);
        Ok(bytes)
    };
    assert_eq!(peek(&mut all, 0, 9), Err(Error::WouldBlock));
    write(&mut all, ME, writing, b"hello").unwrap();
    assert_eq!((peek(&mut all, 0, 9).unwrap(), peek(&mut all, 2, 2).unwrap()), (b"hello".to_vec(), b"ll".to_vec()));
    assert_eq!((peek(&mut all, 5, 9), peek(&mut all, u64::MAX, 9)), (Err(Error::WouldBlock), Err(Error::WouldBlock)));
    assert_eq!(read(&mut all, ME, reading, 9).unwrap(), b"hello");
    all.close(ME, writing).unwrap();
    assert_eq!(peek(&mut all, 0, 9).unwrap(), b"");
}

/// Bytes that lie in two pieces come out in order, for a read and for a look, which may begin
/// anywhere; what cannot be put stays whole.
#[test]
fn bytes_that_lie_in_two_pieces_come_out_in_order() {
    let mut all = Descriptions::default();
    let (reading, writing) = all.pipe(ME).unwrap();
    assert_eq!(all.capacity(ME, reading, Some(4096)), Ok(4096));
    let bytes: Vec<u8> = (0..6000).map(|number: u32| number as u8 ^ (number >> 8) as u8).collect();
    assert_eq!(write(&mut all, ME, writing, &bytes[..3000]), Ok(3000));
    assert_eq!(read(&mut all, ME, reading, 2000).unwrap(), bytes[..2000]);
    assert_eq!(write(&mut all, ME, writing, &bytes[3000..]), Ok(3000));
    let held = &bytes[2000..];
    for from in [0, 500, 2095, 2096, 2097, 3999] {
        let (mut seen, mut pieces) = (vec![0; 4000], 0);
        let looked = all.peek(ME, reading, from as u64, 4000, |offset, part| {
            seen[offset..offset + part.len()].copy_from_slice(part);
            pieces += 1;
            true
        });
        assert_eq!((looked, pieces), (Ok(4000 - from), 1 + usize::from(from < 2096)));
        assert_eq!(seen[..4000 - from], held[from..]);
    }
    for refused in [0, 2096] {
        assert_eq!(all.read(ME, reading, 4000, 0, |offset, _| offset != refused), Err(Error::Invalid));
        assert_eq!(all.peek(ME, reading, 0, 4000, |offset, _| offset != refused), Err(Error::Invalid));
    }
    assert_eq!(read(&mut all, ME, reading, 4000).unwrap(), held);
}

/// A write is taken in part, or not at all, as its size says; and of what cannot be fetched nothing
/// is.
#[test]
fn what_is_written_is_what_there_was_room_for() {
    let mut all = Descriptions::default();
    let (reading, writing) = all.pipe(ME).unwrap();
    assert_eq!(all.ready(writing, u32::MAX), ready::WRITE);
    for count in [1, FEW_BYTES, FEW_BYTES + 1, 5000] {
        assert_eq!(all.write(ME, writing, || who(7), count, |_| false), Err(Error::Invalid));
        assert_eq!((all.available(ME, reading), all.has_news()), (Ok(0), false));
        let bytes: Vec<u8> = (0..count).map(|number| number as u8 ^ 0x55).collect();
        assert_eq!(write(&mut all, ME, writing, &bytes), Ok(count));
        assert!(all.has_news());
        assert_eq!(read(&mut all, ME, reading, 9999).unwrap(), bytes);
        all.take_changed();
        assert!(!all.has_news());
    }
    all.capacity(ME, writing, Some(8192)).unwrap();
    assert_eq!(all.take_changed(), [writing]);
    assert_eq!(write(&mut all, ME, writing, &[1; 4097]), Ok(4097));
    assert_eq!(all.ready(writing, u32::MAX), 0, "4,095 bytes are no room for a whole write");
    assert_eq!(write(&mut all, ME, writing, &[2; 4096]), Err(Error::WouldBlock));
    assert_eq!(write(&mut all, ME, writing, &[2; 5000]), Ok(4095));
    assert_eq!(write(&mut all, ME, writing, &[3; 5000]), Err(Error::WouldBlock));
    assert_eq!(read(&mut all, ME, reading, 1).unwrap(), [1]);
    assert_eq!(all.available(ME, writing), Err(Error::NotTerminal));
    // Who writes is told that nobody reads, and what lies there goes with the last end.
    all.take_changed();
    all.close(ME, reading).unwrap();
    assert_eq!(all.take_changed(), [reading, writing]);
    let holds = [0, ready::ERROR, u32::MAX].map(|mask| all.ready(writing, mask));
    assert_eq!(holds, [ready::ERROR, ready::ERROR, ready::WRITE | ready::ERROR]);
    assert_eq!(write(&mut all, ME, writing, b"x"), Err(Error::BrokenPipe));
    all.close(ME, writing).unwrap();
    assert!(all.pipes.is_empty() && all.large_pipes == 0);
}

#[test]
fn each_kind_is_looked_into_and_measured_as_what_it_is() {
    let mut all = Descriptions::default();
    let (reading, writing) = all.pipe(ME).unwrap();
    let named = all.open_named(ME, 5, (true, true), true).unwrap();
    let to_write = all.open_named(ME, 5, (false, true), true).unwrap();
    let (event, timer) = (all.event(ME, 0, false).unwrap(), all.timer(ME, false).unwrap());
    let (socket, _) = all.pair(ME, SocketKind::Stream, who(7)).unwrap();
    write(&mut all, ME, named, b"named").unwrap();
    let mut peek = |id| all.peek(ME, id, 1, 9, |_, _| true);
    assert_eq!((peek(named), peek(reading)), (Ok(4), Err(Error::WouldBlock)));
    assert_eq!([writing, to_write].map(&mut peek), [Err(Error::BadId); 2]);
    assert_eq!([event, timer, socket].map(&mut peek), [Err(Error::NotSeekable); 3]);
    assert_eq!([named, socket].map(|id| all.available(ME, id)), [Ok(5), Ok(0)]);
    assert_eq!([to_write, event, timer].map(|id| all.available(ME, id)), [Err(Error::NotTerminal); 3]);
    assert_eq!([reading, writing, named, to_write].map(|id| all.kind(ME, id)), [Ok(Kind::Pipe); 4]);
}

/// Nobody has more timers, or handles, than are left to others; other descriptions do not count.
#[test]
fn timers_and_handles_are_shared_as_pipes_are() {
    let mut all = Descriptions::default();
    let handle = |all: &mut Descriptions, client| all.handle(client, 9, 77, false);
    let timer = |all: &mut Descriptions, client| all.timer(client, false);
    let events = [(); 1500].map(|()| all.event(CHILD, 0, false).unwrap());
    let timers: Vec<_> = (0..TIMERS_MAX).map_while(|_| timer(&mut all, ME).ok()).collect();
    assert_eq!((timers.len(), timer(&mut all, CHILD).is_ok()), (TIMERS_MAX / 2, true));
    let handles: Vec<_> = (0..HANDLES_MAX).map_while(|_| handle(&mut all, ME).ok()).collect();
    assert_eq!((handles.len(), handle(&mut all, CHILD).is_ok()), (HANDLES_MAX / 2, true));
    timers.iter().chain(&handles).for_each(|id| all.close(ME, *id).unwrap());
    all.remove_clients(CHILD..=CHILD, |_| true);
    assert!(all.all.is_empty() && all.check(CHILD, events[0]).is_err());
    assert_eq!((0..HANDLES_MAX).map_while(|_| handle(&mut all, ME).ok()).count(), HANDLES_MAX / 2);
}

#[test]
fn messages_carry_so_many_rights_and_so_many_tickets_are_on_their_way() {
    let mut all = Descriptions::default();
    let ticket = |number: usize| right(Origin::Files, number as u64);
    let most: Vec<_> = (0..=RIGHTS_MAX).map(|number| ticket(10_000 + number)).collect();
    let mut sent = 0;
    'all: loop {
        let (one, _two) = all.pair(ME, SocketKind::Packets, who(7)).unwrap();
        assert_eq!(send(&mut all, ME, one, &most), Err(Error::TooMany));
        for _ in 0..100 {
            let rights: Vec<_> = (sent..sent + RIGHTS_MAX).map(ticket).collect();
            assert_eq!(send(&mut all, ME, one, &rights), Ok(1));
            sent += RIGHTS_MAX;
            if sent == TICKETS_MAX {
                assert_eq!(send(&mut all, ME, one, &[ticket(sent)]), Err(Error::TooMany));
                break 'all;
            }
        }
    }
    assert_eq!((all.tickets.len(), all.take_settled()), (TICKETS_MAX, vec![]));
}

#[test]
fn what_goes_with_no_byte_is_on_its_way_in_a_message_only() {
    let mut all = Descriptions::default();
    for (kind, number) in [(SocketKind::Stream, 10), (SocketKind::Packets, 11)] {
        let (one, two) = all.pair(ME, kind, who(7)).unwrap();
        let rights = [right(Origin::Files, number)];
        let sent = all.send(ME, one, &Sender { who: who(7), to: None, rights: &rights }, 0, |_| true);
        assert_eq!((sent, receive(&mut all, ME, two, 9).is_ok()), (Ok(0), kind == SocketKind::Packets));
    }
    assert_eq!((all.unsettled(&[10, 11]), all.take_settled()), (vec![11], vec![(Origin::Files, 10)]));
}

#[test]
fn who_only_looked_cannot_claim_and_a_terminal_is_no_ticket() {
    let mut all = Descriptions::default();
    let (one, two) = all.pair(ME, SocketKind::Packets, who(7)).unwrap();
    let rights = [right(Origin::Files, 10), right(Origin::Console, 11)];
    send(&mut all, ME, one, &rights).unwrap();
    let look = ReceiveOptions { room: 9, rights: 9, peek: true };
    assert_eq!(all.receive(ME, two, look, |_, _| true).unwrap().rights, rights);
    all.claimed(ME, &[10]);
    assert_eq!((all.take_settled(), all.unsettled(&[10, 11])), (vec![], vec![10]), "it is still there");
    assert_eq!(receive(&mut all, ME, two, 9).unwrap(), rights);
    // It stays its receiver's when others end.
    all.remove_clients(CHILD..=CHILD, |_| true);
    assert_eq!(all.take_settled(), []);
    all.claimed(ME, &[10, 11]);
    assert_eq!((all.take_settled(), all.unsettled(&[10])), (vec![(Origin::Files, 10)], vec![]));
}

#[test]
fn what_is_written_is_told_with_its_writer() {
    let mut all = Descriptions::default();
    let (one, two) = all.pair(ME, SocketKind::Stream, who(3)).unwrap();
    *all.sockets(ME, two).unwrap().tells_sender(two).unwrap() = true;
    assert_eq!(write(&mut all, ME, one, b"x"), Ok(1));
    let options = ReceiveOptions { room: 9, rights: 0, peek: false };
    assert_eq!(all.receive(ME, two, options, |_, _| true).unwrap().sender, Some(who(7)));
}

/// Two ends that only each other's messages hold go, whether they were closed or their program
/// ended.
#[test]
fn ends_that_only_each_other_hold_go_at_once() {
    for is_closed in [true, false] {
        let mut all = Descriptions::default();
        let (one, two) = all.pair(ME, SocketKind::Stream, who(7)).unwrap();
        send(&mut all, ME, one, &[right(Origin::Process, one)]).unwrap();
        send(&mut all, ME, two, &[right(Origin::Process, two)]).unwrap();
        if is_closed {
            all.close(ME, one).unwrap();
            assert_eq!(all.all.len(), 2, "it can be received at the other");
            all.close(ME, two).unwrap();
        } else {
            all.remove_clients(ME..=ME, |_| true);
        }
        assert!(all.all.is_empty(), "closed: {is_closed}");
    }
}

#[test]
fn there_is_word_of_tickets_and_of_lines_alike() {
    let log = LocalAddress { file: Some(7), name: b"/dev/log".to_vec() };
    // Its ids are no other's, whenever it comes.
    for is_first in [true, false] {
        let mut all = Descriptions::default();
        let event = if is_first { 0 } else { all.event(ME, 0, false).unwrap() };
        let (one, two) = if is_first { (0, 0) } else { all.pair(ME, SocketKind::Stream, who(7)).unwrap() };
        all.open_log(7);
        let (three, four) = all.pair(ME, SocketKind::Stream, who(7)).unwrap();
        assert!(event <= one && one <= two && two < three && three < four);
        let pairs = [(one, two), (three, four), (four, three)];
        for (from, to) in pairs.into_iter().filter(|(from, _)| *from != 0) {
            assert_eq!((write(&mut all, ME, from, b"x"), read(&mut all, ME, to, 9)), (Ok(1), Ok(b"x".to_vec())));
        }
        assert!(!all.has_word());
        for kind in [SocketKind::Datagram, SocketKind::Stream] {
            let speaker = all.socket(ME, kind, who(7)).unwrap();
            all.connect(ME, speaker, &log, who(7)).unwrap();
            assert_eq!(write(&mut all, ME, speaker, b"said\n"), Ok(5));
            assert!(all.has_word());
            assert_eq!((all.take_logged(), all.has_word()), (vec![(7, String::from("said"))], false));
        }
        all.lose(&[right(Origin::Files, 3)]);
        assert!(all.has_word() && all.has_news());
        assert_eq!((all.take_settled(), all.has_word()), (vec![(Origin::Files, 3)], false));
    }
}
