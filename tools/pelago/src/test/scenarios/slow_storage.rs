//! Tier 3: a database whose storage is on a core of its own (NewtOS, section 3.3.2). Throttling
//! that core costs less throughput than clock, and less than throttling the database's.

use crate::bench::plugin::Plugin;
use crate::bench::slow_storage::{DATABASE, STORAGE, Study, TRANSACTION, Transaction};
use crate::host::skip::Skip;
use crate::test::scenario::{Bench, Scenario};
use anyhow::{Result, bail, ensure};
use coherence::Speed;

/// Cycles of a turn.
const TURN: u64 = 200;
/// Parts of the clock that the storage's core is throttled to.
const SPEEDS: [Speed; 2] = [Speed { own: 1, of: 2 }, Speed { own: 1, of: 4 }];
/// How much more of its throughput the database keeps than its storage's core of its clock.
const MORE: f64 = 1.2;

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::nightly(3, "slow-storage/q35/2".into(), run)]
}

fn run(bench: &Bench) -> Result<()> {
    if crate::host::path::find("sqlite3").is_none() {
        bail!(Skip::Package { program: "sqlite3", package: "sqlite3" });
    }
    let plugin = Plugin::prepare()?;
    let study = Study::prepare(bench, &plugin, TURN)?;
    let of = |throttled| study.run(TRANSACTION, STORAGE, throttled);
    let full = of(None)?;
    println!("     a transaction takes {:.0} cycles; parts that cores are busy: {:.2?}", full.cycles, full.awake);
    for speed in SPEEDS {
        judge(speed, &full, &of(Some((STORAGE, speed)))?, &of(Some((DATABASE, speed)))?)?;
    }
    Ok(())
}

/// What the database does with its storage throttled, and throttled itself.
fn judge(speed: Speed, full: &Transaction, storage: &Transaction, database: &Transaction) -> Result<()> {
    let clock = speed.own as f64 / speed.of as f64;
    let [storage, database] = [storage, database].map(|slow| slow.throughput(full));
    println!("     at {clock} of the clock: {storage:.3} of the throughput by storage, {database:.3} by database");
    ensure!(
        storage >= MORE * clock,
        "the storage's core has {clock} of its clock, the database {storage:.3} of its own"
    );
    ensure!(storage > database, "throttling the storage costs more than throttling the database: {storage:.3}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_loses_as_much_as_the_clock_or_more_than_by_its_own_core_is_told() {
        let of = |cycles: f64| Transaction { cycles, awake: [0.0; 2] };
        let judge = |storage, database| judge(SPEEDS[0], &of(100.0), &of(storage), &of(database));
        assert!(judge(140.0, 160.0).is_ok());
        assert!(judge(170.0, 180.0).is_err() && judge(160.0, 140.0).is_err());
    }
}
