//! The terminal and the streams over their own device, as programs and the host see them while
//! nobody dies.

use crate::common::{CONTROL, ERROR, INPUT, Machine, OUTPUT, PHYSICAL, QUEUES, TERMINAL, USED, to_host};
use crate::service::{Signals, process_server, state};
use channel::{CallError, Layout};
use console_core::service::{Console, Outside};
use console_core::settings::{Settings, output};
use console_core::streams::{Found, REGION_BYTES, Request, Streams};
use contracts::BulkSpan;
use contracts::descriptions::{TERMINAL as SCREEN, *};
use contracts::process::{Ended, Target};
use packet::Memory;
use std::cell::RefCell;
use std::rc::Rc;
use virtio::port::RING_BYTES;
use virtio::ports::Out;

/// Bytes of a buffer of the screen, and how many there are.
const BUFFER: usize = 1024;
const BUFFERS: usize = 32;

fn streams(machine: &Machine) -> Streams {
    let (transport, mut owner, memory) = machine.parts();
    let (streams, found) = Streams::start(transport, memory, PHYSICAL, false, &mut owner).unwrap();
    assert_eq!(found, Found::Fresh);
    machine.settle();
    streams
}

/// A console, the host behind its device, and what it was heard to do.
struct Whole {
    machine: Machine,
    console: Rc<Console>,
    signals: Signals,
    keys: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl Whole {
    /// These of the standard streams are the terminal.
    fn new(terminals: [bool; 3]) -> Whole {
        let machine = Machine::new(REGION_BYTES);
        let (signals, keys) = (Signals::default(), Rc::new(RefCell::new(Vec::new())));
        let (process, brought) = (process_server(&signals, 1_000), keys.clone());
        let outside = Outside {
            write: Box::new(|_| panic!("the terminal is not on the serial line")),
            keep: Box::new(|_| ()),
            process: Box::new(move || Some(process.clone())),
            bring_key: Box::new(move |key| brought.borrow_mut().push(key.to_vec())),
        };
        let console = Rc::new(Console::new(state(), outside).with_streams(streams(&machine), terminals));
        runtime::spawn(console.clone().send_signals());
        Whole { machine, console, signals, keys }
    }

    fn client(&self) -> DescriptionsClient {
        let (client, server) = channel::loopback(Layout { bulk_bytes: 16384, ..Layout::default() });
        runtime::spawn(serve_descriptions(self.console.clone(), server));
        DescriptionsClient::new(client)
    }

    /// What comes from the host is taken and what goes there arrives, as long as there is any.
    fn settle(&self) {
        loop {
            let has_moved = self.machine.settle();
            self.console.look();
            if !has_moved {
                break;
            }
        }
    }

    /// What waits at the host's port, and is not passed on yet.
    fn wait(&self, port: usize, bytes: &[u8]) {
        self.machine.device.borrow_mut().waits[port].extend(bytes);
    }

    fn say(&self, port: usize, bytes: &[u8]) {
        self.wait(port, bytes);
        self.settle();
    }

    fn arrived(&self, port: usize) -> Vec<u8> {
        std::mem::take(&mut self.machine.device.borrow_mut().arrived[port])
    }

    async fn expand_tabs(&self, client: &DescriptionsClient) {
        let settings = Settings { output: output::PROCESS | output::EXPAND_TABS, ..Settings::default() };
        let request = Control::SetTerminal { settings: settings.image().to_vec(), flush_input: false };
        client.control(SCREEN, request).await.unwrap();
    }
}

async fn write(client: &DescriptionsClient, id: DescriptionId, bytes: &[u8], wait: bool) -> Answer {
    client.bulk().write(0, bytes).unwrap();
    client.write(id, BulkSpan { offset: 0, length: bytes.len() as u32 }, None, wait).await.map_err(error)
}

async fn read(client: &DescriptionsClient, id: DescriptionId, wait: bool) -> Result<Vec<u8>, DescriptionError> {
    let count = client.read(id, BulkSpan { offset: 0, length: 4096 }, None, wait).await.map_err(error)?;
    let mut bytes = vec![0; count as usize];
    client.bulk().read(0, &mut bytes).unwrap();
    Ok(bytes)
}

type Answer = Result<u32, DescriptionError>;

fn error(error: CallError<DescriptionError>) -> DescriptionError {
    match error {
        CallError::Server(error) => error,
        other => panic!("{other:?}"),
    }
}

async fn told(client: &DescriptionsClient) -> Option<(DescriptionId, u32)> {
    match runtime::timeout(1_000_000, client.next_event()).await {
        Ok(DescriptionsEvent::Ready { id, mask }) => Some((id, mask)),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    }
}

#[test]
fn all_that_is_typed_is_taken_at_once_shows_once_and_is_read() {
    runtime::testing::run(async {
        let whole = Whole::new([true; 3]);
        let client = whole.client();
        whole.wait(TERMINAL, &b"echo hello\n".repeat(60));
        whole.machine.settle();
        whole.console.look();
        whole.machine.settle();
        assert!(whole.arrived(TERMINAL) == b"echo hello\r\n".repeat(60));
        for id in STANDARD.into_iter().cycle().take(60) {
            assert_eq!(read(&client, id, false).await.unwrap(), b"echo hello\n");
        }
        assert_eq!(read(&client, SCREEN, false).await, Err(DescriptionError::WouldBlock));
        assert_eq!(whole.console.receive(b"serial\n"), 7);
        assert_eq!(read(&client, SCREEN, false).await, Err(DescriptionError::WouldBlock), "that is elsewhere");
    });
}

#[test]
fn an_interrupt_that_was_answered_comes_again() {
    runtime::testing::run(async {
        let whole = Whole::new([true; 3]);
        for key in [b"a", b"b", b"c"] {
            whole.machine.device.borrow_mut().interrupts = false;
            whole.console.acknowledge();
            whole.wait(TERMINAL, key);
            whole.machine.settle();
            assert!(whole.machine.device.borrow().interrupts);
            whole.console.look();
        }
    });
}

/// As many of the screen's buffers as leave one.
async fn fill(client: &DescriptionsClient) {
    for _ in 1..BUFFERS {
        assert_eq!(write(client, SCREEN, b"x", false).await, Ok(1));
    }
}

#[test]
fn keys_wait_while_their_echo_has_no_room() {
    runtime::testing::run(async {
        let whole = Whole::new([true; 3]);
        let client = whole.client();
        whole.expand_tabs(&client).await;
        fill(&client).await;
        whole.wait(TERMINAL, &b"\t".repeat(200));
        assert!(whole.machine.receive(TERMINAL, 200));
        whole.console.look();
        whole.settle();
        let filled = BUFFERS - 1;
        let shown = [b"x".repeat(filled), b" ".repeat(filled.next_multiple_of(8) - filled + 199 * 8)].concat();
        assert!(whole.arrived(TERMINAL) == shown);
    });
}

#[test]
fn a_screen_takes_what_shows_whole_and_then_has_writers_wait() {
    runtime::testing::run(async {
        let whole = Whole::new([false; 3]);
        let client = whole.client();
        whole.expand_tabs(&client).await;
        fill(&client).await;
        whole.machine.device.borrow_mut().arrived[TERMINAL].clear();
        let count = write(&client, SCREEN, &b"\t".repeat(1000), false).await.unwrap() as usize;
        assert_eq!(count, BUFFER / 8);
        assert_eq!(write(&client, SCREEN, b"more", false).await, Err(DescriptionError::WouldBlock));
        assert_eq!(write(&client, SCREEN, b"", false).await, Ok(0));
        assert_eq!(client.poll(SCREEN, ready::WRITE, WatchFor::Level).await, Ok(0));
        let (writing, later) = (client.clone(), Rc::new(RefCell::new(None)));
        let done = later.clone();
        runtime::spawn(async move { *done.borrow_mut() = Some(write(&writing, SCREEN, b"more", true).await) });
        assert_eq!((told(&client).await, *later.borrow()), (None, None));
        whole.settle();
        assert_eq!(told(&client).await, Some((SCREEN, ready::WRITE)));
        assert_eq!(*later.borrow(), Some(Ok(4)));
        whole.settle();
        let filled = BUFFERS - 1;
        let spaces = filled.next_multiple_of(8) - filled + (count - 1) * 8;
        assert!(whole.arrived(TERMINAL) == [b"x".repeat(filled), b" ".repeat(spaces), b"more".to_vec()].concat());
    });
}

#[test]
fn output_that_was_stopped_by_a_key_waits_for_one_that_starts_it() {
    runtime::testing::run(async {
        let whole = Whole::new([false; 3]);
        let client = whole.client();
        whole.say(TERMINAL, b"\x13");
        assert_eq!(write(&client, SCREEN, b"out", false).await, Err(DescriptionError::WouldBlock));
        assert_eq!(client.poll(SCREEN, ready::WRITE, WatchFor::Nothing).await, Ok(0));
        assert_eq!(write(&client, STANDARD[1], b"other", false).await, Ok(5), "no key stops what is no terminal");
        whole.say(TERMINAL, b"\x11");
        assert_eq!(client.poll(SCREEN, ready::WRITE, WatchFor::Nothing).await, Ok(ready::WRITE));
        assert_eq!(write(&client, SCREEN, b"out", true).await, Ok(3));
        whole.settle();
        assert_eq!(whole.arrived(TERMINAL), b"out");
    });
}

#[test]
fn each_standard_stream_is_the_terminal_or_one_of_its_own() {
    runtime::testing::run(async {
        let whole = Whole::new([false, true, false]);
        let client = whole.client();
        for (id, text) in [(STANDARD[1], b"to the screen"), (STANDARD[2], b"to the errors")] {
            assert_eq!(write(&client, id, text, true).await, Ok(13));
        }
        whole.say(INPUT, b"from the input");
        assert_eq!((whole.arrived(TERMINAL), whole.arrived(ERROR)), (b"to the screen".into(), b"to the errors".into()));
        assert_eq!(read(&client, STANDARD[0], true).await.unwrap(), b"from the input");
        let kinds = [Kind::Pipe, Kind::Terminal, Kind::Pipe];
        for (id, kind) in STANDARD.into_iter().zip(kinds) {
            let status = client.status(id).await.unwrap();
            let inode = if kind == Kind::Pipe { id } else { SCREEN };
            assert_eq!((status.kind, status.special != 0, status.inode), (kind, kind == Kind::Terminal, inode));
        }
        assert_eq!(write(&client, STANDARD[0], b"x", true).await, Err(DescriptionError::Invalid));
        assert_eq!(read(&client, STANDARD[2], true).await, Err(DescriptionError::Invalid));
        assert_eq!(
            client.seek(STANDARD[2], 0, Whence::Current).await.map_err(error),
            Err(DescriptionError::NotSeekable)
        );
        let whole = Whole::new([true, false, true]);
        let client = whole.client();
        assert_eq!(write(&client, STANDARD[1], b"output", true).await, Ok(6));
        assert_eq!(write(&client, STANDARD[2], b"error", true).await, Ok(5));
        whole.say(TERMINAL, b"typed\n");
        assert_eq!((whole.arrived(OUTPUT), whole.arrived(TERMINAL)), (b"output".into(), b"errortyped\r\n".into()));
        assert_eq!(read(&client, STANDARD[0], true).await.unwrap(), b"typed\n");
    });
}

#[test]
fn standard_input_waits_for_the_host_until_it_ends() {
    runtime::testing::run(async {
        let whole = Whole::new([false; 3]);
        let client = whole.client();
        let poll = async |mask| client.poll(STANDARD[0], mask, WatchFor::Nothing).await.unwrap();
        let control = async |id, request| client.control(id, request).await.map_err(error);
        assert_eq!(read(&client, STANDARD[0], false).await, Err(DescriptionError::WouldBlock));
        assert_eq!(poll(u32::MAX).await, 0);
        assert_eq!(control(STANDARD[0], Control::Available).await, Ok(ControlReply::Number(0)));
        let (reading, later) = (client.clone(), Rc::new(RefCell::new(None)));
        let done = later.clone();
        runtime::spawn(async move { *done.borrow_mut() = Some(read(&reading, STANDARD[0], true).await) });
        runtime::sleep(1_000_000).await;
        assert!(later.borrow().is_none());
        whole.say(INPUT, b"some");
        runtime::sleep(1_000_000).await;
        assert_eq!(later.take(), Some(Ok(b"some".to_vec())));
        assert_eq!(client.poll(STANDARD[0], ready::READ, WatchFor::Level).await, Ok(0));
        whole.say(INPUT, b"bytes");
        assert_eq!(told(&client).await, Some((STANDARD[0], ready::READ)));
        assert_eq!((poll(ready::READ).await, poll(ready::WRITE).await), (ready::READ, 0));
        assert_eq!(control(STANDARD[0], Control::Available).await, Ok(ControlReply::Number(5)));
        for (id, request) in
            [(STANDARD[0], Control::GetWindow), (STANDARD[1], Control::GetWindow), (STANDARD[1], Control::Available)]
        {
            assert_eq!(control(id, request).await, Err(DescriptionError::NotTerminal));
        }
        whole.say(CONTROL, b"end 9\n");
        assert_eq!(poll(ready::READ).await, ready::READ);
        assert_eq!(read(&client, STANDARD[0], true).await.unwrap(), b"bytes");
        assert_eq!((poll(ready::READ).await, poll(0).await), (ready::HANGUP, ready::HANGUP));
        assert_eq!(read(&client, STANDARD[0], true).await.unwrap(), b"");
        whole.say(INPUT, b"too late");
        assert_eq!(poll(ready::READ).await, ready::READ | ready::HANGUP);
    });
}

#[test]
fn what_nobody_at_the_host_takes_is_refused_or_shown_to_nobody() {
    runtime::testing::run(async {
        let whole = Whole::new([false; 3]);
        let client = whole.client();
        let poll = async |id, mask| client.poll(id, mask, WatchFor::Nothing).await.unwrap();
        assert_eq!(poll(STANDARD[1], u32::MAX).await, ready::WRITE);
        whole.say(CONTROL, b"closed-output\n");
        assert_eq!(write(&client, STANDARD[1], b"x", true).await, Err(DescriptionError::BrokenPipe));
        assert_eq!(poll(STANDARD[1], u32::MAX).await, ready::WRITE | ready::ERROR);
        assert_eq!(poll(STANDARD[1], 0).await, ready::ERROR);
        assert_eq!((poll(STANDARD[2], u32::MAX).await, poll(STANDARD[2], ready::READ).await), (ready::WRITE, 0));
        assert_eq!(write(&client, STANDARD[2], b"x", true).await, Ok(1));
        whole.say(CONTROL, b"closed-error\nclosed-screen\n");
        assert_eq!(write(&client, STANDARD[2], b"y", true).await, Err(DescriptionError::BrokenPipe));
        assert_eq!(write(&client, SCREEN, b"text", true).await, Ok(4));
        whole.settle();
        assert_eq!([OUTPUT, ERROR, TERMINAL].map(|port| whole.arrived(port)), [vec![], b"x".to_vec(), vec![]]);
    });
}

#[test]
fn a_screen_that_nobody_looks_at_is_never_full() {
    runtime::testing::run(async {
        let whole = Whole::new([false; 3]);
        let client = whole.client();
        while write(&client, SCREEN, &[b'x'; 4096], false).await.is_ok() {}
        let poll = async || client.poll(SCREEN, ready::WRITE, WatchFor::Nothing).await;
        assert_eq!(poll().await, Ok(0));
        whole.wait(CONTROL, b"closed-screen\n");
        assert!(whole.machine.receive(CONTROL, 99));
        whole.console.look();
        assert_eq!(poll().await, Ok(ready::WRITE));
        assert_eq!(write(&client, SCREEN, b"text", true).await, Ok(4));
    });
}

#[test]
fn a_full_output_has_writers_wait_or_come_again() {
    runtime::testing::run(async {
        let whole = Whole::new([false; 3]);
        let client = whole.client();
        while write(&client, STANDARD[2], &[b'x'; 4096], false).await.is_ok() {}
        assert_eq!(client.poll(STANDARD[2], ready::WRITE, WatchFor::Level).await, Ok(0));
        let full = write(&client, STANDARD[2], b"more", false).await;
        assert_eq!(full, Err(DescriptionError::WouldBlock));
        whole.settle();
        assert_eq!(told(&client).await, Some((STANDARD[2], ready::WRITE)));
        assert_eq!(write(&client, STANDARD[2], b"more", true).await, Ok(4));
        whole.settle();
        let arrived = whole.arrived(ERROR);
        assert!(arrived.len() == BUFFERS * BUFFER + 4 && arrived.ends_with(b"xmore"));
    });
}

#[test]
fn of_a_device_that_says_what_cannot_be_all_is_over() {
    runtime::testing::run(async {
        let whole = Whole::new([false; 3]);
        let client = whole.client();
        let poll = async |id| client.poll(id, u32::MAX, WatchFor::Nothing).await.unwrap();
        let ring = QUEUES.iter().position(|(number, ..)| *number == to_host(OUTPUT)).unwrap() * RING_BYTES;
        whole.machine.region.store_u16(ring + USED + 2, 77).unwrap();
        assert_eq!(write(&client, STANDARD[1], b"x", true).await, Err(DescriptionError::BrokenPipe));
        assert_eq!(read(&client, STANDARD[0], true).await.unwrap(), b"");
        assert_eq!(poll(STANDARD[0]).await, ready::HANGUP);
        assert_eq!(poll(STANDARD[1]).await, ready::WRITE | ready::ERROR);
        let ring = QUEUES.iter().position(|(number, ..)| *number == to_host(TERMINAL)).unwrap() * RING_BYTES;
        whole.machine.region.store_u16(ring + USED + 2, 77).unwrap();
        assert_eq!(poll(SCREEN).await, ready::WRITE);
        assert_eq!(write(&client, SCREEN, b"x", true).await, Err(DescriptionError::BrokenPipe));
        // The machine ends all the same.
        let console = whole.console.clone();
        runtime::spawn(async move { console.finish(Ended::Exited(0)).await });
        runtime::sleep(1_000).await;
        whole.settle();
        assert_eq!(whole.arrived(CONTROL), b"\nexit 0\n");
    });
}

#[test]
fn the_host_hears_how_the_first_program_ended_behind_all_that_it_wrote() {
    runtime::testing::run(async {
        for (how, word) in [(Ended::Exited(3), "\nexit 3\n"), (Ended::Signalled(9), "\nsignal 9\n")] {
            let whole = Whole::new([false; 3]);
            let client = whole.client();
            let (console, has_finished) = (whole.console.clone(), Rc::new(RefCell::new(false)));
            for id in [STANDARD[1], STANDARD[2], SCREEN] {
                write(&client, id, b"x", true).await.unwrap();
            }
            let done = has_finished.clone();
            runtime::spawn(async move {
                console.finish(how).await;
                done.replace(true);
            });
            for port in [OUTPUT, ERROR, TERMINAL] {
                runtime::sleep(1_000).await;
                assert!(!whole.machine.send(CONTROL, usize::MAX), "some is still on its way");
                assert!(whole.machine.send(port, usize::MAX));
                whole.console.look();
            }
            runtime::sleep(1_000).await;
            assert!(!*has_finished.borrow(), "the word is on its way");
            whole.settle();
            runtime::sleep(1_000).await;
            assert!(*has_finished.borrow());
            assert_eq!(whole.arrived(CONTROL), word.as_bytes());
        }
    });
}

#[test]
fn what_nobody_takes_does_not_keep_the_machine_from_its_end() {
    runtime::testing::run(async {
        let whole = Whole::new([false; 3]);
        let client = whole.client();
        for id in [STANDARD[1], STANDARD[2], SCREEN] {
            write(&client, id, b"x", true).await.unwrap();
        }
        whole.wait(CONTROL, b"closed-output\nclosed-screen\nclosed-error\n");
        while whole.machine.receive(CONTROL, 99) {}
        whole.console.look();
        let console = whole.console.clone();
        runtime::spawn(async move { console.finish(Ended::Exited(1)).await });
        runtime::sleep(1_000).await;
        assert!(whole.machine.send(CONTROL, usize::MAX));
        assert_eq!(whole.arrived(CONTROL), b"\nexit 1\n");
    });
}

#[test]
fn a_word_that_is_too_long_is_passed_over() {
    runtime::testing::run(async {
        let whole = Whole::new([true; 3]);
        whole.say(CONTROL, &[[b'x'; 1000].as_slice(), b"\nwindow 30 90\nnonsense 7\n"].concat());
        let client = whole.client();
        let window = client.control(SCREEN, Control::GetWindow).await;
        assert_eq!(window, Ok(ControlReply::Window { rows: 30, columns: 90 }));
        runtime::sleep(1_000_000).await;
        assert_eq!(*whole.signals.borrow(), [(Target::Group(1), 28)]);
    });
}

/// No later than where the longest word, a key of 128 bytes, would end.
#[test]
fn the_beginning_of_a_word_that_is_too_long_waits_for_no_end() {
    let machine = Machine::new(REGION_BYTES);
    let streams = streams(&machine);
    let say = |bytes: &[u8]| {
        machine.device.borrow_mut().waits[CONTROL].extend(bytes);
        machine.settle();
    };
    say(&[b'x'; "key".len() + 2 * 128 + 1]);
    assert!(!streams.take_word(|_| ()));
    say(b"x");
    assert!(streams.take_word(|_| ()) && !streams.take_word(|_| ()));
}

#[test]
fn a_key_is_of_whole_bytes_and_no_more_than_128() {
    runtime::testing::run(async {
        let whole = Whole::new([true; 3]);
        let long = "ab".repeat(128);
        for line in ["key 00ff1A", "key", "key ", "key 123", "key 1", "key 12 4", "key xy", &format!("key {long}")] {
            whole.say(CONTROL, format!("{line}\n").as_bytes());
        }
        whole.say(CONTROL, format!("key{long}1\n").as_bytes());
        assert_eq!(*whole.keys.borrow(), [vec![0, 0xff, 0x1a], vec![0xab; 128]]);
    });
}

#[test]
fn a_signal_that_is_wanted_again_while_it_is_sent_is_sent_again() {
    let machine = Machine::new(REGION_BYTES);
    let streams = streams(&machine);
    streams.raise(10);
    let sent = streams.next_signal().unwrap();
    streams.raise(10);
    streams.signal_sent(sent);
    assert_eq!(streams.next_signal(), Some((10, false)));
    streams.signal_sent(sent);
    assert_eq!(streams.next_signal(), None);
}

#[test]
fn a_write_without_room_has_no_result_that_it_is_told_again() {
    let machine = Machine::new(REGION_BYTES);
    let streams = streams(&machine);
    while streams.write(Out::Output, b"x", None, |done| done) > 0 {}
    let request = Some(Request { client: 3, number: 8 });
    assert_eq!(streams.write(Out::Output, b"more", request, |done| done), 0);
    assert_eq!(streams.result(request), None);
    machine.settle();
    assert_eq!(streams.write(Out::Output, b"more", request, |done| done), 4);
    assert_eq!(streams.result(request), Some(4));
}

#[test]
fn the_last_result_of_each_of_1024_clients_is_told_again() {
    let machine = Machine::new(REGION_BYTES);
    let streams = streams(&machine);
    let requests = [0, 511, 1023].map(|client| Some(Request { client, number: 8 }));
    for (request, bytes) in requests.iter().zip([b"a".as_slice(), b"bc", b"def"]) {
        assert_eq!(streams.write(Out::Output, bytes, *request, |done| done), bytes.len());
    }
    assert_eq!(requests.map(|request| streams.result(request)), [1, 2, 3].map(Some));
}
