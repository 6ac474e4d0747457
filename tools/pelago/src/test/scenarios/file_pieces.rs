//! Tier 3: files that are read piece by piece, in memory and on a disk (`file_pieces.c`): a program
//! reads what is there, though others change it and its proxy keeps what comes next (decision 96);
//! and the next piece begins where it has to, though others have the description, too. The program
//! passes on this machine as well.

use super::checks;
use super::volume::Disk;
use crate::image::machine_type::MachineType;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::Result;

const CHECKS: &str = include_str!("file_pieces.c");

pub fn scenarios() -> Vec<Scenario> {
    let of = |cpus: u32| Scenario::shared(3, format!("file-pieces/q35/{cpus}"), move |bench| run(bench, cpus));
    let mut all: Vec<_> = [1, 2].map(of).into();
    all.push(Scenario::shared(3, "file-pieces/linux".into(), |_| checks::on_this_machine(CHECKS)));
    all
}

fn run(bench: &Bench, cpus: u32) -> Result<()> {
    let disk = Disk::new()?;
    disk.format()?;
    let guest = disk.boot_checks(bench, MachineType::Q35, cpus, CHECKS, "/checks /tmp && exec /checks /data")?;
    with_console(guest, |guest| {
        guest.expect("all checked, 0 failed", checks::LIMIT)?;
        checks::pass(guest)
    })
}
