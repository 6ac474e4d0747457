//! Clients that are played, for tests of more than one server.

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
