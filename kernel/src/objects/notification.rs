//! A notification: whom to tell, and with which bits. Every signal of the kernel (deaths,
//! interrupts, stalls, wake-ups) is one.

use super::context::State;
use super::portal::PortalKind;
use super::share::Capability;
use super::{AnyObject, Context, Portal, Ptr, Remote, Slot};
use crate::hardware;
use crate::state::Kernel;
use abi::{Error, Rights};

/// Whom to tell. To be kept it stays a capability, in a slot: see `Kernel::keep`.
#[derive(Clone, Copy)]
pub struct Notification {
    object: AnyObject,
    badge: u64,
}

impl Notification {
    /// From a capability for a context, a remote context or a mailbox portal with NOTIFY.
    pub fn decode(capability: Capability) -> Result<Notification, Error> {
        let object = capability.object;
        let is_mailbox = object.cast::<Portal>().is_ok_and(|portal| portal.kind == PortalKind::Mailbox);
        if object.cast::<Context>().is_err() && object.cast::<Remote>().is_err() && !is_mailbox {
            return Err(Error::WrongType);
        }
        if !capability.rights.contains(Rights::NOTIFY) {
            return Err(Error::NoRights);
        }
        Ok(Notification { object, badge: capability.badge })
    }

    /// What `decode` accepted before it was kept in a slot.
    pub fn kept(slot: &Slot) -> Option<Notification> {
        slot.get().map(|Capability { object, badge, .. }| Notification { object, badge })
    }

    /// Does its context wait for notifications? Nobody knows of one on another core.
    pub fn is_awaited(self) -> bool {
        let behind = |portal: Ptr<Portal>| portal.callee();
        let context = self.object.cast::<Portal>().map_or_else(|_| self.object.cast::<Context>().ok(), behind);
        context.is_some_and(|context| context.state() == State::Waiting)
    }

    /// Signals its context, or the core that has it.
    pub fn send(self, kernel: &mut Kernel) {
        if let Ok(context) = self.object.cast::<Context>() {
            kernel.signal(context, self.badge);
        } else if let Ok(remote) = self.object.cast::<Remote>() {
            kernel.counters.wakes_sent += 1;
            hardware::post(remote.core, remote.slot);
        } else if let Ok(portal) = self.object.cast::<Portal>()
            && let Some(context) = portal.callee()
        {
            kernel.signal(context, self.badge);
        }
    }
}
