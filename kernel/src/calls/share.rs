//! Shared shares, and what they name.

use super::capability::downgraded;
use super::records::*;
use super::segment::make;
use super::{Answer, NOTHING, Outcome, Request, one};
use crate::objects::mapping::VaRange;
use crate::objects::nest::level_for;
use crate::objects::share::Capability;
use crate::objects::{Object, Ptr, Segment};
use crate::shared::{Found, Name, New, ObjectKind, SharedObject, SharedShare, shared};
use crate::state::Kernel;
use crate::steps::Budget;
use abi::layout::lock as lock_numbers;
use abi::{Error, Handle, Rights};
use lock::Kind;

const _: () = assert!(Kind::Spin as u64 == lock_numbers::SPIN && Kind::ReadWrite as u64 == lock_numbers::READ_WRITE);
const _: () = assert!(
    Kind::Mcs as u64 == lock_numbers::MCS && Kind::ScalableReadWrite as u64 == lock_numbers::SCALABLE_READ_WRITE
);

fn decode_lock(number: u64) -> Result<Kind, Error> {
    Kind::decode(number).ok_or(Error::BadArgument)
}

impl Request {
    #[inline(never)]
    fn in_share(self, (share, id): (Handle, u64)) -> Result<Found, Error> {
        self.caller.domain().share().find::<SharedShare>(share, Rights::READ)?.0.find(id)
    }

    /// An object that may be named in a shared share, with a reference that the caller releases.
    /// One in a shared share is given a private object that stands for it, paid by the caller's
    /// domain.
    pub(super) fn object_anywhere<T: Object>(
        self,
        kernel: &mut Kernel,
        argument: usize,
        rights: Rights,
    ) -> Result<(Ptr<T>, Rights), Error> {
        let handle = Handle(self.words()[argument]);
        let (object, held) = match handle.parts() {
            None => {
                let capability = self.capability(argument)?;
                kernel.retain_any(capability.object);
                (capability.object, capability.rights)
            }
            Some(parts) => {
                let found = self.in_share(parts)?;
                let named = kernel.name_shared(self.caller.domain().ram(), &found);
                found.end(kernel);
                (named?, found.rights)
            }
        };
        let typed = object
            .cast::<T>()
            .and_then(|typed| if held.contains(rights) { Ok((typed, held)) } else { Err(Error::NoRights) });
        if typed.is_err() {
            kernel.release_any(object);
        }
        typed
    }

    /// As `object_anywhere`, for what need not be a private object.
    #[inline]
    fn shared_object(self, argument: usize) -> Result<Found, Error> {
        match Handle(self.words()[argument]).parts() {
            None => {
                let capability = self.capability(argument)?;
                Found::of(capability.object, capability.rights).ok_or(Error::WrongType)
            }
            Some(parts) => self.in_share(parts),
        }
    }
}

pub(super) fn share_alloc(kernel: &mut Kernel, request: Request, call: ShareAlloc) -> Answer {
    // The upper half is how far the call is (`make`).
    let lock = decode_lock(call.lock & u64::from(u32::MAX))?;
    let Some(parent) = call.parent else { return alloc_pool(kernel, request, call, lock) };
    retry_if!(parent.is_stuck());
    made(request, parent.make(kernel, New::Share, lock, call.name)?, 0)
}

fn alloc_pool(kernel: &mut Kernel, request: Request, call: ShareAlloc, lock: Kind) -> Answer {
    let ShareAlloc { ram, pages, name, .. } = call;
    let ram = ram.ok_or(Error::BadHandle)?;
    let slot = request.slot(kernel)?;
    let mut share = Err(Error::NoMemory);
    let fill = |run: Ptr<Segment>, kernel: &mut Kernel, budget: &mut Budget| {
        if !run.populate(kernel, budget)? {
            return Ok(false);
        }
        share = kernel.make_pool(run, lock, name);
        share.map(|_| true)
    };
    let is_run = |run: Ptr<Segment>| run.base().is_some();
    let Some(run) = make(kernel, request, (ram, pages, None), Kernel::reserve_pool, is_run, fill)? else {
        return Ok(Outcome::Retry);
    };
    kernel.release(run);
    let share = share?;
    let id = shared(share).map_or(0, |object| object.id());
    Ok(Outcome::Done([request.place(slot, share, Rights::ALL), id, 0]))
}

/// The answer of what made an object in the share that the first argument names.
fn made(request: Request, id: u64, pages: u64) -> Answer {
    let handle = Handle::in_share(Handle(request.words()[0]), id).expect("checked when it was made");
    Ok(Outcome::Done([handle.0, id, pages]))
}

pub(super) fn share_segment(kernel: &mut Kernel, request: Request, call: ShareSegment) -> Answer {
    let ShareSegment { share, pages, name, flags: options, .. } = call;
    retry_if!(share.is_stuck());
    let new = New::Segment { pages, contiguous: options != 0 };
    make_part(kernel, request, share, (new, name), None, (NO_COPY | options << 32 | pages, 5))
}

pub(super) fn share_copy(kernel: &mut Kernel, request: Request, call: ShareCopy) -> Answer {
    retry_if!(call.share.is_stuck());
    let found = request.shared_object(call.segment)?;
    let source = found.object;
    let is_there = |share: SharedObject| share.beside(source).is_ok() && source.base().is_none();
    let copied = match (source.kind(), found.rights.contains(Rights::READ)) {
        (ObjectKind::Segment, true) if shared(call.share.any()).is_some_and(is_there) => {
            let new = New::Segment { pages: source.pages(), contiguous: false };
            make_part(kernel, request, call.share, (new, call.name), Some(source), (source.id(), 4))
        }
        (ObjectKind::Segment, true) => Err(Error::BadArgument),
        (ObjectKind::Segment, false) => Err(Error::NoRights),
        _ => Err(Error::WrongType),
    };
    found.end(kernel);
    copied
}

/// In the badge of a new segment that is no copy, beside what it is to be: no source has such an
/// id.
const NO_COPY: u64 = 1 << 63;

/// Makes the next part of a segment, or of a copy. Until it is complete only its maker's context
/// holds it, with that badge, so that no other call goes on with it; the argument `done` says that
/// it was begun.
fn make_part(
    kernel: &mut Kernel,
    request: Request,
    share: Ptr<SharedShare>,
    (new, name): (New, Name),
    source: Option<SharedObject>,
    (badge, done): (u64, usize),
) -> Answer {
    let partial = &request.caller.partial;
    let held = partial.get().filter(|held| request.words()[done] != 0 && held.badge == badge);
    let begun = held.and_then(|held| Found::of(held.object, held.rights));
    let segment = begun.map_or_else(|| share.create(kernel, new, Kind::Spin, name), Ok)?;
    let answer = match segment.object.fill(kernel, source) {
        Ok(true) => share.tell(kernel, segment.object).and_then(|id| made(request, id, 0)),
        Ok(false) if begun.is_some() => Ok(Outcome::Retry),
        Ok(false) => kernel.name_shared(request.caller.domain().ram(), &segment).map(|object| {
            kernel.keep(partial, Some(Capability { object, badge, rights: Rights(0) }), None);
            kernel.release_any(object);
            request.retry([(done, 1)])
        }),
        Err(error) => Err(error),
    };
    segment.end(kernel);
    if !matches!(answer, Ok(Outcome::Retry)) {
        kernel.keep(partial, None, None);
    }
    answer
}

pub(super) fn share_range(kernel: &mut Kernel, request: Request, call: ShareRange) -> Answer {
    let ShareRange { share, pages, lock, name, flags: options } = call;
    retry_if!(share.is_stuck());
    let (lock, write_execute) = (decode_lock(lock)?, options != 0);
    let level = level_for(pages).ok_or(Error::BadArgument)?;
    let id = share.make(kernel, New::Range { level, write_execute }, lock, name)?;
    made(request, id, VaRange::of_level(level).pages())
}

pub(super) fn share_add(kernel: &mut Kernel, request: Request, call: ShareAdd) -> Answer {
    retry_if!(call.share.is_some_and(Ptr::<SharedShare>::is_stuck));
    let found = request.shared_object(call.object)?;
    let added = add_found(kernel, request, &call, &found);
    found.end(kernel);
    added
}

fn add_found(kernel: &mut Kernel, request: Request, call: &ShareAdd, found: &Found) -> Answer {
    if !found.rights.contains(Rights::GRANT) {
        return Err(Error::NoRights);
    }
    let rights = downgraded(found.rights, call.rights)?;
    if let Some(share) = call.share {
        let handle = Handle::in_share(Handle(request.words()[0]), found.object.id()).ok_or(Error::BadArgument)?;
        share.add(kernel, found.object, rights)?;
        return one(handle.0);
    }
    let slot = request.slot(kernel)?;
    let object = kernel.name_shared(request.caller.domain().ram(), found)?;
    one(request.place(slot, object, rights))
}

pub(super) fn share_remove(kernel: &mut Kernel, _: Request, ShareRemove { share, id }: ShareRemove) -> Answer {
    retry_if!(share.is_stuck());
    share.remove(kernel, id)?;
    NOTHING
}

pub(super) fn share_stat(_: &Kernel, _: Request, ShareStat { share }: ShareStat) -> Answer {
    let (objects, lock, _) = share.stat()?;
    Ok(Outcome::Done([objects, lock.acquires, lock.waits]))
}

pub(super) fn share_pool(_: &Kernel, _: Request, call: SharePool) -> Answer {
    one(call.share.pool()?)
}

pub(super) fn share_import(kernel: &mut Kernel, request: Request, call: ShareImport) -> Answer {
    let slot = request.slot(kernel)?;
    let share = kernel.import_pool(call.ram, call.pool)?;
    one(request.place(slot, share, Rights::ALL))
}

pub(super) fn object_name(kernel: &mut Kernel, request: Request, call: ObjectName) -> Answer {
    let found = request.shared_object(call.object)?;
    let [first, second] = found.object.name();
    let references = found.references();
    found.end(kernel);
    Ok(Outcome::Done([first, second, references]))
}
