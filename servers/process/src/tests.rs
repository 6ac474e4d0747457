//! The process server between spawn and clients that are played.

mod first;
mod opened;
mod order;
mod programs;
mod segments;
mod sockets;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::rc::Rc;

use abi::DeathCause;
use channel::{
    CallError, ClientChannel, Layout, Memory, Peer, ServerChannel, Wiring, client_id, loopback, loopback_memory,
    loopback_wiring,
};
use contracts::descriptions::{DescriptionError, DescriptionsClient, serve_descriptions};
use contracts::process::{
    Ended, ProcessClient, ProcessError, ProcessEvent, ProcessId, SignalCause, Target, serve_process,
};
use contracts::sockets::{Address, Family, LocalAddress, SocketKind, SocketsClient, SocketsServer, serve_sockets};
use contracts::spawn::{
    DOMAINS_AT_ONCE, Death, DomainId, LinuxDomain, MemoryId, SpawnClient, SpawnError, SpawnEvents, SpawnServer,
    serve_spawn,
};
use contracts::testing::{gives_to_the_newborn_only, is_sent, two_programs};
use process_core::notices::Notice;
use process_core::table::FIRST;

use crate::descriptions;
use crate::serve::Service;
use crate::server::Server;

/// The first program's domain, and its id at servers.
const DOMAIN: DomainId = 7;
const CLIENT: u64 = 1 << 32 | 1;
const SOON_NS: u64 = 1_000_000_000;

/// Spawn.
#[derive(Default)]
struct Fake {
    domains: RefCell<Vec<DomainId>>,
    /// What was to be thrown away.
    discarded: RefCell<Vec<DomainId>>,
    /// What was to have turns of its own.
    own_turns: RefCell<Vec<DomainId>>,
    peer: RefCell<Option<Peer>>,
    /// What was made for programs to have in common, for whom and of how many pages.
    memory: RefCell<BTreeMap<MemoryId, (DomainId, u64)>>,
    room_pages: Cell<u64>,
    released: RefCell<Vec<MemoryId>>,
    /// How the next wishes for a domain are refused, one after the other.
    refuses: RefCell<VecDeque<SpawnError>>,
    /// For which parent, and with how many pages to stay free, a domain was asked for.
    asked: RefCell<Vec<(Option<DomainId>, u64)>>,
    /// A domain is made in this time.
    makes_in_ns: Cell<u64>,
    started: RefCell<Vec<DomainId>>,
    killed: RefCell<Vec<DomainId>>,
    /// Who is to be thrown away runs already.
    is_late: Cell<bool>,
}

/// The first domain that is made.
const MADE: DomainId = 100;

impl SpawnServer for Fake {
    async fn component(&self, _: &Peer, _: String, _: u64, _: u64) -> Result<DomainId, SpawnError> {
        Err(SpawnError::NotFound)
    }

    async fn dispatchers(&self, _: &Peer, _: String, _: u64, _: u32) -> Result<Vec<DomainId>, SpawnError> {
        Err(SpawnError::NotFound)
    }

    async fn linux(
        &self,
        _: &Peer,
        _: Option<u32>,
        parent: Option<DomainId>,
        spare: u64,
    ) -> Result<LinuxDomain, SpawnError> {
        runtime::sleep(self.makes_in_ns.get()).await;
        let before = self.asked.borrow().len() as u64;
        self.asked.borrow_mut().push((parent, spare));
        if let Some(error) = self.refuses.borrow_mut().pop_front() {
            return Err(error);
        }
        let domain = MADE + before;
        Ok(LinuxDomain { domain, core: 0, client: client_id(domain as u32, 1), parent_handles: [5, 6] })
    }

    async fn start(&self, _: &Peer, domain: DomainId) -> Result<(), SpawnError> {
        self.started.borrow_mut().push(domain);
        Ok(())
    }

    async fn kill(&self, _: &Peer, domain: DomainId, _: u64) -> Result<(), SpawnError> {
        self.killed.borrow_mut().push(domain);
        Ok(())
    }

    async fn begin_turns(&self, _: &Peer, domain: DomainId) -> Result<(), SpawnError> {
        self.own_turns.borrow_mut().push(domain);
        Ok(())
    }

    async fn discard(&self, _: &Peer, domain: DomainId) -> Result<(), SpawnError> {
        self.discarded.borrow_mut().push(domain);
        if self.is_late.get() { Err(SpawnError::Busy) } else { Ok(()) }
    }

    async fn domains(&self, peer: &Peer, from: DomainId) -> Result<Vec<DomainId>, SpawnError> {
        *self.peer.borrow_mut() = Some(peer.clone());
        let all = self.domains.borrow();
        Ok(all.iter().copied().filter(|domain| *domain >= from).take(DOMAINS_AT_ONCE).collect())
    }

    async fn common(&self, _: &Peer, domain: DomainId, pages: u64, spare: u64) -> Result<MemoryId, SpawnError> {
        if pages + spare > self.room_pages.get() {
            return Err(SpawnError::NoMemory);
        }
        let mut made = self.memory.borrow_mut();
        let id = made.len() as u64 + 1;
        made.insert(id, (domain, pages));
        Ok(id)
    }

    async fn lend(&self, _: &Peer, memory: MemoryId, domain: DomainId, is_writer: bool) -> Result<u64, SpawnError> {
        let is_there = self.memory.borrow().contains_key(&memory);
        if !is_there { Err(SpawnError::NotFound) } else { Ok(memory << 32 | domain << 1 | u64::from(is_writer)) }
    }

    async fn release(&self, _: &Peer, memory: MemoryId) -> Result<(), SpawnError> {
        self.released.borrow_mut().push(memory);
        Ok(())
    }

    async fn usage(&self, _: &Peer, domain: DomainId) -> Result<(u64, u64), SpawnError> {
        Ok((domain, 10 * domain))
    }

    fn ready(&self, _: &Peer) {}
}

/// A server with the first program, and a client of its spawn.
fn begin(fake: &Rc<Fake>) -> (Rc<Server>, SpawnClient) {
    let (server, spawn) = serve(fake);
    server.add_first(DOMAIN, CLIENT);
    (server, spawn)
}

/// The same before there is a program.
fn serve(fake: &Rc<Fake>) -> (Rc<Server>, SpawnClient) {
    let (spawn, served) = loopback(Layout::default());
    runtime::spawn(serve_spawn(fake.clone(), served));
    let spawn = SpawnClient::new(spawn);
    let opened = Rc::new(descriptions::Service::new(Rc::default()));
    let server = Rc::new(Server::new(spawn.clone(), opened, None));
    runtime::spawn(server.clone().listen());
    (server, spawn)
}

/// A program with its channels.
struct Program {
    id: ProcessId,
    domain: DomainId,
    process: ProcessClient,
    descriptions: DescriptionsClient,
    sockets: SocketsClient,
    /// Of these channels in that order, as their monitor has it.
    memory: [Memory; 3],
}

const BULK: Layout = Layout { ring_slots: 64, bulk_bytes: 320 << 10 };

/// The ends of a fresh channel, of a peer of that name and set, and its memory.
fn ends(name: &str, set: u32) -> (Rc<ClientChannel>, ServerChannel, Memory) {
    let [client, served, memory] = loopback_memory(BULK);
    let served = Wiring { peer: name.into(), peer_set: set, ..loopback_wiring(served, false) };
    (ClientChannel::new(loopback_wiring(client, true)), ServerChannel::new(served), memory)
}

/// Another client of the contract, a component.
fn component(server: &Rc<Server>, name: &str) -> ProcessClient {
    let (client, served, _) = ends(name, 0);
    server.opened.meet(served.peer());
    runtime::spawn(serve_process(Rc::new(Service(server.clone())), served));
    ProcessClient::new(client)
}

impl Program {
    /// The channels of a process that the table has, or will have.
    fn of(server: &Rc<Server>, id: ProcessId, domain: DomainId, set: u32) -> Program {
        let (process, served, of_process) = ends("linux", set);
        runtime::spawn(serve_process(Rc::new(Service(server.clone())), served));
        let (descriptions, served, of_descriptions) = ends("linux", set);
        server.opened.clients.add(&served);
        runtime::spawn(serve_descriptions(server.opened.clone(), served));
        let (sockets, served, of_sockets) = ends("linux", set);
        runtime::spawn(serve_sockets(server.opened.clone(), served));
        Program {
            id,
            domain,
            process: ProcessClient::new(process),
            descriptions: DescriptionsClient::new(descriptions),
            sockets: SocketsClient::new(sockets),
            memory: [of_process, of_descriptions, of_sockets],
        }
    }

    /// The first program, which has said hello.
    async fn first(server: &Rc<Server>) -> Program {
        let first = Program::of(server, FIRST, DOMAIN, 1);
        assert!(first.process.hello().await.is_ok());
        first
    }

    /// A child that was made and runs, as servers know it by that number.
    async fn child(&self, server: &Rc<Server>, number: u32) -> Program {
        let domain = DomainId::from(number);
        let id = server.table.borrow_mut().prepare(self.id, domain, client_id(number, 1)).unwrap();
        let child = Program::of(server, id, domain, number);
        child.process.here().unwrap();
        runtime::take_in_all().await;
        child
    }

    fn client(&self) -> u64 {
        client_id(if self.id == FIRST { 1 } else { self.domain as u32 }, 1)
    }

    /// The next signal that it is told of.
    async fn signal(&self) -> (u8, SignalCause) {
        let event = self.process.next_event().await;
        let ProcessEvent::SignalSent { number, cause } = event else { panic!("{event:?}") };
        (number, cause)
    }

    /// Nothing more comes.
    async fn hears_nothing(&self) {
        let event = runtime::timeout(SOON_NS, self.process.next_event()).await;
        assert!(event.is_err(), "{event:?}");
    }

    /// The kernel says that its domain is gone.
    fn dies(&self, server: &Rc<Server>, cause: DeathCause, status: u64) {
        let (domain, cause) = (self.domain, cause as u64);
        server.domain_died(&Death { domain, cause, status, address: 0, rip: 0, cpu_ns: 5 });
    }
}

fn denied<T, E>(error: E) -> Result<T, CallError<E>> {
    Err(CallError::Server(error))
}

/// The user may press Ctrl-C, or end the tool, while the machine still boots.
#[test]
fn the_console_s_signals_wait_for_the_first_program() {
    runtime::testing::run(async {
        const LATER: Target = Target::Group(FIRST);
        let fake = Rc::new(Fake::default());
        let server = serve(&fake).0;
        let [client, console] = loopback_memory(Layout::default());
        let client = ProcessClient::new(ClientChannel::new(loopback_wiring(client, true)));
        let console = ServerChannel::new(Wiring { peer: "console".into(), ..loopback_wiring(console, false) });
        runtime::spawn(serve_process(Rc::new(Service(server.clone())), console));
        assert_eq!(client.signal(Target::Process(FIRST), 15).await, Ok(()));
        assert_eq!(client.signal(LATER, 2).await, Ok(()));
        server.add_first(DOMAIN, CLIENT);
        assert_eq!(client.signal(LATER, 3).await, Ok(()));
        let early = |id| server.early.borrow_mut().remove(&id).unwrap_or_default();
        let mut waiting = early(FIRST);
        let told: Vec<_> = core::iter::from_fn(|| waiting.take()).collect();
        assert_eq!(told, [2, 15, 3].map(|number| Notice::Signal(number, SignalCause::Process(0))));
        // Of the others nothing is kept, and nothing that is sent to nobody.
        assert_eq!(client.signal(Target::Group(9), 2).await, Err(CallError::Server(ProcessError::NotFound)));
    });
}

/// A parent that ends between fork's halves leaves a domain that nobody would ever start or end.
#[test]
fn a_child_that_nobody_started_goes_with_its_parent() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (server, _spawn) = begin(&fake);
        server.table.borrow_mut().prepare(FIRST, DOMAIN + 1, CLIENT + 1).unwrap();
        let (cause, status) = (DeathCause::Killed as u64, 0);
        server.domain_died(&Death { domain: DOMAIN, cause, status, address: 0, rip: 0, cpu_ns: 0 });
        runtime::sleep(SOON_NS).await;
        assert_eq!(fake.discarded.take(), [DOMAIN + 1]);
        assert_eq!(server.table.borrow().living_domains(), [DOMAIN + 1], "until its death is told");
        server.domain_died(&Death { domain: DOMAIN + 1, cause, status, address: 0, rip: 0, cpu_ns: 0 });
        assert_eq!(server.table.borrow().living_domains(), []);
    });
}

/// A fork of the first program shares its turns until it becomes another program.
#[test]
fn a_fork_that_becomes_another_program_has_turns_of_its_own() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (server, _spawn) = begin(&fake);
        let (client, served) = loopback(Layout::default());
        let child = server.table.borrow_mut().prepare(FIRST, DOMAIN + 1, served.peer().id()).unwrap();
        server.table.borrow_mut().start(child);
        runtime::spawn(serve_process(Rc::new(Service(server.clone())), served));
        let client = ProcessClient::new(client);
        assert_eq!(fake.own_turns.take(), []);
        for _ in 0..2 {
            client.describe("other".into(), "other".into()).unwrap();
            runtime::sleep(SOON_NS).await;
        }
        assert_eq!(fake.own_turns.take(), [DOMAIN + 1], "once");
    });
}

/// Deaths that were not told are found.
#[test]
fn who_ended_while_events_were_lost_has_ended() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake { domains: RefCell::new(vec![DOMAIN]), ..Fake::default() });
        let (server, spawn) = begin(&fake);
        let lose = async || {
            // So that the fake has met it.
            assert!(spawn.domains(0).await.is_ok());
            SpawnEvents::new(fake.peer.borrow().as_ref().unwrap()).lost();
            runtime::sleep(SOON_NS).await;
            server.ended.get()
        };
        assert_eq!(lose().await, None, "it lives");
        fake.domains.borrow_mut().clear();
        assert_eq!(lose().await, Some(Ended::Signalled(9)));
    });
}

#[test]
fn a_client_gives_what_it_holds_to_the_newborn_only() {
    runtime::testing::run(async {
        let service = Rc::new(descriptions::Service::new(Rc::default()));
        let serve = |channel| {
            runtime::spawn(serve_descriptions(service.clone(), channel));
        };
        gives_to_the_newborn_only(|channel| service.clients.add(channel), serve).await;
    });
}

/// A close is told by another channel than the next program's request, which may be looked at
/// first: the name is free all the same.
#[test]
fn a_name_is_free_once_its_close_was_sent() {
    runtime::testing::run(async {
        let service = Rc::new(descriptions::Service::new(Rc::default()));
        let (client, [first, second]) = two_programs(|channel| service.clients.add(channel));
        let peers = [first.peer().clone(), second.peer().clone()];
        runtime::spawn(serve_descriptions(service.clone(), first));
        let mut sockets = [0; 2];
        for (peer, socket) in peers.iter().zip(&mut sockets) {
            *socket = service.socket(peer, Family::Local, SocketKind::Stream).await.unwrap();
        }
        let address = Address::Local(LocalAddress { file: None, name: b"\0name".to_vec() });
        let bind = |number: usize| service.bind(&peers[number], sockets[number], address.clone());
        assert_eq!(bind(0).await, Ok(()));
        assert_eq!(bind(1).await, Err(DescriptionError::AddressInUse));
        let mut closing = pin!(client.close(sockets[0]));
        is_sent(closing.as_mut()).await;
        assert_eq!(bind(1).await, Ok(()));
    });
}
