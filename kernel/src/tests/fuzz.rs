//! Every call with every kind of argument: no panic, and at the end no page is missing.

use super::transcript::Transcript;
use super::{Random, World, invariants};
use crate::arch::context::Event;
use crate::hardware;
use crate::objects::context::State;
use crate::objects::domain::Death;
use crate::objects::{Context, Domain, Linked, Ptr, Ram};
use crate::scheduler::Decision;
use ::fuzz::{Surroundings, Tally, argument, next};
use abi::{Call, DeathCause, Error, Handle, ObjectType, layout};
use core::cell::Cell;

/// Calls that reach the real machine.
const LEFT_OUT: [Call; 5] =
    [Call::PowerOff, Call::DevicePortRead, Call::DevicePortWrite, Call::DeviceInterrupt, Call::DeviceMaster];

std::thread_local! {
    /// Ids that calls made last.
    static RECENT: Cell<[u64; 6]> = const { Cell::new([0; 6]) };
}

/// A context whose domain's handles are known.
struct Caller(Ptr<Context>);

impl Surroundings for Caller {
    fn handle(&mut self, random: &mut Random, wanted: Option<ObjectType>) -> u64 {
        let domain = self.0.domain();
        let share = domain.share();
        let mut next = random.below(48) as usize;
        for _ in 0..64 {
            let Some(index) = share.next_taken(next) else {
                next = 0;
                continue;
            };
            let found = share
                .get(Handle(index as u64))
                .is_ok_and(|found| wanted.is_none_or(|wanted| found.object.object_type() == wanted));
            if found {
                return index as u64;
            }
            next = index + 1;
        }
        0
    }

    fn id(&mut self, random: &mut Random) -> u64 {
        random.one(&RECENT.get())
    }

    fn named(&mut self, random: &mut Random) -> u64 {
        let share = Handle(self.handle(random, Some(ObjectType::Share)));
        Handle::in_share(share, self.id(random)).map_or(share.0, |pair| pair.0)
    }

    fn now_ns(&mut self) -> u64 {
        hardware::now_ns()
    }

    fn entry(&mut self, random: &mut Random) -> [u64; 2] {
        [random.one(&[0x1000, layout::HEAP, layout::USER_END]), 0]
    }

    fn mapped(&mut self, random: &mut Random) -> Option<[u64; 3]> {
        let mapping = self.0.domain().range().at_or_after(layout::HEAP + random.below(32) * abi::PAGE_BYTES)?;
        Some([Handle::SELF_RANGE.0, mapping.start(), mapping.pages()])
    }

    fn pointer(&mut self, random: &mut Random) -> u64 {
        random.one(&[layout::CONTROL_PAGE + 3000, layout::HEAP])
    }

    fn is_left_out(&self, call: Call) -> bool {
        LEFT_OUT.contains(&call)
    }
}

pub(super) fn event(random: &mut Random, world: &World) -> Event {
    let Some(context) = world.kernel.scheduler.current() else { return Event::Timer };
    let mut caller = Caller(context);
    match random.below(20) {
        0 => Event::Timer,
        1 if random.once_in(50) => {
            let error = random.one(&[4, 6, 7, 20, 0]);
            Event::Exception { vector: 14, error, address: argument(random, &mut caller) }
        }
        2 if random.once_in(100) => Event::Exception { vector: random.below(32) as u8, error: 0, address: 0 },
        _ => {
            let made = next(random, &mut caller);
            context.with_registers(|r| {
                r.rax = made.number;
                [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = made.words;
            });
            Event::Syscall
        }
    }
}

/// A call's result may be the id of a new shared object; or of a pool, after `SharePool`.
fn note_id(caller: Ptr<Context>, number: u64) {
    let (result, first, second) = caller.with_registers(|r| (r.rax, r.rdi, r.rsi));
    let makes =
        [Call::ShareAlloc, Call::ShareSegment, Call::ShareCopy, Call::ShareRange, Call::SharePool].map(Call::number);
    if makes.contains(&number) && result == 0 {
        let id = if number == Call::SharePool.number() { first } else { second };
        let mut recent = RECENT.get();
        recent.rotate_right(1);
        recent[0] = id;
        RECENT.set(recent);
    }
}

/// The domain that a `DomainAlloc` just made.
fn new_domain(world: &mut World, caller: Ptr<Context>, number: u64) -> Option<Ptr<Domain>> {
    let (result, slot) = caller.with_registers(|r| (r.rax, r.rdi));
    if number != Call::DomainAlloc.number() || result != 0 {
        return None;
    }
    let domain = caller.domain().share().get(Handle(slot)).ok()?.object.cast::<Domain>().ok()?;
    world.kernel.retain(domain);
    Some(domain)
}

/// Everybody waits, perhaps for ever: ends the waits of one domain.
fn stir(world: &mut World, domain: Ptr<Domain>) {
    let mut next = domain.contexts.first();
    while let Some(context) = next {
        next = Linked::<0>::link(&*context).next();
        if !matches!(context.state(), State::New | State::Runnable) {
            world.kernel.complete(context, Err(Error::Timeout));
        }
    }
}

/// What portals and queues promise of depths and of who is ready.
fn assert_time_is_consistent(world: &World, domain: Ptr<Domain>) {
    world.kernel.scheduler.assert_queues();
    let contexts = core::iter::successors(domain.contexts.first(), |context| Linked::<0>::link(&**context).next());
    for context in contexts {
        let donors = core::iter::successors(context.first_donor(), |donor| donor.next_donor());
        let deepest = donors.map(|donor| donor.depth() + 1).max();
        assert_eq!(context.depth(), deepest.unwrap_or(0), "the longest chain that ends in it");
    }
}

/// Ends the waits of all domains that stand directly on an account.
pub(super) fn stir_all(world: &mut World, ram: Ptr<Ram>) {
    let mut next = ram.actors.first();
    while let Some(actor) = next {
        next = Linked::<0>::link(&*actor).next();
        if let Ok(domain) = actor.cast::<Domain>() {
            stir(world, domain);
        }
    }
}

/// How a call of `caller` ended, if it came back: others leave what they like in the register.
fn ended(caller: Ptr<Context>) -> Option<Result<(), Error>> {
    match caller.with_registers(|r| r.rax) {
        0 => Some(Ok(())),
        code => Error::from_code(code.wrapping_neg()).map(Err),
    }
}

/// What a call's result and its words are in: number or result, then arguments or results.
fn call_registers(caller: Ptr<Context>) -> [u64; 7] {
    caller.with_registers(|r| [r.rax, r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9])
}

/// In one game of so many it is looked at what refused calls leave.
const LOOKED_AT_IN: u64 = 5;
/// Refused calls that may leave something done that is seen in slots or mappings: the last three
/// where a word of theirs says that earlier steps were made, as it may without truth.
const LEAVES_SOMETHING: [Call; 4] = [Call::DomainFork, Call::RangeUnmap, Call::RangeProtect, Call::SegmentSetPages];

/// In one game of so many all invariants are looked at after each call, in the others after one of
/// so many.
const CHECKED_IN: u64 = 26;
const CHECKED_STEPS: u32 = 64;

/// What programs see of domains that live: their slots and their mappings.
fn seen(domains: &[Ptr<Domain>]) -> Vec<[u64; 5]> {
    let mut all = Vec::new();
    for domain in domains.iter().filter(|domain| domain.is_alive()) {
        let (mut index, mut address) = (0, 0);
        while let Some(slot) = domain.share().next_taken(index) {
            let found = domain.share().get(Handle(slot as u64)).expect("taken");
            all.push([
                slot as u64,
                found.object.id(),
                found.object.object_type() as u64,
                found.badge,
                found.rights.0.into(),
            ]);
            index = slot + 1;
        }
        while let Some(mapping) = domain.range().at_or_after(address) {
            let rights = [mapping.protection(), mapping.allowed()];
            all.push([mapping.start(), mapping.pages(), mapping.first(), rights[0], rights[1]]);
            address = mapping.place().end();
        }
    }
    all
}

pub(super) fn play(seed: u64, steps: u32, pages: u64, tally: &mut Tally, transcript: &mut Transcript) {
    play_with(event, seed, steps, pages, tally, transcript);
}

/// As `event`, but one in four is a page fault in what the caller has mapped, mostly to write, and
/// one in eight makes, maps or copies a segment: pages become shared and come apart again.
fn event_of_copies(random: &mut Random, world: &World) -> Event {
    let Some(context) = world.kernel.scheduler.current() else { return Event::Timer };
    let mut caller = Caller(context);
    match random.below(8) {
        0 | 1 => {
            let Some([_, start, pages]) = caller.mapped(random) else { return event(random, world) };
            let address = start + random.below(pages.min(32)) * abi::PAGE_BYTES;
            Event::Exception { vector: 14, error: random.one(&[6, 6, 7, 4]), address }
        }
        2 => {
            let segment = caller.handle(random, Some(ObjectType::Segment));
            let address = layout::HEAP + random.below(32) * abi::PAGE_BYTES;
            let open = layout::protection::READ | layout::protection::WRITE;
            let pages = 1 + random.below(4);
            let mode = random.one(&[layout::copy::ON_WRITE, layout::copy::ON_REFERENCE]);
            let (call, words) = random.one(&[
                (Call::SegmentAlloc, [Handle::ROOT_RAM.0, pages, 0, 0, 0, 0]),
                (Call::RangeMap, [Handle::SELF_RANGE.0, address, segment, 0, pages, open]),
                (Call::SegmentCopy, [Handle::ROOT_RAM.0, segment, mode, 0, 0, 0]),
            ]);
            context.with_registers(|r| {
                r.rax = call.number();
                [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = words;
            });
            Event::Syscall
        }
        _ => event(random, world),
    }
}

/// Plays a game of what `event` makes happen; tells how many pages were copied at a fault.
fn play_with(
    event: fn(&mut Random, &World) -> Event,
    seed: u64,
    steps: u32,
    pages: u64,
    tally: &mut Tally,
    transcript: &mut Transcript,
) -> u64 {
    let mut world = World::new(pages);
    let mut random = Random::new(seed);
    let first = world.monitor();
    first.keep_alive();
    world.kernel.retain(first);
    let mut now_ns = 0;
    let mut decision = world.kernel.decide();
    // Domains that hold capabilities for each other keep each other; so the test keeps and ends
    // them all.
    let mut domains = vec![first];
    let is_checked = seed.is_multiple_of(CHECKED_IN);
    for step in 1..=steps {
        now_ns += random.below(500);
        if decision == Decision::Idle {
            now_ns += 10_000;
            stir(&mut world, first);
        }
        hardware::set_clock(now_ns);
        let event = event(&mut random, &world);
        let caller = world.kernel.scheduler.current();
        let made = caller.map_or([0; 7], call_registers);
        let before = seed.is_multiple_of(LOOKED_AT_IN).then(|| seen(&domains));
        decision = world.kernel.step(event);
        if let (Event::Syscall, Some(caller)) = (event, caller) {
            let is_back = world.kernel.scheduler.current() == Some(caller);
            tally.count(made[0], if is_back { ended(caller) } else { None });
            transcript.note(made, is_back.then(|| call_registers(caller)));
            let is_refused = is_back && ended(caller).is_some_and(|ended| ended.is_err());
            let is_bound = Call::decode(made[0]).is_some_and(|call| !LEAVES_SOMETHING.contains(&call));
            if let Some(before) = before.filter(|_| is_refused && is_bound) {
                assert_eq!(seen(&domains), before, "{:?} was refused and changed this", Call::decode(made[0]));
            }
            if is_back {
                note_id(caller, made[0]);
                domains.extend(new_domain(&mut world, caller, made[0]));
            }
        }
        if !first.is_alive() {
            break;
        }
        assert_time_is_consistent(&world, first);
        if is_checked || step.is_multiple_of(CHECKED_STEPS) {
            invariants::assert_all(&mut world.kernel, first);
        }
    }
    world.kernel.release(first);
    for domain in domains {
        world.kernel.kill(domain, Death::by_call(DeathCause::Killed, 0));
        world.kernel.release(domain);
    }
    world.assert_empty();
    world.kernel.counters.copy_faults.0
}

/// Calls that do not return to their caller, or need what this machine lacks: devices, a core that
/// polls, memory of another core. And one that needs a shared range, which one game in thousands
/// has in its share.
const NEVER_SUCCEED: [&str; 16] = [
    "RangeStat",
    "RamAdd",
    "PowerOff",
    "ConsoleWrite",
    "DomainExit",
    "ContextResume",
    "PcoreHalt",
    "PcoreDeviceStat",
    "DeviceWindow",
    "DeviceConfRead",
    "DeviceConfWrite",
    "DeviceInterrupt",
    "DeviceMaster",
    "DevicePortRead",
    "DevicePortWrite",
    "DeviceAlloc",
];

#[test]
fn random_programs_break_nothing() {
    let mut tally = Tally::new();
    for seed in 1..=700 {
        play(seed, 3000, 1200, &mut tally, &mut Transcript::default());
    }
    let missing: Vec<_> =
        tally.calls().filter(|(name, _, succeeded)| *succeeded == 0 && !NEVER_SUCCEED.contains(name)).collect();
    assert!(missing.is_empty(), "never succeeded: {missing:?}");
    // Games are too short to fill a share or to copy in a row for long.
    let missing: Vec<_> =
        tally.errors().filter(|(name, count)| *count == 0 && !["NoSlot", "TooDeep"].contains(name)).collect();
    assert!(missing.is_empty(), "never refused with: {missing:?}");
    assert!(tally.all() > 150_000 && tally.succeeded() > 45_000, "{} of {}", tally.succeeded(), tally.all());
}

#[test]
fn random_programs_that_copy_and_write_break_nothing() {
    let game = |seed| {
        let (tally, transcript) = (&mut Tally::new(), &mut Transcript::default());
        play_with(event_of_copies, seed * CHECKED_IN, 400, 1200, tally, transcript)
    };
    let copied: u64 = (2001..=2200).map(game).sum();
    assert!(copied > 500, "{copied} pages were copied");
}

#[test]
fn random_programs_break_nothing_without_memory() {
    let mut tally = Tally::new();
    for seed in 1001..=1400 {
        play(seed, 1500, 60 + seed % 40, &mut tally, &mut Transcript::default());
    }
}
