//! Tier 3: timers, signals and processes as descriptors, timers that signal, and copying between
//! descriptors: a program of checks (`event_descriptors.c`).

use super::checks;
use crate::test::scenario::Scenario;

const CHECKS: &str = include_str!("event_descriptors.c");

pub fn scenarios() -> Vec<Scenario> {
    let of = |cpus: u32| {
        Scenario::shared(3, format!("event-descriptors/{cpus}"), move |bench| checks::run(bench, cpus, CHECKS))
    };
    [1, 2].map(of).into()
}
