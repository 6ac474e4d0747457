//! Notifications and wake slots.

use super::records::*;
use super::{Answer, NOTHING, Outcome, Request, one};
use crate::objects::context::State;
use crate::objects::notification::Notification;
use crate::objects::portal::PortalKind;
use crate::objects::{Context, Portal, Remote, Semaphore};
use crate::state::Kernel;
use abi::Error;

pub(super) fn notify(kernel: &mut Kernel, request: Request, call: Notify) -> Answer {
    let notification = Notification::decode(request.capability(call.target)?)?;
    notification.send(kernel);
    NOTHING
}

pub(super) fn notify_busy(kernel: &mut Kernel, request: Request, call: NotifyBusy) -> Answer {
    let notification = Notification::decode(request.capability(call.target)?)?;
    if !notification.is_awaited() {
        notification.send(kernel);
    }
    NOTHING
}

pub(super) fn wait(kernel: &mut Kernel, request: Request, Wait { deadline_ns }: Wait) -> Answer {
    let caller = request.caller;
    kernel.scheduler.cancel_watch(caller);
    let bits = caller.pending.replace(0);
    if bits != 0 || deadline_ns == 0 {
        return one(bits);
    }
    if !kernel.release_donors(caller) {
        return Ok(Outcome::Retry);
    }
    kernel.block(caller, State::Waiting);
    kernel.scheduler.set_timeout(caller, deadline_ns);
    Ok(Outcome::Blocked)
}

pub(super) fn wake_slot_alloc(kernel: &mut Kernel, request: Request, call: WakeSlotAlloc) -> Answer {
    let capability = request.capability(call.target)?;
    let badge = match (capability.object.cast::<Context>(), capability.object.cast::<Portal>()) {
        (Ok(context), _) if context.state() == State::Dead => return Err(Error::PeerDead),
        (Ok(_), _) => call.badge,
        (_, Ok(portal)) if portal.kind == PortalKind::Mailbox => capability.badge,
        _ if capability.object.cast::<Semaphore>().is_ok() => 0,
        _ => return Err(Error::WrongType),
    };
    one(kernel.wake_slots.allocate(capability.object, badge)? as u64)
}

pub(super) fn wake_slot_import(kernel: &mut Kernel, request: Request, call: WakeSlotImport) -> Answer {
    let new = |header| Remote::new(header, call.core as usize, call.slot as usize);
    request.place_new(kernel, |kernel| kernel.create(call.ram, new))
}

pub(super) fn wake_slot_free(kernel: &mut Kernel, _: Request, call: WakeSlotFree) -> Answer {
    let slot = usize::try_from(call.slot).map_err(|_| Error::BadArgument)?;
    kernel.wake_slots.free(slot)?;
    NOTHING
}
