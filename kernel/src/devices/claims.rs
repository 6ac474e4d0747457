//! Which devices are claimed: a bit for each in the memory of the core that claimed it, read by
//! all.
//!
//! A core sets its own bit first and looks at the others' second, so of two that claim at once at
//! least one sees the other and backs off: never both have it, and it may be that neither does.

use crate::arch::{cores, instance};
use crate::core_commands::{self, State};
use crate::hardware::machine;
use core::sync::atomic::{AtomicU64, Ordering};

/// Devices are numbered below this.
pub const INDICES: usize = 128;

static CLAIMED: [AtomicU64; INDICES / 64] = [const { AtomicU64::new(0) }; INDICES / 64];

/// Claims a device for this core; false if some core has it, or wants it at this moment.
pub fn claim(index: usize) -> bool {
    let bit = 1 << (index % 64);
    let Some(word) = CLAIMED.get(index / 64).filter(|word| word.load(Ordering::Relaxed) & bit == 0) else {
        return false;
    };
    word.fetch_or(bit, Ordering::SeqCst);
    let own = cores::this_core();
    let is_taken = (0..machine().cores().len()).filter(|core| *core != own).any(|core| {
        // Memory of a core that never ran holds anything.
        let told = instance::remote(core, word).filter(|_| core_commands::state(core) != State::Never);
        // SAFETY: the address of another core's copy, in RAM of the direct map; only atomics touch
        // it.
        told.is_some_and(|word| unsafe { &*word }.load(Ordering::SeqCst) & bit != 0)
    });
    if is_taken {
        free(index);
    }
    !is_taken
}

/// Gives it back.
pub fn free(index: usize) {
    if let Some(word) = CLAIMED.get(index / 64) {
        word.fetch_and(!(1 << (index % 64)), Ordering::SeqCst);
    }
}
