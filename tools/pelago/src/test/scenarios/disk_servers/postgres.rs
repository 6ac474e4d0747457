//! Rows in Debian's PostgreSQL, each in a transaction of its own. Clients speak the protocol of
//! PostgreSQL, version 3: a kind, a length that counts itself, and what is said.

use super::{ANSWER_LIMIT, CLIENTS, Client, Disk, Server, connected, write};
use crate::image::built::{Origin, POSTGRES};
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const SERVER: Server = Server { origin: Origin::Root("postgres"), port: 5432, words: &["sh", "/postgres.sh"], connect };
/// A message that is longer is none.
const MESSAGE_MAX: usize = 1 << 16;
/// 3.0
const PROTOCOL: u32 = 3 << 16;
const AUTHENTICATION: u8 = b'R';
const ERROR: u8 = b'E';
const ROW: u8 = b'D';
const READY: u8 = b'Z';

pub fn scenario() -> Scenario {
    Scenario::shared(4, "disk-servers/postgres".into(), |_| postgres()).by_night(true)
}

fn postgres() -> Result<()> {
    let disk = Disk::new(None)?;
    let script = disk.folder.path().join("postgres.sh");
    crate::host::files::write(&script, POSTGRES.as_bytes())?;
    let script = format!("{}:/postgres.sh", script.display());
    let options = ["-m", "1G", "-v", &script];
    let none = [0; CLIENTS];
    let mut run = disk.start(&SERVER, (",size=512M", &options), &none)?;
    let faults = ["kill disk", "hang disk"];
    let kept = write(&mut run, &none, |writing| {
        for fault in faults {
            writing.goes_on()?;
            writing.break_one(fault)?;
        }
        writing.goes_on()?;
        writing.refused()?;
        writing.kill_emulator()
    })?;
    ensure!(!run.running.finish()?.success(), "the emulator was killed, and the tool ended well");
    let mut run = disk.start(&SERVER, ("", &options), &kept)?;
    let kept = write(&mut run, &kept, |writing| {
        writing.goes_on()?;
        writing.refused()
    })?;
    // PostgreSQL writes all out then, and ends.
    run.running.signal(Signal::SIGTERM)?;
    let status = run.running.finish()?;
    ensure!(status.success(), "{status}:\n{}", run.running.said().join("\n"));
    let all: u64 = kept.iter().sum();
    println!(
        "     {all} rows of {CLIENTS} clients: all were there after {}, and the emulator's death",
        faults.join(", ")
    );
    disk.sound()
}

struct Connection {
    stream: BufReader<TcpStream>,
    client: usize,
}

fn connect(port: u16, client: usize, limit: Duration) -> Result<Box<dyn Client>> {
    let mut connection = Connection { stream: connected(port, limit)?, client };
    let mut hello = PROTOCOL.to_be_bytes().to_vec();
    hello.extend(b"user\0postgres\0database\0postgres\0\0");
    connection.send(None, &hello)?;
    connection.until_ready()?;
    connection.stream.get_ref().set_read_timeout(Some(ANSWER_LIMIT))?;
    // What is asked for is found by a process of its own, in memory that this one and it map.
    connection.ask("SET force_parallel_mode = on")?;
    connection.ask("CREATE TABLE IF NOT EXISTS kept (client int, number bigint, value text)")?;
    Ok(Box::new(connection))
}

impl Connection {
    fn send(&mut self, kind: Option<u8>, said: &[u8]) -> Result<()> {
        let mut message: Vec<u8> = kind.into_iter().collect();
        message.extend((said.len() as u32 + 4).to_be_bytes());
        message.extend(said);
        self.stream.get_mut().write_all(&message).context("it cannot be sent")
    }

    fn receive(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut head = [0; 5];
        self.stream.read_exact(&mut head).context("no answer")?;
        let [kind, length @ ..] = head;
        let bytes = (u32::from_be_bytes(length) as usize).checked_sub(4).filter(|bytes| *bytes <= MESSAGE_MAX);
        let mut said = vec![0; bytes.context("this is not PostgreSQL's protocol")?];
        self.stream.read_exact(&mut said).context("half an answer")?;
        Ok((kind, said))
    }

    /// Rows, each as its first column, until the server takes the next question.
    fn until_ready(&mut self) -> Result<Vec<String>> {
        let mut rows = Vec::new();
        let mut refused = None;
        loop {
            match self.receive()? {
                (READY, _) => break,
                (ERROR, said) => refused = Some(String::from_utf8_lossy(&said).replace('\0', " ")),
                (AUTHENTICATION, said) if said.iter().any(|byte| *byte != 0) => bail!("it wants a password"),
                // Two bytes say how many columns there are, four how long the first one is.
                (ROW, said) => rows.push(String::from_utf8_lossy(said.get(6..).unwrap_or_default()).into_owned()),
                _ => {}
            }
        }
        refused.map_or(Ok(rows), |why| bail!("{why}"))
    }

    fn ask(&mut self, question: &str) -> Result<Vec<String>> {
        self.send(Some(b'Q'), format!("{question}\0").as_bytes())?;
        self.until_ready()
    }
}

impl Client for Connection {
    fn write(&mut self, number: u64) -> Result<()> {
        let client = self.client;
        self.ask(&format!("INSERT INTO kept VALUES ({client}, {number}, repeat('{number}-', 20))")).map(drop)
    }

    fn look(&mut self, last: u64) -> Result<()> {
        let client = self.client;
        let question = format!(
            "SELECT number FROM kept WHERE client = {client} AND value = repeat(number || '-', 20) ORDER BY number"
        );
        let found = self.ask(&question)?;
        let whole = (found.len() as u64 == last || found.len() as u64 == last + 1)
            && found.iter().zip(1u64..).all(|(row, number)| *row == number.to_string());
        ensure!(whole, "of client {client}'s {last} acknowledged rows there are {}: {found:?}", found.len());
        Ok(())
    }
}
