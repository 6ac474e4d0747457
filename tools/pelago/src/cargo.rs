//! Builds by cargo in this checkout, each within a limit.

use crate::{child, place};
use anyhow::{Context, Result};
use cargo_metadata::{Artifact, Message};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A build from nothing takes some minutes on two cores, and more beside others.
pub const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Cargo in the checkout.
pub fn command(words: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(place::root()).args(words);
    cargo
}

/// Runs a build, whose words for people go to standard error; what it made, or nothing if it
/// failed.
pub fn build(mut cargo: Command) -> Result<Option<Vec<Artifact>>> {
    cargo.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stdout(Stdio::piped());
    let child = cargo.spawn().context("cannot start cargo")?;
    let output = child::finish(child, "cargo build", BUILD_LIMIT)?;
    if !output.status.success() {
        return Ok(None);
    }
    let artifacts = Message::parse_stream(&output.stdout[..]).filter_map(|message| match message {
        Ok(Message::CompilerArtifact(artifact)) => Some(Ok(artifact)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    });
    artifacts.collect::<Result<_, _>>().map(Some).context("cannot read what cargo says")
}
