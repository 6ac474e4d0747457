//! Tier 3: servers that nobody here wrote, unmodified, as a stranger starts them from a root file
//! system, and small ones of ours on the runtimes of Go, tokio and Python: each answers clients of
//! the host, byte for byte, leaves its core alone where nobody asks, is told to end, and ends well.

use super::acct;
use super::cli::Running;
use super::idle::microseconds;
use super::tools;
use super::web::first_tries;
use crate::host::child;
use crate::host::late::of_transfer;
use crate::host::port;
use crate::host::skip::Skip;
use crate::image::built::Origin;
use crate::machine::control;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, bail, ensure};
use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
/// A client that waits so long has been lost.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
const ASKED: &str = "GET /page HTTP/1.0\r\n\r\n";
const KEPT: &str = "GET /page HTTP/1.1\r\nHost: here\r\n\r\n";
const SERVED: &str = "a page that is served";
/// More than is written at once.
const PAGE_BYTES: usize = 100_000;
/// Beside each other, once the first answer has come, and how often each asks.
const CLIENTS: usize = 8;
const QUESTIONS: usize = 3;
/// How long nobody asks for anything, and how often that is looked at, at most: the quietest time
/// counts, as a host that is busy with others stretches whatever a program does. One that is quiet
/// enough will do.
const REST: Duration = Duration::from_secs(3);
const LOOKS: usize = 6;
/// Questions of the control port that are measured: what one costs programs is the unit in which
/// work is told here, since a slow host or a busy one stretches both alike. Odd: the median counts.
const UNITS: usize = 9;
/// So many of them a second for the server, which had 1 to 10 with its system, mostly 5.
const SERVER_UNITS: f64 = 12.0;
/// What the system itself has of each core.
const CORE_UNITS: f64 = 5.0;
/// Of a core, what Linux programs have that nobody asks: 0.0 %.
const OWN_SHARE: f64 = 0.0005;
/// 128 and SIGTERM.
const TERMINATED: i32 = 143;
/// lighttpd ends with 0 or 1, by what it was doing; why is not known.
const ANY_STATUS: i32 = -1;
/// More than a connection's buffers.
const LARGE: usize = 1 << 20;

struct Case {
    name: &'static str,
    origin: Origin,
    cpus: u32,
    /// The program, if it is in a root, and its arguments.
    words: &'static [&'static str],
    /// Its port in the guest.
    port: u16,
    /// A file at `/served`, beside `page`.
    beside: (&'static str, &'static str),
    /// What is sent over a connection that is closed then, and all that comes back of it.
    asked: &'static str,
    answered: Answer,
    /// If it is to be quiet: what is sent over a connection that stays, and what comes back.
    kept: Option<(&'static str, Answer)>,
    /// Connections that never ask, beside that one.
    idle: usize,
    /// It has work of its own each second, on Linux too.
    ticks: bool,
    /// What ends it: 0 if it goes by itself, else 128 and the signal.
    status: i32,
    nightly: bool,
}

#[derive(Clone, Copy)]
enum Answer {
    All(&'static str),
    /// HTTP's head, and these bytes.
    Body(&'static str),
    /// HTTP's head, and the file.
    Page,
}

/// Settings, and what is the same in each.
macro_rules! nginx {
    ($settings:literal, $http:literal) => {
        concat!(
            $settings,
            " daemon off; error_log /dev/stderr warn; pid /tmp/nginx.pid; events { worker_connections 512; }\n\
            http { access_log off; client_body_temp_path /tmp/b; proxy_temp_path /tmp/p; fastcgi_temp_path /tmp/f;\n\
            uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s; ",
            $http,
            " server { listen 8080; root /served; } }\n"
        )
    };
}
const NGINX: &str = nginx!("worker_processes 2;", "");
const NGINX_USER: &str = nginx!("worker_processes 1; user www-data;", "");
const NGINX_ALONE: &str = nginx!("master_process off;", "");
const NGINX_THREADS: &str = nginx!("worker_processes 1;", "aio threads;");
const PYTHON: &str = "import http.server\n\
    http.server.ThreadingHTTPServer(('', 8080), http.server.SimpleHTTPRequestHandler).serve_forever()\n";
const PYTHON_SINGLE: &str = "import http.server\n\
    http.server.HTTPServer(('', 8080), http.server.SimpleHTTPRequestHandler).serve_forever()\n";
const SERVE: &[&str] = &["python3", "-c", "import os; os.chdir('/served'); exec(open('serve.py').read())"];
const LIGHTTPD: &str = "server.document-root = \"/served\"\nserver.port = 8080\n";
const LIGHTTPD_USER: &str = "server.document-root = \"/served\"\nserver.port = 8080\n\
    server.username = \"www-data\"\nserver.groupname = \"www-data\"\n";
const HAPROXY: &str = "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 5s\n\
    frontend web\n bind :8080\n \
    http-request return status 200 content-type text/plain string \"a page that is served\"\n";
const GUNICORN: &str = "def app(environ, start):\n    \
    start('200 OK', [('Content-Type', 'application/octet-stream')])\n    return [open('page', 'rb').read()]\n";
const NODE: &str = "require('http').createServer((asked, answer) =>\n\
    require('fs').createReadStream('/served' + asked.url).pipe(answer)).listen(8080)\n";

const WEB: Case = Case {
    name: "",
    origin: Origin::Root("web"),
    cpus: 1,
    words: &[],
    port: 8080,
    beside: ("", ""),
    asked: ASKED,
    answered: Answer::Page,
    kept: None,
    idle: 3,
    ticks: false,
    status: TERMINATED,
    nightly: false,
};
const NGINX_CASE: Case = Case {
    origin: Origin::Root("nginx"),
    words: &["nginx", "-c", "/served/nginx.conf"],
    kept: Some((KEPT, Answer::Page)),
    status: 0,
    ..WEB
};
const PYTHON_CASE: Case = Case { origin: Origin::Root("gunicorn"), words: SERVE, ..WEB };
const CASES: [Case; 23] = [
    Case {
        name: "redis",
        origin: Origin::Root("redis"),
        words: &["redis-server", "--protected-mode", "no", "--save", ""],
        port: 6379,
        asked: "SET greeting hello\r\nGET greeting\r\nQUIT\r\n",
        answered: Answer::All("+OK\r\n$5\r\nhello\r\n+OK\r\n"),
        status: 0,
        ..WEB
    },
    Case {
        name: "memcached",
        origin: Origin::Root("memcached"),
        cpus: 2,
        words: &["memcached", "-u", "root", "-l", "0.0.0.0"],
        port: 11211,
        asked: "set greeting 0 0 5\r\nhello\r\nget greeting\r\nquit\r\n",
        answered: Answer::All("STORED\r\nVALUE greeting 0 5\r\nhello\r\nEND\r\n"),
        kept: Some(("get greeting\r\n", Answer::All("VALUE greeting 0 5\r\nhello\r\nEND\r\n"))),
        ticks: true,
        status: 0,
        ..WEB
    },
    Case { name: "nginx", cpus: 2, beside: ("nginx.conf", NGINX), ..NGINX_CASE },
    Case { name: "nginx-user", beside: ("nginx.conf", NGINX_USER), nightly: true, ..NGINX_CASE },
    Case { name: "nginx-alone", cpus: 2, beside: ("nginx.conf", NGINX_ALONE), ..NGINX_CASE },
    Case { name: "nginx-threads", beside: ("nginx.conf", NGINX_THREADS), idle: 200, nightly: true, ..NGINX_CASE },
    Case {
        name: "lighttpd",
        words: &["lighttpd", "-D", "-f", "/served/lighttpd.conf"],
        beside: ("lighttpd.conf", LIGHTTPD),
        status: ANY_STATUS,
        ..WEB
    },
    Case {
        name: "lighttpd-user",
        cpus: 2,
        words: &["lighttpd", "-D", "-f", "/served/lighttpd.conf"],
        beside: ("lighttpd.conf", LIGHTTPD_USER),
        kept: Some((KEPT, Answer::Page)),
        ticks: true,
        status: ANY_STATUS,
        nightly: true,
        ..WEB
    },
    Case {
        name: "haproxy",
        words: &["haproxy", "-f", "/served/haproxy.cfg"],
        beside: ("haproxy.cfg", HAPROXY),
        answered: Answer::Body(SERVED),
        // It says with its status what ended it.
        ..WEB
    },
    Case {
        name: "gunicorn",
        cpus: 2,
        words: &["gunicorn", "--chdir", "/served", "-w", "2", "-b", ":8080", "app:app"],
        beside: ("app.py", GUNICORN),
        status: 0,
        nightly: true,
        ..PYTHON_CASE
    },
    Case { name: "python", beside: ("serve.py", PYTHON), ..PYTHON_CASE },
    Case { name: "python-single", cpus: 2, beside: ("serve.py", PYTHON_SINGLE), nightly: true, ..PYTHON_CASE },
    Case {
        name: "python-pool",
        beside: ("serve.py", include_str!("servers/pool.py")),
        kept: Some((KEPT, Answer::Page)),
        nightly: true,
        ..PYTHON_CASE
    },
    Case {
        name: "python-asyncio",
        beside: ("serve.py", include_str!("servers/asyncio_server.py")),
        kept: Some((KEPT, Answer::Page)),
        nightly: true,
        ..PYTHON_CASE
    },
    Case {
        name: "python-executor",
        cpus: 2,
        beside: ("serve.py", include_str!("servers/executor.py")),
        kept: Some((KEPT, Answer::Page)),
        nightly: true,
        ..PYTHON_CASE
    },
    Case { name: "go", origin: Origin::Go("http"), kept: Some((KEPT, Answer::Page)), ..WEB },
    Case {
        name: "go-idle",
        origin: Origin::Go("http"),
        words: &["400", "600"],
        kept: Some((KEPT, Answer::Page)),
        nightly: true,
        ..WEB
    },
    Case { name: "go-with-c", origin: Origin::GoWithC("http"), cpus: 2, nightly: true, ..WEB },
    Case { name: "tokio", origin: Origin::Tokio("http"), cpus: 2, kept: Some((KEPT, Answer::Page)), ..WEB },
    // Both ends of sockets and of pipes, and connections: it waits for 1,000 descriptors.
    Case {
        name: "tokio-idle",
        origin: Origin::Tokio("http"),
        words: &["several", "240", "250"],
        kept: Some((KEPT, Answer::Page)),
        idle: 20,
        nightly: true,
        ..WEB
    },
    Case {
        name: "tokio-single",
        origin: Origin::Tokio("http"),
        words: &["single"],
        kept: Some((KEPT, Answer::Page)),
        nightly: true,
        ..WEB
    },
    Case {
        name: "node",
        origin: Origin::Root("node"),
        words: &["node", "/served/serve.js"],
        beside: ("serve.js", NODE),
        nightly: true,
        ..WEB
    },
    Case {
        name: "java",
        origin: Origin::Java("Serve"),
        words: &["/usr/lib/jvm/java-17-openjdk-amd64/bin/java", "-cp", "/classes", "Serve"],
        nightly: true,
        ..WEB
    },
];
const APPEND_ONLY: tools::Case = tools::Case {
    name: "redis-append-only",
    origin: Origin::Root("redis"),
    cpus: 2,
    words: &["sh", "-c", include_str!("servers/append_only.sh")],
    says: "killed 137\n301 value299 one 1\nended 0\n302 value299 1\nended 0",
};
const SAVE: tools::Case = tools::Case {
    name: "redis-save",
    origin: Origin::Root("redis"),
    cpus: 1,
    words: &["sh", "-c", include_str!("servers/save.sh")],
    says: "saved ok\nkilled 137\n2001 100000 before\nended 0",
};

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for case in &CASES {
        let of = |name: String, cpus| Scenario::shared(3, name, move |_| serve(case, cpus));
        all.push(of(format!("servers/{}", case.name), case.cpus).by_night(case.nightly));
        // On the other number of cores.
        let other = 3 - case.cpus;
        all.push(of(format!("servers/{}/{other}", case.name), other).by_night(true));
    }
    // `disk-servers/redis/encrypted` appends too, and to a disk.
    let append = |_: &_| tools::run(&APPEND_ONLY);
    all.push(Scenario::shared(3, format!("servers/{}", APPEND_ONLY.name), append).by_night(true));
    let save = |_: &_| tools::run_with(&SAVE, tools::LARGE_MEMORY);
    all.push(Scenario::shared(3, format!("servers/{}", SAVE.name), save).by_night(true));
    // Its keys take long to make, and each log-in some seconds, by emulation.
    all.push(Scenario::shared(3, "servers/dropbear".into(), |_| shell()).by_night(true));
    all
}

/// A server, as a stranger starts it.
pub struct Server<'a> {
    pub origin: Origin,
    pub cpus: u32,
    /// Of the host and of the guest.
    pub port: (u16, u16),
    /// What is at `/served`.
    pub folder: &'a Path,
    /// The program, if it is in a root, and its arguments.
    pub words: &'a [&'a str],
}

impl Server<'_> {
    pub fn start(&self) -> Result<Running> {
        let (host, guest) = self.port;
        let (forward, volume) = (format!("{host}:{guest}"), format!("{}:/served", self.folder.display()));
        let (origin, cpus) = (self.origin.words()?, self.cpus.to_string());
        let options = ["--accel", "tcg", "-q", "--cpus", &cpus, "-p", &forward, "-v", &volume];
        let origin: Vec<&str> = origin.iter().map(String::as_str).collect();
        Running::start(&[&options, &origin[..], self.words].concat(), &[])
    }
}

/// Asks until there is an answer.
pub fn wait_until(run: &mut Running, ask: impl Fn() -> Result<()>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while let Err(refused) = ask() {
        run.lives()?;
        if Instant::now() >= end {
            return Err(run.late(&format!("it serves nobody within {} s: {refused:#}", LIMIT.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

fn serve(case: &Case, cpus: u32) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let file = |name: &str, bytes: &[u8]| crate::host::files::write(&folder.path().join(name), bytes);
    file("page", &page())?;
    if !case.beside.0.is_empty() {
        file(case.beside.0, case.beside.1.as_bytes())?;
    }
    let port = port::free()?;
    let (origin, words) = (case.origin, case.words);
    let mut run = Server { origin, cpus, port: (port, case.port), folder: folder.path(), words }.start()?;
    let tries = RefCell::new(first_tries());
    wait_until(&mut run, || ask(case, port, tries.borrow_mut().next()))?;
    std::thread::scope(|scope| -> Result<()> {
        let client = || (0..QUESTIONS).try_for_each(|_| ask(case, port, Some(ANSWER_LIMIT)));
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().try_for_each(|client| client.join().unwrap_or_else(|_| bail!("a client failed")))
    })?;
    if let Some((asked, answer)) = case.kept {
        let idle = (0..case.idle).map(|_| connected(port, Some(ANSWER_LIMIT))).collect::<Result<Vec<_>>>()?;
        let mut stays = connected(port, Some(ANSWER_LIMIT))?;
        stays.write_all(asked.as_bytes()).context("nothing can be sent")?;
        answer.check(&received(&mut stays, |got| answer.check(got).is_ok())?)?;
        rest(case, cpus, &mut run)?;
        drop((idle, stays));
    }
    run.signal(nix::sys::signal::Signal::SIGTERM)?;
    let status = run.finish()?;
    ensure!(case.status == ANY_STATUS || status.code() == Some(case.status), "{status}:\n{}", run.seen.join("\n"));
    Ok(())
}

fn page() -> Vec<u8> {
    (0..PAGE_BYTES).map(|at| (at % 251) as u8).collect()
}

fn connected(port: u16, limit: Option<Duration>) -> Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port)).context("no connection")?;
    stream.set_read_timeout(limit)?;
    Ok(stream)
}

/// One connection to its end, within the limit.
fn ask(case: &Case, port: u16, limit: Option<Duration>) -> Result<()> {
    let mut stream = connected(port, limit)?;
    stream.write_all(case.asked.as_bytes()).context("nothing can be sent")?;
    case.answered.check(&received(&mut stream, |_| false)?)
}

/// What comes, until that is enough or there is no more.
fn received(stream: &mut TcpStream, is_enough: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>> {
    let (mut got, mut piece) = (Vec::new(), [0; 4096]);
    while !is_enough(&got) {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => got.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Who is told to go may do so without reading to the end.
            Err(error) if error.kind() == ErrorKind::ConnectionReset && !got.is_empty() => break,
            Err(error) => return Err(error).with_context(|| format!("after {} bytes", got.len())),
        }
    }
    Ok(got)
}

impl Answer {
    fn check(self, got: &[u8]) -> Result<()> {
        let head = got.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4);
        let (start, expected) = match self {
            Answer::All(all) => (0, all.as_bytes().to_vec()),
            Answer::Body(text) => (head.unwrap_or(0), text.as_bytes().to_vec()),
            Answer::Page => (head.unwrap_or(0), page()),
        };
        let begins = String::from_utf8_lossy(&got[..got.len().min(300)]);
        ensure!(got[start..] == expected, "the answer has {} bytes and begins {begins:?}", got.len());
        Ok(())
    }
}

/// Nobody asks: programs leave all cores alone, but for the work of so many questions a second, and
/// what runs on Linux itself has 0.0 % of one.
fn rest(case: &Case, cpus: u32, run: &mut Running) -> Result<()> {
    let most = SERVER_UNITS + CORE_UNITS * f64::from(cpus);
    let (mut least, mut share, mut own_share) = (f64::MAX, 0.0, f64::MAX);
    for _ in 0..LOOKS {
        let times = (0..=UNITS).map(|_| used(run)).collect::<Result<Vec<_>>>()?;
        let mut units: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        units.sort_unstable();
        let unit = units[UNITS / 2].max(1);
        let (own_before, before, start) = (used_by_linux(run)?, used(run)?, Instant::now());
        std::thread::sleep(REST);
        let (after, seconds) = (used(run)?, start.elapsed().as_secs_f64());
        own_share = own_share.min(used_by_linux(run)?.saturating_sub(own_before) as f64 / seconds / 1e6);
        // What it costs to look is in what is seen.
        let own = (after - before).saturating_sub(unit) as f64;
        if own / unit as f64 / seconds < least {
            (least, share) = (own / unit as f64 / seconds, own / seconds / 1e4);
        }
        if least <= most && (case.ticks || own_share < OWN_SHARE) {
            break;
        }
    }
    println!(
        "     {}/{cpus}: with {} idle connections it had {:.2} % of a core, with the system {share:.2} %, {least:.1} \
        questions a second",
        case.name,
        case.idle,
        100.0 * own_share
    );
    // A program that the host stops as it runs has had that time, too.
    if !case.ticks && own_share >= OWN_SHARE {
        return Err(run.late(&format!("nobody asked, and it had {:.2} % of a core", 100.0 * own_share)));
    }
    if least > most {
        return Err(run.late(&format!("nobody asked, and programs did the work of {least:.1} questions a second")));
    }
    Ok(())
}

/// Microseconds that programs had all cores together.
fn used(run: &Running) -> Result<u64> {
    let lines = control::request(Some(run.id()), "cores")?;
    let times: Vec<_> = lines.iter().filter_map(|line| microseconds(line)).collect();
    ensure!(!times.is_empty(), "`cores` says {lines:?}");
    Ok(times.iter().sum())
}

/// Microseconds that Linux processes had.
fn used_by_linux(run: &Running) -> Result<u64> {
    let mut lines = control::request(Some(run.id()), "acct")?;
    let end = lines.pop().unwrap_or_default();
    ensure!(end.starts_with("ok"), "acct says `{end}`");
    let cores = acct::read(&lines)?;
    let domains = cores.iter().flat_map(|core| &core.domains);
    Ok(domains.filter(|(name, _)| name.starts_with("linux-")).map(|(_, domain)| domain.ran).sum())
}

/// ssh of the host: who has the key runs commands in the guest, with their status, and bytes in
/// both directions.
fn shell() -> Result<()> {
    for program in ["ssh", "ssh-keygen"] {
        if crate::host::path::find(program).is_none() {
            bail!(Skip::Package { program, package: "openssh-client" });
        }
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("home/.ssh")).context("cannot make a folder")?;
    let mut maker = Command::new("ssh-keygen");
    maker.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path("key"));
    ensure!(child::status(&mut maker, child::SHORT)?.success(), "ssh-keygen fails");
    std::fs::copy(path("key.pub"), path("home/.ssh/authorized_keys")).context("there is no key")?;
    for private in ["home", "home/.ssh", "home/.ssh/authorized_keys"] {
        let owner_only = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(path(private), owner_only).context("cannot change permissions")?;
    }
    crate::host::files::write(&path("home/passwd"), b"root:x:0:0:root:/served:/bin/sh\n")?;
    let port = port::free()?;
    let script = "cp /served/passwd /etc; mkdir /etc/dropbear; exec dropbear -F -E -R";
    let home = path("home");
    let words = ["sh", "-c", script];
    let server = Server { origin: Origin::Root("tools"), cpus: 2, port: (port, 22), folder: &home, words: &words };
    let mut run = server.start()?;
    let ask = |command: &str, input: &[u8]| ssh(port, &path("key"), command, input);
    wait_until(&mut run, || {
        let (status, said) = ask("echo $((6 * 7)); exit 5", b"")?;
        ensure!(status == Some(5) && said == b"42\n", "status {status:?}: {}", String::from_utf8_lossy(&said));
        Ok(())
    })?;
    let sent: Vec<u8> = (0..LARGE).map(|at| (at / 7) as u8).collect();
    let (status, got) = ask("cat", &sent)?;
    ensure!(status == Some(0) && got == sent, "status {status:?}, {} bytes of {LARGE}, or others", got.len());
    run.signal(nix::sys::signal::Signal::SIGTERM)?;
    run.finish().map(drop)
}

/// The status of a command in the guest, and what it says.
fn ssh(port: u16, key: &Path, command: &str, input: &[u8]) -> Result<(Option<i32>, Vec<u8>)> {
    let mut ssh = Command::new("ssh");
    ssh.args(["-F", "none", "-p", &port.to_string(), "-i"]).arg(key);
    for option in ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes", "ConnectTimeout=20"] {
        ssh.args(["-o", option]);
    }
    ssh.args(["root@127.0.0.1", command]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut ssh = ssh.spawn().context("cannot run ssh")?;
    let mut to = ssh.stdin.take().context("no input")?;
    std::thread::scope(|scope| {
        // What the other side does not take is seen in what comes back.
        scope.spawn(move || drop(to.write_all(input)));
        let output = child::finish(ssh, "ssh", LIMIT).map_err(of_transfer)?;
        Ok((output.status.code(), output.stdout))
    })
}

#[cfg(test)]
mod tests {
    use super::super::disk_servers;
    use super::*;

    const FORMS: &str = include_str!("../../../../../docs/servers.md");
    /// So many of the 30 are to serve.
    const WANTED: usize = 25;

    #[test]
    fn the_page_of_forms_names_scenarios_that_there_are() {
        let rows = FORMS.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
        let rows: Vec<Vec<&str>> = rows.map(|row| row.split('|').map(str::trim).collect()).collect();
        let others = tools::scenarios().into_iter().chain(disk_servers::scenarios());
        let all: Vec<Scenario> = scenarios().into_iter().chain(others).collect();
        for row in rows.iter().filter(|row| row[1] != "–") {
            let name = row[1].trim_end_matches(" ☾").trim_matches('`');
            let found = all.iter().find(|scenario| scenario.name == name);
            let is_by_night = found.unwrap_or_else(|| panic!("there is no {name}")).nightly;
            assert_eq!(row[1].ends_with('☾'), is_by_night, "{name}");
            assert!(row[2].starts_with("serves"), "{name}");
        }
        let serving = rows.iter().filter(|row| row[2].starts_with("serves") && row[1] != "–").count();
        assert!(rows.len() == 30 && serving >= WANTED, "{serving} of {}", rows.len());
    }
}
