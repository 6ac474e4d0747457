//! Builds by cargo in this checkout, each within a limit.

use crate::host::{child, path, place};
use anyhow::{Context, Result};
use cargo_metadata::{Artifact, Message};
use std::path::{Path, PathBuf};
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
/// there is none of the same version.
pub fn lint(cargo: &mut Command) -> &mut Command {
    match clippy() {
        Some(clippy) => cargo.env("RUSTC_WORKSPACE_WRAPPER", clippy),
        None => cargo,
    }
}

/// Clippy's compiler, if it runs and is the compiler's: what the one builds the other cannot use if
/// they differ. rustup has a program of that name where there is no clippy, too.
fn clippy() -> Option<PathBuf> {
    let compiler = said(Path::new("rustc"), &["--version"])?;
    path::find(CLIPPY).filter(|clippy| said(clippy, &["--rustc", "--version"]) == Some(compiler))
}

/// What a program says, if it succeeds.
fn said(program: &Path, words: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    let output = child::output(command.current_dir(place::root()).args(words), child::SHORT).ok()?;
    output.status.success().then_some(output.stdout)
}

/// Whether a build as [`lint`] has it succeeds, and the compiler has nothing to say, which is
/// written down if it has. Of crates that are not built anew cargo knows what was said.
pub fn is_clean(mut cargo: Command) -> Result<bool> {
    clippy().with_context(|| format!("no {CLIPPY} of the compiler's version runs; `rustup component add clippy`"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_that_fails_or_is_not_there_is_nothing() {
        let sh = Path::new("sh");
        assert_eq!(said(sh, &["-c", "echo 1.95"]), Some(b"1.95\n".to_vec()));
        assert_eq!(said(sh, &["-c", "echo 1.95; exit 1"]), None);
        assert_eq!(said(Path::new("/nowhere/clippy-driver"), &[]), None);
    }
}
