//! `transfers/loss/lone/*`: the guest sends one segment to a peer that is silent, and it is lost.
//! Nothing comes in that would have anybody look at the card, which does not interrupt for one
//! frame that it has sent; TCP hears of that all the same, and sends it again.

use super::lossy::{Loss, Lossy};
use crate::host::late::late;
use crate::host::namespace::{GUEST, Namespace};
use crate::image::machine_type::MachineType;
use crate::machine::emulator::Machine;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, with_console};
use crate::test::scenarios::web::READY_LIMIT;
use anyhow::{Context, Result, bail, ensure};
use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

const PORT: u16 = 80;
/// Says something to the first who connects, and goes on.
const SERVER: [&str; 3] = ["busybox", "sh", "-c"];
const SCRIPT: &str = "(echo something; exec sleep 100) | nc -l -p 80";
const SAID: &[u8] = b"something\n";
/// TCP sends again after 200 ms and the look at the card, and would after a second without that.
const WAIT_MAX: Duration = Duration::from_millis(800);
/// As long as a peer that hears nothing is listened to.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);

pub fn run(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let namespace = Namespace::create()?;
    let mut lossy = None;
    let command = [SERVER.as_slice(), &[SCRIPT]].concat();
    let mut guest = bench.boot(machine, cpus, &command, |_, machine: &mut Machine| {
        lossy = Some(Lossy::connect(machine, &namespace, Loss::FirstData)?);
        Ok(())
    })?;
    guest.keep(lossy);
    let work = move || {
        namespace.enter()?;
        with_console(guest, hear)
    };
    // A thread stays in the namespace that it entered, so this one must not.
    std::thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|_| bail!("the client failed")))
}

fn hear(guest: &mut Guest) -> Result<()> {
    guest.expect("pelago: ready", READY_LIMIT)?;
    let mut connection = connect(guest)?;
    let begin = Instant::now();
    connection.set_read_timeout(Some(PATIENCE))?;
    let mut heard = [0; SAID.len()];
    connection.read_exact(&mut heard).context("a frame was lost, and what it had did not come")?;
    ensure!(heard == SAID, "{:?} came", String::from_utf8_lossy(&heard));
    let waited = begin.elapsed();
    println!("     what was lost came after {} ms", waited.as_millis());
    if waited > WAIT_MAX {
        return Err(late(format!("what was lost came after {} ms", waited.as_millis()), &guest.transcript));
    }
    Ok(())
}

/// Connects once the server listens.
fn connect(guest: &mut Guest) -> Result<TcpStream> {
    let end = Instant::now() + READY_LIMIT;
    loop {
        match TcpStream::connect((GUEST, PORT)) {
            Ok(connection) => return Ok(connection),
            Err(problem) if Instant::now() > end => return Err(problem).context("the guest does not listen"),
            Err(_) => drop(guest.next(PAUSE)),
        }
    }
}
