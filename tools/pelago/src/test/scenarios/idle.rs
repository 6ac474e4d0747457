//! Tier 4: who waits does not use its core (Barrelfish section 4.6): a component that spoke with
//! others polls for about the cost of a wake-up, then sleeps until a message wakes it.

use crate::image::machine_type::MachineType;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use crate::test::scenarios::web;
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};

const CPUS: [u32; 3] = [1, 2, 4];
const LIMIT: Duration = Duration::from_secs(30);
/// How long nobody asks for anything, and how often that is looked at, at most: the quietest time
/// counts, as a host that is busy with others stretches whatever a program does. One that is quiet
/// enough will do.
const REST: Duration = Duration::from_secs(1);
const LOOKS: usize = 4;
/// Of that time programs may have had each core for so much: the questions of the test, and what
/// the network says by itself. Who polls has it all.
const SHARE_MAX: f64 = 0.2;

pub fn scenarios() -> Vec<Scenario> {
    let all = MachineType::ALL.into_iter().flat_map(|machine| CPUS.map(|cpus| (machine, cpus)));
    all.map(|(machine, cpus)| {
        let name = format!("idle/{}/{cpus}", machine.name());
        // How somebody waits does not depend on the machine.
        let nightly = machine != MachineType::Q35;
        Scenario::alone(4, name, move |bench| rest(bench, machine, cpus)).by_night(nightly)
    })
    .collect()
}

/// A page is fetched, so that everybody on its way has just spoken with others; then nothing
/// happens; then a message comes.
fn rest(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let (guest, address) = web::serve(bench, machine, cpus, b"page\n".to_vec())?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        let liveness = guest.liveness();
        let page = |address: &str| -> Result<()> {
            ensure!(
                web::fetch(&liveness, &format!("{address}/file"), web::READY_LIMIT)? == b"page\n",
                "another page came"
            );
            Ok(())
        };
        page(&address)?;
        let mut shares = vec![1.0_f64; cpus as usize];
        for _ in 0..LOOKS {
            let (before, start) = (used(guest, cpus)?, Instant::now());
            std::thread::sleep(REST);
            let (after, passed) = (used(guest, cpus)?, start.elapsed());
            for ((share, before), after) in shares.iter_mut().zip(before).zip(after) {
                *share = share.min((after - before) as f64 / passed.as_micros() as f64);
            }
            if shares.iter().all(|share| *share <= SHARE_MAX) {
                break;
            }
        }
        page(&address)?;
        let shown: Vec<_> = shares.iter().map(|share| format!("{:.2}", 100.0 * share)).collect();
        println!(
            "     {}/{cpus}: programs at rest had their cores for {} % of the time",
            machine.name(),
            shown.join(", ")
        );
        let most = shares.iter().copied().fold(0.0, f64::max);
        if most > SHARE_MAX {
            let told = format!("programs that have nothing to do had a core for {:.0} % of the time", 100.0 * most);
            return Err(guest.late(told));
        }
        Ok(())
    })
}

/// Microseconds that programs had each core.
fn used(guest: &mut Guest, cpus: u32) -> Result<Vec<u64>> {
    let lines = guest.control_lines("cores", LIMIT)?;
    ensure!(lines.len() == cpus as usize, "{lines:?}");
    lines.iter().map(|line| microseconds(line).with_context(|| format!("`cores` says {line}"))).collect()
}

/// From `core 1  monitor claimed by nobody  programs 1234 us`.
pub fn microseconds(line: &str) -> Option<u64> {
    line.split_once("programs ")?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_had_is_read() {
        assert_eq!(microseconds("core   1  monitor  claimed by monitor programs   1234 us"), Some(1234));
        assert_eq!(microseconds("ok 2 cores"), None);
    }
}
