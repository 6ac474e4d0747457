//! Tier 3: what connects programs of one machine, as Linux programs see it: a program of checks
//! (`local_sockets.c`), and Python's event loop (`local_sockets.py`).

use super::checks;
use super::cli::Running;
use crate::host::skip::Skip;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;

const CHECKS: &str = include_str!("local_sockets.c");
const PYTHON: &str = "/usr/bin/python3";
const LOOP: &str = include_str!("local_sockets.py");
/// What it prints, on Linux too.
const LINES: [&str; 5] =
    ["pair b'pair' AF_UNIX SOCK_STREAM", "counter 5", "passed b'from the file' b'through'", "loop 0 8", "loop 0 8"];

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(3, "local-sockets/1".into(), |bench| checks::run(bench, 1, CHECKS)),
        Scenario::shared(3, "local-sockets/python".into(), |_| python()),
    ]
}

/// The interpreter of Debian's package, with its own library's event loop, streams and selectors.
fn python() -> Result<()> {
    if !Path::new(PYTHON).exists() {
        bail!(Skip::Package { program: "python3", package: "python3" });
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let script = folder.path().join("loop.py");
    crate::host::files::write(&script, LOOP.as_bytes())?;
    let volume = format!("{}:/loop.py", script.display());
    let words = ["--accel", "tcg", "--cpus", "1", "-q", "-v", &volume, "--package", "python3", PYTHON, "/loop.py"];
    let mut run = Running::start(&words, &[])?;
    let status = run.finish()?;
    ensure!(status.success() && run.seen == LINES, "{status}: {:?}", run.seen);
    Ok(())
}
