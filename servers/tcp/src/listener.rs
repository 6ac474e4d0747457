//! Listeners: the library has none that queue, so a socket is made when a SYN comes, up to a limit.
//!
//! A connection is in its listener's queue from its SYN until it is accepted, so one limit bounds half-open and waiting ones together. A SYN past the limit is dropped, as Linux does: the
//! peer tries again after a second.

use alloc::collections::VecDeque;
use core::net::Ipv4Addr;

/// Connections that wait at one listener, whatever smaller number it asked for: a program that asks for a handful (Busybox says 9) while 200 clients come at once would
/// make most of them wait a second for their second try. 128 of 96 KiB are 12 MiB.
pub const WAITING_MAX: usize = 128;

/// A listening port.
#[derive(Debug, Default)]
pub struct Listener {
    /// Only this address, or any.
    pub address: Option<Ipv4Addr>,
    /// In order of their SYNs.
    pub waiting: VecDeque<u64>,
}

impl Listener {
    /// Takes a connection for this address?
    pub fn takes(&self, address: Ipv4Addr) -> bool {
        self.address.is_none_or(|own| own == address) && self.waiting.len() < WAITING_MAX
    }

    /// A connection is no longer here.
    pub fn forget(&mut self, connection: u64) {
        self.waiting.retain(|waiting| *waiting != connection);
    }
}
