//! One single-threaded server beside a server with a worker on every core (figures 1 and 4), and
//! requests that go through servers behind it.
//!
//! Core 0 has the thread that alone does what is serial; clients are on the other cores, but for
//! the last, which only spins: in the model a core that is awake alone wakes others too late.
//! `single`: a client asks that thread for all of its request: it writes the request into shared
//! memory, raises the thread's semaphore and waits at its own. `workers`: a client calls its core's
//! worker by a portal; the worker does the parallel part in the client's time and asks the thread
//! for the rest. Either may have servers behind it, each called by the one before and as long as
//! it: those of the thread on core 0, those of a worker on its core.

use abi::{Error, Handle};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use runtime::{Serve, Start};
use semaphore::Semaphore;

use super::number;
use super::room::{ANSWERED, ASKED, Barrier, Gate, Room, STUDY, semaphores};
use crate::parts::serve;
use crate::sample::{Stopwatch, look, work};

/// Requests of a client: some unmeasured ones first.
const WARM_UP: u64 = 6;
const REQUESTS: u64 = 24;
/// Word of the command line: cycles of a call to another core, by which the servers' costs are
/// reckoned.
const CROSS: &str = "nova.cross=";
const CROSS_CYCLES: u64 = 6_000;
/// What a server costs, in per cent of that, and how much of it can be done in parallel.
const COSTS: [u64; 3] = [400, 50, 30];
const PARALLEL: [u64; 7] = [0, 20, 40, 60, 80, 95, 100];
/// By so many clients, as far as there are cores for them: at most the paper's.
const CLIENTS: [u64; 4] = [1, 2, 4, 7];
/// Servers behind the first, at most, and the parallel part of each.
const BEHIND_MAX: u64 = 2;
const BEHIND_COST: u64 = 50;
const BEHIND_PARALLEL: u64 = 80;
/// Lines of the region.
const FINISHED: u64 = STUDY;
const GONE: u64 = STUDY + 1;
const LOST: u64 = STUDY + 2;
/// Words of a client's line.
const NUMBER: u64 = 0;
const CYCLES: u64 = 1;
const BEHIND: u64 = 2;

/// Cores that are no client's.
const NO_CLIENTS: u64 = 2;

fn clients(room: &Room) -> u64 {
    room.cores - NO_CLIENTS
}

/// What one core knows of the others.
struct Exchange {
    room: Room,
    semaphores: Vec<Semaphore<&'static AtomicU64, Gate>>,
    /// The first of the servers behind this core's.
    behind: Handle,
}

impl Exchange {
    /// Asks the thread on core 0, and waits.
    fn ask(&self, cycles: u64, behind: u64) {
        let (room, own) = (&self.room, self.room.core as usize);
        let asked = |word| room.word(ASKED + room.core, word);
        let number = asked(NUMBER).load(Ordering::Relaxed) + 1;
        asked(CYCLES).store(cycles, Ordering::Relaxed);
        asked(BEHIND).store(behind, Ordering::Relaxed);
        asked(NUMBER).store(number, Ordering::Release);
        let is_waited = self.semaphores[0].up(1).and_then(|()| self.semaphores[own].down(u64::MAX)).is_ok();
        if !is_waited || room.line(ANSWERED + room.core).load(Ordering::Acquire) != number {
            room.line(LOST).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The thread's work: the next request after that of client `last`, if there is one.
    fn answer_next(&self, last: &mut u64) {
        let room = &self.room;
        for _ in 0..clients(room) {
            *last = *last % clients(room) + 1;
            let number = room.word(ASKED + *last, NUMBER).load(Ordering::Acquire);
            if number == room.line(ANSWERED + *last).load(Ordering::Relaxed) {
                continue;
            }
            let [cycles, behind] = [CYCLES, BEHIND].map(|word| room.word(ASKED + *last, word).load(Ordering::Relaxed));
            self.carry_out(cycles, behind);
            room.line(ANSWERED + *last).store(number, Ordering::Release);
            if self.semaphores[*last as usize].up(1).is_err() {
                room.line(LOST).fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
    }

    /// Work of one server, and of those behind it.
    fn carry_out(&self, cycles: u64, behind: u64) {
        carry_out(self.behind, cycles, behind, &self.room);
    }
}

fn carry_out(next: Handle, cycles: u64, behind: u64, room: &Room) {
    work(cycles);
    if behind > 0 && sys::portal_call(next, [cycles, behind - 1, 0, 0], u64::MAX).is_err() {
        room.line(LOST).fetch_add(1, Ordering::Relaxed);
    }
}

/// A server behind another.
struct Behind {
    room: Room,
    next: Handle,
}

impl Serve for Behind {
    fn serve(&self, _: u64, [cycles, behind, ..]: [u64; 4]) -> [u64; 3] {
        carry_out(self.next, cycles, behind, &self.room);
        [0; 3]
    }
}

/// The worker that clients of its core call.
struct Front(&'static Exchange);

impl Serve for Front {
    fn serve(&self, _: u64, [parallel, serial, behind, _]: [u64; 4]) -> [u64; 3] {
        self.0.carry_out(parallel, behind);
        if serial > 0 {
            self.0.ask(serial, behind);
        }
        [0; 3]
    }
}

/// What a row's clients do.
#[derive(Clone, Copy)]
struct Request {
    /// Cycles of each server, on the client's core and on core 0.
    parallel: u64,
    serial: u64,
    /// Servers behind the first.
    behind: u64,
    by_worker: bool,
}

impl Request {
    fn single(cycles: u64) -> Request {
        Request { parallel: 0, serial: cycles, behind: 0, by_worker: false }
    }

    fn by_worker(cycles: u64, percent: u64) -> Request {
        let parallel = cycles * percent / 100;
        Request { parallel, serial: cycles - parallel, behind: 0, by_worker: true }
    }
}

struct Study {
    exchange: &'static Exchange,
    /// This core's worker.
    front: Handle,
    barrier: Barrier,
    /// How many clients will have finished and gone.
    finished: u64,
}

impl Study {
    fn ask(&self, request: Request) {
        let Request { parallel, serial, behind, by_worker } = request;
        let words = [parallel, serial, behind, 0];
        if !by_worker {
            self.exchange.ask(serial, behind);
        } else if sys::portal_call(self.front, words, u64::MAX).is_err() {
            self.exchange.room.line(LOST).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The first `clients` clients ask; each goes on, unmeasured, until all have been measured.
    async fn row(&mut self, name: &str, clients: u64, request: Request) {
        let room = self.exchange.room;
        look().await;
        self.barrier.meet(&room);
        self.finished += clients;
        if room.core == 0 {
            let mut last = 0;
            while room.line(GONE).load(Ordering::Acquire) < self.finished {
                if self.exchange.semaphores[0].down(u64::MAX).is_err() {
                    return;
                }
                self.exchange.answer_next(&mut last);
            }
        } else if room.core <= clients {
            (0..WARM_UP).for_each(|_| self.ask(request));
            let watch = Stopwatch::start(name, REQUESTS);
            (0..REQUESTS).for_each(|_| self.ask(request));
            watch.stop();
            room.line(FINISHED).fetch_add(1, Ordering::AcqRel);
            while room.line(FINISHED).load(Ordering::Acquire) < self.finished {
                self.ask(request);
            }
            room.line(GONE).fetch_add(1, Ordering::AcqRel);
            let _ = self.exchange.semaphores[0].up(1);
        }
    }

    async fn rows(&mut self, cross: u64) {
        let clients = clients(&self.exchange.room);
        self.row("nova/cross-call", 1, Request::single(0)).await;
        self.row("nova/local-call", 1, Request::by_worker(0, 0)).await;
        for count in CLIENTS.into_iter().filter(|count| *count <= clients) {
            for cost in COSTS {
                let cycles = cross * cost / 100;
                self.row(&format!("nova/{count}/{cost}/single"), count, Request::single(cycles)).await;
                for percent in PARALLEL {
                    let request = Request::by_worker(cycles, percent);
                    self.row(&format!("nova/{count}/{cost}/workers/{percent}"), count, request).await;
                }
            }
        }
        let cycles = cross * BEHIND_COST / 100;
        for behind in 0..=BEHIND_MAX {
            let single = Request { behind, ..Request::single(cycles) };
            self.row(&format!("nova/behind/{behind}/single"), clients, single).await;
            let workers = Request { behind, ..Request::by_worker(cycles, BEHIND_PARALLEL) };
            self.row(&format!("nova/behind/{behind}/workers"), clients, workers).await;
        }
    }
}

/// All rows, on this core.
pub(super) async fn run(start: &Start, room: Room) -> Result<(), Error> {
    if room.cores <= NO_CLIENTS {
        runtime::log!("failed: two cores have no clients beside the server and the one that spins");
        return Ok(());
    }
    let mut barrier = Barrier::new();
    let semaphores = semaphores(start, &room, &mut barrier)?;
    let last = serve(Behind { room, next: Handle::NONE })?;
    let behind = serve(Behind { room, next: last })?;
    let exchange: &'static Exchange = Box::leak(Box::new(Exchange { room, semaphores, behind }));
    let front = serve(Front(exchange))?;
    let mut study = Study { exchange, front, barrier, finished: 0 };
    if room.core == 0 {
        mark::arm();
    }
    study.rows(number(start, CROSS).unwrap_or(CROSS_CYCLES)).await;
    study.barrier.meet(&room);
    if room.core == 0 {
        mark::finish();
        let lost = room.line(LOST).load(Ordering::Acquire);
        if lost > 0 {
            runtime::log!("failed: {lost} requests or answers were lost");
        }
    }
    Ok(())
}
