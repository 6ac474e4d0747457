//! Tier 3: a component on each core reads one file of the volume from a copy of its own, which its
//! server keeps true (decision 96), while another writes it: no piece is older than the one that
//! was published before the read, and each is whole. How fast they are, `counts/model/files/4`
//! tells.

use crate::bench::coherence::load::{self, LoadMachine};
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Each core reads so much at least, in all rows.
const READS_MIN: u64 = 5000;
/// Versions of pieces that are written at least, and how often each core copies the file for it.
const VERSIONS_MIN: u64 = 100;
const COPIES_MIN: u64 = 50;

pub fn scenarios() -> Vec<Scenario> {
    // Its cores spin for each other: four take up to 20 s on a host of two.
    let of = |cpus| {
        let one = Scenario::alone(3, format!("hot-file/q35/{cpus}"), move |bench: &Bench| run(bench, cpus));
        one.by_night(cpus == 4)
    };
    [2, 4].map(of).into()
}

fn run(bench: &Bench, cpus: u32) -> Result<()> {
    let machine = LoadMachine::on_disk(bench, ["files"])?;
    with_console(machine.boot(cpus, |_| ())?, |guest| {
        let ended = guest.expect(load::ENDED, LIMIT)?;
        ensure!(ended.contains("done"), "{ended}");
        let told = guest.heard(": files: ", LIMIT)?;
        let number = |before: &str| -> Option<u64> { told.split(before).next()?.rsplit(' ').next()?.parse().ok() };
        let counted = |what: &str| number(what).with_context(|| format!("{told}: no number before{what}"));
        let [reads, copies, versions] = [counted(" reads")?, counted(" copies")?, counted(" versions")?];
        let cores = u64::from(cpus);
        ensure!(
            reads >= cores * READS_MIN && copies >= cores * COPIES_MIN && versions >= VERSIONS_MIN,
            "too little was done: {told}"
        );
        Ok(())
    })
}
