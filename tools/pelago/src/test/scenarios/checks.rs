//! Programs of checks: C programs of ours, each of which asks for what Linux promises, names what
//! it does not find, and ends with `all checked, N failed`.

use crate::host::child;
use crate::host::late::Late;
use crate::host::skip::Skip;
use crate::image::archive::Archive;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::Machine;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, with_console};
use anyhow::{Context, Result, bail, ensure};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

pub const LIMIT: Duration = Duration::from_secs(120);

/// Compiles, boots and passes such a program.
pub fn run(bench: &Bench, cpus: u32, source: &str) -> Result<()> {
    with_console(boot(bench, cpus, compile(source)?)?, pass)
}

/// What they have in common.
const HEAD: &str = include_str!("checks.h");

/// A static program. It may include `checks.h`.
pub fn compile(source: &str) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let (text, program) = (folder.path().join("checks.c"), folder.path().join("checks"));
    crate::host::files::write(&text, source.as_bytes())?;
    crate::host::files::write(&folder.path().join("checks.h"), HEAD.as_bytes())?;
    let mut compiler = Command::new("cc");
    match child::output(
        compiler.args(["-O1", "-w", "-static", "-pthread", "-o"]).arg(&program).arg(&text),
        child::SHORT,
    ) {
        Err(error) if error.is::<Late>() => Err(error),
        Err(_) => bail!(Skip::Package { program: "cc", package: "gcc" }),
        Ok(output) if !output.status.success() => bail!("cc: {}", String::from_utf8_lossy(&output.stderr).trim()),
        Ok(_) => crate::host::files::read(&program),
    }
}

/// Runs such a program here, with a folder for its files.
pub fn on_this_machine(source: &str) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let program = folder.path().join("checks");
    crate::host::files::write(&program, &compile(source)?)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let output = child::output(Command::new(&program).arg(folder.path()), child::SHORT)?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && said.ends_with("all checked, 0 failed\n"), "on Linux: {said}");
    Ok(())
}

/// Boots a machine that runs it.
pub fn boot(bench: &Bench, cpus: u32, program: Vec<u8>) -> Result<Guest> {
    boot_by(bench, cpus, program, "exec /checks", |_, _| ())
}

/// Boots a machine that runs it by a shell's script, as `/checks`; `change` may add to both.
pub fn boot_by(
    bench: &Bench,
    cpus: u32,
    program: Vec<u8>,
    script: &str,
    change: impl FnOnce(&mut Archive, &mut Machine),
) -> Result<Guest> {
    bench.boot(MachineType::Q35, cpus, &["busybox", "sh", "-c", script], |root, machine| {
        root.file("root/checks", 0o755, program);
        change(root, machine);
        Ok(())
    })
}

/// Waits for its end.
pub fn pass(guest: &mut Guest) -> Result<()> {
    pass_within(guest, LIMIT)
}

/// Waits for its end, so long without a word from it.
pub fn pass_within(guest: &mut Guest, limit: Duration) -> Result<()> {
    guest.expect("all checked, ", limit)?;
    let status = guest.finish(LIMIT)?;
    ensure!(status == 0, "some checks failed");
    Ok(())
}
