//! Servers that nobody here wrote, under load from this machine: redis, also with a file on a disk
//! to which it appends, and PostgreSQL, on a disk, by their own benchmarks; nginx, Go's and node's
//! HTTP servers by connections that are kept. Both systems are given the same files.

use super::catalogue::{Entry, Source};
use super::clients::{self, kept};
use super::disk;
use super::outside::{Experiment, cpu_us};
use super::systems::{Boot, DISK_PATH, PAGE_BYTES, Side, Systems};
use crate::bench::plugin::Instruments;
use crate::host::port;
use crate::host::{child, files};
use crate::image::archive::Archive;
use crate::image::built::{Origin, POSTGRES};
use crate::image::machine_type::MachineType;
use crate::image::rootfs;
use crate::machine::emulator::{Drive, Forward};
use crate::machine::guest::Guest;
use crate::machine::passt;
use anyhow::{Context, Result, bail, ensure};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);
/// Clients beside each other of HTTP servers, and requests of each in each of two passes: one warms
/// up, one is measured.
const CLIENTS: usize = 4;
const REQUESTS: usize = 250;
/// Clients of redis, and requests of all together in each pass.
const OF_REDIS: [(usize, usize); 2] = [(1, 1000), (50, 5000)];
const DISK_BYTES: u64 = 512 << 20;
/// Clients of PostgreSQL, and transactions of each in each pass: each is some statements and a
/// commit that is on the disk before it is answered.
const OF_POSTGRES: [(usize, usize); 2] = [(1, 40), (4, 20)];
const REDIS: [&str; 5] = ["redis-server", "--protected-mode", "no", "--save", ""];
const NGINX: &str = "daemon off; master_process off; error_log /dev/stderr crit; pid /tmp/nginx.pid;\n\
    events { worker_connections 64; }\n\
    http { access_log off; client_body_temp_path /tmp/b; proxy_temp_path /tmp/p; fastcgi_temp_path /tmp/f;\n\
    uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s; keepalive_requests 1000000;\n\
    server { listen 8080; root /served; } }\n";
const NODE: &str = "const page = require('fs').readFileSync('/served/file')\n\
    require('http').createServer((asked, answer) => answer.end(page)).listen(8080)\n";

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// GET and SET, each by one client and by fifty.
    Redis,
    /// SET, which appends to a file on the disk before it is answered.
    RedisAppends(Syncs),
    /// One process of it.
    Nginx,
    /// `net/http`, a static program.
    Go,
    /// `http`, which answers from memory.
    Node,
    /// pgbench's own transactions, by one client and by four.
    Postgres,
}

/// When what redis appended is brought to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// Before each answer.
    Always,
    EverySecond,
}

impl Syncs {
    /// As redis calls it (appendfsync).
    fn word(self) -> &'static str {
        match self {
            Syncs::Always => "always",
            Syncs::EverySecond => "everysec",
        }
    }
}

/// Where the programs are that are in no root.
const PROGRAM: &str = "/program";
const MEASURE: &str = "/served/measure";

/// What one is in the guest.
struct Parts {
    /// The root file system that it is in; else its program is static.
    root: Option<PathBuf>,
    /// The program and its arguments.
    words: Vec<String>,
    port: u16,
    settings: Option<(&'static str, &'static str)>,
    /// It keeps its files on a disk.
    has_disk: bool,
}

/// What each guest needs for rows of these servers, if more than others: Linux holds PostgreSQL's
/// root twice while it unpacks it.
pub fn memory_bytes(chosen: &[&Entry]) -> u64 {
    let of_postgres = |entry: &&Entry| {
        matches!(entry.source, Source::Outside { experiment: Experiment::Server(Server::Postgres), .. })
    };
    if chosen.iter().any(of_postgres) { 2 << 30 } else { 0 }
}

impl Server {
    /// All of them.
    pub const ALL: [Server; 7] = [
        Server::Redis,
        Server::Nginx,
        Server::Go,
        Server::Node,
        Server::Postgres,
        Server::RedisAppends(Syncs::Always),
        Server::RedisAppends(Syncs::EverySecond),
    ];

    fn parts(self) -> Result<Parts> {
        let (origin, words, port, settings): (_, &[&str], _, _) = match self {
            Server::Redis | Server::RedisAppends(_) => (Origin::Root("redis"), &REDIS, 6379, None),
            Server::Nginx => {
                (Origin::Root("nginx"), &["nginx", "-c", "/served/nginx.conf"], 8080, Some(("nginx.conf", NGINX)))
            }
            Server::Go => (Origin::Go("http"), &[], 8080, None),
            Server::Node => (Origin::Root("node"), &["node", "/served/serve.js"], 8080, Some(("serve.js", NODE))),
            Server::Postgres => {
                (Origin::Root("postgres"), &["/bin/sh", "/served/postgres.sh"], 5432, Some(("postgres.sh", POSTGRES)))
            }
        };
        let mut found = origin.words()?;
        let root = if found[0] == "--rootfs" { found.pop().map(PathBuf::from) } else { None };
        let mut all = if root.is_some() { Vec::new() } else { found };
        all.extend(words.iter().map(|&word| word.to_owned()));
        if let Server::RedisAppends(syncs) = self {
            let more = ["--dir", DISK_PATH, "--appendonly", "yes", "--appendfsync", syncs.word()];
            all.extend(more.map(str::to_owned));
        }
        let has_disk = matches!(self, Server::Postgres | Server::RedisAppends(_));
        Ok(Parts { root, words: all, port, settings, has_disk })
    }

    /// Boots with the measuring program beside the server, to be asked for rows of those names.
    pub fn boot_asked(self, systems: &Systems, side: Side, instruments: Instruments, rows: &[&str]) -> Result<Guest> {
        self.parts()?.boot_asked(systems, side, instruments, rows)
    }

    /// Requests per second and microseconds of the emulator's processor time for each, of each kind
    /// of request in turn.
    pub fn measure(self, systems: &Systems, side: Side, machine: MachineType, cpus: u32) -> Result<Vec<f64>> {
        let parts = self.parts()?;
        let (mut guest, port) = parts.boot(systems, side, machine, cpus)?;
        let host = format!("127.0.0.1:{port}");
        let root = || parts.root.as_deref().context("it has no root");
        wait(&mut guest, || match self {
            Server::Redis | Server::RedisAppends(_) => ping(&host),
            Server::Postgres => pgbench(root()?, port, &["-i", "-q"]),
            _ => kept(&host, 1),
        })?;
        let mut figures = Vec::new();
        match self {
            Server::Redis | Server::RedisAppends(_) => {
                let operations: &[&str] = if parts.has_disk { &["set"] } else { &["get", "set"] };
                for (clients, requests) in OF_REDIS {
                    for operation in operations {
                        let pass = || redis_benchmark(root()?, port, operation, clients, requests);
                        figures.extend(of_two(&guest, requests, pass)?);
                    }
                }
            }
            Server::Postgres => {
                for (clients, each) in OF_POSTGRES {
                    let counts = [format!("-c{clients}"), format!("-t{each}")];
                    let pass = || pgbench(root()?, port, &["-n", &counts[0], &counts[1]]);
                    figures.extend(of_two(&guest, clients * each, pass)?);
                }
            }
            _ => {
                let pass = || clients::side_by_side(CLIENTS, || kept(&host, REQUESTS));
                figures = of_two(&guest, CLIENTS * REQUESTS, pass)?;
            }
        }
        Ok(figures)
    }
}

/// The second of two passes of so many requests.
fn of_two(guest: &Guest, requests: usize, pass: impl Fn() -> Result<()>) -> Result<Vec<f64>> {
    pass()?;
    let (before_us, start) = (cpu_us(guest.process_id())?, Instant::now());
    pass()?;
    let (seconds, us) = (start.elapsed().as_secs_f64(), cpu_us(guest.process_id())? - before_us);
    let count = requests as f64;
    Ok(vec![count / seconds, us / count])
}

/// Asks until there is an answer.
fn wait(guest: &mut Guest, ask: impl Fn() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    while let Err(error) = ask() {
        if let Ok(None) = guest.next(Duration::ZERO) {
            bail!("the guest ended before its server answered; the end of its console:\n{}", guest.tail());
        }
        if start.elapsed() > LIMIT {
            let console = guest.tail();
            bail!("no answer within {} s: {error:#}; the end of its console:\n{console}", LIMIT.as_secs());
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn ping(host: &str) -> Result<()> {
    use std::io::{Read, Write};
    let mut stream = TcpStream::connect(host).context("cannot connect")?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).context("no answer")?;
    ensure!(&answer == b"+PONG\r\n", "it answers {:?}", String::from_utf8_lossy(&answer));
    Ok(())
}

/// A program out of the server's root, on this machine.
fn of_root(root: &Path, program: &str) -> Command {
    let mut command = Command::new(root.join("lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(root.join("usr/lib/x86_64-linux-gnu")).arg(root.join(program));
    command
}

/// redis' own benchmark.
fn redis_benchmark(root: &Path, port: u16, operation: &str, clients: usize, requests: usize) -> Result<()> {
    let mut command = of_root(root, "usr/bin/redis-benchmark");
    command.args(["-h", "127.0.0.1", "-t", operation, "--csv", "-p", &port.to_string()]);
    command.args(["-c", &clients.to_string(), "-n", &requests.to_string()]);
    let output = child::output(&mut command, LIMIT)?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.contains("rps"), "redis-benchmark: {}", said.trim());
    Ok(())
}

/// PostgreSQL's own benchmark.
fn pgbench(root: &Path, port: u16, words: &[&str]) -> Result<()> {
    let mut command = of_root(root, "usr/lib/postgresql/15/bin/pgbench");
    command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &port.to_string()]).args(words).arg("postgres");
    let output = child::output(&mut command, LIMIT)?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "pgbench: {}", said.trim());
    Ok(())
}

impl Parts {
    /// Starts the measuring program, which starts the server and asks it for rows of those names.
    fn boot_asked(&self, systems: &Systems, side: Side, instruments: Instruments, rows: &[&str]) -> Result<Guest> {
        let port = self.port.to_string();
        let own = systems.measure();
        // Without a root our system is given a program of this machine.
        let measure = match (side, &self.root) {
            (Side::Pelago, None) => own.to_string_lossy(),
            _ => MEASURE.into(),
        };
        let server = self.words_in_guest();
        let words = [&*measure, "ask", &port].into_iter().chain(rows.iter().copied()).chain(["--"]);
        let words: Vec<&str> = words.chain(server.iter().map(String::as_str)).collect();
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let drive = self.has_disk.then(|| drive(folder.path())).transpose()?;
        let boot = Boot { words: &words, instruments: Some(instruments), drive, ..Boot::bare(MachineType::Q35, 1) };
        let (measure, program) = (files::read(own)?, self.program()?);
        let mut guest = self.start(systems, side, boot, |archive| {
            archive.file(&format!("root{MEASURE}"), 0o755, measure);
            program.into_iter().for_each(|program| archive.file(&format!("root{PROGRAM}"), 0o755, program));
        })?;
        guest.keep(folder);
        Ok(guest)
    }

    /// Starts it; the guest, and the port of this machine that leads to it.
    fn boot(&self, systems: &Systems, side: Side, machine: MachineType, cpus: u32) -> Result<(Guest, u16)> {
        let port = port::free()?;
        let words = if side == Side::Linux { self.words_in_guest() } else { self.words.clone() };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // The emulator's own network takes one connection at a time; who came too soon tries again
        // after seconds.
        let (passt, socket) = passt::connect(&[Forward::local(port, self.port)])?;
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let drive = self.has_disk.then(|| drive(folder.path())).transpose()?;
        let boot = Boot { words: &words, socket: Some(Arc::new(socket)), drive, ..Boot::bare(machine, cpus) };
        let program = if side == Side::Linux { self.program()? } else { None };
        let mut guest = self.start(systems, side, boot, |archive| {
            program.into_iter().for_each(|program| archive.file(&format!("root{PROGRAM}"), 0o755, program));
        })?;
        guest.keep((passt, folder));
        Ok((guest, port))
    }

    /// Boots with what is served; `more` may add files.
    fn start(&self, systems: &Systems, side: Side, boot: Boot, more: impl FnOnce(&mut Archive)) -> Result<Guest> {
        let fill = |archive: &mut Archive| {
            archive.file("root/served/file", 0o644, vec![b'x'; PAGE_BYTES]);
            if let Some((name, text)) = self.settings {
                archive.file(&format!("root/served/{name}"), 0o644, text.as_bytes().to_vec());
            }
            more(archive);
        };
        match side {
            Side::Pelago => systems.boot_server(&boot, self.root.as_deref(), fill),
            Side::Linux => {
                let words = in_root_of_linux(boot.words, self.has_disk);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let boot = Boot { words: &words, ..boot };
                systems.boot_linux_filled(&boot, &[], |archive| {
                    self.add_to_linux(archive)?;
                    fill(archive);
                    Ok(())
                })
            }
        }
    }

    /// The same folder as a root directory within Linux's own.
    fn add_to_linux(&self, archive: &mut Archive) -> Result<()> {
        for folder in ["root/dev", "root/proc", "root/tmp", &format!("root{DISK_PATH}")] {
            archive.folder(folder, 0o777);
        }
        match &self.root {
            Some(root) => rootfs::add_root(archive, root, &root.metadata().context("there is no root")?),
            None => Ok(()),
        }
    }

    /// The program, if no root has it.
    fn program(&self) -> Result<Option<Vec<u8>>> {
        if self.root.is_some() { Ok(None) } else { files::read(Path::new(&self.words[0])).map(Some) }
    }

    /// With the program where the guest has it.
    fn words_in_guest(&self) -> Vec<String> {
        let mut words = self.words.clone();
        if self.root.is_none() {
            words[0] = PROGRAM.into();
        }
        words
    }
}

/// An empty disk.
fn drive(folder: &Path) -> Result<Drive> {
    let file = folder.join("disk");
    disk::format(&file, DISK_BYTES, None)?;
    Ok(Drive { file, is_read_only: false })
}

/// Linux runs it in a root directory within its own.
fn in_root_of_linux(words: &[&str], has_disk: bool) -> Vec<String> {
    let mut mounts = "for kind in devtmpfs proc; do busybox mount -t $kind none /root/${kind%tmpfs}; done".to_owned();
    if has_disk {
        // What processes have in common is in memory, there as with us.
        mounts += "; mkdir /root/dev/shm; busybox mount -t tmpfs none /root/dev/shm";
        mounts += &format!("; busybox mount -t ext4 /dev/vda /root{DISK_PATH} || exit 1");
    }
    let path = format!("PATH={}", rootfs::PATH);
    let script = format!("{mounts}; exec busybox chroot /root \"$@\"");
    ["busybox", "env", &path, "/bin/busybox", "sh", "-c", &script, "sh"]
        .into_iter()
        .chain(words.iter().copied())
        .map(str::to_owned)
        .collect()
}
