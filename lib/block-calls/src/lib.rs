//! The contract `blocks` by calls (NOVA, section 4): a client enters a worker of the server's core
//! by a portal, on its own time; the worker hands requests to the context that has the device, and
//! never waits.
//!
//! ```text
//! client ──call(words)──► worker ──ring, notify──► handler ──► device
//!    ▲  session page: slots   │ desk: entries          │
//!    └───── semaphore ◄───────┼────────────────────────┘
//!    └── second call ──► picks up what has ended
//! ```
//!
//! A server before another (`front`: an encrypted disk's) has workers that check a request, encrypt
//! it and call on to the worker behind, all on the client's time; that of picking up decrypts.
//!
//! Invariants: a call names slots of the client's session page by two words, those to be asked and
//! those to be picked up; a slot is copied once, and the copy is checked. The desk has an entry for
//! each slot of each client, so that a client that never picks up holds its own only. Nothing here
//! allocates or waits in a worker. What the client writes is decoded.
//!
//! Deliberately unknown here: devices, channels, who restarts whom.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod client;
pub mod desk;
pub mod front;
pub mod limits;
pub mod path;
pub mod slot;
pub mod worker;

pub use client::{CallFailure, Called, Session};
pub use desk::{Asked, Desk};
pub use front::Front;
pub use slot::{Ended, Operation, Phases, Request};
pub use worker::{settle, start_front_worker, start_worker};

/// Slots of a session page: as many requests as a client may have under way.
pub const SLOTS: usize = 64;
/// Most slots that a call names, so that it is short: others of the core wait for the same worker.
pub const BATCH_MAX: u32 = 32;

/// Why a call was refused as a whole; the third word of the answer, 0 if it was not.
pub mod refused {
    /// More than [`BATCH_MAX`](super::BATCH_MAX) slots, or one to be asked and picked up.
    pub const BATCH: u64 = 1;
    /// The server does not know the caller, or it has not attached. Remedy: attach by the ring.
    pub const CALLER: u64 = 2;
    /// The server behind did not answer in time. Remedy: the same call again.
    pub const LATE: u64 = 3;
}

/// The slots of a word, from the first on.
pub fn slots(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let slot = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(slot)
    })
}
