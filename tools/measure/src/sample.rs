//! Clocks, marks and samples.

use crate::problem::Result;
use crate::system;
use mark::Mark;
use std::sync::OnceLock;

/// Samples of one row in one run; odd, so that one of them is the median.
pub const SAMPLES: usize = 15;

/// A measured stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// By CLOCK_MONOTONIC.
    pub ns: u64,
    /// How many operations it had.
    pub operations: u64,
    /// Page faults that needed no device, in rows that count them.
    pub faults: u64,
}

/// Of a [`Sample`] as bytes.
pub const SAMPLE_BYTES: usize = 24;

impl Sample {
    /// Both together.
    pub fn plus(self, other: Sample) -> Sample {
        let (ns, operations) = (self.ns + other.ns, self.operations + other.operations);
        Sample { ns, operations, faults: self.faults + other.faults }
    }

    /// As bytes, to be sent by another process of this program.
    pub fn to_bytes(self) -> [u8; SAMPLE_BYTES] {
        let mut bytes = [0; SAMPLE_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip([self.ns, self.operations, self.faults]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// The reverse.
    pub fn from_bytes(bytes: [u8; SAMPLE_BYTES]) -> Sample {
        let word = |index: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            u64::from_ne_bytes(word)
        };
        Sample { ns: word(0), operations: word(1), faults: word(2) }
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The row that this process measures, for the emulator's plugin.
static ROW: OnceLock<&str> = OnceLock::new();

/// Says which row this process measures; the first word counts.
pub fn set_row(name: &'static str) {
    let _ = ROW.set(name);
}

/// Measures `body`, which does `operations` operations.
#[inline(always)]
pub fn measured(operations: u64, body: impl FnOnce() -> Result<()>) -> Result<Sample> {
    let mark = Mark::new(ROW.get().copied().unwrap_or(""), operations);
    let start_ns = now_ns();
    mark.begin();
    let result = body();
    mark.end();
    let ns = now_ns() - start_ns;
    result.map(|()| Sample { ns, operations, faults: 0 })
}

/// The same, with the caller's page faults meanwhile.
pub fn measured_with_faults(operations: u64, body: impl FnOnce() -> Result<()>) -> Result<Sample> {
    let before = system::soft_faults()?;
    let sample = measured(operations, body)?;
    Ok(Sample { faults: system::soft_faults()? - before, ..sample })
}

/// One stretch that warms up, and then [`SAMPLES`] of `operations` each.
pub fn repeat(operations: u64, mut operation: impl FnMut() -> Result<()>) -> Result<Vec<Sample>> {
    let mut stretch = || measured(operations, || (0..operations).try_for_each(|_| operation()));
    stretch()?;
    (0..SAMPLES).map(|_| stretch()).collect()
}

/// A loop of known length, twice `turns` instructions: shows whether a count is one of
/// instructions.
pub fn known_loop(turns: u64) {
    // SAFETY: counts a register down.
    unsafe { core::arch::asm!("2:", "dec {0}", "jnz 2b", inout(reg) turns => _, options(nomem, nostack)) };
}

/// About so many instructions that touch no memory, in blocks of 20, as code without many jumps has
/// them.
pub fn work(instructions: u64) {
    // SAFETY: counts a register down, at least once.
    unsafe {
        core::arch::asm!(
            "2:", ".rept 18", "nop", ".endr", "dec {0}", "jnz 2b",
            inout(reg) instructions / 20 + 1 => _, options(nomem, nostack)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_survives_its_journey() {
        let sample = Sample { ns: u64::MAX, operations: 3, faults: 7 };
        assert_eq!(Sample::from_bytes(sample.to_bytes()), sample);
    }

    #[test]
    fn the_first_stretch_is_not_counted() {
        let mut count = 0;
        let samples = repeat(10, || {
            count += 1;
            Ok(())
        });
        let samples = samples.unwrap();
        assert_eq!((samples.len(), count), (SAMPLES, (SAMPLES as u64 + 1) * 10));
        assert!(samples.iter().all(|sample| sample.operations == 10));
    }
}
