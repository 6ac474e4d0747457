//! `./pelago bench --model coherence`: cache misses by cause, and modelled cycles, of Pelago and of a Linux guest at 1 to 255 cores.
//!
//! The model runs in the emulator's plugin (tools/plugin, tools/coherence); here guests are booted with it, and tables printed. What is
//! modelled and what not is told in docs/coherence.md.

mod table;

use crate::description;
use crate::emulator::{Accelerator, Machine, MachineType};
use crate::peer::{self, Linux, MEASURE};
use crate::plugin::{self, Mode, Plugin};
use crate::scenario::Bench;
use anyhow::{Result, ensure};
use coherence::Report;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use system::System;

/// The system that is loaded, and the component of it that there is one of per core.
pub const SYSTEM: &str = "model.toml";
const LOAD: &str = "load";
const DONE: &str = ": load done";
/// What the measuring program says at the end.
const MEASURE_DONE: &str = "measure: done";
/// A modelled guest does a few million instructions a second, all cores together.
const LIMIT: Duration = Duration::from_secs(120);
const LIMIT_PER_CORE: Duration = Duration::from_secs(30);

/// Figures of one boot.
#[derive(Debug, Serialize)]
pub struct Run {
    pub system: &'static str,
    pub cpus: u32,
    pub report: Report,
}

/// What is to be modelled.
pub struct Wish<'a> {
    pub cpus: &'a [u32],
    pub turns: &'a [u64],
    /// Functions printed under each row.
    pub functions: usize,
    pub json: Option<&'a Path>,
}

/// Boots both systems at each number of cores and length of turns, prints and keeps.
pub fn command(bench: &Bench, wish: &Wish, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let plugin = Plugin::prepare()?;
    let linux = peer::build_measure().and_then(|measure| Linux::find(&measure));
    let (mut runs, mut failed) = (Vec::new(), Vec::new());
    table::head();
    for &cpus in wish.cpus {
        for &turn in wish.turns {
            let systems: [(&str, &dyn Fn() -> Result<Report>); 2] = [
                ("Pelago", &|| pelago(&plugin, bench, bench.system(), cpus, turn)),
                ("Linux", &|| match &linux {
                    Ok(linux) => peer_run(&plugin, linux, cpus, turn),
                    Err(error) => Err(anyhow::anyhow!("{error:#}")),
                }),
            ];
            for (system, run) in systems {
                eprintln!("pelago: coherence model, {system}, {cpus} cores, turns of {turn} cycles");
                match run() {
                    Ok(mut report) => {
                        report.rows.retain(|row| wanted(&row.name));
                        table::print(system, cpus, &report, wish.functions);
                        runs.push(Run { system, cpus, report });
                    }
                    Err(error) => failed.push(format!("{system} at {cpus} cores: {error:#}")),
                }
            }
        }
    }
    if let Some(path) = wish.json {
        crate::files::write(path, &serde_json::to_vec_pretty(&runs)?)?;
    }
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    ensure!(runs.iter().any(|run| !run.report.rows.is_empty()), "no row of the model has such a name");
    Ok(())
}

fn limit(cpus: u32) -> Duration {
    LIMIT + LIMIT_PER_CORE * cpus
}

/// Our rows (apps/bench/src/load.rs).
pub fn pelago(plugin: &Plugin, bench: &Bench, system: &System, cpus: u32, turn: u64) -> Result<Report> {
    let system = description::on_each_core(system, LOAD, cpus)?;
    let names = plugin::names(bench.images(), &system)?;
    let start = |instruments| {
        bench.boot_system(&system, MachineType::Q35, cpus, &[], |_, machine: &mut Machine| {
            plugin::fit(machine, instruments);
            Ok(())
        })
    };
    plugin.run(Mode::Coherence, turn, &names, start, DONE, limit(cpus))
}

/// Linux's rows (tools/measure). The guest tells the names of its kernel's functions itself.
fn peer_run(plugin: &Plugin, linux: &Linux, cpus: u32, turn: u64) -> Result<Report> {
    let start = |instruments| {
        let workers = cpus.to_string();
        linux.boot(linux.machine(cpus, Accelerator::Tcg), &[MEASURE, "model", &workers], |_, machine| {
            plugin::fit(machine, instruments);
            Ok(())
        })
    };
    plugin.run(Mode::Coherence, turn, "", start, MEASURE_DONE, limit(cpus))
}
