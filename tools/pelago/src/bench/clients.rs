//! Clients on this machine, of a web server in the guest: a few at a time, each with one request
//! under way.

use super::outside::cpu_us;
use super::systems::{Boot, PAGE_BYTES, PAGE_PATH, Side, Systems};
use crate::bench::peer::MEASURE;
use crate::host::port;
use crate::image::machine_type::MachineType;
use crate::machine::guest::Guest;
use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
/// A page that is to come at all comes within this.
const ANSWER_SOON: Duration = Duration::from_millis(100);
const CLIENTS: usize = 4;
/// Of each client, in each of two passes: one warms up, one is measured.
const REQUESTS_KEPT: usize = 500;
const REQUESTS_SINGLE: usize = 100;
const REQUEST_KEPT: &[u8] = b"GET /file HTTP/1.1\r\nHost: pelago\r\n\r\n";
const REQUEST_SINGLE: &[u8] = b"GET /file HTTP/1.0\r\n\r\n";

/// The measuring program's own server: one process, epoll.
pub const EPOLL: [&str; 4] = [MEASURE, "serve", "80", PAGE_PATH];
/// A process for each connection.
const BUSYBOX: [&str; 7] = ["busybox", "httpd", "-f", "-p", "80", "-h", "/www"];

/// Boots a server and waits until a page has come; the guest and where the server is.
pub fn serve(
    systems: &Systems,
    side: Side,
    machine: MachineType,
    cpus: u32,
    words: &[&str],
) -> Result<(Guest, String)> {
    let port = port::free()?;
    let mut guest = systems.boot(side, &Boot { words, port: Some((port, 80)), ..Boot::bare(machine, cpus) })?;
    let ready = if side == Side::Pelago { "pelago: ready" } else { crate::bench::peer::READY };
    guest.expect(ready, LIMIT)?;
    let host = format!("127.0.0.1:{port}");
    let start = Instant::now();
    // The emulator accepts at once and tells the guest when it can: a first connection that came
    // too early would wait for its timer.
    while let Err(error) = single(&host, ANSWER_SOON) {
        if let Ok(None) = guest.next(Duration::ZERO) {
            eprint!("{}", guest.tail());
            bail!("the guest ended before a page came; the end of its console is above");
        }
        ensure!(start.elapsed() < LIMIT, "no page within {} s: {error:#}", LIMIT.as_secs());
    }
    Ok((guest, host))
}

/// A request on a connection of its own.
fn single(host: &str, limit: Duration) -> Result<()> {
    let mut stream = connect(host, limit)?;
    stream.write_all(REQUEST_SINGLE)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("a request was not answered")?;
    ensure!(answer.len() > PAGE_BYTES, "an answer has {} bytes only", answer.len());
    Ok(())
}

fn connect(host: &str, limit: Duration) -> Result<TcpStream> {
    let stream = TcpStream::connect(host).context("cannot connect")?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Requests one after the other on one connection.
pub fn kept(host: &str, requests: usize) -> Result<()> {
    let mut stream = connect(host, LIMIT)?;
    let mut answer = vec![0; 2 * PAGE_BYTES];
    for _ in 0..requests {
        stream.write_all(REQUEST_KEPT)?;
        let mut have = 0;
        while !is_whole(&answer[..have]) {
            let count = stream.read(&mut answer[have..]).context("a request was not answered")?;
            ensure!(count > 0, "the server ended a connection that was to be kept, after {have} bytes");
            have += count;
        }
    }
    Ok(())
}

/// A head, its empty line, and the page.
fn is_whole(answer: &[u8]) -> bool {
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
    head.is_some_and(|place| answer.len() >= place + 4 + PAGE_BYTES)
}

/// Lets so many clients do the same, until all are done.
pub fn side_by_side(count: usize, client: impl Fn() -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..count).map(|_| scope.spawn(&client)).collect();
        clients.into_iter().try_for_each(|client| client.join().unwrap_or_else(|_| bail!("a client panicked")))
    })
}

fn singles(host: &str, requests: usize) -> Result<()> {
    (0..requests).try_for_each(|_| single(host, LIMIT))
}

/// Asks the server at an address for so many pages.
type Client = fn(&str, usize) -> Result<()>;

/// How pages are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// From the epoll server, on a few connections that are kept.
    Kept,
    /// From the epoll server, each page on a connection of its own.
    Single,
    /// The same from busybox httpd, which forks for each connection.
    Busybox,
}

impl Load {
    /// Requests per second, and microseconds of the emulator's processor time for each.
    pub fn measure(self, systems: &Systems, side: Side, machine: MachineType, cpus: u32) -> Result<Vec<f64>> {
        let (words, client, requests): (&[&str], Client, usize) = match self {
            Load::Kept => (&EPOLL, kept, REQUESTS_KEPT),
            Load::Single => (&EPOLL, singles, REQUESTS_SINGLE),
            Load::Busybox => (&BUSYBOX, singles, REQUESTS_SINGLE),
        };
        let (guest, host) = serve(systems, side, machine, cpus, words)?;
        let all = || side_by_side(CLIENTS, || client(&host, requests));
        all()?;
        let (before_us, start) = (cpu_us(guest.process_id())?, Instant::now());
        all()?;
        let (seconds, us) = (start.elapsed().as_secs_f64(), cpu_us(guest.process_id())? - before_us);
        let count = (CLIENTS * requests) as f64;
        Ok(vec![count / seconds, us / count])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_page() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n".to_vec();
        let whole = [head.clone(), vec![b'x'; PAGE_BYTES]].concat();
        assert!(is_whole(&whole) && !is_whole(&whole[..whole.len() - 1]) && !is_whole(&head) && !is_whole(b""));
    }
}
