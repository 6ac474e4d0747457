//! The line discipline: editing, echo, signals, stop and start, between a serial line and the
//! programs that read it.
//!
//! Follows termios(3) and what Linux does where termios leaves it open. Invariant: whatever bytes
//! and settings come, in whatever order, nothing here panics and no queue passes the bounds of
//! [`crate::input`]. Deliberately missing: parity, flow control towards the sender.

use alloc::vec::Vec;

use crate::input::Input;
use crate::output::{Output, advance};
use crate::settings::{Settings, character, input, local};

/// Signals that typing or a new window size send to the foreground group.
pub mod signal {
    /// Ctrl-C.
    pub const INTERRUPT: u8 = 2;
    /// Ctrl-\.
    pub const QUIT: u8 = 3;
    /// Ctrl-Z.
    pub const STOP: u8 = 20;
    /// The window has another size.
    pub const WINDOW: u8 = 28;
}

/// Tenths of a second, of VTIME.
const TENTH_NS: u64 = 100_000_000;

/// What a read can do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    /// Take what is there, be it nothing.
    Now,
    /// Wait for more.
    Wait,
    /// Wait for more, but no longer than this; then take what is there.
    Within {
        /// From now.
        limit_ns: u64,
    },
}

/// See the module's head.
#[derive(Debug, Default)]
pub struct Terminal {
    settings: Settings,
    input: Input,
    output: Output,
    /// Column at which the line being edited began.
    start_column: usize,
    /// The next byte is to be taken as it is.
    literal: bool,
    stopped: bool,
}

impl Terminal {
    /// Settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the settings.
    pub fn set(&mut self, settings: Settings, flush_input: bool) {
        let was_canonical = self.canonical();
        self.settings = settings;
        if flush_input {
            self.input.flush();
        }
        if was_canonical != self.canonical() {
            self.input.change_mode(self.canonical());
        }
        self.literal = false;
        if !settings.on_input(input::STOP_AND_START) {
            self.stopped = false;
        }
    }

    /// Room for more bytes from the line?
    pub fn has_room(&self) -> bool {
        self.input.has_room()
    }

    /// Do programs have to wait with their output (Ctrl-S)?
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Begins a new line, if a program or echo has begun one.
    pub fn begin_line(&mut self, line: &mut Vec<u8>) {
        self.output.begin_line(line);
    }

    /// A program's output, on its way to `line`.
    pub fn write(&mut self, bytes: &[u8], line: &mut Vec<u8>) {
        self.output.write(&self.settings, bytes, line);
    }

    /// Bytes that a read gives at most now.
    pub fn available(&self) -> usize {
        self.input.available(self.canonical()).unwrap_or(0)
    }

    /// What a read of `wanted` bytes can do now (termios: canonical mode, or the four cases of MIN
    /// and TIME).
    pub fn readable(&self, wanted: usize) -> Readable {
        let Some(held) = self.input.available(self.canonical()) else { return Readable::Wait };
        if self.canonical() || wanted == 0 {
            return Readable::Now;
        }
        let (minimum, tenths) = self.minimum_and_time();
        let needed = if minimum == 0 { usize::from(tenths != 0) } else { minimum.min(wanted) };
        match (held >= needed, tenths) {
            (true, _) => Readable::Now,
            // With a minimum, time runs from the first byte on.
            (false, tenths @ 1..) if minimum == 0 || held > 0 => Readable::Within { limit_ns: tenths * TENTH_NS },
            _ => Readable::Wait,
        }
    }

    /// Would poll(2) call it readable?
    pub fn polls_readable(&self) -> bool {
        let (minimum, tenths) = self.minimum_and_time();
        let needed = if self.canonical() || tenths != 0 { 0 } else { minimum };
        match self.input.available(self.canonical()) {
            Some(held) => self.canonical() || held >= needed.max(1),
            None => false,
        }
    }

    /// Moves at most `wanted` bytes out.
    pub fn take(&mut self, wanted: usize) -> Vec<u8> {
        self.input.take(wanted, self.canonical())
    }

    fn canonical(&self) -> bool {
        self.settings.on_local(local::CANONICAL)
    }

    fn minimum_and_time(&self) -> (usize, u64) {
        let characters = &self.settings.characters;
        (characters[character::MINIMUM].into(), characters[character::TIME].into())
    }

    /// A byte from the line. Echo is appended to `line`; gives the signal it means, if any.
    pub fn receive(&mut self, byte: u8, line: &mut Vec<u8>) -> Option<u8> {
        let settings = self.settings;
        let byte = if settings.on_input(input::STRIP_TO_7_BITS) { byte & 0x7f } else { byte };
        if core::mem::take(&mut self.literal) {
            self.plain(byte, line);
            return None;
        }
        if self.stops_or_starts(byte) {
            return None;
        }
        if let Some(number) = self.signal_of(byte) {
            self.echo(byte, line);
            self.stopped = false;
            if !settings.on_local(local::KEEP_ON_SIGNAL) {
                self.input.flush();
            }
            return Some(number);
        }
        let byte = match byte {
            b'\r' if settings.on_input(input::IGNORE_RETURN) => return None,
            b'\r' if settings.on_input(input::RETURN_TO_NEWLINE) => b'\n',
            b'\n' if settings.on_input(input::NEWLINE_TO_RETURN) => b'\r',
            byte => byte,
        };
        if self.canonical() {
            self.edit(byte, line);
        } else {
            self.plain(byte, line);
        }
        None
    }

    fn stops_or_starts(&mut self, byte: u8) -> bool {
        let settings = &self.settings;
        if !settings.on_input(input::STOP_AND_START) {
            return false;
        }
        if settings.is(character::START, byte) {
            self.stopped = false;
            return true;
        }
        if settings.is(character::STOP, byte) {
            self.stopped = true;
            return true;
        }
        if settings.on_input(input::ANY_STARTS) {
            self.stopped = false;
        }
        false
    }

    fn signal_of(&self, byte: u8) -> Option<u8> {
        if !self.settings.on_local(local::SIGNALS) {
            return None;
        }
        let table = [
            (character::INTERRUPT, signal::INTERRUPT),
            (character::QUIT, signal::QUIT),
            (character::SUSPEND, signal::STOP),
        ];
        table.into_iter().find(|(index, _)| self.settings.is(*index, byte)).map(|(_, number)| number)
    }

    /// A byte of canonical mode.
    fn edit(&mut self, byte: u8, line: &mut Vec<u8>) {
        let settings = self.settings;
        let extended = settings.on_local(local::EXTENDED);
        let is = |index| settings.is(index, byte);
        if byte == b'\n' || is(character::END_OF_LINE) || extended && is(character::END_OF_LINE_2) {
            if self.input.end_line(Some(byte)) {
                self.echo(byte, line);
            }
        } else if is(character::END_OF_FILE) {
            self.input.end_line(None);
        } else if is(character::ERASE) {
            self.erase(self.last_character(), line);
        } else if is(character::KILL) {
            self.kill(line);
        } else if extended && is(character::WORD_ERASE) {
            self.erase(self.last_word(), line);
        } else if extended && is(character::REPRINT) {
            self.reprint(byte, line);
        } else if extended && is(character::LITERAL_NEXT) {
            self.literal = true;
            if settings.on_local(local::ECHO) {
                self.write(b"^\x08", line);
            }
        } else {
            self.plain(byte, line);
        }
    }

    /// A byte that means itself.
    fn plain(&mut self, byte: u8, line: &mut Vec<u8>) {
        let taken = if self.canonical() {
            if self.input.edited().is_empty() {
                self.start_column = self.output.column();
            }
            self.input.edit(byte)
        } else {
            self.input.raw(byte)
        };
        if taken {
            self.echo(byte, line);
        } else if self.settings.on_input(input::BELL_WHEN_FULL) {
            line.push(b'\x07');
        }
    }

    fn echo(&mut self, byte: u8, line: &mut Vec<u8>) {
        let settings = self.settings;
        if !settings.on_local(local::ECHO) {
            if byte == b'\n' && settings.on_local(local::ECHO_NEWLINE) && self.canonical() {
                self.write(b"\n", line);
            }
            return;
        }
        if self.shows_as_two(byte) {
            self.write(&[b'^', byte ^ 0x40], line);
        } else {
            self.write(&[byte], line);
        }
    }

    fn shows_as_two(&self, byte: u8) -> bool {
        byte.is_ascii_control() && byte != b'\n' && byte != b'\t' && self.settings.on_local(local::ECHO_CONTROL)
    }

    /// Column after the line being edited, if nothing else was written since it began.
    fn edited_column(&self) -> usize {
        let after = |column, byte: &u8| if self.shows_as_two(*byte) { column + 2 } else { advance(column, *byte) };
        self.input.edited().iter().fold(self.start_column, after)
    }

    /// Bytes of the last character being edited.
    fn last_character(&self) -> usize {
        let edited = self.input.edited();
        let continues = |byte: &&u8| self.settings.on_input(input::UTF8) && (0x80..0xc0).contains(*byte);
        let parts = edited.iter().rev().take_while(continues).count();
        (parts + 1).min(edited.len())
    }

    /// Bytes of the last word being edited, with what follows it.
    fn last_word(&self) -> usize {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
        let edited = self.input.edited();
        let gap = edited.iter().rev().take_while(|byte| !is_word(**byte)).count();
        gap + edited[..edited.len() - gap].iter().rev().take_while(|byte| is_word(**byte)).count()
    }

    /// Takes the last `bytes` of the line being edited back, on the screen too.
    fn erase(&mut self, bytes: usize, line: &mut Vec<u8>) {
        let before = self.edited_column();
        let erased = (0..bytes).filter_map(|_| self.input.unedit()).last();
        let columns = before.saturating_sub(self.edited_column());
        let Some(erased) = erased.filter(|_| self.settings.on_local(local::ECHO)) else { return };
        if self.settings.on_local(local::ECHO_ERASE) {
            (0..columns).for_each(|_| self.write(b"\x08 \x08", line));
        } else {
            self.echo(erased, line);
        }
    }

    fn kill(&mut self, line: &mut Vec<u8>) {
        let settings = self.settings;
        let all = self.input.edited().len();
        if settings.on_local(local::ECHO_KILL_ERASES) && settings.on_local(local::ECHO_ERASE) {
            return self.erase(all, line);
        }
        while self.input.unedit().is_some() {}
        self.echo(settings.characters[character::KILL], line);
        if settings.on_local(local::ECHO_KILL) {
            self.echo(b'\n', line);
        }
    }

    fn reprint(&mut self, byte: u8, line: &mut Vec<u8>) {
        self.echo(byte, line);
        self.echo(b'\n', line);
        self.start_column = self.output.column();
        let edited = self.input.edited().to_vec();
        edited.into_iter().for_each(|byte| self.echo(byte, line));
    }
}
