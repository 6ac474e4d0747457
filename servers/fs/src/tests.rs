//! The file server between clients that are played.

use std::rc::Rc;

use contracts::descriptions::serve_descriptions;
use contracts::testing::gives_to_the_newborn_only;
use fs_core::store::Store;

use crate::server::Server;

#[test]
fn a_client_gives_what_it_holds_to_the_newborn_only() {
    runtime::testing::run(async {
        let service = Rc::new(Server::new(Store::new(64), None, None, 1));
        let serve = |channel| {
            runtime::spawn(serve_descriptions(service.clone(), channel));
        };
        gives_to_the_newborn_only(|channel| service.clients.add(channel), serve).await;
    });
}
