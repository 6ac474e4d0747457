//! Spawn between monitors, memory and names that are played.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use abi::DeathCause;
use channel::{CallError, Layout, Peer};
use contracts::endpoint::{BindError, Work};
use contracts::memory::{MemoryClient, MemoryError, MemoryServer, serve_memory};
use contracts::monitor::*;
use contracts::names::{Named, NamesClient, NamesError, NamesServer, serve_names};
use contracts::spawn::{Death, DomainId, MemoryId, SpawnClient, SpawnError, SpawnEvent, serve_spawn};
use system::{Component, Linux, Placement, Restart, System, Use};

use spawn_core::{ChannelSet, LinuxEntry};

use crate::service::{Service, Shared};

mod binding;
mod components;
mod linux;
mod regions;
mod service;

const SECOND_NS: u64 = 1_000_000_000;
/// How long the answer of the monitor that makes a domain takes.
const MAKING_NS: u64 = 10_000_000;
const MADE: DomainId = 7;
/// How long that of the monitor which brings a channel takes.
const BRINGING_NS: u64 = MAKING_NS / 4;
/// Serves programs.
const CONSOLE: &str = "console";
/// What the component may ask for while it runs.
const BOUND: &str = "packets";

/// What the monitor was asked for, but for what is made before a domain and told after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Create,
    Start,
    Kill(DomainId),
    /// To close a channel, of that core.
    Close(u32, ChannelId),
    Introduce,
    Refuse,
}

/// What monitors, memory and names were asked for, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Open(u32, ChannelId, Option<Place>),
    Close(u32, ChannelId),
    Announce(u32, ChannelId, u32),
    Introduce(u32, ChannelId, DomainId, u64),
    Refuse(u32, DomainId, u64, BindError),
    Region(u32, String, u64, RegionKind, Option<u64>),
    /// Name, generation and first pages of the plan.
    Create(u32, String, u64, u64),
    BeginTurns(u32, DomainId),
    Start(u32, DomainId),
    Kill(u32, DomainId, u64),
    Discard(u32, DomainId),
    Common(u32, u64, u64),
    Lend(u32, MemoryId, DomainId, bool),
    Release(u32, MemoryId),
    Prepare(u32, u64, u64),
    Register(Named),
    ToldAll,
    Find(String, u32, u32),
}

/// Most times that a fake is asked what runs in a test: more is somebody who goes in circles.
const LOOKS_MAX: u32 = 1000;

#[derive(Default)]
struct Fake {
    calls: RefCell<Vec<Call>>,
    /// What runs, beside `runs`.
    lines: RefCell<Vec<DomainLine>>,
    /// How often it was asked for that.
    looks: Cell<u32>,
    /// How monitors refuse what they are asked for, if they do.
    refuses: Cell<Option<MonitorError>>,
    /// Servers take no channel that was asked for.
    takes_nothing: Cell<bool>,
    /// What the name server says, if not that it is the driver.
    finds: RefCell<Option<Result<Named, NamesError>>>,
    /// Each domain has a number of its own; all have the same otherwise.
    counts: Cell<bool>,
    made: Cell<u64>,
    /// How long after it was ended the death of a domain is told.
    dies_after_ns: Cell<u64>,
    /// How often the name server says yet that it does not know all.
    not_yet: Cell<u32>,
    /// Monitors start nothing.
    starts_nothing: Cell<bool>,
    /// Monitors close nothing.
    keeps_channels: Cell<bool>,
    /// Monitors make no domain before they have closed a channel.
    is_full: Cell<bool>,
    /// The memory server gives no core any.
    has_no_room: Cell<bool>,
    /// Which life of the console there is: none while it is away.
    console: Cell<Option<u64>>,
    /// Channels brought to it, and to which life.
    brought: RefCell<Vec<(ChannelId, u64)>>,
    /// What runs by the monitor's word.
    runs: Cell<Option<DomainId>>,
    peer: RefCell<Option<Peer>>,
}

/// Operations that no test here needs.
macro_rules! refused {
    ($($name:ident($($of:ty),*) -> $gives:ty;)*) => {
        $(async fn $name(&self, _: &Peer, $(_: $of),*) -> Result<$gives, MonitorError> {
            Err(MonitorError::Failed)
        })*
    };
}

impl Fake {
    fn call(&self, call: Call) {
        self.calls.borrow_mut().push(call);
    }

    /// Gives and forgets what was asked for.
    fn asked(&self) -> Vec<Asked> {
        let of = |call| match call {
            Call::Create(..) => Some(Asked::Create),
            Call::Start(..) => Some(Asked::Start),
            Call::Kill(_, domain, _) => Some(Asked::Kill(domain)),
            Call::Close(core, id) => Some(Asked::Close(core, id)),
            Call::Introduce(..) => Some(Asked::Introduce),
            Call::Refuse(..) => Some(Asked::Refuse),
            _ => None,
        };
        self.calls.take().into_iter().filter_map(of).collect()
    }

    /// The answer, unless monitors refuse.
    fn pass<T>(&self, call: Call, answer: T) -> Result<T, MonitorError> {
        self.call(call);
        self.refuses.get().map_or(Ok(answer), Err)
    }
}

/// A domain of a core.
fn of_core(core: u32, number: u64) -> DomainId {
    (u64::from(core) << 48) | number
}

/// Where a core says that its part of a channel is.
fn place(core: u32, id: ChannelId) -> Place {
    Place { physical: (u64::from(core) + 1) << 12, slot: id }
}

/// Where a core says that its part of a region is.
fn region_of(core: u32) -> u64 {
    (u64::from(core) + 1) << 20
}

fn death(domain: DomainId, cause: u64, status: u64) -> Death {
    Death { domain, cause, status, address: 0, rip: 0, cpu_ns: 0 }
}

/// What a core says that runs there.
fn line(domain: DomainId, name: &str, generation: u64) -> DomainLine {
    let core = spawn_core::home(domain);
    DomainLine { domain, name: name.into(), core, generation, serving: true, pages: 1, cpu_ns: 1 }
}

impl MonitorServer for Fake {
    refused! {
        inject_fault(u32, DomainId, FaultKind, u64) -> ();
        last_end(u32, String) -> Option<(u64, Death)>;
        ledger(u32, DomainId) -> Option<LedgerLine>;
        work(u32, DomainId) -> Work;
        core_time(u32) -> CoreTime;
        memory(u32) -> CoreMemory;
        objects(u32) -> Vec<u64>;
        core_use(u32) -> CoreUse;
        move_pages(u32, u32, u64) -> ();
        carve(u32, u64) -> u64;
        add(u32, u64, u64) -> ();
        change_core(u32, bool) -> ();
        leave(u32) -> ();
        discard_core(u32, u32) -> ();
    }

    async fn open(&self, _: &Peer, core: u32, plan: ChannelPlan, other: Option<Place>) -> Result<Place, MonitorError> {
        self.pass(Call::Open(core, plan.id, other), place(core, plan.id))
    }

    async fn region(
        &self,
        _: &Peer,
        core: u32,
        name: String,
        pages: u64,
        kind: RegionKind,
        of: Option<u64>,
    ) -> Result<u64, MonitorError> {
        self.pass(Call::Region(core, name, pages, kind, of), region_of(core))
    }

    async fn discard(&self, _: &Peer, core: u32, domain: DomainId) -> Result<(), MonitorError> {
        self.pass(Call::Discard(core, domain), ())
    }

    async fn common(&self, _: &Peer, core: u32, pages: u64, spare: u64) -> Result<MemoryId, MonitorError> {
        self.pass(Call::Common(core, pages, spare), of_core(core, pages))
    }

    async fn lend(&self, _: &Peer, core: u32, memory: MemoryId, to: DomainId, w: bool) -> Result<u64, MonitorError> {
        self.pass(Call::Lend(core, memory, to, w), to + 1)
    }

    async fn release(&self, _: &Peer, core: u32, memory: MemoryId) -> Result<(), MonitorError> {
        self.pass(Call::Release(core, memory), ())
    }

    async fn close(&self, _: &Peer, core: u32, id: ChannelId) -> Result<(), MonitorError> {
        self.call(Call::Close(core, id));
        if self.keeps_channels.get() { Err(MonitorError::Busy) } else { Ok(()) }
    }

    async fn announce(&self, _: &Peer, core: u32, id: ChannelId, set: u32) -> Result<(), MonitorError> {
        self.call(Call::Announce(core, id, set));
        if !(wiring::RUN_TIME_CHANNELS..=wiring::BOUND_CHANNELS).contains(&id) {
            return if self.takes_nothing.get() { Err(MonitorError::NotFound) } else { Ok(()) };
        }
        let life = self.console.get().ok_or(MonitorError::NotFound)?;
        self.brought.borrow_mut().push((id, life));
        runtime::sleep(BRINGING_NS).await;
        if self.console.get() == Some(life) { Ok(()) } else { Err(MonitorError::NotFound) }
    }

    async fn introduce(&self, _: &Peer, core: u32, id: ChannelId, to: DomainId, of: u64) -> Result<(), MonitorError> {
        self.call(Call::Introduce(core, id, to, of));
        Ok(())
    }

    async fn refuse(&self, _: &Peer, core: u32, to: DomainId, of: u64, why: BindError) -> Result<(), MonitorError> {
        self.call(Call::Refuse(core, to, of, why));
        Ok(())
    }

    async fn domain(&self, peer: &Peer, core: u32, from: DomainId) -> Result<Option<DomainLine>, MonitorError> {
        *self.peer.borrow_mut() = Some(peer.clone());
        self.looks.set(self.looks.get() + 1);
        assert!(self.looks.get() < LOOKS_MAX, "it is asked for the same again and again");
        let lines = self.lines.borrow();
        let all = lines.iter().cloned().chain(self.runs.get().map(|domain| line(domain, "ip", 1)));
        let there = all.filter(|line| line.core == core && line.domain >= from);
        Ok(there.min_by_key(|line| line.domain))
    }

    async fn create(&self, _: &Peer, core: u32, plan: DomainPlan) -> Result<Created, MonitorError> {
        self.call(Call::Create(core, plan.name.clone(), plan.generation, plan.first_pages));
        if plan.name == CONSOLE {
            self.console.set(Some(plan.generation));
        }
        // A program takes longer.
        runtime::sleep(if plan.name == CONSOLE { BRINGING_NS } else { MAKING_NS }).await;
        if self.is_full.get() && !self.calls.borrow().iter().any(|call| matches!(call, Call::Close(..))) {
            return Err(MonitorError::NoMemory);
        }
        let before = if self.counts.get() { self.made.replace(self.made.get() + 1) } else { 0 };
        Ok(Created { domain: of_core(core, MADE + before), ..Created::default() })
    }

    async fn begin_turns(&self, _: &Peer, core: u32, domain: DomainId) -> Result<(), MonitorError> {
        self.pass(Call::BeginTurns(core, domain), ())
    }

    async fn start(&self, _: &Peer, core: u32, domain: DomainId) -> Result<(), MonitorError> {
        assert_eq!(domain, of_core(core, MADE));
        self.pass(Call::Start(core, domain), ())?;
        if self.starts_nothing.get() { Err(MonitorError::Failed) } else { Ok(()) }
    }

    /// And tells of the death.
    async fn kill(&self, peer: &Peer, core: u32, domain: DomainId, status: u64) -> Result<(), MonitorError> {
        self.pass(Call::Kill(core, domain, status), ())?;
        let death = death(domain, DeathCause::Killed as u64, status);
        let tell = move |peer: &Peer| assert!(MonitorEvents::new(peer).died("ip".into(), 1, false, death).is_ok());
        match self.dies_after_ns.get() {
            0 => tell(peer),
            after_ns => {
                let peer = peer.clone();
                runtime::spawn(async move {
                    runtime::sleep(after_ns).await;
                    tell(&peer);
                });
            }
        }
        Ok(())
    }

    fn inject_monitor_fault(&self, _: &Peer, _: u32, _: contracts::endpoint::InjectedFault, _: u64) {}

    fn power_off(&self, _: &Peer, _: u8) {}
}

impl MemoryServer for Fake {
    async fn prepare(&self, _: &Peer, core: u32, pages: u64, limit: u64) -> Result<u64, MemoryError> {
        self.call(Call::Prepare(core, pages, limit));
        if self.has_no_room.get() { Err(MemoryError::NoMemory) } else { Ok(pages) }
    }

    async fn usage(&self, _: &Peer, _: u32) -> Result<(u64, u64), MemoryError> {
        Err(MemoryError::NoMemory)
    }
}

impl NamesServer for Fake {
    async fn register(&self, _: &Peer, entry: Named) -> Result<(), NamesError> {
        self.call(Call::Register(entry));
        Ok(())
    }

    async fn unregister(&self, _: &Peer, _: String) -> Result<(), NamesError> {
        Ok(())
    }

    async fn told_all(&self, _: &Peer) -> Result<(), NamesError> {
        self.call(Call::ToldAll);
        Ok(())
    }

    async fn find(&self, _: &Peer, contract: String, core: u32, index: u32) -> Result<Named, NamesError> {
        self.call(Call::Find(contract.clone(), core, index));
        if let Some(answer) = &*self.finds.borrow() {
            return answer.clone();
        }
        match self.not_yet.get().checked_sub(1) {
            Some(left) => {
                self.not_yet.set(left);
                Err(NamesError::NotYet)
            }
            None => Ok(Named { component: "driver".into(), contract, domain: MADE + 1, core, generation: 1 }),
        }
    }
}

/// A system with two components, of which one serves programs.
fn description() -> System {
    let components = ["ip", CONSOLE].map(component).into();
    let uses = vec![Use { contract: "descriptions".into(), server: CONSOLE.into() }];
    System { components, linux: Linux { core: Placement::default(), priority: 1, memory_limit_pages: 1, uses } }
}

fn component(name: &str) -> Component {
    Component {
        name: name.into(),
        program: "ip".into(),
        core: Placement::default(),
        priority: 1,
        budget: None,
        memory_limit_pages: 1,
        provides: Vec::new(),
        uses: Vec::new(),
        binds: vec![BOUND.into()],
        restart: Restart::Always,
        devices: Vec::new(),
        has_vectors: false,
        regions: Vec::new(),
        workers: system::Workers::None,
        handlers: system::Handlers::One,
    }
}

/// One on a core that serves a contract of its name, and uses those of others.
fn on(core: u32, name: &str, uses: &[&str]) -> Component {
    Component {
        core: Placement::Preferred(vec![core]),
        memory_limit_pages: 1000,
        provides: vec![name.into()],
        uses: uses.iter().map(|name| Use { contract: (*name).into(), server: (*name).into() }).collect(),
        ..component(name)
    }
}

/// A system of such, with what its Linux programs use.
fn system_of(components: Vec<Component>, uses: &[&str]) -> System {
    let uses = uses.iter().map(|name| Use { contract: (*name).into(), server: (*name).into() }).collect();
    System { components, linux: Linux { uses, ..description().linux } }
}

/// Spawn, and a client of it.
fn begin(fake: &Rc<Fake>) -> (Rc<Service>, SpawnClient) {
    begin_with(fake, description(), 1)
}

/// Spawn on so many cores.
fn begin_with(fake: &Rc<Fake>, system: System, cores: u32) -> (Rc<Service>, SpawnClient) {
    let names = channel::loopback(Layout::default());
    runtime::spawn(serve_names(fake.clone(), names.1));
    begin_beside(fake, system, cores, NamesClient::new(names.0))
}

/// Spawn with that name server.
fn begin_beside(fake: &Rc<Fake>, system: System, cores: u32, names: NamesClient) -> (Rc<Service>, SpawnClient) {
    let [monitor, memory, spawn] = [(); 3].map(|()| channel::loopback(Layout::default()));
    runtime::spawn(serve_monitor(fake.clone(), monitor.1));
    runtime::spawn(serve_memory(fake.clone(), memory.1));
    let clients = (MonitorClient::new(monitor.0), MemoryClient::new(memory.0));
    let service = Rc::new(Service::new(system, cores, clients.0, clients.1, names));
    runtime::spawn(service.clone().listen());
    runtime::spawn(serve_spawn(Rc::new(Shared(service.clone())), spawn.1));
    (service, SpawnClient::new(spawn.0))
}

/// The supervisor dies at any time after it asked for a component: what is made is started, or
/// nothing was begun.
#[test]
fn a_component_that_is_begun_is_started_whatever_becomes_of_who_asked() {
    for dies_after_ns in (0..=MAKING_NS + MAKING_NS / 2).step_by(MAKING_NS as usize / 10) {
        let asked = runtime::testing::run(async {
            let fake = Rc::new(Fake::default());
            let (_, supervisor) = begin(&fake);
            // It is asked, and the wait for its answer ends with who waits.
            let _ = runtime::timeout(dies_after_ns, supervisor.component("ip".into(), 1, 0)).await;
            supervisor.channel().close();
            runtime::sleep(10 * MAKING_NS).await;
            fake.asked()
        });
        let is_whole = asked.is_empty() || asked == [Asked::Create, Asked::Start];
        assert!(is_whole, "dead after {dies_after_ns} ns: {asked:?}");
        assert!(dies_after_ns < MAKING_NS / 2 || !asked.is_empty(), "it was not even asked");
    }
}

/// A start that fails when the component is made: nobody would end what stands there, and its name
/// would stay taken. Who asked hears of it, and asks again.
#[test]
fn what_is_made_and_does_not_start_is_ended() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake { starts_nothing: Cell::new(true), ..Fake::default() });
        let (_, supervisor) = begin(&fake);
        for _ in 0..2 {
            let refused = supervisor.component("ip".into(), 1, 0).await;
            assert_eq!(refused, Err(CallError::Server(SpawnError::Failed)));
            assert_eq!(fake.asked(), [Asked::Create, Asked::Start, Asked::Kill(MADE)]);
        }
        fake.starts_nothing.set(false);
        assert_eq!(supervisor.component("ip".into(), 1, 0).await, Ok(MADE));
        assert_eq!(fake.asked(), [Asked::Create, Asked::Start]);
    });
}

/// A name server that was restarted does not know all at once: who asks it meanwhile is connected a
/// little later.
#[test]
fn who_asks_a_restarted_name_server_waits_until_it_was_told_all() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake { not_yet: Cell::new(3), runs: Cell::new(Some(MADE)), ..Fake::default() });
        let (service, _supervisor) = begin(&fake);
        service.clone().bind(MADE, 1, BOUND.into(), 0).await;
        assert_eq!(fake.asked(), [Asked::Introduce]);
        assert_eq!(fake.not_yet.get(), 0);
        // One that never is told all is not waited for for ever.
        fake.not_yet.set(u32::MAX);
        assert!(runtime::timeout(5_000_000_000, service.bind(MADE, 2, BOUND.into(), 0)).await.is_ok());
        assert_eq!(fake.asked(), [Asked::Refuse]);
    });
}

/// The core of the server keeps a channel's memory until the client's has let it go: that is asked
/// for again.
#[test]
fn what_a_core_did_not_let_go_is_closed_later() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake { keeps_channels: Cell::new(true), ..Fake::default() });
        let (service, _supervisor) = begin(&fake);
        let plan = wiring::plan(5, BOUND, ("ip", 1), ("driver", 0));
        service.close(&[plan]).await;
        assert_eq!(fake.asked(), [Asked::Close(1, 5)]);
        fake.keeps_channels.set(false);
        service.close(&[]).await;
        assert_eq!(fake.asked(), [Asked::Close(1, 5), Asked::Close(0, 5)]);
        service.close(&[]).await;
        assert_eq!(fake.asked(), [], "once");
    });
}

/// Deaths that were not told are found.
#[test]
fn who_ended_while_events_were_lost_is_told_of() {
    const SOON_NS: u64 = 1_000_000_000;
    runtime::testing::run(async {
        let fake = Rc::new(Fake { runs: Cell::new(Some(MADE)), ..Fake::default() });
        let (service, process) = begin(&fake);
        process.ready().unwrap();
        assert_eq!(process.linux(None, None, 0).await.unwrap().domain, MADE);
        let lose = async || {
            // So that the fake has met it.
            let _ = service.monitor.domain(0, 0).await;
            MonitorEvents::new(fake.peer.borrow().as_ref().unwrap()).lost();
            runtime::timeout(SOON_NS, process.next_event()).await
        };
        assert!(lose().await.is_err(), "it lives");
        fake.runs.set(None);
        let told = lose().await;
        assert!(matches!(told, Ok(SpawnEvent::Died { death }) if death.domain == MADE));
    });
}

/// Channels are kept for later programs; while there is no room for one that comes they go.
#[test]
fn spare_channels_make_room_for_a_program() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake { is_full: Cell::new(true), ..Fake::default() });
        let (service, process) = begin(&fake);
        for number in [1, 2] {
            let channels = vec![wiring::plan(number.into(), BOUND, ("linux", 0), ("driver", 0))];
            let set = ChannelSet { number, core: 0, channels, is_broken: false };
            assert!(service.linux.borrow_mut().keep(set).is_none());
        }
        let _ = process.ready();
        assert_eq!(process.linux(None, None, 0).await.unwrap().domain, MADE);
        assert_eq!(fake.asked(), [Asked::Create, Asked::Close(0, 1), Asked::Create], "it has the other set");
    });
}

/// A program is made while one of its servers is away, which is brought its channel when it begins
/// again.
#[test]
fn a_program_does_not_wait_for_a_server_that_is_away() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (_service, client) = begin(&fake);
        let _ = client.ready();
        assert_eq!(client.linux(None, None, 0).await.map(|made| made.domain), Ok(MADE));
        assert_eq!(fake.brought.take(), []);
        for life in 2..4 {
            assert_eq!(client.component(CONSOLE.into(), life, 0).await, Ok(MADE));
            assert_eq!(fake.brought.take(), [(wiring::RUN_TIME_CHANNELS + 1, life)]);
        }
    });
}

/// A server ends and begins again at any time before, while and after a program is made: each life
/// is brought the program's channel once, be it a new one or one that an earlier program had.
#[test]
fn a_channel_is_brought_to_each_life_of_its_server_once() {
    const STEP_NS: u64 = MAKING_NS / 8;
    for (step, away_ns) in (0..16).flat_map(|step| [STEP_NS, 4 * STEP_NS].map(|away_ns| (step, away_ns))) {
        for is_spare in [false, true] {
            let brought = runtime::testing::run(brought_beside_a_death(step * STEP_NS, away_ns, is_spare));
            let to_second = brought.iter().filter(|life| **life == 2).count();
            assert!(to_second == 1, "spare {is_spare}, dead after {step} steps, {away_ns} ns away: {brought:?}");
        }
    }
}

/// A program is made and the console dies, at that time: to which of its lives the program's
/// channel was brought.
async fn brought_beside_a_death(dies_ns: u64, away_ns: u64, is_spare: bool) -> Vec<u64> {
    let fake = Rc::new(Fake { console: Cell::new(Some(1)), ..Fake::default() });
    let (service, client) = begin(&fake);
    let _ = client.ready();
    if is_spare {
        let id = wiring::RUN_TIME_CHANNELS + 1;
        let channels = vec![wiring::plan(id, "descriptions", ("linux-1", 0), (CONSOLE, 0))];
        let set = ChannelSet { number: 1, core: 0, channels, is_broken: false };
        assert!(service.linux.borrow_mut().keep(set).is_none());
    }
    let (dying, supervisor) = (fake.clone(), client.clone());
    runtime::spawn(async move {
        runtime::sleep(dies_ns).await;
        dying.console.set(None);
        runtime::sleep(away_ns).await;
        assert_eq!(supervisor.component(CONSOLE.into(), 2, 0).await, Ok(MADE));
    });
    runtime::sleep(MAKING_NS).await;
    assert_eq!(client.linux(None, None, 0).await.map(|made| made.domain), Ok(MADE));
    runtime::sleep(10 * MAKING_NS).await;
    fake.brought.take().into_iter().map(|(_, life)| life).collect()
}

/// How many lines the log would have had, had each been written.
fn counted(lines: &[String]) -> usize {
    let more = |line: &String| line.split_once(" (and ")?.1.split(' ').next()?.parse::<usize>().ok();
    lines.iter().map(|line| 1 + more(line).unwrap_or(0)).sum()
}

/// Forks come in thousands: that there is no room for them is told once a second, with a count.
#[test]
fn programs_that_are_refused_are_told_once_a_second() {
    const REFUSED: usize = 500;
    let (took_ns, lines) = runtime::testing::logged(async {
        let full = Cell::new(true);
        let fake = Rc::new(Fake { is_full: full.clone(), has_no_room: full, ..Fake::default() });
        let (_service, process) = begin(&fake);
        let _ = process.ready();
        let begun_ns = runtime::now_ns();
        for _ in 0..REFUSED {
            let refused = process.linux(None, None, 0).await;
            assert_eq!(refused.map(drop), Err(CallError::Server(SpawnError::NoMemory)));
        }
        runtime::sleep(2 * SECOND_NS).await;
        runtime::now_ns() - begun_ns
    });
    assert!(lines.len() as u64 <= took_ns / SECOND_NS + 1, "{} lines in {took_ns} ns", lines.len());
    assert!(lines.iter().all(|line| line.starts_with("no room for ")), "{lines:?}");
    assert_eq!(counted(&lines), REFUSED);
}

/// So is that the process server does not take what it is told.
#[test]
fn events_that_are_not_taken_are_told_once_a_second() {
    const ENDED: u64 = 500;
    let (took_ns, lines) = runtime::testing::logged(async {
        let fake = Rc::new(Fake::default());
        let (service, process) = begin(&fake);
        let _ = process.ready();
        assert_eq!(process.linux(None, None, 0).await.unwrap().domain, MADE);
        let client = service.linux.borrow_mut().take(MADE).unwrap().client;
        process.channel().close();
        runtime::sleep(MAKING_NS).await;
        let begun_ns = runtime::now_ns();
        for domain in 1..=ENDED {
            let set = service.linux.borrow_mut().begin(0).unwrap();
            let entry = LinuxEntry { set, client: client.clone() };
            service.linux.borrow_mut().made(domain, entry);
            runtime::sleep(MAKING_NS).await;
            let death = Death { domain, cause: 0, status: 0, address: 0, rip: 0, cpu_ns: 0 };
            service.clone().domain_died(death).await;
        }
        runtime::sleep(2 * SECOND_NS).await;
        runtime::now_ns() - begun_ns
    });
    assert!(lines.len() as u64 <= took_ns / SECOND_NS + 1, "{} lines in {took_ns} ns", lines.len());
    assert!(lines.iter().all(|line| line.contains("does not take its events")), "{lines:?}");
    assert_eq!(counted(&lines) as u64, ENDED);
}
