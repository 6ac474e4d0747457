//! Channels that components ask for while they run: to whom serves a contract, as the name server
//! tells.
//!
//! Invariants: a channel is in `bound` from before it is made until it is closed, so that it is
//! closed if either side ends meanwhile, and nobody has too many; every request is answered. How
//! many requests of a component are under way at once is bounded by its monitor.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::iter;

use channel::CallError;
use contracts::endpoint::BindError;
use contracts::monitor::{ChannelId, ChannelPlan};
use contracts::names::{Named, NamesError};
use contracts::spawn::DomainId;
use spawn_core::home;

use crate::clients::NO_SET;
use crate::service::Service;

/// Most channels that a component may ask for in its life.
const BOUND_MAX: usize = 64;
/// How long the name server may take: longer than its restart.
const NAMES_LIMIT_NS: u64 = 1_000_000_000;
/// When one that is being told is asked again.
const AGAIN_NS: u64 = 2_000_000;

impl Service {
    /// A component asks for the server of a contract with `index` nearer ones: it is connected, or
    /// told why not.
    pub async fn bind(self: Rc<Self>, client: DomainId, request: u64, contract: String, index: u32) {
        let core = home(client);
        let refusal = match self.plan_for(client, &contract, index).await {
            Ok(plan) if self.connect_bound(&plan, client, request).await => return,
            Ok(plan) => {
                runtime::log!("{} cannot be connected to {}", plan.client, plan.server);
                self.end_bound(|_, id| id == plan.id).await;
                BindError::Failed
            }
            Err(why) => why,
        };
        if let Err(error) = self.monitor.refuse(core, client, request, refusal).await {
            runtime::log!("domain {client:#x} cannot be told that it has no {contract}: {error:?}");
        }
    }

    /// Makes the channel, and hands each side its end.
    async fn connect_bound(&self, plan: &ChannelPlan, client: DomainId, request: u64) -> bool {
        self.open(iter::once(plan)).await.is_ok()
            && self.monitor.announce(plan.server_core, plan.id, NO_SET).await.is_ok()
            && self.monitor.introduce(plan.client_core, plan.id, client, request).await.is_ok()
    }

    /// Whether the component may have such a channel, and to whom; it counts from now on.
    async fn plan_for(&self, client: DomainId, contract: &str, index: u32) -> Result<ChannelPlan, BindError> {
        let core = home(client);
        let line = self.monitor.domain(core, client).await.ok().flatten().filter(|line| line.domain == client);
        let name = line.ok_or(BindError::Failed)?.name;
        let is_it = |(own, _): &(String, u32)| *own == name;
        let component = self.description.components.iter().find(|it| it.domains(self.cores).iter().any(is_it));
        if !component.is_some_and(|component| component.binds.iter().any(|allowed| allowed == contract)) {
            runtime::log!("{name} may not be connected to {contract}; see its binds in system/*.toml");
            return Err(BindError::NotAllowed);
        }
        let found = runtime::timeout(NAMES_LIMIT_NS, self.named(contract, core, index)).await;
        let server = match found {
            Ok(Ok(server)) if server.domain != client => server,
            Ok(Ok(_) | Err(CallError::Server(NamesError::NotFound))) => return Err(BindError::NotFound),
            _ => return Err(BindError::Failed),
        };
        let mut bound = self.bound.borrow_mut();
        if bound.iter().filter(|(of, _)| *of == client).count() >= BOUND_MAX {
            runtime::log!("{name} asks for more than {BOUND_MAX} channels");
            return Err(BindError::Failed);
        }
        self.last_bound.set(self.last_bound.get() + 1);
        let plan = wiring::plan(self.last_bound.get(), contract, (&name, core), (&server.component, server.core));
        bound.push((client, plan.clone()));
        Ok(plan)
    }

    /// Asks the name server, again while it is being told.
    async fn named(&self, contract: &str, core: u32, index: u32) -> Result<Named, CallError<NamesError>> {
        loop {
            match self.names.find(contract.into(), core, index).await {
                Err(CallError::Server(NamesError::NotYet)) => runtime::sleep(AGAIN_NS).await,
                answer => return answer,
            }
        }
    }

    /// A component died: what it asked for goes.
    pub async fn unbind(self: Rc<Self>, client: DomainId) {
        self.end_bound(|of, _| of == client).await;
    }

    async fn end_bound(&self, is_it: impl Fn(DomainId, ChannelId) -> bool) {
        let gone: Vec<_> = self.bound.borrow_mut().extract_if(.., |(of, plan)| is_it(*of, plan.id)).collect();
        let plans: Vec<ChannelPlan> = gone.into_iter().map(|(_, plan)| plan).collect();
        self.close(&plans).await;
    }
}
