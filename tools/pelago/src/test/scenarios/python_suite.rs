//! Nightly: test suites that others wrote for their own programs, run by those: CPython's, of
//! Debian's package. `python_suite/python.txt` says which of its modules are run, and which tests
//! of them do not pass here; that list is judged both ways (decision 83).

use super::cli::Running;
use crate::image::built::Origin;
use crate::test::scenario::Scenario;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const LIST: &str = include_str!("python_suite/python.txt");
const RUNNER: &str = include_str!("python_suite/run.py");
/// A boot with some of the modules takes so long at most.
const LIMIT: Duration = Duration::from_secs(45 * 60);
const LINE: &str = "suite ";

/// A module of the suite.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Module {
    name: String,
    /// The boot that it is of.
    boot: usize,
    state: State,
    /// Tests that fail here.
    failing: BTreeSet<String>,
    /// Tests that are not run.
    out: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Each test passes, or skips itself as it would elsewhere.
    Whole,
    /// All but those that are named.
    Partly,
    /// It is not run.
    Never,
}

pub fn scenarios() -> Vec<Scenario> {
    let modules = match read(LIST) {
        Ok(modules) => modules,
        Err(error) => {
            let words = format!("{error:#}");
            return vec![Scenario::nightly(3, "python-suite/1".into(), move |_| bail!("{words}"))];
        }
    };
    let is_run = |module: &&Module| module.state != State::Never;
    let boots: BTreeSet<usize> = modules.iter().filter(is_run).map(|module| module.boot).collect();
    let of = |boot: usize| {
        let some: Vec<Module> = modules.iter().filter(is_run).filter(|module| module.boot == boot).cloned().collect();
        let name = format!("python-suite/{boot}");
        Scenario::nightly(3, name.clone(), move |_| run(&name, &some))
    };
    boots.into_iter().map(of).collect()
}

/// Reads the list: `[BOOT]`, `MODULE STATE`, and below that what is wrong, `fails TEST: REASON` or
/// `out TEST: REASON`.
fn read(text: &str) -> Result<Vec<Module>> {
    let mut modules: Vec<Module> = Vec::new();
    let mut boot = 0;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(number) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            boot = number.parse().with_context(|| format!("no number of a boot: {line}"))?;
            continue;
        }
        let (line, reason) = line.split_once(": ").unwrap_or((line, ""));
        let (first, rest) = line.split_once(' ').with_context(|| format!("not understood: {line}"))?;
        if matches!(first, "fails" | "out") {
            let module = modules.last_mut().with_context(|| format!("of no module: {line}"))?;
            ensure!(module.state == State::Partly, "{} is not `partly`: {line}", module.name);
            ensure!(!reason.is_empty(), "without a reason: {line}");
            let list = if first == "out" { &mut module.out } else { &mut module.failing };
            ensure!(list.insert(rest.to_owned()), "twice: {line}");
            continue;
        }
        let state = match rest {
            "whole" => State::Whole,
            "partly" => State::Partly,
            "never" if !reason.is_empty() => State::Never,
            _ => bail!("no state of a module: {line}"),
        };
        ensure!(!modules.iter().any(|known| known.name == first), "twice: {first}");
        let (failing, out) = Default::default();
        modules.push(Module { name: first.to_owned(), boot, state, failing, out });
    }
    for module in modules.iter().filter(|module| module.state == State::Partly) {
        ensure!(!module.failing.is_empty() || !module.out.is_empty(), "{} names no test", module.name);
    }
    Ok(modules)
}

/// Runs the modules of one boot, and judges and tells what became of them.
fn run(name: &str, modules: &[Module]) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let file = |name: &str, text: &str| crate::host::files::write(&folder.path().join(name), text.as_bytes());
    let out: Vec<&str> = modules.iter().flat_map(|module| &module.out).map(String::as_str).collect();
    file("run.py", RUNNER)?;
    file("out", &out.join("\n"))?;
    let (origin, volume) = (Origin::Root("python").words()?, format!("{}:/suite", folder.path().display()));
    let options = ["--accel", "tcg", "-q", "--cpus", "2", "-m", "1500M", "-v", &volume];
    let names: Vec<&str> = modules.iter().map(|module| module.name.as_str()).collect();
    let origin: Vec<&str> = origin.iter().map(String::as_str).collect();
    let mut run = Running::start(&[&options, &origin[..], &["python3", "/suite/run.py"], &names].concat(), &[])?;
    let end = Instant::now() + LIMIT;
    while run.expect(LINE)? != "suite ends" {
        let said = || run.seen.join("\n");
        ensure!(Instant::now() < end, "not at its end after {} s:\n{}", LIMIT.as_secs(), said());
    }
    let status = run.finish()?;
    let said = run.seen.join("\n");
    ensure!(status.success(), "{status}:\n{said}");
    let found = judge(modules.iter(), &run.seen);
    ensure!(found.is_empty(), "{}\n{said}", found.join("\n"));
    let (passed, skipped) = tally(&run.seen);
    let failing: usize = modules.iter().map(|module| module.failing.len()).sum();
    println!(
        "     {name}: {passed} passed, {skipped} skipped themselves; as listed {failing} failed, {} names not run",
        out.len()
    );
    Ok(())
}

/// Tests of all modules that passed, and that skipped themselves.
fn tally(lines: &[String]) -> (usize, usize) {
    let modules = lines.iter().filter_map(|line| line.strip_prefix(LINE)?.strip_prefix("module "));
    let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).unwrap_or(0);
    modules.fold((0, 0), |(passed, skipped), line| {
        let words: Vec<&str> = line.split(' ').collect();
        (passed + number(words.get(1).copied()), skipped + number(words.get(3).copied()))
    })
}

/// What differs from the list.
fn judge<'a>(modules: impl Iterator<Item = &'a Module>, lines: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut modules: Vec<&Module> = modules.collect();
    let mut bad = BTreeSet::new();
    for line in lines.iter().filter_map(|line| line.strip_prefix(LINE)) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "at" | "ends" => {}
            "module" => {
                let mut words = rest.split(' ');
                let name = words.next().unwrap_or_default();
                let passed: usize = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
                let place = modules.iter().position(|module| module.name == name);
                let bad = std::mem::take(&mut bad);
                let Some(module) = place.map(|place| modules.remove(place)) else { continue };
                let more = bad.difference(&module.failing).map(|test| format!("{name}: {test} does not pass"));
                let less = module.failing.difference(&bad).map(|test| format!("{name}: {test} passes: strike it out"));
                found.extend(more.chain(less));
                if passed == 0 {
                    found.push(format!("{name}: no test passed"));
                }
            }
            // It fails, hangs, or takes its process with it.
            _ => drop(bad.insert(rest.to_owned())),
        }
    }
    found.extend(modules.iter().map(|module| format!("{}: it was not run to its end", module.name)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    const FEW: &str = "[2]\na whole\n# more\nb partly\n  fails b.X.one: it is so\n  out b.X.two: it hangs\n\
        [3]\nc never: too long\n";

    #[test]
    fn a_list_is_read() {
        let all = read(FEW).unwrap();
        assert_eq!(
            all.iter().map(|module| (module.boot, module.state)).collect::<Vec<_>>(),
            [(2, State::Whole), (2, State::Partly), (3, State::Never)]
        );
        assert_eq!((all[1].failing.len(), all[1].out.len()), (1, 1));
        for bad in ["a", "a partly", "a never", "fails a: b", "a whole\nfails b: c", "a whole\na whole", "[x]"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(read("a partly\nfails b").is_err() && read("a partly\nout b: c\nout b: c").is_err());
    }

    #[test]
    fn what_differs_is_told_both_ways() {
        let all = read(FEW).unwrap();
        let told = |text: &str| judge(all[..2].iter(), &lines(text));
        assert!(told("suite module a 3 passed\nsuite fails b.X.one\nsuite at 5\nsuite module b 4 passed").is_empty());
        assert_eq!(
            told("suite hangs a.Y.z\nsuite module a 1 passed\nsuite module b 1 passed"),
            ["a: a.Y.z does not pass", "b: b.X.one passes: strike it out"]
        );
        assert_eq!(
            told("suite fails b.X.one\nsuite module b 0 passed"),
            ["b: no test passed", "a: it was not run to its end"]
        );
        assert_eq!(
            told("  suite fails b.X.one\nsuite dies(-11) b.X.one\nsuite module b 2 x\nsuite module a 1 x").len(),
            0
        );
    }

    #[test]
    fn what_passed_is_added_up() {
        let seen = "suite at 5\nsuite module a 3 passed 1 skipped 2 s\nsuite module b 40 passed 2 skipped 1 s\nb 7";
        assert_eq!(tally(&lines(seen)), (43, 3));
    }

    /// Who mends something lowers these. Only what was never run before, and is now, brings tests.
    #[test]
    fn the_list_of_python_only_shrinks() {
        const MODULES: usize = 64;
        const WHOLE: usize = 56;
        const NEVER: usize = 0;
        const TESTS: usize = 65;
        let all = read(LIST).unwrap();
        let of = |state: State| all.iter().filter(|module| module.state == state).count();
        let tests: usize = all.iter().map(|module| module.failing.len() + module.out.len()).sum();
        assert_eq!((all.len(), of(State::Whole), of(State::Never), tests), (MODULES, WHOLE, NEVER, TESTS));
    }
}
