//! Tier 0: a component on each core uses the same shares: what one writes the others see, all names are gone at the end, and only where several cores
//! change the same share does anybody wait for its lock.

use crate::emulator::MachineType;
use crate::scenario::{Bench, Scenario, with_console};
use crate::{coherence, description, place};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// More would spin for each other longer than they work, where the host has two cores.
const CPUS: [u32; 3] = [1, 2, 4];
/// A lock that is handed on in order stands still while the host runs something else than the core whose turn it is: a second's work takes a minute
/// with eight busy programs besides.
const LIMIT: Duration = Duration::from_secs(240);
/// Shares of all cores, one per kind of lock.
const GLOBAL_SHARES: usize = 4;

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for machine in MachineType::ALL {
        for cpus in CPUS {
            let name = format!("shares/{}/{cpus}", machine.name());
            let scenario = Scenario::shared(0, name, move |bench| shares(bench, machine, cpus));
            // Its cores spin for each other.
            all.push(Scenario { shares: cpus <= 2, ..scenario });
        }
    }
    all
}

fn shares(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let system = description::load(&place::root().join("system").join(coherence::SYSTEM))?;
    let system = description::on_each_core(&system, coherence::LOAD, cpus)?;
    with_console(bench.boot_system(&system, machine, cpus, &[], |_, _| Ok(()))?, |guest| {
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
    }
}
