//! Tier 2: a disk behind the contract `blocks` (`servers/disk`). A program (`apps/disk-check`)
//! writes patterns, flushes, reads them back and compares; then the file of the host has them too.
//!
//! `disk/kill/*`: the same while the disk server is killed again and again, and hangs, with its
//! requests under way. The program sees nothing of it; it is killed now and then, too, and its
//! successor finds nothing wrong either.

use crate::host::place;
use crate::image::description;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::Drive;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::time::{Duration, Instant};

const SYSTEM: &str = "disk.toml";
/// Word for `disk-check` (`apps/disk-check/src/main.rs`).
const FOREVER: &str = "disk-check.forever";
/// Its last round, unless it goes on for ever, and the sectors that it writes.
const ROUNDS: u64 = 4;
const SECTORS: u64 = 16_384;
const SECTOR_BYTES: usize = 512;
/// Larger than what is written, by an odd number of pages.
const IMAGE_BYTES: u64 = (16 << 20) + 4096;
const LIMIT: Duration = Duration::from_secs(60);
const CONTROL_LIMIT: Duration = Duration::from_secs(30);
/// How often the server dies, each tenth time by a hang, and how long it has then.
const KILLS: usize = 20;
/// Of them so many with requests under way; on a busy host that takes more deaths, to so many, and
/// so do the rounds between.
const BUSY_KILLS: usize = 6;
const KILLS_MAX: usize = 60;
const HANG_EVERY: usize = 10;
/// After so many of them the program is killed, too.
const CLIENT_EVERY: usize = 7;
const PAUSE: Duration = Duration::from_millis(300);
/// Rounds that must have come between, and one from begin to end after the last death.
const ROUNDS_UNDER_FIRE: usize = 2;

pub fn scenarios() -> Vec<Scenario> {
    let machines = [
        (MachineType::Q35, 1),
        (MachineType::Q35, 2),
        (MachineType::Microvm, 2),
        (MachineType::MicrovmMmio, 1),
        (MachineType::MicrovmMmio, 2),
    ];
    let calm = machines.map(|(machine, cpus)| {
        Scenario::shared(2, format!("disk/{}/{cpus}", machine.name()), move |bench| calm(bench, machine, cpus))
    });
    let killed =
        [(MachineType::Q35, 1), (MachineType::Q35, 2), (MachineType::MicrovmMmio, 2)].map(|(machine, cpus)| {
            let name = format!("disk/kill/{}/{cpus}", machine.name());
            // A plain run asks once of each number of cores: the other is MMIO's.
            let is_extra = (machine, cpus) == (MachineType::Q35, 2);
            Scenario::shared(4, name, move |bench| killed(bench, machine, cpus)).by_night(is_extra)
        });
    let none = Scenario::shared(2, "disk/none/q35/1".into(), without_a_disk);
    calm.into_iter().chain(killed).chain([none]).collect()
}

fn boot(bench: &Bench, machine: MachineType, cpus: u32, image: Option<&Path>, words: &[&str]) -> Result<Guest> {
    let system = description::load(&place::root().join("system").join(SYSTEM))?;
    bench.boot_system(&system, machine, cpus, &[], |_, machine| {
        machine.has_card = false;
        machine.drive = image.map(|image| Drive { file: image.to_owned(), is_read_only: false });
        machine.command_line.extend(words.iter().map(|word| (*word).to_owned()));
        Ok(())
    })
}

/// An image of zeros.
fn image() -> Result<tempfile::NamedTempFile> {
    let image = tempfile::NamedTempFile::new().context("cannot make a file for a disk")?;
    image.as_file().set_len(IMAGE_BYTES).context("cannot size a disk's file")?;
    Ok(image)
}

/// The program finds nothing wrong, and what it wrote last is in the host's file.
fn calm(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let image = image()?;
    with_console(boot(bench, machine, cpus, Some(image.path()), &[])?, |guest| {
        guest.expect(&format!("disk: {} sectors, start 1, 0 requests under way", IMAGE_BYTES / 512), LIMIT)?;
        guest.expect("disk-check: done", LIMIT)?;
        check_file(image.path(), ROUNDS)
    })
}

/// Each sector has its number and the round.
fn check_file(path: &Path, round: u64) -> Result<()> {
    let bytes = std::fs::read(path).context("cannot read the disk's file")?;
    ensure!(bytes.len() as u64 == IMAGE_BYTES, "the disk's file has {} bytes", bytes.len());
    for (sector, found) in (0..SECTORS).zip(bytes.chunks(SECTOR_BYTES)) {
        let expected = (round << 32 | sector).to_le_bytes().repeat(SECTOR_BYTES / 8);
        ensure!(found == expected, "sector {sector} of the file is not that of round {round}: {:x?}", &found[..8]);
    }
    ensure!(bytes[SECTORS as usize * SECTOR_BYTES..].iter().all(|byte| *byte == 0), "more was written than was asked");
    Ok(())
}

/// The server dies and hangs again and again, and the program goes on.
fn killed(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let image = image()?;
    with_console(boot(bench, machine, cpus, Some(image.path()), &[FOREVER])?, |guest| {
        guest.expect("disk-check: round 1 is there", LIMIT)?;
        let before = rounds(guest);
        let mut deaths = 0;
        while deaths < KILLS || busy_starts(guest) < BUSY_KILLS || rounds(guest) < before + ROUNDS_UNDER_FIRE {
            deaths += 1;
            let (busy, rounds) = (busy_starts(guest), rounds(guest) - before);
            ensure!(deaths <= KILLS_MAX, "of {KILLS_MAX} deaths {busy} had requests under way, in {rounds} rounds");
            let verb = if deaths.is_multiple_of(HANG_EVERY) { "hang" } else { "kill" };
            let reply = guest.control(&format!("chaos {verb} disk"), CONTROL_LIMIT)?;
            ensure!(reply.contains(&format!("disk; generation {} serves", deaths + 1)), "{reply}");
            if deaths.is_multiple_of(CLIENT_EVERY) {
                let reply = guest.control("chaos kill disk-check", CONTROL_LIMIT)?;
                ensure!(reply.starts_with("ok killed disk-check"), "{reply}");
            }
            listen(guest, PAUSE)?;
        }
        more_rounds(guest, 2)?;
        let (after, lines) = (rounds(guest), &guest.transcript);
        ensure!(after >= before + ROUNDS_UNDER_FIRE + 2, "{} rounds in all", after - before);
        let (started, busy) = (starts(guest).count(), busy_starts(guest));
        ensure!(started == deaths + 1, "{started} starts of the disk");
        let resets = lines.iter().filter(|line| line.contains("disk: the device is reset"));
        // A host that is busy may leave two servers in a row no time to serve.
        let resets = resets.filter(|line| !line.contains("Heirs")).count();
        println!(
            "     {}/{cpus}: {deaths} deaths, {busy} with requests under way, {resets} resets of the device, {} rounds",
            machine.name(),
            after - before
        );
        ensure!(resets == 0, "the device was reset {resets} times: it was to be gone on with");
        Ok(())
    })
}

/// What the server said at its starts.
fn starts(guest: &Guest) -> impl Iterator<Item = &String> {
    guest.transcript.iter().filter(|line| line.contains("disk: ") && line.contains(", start "))
}

/// Its starts with requests that its predecessor left.
fn busy_starts(guest: &Guest) -> usize {
    starts(guest).filter(|line| !line.contains(" 0 requests under way")).count()
}

/// Rounds that the program has told.
fn rounds(guest: &Guest) -> usize {
    guest.transcript.iter().filter(|line| line.contains("disk-check: round ")).count()
}

fn more_rounds(guest: &mut Guest, count: usize) -> Result<()> {
    (0..count).try_for_each(|_| guest.expect("disk-check: round ", LIMIT).map(drop))
}

/// Hears what is said for so long.
fn listen(guest: &mut Guest, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while matches!(guest.next(end.saturating_duration_since(Instant::now())), Ok(Some(_))) {}
    let failed = guest.transcript.iter().find(|line| line.contains("disk-check: failed"));
    failed.map_or(Ok(()), |line| bail!("{line}"))
}

/// A machine without a disk says so, to who asks for it, too.
fn without_a_disk(bench: &Bench) -> Result<()> {
    with_console(boot(bench, MachineType::Q35, 1, None, &[])?, |guest| {
        guest.expect("disk: no device virtio-blk was given", LIMIT)?;
        guest.expect("disk-check: failed: attach: Server(NoDevice)", LIMIT).map(drop)
    })
}
