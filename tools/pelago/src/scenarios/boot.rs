//! Tier 0: the machine comes up, whatever its type and number of cores, and every core's monitor answers.

use crate::emulator::MachineType;
use crate::scenario::{Bench, Scenario, with_console};
use anyhow::Result;
use std::time::Duration;

const CPUS: [u32; 7] = [1, 2, 4, 8, 16, 64, 255];
/// With more, two machines at once would starve each other of the host's cores.
const SHARING_CPUS_MAX: u32 = 4;
/// Above it only the kernels are waited for: the components of 255 cores take their time where all of them share two of the host's.
const ALL_COMPONENTS_CPUS_MAX: u32 = 64;

/// Emulated cores start one after the other; the rest is seconds even on a loaded machine.
fn limit(cpus: u32) -> Duration {
    Duration::from_secs(20 + u64::from(cpus) / 2)
}

type Body = fn(&Bench, MachineType, u32) -> Result<()>;

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for machine in MachineType::ALL {
        for cpus in CPUS {
            let mut add = |name: &str, body: Body| {
                let name = format!("{name}/{}/{cpus}", machine.name());
                let scenario = Scenario::shared(0, name, move |bench| body(bench, machine, cpus));
                all.push(Scenario { shares: cpus <= SHARING_CPUS_MAX, ..scenario });
            };
            add("boot", boot);
            if cpus <= ALL_COMPONENTS_CPUS_MAX {
                add("ping", ping);
            }
        }
    }
    all
}

/// All cores up, and all components at work.
fn boot(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    with_console(bench.boot_bare(machine, cpus)?, |guest| {
        guest.expect(&format!("pelago: {cpus} cores up"), limit(cpus))?;
        if cpus <= ALL_COMPONENTS_CPUS_MAX {
            guest.expect("pelago: ready", limit(cpus))?;
        }
        Ok(())
    })
}

/// A program on the first core asks each core's monitor.
fn ping(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    with_console(bench.boot_other("bench.toml", machine, cpus)?, |guest| {
        guest.expect(&format!("bench: pinged {cpus} cores"), limit(cpus)).map(drop)
    })
}
