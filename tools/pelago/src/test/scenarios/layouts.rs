//! Tier 0: Corey's memclone and mempass over up to eight cores. In each layout a core's own memory
//! costs a fault for each page; what all pass on costs one for each page in all where one range
//! shows it, and more for each core that maps for itself. On several nodes it is told whose turn it
//! is, the turns go round the nodes, and every page of a core's own is of its node.

use crate::bench::layouts::{self, Row};
use crate::image::machine_type::MachineType;
use crate::machine::guest::Guest;
use crate::run::commands::Emulator;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::time::Duration;

const CPUS: [u32; 3] = [1, 2, 8];
/// Pages of each core: 8 MiB.
const PAGES: u64 = 2048;
/// A page that a core maps for itself is shown with its neighbours, if they are there.
const SHOWN_AT_A_FAULT: u64 = 16;
/// Other programs' faults on these cores, in parts of a hundred of what is counted.
const SLACK_PERCENT: u64 = 2;
/// Seconds, but for a host with many busy programs besides.
const LIMIT: Duration = Duration::from_secs(240);
/// A machine of several nodes, its cores, and how many of them take part: as the paper's example,
/// five on four nodes.
const NODES: u32 = 4;
const NODE_CPUS: u32 = 8;
const NODE_WORKERS: u32 = 5;
/// Memory is looked through in pieces of so many bytes.
const LOOK_BYTES: u64 = 32 << 20;
const PAGE_BYTES: usize = 4096;
/// As apps/bench's `layouts` stamps pages of a core's own: this, the layout, core and page.
const STAMP: u64 = 0x6d65_6d63;
/// The last layout, whose memory the cores keep at the end: in it a core's own memory is not of the
/// pool of all.
const MIXED: u64 = 2;

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for machine in MachineType::ALL {
        for cpus in CPUS {
            let name = format!("layouts/{}/{cpus}", machine.name());
            let scenario = Scenario::shared(0, name, move |bench| faults(bench, machine, cpus));
            all.push(scenario.sharing(cpus <= 2));
        }
    }
    // microvm has no nodes.
    all.push(Scenario::alone(0, format!("layouts/numa{NODES}/q35/{NODE_CPUS}"), nodes));
    all
}

fn faults(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let guest = bench.boot_other(layouts::SYSTEM, machine, cpus, |machine| {
        machine.command_line.push(format!("{}{PAGES}", layouts::PAGES_WORD));
    })?;
    with_console(guest, |guest| judge(guest, u64::from(cpus)))
}

/// Waits for the end and judges each row's faults.
fn judge(guest: &mut Guest, cores: u64) -> Result<()> {
    let told = layouts::told(guest, LIMIT)?;
    ensure!(told.rows.len() == layouts::ROWS, "some rows are absent");
    for row in told.rows {
        let Row { name, faults, cores: told, pages, .. } = &row;
        ensure!((*told, *pages) == (cores, PAGES), "{name} is of {told} cores at {pages} pages each");
        let expected = expected(name, cores).with_context(|| format!("there is no row {name}"))?;
        let most = expected + expected * SLACK_PERCENT / 100;
        ensure!((expected..=most).contains(faults), "{name}: {faults} faults of {cores} cores, not {expected}");
    }
    Ok(())
}

/// Soft faults of all cores.
fn expected(name: &str, cores: u64) -> Option<u64> {
    Some(match name.split_once('/')? {
        ("memclone", _) => PAGES * cores,
        ("mempass", "separate") => PAGES + (cores - 1) * PAGES / SHOWN_AT_A_FAULT,
        ("mempass", _) => PAGES,
        _ => return None,
    })
}

fn nodes(bench: &Bench) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let socket = folder.path().join("commands");
    let mut node_bytes = 0;
    let guest = bench.boot_other(layouts::SYSTEM, MachineType::Q35, NODE_CPUS, |machine| {
        machine.nodes = NODES;
        machine.commands = Some(socket.clone());
        machine.command_line.push(format!("{}{PAGES}", layouts::PAGES_WORD));
        machine.command_line.push(format!("{}{NODE_WORKERS}", layouts::CORES_WORD));
        node_bytes = machine.memory_bytes / u64::from(NODES);
    })?;
    with_console(guest, |guest| {
        judge(guest, NODE_WORKERS.into())?;
        let per_node = NODE_CPUS / NODES;
        for turn in 0..NODE_WORKERS {
            // The first core of each node, then the second.
            let (node, core) = (turn % NODES, turn % NODES * per_node + turn / NODES);
            guest.heard(&format!("layouts-{core}: turn {turn}: core {core} of node {node}"), LIMIT)?;
        }
        let stamps = stamps(&mut Emulator::connect(&socket)?, node_bytes * u64::from(NODES))?;
        for turn in 0..NODE_WORKERS {
            let core = u64::from(turn % NODES * per_node + turn / NODES);
            let own: Vec<_> = stamps.iter().filter(|stamp| (stamp.layout, stamp.core) == (MIXED, core)).collect();
            let pages: BTreeSet<u64> = own.iter().map(|stamp| stamp.page).collect();
            ensure!(pages.len() as u64 == PAGES, "only {} pages of core {core} are seen in memory", pages.len());
            let elsewhere = own.iter().find(|stamp| stamp.address / node_bytes != core / u64::from(per_node));
            ensure!(elsewhere.is_none(), "of core {core}'s own memory a page is of another node: {elsewhere:x?}");
        }
        Ok(())
    })
}

/// A page that a core has written, and where it lies.
#[derive(Debug)]
struct Stamp {
    layout: u64,
    core: u64,
    page: u64,
    address: u64,
}

/// All of them in the machine's memory; also those of pages that were let go of, and are not used
/// again yet.
fn stamps(emulator: &mut Emulator, memory_bytes: u64) -> Result<Vec<Stamp>> {
    let mut all = Vec::new();
    for start in (0..memory_bytes).step_by(LOOK_BYTES as usize) {
        let bytes = emulator.physical(start, LOOK_BYTES.min(memory_bytes - start))?;
        let pages =
            bytes.chunks(PAGE_BYTES).map(|page| page.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word)));
        let stamped = (start..).step_by(PAGE_BYTES).zip(pages).filter(|(_, word)| word >> 32 == STAMP);
        all.extend(stamped.map(|(address, word)| Stamp {
            layout: word >> 28 & 0xf,
            core: word >> 20 & 0xff,
            page: word & 0xf_ffff,
            address,
        }));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_one_for_each_page_or_more_for_each_core() {
        assert_eq!(expected("memclone/mixed", 8), Some(8 * PAGES));
        assert_eq!(expected("mempass/single", 8), Some(PAGES));
        assert_eq!(expected("mempass/separate", 8), Some(PAGES + 7 * PAGES / 16));
        assert_eq!(expected("other", 8), None);
    }
}
