//! Tier 2: an encrypted disk by calls (NOVA, section 4). The program of `disk-calls/*` calls the
//! worker of what encrypts, which calls on to the worker of the disk, beside one that asks for all
//! that it may and never picks up; then the file of the host, decrypted here, has what was written.
//!
//! `crypto-calls/kill`: the same while either server is killed again and again, or its worker goes
//! in circles. `crypto-calls/client`: the program is killed amid calls, and nothing that they left
//! under way is written into what its next life has, nor if its worker hangs when it dies. The
//! volume has no headers: its key goes to the guest as that of every other does.

use super::disk_calls::{self, FOREVER, IMAGE_BYTES};
use crate::host::place;
use crate::image::description;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Accelerator, Drive};
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, anyhow, bail, ensure};
use luks::{Handover, SectorBytes, SectorCipher, Segment, VolumeKey};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use system::{System, Workers};

const SYSTEM: &str = "crypto-calls.toml";
/// Where the volume lies on the disk.
const FIRST_BYTE: u64 = 1 << 20;
/// So many times what it costs to pick up a write, which is not decrypted, a read does at least.
const DECRYPTED_MIN: u64 = 3;
/// Word for `disk-calls`, and how often it dies, after so long; most of its time is in calls that
/// decrypt.
const READS: &str = "disk-calls.reads";
const CLIENT_DEATHS: usize = 8;
const READING: Duration = Duration::from_millis(30);
const LIMIT: Duration = Duration::from_secs(30);
/// Who dies, in turn, and how.
const DEATHS: [(&str, &str); 10] = [
    ("kill", "crypto"),
    ("kill", "disk"),
    ("kill", "disk"),
    ("kill", "crypto"),
    ("worker", "crypto"),
    ("kill", "crypto"),
    ("worker", "disk"),
    ("kill", "disk"),
    ("kill", "crypto"),
    ("kill", "crypto"),
];

pub fn scenarios() -> Vec<Scenario> {
    let [core, client] = [Workers::Core, Workers::Client];
    vec![
        Scenario::shared(2, "crypto-calls/q35/1".into(), move |bench| calm(bench, core, "crypto: 1 worker for calls")),
        Scenario::shared(2, "crypto-calls/worker-each/q35/1".into(), move |bench| {
            calm(bench, client, "crypto: 2 workers for calls")
        }),
        Scenario::shared(4, "crypto-calls/kill/q35/1".into(), kill),
        Scenario::shared(4, "crypto-calls/client/q35/1".into(), kill_client),
    ]
}

fn handover() -> Handover {
    let (bytes, sector) = (IMAGE_BYTES - FIRST_BYTE, SectorBytes::B4096);
    let segment = Segment { offset: FIRST_BYTE, bytes, sector, tweak: 0, allows_discards: false };
    Handover { key: VolumeKey::take(&mut std::array::from_fn(|at| (7 * at + 1) as u8)), segment }
}

pub(super) fn boot(bench: &Bench, system: &System, image: &Path, words: &[&str]) -> Result<Guest> {
    boot_by(bench, system, image, words, None)
}

/// The same, by a clock of instructions if one is given.
pub(super) fn boot_by(
    bench: &Bench,
    system: &System,
    image: &Path,
    words: &[&str],
    instruction_ns: Option<u32>,
) -> Result<Guest> {
    let bench = bench.with_key(Arc::new(handover()));
    bench.boot_system(system, MachineType::Q35, 1, &[], |_, machine| {
        machine.has_card = false;
        machine.instruction_ns = instruction_ns;
        if instruction_ns.is_some() {
            machine.accelerator = Accelerator::Tcg;
        }
        machine.drive = Some(Drive { file: image.to_owned(), is_read_only: false });
        machine.command_line.extend(words.iter().map(|word| (*word).to_owned()));
        Ok(())
    })
}

pub(super) fn description() -> Result<System> {
    description::load(&place::root().join("system").join(SYSTEM))
}

/// The program finds nothing wrong, and what it wrote last is in the host's file, encrypted.
fn calm(bench: &Bench, workers: Workers, line: &str) -> Result<()> {
    let mut system = description()?;
    let crypto = system.components.iter_mut().find(|component| component.name == "crypto");
    crypto.context("the description has no crypto")?.workers = workers;
    let image = disk_calls::image()?;
    with_console(boot(bench, &system, image.path(), &[])?, |guest| {
        let lines = [
            line,
            "encrypted in blocks of 4096 bytes by the processor's instructions",
            "disk-calls: a second read of a block is answered by the call",
        ];
        disk_calls::is_done(guest, &lines)?;
        let read_ns = disk_calls::number(guest, "to pick up costs its caller ", " ns for 128 KiB read, ")?;
        let written_ns = disk_calls::number(guest, " ns for 128 KiB read, ", " ns for as much written")?;
        println!("     picking up 128 KiB costs its caller {read_ns} ns decrypted, {written_ns} ns written");
        ensure!(
            read_ns >= DECRYPTED_MIN * written_ns,
            "what is decrypted costs {read_ns} ns, what is not {written_ns}"
        );
        let mut bytes = std::fs::read(image.path()).context("cannot read the disk's file")?;
        let Handover { key, segment } = handover();
        let volume = &mut bytes[FIRST_BYTE as usize..];
        let whole = volume.len() / 4096 * 4096;
        SectorCipher::new(&key, &segment).decrypt(0, &mut volume[..whole]).map_err(|why| anyhow!("{why}"))?;
        disk_calls::check(volume, disk_calls::ROUNDS)
    })
}

/// Either server ends again and again, and the program goes on.
fn kill(bench: &Bench) -> Result<()> {
    let image = disk_calls::image()?;
    with_console(boot(bench, &description()?, image.path(), &[FOREVER])?, |guest| disk_calls::goes_on(guest, &DEATHS))
}

/// The program ends amid calls again and again, and finds nothing of what it was before.
fn kill_client(bench: &Bench) -> Result<()> {
    let image = disk_calls::image()?;
    with_console(boot(bench, &description()?, image.path(), &[READS])?, |guest| {
        for death in 0..=CLIENT_DEATHS {
            let said = life(guest, death)?;
            ensure!(said.contains(" 0 bytes"), "after {death} deaths a call of an earlier life wrote: {said}");
            disk_calls::listen(guest, READING)?;
            let reply = guest.control("chaos kill disk-calls", LIMIT)?;
            ensure!(reply.starts_with("ok killed disk-calls"), "{reply}");
        }
        life(guest, CLIENT_DEATHS + 1)?;
        // Its worker hangs when it dies.
        let reply = guest.control("chaos worker crypto then kill disk-calls 20", LIMIT)?;
        ensure!(reply.starts_with("ok "), "{reply}");
        let said = life(guest, CLIENT_DEATHS + 2)?;
        ensure!(said.contains(" 0 bytes"), "beside a hang a call of an earlier life wrote: {said}");
        Ok(())
    })
}

/// What the program says in its life of that number, from 0 on.
fn life(guest: &mut Guest, number: usize) -> Result<String> {
    let end = Instant::now() + LIMIT;
    loop {
        let mut said = guest.transcript.iter().filter(|line| line.contains(" bytes were written for an earlier life"));
        if let Some(line) = said.nth(number) {
            return Ok(line.clone());
        }
        match guest.next(end.saturating_duration_since(Instant::now())) {
            Ok(Some(_)) => (),
            Ok(None) => bail!("the guest ended before life {number} of disk-calls"),
            Err(_) => return Err(guest.late(format!("life {number} of disk-calls did not begin within {LIMIT:?}"))),
        }
    }
}
