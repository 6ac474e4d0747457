//! `./pelago bench --model coherence`: cache misses by cause, and modelled cycles, of Pelago and of
//! a Linux guest at 1 to 255 cores.
//!
//! The model runs in the emulator's plugin (tools/plugin, tools/coherence); here guests are booted
//! with it, and tables printed. What is modelled and what not is told in docs/coherence.md.

pub mod catalogue;
pub mod load;
mod table;

use crate::bench::Side;
use crate::bench::peer::{self, Linux, MEASURE};
use crate::bench::plugin::{self, Mode, Plugin};
use crate::image::machine_type::MachineType;
use crate::machine::accelerator;
use crate::machine::emulator::Accelerator;
use crate::machine::testbed::Testbed;
use anyhow::{Context, Result, anyhow, bail, ensure};
use catalogue::{Boot, Load};
use coherence::Report;
use load::LoadMachine;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use table::list;

/// The system that is booted.
pub const SYSTEM: &str = "model.toml";
/// What the measuring program says at the end.
const MEASURE_DONE: &str = "measure: done";
/// A modelled guest does a few million instructions a second, all cores together.
const LIMIT: Duration = Duration::from_secs(300);
const LIMIT_PER_CORE: Duration = Duration::from_secs(60);

/// Figures of one boot.
#[derive(Debug, Serialize)]
pub struct Run {
    pub system: &'static str,
    pub cpus: u32,
    pub report: Report,
}

/// What is to be modelled.
pub struct Request<'a> {
    /// Rows whose name, `SYSTEM/ROW`, contains one of these; all if there is none.
    pub names: &'a [String],
    pub cpus: &'a [u32],
    pub turns: &'a [u64],
    /// Functions printed under each row.
    pub functions: usize,
    pub json: Option<&'a Path>,
}

/// Boots what has the wanted rows at each number of cores and length of turns, prints and keeps.
pub fn command(request: &Request) -> Result<()> {
    let (boots, absent): (Vec<_>, Vec<_>) =
        request.cpus.iter().map(|&cpus| catalogue::plan(request.names, cpus)).unzip();
    let mut absent = absent.concat();
    absent.sort_by_key(|absent| (absent.side as u8, absent.row));
    absent.dedup();
    let boots: Vec<(Boot, u64)> = boots
        .concat()
        .into_iter()
        .flat_map(|boot| request.turns.iter().map(move |&turn| (boot.clone(), turn)))
        .collect();
    ensure!(
        !boots.is_empty() || !absent.is_empty(),
        "the model has no row of such a name; `./pelago bench --model coherence --list` prints them"
    );
    let ours = boots.iter().any(|(boot, _)| boot.side == Side::Pelago);
    let testbed = if ours { Some(Testbed::new(accelerator::AccelChoice::Tcg)?) } else { None };
    let guests = Guests::prepare(testbed.as_ref())?;
    let (mut runs, mut failed) = (Vec::new(), Vec::new());
    let began = Instant::now();
    table::head();
    for (number, (boot, turn)) in (1..).zip(&boots) {
        let (system, cpus) = (boot.side.name(), boot.cpus);
        eprintln!(
            "pelago: coherence model, {} s: boot {number} of {}, {system}, {cpus} cores, turns of {turn} cycles",
            began.elapsed().as_secs(),
            boots.len()
        );
        match guests.run(boot, *turn) {
            Ok(report) => {
                table::print(system, cpus, &report, request.functions);
                runs.push(Run { system, cpus, report });
            }
            Err(error) => failed.push(format!("{system} at {cpus} cores: {error:#}")),
        }
        // What an interrupted run has found is not lost.
        request.json.map_or(Ok(()), |path| crate::host::files::write(path, &serde_json::to_vec_pretty(&runs)?))?;
    }
    absent.iter().for_each(|absent| println!("{:<7} {:<28} absent: {}", absent.side.name(), absent.row, absent.why));
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// All that is needed to boot either system under the model.
pub struct Guests<'a> {
    plugin: Plugin,
    /// Without it Linux alone can be booted.
    testbed: Option<&'a Testbed>,
    measure: PathBuf,
    /// Or why there is none.
    linux: Result<Linux, String>,
}

impl Guests<'_> {
    /// Builds the plugin and the measuring program. A Linux guest that cannot be had is no failure
    /// yet: our own rows need none.
    pub fn prepare(testbed: Option<&Testbed>) -> Result<Guests<'_>> {
        let measure = peer::build_measure()?;
        let linux = Linux::find(Some(&measure)).map_err(|error| format!("{error:#}"));
        Ok(Guests { plugin: Plugin::prepare()?, testbed, measure, linux })
    }

    /// Boots, and returns the wanted rows.
    pub fn run(&self, boot: &Boot, turn: u64) -> Result<Report> {
        let mut report = match (boot.side, &boot.load) {
            (Side::Pelago, Load::Component) => {
                let load = LoadMachine::new(self.testbed()?, boot.families())?;
                self.component(load, boot.cpus, turn)
            }
            (Side::Pelago, Load::ComponentOnDisk) => {
                let load = LoadMachine::on_disk(self.testbed()?, boot.families())?;
                self.component(load, boot.cpus, turn)
            }
            (Side::Pelago, Load::Program) => self.program(boot, turn),
            (Side::Linux, _) => self.peer(boot, turn),
        }?;
        report.rows.retain(|row| boot.rows.contains(&row.name.as_str()));
        if let Some(lacking) = boot.rows.iter().find(|row| report.rows.iter().all(|given| given.name != **row)) {
            bail!("the guest measured no {lacking}; its console may say why");
        }
        Ok(report)
    }

    /// Rows of our component.
    fn component(&self, load: LoadMachine, cpus: u32, turn: u64) -> Result<Report> {
        let names = plugin::names(self.testbed()?.images(), &load.system, cpus)?;
        let start = |instruments| load.boot(cpus, |machine| plugin::fit(machine, instruments));
        self.plugin.run(Mode::Coherence, turn, &names, start, load::ENDED, limit(cpus))
    }

    /// The measuring program as a Linux program of ours.
    fn program(&self, boot: &Boot, turn: u64) -> Result<Report> {
        let (measure, workers) = (self.measure.to_string_lossy(), boot.cpus.to_string());
        let words = [&[&*measure, "model", &workers], &boot.rows[..]].concat();
        let testbed = self.testbed()?;
        let names = plugin::names(testbed.images(), testbed.system(), boot.cpus)?;
        let start = |instruments| {
            testbed.boot(MachineType::Q35, boot.cpus, &words, |_, machine| {
                plugin::fit(machine, instruments);
                Ok(())
            })
        };
        self.plugin.run(Mode::Coherence, turn, &names, start, MEASURE_DONE, limit(boot.cpus))
    }

    fn testbed(&self) -> Result<&Testbed> {
        self.testbed.context("our own guest was not built")
    }

    /// The measuring program in Linux. The guest tells the names of its kernel's functions itself.
    fn peer(&self, boot: &Boot, turn: u64) -> Result<Report> {
        let linux = self.linux.as_ref().map_err(|reason| anyhow!("{reason}"))?;
        let start = |instruments| {
            let workers = boot.cpus.to_string();
            let words = [&[MEASURE, "model", &workers], &boot.rows[..]].concat();
            linux.boot(linux.machine(boot.cpus, Accelerator::Tcg), &words, |_, machine| {
                plugin::fit(machine, instruments);
                Ok(())
            })
        };
        self.plugin.run(Mode::Coherence, turn, "", start, MEASURE_DONE, limit(boot.cpus))
    }
}

fn limit(cpus: u32) -> Duration {
    LIMIT + LIMIT_PER_CORE * cpus
}
