//! Spawn between monitors, memory and names that are played.

use std::cell::RefCell;
use std::rc::Rc;

use channel::{Layout, Peer};
use contracts::endpoint::BindError;
use contracts::memory::{MemoryClient, MemoryError, MemoryServer, serve_memory};
use contracts::monitor::*;
use contracts::names::{Named, NamesClient, NamesError, NamesServer, serve_names};
use contracts::spawn::{Death, DomainId, SpawnClient, serve_spawn};
use system::{Component, Linux, Placement, Restart, System};

use crate::service::{Service, Shared};

/// How long the answer of the monitor that makes a domain takes.
const MAKING_NS: u64 = 10_000_000;
const MADE: DomainId = 7;

/// What the monitor was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Create,
    Start,
}

#[derive(Default)]
struct Fake {
    asked: RefCell<Vec<Asked>>,
}

/// Operations that no test here needs.
macro_rules! refused {
    ($($name:ident($($of:ty),*) -> $gives:ty;)*) => {
        $(async fn $name(&self, _: &Peer, $(_: $of),*) -> Result<$gives, MonitorError> {
            Err(MonitorError::Failed)
        })*
    };
}

impl MonitorServer for Fake {
    refused! {
        open(u32, ChannelPlan, Option<Place>) -> Place;
        close(u32, ChannelId) -> ();
        announce(u32, ChannelId, u32) -> ();
        introduce(u32, ChannelId, DomainId, u64) -> ();
        refuse(u32, DomainId, u64, BindError) -> ();
        region(u32, String, u64, RegionKind, Option<u64>) -> u64;
        kill(u32, DomainId, u64) -> ();
        discard(u32, DomainId) -> ();
        harm(u32, DomainId, Harm, u64) -> ();
        domain(u32, DomainId) -> Option<DomainLine>;
        last_end(u32, String) -> Option<(u64, Death)>;
        memory(u32) -> CoreMemory;
        objects(u32) -> Vec<u64>;
        core_use(u32) -> CoreUse;
        move_pages(u32, u32, u64) -> ();
        carve(u32, u64) -> u64;
        add(u32, u64, u64) -> ();
        change_core(u32, bool) -> ();
        leave(u32) -> ();
        forget_core(u32, u32) -> ();
    }

    async fn create(&self, _: &Peer, _: u32, _: DomainPlan) -> Result<Created, MonitorError> {
        self.asked.borrow_mut().push(Asked::Create);
        runtime::sleep(MAKING_NS).await;
        Ok(Created { domain: MADE, ..Created::default() })
    }

    async fn start(&self, _: &Peer, _: u32, domain: DomainId) -> Result<(), MonitorError> {
        assert_eq!(domain, MADE);
        self.asked.borrow_mut().push(Asked::Start);
        Ok(())
    }

    fn hurt_monitor(&self, _: &Peer, _: u32, _: contracts::endpoint::Hurt, _: u64) {}

    fn power_off(&self, _: &Peer, _: u8) {}
}

impl MemoryServer for Fake {
    async fn prepare(&self, _: &Peer, _: u32, _: u64, _: u64) -> Result<u64, MemoryError> {
        Err(MemoryError::NoMemory)
    }

    async fn usage(&self, _: &Peer, _: u32) -> Result<(u64, u64), MemoryError> {
        Err(MemoryError::NoMemory)
    }
}

impl NamesServer for Fake {
    async fn register(&self, _: &Peer, _: Named) -> Result<(), NamesError> {
        Ok(())
    }

    async fn forget(&self, _: &Peer, _: String) -> Result<(), NamesError> {
        Ok(())
    }

    async fn told_all(&self, _: &Peer) -> Result<(), NamesError> {
        Ok(())
    }

    async fn find(&self, _: &Peer, _: String, _: u32, _: u32) -> Result<Named, NamesError> {
        Err(NamesError::NotFound)
    }
}

/// A system with one component.
fn description() -> System {
    let component = Component {
        name: "ip".into(),
        program: "ip".into(),
        core: Placement::default(),
        priority: 1,
        memory_limit_pages: 1,
        provides: Vec::new(),
        uses: Vec::new(),
        binds: Vec::new(),
        restart: Restart::Always,
        devices: Vec::new(),
        regions: Vec::new(),
    };
    let linux = Linux { core: Placement::default(), priority: 1, memory_limit_pages: 1, uses: Vec::new() };
    System { components: vec![component], linux }
}

/// The supervisor dies at any time after it asked for a component: what is made is started, or
/// nothing was begun.
#[test]
fn a_component_that_is_begun_is_started_whatever_becomes_of_who_asked() {
    for dies_after_ns in (0..=MAKING_NS + MAKING_NS / 2).step_by(MAKING_NS as usize / 10) {
        let asked = runtime::testing::run(async {
            let fake = Rc::new(Fake::default());
            let [monitor, memory, names, spawn] = [(); 4].map(|()| channel::loopback(Layout::default()));
            runtime::spawn(serve_monitor(fake.clone(), monitor.1));
            runtime::spawn(serve_memory(fake.clone(), memory.1));
            runtime::spawn(serve_names(fake.clone(), names.1));
            let clients = (MonitorClient::new(monitor.0), MemoryClient::new(memory.0), NamesClient::new(names.0));
            let service = Rc::new(Service::new(description(), 1, clients.0, clients.1, clients.2));
            runtime::spawn(serve_spawn(Rc::new(Shared(service)), spawn.1));
            let supervisor = SpawnClient::new(spawn.0);
            // It is asked, and the wait for its answer ends with who waits.
            let _ = runtime::timeout(dies_after_ns, supervisor.component("ip".into(), 1, 0)).await;
            supervisor.channel().close();
            runtime::sleep(10 * MAKING_NS).await;
            fake.asked.take()
        });
        let is_whole = asked.is_empty() || asked == [Asked::Create, Asked::Start];
        assert!(is_whole, "dead after {dies_after_ns} ns: {asked:?}");
        assert!(dies_after_ns < MAKING_NS / 2 || !asked.is_empty(), "it was not even asked");
    }
}
