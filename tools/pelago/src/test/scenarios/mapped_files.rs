//! Tier 3: large mappings of files that are only read (`mapped_files.c`, decision 98), in memory
//! and on a disk; and one of a file that is larger than the machine's memory. The program passes on
//! this machine as well.

use super::checks;
use super::volume::Disk;
use crate::image::machine_type::MachineType;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::Result;

const CHECKS: &str = include_str!("mapped_files.c");
/// Less than the large file.
const MEMORY_BYTES: u64 = 192 << 20;
const LARGE_MIB: u64 = 300;

pub fn scenarios() -> Vec<Scenario> {
    let of = |cpus: u32| Scenario::shared(3, format!("mapped-files/q35/{cpus}"), move |bench| run(bench, cpus));
    let mut all: Vec<_> = [1, 2].map(of).into();
    all.push(Scenario::shared(3, "mapped-files/linux".into(), |_| checks::on_this_machine(CHECKS)));
    all
}

fn run(bench: &Bench, cpus: u32) -> Result<()> {
    let disk = Disk::new()?;
    disk.format_to((LARGE_MIB + 60) << 20)?;
    let program = checks::compile(CHECKS)?;
    let script = format!("/checks /tmp && /checks /data && exec /checks /data {LARGE_MIB}");
    let guest = disk.boot_with(bench, MachineType::Q35, cpus, false, &script, |root, machine| {
        machine.memory_bytes = MEMORY_BYTES * u64::from(cpus);
        root.file("root/checks", 0o755, program);
        Ok(())
    })?;
    with_console(guest, |guest| {
        for _ in 0..2 {
            guest.expect("all checked, 0 failed", checks::LIMIT)?;
        }
        checks::pass(guest)
    })
}
