//! The writer of a line of the log, and the limit of its rate.
//!
//! Invariants: a domain gets its name when it is made, from a holder of the core, or has its
//! maker's; the name is text without spaces and colons, so that no line `pelago: NAME: ...` can
//! look like one of the kernel's or of another domain. A domain has a part of the log of its own,
//! or shares that of another: all forks of a program share one. The log drops and counts what is
//! written beyond a part's rate until there was a pause; it tells the count before the next line
//! that it takes, or when one of the part's domains ends, once a second at most.

use crate::hardware;
use core::cell::Cell;
use core::fmt;

/// What a part of the log takes without a pause: the longest report that a test prints, several
/// times.
const BURST_BYTES: u64 = 64 << 10;
/// What it takes for long.
const BYTES_PER_SECOND: u64 = 16 << 10;
const NS_PER_BYTE: u64 = SECOND_NS / BYTES_PER_SECOND;
/// What a line of a program costs at least: 8 at once and 2 a second are enough to be told what it
/// lacks.
const PROGRAM_LINE_BYTES: usize = 8 << 10;
const SECOND_NS: u64 = 1_000_000_000;
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
    /// Which part it has.
    part: Cell<usize>,
}

impl Writer {
    /// One who has no part yet.
    pub fn new(name: Name) -> Writer {
        Writer { name, part: Cell::new(0) }
    }

    /// Its name.
    pub fn name(&self) -> Name {
        self.name
    }

    /// Begins a part of its own.
    pub fn begin(&self, parts: &mut LogParts, is_program: bool) {
        self.part.set(parts.begin(self.name, is_program));
    }

    /// Shares the part of `other`, who has not ended, instead of its own.
    pub fn share(&self, other: &Writer, parts: &mut LogParts) {
        self.end(parts);
        self.part.set(other.part.get());
        parts.0[other.part.get()].domains += 1;
    }

    /// Writes no more.
    pub fn end(&self, parts: &mut LogParts) {
        let part = &mut parts.0[self.part.get()];
        assert!(part.domains > 0, "more domains end than share this part");
        part.domains -= 1;
        if part.domains == 0 || hardware::now_ns() >= part.told_ns.saturating_add(SECOND_NS) {
            part.tell_dropped();
        }
    }

    /// Writes the lines of `text`, each with the name in front, or drops them all.
    pub fn write(&self, parts: &mut LogParts, text: &[u8]) {
        let own = self.name.as_str();
        let part = &mut parts.0[self.part.get()];
        if !part.pay(lines(text).map(|line| line.len() + own.len() + FRAME_BYTES)) {
            part.dropped += 1;
            return;
        }
        part.tell_dropped();
        for line in lines(text) {
            hardware::write_line(format_args!("pelago: {own}: {}", Printable(line)));
        }
    }
}

/// What one domain writes, or a program and all its forks together.
#[derive(Clone, Copy)]
struct Part {
    /// Of whom it was begun for.
    name: Name,
    is_program: bool,
    /// How many have it; none: it is free.
    domains: u32,
    /// When what was written will have been paid for, at its rate.
    paid_at_ns: u64,
    dropped: u64,
    /// When the count was told last.
    told_ns: u64,
}

impl Part {
    const FREE: Part =
        Part { name: Name([0; Name::BYTES_MAX]), is_program: false, domains: 0, paid_at_ns: 0, dropped: 0, told_ns: 0 };

    /// Pays for lines so long, unless there were too many.
    fn pay(&mut self, lines: impl Iterator<Item = usize>) -> bool {
        let least = if self.is_program { PROGRAM_LINE_BYTES } else { 0 };
        // Who was too fast is heard again, however many lines it says at once.
        let bytes = lines.map(|bytes| bytes.max(least)).sum::<usize>().min(BURST_BYTES as usize / 2);
        let now_ns = hardware::now_ns();
        let paid_at_ns = self.paid_at_ns.max(now_ns).saturating_add(bytes as u64 * NS_PER_BYTE);
        // Who was too fast has half a burst again before it is heard: so counts come seldom.
        let burst_bytes = if self.dropped > 0 { BURST_BYTES / 2 } else { BURST_BYTES };
        let pays = paid_at_ns - now_ns <= burst_bytes * NS_PER_BYTE;
        if pays {
            self.paid_at_ns = paid_at_ns;
        }
        pays
    }

    /// Says how much was dropped since this was said last.
    fn tell_dropped(&mut self) {
        let dropped = core::mem::take(&mut self.dropped);
        if dropped == 0 {
            return;
        }
        self.told_ns = hardware::now_ns();
        let own = self.name.as_str();
        let (rate, unit) = match self.is_program {
            true => (BYTES_PER_SECOND / PROGRAM_LINE_BYTES as u64, "lines"),
            false => (BYTES_PER_SECOND >> 10, "KiB"),
        };
        hardware::write_line(format_args!(
            "pelago: {dropped} messages of {own} were dropped: it writes more than {rate} {unit} a second"
        ));
    }
}

/// The parts that domains of this core have.
pub struct LogParts([Part; LogParts::COUNT]);

impl LogParts {
    /// More than a core has components: all forks of a program have one part.
    const COUNT: usize = 32;

    /// Nobody has any.
    pub(crate) const fn new() -> LogParts {
        LogParts([Part::FREE; LogParts::COUNT])
    }

    /// Begins one. The last is for all for whom none is free.
    fn begin(&mut self, name: Name, is_program: bool) -> usize {
        let free = self.0.iter().position(|part| part.domains == 0);
        if let Some(index) = free {
            self.0[index] = Part { name, is_program, ..Part::FREE };
        }
        let index = free.unwrap_or(LogParts::COUNT - 1);
        self.0[index].domains += 1;
        index
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
