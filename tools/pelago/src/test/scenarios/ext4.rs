//! Tier 1, by name and nightly: what decision 85 asks of `lib/ext4`, in its number: power cuts of
//! the simulated disk, and images with wrong bytes. A plain run of its tests makes some of each.

use crate::host::{cargo, child};
use crate::test::scenario::{Bench, Scenario};
use anyhow::{Result, ensure};
use std::time::Duration;

/// Cuts of each of five kinds of work.
const CUTS_EACH: &str = "2000";
const IMAGES: &str = "10000";
const LIMIT: Duration = Duration::from_secs(3 * 60 * 60);

pub fn scenarios() -> Vec<Scenario> {
    let of = |name: &str, tests, (variable, number)| {
        Scenario::nightly(1, format!("ext4/{name}"), move |_: &Bench| run(tests, variable, number))
    };
    vec![of("cuts", "cuts::", ("PELAGO_EXT4_CUTS", CUTS_EACH)), of("images", "mutated", ("PROPTEST_CASES", IMAGES))]
}

/// Runs those tests, so often.
fn run(tests: &str, variable: &str, number: &str) -> Result<()> {
    let mut cargo =
        cargo::command(&["test", "--target-dir", "target/host", "--package", "pelago-ext4", "--test", "images", tests]);
    let output = child::output(cargo.env(variable, number), LIMIT)?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    ensure!(!said.contains(" 0 passed"), "there are no such tests:\n{said}");
    Ok(())
}
