//! Tier 5: what a guest said that it had kept is there after a power cut, and where flushes come to
//! nothing the test sees that it is not. Of Linux with ext4, so that what judges our own is known
//! to be right; of the files of our own volume; and of our own disk by sectors.

use crate::bench::peer::Package;
use crate::host::place;
use crate::host::skip::Skip;
use crate::machine::block::cut::Cache;
use crate::machine::block::server::On;
use crate::test::disk::Test;
use crate::test::disk::native::Native;
use crate::test::disk::volume::Volume;
use crate::test::scenario::{Bench, Scenario};
use anyhow::{Result, bail};

const SEED: u64 = 0x5eed_0025;
/// Of a plain run, so that it takes seconds.
const PIECES: u64 = 30;
const CUTS: u64 = 12;
const NIGHTLY_PIECES: u64 = 200;
const NIGHTLY_CUTS: u64 = 300;
/// Each of three writers on our own volume does so many.
const VOLUME_PIECES: u64 = 12;
const VOLUME_CUTS: u64 = 10;
const VOLUME_NIGHTLY_PIECES: u64 = 100;
const BOOTS: u64 = 10;
/// Most of a lying disk's cuts lose something.
const BITES: u64 = 5;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(5, "power-cut/pelago".into(), native),
        Scenario::shared(5, "power-cut/pelago/faults".into(), native_faults),
        Scenario::shared(5, "power-cut/pelago/errors".into(), native_errors),
        Scenario::shared(5, "power-cut/pelago/end".into(), |bench| Native::new((**bench).clone(), 0).end()),
        Scenario::shared(5, "power-cut/volume".into(), |bench| volume(&Volume::prepare(bench, VOLUME_PIECES)?)),
        Scenario::shared(5, "power-cut/volume/encrypted".into(), |bench| {
            volume(&Volume::prepare_encrypted(bench, VOLUME_PIECES)?)
        }),
        Scenario::nightly(5, "power-cut/volume/300".into(), |bench| {
            volume_by_night(&Volume::prepare(bench, VOLUME_NIGHTLY_PIECES)?)
        }),
        Scenario::nightly(5, "power-cut/volume/encrypted/300".into(), |bench| {
            volume_by_night(&Volume::prepare_encrypted(bench, VOLUME_NIGHTLY_PIECES)?)
        }),
        Scenario::nightly(5, "power-cut/volume/faults".into(), volume_faults),
        Scenario::shared(5, "power-cut/linux".into(), |bench| cut(bench, PIECES, CUTS)),
        Scenario::nightly(5, "power-cut/linux/300".into(), |bench| cut(bench, NIGHTLY_PIECES, NIGHTLY_CUTS)),
        Scenario::nightly(5, "power-cut/linux/nobarrier".into(), without_flushes),
        Scenario::nightly(5, "power-cut/linux/faults".into(), faults),
    ]
}

fn prepare(bench: &Bench, pieces: u64) -> Result<Test> {
    if let Err(problem) = Package::find(&place::linux_package()) {
        bail!(Skip::Cannot(format!("{problem:#}")));
    }
    Test::prepare(bench.accelerator(), pieces)
}

fn cut(bench: &Bench, pieces: u64, cuts: u64) -> Result<()> {
    let test = prepare(bench, pieces)?;
    let log = test.record()?;
    test.cut(&log, cuts, SEED)?;
    test.bite(&log, BITES, SEED, Cache::Ignoring).map(drop)
}

fn without_flushes(bench: &Bench) -> Result<()> {
    let test = prepare(bench, PIECES)?;
    let log = test.record_without_flushes()?;
    test.bite(&log, CUTS, SEED, Cache::Honest).map(drop)
}

fn faults(bench: &Bench) -> Result<()> {
    let test = prepare(bench, NIGHTLY_PIECES)?;
    let log = test.record_with_faults()?;
    test.cut(&log, CUTS, SEED)?;
    test.cut_with_error(&test.record_with_error()?, CUTS, SEED).map(drop)
}

fn volume(test: &Volume) -> Result<()> {
    let log = test.record()?;
    println!("     {}", test.cut(&log, VOLUME_CUTS, SEED)?);
    test.bite(&log, BITES, SEED).map(drop)
}

fn volume_by_night(test: &Volume) -> Result<()> {
    let log = test.record()?;
    println!("     {}", test.cut(&log, NIGHTLY_CUTS, SEED)?);
    println!("     {}", test.boot_cuts(&log, BOOTS, SEED)?);
    println!("     {}", test.bite(&log, CUTS, SEED)?);
    Ok(())
}

fn volume_faults(bench: &Bench) -> Result<()> {
    let test = Volume::prepare(bench, VOLUME_NIGHTLY_PIECES)?;
    println!("     {}", test.cut(&test.record_with_faults()?, CUTS, SEED)?);
    Ok(())
}

/// The disk of the native program is small, so more of both is cheap.
fn native(bench: &Bench) -> Result<()> {
    let test = Native::new((**bench).clone(), NIGHTLY_PIECES);
    let log = test.record()?;
    test.cut(&log, NIGHTLY_CUTS, SEED)?;
    test.bite(&log, CUTS, SEED).map(drop)
}

fn native_faults(bench: &Bench) -> Result<()> {
    let test = Native::new((**bench).clone(), NIGHTLY_PIECES);
    test.cut(&test.record_with_faults()?, NIGHTLY_CUTS, SEED).map(drop)
}

fn native_errors(bench: &Bench) -> Result<()> {
    let test = Native::new((**bench).clone(), PIECES);
    [On::Reads, On::Writes, On::Flushes].into_iter().try_for_each(|on| test.fail(on))
}
