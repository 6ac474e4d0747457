//! The unit tests of every crate that runs on the host, by cargo.

use crate::host::{cargo, child, leftovers};
use crate::image::build;
use crate::test::quick;
use anyhow::Result;
use cargo_metadata::{Artifact, Metadata, Package};
use std::collections::VecDeque;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Past what compiling takes on a busy machine, and past what running does. Together less than a
/// run of the tests gives to anything (`progress.rs`), so that the scenarios come after them.
const BUILD_LIMIT: Duration = Duration::from_secs(15 * 60);
const LIMIT: Duration = Duration::from_secs(10 * 60);
/// So many programs of tests are told.
const LONGEST: usize = 5;

/// Runs all of them; how many passed and failed.
pub fn test() -> Result<(usize, usize)> {
    test_some(&build::workspace()?, true, |_| true)
}

/// Runs those of the packages that were changed.
pub fn test_changed() -> Result<(usize, usize)> {
    let metadata = build::workspace()?;
    let changed = quick::changed(&metadata)?;
    let told = if changed.is_empty() { "none".into() } else { changed.iter().cloned().collect::<Vec<_>>().join(", ") };
    println!("     unit tests of crates that were changed: {told}");
    test_some(&metadata, false, |package| changed.contains(package.name.as_str()))
}

/// Runs those of the packages that are meant; of each kind some, if they `must_run`.
fn test_some(metadata: &Metadata, must_run: bool, is_meant: impl Fn(&Package) -> bool) -> Result<(usize, usize)> {
    let mut meant = metadata.workspace_packages();
    meant.retain(|package| is_meant(package));
    let tested = tested(metadata, &meant);
    let mut kinds = vec!["--tests"];
    // Cargo refuses to look for what no package has.
    if meant.iter().any(|package| has_library(package)) {
        kinds.push("--lib");
    }
    if tested.contains(&TOOL) {
        kinds.extend(["--bin", TOOL]);
    }
    meant.retain(|package| {
        let folder = package.manifest_path.parent();
        has_library(package) && folder.is_some_and(|folder| has_examples(folder.join("src").as_std_path()))
    });
    programs(&tested, &kinds, &meant, must_run)
}

/// Whether lints find nothing in the host's code and its tests. They are built as they are when
/// they are run.
pub fn lint(metadata: &Metadata) -> Result<bool> {
    let packages = metadata.workspace_packages();
    let kinds = ["--tests", "--lib", "--bin", TOOL, "--bin", "measure", "--bin", "pelago-sim"];
    let mut cargo = cargo_test(&tested(metadata, &packages), &kinds);
    cargo.args(["--no-run", "--quiet"]);
    cargo::is_clean(cargo)
}

/// Those with tests for the host: the guest's binaries cannot be linked for it.
fn tested<'m>(metadata: &Metadata, packages: &[&'m Package]) -> Vec<&'m str> {
    let mut tested = packages.to_vec();
    tested.retain(|package| has_library(package) || build::is_host_only(metadata, package));
    names(&tested)
}

fn has_library(package: &Package) -> bool {
    package.targets.iter().any(|target| target.is_lib() || target.is_proc_macro())
}

fn names<'m>(packages: &[&'m Package]) -> Vec<&'m str> {
    packages.iter().map(|package| package.name.as_str()).collect()
}

/// This package, whose tests are a binary's.
const TOOL: &str = env!("CARGO_PKG_NAME");

/// A source of the folder has code in its documentation.
fn has_examples(sources: &Path) -> bool {
    let fence = |line: &str| {
        let line = line.trim_start();
        ["//! ```", "/// ```"].iter().find_map(|start| line.strip_prefix(start)).map(str::to_owned)
    };
    // Every other fence begins something.
    let has_example = |text: &str| text.lines().filter_map(fence).step_by(2).any(|language| language != "text");
    let entries = std::fs::read_dir(sources).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| match path.is_dir() {
        true => has_examples(&path),
        false => {
            let is_source = path.extension().is_some_and(|end| end == "rs");
            is_source && std::fs::read_to_string(&path).is_ok_and(|text| has_example(&text))
        }
    })
}

/// Cargo's words for tests of the packages, with debug assertions.
fn cargo_test(packages: &[&str], kinds: &[&str]) -> Command {
    let mut cargo = cargo::command(&["test", "--no-fail-fast", "--color=never", "--target-dir", "target/host"]);
    cargo::lint(&mut cargo).args(packages.iter().flat_map(|package| ["-p", package])).args(kinds);
    cargo
}

/// Builds programs of tests, then runs them and the examples of those that have some, as many at a
/// time as there are cores: some end with one long test. Cargo would run one after another.
fn programs(packages: &[&str], kinds: &[&str], shown: &[&Package], must_run: bool) -> Result<(usize, usize)> {
    const WHAT: &str = "unit tests";
    if packages.is_empty() && !must_run {
        return Ok((0, 0));
    }
    let mut cargo = cargo_test(packages, kinds);
    cargo.args(["--no-run", "--quiet"]);
    let built = match cargo::build_within(cargo, BUILD_LIMIT) {
        Ok(Some(built)) => built,
        Ok(None) => {
            println!("FAIL {WHAT} do not build: the compiler's messages are above");
            return Ok((0, 1));
        }
        Err(error) => return Ok(unfinished(WHAT, &error)),
    };
    let libraries = child::output(Command::new("rustc").args(["--print", "target-libdir"]), child::SHORT)?;
    let libraries = String::from_utf8(libraries.stdout)?.trim().to_owned();
    let programs = built.iter().filter_map(|artifact| Program::of(artifact, &libraries));
    let examples = shown.iter().filter_map(|package| Program::of_examples(package, &built));
    let programs: VecDeque<Program> = programs.chain(examples).collect();
    let (workers_max, end) = (std::thread::available_parallelism()?.get(), Instant::now() + LIMIT);
    let left = Mutex::new(programs);
    let next = || left.lock().ok().and_then(|mut left| left.pop_front());
    let mut ran = Vec::new();
    std::thread::scope(|scope| {
        let work = || std::iter::from_fn(&next).map(|program| program.run(end)).collect::<Vec<_>>();
        let workers: Vec<_> = (0..workers_max).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| ran.extend(worker.join().unwrap_or_default()));
    });
    let (passed, failed) = ran.iter().fold((0, 0), |(passed, failed), ran| (passed + ran.passed, failed + ran.failed));
    ran.sort_by_key(|ran| std::cmp::Reverse(ran.took));
    let longest = ran.iter().take(LONGEST).map(|ran| format!("{} {:.0} s", ran.name, ran.took.as_secs_f64()));
    println!("     the longest of the {WHAT}: {}", longest.collect::<Vec<_>>().join(", "));
    if failed == 0 && (passed > 0 || !must_run) {
        println!("ok   {passed} {WHAT}");
        return Ok((passed, 0));
    }
    if passed == 0 {
        println!("FAIL not one of the {WHAT} ran");
    }
    ran.iter().for_each(|ran| print!("{}", ran.said));
    // Children of what was killed.
    leftovers::end().iter().for_each(|name| println!("     ended {name}"));
    Ok((passed, failed.max(1)))
}

/// A program of tests.
struct Program {
    name: String,
    command: Command,
}

/// What one did.
#[derive(Debug)]
struct Ran {
    name: String,
    passed: usize,
    failed: usize,
    took: Duration,
    /// Of one that failed.
    said: String,
}

impl Program {
    /// What a build made, if it is one. It runs where cargo would have it, with the libraries of
    /// the compiler that a macro's tests need.
    fn of(artifact: &Artifact, libraries: &str) -> Option<Program> {
        let (true, Some(file), Some(folder)) =
            (artifact.profile.test, &artifact.executable, artifact.manifest_path.parent())
        else {
            return None;
        };
        let mut command = Command::new(file);
        command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder).env("LD_LIBRARY_PATH", libraries);
        Some(Program { name: artifact.target.name.clone(), command })
    }

    /// The examples of a library's documentation, with the libraries that a build made. Cargo would
    /// build those anew, for fewer packages need fewer features of what they stand on.
    fn of_examples(package: &Package, built: &[Artifact]) -> Option<Program> {
        let target = package.targets.iter().find(|target| target.is_lib())?;
        let mut command = Command::new("rustdoc");
        command.args(["--test", "--edition", package.edition.as_str(), "--crate-name", &target.name]);
        for library in built.iter().filter(|artifact| artifact.target.is_lib() && !artifact.profile.test) {
            for file in library.filenames.iter().filter(|file| file.extension() == Some("rlib")) {
                let folder = file.parent().filter(|_| library.target.name == target.name);
                folder.into_iter().for_each(|folder| _ = command.arg("-L").arg(format!("dependency={folder}")));
                // Of crates of the workspace alone an example may be.
                if library.package_id.repr.contains("path+file:") {
                    command.arg("--extern").arg(format!("{}={file}", library.target.name));
                }
            }
        }
        command.arg(&target.src_path).current_dir(package.manifest_path.parent()?);
        Some(Program { name: format!("examples of {}", target.name), command })
    }

    fn run(mut self, end: Instant) -> Ran {
        let start = Instant::now();
        let output = child::output(&mut self.command, end.saturating_duration_since(start));
        let took = start.elapsed();
        let failure = |said: String| Ran { name: self.name.clone(), passed: 0, failed: 1, took, said };
        let output = match output {
            Ok(output) => output,
            Err(error) => return failure(format!("FAIL {}: {error:#}\n", self.name)),
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let (passed, failed) = count_results(&text);
        if output.status.success() {
            return Ran { name: self.name, passed, failed, took, said: String::new() };
        }
        let is_failure =
            |line: &&str| line.starts_with("test ") && line.ends_with("FAILED") || line.contains("panicked at");
        let lines: String = text.lines().filter(is_failure).map(|line| format!("FAIL {line}\n")).collect();
        let told = format!("FAIL {}: {}\n{lines}{}", self.name, output.status, String::from_utf8_lossy(&output.stderr));
        Ran { passed, failed: failed.max(1), ..failure(told) }
    }
}

fn unfinished(what: &str, error: &anyhow::Error) -> (usize, usize) {
    println!("FAIL {what}: {error:#}");
    // Those that hang, whose parent has been killed.
    leftovers::end().iter().for_each(|name| println!("     ended {name}"));
    (0, 1)
}

/// Sums cargo's lines `test result: ok. 5 passed; 0 failed; ...`.
pub fn count_results(text: &str) -> (usize, usize) {
    let number = |line: &str, word: &str| -> usize {
        line.split([';', '.']).find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok()).unwrap_or(0)
    };
    let results = text.lines().filter(|line| line.starts_with("test result:"));
    results.fold((0, 0), |(passed, failed), line| (passed + number(line, "passed"), failed + number(line, "failed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed() {
        let text = "running\ntest result: ok. 5 passed; 0 failed; 0 ignored\nx\ntest result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        assert_eq!(count_results(text), (7, 1));
    }

    /// A program of tests, as a shell would be one.
    fn program(script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program { name: "it".into(), command }
    }

    #[test]
    fn a_program_that_fails_or_says_nothing_or_hangs_is_a_failure() {
        let soon = || Instant::now() + child::SHORT;
        let good = program("echo 'test result: ok. 3 passed; 0 failed'").run(soon());
        assert!((good.passed, good.failed) == (3, 0) && good.said.is_empty(), "{good:?}");
        let result = "test result: FAILED. 2 passed; 1 failed";
        let bad = program(&format!("echo 'test a ... FAILED'; echo '{result}'; echo why >&2; exit 101")).run(soon());
        assert_eq!((bad.passed, bad.failed), (2, 1));
        assert!(bad.said.contains("FAIL test a ... FAILED\nwhy"), "{}", bad.said);
        let killed = program("echo 'test result: ok. 1 passed; 0 failed'; kill -9 $$").run(soon());
        assert!((killed.passed, killed.failed) == (1, 1) && killed.said.contains("signal"), "{killed:?}");
        let hangs = program("exec sleep 600").run(Instant::now() + Duration::from_millis(100));
        assert!((hangs.passed, hangs.failed) == (0, 1) && hangs.said.contains("did not end"), "{hangs:?}");
    }

    #[test]
    fn examples_are_found_in_any_folder() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| crate::host::files::write(&folder.path().join(name), text.as_bytes()).unwrap();
        write("lib.rs", "//! Words.\nlet text = \"/// ```\";\n");
        write("deep/notes.md", "/// ```\n");
        write("drawn.rs", "//! ```text\n//! a > b\n//! ```\n");
        assert!(!has_examples(folder.path()));
        write("deep/more.rs", "impl X {\n    /// ```\n    /// x();\n    /// ```\n}\n");
        assert!(has_examples(folder.path()));
    }
}
