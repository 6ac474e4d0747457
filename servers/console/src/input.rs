//! What was typed and not yet read: the line being edited, and what a read can have.
//!
//! Invariants: at most [`PENDING_MAX`] entries wait for readers and at most [`LINE_MAX`] bytes are
//! being edited; what would be more is refused (`false`). In canonical mode a read gives at most
//! one line; an end of file is given once, when a reader comes to it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Longest line that can be edited, as Linux's (its 4096 hold the line end too).
pub const LINE_MAX: usize = 4095;
/// Entries that wait for readers: bytes and ends of file.
pub const PENDING_MAX: usize = 16 << 10;

/// A byte that waits, or an end of file where `byte` is `None`.
#[derive(Clone, Copy, Debug)]
struct Entry {
    byte: Option<u8>,
    ends_line: bool,
}

/// See the module's head.
#[derive(Debug, Default)]
pub struct Input {
    pending: VecDeque<Entry>,
    edited: Vec<u8>,
}

impl Input {
    /// The line being edited.
    pub fn edited(&self) -> &[u8] {
        &self.edited
    }

    /// Is there room for whatever byte comes next? While there is not, the serial line is left
    /// unread and the sender waits.
    pub fn has_room(&self) -> bool {
        self.pending.len() + LINE_MAX < PENDING_MAX
    }

    /// Adds to the line being edited.
    pub fn edit(&mut self, byte: u8) -> bool {
        let room = self.edited.len() < LINE_MAX;
        if room {
            self.edited.push(byte);
        }
        room
    }

    /// Takes the last byte of the line being edited back.
    pub fn unedit(&mut self) -> Option<u8> {
        self.edited.pop()
    }

    /// Ends the line being edited, with its last byte or, at an end of file, without.
    pub fn end_line(&mut self, last: Option<u8>) -> bool {
        if self.pending.len() + self.edited.len() >= PENDING_MAX {
            return false;
        }
        self.pending.extend(self.edited.drain(..).map(|byte| Entry { byte: Some(byte), ends_line: false }));
        self.pending.push_back(Entry { byte: last, ends_line: true });
        true
    }

    /// Hands a byte to readers at once.
    pub fn raw(&mut self, byte: u8) -> bool {
        let room = self.pending.len() < PENDING_MAX;
        if room {
            self.pending.push_back(Entry { byte: Some(byte), ends_line: false });
        }
        room
    }

    /// Discards all that was typed.
    pub fn flush(&mut self) {
        self.pending.clear();
        self.edited.clear();
    }

    /// The mode changed. What is being edited becomes readable in raw mode; what raw mode left
    /// counts as a line in canonical mode.
    pub fn change_mode(&mut self, canonical: bool) {
        if canonical {
            if let Some(last) = self.pending.back_mut() {
                last.ends_line = true;
            }
        } else {
            self.pending.retain(|entry| entry.byte.is_some());
            self.pending.iter_mut().for_each(|entry| entry.ends_line = false);
            let room = PENDING_MAX - self.pending.len();
            let edited = core::mem::take(&mut self.edited);
            self.pending.extend(edited.into_iter().take(room).map(|byte| Entry { byte: Some(byte), ends_line: false }));
        }
    }

    /// Bytes of the first line (canonical), or all (raw); `None` in canonical mode without a whole
    /// line.
    pub fn available(&self, canonical: bool) -> Option<usize> {
        if !canonical {
            return Some(self.pending.len());
        }
        let end = self.pending.iter().position(|entry| entry.ends_line)?;
        Some(end + usize::from(self.pending[end].byte.is_some()))
    }

    /// Moves up to `wanted` bytes out: of the first line, or raw. Empty: end of file, or nothing
    /// there.
    pub fn take(&mut self, wanted: usize, canonical: bool) -> Vec<u8> {
        let mut taken = Vec::new();
        while taken.len() < wanted {
            let Some(entry) = self.pending.pop_front() else { break };
            taken.extend(entry.byte);
            if canonical && entry.ends_line {
                return taken;
            }
        }
        // A line that ended with an end of file is over with its last byte, not with an empty read
        // after it.
        if !taken.is_empty() && self.pending.front().is_some_and(|entry| entry.byte.is_none()) {
            self.pending.pop_front();
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &[u8], last: Option<u8>) -> Input {
        let mut input = Input::default();
        assert!(text.iter().all(|byte| input.edit(*byte)) && input.end_line(last));
        input
    }

    #[test]
    fn a_read_gives_at_most_a_line() {
        let mut input = typed(b"one", Some(b'\n'));
        assert!(input.edit(b't') && input.end_line(Some(b'\n')) && input.edit(b'x'));
        assert_eq!(input.available(true), Some(4));
        assert_eq!(input.take(2, true), b"on");
        assert_eq!(input.take(9, true), b"e\n");
        assert_eq!(input.take(9, true), b"t\n");
        assert_eq!(input.available(true), None);
        input.change_mode(false);
        assert_eq!(input.take(9, false), b"x");
    }

    #[test]
    fn an_end_of_file_is_given_once() {
        let mut input = typed(b"", None);
        assert_eq!((input.available(true), input.take(9, true).len(), input.available(true)), (Some(0), 0, None));
        let mut input = typed(b"abc", None);
        assert_eq!(input.take(3, true), b"abc");
        assert_eq!(input.available(true), None);
    }

    #[test]
    fn with_room_the_longest_line_can_be_ended() {
        for held in PENDING_MAX - LINE_MAX - 3..PENDING_MAX - LINE_MAX + 3 {
            let mut input = Input::default();
            assert!((0..held).all(|_| input.raw(b'x')));
            let has_room = input.has_room();
            assert!((0..LINE_MAX).all(|_| input.edit(b'y')));
            assert_eq!(input.end_line(Some(b'\n')), has_room, "{held} wait already");
        }
    }

    #[test]
    fn a_change_of_mode_brings_no_more_than_fits() {
        let mut input = Input::default();
        while input.raw(b'x') {}
        input.change_mode(true);
        assert!((0..10).all(|_| input.edit(b'y')));
        input.take(3, true);
        input.change_mode(false);
        assert_eq!(input.available(false), Some(PENDING_MAX));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut input = Input::default();
        while input.raw(b'x') {}
        assert_eq!(input.available(false), Some(PENDING_MAX));
        assert!(!input.end_line(Some(b'\n')));
        input.change_mode(true);
        assert_eq!(input.available(true), Some(PENDING_MAX));
        assert_eq!(input.take(PENDING_MAX * 2, true).len(), PENDING_MAX);
        assert!((0..LINE_MAX).all(|_| input.edit(b'y')) && !input.edit(b'y'));
        assert!(input.end_line(Some(b'\n')));
    }
}
