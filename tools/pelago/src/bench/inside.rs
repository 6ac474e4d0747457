//! Rows that our own component `bench` (`apps/bench`) measures in one boot and prints on the log: `bench: NAME VALUE UNIT`.
//!
//! Its row `known-loop`, whose length is known, shows that ticks are instructions where that is claimed, and is checked.

use super::catalogue::{Entry, Source};
use super::results::{Column, Results, Unit};
use super::systems::{Boot, Side, Systems};
use crate::emulator::MachineType;
use anyhow::{Context, Result, bail, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Where instructions are counted the emulator is slower.
const LIMIT_COUNTING: Duration = Duration::from_secs(240);
/// Instructions counted beside the known loop's own: reading the counter, the markers.
const KNOWN_LOOP_SLACK: f64 = 200.0;

/// Measures what was chosen and adds it.
pub fn turn(systems: &Systems, chosen: &[&Entry], cpus: u32, counts: bool, say: &dyn Fn(&str), results: &mut Results) {
    let rows = chosen.iter().filter_map(|entry| match entry.source {
        Source::Inside { row, .. } => Some((entry, row)),
        _ => None,
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return;
    }
    say("inside");
    let measured = measure(systems, cpus, counts).map_err(|error| format!("{error:#}"));
    for (entry, row) in rows {
        let (unit, word) = if counts { (Unit::Instructions, "ticks") } else { (Unit::Ns, "ns") };
        let column = match &measured {
            Err(reason) => Column { failed: Some(reason.clone()), ..Column::default() },
            Ok(all) => match all.iter().find(|(name, _, unit)| name == row && unit == word) {
                Some((_, value, _)) => Column { samples: vec![*value], ..Column::default() },
                None => Column { absent: Some(format!("not measured on {cpus} cores in {word}")), ..Column::default() },
            },
        };
        results.add(entry.name, unit, cpus, Side::Pelago, column);
    }
}

fn measure(systems: &Systems, cpus: u32, counts: bool) -> Result<Vec<(String, f64, String)>> {
    let mut guest = systems.boot_inside(&Boot { counts, ..Boot::bare(MachineType::Q35, cpus) })?;
    if let Err(error) = guest.expect("bench: done", if counts { LIMIT_COUNTING } else { LIMIT }) {
        eprint!("{}", guest.tail());
        bail!("{error:#}; the end of the console is above");
    }
    for line in guest.transcript.iter().filter(|line| line.contains("bench: ") && line.contains(" failed ")) {
        eprintln!("pelago: {line}");
    }
    let rows: Vec<_> = guest.transcript.iter().filter_map(|line| row(line)).collect();
    if counts {
        let find = |name: &str, unit: &str| {
            rows.iter().find(|row| row.0 == name && row.2 == unit).map(|row| row.1).context("known-loop is missing")
        };
        let (known, ticks) = (find("known-loop-length", "instructions")?, find("known-loop", "ticks")?);
        ensure!(
            (known..known + KNOWN_LOOP_SLACK).contains(&ticks),
            "this emulator's ticks are no instructions: {ticks} for a loop of {known}"
        );
    }
    Ok(rows)
}

/// From `bench: NAME VALUE UNIT`.
fn row(line: &str) -> Option<(String, f64, String)> {
    let mut words = line.split_once("bench: ")?.1.split_whitespace();
    let row = (words.next()?.to_owned(), words.next()?.parse().ok()?, words.next()?.to_owned());
    words.next().is_none().then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_from_the_log() {
        assert_eq!(row("bench: null-call 120 ns"), Some(("null-call".into(), 120.0, "ns".into())));
        for other in ["bench: done", "bench: portal-call failed NoRights", "bench: a 1 ns extra", "null-call 1 ns"] {
            assert_eq!(row(other), None);
        }
    }
}
