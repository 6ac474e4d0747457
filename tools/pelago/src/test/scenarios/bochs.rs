//! By name and nightly: the disk image boots in a second emulator, on a processor with x2APIC and
//! TSC-deadline timer, so that what is written for real machines runs (see `bochs`).

use super::objects;
use crate::host::{child, place};
use crate::image::{description, disk_image};
use crate::machine::bochs;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, ensure};
use std::process::Command;
use std::time::Duration;

const CPUS: [u32; 3] = [1, 2, 4];
const MEBIBYTES: u64 = 256;
/// All cores take turns on one thread of a host that others use.
const LIMIT: Duration = Duration::from_secs(300);
/// It has a serial port and no card.
const KIND: objects::Kind = objects::Kind {
    slower: 10,
    lacking: Some("device/one_core_has_a_device_at_a_time FAILED: the machine has no device"),
};

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for cpus in CPUS {
        all.push(Scenario::nightly(0, format!("bochs/boot/{cpus}"), move |bench| boots(bench, cpus)));
        all.push(Scenario::nightly(1, format!("bochs/objects/{cpus}"), move |bench| passes(bench, cpus)));
        all.push(Scenario::nightly(4, format!("bochs/program/{cpus}"), move |bench| runs(bench, cpus)));
    }
    all
}

/// Boots a description and a program of this machine (none: the system alone).
fn boot(bench: &Bench, system: &str, cpus: u32, program: &[&str]) -> Result<Guest> {
    let system = description::load(&place::root().join("system").join(system))?;
    let archive = bench.archive(&system, program, |_| Ok(()))?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let (packed, image) = (folder.path().join("boot.archive"), folder.path().join("pelago.iso"));
    archive.write(&packed)?;
    disk_image::make(&packed, &[], &image)?;
    let mut guest = bochs::start(&bochs::Machine { cpus, mebibytes: MEBIBYTES, image: &image })?;
    guest.keep(folder);
    Ok(guest)
}

fn boots(bench: &Bench, cpus: u32) -> Result<()> {
    with_console(boot(bench, "default.toml", cpus, &[])?, |guest| {
        guest.expect(&format!("pelago: boot {cpus} cores"), LIMIT)?;
        guest.heard(&format!("pelago: {cpus} cores up"), LIMIT)?;
        guest.heard("pelago: ready", LIMIT).map(drop)
    })
}

fn passes(bench: &Bench, cpus: u32) -> Result<()> {
    with_console(boot(bench, "conform.toml", cpus, &[])?, |guest| {
        // Its tests may run before the system is ready.
        objects::judge_on(guest, cpus, &KIND).map(drop)
    })
}

fn runs(bench: &Bench, cpus: u32) -> Result<()> {
    let script = "for i in 1 2 3; do echo line $i | md5sum; done; exit 7";
    with_console(boot(bench, "default.toml", cpus, &["busybox", "sh", "-c", script])?, |guest| {
        for line in ["line 1", "line 2", "line 3"] {
            let sum = md5_of(line)?;
            guest.heard(&sum, LIMIT)?;
        }
        let line = guest.heard("pelago: exit ", LIMIT)?;
        ensure!(line == "pelago: exit 7", "{line}");
        Ok(())
    })
}

/// By this machine's own program.
fn md5_of(line: &str) -> Result<String> {
    let output = child::output(Command::new("sh").arg("-c").arg(format!("echo {line} | md5sum")), child::SHORT)?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.split(' ').next().map(str::to_owned).context("md5sum says nothing")
}
