//! Memory of the machine: how much a new domain may have, and on which core there is room.

use contract::contract;
use serde::{Deserialize, Serialize};

/// Why memory was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryError {
    /// Neither this core nor any other has so much to spare. Remedy: end something, or give the
    /// machine more.
    NoMemory,
    /// No such core, or it does not run.
    NoCore,
}

/// Decides; monitors do. Order: as sent. Rights: `prepare` for spawn, `usage` for any client.
/// Nothing is kept here that the monitors could not tell again.
#[contract(name = "memory", version = 1)]
pub trait Memory {
    /// Sees to it that `core` has `wanted_pages` free, by moving pages from the core with most to
    /// spare if it has not. Gives the limit for a domain that asked for at most `limit_pages`.
    #[op(repeatable)]
    async fn prepare(&self, core: u32, wanted_pages: u64, limit_pages: u64) -> Result<u64, MemoryError>;

    /// Used and free pages of a core.
    #[op(repeatable)]
    async fn usage(&self, core: u32) -> Result<(u64, u64), MemoryError>;
}
