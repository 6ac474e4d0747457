//! Tier 4: 200 clients of a server that nobody here wrote, while each component that can be started
//! again dies or hangs, one a second. No connection ends, and no answer is wrong.
//!
//! The clients keep their connections; what they ask for differs by client and by question, so that
//! an answer which is late, lost, doubled or another's is seen.

use super::cli::Running;
use super::random::Random;
use super::servers::{Server, wait_until};
use super::web::first_tries;
use crate::host::port;
use crate::image::built::Origin;
use crate::machine::control;
use crate::test::scenario::{Bench, Scenario};
use anyhow::{Context, Result, bail, ensure};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const COMPONENTS: [&str; 6] = ["virtio-net", "ip", "names", "memory", "console", "supervisor"];
const WAYS: [&str; 4] = ["kill", "fault", "hang", "block"];
const SEED: u64 = 0x5eed_0012;
const CLIENTS: usize = 200;
const EVERY: Duration = Duration::from_secs(1);
/// Faults of a plain run, and of the nightly one.
const BRIEF: usize = 8;
const LONG: usize = 60;
/// A client that waits so long has been lost.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// So that the host's cores are the emulator's.
const PAUSE: Duration = Duration::from_millis(20);
const PAGES: usize = 7;
const PAGE_BYTES: usize = 3000;

const NGINX: &str = "daemon off; worker_processes 2; error_log /dev/stderr warn; pid /tmp/nginx.pid;\n\
    events { worker_connections 512; }\n\
    http { access_log off; keepalive_requests 1000000; keepalive_timeout 600;\n\
    client_body_temp_path /tmp/b; proxy_temp_path /tmp/p; fastcgi_temp_path /tmp/f;\n\
    uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s; server { listen 8080; root /served; } }\n";

/// Asks once over a connection, as client and question say, and checks the answer.
type Ask = fn(&mut BufReader<TcpStream>, usize, usize) -> Result<()>;

pub fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for name in ["redis", "nginx"] {
        let brief =
            Scenario::alone(4, format!("server-faults/{name}"), move |bench| run(bench, name, BRIEF)).in_pairs();
        // The same faults beside another server.
        all.push(brief.by_night(name == "nginx"));
        all.push(Scenario::nightly(4, format!("server-faults/{name}/minute"), move |bench| run(bench, name, LONG)));
    }
    all
}

fn run(bench: &Bench, name: &'static str, faults: usize) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let (port, words, ask): (u16, &[&str], Ask) = match name {
        "redis" => (6379, &["redis-server", "--protected-mode", "no", "--save", ""], ask_redis),
        _ => (8080, &["nginx", "-c", "/served/nginx.conf"], ask_nginx),
    };
    crate::host::files::write(&folder.path().join("nginx.conf"), NGINX.as_bytes())?;
    for page in 0..PAGES {
        crate::host::files::write(&folder.path().join(page.to_string()), &content(page))?;
    }
    let host = port::free()?;
    let (origin, folder) = (Origin::Root(name), folder.path());
    let server = Server { origin, cpus: 2, port: (host, port), folder, words };
    let mut run = server.start()?;
    let tries = RefCell::new(first_tries());
    wait_until(&mut run, || {
        let mut stream = connected(host)?;
        stream.get_ref().set_read_timeout(tries.borrow_mut().next())?;
        ask(&mut stream, 0, 0)
    })?;
    let stop = AtomicBool::new(false);
    let (broken, clients) = std::thread::scope(|scope| {
        let stopped = &stop;
        let clients: Vec<_> =
            (1..=CLIENTS).map(|client| scope.spawn(move || keep_asking(host, client, ask, stopped))).collect();
        let broken = break_things(&mut run, faults);
        stop.store(true, Ordering::Relaxed);
        (broken, clients.into_iter().map(|client| client.join()).collect::<Vec<_>>())
    });
    let broken = broken?;
    let mut waits = Vec::new();
    for client in clients {
        waits.extend(client.unwrap_or_else(|_| bail!("a client failed"))?);
    }
    waits.sort_by(f64::total_cmp);
    let at = |part: usize| waits.get(waits.len() * part / 1000).copied().unwrap_or_default();
    println!(
        "     {name}: {} answers to {CLIENTS} clients, none wrong, under {broken} faults; half of them within {:.1} ms, 99.9 % within {:.0} ms",
        waits.len(),
        at(500),
        at(999)
    );
    bench.note("server-faults/waits", &waits);
    run.signal(nix::sys::signal::Signal::SIGTERM)?;
    run.finish().map(drop)
}

/// Breaks one component a second, and gives how many.
fn break_things(run: &mut Running, faults: usize) -> Result<usize> {
    let mut random = Random(SEED);
    for _ in 0..faults {
        std::thread::sleep(EVERY);
        run.lives()?;
        let (way, component) = (WAYS[random.below(WAYS.len())], COMPONENTS[random.below(COMPONENTS.len())]);
        let request = format!("chaos {way} {component}");
        let reply = control::request(Some(run.id()), &request).context(request.clone())?;
        // A console that dies takes with it what it had read of the request.
        let is_lost = component == "console";
        ensure!(is_lost || reply.last().is_some_and(|line| line.starts_with("ok")), "{request}: {reply:?}");
    }
    std::thread::sleep(EVERY);
    Ok(faults)
}

fn connected(port: u16) -> Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(("127.0.0.1", port)).context("no connection")?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

/// Gives how long each answer was waited for, in ms.
fn keep_asking(port: u16, client: usize, ask: Ask, stop: &AtomicBool) -> Result<Vec<f64>> {
    let mut stream = connected(port)?;
    let mut waits = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let number = waits.len() + 1;
        ask(&mut stream, client, number).with_context(|| format!("client {client}, question {number}"))?;
        waits.push(start.elapsed().as_secs_f64() * 1e3);
        std::thread::sleep(PAUSE * (1 + client as u32 % 8));
    }
    Ok(waits)
}

/// Counts a number of the client's own, which tells how often the question arrived.
fn ask_redis(stream: &mut BufReader<TcpStream>, client: usize, number: usize) -> Result<()> {
    write!(stream.get_mut(), "INCR client-{client}\r\n").context("it cannot be sent")?;
    let mut line = String::new();
    stream.read_line(&mut line).context("no answer")?;
    ensure!(number == 0 || line == format!(":{number}\r\n"), "the answer is {line:?}");
    Ok(())
}

fn content(page: usize) -> Vec<u8> {
    let mut random = Random(page as u64 + 1);
    (0..PAGE_BYTES + 100 * page).map(|_| random.below(256) as u8).collect()
}

fn ask_nginx(stream: &mut BufReader<TcpStream>, client: usize, number: usize) -> Result<()> {
    let page = (client + number) % PAGES;
    write!(stream.get_mut(), "GET /{page} HTTP/1.1\r\nHost: here\r\n\r\n").context("it cannot be sent")?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(stream.read_line(&mut head).context("no answer")? > 0, "the connection ended after {head:?}");
    }
    let expected = content(page);
    let length = format!("Content-Length: {}\r\n", expected.len());
    ensure!(head.starts_with("HTTP/1.1 200 ") && head.contains(&length), "the answer is {head:?}");
    let mut body = vec![0; expected.len()];
    stream.read_exact(&mut body).context("half an answer")?;
    ensure!(body == expected, "the page is another");
    Ok(())
}
