//! A client whose server does as a test says.

use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

use super::*;
use crate::memory::Layout;
use crate::testing::{EVENT, HASH, REPLY, SMALL, Task, come, poll, poll_as, rest, server_end};
use crate::{CALLS_MAX, loopback_memory, loopback_wiring};

/// What the client's doorbell posts.
const SERVER_BIT: u64 = 2;

/// A client, and the other end of its channel.
fn ends(layout: Layout) -> (Rc<ClientChannel>, Link) {
    let [one, two] = loopback_memory(layout);
    let (client, server) = (ClientChannel::new(loopback_wiring(one, true)), server_end(two));
    client.bind(HASH);
    (client, server)
}

fn call(client: &Rc<ClientChannel>, repeatable: bool) -> Call<(), ()> {
    client.call(1, repeatable, &())
}

#[test]
fn only_a_prompt_client_of_a_server_on_its_core_rings_it_when_a_call_is_polled() {
    for (is_prompt, remote) in [(true, false), (true, true), (false, false)] {
        let [one, two] = loopback_memory(SMALL);
        let client = ClientChannel::new(Wiring { remote, ..loopback_wiring(one, true) });
        let server = server_end(two);
        if is_prompt {
            client.notify_at_once();
        }
        server.arm();
        let mut call = Box::pin(call(&client, false));
        assert!(server.is_armed(), "the call was only made");
        assert!(poll_as(&Arc::default(), &mut call).is_pending());
        assert_eq!(!server.is_armed(), is_prompt && !remote);
        rest();
        assert!(!server.is_armed(), "at the end of the turn");
    }
}

#[test]
fn an_answer_that_is_there_at_once_leaves_nothing_to_do() {
    let (client, server) = ends(SMALL);
    client.notify_at_once();
    rest();
    let mut call = Box::pin(call(&client, false));
    assert_eq!(come(&server).len(), 1);
    let ok = encode(&Ok::<(), ()>(()), &mut server.scratch.borrow_mut().0).map(<[u8]>::to_vec).unwrap();
    server.write(REPLY, &ok).unwrap();
    assert_eq!(poll_as(&Arc::default(), &mut call), Poll::Ready(Ok(())));
    assert!(client.inner.link.is_armed() && executor::is_at_rest());
}

#[test]
fn more_than_a_turn_takes_in_comes_without_another_ring() {
    let (client, server) = ends(Layout { ring_slots: 128, bulk_bytes: 0 });
    client.notify_at_once();
    rest();
    assert!(client.inner.link.is_armed(), "it sleeps");
    let sent = MESSAGES_PER_TURN + 9;
    // The server has sent them and is about to ring when the client makes a call.
    (0..sent).for_each(|_| server.write(EVENT, &[]).unwrap());
    let mut call = Box::pin(call(&client, false));
    assert!(poll_as(&Arc::default(), &mut call).is_pending());
    rest();
    assert_eq!((0..).take_while(|_| poll(client.next_event()).is_ready()).count(), sent);
}

#[test]
fn one_that_was_to_have_room_and_gives_up_leaves_it_to_the_next() {
    let (client, _server) = ends(SMALL);
    assert!(poll(client.room()).is_ready());
    let mut calls: Vec<_> = (0..CALLS_MAX).map(|_| call(&client, false)).collect();
    let tasks = [(); 4].map(|()| Arc::<Task>::default());
    let woken = || tasks.each_ref().map(|task| task.woken());
    let [mut first, mut second, mut third, mut last] = [(); 4].map(|()| Box::pin(client.room()));
    for (room, task) in [&mut first, &mut second, &mut third, &mut last].into_iter().zip(&tasks) {
        assert!(poll_as(task, room).is_pending());
    }
    // One that the ring had no room for: it ends at once.
    drop(calls.pop());
    assert_eq!(woken(), [1, 0, 0, 0]);
    drop(first);
    assert_eq!(woken(), [1, 1, 0, 0]);
    assert!(poll_as(&tasks[1], &mut second).is_ready());
    // Who was not woken has no room to leave.
    drop(third);
    assert_eq!(woken(), [1, 1, 0, 0]);
}

#[test]
fn what_found_no_room_is_sent_when_there_is_some_and_once() {
    for more in [0, 3] {
        let (client, server) = ends(SMALL);
        let ring = SMALL.ring_slots as usize;
        let mut calls: Vec<_> = (0..ring + more).map(|_| call(&client, false)).collect();
        let port: &dyn Port = &*client.inner;
        if more == 0 {
            // Only a cancel waits, and who gives up after it asks for no second one.
            calls[0].cancel();
            calls[0].cancel();
            drop(calls.remove(0));
        }
        assert!(!port.ready() && port.serve(), "the server has not read");
        assert!(come(&server).iter().all(|header| header.kind == Kind::Request));
        assert!(port.ready());
        // Nobody rings: the port is polled, as something was sent.
        rest();
        let kind = if more == 0 { Kind::Cancel } else { Kind::Request };
        let kinds: Vec<_> = come(&server).iter().map(|header| header.kind).collect();
        assert_eq!(kinds, std::vec![kind; more.max(1)]);
        assert!(!port.serve(), "nothing waits any more");
    }
}

#[test]
fn a_restart_repeats_what_may_be_repeated_and_is_still_wanted() {
    let [one, two, three, monitor] = loopback_memory(SMALL);
    let (client, first) = (ClientChannel::new(loopback_wiring(one, true)), server_end(two));
    client.bind(HASH);
    // The last ones wait for room at first.
    let mut calls: Vec<_> = (0..20).map(|number| Box::pin(call(&client, number % 2 == 0))).collect();
    let asked = || come(&first).len();
    let before = asked();
    rest();
    assert_eq!((before, asked()), (16, 4));
    calls[4].cancel();
    monitor.raise_generation();
    let second = server_end(three);
    rest();
    let repeated: Vec<_> = come(&second).iter().map(|header| header.correlation).collect();
    let task = Arc::default();
    for (number, call) in (0..).zip(&mut calls) {
        let ended = match number {
            4 => Poll::Ready(Err(crate::CallError::Cancelled)),
            _ if number % 2 == 0 => Poll::Pending,
            _ => Poll::Ready(Err(crate::CallError::PeerRestarted)),
        };
        assert_eq!((poll_as(&task, call), repeated.contains(&number)), (ended, ended == Poll::Pending), "{number}");
    }
}

#[test]
fn a_restart_repeats_in_the_order_of_the_calls() {
    let [one, two, three, monitor] = loopback_memory(SMALL);
    let (client, first) = (ClientChannel::new(loopback_wiring(one, true)), server_end(two));
    client.bind(HASH);
    let before = [(); 2].map(|()| call(&client, true));
    for correlation in [0, 1] {
        first.write(Header { correlation, ..REPLY }, &[]).unwrap();
    }
    rest();
    before.into_iter().for_each(drop);
    // The last place that became free is the first to be taken.
    let _calls = [(); 3].map(|()| call(&client, true));
    monitor.raise_generation();
    let second = server_end(three);
    rest();
    let repeated: Vec<_> = come(&second).iter().map(|header| header.correlation).collect();
    assert_eq!(repeated, [1 << 16 | 1, 1 << 16, 2]);
}

#[test]
fn a_client_listens_to_its_own_bits_and_only_while_it_sleeps() {
    const BADGE: u64 = 1 << 5;
    for remote in [false, true] {
        let [one, two] = loopback_memory(SMALL);
        let client = ClientChannel::new(Wiring { badge: BADGE, remote, ..loopback_wiring(one, true) });
        client.bind(HASH);
        let server = server_end(two);
        assert_eq!(Port::remote(&*client.inner), remote);
        rest();
        assert!(client.inner.link.is_armed());
        server.write(EVENT, &[]).unwrap();
        executor::post(1);
        rest();
        assert!(poll(client.next_event()).is_pending(), "it was for somebody else");
        executor::post(BADGE);
        rest();
        assert!(poll(client.next_event()).is_ready());
        client.send(1, &()).unwrap();
        assert!(!client.inner.link.is_armed(), "it looks by itself until it sleeps");
    }
}

#[test]
fn a_server_that_is_awake_and_has_not_read_is_nudged_once() {
    let (client, server) = ends(SMALL);
    let nudged = || poll(executor::notified(SERVER_BIT)) == Poll::Ready(SERVER_BIT);
    rest();
    assert!(!nudged(), "nothing was sent");
    client.send(1, &()).unwrap();
    rest();
    assert!(nudged());
    client.inner.link.mark();
    rest();
    assert!(!nudged(), "it has its bits");
    come(&server);
    client.send(1, &()).unwrap();
    come(&server);
    rest();
    assert!(!nudged(), "it has read");
}
