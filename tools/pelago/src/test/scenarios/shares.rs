//! Tier 0: a component on each core uses the same shares: what one writes the others see, all names
//! are gone at the end, and only where several cores change the same share does anybody wait for
//! its lock; and what all touch in turn costs the faults of one core if all show one range.

use crate::bench::coherence;
use crate::host::place;
use crate::image::description;
use crate::image::machine_type::MachineType;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// More would spin for each other longer than they work, where the host has two cores.
const CPUS: [u32; 3] = [1, 2, 4];
/// A lock that is handed on in order stands still while the host runs something else than the core
/// whose turn it is: a second's work takes a minute with eight busy programs besides.
const LIMIT: Duration = Duration::from_secs(240);
/// Of a core that maps for itself what another has touched: 32 pages, 16 shown at a fault.
const FAULTS_OF_A_FOLLOWER: u64 = 2;
/// Shares of all cores, one per kind of lock.
const GLOBAL_SHARES: usize = 4;

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for machine in MachineType::ALL {
        for cpus in CPUS {
            let name = format!("shares/{}/{cpus}", machine.name());
            let scenario = Scenario::shared(0, name, move |bench| shares(bench, machine, cpus));
            // Its cores spin for each other: two take half a second alone, and half a minute beside
            // another machine.
            all.push(scenario.sharing(cpus == 1));
        }
    }
    all
}

fn shares(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let system = description::load(&place::root().join("system").join(coherence::SYSTEM))?;
    with_console(bench.boot_system(&system, machine, cpus, &[], |_, _| Ok(()))?, |guest| {
        layouts(guest, cpus)?;
        guest.expect(&format!("shared: {cpus} cores see one segment"), LIMIT)?;
        for _ in 0..GLOBAL_SHARES {
            let line = guest.expect("objects left", LIMIT)?;
            let waits = waits(&line).with_context(|| format!("{line}: no number of waits"))?;
            ensure!(line.contains(": 0 objects left"), "{line}");
            ensure!(cpus > 1 || waits == 0, "one core waited for itself: {line}");
        }
        guest.expect("load done", LIMIT)?;
        Ok(())
    })
}

/// Corey's memclone and mempass: the pages that all pass on are made by the first core's faults;
/// the others have none where all show one range, and some each where each maps for itself.
fn layouts(guest: &mut Guest, cpus: u32) -> Result<()> {
    let mut faults = Vec::new();
    for name in [
        "memclone/single",
        "mempass/single",
        "memclone/separate",
        "mempass/separate",
        "memclone/mixed",
        "mempass/mixed",
    ] {
        let line = guest.expect(&format!("{name}: "), LIMIT)?;
        let (taken, waits) = faults_and_waits(&line).with_context(|| format!("{line}: no faults"))?;
        // On several cores making and taking apart what is measured may meet; `objects/*`
        // (shared_range) judges a range of one's own.
        ensure!(cpus > 1 || waits == 0, "one core waited for itself: {line}");
        faults.push(taken);
    }
    let [_, single, _, separate, _, mixed] = faults[..] else { unreachable!("six lines were read") };
    let further = u64::from(cpus - 1) * FAULTS_OF_A_FOLLOWER;
    // A fault more may be another component's.
    for shared in [single, mixed] {
        ensure!(
            shared + further <= separate + 1,
            "{shared} faults of {cpus} cores in one range, {separate} if each maps for itself"
        );
    }
    Ok(())
}

/// Of `NAME: 4 faults of 2 cores at 32 pages each, 0 waits`.
fn faults_and_waits(line: &str) -> Option<(u64, u64)> {
    let faults = line.split(" faults of ").next()?.rsplit(' ').next()?;
    Some((faults.parse().ok()?, waits(line)?))
}

/// Of `NAME: 0 objects left, lock taken N times, N waits`.
fn waits(line: &str) -> Option<u64> {
    line.strip_suffix(" waits")?.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_is_read() {
        assert_eq!(super::waits("load-0: x: 0 objects left, lock taken 8000 times, 12 waits"), Some(12));
        assert_eq!(super::waits("load-0: x: 0 objects left"), None);
        let line = "pelago: load-0: mempass/single: 4 faults of 2 cores at 32 pages each, 1 waits";
        assert_eq!(super::faults_and_waits(line), Some((4, 1)));
    }
}
