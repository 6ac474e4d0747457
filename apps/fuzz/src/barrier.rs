//! Where the fuzzers of all cores meet: words of a region that all see.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::Error;
use runtime::Start;

use crate::{Failure, require};

const REGION: &str = "fuzz";
const LINE_BYTES: u64 = 64;
/// Between two looks.
const AGAIN_NS: u64 = 1_000_000;
/// Others that take longer have stopped, or failed.
const LIMIT_NS: u64 = 600_000_000_000;
/// Words of line 0: how often somebody arrived; the pool of this round and an address range in it.
const ARRIVALS: u64 = 0;
const POOL: u64 = 1;
const RANGE: u64 = 2;
/// Words of a core's line: wake slots of its context and its semaphore for others.
const SLOTS: u64 = 0;

/// See the module's head.
pub struct Barrier {
    start: Start,
    base: u64,
    times: u64,
}

impl Barrier {
    /// At the region that the description gives.
    pub fn new(start: &Start) -> Result<Barrier, Failure> {
        let region = start.region(REGION).ok_or(Error::NotFound)?;
        require!(region.bytes >= (u64::from(start.cores()) + 1) * LINE_BYTES, "the region `fuzz` is too small");
        Ok(Barrier { start: start.clone(), base: region.address, times: 0 })
    }

    fn at(&self, line: u64, word: u64) -> &AtomicU64 {
        // SAFETY: `new` checked that the region has these lines; mapped for the component's life,
        // used as atomics only.
        unsafe { &*((self.base + line * LINE_BYTES + word % 8 * 8) as *const AtomicU64) }
    }

    /// Waits until all cores are here.
    pub async fn all(&mut self, what: &str) -> Result<(), Failure> {
        self.times += 1;
        let (arrivals, wanted) = (self.at(0, ARRIVALS), self.times * u64::from(self.start.cores()));
        arrivals.fetch_add(1, Ordering::AcqRel);
        let end_ns = runtime::now_ns() + LIMIT_NS;
        while arrivals.load(Ordering::Acquire) < wanted {
            require!(runtime::now_ns() < end_ns, "waited in vain for the other cores ({what})");
            runtime::sleep(AGAIN_NS).await;
        }
        Ok(())
    }

    /// Tells the others the pool of this round, and the id of a range in its first share.
    pub fn tell_pool(&self, pool: u64, range: u64) {
        self.at(0, RANGE).store(range, Ordering::Release);
        self.at(0, POOL).store(pool, Ordering::Release);
    }

    /// What core 0 told.
    pub fn pool(&self) -> (u64, u64) {
        (self.at(0, POOL).load(Ordering::Acquire), self.at(0, RANGE).load(Ordering::Acquire))
    }

    /// Tells the others by which wake slots they reach this core's context and semaphore.
    pub fn tell_slots(&self, slots: [u64; 2]) {
        let line = 1 + u64::from(self.start.core());
        (SLOTS..).zip(slots).for_each(|(word, slot)| self.at(line, word).store(slot, Ordering::Release));
    }

    /// The next core, and its wake slots.
    pub fn next_slots(&self) -> (u64, [u64; 2]) {
        let next = u64::from((self.start.core() + 1) % self.start.cores());
        (next, [0, 1].map(|word| self.at(1 + next, SLOTS + word).load(Ordering::Acquire)))
    }
}
