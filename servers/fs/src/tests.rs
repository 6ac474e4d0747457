//! The file server between clients that are played.

use std::pin::pin;
use std::rc::Rc;

use channel::Peer;
use contracts::descriptions::{DescriptionError, DescriptionId, serve_descriptions};
use contracts::files::{FilesServer, Hold, Lock, LockKind, Name, open};
use contracts::testing::{gives_to_the_newborn_only, is_sent, two_programs};
use fs_core::store::Store;

use crate::server::Server;

#[test]
fn a_client_gives_what_it_holds_to_the_newborn_only() {
    runtime::testing::run(async {
        let service = Rc::new(Server::new(Store::new(64), None, None, 1, None));
        let serve = |channel| {
            runtime::spawn(serve_descriptions(service.clone(), channel));
        };
        gives_to_the_newborn_only(|channel| service.open.clients.add(channel), serve).await;
    });
}

/// Asks for the whole file by flock(2), without waiting.
async fn lock(service: &Server, peer: &Peer, id: DescriptionId) -> Result<(), DescriptionError> {
    let whole = Lock { kind: LockKind::Whole, hold: Some(Hold::Exclusive), from: 0, to: u64::MAX, process: 1 };
    FilesServer::lock(service, peer, id, whole, false).await
}

/// A close is told by another channel than the next program's request, which may be looked at
/// first: the lock is free all the same.
#[test]
fn a_lock_is_free_once_its_holders_close_was_sent() {
    runtime::testing::run(async {
        let service = Rc::new(Server::new(Store::new(64), None, None, 1, None));
        let (client, [first, second]) = two_programs(|channel| service.open.clients.add(channel));
        let peers = [first.peer().clone(), second.peer().clone()];
        runtime::spawn(serve_descriptions(service.clone(), first));
        let file = || Name { directory: None, path: "/file".into(), process: 1, owner: (0, 0) };
        let flags = open::READ | open::WRITE | open::CREATE;
        let mut ids = [0; 2];
        for (peer, id) in peers.iter().zip(&mut ids) {
            *id = service.open(peer, file(), flags, 0o600).await.unwrap().id;
        }
        assert_eq!(lock(&service, &peers[0], ids[0]).await, Ok(()));
        assert_eq!(lock(&service, &peers[1], ids[1]).await, Err(DescriptionError::WouldBlock));
        let mut closing = pin!(client.close(ids[0]));
        is_sent(closing.as_mut()).await;
        assert_eq!(lock(&service, &peers[1], ids[1]).await, Ok(()));
    });
}
