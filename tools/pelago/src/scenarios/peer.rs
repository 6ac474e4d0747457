//! Tier 5: the Linux guest that the bench measures beside us boots, runs the measuring program, and ends.

use crate::peer::{self, Linux};
use crate::scenario::{Bench, Scenario, Skip, with_console};
use anyhow::{Result, bail, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario::shared(5, "peer/linux".into(), boot)]
}

fn boot(bench: &Bench) -> Result<()> {
    let linux = match Linux::find(&peer::build_measure()?) {
        Ok(linux) => linux,
        Err(problem) => bail!(Skip(format!("{problem:#}"))),
    };
    let machine = linux.machine(2, bench.accelerator());
    let guest = linux.boot(machine, &[peer::MEASURE, "run", "2", "getppid"], |_, _| Ok(()))?;
    with_console(guest, |guest| {
        guest.expect(peer::READY, LIMIT)?;
        guest.expect("measure: getppid end", LIMIT)?;
        let samples =
            guest.transcript.iter().filter(|line| line.starts_with("measure: getppid ") && line.contains(" ns "));
        ensure!(samples.count() > 1, "no samples came");
        ensure!(guest.finish(LIMIT)? == 0, "the status is not 0");
        Ok(())
    })
}
