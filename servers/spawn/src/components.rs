//! Components of the description: their channels and regions are made before the first of their
//! users, and kept. Of a program of several cores all domains are made before the first runs, or
//! none stays.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use core::future::poll_fn;
use core::task::Poll;

use abi::PAGE_BYTES;
use channel::{CallError, Peer, queued};
use contracts::monitor::{ChannelPlan, Created, DomainPlan, MonitorError, Place, RegionKind};
use contracts::names::{Named, NamesEvent};
use contracts::spawn::{Death, DomainId, SpawnError, SpawnEvents};
use spawn_core::{Outcome, all_or_none, home};
use system::{Component, Region};

use crate::clients::{ANNOUNCED_AT_ONCE, NO_SET};
use crate::service::Service;

/// Pages that must be free for a component on its core, whatever its limit says: program, stack and
/// first heap.
const FIRST_PAGES: u64 = 128;
/// And what stays free for the core's kernel and monitor.
const RESERVE_PAGES: u64 = 256;
/// Requests to monitors at once: a part of what a channel lets wait.
const AT_ONCE: usize = 64;
/// How long the memory server may take, which may have to move pages between cores.
const ROOM_LIMIT_NS: u64 = 1_000_000_000;
/// How long the deaths of domains that were ended may take to be told.
const GONE_LIMIT_NS: u64 = 5_000_000_000;
/// Status of a dispatcher that is ended because its program is.
const WITH_ITS_PROGRAM: u64 = 137;
/// A death whose event was lost: no `abi::DeathCause`.
const UNKNOWN: u64 = u64::MAX;
/// The component it is.
const MEMORY: &str = "memory";

impl Service {
    /// Starts a component, to the end, whatever becomes of the client meanwhile: what is made is
    /// started or destroyed.
    pub async fn component(
        self: &Rc<Self>,
        client: &Peer,
        name: String,
        generation: u64,
        entrance: u64,
    ) -> Result<DomainId, SpawnError> {
        if !self.making.borrow_mut().insert(name.clone()) {
            return Err(SpawnError::Busy);
        }
        let outcome = Rc::new(Cell::new(None));
        let (service, client, told) = (self.clone(), client.clone(), outcome.clone());
        runtime::spawn(async move {
            told.set(Some(service.make_component(&client, &name, generation, entrance).await));
            service.making.borrow_mut().remove(&name);
            service.made.changed();
        });
        self.made.until(|| outcome.take()).await
    }

    async fn make_component(
        &self,
        client: &Peer,
        name: &str,
        generation: u64,
        entrance: u64,
    ) -> Result<DomainId, SpawnError> {
        let component = self.description.components.iter().find(|component| component.name == name);
        let component = component.filter(|component| component.name != wiring::MONITOR).ok_or(SpawnError::NotFound)?;
        let is_program = component.core.is_program();
        if self.programs.borrow().is_there(name) {
            return Err(SpawnError::Busy);
        }
        let mut plans = wiring::domains(component, self.cores, &self.channels, generation, entrance);
        if name != MEMORY {
            // It cannot be asked about itself.
            plans.iter_mut().for_each(|(_, plan)| plan.first_pages = FIRST_PAGES.min(plan.limit_pages) + RESERVE_PAGES);
        }
        if plans.is_empty() {
            runtime::log!("{name}: this machine has none of its cores");
            return Err(SpawnError::NoCore);
        }
        let concerned: Vec<&ChannelPlan> =
            self.channels.iter().filter(|plan| wiring::concerns(plan, component, &plans)).collect();
        let is_server = |plan: &ChannelPlan| plans.iter().any(|(_, own)| plan.server == own.name);
        let is_new = |plan: &ChannelPlan| !self.opened.borrow().contains(&plan.id);
        let is_late = |plan: &&ChannelPlan| is_new(plan) && !is_server(plan) && self.is_late(plan);
        // Made anew because a core was lost: its server may run already.
        let is_late = |plan: &&ChannelPlan| is_late(plan) || generation > 1 && is_new(plan) && !is_server(plan);
        let late: Vec<&ChannelPlan> = concerned.iter().copied().filter(is_late).collect();
        self.open(concerned.into_iter()).await?;
        self.announce_late(&late).await;
        let cores: Vec<u32> = plans.iter().map(|(core, _)| *core).collect();
        for region in &component.regions {
            self.region(region, &cores).await?;
        }
        let beginning = if generation > 1 { self.begin_again(name).await } else { None };
        let domains = self.make(name, &plans).await?;
        if is_program {
            self.programs.borrow_mut().made(name, generation, client.clone(), domains.clone());
        }
        if let Err(error) = self.start_all(&domains).await {
            // One that died meanwhile took the others with it, which is told by `ended`.
            if !is_program || self.programs.borrow().lives(name, generation) {
                runtime::log!("{name} is made but does not start: {error:?}");
                self.undo(name, &domains).await;
                return Err(error);
            }
        }
        for ((core, plan), domain) in plans.iter().zip(&domains) {
            self.register(component, &plan.name, *domain, *core, generation);
        }
        if generation > 1 {
            self.announce_clients(&plans, beginning).await;
        }
        domains.first().copied().ok_or(SpawnError::Failed)
    }

    /// Makes all domains of a component; if a core refuses, the others' are taken back.
    async fn make(&self, name: &str, plans: &[(u32, DomainPlan)]) -> Result<Vec<DomainId>, SpawnError> {
        let mut answers = Vec::new();
        for some in plans.chunks(AT_ONCE) {
            let asked: Vec<_> = some.iter().map(|(core, plan)| self.monitor.create(*core, plan.clone())).collect();
            for ((core, plan), answer) in some.iter().zip(asked) {
                let wanted = plan.first_pages.saturating_sub(RESERVE_PAGES);
                let made = self.or_with_room(*core, plan, wanted, answer.await).await;
                answers.push(made.map(|created| created.domain));
            }
        }
        match all_or_none(answers) {
            Ok(domains) => Ok(domains),
            Err((number, error, made)) => {
                let (core, count) = (plans[number].0, made.len());
                runtime::log!(
                    "{name}: core {core} refuses ({error:?}), so it does not start; {count} domains were ended"
                );
                self.undo(name, &made).await;
                Err(error)
            }
        }
    }

    /// What `create` answered; or, if its core has no memory, once others may have given some, its
    /// second answer.
    pub async fn or_with_room(
        &self,
        core: u32,
        plan: &DomainPlan,
        wanted_pages: u64,
        answer: Result<Created, CallError<MonitorError>>,
    ) -> Result<Created, SpawnError> {
        match answer {
            Err(CallError::Server(MonitorError::NoMemory)) if plan.name != MEMORY => {
                // Pages or slots of the core's monitor, and each spare set has both.
                self.close_spare().await;
                self.room(&plan.name, core, wanted_pages, plan.limit_pages).await?;
                self.monitor.create(core, plan.clone()).await.map_err(|error| self.refused(error))
            }
            answer => answer.map_err(|error| self.refused(error)),
        }
    }

    /// Closes the channels that nobody has.
    async fn close_spare(&self) {
        let spare = self.linux.borrow_mut().take_spare();
        for set in &spare {
            self.close(&set.channels).await;
        }
    }

    /// Asks for room on a core.
    async fn room(&self, name: &str, core: u32, wanted_pages: u64, limit_pages: u64) -> Result<(), SpawnError> {
        match runtime::timeout(ROOM_LIMIT_NS, self.memory.prepare(core, wanted_pages, limit_pages)).await {
            Ok(Ok(_)) => Ok(()),
            answer => {
                self.refusals.log(format!("no room for {name} on core {core}: {answer:?}"));
                Err(SpawnError::NoMemory)
            }
        }
    }

    /// Runs domains; the first refusal, if there is one.
    async fn start_all(&self, domains: &[DomainId]) -> Result<(), SpawnError> {
        let mut outcome = Ok(());
        for some in domains.chunks(AT_ONCE) {
            let asked: Vec<_> = some.iter().map(|domain| self.monitor.start(home(*domain), *domain)).collect();
            for answer in asked {
                outcome = outcome.and(answer.await.map_err(|error| self.refused(error)));
            }
        }
        outcome
    }

    /// A core was lost: its monitor has forgotten all, the others what they had with it.
    pub fn core_lost(self: Rc<Self>, core: u32) {
        let with_it = |plan: &ChannelPlan| [plan.client_core, plan.server_core].contains(&core);
        for plan in self.channels.iter().filter(|plan| with_it(plan)) {
            self.opened.borrow_mut().remove(&plan.id);
        }
        self.bound.borrow_mut().retain(|(_, plan)| !with_it(plan));
        let spare = self.linux.borrow_mut().core_lost(core);
        runtime::spawn(async move {
            for set in spare {
                self.close(&set.channels).await;
            }
        });
    }

    /// Ends domains.
    async fn end_all(&self, domains: &[DomainId]) {
        for some in domains.chunks(AT_ONCE) {
            let kill = |domain: &DomainId| self.monitor.kill(home(*domain), *domain, WITH_ITS_PROGRAM);
            let asked: Vec<_> = some.iter().map(|domain| queued(move || kill(domain))).collect();
            for (domain, answer) in some.iter().zip(asked) {
                if let Err(error) = answer.await {
                    runtime::log!("domain {domain:#x} cannot be ended: {error:?}");
                }
            }
        }
    }

    /// Takes back what was made of a component, and waits until it is gone.
    async fn undo(&self, name: &str, domains: &[DomainId]) {
        self.programs.borrow_mut().undone(name, domains);
        self.end_all(domains).await;
        let gone = poll_fn(|context| {
            if !self.programs.borrow().is_there(name) {
                return Poll::Ready(());
            }
            self.wakers.borrow_mut().push(context.waker().clone());
            Poll::Pending
        });
        if runtime::timeout(GONE_LIMIT_NS, gone).await.is_err() {
            runtime::log!("{name}: domains that were ended are still there after 5 s");
        }
    }

    /// A domain died: if it was a program's, the program ends.
    pub async fn dispatcher_died(self: Rc<Self>, death: Death) {
        let outcome = self.programs.borrow_mut().died(death);
        match outcome {
            Outcome::Nothing => {}
            Outcome::EndOthers(others) => self.end_all(&others).await,
            Outcome::Gone { name, generation, client, death } => {
                self.wakers.take().into_iter().for_each(core::task::Waker::wake);
                let told =
                    client.map_or(Ok(()), |client| SpawnEvents::new(&client).ended(name.clone(), generation, death));
                if told.is_err() {
                    runtime::log!("the end of {name} cannot be told");
                }
            }
        }
    }

    /// Deaths may have been told and not heard: looks which domains are not there any more.
    pub async fn look_for_dead(self: Rc<Self>) {
        let mut living = self.programs.borrow().living();
        living.extend(self.linux.borrow().domains(0));
        for domain in living {
            let line = queued(|| self.monitor.domain(home(domain), domain)).await;
            if line.is_ok_and(|line| line.is_none_or(|line| line.domain != domain)) {
                let death = Death { domain, cause: UNKNOWN, status: 0, address: 0, rip: 0, cpu_ns: 0 };
                self.clone().domain_died(death).await;
                self.clone().dispatcher_died(death).await;
            }
        }
    }

    /// Is it to a server that was started before there were channels between cores, so without this
    /// one?
    fn is_late(&self, plan: &ChannelPlan) -> bool {
        let first = wiring::first_components(&self.description);
        (plan.client_core, plan.server_core) != (0, 0) && first.iter().any(|component| component.name == plan.server)
    }

    /// Brings such channels to their servers.
    async fn announce_late(&self, plans: &[&ChannelPlan]) {
        for some in plans.chunks(ANNOUNCED_AT_ONCE) {
            let told: Vec<_> =
                some.iter().map(|plan| self.monitor.announce(plan.server_core, plan.id, NO_SET)).collect();
            for (answer, plan) in told.into_iter().zip(some) {
                // One that is being restarted gets it at its start.
                if let Err(error) = answer.await {
                    runtime::log!("{} was not told of the channel of {}: {error:?}", plan.server, plan.client);
                }
            }
        }
    }

    /// Opens channels that are not open yet, all servers' cores at once, then the clients' where
    /// they differ.
    pub async fn open<'p>(&self, plans: impl Iterator<Item = &'p ChannelPlan>) -> Result<(), SpawnError> {
        let plans: Vec<&ChannelPlan> = plans.filter(|plan| !self.opened.borrow().contains(&plan.id)).collect();
        for some in plans.chunks(AT_ONCE) {
            let servers: Vec<_> =
                some.iter().map(|plan| self.monitor.open(plan.server_core, (*plan).clone(), None)).collect();
            for (plan, place) in some.iter().zip(servers) {
                self.open_to_client(plan, place.await.map_err(|error| self.refused(error))?).await?;
            }
        }
        Ok(())
    }

    /// The server's core has its part of the channel.
    async fn open_to_client(&self, plan: &ChannelPlan, place: Place) -> Result<(), SpawnError> {
        if plan.client_core != plan.server_core {
            let place = self
                .monitor
                .open(plan.client_core, plan.clone(), Some(place))
                .await
                .map_err(|error| self.refused(error))?;
            self.monitor
                .open(plan.server_core, plan.clone(), Some(place))
                .await
                .map_err(|error| self.refused(error))?;
        }
        if plan.id < wiring::RUN_TIME_CHANNELS {
            self.opened.borrow_mut().insert(plan.id);
        }
        Ok(())
    }

    /// The core of its users owns a region; if they are on several it is core 0, of which they
    /// borrow it.
    async fn region(&self, region: &Region, cores: &[u32]) -> Result<(), SpawnError> {
        let names_it = |component: &&Component| component.regions.iter().any(|other| other.name == region.name);
        let users = self.description.components.iter().filter(names_it);
        let all: Vec<u32> = users.flat_map(|component| component.domains(self.cores)).map(|(_, core)| core).collect();
        let first = all.first().copied().unwrap_or_default();
        // What cores share lies on the one core whose loss ends the machine.
        let owner = if all.iter().all(|core| *core == first) { first } else { 0 };
        let pages = u64::from(region.bytes) / PAGE_BYTES;
        // Another core can only borrow what lies together.
        let contiguous = region.contiguous || all.iter().any(|core| *core != owner);
        let kind = match (region.pool, contiguous) {
            (true, _) => RegionKind::Pool,
            (false, true) => RegionKind::Contiguous,
            (false, false) => RegionKind::Scattered,
        };
        let place = self
            .monitor
            .region(owner, region.name.clone(), pages, kind, None)
            .await
            .map_err(|error| self.refused(error))?;
        for core in cores.iter().filter(|core| **core != owner) {
            self.monitor
                .region(*core, region.name.clone(), pages, kind, Some(place))
                .await
                .map_err(|error| self.refused(error))?;
        }
        Ok(())
    }

    /// Tells the name server, without waiting: names are looked up later, and told again when that
    /// server restarts.
    fn register(&self, component: &Component, name: &str, domain: DomainId, core: u32, generation: u64) {
        for contract in &component.provides {
            let entry = Named { component: name.into(), contract: contract.clone(), domain, core, generation };
            let call = self.names.register(entry);
            let name = String::from(name);
            runtime::spawn(async move {
                if let Err(error) = call.await {
                    runtime::log!("{name} is not registered at the name server: {error:?}");
                }
            });
        }
    }

    /// Tells the name server what exists: at the start of either.
    pub async fn probe_all(&self) {
        let named = self.description.components.iter().filter(|component| component.name != wiring::MONITOR);
        let wanted: BTreeMap<String, (&Component, u32)> = named
            .flat_map(|component| {
                component.domains(self.cores).into_iter().map(move |(name, core)| (name, (component, core)))
            })
            .collect();
        let cores: BTreeSet<u32> = wanted.values().map(|(_, core)| *core).collect();
        for core in cores {
            let mut from = 0;
            while let Ok(Some(line)) = self.monitor.domain(core, from).await {
                from = line.domain + 1;
                if let Some((component, _)) = wanted.get(&line.name) {
                    self.register(component, &line.name, line.domain, line.core, line.generation);
                }
            }
        }
        // After them, on the same channel.
        if let Err(error) = self.names.told_all().await {
            runtime::log!("not all names were registered at the name server: {error:?}");
        }
    }

    /// Watches the name server, to tell it again after a restart.
    pub async fn watch_names(self: Rc<Self>) {
        loop {
            match self.names.next_event().await {
                NamesEvent::PeerRestarted => self.probe_all().await,
                // It asks nothing, so it is told nothing.
                NamesEvent::Lost | NamesEvent::Changed { .. } => {}
                NamesEvent::Closed => return,
            }
        }
    }
}
