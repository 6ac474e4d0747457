//! Segments.

use super::memory::decode_run;
use super::records::*;
use super::{Answer, NOTHING, Outcome, Request};
use crate::memory::PhysAddr;
use crate::objects::segment::Kind;
use crate::objects::share::Capability;
use crate::objects::{Made, Ptr, Ram, Segment};
use crate::state::Kernel;
use crate::steps::{Budget, UNITS};
use abi::layout::{copy as modes, segment as flags};
use abi::{Error, Rights};

/// What is discarded in one step, as frees of single pages are counted.
const DISCARD_PAGES: u64 = UNITS as u64;

pub(super) fn segment_alloc(kernel: &mut Kernel, request: Request, call: SegmentAlloc) -> Answer {
    let SegmentAlloc { ram, pages, flags: options, .. } = call;
    let is_common = options & flags::COMMON != 0;
    let options = options & !flags::COMMON;
    if options & !(flags::CONTIGUOUS | flags::EAGER) != 0 || is_common && options != flags::EAGER {
        return Err(Error::BadArgument);
    }
    let slot = request.slot(kernel)?;
    let is_run = options & flags::CONTIGUOUS != 0;
    let segment = match options {
        0 => Ptr::<Segment>::new_anonymous(kernel, ram, pages)?,
        _ => {
            let begin = if is_run { Ptr::<Segment>::reserve_contiguous } else { Ptr::<Segment>::new_anonymous };
            let fits = |made: Ptr<Segment>| made.base().is_some() == is_run;
            let made = make(kernel, request, (ram, pages, None), begin, fits, Ptr::<Segment>::populate)?;
            let Some(segment) = made else { return Ok(Outcome::Retry) };
            if is_common {
                segment.make_common();
            }
            segment
        }
    };
    let base = segment.base().map_or(0, |base| base.0);
    Ok(Outcome::Done([request.place(slot, segment.any(), Rights::ALL), base, 0]))
}

/// The argument of calls that make a segment page by page whose upper half says how far they are.
const STAGE: usize = 3;
const STAGE_SHIFT: u32 = 32;
const BEGIN: u64 = 0;
const GO_ON: u64 = 1;
/// There is no memory: the pages made go back, then the call says so.
const UNDO: u64 = 2;

/// Makes a segment of so many pages, a copy of `source` if there is one, a bounded part in each
/// step; `None`: the call is to be made again. Until it is whole only its maker's context holds it.
/// One that a call given up has left there goes first, and none goes on with a copy
/// of something else.
pub(super) fn make(
    kernel: &mut Kernel,
    request: Request,
    (ram, pages, source): (Ptr<Ram>, u64, Option<Ptr<Segment>>),
    begin: impl FnOnce(&mut Kernel, Ptr<Ram>, u64) -> Made<Segment>,
    fits: impl FnOnce(Ptr<Segment>) -> bool,
    fill: impl FnOnce(Ptr<Segment>, &mut Kernel, &mut Budget) -> Result<bool, Error>,
) -> Result<Option<Ptr<Segment>>, Error> {
    let (budget, partial) = (&mut Budget::step(), &request.caller.partial);
    // One with a badge is of a fork.
    let held = partial.get().filter(|held| held.badge == 0).map(|held| held.object.cast::<Segment>()).transpose()?;
    let word = request.words()[STAGE];
    let segment = match (word >> STAGE_SHIFT, held) {
        (BEGIN, None) => {
            let new = begin(kernel, ram, pages)?;
            new.set_source(source);
            kernel.keep(partial, Some(Capability { object: new.any(), badge: 0, rights: Rights(0) }), None);
            kernel.release(new);
            new
        }
        (GO_ON, Some(made)) if made.ram() == ram && made.pages() == pages && made.is_made_of(source) && fits(made) => {
            made
        }
        (BEGIN | UNDO, Some(made)) => {
            if made.free_pages(kernel, budget) {
                kernel.keep(partial, None, None);
            }
            request.retry([]);
            return Ok(None);
        }
        (UNDO, None) => return Err(Error::NoMemory),
        _ => return Err(Error::BadArgument),
    };
    let stage = match fill(segment, kernel, budget) {
        Ok(true) => {
            segment.set_source(None);
            kernel.retain(segment);
            kernel.keep(partial, None, None);
            return Ok(Some(segment));
        }
        Ok(false) => GO_ON,
        Err(_) => UNDO,
    };
    request.retry([(STAGE, word & !(u64::MAX << STAGE_SHIFT) | stage << STAGE_SHIFT)]);
    Ok(None)
}

pub(super) fn segment_copy(kernel: &mut Kernel, request: Request, call: SegmentCopy) -> Answer {
    let SegmentCopy { ram, segment: source, mode, .. } = call;
    let slot = request.slot(kernel)?;
    let may_be = match (mode, source.kind()) {
        (modes::PLAIN, _) => source.is_ram(),
        // Who writes to pages in common does not ask whether others rely on them.
        (modes::ON_WRITE | modes::ON_REFERENCE, Kind::Anonymous) => !source.is_common(),
        (modes::ON_WRITE | modes::ON_REFERENCE, kind) => matches!(kind, Kind::Contiguous(_)),
        _ => false,
    };
    if !may_be {
        return Err(Error::BadArgument);
    }
    // A contiguous segment must keep its frames, so its copy cannot share them.
    let shares = mode != modes::PLAIN && source.kind() == Kind::Anonymous;
    let fits = |made: Ptr<Segment>| made.kind() == Kind::Anonymous;
    let fill = |made, kernel: &mut Kernel, budget: &mut Budget| match shares {
        true => source.share_until_written(kernel, made, budget),
        false => source.copy_pages(kernel, made, budget),
    };
    let of = (ram, source.pages(), Some(source));
    let made = make(kernel, request, of, Ptr::<Segment>::new_anonymous, fits, fill)?;
    let Some(copy) = made else { return Ok(Outcome::Retry) };
    if shares && mode == modes::ON_REFERENCE {
        copy.set_by_reference();
    }
    Ok(Outcome::Done([request.place(slot, copy.any(), Rights::ALL), 0, 0]))
}

pub(super) fn segment_stat(kernel: &mut Kernel, request: Request, call: SegmentStat) -> Answer {
    let (segment, rights) = request.object_anywhere::<Segment>(kernel, call.segment, Rights(0))?;
    let base = segment.base().filter(|_| rights.contains(Rights::DMA));
    let stat = [segment.pages(), segment.present(), base.map_or(0, |base| base.0)];
    kernel.release(segment);
    Ok(Outcome::Done(stat))
}

pub(super) fn segment_set_pages(kernel: &mut Kernel, request: Request, call: SegmentSetPages) -> Answer {
    let SegmentSetPages { segment, pages, first, freed } = call;
    if segment.kind() != Kind::Anonymous || segment.is_common() || pages == 0 && freed == 0 {
        return Err(Error::BadArgument);
    }
    if pages > 0 {
        // One that becomes shorter does so from its end, a step at a time.
        let is_empty = segment.present() == 0;
        let reached = if is_empty { pages } else { pages.max(segment.pages().saturating_sub(DISCARD_PAGES)) };
        segment.set_pages(kernel, reached)?;
        return if reached == pages { NOTHING } else { Ok(request.retry([])) };
    }
    let end = first.checked_add(freed).filter(|end| *end <= segment.pages()).ok_or(Error::BadArgument)?;
    let reached = end.min(first + DISCARD_PAGES);
    segment.discard(kernel, first, reached);
    if reached == end { NOTHING } else { Ok(request.retry([(2, reached), (3, end - reached)])) }
}

pub(super) fn segment_import(kernel: &mut Kernel, request: Request, call: SegmentImport) -> Answer {
    let SegmentImport { ram, address: base, pages, flags: options, .. } = call;
    let range = decode_run(base, pages)?;
    if options & !flags::UNCACHED != 0 {
        return Err(Error::BadArgument);
    }
    let slot = request.slot(kernel)?;
    let kind =
        Kind::Imported { base: PhysAddr(base), uncached: options & flags::UNCACHED != 0, is_ram: kernel.is_ram(range) };
    let segment = Ptr::<Segment>::new_imported(kernel, ram, pages, kind)?;
    Ok(Outcome::Done([request.place(slot, segment.any(), Rights::ALL), 0, 0]))
}
