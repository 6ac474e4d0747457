//! A contract over a channel, with both sides in one executor: calls, events, back-pressure,
//! cancelling, restarts, broken peers.

extern crate alloc;

mod echo;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use channel::{
    CALLS_MAX, CallError, ClientChannel, Layout, Memory, SendError, ServerChannel, client_id, loopback,
    loopback_memory, loopback_wiring,
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
    forgotten: RefCell<Vec<u64>>,
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

    fn forget(&self, peer: &Peer, id: u64) {
        self.forgotten.borrow_mut().push(id);
        let _ = EchoEvents::new(peer).forgotten(id, format!("{id}"));
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
        assert_eq!(client.say("x".repeat(900)).await, Err(CallError::Full));
        assert_eq!(client.long(800).await.map(|bytes| bytes.len()), Ok(800));
        assert_eq!(client.long(2000).await, Err(CallError::Malformed), "an answer too long for a message");
        assert_eq!(client.say("still there".into()).await, Ok("still there".into()));
    });
}

#[test]
fn one_way_messages_and_events() {
    run(async {
        let (client, echo) = pair(SMALL);
        assert_eq!(client.forget(7), Ok(()));
        let EchoEvent::Forgotten { id, text } = client.next_event().await else { panic!() };
        assert_eq!((id, text.as_str(), &echo.forgotten.borrow()[..]), (7, "7", &[7][..]));
    });
}

#[test]
fn calls_overlap_and_queue_in_order() {
    run(async {
        let (client, echo) = pair(SMALL);
        // Far more than the ring holds: they wait at the client, and keep their order.
        let calls: Vec<_> = (0..CALLS_MAX).map(|number| client.say(number.to_string())).collect();
        assert_eq!(client.say("one too many".into()).await, Err(CallError::Full));
        assert_eq!(client.forget(1), Err(SendError::Full), "may not overtake");
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
        assert_eq!(client.forget(1), Err(SendError::Closed));
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
        for id in 0..1000 {
            while client.forget(id) == Err(SendError::Full) {
                runtime::yield_now().await;
            }
        }
        runtime::sleep(1000).await;
        let (mut lost, mut last) = (false, 0);
        while last != 999 {
            match client.next_event().await {
                EchoEvent::Lost => lost = true,
                EchoEvent::Forgotten { id, .. } => last = id,
                _ => panic!(),
            }
        }
        assert!(lost);
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
        assert_eq!(EchoEvents::new(&peer).forgotten(3, "x".into()), Ok(()));
        runtime::spawn(serving);
        assert!(matches!(client.next_event().await, EchoEvent::Forgotten { id: 3, .. }));
    });
}
