//! Doorbells: how the peer learns that there is something, if it sleeps.

use abi::Handle;

/// How to ring the peer. A refused ring means that the peer ended; the monitor then says so.
#[derive(Clone, Copy, Debug)]
pub enum Doorbell {
    /// Another core, or a server answering on the same core.
    Notify(Handle),
    /// A client calling on the same core: donates its time until the server idles.
    Portal(Handle),
    /// The same component: these badge bits.
    Loopback(u64),
}

impl Doorbell {
    /// Sets the peer's bits without donating time to it.
    pub(crate) fn nudge(self) {
        match self {
            Doorbell::Notify(handle) | Doorbell::Portal(handle) => drop(sys::notify(handle)),
            Doorbell::Loopback(bits) => executor::post(bits),
        }
    }

    pub(crate) fn ring(self) {
        match self {
            Doorbell::Notify(handle) => drop(sys::notify(handle)),
            Doorbell::Portal(handle) => drop(executor::away(|| sys::portal_ring(handle))),
            Doorbell::Loopback(bits) => executor::post(bits),
        }
    }
}
