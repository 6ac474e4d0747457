//! Components of the description: their channels and regions are made before the first of their users, and kept.

use alloc::string::String;
use alloc::vec::Vec;

use abi::PAGE_BYTES;
use contracts::monitor::{ChannelPlan, DomainPlan};
use contracts::names::Named;
use contracts::spawn::{DomainId, SpawnError};
use system::{Component, Region};

use crate::service::{Service, refused};

/// Pages that must be free before a component is started, whatever its limit says: program, stack and first heap.
const FIRST_PAGES: u64 = 128;

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
        let wanted = FIRST_PAGES.min(component.memory_limit_pages.into());
        let limit_pages = self.memory.prepare(core, wanted, component.memory_limit_pages.into()).await;
        let limit_pages = limit_pages.map_err(|error| {
            runtime::log!("no memory for {name} on core {core}: {error:?}");
            SpawnError::NoMemory
        })?;
        let plan = DomainPlan { limit_pages, ..wiring::component(component, &self.channels, generation, entrance) };
        // Sent together: the monitor acts in the order sent.
        let domain = self.monitor.create(core, plan).await.map_err(refused)?;
        self.monitor.start(core, domain).await.map_err(refused)?;
        self.register(component, domain, core, generation);
        Ok(domain)
    }

    /// Opens channels that are not open yet, all servers' cores at once, then the clients' where they differ.
    pub async fn open<'p>(&self, plans: impl Iterator<Item = &'p ChannelPlan>) -> Result<(), SpawnError> {
        let plans: Vec<&ChannelPlan> = plans.filter(|plan| !self.opened.borrow().contains(&plan.id)).collect();
        let servers: Vec<_> = plans.iter().map(|plan| self.monitor.open(plan.server_core, (*plan).clone(), None)).collect();
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
        let physical = self.monitor.region(owner, region.name.clone(), pages, contiguous, None).await.map_err(refused)?;
        if core != owner {
            self.monitor.region(core, region.name.clone(), pages, contiguous, Some(physical)).await.map_err(refused)?;
        }
        Ok(())
    }

    /// Tells the name server, without waiting: names are looked up later, and told again when that server restarts.
    fn register(&self, component: &Component, domain: DomainId, core: u32, generation: u64) {
        for contract in &component.provides {
            let entry = Named { component: component.name.clone(), contract: contract.clone(), domain, core, generation };
            let call = self.names.register(entry);
            let name = component.name.clone();
            runtime::spawn(async move {
                if let Err(error) = call.await {
                    runtime::log!("{name} is not known by name: {error:?}");
                }
            });
        }
    }

    /// What exists already: the components that monitor 0 started, whose channels are open.
    pub async fn look_around(&self) {
        let mut from = 0;
        let mut running: Vec<String> = Vec::new();
        while let Ok(Some(line)) = self.monitor.domain(0, from).await {
            from = line.domain + 1;
            if let Some(component) = self.description.components.iter().find(|component| component.name == line.name) {
                self.register(component, line.domain, line.core, line.generation);
                running.push(line.name);
            }
        }
        runtime::log!("found {}", running.join(", "));
    }
}
