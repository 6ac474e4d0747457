//! Portals.

use super::{Answer, NOTHING, Outcome, Request, one};
use crate::objects::context::State;
use crate::objects::portal::PortalKind;
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

pub(super) fn call(kernel: &mut Kernel, request: &Request) -> Answer {
    let (portal, capability) = request.find::<Portal>(0, Rights::CALL)?;
    let [_, first, second, third, fourth, deadline_ns] = request.words();
    let caller = request.caller;
    let callee = portal.callee().ok_or(Error::PeerDead)?;
    kernel.counters.portal_calls += 1;
    match portal.kind {
        PortalKind::Mailbox => {
            // The result comes first: whoever ends the loan does not set it again with anything else.
            caller.set_result(Ok([0; 3]));
            kernel.call_mailbox(caller, callee, capability.badge);
        }
        PortalKind::Rendezvous => {
            if !caller.may_lend_to(callee) {
                return Err(Error::Busy);
            }
            if deadline_ns == 0 && callee.state() != State::Accepting {
                return Err(Error::Timeout);
            }
            kernel.call_rendezvous(caller, callee, capability.badge, [first, second, third, fourth]);
            if deadline_ns != 0 {
                kernel.scheduler.set_timeout(caller, deadline_ns);
            }
        }
    }
    Ok(Outcome::Left)
}

pub(super) fn reply_wait(kernel: &mut Kernel, request: &Request) -> Answer {
    let [first, second, third, deadline_ns, ..] = request.words();
    kernel.reply(request.caller, [first, second, third]);
    if kernel.accept_next(request.caller) {
        return Ok(Outcome::Left);
    }
    if deadline_ns == 0 {
        return Err(Error::Timeout);
    }
    // Idle as in Wait: whoever lent it time by a mailbox call goes on.
    kernel.release_lenders(request.caller);
    kernel.wait_in(request.caller, State::Accepting, deadline_ns);
    Ok(Outcome::Left)
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
