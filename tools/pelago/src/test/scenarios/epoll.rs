//! Tier 3: epoll: a program of checks (`epoll.c`).

use super::checks;
use crate::test::scenario::Scenario;

const CHECKS: &str = include_str!("epoll.c");

pub fn scenarios() -> Vec<Scenario> {
    let of = |cpus: u32| Scenario::shared(3, format!("epoll/{cpus}"), move |bench| checks::run(bench, cpus, CHECKS));
    [1, 2].map(of).into()
}
