//! The kernel's calls, one file per family.
//!
//! Each call first decodes (finds objects, checks rights and numbers, makes what it needs) and then
//! applies. Up to the last `?` of a call nothing is changed that its caller sees, so an error
//! leaves things as they were. A call ends with results, or has put its caller into a state that
//! waits. These differ, and a refusal leaves:
//!
//! - `PortalReplyWait`, `Timeout`: the answer is given.
//! - `PortalCall`, `Timeout` or `PeerDead`: what the callee did for it until then.
//! - `DomainFork`: what the child got until then.
//! - `RangeUnmap`, `RangeProtect`, `SegmentSetPages`, in a step after the first, as others changed
//!   what they are at: what the steps before did.
//! - `ConsoleWrite`, `TraceRead`, `DomainState`, `DeviceList`, `BadPointer`: what was written
//!   before that address; records that `TraceRead` wrote are no longer in the trace.
//!
//! Pages that a call made on its way for slots, tables or the touch of a pointer stay after each
//! refusal: the next call needs none.

mod basic;
mod capability;
mod context;
mod device;
mod domain;
mod memory;
mod notification;
mod pcore;
mod portal;
mod range;
mod revoke;
mod segment;
mod semaphore;
mod share;

use crate::objects::context::State;
use crate::objects::share::Capability;
use crate::objects::slot::Source;
use crate::objects::{AnyObject, Context, Object, Pcore, Ptr, Ram};
use crate::state::Kernel;
use abi::{Call, Error, Handle, Rights};

/// How a call that was not refused ends.
enum Outcome {
    /// The caller goes on with these results.
    Done([u64; 3]),
    /// The caller waits, ended, or its registers were set otherwise.
    Left,
    /// A bounded part is done, and the arguments say so: the caller makes the call again.
    Again,
}

type Answer = Result<Outcome, Error>;
/// Of a call that mostly passes the core on: to whom, if nothing is left to settle or to choose.
type Passed = Result<Option<Ptr<Context>>, Error>;

const NOTHING: Answer = Ok(Outcome::Done([0; 3]));

fn one(value: u64) -> Answer {
    Ok(Outcome::Done([value, 0, 0]))
}

/// A call being made.
struct Request {
    caller: Ptr<Context>,
}

impl Request {
    /// RDI, RSI, RDX, R10, R8, R9; only until the result is set.
    #[inline(always)]
    fn words(&self) -> [u64; 6] {
        self.caller.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9])
    }

    /// The object an argument names.
    fn object<T: Object>(&self, argument: usize, rights: Rights) -> Result<Ptr<T>, Error> {
        self.caller.domain().share().find(Handle(self.words()[argument]), rights).map(|(object, _)| object)
    }

    /// As `object`, with the capability itself.
    fn find<T: Object>(&self, argument: usize, rights: Rights) -> Result<(Ptr<T>, Capability), Error> {
        self.caller.domain().share().find(Handle(self.words()[argument]), rights)
    }

    fn capability(&self, argument: usize) -> Result<Capability, Error> {
        self.caller.domain().share().get(Handle(self.words()[argument]))
    }

    /// The slot an argument names and what it holds, to derive a capability from it.
    fn source(&self, argument: usize) -> Result<Source, Error> {
        let source = self.caller.domain().share().find_slot(Handle(self.words()[argument]))?;
        source.0.check_parent()?;
        Ok(source)
    }

    /// Whether an argument names the core that this is, with these rights. A claim on another core
    /// is no right to this one.
    #[inline(never)]
    fn check_core(&self, kernel: &Kernel, argument: usize, rights: Rights) -> Result<(), Error> {
        let pcore = self.object::<Pcore>(argument, rights)?;
        if pcore.core == kernel.core() { Ok(()) } else { Err(Error::OtherCore) }
    }

    /// The Ram that pays for something new.
    #[inline(never)]
    fn ram(&self, argument: usize) -> Result<Ptr<Ram>, Error> {
        self.object(argument, Rights::WRITE)
    }

    /// A free slot of the caller, for something new.
    fn slot(&self, kernel: &mut Kernel) -> Result<usize, Error> {
        self.caller.domain().reserve(kernel)
    }

    /// The call goes on with some arguments changed to what is left to do.
    fn again<const N: usize>(&self, changed: [(usize, u64); N]) -> Outcome {
        let mut words = self.words();
        changed.iter().for_each(|(argument, value)| words[*argument] = *value);
        self.caller.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = words);
        Outcome::Again
    }

    /// Puts a new object, whose one reference the caller of this holds, into a reserved slot.
    fn place(&self, slot: usize, object: AnyObject, rights: Rights) -> u64 {
        self.caller.domain().insert(slot, Capability { object, badge: 0, rights }).0
    }
}

/// Makes a call for `caller`; tells to whom it passed the core.
#[inline(always)]
pub fn enter(kernel: &mut Kernel, caller: Ptr<Context>, call: Call) -> Option<Ptr<Context>> {
    let request = &Request { caller };
    let passed = match call {
        // The two that should be short are compiled into the way in.
        Call::PortalCall => portal::call(kernel, request),
        Call::PortalReplyWait => portal::reply_wait(kernel, request),
        call => dispatch(kernel, call, request).map(|outcome| {
            match outcome {
                Outcome::Done(results) => caller.set_result(Ok(results)),
                Outcome::Again => caller.make_call_again(),
                Outcome::Left => (),
            }
            None
        }),
    };
    passed.unwrap_or_else(|error| {
        caller.set_result(Err(error));
        None
    })
}

#[inline(always)]
#[expect(clippy::too_many_lines, reason = "a table of one match")]
fn dispatch(kernel: &mut Kernel, call: Call, request: &Request) -> Answer {
    match call {
        Call::Null => NOTHING,
        Call::Log => basic::log(kernel, request),
        Call::ConsoleWrite => basic::console_write(kernel, request),
        Call::PowerOff => basic::power_off(kernel, request),
        Call::CounterRead => basic::counter_read(kernel, request),
        Call::TraceRead => basic::trace_read(kernel, request),
        Call::CapCopy => capability::copy(kernel, request),
        Call::CapMint => capability::mint(kernel, request),
        Call::CapDrop => capability::drop(kernel, request),
        Call::CapStat => capability::stat(request),
        Call::CapRevoke => revoke::derived(kernel, request),
        Call::RamSplit => memory::split(kernel, request),
        Call::RamStat => memory::stat(kernel, request),
        Call::RamTurns => memory::turns(kernel, request),
        Call::RamCarve => memory::carve(kernel, request),
        Call::RamAdd => memory::add(kernel, request),
        Call::RamRevoke => revoke::ram(kernel, request),
        Call::SegmentAlloc => segment::alloc(kernel, request),
        Call::SegmentCopy => segment::copy(kernel, request),
        Call::SegmentStat => segment::stat(kernel, request),
        Call::SegmentSetPages => segment::set_pages(kernel, request),
        Call::SegmentImport => segment::import(kernel, request),
        Call::RangeMap => range::map(kernel, request),
        Call::RangeUnmap => range::unmap(kernel, request),
        Call::RangeProtect => range::protect(kernel, request),
        Call::RangeGet => range::get(kernel, request),
        Call::RangeAlloc => range::alloc(kernel, request),
        Call::RangeNest => range::nest(kernel, request),
        Call::RangeFill => range::fill(kernel, request),
        Call::RangeRetype => range::retype(kernel, request),
        Call::DomainAlloc => domain::alloc(kernel, request),
        Call::DomainGrant => domain::grant(kernel, request),
        Call::DomainRange => domain::range(kernel, request),
        Call::DomainKill => domain::kill(kernel, request),
        Call::DomainExit => domain::exit(kernel, request),
        Call::DomainState => domain::state(kernel, request),
        Call::DomainOnDeath => domain::on_death(kernel, request),
        Call::DomainFork => domain::fork(kernel, request),
        Call::ContextAlloc => context::alloc(kernel, request),
        Call::ContextSchedule => context::schedule(kernel, request),
        Call::ContextStart => context::start(kernel, request),
        Call::ContextProxy => context::proxy(kernel, request),
        Call::ContextBase => context::base(request),
        Call::ContextResume => context::resume(request),
        Call::ContextWatch => context::watch(kernel, request),
        Call::Yield => context::yield_slice(kernel),
        Call::ContextEnd => context::end(kernel, request),
        Call::PcoreThrottle => pcore::throttle(kernel, request),
        Call::ContextUpcall => context::upcall(kernel, request),
        Call::ScheduleStat => context::schedule_stat(kernel, request),
        Call::ScheduleSet => context::schedule_set(kernel, request),
        Call::ScheduleGang => context::schedule_gang(kernel, request),
        Call::Notify => notification::notify(kernel, request),
        Call::Wait => notification::wait(kernel, request),
        Call::WakeSlotAlloc => notification::slot_alloc(kernel, request),
        Call::WakeSlotImport => notification::slot_import(kernel, request),
        Call::WakeSlotFree => notification::slot_free(kernel, request),
        Call::PortalAlloc => portal::alloc(kernel, request),
        Call::PortalCall | Call::PortalReplyWait => unreachable!("no call of a ring, and `enter` makes them"),
        Call::PortalSet => portal::set(request),
        Call::SemaphoreAlloc => semaphore::alloc(kernel, request),
        Call::SemaphoreUp => semaphore::up(kernel, request),
        Call::SemaphoreDown => semaphore::down(kernel, request),
        Call::PcoreRun => pcore::run(kernel, request),
        Call::PcoreStat => pcore::stat(kernel, request),
        Call::PcoreCurrent => pcore::current(kernel),
        Call::PcoreAlloc => pcore::alloc(kernel, request),
        Call::PcoreHalt => pcore::halt(kernel, request),
        Call::PcoreWatch => pcore::watch(kernel, request),
        Call::PcoreAddDevice => pcore::add_device(kernel, request),
        Call::PcoreDeviceStat => pcore::device_stat(kernel, request),
        Call::DeviceList => device::list(kernel, request),
        Call::DeviceAlloc => device::alloc(kernel, request),
        Call::DeviceWindow => device::window(kernel, request),
        Call::DeviceConfRead => device::configuration_read(request),
        Call::DeviceConfWrite => device::configuration_write(request),
        Call::DeviceInterrupt => device::interrupt(kernel, request),
        Call::DeviceMaster => device::master(kernel, request),
        Call::DevicePortRead => device::port_read(request),
        Call::DevicePortWrite => device::port_write(request),
        Call::LocalityGet => pcore::locality(kernel, request),
        Call::ObjectCount => pcore::object_count(kernel, request),
        Call::PcoreUse => pcore::usage(kernel, request),
        Call::ShareAlloc => share::alloc(kernel, request),
        Call::ShareAdd => share::add(kernel, request),
        Call::ShareRemove => share::remove(kernel, request),
        Call::ShareStat => share::stat(request),
        Call::SharePool => share::pool(kernel, request),
        Call::ShareImport => share::import(kernel, request),
        Call::ShareSegment => share::segment(kernel, request),
        Call::ObjectName => share::name(kernel, request),
        Call::ShareRange => share::range(kernel, request),
        Call::RangeStat => range::stat(kernel, request),
        Call::ShareCopy => share::copy(kernel, request),
    }
}

/// Makes a call that came by a ring for the domain of `caller`, a context that does not run. The
/// call is one of `abi::pcore::RING_CALLS`. `Err` has the arguments with which it is to be made
/// again.
pub fn of_ring(
    kernel: &mut Kernel,
    caller: Ptr<Context>,
    call: Call,
    words: [u64; 6],
) -> Result<Result<[u64; 3], Error>, [u64; 6]> {
    let request = Request { caller };
    caller.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = words);
    match dispatch(kernel, call, &request) {
        Ok(Outcome::Done(results)) => Ok(Ok(results)),
        Ok(Outcome::Again) => Err(request.words()),
        Ok(Outcome::Left) => unreachable!("no call of a ring waits"),
        Err(error) => Ok(Err(error)),
    }
}

impl Kernel {
    /// Makes `caller` wait in `state` until something completes it or the deadline passes.
    #[inline]
    fn wait_in(&mut self, caller: Ptr<Context>, state: State, deadline_ns: u64) {
        self.block(caller, state);
        self.scheduler.set_timeout(caller, deadline_ns);
    }
}
