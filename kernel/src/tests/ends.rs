//! The end of what is large, in bounded steps: a domain of many contexts, mappings, pages and
//! capabilities dies at once for all who ask, runs no more, and is told of when all is back.

use super::World;
use super::revoke::{Actor, STEP_WORK_MAX};
use crate::arch::context::{Event, Registers};
use crate::objects::context::State;
use crate::objects::domain::Death;
use crate::objects::portal::PortalKind;
use crate::objects::share::Capability;
use crate::objects::{Context, Domain, Linked, Portal, Ptr, Ram, Semaphore};
use crate::scheduler::Decision;
use crate::steps::{Budget, CALLER_UNITS, END_UNITS, UNITS, WAKE_SLOTS_UNITS};
use crate::{calls, hardware};
use abi::layout::{HEAP, REGIONS, protection, segment as kinds};
use abi::{Call, DeathCause, Error, Handle, Rights};

const PAGE: u64 = 4096;
const RAM: u64 = Handle::ROOT_RAM.0;
const SPACE: u64 = Handle::SELF_RANGE.0;
const OPEN: u64 = protection::READ | protection::WRITE;
/// Where a survivor has its capability for the one who dies, and a free one.
const VICTIM: usize = 20;
const TOLD: u64 = 1 << 5;

/// One who dies, and one who goes on, ends it and waits for that.
struct Fixture {
    world: World,
    killer: Actor,
    victim: Actor,
    used: u64,
}

impl Fixture {
    fn new() -> Fixture {
        hardware::set_clock(0);
        let mut world = World::new(40_000);
        let domain = world.monitor();
        let killer = Actor { domain, context: domain.contexts.first().unwrap() };
        let used = world.used();
        let victim = world.outsider();
        world.give(killer, VICTIM, victim.domain.any());
        victim.domain.set_on_death_of(&mut world, killer.context);
        Fixture { world, killer, victim, used }
    }

    /// Its domain is named by the killer only.
    fn let_go(&mut self) {
        let kernel = &mut *self.world.kernel;
        kernel.release(self.victim.context);
        kernel.release(self.victim.domain);
    }

    fn is_told(&self) -> bool {
        self.killer.context.pending.get() & TOLD != 0
    }

    /// What is true while it ends.
    fn assert_dead(&mut self) {
        let victim = self.victim.domain;
        assert!(!victim.is_alive() && !self.is_told());
        assert_eq!(victim.state().cause, DeathCause::Killed as u64);
        if !victim.contexts.is_empty() {
            assert_eq!(self.world.kernel.decide(), Decision::Idle, "nothing runs");
        }
        let granted = self.world.run_one(self.killer, Call::DomainGrant, &[VICTIM as u64, RAM, 0]);
        assert_eq!(granted, Err(Error::PeerDead));
    }

    /// Ends the victim in steps, each begun by the timer; counts them.
    fn end_by_timer(mut self) -> usize {
        let domain = self.victim.domain;
        self.world.kernel.kill(domain, Death::by_call(DeathCause::Killed, 7));
        self.world.kernel.drain_dead();
        let mut steps = 1;
        while domain.is_ending() {
            self.assert_dead();
            hardware::set_deadline(None);
            hardware::take_work();
            let decision = self.world.kernel.step(Event::Timer);
            let work = hardware::take_work();
            assert!(work <= STEP_WORK_MAX, "a step does {work} units of work");
            let fires = hardware::deadline().is_some_and(|at_ns| at_ns <= hardware::now_ns());
            assert!(fires || !domain.is_ending(), "the next step begins at once");
            assert_eq!(decision == Decision::Idle, !domain.contexts.is_empty());
            steps += 1;
        }
        assert!(self.is_told());
        self.leave_nothing();
        steps
    }

    fn leave_nothing(mut self) {
        self.let_go();
        self.world.run(self.killer, Call::CapDrop, &[VICTIM as u64]).unwrap();
        self.world.kernel.drain_all();
        assert!(self.world.used() <= self.used, "all it had is back");
        self.world.kernel.kill(self.killer.domain, Death::by_call(DeathCause::Killed, 0));
        self.world.kernel.release(self.killer.domain);
        self.world.assert_empty();
    }
}

impl Ptr<Domain> {
    fn set_on_death_of(self, world: &mut World, told: Ptr<Context>) {
        let kernel = &mut *world.kernel;
        let slot = told.domain().share().find_slot(Handle(4)).unwrap().0;
        let capability = Capability { object: told.any(), badge: TOLD, rights: Rights::ALL };
        let notification = crate::objects::Notification::decode(capability).unwrap();
        self.set_on_death(kernel, notification, (slot, capability));
    }
}

impl World {
    /// One step of a call without what follows it.
    fn run_one(&mut self, actor: Actor, call: Call, words: &[u64]) -> Result<(), Error> {
        let mut all = [0; 6];
        all[..words.len()].copy_from_slice(words);
        actor.context.with_registers(|r| {
            r.rip = 0x1000 + Registers::CALL_BYTES;
            [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = all;
        });
        calls::enter(&mut self.kernel, actor.context, call);
        actor.context.with_registers(|r| match r.rax {
            0 => Ok(()),
            code => Err(Error::from_code(code.wrapping_neg()).unwrap_or(Error::BadCall)),
        })
    }
}

/// Pages that nothing else refers to, under an index of tables, and a run of them.
fn give_pages(fixture: &mut Fixture) {
    for kind in [kinds::EAGER, kinds::CONTIGUOUS] {
        fixture.world.make(fixture.victim, Call::SegmentAlloc, &[RAM, 5000, kind]);
    }
    fixture.world.make(fixture.victim, Call::SegmentAlloc, &[RAM, 200_000, 0]);
}

fn give_mappings(fixture: &mut Fixture) {
    let segment = fixture.world.make(fixture.victim, Call::SegmentAlloc, &[RAM, 1, kinds::EAGER]);
    for number in 0..3000 {
        // Each in a table of its own.
        let at = HEAP + number * 512 * PAGE;
        fixture.world.run(fixture.victim, Call::RangeMap, &[SPACE, at, segment, 0, 1, OPEN]).unwrap();
        fixture.world.make(fixture.victim, Call::RangeFill, &[SPACE, at, 1]);
    }
}

fn give_capabilities(fixture: &mut Fixture) {
    for _ in 0..8000 {
        let rights = Rights::READ.0;
        fixture.world.make(fixture.victim, Call::CapCopy, &[RAM, u64::from(rights)]);
    }
}

fn give_contexts(fixture: &mut Fixture) {
    for number in 0..1500 {
        fixture.world.thread(fixture.victim.domain, number, 3);
    }
}

fn give_portals(fixture: &mut Fixture) {
    let (world, killer) = (&mut fixture.world, fixture.killer);
    let ram = world.ram;
    for number in 0..3000 {
        let portal = world.kernel.create(ram, |header| Portal::new(header, PortalKind::Mailbox)).unwrap();
        portal.set_callee(Some(fixture.victim.context));
        killer.domain.ensure_slot(&mut world.kernel, VICTIM + 1 + number).unwrap();
        killer.domain.insert(VICTIM + 1 + number, Capability { object: portal.any(), badge: 1, rights: Rights::ALL });
    }
    fixture.used = u64::MAX;
}

type Give = fn(&mut Fixture);
/// With how many units each takes at least.
const LARGE: [(Give, usize); 5] = [
    (give_pages, 10_000),
    (give_mappings, 9000),
    (give_capabilities, 8000),
    (give_contexts, 12_000),
    (give_portals, 3000),
];

#[test]
fn a_large_domain_that_exits_ends_in_bounded_steps() {
    for (give, units) in LARGE {
        let mut fixture = Fixture::new();
        give(&mut fixture);
        let steps = fixture.end_by_timer();
        assert!(steps >= units / END_UNITS as usize, "{steps} steps for {units} units");
    }
}

#[test]
fn a_large_domain_is_killed_in_bounded_steps_and_all_is_back_then() {
    for (give, units) in LARGE {
        let mut fixture = Fixture::new();
        give(&mut fixture);
        let mut steps = 0;
        loop {
            hardware::take_work();
            let killed = fixture.world.run_one(fixture.killer, Call::DomainKill, &[VICTIM as u64, 7]);
            if fixture.killer.context.with_registers(|r| r.rip) != 0x1000 {
                assert_eq!(killed, Ok(()));
                break;
            }
            fixture.world.kernel.drain_dead();
            let work = hardware::take_work();
            assert!(work <= STEP_WORK_MAX, "a step does {work} units of work");
            steps += 1;
            if fixture.victim.domain.is_ending() {
                fixture.assert_dead();
            }
        }
        assert!(steps >= units / UNITS as usize, "{steps} steps for {units} units");
        assert!(fixture.is_told() && fixture.victim.domain.state().status == 7);
        fixture.leave_nothing();
    }
}

#[test]
fn a_context_of_many_portals_ends_in_bounded_steps() {
    let mut fixture = Fixture::new();
    give_portals(&mut fixture);
    fixture.world.give(fixture.killer, VICTIM + 3001, fixture.victim.context.any());
    fixture.world.run(fixture.killer, Call::ContextEnd, &[VICTIM as u64 + 3001]).unwrap();
    assert!(fixture.victim.context.state() == State::Dead && fixture.victim.domain.is_alive());
    fixture.world.kernel.kill(fixture.victim.domain, Death::by_call(DeathCause::Killed, 0));
    fixture.world.kernel.drain_all();
    fixture.leave_nothing();
}

/// Who asks to be told while it ends is told at its end, and once.
#[test]
fn who_asks_to_be_told_while_a_domain_ends_is_told_at_its_end() {
    let mut fixture = Fixture::new();
    give_pages(&mut fixture);
    fixture.world.kernel.kill(fixture.victim.domain, Death::by_call(DeathCause::Killed, 0));
    fixture.world.kernel.drain_dead();
    assert!(fixture.victim.domain.is_ending());
    let told = fixture.killer.context;
    fixture.victim.domain.set_on_death_of(&mut fixture.world, told);
    assert!(!fixture.is_told());
    fixture.world.kernel.drain_all();
    assert!(fixture.is_told());
    told.pending.set(0);
    fixture.victim.domain.set_on_death_of(&mut fixture.world, told);
    assert!(fixture.is_told(), "at once now");
    fixture.leave_nothing();
}

/// A chain of domains, each named by the one before only: all end, and none is told of too early.
#[test]
fn what_is_named_by_the_dead_alone_ends_too() {
    let mut fixture = Fixture::new();
    let ram = fixture.world.ram;
    let mut holder = fixture.victim.domain;
    let mut chain = Vec::new();
    for _ in 0..200 {
        let next = Ptr::<Domain>::create(&mut fixture.world.kernel, ram, 0, super::name()).unwrap();
        fixture.world.thread(next, 0, 3);
        fixture.world.kernel.retain(next);
        holder.insert(VICTIM, Capability { object: next.any(), badge: 0, rights: Rights::ALL });
        chain.push(next);
        holder = next;
    }
    fixture.world.kernel.kill(fixture.victim.domain, Death::by_call(DeathCause::Killed, 0));
    assert!(fixture.world.kernel.drain_all() > 10);
    for domain in chain {
        assert!(!domain.is_alive() && !domain.is_ending() && domain.contexts.is_empty());
        fixture.world.kernel.release(domain);
    }
    fixture.leave_nothing();
}

/// Its segment has no name but the mapping.
#[test]
fn who_is_told_of_a_death_has_the_memory_back() {
    for units in [3, 20, END_UNITS] {
        let mut fixture = Fixture::new();
        let segment = fixture.world.make(fixture.victim, Call::SegmentAlloc, &[RAM, 50, kinds::EAGER]);
        fixture.world.make(fixture.victim, Call::RangeMap, &[SPACE, HEAP, segment, 0, 50, OPEN]);
        fixture.world.run(fixture.victim, Call::CapDrop, &[segment]).unwrap();
        let used = fixture.world.used();
        fixture.world.kernel.kill(fixture.victim.domain, Death::by_call(DeathCause::Killed, 0));
        while !fixture.is_told() {
            assert!(fixture.victim.domain.is_ending());
            fixture.world.kernel.drain_ending(&mut Budget::new(units));
        }
        assert!(used - fixture.world.used() > 50 && fixture.world.kernel.destroy_queue.is_empty());
        fixture.leave_nothing();
    }
}

/// What it held is given back in several steps, and then that is told.
#[test]
fn who_is_told_of_a_revoked_domain_has_back_what_it_held() {
    const HELD: u32 = 3000;
    let mut fixture = Fixture::new();
    let (killer, world) = (fixture.killer, &mut fixture.world);
    let account = world.make(killer, Call::RamSplit, &[RAM, 3000, 0]);
    let paid = killer.domain.share().find::<Ram>(Handle(account), Rights::CONTROL).unwrap().0;
    let revoked = world.actor(paid);
    let ram = world.ram;
    let semaphore = world.kernel.create(ram, |header| Semaphore::new(header, 0)).unwrap();
    for number in 0..HELD as usize {
        revoked.domain.ensure_slot(&mut world.kernel, VICTIM + number).unwrap();
        world.give(revoked, VICTIM + number, semaphore.any());
    }
    revoked.domain.set_on_death_of(world, killer.context);
    world.kernel.release(revoked.context);
    world.kernel.release(revoked.domain);
    let is_told = || killer.context.pending.get() & TOLD != 0;
    let parts = world.revoke(killer, account, |_| assert!(!is_told() || semaphore.header().references() == 1));
    assert!(parts > HELD / UNITS && is_told() && semaphore.header().references() == 1);
    killer.context.pending.set(0);
    world.kernel.release(semaphore);
    world.run(killer, Call::CapDrop, &[account]).unwrap();
    world.kernel.kill(fixture.victim.domain, Death::by_call(DeathCause::Killed, 0));
    fixture.leave_nothing();
}

/// Nobody would begin the next step but the timer.
#[test]
fn what_nobody_holds_goes_in_steps_that_follow_each_other() {
    let mut fixture = Fixture::new();
    let segment = fixture.world.make(fixture.victim, Call::SegmentAlloc, &[RAM, 3000, kinds::EAGER]);
    fixture.world.make(fixture.victim, Call::RangeMap, &[SPACE, HEAP, segment, 0, 1, OPEN]);
    fixture.world.run(fixture.victim, Call::CapDrop, &[segment]).unwrap();
    let used = fixture.world.used();
    fixture.world.run_one(fixture.victim, Call::RangeUnmap, &[SPACE, HEAP, 1]).unwrap();
    let mut steps = 0;
    while !fixture.world.kernel.destroy_queue.is_empty() {
        hardware::set_deadline(None);
        fixture.world.kernel.step(Event::Timer);
        let fires = hardware::deadline().is_some_and(|at_ns| at_ns <= hardware::now_ns());
        assert!(fires || fixture.world.kernel.destroy_queue.is_empty(), "the next step begins at once");
        steps += 1;
    }
    assert!(steps > 10 && used - fixture.world.used() >= 3000, "{steps}");
    fixture.world.kernel.kill(fixture.victim.domain, Death::by_call(DeathCause::Killed, 0));
    fixture.leave_nothing();
}

/// How much of a budget is spent by this.
fn spent(what: impl FnOnce(&mut Budget) -> bool) -> u32 {
    let mut budget = Budget::new(1000);
    assert!(what(&mut budget));
    1000 - core::iter::from_fn(|| budget.spend(1).then_some(())).count() as u32
}

#[test]
fn the_end_of_a_context_costs_what_is_searched_and_who_is_told() {
    let mut fixture = Fixture::new();
    let (world, domain) = (&mut fixture.world, fixture.victim.domain);
    let mut cost = |slots: u64, callers: u64| {
        let server = world.thread(domain, 0, 3);
        for badge in 0..slots {
            world.kernel.wake_slots.allocate(server.any(), 1 << badge).unwrap();
        }
        for number in 0..callers {
            let caller = world.thread(domain, 1 + number, 3);
            world.kernel.call_rendezvous(caller, server, 0, u64::MAX);
        }
        let units = spent(|budget| world.kernel.end_context_within(server, budget));
        // Its place, and those of the callers, are the next one's.
        let mut next = domain.contexts.last();
        while let Some(context) = next.filter(|context| *context != fixture.victim.context) {
            world.kernel.end_context(context);
            next = domain.contexts.last();
        }
        world.make(fixture.victim, Call::RangeUnmap, &[SPACE, REGIONS, 1 + callers]);
        units
    };
    let bare = cost(0, 0);
    assert_eq!([cost(1, 0), cost(5, 0)].map(|units| units - bare), [WAKE_SLOTS_UNITS; 2], "one search for all");
    assert_eq!([cost(0, 1), cost(0, 7)].map(|units| units - bare), [CALLER_UNITS, 7 * CALLER_UNITS]);
    assert_eq!(cost(2, 3) - bare, WAKE_SLOTS_UNITS + 3 * CALLER_UNITS);
    fixture.world.kernel.kill(fixture.victim.domain, Death::by_call(DeathCause::Killed, 0));
    fixture.leave_nothing();
}

#[test]
fn the_end_of_a_semaphore_costs_the_search_for_its_wake_slots() {
    let mut fixture = Fixture::new();
    let (kernel, ram) = (&mut *fixture.world.kernel, fixture.world.ram);
    let [bare, woken] = [0, 3].map(|slots| {
        let semaphore = kernel.create(ram, |header| Semaphore::new(header, 0)).unwrap();
        for _ in 0..slots {
            kernel.wake_slots.allocate(semaphore.any(), 0).unwrap();
        }
        kernel.release(semaphore);
        spent(|budget| kernel.destroy_queued(budget))
    });
    assert_eq!(woken - bare, WAKE_SLOTS_UNITS);
    kernel.kill(fixture.victim.domain, Death::by_call(DeathCause::Killed, 0));
    fixture.leave_nothing();
}

#[test]
fn a_domain_tells_what_it_uses_and_when_it_has_ended_what_it_used() {
    let mut fixture = Fixture::new();
    give_pages(&mut fixture);
    let (victim, ram) = (fixture.victim.domain, fixture.world.ram);
    let used = ram.used();
    assert!(used > 10_000);
    assert_eq!(victim.state().used_pages, used);
    fixture.world.kernel.kill(victim, Death::by_call(DeathCause::Killed, 0));
    fixture.world.kernel.drain_all();
    assert!(ram.used() < used - 10_000);
    assert_eq!(victim.state().used_pages, used);
    fixture.leave_nothing();
}

#[test]
fn a_semaphore_for_which_thousands_wait_is_revoked_in_bounded_steps() {
    const SEMAPHORE: usize = VICTIM + 1;
    let mut fixture = Fixture::new();
    give_contexts(&mut fixture);
    let account = fixture.world.make(fixture.victim, Call::RamSplit, &[RAM, 100, 0]);
    let paid = fixture.victim.domain.share().find::<Ram>(Handle(account), Rights::CONTROL).unwrap().0;
    let semaphore = fixture.world.kernel.create(paid, |header| Semaphore::new(header, 0)).unwrap();
    fixture.victim.domain.insert(SEMAPHORE, Capability { object: semaphore.any(), badge: 0, rights: Rights::ALL });
    let mut waiting = Vec::new();
    let mut next = fixture.victim.domain.contexts.first();
    while let Some(context) = next {
        next = Linked::<0>::link(&*context).next();
        if context != fixture.victim.context {
            waiting.push(context);
            semaphore.wait(&mut fixture.world.kernel, context);
        }
    }
    let steps = fixture.world.revoke(fixture.victim, account, |_| ());
    assert!(steps as usize >= 2 * waiting.len() / UNITS as usize, "{steps} steps");
    let told = (Error::PeerDead as u64).wrapping_neg();
    assert!(waiting.iter().all(|context| context.state() == State::Runnable));
    assert!(waiting.iter().all(|context| context.with_registers(|registers| registers.rax) == told));
    fixture.world.kernel.kill(fixture.victim.domain, Death::by_call(DeathCause::Killed, 0));
    fixture.world.kernel.drain_all();
    fixture.leave_nothing();
}
