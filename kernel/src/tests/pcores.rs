//! Claims on cores, and rings of calls, against a core that the test plays.

use super::World;
use crate::arch::context::Event;
use crate::hardware::{self, CoreCommand, State, Used};
use crate::memory::{PhysAddr, phys_to_virt};
use crate::objects::pcore::{CORE_SLOT, Plan, Polled, cores_changed};
use crate::objects::{Context, Ptr, Segment};
use crate::polling::Polling;
use abi::call::Flag;
use abi::pcore::{DEVICES_MAX, Launch, Ring, RingSlot, ring_slots, runs};
use abi::{Call, Error, Handle, Rights, layout};
use core::sync::atomic::Ordering;
use zerocopy::IntoBytes;

const CORE: u64 = 2;

/// A world whose current context makes calls.
pub(super) struct Caller {
    pub(super) world: World,
    pub(super) context: Ptr<Context>,
}

impl Caller {
    pub(super) fn new() -> Caller {
        let mut world = World::new(2000);
        world.monitor();
        world.kernel.decide();
        let context = world.kernel.scheduler.current().unwrap();
        Caller { world, context }
    }

    pub(super) fn call(&mut self, call: Call, words: [u64; 6]) -> Result<[u64; 3], Error> {
        self.context.with_registers(|r| {
            r.rax = call.number();
            [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9] = words;
        });
        self.world.kernel.step(Event::Syscall);
        self.context.with_registers(|r| match r.rax {
            0 => Ok([r.rdi, r.rsi, r.rdx]),
            code => Err(Error::from_code(code.wrapping_neg()).unwrap()),
        })
    }

    fn claim(&mut self) -> Result<u64, Error> {
        let words = [Handle::PCORE.0, Handle::ROOT_RAM.0, CORE, 0, 0, 0];
        self.call(Call::PcoreAlloc, words).map(|results| results[0])
    }

    pub(super) fn contiguous(&mut self, pages: u64) -> u64 {
        let words = [Handle::ROOT_RAM.0, pages, layout::segment::CONTIGUOUS, 0, 0, 0];
        self.call(Call::SegmentAlloc, words).unwrap()[0]
    }

    /// Puts a launch where the caller can name it: in its control page's neighbour.
    fn launch(&mut self, pcore: u64, launch: &Launch) -> Result<(), Error> {
        let at = layout::HEAP;
        let segment = self.contiguous(1);
        let open = layout::protection::READ | layout::protection::WRITE;
        self.call(Call::RangeMap, [Handle::SELF_RANGE.0, at, segment, 0, 1, open]).unwrap();
        let (found, _) = self.context.domain().share().find::<Segment>(Handle(segment), Rights(0)).unwrap();
        let bytes = launch.as_bytes();
        let to = phys_to_virt(found.base().unwrap());
        // SAFETY: a page of the test's memory that the segment owns.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        let result = self.call(Call::PcoreRun, [pcore, at, 0, 0, 0, 0]).map(drop);
        self.call(Call::RangeUnmap, [Handle::SELF_RANGE.0, at, 1, 0, 0, 0]).unwrap();
        self.call(Call::CapDrop, [segment, 0, 0, 0, 0, 0]).unwrap();
        result
    }

    fn free(&self) -> u64 {
        self.world.kernel.frames.free()
    }
}

fn running() -> bool {
    hardware::core_state(CORE as usize).is_running()
}

/// Whoever is given a claim may do with that core what he likes, and nothing with the one he asks:
/// import its memory, free its wake slots, end the machine.
#[test]
fn a_claim_is_no_right_to_the_core_it_was_made_on() {
    let mut caller = Caller::new();
    let claim = caller.claim().unwrap();
    let ram = Handle::ROOT_RAM.0;
    let calls = [
        (Call::SegmentImport, [claim, ram, 0x10_0000, 1, 0, 0]),
        (Call::WakeSlotAlloc, [claim, Handle::SELF_CONTEXT.0, 1, 0, 0, 0]),
        (Call::WakeSlotImport, [claim, ram, 0, 1, 0, 0]),
        (Call::WakeSlotFree, [claim, 1, 0, 0, 0, 0]),
        (Call::TraceRead, [claim, layout::HEAP, 64, 0, 0, 0]),
        (Call::DeviceAlloc, [claim, ram, 0, 0, 0, 0]),
        (Call::PcoreAlloc, [claim, ram, 1, 0, 0, 0]),
        (Call::PcoreThrottle, [claim, 4, 0, 0, 0, 0]),
        (Call::PcoreUse, [claim, CORE, 0, 0, 0, 0]),
        (Call::ShareImport, [claim, ram, 1, 0, 0, 0]),
        (Call::SharePool, [claim, ram, 0, 0, 0, 0]),
        (Call::PowerOff, [claim, 0, 0, 0, 0, 0]),
    ];
    for (call, words) in calls {
        assert_eq!(caller.call(call, words), Err(Error::OtherCore), "{call:?}");
    }
}

#[test]
fn a_core_is_claimed_once_runs_once_and_halts_with_its_last_name() {
    let mut caller = Caller::new();
    // Table pages of the space, once made, stay: make them.
    let pcore = caller.claim().unwrap();
    caller.launch(pcore, &Launch { count: 9, ..launch_without_segments() }).unwrap_err();
    caller.call(Call::CapDrop, [pcore, 0, 0, 0, 0, 0]).unwrap();
    let free = caller.free();
    let pcore = caller.claim().unwrap();
    assert_eq!(caller.claim(), Err(Error::Busy));
    let segment = caller.contiguous(3);
    let mut launch = Launch { entry: 0x1000, stack: 0x2000, count: 1, ..Launch::default() };
    launch.segments[0] = abi::pcore::LaunchSegment { handle: segment, address: 0x1000, protection: 5 };
    caller.launch(pcore, &launch).unwrap();
    assert!(running());
    assert_eq!(caller.launch(pcore, &launch), Err(Error::Busy));
    let CoreCommand::Run(run, plan) = hardware::core_command(CORE as usize) else { panic!("not commanded to run") };
    let plan = Plan::at(plan);
    assert_eq!((plan.run, plan.entry, plan.stack, plan.rights), (run, 0x1000, 0x2000, Rights(0)));
    let parts: Vec<_> = plan.parts.iter().flatten().collect();
    assert!(parts.len() == 1 && parts[0].pages == 3 && parts[0].mapped.is_some_and(|(place, _)| place.start == 0x1000));
    // The segment stays as long as the core may use it.
    caller.call(Call::CapDrop, [segment, 0, 0, 0, 0, 0]).unwrap();
    let with_core = caller.free();
    caller.call(Call::CapDrop, [pcore, 0, 0, 0, 0, 0]).unwrap();
    assert!(!running(), "its last name went");
    assert_eq!(caller.free(), with_core, "nothing goes before core 0 heard that the core has halted");
    assert_eq!(caller.claim(), Err(Error::Busy));
    cores_changed(&mut caller.world.kernel);
    caller.world.kernel.drain_all();
    assert_eq!(caller.free(), free);
    let pcore = caller.claim().unwrap();
    caller.launch(pcore, &launch_without_segments()).unwrap();
    assert!(matches!(hardware::core_command(CORE as usize), CoreCommand::Run(next, _) if next == run + 1));
}

fn launch_without_segments() -> Launch {
    Launch { entry: 0x1000, stack: 0x2000, ..Launch::default() }
}

#[test]
fn a_core_that_halts_by_itself_can_run_again_and_its_watcher_hears_of_both() {
    let mut caller = Caller::new();
    let pcore = caller.claim().unwrap();
    let doorbell = [Handle::SELF_CONTEXT.0, u64::from(Rights::NOTIFY.0), 8, 0, 0, 0];
    let doorbell = caller.call(Call::CapMint, doorbell).unwrap()[0];
    caller.call(Call::PcoreWatch, [pcore, doorbell, 0, 0, 0, 0]).unwrap();
    for _ in 0..3 {
        caller.launch(pcore, &launch_without_segments()).unwrap();
        assert_eq!(caller.context.pending.get(), 0);
        cores_changed(&mut caller.world.kernel);
        assert_eq!(caller.context.pending.take(), 8);
        let State::Running(run) = hardware::core_state(CORE as usize) else { panic!("does not run") };
        hardware::set_state_of(CORE as usize, State::Halted(run));
        assert_eq!(caller.launch(pcore, &launch_without_segments()), Err(Error::Busy), "not heard of yet");
        cores_changed(&mut caller.world.kernel);
        assert_eq!(caller.context.pending.take(), 8);
    }
}

/// A core that never ran is started; one that has halted waits for its doorbell.
#[test]
fn a_core_is_started_once_and_then_told_by_its_doorbell() {
    let mut caller = Caller::new();
    let pcore = caller.claim().unwrap();
    caller.launch(pcore, &launch_without_segments()).unwrap();
    assert_eq!(hardware::posted(), None, "nobody hears it there yet");
    caller.call(Call::PcoreHalt, [pcore, 0, 0, 0, 0, 0]).unwrap();
    cores_changed(&mut caller.world.kernel);
    hardware::posted();
    caller.launch(pcore, &launch_without_segments()).unwrap();
    assert_eq!(hardware::posted(), Some((CORE as usize, CORE_SLOT)));
}

/// It has not come to its command yet.
#[test]
fn what_a_core_said_of_an_earlier_run_is_not_taken_for_this_one() {
    let mut caller = Caller::new();
    let pcore = caller.claim().unwrap();
    caller.launch(pcore, &launch_without_segments()).unwrap();
    caller.call(Call::PcoreHalt, [pcore, 0, 0, 0, 0, 0]).unwrap();
    cores_changed(&mut caller.world.kernel);
    let doorbell = [Handle::SELF_CONTEXT.0, u64::from(Rights::NOTIFY.0), 8, 0, 0, 0];
    let doorbell = caller.call(Call::CapMint, doorbell).unwrap()[0];
    caller.call(Call::PcoreWatch, [pcore, doorbell, 0, 0, 0, 0]).unwrap();
    caller.launch(pcore, &launch_without_segments()).unwrap();
    let State::Running(run) = hardware::core_state(CORE as usize) else { panic!("does not run") };
    for earlier in [State::Running(run - 1), State::Halted(run - 1)] {
        hardware::set_state_of(CORE as usize, earlier);
        cores_changed(&mut caller.world.kernel);
        assert_eq!(caller.context.pending.get(), 0, "nobody is told");
        assert_eq!(caller.launch(pcore, &launch_without_segments()), Err(Error::Busy), "it is to run");
    }
    hardware::set_state_of(CORE as usize, State::Running(run));
    cores_changed(&mut caller.world.kernel);
    assert_eq!(caller.context.pending.get(), 8);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let mut caller = Caller::new();
    let pcore = caller.claim().unwrap();
    let contiguous = caller.contiguous(1);
    let scattered = caller.call(Call::SegmentAlloc, [Handle::ROOT_RAM.0, 2, 0, 0, 0, 0]).unwrap()[0];
    let no_dma = Rights(Rights::ALL.0 & !Rights::DMA.0).0.into();
    let no_dma = caller.call(Call::CapCopy, [contiguous, no_dma, 0, 0, 0, 0]).unwrap()[0];
    let read_only = Rights::READ.union(Rights::DMA).0.into();
    let read_only = caller.call(Call::CapCopy, [contiguous, read_only, 0, 0, 0, 0]).unwrap()[0];
    let with = |segments: &[(u64, u64, u64)]| {
        let mut launch = Launch { count: segments.len() as u64, ..launch_without_segments() };
        for (to, &(handle, address, protection)) in launch.segments.iter_mut().zip(segments) {
            *to = abi::pcore::LaunchSegment { handle, address, protection };
        }
        launch
    };
    let cases = [
        (Launch { count: 9, ..launch_without_segments() }, Error::BadArgument),
        (Launch { entry: u64::MAX, ..launch_without_segments() }, Error::BadArgument),
        (Launch { rights: u64::MAX, ..launch_without_segments() }, Error::BadArgument),
        (Launch { rights: Rights::INHERIT.0.into(), ..launch_without_segments() }, Error::NoRights),
        (with(&[(scattered, 0, 0)]), Error::BadArgument),
        (with(&[(no_dma, 0, 0)]), Error::NoRights),
        (with(&[(read_only, 0x1000, 3)]), Error::NoRights),
        (with(&[(contiguous, 0x1000, 7)]), Error::BadArgument),
        (with(&[(contiguous, 0x1001, 1)]), Error::BadArgument),
        (with(&[(contiguous, 0x1000, 1), (read_only, 0x1000, 1)]), Error::BadArgument),
        (with(&[(contiguous, layout::CONTROL_PAGE, 1)]), Error::BadArgument),
        (with(&[(contiguous, layout::USER_END, 1)]), Error::BadArgument),
        (with(&[(Handle::PCORE.0, 0, 0)]), Error::WrongType),
        (with(&[(700, 0, 0)]), Error::BadHandle),
    ];
    for (launch, error) in cases {
        assert_eq!(caller.launch(pcore, &launch), Err(error), "{launch:?}");
    }
    assert_eq!(caller.launch(Handle::PCORE.0, &launch_without_segments()), Err(Error::BadArgument), "its own core");
    let add = |kind, segment, offset, core, slot| [pcore, kind, segment, offset, core, slot];
    for (words, error) in [
        (add(2, contiguous, 0, 0, 0), Error::BadArgument),
        (add(1, contiguous, 1, 0, 1), Error::BadArgument),
        (add(1, contiguous, 4096, 0, 1), Error::BadArgument),
        (add(1, contiguous, 0, 99, 1), Error::BadArgument),
        (add(1, contiguous, 0, 0, 0), Error::BadArgument),
        (add(0, read_only, 0, 0, 0), Error::NoRights),
        (add(0, scattered, 0, 0, 0), Error::BadArgument),
    ] {
        assert_eq!(caller.call(Call::PcoreAddDevice, words), Err(error), "{words:?}");
    }
    for index in 0..DEVICES_MAX as u64 {
        assert_eq!(caller.call(Call::PcoreAddDevice, add(0, contiguous, 0, 0, 0)).unwrap()[0], index);
    }
    assert_eq!(caller.call(Call::PcoreAddDevice, add(0, contiguous, 0, 0, 0)), Err(Error::Busy));
    assert_eq!(caller.claim(), Err(Error::Busy));
    for core in [0, 99] {
        let words = [Handle::PCORE.0, Handle::ROOT_RAM.0, core, 0, 0, 0];
        assert_eq!(caller.call(Call::PcoreAlloc, words), Err(Error::BadArgument));
    }
    assert_eq!(caller.call(Call::PcoreHalt, [Handle::PCORE.0, 0, 0, 0, 0, 0]), Err(Error::BadArgument), "core 0");
}

/// What lies just inside of the limits is run as it was asked for.
#[test]
fn a_launch_is_planned_as_it_says_up_to_its_limits() {
    let mut caller = Caller::new();
    let pcore = caller.claim().unwrap();
    let page = layout::CONTROL_PAGE - 0x1000;
    let segments = [0x1000, 0x2000, page, page + 0x2000, 0].map(|address| (caller.contiguous(1), address));
    let mut launch = Launch { stack: layout::USER_END, argument: 77, count: 5, ..launch_without_segments() };
    launch.rights = Rights::POWER.0.into();
    let protections = [3, 5, 0, 1, 0];
    for (to, ((handle, address), protection)) in launch.segments.iter_mut().zip(segments.into_iter().zip(protections)) {
        *to = abi::pcore::LaunchSegment { handle, address, protection };
    }
    let too_high = Launch { stack: layout::USER_END + 1, ..launch };
    assert_eq!(caller.launch(pcore, &too_high), Err(Error::BadArgument));
    let contiguous = segments[0].0;
    for offset in [0, 4094] {
        caller.call(Call::PcoreAddDevice, [pcore, 1, contiguous, offset, hardware::CORES as u64 - 1, 1]).unwrap();
    }
    for (offset, core, slot) in [(4096, 0, 1), (4095, 0, 1), (0, hardware::CORES as u64, 1), (0, 0, layout::WAKE_SLOTS)]
    {
        let words = [pcore, 1, contiguous, offset, core, slot];
        assert_eq!(caller.call(Call::PcoreAddDevice, words), Err(Error::BadArgument), "{words:?}");
    }
    caller.launch(pcore, &launch).unwrap();
    let CoreCommand::Run(_, plan) = hardware::core_command(CORE as usize) else { panic!("not commanded to run") };
    let plan = Plan::at(plan);
    assert_eq!((plan.stack, plan.argument, plan.rights), (layout::USER_END, 77, Rights::POWER));
    let places: Vec<_> = { plan.parts.iter().flatten() }
        .map(|part| part.mapped.map(|(place, protection)| (place.start, place.pages, protection)))
        .collect();
    let mapped = |index: usize| Some((segments[index].1, 1, protections[index]));
    assert_eq!(places, [mapped(0), mapped(1), mapped(2), mapped(3), None]);
    let words: Vec<_> = { plan.devices.iter().flatten() }
        .map(|polled| match polled {
            Polled::Word { at, core, slot } => (at.0 % 4096, *core, *slot),
            Polled::Ring { .. } => panic!("no ring"),
        })
        .collect();
    assert_eq!(words, [(0, 3, 1), (4094, 3, 1)]);
}

/// Who claimed a core, what it runs, and how long programs had it.
#[test]
fn a_core_tells_whose_it_is_and_what_it_does() {
    hardware::set_clock(0);
    let mut caller = Caller::new();
    let own = caller.context.domain().header().id();
    let tells = |caller: &mut Caller, core| caller.call(Call::PcoreUse, [Handle::PCORE.0, core, 0, 0, 0, 0]);
    hardware::set_clock(700);
    assert_eq!(tells(&mut caller, 0), Ok([700, runs::MONITOR, 0]), "the caller's core runs");
    assert_eq!(tells(&mut caller, CORE), Ok([0, runs::NOTHING, 0]));
    assert_eq!(tells(&mut caller, hardware::CORES as u64), Err(Error::BadArgument));
    let pcore = caller.claim().unwrap();
    assert_eq!(tells(&mut caller, CORE), Ok([0, runs::NOTHING, own]));
    let link = caller.contiguous(1);
    let mut monitor = Launch { count: 1, ..Launch::default() };
    monitor.segments[0].handle = link;
    for (launch, is_polling, what) in [
        (launch_without_segments(), false, runs::PROGRAM),
        (monitor, false, runs::MONITOR),
        (Launch::default(), true, runs::KERNEL_CORE),
    ] {
        if is_polling {
            caller.call(Call::PcoreAddDevice, [pcore, 0, link, 0, 0, 0]).unwrap();
        }
        caller.launch(pcore, &launch).unwrap();
        hardware::set_used_of(CORE as usize, |_| Used::NONE.begin(100));
        assert_eq!(tells(&mut caller, CORE), Ok([600, what, own]));
        caller.call(Call::PcoreHalt, [pcore, 0, 0, 0, 0, 0]).unwrap();
        cores_changed(&mut caller.world.kernel);
        assert_eq!(tells(&mut caller, CORE).unwrap()[1], runs::NOTHING);
    }
    caller.call(Call::CapDrop, [pcore, 0, 0, 0, 0, 0]).unwrap();
    caller.world.kernel.drain_all();
    assert_eq!(tells(&mut caller, CORE).unwrap()[1..], [runs::NOTHING, 0]);
}

/// The clock of programs stands while the core idles.
#[test]
fn an_idle_core_is_not_used() {
    hardware::set_clock(0);
    let mut caller = Caller::new();
    let used_at = |at_ns| hardware::used_ns(0, at_ns);
    hardware::set_clock(500);
    caller.world.runner_calls(Call::Wait, [900, 0, 0, 0, 0, 0]);
    assert_eq!((used_at(500), used_at(800)), (500, 500), "it sleeps");
    hardware::set_clock(1000);
    caller.world.kernel.step(Event::Timer);
    assert_eq!((used_at(1000), used_at(1250)), (500, 750), "it was woken");
}

/// Two rings of a page, polled, and the caller of their calls.
pub(super) fn kernel_core() -> (Caller, [PhysAddr; 2]) {
    let mut caller = Caller::new();
    let bases = [0, 1].map(|_| {
        let segment = caller.contiguous(1);
        let (segment, _) = caller.context.domain().share().find::<Segment>(Handle(segment), Rights(0)).unwrap();
        // As core 0 keeps what another core polls.
        caller.world.kernel.retain(segment);
        segment.base().unwrap()
    });
    let mut devices = [None; DEVICES_MAX];
    for (device, base) in devices.iter_mut().zip(bases) {
        *device = Some(Polled::Ring { base, pages: 1 });
    }
    caller.world.kernel.polling = Some(Polling::new(caller.context, devices));
    (caller, bases)
}

pub(super) fn ring(base: PhysAddr) -> &'static Ring {
    // SAFETY: a page of the test's memory, which lives as long as its world.
    unsafe { &*phys_to_virt(base).cast::<Ring>() }
}

pub(super) fn slot(base: PhysAddr, number: u64) -> &'static RingSlot {
    // SAFETY: as for `ring`.
    unsafe { &*phys_to_virt(base).cast::<RingSlot>().add(1 + (number % ring_slots(1)) as usize) }
}

pub(super) fn ask(base: PhysAddr, number: u64, call: u64, first: u64) {
    slot(base, number).number.store(call, Ordering::Relaxed);
    slot(base, number).arguments[0].store(first, Ordering::Relaxed);
    ring(base).submitted.store(number + 1, Ordering::Release);
}

#[test]
fn a_ring_takes_the_calls_of_its_list_and_no_other() {
    let (mut caller, [base, _]) = kernel_core();
    let names = Call::ALL.iter().map(|(call, _)| *call).filter(|call| !call.has(Flag::Ring));
    let refused = (Error::BadCall as u64).wrapping_neg();
    let mut number = 0;
    for call in names {
        ask(base, number, call.number(), 0);
        assert_eq!(caller.world.kernel.poll(0), 1);
        assert_eq!(slot(base, number).status.load(Ordering::Relaxed), refused, "{call:?}");
        number += 1;
    }
    ask(base, number, 39, 0);
    caller.world.kernel.poll(0);
    assert_eq!(slot(base, number).status.load(Ordering::Relaxed), refused, "Linux's getpid");
    ask(base, number + 1, Call::PcoreCurrent.number(), 0);
    caller.world.kernel.poll(0);
    assert_eq!(slot(base, number + 1).status.load(Ordering::Relaxed), 0);
    assert_eq!(slot(base, number + 1).results[1].load(Ordering::Relaxed), hardware::CORES as u64);
    assert_eq!(ring(base).completed.load(Ordering::Relaxed), number + 2);
    assert_eq!(caller.world.kernel.polling.as_ref().unwrap().stat(0).unwrap()[2], number + 2);
}

#[test]
fn a_corrupt_ring_stops_and_harms_no_other() {
    for submitted in [u64::MAX, ring_slots(1) + 1, 1 << 63] {
        let (mut caller, [bad, good]) = kernel_core();
        ring(bad).submitted.store(submitted, Ordering::Release);
        assert_eq!(caller.world.kernel.poll(0), 0);
        assert_eq!(ring(bad).stopped.load(Ordering::Relaxed), 1);
        assert_eq!(ring(bad).completed.load(Ordering::Relaxed), 0);
        ask(good, 0, Call::Null.number(), 0);
        assert_eq!((caller.world.kernel.poll(0), caller.world.kernel.poll(1)), (0, 1));
    }
}

#[test]
fn a_full_ring_is_done_in_parts_and_random_requests_lose_nothing() {
    let mut random = super::Random::new(7);
    let ring_calls: Vec<Call> = Call::ALL.iter().map(|(call, _)| *call).filter(|call| call.has(Flag::Ring)).collect();
    let (mut caller, [base, _]) = kernel_core();
    let mut number = 0;
    for _ in 0..2000 {
        let count = 1 + random.below(ring_slots(1));
        for _ in 0..count {
            let call = if random.below(30) == 0 { random.any() } else { random.one(&ring_calls).number() };
            let slot = slot(base, number);
            slot.number.store(call, Ordering::Relaxed);
            for argument in &slot.arguments {
                let word = if random.below(4) == 0 { random.any() } else { random.below(40) };
                argument.store(word, Ordering::Relaxed);
            }
            number += 1;
        }
        ring(base).submitted.store(number, Ordering::Release);
        while ring(base).completed.load(Ordering::Acquire) != number {
            assert!((1..=16).contains(&caller.world.kernel.poll(0)));
        }
    }
    assert_eq!(ring(base).stopped.load(Ordering::Relaxed), 0);
}
