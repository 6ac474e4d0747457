//! The rows of the coherence model: short, all workers at once, as threads of one process or as processes.
//!
//! The workers meet in shared memory and spin there, since nobody may sleep while others are measured. Who has done its share goes on,
//! unmeasured, until all have.

use crate::problem::{Problem, Result};
use crate::sample::known_loop;
use crate::system::{self, Memory, PAGE_BYTES};
use crate::workers::Kind;
use mark::Mark;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

/// Operations of a worker in a row; as many before them warm the caches. The short ones are so many that a timer's interrupt is little
/// beside them.
const SHORT: u64 = 2000;
const LONG: u64 = 400;
/// Turns of a loop of two instructions before each addition: a core's own work, longer than a turn of the model, so that cores take turns at
/// the counter too.
const OWN_WORK: u64 = 150;
const LINE_BYTES: usize = 64;
const ARRIVED: usize = 0;
const READY: usize = 1;
const FINISHED: usize = 2;
const SHARED: usize = 3;
/// First of the private lines.
const PRIVATE: usize = 8;

/// What a worker does once.
type Operation = fn(&Worker);

const ROWS: [(&str, Kind, u64, Operation); 5] = [
    ("shared-counter", Kind::Threads, SHORT, shared_counter),
    ("private-counter", Kind::Threads, SHORT, private_counter),
    ("null-call", Kind::Processes, LONG, null_call),
    ("dup-close/threads", Kind::Threads, LONG, dup_close),
    ("dup-close/processes", Kind::Processes, LONG, dup_close),
];

struct Worker<'a> {
    room: &'a Memory,
    number: usize,
    count: u64,
    /// A file of its own, so that a table of descriptors is all that workers share.
    descriptor: i32,
}

/// Runs every row with `workers` workers, one per core.
pub fn run(workers: usize) -> Result<()> {
    // Only the owner of the machine may read it; without it functions have no names.
    let names = std::fs::read("/proc/kallsyms").unwrap_or_default();
    mark::names(&names);
    drop(names);
    mark::arm();
    for (name, kind, operations, operation) in ROWS {
        let room = Memory::new((PRIVATE + workers).next_multiple_of(PAGE_BYTES / LINE_BYTES) * LINE_BYTES, true)?;
        match kind {
            Kind::Threads => std::thread::scope(|scope| {
                for number in 1..workers {
                    let room = &room;
                    scope.spawn(move || {
                        if let Err(problem) = work(room, number, workers, (name, operations, operation)) {
                            // The others would wait for this one for ever.
                            eprintln!("measure: model: {problem:?}");
                            system::exit(1);
                        }
                    });
                }
                work(&room, 0, workers, (name, operations, operation))
            })?,
            Kind::Processes => {
                let fork = |number| system::fork(|| work(&room, number, workers, (name, operations, operation)));
                let children = (0..workers).map(fork).collect::<Result<Vec<_>>>()?;
                children.iter().try_for_each(system::Child::succeed)?;
            }
        }
    }
    mark::finish();
    Ok(())
}

fn work(room: &Memory, number: usize, workers: usize, row: (&str, u64, Operation)) -> Result<()> {
    let (name, operations, operation) = row;
    if !system::pin(number) {
        return Err(Problem::Absent("sched_setaffinity".into()));
    }
    let file: (File, File) = system::pipe()?;
    let worker = Worker { room, number, count: workers as u64, descriptor: system::number(&file.0) };
    worker.meet();
    // A call each, see apps/bench's `load`.
    let operation = std::hint::black_box(operation);
    (0..operations).for_each(|_| operation(&worker));
    let mark = Mark::new(name, operations);
    mark.begin();
    (0..operations).for_each(|_| operation(&worker));
    mark.end();
    let finished = worker.line(FINISHED);
    finished.fetch_add(1, Ordering::AcqRel);
    while finished.load(Ordering::Acquire) < worker.count {
        operation(&worker);
    }
    Ok(())
}

impl Worker<'_> {
    fn line(&self, line: usize) -> &AtomicU64 {
        self.room.word_at(line * LINE_BYTES)
    }

    /// All workers begin at once: first each gets to its core, then all spin.
    fn meet(&self) {
        self.line(ARRIVED).fetch_add(1, Ordering::AcqRel);
        while self.line(ARRIVED).load(Ordering::Acquire) < self.count {
            std::thread::yield_now();
        }
        self.line(READY).fetch_add(1, Ordering::AcqRel);
        while self.line(READY).load(Ordering::Acquire) < self.count {
            std::hint::spin_loop();
        }
    }
}

fn shared_counter(worker: &Worker) {
    known_loop(OWN_WORK);
    worker.line(SHARED).fetch_add(1, Ordering::Relaxed);
}

fn private_counter(worker: &Worker) {
    known_loop(OWN_WORK);
    worker.line(PRIVATE + worker.number).fetch_add(1, Ordering::Relaxed);
}

fn null_call(_: &Worker) {
    // SAFETY: takes nothing and cannot fail.
    std::hint::black_box(unsafe { libc::getppid() });
}

/// A failure would show as a row of very few instructions; there is none to expect from a descriptor of ours.
fn dup_close(worker: &Worker) {
    // SAFETY: a descriptor of ours, and its copy, which nobody else knows.
    unsafe {
        let copy = libc::dup(worker.descriptor);
        assert!(copy >= 0 && libc::close(copy) == 0, "dup or close failed");
    }
}
