//! The smallest call there is, and the loop that shows what is counted.

use crate::problem::Result;
use crate::rows::Setting;
use crate::sample::{SAMPLES, Sample, known_loop, measured, repeat};
use std::hint::black_box;

/// Turns of the known loop, of two instructions each.
const KNOWN_TURNS: u64 = 10_000;
const CALLS: u64 = 300;

/// `getpid`: what a program asks about itself.
pub fn getpid(_: &Setting) -> Result<Vec<Sample>> {
    repeat(CALLS, || {
        // SAFETY: takes nothing and cannot fail. The C library's function may keep the answer; this
        // is the call.
        black_box(unsafe { libc::syscall(libc::SYS_getpid) });
        Ok(())
    })
}

/// `getppid`: next to nothing in Linux; a question to another program where processes are kept by
/// one.
pub fn getppid(_: &Setting) -> Result<Vec<Sample>> {
    repeat(CALLS, || {
        // SAFETY: takes nothing and cannot fail.
        black_box(unsafe { libc::getppid() });
        Ok(())
    })
}

/// One operation is one instruction.
pub fn known(_: &Setting) -> Result<Vec<Sample>> {
    let stretch = || {
        measured(2 * KNOWN_TURNS, || {
            known_loop(black_box(KNOWN_TURNS));
            Ok(())
        })
    };
    stretch()?;
    (0..SAMPLES).map(|_| stretch()).collect()
}
