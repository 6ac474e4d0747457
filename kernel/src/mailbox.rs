//! Wake bits and their counts: the one thing other cores may write in a core's memory.
//!
//! [`SLOTS`] bits per core, in its own memory. `post` sets a bit and interrupts the core if the
//! bit's word was zero, that is if nobody has done so since the word was last drained; `drain`
//! takes all bits. The two sides agree elsewhere on the meaning of a bit; slot [`LOG_SLOT`] is the
//! log's.
//!
//!   poster                         owner
//!   write message (its memory)
//!   fetch_or(word, bit) = 0
//!   interrupt ------------------>  drain: swap(word, 0)
//!                                  read messages
//! A bit set after the swap finds the word zero and interrupts again; one set before it is taken by
//! this drain: none is lost. A bit says that something came, not how often. What must be counted
//! (ups of a semaphore) is added to the slot's count before the bit is set, and taken after the bit
//! was. Beside the bits, other cores may request a TLB shootdown of this core (`lock::Shootdown`);
//! they interrupt it for that without a bit.

mod word;

pub use word::{Byte, Word};

use crate::arch::{cores, instance};
use crate::boot::info::CORES_MAX;
use crate::hardware::flush_all;
use core::sync::atomic::{AtomicU64, Ordering};
use lock::Shootdown;

/// Wake bits per core.
pub const SLOTS: usize = abi::layout::WAKE_SLOTS as usize;
/// On core 0: some core has lines in its log ring.
pub const LOG_SLOT: usize = 0;

const WORDS: usize = SLOTS / 64;

/// The cores that request a TLB shootdown.
pub type TlbShootdown = Shootdown<{ CORES_MAX.div_ceil(64) }>;

/// All that others may write.
pub struct Mailbox {
    bits: [AtomicU64; WORDS],
    /// The count of each slot that was not taken yet.
    counts: [AtomicU64; SLOTS],
    shootdown: TlbShootdown,
}

static MAILBOX: Mailbox = Mailbox {
    bits: [const { AtomicU64::new(0) }; WORDS],
    counts: [const { AtomicU64::new(0) }; SLOTS],
    shootdown: TlbShootdown::new(),
};

/// The mailbox of a core.
pub fn place() -> *const Mailbox {
    &raw const MAILBOX
}

/// Sets bit `slot` of `core` and wakes it if needed. A core or slot that does not exist is ignored;
/// a core that has not started finds the bit gone: it starts with none set.
pub fn post(core: usize, slot: usize) {
    let word = MAILBOX.bits.get(slot / 64).and_then(|word| at_core(core, word));
    if word.is_some_and(|word| word.fetch_or(1 << (slot % 64), Ordering::SeqCst) == 0) {
        cores::wake_core(core);
    }
}

/// Adds to the count of a slot, then posts it.
pub fn post_count(core: usize, slot: usize, count: u32) {
    if let Some(counted) = MAILBOX.counts.get(slot).and_then(|counted| at_core(core, counted)) {
        counted.fetch_add(u64::from(count), Ordering::SeqCst);
        post(core, slot);
    }
}

/// Takes the count of a slot of this core.
pub fn take_count(slot: usize) -> u64 {
    MAILBOX.counts.get(slot).map_or(0, |count| count.swap(0, Ordering::SeqCst))
}

/// A core's copy of something above; `None`: the machine has no core of that number.
fn at_core<T: Sync>(core: usize, word: &'static T) -> Option<&'static T> {
    let copy = if core == cores::this_core() { Some(core::ptr::from_ref(word)) } else { instance::remote(core, word) };
    // SAFETY: the address of that core's copy of `word`; it lives as long as the machine and all
    // access is atomic.
    copy.map(|copy| unsafe { &*copy })
}

/// Requests a TLB shootdown of another core, of all translations of user memory; wakes it if
/// needed.
pub fn send_tlb_shootdown(core: usize) {
    if at_core(core, &MAILBOX.shootdown).is_some_and(|shootdown| shootdown.ask(cores::this_core())) {
        cores::wake_core(core);
    }
}

/// Whether that core has served the last request; one that does not exist has none.
pub fn shootdown_is_done(core: usize) -> bool {
    at_core(core, &MAILBOX.shootdown).is_none_or(|shootdown| shootdown.is_answered(cores::this_core()))
}

/// Serves pending shootdowns: invalidates all translations of user memory, then acknowledges;
/// gives how many it served.
pub fn service_tlb_shootdowns() -> u64 {
    MAILBOX.shootdown.answer(flush_all)
}

/// Takes all bits set for this core and calls `f` with each slot.
pub fn drain(f: &mut dyn FnMut(usize)) {
    for (index, word) in MAILBOX.bits.iter().enumerate() {
        // The plain load keeps the usual case, nothing set, free of locked instructions.
        let mut bits = if word.load(Ordering::Relaxed) == 0 { 0 } else { word.swap(0, Ordering::SeqCst) };
        while bits != 0 {
            f(index * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}

/// Whether nothing is pending for this core.
pub fn is_empty() -> bool {
    MAILBOX.bits.iter().all(|word| word.load(Ordering::Acquire) == 0) && !MAILBOX.shootdown.is_asked()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware;
    use crate::tests::machine::{Played, take_interrupts};

    /// What lies in the mailbox of a core that the test plays.
    fn of(core: usize) -> &'static Mailbox {
        // SAFETY: memory that the test's machine plays, and zeros are an empty mailbox.
        unsafe { &*instance::remote(core, place()).unwrap() }
    }

    fn drained() -> Vec<usize> {
        let mut slots = Vec::new();
        drain(&mut |slot| slots.push(slot));
        slots
    }

    fn slots_of(core: usize) -> Vec<usize> {
        let is_set = |slot: &usize| of(core).bits[slot / 64].load(Ordering::SeqCst) >> (slot % 64) & 1 != 0;
        (0..SLOTS).filter(is_set).collect()
    }

    /// Its word is empty only once: who posts into one that is not need not wake the core again.
    #[test]
    fn the_first_bit_of_a_word_wakes_its_core_and_no_bit_is_lost() {
        let _machine = Played::of_cores(3, place());
        let vector = 1 << 14 | 0xf1;
        for (slot, wakes) in [(5, 1), (5, 0), (63, 0), (64, 1), (SLOTS - 1, 1), (0, 0), (65, 0)] {
            post(1, slot);
            assert_eq!(take_interrupts(), vec![(1, vector); wakes], "{slot}");
        }
        assert_eq!(slots_of(1), [0, 5, 63, 64, 65, SLOTS - 1]);
        assert_eq!(slots_of(2), [] as [usize; 0]);
        // A slot or a core that does not exist.
        post(1, SLOTS);
        post(3, 1);
        post_count(3, 1, 1);
        post_count(1, SLOTS, 1);
        assert_eq!((take_interrupts(), slots_of(1).len()), (vec![], 6));
        // The other core takes its bits: the next wakes it.
        of(1).bits[0].store(0, Ordering::SeqCst);
        post(1, 6);
        assert_eq!(take_interrupts(), [(1, vector)]);
    }

    #[test]
    fn all_that_was_posted_is_taken_once_and_in_order() {
        let _machine = Played::of_cores(1, place());
        assert!(is_empty() && drained().is_empty());
        let mut slots = [0, 1, 63, 64, 127, 200, SLOTS - 2, SLOTS - 1];
        slots.iter().rev().for_each(|slot| post(0, *slot));
        post(0, 1);
        assert!(!is_empty());
        slots.sort();
        assert_eq!(drained(), slots);
        assert!(is_empty() && drained().is_empty());
        // In any word alone, too.
        for slot in [0, 64, SLOTS - 1] {
            post(0, slot);
            assert!(!is_empty());
            assert_eq!(drained(), [slot]);
        }
    }

    #[test]
    fn a_count_is_there_before_its_bit_and_is_taken_once() {
        let _machine = Played::of_cores(2, place());
        post_count(0, 7, 3);
        post_count(0, 7, u32::MAX);
        post_count(0, 8, 1);
        assert_eq!(drained(), [7, 8]);
        assert_eq!([7, 7, 8, 9, SLOTS].map(take_count), [u64::from(u32::MAX) + 3, 0, 1, 0, 0]);
        post_count(1, 9, 2);
        assert_eq!((of(1).counts[9].load(Ordering::SeqCst), slots_of(1), take_count(9)), (2, vec![9], 0));
    }

    #[test]
    fn a_shootdown_is_asked_for_once_and_waited_for_until_it_is_served() {
        let _machine = Played::of_cores(2, place());
        assert!(shootdown_is_done(1) && shootdown_is_done(2), "none was asked for");
        send_tlb_shootdown(1);
        assert_eq!(take_interrupts().len(), 1);
        assert!(!shootdown_is_done(1));
        send_tlb_shootdown(2);
        assert_eq!(take_interrupts(), []);
        assert_eq!(of(1).shootdown.answer(|| ()), 1);
        assert!(shootdown_is_done(1));
        // One for this core itself is pending as bits are.
        assert!(is_empty());
        assert!(MAILBOX.shootdown.ask(1));
        assert!(!is_empty());
        hardware::take_flushes();
        assert_eq!((service_tlb_shootdowns(), hardware::take_flushes()), (1, vec![hardware::Flush::All]));
        assert!(is_empty());
        assert_eq!((service_tlb_shootdowns(), hardware::take_flushes()), (0, vec![]));
        hardware::take_register_writes();
    }

    /// Whatever bits several posters set, each is seen after its count was added.
    #[test]
    fn nothing_that_others_post_meanwhile_is_lost() {
        const POSTERS: usize = 3;
        const ROUNDS: u64 = 2000;
        let _machine = Played::of_cores(1, place());
        let slot_of = |poster: usize, round: u64| 60 + 8 * poster + (round % 8) as usize;
        let mut taken = [0; SLOTS];
        std::thread::scope(|scope| {
            let posters = [0, 1, 2].map(|poster| {
                scope.spawn(move || (0..ROUNDS).for_each(|round| post_count(0, slot_of(poster, round), 1)))
            });
            while posters.iter().any(|poster| !poster.is_finished()) {
                drain(&mut |slot| taken[slot] += take_count(slot));
            }
        });
        drain(&mut |slot| taken[slot] += take_count(slot));
        let expected = (0..SLOTS).map(|slot| if (60..60 + 8 * POSTERS).contains(&slot) { ROUNDS / 8 } else { 0 });
        assert!(taken.into_iter().eq(expected), "{taken:?}");
    }
}
