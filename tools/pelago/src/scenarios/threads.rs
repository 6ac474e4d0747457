//! Tier 3: threads of Linux programs: a program of checks (`threads.c`).

use super::checks;
use crate::scenario::Scenario;

const CHECKS: &str = include_str!("threads.c");

pub fn scenarios() -> Vec<Scenario> {
    let of = |cpus: u32| Scenario::shared(3, format!("threads/{cpus}"), move |bench| checks::run(bench, cpus, CHECKS));
    [1, 2].map(of).into()
}
