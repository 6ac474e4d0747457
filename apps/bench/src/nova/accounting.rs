//! What a request costs its client's time, with a worker for each client and with one worker whom
//! clients help (figure 5), on one core.
//!
//! Each client is a context with time of its own, all of one priority, and asks again and again; it
//! reads its own bill before and after each request. The ends of slices fall where they fall: with
//! one worker, in most cases into a request, which the next client then helps to its end.

use abi::{Error, Handle};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use runtime::{Serve, Start, Waiter};

use super::number;
use crate::parts::{Task, serve, start};
use crate::sample::work;

/// As many as the paper's machine has processors.
const CLIENTS: usize = 8;
/// Requests of a client; a word of the command line asks for others.
const REQUESTS: u64 = 6_000;
const REQUESTS_WORD: &str = "nova.requests=";
/// Instructions of a request: about the cycles of the paper's.
const REQUEST: u64 = 5_000;
/// The priority of the description, in classes, and a slice for some 350 requests.
const PRIORITY: u64 = 2;
const SLICE_US: u64 = 2_000;
/// Bills by steps of so many ns; the last one has all that are longer.
const STEP_NS: u64 = 100;
const STEPS: usize = 256;
/// Of them in a line of the log.
const TOLD_IN_A_LINE: usize = 16;
/// Badge bit: all clients are done.
const DONE: u64 = 1 << 57;

/// A server that only computes.
struct Computes;

impl Serve for Computes {
    fn serve(&self, _: u64, [instructions, ..]: [u64; 4]) -> [u64; 3] {
        work(instructions);
        [0; 3]
    }
}

/// What all clients of a scheme share.
struct Scheme {
    /// Raised once for each client, and once when the last has been served.
    begin: Handle,
    done: Handle,
    requests: u64,
    left: AtomicU64,
    has_failed: AtomicBool,
    /// How many requests cost so many steps.
    bills: [AtomicU64; STEPS],
}

/// A client, as its context finds it.
struct Client {
    scheme: &'static Scheme,
    portal: Handle,
    /// Its time: known once it has been started, and so before `begin`.
    time: AtomicU64,
}

impl Client {
    fn bill_ns(&self) -> u64 {
        let time = Handle(self.time.load(Ordering::Acquire));
        sys::schedule_stat(time).map_or(0, |(used_ns, ..)| used_ns)
    }

    fn ask(&self) {
        let scheme = self.scheme;
        let mut before_ns = self.bill_ns();
        for _ in 0..scheme.requests {
            let answer = sys::portal_call(self.portal, [REQUEST, 0, 0, 0], u64::MAX);
            let after_ns = self.bill_ns();
            let step = ((after_ns - before_ns) / STEP_NS).min(STEPS as u64 - 1);
            scheme.bills[step as usize].fetch_add(1, Ordering::Relaxed);
            if answer.is_err() {
                scheme.has_failed.store(true, Ordering::Relaxed);
            }
            before_ns = after_ns;
        }
        if scheme.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = sys::semaphore_up(scheme.done, 1);
        }
    }
}

impl Task for Client {
    fn run(&self) {
        if sys::semaphore_down(self.scheme.begin, u64::MAX).is_ok() {
            self.ask();
        }
    }
}

/// Has all clients ask at once, each by its portal; tells their bills and what all took.
async fn measure(name: &str, portals: &[Handle], requests: u64) -> Result<(), Error> {
    let scheme: &'static Scheme = Box::leak(Box::new(Scheme {
        begin: sys::semaphore_alloc(Handle::SELF_RAM, 0)?,
        done: sys::semaphore_alloc(Handle::SELF_RAM, 0)?,
        requests,
        left: AtomicU64::new(portals.len() as u64),
        has_failed: AtomicBool::new(false),
        bills: [const { AtomicU64::new(0) }; STEPS],
    }));
    let _waiter = Waiter::start(scheme.done, DONE, PRIORITY)?;
    let mut companions = Vec::new();
    for &portal in portals {
        let own: &'static Client = Box::leak(Box::new(Client { scheme, portal, time: AtomicU64::new(0) }));
        let companion = start(own, PRIORITY, SLICE_US)?;
        own.time.store(companion.time().ok_or(Error::BadHandle)?.0, Ordering::Release);
        companions.push(companion);
    }
    let begun_ns = runtime::now_ns();
    sys::semaphore_up(scheme.begin, portals.len() as u64)?;
    runtime::notified(DONE).await;
    let took_ns = runtime::now_ns() - begun_ns;
    if scheme.has_failed.load(Ordering::Relaxed) {
        runtime::log!("failed: a request was refused");
    }
    let all: Vec<String> = (0..)
        .zip(&scheme.bills)
        .map(|(step, count)| (step * STEP_NS, count.load(Ordering::Relaxed)))
        .filter(|(_, count)| *count > 0)
        .map(|(ns, count)| format!("{ns}:{count}"))
        .collect();
    all.chunks(TOLD_IN_A_LINE).for_each(|some| runtime::log!("bills {name} {}", some.join(" ")));
    runtime::log!("took {name} {took_ns} ns for {} requests", requests * portals.len() as u64);
    Ok(())
}

/// Both schemes. On a machine of more cores the first one measures.
pub(super) async fn run(own: &Start) -> Result<(), Error> {
    if own.core() > 0 {
        return Ok(());
    }
    let requests = number(own, REQUESTS_WORD).unwrap_or(REQUESTS).max(1);
    let each = (0..CLIENTS).map(|_| serve(Computes)).collect::<Result<Vec<_>, _>>()?;
    measure("client", &each, requests).await?;
    measure("core", &[serve(Computes)?; CLIENTS], requests).await
}
