//! Rows that our own component `bench` (`apps/bench`) measures in one boot and prints on the log:
//! `bench: NAME VALUE ns`.

use super::catalogue::{Entry, Source};
use super::results::{Column, Results, Unit};
use super::systems::{Boot, Side, Systems};
use crate::bench::counts;
use crate::bench::plugin::Plugin;
use crate::image::machine_type::MachineType;
use anyhow::{Result, bail};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Measures what was chosen and adds it: times, or with a plugin instructions.
pub fn turn(
    systems: &Systems,
    chosen: &[&Entry],
    cpus: u32,
    plugin: Option<&Plugin>,
    say: &dyn Fn(&str),
    results: &mut Results,
) {
    let rows = chosen.iter().filter_map(|entry| match entry.source {
        Source::Inside { row, .. } => Some((entry, row)),
        _ => None,
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return;
    }
    say("inside");
    let (unit, measured) = match plugin {
        Some(plugin) => (Unit::Instructions, count(systems, plugin)),
        None => (Unit::Ns, measure(systems, cpus)),
    };
    let measured = measured.map_err(|error| format!("{error:#}"));
    for (entry, row) in rows {
        let column = match &measured {
            Err(reason) => Column { failed: Some(reason.clone()), ..Column::default() },
            Ok(all) => all.iter().find(|(name, _)| name == row).map_or_else(
                || Column { absent: Some(format!("not measured on {cpus} cores")), ..Column::default() },
                |(_, column)| column.clone(),
            ),
        };
        results.add(entry.name, unit, cpus, Side::Pelago, column);
    }
}

fn count(systems: &Systems, plugin: &Plugin) -> Result<Vec<(String, Column)>> {
    let bench = systems.inside()?;
    let (counts, _) = counts::measure(plugin, bench, bench.system())?;
    Ok(counts.iter().map(|count| (count.name.clone(), Column::from(count))).collect())
}

fn measure(systems: &Systems, cpus: u32) -> Result<Vec<(String, Column)>> {
    let mut guest = systems.boot_inside(&Boot::bare(MachineType::Q35, cpus))?;
    if let Err(error) = guest.expect(counts::DONE, LIMIT) {
        eprint!("{}", guest.tail());
        bail!("{error:#}; the end of the console is above");
    }
    for line in guest.transcript.iter().filter(|line| line.contains("bench: ") && line.contains(" failed ")) {
        eprintln!("pelago: {line}");
    }
    let rows = guest.transcript.iter().filter_map(|line| row(line));
    Ok(rows.map(|(name, ns)| (name, Column { samples: vec![ns], ..Column::default() })).collect())
}

/// From `bench: NAME VALUE ns`.
fn row(line: &str) -> Option<(String, f64)> {
    let words: Vec<&str> = line.split_once("bench: ")?.1.split_whitespace().collect();
    let [name, value, "ns"] = words[..] else { return None };
    Some((name.to_owned(), value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_from_the_log() {
        assert_eq!(row("bench: null-call 120 ns"), Some(("null-call".into(), 120.0)));
        for other in ["bench: done", "bench: portal-call failed NoRights", "bench: a 1 ns extra", "null-call 1 ns"] {
            assert_eq!(row(other), None);
        }
    }
}
