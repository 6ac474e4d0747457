//! Making domains by name: components of the system description (for the supervisor) and Linux
//! processes (for `process`).

use alloc::string::String;
use alloc::vec::Vec;
use contract::contract;
use serde::{Deserialize, Serialize};

/// A domain as everybody names it: object id, home core in bits 63..48.
pub type DomainId = u64;

/// Memory that Linux programs of a core have in common: a number, the core in bits 63..48.
pub type MemoryId = u64;

/// As many as one answer has room for.
pub const DISPATCHERS_AT_ONCE: usize = 64;

/// As many Linux domains as one answer has room for.
pub const DOMAINS_AT_ONCE: usize = 64;

/// Why a domain could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpawnError {
    /// No component or domain of that name.
    NotFound,
    /// The core has no memory left for it. Remedy: give the machine more, or end something.
    NoMemory,
    /// Core number past the last, or not running.
    NoCore,
    /// The program in the boot archive is no program we can load; the log says why.
    BadProgram,
    /// A device or a name is taken, or a program is not gone yet.
    Busy,
    /// It failed inside; logged there.
    Failed,
}

/// How a domain ended, as the kernel tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    pub domain: DomainId,
    /// `abi::DeathCause` as a number.
    pub cause: u64,
    /// Exit status, or the vector for an exception.
    pub status: u64,
    pub address: u64,
    pub rip: u64,
    pub cpu_ns: u64,
}

/// A Linux domain made for `process`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxDomain {
    pub domain: DomainId,
    pub core: u32,
    /// As its servers know it (`channel::client_id`).
    pub client: u64,
    /// Handles of the new Domain and its ExecutionContext in the parent's share if a parent was
    /// named, else 0.
    pub parent_handles: [u64; 2],
}

/// Spawning. Order: as sent. Rights: components by the supervisor only, Linux domains by `process`
/// only. A restarted spawn reads back what exists from the monitors.
#[contract(name = "spawn", version = 1)]
pub trait Spawn {
    /// Starts a component of the system description with the given generation and entrance
    /// (`abi::start::Entrance` as a number), its channels and regions kept from the one before. Of
    /// a program of several cores all dispatchers are made before the first is started: if a core
    /// refuses, the others' are gone when the error comes, and none has run. `Busy`: the one before
    /// is not gone yet. Gives the domain, of a program the first; the end of a program is told by
    /// `ended`.
    #[op]
    async fn component(&self, name: String, generation: u64, entrance: u64) -> Result<DomainId, SpawnError>;

    /// Domains of a program of several cores in the order of their cores, from number `from` on; at
    /// most [`DISPATCHERS_AT_ONCE`], none past the last. `NotFound`: it does not run in that
    /// generation.
    #[op(repeatable)]
    async fn dispatchers(&self, name: String, generation: u64, from: u32) -> Result<Vec<DomainId>, SpawnError>;

    /// Makes an empty Linux domain on `core` (`None`: as the system description says, or the
    /// parent's) with a proxy and its channels (process, files, descriptions of fs, process and
    /// console); it does not run yet. With `parent`, that domain gets handles of the child for
    /// `DomainFork` and `ContextStart`, and the child is entered as `Entrance::Adopt`. `NoMemory`
    /// unless `spare_pages` stay free on its core besides what it needs to begin. It shares turns
    /// of the core with its parent, so that a tree of forks gets what one program gets; without one
    /// it has turns of its own.
    #[op]
    async fn linux(
        &self,
        core: Option<u32>,
        parent: Option<DomainId>,
        spare_pages: u64,
    ) -> Result<LinuxDomain, SpawnError>;

    /// Gives a domain made by `linux` turns of its own, which it shares with what is made as its
    /// child later; for a fork that became another program. `NotFound`: it has ended.
    #[op(repeatable)]
    async fn begin_turns(&self, domain: DomainId) -> Result<(), SpawnError>;

    /// Starts a domain made by `linux`.
    #[op]
    async fn start(&self, domain: DomainId) -> Result<(), SpawnError>;

    /// Ends a domain. Fine if it has ended.
    #[op(repeatable)]
    async fn kill(&self, domain: DomainId, status: u64) -> Result<(), SpawnError>;

    /// Ends a domain made by `linux` that nobody has started. `Busy`: it runs, or has run.
    #[op(repeatable)]
    async fn discard(&self, domain: DomainId) -> Result<(), SpawnError>;

    /// Linux domains whose death was not told yet, ascending, from `from` on; at most
    /// [`DOMAINS_AT_ONCE`]. For a client that may have lost a `died`.
    #[op(repeatable)]
    async fn domains(&self, from: DomainId) -> Result<Vec<DomainId>, SpawnError>;

    /// Makes zeroed memory that Linux programs on the core of `domain` can have in common, until
    /// `release`. `NoMemory` unless `spare_pages` stay free besides.
    #[op]
    async fn common(&self, domain: DomainId, pages: u64, spare_pages: u64) -> Result<MemoryId, SpawnError>;

    /// Gives a Linux domain a capability for such memory, which its forks inherit: the handle
    /// there. `NotFound`: the memory or the domain is gone, or they are on two cores.
    #[op]
    async fn lend(&self, memory: MemoryId, domain: DomainId, is_writer: bool) -> Result<u64, SpawnError>;

    /// Drops such memory: it goes with the last domain that has it. Fine if it is gone.
    #[op(repeatable)]
    async fn release(&self, memory: MemoryId) -> Result<(), SpawnError>;

    /// Pages charged to and processor time used by a domain.
    #[op(repeatable)]
    async fn usage(&self, domain: DomainId) -> Result<(u64, u64), SpawnError>;

    /// The supervisor has all components serving: Linux domains may be made, which wait for it
    /// until then.
    #[op(oneway)]
    fn ready(&self);

    /// A domain this client made has ended; its memory is free again and its servers were told.
    #[event]
    fn died(&self, death: Death);

    /// A program of several cores that this client started has ended: one of its dispatchers did,
    /// by `death`, the others were ended, and the last is gone now.
    #[event]
    fn ended(&self, name: String, generation: u64, death: Death);
}
