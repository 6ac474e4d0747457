//! Writes to Debian's redis, which keeps an append-only file and syncs each.

use super::{ANSWER_LIMIT, CLIENTS, Client, Disk, Server, connected, write};
use crate::image::built::Origin;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// As in the README.
const SERVER: Server = Server {
    origin: Origin::Root("redis"),
    port: 6379,
    words: &[
        "redis-server",
        "--protected-mode",
        "no",
        "--dir",
        "/data",
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ],
    connect,
};
/// The longest value.
const VALUE_BYTES: u64 = 600;

pub fn scenarios() -> Vec<Scenario> {
    let of = |name: &str, key| Scenario::shared(4, name.to_owned(), move |_| redis(key));
    // Encrypted it goes through all that it does plain.
    vec![of("disk-servers/redis", None).by_night(true), of("disk-servers/redis/encrypted", Some("open, sesame"))]
}

fn redis(key: Option<&str>) -> Result<()> {
    let disk = Disk::new(key)?;
    let faults: &[&str] =
        if key.is_some() { &["kill crypto", "kill disk", "hang crypto"] } else { &["kill disk", "hang disk"] };
    let mut run = disk.start(&SERVER, (",size=128M", &[]), &[0; CLIENTS])?;
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
    let mut run = disk.start(&SERVER, ("", &[]), &kept)?;
    let kept = write(&mut run, &kept, |writing| {
        writing.goes_on()?;
        writing.break_one("kill volume")?;
        writing.ends()
    })?;
    ensure!(!run.running.finish()?.success(), "redis went on without its file");
    let mut run = disk.start(&SERVER, ("", &[]), &kept)?;
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

struct Connection {
    stream: BufReader<TcpStream>,
    client: usize,
}

fn connect(port: u16, client: usize, limit: Duration) -> Result<Box<dyn Client>> {
    let mut connection = Connection { stream: connected(port, limit)?, client };
    let answer = connection.ask("PING")?;
    ensure!(answer == "+PONG", "it answers {answer}");
    connection.stream.get_ref().set_read_timeout(Some(ANSWER_LIMIT))?;
    Ok(Box::new(connection))
}

impl Connection {
    /// Asks; the first line of the answer. An error: the connection ended.
    fn ask(&mut self, question: &str) -> Result<String> {
        self.stream.get_mut().write_all(format!("{question}\r\n").as_bytes()).context("it cannot be sent")?;
        let mut line = String::new();
        self.stream.read_line(&mut line).context("no answer")?;
        ensure!(line.ends_with("\r\n"), "the connection ended");
        Ok(line.trim_end().to_owned())
    }
}

/// What a client's write of that number sets.
fn value(client: usize, number: u64) -> String {
    format!("{number:0width$}-{client}", width = (number * 37 % VALUE_BYTES + 1) as usize)
}

impl Client for Connection {
    fn write(&mut self, number: u64) -> Result<()> {
        let client = self.client;
        let answer = self.ask(&format!("SET {client}:{number} {}", value(client, number)))?;
        ensure!(answer == "+OK", "it answers {answer}");
        Ok(())
    }

    fn look(&mut self, last: u64) -> Result<()> {
        let client = self.client;
        for number in 1..=last {
            let key = format!("{client}:{number}");
            let length = self.ask(&format!("GET {key}"))?;
            let wanted = value(client, number);
            ensure!(length == format!("${}", wanted.len()), "{key} of {last} that were acknowledged: {length}");
            let mut found = vec![0; wanted.len() + 2];
            self.stream.read_exact(&mut found).context("half an answer")?;
            ensure!(found == format!("{wanted}\r\n").as_bytes(), "{key} is {}", String::from_utf8_lossy(&found));
        }
        let beyond = self.ask(&format!("EXISTS {client}:{}", last + 2))?;
        ensure!(beyond == ":0", "client {client} never wrote {}, and it is there: {beyond}", last + 2);
        Ok(())
    }
}
