//! `./pelago sim`: hands its arguments to the simulator, a program of its own.

use crate::host::place;
use anyhow::{Context, Result};
use clap::Args;
use std::process::{Command, ExitCode};

/// What `./pelago sim` takes.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// Arguments of the simulator; `./pelago sim --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds and runs it.
pub fn run(options: &Options) -> Result<ExitCode> {
    let status = Command::new("cargo")
        .current_dir(place::root())
        .args(["run", "--quiet", "--release", "--target-dir", "target/host", "-p", "pelago-sim", "--"])
        .args(&options.arguments)
        .status()
        .context("cannot start cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
