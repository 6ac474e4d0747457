//! `./pelago bench nova`: NOVA's figures 1, 4 and 5 and its section 2 beside what our own workers,
//! portals and semaphores do (`apps/bench`, module `nova`).
//!
//! Servers over cores are measured in cycles of the coherence model (docs/coherence.md), bills of
//! clients in instructions, which is what the guest's clock counts there. The paper prints curves
//! without their numbers: what stands beside ours is what its text says.

pub mod accounting;
mod chart;
pub mod servers;

use crate::bench::plugin::Plugin;
use crate::host::{files, place};
use crate::image::description;
use crate::machine::accelerator;
use crate::machine::guest::Guest;
use crate::machine::testbed::Testbed;
use anyhow::{Result, bail, ensure};
use chart::{Chart, Curve};
use std::path::Path;
use std::time::Duration;
use system::System;

/// As it is asked for.
pub const NAME: &str = "nova";
/// What is booted, and the first dispatcher, who tells.
const SYSTEM: &str = "nova.toml";
const TELLS: &str = "nova-0: ";
/// Words of the command line (`apps/bench/src/nova`).
const STUDY: &str = "nova.study=";
/// Processors of Amdahl's curves, and proportions that can execute in parallel (figure 1).
const AMDAHL_CORES: u32 = 16;
const AMDAHL: [f64; 4] = [0.5, 0.75, 0.9, 0.95];

/// The description of what is booted.
fn system() -> Result<System> {
    description::load(&place::root().join("system").join(SYSTEM))
}

/// Waits for the end of what the first dispatcher tells; what it told.
pub fn told(guest: &mut Guest, limit: Duration) -> Result<Vec<String>> {
    guest.heard(&format!("{TELLS}done"), limit)?;
    let lines = guest.transcript.iter().filter_map(|line| line.split_once("nova-").map(|(_, text)| text));
    if let Some(failure) = lines.clone().find(|line| line.contains(": failed: ")) {
        bail!("nova-{failure}");
    }
    Ok(lines.filter_map(|line| line.split_once(": ").map(|(_, text)| text.to_owned())).collect())
}

/// Speed-up by `processors` where `parallel` of a program can execute in parallel (Amdahl's law).
pub fn amdahl(parallel: f64, processors: u32) -> f64 {
    1.0 / (1.0 - parallel + parallel / f64::from(processors))
}

/// Measures, prints, draws.
pub fn command(cpus: u32, turn: u64, json: Option<&Path>) -> Result<()> {
    ensure!(
        cpus > servers::NO_CLIENTS,
        "--cpus: one core is the server's and one spins; give 3 or more, or 9 for the paper's 7 clients"
    );
    let testbed = Testbed::new(accelerator::AccelChoice::Tcg)?;
    let plugin = Plugin::prepare()?;
    eprintln!("pelago: nova: servers, {cpus} cores in the coherence model, twice: it is fitted to a call's cost");
    let measured = servers::measure_fitted(&testbed, &plugin, cpus, turn)?;
    eprintln!("pelago: nova: bills of clients, one core whose clock is instructions");
    let bills = accounting::measure(&testbed, None)?;
    print_amdahl(&measured);
    print_servers(&measured);
    print_behind(&measured);
    accounting::print(&bills);
    for (name, svg) in
        [("nova.fig1", figure_1(&measured)?), ("nova.fig4", figure_4(&measured)?), ("nova.fig5", figure_5(&bills)?)]
    {
        let path = place::out().join(format!("{name}.svg"));
        files::write(&path, svg.as_bytes())?;
        println!("{name}: {}", path.display());
    }
    json.map_or(Ok(()), |path| files::write(path, &serde_json::to_vec_pretty(&measured.report)?))
}

fn print_amdahl(measured: &servers::Servers) {
    println!("figure 1, speed-up by processors (by Amdahl's law, nothing is measured)");
    for parallel in AMDAHL {
        let all = [2, 4, 8, 16].map(|count| format!("{:.2} at {count}", amdahl(parallel, count))).join(", ");
        println!("  {:.0} % parallel: {all}, at most {:.0}", parallel * 100.0, 1.0 / (1.0 - parallel));
    }
    println!("  measured, the same clients as below, by workers and beside what Amdahl's law gives for them");
    for scaling in measured.scaling() {
        let all: Vec<_> = scaling
            .points
            .iter()
            .map(|&(clients, speed_up)| {
                format!("{speed_up:.2} at {clients} ({:.2})", amdahl(scaling.parallel, clients))
            })
            .collect();
        println!("  {}, {:.1} % parallel in all: {}", scaling.name, scaling.parallel * 100.0, all.join(", "));
    }
}

fn print_servers(measured: &servers::Servers) {
    println!(
        "figure 4, modelled cycles: a call to another core takes {:.0}, to a worker {:.0}",
        measured.cross, measured.local
    );
    for count in measured.counts() {
        println!("  clients: {count}");
        for curve in measured.curves(count) {
            let points = curve.points.iter().map(|(percent, speed_up)| format!("{speed_up:.2} at {percent} %"));
            let even = match curve.break_even() {
                Some(percent) => format!("workers are faster from {percent:.0} % on"),
                None => "the curves do not cross".into(),
            };
            let points = points.collect::<Vec<_>>().join(", ");
            println!("    server costs {} %: speed-up by workers {points}; {even}", curve.cost);
        }
    }
    println!(
        "  the paper's: even near 20 % where the server costs 50 %; a single thread only wins where little is serial"
    );
}

fn print_behind(measured: &servers::Servers) {
    println!("section 2, servers behind the server, each 50 % of a call: cycles of all clients' time for a request");
    for (behind, [single, workers]) in measured.behind() {
        println!("  {behind} behind: {single:.0} by one thread each, {workers:.0} by workers with 80 % parallel");
    }
}

fn figure_1(measured: &servers::Servers) -> Result<String> {
    let law = |parallel: f64| (1..=AMDAHL_CORES).map(move |count| (f64::from(count), amdahl(parallel, count)));
    let mut curves: Vec<_> = AMDAHL
        .iter()
        .map(|&parallel| Curve::dashed(format!("Amdahl, {:.0} % parallel", parallel * 100.0), law(parallel)))
        .collect();
    for scaling in measured.scaling() {
        let label = format!("measured, {}, {:.1} % parallel", scaling.name, scaling.parallel * 100.0);
        curves.push(Curve::solid(label, scaling.points.iter().map(|&(clients, speed)| (f64::from(clients), speed))));
    }
    let title = "NOVA, figure 1: Amdahl's law, and our server with workers";
    Chart { title, x: "processors", y: "speed-up", curves: &curves }.svg()
}

fn figure_4(measured: &servers::Servers) -> Result<String> {
    let even = [(0.0, 1.0), (100.0, 1.0)];
    let mut curves = vec![Curve::dashed("even".into(), even.into_iter())];
    for curve in measured.curves(measured.counts().max().unwrap_or(1)) {
        let points = curve.points.iter().map(|&(percent, speed_up)| (f64::from(percent), speed_up));
        curves.push(Curve::solid(format!("server costs {} % of a call to another core", curve.cost), points));
    }
    let title = "NOVA, figure 4: a worker on each core beside one thread";
    Chart { title, x: "per cent of the server that is parallel", y: "speed-up", curves: &curves }.svg()
}

fn figure_5(bills: &[accounting::Bills; 2]) -> Result<String> {
    let curves: Vec<_> = bills
        .iter()
        .map(|bills| {
            let all = bills.requests() as f64;
            // A part in a million is 0 on this axis.
            let points = bills.steps.iter().map(move |&(ns, count)| (ns as f64, (count as f64 / all * 1e6).log10()));
            Curve::points(bills.scheme.label().into(), points)
        })
        .collect();
    let title = "NOVA, figure 5: instructions that a request costs its client";
    Chart { title, x: "instructions", y: "requests in a million, power of ten", curves: &curves }.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amdahl_is_as_the_paper_says() {
        // 95 %: about 10 with 16 processors and never more than 20; 90 %: never more than 10.
        assert!((9.0..10.0).contains(&amdahl(0.95, 16)), "{}", amdahl(0.95, 16));
        assert!((19.9..20.0).contains(&amdahl(0.95, 1_000_000)));
        assert!((9.9..10.0).contains(&amdahl(0.9, 1_000_000)) && amdahl(0.9, 16) < 10.0);
        assert_eq!((amdahl(0.0, 16), amdahl(1.0, 16)), (1.0, 16.0));
    }
}
