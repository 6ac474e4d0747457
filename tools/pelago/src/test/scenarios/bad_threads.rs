//! Tier 4: threads that take from each other what a call needs, and processes that end at any
//! moment (`bad_threads.c`): they harm themselves only, and a web server beside them keeps
//! answering.

use super::checks;
use super::random::{seed_of_the_night, seed_wished};
use super::web;
use crate::host::port;
use crate::machine::emulator::Forward;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

const CHECKS: &str = include_str!("bad_threads.c");
const LIMIT: Duration = Duration::from_secs(120);
const NIGHTLY_LIMIT: Duration = Duration::from_secs(1200);
/// Processes that end at any moment.
const ROUNDS: u32 = 30;
const NIGHTLY_ROUNDS: u32 = 500;
/// A failure's is given by `PELAGO_SEED`.
const SEED: u64 = 20_262;
const PAGE: &[u8] = b"still here\n";

pub fn scenarios() -> Vec<Scenario> {
    let short = |cpus: u32| {
        Scenario::shared(4, format!("bad-threads/{cpus}"), move |bench| check(bench, cpus, SEED, ROUNDS, LIMIT))
    };
    let mut all: Vec<_> = [1, 2].map(short).into();
    all.push(Scenario::nightly(4, "bad-threads/2/long".into(), |bench| {
        check(bench, 2, seed_of_the_night(), NIGHTLY_ROUNDS, NIGHTLY_LIMIT)
    }));
    all
}

fn check(bench: &Bench, cpus: u32, seed: u64, rounds: u32, limit: Duration) -> Result<()> {
    let port = port::free()?;
    let script = format!(
        "httpd -f -p 80 -h /www & server=$!; /checks {} {rounds}; echo \"ended: $?\"; read line; kill $server",
        seed_wished(seed)?
    );
    let guest = checks::boot_by(bench, cpus, checks::compile(CHECKS)?, &script, |root, machine| {
        root.file("root/www/page", 0o644, PAGE.to_vec());
        machine.forwards.push(Forward::local(port, 80));
    })?;
    with_console(guest, |guest| {
        let line = guest.expect("ended: ", limit)?;
        ensure!(line.ends_with("ended: 0"), "the program ended badly: {line}");
        let got = web::fetch(&guest.liveness(), &format!("http://127.0.0.1:{port}/page"), LIMIT)
            .context("a request beside what is left")?;
        ensure!(got == PAGE, "the server beside it gives another page");
        guest.input().send(b"\n");
        guest.finish(LIMIT).map(drop)
    })
}
