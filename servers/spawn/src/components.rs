//! Components of the description: their channels and regions are made before the first of their users, and kept.

use alloc::rc::Rc;
use alloc::vec::Vec;

use abi::PAGE_BYTES;
use contracts::monitor::{ChannelPlan, DomainPlan, RegionKind};
use contracts::names::{Named, NamesEvent};
use contracts::spawn::{DomainId, SpawnError};
use system::{Component, Region};

use crate::service::{Service, refused};

/// Pages that must be free before a component is started, whatever its limit says: program, stack and first heap.
const FIRST_PAGES: u64 = 128;
/// Channels brought to a component before it is waited for: half of what it lets wait.
const ANNOUNCED_AT_ONCE: usize = 32;
/// How long the memory server may take, which may have to move pages between cores.
const ROOM_LIMIT_NS: u64 = 1_000_000_000;
/// The component it is.
const MEMORY: &str = "memory";

impl Service {
    /// Starts a component.
    pub async fn component(&self, name: &str, generation: u64, entrance: u64) -> Result<DomainId, SpawnError> {
        let component = self.description.components.iter().find(|component| component.name == name);
        let component = component.filter(|component| component.name != wiring::MONITOR).ok_or(SpawnError::NotFound)?;
        let core = wiring::core_of(&self.description, name, self.cores);
        let concerned = |plan: &&ChannelPlan| plan.client == name || plan.server == name;
        self.open(self.channels.iter().filter(concerned)).await?;
        for region in &component.regions {
            self.region(region, core).await?;
        }
        let limit_pages = u64::from(component.memory_limit_pages);
        // The memory server cannot be asked about itself.
        let limit_pages = if name == MEMORY {
            limit_pages
        } else {
            self.room(name, core, FIRST_PAGES.min(limit_pages), limit_pages).await?
        };
        let plan = DomainPlan { limit_pages, ..wiring::component(component, &self.channels, generation, entrance) };
        // Sent together: the monitor acts in the order sent.
        let domain = self.monitor.create(core, plan).await.map_err(refused)?.domain;
        self.monitor.start(core, domain).await.map_err(refused)?;
        self.register(component, domain, core, generation);
        if generation > 1 {
            self.announce_clients(name).await;
        }
        Ok(domain)
    }

    /// A server that starts again is not told by its plan of the Linux programs that were there before: their channels are brought to it.
    /// Sets kept for later programs are made anew when they are needed: what their generation names must be the same to all their servers.
    async fn announce_clients(&self, name: &str) {
        let spare = self.linux.borrow_mut().take_spare();
        for set in &spare {
            self.close(&set.channels).await;
        }
        let clients = self.linux.borrow().clients_of(name);
        for some in clients.chunks(ANNOUNCED_AT_ONCE) {
            let told: Vec<_> =
                some.iter().map(|(set, plan)| self.monitor.announce(plan.server_core, plan.id, *set)).collect();
            for (answer, (set, _)) in told.into_iter().zip(some) {
                if let Err(error) = answer.await {
                    runtime::log!("channel set {set} lost its channel to {name}: {error:?}");
                }
            }
        }
    }

    /// Asks for room on a core; gives the limit to set.
    pub async fn room(&self, name: &str, core: u32, wanted_pages: u64, limit_pages: u64) -> Result<u64, SpawnError> {
        match runtime::timeout(ROOM_LIMIT_NS, self.memory.prepare(core, wanted_pages, limit_pages)).await {
            Ok(Ok(limit_pages)) => Ok(limit_pages),
            answer => {
                runtime::log!("no room for {name} on core {core}: {answer:?}");
                Err(SpawnError::NoMemory)
            }
        }
    }

    /// Opens channels that are not open yet, all servers' cores at once, then the clients' where they differ.
    pub async fn open<'p>(&self, plans: impl Iterator<Item = &'p ChannelPlan>) -> Result<(), SpawnError> {
        let plans: Vec<&ChannelPlan> = plans.filter(|plan| !self.opened.borrow().contains(&plan.id)).collect();
        let servers: Vec<_> =
            plans.iter().map(|plan| self.monitor.open(plan.server_core, (*plan).clone(), None)).collect();
        for (plan, place) in plans.iter().zip(servers) {
            let place = place.await.map_err(refused)?;
            if plan.client_core != plan.server_core {
                let place = self.monitor.open(plan.client_core, (*plan).clone(), Some(place)).await.map_err(refused)?;
                self.monitor.open(plan.server_core, (*plan).clone(), Some(place)).await.map_err(refused)?;
            }
            if plan.id < wiring::RUN_TIME_CHANNELS {
                self.opened.borrow_mut().insert(plan.id);
            }
        }
        Ok(())
    }

    /// The core of the first component that names it owns a region; others borrow it.
    async fn region(&self, region: &Region, core: u32) -> Result<(), SpawnError> {
        let names_it = |component: &&Component| component.regions.iter().any(|other| other.name == region.name);
        let users = || self.description.components.iter().filter(names_it);
        let core_of = |component: &Component| wiring::core_of(&self.description, &component.name, self.cores);
        let owner = users().next().map_or(core, core_of);
        let pages = u64::from(region.bytes) / PAGE_BYTES;
        // Another core can only borrow what lies together.
        let contiguous = region.contiguous || users().any(|component| core_of(component) != owner);
        let kind = match (region.pool, contiguous) {
            (true, _) => RegionKind::Pool,
            (false, true) => RegionKind::Contiguous,
            (false, false) => RegionKind::Scattered,
        };
        let place = self.monitor.region(owner, region.name.clone(), pages, kind, None).await.map_err(refused)?;
        if core != owner {
            self.monitor.region(core, region.name.clone(), pages, kind, Some(place)).await.map_err(refused)?;
        }
        Ok(())
    }

    /// Tells the name server, without waiting: names are looked up later, and told again when that server restarts.
    fn register(&self, component: &Component, domain: DomainId, core: u32, generation: u64) {
        for contract in &component.provides {
            let entry =
                Named { component: component.name.clone(), contract: contract.clone(), domain, core, generation };
            let call = self.names.register(entry);
            let name = component.name.clone();
            runtime::spawn(async move {
                if let Err(error) = call.await {
                    runtime::log!("{name} is not known by name: {error:?}");
                }
            });
        }
    }

    /// Tells the name server what exists: at the start of either.
    pub async fn look_around(&self) {
        let mut cores: Vec<u32> =
            self.description.components.iter().filter_map(|component| component.core.core_on(self.cores)).collect();
        cores.sort_unstable();
        cores.dedup();
        for core in cores {
            let mut from = 0;
            while let Ok(Some(line)) = self.monitor.domain(core, from).await {
                from = line.domain + 1;
                if let Some(component) =
                    self.description.components.iter().find(|component| component.name == line.name)
                {
                    self.register(component, line.domain, line.core, line.generation);
                }
            }
        }
    }

    /// Watches the name server, to tell it again after a restart.
    pub async fn watch_names(self: Rc<Self>) {
        loop {
            match self.names.next_event().await {
                NamesEvent::PeerRestarted => self.look_around().await,
                NamesEvent::Lost => {}
                NamesEvent::Closed => return,
            }
        }
    }
}
