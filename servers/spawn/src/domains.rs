//! Linux domains: made with a proxy and channels to its servers, taken apart after they died.

use alloc::format;
use alloc::rc::Rc;

use channel::{CallError, Peer, client_id, queued};
use contracts::monitor::{ChannelPlan, Created, MonitorError};
use contracts::spawn::{Death, DomainId, LinuxDomain, SpawnError, SpawnEvents};
use spawn_core::{ChannelSet, LinuxEntry, close_all, home};

use crate::service::Service;

/// How long the first domain waits for the components.
const READY_LIMIT_NS: u64 = 30_000_000_000;
/// Pages that must be free before a program is started: proxy, channels on this core, something to
/// begin with, and the core's reserve.
const FIRST_PAGES: u64 = 768;

impl Service {
    /// Makes a Linux domain.
    pub async fn linux(
        &self,
        client: &Peer,
        core: Option<u32>,
        parent: Option<DomainId>,
        spare_pages: u64,
    ) -> Result<LinuxDomain, SpawnError> {
        self.wait_ready().await?;
        let linux = &self.description.linux;
        let core = core.or(parent.map(home)).or(linux.core.core_on(self.cores)).unwrap_or(0);
        if core >= self.cores {
            return Err(SpawnError::NoCore);
        }
        self.linux_changed.until(|| self.linux.borrow().may_begin().then_some(())).await;
        let mut set = self.linux.borrow_mut().begin(core).ok_or(SpawnError::NoMemory)?;
        let first_pages = FIRST_PAGES.saturating_add(spare_pages);
        let made = self.make_linux(&mut set, parent, first_pages).await;
        // Who waits for that looks when it is entered below.
        self.linux_changed.changed();
        match made {
            Ok(made) => {
                self.linux.borrow_mut().made(made.domain, LinuxEntry { set, client: client.clone() });
                Ok(made)
            }
            Err(error) => {
                self.linux.borrow_mut().failed();
                self.put_back(set).await;
                Err(error)
            }
        }
    }

    async fn wait_ready(&self) -> Result<(), SpawnError> {
        let ready = self.ready.until(|| self.is_ready.get().then_some(()));
        runtime::timeout(READY_LIMIT_NS, ready).await.map_err(|_| {
            runtime::log!("a program waits for the components, which are not ready after 30 s");
            SpawnError::Failed
        })
    }

    async fn make_linux(
        &self,
        set: &mut ChannelSet,
        parent: Option<DomainId>,
        first_pages: u64,
    ) -> Result<LinuxDomain, SpawnError> {
        let (name, core) = (format!("linux-{}", set.number), set.core);
        if set.channels.is_empty() {
            let first = wiring::RUN_TIME_CHANNELS + u64::from(set.number) * self.description.linux.uses.len() as u64;
            let channels = wiring::linux_channels(&self.description, self.cores, &name, core, first);
            if let Err(error) = self.connect(&channels, set.number).await {
                self.close(&channels).await;
                return Err(error);
            }
            set.channels = channels;
        }
        let plan = wiring::linux(&self.description, &name, &set.channels, first_pages, parent);
        let answer = queued(|| self.monitor.create(core, plan.clone())).await;
        let Created { domain, generation, parent_handles } =
            self.or_with_room(core, &plan, first_pages, answer).await?;
        Ok(LinuxDomain { domain, core, client: client_id(set.number, generation), parent_handles })
    }

    /// Makes the channels of a set, and the servers take their ends. A server that ended is brought
    /// its own when it begins again: nothing is refused for that, and until then who asks it waits.
    async fn connect(&self, channels: &[ChannelPlan], set: u32) -> Result<(), SpawnError> {
        self.open(channels.iter()).await?;
        for plan in channels {
            match queued(|| self.monitor.announce(plan.server_core, plan.id, set)).await {
                Ok(()) | Err(CallError::Server(MonitorError::NotFound)) => {}
                Err(error) => return Err(self.refused(error)),
            }
        }
        Ok(())
    }

    /// A set without a domain is kept for the next.
    async fn put_back(&self, set: ChannelSet) {
        let over = if set.channels.is_empty() { None } else { self.linux.borrow_mut().keep(set) };
        if let Some(set) = over {
            self.close(&set.channels).await;
        }
    }

    /// Closes channels, and those that could not be closed before.
    pub(crate) async fn close(&self, channels: &[ChannelPlan]) {
        let mut all = self.unconfirmed.take();
        all.extend_from_slice(channels);
        let left = close_all(all, async |core, id| match queued(|| self.monitor.close(core, id)).await {
            // With a core its channels are gone, too.
            Ok(()) | Err(CallError::Server(MonitorError::NoCore)) => true,
            Err(error) => {
                self.refusals.log(format!("channel {id} stays on core {core}, to be closed later: {error:?}"));
                false
            }
        });
        let left = left.await;
        self.unconfirmed.borrow_mut().extend(left);
    }

    /// A domain died: if it was a Linux one its maker hears of it, and its channels are free for
    /// another.
    pub async fn domain_died(self: Rc<Self>, death: Death) {
        let Some(entry) = self.linux.borrow_mut().take(death.domain) else { return };
        if SpawnEvents::new(&entry.client).died(death).is_err() {
            self.refusals.log(format!("{} does not take its events", entry.client.name()));
        }
        self.put_back(entry.set).await;
    }
}
