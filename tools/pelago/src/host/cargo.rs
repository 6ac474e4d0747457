//! Builds by cargo in this checkout, each within a limit.

use crate::host::{child, place};
use anyhow::{Context, Result};
use cargo_metadata::{Artifact, Message};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A build from nothing takes some minutes on two cores, and more beside others.
pub const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How long this process has waited for builds, in milliseconds.
static BUILDING_MS: AtomicU64 = AtomicU64::new(0);

/// How long this process has waited for builds.
pub fn building() -> Duration {
    Duration::from_millis(BUILDING_MS.load(Ordering::Relaxed))
}

/// Counts what `work` takes as time for a build.
pub fn timed<T>(work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    BUILDING_MS.fetch_add(start.elapsed().as_millis() as u64, Ordering::Relaxed);
    result
}

/// Cargo in the checkout.
pub fn command(words: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(place::root()).args(words);
    cargo
}

/// Runs a build, whose words for people go to standard error; what it made, or nothing if it
/// failed.
pub fn build(cargo: Command) -> Result<Option<Vec<Artifact>>> {
    build_within(cargo, BUILD_LIMIT)
}

/// The same within a limit.
pub fn build_within(mut cargo: Command, limit: Duration) -> Result<Option<Vec<Artifact>>> {
    cargo.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stdout(Stdio::piped());
    let child = cargo.spawn().context("cannot start cargo")?;
    let output = timed(|| child::finish(child, "cargo build", limit))?;
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
