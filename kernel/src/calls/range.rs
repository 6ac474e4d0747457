//! Address ranges.

use super::records::*;
use super::{Answer, NOTHING, Outcome, Request, one};
use crate::memory::USER_END;
use crate::objects::mapping::{PAGE, allowed_by};
use crate::objects::{Ptr, Range, Segment};
use crate::state::Kernel;
use crate::steps::Budget;
use abi::layout::{protection, range_stat};
use abi::{Error, Handle, Rights};

fn check_alive(range: Ptr<Range>) -> Result<(), Error> {
    if range.is_alive() { Ok(()) } else { Err(Error::PeerDead) }
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

pub(super) fn range_alloc(kernel: &mut Kernel, request: Request, call: RangeAlloc) -> Answer {
    let slot = request.slot(kernel)?;
    let range = Ptr::<Range>::create_nested(kernel, call.ram, call.pages, call.flags != 0)?;
    Ok(Outcome::Done([request.place(slot, range.any(), Rights::ALL), range.pages(), 0]))
}

pub(super) fn range_retype(kernel: &mut Kernel, request: Request, call: RangeRetype) -> Answer {
    let (segment, (from, _)) = call.segment;
    segment.check_lone()?;
    let slot = request.slot(kernel)?;
    let range = Ptr::<Range>::create_from(kernel, segment, call.pages, call.flags != 0)?;
    let placed = request.place(slot, range.any(), Rights::ALL);
    request.caller.domain().remove(kernel, Handle(from.index.into()))?;
    Ok(Outcome::Done([placed, range.pages(), 0]))
}

pub(super) fn range_fill(kernel: &mut Kernel, _: Request, call: RangeFill) -> Answer {
    let RangeFill { range, address, pages } = call;
    check_alive(range)?;
    let place = range.place(address, pages)?;
    match range.fill(kernel, place)? {
        0 => Ok(Outcome::Retry),
        pages => one(pages),
    }
}

#[inline(always)]
pub(super) fn range_map(kernel: &mut Kernel, request: Request, call: RangeMap) -> Answer {
    check_alive(call.range)?;
    retry_if!(call.range.is_stuck());
    let (segment, rights) = request.object_anywhere::<Segment>(kernel, call.segment, Rights(0))?;
    let mapped = map_segment(kernel, &call, segment, rights);
    kernel.release(segment);
    mapped
}

#[inline(always)]
fn map_segment(kernel: &mut Kernel, call: &RangeMap, segment: Ptr<Segment>, rights: Rights) -> Answer {
    let &RangeMap { range, address, first_page, pages, protection, .. } = call;
    let place = range.place(address, pages)?;
    let allowed = decode_rights(rights, protection)?;
    range.check_protection(protection)?;
    range.map(kernel, place, segment, first_page, [protection, allowed])?;
    NOTHING
}

pub(super) fn range_nest(kernel: &mut Kernel, request: Request, call: RangeNest) -> Answer {
    check_alive(call.range)?;
    let (child, rights) = request.object_anywhere::<Range>(kernel, call.nested, Rights(0))?;
    let nested = nest_range(kernel, call, child, rights);
    kernel.release(child);
    nested
}

fn nest_range(kernel: &mut Kernel, call: RangeNest, child: Ptr<Range>, rights: Rights) -> Answer {
    let allowed = decode_rights(rights, call.protection)?;
    check_alive(child)?;
    call.range.nest(kernel, call.address, child, [call.protection, allowed])?;
    NOTHING
}

pub(super) fn range_unmap(kernel: &mut Kernel, request: Request, call: RangeUnmap) -> Answer {
    let RangeUnmap { range, address, pages, unmapped } = call;
    check_alive(range)?;
    retry_if!(range.is_stuck());
    let place = range.place(address, pages)?;
    if unmapped > USER_END / PAGE {
        return Err(Error::BadArgument);
    }
    let (pages, reached) = range.unmap(kernel, place, &mut Budget::step())?;
    let pages = unmapped + pages;
    if reached == place.end() {
        return one(pages);
    }
    Ok(request.retry([(1, reached), (2, (place.end() - reached) / PAGE), (3, pages)]))
}

pub(super) fn range_protect(kernel: &mut Kernel, request: Request, call: RangeProtect) -> Answer {
    let RangeProtect { range, address: start, pages, protection: wanted, checked } = call;
    check_alive(range)?;
    retry_if!(range.is_stuck());
    let place = range.place(start, pages)?;
    decode_protection(wanted)?;
    let budget = &mut Budget::step();
    if checked < pages {
        let reached = range.check_cover(kernel, place, wanted, start + checked * PAGE, budget)?;
        if reached < place.end() {
            return Ok(request.retry([(4, (reached - start) / PAGE)]));
        }
    }
    let reached = range.protect(kernel, place, wanted, budget)?;
    if reached == place.end() {
        return NOTHING;
    }
    // All of it has been looked at.
    let left = (place.end() - reached) / PAGE;
    Ok(request.retry([(1, reached), (2, left), (4, left)]))
}

pub(super) fn range_get(kernel: &mut Kernel, _: Request, RangeGet { range, address }: RangeGet) -> Answer {
    check_alive(range)?;
    retry_if!(range.is_stuck());
    let entry = range.get(kernel, address).ok_or(Error::NotFound)?;
    Ok(Outcome::Done(entry.words()))
}

pub(super) fn range_stat(kernel: &Kernel, _: Request, RangeStat { range, what }: RangeStat) -> Answer {
    check_alive(range)?;
    let range = range.shared().ok_or(Error::WrongType)?;
    let stat = range.range_stat(kernel.core());
    Ok(Outcome::Done(match what {
        range_stat::LOCK => [stat.lock.acquires, stat.lock.waits, stat.invalidations],
        range_stat::FAULTS => [stat.faults, stat.tables, stat.cores],
        _ => return Err(Error::BadArgument),
    }))
}
