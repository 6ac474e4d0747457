//! The supervisor as its users see it: the console's commands and the host's `chaos`.

use alloc::string::String;
use alloc::vec::Vec;
use contract::contract;
use serde::{Deserialize, Serialize};

pub use crate::endpoint::Work;
pub use crate::monitor::{CoreRuns, CoreTime, LedgerLine, Paid};

/// What `chaos` does to a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Chaos {
    /// Ends its domain at once, as a crash of the whole component.
    Kill,
    /// Makes it dereference a bad pointer: the fault path.
    Fault,
    /// Makes it loop for ever: the stall path.
    Hang,
    /// Makes it wait for ever in the kernel: the stall path without any use of time.
    Block,
    /// Makes its workers loop for ever in their next call, on their callers' time.
    Worker,
}

/// How a component came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Microseconds from the crash or the report of a stall to serving again.
    pub recovery_us: u64,
    /// What serves now.
    pub generation: u64,
    /// Microseconds from the order to hang or block to the report of the stall; 0 if it was another
    /// order, or the report was not heard.
    pub noticed_us: u64,
}

/// A component's line: of a program of several cores one for all its dispatchers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentLine {
    pub name: String,
    pub place: Place,
    pub generation: u64,
    pub running: bool,
    pub pages: u64,
    pub cpu_ns: u64,
    /// Microseconds from the last crash or report of a stall to serving again.
    pub last_recovery_us: u64,
}

/// Where a component is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// On that core.
    Core(u32),
    /// On so many cores, with a dispatcher on each.
    Cores(u32),
}

/// How a dispatcher stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DispatcherState {
    /// It runs, and is not ready.
    Starting,
    /// It is ready.
    Serving,
    /// There is no domain.
    Ended,
}

/// A dispatcher's line: a domain of a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatcherLine {
    pub name: String,
    pub core: u32,
    pub state: DispatcherState,
    pub pages: u64,
    pub cpu_ns: u64,
}

/// A core's line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreLine {
    /// What it runs.
    pub runs: CoreRuns,
    /// Component that claimed it; empty: nobody did.
    pub claimed_by: String,
    /// How long programs had it since it was started, nanoseconds.
    pub programs_ns: u64,
    pub used_pages: u64,
    pub free_pages: u64,
    /// Objects alive in its kernel, in the order of `abi::ObjectType::ALL`; empty, as pages are
    /// none, unless it runs a monitor.
    pub objects: Vec<u64>,
}

/// Why the supervisor refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorError {
    /// No such component. Remedy: `components` lists them.
    NotFound,
    /// The component is not restarted in this version (CAVEATS.md says why).
    NotRestartable,
    /// It did not come back within its limit.
    TimedOut,
    /// Something is on that core, another core is being changed, or a program manages it. Remedy:
    /// `components` shows what is where.
    Busy,
}

/// Watching components, and breaking them for tests. Order: as sent. Rights: console only.
/// Repeatable reads only.
#[contract(name = "supervisor", version = 1)]
pub trait Supervisor {
    /// The component with index `index` in start order; `None` past the last.
    #[op(repeatable)]
    async fn component(&self, index: u32) -> Result<Option<ComponentLine>, SupervisorError>;

    /// Dispatcher `number`, by core, of the component with index `index`; `None` past the last. A
    /// component that is no program of several cores has one.
    #[op(repeatable)]
    async fn dispatcher(&self, index: u32, number: u32) -> Result<Option<DispatcherLine>, SupervisorError>;

    /// Breaks a component, or one dispatcher of a program (the program's name stands for the
    /// first); waits until the component serves again. Limit 10 s.
    #[op]
    async fn chaos(&self, what: Chaos, name: String) -> Result<Recovery, SupervisorError>;

    /// Breaks a component, a dispatcher or a monitor (`monitor-N`) after `after_ns`, and does not
    /// wait for that: the caller, and the supervisor, may be gone by then.
    #[op]
    async fn chaos_later(&self, what: Chaos, name: String, after_ns: u64) -> Result<(), SupervisorError>;

    /// A core; `None` past the last.
    #[op(repeatable)]
    async fn core(&self, core: u32) -> Result<Option<CoreLine>, SupervisorError>;

    /// Where a core's time went; `None` for one without a monitor, which keeps no books.
    /// `NotFound`: no such core.
    #[op(repeatable)]
    async fn core_time(&self, core: u32) -> Result<Option<CoreTime>, SupervisorError>;

    /// The ledger of the domain with the smallest id of at least `from` on that core; `None` past
    /// the last.
    #[op(repeatable)]
    async fn ledger(&self, core: u32, from: u64) -> Result<Option<LedgerLine>, SupervisorError>;

    /// For whom that domain of that core worked; `None` if it does not say.
    #[op(repeatable)]
    async fn work(&self, core: u32, domain: u64) -> Result<Option<Work>, SupervisorError>;

    /// Halts a core on which there is nothing but its monitor, or starts it again; fine if it
    /// stands so already. `NotFound`: no such core, or core 0. `Busy`.
    #[op]
    async fn change_core(&self, core: u32, run: bool) -> Result<(), SupervisorError>;

    /// Waits until the component serves, and gives its line: for a client that missed the end of
    /// `chaos`. Limit 10 s. `NotFound`, `TimedOut`.
    #[op(repeatable)]
    async fn serving(&self, name: String) -> Result<ComponentLine, SupervisorError>;
}
