//! The `supervisor` contract: what the console shows and does.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

use channel::{CallError, Peer};
use contracts::endpoint::InjectedFault;
use contracts::monitor::{CoreUse, FaultKind, MonitorError};
use contracts::spawn::DomainId;
use contracts::supervisor::*;
use runtime::now_ns;
use supervisor_core::{Dispatcher, Entry, Phase};
use system::Restart;

use crate::watch::{RETURN_LIMIT_NS, Supervisor, answer};

/// How often it is looked whether a core is back.
const CORE_STEP_NS: u64 = 5_000_000;
/// Status of a component that was ended on purpose: as a shell shows a program ended by SIGKILL.
const KILLED: u64 = 137;

/// What `chaos` is done to.
enum Target {
    /// The monitor of a core.
    Monitor(u32),
    /// A component, or a dispatcher of one.
    Domain { component: String, core: u32, domain: DomainId },
}

/// The service as peers reach it.
pub struct Shared(pub Rc<Supervisor>);

impl SupervisorServer for Shared {
    async fn component(&self, _: &Peer, index: u32) -> Result<Option<ComponentLine>, SupervisorError> {
        let found = self.0.entries.borrow().get(index as usize).map(|entry| {
            let place = match &entry.dispatchers[..] {
                [one] if !entry.is_program => Place::Core(one.core),
                all => Place::Cores(all.len() as u32),
            };
            ComponentLine {
                name: entry.name.clone(),
                place,
                generation: entry.generation,
                running: matches!(entry.phase, Phase::Starting | Phase::Serving),
                pages: 0,
                cpu_ns: 0,
                last_recovery_us: entry.recovery_ns / 1000,
            }
        });
        let Some(mut component) = found else { return Ok(None) };
        for line in self.0.lines(&component.name).await {
            component.pages += line.pages;
            component.cpu_ns += line.cpu_ns;
        }
        Ok(Some(component))
    }

    async fn dispatcher(&self, _: &Peer, index: u32, number: u32) -> Result<Option<DispatcherLine>, SupervisorError> {
        let found = self.0.entries.borrow().get(index as usize).and_then(|entry| {
            let one = entry.dispatchers.get(number as usize)?;
            Some(one.clone())
        });
        let Some(Dispatcher { name, core, domain, serves }) = found else { return Ok(None) };
        let line = match domain {
            Some(domain) => self.0.line(core, domain).await,
            None => None,
        };
        let state = match line {
            Some(_) if serves => DispatcherState::Serving,
            Some(_) => DispatcherState::Starting,
            None => DispatcherState::Ended,
        };
        let (pages, cpu_ns) = line.map_or((0, 0), |line| (line.pages, line.cpu_ns));
        Ok(Some(DispatcherLine { name, core, state, pages, cpu_ns }))
    }

    async fn chaos(&self, _: &Peer, what: Chaos, name: String) -> Result<Recovery, SupervisorError> {
        match self.target(&name)? {
            Target::Monitor(core) => self.break_monitor(what, core).await,
            Target::Domain { component, core, domain } => {
                let generation = self.0.with(&component, |entry| entry.generation).unwrap_or_default();
                self.inject_fault(what, &component, core, domain, 0).await?;
                self.again(&component, generation).await
            }
        }
    }

    async fn chaos_later(&self, _: &Peer, what: Chaos, name: String, after_ns: u64) -> Result<(), SupervisorError> {
        match self.target(&name)? {
            Target::Monitor(core) => self.inject_monitor_fault(what, core, after_ns),
            Target::Domain { component, core, domain } => {
                self.inject_fault(what, &component, core, domain, after_ns).await
            }
        }
    }

    async fn core(&self, _: &Peer, core: u32) -> Result<Option<CoreLine>, SupervisorError> {
        if sys::pcore_stat(core.into()).is_err() {
            return Ok(None);
        }
        let Ok(CoreUse { runs, claimed_by, programs_ns }) = answer(self.0.monitor.core_use(core)).await else {
            return Err(SupervisorError::TimedOut);
        };
        let mut line = CoreLine { runs, claimed_by, programs_ns, used_pages: 0, free_pages: 0, objects: Vec::new() };
        if runs == CoreRuns::Monitor {
            // A core that comes up or halts just now has no monitor to tell.
            if let Ok(memory) = answer(self.0.monitor.memory(core)).await {
                (line.used_pages, line.free_pages) = (memory.used_pages, memory.free_pages);
            }
            line.objects = answer(self.0.monitor.objects(core)).await.unwrap_or_default();
        }
        Ok(Some(line))
    }

    async fn core_time(&self, _: &Peer, core: u32) -> Result<Option<CoreTime>, SupervisorError> {
        sys::pcore_stat(core.into()).map_err(|_| SupervisorError::NotFound)?;
        match answer(self.0.monitor.core_time(core)).await {
            Ok(time) => Ok(Some(time)),
            Err(CallError::Server(MonitorError::NoCore)) => Ok(None),
            Err(_) => Err(SupervisorError::TimedOut),
        }
    }

    async fn ledger(&self, _: &Peer, core: u32, from: u64) -> Result<Option<LedgerLine>, SupervisorError> {
        answer(self.0.monitor.ledger(core, from)).await.map_err(|_| SupervisorError::TimedOut)
    }

    async fn work(&self, _: &Peer, core: u32, domain: u64) -> Result<Option<Work>, SupervisorError> {
        match answer(self.0.monitor.work(core, domain)).await {
            Ok(work) => Ok(Some(work)),
            Err(CallError::Server(_)) => Ok(None),
            Err(_) => Err(SupervisorError::TimedOut),
        }
    }

    async fn change_core(&self, _: &Peer, core: u32, run: bool) -> Result<(), SupervisorError> {
        self.0.monitor.change_core(core, run).await.map_err(|error| match error {
            CallError::Server(MonitorError::Busy) => SupervisorError::Busy,
            CallError::Server(MonitorError::NoCore) => SupervisorError::NotFound,
            _ => SupervisorError::TimedOut,
        })
    }

    async fn serving(&self, peer: &Peer, name: String) -> Result<ComponentLine, SupervisorError> {
        let place = self.0.entries.borrow().iter().position(|entry| entry.name == name);
        let index = place.ok_or(SupervisorError::NotFound)?;
        let serves = |entry: &Entry| (entry.phase == Phase::Serving).then_some(());
        self.0.until(&name, RETURN_LIMIT_NS, serves).await.ok_or(SupervisorError::TimedOut)?;
        self.component(peer, index as u32).await?.ok_or(SupervisorError::NotFound)
    }
}

impl Shared {
    /// Who has that name, if it is started again when it dies.
    fn target(&self, name: &str) -> Result<Target, SupervisorError> {
        match name.strip_prefix("monitor-").and_then(|core| core.parse().ok()) {
            Some(0) => return Err(SupervisorError::NotRestartable),
            Some(core) => return Ok(Target::Monitor(core)),
            None => {}
        }
        // A component by its name, or one of its dispatchers.
        let (component, number) = match self.0.with(name, |_| ()) {
            Some(()) => (name.into(), 0),
            None => self.0.place(name).ok_or(SupervisorError::NotFound)?,
        };
        let found = self.0.with(&component, |entry| (entry.dispatchers.get(number).cloned(), entry.restart));
        let (Some(one), restart) = found.ok_or(SupervisorError::NotFound)? else {
            return Err(SupervisorError::NotFound);
        };
        if restart == Restart::Never {
            return Err(SupervisorError::NotRestartable);
        }
        Ok(Target::Domain { component, core: one.core, domain: one.domain.ok_or(SupervisorError::NotFound)? })
    }

    /// Does it to a domain of a component.
    async fn inject_fault(
        &self,
        what: Chaos,
        component: &str,
        core: u32,
        domain: DomainId,
        after_ns: u64,
    ) -> Result<(), SupervisorError> {
        let by_hang = matches!(what, Chaos::Hang | Chaos::Block | Chaos::Worker);
        self.0.with(component, |entry| entry.is_broken(by_hang, now_ns() + after_ns));
        let how = match what {
            Chaos::Kill => FaultKind::Kill(KILLED),
            Chaos::Fault => FaultKind::Inject(InjectedFault::Fault),
            Chaos::Hang => FaultKind::Inject(InjectedFault::Hang),
            Chaos::Block => FaultKind::Inject(InjectedFault::Block),
            Chaos::Worker => FaultKind::Inject(InjectedFault::Worker),
        };
        answer(self.0.monitor.inject_fault(core, domain, how, after_ns)).await.map_err(|_| SupervisorError::NotFound)
    }

    /// Does it to the monitor of a core.
    fn inject_monitor_fault(&self, what: Chaos, core: u32, after_ns: u64) -> Result<(), SupervisorError> {
        let how = match what {
            Chaos::Kill => InjectedFault::Panic,
            Chaos::Fault => InjectedFault::Fault,
            Chaos::Hang => InjectedFault::Hang,
            Chaos::Block => InjectedFault::Block,
            // A monitor has no workers.
            Chaos::Worker => return Err(SupervisorError::NotFound),
        };
        self.0.monitor.inject_monitor_fault(core, how, after_ns).map_err(|_| SupervisorError::TimedOut)
    }

    /// Breaks the monitor of a core, and waits until the core was lost and runs again.
    async fn break_monitor(&self, what: Chaos, core: u32) -> Result<Recovery, SupervisorError> {
        let uses = answer(self.0.monitor.core_use(core)).await;
        if !uses.is_ok_and(|uses| uses.runs == CoreRuns::Monitor) {
            return Err(SupervisorError::NotFound);
        }
        let (before, start_ns) = (self.0.losses(core), now_ns());
        self.inject_monitor_fault(what, core, 0)?;
        let again = async {
            self.0.lost_core.until(|| (self.0.losses(core) > before).then_some(())).await;
            while answer(self.0.monitor.memory(core)).await.is_err() {
                runtime::sleep(CORE_STEP_NS).await;
            }
        };
        runtime::timeout(RETURN_LIMIT_NS, again).await.map_err(|_| SupervisorError::TimedOut)?;
        let recovery_us = (now_ns() - start_ns) / 1000;
        Ok(Recovery { recovery_us, generation: self.0.losses(core) + 1, noticed_us: 0 })
    }

    /// Waits until a later generation serves.
    async fn again(&self, name: &str, before: u64) -> Result<Recovery, SupervisorError> {
        let again = |entry: &Entry| {
            let Entry { generation, recovery_ns, noticed_ns, .. } = *entry;
            let is_back = entry.phase == Phase::Serving && generation > before;
            is_back.then_some(Recovery { recovery_us: recovery_ns / 1000, generation, noticed_us: noticed_ns / 1000 })
        };
        self.0.until(name, RETURN_LIMIT_NS, again).await.ok_or(SupervisorError::TimedOut)
    }
}
