//! A running guest: the emulator's process and the words on its serial line.
//!
//! One serial line carries three things, told apart by how a line starts: 0x1e is the control
//! channel (requests in, replies out), `pelago: exit N` is the status before power-off, all else is
//! console text. Text that is not yet a whole line (a prompt) is handed on too, unless it may still
//! become one of the special lines.
//!
//! Invariant: the emulator never outlives this value, nor this process.

use crate::host::child;
use crate::host::late::late;
use crate::machine::emulator::{Machine, PROGRAM, SOCKET, STREAMS};
use crate::machine::liveness::GuestLiveness;
use crate::machine::streams::Unattended;
use anyhow::{Context, Result, bail};
use command_fds::{CommandFdExt, FdMapping};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Starts a control line, in both directions.
pub const CONTROL: u8 = 0x1e;
const EXIT_LINE: &str = "pelago: exit ";
/// Lines that are handed on whole, since who shows them does it differently: the system's own, and
/// backtraces.
const SPECIAL_STARTS: [&str; 2] = ["pelago: ", "bt: "];
/// A line longer than this is handed on in pieces.
const LINE_BYTES_MAX: usize = 16 << 10;
const EVENTS_MAX: usize = 1024;
/// What an emulator wrote before its end has been read by then.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long the emulator takes until the counter of its processors runs: 24 to 46 ms were seen.
const EMULATOR_START: Duration = Duration::from_millis(30);
/// Lines shown when a scenario fails, each once: what waits says so again and again.
const TAIL_LINES: usize = 40;

/// What came out of the guest.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Console text, not a whole line; the rest of the line follows.
    Part(Vec<u8>),
    /// The end of a console line, without line end; `whole` is the full line.
    Line { rest: Vec<u8>, whole: String },
    /// Answer to a control request.
    Reply(String),
    /// The status that the guest is about to power off with.
    Exit(i32),
}

/// Cuts the byte stream into events.
#[derive(Default)]
struct Splitter {
    line: Vec<u8>,
    handed_on: usize,
}

impl Splitter {
    fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) {
        for &byte in bytes {
            match byte {
                b'\n' => self.end_line(events),
                b'\r' => {}
                byte => self.line.push(byte),
            }
            if self.line.len() >= LINE_BYTES_MAX {
                self.end_line(events);
            }
        }
        if self.line.len() > self.handed_on && !self.may_be_special() {
            events.push(Event::Part(self.line[self.handed_on..].to_vec()));
            self.handed_on = self.line.len();
        }
    }

    fn may_be_special(&self) -> bool {
        let begins = |start: &str| {
            let common = start.len().min(self.line.len());
            start.as_bytes()[..common] == self.line[..common]
        };
        self.handed_on == 0 && (self.line[0] == CONTROL || SPECIAL_STARTS.iter().any(|start| begins(start)))
    }

    fn end_line(&mut self, events: &mut Vec<Event>) {
        let line = std::mem::take(&mut self.line);
        let handed_on = std::mem::take(&mut self.handed_on);
        let whole = String::from_utf8_lossy(&line).into_owned();
        if handed_on == 0 && line.first() == Some(&CONTROL) {
            events.push(Event::Reply(whole[1..].trim().to_owned()));
            return;
        }
        if let Some(status) = whole.strip_prefix(EXIT_LINE).and_then(|text| text.trim().parse().ok()) {
            events.push(Event::Exit(status));
        }
        events.push(Event::Line { rest: line[handed_on..].to_vec(), whole });
    }
}

/// The guest's console input; clones write to the same line.
#[derive(Clone)]
pub struct Input(Arc<Mutex<ChildStdin>>);

impl Input {
    /// Sends bytes; false if the guest is gone.
    pub fn send(&self, bytes: &[u8]) -> bool {
        let Ok(mut pipe) = self.0.lock() else { return false };
        pipe.write_all(bytes).and_then(|()| pipe.flush()).is_ok()
    }

    /// Sends a control request.
    pub fn control(&self, request: &str) -> bool {
        self.send(&[&[CONTROL, b' '], request.as_bytes(), b"\n"].concat())
    }
}

/// See the module's head.
pub struct Guest {
    child: Child,
    started: Instant,
    events: Receiver<Event>,
    input: Input,
    /// Where programs read, if it is not the console.
    program_input: Option<UnixStream>,
    /// Every whole line so far.
    pub transcript: Vec<String>,
    status: Option<i32>,
    /// What else lives as long as the guest: its archive, its network.
    kept: Vec<Box<dyn std::any::Any + Send>>,
    /// Where the console is written when the guest goes.
    record: Option<PathBuf>,
    /// Where the emulator writes frames at the card.
    frames: Option<PathBuf>,
}

impl Guest {
    /// Starts the emulator.
    pub fn start(machine: &Machine) -> Result<Guest> {
        Guest::start_with(machine, Stdio::inherit(), None)
    }

    /// Starts the emulator with a device for streams of programs, of which
    /// [`Machine::streams`](crate::machine::emulator::Machine::streams) has the numbers from
    /// [`STREAMS`] on. What programs write is heard as the console's lines are.
    pub fn start_unattended(machine: &Machine, streams: Unattended) -> Result<Guest> {
        Guest::start_with(machine, Stdio::inherit(), Some(streams))
    }

    /// Starts the emulator without its own complaints, for attempts that may fail.
    pub fn start_quietly(machine: &Machine) -> Result<Guest> {
        Guest::start_with(machine, Stdio::null(), None)
    }

    fn start_with(machine: &Machine, complaints: Stdio, streams: Option<Unattended>) -> Result<Guest> {
        let mut command = emulator_command(machine.namespace.as_deref());
        command.args(told_the_time(machine, SystemTime::now()).arguments()).stderr(complaints);
        let (mut ends, mut written, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        let mut program_input = None;
        if let Some(socket) = &machine.socket {
            let end = socket.try_clone().context("cannot double the card's socket")?;
            ends.push(FdMapping { parent_fd: end, child_fd: SOCKET });
        }
        if let Some(streams) = streams {
            let theirs = (STREAMS..).zip(streams.theirs);
            ends.extend(theirs.map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd }));
            (written, rest) = (streams.written, streams.rest);
            program_input = Some(streams.input);
        }
        if !ends.is_empty() {
            command.fd_mappings(ends).context("cannot pass the guest's sockets on")?;
        }
        let mut guest = Guest::start_heard(command, PROGRAM, "qemu-system-x86", written)?;
        guest.keep(rest);
        guest.program_input = program_input;
        guest.frames = machine.pcap.clone();
        Ok(guest)
    }

    /// Starts an emulator whose standard streams are the guest's console; `packages` are Debian's
    /// that have it.
    pub fn start_command(command: Command, program: &str, packages: &str) -> Result<Guest> {
        Guest::start_heard(command, program, packages, Vec::new())
    }

    /// The same, and what comes from `written` is heard, too.
    fn start_heard(mut command: Command, program: &str, packages: &str, written: Vec<UnixStream>) -> Result<Guest> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C is ours to handle: the emulator is in a process group of its own.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let started = Instant::now();
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                anyhow::anyhow!("{program} is missing; install it, for instance: apt-get install {packages}")
            }
            _ => anyhow::anyhow!("cannot start {program}: {error}"),
        })?;
        let input = child.stdin.take().context("the emulator has no input")?;
        let output = child.stdout.take().context("the emulator has no output")?;
        // It has the emulator's ends of sockets.
        drop(command);
        let (sender, events) = sync_channel(EVENTS_MAX);
        for stream in written {
            let sender = sender.clone();
            std::thread::spawn(move || read_console(stream, &sender));
        }
        std::thread::spawn(move || read_console(output, &sender));
        let input = Input(Arc::new(Mutex::new(input)));
        let (transcript, kept) = (Vec::new(), Vec::new());
        let (status, program_input, record, frames) = (None, None, None, None);
        Ok(Guest { child, started, events, input, program_input, transcript, status, kept, record, frames })
    }

    /// What the emulator wrote of the frames at the card until now (pcap).
    pub fn frames(&self) -> Result<Vec<u8>> {
        let file = self.frames.as_ref().context("frames at this machine's card are not recorded")?;
        crate::host::files::read(file)
    }

    /// Leaves every whole line of the console in a file when the guest goes.
    pub fn record(&mut self, file: PathBuf) {
        self.record = Some(file);
    }

    /// Keeps `value` until the guest is gone.
    pub fn keep(&mut self, value: impl std::any::Any + Send) {
        self.kept.push(Box::new(value));
    }

    /// A handle to type with.
    pub fn input(&self) -> Input {
        self.input.clone()
    }

    /// Gives the first program bytes to read.
    pub fn tell(&mut self, bytes: &[u8]) -> Result<()> {
        let is_told = match &mut self.program_input {
            Some(stream) => stream.write_all(bytes).is_ok(),
            None => self.input.send(bytes),
        };
        if is_told { Ok(()) } else { bail!("the guest is gone; its program reads nothing") }
    }

    /// The next event; `Ok(None)` when the guest is gone, an error when `limit` has passed.
    pub fn next(&mut self, limit: Duration) -> Result<Option<Event>> {
        let event = match self.events.recv_timeout(limit) {
            Ok(event) => event,
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => bail!("nothing within {:.1} s", limit.as_secs_f64()),
        };
        match &event {
            Event::Line { whole, .. } => self.transcript.push(whole.clone()),
            Event::Exit(status) => self.status = Some(*status),
            _ => {}
        }
        Ok(Some(event))
    }

    /// Waits for a console line that contains `words`, and returns it.
    pub fn expect(&mut self, words: &str, limit: Duration) -> Result<String> {
        self.wait_for(&format!("`{words}`"), limit, |event| match event {
            Event::Line { whole, .. } if whole.contains(words) => Some(whole.clone()),
            _ => None,
        })
    }

    /// As [`expect`](Self::expect), but fine if the line has come before.
    pub fn heard(&mut self, words: &str, limit: Duration) -> Result<String> {
        let before = self.transcript.iter().find(|line| line.contains(words)).cloned();
        before.map_or_else(|| self.expect(words, limit), Ok)
    }

    /// Sends a control request and waits for the last line of its reply, `ok ...` or `error ...`.
    pub fn control(&mut self, request: &str, limit: Duration) -> Result<String> {
        if !self.input.control(request) {
            bail!("the guest is gone; it did not take `{request}`");
        }
        self.wait_for(&format!("the reply to `{request}`"), limit, |event| match event {
            Event::Reply(text) if text.starts_with("ok") || text.starts_with("error") => Some(text.clone()),
            _ => None,
        })
    }

    /// Sends a control request and gathers its reply; an error if the last line is one.
    pub fn control_lines(&mut self, request: &str, limit: Duration) -> Result<Vec<String>> {
        if !self.input.control(request) {
            bail!("the guest is gone; it did not take `{request}`");
        }
        let mut lines = Vec::new();
        loop {
            let line = self.wait_for(&format!("the reply to `{request}`"), limit, |event| match event {
                Event::Reply(text) => Some(text.clone()),
                _ => None,
            })?;
            match line.split(' ').next() {
                Some("ok") => return Ok(lines),
                Some("error") => bail!("{request}: {line}"),
                _ => lines.push(line),
            }
        }
    }

    /// Takes what has come and was not waited for, so that a reply that came too late is not taken
    /// for the next one.
    pub fn catch_up(&mut self) {
        while matches!(self.next(Duration::ZERO), Ok(Some(_))) {}
    }

    fn wait_for<T>(&mut self, what: &str, limit: Duration, accept: impl Fn(&Event) -> Option<T>) -> Result<T> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.next(left) {
                Ok(Some(event)) => {
                    if let Some(value) = accept(&event) {
                        return Ok(value);
                    }
                }
                Ok(None) => bail!("the guest ended before {what} came"),
                Err(_) => {
                    return Err(self.late(format!("{what} did not come within {:.1} s", limit.as_secs_f64())));
                }
            }
        }
    }

    /// The error of a limit in time that the guest did not keep: [`Late`](crate::host::late::Late),
    /// unless it said that something is broken, or has ended.
    pub fn late(&self, words: String) -> anyhow::Error {
        match self.liveness().check() {
            Ok(()) => late(words, &self.transcript),
            Err(_) => anyhow::Error::msg(words),
        }
    }

    /// Waits until the guest has powered off; its status.
    pub fn finish(&mut self, limit: Duration) -> Result<i32> {
        let end = Instant::now() + limit;
        loop {
            match self.next(end.saturating_duration_since(Instant::now())) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => {
                    return Err(self.late(format!("the guest did not power off within {:.1} s", limit.as_secs_f64())));
                }
            }
        }
        let code = child::wait(&mut self.child, "the emulator, which has closed its console,", child::SHORT)?.code();
        self.status.map_or_else(|| status_of(code), Ok)
    }

    /// Time since the machine was switched on.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The process id of the emulator, to measure it by.
    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// For those who wait for its answers.
    pub fn liveness(&self) -> GuestLiveness {
        GuestLiveness::of(self.child.id())
    }

    /// The last different lines of the console, those nobody has read yet included.
    pub fn tail(&mut self) -> String {
        self.catch_up();
        let mut symbols = crate::image::symbols::Symbols::default();
        let lines = last_different(&self.transcript, TAIL_LINES).into_iter();
        lines
            .map(|(line, times)| match times {
                1 => format!("    | {}\n", symbols.describe(line)),
                _ => format!("    | {} ({times} times)\n", symbols.describe(line)),
            })
            .collect()
    }
}

/// The last `count` different lines in the order in which they came last, and how often each came
/// since the first that is shown.
fn last_different(lines: &[String], count: usize) -> Vec<(&str, usize)> {
    let mut found: Vec<(&str, usize)> = Vec::new();
    for line in lines.iter().rev() {
        match found.iter().position(|(known, _)| known == line) {
            Some(at) => found[at].1 += 1,
            None if found.len() == count => break,
            None => found.push((line, 1)),
        }
    }
    found.reverse();
    found
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Either may fail only because it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(file) = self.record.take() {
            while matches!(self.next(LAST_WORDS), Ok(Some(_))) {}
            // Who looks at a failure does without, then.
            let _ = crate::host::files::write(&file, (self.transcript.join("\n") + "\n").as_bytes());
        }
    }
}

/// isa-debug-exit ends the emulator with twice the value plus one. 0 is a reset or power-off nobody
/// announced, others are QEMU's own.
fn status_of(code: Option<i32>) -> Result<i32> {
    match code {
        Some(code) if code > 1 && code & 1 == 1 => Ok(code >> 1),
        Some(0) => bail!("the guest reset itself without a word (a fault during boot?); run with --gdb to look"),
        Some(code) => bail!("the emulator ended with status {code}; its message is above"),
        None => bail!("the emulator was killed"),
    }
}

/// `setpriv` (util-linux) makes the emulator die with us however we die; without it a kill -9 of
/// this tool leaves it running.
fn emulator_command(namespace: Option<&str>) -> Command {
    let mut words = Vec::new();
    if let Some(namespace) = namespace {
        words.extend(["ip", "netns", "exec", namespace]);
    }
    if crate::host::path::find("setpriv").is_some() {
        words.extend(["setpriv", "--pdeathsig", "KILL"]);
    }
    words.push(PROGRAM);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// The machine with a word for our kernel that says when it starts: the emulator's own clock leaves
/// out a part of a second. Not where time is instructions, or stands still at first.
fn told_the_time(machine: &Machine, now: SystemTime) -> Machine {
    let mut told = machine.clone();
    let stands_still = machine.paused || machine.gdb.is_some() || machine.is_instrumented();
    if let Ok(since_1970) = (now + EMULATOR_START).duration_since(UNIX_EPOCH)
        && !stands_still
        && machine.kernel == crate::host::place::kernel()
    {
        told.command_line.push(format!("time={}.{:09}", since_1970.as_secs(), since_1970.subsec_nanos()));
    }
    told
}

fn read_console(mut output: impl Read, sender: &SyncSender<Event>) {
    let mut splitter = Splitter::default();
    let mut buffer = [0; 4096];
    let mut events = Vec::new();
    while let Ok(count @ 1..) = output.read(&mut buffer) {
        splitter.feed(&buffer[..count], &mut events);
        for event in events.drain(..) {
            if sender.send(event).is_err() {
                return;
            }
        }
    }
    if !splitter.line.is_empty() {
        splitter.end_line(&mut events);
        events.into_iter().for_each(|event| drop(sender.send(event)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Event {
        Event::Line { rest: text.into(), whole: text.into() }
    }

    fn split(pieces: &[&str]) -> Vec<Event> {
        let (mut splitter, mut events) = (Splitter::default(), Vec::new());
        pieces.iter().for_each(|piece| splitter.feed(piece.as_bytes(), &mut events));
        events
    }

    #[test]
    fn a_tail_shows_a_line_that_comes_again_once() {
        let lines = ["old", "cause", "wait a", "wait b", "wait a", "wait b"].map(str::to_owned);
        assert_eq!(last_different(&lines, 3), [("cause", 1), ("wait a", 2), ("wait b", 2)]);
        assert_eq!(last_different(&lines[..1], 3), [("old", 1)]);
    }

    #[test]
    fn the_three_kinds_are_told_apart() {
        let events = split(&["hello\r\n\x1e killed ip\npelago: exit 3\n"]);
        assert_eq!(events, [line("hello"), Event::Reply("killed ip".into()), Event::Exit(3), line("pelago: exit 3")]);
    }

    #[test]
    fn a_prompt_is_handed_on_at_once_and_a_special_line_is_not() {
        let rest = Event::Line { rest: b"ls".into(), whole: "$ ls".into() };
        assert_eq!(split(&["$ ", "ls\n"]), [Event::Part(b"$ ".into()), rest]);
        assert_eq!(split(&["pel", "ago: boot"]), []);
        assert_eq!(split(&["\x1e", "ok\n"]), [Event::Reply("ok".into())]);
    }

    #[test]
    fn our_kernel_is_told_when_it_starts_if_time_goes_on() {
        use crate::image::machine_type::MachineType;
        use crate::machine::emulator::Accelerator;
        let machine = Machine::new(MachineType::Q35, 1, Accelerator::Tcg);
        let words = |machine: &Machine| {
            let now = UNIX_EPOCH + Duration::new(1_795_383_516, 5_000_000) - EMULATOR_START;
            told_the_time(machine, now).command_line
        };
        assert_eq!(words(&machine), ["time=1795383516.005000000"]);
        assert!(words(&Machine { paused: true, ..machine.clone() }).is_empty());
        assert!(words(&Machine { instruction_ns: Some(1), ..machine.clone() }).is_empty());
        assert!(words(&Machine { kernel: "/boot/vmlinuz".into(), ..machine }).is_empty());
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let events = split(&[&"x".repeat(LINE_BYTES_MAX * 2 + 1)]);
        assert_eq!(events.len(), 3);
    }

    #[test]
    fn the_emulators_status_carries_the_guests() {
        assert_eq!(status_of(Some(85)).unwrap(), 42);
        assert!(status_of(Some(0)).is_err() && status_of(Some(1)).is_err() && status_of(None).is_err());
    }
}
