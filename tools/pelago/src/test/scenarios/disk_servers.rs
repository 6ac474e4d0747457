//! Tier 4: servers that nobody here wrote keep what they acknowledged on a disk, by running this
//! very tool as a person does.
//!
//! `disk-servers/redis*`: clients write to Debian's redis, which keeps an append-only file and
//! syncs each write. The disk's server dies under it, and the one that encrypts, and nobody hears
//! of it; the emulator is killed; the volume's server dies, and redis ends, as its file is lost to
//! it. In the run after each of these every write is there that a client had the answer to.

use super::cli::Running;
use super::servers::wait_until;
use super::web::first_tries;
use crate::host::skip::Skip;
use crate::host::{child, path, port};
use crate::image::built::Origin;
use crate::machine::control;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Beside each other, each with one write on the way.
const CLIENTS: usize = 4;
/// So many writes are acknowledged between two things that happen.
const WRITES: u64 = 40;
const LIMIT: Duration = Duration::from_secs(60);
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);
/// As in the README.
const SERVER: [&str; 9] =
    ["redis-server", "--protected-mode", "no", "--dir", "/data", "--appendonly", "yes", "--appendfsync", "always"];
/// redis' port.
const PORT: u16 = 6379;
/// The longest value.
const VALUE_BYTES: u64 = 600;

/// The last write of each client that was acknowledged.
type Kept = [u64; CLIENTS];

pub fn scenarios() -> Vec<Scenario> {
    let of = |name: &str, key| Scenario::shared(4, name.to_owned(), move |_| redis(key));
    // Encrypted it goes through all that it does plain.
    vec![of("disk-servers/redis", None).by_night(true), of("disk-servers/redis/encrypted", Some("open, sesame"))]
}

fn redis(key: Option<&str>) -> Result<()> {
    let disk = Disk::new(key)?;
    let faults: &[&str] =
        if key.is_some() { &["kill crypto", "kill disk", "hang crypto"] } else { &["kill disk", "hang disk"] };
    let mut run = disk.start(",size=128M", &[0; CLIENTS])?;
    let kept = write(&mut run, &[0; CLIENTS], |writing| {
        for fault in faults {
            writing.goes_on()?;
            writing.break_one(fault)?;
        }
        writing.goes_on()?;
        writing.refused()?;
        writing.kill_emulator()
    })?;
    ensure!(!run.running.finish()?.success(), "the emulator was killed, and the tool ended well");
    let mut run = disk.start("", &kept)?;
    let kept = write(&mut run, &kept, |writing| {
        writing.goes_on()?;
        writing.break_one("kill volume")?;
        writing.ends()
    })?;
    ensure!(!run.running.finish()?.success(), "redis went on without its file");
    let mut run = disk.start("", &kept)?;
    run.running.signal(Signal::SIGTERM)?;
    let status = run.running.finish()?;
    ensure!(status.success(), "{status}:\n{}", run.running.said().join("\n"));
    let all: u64 = kept.iter().sum();
    println!(
        "     {all} writes of {CLIENTS} clients: all were there after {}, the emulator's death and that of volume",
        faults.join(", ")
    );
    if key.is_none() { disk.sound() } else { Ok(()) }
}

/// A folder with a disk's file, and its key.
struct Disk {
    folder: TempDir,
    is_encrypted: bool,
}

impl Disk {
    fn new(key: Option<&str>) -> Result<Disk> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        if let Some(key) = key {
            crate::host::files::write(&folder.path().join("key"), key.as_bytes())?;
        }
        Ok(Disk { folder, is_encrypted: key.is_some() })
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("data.img")
    }

    /// Starts redis, and looks whether all is there that was acknowledged, and nothing else.
    fn start(&self, more: &str, kept: &Kept) -> Result<Run> {
        let key = self.folder.path().join("key");
        let key = if self.is_encrypted { format!(",key={}", key.display()) } else { String::new() };
        let disk = format!("{}:/data{more}{key}", self.image().display());
        let (port, origin) = (port::free()?, Origin::Root("redis").words()?);
        let forward = format!("{port}:{PORT}");
        let options = ["--accel", "tcg", "-q", "--disk", &disk, "-p", &forward];
        let origin: Vec<&str> = origin.iter().map(String::as_str).collect();
        let mut running = Running::start(&[&options, &origin[..], &SERVER].concat(), &[])?;
        let tries = RefCell::new(first_tries());
        wait_until(&mut running, || {
            let mut stream = connected(port)?;
            stream.get_ref().set_read_timeout(tries.borrow_mut().next())?;
            let answer = ask(&mut stream, "PING")?;
            ensure!(answer == "+PONG", "it answers {answer}");
            Ok(())
        })?;
        let mut stream = connected(port)?;
        for (client, last) in kept.iter().enumerate() {
            look(&mut stream, client, *last).map_err(|error| anyhow!("{error:#}:\n{}", running.said().join("\n")))?;
        }
        Ok(Run { running, port })
    }

    /// This machine's e2fsck finds nothing, and no journal to recover.
    fn sound(&self) -> Result<()> {
        let e2fsck = path::find_of_root("e2fsck").ok_or(Skip::Package { program: "e2fsck", package: "e2fsprogs" })?;
        let found = child::output(Command::new(e2fsck).arg("-fn").arg(self.image()), child::SHORT)?;
        let told = String::from_utf8_lossy(&found.stdout);
        ensure!(found.status.success() && !told.contains("recover"), "e2fsck: {told}");
        Ok(())
    }
}

/// A machine with redis.
struct Run {
    running: Running,
    port: u16,
}

fn connected(port: u16) -> Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(("127.0.0.1", port)).context("no connection")?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

/// Asks; the first line of the answer. An error: the connection ended.
fn ask(stream: &mut BufReader<TcpStream>, question: &str) -> Result<String> {
    stream.get_mut().write_all(format!("{question}\r\n").as_bytes()).context("it cannot be sent")?;
    let mut line = String::new();
    stream.read_line(&mut line).context("no answer")?;
    ensure!(line.ends_with("\r\n"), "the connection ended");
    Ok(line.trim_end().to_owned())
}

/// What a client's write of that number sets.
fn value(client: usize, number: u64) -> String {
    format!("{number:0width$}-{client}", width = (number * 37 % VALUE_BYTES + 1) as usize)
}

/// Whether the client's writes are there up to the last one that was acknowledged, as they were
/// written. One more may be: it was on the way.
fn look(stream: &mut BufReader<TcpStream>, client: usize, last: u64) -> Result<()> {
    for number in 1..=last {
        let key = format!("{client}:{number}");
        let length = ask(stream, &format!("GET {key}"))?;
        let wanted = value(client, number);
        ensure!(length == format!("${}", wanted.len()), "{key} of {last} that were acknowledged: {length}");
        let mut found = vec![0; wanted.len() + 2];
        stream.read_exact(&mut found).context("half an answer")?;
        ensure!(found == format!("{wanted}\r\n").as_bytes(), "{key} is {}", String::from_utf8_lossy(&found));
    }
    let beyond = ask(stream, &format!("EXISTS {client}:{}", last + 2))?;
    ensure!(beyond == ":0", "client {client} never wrote {}, and it is there: {beyond}", last + 2);
    Ok(())
}

/// What happens while clients write.
struct Writing<'a> {
    run: &'a mut Run,
    acknowledged: &'a AtomicU64,
    /// Clients that were answered something else, or lost their connection.
    refused: &'a AtomicU64,
}

impl Writing<'_> {
    /// Waits until more is acknowledged.
    fn goes_on(&mut self) -> Result<()> {
        let wanted = self.acknowledged.load(Ordering::Relaxed) + WRITES;
        let end = Instant::now() + LIMIT;
        while self.acknowledged.load(Ordering::Relaxed) < wanted {
            self.run.running.lives()?;
            self.refused()?;
            ensure!(Instant::now() < end, "redis acknowledges nothing:\n{}", self.run.running.said().join("\n"));
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// No client was refused anything.
    fn refused(&mut self) -> Result<()> {
        let refused = self.refused.load(Ordering::Relaxed);
        ensure!(
            refused == 0,
            "{refused} clients were refused a write or lost their connection:\n{}",
            self.run.running.said().join("\n")
        );
        Ok(())
    }

    fn break_one(&mut self, fault: &str) -> Result<()> {
        let reply = control::request(Some(self.run.running.id()), &format!("chaos {fault}"))?.join("; ");
        ensure!(reply.starts_with("ok"), "chaos {fault}: {reply}");
        Ok(())
    }

    /// As a loss of power is for the guest.
    fn kill_emulator(&mut self) -> Result<()> {
        let tool = self.run.running.id();
        let children = std::fs::read_to_string(format!("/proc/{tool}/task/{tool}/children")).context("no children")?;
        let is_emulator = |id: &&str| {
            let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            name.starts_with("qemu-system")
        };
        let emulator = children.split_whitespace().find(is_emulator).context("the emulator is no child of the run")?;
        kill(Pid::from_raw(emulator.parse()?), Signal::SIGKILL).context("cannot kill the emulator")
    }

    /// redis is told that its file is lost, and ends: no client has a connection any more.
    fn ends(&mut self) -> Result<()> {
        let end = Instant::now() + LIMIT;
        while self.refused.load(Ordering::Relaxed) < CLIENTS as u64 {
            ensure!(Instant::now() < end, "redis goes on:\n{}", self.run.running.said().join("\n"));
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// Has clients write, each behind its last write that was kept, until `meanwhile` is done; what is
/// kept then.
fn write(run: &mut Run, kept: &Kept, meanwhile: impl FnOnce(&mut Writing) -> Result<()>) -> Result<Kept> {
    let (stop, acknowledged, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let port = run.port;
    let (done, written) = std::thread::scope(|scope| {
        let clients: Vec<_> = kept
            .iter()
            .enumerate()
            .map(|(client, last)| {
                let (stop, acknowledged, refused) = (&stop, &acknowledged, &refused);
                scope.spawn(move || keep_writing(port, (client, *last), stop, acknowledged, refused))
            })
            .collect();
        let done = meanwhile(&mut Writing { run, acknowledged: &acknowledged, refused: &refused });
        stop.store(true, Ordering::Relaxed);
        (done, clients.into_iter().map(|client| client.join()).collect::<Vec<_>>())
    });
    done?;
    let mut kept = [0; CLIENTS];
    for (last, written) in kept.iter_mut().zip(written) {
        *last = written.unwrap_or_else(|_| bail!("a client failed"))?;
    }
    Ok(kept)
}

/// One client's writes, until it is told to stop or its connection ends; the last one that was
/// acknowledged.
fn keep_writing(
    port: u16,
    (client, mut last): (usize, u64),
    stop: &AtomicBool,
    acknowledged: &AtomicU64,
    refused: &AtomicU64,
) -> Result<u64> {
    let mut stream = connected(port)?;
    while !stop.load(Ordering::Relaxed) {
        let number = last + 1;
        match ask(&mut stream, &format!("SET {client}:{number} {}", value(client, number))) {
            Ok(answer) if answer == "+OK" => {
                last = number;
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Ok(_) | Err(_) => {
                refused.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
    }
    Ok(last)
}
