//! Who writes a line of the log, and how much of it is taken.
//!
//! Invariants: a domain's name is given when it is made, by whoever holds the core, or is its
//! maker's; it is text without spaces and colons, so that no line `pelago: NAME: ...` can look like
//! one of the kernel's or of another domain. What a domain writes beyond its rate is dropped and
//! counted until it has paused; the count is told before its next line that is taken, or when it
//! ends.

use crate::hardware;
use core::cell::Cell;
use core::fmt;

/// What a domain may write without a pause: the longest report that a test prints, several times.
const BURST_BYTES: u64 = 64 << 10;
/// What it may write for long.
const BYTES_PER_SECOND: u64 = 16 << 10;
const NS_PER_BYTE: u64 = 1_000_000_000 / BYTES_PER_SECOND;
/// Most lines of a call: each has the name in front.
const LINES_MAX: usize = 8;
/// What a line has besides its text and name: `pelago: `, `: ` and its end.
const FRAME_BYTES: usize = 11;

/// A domain's name.
#[derive(Clone, Copy)]
pub struct Name([u8; Name::BYTES_MAX]);

impl Name {
    /// As long as the names that start pages carry.
    pub const BYTES_MAX: usize = 32;

    /// A name of ASCII without spaces, control characters and colons; `None` for anything else.
    pub fn new(text: &[u8]) -> Option<Name> {
        let mut bytes = [0; Name::BYTES_MAX];
        let is_plain = !text.is_empty() && text.iter().all(|byte| byte.is_ascii_graphic() && *byte != b':');
        bytes.get_mut(..text.len()).filter(|_| is_plain)?.copy_from_slice(text);
        Some(Name(bytes))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        let bytes = self.0.iter().position(|byte| *byte == 0).map_or(&self.0[..], |end| &self.0[..end]);
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

/// A domain as one who writes into the log.
pub struct Writer {
    name: Name,
    /// When what it has written will have been paid for, at its rate.
    paid_at_ns: Cell<u64>,
    dropped: Cell<u64>,
}

impl Writer {
    /// One who has written nothing.
    pub fn new(name: Name) -> Writer {
        Writer { name, paid_at_ns: Cell::new(0), dropped: Cell::new(0) }
    }

    /// Its name.
    pub fn name(&self) -> Name {
        self.name
    }

    /// Writes the lines of `text`, each with the name in front, or drops them all.
    pub fn write(&self, text: &[u8]) {
        let own = self.name.as_str();
        let bytes: usize = lines(text).map(|line| line.len() + own.len() + FRAME_BYTES).sum();
        let now_ns = hardware::now_ns();
        let paid_at_ns = self.paid_at_ns.get().max(now_ns).saturating_add(bytes as u64 * NS_PER_BYTE);
        // Who was too fast has half a burst again before it is heard: so counts come seldom.
        let burst_bytes = if self.dropped.get() > 0 { BURST_BYTES / 2 } else { BURST_BYTES };
        if paid_at_ns - now_ns > burst_bytes * NS_PER_BYTE {
            self.dropped.set(self.dropped.get() + 1);
            return;
        }
        self.paid_at_ns.set(paid_at_ns);
        self.tell_dropped();
        for line in lines(text) {
            hardware::write_line(format_args!("pelago: {own}: {}", Printable(line)));
        }
    }

    /// Says how much was dropped since this was said last.
    pub fn tell_dropped(&self) {
        let dropped = self.dropped.take();
        if dropped > 0 {
            let (own, rate) = (self.name.as_str(), BYTES_PER_SECOND >> 10);
            hardware::write_line(format_args!(
                "pelago: {dropped} messages of {own} were dropped: it writes more than {rate} KiB a second"
            ));
        }
    }
}

/// The lines of `text` without ends; further ones are control characters of the last.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = text.iter().rposition(|byte| *byte != b'\n').map_or(0, |last| last + 1);
    text[..end].splitn(LINES_MAX, |byte| *byte == b'\n')
}

/// Text as it goes to a terminal that obeys nobody but the console: control characters, but for
/// tabs, and what is no UTF-8 are written as escapes.
pub struct Printable<'a>(pub &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                if character.is_control() && character != '\t' {
                    write!(to, "\\x{:02x}", u32::from(character))?;
                } else {
                    fmt::Write::write_char(to, character)?;
                }
            }
            write!(to, "{}", chunk.invalid().escape_ascii())?;
        }
        Ok(())
    }
}
