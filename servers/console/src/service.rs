//! The console between the line and those who use it: who waits for what, signals to the foreground
//! group, control requests.
//!
//! Invariants: no `RefCell` borrow crosses an await; all that waits here is bounded. The contract's
//! side is [`crate::description`].

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use contracts::descriptions::{DescriptionError, DescriptionId, DescriptionsEvents, STANDARD, Watched, ready};
use contracts::process::{Ended, ProcessClient, Target};
use runtime::Watch;
use virtio::ports::Out;

use crate::control::{Sorted, Sorter};
use crate::record::{Kept, Progress, Request};
use crate::settings::Settings;
use crate::streams::{Request as Numbered, Streams, Word};
use crate::terminal::{Readable, Terminal, signal};

pub use contracts::descriptions::TERMINAL;
/// Output bytes processed at once; a tab may become eight, and the kernel takes 4096.
const PIECE_BYTES: usize = 512;
/// Bytes taken from the serial line before echo goes out: the receive queue of its chip.
const LINE_PIECE_BYTES: usize = 16;
/// Requests that may wait for the one under way.
const REQUESTS_MAX: usize = 8;

/// A byte that a program writes to the terminal, or types at it, shows as at most so many.
const SHOWN_MAX: usize = 8;
/// Bytes of keys that are taken at once.
const KEYS_BYTES: usize = 256;

/// The first program.
const FIRST: u32 = 1;

/// Writes bytes, at most 4096 at once.
pub type Writer = Box<dyn Fn(&[u8])>;

/// Brings a key to who encrypts with it.
pub type Bringer = Box<dyn Fn(&[u8])>;

/// What the console does to the world.
pub struct Outside {
    /// The serial line.
    pub write: Writer,
    /// Keeps the state for the next start.
    pub keep: Box<dyn Fn(&Kept)>,
    /// The process server, if it is wired.
    pub process: Box<dyn Fn() -> Option<ProcessClient>>,
    /// Brings what encrypts the disk to who encrypts it.
    pub bring_key: Bringer,
}

pub(crate) struct Waiting {
    pub events: DescriptionsEvents,
    pub id: DescriptionId,
    pub watched: Watched,
}

/// What a description stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Terminal,
    Input,
    Output(Out),
}

/// See the module's head.
pub struct Console {
    outside: Outside,
    /// The device of the streams, if the machine has one; without, the terminal is on the serial
    /// line.
    pub(crate) streams: Option<Streams>,
    /// Which of the standard streams are the terminal.
    terminals: [bool; 3],
    pub(crate) terminal: RefCell<Terminal>,
    sorter: RefCell<Sorter>,
    pub(crate) state: Cell<Kept>,
    /// Something that a read, a write or the serial line may wait for has changed.
    pub(crate) changed: Watch,
    changes: Cell<u64>,
    pub(crate) waiting: RefCell<Vec<Waiting>>,
    /// Signals to be sent, one bit each: the same key pressed again before the first went is one
    /// signal, as for a program.
    signals: Cell<u64>,
    signalled: Watch,
    requests: RefCell<VecDeque<Result<String, &'static str>>>,
    requested: Watch,
}

impl Console {
    /// A terminal with that state, which is kept from now on.
    pub fn new(state: Kept, outside: Outside) -> Console {
        let mut terminal = Terminal::default();
        terminal.set(state.settings, false);
        let sorter = match state.request.progress {
            Progress::Partial => Sorter::resumed(state.request.text()),
            Progress::None | Progress::UnderWay => Sorter::default(),
        };
        (outside.keep)(&state);
        Console {
            outside,
            streams: None,
            terminals: [true; 3],
            terminal: RefCell::new(terminal),
            sorter: RefCell::new(sorter),
            state: Cell::new(state),
            changed: Watch::default(),
            changes: Cell::new(0),
            waiting: RefCell::default(),
            signals: Cell::new(0),
            signalled: Watch::default(),
            requests: RefCell::default(),
            requested: Watch::default(),
        }
    }

    /// The same with streams over a device of their own, of which these are the terminal.
    pub fn with_streams(self, streams: Streams, terminals: [bool; 3]) -> Console {
        Console { streams: Some(streams), terminals, ..self }
    }

    /// What `id` stands for.
    pub(crate) fn stream(&self, id: DescriptionId) -> Result<Stream, DescriptionError> {
        let standard = STANDARD.iter().position(|standard| *standard == id);
        match standard {
            None if id == TERMINAL => Ok(Stream::Terminal),
            None => Err(DescriptionError::BadId),
            Some(index) if self.streams.is_none() || self.terminals[index] => Ok(Stream::Terminal),
            Some(0) => Ok(Stream::Input),
            Some(1) => Ok(Stream::Output(Out::Output)),
            Some(_) => Ok(Stream::Output(Out::Error)),
        }
    }

    /// Looks what the device of the streams has done.
    pub fn look(&self) {
        let Some(streams) = &self.streams else { return };
        while streams.take_word(|word| match word {
            Word::Key(key) => (self.outside.bring_key)(key),
            Word::Window { rows, columns } => self.set_window(rows, columns),
        }) {}
        // A key's echo must have room.
        while self.terminal.borrow().has_room()
            && streams.room(Out::Screen) >= SHOWN_MAX * KEYS_BYTES
            && streams.take_keys(|bytes| self.receive_keys(bytes)) > 0
        {}
        if streams.has_signal() {
            self.signalled.changed();
        }
        self.note_change();
    }

    /// Answers an interrupt of that device.
    pub fn acknowledge(&self) {
        if let Some(streams) = &self.streams {
            streams.acknowledge();
        }
    }

    fn receive_keys(&self, bytes: &[u8]) -> usize {
        let mut echo = Vec::new();
        let mut taken = 0;
        for &byte in bytes {
            if !self.terminal.borrow().has_room() {
                break;
            }
            taken += 1;
            if let Some(number) = self.terminal.borrow_mut().receive(byte, &mut echo) {
                self.signal(number);
            }
        }
        self.send(&echo);
        taken
    }

    /// Waits until all that programs wrote has left the machine, then tells the host how the first
    /// one ended.
    pub async fn finish(&self, how: Ended) {
        let Some(streams) = &self.streams else { return };
        let is_drained = |out: &[Out]| out.iter().all(|out| streams.is_drained(*out)).then_some(());
        self.changed.until(|| is_drained(&[Out::Output, Out::Error, Out::Screen])).await;
        let word = match how {
            Ended::Exited(status) => alloc::format!("exit {status}\n"),
            Ended::Signalled(number) => alloc::format!("signal {number}\n"),
        };
        // A line end first: a predecessor may have written half a word.
        let word = alloc::format!("\n{word}");
        self.changed.until(|| (streams.room(Out::Control) >= word.len() || streams.is_broken()).then_some(())).await;
        streams.write(Out::Control, word.as_bytes(), None, |count| count);
        self.changed.until(|| is_drained(&[Out::Control])).await;
    }

    /// Takes bytes from the line; gives how many. While there is no room the rest is to be left
    /// there.
    pub fn receive(&self, bytes: &[u8]) -> usize {
        let mut echo = Vec::new();
        let mut taken = 0;
        for &byte in bytes {
            if !self.terminal.borrow().has_room() {
                break;
            }
            taken += 1;
            let sorted = self.sorter.borrow_mut().sort(byte);
            match sorted {
                // The terminal is elsewhere.
                Sorted::Terminal(_) if self.streams.is_some() => {}
                Sorted::Terminal(byte) => {
                    if let Some(number) = self.terminal.borrow_mut().receive(byte, &mut echo) {
                        self.signal(number);
                    }
                }
                Sorted::Kept => {}
                Sorted::Request(text) => self.request(Ok(text)),
                Sorted::BadRequest => self.request(Err("the request is too long or no text")),
            }
        }
        self.keep_partial();
        self.send(&echo);
        if taken > 0 {
            self.note_change();
        }
        taken
    }

    /// One request has a place in what survives us; the one that is under way keeps it.
    fn keep_partial(&self) {
        let kept = self.state.get().request;
        let partial = self.sorter.borrow().partial().map(|text| Request::new(Progress::Partial, text));
        let now = match kept.progress {
            Progress::UnderWay => return,
            Progress::None | Progress::Partial => partial.unwrap_or(Request::NONE),
        };
        if now != kept {
            self.change_state(|state| state.request = now);
        }
    }

    /// Waits until the terminal has room for more bytes from the line.
    pub async fn room(&self) {
        self.changed.until(|| self.terminal.borrow().has_room().then_some(())).await;
    }

    /// Takes from the line what `next` gives, until it gives none. Without room in the terminal it
    /// is left there, and the sender waits.
    pub async fn drain(&self, mut next: impl FnMut() -> Option<u8>) {
        loop {
            self.room().await;
            let piece: Vec<u8> = (0..LINE_PIECE_BYTES).map_while(|_| next()).collect();
            if piece.is_empty() {
                return;
            }
            let mut taken = 0;
            while taken < piece.len() {
                taken += self.receive(&piece[taken..]);
                self.room().await;
            }
            runtime::yield_now().await;
        }
    }

    fn request(&self, request: Result<String, &'static str>) {
        let mut requests = self.requests.borrow_mut();
        if requests.len() >= REQUESTS_MAX {
            drop(requests);
            return self.reply(&["error too many requests wait; ask again later"]);
        }
        if let Ok(text) = &request
            && self.state.get().request.progress != Progress::UnderWay
        {
            self.change_state(|state| state.request = Request::new(Progress::UnderWay, text.as_bytes()));
        }
        requests.push_back(request);
        self.requested.changed();
    }

    /// The next control request, or why it is none. [`answered`](Self::answered) follows.
    pub async fn next_request(&self) -> Result<String, &'static str> {
        let request = self.requested.until(|| self.requests.borrow_mut().pop_front()).await;
        let text = request.as_deref().unwrap_or_default().as_bytes();
        self.change_state(|state| state.request = Request::new(Progress::UnderWay, text));
        request
    }

    /// The request that was under way when our predecessor died.
    pub fn unanswered(&self) -> Option<String> {
        let request = self.state.get().request;
        let text = || String::from_utf8_lossy(request.text()).into_owned();
        (request.progress == Progress::UnderWay).then(text)
    }

    /// The request has its answer.
    pub fn answered(&self) {
        self.change_state(|state| state.request = Request::NONE);
        self.keep_partial();
    }

    /// Sends lines on the control channel. They begin at the start of a line, whatever a program
    /// has written.
    pub fn reply(&self, lines: &[&str]) {
        for line in lines {
            let mut bytes = Vec::new();
            if self.streams.is_none() {
                self.terminal.borrow_mut().begin_line(&mut bytes);
            }
            bytes.extend_from_slice(&[crate::control::MARK, b' ']);
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(b"\r\n");
            self.say(&bytes);
        }
    }

    /// Writes text as a program would.
    pub fn print(&self, text: &str) {
        self.output(text.as_bytes());
    }

    /// The line that was typed next, without its end; for the console's own commands. Longer than
    /// 4095 bytes it comes in parts.
    pub async fn next_line(&self) -> String {
        loop {
            if let Ok(bytes) = self.input(crate::input::LINE_MAX, true).await {
                return String::from_utf8_lossy(&bytes).trim().into();
            }
        }
    }

    /// Sends bytes to the terminal. Over the device, what has no room is lost: echo, and words of
    /// ours.
    fn send(&self, bytes: &[u8]) {
        match &self.streams {
            Some(streams) => drop(streams.write(Out::Screen, bytes, None, |count| count)),
            None => self.say(bytes),
        }
    }

    /// To the serial line.
    fn say(&self, bytes: &[u8]) {
        bytes.chunks(8 * PIECE_BYTES).for_each(|piece| (self.outside.write)(piece));
    }

    pub(crate) fn output(&self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE_BYTES) {
            let mut line = Vec::with_capacity(2 * PIECE_BYTES);
            self.terminal.borrow_mut().write(piece, &mut line);
            self.send(&line);
        }
    }

    /// What a program writes at the terminal over the device: as much as there is room for.
    pub(crate) fn show(&self, streams: &Streams, bytes: &[u8], request: Option<Numbered>) -> usize {
        if streams.is_closed(Out::Screen) {
            return bytes.len();
        }
        let count = bytes.len().min(streams.room(Out::Screen) / SHOWN_MAX);
        let mut line = Vec::with_capacity(2 * count);
        self.terminal.borrow_mut().write(&bytes[..count], &mut line);
        streams.write(Out::Screen, &line, request, |_| count);
        count
    }

    /// Bytes for a reader.
    pub(crate) async fn input(&self, wanted: usize, wait: bool) -> Result<Vec<u8>, DescriptionError> {
        loop {
            let readable = self.terminal.borrow().readable(wanted);
            let seen = self.changes.get();
            let change = || (self.changes.get() != seen).then_some(());
            match readable {
                Readable::Now => break,
                _ if !wait && self.terminal.borrow().available() > 0 => break,
                _ if !wait => return Err(DescriptionError::WouldBlock),
                Readable::Wait => self.changed.until(change).await,
                Readable::Within { limit_ns } => {
                    if runtime::timeout(limit_ns, self.changed.until(change)).await.is_err() {
                        break;
                    }
                }
            }
        }
        let bytes = self.terminal.borrow_mut().take(wanted);
        self.note_change();
        self.look();
        Ok(bytes)
    }

    fn note_change(&self) {
        self.changes.set(self.changes.get().wrapping_add(1));
        self.changed.changed();
        self.waiting.borrow_mut().retain_mut(|waiting| {
            let found = waiting.watched.at_change(self.ready(waiting.id, u32::MAX));
            if found != 0 {
                // A client with a full event queue is told `Lost` by its own side and polls again.
                let _ = waiting.events.ready(waiting.id, found);
            }
            found == 0
        });
    }

    pub(crate) fn ready(&self, id: DescriptionId, mask: u32) -> u32 {
        match (self.stream(id), &self.streams) {
            (Ok(Stream::Input), Some(streams)) => {
                let ended = if streams.input_ended() { ready::HANGUP } else { 0 };
                let held = if streams.input_held() > 0 { ready::READ } else { 0 };
                (ended | held) & (mask | ready::HANGUP)
            }
            (Ok(Stream::Output(out)), Some(streams)) => {
                let room = if streams.room(out) > 0 { ready::WRITE } else { 0 };
                let is_over = streams.is_closed(out) || streams.is_broken();
                let closed = if is_over { ready::WRITE | ready::ERROR } else { 0 };
                (closed | room) & (mask | ready::ERROR)
            }
            _ => self.terminal_ready(mask),
        }
    }

    fn terminal_ready(&self, mask: u32) -> u32 {
        let terminal = self.terminal.borrow();
        let read = if terminal.polls_readable() { ready::READ } else { 0 };
        let is_full = self.streams.as_ref().is_some_and(|streams| {
            // Where nobody takes it, a write ends at once.
            let is_full = streams.room(Out::Screen) < SHOWN_MAX;
            is_full && !streams.is_closed(Out::Screen) && !streams.is_broken()
        });
        let write = if terminal.is_stopped() || is_full { 0 } else { ready::WRITE };
        (read | write) & mask
    }

    pub(crate) fn change_state(&self, change: impl FnOnce(&mut Kept)) {
        let mut state = self.state.get();
        change(&mut state);
        self.state.set(state);
        (self.outside.keep)(&state);
    }

    fn signal(&self, number: u8) {
        match &self.streams {
            Some(streams) => streams.raise(number),
            None => self.signals.set(self.signals.get() | 1 << number),
        }
        self.signalled.changed();
    }

    /// The next signal, and whether to the first program alone.
    fn next_signal(&self) -> Option<(u8, bool)> {
        if let Some(streams) = &self.streams {
            return streams.next_signal();
        }
        let number = self.signals.get().checked_ilog2()?;
        self.signals.set(self.signals.get() & !(1 << number));
        Some((number as u8, false))
    }

    /// Sends signals to the foreground group, for ever. A task of its own: the process server may
    /// be slow, restarting or gone.
    pub async fn send_signals(self: Rc<Self>) {
        loop {
            let signal = self.signalled.until(|| self.next_signal()).await;
            self.send_signal(signal).await;
            // Not before, or it would be lost with us; so it may be sent twice.
            if let Some(streams) = &self.streams {
                streams.signal_sent(signal);
            }
        }
    }

    async fn send_signal(&self, (number, first): (u8, bool)) {
        let target = if first { Target::Process(FIRST) } else { Target::Group(self.state.get().foreground) };
        let Some(process) = (self.outside.process)() else {
            return runtime::log!("signal {number} is lost: no channel to the process server");
        };
        // However long that takes: the process server may still be starting, or be started again.
        if let Err(error) = process.signal(target, number).await {
            runtime::log!("signal {number} for {target:?} is lost: {error:?}");
        }
    }

    pub(crate) fn set_terminal(&self, image: &[u8], flush_input: bool) -> Result<(), DescriptionError> {
        let settings = Settings::from_image(image).ok_or(DescriptionError::Invalid)?;
        self.terminal.borrow_mut().set(settings, flush_input);
        self.change_state(|state| state.settings = settings);
        self.note_change();
        Ok(())
    }

    pub(crate) fn set_window(&self, rows: u16, columns: u16) {
        let before = self.state.get();
        // First: who finds the size changed already signals nothing.
        if (before.rows, before.columns) != (rows, columns) {
            self.signal(signal::WINDOW);
        }
        self.change_state(|state| (state.rows, state.columns) = (rows, columns));
    }
}
