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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::machine::Played;

    /// Other statics near it are the words of core states, of which this says "running".
    const RUNNING: u64 = 0x5045_4c41_0000_0001;

    /// What core 1 has in its copy.
    fn theirs(index: usize) -> &'static AtomicU64 {
        // SAFETY: memory that the test's machine plays, which only atomics touch.
        unsafe { &*instance::remote(1, &raw const CLAIMED[index / 64]).unwrap() }
    }

    fn is_ours(index: usize) -> bool {
        CLAIMED[index / 64].load(Ordering::SeqCst) >> (index % 64) & 1 != 0
    }

    #[test]
    fn a_device_is_claimed_once_until_it_is_free_again() {
        let _machine = Played::new(|_| ());
        for index in [0, 1, 63, 64, 100, INDICES - 1] {
            assert!(claim(index) && !claim(index), "{index}");
        }
        let all = [0, 1, 63, 64, 100, INDICES - 1];
        assert_eq!((0..INDICES).filter(|index| is_ours(*index)).collect::<Vec<_>>(), all);
        free(63);
        assert_eq!((0..INDICES).filter(|index| is_ours(*index)).count(), 5);
        assert!(claim(63) && !claim(64));
        all.into_iter().for_each(free);
        assert!(!(0..INDICES).any(is_ours) && !claim(INDICES));
        free(INDICES);
    }

    /// Who sees that another wants it too backs off, and leaves no trace.
    #[test]
    fn what_another_core_has_is_not_claimed() {
        let machine = Played::of_cores(2, &raw const CLAIMED);
        for index in [1, 70] {
            theirs(index).store(1 << (index % 64), Ordering::SeqCst);
            assert!(claim(index), "a core that never ran has none, whatever its memory holds");
            free(index);
            theirs(index).store(0, Ordering::SeqCst);
        }
        machine.fill(1, RUNNING);
        for index in [1, 70] {
            theirs(index).store(1 << (index % 64), Ordering::SeqCst);
            assert!(!claim(index) && !is_ours(index));
            assert!(claim(index + 1), "that is another device");
            theirs(index).store(0, Ordering::SeqCst);
            assert!(claim(index));
            free(index);
            free(index + 1);
        }
    }
}
