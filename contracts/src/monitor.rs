//! Mechanism of a core: domains, channels, regions, devices, memory of one core, for those who
//! decide (spawn, supervisor, memory).
//!
//! Every operation names a core. Monitor 0 takes them all and passes on what is for another core
//! over its link to that core's monitor, which speaks the same contract.

use alloc::string::String;
use alloc::vec::Vec;
use contract::contract;
use serde::{Deserialize, Serialize};

use crate::endpoint::{BindError, InjectedFault, Work};
use crate::spawn::{Death, DomainId, MemoryId};

/// Names a channel on all cores: below 2^32 a wire of the system description, above one made at run
/// time.
pub type ChannelId = u64;

/// Most pages that [`Monitor::common`] makes at once, as it does nothing else meanwhile.
pub const COMMON_PAGES_MAX: u64 = 1024;

/// Status with which a component is ended that hangs, or does not come to serve.
pub const STALLED: u64 = 124;

/// The two sides of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    Client,
    Server,
}

/// A channel to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelPlan {
    pub id: ChannelId,
    pub contract: String,
    /// Component names; a Linux domain has its own.
    pub client: String,
    pub server: String,
    pub client_core: u32,
    pub server_core: u32,
    pub ring_slots: u32,
    pub bulk_bytes: u32,
    /// The client may call a worker of the server's by a portal too: which, of those it has.
    pub worker: Option<u8>,
}

/// What one core tells the other of a channel between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Physical address of its memory.
    pub physical: u64,
    /// Wake slot of the end on that core.
    pub slot: u64,
}

/// The program of several cores that a domain is a dispatcher of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramPlan {
    pub name: String,
    /// Its cores, as `abi::start::CoreSet` has them.
    pub cores: [u8; 32],
}

/// A domain to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainPlan {
    pub name: String,
    /// File below `sbin/` of the boot archive.
    pub program: String,
    /// What it is a dispatcher of.
    pub dispatcher_of: Option<ProgramPlan>,
    pub generation: u64,
    /// `abi::start::Entrance` as a number.
    pub entrance: u64,
    /// Most pages it may hold.
    pub limit_pages: u64,
    /// 0 to 7.
    pub priority: u8,
    /// At most so many microseconds of its core, in each period of so many.
    pub budget: Option<(u32, u32)>,
    /// Has a proxy: may run Linux programs.
    pub linux: bool,
    /// Pages that must be free on the core besides, or it is `NoMemory`.
    pub first_pages: u64,
    /// The domain that fills it by `DomainFork` and starts it; gets capabilities of it. The new
    /// domain shares its turns of the core; without a parent it has its own.
    pub parent: Option<DomainId>,
    /// Can be restarted, so that its monitor's beat asks it, while it serves, whether it hangs.
    /// What cannot may compute for as long as it likes.
    pub is_beaten: bool,
    /// Ends it holds, of channels opened before.
    pub channels: Vec<(ChannelId, End)>,
    /// Regions, made before.
    pub regions: Vec<String>,
    /// Kinds of device; `power` is the right to end the machine.
    pub devices: Vec<String>,
    /// How many contexts of it are to handle a device.
    pub handlers: u8,
    /// Files of the boot archive; `archive` is the whole of it.
    pub files: Vec<String>,
    /// The kernel keeps vector registers for it; for a Linux domain it does anyway.
    pub has_vectors: bool,
}

/// What was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Created {
    pub domain: DomainId,
    /// Generation of its channels, if it is a Linux domain's.
    pub generation: u32,
    /// Handles in the parent's share, if one was named: the Domain (READ, WRITE) and its
    /// ExecutionContext (CONTROL).
    pub parent_handles: [u64; 2],
}

/// A domain that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainLine {
    pub domain: DomainId,
    pub name: String,
    pub core: u32,
    pub generation: u64,
    pub serving: bool,
    pub pages: u64,
    pub cpu_ns: u64,
}

/// What one payer paid of the time that a domain ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paid {
    /// Object id of its scheduling context.
    pub payer: u64,
    /// The domain whose context that belongs to: another than the one that ran if it called a
    /// portal. 0: that context had ended.
    pub client: DomainId,
    pub paid_ns: u64,
}

/// A domain's ledger: who paid for the time that it ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerLine {
    pub domain: DomainId,
    pub name: String,
    /// All that it ran; what `paid` lacks of it was paid by others.
    pub cpu_ns: u64,
    /// As the ledger has them.
    pub paid: Vec<Paid>,
}

/// Where a core's time went since its clock began, in nanoseconds: the last four are all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreTime {
    pub clock_ns: u64,
    /// Nothing ran.
    pub idle_ns: u64,
    /// The kernel ran for no domain: boot, and ends of what ran.
    pub kernel_ns: u64,
    /// Domains that are there ran: the sum of their ledgers.
    pub domains_ns: u64,
    /// Domains that have ended ran.
    pub ended_ns: u64,
}

/// Pages of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreMemory {
    pub used_pages: u64,
    pub free_pages: u64,
}

/// What a core runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoreRuns {
    /// Nothing: it is halted.
    Nothing,
    /// A monitor, and what the system put there.
    Monitor,
    /// A program of the core's claimant, alone.
    Program,
    /// No program: the kernel polls for the core's claimant.
    KernelCore,
}

/// How a core is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreUse {
    pub runs: CoreRuns,
    /// Component that claimed it; empty: nobody did.
    pub claimed_by: String,
    /// How long programs had it since it was started, nanoseconds.
    pub programs_ns: u64,
}

/// Why a monitor refused; what was made for the operation is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MonitorError {
    /// No such domain, channel, region or device.
    NotFound,
    /// No page, no slot, no wake slot left on that core.
    NoMemory,
    /// No such core, or it does not run.
    NoCore,
    /// That core's monitor does not answer in time. Remedy: later again.
    Away,
    /// The program is missing in the boot archive, or no program for this machine.
    BadProgram,
    /// The name or id is taken.
    Busy,
    /// The kernel refused; logged by the monitor.
    Failed,
}

/// What is done to a component for tests of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    /// It is ended with this status.
    Kill(u64),
    /// It breaks itself, so.
    Inject(InjectedFault),
}

/// What a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RegionKind {
    /// Pages from anywhere; of one core.
    Scattered,
    /// Pages side by side, as devices and other cores need them.
    Contiguous,
    /// Not mapped: a pool, of which each user gets the first share.
    Pool,
}

/// The mechanism of one core. Order: as sent. Rights: spawn, supervisor and memory, all trusted
/// with everything on the core. Events go to every client, but for deaths of Linux domains.
#[contract(name = "monitor", version = 1)]
pub trait Monitor {
    /// Makes a channel's part on `core`; called again with what the `other` core answered, it
    /// learns how to ring that one. The server's core goes first: it owns the memory. Idempotent.
    #[op]
    async fn open(&self, core: u32, plan: ChannelPlan, other: Option<Place>) -> Result<Place, MonitorError>;

    /// Drops a channel; an end that still runs on that core sees it closed by the other. Between
    /// cores the client's core goes first, as it borrows the memory. Fine if it is gone.
    #[op]
    async fn close(&self, core: u32, id: ChannelId) -> Result<(), MonitorError>;

    /// Hands the server's end of a channel to its server, which runs already and knows the set it
    /// belongs to as `set`. `NotFound`: the server is not there, or ended before it took it.
    #[op]
    async fn announce(&self, core: u32, id: ChannelId, set: u32) -> Result<(), MonitorError>;

    /// Hands the client's end of a channel to the component that asked for it (`wants`).
    #[op]
    async fn introduce(&self, core: u32, id: ChannelId, client: DomainId, request: u64) -> Result<(), MonitorError>;

    /// Tells a component that it is not connected.
    #[op]
    async fn refuse(&self, core: u32, client: DomainId, request: u64, why: BindError) -> Result<(), MonitorError>;

    /// Memory that outlives its users: made here (`of` is `None`), or borrowed from another core,
    /// which gave `of`. Gives the physical address of contiguous memory, the id of a pool, else 0.
    /// Idempotent.
    #[op]
    async fn region(
        &self,
        core: u32,
        name: String,
        pages: u64,
        kind: RegionKind,
        of: Option<u64>,
    ) -> Result<u64, MonitorError>;

    /// Makes zeroed memory that Linux programs of a core can have in common, at most
    /// [`COMMON_PAGES_MAX`]. `NoMemory` unless `spare_pages` stay free besides, and some for
    /// others.
    #[op]
    async fn common(&self, core: u32, pages: u64, spare_pages: u64) -> Result<MemoryId, MonitorError>;

    /// Gives a Linux domain a capability for such memory, which its forks inherit; the handle
    /// there. `NotFound`.
    #[op]
    async fn lend(&self, core: u32, memory: MemoryId, domain: DomainId, is_writer: bool) -> Result<u64, MonitorError>;

    /// Drops such memory: it goes with the last domain that has it. Fine if it is gone.
    #[op(repeatable)]
    async fn release(&self, core: u32, memory: MemoryId) -> Result<(), MonitorError>;

    /// Makes a domain that does not run yet. Its channels begin a new generation if
    /// `plan.generation` is not the first; those of a Linux domain do when it dies, so that they
    /// are ready for the next, and their servers drop what it held.
    #[op]
    async fn create(&self, core: u32, plan: DomainPlan) -> Result<Created, MonitorError>;

    /// Gives a domain that shares its parent's turns some of its own. `NotFound`: it has ended.
    #[op(repeatable)]
    async fn begin_turns(&self, core: u32, domain: DomainId) -> Result<(), MonitorError>;

    /// Runs it.
    #[op]
    async fn start(&self, core: u32, domain: DomainId) -> Result<(), MonitorError>;

    /// Ends a domain; `died` follows.
    #[op]
    async fn kill(&self, core: u32, domain: DomainId, status: u64) -> Result<(), MonitorError>;

    /// Ends a domain that nobody has started, if it is there. `Busy`: it runs, or has run.
    #[op]
    async fn discard(&self, core: u32, domain: DomainId) -> Result<(), MonitorError>;

    /// Kills or breaks a component after `after_ns`, for tests of recovery. Unless that is 0 it
    /// succeeds at once, and acts even if the caller is gone by then.
    #[op]
    async fn inject_fault(
        &self,
        core: u32,
        domain: DomainId,
        how: FaultKind,
        after_ns: u64,
    ) -> Result<(), MonitorError>;

    /// The domain with the smallest id of at least `from` on that core.
    #[op(repeatable)]
    async fn domain(&self, core: u32, from: DomainId) -> Result<Option<DomainLine>, MonitorError>;

    /// The ledger of the domain with the smallest id of at least `from` on that core, its monitor's
    /// included.
    #[op(repeatable)]
    async fn ledger(&self, core: u32, from: DomainId) -> Result<Option<LedgerLine>, MonitorError>;

    /// For whom that domain of that core worked, as it says itself. `NotFound`: it has no tasks of
    /// ours, as programs have none, or is not there; `Failed`: it does not answer within 100 ms.
    #[op(repeatable)]
    async fn work(&self, core: u32, domain: DomainId) -> Result<Work, MonitorError>;

    /// Where that core's time went.
    #[op(repeatable)]
    async fn core_time(&self, core: u32) -> Result<CoreTime, MonitorError>;

    /// How the component's domain of that name ended last on that core: its generation, and by
    /// which death; `None` if none did. For a client that may have missed it.
    #[op(repeatable)]
    async fn last_end(&self, core: u32, name: String) -> Result<Option<(u64, Death)>, MonitorError>;

    /// Pages of a core.
    #[op(repeatable)]
    async fn memory(&self, core: u32) -> Result<CoreMemory, MonitorError>;

    /// Objects alive in that core's kernel, in the order of `abi::ObjectType::ALL`.
    #[op(repeatable)]
    async fn objects(&self, core: u32) -> Result<Vec<u64>, MonitorError>;

    /// How a core is used and who claimed it. Only monitor 0 knows (`NoCore` elsewhere, and past
    /// the last core).
    #[op(repeatable)]
    async fn core_use(&self, core: u32) -> Result<CoreUse, MonitorError>;

    /// Moves contiguous free pages from one core's account to another's.
    #[op]
    async fn move_pages(&self, from: u32, to: u32, pages: u64) -> Result<(), MonitorError>;

    /// Takes pages out of a core, or puts pages of another core in: the halves of `move_pages`,
    /// between monitors.
    #[op]
    async fn carve(&self, core: u32, pages: u64) -> Result<u64, MonitorError>;

    /// See `carve`.
    #[op]
    async fn add(&self, core: u32, physical: u64, pages: u64) -> Result<(), MonitorError>;

    /// Halts a core, or starts it again, while the system runs; fine if it stands so already. Only
    /// monitor 0 does it, and not for its own core (`NoCore`). `Busy`: something is on that core,
    /// another core is being changed, or a program manages that core.
    #[op]
    async fn change_core(&self, core: u32, run: bool) -> Result<(), MonitorError>;

    /// Asks a monitor whether its core can be halted: `Busy` if there is anything on it. Between
    /// monitors.
    #[op]
    async fn leave(&self, core: u32) -> Result<(), MonitorError>;

    /// Closes all channels of `core` with `lost`, a core whose monitor ended: their ends on `core`
    /// see them closed by the peer. Between monitors. Idempotent.
    #[op]
    async fn discard_core(&self, core: u32, lost: u32) -> Result<(), MonitorError>;

    /// Breaks a core's monitor after `after_ns`, for tests of recovery; that of core 0 ends the
    /// machine.
    #[op(oneway)]
    fn inject_monitor_fault(&self, core: u32, how: InjectedFault, after_ns: u64);

    /// Ends the machine.
    #[op(oneway)]
    fn power_off(&self, status: u8);

    /// A domain ended; what was its own is free again. Of Linux domains only who makes them hears.
    #[event]
    fn died(&self, name: String, generation: u64, linux: bool, death: Death);

    /// A component asks to be connected to a server of a contract; see `endpoint`.
    #[event]
    fn wants(&self, domain: DomainId, request: u64, contract: String, index: u32);

    /// The monitor of a core ended, and all that was there: nobody has a channel with it any more.
    /// The deaths of its domains follow.
    #[event]
    fn core_lost(&self, core: u32);

    /// A component is ready.
    #[event]
    fn serving(&self, domain: DomainId);

    /// A component does not look at work that waits for it, its monitor's beat or another's: it
    /// goes in circles, or waits in the kernel for something else. Its monitor ends it: `died`
    /// follows.
    #[event]
    fn stalled(&self, domain: DomainId);
}
