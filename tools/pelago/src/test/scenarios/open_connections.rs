//! Tier 4: 200 connections, and once 400, are held, half a request and a process each, while driver
//! and IP die; then each gets its whole answer.
//!
//! Needs a network of its own (`namespace.rs` says why); where that cannot be made the scenario is
//! skipped and says what is missing.

use crate::host::namespace::{COMMAND_LINE, GUEST, Namespace};
use crate::image::machine_type::MachineType;
use crate::machine::emulator::Machine;
use crate::machine::guest::Guest;
use crate::machine::liveness::GuestLiveness;
use crate::test::scenario::{Bench, Scenario, with_console};
use crate::test::scenarios::recovery::{break_component, content};
use crate::test::scenarios::web;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 200;
const CONNECTIONS_MANY: usize = 400;
const KILLS_EACH: usize = 3;
const PAGE_BYTES: usize = 4096;
/// A process per connection in the guest.
const GUEST_MEMORY_BYTES: u64 = 1 << 30;
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

pub fn scenarios() -> Vec<Scenario> {
    let matrix = MachineType::ALL.into_iter().flat_map(|machine| [1, 2, 4].map(|cpus| (machine, cpus)));
    matrix
        .flat_map(|(machine, cpus)| ["kill", "hang"].map(|verb| (machine, cpus, verb)))
        // How a failure is noticed does not depend on the machine.
        .filter(|(machine, _, verb)| *verb == "kill" || *machine == MachineType::Q35)
        .map(|(machine, cpus, verb)| {
            let name = format!("open-connections/{verb}/{}/{cpus}", machine.name());
            // A plain run asks once more of each: number of cores, way to die, machine.
            let nightly = cpus != 2 && (machine != MachineType::Q35 || verb != "kill");
            Scenario::shared(4, name, move |bench| hold(bench, verb, machine, cpus, CONNECTIONS)).by_night(nightly)
        })
        .chain([Scenario::nightly(4, format!("open-connections/{CONNECTIONS_MANY}/q35/2"), |bench| {
            hold(bench, "kill", MachineType::Q35, 2, CONNECTIONS_MANY)
        })])
        .collect()
}

fn hold(bench: &Bench, verb: &str, machine: MachineType, cpus: u32, connections: usize) -> Result<()> {
    let namespace = Namespace::create()?;
    let page = content(PAGE_BYTES);
    let guest = bench.boot(machine, cpus, &web::SERVER, |root, machine: &mut Machine| {
        machine.memory_bytes = GUEST_MEMORY_BYTES;
        machine.namespace = Some(namespace.name().to_owned());
        machine.command_line.push(COMMAND_LINE.to_owned());
        root.file("root/www/file", 0o644, page.clone());
        Ok(())
    })?;
    // A thread stays in the namespace it entered, so this one must not.
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            namespace.enter()?;
            with_console(guest, |guest| all_are_answered(guest, verb, &page, connections))
        });
        inside.join().unwrap_or_else(|_| bail!("the client failed"))
    })
}

fn all_are_answered(guest: &mut Guest, verb: &str, page: &[u8], connections: usize) -> Result<()> {
    guest.expect("pelago: ready", web::READY_LIMIT)?;
    let liveness = guest.liveness();
    wait_until_it_serves(&liveness, page)?;
    let mut held = Vec::with_capacity(connections);
    for number in 1..=connections {
        let open = || -> Result<TcpStream> {
            let mut stream = connect()?;
            stream.write_all(b"GET /file HTT")?;
            Ok(stream)
        };
        held.push(liveness.wait(open).with_context(|| format!("connection {number} of {connections}"))?);
    }
    for round in 1..=KILLS_EACH {
        for victim in ["virtio-net", "ip"] {
            break_component(guest, verb, victim)?;
            let got = liveness
                .wait(|| get(connect()?, b"GET /file HTTP/1.0\r\n\r\n"))
                .with_context(|| format!("a new connection after {verb} {round} of {victim}"))?;
            ensure!(got == page, "a new connection after {verb} {round} of {victim} got another page");
        }
    }
    let mut bad = 0;
    let mut first = None;
    for (number, stream) in (1..).zip(held) {
        let answer = liveness.wait(move || get(stream, b"P/1.0\r\n\r\n"));
        // Then none of the others is answered, and each would be waited for.
        liveness.check().with_context(|| format!("connection {number} of {connections}, held"))?;
        match answer {
            Ok(got) if got == page => continue,
            Ok(got) => first.get_or_insert(format!("connection {number} got {} bytes or others", got.len())),
            Err(error) => first.get_or_insert(format!("connection {number}: {error:#}")),
        };
        bad += 1;
    }
    ensure!(bad == 0, "{bad} of {connections} held connections were not answered; {}", first.unwrap_or_default());
    Ok(())
}

fn connect() -> Result<TcpStream> {
    let address: SocketAddr = format!("{GUEST}:80").parse()?;
    let stream = TcpStream::connect_timeout(&address, CONNECT_LIMIT).context("cannot connect")?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    Ok(stream)
}

/// Sends the rest of a request and reads the answer's body.
fn get(mut stream: TcpStream, rest: &[u8]) -> Result<Vec<u8>> {
    stream.write_all(rest).context("cannot send")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).with_context(|| format!("after {} bytes of the answer", answer.len()))?;
    ensure!(answer.starts_with(b"HTTP/1.") && answer.get(8..12) == Some(b" 200"), "the answer is not `200 OK`");
    let head =
        answer.windows(4).position(|window| window == b"\r\n\r\n").context("the answer has no end of its head")?;
    Ok(answer.split_off(head + 4))
}

fn wait_until_it_serves(liveness: &GuestLiveness, page: &[u8]) -> Result<()> {
    let end = Instant::now() + web::READY_LIMIT;
    loop {
        liveness.check()?;
        match liveness.wait(|| get(connect()?, b"GET /file HTTP/1.0\r\n\r\n")) {
            Ok(got) if got == page => return Ok(()),
            Ok(_) => bail!("the first answer has another page"),
            Err(error) if Instant::now() > end => return Err(error.context("the guest does not serve")),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}
