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

use contracts::descriptions::*;
use contracts::process::{ProcessClient, Target};
use runtime::Watch;

use crate::control::{Sorted, Sorter};
use crate::record::{Kept, Progress, Request};
use crate::settings::Settings;
use crate::terminal::{Readable, Terminal, signal};

/// The terminal's only description.
pub const TERMINAL: DescriptionId = 1;
/// Output bytes processed at once; a tab may become eight, and the kernel takes 4096.
const PIECE_BYTES: usize = 512;
/// Requests that may wait for the one under way.
const REQUESTS_MAX: usize = 8;
/// A signal that `process` does not take within this is given up.
const SIGNAL_LIMIT_NS: u64 = 1_000_000_000;

/// Writes bytes, at most 4096 at once.
pub type Writer = Box<dyn Fn(&[u8])>;

/// What the console does to the world.
pub struct Outside {
    /// The serial line.
    pub write: Writer,
    /// Keeps the state for the next start.
    pub keep: Box<dyn Fn(&Kept)>,
    /// The process server, if it is wired.
    pub process: Box<dyn Fn() -> Option<ProcessClient>>,
}

pub(crate) struct Waiting {
    pub events: DescriptionsEvents,
    pub mask: u32,
}

/// See the module's head.
pub struct Console {
    outside: Outside,
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
            self.terminal.borrow_mut().begin_line(&mut bytes);
            bytes.extend_from_slice(&[crate::control::MARK, b' ']);
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(b"\r\n");
            self.send(&bytes);
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

    fn send(&self, bytes: &[u8]) {
        bytes.chunks(8 * PIECE_BYTES).for_each(|piece| (self.outside.write)(piece));
    }

    pub(crate) fn output(&self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE_BYTES) {
            let mut line = Vec::with_capacity(2 * PIECE_BYTES);
            self.terminal.borrow_mut().write(piece, &mut line);
            self.send(&line);
        }
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
        Ok(bytes)
    }

    fn note_change(&self) {
        self.changes.set(self.changes.get().wrapping_add(1));
        self.changed.changed();
        self.waiting.borrow_mut().retain(|waiting| {
            let found = self.ready(waiting.mask);
            if found != 0 {
                // A client with a full event queue is told `Lost` by its own side and polls again.
                let _ = waiting.events.ready(TERMINAL, found);
            }
            found == 0
        });
    }

    pub(crate) fn ready(&self, mask: u32) -> u32 {
        let terminal = self.terminal.borrow();
        let read = if terminal.polls_readable() { ready::READ } else { 0 };
        let write = if terminal.is_stopped() { 0 } else { ready::WRITE };
        (read | write) & mask
    }

    pub(crate) fn change_state(&self, change: impl FnOnce(&mut Kept)) {
        let mut state = self.state.get();
        change(&mut state);
        self.state.set(state);
        (self.outside.keep)(&state);
    }

    fn signal(&self, number: u8) {
        self.signals.set(self.signals.get() | 1 << number);
        self.signalled.changed();
    }

    /// Sends signals to the foreground group, for ever. A task of its own: the process server may
    /// be slow, restarting or gone.
    pub async fn send_signals(self: Rc<Self>) {
        loop {
            let number = self.signalled.until(|| self.signals.get().checked_ilog2()).await;
            self.signals.set(self.signals.get() & !(1 << number));
            let group = self.state.get().foreground;
            let Some(process) = (self.outside.process)() else {
                runtime::log!("signal {number} is lost: no channel to the process server");
                continue;
            };
            match runtime::timeout(SIGNAL_LIMIT_NS, process.signal(Target::Group(group), number as u8)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => runtime::log!("signal {number} for group {group} is lost: {error:?}"),
                Err(_) => {
                    runtime::log!("signal {number} for group {group} is lost: the process server does not answer")
                }
            }
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
        self.change_state(|state| (state.rows, state.columns) = (rows, columns));
        if (before.rows, before.columns) != (rows, columns) {
            self.signal(signal::WINDOW);
        }
    }
}
