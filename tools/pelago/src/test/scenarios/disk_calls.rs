//! Tier 2: a disk by calls (`lib/block-calls`). A program (`apps/disk-check/src/calls.rs`) has
//! batches written and read by a worker of the disk server, beside one that asks for all that it
//! may and never picks up; then the file of the host has what was written. A disk that is slow
//! shows that its clients go on meanwhile.
//!
//! `disk-calls/kill/*`, `disk-calls/hang/*`: the same while the server is killed, or its worker
//! goes in circles, again and again. The program's calls hear it, and it asks the next server. It
//! is killed now and then, too, and its successor finds nothing wrong either.
//!
//! `disk-calls/stranger/q35/1`: a program that was given no way to the disk calls through every
//! slot of its share, and none leads there.
//!
//! `disk-calls/cores/*`: the server is a program of several cores (decision 95), and so is its
//! client, each of whose dispatchers calls the workers of its own core. The server is killed
//! meanwhile; every byte is right, and one core alone gave requests to the device: by the trace of
//! the requests, and by what the emulator saw written to the disk's registers.

use crate::host::place;
use crate::image::description;
use crate::image::machine_type::MachineType;
use crate::machine::block::image::Image;
use crate::machine::block::server::{Fault, On, Server};
use crate::machine::emulator::Drive;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::time::{Duration, Instant};
use system::{Placement, System, Use, Workers};

const SYSTEM: &str = "calls.toml";
/// Word for `disk-calls`.
pub(super) const FOREVER: &str = "disk-calls.forever";
/// Its last round, unless it goes on for ever, and the sectors that it writes.
pub(super) const ROUNDS: u64 = 4;
const SECTORS: u64 = 4096;
/// What the emulator calls the register that tells a disk of requests, and how often that is
/// written at least.
const NOTIFY: &str = "virtio-pci-notify-virtio-blk";
const TOLD_MIN: usize = 100;
/// Clients of a disk.
const CLIENTS_MAX: u32 = 4;
/// The last round of each of several cores.
const ROUNDS_OF_CORES: u64 = 8;
const SECTOR_BYTES: usize = 512;
pub(super) const IMAGE_BYTES: u64 = (4 << 20) + 4096;
const LIMIT: Duration = Duration::from_secs(60);
const CONTROL_LIMIT: Duration = Duration::from_secs(30);
/// How often the server dies; a hang is found only as calls come.
const KILLS: usize = 10;
const HANGS: usize = 3;
/// After so many deaths the program is killed, too; not after the last.
const CLIENT_EVERY: usize = 4;
/// So many reads take so long on a slow disk, and so many of 100 calls return before: of the others
/// the host may have held up the guest.
const SLOW_READS: u32 = 200;
const DELAY: Duration = Duration::from_millis(10);
const RETURNED_MIN: u64 = 50;
const PAUSE: Duration = Duration::from_millis(300);

pub fn scenarios() -> Vec<Scenario> {
    let calm = [(MachineType::Q35, 1), (MachineType::Q35, 2), (MachineType::MicrovmMmio, 1)].map(|(machine, cpus)| {
        Scenario::shared(2, format!("disk-calls/{}/{cpus}", machine.name()), move |bench| calm(bench, machine, cpus))
    });
    let each = Scenario::shared(2, "disk-calls/worker-each/q35/1".into(), a_worker_for_each);
    let broken = [("kill", "kill", KILLS), ("hang", "worker", HANGS)].map(|(name, verb, times)| {
        Scenario::shared(4, format!("disk-calls/{name}/q35/1"), move |bench| broken(bench, verb, times))
    });
    let slow = Scenario::shared(2, "disk-calls/slow-disk/q35/1".into(), slow);
    let stranger = Scenario::shared(2, "disk-calls/stranger/q35/1".into(), stranger);
    let cores = [
        Scenario::shared(2, "disk-calls/cores/q35/2".into(), |bench| of_cores(bench, 2)),
        Scenario::shared(2, "disk-calls/cores/far/q35/2".into(), far),
        Scenario::nightly(4, "disk-calls/cores/q35/4".into(), |bench| of_cores(bench, 4)),
    ];
    let slow_cores = Scenario::shared(2, "disk-calls/cores/slow-disk/q35/2".into(), slow_of_cores);
    calm.into_iter().chain([each, slow, stranger, slow_cores]).chain(broken).chain(cores).collect()
}

fn description() -> Result<System> {
    description::load(&place::root().join("system").join(SYSTEM))
}

fn boot(
    bench: &Bench,
    system: &System,
    machine: MachineType,
    cpus: u32,
    image: &Path,
    words: &[&str],
) -> Result<Guest> {
    bench.boot_system(system, machine, cpus, &[], |_, machine| {
        machine.has_card = false;
        machine.drive = Some(Drive { file: image.to_owned(), is_read_only: false });
        machine.command_line.extend(words.iter().map(|word| (*word).to_owned()));
        Ok(())
    })
}

/// An image of zeros.
pub(super) fn image() -> Result<tempfile::NamedTempFile> {
    let image = tempfile::NamedTempFile::new().context("cannot make a file for a disk")?;
    image.as_file().set_len(IMAGE_BYTES).context("cannot size a disk's file")?;
    Ok(image)
}

/// The program finds nothing wrong, and what it wrote last is in the host's file.
fn calm(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    calm_with(bench, &description()?, machine, cpus, "disk: 1 worker for calls")
}

/// The same with a worker for each client.
fn a_worker_for_each(bench: &Bench) -> Result<()> {
    let mut system = description()?;
    let disk = system.components.iter_mut().find(|component| component.name == "disk");
    disk.context("the description has no disk")?.workers = Workers::Client;
    calm_with(bench, &system, MachineType::Q35, 1, "disk: 2 workers for calls")
}

fn calm_with(bench: &Bench, system: &System, machine: MachineType, cpus: u32, workers: &str) -> Result<()> {
    let image = image()?;
    with_console(boot(bench, system, machine, cpus, image.path(), &[])?, |guest| {
        is_done(guest, &[workers])?;
        check(&std::fs::read(image.path()).context("cannot read the disk's file")?, ROUNDS)
    })
}

/// The program has found nothing wrong, and those lines were said, too.
pub(super) fn is_done(guest: &mut Guest, lines: &[&str]) -> Result<()> {
    guest.expect("disk-calls: done", LIMIT)?;
    let said = [
        "sleeper: asked for 64 reads, and never picks up",
        "disk-calls: phases of a read, in ns: request 0 preprocess ",
        "disk-calls: 32 reads and writes were asked by 1 call, and picked up by 1",
    ];
    for line in lines.iter().chain(&said) {
        ensure!(guest.transcript.iter().any(|told| told.contains(line)), "nothing said `{line}`");
    }
    let phases = guest.transcript.iter().find_map(|line| line.split_once("disk-calls: phases of a read, in ns: "));
    let rounds = guest.transcript.iter().rev();
    let longest =
        rounds.into_iter().find_map(|line| line.split_once(" late, the longest took ")?.1.strip_suffix(" ns;"));
    let longest = longest.unwrap_or("unknown");
    println!("     {}; the longest call took {longest} ns", phases.map_or("", |(_, phases)| phases));
    Ok(())
}

/// On a disk that takes its time a call returns to its client long before the device is done.
fn slow(bench: &Bench) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let socket = folder.path().join("socket");
    let server = Server::start(&socket, Image::zeros(IMAGE_BYTES))?;
    server.inject(On::Reads, SLOW_READS, Fault::Delay(DELAY));
    let guest = bench.boot_system(&description()?, MachineType::Q35, 1, &[], |_, machine| {
        machine.has_card = false;
        machine.block = Some(socket.clone());
        Ok(())
    })?;
    with_console(guest, |guest| {
        guest.expect("disk-calls: 32 reads and writes were asked", LIMIT)?;
        let returned = number(guest, "disk-calls: ", " of 100 calls returned before their interrupt")?;
        ensure!(returned >= RETURNED_MIN, "{returned} of 100 calls returned before the device was done");
        Ok(())
    })
}

/// The same program runs with the disk among its `uses` and without. By that alone one of them has
/// two ways there, to the server and to its worker.
fn stranger(bench: &Bench) -> Result<()> {
    let mut system = description()?;
    for (was, name, is_used) in [("sleeper", "stranger", false), ("disk-calls", "friend", true)] {
        let client = system.components.iter_mut().find(|component| component.name == was);
        let client = client.with_context(|| format!("the description has no {was}"))?;
        (client.name, client.program) = (name.into(), "stranger".into());
        client.uses.retain(|_| is_used);
    }
    let image = image()?;
    with_console(boot(bench, &system, MachineType::Q35, 1, image.path(), &[])?, |guest| {
        for (name, ways) in [("stranger", 0), ("friend", 2)] {
            guest.heard(&format!("{name}: asked for blocks: Err(NotAllowed); {ways} of "), LIMIT)?;
        }
        Ok(())
    })
}

/// The number between two texts of a line.
pub(super) fn number(guest: &Guest, before: &str, behind: &str) -> Result<u64> {
    let found = guest.transcript.iter().find_map(|line| line.split_once(before)?.1.split_once(behind));
    let (text, _) = found.with_context(|| format!("nothing said `{before}...{behind}`"))?;
    text.parse().with_context(|| format!("`{text}` is no number"))
}

/// The server and its client have a dispatcher on each core. A disk has four clients at most.
fn on_every_core(cpus: u32) -> Result<System> {
    let mut system = description()?;
    system.components.retain(|component| cpus < CLIENTS_MAX || component.name != "sleeper");
    for component in system.components.iter_mut().filter(|component| ["disk", "disk-calls"].contains(&&*component.name))
    {
        component.core = Placement::Every;
        if component.name == "disk" {
            component.uses.push(Use { contract: "blocks".into(), server: "disk".into() });
        }
    }
    Ok(system)
}

/// Boots with a record of what is written to registers.
fn boot_traced(bench: &Bench, system: &System, cpus: u32, image: &Path, registers: &Path) -> Result<Guest> {
    bench.boot_system(system, MachineType::Q35, cpus, &[], |_, machine| {
        machine.has_card = false;
        machine.drive = Some(Drive { file: image.to_owned(), is_read_only: false });
        machine.registers = Some(registers.to_owned());
        Ok(())
    })
}

/// All clients are on another core than the device, whose dispatcher has no worker: one context
/// alone is there to reach registers. All that one core can do they can.
fn far(bench: &Bench) -> Result<()> {
    let mut system = on_every_core(2)?;
    for client in ["sleeper", "disk-calls"] {
        let found = system.components.iter_mut().find(|component| component.name == client);
        found.context("no such component")?.core = Placement::Preferred(vec![1]);
    }
    let image = image()?;
    let registers = tempfile::NamedTempFile::new().context("cannot make a file for a trace")?;
    with_console(boot_traced(bench, &system, 2, image.path(), registers.path())?, |guest| {
        is_done(guest, &["disk-1: 1 worker for calls", " requests submitted on core 1, given to the device on {0};"])?;
        ensure!(!guest.transcript.iter().any(|line| line.contains("disk-0: 1 worker")), "the handler's core has one");
        check_registers(&std::fs::read_to_string(registers.path()).context("cannot read the trace")?)?;
        check(&std::fs::read(image.path()).context("cannot read the disk's file")?, ROUNDS)
    })
}

/// Clients of all cores read and write at once, each by the workers of its own core; the server
/// ends meanwhile.
fn of_cores(bench: &Bench, cpus: u32) -> Result<()> {
    let image = image()?;
    let registers = tempfile::NamedTempFile::new().context("cannot make a file for a trace")?;
    with_console(boot_traced(bench, &on_every_core(cpus)?, cpus, image.path(), registers.path())?, |guest| {
        for core in 0..cpus {
            guest.heard(&format!("disk-calls-{core}: round 1 is there"), LIMIT)?;
        }
        let reply = guest.control("chaos kill disk", CONTROL_LIMIT)?;
        ensure!(reply.contains("disk; generation 2 serves"), "{reply}");
        for core in 0..cpus {
            guest.heard(&format!("disk-calls-{core}: done"), LIMIT)?;
        }
        for core in 0..cpus {
            let line = format!("disk-{core}: 1 worker for calls");
            ensure!(guest.transcript.iter().any(|told| told.contains(&line)), "nothing said `{line}`");
            let before = format!("disk-calls-{core}: round {ROUNDS_OF_CORES} is there: ");
            let last = guest.transcript.iter().find_map(|line| line.split_once(&before)?.1.split_once(" calls, "));
            let deaths = last.and_then(|(_, rest)| rest.split_once(" deaths")).context("no last round")?.0;
            ensure!(deaths == "1", "the client of core {core} heard of {deaths} deaths, not of 1");
            let behind = format!(" requests submitted on core {core}, given to the device on {{0}};");
            let submitted = number(guest, &format!("disk-calls-{core}: "), &behind)?;
            println!("     core {core}: {submitted} requests submitted there, given to the device on core 0");
        }
        check_registers(&std::fs::read_to_string(registers.path()).context("cannot read the trace")?)?;
        check(&std::fs::read(image.path()).context("cannot read the disk's file")?, ROUNDS_OF_CORES)
    })
}

/// Core 0 alone wrote to the disk's registers.
fn check_registers(trace: &str) -> Result<()> {
    let writes = trace.lines().filter(|line| line.contains("memory_region_ops_write") && line.contains("virtio-blk"));
    let (own, others): (Vec<_>, Vec<_>) = writes.partition(|line| line.contains(" cpu 0 "));
    ensure!(others.is_empty(), "{} writes to the disk's registers by other cores: {}", others.len(), others[0]);
    let told = own.iter().filter(|line| line.contains(NOTIFY)).count();
    ensure!(told >= TOLD_MIN, "core 0 told the disk {told} times of requests, of {} writes", own.len());
    println!("     {} writes to the disk's registers, all by core 0; {told} of them told of requests", own.len());
    Ok(())
}

/// On a disk that takes its time no core waits for what another has asked.
fn slow_of_cores(bench: &Bench) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let socket = folder.path().join("socket");
    let server = Server::start(&socket, Image::zeros(IMAGE_BYTES))?;
    server.inject(On::Reads, 2 * SLOW_READS, Fault::Delay(DELAY));
    let guest = bench.boot_system(&on_every_core(2)?, MachineType::Q35, 2, &[], |_, machine| {
        machine.has_card = false;
        machine.block = Some(socket.clone());
        Ok(())
    })?;
    with_console(guest, |guest| {
        for core in 0..2 {
            guest.heard(&format!("disk-calls-{core}: round 1 is there"), LIMIT)?;
        }
        for core in 0..2 {
            let before = format!("disk-calls-{core}: ");
            let returned = number(guest, &before, " of 100 calls returned before their interrupt")?;
            ensure!(
                returned >= RETURNED_MIN,
                "core {core}: {returned} of 100 calls returned before the device was done"
            );
            println!("     core {core}: {returned} of 100 calls returned before the device was done");
        }
        Ok(())
    })
}

/// Each sector of a disk has its number and the last round.
pub(super) fn check(bytes: &[u8], round: u64) -> Result<()> {
    for (sector, found) in (0..SECTORS).zip(bytes.chunks(SECTOR_BYTES)) {
        let expected = (round << 32 | sector).to_le_bytes().repeat(SECTOR_BYTES / 8);
        ensure!(found == expected, "sector {sector} of the file is not that of round {round}: {:x?}", &found[..8]);
    }
    Ok(())
}

/// The server ends again and again, and the program goes on.
fn broken(bench: &Bench, verb: &str, times: usize) -> Result<()> {
    let image = image()?;
    with_console(boot(bench, &description()?, MachineType::Q35, 1, image.path(), &[FOREVER])?, |guest| {
        goes_on(guest, &vec![(verb, "disk"); times])
    })
}

/// Those servers end one after another, and so does the program now and then; it goes on.
pub(super) fn goes_on(guest: &mut Guest, deaths: &[(&str, &str)]) -> Result<()> {
    guest.expect("disk-calls: round 1 is there", LIMIT)?;
    for (time, (verb, server)) in (1..).zip(deaths) {
        let reply = guest.control(&format!("chaos {verb} {server}"), CONTROL_LIMIT)?;
        let before = deaths[..time].iter().filter(|(_, other)| other == server).count();
        ensure!(reply.contains(&format!("{server}; generation {} serves", before + 1)), "{reply}");
        if time.is_multiple_of(CLIENT_EVERY) {
            let reply = guest.control("chaos kill disk-calls", CONTROL_LIMIT)?;
            ensure!(reply.starts_with("ok killed disk-calls"), "{reply}");
            // Its last life counts the deaths that follow, and is attached by then.
            if deaths.len() - time < CLIENT_EVERY {
                guest.expect("disk-calls: round ", LIMIT)?;
            }
        }
        listen(guest, PAUSE)?;
    }
    let before = guest.transcript.len();
    guest.expect("disk-calls: round ", LIMIT)?;
    guest.expect("disk-calls: round ", LIMIT)?;
    listen(guest, Duration::ZERO)?;
    let last = guest.transcript[before..].iter().rfind(|line| line.contains("disk-calls: round "));
    let heard = last.and_then(|line| line.split_once(" calls, ")?.1.split_once(" deaths, "));
    let (heard, rest) = heard.context("a round without its deaths")?;
    println!("     {} deaths, {heard} of them heard by calls, {}", deaths.len(), rest.trim_end_matches(';'));
    ensure!(heard.parse::<usize>()? >= 1, "no call heard that the server ended");
    Ok(())
}

/// Hears what is said for so long.
pub(super) fn listen(guest: &mut Guest, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while matches!(guest.next(end.saturating_duration_since(Instant::now())), Ok(Some(_))) {}
    let failed = guest.transcript.iter().find(|line| line.contains("disk-calls: failed"));
    failed.map_or(Ok(()), |line| bail!("{line}"))
}
