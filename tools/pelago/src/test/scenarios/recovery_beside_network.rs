//! Tier 4: components beside the network's path die while a client of the host is served; the
//! client does not notice.

use crate::host::late::all_well;
use crate::image::machine_type::MachineType;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use crate::test::scenarios::recovery::content;
use crate::test::scenarios::web;
use anyhow::{Context, Result, bail, ensure};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const VICTIMS: [&str; 4] = ["names", "memory", "console", "supervisor"];
const FAILURES: [&str; 3] = ["kill", "fault", "hang"];
const ROUNDS: usize = 2;
/// How often the supervisor dies in a row.
const DEATHS_OF_ONE: usize = 12;
const FILE_BYTES: usize = 1 << 20;
/// Longer than any stall that ends.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(20);
/// So many downloads may fail, though none should: seen once in some ten runs, as an empty reply,
/// and not understood (CAVEATS).
const AGAIN_MAX: u32 = 1;
/// Past the guest's own, so that it is the guest that says what did not come back.
pub const CONTROL_LIMIT: Duration = Duration::from_secs(30);

pub fn scenarios() -> Vec<Scenario> {
    let mut all: Vec<Scenario> = Vec::new();
    for cpus in [1, 2] {
        all.push(Scenario::shared(4, format!("recovery-beside-network/other/{cpus}"), move |bench| {
            serve_on(bench, cpus, break_each)
        }));
    }
    all.push(Scenario::shared(4, "recovery-beside-network/monitor/1".into(), |bench| {
        serve_on(bench, 4, break_monitor)
    }));
    all.push(Scenario::shared(4, "recovery-beside-network/monitor/3".into(), lose_tcp));
    all
}

/// One thread downloads again and again, with one connection each time, the other breaks.
pub fn serve_on(bench: &Bench, cpus: u32, break_some: impl FnOnce(&mut Guest) -> Result<()>) -> Result<()> {
    let page = content(FILE_BYTES);
    let (guest, address) = web::serve(bench, MachineType::Q35, cpus, page.clone())?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        web::fetch(&guest.liveness(), &format!("{address}/ready"), web::READY_LIMIT)?;
        let broken = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let (mut downloads, mut again) = (0, 0);
                // Once more after the last failure.
                loop {
                    let last = broken.load(Ordering::Acquire);
                    let got = match web::fetch_once(&format!("{address}/file"), DOWNLOAD_LIMIT) {
                        Ok(got) => got,
                        Err(error) if again < AGAIN_MAX => {
                            again += 1;
                            println!("     other/{cpus}: download {downloads} is tried again: {error:#}");
                            continue;
                        }
                        Err(error) => return Err(error.context(format!("download {downloads}"))),
                    };
                    ensure!(got == page, "download {downloads} has {} bytes, or others", got.len());
                    downloads += 1;
                    if last {
                        return Ok(downloads);
                    }
                }
            });
            let outcome = break_some(guest);
            broken.store(true, Ordering::Release);
            let served = client.join().unwrap_or_else(|_| bail!("the client failed"));
            let downloads: u32 = all_well(served, [outcome])?;
            println!("     other/{cpus}: {downloads} downloads meanwhile");
            Ok(())
        })
    })
}

/// The monitor of the core where the driver is dies, in each way: the core's programs are lost, run
/// again with the core, and so do all that used memory of it.
fn break_monitor(guest: &mut Guest) -> Result<()> {
    for (number, verb) in ["kill", "fault", "hang"].into_iter().enumerate() {
        let request = format!("chaos {verb} monitor-1");
        let reply = guest.control(&request, CONTROL_LIMIT).with_context(|| request.clone())?;
        ensure!(reply.contains(&format!("generation {} serves", number + 2)), "{request}: {reply}");
        for victim in ["virtio-net", "ip"] {
            guest.heard(&format!("{victim} restarted, generation {}", number + 2), web::READY_LIMIT)?;
        }
    }
    Ok(())
}

/// The core with a component that cannot be recovered is lost: one line says so, and the machine
/// ends.
fn lose_tcp(bench: &Bench) -> Result<()> {
    let (guest, _) = web::serve(bench, MachineType::Q35, 4, content(FILE_BYTES))?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        // Nobody is left to answer.
        let _ = guest.control("chaos fault monitor-3", CONTROL_LIMIT);
        guest.heard("tcp ended (killed) and its state cannot be recovered: the machine ends", web::READY_LIMIT)?;
        Ok(())
    })
}

fn break_each(guest: &mut Guest) -> Result<()> {
    let mut generation = 1;
    for _ in 0..ROUNDS {
        for verb in FAILURES {
            generation += 1;
            for victim in VICTIMS {
                let request = format!("chaos {verb} {victim}");
                let reply = guest.control(&request, CONTROL_LIMIT).with_context(|| request.clone())?;
                let expected = format!("{victim}; generation {generation} serves");
                ensure!(reply.starts_with("ok ") && reply.contains(&expected), "{request}: {reply}");
                if victim == "names" {
                    // It serves, and may not have been told all yet: who asks waits for that.
                    let known = guest.control_lines("names sockets", CONTROL_LIMIT)?;
                    ensure!(known.iter().any(|line| line.starts_with("tcp ")), "after {request}: {known:?}");
                }
            }
        }
    }
    // More often than any limit in so short a time once was.
    for _ in 0..DEATHS_OF_ONE {
        let reply = guest.control("chaos kill supervisor", CONTROL_LIMIT).context("chaos kill supervisor")?;
        ensure!(reply.starts_with("ok "), "chaos kill supervisor: {reply}");
    }
    Ok(())
}
