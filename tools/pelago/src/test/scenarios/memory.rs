//! Tier 3: a program may have what its core has; one that wants more ends, is told whose limit that
//! was, and leaves the rest of the machine working.

use super::bad_program::compile;
use super::web;
use crate::host::port;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Forward, Machine};
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Result, ensure};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(240);
const PAGE: &[u8] = b"still here\n";
const MACHINE_BYTES: u64 = 1 << 30;
/// More than a program could have when its limit stood in the description.
const FITS_MIB: u64 = 600;
/// More than the machine has.
const TOO_MANY_MIB: u64 = 2048;

pub fn scenarios() -> Vec<Scenario> {
    [1, 2].map(|cpus| Scenario::shared(3, format!("memory/{cpus}"), move |bench| take(bench, cpus))).into()
}

/// Takes memory and touches each page; ends with 7.
fn taker(mib: u64) -> Result<Vec<u8>> {
    let bytes = mib << 20;
    compile(&format!(
        "char *at = (char *)call(9, 0, {bytes}, 3, 0x22, -1, 0);
         if ((unsigned long)at > -4096UL) leave(1);
         for (long i = 0; i < {bytes}L; i += 4096) at[i] = 1;
         leave(7);"
    ))
}

fn take(bench: &Bench, cpus: u32) -> Result<()> {
    let (fits, too_much, port) = (taker(FITS_MIB)?, taker(TOO_MANY_MIB)?, port::free()?);
    let script = "httpd -f -p 80 -h /www & /fits; echo \"fits: $?\"; /too-much; echo \"too much: $?\"; wait";
    let words = ["busybox", "sh", "-c", script];
    let guest = bench.boot(MachineType::Q35, cpus, &words, |root, machine: &mut Machine| {
        machine.memory_bytes = MACHINE_BYTES * u64::from(cpus);
        root.file("root/www/page", 0o644, PAGE.to_vec());
        root.file("root/fits", 0o755, fits);
        root.file("root/too-much", 0o755, too_much);
        machine.forwards.push(Forward::local(port, 80));
        Ok(())
    })?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        guest.heard("fits: 7", LIMIT)?;
        let told = guest.heard(": out of memory: ", LIMIT)?;
        ensure!(told.contains("run -m"), "nobody says what to do: {told}");
        guest.heard("too much: 137", LIMIT)?;
        let got = web::fetch(&guest.liveness(), &format!("http://127.0.0.1:{port}/page"), LIMIT)?;
        ensure!(got == PAGE, "the server beside it gives another page");
        Ok(())
    })
}
