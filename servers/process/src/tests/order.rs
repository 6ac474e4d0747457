//! What has become of a process by the time its parent hears of its end.

use std::rc::Rc;

use abi::DeathCause;
use channel::{Layout, loopback};
use contracts::descriptions::{DescriptionError, DescriptionId, ready};
use contracts::process::{
    ChildNews, ChildState, Ended, Interest, ProcessClient, ProcessEvent, ProcessId, SignalCause, Target, serve_process,
};
use contracts::spawn::{Death, SpawnClient, SpawnEvents};
use process_core::table::FIRST;

use super::{CLIENT, DOMAIN, Fake, SOON_NS, begin};
use crate::serve::Service;
use crate::server::Server;

/// The child's domain, and its id at servers.
const CHILD_DOMAIN: u64 = DOMAIN + 1;
const CHILD: u64 = 2 << 32 | 1;
const ENDED: Interest = Interest { ended: true, stopped: false, continued: false, ordinary: true, clones: false };
const SIGKILL: u8 = 9;
const SIGCHLD: u8 = 17;
const CPU_NS: u64 = 5;

/// A first program with a child, which alone can write to a pipe of both.
struct Family {
    server: Rc<Server>,
    parent: ProcessClient,
    child: ProcessId,
    reads: DescriptionId,
    /// The parent's handle of the child.
    handle: DescriptionId,
}

impl Family {
    async fn new(server: Rc<Server>) -> Family {
        let (parent, served) = loopback(Layout::default());
        assert_eq!(served.peer().id(), CLIENT);
        runtime::spawn(serve_process(Rc::new(Service(server.clone())), served));
        let parent = ProcessClient::new(parent);
        assert!(parent.hello().await.is_ok());
        let child = server.table.borrow_mut().prepare(FIRST, CHILD_DOMAIN, CHILD).unwrap();
        server.table.borrow_mut().start(child);
        let (reads, handle) = server.opened.act(|table| {
            let (reads, writes) = table.pipe(CLIENT).unwrap();
            table.inherit(CLIENT, CHILD);
            table.close(CLIENT, writes).unwrap();
            (reads, table.handle(CLIENT, child, CHILD, false).unwrap())
        });
        let family = Family { server, parent, child, reads, handle };
        assert_eq!(family.read(), Err(DescriptionError::WouldBlock), "the child may write");
        family
    }

    fn read(&self) -> Result<usize, DescriptionError> {
        self.server.opened.act(|table| table.read(CLIENT, self.reads, 1, 0, |_, _| true))
    }

    /// The parent has heard of the end.
    fn is_over(&self) {
        assert_eq!(self.read(), Ok(0), "nobody can write any more");
        let found = self.server.opened.act(|table| table.ready(self.handle, ready::READ));
        assert_eq!(found, ready::READ, "its handle tells of the end");
    }

    fn news(&self) -> ChildNews {
        ChildNews { process: self.child, state: ChildState::Ended(Ended::Signalled(9)), cpu_ns: CPU_NS }
    }
}

/// The kernel tells of the child's end a little later.
async fn ends_soon(fake: &Rc<Fake>, spawn: &SpawnClient) {
    // So that the fake has met it.
    assert!(spawn.domains(0).await.is_ok());
    let events = SpawnEvents::new(fake.peer.borrow().as_ref().unwrap());
    runtime::spawn(async move {
        runtime::sleep(SOON_NS).await;
        let cause = DeathCause::Killed as u64;
        events.died(Death { domain: CHILD_DOMAIN, cause, status: 0, address: 0, rip: 0, cpu_ns: CPU_NS }).unwrap();
    });
}

/// A shell that waits for a command reads all of its output then: nothing that the command held may
/// keep a pipe open.
#[test]
fn what_a_child_held_is_closed_when_a_wait_for_it_ends() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (server, spawn) = begin(&fake);
        let family = Family::new(server).await;
        ends_soon(&fake, &spawn).await;
        assert_eq!(family.parent.wait(Target::Any, ENDED, true, true).await, Ok(Some(family.news())));
        family.is_over();
    });
}

/// The same of a parent that hears SIGCHLD, which finds its child without waiting.
#[test]
fn what_a_child_held_is_closed_when_sigchld_comes() {
    runtime::testing::run(async {
        let fake = Rc::new(Fake::default());
        let (server, spawn) = begin(&fake);
        let family = Family::new(server).await;
        ends_soon(&fake, &spawn).await;
        let cause = SignalCause::Child { process: family.child, state: family.news().state };
        let event = family.parent.next_event().await;
        assert!(matches!(event, ProcessEvent::SignalSent { number: SIGCHLD, cause: of } if of == cause), "{event:?}");
        family.is_over();
        assert_eq!(family.parent.wait(Target::Any, ENDED, false, true).await, Ok(Some(family.news())));
    });
}

/// A signal that cannot be caught is no end yet: the child runs until its kernel says that it does
/// not.
#[test]
fn who_was_killed_is_waited_for_until_it_is_gone() {
    runtime::testing::run(async {
        let (server, _spawn) = begin(&Rc::new(Fake::default()));
        let family = Family::new(server.clone()).await;
        server.deliver(family.child, SIGKILL, SignalCause::Process(FIRST));
        runtime::sleep(SOON_NS).await;
        assert_eq!(family.parent.wait(Target::Any, ENDED, false, true).await, Ok(None), "its domain is still there");
        assert_eq!(family.read(), Err(DescriptionError::WouldBlock), "and holds the other end");
        let cause = DeathCause::Killed as u64;
        server.domain_died(&Death { domain: CHILD_DOMAIN, cause, status: 0, address: 0, rip: 0, cpu_ns: CPU_NS });
        family.is_over();
        assert_eq!(family.parent.wait(Target::Any, ENDED, false, true).await, Ok(Some(family.news())));
    });
}
