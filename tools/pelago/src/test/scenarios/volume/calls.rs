//! Calls of files on a disk, by a program that passes on ext4 in Linux, too; what it leaves there
//! the host finds, and what the host has set it finds.

use super::{AT, Disk, MachineType, program};
use crate::host::child;
use crate::test::scenario::{Bench, with_console};
use crate::test::scenarios::checks;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("calls.c");
const LINUX_LIMIT: Duration = Duration::from_secs(60);

/// The same program on this machine's Linux, if its temporary files lie on ext4.
pub fn on_linux() -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let kind = child::output(Command::new("stat").args(["-f", "-c", "%T"]).arg(folder.path()), LINUX_LIMIT)?;
    if String::from_utf8_lossy(&kind.stdout).trim() != "ext2/ext3" {
        return Ok(());
    }
    let path = folder.path().join("checks");
    crate::host::files::write(&path, &checks::compile(SOURCE)?)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context("cannot make it a program")?;
    let place = folder.path().join("place");
    fs::create_dir(&place).context("cannot make a folder")?;
    let output = child::output(Command::new(&path).arg(&place), LINUX_LIMIT)?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Ok(())
}

pub fn run(bench: &Bench, cpus: u32) -> Result<()> {
    let disk = Disk::new()?;
    fs::write(disk.tree().join("given"), "given\n").context("cannot make a file for a volume")?;
    fs::write(disk.tree().join("value"), "h".repeat(1500)).context("cannot make a file for a volume")?;
    disk.format()?;
    let value = disk.tree().join("value").display().to_string();
    ask(&disk, true, "ea_set /given user.host \"from the host\"")?;
    ask(&disk, true, &format!("ea_set -f {value} /given user.large"))?;
    let guest = disk.boot_checks(bench, MachineType::Q35, cpus, SOURCE, &format!("exec /checks {AT}"))?;
    with_console(guest, checks::pass)?;
    let judged = disk.judge()?;
    ensure!(fs::read_to_string(judged.join("was-unnamed"))? == "kept", "a file that had no name is not there");
    for (request, told) in [
        ("ea_get /kept user.guest", "from the guest"),
        ("ea_get /given user.host", "changed"),
        ("ea_get /kept user.large", &"g".repeat(2000)),
        ("ea_list /given", "user.host"),
    ] {
        let found = ask(&disk, false, request)?;
        ensure!(found.contains(told), "{request}: `{found}`");
    }
    ensure!(!ask(&disk, false, "ea_list /given")?.contains("user.large"), "what was removed is there");
    Ok(())
}

/// What debugfs says of the volume, or does with it.
fn ask(disk: &Disk, writes: bool, request: &str) -> Result<String> {
    let mut debugfs = Command::new(program("debugfs")?);
    debugfs.args(writes.then_some("-w")).args(["-R", request]).arg(disk.image());
    let told = child::output(&mut debugfs, LINUX_LIMIT)?;
    ensure!(told.status.success(), "debugfs: {}", String::from_utf8_lossy(&told.stderr));
    Ok(String::from_utf8_lossy(&told.stdout).into_owned())
}
