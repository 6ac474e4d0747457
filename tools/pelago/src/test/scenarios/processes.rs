//! Tier 3: what a parent sees of a child of vfork, and whose a process is: a program of checks
//! (`processes.c`).

use super::checks;
use crate::test::scenario::Scenario;

const CHECKS: &str = include_str!("processes.c");

pub fn scenarios() -> Vec<Scenario> {
    let of =
        |cpus: u32| Scenario::shared(3, format!("processes/{cpus}"), move |bench| checks::run(bench, cpus, CHECKS));
    [1, 2].map(of).into()
}
