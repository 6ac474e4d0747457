//! Ram accounts, and memory that moves between cores.

use super::{Answer, NOTHING, Outcome, Request, one};
use crate::memory::{PAGE, PhysRange};
use crate::objects::frames::AddError;
use crate::objects::group::Turns;
use crate::objects::{Ptr, Ram};
use crate::state::Kernel;
use abi::{Error, Handle, Rights};

pub(super) fn split(kernel: &mut Kernel, request: &Request) -> Answer {
    let ram = request.ram(0)?;
    let turns = decode_turns(kernel, request)?;
    let slot = request.slot(kernel)?;
    let child = ram.split(kernel, request.words()[1], turns)?;
    one(request.place(slot, child.any(), Rights::ALL))
}

/// Turns of its own are for whoever has the core to give.
fn decode_turns(kernel: &Kernel, request: &Request) -> Result<Turns, Error> {
    if request.words()[2] == Handle::NONE.0 {
        return Ok(Turns::Parents);
    }
    match request.check_core(kernel, 2, Rights::CONTROL) {
        Ok(()) => Ok(Turns::Own),
        Err(Error::WrongType) => request.object::<Ram>(2, Rights::WRITE).map(Turns::Of),
        Err(error) => Err(error),
    }
}

pub(super) fn turns(kernel: &mut Kernel, request: &Request) -> Answer {
    let ram = request.ram(0)?;
    request.check_core(kernel, 1, Rights::CONTROL)?;
    ram.begin_turns(kernel)?;
    NOTHING
}

pub(super) fn stat(kernel: &Kernel, request: &Request) -> Answer {
    let ram = request.object::<Ram>(0, Rights(0))?;
    Ok(Outcome::Done([ram.limit(kernel), ram.used(), kernel.frames.free()]))
}

fn root(request: &Request) -> Result<Ptr<Ram>, Error> {
    let ram = request.object::<Ram>(0, Rights::CONTROL)?;
    if ram.is_root() { Ok(ram) } else { Err(Error::BadArgument) }
}

pub(super) fn carve(kernel: &mut Kernel, request: &Request) -> Answer {
    root(request)?;
    one(kernel.frames.carve(request.words()[1]).ok_or(Error::NoMemory)?.0)
}

pub(super) fn add(kernel: &mut Kernel, request: &Request) -> Answer {
    root(request)?;
    let [_, base, pages, ..] = request.words();
    let range = decode_run(base, pages)?;
    if !kernel.is_core_memory(range) {
        return Err(Error::BadArgument);
    }
    kernel.frames.add(range).map_err(|error| match error {
        AddError::Full => Error::Busy,
        AddError::Overlap | AddError::Small => Error::BadArgument,
    })?;
    NOTHING
}

/// A run of physical pages: aligned, not empty, not wrapping.
pub(super) fn decode_run(base: u64, pages: u64) -> Result<PhysRange, Error> {
    let bytes = pages.checked_mul(PAGE).filter(|bytes| *bytes > 0).ok_or(Error::BadArgument)?;
    let end = base.checked_add(bytes).ok_or(Error::BadArgument)?;
    // 52 bits is what a page-table entry can say.
    if !base.is_multiple_of(PAGE) || end > 1 << 52 {
        return Err(Error::BadArgument);
    }
    Ok(PhysRange::new(base, bytes))
}
