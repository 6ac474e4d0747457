//! Tier 0: the machine comes up, whatever its type and number of cores, and every core's monitor
//! answers.

use crate::image::machine_type::MachineType;
use crate::machine::emulator::Machine;
use crate::run::commands::{Emulator, Mapping};
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection, SectionKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

const CPUS: [u32; 7] = [1, 2, 4, 8, 16, 64, 255];
/// With more, two machines at once would starve each other of the host's cores.
const SHARING_CPUS_MAX: u32 = 4;
/// Nodes of the NUMA machine, and cores of it.
const NODES: u32 = 4;
const NODE_CPUS: [u32; 2] = [4, 8];
/// Cores of the machines where it is seen that without nodes there is one image.
const ONE_IMAGE_CPUS: u32 = 2;
/// Sections of the kernel that are one for several cores and constant.
const IMAGE_SECTIONS: [&str; 3] = [".text", ".rodata", ".shared"];
/// What is added to the place where the loader puts the kernel (`kernel/link.ld`).
const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;
const PAGE_BYTES: u64 = 4096;

/// Seconds even on a loaded machine, and some more where many emulated cores share few of the
/// host's.
fn limit(cpus: u32) -> Duration {
    Duration::from_secs(40 + u64::from(cpus) / 2)
}

type Body = fn(&Bench, MachineType, u32) -> Result<()>;

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for machine in MachineType::ALL {
        for cpus in CPUS {
            let mut add = |name: &str, body: Body| {
                let name = format!("{name}/{}/{cpus}", machine.name());
                let scenario = Scenario::shared(0, name, move |bench| body(bench, machine, cpus));
                all.push(scenario.sharing(cpus <= SHARING_CPUS_MAX));
            };
            add("boot", boot);
            add("boot/ping", ping);
        }
    }
    for machine in MachineType::ALL {
        let name = format!("boot/revoke/{}/1", machine.name());
        all.push(Scenario::shared(0, name, move |bench| revoke(bench, machine)));
        let name = format!("boot/one-image/{}/{ONE_IMAGE_CPUS}", machine.name());
        all.push(Scenario::shared(0, name, move |bench| one_image(bench, machine)));
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

/// An account with a program at work in it and mapped memory is revoked: all of it is gone, and all
/// pages are back.
fn revoke(bench: &Bench, machine: MachineType) -> Result<()> {
    with_console(bench.boot_other("bench.toml", machine, 1, |_| ())?, |guest| {
        let line = guest.expect("bench: revoke", limit(1))?;
        ensure!(line.ends_with("all back"), "{line}");
        Ok(())
    })
}

/// Where the kernel's image lies that each core runs: for each of its pages the physical address,
/// by core.
///
/// All cores see the same bytes in it, and those of the text are the built image's. None of it is
/// writable, and only text is executable; and what is text to one core's kernel is writable to
/// none, wherever it is shown.
fn images(socket: &Path, cpus: u32) -> Result<Vec<BTreeMap<u64, u64>>> {
    let data = crate::host::files::read(&crate::host::place::images().join(crate::image::build::KERNEL))?;
    let file = object::File::parse(&*data).context("the kernel's image is no program")?;
    let mut emulator = Emulator::connect(socket)?;
    let mappings = (0..cpus).map(|core| emulator.kernel_mappings(core)).collect::<Result<Vec<_>>>()?;
    let mut pages = vec![BTreeMap::new(); cpus as usize];
    for name in IMAGE_SECTIONS {
        let section = file.section_by_name(name).with_context(|| format!("the kernel has no section {name}"))?;
        let (start, bytes) = (section.address(), section.size());
        let is_text = section.kind() == SectionKind::Text;
        let mut seen = Vec::new();
        for core in 0..cpus {
            for page in (start & !(PAGE_BYTES - 1)..start + bytes).step_by(PAGE_BYTES as usize) {
                let mapping = mappings[core as usize].iter().find(|mapping| mapping.address == page);
                let mapping = mapping.with_context(|| format!("core {core} sees nothing at {page:#x} of {name}"))?;
                let is_right = !mapping.is_writable && mapping.is_executable == is_text;
                ensure!(is_right, "core {core} has {name} with other rights: {mapping:x?}");
                pages[core as usize].insert(page, mapping.place);
            }
            let bytes = emulator.memory(core, start, bytes)?;
            ensure!(core == 0 || bytes == seen, "core {core} sees other bytes in {name} than core {}", core - 1);
            seen = bytes;
        }
        let built = section.data().context("the kernel's image is damaged")?;
        ensure!(built.is_empty() || built == seen, "what is in {name} is not what was built");
    }
    let all = || mappings.iter().flatten();
    let text: BTreeSet<u64> = all().filter(|mapping| mapping.is_executable).map(|mapping| mapping.place).collect();
    let is_text = |mapping: &&Mapping| text.range(mapping.place..mapping.place + mapping.bytes).next().is_some();
    let writable = all().filter(|mapping| mapping.is_writable).find(is_text);
    ensure!(writable.is_none(), "text is shown writable: {writable:x?}");
    Ok(pages)
}

/// Without nodes all cores run the image where the loader put it.
fn one_image(bench: &Bench, machine: MachineType) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let socket = folder.path().join("commands");
    let change = |machine: &mut Machine| machine.commands = Some(socket.clone());
    with_console(bench.boot_other("bench.toml", machine, ONE_IMAGE_CPUS, change)?, |guest| {
        guest.expect(&format!("pelago: {ONE_IMAGE_CPUS} cores up"), limit(ONE_IMAGE_CPUS))?;
        for (core, pages) in images(&socket, ONE_IMAGE_CPUS)?.iter().enumerate() {
            let elsewhere = pages.iter().find(|(page, place)| *page - KERNEL_BASE != **place);
            ensure!(elsewhere.is_none(), "core {core} runs another image than the loader's: {elsewhere:x?}");
        }
        Ok(())
    })
}

/// The kernel finds the nodes and their distances, no kernel says that its memory is of another
/// node, and what each core gives out, and each page of the image that it runs, lies where the
/// emulator put that core's node: low memory is in the order of the nodes, as long as it ends below
/// the hole for devices. Cores of a node run one image.
fn nodes(bench: &Bench, cpus: u32) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let socket = folder.path().join("commands");
    let mut node_bytes = 0;
    let guest = bench.boot_other("bench.toml", MachineType::Q35, cpus, |machine| {
        machine.nodes = NODES;
        machine.commands = Some(socket.clone());
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
        let images = images(&socket, cpus)?;
        for (core, pages) in (0..).zip(&images) {
            let node = core / (cpus / NODES);
            let elsewhere = pages.iter().find(|(_, place)| **place / node_bytes != u64::from(node));
            ensure!(elsewhere.is_none(), "core {core} of node {node} runs an image of another node: {elsewhere:x?}");
            let first = node * (cpus / NODES);
            ensure!(*pages == images[first as usize], "cores {first} and {core} of node {node} run two images");
        }
        Ok(())
    })
}
