//! The unit tests of every crate that runs on the host, by cargo.

use crate::{cargo, child, image, leftovers};
use anyhow::Result;
use cargo_metadata::Package;
use std::time::Duration;

/// Past what compiling and running take on a busy machine. Less than a run of the tests gives to
/// anything (`progress.rs`), so that the scenarios come after it.
const LIMIT: Duration = Duration::from_secs(25 * 60);

/// Runs all of them; how many passed and failed.
pub fn test() -> Result<(usize, usize)> {
    let metadata = image::workspace()?;
    let has_library =
        |package: &&Package| package.targets.iter().any(|target| target.is_lib() || target.is_proc_macro());
    let packages = metadata.workspace_packages();
    let tested = |package: &&Package| has_library(package) || image::is_host_only(&metadata, package);
    // The guest's binaries cannot be linked for the host, so they are left out.
    let names = |is_it: &dyn Fn(&&Package) -> bool| -> Vec<&str> {
        packages.iter().copied().filter(is_it).flat_map(|package| ["-p", package.name.as_str()]).collect()
    };
    let tests = cargo_test("unit tests", &names(&tested), &["--lib", "--bin", "pelago-tool", "--tests"])?;
    let examples = cargo_test("examples", &names(&has_library), &["--doc"])?;
    Ok((tests.0 + examples.0, tests.1 + examples.1))
}

fn cargo_test(what: &str, packages: &[&str], kinds: &[&str]) -> Result<(usize, usize)> {
    // With debug assertions.
    let words = ["test", "--no-fail-fast", "--color=never", "--target-dir", "target/host"];
    let output = match child::output(cargo::command(&words).args(packages).args(kinds), LIMIT) {
        Ok(output) => output,
        Err(error) => {
            println!("FAIL {what}: {error:#}");
            // Those that hang, whose parent has been killed.
            leftovers::end().iter().for_each(|name| println!("     ended {name}"));
            return Ok((0, 1));
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let (passed, failed) = count_results(&text);
    if output.status.success() && passed > 0 {
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
}
