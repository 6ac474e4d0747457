//! The terminal behind its contract, over loopback channels with virtual time.

use std::cell::RefCell;
use std::rc::Rc;

use channel::{Broken, CallError, Dispatch, Layout, Peer, Task};
use console_core::record::{Kept, Request};
use console_core::service::{Console, Outside, TERMINAL};
use console_core::settings::{Settings, character, local};
use contracts::BulkSpan;
use contracts::descriptions::*;
use contracts::process::{self, ProcessClient, ProcessError, Target};

/// Signals of which the process server was asked.
type Signals = Rc<RefCell<Vec<u8>>>;

/// A process server that takes its time.
struct Slow {
    signals: Signals,
    answers_after_ns: u64,
}

impl Dispatch for Slow {
    fn request(&self, peer: &Peer, _: u16, correlation: u32, body: &[u8]) -> Result<Task, Broken> {
        let (_, number): (Target, u8) = channel::decode(body)?;
        let (peer, signals, after_ns) = (peer.clone(), self.signals.clone(), self.answers_after_ns);
        Ok(Box::pin(async move {
            runtime::sleep(after_ns).await;
            signals.borrow_mut().push(number);
            peer.answer(correlation, &Ok::<(), ProcessError>(()))
        }))
    }
    fn one_way(&self, _: &Peer, _: u16, _: &[u8]) -> Result<(), Broken> {
        Ok(())
    }
    fn closed(&self, _: &Peer) {}
    fn restarted(&self, _: &Peer) {}
}

type Line = Rc<RefCell<Vec<u8>>>;
type States = Rc<RefCell<Vec<Kept>>>;

fn console() -> (Rc<Console>, Line, States) {
    console_in(state())
}

fn state() -> Kept {
    Kept { settings: Settings::default(), rows: 24, columns: 80, foreground: 1, request: Request::NONE }
}

fn console_in(state: Kept) -> (Rc<Console>, Line, States) {
    let (line, states) = (Line::default(), States::default());
    let (out, kept) = (line.clone(), states.clone());
    let outside = Outside {
        write: Box::new(move |bytes| {
            assert!(bytes.len() <= 4096);
            out.borrow_mut().extend_from_slice(bytes);
        }),
        keep: Box::new(move |state| kept.borrow_mut().push(*state)),
        process: Box::new(|| None),
        bring_key: Box::new(|_| ()),
    };
    (Rc::new(Console::new(state, outside)), line, states)
}

fn client(console: &Rc<Console>) -> DescriptionsClient {
    let (client, server) = channel::loopback(Layout { bulk_bytes: 16384, ..Layout::default() });
    runtime::spawn(serve_descriptions(console.clone(), server));
    DescriptionsClient::new(client)
}

async fn read(client: &DescriptionsClient, wait: bool) -> Result<Vec<u8>, DescriptionError> {
    match client.read(TERMINAL, BulkSpan { offset: 0, length: 4096 }, None, wait).await {
        Ok(count) => {
            let mut bytes = vec![0; count as usize];
            client.bulk().read(0, &mut bytes).unwrap();
            Ok(bytes)
        }
        Err(CallError::Server(error)) => Err(error),
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn a_read_waits_and_a_poll_tells() {
    runtime::testing::run(async {
        let (console, line, _) = console();
        let client = client(&console);
        assert_eq!(read(&client, false).await, Err(DescriptionError::WouldBlock));
        assert_eq!(client.poll(TERMINAL, ready::READ, WatchFor::Level).await.unwrap(), 0);
        let typing = console.clone();
        runtime::spawn(async move {
            runtime::sleep(1_000_000).await;
            assert_eq!(typing.receive(b"hello\n"), 6);
        });
        assert!(matches!(client.next_event().await, DescriptionsEvent::Ready { id: TERMINAL, mask: ready::READ }));
        assert_eq!(read(&client, true).await.unwrap(), b"hello\n");
        assert_eq!(*line.borrow(), b"hello\r\n");
    });
}

#[test]
fn a_cancelled_read_loses_nothing() {
    runtime::testing::run(async {
        let (console, _, _) = console();
        let client = client(&console);
        assert!(runtime::timeout(1_000_000, read(&client, true)).await.is_err());
        client.channel().settled().await;
        console.receive(b"kept\n");
        assert_eq!(read(&client, true).await.unwrap(), b"kept\n");
    });
}

#[test]
fn a_raw_read_ends_with_its_time() {
    runtime::testing::run(async {
        let (console, _, states) = console();
        let client = client(&console);
        let mut settings = Settings { local: 0, ..Settings::default() };
        settings.characters[character::MINIMUM] = 0;
        settings.characters[character::TIME] = 5;
        let request = Control::SetTerminal { settings: settings.image().to_vec(), flush_input: true };
        assert_eq!(client.control(TERMINAL, request).await.unwrap(), ControlReply::Done);
        assert_eq!(states.borrow().last().unwrap().settings, settings);
        let before = runtime::now_ns();
        assert_eq!(read(&client, true).await.unwrap(), b"");
        assert!(runtime::now_ns() - before >= 500_000_000);
        let got = client.control(TERMINAL, Control::GetTerminal).await.unwrap();
        assert_eq!(got, ControlReply::Terminal(settings.image().to_vec()));
    });
}

#[test]
fn a_full_terminal_leaves_bytes_on_the_line_and_a_reader_makes_room() {
    runtime::testing::run(async {
        let (console, _, _) = console();
        let client = client(&console);
        let quiet = Settings { local: Settings::default().local & !local::ECHO, ..Settings::default() };
        let request = Control::SetTerminal { settings: quiet.image().to_vec(), flush_input: false };
        client.control(TERMINAL, request).await.unwrap();
        let (all, sending) = (b"0123456789\n".repeat(5000), console.clone());
        let mut rest = all.clone();
        runtime::spawn(async move {
            while !rest.is_empty() {
                let taken = sending.receive(&rest);
                rest.drain(..taken);
                sending.room().await;
            }
        });
        let mut received = Vec::new();
        while received.len() < all.len() {
            received.extend(read(&client, true).await.unwrap());
        }
        assert_eq!(received, all);
    });
}

#[test]
fn stopped_output_waits_and_wrong_requests_are_refused() {
    runtime::testing::run(async {
        let (console, line, states) = console();
        let client = client(&console);
        client.bulk().write(0, b"out\n").unwrap();
        let span = BulkSpan { offset: 0, length: 4 };
        console.receive(b"\x13");
        let refused = client.write(TERMINAL, span, None, false).await;
        assert!(matches!(refused, Err(CallError::Server(DescriptionError::WouldBlock))));
        let writing = client.write(TERMINAL, span, None, true);
        runtime::sleep(1_000).await;
        assert!(line.borrow().is_empty());
        console.receive(b"\x11");
        assert_eq!(writing.await.unwrap(), 4);
        assert_eq!(*line.borrow(), b"out\r\n");
        let beyond = client.write(TERMINAL, BulkSpan { offset: u32::MAX, length: 9 }, None, true).await;
        assert!(matches!(beyond, Err(CallError::Server(DescriptionError::Invalid))));
        let short = client.control(TERMINAL, Control::SetTerminal { settings: vec![1], flush_input: false }).await;
        assert!(matches!(short, Err(CallError::Server(DescriptionError::Invalid))));
        assert!(matches!(client.poll(9, 1, WatchFor::Nothing).await, Err(CallError::Server(DescriptionError::BadId))));
        client.control(TERMINAL, Control::SetForeground { group: 7 }).await.unwrap();
        assert_eq!(states.borrow().last().unwrap().foreground, 7);
    });
}

#[test]
fn replies_begin_a_line_and_requests_come_out() {
    runtime::testing::run(async {
        let (console, line, states) = console();
        assert_eq!(states.borrow().len(), 1, "the first state is kept too");
        console.print("$ ");
        console.receive(b"\x1e components\n");
        assert_eq!(console.next_request().await.unwrap(), " components");
        console.reply(&["ok 0 components"]);
        assert_eq!(*line.borrow(), b"$ \r\n\x1e ok 0 components\r\n");
        console.answered();
        console.receive(b"\x1e x\n".repeat(20).as_slice());
        assert_eq!(line.borrow().windows(10).filter(|window| window == b"\x1e error to").count(), 12);
    });
}

/// The process server may still be starting when somebody types Ctrl-C.
#[test]
fn a_signal_waits_for_a_process_server_that_takes_its_time() {
    runtime::testing::run(async {
        const MINUTE_NS: u64 = 60_000_000_000;
        let signals = Signals::default();
        let (client, server) = channel::loopback(Layout::default());
        let slow = Rc::new(Slow { signals: signals.clone(), answers_after_ns: MINUTE_NS });
        runtime::spawn(server.serve(process::HASH, slow));
        let process = ProcessClient::new(client);
        let outside = Outside {
            write: Box::new(|_| ()),
            keep: Box::new(|_| ()),
            process: Box::new(move || Some(process.clone())),
            bring_key: Box::new(|_| ()),
        };
        let console = Rc::new(Console::new(state(), outside));
        runtime::spawn(console.clone().send_signals());
        console.receive(b"\x03");
        runtime::sleep(MINUTE_NS - 1).await;
        assert_eq!(*signals.borrow(), []);
        runtime::sleep(2).await;
        assert_eq!(*signals.borrow(), [2]);
    });
}

/// Typed input and requests mix in any way, and the console dies between any two bytes: no request
/// is lost, none reaches the terminal.
#[test]
fn a_request_survives_half_typed_lines_and_restarts() {
    runtime::testing::run(async {
        let text = b"ec\x1e chaos kill ip\nho\n";
        for cut in 0..text.len() {
            let (first, _, states) = console();
            first.receive(&text[..cut]);
            let state = *states.borrow().last().unwrap();
            let (second, ..) = console_in(state);
            second.receive(&text[cut..]);
            let asked = match second.unanswered() {
                Some(text) => text,
                None => runtime::timeout(1_000, second.next_request()).await.unwrap().unwrap(),
            };
            assert_eq!(asked, " chaos kill ip", "cut at {cut}");
            second.answered();
            let typed = read(&client(&second), false).await.unwrap();
            assert!(b"echo\n".ends_with(&typed), "cut at {cut}: {typed:?}");
        }
    });
}
