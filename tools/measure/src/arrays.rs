//! Corey's memclone and mempass (section 8.2): 100 MiB for each worker, touched by all at once, and
//! 100 MiB that all touch one after another. As threads of one address space, and as processes.
//!
//! Who says what is next tells it each worker over a pipe and waits for their answers, so that all
//! touch at once and nobody makes or unmaps memory meanwhile; who has nothing to do sleeps. A
//! sample is of all workers together: the sums of their times, touches and faults.

use crate::problem::{Problem, Result};
use crate::rows::Setting;
use crate::sample::{SAMPLE_BYTES, Sample, measured_with_faults};
use crate::system::{self, Memory, PAGE_BYTES};
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

/// 100 MiB, as the paper has it.
pub const PAGES: usize = 25_600;
/// After one that is not measured.
const SAMPLES: usize = 3;

/// What a worker is told, in a byte.
const MAKE: u8 = 0;
const TOUCH: u8 = 1;
const DROP: u8 = 2;
const END: u8 = 3;

/// Memory that the threads of a process pass on: the thread that is told first makes it.
type Common = Arc<Mutex<Option<Arc<Memory>>>>;

/// Where a worker's memory is from.
#[derive(Clone)]
enum Source {
    /// Its own.
    Own,
    /// All threads'.
    Common(Common),
    /// All processes', each of which maps it.
    File(Arc<File>),
}

/// The ends of a worker's pipes.
struct Worker {
    number: usize,
    pages: usize,
    orders: File,
    answers: File,
}

/// The other ends.
struct Line {
    orders: File,
    answers: File,
}

/// What all do in a sample.
type Once = fn(&mut [Line]) -> Result<Sample>;

/// Each thread its own memory, of one address space.
pub fn clone_threads(setting: &Setting) -> Result<Vec<Sample>> {
    threads(setting.workers, PAGES, &Source::Own, clone_all)
}

/// Each process its own.
pub fn clone_processes(setting: &Setting) -> Result<Vec<Sample>> {
    processes(setting.workers, PAGES, &Source::Own, clone_all)
}

/// All threads the same.
pub fn pass_threads(setting: &Setting) -> Result<Vec<Sample>> {
    threads(setting.workers, PAGES, &Source::Common(Common::default()), pass_all)
}

/// All processes the same, which each maps for itself.
pub fn pass_processes(setting: &Setting) -> Result<Vec<Sample>> {
    let file = system::memory_file(PAGES * PAGE_BYTES)?;
    processes(setting.workers, PAGES, &Source::File(Arc::new(file)), pass_all)
}

/// All at once.
fn clone_all(lines: &mut [Line]) -> Result<Sample> {
    tell_all(lines, MAKE)?;
    let sample = tell_all(lines, TOUCH)?;
    tell_all(lines, DROP)?;
    Ok(sample)
}

/// One after another.
fn pass_all(lines: &mut [Line]) -> Result<Sample> {
    tell_all(lines, MAKE)?;
    let mut sum = Sample::default();
    for line in &mut *lines {
        sum = sum.plus(tell_all(std::slice::from_mut(line), TOUCH)?);
    }
    tell_all(lines, DROP)?;
    Ok(sum)
}

/// Tells these what is next, and waits for all of them.
fn tell_all(lines: &mut [Line], order: u8) -> Result<Sample> {
    for line in &mut *lines {
        system::send_all(&mut line.orders, &[order])?;
    }
    let mut sum = Sample::default();
    for line in lines {
        let mut bytes = [0; SAMPLE_BYTES];
        system::receive_all(&mut line.answers, &mut bytes)?;
        sum = sum.plus(Sample::from_bytes(bytes));
    }
    Ok(sum)
}

fn measure(mut lines: Vec<Line>, once: Once) -> Result<Vec<Sample>> {
    once(&mut lines)?;
    let samples = (0..SAMPLES).map(|_| once(&mut lines)).collect();
    tell_all(&mut lines, END)?;
    samples
}

fn line(number: usize, pages: usize) -> Result<(Line, Worker)> {
    let ((orders, say), (answers, answer)) = (system::pipe()?, system::pipe()?);
    Ok((Line { orders: say, answers }, Worker { number, pages, orders, answers: answer }))
}

fn threads(workers: usize, pages: usize, source: &Source, once: Once) -> Result<Vec<Sample>> {
    let mut lines = Vec::new();
    std::thread::scope(|scope| {
        let mut all = Vec::new();
        for number in 0..workers {
            let (line, worker) = line(number, pages)?;
            lines.push(line);
            all.push(scope.spawn(move || worker.serve(source)));
        }
        // A worker that fails closes its pipes, so this ends too; its own failure says more.
        let samples = measure(lines, once);
        let ends =
            all.into_iter().map(|worker| worker.join().map_err(|_| Problem::Failed("a thread panicked".into()))?);
        ends.collect::<Result<()>>().and(samples)
    })
}

fn processes(workers: usize, pages: usize, source: &Source, once: Once) -> Result<Vec<Sample>> {
    let (mut lines, mut children) = (Vec::new(), Vec::new());
    for number in 0..workers {
        let (line, worker) = line(number, pages)?;
        lines.push(line);
        children.push(system::fork(move || worker.serve(source))?);
    }
    let samples = measure(lines, once);
    children.iter().try_for_each(system::Child::succeed).and(samples)
}

impl Worker {
    fn serve(mut self, source: &Source) -> Result<()> {
        system::pin(self.number);
        let mut memory: Option<Arc<Memory>> = None;
        loop {
            let mut order = [0];
            system::receive_all(&mut self.orders, &mut order)?;
            let mut sample = Sample::default();
            match order[0] {
                MAKE => memory = Some(source.memory(self.pages)?),
                TOUCH => {
                    let memory = memory.as_ref().ok_or_else(|| Problem::Failed("no memory to touch".into()))?;
                    sample = measured_with_faults(self.pages as u64, || {
                        (0..self.pages).for_each(|page| memory.touch(page));
                        Ok(())
                    })?;
                }
                DROP => {
                    memory = None;
                    source.reset(self.pages)?;
                }
                _ => {}
            }
            system::send_all(&mut self.answers, &sample.to_bytes())?;
            if order[0] == END {
                return Ok(());
            }
        }
    }
}

impl Source {
    fn memory(&self, pages: usize) -> Result<Arc<Memory>> {
        let fresh = || -> Result<Arc<Memory>> {
            let memory = Memory::new(pages * PAGE_BYTES, false)?;
            memory.small_pages();
            Ok(Arc::new(memory))
        };
        match self {
            Source::Own => fresh(),
            Source::Common(common) => {
                let mut common = common.lock().unwrap_or_else(PoisonError::into_inner);
                let memory = common.take().map_or_else(fresh, Ok)?;
                *common = Some(memory.clone());
                Ok(memory)
            }
            Source::File(file) => Ok(Arc::new(Memory::of_file(file, pages * PAGE_BYTES)?)),
        }
    }

    /// So that the next memory is fresh.
    fn reset(&self, pages: usize) -> Result<()> {
        match self {
            Source::Own => {}
            Source::Common(common) => *common.lock().unwrap_or_else(PoisonError::into_inner) = None,
            Source::File(file) => system::empty(file, pages * PAGE_BYTES)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_of_all_workers() {
        let (workers, pages) = (3, 200);
        let check = |samples: Result<Vec<Sample>>| {
            let samples = samples.unwrap();
            assert_eq!(samples.len(), SAMPLES);
            assert!(samples.iter().all(|sample| sample.operations == (workers * pages) as u64), "{samples:?}");
            samples.iter().map(|sample| sample.faults).min().unwrap()
        };
        assert!(check(threads(workers, pages, &Source::Own, clone_all)) >= (workers * pages) as u64);
        // One for each page, and not one for each thread.
        let faults = check(threads(workers, pages, &Source::Common(Common::default()), pass_all));
        assert!((pages as u64..2 * pages as u64).contains(&faults), "{faults}");
    }
}
