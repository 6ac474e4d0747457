//! The `monitor` contract over the registry: acts on this core, passes on what is for others, tells
//! clients what happened.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::{Poll, Waker};

use abi::{Handle, ObjectType};
use channel::{CallError, ClientChannel, Doorbell, Peer, SendError, ServerChannel, Wiring, queued};
use contracts::endpoint::{BindError, EndpointClient, EndpointEvent, InjectedFault, Wired, Work};
use contracts::lookup::{self, serve_lookup};
use contracts::monitor::*;
use contracts::names::NamesClient;
use contracts::spawn::{Death, DomainId, MemoryId};
use monitor_core::{DEATH_BADGES, Dead, EndpointWire, LostCores, Machine, Moves, Registry, STALL_BADGES, Wire};
use runtime::{LogLimit, Watch, now_ns};

use crate::cores::RemoteMonitor;
use crate::kernel_calls::KernelCalls;
use crate::link::Link;
use crate::lookup::Names;

/// How long a request waits for a core that is starting.
const CORE_LIMIT_NS: u64 = 30_000_000_000;
/// How long another monitor may take: more than a server to accept a channel.
const FAR_LIMIT_NS: u64 = 4 * CONNECT_LIMIT_NS;
/// How often a component that serves is notified: with the kernel's limit on how long it may leave
/// that alone, and the report's way, below the 200 ms promised.
const BEAT_NS: u64 = 40_000_000;
/// One beat in so many is for those at rest too, once a second: what they sleep for may have come
/// without their being woken.
const BEATS_BETWEEN: u32 = 25;
/// How long a server may take to accept a channel. A busy one gets to it late (200 processes forked
/// at once on one core: over 200 ms); a hung one is found by its watch and killed, and a death ends
/// the wait.
const CONNECT_LIMIT_NS: u64 = 5_000_000_000;

/// This core's monitor.
pub struct Service<M = KernelCalls> {
    pub(crate) core: u32,
    pub(crate) registry: RefCell<Registry<M>>,
    /// Other cores' links, whether they run or not; only at core 0.
    pub links: RefCell<BTreeMap<u32, Rc<Link>>>,
    /// Other cores, while they are up; only at core 0.
    pub remote_monitors: RefCell<BTreeMap<u32, RemoteMonitor>>,
    /// Domains of other cores, each as its death is told if its core is lost; only at core 0.
    pub elsewhere: RefCell<BTreeMap<DomainId, Dead>>,
    /// How components of other cores ended last: their monitors may be lost. Only at core 0.
    pub ends: RefCell<BTreeMap<String, (u64, Death)>>,
    /// Cores that were lost, and how long to wait before each runs again.
    pub lost: RefCell<LostCores>,
    /// Some core started or halted.
    pub cores_changed: Watch,
    /// Pages between cores; only at core 0.
    pub moves: RefCell<Moves>,
    /// Some did not go on their way any more.
    pub moved: Watch,
    /// A core is being started or halted.
    pub changing: Cell<bool>,
    /// All cores that start at boot are up or given up.
    pub booted: Cell<bool>,
    /// Those who wait for a core to come up.
    waiting: RefCell<Vec<Waker>>,
    endpoints: RefCell<BTreeMap<DomainId, Endpoint>>,
    /// A component of this core came to serve.
    begun: Watch,
    listeners: RefCell<Vec<Listener>>,
    /// Deaths told to the supervisor's guard.
    pub deaths: Deaths,
    /// A later look at devices is under way.
    quietens: Cell<bool>,
    names: Rc<Names>,
    /// Says what components do not take: each fork brings some of them a channel.
    not_taken: LogLimit,
}

/// A component of this core.
struct Endpoint {
    client: EndpointClient,
    /// Since when it serves.
    serving_since_ns: Option<u64>,
}

/// A client that hears events.
struct Listener {
    peer: Peer,
    events: MonitorEvents,
    /// It makes Linux domains: their deaths are its alone, as they are many and nobody else's
    /// business.
    makes_linux: bool,
    /// Says that it does not take them.
    not_taken: LogLimit,
}

/// Whom the monitor itself has to look after: told of each death of a component on this core, by
/// name and generation, and how long it served, in nanoseconds; `None`: it never did.
pub type Deaths = RefCell<Option<Rc<dyn Fn(&str, u64, Option<u64>)>>>;

impl<M: Machine + 'static> Service<M> {
    /// Nothing made yet.
    pub fn new(registry: Registry<M>) -> Service<M> {
        Service {
            core: registry.facts().core,
            links: RefCell::default(),
            remote_monitors: RefCell::default(),
            elsewhere: RefCell::default(),
            ends: RefCell::default(),
            lost: RefCell::default(),
            cores_changed: Watch::default(),
            moves: RefCell::default(),
            moved: Watch::default(),
            changing: Cell::new(true),
            booted: Cell::new(false),
            waiting: RefCell::default(),
            endpoints: RefCell::default(),
            begun: Watch::default(),
            listeners: RefCell::default(),
            deaths: RefCell::default(),
            quietens: Cell::new(false),
            not_taken: LogLimit::default(),
            names: Rc::new(Names::new(registry.facts().core)),
            registry: RefCell::new(registry),
        }
    }

    /// Whether it is core 0's.
    pub fn is_first(&self) -> bool {
        self.core == 0
    }

    /// Cores of the machine.
    pub fn cores(&self) -> u32 {
        self.registry.borrow().facts().cores
    }

    /// A core came up, or will not: those who wait for one look again.
    pub fn wake_waiting(&self) {
        self.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Asks the monitor of another core. One that does not answer at all is ended, with its core's
    /// programs, and the core run again.
    pub async fn remote_core<T, F>(
        self: &Rc<Self>,
        core: u32,
        ask: impl FnOnce(MonitorClient) -> F,
    ) -> Result<T, MonitorError>
    where
        F: Future<Output = Result<T, CallError<MonitorError>>>,
    {
        let client = self.link(core).await?;
        match runtime::timeout(FAR_LIMIT_NS, ask(client.clone())).await {
            Ok(answer) => passed(answer),
            Err(_) => {
                runtime::log!("core {core}: its monitor does not answer for {} s", FAR_LIMIT_NS / 1_000_000_000);
                self.is_lost(core, &client);
                Err(MonitorError::Away)
            }
        }
    }

    async fn link(&self, core: u32) -> Result<MonitorClient, MonitorError> {
        if self.core != 0 || core >= self.cores() {
            return Err(MonitorError::NoCore);
        }
        let up = poll_fn(|context| match self.remote_monitors.borrow().get(&core) {
            Some(remote) => Poll::Ready(Ok(remote.client.clone())),
            // One that did not come up at boot, or was halted.
            None if self.booted.get() => Poll::Ready(Err(MonitorError::NoCore)),
            None => {
                self.waiting.borrow_mut().push(context.waker().clone());
                Poll::Pending
            }
        });
        runtime::timeout(CORE_LIMIT_NS, up).await.unwrap_or_else(|_| {
            runtime::log!("core {core} is not up");
            Err(MonitorError::NoCore)
        })
    }

    /// Serves a client, which hears events from now on.
    pub async fn serve(self: Rc<Self>, channel: ServerChannel) {
        let peer = channel.peer().clone();
        let listener = Listener {
            peer: peer.clone(),
            events: MonitorEvents::new(&peer),
            makes_linux: false,
            not_taken: LogLimit::default(),
        };
        self.listeners.borrow_mut().push(listener);
        serve_monitor(self.clone(), channel).await;
        self.listeners.borrow_mut().retain(|listener| listener.peer != peer);
    }

    /// Tells every client.
    pub fn tell(&self, event: impl Fn(&MonitorEvents) -> Result<(), SendError>) {
        self.listeners.borrow().iter().for_each(|listener| listener.tell(&event));
    }

    /// Tells every client that it may have missed something.
    pub fn tell_lost(&self) {
        self.listeners.borrow().iter().for_each(|listener| listener.events.lost());
    }

    /// Sends a death to every client that subscribed to it.
    pub fn tell_death(&self, dead: &Dead) {
        if !dead.linux && self.is_first() {
            self.ends.borrow_mut().insert(dead.name.clone(), (dead.generation, dead.death));
        }
        for listener in self.listeners.borrow().iter().filter(|listener| listener.makes_linux || !dead.linux) {
            listener.tell(&|events| events.died(dead.name.clone(), dead.generation, dead.linux, dead.death));
        }
    }

    /// From now on this client hears of deaths of Linux domains.
    fn makes_linux(&self, peer: &Peer) {
        let mut listeners = self.listeners.borrow_mut();
        let listener = listeners.iter_mut().find(|listener| listener.peer == *peer);
        listener.into_iter().for_each(|listener| listener.makes_linux = true);
    }

    /// Looks at deaths as the kernel reports them.
    pub async fn watch_deaths(self: Rc<Self>) {
        loop {
            let bits = runtime::notified(DEATH_BADGES).await;
            let dead = self.registry.borrow_mut().deaths(bits);
            for dead in dead {
                let endpoint = self.endpoints.borrow_mut().remove(&dead.death.domain);
                let served_ns = endpoint.and_then(|Endpoint { client, serving_since_ns }| {
                    client.channel().close();
                    Some(now_ns().saturating_sub(serving_since_ns?))
                });
                self.tell_death(&dead);
                let guard = self.deaths.borrow().clone();
                guard.into_iter().filter(|_| !dead.linux).for_each(|guard| {
                    guard(&dead.name, dead.generation, served_ns);
                });
            }
            self.quiesce_unused();
        }
    }

    /// Makes devices quiet that nobody serves with, now and later.
    fn quiesce_unused(self: &Rc<Self>) {
        let Some(later_ns) = self.registry.borrow_mut().quiesce_unused(runtime::now_ns()) else { return };
        if self.quietens.replace(true) {
            return;
        }
        let service = self.clone();
        runtime::spawn(async move {
            runtime::sleep(later_ns).await;
            service.quietens.set(false);
            service.quiesce_unused();
        });
    }

    /// Beats the components of this core while there are any that serve.
    pub async fn beat(self: Rc<Self>) {
        for beats in 0_u32.. {
            let everybody = beats % BEATS_BETWEEN == 0;
            let beat = || self.registry.borrow_mut().beat(everybody).then_some(());
            self.begun.until(beat).await;
            runtime::sleep(BEAT_NS).await;
        }
    }

    /// Looks at stalls as the kernel reports them.
    pub async fn watch_stalls(self: Rc<Self>) {
        loop {
            let bits = runtime::notified(STALL_BADGES).await;
            let stalled = self.registry.borrow().stalled(bits);
            stalled.into_iter().for_each(|domain| self.stalled(domain));
        }
    }

    /// A component hangs: it is ended here, as a client that was told of it
    /// might be gone by then, and the kernel tells of a stall once. Its death follows.
    fn stalled(&self, domain: DomainId) {
        let name = self.domain_name(domain);
        runtime::log!("{name} hangs: ending it");
        self.tell(|listener| listener.stalled(domain));
        if let Err(error) = self.registry.borrow_mut().kill(domain, STALLED) {
            runtime::log!("{name} cannot be ended: {error:?}");
        }
    }

    /// Opens a channel on this core, and uses it if an end is the monitor's own: it serves
    /// `monitor` and `lookup`, and is a client of `names` only.
    pub fn open_here(self: &Rc<Self>, plan: ChannelPlan, other: Option<Place>) -> Result<Place, MonitorError> {
        let contract = plan.contract.clone();
        let opened = self.registry.borrow_mut().open(plan, other)?;
        if let Some((end, wire)) = opened.own {
            let wiring = own_wiring(wire);
            match (end, contract.as_str()) {
                (End::Client, _) => {
                    let server = NamesClient::new(ClientChannel::new(wiring));
                    runtime::spawn(self.names.clone().follow(server));
                }
                (End::Server, lookup::NAME) => {
                    runtime::spawn(serve_lookup(self.names.clone(), ServerChannel::new(wiring)));
                }
                (End::Server, _) => {
                    runtime::spawn(self.clone().serve(ServerChannel::new(wiring)));
                }
            }
        }
        Ok(opened.place)
    }

    /// Makes a domain on this core and listens to it.
    pub fn create_here(self: &Rc<Self>, plan: DomainPlan) -> Result<Created, MonitorError> {
        let name = plan.name.clone();
        let (created, wire) = self.registry.borrow_mut().create(plan)?;
        let (id, Some(wire)) = (created.domain, wire) else { return Ok(created) };
        let EndpointWire { memory, doorbell, badge } = wire;
        let wiring = own_wiring(Wire { memory, doorbell, badge, peer: name, remote: false });
        let client = EndpointClient::new(ClientChannel::new(wiring));
        let (service, events) = (self.clone(), client.clone());
        runtime::spawn(async move {
            loop {
                match events.next_event().await {
                    EndpointEvent::Serving {} => {
                        service.registry.borrow_mut().set_serving(id);
                        let mut endpoints = service.endpoints.borrow_mut();
                        let endpoint = endpoints.get_mut(&id);
                        endpoint.into_iter().for_each(|it| _ = it.serving_since_ns.get_or_insert_with(now_ns));
                        drop(endpoints);
                        service.begun.changed();
                        service.tell(|listener| listener.serving(id));
                    }
                    EndpointEvent::Wants { request, contract, index } => service.wants(id, request, contract, index),
                    EndpointEvent::Lost | EndpointEvent::PeerRestarted => {}
                    EndpointEvent::Closed => return,
                }
            }
        });
        self.endpoints.borrow_mut().insert(id, Endpoint { client, serving_since_ns: None });
        Ok(created)
    }

    /// Runs a domain of this core.
    pub fn start_here(&self, id: DomainId) -> Result<(), MonitorError> {
        self.registry.borrow_mut().start(id)
    }

    /// What the domain of that id is called: a component of this core, this monitor, or, if it has
    /// ended, its id. Nobody (0) has no name.
    pub(crate) fn domain_name(&self, id: DomainId) -> String {
        let is_own = || sys::cap_stat(Handle::SELF_DOMAIN).is_ok_and(|(_, own, _)| own == id);
        match self.registry.borrow().name_of(id) {
            Some(name) => name,
            None if id == 0 => String::new(),
            None if is_own() => wiring::MONITOR.into(),
            None => format!("domain {id:#x}, which has ended"),
        }
    }

    /// A component asks for a channel: passed on, unless too many of its questions are open.
    fn wants(&self, id: DomainId, request: u64, contract: String, index: u32) {
        if self.registry.borrow_mut().asks(id) {
            self.tell(|listener| listener.wants(id, request, contract.clone(), index));
        } else if let Ok(endpoint) = self.endpoint(id) {
            // If it does not even take that, its own limit answers it.
            let _ = endpoint.refused(request, BindError::Failed);
        }
    }

    /// Kills or breaks a component, on any core.
    async fn inject_fault(self: &Rc<Self>, core: u32, domain: DomainId, how: FaultKind) -> Result<(), MonitorError> {
        if core != self.core {
            return self.remote_core(core, |monitor| monitor.inject_fault(core, domain, how, 0)).await;
        }
        match how {
            FaultKind::Kill(status) => self.registry.borrow_mut().kill(domain, status),
            FaultKind::Inject(how) => self.endpoint(domain)?.inject_fault(how).map_err(|_| MonitorError::Failed),
        }
    }

    /// Brings a component a channel.
    async fn connect(&self, to: DomainId, wired: Wired) -> Result<(), MonitorError> {
        let contract = wired.contract.clone();
        let endpoint = self.endpoint(to)?;
        match runtime::timeout(CONNECT_LIMIT_NS, queued(|| endpoint.connect(wired.clone()))).await {
            Ok(Ok(())) => return Ok(()),
            // It ended meanwhile.
            Ok(Err(CallError::Closed)) if self.endpoint(to).is_err() => return Err(MonitorError::NotFound),
            Ok(Err(error)) => self.not_taken.log(format!("channel {contract} was not taken: {error:?}")),
            Err(_) => self.not_taken.log(format!("channel {contract} was not taken in time")),
        }
        Err(MonitorError::Failed)
    }

    pub(crate) fn endpoint(&self, id: DomainId) -> Result<EndpointClient, MonitorError> {
        self.endpoints.borrow().get(&id).map(|it| it.client.clone()).ok_or(MonitorError::NotFound)
    }
}

impl Listener {
    fn tell(&self, event: &impl Fn(&MonitorEvents) -> Result<(), SendError>) {
        if event(&self.events) == Err(SendError::Full) {
            self.not_taken.log(format!("{} does not take its events", self.peer.name()));
        }
    }
}

fn own_wiring(Wire { memory, doorbell, badge, peer, remote }: Wire) -> Wiring {
    Wiring { memory, doorbell: Doorbell::Notify(doorbell), badge, remote, peer, peer_set: 0 }
}

/// Another core's monitor is not there, or said no.
pub fn passed<T>(answer: Result<T, CallError<MonitorError>>) -> Result<T, MonitorError> {
    answer.map_err(|error| match error {
        CallError::Server(error) => error,
        _ => MonitorError::NoCore,
    })
}

pub fn kernel<T>(answer: Result<T, abi::Error>) -> Result<T, MonitorError> {
    answer.map_err(|error| match error {
        abi::Error::NoMemory | abi::Error::Busy => MonitorError::NoMemory,
        _ => MonitorError::Failed,
    })
}

/// The service as peers reach it.
pub struct Shared<M>(pub Rc<Service<M>>);

/// Serves `monitor` with the service that every client shares.
async fn serve_monitor<M: Machine + 'static>(service: Rc<Service<M>>, channel: ServerChannel) {
    contracts::monitor::serve_monitor(Rc::new(Shared(service)), channel).await;
}

impl<M: Machine + 'static> Shared<M> {
    fn is_here(&self, core: u32) -> bool {
        core == self.0.core
    }

    /// Asks this monitor or that of another core, whichever has the core.
    async fn of_core<T, F: Future<Output = Result<T, CallError<MonitorError>>>>(
        &self,
        core: u32,
        here: impl FnOnce(&mut Registry<M>) -> Result<T, MonitorError>,
        there: impl FnOnce(MonitorClient) -> F,
    ) -> Result<T, MonitorError> {
        if self.is_here(core) { here(&mut self.0.registry.borrow_mut()) } else { self.0.remote_core(core, there).await }
    }
}

impl<M: Machine + 'static> MonitorServer for Shared<M> {
    async fn open(&self, _: &Peer, core: u32, plan: ChannelPlan, other: Option<Place>) -> Result<Place, MonitorError> {
        if self.is_here(core) {
            return self.0.open_here(plan, other);
        }
        self.0.remote_core(core, |monitor| monitor.open(core, plan, other)).await
    }

    async fn close(&self, _: &Peer, core: u32, id: ChannelId) -> Result<(), MonitorError> {
        let close = |here: &mut Registry<M>| {
            here.close(id);
            Ok(())
        };
        self.of_core(core, close, |there| there.close(core, id)).await
    }

    async fn announce(&self, _: &Peer, core: u32, id: ChannelId, set: u32) -> Result<(), MonitorError> {
        if !self.is_here(core) {
            return self.0.remote_core(core, |monitor| monitor.announce(core, id, set)).await;
        }
        let (server, wired) = self.0.registry.borrow_mut().announce(id, set)?;
        self.0.connect(server, wired).await
    }

    async fn introduce(
        &self,
        _: &Peer,
        core: u32,
        id: ChannelId,
        client: DomainId,
        request: u64,
    ) -> Result<(), MonitorError> {
        if !self.is_here(core) {
            return self.0.remote_core(core, |monitor| monitor.introduce(core, id, client, request)).await;
        }
        let wired = self.0.registry.borrow_mut().introduce(id, client, request)?;
        let taken = self.0.connect(client, wired).await;
        if taken.is_ok() {
            // Else `refuse` follows.
            self.0.registry.borrow_mut().answered(client);
        }
        taken
    }

    async fn refuse(
        &self,
        _: &Peer,
        core: u32,
        client: DomainId,
        request: u64,
        why: BindError,
    ) -> Result<(), MonitorError> {
        if !self.is_here(core) {
            return self.0.remote_core(core, |monitor| monitor.refuse(core, client, request, why)).await;
        }
        self.0.registry.borrow_mut().answered(client);
        self.0.endpoint(client)?.refused(request, why).map_err(|_| MonitorError::Failed)
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
        if self.is_here(core) {
            return self.0.registry.borrow_mut().region(&name, pages, kind, of);
        }
        self.0.remote_core(core, |monitor| monitor.region(core, name, pages, kind, of)).await
    }

    async fn common(&self, _: &Peer, core: u32, pages: u64, spare: u64) -> Result<MemoryId, MonitorError> {
        self.of_core(core, |here| here.common(pages, spare), |there| there.common(core, pages, spare)).await
    }

    async fn lend(&self, _: &Peer, core: u32, id: MemoryId, to: DomainId, writes: bool) -> Result<u64, MonitorError> {
        self.of_core(core, |here| here.lend(id, to, writes), |there| there.lend(core, id, to, writes)).await
    }

    async fn release(&self, _: &Peer, core: u32, id: MemoryId) -> Result<(), MonitorError> {
        self.of_core(core, |here| here.release(id), |there| there.release(core, id)).await
    }

    async fn create(&self, peer: &Peer, core: u32, plan: DomainPlan) -> Result<Created, MonitorError> {
        if plan.linux {
            self.0.makes_linux(peer);
        }
        if self.is_here(core) {
            return self.0.create_here(plan);
        }
        let (name, generation, linux) = (plan.name.clone(), plan.generation, plan.linux);
        let created = self.0.remote_core(core, |monitor| monitor.create(core, plan)).await?;
        if !self.0.remote_monitors.borrow().contains_key(&core) {
            // It was lost meanwhile.
            return Err(MonitorError::NoCore);
        }
        self.0.elsewhere.borrow_mut().insert(created.domain, Dead::of_core(created.domain, name, generation, linux));
        Ok(created)
    }

    async fn start(&self, _: &Peer, core: u32, domain: DomainId) -> Result<(), MonitorError> {
        if self.is_here(core) {
            return self.0.start_here(domain);
        }
        self.0.remote_core(core, |monitor| monitor.start(core, domain)).await
    }

    async fn kill(&self, _: &Peer, core: u32, domain: DomainId, status: u64) -> Result<(), MonitorError> {
        self.of_core(core, |here| here.kill(domain, status), |there| there.kill(core, domain, status)).await
    }

    async fn begin_turns(&self, _: &Peer, core: u32, domain: DomainId) -> Result<(), MonitorError> {
        self.of_core(core, |here| here.begin_turns(domain), |there| there.begin_turns(core, domain)).await
    }

    async fn discard(&self, _: &Peer, core: u32, domain: DomainId) -> Result<(), MonitorError> {
        self.of_core(core, |here| here.discard(domain), |there| there.discard(core, domain)).await
    }

    async fn inject_fault(
        &self,
        _: &Peer,
        core: u32,
        domain: DomainId,
        how: FaultKind,
        after_ns: u64,
    ) -> Result<(), MonitorError> {
        if after_ns == 0 {
            return self.0.inject_fault(core, domain, how).await;
        }
        let service = self.0.clone();
        runtime::spawn(async move {
            runtime::sleep(after_ns).await;
            if let Err(error) = service.inject_fault(core, domain, how).await {
                runtime::log!("no fault was injected into domain {domain:#x}: {error:?}");
            }
        });
        Ok(())
    }

    async fn discard_core(&self, _: &Peer, core: u32, lost: u32) -> Result<(), MonitorError> {
        if !self.is_here(core) {
            return self.0.remote_core(core, |monitor| monitor.discard_core(core, lost)).await;
        }
        self.0.registry.borrow_mut().discard_core(lost);
        Ok(())
    }

    fn inject_monitor_fault(&self, _: &Peer, core: u32, how: InjectedFault, after_ns: u64) {
        if self.is_here(core) {
            return runtime::inject_fault(how);
        }
        let service = self.0.clone();
        runtime::spawn(async move {
            runtime::sleep(after_ns).await;
            let client = service.remote_monitors.borrow().get(&core).map(|remote| remote.client.clone());
            // One that does not take it is lost already.
            let _ = client.map(|client| client.inject_monitor_fault(core, how, 0));
        });
    }

    async fn domain(&self, _: &Peer, core: u32, from: DomainId) -> Result<Option<DomainLine>, MonitorError> {
        self.of_core(core, |here| Ok(here.line(from)), |there| there.domain(core, from)).await
    }

    async fn ledger(&self, _: &Peer, core: u32, from: DomainId) -> Result<Option<LedgerLine>, MonitorError> {
        self.of_core(core, |here| Ok(here.ledger(from)), |there| there.ledger(core, from)).await
    }

    async fn work(&self, _: &Peer, core: u32, domain: DomainId) -> Result<Work, MonitorError> {
        self.0.work(core, domain).await
    }

    async fn core_time(&self, _: &Peer, core: u32) -> Result<CoreTime, MonitorError> {
        self.of_core(core, |here| here.core_time(), |there| there.core_time(core)).await
    }

    async fn last_end(&self, _: &Peer, core: u32, name: String) -> Result<Option<(u64, Death)>, MonitorError> {
        if self.is_here(core) {
            return Ok(self.0.registry.borrow().last_end(&name));
        }
        let asked = self.0.remote_core(core, |monitor| monitor.last_end(core, name.clone())).await;
        self.0.last_end_elsewhere(core, &name, asked)
    }

    async fn memory(&self, _: &Peer, core: u32) -> Result<CoreMemory, MonitorError> {
        self.of_core(core, |here| here.memory(), |there| there.memory(core)).await
    }

    async fn objects(&self, _: &Peer, core: u32) -> Result<Vec<u64>, MonitorError> {
        let count = |(of, _): &(ObjectType, _)| kernel(sys::object_count(*of));
        self.of_core(core, |_| ObjectType::ALL.iter().map(count).collect(), |there| there.objects(core)).await
    }

    async fn core_use(&self, _: &Peer, core: u32) -> Result<CoreUse, MonitorError> {
        self.0.core_use(core)
    }

    async fn move_pages(&self, _: &Peer, from: u32, to: u32, pages: u64) -> Result<(), MonitorError> {
        self.0.move_pages(from, to, pages).await
    }

    async fn carve(&self, _: &Peer, core: u32, pages: u64) -> Result<u64, MonitorError> {
        self.0.carve(core, pages).await
    }

    async fn add(&self, _: &Peer, core: u32, physical: u64, pages: u64) -> Result<(), MonitorError> {
        self.0.add(core, physical, pages).await
    }

    async fn change_core(&self, _: &Peer, core: u32, run: bool) -> Result<(), MonitorError> {
        self.0.change_core(core, run).await
    }

    async fn leave(&self, _: &Peer, core: u32) -> Result<(), MonitorError> {
        if !self.is_here(core) {
            return Err(MonitorError::NoCore);
        }
        if self.0.registry.borrow().is_empty() { Ok(()) } else { Err(MonitorError::Busy) }
    }

    fn power_off(&self, peer: &Peer, status: u8) {
        let error = sys::power_off(Handle::PCORE, status.into());
        runtime::log!("the machine cannot be powered off, as {} asks: {}", peer.name(), error.name());
    }
}

/// Something that should not be: into the log, and as an answer.
pub fn log_failed(text: &str) -> MonitorError {
    runtime::log!("{text}");
    MonitorError::Failed
}

#[cfg(test)]
pub(crate) mod tests;
