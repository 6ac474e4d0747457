//! A disk image that boots by itself: kernel and boot archive on an ISO 9660 file system, with GRUB
//! as the boot loader, which enters the kernel by Multiboot2
//! (`kernel/src/arch/x86_64/multiboot.s`).
//!
//! It boots from a CD drive or, written as it is, from a disk or a USB stick, on machines with a
//! BIOS.

use crate::host::{child, files, place};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Makes the image; Debian's package `grub-common`.
const MAKER: &str = "grub-mkrescue";
/// The loader itself, for machines with a BIOS; Debian's package `grub-pc-bin`.
const LOADER: &str = "/usr/lib/grub/i386-pc";
/// Past what it takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
const PACKAGES: &str = "grub-common grub-pc-bin xorriso mtools";

/// Makes the image `to` of the kernel that was built and an archive.
pub fn make(archive: &Path, command_line: &[String], to: &Path) -> Result<()> {
    let remedy = || format!("install {PACKAGES}: run `./pelago build --image`, which does it, or apt-get");
    ensure!(crate::host::path::find(MAKER).is_some(), "{MAKER} is missing; {}", remedy());
    ensure!(Path::new(LOADER).is_dir(), "{LOADER} is missing; {}", remedy());
    let root = tempfile::tempdir().context("cannot make a temporary folder")?;
    let boot = root.path().join("boot");
    files::write(&boot.join("pelago.elf"), &files::read(&place::kernel())?)?;
    files::write(&boot.join("boot.archive"), &files::read(archive)?)?;
    files::write(&boot.join("grub/grub.cfg"), menu(command_line).as_bytes())?;
    let mut command = Command::new(MAKER);
    // One way to boot, and no fonts, themes or translations: half a second less to load.
    command.args(["--directory", LOADER, "--install-modules=multiboot2 iso9660 biosdisk normal"]);
    command.args(["--fonts=", "--locales=", "--themes=", "--compress=xz", "--output"]).arg(to).arg(root.path());
    let output = child::output(&mut command, LIMIT)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{MAKER} failed: {}", said.lines().last().unwrap_or("it said nothing"));
    Ok(())
}

fn menu(command_line: &[String]) -> String {
    let words = command_line.join(" ");
    format!("set timeout=0\nmultiboot2 /boot/pelago.elf {words}\nmodule2 /boot/boot.archive\nboot\n")
}
