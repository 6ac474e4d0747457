//! The kernel's calls that a monitor needs, as it needs them.

use alloc::string::String;

use abi::start::DeviceRecord;
use abi::{DomainState, Error, Handle, Rights};
use channel::{Layout, Memory};
use contracts::monitor::DomainPlan;

/// A stall to be told of.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// What rings.
    pub badge: u64,
    /// How long a context may leave its work alone.
    pub limit_ns: u64,
}

/// Which registers a context has besides those that all have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registers {
    /// None.
    General,
    /// Those of vectors.
    Vectors,
    /// Those of vectors, and what the kernel does for Linux programs.
    Linux,
}

impl Registers {
    /// As a plan has it.
    pub fn of(plan: &DomainPlan) -> Registers {
        match (plan.linux, plan.has_vectors) {
            (true, _) => Registers::Linux,
            (false, true) => Registers::Vectors,
            (false, false) => Registers::General,
        }
    }
}

/// The time of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// 0 to 7, higher runs first.
    pub priority: u8,
    /// At most so many microseconds in each period of so many.
    pub budget: Option<(u32, u32)>,
}

impl Time {
    /// As a plan has it.
    pub fn of(plan: &DomainPlan) -> Time {
        Time { priority: plan.priority, budget: plan.budget }
    }
}

/// What the registry stands on: the kernel, or a test's make-believe. `ram` is the account that
/// pays; the root account where none is named.
pub trait Machine {
    /// A segment, and its physical address if it is contiguous.
    fn segment(&mut self, pages: u64, contiguous: bool) -> Result<(Handle, u64), Error>;
    /// A segment whose pages a fork has in common; all are made. `NoMemory` unless so much more
    /// stays free, and some for others.
    fn common(&mut self, pages: u64, spare_pages: u64) -> Result<Handle, Error>;
    /// A segment that `ram` pays for.
    fn segment_of(&mut self, ram: Handle, pages: u64) -> Result<Handle, Error>;
    /// Memory of another core.
    fn import(&mut self, physical: u64, pages: u64) -> Result<Handle, Error>;
    /// A pool that cores share: its first share, and its id.
    fn pool(&mut self, pages: u64) -> Result<(Handle, u64), Error>;
    /// The first share of another core's pool.
    fn import_pool(&mut self, id: u64) -> Result<Handle, Error>;
    /// A copy of a segment, paid by `ram`.
    fn copy(&mut self, ram: Handle, segment: Handle) -> Result<Handle, Error>;
    /// Puts bytes into a segment that nobody uses yet.
    fn fill(&mut self, segment: Handle, offset: u64, bytes: &[u8]) -> Result<(), Error>;
    /// Maps a whole channel segment for the monitor itself, formatting it if it is new; unmapped
    /// with the `Memory`'s last user.
    fn channel(&mut self, segment: Handle, layout: Layout, format: bool) -> Result<Memory, Error>;

    /// A portal with that badge, leading nowhere yet.
    fn portal(&mut self, badge: u64) -> Result<Handle, Error>;
    /// An entrance for calls with answers, with that badge, leading nowhere yet.
    fn entrance(&mut self, badge: u64) -> Result<Handle, Error>;
    /// A semaphore of count 0.
    fn semaphore(&mut self) -> Result<Handle, Error>;
    /// Makes the portal lead to a context, or nowhere.
    fn lead(&mut self, portal: Handle, context: Handle) -> Result<(), Error>;
    /// A notification capability for the monitor itself.
    fn own_doorbell(&mut self, badge: u64) -> Result<Handle, Error>;
    /// A portal into the monitor itself.
    fn own_portal(&mut self, badge: u64) -> Result<Handle, Error>;
    /// A number by which other cores ring a portal.
    fn slot(&mut self, portal: Handle) -> Result<u64, Error>;
    /// Takes the number back.
    fn free_slot(&mut self, slot: u64);
    /// What rings a slot of another core.
    fn remote(&mut self, core: u32, slot: u64) -> Result<Handle, Error>;
    /// A number that nobody can foretell, not 0.
    fn random(&mut self) -> u32;
    /// Free pages of this core.
    fn free_pages(&mut self) -> u64;
    /// Rings.
    fn ring(&mut self, doorbell: Handle);
    /// Rings a context of this core, unless it waits for that.
    fn ring_busy(&mut self, doorbell: Handle);
    /// Empties a slot of the share.
    fn drop(&mut self, handle: Handle);

    /// An account of at most that many pages; its contexts share turns of the core with those of
    /// another account, or have turns of their own.
    fn account(&mut self, limit_pages: u64, turns_of: Option<Handle>) -> Result<Handle, Error>;
    /// The account has turns of its own from now on.
    fn begin_turns(&mut self, ram: Handle) -> Result<(), Error>;
    /// A domain, and its id. It has a part of the log of its own, or shares that of `log_of`.
    fn domain(&mut self, ram: Handle, linux: bool, name: &str, log_of: Option<Handle>) -> Result<(Handle, u64), Error>;
    /// A capability put into a domain: its handle there.
    fn grant(&mut self, domain: Handle, source: Handle, rights: Rights) -> Result<Handle, Error>;
    /// The domain's address range.
    fn range(&mut self, domain: Handle) -> Result<Handle, Error>;
    /// Maps pages of a segment.
    fn map(
        &mut self,
        range: Handle,
        address: u64,
        segment: Handle,
        first_page: u64,
        pages: u64,
        protection: u64,
    ) -> Result<(), Error>;
    /// A context with time of its own; it does not run yet.
    fn context(&mut self, ram: Handle, domain: Handle, time: Time, registers: Registers) -> Result<Handle, Error>;
    /// Runs it.
    fn start(&mut self, context: Handle, entry: u64, stack: u64) -> Result<(), Error>;
    /// Wants to be told of the domain's death and of a stall, each by its badge.
    fn watch(&mut self, domain: Handle, context: Handle, death_badge: u64, stall: Option<Stall>) -> Result<(), Error>;
    /// Ends a domain.
    fn kill(&mut self, domain: Handle, status: u64) -> Result<(), Error>;
    /// Says what the kernel refused: once a second at most, as refusals come in thousands.
    fn log_refusal(&self, line: String);
    /// How a domain stands.
    fn state(&mut self, domain: Handle) -> Result<DomainState, Error>;
    /// Row `number` of a domain's ledger: the payer's id, its domain's, and how long it paid.
    fn ledger(&mut self, domain: Handle, number: u64) -> Result<(u64, u64, u64), Error>;
    /// A counter of this core's kernel (`layout::counter`).
    fn counter(&mut self, index: u64) -> u64;
    /// Nanoseconds since the clock began.
    fn now_ns(&self) -> u64;

    /// The device with that index.
    fn device(&mut self, index: u64) -> Option<DeviceRecord>;
    /// Claims the device with that hardware id.
    fn claim(&mut self, hwid: u64) -> Result<Handle, Error>;
    /// Stops it from reaching memory and from interrupting.
    fn quiet(&mut self, device: Handle) -> Result<(), Error>;
}
