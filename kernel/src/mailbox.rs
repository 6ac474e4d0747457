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

use crate::arch::paging::flush_all;
use crate::arch::{cores, instance};
use crate::boot::info::CORES_MAX;
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
