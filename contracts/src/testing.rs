//! Clients and servers that are played, for tests of more than one server.

pub mod process;

use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::Poll;

use channel::{CallError, Layout, ServerChannel, Wiring, client_id, loopback, loopback_memory, loopback_wiring};

use crate::descriptions::{DescriptionError, DescriptionsClient};

/// Asks a server of descriptions to give what a client holds to others, whatever id it names: it
/// gives to a program that was not heard yet, and not to another that runs, nor to one that there
/// is not. `add` makes a channel known to the server, `serve` has it serve one.
///
/// # Panics
///
/// If it does otherwise.
pub async fn gives_to_the_newborn_only(add: impl Fn(&ServerChannel), serve: impl FnOnce(ServerChannel)) {
    let (client, served) = loopback(Layout::default());
    add(&served);
    let own = served.peer().id();
    serve(served);
    let client = DescriptionsClient::new(client);
    for other in [own, 0, 1, client_id(9, 1), u64::MAX] {
        let refused = CallError::Server(DescriptionError::Invalid);
        assert_eq!(client.inherit(other).await, Err(refused), "{other:#x}");
    }
    let [child] = loopback_memory(Layout::default());
    let child = ServerChannel::new(Wiring { peer_set: 9, ..loopback_wiring(child, false) });
    add(&child);
    assert_eq!(client.inherit(child.peer().id()).await, Ok(()));
}

/// Two programs that a server has as clients: the first speaks over its channel, which the caller
/// serves; for the second the caller calls the service itself.
pub fn two_programs(add: impl Fn(&ServerChannel)) -> (DescriptionsClient, [ServerChannel; 2]) {
    let (client, first) = loopback(Layout::default());
    let [second] = loopback_memory(Layout::default());
    let second = ServerChannel::new(Wiring { peer_set: 5, ..loopback_wiring(second, false) });
    add(&first);
    (DescriptionsClient::new(client), [first, second])
}

/// Sends a request that the server has not looked at when this ends.
///
/// # Panics
///
/// If it has.
pub async fn is_sent(mut request: Pin<&mut impl Future>) {
    let is_answered = poll_fn(|context| Poll::Ready(request.as_mut().poll(context).is_ready())).await;
    assert!(!is_answered, "the server has looked at it");
}
