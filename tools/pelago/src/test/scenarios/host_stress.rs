//! Tier 1: tests of the host that take minutes: those of the model checker (loom), and those that
//! race, or repeat, as often as the papers' rows ask for.

use crate::host::{cargo, child};
use crate::test::scenario::{Bench, Scenario};
use crate::test::unit::count_results;
use anyhow::{Result, ensure};
use std::time::Duration;

/// The longest takes the better part of an hour.
const LIMIT: Duration = Duration::from_secs(3 * 60 * 60);

/// Apart from the ordinary build: the checker's switch is one of the compiler's, and would have all
/// compiled anew each time.
const TARGET: &str = "target/stress";

/// A test of one package, compiled as for release: what it is called, what cargo is told, the
/// variable that makes it long.
struct Stress {
    name: &'static str,
    arguments: &'static [&'static str],
    variable: (&'static str, &'static str),
}

const LOOM: (&str, &str) = ("RUSTFLAGS", "--cfg loom");
const STRESSES: [Stress; 6] = [
    Stress { name: "host-stress/loom/buffers", arguments: &["-p", "pelago-buffers", "--test", "loom"], variable: LOOM },
    Stress { name: "host-stress/loom/lock", arguments: &["-p", "pelago-lock", "--test", "loom"], variable: LOOM },
    Stress { name: "host-stress/loom/ring", arguments: &["-p", "pelago-ring", "--test", "loom"], variable: LOOM },
    Stress {
        name: "host-stress/ids",
        arguments: &["-p", "kernel", "--lib", "tests::ids"],
        variable: ("PELAGO_STRESS_OBJECTS", "10000000"),
    },
    Stress {
        name: "host-stress/semaphore",
        arguments: &["-p", "pelago-semaphore", "--test", "stress"],
        variable: ("PELAGO_STRESS_DOWNS", "100000000"),
    },
    Stress {
        name: "host-stress/volume",
        arguments: &["-p", "pelago-volume", "--bin", "volume", "deaths"],
        variable: ("PELAGO_VOLUME_DEATHS", "20000"),
    },
];

pub fn scenarios() -> Vec<Scenario> {
    STRESSES.iter().map(|stress| Scenario::nightly(1, stress.name.into(), |_: &Bench| run(stress))).collect()
}

fn run(stress: &Stress) -> Result<()> {
    let (variable, value) = stress.variable;
    let mut cargo = cargo::command(&["test", "--release", "--color=never", "--target-dir", TARGET]);
    let output = child::output(cargo.args(stress.arguments).env(variable, value), LIMIT)?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "it failed:\n{said}{}", String::from_utf8_lossy(&output.stderr));
    let (passed, _) = count_results(&said);
    ensure!(passed > 0, "no test ran:\n{said}");
    Ok(())
}
