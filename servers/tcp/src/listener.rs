//! Listeners: the library has none that queue, so a socket is made when a SYN comes, up to a limit.
//!
//! A connection is in its listener's queue from its SYN until it is accepted, so one limit bounds
//! half-open and waiting ones together. A SYN past the limit is dropped, as Linux does: the peer
//! tries again after a second. The log tells of it, once in [`TOLD_EVERY_NS`] per listener.

use alloc::collections::VecDeque;
use core::net::Ipv4Addr;

use crate::segment::Pair;

/// Connections that may wait at a listener that asks for fewer: a program that asks for a handful
/// (Busybox says 9) while 200 clients come at once would make most of them wait a second for their
/// second try, and lose those that come through passt, which has none. 256 of 129 KiB are 33 MiB.
pub const WAITING_MIN: usize = 256;
/// The same for one that asks for more: three quarters of all connections.
pub const WAITING_MAX: usize = 384;
/// Between two notices of one listener.
pub const TOLD_EVERY_NS: u64 = 10_000_000_000;

/// A listening port.
#[derive(Debug)]
pub struct Listener {
    /// Only this address, or any.
    pub address: Option<Ipv4Addr>,
    /// In order of their SYNs.
    pub waiting: VecDeque<u64>,
    /// Most that may wait: the backlog.
    pub most: usize,
    /// SYNs dropped.
    dropped: Tally,
}

/// Why a SYN was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropCause {
    /// Its listener's queue is full: the program accepts too slowly. Remedy: a larger `backlog`, up
    /// to [`WAITING_MAX`].
    Backlog,
    /// All connections are in use. Remedy: fewer clients at once.
    Connections,
}

/// For the log, of one kind not more often than [`TOLD_EVERY_NS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Connections were refused at a port.
    NotTaken {
        /// Whose.
        port: u16,
        /// Why the last was.
        cause: DropCause,
        /// How many since the last notice.
        dropped: u64,
        /// The limit that was reached.
        most: usize,
    },
    /// Peers acknowledged nothing for too long, and their connections were ended.
    GivenUp {
        /// Our port and the last peer.
        pair: Pair,
        /// How many since the last notice.
        count: u64,
    },
}

/// Counts what is told, and when it is time to.
#[derive(Debug, Default)]
pub struct Tally {
    count: u64,
    told_ns: Option<u64>,
}

impl Tally {
    /// One more; gives how many since the last notice if it is time for one.
    pub fn add(&mut self, now_ns: u64) -> Option<u64> {
        self.count += 1;
        let silent = self.told_ns.is_some_and(|told_ns| now_ns.saturating_sub(told_ns) < TOLD_EVERY_NS);
        (!silent).then(|| {
            self.told_ns = Some(now_ns);
            core::mem::take(&mut self.count)
        })
    }
}

impl Listener {
    /// A listener whose program asked for `backlog` waiting connections.
    pub fn new(address: Option<Ipv4Addr>, backlog: u32) -> Listener {
        let most = (backlog as usize).clamp(WAITING_MIN, WAITING_MAX);
        Listener { address, waiting: VecDeque::new(), most, dropped: Tally::default() }
    }

    /// Is it for this address?
    pub fn listens_at(&self, address: Ipv4Addr) -> bool {
        self.address.is_none_or(|own| own == address)
    }

    /// May another wait?
    pub fn has_room(&self) -> bool {
        self.waiting.len() < self.most
    }

    /// A SYN was dropped; gives how many were since the last notice if it is time for one.
    pub fn refuse(&mut self, now_ns: u64) -> Option<u64> {
        self.dropped.add(now_ns)
    }

    /// Removes a connection from the queue.
    pub fn remove(&mut self, connection: u64) {
        self.waiting.retain(|waiting| *waiting != connection);
    }
}
