//! Doorbells: how the peer learns that there is something, if it sleeps.

use abi::Handle;

/// How to ring the peer. A refused ring means that the peer ended; the monitor then says so.
#[derive(Clone, Copy, Debug)]
pub enum Bell {
    /// Another core, or a server answering on the same core.
    Notify(Handle),
    /// A client calling on the same core: lends its time until the server idles.
    Portal(Handle),
    /// The same component: these badge bits.
    Loopback(u64),
}

impl Bell {
    /// Sets the peer's bits without lending it time.
    pub(crate) fn nudge(self) {
        match self {
            Bell::Notify(handle) | Bell::Portal(handle) => drop(sys::notify(handle)),
            Bell::Loopback(bits) => executor::post(bits),
        }
    }

    pub(crate) fn ring(self) {
        match self {
            Bell::Notify(handle) => drop(sys::notify(handle)),
            Bell::Portal(handle) => drop(sys::portal_ring(handle)),
            Bell::Loopback(bits) => executor::post(bits),
        }
    }
}
