//! What programs send to `/dev/log` (syslog(3)), as lines for the machine's log: messages of a
//! datagram socket, or a stream in which each ends with a zero or a new line.
//!
//! Invariants: no line is longer than [`LINE_MAX`] bytes; of a stream no more than that is kept.

use alloc::string::String;
use alloc::vec::Vec;

/// Bytes of a line; the log has room for these and for whose they are. What is longer is cut.
pub const LINE_MAX: usize = 400;
/// Lines taken of what is sent at once; the rest is left out.
const LINES_MAX: usize = 64;

/// What a socket has sent of a line that has not ended.
#[derive(Debug, Default)]
pub struct Unended(Vec<u8>);

impl Unended {
    /// Takes what was sent, and gives the lines that ended with it; a message ends all it has.
    pub fn take(&mut self, sent: &[u8], is_message: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let mut pieces = sent.split(|byte| matches!(byte, 0 | b'\n')).peekable();
        while let Some(piece) = pieces.next() {
            let room = LINE_MAX.saturating_sub(self.0.len());
            self.0.extend_from_slice(&piece[..piece.len().min(room)]);
            if is_message || pieces.peek().is_some() {
                lines.extend(self.end().filter(|_| lines.len() < LINES_MAX));
            }
        }
        lines
    }

    /// The line ends here, if there is one.
    pub fn end(&mut self) -> Option<String> {
        let bytes = core::mem::take(&mut self.0);
        let text = String::from_utf8_lossy(without_priority(&bytes)).trim().into();
        Some(text).filter(|text: &String| !text.is_empty())
    }
}

/// Takes the `<PRI>` off (RFC 3164, section 4.1.1).
fn without_priority(line: &[u8]) -> &[u8] {
    let Some(rest) = line.strip_prefix(b"<") else { return line };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if (1..=3).contains(&digits) && rest.get(digits) == Some(&b'>') { &rest[digits + 1..] } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_priority_is_taken_off_and_nothing_else() {
        let told = |message: &[u8]| Unended::default().take(message, true);
        assert_eq!(told(b"<30>Nov 24 16:10:22 nginx: ready\n"), ["Nov 24 16:10:22 nginx: ready"]);
        assert_eq!(told(b"<7>a\0<191>b"), ["a", "b"]);
        for line in ["<>x", "<1234>x", "<12x", "<1", "30>x", "<a>x"] {
            assert_eq!(told(line.as_bytes()), [line]);
        }
        assert_eq!((told(b""), told(b"\n\0\n"), told(b"<13>")), (vec![], vec![], vec![]));
        assert_eq!(told(b"<13>f\xfcr"), ["f\u{fffd}r"]);
    }

    #[test]
    fn a_stream_is_lines_however_it_is_cut() {
        let sent = b"<13>one\n<14>two words\0\0<15>three";
        for cut in 0..sent.len() {
            let mut unended = Unended::default();
            let mut lines = unended.take(&sent[..cut], false);
            lines.extend(unended.take(&sent[cut..], false));
            lines.extend(unended.end());
            assert_eq!(lines, ["one", "two words", "three"], "cut at {cut}");
            assert_eq!(unended.end(), None);
        }
    }

    #[test]
    fn nobody_fills_the_servers_memory() {
        let mut unended = Unended::default();
        for _ in 0..10 {
            assert!(unended.take(&[b'x'; 1000], false).is_empty());
        }
        assert_eq!(unended.take(b"\n", false), ["x".repeat(LINE_MAX)]);
        assert_eq!(unended.take(&b"x\n".repeat(10_000), false).len(), LINES_MAX);
        // A character that is cut is none.
        let long = [&[b'x'; LINE_MAX - 1][..], "ü".as_bytes()].concat();
        assert!(unended.take(&long, true)[0].ends_with("x\u{fffd}"));
    }
}
