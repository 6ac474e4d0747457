//! Chains of donations as long as any may be: who gives way when a server in the middle makes a
//! call of its own, and who stays.

use super::World;
use crate::arch::context::Registers;
use crate::calls;
use crate::hardware;
use crate::objects::context::State;
use crate::objects::domain::Death;
use crate::objects::portal::PortalKind;
use crate::objects::share::Capability;
use crate::objects::{Context, Domain, Portal, Ptr};
use abi::{Call, DeathCause, Error, Rights};

const PORTAL: usize = 20;

struct Chains {
    world: World,
    domain: Ptr<Domain>,
    made: u64,
}

impl Chains {
    fn new() -> Chains {
        hardware::set_clock(0);
        let mut world = World::new(1000);
        let domain = world.monitor();
        Chains { world, domain, made: 0 }
    }

    fn thread(&mut self) -> Ptr<Context> {
        self.made += 1;
        self.world.thread(self.domain, self.made, 1)
    }

    fn ask(&mut self, caller: Ptr<Context>, callee: Ptr<Context>) {
        self.world.kernel.call_rendezvous(caller, callee, 0, u64::MAX);
    }

    /// One that waits for calls.
    fn server(&mut self) -> Ptr<Context> {
        let server = self.thread();
        self.world.kernel.block(server, State::Accepting);
        server
    }

    /// So many contexts that call each other in a row, and the last one `callee`; gives that one.
    fn line_up(&mut self, count: usize, callee: Ptr<Context>) -> Ptr<Context> {
        let links: Vec<_> = (0..count).map(|_| self.thread()).collect();
        for (caller, next) in links.iter().zip(links[1..].iter().chain([&callee])) {
            self.ask(*caller, *next);
        }
        *links.last().unwrap()
    }

    /// A request that so many servers, one after the other, pass on; gives who asks, and them.
    fn request(&mut self, servers: usize) -> Vec<Ptr<Context>> {
        let mut passed = vec![self.thread()];
        for _ in 0..servers {
            let server = self.server();
            self.ask(*passed.last().unwrap(), server);
            passed.push(server);
        }
        passed
    }

    /// The call of one that runs to one that waits for calls.
    fn call(&mut self, caller: Ptr<Context>, callee: Ptr<Context>) {
        let (kernel, ram) = (&mut *self.world.kernel, self.world.ram);
        let portal = kernel.create(ram, |header| Portal::new(header, PortalKind::Rendezvous)).unwrap();
        portal.set_callee(Some(callee));
        self.domain.ensure_slot(kernel, PORTAL).unwrap();
        self.domain.insert(PORTAL, Capability { object: portal.any(), badge: 1, rights: Rights::ALL });
        caller.with_registers(|r| {
            r.rip = 0x1000 + Registers::CALL_BYTES;
            [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = [PORTAL as u64, 1, 2, 3, 4, u64::MAX];
        });
        calls::enter(&mut self.world.kernel, caller, Call::PortalCall);
        assert!(caller.with_registers(|r| r.rip) != 0x1000, "so few in line are looked at in one step");
    }

    fn end(mut self) {
        self.world.kernel.kill(self.domain, Death::by_call(DeathCause::Killed, 0));
        self.world.kernel.release(self.domain);
        self.world.assert_empty();
    }
}

fn is_refused(caller: Ptr<Context>) -> bool {
    let busy = (Error::Busy as u64).wrapping_neg();
    caller.state() == State::Runnable && caller.with_registers(|r| r.rax) == busy
}

#[test]
fn a_request_may_be_as_long_as_any_chain_whoever_waits_in_line() {
    let mut chains = Chains::new();
    let request = chains.request(15);
    let (server, back) = (request[15], chains.server());
    let rival = chains.line_up(16, server);
    assert_eq!((server.depth(), rival.depth()), (16, 15));
    chains.call(server, back);
    assert_eq!((server.donates_to(), back.depth()), (Some(back), 16));
    assert!(is_refused(rival));
    chains.end();
}

#[test]
fn who_has_room_in_line_stays_when_a_longer_chain_gives_way() {
    let mut chains = Chains::new();
    let server = chains.request(1)[1];
    let back = chains.server();
    let long = chains.line_up(16, server);
    let short = chains.line_up(15, server);
    chains.call(server, back);
    assert_eq!((server.donates_to(), back.depth()), (Some(back), 16));
    assert!(is_refused(long));
    assert_eq!(short.donates_to(), Some(server));
    chains.end();
}

/// The server's caller is a server, too; a chain that waits there lies one link further off.
#[test]
fn a_chain_in_line_for_the_servers_caller_gives_way_too() {
    let mut chains = Chains::new();
    let request = chains.request(2);
    let (front, server, back) = (request[1], request[2], chains.server());
    let long = chains.line_up(15, front);
    let short = chains.line_up(14, front);
    assert_eq!((front.depth(), server.depth()), (15, 16));
    chains.call(server, back);
    assert_eq!((server.donates_to(), back.depth()), (Some(back), 16));
    assert_eq!((front.donates_to(), short.donates_to()), (Some(server), Some(front)));
    assert!(is_refused(long));
    chains.end();
}
