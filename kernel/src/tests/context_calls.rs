//! The calls of contexts and their time, of upcalls, notifications and accounts: what each makes of
//! its numbers, and what it refuses.

use super::World;
use super::revoke::Actor;
use super::time::{context, refusal};
use crate::arch::context::Event;
use crate::hardware::{self, set_clock};
use crate::memory::PAGE_BYTES;
use crate::objects::context::State;
use crate::objects::remote::on_wake_slot;
use crate::objects::segment::Kind;
use crate::objects::share::Capability;
use crate::objects::{Context, Object, Pcore, Ptr, Remote, Schedule, Segment, Semaphore};
use crate::scheduler::GangWindow;
use abi::layout::{self, HEAP, USER_END, context as flags, counter, segment as kinds, upcall as upcalls};
use abi::{Call, Error, ExceptionInfo, Handle, ProgramRegisters, Rights};

const RAM: u64 = Handle::ROOT_RAM.0;
const PCORE: u64 = Handle::PCORE.0;
const PAGE: u64 = PAGE_BYTES as u64;
const SECOND_NS: u64 = 1_000_000_000;
const ENTRY: u64 = 0x20_000;
const STACK: u64 = 0x30_000;
const PROGRAM: u64 = 0x4000;

/// A world with an actor who holds its core, too.
fn holder() -> (World, Actor) {
    set_clock(0);
    let mut world = World::new(1000);
    let actor = world.outsider();
    let core = world.kernel.core();
    let pcore = world.kernel.create(world.ram, |header| Pcore::own(header, core)).unwrap();
    actor.domain.insert(PCORE as usize, Capability { object: pcore.any(), badge: 0, rights: Rights::ALL });
    (world, actor)
}

fn object<T: Object>(actor: Actor, handle: u64) -> Ptr<T> {
    actor.domain.share().find::<T>(Handle(handle), Rights(0)).unwrap().0
}

/// A context of the actor's domain.
fn make_context(world: &mut World, actor: Actor, number: u64, options: u64) -> Result<u64, Error> {
    let words = [RAM, Handle::SELF_DOMAIN.0, HEAP + number * PAGE, options, 7];
    world.run(actor, Call::ContextAlloc, &words).map(|[context, ..]| context)
}

#[test]
fn a_context_is_what_its_flags_say() {
    let (mut world, actor) = holder();
    for options in 0..4 {
        let handle = make_context(&mut world, actor, options, options).unwrap();
        let context = object::<Context>(actor, handle);
        let expected = (options & flags::FPU != 0, options & flags::LINUX != 0);
        assert_eq!((context.has_vectors(), context.is_linux), expected, "flags {options}");
    }
    for options in [4, 5, 7, 1 << 32, u64::MAX] {
        assert_eq!(make_context(&mut world, actor, 4, options), Err(Error::BadArgument), "flags {options:#x}");
    }
}

#[test]
fn a_context_is_ready_as_soon_as_it_is_started_and_has_time() {
    let (mut world, actor) = holder();
    for is_started in [false, true] {
        let handle = make_context(&mut world, actor, is_started.into(), 0).unwrap();
        let context = object::<Context>(actor, handle);
        let start = [handle, 0x1000, 0x2000, 5, 6];
        if is_started {
            world.make(actor, Call::ContextStart, &start);
        }
        let time = world.make(actor, Call::ContextSchedule, &[RAM, handle, 3, 250]);
        let schedule = object::<Schedule>(actor, time);
        assert_eq!(schedule.is_queued(), is_started);
        assert_eq!(schedule.slice_ns.get(), 250_000);
        assert_eq!(world.run(actor, Call::ScheduleStat, &[time]), Ok([0, 250, 3]));
        if !is_started {
            world.make(actor, Call::ContextStart, &start);
            assert!(schedule.is_queued());
        }
        assert_eq!(world.run(actor, Call::ContextStart, &start), Err(Error::Busy));
        // The end of another is an answer to who asked for it.
        actor.context.with_registers(|r| r.rax = 77);
        assert!(world.run(actor, Call::ContextEnd, &[handle]).is_ok());
        assert!(context.state() == State::Dead);
        for (call, words) in [
            (Call::ContextStart, &start[..]),
            (Call::ContextEnd, &[handle]),
            (Call::ContextSchedule, &[RAM, handle, 3, 250]),
            (Call::WakeSlotAlloc, &[PCORE, handle, 1]),
        ] {
            assert_eq!(world.run(actor, call, words), Err(Error::PeerDead), "{call:?}");
        }
    }
}

#[test]
fn a_budget_has_a_period_of_a_slice_to_a_minute_and_no_windows() {
    let (mut world, actor) = holder();
    let context = make_context(&mut world, actor, 0, 0).unwrap();
    let time = world.make(actor, Call::ContextSchedule, &[RAM, context, 3, 1000]);
    let schedule = object::<Schedule>(actor, time);
    for period_us in [0, 1000, 1001, 60_000_000] {
        assert!(world.run(actor, Call::ScheduleSet, &[time, 1000, period_us]).is_ok());
        assert_eq!((schedule.slice_ns.get(), schedule.period_ns.get()), (1_000_000, period_us * 1000));
    }
    for period_us in [1, 999, 60_000_001, u64::MAX] {
        assert_eq!(world.run(actor, Call::ScheduleSet, &[time, 1000, period_us]), Err(Error::BadArgument));
    }
    let window = GangWindow { period_ns: 10_000_000, slice_ns: 1_000_000, phase_ns: 0 };
    let gang = [PCORE, time, 10_000, 1000, 0];
    assert_eq!(world.run(actor, Call::ScheduleGang, &gang), Err(Error::Busy), "it has a budget");
    world.make(actor, Call::ScheduleSet, &[time, 1000, 0]);
    world.make(actor, Call::ScheduleGang, &gang);
    assert_eq!(world.run(actor, Call::ScheduleSet, &[time, 1000, 5000]), Err(Error::Busy), "it has windows");
    assert!(world.run(actor, Call::ScheduleSet, &[time, 2000, 0]).is_ok());
    assert_eq!((schedule.slice_ns.get(), schedule.window.get()), (2_000_000, Some(window)));
}

#[test]
fn bases_are_set_one_by_one() {
    let (mut world, actor) = holder();
    let bases = || (actor.context.bases.get().fs, actor.context.bases.get().gs);
    world.make(actor, Call::ContextBase, &[0, 0x1234]);
    assert_eq!(bases(), (0x1234, 0));
    world.make(actor, Call::ContextBase, &[1, USER_END - 1]);
    assert_eq!(bases(), (0x1234, USER_END - 1));
    for words in [[2, 0], [u64::MAX, 0], [0, USER_END], [1, 1 << 63]] {
        assert_eq!(world.run(actor, Call::ContextBase, &words), Err(Error::BadArgument));
    }
    assert_eq!(bases(), (0x1234, USER_END - 1));
}

/// Entries and stack are addresses of users; without an entry a program has no upcalls any more.
#[test]
fn upcalls_are_as_a_program_asks_for() {
    let (mut world, actor) = holder();
    let asked = || {
        let proxy = actor.context.proxy.get().map(|proxy| (proxy.call_entry, proxy.upcall_entry, proxy.stack_top));
        (proxy, actor.context.wants_preemption_upcalls.get())
    };
    for (words, expected) in [
        ([ENTRY, STACK, upcalls::TICKS], (Some((None, ENTRY, STACK)), true)),
        ([ENTRY, STACK, 0], (Some((None, ENTRY, STACK)), false)),
        ([USER_END - 1, USER_END - 1, upcalls::TICKS], (Some((None, USER_END - 1, USER_END - 1)), true)),
        ([0, STACK, upcalls::TICKS], (None, false)),
        ([0, STACK, 0], (None, false)),
        ([ENTRY, STACK, upcalls::TICKS], (Some((None, ENTRY, STACK)), true)),
    ] {
        assert_eq!(world.run(actor, Call::ContextUpcall, &words), Ok([0; 3]), "{words:?}");
        assert_eq!(asked(), expected, "{words:?}");
    }
    let before = asked();
    for words in [[USER_END, STACK, 0], [ENTRY, USER_END, 0], [ENTRY, u64::MAX, 0], [ENTRY, STACK, 2], [0, 0, 3]] {
        assert_eq!(world.run(actor, Call::ContextUpcall, &words), Err(Error::BadArgument), "{words:?}");
    }
    assert_eq!(world.run(actor, Call::ContextProxy, &[ENTRY, ENTRY, STACK, 0]), Err(Error::NoRights), "no Linux");
    assert_eq!(asked(), before, "what is refused changes nothing");
    let linux = context(world.monitor());
    world.kernel.decide();
    let mut ask = |words: [u64; 4]| {
        let [call, upcall, stack, options] = words;
        world.runner_calls(Call::ContextProxy, [call, upcall, stack, options, 0, 0]).0
    };
    for words in [[USER_END, ENTRY, STACK, 0], [ENTRY, USER_END, STACK, 0], [ENTRY, ENTRY, USER_END, 0]] {
        assert_eq!(ask(words), refusal(Error::BadArgument), "{words:?}");
        assert!(linux.proxy.get().is_none());
    }
    assert_eq!(ask([ENTRY + 8, ENTRY, STACK, upcalls::TICKS]), 0);
    let proxy = linux.proxy.get().map(|proxy| (proxy.call_entry, proxy.upcall_entry, proxy.stack_top));
    assert_eq!(proxy, Some((Some(ENTRY + 8), ENTRY, STACK)));
    assert!(linux.wants_preemption_upcalls.get());
}

/// A program's place, flags and the number of its call are in the control page while its proxy
/// runs; it goes on with the registers that the proxy left there, whatever they are.
#[test]
fn a_call_of_linux_enters_the_proxy_and_the_program_goes_on_with_what_that_left() {
    const GETPID: u64 = 39;
    /// Carry, direction and the two that are always set in user mode.
    const FLAGS: u64 = 0x603;
    set_clock(0);
    let mut world = World::new(512);
    let linux = context(world.monitor());
    world.kernel.decide();
    assert_eq!(world.runner_calls(Call::ContextProxy, [ENTRY + 8, ENTRY, STACK, 0, 0, 0]).0, 0);
    linux.with_registers(|r| {
        (r.rax, r.rip, r.rsp, r.rbx) = (GETPID, PROGRAM, 0x7000, 55);
        r.set_flags(FLAGS);
    });
    let flags = linux.with_registers(|r| r.flags());
    world.kernel.step(Event::Syscall);
    assert_eq!(linux.with_registers(|r| (r.rip, r.rsp, r.rax, r.rbx)), (ENTRY + 8, STACK, GETPID, 55));
    let program = linux.program();
    assert_eq!((program.rip, program.rsp, program.rflags, program.rax), (PROGRAM, 0x7000, flags, GETPID));
    assert!(linux.in_proxy());
    // All that a program can ask for, of which some flags are not its own.
    let wanted = ProgramRegisters {
        rax: 1,
        rbx: 2,
        rcx: 3,
        rdx: 4,
        rsi: 5,
        rdi: 6,
        rbp: 7,
        rsp: 8,
        r8: 9,
        r9: 10,
        r10: 11,
        r11: 12,
        r12: 13,
        r13: 14,
        r14: 15,
        r15: 16,
        rip: USER_END,
        rflags: u64::MAX,
    };
    linux.set_program(&wanted, ExceptionInfo::default());
    assert_eq!(world.runner_calls(Call::ContextResume, [0; 6]).0, refusal(Error::BadArgument), "no place of a user");
    assert!(linux.in_proxy());
    linux.set_program(&ProgramRegisters { rip: USER_END - 1, ..wanted }, ExceptionInfo::default());
    world.runner_calls(Call::ContextResume, [0; 6]);
    assert!(!linux.in_proxy());
    linux.with_registers(|r| {
        let all = [r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13];
        assert_eq!(all, core::array::from_fn(|index| index as u64 + 1));
        assert_eq!([r.r14, r.r15, r.rip], [15, 16, USER_END - 1]);
        const PRIVILEGES: u64 = 3 << 12;
        assert_eq!(r.flags() & (0x200 | PRIVILEGES), 0x200, "interrupts stay on, and ports closed");
        r.set_flags(FLAGS);
    });
    // And an exception has all of them written there.
    world.kernel.step(Event::Exception { vector: 6, error: 0, address: 0 });
    assert_eq!(linux.program(), ProgramRegisters { rip: USER_END - 1, rflags: flags, ..wanted });
    assert_eq!(linux.with_registers(|r| (r.rip, r.rsp)), (ENTRY, STACK));
    assert!(linux.in_proxy());
}

/// Upcalls tell of the end of a slice and of nothing else: not of others that wake, nor of a turn
/// of its group that is over while it goes on, nor of what it gave up itself.
#[test]
fn only_the_end_of_a_slice_is_told() {
    set_clock(0);
    let mut world = World::new(600);
    let party = world.party(5);
    let low = world.party(0);
    assert_eq!(world.runner_calls(Call::ContextUpcall, [ENTRY, STACK, upcalls::TICKS, 0, 0, 0]).0, 0);
    world.kernel.scheduler.set_slice(party.time, SECOND_NS, 0);
    // The slice that has begun is short.
    world.runner_calls(Call::Yield, [0; 6]);
    party.context.with_registers(|r| r.rip = PROGRAM);
    let told = || party.context.with_registers(|r| core::mem::replace(&mut r.rip, PROGRAM)) == ENTRY;
    world.kernel.block(low.context, State::Waiting);
    world.kernel.decide();
    world.kernel.signal(low.context, 1);
    world.kernel.decide();
    assert!(world.runs(&party) && !told(), "another woke");
    for turn in 1..4 {
        set_clock(turn * 5_000_000);
        world.kernel.step(Event::Timer);
        assert!(world.runs(&party) && !told(), "a turn is over");
    }
    world.runner_calls(Call::Yield, [0; 6]);
    assert!(world.runs(&party) && !told(), "it gave the rest up");
    let end_ns = hardware::now_ns() + SECOND_NS;
    while hardware::now_ns() < end_ns {
        assert!(!told());
        set_clock(hardware::now_ns() + 5_000_000);
        world.kernel.step(Event::Timer);
    }
    assert!(world.runs(&party) && told());
    // Not any more: nor does a timer fire for it.
    party.context.set_in_proxy(0);
    assert_eq!(world.runner_calls(Call::ContextUpcall, [0; 6]).0, 0);
    world.kernel.block(low.context, State::Waiting);
    hardware::set_deadline(None);
    world.kernel.step(Event::Timer);
    assert_eq!(hardware::deadline(), None, "who is alone needs no end of a slice");
    assert!(!told());
    world.end([party, low]);
}

/// A callee whose own time is better than its caller's begins where it waited.
#[test]
fn a_callee_that_preempts_its_callers_time_is_not_told_of_an_end() {
    set_clock(0);
    let mut world = World::new(600);
    let server = world.party(5);
    assert_eq!(world.runner_calls(Call::ContextUpcall, [ENTRY, STACK, upcalls::TICKS, 0, 0, 0]).0, 0);
    server.context.with_registers(|r| r.rip = PROGRAM);
    world.answer(&server, 0);
    let client = world.party(1);
    world.connect(&client, &server);
    world.ask(&client, 100);
    assert!(world.runs(&server));
    assert_eq!(world.kernel.scheduler.running_priority(), 5, "on time of its own");
    assert_eq!(server.context.with_registers(|r| r.rip), PROGRAM);
    assert!(!server.context.in_proxy());
    world.end([server, client]);
}

#[test]
fn a_wake_slot_tells_its_target_with_the_badge_that_it_has() {
    let (mut world, actor) = holder();
    let told = actor.context;
    let own = Handle::SELF_CONTEXT.0;
    let portal = |kind: u64| [RAM, own, 9, kind];
    let mailbox = world.make(actor, Call::PortalAlloc, &portal(layout::portal::MAILBOX));
    let rendezvous = world.make(actor, Call::PortalAlloc, &portal(layout::portal::RENDEZVOUS));
    let semaphore = world.make(actor, Call::SemaphoreAlloc, &[RAM, 0]);
    for (target, badge) in [(own, 4), (mailbox, 9)] {
        let slot = world.make(actor, Call::WakeSlotAlloc, &[PCORE, target, 4]);
        on_wake_slot(&mut world.kernel, slot as usize);
        assert_eq!(told.pending.take(), badge);
    }
    let slot = world.make(actor, Call::WakeSlotAlloc, &[PCORE, semaphore, 4]);
    hardware::post_count(0, slot as usize, 3);
    on_wake_slot(&mut world.kernel, slot as usize);
    assert_eq!(object::<Semaphore>(actor, semaphore).count.get(), 3);
    for other in [rendezvous, RAM, PCORE] {
        assert_eq!(world.run(actor, Call::WakeSlotAlloc, &[PCORE, other, 4]), Err(Error::WrongType));
    }
}

#[test]
fn an_up_wakes_as_many_as_it_adds_and_counts_the_rest() {
    const COUNT_MAX: u64 = 1 << 31;
    let (mut world, actor) = holder();
    let handle = world.make(actor, Call::SemaphoreAlloc, &[RAM, 1]);
    let semaphore = object::<Semaphore>(actor, handle);
    let domain = world.monitor();
    let waiting: Vec<_> = (0..4).map(|number| world.thread(domain, number, 1)).collect();
    assert!(world.run(actor, Call::SemaphoreDown, &[handle, 0]).is_ok());
    waiting.iter().for_each(|context| semaphore.wait(&mut world.kernel, *context));
    let awake = || waiting.iter().take_while(|context| context.state() == State::Runnable).count();
    // Nothing came from other cores.
    let slot = world.make(actor, Call::WakeSlotAlloc, &[PCORE, handle, 0]);
    on_wake_slot(&mut world.kernel, slot as usize);
    assert_eq!(awake(), 0);
    for (count, woken, left) in [(1, 1, 0), (2, 3, 0), (3, 4, 2), (COUNT_MAX - 2, 4, COUNT_MAX)] {
        assert_eq!(world.run(actor, Call::SemaphoreUp, &[handle, count]), Ok([0; 3]));
        assert_eq!((awake(), semaphore.count.get()), (woken, left));
    }
    for count in [0, 1, u64::MAX] {
        assert_eq!(world.run(actor, Call::SemaphoreUp, &[handle, count]), Err(Error::BadArgument));
        assert_eq!(semaphore.count.get(), COUNT_MAX);
    }
    // Ups for another core are counted as wakes.
    let remote = world.kernel.create(world.ram, |header| Remote::new(header, 1, 7)).unwrap();
    world.give(actor, 30, remote.any());
    let sent = |world: &World| world.kernel.counters.get(counter::WAKES_SENT).unwrap();
    let before = sent(&world);
    world.make(actor, Call::SemaphoreUp, &[30, 2]);
    world.make(actor, Call::SemaphoreUp, &[30, COUNT_MAX]);
    assert_eq!((sent(&world), hardware::take_count(7)), (before + 2, COUNT_MAX + 2));
    assert_eq!(world.run(actor, Call::SemaphoreUp, &[30, COUNT_MAX + 1]), Err(Error::BadArgument));
}

#[test]
fn memory_is_carved_from_the_root_and_comes_back_only_if_it_is_some_cores() {
    let (mut world, actor) = holder();
    let child = world.make(actor, Call::RamSplit, &[RAM, 100]);
    let carved = world.make(actor, Call::RamCarve, &[RAM, 3]);
    assert_eq!(world.run(actor, Call::RamCarve, &[child, 3]), Err(Error::BadArgument), "no root");
    assert_eq!(world.run(actor, Call::RamAdd, &[child, carved, 3]), Err(Error::BadArgument), "no root");
    // No core of this machine was given any by boot.
    assert_eq!(world.run(actor, Call::RamAdd, &[RAM, carved, 3]), Err(Error::BadArgument));
}

#[test]
fn physical_memory_is_imported_from_where_a_table_can_tell() {
    const END: u64 = 1 << 52;
    let (mut world, actor) = holder();
    let import = |world: &mut World, base: u64, pages: u64, options: u64| {
        world.run(actor, Call::SegmentImport, &[PCORE, RAM, base, pages, options]).map(|[segment, ..]| segment)
    };
    for (base, pages, options) in [(0, 1, 0), (0xfe00_0000, 3, kinds::UNCACHED), (END - 2 * PAGE, 2, 0)] {
        let segment = import(&mut world, base, pages, options).unwrap();
        let segment = object::<Segment>(actor, segment);
        let uncached = options == kinds::UNCACHED;
        let base = crate::memory::PhysAddr(base);
        assert!(segment.kind() == Kind::Imported { base, uncached, is_ram: false } && segment.pages() == pages);
    }
    for (base, pages, options) in [
        (END - PAGE, 2, 0),
        (END, 1, 0),
        (u64::MAX - PAGE + 1, 1, 0),
        (0x1008, 1, 0),
        (0x1000, 0, 0),
        (0x1000, 1, kinds::EAGER),
        (0x1000, 1, kinds::UNCACHED | 8),
    ] {
        assert_eq!(import(&mut world, base, pages, options), Err(Error::BadArgument), "{base:#x} {pages} {options}");
    }
}

#[test]
fn a_call_that_is_not_to_wait_does_not() {
    set_clock(0);
    let mut world = World::new(600);
    let server = world.party(0);
    world.answer(&server, 0);
    let client = world.party(5);
    world.connect(&client, &server);
    // The callee accepts: a call that may not wait for its turn has it.
    world.runner_calls(Call::PortalCall, [20, 1, 2, 3, 4, 0]);
    assert!(world.runs(&server));
    world.answer(&server, 10);
    assert!(world.runs(&client));
    assert_eq!(client.context.with_registers(|r| (r.rax, r.rdi)), (0, 5));
    // It is busy.
    let rival = world.party(6);
    world.connect(&rival, &server);
    world.ask(&rival, 10);
    assert!(world.runs(&server));
    let third = world.party(7);
    world.connect(&third, &server);
    assert_eq!(world.runner_calls(Call::PortalCall, [20, 1, 2, 3, 4, 0]).0, refusal(Error::Timeout));
    assert!(world.runs(&third));
    world.end([server, client, rival, third]);
}
