//! Tier 3: threads of Linux programs: a program of checks (`threads.c`), and threads that send each
//! other bytes in every way there is (`pattern.c`).

use super::checks;
use super::random::{seed_of_the_night, seed_wished};
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::Result;
use std::time::Duration;

const CHECKS: &str = include_str!("threads.c");
const PATTERN: &str = include_str!("pattern.c");
/// Bytes that each of 16 pairs of threads sends.
const PATTERN_BYTES: u64 = 200_000;
const NIGHTLY_PATTERN_BYTES: u64 = 100_000_000;
const PATTERN_LIMIT: Duration = Duration::from_secs(1200);
/// A failure's is given by `PELAGO_SEED`.
const SEED: u64 = 20_261;

pub fn scenarios() -> Vec<Scenario> {
    let of = |cpus: u32| Scenario::shared(3, format!("threads/{cpus}"), move |bench| checks::run(bench, cpus, CHECKS));
    let mut all: Vec<_> = [1, 2].map(of).into();
    let short = |cpus: u32| {
        Scenario::shared(3, format!("threads/pattern/{cpus}"), move |bench| pattern(bench, cpus, SEED, PATTERN_BYTES))
    };
    all.extend([1, 2].map(short));
    all.push(Scenario::nightly(3, "threads/pattern/2/long".into(), |bench| {
        pattern(bench, 2, seed_of_the_night(), NIGHTLY_PATTERN_BYTES)
    }));
    all
}

fn pattern(bench: &Bench, cpus: u32, seed: u64, bytes: u64) -> Result<()> {
    let script = format!("exec /checks {} {bytes}", seed_wished(seed)?);
    let guest = checks::boot_by(bench, cpus, checks::compile(PATTERN)?, &script, |_, _| ())?;
    with_console(guest, |guest| checks::pass_within(guest, PATTERN_LIMIT))
}
