//! Control lines: requests of the host tool that share the serial line with the terminal and never reach a program.
//!
//! A line that begins with [`MARK`] is a request; answers are lines that begin with it too, the last of them `ok ...` or `error ...`.

use alloc::string::String;
use alloc::vec::Vec;

use contracts::supervisor::Chaos;

/// Begins a control line, in both directions.
pub const MARK: u8 = 0x1e;
/// Longest request; a longer one is answered with an error.
pub const REQUEST_MAX: usize = 256;
/// Longest component name (abi's name fields hold 31 bytes).
const NAME_MAX: usize = 31;
/// Ends input on the host's side without ending a line there.
const END_OF_INPUT: u8 = 4;

/// The commands, for people.
pub const HELP: [&str; 4] = [
    "components                    what runs, and where",
    "chaos kill|hang|fault NAME    break a component and see it come back",
    "poweroff                      end the machine",
    "help                          this list",
];

/// What a byte from the line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sorted {
    /// Input for programs.
    Terminal(u8),
    /// Part of a request.
    Kept,
    /// The last byte of a request; here it is, without its mark.
    Request(String),
    /// The last byte of a request that is too long or no text.
    BadRequest,
}

/// Sorts the line's bytes.
#[derive(Debug, Default)]
pub struct Sorter {
    /// Not at the start of a line.
    inside: bool,
    /// A request so far: at most `REQUEST_MAX` + 1 bytes.
    request: Option<Vec<u8>>,
}

impl Sorter {
    /// Takes the next byte.
    pub fn sort(&mut self, byte: u8) -> Sorted {
        let ends_line = matches!(byte, b'\n' | b'\r');
        let Some(request) = &mut self.request else {
            if byte == MARK && !self.inside {
                self.request = Some(Vec::new());
                return Sorted::Kept;
            }
            self.inside = !ends_line && byte != END_OF_INPUT;
            return Sorted::Terminal(byte);
        };
        if !ends_line {
            if request.len() <= REQUEST_MAX {
                request.push(byte);
            }
            return Sorted::Kept;
        }
        let request = self.request.take().unwrap_or_default();
        match String::from_utf8(request) {
            Ok(text) if text.len() <= REQUEST_MAX => Sorted::Request(text),
            _ => Sorted::BadRequest,
        }
    }
}

/// A request, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The list of commands.
    Help,
    /// The list of components.
    Components,
    /// Break a component.
    Chaos(Chaos, String),
    /// End the machine.
    PowerOff,
}

impl Command {
    /// Understands a line; the error says what to type instead.
    pub fn parse(line: &str) -> Result<Command, &'static str> {
        let mut words = line.split_ascii_whitespace();
        let command = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("help"), None, ..) => Command::Help,
            (Some("components"), None, ..) => Command::Components,
            (Some("poweroff"), None, ..) => Command::PowerOff,
            (Some("chaos"), Some(what), Some(name), None) => Command::Chaos(chaos(what)?, component_name(name)?),
            (Some("chaos"), ..) => return Err("chaos needs what and whom: chaos kill|hang|fault NAME"),
            _ => return Err("no such command; help lists them"),
        };
        Ok(command)
    }
}

fn chaos(word: &str) -> Result<Chaos, &'static str> {
    match word {
        "kill" => Ok(Chaos::Kill),
        "hang" => Ok(Chaos::Hang),
        "fault" => Ok(Chaos::Fault),
        _ => Err("chaos can kill, hang or fault a component"),
    }
}

fn component_name(word: &str) -> Result<String, &'static str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    if word.len() <= NAME_MAX && word.bytes().all(plain) {
        Ok(word.into())
    } else {
        Err("no component has such a name; components lists them")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(bytes: &[u8]) -> (Vec<u8>, Vec<Sorted>) {
        let (mut sorter, mut terminal, mut others) = (Sorter::default(), Vec::new(), Vec::new());
        for &byte in bytes {
            match sorter.sort(byte) {
                Sorted::Terminal(byte) => terminal.push(byte),
                Sorted::Kept => {}
                other => others.push(other),
            }
        }
        (terminal, others)
    }

    #[test]
    fn requests_never_reach_the_terminal() {
        let (terminal, requests) = sorted(b"ls\n\x1e chaos kill ip\nx\x1ey\n\x04\x1e components\n");
        assert_eq!(terminal, b"ls\nx\x1ey\n\x04");
        assert_eq!(requests, [Sorted::Request(" chaos kill ip".into()), Sorted::Request(" components".into())]);
    }

    #[test]
    fn a_long_or_senseless_request_is_bounded() {
        let mut long = alloc::vec![b'x'; 100_000];
        long.insert(0, MARK);
        long.push(b'\n');
        assert_eq!(sorted(&long), (Vec::new(), alloc::vec![Sorted::BadRequest]));
        assert_eq!(sorted(b"\x1e\xff\n").1, [Sorted::BadRequest]);
    }

    #[test]
    fn commands_are_understood_or_explained() {
        assert_eq!(Command::parse("  chaos  kill virtio-net "), Ok(Command::Chaos(Chaos::Kill, "virtio-net".into())));
        assert_eq!(Command::parse("components"), Ok(Command::Components));
        for wrong in ["", "chaos", "chaos kill", "chaos eat ip", "chaos kill a b", "chaos kill a;b", "components x"] {
            assert!(Command::parse(wrong).is_err(), "{wrong}");
        }
    }
}
