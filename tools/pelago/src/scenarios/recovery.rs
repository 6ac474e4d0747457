//! Tier 4: components die under a download, and the client does not notice.

use crate::emulator::MachineType;
use crate::guest::Guest;
use crate::scenario::{Bench, Scenario, with_console};
use crate::scenarios::web;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const FILE_BYTES: usize = 32 << 20;
const KILLS_EACH: usize = 3;
const VICTIMS: [&str; 2] = ["virtio-net", "ip"];
/// SPEC.md: a download's stall after a crash, at the 95th percentile.
const STALL_MAX: Duration = Duration::from_millis(50);
const CONTROL_LIMIT: Duration = Duration::from_secs(5);
/// Nothing for this long is a broken connection, not a stall.
const SILENCE_MAX: Duration = Duration::from_secs(10);

pub fn scenarios() -> Vec<Scenario> {
    let matrix = MachineType::ALL.into_iter().flat_map(|machine| [1, 2, 4].map(|cpus| (machine, cpus)));
    matrix
        .map(|(machine, cpus)| Scenario {
            name: format!("recovery/{}/{cpus}", machine.name()),
            tier: 4,
            body: Box::new(move |bench| download(bench, machine, cpus)),
        })
        .collect()
}

/// Bytes that repeat nowhere near, so that a lost or doubled packet cannot pass.
fn content() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..FILE_BYTES / 8).flat_map(|_| next().to_le_bytes()).collect()
}

fn download(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    let content = content();
    let (guest, address) = web::serve(bench, machine, cpus, content.clone())?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", web::READY_LIMIT)?;
        let (got, mut stalls) = fetch_under_fire(guest, &address)?;
        ensure!(got == content, "{} bytes came, not the {FILE_BYTES} that were meant, or others", got.len());
        stalls.sort();
        let shown: Vec<_> = stalls.iter().map(|stall| format!("{:.1}", stall.as_secs_f64() * 1e3)).collect();
        println!("     {}/{cpus}: stalls after a kill, ms: {}", machine.name(), shown.join(" "));
        // With six samples the 95th percentile is the largest.
        let worst = stalls.last().copied().unwrap_or_default();
        ensure!(worst <= STALL_MAX, "a stall of {} ms is longer than {} ms", worst.as_millis(), STALL_MAX.as_millis());
        Ok(())
    })
}

/// One connection, read here rather than by curl so that the stall after each kill is seen; returns the body and the stalls.
fn fetch_under_fire(guest: &mut Guest, address: &str) -> Result<(Vec<u8>, Vec<Duration>)> {
    let host = address.trim_start_matches("http://").split('/').next().unwrap_or_default();
    let mut stream = TcpStream::connect(host).context("cannot connect")?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.write_all(b"GET /file HTTP/1.0\r\n\r\n")?;
    let kills = VICTIMS.len() * KILLS_EACH;
    let mut received = Vec::with_capacity(FILE_BYTES + 1024);
    let (mut killed, mut stalls) = (0, Vec::new());
    let mut buffer = vec![0; 64 << 10];
    let mut longest = Duration::ZERO;
    loop {
        if killed < kills && received.len() > FILE_BYTES * (killed + 1) / (kills + 1) {
            if killed > 0 {
                stalls.push(longest);
            }
            let victim = VICTIMS[killed % VICTIMS.len()];
            let reply = guest.control(&format!("chaos kill {victim}"), CONTROL_LIMIT)?;
            if reply.starts_with("error") {
                bail!("chaos kill {victim}: {reply}");
            }
            killed += 1;
            longest = Duration::ZERO;
        }
        let before = Instant::now();
        let count =
            stream.read(&mut buffer).with_context(|| format!("after {} bytes and {killed} kills", received.len()))?;
        longest = longest.max(before.elapsed());
        if count == 0 {
            break;
        }
        received.extend_from_slice(&buffer[..count]);
    }
    stalls.push(longest);
    ensure!(killed == kills, "the connection ended after {} bytes and {killed} kills", received.len());
    let head = received.windows(4).position(|window| window == b"\r\n\r\n").context("no HTTP header came")?;
    Ok((received.split_off(head + 4), stalls))
}
