//! Tier 3: calls that few programs need, of many kinds: a program of checks (`rare_calls.c`).

use super::checks;
use crate::test::scenario::Scenario;

const CHECKS: &str = include_str!("rare_calls.c");

pub fn scenarios() -> Vec<Scenario> {
    let of =
        |cpus: u32| Scenario::shared(3, format!("rare-calls/{cpus}"), move |bench| checks::run(bench, cpus, CHECKS));
    [1, 2].map(of).into()
}
