//! Tier 3: what an ordinary user meets, by running this very tool as a person does: how the guest
//! reaches this machine, and what is said when a program does not do what was hoped for.

use super::checks;
use super::door::Running;
use crate::rootfs;
use crate::scenario::{Scenario, Skip, free_port};
use anyhow::{Context, Result, bail, ensure};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

/// Asks for what is missing, and ends with the status that it is given.
const ASKS: &str = "#include <stdlib.h>\n#include <sys/ptrace.h>\n\
    int main(int count, char **words) { ptrace(PTRACE_TRACEME, 0, 0, 0); return atoi(words[1]); }\n";

type Body = fn() -> Result<()>;

pub fn scenarios() -> Vec<Scenario> {
    let all: [(&str, Body); 3] = [("host", host), ("background", background), ("refused", refused)];
    all.map(|(name, body)| Scenario::shared(3, format!("door/{name}"), move |_| body())).into()
}

/// A program finds this machine by name, through the emulator's own network and through passt.
fn host() -> Result<()> {
    if rootfs::in_path(crate::passt::PROGRAM).is_none() {
        bail!(Skip::Package { program: crate::passt::PROGRAM, package: "passt" });
    }
    let forward = format!("{}:80", free_port()?);
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
    let program = folder.path().join("asks");
    crate::files::write(&program, &checks::compile(ASKS)?)?;
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).context("cannot make it executable")?;
    let path = program.display().to_string();
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
