//! Tier 3: what an ordinary user meets, by running this very tool as a person does: how the guest
//! reaches this machine, and what is said when a program does not do what was hoped for.

use super::checks;
use super::cli::Running;
use crate::host::port;
use crate::host::skip::Skip;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, bail, ensure};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// Asks for what is missing, and ends with the status that it is given.
const ASKS: &str = "#include <stdlib.h>\n#include <sys/ptrace.h>\n\
    int main(int count, char **words) { ptrace(PTRACE_TRACEME, 0, 0, 0); return atoi(words[1]); }\n";

/// Says this and that at `/dev/log`: by the C library, 1,000 times, and over a stream, and ends.
const SPEAKS: &str = r#"
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>
int main(void) {
    struct sockaddr_un log = { .sun_family = AF_UNIX, .sun_path = "/dev/log" };
    openlog("speaker", LOG_NDELAY, LOG_DAEMON);
    for (int count = 0; count < 1000; count++) syslog(LOG_ERR, "message %d", count);
    int stream = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(stream, (struct sockaddr *)&log, sizeof log) < 0) return 1;
    return write(stream, "<30>over a stream", 17) != 17;
}
"#;

/// So many messages are those.
const SPOKEN: usize = 1001;

/// A server that speaks first: greets one client and ends when that has left.
const GREETS: &str = r#"
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
int main(void) {
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(25) };
    int server = socket(AF_INET, SOCK_STREAM, 0), client;
    char rest;
    if (bind(server, (struct sockaddr *)&address, sizeof address) < 0 || listen(server, 8) < 0) return 1;
    puts("ready");
    fflush(stdout);
    if ((client = accept(server, NULL, NULL)) < 0 || write(client, "220 here\n", 9) != 9) return 2;
    return read(client, &rest, 1) != 0;
}
"#;
const GREETING_LIMIT: Duration = Duration::from_secs(30);

/// A package's file that every Debian has.
const OF_ETC_OR_LIB: &str = "/usr/lib/os-release";

type Body = fn() -> Result<()>;

pub fn scenarios() -> Vec<Scenario> {
    let all: [(&str, Body); 7] = [
        ("host", host),
        ("greeting", greeting),
        ("background", background),
        ("refused", refused),
        ("belongs", belongs),
        ("set-up", set_up),
        ("log", log),
    ];
    all.map(|(name, body)| Scenario::shared(3, format!("first-run/{name}"), move |_| body())).into()
}

/// Compiles a program into the folder; its path.
fn compiled(folder: &Path, name: &str, source: &str) -> Result<String> {
    let program = folder.join(name);
    crate::host::files::write(&program, &checks::compile(source)?)?;
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).context("cannot make it executable")?;
    Ok(program.display().to_string())
}

/// A program finds this machine by name, through the emulator's own network and through passt.
fn host() -> Result<()> {
    if crate::host::path::find(crate::machine::passt::PROGRAM).is_none() {
        bail!(Skip::Package { program: crate::machine::passt::PROGRAM, package: "passt" });
    }
    let forward = format!("{}:80", port::free()?);
    for network in [&[][..], &["-p", &forward]] {
        let listener = TcpListener::bind("127.0.0.1:0").context("no free port")?;
        let address = format!("http://host:{}/", listener.local_addr()?.port());
        // It waits in vain if the guest does not come, and ends with this process.
        std::thread::spawn(move || greet(&listener));
        let words = ["--accel", "tcg", "busybox", "wget", "-q", "-O", "-", &address];
        let mut run = Running::start(&[network, &words].concat(), &[])?;
        run.expect("greetings from the host")?;
        let status = run.finish()?;
        ensure!(status.success(), "{status} with {network:?}");
    }
    Ok(())
}

/// Answers one request.
fn greet(listener: &TcpListener) -> std::io::Result<()> {
    let (mut client, _) = listener.accept()?;
    // Closed with something unread, the connection would be reset. A request is one segment.
    client.read(&mut [0; 4096]).map(drop)?;
    client.write_all(b"HTTP/1.0 200 OK\r\n\r\ngreetings from the host\n")
}

/// A client that waits for the server to speak first is greeted, by the emulator's own network.
fn greeting() -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = compiled(folder.path(), "greets", GREETS)?;
    let port = port::free()?;
    let forward = format!("{port}:25");
    let mut run = Running::start(&["--accel", "tcg", "--network", "emulator", "-p", &forward, &path], &[])?;
    run.expect("ready")?;
    let mut client = TcpStream::connect(("127.0.0.1", port)).context("no connection")?;
    client.set_read_timeout(Some(GREETING_LIMIT))?;
    let mut greeting = [0; 9];
    client.read_exact(&mut greeting).context("no greeting")?;
    ensure!(&greeting == b"220 here\n", "the greeting is {greeting:?}");
    drop(client);
    let status = run.finish()?;
    ensure!(status.success(), "{status}: {:?}", run.seen);
    Ok(())
}

/// A server that goes into the background ends the machine, and the tool says why and what to do.
fn background() -> Result<()> {
    let mut run = Running::start(&["--accel", "tcg", "-q", "busybox", "httpd", "-p", "80"], &[])?;
    let line = run.expect("busybox went into the background")?;
    ensure!(line.contains("httpd -f"), "the line names no remedy: {line}");
    let status = run.finish()?;
    ensure!(status.success() && run.seen.len() == 1, "{status}: {:?}", run.seen);
    Ok(())
}

/// A program that ends badly after it was refused a call gets a line that names the call and the
/// page, also by `-q`; one that ends well gets none.
fn refused() -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = compiled(folder.path(), "asks", ASKS)?;
    for status in [3, 0] {
        let mut run = Running::start(&["--accel", "tcg", "-q", &path, &status.to_string()], &[])?;
        let ended = run.finish()?;
        ensure!(ended.code() == Some(status), "{ended} instead of {status}: {:?}", run.seen);
        let words = "ended with status 3; last refused: Linux call 101 ptrace (docs/linux-coverage.md)";
        let is_told = run.seen.len() == 1 && run.seen[0].ends_with(words);
        ensure!(if status == 0 { run.seen.is_empty() } else { is_told }, "{:?}", run.seen);
    }
    Ok(())
}

/// A data base of dpkg's with one installed package, of these files; gives its folder.
fn data_base(folder: &Path, package: &str, files: &[&str]) -> Result<String> {
    let base = folder.join("dpkg");
    let status = format!(
        "Package: {package}\nStatus: install ok installed\nMaintainer: nobody <nobody@example.org>\n\
         Architecture: all\nVersion: 1\nDescription: a test\n"
    );
    let list: String = ["/."].iter().chain(files).map(|path| format!("{path}\n")).collect();
    crate::host::files::write(&base.join("status"), status.as_bytes())?;
    crate::host::files::write(&base.join("info/format"), b"1\n")?;
    crate::host::files::write(&base.join(format!("info/{package}.list")), list.as_bytes())?;
    Ok(base.display().to_string())
}

/// A program of a package that was not named, and so lacks what it reads, ends badly: the package
/// is named.
fn belongs() -> Result<()> {
    if crate::host::path::find("dpkg-query").is_none() || !Path::new(OF_ETC_OR_LIB).exists() {
        bail!(Skip::Cannot("this machine is no Debian".into()));
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let real = folder.path().canonicalize().context("the folder is gone")?;
    let program = real.join("tool");
    crate::host::files::write(&program, b"#!/bin/sh\nexit $1\n")?;
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).context("cannot make it executable")?;
    let path = program.display().to_string();
    // The package has a link only: what that leads to is lacking whether it is asked for or not.
    let link = real.join("tool.conf");
    std::os::unix::fs::symlink(OF_ETC_OR_LIB, &link).context("cannot make a link")?;
    let base = data_base(&real, "tool-light", &[&path, &link.display().to_string()])?;
    let told = "pelago: tool belongs to tool-light: add --package tool-light";
    for (options, status, is_told) in
        [(&[][..], 3, true), (&[], 0, false), (&["-q"], 3, false), (&["--package", "tool-light"], 3, false)]
    {
        let argument = status.to_string();
        let words = [&["--accel", "tcg"], options, &[&path, &argument]].concat();
        let mut run = Running::start(&words, &[("DPKG_ADMINDIR", &base)])?;
        let ended = run.finish()?;
        ensure!(ended.code() == Some(status), "{ended} instead of {status}: {:?}", run.seen);
        ensure!(run.seen.iter().any(|line| line == told) == is_told, "{words:?}: {:?}", run.seen);
    }
    Ok(())
}

/// With a package come the user that its script names, and the folders of its table, whose they
/// are.
fn set_up() -> Result<()> {
    const USER: &str = "backup:x:34:34:";
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    if crate::host::path::find("dpkg-query").is_none() || !passwd.lines().any(|line| line.starts_with(USER)) {
        bail!(Skip::Cannot("this machine is no Debian".into()));
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let real = folder.path().canonicalize().context("the folder is gone")?;
    let table = real.join("usr/lib/tmpfiles.d/tool.conf");
    crate::host::files::write(&table, b"# Type Path Mode User Group\nd /run/tool 2750 backup backup - -\n")?;
    let base = data_base(&real, "tool", &[&table.display().to_string()])?;
    let script = b"#!/bin/sh\nset -e\nadduser --quiet --system backup\n";
    crate::host::files::write(&Path::new(&base).join("info/tool.postinst"), script)?;
    let asked = "stat -c '%n %a %u %g' /run/tool; grep -c ^backup: /etc/passwd /etc/group; \
        chown 5:60 /run/tool; stat -c 'now %u %g' /run/tool";
    let words = ["--accel", "tcg", "-q", "--package", "tool", "busybox", "sh", "-c", asked];
    let mut run = Running::start(&words, &[("DPKG_ADMINDIR", &base)])?;
    let status = run.finish()?;
    let expected = ["/run/tool 2750 34 34", "/etc/passwd:1", "/etc/group:1", "now 5 60"];
    ensure!(status.success() && run.seen == expected, "{status}: {:?}", run.seen);
    Ok(())
}

/// What a program says at `/dev/log` is on standard error, a line a second at most and the last one
/// in any case.
fn log() -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = compiled(folder.path(), "speaks", SPEAKS)?;
    let mut run = Running::start(&["--accel", "tcg", &path], &[])?;
    let status = run.finish()?;
    let told: Vec<_> =
        run.seen.iter().filter_map(|line| line.strip_prefix("pelago: process: log of speaks: ")).collect();
    let (Some(first), Some(last)) = (told.first(), told.last()) else {
        bail!("nothing of the log is shown: {:?}", run.seen);
    };
    // As syslog(3) writes them: time, name, text.
    ensure!(!first.starts_with('<') && first.ends_with("speaker: message 0"), "the first line is {first}");
    ensure!(last.starts_with("over a stream") && told.len() < 100, "{} lines, the last {last}", told.len());
    // What is not shown is counted, by whichever line came next.
    let more = |line: &&str| line.split_once(" (and ")?.1.split(' ').next()?.parse::<usize>().ok();
    let counted: usize = told.iter().filter_map(more).sum();
    ensure!(told.len() + counted == SPOKEN, "{} lines and {counted} more are not {SPOKEN}: {told:?}", told.len());
    let mut quiet = Running::start(&["--accel", "tcg", "-q", &path], &[])?;
    let quiet_status = quiet.finish()?;
    ensure!(status.success() && quiet_status.success(), "{status}, {quiet_status}: {:?}", run.seen);
    ensure!(quiet.seen.is_empty(), "a quiet run says {:?}", quiet.seen);
    Ok(())
}
