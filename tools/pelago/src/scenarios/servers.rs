//! Tier 3: servers that nobody here wrote, unmodified, as a stranger starts them from a root file
//! system: each is asked from the host, told to end, and ends well.

use super::door::Running;
use super::web::first_tries;
use crate::late::of_transfer;
use crate::scenario::{Scenario, Skip, free_port};
use crate::{child, place};
use anyhow::{Context, Result, bail, ensure};
use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
const PAGE: &str = "GET /page HTTP/1.0\r\n\r\n";
const SERVED: &str = "a page that is served";
/// 128 and SIGTERM.
const TERMINATED: i32 = 143;
/// More than a connection's buffers.
const LARGE: usize = 1 << 20;

struct Case {
    name: &'static str,
    /// The root that it is in.
    root: &'static str,
    program: &'static str,
    /// Its port in the guest.
    port: u16,
    arguments: &'static [&'static str],
    /// A file at `/served/page`, and what lies beside it.
    beside: (&'static str, &'static str),
    /// What is sent, and what an answer has.
    asked: &'static str,
    answered: &'static str,
    /// What ends it: 0 if it goes by itself, else 128 and the signal.
    status: i32,
}

const NGINX: &str = "daemon off; worker_processes 2; error_log /dev/stderr warn; pid /tmp/nginx.pid;\n\
    events { worker_connections 64; }\n\
    http { access_log off; client_body_temp_path /tmp/b; proxy_temp_path /tmp/p; fastcgi_temp_path /tmp/f;\n\
    uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s; server { listen 8080; root /served; } }\n";
const PYTHON: &str = "import http.server\n\
    http.server.ThreadingHTTPServer(('', 8080), http.server.SimpleHTTPRequestHandler).serve_forever()\n";
const LIGHTTPD: &str = "server.document-root = \"/served\"\nserver.port = 8080\n";
const HAPROXY: &str = "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 5s\n\
    frontend web\n bind :8080\n \
    http-request return status 200 content-type text/plain string \"a page that is served\"\n";
const GUNICORN: &str = "def app(environ, start):\n    \
    start('200 OK', [('Content-Type', 'text/plain')])\n    return [open('page', 'rb').read()]\n";
const NODE: &str = "require('http').createServer((asked, answer) =>\n\
    require('fs').createReadStream('/served' + asked.url).pipe(answer)).listen(8080)\n";

const CASES: [Case; 7] = [
    Case {
        name: "redis",
        root: "redis",
        program: "redis-server",
        port: 6379,
        arguments: &["--protected-mode", "no", "--save", ""],
        beside: ("", ""),
        asked: "SET greeting hello\r\nGET greeting\r\nQUIT\r\n",
        answered: "$5\r\nhello",
        status: 0,
    },
    Case {
        name: "memcached",
        root: "memcached",
        program: "memcached",
        port: 11211,
        arguments: &["-u", "root", "-l", "0.0.0.0"],
        beside: ("", ""),
        asked: "set greeting 0 0 5\r\nhello\r\nget greeting\r\nquit\r\n",
        answered: "VALUE greeting 0 5\r\nhello",
        status: 0,
    },
    Case {
        name: "python",
        root: "gunicorn",
        program: "python3",
        port: 8080,
        arguments: &["-c", "import os; os.chdir('/served'); exec(open('serve.py').read())"],
        beside: ("serve.py", PYTHON),
        asked: PAGE,
        answered: SERVED,
        status: TERMINATED,
    },
    page("nginx", "nginx", &["-c", "/served/nginx.conf"], ("nginx.conf", NGINX), 0),
    page("lighttpd", "web", &["-D", "-f", "/served/lighttpd.conf"], ("lighttpd.conf", LIGHTTPD), ANY_STATUS),
    // It says with its status what ended it.
    page("haproxy", "web", &["-f", "/served/haproxy.cfg"], ("haproxy.cfg", HAPROXY), TERMINATED),
    page("gunicorn", "gunicorn", &["--chdir", "/served", "-w", "2", "-b", ":8080", "app:app"], ("app.py", GUNICORN), 0),
];
/// lighttpd ends with 0 or 1, by what it was doing; why is not known.
const ANY_STATUS: i32 = -1;
const NODE_CASE: Case = page("node", "node", &["/served/serve.js"], ("serve.js", NODE), TERMINATED);

/// A server of one file, which it reads from `/served` or knows.
const fn page(
    name: &'static str,
    root: &'static str,
    arguments: &'static [&'static str],
    beside: (&'static str, &'static str),
    status: i32,
) -> Case {
    Case { name, root, program: name, port: 8080, arguments, beside, asked: PAGE, answered: SERVED, status }
}

pub fn scenarios() -> Vec<Scenario> {
    let of = |case: &'static Case| Scenario::shared(3, format!("servers/{}", case.name), |_| serve(case));
    let mut all: Vec<_> = CASES.iter().map(of).collect();
    all.push(Scenario { nightly: true, ..of(&NODE_CASE) });
    all.push(Scenario::shared(3, "servers/dropbear".into(), |_| shell()));
    all
}

/// A server from its root, as a stranger starts it.
pub struct Server<'a> {
    /// The root's name in `tools/machine.sh`.
    pub root: &'static str,
    /// Of the host and of the guest.
    pub port: (u16, u16),
    /// What is at `/served`.
    pub folder: &'a Path,
    pub arguments: &'a [&'a str],
}

impl Server<'_> {
    pub fn start(&self) -> Result<Running> {
        let root = place::test_root(self.root);
        if !root.is_dir() {
            bail!(Skip::Root(self.root));
        }
        let (host, guest) = self.port;
        let (forward, volume) = (format!("{host}:{guest}"), format!("{}:/served", self.folder.display()));
        let root = root.display().to_string();
        let words = ["--accel", "tcg", "-q", "-p", &forward, "--rootfs", &root, "-v", &volume];
        Running::start(&[&words, self.arguments].concat(), &[])
    }
}

/// Asks until there is an answer.
pub fn wait_until(run: &mut Running, ask: impl Fn() -> Result<()>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while let Err(refused) = ask() {
        run.lives()?;
        ensure!(Instant::now() < end, "{refused:#}:\n{}", run.said().join("\n"));
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

fn serve(case: &Case) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let file = |name: &str, text: &str| crate::files::write(&folder.path().join(name), text.as_bytes());
    file("page", SERVED)?;
    if !case.beside.0.is_empty() {
        file(case.beside.0, case.beside.1)?;
    }
    let port = free_port()?;
    let arguments = [&[case.program], case.arguments].concat();
    let server = Server { root: case.root, port: (port, case.port), folder: folder.path(), arguments: &arguments };
    let mut run = server.start()?;
    let tries = RefCell::new(first_tries());
    wait_until(&mut run, || ask(case, port, tries.borrow_mut().next()))?;
    run.signal(nix::sys::signal::Signal::SIGTERM)?;
    let status = run.finish()?;
    ensure!(case.status == ANY_STATUS || status.code() == Some(case.status), "{status}:\n{}", run.seen.join("\n"));
    Ok(())
}

/// One connection, one answer, within the limit.
fn ask(case: &Case, port: u16, limit: Option<Duration>) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("no connection")?;
    stream.set_read_timeout(limit)?;
    stream.write_all(case.asked.as_bytes()).context("nothing can be sent")?;
    let (mut answer, mut piece) = (String::new(), [0; 4096]);
    // What comes after the answer is none of ours, a reset or nothing.
    while !answer.contains(case.answered) {
        match stream.read(&mut piece) {
            Ok(count @ 1..) => answer += &String::from_utf8_lossy(&piece[..count]),
            _ => bail!("the answer is {answer:?}"),
        }
    }
    Ok(())
}

/// ssh of the host: who has the key runs commands in the guest, with their status, and bytes in
/// both directions.
fn shell() -> Result<()> {
    for program in ["ssh", "ssh-keygen"] {
        if crate::rootfs::in_path(program).is_none() {
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
    crate::files::write(&path("home/passwd"), b"root:x:0:0:root:/served:/bin/sh\n")?;
    let port = free_port()?;
    let script = "cp /served/passwd /etc; mkdir /etc/dropbear; exec dropbear -F -E -R";
    let home = path("home");
    let server = Server { root: "tools", port: (port, 22), folder: &home, arguments: &["sh", "-c", script] };
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
