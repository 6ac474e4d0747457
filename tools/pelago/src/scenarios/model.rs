//! Tiers 1 and 2: the instruction counts that are kept, and the coherence model against what is known of counters.

use crate::counts;
use crate::plugin::Plugin;
use crate::scenario::{Bench, Scenario, Skip};
use crate::{coherence, description, image, place};
use ::coherence::Row;
use anyhow::{Context, Result, bail, ensure};

/// Cycles of a turn.
const TURN: u64 = 200;
/// Two runs differ by less, in per cent.
const SPREAD_PERCENT_MAX: f64 = 0.5;
/// A turn that ends within an addition spares the next its miss: how often that is depends on where turns fall in the loop, so on the build.
const SHARED_MARGIN: f64 = 0.1;
/// What the kernel's timer may add to a row of some hundred operations.
const STRAY_MISSES: f64 = 0.02;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(1, "counts/kept".into(), kept),
        Scenario::shared(1, "counts/repeat".into(), repeat),
        Scenario::shared(2, "model/coherence/2".into(), same_twice),
        Scenario::shared(2, "model/coherence/4".into(), |bench| counters(&modelled(bench, 4)?, 4)),
    ]
}

/// No row rose or fell by more than the margin since it was last kept.
fn kept(bench: &Bench) -> Result<()> {
    let kept = counts::Kept::read()?;
    if let Some(reason) = kept.incomparable(&image::compiler()?) {
        bail!(Skip(reason));
    }
    kept.check(&count(bench)?.0)
}

/// Two runs count the same.
fn repeat(bench: &Bench) -> Result<()> {
    let (one, other) = (count(bench)?.0, count(bench)?.0);
    let (percent, name) = counts::spread(&one, &other)?;
    ensure!(percent < SPREAD_PERCENT_MAX, "{name} differs by {percent:.2} % between two runs");
    Ok(())
}

fn count(bench: &Bench) -> Result<(Vec<counts::Count>, ::coherence::Report)> {
    let system = description::load(&place::root().join("system").join(counts::SYSTEM))?;
    counts::measure(&Plugin::prepare()?, bench, &system)
}

/// A counter of all cores misses once per addition, a core's own never.
fn counters(report: &::coherence::Report, cpus: u32) -> Result<()> {
    let misses = |name: &str| -> Result<f64> {
        let row: &Row = report.rows.iter().find(|row| row.name == name).with_context(|| format!("no row {name}"))?;
        ensure!(row.cores == u64::from(cpus), "{name} was measured on {} cores", row.cores);
        Ok(row.total.coherence as f64 / row.operations as f64)
    };
    let (shared, private) = (misses("shared-counter")?, misses("private-counter")?);
    ensure!(
        (shared - 1.0).abs() < SHARED_MARGIN,
        "{shared:.3} coherence misses per addition to a shared counter, not 1"
    );
    ensure!(private < STRAY_MISSES, "{private:.3} coherence misses per addition to a private counter, not 0");
    let touched = misses("private-page-touch")?;
    ensure!(touched < STRAY_MISSES, "{touched:.3} coherence misses per first touch of a private page, not 0");
    Ok(())
}

/// Two runs are right, and equal to the last byte.
fn same_twice(bench: &Bench) -> Result<()> {
    let (one, other) = (modelled(bench, 2)?, modelled(bench, 2)?);
    let text = serde_json::to_string(&one)?;
    ensure!(text == serde_json::to_string(&other)?, "two runs of the coherence model with the same seed differ");
    counters(&one, 2)
}

fn modelled(bench: &Bench, cpus: u32) -> Result<::coherence::Report> {
    let system = description::load(&place::root().join("system").join(coherence::SYSTEM))?;
    coherence::pelago(&Plugin::prepare()?, bench, &system, cpus, TURN)
}
