//! A component that is only beaten: what nobody wakes goes on all the same.

use alloc::rc::Rc;
use core::cell::Cell;
use core::future::poll_fn;
use core::task::Poll;

use crate::turn::SWEEP_NS;
use crate::{
    Platform, Port, PortId, Rank, announce, block_on, is_at_rest, mark, register, rest, spawn, take_in_all, unregister,
    yield_now,
};

/// The bit of the monitor's beat, which is of no port, and how often one at rest is beaten.
const BEAT: u64 = 1 << 60;
const BEAT_NS: u64 = 1_000_000_000;

/// A clock that each wait moves to the next beat.
#[derive(Default)]
struct Beaten {
    now_ns: Cell<u64>,
    /// Whom a message is sent to while everybody sleeps.
    port: Option<Rc<Unrung>>,
}

impl Platform for Beaten {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn ran_ticks(&self) -> u64 {
        0
    }

    fn wait(&self, deadline_ns: u64) -> u64 {
        if deadline_ns == 0 {
            return 0;
        }
        self.now_ns.set(self.now_ns.get() + BEAT_NS);
        self.port.iter().for_each(|port| port.is_there.set(port.armed.get() && !port.taken.get()));
        assert!(self.now_ns.get() < 10 * SWEEP_NS, "it stays asleep");
        BEAT
    }
}

#[test]
fn a_task_whose_wake_up_was_lost_goes_on_with_the_next_sweep() {
    let (platform, is_there, seen) = (Beaten::default(), Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (event, done) = (is_there.clone(), seen.clone());
    spawn(async move {
        // It keeps no waker.
        poll_fn(|_| if event.get() { Poll::Ready(()) } else { Poll::Pending }).await;
        done.set(true);
    });
    let (first_ns, polled) = (Cell::new(None), Cell::new(0));
    block_on(
        &platform,
        poll_fn(|_| {
            polled.set(polled.get() + 1);
            is_there.set(true);
            if seen.get() {
                return Poll::Ready(());
            }
            first_ns.set(first_ns.get().or(Some(platform.now_ns())));
            Poll::Pending
        }),
    );
    let waited_ns = platform.now_ns() - first_ns.get().unwrap();
    assert!(waited_ns <= 3 * SWEEP_NS, "{waited_ns} ns");
    assert!(polled.get() <= 4, "once a sweep, not once a beat: {}", polled.get());
}

/// One message that its sender did not ring for.
#[derive(Default)]
struct Unrung {
    armed: Cell<bool>,
    is_there: Cell<bool>,
    taken: Cell<bool>,
}

impl Port for Unrung {
    fn poll(&self) {
        let news = self.is_there.take();
        self.taken.set(self.taken.get() || news);
    }

    fn ready(&self) -> bool {
        self.is_there.get()
    }

    fn arm(&self) -> bool {
        self.armed.set(true);
        false
    }

    fn nudge(&self) {}

    fn disarm(&self) {
        self.armed.set(false);
    }

    fn flush(&self) {}

    fn badge(&self) -> u64 {
        1
    }

    fn rank(&self) -> Rank {
        Rank::Request
    }

    fn remote(&self) -> bool {
        false
    }
}

#[test]
fn a_message_that_nobody_rang_for_is_found_by_the_next_sweep() {
    let port = Rc::new(Unrung::default());
    let platform = Beaten { port: Some(port.clone()), ..Beaten::default() };
    register(port.clone());
    block_on(&platform, poll_fn(|_| if port.taken.get() { Poll::Ready(()) } else { Poll::Pending }));
    assert!(platform.now_ns() <= 3 * SWEEP_NS, "{} ns", platform.now_ns());
}

/// Who is about to refuse something takes in first what was sent before.
#[test]
fn a_message_that_nobody_rang_for_yet_is_taken_in_when_that_is_asked_for() {
    let port = Rc::new(Unrung::default());
    let platform = Beaten::default();
    register(port.clone());
    block_on(&platform, async {
        yield_now().await;
        port.is_there.set(true);
        take_in_all().await;
        assert!(port.taken.get(), "it lies there still");
    });
    assert!(platform.now_ns() < SWEEP_NS, "{} ns", platform.now_ns());
}

/// Counts what the executor does to a port.
struct Counted {
    rank: Rank,
    is_armed: Cell<bool>,
    polled: Cell<u32>,
    rings: Cell<u32>,
    /// Messages that are there, and one that comes as the port is armed.
    messages: Cell<u32>,
    comes_late: Cell<bool>,
    /// Its peer has not taken everything.
    is_behind: Cell<bool>,
    is_remote: bool,
    /// Messages that the next time it is polled are left.
    left: Cell<u32>,
    disarmed: Cell<u32>,
}

impl Counted {
    fn new(rank: Rank) -> (Rc<Counted>, PortId) {
        Counted::on_core(rank, false)
    }

    fn on_core(rank: Rank, is_remote: bool) -> (Rc<Counted>, PortId) {
        let [is_armed, comes_late, is_behind] = [false; 3].map(Cell::new);
        let [polled, rings, messages, left, disarmed] = [0; 5].map(Cell::new);
        let port =
            Counted { rank, is_armed, polled, rings, messages, comes_late, is_behind, is_remote, left, disarmed };
        let port = Rc::new(port);
        let id = register(port.clone());
        (port, id)
    }
}

impl Port for Counted {
    fn poll(&self) {
        self.polled.set(self.polled.get() + 1);
        self.messages.set(self.left.take());
    }

    fn ready(&self) -> bool {
        self.messages.get() > 0
    }

    fn arm(&self) -> bool {
        self.is_armed.set(true);
        self.messages.set(self.messages.get() + u32::from(self.comes_late.take()));
        self.is_behind.get()
    }

    fn nudge(&self) {
        // The executor rings a peer in the same component.
        crate::post(self.badge());
        self.is_behind.set(false);
    }

    fn disarm(&self) {
        self.is_armed.set(false);
        self.disarmed.set(self.disarmed.get() + 1);
    }

    fn flush(&self) {
        self.rings.set(self.rings.get() + 1);
    }

    fn badge(&self) -> u64 {
        2
    }

    fn rank(&self) -> Rank {
        self.rank
    }

    fn remote(&self) -> bool {
        self.is_remote
    }
}

/// Time stands, and nobody rings.
struct Quiet;

impl Platform for Quiet {
    fn now_ns(&self) -> u64 {
        1
    }

    fn ran_ticks(&self) -> u64 {
        0
    }

    fn wait(&self, deadline_ns: u64) -> u64 {
        assert_eq!(deadline_ns, 0, "it may not sleep");
        0
    }
}

#[test]
fn who_announces_has_the_peer_rung_and_is_not_polled_for_it() {
    let (port, id) = Counted::new(Rank::Request);
    rest(&Quiet, false);
    assert!(port.is_armed.get() && is_at_rest());
    let polled = port.polled.get();
    announce(id);
    announce(id);
    assert!(port.is_armed.get() && !is_at_rest());
    rest(&Quiet, false);
    assert_eq!((port.rings.get(), port.polled.get(), is_at_rest()), (1, polled, true));
    // A port that expects an answer is polled, and needs no ring.
    mark(id);
    assert!(!port.is_armed.get());
    rest(&Quiet, false);
    assert!(port.rings.get() == 2 && port.polled.get() > polled && port.is_armed.get() && is_at_rest());
}

#[test]
fn what_comes_while_peers_are_told_to_ring_is_taken_before_rest() {
    for rank in [Rank::Response, Rank::Request] {
        let (port, id) = Counted::new(rank);
        mark(id);
        port.comes_late.set(true);
        rest(&Quiet, false);
        assert_eq!((port.messages.get(), port.is_armed.get(), is_at_rest()), (0, true, true), "{rank:?}");
        // The same where nothing is left to be done but that.
        crate::port::deliver(port.badge());
        port.comes_late.set(true);
        rest(&Quiet, false);
        assert_eq!((port.messages.get(), port.is_armed.get(), is_at_rest()), (0, true, true), "{rank:?}");
    }
}

#[test]
fn a_peer_that_is_behind_is_nudged_once() {
    let (port, id) = Counted::new(Rank::Request);
    rest(&Quiet, false);
    let polled = port.polled.get();
    mark(id);
    port.is_behind.set(true);
    rest(&Quiet, false);
    assert!(!port.is_behind.get() && port.polled.get() > polled && port.is_armed.get() && is_at_rest());
}

#[test]
fn a_peer_on_this_core_that_rings_is_served_once_and_rings_again() {
    for rank in [Rank::Response, Rank::Request] {
        let (port, id) = Counted::new(rank);
        rest(&Quiet, false);
        let (polled, disarmed) = (port.polled.get(), port.disarmed.get());
        let served = || (port.polled.get() - polled, port.disarmed.get() - disarmed, port.is_armed.get());
        // Both of its bits at once are one look.
        crate::port::deliver(port.badge());
        crate::port::deliver(port.badge());
        assert!(!is_at_rest());
        rest(&Quiet, false);
        assert_eq!((served(), is_at_rest()), ((1, 0, true), true), "{rank:?}");
        // What is left of many messages keeps it hot until that is taken.
        crate::port::deliver(port.badge());
        port.left.set(3);
        rest(&Quiet, false);
        assert_eq!((served(), port.messages.get(), is_at_rest()), ((3, 1, true), 0, true), "{rank:?}");
        // One that is hot already is polled as such.
        crate::port::deliver(port.badge());
        mark(id);
        rest(&Quiet, false);
        assert_eq!((served(), is_at_rest()), ((4, 2, true), true), "{rank:?}");
        // And one that went is not served.
        crate::port::deliver(port.badge());
        unregister(id);
        rest(&Quiet, false);
        assert_eq!((served().0, is_at_rest()), (4, true), "{rank:?}");
    }
}

#[test]
fn a_peer_on_another_core_that_rings_need_not_ring_again() {
    let (port, _) = Counted::on_core(Rank::Request, true);
    rest(&Quiet, false);
    let disarmed = port.disarmed.get();
    crate::port::deliver(port.badge());
    assert!(!port.is_armed.get() && port.disarmed.get() == disarmed + 1);
    rest(&Quiet, false);
    assert!(port.is_armed.get() && is_at_rest());
}
