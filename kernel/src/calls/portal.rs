//! Portals.

use super::records::*;
use super::{Answer, NOTHING, Request, SwitchTo, one};
use crate::objects::context::State;
use crate::objects::portal::{PortalKind, Room};
use crate::objects::{Context, Portal, Ptr};
use crate::state::Kernel;
use abi::layout::portal as kinds;
use abi::{Error, Rights};

pub(super) fn portal_alloc(kernel: &mut Kernel, request: Request, call: PortalAlloc) -> Answer {
    let PortalAlloc { ram, context, badge, kind } = call;
    let kind = match kind {
        kinds::RENDEZVOUS => PortalKind::Rendezvous,
        kinds::MAILBOX => PortalKind::Mailbox,
        _ => return Err(Error::BadArgument),
    };
    let slot = request.slot(kernel)?;
    let portal = kernel.create(ram, |header| Portal::new(header, kind))?;
    portal.set_callee(context.and_then(living));
    let capability = crate::objects::share::Capability { object: portal.any(), badge, rights: Rights::ALL };
    one(request.caller.domain().insert(slot, capability).0)
}

#[inline(always)]
pub(super) fn call(kernel: &mut Kernel, request: Request) -> SwitchTo {
    let (portal, capability) = request.find::<Portal>(0, Rights::CALL)?;
    let deadline_ns = request.words()[5];
    let caller = request.caller;
    let callee = portal.callee().ok_or(Error::PeerDead)?;
    kernel.counters.portal_calls += 1;
    match portal.kind {
        PortalKind::Mailbox => {
            kernel.call_mailbox(caller, callee, capability.badge);
            Ok(None)
        }
        PortalKind::Rendezvous => {
            match kernel.may_call(caller, callee) {
                Room::Yes => (),
                Room::No => return Err(Error::Busy),
                Room::Later => {
                    kernel.retry(caller);
                    return Ok(None);
                }
            }
            if callee.state() != State::Accepting && deadline_ns == 0 {
                return Err(Error::Timeout);
            }
            Ok(kernel.call_rendezvous(caller, callee, capability.badge, deadline_ns))
        }
    }
}

#[inline(always)]
pub(super) fn reply_wait(kernel: &mut Kernel, request: Request) -> SwitchTo {
    kernel.reply(request.caller);
    let deadline_ns = request.words()[3];
    if !kernel.accept_next(request.caller) {
        if deadline_ns == 0 {
            kernel.scheduler.reschedule();
            return Err(Error::Timeout);
        }
        // It idles, as in Wait: mailbox callers that donated time to it go on.
        // The answer is given already: the call made again goes on here, or with a new caller.
        if request.caller.first_donor().is_some() && !kernel.release_donors(request.caller) {
            kernel.retry(request.caller);
            return Ok(None);
        }
        request.caller.set_state(State::Accepting);
        kernel.scheduler.set_timeout(request.caller, deadline_ns);
    }
    Ok(kernel.direct_switch(None))
}

/// Nobody is behind a context that has ended.
fn living(context: Ptr<Context>) -> Option<Ptr<Context>> {
    (context.state() != State::Dead).then_some(context)
}

pub(super) fn portal_set(_: &Kernel, _: Request, call: PortalSet) -> Answer {
    call.portal.set_callee(call.context.and_then(living));
    NOTHING
}
