//! Tier 0: the machine comes up, whatever its type and number of cores.

use crate::emulator::MachineType;
use crate::scenario::{Scenario, with_console};
use std::time::Duration;

const CPUS: [u32; 7] = [1, 2, 4, 8, 16, 64, 255];

/// 255 emulated cores start one after the other; the rest is seconds even on a loaded machine.
fn limit(cpus: u32) -> Duration {
    Duration::from_secs(20 + u64::from(cpus) / 2)
}

pub fn scenarios() -> Vec<Scenario> {
    let matrix = MachineType::ALL.into_iter().flat_map(|machine| CPUS.into_iter().map(move |cpus| (machine, cpus)));
    matrix.map(|(machine, cpus)| boot(machine, cpus)).collect()
}

/// All cores up, and all components at work.
fn boot(machine: MachineType, cpus: u32) -> Scenario {
    let body = move |bench: &crate::scenario::Bench| {
        with_console(bench.boot_bare(machine, cpus)?, |guest| {
            guest.expect(&format!("pelago: {cpus} cores up"), limit(cpus))?;
            guest.expect("pelago: ready", limit(cpus))?;
            Ok(())
        })
    };
    Scenario { name: format!("boot/{}/{cpus}", machine.name()), tier: 0, body: Box::new(body) }
}
