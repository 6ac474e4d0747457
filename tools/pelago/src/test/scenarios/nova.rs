//! Tier 2: NOVA's study of servers (`apps/bench`, module `nova`). As many calls are inside a
//! server at once as it has workers on all cores; a client pays for its own request, or for a part
//! of another's that it helps, and for nothing else; over cores workers beat one thread as soon as
//! a part of the server is parallel.

use crate::bench::nova::servers::{self, SpeedUps};
use crate::bench::nova::{accounting, amdahl, told};
use crate::bench::plugin::Plugin;
use crate::image::machine_type::MachineType;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const WORKERS: [u32; 2] = [1, 3];
/// Cycles of a turn.
const TURN: u64 = 200;
/// The least part of requests that cost just what a request costs (the paper: more than 99 %).
const OWN_MIN: f64 = 0.99;
/// A request and the timer's interrupt, in parts of a request (the paper: 1.2; here up to 1.33).
const TIMER_MAX: f64 = 1.5;
/// A whole request of another, one's own, and the timer.
const HELPED: std::ops::RangeInclusive<f64> = 1.75..=2.4;
/// Of those who paid more than their request, how many fall into each quarter of a second one at
/// least. In the first are the timer's interrupts too.
const QUARTER_MIN: f64 = 0.06;
/// Speed-up by workers that do nothing in parallel.
const FOR_NOTHING_MAX: f64 = 1.02;
/// Per cent of the server that are parallel, where few and many clients are compared: a short
/// server is faster as one thread where few wait for it.
const HALF: u32 = 60;
const FEW: u32 = 2;
/// How far a measured speed-up may be outside of Amdahl's and the limit that his law has for any
/// number of processors, which clients come near that do not wait for each other.
const AMDAHL_SLACK: f64 = 0.1;
/// What a server adds behind workers, in parts of what it adds behind one thread.
const BEHIND_WORKERS_MAX: f64 = 0.6;
/// How far the two schemes' throughputs may be apart.
const THROUGHPUT: std::ops::RangeInclusive<f64> = 0.98..=1.02;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::shared(2, "nova/concurrency/2".into(), |bench| concurrency(bench, 2)),
        Scenario::shared(2, "nova/accounting/1".into(), bills),
        Scenario::nightly(2, "nova/servers/9".into(), |bench| over_cores(bench, 9)),
    ]
}

/// Cores times workers, and no more, though there are twice as many clients.
fn concurrency(bench: &Bench, cpus: u32) -> Result<()> {
    for workers in WORKERS {
        let guest = bench.boot_other("nova.toml", MachineType::Q35, cpus, |machine| {
            machine.command_line.extend(["nova.study=concurrency".into(), format!("nova.workers={workers}")]);
        })?;
        with_console(guest, |guest| {
            let lines = told(guest, LIMIT)?;
            let line = lines.iter().find(|line| line.starts_with("inside at once: ")).context("nothing was told")?;
            let expected =
                format!("inside at once: {} calls at {cpus} cores with {workers} workers each", cpus * workers);
            ensure!(*line == expected, "{line}; not {expected}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Figure 5, in instructions: the same on any host.
fn bills(bench: &Bench) -> Result<()> {
    let [client, core] = accounting::measure(bench, None)?;
    for bills in [&client, &core] {
        ensure!(bills.own() > OWN_MIN, "only {:.4} of requests cost what one costs: {bills:?}", bills.own());
    }
    ensure!(client.most() < TIMER_MAX, "a client with a worker of its own paid {:.2} requests", client.most());
    ensure!(client.between(0, 90) == 0, "a client with a worker of its own paid less than its request: {client:?}");
    ensure!(HELPED.contains(&core.most()), "the most that a client paid is {:.2} requests", core.most());
    let quarters = core.helped();
    let all: u64 = quarters.iter().sum();
    ensure!(
        quarters.iter().all(|quarter| *quarter as f64 > QUARTER_MIN * all as f64),
        "who helped paid, by quarters of a request, {quarters:?}"
    );
    // What some paid for others, these did not.
    ensure!(core.between(0, 90) > 0, "nobody was helped: {core:?}");
    let throughput = core.throughput() / client.throughput();
    ensure!(THROUGHPUT.contains(&throughput), "with one worker {throughput:.3} times as many requests are served");
    Ok(())
}

/// Figures 1 and 4, and servers behind the server, in modelled cycles.
fn over_cores(bench: &Bench, cpus: u32) -> Result<()> {
    let measured = servers::measure_fitted(bench, &Plugin::prepare()?, cpus, TURN)?;
    for clients in measured.counts() {
        let curves = measured.curves(clients);
        ensure!(curves.len() == servers::COSTS.len(), "{} curves of {clients} clients", curves.len());
        for SpeedUps { cost, points } in &curves {
            let [first, last] = [points.first(), points.last()].map(|point| point.map_or(0.0, |point| point.1));
            let least = speed_up_min(*cost, clients);
            ensure!(first < FOR_NOTHING_MAX, "{clients} clients, {cost} %: workers for nothing are faster: {points:?}");
            ensure!(last > least, "{clients} clients, {cost} %: of all the server {last:.2}, not {least}: {points:?}");
        }
    }
    let curve = |clients: u32, cost: u32| measured.curves(clients).into_iter().find(|curve| curve.cost == cost);
    let half =
        |clients, cost| curve(clients, cost)?.points.into_iter().find(|point| point.0 == HALF).map(|point| point.1);
    for cost in servers::COSTS {
        let [few, many] = [half(FEW, cost), half(measured.clients(), cost)].map(|point| point.unwrap_or(0.0));
        ensure!(many > 1.0, "by workers {cost} % and {HALF} % parallel is {many:.2} times as fast");
        ensure!((few > 1.0) == (cost > 100), "{FEW} clients, {cost} %: {few:.2} times as fast");
    }
    for scaling in measured.scaling() {
        for (clients, speed_up) in scaling.points {
            let law = amdahl(scaling.parallel, clients);
            let most = f64::from(clients).min(1.0 / (1.0 - scaling.parallel));
            let is_between = speed_up > law * (1.0 - AMDAHL_SLACK) && speed_up < most * (1.0 + AMDAHL_SLACK);
            ensure!(is_between, "{}, {clients} clients: {speed_up:.2}, not {law:.2} to {most:.2}", scaling.name);
        }
    }
    let behind = measured.behind();
    let lengths = |by: usize| behind.windows(2).map(move |two| two[1].1[by] - two[0].1[by]);
    for (single, workers) in lengths(0).zip(lengths(1)) {
        let server = measured.cross * f64::from(servers::BEHIND_COST) / 100.0;
        ensure!(single > server, "a server behind one thread adds {single:.0} cycles, less than its own {server:.0}");
        ensure!(
            workers < BEHIND_WORKERS_MAX * single,
            "behind workers it adds {workers:.0}, behind one thread {single:.0}"
        );
    }
    Ok(())
}

/// By workers who do all of the server, and so call no other core.
fn speed_up_min(cost: u32, clients: u32) -> f64 {
    let of_one = if cost > 100 { 1.1 } else { 1.6 };
    if clients > 2 { of_one * f64::from(clients) / 2.0 } else { of_one }
}
