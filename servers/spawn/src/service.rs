//! The `spawn` contract.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::task::Waker;

use channel::{CallError, Peer, queued};
use contracts::memory::MemoryClient;
use contracts::monitor::{ChannelId, ChannelPlan, MonitorClient, MonitorError, MonitorEvent};
use contracts::names::NamesClient;
use contracts::spawn::*;
use runtime::{LogLimit, Watch};
use spawn_core::{Programs, Table, home};
use system::System;

/// Everything spawn knows.
pub struct Service {
    pub description: System,
    pub cores: u32,
    pub monitor: MonitorClient,
    pub memory: MemoryClient,
    pub names: NamesClient,
    /// Channels between components, by the description.
    pub channels: Vec<ChannelPlan>,
    /// Those made.
    pub opened: RefCell<BTreeSet<ChannelId>>,
    pub linux: RefCell<Table<Peer>>,
    /// A domain of it is not being made any more, or a server of theirs not begun again.
    pub linux_changed: Watch,
    /// Channels that the client's core did not confirm as closed: the server's core keeps their
    /// memory until it does.
    pub unconfirmed: RefCell<Vec<ChannelPlan>>,
    pub programs: RefCell<Programs<Peer>>,
    /// Channels that components asked for, by client.
    pub bound: RefCell<Vec<(DomainId, ChannelPlan)>>,
    pub last_bound: Cell<ChannelId>,
    /// Those who wait for a program to be gone.
    pub wakers: RefCell<Vec<Waker>>,
    pub is_ready: Cell<bool>,
    /// Wakes who waits for that.
    pub ready: Watch,
    /// Components that are being made.
    pub making: RefCell<BTreeSet<String>>,
    /// One of them was, or could not be.
    pub made: Watch,
    /// Says what was refused, or not taken: forks come in thousands.
    pub refusals: LogLimit,
}

impl Service {
    /// Nothing made yet.
    pub fn new(
        description: System,
        cores: u32,
        monitor: MonitorClient,
        memory: MemoryClient,
        names: NamesClient,
    ) -> Service {
        let channels = wiring::channels(&description, cores);
        Service {
            description,
            cores,
            monitor,
            memory,
            names,
            channels,
            opened: RefCell::default(),
            linux: RefCell::default(),
            linux_changed: Watch::default(),
            unconfirmed: RefCell::default(),
            programs: RefCell::default(),
            bound: RefCell::default(),
            last_bound: Cell::new(wiring::BOUND_CHANNELS),
            wakers: RefCell::default(),
            is_ready: Cell::new(false),
            ready: Watch::default(),
            making: RefCell::default(),
            made: Watch::default(),
            refusals: LogLimit::default(),
        }
    }

    /// What a monitor said, as spawn's clients are told.
    pub fn refused(&self, error: CallError<MonitorError>) -> SpawnError {
        match error {
            CallError::Server(MonitorError::NotFound) => SpawnError::NotFound,
            CallError::Server(MonitorError::NoMemory) => SpawnError::NoMemory,
            CallError::Server(MonitorError::NoCore | MonitorError::Away) => SpawnError::NoCore,
            CallError::Server(MonitorError::BadProgram) => SpawnError::BadProgram,
            CallError::Server(MonitorError::Busy) => SpawnError::Busy,
            CallError::Server(MonitorError::Failed) => SpawnError::Failed,
            other => {
                self.refusals.log(format!("the monitor does not answer: {other:?}"));
                SpawnError::Failed
            }
        }
    }
}

impl Service {
    /// Hears what the monitors tell.
    pub async fn listen(self: Rc<Self>) {
        loop {
            match self.monitor.next_event().await {
                MonitorEvent::Died { linux: true, death, .. } => {
                    runtime::spawn(self.clone().domain_died(death));
                }
                MonitorEvent::Died { death, .. } => {
                    runtime::spawn(self.clone().unbind(death.domain));
                    runtime::spawn(self.clone().dispatcher_died(death));
                }
                MonitorEvent::CoreLost { core } => self.clone().core_lost(core),
                MonitorEvent::Wants { domain, request, contract, index } => {
                    runtime::spawn(self.clone().bind(domain, request, contract, index));
                }
                MonitorEvent::Serving { .. } | MonitorEvent::Stalled { .. } => {}
                MonitorEvent::Lost => {
                    runtime::log!("events of the monitor were lost: asking it which domains are left");
                    runtime::spawn(self.clone().look_for_dead());
                }
                MonitorEvent::PeerRestarted => {}
                MonitorEvent::Closed => return runtime::log!("the monitor is gone"),
            }
        }
    }
}

/// The service as peers reach it.
pub struct Shared(pub Rc<Service>);

impl SpawnServer for Shared {
    async fn component(
        &self,
        peer: &Peer,
        name: String,
        generation: u64,
        entrance: u64,
    ) -> Result<DomainId, SpawnError> {
        self.0.component(peer, name, generation, entrance).await
    }

    async fn dispatchers(
        &self,
        _: &Peer,
        name: String,
        generation: u64,
        from: u32,
    ) -> Result<Vec<DomainId>, SpawnError> {
        let programs = self.0.programs.borrow();
        let all = programs.dispatchers(&name, generation).ok_or(SpawnError::NotFound)?;
        Ok(all.iter().skip(from as usize).take(DISPATCHERS_AT_ONCE).copied().collect())
    }

    async fn linux(
        &self,
        peer: &Peer,
        core: Option<u32>,
        parent: Option<DomainId>,
        spare_pages: u64,
    ) -> Result<LinuxDomain, SpawnError> {
        self.0.linux(peer, core, parent, spare_pages).await
    }

    async fn begin_turns(&self, _: &Peer, domain: DomainId) -> Result<(), SpawnError> {
        queued(|| self.0.monitor.begin_turns(home(domain), domain)).await.map_err(|error| self.0.refused(error))
    }

    async fn start(&self, _: &Peer, domain: DomainId) -> Result<(), SpawnError> {
        queued(|| self.0.monitor.start(home(domain), domain)).await.map_err(|error| self.0.refused(error))
    }

    async fn kill(&self, _: &Peer, domain: DomainId, status: u64) -> Result<(), SpawnError> {
        queued(|| self.0.monitor.kill(home(domain), domain, status)).await.map_err(|error| self.0.refused(error))
    }

    async fn discard(&self, _: &Peer, domain: DomainId) -> Result<(), SpawnError> {
        queued(|| self.0.monitor.discard(home(domain), domain)).await.map_err(|error| self.0.refused(error))
    }

    async fn domains(&self, _: &Peer, from: DomainId) -> Result<Vec<DomainId>, SpawnError> {
        Ok(self.0.linux.borrow().domains(from).take(DOMAINS_AT_ONCE).collect())
    }

    async fn common(&self, _: &Peer, domain: DomainId, pages: u64, spare_pages: u64) -> Result<MemoryId, SpawnError> {
        let made = queued(|| self.0.monitor.common(home(domain), pages, spare_pages)).await;
        made.map_err(|error| self.0.refused(error))
    }

    async fn lend(&self, _: &Peer, memory: MemoryId, domain: DomainId, is_writer: bool) -> Result<u64, SpawnError> {
        let lent = queued(|| self.0.monitor.lend(home(memory), memory, domain, is_writer)).await;
        lent.map_err(|error| self.0.refused(error))
    }

    async fn release(&self, _: &Peer, memory: MemoryId) -> Result<(), SpawnError> {
        queued(|| self.0.monitor.release(home(memory), memory)).await.map_err(|error| self.0.refused(error))
    }

    async fn usage(&self, _: &Peer, domain: DomainId) -> Result<(u64, u64), SpawnError> {
        let line = self.0.monitor.domain(home(domain), domain).await.map_err(|error| self.0.refused(error))?;
        let line = line.filter(|line| line.domain == domain).ok_or(SpawnError::NotFound)?;
        Ok((line.pages, line.cpu_ns))
    }

    fn ready(&self, _: &Peer) {
        self.0.is_ready.set(true);
        self.0.ready.changed();
    }
}
