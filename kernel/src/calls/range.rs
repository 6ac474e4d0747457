//! Address ranges.

use super::{Answer, NOTHING, Outcome, Request, one};
use crate::memory::USER_END;
use crate::objects::mapping::{PAGE, allowed_by};
use crate::objects::{Ptr, Range, Segment};
use crate::state::Kernel;
use crate::steps::Budget;
use abi::layout::{domain as flags, protection, range_stat};
use abi::{Error, Handle, Rights};

fn living(request: &Request, rights: Rights) -> Result<Ptr<Range>, Error> {
    let range = request.object::<Range>(0, rights)?;
    if range.is_alive() { Ok(range) } else { Err(Error::PeerDead) }
}

/// Known bits, and nothing without reading.
fn decode_protection(wanted: u64) -> Result<(), Error> {
    let known = wanted & !(protection::READ | protection::WRITE | protection::EXECUTE) == 0;
    let readable = wanted == 0 || wanted & protection::READ != 0;
    if known && readable { Ok(()) } else { Err(Error::BadArgument) }
}

/// The widest protection a capability allows, if it covers `wanted`.
fn decode_rights(rights: Rights, wanted: u64) -> Result<u64, Error> {
    decode_protection(wanted)?;
    let allowed = allowed_by(rights);
    if allowed & wanted == wanted { Ok(allowed) } else { Err(Error::NoRights) }
}

/// Whether code may be writable.
pub(super) fn decode_options(options: u64) -> Result<bool, Error> {
    if options & !flags::WRITE_EXECUTE == 0 { Ok(options != 0) } else { Err(Error::BadArgument) }
}

pub(super) fn alloc(kernel: &mut Kernel, request: &Request) -> Answer {
    let ram = request.ram(0)?;
    let [_, pages, options, ..] = request.words();
    let write_execute = decode_options(options)?;
    let slot = request.slot(kernel)?;
    let range = Ptr::<Range>::create_nested(kernel, ram, pages, write_execute)?;
    Ok(Outcome::Done([request.place(slot, range.any(), Rights::ALL), range.pages(), 0]))
}

pub(super) fn retype(kernel: &mut Kernel, request: &Request) -> Answer {
    let (segment, _) = request.find::<Segment>(0, Rights::CONTROL)?;
    let [handle, pages, options, ..] = request.words();
    let write_execute = decode_options(options)?;
    segment.check_lone()?;
    let slot = request.slot(kernel)?;
    let range = Ptr::<Range>::create_from(kernel, segment, pages, write_execute)?;
    let placed = request.place(slot, range.any(), Rights::ALL);
    request.caller.domain().remove(kernel, Handle(handle))?;
    Ok(Outcome::Done([placed, range.pages(), 0]))
}

pub(super) fn fill(kernel: &mut Kernel, request: &Request) -> Answer {
    let range = living(request, Rights::WRITE)?;
    let place = range.place(request.words()[1], request.words()[2])?;
    match range.fill(kernel, place)? {
        0 if place.pages > 0 => Ok(Outcome::Again),
        pages => one(pages),
    }
}

pub(super) fn map(kernel: &mut Kernel, request: &Request) -> Answer {
    let range = living(request, Rights::WRITE)?;
    if range.is_stuck() {
        return Ok(Outcome::Again);
    }
    let (segment, rights) = request.object_anywhere::<Segment>(kernel, 2, Rights(0))?;
    let mapped = map_segment(kernel, request, range, (segment, rights));
    kernel.release(segment);
    mapped
}

fn map_segment(
    kernel: &mut Kernel,
    request: &Request,
    range: Ptr<Range>,
    (segment, rights): (Ptr<Segment>, Rights),
) -> Answer {
    let [_, start, _, first, pages, wanted] = request.words();
    let place = range.place(start, pages)?;
    let allowed = decode_rights(rights, wanted)?;
    range.check_protection(wanted)?;
    range.map(kernel, place, segment, first, [wanted, allowed])?;
    NOTHING
}

pub(super) fn nest(kernel: &mut Kernel, request: &Request) -> Answer {
    let range = living(request, Rights::WRITE)?;
    let (child, rights) = request.object_anywhere::<Range>(kernel, 2, Rights(0))?;
    let nested = nest_range(kernel, request, range, (child, rights));
    kernel.release(child);
    nested
}

fn nest_range(
    kernel: &mut Kernel,
    request: &Request,
    range: Ptr<Range>,
    (child, rights): (Ptr<Range>, Rights),
) -> Answer {
    let [_, start, _, wanted, ..] = request.words();
    let allowed = decode_rights(rights, wanted)?;
    if !child.is_alive() {
        return Err(Error::PeerDead);
    }
    range.nest(kernel, start, child, [wanted, allowed])?;
    NOTHING
}

pub(super) fn unmap(kernel: &mut Kernel, request: &Request) -> Answer {
    let range = living(request, Rights::WRITE)?;
    if range.is_stuck() {
        return Ok(Outcome::Again);
    }
    let place = range.place(request.words()[1], request.words()[2])?;
    let before = request.words()[3];
    if before > USER_END / PAGE {
        return Err(Error::BadArgument);
    }
    let (pages, reached) = range.unmap(kernel, place, &mut Budget::step())?;
    let pages = before + pages;
    if reached == place.end() {
        return one(pages);
    }
    Ok(request.again([(1, reached), (2, (place.end() - reached) / PAGE), (3, pages)]))
}

pub(super) fn protect(kernel: &mut Kernel, request: &Request) -> Answer {
    let range = living(request, Rights::WRITE)?;
    if range.is_stuck() {
        return Ok(Outcome::Again);
    }
    let [_, start, pages, wanted, checked, _] = request.words();
    let place = range.place(start, pages)?;
    decode_protection(wanted)?;
    let budget = &mut Budget::step();
    if checked < pages {
        let reached = range.check_cover(kernel, place, wanted, start + checked * PAGE, budget)?;
        if reached < place.end() {
            return Ok(request.again([(4, (reached - start) / PAGE)]));
        }
    }
    let reached = range.protect(kernel, place, wanted, budget)?;
    if reached == place.end() {
        return NOTHING;
    }
    // All of it has been looked at.
    let left = (place.end() - reached) / PAGE;
    Ok(request.again([(1, reached), (2, left), (4, left)]))
}

pub(super) fn get(kernel: &mut Kernel, request: &Request) -> Answer {
    let range = living(request, Rights::READ)?;
    if range.is_stuck() {
        return Ok(Outcome::Again);
    }
    let entry = range.get(kernel, request.words()[1]).ok_or(Error::NotFound)?;
    Ok(Outcome::Done(entry.words()))
}

pub(super) fn stat(kernel: &mut Kernel, request: &Request) -> Answer {
    let range = living(request, Rights::READ)?.shared().ok_or(Error::WrongType)?;
    let stat = range.range_stat(kernel.core());
    Ok(Outcome::Done(match request.words()[1] {
        range_stat::LOCK => [stat.lock.acquires, stat.lock.waits, stat.invalidations],
        range_stat::FAULTS => [stat.faults, stat.tables, stat.cores],
        _ => return Err(Error::BadArgument),
    }))
}
