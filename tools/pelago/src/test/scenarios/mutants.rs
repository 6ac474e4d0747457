//! Tier 1, by name and nightly: small changes of code, each of which some test of the host has to
//! fail with (`cargo mutants`). Those that none fails with, or that one fails with now and then,
//! stand with their reasons in `tools/pelago/survivors.txt`, a list that may only shrink.

use crate::host::skip::Skip;
use crate::host::{cargo, child, files, place};
use crate::test::scenario::{Bench, Scenario};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::time::Duration;

/// Each change is compiled and tested anew: minutes for a small module, hours for a large one.
const LIMIT: Duration = Duration::from_secs(6 * 60 * 60);
/// Two changes are judged beside each other. Tests that go on for ever are stopped after ten times
/// what the package's take without a change, and after these seconds at least, of the round: some
/// modules have dozens of such changes, each of which costs this limit.
const TESTS: [&str; 3] = ["--timeout-multiplier=10", "--jobs=2", "--no-shuffle"];
const QUICK_SECONDS: u32 = 5;
const SLOW_SECONDS: u32 = 60;
/// Reasons are behind it.
const REASON: &str = " | ";
/// Begins the reason of a change that tests fail with now and then: as threads happen to run.
const NOW_AND_THEN: &str = "may be caught: ";
/// Files that are no code of the host's: tests themselves, what only a guest compiles, and servers'
/// programs, which a test of the host neither compiles nor runs.
const OTHERS: [&str; 4] = ["**/tests.rs", "**/testing.rs", "**/*_bare.rs", "**/main.rs"];
const SURVIVORS: &str = "tools/pelago/survivors.txt";

/// What is changed: the package of a folder, which its own tests judge.
struct Module {
    folder: &'static str,
    /// Another package whose tests judge it too.
    judge: Option<&'static str>,
    /// Own tests that take seconds, by what is in their names: they judge in the second round.
    slow: &'static [&'static str],
}

impl Module {
    /// One that its own tests judge, all of which are quick.
    const fn alone(folder: &'static str) -> Module {
        Module { folder, judge: None, slow: &[] }
    }

    /// One that its own tests judge, these in the second round.
    const fn with_slow(folder: &'static str, slow: &'static [&'static str]) -> Module {
        Module { folder, judge: None, slow }
    }

    fn has_second_round(&self) -> bool {
        self.judge.is_some() || !self.slow.is_empty()
    }

    fn name(&self) -> &'static str {
        self.folder.rsplit_once('/').map_or(self.folder, |(_, name)| name)
    }

    fn package(&self) -> String {
        format!("pelago-{}", self.name())
    }

    /// Whether a line of the list is of one of its files.
    fn has(&self, line: &str) -> bool {
        line.strip_prefix(self.folder).is_some_and(|rest| rest.starts_with("/src/"))
    }
}

/// Those whose survivors were looked at; a row more brings its own.
const MODULES: &[Module] = &[
    Module::alone("lib/aes"),
    Module::alone("lib/block-calls"),
    Module::alone("lib/buffers"),
    Module { folder: "lib/capability", judge: Some("pelago-sim"), slow: &[] },
    Module { folder: "lib/channel", judge: Some("pelago-runtime"), slow: &[] },
    Module::alone("lib/contract"),
    Module::alone("lib/counter"),
    Module::alone("lib/crc32c"),
    Module::alone("lib/executor"),
    Module::alone("lib/link"),
    Module::alone("lib/lock"),
    Module::with_slow("lib/luks", &["wrong_headers"]),
    Module::alone("lib/mark"),
    Module::alone("lib/open-files"),
    Module::alone("lib/packet"),
    Module::alone("lib/ring"),
    Module::alone("lib/semaphore"),
    Module::alone("lib/system"),
    Module::alone("lib/threads"),
    Module::alone("lib/virtio"),
    Module::alone("lib/wiring"),
    Module::alone("lib/worker"),
    Module::with_slow("servers/ip", &["no_packet_panics"]),
    Module::alone("servers/memory"),
    Module::alone("servers/names"),
    Module::alone("servers/spawn"),
    Module::alone("servers/supervisor"),
];

pub fn scenarios() -> Vec<Scenario> {
    let of = |module: &'static Module| {
        Scenario::nightly(1, format!("mutants/{}", module.name()), move |_: &Bench| run(module))
    };
    MODULES.iter().map(of).collect()
}

fn run(module: &Module) -> Result<()> {
    if !child::output(&mut cargo::command(&["mutants", "--version"]), child::SHORT)?.status.success() {
        let how = "cargo install cargo-mutants --version 27.1.0 --locked";
        bail!(Skip::Cannot(format!("cargo has no `mutants` here: {how}")));
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let said = change(module, Round::First, folder.path())?;
    let found = |name: &str| {
        let path = folder.path().join("mutants.out").join(name);
        std::fs::read_to_string(&path).with_context(|| format!("{name} was not written; it said:\n{said}"))
    };
    let mut caught = found("caught.txt")? + &found("timeout.txt")?;
    if module.has_second_round() && !found("missed.txt")?.is_empty() {
        change(module, Round::Second, folder.path())?;
        caught += &(found("caught.txt")? + &found("timeout.txt")?);
    }
    let kept = String::from_utf8(files::read(&place::root().join(SURVIVORS))?)?;
    ensure!(!caught.is_empty(), "no change was found by any test:\n{said}");
    let problems = judge(&found("missed.txt")?, &caught, &kept, module);
    ensure!(problems.is_empty(), "{}", problems.join("\n    "));
    Ok(())
}

/// In which round changes are judged. What takes long to compile or to run judges in the second
/// only, and only changes that no test failed with in the first.
#[derive(Clone, Copy)]
enum Round {
    First,
    Second,
}

/// Has small changes of the module judged by tests, and the outcome written to a folder, which has
/// that of the first round in the second. Gives what was said.
fn change(module: &Module, round: Round, folder: &Path) -> Result<String> {
    let (package, files) = (module.package(), format!("{}/src/**/*.rs", module.folder));
    let mut cargo = cargo::command(&["mutants", "--colors=never"]);
    cargo.args(TESTS).args(["--package", &package, "--file", &files, "--test-package", &package]);
    cargo.args(OTHERS.into_iter().flat_map(|others| ["--exclude", others]));
    // What is compiled anew for each change takes a third of the time so, and most tests take under
    // a second all the same; so does what stands on it, of which little changes.
    cargo.arg(format!("--cargo-arg=--config=profile.dev.package.{package}.opt-level=0"));
    cargo.env("CARGO_INCREMENTAL", "1").arg("--output").arg(folder);
    match round {
        Round::First => {
            cargo.arg(format!("--minimum-test-timeout={QUICK_SECONDS}"));
            if !module.slow.is_empty() {
                cargo.args(["--", "--"]).args(module.slow.iter().flat_map(|test| ["--skip", test]));
            }
        }
        Round::Second => {
            cargo.args(["--iterate", &format!("--minimum-test-timeout={SLOW_SECONDS}")]);
            cargo.args(module.judge.into_iter().flat_map(|judge| ["--test-package", judge]));
        }
    }
    let output = child::output(&mut cargo, LIMIT)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A line of the list.
#[derive(Clone, Copy)]
struct Survivor<'a> {
    line: &'a str,
    what: &'a str,
    /// Empty if none is given.
    why: &'a str,
    /// Tests fail with it now and then.
    may_be_caught: bool,
}

impl<'a> Survivor<'a> {
    fn parse(line: &'a str) -> Survivor<'a> {
        // The last one: an operator that is replaced may look like it.
        let (what, why) = line.rsplit_once(REASON).unwrap_or((line, ""));
        let now_and_then = why.strip_prefix(NOW_AND_THEN);
        Survivor { line, what, why: now_and_then.unwrap_or(why).trim(), may_be_caught: now_and_then.is_some() }
    }
}

/// What survived and is not kept, and what is kept and did not survive, or has no reason. One that
/// may be caught does either, as long as there is such a change.
fn judge(missed: &str, caught: &str, kept: &str, module: &Module) -> Vec<String> {
    let kept = kept.lines().filter(|line| !line.starts_with('#') && module.has(line));
    let mut kept: Vec<_> = kept.map(Survivor::parse).collect();
    let reasonless = kept.iter().filter(|kept| kept.why.is_empty());
    let mut problems: Vec<_> =
        reasonless.map(|kept| format!("{SURVIVORS} has no reason for `{}`", kept.line)).collect();
    for line in missed.lines() {
        let (survivor, place) = without_place(line);
        match kept.iter().position(|kept| kept.what == survivor) {
            Some(at) => _ = kept.remove(at),
            None => problems.push(format!("no test fails at {place} with `{survivor}`: write one")),
        }
    }
    let caught: Vec<_> = caught.lines().map(|line| without_place(line).0).collect();
    kept.retain(|kept| !(kept.may_be_caught && caught.iter().any(|caught| caught == kept.what)));
    let stale = |kept: &Survivor| format!("a test fails now: take it out of {SURVIVORS}: {}", kept.line);
    problems.extend(kept.iter().map(stale));
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

    const MISSED: &str = "lib/a/src/b.rs:7:9: replace + with - in f\nlib/a/src/b.rs:9:9: replace + with - in f\n";
    const OTHER: &str = "lib/a/src/b.rs:1:2: replace + with - in g\n";

    fn judged(missed: &str, caught: &str, kept: &str) -> Vec<String> {
        judge(missed, caught, kept, &Module::alone("lib/a"))
    }

    #[test]
    fn survivors_are_those_of_the_list_and_no_others() {
        const ONE: &str = "# Why.\nlib/a/src/b.rs: replace + with - in f | it adds nothing\n";
        assert_eq!(judged(MISSED, OTHER, &format!("{ONE}{ONE}lib/c/d.rs: x | of another\n")), Vec::<String>::new());
        let more = judged(MISSED, OTHER, ONE);
        assert!(more.len() == 1 && more[0].contains("lib/a/src/b.rs:9:9"), "{more:?}");
        let fewer = judged("", MISSED, ONE);
        assert!(fewer.len() == 1 && fewer[0].contains("take it out"), "{fewer:?}");
        for why in ["", " | ", " | may be caught: "] {
            let unsaid = judged(OTHER, "", &format!("lib/a/src/b.rs: replace + with - in g{why}"));
            assert!(unsaid.len() == 1 && unsaid[0].contains("no reason"), "{unsaid:?}");
        }
    }

    #[test]
    fn one_that_may_be_caught_is_either_and_is_there() {
        const RACE: &str = "lib/a/src/b.rs: replace + with - in g | may be caught: two threads must meet\n";
        for (missed, caught) in [(OTHER, ""), ("", OTHER)] {
            assert_eq!(judged(missed, caught, RACE), Vec::<String>::new(), "{missed}");
        }
        let gone = judged("", MISSED, RACE);
        assert!(gone.len() == 1 && gone[0].contains("take it out"), "{gone:?}");
    }

    #[test]
    fn an_operator_that_looks_like_what_is_before_a_reason_is_none() {
        for what in ["replace | with ^ in f", "replace & with | in f"] {
            let kept = format!("lib/a/src/b.rs: {what} | no bit is in both");
            assert_eq!(judged(&format!("lib/a/src/b.rs:1:2: {what}"), "", &kept), Vec::<String>::new());
        }
    }

    #[test]
    fn a_module_is_a_folder_with_its_package() {
        let module = Module::alone("lib/a-b");
        assert_eq!((module.name(), module.package()), ("a-b", String::from("pelago-a-b")));
        assert!(module.has("lib/a-b/src/c/d.rs: replace f") && !module.has("lib/a-bc/src/d.rs: replace f"));
    }

    #[test]
    fn the_list_names_modules_that_are_asked() {
        let kept = include_str!("../../../survivors.txt");
        for line in kept.lines().filter(|line| !line.starts_with('#')) {
            assert!(MODULES.iter().any(|module| module.has(line)), "{line}");
        }
        for module in MODULES {
            let manifest = std::fs::read_to_string(place::root().join(module.folder).join("Cargo.toml")).unwrap();
            assert!(manifest.contains(&format!("name = \"{}\"", module.package())), "{}", module.folder);
        }
    }
}
