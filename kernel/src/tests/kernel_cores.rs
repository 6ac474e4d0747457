//! What a kernel core does between looks at its devices: when it sleeps, and who wakes it.

use super::machine::Played;
use super::pcores::{Caller, ask, kernel_core, ring, slot};
use crate::arch::context::Event;
use crate::arch::cores;
use crate::hardware;
use crate::mailbox;
use crate::memory::{PhysAddr, phys_to_virt};
use crate::objects::pcore::Polled;
use crate::objects::{Ptr, Segment};
use crate::polling::Polling;
use crate::scheduler::Decision;
use abi::pcore::{DEVICES_MAX, polled};
use abi::{Call, Handle, Rights, layout};
use core::cell::Cell;
use core::sync::atomic::{AtomicU16, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

const START_NS: u64 = 1_000_000;
/// A fifth of the time that it polls idle devices.
const LOOK_NS: u64 = 10_000;

/// From now on each look at the clock takes so long, and is counted; then `then` is done.
fn count_looks(look_ns: u64, then: impl Fn(u64) + 'static) -> Rc<Cell<u64>> {
    let looks = Rc::new(Cell::new(0));
    let counted = looks.clone();
    hardware::set_clock(START_NS);
    hardware::set_clock_look(Some(Box::new(move || {
        counted.set(counted.get() + 1);
        hardware::set_clock(START_NS + counted.get() * look_ns);
        then(counted.get());
    })));
    looks
}

fn stat(caller: &Caller, device: u64) -> [u64; 3] {
    caller.world.kernel.polling.as_ref().unwrap().stat(device).unwrap()
}

fn sleeping(base: PhysAddr) -> u64 {
    ring(base).sleeping.load(Ordering::Relaxed)
}

/// It serves until it may sleep.
fn serve(caller: &mut Caller) {
    caller.world.kernel.serve();
    hardware::set_clock_look(None);
}

#[test]
fn rings_that_are_quiet_for_as_long_as_a_wake_up_costs_let_the_core_sleep() {
    let _alone = Played::new(|_| ());
    let (mut caller, bases) = kernel_core();
    bases.iter().for_each(|base| ring(*base).sleeping.store(1, Ordering::Relaxed));
    let states = Rc::new(Cell::new([9; 2]));
    let seen = states.clone();
    count_looks(LOOK_NS, move |_| seen.set(bases.map(sleeping)));
    serve(&mut caller);
    assert_eq!((states.get(), bases.map(sleeping)), ([0; 2], [1; 2]), "who polls says so, and who sleeps");
    assert_eq!([0, 1].map(|device| stat(&caller, device)), [[polled::RING, 5, 0]; 2]);
    // It begins anew after each request that it finds.
    ask(bases[1], 0, Call::Null.number(), 0);
    count_looks(LOOK_NS, |_| ());
    serve(&mut caller);
    assert_eq!([0, 1].map(|device| stat(&caller, device)), [[polled::RING, 11, 0], [polled::RING, 11, 1]]);
    assert_eq!(slot(bases[1], 0).status.load(Ordering::Relaxed), 0);
}

/// It comes after the last look, and its user saw that nobody sleeps: nobody would wake the core.
#[test]
fn a_request_that_comes_as_the_core_falls_asleep_is_seen() {
    let _alone = Played::new(|_| ());
    let (mut caller, bases) = kernel_core();
    count_looks(LOOK_NS, move |look| {
        // The first is before the first poll.
        if look == 6 {
            ask(bases[0], 0, Call::Null.number(), 0);
        }
    });
    serve(&mut caller);
    assert_eq!((ring(bases[0]).completed.load(Ordering::Relaxed), stat(&caller, 0)[2]), (1, 1));
    assert_eq!((stat(&caller, 1)[1], bases.map(sleeping)), (5 + 1 + 5, [1; 2]));
}

/// What a stopped ring says counts for nothing: it may neither keep the core awake nor is it told.
#[test]
fn a_stopped_ring_keeps_no_core_awake() {
    let _alone = Played::new(|_| ());
    let (mut caller, bases) = kernel_core();
    ring(bases[0]).submitted.store(u64::MAX, Ordering::Relaxed);
    ring(bases[0]).sleeping.store(7, Ordering::Relaxed);
    count_looks(LOOK_NS, |look| assert!(look < 100, "it does not sleep"));
    serve(&mut caller);
    assert_eq!(ring(bases[0]).stopped.load(Ordering::Relaxed), 1);
    assert_eq!((sleeping(bases[0]), sleeping(bases[1])), (0, 1));
}

/// A caller whose kernel core polls the second half of a word, and that word.
fn with_word() -> (Caller, &'static AtomicU16, Ptr<Segment>) {
    let mut caller = Caller::new();
    let handle = caller.contiguous(1);
    let (segment, _) = caller.context.domain().share().find::<Segment>(Handle(handle), Rights(0)).unwrap();
    let at = PhysAddr(segment.base().unwrap().0 + 6);
    // SAFETY: a page of the test's memory, which lives as long as its world.
    let word = unsafe { &*phys_to_virt(at).cast::<AtomicU16>() };
    word.store(5, Ordering::Relaxed);
    let mut devices = [None; DEVICES_MAX];
    devices[2] = Some(Polled::Word { at, core: 3, slot: 70 });
    caller.world.kernel.polling = Some(Polling::new(caller.context, devices));
    (caller, word, segment)
}

#[test]
fn a_word_that_changes_wakes_who_waits_for_it() {
    let (mut caller, word, _) = with_word();
    hardware::posted();
    assert_eq!((caller.world.kernel.poll(2), hardware::posted()), (0, None), "it is as it was");
    for value in [6, u16::MAX, 5] {
        word.store(value, Ordering::Relaxed);
        assert_eq!((caller.world.kernel.poll(2), hardware::posted()), (1, Some((3, 70))));
        assert_eq!((caller.world.kernel.poll(2), hardware::posted()), (0, None), "once");
    }
    assert_eq!(stat(&caller, 2), [polled::WORD, 7, 3]);
    assert_eq!(caller.world.kernel.polling.as_ref().unwrap().stat(0), None);
}

/// Nothing would wake it.
#[test]
fn a_core_that_polls_a_word_does_not_sleep() {
    let _alone = Played::new(|_| ());
    let (mut caller, ..) = with_word();
    let looks = count_looks(LOOK_NS, |look| assert!(look < 50, "enough"));
    let ended = catch_unwind(AssertUnwindSafe(|| caller.world.kernel.serve()));
    hardware::set_clock_look(None);
    assert!(ended.is_err() && looks.get() == 50);
}

#[test]
fn a_core_that_polls_nothing_idles_at_once() {
    let mut caller = Caller::new();
    let looks = count_looks(LOOK_NS, |_| ());
    assert!(matches!(caller.world.kernel.serve(), Decision::Idle));
    assert_eq!(looks.get(), 0);
    hardware::set_clock_look(None);
}

/// Between two polls, as interrupts are off meanwhile; and by an interrupt.
#[test]
fn what_others_post_is_taken_and_counted() {
    let _alone = Played::new(|_| ());
    let (mut caller, _) = kernel_core();
    let taken = |caller: &Caller| caller.world.kernel.counters.wakes_taken.0;
    let before = taken(&caller);
    mailbox::post(cores::this_core(), layout::WAKE_SLOTS as usize - 1);
    count_looks(LOOK_NS, |_| ());
    serve(&mut caller);
    assert!(mailbox::is_empty());
    assert_eq!(taken(&caller), before + 1);
    mailbox::post(cores::this_core(), layout::WAKE_SLOTS as usize - 2);
    caller.world.kernel.polling = None;
    caller.world.kernel.step(Event::Wake);
    assert!(mailbox::is_empty());
    assert_eq!(taken(&caller), before + 2);
    let interrupts = caller.world.kernel.counters.interrupts.0;
    caller.world.kernel.step(Event::Timer);
    caller.world.kernel.step(Event::Interrupt { vector: 0x40 });
    assert_eq!(caller.world.kernel.counters.interrupts.0, interrupts + 2);
}
