//! Many wait for one: that it is woken, idles, lets them wait too long or calls another are steps
//! of bounded length, and all of them have what one step would have given them.

use super::World;
use super::revoke::STEP_WORK_MAX;
use crate::arch::context::{Event, Registers};
use crate::objects::context::{Options, State};
use crate::objects::domain::Death;
use crate::objects::mapping::{PAGE, PageRun};
use crate::objects::portal::{PortalKind, Room};
use crate::objects::share::Capability;
use crate::objects::{Context, Domain, Portal, Ptr, Schedule};
use crate::steps::WAKES;
use crate::{calls, hardware};
use abi::{Call, DeathCause, Error, Rights, layout};

const CALLERS: usize = 2000;
/// Where the server's capability is.
const PORTAL: usize = 20;
const STEPS_MIN: usize = CALLERS / WAKES as usize;

struct Crowd {
    world: World,
    domain: Ptr<Domain>,
    server: Ptr<Context>,
    callers: Vec<Ptr<Context>>,
}

impl Crowd {
    /// A server and its callers to be, all of priority 1 but the last caller, which has 6. Nothing
    /// else runs.
    fn new() -> Crowd {
        hardware::set_clock(0);
        let mut world = World::new(12_000);
        let domain = world.monitor();
        let mut threads: Vec<_> = (0..=CALLERS as u64)
            .map(|number| world.thread(domain, number, if number == CALLERS as u64 { 6 } else { 1 }))
            .collect();
        let server = threads.remove(0);
        let first = domain.contexts.first().unwrap();
        world.kernel.block(first, State::Waiting);
        Crowd { world, domain, server, callers: threads }
    }

    /// All callers call the server, in their order.
    fn all_call(&mut self) {
        for caller in &self.callers {
            self.world.kernel.call_rendezvous(*caller, self.server, 0, u64::MAX);
        }
    }

    /// Counts steps until none is to follow at once.
    fn settle(&mut self) -> usize {
        for step in 1.. {
            hardware::set_deadline(None);
            hardware::take_work();
            self.world.kernel.step(Event::Timer);
            self.assert_bounded();
            if hardware::deadline().is_none_or(|at_ns| at_ns > hardware::now_ns()) {
                return step;
            }
            assert!(step < 30 * STEPS_MIN, "it does not come to an end");
        }
        unreachable!()
    }

    fn assert_bounded(&self) {
        let work = hardware::take_work();
        assert!(work <= STEP_WORK_MAX, "a step does {work} units of work");
        self.world.kernel.scheduler.assert_queues();
    }

    /// The server makes a call until it is done; counts its steps.
    fn call(&mut self, call: Call, deadline_argument: usize) -> usize {
        for step in 1.. {
            self.server.with_registers(|registers| {
                registers.rip = 0x1000 + Registers::CALL_BYTES;
                let words = [&mut registers.rdi, &mut registers.rsi, &mut registers.rdx, &mut registers.r10];
                *words.into_iter().nth(deadline_argument).unwrap() = u64::MAX;
            });
            hardware::take_work();
            calls::enter(&mut self.world.kernel, self.server, call);
            self.assert_bounded();
            if self.server.with_registers(|registers| registers.rip) != 0x1000 {
                return step;
            }
        }
        unreachable!()
    }

    fn ready(&self) -> usize {
        self.callers.iter().filter(|caller| caller.schedule.get().unwrap().is_queued()).count()
    }

    fn end(mut self) {
        self.world.kernel.kill(self.domain, Death::by_call(DeathCause::Killed, 0));
        self.world.kernel.release(self.domain);
        self.settle();
        self.world.assert_empty();
    }
}

impl World {
    /// A running context of `domain`, which alone holds it.
    pub(super) fn thread(&mut self, domain: Ptr<Domain>, number: u64, priority: usize) -> Ptr<Context> {
        let context = self.without_time(domain, number);
        let ram = self.ram;
        let schedule = self.kernel.create(ram, |header| Schedule::new(header, context, priority, 1_000_000)).unwrap();
        context.schedule.set(Some(schedule));
        self.kernel.make_ready(context);
        context
    }

    /// The same, but it runs only on time that others donate.
    fn without_time(&mut self, domain: Ptr<Domain>, number: u64) -> Ptr<Context> {
        let (kernel, ram) = (&mut *self.kernel, self.ram);
        let place = PageRun { start: layout::REGIONS + number * PAGE, pages: 1 };
        let options = Options { has_vectors: false, is_linux: false, priority_max: 7 };
        let context = Ptr::<Context>::create(kernel, ram, domain, place, options).unwrap();
        kernel.start(context, 0x1000, 0x2000, [0; 2]);
        kernel.release(context);
        context
    }
}

#[test]
fn one_whom_thousands_called_is_woken_in_bounded_steps() {
    let mut crowd = Crowd::new();
    crowd.all_call();
    crowd.world.kernel.block(crowd.server, State::Waiting);
    assert!(crowd.settle() >= STEPS_MIN, "time that cannot run is dropped a bit at a time");
    assert_eq!(crowd.ready(), 0);
    for round in 0..3 {
        crowd.world.kernel.signal(crowd.server, 1);
        hardware::set_deadline(None);
        crowd.world.kernel.step(Event::Timer);
        crowd.assert_bounded();
        let ready = crowd.ready();
        assert!(0 < ready && ready < CALLERS / 2, "{ready} were woken at once");
        // Some give up meanwhile, the one among them that is next, and the last.
        if round == 1 {
            for gone in
                crowd.callers.split_off(CALLERS - 1).into_iter().chain(crowd.callers.drain(ready - 2..ready + 80))
            {
                crowd.world.kernel.complete(gone, Err(Error::Timeout));
                crowd.world.kernel.block(gone, State::Waiting);
            }
        }
        // It waits again before all are woken, or after.
        if round < 2 {
            crowd.settle();
            assert!(crowd.ready() + 1 >= crowd.callers.len(), "all are ready but for the one that runs");
            if round == 0 {
                assert_eq!(crowd.world.kernel.scheduler.running_priority(), 6, "the last caller's time is the best");
            }
        }
        crowd.world.kernel.block(crowd.server, State::Waiting);
        crowd.settle();
        assert_eq!(crowd.ready(), 0);
    }
    crowd.end();
}

/// Where the steps are in a long line moves when the next in it leaves, and for nobody else: one
/// that leaves far behind takes nobody's turn to be woken along.
#[test]
fn a_donor_that_leaves_the_queue_leaves_nobody_asleep() {
    for from_end in [false, true] {
        let mut crowd = Crowd::new();
        crowd.all_call();
        crowd.world.kernel.block(crowd.server, State::Waiting);
        crowd.settle();
        crowd.world.kernel.signal(crowd.server, 1);
        hardware::set_deadline(None);
        crowd.world.kernel.step(Event::Timer);
        let next = crowd.server.next_to_wake.get().expect("others are still to be woken");
        let gone = if from_end { *crowd.callers.last().unwrap() } else { next };
        crowd.callers.retain(|caller| *caller != gone);
        crowd.world.kernel.complete(gone, Err(Error::Timeout));
        crowd.world.kernel.block(gone, State::Waiting);
        crowd.settle();
        assert!(crowd.ready() + 1 >= crowd.callers.len(), "only {} are ready", crowd.ready());
        crowd.end();
    }
}

/// It is on the list of those whose callers are still to be woken, and leaves that.
#[test]
fn one_that_blocks_or_ends_before_all_its_callers_are_woken_is_woken_for_them_no_more() {
    let mut crowd = Crowd::new();
    crowd.all_call();
    for round in 0..3 {
        crowd.world.kernel.block(crowd.server, State::Waiting);
        if round == 0 {
            crowd.settle();
        }
        crowd.world.kernel.signal(crowd.server, 1);
        crowd.world.kernel.step(Event::Timer);
        crowd.assert_bounded();
        assert!(crowd.server.is_waking(), "others are still to be woken");
    }
    crowd.world.kernel.retain(crowd.server);
    crowd.world.kernel.end_context(crowd.server);
    crowd.settle();
    let told = (Error::PeerDead as u64).wrapping_neg();
    assert!(crowd.callers.iter().all(|caller| caller.with_registers(|registers| registers.rax) == told));
    assert!(!crowd.server.is_waking());
    crowd.world.kernel.release(crowd.server);
    crowd.end();
}

/// What a step may wake are contexts, not chains of them.
#[test]
fn a_step_wakes_few_chains_if_they_are_long() {
    const LONG: usize = 15;
    let mut crowd = Crowd::new();
    let (server, kernel) = (crowd.server, &mut *crowd.world.kernel);
    let rest = crowd.callers.split_off(40 * LONG);
    for chain in crowd.callers.chunks(LONG) {
        for (caller, callee) in chain.iter().zip(chain[1..].iter().chain([&server])) {
            kernel.call_rendezvous(*caller, *callee, 0, u64::MAX);
        }
    }
    rest.iter().for_each(|context| kernel.block(*context, State::Waiting));
    kernel.block(server, State::Waiting);
    crowd.settle();
    assert_eq!(crowd.ready(), 0);
    let few = 1..WAKES as usize + LONG;
    crowd.world.kernel.signal(server, 1);
    let mut ready = crowd.ready();
    assert!(few.contains(&ready), "{ready} were woken at once");
    while ready < crowd.callers.len() {
        hardware::take_work();
        crowd.world.kernel.step(Event::Timer);
        crowd.assert_bounded();
        // One of them runs.
        let woken = crowd.ready() + 1 - ready;
        assert!(few.contains(&woken), "{woken} were woken in one step");
        ready += woken;
    }
    crowd.end();
}

/// What it rang the server for may take long; a server without time of its own would stand still.
#[test]
fn who_rang_a_server_and_is_notified_goes_on_if_the_server_has_time_of_its_own() {
    for has_time in [true, false] {
        let mut world = World::new(512);
        let domain = world.monitor();
        let caller = world.thread(domain, 0, 3);
        let server = if has_time { world.thread(domain, 1, 3) } else { world.without_time(domain, 1) };
        let kernel = &mut *world.kernel;
        kernel.call_mailbox(caller, server, 1);
        assert!(caller.state() == State::Donation(server));
        kernel.signal(caller, 0b10);
        assert!(if has_time { caller.state() == State::Runnable } else { caller.state() == State::Donation(server) });
        assert_eq!((caller.pending.get(), caller.with_registers(|registers| registers.rax)), (0b10, 0));
        kernel.kill(domain, Death::by_call(DeathCause::Killed, 0));
        kernel.release(domain);
        world.assert_empty();
    }
}

#[test]
fn who_ends_while_its_donors_are_woken_fails_them_all() {
    let mut crowd = Crowd::new();
    crowd.all_call();
    crowd.world.kernel.block(crowd.server, State::Waiting);
    crowd.settle();
    crowd.world.kernel.signal(crowd.server, 1);
    hardware::set_deadline(None);
    crowd.world.kernel.step(Event::Timer);
    assert!(crowd.server.is_waking());
    crowd.world.kernel.end_context(crowd.server);
    crowd.settle();
    let dead = (Error::PeerDead as u64).wrapping_neg();
    for caller in &crowd.callers {
        assert!(caller.state() == State::Runnable && caller.with_registers(|registers| registers.rax) == dead);
    }
    crowd.end();
}

/// Those among them that wait again are no less work.
#[test]
fn a_step_looks_at_so_many_who_were_woken_at_most() {
    const SERVERS: usize = WAKES as usize * 3 / 2;
    hardware::set_clock(0);
    let mut world = World::new(2000);
    let domain = world.monitor();
    world.kernel.block(domain.contexts.first().unwrap(), State::Waiting);
    let threads: Vec<_> = (0..3 * SERVERS as u64).map(|number| world.thread(domain, number, 1)).collect();
    let (servers, callers) = threads.split_at(SERVERS);
    world.kernel.decide();
    for (server, callers) in servers.iter().zip(callers.chunks(2)) {
        world.kernel.block(*server, State::Waiting);
        callers.iter().for_each(|caller| {
            world.kernel.call_rendezvous(*caller, *server, 0, u64::MAX);
        });
    }
    world.kernel.decide();
    servers.iter().for_each(|server| world.kernel.signal(*server, 1));
    let waking = || servers.iter().filter(|server| server.is_waking()).count();
    assert_eq!(waking(), WAKES as usize, "half as many were woken with both their callers at once");
    servers.iter().for_each(|server| world.kernel.block(*server, State::Waiting));
    // And one more than a step looks at.
    world.kernel.signal(servers[0], 1);
    world.kernel.block(servers[0], State::Waiting);
    assert_eq!(waking(), WAKES as usize + 1);
    for left in [1, 0] {
        hardware::set_deadline(None);
        world.kernel.step(Event::Timer);
        assert_eq!(waking(), left);
    }
}

#[test]
fn one_whom_thousands_rang_idles_in_bounded_steps() {
    for (call, deadline_argument) in [(Call::Wait, 0), (Call::PortalReplyWait, 3)] {
        let mut crowd = Crowd::new();
        for caller in &crowd.callers {
            crowd.world.kernel.call_mailbox(*caller, crowd.server, 1);
        }
        crowd.server.pending.set(0);
        assert!(crowd.callers.iter().all(|caller| caller.donates_to() == Some(crowd.server)));
        let steps = crowd.call(call, deadline_argument);
        assert!((STEPS_MIN..2 * STEPS_MIN).contains(&steps), "{steps} steps");
        assert!(crowd.callers.iter().all(|caller| caller.state() == State::Runnable));
        assert!(matches!(crowd.server.state(), State::Waiting | State::Accepting));
        crowd.end();
    }
}

#[test]
fn thousands_of_deadlines_pass_in_bounded_steps() {
    let mut crowd = Crowd::new();
    for caller in &crowd.callers {
        crowd.world.kernel.call_rendezvous(*caller, crowd.server, 0, 1000);
    }
    hardware::set_clock(1000);
    assert!(crowd.settle() >= STEPS_MIN);
    let timeout = (Error::Timeout as u64).wrapping_neg();
    assert!(crowd.callers.iter().all(|caller| caller.with_registers(|registers| registers.rax) == timeout));
    crowd.end();
}

/// All have spent their budgets, and the machine stood still: their periods are over at once.
#[test]
fn thousands_of_budgets_are_renewed_in_bounded_steps() {
    const SLICE_NS: u64 = 1_000_000;
    const PERIOD_NS: u64 = 60_000_000_000;
    let mut crowd = Crowd::new();
    let kernel = &mut *crowd.world.kernel;
    kernel.block(crowd.server, State::Waiting);
    for caller in &crowd.callers {
        kernel.update_accounting();
        kernel.scheduler.set_slice(caller.schedule.get().unwrap(), SLICE_NS, PERIOD_NS);
    }
    kernel.decide();
    for spent in 1..=CALLERS as u64 {
        assert!(kernel.scheduler.current().is_some());
        hardware::set_clock(spent * SLICE_NS);
        kernel.step(Event::Timer);
    }
    assert!(kernel.scheduler.current().is_none(), "all budgets are spent");
    hardware::set_clock(2 * PERIOD_NS);
    hardware::set_deadline(None);
    hardware::take_work();
    kernel.step(Event::Timer);
    assert!(kernel.scheduler.current().is_none(), "nothing runs before all are looked at");
    crowd.assert_bounded();
    assert!(crowd.settle() + 1 >= STEPS_MIN);
    assert_eq!((crowd.ready(), crowd.world.kernel.scheduler.running_priority()), (CALLERS - 1, 6));
    crowd.end();
}

/// A chain of calls as long as any may be is in the middle of the line. It gives way to the
/// server's own call, and nobody else does.
#[test]
fn a_server_whom_thousands_called_makes_room_in_bounded_steps() {
    for kind in [PortalKind::Rendezvous, PortalKind::Mailbox] {
        let mut crowd = Crowd::new();
        let (server, kernel, ram) = (crowd.server, &mut *crowd.world.kernel, crowd.world.ram);
        let back = crowd.callers.pop().unwrap();
        let chain = crowd.callers.split_off(crowd.callers.len() - 16);
        kernel.block(back, if kind == PortalKind::Mailbox { State::Waiting } else { State::Accepting });
        kernel.block(server, State::Accepting);
        let (before, after) = crowd.callers.split_at(CALLERS / 2);
        before.iter().for_each(|caller| _ = kernel.call_rendezvous(*caller, server, 0, u64::MAX));
        for (caller, callee) in chain.iter().zip(chain[1..].iter().chain([&server])) {
            kernel.call_rendezvous(*caller, *callee, 0, u64::MAX);
        }
        after.iter().for_each(|caller| _ = kernel.call_rendezvous(*caller, server, 0, u64::MAX));
        assert_eq!((chain[15].depth(), server.depth()), (15, 16));
        let portal = kernel.create(ram, |header| Portal::new(header, kind)).unwrap();
        portal.set_callee(Some(back));
        crowd.domain.ensure_slot(kernel, PORTAL).unwrap();
        crowd.domain.insert(PORTAL, Capability { object: portal.any(), badge: 1, rights: Rights::ALL });
        let words = [PORTAL as u64, 1, 2, 3, 4, u64::MAX];
        server.with_registers(|r| {
            r.rip = 0x1000 + Registers::CALL_BYTES;
            [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = words;
        });
        let mut steps = 1;
        hardware::take_work();
        loop {
            calls::enter(&mut crowd.world.kernel, server, Call::PortalCall);
            crowd.assert_bounded();
            if server.with_registers(|registers| registers.rip) != 0x1000 {
                break;
            }
            assert!(steps < 10 * STEPS_MIN, "it does not come to an end");
            assert_eq!(server.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]), words, "as it was made");
            server.with_registers(|registers| registers.rip += Registers::CALL_BYTES);
            steps += 1;
        }
        assert!(steps >= STEPS_MIN / 2, "{steps} steps");
        let busy = (Error::Busy as u64).wrapping_neg();
        assert!(chain[15].state() == State::Runnable && chain[15].with_registers(|registers| registers.rax) == busy);
        assert!(crowd.callers.iter().all(|caller| caller.donates_to() == Some(server)));
        assert!(chain[..15].iter().all(|caller| caller.donates_to().is_some()));
        assert_eq!((server.donates_to(), server.depth(), back.depth()), (Some(back), 1, 2));
        crowd.end();
    }
}

/// It is still being woken when it makes room for its own call, and so callers that are to be woken
/// next move to the end of the line: all of them are woken still.
#[test]
fn a_server_that_makes_room_leaves_nobody_asleep() {
    for in_front in [CALLERS / 2, CALLERS / 2 + 1] {
        let mut crowd = Crowd::new();
        let (server, kernel) = (crowd.server, &mut *crowd.world.kernel);
        let back = crowd.callers.pop().unwrap();
        let chain = crowd.callers.split_off(crowd.callers.len() - 16);
        kernel.block(back, State::Accepting);
        let (before, after) = crowd.callers.split_at(in_front);
        before.iter().for_each(|caller| _ = kernel.call_rendezvous(*caller, server, 0, u64::MAX));
        for (caller, callee) in chain.iter().zip(chain[1..].iter().chain([&server])) {
            kernel.call_rendezvous(*caller, *callee, 0, u64::MAX);
        }
        after.iter().for_each(|caller| _ = kernel.call_rendezvous(*caller, server, 0, u64::MAX));
        kernel.block(server, State::Waiting);
        crowd.settle();
        crowd.world.kernel.signal(server, 1);
        hardware::set_deadline(None);
        crowd.world.kernel.step(Event::Timer);
        assert!(crowd.callers[..in_front].contains(&server.next_to_wake.get().unwrap()));
        while crowd.world.kernel.may_call(server, back) == Room::Later {}
        assert!(chain[15].donates_to().is_none(), "the chain gave way");
        crowd.settle();
        assert!(crowd.ready() + 1 >= crowd.callers.len(), "only {} are ready", crowd.ready());
        crowd.end();
    }
}

/// Its time, memory and domain go at once; its callers, and what they need of it, go on in steps.
#[test]
fn one_whom_thousands_called_ends_in_bounded_steps() {
    let mut crowd = Crowd::new();
    let (kernel, ram) = (&mut *crowd.world.kernel, crowd.world.ram);
    let domain = Ptr::<Domain>::create(kernel, ram, 0, super::name()).unwrap();
    domain.keep_alive();
    let server = crowd.world.thread(domain, 0, 1);
    let kernel = &mut *crowd.world.kernel;
    kernel.block(server, State::Accepting);
    let (called, rang) = crowd.callers.split_at(CALLERS / 2);
    called.iter().for_each(|caller| _ = kernel.call_rendezvous(*caller, server, 0, u64::MAX));
    rang.iter().for_each(|caller| kernel.call_mailbox(*caller, server, 1));
    // The last caller is watched, and so is the server.
    for context in [rang[rang.len() - 1], server] {
        context.watch_limit_ns.set(1000);
    }
    hardware::take_work();
    kernel.kill(domain, Death::by_call(DeathCause::Killed, 0));
    kernel.release(domain);
    kernel.drain_all();
    crowd.assert_bounded();
    let waiting = |crowd: &Crowd| crowd.callers.iter().filter(|caller| caller.donates_to() == Some(server)).count();
    assert!(waiting(&crowd) > CALLERS / 2, "the rest is told later");
    // Meanwhile one is notified, and looked at, and one ends.
    crowd.world.kernel.signal(crowd.callers[CALLERS - 1], 1);
    hardware::set_clock(1000);
    crowd.world.kernel.step(Event::Timer);
    crowd.assert_bounded();
    assert!(waiting(&crowd) > CALLERS / 2 && !server.watch.is_linked(), "who has ended is not watched");
    let gone = crowd.callers.swap_remove(CALLERS / 2);
    crowd.world.kernel.end_context(gone);
    assert!(crowd.settle() + 2 >= STEPS_MIN);
    let gave_up = (Error::PeerDead as u64).wrapping_neg();
    let is_told = |caller: &Ptr<Context>| caller.with_registers(|registers| registers.rax) == gave_up;
    assert!(waiting(&crowd) == 0 && crowd.callers.iter().all(is_told));
    crowd.end();
}

/// A core that halts in the same step has nothing left.
#[test]
fn nobody_is_told_of_an_end_who_has_ended() {
    let mut crowd = Crowd::new();
    crowd.all_call();
    crowd.world.kernel.end_context(crowd.server);
    assert!(crowd.callers.iter().any(|caller| caller.donates_to().is_some()));
    crowd.world.kernel.kill(crowd.domain, Death::by_call(DeathCause::Killed, 0));
    crowd.world.kernel.release(crowd.domain);
    crowd.world.kernel.drain_all();
    crowd.world.kernel.drain_waking();
    crowd.world.assert_empty();
}
