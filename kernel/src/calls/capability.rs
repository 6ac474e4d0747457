//! Copying, minting and dropping capabilities.

use super::records::*;
use super::{Answer, NOTHING, Outcome, Request, one};
use crate::objects::share::Capability;
use crate::objects::slot::Source;
use crate::objects::{Domain, Ptr, Segment};
use crate::state::Kernel;
use crate::steps::Budget;
use abi::{Error, Handle, Rights};

/// Rights a holder asks for: known bits, none it has not. INHERIT is a mark for `DomainFork`, not
/// an authority: anyone may set it on a copy.
pub(super) fn downgraded(held: Rights, wanted: u64) -> Result<Rights, Error> {
    let wanted = u32::try_from(wanted).map(Rights).map_err(|_| Error::BadArgument)?;
    let known = Rights::ALL.union(Rights::INHERIT);
    if !known.contains(wanted) {
        return Err(Error::BadArgument);
    }
    if held.union(Rights::INHERIT).contains(wanted) { Ok(wanted) } else { Err(Error::NoRights) }
}

/// Derives a capability of that badge, with the rights that are asked for, into a free slot of a
/// domain.
#[inline(never)]
pub(super) fn derive(
    kernel: &mut Kernel,
    domain: Ptr<Domain>,
    (parent, source): Source,
    wanted: u64,
    badge: u64,
) -> Answer {
    let rights = downgraded(source.rights, wanted)?;
    let slot = domain.reserve(kernel)?;
    kernel.retain_any(source.object);
    one(domain.insert_derived(slot, Capability { rights, badge, ..source }, parent).0)
}

pub(super) fn cap_copy(kernel: &mut Kernel, request: Request, call: CapCopy) -> Answer {
    derive(kernel, request.caller.domain(), call.source, call.rights, call.source.1.badge)
}

pub(super) fn cap_mint(kernel: &mut Kernel, request: Request, call: CapMint) -> Answer {
    derive(kernel, request.caller.domain(), call.source, call.rights, call.badge)
}

pub(super) fn cap_drop(kernel: &mut Kernel, request: Request, call: CapDrop) -> Answer {
    // A segment that nothing else names becomes shorter first, a step at a time.
    if let Ok(last) = request.capability(call.capability)?.object.cast::<Segment>()
        && last.header().references() == 1
        && !last.free_pages(kernel, &mut Budget::step())
    {
        return Ok(request.retry([]));
    }
    request.caller.domain().remove(kernel, Handle(request.words()[call.capability]))?;
    NOTHING
}

pub(super) fn cap_stat(_: &Kernel, request: Request, call: CapStat) -> Answer {
    let capability = request.capability(call.capability)?;
    let object = capability.object;
    Ok(Outcome::Done([object.object_type() as u64, object.id(), u64::from(capability.rights.0)]))
}
