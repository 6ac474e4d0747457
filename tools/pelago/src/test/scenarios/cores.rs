//! Cores as objects, from user mode (`apps/cores`): claimed, run, halted and restarted while the
//! system serves; kernel cores; and what the kernel tells of the machine, held against what the
//! emulator was told to build.

use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Accelerator, Machine};
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};

const CPUS: [u32; 4] = [1, 2, 4, 8];
const SHARING_CPUS_MAX: u32 = 2;
const NODES: u32 = 4;
const LIMIT: Duration = Duration::from_secs(90);
const CONTROL_CPUS: u32 = 8;
const CONTROL_LIMIT: Duration = Duration::from_secs(30);
/// An odd number of sectors.
const DISK_BYTES: u64 = (3 << 30) + 512;
/// How long a program has its core to itself by `--nightly`, in seconds of the guest's time.
const ALONE_SECONDS: u64 = 3600;
/// Word of the command line for it (`apps/cores/src/lib.rs`).
const ASKED: &str = "cores.alone=";
const ALONE_CPUS: u32 = 2;
/// Nanoseconds of an instruction meanwhile: a slow machine, so that the hour is a few minutes of
/// the host; what it does by its clock it does all the same.
const ALONE_INSTRUCTION_NS: u32 = 128;
/// For what the guest says each minute of its own, on a busy host.
const ALONE_SILENCE: Duration = Duration::from_secs(300);
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(30);
/// Tests on every machine, and those that need a second core.
const ALONE: usize = 9;
const WITH_OTHERS: usize = 16;

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for machine in MachineType::ALL {
        for cpus in CPUS {
            let name = format!("cores/{}/{cpus}", machine.name());
            let scenario = Scenario::shared(0, name, move |bench| cores(bench, machine, cpus));
            all.push(scenario.sharing(cpus <= SHARING_CPUS_MAX));
        }
    }
    for machine in MachineType::ALL {
        let name = format!("cores/control/{}/{CONTROL_CPUS}", machine.name());
        all.push(Scenario::shared(0, name, move |bench| control(bench, machine)));
    }
    let name = format!("cores/numa{NODES}/q35/{NODES}");
    // As many cores as others that do not share: 2 s instead of 28.
    all.push(Scenario::alone(0, name, nodes));
    all.push(Scenario::nightly(0, format!("cores/hour/q35/{ALONE_CPUS}"), hour));
    all
}

/// From the host: the last core, which has no components in the default system, is halted and
/// started again; cores in use say so.
fn control(bench: &Bench, machine: MachineType) -> Result<()> {
    with_console(bench.boot_bare(machine, CONTROL_CPUS)?, |guest| {
        guest.expect("pelago: ready", LIMIT)?;
        let last = CONTROL_CPUS - 1;
        let running = |guest: &mut Guest| -> Result<usize> {
            let lines = guest.control_lines("cores", CONTROL_LIMIT)?;
            ensure!(lines.len() == CONTROL_CPUS as usize, "{lines:?}");
            Ok(lines.iter().filter(|line| line.contains(" monitor ") && line.contains("domain ")).count())
        };
        for _ in 0..10 {
            let reply = guest.control(&format!("core {last} halt"), CONTROL_LIMIT)?;
            ensure!(reply.starts_with("ok "), "{reply}");
            ensure!(running(guest)? == CONTROL_CPUS as usize - 1, "the halted core runs, or another does not");
            let reply = guest.control(&format!("core {last} run"), CONTROL_LIMIT)?;
            ensure!(reply.starts_with("ok "), "{reply}");
            ensure!(running(guest)? == CONTROL_CPUS as usize, "the core does not run again");
        }
        for (request, says) in [("core 0 halt", "no core 0"), ("core 99 halt", "no core 99"), ("core 1 halt", "in use")]
        {
            let reply = guest.control(request, CONTROL_LIMIT)?;
            ensure!(reply.starts_with("error ") && reply.contains(says), "{request}: {reply}");
        }
        Ok(())
    })
}

/// A program has its core for an hour, and its kernel counts no switch, no interrupt and no wake-up
/// there (Corey section 3.2).
fn hour(bench: &Bench) -> Result<()> {
    let guest = bench.boot_other("cores.toml", MachineType::Q35, ALONE_CPUS, |machine| {
        machine.instruction_ns = Some(ALONE_INSTRUCTION_NS);
        machine.accelerator = Accelerator::Tcg;
        machine.command_line.push(format!("{ASKED}{ALONE_SECONDS}"));
    })?;
    with_console(guest, |guest| {
        let mut told = Instant::now();
        loop {
            let line = guest.expect("cores: ", ALONE_SILENCE)?;
            if let Some((_, end)) = line.split_once("cores: done: ") {
                let failed: Vec<&str> = said(guest, " FAILED: ").collect();
                ensure!(end == "1 ok, 0 failed", "{end}: {}", failed.join("; "));
                let whole = format!("alone for {ALONE_SECONDS} s");
                let last = said(guest, &whole).next().context("it was not told how long the program had its core")?;
                println!("     {last}");
                return Ok(());
            }
            if line.contains("alone for ") && told.elapsed() > PROGRESS {
                told = Instant::now();
                println!("     {line}");
            }
        }
    })
}

/// Every test is ok, and none is missing.
fn pass(guest: &mut Guest, cpus: u32) -> Result<()> {
    let line = guest.expect("cores: done:", LIMIT)?;
    let failed: Vec<&str> = said(guest, " FAILED: ").collect();
    ensure(failed.is_empty(), || failed.join("; "))?;
    let count = ALONE + if cpus > 1 { WITH_OTHERS } else { 0 };
    ensure!(line.ends_with(&format!("done: {count} ok, 0 failed")), "{line}");
    let left: Vec<&str> = said(guest, " halts with ").collect();
    ensure(left.is_empty(), || left.join("; "))
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<()> {
    ensure!(holds, "{}", why());
    Ok(())
}

fn said<'a>(guest: &'a Guest, words: &'a str) -> impl Iterator<Item = &'a str> {
    guest.transcript.iter().map(String::as_str).filter(move |line| line.contains(words))
}

/// With the devices that the tests look for.
fn equip(machine: &mut Machine) {
    machine.has_pair = true;
    machine.disk_bytes = DISK_BYTES;
}

fn cores(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    with_console(bench.boot_other("cores.toml", machine, cpus, equip)?, |guest| {
        pass(guest, cpus)?;
        devices(guest)?;
        owners(guest, cpus)
    })
}

/// The console tells of each core what it runs, for whom, and that no program had the last one,
/// which the tests kept as a kernel core.
fn owners(guest: &mut Guest, cpus: u32) -> Result<()> {
    let lines = guest.control_lines("cores", CONTROL_LIMIT)?;
    ensure!(lines.len() == cpus as usize, "{lines:?}");
    for (core, line) in (0..cpus).zip(&lines) {
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let owner = if core == 0 { "nobody" } else { "monitor" };
        let is_kept = core > 0 && core + 1 == cpus;
        let what = if is_kept { "kernel core claimed by cores".into() } else { format!("monitor claimed by {owner}") };
        let rest = words.strip_prefix(&format!("core {core} {what} programs "));
        let used_us: u64 = rest.and_then(|rest| rest.split(' ').next()?.parse().ok()).with_context(|| words.clone())?;
        ensure!((used_us == 0) == is_kept, "{words}");
    }
    Ok(())
}

/// The list that programs get is the one the kernel made when it looked at the buses.
fn devices(guest: &Guest) -> Result<()> {
    let found: Vec<(u64, String)> = said(guest, "pelago: device ").filter_map(enumerated).collect();
    let listed: Vec<(u64, String)> = said(guest, "cores: device hwid ").filter_map(listed).collect();
    ensure!(said(guest, &format!("cores: a disk of {DISK_BYTES} bytes")).next().is_some(), "no disk as it was given");
    // The serial port and the real-time clock are no part of any bus.
    let (ports, on_buses): (Vec<_>, Vec<_>) = listed.into_iter().partition(|(hwid, _)| *hwid >= 0x2_0000);
    ensure!(ports.len() == 2, "{} devices that are only ports", ports.len());
    ensure!(found == on_buses, "found {found:x?}, listed {on_buses:x?}");
    Ok(())
}

/// `pelago: device 00:02.0 1af4:1041 ...` or `pelago: device mmio:00 1af4:1041 ...`.
fn enumerated(line: &str) -> Option<(u64, String)> {
    let mut words = line.split("pelago: device ").nth(1)?.split_whitespace();
    let (place, id) = (words.next()?, words.next()?);
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let hwid = match place.strip_prefix("mmio:") {
        Some(number) => 0x1_0000 + hex(number)?,
        None => {
            let (bus, rest) = place.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            hex(bus)? << 8 | hex(device)? << 3 | hex(function)?
        }
    };
    Some((hwid, id.to_owned()))
}

/// `cores: device hwid 0x10 1af4:1041 class 020000`.
fn listed(line: &str) -> Option<(u64, String)> {
    let mut words = line.split("device hwid 0x").nth(1)?.split_whitespace();
    Some((u64::from_str_radix(words.next()?, 16).ok()?, words.next()?.to_owned()))
}

/// On four nodes: the distances are those the emulator was told, and memory asked of a core lies in
/// its node.
fn nodes(bench: &Bench) -> Result<()> {
    let mut node_bytes = 0;
    let guest = bench.boot_other("cores.toml", MachineType::Q35, NODES, |machine| {
        machine.nodes = NODES;
        equip(machine);
        node_bytes = machine.memory_bytes / u64::from(NODES);
    })?;
    with_console(guest, |guest| {
        pass(guest, NODES)?;
        for (core, distances) in ["10 20 30 40", "20 10 20 30", "30 20 10 20", "40 30 20 10"].iter().enumerate() {
            let line = format!("cores: distances of core {core}: {distances}");
            ensure!(said(guest, &line).next().is_some(), "no line `{line}`");
        }
        let line = said(guest, "cores: memory of core ").next().context("no line about memory of a core")?;
        let number = |after: &str| -> Option<u64> {
            let text = line.split(after).nth(1)?;
            let digits: String = text.chars().take_while(char::is_ascii_hexdigit).collect();
            u64::from_str_radix(&digits, 16).ok()
        };
        let (node, address) = (number("of node ").context("no node")?, number(": 0x").context("no address")?);
        ensure!(address / node_bytes == node, "{address:#x} is not memory of node {node}");
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lists_name_a_device_alike() {
        let card = Some((0x10, "1af4:1041".to_owned()));
        assert_eq!(enumerated("pelago: device 00:02.0 1af4:1041 network (class 020000) 0xfe000000+0x1000"), card);
        assert_eq!(listed("[0.1] cores: device hwid 0x10 1af4:1041 class 020000"), card);
        let window = Some((0x1_0002, "1af4:1042".to_owned()));
        assert_eq!(enumerated("pelago: device mmio:02 1af4:1042 storage 0xfeb00000+0x200 line 5"), window);
    }
}
