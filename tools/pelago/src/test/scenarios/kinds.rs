//! Tier 3: timers, signals and processes as descriptors, timers that signal, and copying between
//! descriptors: a program of checks (`kinds.c`).

use super::checks;
use crate::test::scenario::Scenario;

const CHECKS: &str = include_str!("kinds.c");

pub fn scenarios() -> Vec<Scenario> {
    let of = |cpus: u32| Scenario::shared(3, format!("kinds/{cpus}"), move |bench| checks::run(bench, cpus, CHECKS));
    [1, 2].map(of).into()
}
