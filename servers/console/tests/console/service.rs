//! The terminal behind its contract, over loopback channels with virtual time.

use std::cell::RefCell;
use std::rc::Rc;

use channel::{Broken, CallError, ClientChannel, Dispatch, Layout, Peer, ServerChannel, Task};
use console_core::record::{Kept, Request};
use console_core::service::{Console, Outside, TERMINAL};
use console_core::settings::{Settings, character, local};
use contracts::BulkSpan;
use contracts::descriptions::*;
use contracts::process::{self, ProcessClient, ProcessError, Target};

/// Signals of which the process server was asked.
pub type Signals = Rc<RefCell<Vec<(Target, u8)>>>;

/// A process server that takes its time.
struct Slow {
    signals: Signals,
    answers_after_ns: u64,
}

/// Its client.
pub fn process_server(signals: &Signals, answers_after_ns: u64) -> ProcessClient {
    let (client, server) = channel::loopback(Layout::default());
    runtime::spawn(server.serve(process::HASH, Rc::new(Slow { signals: signals.clone(), answers_after_ns })));
    ProcessClient::new(client)
}

impl Dispatch for Slow {
    fn request(&self, peer: &Peer, _: u16, correlation: u32, body: &[u8]) -> Result<Task, Broken> {
        let signal: (Target, u8) = channel::decode(body)?;
        let (peer, signals, after_ns) = (peer.clone(), self.signals.clone(), self.answers_after_ns);
        Ok(Box::pin(async move {
            runtime::sleep(after_ns).await;
            signals.borrow_mut().push(signal);
            peer.answer(correlation, &Ok::<(), ProcessError>(()))
        }))
    }
    fn one_way(&self, _: &Peer, _: u16, _: &[u8]) -> Result<(), Broken> {
        Ok(())
    }
    fn closed(&self, _: &Peer) {}
    fn restarted(&self, _: &Peer) {}
}

pub type Line = Rc<RefCell<Vec<u8>>>;
pub type States = Rc<RefCell<Vec<Kept>>>;

pub fn console() -> (Rc<Console>, Line, States) {
    console_in(state())
}

pub fn state() -> Kept {
    Kept { settings: Settings::default(), rows: 24, columns: 80, foreground: 1, request: Request::NONE }
}

pub fn console_in(state: Kept) -> (Rc<Console>, Line, States) {
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

pub async fn read(client: &DescriptionsClient, wait: bool) -> Result<Vec<u8>, DescriptionError> {
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
fn the_line_keeps_what_has_no_room_and_gives_the_rest_in_order() {
    runtime::testing::run(async {
        let (console, line, _) = console();
        let client = client(&console);
        let sent = b"0123456789abcdef\n".repeat(1000);
        let chip = Rc::new(RefCell::new(sent.clone().into_iter()));
        let (draining, register) = (console.clone(), chip.clone());
        runtime::spawn(async move { draining.drain(|| register.borrow_mut().next()).await });
        runtime::sleep(1_000_000).await;
        assert!((1..sent.len() - 10_000).contains(&chip.borrow().len()), "what has no room stays on the line");
        let mut received = Vec::new();
        while received.len() < sent.len() {
            received.extend(read(&client, true).await.unwrap());
        }
        assert!(received == sent);
        // It echoes what it took before it takes more.
        console.drain(|| line.take().is_empty().then_some(b'x')).await;
        assert_eq!(read(&client, false).await, Err(DescriptionError::WouldBlock));
    });
}

#[test]
fn a_raw_read_waits_for_its_minimum_or_takes_what_is_there() {
    runtime::testing::run(async {
        let (console, ..) = console();
        let client = client(&console);
        let mut settings = Settings { local: 0, ..Settings::default() };
        settings.characters[character::MINIMUM] = 3;
        let request = Control::SetTerminal { settings: settings.image().to_vec(), flush_input: true };
        client.control(TERMINAL, request).await.unwrap();
        console.receive(b"a");
        assert_eq!(read(&client, false).await.unwrap(), b"a");
        assert_eq!(read(&client, false).await, Err(DescriptionError::WouldBlock));
        console.receive(b"b");
        assert!(runtime::timeout(1_000_000, read(&client, true)).await.is_err(), "it waits for two more");
        client.channel().settled().await;
        console.receive(b"cd");
        assert_eq!(read(&client, true).await.unwrap(), b"bcd");
    });
}

#[test]
fn a_watch_outlasts_changes_that_tell_nothing() {
    runtime::testing::run(async {
        let (console, ..) = console();
        let client = client(&console);
        let told = async || runtime::timeout(1_000_000, client.next_event()).await.ok();
        assert_eq!(client.poll(TERMINAL, ready::READ, WatchFor::Level).await, Ok(0));
        console.receive(b"half a ");
        assert!(told().await.is_none());
        console.receive(b"line\n");
        assert!(matches!(told().await, Some(DescriptionsEvent::Ready { id: TERMINAL, mask: ready::READ })));
        console.receive(b"more\n");
        assert!(told().await.is_none(), "it was told once");
    });
}

#[test]
fn a_byte_that_stays_on_the_line_is_no_news() {
    runtime::testing::run(async {
        let (console, ..) = console();
        let client = client(&console);
        while console.receive(b"some line\n") == 10 {}
        assert_eq!(console.receive(b"x"), 0);
        assert_eq!(client.poll(TERMINAL, ready::READ, WatchFor::Edge).await, Ok(ready::READ));
        assert_eq!(console.receive(b"x"), 0);
        assert!(runtime::timeout(1_000_000, client.next_event()).await.is_err());
    });
}

/// One client's event, if there is one.
async fn told(client: &DescriptionsClient) -> Option<(DescriptionId, u32)> {
    match runtime::timeout(1_000_000, client.next_event()).await {
        Ok(DescriptionsEvent::Ready { id, mask }) => Some((id, mask)),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    }
}

#[test]
fn watches_of_one_client_are_one_for_each_description() {
    runtime::testing::run(async {
        let (console, ..) = console();
        let [one, other] = [client(&console), client(&console)];
        console.receive(b"\x13");
        let both = ready::READ | ready::WRITE;
        assert_eq!(one.poll(TERMINAL, ready::WRITE, WatchFor::Level).await, Ok(0));
        assert_eq!(one.poll(TERMINAL, ready::READ, WatchFor::Level).await, Ok(0));
        assert_eq!(one.poll(STANDARD[0], ready::READ, WatchFor::Level).await, Ok(0));
        assert_eq!(other.poll(TERMINAL, both, WatchFor::Level).await, Ok(0));
        console.receive(b"line\n");
        assert_eq!(told(&one).await, Some((TERMINAL, ready::READ)));
        assert_eq!(told(&one).await, Some((STANDARD[0], ready::READ)));
        assert_eq!(told(&other).await, Some((TERMINAL, ready::READ)));
        console.receive(b"\x11");
        assert_eq!((told(&one).await, told(&other).await), (None, None));
    });
}

#[test]
fn who_closes_a_description_is_told_no_more_of_it() {
    runtime::testing::run(async {
        let (console, ..) = console();
        let [one, other] = [client(&console), client(&console)];
        for (client, id) in [(&one, TERMINAL), (&one, STANDARD[0]), (&other, TERMINAL)] {
            assert_eq!(client.poll(id, ready::READ, WatchFor::Level).await, Ok(0));
        }
        assert_eq!(one.close(TERMINAL).await, Ok(()));
        assert_eq!(one.close(9).await, Err(CallError::Server(DescriptionError::BadId)));
        console.receive(b"line\n");
        assert_eq!((told(&one).await, told(&one).await), (Some((STANDARD[0], ready::READ)), None));
        assert_eq!(told(&other).await, Some((TERMINAL, ready::READ)));
        assert_eq!(read(&one, false).await.unwrap(), b"line\n", "it is there all the same");
    });
}

#[test]
fn who_comes_after_a_client_is_not_told_what_that_watched_for() {
    runtime::testing::run(async {
        let (console, ..) = console();
        let other = client(&console);
        let [first, second, server, monitor] = channel::loopback_memory(Layout::default());
        runtime::spawn(serve_descriptions(
            console.clone(),
            ServerChannel::new(channel::loopback_wiring(server, false)),
        ));
        let of = |memory| DescriptionsClient::new(ClientChannel::new(channel::loopback_wiring(memory, true)));
        let first = of(first);
        for client in [&first, &other] {
            assert_eq!(client.poll(TERMINAL, ready::READ, WatchFor::Level).await, Ok(0));
        }
        monitor.raise_generation();
        let second = of(second);
        assert_eq!(second.poll(TERMINAL, ready::READ, WatchFor::Nothing).await, Ok(0));
        console.receive(b"line\n");
        assert_eq!(told(&second).await, None);
        assert_eq!(told(&other).await, Some((TERMINAL, ready::READ)));
    });
}

#[test]
fn a_terminal_has_no_place_size_or_entries_and_is_not_passed_on() {
    runtime::testing::run(async {
        let (console, ..) = console();
        let client = client(&console);
        fn refused<T>(error: DescriptionError) -> Result<T, CallError<DescriptionError>> {
            Err(CallError::Server(error))
        }
        let span = BulkSpan { offset: 0, length: 4 };
        assert_eq!(client.read(TERMINAL, span, Some(0), false).await, refused(DescriptionError::NotSeekable));
        assert_eq!(client.write(TERMINAL, span, Some(0), false).await, refused(DescriptionError::NotSeekable));
        assert_eq!(client.seek(TERMINAL, 0, Whence::Start).await, refused(DescriptionError::NotSeekable));
        assert_eq!(client.resize(TERMINAL, 0).await, refused(DescriptionError::Invalid));
        assert_eq!(client.entries(TERMINAL, 0).await, refused(DescriptionError::NotDirectory));
        assert_eq!(client.export(TERMINAL).await, refused(DescriptionError::NotSupported));
        assert_eq!(client.claim(1).await, refused(DescriptionError::NotSupported));
        for id in [TERMINAL, STANDARD[0], STANDARD[1], STANDARD[2]] {
            let status = client.status(id).await.unwrap();
            assert_eq!((status.kind, status.special, status.inode), (Kind::Terminal, 4 << 8 | 64, TERMINAL), "{id}");
        }
        assert_eq!(client.status(9).await, refused(DescriptionError::BadId));
    });
}

#[test]
fn an_answer_goes_out_in_as_few_pieces_as_the_kernel_takes() {
    let pieces = Rc::new(RefCell::new(Vec::new()));
    let out = pieces.clone();
    let outside = Outside {
        write: Box::new(move |bytes| out.borrow_mut().push(bytes.len())),
        keep: Box::new(|_| ()),
        process: Box::new(|| None),
        bring_key: Box::new(|_| ()),
    };
    let console = Console::new(state(), outside);
    console.reply(&[&"x".repeat(5000)]);
    // The line end before it, the mark and the blank, and its own line end.
    assert_eq!(pieces.take(), [4096, 5000 - 4096 + 6]);
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

/// A console whose process server takes that long.
fn signalling(signals: &Signals, answers_after_ns: u64) -> Rc<Console> {
    let process = process_server(signals, answers_after_ns);
    let outside = Outside {
        write: Box::new(|_| ()),
        keep: Box::new(|_| ()),
        process: Box::new(move || Some(process.clone())),
        bring_key: Box::new(|_| ()),
    };
    let console = Rc::new(Console::new(state(), outside));
    runtime::spawn(console.clone().send_signals());
    console
}

#[test]
fn each_signal_goes_once_however_often_its_key_was_pressed() {
    runtime::testing::run(async {
        let signals = Signals::default();
        let console = signalling(&signals, 1_000);
        client(&console).control(TERMINAL, Control::SetForeground { group: 7 }).await.unwrap();
        console.receive(b"\x03\x1c\x03\x1c\x03");
        runtime::sleep(1_000_000).await;
        assert_eq!(*signals.borrow(), [(Target::Group(7), 3), (Target::Group(7), 2)]);
        console.receive(b"\x03");
        runtime::sleep(1_000_000).await;
        assert_eq!(signals.borrow()[2..], [(Target::Group(7), 2)]);
    });
}

/// The process server may still be starting when somebody types Ctrl-C.
#[test]
fn a_signal_waits_for_a_process_server_that_takes_its_time() {
    runtime::testing::run(async {
        const MINUTE_NS: u64 = 60_000_000_000;
        let signals = Signals::default();
        let console = signalling(&signals, MINUTE_NS);
        console.receive(b"\x03");
        runtime::sleep(MINUTE_NS - 1).await;
        assert_eq!(*signals.borrow(), []);
        runtime::sleep(2).await;
        assert_eq!(*signals.borrow(), [(Target::Group(1), 2)]);
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
