//! Channels that components ask for while they run: to whom serves a contract, as the name server tells.

use alloc::rc::Rc;
use alloc::string::String;
use core::iter;

use channel::CallError;
use contracts::endpoint::BindError;
use contracts::monitor::ChannelPlan;
use contracts::names::NamesError;
use contracts::spawn::DomainId;
use spawn_core::home;

use crate::components::NO_SET;
use crate::service::Service;

/// Most channels that a component may ask for in its life.
const BOUND_MAX: usize = 64;

impl Service {
    /// A component asks for the server of a contract with `index` nearer ones: it is connected, or told why not.
    pub async fn bind(self: Rc<Self>, client: DomainId, request: u64, contract: String, index: u32) {
        let core = home(client);
        let refusal = match self.channel_for(client, &contract, index).await {
            Ok(plan) => match self.monitor.introduce(core, plan.id, client, request).await {
                Ok(()) => {
                    self.bound.borrow_mut().push((client, plan));
                    return;
                }
                Err(error) => {
                    runtime::log!(
                        "{} does not take the channel of {contract} that it asked for: {error:?}",
                        plan.client
                    );
                    self.close(&[plan]).await;
                    BindError::Failed
                }
            },
            Err(why) => why,
        };
        if let Err(error) = self.monitor.refuse(core, client, request, refusal).await {
            runtime::log!("domain {client:#x} cannot be told that it has no {contract}: {error:?}");
        }
    }

    /// Makes a channel whose server has its end.
    async fn channel_for(&self, client: DomainId, contract: &str, index: u32) -> Result<ChannelPlan, BindError> {
        let core = home(client);
        let line = self.monitor.domain(core, client).await.ok().flatten().filter(|line| line.domain == client);
        let name = line.ok_or(BindError::Failed)?.name;
        let is_it = |(own, _): &(String, u32)| *own == name;
        let component = self.description.components.iter().find(|it| it.domains(self.cores).iter().any(is_it));
        if !component.is_some_and(|component| component.binds.iter().any(|allowed| allowed == contract)) {
            runtime::log!("{name} may not be connected to {contract}; see its binds in system/*.toml");
            return Err(BindError::NotAllowed);
        }
        if self.bound.borrow().iter().filter(|(of, _)| *of == client).count() >= BOUND_MAX {
            runtime::log!("{name} asks for more than {BOUND_MAX} channels");
            return Err(BindError::Failed);
        }
        let server = match self.names.find(contract.into(), core, index).await {
            Ok(server) if server.domain != client => server,
            Ok(_) | Err(CallError::Server(NamesError::NotFound)) => return Err(BindError::NotFound),
            Err(_) => return Err(BindError::Failed),
        };
        self.last_bound.set(self.last_bound.get() + 1);
        let plan = wiring::plan(self.last_bound.get(), contract, (&name, core), (&server.component, server.core));
        let opened = self.open(iter::once(&plan)).await.is_ok();
        if opened && self.monitor.announce(plan.server_core, plan.id, NO_SET).await.is_ok() {
            return Ok(plan);
        }
        runtime::log!("{name} cannot be connected to {}", plan.server);
        self.close(&[plan]).await;
        Err(BindError::Failed)
    }

    /// A component died: what it asked for goes.
    pub async fn unbind(self: Rc<Self>, client: DomainId) {
        let gone = self
            .bound
            .borrow_mut()
            .extract_if(.., |(of, _)| *of == client)
            .map(|(_, plan)| plan)
            .collect::<alloc::vec::Vec<_>>();
        self.close(&gone).await;
    }
}
