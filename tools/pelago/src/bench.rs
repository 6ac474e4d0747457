//! `./pelago bench`: measures, and prints one row per measurement and number of cores.
//!
//! Rows from outside are the host's wall clock and the emulator's processor time, medians of a few boots; under emulation they compare
//! runs on one machine, nothing else. Rows from inside come from the component `bench` (apps/bench) in one boot, in nanoseconds and, on
//! one core, as instructions: there QEMU is run once more such that its virtual clock, and with it the guest's time stamp counter,
//! advances by one with each instruction. The row `known-loop`, whose length is known, shows that this holds, and is checked.

use crate::emulator::{Machine, MachineType};
use crate::{accelerator, guest::Guest, scenario, scenarios};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const BOOTS: usize = 5;
const LIMIT: Duration = Duration::from_secs(60);
/// A page that is to come at all comes within this.
const ANSWER_SOON: Duration = Duration::from_millis(100);
/// Requests of the rows per request, after as many that warm up.
const REQUESTS: usize = 200;
const INSIDE: &str = "inside";
/// Instructions counted beside the known loop's own: reading the counter, the markers.
const KNOWN_LOOP_SLACK: f64 = 200.0;

/// Options of `bench`.
#[derive(Args)]
pub struct Options {
    /// Only rows whose name contains one of these; `inside` stands for all that are measured in the guest
    name: Vec<String>,
    /// Numbers of cores
    #[arg(long, value_delimiter = ',', default_value = "1,2,4")]
    cpus: Vec<u32>,
    /// Write the rows to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print the names instead of measuring
    #[arg(long)]
    list: bool,
    /// Hardware virtualisation or emulation
    #[arg(long, value_enum, default_value = "auto")]
    accel: accelerator::Wish,
}

#[derive(Serialize)]
struct Row {
    name: String,
    cpus: u32,
    unit: String,
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

const Q35: MachineType = MachineType::Q35;
const MICROVM: MachineType = MachineType::Microvm;

const MEASUREMENTS: [Measurement; 9] = [
    Measurement { name: "power-on-to-ready/q35", unit: "ms", machine: Q35, measure: boot_ms },
    Measurement { name: "power-on-to-ready/microvm", unit: "ms", machine: MICROVM, measure: boot_ms },
    Measurement { name: "power-on-to-first-output/q35", unit: "ms", machine: Q35, measure: first_output_ms },
    Measurement { name: "power-on-to-first-page/q35", unit: "ms", machine: Q35, measure: first_page_ms },
    Measurement { name: "power-on-to-first-page/microvm", unit: "ms", machine: MICROVM, measure: first_page_ms },
    Measurement { name: "page-per-connection/q35", unit: "requests/s", machine: Q35, measure: requests_per_second },
    Measurement { name: "cpu-per-request/q35", unit: "us", machine: Q35, measure: cpu_us_per_request },
    Measurement { name: "idle-host-cpu/q35", unit: "%", machine: Q35, measure: idle_percent },
    Measurement { name: "idle-memory-touched/q35", unit: "MiB", machine: Q35, measure: idle_memory_mib },
];

/// Runs the chosen measurements.
pub fn run(options: &Options) -> Result<ExitCode> {
    let wanted = |name: &str| options.name.is_empty() || options.name.iter().any(|wish| name.contains(wish.as_str()));
    if options.list {
        MEASUREMENTS.iter().for_each(|measurement| println!("{} ({})", measurement.name, measurement.unit));
        println!("{INSIDE}/... (ns; instructions on one core): null call, portal call, messages, wake-up, page faults");
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = Vec::new();
    println!("{:<46} {:>5} {:>12} unit", "row", "cpus", "median");
    let chosen: Vec<_> = MEASUREMENTS.iter().filter(|measurement| wanted(measurement.name)).collect();
    if !chosen.is_empty() {
        let bench = scenario::Bench::new(options.accel)?;
        for measurement in chosen {
            for &cpus in &options.cpus {
                add(&mut rows, outside(&bench, measurement, cpus)?);
            }
        }
    }
    if options.name.is_empty() || options.name.iter().any(|wish| wish.starts_with(INSIDE)) {
        let bench = scenario::Bench::with_system(options.accel, "bench.toml")?;
        for &cpus in &options.cpus {
            let all = inside(&bench, cpus).with_context(|| format!("inside, at {cpus} cores"))?;
            all.into_iter().filter(|row| wanted(&row.name)).for_each(|row| add(&mut rows, row));
        }
    }
    if rows.is_empty() {
        bail!("no row has such a name; `./pelago bench --list` prints them");
    }
    if let Some(path) = &options.json {
        crate::files::write(path, &serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn add(rows: &mut Vec<Row>, row: Row) {
    println!("{:<46} {:>5} {:>12.1} {}", row.name, row.cpus, row.median, row.unit);
    rows.push(row);
}

fn outside(bench: &scenario::Bench, measurement: &Measurement, cpus: u32) -> Result<Row> {
    let measure = || (measurement.measure)(bench, measurement.machine, cpus);
    let mut samples = (0..BOOTS)
        .map(|_| measure())
        .collect::<Result<Vec<_>>>()
        .with_context(|| format!("{} at {cpus} cores", measurement.name))?;
    samples.sort_by(f64::total_cmp);
    let (name, unit, median) = (measurement.name.into(), measurement.unit.into(), samples[BOOTS / 2]);
    Ok(Row { name, cpus, unit, median, samples })
}

// ---- Inside -------------------------------------------------------------------------------------------------------------------------

/// Both kinds of run.
fn inside(bench: &scenario::Bench, cpus: u32) -> Result<Vec<Row>> {
    let row = |(name, value, unit): (String, f64, String)| Row {
        name: format!("{INSIDE}/{name}"),
        cpus,
        unit,
        median: value,
        samples: vec![value],
    };
    let timed = measure_inside(bench, cpus, false)?;
    let mut rows: Vec<Row> = timed.into_iter().filter(|(_, _, unit)| unit == "ns").map(row).collect();
    if cpus == 1 {
        let counted = measure_inside(bench, cpus, true)?;
        let find = |name: &str, unit: &str| {
            counted.iter().find(|row| row.0 == name && row.2 == unit).map(|row| row.1).context("known-loop is missing")
        };
        let (known, ticks) = (find("known-loop-length", "instructions")?, find("known-loop", "ticks")?);
        ensure!(
            (known..known + KNOWN_LOOP_SLACK).contains(&ticks),
            "this emulator's ticks are no instructions: {ticks} for a loop of {known}"
        );
        let counts = counted.into_iter().filter(|(_, _, unit)| unit == "ticks");
        rows.extend(counts.map(|(name, value, _)| row((name, value, "instructions".into()))));
    }
    Ok(rows)
}

fn measure_inside(bench: &scenario::Bench, cpus: u32, counts: bool) -> Result<Vec<(String, f64, String)>> {
    let mut guest = bench.boot(MachineType::Q35, cpus, &[], |_, machine: &mut Machine| {
        machine.counts_instructions = counts;
        Ok(())
    })?;
    let end = guest.expect("bench: done", LIMIT);
    if let Err(error) = end {
        eprint!("{}", guest.tail());
        bail!("{error:#}; the end of the console is above");
    }
    for line in guest.transcript.iter().filter(|line| line.contains("bench: ") && line.contains(" failed ")) {
        eprintln!("pelago: {line}");
    }
    Ok(guest.transcript.iter().filter_map(|line| inside_row(line)).collect())
}

/// From `bench: NAME VALUE UNIT`.
fn inside_row(line: &str) -> Option<(String, f64, String)> {
    let mut words = line.split_once("bench: ")?.1.split_whitespace();
    let row = (words.next()?.to_owned(), words.next()?.parse().ok()?, words.next()?.to_owned());
    words.next().is_none().then_some(row)
}

// ---- Outside ------------------------------------------------------------------------------------------------------------------------

fn boot_ms(bench: &scenario::Bench, machine: MachineType, cpus: u32) -> Result<f64> {
    let start = Instant::now();
    bench.boot_bare(machine, cpus)?.expect("pelago: ready", LIMIT)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// The first thing a Linux program says.
fn first_output_ms(bench: &scenario::Bench, machine: MachineType, cpus: u32) -> Result<f64> {
    let start = Instant::now();
    bench.boot(machine, cpus, &["busybox", "echo", "first output"], |_, _| Ok(()))?.expect("first output", LIMIT)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn first_page_ms(bench: &scenario::Bench, machine: MachineType, cpus: u32) -> Result<f64> {
    let start = Instant::now();
    let (mut guest, address) = scenarios::serve_page(bench, machine, cpus)?;
    guest.expect("pelago: ready", LIMIT)?;
    // The emulator accepts at once and tells the guest when it can: a first connection that came too early would wait for its timer.
    while let Err(error) = request(host(&address), ANSWER_SOON) {
        ensure!(start.elapsed() < LIMIT, "no page within {} s: {error:#}", LIMIT.as_secs());
    }
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn host(address: &str) -> &str {
    address.trim_start_matches("http://").trim_end_matches("/file")
}

fn requests_per_second(bench: &scenario::Bench, machine: MachineType, cpus: u32) -> Result<f64> {
    Ok(REQUESTS as f64 / requests(bench, machine, cpus)?.0)
}

fn cpu_us_per_request(bench: &scenario::Bench, machine: MachineType, cpus: u32) -> Result<f64> {
    Ok(requests(bench, machine, cpus)?.1 * 1e6 / REQUESTS as f64)
}

/// Seconds of the clock and of the emulator's processor time for the requests, one connection each, one after the other.
fn requests(bench: &scenario::Bench, machine: MachineType, cpus: u32) -> Result<(f64, f64)> {
    let (guest, address) = scenarios::serve_page(bench, machine, cpus)?;
    scenarios::fetch(&address, LIMIT)?;
    let all = || (0..REQUESTS).try_for_each(|_| request(host(&address), LIMIT));
    all()?;
    let (ticks, start) = (cpu_ticks(guest.process_id())?, Instant::now());
    all()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((seconds, (cpu_ticks(guest.process_id())? - ticks) as f64 / 100.0))
}

fn request(host: &str, limit: Duration) -> Result<()> {
    let mut stream = TcpStream::connect(host).context("cannot connect")?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(b"GET /file HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("a request was not answered")?;
    ensure!(answer.len() > 4096, "an answer has {} bytes only", answer.len());
    Ok(())
}

/// User and system time of the emulator over a quiet interval, in per cent of one host core.
fn idle_percent(bench: &scenario::Bench, machine: MachineType, cpus: u32) -> Result<f64> {
    const QUIET: Duration = Duration::from_secs(5);
    // The server has answered, so the network is up.
    let (guest, address) = scenarios::serve_page(bench, machine, cpus)?;
    scenarios::fetch(&address, LIMIT)?;
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

/// What the emulator holds when the guest is idle, less what it holds before the guest's first instruction (with kernel and archive).
fn idle_memory_mib(bench: &scenario::Bench, machine: MachineType, cpus: u32) -> Result<f64> {
    let mut guest = bench.boot_bare(machine, cpus)?;
    guest.expect("pelago: ready", LIMIT)?;
    std::thread::sleep(Duration::from_secs(1));
    let empty = bench.boot(machine, cpus, &[], |_, machine: &mut Machine| {
        machine.paused = true;
        Ok(())
    })?;
    std::thread::sleep(Duration::from_secs(1));
    Ok(dirty_mib(&guest)? - dirty_mib(&empty)?)
}

fn dirty_mib(guest: &Guest) -> Result<f64> {
    let path = format!("/proc/{}/smaps_rollup", guest.process_id());
    let text = std::fs::read_to_string(path).context("cannot read the emulator's memory")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).context("proc(5) has changed")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().context("proc(5) has changed")?;
    Ok(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_from_the_log() {
        assert_eq!(inside_row("bench: null-call 120 ns"), Some(("null-call".into(), 120.0, "ns".into())));
        for other in ["bench: done", "bench: portal-call failed NoRights", "bench: a 1 ns extra", "null-call 1 ns"] {
            assert_eq!(inside_row(other), None);
        }
    }
}
