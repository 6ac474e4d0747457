//! What was measured, with the setting that it was measured in: kept as JSON, read back for
//! comparison and charts.

use super::catalogue::{Entry, Trust};
use super::systems::{Side, Systems};
use crate::bench::counts::{Count, KERNEL};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Changes with the meaning of a field.
const FORMAT: u32 = 1;

/// Results as they are kept, of one row without figures.
pub const SMALLEST: &str = r#"{"format": 1, "setting": {"rounds": 1, "accelerator": "Tcg", "memory_mib": 1024, "linux_kernel": "",
    "linux_command_line": "", "placement": {}, "host_cores": 2, "load_before": "", "load_after": ""}, "rows": [{"name": "getpid",
    "unit": "ns", "cpus": 1, "trust": "time", "paper": "", "ours": {"samples": []}, "linux": {"samples": []}}]}"#;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    #[serde(rename = "ns")]
    Ns,
    #[serde(rename = "us")]
    Us,
    #[serde(rename = "ms")]
    Ms,
    #[serde(rename = "instructions")]
    Instructions,
    #[serde(rename = "1/s")]
    PerSecond,
    #[serde(rename = "Mbit/s")]
    MegabitsPerSecond,
    #[serde(rename = "%")]
    Percent,
    #[serde(rename = "MiB")]
    MiB,
    #[serde(rename = "faults/page")]
    Faults,
}

impl Unit {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::Us => "us",
            Unit::Ms => "ms",
            Unit::Instructions => "instructions",
            Unit::PerSecond => "1/s",
            Unit::MegabitsPerSecond => "Mbit/s",
            Unit::Percent => "%",
            Unit::MiB => "MiB",
            Unit::Faults => "faults/page",
        }
    }
}

/// One system's part of a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Column {
    pub samples: Vec<f64>,
    /// What the system lacks.
    pub absent: Option<String>,
    /// What went wrong, at least once.
    pub failed: Option<String>,
    /// Of a count: its parts by component, `kernel` among them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, f64>,
}

impl From<&Count> for Column {
    fn from(count: &Count) -> Column {
        let mut parts: BTreeMap<_, _> = count.components.iter().cloned().collect();
        parts.insert(KERNEL.to_owned(), count.kernel);
        Column { samples: vec![count.instructions], parts, ..Column::default() }
    }
}

impl From<Result<Vec<f64>>> for Column {
    fn from(result: Result<Vec<f64>>) -> Column {
        match result {
            Ok(samples) => Column { samples, ..Column::default() },
            Err(error) => Column { failed: Some(format!("{error:#}")), ..Column::default() },
        }
    }
}

impl Column {
    /// Median and the quartiles around it.
    pub fn summary(&self) -> Option<(f64, f64, f64)> {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |quarter: usize| sorted.get((sorted.len().checked_sub(1)? * quarter + 2) / 4).copied();
        Some((at(2)?, at(1)?, at(3)?))
    }

    fn merge(&mut self, other: Column) {
        self.samples.extend(other.samples);
        self.absent = other.absent.or(self.absent.take());
        self.failed = other.failed.or(self.failed.take());
        self.parts.extend(other.parts);
    }
}

/// One row at one number of cores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    pub unit: Unit,
    pub cpus: u32,
    pub trust: Trust,
    /// The paper's figure that it belongs to; empty: none.
    pub paper: String,
    pub ours: Column,
    pub linux: Column,
}

impl Row {
    /// Without figures yet.
    pub fn new(entry: &Entry, unit: Unit, cpus: u32) -> Row {
        let (ours, linux) = (Column::default(), Column::default());
        let trust = entry.trust_at(unit, cpus);
        Row { name: entry.name.into(), unit, cpus, trust, paper: entry.paper.into(), ours, linux }
    }

    /// Ours divided by Linux's.
    pub fn ratio(&self) -> Option<f64> {
        let ((ours, ..), (linux, ..)) = (self.ours.summary()?, self.linux.summary()?);
        (linux != 0.0).then(|| ours / linux)
    }
}

/// What both systems were given, and what else the host did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setting {
    pub rounds: u32,
    pub accelerator: String,
    pub memory_mib: u64,
    pub linux_kernel: String,
    pub linux_command_line: String,
    /// Per system: `bound` if the measuring program's workers are bound to their cores, else
    /// `free`. Its allocator is the same in both.
    pub placement: BTreeMap<String, String>,
    pub host_cores: usize,
    pub load_before: String,
    pub load_after: String,
}

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    format: u32,
    pub setting: Setting,
    pub rows: Vec<Row>,
}

impl Results {
    /// Nothing yet.
    pub fn new(systems: &Systems, rounds: u32) -> Results {
        let setting = Setting {
            rounds,
            accelerator: format!("{:?}", systems.accelerator()),
            memory_mib: systems.memory_bytes() >> 20,
            linux_kernel: systems.linux.as_ref().map_or_else(|_| "none".into(), |linux| linux.version().to_owned()),
            linux_command_line: crate::bench::peer::Linux::command_line(systems.accelerator()).join(" "),
            placement: BTreeMap::new(),
            host_cores: host_cores(),
            load_before: load(),
            load_after: String::new(),
        };
        Results { format: FORMAT, setting, rows: Vec::new() }
    }

    /// Adds to a row; figures of rows that were not asked for are dropped.
    pub fn add(&mut self, name: &str, unit: Unit, cpus: u32, side: Side, column: Column) {
        let row = self.rows.iter_mut().find(|row| row.name == name && row.unit == unit && row.cpus == cpus);
        if let Some(row) = row {
            match side {
                Side::Pelago => row.ours.merge(column),
                Side::Linux => row.linux.merge(column),
            }
        }
    }

    /// Nothing could be counted.
    pub fn fail_counts(&mut self, why: &str) {
        for row in self.rows.iter_mut().filter(|row| row.unit == Unit::Instructions) {
            [&mut row.ours, &mut row.linux].into_iter().for_each(|column| column.failed = Some(why.to_owned()));
        }
    }

    /// The measuring is over.
    pub fn end(&mut self) {
        self.setting.load_after = load();
    }

    /// One line per thing that went wrong, however many rows it hit.
    pub fn failures(&self) -> Vec<String> {
        let mut lines: Vec<(String, Vec<String>)> = Vec::new();
        for row in &self.rows {
            for (system, column) in [("Pelago", &row.ours), ("Linux", &row.linux)] {
                if let Some(what) = &column.failed {
                    let line = format!("{system}: {what}");
                    let place = format!("{} at {}", row.name, row.cpus);
                    match lines.iter_mut().find(|(other, _)| *other == line) {
                        Some((_, places)) => places.push(place),
                        None => lines.push((line, vec![place])),
                    }
                }
            }
        }
        lines.into_iter().map(|(line, places)| format!("no figure for {}: {line}", places.join(", "))).collect()
    }

    /// Reads what [`Results::write`] wrote.
    pub fn read(path: &Path) -> Result<Results> {
        let wrong = || format!("{} holds no results of `./pelago bench --json`; make it again", path.display());
        let results: Results = serde_json::from_slice(&crate::host::files::read(path)?).with_context(wrong)?;
        ensure!(results.format == FORMAT, "{} has another format; make it again", path.display());
        Ok(results)
    }

    /// Keeps it.
    pub fn write(&self, path: &Path) -> Result<()> {
        crate::host::files::write(path, &serde_json::to_vec_pretty(self)?)
    }
}

/// Cores of this machine.
pub fn host_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// Load averages of 1, 5 and 15 minutes (proc(5)).
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn row(name: &str, cpus: u32, ours: &[f64], linux: &[f64]) -> Row {
        let column = |samples: &[f64]| Column { samples: samples.into(), ..Column::default() };
        Row {
            name: name.into(),
            unit: Unit::Ns,
            cpus,
            trust: Trust::Time,
            paper: String::new(),
            ours: column(ours),
            linux: column(linux),
        }
    }

    pub fn results(rows: Vec<Row>) -> Results {
        let empty = String::new;
        let setting = Setting {
            rounds: 1,
            accelerator: empty(),
            memory_mib: 0,
            linux_kernel: empty(),
            linux_command_line: empty(),
            placement: BTreeMap::new(),
            host_cores: 2,
            load_before: empty(),
            load_after: empty(),
        };
        Results { format: FORMAT, setting, rows }
    }

    #[test]
    fn the_summary_is_median_and_quartiles() {
        let column = Column { samples: vec![5.0, 1.0, 3.0, 2.0, 4.0], ..Column::default() };
        assert_eq!(column.summary(), Some((3.0, 2.0, 4.0)));
        let one = Column { samples: vec![7.0], ..Column::default() };
        assert_eq!(one.summary(), Some((7.0, 7.0, 7.0)));
        assert_eq!(Column::default().summary(), None);
    }

    #[test]
    fn a_ratio_needs_both() {
        assert_eq!(row("a", 1, &[3.0], &[2.0]).ratio(), Some(1.5));
        assert_eq!(row("a", 1, &[3.0], &[]).ratio(), None);
        assert_eq!(row("a", 1, &[3.0], &[0.0]).ratio(), None);
    }

    #[test]
    fn one_cause_is_one_line() {
        let mut all = results(vec![row("a", 1, &[1.0], &[]), row("b", 2, &[1.0], &[]), row("c", 1, &[1.0], &[1.0])]);
        for (name, cpus) in [("a", 1), ("b", 2)] {
            all.add(name, Unit::Ns, cpus, Side::Linux, Err(anyhow::anyhow!("no kernel")).into());
        }
        assert_eq!(all.failures(), ["no figure for a at 1, b at 2: Linux: no kernel"]);
    }

    #[test]
    fn results_survive_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        results(vec![row("a", 1, &[1.0], &[2.0])]).write(&path).unwrap();
        assert_eq!(Results::read(&path).unwrap().rows[0].ratio(), Some(0.5));
        std::fs::write(&path, "{}").unwrap();
        assert!(format!("{:#}", Results::read(&path).unwrap_err()).contains("make it again"));
    }
}
