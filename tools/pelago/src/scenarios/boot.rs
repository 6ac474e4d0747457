//! Tier 0: the machine comes up, whatever its type and number of cores, and every core's monitor answers.

use crate::emulator::MachineType;
use crate::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

const CPUS: [u32; 7] = [1, 2, 4, 8, 16, 64, 255];
/// With more, two machines at once would starve each other of the host's cores.
const SHARING_CPUS_MAX: u32 = 4;
/// Nodes of the NUMA machine, and cores of it.
const NODES: u32 = 4;
const NODE_CPUS: [u32; 2] = [4, 8];

/// Seconds even on a loaded machine, and some more where many emulated cores share few of the host's.
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
            add("ping", ping);
        }
    }
    for machine in MachineType::ALL {
        let name = format!("revoke/{}/1", machine.name());
        all.push(Scenario::shared(0, name, move |bench| revoke(bench, machine)));
    }
    // microvm has no nodes.
    for cpus in NODE_CPUS {
        let name = format!("boot/numa{NODES}/q35/{cpus}");
        all.push(Scenario::shared(0, name, move |bench| nodes(bench, cpus)));
    }
    all
}

/// All cores up, and all components at work.
fn boot(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    with_console(bench.boot_bare(machine, cpus)?, |guest| {
        guest.expect(&format!("pelago: {cpus} cores up"), limit(cpus))?;
        guest.expect("pelago: ready", limit(cpus)).map(drop)
    })
}

/// A program on the first core asks each core's monitor.
fn ping(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    with_console(bench.boot_other("bench.toml", machine, cpus, |_| ())?, |guest| {
        guest.expect(&format!("bench: pinged {cpus} cores"), limit(cpus)).map(drop)
    })
}

/// An account with a program at work in it and mapped memory is revoked: all of it is gone, and all pages are back.
fn revoke(bench: &Bench, machine: MachineType) -> Result<()> {
    with_console(bench.boot_other("bench.toml", machine, 1, |_| ())?, |guest| {
        let line = guest.expect("bench: revoke", limit(1))?;
        ensure!(line.ends_with("all back"), "{line}");
        Ok(())
    })
}

/// The kernel finds the nodes and their distances, no kernel says that its memory is of another node, and what each core gives out lies
/// where the emulator put that core's node: low memory is in the order of the nodes, as long as it ends below the hole for devices.
fn nodes(bench: &Bench, cpus: u32) -> Result<()> {
    let mut node_bytes = 0;
    let guest = bench.boot_other("bench.toml", MachineType::Q35, cpus, |machine| {
        machine.nodes = NODES;
        node_bytes = machine.memory_bytes / u64::from(NODES);
    })?;
    with_console(guest, |guest| {
        for core in 0..cpus {
            let node = core / (cpus / NODES);
            let line = guest.expect(&format!("memory of core {core} of node {node}: 0x"), limit(cpus))?;
            let address = line.rsplit_once("0x").and_then(|(_, digits)| u64::from_str_radix(digits.trim(), 16).ok());
            let address = address.with_context(|| format!("no address in `{line}`"))?;
            ensure!(address / node_bytes == u64::from(node), "{address:#x} is not memory of node {node}");
        }
        let said = |words: &str| guest.transcript.iter().any(|line| line.contains(words));
        for (node, distances) in ["10 20 30 40", "20 10 20 30", "30 20 10 20", "40 30 20 10"].iter().enumerate() {
            let (cores, mib) = (cpus / NODES, node_bytes >> 20);
            let line = format!("pelago: node {node}: {cores} cores, {mib} MiB, distances {distances}");
            ensure!(said(&line), "the kernel did not say `{line}`");
        }
        ensure!(!said("are not of its node"), "a kernel's memory is of another node");
        Ok(())
    })
}
