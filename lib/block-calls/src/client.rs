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
        called(answer.map_err(CallFailure::Kernel)?)
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

/// What a worker's answer says.
fn called(answer: [u64; 3]) -> Result<Called, CallFailure> {
    match answer {
        [ended, pending, 0] => Ok(Called { ended, pending }),
        [.., refused::BATCH] => Err(CallFailure::Batch),
        [.., refused::LATE] => Err(CallFailure::Kernel(Error::Timeout)),
        _ => Err(CallFailure::NotAttached),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use contracts::blocks::Extent;
    use core::sync::atomic::AtomicU64;

    use crate::slot::Operation;

    #[test]
    fn an_answer_tells_what_ended_or_why_nothing_was_done() {
        assert_eq!(called([5, 2, 0]), Ok(Called { ended: 5, pending: 2 }));
        let refused = |why| called([0, 0, why]).unwrap_err();
        let late = CallFailure::Kernel(Error::Timeout);
        assert_eq!(
            [refused::BATCH, refused::LATE, refused::CALLER, 99].map(refused),
            [CallFailure::Batch, late, CallFailure::NotAttached, CallFailure::NotAttached]
        );
    }

    #[test]
    fn a_session_is_its_page_and_its_handles() {
        let page = Box::leak(Box::new([const { AtomicU64::new(0) }; 512]));
        let session = Session::new(Calls { portal: Handle(3), semaphore: Handle(4), page, badge: 5, worker: 0 });
        assert_eq!((session.portal(), session.semaphore()), (Handle(3), Handle(4)));
        let extent = Extent { sector: 8, sectors: 1 };
        let request = Request { operation: Operation::Write, number: 6, extent, offset: 0 };
        session.fill(2, &request);
        assert_eq!(slot::copy(page, 2), Ok(request));
        let phases = Phases { preprocess_ns: 10, submit_ns: 11, program_ns: 12, ..Phases::default() };
        slot::answer(page, 2, Ended::WritesThrough, &phases);
        let last = Phases { interrupt_ns: 12, signal_ns: 12, ..phases };
        assert_eq!((session.ended(2), session.phases(2)), (Ended::WritesThrough, last));
        assert_eq!(session.call(1, 0, 0), Err(CallFailure::Kernel(Error::BadCall)), "a host has no kernel");
    }
}
