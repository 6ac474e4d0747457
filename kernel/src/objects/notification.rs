//! A notification: whom to tell, and with which bits. Every signal of the kernel (deaths, interrupts, stalls, wake-ups) is one.

use super::portal::PortalKind;
use super::share::Capability;
use super::{AnyObject, Context, Portal, Remote};
use crate::hardware;
use crate::state::Kernel;
use abi::{Error, Rights};

/// Whom to tell. Whoever keeps one counts as a reference of the object.
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

    /// Who is told.
    pub fn object(self) -> AnyObject {
        self.object
    }
}

impl Kernel {
    /// Tells.
    pub fn notify(&mut self, notification: Notification) {
        if let Ok(context) = notification.object.cast::<Context>() {
            self.signal(context, notification.badge);
        } else if let Ok(remote) = notification.object.cast::<Remote>() {
            self.counters.wakes_sent += 1;
            hardware::post(remote.core, remote.slot);
        } else if let Ok(portal) = notification.object.cast::<Portal>()
            && let Some(context) = portal.callee()
        {
            self.signal(context, notification.badge);
        }
    }

    /// Keeps `new` in a cell in place of what was there, counting references.
    pub fn keep(&mut self, cell: &core::cell::Cell<Option<Notification>>, new: Option<Notification>) {
        if let Some(new) = new {
            self.retain_any(new.object);
        }
        if let Some(old) = cell.replace(new) {
            self.release_any(old.object);
        }
    }
}
