//! Linux domains: made with a proxy and channels to its servers, taken apart after they died.

use alloc::format;
use alloc::rc::Rc;
use alloc::vec::Vec;

use channel::Peer;
use contracts::monitor::ChannelPlan;
use contracts::spawn::{Death, DomainId, LinuxDomain, SpawnError, SpawnEvents};
use spawn_core::{LinuxEntry, home};

use crate::service::{Service, refused};

/// How long the first domain waits for the components.
const READY_LIMIT_NS: u64 = 30_000_000_000;
/// Steps of that wait, which exists at boot only.
const READY_STEP_NS: u64 = 1_000_000;
/// Pages that must be free before a program is started: proxy, channels on this core, and something to begin with.
const FIRST_PAGES: u64 = 512;

impl Service {
    /// Makes a Linux domain.
    pub async fn linux(
        &self,
        client: &Peer,
        core: Option<u32>,
        parent: Option<DomainId>,
    ) -> Result<LinuxDomain, SpawnError> {
        self.wait_ready().await?;
        let linux = &self.description.linux;
        let core = core.or(parent.map(home)).or(linux.core.core_on(self.cores)).unwrap_or(0);
        if core >= self.cores {
            return Err(SpawnError::NoCore);
        }
        let first = self.linux.borrow_mut().begin(linux.uses.len()).ok_or(SpawnError::NoMemory)?;
        let name = format!("linux-{}", self.names_made.replace(self.names_made.get() + 1) + 1);
        let channels = wiring::linux_channels(&self.description, self.cores, &name, core, first);
        match self.make(&name, core, parent, &channels).await {
            Ok(made) => {
                self.linux.borrow_mut().made(made.domain, LinuxEntry { channels, client: client.clone() });
                Ok(made)
            }
            Err(error) => {
                self.linux.borrow_mut().failed();
                self.close(&channels).await;
                Err(error)
            }
        }
    }

    async fn wait_ready(&self) -> Result<(), SpawnError> {
        let limit_ns = runtime::now_ns() + READY_LIMIT_NS;
        while !self.is_ready.get() {
            if runtime::now_ns() > limit_ns {
                runtime::log!("a program waits for the components, which are not ready after 30 s");
                return Err(SpawnError::Failed);
            }
            runtime::sleep(READY_STEP_NS).await;
        }
        Ok(())
    }

    async fn make(
        &self,
        name: &str,
        core: u32,
        parent: Option<DomainId>,
        channels: &[ChannelPlan],
    ) -> Result<LinuxDomain, SpawnError> {
        let limit_pages = u64::from(self.description.linux.memory_limit_pages);
        let limit_pages = self.room(name, core, FIRST_PAGES, limit_pages).await?;
        self.open(channels.iter()).await?;
        let plan = wiring::linux(&self.description, name, channels, limit_pages);
        let domain = self.monitor.create(core, plan).await.map_err(refused)?;
        let made = self.introduce(domain, core, parent, channels).await;
        if made.is_err() {
            // Its death is told to nobody: it is in no table yet.
            let _ = self.monitor.kill(core, domain, 0).await;
        }
        made
    }

    /// The servers hear of it, and its parent gets its handle.
    async fn introduce(
        &self,
        domain: DomainId,
        core: u32,
        parent: Option<DomainId>,
        channels: &[ChannelPlan],
    ) -> Result<LinuxDomain, SpawnError> {
        let told: Vec<_> =
            channels.iter().map(|plan| self.monitor.announce(plan.server_core, plan.id, domain)).collect();
        for answer in told {
            answer.await.map_err(refused)?;
        }
        let parent_handle = match parent {
            Some(parent) => self.monitor.share(core, domain, parent).await.map_err(refused)?,
            None => 0,
        };
        Ok(LinuxDomain { domain, core, parent_handle })
    }

    /// Closes channels: the borrower's core first, since the memory is the server's.
    async fn close(&self, channels: &[ChannelPlan]) {
        for core_of in [|plan: &ChannelPlan| plan.client_core, |plan: &ChannelPlan| plan.server_core] {
            let closed: Vec<_> = channels.iter().map(|plan| self.monitor.close(core_of(plan), plan.id)).collect();
            for answer in closed {
                if let Err(error) = answer.await {
                    runtime::log!("a channel stays: {error:?}");
                }
            }
        }
    }

    /// A domain died: if it was a Linux one its channels go and its maker hears of it.
    pub async fn domain_died(self: Rc<Self>, death: Death) {
        let Some(entry) = self.linux.borrow_mut().take(death.domain) else { return };
        self.close(&entry.channels).await;
        if SpawnEvents::new(&entry.client).died(death).is_err() {
            runtime::log!("{} does not take its events", entry.client.name());
        }
    }
}
