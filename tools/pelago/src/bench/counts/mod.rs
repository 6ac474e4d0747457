//! Instructions per operation, exactly: `./pelago bench --counts` prints them by privilege and
//! component, and the kept ones of `docs/counts.toml` are compared in `./pelago test counts`.
//!
//! They are counted on one core by the emulator's plugin, between the marks of `apps/bench`. What a
//! number holds and what not is told in docs/counts.md.

mod kept;

use crate::bench::plugin::{self, Instruments, Mode, Plugin};
use crate::host::files;
use crate::image::build;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::Machine;
use crate::machine::guest::Guest;
use crate::machine::testbed::Testbed;
use anyhow::{Context, Result, ensure};
use coherence::{Report, Row, StepRow};
use std::path::Path;
use std::time::Duration;
use system::System;

pub use kept::{Kept, KeptCounts, path};

/// The system that measures itself.
pub const SYSTEM: &str = "bench.toml";
/// What it says at the end.
pub const DONE: &str = "bench: done";
const LIMIT: Duration = Duration::from_secs(240);
/// One core takes no turns, so the length of one does not matter.
pub const TURN: u64 = 1000;
/// A row whose length is known, and that length: shows that instructions are what is counted.
const KNOWN: (&str, f64) = ("known-loop", 20_000.0);
/// What the stopwatch adds to a stretch.
const KNOWN_SLACK: f64 = 50.0;
/// Instructions of the longest step that the kernel may do: what it does between an entry and the
/// return to a program, with interrupts off.
pub const STEP_MAX: u64 = 100_000;
/// The part of a count that is no component.
pub const KERNEL: &str = "kernel";

/// One row, per operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    pub name: String,
    pub instructions: f64,
    pub kernel: f64,
    /// Components other than the kernel, most first.
    pub components: Vec<(String, f64)>,
}

impl Count {
    /// From the plugin's report: the stretch in the middle.
    pub fn of(row: &Row) -> Count {
        let per_operation = |count: u64| count as f64 / row.median.operations.max(1) as f64;
        let mut components: Vec<_> =
            row.median.components.iter().map(|(name, &count)| (name.clone(), per_operation(count))).collect();
        components.sort_by(|one, other| other.1.total_cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        let kernel = components.iter().find(|(name, _)| name == KERNEL).map_or(0.0, |(_, count)| *count);
        components.retain(|(name, _)| name != KERNEL);
        Count { name: row.name.clone(), instructions: per_operation(row.median.instructions), kernel, components }
    }

    fn line(&self) -> String {
        let parts: Vec<_> = self.components.iter().map(|(name, count)| format!("{name} {count:.1}")).collect();
        let user = self.instructions - self.kernel;
        format!(
            "{:<40} {:>10.1} {:>10.1} {user:>10.1}  {}",
            self.name,
            self.instructions,
            self.kernel,
            parts.join(", ")
        )
    }
}

/// Counts once, on one core.
pub fn measure(plugin: &Plugin, testbed: &Testbed, system: &System) -> Result<(Vec<Count>, Report)> {
    let start = |instruments| {
        testbed.boot_system(system, MachineType::Q35, 1, &[], |_, machine: &mut Machine| {
            plugin::fit(machine, instruments);
            Ok(())
        })
    };
    measure_guest(plugin, &plugin::names(testbed.images(), system, 1)?, start, DONE)
}

/// Counts in the guest of one core that `start` starts, which measures the known loop too and says
/// `done` at the end.
pub fn measure_guest(
    plugin: &Plugin,
    names: &str,
    start: impl FnOnce(Instruments) -> Result<Guest>,
    done: &str,
) -> Result<(Vec<Count>, Report)> {
    let report = plugin.run(Mode::Count, TURN, names, start, done, LIMIT).context("counting instructions")?;
    let counts: Vec<_> = report.rows.iter().map(Count::of).collect();
    let known = counts.iter().find(|count| count.name == KNOWN.0).map_or(0.0, |count| count.instructions);
    ensure!(
        (KNOWN.1..=KNOWN.1 + KNOWN_SLACK).contains(&known),
        "the plugin counts {known} instructions in a loop of {}: this emulator's plugin interface does not count as expected",
        KNOWN.1
    );
    Ok((counts, report))
}

/// Prints a row, and under it the functions with most instructions.
pub fn print(row: &Row, functions: usize) {
    println!("{}", Count::of(row).line());
    for function in row.functions.iter().take(functions) {
        let mean = function.counters.instructions as f64 / row.operations.max(1) as f64;
        println!("    {mean:>10.1} {} {}", function.component, function.function);
    }
}

/// Prints the longest steps of the kernel, and of each the functions with most instructions.
pub fn print_steps(steps: &[StepRow], functions: usize) {
    println!("\n{:<40} {:>10} {:>10}", "longest kernel step, by call", "all", "times");
    for step in steps {
        println!("{:<40} {:>10} {:>10}", step.name, step.instructions, step.times);
        for (function, instructions) in step.parts.iter().take(functions) {
            println!("    {instructions:>10} {function}");
        }
    }
}

/// What is wished for.
pub struct Request<'a> {
    /// Functions printed under each row.
    pub functions: usize,
    /// Write the kept counts.
    pub keep: bool,
    /// Where all of it goes, by component and function.
    pub json: Option<&'a Path>,
}

/// `./pelago bench --counts` and `--keep-counts`.
pub fn command(testbed: &Testbed, request: &Request, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let plugin = Plugin::prepare()?;
    let (counts, report) = measure(&plugin, testbed, testbed.system())?;
    println!(
        "{:<40} {:>10} {:>10} {:>10}  user, by component",
        "instructions per operation, 1 core", "all", "kernel", "user"
    );
    report.rows.iter().filter(|row| wanted(&row.name)).for_each(|row| print(row, request.functions));
    print_steps(&report.steps, request.functions);
    if let Some(path) = request.json {
        files::write(path, &serde_json::to_vec_pretty(&report)?)?;
    }
    if request.keep {
        let mut book = KeptCounts::read()?;
        book.keep(Kept::new(&counts, build::compiler()?));
        book.write()?;
        println!("kept in {}", path().display());
    }
    Ok(())
}

/// The largest difference of any row between two runs, in per cent, and that row's name.
pub fn spread(one: &[Count], other: &[Count]) -> Result<(f64, String)> {
    let names = |counts: &[Count]| counts.iter().map(|count| count.name.clone()).collect::<Vec<_>>();
    ensure!(names(one) == names(other), "two runs have different rows");
    let differences = one.iter().zip(other).map(|(one, other)| {
        let difference = (one.instructions - other.instructions).abs() / one.instructions.max(1.0) * 100.0;
        (difference, one.name.clone())
    });
    differences.max_by(|one, other| one.0.total_cmp(&other.0)).context("no rows")
}

#[cfg(test)]
mod tests {
    use super::*;
    use coherence::Sample;

    #[test]
    fn a_row_is_split_by_component() {
        let components =
            [("kernel", 300), ("bench", 100), ("echo-near", 200)].map(|(name, count)| (name.into(), count));
        let median = Sample { operations: 10, instructions: 600, components: components.into() };
        let count = Count::of(&Row { name: "call".into(), median, ..Row::default() });
        assert_eq!((count.instructions, count.kernel), (60.0, 30.0));
        assert_eq!(count.components, [("echo-near".into(), 20.0), ("bench".into(), 10.0)]);
    }
}
