//! Tier 1, by name and nightly: small changes of code, each of which some test of the host has to
//! fail with (`cargo mutants`). Those that none fails with, or that one fails with now and then,
//! stand with their reasons in `tools/pelago/survivors.txt`, a list that may only shrink.
//!
//! A large package takes several nights, some of its files in each, which the date decides.

use crate::host::skip::Skip;
use crate::host::{cargo, child, files, place};
use crate::test::scenario::{Bench, Scenario};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

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
const OTHERS: [&str; 5] = ["**/tests.rs", "**/testing.rs", "**/*_bare.rs", "**/bare/**", "**/main.rs"];
const DAY_SECONDS: u64 = 24 * 60 * 60;
const SURVIVORS: &str = "tools/pelago/survivors.txt";

/// What is changed: the package of a folder, which its own tests judge.
struct Module {
    folder: &'static str,
    /// Another package whose tests judge it too.
    judge: Option<&'static str>,
    /// Own tests that take seconds, by what is in their names: they judge in the second round.
    slow: &'static [&'static str],
    /// Files that hold little but instructions of the processor or calls of the kernel, which no
    /// test of the host has.
    bare: &'static [&'static str],
    /// In how many nights all its files are judged.
    nights: u64,
}

impl Module {
    /// One that its own tests judge, all of which are quick.
    const fn alone(folder: &'static str) -> Module {
        Module { folder, judge: None, slow: &[], bare: &[], nights: 1 }
    }

    /// One that its own tests judge, these in the second round.
    const fn with_slow(folder: &'static str, slow: &'static [&'static str]) -> Module {
        Module { slow, ..Module::alone(folder) }
    }

    /// One that another package's tests judge too.
    const fn judged_by(folder: &'static str, judge: &'static str) -> Module {
        Module { judge: Some(judge), ..Module::alone(folder) }
    }

    /// Without these files of `src`.
    const fn without(self, bare: &'static [&'static str]) -> Module {
        Module { bare, ..self }
    }

    const fn in_nights(self, nights: u64) -> Module {
        Module { nights, ..self }
    }

    fn has_second_round(&self) -> bool {
        self.judge.is_some() || !self.slow.is_empty()
    }

    fn name(&self) -> &'static str {
        self.folder.rsplit_once('/').map_or(self.folder, |(_, name)| name)
    }

    fn package(&self) -> String {
        match self.name() {
            "kernel" => "kernel".into(),
            name => format!("pelago-{name}"),
        }
    }

    /// Whether a line of the list is of one of its files.
    fn has(&self, line: &str) -> bool {
        line.strip_prefix(self.folder).is_some_and(|rest| rest.starts_with("/src/"))
    }

    /// The files that a night judges, of those that changes are of. Each file has one night, and
    /// the nights about as many changes.
    fn files<'a>(&self, changes: &'a str, night: u64) -> Vec<&'a str> {
        let mut counts = BTreeMap::new();
        changes.lines().for_each(|line| *counts.entry(path(line)).or_insert(0_usize) += 1);
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut nights = vec![(0, Vec::new()); self.nights as usize];
        for (file, count) in counts {
            let (sum, files) = nights.iter_mut().min_by_key(|(sum, _)| *sum).expect("there is a night");
            *sum += count;
            files.push(file);
        }
        nights.swap_remove((night % self.nights) as usize).1
    }
}

const KERNEL_SLOW: &[&str] = &[
    "copies_are_of_one_moment",
    "counts_follow_the_model",
    "no_frame_is_used_again",
    "random_programs",
    "runs_are_the_highest",
    "the_transcript_is",
];
const KERNEL_BARE: &[&str] = &[
    "arch/x86_64/bases.rs",
    "arch/x86_64/cpu.rs",
    "arch/x86_64/fpu.rs",
    "arch/x86_64/image.rs",
    "arch/x86_64/start.rs",
    "arch/x86_64/time.rs",
    "hardware.rs",
    "shared/registry.rs",
];

/// Those whose survivors were looked at; a row more brings its own.
const MODULES: &[Module] = &[
    Module::alone("abi"),
    Module::alone("contracts"),
    Module::with_slow("drivers/virtio-blk", &["deaths", "no_interrupt_and", "damage"]),
    Module::with_slow("drivers/virtio-net", &["deaths", "lying_device", "damaged_rings"]),
    Module::with_slow("kernel", KERNEL_SLOW).without(KERNEL_BARE).in_nights(30),
    Module::alone("lib/aes"),
    Module::alone("lib/block-calls"),
    Module::alone("lib/buffers"),
    Module::judged_by("lib/capability", "pelago-sim"),
    Module::judged_by("lib/channel", "pelago-runtime"),
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
    Module::with_slow("lib/runtime", &["neither_side"]).without(&["heap.rs", "panic.rs", "random.rs"]),
    Module::alone("lib/semaphore"),
    Module::alone("lib/sys"),
    Module::alone("lib/system"),
    Module::alone("lib/threads"),
    Module::alone("lib/virtio"),
    Module::alone("lib/wiring"),
    Module::alone("lib/worker"),
    Module::with_slow("linux/proxy", &["follows_a_model", "any_piece_of_a_file"]).in_nights(4),
    Module::alone("monitor").in_nights(2),
    Module::with_slow("servers/console", &["random_bytes_and_settings", "a_damaged_byte", "die_after_any_store"])
        .in_nights(2),
    Module::alone("servers/disk"),
    Module::with_slow("servers/fs", &["follows_a_map"]),
    Module::with_slow("servers/ip", &["no_packet_panics"]),
    Module::alone("servers/memory"),
    Module::alone("servers/names"),
    Module::alone("servers/process").in_nights(3),
    Module::alone("servers/spawn"),
    Module::alone("servers/supervisor"),
    Module::with_slow("servers/tcp", &["no_packet_panics"]).in_nights(2),
    Module::with_slow(
        "servers/volume",
        &["a_server_may_die", "servers_die_one_after", "read_in_order", "clean_blocks"],
    )
    .in_nights(2),
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
    let all = changes(module)?;
    let tonight = module.files(&all, SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs() / DAY_SECONDS);
    ensure!(!tonight.is_empty(), "cargo mutants found nothing to change in {}; it said:\n{all}", module.folder);
    let said = change(module, &tonight, Round::First, folder.path())?;
    let found = |name: &str| {
        let path = folder.path().join("mutants.out").join(name);
        std::fs::read_to_string(&path).with_context(|| format!("{name} was not written; it said:\n{said}"))
    };
    let mut caught = found("caught.txt")? + &found("timeout.txt")?;
    if module.has_second_round() && !found("missed.txt")?.is_empty() {
        change(module, &tonight, Round::Second, folder.path())?;
        caught += &(found("caught.txt")? + &found("timeout.txt")?);
    }
    let kept = String::from_utf8(files::read(&place::root().join(SURVIVORS))?)?;
    ensure!(!caught.is_empty(), "no change was found by any test:\n{said}");
    let kept: Vec<_> = kept.lines().filter(|line| tonight.contains(&path(line))).collect();
    let problems = judge(&found("missed.txt")?, &caught, &kept.join("\n"), module);
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

/// All changes of the module, as lines that begin with their places.
fn changes(module: &Module) -> Result<String> {
    let files = format!("{}/src/**/*.rs", module.folder);
    let mut cargo = cargo::command(&["mutants", "--colors=never", "--list"]);
    cargo.args(["--package", &module.package(), "--file", &files]);
    cargo.args(OTHERS.into_iter().flat_map(|others| ["--exclude", others]));
    cargo
        .args(module.bare.iter().flat_map(|file| [String::from("--exclude"), format!("{}/src/{file}", module.folder)]));
    Ok(String::from_utf8(child::output(&mut cargo, child::SHORT)?.stdout)?)
}

/// Has small changes of these files of the module judged by tests, and the outcome written to a
/// folder, which has that of the first round in the second. Gives what was said.
fn change(module: &Module, files: &[&str], round: Round, folder: &Path) -> Result<String> {
    let package = module.package();
    let mut cargo = cargo::command(&["mutants", "--colors=never"]);
    cargo.args(TESTS).args(["--package", &package, "--test-package", &package]);
    cargo.args(files.iter().flat_map(|file| ["--file", file]));
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
    (format!("{}: {what}", path(place)), place)
}

/// Which a line begins with.
fn path(line: &str) -> &str {
    line.split(':').next().unwrap_or(line)
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
    fn each_file_has_a_night_and_nights_are_as_long() {
        let one =
            |file: &str, changes| (0..changes).map(|at| format!("lib/a/src/{file}:{at}:9: replace f\n")).collect();
        let changes: Vec<String> = [("b.rs", 5), ("c.rs", 9), ("d.rs", 4), ("e.rs", 9), ("f.rs", 9)]
            .map(|(file, changes)| one(file, changes))
            .into();
        let changes = changes.concat();
        let nights = |count: u64, begin: u64| {
            let module = Module::alone("lib/a").in_nights(count);
            (begin..begin + count).map(|night| module.files(&changes, night)).collect::<Vec<_>>()
        };
        assert_eq!(nights(1, 20_000)[0].len(), 5);
        for files in [nights(4, 0), nights(4, 20_000)] {
            let mut all = files.concat();
            all.sort();
            assert_eq!(all, ["b", "c", "d", "e", "f"].map(|name| format!("lib/a/src/{name}.rs")));
            assert!(files.contains(&vec!["lib/a/src/b.rs", "lib/a/src/d.rs"]), "{files:?}");
        }
        assert!(Module::alone("lib/a").files("", 7).is_empty());
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
            let sources = place::root().join(module.folder).join("src");
            module.bare.iter().for_each(|file| assert!(sources.join(file).exists(), "{}: {file}", module.folder));
        }
    }
}
