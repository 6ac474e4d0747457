//! Tier 3: a program's own memory, and that what it needs no more is free: a program of checks
//! (`mmap.c`).

use super::checks;
use crate::test::scenario::Scenario;

const CHECKS: &str = include_str!("mmap.c");

pub fn scenarios() -> Vec<Scenario> {
    let of = |cpus: u32| Scenario::shared(3, format!("mmap/{cpus}"), move |bench| checks::run(bench, cpus, CHECKS));
    [1, 2].map(of).into()
}
