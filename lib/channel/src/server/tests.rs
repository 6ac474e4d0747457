//! A server whose client does as a test says.

use std::boxed::Box;
use std::sync::Arc;

use super::*;
use crate::testing::{EVENT, HASH, REPLY, SMALL, Task as Polled, client_end, come, poll, poll_as, rest};
use crate::{loopback, loopback_memory, loopback_wiring};

/// What the server's doorbell posts.
const CLIENT_BIT: u64 = 1;

/// A server's end that is not served, and its client's.
fn ends() -> (ServerChannel, Link) {
    let [one, two] = loopback_memory(SMALL);
    let server = ServerChannel::new(loopback_wiring(two, false));
    server.peer.inner.link.bind(HASH);
    (server, client_end(one))
}

/// Knows nothing, and counts how often a client left.
#[derive(Default)]
struct Nobody(Cell<u32>);

impl Dispatch for Nobody {
    fn request(&self, _peer: &Peer, _operation: u16, _correlation: u32, _body: &[u8]) -> Result<Task, Broken> {
        Err(Broken)
    }

    fn one_way(&self, _peer: &Peer, _operation: u16, _body: &[u8]) -> Result<(), Broken> {
        Err(Broken)
    }

    fn closed(&self, _peer: &Peer) {
        self.0.set(self.0.get() + 1);
    }

    fn restarted(&self, _peer: &Peer) {}
}

#[test]
fn each_who_waits_for_room_is_woken_once_however_often_it_looked() {
    let (server, _client) = ends();
    let peer = server.peer().clone();
    assert!(poll(peer.room()).is_ready(), "there is room");
    while peer.event(1, &7_u32).is_ok() {}
    let tasks = [(); 2].map(|()| Arc::<Polled>::default());
    let mut rooms = [(); 2].map(|()| Box::pin(peer.room()));
    for _ in 0..100 {
        for (room, task) in rooms.iter_mut().zip(&tasks) {
            assert!(poll_as(task, room).is_pending());
        }
    }
    assert!(!peer.is_closed());
    drop(server);
    assert_eq!(tasks.map(|task| task.woken()), [1, 1]);
    assert!(peer.is_closed() && poll(peer.room()).is_ready());
}

#[test]
fn events_keep_their_order_and_are_counted_while_they_wait() {
    let (server, client) = ends();
    let (peer, inner) = (server.peer(), &server.peer().inner);
    let waiting = || inner.state.borrow().unsent_events;
    for event in 0..20 {
        peer.event(event, &()).unwrap();
    }
    assert_eq!(waiting(), 4);
    // Answers and the word of lost events are none.
    inner.send(&mut inner.state.borrow_mut(), REPLY, &[]);
    peer.lost();
    assert_eq!(waiting(), 4);
    let mut come_first = come(&client);
    // There is room, but others wait.
    peer.event(20, &()).unwrap();
    assert_eq!((waiting(), come(&client).len()), (5, 0));
    inner.send_waiting();
    assert_eq!(waiting(), 0);
    come_first.extend(come(&client));
    let events = come_first.iter().filter(|header| header.kind == Kind::Event).map(|header| header.operation);
    let expected = (0..20).chain([EVENTS_LOST, 20]);
    assert!(events.eq(expected), "{come_first:?}");
}

#[test]
fn what_was_lost_elsewhere_is_told() {
    let (server, client) = ends();
    server.peer().lost();
    assert_eq!(come(&client), [LOST]);
}

#[test]
fn a_server_with_something_to_send_does_not_sleep_before_it_nudged() {
    let (server, client) = ends();
    let peer = server.peer().clone();
    let port = ServerPort(peer.clone());
    let serving = server.serve(HASH, Rc::<Nobody>::default());
    assert!(!port.serve(), "nothing waits");
    while client.room_came() && peer.inner.state.borrow().unsent.is_empty() {
        peer.event(1, &()).unwrap();
    }
    assert!(!port.ready() && port.serve());
    come(&client);
    assert!(port.ready() && !port.serve());
    assert_eq!(come(&client), [EVENT]);
    drop(serving);
}

#[test]
fn a_server_looks_at_an_end_once_and_at_the_last_one_once_more() {
    let [one, monitor] = loopback_memory(SMALL);
    let server = ServerChannel::new(loopback_wiring(one, false));
    let (port, nobody) = (ServerPort(server.peer().clone()), Rc::<Nobody>::default());
    let mut serving = Box::pin(server.serve(HASH, nobody.clone()));
    assert!(!port.ready());
    // The client broke the contract: it is seen here, and nobody rings.
    port.0.inner.link.broken();
    assert!(port.ready());
    port.poll();
    assert!(!port.ready() && nobody.0.get() == 1, "a successor may come");
    monitor.end();
    assert!(port.ready());
    port.poll();
    assert!(!port.ready() && nobody.0.get() == 1);
    assert!(poll_as(&Arc::default(), &mut serving).is_ready());
}

#[test]
fn a_client_that_is_awake_and_has_not_read_is_nudged_once() {
    for remote in [false, true] {
        let [one, two] = loopback_memory(SMALL);
        let (server, client) = (ServerChannel::new(Wiring { remote, ..loopback_wiring(two, false) }), client_end(one));
        let (peer, nudged) =
            (server.peer().clone(), || poll(executor::notified(CLIENT_BIT)) == Poll::Ready(CLIENT_BIT));
        let serving = server.serve(HASH, Rc::<Nobody>::default());
        assert_eq!(Port::remote(&ServerPort(peer.clone())), remote);
        rest();
        assert!(!nudged() && peer.inner.link.is_armed());
        peer.event(1, &()).unwrap();
        assert!(!peer.inner.link.is_armed(), "it looks by itself until it sleeps");
        rest();
        assert!(nudged() && peer.inner.link.is_armed());
        assert_eq!(come(&client), [EVENT]);
        drop(serving);
    }
}

#[test]
fn an_answer_rings_who_sleeps_and_is_followed_by_looking_only_at_another_core() {
    for (remote, sleeps) in [(false, false), (false, true), (true, false), (true, true)] {
        let [one, two] = loopback_memory(SMALL);
        let (server, client) = (ServerChannel::new(Wiring { remote, ..loopback_wiring(two, false) }), client_end(one));
        let peer = server.peer().clone();
        let serving = server.serve(HASH, Rc::<Nobody>::default());
        rest();
        if sleeps {
            client.arm();
        }
        peer.inner.send(&mut peer.inner.state.borrow_mut(), REPLY, &[]);
        assert_eq!(peer.inner.link.is_armed(), !(remote && sleeps));
        rest();
        assert!(!client.is_armed() && come(&client) == [REPLY]);
        drop(serving);
    }
}

#[test]
fn two_peers_are_equal_if_they_are_one_channel() {
    let (one, two) = (loopback(SMALL).1, loopback(SMALL).1);
    assert!(one.peer() == &one.peer().clone() && one.peer() != two.peer());
    assert_eq!(one.peer().name(), "client");
}

#[test]
fn programs_are_known_by_their_sets_while_they_are_served() {
    let clients = Clients::default();
    let served = [1, 3].map(|peer_set| {
        let [one, monitor] = loopback_memory(SMALL);
        let channel = ServerChannel::new(Wiring { peer_set, ..loopback_wiring(one, false) });
        clients.add(&channel);
        (channel.serve(HASH, Rc::<Nobody>::default()), monitor)
    });
    assert!([1, 3].iter().all(|set| clients.is_newborn(client_id(*set, 1))));
    assert!(!clients.look());
    served.iter().for_each(|(_, monitor)| monitor.begin_generation(2));
    // Both at once.
    assert!(clients.look() && !clients.look());
    drop(served);
    let (next, _) = ends();
    clients.add(&next);
    assert_eq!(clients.all.borrow().len(), 1, "those that went are forgotten");
}
