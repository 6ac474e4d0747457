//! What applications share between cores: pools, and in them shares, segments and ranges (decisions
//! 33, 38, 49).
//!
//! Beside the mailbox this is the one room of the kernel with locks and atomics, and its pools are
//! the one memory that several kernels write. `pool` is the memory, `object` what lies in it,
//! `share` the table from ids to objects, `segment` pages that are made on demand, `range` mappings
//! and tables that several cores use, `registry` how a core finds another's pools and sees its read
//! sections; `alias` is the other side: this core's private objects that represent shared ones.
//! Invariants: a pool holds atomic words, except a range's mappings, which only the holder of its
//! lock reads, and pages that nobody else knows yet; a core has at least one alias in a pool as
//! long as it may read there, and a pool stays while there is an alias; a kernel holds at most one
//! object's lock, or a range's and inside that a segment's, and inside those the pool's; a holder
//! of a lock waits for nothing but a lock or another core's read section.

mod alias;
mod object;
mod pool;
mod range;
#[cfg_attr(not(target_os = "none"), path = "registry_host.rs")]
pub mod registry;
mod segment;
mod share;

pub use alias::{Alias, Found, Local, New, PoolOwner, SharedShare, destroy_share, drain_owner, shared};
pub use object::{Name, ObjectKind, SharedObject};
pub use pool::Pool;
pub use range::{RangeStat, SharedRange};
pub use segment::NO_RANGE;

use crate::hardware;
use lock::{Lock, Relax};

/// Pools whose home is one core.
pub const POOLS_MAX: usize = 64;
/// A core that holds a lock or is in a read section is in its kernel and goes on; this much longer
/// than anything there takes, on a host that is busy besides.
const LONG_WAIT_NS: u64 = 10_000_000_000;
/// Spins between two readings of the clock.
const SPINS: u32 = 1 << 16;
/// Spins on a lock after which a call does not wait for it. About as long as a step may be.
const STUCK_SPINS: u32 = 1 << 11;

/// Most time that counts between two readings of the clock: a machine that stood still, or a core
/// that its host did not run, did not wait.
const SPIN_NS_MAX: u64 = 100_000_000;

/// How a kernel waits for another core's, which holds a lock, is in a read section, or has a TLB
/// shootdown to serve. Meanwhile it serves shootdowns itself, so that no two cores wait for each
/// other. It waits as long as the other takes, and logs a long wait once.
#[derive(Default)]
pub struct SpinWait {
    spins: u32,
    last_ns: u64,
    waited_ns: u64,
}

impl Relax for SpinWait {
    #[cold]
    #[inline(never)]
    fn relax(&mut self) {
        core::hint::spin_loop();
        hardware::service_tlb_shootdowns();
        self.spins = self.spins.wrapping_add(1);
        if self.spins.is_multiple_of(SPINS) {
            self.read_clock();
        }
    }
}

impl SpinWait {
    fn read_clock(&mut self) {
        let (now_ns, was_long) = (hardware::now_ns(), self.waited_ns >= LONG_WAIT_NS);
        if self.last_ns != 0 {
            self.waited_ns += now_ns.saturating_sub(self.last_ns).min(SPIN_NS_MAX);
        }
        self.last_ns = now_ns;
        if self.waited_ns >= LONG_WAIT_NS && !was_long {
            hardware::write_line(format_args!(
                "pelago: a kernel waits for another core's, to release a lock or to serve a TLB shootdown, for 10 s now"
            ));
        }
    }
}

/// Whether a lock has had the same holder for longer than a step takes: a call that has changed
/// nothing yet should leave the kernel instead of waiting.
fn is_stuck(lock: Lock<'_>) -> bool {
    let (mut wait, acquires) = (SpinWait::default(), lock.stat().acquires);
    (0..STUCK_SPINS).all(|_| {
        wait.relax();
        !lock.is_free() && lock.stat().acquires == acquires
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lock::{Kind, Line};
    use std::time::{Duration, Instant};

    fn spin_for(spins: u64, step_ns: u64) -> usize {
        hardware::take_lines();
        let mut wait = SpinWait::default();
        for spin in 1..=spins {
            hardware::set_clock(spin * step_ns);
            wait.read_clock();
        }
        hardware::take_lines().len()
    }

    #[test]
    fn a_long_wait_is_told_of_once_and_goes_on() {
        assert_eq!(spin_for(50, 3_600_000_000_000), 0, "a machine that stood still did not wait");
        assert_eq!(spin_for(900, SPIN_NS_MAX / 10), 0);
        assert_eq!(spin_for(100_000, SPIN_NS_MAX / 10), 1);
    }

    /// The holder of a lock has the core that waits for it serve a shootdown.
    #[test]
    fn a_core_that_waits_for_a_lock_serves_shootdowns() {
        for kind in Kind::ALL {
            let machine = registry::Machine::new();
            let lines: Vec<Line> = (0..registry::CORES).map(|_| Line::new()).collect();
            let word = lock::AtomicU64::new(0);
            let lock = || Lock::new(kind, &word, &lines);
            registry::set_test_core(machine, 0);
            hardware::set_alone(false);
            let held = lock().write::<SpinWait>(0);
            let begun = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    registry::set_test_core(machine, 1);
                    hardware::set_alone(false);
                    assert!(is_stuck(lock()), "its holder waits for us");
                    begun.store(true, std::sync::atomic::Ordering::Release);
                    drop(lock().write::<SpinWait>(1));
                });
                let since = Instant::now();
                let wait_for = |is_done: &dyn Fn() -> bool| {
                    while !is_done() && since.elapsed() < Duration::from_secs(100) {
                        std::thread::yield_now();
                    }
                };
                wait_for(&|| begun.load(std::sync::atomic::Ordering::Acquire));
                for _ in 0..20 {
                    hardware::send_tlb_shootdown(1);
                    wait_for(&|| hardware::shootdown_is_done(1));
                }
                let is_done = hardware::shootdown_is_done(1);
                drop(held);
                assert!(is_done, "{kind:?}: it does not answer");
            });
        }
    }
}
