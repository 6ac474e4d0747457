//! What ports see beside each other: who comes and goes, how long one looks for an answer, and how
//! often notifications are looked for.
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use executor::{
    Platform, Port, PortId, Rank, announce, block_on, is_at_rest, mark, notified, post, register, rest, spawn,
    unregister, yield_now,
};

/// Counts what is done to it.
struct Line {
    rank: Rank,
    badge: u64,
    is_remote: bool,
    /// There is always something more.
    is_busy: Cell<bool>,
    polled: Cell<u32>,
    rings: Cell<u32>,
    /// Whether it was looked at before anybody asked the peer to ring, or behind that, first.
    is_looked_at_first: Cell<Option<bool>>,
    waits: Cell<Option<Waker>>,
}

impl Line {
    /// Waits until it was polled some more times.
    async fn turn(&self) {
        let until = self.polled.get() + 30;
        poll_fn(|context| {
            self.waits.set(Some(context.waker().clone()));
            if self.polled.get() >= until { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn register(rank: Rank, badge: u64, is_remote: bool) -> (Rc<Line>, PortId) {
        let [polled, rings] = [0; 2].map(Cell::new);
        let (is_busy, is_looked_at_first, waits) = (Cell::new(false), Cell::new(None), Cell::new(None));
        let line = Rc::new(Line { rank, badge, is_remote, is_busy, polled, rings, is_looked_at_first, waits });
        let id = register(line.clone());
        (line, id)
    }
}

impl Port for Line {
    fn poll(&self) {
        self.polled.set(self.polled.get() + 1);
        if self.polled.get().is_multiple_of(30) {
            self.waits.take().into_iter().for_each(Waker::wake);
        }
    }

    fn ready(&self) -> bool {
        self.is_looked_at_first.set(self.is_looked_at_first.get().or(Some(true)));
        self.is_busy.get()
    }

    fn arm(&self) -> bool {
        self.is_looked_at_first.set(self.is_looked_at_first.get().or(Some(false)));
        false
    }

    fn nudge(&self) {}

    fn disarm(&self) {}

    fn flush(&self) {
        self.rings.set(self.rings.get() + 1);
    }

    fn badge(&self) -> u64 {
        self.badge
    }

    fn rank(&self) -> Rank {
        self.rank
    }

    fn remote(&self) -> bool {
        self.is_remote
    }
}

/// A clock that goes on as it is read; bits that come, one after the other.
#[derive(Default)]
struct Clock {
    reads: Cell<u32>,
    looks: Cell<u32>,
    /// Bits that each look gives.
    rings: Cell<u64>,
    /// Bits that end sleeps.
    ends: RefCell<Vec<u64>>,
}

impl Platform for Clock {
    fn now_ns(&self) -> u64 {
        self.reads.set(self.reads.get() + 1);
        u64::from(self.reads.get()) * 1_000
    }

    fn wait(&self, deadline_ns: u64) -> u64 {
        if deadline_ns > 0 {
            return self.ends.borrow_mut().pop().expect("it sleeps for ever");
        }
        self.looks.set(self.looks.get() + 1);
        self.rings.get()
    }

    fn ran_ticks(&self) -> u64 {
        0
    }
}

#[test]
fn a_port_that_goes_leaves_the_others_as_they_were() {
    let clock = Clock::default();
    let two = || [(); 2].map(|()| Line::register(Rank::Request, 1, false));
    // Both are polled each turn.
    let [(gone, going), (kept, staying)] = two();
    unregister(going);
    rest(&clock, true);
    assert_eq!((gone.polled.get(), kept.polled.get(), is_at_rest()), (0, 1, true));
    unregister(staying);
    // Both have sent something.
    let [(gone, going), (kept, staying)] = two();
    rest(&clock, false);
    announce(going);
    announce(staying);
    unregister(going);
    rest(&clock, false);
    assert_eq!((gone.rings.get(), kept.rings.get(), is_at_rest()), (0, 1, true));
    unregister(staying);
    // Both are notified by the same bit.
    let [(gone, going), (kept, staying)] = two();
    rest(&clock, false);
    let polled = [&gone, &kept].map(|line| line.polled.get());
    unregister(going);
    clock.rings.set(1);
    rest(&clock, true);
    assert_eq!((gone.polled.get(), kept.polled.get()), (polled[0], polled[1] + 1));
    unregister(staying);
}

/// How often the clock is read before a component sleeps that has nothing to do.
fn reads_before_sleep(clock: &Clock) -> u32 {
    let before = clock.reads.get();
    clock.ends.replace(vec![1 << 40]);
    block_on(clock, notified(1 << 40));
    clock.reads.get() - before
}

#[test]
fn an_answer_is_looked_for_while_one_may_come_from_another_core() {
    let clock = Clock::default();
    let (_, remote) = Line::register(Rank::Response, 1, true);
    // It costs 1 us to read the clock here, and an answer is looked for for 6.
    let waits = |clock: &Clock| match reads_before_sleep(clock) {
        0..=3 => false,
        6..=10 => true,
        other => panic!("{other} readings"),
    };
    assert!(waits(&clock), "it may be answered at once");
    assert!(!waits(&clock), "it will be notified");
    mark(remote);
    assert!(waits(&clock));
    let (_, local) = Line::register(Rank::Response, 2, false);
    assert!(!waits(&clock), "a peer on this core does not run meanwhile");
    mark(local);
    mark(remote);
    unregister(local);
    assert!(waits(&clock));
    mark(remote);
    unregister(remote);
    assert!(!waits(&clock), "nobody is left");
    let (_, cold) = Line::register(Rank::Response, 1, true);
    waits(&clock);
    unregister(cold);
    assert!(!waits(&clock));
}

#[test]
fn who_cannot_have_sent_is_not_looked_at_before_it_is_told_to_ring() {
    // A client of this core does not run while we do.
    for (rank, is_remote, looked) in
        [(Rank::Request, false, false), (Rank::Response, false, true), (Rank::Request, true, true)]
    {
        let (line, id) = Line::register(rank, 1, is_remote);
        spawn(async {});
        rest(&Clock::default(), false);
        assert_eq!(line.is_looked_at_first.get(), Some(looked), "{rank:?}, on another core: {is_remote}");
        assert!(line.polled.get() <= 2, "{} turns for nothing", line.polled.get());
        unregister(id);
    }
}

#[test]
fn a_quiet_port_becomes_cold_beside_one_that_always_has_something() {
    const POLLS: u32 = 200;
    let (busy, _) = Line::register(Rank::Response, 1, false);
    let (quiet, _) = Line::register(Rank::Response, 2, false);
    busy.is_busy.set(true);
    spawn({
        let busy = busy.clone();
        async move {
            while busy.polled.get() < POLLS {
                busy.turn().await;
            }
            post(1 << 40);
        }
    });
    block_on(&Clock::default(), notified(1 << 40));
    assert!(quiet.polled.get() < POLLS / 4, "{} times", quiet.polled.get());
}

#[test]
fn all_tasks_are_done_before_rest_but_the_main_future() {
    let steps = Rc::new(Cell::new(0));
    let own = steps.clone();
    spawn(async move {
        for _ in 0..3 {
            yield_now().await;
            own.set(own.get() + 1);
        }
    });
    rest(&Clock::default(), false);
    assert_eq!((steps.get(), is_at_rest()), (3, true));
}

#[test]
fn a_bit_that_was_posted_and_rung_for_is_there() {
    let clock = Clock::default();
    post(1 << 40);
    clock.rings.set(1 << 40);
    rest(&clock, true);
    assert_eq!(block_on(&clock, notified(1 << 40)), 1 << 40);
}

#[test]
fn a_bit_that_was_posted_is_looked_at_before_rest() {
    assert!(is_at_rest());
    post(1 << 40);
    assert!(!is_at_rest());
    rest(&Clock::default(), false);
    assert!(is_at_rest());
}

/// So many ports, each of which has something in each turn, are as much as some turns.
#[test]
fn notifications_are_looked_for_sooner_where_turns_are_long() {
    const PORTS: usize = 16;
    const TURNS: usize = 96;
    for (is_hot, rank) in [(true, Rank::Request), (true, Rank::Response), (false, Rank::Request)] {
        let clock = Clock::default();
        let lines: Vec<_> = (0..PORTS).map(|_| Line::register(rank, 1, false)).collect();
        if is_hot {
            lines.iter().for_each(|(line, _)| line.is_busy.set(true));
        } else {
            rest(&clock, false);
        }
        clock.looks.set(0);
        block_on(&clock, async {
            for _ in 0..TURNS {
                if !is_hot {
                    post(1);
                }
                yield_now().await;
            }
        });
        // A turn is 1, and 2 for its ports: each sixth looks.
        let looks = clock.looks.get() as usize;
        assert!((TURNS / 6 - 1..=TURNS / 6 + 1).contains(&looks), "{looks} looks in {TURNS} turns, hot: {is_hot}");
        for (line, id) in &lines {
            assert!(line.polled.get() as usize >= TURNS - 1, "{} times", line.polled.get());
            unregister(*id);
        }
    }
}
