//! Tier 1, by name and nightly: small changes of code, each of which some test of the host has to
//! fail with (`cargo mutants`). Those that none fails with stand with their reasons in
//! `tools/pelago/survivors.txt`, a list that may only shrink.

use crate::host::skip::Skip;
use crate::host::{cargo, child, files, place};
use crate::test::scenario::{Bench, Scenario};
use anyhow::{Context, Result, bail, ensure};
use std::time::Duration;

/// Each change is compiled and tested anew: minutes for a small module, hours for a large one.
const LIMIT: Duration = Duration::from_secs(6 * 60 * 60);
/// In which the tests of a change have to end, in seconds; one that has them go on for ever is
/// found.
const TEST_LIMIT: &str = "180";
/// Reasons are behind it.
const REASON: &str = " | ";
const SURVIVORS: &str = "tools/pelago/survivors.txt";

/// What is changed: files of a package, which its own tests judge.
struct Module {
    name: &'static str,
    package: &'static str,
    files: &'static str,
}

/// Those whose survivors were looked at; a row more brings its own.
const MODULES: &[Module] = &[
    Module { name: "counter", package: "pelago-counter", files: "lib/counter/src/*.rs" },
    Module { name: "link", package: "pelago-link", files: "lib/link/src/*.rs" },
    Module { name: "mark", package: "pelago-mark", files: "lib/mark/src/*.rs" },
    Module { name: "semaphore", package: "pelago-semaphore", files: "lib/semaphore/src/*.rs" },
    Module { name: "wiring", package: "pelago-wiring", files: "lib/wiring/src/*.rs" },
];

pub fn scenarios() -> Vec<Scenario> {
    let of = |module: &'static Module| {
        Scenario::nightly(1, format!("mutants/{}", module.name), move |_: &Bench| run(module))
    };
    MODULES.iter().map(of).collect()
}

fn run(module: &Module) -> Result<()> {
    if !child::output(&mut cargo::command(&["mutants", "--version"]), child::SHORT)?.status.success() {
        let how = "cargo install cargo-mutants --version 27.1.0 --locked";
        bail!(Skip::Cannot(format!("cargo has no `mutants` here: {how}")));
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let mut cargo = cargo::command(&["mutants", "--colors=never", "--no-shuffle", "--timeout", TEST_LIMIT]);
    cargo.args(["--package", module.package, "--file", module.files, "--output"]).arg(folder.path());
    let output = child::output(&mut cargo, LIMIT)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let found = |name: &str| {
        let path = folder.path().join("mutants.out").join(name);
        std::fs::read_to_string(&path).with_context(|| format!("{name} was not written; it said:\n{said}"))
    };
    ensure!(!found("caught.txt")?.is_empty(), "no change was found by any test:\n{said}");
    let kept = String::from_utf8(files::read(&place::root().join(SURVIVORS))?)?;
    let problems = judge(&found("missed.txt")?, &kept, &is_of(module)?);
    ensure!(problems.is_empty(), "{}", problems.join("\n    "));
    Ok(())
}

/// Whether a path is one of the module's.
fn is_of(module: &Module) -> Result<impl Fn(&str) -> bool> {
    let folder = module.files.rsplit_once('/').context("its files are in no folder")?.0;
    Ok(move |path: &str| path.starts_with(folder))
}

/// What survived and is not kept, and what is kept and did not survive, or has no reason.
fn judge(missed: &str, kept: &str, is_of: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut kept: Vec<_> = kept.lines().filter(|line| !line.starts_with('#') && is_of(line)).collect();
    let mut problems = Vec::new();
    for line in missed.lines() {
        let (survivor, place) = without_place(line);
        let is_it = |kept: &&str| kept.split(REASON).next() == Some(&survivor);
        match kept.iter().position(is_it) {
            Some(at) if kept[at].split_once(REASON).is_some_and(|(_, why)| !why.trim().is_empty()) => {
                kept.remove(at);
            }
            Some(at) => problems.push(format!("{SURVIVORS} has no reason for `{}`", kept.remove(at))),
            None => problems.push(format!("no test fails at {place} with `{survivor}`: write one")),
        }
    }
    problems.extend(kept.iter().map(|line| format!("a test fails now: take it out of {SURVIVORS}: {line}")));
    problems
}

/// `PATH:LINE:COLUMN: WHAT` as `PATH: WHAT`, and its place.
fn without_place(line: &str) -> (String, &str) {
    let (place, what) = line.split_once(": ").unwrap_or((line, ""));
    let path = place.split(':').next().unwrap_or(place);
    (format!("{path}: {what}"), place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_are_those_of_the_list_and_no_others() {
        const MISSED: &str = "lib/a/src/b.rs:7:9: replace + with - in f\nlib/a/src/b.rs:9:9: replace + with - in f\n";
        const ONE: &str = "# Why.\nlib/a/src/b.rs: replace + with - in f | it adds nothing\n";
        let is_of = |path: &str| path.starts_with("lib/a/");
        let judged = |missed: &str, kept: &str| judge(missed, kept, &is_of);
        assert_eq!(judged(MISSED, &format!("{ONE}{ONE}lib/c/d.rs: x | of another\n")), Vec::<String>::new());
        let more = judged(MISSED, ONE);
        assert!(more.len() == 1 && more[0].contains("lib/a/src/b.rs:9:9"), "{more:?}");
        let fewer = judged("", ONE);
        assert!(fewer.len() == 1 && fewer[0].contains("take it out"), "{fewer:?}");
        for bare in ["lib/a/src/b.rs: replace + with - in f", "lib/a/src/b.rs: replace + with - in f | "] {
            let unsaid = judged("lib/a/src/b.rs:1:2: replace + with - in f\n", bare);
            assert!(unsaid.len() == 1 && unsaid[0].contains("no reason"), "{unsaid:?}");
        }
    }

    #[test]
    fn the_list_names_modules_that_are_asked() {
        let kept = include_str!("../../../survivors.txt");
        for line in kept.lines().filter(|line| !line.starts_with('#')) {
            assert!(MODULES.iter().any(|module| is_of(module).unwrap()(line)), "{line}");
        }
        for module in MODULES {
            assert!(place::root().join(module.files).parent().unwrap().is_dir());
        }
    }
}
