//! Semaphore: a count, and who waits for it, first come first served.

use super::context::{Context, State};
use super::{Header, List, Object, Ptr};
use crate::state::Kernel;
use crate::steps::{Budget, CALLER_UNITS};
use abi::call::kinds::Number;
use abi::{Error, ObjectType};
use core::cell::Cell;

/// Largest count.
pub const COUNT_MAX: u64 = *Number::SemaphoreCount.limits().end();

/// A counting semaphore.
///
/// | from | by what | to |
/// |---|---|---|
/// | count 0, nobody waits | down | somebody waits |
/// | somebody waits | up by more than wait | counts |
/// | somebody waits | up by as many as wait | count 0 |
/// | somebody waits | the deadline or end of the last, or the semaphore goes | count 0 |
/// | count 0, or counts | up | counts, up to [`COUNT_MAX`] |
/// | counts | down | one less |
///
/// Invariant, asserted at each change: the count is 0 while anybody waits.
#[repr(C)]
pub struct Semaphore {
    header: Header,
    pub(crate) count: Cell<u64>,
    /// Waiting contexts; each counts as a reference of the semaphore.
    pub(crate) waiting: List<Context, 3>,
}

// SAFETY: repr(C), header first.
unsafe impl Object for Semaphore {
    const TYPE: ObjectType = ObjectType::Semaphore;
}

impl Semaphore {
    /// The header comes from `Kernel::create`.
    pub fn new(header: Header, count: u64) -> Semaphore {
        Semaphore { header, count: Cell::new(count), waiting: List::new() }
    }
}

impl Ptr<Semaphore> {
    /// Adds to the count, or wakes as many as that.
    pub fn up(self, kernel: &mut Kernel, count: u64) -> Result<(), Error> {
        let sum = self.count.get().checked_add(count).filter(|sum| *sum <= COUNT_MAX).ok_or(Error::BadArgument)?;
        self.hand_out(kernel, sum);
        Ok(())
    }

    /// What other cores' ups came to; past the largest count the rest is dropped, as nobody is
    /// there to be told.
    pub(super) fn up_from_elsewhere(self, kernel: &mut Kernel, count: u64) {
        self.hand_out(kernel, self.count.get().saturating_add(count).min(COUNT_MAX));
    }

    fn hand_out(self, kernel: &mut Kernel, mut left: u64) {
        assert!(left <= COUNT_MAX && (self.count.get() == 0 || self.waiting.is_empty()), "one waits with a count");
        while left > 0 {
            let Some(first) = self.waiting.first() else { break };
            left -= 1;
            kernel.complete(first, Ok([0; 3]));
        }
        self.count.set(left);
    }

    /// Takes one if there is one.
    pub fn try_down(self) -> bool {
        let count = self.count.get();
        self.count.set(count.saturating_sub(1));
        count > 0
    }

    /// Makes `context` wait for one.
    pub fn wait(self, kernel: &mut Kernel, context: Ptr<Context>) {
        assert!(self.count.get() == 0, "one waits while the count is above 0");
        kernel.retain(self);
        self.waiting.push_back(context);
        kernel.block(context, State::OnSemaphore(self));
    }

    /// It goes: those who wait are told; tells whether the budget sufficed for all.
    pub(super) fn fail_waiting(self, kernel: &mut Kernel, budget: &mut Budget) -> bool {
        while let Some(first) = self.waiting.first() {
            if !budget.spend(CALLER_UNITS) {
                return false;
            }
            kernel.complete(first, Err(Error::PeerDead));
        }
        true
    }

    /// `context` waits for it no more.
    pub(super) fn leave(self, kernel: &mut Kernel, context: Ptr<Context>) {
        self.waiting.remove(context);
        kernel.release(self);
    }
}

pub(super) fn destroy(kernel: &mut Kernel, semaphore: Ptr<Semaphore>) {
    assert!(semaphore.waiting.is_empty(), "what waits holds a reference");
    kernel.wake_slots.free_all(semaphore.any());
}
