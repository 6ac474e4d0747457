//! Every call with every kind of argument: no panic, and at the end no page is missing.

use super::{Random, World};
use crate::arch::context::Event;
use crate::hardware;
use crate::objects::context::State;
use crate::objects::domain::Death;
use crate::objects::{Context, Domain, Linked, Ptr, Ram};
use crate::scheduler::Decision;
use abi::{Call, DeathCause, Error, Handle, ObjectType, layout};
use core::cell::Cell;

/// Calls that reach the real machine.
const SKIPPED: [Call; 5] =
    [Call::PowerOff, Call::DevicePortRead, Call::DevicePortWrite, Call::DeviceInterrupt, Call::DeviceMaster];
/// Calls that end the game soon.
const RARE: [Call; 4] = [Call::DomainExit, Call::DomainKill, Call::RamRevoke, Call::ContextEnd];

std::thread_local! {
    /// Ids that calls made last.
    static RECENT: Cell<[u64; 6]> = const { Cell::new([0; 6]) };
}

fn argument(random: &mut Random) -> u64 {
    let page = 4096;
    match random.below(12) {
        0..=4 => random.below(48),
        5 => random.below(4),
        6 | 7 => layout::HEAP + random.below(64) * page,
        8 => layout::COMPONENT_BASE + random.below(3) * (page << 9),
        9 => random.one(&[
            0,
            1,
            u64::MAX,
            1 << 63,
            layout::USER_END,
            layout::USER_END - page,
            255,
            511,
            page,
            1 << 47,
            100_000,
        ]),
        10 => hardware::now_ns() + random.below(3000),
        _ => random.next(),
    }
}

fn call(random: &mut Random) -> Call {
    loop {
        let (call, _) = random.one(Call::ALL);
        let rare = RARE.contains(&call) && random.below(20) != 0;
        if !SKIPPED.contains(&call) && !rare {
            return call;
        }
    }
}

/// What the arguments of a call should be: R ram, S segment, D domain, C context, A address range, P portal, M semaphore, T time, X pcore, V device, h any handle,
/// H shared share, O object by slot or in a shared share, u id of a shared object,
/// a address, l address of a nested range N, g its size, p pages, f flags or protection, r rights, t deadline, w microseconds of a window, i small number.
fn shape(call: Call) -> &'static str {
    match call {
        Call::CapCopy | Call::CapDrop | Call::CapRevoke | Call::CapStat => "hr",
        Call::CapMint => "Cri",
        Call::RamSplit | Call::RamCarve | Call::RamRevoke | Call::RamStat => "Rp",
        Call::SegmentAlloc => "Rpf",
        Call::SegmentCopy => "RSf",
        Call::SegmentSetPages | Call::SegmentStat => "Sp",
        Call::SegmentImport => "XRapf",
        Call::RangeMap => "AaOipf",
        Call::RangeAlloc => "Rgf",
        Call::RangeNest => "AlNf",
        Call::RangeUnmap | Call::RangeGet | Call::RangeFill => "Aap",
        Call::RangeRetype => "Sgf",
        Call::RangeProtect => "Aapf",
        Call::DomainAlloc => "Rf",
        Call::DomainGrant => "Dhr",
        Call::DomainRange | Call::DomainKill => "Di",
        Call::DomainState => "Da",
        Call::DomainOnDeath => "DC",
        Call::DomainFork => "D",
        Call::ContextAlloc => "RDaf",
        Call::ContextSchedule => "RCip",
        Call::ContextStart => "Caaii",
        Call::ContextProxy => "aaa",
        Call::ContextWatch => "CiC",
        Call::ContextEnd => "C",
        Call::ContextUpcall => "aai",
        Call::PcoreThrottle => "Xi",
        Call::ScheduleStat => "T",
        Call::ScheduleSet => "Tp",
        Call::ScheduleGang => "XTwww",
        Call::Notify => "C",
        Call::Wait => "t",
        Call::WakeSlotAlloc => "XCi",
        Call::WakeSlotImport => "XRii",
        Call::WakeSlotFree => "Xi",
        Call::PortalAlloc => "RCif",
        Call::PortalCall => "Piiiit",
        Call::PortalReplyWait => "iiit",
        Call::PortalSet => "PC",
        Call::SemaphoreAlloc => "Ri",
        Call::SemaphoreUp => "Mi",
        Call::SemaphoreDown => "Mt",
        Call::DeviceAlloc | Call::PcoreAlloc => "XRi",
        Call::PcoreRun => "Xa",
        Call::PcoreHalt => "X",
        Call::PcoreWatch => "XC",
        Call::PcoreAddDevice => "XiSiii",
        Call::Log => "ap",
        Call::ShareAlloc => "HRpfii",
        Call::ShareAdd => "HOr",
        Call::ShareRemove => "Hu",
        Call::ShareStat => "H",
        Call::SharePool => "XH",
        Call::ShareImport => "XRu",
        Call::ShareSegment => "Hpii",
        Call::ObjectName => "O",
        _ => "hhhhhh",
    }
}

/// A handle of the caller's that names an object of this type, if it has one.
fn handle(random: &mut Random, caller: Ptr<Context>, wanted: Option<ObjectType>) -> u64 {
    let share = caller.domain();
    let share = share.share();
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

fn plausible(random: &mut Random, caller: Ptr<Context>, kind: u8) -> u64 {
    let wanted = match kind {
        b'R' => ObjectType::Ram,
        b'S' => ObjectType::Segment,
        b'D' => ObjectType::Domain,
        b'C' => ObjectType::ExecutionContext,
        b'A' | b'N' => ObjectType::AddressRange,
        b'P' => ObjectType::Portal,
        b'M' => ObjectType::Semaphore,
        b'T' => ObjectType::SchedulingContext,
        b'X' => ObjectType::Pcore,
        b'V' => ObjectType::Device,
        b'H' => ObjectType::Share,
        b'O' if random.below(3) == 0 => ObjectType::Segment,
        b'O' => {
            let share = Handle(handle(random, caller, Some(ObjectType::Share)));
            return Handle::in_share(share, random.one(&RECENT.get())).map_or(share.0, |pair| pair.0);
        }
        b'u' => return random.one(&RECENT.get()),
        b'h' => return handle(random, caller, None),
        b'a' => return random.one(&[0, layout::HEAP, layout::HEAP]) + random.below(64) * 4096,
        // Where a nested range fits, in a space or in another one.
        b'l' => return random.one(&[0, layout::HEAP]) + (random.below(3) << random.one(&[21, 30, 39])),
        b'g' => return random.one(&[1, 512, 513, 1 << 18, 1 << 27]),
        b'p' => return 1 + random.below(24) + if random.below(9) == 0 { 600 } else { 0 },
        b'f' => return random.below(4),
        b'r' => return random.one(&[511, 255, 1, 256, 35, 63]),
        b't' => return hardware::now_ns() + random.below(3000),
        b'w' => return random.one(&[0, 0, 100, 200]),
        _ => return random.below(8),
    };
    handle(random, caller, Some(wanted))
}

pub(super) fn event(random: &mut Random, world: &World) -> Event {
    let Some(context) = world.kernel.scheduler.current() else { return Event::Timer };
    match random.below(20) {
        0 => Event::Timer,
        1 if random.below(50) == 0 => {
            Event::Exception { vector: 14, error: random.one(&[4, 6, 7, 20, 0]), address: argument(random) }
        }
        2 if random.below(100) == 0 => Event::Exception { vector: random.below(32) as u8, error: 0, address: 0 },
        _ => {
            let call = call(random);
            let shape = if random.below(5) == 0 { "" } else { shape(call) };
            let words: [u64; 6] = core::array::from_fn(|index| match shape.as_bytes().get(index) {
                Some(kind) if random.below(20) != 0 => plausible(random, context, *kind),
                _ => argument(random),
            });
            context.with_registers(|r| {
                r.rax = if random.below(2000) == 0 { random.next() } else { call.number() };
                [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = words;
            });
            Event::Syscall
        }
    }
}

/// A call's result may be the id of a new shared object; or of a pool, after `SharePool`.
fn note_id(caller: Ptr<Context>, number: u64) {
    let (result, first, second) = caller.with_registers(|r| (r.rax, r.rdi, r.rsi));
    let makes = [Call::ShareAlloc, Call::ShareSegment, Call::SharePool].map(Call::number);
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

/// Gives how many calls were refused and how many were not.
fn play(seed: u64, steps: u32, pages: u64) -> [u32; 2] {
    let mut world = World::new(pages);
    let mut random = Random(seed);
    let first = world.monitor();
    first.keep_alive();
    world.kernel.retain(first);
    let mut now_ns = 0;
    let mut decision = world.kernel.decide();
    let mut done = [0u32; 2];
    // Domains that hold capabilities for each other keep each other; so the test keeps and ends them all.
    let mut domains = vec![first];
    for _ in 0..steps {
        now_ns += random.below(500);
        if decision == Decision::Idle {
            now_ns += 10_000;
            stir(&mut world, first);
        }
        hardware::set_clock(now_ns);
        let event = event(&mut random, &world);
        let caller = world.kernel.scheduler.current();
        let made = caller.map_or(0, |caller| caller.with_registers(|r| r.rax));
        decision = world.kernel.step(event);
        if event == Event::Syscall && world.kernel.scheduler.current() == caller {
            caller.inspect(|caller| done[usize::from(caller.with_registers(|r| r.rax) == 0)] += 1);
            caller.inspect(|caller| note_id(*caller, made));
            domains.extend(caller.and_then(|caller| new_domain(&mut world, caller, made)));
        }
        if !first.is_alive() {
            break;
        }
    }
    world.kernel.release(first);
    for domain in domains {
        world.kernel.kill(domain, Death::by_call(DeathCause::Killed, 0));
        world.kernel.release(domain);
    }
    world.assert_empty();
    done
}

#[test]
fn random_programs_break_nothing() {
    let mut total = [0; 2];
    for seed in 1..=400u64 {
        let done = play(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 3000, 1200);
        total = [total[0] + done[0], total[1] + done[1]];
    }
    assert!(total[0] > 100_000 && total[1] > 50_000, "too little was tried: {total:?}");
}

#[test]
fn random_programs_break_nothing_without_memory() {
    for seed in 1..=400u64 {
        play(seed.wrapping_mul(0xd134_2543_de82_ef95), 1500, 60 + seed % 40);
    }
}
