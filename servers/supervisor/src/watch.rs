//! Events of components, and what is done about them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::pin::pin;
use core::task::{Poll, Waker};

use abi::Handle;
use abi::start::Entrance;
use channel::CallError;
use contracts::monitor::{DomainLine, MonitorClient, MonitorError, MonitorEvent, STALLED};
use contracts::spawn::{Death, DomainId, SpawnClient, SpawnError, SpawnEvent};
use runtime::{LogLimit, Watch, now_ns};
use supervisor_core::{Decision, Entry, Phase, cause};
use system::{Restart, System};

/// How long a component may stand still while it is made and comes to serve.
pub const STEP_LIMIT_NS: u64 = 2_000_000_000;
/// How long somebody waits for a component to come back: a hang is noticed late on a host that has
/// other things to do, since only time that the component had counts against it.
pub const RETURN_LIMIT_NS: u64 = 10_000_000_000;
/// Such steps, each with a line that says what is waited for, until it is given up although it gets
/// on: an emulator whose cores outnumber the host's needs its time.
pub const STEPS_MAX: usize = 15;
/// Further ones for each dispatcher of a program: its dispatchers wait for each other, and the
/// host's processors serve one after the other.
pub const STEPS_PER_DISPATCHER: usize = 2;
/// How long a core is left alone that does not say what it runs.
const LOOK_AGAIN_NS: u64 = 100_000_000;
/// Requests to the monitor at once: a part of what its channel lets wait.
const ASKED_AT_ONCE: usize = 64;
/// How long a monitor may take for what it answers by itself: one that is stuck holds up nobody
/// else.
const ANSWER_LIMIT_NS: u64 = 2_000_000_000;
/// Status of a machine that cannot go on.
const CANNOT_GO_ON: u8 = 70;

/// What came of a start.
enum Started {
    Yes,
    /// Something is short that may be there later; what, in words.
    Later(String),
    /// This machine or its archive has not what it needs.
    Never,
}

/// A monitor's answer, if it comes in time.
pub async fn answer<T>(
    asked: impl Future<Output = Result<T, CallError<MonitorError>>>,
) -> Result<T, CallError<MonitorError>> {
    runtime::timeout(ANSWER_LIMIT_NS, asked).await.unwrap_or(Err(CallError::Server(MonitorError::Away)))
}

/// The supervisor.
pub struct Supervisor {
    pub monitor: MonitorClient,
    spawn: SpawnClient,
    /// The right to write in the machine's name.
    power: Handle,
    pub entries: RefCell<Vec<Entry>>,
    has_started_all: Cell<bool>,
    started: Watch,
    wakers: RefCell<Vec<Waker>>,
    /// How often cores were lost, and a change of that.
    lost_cores: RefCell<BTreeMap<u32, u64>>,
    pub lost_core: Watch,
    /// What is told of each component's restarts.
    lines: RefCell<BTreeMap<String, LogLimit>>,
}

impl Supervisor {
    /// Nothing started yet.
    pub fn new(
        description: &System,
        cores: u32,
        monitor: MonitorClient,
        spawn: SpawnClient,
        power: Handle,
    ) -> Supervisor {
        let components = description.components.iter().filter(|component| component.name != wiring::MONITOR);
        Supervisor {
            monitor,
            spawn,
            power,
            has_started_all: Cell::new(false),
            started: Watch::default(),
            entries: RefCell::new(components.map(|component| Entry::new(component, cores)).collect()),
            wakers: RefCell::default(),
            lost_cores: RefCell::default(),
            lost_core: Watch::default(),
            lines: RefCell::default(),
        }
    }

    /// How often a core was lost since the supervisor was started.
    pub fn losses(&self, core: u32) -> u64 {
        self.lost_cores.borrow().get(&core).copied().unwrap_or_default()
    }

    /// Runs `work` on the component of that name.
    pub fn with<T>(&self, name: &str, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.entries.borrow_mut().iter_mut().find(|entry| entry.name == name).map(work)
    }

    /// The component and the number of its dispatcher whose domain has that name.
    pub fn place(&self, name: &str) -> Option<(String, usize)> {
        let entries = self.entries.borrow();
        entries.iter().find_map(|entry| {
            let number = entry.dispatchers.iter().position(|dispatcher| dispatcher.name == name)?;
            Some((entry.name.clone(), number))
        })
    }

    /// The component of a domain, if its start was answered.
    fn known(&self, domain: DomainId) -> Option<String> {
        let has_it = |entry: &&Entry| entry.dispatchers.iter().any(|dispatcher| dispatcher.domain == Some(domain));
        self.entries.borrow().iter().find(has_it).map(|entry| entry.name.clone())
    }

    /// The component of a domain. Of one whose start has not been answered yet the name is asked
    /// for.
    async fn identify(&self, domain: DomainId) -> Option<String> {
        let known = self.known(domain);
        if known.is_some() {
            return known;
        }
        let line = self.line((domain >> 48) as u32, domain).await?;
        let (name, number) = self.place(&line.name)?;
        self.with(&name, |entry| entry.started(number, domain, line.generation));
        Some(name)
    }

    /// What the monitor knows of a domain, if it lives.
    pub async fn line(&self, core: u32, domain: DomainId) -> Option<DomainLine> {
        let line = answer(self.monitor.domain(core, domain)).await.ok().flatten();
        line.filter(|line| line.domain == domain)
    }

    /// What the monitors know of a component's dispatchers that live.
    pub async fn lines(&self, name: &str) -> Vec<DomainLine> {
        let living = |entry: &mut Entry| {
            entry.dispatchers.iter().filter_map(|one| Some((one.core, one.domain?))).collect::<Vec<_>>()
        };
        let mut lines = Vec::new();
        for some in self.with(name, living).unwrap_or_default().chunks(ASKED_AT_ONCE) {
            let asked: Vec<_> = some.iter().map(|(core, domain)| self.monitor.domain(*core, *domain)).collect();
            for ((_, domain), answer) in some.iter().zip(asked) {
                lines.extend(self::answer(answer).await.ok().flatten().filter(|line| line.domain == *domain));
            }
        }
        lines
    }

    /// What runs already: the first components, or all of them if the supervisor itself was
    /// restarted.
    pub async fn probe_all(&self) {
        let wanted: BTreeSet<u32> = {
            let entries = self.entries.borrow();
            entries.iter().flat_map(|entry| &entry.dispatchers).map(|dispatcher| dispatcher.core).collect()
        };
        for core in wanted {
            let mut from = 0;
            while let Ok(Some(line)) = answer(self.monitor.domain(core, from)).await {
                from = line.domain + 1;
                let Some((name, number)) = self.place(&line.name) else { continue };
                self.with(&name, |entry| {
                    entry.started(number, line.domain, line.generation);
                    if line.serving {
                        entry.serves(line.domain, now_ns());
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
            let begun = self.clone().begin(&name, is_first).await;
            if begun && self.wait(&name, None).await {
                continue;
            }
            if begun && !is_first {
                let generation = self.with(&name, |entry| entry.generation).unwrap_or_default();
                self.end_silent(&name, generation).await;
            }
            missing.push(name);
        }
        if !missing.is_empty() {
            runtime::log!("not serving: {}", missing.join(", "));
        }
        // A vital one of which a successor does not hear in time may run; if it died, that is told.
        let vital = |name: &String| self.with(name, |entry| entry.restart == Restart::Never) == Some(true);
        if is_first && missing.iter().any(vital) {
            return self.end("the system is not complete");
        }
        if is_first {
            let _ = sys::log_of_machine("ready", self.power);
        }
        let _ = self.spawn.ready();
        self.has_started_all.set(true);
        self.started.changed();
    }

    /// Waits until all that the description has was started.
    pub async fn all_started(&self) {
        self.started.until(|| self.has_started_all.get().then_some(())).await;
    }

    /// Starts a component that does not run; one that ended while the supervisor was away has its
    /// end dealt with as any other.
    async fn begin(self: Rc<Self>, name: &str, is_first: bool) -> bool {
        if self.with(name, |entry| entry.phase) != Some(Phase::Waiting) {
            return true;
        }
        let end = if is_first { Ok(None) } else { self.last_end(name).await };
        match end {
            Ok(Some((generation, death))) => self.ended(name, generation, death),
            Err(error) => {
                runtime::log!("{name}: nobody knows whether it runs ({error:?})");
                runtime::spawn(self.clone().find_out(name.to_string()));
                return false;
            }
            Ok(None) => match self.start(name, 1, Entrance::Fresh).await {
                Started::Yes => return true,
                Started::Never => return false,
                Started::Later(why) => {
                    let after_ns = self.refused(name, &why);
                    runtime::spawn(self.clone().start_later(name.to_string(), 1, Entrance::Fresh, after_ns));
                    return false;
                }
            },
        }
        true
    }

    /// Begins a component of whose core nothing was to be heard, once there is. Its death, if that
    /// is told meanwhile, is dealt with as any other.
    async fn find_out(self: Rc<Self>, name: String) {
        while self.with(&name, |entry| entry.phase) == Some(Phase::Waiting) {
            runtime::sleep(LOOK_AGAIN_NS).await;
            self.probe_all().await;
            let Ok(end) = self.last_end(&name).await else { continue };
            if self.with(&name, |entry| entry.phase) != Some(Phase::Waiting) {
                return;
            }
            return match end {
                Some((generation, death)) => self.ended(&name, generation, death),
                None => self.start_later(name, 1, Entrance::Fresh, 0).await,
            };
        }
    }

    /// How a component that does not run ended last, by what the monitors kept; a program by any
    /// death of its last generation. An error if one of them does not say.
    async fn last_end(&self, name: &str) -> Result<Option<(u64, Death)>, CallError<MonitorError>> {
        let places =
            |entry: &mut Entry| entry.dispatchers.iter().map(|one| (one.core, one.name.clone())).collect::<Vec<_>>();
        let mut last = None;
        for some in self.with(name, places).unwrap_or_default().chunks(ASKED_AT_ONCE) {
            let asked: Vec<_> = some.iter().map(|(core, name)| self.monitor.last_end(*core, name.clone())).collect();
            for answer in asked {
                let end = self::answer(answer).await?;
                last = end.into_iter().chain(last).max_by_key(|(generation, _)| *generation);
            }
        }
        Ok(last)
    }

    async fn start(&self, name: &str, generation: u64, entrance: Entrance) -> Started {
        self.with(name, |entry| entry.begins(generation));
        let (failed, is_final) = match self.make(name, generation, entrance).await {
            Some(Ok(domain)) => {
                self.with(name, |entry| entry.started(0, domain, generation));
                self.find_dispatchers(name, generation).await;
                return Started::Yes;
            }
            // Our predecessor had asked for it.
            Some(Err(CallError::Server(SpawnError::Busy))) if self.is_there(name).await => return Started::Yes,
            Some(Err(error)) => (format!("{error:?}"), self.is_final(name, &error)),
            None => ("spawn or a core's monitor does not answer".to_string(), false),
        };
        let why = format!("does not start: {failed}");
        if !is_final {
            return Started::Later(why);
        }
        runtime::log!("{name} {why}");
        self.with(name, |entry| entry.phase = Phase::GivenUp);
        self.changed();
        Started::Never
    }

    /// Whether a refusal to start a component will be the same at any time.
    fn is_final(&self, name: &str, error: &CallError<SpawnError>) -> bool {
        match error {
            CallError::Server(SpawnError::BadProgram) => true,
            CallError::Server(SpawnError::NoCore) => {
                self.with(name, |entry| entry.dispatchers.is_empty()).unwrap_or(true)
            }
            _ => false,
        }
    }

    /// A start was refused; gives how long to wait, and tells that.
    fn refused(&self, name: &str, why: &str) -> u64 {
        let after_ns = self.with(name, |entry| entry.refused(now_ns())).unwrap_or_default();
        self.tell_of_wait(name, why, after_ns);
        after_ns
    }

    fn tell_of_wait(&self, name: &str, why: &str, after_ns: u64) {
        if after_ns > 0 {
            let after_ms = after_ns.div_ceil(1_000_000);
            self.lines_of(name).log(format!("{name} {why}; tried again in {after_ms} ms"));
        }
    }

    /// What is told of a component's restarts, a line a second at most.
    fn lines_of(&self, name: &str) -> LogLimit {
        self.lines.borrow_mut().entry(name.to_string()).or_default().clone()
    }

    /// Starts a component, again and again if it must be; whether it runs. If a later generation
    /// ended meanwhile, the task that starts that one again does it.
    async fn start_at_last(&self, name: &str, generation: u64, entrance: Entrance, mut after_ns: u64) -> bool {
        loop {
            if after_ns > 0 {
                runtime::sleep(after_ns).await;
            }
            if self.with(name, |entry| entry.is_over(generation)) == Some(true) {
                return false;
            }
            match self.start(name, generation, entrance).await {
                Started::Yes => return true,
                Started::Never => return false,
                Started::Later(why) => after_ns = self.refused(name, &why),
            }
        }
    }

    /// Starts a component that has to wait for something.
    async fn start_later(self: Rc<Self>, name: String, generation: u64, entrance: Entrance, after_ns: u64) {
        if self.start_at_last(&name, generation, entrance, after_ns).await && !self.wait(&name, Some(generation)).await
        {
            self.end_silent(&name, generation).await;
        }
    }

    /// Starts a component that died.
    async fn restart(self: Rc<Self>, name: String, generation: u64, after_ns: u64, why: String) {
        if !self.start_at_last(&name, generation, Entrance::Recover, after_ns).await {
            return;
        }
        if !self.wait(&name, Some(generation)).await {
            return self.end_silent(&name, generation).await;
        }
        let us = self.with(&name, |entry| entry.recovery_ns / 1000).unwrap_or(0);
        self.lines_of(&name).log(format!("{name} restarted, generation {generation}, {why}, {us} us"));
    }

    /// Ends a generation that runs and has not come to serve, so that another is started.
    async fn end_silent(&self, name: &str, generation: u64) {
        for (core, domain) in self.with(name, |entry| entry.silent(generation)).unwrap_or_default() {
            if let Err(error) = answer(self.monitor.kill(core, domain, STALLED)).await {
                runtime::log!("{name} cannot be ended: {error:?}");
            }
        }
    }

    /// Whether a component runs, by what the monitors say.
    async fn is_there(&self, name: &str) -> bool {
        self.probe_all().await;
        self.with(name, |entry| entry.dispatchers.iter().any(|one| one.domain.is_some())) == Some(true)
    }

    /// Events did not come: asks who serves, and who has ended.
    async fn look_again(self: Rc<Self>) {
        self.probe_all().await;
        let running = |entry: &Entry| {
            matches!(entry.phase, Phase::Starting | Phase::Serving).then(|| (entry.name.clone(), entry.generation))
        };
        let all: Vec<_> = self.entries.borrow().iter().filter_map(running).collect();
        for (name, generation) in all {
            // Of a program that is ending spawn has the rest ended.
            let end = self.last_end(&name).await.ok().flatten().filter(|(of, _)| *of >= generation);
            if let Some((generation, death)) = end
                && self.lines(&name).await.is_empty()
            {
                self.clone().ended(&name, generation, death);
            }
        }
        self.changed();
    }

    /// Asks for the domains of a program that was started.
    async fn find_dispatchers(&self, name: &str, generation: u64) {
        let count = self.with(name, |entry| if entry.is_program { entry.dispatchers.len() } else { 0 }).unwrap_or(0);
        let mut from = 0;
        while from < count {
            let asked = self.spawn.dispatchers(name.to_string(), generation, from as u32).await;
            // It may have ended meanwhile, which is told.
            let Ok(some) = asked else { return };
            if some.is_empty() {
                return;
            }
            let next = from + some.len();
            self.with(name, |entry| {
                (from..).zip(some).for_each(|(number, domain)| entry.started(number, domain, generation));
            });
            from = next;
        }
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

    /// Waits until a component serves, or is done, as long as it gets on. With a `generation`, that
    /// one: if it ended meanwhile, the task that starts the next waits for that.
    pub(crate) async fn wait(&self, name: &str, generation: Option<u64>) -> bool {
        let settled = |entry: &Entry| match entry.phase {
            _ if generation.is_some_and(|generation| entry.is_over(generation)) => Some(false),
            Phase::Serving | Phase::Finished => Some(true),
            Phase::GivenUp => Some(false),
            Phase::Waiting | Phase::Starting => None,
        };
        let dispatchers = self.with(name, |entry| entry.dispatchers.len()).unwrap_or_default();
        let mut effort = None;
        for _ in 0..STEPS_MAX + STEPS_PER_DISPATCHER * dispatchers {
            if let Some(serves) = self.until(name, STEP_LIMIT_NS, settled).await {
                return serves;
            }
            let before = core::mem::replace(&mut effort, self.effort(name).await);
            if effort == before {
                break;
            }
            runtime::log!("waiting for {name} to serve");
        }
        runtime::log!("{name} does not serve and makes no progress");
        false
    }

    /// Pages and processor time it has used; `None` if it is not there.
    async fn effort(&self, name: &str) -> Option<(u64, u64)> {
        let lines = self.lines(name).await;
        let sum = |of: fn(&DomainLine) -> u64| lines.iter().map(of).sum();
        (!lines.is_empty()).then(|| (sum(|line| line.pages), sum(|line| line.cpu_ns)))
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
                MonitorEvent::Stalled { domain } => self.stalled(domain),
                // The deaths of what was there are told.
                MonitorEvent::CoreLost { core } => {
                    *self.lost_cores.borrow_mut().entry(core).or_default() += 1;
                    self.lost_core.changed();
                }
                MonitorEvent::Wants { .. } => {}
                MonitorEvent::Lost | MonitorEvent::PeerRestarted => {
                    runtime::log!("events of the monitor were lost: asking who lives");
                    runtime::spawn(self.clone().look_again());
                }
                MonitorEvent::Closed => return runtime::log!("the monitor is gone"),
            }
        }
    }

    /// Hears from spawn of the ends of programs.
    pub async fn listen_to_spawn(self: Rc<Self>) {
        loop {
            match self.spawn.next_event().await {
                SpawnEvent::Ended { name, generation, death } => self.clone().ended(&name, generation, death),
                // Of a Linux domain, which is not ours.
                SpawnEvent::Died { .. } => {}
                SpawnEvent::Lost | SpawnEvent::PeerRestarted => {
                    runtime::log!("events of spawn were lost: asking who lives");
                    runtime::spawn(self.clone().look_again());
                }
                SpawnEvent::Closed => return,
            }
        }
    }

    fn serves(self: Rc<Self>, domain: DomainId) {
        let now_ns = now_ns();
        // At once if it can be: its death may be the next event.
        if let Some(name) = self.known(domain) {
            self.with(&name, |entry| entry.serves(domain, now_ns));
            return self.changed();
        }
        runtime::spawn(async move {
            let Some(name) = self.identify(domain).await else { return };
            self.with(&name, |entry| entry.serves(domain, now_ns));
            self.changed();
        });
    }

    /// Its monitor ends it; from now on it is away.
    fn stalled(&self, domain: DomainId) {
        let has_it = |entry: &&mut Entry| entry.dispatchers.iter().any(|dispatcher| dispatcher.domain == Some(domain));
        self.entries.borrow_mut().iter_mut().find(has_it).into_iter().for_each(|entry| entry.stalls(now_ns()));
    }

    /// A domain died. Of programs spawn tells when the last is gone.
    fn died(self: Rc<Self>, name: String, generation: u64, death: Death) {
        // A Linux domain has no place.
        let Some((component, _)) = self.place(&name) else { return };
        let is_program = self.with(&component, |entry| {
            if entry.is_program {
                entry.lost(death.domain, now_ns());
            }
            entry.is_program
        });
        if is_program == Some(true) {
            return self.changed();
        }
        self.ended(&component, generation, death);
    }

    /// A component is gone, a program with its last dispatcher.
    fn ended(self: Rc<Self>, name: &str, generation: u64, death: Death) {
        let now_ns = now_ns();
        let decision = self.with(name, |entry| entry.died(generation, &death, now_ns)).flatten();
        self.changed();
        let why = cause(&death);
        let name = name.to_string();
        match decision {
            None => {}
            Some(Decision::Finished) => runtime::log!("{name} is done"),
            Some(Decision::End) => self.end(&format!("{name} ended ({why}) and its state cannot be recovered")),
            Some(Decision::Restart { generation, after_ns }) => {
                self.tell_of_wait(&name, &format!("ended ({why})"), after_ns);
                runtime::spawn(self.restart(name, generation, after_ns, why));
            }
        }
    }

    fn end(&self, reason: &str) {
        runtime::log!("{reason}: the machine ends");
        let _ = self.monitor.power_off(CANNOT_GO_ON);
    }
}
