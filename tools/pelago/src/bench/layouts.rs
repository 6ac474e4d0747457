//! Corey's memclone and mempass as our program `layouts` (`apps/bench`) measures them, a dispatcher
//! on each core; it prints a line for each row on the log.

use super::catalogue::{Entry, Source};
use super::results::{self, Column, Results, Unit};
use super::systems::{Boot, Side, Systems};
use super::table::number;
use crate::bench::counts;
use crate::bench::plugin::{self, Plugin};
use crate::host::place;
use crate::image::description;
use crate::image::machine_type::MachineType;
use crate::machine::guest::Guest;
use anyhow::{Result, bail, ensure};
use std::time::Duration;
use system::System;

/// The system that measures them.
pub const SYSTEM: &str = "layouts.toml";
/// Words of the kernel's command line for the program: pages of each core, and cores that take
/// part.
pub const PAGES_WORD: &str = "layouts.pages=";
pub const CORES_WORD: &str = "layouts.cores=";
/// Layouts, with two rows each.
pub const ROWS: usize = 6;
/// The first dispatcher, who tells.
const TELLS: &str = "layouts-0: ";

/// Of a core in memclone, and of what all pass on: the paper's 100 MiB.
const BUFFER_BYTES: u64 = 100 << 20;
/// Cores whose memory fits into one pool, which has 992 MiB at most.
const SINGLE_CORES_MAX: u64 = 9;
/// What the system takes of a core's memory beside.
const BASE_BYTES: u64 = 64 << 20;
/// Pages where instructions are counted: they are the same for each.
const COUNTED_PAGES: u64 = 2048;
const LIMIT: Duration = Duration::from_secs(240);

/// One row, as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    /// Of each touch of a page by a core.
    pub ns: u64,
    /// Soft faults of all cores.
    pub faults: u64,
    pub cores: u64,
    /// Of each core in memclone, of all in mempass.
    pub pages: u64,
    /// How often somebody waited for the lock of the common range.
    pub waits: u64,
}

/// What the program says in all.
#[derive(Default)]
pub struct Told {
    pub rows: Vec<Row>,
    /// Rows that cannot be on this machine, and why.
    absent: Vec<(String, String)>,
}

/// Waits for the program's end.
pub fn told(guest: &mut Guest, limit: Duration) -> Result<Told> {
    guest.heard(&done(), limit)?;
    let mut told = Told::default();
    for (_, text) in guest.transcript.iter().filter_map(|line| line.split_once(TELLS)) {
        if let Some(refusal) = text.strip_prefix("failed: ") {
            bail!("memclone and mempass: {refusal}");
        }
        if let Some((name, why)) = text.split_once(" absent: ") {
            told.absent.push((name.to_owned(), why.to_owned()));
        }
        told.rows.extend(row(text));
    }
    let count = told.rows.len() + told.absent.len();
    ensure!(count == ROWS, "the guest told {count} rows of memclone and mempass, not {ROWS}");
    Ok(told)
}

fn done() -> String {
    format!("{TELLS}done")
}

/// Memory of a guest that has the rows, on the largest of these machines; 0 if none of them is
/// chosen.
///
/// Core 0 is given two parts of the memory and each other core one. In one range of all core 0 has
/// everybody's memory, and else its own and what all pass on.
pub fn memory_bytes(chosen: &[&Entry], cpus: &[u32]) -> u64 {
    if !chosen.iter().any(|entry| entry.by_name()) {
        return 0;
    }
    let of = |cores: u64| {
        let single = if cores <= SINGLE_CORES_MAX { cores * BUFFER_BYTES } else { 0 };
        let first = single.max(2 * BUFFER_BYTES) + single / 64 + BASE_BYTES;
        (cores + 1) * (first / 2).max(BUFFER_BYTES + BASE_BYTES)
    };
    cpus.iter().map(|&cores| of(cores.into())).max().unwrap_or(0).next_multiple_of(1 << 20)
}

/// How often a page is touched.
pub fn touches_of_a_page(name: &str, cpus: u32) -> f64 {
    if name.starts_with("mempass/") { cpus.into() } else { 1.0 }
}

/// Measures what was chosen and adds it: times and faults, or with a plugin instructions.
pub fn turn(
    systems: &Systems,
    chosen: &[&Entry],
    cpus: u32,
    plugin: Option<&Plugin>,
    say: &dyn Fn(&str),
    results: &mut Results,
) {
    let rows: Vec<_> = chosen
        .iter()
        .filter_map(|entry| match entry.source {
            Source::Layouts { row, .. } => Some((entry.name, row)),
            _ => None,
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    say("memclone and mempass");
    let measured = match plugin {
        Some(plugin) => count(systems, plugin),
        None => measure(systems, cpus),
    };
    let unit = if plugin.is_some() { Unit::Instructions } else { Unit::Ns };
    let measured = measured.map_err(|error| format!("{error:#}"));
    for (name, row) in rows {
        let columns = match &measured {
            Err(reason) => vec![(unit, Column { failed: Some(reason.clone()), ..Column::default() })],
            Ok(all) => {
                all.iter().filter(|(of, ..)| of == row).map(|(_, unit, column)| (*unit, column.clone())).collect()
            }
        };
        columns.into_iter().for_each(|(unit, column)| results.add(name, unit, cpus, Side::Pelago, column));
    }
}

type Columns = Vec<(String, Unit, Column)>;

fn system() -> Result<System> {
    description::load(&place::root().join("system").join(SYSTEM))
}

fn measure(systems: &Systems, cpus: u32) -> Result<Columns> {
    let mut guest = systems.boot_other(&system()?, &Boot::bare(MachineType::Q35, cpus), &[])?;
    let told = told(&mut guest, LIMIT).inspect_err(|_| eprint!("{}", guest.tail()))?;
    let figure = |figure: f64| Column { samples: vec![figure], ..Column::default() };
    let mut columns: Columns = Vec::new();
    for Row { name, ns, faults, cores, pages, .. } in told.rows {
        let touches = touches_of_a_page(&name, cores as u32);
        columns.push((name.clone(), Unit::Ns, figure(ns as f64)));
        columns.push((name, Unit::Faults, figure(faults as f64 * touches / (cores * pages) as f64)));
    }
    for (name, why) in told.absent {
        columns.push((name, Unit::Ns, Column { absent: Some(why), ..Column::default() }));
    }
    Ok(columns)
}

fn count(systems: &Systems, plugin: &Plugin) -> Result<Columns> {
    let system = system()?;
    let start = |instruments| {
        let boot = Boot { instruments: Some(instruments), ..Boot::bare(MachineType::Q35, 1) };
        systems.boot_other(&system, &boot, &[format!("{PAGES_WORD}{COUNTED_PAGES}")])
    };
    let names = plugin::names(systems.images(), &system, 1)?;
    let (counts, _) = counts::measure_guest(plugin, &names, start, &done())?;
    Ok(counts.iter().map(|count| (count.name.clone(), Unit::Instructions, Column::from(count))).collect())
}

/// A line for each number of cores that has both rows of a layout: time of a touch and faults of a
/// page, of private and of shared memory.
pub fn summaries(results: &Results) -> Vec<String> {
    let mut cpus: Vec<u32> = results.rows.iter().filter(|row| row.unit == Unit::Faults).map(|row| row.cpus).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus.into_iter().filter_map(|cpus| summary(results, cpus)).collect()
}

fn summary(results: &Results, cpus: u32) -> Option<String> {
    let figures = |name: &str, of: fn(&results::Row) -> &Column| {
        let median = |unit: Unit| {
            let row = results.rows.iter().find(|row| row.name == name && row.cpus == cpus && row.unit == unit)?;
            of(row).summary().map(|(median, ..)| median)
        };
        Some(format!("{} ns, {:.2}", number(median(Unit::Ns)?), median(Unit::Faults)?))
    };
    let both = |layout: &str, of| {
        Some((figures(&format!("memclone/{layout}"), of)?, figures(&format!("mempass/{layout}"), of)?))
    };
    let told: Vec<_> = [
        ("one range of all", both("single", |row| &row.ours)),
        ("a range each", both("separate", |row| &row.ours)),
        ("mixed", both("mixed", |row| &row.ours)),
        ("Linux's threads", both("single", |row| &row.linux)),
        ("Linux's processes", both("separate", |row| &row.linux)),
    ]
    .into_iter()
    .filter_map(|(layout, both)| both.map(|(private, shared)| format!("{layout} {private} | {shared}")))
    .collect();
    let cores = if cpus == 1 { "core" } else { "cores" };
    (!told.is_empty()).then(|| {
        format!("{cpus} {cores}, private memory | shared memory, each touch and faults a page: {}", told.join("; "))
    })
}

/// From `NAME: 4953 ns a touch, 102400 faults of 4 cores at 25600 pages each, 12 waits`.
fn row(text: &str) -> Option<Row> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [
        name,
        ns,
        "ns",
        "a",
        "touch,",
        faults,
        "faults",
        "of",
        cores,
        "cores",
        "at",
        pages,
        "pages",
        "each,",
        waits,
        "waits",
    ] = words[..]
    else {
        return None;
    };
    let number = |word: &str| word.parse().ok();
    Some(Row {
        name: name.strip_suffix(':')?.to_owned(),
        ns: number(ns)?,
        faults: number(faults)?,
        cores: number(cores)?,
        pages: number(pages)?,
        waits: number(waits)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::ENTRIES;
    use super::super::results::tests::{results, row};
    use super::*;

    #[test]
    fn guests_are_as_large_as_their_largest_row() {
        let named = |wish: bool| ENTRIES.iter().filter(|entry| entry.by_name() == wish).collect::<Vec<_>>();
        assert_eq!(memory_bytes(&named(false), &[1, 4]), 0);
        // Core 0 of eight has two of nine parts: the memory of all.
        let eight = memory_bytes(&named(true), &[1, 8]);
        assert!(eight / 9 * 2 > 8 * BUFFER_BYTES * 65 / 64, "{eight}");
        // With more cores than one pool is large enough for, each has its own.
        let sixteen = memory_bytes(&named(true), &[16]);
        assert!(sixteen / 17 > BUFFER_BYTES && sixteen < eight, "{sixteen}");
    }

    #[test]
    fn one_line_has_private_and_shared_memory_of_each_layout() {
        let mut rows = Vec::new();
        for name in ["memclone/single", "mempass/single", "memclone/mixed", "mempass/mixed"] {
            rows.push(row(name, 4, &[500.0], &[600.0]));
            rows.push(results::Row { unit: Unit::Faults, ..row(name, 4, &[1.0], &[1.0]) });
        }
        let lines = summaries(&results(rows));
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.starts_with("4 cores") && line.contains("mixed 500 ns, 1.00 | 500 ns, 1.00"), "{line}");
        assert!(line.contains("Linux's threads 600 ns") && !line.contains("a range each"), "{line}");
    }

    #[test]
    fn rows_are_read_from_the_log() {
        let text = "mempass/mixed: 521 ns a touch, 25600 faults of 4 cores at 25600 pages each, 12 waits";
        let expected =
            Row { name: "mempass/mixed".into(), ns: 521, faults: 25_600, cores: 4, pages: 25_600, waits: 12 };
        assert_eq!(super::row(text), Some(expected));
        assert_eq!(super::row("turn 0: core 0 of node 0"), None);
    }
}
