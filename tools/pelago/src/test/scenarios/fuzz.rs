//! Tier 1: the fuzzer in user mode on all cores at once (apps/fuzz).
//!
//! A failure names its seed; the same calls are made again with `PELAGO_FUZZ_SEED=N ./pelago test
//! NAME`. What cores do to each other depends on their speed, too, so with several it may take some
//! tries.

use crate::host::place;
use crate::image::description;
use crate::image::machine_type::MachineType;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const SYSTEM: &str = "fuzz.toml";
const FUZZER: &str = "fuzz";
/// Machines, and calls of each core.
const ALWAYS: [(MachineType, u32, u64); 3] =
    [(MachineType::Q35, 1, 100_000), (MachineType::Microvm, 2, 60_000), (MachineType::Q35, 4, 30_000)];
const NIGHTLY_CPUS: u32 = 2;
/// Half an hour, by emulation.
const NIGHTLY_CALLS: u64 = 32_000_000;
const SEED: u64 = 20_260;
const SEED_VARIABLE: &str = "PELAGO_FUZZ_SEED";
/// Calls of each core, other than the scenario's.
const CALLS_VARIABLE: &str = "PELAGO_FUZZ_CALLS";
const MIB_PER_CORE: u64 = 24;
/// Without a word from any core.
const SILENCE: Duration = Duration::from_secs(60);
/// Of a hundred calls, those that are not to be refused: what is refused at once tests little.
const SUCCEED_AT_LEAST: u64 = 30;
/// Calls from which on each call has succeeded and each error has come; in a shorter run a few may
/// be missing, as cores meet by chance.
const WHOLE: u64 = 5_000_000;
const UNSEEN_MAX: usize = 5;
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(30);

/// Calls that cannot succeed here, and why.
const NEVER_SUCCEED: [(&str, &str); 28] = [
    ("ConsoleWrite", NO_CONSOLE),
    ("DevicePortRead", NO_CONSOLE),
    ("DevicePortWrite", NO_CONSOLE),
    ("PowerOff", NO_CORE),
    ("RamTurns", NO_CORE),
    ("TraceRead", NO_CORE),
    ("SegmentImport", NO_CORE),
    ("PcoreThrottle", NO_CORE),
    ("ScheduleGang", NO_CORE),
    ("WakeSlotAlloc", NO_CORE),
    ("WakeSlotImport", NO_CORE),
    ("WakeSlotFree", NO_CORE),
    ("PcoreRun", NO_CORE),
    ("PcoreAlloc", NO_CORE),
    ("PcoreHalt", NO_CORE),
    ("PcoreWatch", NO_CORE),
    ("PcoreAddDevice", NO_CORE),
    ("PcoreUse", NO_CORE),
    ("DeviceAlloc", NO_CORE),
    ("SharePool", NO_CORE),
    ("ShareImport", NO_CORE),
    ("RamCarve", "needs a core's root account"),
    ("RamAdd", "needs a core's root account"),
    ("PcoreDeviceStat", "needs a kernel core"),
    ("DeviceWindow", NO_REGISTERS),
    ("DeviceConfRead", NO_REGISTERS),
    ("DeviceConfWrite", NO_CARD),
    ("DeviceInterrupt", NO_CARD),
];
const NO_CONSOLE: &str = "the console's port is the system's";
const NO_CORE: &str = "the capability for the core has no right to configure it";
const NO_REGISTERS: &str = "the capability for the device cannot read: registers reach memory";
const NO_CARD: &str = "depends on the machine's devices";
/// The same of errors.
const NEVER_REFUSED: [(&str, &str); 1] = [("OtherCore", "comes after the right to configure a core")];

pub fn scenarios() -> Vec<Scenario> {
    let mut all: Vec<_> = ALWAYS
        .into_iter()
        .map(|(machine, cpus, calls)| {
            let name = format!("fuzz/{}/{cpus}", machine.name());
            let one = Scenario::alone(1, name.clone(), move |bench| fuzz(bench, &name, machine, cpus, calls, SEED))
                .in_pairs();
            // Calls do not depend on the machine, and what one core finds several find.
            one.by_night(machine != MachineType::Q35 || cpus == 1)
        })
        .collect();
    let name = "fuzz/nightly";
    all.push(Scenario::nightly(1, name.into(), move |bench| {
        // Another one each night.
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(SEED, |since| since.as_secs());
        fuzz(bench, name, MachineType::Q35, NIGHTLY_CPUS, NIGHTLY_CALLS, seed)
    }));
    all
}

fn variable(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is a number, not `{text}`")),
        Err(_) => Ok(default),
    }
}

fn fuzz(bench: &Bench, name: &str, machine: MachineType, cpus: u32, calls: u64, seed: u64) -> Result<()> {
    let (seed, calls) = (variable(SEED_VARIABLE, seed)?, variable(CALLS_VARIABLE, calls)?);
    let system = description::load(&place::root().join("system").join(SYSTEM))?;
    let guest = bench.boot_system(&system, machine, cpus, &[], |_, machine| {
        machine.memory_bytes += u64::from(cpus) * (MIB_PER_CORE << 20);
        machine.command_line.extend([format!("fuzz.seed={seed}"), format!("fuzz.calls={calls}")]);
        Ok(())
    })?;
    with_console(guest, |guest| {
        let begin = Instant::now();
        let tally = listen(guest, name, cpus)?;
        ensure!(tally.made >= calls * u64::from(cpus), "only {} calls were made", tally.made);
        tally.judge()?;
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "     {name}: {} calls, {} not refused, {:.0} a second, seed {seed}",
            tally.made,
            tally.succeeded,
            tally.made as f64 / seconds
        );
        tally.notes.iter().for_each(|note| println!("     {note}"));
        Ok(())
    })
    .with_context(|| format!("seed {seed}: {SEED_VARIABLE}={seed} ./pelago test {name} makes the same calls"))
}

/// What all cores counted.
#[derive(Default)]
struct Tally {
    made: u64,
    succeeded: u64,
    /// Made and not refused, by name.
    calls: BTreeMap<String, [u64; 2]>,
    errors: BTreeMap<String, u64>,
    /// For people.
    notes: Vec<String>,
}

/// Reads until all cores are done.
fn listen(guest: &mut Guest, name: &str, cpus: u32) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut done = 0;
    let mut told = Instant::now();
    while done < cpus {
        let line = guest.expect(": core ", SILENCE)?;
        let Some((core, what)) = parse(&line) else { continue };
        if what.starts_with("FAILED: ") {
            bail!("core {core} {what}");
        }
        if what.starts_with("round ") && told.elapsed() > PROGRESS {
            told = Instant::now();
            println!("     {name}: core {core} {what}");
        }
        done += u32::from(tally.add(core, what));
    }
    Ok(tally)
}

/// `pelago: fuzz-3: core 3 WHAT`.
fn parse(line: &str) -> Option<(u32, &str)> {
    let (name, rest) = line.strip_prefix("pelago: ")?.split_once(": core ")?;
    let (core, what) = rest.split_once(' ')?;
    name.strip_prefix(FUZZER)?;
    Some((core.parse().ok()?, what))
}

impl Tally {
    /// Adds what a core says; tells whether it is the core's last word.
    fn add(&mut self, core: u32, what: &str) -> bool {
        let mut words = what.split([' ', ',']).filter(|word| !word.is_empty());
        let mut number = || words.find_map(|word| word.parse::<u64>().ok()).unwrap_or(0);
        if let Some(name) = what.strip_prefix("call ").and_then(|rest| rest.split(' ').next()) {
            let counts = self.calls.entry(name.to_owned()).or_default();
            counts.iter_mut().for_each(|count| *count += number());
        } else if let Some(name) = what.strip_prefix("error ").and_then(|rest| rest.split(' ').next()) {
            *self.errors.entry(name.to_owned()).or_default() += number();
        } else if what.starts_with("done: ") {
            self.made += number();
            self.succeeded += number();
            return true;
        } else if what.starts_with("scripted domains ") || what.contains(" fresh pages ") {
            self.notes.push(format!("core {core}: {what}"));
        }
        false
    }

    /// Whether that was a fuzzer worth the name.
    fn judge(&self) -> Result<()> {
        let percent = 100 * self.succeeded / self.made.max(1);
        ensure!(percent >= SUCCEED_AT_LEAST, "only {percent} % of the calls were not refused");
        let excused = |list: &[(&str, &str)], name: &str| list.iter().any(|(excused, _)| *excused == name);
        let untried = self.calls.iter().find(|(_, [made, _])| *made == 0);
        ensure!(untried.is_none(), "{untried:?} was never tried");
        let refused =
            self.calls.iter().filter(|(name, [_, succeeded])| *succeeded == 0 && !excused(&NEVER_SUCCEED, name));
        let missing = self.errors.iter().filter(|(name, count)| **count == 0 && !excused(&NEVER_REFUSED, name));
        let unseen: Vec<_> = refused.map(|(name, _)| name).chain(missing.map(|(name, _)| name)).collect();
        let most = if self.made < WHOLE { UNSEEN_MAX } else { 0 };
        ensure!(unseen.len() <= most, "these calls never succeeded, or these errors never came: {unseen:?}");
        ensure!(self.calls.len() > NEVER_SUCCEED.len() && !self.errors.is_empty(), "no core told what it counted");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_cores_are_added() {
        let mut tally = Tally::default();
        for line in [
            "pelago: fuzz-0: core 0 call Null 7 5",
            "pelago: fuzz-1: core 1 call Null 2 1",
            "pelago: fuzz-1: core 1 error NoSlot 4",
        ] {
            let (core, what) = parse(line).unwrap();
            assert!(!tally.add(core, what));
        }
        let (core, what) = parse("pelago: fuzz-1: core 1 done: 12 calls, 6 not refused").unwrap();
        assert!(tally.add(core, what));
        assert_eq!((tally.calls["Null"], tally.errors["NoSlot"]), ([9, 6], 4));
        assert_eq!((tally.made, tally.succeeded), (12, 6));
        assert_eq!(parse("pelago: core 3 is up"), None);
    }

    #[test]
    fn a_bad_fuzzer_is_found() {
        let tally = |errors: u64, succeeded: u64| {
            let mut calls: BTreeMap<_, _> =
                NEVER_SUCCEED.iter().map(|(name, _)| ((*name).to_owned(), [3, 0])).collect();
            calls.insert("Null".into(), [3, succeeded]);
            let errors = [("Busy".to_owned(), errors)].into();
            Tally { made: WHOLE, succeeded: WHOLE / 2, calls, errors, notes: Vec::new() }
        };
        assert!(tally(1, 1).judge().is_ok());
        assert!(tally(0, 1).judge().is_err() && tally(1, 0).judge().is_err());
        assert!(Tally { succeeded: WHOLE / 10, ..tally(1, 1) }.judge().is_err());
        // A short run may miss a few.
        assert!(Tally { made: 10, succeeded: 5, ..tally(0, 0) }.judge().is_ok());
    }
}
