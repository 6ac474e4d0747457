//! Control lines: requests of the host tool that share the serial line with the terminal and never
//! reach a program.
//!
//! [`MARK`] begins a request wherever it comes, also in the middle of a line that is being typed;
//! the request ends with its line end and what was typed before and after it joins again. The host
//! tool sends a request in one piece and never sends MARK for a key (no key but Ctrl-^ makes it).
//! Answers are lines that begin with MARK too, the last of them `ok ...` or `error ...`.

use alloc::string::String;
use alloc::vec::Vec;

use contracts::supervisor::Chaos;

/// Begins a control line, in both directions.
pub const MARK: u8 = 0x1e;
/// Longest request; a longer one is answered with an error.
pub const REQUEST_MAX: usize = 256;
/// Longest component name (abi's name fields hold 31 bytes).
const NAME_MAX: usize = 31;

/// The commands, for people.
pub const HELP: [&str; 9] = [
    "components [-d]               what runs, and where; -d: each dispatcher (a program of several cores has one for each core)",
    "cores                         what each core runs and for whom, its time and memory, and its kernel's objects",
    "acct                          where each core's time went, and who paid for what each domain ran",
    "core N halt|run               halt a core that has no components, or start it again",
    "chaos kill|hang|block|fault|worker NAME  break a component, or its workers, and wait until it serves again",
    "chaos HOW NAME then HOW NAME MS   break two, the second MS milliseconds after the first",
    "names CONTRACT                who serves a contract, nearest first, and what this core's name cache did",
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
    /// A request so far: at most `REQUEST_MAX` + 1 bytes.
    request: Option<Vec<u8>>,
}

impl Sorter {
    /// One in the middle of a request, as [`partial`](Self::partial) gave it.
    pub fn resumed(partial: &[u8]) -> Sorter {
        Sorter { request: Some(partial.into()) }
    }

    /// The request that has begun and not ended.
    pub fn partial(&self) -> Option<&[u8]> {
        self.request.as_deref()
    }

    /// Takes the next byte.
    pub fn sort(&mut self, byte: u8) -> Sorted {
        if byte == MARK {
            // Within a request it begins anew: who sent the first one gave up.
            self.request = Some(Vec::new());
            return Sorted::Kept;
        }
        let Some(request) = &mut self.request else { return Sorted::Terminal(byte) };
        if !matches!(byte, b'\n' | b'\r') {
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

/// Longest pause between two that are broken.
const PAIR_MS_MAX: u64 = 1000;

/// A request, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The list of commands.
    Help,
    /// The list of components, or of all their dispatchers.
    Components {
        /// A line per dispatcher.
        dispatchers: bool,
    },
    /// Break a component.
    Chaos(Chaos, String),
    /// Break two, the second so many milliseconds after the first, and do not wait for that.
    Pair([(Chaos, String); 2], u64),
    /// The list of cores.
    Cores,
    /// Where each core's time went, and who paid.
    Accounts,
    /// Who serves a contract.
    Names(String),
    /// Start a core, or halt it.
    ChangeCore(u32, bool),
    /// End the machine.
    PowerOff,
}

impl Command {
    /// Understands a line; the error says what to type instead.
    pub fn parse(line: &str) -> Result<Command, &'static str> {
        let mut words = line.split_ascii_whitespace();
        let command = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("help"), None, ..) => Command::Help,
            (Some("components"), None, ..) => Command::Components { dispatchers: false },
            (Some("components"), Some("-d"), None, _) => Command::Components { dispatchers: true },
            (Some("components"), ..) => return Err("components takes -d, for a line per dispatcher, or nothing"),
            (Some("poweroff"), None, ..) => Command::PowerOff,
            (Some("cores"), None, ..) => Command::Cores,
            (Some("acct"), None, ..) => Command::Accounts,
            (Some("names"), Some(contract), None, _) => Command::Names(contract_name(contract)?),
            (Some("names"), ..) => return Err("names needs whose: names CONTRACT"),
            (Some("core"), Some(core), Some(what), None) => Command::ChangeCore(core_number(core)?, runs(what)?),
            (Some("core"), ..) => return Err("core needs which and what: core N halt|run"),
            (Some("chaos"), Some(what), Some(name), None) => Command::Chaos(chaos(what)?, component_name(name)?),
            (Some("chaos"), Some(what), Some(name), Some("then")) => {
                let first = (chaos(what)?, component_name(name)?);
                let (Some(what), Some(name), Some(ms), None) = (words.next(), words.next(), words.next(), words.next())
                else {
                    return Err("two are broken by: chaos HOW NAME then HOW NAME MILLISECONDS");
                };
                let ms = ms.parse().ok().filter(|ms| *ms <= PAIR_MS_MAX).ok_or("that is no pause of 0 to 1000 ms")?;
                Command::Pair([first, (chaos(what)?, component_name(name)?)], ms)
            }
            (Some("chaos"), ..) => return Err("chaos needs what and whom: chaos kill|hang|block|fault|worker NAME"),
            _ => return Err("no such command; help lists them"),
        };
        Ok(command)
    }
}

fn core_number(word: &str) -> Result<u32, &'static str> {
    word.parse().map_err(|_| "a core is a number; cores lists them")
}

fn runs(word: &str) -> Result<bool, &'static str> {
    match word {
        "run" => Ok(true),
        "halt" => Ok(false),
        _ => Err("a core can halt or run"),
    }
}

fn chaos(word: &str) -> Result<Chaos, &'static str> {
    match word {
        "kill" => Ok(Chaos::Kill),
        "hang" => Ok(Chaos::Hang),
        "block" => Ok(Chaos::Block),
        "fault" => Ok(Chaos::Fault),
        "worker" => Ok(Chaos::Worker),
        _ => Err("chaos can kill, hang, block or fault a component, or hang its workers: worker"),
    }
}

fn component_name(word: &str) -> Result<String, &'static str> {
    if is_name(word) { Ok(word.into()) } else { Err("no component has such a name; components lists them") }
}

fn contract_name(word: &str) -> Result<String, &'static str> {
    if is_name(word) { Ok(word.into()) } else { Err("no contract has such a name; contracts/ lists them") }
}

fn is_name(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    word.len() <= NAME_MAX && word.bytes().all(plain)
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
        let (terminal, requests) = sorted(b"ls\n\x1e chaos kill ip\nx\x1e help\ny\n\x04\x1e lost\x1e components\n");
        assert_eq!(terminal, b"ls\nxy\n\x04");
        let expected = [" chaos kill ip", " help", " components"].map(|text| Sorted::Request(text.into()));
        assert_eq!(requests, expected);
    }

    #[test]
    fn a_request_goes_on_after_a_restart() {
        let text = b"\x1e chaos kill console\n";
        for cut in 1..text.len() {
            let mut first = Sorter::default();
            assert!(text[..cut].iter().all(|byte| first.sort(*byte) == Sorted::Kept));
            let mut second = Sorter::resumed(first.partial().unwrap());
            let last = text[cut..].iter().map(|byte| second.sort(*byte)).last();
            assert_eq!(last, Some(Sorted::Request(" chaos kill console".into())), "{cut}");
            assert_eq!(second.partial(), None);
        }
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
        assert_eq!(Command::parse("components"), Ok(Command::Components { dispatchers: false }));
        assert_eq!(Command::parse(" components  -d "), Ok(Command::Components { dispatchers: true }));
        assert_eq!(Command::parse("acct"), Ok(Command::Accounts));
        assert_eq!(Command::parse("help"), Ok(Command::Help));
        assert_eq!(Command::parse("chaos worker disk"), Ok(Command::Chaos(Chaos::Worker, "disk".into())));
        for (wrong, remedy) in [
            ("names", "names CONTRACT"),
            ("core 1", "core N halt|run"),
            ("chaos kill", "chaos kill|hang|block|fault|worker NAME"),
            ("help me", "help lists them"),
        ] {
            assert!(Command::parse(wrong).is_err_and(|reason| reason.ends_with(remedy)), "{wrong}");
        }
        assert_eq!(Command::parse("names crew"), Ok(Command::Names("crew".into())));
        assert_eq!(Command::parse("core 3 halt"), Ok(Command::ChangeCore(3, false)));
        assert_eq!(Command::parse("core 12 run"), Ok(Command::ChangeCore(12, true)));
        let pair = [(Chaos::Kill, "ip".into()), (Chaos::Hang, "names".into())];
        assert_eq!(Command::parse("chaos kill ip then hang names 7"), Ok(Command::Pair(pair, 7)));
        for wrong in [
            "chaos kill ip then",
            "chaos kill ip then hang names",
            "chaos kill ip then hang names -1",
            "chaos kill ip then hang names 1001",
            "chaos kill ip then hang names 1 2",
            "chaos kill ip and hang names 1",
            "core",
            "core 1",
            "core x halt",
            "core -1 run",
            "core 1 stop",
            "core 1 run now",
            "cores 1",
            "acct 1",
            "",
            "chaos",
            "chaos kill",
            "chaos eat ip",
            "chaos kill a b",
            "chaos kill a;b",
            "names",
            "names a b",
            "names a;b",
            "components x",
            "components -D",
            "components -d x",
            "components -d -d x",
        ] {
            assert!(Command::parse(wrong).is_err(), "{wrong}");
        }
    }
}
