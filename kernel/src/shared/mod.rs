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
    use super::pool::{PAGE_LINES, wait_for_readers};
    use super::*;
    use crate::memory::{PAGE_BYTES, PhysAddr, set_test_ram};
    use ::fuzz::Random;
    use abi::Error;
    use core::ops::Range;
    use lock::{Kind, Line};
    use std::cell::Cell;
    use std::rc::Rc;
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

    /// A pool of so many pages, made by core 0 of a machine of its own, and the memory that it is
    /// in.
    fn pool_of(pages: u64) -> (Vec<u128>, Pool) {
        let mut memory = vec![0u128; (pages as usize + 2) * PAGE_BYTES / 16];
        let offset = memory.as_ptr().cast::<u8>().align_offset(PAGE_BYTES);
        set_test_ram(memory.as_mut_ptr().cast::<u8>().wrapping_add(offset));
        registry::set_test_core(registry::Machine::new(), 0);
        let pool = Pool::new(PhysAddr(PAGE_BYTES as u64), pages, 0, 7);
        pool.mark(0).unwrap();
        (memory, pool)
    }

    fn share_in(pool: Pool, kind: Kind) -> SharedObject {
        SharedObject::create(pool, 0, ObjectKind::Share, share::BUCKET_LINES, kind, 1, [0; 2]).unwrap()
    }

    /// The lowest run of unused pages there, by a look at each.
    fn lowest_run(used: &[bool], wanted: u64, within: Range<u64>) -> Option<u64> {
        let is_free = |page: u64| !used[page as usize];
        (within.start..(within.end + 1).saturating_sub(wanted)).find(|first| (*first..first + wanted).all(is_free))
    }

    #[test]
    fn a_pool_gives_the_lowest_run_that_is_free_and_gets_all_of_it_back() {
        const PAGES: u64 = 1603;
        // Four lines, one for each 8 pages, and one for each 8 groups of pages.
        const HEAD: u64 = (4 + 201 + 1u64).div_ceil(PAGE_LINES);
        let (_memory, pool) = pool_of(PAGES);
        assert_eq!(pool.free_pages(), PAGES - HEAD);
        assert_eq!(pool.take(0, 0), Err(Error::NoMemory), "a run of nothing");
        let mut used: Vec<bool> = (0..PAGES).map(|page| page < HEAD).collect();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut random = Random::new(54);
        for turn in 0..1200 {
            // It fills up, and is nearly full for most of the time.
            if runs.is_empty() || random.below(10) < 7 {
                let wanted = random.one(&[1, 1, 1, 2, 3, 17, 70]);
                let start = random.below(PAGES) * random.below(2);
                let within = start..random.one(&[PAGES, PAGES, (start + 90).min(PAGES)]);
                let expected = lowest_run(&used, wanted, within.clone());
                assert_eq!(
                    pool.take_within(0, wanted, within.clone()).ok(),
                    expected,
                    "{turn}: {wanted} of {within:?}"
                );
                if let Some(first) = expected {
                    used[first as usize..(first + wanted) as usize].fill(true);
                    runs.push((first, wanted));
                }
            } else {
                let (first, pages) = runs.swap_remove(random.below(runs.len() as u64) as usize);
                pool.release_pages(0, &mut (first..first + pages));
                used[first as usize..(first + pages) as usize].fill(false);
            }
            assert_eq!(pool.free_pages(), used.iter().filter(|used| !**used).count() as u64);
        }
        assert!(runs.len() > 200, "it was never full: {} runs", runs.len());
        runs.into_iter().for_each(|(first, pages)| pool.release_pages(0, &mut (first..first + pages)));
        assert_eq!(pool.take(0, PAGES - HEAD), Ok(HEAD), "all in one run again");
    }

    #[test]
    fn a_search_for_a_page_begins_behind_those_that_were_taken() {
        let (_memory, pool) = pool_of(500);
        // Its own pages are looked at once.
        pool.take(0, 1).unwrap();
        hardware::take_work();
        (0..100).for_each(|_| _ = pool.take(0, 1).unwrap());
        assert_eq!(hardware::take_work(), 100, "one look for each");
    }

    /// A search for a run does not know that nothing is free in the first group of 512.
    #[test]
    fn a_search_that_passes_a_full_group_looks_at_all_of_the_next() {
        let (_memory, pool) = pool_of(1200);
        while pool.take(0, 1).is_ok() {}
        [5, 513].into_iter().for_each(|first| pool.release_pages(0, &mut (first..first + 2)));
        assert_eq!([pool.take(0, 2), pool.take(0, 2), pool.take(0, 2)], [Ok(5), Ok(513), Err(Error::NoMemory)]);
    }

    #[test]
    fn a_pool_that_died_or_lost_its_last_name_gets_no_new_one() {
        let (_memory, pool) = pool_of(16);
        pool.add_first_alias(3).unwrap();
        pool.add_alias(1).unwrap();
        assert_eq!((pool.aliases(), pool.users().collect::<Vec<_>>()), (3, vec![0, 1, 3]));
        assert_eq!(pool.end().collect::<Vec<_>>(), [0, 1, 3], "those are told");
        assert_eq!(pool.add_alias(1), Err(Error::PeerDead));
        assert_eq!(pool.add_first_alias(2), Err(Error::PeerDead));
        assert_eq!((0..3).map(|_| pool.drop_alias()).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!((pool.add_first_alias(2), pool.aliases()), (Err(Error::NotFound), 0), "its pages are taken back");
    }

    #[test]
    fn an_object_that_lost_its_last_reference_is_not_taken_again() {
        let (_memory, pool) = pool_of(16);
        let free = pool.free_pages();
        let object = share_in(pool, Kind::Spin);
        assert!(object.try_retain());
        object.release(0);
        assert!(pool.free_pages() < free, "a reference is left");
        object.release(0);
        assert_eq!(pool.free_pages(), free);
        assert!(!object.try_retain());
        assert_eq!(object.references(), 0);
    }

    /// A holder as seen in the word of the lock: each kind writes its own.
    #[test]
    fn an_object_has_the_kind_of_lock_that_its_maker_chose() {
        let words = Kind::ALL.map(|kind| {
            let (_memory, pool) = pool_of(16);
            let object = share_in(pool, kind);
            let _held = object.held(1);
            object.guarded(0).load(lock::Ordering::Relaxed)
        });
        assert_eq!(words, [1, 1 << 63, 2, 1]);
        let (_memory, pool) = pool_of(16);
        let object = share_in(pool, Kind::ScalableReadWrite);
        let _readers = [0, 1].map(|core| object.lock().read::<SpinWait>(core));
        assert!(object.lock().is_free(), "readers take their own lines only");
    }

    /// What the core that has the lock does while another looks at it.
    fn while_it_looks(act: impl FnMut(u32) + 'static) {
        let (mut act, mut looks) = (act, 0);
        hardware::set_meanwhile(Some(Box::new(move || {
            looks += 1;
            act(looks);
        })));
    }

    #[test]
    fn a_lock_is_stuck_while_the_same_core_keeps_it_and_no_longer() {
        for kind in Kind::ALL {
            let (_memory, pool) = pool_of(16);
            let object = share_in(pool, kind);
            assert!(!object.is_stuck() && !is_stuck(object.lock()), "nobody has it");
            let held = object.held(1);
            assert!(object.is_stuck(), "{kind:?}");
            let of_pool = pool.own_lock().write::<SpinWait>(1);
            assert!(object.is_stuck(), "{kind:?}: nor can it be had with its pool's");
            drop(held);
            assert!(object.is_stuck(), "{kind:?}: its pool's alone");
            drop(of_pool);
            for lock in [object.lock(), pool.own_lock()] {
                let mut held = Some(lock.write::<SpinWait>(1));
                while_it_looks(move |look| drop(held.take_if(|_| look == 3)));
                assert!(!object.is_stuck(), "{kind:?}: it let go");
                let mut held = Some(lock.write::<SpinWait>(1));
                while_it_looks(move |look| {
                    drop(held.take());
                    held = Some(lock.write(1 + look as usize % 2));
                });
                assert!(!object.is_stuck(), "{kind:?}: others have their turns");
                hardware::set_meanwhile(None);
                assert!(lock.is_free());
            }
        }
    }

    #[test]
    fn who_unlinks_waits_for_the_cores_that_read_there() {
        let (_memory, pool) = pool_of(16);
        pool.add_alias(2).unwrap();
        for wait in [|pool: Pool| pool.wait_for_readers(), |pool: Pool| wait_for_readers(pool.users())] {
            let mut section = Some(registry::reader_of(2).unwrap().enter());
            let looks = Rc::new(Cell::new(0));
            let counted = looks.clone();
            while_it_looks(move |look| {
                counted.set(look);
                drop(section.take_if(|_| look == 3));
            });
            wait(pool);
            hardware::set_meanwhile(None);
            assert_eq!(looks.get(), 3, "until the section has ended, and no longer");
        }
    }
}
