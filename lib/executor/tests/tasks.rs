//! What tasks see: their turns, deadlines and notifications.
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use executor::{
    Platform, Port, Rank, abort, abort_all, begin, block_on, is_due, mark, notified, post, register, reserve,
    sleep_until, spawn, unregister, yield_now,
};

/// A clock that each sleep moves to its end, and bits that end sleeps, one after the other.
#[derive(Default)]
struct Clock {
    now_ns: Cell<u64>,
    sleeps: RefCell<Vec<u64>>,
    rings: RefCell<Vec<u64>>,
}

impl Platform for Clock {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn wait(&self, deadline_ns: u64) -> u64 {
        if deadline_ns == 0 {
            return 0;
        }
        self.sleeps.borrow_mut().push(deadline_ns);
        let bits = self.rings.borrow_mut().pop();
        bits.unwrap_or_else(|| {
            assert_ne!(deadline_ns, u64::MAX, "it sleeps for ever");
            self.now_ns.set(deadline_ns);
            0
        })
    }

    fn ran_ticks(&self) -> u64 {
        0
    }
}

/// Lets all that is ready run.
fn run_all() {
    block_on(&Clock::default(), async {
        for _ in 0..4 {
            yield_now().await;
        }
    });
}

/// What happened, in its order.
type Seen<T> = Rc<RefCell<Vec<T>>>;

#[test]
fn tasks_take_turns_in_their_order() {
    let seen = Seen::default();
    for name in 0..3 {
        let seen = seen.clone();
        spawn(async move {
            for _ in 0..2 {
                seen.borrow_mut().push(name);
                yield_now().await;
            }
        });
    }
    run_all();
    assert_eq!(seen.take(), [0, 1, 2, 0, 1, 2]);
}

/// Counts its ends; the first one of them starts a task, which has another to end.
struct Ends(Rc<Cell<u32>>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
        if self.0.get() == 1 {
            waits_with(Ends(self.0.clone()));
        }
    }
}

fn waits_with(ends: Ends) {
    spawn(async move {
        std::future::pending::<()>().await;
        drop(ends);
    });
}

#[test]
fn all_tasks_are_ended_and_those_that_their_ends_start() {
    let ended = Rc::new(Cell::new(0));
    (0..2).for_each(|_| waits_with(Ends(ended.clone())));
    run_all();
    assert_eq!(ended.get(), 0);
    abort_all();
    assert_eq!(ended.get(), 3);
}

#[test]
fn who_sleeps_goes_on_at_its_deadline_and_not_before() {
    let (clock, seen) = (Rc::new(Clock::default()), Seen::default());
    for (name, deadline_ns) in [(1, 30), (2, 10), (3, 30)] {
        let (clock, seen) = (clock.clone(), seen.clone());
        spawn(async move {
            sleep_until(deadline_ns).await;
            seen.borrow_mut().push((name, clock.now_ns()));
        });
    }
    block_on(&*clock, async {
        // One that is given up leaves no deadline behind.
        let is_over = poll_fn(|context| Poll::Ready(pin!(sleep_until(5)).poll(context).is_ready())).await;
        assert!(!is_over);
        yield_now().await;
        assert!(!is_due(9) && is_due(10));
        sleep_until(40).await;
    });
    assert_eq!(seen.take(), [(2, 10), (1, 30), (3, 30)]);
    assert_eq!(clock.sleeps.take(), [10, 30, 40]);
    assert!(!is_due(u64::MAX - 1));
}

#[test]
fn a_deadline_wakes_who_waits_for_it_last() {
    let seen = Seen::default();
    let steps = seen.clone();
    block_on(&Clock::default(), async {
        let mut sleeps = Box::pin(sleep_until(10));
        assert!(poll_fn(|context| Poll::Ready(sleeps.as_mut().poll(context).is_pending())).await);
        spawn(async move {
            sleeps.await;
            steps.borrow_mut().push("woken");
        });
        sleep_until(20).await;
    });
    assert_eq!(seen.take(), ["woken"]);
}

#[test]
fn bits_are_kept_until_somebody_takes_them() {
    post(0b0110);
    let taken = block_on(&Clock::default(), async { [notified(0b0011).await, notified(0b1100).await] });
    assert_eq!(taken, [0b0010, 0b0100]);
}

#[test]
fn a_bit_wakes_those_whom_it_concerns() {
    let (clock, seen) = (Clock::default(), Seen::default());
    clock.rings.replace(vec![0b100, 0b001, 0b010]);
    for mask in [0b001, 0b010] {
        let seen = seen.clone();
        spawn(async move {
            let mut waits = pin!(notified(mask));
            let bits = poll_fn(|context| {
                seen.borrow_mut().push(("polled", mask));
                waits.as_mut().poll(context)
            });
            let bits = bits.await;
            seen.borrow_mut().push(("woken", bits));
        });
    }
    assert_eq!(block_on(&clock, notified(0b100)), 0b100);
    let first = [("polled", 0b001), ("polled", 0b010)];
    let then = [("polled", 0b010), ("woken", 0b010), ("polled", 0b001), ("woken", 0b001)];
    assert_eq!(seen.take(), [&first[..], &then].concat());
}

#[test]
fn an_aborted_task_is_gone_and_its_waker_wakes_nobody_else() {
    /// A task that waits for ever: how often it was polled, and how to have that done again.
    #[derive(Default)]
    struct Waiting {
        polled: Cell<u32>,
        waker: RefCell<Option<Waker>>,
    }
    let wait = |own: &Rc<Waiting>| {
        let own = own.clone();
        spawn(poll_fn(move |context| {
            own.polled.set(own.polled.get() + 1);
            own.waker.replace(Some(context.waker().clone()));
            Poll::Pending
        }))
    };
    let [old, new] = [(); 2].map(|()| Rc::new(Waiting::default()));
    let first = wait(&old);
    run_all();
    abort(first);
    assert_eq!((old.polled.get(), Rc::strong_count(&old)), (1, 1), "its future is dropped");
    let second = wait(&new);
    abort(first);
    run_all();
    let wake = |one: &Waiting| one.waker.borrow().as_ref().unwrap().wake_by_ref();
    wake(&old);
    run_all();
    assert_eq!((old.polled.get(), new.polled.get()), (1, 1));
    wake(&new);
    wake(&new);
    run_all();
    assert_eq!(new.polled.get(), 2, "woken twice, it runs once");
    abort(second);
}

#[test]
fn a_task_that_aborts_itself_stops_where_it_waits() {
    let (task, seen) = (Rc::new(Cell::new(None)), Seen::default());
    let (own, steps) = (task.clone(), seen.clone());
    task.set(Some(spawn(async move {
        abort(own.get().unwrap());
        steps.borrow_mut().push("on its way");
        yield_now().await;
        steps.borrow_mut().push("after its end");
    })));
    run_all();
    assert_eq!((seen.take(), Rc::strong_count(&seen)), (vec!["on its way"], 1));
}

#[test]
fn a_reserved_task_is_polled_as_it_begins() {
    let seen = Seen::default();
    let steps = seen.clone();
    begin(
        reserve(),
        Box::pin(async move {
            steps.borrow_mut().push("begun");
            yield_now().await;
            steps.borrow_mut().push("woken");
        }),
    );
    assert_eq!(seen.take(), ["begun"]);
    run_all();
    assert_eq!(seen.take(), ["woken"]);
}

/// A peer that answers a few microseconds after it was asked, or rings if we sleep before that.
#[derive(Default)]
struct Peer {
    is_remote: bool,
    now_ns: Cell<u64>,
    is_answered: Cell<bool>,
    is_taken: Cell<bool>,
    waits: Cell<Option<Waker>>,
    sleeps: Cell<u32>,
}

impl Peer {
    fn poll_answer(&self, waker: &Waker) -> Poll<()> {
        self.waits.set(Some(waker.clone()));
        if self.is_taken.get() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Port for Peer {
    fn poll(&self) {
        if self.ready() {
            self.is_taken.set(true);
            self.waits.take().into_iter().for_each(Waker::wake);
        }
    }

    fn ready(&self) -> bool {
        self.is_answered.get() && !self.is_taken.get()
    }

    fn arm(&self) -> bool {
        false
    }

    fn nudge(&self) {}

    fn disarm(&self) {}

    fn flush(&self) {}

    fn badge(&self) -> u64 {
        1
    }

    fn rank(&self) -> Rank {
        Rank::Response
    }

    fn remote(&self) -> bool {
        self.is_remote
    }
}

impl Platform for Peer {
    fn now_ns(&self) -> u64 {
        self.now_ns.set(self.now_ns.get() + 1_000);
        self.is_answered.set(self.is_answered.get() || self.now_ns.get() == 4_000);
        self.now_ns.get()
    }

    fn wait(&self, deadline_ns: u64) -> u64 {
        if deadline_ns == 0 {
            return 0;
        }
        self.sleeps.set(self.sleeps.get() + 1);
        self.is_answered.set(true);
        self.badge()
    }

    fn ran_ticks(&self) -> u64 {
        0
    }
}

#[test]
fn an_answer_from_another_core_is_looked_for_before_sleep() {
    for (is_remote, sleeps) in [(true, 0), (false, 1)] {
        let peer = Rc::new(Peer { is_remote, ..Peer::default() });
        let port = register(peer.clone());
        block_on(&*peer, poll_fn(|context| peer.poll_answer(context.waker())));
        assert_eq!(peer.sleeps.get(), sleeps, "on another core: {is_remote}");
        unregister(port);
    }
}

/// A server of this core, which has answered when its ringing returns.
#[derive(Default)]
struct Neighbour {
    is_answered: Cell<bool>,
    is_taken: Cell<bool>,
    waits: Cell<Option<Waker>>,
    clock_reads: Cell<u32>,
}

impl Neighbour {
    fn poll_answer(&self, waker: &Waker) -> Poll<()> {
        self.waits.set(Some(waker.clone()));
        if self.is_taken.take() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Port for Neighbour {
    fn poll(&self) {
        if self.is_answered.take() {
            self.is_taken.set(true);
            self.waits.take().into_iter().for_each(Waker::wake);
        }
    }

    fn ready(&self) -> bool {
        self.is_answered.get()
    }

    fn arm(&self) -> bool {
        false
    }

    fn nudge(&self) {}

    fn disarm(&self) {}

    fn flush(&self) {
        self.is_answered.set(true);
    }

    fn badge(&self) -> u64 {
        1
    }

    fn rank(&self) -> Rank {
        Rank::Response
    }

    fn remote(&self) -> bool {
        false
    }
}

impl Platform for Neighbour {
    fn now_ns(&self) -> u64 {
        self.clock_reads.set(self.clock_reads.get() + 1);
        0
    }

    fn wait(&self, deadline_ns: u64) -> u64 {
        assert_eq!(deadline_ns, 0, "the answer is there, and the component sleeps");
        0
    }

    fn ran_ticks(&self) -> u64 {
        0
    }
}

#[test]
fn an_answer_that_came_while_the_peer_was_rung_costs_no_reading_of_the_clock() {
    const CALLS: u32 = 160;
    let neighbour = Rc::new(Neighbour::default());
    let port = register(neighbour.clone());
    block_on(&*neighbour, async {
        for _ in 0..CALLS {
            mark(port);
            poll_fn(|context| neighbour.poll_answer(context.waker())).await;
        }
    });
    let reads = neighbour.clock_reads.get();
    // Two in each sixteenth turn.
    assert!((1..=CALLS / 4).contains(&reads), "{reads} readings for {CALLS} calls");
    unregister(port);
}

#[test]
fn what_was_sent_last_is_told_to_the_peer_as_the_main_future_ends() {
    let neighbour = Rc::new(Neighbour::default());
    let port = register(neighbour.clone());
    block_on(&*neighbour, async { mark(port) });
    assert!(neighbour.is_answered.get(), "nobody rang");
    unregister(port);
}

#[test]
fn bits_that_come_together_wake_all_whom_they_concern() {
    let (clock, seen) = (Clock::default(), Seen::default());
    clock.rings.replace(vec![0b100, 0b011]);
    for mask in [0b001, 0b010] {
        let seen = seen.clone();
        spawn(async move {
            let bits = notified(mask).await;
            seen.borrow_mut().push(bits);
        });
    }
    assert_eq!(block_on(&clock, notified(0b100)), 0b100);
    assert_eq!(seen.take(), [0b001, 0b010]);
}

#[test]
fn a_bit_that_several_wait_for_is_taken_by_each_in_turn() {
    let (clock, seen) = (Clock::default(), Seen::default());
    clock.rings.replace(vec![0b100, 0b001, 0b001]);
    for name in ["first", "second"] {
        let seen = seen.clone();
        spawn(async move {
            notified(0b001).await;
            seen.borrow_mut().push(name);
        });
    }
    block_on(&clock, notified(0b100));
    assert_eq!(seen.take(), ["first", "second"]);
}

#[test]
fn a_task_may_wait_for_either_of_two() {
    let (clock, seen) = (Clock::default(), Seen::default());
    clock.rings.replace(vec![0b100, 0b010]);
    let steps = seen.clone();
    spawn(async move {
        let (mut one, mut other) = (pin!(notified(0b001)), pin!(notified(0b010)));
        let either = poll_fn(|context| match one.as_mut().poll(context) {
            Poll::Pending => other.as_mut().poll(context),
            ready => ready,
        });
        let bits = either.await;
        steps.borrow_mut().push(bits);
    });
    block_on(&clock, notified(0b100));
    assert_eq!(seen.take(), [0b010]);
}

#[test]
fn a_deadline_is_kept_by_a_component_that_has_no_rest() {
    const TURNS: usize = 64;
    let clock = Clock::default();
    let is_over = Rc::new(Cell::new(false));
    let over = is_over.clone();
    spawn(async move {
        sleep_until(5).await;
        over.set(true);
    });
    block_on(&clock, async {
        for _ in 0..TURNS {
            clock.now_ns.set(clock.now_ns() + 1);
            yield_now().await;
        }
    });
    assert!(is_over.get() && clock.sleeps.take().is_empty(), "it sleeps at {}", clock.now_ns());
}

/// A port with one message.
struct Brings {
    rank: Rank,
    is_there: Cell<bool>,
    seen: Seen<&'static str>,
    waits: Rc<Cell<Option<Waker>>>,
}

impl Port for Brings {
    fn poll(&self) {
        if self.is_there.take() {
            self.seen.borrow_mut().push(if self.rank == Rank::Response { "answer" } else { "request" });
            self.waits.take().into_iter().for_each(Waker::wake);
        }
    }

    fn ready(&self) -> bool {
        self.is_there.get()
    }

    fn arm(&self) -> bool {
        false
    }

    fn nudge(&self) {}

    fn disarm(&self) {}

    fn flush(&self) {}

    fn badge(&self) -> u64 {
        1
    }

    fn rank(&self) -> Rank {
        self.rank
    }

    fn remote(&self) -> bool {
        false
    }
}

#[test]
fn whom_an_answer_wakes_goes_on_before_new_work_is_taken_in() {
    let (seen, waits) = (Seen::default(), Rc::<Cell<Option<Waker>>>::default());
    let (steps, keep) = (seen.clone(), waits.clone());
    spawn(async move {
        let mut is_first = true;
        poll_fn(|context| {
            keep.set(Some(context.waker().clone()));
            if core::mem::take(&mut is_first) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        steps.borrow_mut().push("goes on");
    });
    run_all();
    for rank in [Rank::Request, Rank::Response] {
        let waits = if rank == Rank::Response { waits.clone() } else { Rc::default() };
        register(Rc::new(Brings { rank, is_there: Cell::new(true), seen: seen.clone(), waits }));
    }
    run_all();
    assert_eq!(seen.take(), ["answer", "goes on", "request"]);
}

/// A clock by which each look at it is one for everything.
#[derive(Default)]
struct Racing(Cell<u64>);

impl Platform for Racing {
    fn now_ns(&self) -> u64 {
        self.0.set(self.0.get() + 2_000_000_000);
        self.0.get()
    }

    fn wait(&self, deadline_ns: u64) -> u64 {
        assert_eq!(deadline_ns, 0, "it is busy");
        0
    }

    fn ran_ticks(&self) -> u64 {
        0
    }
}

#[test]
fn a_task_has_its_turns_once_whoever_wakes_it() {
    const TURNS: u32 = 64;
    let turns = Rc::new(Cell::new(0_u32));
    let own = turns.clone();
    spawn(async move {
        loop {
            own.set(own.get() + 1);
            yield_now().await;
        }
    });
    block_on(&Racing::default(), async {
        for _ in 0..TURNS {
            yield_now().await;
        }
    });
    // It runs before new work is taken in, and after that.
    assert!(turns.get().abs_diff(2 * TURNS) <= 2, "{} times in {TURNS} turns", turns.get());
}

#[test]
fn a_task_that_waits_is_left_alone_in_a_short_time() {
    let polled = Rc::new(Cell::new(0));
    let own = polled.clone();
    spawn(poll_fn(move |_| {
        own.set(own.get() + 1);
        Poll::Pending
    }));
    block_on(&Clock::default(), async {
        for _ in 0..64 {
            yield_now().await;
        }
    });
    assert_eq!(polled.get(), 1);
}
