//! `./pelago check`: formatting, lints for host and guest, tidy, the size of privileged code. All
//! are run even if one fails; any failure fails the check.

use crate::host::place;
use crate::image::build;
use crate::test::unit;
use crate::tidy::{self, size};
use anyhow::{Context, Result};
use std::process::{Command, ExitCode};

/// Runs all checks.
pub fn run() -> Result<ExitCode> {
    let metadata = build::workspace()?;
    let mut sound = cargo("format", &["fmt", "--all", "--", "--check"])?;
    let host = unit::lint(&metadata)?;
    report("lints, host", host);
    sound &= host;
    let programs = build::guest_packages(&metadata);
    if !programs.is_empty() {
        let mut guest =
            vec!["clippy", "--quiet", "--release", "--bins", "--target", build::TARGET, "--target-dir", "target/guest"];
        programs.iter().for_each(|package| guest.extend(["-p", package]));
        guest.extend(["--", "-D", "warnings"]);
        sound &= cargo("lints, guest", &guest)?;
    }
    let findings = tidy::findings(&place::root(), &metadata)?;
    findings.iter().for_each(|finding| println!("{finding}"));
    report("tidy", findings.is_empty());
    // What is judged is this checkout's kernel, not one that was built some time.
    let size = build::build_programs().and_then(|_| size::check(&place::root(), &place::images().join(build::KERNEL)));
    if let Err(error) = &size {
        println!("{error:#}");
    }
    report("size", size.is_ok());
    Ok(if sound && findings.is_empty() && size.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cargo(name: &str, arguments: &[&str]) -> Result<bool> {
    let status =
        Command::new("cargo").current_dir(place::root()).args(arguments).status().context("cannot start cargo")?;
    report(name, status.success());
    Ok(status.success())
}

fn report(name: &str, sound: bool) {
    println!("{} {name}", if sound { "ok  " } else { "FAIL" });
}
