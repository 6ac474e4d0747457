//! Tier 3: the options of `run`, by running this very tool as a person does.

use crate::host::child;
use crate::host::late::late;
use crate::host::port;
use crate::host::skip::Skip;
use crate::machine::liveness::GuestLiveness;
use crate::test::scenario::Scenario;
use crate::test::scenarios::web;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

pub const LIMIT: Duration = Duration::from_secs(60);
const LINES_MAX: usize = 1024;
/// Clients that come to a port at once, and how often.
const CLIENTS: usize = 200;
const ROUNDS: usize = 2;
/// The emulator's own network has 1.
const BACKLOG_MIN: u32 = 100;
/// As a shell shows a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

type Body = fn() -> Result<()>;

pub fn scenarios() -> Vec<Scenario> {
    let all: [(&str, Body); 5] =
        [("options", options), ("page", page), ("ports", ports), ("print", print), ("gdb", debugger)];
    all.map(|(name, body)| Scenario::shared(3, format!("cli/{name}"), move |_| body())).into()
}

/// Everything a program can be given, in one boot.
fn options() -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir_all(folder.path().join("site/sub")).context("cannot make a folder")?;
    crate::host::files::write(&folder.path().join("file"), b"file\n")?;
    crate::host::files::write(&folder.path().join("site/sub/page"), b"page\n")?;
    let system = std::fs::read(crate::host::place::root().join("system/default.toml"))
        .context("there is no system/default.toml")?;
    crate::host::files::write(&folder.path().join("system.toml"), &system)?;
    let port = port::free()?;
    let script = "echo \"facts: $COLOUR $INHERITED $(pwd) $(cat /in/file) $(cat sub/page)\"; \
        echo \"cores: $(grep -c ^processor /proc/cpuinfo)\"; \
        awk '/MemTotal/ { print \"memory:\", ($2 > 100000 && $2 < 204800) }' /proc/meminfo; \
        httpd -f -p 80 -h /in/dir & read line; exit 9";
    let (volumes, forward) = ([path("file") + ":/in/file", path("site") + ":/in/dir"], format!("127.0.0.1:{port}:80"));
    let system = path("system.toml");
    let words = [
        "--cpus=2",
        "-m",
        "200M",
        "--machine",
        "microvm",
        "--system",
        &system,
        "--accel",
        "tcg",
        "-p",
        &forward,
        "-e",
        "COLOUR=blue",
        "-e",
        "INHERITED",
        "-v",
        &volumes[0],
        "-v",
        &volumes[1],
        "-w",
        "/in/dir",
        "busybox",
        "sh",
        "-c",
        script,
    ];
    let mut run = Running::start(&words, &[("INHERITED", "yes")])?;
    run.expect("facts: blue yes /in/dir file page")?;
    run.expect("cores: 2")?;
    run.expect("memory: 1")?;
    let got = web::fetch(&run.liveness(), &format!("http://127.0.0.1:{port}/sub/page"), LIMIT)?;
    ensure!(got == b"page\n", "the forwarded port serves {got:?}");
    run.input.write_all(b"\n").context("the tool takes no input")?;
    let status = run.finish()?;
    ensure!(status.code() == Some(9), "{status} instead of the program's 9");
    Ok(())
}

/// Without a program there is a page, the tool says where, and Ctrl-C ends tool and emulator.
fn page() -> Result<()> {
    let port = port::free()?;
    let mut run = Running::start(&["--accel", "tcg", "-p", &format!("{port}:80")], &[])?;
    run.expect(&format!("http://localhost:{port}/"))?;
    let got = web::fetch_first(&run.liveness(), &format!("http://localhost:{port}/"), LIMIT)?;
    ensure!(String::from_utf8_lossy(&got).contains("Pelago"), "the page is another: {}", String::from_utf8_lossy(&got));
    cores(run.child.id())?;
    run.signal(Signal::SIGINT)?;
    run.expect("interrupted")?;
    let status = run.finish()?;
    ensure!(status.code() == Some(INTERRUPTED), "{status} instead of {INTERRUPTED}");
    // The tool itself waits for passt, and would complain.
    ensure!(!run.said().iter().any(|line| line.contains("did not end")), "the tool says {:?}", run.said());
    is_free(port)
}

/// A port is open to this machine only, its listener takes many clients at once, each of whom gets
/// the whole page, and it is gone with the tool, however that ends.
fn ports() -> Result<()> {
    for (program, package) in [("passt", "passt"), ("ss", "iproute2")] {
        if crate::host::path::find(program).is_none() {
            bail!(Skip::Package { program, package });
        }
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let page: Vec<u8> = (0..1024u32).flat_map(u32::to_le_bytes).collect();
    crate::host::files::write(&folder.path().join("page"), &page)?;
    let (port, volume) = (port::free()?, format!("{}:/www", folder.path().display()));
    // A process for each client.
    let words = ["--accel", "tcg", "-m", "1G", "-p", &format!("{port}:80"), "-v", &volume];
    let mut run = Running::start(&[&words[..], &web::SERVER].concat(), &[])?;
    let address = format!("http://127.0.0.1:{port}/page");
    ensure!(web::fetch_first(&run.liveness(), &address, LIMIT)? == page, "the port serves another page");
    let (address, backlog) = listener(port)?;
    ensure!(address == format!("127.0.0.1:{port}") && backlog >= BACKLOG_MIN, "it listens at {address} for {backlog}");
    for round in 1..=ROUNDS {
        // All connect before any asks.
        let barrier = std::sync::Barrier::new(CLIENTS);
        std::thread::scope(|scope| -> Result<()> {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| client(port, &barrier))).collect();
            for client in clients {
                let got = client.join().map_err(|_| anyhow::anyhow!("a client failed"))?;
                let got = got.with_context(|| {
                    format!("round {round} of {CLIENTS} clients at once; the tool says {:?}", run.said())
                })?;
                ensure!(got.ends_with(&page), "a client of round {round} got {} bytes or others", got.len());
            }
            Ok(())
        })?;
    }
    // As hard as it can end.
    run.child.kill().context("cannot kill the tool")?;
    is_free(port)
}

/// Fails if somebody listens at a port for long: who did may still be about to end.
fn is_free(port: u16) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while TcpStream::connect(("127.0.0.1", port)).is_ok() {
        ensure!(Instant::now() < end, "somebody still listens at port {port}: the emulator, or passt?");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Address and backlog of who listens at a port, by ss(8).
fn listener(port: u16) -> Result<(String, u32)> {
    let output = child::output(Command::new("ss").args(["-Hltn", &format!("sport = :{port}")]), child::SHORT)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let words: Vec<_> = text.split_whitespace().collect();
    let [_, _, backlog, address, ..] = words[..] else { bail!("nobody listens at port {port}: {text}") };
    Ok((address.to_owned(), backlog.parse().with_context(|| format!("ss says {text}"))?))
}

/// The answer to one request.
fn client(port: u16, barrier: &std::sync::Barrier) -> Result<Vec<u8>> {
    let stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect");
    barrier.wait();
    let mut stream = stream?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET /page HTTP/1.0\r\n\r\n").context("cannot send")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).with_context(|| format!("after {} bytes", answer.len()))?;
    Ok(answer)
}

/// `./pelago cores` tells of the instance that process `id` runs.
fn cores(id: u32) -> Result<()> {
    let mut tool = Command::new(std::env::current_exe().context("cannot find myself")?);
    let output = child::output(tool.args(["cores", "--run", &id.to_string()]), LIMIT)?;
    let told = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && told.ends_with(" cores\n"), "{}: {told}", output.status);
    ensure!(told.lines().filter(|line| line.contains(" claimed by ")).count() + 1 == told.lines().count(), "{told}");
    Ok(())
}

/// What is printed runs, and is the machine that would have run.
fn print() -> Result<()> {
    let mut run = Running::start(&["--accel", "tcg", "--print", "--cpus", "1", "busybox", "echo", "printed"], &[])?;
    let line = run.expect(crate::machine::emulator::PROGRAM)?;
    ensure!(run.finish()?.success(), "--print failed");
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = Running::of(shell)?;
    run.expect("printed")?;
    run.expect("pelago: exit 0")?;
    // isa-debug-exit makes it odd.
    let status = run.finish()?;
    ensure!(status.code() == Some(1), "the emulator ended with {status}");
    Ok(())
}

/// A debugger of the host stops the kernel where it is asked to, and names its functions, files and
/// lines.
fn debugger() -> Result<()> {
    if crate::host::path::find("gdb").is_none() {
        bail!(Skip::Package { program: "gdb", package: "gdb" });
    }
    let port = port::free()?;
    let mut run = Running::start(&["--accel", "tcg", &format!("--gdb={port}"), "busybox", "echo", "debugged"], &[])?;
    let line = run.expect("waiting for a debugger; run: gdb ")?;
    let image = line.rsplit("gdb ").next().and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", image]);
    let steps = [
        // Not its own limits, which are seconds, but ours.
        &format!("set remotetimeout {}", LIMIT.as_secs()),
        "set tcp connect-timeout unlimited",
        &format!("target remote 127.0.0.1:{port}"),
        "hbreak entered_by_vector",
        "continue",
        "backtrace 3",
        "delete",
        "detach",
    ];
    for step in steps {
        gdb.args(["-ex", step]);
    }
    let output = child::output(&mut gdb, LIMIT)?;
    let (told, problems) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for words in ["#0", "entered_by_vector", "context.rs:"] {
        ensure!(told.contains(words), "gdb does not say `{words}`:\n{told}\n{problems}");
    }
    // Let go, the machine runs on.
    run.expect("debugged")?;
    let status = run.finish()?;
    ensure!(status.success(), "{status} after the debugger");
    Ok(())
}

/// A program of the host under our eyes; it ends with this value.
pub struct Running {
    child: Child,
    input: Box<dyn Write>,
    lines: Receiver<String>,
    /// Lines of both outputs so far.
    pub seen: Vec<String>,
}

impl Running {
    /// This tool's `run`.
    pub fn start(words: &[&str], environment: &[(&str, &str)]) -> Result<Running> {
        let mut tool = Command::new(std::env::current_exe().context("cannot find myself")?);
        tool.arg("run").args(words).envs(environment.iter().copied()).current_dir(crate::host::place::root());
        Running::of(tool)
    }

    fn of(mut command: Command) -> Result<Running> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start the program")?;
        let input = Box::new(child.stdin.take().context("no input")?);
        let (sender, lines) = sync_channel(LINES_MAX);
        read_lines(child.stdout.take().context("no output")?, sender.clone());
        read_lines(child.stderr.take().context("no output")?, sender);
        Ok(Running { child, input, lines, seen: Vec::new() })
    }

    /// Types a line.
    pub fn line(&mut self, words: &str) -> Result<()> {
        self.input.write_all(format!("{words}\n").as_bytes()).context("the tool takes no input")
    }

    /// There is no more input.
    pub fn end_input(&mut self) {
        self.input = Box::new(std::io::sink());
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.child.id() as i32), signal).context("cannot signal the tool")
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Says why if it has ended.
    pub fn lives(&mut self) -> Result<()> {
        match self.child.try_wait().context("cannot ask for it")? {
            Some(status) => bail!("it ended with {status}:\n{}", self.said().join("\n")),
            None => Ok(()),
        }
    }

    fn liveness(&self) -> GuestLiveness {
        GuestLiveness::of(self.child.id())
    }

    /// Waits for a line of either output.
    pub fn expect(&mut self, words: &str) -> Result<String> {
        let end = Instant::now() + LIMIT;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(words) {
                        return Ok(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(self.late(&format!("`{words}` did not come within {} s", LIMIT.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("it ended before `{words}` came:\n{}", self.seen.join("\n"))
                }
            }
        }
    }

    /// What it has said so far.
    pub fn said(&mut self) -> &[String] {
        self.seen.extend(self.lines.try_iter());
        &self.seen
    }

    /// Waits until it has ended.
    pub fn finish(&mut self) -> Result<ExitStatus> {
        let end = Instant::now() + LIMIT;
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.seen.push(line);
        }
        if Instant::now() >= end {
            return Err(self.late(&format!("it does not end within {} s", LIMIT.as_secs())));
        }
        child::wait(&mut self.child, "it", LIMIT)
    }

    /// The error of a limit in time that it did not keep.
    pub fn late(&mut self, words: &str) -> anyhow::Error {
        late(format!("{words}:\n{}", self.said().join("\n")), &self.seen)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Either may fail only because it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends each line, until nobody takes it any more.
pub fn read_lines(from: impl Read + Send + 'static, to: SyncSender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            if to.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                return;
            }
        }
    });
}
