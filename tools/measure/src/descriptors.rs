//! `dup` and `close` of a descriptor, by one worker per core: Corey's first figure.

use crate::problem::Result;
use crate::rows::Setting;
use crate::sample::{Sample, repeat};
use crate::system;
use crate::workers::{self, Kind};
use std::fs::File;

const PAIRS: u64 = 500;

/// All workers use one table of descriptors.
pub fn threads(setting: &Setting) -> Result<Vec<Sample>> {
    workers::run(Kind::Threads, setting.workers, open, pairs)
}

/// A table for each worker.
pub fn processes(setting: &Setting) -> Result<Vec<Sample>> {
    workers::run(Kind::Processes, setting.workers, open, pairs)
}

/// Each worker has a file of its own, so that the table is all they share.
fn open(_: usize) -> Result<(File, File)> {
    system::pipe()
}

fn pairs(file: &(File, File)) -> Result<Vec<Sample>> {
    let original = system::number(&file.0);
    repeat(PAIRS, || {
        // SAFETY: a descriptor of ours, and its copy, which nobody else knows.
        unsafe {
            let copy = system::check("dup", libc::dup(original))?;
            system::check("close", libc::close(copy)).map(drop)
        }
    })
}
