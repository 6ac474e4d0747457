//! Portals.

use super::{Answer, NOTHING, Passed, Request, one};
use crate::objects::context::State;
use crate::objects::portal::{PortalKind, Room};
use crate::objects::{Context, Portal, Ptr};
use crate::state::Kernel;
use abi::layout::portal as kinds;
use abi::{Error, Handle, Rights};

pub(super) fn alloc(kernel: &mut Kernel, request: &Request) -> Answer {
    let ram = request.ram(0)?;
    let callee = callee(request)?;
    let [_, _, badge, kind, ..] = request.words();
    let kind = match kind {
        kinds::RENDEZVOUS if request.words()[1] != Handle::NONE.0 => PortalKind::Rendezvous,
        kinds::MAILBOX => PortalKind::Mailbox,
        _ => return Err(Error::BadArgument),
    };
    let slot = request.slot(kernel)?;
    let portal = kernel.create(ram, |header| Portal::new(header, kind))?;
    portal.set_callee(callee);
    let capability = crate::objects::share::Capability { object: portal.any(), badge, rights: Rights::ALL };
    one(request.caller.domain().insert(slot, capability).0)
}

#[inline(always)]
pub(super) fn call(kernel: &mut Kernel, request: &Request) -> Passed {
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
                    kernel.make_again(caller);
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
pub(super) fn reply_wait(kernel: &mut Kernel, request: &Request) -> Passed {
    kernel.reply(request.caller);
    let deadline_ns = request.words()[3];
    if !kernel.accept_next(request.caller) {
        if deadline_ns == 0 {
            kernel.scheduler.look_again();
            return Err(Error::Timeout);
        }
        // Idle as in Wait: whoever donated it time by a mailbox call goes on.
        // The answer is given already: the call made again goes on here, or with a new caller.
        if request.caller.first_donor().is_some() && !kernel.release_donors(request.caller) {
            kernel.make_again(request.caller);
            return Ok(None);
        }
        request.caller.set_state(State::Accepting);
        kernel.scheduler.set_timeout(request.caller, deadline_ns);
    }
    Ok(kernel.direct_switch(None))
}

fn living(context: Ptr<Context>) -> Option<Ptr<Context>> {
    (context.state() != State::Dead).then_some(context)
}

/// A context, or none: nobody is behind one that has ended.
fn callee(request: &Request) -> Result<Option<Ptr<Context>>, Error> {
    if request.words()[1] == Handle::NONE.0 { Ok(None) } else { request.object(1, Rights::CONTROL).map(living) }
}

pub(super) fn set(request: &Request) -> Answer {
    let portal = request.object::<Portal>(0, Rights::CONTROL)?;
    let callee = callee(request)?;
    if portal.kind != PortalKind::Mailbox {
        return Err(Error::BadArgument);
    }
    portal.set_callee(callee);
    NOTHING
}
