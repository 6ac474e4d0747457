//! What fos asks of messages and servers (section 3.2 of the paper): a client has many mailboxes,
//! senders do not wait for receivers, a server answers each request once, and under more work than
//! it can do it ends what it has begun before it begins more.

extern crate alloc;

mod echo;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use channel::{
    Broken, BulkSpan, CALLS_MAX, CallError, ClientChannel, Dispatch, Layout, ServerChannel, Task, loopback,
    loopback_memory, loopback_wiring,
};
use echo::{EchoClient, EchoServer, HASH, Refusal, serve_echo};

use runtime::Peer;
use runtime::testing::run;

const SMALL: Layout = Layout { ring_slots: 16, bulk_bytes: 4096 };

/// Answers at once, late, or with another server's help, and writes down in what order it works.
#[derive(Default)]
struct Server {
    helper: RefCell<Option<EchoClient>>,
    begun: Cell<usize>,
    steps: RefCell<Vec<String>>,
    fills: RefCell<Vec<u8>>,
}

impl EchoServer for Server {
    async fn say(&self, _: &Peer, text: String) -> Result<String, Refusal> {
        self.steps.borrow_mut().push(text.clone());
        Ok(text)
    }

    async fn wait(&self, _: &Peer, duration_ns: u64) -> Result<u64, Refusal> {
        self.begun.set(self.begun.get() + 1);
        runtime::sleep(duration_ns).await;
        Ok(duration_ns)
    }

    /// Has the helper look, for as many characters as the text has; one that has no room refuses.
    async fn look(&self, _: &Peer, text: String) -> Result<String, Refusal> {
        self.steps.borrow_mut().push(format!("begin {text}"));
        let helper = self.helper.borrow().clone();
        let answer = match (helper, text.get(1..)) {
            (Some(helper), Some(rest)) if !rest.is_empty() => match helper.look(rest.to_owned()).await {
                Ok(_) => Ok(text.clone()),
                Err(CallError::Full | CallError::Server(_)) => Err(Refusal::Empty),
                Err(other) => panic!("a helper that is there: {other:?}"),
            },
            _ => {
                runtime::sleep(LOOK_NS).await;
                Ok(text.clone())
            }
        };
        self.steps.borrow_mut().push(format!("end {text}"));
        answer
    }

    async fn long(&self, _: &Peer, bytes: u32) -> Result<Vec<u8>, Refusal> {
        Ok(vec![0; bytes as usize])
    }

    async fn fill(&self, peer: &Peer, span: BulkSpan, value: u8) -> Result<(), Refusal> {
        let window = peer.bulk().window(span).map_err(|_| Refusal::OutOfBounds)?;
        let mut bytes = vec![0; window.len()];
        window.read(0, &mut bytes).map_err(|_| Refusal::OutOfBounds)?;
        assert!(bytes.iter().all(|byte| *byte == value), "the bytes are those of their request");
        self.fills.borrow_mut().push(value);
        Ok(())
    }

    fn discard(&self, _: &Peer, _: u64) {}
    fn peer_closed(&self, _: &Peer) {}
    fn peer_restarted(&self, _: &Peer) {}
}

/// Virtual time that a server without a helper takes to look.
const LOOK_NS: u64 = 1_000_000;

fn mailbox(server: &Rc<Server>) -> EchoClient {
    let (client, channel) = loopback(SMALL);
    runtime::spawn(serve_echo(server.clone(), channel));
    EchoClient::new(client)
}

#[test]
fn a_client_of_a_thousand_mailboxes_loses_and_doubles_nothing() {
    const MAILBOXES: usize = 1000;
    const ROUNDS: usize = 20;
    run(async {
        let servers: Vec<_> = (0..MAILBOXES).map(|_| Rc::new(Server::default())).collect();
        let clients: Vec<_> = servers.iter().map(mailbox).collect();
        // More requests than a ring holds, and in another order over mailboxes each time.
        let mut calls = Vec::new();
        for round in 0..ROUNDS {
            for turn in 0..MAILBOXES {
                let index = (turn * 7 + round * 13) % MAILBOXES;
                let text = format!("{index}: {round}");
                calls.push((clients[index].say(text.clone()), text));
            }
        }
        for (call, text) in calls {
            assert_eq!(call.await, Ok(text));
        }
        for (index, server) in servers.iter().enumerate() {
            let expected: Vec<_> = (0..ROUNDS).map(|round| format!("{index}: {round}")).collect();
            assert_eq!(*server.steps.borrow(), expected);
        }
    });
}

#[test]
fn a_sender_goes_on_while_the_receiver_sleeps() {
    run(async {
        let [one, two] = loopback_memory(SMALL);
        let client = EchoClient::new(ClientChannel::new(loopback_wiring(one, true)));
        // Nobody serves yet: what is sent lies in the receiver's memory, and the sender gets its
        // turn again at once.
        let mut calls = Vec::new();
        for value in 1..=4u8 {
            let span = BulkSpan { offset: u32::from(value - 1) * 1024, length: 1024 };
            let window = client.bulk().window(span).unwrap();
            window.write(0, &[value; 1024]).unwrap();
            calls.push(client.fill(span, value));
        }
        runtime::sleep(1_000_000).await;
        let server = Rc::new(Server::default());
        runtime::spawn(serve_echo(server.clone(), ServerChannel::new(loopback_wiring(two, false))));
        assert!(server.fills.borrow().is_empty(), "sent, and not served before the server ran");
        for call in calls {
            assert_eq!(call.await, Ok(()));
        }
        assert_eq!(*server.fills.borrow(), [1, 2, 3, 4]);
    });
}

/// A server that answers when, and as often as, the test says so.
#[derive(Default)]
struct Held(RefCell<Vec<(Peer, u32)>>);

impl Dispatch for Held {
    fn request(&self, peer: &Peer, _: u16, correlation: u32, _: &[u8]) -> Result<Task, Broken> {
        self.0.borrow_mut().push((peer.clone(), correlation));
        Ok(Box::pin(async {}))
    }

    fn one_way(&self, _: &Peer, _: u16, _: &[u8]) -> Result<(), Broken> {
        Err(Broken)
    }

    fn closed(&self, _: &Peer) {}
    fn restarted(&self, _: &Peer) {}
}

#[test]
fn a_request_has_one_answer_whatever_the_server_does() {
    run(async {
        let (client, channel) = loopback(SMALL);
        let server = Rc::new(Held::default());
        runtime::spawn(channel.serve(HASH, server.clone()));
        let client = EchoClient::new(client);
        let calls: Vec<_> = (0..100).map(|_| client.say("?".into())).collect();
        for call in calls {
            while server.0.borrow().is_empty() {
                runtime::sleep(1000).await;
            }
            let (peer, correlation) = server.0.borrow_mut().remove(0);
            for answer in ["1", "2"] {
                peer.answer(correlation, &Ok::<_, Refusal>(answer.to_owned()));
            }
            assert_eq!(call.await, Ok("1".into()));
        }
    });
}

/// Memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn ten_thousand_requests_wait_at_once_in_bounded_memory() {
    const CLIENTS: usize = 40;
    const BYTES_EACH_MAX: usize = 4096;
    run(async {
        let server = Rc::new(Server::default());
        let clients: Vec<_> = (0..CLIENTS).map(|_| mailbox(&server)).collect();
        let before = resident();
        let calls: Vec<_> = clients.iter().flat_map(|client| (0..CALLS_MAX).map(|_| client.wait(LOOK_NS))).collect();
        for client in &clients {
            assert_eq!(client.wait(LOOK_NS).await, Err(CallError::Full), "the bound is the client's to meet");
        }
        // Shorter than any of them takes: all are under way then.
        runtime::sleep(LOOK_NS / 2).await;
        assert_eq!(server.begun.get(), CLIENTS * CALLS_MAX);
        let each = resident().saturating_sub(before) / calls.len();
        assert!(each <= BYTES_EACH_MAX, "a request under way takes {each} bytes");
        for call in calls {
            assert_eq!(call.await, Ok(LOOK_NS));
        }
    });
}

#[test]
fn an_answer_is_taken_before_a_request_that_came_earlier() {
    run(async {
        let (server, held) = (Rc::new(Server::default()), Rc::new(Held::default()));
        let client = mailbox(&server);
        let (helper, channel) = loopback(SMALL);
        runtime::spawn(channel.serve(HASH, held.clone()));
        *server.helper.borrow_mut() = Some(EchoClient::new(helper));
        let first = client.look("ab".into());
        runtime::sleep(LOOK_NS).await;
        assert_eq!(*server.steps.borrow(), ["begin ab"]);
        // The server does not run between these two.
        let second = client.look("c".into());
        let (peer, correlation) = held.0.borrow_mut().pop().unwrap();
        peer.answer(correlation, &Ok::<_, Refusal>("b".to_owned()));
        assert_eq!((first.await, second.await), (Ok("ab".into()), Ok("c".into())));
        assert_eq!(*server.steps.borrow(), ["begin ab", "end ab", "begin c", "end c"]);
    });
}

#[test]
fn servers_that_need_each_other_refuse_and_do_not_stand_still() {
    const CLIENTS_EACH: usize = 4;
    const DEPTH: usize = 6;
    run(async {
        let servers = [Rc::new(Server::default()), Rc::new(Server::default())];
        for (server, other) in [(0, 1), (1, 0)] {
            *servers[server].helper.borrow_mut() = Some(mailbox(&servers[other]));
        }
        // Each request needs both servers in turn, and there are many times more than one may have
        // at the other.
        let clients: Vec<_> =
            servers.iter().flat_map(|server| (0..CLIENTS_EACH).map(move |_| mailbox(server))).collect();
        let text = "x".repeat(DEPTH);
        let calls: Vec<_> =
            clients.iter().flat_map(|client| (0..CALLS_MAX).map(|_| client.look(text.clone()))).collect();
        let (mut done, mut refused) = (0, 0);
        for call in calls {
            match call.await {
                Ok(_) => done += 1,
                Err(CallError::Server(Refusal::Empty)) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(done > 0 && refused > 0, "{done} were done and {refused} refused");
        // Nothing is left half done: what was begun has ended, and there is room again.
        for server in &servers {
            let steps = server.steps.borrow();
            let begun = steps.iter().filter(|step| step.starts_with("begin")).count();
            assert_eq!(steps.len(), 2 * begun);
        }
        assert_eq!(clients[0].look(text.clone()).await, Ok(text));
    });
}
