//! Threads on a host: no upcalls, the rest as on Pelago.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::mem::offset_of;
use std::thread_local;

use abi::{ControlPage, ExceptionInfo};

use crate::platform::{STACKS, UPCALL, control};
use crate::{
    Answer, Ended, Outcome, Policy, Refused, RoundRobin, ThreadId, Threads, block, current, join, spawn, undisturbed,
    wake, yield_now,
};

thread_local! {
    static SEEN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

fn see(what: u64) {
    SEEN.with_borrow_mut(|seen| seen.push(what));
}

fn seen() -> Vec<u64> {
    SEEN.take()
}

fn threads(policy: impl Policy + 'static) -> Threads {
    // SAFETY: nothing interrupts here, and no fault comes as an upcall.
    unsafe { Threads::new(Box::new(policy), 1, false, |_, _, _| Answer::End) }.unwrap()
}

extern "C" fn three_turns(name: u64) -> u64 {
    for turn in 0..3 {
        see(name * 10 + turn);
        yield_now();
    }
    name
}

#[test]
fn threads_that_give_way_take_turns_and_their_results_are_kept() {
    let mut threads = threads(RoundRobin::default());
    let ids = [1, 2].map(|name| threads.spawn(three_turns, name).unwrap());
    assert_eq!(threads.ended(ids[0]), Ok(None));
    assert_eq!(threads.run(), Ok(Ended::All));
    assert_eq!(seen(), [10, 20, 11, 21, 12, 22]);
    assert_eq!(STACKS.get(), 1, "the stack of upcalls is left");
    assert_eq!(ids.map(|id| threads.ended(id)), [1, 2].map(|name| Ok(Some(Outcome::Returned(name)))));
    assert_eq!(threads.ended(ids[0]), Err(Refused::NotFound));
    assert_eq!(current(), None);
}

/// The last who came goes first.
#[derive(Default)]
struct LastFirst(Vec<ThreadId>);

impl Policy for LastFirst {
    fn reserve(&mut self, threads: usize) {
        self.0.reserve(threads);
    }
    fn ready(&mut self, thread: ThreadId) {
        self.0.push(thread);
    }
    fn next(&mut self) -> Option<ThreadId> {
        self.0.pop()
    }
}

#[test]
fn another_policy_gives_another_order() {
    let mut threads = threads(LastFirst::default());
    for name in [1, 2] {
        threads.spawn(three_turns, name).unwrap();
    }
    assert_eq!(threads.run(), Ok(Ended::All));
    assert_eq!(seen(), [20, 21, 22, 10, 11, 12]);
}

extern "C" fn sleeper(_: u64) -> u64 {
    block();
    see(1);
    block();
    see(2);
    0
}

extern "C" fn waker(of: u64) -> u64 {
    see(3);
    wake(ThreadId(of as usize)).unwrap();
    yield_now();
    see(4);
    0
}

#[test]
fn a_wake_before_the_block_is_not_lost_and_the_outside_may_wake() {
    let mut threads = threads(RoundRobin::default());
    let id = threads.spawn(sleeper, 0).unwrap();
    threads.wake(id).unwrap();
    assert_eq!(threads.run(), Ok(Ended::Blocked(1)));
    assert_eq!(seen(), [1]);
    threads.spawn(waker, id.0 as u64).unwrap();
    assert_eq!(threads.run(), Ok(Ended::All));
    assert_eq!(seen(), [3, 2, 4]);
    assert_eq!(threads.wake(ThreadId(77)), Err(Refused::NotFound));
}

extern "C" fn parent(children: u64) -> u64 {
    let children: Vec<ThreadId> = (0..children).map(|name| spawn(three_turns, name).unwrap()).collect();
    assert_eq!(join(current().unwrap()), Err(Refused::Busy));
    let results = children.into_iter().map(|child| match join(child) {
        Ok(Outcome::Returned(name)) => name,
        other => panic!("{other:?}"),
    });
    results.sum()
}

#[test]
fn a_thread_joins_threads_that_it_made() {
    let mut threads = threads(RoundRobin::default());
    let id = threads.spawn(parent, 100).unwrap();
    assert_eq!(threads.run(), Ok(Ended::All));
    assert_eq!(seen().len(), 300);
    assert_eq!(threads.ended(id), Ok(Some(Outcome::Returned(4950))));
}

extern "C" fn nested(_: u64) -> u64 {
    let mut inner = threads(RoundRobin::default());
    u64::from(inner.run() == Err(Refused::Busy))
}

#[test]
fn one_set_of_threads_runs_at_a_time() {
    let mut outer = threads(RoundRobin::default());
    let id = outer.spawn(nested, 0).unwrap();
    assert_eq!(outer.run(), Ok(Ended::All));
    assert_eq!(outer.ended(id), Ok(Some(Outcome::Returned(1))));
    assert_eq!(vec![Ok(Ended::All)], [outer.run()]);
}

/// Are upcalls kept away?
fn is_closed() -> bool {
    // SAFETY: a word of the page of this thread of the host.
    unsafe { control().byte_add(offset_of!(ControlPage, in_proxy)).cast::<u64>().read_volatile() != 0 }
}

extern "C" fn opened(_: u64) -> u64 {
    u64::from(!is_closed())
}

#[test]
fn upcalls_are_kept_away_until_the_last_who_is_not_to_be_disturbed_is_done() {
    assert!(!is_closed());
    undisturbed(|| {
        undisturbed(|| assert!(is_closed()));
        assert!(is_closed(), "the outer one is disturbed");
    });
    assert!(!is_closed());
    let mut threads = threads(RoundRobin::default());
    let id = threads.spawn(opened, 0).unwrap();
    assert_eq!(threads.run(), Ok(Ended::All));
    assert_eq!((threads.ended(id), is_closed()), (Ok(Some(Outcome::Returned(1))), false));
}

const PAGE_FAULT: u64 = 14;

/// Faults, as the kernel says it; does not come back from that.
extern "C" fn faulty(_: u64) -> u64 {
    // SAFETY: the page of this thread of the host, where the hub looks after an upcall, which
    // comes with all kept away.
    unsafe {
        let exception = control().byte_add(offset_of!(ControlPage, exception)).cast::<ExceptionInfo>();
        (*exception).vector = PAGE_FAULT;
        control().byte_add(offset_of!(ControlPage, in_proxy)).cast::<u64>().write_volatile(ControlPage::INSIDE);
        let entry = core::ptr::with_exposed_provenance::<()>(UPCALL.get() as usize);
        core::mem::transmute::<*const (), extern "C" fn() -> !>(entry)()
    }
}

#[test]
fn a_fault_ends_the_thread_if_the_program_says_so_and_no_other() {
    let on_fault = |id: ThreadId, exception: &ExceptionInfo, _: &mut _| {
        see(exception.vector * 10 + id.0 as u64);
        Answer::End
    };
    // SAFETY: as above.
    let mut threads = unsafe { Threads::new(Box::new(RoundRobin::default()), 1, false, on_fault) }.unwrap();
    let ids = [three_turns, faulty].map(|entry| threads.spawn(entry, 7).unwrap());
    assert_eq!(threads.run(), Ok(Ended::All));
    assert_eq!(seen(), [70, PAGE_FAULT * 10 + ids[1].0 as u64, 71, 72]);
    assert_eq!(threads.ended(ids[0]), Ok(Some(Outcome::Returned(7))));
    let faulted = threads.ended(ids[1]).unwrap();
    assert!(matches!(faulted, Some(Outcome::Faulted(exception)) if exception.vector == PAGE_FAULT), "{faulted:?}");
    assert_eq!(UPCALL.get(), 0, "upcalls go on");
}
