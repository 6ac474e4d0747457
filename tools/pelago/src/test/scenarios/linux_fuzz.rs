//! Tier 4: a fuzzer of Linux calls (`linux_fuzz.c`). It ends as it likes, but nobody beside it
//! notices, servers live, and when it has ended or was killed amid its calls nothing of it is left.

use super::checks;
use super::killed_processes::{Held, is_left, settled};
use super::random::{seed_of_the_night, seed_wished};
use super::web;
use crate::host::port;
use crate::machine::emulator::Forward;
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, ensure};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const FUZZER: &str = include_str!("linux_fuzz.c");
const MEMORY_BYTES: u64 = 512 << 20;
/// Of a request to the neighbour, and of what ends at once.
const LIMIT: Duration = Duration::from_secs(60);
const PAGE: &[u8] = b"still here\n";
/// Of a hundred calls, those that are not to be refused: what is refused at once tests little.
const ACCEPTED_AT_LEAST: u64 = 25;
/// What servers' heaps may have grown by: each is as large as it was ever needed, and files of this
/// program differ in size by so much. Of 60,000 calls they grew by what 10,000 made them grow.
const HEAPS_KIB_MAX: u64 = 4096;
/// How often it is asked, at most, what there is room for.
const PROBES: usize = 5;
/// Failures' seeds are given by `PELAGO_SEED`.
const SEED: u64 = 20_263;
/// Calls, other than the scenario's.
const CALLS_VARIABLE: &str = "PELAGO_LINUX_FUZZ_CALLS";

/// How much is done.
#[derive(Clone, Copy)]
struct Amount {
    calls: u64,
    /// Processes that are killed.
    kills: u32,
    limit: Duration,
}

/// Makes servers have what they keep.
const WARM: Amount = Amount { calls: 3_000, kills: 1, limit: Duration::from_secs(120) };
const SHORT: Amount = Amount { calls: 10_000, kills: 5, limit: Duration::from_secs(120) };
/// One of the parts of a million calls by night: an emulated core makes some 1,000 calls a second.
const PART: Amount = Amount { calls: 200_000, kills: 10, limit: Duration::from_secs(900) };
const PARTS: u32 = 5;
/// Processes of one part have seeds that follow each other.
const SEEDS_APART: u64 = 1 << 32;

pub fn scenarios() -> Vec<Scenario> {
    let short = Scenario::shared(4, "linux-fuzz/2".into(), |bench| fuzz(bench, 2, SEED, SHORT));
    let part = |part: u32| {
        Scenario::nightly(4, format!("linux-fuzz/long/{part}"), move |bench| {
            fuzz(bench, 1 + part % 2, seed_of_the_night() + u64::from(part) * SEEDS_APART, PART)
        })
    };
    [short].into_iter().chain((1..=PARTS).map(part)).collect()
}

fn fuzz(bench: &Bench, cpus: u32, seed: u64, amount: Amount) -> Result<()> {
    const SCRIPT: &str = "httpd -f -p 80 -h /www & \
        while read line; do /checks $line; rm -rf /tmp/fuzz; echo round over; done";
    let seed = seed_wished(seed)?;
    let calls = std::env::var(CALLS_VARIABLE).ok().map(|text| text.parse());
    let calls = calls.transpose().with_context(|| format!("{CALLS_VARIABLE} is a number"))?.unwrap_or(amount.calls);
    let amount = Amount { calls, ..amount };
    let port = port::free()?;
    let guest = checks::boot_by(bench, cpus, checks::compile(FUZZER)?, SCRIPT, |root, machine| {
        root.file("root/www/page", 0o644, PAGE.to_vec());
        machine.forwards.push(Forward::local(port, 80));
        machine.memory_bytes = MEMORY_BYTES;
    })?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        let address = format!("http://127.0.0.1:{port}/page");
        beside(guest, &address, |guest| play(guest, seed ^ 1, WARM))?;
        let (probed, before) = (probe(guest)?, settled(guest, |_| true)?);
        let played = beside(guest, &address, |guest| play(guest, seed, amount));
        if played.is_err() {
            // What cores had done, twice: a machine that is slow to its end does something else.
            for line in
                [guest.control_lines("cores", LIMIT), guest.control_lines("cores", LIMIT)].iter().flatten().flatten()
            {
                println!("     linux-fuzz: {line}");
            }
        }
        played?;
        as_much_room(guest, &probed)?;
        nothing_is_left(guest, &before)?;
        nobody_broke(guest)
    })
}

/// Makes calls, and judges them.
fn play(guest: &mut Guest, seed: u64, amount: Amount) -> Result<()> {
    guest.input().send(format!("{seed} {} {}\n", amount.calls, amount.kills).as_bytes());
    let line = guest.expect(" made, ", amount.limit).with_context(|| format!("seed {seed}"))?;
    let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let count = |word: &str| {
        let pair = words.windows(2).find(|pair| pair[1] == word);
        pair.and_then(|pair| pair[0].parse::<u64>().ok()).with_context(|| format!("no {word} in: {line}"))
    };
    println!("     linux-fuzz: {line}");
    guest.expect("round over", LIMIT)?;
    ensure!(count("stuck")? == 0 && count("wrong")? == 0, "some processes ended as they should not: {line}");
    ensure!(count("made")? >= amount.calls, "not all calls were made: {line}");
    ensure!(count("accepted")? * 100 >= count("made")? * ACCEPTED_AT_LEAST, "too many calls were refused: {line}");
    Ok(())
}

/// Fetches a page again and again beside what is done.
fn beside(guest: &mut Guest, address: &str, what: impl FnOnce(&mut Guest) -> Result<()>) -> Result<()> {
    let is_over = AtomicBool::new(false);
    let liveness = guest.liveness();
    std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let got = web::fetch(&liveness, address, LIMIT).context("the neighbour")?;
                ensure!(got == PAGE, "the neighbour gives another page");
            }
            anyhow::Ok(())
        });
        let done = what(guest);
        is_over.store(true, Ordering::Relaxed);
        let answered = neighbour.join().map_err(|_| anyhow::anyhow!("the neighbour's client panicked"))?;
        done.and(answered)
    })
}

/// How many there may be of what servers keep, as a line of numbers.
fn probe(guest: &mut Guest) -> Result<String> {
    guest.input().send(b"probe\n");
    let line = guest.expect("probe: ", LIMIT)?;
    guest.expect("round over", LIMIT)?;
    Ok(line.split("probe:").nth(1).unwrap_or_default().to_owned())
}

/// There is room for as much as before. Who gives back what processes had may be late; what is lost
/// never comes.
fn as_much_room(guest: &mut Guest, before: &str) -> Result<()> {
    let mut now = probe(guest)?;
    for _ in 1..PROBES {
        if now == before {
            break;
        }
        now = probe(guest)?;
    }
    ensure!(now == before, "there was room for{before}, and now for{now}");
    Ok(())
}

/// As much as before, once servers have done their work.
fn nothing_is_left(guest: &mut Guest, before: &[Held]) -> Result<()> {
    let after = settled(guest, |now| is_left(before, now, HEAPS_KIB_MAX))?;
    ensure!(is_left(before, &after, HEAPS_KIB_MAX), "something is left behind: {after:?} instead of {before:?}");
    Ok(())
}

/// No proxy and no server has failed: none panicked, faulted where no program does, or came again.
fn nobody_broke(guest: &Guest) -> Result<()> {
    const SIGNS: [&str; 3] = ["panicked", ") exception ", "restarted"];
    let broke = guest.transcript.iter().find(|line| SIGNS.iter().any(|sign| line.contains(sign)));
    ensure!(broke.is_none(), "something broke: {broke:?}");
    Ok(())
}
