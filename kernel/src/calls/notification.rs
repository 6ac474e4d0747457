//! Notifications and wake slots.

use super::{Answer, NOTHING, Outcome, Request, one};
use crate::objects::context::State;
use crate::objects::notification::Notification;
use crate::objects::portal::PortalKind;
use crate::objects::{Context, Portal, Remote, Semaphore};
use crate::state::Kernel;
use abi::layout::WAKE_SLOTS;
use abi::{Error, Rights};

pub(super) fn notify(kernel: &mut Kernel, request: &Request) -> Answer {
    let notification = Notification::decode(request.capability(0)?)?;
    kernel.notify(notification);
    NOTHING
}

pub(super) fn wait(kernel: &mut Kernel, request: &Request) -> Answer {
    let caller = request.caller;
    let deadline_ns = request.words()[0];
    kernel.scheduler.cancel_watch(caller);
    let bits = caller.pending.replace(0);
    if bits != 0 || deadline_ns == 0 {
        return one(bits);
    }
    if !kernel.release_donors(caller) {
        return Ok(Outcome::Again);
    }
    kernel.wait_in(caller, State::Waiting, deadline_ns);
    Ok(Outcome::Left)
}

pub(super) fn slot_alloc(kernel: &mut Kernel, request: &Request) -> Answer {
    request.check_core(kernel, 0, Rights::CONTROL)?;
    let capability = request.capability(1)?;
    let badge = match (capability.object.cast::<Context>(), capability.object.cast::<Portal>()) {
        (Ok(context), _) if context.state() == State::Dead => return Err(Error::PeerDead),
        (Ok(_), _) => request.words()[2],
        (_, Ok(portal)) if portal.kind == PortalKind::Mailbox => capability.badge,
        _ if capability.object.cast::<Semaphore>().is_ok() => 0,
        _ => return Err(Error::WrongType),
    };
    one(kernel.wake_slots.allocate(capability.object, badge)? as u64)
}

pub(super) fn slot_import(kernel: &mut Kernel, request: &Request) -> Answer {
    request.check_core(kernel, 0, Rights::CONTROL)?;
    let ram = request.ram(1)?;
    let [_, _, target, wake_slot, ..] = request.words();
    let cores = kernel.info.map_or(1, |info| info.cores.len()) as u64;
    if target >= cores || !(1..WAKE_SLOTS).contains(&wake_slot) {
        return Err(Error::BadArgument);
    }
    let slot = request.slot(kernel)?;
    let remote = kernel.create(ram, |header| Remote::new(header, target as usize, wake_slot as usize))?;
    one(request.place(slot, remote.any(), Rights::ALL))
}

pub(super) fn slot_free(kernel: &mut Kernel, request: &Request) -> Answer {
    request.check_core(kernel, 0, Rights::CONTROL)?;
    let slot = usize::try_from(request.words()[1]).map_err(|_| Error::BadArgument)?;
    kernel.wake_slots.free(slot)?;
    NOTHING
}
