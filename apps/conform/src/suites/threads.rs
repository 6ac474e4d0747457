//! User-level threads: upcalls at the end of slices and at faults, and schedulers of one's own.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use abi::layout::protection;
use abi::{ExceptionInfo, Handle, ProgramRegisters};
use threads::{Answer, Ended, Outcome as End, Policy, Refused, RoundRobin, ThreadId, Threads};

use crate::{Failure, Fixture, Outcome, require, suite};

suite!("threads"; alone: who_computes_is_interrupted, a_fault_ends_its_thread_only, a_mended_fault_goes_on, a_program_has_its_own_scheduler);

const STACK_PAGES: u64 = 4;
/// For what comes unless nobody is interrupted.
const LIMIT_NS: u64 = 60_000_000_000;

impl From<Refused> for Failure {
    #[track_caller]
    fn from(refused: Refused) -> Failure {
        Failure::new(alloc::format!("threads: {refused:?}"))
    }
}

fn threads(
    policy: impl Policy + 'static,
    has_ticks: bool,
    on_fault: fn(ThreadId, &ExceptionInfo, &mut ProgramRegisters) -> Answer,
) -> Result<Threads, Failure> {
    // SAFETY: the threads below use no heap.
    Ok(unsafe { Threads::new(Box::new(policy), STACK_PAGES, has_ticks, on_fault) }?)
}

fn ends(_: ThreadId, _: &ExceptionInfo, _: &mut ProgramRegisters) -> Answer {
    Answer::End
}

static TURN: AtomicU64 = AtomicU64::new(0);

/// Sets the word when it is at its own number, and computes until somebody else has set it on:
/// without interruptions nobody would.
extern "C" fn takes_turns(me: u64) -> u64 {
    let deadline_ns = runtime::now_ns() + LIMIT_NS;
    for round in 0..5 {
        while TURN.load(Ordering::Relaxed) != round * 3 + me {
            if runtime::now_ns() > deadline_ns {
                return 0;
            }
        }
        TURN.fetch_add(1, Ordering::Relaxed);
    }
    me + 10
}

fn who_computes_is_interrupted(_: &Fixture) -> Outcome {
    TURN.store(0, Ordering::Relaxed);
    let mut threads = threads(RoundRobin::default(), true, ends)?;
    let mut ids = Vec::new();
    // The last goes first.
    for me in [2, 1, 0] {
        ids.push((threads.spawn(takes_turns, me)?, me));
    }
    require!(threads.run()? == Ended::All, "not all ended");
    for (id, me) in ids {
        let end = threads.ended(id)?;
        require!(end == Some(End::Returned(me + 10)), "thread {me}: {end:?}");
    }
    Ok(())
}

/// Reads a word where nothing is.
extern "C" fn reads(address: u64) -> u64 {
    // SAFETY: an address that no object has; what happens is what is tested.
    unsafe { (address as *const u64).read_volatile() }
}

extern "C" fn overflows(depth: u64) -> u64 {
    let room = core::hint::black_box([depth; 64]);
    if depth == 0 { 0 } else { overflows(depth - 1) + room[1] }
}

extern "C" fn yields(times: u64) -> u64 {
    for _ in 0..times {
        threads::yield_now();
    }
    times
}

fn a_fault_ends_its_thread_only(_: &Fixture) -> Outcome {
    let mut threads = threads(RoundRobin::default(), false, ends)?;
    let first = threads.spawn(yields, 10)?;
    let bad = threads.spawn(reads, 8)?;
    let deep = threads.spawn(overflows, 1_000_000)?;
    let last = threads.spawn(yields, 20)?;
    require!(threads.run()? == Ended::All, "not all ended");
    for (id, times) in [(first, 10), (last, 20)] {
        let end = threads.ended(id)?;
        require!(end == Some(End::Returned(times)), "a bystander: {end:?}");
    }
    for (id, address) in [(bad, Some(8)), (deep, None)] {
        let end = threads.ended(id)?;
        let is_it = matches!(end, Some(End::Faulted(fault)) if fault.vector == 14 && address.is_none_or(|at| fault.address == at));
        require!(is_it, "a fault ends with {end:?}");
    }
    Ok(())
}

static PAGE: AtomicU64 = AtomicU64::new(0);
static PLACE: AtomicU64 = AtomicU64::new(0);

/// A pager of the program's own.
fn mends(_: ThreadId, fault: &ExceptionInfo, _: &mut ProgramRegisters) -> Answer {
    let (page, place) = (Handle(PAGE.load(Ordering::Relaxed)), PLACE.load(Ordering::Relaxed));
    let is_there = fault.address & !(abi::PAGE_BYTES - 1) == place
        && sys::range_map(Handle::SELF_RANGE, place, page, 0, 1, protection::READ).is_ok();
    if is_there { Answer::Resume } else { Answer::End }
}

fn a_mended_fault_goes_on(fixture: &Fixture) -> Outcome {
    let (page, _) = sys::segment_alloc(fixture.ram(), 1, 0)?;
    let place = fixture.map(0, page, 1)?;
    fixture.store(place + 8, 77);
    fixture.unmap(0, 1)?;
    PAGE.store(page.0, Ordering::Relaxed);
    PLACE.store(place, Ordering::Relaxed);
    let mut threads = threads(RoundRobin::default(), false, mends)?;
    let id = threads.spawn(reads, place + 8)?;
    require!(threads.run()? == Ended::All, "not all ended");
    let end = threads.ended(id)?;
    require!(end == Some(End::Returned(77)), "it read {end:?}");
    fixture.unmap(0, 1)?;
    sys::cap_drop(page)?;
    Ok(())
}

/// The highest number goes first, always.
#[derive(Default)]
struct HighestFirst(Vec<ThreadId>);

impl Policy for HighestFirst {
    fn reserve(&mut self, threads: usize) {
        self.0.reserve(threads);
    }
    fn ready(&mut self, thread: ThreadId) {
        self.0.push(thread);
        self.0.sort_unstable();
    }
    fn next(&mut self) -> Option<ThreadId> {
        self.0.pop()
    }
}

static ORDER: AtomicU64 = AtomicU64::new(0);

extern "C" fn notes(me: u64) -> u64 {
    for _ in 0..2 {
        let _ = ORDER.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |order| Some(order * 10 + me));
        threads::yield_now();
    }
    0
}

fn a_program_has_its_own_scheduler(_: &Fixture) -> Outcome {
    let order = |policy: Box<dyn Policy>| -> Result<u64, Failure> {
        ORDER.store(0, Ordering::Relaxed);
        // SAFETY: the threads use no heap.
        let mut threads = unsafe { Threads::new(policy, STACK_PAGES, false, ends) }?;
        for me in [1, 2, 3] {
            threads.spawn(notes, me)?;
        }
        require!(threads.run()? == Ended::All, "not all ended");
        Ok(ORDER.load(Ordering::Relaxed))
    };
    let (fair, ranked) = (order(Box::<RoundRobin>::default())?, order(Box::<HighestFirst>::default())?);
    require!(fair == 123_123, "first come, first served gives {fair}");
    require!(ranked == 332_211, "the highest first gives {ranked}");
    Ok(())
}
