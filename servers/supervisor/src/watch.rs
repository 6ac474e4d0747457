//! Events of components, and what is done about them.

use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::poll_fn;
use core::pin::pin;
use core::task::{Poll, Waker};

use abi::DeathCause;
use abi::start::Entrance;
use channel::CallError;
use contracts::monitor::{MonitorClient, MonitorEvent};
use contracts::spawn::{Death, DomainId, SpawnClient, SpawnError};
use runtime::now_ns;
use supervisor_core::{Decision, Entry, Phase, STALLED, cause};
use system::{Restart, System};

/// How long a component may stand still while it is made and comes to serve.
pub const STEP_LIMIT_NS: u64 = 2_000_000_000;
/// How long somebody waits for a component to come back: a hang is noticed late on a host that has other things to do, since only time that the
/// component had counts against it.
pub const RETURN_LIMIT_NS: u64 = 10_000_000_000;
/// Such steps, each with a line that says what is waited for, until it is given up although it gets on: an emulator whose cores outnumber the
/// host's needs its time.
const STEPS_MAX: u32 = 15;
/// Status of a machine that cannot go on.
const CANNOT_GO_ON: u8 = 70;

/// The supervisor.
pub struct Supervisor {
    pub monitor: MonitorClient,
    spawn: SpawnClient,
    pub entries: RefCell<Vec<Entry>>,
    wakers: RefCell<Vec<Waker>>,
}

impl Supervisor {
    /// Nothing started yet.
    pub fn new(description: &System, cores: u32, monitor: MonitorClient, spawn: SpawnClient) -> Supervisor {
        let components = description.components.iter().filter(|component| component.name != wiring::MONITOR);
        let entry = |component: &system::Component| {
            Entry::new(&component.name, component.restart, wiring::core_of(description, &component.name, cores))
        };
        Supervisor {
            monitor,
            spawn,
            entries: RefCell::new(components.map(entry).collect()),
            wakers: RefCell::default(),
        }
    }

    /// Runs `work` on the component of that name.
    pub fn with<T>(&self, name: &str, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.entries.borrow_mut().iter_mut().find(|entry| entry.name == name).map(work)
    }

    /// What runs already: the first components, or all of them if the supervisor itself was restarted.
    pub async fn look_around(&self, cores: u32) {
        let mut wanted: Vec<u32> =
            self.entries.borrow().iter().map(|entry| entry.core).filter(|core| *core < cores).collect();
        wanted.sort_unstable();
        wanted.dedup();
        for core in wanted {
            let mut from = 0;
            while let Ok(Some(line)) = self.monitor.domain(core, from).await {
                from = line.domain + 1;
                self.with(&line.name, |entry| {
                    entry.started(line.domain, line.generation);
                    if line.serving {
                        entry.serves(now_ns());
                    }
                });
            }
        }
    }

    /// Starts what does not run, in the order of the description, and says when all serve.
    pub async fn start_all(self: Rc<Self>, is_first: bool) {
        let names: Vec<String> = self.entries.borrow().iter().map(|entry| entry.name.clone()).collect();
        let mut missing = Vec::new();
        for name in names {
            let phase = self.with(&name, |entry| entry.phase);
            if phase == Some(Phase::Waiting) && !self.start(&name, 1, Entrance::Fresh).await || !self.wait(&name).await
            {
                missing.push(name);
            }
        }
        if !missing.is_empty() {
            runtime::log!("not serving: {}", missing.join(", "));
        }
        let vital = |name: &String| self.with(name, |entry| entry.restart == Restart::Never) == Some(true);
        if missing.iter().any(vital) {
            return self.end("the system is not complete");
        }
        if is_first {
            let _ = sys::log("pelago: ready");
        }
        let _ = self.spawn.ready();
    }

    async fn start(&self, name: &str, generation: u64, entrance: Entrance) -> bool {
        let failed = match self.make(name, generation, entrance).await {
            Some(Ok(domain)) => {
                self.with(name, |entry| {
                    // It may have died again before this answer.
                    if entry.generation < generation {
                        entry.started(domain, generation);
                    }
                });
                return true;
            }
            Some(Err(error)) => format!("{error:?}"),
            None => "spawn or a core's monitor does not answer".to_string(),
        };
        runtime::log!("{name} does not start: {failed}");
        self.with(name, |entry| entry.phase = Phase::GivenUp);
        self.changed();
        false
    }

    /// Has a component made; `None` if that took too long.
    async fn make(
        &self,
        name: &str,
        generation: u64,
        entrance: Entrance,
    ) -> Option<Result<DomainId, CallError<SpawnError>>> {
        let mut made = pin!(self.spawn.component(name.to_string(), generation, entrance as u64));
        for _ in 0..STEPS_MAX {
            if let Ok(answer) = runtime::timeout(STEP_LIMIT_NS, made.as_mut()).await {
                return Some(answer);
            }
            runtime::log!("waiting for {name} to be made");
        }
        None
    }

    /// Waits until a component serves, or is done, as long as it gets on.
    async fn wait(&self, name: &str) -> bool {
        let settled = |entry: &Entry| match entry.phase {
            Phase::Serving | Phase::Finished => Some(true),
            Phase::GivenUp => Some(false),
            Phase::Waiting | Phase::Starting => None,
        };
        let mut effort = None;
        for _ in 0..STEPS_MAX {
            if let Some(serves) = self.until(name, STEP_LIMIT_NS, settled).await {
                return serves;
            }
            let before = core::mem::replace(&mut effort, self.effort(name).await);
            if effort == before {
                break;
            }
            runtime::log!("waiting for {name} to serve");
        }
        runtime::log!("{name} does not serve: it stands still");
        false
    }

    /// Pages and processor time it has used; `None` if it is not there.
    async fn effort(&self, name: &str) -> Option<(u64, u64)> {
        let (domain, core) = self.with(name, |entry| (entry.domain, entry.core))?;
        let line = self.monitor.domain(core, domain?).await.ok()??;
        (Some(line.domain) == domain).then_some((line.pages, line.cpu_ns))
    }

    /// Waits until `look` finds something about a component; `None` if that took longer.
    pub async fn until<T>(&self, name: &str, limit_ns: u64, look: impl Fn(&Entry) -> Option<T>) -> Option<T> {
        let found = poll_fn(|context| match self.with(name, |entry| look(entry)).flatten() {
            Some(found) => Poll::Ready(found),
            None => {
                let mut wakers = self.wakers.borrow_mut();
                wakers.retain(|waker| !waker.will_wake(context.waker()));
                wakers.push(context.waker().clone());
                Poll::Pending
            }
        });
        runtime::timeout(limit_ns, found).await.ok()
    }

    /// Something changed: those who wait look again.
    fn changed(&self) {
        self.wakers.take().into_iter().for_each(Waker::wake);
    }

    /// Hears what the monitors tell.
    pub async fn listen(self: Rc<Self>) {
        loop {
            match self.monitor.next_event().await {
                MonitorEvent::Died { name, generation, death, .. } => self.clone().died(name, generation, death),
                MonitorEvent::Serving { domain } => self.clone().serves(domain),
                MonitorEvent::Stalled { domain } => self.stalled(domain).await,
                MonitorEvent::Lost | MonitorEvent::PeerRestarted => runtime::log!("events of the monitor were lost"),
                MonitorEvent::Closed => return runtime::log!("the monitor is gone"),
            }
        }
    }

    /// The domain may be one whose start has not been answered yet: then its name is asked for.
    fn serves(self: Rc<Self>, domain: DomainId) {
        let now_ns = now_ns();
        let known =
            self.entries.borrow().iter().find(|entry| entry.domain == Some(domain)).map(|entry| entry.name.clone());
        runtime::spawn(async move {
            let name = match known {
                Some(name) => name,
                None => match self.monitor.domain((domain >> 48) as u32, domain).await {
                    Ok(Some(line)) if line.domain == domain => {
                        self.with(&line.name, |entry| entry.started(domain, line.generation));
                        line.name
                    }
                    _ => return,
                },
            };
            self.with(&name, |entry| {
                entry.serves(now_ns);
            });
            self.changed();
        });
    }

    async fn stalled(&self, domain: DomainId) {
        let found = self.entries.borrow_mut().iter_mut().find(|entry| entry.domain == Some(domain)).map(|entry| {
            entry.stalls(now_ns());
            (entry.name.clone(), entry.core)
        });
        let Some((name, core)) = found else { return };
        runtime::log!("{name} does not look at its work: it is ended");
        if let Err(error) = self.monitor.kill(core, domain, STALLED).await {
            runtime::log!("{name} cannot be ended: {error:?}");
        }
    }

    fn died(self: Rc<Self>, name: String, generation: u64, death: Death) {
        let now_ns = now_ns();
        let decision = self.with(&name, |entry| {
            entry.generation = entry.generation.max(generation);
            entry.died(&death, now_ns)
        });
        self.changed();
        let why = cause(&death);
        if decision.is_some() && DeathCause::decode(death.cause) == Some(DeathCause::Exception) {
            // The kernel, which printed the whole backtrace, does not know names.
            let _ = sys::log(&format!("bt: {:#x} {name}", death.rip));
        }
        match decision {
            // A Linux domain, or one of an earlier life.
            None => {}
            Some(Decision::Finished) => runtime::log!("{name} is done"),
            Some(Decision::GiveUp) => runtime::log!("{name} died ({why}), too often to be started again"),
            Some(Decision::End) => self.end(&format!("{name} ended ({why}) and its state cannot be recovered")),
            Some(Decision::Restart(generation)) => {
                runtime::spawn(async move {
                    if self.start(&name, generation, Entrance::Recover).await && self.wait(&name).await {
                        let us = self.with(&name, |entry| entry.recovery_ns / 1000).unwrap_or(0);
                        runtime::log!("{name} restarted, generation {generation}, {why}, {us} us");
                    }
                });
            }
        }
    }

    fn end(&self, reason: &str) {
        runtime::log!("{reason}: the machine ends");
        let _ = self.monitor.power_off(CANNOT_GO_ON);
    }
}
