//! What a program writes, as it goes to the line: new lines, tabs, and where the cursor is.

use alloc::vec::Vec;

use crate::settings::{Settings, output};

/// Columns from one tab stop to the next.
const TAB: usize = 8;

/// Where the line stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    column: usize,
    /// Nothing was written since the last line end. At first that is not known: kernel or
    /// predecessor may have left a line half written.
    fresh: bool,
}

/// Column after `byte` at `column`. Parts of a UTF-8 character after its first byte take no room;
/// every character counts as one wide.
pub fn advance(column: usize, byte: u8) -> usize {
    match byte {
        b'\r' => 0,
        b'\x08' => column.saturating_sub(1),
        b'\t' => column.saturating_add(TAB) / TAB * TAB,
        0..0x20 | 0x7f | 0x80..0xc0 => column,
        _ => column.saturating_add(1),
    }
}

impl Output {
    /// Column of the cursor, from 0, on a line without end.
    pub fn column(&self) -> usize {
        self.column
    }

    /// Appends `bytes` to `line` as the settings want them; at most [`TAB`] bytes for each.
    pub fn write(&mut self, settings: &Settings, bytes: &[u8], line: &mut Vec<u8>) {
        for &byte in bytes {
            if settings.on_output(output::PROCESS) {
                self.processed(settings, byte, line);
            } else {
                self.put(byte, line);
            }
        }
    }

    /// Begins a new line, if the cursor is not at the start of one.
    pub fn begin_line(&mut self, line: &mut Vec<u8>) {
        if !self.fresh {
            self.put(b'\r', line);
            self.put(b'\n', line);
        }
    }

    fn processed(&mut self, settings: &Settings, byte: u8, line: &mut Vec<u8>) {
        match byte {
            b'\n' => {
                if settings.on_output(output::NEWLINE_TO_RETURN_NEWLINE) {
                    self.put(b'\r', line);
                }
                self.put(b'\n', line);
                if settings.on_output(output::NEWLINE_RETURNS) {
                    self.column = 0;
                }
            }
            b'\r' if settings.on_output(output::NO_RETURN_AT_COLUMN_0) && self.column == 0 => {}
            b'\r' if settings.on_output(output::RETURN_TO_NEWLINE) => self.put(b'\n', line),
            b'\t' if settings.output & output::EXPAND_TABS == output::EXPAND_TABS => {
                let spaces = advance(self.column, b'\t') - self.column;
                (0..spaces).for_each(|_| self.put(b' ', line));
            }
            _ => self.put(byte, line),
        }
    }

    fn put(&mut self, byte: u8, line: &mut Vec<u8>) {
        line.push(byte);
        self.column = advance(self.column, byte);
        // The host leaves returns out before it looks how a line begins.
        self.fresh = byte == b'\n' || self.fresh && byte == b'\r';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(settings: &Settings, text: &str) -> (Vec<u8>, Output) {
        let (mut output, mut line) = (Output::default(), Vec::new());
        output.write(settings, text.as_bytes(), &mut line);
        (line, output)
    }

    #[test]
    fn new_lines_return_and_columns_are_known() {
        let (line, output) = written(&Settings::default(), "a\tbä\x08\nxy");
        assert_eq!(line, "a\tbä\x08\r\nxy".as_bytes());
        assert_eq!(output.column(), 2);
        let begun = |text| {
            let (mut output, mut line) = (written(&Settings::default(), text).1, Vec::new());
            output.begin_line(&mut line);
            line
        };
        assert_eq!(
            [begun(""), begun("x\n"), begun("x\n\r"), begun("x"), begun("x\r")].map(|line| line.len()),
            [2, 0, 0, 2, 2],
            "what a predecessor left at the terminal is not known"
        );
        let column = |text| written(&Settings::default(), text).1.column();
        assert_eq!([column("a\tbä"), column("abc\x08\x08"), column("a\x08\x08b")], [10, 1, 1]);
    }

    #[test]
    fn raw_output_is_as_written() {
        let raw = Settings { output: 0, ..Settings::default() };
        assert_eq!(written(&raw, "a\n\r\t").0, b"a\n\r\t");
        let old = Settings { output: output::PROCESS | output::RETURN_TO_NEWLINE | output::EXPAND_TABS, ..raw };
        assert_eq!(written(&old, "a\tb\rc").0, b"a       b\nc");
        let quiet = Settings { output: output::PROCESS | output::NO_RETURN_AT_COLUMN_0, ..raw };
        assert_eq!(written(&quiet, "\ra\r").0, b"a\r");
    }
}
