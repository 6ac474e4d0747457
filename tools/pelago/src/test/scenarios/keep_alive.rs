//! Tier 4: clients that ask all the time while driver and IP die in turn: how long does one of them
//! wait for an answer?
//!
//! A download hides what a lone small packet shows: behind a lost packet of a download come others
//! that make the peer repeat it at once, while a lone packet is repeated by a timer of 200 ms
//! (Linux) or 1 s (the emulator's network), doubled each time. So one client keeps a connection and
//! asks again and again, and another makes a connection for each question. The server is Debian's
//! busybox: `nc` with `cat` behind it.

use crate::host::late::all_well;
use crate::host::namespace::{COMMAND_LINE, GUEST, Namespace};
use crate::host::port;
use crate::host::skip::Skip;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Forward, Machine};
use crate::machine::guest::Guest;
use crate::test::scenario::{Bench, Scenario, with_console};
use crate::test::scenarios::recovery::{VICTIMS, break_component};
use crate::test::scenarios::web;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SERVER: [&str; 8] = ["busybox", "nc", "-ll", "-p", "80", "-e", "busybox", "cat"];
const KILLS: usize = 20;
const KILL_EVERY: Duration = Duration::from_millis(1500);
/// Of the nightly form, which breaks things in every way in turn. What serves in between is started
/// at once however often that is (decision 76).
const SOAK_FAILURES: usize = 150;
const SOAK_EVERY: Duration = Duration::from_millis(1100);
/// A component that grows by more than this from the first tenth of the soak to its end leaks.
const GROWTH_KIB_MAX: u64 = 256;
const QUESTION_BYTES: usize = 64;
/// Longer than any stall that is not a hang.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Between two questions over one connection, so that the client leaves the host's cores to the
/// emulator.
const PAUSE: Duration = Duration::from_millis(2);
/// Between two connections: each costs the guest a process.
const PAUSE_FRESH: Duration = Duration::from_millis(150);
/// The aim: of the longest waits after each crash over one connection, 95 % are at most this much
/// above what 99 % of all waits are: the host is busy with the emulator, too.
const STALL_MS_MAX: f64 = 50.0;
/// Who waits as long as this waits for a peer's timer: a packet was lost.
const TIMER_MS: f64 = 900.0;
/// So many of a hundred crashes may lose one: what arrives while the card is reset.
const LOST_PERCENT_MAX: usize = 2;

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for (network, own, cpus) in [("user", false, 1), ("user", false, 2), ("user", false, 4), ("tap", true, 2)] {
        let name = format!("keep-alive/{network}/{cpus}");
        let plan = Plan { verbs: &["kill"], failures: KILLS, every: KILL_EVERY };
        // Half a minute each.
        all.push(Scenario::nightly(4, name, move |bench| run(bench, MachineType::Q35, own, cpus, plan)));
    }
    for (machine, cpus) in [(MachineType::Q35, 2), (MachineType::Microvm, 4)] {
        let plan = Plan { verbs: &["kill", "fault", "hang"], failures: SOAK_FAILURES, every: SOAK_EVERY };
        let name = format!("keep-alive/soak/{}/{cpus}", machine.name());
        all.push(Scenario::nightly(4, name, move |bench| run(bench, machine, false, cpus, plan)));
    }
    let judged: Vec<String> = all.iter().map(|scenario| scenario.name.clone()).collect();
    all.push(Scenario::nightly(4, "keep-alive/limits".into(), judge).judging(judged));
    all
}

/// What is broken, how often, and at what distance.
#[derive(Clone, Copy)]
struct Plan {
    verbs: &'static [&'static str],
    failures: usize,
    every: Duration,
}

fn run(bench: &Bench, machine: MachineType, own_network: bool, cpus: u32, plan: Plan) -> Result<()> {
    let namespace = own_network.then(Namespace::create).transpose()?;
    let port = port::free()?;
    let guest = bench.boot(machine, cpus, &SERVER, |_, machine: &mut Machine| {
        match &namespace {
            Some(namespace) => {
                machine.namespace = Some(namespace.name().to_owned());
                machine.command_line.push(COMMAND_LINE.to_owned());
            }
            None => machine.forwards.push(Forward::local(port, 80)),
        }
        Ok(())
    })?;
    let address = if own_network { format!("{GUEST}:80") } else { format!("127.0.0.1:{port}") };
    let address: SocketAddr = address.parse()?;
    // A thread stays in the namespace it entered, so this one must not.
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            namespace.as_ref().map_or(Ok(()), Namespace::enter)?;
            with_console(guest, |guest| ask_under_fire(bench, guest, address, plan))
        });
        inside.join().unwrap_or_else(|_| bail!("the client failed"))
    })
}

fn ask_under_fire(bench: &Bench, guest: &mut Guest, address: SocketAddr, plan: Plan) -> Result<()> {
    guest.expect("pelago: ready", web::READY_LIMIT)?;
    wait_until_it_answers(address)?;
    let stop = AtomicBool::new(false);
    let (kept, fresh) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let start = Instant::now();
    let (kills, kept_result, fresh_result) = std::thread::scope(|scope| {
        let one = scope.spawn(|| ask(address, true, &stop, &kept));
        let many = scope.spawn(|| ask(address, false, &stop, &fresh));
        let kills = break_in_turn(guest, plan);
        stop.store(true, Ordering::Relaxed);
        (kills, one.join(), many.join())
    });
    let kept_result = kept_result.unwrap_or_else(|_| bail!("the client failed")).context("over one connection");
    let fresh_result =
        fresh_result.unwrap_or_else(|_| bail!("the client failed")).context("with a connection for each question");
    let kills = all_well(kills, [kept_result, fresh_result])?;
    for (what, keep, waits) in [("one connection", true, kept), ("a connection each", false, fresh)] {
        let waits = waits.into_inner().map_err(|_| anyhow::anyhow!("the client failed"))?;
        let stalls = stalls(&kills, &waits);
        report(what, start, &kills, &waits, &stalls);
        bench.note("keep-alive/lost", &stalls.iter().copied().filter(|ms| *ms >= TIMER_MS).collect::<Vec<_>>());
        if keep {
            bench.note("keep-alive/stalls", &stalls);
            bench.note("keep-alive/waits", &waits.iter().map(Wait::ms).collect::<Vec<_>>());
        }
    }
    Ok(())
}

/// One question and its answer.
#[derive(Clone, Copy)]
struct Wait {
    from: Instant,
    to: Instant,
}

impl Wait {
    fn ms(&self) -> f64 {
        (self.to - self.from).as_secs_f64() * 1e3
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT).context("cannot connect")?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn question(stream: &mut TcpStream, number: u64) -> Result<()> {
    let mut question = [0; QUESTION_BYTES];
    question
        .chunks_mut(8)
        .zip(0u64..)
        .for_each(|(bytes, index)| bytes.copy_from_slice(&(number ^ index << 56).to_le_bytes()));
    stream.write_all(&question).context("cannot ask")?;
    let mut answer = [0; QUESTION_BYTES];
    stream.read_exact(&mut answer).context("no answer")?;
    ensure!(answer == question, "question {number} got another answer");
    Ok(())
}

/// Asks until told to stop.
fn ask(address: SocketAddr, keep: bool, stop: &AtomicBool, waits: &Mutex<Vec<Wait>>) -> Result<()> {
    let mut kept = if keep { Some(connect(address)?) } else { None };
    for number in 1.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let from = Instant::now();
        let problem = || format!("question {number}");
        match &mut kept {
            Some(stream) => question(stream, number).with_context(problem)?,
            None => question(&mut connect(address).with_context(problem)?, number).with_context(problem)?,
        }
        if let Ok(mut waits) = waits.lock() {
            waits.push(Wait { from, to: Instant::now() });
        }
        std::thread::sleep(if keep { PAUSE } else { PAUSE_FRESH });
    }
    Ok(())
}

fn wait_until_it_answers(address: SocketAddr) -> Result<()> {
    let end = Instant::now() + web::READY_LIMIT;
    loop {
        match connect(address).and_then(|mut stream| question(&mut stream, 0)) {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > end => return Err(error.context("the server does not answer")),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// When each victim was broken.
fn break_in_turn(guest: &mut Guest, plan: Plan) -> Result<Vec<(&'static str, Instant)>> {
    let mut failures = Vec::with_capacity(plan.failures);
    let start = Instant::now();
    let mut early = Vec::new();
    // Each verb comes to each victim in turn.
    let verbs = plan.verbs.iter().flat_map(|verb| VICTIMS.map(|victim| (*verb, victim))).cycle();
    for (number, (verb, victim)) in (1..=plan.failures as u32).zip(verbs) {
        std::thread::sleep((start + plan.every * number).saturating_duration_since(Instant::now()));
        failures.push((victim, Instant::now()));
        break_component(guest, verb, victim).with_context(|| format!("failure {number}"))?;
        if number as usize == plan.failures / 10 {
            early = memory(guest)?;
        }
    }
    std::thread::sleep(plan.every);
    for ((name, before), (_, after)) in early.iter().zip(memory(guest)?) {
        ensure!(after <= before + GROWTH_KIB_MAX, "{name} grew from {before} to {after} KiB: it leaks");
    }
    Ok(failures)
}

/// Memory of each component on the network's path, in KiB.
fn memory(guest: &mut Guest) -> Result<Vec<(&'static str, u64)>> {
    let lines = guest.control_lines("components", ANSWER_LIMIT)?;
    let of = |name: &&'static str| {
        let line = lines.iter().find(|line| line.split_whitespace().next() == Some(name));
        line.and_then(|line| kibibytes(line))
            .map(|kibibytes| (*name, kibibytes))
            .with_context(|| format!("`components` does not tell of {name}: {lines:?}"))
    };
    ["virtio-net", "ip", "tcp", "supervisor"].iter().map(of).collect()
}

/// From `ip  core 1  generation 3 running  1234 KiB ...`.
fn kibibytes(line: &str) -> Option<u64> {
    line.split(" KiB").next()?.rsplit(' ').next()?.parse().ok()
}

/// For each crash the longest wait that reaches into the time until the next.
fn stalls(kills: &[(&str, Instant)], waits: &[Wait]) -> Vec<f64> {
    let until = |index: usize| kills.get(index + 1).map(|(_, when)| *when);
    let longest = kills.iter().enumerate().map(|(index, (_, when))| {
        let touched = waits.iter().filter(|wait| wait.to > *when && until(index).is_none_or(|until| wait.from < until));
        touched.map(Wait::ms).fold(0.0, f64::max)
    });
    longest.collect()
}

fn report(what: &str, start: Instant, kills: &[(&str, Instant)], waits: &[Wait], stalls: &[f64]) {
    let mut sorted: Vec<f64> = waits.iter().map(Wait::ms).collect();
    sorted.sort_by(f64::total_cmp);
    let part = |percent: usize| sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied();
    let shown = |figures: &[f64]| figures.iter().map(|ms| format!("{ms:.0}")).collect::<Vec<_>>().join(" ");
    println!(
        "     {what}: {} questions, median {:.1} ms, 99 % {:.1} ms, longest {:.1} ms; longest after each crash in ms: {}",
        sorted.len(),
        part(50).unwrap_or_default(),
        part(99).unwrap_or_default(),
        part(100).unwrap_or_default(),
        shown(stalls)
    );
    for wait in waits.iter().filter(|wait| wait.ms() > STALL_MS_MAX) {
        let Some((victim, when)) = kills.iter().rev().find(|(_, when)| *when < wait.to) else { continue };
        println!(
            "       {:.0} ms at {:.3} s, {:.0} ms after the end of {victim}",
            wait.ms(),
            (wait.from - start).as_secs_f64(),
            (wait.from.saturating_duration_since(*when)).as_secs_f64() * 1e3
        );
    }
}

/// SPEC.md's limits, over all of this run of the tests.
fn judge(bench: &Bench) -> Result<()> {
    let (stalls, waits) = (bench.noted("keep-alive/stalls"), bench.noted("keep-alive/waits"));
    let part = |figures: &[f64], percent: usize| {
        figures.get((figures.len() * percent).div_ceil(100).saturating_sub(1)).copied()
    };
    let (Some(stall), Some(calm)) = (part(&stalls, 95), part(&waits, 99)) else {
        bail!(Skip::Cannot("it judges the waits of recovery/keep-alive, and none ran before it".into()));
    };
    let lost = bench.noted("keep-alive/lost").len();
    let crashes = stalls.len();
    println!(
        "     95 % of {crashes} stalls within {stall:.1} ms, 99 % of all waits within {calm:.1} ms; {lost} waits for a timer"
    );
    ensure!(
        stall <= calm + STALL_MS_MAX,
        "{stall:.1} ms is longer than the promised {STALL_MS_MAX} ms above {calm:.1} ms"
    );
    ensure!(lost * 100 <= crashes * LOST_PERCENT_MAX, "{lost} waits of {TIMER_MS} ms or more after {crashes} crashes");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_components_memory_is_read() {
        assert_eq!(kibibytes("ip  core 1 generation 2 running     1234 KiB       5 ms last recovery 9 us"), Some(1234));
        assert_eq!(kibibytes("ok 3 components"), None);
    }

    #[test]
    fn a_stall_belongs_to_the_crash_before_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let waits =
            [(0, 5), (9, 40), (41, 44), (95, 102), (200, 300)].map(|(from, to)| Wait { from: at(from), to: at(to) });
        assert_eq!(
            stalls(&[("ip", at(10)), ("ip", at(100))], &waits).iter().map(|ms| *ms as u32).collect::<Vec<_>>(),
            [31, 100]
        );
    }
}
