//! The guest's standard streams: a socket each to a port of its console device, and this process's
//! own streams at the other end, byte for byte.
//!
//! Ports, as `lib/virtio/src/ports.rs` has them: control, standard input, output, error, and the
//! terminal, which is whatever of the three is one here. On the control port go lines: to the
//! guest `key DIGITS` (what the guest needs of an encrypted disk, first of all), `end COUNT`
//! (standard input has that many bytes), `closed-output`, `closed-error`,
//! `closed-screen`, `signal-foreground N`, `signal-first N`, `window ROWS COLUMNS`; from it
//! `exit N` or `signal N`, last, when all that programs wrote has been taken.

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use zeroize::Zeroizing;

/// Ports of the device, from 1 on: control, input, output, error, terminal.
pub const PORTS: usize = 5;
const PIECE_BYTES: usize = 64 << 10;
/// So many interrupts that the program did not end by end the machine.
const INTERRUPTS_MAX: u32 = 3;
/// What shells have for a death by signal.
const BY_SIGNAL: u8 = 128;

/// Our ends, before the guest runs.
pub struct Streams {
    ours: [UnixStream; PORTS],
    /// The emulator's; to be dropped when it has them.
    theirs: Vec<OwnedFd>,
}

/// Streams of a guest that no person uses.
pub struct Unattended {
    /// The emulator's ends, one for each port.
    pub theirs: Vec<OwnedFd>,
    /// What the first program reads.
    pub input: UnixStream,
    /// What programs write: output and errors.
    pub written: Vec<UnixStream>,
    /// To be kept open as long as the emulator runs.
    pub rest: Vec<UnixStream>,
}

/// Which of the standard streams are terminals here.
pub fn terminals() -> [bool; 3] {
    [std::io::stdin().is_terminal(), std::io::stdout().is_terminal(), std::io::stderr().is_terminal()]
}

/// Rows and columns of the terminal's window; zeros if there is none.
pub fn window() -> (u16, u16) {
    let size = rustix::termios::tcgetwinsize(std::io::stdin())
        .or_else(|_| rustix::termios::tcgetwinsize(std::io::stdout()))
        .or_else(|_| rustix::termios::tcgetwinsize(std::io::stderr()));
    size.map_or((0, 0), |size| (size.ws_row, size.ws_col))
}

/// Has the signals that are the program's wait for [`Running`]. In the main thread, before others
/// start.
pub fn hold_signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGWINCH]
        .into_iter()
        .for_each(|signal| set.add(signal));
    set.thread_block().context("cannot hold signals")?;
    SignalFd::new(&set).context("cannot take signals")
}

impl Streams {
    /// A socket for each port.
    pub fn open() -> Result<Streams> {
        let mut theirs = Vec::new();
        let mut pair = || -> Result<UnixStream> {
            let (ours, other) = UnixStream::pair().context("cannot make a socket")?;
            theirs.push(other.into());
            Ok(ours)
        };
        let ours = [pair()?, pair()?, pair()?, pair()?, pair()?];
        Ok(Streams { ours, theirs })
    }

    /// Has every program that is started inherit the emulator's ends; their numbers, for its
    /// command line.
    pub fn inherited(&self) -> Result<Vec<i32>> {
        let inherit = |end: &OwnedFd| {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::empty())).context("cannot pass a socket on")?;
            Ok(end.as_raw_fd())
        };
        self.theirs.iter().map(inherit).collect()
    }

    /// Nobody carries them.
    pub fn unattended(self) -> Unattended {
        let [control, input, output, error, terminal] = self.ours;
        Unattended { theirs: self.theirs, input, written: vec![output, error], rest: vec![control, terminal] }
    }

    /// Tells the guest a key, before all else. It goes this way only: it is in no archive, command
    /// line or log.
    pub fn tell_key(&mut self, key: &[u8]) -> Result<()> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut line = Zeroizing::new(Vec::with_capacity(2 * key.len() + 8));
        line.extend_from_slice(b"key ");
        line.extend(key.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| DIGITS[usize::from(digit)]));
        line.push(b'\n');
        self.ours[0].write_all(&line).context("the key cannot be handed to the guest")
    }

    /// Begins to carry: the emulator runs. Signals of `signals` go to the program, or, without one,
    /// end the machine by `stop`; so does the escape sequence.
    pub fn run(
        self,
        signals: SignalFd,
        has_program: bool,
        stop: impl Fn(&str, u8) + Send + Sync + 'static,
    ) -> Result<Running> {
        drop(self.theirs);
        let stop = Arc::new(stop);
        let [control, input, output, error, terminal] = self.ours;
        let [stdin, stdout, stderr] = terminals();
        let words = Words(Arc::new(Mutex::new(control.try_clone().context("cannot share a socket")?)));
        let status = std::thread::spawn(move || ending(control));
        let mut outputs = Vec::new();
        let copy = |fd: std::os::fd::BorrowedFd<'_>| -> Result<File> {
            Ok(File::from(fd.try_clone_to_owned().context("cannot share a standard stream")?))
        };
        outputs.push(carry_out(output, copy(std::io::stdout().as_fd())?, words.clone(), "closed-output"));
        outputs.push(carry_out(error, copy(std::io::stderr().as_fd())?, words.clone(), "closed-error"));
        let screen = match (stdout, stderr) {
            (true, _) => copy(std::io::stdout().as_fd())?,
            (false, true) => copy(std::io::stderr().as_fd())?,
            (false, false) => copy(std::io::stdin().as_fd())?,
        };
        let keys = terminal.try_clone().context("cannot share a socket")?;
        outputs.push(carry_out(terminal, screen, words.clone(), "closed-screen"));
        let from = copy(std::io::stdin().as_fd())?;
        // The emulator drops what it has not read yet when the other end goes.
        let open = input.try_clone().context("cannot share a socket")?;
        let (said, ended) = (words.clone(), stop.clone());
        if stdin {
            std::thread::spawn(move || {
                type_keys(from, keys, || ended("the machine is switched off", BY_SIGNAL + Signal::SIGTERM as u8));
                said.say(&format!("signal-first {}", Signal::SIGHUP as i32));
            });
        } else {
            std::thread::spawn(move || said.say(&format!("end {}", carry_in(from, input))));
        }
        std::thread::spawn(move || pass_signals(&signals, &words, has_program, &*stop));
        Ok(Running { outputs, status, _open: open })
    }
}

/// The streams of a guest that runs.
pub struct Running {
    outputs: Vec<JoinHandle<()>>,
    status: JoinHandle<Option<u8>>,
    _open: UnixStream,
}

impl Running {
    /// Waits until all that left the guest is where it belongs. Gives the program's status, unless
    /// the machine ended without the program. The emulator has ended.
    pub fn finish(self) -> Option<u8> {
        self.outputs.into_iter().for_each(|output| drop(output.join()));
        self.status.join().ok().flatten()
    }
}

/// Says lines on the control port.
#[derive(Clone)]
struct Words(Arc<Mutex<UnixStream>>);

impl Words {
    /// Fails only when the guest is gone.
    fn say(&self, line: &str) {
        if let Ok(mut control) = self.0.lock() {
            let _ = control.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// How the program ended.
fn ending(control: UnixStream) -> Option<u8> {
    let mut status = None;
    for line in BufReader::new(control).lines().map_while(std::io::Result::ok) {
        status = status_of(&line).or(status);
    }
    status
}

fn status_of(line: &str) -> Option<u8> {
    match line.split_once(' ')? {
        ("exit", number) => number.parse().ok(),
        ("signal", number) => number.parse().ok().map(|number: u8| number.wrapping_add(BY_SIGNAL)),
        _ => None,
    }
}

/// What comes from the guest, to a stream of ours. When nobody takes it any more, the guest is
/// told; what is on its way then is dropped.
fn carry_out(mut from: UnixStream, mut to: File, words: Words, closed: &'static str) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut bytes = vec![0; PIECE_BYTES];
        let mut is_closed = false;
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if !is_closed && to.write_all(&bytes[..count]).is_err() {
                is_closed = true;
                words.say(closed);
            }
        }
    })
}

/// Standard input, to the guest; gives how many bytes there were.
fn carry_in(mut from: File, mut to: UnixStream) -> u64 {
    let mut bytes = vec![0; PIECE_BYTES];
    let mut all = 0;
    loop {
        match from.read(&mut bytes) {
            Ok(count @ 1..) if to.write_all(&bytes[..count]).is_ok() => all += count as u64,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => return all,
        }
    }
}

/// Keys, to the guest, until the terminal is gone or somebody types the escape sequence.
fn type_keys(mut from: File, mut to: UnixStream, escape: impl Fn()) {
    let mut bytes = [0; 4096];
    let mut escapes = Escape::default();
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let (keys, is_over) = escapes.pass(&bytes[..count]);
        if to.write_all(&keys).is_err() {
            return;
        }
        if is_over {
            return escape();
        }
    }
}

fn pass_signals(signals: &SignalFd, words: &Words, has_program: bool, stop: &(impl Fn(&str, u8) + ?Sized)) {
    let mut interrupts = 0;
    while let Ok(Some(signal)) = signals.read_signal() {
        let Ok(signal) = Signal::try_from(signal.ssi_signo as i32) else { continue };
        if signal == Signal::SIGWINCH {
            let (rows, columns) = window();
            words.say(&format!("window {rows} {columns}"));
            continue;
        }
        interrupts += u32::from(matches!(signal, Signal::SIGINT | Signal::SIGTERM));
        if !has_program || interrupts >= INTERRUPTS_MAX {
            stop("interrupted; the machine is switched off", BY_SIGNAL + signal as u8);
        }
        // As a terminal does and as a shell does: a key is the foreground's, the rest the
        // program's.
        let whom = if matches!(signal, Signal::SIGINT | Signal::SIGQUIT) { "foreground" } else { "first" };
        words.say(&format!("signal-{whom} {}", signal as i32));
    }
}

/// The escape sequence, as ssh has it: `~.` at the start of a line ends the machine, `~~` there is
/// one tilde.
#[derive(Default)]
struct Escape {
    in_line: bool,
    tilde: bool,
}

impl Escape {
    /// The keys that are the guest's, and whether the sequence was typed behind them.
    fn pass(&mut self, keys: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(keys.len() + 1);
        for &key in keys {
            match (std::mem::take(&mut self.tilde), key) {
                (true, b'.') => return (passed, true),
                (false, b'~') if !self.in_line => {
                    self.tilde = true;
                    continue;
                }
                (true, key) if key != b'~' => passed.extend([b'~', key]),
                (_, key) => passed.push(key),
            }
            self.in_line = !matches!(key, b'\r' | b'\n' | 3 | 4);
        }
        (passed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_escape_sequence_is_found_at_the_start_of_a_line() {
        let pass = |pieces: &[&str]| {
            let mut escape = Escape::default();
            let mut all = Vec::new();
            let over = pieces.iter().any(|piece| {
                let (passed, over) = escape.pass(piece.as_bytes());
                all.extend(passed);
                over
            });
            (String::from_utf8(all).unwrap(), over)
        };
        assert_eq!(pass(&["ls ~.\r", "~", "."]), ("ls ~.\r".into(), true));
        assert_eq!(pass(&["~~.\r~x"]), ("~.\r~x".into(), false));
        assert_eq!(pass(&["~."]), (String::new(), true));
    }

    #[test]
    fn statuses_are_those_of_a_shell() {
        assert_eq!(status_of("exit 255"), Some(255));
        assert_eq!(status_of("signal 15"), Some(143));
        assert_eq!([status_of("exi"), status_of(""), status_of("exit 256")], [None; 3]);
    }
}
