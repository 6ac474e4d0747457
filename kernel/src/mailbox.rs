//! Wake bits: the one thing other cores may write in a core's memory.
//!
//! [`SLOTS`] bits per core, in its own memory. `post` sets a bit and interrupts the core if the bit's word was zero, that is if nobody has done so
//! since the word was last drained; `drain` takes all bits. What a bit means the two sides have agreed elsewhere; slot [`LOG_SLOT`] is the log's.
//!
//!   poster                         owner
//!   write message (its memory)
//!   fetch_or(word, bit) = 0
//!   interrupt ------------------>  drain: swap(word, 0)
//!                                  read messages
//! A bit set after the swap finds the word zero and interrupts again; one set before it is taken by this drain: none is lost.

use crate::arch::{cores, instance};
use core::sync::atomic::{AtomicU64, Ordering};

/// Wake bits per core.
pub const SLOTS: usize = 1024;
/// On core 0: some core has lines in its log ring.
pub const LOG_SLOT: usize = 0;

const WORDS: usize = SLOTS / 64;

static BITS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// Why a post was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MailboxError {
    /// The machine has no core of that number.
    NoSuchCore,
    /// Slots end at [`SLOTS`].
    NoSuchSlot,
}

/// Sets bit `slot` of `core` and wakes it if needed. A core that has not started finds the bit gone: it starts with none set.
pub fn post(core: usize, slot: usize) -> Result<(), MailboxError> {
    let word = BITS.get(slot / 64).ok_or(MailboxError::NoSuchSlot)?;
    let bits = if core == cores::this_core() { Some(core::ptr::from_ref(word)) } else { instance::remote(core, word) };
    let bits = bits.ok_or(MailboxError::NoSuchCore)?;
    // SAFETY: the address of that core's copy of `word`; it lives as long as the machine and all access is atomic.
    if unsafe { &*bits }.fetch_or(1 << (slot % 64), Ordering::SeqCst) == 0 {
        cores::wake_core(core);
    }
    Ok(())
}

/// Takes all bits set for this core and calls `f` with each slot.
pub fn drain(f: &mut dyn FnMut(usize)) {
    for (index, word) in BITS.iter().enumerate() {
        // The plain load keeps the usual case, nothing set, free of locked instructions.
        let mut bits = if word.load(Ordering::Relaxed) == 0 { 0 } else { word.swap(0, Ordering::SeqCst) };
        while bits != 0 {
            f(index * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}

/// Whether [`drain`] would find anything.
pub fn is_empty() -> bool {
    BITS.iter().all(|word| word.load(Ordering::Acquire) == 0)
}
