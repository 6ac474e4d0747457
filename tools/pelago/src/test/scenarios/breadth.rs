//! Tier 3: calls that few programs need, of many kinds: a program of checks (`breadth.c`).

use super::checks;
use crate::test::scenario::Scenario;

const CHECKS: &str = include_str!("breadth.c");

pub fn scenarios() -> Vec<Scenario> {
    let of = |cpus: u32| Scenario::shared(3, format!("breadth/{cpus}"), move |bench| checks::run(bench, cpus, CHECKS));
    [1, 2].map(of).into()
}
