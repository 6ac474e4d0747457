//! Builds by cargo in this checkout, each within a limit.

use crate::host::{child, path, place};
use anyhow::{Context, Result};
use cargo_metadata::{Artifact, Message};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A build from nothing takes some minutes on two cores, and more beside others.
pub const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);

const CLIPPY: &str = "clippy-driver";
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
    cargo.arg("--message-format=json-render-diagnostics");
    let artifact = |message| match message {
        Message::CompilerArtifact(artifact) => Some(artifact),
        _ => None,
    };
    let (succeeded, messages) = finish(cargo, limit)?;
    Ok(succeeded.then(|| messages.into_iter().filter_map(artifact).collect()))
}

/// Has clippy's compiler build the workspace's own crates: it says what it finds, and builds as
/// the compiler does. So code is compiled once for its lints and its tests. Nothing changes where
/// there is no clippy.
pub fn lint(cargo: &mut Command) -> &mut Command {
    match path::find(CLIPPY) {
        Some(clippy) => cargo.env("RUSTC_WORKSPACE_WRAPPER", clippy),
        None => cargo,
    }
}

/// Whether a build as [`lint`] has it succeeds, and the compiler has nothing to say, which is
/// written down if it has. Of crates that are not built anew cargo knows what was said.
pub fn is_clean(mut cargo: Command) -> Result<bool> {
    path::find(CLIPPY).with_context(|| format!("there is no {CLIPPY}; `rustup component add clippy` brings it"))?;
    lint(&mut cargo).arg("--message-format=json");
    let rendered = |message| match message {
        Message::CompilerMessage(said) => said.message.rendered,
        _ => None,
    };
    let (succeeded, messages) = finish(cargo, BUILD_LIMIT)?;
    let said: Vec<String> = messages.into_iter().filter_map(rendered).collect();
    said.iter().for_each(|said| eprint!("{said}"));
    Ok(succeeded && said.is_empty())
}

/// Whether a build succeeded, and its messages.
fn finish(mut cargo: Command, limit: Duration) -> Result<(bool, Vec<Message>)> {
    let child = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let output = timed(|| child::finish(child, "cargo build", limit))?;
    let messages: Result<_, _> = Message::parse_stream(&output.stdout[..]).collect();
    Ok((output.status.success(), messages.context("cannot read what cargo says")?))
}
