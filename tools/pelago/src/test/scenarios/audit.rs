//! Tier 4: at work, no kernel writes memory of another core, but for wake bits (C-P1, B-M2), and
//! programs of the system share with those of other cores nothing but channels and packet pools
//! (B-P1).

use super::{objects, recovery, web};
use crate::image::machine_type::MachineType;
use crate::image::symbols::Symbols;
use crate::machine::emulator::{Accelerator, Machine};
use crate::test::audit::{Audit, Breach, COMMAND_LINE, Deed, Verdict};
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

const CPUS: u32 = 4;
/// Fetches of a page before and after IP is killed.
const FETCHES: usize = 5;
/// Bytes of one page of core 0 for each core, where the control is (`apps/conform/src/scene.rs`).
const CONTROL_BYTES: u64 = 256;
const PAGE_BYTES: u64 = 4096;
/// Lines of the pool that each core writes at least which is not its home: some pages that it
/// touches first, or copies on write.
const POOL_LINES_MIN: usize = 8 * (PAGE_BYTES / 64) as usize;
/// Lines of channels in others' memory that programs of each core use at least: each monitor's link
/// is one.
const CHANNEL_LINES_MIN: usize = 10;
/// Breaches printed.
const SHOWN: usize = 12;
const CONTROL_LIMIT: Duration = Duration::from_secs(30);

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::alone(4, format!("audit/writes/q35/{CPUS}"), at_work).in_pairs(),
        // All calls, as `objects/*`: 15 s.
        Scenario::alone(4, format!("audit/objects/q35/{CPUS}"), objects_and_control).in_pairs().by_night(true),
    ]
}

fn fit(machine: &mut Machine, audit: &Audit) {
    machine.plugins.push(audit.argument());
    machine.accelerator = Accelerator::Tcg;
    machine.command_line.push(COMMAND_LINE.into());
}

/// A web server is asked by the host while IP dies.
fn at_work(bench: &Bench) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let audit = Audit::prepare(folder.path())?;
    let content = vec![7; 100_000];
    let (guest, address) =
        web::serve_on(bench, MachineType::Q35, CPUS, content.clone(), |machine| fit(machine, &audit))?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        for round in 0..2 * FETCHES {
            if round == FETCHES {
                recovery::break_component(guest, "kill", "ip")?;
            }
            ensure!(
                web::fetch(&guest.liveness(), &format!("{address}/file"), web::READY_LIMIT)? == content,
                "other bytes came"
            );
        }
        let record = audit.record()?;
        // Behind the reply nothing is on its way that was said before it.
        guest.control("components", CONTROL_LIMIT)?;
        let verdict = record.judge(&guest.transcript)?;
        ensure!(verdict.breaches.is_empty(), "{}", tell(&verdict));
        seen_to_work(&verdict)?;
        println!(
            "     {} lines written by their own cores, wake bits of others by cores {:?}; of others' memory programs used channels and packet pools, lines by core: {:?}",
            verdict.own, verdict.wakes, verdict.channels
        );
        for core in 0..CPUS {
            let lines = verdict.channels.get(&core).copied().unwrap_or(0);
            ensure!(
                lines >= CHANNEL_LINES_MIN,
                "programs of core {core} were seen to use only {lines} lines of channels"
            );
        }
        Ok(())
    })
}

/// The kernel's objects at work on all cores, those that several share among them: what is in the
/// pool that the description gives them may be written by all, and nothing else. One test has the
/// kernel copy an answer to where two cores' programs share memory, which is what a program may ask
/// for: that, and only that, is found, so a breach is seen when there is one.
fn objects_and_control(bench: &Bench) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let audit = Audit::prepare(folder.path())?;
    let guest = objects::boot(bench, MachineType::Q35, CPUS, |machine| fit(machine, &audit))?;
    with_console(guest, |guest| {
        objects::judge(guest, CPUS)?;
        let mut verdict = audit.record()?.judge(&guest.transcript)?;
        let first = verdict.breaches.iter().find(|breach| breach.deed == Deed::Write);
        let page = first.map_or(0, |breach| breach.place / PAGE_BYTES);
        let is_control = |breach: &Breach| {
            let (at, offset) = (breach.place / PAGE_BYTES, breach.place % PAGE_BYTES);
            at == page && breach.owner == Some(0) && offset / CONTROL_BYTES == u64::from(breach.core)
        };
        let (control, breaches): (Vec<_>, _) = std::mem::take(&mut verdict.breaches).into_iter().partition(is_control);
        verdict.breaches = breaches;
        ensure!(verdict.breaches.is_empty(), "{}", tell(&verdict));
        seen_to_work(&verdict)?;
        println!(
            "     {} lines written by their own cores, wake bits of others by cores {:?}, of core 0's pool {:?}, by programs {:?}",
            verdict.own, verdict.wakes, verdict.pool, verdict.shared
        );
        for core in 1..CPUS {
            let lines = verdict.pool.get(&core).copied().unwrap_or(0);
            ensure!(
                lines >= POOL_LINES_MIN,
                "core {core} was seen to write only {lines} lines of the pool that all share"
            );
            let is_seen = control.iter().any(|breach| breach.core == core);
            ensure!(is_seen, "core {core} wrote to memory of core 0 on purpose, and that was not seen");
            ensure!(
                verdict.shared.contains_key(&core),
                "core {core}'s programs share memory with others on purpose, and were not seen to use it"
            );
        }
        Ok(())
    })
}

/// Writes to others' memory that are right were seen.
fn seen_to_work(verdict: &Verdict) -> Result<()> {
    ensure!(verdict.wakes.len() == CPUS as usize, "only cores {:?} were seen to wake others", verdict.wakes.keys());
    ensure!(verdict.own > 1000, "only {} lines were seen to be written", verdict.own);
    Ok(())
}

fn tell(verdict: &Verdict) -> String {
    let mut symbols = Symbols::default();
    let all: Vec<_> = verdict.breaches.iter().take(SHOWN).map(|breach| breach.describe(&mut symbols)).collect();
    format!("{} writes to memory of others:\n    {}", verdict.breaches.len(), all.join("\n    "))
}
