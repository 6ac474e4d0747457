//! The file server between clients that are played.

use std::rc::Rc;

use channel::{CallError, Layout, ServerChannel, Wiring, client_id, loopback, loopback_memory, loopback_wiring};
use contracts::descriptions::{DescriptionError, DescriptionsClient, serve_descriptions};
use fs_core::store::Store;

use crate::server::Server;

/// Whatever id it names, a client gives what it holds to a program that was not heard yet: not to
/// another that runs, nor to one that there is not.
#[test]
fn a_client_gives_what_it_holds_to_the_newborn_only() {
    runtime::testing::run(async {
        let service = Rc::new(Server::new(Store::new(64), None, None, 1));
        let (client, served) = loopback(Layout::default());
        service.clients.add(&served);
        let own = served.peer().id();
        runtime::spawn(serve_descriptions(service.clone(), served));
        let client = DescriptionsClient::new(client);
        for other in [own, 0, 1, client_id(9, 1), u64::MAX] {
            let refused = CallError::Server(DescriptionError::Invalid);
            assert_eq!(client.inherit(other).await, Err(refused), "{other:#x}");
        }
        let [child] = loopback_memory(Layout::default());
        let child = ServerChannel::new(Wiring { peer_set: 9, ..loopback_wiring(child, false) });
        service.clients.add(&child);
        assert_eq!(client.inherit(child.peer().id()).await, Ok(()));
    });
}
