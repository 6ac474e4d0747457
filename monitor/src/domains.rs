//! Domains of this core: who runs, how they end.

use alloc::string::String;
use alloc::vec::Vec;

use abi::{DeathCause, DomainState, Error, Handle};
use channel::Memory;
use contracts::monitor::{ChannelId, CoreMemory, DomainLine, DomainPlan, End, MonitorError};
use contracts::spawn::{Death, DomainId};

use crate::create::death_badge;
use crate::machine::Machine;
use crate::{Registry, refused};

/// Most questions of a component for channels that are passed on before they are answered: others
/// hear of deaths over the same channels.
pub(crate) const ASKED_MAX: u32 = 16;

/// Status of a domain that ended with its core's monitor: as a shell shows SIGKILL.
pub(crate) const WITH_ITS_CORE: u64 = 137;

/// Capabilities a monitor holds of a domain.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    pub id: DomainId,
    pub ram: Handle,
    pub domain: Handle,
    pub range: Handle,
    pub context: Handle,
}

impl Parts {
    /// Nothing made yet.
    pub const NONE: Parts =
        Parts { id: 0, ram: Handle::NONE, domain: Handle::NONE, range: Handle::NONE, context: Handle::NONE };
}

/// The monitor's own channel to a component.
pub struct EndpointWire {
    /// The region.
    pub memory: Memory,
    /// Rings the component.
    pub doorbell: Handle,
    /// The monitor's bits for it.
    pub badge: u64,
}

/// A domain that died.
pub struct Dead {
    /// Its name.
    pub name: String,
    /// Of the component.
    pub generation: u64,
    /// It was a Linux domain.
    pub linux: bool,
    /// How.
    pub death: Death,
}

impl Dead {
    /// A domain that ends with its core.
    pub fn of_core(domain: DomainId, name: String, generation: u64, linux: bool) -> Dead {
        let death =
            Death { domain, cause: DeathCause::Killed as u64, status: WITH_ITS_CORE, address: 0, rip: 0, cpu_ns: 0 };
        Dead { name, generation, linux, death }
    }
}

/// A domain that has not died, or whose death was not looked at yet.
pub struct Domain {
    pub(crate) parts: Parts,
    pub(crate) plan: DomainPlan,
    pub(crate) entry: u64,
    pub(crate) channels: Vec<(ChannelId, End)>,
    pub(crate) endpoint_segment: Handle,
    pub(crate) endpoint_portal: Handle,
    pub(crate) own_doorbell: Handle,
    pub(crate) stall_badge: Option<u64>,
    pub(crate) serving: bool,
    /// Its questions for channels that are not answered yet.
    pub(crate) asked: u32,
}

impl<M: Machine> Registry<M> {
    /// Runs a domain and tells its peers.
    pub fn start(&mut self, id: DomainId) -> Result<(), MonitorError> {
        let domain = self.domains.get(&id).ok_or(MonitorError::NotFound)?;
        let (context, entry, channels) = (domain.parts.context, domain.entry, domain.channels.clone());
        self.machine.start(context, entry, abi::layout::STACK_TOP).map_err(|error| refused(&self.machine, error))?;
        channels.into_iter().for_each(|(channel, end)| self.ring_other(channel, end));
        Ok(())
    }

    /// Looks for domains that died, among those whose deaths these bits tell, takes them apart and
    /// tells of each.
    pub fn deaths(&mut self, bits: u64) -> Vec<Dead> {
        let mut dead = Vec::new();
        for (id, domain) in self.domains.iter().filter(|(id, _)| death_badge(**id) & bits != 0) {
            if let Ok(state) = self.machine.state(domain.parts.domain)
                && DeathCause::decode(state.cause) != Some(DeathCause::Alive)
            {
                dead.push((*id, state));
            }
        }
        dead.into_iter().filter_map(|(id, state)| self.bury(id, &state)).collect()
    }

    fn bury(&mut self, id: DomainId, state: &DomainState) -> Option<Dead> {
        let domain = self.domains.remove(&id)?;
        self.ended_ns += state.cpu_ns;
        self.leave(&domain.plan.devices);
        if domain.plan.linux {
            self.begin_again(&domain.channels);
        } else {
            domain.channels.iter().for_each(|(channel, end)| self.holder_ended(*channel, *end));
        }
        self.destroy(&domain);
        let is_exception = DeathCause::decode(state.cause) == Some(DeathCause::Exception);
        let status = if is_exception { state.exception.vector } else { state.status };
        let death = Death {
            domain: id,
            cause: state.cause,
            status,
            address: state.exception.address,
            rip: state.rip,
            cpu_ns: state.cpu_ns,
        };
        let DomainPlan { name, generation, linux, .. } = domain.plan;
        if !linux {
            self.ends.insert(name.clone(), (generation, death));
        }
        Some(Dead { name, generation, linux, death })
    }

    /// How a component's domain of that name ended last.
    pub fn last_end(&self, name: &str) -> Option<(u64, Death)> {
        self.ends.get(name).copied()
    }

    /// Drops all that is held of a domain; that ends it if it lives.
    pub(crate) fn destroy(&mut self, domain: &Domain) {
        let Parts { ram, domain: handle, range, context, .. } = domain.parts;
        for handle in
            [context, range, handle, domain.endpoint_portal, domain.own_doorbell, domain.endpoint_segment, ram]
        {
            if handle != Handle::NONE {
                self.machine.drop(handle);
            }
        }
    }

    /// The component asks for a channel; whether it may, or too many of its questions are open.
    pub fn asks(&mut self, id: DomainId) -> bool {
        let Some(domain) = self.domains.get_mut(&id).filter(|domain| domain.asked < ASKED_MAX) else { return false };
        domain.asked += 1;
        true
    }

    /// One of its questions is answered.
    pub fn answered(&mut self, id: DomainId) {
        if let Some(domain) = self.domains.get_mut(&id) {
            domain.asked = domain.asked.saturating_sub(1);
        }
    }

    /// The component is ready.
    pub fn set_serving(&mut self, id: DomainId) {
        if let Some(domain) = self.domains.get_mut(&id) {
            domain.serving = true;
            let devices = domain.plan.devices.clone();
            self.serve_with(&devices);
        }
    }

    /// Who is meant by the stall bits that came.
    pub fn stalled(&self, bits: u64) -> Vec<DomainId> {
        let meant = |domain: &&Domain| domain.stall_badge.is_some_and(|badge| badge & bits != 0);
        self.domains.values().filter(meant).map(|domain| domain.parts.id).collect()
    }

    /// Rings every component that serves, can be restarted and is not at rest, so that one that
    /// hangs has something pending, which the kernel's watch sees. Those at rest too, if it is for
    /// `everybody`. False if there is none.
    pub fn beat(&mut self, everybody: bool) -> bool {
        let mut any = false;
        for domain in self.domains.values().filter(|domain| domain.serving && domain.plan.is_beaten) {
            if everybody {
                self.machine.ring(domain.endpoint_portal);
            } else {
                self.machine.ring_busy(domain.endpoint_portal);
            }
            any = true;
        }
        any
    }

    /// Ends a domain. Fine if it has ended.
    pub fn kill(&mut self, id: DomainId, status: u64) -> Result<(), MonitorError> {
        match self.domains.get(&id) {
            Some(domain) => {
                self.machine.kill(domain.parts.domain, status).map_err(|error| refused(&self.machine, error))
            }
            None => Ok(()),
        }
    }

    /// Gives a domain turns of its own. `NotFound` if it has ended.
    pub fn begin_turns(&mut self, id: DomainId) -> Result<(), MonitorError> {
        let ram = self.domains.get(&id).ok_or(MonitorError::NotFound)?.parts.ram;
        self.machine.begin_turns(ram).map_err(|error| refused(&self.machine, error))
    }

    /// Ends a domain that nobody has started. Fine if it has ended; `Busy` if it was started.
    pub fn discard(&mut self, id: DomainId) -> Result<(), MonitorError> {
        let Some(domain) = self.domains.get(&id) else { return Ok(()) };
        // The kernel starts a context once: after this nobody else can, and there is no program at
        // that address.
        match self.machine.start(domain.parts.context, 0, abi::layout::STACK_TOP) {
            Ok(()) => self.kill(id, 0),
            Err(Error::Busy) => Err(MonitorError::Busy),
            // It ended, and that is yet to be looked at.
            Err(_) => self.kill(id, 0),
        }
    }

    /// The domain with the smallest id of at least `from`.
    pub fn line(&mut self, from: DomainId) -> Option<DomainLine> {
        let (id, domain) = self.domains.range(from..).next()?;
        let state = self.machine.state(domain.parts.domain).unwrap_or_default();
        let DomainPlan { name, generation, .. } = &domain.plan;
        Some(DomainLine {
            domain: *id,
            name: name.clone(),
            core: self.facts.core,
            generation: *generation,
            serving: domain.serving,
            pages: state.used_pages,
            cpu_ns: state.cpu_ns,
        })
    }

    /// The domain of that name, if it lives.
    pub fn named(&self, name: &str) -> Option<DomainId> {
        self.domains.values().find(|domain| domain.plan.name == name).map(|domain| domain.parts.id)
    }

    /// The name of a domain that lives.
    pub fn name_of(&self, id: DomainId) -> Option<String> {
        self.domains.get(&id).map(|domain| domain.plan.name.clone())
    }

    /// Pages of this core.
    pub fn memory(&mut self) -> Result<CoreMemory, MonitorError> {
        let (_, used_pages, free_pages) =
            sys::ram_stat(Handle::ROOT_RAM).map_err(|error| refused(&self.machine, error))?;
        Ok(CoreMemory { used_pages, free_pages })
    }

    pub(crate) fn machine_log(&self, text: &str) {
        let _ = sys::log(text);
    }
}
