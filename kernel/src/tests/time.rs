//! Time as programs see it: bills, ends of slices, and ups from other cores.

use super::World;
use crate::arch::context::Event;
use crate::hardware::{self, set_clock};
use crate::memory::{PAGE_BYTES, phys_to_virt};
use crate::objects::context::{Options, State};
use crate::objects::mapping::PageRun;
use crate::objects::remote::on_wake_slot;
use crate::objects::share::Capability;
use crate::objects::{Context, Domain, Ptr};
use abi::{Call, ControlPage, Error, ExceptionInfo, Handle, Rights, layout};

const SLICE_NS: u64 = 1_000_000;
const ENTRY: u64 = 0x20_000;
const STACK: u64 = 0x30_000;
const PROGRAM: u64 = 0x4000;

pub(super) fn context(domain: Ptr<Domain>) -> Ptr<Context> {
    domain.share().find::<Context>(Handle(4), Rights(0)).unwrap().0
}

fn control_page(domain: Ptr<Domain>) -> *mut ControlPage {
    let mapping = domain.range().at(layout::CONTROL_PAGE).unwrap();
    phys_to_virt(mapping.segment().unwrap().base().unwrap()).cast()
}

impl World {
    /// Whoever runs makes a call; its status and first result.
    pub(super) fn runner_calls(&mut self, call: Call, words: [u64; 6]) -> (u64, u64) {
        let caller = self.kernel.scheduler.current().unwrap();
        caller.with_registers(|r| {
            r.rax = call.number();
            [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = words;
        });
        self.kernel.step(Event::Syscall);
        caller.with_registers(|r| (r.rax, r.rdi))
    }
}

pub(super) fn refusal(error: Error) -> u64 {
    (error as u64).wrapping_neg()
}

#[test]
fn the_end_of_a_slice_is_an_upcall_unless_the_scheduler_runs() {
    set_clock(0);
    let mut world = World::new(512);
    let domain = world.monitor();
    let (context, page) = (context(domain), control_page(domain));
    world.kernel.decide();
    assert_eq!(
        world.runner_calls(Call::ContextUpcall, [ENTRY, STACK, 0, 0, 0, 0]).0,
        refusal(Error::NoRights),
        "it is Linux"
    );
    // What `World::monitor` made is Linux for the other tests' sake.
    context.proxy.set(Some(crate::objects::context::Proxy { call_entry: None, upcall_entry: ENTRY, stack_top: STACK }));
    world.kernel.scheduler.set_preemption_upcalls(context, true);
    world.kernel.decide();
    assert_eq!(hardware::deadline(), Some(SLICE_NS), "a slice of somebody who is alone ends too");

    let mut slice_ends = |in_proxy: u64| {
        context.with_registers(|registers| (registers.rip, registers.r11) = (PROGRAM, 77));
        // SAFETY: the page of a living context in the world's memory.
        unsafe { (&raw mut (*page).in_proxy).write_volatile(in_proxy) };
        set_clock(hardware::now_ns() + SLICE_NS);
        world.kernel.step(Event::Timer);
        assert!(world.kernel.scheduler.current() == Some(context));
        context.with_registers(|registers| (registers.rip, registers.rsp))
    };
    assert_eq!(slice_ends(0), (ENTRY, STACK));
    // SAFETY: as above.
    let (program, exception, inside) = unsafe { ((*page).program, (*page).exception, (*page).in_proxy) };
    assert_eq!((program.rip, program.r11, inside), (PROGRAM, 77, ControlPage::INSIDE));
    assert_eq!(exception.vector, ExceptionInfo::PREEMPTION);
    assert_eq!(slice_ends(ControlPage::INSIDE).0, PROGRAM, "not to be disturbed");
    assert_eq!(slice_ends(0).0, ENTRY, "and so it goes on");
}

#[test]
fn a_bill_is_all_that_ran_on_it() {
    set_clock(0);
    let mut world = World::new(512);
    let domain = world.monitor();
    let schedule = context(domain).schedule.get().unwrap();
    world.kernel.retain(schedule);
    domain.ensure_slot(&mut world.kernel, 20).unwrap();
    domain.insert(20, Capability { object: schedule.any(), badge: 0, rights: Rights::ALL });
    world.kernel.decide();
    for after_ns in [700, 5 * SLICE_NS] {
        set_clock(after_ns);
        assert_eq!(world.runner_calls(Call::ScheduleStat, [20, 0, 0, 0, 0, 0]), (0, after_ns));
    }
    assert_eq!(world.runner_calls(Call::ScheduleSet, [20, 99, 0, 0, 0, 0]).0, refusal(Error::BadArgument));
    assert_eq!(world.runner_calls(Call::ScheduleSet, [20, 250, 0, 0, 0, 0]).0, 0);
    assert_eq!((schedule.slice_ns.get(), schedule.left_ns.get()), (250_000, 250_000), "the longer one was cut");
    set_clock(6 * SLICE_NS);
    assert_eq!(
        world.runner_calls(Call::ScheduleStat, [20, 0, 0, 0, 0, 0]),
        (0, 6 * SLICE_NS),
        "overrun slices count too"
    );
}

#[test]
fn ups_of_another_core_are_counted_and_none_is_lost() {
    set_clock(0);
    let mut world = World::new(512);
    let domain = world.monitor();
    let context = context(domain);
    world.kernel.decide();
    let (_, semaphore) = world.runner_calls(Call::SemaphoreAlloc, [Handle::ROOT_RAM.0, 0, 0, 0, 0, 0]);
    let (_, slot) = world.runner_calls(Call::WakeSlotAlloc, [Handle::PCORE.0, semaphore, 0, 0, 0, 0]);
    // The core is all cores here.
    let remote =
        world.kernel.create(world.ram, |header| crate::objects::Remote::new(header, 1, slot as usize)).unwrap();
    domain.ensure_slot(&mut world.kernel, 20).unwrap();
    domain.insert(20, Capability { object: remote.any(), badge: 0, rights: Rights::NOTIFY });

    assert_eq!(world.runner_calls(Call::SemaphoreUp, [20, 0, 0, 0, 0, 0]).0, refusal(Error::BadArgument));
    assert_eq!(world.runner_calls(Call::SemaphoreUp, [20, 1 << 32, 0, 0, 0, 0]).0, refusal(Error::BadArgument));
    // Three ups, one bit.
    for count in [1, 1, 2] {
        assert_eq!(world.runner_calls(Call::SemaphoreUp, [20, count, 0, 0, 0, 0]).0, 0);
    }
    on_wake_slot(&mut world.kernel, slot as usize);
    on_wake_slot(&mut world.kernel, slot as usize);
    for _ in 0..4 {
        assert_eq!(world.runner_calls(Call::SemaphoreDown, [semaphore, 0, 0, 0, 0, 0]).0, 0);
    }
    assert_eq!(world.runner_calls(Call::SemaphoreDown, [semaphore, 0, 0, 0, 0, 0]).0, refusal(Error::Timeout));
    // And one who sleeps.
    assert_eq!(world.runner_calls(Call::SemaphoreUp, [20, 1, 0, 0, 0, 0]).0, 0);
    context.with_registers(|r| r.rax = 99);
    world.runner_calls(Call::SemaphoreDown, [semaphore, u64::MAX, 0, 0, 0, 0]);
    assert!(matches!(context.state(), State::OnSemaphore(_)));
    on_wake_slot(&mut world.kernel, slot as usize);
    assert!(context.state() == State::Runnable);
    assert_eq!(context.with_registers(|r| r.rax), 0);
    world.kernel.decide();
    // Whoever gets the slot next hears nothing of before.
    assert_eq!(world.runner_calls(Call::SemaphoreUp, [20, 5, 0, 0, 0, 0]).0, 0);
    assert_eq!(world.runner_calls(Call::CapDrop, [semaphore, 0, 0, 0, 0, 0]).0, 0);
    assert!(world.kernel.wake_slots.get(slot as usize).is_none());
}

#[test]
fn a_throttled_core_runs_programs_in_so_many_eighths() {
    const STEP_NS: u64 = 1_000_000;
    for eighths in 1..=8 {
        set_clock(0);
        let mut world = World::new(512);
        let domain = world.monitor();
        let context = context(domain);
        world.kernel.decide();
        for wrong in [0, 9, u64::MAX] {
            let (status, _) = world.runner_calls(Call::PcoreThrottle, [Handle::PCORE.0, wrong, 0, 0, 0, 0]);
            assert_eq!(status, refusal(Error::BadArgument));
        }
        assert_eq!(world.runner_calls(Call::PcoreThrottle, [Handle::PCORE.0, eighths, 0, 0, 0, 0]).0, 0);
        let before_ns = domain.cpu_ns.get();
        for _ in 0..80 {
            // The timer is what wakes a core that is held; others are as good.
            let next_ns = (hardware::now_ns() / STEP_NS + 1) * STEP_NS;
            assert!(eighths == 8 || hardware::deadline().is_some_and(|at_ns| at_ns > hardware::now_ns()));
            set_clock(next_ns);
            world.kernel.step(Event::Timer);
            let held = next_ns / STEP_NS % 8 >= eighths;
            assert_eq!(
                world.kernel.scheduler.current(),
                (!held).then_some(context),
                "at {next_ns} with {eighths} eighths"
            );
        }
        assert_eq!(domain.cpu_ns.get() - before_ns, 10 * eighths * STEP_NS);
        // Whoever wakes up meanwhile is not lost.
        assert!(context.state() == State::Runnable);
    }
}

/// Ten thousand contexts: how much memory one takes.
#[test]
fn a_context_takes_two_pages() {
    const CONTEXTS: u64 = 10_000;
    set_clock(0);
    let mut world = World::new(26_000);
    let kernel = &mut *world.kernel;
    let domain = Ptr::<Domain>::create(kernel, world.ram, 0, super::name()).unwrap();
    let before = kernel.frames.free();
    for number in 0..CONTEXTS {
        let place = PageRun { start: layout::REGIONS + number * PAGE_BYTES as u64, pages: 1 };
        let options = Options { has_vectors: true, is_linux: false, priority_max: 7 };
        let context = Ptr::<Context>::create(kernel, world.ram, domain, place, options).unwrap();
        kernel.release(context);
    }
    let used = before - kernel.frames.free();
    // And what the range needs to remember where their pages are.
    assert!(used <= 2 * CONTEXTS + CONTEXTS / 9, "{used} pages for {CONTEXTS} contexts");
    kernel.kill(domain, crate::objects::domain::Death::by_call(abi::DeathCause::Killed, 0));
    kernel.release(domain);
    world.assert_empty();
}

#[test]
fn who_asks_for_the_state_of_a_domain_is_told_its_time_up_to_now() {
    set_clock(0);
    let mut world = World::new(512);
    let domain = world.monitor();
    context(domain);
    world.kernel.decide();
    set_clock(700);
    // It is brought up to now before anything is written.
    assert_eq!(
        world.runner_calls(Call::DomainState, [Handle::SELF_DOMAIN.0, 0, 0, 0, 0, 0]).0,
        refusal(Error::BadPointer)
    );
    assert_eq!(domain.cpu_ns.get(), 700);
}
