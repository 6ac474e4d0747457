//! Page faults and changes of protection.

use crate::problem::{During, Result};
use crate::rows::Setting;
use crate::sample::{SAMPLES, Sample, measured, repeat};
use crate::system::{self, Memory, PAGE_BYTES};
use crate::workers::{self, Kind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Pages that a worker touches in a sample (4 MiB).
const PAGES: usize = 1024;
const CYCLES: u64 = 200;

/// First touch of fresh pages, each thread its own mapping of one address space (Corey's memclone).
pub fn touch_threads(setting: &Setting) -> Result<Vec<Sample>> {
    workers::run(Kind::Threads, setting.workers, Ok, touch)
}

/// The same in an address space for each worker.
pub fn touch_processes(setting: &Setting) -> Result<Vec<Sample>> {
    workers::run(Kind::Processes, setting.workers, Ok, touch)
}

fn touch(_: &usize) -> Result<Vec<Sample>> {
    let fresh = || {
        let memory = Memory::new(PAGES * PAGE_BYTES, false)?;
        memory.small_pages();
        measured(PAGES as u64, || {
            (0..PAGES).for_each(|page| memory.touch(page));
            Ok(())
        })
    };
    fresh()?;
    (0..SAMPLES).map(|_| fresh()).collect()
}

/// One page is made read-only, made writable, and written. On every other core runs a thread of the
/// same address space.
pub fn protect(setting: &Setting) -> Result<Vec<Sample>> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut others = Vec::new();
    for worker in 1..setting.workers {
        let stop = stop.clone();
        let spin = move || {
            system::pin(worker);
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        others.push(std::thread::Builder::new().spawn(spin).during("thread (clone)")?);
    }
    system::pin(0);
    let memory = Memory::new(PAGE_BYTES, false)?;
    memory.touch(0);
    let samples = repeat(CYCLES, || {
        memory.protect(libc::PROT_READ)?;
        memory.protect(libc::PROT_READ | libc::PROT_WRITE)?;
        memory.touch(0);
        Ok(())
    });
    stop.store(true, Ordering::Relaxed);
    others.into_iter().for_each(|other| drop(other.join()));
    samples
}
