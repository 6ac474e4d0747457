//! Tier 3: epoll: a program of checks (`readiness.c`).

use super::checks;
use crate::test::scenario::Scenario;

const CHECKS: &str = include_str!("readiness.c");

pub fn scenarios() -> Vec<Scenario> {
    let of =
        |cpus: u32| Scenario::shared(3, format!("readiness/{cpus}"), move |bench| checks::run(bench, cpus, CHECKS));
    [1, 2].map(of).into()
}
