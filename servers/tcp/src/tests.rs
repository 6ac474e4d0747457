//! TCP between clients that are played.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use channel::{CallError, ClientChannel, Layout, ServerChannel, Wiring, loopback, loopback_memory, loopback_wiring};
use contracts::descriptions::{DescriptionError, DescriptionsClient, serve_descriptions};
use contracts::sockets::{Address, Family, SocketAddress, SocketKind, SocketsServer};
use contracts::testing::gives_to_the_newborn_only;
use tcp::{Sockets, Tcp};

use crate::service::Service;

/// TCP without buffers.
fn service() -> Service {
    let [receive, transmit] = [(); 2].map(|()| loopback(Layout::default()).0.bulk());
    Service::new(Sockets::new(Tcp::new(receive, transmit, [0; 16])))
}

#[test]
fn a_client_gives_what_it_holds_to_the_newborn_only() {
    runtime::testing::run(async {
        let service = Rc::new(service());
        let serve = |channel| {
            runtime::spawn(serve_descriptions(service.clone(), channel));
        };
        gives_to_the_newborn_only(|channel| service.clients.add(channel), serve).await;
    });
}

/// A program that has ended, and was waited for, has no address any more, although its end was not
/// looked for yet.
#[test]
fn an_address_is_free_once_its_program_has_ended() {
    runtime::testing::run(async {
        let service = Rc::new(service());
        let [one, two, _, monitor] = loopback_memory(Layout::default());
        let first = ServerChannel::new(loopback_wiring(two, false));
        let client = DescriptionsClient::new(ClientChannel::new(loopback_wiring(one, true)));
        service.clients.add(&first);
        let [other] = loopback_memory(Layout::default());
        let second = ServerChannel::new(Wiring { peer_set: 5, ..loopback_wiring(other, false) });
        let peers = [first.peer().clone(), second.peer().clone()];
        runtime::spawn(serve_descriptions(service.clone(), first));
        assert_eq!(client.inherit(0).await, Err(CallError::Server(DescriptionError::Invalid)), "it is heard");
        let address = || Address::Internet(SocketAddress { address: [0; 4], port: 80 });
        let mut ids = Vec::new();
        for peer in &peers {
            ids.push(service.socket(peer, Family::Internet, SocketKind::Stream).await.unwrap());
        }
        assert_eq!(service.bind(&peers[0], ids[0], address()).await, Ok(()));
        assert_eq!(service.bind(&peers[1], ids[1], address()).await, Err(DescriptionError::AddressInUse));
        monitor.begin_generation(9);
        assert_eq!(service.bind(&peers[1], ids[1], address()).await, Ok(()));
    });
}

/// A close is told by another channel than the next program's request: that may be looked at first,
/// and finds the address free all the same.
#[test]
fn an_address_is_free_once_its_close_was_sent() {
    runtime::testing::run(async {
        let service = Rc::new(service());
        let [one, two] = loopback_memory(Layout::default());
        let first = ServerChannel::new(loopback_wiring(two, false));
        let client = DescriptionsClient::new(ClientChannel::new(loopback_wiring(one, true)));
        let [other] = loopback_memory(Layout::default());
        let second = ServerChannel::new(Wiring { peer_set: 5, ..loopback_wiring(other, false) });
        let peers = [first.peer().clone(), second.peer().clone()];
        runtime::spawn(serve_descriptions(service.clone(), first));
        assert_eq!(client.inherit(0).await, Err(CallError::Server(DescriptionError::Invalid)), "it is heard");
        let address = || Address::Internet(SocketAddress { address: [0; 4], port: 80 });
        let mut ids = Vec::new();
        for peer in &peers {
            ids.push(service.socket(peer, Family::Internet, SocketKind::Stream).await.unwrap());
        }
        assert_eq!(service.bind(&peers[0], ids[0], address()).await, Ok(()));
        let mut closing = pin!(client.close(ids[0]));
        let answered = poll_fn(|context| Poll::Ready(closing.as_mut().poll(context).is_ready())).await;
        assert!(!answered, "the server was not looked at");
        assert_eq!(service.bind(&peers[1], ids[1], address()).await, Ok(()));
    });
}
