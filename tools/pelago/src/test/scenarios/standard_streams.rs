//! Tier 3: the program's standard streams, its end and its terminal, by running this very tool
//! between pipes and at a pseudo-terminal.

use crate::host::child;
use crate::host::late::late;
use crate::image::machine_type::MachineType;
use crate::test::scenario::Scenario;
use crate::test::scenarios::cli::read_lines;
use crate::test::scenarios::recovery::content;
use anyhow::{Context, Result, bail, ensure};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::tcgetattr;
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
const LINES_MAX: usize = 16;
const LARGE_BYTES: usize = 64 << 20;
const SMALL_BYTES: usize = 4 << 20;
/// What a shell shows for a death by signal.
const BY_SIGNAL: i32 = 128;
const FIRST_BYTES: usize = 101;
const WINDOW: Winsize = Winsize { ws_row: 41, ws_col: 101, ws_xpixel: 0, ws_ypixel: 0 };

pub fn scenarios() -> Vec<Scenario> {
    let machines =
        [(MachineType::Q35, LARGE_BYTES), (MachineType::Microvm, SMALL_BYTES), (MachineType::MicrovmMmio, SMALL_BYTES)];
    let mut all: Vec<Scenario> = machines
        .map(|(machine, bytes)| {
            Scenario::shared(3, format!("standard-streams/bytes/{}", machine.name()), move |_| whole(machine, bytes))
        })
        .into();
    all.extend(machines.map(|(machine, bytes)| {
        Scenario::shared(3, format!("standard-streams/killed/{}", machine.name()), move |_| killed(machine, bytes))
    }));
    all.push(Scenario::shared(3, "standard-streams/ends".into(), |_| ends()));
    all.push(Scenario::shared(3, "standard-streams/signals".into(), |_| signals()));
    all.push(Scenario::shared(3, "standard-streams/early-signals".into(), |_| early_signals()));
    all.push(Scenario::shared(3, "standard-streams/terminal".into(), |_| terminal()));
    all
}

fn tool(words: &[&str]) -> Result<Command> {
    let mut tool = Command::new(std::env::current_exe().context("cannot find myself")?);
    tool.arg("run").args(["--accel", "tcg"]).args(words).current_dir(crate::host::place::root());
    Ok(tool)
}

/// This tool's `run` between pipes; ended with this value.
struct Piped(Child);

impl Piped {
    fn start(words: &[&str]) -> Result<Piped> {
        let mut tool = tool(words)?;
        tool.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        tool.spawn().map(Piped).context("cannot start the tool")
    }

    /// Hands `input` over and gathers both outputs and the status, within the limit.
    fn talk(mut self, input: Vec<u8>) -> Result<(Vec<u8>, Vec<u8>, i32)> {
        let mut stdin = self.0.stdin.take().context("no input")?;
        // A program that ends before it has read all is right to do so. The first piece is of an
        // odd length, so that no other ends where the guest's buffers do.
        let feeder = std::thread::spawn(move || {
            let (first, rest) = input.split_at(input.len().min(FIRST_BYTES));
            drop(stdin.write_all(first).and_then(|()| stdin.write_all(rest)));
        });
        let (sender, receiver) = channel();
        gather(0, self.0.stdout.take().context("no output")?, sender.clone());
        gather(1, self.0.stderr.take().context("no output")?, sender);
        let mut gathered = [Vec::new(), Vec::new()];
        for _ in 0..2 {
            let (which, bytes) = receiver.recv_timeout(LIMIT).map_err(|_| too_long("the tool's outputs do not end"))?;
            gathered[which] = bytes;
        }
        let status = self.ends()?;
        // It has nobody to write to any more.
        let _ = feeder.join();
        let [output, error] = gathered;
        Ok((output, error, status.context("the tool was killed")?))
    }
}

impl Piped {
    /// The status that it ends with.
    fn ends(&mut self) -> Result<Option<i32>> {
        Ok(child::wait(&mut self.0, "the tool", LIMIT)?.code())
    }

    /// Its output by lines.
    fn lines(&mut self) -> Result<Lines> {
        let (sender, lines) = sync_channel(LINES_MAX);
        read_lines(self.0.stdout.take().context("no output")?, sender);
        Ok(Lines(lines))
    }
}

/// Lines of an output, each waited for within the limit.
struct Lines(Receiver<String>);

impl Lines {
    fn next(&self) -> Result<String> {
        match self.0.recv_timeout(LIMIT) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Disconnected) => bail!("the output ended"),
            Err(RecvTimeoutError::Timeout) => Err(too_long("no line came")),
        }
    }
}

fn too_long(what: &str) -> anyhow::Error {
    late(format!("{what} within {} s", LIMIT.as_secs()), &[])
}

impl Drop for Piped {
    fn drop(&mut self) {
        // Either may fail only because it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn gather(which: usize, mut from: impl Read + Send + 'static, to: std::sync::mpsc::Sender<(usize, Vec<u8>)>) {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is what there is.
        let _ = from.read_to_end(&mut bytes);
        let _ = to.send((which, bytes));
    });
}

/// Random bytes in by standard input, and out by both outputs, are the same bytes.
fn whole(machine: MachineType, bytes: usize) -> Result<()> {
    let sent = content(bytes);
    // Of what reads a part, this alone reads no further, however short the pieces are that come.
    let script = "dd bs=4096 count=$1 iflag=fullblock 2>/dev/null; cat >&2";
    let half = (bytes / 2 / 4096).to_string();
    let words = ["--machine", machine.name(), "busybox", "sh", "-c", script, "sh", &half];
    let (output, error, status) = Piped::start(&words)?.talk(sent.clone())?;
    ensure!(status == 0, "status {status}: {}", String::from_utf8_lossy(&error));
    let (first, second) = sent.split_at(bytes / 2);
    ensure!(output == first, "standard output differs from what was sent: {}", difference(&output, first));
    ensure!(error.ends_with(second), "standard error differs from what was sent: {}", difference(&error, second));
    Ok(())
}

/// How many bytes came of how many, where the first one is wrong, and what the system said before
/// and among them.
fn difference(came: &[u8], sent: &[u8]) -> String {
    let lines = came.split_inclusive(|byte| *byte == b'\n').filter(|line| line.starts_with(b"pelago: "));
    let said: Vec<_> = lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    let begin = if came.starts_with(b"pelago: ") { said[0].len() } else { 0 };
    let first = came[begin..].iter().zip(sent).take_while(|(came, sent)| came == sent).count();
    format!("{} bytes for {}, the first wrong one at {first}; it said {said:?}", came.len(), sent.len())
}

/// The carrier is killed again and again while bytes go both ways; none is lost or doubled.
fn killed(machine: MachineType, bytes: usize) -> Result<()> {
    const KILLS: usize = 4;
    let sent = content(bytes);
    let words = ["--machine", machine.name(), "busybox", "cat"];
    let mut run = Piped::start(&words)?;
    let mut stdin = run.0.stdin.take().context("no input")?;
    let output = pieces_of(run.0.stdout.take().context("no output")?);
    let id = run.0.id();
    let (pieces, mut got) = (sent.chunks(bytes / (KILLS + 1)), Vec::new());
    for (index, piece) in pieces.enumerate() {
        // Its beginning has come back: the carrier is in the middle of it, and the rest is on its
        // way while the carrier dies.
        let (first, rest) = piece.split_at(piece.len() / 2);
        let end = got.len() + piece.len();
        std::thread::scope(|scope| -> Result<()> {
            scope.spawn(|| drop(stdin.write_all(first).and_then(|()| stdin.write_all(rest))));
            let mut killer = None;
            while got.len() < end {
                let more = output.recv_timeout(LIMIT);
                let Ok(more) = more else {
                    // Else the feeder would wait for ever.
                    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(id as i32), nix::sys::signal::SIGKILL);
                    bail!("no more than {} of {end} bytes come back", got.len())
                };
                got.extend_from_slice(&more);
                if killer.is_none() && index < KILLS {
                    killer = Some(scope.spawn(move || chaos(id)));
                }
            }
            killer.map_or(Ok(()), |killer| killer.join().unwrap_or_else(|_| bail!("the killer panicked")))
        })?;
    }
    drop(stdin);
    while let Ok(more) = output.recv_timeout(LIMIT) {
        got.extend_from_slice(&more);
        ensure!(got.len() <= sent.len(), "more than the {bytes} bytes come back");
    }
    ensure!(got == sent, "{} bytes came back of {bytes}, and differ", got.len());
    let status = run.ends()?;
    ensure!(status == Some(0), "status {status:?}");
    Ok(())
}

/// What comes, until the end.
fn pieces_of(mut from: impl Read + Send + 'static) -> std::sync::mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if sender.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn chaos(id: u32) -> Result<()> {
    let mut tool = Command::new(std::env::current_exe().context("cannot find myself")?);
    let output = child::output(tool.args(["chaos", "--run", &id.to_string(), "kill", "console"]), LIMIT)?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{}: {told}{}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// What a program writes is what comes out, and how it ended is the tool's status.
fn ends() -> Result<()> {
    let run = |script: &str, input: &[u8]| Piped::start(&["busybox", "sh", "-c", script])?.talk(input.into());
    let (output, _, status) = run("printf 'a\\rb\\npelago: no\\n\\036x'; printf e >&2; exit 200", b"")?;
    ensure!((output.as_slice(), status) == (b"a\rb\npelago: no\n\x1ex", 200), "{status}: {output:?}");
    let (output, error, status) =
        run("cat; printf 'pelago: mine\\n' >&2; kill -9 $$", b"\x03\x04\x1a\x1e x\n\x00\xff")?;
    ensure!((output.as_slice(), status) == (b"\x03\x04\x1a\x1e x\n\x00\xff", BY_SIGNAL + 9), "{status}: {output:?}");
    ensure!(error.ends_with(b"pelago: mine\n"), "{}", String::from_utf8_lossy(&error));
    let (output, _, _) =
        run("for n in 0 1 2; do [ -t $n ] && echo terminal; done; read line; echo $line; read x || echo end", b"l\n")?;
    ensure!(output == b"l\nend\n", "{:?}", String::from_utf8_lossy(&output));
    // The reader of the output is gone: so is the program.
    let mut run = Piped::start(&["busybox", "yes"])?;
    // Dropped, it reads no more.
    run.lines()?.next()?;
    let (sender, receiver) = channel();
    gather(1, run.0.stderr.take().context("no output")?, sender);
    receiver.recv_timeout(LIMIT).map_err(|_| too_long("it goes on writing for nobody, and does not end"))?;
    let status = run.ends()?;
    ensure!(status == Some(BY_SIGNAL + Signal::SIGPIPE as i32), "status {status:?}");
    Ok(())
}

/// Signals to the tool are the program's.
fn signals() -> Result<()> {
    for (signal, name) in [(Signal::SIGINT, "INT"), (Signal::SIGTERM, "TERM"), (Signal::SIGHUP, "HUP")] {
        let script = format!("trap 'echo got; exit 5' {name}; echo on; while :; do read -t 1 x; done");
        let mut run = Piped::start(&["busybox", "sh", "-c", &script])?;
        let lines = run.lines()?;
        ensure!(lines.next()? == "on");
        kill(Pid::from_raw(run.0.id() as i32), signal).context("cannot signal the tool")?;
        ensure!(lines.next().with_context(|| format!("after {signal}"))? == "got", "{signal} did not arrive");
        let status = run.ends()?;
        ensure!(status == Some(5), "status {status:?} after {signal}");
    }
    let mut run = Piped::start(&["busybox", "sh", "-c", "echo on; while :; do sleep 1; done"])?;
    let lines = run.lines()?;
    lines.next()?;
    kill(Pid::from_raw(run.0.id() as i32), Signal::SIGTERM).context("cannot signal the tool")?;
    let status = run.ends()?;
    ensure!(status == Some(BY_SIGNAL + Signal::SIGTERM as i32), "status {status:?}");
    Ok(())
}

/// So are those that come while the machine boots: they wait for the program, and end it.
fn early_signals() -> Result<()> {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut run = Piped::start(&["busybox", "sleep", "1000"])?;
        let (sender, lines) = sync_channel(LINES_MAX);
        read_lines(run.0.stderr.take().context("no output")?, sender);
        let lines = Lines(lines);
        // From here on the tool holds signals; it has not started the emulator yet.
        let begin = lines.next()?;
        ensure!(begin.contains("sleep") || begin.contains("busybox"), "it begins with {begin:?}");
        kill(Pid::from_raw(run.0.id() as i32), signal).context("cannot signal the tool")?;
        let status = run.ends()?;
        let rest: Vec<_> = lines.0.iter().collect();
        ensure!(status == Some(BY_SIGNAL + signal as i32), "status {status:?} after {signal}: {rest:?}");
        ensure!(!rest.iter().any(|line| line.contains("lost")), "it says {rest:?}");
    }
    Ok(())
}

/// A person at a pseudo-terminal.
struct Person {
    child: Child,
    keys: File,
    screen: Receiver<Vec<u8>>,
    seen: Vec<u8>,
    /// Up to where it was looked at.
    looked: usize,
    /// Keeps the terminal while nobody else has it.
    line: File,
}

impl Person {
    fn start(words: &[&str]) -> Result<Person> {
        let pair = openpty(&WINDOW, None).context("no pseudo-terminal")?;
        let own = tool(words)?;
        // The terminal is its controlling one, so that a change of the window is told.
        let mut setsid = Command::new("setsid");
        setsid.arg("--ctty").arg(own.get_program()).args(own.get_args()).current_dir(crate::host::place::root());
        let side = || pair.slave.try_clone().map(Stdio::from).context("cannot share the terminal");
        let child = setsid.stdin(side()?).stdout(side()?).stderr(side()?).spawn();
        let child = child.context("cannot start the tool (setsid is util-linux's)")?;
        let keys = File::from(pair.master);
        let mut from = keys.try_clone().context("cannot share the terminal")?;
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Person { child, keys, screen, seen: Vec::new(), looked: 0, line: File::from(pair.slave) })
    }

    fn types(&mut self, keys: &str) -> Result<()> {
        self.keys.write_all(keys.as_bytes()).context("the terminal is gone")
    }

    /// Waits until `words` are on the screen, after what was waited for before.
    fn sees(&mut self, words: &str) -> Result<()> {
        let end = Instant::now() + LIMIT;
        loop {
            let new = &self.seen[self.looked..];
            if let Some(at) = new.windows(words.len()).position(|window| window == words.as_bytes()) {
                self.looked += at + words.len();
                return Ok(());
            }
            match self.screen.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.seen.extend(bytes),
                Err(end) => {
                    let seen = String::from_utf8_lossy(&self.seen);
                    let words = format!("`{words}` did not come within {} s:\n{seen}", LIMIT.as_secs());
                    let is_late = end == RecvTimeoutError::Timeout;
                    return Err(if is_late { late(words, &[seen.into_owned()]) } else { anyhow::Error::msg(words) });
                }
            }
        }
    }

    /// Waits until the tool has ended; the terminal must be as it was before.
    fn ends(&mut self, before: &nix::sys::termios::Termios) -> Result<Option<i32>> {
        let status = child::wait(&mut self.child, "the tool", LIMIT)?;
        let after = tcgetattr(&self.line).context("the terminal is gone")?;
        ensure!(after == *before, "the terminal's settings were not put back");
        Ok(status.code())
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        // Either may fail only because it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is waited for is spelt so that the echo of the keys cannot pass for it.
fn terminal() -> Result<()> {
    let mut person = Person::start(&["busybox", "sh"])?;
    let before = tcgetattr(&person.line).context("no settings")?;
    person.types("for n in 0 1 2; do [ -t $n ] && echo is\"\"terminal $n; done\r")?;
    (0..3).try_for_each(|number| person.sees(&format!("isterminal {number}")))?;
    person.types("stty size; echo si\"\"zed\r")?;
    person.sees("41 101")?;
    person.sees("sized")?;
    // Ctrl-C is the foreground's, and the shell goes on.
    person.types("sh -c 'echo slee\"\"ps; sleep 1000'\r")?;
    person.sees("sleeps")?;
    person.types("\x03")?;
    person.types("echo \"status<$?>\"\r")?;
    person.sees("status<130>")?;
    // So is Ctrl-Z.
    person.types("sh -c 'echo slee\"\"ps; sleep 1000'\r")?;
    person.sees("sleeps")?;
    person.types("\x1a")?;
    person.sees("Stopped")?;
    // A new window is told to who is in the foreground.
    person
        .types("kill -9 %1\rsh -c 'trap \"stty size; exit 3\" WINCH; echo wait\"\"s; while :; do sleep 1; done'\r")?;
    person.sees("waits")?;
    let size = rustix::termios::Winsize { ws_row: 30, ws_col: 90, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&person.keys, size).context("cannot set the window")?;
    person.sees("30 90")?;
    person.types("exit 7\r")?;
    let status = person.ends(&before)?;
    ensure!(status == Some(7), "status {status:?}");
    // The escape sequence ends what ignores every key.
    let mut person =
        Person::start(&["busybox", "sh", "-c", "trap '' INT QUIT TSTP; echo on; while :; do sleep 9; done"])?;
    person.sees("on")?;
    person.types("\x03\r~.")?;
    person.sees("switched off")?;
    let status = person.ends(&before)?;
    ensure!(status == Some(BY_SIGNAL + Signal::SIGTERM as i32), "status {status:?}");
    Ok(())
}
