//! Ports: what the executor polls and arms.

use alloc::rc::Rc;
use alloc::vec::Vec;

use crate::with;

/// Which ports are polled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Brings answers: served before new work, so that work in hand finishes.
    Response = 0,
    /// Brings new work.
    Request = 1,
}

/// One side of a channel as the executor sees it.
pub trait Port {
    /// Takes what has arrived; true if there was anything.
    fn poll(&self) -> bool;
    /// Is there anything to take? Reads memory only.
    fn ready(&self) -> bool;
    /// Tells the peer to ring from now on.
    fn arm(&self);
    /// Tells the peer that ringing is needless.
    fn disarm(&self);
    /// Rings the peer if it wants that.
    fn flush(&self);
    /// Bits with which the peer's ringing arrives.
    fn badge(&self) -> u64;
    /// Order of polling.
    fn rank(&self) -> Rank;
    /// Is the peer on another core, so that a short wait by polling may pay?
    fn remote(&self) -> bool;
}

/// Names a registered port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortId(u32);

struct Entry {
    port: Rc<dyn Port>,
    badge: u64,
    remote: bool,
    hot: bool,
    dirty: bool,
}

pub(crate) struct Ports {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Polled each turn; by rank.
    hot: [Vec<u32>; 2],
    /// Something was sent since the last flush.
    dirty: Vec<u32>,
    /// All badge bits of registered ports (bits of ports that went stay; they are only kept from
    /// `notified`).
    badges: u64,
}

impl Ports {
    pub const fn new() -> Ports {
        let hot = [const { Vec::new() }; 2];
        Ports { entries: Vec::new(), free: Vec::new(), hot, dirty: Vec::new(), badges: 0 }
    }

    /// Is nothing hot, and nothing sent that is not rung yet?
    pub fn are_cold(&self) -> bool {
        self.dirty.is_empty() && self.hot.iter().all(Vec::is_empty)
    }

    fn heat(&mut self, index: u32) -> Option<Rc<dyn Port>> {
        let entry = self.entries.get_mut(index as usize)?.as_mut()?;
        if entry.hot {
            return None;
        }
        entry.hot = true;
        self.hot[entry.port.rank() as usize].push(index);
        Some(entry.port.clone())
    }

    fn get(&self, index: u32) -> Option<Rc<dyn Port>> {
        self.entries.get(index as usize)?.as_ref().map(|entry| entry.port.clone())
    }

    fn take_dirty(&mut self) -> Option<Rc<dyn Port>> {
        loop {
            let index = self.dirty.pop()?;
            if let Some(entry) = self.entries[index as usize].as_mut() {
                entry.dirty = false;
                return Some(entry.port.clone());
            }
        }
    }

    fn hot_at(&self, rank: usize, at: usize) -> Option<Rc<dyn Port>> {
        self.get(*self.hot[rank].get(at)?)
    }

    fn cool_at(&mut self, rank: usize, at: usize) {
        let index = self.hot[rank].remove(at);
        if let Some(Some(entry)) = self.entries.get_mut(index as usize) {
            entry.hot = false;
        }
    }

    /// The next port from `from` on that has one of the badge bits and was cold.
    fn heat_next(&mut self, bits: u64, from: &mut u32) -> Option<Rc<dyn Port>> {
        while let Some(entry) = self.entries.get(*from as usize) {
            let index = *from;
            *from += 1;
            if entry.as_ref().is_some_and(|entry| entry.badge & bits != 0 && !entry.hot) {
                return self.heat(index);
            }
        }
        None
    }
}

/// Adds a port; it is hot at first.
pub fn register(port: Rc<dyn Port>) -> PortId {
    with(|executor| {
        let ports = &mut executor.ports;
        let index = ports.free.pop().unwrap_or_else(|| {
            ports.entries.push(None);
            ports.entries.len() as u32 - 1
        });
        let (badge, remote) = (port.badge(), port.remote());
        ports.badges |= badge;
        ports.hot[port.rank() as usize].push(index);
        ports.entries[index as usize] = Some(Entry { port, badge, remote, hot: true, dirty: false });
        PortId(index)
    })
}

/// Removes a port.
pub fn unregister(port: PortId) {
    let entry = with(|executor| {
        let ports = &mut executor.ports;
        let entry = ports.entries.get_mut(port.0 as usize)?.take()?;
        ports.hot[entry.port.rank() as usize].retain(|hot| *hot != port.0);
        ports.dirty.retain(|dirty| *dirty != port.0);
        ports.free.push(port.0);
        Some(entry)
    });
    drop(entry);
}

/// Something was sent through the port: its peer is rung at the end of the turn, and an answer is
/// expected.
pub fn mark(port: PortId) {
    let heated = with(|executor| {
        let ports = &mut executor.ports;
        let entry = ports.entries.get_mut(port.0 as usize)?.as_mut()?;
        if !core::mem::replace(&mut entry.dirty, true) {
            ports.dirty.push(port.0);
        }
        if entry.hot { None } else { ports.heat(port.0) }
    });
    if let Some(port) = heated {
        port.disarm();
    }
}

/// Polls hot ports, answers first; true if anything came.
pub(crate) fn poll_hot() -> bool {
    let (mut any, mut polled) = (false, 0);
    for rank in 0..2 {
        for at in 0.. {
            // A port may come or go while another is polled; then one may be polled late, never
            // lost.
            let port = with(|executor| executor.ports.hot_at(rank, at));
            let Some(port) = port else { break };
            any |= port.poll();
            polled += 1;
        }
    }
    with(|executor| executor.work += (polled / crate::turn::PORTS_OF_A_TURN) as u32);
    any
}

/// Rings the peers of all ports that sent something.
pub(crate) fn flush() {
    while let Some(port) = with(|executor| executor.ports.take_dirty()) {
        port.flush();
    }
}

/// Does any hot port talk to another core?
pub(crate) fn any_remote_hot() -> bool {
    with(|executor| {
        let ports = &executor.ports;
        ports
            .hot
            .iter()
            .flatten()
            .any(|index| ports.entries[*index as usize].as_ref().is_some_and(|entry| entry.remote))
    })
}

/// Is there anything at a hot port? Reads memory only.
pub(crate) fn any_hot_ready() -> bool {
    with(|executor| {
        let ports = &executor.ports;
        ports
            .hot
            .iter()
            .flatten()
            .any(|index| ports.entries[*index as usize].as_ref().is_some_and(|entry| entry.port.ready()))
    })
}

/// Arms all hot ports and makes those without news cold; true if all are cold now.
pub(crate) fn cool_all() -> bool {
    for rank in 0..2 {
        for at in 0.. {
            let Some(port) = with(|executor| executor.ports.hot_at(rank, at)) else { break };
            port.arm();
        }
    }
    // The peers either see the announcement or we see what they sent.
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    let mut all_cold = true;
    for rank in 0..2 {
        for at in (0..with(|executor| executor.ports.hot[rank].len())).rev() {
            let Some(port) = with(|executor| executor.ports.hot_at(rank, at)) else { continue };
            if port.ready() {
                port.disarm();
                all_cold = false;
            } else {
                with(|executor| executor.ports.cool_at(rank, at));
            }
        }
    }
    all_cold
}

/// Makes the ports with these badge bits hot; gives the bits that belong to no port.
pub(crate) fn deliver(bits: u64) -> u64 {
    let mut from = 0;
    while let Some(port) = with(|executor| executor.ports.heat_next(bits, &mut from)) {
        port.disarm();
    }
    bits & !with(|executor| executor.ports.badges)
}
