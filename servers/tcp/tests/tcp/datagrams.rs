//! Datagrams on the host: from end to end, to nobody, within a machine, and their limits.

use crate::common::*;
use contracts::descriptions::{DescriptionError, DescriptionId, WatchFor, ready};
use contracts::sockets::{
    Address, Family, Shutdown, SocketAddress, SocketAddress6, SocketKind, SocketOption, SocketOptionName,
};
use tcp::datagrams::{DATAGRAM_MAX, QUEUE_BYTES, SENT_MAX};

const LOCALHOST: [u8; 4] = [127, 0, 0, 1];
const ANY: [u8; 4] = [0; 4];
/// Of this time "nobody is here" is said once.
const UNREACHABLE_NS: u64 = 10_000_000;
const ALL: u32 = ready::READ | ready::WRITE | ready::READ_HANGUP;

fn at(address: [u8; 4], port: u16) -> SocketAddress {
    SocketAddress { address, port }
}

fn fresh(machine: &mut Machine) -> DescriptionId {
    machine.sockets.socket(ME, Family::Internet, SocketKind::Datagram).unwrap()
}

fn bound(machine: &mut Machine, address: [u8; 4], port: u16) -> DescriptionId {
    let id = fresh(machine);
    machine.sockets.bind(ME, id, at(address, port)).unwrap();
    id
}

fn connected(machine: &mut Machine, to: SocketAddress) -> DescriptionId {
    let id = fresh(machine);
    machine.sockets.connect(ME, id, to, 0).unwrap();
    assert_eq!(machine.sockets.connected(ME, id), Ok(()));
    id
}

fn send(
    machine: &mut Machine,
    id: DescriptionId,
    to: Option<SocketAddress>,
    bytes: &[u8],
) -> Result<usize, DescriptionError> {
    machine.sockets.send_datagram(ME, id, bytes.len(), to, |room| {
        room.copy_from_slice(bytes);
        true
    })
}

/// The oldest datagram and who sent it, `None` at the end.
fn receive(machine: &mut Machine, id: DescriptionId) -> Result<(Vec<u8>, Option<SocketAddress>), DescriptionError> {
    let mut all = Vec::new();
    let taken = machine.sockets.receive_datagram(ME, id, DATAGRAM_MAX, false, |bytes| {
        all.extend_from_slice(bytes);
        true
    })?;
    assert_eq!((taken.bytes, taken.whole), (all.len(), all.len()));
    Ok((all, taken.source))
}

fn holds(machine: &mut Machine, id: DescriptionId) -> u32 {
    machine.sockets.poll(ME, id, ALL, WatchFor::Nothing).unwrap()
}

fn names(machine: &mut Machine, id: DescriptionId) -> (SocketAddress, Option<SocketAddress>) {
    machine.sockets.names(ME, id).unwrap()
}

#[test]
fn a_datagram_comes_whole_with_its_sender_and_is_cut_to_the_room() {
    let mut net = Net::new();
    let server = bound(&mut net.server, ANY, 53);
    let client = fresh(&mut net.client);
    assert_eq!(names(&mut net.client, client), (at(ANY, 0), None));
    assert_eq!(send(&mut net.client, client, None, b"x"), Err(DescriptionError::DestinationRequired));
    assert_eq!(send(&mut net.client, client, Some(at(SERVER, 0)), b"x"), Err(DescriptionError::Invalid));
    assert_eq!(send(&mut net.client, client, Some(at(SERVER, 53)), b"question"), Ok(8));
    let (own, peer) = names(&mut net.client, client);
    assert!(own.address == ANY && own.port >= 1 << 15 && peer.is_none(), "{own:?}");
    assert_eq!((holds(&mut net.server, server), net.server.sockets.available(ME, server)), (ready::WRITE, Ok(0)));
    assert_eq!(receive(&mut net.server, server), Err(DescriptionError::WouldBlock));
    net.settle();
    let held = holds(&mut net.server, server);
    assert_eq!((held, net.server.sockets.available(ME, server)), (ready::READ | ready::WRITE, Ok(8)));
    let source = Some(at(CLIENT, own.port));
    let cut = net.server.sockets.receive_datagram(ME, server, 4, true, |bytes| bytes == b"ques").unwrap();
    assert_eq!((cut.bytes, cut.whole, cut.source), (4, 8, source));
    let refused = net.server.sockets.receive_datagram(ME, server, 4, false, |_| false);
    assert_eq!(refused, Err(DescriptionError::Invalid));
    assert_eq!(receive(&mut net.server, server), Ok((b"question".into(), source)), "it was only looked at");
    assert_eq!(receive(&mut net.server, server), Err(DescriptionError::WouldBlock));
    assert_eq!(net.server.sockets.receive_datagram(7, server, 4, false, |_| true), Err(DescriptionError::BadId));
}

#[test]
fn who_is_connected_hears_its_peer_only_until_it_is_not() {
    let mut net = Net::new();
    let server = bound(&mut net.server, ANY, 53);
    let other = bound(&mut net.server, ANY, 54);
    let client = connected(&mut net.client, at(SERVER, 53));
    let (own, peer) = names(&mut net.client, client);
    assert_eq!((own.address, peer), (CLIENT, Some(at(SERVER, 53))));
    assert_eq!(send(&mut net.client, client, None, b"question"), Ok(8));
    net.settle();
    assert_eq!(receive(&mut net.server, server), Ok((b"question".into(), Some(own))));
    send(&mut net.server, other, Some(own), b"stray").unwrap();
    send(&mut net.server, server, Some(own), b"answer").unwrap();
    net.settle();
    assert_eq!(receive(&mut net.client, client), Ok((b"answer".into(), Some(at(SERVER, 53)))));
    assert_eq!(receive(&mut net.client, client), Err(DescriptionError::WouldBlock));
    assert_eq!(net.server.sockets.tcp.counters().bad, 0);
    assert_eq!(net.client.sockets.tcp.counters().no_socket, 1);

    net.client.sockets.disconnect(ME, client).unwrap();
    assert_eq!(names(&mut net.client, client), (own, None), "its port stays");
    assert_eq!(send(&mut net.client, client, None, b"x"), Err(DescriptionError::DestinationRequired));
    send(&mut net.server, other, Some(own), b"heard").unwrap();
    net.settle();
    assert_eq!(receive(&mut net.client, client), Ok((b"heard".into(), Some(at(SERVER, 54)))));

    let stream = net.client.sockets.socket(ME, Family::Internet, SocketKind::Stream).unwrap();
    assert_eq!(net.client.sockets.disconnect(ME, stream), Err(DescriptionError::Invalid));
    assert_eq!(net.client.sockets.connected(ME, stream), Err(DescriptionError::NotConnected));
}

/// Who is connected to where nobody is hears of it once for each word of it, and nobody else does.
#[test]
fn only_who_is_connected_to_nobody_is_told() {
    let mut net = Net::new();
    let nobody = at(SERVER, 9);
    let [beside, elsewhere] = [nobody, at(SERVER, 10)].map(|to| connected(&mut net.client, to));
    let client = connected(&mut net.client, nobody);
    let unconnected = fresh(&mut net.client);
    send(&mut net.client, unconnected, Some(nobody), b"x").unwrap();
    net.settle();
    net.now_ns += UNREACHABLE_NS;
    net.client.sockets.poll(ME, client, ready::READ, WatchFor::Level).unwrap();
    send(&mut net.client, client, None, b"question").unwrap();
    let question = net.client.turn(net.now_ns);
    question.iter().for_each(|packet| net.server.deliver(packet, net.now_ns));
    let said = net.server.turn(net.now_ns);
    assert_eq!(said.len(), 1);
    net.client.deliver(&said[0], net.now_ns);
    let told: Vec<_> = net.client.sockets.settle().iter().map(|told| (told.id, told.mask)).collect();
    assert_eq!(told, [(client, ready::ERROR)]);
    for other in [beside, elsewhere, unconnected] {
        assert_eq!(holds(&mut net.client, other), ready::WRITE);
    }
    assert_eq!(holds(&mut net.client, client), ready::WRITE | ready::ERROR);
    assert_eq!(receive(&mut net.client, client), Err(DescriptionError::ConnectionRefused));
    assert_eq!(receive(&mut net.client, client), Err(DescriptionError::WouldBlock), "it is told once");

    // Another word of it: each is told by whatever the program asks next.
    net.client.deliver(&said[0], net.now_ns);
    assert_eq!(send(&mut net.client, client, None, b"x"), Err(DescriptionError::ConnectionRefused));
    net.client.deliver(&said[0], net.now_ns);
    let error = |net: &mut Net| net.client.sockets.option(ME, client, SocketOptionName::Error, net.now_ns);
    assert_eq!(error(&mut net), Ok(SocketOption::Error(Some(DescriptionError::ConnectionRefused))));
    assert_eq!(error(&mut net), Ok(SocketOption::Error(None)));
    net.client.deliver(&said[0], net.now_ns);
    net.client.sockets.connect(ME, client, at(SERVER, 11), 0).unwrap();
    assert_eq!(receive(&mut net.client, client), Err(DescriptionError::WouldBlock), "it was of another peer");
}

#[test]
fn that_nobody_is_here_is_said_once_in_10_ms_and_only_with_buffers_to_spare() {
    let mut net = Net::new();
    let client = fresh(&mut net.client);
    let ask = |net: &mut Net| {
        send(&mut net.client, client, Some(at(SERVER, 9)), b"question").unwrap();
        let question = net.client.turn(net.now_ns);
        question.iter().for_each(|packet| net.server.deliver(packet, net.now_ns));
        net.server.turn(net.now_ns).len()
    };
    assert_eq!(ask(&mut net), 1);
    assert_eq!(ask(&mut net), 0);
    net.now_ns += UNREACHABLE_NS - 1;
    assert_eq!(ask(&mut net), 0);
    net.now_ns += 1;
    assert_eq!(ask(&mut net), 1);
    assert_eq!(net.server.sockets.tcp.counters().no_socket, 4);

    // A driver that keeps all frames: what is left of the buffers is TCP's.
    net.server.holds = true;
    let speaker = fresh(&mut net.server);
    while send(&mut net.server, speaker, Some(at(CLIENT, 9)), b"x").is_ok() {}
    net.server.turn(net.now_ns);
    net.now_ns += UNREACHABLE_NS;
    assert_eq!(ask(&mut net), 0);
    assert!(net.server.sockets.tcp.free_buffers() > 1);
}

#[test]
fn a_damaged_datagram_is_counted_and_not_given() {
    let mut net = Net::new();
    let server = bound(&mut net.server, ANY, 53);
    let client = fresh(&mut net.client);
    send(&mut net.client, client, Some(at(SERVER, 53)), b"question").unwrap();
    let mut packet = net.client.turn(net.now_ns).pop().unwrap();
    *packet.last_mut().unwrap() ^= 1;
    net.server.deliver(&packet, net.now_ns);
    assert_eq!(receive(&mut net.server, server), Err(DescriptionError::WouldBlock));
    assert_eq!(net.server.sockets.tcp.counters().bad, 1);
    assert!(net.server.turn(net.now_ns).is_empty());
}

#[test]
fn within_a_machine_datagrams_need_no_packets() {
    for address in [LOCALHOST, SERVER] {
        let Net { mut server, now_ns, .. } = Net::new();
        let listener = bound(&mut server, ANY, 53);
        let speaker = connected(&mut server, at(address, 53));
        let own = names(&mut server, speaker).0;
        assert_eq!(own.address, address);
        server.sockets.poll(ME, listener, ready::READ, WatchFor::Level).unwrap();
        send(&mut server, speaker, None, b"question").unwrap();
        let told: Vec<_> = server.sockets.settle().iter().map(|told| (told.id, told.mask)).collect();
        assert_eq!(told, [(listener, ready::READ)]);
        assert_eq!(receive(&mut server, listener), Ok((b"question".into(), Some(own))));
        // To nobody: only who is connected to it hears of that.
        send(&mut server, speaker, Some(at(address, 9)), b"x").unwrap();
        assert_eq!(holds(&mut server, speaker), ready::WRITE);
        server.sockets.connect(ME, speaker, at(address, 9), 0).unwrap();
        send(&mut server, speaker, None, b"x").unwrap();
        assert_eq!(send(&mut server, speaker, None, b"x"), Err(DescriptionError::ConnectionRefused));
        assert!(server.turn(now_ns).is_empty());
    }
}

#[test]
fn directions_of_datagrams_end_each_for_itself() {
    let mut net = Net::new();
    let [listener, speaker, both] = [(); 3].map(|()| connected(&mut net.client, at(SERVER, 53)));
    let server = bound(&mut net.server, ANY, 53);
    let shut = |net: &mut Net, id, how| net.client.sockets.shutdown(ME, id, how);
    assert_eq!(shut(&mut net, listener, Shutdown::Write), Ok(()));
    assert_eq!(send(&mut net.client, listener, None, b"x"), Err(DescriptionError::BrokenPipe));
    assert_eq!(receive(&mut net.client, listener), Err(DescriptionError::WouldBlock));
    assert_eq!(holds(&mut net.client, listener), ready::WRITE);

    assert_eq!(shut(&mut net, speaker, Shutdown::Read), Ok(()));
    assert_eq!(receive(&mut net.client, speaker), Ok((Vec::new(), None)));
    assert_eq!(holds(&mut net.client, speaker), ALL);
    assert_eq!(send(&mut net.client, speaker, None, b"question"), Ok(8));
    net.settle();
    let (_, source) = receive(&mut net.server, server).unwrap();
    send(&mut net.server, server, source, b"too late").unwrap();
    net.settle();
    assert_eq!(receive(&mut net.client, speaker), Ok((Vec::new(), None)));
    assert_eq!(shut(&mut net, speaker, Shutdown::Write), Ok(()));

    assert_eq!(shut(&mut net, both, Shutdown::Both), Ok(()));
    for id in [speaker, both] {
        assert_eq!(holds(&mut net.client, id), ALL | ready::HANGUP);
        assert_eq!(send(&mut net.client, id, None, b"x"), Err(DescriptionError::BrokenPipe));
    }
    let unconnected = fresh(&mut net.client);
    assert_eq!(shut(&mut net, unconnected, Shutdown::Both), Err(DescriptionError::NotConnected));
}

#[test]
fn a_datagram_is_as_long_as_may_be_and_no_longer() {
    let Net { mut server, mut client, now_ns, .. } = Net::new();
    let own = bound(&mut server, ANY, 53);
    let speaker = fresh(&mut server);
    let longest = vec![7; DATAGRAM_MAX + 1];
    assert_eq!(send(&mut server, speaker, Some(at(LOCALHOST, 53)), &longest), Err(DescriptionError::MessageTooLong));
    let most = &longest[..DATAGRAM_MAX];
    assert_eq!(send(&mut server, speaker, Some(at(LOCALHOST, 53)), most), Ok(DATAGRAM_MAX));
    assert_eq!(receive(&mut server, own).unwrap().0, most);
    let outside = Some(at(CLIENT, 53));
    assert_eq!(send(&mut server, speaker, outside, &longest[..SENT_MAX + 1]), Err(DescriptionError::MessageTooLong));
    assert_eq!(send(&mut server, speaker, outside, &longest[..SENT_MAX]), Ok(SENT_MAX));
    assert_eq!(SENT_MAX, 1472, "an Ethernet's 1500 bytes without headers");
    let to = bound(&mut client, ANY, 53);
    server.turn(now_ns).iter().for_each(|packet| client.deliver(packet, now_ns));
    assert_eq!(receive(&mut client, to).unwrap().0, &longest[..SENT_MAX]);
}

#[test]
fn what_cannot_leave_is_refused() {
    let Net { mut server, .. } = Net::new();
    let inside = bound(&mut server, LOCALHOST, 53);
    assert_eq!(send(&mut server, inside, Some(at(CLIENT, 9)), b"x"), Err(DescriptionError::Unreachable));
    let any = bound(&mut server, ANY, 54);
    let of_host = bound(&mut server, SERVER, 55);
    for address in [[255; 4], [224, 0, 0, 1]] {
        assert_eq!(send(&mut server, any, Some(at(address, 9)), b"x"), Err(DescriptionError::Unreachable));
    }
    server.sockets.tcp.set_host(None);
    for id in [any, of_host] {
        assert_eq!(send(&mut server, id, Some(at(CLIENT, 9)), b"x"), Err(DescriptionError::Unreachable));
    }
    assert!(server.turn(0).is_empty());
}

/// Bytes that one endpoint keeps: a datagram counts 64 beside its own.
#[test]
fn what_one_endpoint_keeps_is_bounded_and_room_comes_back() {
    let Net { mut server, .. } = Net::new();
    let listener = bound(&mut server, ANY, 53);
    let speaker = connected(&mut server, at(LOCALHOST, 53));
    let most = QUEUE_BYTES / (1000 + 64);
    let fill =
        |server: &mut Machine| (0..most + 9).for_each(|_| assert!(send(server, speaker, None, &[7; 1000]).is_ok()));
    fill(&mut server);
    receive(&mut server, listener).unwrap();
    fill(&mut server);
    let waiting = (0..).take_while(|_| receive(&mut server, listener).is_ok()).count();
    assert_eq!(waiting, most);
}

#[test]
fn datagrams_share_a_port_by_either_option_and_by_their_addresses() {
    for options in [[SocketOption::ReuseAddress(true); 2], [SocketOption::ReusePort(true); 2]] {
        let Net { mut server, .. } = Net::new();
        let [one, two] = options.map(|option| {
            let id = fresh(&mut server);
            server.sockets.set_option(ME, id, option).unwrap();
            id
        });
        let alone = fresh(&mut server);
        for id in [one, two] {
            assert_eq!(server.sockets.bind(ME, id, at(ANY, 53)), Ok(()));
        }
        assert_eq!(server.sockets.bind(ME, alone, at(ANY, 53)), Err(DescriptionError::AddressInUse));
        assert_eq!(server.sockets.bind(ME, one, at(ANY, 54)), Err(DescriptionError::Invalid));
    }
    let Net { mut server, .. } = Net::new();
    bound(&mut server, SERVER, 54);
    bound(&mut server, LOCALHOST, 54);
    let other = fresh(&mut server);
    assert_eq!(server.sockets.bind(ME, other, at(SERVER, 54)), Err(DescriptionError::AddressInUse));
    assert_eq!(server.sockets.bind(ME, other, at(ANY, 54)), Err(DescriptionError::AddressInUse));
}

#[test]
fn a_socket_of_ipv6_has_ipv4_in_its_clothes() {
    let Net { mut server, .. } = Net::new();
    let mapped = |address: [u8; 4], port| {
        let address = std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets();
        Address::Internet6(SocketAddress6 { address, port })
    };
    let id = server.sockets.socket(ME, Family::Internet6, SocketKind::Datagram).unwrap();
    let any = Address::Internet6(SocketAddress6 { address: [0; 16], port: 53 });
    assert_eq!(server.sockets.meant(ME, id, &any), Ok(at(ANY, 53)));
    assert_eq!(server.sockets.meant(ME, id, &mapped(CLIENT, 9)), Ok(at(CLIENT, 9)));
    let only = Address::Internet6(SocketAddress6 { address: [1; 16], port: 53 });
    assert_eq!(server.sockets.meant(ME, id, &only), Err(DescriptionError::AddressNotAvailable));
    assert_eq!(server.sockets.meant(ME, id, &Address::Internet(at(CLIENT, 9))), Err(DescriptionError::Invalid));
    assert_eq!(server.sockets.told(ME, id, at(ANY, 53)), Ok(any));
    assert_eq!(server.sockets.told(ME, id, at(CLIENT, 9)), Ok(mapped(CLIENT, 9)));
}

#[test]
fn a_socket_tells_its_kind_and_its_fixed_sizes() {
    let Net { mut server, .. } = Net::new();
    let datagrams = fresh(&mut server);
    let stream = server.sockets.socket(ME, Family::Internet, SocketKind::Stream).unwrap();
    let mut option = |id, name| server.sockets.option(ME, id, name, 0);
    assert_eq!(option(datagrams, SocketOptionName::Kind), Ok(SocketOption::Kind(SocketKind::Datagram)));
    assert_eq!(option(stream, SocketOptionName::Kind), Ok(SocketOption::Kind(SocketKind::Stream)));
    let kept = Ok(SocketOption::ReceiveBuffer(QUEUE_BYTES as u32));
    assert_eq!(option(datagrams, SocketOptionName::ReceiveBuffer), kept);
    assert_eq!(option(datagrams, SocketOptionName::SendBuffer), kept);
    assert_eq!(option(stream, SocketOptionName::SendBuffer), Ok(SocketOption::SendBuffer(65_536)));
    assert_eq!(option(stream, SocketOptionName::ReceiveBuffer), Ok(SocketOption::ReceiveBuffer(65_536)));
    assert_eq!(option(datagrams, SocketOptionName::Info), Err(DescriptionError::NotSupported));
    let Ok(SocketOption::Info(info)) = option(stream, SocketOptionName::Info) else { panic!("a stream has it") };
    assert_eq!(info.state, 7, "as Linux numbers a socket that is closed");
    assert_eq!(server.sockets.tcp.info(99, 0).state, 7);
}
