//! A component that is only beaten: what nobody wakes goes on all the same.

use alloc::rc::Rc;
use core::cell::Cell;
use core::future::poll_fn;
use core::task::Poll;

use crate::turn::SWEEP_NS;
use crate::{Platform, Port, Rank, block_on, register, spawn};

/// The bit of the monitor's beat, which is of no port.
const BEAT: u64 = 1 << 60;
const BEAT_NS: u64 = 30_000_000;

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

    fn arm(&self) {
        self.armed.set(true);
    }

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
