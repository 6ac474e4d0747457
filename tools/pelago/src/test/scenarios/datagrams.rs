//! Tier 3: UDP, IPv6 sockets that speak IPv4, shared ports, closed sockets: a program of checks
//! (`datagrams.c`), and datagrams to and from the host.

use super::checks;
use super::cli::Running;
use crate::host::port;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, ensure};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const CHECKS: &str = include_str!("datagrams.c");
const LIMIT: Duration = Duration::from_secs(60);
const ROUNDS: u8 = 50;
/// As long as leaves in one packet.
const LONG_BYTES: usize = 1472;
/// Asks the host, then answers it until told to end. How long it waits is for this side to say.
const PROGRAM: &str = "import socket, sys\n\
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
    one.connect(('10.0.2.2', int(sys.argv[1])))\n\
    for i in range(50):\n\
    \x20   one.send(bytes([i]) * 1400)\n\
    \x20   assert one.recv(2000) == bytes([i]) * 1400\n\
    two = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
    two.bind(('', 5353))\n\
    while True:\n\
    \x20   got, source = two.recvfrom(2000)\n\
    \x20   if got == b'end':\n\
    \x20       break\n\
    \x20   two.sendto(got, source)\n";

pub fn scenarios() -> Vec<Scenario> {
    let checks =
        |cpus: u32| Scenario::shared(3, format!("datagrams/{cpus}"), move |bench| checks::run(bench, cpus, CHECKS));
    let mut all: Vec<_> = [1, 2].map(checks).into();
    all.push(Scenario::shared(3, "datagrams/host".into(), |_| with_host()));
    all
}

/// Socket of the host that waits for a while only.
fn socket() -> Result<UdpSocket> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).context("no socket")?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    Ok(socket)
}

fn with_host() -> Result<()> {
    let (server, port) = (socket()?, port::free()?);
    let (asked, forward) = (server.local_addr()?.port().to_string(), format!("{port}:5353/udp"));
    let words =
        ["--accel", "tcg", "-q", "-p", &forward, "--package", "python3", "/usr/bin/python3", "-c", PROGRAM, &asked];
    let mut run = Running::start(&words, &[])?;
    answer(&server, &mut run)?;
    ask(port, &mut run)?;
    let status = run.finish()?;
    ensure!(status.success(), "{status}:\n{}", run.seen.join("\n"));
    Ok(())
}

/// Answers the guest's questions.
fn answer(server: &UdpSocket, run: &mut Running) -> Result<()> {
    let end = Instant::now() + LIMIT;
    let mut answered = 0;
    while answered < ROUNDS {
        run.lives()?;
        if Instant::now() >= end {
            return Err(run.late(&format!("{answered} datagrams came")));
        }
        let mut bytes = [0; 2000];
        // A limit that ran out is seen above.
        if let Ok((length, source)) = server.recv_from(&mut bytes) {
            ensure!(length == 1400, "{length} bytes came");
            server.send_to(&bytes[..length], source).context("nothing can be sent")?;
            answered += 1;
        }
    }
    Ok(())
}

/// Asks the guest, then tells it to end.
fn ask(port: u16, run: &mut Running) -> Result<()> {
    let client = socket()?;
    client.connect(("127.0.0.1", port))?;
    let end = Instant::now() + LIMIT;
    let mut bytes = [0; 2000];
    for round in 0..ROUNDS {
        let question = vec![round; LONG_BYTES - usize::from(round)];
        loop {
            run.lives()?;
            if Instant::now() >= end {
                return Err(run.late(&format!("{round} answers came")));
            }
            // Before the guest is bound, the host is told that nobody is there.
            let sent = client.send(&question);
            if sent.and_then(|_| client.recv(&mut bytes)).is_ok_and(|length| bytes[..length] == question) {
                break;
            }
        }
    }
    client.send(b"end").map(drop).context("nothing can be sent")
}
