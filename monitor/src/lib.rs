//! The monitor's registry: what one core has made and who holds which end of it.
//!
//! Mechanism only: whom to start, restart or place is decided elsewhere. All of it runs over
//! [`Machine`], the kernel's calls it needs, so that it is tested on a host against a made-up
//! machine; `main.rs` puts it on the real one and on messages.
//!
//! Kernel calls answer at once, so operations call them directly; a step machine that gives effects
//! back would only have to be told the handle numbers again. What waits (other cores, components)
//! is outside, in `main.rs`.
//!
//! Invariants: a domain that died is taken apart before its death is told; a channel outlives both
//! its sides until it is closed; what an operation made before it failed is undone. Deliberately
//! unknown here: messages, time, other cores' books.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate self as monitor_core;

pub mod archive;
mod channels;
pub mod clock;
mod common;
mod create;
mod devices;
mod domains;
mod ledger;
mod loader;
mod lost;
mod machine;
mod moves;
mod names;
pub mod offset;
mod program;
mod start_page;
#[cfg(test)]
mod tests;

pub use channels::{Opened, Wire};
pub use create::{DEATH_BADGES, STALL_BADGES};
pub use devices::{ALONE_NS, describe};
pub use domains::{Dead, Domain, EndpointWire};
pub use lost::LostCores;
pub use machine::{Machine, Registers, Stall, Time};
pub use moves::{Answer, Moves};
pub use names::NameCache;
pub use program::{BadProgram, Piece, Program, decode};

use alloc::collections::BTreeMap;
use alloc::string::String;

use abi::Handle;
use contracts::monitor::{ChannelId, MonitorError, RegionKind};
use contracts::spawn::{Death, DomainId};

/// Facts about this core and what its monitor was given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// This core.
    pub core: u32,
    /// Cores of the machine.
    pub cores: u32,
    /// Ticks per second, the counter at time 0, and ns per tick << 32: as in this monitor's own
    /// start page.
    pub tsc: [u64; 3],
    /// The clock page's segment; every domain is shown it.
    pub clock_page: Option<Handle>,
    /// Where it lies in memory.
    pub clock_place: u64,
    /// Where the archive begins in its first page.
    pub archive_offset: u64,
}

/// Memory that outlives its users.
struct Kept {
    /// A segment, or the first share of a pool.
    object: Handle,
    is_pool: bool,
    pages: u64,
    /// Physical address, or id of the pool.
    place: u64,
}

/// Asks for whose memory is whose.
const LIST_MEMORY: &[u8] = b"pelago.list=memory";

/// Everything this core's monitor knows.
pub struct Registry<M> {
    machine: M,
    facts: Facts,
    archive: &'static [u8],
    command_line: &'static [u8],
    lists_memory: bool,
    domains: BTreeMap<DomainId, Domain>,
    channels: BTreeMap<ChannelId, channels::Channel>,
    regions: BTreeMap<String, Kept>,
    common: common::Common,
    programs: BTreeMap<String, loader::Loaded>,
    devices: devices::Devices,
    /// By name of a component's domain: which died last, and how. Bounded by the description.
    ends: BTreeMap<String, (u64, Death)>,
    /// How long domains ran that have ended.
    ended_ns: u64,
}

impl<M: Machine> Registry<M> {
    /// Nothing made yet.
    pub fn new(machine: M, facts: Facts, archive: &'static [u8], command_line: &'static [u8]) -> Registry<M> {
        Registry {
            machine,
            facts,
            archive,
            command_line,
            lists_memory: command_line.split(u8::is_ascii_whitespace).any(|word| word == LIST_MEMORY),
            domains: BTreeMap::new(),
            channels: BTreeMap::new(),
            regions: BTreeMap::new(),
            common: common::Common::default(),
            programs: BTreeMap::new(),
            devices: devices::Devices::default(),
            ends: BTreeMap::new(),
            ended_ns: 0,
        }
    }

    /// The kernel's calls.
    pub fn machine(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Whether nothing made here is there any more: no domain, no channel, no region, no memory in
    /// common, no claim on a device.
    pub fn is_empty(&self) -> bool {
        let has_memory = !self.regions.is_empty() || !self.common.is_empty();
        self.domains.is_empty() && self.channels.is_empty() && !has_memory && self.devices.is_empty()
    }

    /// Facts about this core.
    pub fn facts(&self) -> Facts {
        self.facts
    }

    /// Memory of another core.
    fn import(&mut self, physical: u64, pages: u64, what: &str) -> Result<Handle, abi::Error> {
        let segment = self.machine.import(physical, pages)?;
        self.tell_borrowed(self.facts.core, physical, pages, what);
        Ok(segment)
    }

    /// Says where memory is that a core has of another one, if the command line asks
    /// (`pelago.list=memory`): for those who look at it from outside.
    pub fn tell_borrowed(&self, core: u32, physical: u64, pages: u64, what: &str) {
        if self.lists_memory {
            let bytes = pages * abi::PAGE_BYTES;
            self.machine_log(&alloc::format!("memory that core {core} borrows: {physical:#x}+{bytes:#x} {what}"));
        }
    }

    /// Makes a region, or borrows one of another core; gives the physical address of contiguous
    /// memory, or the id of a pool.
    pub fn region(&mut self, name: &str, pages: u64, kind: RegionKind, of: Option<u64>) -> Result<u64, MonitorError> {
        if let Some(kept) = self.regions.get(name) {
            return if kept.pages == pages { Ok(kept.place) } else { Err(MonitorError::Busy) };
        }
        let made = match (kind, of) {
            (RegionKind::Pool, Some(id)) => self.machine.import_pool(id).map(|share| (share, id)),
            (RegionKind::Pool, None) => self.machine.pool(pages),
            (_, Some(physical)) => self.import(physical, pages, name).map(|segment| (segment, physical)),
            (kind, None) => self.machine.segment(pages, kind == RegionKind::Contiguous),
        };
        let (object, place) = made.map_err(|error| refused(&self.machine, error))?;
        self.regions.insert(name.into(), Kept { object, is_pool: kind == RegionKind::Pool, pages, place });
        Ok(place)
    }
}

/// A refused kernel call, as clients of the monitor are told; the log says more.
pub(crate) fn refused(machine: &impl Machine, error: abi::Error) -> MonitorError {
    machine.log_refusal(alloc::format!("refused by the kernel: {}", error.name()));
    told(error)
}

/// A kernel's error, as clients of the monitor are told.
pub(crate) fn told(error: abi::Error) -> MonitorError {
    match error {
        abi::Error::NoMemory | abi::Error::NoSlot | abi::Error::Busy => MonitorError::NoMemory,
        _ => MonitorError::Failed,
    }
}
