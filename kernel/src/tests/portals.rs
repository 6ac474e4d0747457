//! Portal calls as the kernel accounts for them: who runs, whose time it is, and who has paid in
//! the end.

use super::World;
use crate::arch::context::Event;
use crate::hardware;
use crate::objects::context::{Options, State};
use crate::objects::mapping::PageRun;
use crate::objects::share::Capability;
use crate::objects::{Context, Domain, Portal, Ptr, Schedule, portal::PortalKind};
use abi::{Call, Handle, Rights, layout};

const SLICE_NS: u64 = 1_000_000;
const PORTAL: usize = 20;

/// A context alone in its domain.
pub(super) struct Party {
    pub(super) domain: Ptr<Domain>,
    pub(super) context: Ptr<Context>,
    pub(super) time: Ptr<Schedule>,
}

impl World {
    pub(super) fn party(&mut self, priority: usize) -> Party {
        let (kernel, ram) = (&mut *self.kernel, self.ram);
        let domain = Ptr::<Domain>::create(kernel, ram, 0, super::name()).unwrap();
        let place = PageRun { start: layout::CONTROL_PAGE, pages: 1 };
        let options = Options { has_vectors: false, is_linux: false, priority_max: priority };
        let context = Ptr::<Context>::create(kernel, ram, domain, place, options).unwrap();
        let time = kernel.create(ram, |header| Schedule::new(header, context, priority, SLICE_NS)).unwrap();
        kernel.retain(time);
        context.schedule.set(Some(time));
        kernel.start(context, 0x1000, 0x2000, [0; 2]);
        kernel.decide();
        Party { domain, context, time }
    }

    /// One more context of its domain, not started.
    fn spare_context(&mut self, of: &Party) -> Ptr<Context> {
        let place = PageRun { start: layout::REGIONS, pages: 1 };
        let options = Options { has_vectors: false, is_linux: false, priority_max: of.context.priority_max };
        Ptr::<Context>::create(&mut self.kernel, self.ram, of.domain, place, options).unwrap()
    }

    /// Lets `client` call `server`.
    pub(super) fn connect(&mut self, client: &Party, server: &Party) {
        self.connect_at(client, server, PORTAL);
    }

    fn connect_at(&mut self, client: &Party, server: &Party, slot: usize) {
        let portal = self.kernel.create(self.ram, |header| Portal::new(header, PortalKind::Rendezvous)).unwrap();
        portal.set_callee(Some(server.context));
        client.domain.ensure_slot(&mut self.kernel, slot).unwrap();
        client.domain.insert(slot, Capability { object: portal.any(), badge: 7, rights: Rights::ALL });
    }

    /// `party` is the one that runs, and makes a call after `after_ns`.
    fn call(&mut self, party: &Party, after_ns: u64, call: Call, words: [u64; 6]) {
        assert!(self.kernel.scheduler.current() == Some(party.context), "another runs");
        hardware::set_clock(hardware::now_ns() + after_ns);
        party.context.with_registers(|r| {
            r.rax = call.number();
            [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = words;
        });
        self.kernel.step(Event::Syscall);
    }

    pub(super) fn ask(&mut self, party: &Party, after_ns: u64) {
        self.call(party, after_ns, Call::PortalCall, [PORTAL as u64, 1, 2, 3, 4, u64::MAX]);
    }

    pub(super) fn answer(&mut self, party: &Party, after_ns: u64) {
        self.call(party, after_ns, Call::PortalReplyWait, [5, 6, 7, u64::MAX, 0, 0]);
    }

    /// The bills up to now.
    pub(super) fn used_ns<const N: usize>(&mut self, parties: [&Party; N]) -> [u64; N] {
        self.kernel.update_accounting();
        parties.map(|party| party.time.used_ns())
    }

    pub(super) fn runs(&self, party: &Party) -> bool {
        self.kernel.scheduler.current() == Some(party.context)
    }

    pub(super) fn end<const N: usize>(mut self, parties: [Party; N]) {
        for Party { domain, context, time } in parties {
            let death = crate::objects::domain::Death::by_call(abi::DeathCause::Killed, 0);
            self.kernel.kill(domain, death);
            self.kernel.release(context);
            self.kernel.release(time);
            self.kernel.release(domain);
        }
        self.assert_empty();
    }
}

fn words(party: &Party) -> [u64; 6] {
    party.context.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r8, r.r9, r.r10])
}

#[test]
fn a_call_and_all_that_is_done_for_it_is_paid_by_its_caller() {
    hardware::set_clock(0);
    let mut world = World::new(400);
    let server = world.party(0);
    world.answer(&server, 0);
    let front = world.party(1);
    world.answer(&front, 0);
    let client = world.party(5);
    world.connect(&front, &server);
    world.connect(&client, &front);

    world.ask(&client, 100);
    assert!(world.runs(&front));
    assert_eq!(words(&front), [7, 1, 2, 3, 4, 0]);
    world.ask(&front, 200);
    assert!(world.runs(&server));
    assert_eq!(world.kernel.scheduler.running_priority(), 5, "on the first caller's time");
    world.answer(&server, 400);
    assert!(world.runs(&front));
    assert_eq!(words(&front)[..3], [5, 6, 7]);
    world.answer(&front, 800);
    assert!(world.runs(&client));

    assert_eq!(world.used_ns([&server, &front, &client]), [0, 0, 1500]);
    let used = [&server, &front, &client].map(|party| party.domain.cpu_ns.get());
    assert_eq!(used, [400, 1000, 100], "the domains' own clocks tell who ran");
    world.end([server, front, client]);
}

#[test]
fn who_finds_the_server_busy_helps_it_along() {
    hardware::set_clock(0);
    let mut world = World::new(400);
    let server = world.party(0);
    world.answer(&server, 0);
    let rival = world.party(1);
    world.connect(&rival, &server);
    world.ask(&rival, 100);
    assert!(world.runs(&server));
    hardware::set_clock(hardware::now_ns() + 200);
    let client = world.party(5);
    world.connect(&client, &server);

    world.ask(&client, 400);
    assert!(world.runs(&server), "it works on for the rival");
    assert_eq!(world.kernel.scheduler.running_priority(), 5, "on the better client's time");
    world.answer(&server, 800);
    assert!(world.runs(&server), "it works for the client now");
    assert_eq!(words(&server)[..3], [7, 1, 2]);
    world.answer(&server, 1600);
    assert!(world.runs(&client));
    assert_eq!(words(&rival)[..3], [5, 6, 7], "and the rival has its answer");

    assert_eq!(world.used_ns([&server, &rival, &client]), [0, 300, 2800]);
    world.end([server, rival, client]);
}

#[test]
fn a_context_that_is_ended_answers_nobody_and_its_domain_lives() {
    hardware::set_clock(0);
    let mut world = World::new(400);
    let server = world.party(0);
    world.answer(&server, 0);
    let client = world.party(1);
    world.connect(&client, &server);
    let rival = world.party(5);
    world.connect(&rival, &server);
    let end = Call::ContextEnd;

    world.ask(&rival, 0);
    assert!(world.runs(&server));
    world.call(&server, 0, end, [layout::SHARE_SLOTS_MAX, 0, 0, 0, 0, 0]);
    assert!(world.runs(&server), "a wrong handle changes nothing");
    world.kernel.retain(server.context);
    let itself = Capability { object: server.context.any(), badge: 0, rights: Rights::CONTROL };
    server.domain.insert(abi::Handle::SELF_CONTEXT.0 as usize, itself);
    world.call(&server, 0, end, [abi::Handle::SELF_CONTEXT.0, 0, 0, 0, 0, 0]);
    assert!(world.runs(&rival));
    assert_eq!(rival.context.with_registers(|r| r.rax), (abi::Error::PeerDead as u64).wrapping_neg());
    assert!(server.domain.is_alive());
    world.end([server, client, rival]);
}

/// A call and its reply pass the running time on without a look at the queues, unless there is
/// something to look for.
#[test]
fn who_has_a_right_to_the_core_gets_it_in_a_call_too() {
    hardware::set_clock(0);
    let mut world = World::new(600);
    let better = world.party(7);
    world.answer(&better, 0);
    let server = world.party(0);
    world.answer(&server, 0);
    let client = world.party(5);
    let rival = world.party(5);
    assert_eq!(hardware::deadline(), Some(SLICE_NS));

    world.connect(&client, &better);
    world.ask(&client, 100);
    assert!(world.runs(&better));
    assert_eq!(world.kernel.scheduler.running_priority(), 7, "on time of its own, which is better");
    world.answer(&better, 100);
    assert!(world.runs(&client));

    world.connect(&rival, &server);
    world.connect_at(&client, &server, PORTAL + 1);
    world.call(&client, 100, Call::PortalCall, [PORTAL as u64 + 1, 1, 2, 3, 4, u64::MAX]);
    assert!(world.runs(&server));
    world.answer(&server, SLICE_NS);
    assert!(world.runs(&rival), "the client's slice is over, and it is the rival's turn");
    assert_eq!(world.used_ns([&better, &server, &client]), [100, 0, 200 + SLICE_NS]);
    world.end([better, server, client, rival]);
}

#[test]
fn a_slice_of_a_caller_ends_for_a_callee_who_wants_to_know() {
    hardware::set_clock(0);
    let mut world = World::new(400);
    let server = world.party(0);
    world.answer(&server, 0);
    world.kernel.scheduler.set_preemption_upcalls(server.context, true);
    let client = world.party(5);
    world.connect(&client, &server);
    world.ask(&client, 100);
    assert!(world.runs(&server));
    assert_eq!(hardware::deadline(), Some(SLICE_NS));
    world.end([server, client]);
}

/// The time charged to a client for ten calls, through a worker of its own or one that others use,
/// too, and may be using.
fn charged_ns(own_worker: bool, is_busy: bool) -> u64 {
    hardware::set_clock(0);
    let mut world = World::new(600);
    let shared = world.party(0);
    world.answer(&shared, 0);
    let own = world.party(0);
    world.answer(&own, 0);
    let rival = world.party(1);
    world.connect(&rival, &shared);
    if is_busy {
        world.ask(&rival, 100);
        assert!(world.runs(&shared));
    }
    hardware::set_clock(hardware::now_ns() + 200);
    let client = world.party(5);
    let worker = if own_worker { &own } else { &shared };
    world.connect(&client, worker);
    for turn in 0..10 {
        world.ask(&client, 10);
        if is_busy && !own_worker && turn == 0 {
            world.answer(worker, 800);
        }
        world.answer(worker, 50);
    }
    let [charged_ns] = world.used_ns([&client]);
    world.end([shared, own, rival, client]);
    charged_ns
}

#[test]
fn a_worker_of_ones_own_keeps_the_work_for_others_off_the_bill() {
    assert_eq!(charged_ns(true, false), 600);
    assert_eq!(charged_ns(true, true), 600, "not a nanosecond more");
    assert_eq!(charged_ns(false, false), 600);
    assert_eq!(charged_ns(false, true), 1400, "a client that shares a worker helps");
}

#[test]
fn what_an_interrupt_starts_is_on_its_handlers_bill() {
    hardware::set_clock(0);
    let mut world = World::new(400);
    let driver = world.party(6);
    world.call(&driver, 70, Call::Wait, [u64::MAX, 0, 0, 0, 0, 0]);
    let client = world.party(5);
    for _ in 0..10 {
        hardware::set_clock(hardware::now_ns() + 100);
        world.kernel.signal(driver.context, 1);
        world.kernel.decide();
        assert!(world.runs(&driver));
        world.call(&driver, 300, Call::Wait, [u64::MAX, 0, 0, 0, 0, 0]);
        assert!(world.runs(&client));
    }
    assert_eq!(world.used_ns([&driver, &client]), [3070, 1000]);
    world.end([driver, client]);
}

/// Notifications on one core: receivers are unblocked at once, in the order of the signals, and no
/// bit is lost; the sender goes on, however often it signals.
#[test]
fn who_is_told_runs_in_order_and_who_tells_is_not_held_up() {
    hardware::set_clock(0);
    let mut world = World::new(600);
    let receivers = [(); 3].map(|()| {
        let receiver = world.party(2);
        world.call(&receiver, 0, Call::Wait, [u64::MAX, 0, 0, 0, 0, 0]);
        receiver
    });
    let sender = world.party(5);
    for (slot, (receiver, badge)) in [(0, 1), (1, 2), (2, 4), (0, 8)].into_iter().enumerate() {
        let slot = PORTAL + slot;
        sender.domain.ensure_slot(&mut world.kernel, slot).unwrap();
        let context = receivers[receiver].context;
        world.kernel.retain(context);
        sender.domain.insert(slot, Capability { object: context.any(), badge, rights: Rights::NOTIFY });
    }
    for slot in [2, 0, 1, 3, 3, 2] {
        world.call(&sender, 10, Call::Notify, [(PORTAL + slot) as u64, 0, 0, 0, 0, 0]);
        assert_eq!(sender.context.with_registers(|r| r.rax), 0);
        assert!(world.runs(&sender), "it was held up");
    }
    world.call(&sender, 10, Call::Wait, [u64::MAX, 0, 0, 0, 0, 0]);
    // What was told after it was unblocked comes at its next Wait, at once; bits that were not
    // taken yet add up.
    for (receiver, bits) in [(2, &[4, 4][..]), (0, &[1, 8][..]), (1, &[2][..])] {
        let party = &receivers[receiver];
        assert!(world.runs(party), "receiver {receiver} is not the next");
        let came = std::iter::successors(Some(words(party)[0]), |_| {
            world.call(party, 0, Call::Wait, [0; 6]);
            Some(words(party)[0])
        });
        assert_eq!(came.take_while(|bits| *bits != 0).collect::<Vec<_>>(), bits);
        world.call(party, 0, Call::Wait, [u64::MAX, 0, 0, 0, 0, 0]);
    }
    assert!(world.kernel.scheduler.current().is_none(), "nothing came twice");
    let [first, second, third] = receivers;
    world.end([sender, first, second, third]);
}

/// What `PortalReplyWait` says of `Timeout`: the answer is given all the same.
#[test]
fn an_answer_is_given_though_nobody_else_calls_until_the_deadline() {
    hardware::set_clock(0);
    let mut world = World::new(400);
    let server = world.party(0);
    world.answer(&server, 0);
    let client = world.party(5);
    world.connect(&client, &server);
    world.ask(&client, 100);
    assert!(world.runs(&server));
    world.call(&server, 100, Call::PortalReplyWait, [5, 6, 7, 0, 0, 0]);
    assert!(world.runs(&client), "it has its answer");
    assert_eq!(words(&client)[..3], [5, 6, 7]);
    let result = server.context.with_registers(|r| r.rax);
    assert_eq!(abi::Error::from_code(result.wrapping_neg()), Some(abi::Error::Timeout));
    world.end([server, client]);
}

/// A low server that a high client calls runs on the client's time; the time it makes meanwhile is
/// no better than what it may give itself, and so it does not keep that priority for good.
#[test]
fn a_donated_priority_cannot_be_kept() {
    const RAM: u64 = 21;
    const SPARE: u64 = 22;
    hardware::set_clock(0);
    let mut world = World::new(400);
    let server = world.party(1);
    world.answer(&server, 0);
    let client = world.party(5);
    world.connect(&client, &server);
    world.ask(&client, 100);
    assert!(world.runs(&server));
    assert_eq!(world.kernel.scheduler.running_priority(), 5, "on the client's time");

    let (ram, spare) = (world.ram, world.spare_context(&server));
    server.domain.ensure_slot(&mut world.kernel, SPARE as usize).unwrap();
    for (slot, object) in [(RAM, ram.any()), (SPARE, spare.any())] {
        world.kernel.retain_any(object);
        server.domain.insert(slot as usize, Capability { object, badge: 0, rights: Rights::ALL });
    }
    for (priority, error) in [(5, abi::Error::NoRights), (2, abi::Error::NoRights), (8, abi::Error::BadArgument)] {
        world.call(&server, 10, Call::ContextSchedule, [RAM, SPARE, priority, 1000, 0, 0]);
        assert_eq!(status(&server), (error as u64).wrapping_neg(), "priority {priority}");
        world.call(
            &server,
            10,
            Call::ContextAlloc,
            [RAM, Handle::SELF_DOMAIN.0, layout::REGIONS + 0x1000, 0, priority, 0],
        );
        assert_eq!(status(&server), (error as u64).wrapping_neg(), "a maximum of {priority}");
    }
    world.call(&server, 10, Call::ContextSchedule, [RAM, SPARE, 1, 1000, 0, 0]);
    assert_eq!(status(&server), 0);
    world.kernel.release(spare);
    world.end([server, client]);
}

fn status(party: &Party) -> u64 {
    party.context.with_registers(|r| r.rax)
}

/// A chain as long as any may be waits in line for a server, which works for somebody else and
/// calls another meanwhile: the chain gives way, not the client.
#[test]
fn a_chain_in_line_does_not_keep_a_server_from_calling() {
    hardware::set_clock(0);
    let mut world = World::new(1000);
    let accepting = |world: &mut World| {
        let party = world.party(0);
        world.answer(&party, 0);
        party
    };
    let (back, server) = (accepting(&mut world), accepting(&mut world));
    world.connect(&server, &back);
    let links: [Party; 15] = std::array::from_fn(|_| accepting(&mut world));
    for (caller, callee) in links.iter().zip(&links[1..]) {
        world.connect(caller, callee);
    }
    world.connect(&links[14], &server);
    let client = world.party(1);
    world.connect(&client, &server);
    world.ask(&client, 10);
    assert!(world.runs(&server));
    let first = world.party(5);
    world.connect(&first, &links[0]);
    world.ask(&first, 10);
    for link in &links {
        world.ask(link, 10);
    }
    assert!(world.runs(&server), "on the chain's time");
    world.ask(&server, 10);
    assert!(world.runs(&links[14]), "the chain's last link goes on");
    assert_eq!(status(&links[14]), (abi::Error::Busy as u64).wrapping_neg());
    assert_eq!((back.context.depth(), server.context.depth(), links[14].context.depth()), (2, 1, 15));
    // The chain is answered from its end, and then the client gets what it asked for.
    for link in links.iter().rev() {
        world.answer(link, 10);
    }
    assert!(world.runs(&first));
    assert_eq!((links[14].context.depth(), links[0].context.depth()), (0, 0));
    world.call(&first, 10, Call::Wait, [u64::MAX, 0, 0, 0, 0, 0]);
    assert!(world.runs(&back));
    world.answer(&back, 10);
    world.answer(&server, 10);
    assert!(world.runs(&client));
    assert_eq!((status(&client), words(&client)[..3].to_vec()), (0, vec![5, 6, 7]));
    let chain: [Party; 15] = links;
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = chain;
    world.end([back, server, client, first, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o]);
}

/// The request's own chain is what bounds it.
#[test]
fn a_chain_of_one_request_has_an_end() {
    hardware::set_clock(0);
    let mut world = World::new(1000);
    let links: [Party; 17] = std::array::from_fn(|_| {
        let party = world.party(5);
        world.answer(&party, 0);
        party
    });
    for (caller, callee) in links.iter().zip(&links[1..]) {
        world.connect(caller, callee);
    }
    let first = world.party(5);
    world.connect(&first, &links[0]);
    world.ask(&first, 10);
    for link in &links[..15] {
        world.ask(link, 10);
    }
    world.ask(&links[15], 10);
    assert!(world.runs(&links[15]));
    assert_eq!(status(&links[15]), (abi::Error::Busy as u64).wrapping_neg());
    assert_eq!(links[15].context.depth(), 16);
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = links;
    world.end([first, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q]);
}

/// Those who wait in line leave by a deadline: the server, and whom it has called, are as shallow
/// as before.
#[test]
fn depths_fall_when_callers_in_line_leave() {
    const DEADLINE_NS: u64 = 10_000;
    hardware::set_clock(0);
    let mut world = World::new(1000);
    let back = world.party(0);
    world.answer(&back, 0);
    let server = world.party(0);
    world.answer(&server, 0);
    world.connect(&server, &back);
    let middle = world.party(0);
    world.answer(&middle, 0);
    world.connect(&middle, &server);
    let client = world.party(1);
    world.connect(&client, &server);
    world.ask(&client, 10);
    world.ask(&server, 10);
    assert!(world.runs(&back));
    assert_eq!((server.context.depth(), back.context.depth()), (1, 2));
    let late = world.party(5);
    world.connect(&late, &middle);
    world.ask(&late, 10);
    world.call(&middle, 10, Call::PortalCall, [PORTAL as u64, 1, 2, 3, 4, DEADLINE_NS]);
    assert!(world.runs(&back));
    assert_eq!((middle.context.depth(), server.context.depth(), back.context.depth()), (1, 2, 3));
    hardware::set_clock(DEADLINE_NS);
    world.kernel.step(Event::Timer);
    assert_eq!((middle.context.depth(), server.context.depth(), back.context.depth()), (1, 1, 2));
    world.end([back, server, middle, client, late]);
}

/// Calls, answers, deadlines and deaths as chance has them, in chains as long as any may be: depths
/// are those that a walk over all donors finds.
#[test]
fn depths_are_those_of_a_walk() {
    const PARTIES: usize = 20;
    hardware::set_clock(0);
    let mut world = World::new(3000);
    let parties: [Party; PARTIES] = std::array::from_fn(|number| world.party(number / 10));
    for (number, client) in parties.iter().enumerate() {
        for (slot, server) in parties.iter().enumerate().filter(|(slot, _)| *slot != number) {
            world.connect_at(client, server, PORTAL + slot);
        }
    }
    let mut random = ::fuzz::Random::new(11);
    let (mut deepest, mut refused) = (0, 0);
    for _ in 0..40_000 {
        let running = parties.iter().position(|party| world.runs(party));
        let soon_ns = hardware::now_ns() + random.below(20 * SLICE_NS);
        let deadline_ns = random.one(&[u64::MAX, soon_ns]);
        match running.map(|running| (running, &parties[running])) {
            // Mostly it calls the next one, so that chains grow long.
            Some((running, party)) if random.below(8) < 5 => {
                let server = if random.once_in(4) { random.below(PARTIES as u64) as usize } else { running + 1 };
                let slot = PORTAL + server % PARTIES;
                world.call(party, 100, Call::PortalCall, [slot as u64, 1, 2, 3, 4, deadline_ns]);
                refused += u64::from(status(party) == (abi::Error::Busy as u64).wrapping_neg());
            }
            // Others come to their turns.
            Some(_) if random.once_in(2) => {
                hardware::set_clock(hardware::now_ns() + SLICE_NS);
                world.kernel.step(Event::Timer);
            }
            Some((_, party)) => world.call(party, 100, Call::PortalReplyWait, [5, 6, 7, deadline_ns, 0, 0]),
            None => {
                let party = &parties[random.below(PARTIES as u64) as usize];
                world.kernel.complete(party.context, Err(abi::Error::Timeout));
                hardware::set_clock(hardware::now_ns() + 1000);
                world.kernel.step(Event::Timer);
            }
        }
        for party in &parties {
            let donors = std::iter::successors(party.context.first_donor(), |donor| donor.next_donor());
            let found = donors.map(|donor| donor.depth() + 1).max().unwrap_or(0);
            assert_eq!(party.context.depth(), found);
            deepest = deepest.max(found);
        }
    }
    assert!(deepest == 16 && refused > 100, "{deepest} {refused}");
    // Who dies leaves no depth behind either.
    for party in &parties {
        world.kernel.kill(party.domain, crate::objects::domain::Death::by_call(abi::DeathCause::Killed, 0));
        let alive = parties.iter().filter(|party| party.domain.is_alive());
        for party in alive {
            let donors = std::iter::successors(party.context.first_donor(), |donor| donor.next_donor());
            assert_eq!(party.context.depth(), donors.map(|donor| donor.depth() + 1).max().unwrap_or(0));
        }
    }
    world.end(parties);
}

/// A client's budget ends inside a server: the server's next caller helps it on, and has its answer
/// long before the first one's period is over.
#[test]
fn a_budget_that_ends_inside_a_server_stalls_nobody() {
    const PERIOD_NS: u64 = 1_000_000_000;
    hardware::set_clock(0);
    let mut world = World::new(600);
    let server = world.party(0);
    server.context.schedule.set(None);
    world.answer(&server, 0);
    let poor = world.party(5);
    world.kernel.scheduler.set_slice(poor.time, SLICE_NS, PERIOD_NS);
    world.connect(&poor, &server);
    world.ask(&poor, 100);
    assert!(world.runs(&server));
    let rich = world.party(5);
    world.connect(&rich, &server);
    hardware::set_clock(hardware::now_ns() + SLICE_NS);
    world.kernel.step(Event::Timer);
    assert!(world.runs(&rich), "the budget is spent");
    world.ask(&rich, 100);
    assert!(world.runs(&server), "helped by its next caller");
    world.answer(&server, 100);
    assert!(world.runs(&server), "for that caller now");
    world.answer(&server, 100);
    assert!(world.runs(&rich));
    assert_eq!(words(&rich)[..3], [5, 6, 7]);
    world.call(&rich, 100, Call::Wait, [u64::MAX, 0, 0, 0, 0, 0]);
    assert!(world.kernel.scheduler.current().is_none(), "the first caller has no time until its period ends");
    assert_eq!(hardware::deadline(), Some(PERIOD_NS));
    hardware::set_clock(PERIOD_NS);
    world.kernel.step(Event::Timer);
    assert!(world.runs(&poor));
    assert_eq!(words(&poor)[..3], [5, 6, 7]);
    server.context.schedule.set(Some(server.time));
    world.end([server, poor, rich]);
}

/// Clients with small budgets call through two servers that have no time of their own. However many
/// budgets end in there, somebody who has time left waits for the requests before its own, and
/// never for a new period: the core does not idle meanwhile.
#[test]
fn who_has_time_is_served_behind_any_number_of_spent_budgets() {
    const POOR: usize = 6;
    const PERIOD_NS: u64 = 200_000_000;
    const ACTION_NS: u64 = SLICE_NS / 2;
    /// In each server one before it calls on, or answers, and one after that.
    const ACTIONS: u64 = 3;
    hardware::set_clock(0);
    let mut world = World::new(1000);
    let servers = [world.party(0), world.party(0)];
    let [front, back] = &servers;
    world.connect(front, back);
    let clients: [Party; POOR + 1] = std::array::from_fn(|_| world.party(5));
    let (rich, poor) = clients.split_last().unwrap();
    clients.iter().for_each(|client| world.connect(client, front));
    clients.iter().for_each(|client| world.call(client, 0, Call::Wait, [u64::MAX, 0, 0, 0, 0, 0]));
    for server in [front, back] {
        world.answer(server, 0);
        server.context.schedule.set(None);
    }
    poor.iter().for_each(|client| world.kernel.scheduler.set_slice(client.time, SLICE_NS / 4, PERIOD_NS));
    clients.iter().for_each(|client| world.kernel.signal(client.context, 1));
    let mut random = ::fuzz::Random::new(5);
    let (mut has_called, mut asked_ns, mut spent, mut longest_ns) = (false, None, 0, 0);
    for _ in 0..60_000 {
        let end_ns = hardware::now_ns() + random.below(ACTION_NS);
        world.kernel.decide();
        while let Some(at_ns) = hardware::deadline().filter(|at_ns| *at_ns <= end_ns) {
            hardware::set_clock(at_ns.max(hardware::now_ns()));
            world.kernel.step(Event::Timer);
        }
        hardware::set_clock(end_ns);
        world.kernel.step(Event::Timer);
        let is_in_server = |client: &Party| client.context.state() != State::Runnable;
        spent += poor.iter().filter(|client| is_in_server(client) && client.time.left_ns.get() <= 0).count();
        match asked_ns {
            Some(asked_ns) if world.runs(rich) => longest_ns = longest_ns.max(end_ns - asked_ns),
            _ => assert!(asked_ns.is_none() || world.kernel.scheduler.current().is_some(), "the server stalls"),
        }
        if world.runs(back) {
            world.answer(back, 0);
        } else if world.runs(front) {
            has_called = !has_called;
            if has_called { world.ask(front, 0) } else { world.answer(front, 0) }
        } else if world.runs(rich) {
            asked_ns = random.once_in(2).then(hardware::now_ns);
            if asked_ns.is_some() {
                world.ask(rich, 0);
            }
        } else if let Some(client) = poor.iter().find(|client| world.runs(client)) {
            world.ask(client, 0);
        }
    }
    assert!(spent > 1000, "{spent} looks found a budget that had ended inside a server");
    let most_ns = (POOR as u64 + 1) * ACTIONS * ACTION_NS;
    assert!((most_ns / 4..=most_ns).contains(&longest_ns), "it waited for {longest_ns} of {most_ns} ns");
    servers.iter().for_each(|server| server.context.schedule.set(Some(server.time)));
    let [a, b] = servers;
    let [c, d, e, f, g, h, i] = clients;
    world.end([a, b, c, d, e, f, g, h, i]);
}

/// Who rings one that was not started keeps its time: it may be the one who has it started, and
/// nothing else would ever end the donation. The bits wait.
#[test]
fn who_rings_one_that_was_not_started_goes_on() {
    hardware::set_clock(0);
    let mut world = World::new(400);
    let caller = world.party(5);
    let newborn = world.spare_context(&caller);
    let portal = world.kernel.create(world.ram, |header| Portal::new(header, PortalKind::Mailbox)).unwrap();
    portal.set_callee(Some(newborn));
    caller.domain.ensure_slot(&mut world.kernel, PORTAL).unwrap();
    caller.domain.insert(PORTAL, Capability { object: portal.any(), badge: 8, rights: Rights::ALL });

    world.call(&caller, 100, Call::PortalCall, [PORTAL as u64, 0, 0, 0, 0, 0]);
    assert!(world.runs(&caller), "it donates no time");
    assert_eq!(status(&caller), 0);
    assert_eq!(newborn.pending.get(), 8, "the bits are there when it runs");
    world.kernel.release(newborn);
    world.end([caller]);
}
