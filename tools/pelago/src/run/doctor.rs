//! `./pelago doctor`: what this machine has, and what to do about what it lacks.

use crate::host::child;
use crate::host::path;
use crate::host::place;
use crate::image::elf;
use crate::machine::emulator;
use anyhow::Result;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Prints one line per need; fails if something is missing that a run cannot do without.
pub fn run() -> Result<ExitCode> {
    let mut sound = true;
    let mut need = |name: &str, found: Option<String>, remedy: &str, vital: bool| {
        match &found {
            Some(what) => println!("ok    {name}: {what}"),
            None => println!("{}  {name}: missing; {remedy}", if vital { "FAIL" } else { "none" }),
        }
        sound &= found.is_some() || !vital;
    };
    need("compiler", first_line("rustc", "--version"), "run ./pelago again: it installs one", true);
    let library = first_line("rustc", "--print=sysroot")
        .map(|root| PathBuf::from(root).join("lib/rustlib").join(crate::image::build::TARGET));
    need(
        "bare target",
        library.filter(|path| path.is_dir()).map(|path| path.display().to_string()),
        "rustup target add x86_64-unknown-none",
        true,
    );
    need("emulator", first_line(emulator::PROGRAM, "--version"), "apt-get install qemu-system-x86", true);
    let busybox = std::env::var_os("PELAGO_BUSYBOX").map(PathBuf::from).filter(|path| path.is_file());
    let is_static = |path: &PathBuf| {
        crate::host::files::read(path)
            .is_ok_and(|data| elf::needs(&data).is_ok_and(|needs| needs.interpreter.is_none()))
    };
    need(
        "static busybox",
        busybox.filter(is_static).map(|path| path.display().to_string()),
        "apt-get install busybox-static",
        false,
    );
    need(
        "passt",
        path::find("passt").map(|path| path.display().to_string()),
        "apt-get install passt (without it the emulator forwards the ports, slowly for many clients)",
        false,
    );
    need("curl", first_line("curl", "--version"), "apt-get install curl (tests use it)", false);
    need(
        "ip",
        path::find("ip").map(|path| path.display().to_string()),
        "apt-get install iproute2 (tests over a tap use it)",
        false,
    );
    let kvm = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .ok()
        .map(|_| "/dev/kvm opens; a run probes it".to_owned());
    need("KVM", kvm, "emulation is used, which works and is slower", false);
    println!("      cache: {}", place::cache().display());
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn first_line(program: &str, argument: &str) -> Option<String> {
    let output = child::output(Command::new(program).arg(argument), child::SHORT).ok()?;
    if !output.status.success() {
        return None;
    }
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}
