//! Rows in Debian's MariaDB (InnoDB), each in a transaction of its own. Clients speak the protocol
//! of MySQL, version 10: three bytes of length, a number, and what is said.

use super::{ANSWER_LIMIT, CLIENTS, Client, Disk, Server, connected, write};
use crate::image::built::Origin;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const SERVER: Server = Server { origin: Origin::Root("mariadb"), port: 3306, words: &["sh", "/mariadb.sh"], connect };
/// Makes the data base if there is none, as a user of its own, and becomes the server.
const SCRIPT: &str = include_str!("mariadb.sh");
const PROTOCOL: u8 = 10;
/// The protocol since 4.1, and how passwords are sent since then: here there is none.
const ABILITIES: u32 = 1 << 9 | 1 << 15;
const MESSAGE_MAX: u32 = 1 << 16;
const UTF8: u8 = 33;
const QUERY: u8 = 3;
const FINE: u8 = 0;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;

pub fn scenario() -> Scenario {
    Scenario::shared(4, "disk-servers/mariadb".into(), |_| mariadb()).by_night(true)
}

fn mariadb() -> Result<()> {
    let disk = Disk::new(None)?;
    let script = disk.folder.path().join("mariadb.sh");
    crate::host::files::write(&script, SCRIPT.as_bytes())?;
    let script = format!("{}:/mariadb.sh", script.display());
    // MariaDB speaks first, and Debian 12's passt keeps it waiting until the client does.
    let options = ["--network", "emulator", "-m", "1500M", "-v", &script];
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
    // MariaDB writes all out then, and ends.
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
    let greeting = connection.receive()?;
    ensure!(greeting.first() == Some(&PROTOCOL), "this is not MySQL's protocol: {greeting:?}");
    let mut hello = ABILITIES.to_le_bytes().to_vec();
    hello.extend(MESSAGE_MAX.to_le_bytes());
    hello.push(UTF8);
    hello.extend([0; 23]);
    hello.extend(b"root\0\0");
    connection.send(1, &hello)?;
    connection.fine()?;
    connection.stream.get_ref().set_read_timeout(Some(ANSWER_LIMIT))?;
    connection.ask("CREATE DATABASE IF NOT EXISTS kept")?;
    let table = "CREATE TABLE IF NOT EXISTS kept.kept (client INT, number BIGINT, value TEXT) ENGINE=InnoDB";
    connection.ask(table)?;
    Ok(Box::new(connection))
}

/// What the server refused.
fn refusal(said: &[u8]) -> anyhow::Error {
    anyhow::anyhow!("{}", String::from_utf8_lossy(said.get(3..).unwrap_or_default()))
}

impl Connection {
    fn send(&mut self, number: u8, said: &[u8]) -> Result<()> {
        let [a, b, c, _] = (said.len() as u32).to_le_bytes();
        let message = [&[a, b, c, number], said].concat();
        self.stream.get_mut().write_all(&message).context("it cannot be sent")
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).context("no answer")?;
        let [a, b, c, _] = head;
        let bytes = u32::from_le_bytes([a, b, c, 0]);
        ensure!(bytes <= MESSAGE_MAX, "this is not MySQL's protocol");
        let mut said = vec![0; bytes as usize];
        self.stream.read_exact(&mut said).context("half an answer")?;
        Ok(said)
    }

    fn fine(&mut self) -> Result<()> {
        match self.receive()?.as_slice() {
            [FINE, ..] => Ok(()),
            [ERROR, ..] => bail!("it refuses the connection"),
            other => bail!("it wants a password: {other:?}"),
        }
    }

    /// Messages until one that says that they end.
    fn until_end(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        loop {
            match self.receive()? {
                said if said.first() == Some(&END) && said.len() < 9 => return Ok(all),
                said if said.first() == Some(&ERROR) => return Err(refusal(&said)),
                said => all.push(said),
            }
        }
    }

    /// Rows, each as its first column.
    fn ask(&mut self, question: &str) -> Result<Vec<String>> {
        self.send(0, &[&[QUERY], question.as_bytes()].concat())?;
        let first = self.receive()?;
        match first.first() {
            Some(&FINE) => return Ok(Vec::new()),
            Some(&ERROR) => return Err(refusal(&first)),
            _ => {}
        }
        // What the columns are; then rows, in which a byte of length is before each short one.
        self.until_end()?;
        let rows = self.until_end()?;
        let column = |row: &Vec<u8>| row.get(1..1 + usize::from(*row.first()?)).map(<[u8]>::to_vec);
        rows.iter().map(|row| Ok(String::from_utf8(column(row).context("half a row")?)?)).collect()
    }
}

impl Client for Connection {
    fn write(&mut self, number: u64) -> Result<()> {
        let client = self.client;
        self.ask(&format!("INSERT INTO kept.kept VALUES ({client}, {number}, REPEAT('{number}-', 20))")).map(drop)
    }

    fn look(&mut self, last: u64) -> Result<()> {
        let client = self.client;
        let question = format!(
            "SELECT number FROM kept.kept WHERE client = {client} AND value = REPEAT(CONCAT(number, '-'), 20) ORDER BY number"
        );
        let found = self.ask(&question)?;
        let whole = (found.len() as u64 == last || found.len() as u64 == last + 1)
            && found.iter().zip(1u64..).all(|(row, number)| *row == number.to_string());
        ensure!(whole, "of client {client}'s {last} acknowledged rows there are {}: {found:?}", found.len());
        Ok(())
    }
}
