//! Who is called what: components and the contracts they serve.

use alloc::string::String;
use contract::contract;
use serde::{Deserialize, Serialize};

use crate::spawn::DomainId;

/// What is known under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    pub component: String,
    pub contract: String,
    pub domain: DomainId,
    pub core: u32,
    pub generation: u64,
}

/// Why a name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamesError {
    /// Nobody has it.
    NotFound,
    /// Nobody has it as far as the server was told, and it was not told all since it started.
    /// Remedy: again, a little later.
    NotYet,
    /// The table is full. Remedy: end something.
    Full,
    /// Longer than 31 bytes, or empty.
    BadName,
}

/// Names. Order: as sent. Limits: `ENTRIES_MAX` in `servers/names`. Rights: only spawn registers;
/// it says again what it knows when the server was restarted. Programs ask their core's cache
/// (`lookup`).
#[contract(name = "names", version = 1)]
pub trait Names {
    /// Registers, or replaces what the same component registered for that contract in an earlier
    /// generation.
    #[op(repeatable)]
    async fn register(&self, entry: Named) -> Result<(), NamesError>;

    /// Removes all names of a component.
    #[op(repeatable)]
    async fn unregister(&self, component: String) -> Result<(), NamesError>;

    /// All that exists was registered since the server started.
    #[op(repeatable)]
    async fn told_all(&self) -> Result<(), NamesError>;

    /// Who serves `contract`, nearest first to `core`; `index` counts through those that do.
    #[op(repeatable)]
    async fn find(&self, contract: String, core: u32, index: u32) -> Result<Named, NamesError>;

    /// Who serves that contract is not what this client was told; empty: of any contract that may
    /// be so. Told once, until the client asks again.
    #[event]
    fn changed(&self, contract: String);
}
