//! TCP between clients that are played.

use std::pin::pin;
use std::rc::Rc;

use channel::{
    CallError, ClientChannel, Layout, Memory, Peer, ServerChannel, Wiring, loopback, loopback_memory, loopback_wiring,
};
use contracts::descriptions::{DescriptionError, DescriptionId, DescriptionsClient, serve_descriptions};
use contracts::sockets::{Address, Family, SocketAddress, SocketKind, SocketsServer};
use contracts::testing::{gives_to_the_newborn_only, is_sent};
use tcp::{Sockets, Tcp};

use crate::service::Service;

mod whole;

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

/// Two programs: the first, served over a channel, has bound a port; the second, which calls the
/// service itself, has a socket for the same.
struct Rivals {
    service: Rc<Service>,
    client: DescriptionsClient,
    peers: [Peer; 2],
    sockets: [DescriptionId; 2],
    /// As the monitor writes the first program's generation.
    monitor: Memory,
    _second: ServerChannel,
}

impl Rivals {
    async fn new() -> Rivals {
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
        let mut sockets = [0; 2];
        for (peer, socket) in peers.iter().zip(&mut sockets) {
            *socket = service.socket(peer, Family::Internet, SocketKind::Stream).await.unwrap();
        }
        let rivals = Rivals { service, client, peers, sockets, monitor, _second: second };
        assert_eq!(rivals.bind(0).await, Ok(()));
        rivals
    }

    async fn bind(&self, number: usize) -> Result<(), DescriptionError> {
        let address = Address::Internet(SocketAddress { address: [0; 4], port: 80 });
        self.service.bind(&self.peers[number], self.sockets[number], address).await
    }
}

/// A program that has ended, and was waited for, has no address any more, although its end was not
/// looked for yet.
#[test]
fn an_address_is_free_once_its_program_has_ended() {
    runtime::testing::run(async {
        let rivals = Rivals::new().await;
        assert_eq!(rivals.bind(1).await, Err(DescriptionError::AddressInUse));
        rivals.monitor.begin_generation(9);
        assert_eq!(rivals.bind(1).await, Ok(()));
    });
}

/// A close is told by another channel than the next program's request: that may be looked at first,
/// and finds the address free all the same.
#[test]
fn an_address_is_free_once_its_close_was_sent() {
    runtime::testing::run(async {
        let rivals = Rivals::new().await;
        let mut closing = pin!(rivals.client.close(rivals.sockets[0]));
        is_sent(closing.as_mut()).await;
        assert_eq!(rivals.bind(1).await, Ok(()));
    });
}
