//! Channels of this core: memory, portals, wake slots, and who holds which end.
//!
//! Each end has a portal made by its own core's monitor. The portal outlives the context it leads
//! to, so a restarted component is reached by the handles its peers already have. Another core
//! reaches the portal through a wake slot. The server's core owns the memory.

use alloc::string::String;
use alloc::vec::Vec;

use abi::layout::{REGIONS, protection};
use abi::start::{StartRecord, channel as flags, kind};
use abi::{Error, Handle, PAGE_BYTES, Rights};
use channel::{Layout, Memory, Side};
use contracts::endpoint::Wired;
use contracts::monitor::{ChannelId, ChannelPlan, End, MonitorError, Place};
use contracts::spawn::DomainId;

use crate::domains::{Domain, WITH_ITS_CORE};
use crate::machine::Machine;
use crate::start_page::record;
use crate::{Registry, refused};

/// The component name under which a monitor itself serves.
const MONITOR: &str = "monitor";
/// Badge bits for components' channels: 0 is their endpoint's, those from 56 on are their own
/// (`runtime::OWN_BITS`), and between lie those of the channels that the system description names,
/// and those of channels made at run time. A channel that shares no bit costs nothing while another
/// is used.
const DESCRIBED_BADGES: core::ops::Range<u64> = 1..13;
/// A prime number of them, so that every so many of consecutive numbers have all of them.
const RUN_TIME_BADGES: core::ops::Range<u64> = 13..56;
/// The monitor's own badge bits for clients of the `monitor` contract.
const MONITOR_BADGES: core::ops::Range<u64> = 32..36;
/// Bytes of one channel of the largest layout allowed: what a peer's numbers may make us reserve.
const CHANNEL_BYTES_MAX: u64 = 16 << 20;

/// One side, as far as this core knows it.
#[derive(Default)]
struct Half {
    /// It is on this core: its portal, and the badge it gets.
    portal: Option<(Handle, u64)>,
    /// Number by which another core rings that portal.
    slot: Option<u64>,
    /// It is on another core: what rings it there.
    remote: Option<Handle>,
    /// Who holds it now.
    domain: Option<DomainId>,
}

pub(crate) struct Channel {
    plan: ChannelPlan,
    segment: Handle,
    physical: u64,
    memory: Memory,
    /// As set here, not as read from memory that the client can write too.
    generation: u32,
    halves: [Half; 2],
    /// It was brought to a server that ran already.
    announced: bool,
    /// The client may call a worker of the server's.
    calls: Option<Calls>,
}

/// What goes with a channel whose client may call: it outlives both ends, as the channel does.
#[derive(Clone, Copy)]
struct Calls {
    /// Entrance to a worker, which the server leads to it.
    portal: Handle,
    /// The server raises it, the client waits at it.
    semaphore: Handle,
    /// The session page.
    page: Handle,
}

/// What `open` made.
pub struct Opened {
    /// For the other core.
    pub place: Place,
    /// The monitor itself has an end, and this is new: which, and what to reach it by.
    pub own: Option<(End, Wire)>,
}

/// An end for the monitor's own use.
pub struct Wire {
    /// The region.
    pub memory: Memory,
    /// What rings the peer.
    pub doorbell: Handle,
    /// Our bits.
    pub badge: u64,
    /// The peer's name.
    pub peer: String,
    /// It is on another core.
    pub remote: bool,
}

fn side(end: End) -> Side {
    match end {
        End::Client => Side::Client,
        End::Server => Side::Server,
    }
}

impl Channel {
    fn layout(plan: &ChannelPlan) -> Layout {
        Layout { ring_slots: plan.ring_slots, bulk_bytes: plan.bulk_bytes }
    }

    fn is_remote(&self) -> bool {
        self.plan.client_core != self.plan.server_core
    }

    fn owner(&self, side: Side) -> &str {
        match side {
            Side::Client => &self.plan.client,
            Side::Server => &self.plan.server,
        }
    }

    /// What rings that side.
    fn doorbell(&self, side: Side) -> Option<Handle> {
        let half = &self.halves[side as usize];
        half.portal.map(|(portal, _)| portal).or(half.remote)
    }

    fn place(&self) -> Place {
        Place { physical: self.physical, slot: self.halves.iter().find_map(|half| half.slot).unwrap_or(0) }
    }
}

impl<M: Machine> Registry<M> {
    /// See `contracts::monitor::Monitor::open`.
    pub fn open(&mut self, plan: ChannelPlan, other: Option<Place>) -> Result<Opened, MonitorError> {
        let core = self.facts.core;
        let is_local = [plan.client_core == core, plan.server_core == core];
        if is_local == [false; 2] || Channel::layout(&plan).bytes() > CHANNEL_BYTES_MAX {
            return Err(MonitorError::NotFound);
        }
        if let Some(channel) = self.channels.get_mut(&plan.id) {
            if channel.plan != plan {
                return Err(MonitorError::Busy);
            }
            let place = channel.place();
            if let Some(other) = other {
                self.reach(plan.id, other)?;
            }
            return Ok(Opened { place, own: None });
        }
        let mut channel = self.memory_of(&plan, is_local[1], other)?;
        if let Err(error) = self.equip(&mut channel, is_local) {
            self.destroy_channel(channel);
            return Err(refused(&self.machine, error));
        }
        let (id, place) = (plan.id, channel.place());
        self.channels.insert(id, channel);
        if let Some(other) = other {
            self.reach(id, other)?;
        }
        let ends = [(End::Client, &plan.client), (End::Server, &plan.server)];
        let own = ends.into_iter().zip(is_local).find(|((_, owner), is_local)| *is_local && *owner == MONITOR);
        let wire = |((end, _), _)| {
            self.own_wire(id, end).map(|wire| (end, wire)).map_err(|error| refused(&self.machine, error))
        };
        Ok(Opened { place, own: own.map(wire).transpose()? })
    }

    fn memory_of(&mut self, plan: &ChannelPlan, owns: bool, other: Option<Place>) -> Result<Channel, MonitorError> {
        let layout = Channel::layout(plan);
        let pages = layout.bytes() / PAGE_BYTES;
        let (segment, physical) = if owns {
            self.machine
                .segment(pages, plan.client_core != plan.server_core)
                .map_err(|error| refused(&self.machine, error))?
        } else {
            let physical = other.ok_or(MonitorError::NotFound)?.physical;
            (self.import(physical, pages, &plan.contract).map_err(|error| refused(&self.machine, error))?, physical)
        };
        match self.machine.channel(segment, layout, owns) {
            Ok(memory) => {
                let generation = memory.generation();
                let (halves, plan) = (Default::default(), plan.clone());
                Ok(Channel { plan, segment, physical, memory, generation, halves, announced: false, calls: None })
            }
            Err(error) => {
                self.machine.drop(segment);
                Err(refused(&self.machine, error))
            }
        }
    }

    /// Portals and wake slots of the ends on this core.
    fn equip(&mut self, channel: &mut Channel, is_local: [bool; 2]) -> Result<(), Error> {
        for side in [Side::Client, Side::Server] {
            if !is_local[side as usize] {
                continue;
            }
            let owner = channel.owner(side);
            let badge = self.badge(channel.plan.id, owner);
            let portal = if owner == MONITOR { self.machine.own_portal(badge)? } else { self.machine.portal(badge)? };
            let portal = (portal, badge);
            channel.halves[side as usize].portal = Some(portal);
            if channel.is_remote() {
                channel.halves[side as usize].slot = Some(self.machine.slot(portal.0)?);
            }
        }
        if channel.plan.worker.is_some() && is_local == [true; 2] {
            let none = Calls { portal: Handle::NONE, semaphore: Handle::NONE, page: Handle::NONE };
            let calls = channel.calls.insert(none);
            calls.portal = self.machine.entrance(channel.plan.id)?;
            calls.semaphore = self.machine.semaphore()?;
            (calls.page, _) = self.machine.segment(1, false)?;
        }
        Ok(())
    }

    /// Which of its badges the owner of an end gets for a channel.
    fn badge(&self, id: ChannelId, owner: &str) -> u64 {
        let (of, turn) = if id >= wiring::RUN_TIME_CHANNELS {
            // These come in sets of consecutive numbers, and there are too many to be counted.
            (RUN_TIME_BADGES, id)
        } else {
            (DESCRIBED_BADGES, self.held(owner))
        };
        let of = if owner == MONITOR { MONITOR_BADGES } else { of };
        1 << (of.start + turn % (of.end - of.start))
    }

    /// How many of the channels here have an end of that owner's.
    fn held(&self, owner: &str) -> u64 {
        let held = |channel: &&Channel| {
            let owners = [&channel.plan.client, &channel.plan.server];
            channel.halves.iter().zip(owners).any(|(half, name)| half.portal.is_some() && name == owner)
        };
        self.channels.values().filter(held).count() as u64
    }

    /// Learns how to ring the end on the other core.
    fn reach(&mut self, id: ChannelId, other: Place) -> Result<(), MonitorError> {
        let Some(channel) = self.channels.get_mut(&id) else { return Err(MonitorError::NotFound) };
        let cores = [channel.plan.client_core, channel.plan.server_core];
        for (half, core) in channel.halves.iter_mut().zip(cores) {
            if core != self.facts.core && half.remote.is_none() {
                half.remote =
                    Some(self.machine.remote(core, other.slot).map_err(|error| refused(&self.machine, error))?);
            }
        }
        Ok(())
    }

    fn own_wire(&mut self, id: ChannelId, end: End) -> Result<Wire, Error> {
        let channel = self.channels.get(&id).ok_or(Error::NotFound)?;
        let (side, remote) = (side(end), channel.is_remote());
        let memory = self.machine.channel(channel.segment, Channel::layout(&channel.plan), false)?;
        let doorbell = channel.doorbell(side.other()).ok_or(Error::NotFound)?;
        let badge = channel.halves[side as usize].portal.map_or(0, |(_, badge)| badge);
        Ok(Wire { memory, doorbell, badge, peer: channel.owner(side.other()).into(), remote })
    }

    /// See `contracts::monitor::Monitor::close`.
    pub fn close(&mut self, id: ChannelId) {
        let Some(channel) = self.channels.remove(&id) else { return };
        for side in [Side::Client, Side::Server] {
            let half = &channel.halves[side as usize];
            if let (Some((portal, _)), true) = (half.portal, half.domain.is_some() || channel.owner(side) == MONITOR) {
                channel.memory.end();
                self.machine.ring(portal);
            }
        }
        self.domains.values_mut().for_each(|domain| domain.channels.retain(|(held, _)| *held != id));
        self.destroy_channel(channel);
    }

    /// Closes all channels with a core that was lost. A domain that used memory of that core ends
    /// with it: the core will use it for something else.
    pub fn discard_core(&mut self, lost: u32) {
        let borrows = |domain: &&Domain| {
            let mut channels = domain.channels.iter().filter_map(|(id, _)| self.channels.get(id));
            channels.any(|channel| channel.plan.server_core == lost)
        };
        let ended: Vec<DomainId> = self.domains.values().filter(borrows).map(|domain| domain.parts.id).collect();
        for domain in ended {
            let name = self.name_of(domain).unwrap_or_default();
            self.machine_log(&alloc::format!("{name} ends: it used memory of core {lost}"));
            // The kernel's refusal is in the log.
            let _ = self.kill(domain, WITH_ITS_CORE);
        }
        let with_it = |channel: &Channel| [channel.plan.client_core, channel.plan.server_core].contains(&lost);
        let ids: Vec<ChannelId> =
            self.channels.iter().filter(|(_, channel)| with_it(channel)).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.close(id));
    }

    fn destroy_channel(&mut self, channel: Channel) {
        for half in channel.halves {
            half.slot.into_iter().for_each(|slot| self.machine.free_slot(slot));
            half.portal.into_iter().for_each(|(portal, _)| self.machine.drop(portal));
            half.remote.into_iter().for_each(|remote| self.machine.drop(remote));
        }
        let calls = channel.calls.map(|Calls { portal, semaphore, page }| [portal, semaphore, page]);
        let made = calls.into_iter().flatten().filter(|handle| *handle != Handle::NONE);
        made.for_each(|handle| self.machine.drop(handle));
        drop(channel.memory);
        self.machine.drop(channel.segment);
    }

    /// Puts an end into a domain being made: maps the memory at `address`, gives the doorbell,
    /// points the portal.
    pub(crate) fn attach(
        &mut self,
        id: ChannelId,
        end: End,
        into: &crate::domains::Parts,
        address: u64,
        begin_again: bool,
    ) -> Result<(StartRecord, u64), Error> {
        let channel = self.channels.get_mut(&id).ok_or(Error::NotFound)?;
        let (side, is_remote, bytes) = (side(end), channel.is_remote(), Channel::layout(&channel.plan).bytes());
        let doorbell = channel.doorbell(side.other()).ok_or(Error::NotFound)?;
        let (portal, badge) = channel.halves[side as usize].portal.ok_or(Error::OtherCore)?;
        if begin_again {
            channel.memory.raise_generation();
        }
        channel.halves[side as usize].domain = Some(into.id);
        let mut made = record(kind::CHANNEL, &channel.plan.contract, channel.owner(side.other()));
        made.handle = self.machine.grant(into.domain, doorbell, doorbell_rights(end, is_remote))?.0;
        self.machine.map(
            into.range,
            address,
            channel.segment,
            0,
            bytes / PAGE_BYTES,
            protection::READ | protection::WRITE,
        )?;
        self.machine.lead(portal, into.context)?;
        (made.address, made.bytes, made.a) = (address, bytes, badge);
        made.b = if side == Side::Client { flags::CLIENT } else { 0 } | if is_remote { flags::REMOTE } else { 0 };
        Ok((made, address + bytes + PAGE_BYTES))
    }

    /// Puts what goes with the calls of a channel into a domain being made, if it has such: the
    /// page at `address`, which it moves behind it.
    pub(crate) fn attach_calls(
        &mut self,
        id: ChannelId,
        end: End,
        into: &crate::domains::Parts,
        address: &mut u64,
    ) -> Result<Option<StartRecord>, Error> {
        let channel = self.channels.get(&id).ok_or(Error::NotFound)?;
        let (Some(calls), Some(worker)) = (channel.calls, channel.plan.worker) else { return Ok(None) };
        let side = side(end);
        let mut made = record(kind::CALLS, &channel.plan.contract, channel.owner(side.other()));
        let (portal, semaphore, flag) = match side {
            Side::Client => (Rights::CALL, Rights::READ, flags::CLIENT),
            // It calls, too, to have a call of a dead client's ended.
            Side::Server => (Rights::CONTROL.union(Rights::CALL), Rights::WRITE, 0),
        };
        made.handle = self.machine.grant(into.domain, calls.portal, portal)?.0;
        made.a = self.machine.grant(into.domain, calls.semaphore, semaphore)?.0;
        made.b = id << 32 | u64::from(worker) << 8 | flag;
        self.machine.map(into.range, *address, calls.page, 0, 1, protection::READ | protection::WRITE)?;
        (made.address, made.bytes) = (*address, PAGE_BYTES);
        *address += 2 * PAGE_BYTES;
        Ok(Some(made))
    }

    /// The client of a set of channels died: the set begins again for another, and the servers drop
    /// what the dead one held.
    pub(crate) fn begin_again(&mut self, set: &[(ChannelId, End)]) {
        let generation = self.machine.random();
        for (id, end) in set {
            self.holder_ended(*id, *end);
            if let Some(channel) = self.channels.get_mut(id) {
                channel.generation = generation;
                channel.memory.begin_generation(generation);
            }
            self.ring_other(*id, *end);
        }
    }

    /// The generation of a channel of this core's Linux domains.
    pub(crate) fn generation(&self, id: ChannelId) -> u32 {
        self.channels.get(&id).map_or(0, |channel| channel.generation)
    }

    /// Rings the doorbell of a channel's other end.
    pub(crate) fn ring_other(&mut self, id: ChannelId, end: End) {
        if let Some(doorbell) = self.channels.get(&id).and_then(|channel| channel.doorbell(side(end).other())) {
            self.machine.ring(doorbell);
        }
    }

    /// The holder of an end is gone.
    pub(crate) fn holder_ended(&mut self, id: ChannelId, end: End) {
        let Some(half) = self.channels.get_mut(&id).map(|channel| &mut channel.halves[side(end) as usize]) else {
            return;
        };
        half.domain = None;
        if let Some((portal, _)) = half.portal {
            // A ring from now on is refused or ignored; the kernel destroys the dead context.
            let _ = self.machine.lead(portal, Handle::NONE);
        }
    }

    /// Puts the server's end into its server, which runs already, perhaps not as the first: gives
    /// what its endpoint is to be told, and its domain.
    pub fn announce(&mut self, id: ChannelId, set: u32) -> Result<(DomainId, Wired), MonitorError> {
        let channel = self.channels.get_mut(&id).ok_or(MonitorError::NotFound)?;
        let server = self.domains.values().find(|domain| domain.plan.name == channel.plan.server);
        let server = server.ok_or(MonitorError::NotFound)?.parts.id;
        let begins_again = core::mem::replace(&mut channel.announced, true);
        if begins_again {
            // Its predecessor had it: the client is told.
            channel.memory.raise_generation();
        }
        let wired = self.hand(id, End::Server, server)?;
        if begins_again {
            self.ring_other(id, End::Server);
        }
        Ok((server, Wired { peer_set: set, ..wired }))
    }

    /// Puts the client's end into a component that asked for it: gives what its endpoint is to be
    /// told.
    pub fn introduce(&mut self, id: ChannelId, client: DomainId, request: u64) -> Result<Wired, MonitorError> {
        self.hand(id, End::Client, client).map(|wired| Wired { request, ..wired })
    }

    /// Gives a domain that runs what it needs to use an end.
    fn hand(&mut self, id: ChannelId, end: End, to: DomainId) -> Result<Wired, MonitorError> {
        let channel = self.channels.get_mut(&id).ok_or(MonitorError::NotFound)?;
        let domain = self.domains.get_mut(&to).ok_or(MonitorError::NotFound)?;
        let (side, parts, remote) = (side(end), domain.parts, channel.is_remote());
        let (portal, badge) = channel.halves[side as usize].portal.ok_or(MonitorError::NotFound)?;
        let doorbell = channel.doorbell(side.other()).ok_or(MonitorError::NotFound)?;
        let segment = self
            .machine
            .grant(parts.domain, channel.segment, Rights::READ.union(Rights::WRITE))
            .map_err(|error| refused(&self.machine, error))?;
        let doorbell = self
            .machine
            .grant(parts.domain, doorbell, doorbell_rights(end, remote))
            .map_err(|error| refused(&self.machine, error))?;
        self.machine.lead(portal, parts.context).map_err(|error| refused(&self.machine, error))?;
        channel.halves[side as usize].domain = Some(parts.id);
        domain.channels.push((id, end));
        Ok(Wired {
            contract: channel.plan.contract.clone(),
            peer: channel.owner(side.other()).into(),
            peer_set: 0,
            segment: segment.0,
            doorbell: doorbell.0,
            bytes: Channel::layout(&channel.plan).bytes(),
            badge,
            client: end == End::Client,
            request: 0,
            remote,
        })
    }
}

/// A client on its server's core donates its time by the doorbell.
fn doorbell_rights(end: End, remote: bool) -> Rights {
    if end == End::Client && !remote { Rights::CALL.union(Rights::NOTIFY) } else { Rights::NOTIFY }
}

/// Where the first channel or region of a domain is mapped.
pub(crate) const FIRST_ADDRESS: u64 = REGIONS;

#[cfg(test)]
mod tests;
