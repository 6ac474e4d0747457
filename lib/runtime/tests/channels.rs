//! A contract over a channel, with both sides in one executor: calls, events, back-pressure,
//! cancelling, restarts, broken peers.

extern crate alloc;

mod echo;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use channel::{
    CALLS_MAX, COMPONENT_EVENTS_MAX, CallError, ClientChannel, Clients, EVENTS_MAX, Layout, Memory, SendError,
    ServerChannel, Wiring, client_id, loopback, loopback_memory, loopback_wiring, queued,
};
use echo::{EchoClient, EchoEvent, EchoEvents, EchoServer, Refusal, serve_echo};
use runtime::Peer;
use runtime::testing::run;

const SMALL: Layout = Layout { ring_slots: 16, bulk_bytes: 8192 };

/// Answers, and remembers what happened to it.
#[derive(Default)]
struct Echo {
    served: RefCell<Vec<String>>,
    waiting: Cell<usize>,
    discarded: RefCell<Vec<u64>>,
    closed: Cell<bool>,
    restarted: Cell<u32>,
    /// Who asked, and who was said to be gone, of those who ever asked.
    clients: RefCell<Vec<u64>>,
    gone: RefCell<Vec<u64>>,
}

/// Counts tasks that wait, also when they are dropped.
struct Waits<'a>(&'a Cell<usize>);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl EchoServer for Echo {
    async fn say(&self, peer: &Peer, text: String) -> Result<String, Refusal> {
        self.clients.borrow_mut().push(peer.id());
        self.served.borrow_mut().push(text.clone());
        if text.is_empty() { Err(Refusal::Empty) } else { Ok(text) }
    }

    async fn wait(&self, _peer: &Peer, duration_ns: u64) -> Result<u64, Refusal> {
        self.waiting.set(self.waiting.get() + 1);
        let _waits = Waits(&self.waiting);
        runtime::sleep(duration_ns).await;
        Ok(duration_ns)
    }

    async fn look(&self, _peer: &Peer, text: String) -> Result<String, Refusal> {
        runtime::sleep(1000).await;
        self.served.borrow_mut().push(text.clone());
        Ok(text)
    }

    async fn long(&self, _peer: &Peer, bytes: u32) -> Result<Vec<u8>, Refusal> {
        Ok(vec![5; bytes as usize])
    }

    async fn fill(&self, peer: &Peer, span: channel::BulkSpan, value: u8) -> Result<(), Refusal> {
        let window = peer.bulk().window(span).map_err(|_| Refusal::OutOfBounds)?;
        window.write(0, &vec![value; window.len()]).map_err(|_| Refusal::OutOfBounds)
    }

    fn discard(&self, peer: &Peer, id: u64) {
        self.discarded.borrow_mut().push(id);
        let _ = EchoEvents::new(peer).discarded(id, format!("{id}"));
    }

    fn peer_closed(&self, _peer: &Peer) {
        self.closed.set(true);
    }

    fn peer_restarted(&self, peer: &Peer) {
        self.restarted.set(self.restarted.get() + 1);
        let others = [client_id(1, 9), client_id(2, 1), 0];
        let all: Vec<u64> = self.clients.borrow().iter().copied().chain(others).collect();
        self.gone.borrow_mut().extend(all.into_iter().filter(|id| peer.was(*id)));
    }
}

fn pair(layout: Layout) -> (EchoClient, Rc<Echo>) {
    let (client, server) = loopback(layout);
    let echo = Rc::new(Echo::default());
    runtime::spawn(serve_echo(echo.clone(), server));
    (EchoClient::new(client), echo)
}

#[test]
fn calls_answers_and_refusals() {
    run(async {
        let (client, _echo) = pair(SMALL);
        assert_eq!(client.say("hello".into()).await, Ok("hello".into()));
        assert_eq!(client.say(String::new()).await, Err(CallError::Server(Refusal::Empty)));
        let long: String = "x".repeat(800);
        assert_eq!(client.say(long.clone()).await, Ok(long));
        assert_eq!(client.say("x".repeat(900)).await, Err(CallError::TooLong));
        assert_eq!(client.long(800).await.map(|bytes| bytes.len()), Ok(800));
        assert_eq!(client.long(2000).await, Err(CallError::Malformed), "an answer too long for a message");
        assert_eq!(client.say("still there".into()).await, Ok("still there".into()));
        assert_eq!(client.sing("la".into()).await, Err(CallError::Server(Refusal::Empty)), "the contract's own answer");
    });
}

#[test]
fn one_way_messages_and_events() {
    run(async {
        let (client, echo) = pair(SMALL);
        assert_eq!(client.discard(7), Ok(()));
        let EchoEvent::Discarded { id, text } = client.next_event().await else { panic!() };
        assert_eq!((id, text.as_str(), &echo.discarded.borrow()[..]), (7, "7", &[7][..]));
    });
}

#[test]
fn calls_overlap_and_queue_in_order() {
    run(async {
        let (client, echo) = pair(SMALL);
        // Far more than the ring holds: they wait at the client, and keep their order.
        let calls: Vec<_> = (0..CALLS_MAX).map(|number| client.say(number.to_string())).collect();
        assert_eq!(client.say("one too many".into()).await, Err(CallError::Full));
        assert_eq!(client.discard(1), Err(SendError::Full), "may not overtake");
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await, Ok(number.to_string()));
        }
        assert!(echo.served.borrow().iter().enumerate().all(|(number, text)| *text == number.to_string()));
        // Waiting calls do not hold up others.
        let slow = client.wait(1_000_000);
        assert_eq!(client.say("fast".into()).await, Ok("fast".into()));
        assert_eq!(slow.await, Ok(1_000_000));
    });
}

#[test]
fn a_dropped_call_ends_the_servers_work() {
    run(async {
        let (client, echo) = pair(SMALL);
        let limited = runtime::timeout(5_000, client.wait(1_000_000_000)).await;
        assert!(limited.is_err());
        client.channel().settled().await;
        assert_eq!(echo.waiting.get(), 0);
        assert_eq!(client.say("on".into()).await, Ok("on".into()));
        // Dropped before it was ever sent, or with the answer there already.
        drop(client.say("unheard".into()));
        let answered = client.say("answered".into());
        runtime::sleep(1000).await;
        drop(answered);
        client.channel().settled().await;
        assert_eq!(client.say("last".into()).await, Ok("last".into()));
    });
}

#[test]
fn a_cancelled_call_tells_whether_it_took_place() {
    run(async {
        let (client, echo) = pair(SMALL);
        let call = client.wait(1_000_000_000);
        runtime::sleep(1000).await;
        assert_eq!(echo.waiting.get(), 1);
        call.cancel();
        assert_eq!(call.await, Err(CallError::Cancelled));
        assert_eq!(echo.waiting.get(), 0);
        let call = client.say("done".into());
        runtime::sleep(1000).await;
        call.cancel();
        assert_eq!(call.await, Ok("done".into()), "the answer was made before: nothing is lost");
    });
}

#[test]
fn a_call_that_is_cancelled_before_it_is_sent_holds_up_no_other() {
    run(async {
        let (client, echo) = pair(SMALL);
        assert_eq!(client.channel().peer(), "server");
        // More than the ring holds.
        let calls: Vec<_> = (0..100).map(|number| client.say(number.to_string())).collect();
        calls[50].cancel();
        for (number, call) in calls.into_iter().enumerate() {
            let expected = if number == 50 { Err(CallError::Cancelled) } else { Ok(number.to_string()) };
            assert_eq!(call.await, expected);
        }
        assert!(!echo.served.borrow().contains(&"50".into()));
    });
}

#[test]
fn all_who_wait_for_the_end_of_dropped_calls_are_told() {
    run(async {
        let (client, _echo) = pair(SMALL);
        let call = client.wait(1_000_000_000);
        runtime::sleep(1000).await;
        drop(call);
        let told = Rc::new(Cell::new(0));
        for _ in 0..2 {
            let (channel, told) = (client.channel().clone(), told.clone());
            runtime::spawn(async move {
                channel.settled().await;
                told.set(told.get() + 1);
            });
        }
        runtime::sleep(1000).await;
        assert_eq!(told.get(), 2);
    });
}

#[test]
fn bulk_is_checked() {
    run(async {
        let (client, _echo) = pair(SMALL);
        let span = channel::BulkSpan { offset: 100, length: 4001 };
        assert_eq!(client.fill(span, 9).await, Ok(()));
        let mut bytes = [0; 4003];
        client.bulk().read(99, &mut bytes).unwrap();
        assert!(bytes[0] == 0 && bytes[4002] == 0 && bytes[1..4002].iter().all(|byte| *byte == 9));
        for (offset, length) in [(8192, 1), (u32::MAX, u32::MAX), (0, 8193)] {
            assert_eq!(
                client.fill(channel::BulkSpan { offset, length }, 1).await,
                Err(CallError::Server(Refusal::OutOfBounds))
            );
        }
    });
}

fn serve(memory: Memory) -> (Rc<Echo>, runtime::TaskId) {
    let echo = Rc::new(Echo::default());
    let task = runtime::spawn(serve_echo(echo.clone(), ServerChannel::new(loopback_wiring(memory, false))));
    (echo, task)
}

#[test]
fn after_a_servers_restart_repeatable_calls_are_repeated_and_others_end() {
    run(async {
        let [one, two, three, monitor] = loopback_memory(SMALL);
        let client = EchoClient::new(ClientChannel::new(loopback_wiring(one, true)));
        let (first, task) = serve(two);
        let (wait, look, again) = (client.wait(1_000_000), client.look("a".into()), client.look("b".into()));
        let dropped = client.wait(1_000_000);
        runtime::sleep(500).await;
        assert_eq!(first.waiting.get(), 2);
        // The server dies, and while nobody else has run the monitor raises the generation.
        runtime::abort(task);
        assert_eq!(monitor.raise_generation(), 2);
        drop(dropped);
        let (second, _) = serve(three);
        assert_eq!(wait.await, Err(CallError::PeerRestarted));
        assert_eq!((look.await, again.await), (Ok("a".into()), Ok("b".into())));
        assert_eq!(*second.served.borrow(), ["a", "b"]);
        assert!(matches!(client.next_event().await, EchoEvent::PeerRestarted));
        client.channel().settled().await;
        assert_eq!(client.say("new".into()).await, Ok("new".into()));
        assert!(first.served.borrow().is_empty());
    });
}

#[test]
fn calls_made_between_death_and_restart_are_not_lost() {
    run(async {
        let [one, two, three, monitor] = loopback_memory(SMALL);
        let client = EchoClient::new(ClientChannel::new(loopback_wiring(one, true)));
        let (_, task) = serve(two);
        assert_eq!(client.say("before".into()).await, Ok("before".into()));
        runtime::abort(task);
        // More than the ring holds: the rest never left the client.
        let calls: Vec<_> = (0..100).map(|number| client.look(number.to_string())).collect();
        monitor.raise_generation();
        let (second, _) = serve(three);
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await, Ok(number.to_string()));
        }
        assert_eq!(second.served.borrow().len(), 100);
    });
}

#[test]
fn after_a_clients_restart_the_server_drops_its_work() {
    run(async {
        let [one, two, three, monitor] = loopback_memory(SMALL);
        let (echo, _) = serve(two);
        let first = EchoClient::new(ClientChannel::new(loopback_wiring(one, true)));
        let call = first.wait(1_000_000_000);
        runtime::sleep(1000).await;
        assert_eq!(echo.waiting.get(), 1);
        // The dead client never says goodbye.
        std::mem::forget(call);
        std::mem::forget(first);
        monitor.raise_generation();
        let second = EchoClient::new(ClientChannel::new(loopback_wiring(three, true)));
        assert_eq!(second.say("hello".into()).await, Ok("hello".into()));
        assert_eq!((echo.waiting.get(), echo.restarted.get(), echo.closed.get()), (0, 1, false));
    });
}

#[test]
fn a_channel_lent_to_another_client_gives_it_another_name() {
    run(async {
        let [one, two, three, monitor] = loopback_memory(SMALL);
        let (echo, _) = serve(two);
        let first = EchoClient::new(ClientChannel::new(loopback_wiring(one, true)));
        assert_eq!(first.say("a".into()).await, Ok("a".into()));
        std::mem::forget(first);
        monitor.begin_generation(9);
        let second = EchoClient::new(ClientChannel::new(loopback_wiring(three, true)));
        assert_eq!(second.say("b".into()).await, Ok("b".into()));
        assert_eq!(*echo.clients.borrow(), [client_id(1, 1), client_id(1, 9)]);
        assert_eq!(*echo.gone.borrow(), [client_id(1, 1)], "the one before, not its successor and nobody else");
    });
}

#[test]
fn only_a_program_that_was_not_heard_is_newborn_and_an_end_is_seen_at_once() {
    run(async {
        let [one, two, three, monitor] = loopback_memory(SMALL);
        let (echo, clients) = (Rc::new(Echo::default()), Clients::default());
        let channel = ServerChannel::new(loopback_wiring(two, false));
        clients.add(&channel);
        let task = runtime::spawn(serve_echo(echo.clone(), channel));
        runtime::sleep(1000).await;
        assert!(clients.is_newborn(client_id(1, 1)));
        for invented in [0, client_id(1, 0), client_id(1, 2), client_id(2, 1), client_id(7, 1), u64::MAX] {
            assert!(!clients.is_newborn(invented), "{invented:#x}");
        }
        let first = EchoClient::new(ClientChannel::new(loopback_wiring(one, true)));
        assert_eq!(first.say("a".into()).await, Ok("a".into()));
        assert!(!clients.is_newborn(client_id(1, 1)), "it runs");
        assert!(!clients.look());
        std::mem::forget(first);
        // It dies, and before the server comes to look somebody asks.
        monitor.begin_generation(9);
        assert!(clients.is_newborn(client_id(1, 9)) && !clients.is_newborn(client_id(1, 1)));
        assert!(clients.look() && !clients.look());
        assert_eq!((*echo.gone.borrow()).clone(), [client_id(1, 1)]);
        assert!(clients.is_newborn(client_id(1, 9)));
        let second = EchoClient::new(ClientChannel::new(loopback_wiring(three, true)));
        assert_eq!(second.say("b".into()).await, Ok("b".into()));
        assert!(!clients.is_newborn(client_id(1, 9)));
        runtime::abort(task);
        assert!(!clients.is_newborn(client_id(1, 9)) && !clients.look(), "no channel any more");
    });
}

#[test]
fn either_side_may_leave_for_good() {
    run(async {
        let (client, echo) = pair(SMALL);
        assert_eq!(client.say("x".into()).await, Ok("x".into()));
        drop(client);
        runtime::sleep(1000).await;
        assert!(echo.closed.get());

        let (client, server) = loopback(SMALL);
        let client = EchoClient::new(client);
        let call = client.wait(5);
        drop(server);
        assert_eq!(call.await, Err(CallError::Closed));
        assert_eq!(client.say("x".into()).await, Err(CallError::Closed));
        assert_eq!(client.discard(1), Err(SendError::Closed));
        assert!(matches!(client.next_event().await, EchoEvent::Closed));
    });
}

#[test]
fn closing_ends_calls_under_way_and_the_wait_for_events() {
    run(async {
        let (client, echo) = pair(SMALL);
        let under_way = client.wait(u64::MAX);
        client.say("the wait has begun".into()).await.unwrap();
        assert_eq!(echo.waiting.get(), 1);
        let events = client.clone();
        let over = Rc::new(Cell::new(false));
        let told = over.clone();
        runtime::spawn(async move {
            told.set(matches!(events.next_event().await, EchoEvent::Closed));
        });
        client.channel().close();
        assert_eq!(under_way.await, Err(CallError::Closed));
        assert_eq!(client.say("too late".into()).await, Err(CallError::Closed));
        runtime::sleep(1000).await;
        assert!(over.get() && echo.closed.get() && echo.waiting.get() == 0);
    });
}

#[test]
fn another_contract_is_refused() {
    run(async {
        let (client, server) = loopback(SMALL);
        runtime::spawn(serve_echo(Rc::new(Echo::default()), server));
        let stranger = contracts::supervisor::SupervisorClient::new(client);
        assert_eq!(stranger.component(0).await, Err(CallError::Closed));
    });
}

#[test]
fn a_slow_taker_of_events_learns_that_some_are_lost() {
    run(async {
        let (client, _echo) = pair(SMALL);
        for id in 0..3000 {
            while client.discard(id) == Err(SendError::Full) {
                runtime::yield_now().await;
            }
        }
        runtime::sleep(1000).await;
        let (mut lost, mut last) = (false, 0);
        while last != 2999 {
            match client.next_event().await {
                EchoEvent::Lost => lost = true,
                EchoEvent::Discarded { id, .. } => last = id,
                _ => panic!(),
            }
        }
        assert!(lost);
    });
}

#[test]
fn a_server_whose_events_find_no_room_tells_that_some_are_lost() {
    run(async {
        for (client_set, most) in [(1, EVENTS_MAX), (0, COMPONENT_EVENTS_MAX)] {
            let [one, two] = loopback_memory(SMALL);
            let client = EchoClient::new(ClientChannel::new(loopback_wiring(one, true)));
            let server = ServerChannel::new(Wiring { peer_set: client_set, ..loopback_wiring(two, false) });
            let events = EchoEvents::new(server.peer());
            runtime::spawn(serve_echo(Rc::new(Echo::default()), server));
            // The client does not run meanwhile.
            let refused =
                |from: u64| (from..from + 3000).filter(|id| events.discarded(*id, "x".into()).is_err()).count();
            let lost = refused(0);
            assert!(!events.has_room() && lost >= 3000 - most - SMALL.ring_slots as usize && lost < 3000 - most);
            let mut taken = 0;
            while !matches!(client.next_event().await, EchoEvent::Lost) {
                taken += 1;
            }
            assert_eq!(taken, 3000 - lost, "first all that came before");
            assert!(events.has_room() && events.discarded(9999, "after".into()).is_ok());
            assert!(matches!(client.next_event().await, EchoEvent::Discarded { id: 9999, .. }), "told once");
            assert!(refused(0) > 0, "and each time anew");
            while !matches!(client.next_event().await, EchoEvent::Lost) {}
        }
    });
}

#[test]
fn calls_wait_for_room_in_their_order_and_none_is_lost() {
    const CALLS: usize = 3 * CALLS_MAX;
    run(async {
        let (client, echo) = pair(SMALL);
        let done = Rc::new(Cell::new(0));
        let tasks: Vec<_> = (0..CALLS)
            .map(|number| {
                let (client, done) = (client.clone(), done.clone());
                runtime::spawn(async move {
                    assert_eq!(queued(|| client.say(number.to_string())).await, Ok(number.to_string()));
                    done.set(done.get() + 1);
                })
            })
            .collect();
        runtime::yield_now().await;
        assert_eq!(client.say("one too many".into()).await, Err(CallError::Full));
        // Some of those who wait for room give up, one of them when it was its turn.
        let given_up = [CALLS - 1, CALLS - 2, CALLS_MAX + 5];
        given_up.iter().for_each(|number| runtime::abort(tasks[*number]));
        while done.get() < CALLS - given_up.len() {
            runtime::yield_now().await;
        }
        let served = echo.served.borrow().clone();
        let expected: Vec<_> =
            (0..CALLS).filter(|number| !given_up.contains(number)).map(|it| it.to_string()).collect();
        assert_eq!(served, expected);
        assert_eq!(queued(|| client.say("x".repeat(900))).await, Err(CallError::TooLong), "which no room mends");
        // Calls that are made before the first is waited for, more than there is room for.
        let some: Vec<_> = (0..CALLS).map(|number| (number, client.say(format!("of many {number}")))).collect();
        for (number, call) in some {
            let words = format!("of many {number}");
            assert_eq!(call.or_queued(|| client.say(words.clone())).await, Ok(words.clone()));
        }
        // An end lets go of all who wait.
        let held: Vec<_> = (0..CALLS_MAX).map(|_| client.wait(u64::MAX)).collect();
        let late = client.clone();
        let ended = Rc::new(Cell::new(false));
        let told = ended.clone();
        runtime::spawn(async move {
            assert_eq!(queued(|| late.say("late".into())).await, Err(CallError::Closed));
            told.set(true);
        });
        runtime::sleep(1000).await;
        client.channel().close();
        runtime::sleep(1000).await;
        assert!(ended.get());
        drop(held);
    });
}

#[test]
fn a_breach_by_the_client_ends_the_channel_until_it_is_restarted() {
    run(async {
        let [one, two, three, monitor] = loopback_memory(SMALL);
        let (echo, task) = serve(two);
        let first = contracts::supervisor::SupervisorClient::new(ClientChannel::new(loopback_wiring(one, true)));
        assert_eq!(first.component(0).await, Err(CallError::Closed), "it speaks another contract");
        assert!(echo.closed.get());
        drop(first);
        monitor.raise_generation();
        let second = EchoClient::new(ClientChannel::new(loopback_wiring(three, true)));
        assert_eq!(second.say("again".into()).await, Ok("again".into()));
        runtime::abort(task);
    });
}

#[test]
fn a_breach_by_the_server_ends_the_channel_until_it_is_restarted() {
    run(async {
        let [one, two, three, monitor] = loopback_memory(SMALL);
        let client = EchoClient::new(ClientChannel::new(loopback_wiring(one, true)));
        let (_, task) = serve(two);
        client.channel().refuse();
        assert!(matches!(client.next_event().await, EchoEvent::Closed));
        assert_eq!(client.say("x".into()).await, Err(CallError::Closed));
        runtime::sleep(1000).await;
        runtime::abort(task);
        let before = client.channel().generation();
        assert!(!client.channel().is_overtaken());
        monitor.raise_generation();
        assert!(client.channel().is_overtaken() && client.channel().generation() == before, "nobody has looked");
        let (_, _) = serve(three);
        assert!(matches!(client.next_event().await, EchoEvent::PeerRestarted), "told once that it is over");
        assert!(!client.channel().is_overtaken() && client.channel().generation() != before);
        assert_eq!(client.say("again".into()).await, Ok("again".into()));
    });
}

#[test]
fn serving_ends_when_the_monitor_takes_the_channel_apart() {
    run(async {
        for leaves_first in [false, true] {
            let [one, two, monitor, other] = loopback_memory(SMALL);
            let client = EchoClient::new(ClientChannel::new(loopback_wiring(one, true)));
            let (echo, ended) = (Rc::new(Echo::default()), Rc::new(Cell::new(false)));
            let told = ended.clone();
            let serving = serve_echo(echo.clone(), ServerChannel::new(loopback_wiring(two, false)));
            runtime::spawn(async move {
                serving.await;
                told.set(true);
            });
            assert_eq!(client.say("x".into()).await, Ok("x".into()));
            if leaves_first {
                client.channel().close();
                runtime::sleep(1000).await;
                assert!(echo.closed.get() && !ended.get(), "a successor may come");
            }
            monitor.end();
            // The monitor rings, as any message does.
            let _ = EchoClient::new(ClientChannel::new(loopback_wiring(other, true))).discard(1);
            runtime::sleep(1000).await;
            assert!(ended.get());
        }
    });
}

#[test]
fn an_event_may_be_sent_as_soon_as_the_channel_is_served() {
    run(async {
        let (client, server) = loopback(SMALL);
        let client = EchoClient::new(client);
        // The client's side has gone to sleep.
        runtime::sleep(1_000_000).await;
        let peer = server.peer().clone();
        let serving = serve_echo(Rc::new(Echo::default()), server);
        assert_eq!(EchoEvents::new(&peer).discarded(3, "x".into()), Ok(()));
        runtime::spawn(serving);
        assert!(matches!(client.next_event().await, EchoEvent::Discarded { id: 3, .. }));
    });
}

#[test]
fn a_prompt_client_is_served_as_any_other() {
    run(async {
        let [one, two] = loopback_memory(SMALL);
        let (echo, _) = serve(two);
        let client = EchoClient::new(ClientChannel::new(loopback_wiring(one, true)));
        client.channel().notify_at_once();
        assert_eq!(client.say("at once".into()).await, Ok("at once".into()));
        assert_eq!(client.wait(1000).await, Ok(1000), "an answer that takes time");
        client.discard(7).unwrap();
        assert!(matches!(client.next_event().await, EchoEvent::Discarded { id: 7, .. }));
        // More than the ring holds; none was polled when the last is made.
        let calls: Vec<_> = (0..CALLS_MAX).map(|number| client.say(format!("{number}"))).collect();
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await, Ok(format!("{number}")));
        }
        // Never polled.
        drop(client.wait(1_000_000_000));
        client.channel().settled().await;
        assert_eq!(echo.waiting.get(), 0);
        assert_eq!(client.say("still".into()).await, Ok("still".into()));
    });
}

#[test]
fn a_component_that_goes_to_rest_has_done_all_that_there_was() {
    let (channel, server) = loopback(SMALL);
    let client = EchoClient::new(channel);
    runtime::spawn(serve_echo(Rc::new(Echo::default()), server));
    let said = Rc::new(Cell::new(false));
    let saying = said.clone();
    runtime::spawn(async move { saying.set(client.say("a".into()).await == Ok("a".into())) });
    runtime::rest(true);
    assert!(said.get() && runtime::is_at_rest());
}
