//! Revocation: what goes, what stays, in how large parts, and that all memory is back.

use super::{Random, World, fuzz};
use crate::arch::paging;
use crate::calls;
use crate::hardware;
use crate::objects::context::{Options, State};
use crate::objects::fault::Access;
use crate::objects::mapping::PageRun;
use crate::objects::share::Capability;
use crate::objects::slot::DEPTH_MAX;
use crate::objects::{AnyObject, Context, Domain, Linked, Ptr, Ram, Schedule};
use crate::scheduler::Decision;
use crate::steps::{Budget, END_UNITS, UNITS};
use abi::layout::{self, protection, segment as kinds};
use abi::{Call, DeathCause, Error, Handle, Rights};

/// What one step of any call may do, in tens of instructions.
pub(super) const STEP_WORK_MAX: u64 = 10_000;

const PAGE: u64 = 4096;
/// More calls than any revocation here needs.
const PARTS_MAX: u32 = 2000;

/// A domain with a context that makes the test's calls.
#[derive(Clone, Copy)]
pub(super) struct Actor {
    pub(super) domain: Ptr<Domain>,
    pub(super) context: Ptr<Context>,
}

impl World {
    pub(super) fn actor(&mut self, ram: Ptr<Ram>) -> Actor {
        let kernel = &mut *self.kernel;
        let domain = Ptr::<Domain>::create(kernel, ram, 0, super::name()).unwrap();
        let place = PageRun { start: layout::CONTROL_PAGE, pages: 1 };
        let options = Options { has_vectors: false, is_linux: false, priority_max: 7 };
        let context = Ptr::<Context>::create(kernel, ram, domain, place, options).unwrap();
        domain.insert(4, Capability { object: context.any(), badge: 1, rights: Rights::ALL });
        kernel.retain(context);
        domain.keep_alive();
        Actor { domain, context }
    }

    /// The monitor's actor, outside of all that is revoked; holds the root account.
    pub(super) fn outsider(&mut self) -> Actor {
        let actor = self.actor(self.ram);
        self.give(actor, Handle::ROOT_RAM.0 as usize, self.ram.any());
        actor
    }

    pub(super) fn give(&mut self, to: Actor, index: usize, object: AnyObject) {
        self.kernel.retain_any(object);
        to.domain.insert(index, Capability { object, badge: 1, rights: Rights::ALL });
    }

    pub(super) fn run(&mut self, actor: Actor, call: Call, words: &[u64]) -> Result<[u64; 3], Error> {
        let mut all = [0; 6];
        all[..words.len()].copy_from_slice(words);
        actor.context.with_registers(|r| [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = all);
        // As the processor does when it is sent back to the instruction of the call.
        const AFTER: u64 = 0x1002;
        loop {
            actor.context.with_registers(|r| r.rip = AFTER);
            hardware::take_work();
            calls::enter(&mut self.kernel, actor.context, call);
            self.kernel.drain_dead();
            let work = hardware::take_work();
            assert!(work <= STEP_WORK_MAX, "a step of {call:?} {words:?} does {work} units of work");
            if actor.context.with_registers(|r| r.rip) == AFTER {
                break;
            }
        }
        actor.context.with_registers(|r| match r.rax {
            0 => Ok([r.rdi, r.rsi, r.rdx]),
            code => Err(Error::from_code(code.wrapping_neg()).unwrap()),
        })
    }

    pub(super) fn make(&mut self, actor: Actor, call: Call, words: &[u64]) -> u64 {
        self.run(actor, call, words).unwrap_or_else(|error| panic!("{call:?} {words:?}: {error:?}"))[0]
    }

    /// Revokes to the end; `between` happens between two parts. Gives the number of calls.
    pub(super) fn revoke(&mut self, actor: Actor, ram: u64, mut between: impl FnMut(&mut World)) -> u32 {
        for parts in 1..PARTS_MAX {
            if self.make(actor, Call::RamRevoke, &[ram]) == 0 {
                return parts;
            }
            between(self);
        }
        panic!("no end of a revocation");
    }

    /// All objects of the core, found through the accounts that pay for them, and that each slot
    /// that names one is really taken.
    fn objects(&self) -> Vec<AnyObject> {
        let mut found: Vec<AnyObject> = Vec::new();
        let mut accounts = vec![self.ram];
        while let Some(ram) = accounts.pop() {
            for list in [&ram.actors, &ram.objects] {
                let mut next = list.first();
                while let Some(object) = next {
                    next = Linked::<0>::link(&*object).next();
                    accounts.extend(object.cast::<Ram>());
                    found.push(object);
                }
            }
        }
        assert_eq!(found.len() as u64 + 1, self.kernel.kernel_objects, "an object is on no account's list");
        for object in &found {
            let mut next = object.capabilities.first();
            while let Some(slot) = next {
                next = Linked::<0>::link(&*slot).next();
                assert!(slot.get().is_some_and(|held| held.object == *object));
            }
        }
        found
    }

    pub(super) fn used(&self) -> u64 {
        self.kernel.frames.total() - self.kernel.frames.free()
    }

    pub(super) fn leave_nothing(mut self, actors: &[Actor]) {
        for actor in actors {
            let death = crate::objects::domain::Death::by_call(DeathCause::Killed, 0);
            self.kernel.kill(actor.domain, death);
            self.kernel.release(actor.context);
            self.kernel.release(actor.domain);
        }
        self.assert_empty();
    }
}

/// The test's own references go: what is made inside an account has none from outside.
fn leave(world: &mut World, actor: Actor) {
    world.kernel.release(actor.domain);
    world.kernel.release(actor.context);
}

/// Pages of the large segment that are touched.
const TOUCHED: [u64; 3] = [0, 700, 1499];
const LARGE_PAGES: u64 = 1500;
const RUN_PAGES: u64 = 40;

/// One of each kind of object, paid for by `ram` or an account below it.
struct Everything {
    ram: u64,
    /// A portal that another account pays for, to a context that `ram` pays for.
    outer: u64,
    /// Id of the domain.
    id: u64,
    /// Capabilities that are to go; the last one is for a semaphore.
    handles: Vec<u64>,
    /// Used once the touched pages had tables.
    tables: u64,
}

fn make_everything(world: &mut World, outside: Actor, ram: u64) -> Everything {
    let below = world.make(outside, Call::RamSplit, &[ram, 2000]);
    let [domain, id, _] = world.run(outside, Call::DomainAlloc, &[below, 0]).unwrap();
    let range = world.make(outside, Call::DomainRange, &[domain]);
    let large = world.make(outside, Call::SegmentAlloc, &[ram, LARGE_PAGES, kinds::EAGER]);
    let run = world.make(outside, Call::SegmentAlloc, &[below, RUN_PAGES, kinds::CONTIGUOUS]);
    let open = protection::READ | protection::WRITE;
    world.make(outside, Call::RangeMap, &[range, layout::HEAP, large, 0, LARGE_PAGES, open]);
    world.make(outside, Call::RangeMap, &[Handle::SELF_RANGE.0, layout::HEAP, large, 0, LARGE_PAGES, open]);
    world.make(outside, Call::RangeMap, &[Handle::SELF_RANGE.0, layout::REGIONS, run, 0, RUN_PAGES, open]);
    for page in TOUCHED {
        outside.domain.range().resolve(&mut world.kernel, layout::HEAP + page * PAGE, Access::Write).unwrap();
    }
    let tables = world.used();
    let context = world.make(outside, Call::ContextAlloc, &[below, domain, layout::CONTROL_PAGE, 0]);
    world.make(outside, Call::ContextSchedule, &[below, context, 0, 1000]);
    world.make(outside, Call::ContextStart, &[context, 0x1000, 0x2000, 0, 0]);
    world.make(outside, Call::DomainOnDeath, &[domain, 4]);
    world.make(outside, Call::ContextWatch, &[4, layout::context::WATCH_LIMIT_MIN_NS, context]);
    let portal = world.make(outside, Call::PortalAlloc, &[ram, 4, 7, layout::portal::MAILBOX]);
    let outer = world.make(outside, Call::PortalAlloc, &[Handle::ROOT_RAM.0, context, 7, layout::portal::RENDEZVOUS]);
    let semaphore = world.make(outside, Call::SemaphoreAlloc, &[ram, 0]);
    let copies: Vec<u64> =
        (0..100).map(|_| world.make(outside, Call::CapCopy, &[semaphore, Rights::ALL.0.into()])).collect();
    let handles = vec![below, domain, range, large, run, context, portal, semaphore, copies[0]];
    Everything { ram, outer, id, handles, tables }
}

/// Has the waiter wait for the semaphore, and name the account as his capability 21.
fn involve(world: &mut World, outside: Actor, waiter: Actor, made: &Everything) {
    let semaphore = *made.handles.last().unwrap();
    for (index, handle) in [(20, semaphore), (21, made.ram)] {
        world.give(waiter, index, outside.domain.share().get(Handle(handle)).unwrap().object);
    }
    waiter.context.set_state(State::Runnable);
    world.run(waiter, Call::SemaphoreDown, &[20, u64::MAX]).ok();
    assert!(matches!(waiter.context.state(), State::OnSemaphore(_)));
}

/// Revokes; no part frees too much, nor a page that is still mapped.
fn revoke_in_parts(world: &mut World, outside: Actor, ram: u64) {
    let own = outside.domain.range();
    let mapped = |address: u64| paging::view(own.root(), address);
    let touched = TOUCHED.map(|page| layout::HEAP + page * PAGE);
    assert!(touched.iter().all(|&address| mapped(address).is_some()));
    let mut last = world.used();
    let parts = world.revoke(outside, ram, |world| {
        let freed = last - world.used();
        last = world.used();
        assert!(freed <= u64::from(UNITS + END_UNITS) + 16, "{freed} pages in one part");
        for entry in touched.iter().filter_map(|&address| mapped(address)) {
            assert!(world.kernel.frames.count(entry.address()) > 0, "a free frame is still mapped");
        }
    });
    assert!(touched.iter().all(|&address| mapped(address).is_none()));
    assert!((7..40).contains(&parts), "{parts} parts");
}

#[test]
fn all_that_an_account_paid_for_goes_and_its_memory_is_back() {
    let mut world = World::new(4000);
    let outside = world.outsider();
    let waiter = world.actor(world.ram);
    // Slot pages of the outsider are there before anything is counted.
    outside.domain.ensure_slot(&mut world.kernel, 130).unwrap();
    let ram = world.make(outside, Call::RamSplit, &[Handle::ROOT_RAM.0, 3000]);
    let before = (world.used(), world.kernel.kernel_objects);
    let made = make_everything(&mut world, outside, ram);
    involve(&mut world, outside, waiter, &made);
    revoke_in_parts(&mut world, outside, made.ram);
    for handle in &made.handles {
        assert_eq!(world.run(outside, Call::CapStat, &[*handle]), Err(Error::BadHandle));
    }
    assert_eq!(world.run(waiter, Call::CapStat, &[21]), Err(Error::BadHandle));
    assert_eq!(waiter.context.with_registers(|r| r.rax), (Error::BadHandle as u64).wrapping_neg());
    assert!(matches!(waiter.context.state(), State::Runnable));
    assert_eq!(outside.context.pending.get(), 1, "the parent is told of the death of {:#x}", made.id);
    assert_eq!(world.run(outside, Call::PortalCall, &[made.outer, 0, 0, 0, 0, 0]), Err(Error::PeerDead));
    let own = outside.domain.range();
    assert_eq!(own.count(), 1, "only its control page is mapped");
    assert!(own.resolve(&mut world.kernel, layout::HEAP, Access::Read).is_err());
    assert_eq!(world.run(outside, Call::RamStat, &[made.ram]).unwrap()[1], 0);
    world.make(outside, Call::CapDrop, &[made.outer]);
    assert_eq!(world.kernel.kernel_objects, before.1);
    // What is used by the tables of the outsider's own range stays.
    let most = made.tables - LARGE_PAGES - RUN_PAGES;
    assert!(world.used() <= most && world.used() >= before.0, "{} {before:?} {most}", world.used());
    world.objects();
    // The account is as good as new, and another round leaves the same.
    let used = world.used();
    world.make(outside, Call::SegmentAlloc, &[made.ram, 100, kinds::EAGER]);
    world.revoke(outside, made.ram, |_| ());
    assert_eq!(world.used(), used);
    world.leave_nothing(&[outside, waiter]);
}

#[test]
fn nobody_revokes_what_he_stands_on() {
    let mut world = World::new(600);
    let outside = world.outsider();
    let ram = world.make(outside, Call::RamSplit, &[Handle::ROOT_RAM.0, 300]);
    let account = outside.domain.share().get(Handle(ram)).unwrap().object;
    let inside = world.actor(account.cast().unwrap());
    world.give(inside, 5, account);
    assert_eq!(world.run(inside, Call::RamRevoke, &[5]), Err(Error::BadArgument));
    assert_eq!(world.run(outside, Call::RamRevoke, &[Handle::ROOT_RAM.0]), Err(Error::BadArgument));
    assert_eq!(world.run(inside, Call::RamRevoke, &[Handle::SELF_RAM.0]), Err(Error::NoRights));
    assert_eq!(world.run(outside, Call::RamRevoke, &[4]), Err(Error::WrongType));
    // A guest whose time is paid from outside, and one whose only context is: both end with what
    // goes.
    let guest = world.actor(world.ram);
    let kernel = &mut *world.kernel;
    let time = kernel.create(account.cast().unwrap(), |header| Schedule::new(header, guest.context, 1, 1000)).unwrap();
    guest.context.schedule.set(Some(time));
    leave(&mut world, inside);
    world.revoke(outside, ram, |_| ());
    assert_eq!(guest.domain.state().cause, DeathCause::Revoked as u64);
    assert!(guest.context.state() == State::Dead && outside.domain.is_alive());
    world.leave_nothing(&[outside, guest]);
}

#[test]
fn a_domain_that_passed_an_account_on_keeps_its_name_and_others_lose_theirs() {
    let mut world = World::new(600);
    let (outside, other) = (world.outsider(), world.actor(world.ram));
    world.give(outside, 20, other.domain.any());
    let all = Rights::ALL.0.into();
    let first = world.make(outside, Call::RamSplit, &[Handle::ROOT_RAM.0, 300]);
    let sibling = world.make(outside, Call::CapCopy, &[first, all]);
    let passed = world.make(outside, Call::DomainGrant, &[20, first, all]);
    let copy = world.make(other, Call::CapCopy, &[passed, all]);
    let below = world.make(other, Call::CapCopy, &[copy, all]);
    world.make(outside, Call::SegmentAlloc, &[sibling, 20, kinds::EAGER]);
    world.revoke(other, copy, |_| ());
    for (actor, handle, stays) in [
        (outside, first, true),
        (outside, sibling, false),
        (other, passed, true),
        (other, copy, true),
        (other, below, false),
    ] {
        assert_eq!(world.run(actor, Call::CapStat, &[handle]).is_ok(), stays, "{handle}");
    }
    assert_eq!(world.run(outside, Call::RamStat, &[first]).unwrap()[1], 0);
    world.leave_nothing(&[outside, other]);
}

#[test]
fn a_caller_whose_domain_ends_by_its_own_revocation_does_not_return() {
    let mut world = World::new(600);
    let outside = world.outsider();
    let other = world.actor(world.ram);
    let ram = world.make(outside, Call::RamSplit, &[Handle::ROOT_RAM.0, 300]);
    world.make(outside, Call::SegmentAlloc, &[ram, 20, kinds::EAGER]);
    // A second context of the caller's domain, paid by what is revoked.
    world.make(outside, Call::ContextAlloc, &[ram, Handle::SELF_DOMAIN.0, layout::HEAP, 0]);
    outside.context.with_registers(|r| r.rax = 77);
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run(outside, Call::RamRevoke, &[ram])));
    assert_eq!(outside.domain.state().cause, DeathCause::Revoked as u64);
    assert_eq!(outside.context.with_registers(|r| r.rax), 77, "no result for the dead");
    world.leave_nothing(&[outside, other]);
}

/// An account whose turns another shares, with nothing else and no name: it stands before the
/// account that has the other in it.
#[test]
fn an_account_that_leads_others_does_not_stop_a_revocation() {
    let mut world = World::new(1000);
    let outside = world.outsider();
    let ram = world.make(outside, Call::RamSplit, &[Handle::ROOT_RAM.0, 500]);
    let first = world.make(outside, Call::RamSplit, &[ram, 300]);
    let account = outside.domain.share().get(Handle(ram)).unwrap().object.cast::<Ram>().unwrap();
    let leader = account.split(&mut world.kernel, 100, crate::objects::group::Turns::Own).unwrap();
    world.give(outside, 30, leader.any());
    world.kernel.release(leader);
    let led = world.make(outside, Call::RamSplit, &[first, 100, 30]);
    world.make(outside, Call::SegmentAlloc, &[led, 4, abi::layout::segment::EAGER]);
    world.make(outside, Call::CapDrop, &[30]);
    assert_eq!((account.objects.first(), leader.header().references()), (Some(leader.any()), 1));
    world.revoke(outside, ram, |_| ());
    world.leave_nothing(&[outside]);
}

/// Turns are shared below what pays for the account that has them only: so nothing keeps an account
/// when its payer is revoked.
#[test]
fn turns_are_not_shared_outside_of_what_pays_for_them() {
    let mut world = World::new(1000);
    let outside = world.outsider();
    let [ram, other] = [(); 2].map(|()| world.make(outside, Call::RamSplit, &[Handle::ROOT_RAM.0, 300]));
    let account = outside.domain.share().get(Handle(ram)).unwrap().object.cast::<Ram>().unwrap();
    let below = account.split(&mut world.kernel, 100, crate::objects::group::Turns::Own).unwrap();
    world.give(outside, 30, below.any());
    world.kernel.release(below);
    let split = |world: &mut World, of: u64, turns: u64| world.run(outside, Call::RamSplit, &[of, 50, turns]).map(drop);
    assert_eq!(split(&mut world, other, 30), Err(Error::BadArgument));
    assert_eq!(split(&mut world, Handle::ROOT_RAM.0, 30), Err(Error::BadArgument));
    assert_eq!([ram, 30].map(|of| split(&mut world, of, 30)), [Ok(()); 2]);
    assert_eq!(split(&mut world, other, ram), Ok(()), "both are paid by the root");
    world.leave_nothing(&[outside]);
}

/// What random programs make inside an account is gone after it was revoked, while they go on
/// between the parts. With `leaks` they hold a domain outside. Gives the objects there were and the
/// parts it took.
fn play(seed: u64, leaks: bool) -> [u32; 2] {
    let mut world = World::new(1500);
    let mut random = Random::new(seed);
    let outside = world.outsider();
    let helper = world.actor(world.ram);
    let ram = world.make(outside, Call::RamSplit, &[Handle::ROOT_RAM.0, 900]);
    let before = (world.used(), world.kernel.kernel_objects);
    let account = outside.domain.share().get(Handle(ram)).unwrap().object;
    let payer = account.cast::<Ram>().unwrap();
    for _ in 0..4 {
        let inside = world.actor(payer);
        let below = payer.split(&mut world.kernel, 700, crate::objects::group::Turns::Own).unwrap();
        world.give(inside, 8, below.any());
        world.kernel.release(below);
        world.give(inside, 9, inside.domain.any());
        if leaks {
            world.give(inside, 10, helper.domain.any());
            world.give(inside, 11, helper.domain.range().any());
            world.give(inside, 12, helper.context.any());
            world.give(inside, 13, world.ram.any());
        }
        let schedule =
            world.kernel.create(payer, |header| Schedule::new(header, inside.context, 7, 1_000_000)).unwrap();
        inside.context.schedule.set(Some(schedule));
        world.kernel.start(inside.context, 0x1000, 0x2000, [0; 2]);
        leave(&mut world, inside);
    }
    let mut now_ns = 0;
    let mut steps = |world: &mut World, count: u64| {
        for _ in 0..count {
            now_ns += random.below(500);
            hardware::set_clock(now_ns);
            if world.kernel.decide() == Decision::Idle {
                if payer.actors.is_empty() {
                    return;
                }
                fuzz::stir_all(world, payer);
            }
            let event = fuzz::event(&mut random, world);
            world.kernel.step(event);
        }
    };
    steps(&mut world, 600);
    world.kernel.drain_all();
    let alive = world.objects().iter().filter(|object| payer.covers(object.payer().unwrap())).count() as u32;
    let slot = outside.domain.share().find_slot(Handle(ram)).unwrap().0;
    let mut parts = 1;
    while !world.kernel.revoke_ram(outside.context, slot, payer, &mut Budget::new(8 + parts % 32)) {
        world.kernel.drain_all();
        world.objects();
        steps(&mut world, 3);
        parts += 1;
        assert!(parts < PARTS_MAX, "no end of a revocation");
    }
    world.kernel.drain_all();
    assert_eq!(payer.used(), 0);
    for object in world.objects() {
        let pays = object.cast::<Ram>() == Ok(payer);
        assert!(pays || !payer.covers(object.payer().unwrap()), "{:?} is left", object.object_type());
    }
    if !leaks {
        assert_eq!((world.used(), world.kernel.kernel_objects), before);
    }
    world.leave_nothing(&[outside, helper]);
    [alive, parts]
}

#[test]
fn what_random_programs_made_is_gone() {
    let mut total = [0; 2];
    for seed in 1..=150u64 {
        for leaks in [false, true] {
            let done = play(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), leaks);
            total = [total[0] + done[0], total[1] + done[1]];
        }
    }
    assert!(total[0] > 10_000 && total[1] > 1500, "too little was revoked: {total:?}");
}

/// A capability as the model sees it: whose, where, from which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    who: usize,
    slot: u64,
    parent: Option<usize>,
}

fn depth(model: &[Option<Held>], at: usize) -> usize {
    core::iter::successors(model[at].and_then(|held| held.parent), |&at| model[at].and_then(|held| held.parent)).count()
}

fn derives(model: &[Option<Held>], at: usize, from: usize) -> bool {
    core::iter::successors(model[at].and_then(|held| held.parent), |&at| model[at].and_then(|held| held.parent))
        .any(|ancestor| ancestor == from)
}

#[test]
fn derivation_follows_the_model() {
    let mut world = World::new(600);
    let mut random = Random::new(0x1234_5678_9abc_def1);
    let actors: Vec<Actor> = (0..3).map(|_| world.outsider()).collect();
    for (index, other) in actors.iter().enumerate() {
        let object = other.domain.any();
        actors
            .iter()
            .enumerate()
            .filter(|(who, _)| *who != index)
            .for_each(|(_, actor)| world.give(*actor, 40 + index, object));
    }
    let first = world.make(actors[0], Call::SemaphoreAlloc, &[Handle::ROOT_RAM.0, 0]);
    let mut model = vec![Some(Held { who: 0, slot: first, parent: None })];
    let mut seen = [0; 4];
    for _ in 0..6000 {
        let newest = model.len() as u64 - 1;
        let at = loop {
            let at =
                if random.below(2) == 0 { newest.saturating_sub(random.below(3)) } else { random.below(newest + 1) }
                    as usize;
            if model[at].is_some() {
                break at;
            }
        };
        let held = model[at].unwrap();
        let actor = actors[held.who];
        match random.below(20) {
            0..=9 => {
                let to = random.below(3) as usize;
                let rights = Rights::ALL.0.into();
                let made = if to == held.who {
                    world.run(actor, Call::CapCopy, &[held.slot, rights])
                } else {
                    world.run(actor, Call::DomainGrant, &[40 + to as u64, held.slot, rights])
                };
                if depth(&model, at) == usize::from(DEPTH_MAX) {
                    assert_eq!(made, Err(Error::TooDeep));
                    seen[0] += 1;
                    continue;
                }
                model.push(Some(Held { who: to, slot: made.unwrap()[0], parent: Some(at) }));
                seen[1] += 1;
            }
            10..=17 if at != 0 => {
                world.make(actor, Call::CapDrop, &[held.slot]);
                model[at] = None;
                model
                    .iter_mut()
                    .flatten()
                    .filter(|child| child.parent == Some(at))
                    .for_each(|child| child.parent = held.parent);
                seen[2] += 1;
            }
            _ if random.below(10) == 0 => {
                while world.make(actor, Call::CapRevoke, &[held.slot]) != 0 {}
                let gone: Vec<usize> = (0..model.len()).filter(|&other| derives(&model, other, at)).collect();
                gone.into_iter().for_each(|other| model[other] = None);
                seen[3] += 1;
            }
            _ => (),
        }
        let object = actors[0].domain.share().get(Handle(first)).unwrap().object;
        assert_eq!(object.references() as usize, model.iter().flatten().count());
        for held in model.iter().flatten() {
            assert!(actors[held.who].domain.share().get(Handle(held.slot)).unwrap().object == object);
        }
    }
    assert!(seen.iter().all(|count| *count > 10), "too little was tried: {seen:?}");
    world.leave_nothing(&actors);
}

#[test]
fn what_the_kernel_keeps_is_revoked_with_what_it_came_from() {
    let mut world = World::new(600);
    let (outside, other) = (world.outsider(), world.actor(world.ram));
    world.give(outside, 20, other.domain.any());
    let doorbell = world.make(outside, Call::CapMint, &[4, Rights::ALL.0.into(), 8]);
    world.make(outside, Call::DomainOnDeath, &[20, doorbell]);
    world.make(outside, Call::CapRevoke, &[4]);
    assert_eq!(world.run(outside, Call::CapStat, &[doorbell]), Err(Error::BadHandle));
    world.make(outside, Call::DomainKill, &[20, 0]);
    assert_eq!(outside.context.pending.get(), 0, "nobody is told any more");
    world.leave_nothing(&[outside, other]);
}

/// The context that revokes holds what it is at; with the next revocation it lets go of it, and
/// that ends by itself.
#[test]
fn a_revocation_that_is_given_up_for_another_leaves_nothing_of_what_it_was_at() {
    let mut world = World::new(4000);
    let outside = world.outsider();
    let [first, second] = [(); 2].map(|()| {
        let ram = world.make(outside, Call::RamSplit, &[Handle::ROOT_RAM.0, 1500]);
        world.make(outside, Call::SegmentAlloc, &[ram, 1000, kinds::EAGER]);
        ram
    });
    let used = |world: &mut World, ram: u64| world.run(outside, Call::RamStat, &[ram]).unwrap()[1];
    for ram in [first, second] {
        assert_eq!(world.make(outside, Call::RamRevoke, &[ram]), 1, "there is more to do");
        world.kernel.drain_all();
        assert!(used(&mut world, ram) > 500, "what it is at waits for the next part");
    }
    assert_eq!(used(&mut world, first), 0);
    world.revoke(outside, second, |_| ());
    assert_eq!(used(&mut world, second), 0);
    world.leave_nothing(&[outside]);
}

#[test]
fn accounts_are_split_eight_deep_and_no_deeper() {
    let mut world = World::new(1000);
    let outside = world.outsider();
    let mut ram = Handle::ROOT_RAM.0;
    for below in 1..=8 {
        ram = world.make(outside, Call::RamSplit, &[ram, 900 - below * 50]);
    }
    assert_eq!(world.run(outside, Call::RamSplit, &[ram, 10]), Err(Error::BadArgument));
    world.make(outside, Call::RamSplit, &[Handle::ROOT_RAM.0, 10]);
    world.leave_nothing(&[outside]);
}
