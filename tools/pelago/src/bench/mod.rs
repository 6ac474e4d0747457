//! `./pelago bench`: measures Pelago and, in the same run, a Linux guest on the same emulated
//! machine, and prints both, their ratio and the spread of each.
//!
//! The systems take turns, round by round, so that what else the host does falls on both. A row
//! that fails, or that a system has no means for, says so and leaves the others alone; a failure
//! makes the status one. What each number means and how far it can be trusted is
//! docs/measuring.md's matter, and `--list`'s.

mod catalogue;
mod chart;
mod clients;
pub mod coherence;
mod compare;
pub mod counts;
mod disk;
mod inside;
pub mod instruments;
mod known;
pub mod layouts;
pub mod nova;
mod outside;
pub mod peer;
pub mod plugin;
mod program;
mod requests;
mod results;
mod servers;
pub mod slow_storage;
mod systems;
mod table;

pub use results::SMALLEST as SMALLEST_RESULTS;
pub use systems::Side;

use crate::bench::plugin::Plugin;
use crate::image::machine_type::MachineType;
use crate::machine::accelerator;
use anyhow::{Context, Result, anyhow, bail, ensure};
use catalogue::{ENTRIES, Entry, Source};
use clap::Args;
use outside::Experiment;
use results::{Results, Row, Unit};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use systems::Systems;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Times,
    Instructions,
    Both,
}

/// Options of `bench`.
#[derive(Args)]
pub struct Options {
    /// Measure only rows whose name contains one of these, or a paper's figure (`corey.fig1`),
    /// which is drawn too; `nova`: its study of servers, on the largest of the numbers of cores;
    /// `slow-storage`: a database whose storage's core is throttled
    name: Vec<String>,
    /// Numbers of cores
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    cpus: Vec<u32>,
    /// How often each system is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Times, counts of instructions (boots of their own, under a slower emulator), or both
    #[arg(long, value_enum, default_value = "both")]
    measure: Kind,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print what has changed since the results in this file
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Take the results from this file instead of measuring
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Print the rows, what each can be trusted for and which paper's figure it belongs to, instead
    /// of measuring
    #[arg(long)]
    list: bool,
    /// Hardware virtualisation or emulation
    #[arg(long, value_enum, default_value = "auto")]
    accel: accelerator::AccelChoice,
    #[command(flatten)]
    instruments: instruments::Options,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.name.is_empty()
            || self.name.iter().any(|wish| name.contains(wish.as_str()))
            || self.figures().any(|figure| figure.lines.iter().any(|line| line.row == name))
    }

    /// True if rows of that unit are measured.
    fn measures(&self, unit: Unit) -> bool {
        match self.measure {
            Kind::Both => true,
            Kind::Times => unit != Unit::Instructions,
            Kind::Instructions => unit == Unit::Instructions,
        }
    }

    fn figures(&self) -> impl Iterator<Item = &'static chart::Figure> {
        chart::FIGURES.iter().filter(|figure| self.name.iter().any(|wish| wish == figure.name))
    }
}

/// Measures, or reads, what was chosen, prints it, keeps it, compares it, draws it.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.list {
        table::list();
        coherence::list();
        return Ok(ExitCode::SUCCESS);
    }
    if options.name == [nova::NAME] {
        let cpus = options.cpus.iter().copied().max().unwrap_or(1);
        nova::command(cpus, options.instruments.turn(), options.json.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.name == [slow_storage::NAME] {
        slow_storage::command(options.instruments.turn())?;
        return Ok(ExitCode::SUCCESS);
    }
    if options.instruments.chosen() {
        let (names, cpus, json) = (&options.name, &options.cpus, options.json.as_deref());
        options.instruments.run(&instruments::Common { names, cpus, json })?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        options.cpus.iter().all(|cpus| (1..=crate::machine::emulator::CPUS_MAX).contains(cpus)),
        "--cpus: the emulator takes 1 to {} cores; choose others",
        crate::machine::emulator::CPUS_MAX
    );
    // A file that cannot be read is told before minutes of measuring.
    let before = options.against.as_ref().map(|path| Results::read(path)).transpose()?;
    let mut results = match &options.from {
        Some(path) => Results::read(path)?,
        None => measure(options)?,
    };
    results.rows.retain(|row| options.wants(&row.name));
    if results.rows.is_empty() {
        bail!("no row has such a name; `./pelago bench --list` prints them");
    }
    if let Some(path) = &options.json {
        results.write(path)?;
    }
    table::print(&results);
    let summaries = layouts::summaries(&results).into_iter().chain(requests::summaries(&results));
    summaries.for_each(|line| println!("{line}"));
    if let Some(before) = before {
        compare::print(&before, &results);
    }
    for figure in options.figures() {
        chart::draw(figure, &results).with_context(|| format!("the chart of {}", figure.name))?;
    }
    let failed = results.failures();
    failed.iter().for_each(|failure| eprintln!("pelago: {failure}"));
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(options: &Options) -> Result<Results> {
    let wanted = |entry: &&Entry| options.wants(entry.name) && !(options.name.is_empty() && entry.by_name());
    let chosen: Vec<&Entry> = ENTRIES.iter().filter(wanted).collect();
    ensure!(!chosen.is_empty(), "no row has such a name; `./pelago bench --list` prints them");
    let needed = [layouts::memory_bytes(&chosen, &options.cpus), servers::memory_bytes(&chosen)];
    let memory_bytes = needed.into_iter().fold(systems::MEMORY_BYTES, u64::max);
    systems::check_memory(memory_bytes)?;
    let inside = chosen.iter().any(|entry| matches!(entry.source, Source::Inside { .. }));
    let systems = Systems::prepare(options.accel, inside, memory_bytes, options.instruments.functions)?;
    let mut results = Results::new(&systems, options.rounds);
    for entry in &chosen {
        for &cpus in &options.cpus {
            let units = entry.units(cpus).into_iter().filter(|unit| options.measures(*unit));
            units.for_each(|unit| results.rows.push(Row::new(entry, unit, cpus)));
        }
    }
    ensure!(!results.rows.is_empty(), "instructions are counted on one core, and of some rows only; see --list");
    let rounds = if options.measure == Kind::Instructions { 0 } else { options.rounds };
    let start = Instant::now();
    let say = |what: &str| {
        let seconds = start.elapsed().as_secs();
        eprintln!("pelago: {}:{:02} {what}", seconds / 60, seconds % 60);
    };
    for round in 0..rounds {
        // The second system finds a warmer or busier host: the two take turns at that too.
        let sides = if round % 2 == 0 { [Side::Pelago, Side::Linux] } else { [Side::Linux, Side::Pelago] };
        for &cpus in &options.cpus {
            for side in sides {
                let progress = format!("round {} of {}, {}, --cpus {cpus}", round + 1, options.rounds, side.name());
                let say = |what: &str| say(&format!("{progress}: {what}"));
                one_turn(&systems, &chosen, side, cpus, &say, &mut results);
                // What an interrupted run has found is not lost.
                options.json.as_ref().map_or(Ok(()), |path| results.write(path))?;
            }
        }
    }
    if results.rows.iter().any(|row| row.unit == Unit::Instructions) {
        count(&systems, &chosen, &say, &mut results);
    }
    results.end();
    Ok(results)
}

/// Everything of one system at one number of cores, once.
fn one_turn(systems: &Systems, chosen: &[&Entry], side: Side, cpus: u32, say: &dyn Fn(&str), results: &mut Results) {
    program::turn(systems, chosen, side, cpus, None, say, results);
    disk::turn(systems, chosen, (side, cpus), None, say, results);
    if side == Side::Pelago {
        inside::turn(systems, chosen, cpus, None, say, results);
        layouts::turn(systems, chosen, cpus, None, say, results);
    }
    let mut done: Vec<(MachineType, Experiment)> = Vec::new();
    for entry in chosen {
        let Source::Outside { machine, experiment, .. } = entry.source else { continue };
        if done.contains(&(machine, experiment)) {
            continue;
        }
        done.push((machine, experiment));
        say(entry.name);
        let measure = || experiment.measure(systems, side, machine, cpus);
        // Linux on an emulator with more cores than its host may not come up in time. What is ours
        // is tried once: its failures are to be seen.
        let figures = measure().or_else(|error| match side {
            Side::Pelago => Err(error),
            Side::Linux => {
                say(&format!("{} once more, since {error:#}", entry.name));
                measure()
            }
        });
        let figures = figures.map_err(|error| format!("{error:#}"));
        for other in chosen {
            if let Source::Outside { machine: its, experiment: of, figure } = other.source
                && (its, of) == (machine, experiment)
            {
                let sample = figures.as_ref().map(|figures| vec![figures[figure]]).map_err(|error| anyhow!("{error}"));
                results.add(other.name, other.unit, cpus, side, sample.into());
            }
        }
    }
}

/// Instructions instead of time, on one core, by the emulator's plugin.
fn count(systems: &Systems, chosen: &[&Entry], say: &dyn Fn(&str), results: &mut Results) {
    say("counting instructions: building the emulator's plugin");
    let plugin = match Plugin::prepare() {
        Ok(plugin) => plugin,
        Err(error) => return results.fail_counts(&format!("{error:#}")),
    };
    for side in [Side::Pelago, Side::Linux] {
        let say = |what: &str| say(&format!("counting instructions, {}: {what}", side.name()));
        program::turn(systems, chosen, side, 1, Some(&plugin), &say, results);
        disk::turn(systems, chosen, (side, 1), Some(&plugin), &say, results);
        requests::turn(systems, chosen, side, &plugin, &say, results);
        if side == Side::Pelago {
            inside::turn(systems, chosen, 1, Some(&plugin), &say, results);
            layouts::turn(systems, chosen, 1, Some(&plugin), &say, results);
            counts::print_steps(&plugin.take_steps(), systems.functions);
        }
    }
}
