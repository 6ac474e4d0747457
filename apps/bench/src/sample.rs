//! Marks, medians, rows.

use core::hint::black_box;

use mark::Mark;

/// Odd, so that one sample is the median.
pub const SAMPLES: usize = 31;
/// Operations in a sample of something short, so that reading the counter does not count.
pub const BATCH: u64 = 64;
/// Instructions of [`known_loop`]'s body, twice its turns.
const KNOWN_INSTRUCTIONS: u64 = 20_000;

/// A measured stretch.
#[derive(Clone, Copy, Default)]
pub struct Stretch {
    /// By the guest's clock.
    pub ns: u64,
}

/// Begins a stretch.
pub struct Stopwatch {
    mark: Mark,
    ns: u64,
}

impl Stopwatch {
    /// Now, for so many operations; the emulator's plugin hears of it too.
    #[inline(always)]
    pub fn start(name: &str, operations: u64) -> Stopwatch {
        Stopwatch::marked(Mark::new(name, operations))
    }

    /// The same for an operation that other cores have a part in.
    #[inline(always)]
    pub fn start_of_every_core(name: &str, operations: u64) -> Stopwatch {
        Stopwatch::marked(Mark::new(name, operations).of_every_core())
    }

    #[inline(always)]
    fn marked(mark: Mark) -> Stopwatch {
        let watch = Stopwatch { mark, ns: runtime::now_ns() };
        watch.mark.begin();
        watch
    }

    /// The stretch until now.
    #[inline(always)]
    pub fn stop(self) -> Stretch {
        self.mark.end();
        Stretch { ns: runtime::now_ns() - self.ns }
    }
}

/// Takes what others ring for, between samples: a component that computes on and on without a look
/// at its work is taken for hung.
pub async fn look() {
    runtime::sleep(0).await;
}

/// Logs a row: the median of the samples, each of `operations` operations.
pub fn row(name: &str, operations: u64, samples: &mut [Stretch]) {
    if let Some(ns) = median_ns(samples) {
        runtime::log!("{name} {} ns", ns / operations.max(1));
    }
}

fn median_ns(samples: &mut [Stretch]) -> Option<u64> {
    samples.sort_by_key(|stretch| stretch.ns);
    samples.get(samples.len() / 2).map(|stretch| stretch.ns)
}

/// Measures something that can be repeated at once.
pub fn repeat(name: &str, mut operation: impl FnMut()) {
    let mut samples = [Stretch::default(); SAMPLES];
    for sample in &mut samples {
        let watch = Stopwatch::start(name, BATCH);
        for _ in 0..BATCH {
            operation();
        }
        *sample = watch.stop();
    }
    row(name, BATCH, &mut samples);
}

/// A loop of known length: shows whether a count is one of instructions.
pub fn known_loop() {
    let mut samples = [Stretch::default(); SAMPLES];
    for sample in &mut samples {
        let watch = Stopwatch::start("known-loop", 1);
        turn(black_box(KNOWN_INSTRUCTIONS / 2));
        *sample = watch.stop();
    }
    row("known-loop", 1, &mut samples);
}

/// A loop of so many turns, two instructions each.
#[cfg(target_arch = "x86_64")]
pub fn turn(turns: u64) {
    // SAFETY: counts a register down.
    unsafe { core::arch::asm!("2:", "dec {0}", "jnz 2b", inout(reg) turns => _, options(nomem, nostack)) };
}

/// About so many instructions that touch no memory, in blocks of 20, as code without many jumps has
/// them.
#[cfg(target_arch = "x86_64")]
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
    fn the_median_is_the_middle() {
        assert_eq!(median_ns(&mut [3, 1, 2].map(|ns| Stretch { ns })), Some(2));
        assert_eq!(median_ns(&mut []), None);
    }
}
