//! Compiles the measuring program (`tools/measure`): an ordinary static Linux program, the same
//! file for both systems.

use crate::host::{cargo, child, files, place};
use crate::image::elf;
use anyhow::{Context, Result, bail};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Static and at fixed addresses, so that starting it is the system's work and not a dynamic
/// loader's. With a target named, these words do not reach build scripts and macros, which run
/// here.
const FLAGS: &str = "-Ctarget-feature=+crt-static -Crelocation-model=static";

/// Builds what changed; the program's path.
pub fn build() -> Result<PathBuf> {
    let mut command = cargo::command(&["build", "--quiet", "--release", "-p", "pelago-measure", "--bin", "measure"]);
    command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", FLAGS);
    command.args(["--target", TARGET, "--target-dir", "target/measure"]);
    if !cargo::timed(|| child::status(&mut command, cargo::BUILD_LIMIT))?.success() {
        bail!(
            "the measuring program did not build; the compiler's messages are above (it needs the C library's static files: libc6-dev)"
        );
    }
    let built = place::root().join("target/measure").join(TARGET).join("release/measure");
    let path = place::out().join("measure");
    let bytes = elf::without_debug(&files::read(&built)?)?;
    files::write(&path, &bytes)?;
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, executable)
        .with_context(|| format!("cannot make {} executable", path.display()))?;
    Ok(path)
}
