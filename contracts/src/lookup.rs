//! The name cache of a core: who serves what, answered by that core's monitor (fos, section 3.2.1).

use alloc::string::String;
use contract::contract;
use serde::{Deserialize, Serialize};

use crate::names::Named;

/// Why a lookup gave nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LookupError {
    /// Nobody serves that contract, or not so many do.
    NotFound,
    /// The cache does not know, and the name server does not answer. Remedy: later again; the
    /// supervisor restarts it.
    Away,
}

/// What a cache did since its core started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheCounters {
    /// Lookups answered from it.
    pub hits: u64,
    /// Lookups for which the name server was asked.
    pub misses: u64,
    /// Answers dropped because the name server told of a change, or was restarted.
    pub dropped: u64,
}

/// Looking names up. Order: as sent. Limits: 256 answers are kept. Rights: none needed, as it tells
/// no secret and gives no channel. A change that the name server was told of shows as soon as its
/// event has come to the core; what was known is told while the name server is away.
#[contract(name = "lookup", version = 1)]
pub trait Lookup {
    /// Who serves `contract`, nearest to this core first; `index` counts through those that do.
    #[op(repeatable)]
    async fn find(&self, contract: String, index: u32) -> Result<Named, LookupError>;

    /// What this core's cache did.
    #[op(repeatable)]
    async fn counters(&self) -> Result<CacheCounters, LookupError>;
}
