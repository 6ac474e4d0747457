//! The steps of the protocols that must not be left out, as constants: tests leave each out and
//! show that it is missed.

use core::fmt::Debug;
use core::hash::Hash;

/// Which steps are taken. [`Sound`] takes all.
pub trait Protocol: Copy + Debug + Eq + Hash + 'static {
    /// A capability that leaves a core sets the remote flags.
    const FLAGS: bool = true;
    /// A coordinator waits for the votes.
    const PREPARES: bool = true;
    /// A voter first waits for what it has sent off.
    const DRAINS: bool = true;
    /// A locked node refuses capabilities that would come under the lock.
    const REFUSES_ARRIVALS: bool = true;
    /// Messages of a sender that has seen a later change of who lives are held back.
    const HOLDS_BACK: bool = true;
    /// What a dead coordinator left behind is decided by asking all.
    const RESOLVES: bool = true;
    /// A capability being moved to a core that stops goes with it.
    const MOVED_GO_DOWN: bool = true;
    /// The home of an object asks before it forgets it.
    const ASKS_BEFORE_END: bool = true;
    /// One-phase operations wait for all answers.
    const AWAITS_INVALIDATION: bool = true;
    /// A revoke keeps its locks until all have carried it out.
    const LOCKS_UNTIL_DONE: bool = true;
}

/// The protocols as they are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sound;

impl Protocol for Sound {}
