//! The rows of the coherence model: short, all workers at once, as threads of one process or as
//! processes.
//!
//! The workers meet in shared memory and spin there, since nobody may sleep while others are
//! measured. Who has done its share goes on, unmeasured, until all have; not in rows of a fixed
//! amount of work, in which who is done leaves the rest to the others.

use crate::problem::{Problem, Result};
use crate::sample::work;
use crate::system::{self, Memory, PAGE_BYTES};
use crate::workers::Kind;
use mark::Mark;
use std::fs::File;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Operations of a worker in a row; as many before them warm the caches.
const OPERATIONS: u64 = 400;
/// One worker has one stretch, in which the first tick of the system's clock, cold all of it, would
/// weigh: so long that the tick comes before.
const WARM_UP_ALONE: u64 = 16 * OPERATIONS;
/// Instructions of a worker's own before each addition, as in apps/bench's `load`.
const OWN_WORK: u64 = 4000;
/// Pages that a worker may touch: those of two rows' worth, and as many while it waits for the
/// others. Past them it touches none anew.
const TOUCHED_MAX: usize = 4 * OPERATIONS as usize;
const LINE_BYTES: usize = 64;
const ARRIVED: usize = 0;
const READY: usize = 1;
const FINISHED: usize = 2;
const SHARED: usize = 3;
/// First of the private lines.
const PRIVATE: usize = 8;

/// What a worker does once.
type Operation = fn(&Worker);

/// One row.
pub struct Row {
    /// In commands and reports.
    pub name: &'static str,
    kind: Kind,
    /// Workers begin one after the other, spread over so many instructions.
    spread: u64,
    /// Each worker does its share and no more.
    fixed_work: bool,
    operation: Operation,
}

const fn row(name: &'static str, kind: Kind, operation: Operation) -> Row {
    Row { name, kind, spread: 0, fixed_work: false, operation }
}

const fn fixed(name: &'static str, kind: Kind, operation: Operation) -> Row {
    Row { name, kind, spread: 0, fixed_work: true, operation }
}

const fn counter(name: &'static str, operation: Operation) -> Row {
    Row { name, kind: Kind::Threads, spread: OWN_WORK, fixed_work: false, operation }
}

/// All of them, in the order in which they run.
pub const ROWS: [Row; 7] = [
    counter("shared-counter", shared_counter),
    counter("private-counter", private_counter),
    row("null-call", Kind::Processes, null_call),
    fixed("dup-close/threads", Kind::Threads, dup_close),
    fixed("dup-close/processes", Kind::Processes, dup_close),
    row("page-touch/threads", Kind::Threads, touch_page),
    row("page-touch/processes", Kind::Processes, touch_page),
];

struct Worker<'a> {
    room: &'a Memory,
    number: usize,
    count: u64,
    /// A file of its own, so that a table of descriptors is all that workers share.
    descriptor: i32,
    /// Memory of its own, of which so many pages have been touched; atomic for a shared borrow's
    /// sake only.
    fresh: Memory,
    touched: AtomicUsize,
}

/// Runs the rows of those names with `workers` workers, one per core.
pub fn run(workers: usize, names: &[&str]) -> Result<()> {
    // Only the owner of the machine may read it; without it functions have no names.
    if let Ok(functions) = std::fs::read("/proc/kallsyms") {
        mark::names(&functions);
    }
    mark::arm();
    for row in ROWS.iter().filter(|row| names.contains(&row.name)) {
        let room = Memory::new((PRIVATE + workers).next_multiple_of(PAGE_BYTES / LINE_BYTES) * LINE_BYTES, true)?;
        match row.kind {
            Kind::Threads => std::thread::scope(|scope| {
                for number in 1..workers {
                    let room = &room;
                    scope.spawn(move || {
                        if let Err(problem) = run_worker(room, number, workers, row) {
                            // The others would wait for this one for ever.
                            eprintln!("measure: model: {problem:?}");
                            system::exit(1);
                        }
                    });
                }
                run_worker(&room, 0, workers, row)
            })?,
            Kind::Processes => {
                let fork = |number| system::fork(|| run_worker(&room, number, workers, row));
                let children = (0..workers).map(fork).collect::<Result<Vec<_>>>()?;
                children.iter().try_for_each(system::Child::succeed)?;
            }
        }
    }
    mark::finish();
    Ok(())
}

fn run_worker(room: &Memory, number: usize, workers: usize, row: &Row) -> Result<()> {
    // One worker is where it has to be on any core.
    if !system::pin(number) && workers > 1 {
        return Err(Problem::Absent("sched_setaffinity".into()));
    }
    let file: (File, File) = system::pipe()?;
    let fresh = Memory::new(TOUCHED_MAX * PAGE_BYTES, false)?;
    fresh.small_pages();
    let worker = Worker {
        room,
        number,
        count: workers as u64,
        descriptor: system::number(&file.0),
        fresh,
        touched: AtomicUsize::new(0),
    };
    worker.meet();
    work(row.spread * number as u64 / worker.count);
    // A call each, see apps/bench's `load`.
    let operation = std::hint::black_box(row.operation);
    let warm_up = if row.fixed_work && workers == 1 { WARM_UP_ALONE } else { OPERATIONS };
    (0..warm_up).for_each(|_| operation(&worker));
    let mark = Mark::new(row.name, OPERATIONS);
    mark.begin();
    (0..OPERATIONS).for_each(|_| operation(&worker));
    mark.end();
    let finished = worker.line(FINISHED);
    finished.fetch_add(1, Ordering::AcqRel);
    while finished.load(Ordering::Acquire) < worker.count {
        if row.fixed_work {
            std::hint::spin_loop();
        } else {
            operation(&worker);
        }
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
    work(OWN_WORK);
    worker.line(SHARED).fetch_add(1, Ordering::Relaxed);
}

fn private_counter(worker: &Worker) {
    work(OWN_WORK);
    worker.line(PRIVATE + worker.number).fetch_add(1, Ordering::Relaxed);
}

fn null_call(_: &Worker) {
    // SAFETY: takes nothing and cannot fail.
    std::hint::black_box(unsafe { libc::getppid() });
}

/// A failure would show as a row of very few instructions; there is none to expect from a
/// descriptor of ours.
fn dup_close(worker: &Worker) {
    // SAFETY: a descriptor of ours, and its copy, which nobody else knows.
    unsafe {
        let copy = libc::dup(worker.descriptor);
        assert!(copy >= 0 && libc::close(copy) == 0, "dup or close failed");
    }
}

/// First touch of a page.
fn touch_page(worker: &Worker) {
    let page = worker.touched.load(Ordering::Relaxed);
    worker.fresh.touch(page);
    worker.touched.store((page + 1).min(TOUCHED_MAX - 1), Ordering::Relaxed);
}
