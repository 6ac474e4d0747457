//! Runs rows of the measuring program in a guest and reads what it prints
//! (`tools/measure/src/lib.rs` has the lines).
//!
//! A guest that dies or falls silent takes one row with it: the one under way. The rest is run in a
//! fresh guest.

use super::catalogue::{Entry, Made, Source};
use super::layouts;
use super::outside::cpu_us;
use super::results::{Column, Results, Unit};
use super::systems::{Boot, Side, Systems};
use crate::bench::counts::{self, Count};
use crate::bench::peer::MEASURE;
use crate::bench::plugin::{Mode, Plugin};
use crate::image::machine_type::MachineType;
use crate::machine::guest::{Event, Guest};
use anyhow::Result;
use coherence::Report;
use measure_core::sample::SAMPLES;
use std::collections::HashMap;
use std::time::Duration;

/// A guest that prints nothing for so long has stopped: the program ends a row after 120 s of the
/// guest's time.
const SILENCE: Duration = Duration::from_secs(150);
/// The same where instructions are counted: the guest is then slower.
const SILENCE_COUNTING: Duration = Duration::from_secs(240);

/// What one row gave, per operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    ns: Vec<f64>,
    /// All that was measured.
    operations: f64,
    /// The emulator's processor time from the row's begin to its end.
    processor_us: f64,
    /// Of pages, per operation.
    faults: Vec<f64>,
    count: Option<Count>,
    absent: Option<String>,
    failed: Option<String>,
}

/// What the program has said.
#[derive(Default)]
pub struct Seen {
    rows: HashMap<String, Given>,
    /// `bound` or `free`.
    placement: Option<String>,
}

impl Seen {
    /// What a row gave.
    pub fn given(&self, row: &str) -> Option<&Given> {
        self.rows.get(row)
    }
}

impl Given {
    /// Times of an operation.
    pub fn times(&self, made: Made) -> Column {
        let samples = self.ns.iter().map(|&ns| made.figure(ns)).collect();
        Column { samples, absent: self.absent.clone(), failed: self.failed.clone(), ..Column::default() }
    }

    /// Microseconds of this machine's processors for each operation, with what comes before the
    /// first and one stretch that warms up.
    pub fn processor(&self) -> Column {
        let is_known = self.operations > 0.0 && self.processor_us > 0.0;
        let operations = self.operations * (SAMPLES as f64 + 1.0) / SAMPLES as f64;
        let samples = if is_known { vec![self.processor_us / operations] } else { Vec::new() };
        Column { samples, absent: self.absent.clone(), failed: self.failed.clone(), ..Column::default() }
    }

    /// Faults of all workers for each page. Where each touches memory of its own an operation is a
    /// page, else a page is touched by all.
    fn faults(&self, touches_of_a_page: f64) -> Column {
        let samples = self.faults.iter().map(|faults| faults * touches_of_a_page).collect();
        Column { samples, absent: self.absent.clone(), failed: self.failed.clone(), ..Column::default() }
    }

    fn counts(&self) -> Column {
        // A stretch that ended with a refused call has been counted too, but is no figure.
        let sound = self.absent.is_none() && self.failed.is_none();
        let column = self.count.as_ref().filter(|_| sound).map(Column::from).unwrap_or_default();
        Column { absent: self.absent.clone(), failed: self.failed.clone(), ..column }
    }
}

/// Runs all chosen rows of one system once and adds their figures: times, or with a plugin
/// instructions.
pub fn turn(
    systems: &Systems,
    chosen: &[&Entry],
    side: Side,
    cpus: u32,
    plugin: Option<&Plugin>,
    say: &dyn Fn(&str),
    results: &mut Results,
) {
    let mut names: Vec<&str> = Vec::new();
    for entry in chosen.iter().filter(|entry| entry.counts || plugin.is_none()) {
        let Some(row) = row(entry, side) else { continue };
        if !names.contains(&row) {
            names.push(row);
        }
    }
    if names.is_empty() {
        return;
    }
    if plugin.is_some() && !names.contains(&KNOWN_LOOP) {
        names.insert(0, KNOWN_LOOP);
    }
    let Seen { rows: mut given, placement } =
        all(&names, |left, seen| once(systems, side, cpus, plugin, left, say, seen));
    if let Some(placement) = placement {
        results.setting.placement.insert(side.name().into(), placement);
    }
    if plugin.is_some() {
        distrust_unless_known(&mut given);
    }
    for entry in chosen {
        let Some(given) = row(entry, side).and_then(|row| given.get(row)) else { continue };
        if plugin.is_some() {
            results.add(entry.name, Unit::Instructions, cpus, side, given.counts());
            continue;
        }
        let made = if let Source::Program { made, .. } = entry.source { made } else { Made::AsItIs };
        results.add(entry.name, entry.unit, cpus, side, given.times(made));
        if entry.by_name() {
            let touches = layouts::touches_of_a_page(entry.name, cpus);
            results.add(entry.name, Unit::Faults, cpus, side, given.faults(touches));
        }
    }
}

/// The program's row that an entry has on a side.
fn row(entry: &Entry, side: Side) -> Option<&'static str> {
    entry.beside().filter(|_| side == Side::Linux || matches!(entry.source, Source::Program { .. }))
}

/// Its operations are instructions, by what it is made of.
const KNOWN_LOOP: &str = "known-loop";
/// The call around the loop, as part of the loop's instructions.
const KNOWN_LOOP_MARGIN: f64 = 0.02;

/// Where the row whose length is known shows something else, no count is believed.
fn distrust_unless_known(given: &mut HashMap<String, Given>) {
    // A row that failed of itself says why.
    let Some(known) = given.get(KNOWN_LOOP).filter(|known| known.failed.is_none()) else { return };
    let seen = known.count.as_ref().map_or(0.0, |count| count.instructions);
    if !(1.0..1.0 + KNOWN_LOOP_MARGIN).contains(&seen) {
        for row in given.values_mut() {
            row.count = None;
            row.failed.get_or_insert_with(|| {
                format!(
                    "this emulator's plugin interface does not count instructions: {seen} for one of the known loop"
                )
            });
        }
    }
}

/// Runs `once` as often as guests die.
pub fn all(names: &[&str], mut once: impl FnMut(&[&str], &mut Seen) -> Result<()>) -> Seen {
    let mut seen = Seen::default();
    let mut left = names.to_vec();
    while !left.is_empty() {
        let Err(error) = once(&left, &mut seen) else { break };
        let given = &mut seen.rows;
        let reason = format!("{error:#}");
        // Rows end in the order they were asked for; the first that has not ended is the one that
        // was under way, if any was.
        match left
            .iter()
            .position(|name| given.get(*name).is_some_and(|given| given.failed.as_deref() == Some(UNDER_WAY)))
        {
            Some(place) => {
                let culprit = left[place];
                given.entry(culprit.to_owned()).or_default().failed = Some(reason);
                left.retain(|name| *name != culprit && !ended(given, name));
            }
            // It never came to a row, so another boot would not either.
            None => {
                for name in left.drain(..) {
                    given
                        .entry(name.to_owned())
                        .or_insert_with(|| Given { failed: Some(reason.clone()), ..Given::default() });
                }
            }
        }
    }
    seen
}

/// Stands in `failed` between a row's begin and its end.
const UNDER_WAY: &str = "under way";

fn ended(given: &HashMap<String, Given>, name: &str) -> bool {
    given.get(name).is_some_and(|given| given.failed.as_deref() != Some(UNDER_WAY))
}

fn once(
    systems: &Systems,
    side: Side,
    cpus: u32,
    plugin: Option<&Plugin>,
    names: &[&str],
    say: &dyn Fn(&str),
    seen: &mut Seen,
) -> Result<()> {
    let workers = cpus.to_string();
    let words: Vec<&str> = [MEASURE, "run", &workers].into_iter().chain(names.iter().copied()).collect();
    let instruments =
        plugin.map(|plugin| plugin.instruments(Mode::Count, counts::TURN, &systems.names(side, cpus)?)).transpose()?;
    let mut guest = systems.boot(side, &Boot { words: &words, instruments, ..Boot::bare(MachineType::Q35, cpus) })?;
    match plugin {
        Some(plugin) => {
            hear_counts(&mut guest, &Counting { plugin, functions: systems.functions, of: Count::of }, say, seen)
        }
        None => hear_times(&mut guest, say, seen),
    }
}

/// How rows of a guest are counted.
pub struct Counting<'a> {
    pub plugin: &'a Plugin,
    /// So many functions are printed under each row.
    pub functions: usize,
    /// Makes a count of what the plugin reports.
    pub of: fn(&coherence::Row) -> Count,
}

/// Instructions of rows of the measuring program in guests that `boot` boots for rows of those
/// names, the known loop among them.
pub fn count<'n>(
    names: &[&'n str],
    counting: &Counting,
    boot: impl Fn(&[&str]) -> Result<Guest>,
    say: &dyn Fn(&str),
) -> Vec<(&'n str, Column)> {
    // The last, so that what the other rows do before their first mark is not slowed down.
    let all_names = [names, &[KNOWN_LOOP]].concat();
    let seen = all(&all_names, |left, seen| hear_counts(&mut boot(left)?, counting, say, seen));
    let mut given = seen.rows;
    distrust_unless_known(&mut given);
    names.iter().filter_map(|&name| Some((name, given.get(name)?.counts()))).collect()
}

/// Hears a guest, and then takes what the plugin has counted in it.
fn hear_counts(guest: &mut Guest, counting: &Counting, say: &dyn Fn(&str), seen: &mut Seen) -> Result<()> {
    let result = hear(guest, SILENCE_COUNTING, say, seen);
    // The program has the report written after each row, so a guest that died has left that of the
    // rows before.
    match counting.plugin.report() {
        Ok(report) => {
            take_counts(&report, counting.of, &mut seen.rows);
            let rows = report.rows.iter().filter(|_| counting.functions > 0);
            rows.for_each(|row| counts::print(row, counting.functions));
        }
        Err(error) => return result.and(Err(error)),
    }
    result
}

/// Hears a guest whose rows are timed.
pub fn hear_times(guest: &mut Guest, say: &dyn Fn(&str), seen: &mut Seen) -> Result<()> {
    hear(guest, SILENCE, say, seen)
}

/// Hears what the program says; prints the end of the console if that is not all.
fn hear(guest: &mut Guest, limit: Duration, say: &dyn Fn(&str), seen: &mut Seen) -> Result<()> {
    let result = read(guest, limit, say, seen);
    if result.is_err() {
        eprint!("{}", guest.tail());
    }
    result
}

/// Adds each row's count to what the row said.
fn take_counts(report: &Report, count: fn(&coherence::Row) -> Count, given: &mut HashMap<String, Given>) {
    for row in &report.rows {
        if let Some(given) = given.get_mut(&row.name) {
            given.count = Some(count(row));
        }
    }
}

fn read(guest: &mut Guest, limit: Duration, say: &dyn Fn(&str), seen: &mut Seen) -> Result<()> {
    loop {
        match guest.next(limit) {
            Ok(Some(Event::Line { whole, .. })) => {
                // Lines of the system may stand before ours on the same line of the console.
                let Some((_, text)) = whole.split_once("measure: ") else { continue };
                if text == "done" {
                    return Ok(());
                }
                take(text, say, seen);
                note_processor(guest.process_id(), text, seen)?;
            }
            Ok(Some(_)) => {}
            Ok(None) => anyhow::bail!("the guest ended during this row; the end of its console is above"),
            Err(_) => {
                anyhow::bail!(
                    "the guest said nothing for {} s during this row; the end of its console is above",
                    limit.as_secs()
                )
            }
        }
    }
}

/// At a row's begin and end, by its line.
fn note_processor(emulator: u32, text: &str, seen: &mut Seen) -> Result<()> {
    let Some((name, when @ ("begin" | "end"))) = text.split_once(' ') else { return Ok(()) };
    if let Some(given) = seen.rows.get_mut(name) {
        let now = cpu_us(emulator)?;
        given.processor_us = if when == "begin" { now } else { now - given.processor_us };
    }
    Ok(())
}

/// One line, without `measure: `.
fn take(text: &str, say: &dyn Fn(&str), seen: &mut Seen) {
    let Some((name, rest)) = text.split_once(' ') else { return };
    let Seen { rows: given, placement } = seen;
    if name == "placement" {
        *placement = Some(rest.to_owned());
        return;
    }
    if rest == "begin" {
        say(name);
        given.insert(name.to_owned(), Given { failed: Some(UNDER_WAY.into()), ..Given::default() });
        return;
    }
    let Some(row) = given.get_mut(name) else { return };
    if rest == "end" {
        row.failed = row.failed.take().filter(|failed| failed != UNDER_WAY);
        if row.failed.is_none() && row.absent.is_none() && row.ns.is_empty() {
            row.failed = Some("it printed no samples".into());
        }
    } else if let Some(what) = rest.strip_prefix("absent: ") {
        row.absent = Some(what.to_owned());
    } else if let Some(what) = rest.strip_prefix("failed: ") {
        row.failed = Some(what.to_owned());
    } else if let Some((ns, operations, faults)) = sample(rest)
        && operations > 0.0
    {
        row.operations += operations;
        row.ns.push(ns / operations);
        row.faults.push(faults / operations);
    }
}

/// `26112 ns 64 operations 0 faults`.
fn sample(text: &str) -> Option<(f64, f64, f64)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [ns, "ns", operations, "operations", faults, "faults"] = words[..] else { return None };
    Some((ns.parse().ok()?, operations.parse().ok()?, faults.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coherence::{Row, Sample};

    fn taken(lines: &[&str]) -> HashMap<String, Given> {
        let mut seen = Seen::default();
        lines.iter().for_each(|line| take(line, &|_| {}, &mut seen));
        seen.rows
    }

    #[test]
    fn samples_are_per_operation() {
        let given = taken(&["a begin", "a 100 ns 10 operations 0 faults", "a 120 ns 10 operations 5 faults", "a end"]);
        assert_eq!(given["a"].ns, [10.0, 12.0]);
        assert_eq!(given["a"].times(Made::Rate).samples[0], 1e8);
        assert_eq!(given["a"].faults(4.0).samples, [0.0, 2.0]);
        assert!(given["a"].processor().samples.is_empty());
        let busy = Given { processor_us: 64.0, operations: 30.0, ..Given::default() };
        assert_eq!(busy.processor().samples, [2.0]);
        assert_eq!(given["a"].failed, None);
    }

    #[test]
    fn why_there_is_no_figure_is_kept() {
        let given = taken(&["a begin", "a absent: clone: ENOSYS", "a end", "b begin", "b failed: died", "b end"]);
        assert_eq!(given["a"].absent.as_deref(), Some("clone: ENOSYS"));
        assert_eq!((given["a"].failed.as_deref(), given["b"].failed.as_deref()), (None, Some("died")));
        assert!(taken(&["c begin", "c end"])["c"].failed.is_some());
    }

    #[test]
    fn a_guest_that_dies_costs_one_row() {
        let mut boots = Vec::new();
        let given = all(&["a", "b", "c"], |left, seen| {
            boots.push(left.join(" "));
            for name in left {
                take(&format!("{name} begin"), &|_| {}, seen);
                anyhow::ensure!(*name != "b", "the guest ended");
                take(&format!("{name} 5 ns 1 operations 0 faults"), &|_| {}, seen);
                take(&format!("{name} end"), &|_| {}, seen);
            }
            Ok(())
        })
        .rows;
        assert_eq!(boots, ["a b c", "c"]);
        assert_eq!(given["b"].failed.as_deref(), Some("the guest ended"));
        assert_eq!((&given["a"].ns, &given["c"].ns), (&vec![5.0], &vec![5.0]));
    }

    #[test]
    fn a_guest_that_never_starts_is_not_started_again() {
        let mut boots = 0;
        let given = all(&["a", "b"], |_, _| {
            boots += 1;
            anyhow::bail!("no kernel")
        })
        .rows;
        assert_eq!(boots, 1);
        assert!(["a", "b"].iter().all(|name| given[*name].failed.as_deref() == Some("no kernel")));
    }

    #[test]
    fn counts_are_believed_only_with_the_known_loop() {
        let counted = |instructions| {
            let mut given = taken(&["known-loop begin", "known-loop 9 ns 20000 operations 0 faults", "known-loop end"]);
            let median = Sample { operations: 20_000, instructions, ..Sample::default() };
            let row = Row { name: "known-loop".into(), median, ..Row::default() };
            take_counts(&Report { rows: vec![row], ..Report::default() }, Count::of, &mut given);
            distrust_unless_known(&mut given);
            given["known-loop"].counts()
        };
        assert_eq!((counted(20_015).samples, counted(20_015).failed), (vec![20_015.0 / 20_000.0], None));
        let broken = counted(54_000);
        assert!(broken.failed.unwrap().contains("does not count instructions"));
        assert_eq!(broken.samples, [0.0; 0]);
        let refused =
            Given { count: Some(Count::of(&Row::default())), absent: Some("clone".into()), ..Given::default() };
        assert!(refused.counts().samples.is_empty() && refused.counts().parts.is_empty());
    }

    #[test]
    fn a_row_that_never_ended_is_known() {
        let given = taken(&["a begin", "a end", "b begin", "b 1 ns 1 operations 0 faults"]);
        assert!(ended(&given, "a") && !ended(&given, "b") && !ended(&given, "c"));
    }
}
