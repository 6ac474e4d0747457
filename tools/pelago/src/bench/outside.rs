//! Rows seen from this machine: the clock between starting the emulator and a word of the guest,
//! the emulator's processor time, its memory.

use super::clients;
use super::servers::Server;
use super::systems::{Boot, Side, Systems};
use crate::bench::peer::{self, MEASURE};
use crate::image::machine_type::MachineType;
use crate::machine::guest::Guest;
use anyhow::{Context, Result};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// What the first program of either system says with its first instructions: our monitor by itself,
/// in Linux the measuring program, started as init.
const FIRST_USER: [&str; 2] = ["monitor: first program", "measure: first"];
/// Linux's words for that: everything after the dashes is the program's.
const FIRST_USER_OF_LINUX: [&str; 3] = ["rdinit=/bin/measure", "--", "first"];
/// After the last thing that a system does at start.
const SETTLE: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_secs(5);

/// What is done with a guest from outside. One experiment may give several figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Milliseconds from power-on to the first program's first words.
    FirstUser,
    /// To everything being up, the network included.
    Ready,
    /// To the first thing a Linux program says.
    FirstOutput,
    /// To the first page that a client of this machine has.
    FirstPage,
    /// User and system time of the emulator over a quiet interval with the network up, in per cent
    /// of one host core.
    Idle,
    /// MiB of its memory that an idle guest has touched, with kernel and archive or initial RAM
    /// disk.
    IdleMemory,
    /// Pages per second, and processor time for each.
    Pages(clients::Load),
    /// Requests per second of a server that nobody here wrote, and processor time for each.
    Server(Server),
}

impl Experiment {
    /// Does it once.
    pub fn measure(self, systems: &Systems, side: Side, machine: MachineType, cpus: u32) -> Result<Vec<f64>> {
        let one = match self {
            Experiment::FirstUser => first_user_ms,
            Experiment::Ready => ready_ms,
            Experiment::FirstOutput => first_output_ms,
            Experiment::FirstPage => first_page_ms,
            Experiment::Idle => idle_percent,
            Experiment::IdleMemory => idle_memory_mib,
            Experiment::Pages(load) => return load.measure(systems, side, machine, cpus),
            Experiment::Server(server) => return server.measure(systems, side, machine, cpus),
        };
        one(systems, side, machine, cpus).map(|figure| vec![figure])
    }
}

fn ready(side: Side) -> &'static str {
    match side {
        Side::Pelago => "pelago: ready",
        Side::Linux => peer::READY,
    }
}

fn ms_until(mut guest: Guest, words: &str) -> Result<f64> {
    guest.expect(words, LIMIT)?;
    Ok(age_ms(&guest))
}

fn age_ms(guest: &Guest) -> f64 {
    guest.age().as_secs_f64() * 1e3
}

fn first_user_ms(systems: &Systems, side: Side, machine: MachineType, cpus: u32) -> Result<f64> {
    let boot = Boot::bare(machine, cpus);
    let guest = match side {
        Side::Pelago => systems.boot(side, &boot)?,
        Side::Linux => systems.boot_linux(&boot, &FIRST_USER_OF_LINUX)?,
    };
    ms_until(guest, FIRST_USER[side as usize])
}

fn ready_ms(systems: &Systems, side: Side, machine: MachineType, cpus: u32) -> Result<f64> {
    ms_until(systems.boot(side, &Boot::bare(machine, cpus))?, ready(side))
}

fn first_output_ms(systems: &Systems, side: Side, machine: MachineType, cpus: u32) -> Result<f64> {
    let guest = systems.boot(side, &Boot { words: &[MEASURE, "first"], ..Boot::bare(machine, cpus) })?;
    ms_until(guest, "measure: first")
}

fn first_page_ms(systems: &Systems, side: Side, machine: MachineType, cpus: u32) -> Result<f64> {
    let (guest, _) = clients::serve(systems, side, machine, cpus, &clients::EPOLL)?;
    Ok(age_ms(&guest))
}

fn idle_percent(systems: &Systems, side: Side, machine: MachineType, cpus: u32) -> Result<f64> {
    let (guest, _) = clients::serve(systems, side, machine, cpus, &clients::EPOLL)?;
    std::thread::sleep(SETTLE);
    let before = cpu_us(guest.process_id())?;
    std::thread::sleep(QUIET);
    Ok((cpu_us(guest.process_id())? - before) / QUIET.as_micros() as f64 * 100.0)
}

/// Processor time of a process so far.
pub fn cpu_us(process: u32) -> Result<f64> {
    // Linux reports in ticks of 10 ms (USER_HZ, proc(5)) on x86-64.
    const TICK_US: f64 = 10_000.0;
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).context("the emulator is gone")?;
    // The name in parentheses may hold spaces; utime and stime are the 12th and 13th fields after
    // it.
    let fields: Vec<_> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field =
        |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).context("proc(5) has changed");
    Ok((field(11)? + field(12)?) as f64 * TICK_US)
}

fn idle_memory_mib(systems: &Systems, side: Side, machine: MachineType, cpus: u32) -> Result<f64> {
    let mut guest = systems.boot(side, &Boot { shows_memory: true, ..Boot::bare(machine, cpus) })?;
    guest.expect(ready(side), LIMIT)?;
    std::thread::sleep(SETTLE);
    let path = format!("/proc/{}/smaps", guest.process_id());
    touched_mib(&std::fs::read_to_string(path).context("cannot read the emulator's memory")?)
}

/// The resident part of the mapping that is the guest's memory: the line `Rss:` after the one that
/// names the file (proc(5)).
fn touched_mib(smaps: &str) -> Result<f64> {
    let mut lines = smaps.lines().skip_while(|line| !line.contains("/memfd:"));
    let line =
        lines.find_map(|line| line.strip_prefix("Rss:")).context("the guest's memory is not among the mappings")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().context("proc(5) has changed")?;
    Ok(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guests_memory_is_found_among_the_mappings() {
        let smaps = "7f00-7f10 rw-p 00000000 00:00 0\nRss:      99 kB\n7f20-7f30 rw-s 00000000 00:01 17  /memfd:m (deleted)\n\
                     Size:  4096 kB\nRss:     2048 kB\n7f30-7f40 rw-p 00000000 00:00 0\nRss:      77 kB\n";
        assert_eq!(touched_mib(smaps).unwrap(), 2.0);
        assert!(touched_mib("7f00-7f10 rw-p 00000000 00:00 0\nRss: 99 kB\n").is_err());
    }
}
