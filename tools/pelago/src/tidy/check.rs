//! `./pelago check`: formatting, lints for host and guest, tidy, the size of privileged code. All
//! are run even if one fails; any failure fails the check.

use crate::host::place;
use crate::image::build;
use crate::tidy::{self, size};
use anyhow::{Context, Result};
use std::process::{Command, ExitCode};

/// Runs all checks.
pub fn run() -> Result<ExitCode> {
    let metadata = build::workspace()?;
    let mut sound = cargo("format", &["fmt", "--all", "--", "--check"])?;
    let libraries = metadata
        .workspace_packages()
        .into_iter()
        .filter(|package| package.targets.iter().any(|target| target.is_lib() || target.is_proc_macro()));
    let mut host = vec![
        "clippy",
        "--quiet",
        "--target-dir",
        "target/host",
        "--lib",
        "--bin",
        "pelago-tool",
        "--bin",
        "measure",
        "--bin",
        "pelago-sim",
        "--tests",
        "-p",
        "pelago-tool",
    ];
    libraries.for_each(|package| host.extend(["-p", package.name.as_str()]));
    host.extend(["--", "-D", "warnings"]);
    sound &= cargo("lints, host", &host)?;
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
