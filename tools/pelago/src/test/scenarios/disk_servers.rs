//! Tier 4: servers that nobody here wrote keep what they acknowledged on a disk, by running this
//! very tool as a person does.
//!
//! `disk-servers/redis*`: clients write to Debian's redis, which keeps an append-only file and
//! syncs each write. The disk's server dies under it, and the one that encrypts, and nobody hears
//! of it; the emulator is killed; the volume's server dies, and redis ends, as its file is lost to
//! it. In the run after each of these every write is there that a client had the answer to.
//! `disk-servers/postgres`, `disk-servers/mariadb`: the same with rows of Debian's PostgreSQL and
//! MariaDB, until the emulator is killed.

mod mariadb;
mod postgres;
mod redis;

use super::cli::Running;
use super::servers::wait_until;
use super::web::first_tries;
use crate::host::skip::Skip;
use crate::host::{child, path, port};
use crate::image::built::Origin;
use crate::machine::control;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::cell::RefCell;
use std::io::BufReader;
use std::net::{Ipv4Addr, TcpStream};
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
/// The last write of each client that was acknowledged.
type Kept = [u64; CLIENTS];

pub fn scenarios() -> Vec<Scenario> {
    redis::scenarios().into_iter().chain([postgres::scenario(), mariadb::scenario()]).collect()
}

/// Connects the client of that number to a port; it waits so long for the first answer.
type Connect = fn(u16, usize, Duration) -> Result<Box<dyn Client>>;

/// A server, and how its clients write.
struct Server {
    /// Its root.
    origin: Origin,
    /// Its port in the guest.
    port: u16,
    words: &'static [&'static str],
    connect: Connect,
}

/// A stream to the server at that port of the host; it and its answers are waited for that long.
fn connected(port: u16, limit: Duration) -> Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), limit).context("no connection")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(limit))?;
    Ok(BufReader::new(stream))
}

/// A client's connection.
trait Client: Send {
    /// Writes what its write of that number is. An error: it was not acknowledged.
    fn write(&mut self, number: u64) -> Result<()>;
    /// Whether its writes are there up to the last one that was acknowledged, as they were written.
    /// One more may be: it was on the way.
    fn look(&mut self, last: u64) -> Result<()>;
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

    /// Starts a server, with more of `--disk` and of `run`, and looks whether all is there that was
    /// acknowledged, and nothing else.
    fn start(&self, server: &Server, (more, options): (&str, &[&str]), kept: &Kept) -> Result<Run> {
        let key = self.folder.path().join("key");
        let key = if self.is_encrypted { format!(",key={}", key.display()) } else { String::new() };
        let disk = format!("{}:/data{more}{key}", self.image().display());
        let (port, origin) = (port::free()?, server.origin.words()?);
        let forward = format!("{port}:{}", server.port);
        let always = ["--accel", "tcg", "-q", "--disk", &disk, "-p", &forward];
        let origin: Vec<&str> = origin.iter().map(String::as_str).collect();
        let mut running = Running::start(&[&always, options, &origin[..], server.words].concat(), &[])?;
        let (connect, tries) = (server.connect, RefCell::new(first_tries()));
        let limit = || tries.borrow_mut().next().unwrap_or(ANSWER_LIMIT);
        wait_until(&mut running, || connect(port, 0, limit()).map(drop))?;
        for (client, last) in kept.iter().enumerate() {
            let looked = connect(port, client, ANSWER_LIMIT).and_then(|mut connected| connected.look(*last));
            looked.map_err(|error| anyhow!("{error:#}:\n{}", running.said().join("\n")))?;
        }
        Ok(Run { running, port, connect })
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

/// A machine with a server.
struct Run {
    running: Running,
    port: u16,
    connect: Connect,
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
            if Instant::now() >= end {
                return Err(self.run.running.late("it acknowledges nothing"));
            }
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

    /// The server is told that its file is lost, and ends: no client has a connection any more.
    fn ends(&mut self) -> Result<()> {
        let end = Instant::now() + LIMIT;
        while self.refused.load(Ordering::Relaxed) < CLIENTS as u64 {
            if Instant::now() >= end {
                return Err(self.run.running.late("it goes on"));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// Has clients write, each behind its last write that was kept, until `meanwhile` is done; what is
/// kept then.
fn write(run: &mut Run, kept: &Kept, meanwhile: impl FnOnce(&mut Writing) -> Result<()>) -> Result<Kept> {
    let (stop, acknowledged, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    // One after the other, and before anything happens: the emulator's own network lets one
    // connection wait for it, and who is not let in at once comes again after a second, or three.
    let clients = (0..CLIENTS).map(|client| (run.connect)(run.port, client, ANSWER_LIMIT));
    let clients: Result<Vec<_>> = clients.collect();
    let clients = clients.map_err(|error| anyhow!("{error:#}:\n{}", run.running.said().join("\n")))?;
    let (done, written) = std::thread::scope(|scope| {
        let start = |(client, last): (Box<dyn Client>, &u64)| {
            let (last, stop, acknowledged, refused) = (*last, &stop, &acknowledged, &refused);
            scope.spawn(move || keep_writing(client, last, stop, acknowledged, refused))
        };
        let clients: Vec<_> = clients.into_iter().zip(kept).map(start).collect();
        let done = meanwhile(&mut Writing { run, acknowledged: &acknowledged, refused: &refused });
        stop.store(true, Ordering::Relaxed);
        (done, clients.into_iter().map(|client| client.join()).collect::<Vec<_>>())
    });
    done?;
    let mut kept = [0; CLIENTS];
    for (last, written) in kept.iter_mut().zip(written) {
        *last = written.map_err(|_| anyhow!("a client failed"))?;
    }
    Ok(kept)
}

/// One client's writes, until it is told to stop or its connection ends; the last one that was
/// acknowledged.
fn keep_writing(
    mut client: Box<dyn Client>,
    mut last: u64,
    stop: &AtomicBool,
    acknowledged: &AtomicU64,
    refused: &AtomicU64,
) -> u64 {
    while !stop.load(Ordering::Relaxed) {
        if client.write(last + 1).is_err() {
            refused.fetch_add(1, Ordering::Relaxed);
            break;
        }
        last += 1;
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    last
}
