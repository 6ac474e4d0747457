//! `./pelago bench slow-storage`: a database whose storage (`volume`, `disk` with its driver) is on
//! a core of its own, and what its throughput loses where that core, or its own, is throttled
//! (NewtOS, section 3.3.2).
//!
//! Time is that of the coherence model (docs/coherence.md), where each core has a clock of its own.
//! The emulator's own clock of instructions is one for all cores: what one of them does takes time
//! of the others.

use super::disk::{self, FOLDER};
use super::peer;
use crate::bench::plugin::{self, Mode, Plugin};
use crate::image::machine_type::MachineType;
use crate::machine::accelerator::AccelChoice;
use crate::machine::emulator::Drive;
use crate::machine::testbed::Testbed;
use anyhow::{Context, Result};
use coherence::Speed;
use std::path::PathBuf;
use std::time::Duration;
use system::{Mount, Placement};

/// As it is asked for.
pub const NAME: &str = "slow-storage";
/// The database's core, and that of its storage.
pub const DATABASE: u32 = 0;
pub const STORAGE: u32 = 1;
const CPUS: u32 = 2;
/// What the storage is made of.
const SERVERS: [&str; 2] = ["volume", "disk"];
/// The measuring program's rows: sysbench's transaction, and one row for each.
pub const TRANSACTION: &str = "disk-sqlite-transaction";
pub const INSERT: &str = "disk-sqlite-insert";
/// Parts of the full clock rate.
pub const SPEEDS: [Speed; 3] = [Speed { own: 3, of: 4 }, Speed { own: 1, of: 2 }, Speed { own: 1, of: 4 }];
const DISK_BYTES: u64 = 64 << 20;
const DONE: &str = "measure: done";
const LIMIT: Duration = Duration::from_secs(900);

/// What a transaction takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transaction {
    /// Modelled cycles from its begin to its end, waiting included.
    pub cycles: f64,
    /// Parts of them that each core was not halted.
    pub awake: [f64; CPUS as usize],
}

impl Transaction {
    /// Its throughput, as a part of that of `other`.
    pub fn throughput(&self, other: &Transaction) -> f64 {
        other.cycles / self.cycles
    }
}

/// What is booted to be measured.
pub struct Study<'a> {
    testbed: Testbed,
    plugin: &'a Plugin,
    measure: PathBuf,
    /// Cycles of a core's turn.
    turn: u64,
}

impl Study<'_> {
    /// Builds the measuring program.
    pub fn prepare<'a>(testbed: &Testbed, plugin: &'a Plugin, turn: u64) -> Result<Study<'a>> {
        let mount = Mount { path: FOLDER.into(), is_read_only: false };
        Ok(Study { testbed: testbed.with_volume(mount)?, plugin, measure: peer::build_measure()?, turn })
    }

    /// Transactions of `row` on a fresh disk whose servers are on core `storage`, with a core that
    /// is throttled, if any.
    pub fn run(&self, row: &str, storage: u32, throttled: Option<(u32, Speed)>) -> Result<Transaction> {
        let folder = tempfile::tempdir().context("cannot make a folder for a disk")?;
        let file = folder.path().join("disk");
        disk::format(&file, DISK_BYTES, None)?;
        let mut system = self.testbed.system().clone();
        for server in system.components.iter_mut().filter(|component| SERVERS.contains(&component.name.as_str())) {
            server.core = Placement::Preferred(vec![storage]);
        }
        let (measure, cpus) = (self.measure.to_string_lossy(), CPUS.to_string());
        let words = [&*measure, "run", &cpus, row];
        let start = |instruments: plugin::Instruments| {
            // Turns are taken alike in all runs.
            let (core, speed) = throttled.unwrap_or((storage, Speed::FULL));
            let instruments = instruments.throttle(core, speed);
            self.testbed.boot_system(&system, MachineType::Q35, CPUS, &words, |archive, machine| {
                disk::add_sqlite(archive)?;
                plugin::fit(machine, instruments);
                machine.drive = Some(Drive { file: file.clone(), is_read_only: false });
                Ok(())
            })
        };
        eprintln!("pelago: {NAME}: {row}, storage on core {storage}, throttled: {throttled:?}");
        let report = self.plugin.run(Mode::Coherence, self.turn, "", start, DONE, LIMIT)?;
        let found = report.rows.iter().find(|found| found.name == row);
        let found = found.with_context(|| format!("the guest measured no {row}"))?;
        let part =
            |core: u32| found.awake.get(core as usize).map_or(0.0, |awake| *awake as f64 / found.elapsed.max(1) as f64);
        Ok(Transaction {
            cycles: found.elapsed as f64 / found.operations.max(1) as f64,
            awake: [DATABASE, STORAGE].map(part),
        })
    }
}

/// Measures, and prints.
pub fn command(turn: u64) -> Result<()> {
    plugin::check_emulator()?;
    let (testbed, plugin) = (Testbed::new(AccelChoice::Tcg)?, Plugin::prepare()?);
    let study = Study::prepare(&testbed, &plugin, turn)?;
    for row in [TRANSACTION, INSERT] {
        let full = study.run(row, STORAGE, None)?;
        let [database, storage] = full.awake.map(|awake| awake * 100.0);
        println!(
            "{row}: {:.0} cycles, in which its core is busy for {database:.1} % and the storage's for {storage:.1} %",
            full.cycles
        );
        for speed in SPEEDS {
            let of = |core| study.run(row, STORAGE, Some((core, speed))).map(|slow| 100.0 * slow.throughput(&full));
            let (storage, database) = (of(STORAGE)?, of(DATABASE)?);
            println!(
                "  at {:>2} % of a core's clock: {storage:.1} % of the throughput if it is the storage's, {database:.1} % if it is the database's",
                100 * speed.own / speed.of
            );
        }
    }
    Ok(())
}
