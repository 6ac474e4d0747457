//! One single-threaded server and servers with workers, over cores (figures 1 and 4, section 2).
//!
//! A row's time is that of a client from its first measured request to the end of its last, waiting
//! included, by the model's clock of its core. The servers' costs are parts of what a call to
//! another core takes, so that is measured first.

use super::{STUDY, system, told};
use crate::bench::plugin::{self, Mode, Plugin};
use crate::image::machine_type::MachineType;
use crate::machine::emulator::Machine;
use crate::machine::testbed::Testbed;
use anyhow::{Context, Result, ensure};
use coherence::Report;
use std::time::Duration;

/// As `apps/bench/src/nova/servers.rs` has them.
/// Cores that are no client's.
pub const NO_CLIENTS: u32 = 2;
const CROSS_WORD: &str = "nova.cross=";
const CROSS_CYCLES: f64 = 6_000.0;
pub const COSTS: [u32; 3] = [400, 50, 30];
const PARALLEL: [u32; 7] = [0, 20, 40, 60, 80, 95, 100];
const CLIENTS: [u32; 4] = [1, 2, 4, 7];
/// Of these over the number of clients.
const SCALING_COST: u32 = 400;
const SCALING: [u32; 3] = [40, 80, 95];
pub const BEHIND_COST: u32 = 50;
const BEHIND_MAX: u32 = 2;
const LIMIT: Duration = Duration::from_secs(300);
const LIMIT_PER_CORE: Duration = Duration::from_secs(60);

/// What was measured.
pub struct Servers {
    cpus: u32,
    /// Cycles of a call to another core by which the costs were reckoned.
    reckoned: f64,
    /// Cycles of a call that asks for nothing: of the thread on another core, and of a worker.
    pub cross: f64,
    pub local: f64,
    pub report: Report,
}

/// Speed-up by workers over the part of the server that they do.
pub struct SpeedUps {
    /// Per cent of a call to another core.
    pub cost: u32,
    /// Per cent, and speed-up.
    pub points: Vec<(u32, f64)>,
}

impl SpeedUps {
    /// From what part on workers are faster; `None`: always, or never.
    pub fn break_even(&self) -> Option<f64> {
        let mut pairs = self.points.windows(2).map(|pair| (pair[0], pair[1]));
        let ((left, low), (right, high)) = pairs.find(|((_, low), (_, high))| *low < 1.0 && *high >= 1.0)?;
        Some(f64::from(left) + f64::from(right - left) * (1.0 - low) / (high - low))
    }
}

/// Speed-up of a server with workers over its clients.
pub struct Scaling {
    pub name: String,
    /// Part of a whole request that runs in parallel.
    pub parallel: f64,
    pub points: Vec<(u32, f64)>,
}

impl Servers {
    /// Clients of most rows: all cores but the thread's and the one that spins.
    pub fn clients(&self) -> u32 {
        self.cpus - NO_CLIENTS
    }

    /// Cycles that a client's request took.
    fn cycles(&self, name: &str) -> Option<f64> {
        let row = self.report.rows.iter().find(|row| row.name == format!("nova/{name}"))?;
        Some(row.elapsed as f64 / row.operations as f64)
    }

    /// The numbers of clients that were measured.
    pub fn counts(&self) -> impl Iterator<Item = u32> {
        let clients = self.clients();
        CLIENTS.into_iter().filter(move |count| *count <= clients)
    }

    /// Of each cost the speed-up by workers, by so many clients.
    pub fn curves(&self, clients: u32) -> Vec<SpeedUps> {
        let points = |cost: u32| {
            let single = self.cycles(&format!("{clients}/{cost}/single"))?;
            let point =
                |percent| Some((percent, single / self.cycles(&format!("{clients}/{cost}/workers/{percent}"))?));
            Some(SpeedUps { cost, points: PARALLEL.into_iter().filter_map(point).collect() })
        };
        COSTS.into_iter().filter_map(points).collect()
    }

    /// Speed-up over clients, and what part of a request is parallel: all but the thread's time for
    /// it, which is what a request takes all in all where the thread never rests.
    pub fn scaling(&self) -> Vec<Scaling> {
        let cost = self.reckoned * f64::from(SCALING_COST) / 100.0;
        let most = self.counts().max().unwrap_or(1);
        let busy = self.cycles(&format!("{most}/{SCALING_COST}/single")).map(|cycles| cycles / f64::from(most));
        let overhead = busy.map_or(0.0, |busy| (busy - cost).max(0.0));
        let scaling = |percent: u32| {
            let of = |count: u32| self.cycles(&format!("{count}/{SCALING_COST}/workers/{percent}"));
            let alone = of(1)?;
            let serial = cost * f64::from(100 - percent) / 100.0 + overhead;
            let point = |count| Some((count, f64::from(count) * alone / of(count)?));
            Some(Scaling {
                name: format!("{percent} % of the server by workers"),
                parallel: 1.0 - serial / alone,
                points: self.counts().filter_map(point).collect(),
            })
        };
        SCALING.into_iter().filter_map(scaling).collect()
    }

    /// By servers behind the first: cycles for a request of all clients together, by one thread
    /// each and by workers.
    pub fn behind(&self) -> Vec<(u32, [f64; 2])> {
        let clients = f64::from(self.clients());
        let of = |behind, by| Some(self.cycles(&format!("behind/{behind}/{by}"))? / clients);
        (0..=BEHIND_MAX).filter_map(|behind| Some((behind, [of(behind, "single")?, of(behind, "workers")?]))).collect()
    }
}

/// Boots, with costs that are parts of so many cycles.
pub fn measure(testbed: &Testbed, plugin: &Plugin, cpus: u32, turn: u64, reckoned: f64) -> Result<Servers> {
    let system = system()?;
    let names = plugin::names(testbed.images(), &system, cpus)?;
    let instruments = plugin.instruments(Mode::Coherence, turn, &names)?;
    let mut guest = testbed.boot_system(&system, MachineType::Q35, cpus, &[], |_, machine: &mut Machine| {
        plugin::fit(machine, instruments);
        machine.command_line.extend([format!("{STUDY}servers"), format!("{CROSS_WORD}{reckoned:.0}")]);
        Ok(())
    })?;
    told(&mut guest, LIMIT + LIMIT_PER_CORE * cpus).inspect_err(|_| eprint!("{}", guest.tail()))?;
    let report = plugin.report()?;
    ensure!(report.unmatched == 0, "{} marks have no other half", report.unmatched);
    let mut servers = Servers { cpus, reckoned, cross: 0.0, local: 0.0, report };
    let of = |name: &str| servers.cycles(name).with_context(|| format!("the guest measured no {name}"));
    (servers.cross, servers.local) = (of("cross-call")?, of("local-call")?);
    Ok(servers)
}

/// The same with the costs that a first boot gives.
pub fn measure_fitted(testbed: &Testbed, plugin: &Plugin, cpus: u32, turn: u64) -> Result<Servers> {
    let cross = measure(testbed, plugin, NO_CLIENTS + 1, turn, CROSS_CYCLES)?.cross;
    measure(testbed, plugin, cpus, turn, cross)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coherence::Row;

    fn servers(rows: &[(&str, u64)]) -> Servers {
        let row = |&(name, elapsed): &(&str, u64)| Row {
            name: format!("nova/{name}"),
            operations: 1,
            elapsed,
            ..Row::default()
        };
        let report = Report { rows: rows.iter().map(row).collect(), ..Report::default() };
        Servers { cpus: 4, reckoned: 1000.0, cross: 1000.0, local: 100.0, report }
    }

    #[test]
    fn workers_are_faster_from_where_the_curve_crosses_one() {
        let all = servers(&[("2/50/single", 1000), ("2/50/workers/0", 1250), ("2/50/workers/20", 800)]);
        let [curve] = &all.curves(2)[..] else { panic!() };
        assert_eq!((curve.cost, curve.points.as_slice()), (50, [(0, 0.8), (20, 1.25)].as_slice()));
        assert!((curve.break_even().unwrap() - 20.0 * 0.2 / 0.45).abs() < 1e-9);
        let never = SpeedUps { cost: 30, points: vec![(0, 0.5), (100, 0.9)] };
        assert_eq!(never.break_even(), None);
    }

    #[test]
    fn what_the_thread_does_for_a_request_is_its_serial_part() {
        let all = servers(&[("2/400/single", 9000), ("1/400/workers/40", 5800), ("2/400/workers/40", 8000)]);
        let [scaling] = &all.scaling()[..] else { panic!() };
        // The thread takes 4500 for a whole request, 500 more than the server's cost; 60 % of the
        // cost and these 500 of 5800 are serial.
        assert!((scaling.parallel - 0.5).abs() < 1e-9, "{}", scaling.parallel);
        assert_eq!(scaling.points, [(1, 1.0), (2, 1.45)]);
    }
}
