//! The client's side: its session page, and calls.

use abi::{Error, Handle};
use runtime::Calls;

use crate::refused;
use crate::slot::{self, Ended, Phases, Request};

/// What a call gave, by slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// These have ended, and are free. One that ended with [`Ended::NotAsked`] was too much for
    /// this call: ask it again.
    pub ended: u64,
    /// These are under way: the semaphore is raised when one of them may be picked up.
    pub pending: u64,
}

/// Why a call gave nothing. What it asked may be under way all the same, after [`Error::Timeout`];
/// asked again with its number it is not carried out twice at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// `PeerDead`: the server ended; wait for the semaphore, attach, and ask again. `Timeout`: it
    /// did not answer by then. `Busy`: call later.
    Kernel(Error),
    /// More than 32 slots, or one in both words. Remedy: several calls.
    Batch,
    /// The server began anew. Remedy: attach by the ring, and ask again.
    NotAttached,
}

/// A session with a server.
pub struct Session {
    calls: Calls,
}

impl Session {
    /// Over what the component was given.
    pub fn new(calls: Calls) -> Session {
        Session { calls }
    }

    /// What the server raises.
    pub fn semaphore(&self) -> Handle {
        self.calls.semaphore
    }

    /// What leads to the server's worker.
    pub fn portal(&self) -> Handle {
        self.calls.portal
    }

    /// Writes what a slot asks; the slot is not under way.
    pub fn fill(&self, slot: usize, request: &Request) {
        slot::fill(self.calls.page, slot, request);
    }

    /// Asks some slots and picks up others, at most 32 together, in one call. It takes this
    /// context's time.
    ///
    /// # Errors
    /// [`CallFailure`] says cause and remedy.
    pub fn call(&self, ask: u64, pick_up: u64, deadline_ns: u64) -> Result<Called, CallFailure> {
        let answer = sys::portal_call(self.calls.portal, [ask, pick_up, 0, 0], deadline_ns);
        match answer.map_err(CallFailure::Kernel)? {
            [ended, pending, 0] => Ok(Called { ended, pending }),
            [.., refused::BATCH] => Err(CallFailure::Batch),
            [.., refused::LATE] => Err(CallFailure::Kernel(Error::Timeout)),
            _ => Err(CallFailure::NotAttached),
        }
    }

    /// How a slot that has ended did.
    pub fn ended(&self, slot: usize) -> Ended {
        slot::ended(self.calls.page, slot)
    }

    /// When a slot that has ended was where.
    pub fn phases(&self, slot: usize) -> Phases {
        slot::phases(self.calls.page, slot)
    }
}
