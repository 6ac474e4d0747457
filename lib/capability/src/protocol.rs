//! The steps of the protocols that must not be left out: tests leave each out and show that it is
//! missed.

use core::fmt::Debug;
use core::hash::Hash;

/// A step that must not be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A capability that leaves a core sets the remote flags.
    Flag,
    /// A coordinator waits for the votes.
    Prepare,
    /// A voter first waits for what it has sent off.
    Drain,
    /// A locked node refuses capabilities that would come under the lock.
    RefuseArrivals,
    /// Messages of a sender that has seen a later change of who lives are held back.
    HoldBack,
    /// What a dead coordinator left behind is decided by asking all.
    Resolve,
    /// A capability being moved to a core that stops goes with it.
    EndMoved,
    /// The home of an object asks before it forgets it.
    AskBeforeEnd,
    /// One-phase operations wait for all answers.
    AwaitInvalidation,
    /// A revoke keeps its locks until all have carried it out.
    LockUntilDone,
}

/// Which steps are taken. [`Sound`] takes all.
pub trait Protocol: Copy + Debug + Eq + Hash + 'static {
    /// Whether this step is taken.
    fn takes(_: Step) -> bool {
        true
    }
}

/// The protocols as they are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sound;

impl Protocol for Sound {}
