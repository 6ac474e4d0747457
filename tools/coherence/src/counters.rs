//! What is counted, per component and function.

use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Sums over all cores and operations of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Begun instructions; one that faulted and is begun again counts twice, a string instruction
    /// once per element.
    pub instructions: u64,
    /// Data read, in lines.
    pub loads: u64,
    /// Data written, in lines; locked instructions included.
    pub stores: u64,
    /// Reads, writes and fetches that a private cache could serve alone.
    pub hits: u64,
    /// Misses because another core wrote the line since this one last had it; or, if it never had
    /// it, wrote it last and it is still in another's cache.
    pub coherence: u64,
    /// Other misses of a line that this core never had.
    pub cold: u64,
    /// Misses of a line that had to make room for one of the same privilege.
    pub capacity: u64,
    /// The same, for one of the other privilege: user and kernel in each other's way.
    pub other_privilege: u64,
    /// Writes to a line that this core had, but shared.
    pub upgrades: u64,
    /// Copies in other caches that had to go because of a write.
    pub invalidations: u64,
    /// Modelled cycles; time in which the core was halted is not in it.
    pub cycles: u64,
}

impl Counters {
    /// Misses of all causes.
    pub fn misses(&self) -> u64 {
        self.coherence + self.cold + self.capacity + self.other_privilege
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.instructions += other.instructions;
        self.loads += other.loads;
        self.stores += other.stores;
        self.hits += other.hits;
        self.coherence += other.coherence;
        self.cold += other.cold;
        self.capacity += other.capacity;
        self.other_privilege += other.other_privilege;
        self.upgrades += other.upgrades;
        self.invalidations += other.invalidations;
        self.cycles += other.cycles;
    }
}
