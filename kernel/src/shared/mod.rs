//! What applications share between cores: pools, and in them shares, segments and ranges (decisions
//! 33, 38, 49).
//!
//! Beside the mailbox the one room of the kernel with locks and atomics, and its pools the one
//! memory that several kernels write. `pool` is the memory, `object` what lies in it, `share` the
//! table from ids to objects, `segment` pages that come by themselves, `range` mappings and tables
//! that several cores use, `registry` how a core finds another's pools and sees its read sections;
//! `alias` is the other side: this core's private objects that stand for shared ones. Invariants:
//! what lies in a pool is atomic words, but for a range's mappings, which only the holder of its
//! lock looks at, and pages that nobody else knows yet; a core has at least one alias in a pool as
//! long as it may look there, and a pool stays while there is an alias; a kernel holds at most one
//! object's lock, or a range's and inside that a segment's, and inside those the pool's; no lock is
//! held while anything but a lock or another core's read section is waited for.

mod alias;
mod object;
mod pool;
mod range;
#[cfg_attr(not(target_os = "none"), path = "registry_host.rs")]
pub mod registry;
mod segment;
mod share;

pub use alias::{Alias, Found, Keeper, Local, New, SharedShare, destroy_keeper, destroy_share, shared};
pub use object::{Name, ObjectKind, SharedObject};
pub use pool::Pool;
pub use range::{RangeStat, SharedRange};
pub use segment::NO_RANGE;

use crate::hardware;
use lock::Relax;

/// Pools whose home is one core.
pub const POOLS_MAX: usize = 64;
/// A core that holds a lock or is in a read section is in its kernel and goes on; this much longer
/// than anything there takes, on a host that is busy besides.
const SPIN_TIMEOUT_NS: u64 = 10_000_000_000;
/// Looks between two looks at the clock.
const LOOKS: u32 = 1 << 16;

/// Most that counts between two looks at the clock: a machine that stood still, or a core that its
/// host did not run, did not wait.
const LOOK_NS_MAX: u64 = 100_000_000;

/// How a kernel waits for another: that holds a lock, or is to forget translations.
#[derive(Default)]
pub struct SpinTimeout {
    looks: u32,
    last_ns: u64,
    waited_ns: u64,
}

impl Relax for SpinTimeout {
    #[inline]
    fn relax(&mut self) {
        core::hint::spin_loop();
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS) {
            self.look_at_clock();
        }
    }
}

impl SpinTimeout {
    #[cold]
    #[inline(never)]
    fn look_at_clock(&mut self) {
        let now_ns = hardware::now_ns();
        if self.last_ns != 0 {
            self.waited_ns += now_ns.saturating_sub(self.last_ns).min(LOOK_NS_MAX);
        }
        self.last_ns = now_ns;
        assert!(
            self.waited_ns < SPIN_TIMEOUT_NS,
            "another core did not release a shared object's lock, or forget translations, for 10 s: has its kernel stopped?"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_stood_still_did_not_wait() {
        let mut timeout = SpinTimeout::default();
        for hour in 1..=50 {
            hardware::set_clock(hour * 3_600_000_000_000);
            timeout.look_at_clock();
        }
    }

    #[test]
    #[should_panic(expected = "has its kernel stopped?")]
    fn a_core_that_has_stopped_is_told_of() {
        let mut timeout = SpinTimeout::default();
        for look in 1..=1100 {
            hardware::set_clock(look * LOOK_NS_MAX / 10);
            timeout.look_at_clock();
        }
    }
}
