//! A machine of several cores, played: this core's monitor on a made-up kernel, those of others,
//! that write down what they are asked, and components.

use core::cell::RefCell;
use core::future::pending;

use channel::{Doorbell, Layout, Peer, ServerChannel, Wiring, loopback};
use contracts::endpoint::{EndpointError, EndpointEvents, EndpointServer, serve_endpoint};
use monitor_core::Facts;

use super::*;
use crate::fake::{Fake, code, domain, member};

pub(crate) const CORES: u32 = 4;
/// The domain that a played monitor makes, and that its core's are of.
pub(crate) const OF_FAR: DomainId = 1 << 48 | 9;
pub(crate) const DEATH: Death = Death { domain: OF_FAR, cause: 2, status: 5, address: 6, rip: 7, cpu_ns: 8 };

/// Another core's monitor.
#[derive(Default)]
pub(crate) struct Far {
    pub(crate) told: RefCell<Vec<String>>,
    /// What it refuses with.
    pub(crate) refuses: Cell<Option<MonitorError>>,
    pub(crate) hangs: Cell<bool>,
    pub(crate) peer: RefCell<Option<Peer>>,
    /// It breaks with the core: its answer comes from nowhere.
    pub(crate) loses: RefCell<Option<Rc<dyn Fn()>>>,
}

impl Far {
    async fn is_asked<T>(&self, peer: &Peer, what: String, answer: T) -> Result<T, MonitorError> {
        self.told.borrow_mut().push(what);
        *self.peer.borrow_mut() = Some(peer.clone());
        if self.hangs.get() {
            pending::<()>().await;
        }
        let loses = self.loses.borrow().clone();
        loses.into_iter().for_each(|loses| loses());
        self.refuses.get().map_or(Ok(answer), Err)
    }

    pub(crate) fn take(&self) -> Vec<String> {
        self.told.take()
    }

    /// To the peer that asked last.
    pub(crate) fn events(&self) -> MonitorEvents {
        MonitorEvents::new(self.peer.borrow().as_ref().unwrap())
    }
}

/// Operations that are written down with all they are asked, and answered so.
macro_rules! asked {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty = $value:expr;)*) => {
        $(async fn $name(&self, peer: &Peer, $($argument: $kind),*) -> Result<$answer, MonitorError> {
            let what = [stringify!($name).to_owned(), $(format!("{:?}", $argument)),*].join(" ");
            self.is_asked(peer, what, $value).await
        })*
    };
}

impl MonitorServer for Far {
    asked! {
        open(core: u32, plan: ChannelPlan, other: Option<Place>) -> Place = Place { physical: 0x6000, slot: 6 };
        close(core: u32, id: ChannelId) -> () = ();
        announce(core: u32, id: ChannelId, set: u32) -> () = ();
        introduce(core: u32, id: ChannelId, client: DomainId, request: u64) -> () = ();
        refuse(core: u32, client: DomainId, request: u64, why: BindError) -> () = ();
        region(core: u32, name: String, pages: u64, kind: RegionKind, of: Option<u64>) -> u64 = 61;
        common(core: u32, pages: u64, spare: u64) -> MemoryId = 62;
        lend(core: u32, id: MemoryId, to: DomainId, writes: bool) -> u64 = 63;
        release(core: u32, id: MemoryId) -> () = ();
        create(core: u32, plan: DomainPlan) -> Created =
            Created { domain: OF_FAR, generation: 3, parent_handles: [4, 5] };
        start(core: u32, domain: DomainId) -> () = ();
        kill(core: u32, domain: DomainId, status: u64) -> () = ();
        begin_turns(core: u32, domain: DomainId) -> () = ();
        discard(core: u32, domain: DomainId) -> () = ();
        inject_fault(core: u32, domain: DomainId, how: FaultKind, after_ns: u64) -> () = ();
        discard_core(core: u32, lost: u32) -> () = ();
        domain(core: u32, from: DomainId) -> Option<DomainLine> = None;
        ledger(core: u32, from: DomainId) -> Option<LedgerLine> =
            Some(LedgerLine { domain: OF_FAR, name: "far".into(), cpu_ns: 64, paid: Vec::new() });
        work(core: u32, domain: DomainId) -> Work = Work { ran_ns: 65, ..Work::default() };
        core_time(core: u32) -> CoreTime = CoreTime { clock_ns: 66, ..CoreTime::default() };
        last_end(core: u32, name: String) -> Option<(u64, Death)> = Some((2, DEATH));
        memory(core: u32) -> CoreMemory = CoreMemory { used_pages: 67, free_pages: 68 };
        objects(core: u32) -> Vec<u64> = vec![69, 70];
        core_use(core: u32) -> CoreUse =
            CoreUse { runs: CoreRuns::Program, claimed_by: "far".into(), programs_ns: 71 };
        move_pages(from: u32, to: u32, pages: u64) -> () = ();
        carve(core: u32, pages: u64) -> u64 = 0x7000;
        add(core: u32, physical: u64, pages: u64) -> () = ();
        change_core(core: u32, run: bool) -> () = ();
        leave(core: u32) -> () = ();
    }

    fn inject_monitor_fault(&self, _: &Peer, core: u32, how: InjectedFault, after_ns: u64) {
        self.told.borrow_mut().push(format!("inject_monitor_fault {core} {how:?} {after_ns}"));
    }

    fn power_off(&self, _: &Peer, status: u8) {
        self.told.borrow_mut().push(format!("power_off {status}"));
    }
}

/// A component, as its monitor sees it.
#[derive(Default)]
pub(crate) struct Component {
    pub(crate) told: RefCell<Vec<String>>,
    pub(crate) refuses: Cell<bool>,
    pub(crate) hangs: Cell<bool>,
}

impl EndpointServer for Component {
    async fn connect(&self, _: &Peer, wired: Wired) -> Result<(), EndpointError> {
        self.told.borrow_mut().push(format!("connect {} {} {}", wired.contract, wired.peer, wired.request));
        if self.refuses.get() { Err(EndpointError::NotServed) } else { Ok(()) }
    }

    async fn work(&self, _: &Peer) -> Result<Work, EndpointError> {
        if self.hangs.get() {
            pending::<()>().await;
        }
        if self.refuses.get() { Err(EndpointError::NotServed) } else { Ok(Work { ran_ns: 77, ..Work::default() }) }
    }

    fn refused(&self, _: &Peer, request: u64, why: BindError) {
        self.told.borrow_mut().push(format!("refused {request} {why:?}"));
    }

    fn inject_fault(&self, _: &Peer, how: InjectedFault) {
        self.told.borrow_mut().push(format!("inject_fault {how:?}"));
    }
}

pub(crate) fn on(core: u32, cores: u32) -> Rc<Service<Fake>> {
    let archive = [member("sbin/prog", &code(1)), b"070701".into()].concat();
    let facts = Facts { core, cores, ..Facts::default() };
    Rc::new(Service::new(Registry::new(Fake::default(), facts, archive.leak(), &[])))
}

/// Core 0's monitor of a machine that has booted, and a client of it.
pub(crate) struct World {
    pub(crate) service: Rc<Service<Fake>>,
    pub(crate) client: MonitorClient,
}

impl World {
    pub(crate) fn new() -> World {
        World::of(on(0, CORES))
    }

    pub(crate) fn of(service: Rc<Service<Fake>>) -> World {
        service.cores_are_up();
        runtime::spawn(service.clone().watch_deaths());
        runtime::spawn(service.clone().watch_stalls());
        let client = World::client(&service);
        World { service, client }
    }

    pub(crate) fn client(service: &Rc<Service<Fake>>) -> MonitorClient {
        let (client, served) = loopback(Layout { ring_slots: 256, bulk_bytes: 0 });
        runtime::spawn(service.clone().serve(served));
        MonitorClient::new(client)
    }

    /// Has that core's monitor come up.
    pub(crate) fn up(&self, core: u32) -> Rc<Far> {
        let (client, served) = loopback(Layout::default());
        let far = Rc::new(Far::default());
        runtime::spawn(contracts::monitor::serve_monitor(far.clone(), served));
        self.service.up(core, MonitorClient::new(client));
        far
    }

    /// Makes and runs a component, which is told of by `events`.
    pub(crate) async fn component(&self, plan: DomainPlan) -> (DomainId, Rc<Component>, EndpointEvents) {
        let id = self.client.create(0, plan).await.unwrap().domain;
        self.client.start(0, id).await.unwrap();
        let mut registry = self.service.registry.borrow_mut();
        let machine = registry.machine();
        let endpoint = machine.memory.values_mut().next_back().unwrap();
        let memory = endpoint.pop().unwrap();
        let ring = *machine.own_badges.last().unwrap();
        drop(registry);
        // The monitor's ring is lost, as there is no kernel: the test posts it.
        let wiring = Wiring {
            memory,
            doorbell: Doorbell::Loopback(ring),
            badge: RUNG,
            remote: false,
            peer: "monitor".into(),
            peer_set: 0,
        };
        let served = ServerChannel::new(wiring);
        let events = EndpointEvents::new(served.peer());
        let component = Rc::new(Component::default());
        runtime::spawn(serve_endpoint(component.clone(), served));
        (id, component, events)
    }

    /// Ends a domain, and has its death told.
    pub(crate) async fn ends(&self, id: DomainId) {
        self.client.kill(0, id, 9).await.unwrap();
        notified(DEATH_BADGES).await;
    }

    pub(crate) fn machine<T>(&self, of: impl FnOnce(&mut Fake) -> T) -> T {
        of(self.service.registry.borrow_mut().machine())
    }
}

/// The bit of components.
const RUNG: u64 = 1 << 30;

/// Posts the bits, and lets everybody who has work do it.
pub(crate) async fn notified(bits: u64) {
    executor::post(bits);
    rest().await;
}

pub(crate) async fn rest() {
    for _ in 0..4 {
        executor::post(RUNG);
        runtime::sleep(1000).await;
        runtime::take_in_all().await;
    }
}

pub(crate) fn plain(name: &str) -> DomainPlan {
    DomainPlan { regions: Vec::new(), devices: Vec::new(), ..domain(name, 1, &[]) }
}

pub(crate) fn denied<T>(error: MonitorError) -> Result<T, CallError<MonitorError>> {
    Err(CallError::Server(error))
}
