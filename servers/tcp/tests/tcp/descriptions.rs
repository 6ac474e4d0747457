//! Descriptions of streams on the host: addresses, who shares them, readiness, and who is woken.

use crate::common::*;
use contracts::descriptions::{DescriptionError, DescriptionId, WatchFor, ready};
use contracts::sockets::{Family, Shutdown, SocketAddress, SocketKind, SocketOption, SocketOptionName};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

const LOCALHOST: [u8; 4] = [127, 0, 0, 1];
const ANY: [u8; 4] = [0; 4];

fn at(address: [u8; 4], port: u16) -> SocketAddress {
    SocketAddress { address, port }
}

fn fresh(machine: &mut Machine) -> DescriptionId {
    machine.sockets.socket(ME, Family::Internet, SocketKind::Stream).unwrap()
}

fn sharing(machine: &mut Machine, port: u16) -> Result<DescriptionId, DescriptionError> {
    let id = fresh(machine);
    machine.sockets.set_option(ME, id, SocketOption::ReusePort(true)).unwrap();
    machine.sockets.bind(ME, id, at(ANY, port)).map(|()| id)
}

#[test]
fn a_stream_is_bound_once_to_an_address_of_ours() {
    let Net { mut server, .. } = Net::new();
    let one = fresh(&mut server);
    assert_eq!(server.sockets.bind(ME, one, at(CLIENT, 80)), Err(DescriptionError::AddressNotAvailable));
    assert_eq!(server.sockets.bind(ME, one, at(SERVER, 80)), Ok(()));
    assert_eq!(server.sockets.names(ME, one), Ok((at(SERVER, 80), None)));
    assert_eq!(server.sockets.bind(ME, one, at(SERVER, 81)), Err(DescriptionError::Invalid));
    let other = fresh(&mut server);
    assert_eq!(server.sockets.bind(ME, other, at(ANY, 80)), Err(DescriptionError::AddressInUse));
    let mut ports: Vec<u16> = (0..20)
        .map(|_| {
            let id = fresh(&mut server);
            server.sockets.bind(ME, id, at(ANY, 0)).unwrap();
            server.sockets.names(ME, id).unwrap().0.port
        })
        .collect();
    assert!(ports.iter().all(|port| *port >= 1 << 15), "{ports:?}");
    ports.sort_unstable();
    assert!(ports.windows(2).all(|two| two[0] != two[1]), "{ports:?}");
    let within_four = ports.windows(2).filter(|two| two[1] - two[0] < 4).count();
    assert!(within_four < 10, "no order that strangers foretell: {ports:?}");
    assert_eq!(server.sockets.socket(ME, Family::Local, SocketKind::Stream), Err(DescriptionError::NotSupported));
}

#[test]
fn those_who_share_a_port_take_from_one_queue_until_the_last_is_closed() {
    let mut net = Net::new();
    let alone = fresh(&mut net.server);
    let [one, two] = [(); 2].map(|()| sharing(&mut net.server, 80).unwrap());
    assert_eq!(net.server.sockets.bind(ME, alone, at(ANY, 80)), Err(DescriptionError::AddressInUse));
    net.server.sockets.bind(ME, alone, at(ANY, 81)).unwrap();
    assert_eq!(sharing(&mut net.server, 81), Err(DescriptionError::AddressInUse), "its owner does not share");
    for id in [one, two] {
        assert_eq!(net.server.sockets.listen(ME, id, 0), Ok(()));
        assert_eq!(net.server.sockets.poll(ME, id, ready::READ, WatchFor::Level), Ok(0));
    }
    net.client.connect(SERVER, 80, net.now_ns);
    let mut told = Vec::new();
    for _ in 0..3 {
        net.client.turn(net.now_ns).iter().for_each(|packet| net.server.deliver(packet, net.now_ns));
        net.server.sockets.tcp.turn(net.now_ns);
        told.extend(net.server.sockets.settle());
        net.server.turn(net.now_ns).iter().for_each(|packet| net.client.deliver(packet, net.now_ns));
    }
    let told: Vec<_> = told.iter().map(|told| (told.id, told.mask)).collect();
    assert_eq!(told, [(one, ready::READ), (two, ready::READ)]);
    assert!(net.server.sockets.accept(ME, two).is_ok());
    assert_eq!(net.server.sockets.accept(ME, one), Err(DescriptionError::WouldBlock));
    net.server.sockets.close(ME, one).unwrap();
    net.connection(two, 80);
    net.server.sockets.close(ME, two).unwrap();
    let late = net.client.connect(SERVER, 80, net.now_ns);
    net.settle();
    assert_eq!(net.client.sockets.connected(ME, late), Err(DescriptionError::ConnectionRefused));
}

#[test]
fn a_listener_of_one_address_is_not_found_at_another() {
    let mut net = Net::new();
    let inside = fresh(&mut net.server);
    net.server.sockets.bind(ME, inside, at(LOCALHOST, 80)).unwrap();
    net.server.sockets.listen(ME, inside, 0).unwrap();
    let from_outside = net.client.connect(SERVER, 80, net.now_ns);
    let from_inside = net.server.connect(LOCALHOST, 80, net.now_ns);
    net.settle();
    assert_eq!(net.client.sockets.connected(ME, from_outside), Err(DescriptionError::ConnectionRefused));
    assert_eq!(net.server.sockets.connected(ME, from_inside), Ok(()));
    let outside = fresh(&mut net.server);
    net.server.sockets.bind(ME, outside, at(SERVER, 81)).unwrap();
    net.server.sockets.listen(ME, outside, 0).unwrap();
    net.connection(outside, 81);
}

#[test]
fn a_socket_of_ipv6_alone_is_in_nobodys_way_and_hears_nobody() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    assert_eq!(
        net.server.sockets.set_option(ME, listener, SocketOption::Only6(true)),
        Err(DescriptionError::NotSupported)
    );
    let only = net.server.sockets.socket(ME, Family::Internet6, SocketKind::Stream).unwrap();
    assert_eq!(net.server.sockets.set_option(ME, only, SocketOption::Only6(true)), Ok(()));
    let option = net.server.sockets.option(ME, only, SocketOptionName::Only6, 0);
    assert_eq!(option, Ok(SocketOption::Only6(true)));
    assert_eq!(net.server.sockets.bind(ME, only, at(ANY, 80)), Ok(()));
    assert_eq!(net.server.sockets.listen(ME, only, 0), Ok(()));
    net.connection(listener, 80);
    assert_eq!(net.server.sockets.accept(ME, only), Err(DescriptionError::WouldBlock));
    assert_eq!(net.server.sockets.poll(ME, only, ready::READ | ready::WRITE, WatchFor::Nothing), Ok(0));
}

#[test]
fn both_ends_of_a_connection_have_the_same_names() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let at_client = net.client.connect(SERVER, 80, net.now_ns);
    let (own, peer) = net.client.sockets.names(ME, at_client).unwrap();
    assert_eq!((own.address, peer), (CLIENT, None), "it is not there yet");
    net.settle();
    let at_server = net.server.sockets.accept(ME, listener).unwrap().id;
    assert_eq!(net.client.sockets.names(ME, at_client), Ok((own, Some(at(SERVER, 80)))));
    assert_eq!(net.server.sockets.names(ME, at_server), Ok((at(SERVER, 80), Some(own))));
}

#[test]
fn errors_and_ends_are_told_whatever_was_asked_for() {
    let mut net = Net::new();
    let polled = |net: &mut Net, id, mask| net.client.sockets.poll(ME, id, mask, WatchFor::Nothing).unwrap();
    let idle = fresh(&mut net.client);
    for mask in [0, ready::HANGUP, ready::ERROR, ready::HANGUP | ready::ERROR] {
        assert_eq!(polled(&mut net, idle, mask), ready::HANGUP, "a socket that was never connected");
    }
    assert_eq!(polled(&mut net, idle, ready::WRITE), ready::WRITE | ready::HANGUP);
    let refused = net.client.connect(SERVER, 81, net.now_ns);
    net.settle();
    for mask in [0, ready::HANGUP, ready::ERROR, ready::HANGUP | ready::ERROR] {
        assert_eq!(polled(&mut net, refused, mask), ready::HANGUP | ready::ERROR);
    }
}

#[test]
fn a_connection_without_room_is_not_ready_to_write_until_there_is_some_or_its_end() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (_, client) = net.connection(listener, 80);
    let can_write = |net: &mut Net| net.client.sockets.poll(ME, client, ready::WRITE, WatchFor::Nothing).unwrap();
    assert_eq!(can_write(&mut net), ready::WRITE);
    net.cut = true;
    while net.client.write(client, &[7; 10_000]).is_ok() {}
    assert_eq!(net.client.write(client, &[7]), Err(DescriptionError::WouldBlock));
    assert_eq!(can_write(&mut net), 0);
    assert_eq!(net.client.sockets.shutdown(ME, client, Shutdown::Write), Ok(()));
    assert_eq!(can_write(&mut net), ready::WRITE);
    assert_eq!(net.client.write(client, &[7]), Err(DescriptionError::BrokenPipe));
}

#[test]
fn who_has_ended_reading_reads_the_end_and_writes_on() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    assert_eq!(net.client.sockets.shutdown(ME, client, Shutdown::Read), Ok(()));
    assert_eq!(net.client.read(client, 9), Ok(Vec::new()));
    assert_eq!(net.client.write(client, b"question"), Ok(8));
    net.settle();
    assert_eq!(net.server.read(server, 9).unwrap(), b"question");
    assert_eq!(net.server.read(server, 9), Err(DescriptionError::WouldBlock), "it has not ended");
    assert_eq!(net.server.sockets.shutdown(ME, server, Shutdown::Write), Ok(()));
    net.settle();
    assert_eq!(net.server.read(server, 9), Err(DescriptionError::WouldBlock));
    assert_eq!(net.server.write(server, b"x"), Err(DescriptionError::BrokenPipe));
}

/// Small writes wait for the peer's acknowledgement unless the program, or its listener, said no.
#[test]
fn small_writes_wait_for_an_answer_unless_they_are_not_to() {
    for no_delay in [false, true] {
        let mut net = Net::new();
        let listener = net.server.listen(80);
        net.server.sockets.set_option(ME, listener, SocketOption::NoDelay(no_delay)).unwrap();
        let (server, client) = net.connection(listener, 80);
        net.client.sockets.set_option(ME, client, SocketOption::NoDelay(no_delay)).unwrap();
        let sent = |machine: &mut Machine, id| {
            (0..3).map(|_| (machine.write(id, b"x"), machine.turn(net.now_ns).len()).1).sum::<usize>()
        };
        let most = if no_delay { 3 } else { 1 };
        assert_eq!(sent(&mut net.client, client), most);
        assert_eq!(sent(&mut net.server, server), most);
    }
}

#[derive(Default)]
struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Counted>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn who_waits_is_woken_at_the_next_change_and_a_crowd_before() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    let woken = Arc::new(Counted::default());
    let waker = Waker::from(woken.clone());
    let count = || woken.0.swap(0, Ordering::Relaxed);
    assert!(!net.server.sockets.wait(server + 9, &waker), "it never changes");
    assert!(net.server.sockets.wait(server, &waker));
    assert_eq!(count(), 0);
    net.client.write(client, b"question").unwrap();
    net.settle();
    assert_eq!(count(), 1);
    net.server.sockets.shutdown(ME, server, Shutdown::Read).unwrap();
    assert_eq!(count(), 0, "it waits no more");
    assert!(net.server.sockets.wait(server, &waker));
    net.server.sockets.shutdown(ME, server, Shutdown::Read).unwrap();
    assert_eq!(count(), 1);
    // What cancelled operations leave behind is bounded: all look again.
    (0..64).for_each(|_| assert!(net.server.sockets.wait(server, &waker)));
    assert_eq!(count(), 0);
    assert!(net.server.sockets.wait(server, &waker));
    assert_eq!(count(), 64);
    net.server.sockets.close(ME, server).unwrap();
    assert_eq!(count(), 1);
}

#[test]
fn a_watcher_stays_until_what_it_watches_for_and_as_long_as_it_holds_a_reference() {
    const OTHER: u64 = 2;
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, client) = net.connection(listener, 80);
    let ticket = net.server.sockets.export(ME, server, 77).unwrap();
    (0..2).for_each(|_| assert_eq!(net.server.sockets.claim(OTHER, ticket), Ok(server)));
    let told = |net: &mut Net, bytes: &[u8]| {
        net.client.write(client, bytes).unwrap();
        net.client.turn(net.now_ns).iter().for_each(|packet| net.server.deliver(packet, net.now_ns));
        net.server.sockets.tcp.turn(net.now_ns);
        let told: Vec<_> = net.server.sockets.settle().iter().map(|told| (told.client, told.mask)).collect();
        net.pass(1_000_000_000);
        told
    };
    let watch = |net: &mut Net, watcher| {
        assert_eq!(net.server.sockets.poll(watcher, server, ready::READ, WatchFor::Level), Ok(0));
    };
    watch(&mut net, OTHER);
    net.server.sockets.close(OTHER, server).unwrap();
    // An acknowledgement is a change and brings nothing to read.
    net.server.write(server, b"answer").unwrap();
    net.pass(1_000_000_000);
    assert_eq!(told(&mut net, b"1"), [(OTHER, ready::READ)], "it holds one more");
    net.server.read(server, 9).unwrap();
    watch(&mut net, OTHER);
    watch(&mut net, ME);
    net.server.sockets.close(OTHER, server).unwrap();
    assert_eq!(told(&mut net, b"2"), [(ME, ready::READ)]);
}

#[test]
fn a_write_is_to_be_acted_on_at_once_and_not_while_no_buffer_is_free() {
    let mut net = Net::new();
    let listener = net.server.listen(80);
    let (server, _) = net.connection(listener, 80);
    assert_eq!(net.server.sockets.tcp.next_ns(), None);
    net.server.write(server, b"answer").unwrap();
    assert_eq!(net.server.sockets.tcp.next_ns(), Some(0));
    net.settle();
    // A driver that keeps all frames: datagrams leave some buffers to connections.
    let many: Vec<_> = (0..40).map(|_| net.connection(listener, 80).0).collect();
    net.server.holds = true;
    let speaker = net.server.sockets.socket(ME, Family::Internet, SocketKind::Datagram).unwrap();
    let to = Some(at(CLIENT, 9));
    while net.server.sockets.send_datagram(ME, speaker, 1, to, |_| true).is_ok() {}
    many.iter().for_each(|&id| assert_eq!(net.server.write(id, b"x"), Ok(1)));
    net.server.turn(net.now_ns);
    assert_eq!(net.server.sockets.tcp.free_buffers(), 0);
    net.server.write(server, b"more").unwrap();
    assert_ne!(net.server.sockets.tcp.next_ns(), Some(0));
}
