//! Tier 3: what an ordinary user meets, by running this very tool as a person does: how the guest
//! reaches this machine, and what is said when a program does not do what was hoped for.

use super::door::Running;
use crate::rootfs;
use crate::scenario::{Scenario, Skip, free_port};
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::TcpListener;

type Body = fn() -> Result<()>;

pub fn scenarios() -> Vec<Scenario> {
    let all: [(&str, Body); 2] = [("host", host), ("background", background)];
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
