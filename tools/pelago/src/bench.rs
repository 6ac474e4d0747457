//! `./pelago bench`: measures, and prints one row per measurement and number of cores.
//!
//! Times are the host's wall clock, medians of a few boots. Under emulation they compare runs on one machine, nothing else.

use crate::accelerator;
use crate::emulator::MachineType;
use crate::scenario;
use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const BOOTS: usize = 5;
const LIMIT: Duration = Duration::from_secs(60);

/// Options of `bench`.
#[derive(Args)]
pub struct Options {
    /// Only rows whose name contains one of these
    name: Vec<String>,
    /// Numbers of cores
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    cpus: Vec<u32>,
    /// Write the rows to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Hardware virtualisation or emulation
    #[arg(long, value_enum, default_value = "auto")]
    accel: accelerator::Wish,
}

#[derive(Serialize)]
struct Row {
    name: String,
    cpus: u32,
    unit: &'static str,
    median: f64,
    samples: Vec<f64>,
}

type Measure = fn(&scenario::Bench, MachineType, u32) -> Result<f64>;

struct Measurement {
    name: &'static str,
    unit: &'static str,
    machine: MachineType,
    measure: Measure,
}

const MEASUREMENTS: [Measurement; 5] = [
    Measurement { name: "power-on-to-ready/q35", unit: "ms", machine: MachineType::Q35, measure: boot_ms },
    Measurement { name: "power-on-to-ready/microvm", unit: "ms", machine: MachineType::Microvm, measure: boot_ms },
    Measurement { name: "power-on-to-first-page/q35", unit: "ms", machine: MachineType::Q35, measure: first_page_ms },
    Measurement { name: "idle-host-cpu/q35", unit: "%", machine: MachineType::Q35, measure: idle_percent },
    Measurement { name: "idle-memory-touched/q35", unit: "MiB", machine: MachineType::Q35, measure: idle_memory_mib },
];

/// Runs the chosen measurements.
pub fn run(options: &Options) -> Result<ExitCode> {
    let wanted = |name: &str| options.name.is_empty() || options.name.iter().any(|wish| name.contains(wish.as_str()));
    let chosen: Vec<_> = MEASUREMENTS.iter().filter(|measurement| wanted(measurement.name)).collect();
    if chosen.is_empty() {
        bail!("no row has such a name; there are {}", MEASUREMENTS.map(|measurement| measurement.name).join(", "));
    }
    let bench = scenario::Bench::new(options.accel)?;
    let mut rows = Vec::new();
    println!("{:<34} {:>5} {:>12} unit", "row", "cpus", "median");
    for measurement in chosen {
        for &cpus in &options.cpus {
            let measure = || (measurement.measure)(&bench, measurement.machine, cpus);
            let mut samples = (0..BOOTS)
                .map(|_| measure())
                .collect::<Result<Vec<_>>>()
                .with_context(|| format!("{} at {cpus} cores", measurement.name))?;
            samples.sort_by(f64::total_cmp);
            let row = Row {
                name: measurement.name.into(),
                cpus,
                unit: measurement.unit,
                median: samples[BOOTS / 2],
                samples,
            };
            println!("{:<34} {:>5} {:>12.1} {}", row.name, row.cpus, row.median, row.unit);
            rows.push(row);
        }
    }
    if let Some(path) = &options.json {
        crate::files::write(path, &serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn boot_ms(bench: &scenario::Bench, machine: MachineType, cpus: u32) -> Result<f64> {
    let start = Instant::now();
    bench.boot_bare(machine, cpus)?.expect("pelago: ready", LIMIT)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn first_page_ms(bench: &scenario::Bench, machine: MachineType, cpus: u32) -> Result<f64> {
    let start = Instant::now();
    let (guest, address) = crate::scenarios::serve_page(bench, machine, cpus)?;
    crate::scenarios::fetch(&address, LIMIT)?;
    drop(guest);
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// User and system time of the emulator over a quiet interval, in per cent of one host core.
fn idle_percent(bench: &scenario::Bench, machine: MachineType, cpus: u32) -> Result<f64> {
    const QUIET: Duration = Duration::from_secs(5);
    let mut guest = bench.boot_bare(machine, cpus)?;
    guest.expect("pelago: ready", LIMIT)?;
    std::thread::sleep(Duration::from_secs(1));
    let before = cpu_ticks(guest.process_id())?;
    std::thread::sleep(QUIET);
    let ticks = cpu_ticks(guest.process_id())? - before;
    // Linux reports in ticks of 10 ms (USER_HZ, proc(5)) on x86-64.
    Ok(ticks as f64 * 10.0 / QUIET.as_millis() as f64 * 100.0)
}

fn cpu_ticks(process: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).context("the emulator is gone")?;
    // The name in parentheses may hold spaces; utime and stime are the 12th and 13th fields after it.
    let fields: Vec<_> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field =
        |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).context("proc(5) has changed");
    Ok(field(11)? + field(12)?)
}

fn idle_memory_mib(bench: &scenario::Bench, machine: MachineType, cpus: u32) -> Result<f64> {
    let mut guest = bench.boot_bare(machine, cpus)?;
    guest.expect("pelago: ready", LIMIT)?;
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", guest.process_id()))
        .context("cannot read the emulator's memory")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).context("proc(5) has changed")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().context("proc(5) has changed")?;
    Ok(kib / 1024.0)
}
