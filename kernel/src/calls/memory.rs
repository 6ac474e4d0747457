//! Ram accounts, and memory that moves between cores.

use super::records::*;
use super::{Answer, NOTHING, Outcome, Request, one};
use crate::memory::{PAGE, PhysRange};
use crate::objects::frames::AddError;
use crate::objects::group::Turns;
use crate::objects::{Ptr, Ram};
use crate::state::Kernel;
use abi::{Error, Handle, Rights};

pub(super) fn ram_split(kernel: &mut Kernel, request: Request, call: RamSplit) -> Answer {
    request.place_new(kernel, |kernel| call.ram.split(kernel, call.limit_pages, call.turns))
}

/// Whose turns a new account shares. Turns of its own need the CONTROL right to the core.
pub(super) fn turns(kernel: &Kernel, request: Request, argument: usize) -> Result<Turns, Error> {
    if request.words()[argument] == Handle::NONE.0 {
        return Ok(Turns::Parents);
    }
    match request.check_core(kernel, argument, Rights::CONTROL) {
        Ok(()) => Ok(Turns::Own),
        Err(Error::WrongType) => request.object(argument, Rights::WRITE).map(Turns::Of),
        Err(error) => Err(error),
    }
}

pub(super) fn ram_turns(kernel: &mut Kernel, _: Request, call: RamTurns) -> Answer {
    call.ram.begin_turns(kernel)?;
    NOTHING
}

pub(super) fn ram_stat(kernel: &Kernel, _: Request, call: RamStat) -> Answer {
    Ok(Outcome::Done([call.ram.limit(kernel), call.ram.used(), kernel.frames.free()]))
}

fn check_root(ram: Ptr<Ram>) -> Result<(), Error> {
    if ram.is_root() { Ok(()) } else { Err(Error::BadArgument) }
}

pub(super) fn ram_carve(kernel: &mut Kernel, _: Request, call: RamCarve) -> Answer {
    check_root(call.root)?;
    one(kernel.frames.carve(call.pages).ok_or(Error::NoMemory)?.0)
}

pub(super) fn ram_add(kernel: &mut Kernel, _: Request, call: RamAdd) -> Answer {
    check_root(call.root)?;
    let range = decode_run(call.address, call.pages)?;
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
