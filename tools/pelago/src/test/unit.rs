//! The unit tests of every crate that runs on the host, by cargo.

use crate::host::{cargo, child, leftovers};
use crate::image::build;
use crate::test::quick;
use anyhow::Result;
use cargo_metadata::{Metadata, Package};
use std::path::Path;
use std::time::Duration;

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
    let has_library =
        |package: &Package| package.targets.iter().any(|target| target.is_lib() || target.is_proc_macro());
    let all = metadata.workspace_packages();
    let meant: Vec<&Package> = all.into_iter().filter(|package| is_meant(package)).collect();
    // The guest's binaries cannot be linked for the host, so they are left out.
    let names = |is_it: &dyn Fn(&Package) -> bool| -> Vec<&str> {
        meant.iter().copied().filter(|package| is_it(package)).map(|package| package.name.as_str()).collect()
    };
    let tested = names(&|package| has_library(package) || build::is_host_only(metadata, package));
    let shown = names(&|package| {
        let folder = package.manifest_path.parent();
        has_library(package) && folder.is_some_and(|folder| has_examples(folder.join("src").as_std_path()))
    });
    let mut kinds = vec!["--tests"];
    // Cargo refuses to look for what no package has.
    if meant.iter().any(|package| has_library(package)) {
        kinds.push("--lib");
    }
    if tested.contains(&TOOL) {
        kinds.extend(["--bin", TOOL]);
    }
    let tests = cargo_test("unit tests", &tested, &kinds, must_run)?;
    let examples = cargo_test("examples", &shown, &["--doc"], must_run)?;
    Ok((tests.0 + examples.0, tests.1 + examples.1))
}

/// This package, whose tests are a binary's.
const TOOL: &str = env!("CARGO_PKG_NAME");

/// A source of the folder has code in its documentation. Cargo would build and run a program for
/// each crate that has none, too.
fn has_examples(sources: &Path) -> bool {
    let is_example = |line: &str| ["//! ```", "/// ```"].iter().any(|start| line.trim_start().starts_with(start));
    let entries = std::fs::read_dir(sources).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| match path.is_dir() {
        true => has_examples(&path),
        false => {
            let is_source = path.extension().is_some_and(|end| end == "rs");
            is_source && std::fs::read_to_string(&path).is_ok_and(|text| text.lines().any(is_example))
        }
    })
}

/// Builds tests, then runs them.
fn cargo_test(what: &str, packages: &[&str], kinds: &[&str], must_run: bool) -> Result<(usize, usize)> {
    if packages.is_empty() && !must_run {
        return Ok((0, 0));
    }
    let packages: Vec<&str> = packages.iter().flat_map(|package| ["-p", package]).collect();
    // With debug assertions.
    let words = ["test", "--no-fail-fast", "--color=never", "--target-dir", "target/host"];
    let cargo = |more: &[&str]| {
        let mut cargo = cargo::command(&words);
        cargo.args(&packages).args(kinds).args(more);
        cargo
    };
    // Examples are built as they are run.
    if kinds != ["--doc"] {
        let built = cargo::timed(|| child::output(&mut cargo(&["--no-run"]), BUILD_LIMIT));
        match built {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                print!("FAIL {what} do not build:\n{}", String::from_utf8_lossy(&output.stderr));
                return Ok((0, 1));
            }
            Err(error) => return Ok(unfinished(what, &error)),
        }
    }
    let output = match child::output(&mut cargo(&[]), LIMIT) {
        Ok(output) => output,
        Err(error) => return Ok(unfinished(what, &error)),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let (passed, failed) = count_results(&text);
    let longest = longest(&String::from_utf8_lossy(&output.stderr), &text);
    if longest.len() > 1 {
        println!("     the longest of the {what}: {}", longest.join(", "));
    }
    if output.status.success() && (passed > 0 || !must_run) {
        println!("ok   {passed} {what}");
        return Ok((passed, failed));
    }
    if passed == 0 {
        println!("FAIL not one of the {what} ran");
    }
    let failures = text
        .lines()
        .filter(|line| line.starts_with("test ") && line.ends_with("FAILED") || line.contains("panicked at"));
    failures.for_each(|line| println!("FAIL {line}"));
    print!("{}", String::from_utf8_lossy(&output.stderr));
    Ok((passed, failed.max(1)))
}

fn unfinished(what: &str, error: &anyhow::Error) -> (usize, usize) {
    println!("FAIL {what}: {error:#}");
    // Those that hang, whose parent has been killed.
    leftovers::end().iter().for_each(|name| println!("     ended {name}"));
    (0, 1)
}

/// The programs of tests that ran longest, with their seconds. Cargo says on one stream which it
/// runs, and the program on the other how long it ran.
fn longest(running: &str, results: &str) -> Vec<String> {
    let file = |line: &str| Some(line.trim().strip_prefix("Running ")?.rsplit_once('/')?.1.to_owned());
    let names = running.lines().filter_map(file);
    let seconds = results
        .lines()
        .filter(|line| line.starts_with("test result:"))
        .filter_map(|line| line.rsplit_once("finished in ")?.1.strip_suffix('s')?.parse::<f64>().ok());
    let mut times: Vec<(String, f64)> = names.zip(seconds).collect();
    times.sort_by(|one, other| other.1.total_cmp(&one.1));
    // Without what tells builds apart.
    let name = |file: &str| file.rsplit_once('-').map_or(file, |(name, _)| name).to_owned();
    times.iter().take(LONGEST).map(|(file, seconds)| format!("{} {seconds:.0} s", name(file))).collect()
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

    #[test]
    fn the_longest_are_told() {
        let running = "   Compiling a\n     Running unittests src/lib.rs (target/host/debug/deps/kernel-2cd9)\n     \
            Running tests/images.rs (target/host/debug/deps/images-b9ce)\n";
        let results = "test a ... ok\ntest result: ok. 2 passed; 0 failed; finished in 1.20s\nx\n\
            test result: ok. 5 passed; 0 failed; finished in 40.71s\n";
        assert_eq!(longest(running, results), ["images 41 s", "kernel 1 s"]);
    }

    #[test]
    fn examples_are_found_in_any_folder() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| crate::host::files::write(&folder.path().join(name), text.as_bytes()).unwrap();
        write("lib.rs", "//! Words.\nlet text = \"/// ```\";\n");
        write("deep/notes.md", "/// ```\n");
        assert!(!has_examples(folder.path()));
        write("deep/more.rs", "impl X {\n    /// ```\n    /// x();\n    /// ```\n}\n");
        assert!(has_examples(folder.path()));
    }
}
