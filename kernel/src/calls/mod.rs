//! The kernel's calls, one file per family.
//!
//! Each call first decodes (finds objects, checks rights and numbers, makes what it needs) and then
//! applies. Up to the last `?` of a call nothing is changed that its caller sees, so an error
//! leaves things as they were. A call ends with results, or has blocked its caller. These calls
//! differ: an error of theirs leaves
//!
//! - `PortalReplyWait`, `Timeout`: the reply, which is given.
//! - `PortalCall`, `Timeout` or `PeerDead`: what the callee did for it until then.
//! - `DomainFork`: what the child got until then.
//! - `RangeUnmap`, `RangeProtect`, `SegmentSetPages`, in a step after the first, because others
//!   changed the same object: what the steps before did.
//! - `ConsoleWrite`, `TraceRead`, `DomainState`, `DeviceList`, `BadPointer`: what was written
//!   before that address; records that `TraceRead` wrote are no longer in the trace.
//!
//! Pages that a call allocated for slots, tables or the touch of a pointer stay after each error:
//! the next call needs none.

/// Has the call retried, if another core is stuck with what it needs.
macro_rules! retry_if {
    ($is_stuck:expr) => {
        if $is_stuck {
            return Ok(Outcome::Retry);
        }
    };
}

mod arguments;
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

use crate::objects::notification::Notification;
use crate::objects::share::Capability;
use crate::objects::slot::Source;
use crate::objects::{AnyObject, Context, Made, Object, Pcore, Ptr};
use crate::state::Kernel;
use abi::{Call, Error, Handle, ObjectType, Rights};
use arguments::records;

/// How a call without an error ends.
enum Outcome {
    /// The caller goes on with these results.
    Done([u64; 3]),
    /// The caller is blocked, has ended, or its registers were set otherwise.
    Blocked,
    /// A bounded part is done, and the arguments say so: the caller retries the call.
    Retry,
}

type Answer = Result<Outcome, Error>;
/// Of a call that mostly switches directly: the context to switch to, or `None` to run the
/// scheduler.
type SwitchTo = Result<Option<Ptr<Context>>, Error>;

const NOTHING: Answer = Ok(Outcome::Done([0; 3]));

fn one(value: u64) -> Answer {
    Ok(Outcome::Done([value, 0, 0]))
}

/// A call being made. Passed by value: a pointer, which stays in a register.
#[derive(Clone, Copy)]
struct Request {
    caller: Ptr<Context>,
}

impl Request {
    /// RDI, RSI, RDX, R10, R8, R9; only until the result is set.
    #[inline(always)]
    fn words(self) -> [u64; 6] {
        self.caller.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9])
    }

    /// The object an argument names.
    fn object<T: Object>(self, argument: usize, rights: Rights) -> Made<T> {
        self.caller.domain().share().find(Handle(self.words()[argument]), rights).map(|(object, _)| object)
    }

    /// As `object`, with the capability itself.
    fn find<T: Object>(self, argument: usize, rights: Rights) -> Result<(Ptr<T>, Capability), Error> {
        self.caller.domain().share().find(Handle(self.words()[argument]), rights)
    }

    fn capability(self, argument: usize) -> Result<Capability, Error> {
        self.caller.domain().share().get(Handle(self.words()[argument]))
    }

    /// The slot an argument names and what it holds.
    fn slot_of(self, argument: usize) -> Result<Source, Error> {
        self.caller.domain().share().find_slot(Handle(self.words()[argument]))
    }

    /// As `object`, with the slot and what it holds.
    fn held<T: Object>(self, argument: usize, rights: Rights) -> Result<(Ptr<T>, Source), Error> {
        let object = self.object(argument, rights)?;
        Ok((object, self.slot_of(argument)?))
    }

    /// The same, to derive a capability from it: for an object of one of these types (none: of
    /// any), with these rights.
    #[inline(never)]
    fn source_of(self, argument: usize, types: &[ObjectType], rights: Rights) -> Result<Source, Error> {
        let source = self.slot_of(argument)?;
        source.0.check_parent()?;
        if !types.is_empty() && !types.contains(&source.1.object.object_type()) {
            return Err(Error::WrongType);
        }
        if source.1.rights.contains(rights) { Ok(source) } else { Err(Error::NoRights) }
    }

    /// The notification that an argument names, and its slot.
    fn target(self, argument: usize) -> Result<(Notification, Source), Error> {
        let source = self.source_of(argument, &[], Rights(0))?;
        Ok((Notification::decode(source.1)?, source))
    }

    /// As `object`; `None` for `Handle::NONE`.
    fn optional<T: Object>(self, argument: usize, rights: Rights) -> Result<Option<Ptr<T>>, Error> {
        if self.words()[argument] == Handle::NONE.0 { Ok(None) } else { self.object(argument, rights).map(Some) }
    }

    /// Address and length of at most `max` bytes.
    fn bytes(self, address: usize, length: usize, max: usize) -> Result<(u64, usize), Error> {
        let bytes =
            usize::try_from(self.words()[length]).ok().filter(|bytes| *bytes <= max).ok_or(Error::BadArgument)?;
        Ok((self.words()[address], bytes))
    }

    /// Checks that an argument names this core, with these rights. A claim on another core gives no
    /// right to this one.
    #[inline(never)]
    fn check_core(self, kernel: &Kernel, argument: usize, rights: Rights) -> Result<(), Error> {
        let pcore = self.object::<Pcore>(argument, rights)?;
        if pcore.core == kernel.core() { Ok(()) } else { Err(Error::OtherCore) }
    }

    /// A free slot of the caller, for something new.
    fn slot(self, kernel: &mut Kernel) -> Result<usize, Error> {
        self.caller.domain().reserve(kernel)
    }

    /// Puts what is made into a free slot of the caller, with all rights.
    fn place_new<T: Object>(self, kernel: &mut Kernel, make: impl FnOnce(&mut Kernel) -> Made<T>) -> Answer {
        let slot = self.slot(kernel)?;
        let made = make(kernel)?;
        one(self.place(slot, made.any(), Rights::ALL))
    }

    /// Retries the call with some arguments changed to what is left to do.
    fn retry<const N: usize>(self, changed: [(usize, u64); N]) -> Outcome {
        let mut words = self.words();
        changed.iter().for_each(|(argument, value)| words[*argument] = *value);
        self.caller.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = words);
        Outcome::Retry
    }

    /// Puts a new object, whose one reference the caller of this holds, into a reserved slot.
    fn place(self, slot: usize, object: AnyObject, rights: Rights) -> u64 {
        self.caller.domain().insert(slot, Capability { object, badge: 0, rights }).0
    }
}

/// Makes a call for `caller`; gives the context to switch to directly, if there is one.
#[inline(always)]
pub fn enter(kernel: &mut Kernel, caller: Ptr<Context>, call: Call) -> Option<Ptr<Context>> {
    let request = Request { caller };
    let switch_to = match call {
        // The two calls of the fast path are inlined into the entry.
        Call::PortalCall => portal::call(kernel, request),
        Call::PortalReplyWait => portal::reply_wait(kernel, request),
        call => records::dispatch(kernel, call, request).map(|outcome| {
            match outcome {
                Outcome::Done(results) => caller.set_result(Ok(results)),
                Outcome::Retry => caller.retry_call(),
                Outcome::Blocked => (),
            }
            None
        }),
    };
    switch_to.unwrap_or_else(|error| {
        debug_assert!(call.errors().contains(error), "{call:?} is refused with {error:?}, which its row lacks");
        caller.set_result(Err(error));
        None
    })
}

/// Makes a call that came by a ring for the domain of `caller`, a context that does not run;
/// `BadCall` for one that no ring takes. `Err` has the arguments with which it is to be retried.
pub fn dispatch_ring(
    kernel: &mut Kernel,
    caller: Ptr<Context>,
    call: Call,
    words: [u64; 6],
) -> Result<Result<[u64; 3], Error>, [u64; 6]> {
    let request = Request { caller };
    caller.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = words);
    match records::dispatch_of_ring(kernel, call, request) {
        Ok(Outcome::Done(results)) => Ok(Ok(results)),
        Ok(Outcome::Retry) => Err(request.words()),
        Ok(Outcome::Blocked) => unreachable!("no call of a ring waits"),
        Err(error) => Ok(Err(error)),
    }
}
