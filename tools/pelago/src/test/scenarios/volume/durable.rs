//! What O_SYNC, O_DSYNC and their like promise: when such a write is answered the disk has it. The
//! host takes a copy of the disk at that moment, as a cut of the power would leave it.

use super::{Disk, LIMIT, MachineType, program};
use crate::host::child;
use crate::test::scenario::{Bench, with_console};
use crate::test::scenarios::checks;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::Command;

const SOURCE: &str = include_str!("durable.c");
/// The files that it writes, in order.
const FILES: [&str; 6] = ["whole", "bytes", "whole-once", "bytes-once", "sent", "appended"];

pub fn run(bench: &Bench, cpus: u32) -> Result<()> {
    let disk = Disk::new()?;
    disk.format()?;
    let guest = disk.boot_checks(bench, MachineType::Q35, cpus, SOURCE, "exec /checks")?;
    with_console(guest, |guest| {
        for file in FILES {
            guest.expect(&format!("durable: {file}"), LIMIT)?;
            is_there(&disk, file).with_context(|| format!("the disk when {file} was written"))?;
            ensure!(guest.input().send(b"\n"), "the guest is gone");
        }
        checks::pass(guest)
    })
}

/// Recovers a copy of the disk, as the next machine would, and looks for the file's bytes.
fn is_there(disk: &Disk, file: &str) -> Result<()> {
    let copy = disk.folder.path().join("copy");
    fs::copy(disk.image(), &copy).context("cannot copy a disk")?;
    let mended = child::output(Command::new(program("e2fsck")?).arg("-p").arg(&copy), child::SHORT)?;
    ensure!(mended.status.code() <= Some(1), "e2fsck: {}", String::from_utf8_lossy(&mended.stdout));
    let mut look = Command::new(program("debugfs")?);
    let told = child::output(look.args(["-R", &format!("cat /{file}")]).arg(&copy), child::SHORT)?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    ensure!(told.trim_end() == format!("written by {file}"), "`{told}`");
    Ok(())
}
