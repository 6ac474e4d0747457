//! Tier 3: memory that processes have in common, and locks in it: a program of checks
//! (`common_memory.c`).

use super::checks;
use crate::test::scenario::Scenario;

const CHECKS: &str = include_str!("common_memory.c");

pub fn scenarios() -> Vec<Scenario> {
    let of =
        |cpus: u32| Scenario::shared(3, format!("common-memory/{cpus}"), move |bench| checks::run(bench, cpus, CHECKS));
    [1, 2].map(of).into()
}
