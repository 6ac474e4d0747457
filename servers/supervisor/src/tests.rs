//! The supervisor between monitors and spawn that are played.

mod service;
mod starts;

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;

use abi::{DeathCause, Handle};
use channel::{Layout, Peer};
use contracts::endpoint::{BindError, InjectedFault, Work};
use contracts::monitor::*;
use contracts::spawn::{Death, DomainId, LinuxDomain, SpawnClient, SpawnError, SpawnEvents, SpawnServer, serve_spawn};
use runtime::now_ns;
use system::{Component, Linux, Placement, Restart, System};

use supervisor_core::{Entry, Phase};

use crate::watch::{STEP_LIMIT_NS, STEPS_MAX, STEPS_PER_DISPATCHER, Supervisor};

/// A restart may take so long beside what else goes on.
const PROMPT_NS: u64 = 50_000_000;

/// Monitors of two cores, with a component each, and spawn. A test may have a program besides, with
/// a dispatcher on each core.
#[derive(Default)]
struct Fake {
    /// Core 1's monitor is stuck.
    is_stuck: Cell<bool>,
    /// What runs uses its core.
    progresses: Cell<bool>,
    /// What spawn was asked for, and when.
    made: RefCell<Vec<(String, u64, u64)>>,
    /// How components ended that do not run.
    ends: RefCell<Vec<(String, u64)>>,
    /// How often spawn still refuses to start something, and why.
    refusals: Cell<u32>,
    refusal: Cell<Option<SpawnError>>,
    /// Domains that the monitor was to end, with what status.
    ended: RefCell<Vec<(DomainId, u64)>>,
    /// Components that do not run.
    gone: RefCell<Vec<String>>,
    peer: RefCell<Option<Peer>>,
    spawn_peer: RefCell<Option<Peer>>,
    /// What spawn refuses runs nonetheless.
    runs_refused: Cell<bool>,
    /// How long spawn takes to answer that it started something.
    answers_after_ns: Cell<u64>,
    /// Dispatchers of the program that run.
    program: RefCell<Vec<DomainLine>>,
    /// From which on spawn was asked for dispatchers.
    asked_from: RefCell<Vec<u32>>,
    /// Spawn was told that all is started.
    is_ready: Cell<bool>,
    /// With what status the machine ended, each time that it was to.
    off: RefCell<Vec<u8>>,
    /// What was done to components and monitors, and how much later.
    injected: RefCell<Vec<(u32, DomainId, FaultKind, u64)>>,
    broken: RefCell<Vec<(u32, InjectedFault, u64)>>,
    /// What monitors say of a core's memory; nothing.
    pages: Cell<Option<CoreMemory>>,
    /// Why a core is not changed.
    unchanged: Cell<Option<MonitorError>>,
    changes: RefCell<Vec<(u32, bool)>>,
}

const NAMES: [&str; 2] = ["near", "far"];
/// The program.
const WIDE: &str = "wide";
/// Its domains have higher numbers than the others.
const WIDE_FROM: u64 = 100;

fn domain_of(core: u32, generation: u64) -> DomainId {
    u64::from(core) << 48 | generation
}

fn killed(domain: DomainId) -> Death {
    Death { domain, cause: DeathCause::Killed as u64, status: 137, address: 0, rip: 0, cpu_ns: 0 }
}

/// Operations that no test here needs.
macro_rules! refused {
    ($($name:ident($($of:ty),*) -> $gives:ty;)*) => {
        $(async fn $name(&self, _: &Peer, $(_: $of),*) -> Result<$gives, MonitorError> {
            Err(MonitorError::Failed)
        })*
    };
}

/// A dispatcher of the program, of which each has its own pages.
fn dispatcher(core: u32, generation: u64) -> DomainLine {
    let (domain, name) = (domain_of(core, WIDE_FROM + generation), format!("{WIDE}-{core}"));
    DomainLine { domain, name, core, generation, serving: false, pages: 3 + u64::from(core), cpu_ns: 10 }
}

impl Fake {
    /// To tell what happens.
    fn events(&self) -> MonitorEvents {
        MonitorEvents::new(&self.peer.borrow().clone().unwrap())
    }

    /// A component says that it is ready.
    fn serves(&self, domain: DomainId) {
        self.events().serving(domain).unwrap();
    }

    /// A dispatcher of the program dies; spawn tells of the last.
    fn lose(&self, domain: DomainId, death: Death) {
        let mut program = self.program.borrow_mut();
        let number = program.iter().position(|line| line.domain == domain).unwrap();
        let line = program.remove(number);
        self.events().died(line.name, line.generation, false, death).unwrap();
        if program.is_empty() {
            let events = SpawnEvents::new(&self.spawn_peer.borrow().clone().unwrap());
            events.ended(WIDE.into(), line.generation, death).unwrap();
        }
    }

    /// A core's monitor answers, or does not.
    async fn reach(&self, core: u32) {
        if core == 1 && self.is_stuck.get() {
            pending::<()>().await;
        }
    }
}

impl MonitorServer for Fake {
    refused! {
        open(u32, ChannelPlan, Option<Place>) -> Place;
        close(u32, ChannelId) -> ();
        announce(u32, ChannelId, u32) -> ();
        introduce(u32, ChannelId, DomainId, u64) -> ();
        refuse(u32, DomainId, u64, BindError) -> ();
        region(u32, String, u64, RegionKind, Option<u64>) -> u64;
        create(u32, DomainPlan) -> Created;
        start(u32, DomainId) -> ();
        begin_turns(u32, DomainId) -> ();
        discard(u32, DomainId) -> ();
        common(u32, u64, u64) -> u64;
        lend(u32, u64, DomainId, bool) -> u64;
        release(u32, u64) -> ();
        core_time(u32) -> CoreTime;
        objects(u32) -> Vec<u64>;
        move_pages(u32, u32, u64) -> ();
        carve(u32, u64) -> u64;
        add(u32, u64, u64) -> ();
        leave(u32) -> ();
        discard_core(u32, u32) -> ();
    }

    async fn domain(&self, peer: &Peer, core: u32, from: DomainId) -> Result<Option<DomainLine>, MonitorError> {
        *self.peer.borrow_mut() = Some(peer.clone());
        self.reach(core).await;
        let name = NAMES[core as usize];
        let made = self.made.borrow().iter().filter(|(of, ..)| of == name).map(|(_, generation, _)| *generation).max();
        let generation = made.unwrap_or(1);
        let (domain, cpu_ns) = (domain_of(core, generation), if self.progresses.get() { now_ns() } else { 1 });
        if self.gone.borrow().iter().any(|gone| gone == name) || from > domain {
            let program = self.program.borrow();
            let line = program.iter().find(|line| line.core == core && line.domain >= from).cloned();
            return Ok(line.map(|line| DomainLine { cpu_ns: line.cpu_ns + cpu_ns, ..line }));
        }
        Ok(Some(DomainLine { domain, name: name.into(), core, generation, serving: true, pages: 1, cpu_ns }))
    }

    async fn kill(&self, peer: &Peer, core: u32, domain: DomainId, status: u64) -> Result<(), MonitorError> {
        self.ended.borrow_mut().push((domain, status));
        let number = domain & u64::from(u32::MAX);
        let death = Death { status, ..killed(domain) };
        if number > WIDE_FROM {
            self.lose(domain, death);
            return Ok(());
        }
        self.gone.borrow_mut().push(NAMES[core as usize].into());
        let name = NAMES[core as usize].into();
        MonitorEvents::new(peer).died(name, number, false, death).map_err(|_| MonitorError::Failed)
    }

    async fn inject_fault(
        &self,
        _: &Peer,
        core: u32,
        domain: DomainId,
        how: FaultKind,
        after_ns: u64,
    ) -> Result<(), MonitorError> {
        self.injected.borrow_mut().push((core, domain, how, after_ns));
        Ok(())
    }

    /// Of each core one domain.
    async fn ledger(&self, _: &Peer, core: u32, from: DomainId) -> Result<Option<LedgerLine>, MonitorError> {
        self.reach(core).await;
        let line = LedgerLine { domain: domain_of(core, 1), name: "near".into(), cpu_ns: 7, paid: Vec::new() };
        Ok((line.domain >= from).then_some(line))
    }

    async fn work(&self, _: &Peer, core: u32, domain: DomainId) -> Result<Work, MonitorError> {
        let is_it = domain == domain_of(core, 1);
        is_it.then(|| Work { own_ns: 5, ..Work::default() }).ok_or(MonitorError::NotFound)
    }

    async fn memory(&self, _: &Peer, _: u32) -> Result<CoreMemory, MonitorError> {
        self.pages.get().ok_or(MonitorError::NoCore)
    }

    /// Core 0 and 1 run monitors, and the next has none.
    async fn core_use(&self, _: &Peer, core: u32) -> Result<CoreUse, MonitorError> {
        let runs = if core < 2 { CoreRuns::Monitor } else { CoreRuns::Nothing };
        Ok(CoreUse { runs, claimed_by: String::new(), programs_ns: 0 })
    }

    async fn change_core(&self, _: &Peer, core: u32, run: bool) -> Result<(), MonitorError> {
        self.changes.borrow_mut().push((core, run));
        self.unchanged.get().map_or(Ok(()), Err)
    }

    async fn last_end(&self, _: &Peer, core: u32, name: String) -> Result<Option<(u64, Death)>, MonitorError> {
        self.reach(core).await;
        let ends = self.ends.borrow();
        Ok(ends.iter().find(|(of, _)| *of == name).map(|(_, generation)| (*generation, killed(domain_of(core, 1)))))
    }

    fn inject_monitor_fault(&self, _: &Peer, core: u32, how: InjectedFault, after_ns: u64) {
        self.broken.borrow_mut().push((core, how, after_ns));
    }

    fn power_off(&self, _: &Peer, status: u8) {
        self.off.borrow_mut().push(status);
    }
}

impl SpawnServer for Fake {
    async fn component(&self, peer: &Peer, name: String, generation: u64, _: u64) -> Result<DomainId, SpawnError> {
        *self.spawn_peer.borrow_mut() = Some(peer.clone());
        if let Some(left) = self.refusals.get().checked_sub(1) {
            self.refusals.set(left);
            if self.runs_refused.get() {
                self.gone.borrow_mut().retain(|gone| *gone != name);
            }
            return Err(self.refusal.get().unwrap());
        }
        let core = NAMES.iter().position(|known| *known == name);
        if core.is_none() && name != WIDE {
            return Err(SpawnError::NoCore);
        }
        self.made.borrow_mut().push((name.clone(), generation, now_ns()));
        self.gone.borrow_mut().retain(|gone| *gone != name);
        if core.is_none() {
            *self.program.borrow_mut() = [0, 1].map(|core| dispatcher(core, generation)).into();
        }
        if self.answers_after_ns.get() > 0 {
            runtime::sleep(self.answers_after_ns.get()).await;
        }
        Ok(core.map_or(dispatcher(0, generation).domain, |core| domain_of(core as u32, generation)))
    }

    /// One after the other, so that it has to be asked again.
    async fn dispatchers(&self, _: &Peer, _: String, _: u64, from: u32) -> Result<Vec<DomainId>, SpawnError> {
        self.asked_from.borrow_mut().push(from);
        assert!(self.asked_from.borrow().len() < 100, "it asks without end");
        Ok(self.program.borrow().get(from as usize).map(|line| line.domain).into_iter().collect())
    }

    async fn linux(&self, _: &Peer, _: Option<u32>, _: Option<DomainId>, _: u64) -> Result<LinuxDomain, SpawnError> {
        Err(SpawnError::Failed)
    }

    async fn start(&self, _: &Peer, _: DomainId) -> Result<(), SpawnError> {
        Err(SpawnError::NotFound)
    }

    async fn kill(&self, _: &Peer, _: DomainId, _: u64) -> Result<(), SpawnError> {
        Err(SpawnError::NotFound)
    }

    async fn begin_turns(&self, _: &Peer, _: DomainId) -> Result<(), SpawnError> {
        Err(SpawnError::NotFound)
    }

    async fn discard(&self, _: &Peer, _: DomainId) -> Result<(), SpawnError> {
        Err(SpawnError::NotFound)
    }

    async fn domains(&self, _: &Peer, _: DomainId) -> Result<Vec<DomainId>, SpawnError> {
        Ok(Vec::new())
    }

    async fn common(&self, _: &Peer, _: DomainId, _: u64, _: u64) -> Result<u64, SpawnError> {
        Err(SpawnError::NotFound)
    }

    async fn lend(&self, _: &Peer, _: u64, _: DomainId, _: bool) -> Result<u64, SpawnError> {
        Err(SpawnError::NotFound)
    }

    async fn release(&self, _: &Peer, _: u64) -> Result<(), SpawnError> {
        Err(SpawnError::NotFound)
    }

    async fn usage(&self, _: &Peer, _: DomainId) -> Result<(u64, u64), SpawnError> {
        Err(SpawnError::NotFound)
    }

    fn ready(&self, _: &Peer) {
        self.is_ready.set(true);
    }
}

fn component(name: &str, core: Placement, restart: Restart) -> Component {
    Component {
        name: name.into(),
        program: "any".into(),
        core,
        priority: 1,
        budget: None,
        memory_limit_pages: 1,
        provides: Vec::new(),
        uses: Vec::new(),
        binds: Vec::new(),
        restart,
        devices: Vec::new(),
        has_vectors: false,
        regions: Vec::new(),
        workers: system::Workers::None,
        handlers: system::Handlers::One,
    }
}

/// Those two components, of which the first is restarted so, and further ones.
fn description(restart: Restart, more: &[Component]) -> System {
    let near = component("near", Placement::Preferred(vec![0]), restart);
    let far = component("far", Placement::Preferred(vec![1]), Restart::Always);
    let linux = Linux { core: Placement::default(), priority: 1, memory_limit_pages: 1, uses: Vec::new() };
    System { components: [near, far].into_iter().chain(more.iter().cloned()).collect(), linux }
}

/// With the program besides.
fn with_wide() -> System {
    description(Restart::Always, &[component(WIDE, Placement::Every, Restart::Always)])
}

/// A supervisor that was restarted, as `main` has it; runs `test` once it listens.
fn with_supervisor<F: Future<Output = ()>>(fake: &Rc<Fake>, test: impl FnOnce(Rc<Supervisor>) -> F) {
    with(fake, &description(Restart::Always, &[]), false, test);
}

/// A supervisor, the machine's first if so; gives what was written to the log. The machine may end
/// only where a test looks for that.
fn with<F: Future<Output = ()>>(
    fake: &Rc<Fake>,
    description: &System,
    is_first: bool,
    test: impl FnOnce(Rc<Supervisor>) -> F,
) -> Vec<String> {
    let ((), lines) = runtime::testing::logged(async {
        let [monitor, spawn] = [(); 2].map(|()| channel::loopback(Layout::default()));
        runtime::spawn(serve_monitor(fake.clone(), monitor.1));
        runtime::spawn(serve_spawn(fake.clone(), spawn.1));
        let clients = (MonitorClient::new(monitor.0), SpawnClient::new(spawn.0));
        let supervisor = Rc::new(Supervisor::new(description, 2, clients.0, clients.1, Handle::NONE));
        runtime::spawn(supervisor.clone().listen());
        runtime::spawn(supervisor.clone().listen_to_spawn());
        supervisor.probe_all().await;
        runtime::spawn(supervisor.clone().start_all(is_first));
        test(supervisor).await;
    });
    assert_eq!(fake.off.take(), [], "the machine ends");
    lines
}

/// What spawn was asked to start of a component: its generations.
fn generations(fake: &Fake, name: &str) -> Vec<u64> {
    fake.made.borrow().iter().filter(|(of, ..)| of == name).map(|(_, generation, _)| *generation).collect()
}

/// Waits until spawn was asked for that generation; gives when.
async fn made(fake: &Fake, name: &str, generation: u64) -> u64 {
    let until_ns = now_ns() + 1000 * STEP_LIMIT_NS;
    loop {
        let made = fake.made.borrow().iter().find(|(of, number, _)| of == name && *number == generation).cloned();
        if let Some((_, _, when_ns)) = made {
            return when_ns;
        }
        assert!(now_ns() < until_ns, "{name} {generation} is never started");
        runtime::sleep(PROMPT_NS / 100).await;
    }
}

/// Kills that generation of the near component; gives when.
fn kill_near(fake: &Fake, generation: u64) -> u64 {
    fake.gone.borrow_mut().push("near".into());
    fake.events().died("near".into(), generation, false, killed(domain_of(0, generation))).unwrap();
    now_ns()
}

/// From the events to spawn: clients of one that serves do not wait because it is killed often.
#[test]
fn one_that_serves_is_started_at_once_however_often_it_is_killed() {
    let fake = Rc::new(Fake::default());
    with_supervisor(&fake, async |supervisor| {
        supervisor.all_started().await;
        for generation in 1..=60 {
            fake.serves(domain_of(0, generation));
            runtime::sleep(1_000_000_000).await;
            let killed_ns = kill_near(&fake, generation);
            assert!(made(&fake, "near", generation + 1).await - killed_ns < PROMPT_NS, "generation {generation}");
        }
        assert_eq!(supervisor.with("near", |entry| entry.recovery_ns < PROMPT_NS), Some(true));
    });
}

/// One that does not come to serve waits up to 5 s, and begins anew once it did.
#[test]
fn one_that_dies_before_it_serves_is_started_ever_later() {
    let fake = Rc::new(Fake::default());
    with_supervisor(&fake, async |supervisor| {
        supervisor.all_started().await;
        // The first was found serving.
        let mut waits_ms = Vec::new();
        for generation in 1..=12 {
            let killed_ns = kill_near(&fake, generation);
            waits_ms.push((made(&fake, "near", generation + 1).await - killed_ns) / 10_000_000 * 10);
        }
        assert_eq!(waits_ms, [0, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5000, 5000]);
        fake.serves(domain_of(0, 13));
        runtime::sleep(250_000_000).await;
        let killed_ns = kill_near(&fake, 13);
        assert!(made(&fake, "near", 14).await - killed_ns < PROMPT_NS);
    });
}

/// Else there would be a task, and a line that it stands still, for each death.
#[test]
fn a_generation_that_has_ended_is_not_waited_for() {
    let fake = Rc::new(Fake::default());
    with_supervisor(&fake, async |supervisor| {
        supervisor.all_started().await;
        for generation in 1..=2 {
            kill_near(&fake, generation);
            made(&fake, "near", generation + 1).await;
        }
        assert_eq!(runtime::timeout(PROMPT_NS, supervisor.wait("near", Some(2))).await, Ok(false));
        assert!(runtime::timeout(PROMPT_NS, supervisor.wait("near", Some(3))).await.is_err(), "it may still come");
    });
}

/// What a start lacks may be there later, but for a program that is no program.
#[test]
fn a_start_that_is_refused_is_tried_again() {
    const LATER_NS: u64 = 300_000_000;
    let fake = Rc::new(Fake::default());
    with_supervisor(&fake, async |supervisor| {
        supervisor.all_started().await;
        let refusals = [SpawnError::NoMemory, SpawnError::NotFound, SpawnError::Failed, SpawnError::NoCore];
        for (generation, refusal) in (2..).zip(refusals) {
            fake.refusals.set(3);
            fake.refusal.set(Some(refusal));
            let killed_ns = kill_near(&fake, generation - 1);
            let made_ns = runtime::timeout(10 * LATER_NS, made(&fake, "near", generation)).await;
            let took_ns = made_ns.expect("it is tried again") - killed_ns;
            assert!((LATER_NS..2 * LATER_NS).contains(&took_ns), "{refusal:?}: {took_ns}");
            fake.serves(domain_of(0, generation));
            runtime::sleep(LATER_NS).await;
        }
        fake.refusals.set(1);
        fake.refusal.set(Some(SpawnError::BadProgram));
        kill_near(&fake, 5);
        runtime::sleep(10 * LATER_NS).await;
        assert_eq!(supervisor.with("near", |entry| entry.phase), Some(Phase::GivenUp));
        assert_eq!(generations(&fake, "near"), [2, 3, 4, 5]);
    });
}

/// One that runs and does not come to serve would be waited for without end.
#[test]
fn one_that_stands_still_before_it_serves_is_ended_and_another_is_started() {
    let fake = Rc::new(Fake::default());
    with_supervisor(&fake, async |supervisor| {
        supervisor.all_started().await;
        kill_near(&fake, 1);
        let made_ns = made(&fake, "near", 2).await;
        let ended = runtime::timeout(10 * STEP_LIMIT_NS, made(&fake, "near", 3)).await;
        assert!(ended.is_ok_and(|next_ns| next_ns - made_ns < 2 * STEP_LIMIT_NS + PROMPT_NS));
        assert_eq!(fake.ended.take(), [(domain_of(0, 2), STALLED)]);
    });
}

/// On a host that has fewer processors than the machine, dispatchers that wait for each other take
/// their time.
#[test]
fn one_that_progresses_and_never_serves_has_some_steps_and_more_for_each_dispatcher() {
    let fake = Rc::new(Fake::default());
    with_supervisor(&fake, async |supervisor| {
        supervisor.all_started().await;
        fake.progresses.set(true);
        kill_near(&fake, 1);
        let made_ns = made(&fake, "near", 2).await;
        let ended = runtime::timeout(100 * STEP_LIMIT_NS, made(&fake, "near", 3)).await;
        let steps = (ended.expect("it is given up at last") - made_ns) / STEP_LIMIT_NS;
        assert_eq!(steps as usize, STEPS_MAX + STEPS_PER_DISPATCHER);
    });
}

/// A death that was not told is found, although the monitor of another core is stuck.
#[test]
fn who_ended_while_events_were_lost_is_found_beside_a_stuck_monitor() {
    let fake = Rc::new(Fake::default());
    with_supervisor(&fake, async |supervisor| {
        supervisor.all_started().await;
        fake.is_stuck.set(true);
        fake.gone.borrow_mut().push("near".into());
        fake.ends.borrow_mut().push(("near".into(), 1));
        fake.events().lost();
        let found = runtime::timeout(10 * STEP_LIMIT_NS, made(&fake, "near", 2)).await;
        assert!(found.is_ok(), "nobody looked");
    });
}

/// A request to a stuck monitor waits for it; other requests to the supervisor do not.
#[test]
fn a_stuck_monitor_does_not_make_the_supervisor_deaf() {
    let fake = Rc::new(Fake::default());
    with_supervisor(&fake, async |supervisor| {
        supervisor.all_started().await;
        fake.is_stuck.set(true);
        let events = fake.events();
        // Each makes it ask core 1: who serves there, who has stalled, and who lives at all.
        events.serving(domain_of(1, 9)).unwrap();
        events.stalled(domain_of(1, 9)).unwrap();
        events.lost();
        runtime::sleep(PROMPT_NS).await;
        let died_ns = now_ns();
        fake.gone.borrow_mut().push("near".into());
        events.died("near".into(), 1, false, killed(domain_of(0, 1))).unwrap();
        runtime::sleep(PROMPT_NS).await;
        assert_eq!(generations(&fake, "near"), [2]);
        assert!(fake.made.borrow()[0].2 - died_ns < PROMPT_NS);
    });
}

/// The supervisor was restarted while the monitor of a core hangs, which is lost then: what lived
/// there is not begun anew, but in the generation after the one that is told to have ended.
#[test]
fn what_nobody_knows_is_not_begun_anew() {
    for is_told in [true, false] {
        let fake = Rc::new(Fake::default());
        fake.is_stuck.set(true);
        with_supervisor(&fake, async |supervisor| {
            supervisor.all_started().await;
            assert_eq!(generations(&fake, "far"), [], "it may run");
            fake.gone.borrow_mut().push("far".into());
            if is_told {
                let events = fake.events();
                events.died("far".into(), 3, false, killed(domain_of(1, 3))).unwrap();
            } else {
                fake.ends.borrow_mut().push(("far".into(), 3));
            }
            runtime::sleep(PROMPT_NS).await;
            fake.is_stuck.set(false);
            // Not so long that it would have to serve by then.
            runtime::sleep(60 * PROMPT_NS).await;
            assert_eq!(generations(&fake, "far"), [4], "{is_told}");
        });
    }
}
