//! Ports: what the executor polls and arms.
//!
//! ```text
//!             something was sent, or a peer on another core rang: disarm
//!      ┌───────────────────────────────────────────────────────┐
//!      │                                                       ▼
//!    cold: the peer rings                         hot: polled each turn, no ringing
//!      ▲                                                       │
//!      └───────────────────────────────────────────────────────┘
//!             before sleep: arm, look again, and nothing there
//! ```
//!
//! A peer on this core does not run while we do, or has taken the core from us: that it need not
//! ring spares nothing. So a cold port whose peer on this core rang is *due*: it is armed again at
//! once, then polled, and stays cold if that took everything.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};

use crate::{task, with};

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
    /// Takes what has arrived.
    fn poll(&self);
    /// Is there anything to take? Reads memory only, and does not call the executor.
    fn ready(&self) -> bool;
    /// Tells the peer to ring from now on; true if a [`nudge`](Port::nudge) is to follow. Writes
    /// memory only, and does not call the executor.
    fn arm(&self) -> bool;
    /// Has the peer, which rang, ring again from now on, and then takes what has arrived. True if
    /// something is left, so that the port becomes hot.
    fn serve(&self) -> bool {
        if self.arm() {
            self.nudge();
        }
        // The peer either sees the announcement or we see what it sent.
        fence(Ordering::SeqCst);
        self.poll();
        self.ready()
    }
    /// Sets the bits of a peer that has not taken everything though it is awake, as it says.
    fn nudge(&self);
    /// Tells the peer that ringing is needless. Writes memory only, and does not call the executor.
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
    rank: Rank,
    remote: bool,
    hot: bool,
    due: bool,
    dirty: bool,
}

pub(crate) struct Ports {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Polled each turn; by rank.
    hot: [Vec<u32>; 2],
    /// Their peers rang; by rank.
    due: [Vec<u32>; 2],
    /// How many of the hot ones have their peer on another core.
    hot_remote: usize,
    /// Something was sent since the last flush.
    dirty: Vec<u32>,
    /// The ports with each badge bit.
    by_bit: [Vec<u32>; u64::BITS as usize],
    /// All badge bits of registered ports (bits of ports that went stay; they are only kept from
    /// `notified`).
    badges: u64,
}

/// Makes a port hot, and tells its peer so.
#[inline]
fn heat(entries: &mut [Option<Entry>], hot: &mut [Vec<u32>; 2], hot_remote: &mut usize, index: u32) {
    if let Some(Some(entry)) = entries.get_mut(index as usize)
        && !core::mem::replace(&mut entry.hot, true)
    {
        *hot_remote += usize::from(entry.remote);
        hot[entry.rank as usize].push(index);
        entry.port.disarm();
    }
}

/// Numbers of the bits that are set.
fn bits_of(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as usize)
    })
}

impl Ports {
    pub const fn new() -> Ports {
        let hot = [const { Vec::new() }; 2];
        let due = [const { Vec::new() }; 2];
        let by_bit = [const { Vec::new() }; u64::BITS as usize];
        Ports { entries: Vec::new(), free: Vec::new(), hot, due, hot_remote: 0, dirty: Vec::new(), by_bit, badges: 0 }
    }

    /// Is nothing hot or due?
    pub fn are_cold(&self) -> bool {
        self.hot.iter().all(Vec::is_empty) && self.due.iter().all(Vec::is_empty)
    }

    /// Was something sent of which the peer has not been told?
    pub fn any_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The port's peer is to be notified.
    fn soil(&mut self, port: PortId) {
        if let Some(Some(entry)) = self.entries.get_mut(port.0 as usize)
            && !core::mem::replace(&mut entry.dirty, true)
        {
            self.dirty.push(port.0);
        }
    }

    /// Makes ports hot, and tells their peers so.
    fn heat(&mut self, indices: impl IntoIterator<Item = u32>) {
        let Ports { entries, hot, hot_remote, .. } = self;
        indices.into_iter().for_each(|index| heat(entries, hot, hot_remote, index));
    }

    /// The peers of the ports with these badge bits rang.
    fn deliver(&mut self, bits: u64) {
        let Ports { entries, hot, due, hot_remote, by_bit, .. } = self;
        for index in bits_of(bits).flat_map(|bit| &by_bit[bit]) {
            match entries.get_mut(*index as usize) {
                Some(Some(entry)) if !entry.remote => {
                    if !entry.hot && !core::mem::replace(&mut entry.due, true) {
                        due[entry.rank as usize].push(*index);
                    }
                }
                _ => heat(entries, hot, hot_remote, *index),
            }
        }
    }

    /// One of the ports that are due, and are not polled anyway.
    fn take_due(&mut self, rank: Rank) -> Option<(u32, Rc<dyn Port>)> {
        loop {
            let index = self.due[rank as usize].pop()?;
            if let Some(Some(entry)) = self.entries.get_mut(index as usize) {
                entry.due = false;
                if !entry.hot {
                    return Some((index, entry.port.clone()));
                }
            }
        }
    }

    /// Arms all hot ports; gives those that are to be nudged.
    fn arm(&self) -> Vec<Rc<dyn Port>> {
        let mut nudged = Vec::new();
        for hot in &self.hot {
            for index in hot {
                if let Some(Some(entry)) = self.entries.get(*index as usize)
                    && entry.port.arm()
                {
                    nudged.push(entry.port.clone());
                }
            }
        }
        nudged
    }

    /// Makes hot ports without news cold, which were armed; true if all are cold now.
    fn cool(&mut self) -> bool {
        let Ports { entries, hot, hot_remote, .. } = self;
        for hot in hot.iter_mut() {
            let mut kept = 0;
            for at in 0..hot.len() {
                let index = hot[at];
                let Some(Some(entry)) = entries.get_mut(index as usize) else { continue };
                entry.hot = entry.port.ready();
                if entry.hot {
                    entry.port.disarm();
                    hot[kept] = index;
                    kept += 1;
                } else {
                    *hot_remote -= usize::from(entry.remote);
                }
            }
            hot.truncate(kept);
        }
        self.are_cold()
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
}

/// Adds a port; it is hot at first.
pub fn register(port: Rc<dyn Port>) -> PortId {
    with(|executor| {
        let ports = &mut executor.ports;
        let index = ports.free.pop().unwrap_or_else(|| {
            ports.entries.push(None);
            ports.entries.len() as u32 - 1
        });
        let (badge, rank, remote) = (port.badge(), port.rank(), port.remote());
        ports.badges |= badge;
        bits_of(badge).for_each(|bit| ports.by_bit[bit].push(index));
        ports.hot[rank as usize].push(index);
        ports.hot_remote += usize::from(remote);
        let entry = Entry { port, badge, rank, remote, hot: true, due: false, dirty: false };
        ports.entries[index as usize] = Some(entry);
        PortId(index)
    })
}

/// Removes a port.
pub fn unregister(port: PortId) {
    let entry = with(|executor| {
        let ports = &mut executor.ports;
        let entry = ports.entries.get_mut(port.0 as usize)?.take()?;
        ports.hot[entry.rank as usize].retain(|hot| *hot != port.0);
        ports.hot_remote -= usize::from(entry.hot && entry.remote);
        ports.dirty.retain(|dirty| *dirty != port.0);
        bits_of(entry.badge).for_each(|bit| ports.by_bit[bit].retain(|other| *other != port.0));
        ports.free.push(port.0);
        Some(entry)
    });
    drop(entry);
}

/// Something was sent through the port: the turn's end rings its peer, and an answer is
/// expected.
pub fn mark(port: PortId) {
    with(|executor| {
        executor.ports.soil(port);
        executor.ports.heat([port.0]);
    });
}

/// Something was sent through the port: the turn's end rings its peer, which rings in turn
/// when it sends something.
pub fn announce(port: PortId) {
    with(|executor| executor.ports.soil(port));
}

/// Polls the ports of a rank that are due or hot.
#[inline]
pub(crate) fn poll_hot(rank: Rank) {
    if with(|executor| !executor.ports.due[rank as usize].is_empty()) {
        serve_due(rank);
    }
    if with(|executor| !executor.ports.hot[rank as usize].is_empty()) {
        poll_each(rank);
    }
}

fn serve_due(rank: Rank) {
    let mut served = 0;
    while let Some((index, port)) = with(|executor| executor.ports.take_due(rank)) {
        if port.serve() {
            with(|executor| executor.ports.heat([index]));
        }
        served += 1;
    }
    with(|executor| executor.work += (served / crate::turn::PORTS_OF_A_TURN) as u32);
}

fn poll_each(rank: Rank) {
    let mut polled = 0;
    for at in 0.. {
        // A port may come or go while another is polled; then one may be polled late, never lost.
        let port = with(|executor| executor.ports.hot_at(rank as usize, at));
        let Some(port) = port else { break };
        port.poll();
        polled += 1;
    }
    with(|executor| executor.work += (polled / crate::turn::PORTS_OF_A_TURN) as u32);
}

/// Rings the peers of all ports that sent something.
pub(crate) fn flush() {
    while let Some(port) = with(|executor| executor.ports.take_dirty()) {
        port.flush();
    }
}

/// Does any hot port talk to another core?
pub(crate) fn any_remote_hot() -> bool {
    with(|executor| executor.ports.hot_remote > 0)
}

/// Can there be news at a hot port though no time was given away but by ringing? From another core,
/// or from a peer that was notified on this one. What clients of this core ask while they are not
/// let run is found by [`cool_all`].
pub(crate) fn may_be_answered() -> bool {
    with(|executor| executor.ports.hot_remote > 0 || !executor.ports.hot[Rank::Response as usize].is_empty())
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
    if with(|executor| executor.ports.are_cold()) {
        return true;
    }
    let nudged = with(|executor| executor.ports.arm());
    nudged.into_iter().for_each(|port| port.nudge());
    // The peers either see the announcement or we see what they sent.
    fence(Ordering::SeqCst);
    with(|executor| executor.ports.cool())
}

/// The peers of the ports with these badge bits rang; gives the bits that belong to no port.
pub(crate) fn deliver(bits: u64) -> u64 {
    with(|executor| {
        let badges = executor.ports.badges;
        executor.ports.deliver(bits & badges);
        bits & !badges
    })
}

/// Makes all ports hot.
pub(crate) fn heat_all() {
    with(|executor| executor.ports.heat(0..executor.ports.entries.len() as u32));
}

/// Turns until what was in a port's ring has been taken in and its task has run: this one takes in
/// responses before the caller goes on, requests after it, and their tasks run beside the caller's.
const TURNS_TO_TAKE_IN: usize = 3;

/// Takes in what lies in the rings of all ports, whether their peers have notified it yet or not,
/// and lets the tasks for it run once. A server calls this before it refuses a request because of
/// how things stand, and looks again: one peer's message may be handled before another's that was
/// sent earlier.
pub async fn take_in_all() {
    heat_all();
    for _ in 0..TURNS_TO_TAKE_IN {
        task::yield_now().await;
    }
}
