//! Tier 4: a Linux web server in the guest answers the host's curl.

use crate::host::child;
use crate::host::late::of_transfer;
use crate::host::port;
use crate::image::machine_type::MachineType;
use crate::machine::emulator::{Forward, Machine};
use crate::machine::guest::Guest;
use crate::machine::liveness::GuestLiveness;
use crate::test::scenario::{Bench, Scenario, with_console};
use anyhow::{Context, Result, bail, ensure};
use std::process::Command;
use std::time::{Duration, Instant};

pub const READY_LIMIT: Duration = Duration::from_secs(60);
/// What busybox serves in these scenarios.
pub const SERVER: [&str; 7] = ["busybox", "httpd", "-f", "-p", "80", "-h", "/www"];
const CPUS: [u32; 3] = [1, 2, 4];
/// Of one connection while the server comes up.
const TRY_LIMIT: Duration = Duration::from_secs(10);

pub fn scenarios() -> Vec<Scenario> {
    let matrix = MachineType::ALL.into_iter().flat_map(|machine| CPUS.into_iter().map(move |cpus| (machine, cpus)));
    let matrix = matrix.chain([1, 2].map(|cpus| (MachineType::MicrovmMmio, cpus)));
    matrix
        .map(|(machine, cpus)| {
            Scenario::shared(4, format!("web/{}/{cpus}", machine.name()), move |bench| page(bench, machine, cpus))
        })
        .collect()
}

/// Boots the web server with a file at `/file` and a short one at `/ready`; returns the guest and
/// its address, `http://HOST:PORT`.
pub fn serve(bench: &Bench, machine: MachineType, cpus: u32, content: Vec<u8>) -> Result<(Guest, String)> {
    serve_on(bench, machine, cpus, content, |_| ())
}

/// As [`serve`], on a machine changed by `change`.
pub fn serve_on(
    bench: &Bench,
    machine: MachineType,
    cpus: u32,
    content: Vec<u8>,
    change: impl FnOnce(&mut Machine),
) -> Result<(Guest, String)> {
    let port = port::free()?;
    let forward = Forward::local(port, 80);
    let guest = bench.boot(machine, cpus, &SERVER, |root, machine: &mut Machine| {
        // Three copies: the archive, the file system's, and what is on its way out.
        machine.memory_bytes += 3 * content.len() as u64;
        root.file("root/www/file", 0o644, content);
        root.file("root/www/ready", 0o644, b"ready\n".to_vec());
        machine.forwards.push(forward);
        change(machine);
        Ok(())
    })?;
    Ok((guest, format!("http://127.0.0.1:{port}")))
}

/// How long each try of the first question to a server may take: passt connects at once, asks a
/// guest that is not up only once, and gives up after 10 s. So the first tries are short.
pub fn first_tries() -> impl Iterator<Item = Duration> {
    [1, 1, 1, 2, 4].into_iter().chain(std::iter::repeat(10)).map(Duration::from_secs)
}

/// As [`fetch`], of a server behind passt that may not be up yet.
pub fn fetch_first(liveness: &GuestLiveness, address: &str, limit: Duration) -> Result<Vec<u8>> {
    fetch_in(liveness, address, limit, first_tries())
}

/// Fetches with the host's curl; the emulator answers a connection before the guest does, so a
/// server that is not up yet shows as a reset, and is asked again while its machine runs. Once it
/// serves, use [`fetch_once`].
pub fn fetch(liveness: &GuestLiveness, address: &str, limit: Duration) -> Result<Vec<u8>> {
    fetch_in(liveness, address, limit, std::iter::repeat(TRY_LIMIT))
}

fn fetch_in(
    liveness: &GuestLiveness,
    address: &str,
    limit: Duration,
    tries: impl Iterator<Item = Duration>,
) -> Result<Vec<u8>> {
    let end = Instant::now() + limit;
    for most in tries {
        let problem = match fetch_once(address, most) {
            Ok(body) => return Ok(body),
            Err(problem) => problem,
        };
        liveness.check()?;
        if Instant::now() > end {
            return Err(problem.context(format!("no answer within {} s", limit.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("{address} was not asked")
}

/// Fetches with one connection of the host's curl: what fails or takes longer has failed.
pub fn fetch_once(address: &str, limit: Duration) -> Result<Vec<u8>> {
    let mut curl = Command::new("curl");
    let most = limit.as_secs().to_string();
    curl.args(["--silent", "--show-error", "--fail", "--noproxy", "*", "--max-time", &most, address]);
    let output = child::output(&mut curl, limit + child::SHORT)
        .map_err(of_transfer)
        .context("curl, which is Debian's package curl")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

fn page(bench: &Bench, machine: MachineType, cpus: u32) -> Result<()> {
    page_on(bench, machine, cpus, |_| ())
}

/// Fetches a page some times from a server on a machine changed by `change`.
pub fn page_on(bench: &Bench, machine: MachineType, cpus: u32, change: impl FnOnce(&mut Machine)) -> Result<()> {
    let content: Vec<u8> = (0..100_000u32).flat_map(|number| number.to_le_bytes()).collect();
    let (guest, address) = serve_on(bench, machine, cpus, content.clone(), change)?;
    with_console(guest, |guest| {
        guest.expect("pelago: ready", READY_LIMIT)?;
        for round in 1..=10 {
            let got = fetch(&guest.liveness(), &format!("{address}/file"), READY_LIMIT)?;
            ensure!(
                got == content,
                "request {round}: {} bytes came, not the {} that were meant, or others",
                got.len(),
                content.len()
            );
        }
        Ok(())
    })
}
