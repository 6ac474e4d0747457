//! What opens an encrypted disk: the bytes of a file, as cryptsetup's `--key-file` has it, or a
//! passphrase that is typed.

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::SignalFd;
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// As cryptsetup has it for the files of keys.
const BYTES_MAX: u64 = 8 << 20;
/// A person has so long to type.
const TYPING: Timespec = Timespec { tv_sec: 300, tv_nsec: 0 };
/// The terminal of this run, wherever its streams lead.
const TERMINAL: &str = "/dev/tty";
/// How a typed passphrase is asked for in the option.
const TYPED: &str = "-";

/// Where a key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// All bytes of a file; a line end is one of them.
    File(PathBuf),
    /// A line that is typed, without its end.
    Typed,
}

impl KeySource {
    /// Of what stands behind `key=`.
    pub fn new(text: &str) -> KeySource {
        if text == TYPED { KeySource::Typed } else { KeySource::File(text.into()) }
    }

    /// Whether it can be had, before anything is asked of a person.
    pub fn check(&self) -> Result<()> {
        match self {
            KeySource::File(path) => check(path),
            KeySource::Typed => File::options()
                .read(true)
                .write(true)
                .open(TERMINAL)
                .map(drop)
                .context("there is no terminal to ask for a passphrase; name a file with the key instead: key=FILE"),
        }
    }

    /// The key; one of a new disk is typed twice.
    pub fn read(&self, disk: &Path, is_new: bool) -> Result<Zeroizing<Vec<u8>>> {
        match self {
            KeySource::File(path) => read(path),
            KeySource::Typed => {
                let terminal = || File::options().read(true).write(true).open(TERMINAL).context("there is no terminal");
                ask(&terminal()?, &format!("{}", disk.display()), is_new)
            }
        }
    }

    /// In words.
    pub fn name(&self) -> String {
        match self {
            KeySource::File(path) => format!("the key {}", path.display()),
            KeySource::Typed => "this passphrase".into(),
        }
    }
}

fn check(path: &Path) -> Result<()> {
    let problem = || format!("the key {} cannot be read; name a file with the key", path.display());
    let data = path.metadata().with_context(problem)?;
    ensure!(data.is_file(), "the key {} is no file; name a file with the key", path.display());
    let bytes = data.len();
    ensure!((1..=BYTES_MAX).contains(&bytes), "the key {} has {bytes} bytes; 1 to 8 MiB can be one", path.display());
    File::open(path).with_context(problem).map(drop)
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    // Room for all at once: a vector that grows leaves copies behind.
    let mut key = Zeroizing::new(Vec::with_capacity(path.metadata().map_or(0, |data| data.len()) as usize + 1));
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut key));
    read.with_context(|| format!("the key {} cannot be read", path.display()))?;
    Ok(key)
}

/// Asks at a terminal, which does not show what is typed. A signal that comes meanwhile has its
/// effect when the terminal is as it was.
fn ask(terminal: &File, disk: &str, is_new: bool) -> Result<Zeroizing<Vec<u8>>> {
    let mut all = SigSet::empty();
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT].into_iter().for_each(|signal| all.add(signal));
    let before = all.thread_swap_mask(SigmaskHow::SIG_BLOCK).context("cannot hold signals")?;
    let signals = SignalFd::new(&all).context("cannot take signals")?;
    let typed = ask_silently(terminal, signals.as_fd(), disk, is_new);
    before.thread_set_mask().context("cannot let signals go")?;
    typed
}

fn ask_silently(terminal: &File, signals: BorrowedFd, disk: &str, is_new: bool) -> Result<Zeroizing<Vec<u8>>> {
    let before = tcgetattr(terminal).context(UNUSABLE)?;
    let mut silent = before.clone();
    silent.local_flags.remove(LocalFlags::ECHO);
    silent.local_flags.insert(LocalFlags::ECHONL);
    tcsetattr(terminal, SetArg::TCSAFLUSH, &silent).context(UNUSABLE)?;
    let typed = typed(terminal, signals, disk, is_new);
    tcsetattr(terminal, SetArg::TCSAFLUSH, &before).context(UNUSABLE)?;
    typed
}

const UNUSABLE: &str = "the terminal cannot be used";

fn typed(terminal: &File, signals: BorrowedFd, disk: &str, is_new: bool) -> Result<Zeroizing<Vec<u8>>> {
    // A terminal gives a line at a time, so nothing that was typed waits here unread.
    let mut lines = BufReader::new(terminal);
    let mut line = |words: &str| -> Result<Zeroizing<Vec<u8>>> {
        { terminal }.write_all(words.as_bytes()).context(UNUSABLE)?;
        await_line(terminal, signals)?;
        let mut line = Zeroizing::new(Vec::with_capacity(4096));
        lines.read_until(b'\n', &mut line).context(UNUSABLE)?;
        line.pop_if(|end| *end == b'\n');
        Ok(line)
    };
    let first = line(&format!("Passphrase for {disk}: "))?;
    ensure!(!first.is_empty(), "no passphrase was typed");
    if is_new && line("The same again: ")? != first {
        bail!("the two passphrases differ; nothing was made");
    }
    Ok(first)
}

/// Waits until a line was typed.
fn await_line(terminal: &File, signals: BorrowedFd) -> Result<()> {
    let mut both = [PollFd::new(terminal, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
    let ready = poll(&mut both, Some(&TYPING)).context(UNUSABLE)?;
    ensure!(both[1].revents().is_empty(), "interrupted while a passphrase was asked for");
    ensure!(ready > 0, "nobody typed a passphrase for five minutes");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;

    /// What is typed at a terminal in answer to what is asked, and all that it shows.
    fn talk(is_new: bool, answers: &[&str]) -> (Result<Vec<u8>>, String) {
        let pair = openpty(None, None).unwrap();
        let (mut person, terminal) = (File::from(pair.master), File::from(pair.slave));
        let again = terminal.try_clone().unwrap();
        let asking = std::thread::spawn(move || ask(&terminal, "a.img", is_new));
        let mut shown = String::new();
        for answer in answers {
            let mut bytes = [0; 256];
            while !shown.ends_with(": ") {
                let count = person.read(&mut bytes).unwrap();
                shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            shown.push('|');
            person.write_all(format!("{answer}\n").as_bytes()).unwrap();
        }
        let typed = asking.join().unwrap().map(|key| key.to_vec());
        assert!(tcgetattr(&again).unwrap().local_flags.contains(LocalFlags::ECHO), "the terminal stays silent");
        (typed, shown)
    }

    #[test]
    fn a_passphrase_is_asked_for_and_not_shown() {
        let (key, shown) = talk(false, &["correct horse"]);
        assert_eq!(key.unwrap(), b"correct horse");
        assert_eq!(shown, "Passphrase for a.img: |");
        let (key, shown) = talk(true, &["correct horse", "correct horse"]);
        assert_eq!(key.unwrap(), b"correct horse");
        assert!(shown.contains("The same again: |") && !shown.contains("horse"), "{shown}");
        assert!(talk(true, &["correct horse", "correct house"]).0.unwrap_err().to_string().contains("differ"));
        assert!(talk(false, &[""]).0.unwrap_err().to_string().contains("no passphrase"));
    }

    /// A person who presses Ctrl-C gets a terminal back that shows what is typed.
    #[test]
    fn a_signal_ends_the_question_and_not_the_terminal() {
        let pair = openpty(None, None).unwrap();
        let terminal = File::from(pair.slave);
        let (came, mut sent) = std::io::pipe().unwrap();
        sent.write_all(b"a signal").unwrap();
        let why = ask_silently(&terminal, came.as_fd(), "a.img", false).unwrap_err();
        assert!(why.to_string().contains("interrupted"), "{why}");
        assert!(tcgetattr(&terminal).unwrap().local_flags.contains(LocalFlags::ECHO), "the terminal stays silent");
    }

    #[test]
    fn all_bytes_of_a_file_are_the_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"secret\n\0").unwrap();
        let source = KeySource::new(&file.path().display().to_string());
        source.check().unwrap();
        assert_eq!(source.read(Path::new("a.img"), true).unwrap()[..], b"secret\n\0"[..]);
        assert_eq!(KeySource::new("-"), KeySource::Typed);
    }
}
