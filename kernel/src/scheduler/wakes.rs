//! Waking: one context with all time that ends in it, or thousands for the same reason.
//!
//! A chain of single donors is at most 16 long, and is woken at once. If a context has several, a
//! step queues the time of at most [`WAKES`] contexts, and ends as many waits whose deadline
//! passed; a timer for now begins the next step, which does the rest. Invariants: a context with
//! donors still to be woken is in `waking`, and its `next_to_wake` is a donor of it. A donor that
//! joins meanwhile is awake already, so it may be woken twice. A context that blocks again leaves
//! `waking`: what unblocks it begins anew. Donors of a context that has ended are told in the same
//! way; the list holds a reference of it.

use super::{Scheduler, end_of_chain};
use crate::hardware;
use crate::objects::context::State;
use crate::objects::{Context, Ptr};
use crate::state::Kernel;
use crate::steps::{Budget, QUEUE_WORK, WAKES};
use abi::Error;
use core::cell::Cell;
use core::ptr::NonNull;

/// Probes of watched contexts in one step: each may notify one at the end of a chain.
const WATCHES: u32 = WAKES / 4;

impl Scheduler {
    /// Has the next steps wake the donors of `context` from `next` on.
    #[cold]
    fn wake_later(&mut self, context: Ptr<Context>, next: Ptr<Context>) {
        assert!(next.donates_to() == Some(context), "what is to be woken next is no donor");
        self.wake_no_more(context);
        context.next_to_wake.set(Some(next));
        self.waking.push_back(context);
        self.specials_changed();
    }

    /// Has the next steps tell the donors of `context` that it has ended; the list holds a
    /// reference.
    pub(crate) fn fail_later(&mut self, context: Ptr<Context>) {
        assert!(context.state() == State::Dead, "a living context fails its donors");
        self.waking.push_back(context);
        self.specials_changed();
    }

    /// Takes `context` off the list.
    pub(super) fn wake_no_more(&mut self, context: Ptr<Context>) {
        if context.is_waking() {
            self.waking.remove(context);
            context.next_to_wake.set(None);
            self.specials_changed();
        }
    }
}

impl Kernel {
    /// Queues all time that now ends in this runnable context: its own and what it is donated. If
    /// that is the time that runs, see `direct_switch`.
    #[inline(always)]
    pub fn make_ready(&mut self, context: Ptr<Context>) {
        hardware::count_work(QUEUE_WORK);
        if let Some(schedule) = context.schedule.get() {
            self.scheduler.enqueue(schedule);
        }
        if let Some(first) = context.first_donor() {
            self.make_donors_ready(context, first);
        }
    }

    /// Chains of donations are at most 16 long, so is this recursion.
    #[inline(never)]
    fn make_donors_ready(&mut self, context: Ptr<Context>, first: Ptr<Context>) {
        match first.next_donor() {
            None => self.make_ready(first),
            Some(_) => self.wake_donors(context, first),
        }
    }

    /// Queues the time of donors of `context` from that one on, or of as many as this step may.
    #[cold]
    fn wake_donors(&mut self, context: Ptr<Context>, first: Ptr<Context>) {
        let mut next = Some(first);
        while let Some(donor) = next {
            if self.scheduler.wakes_left == 0 {
                return self.scheduler.wake_later(context, donor);
            }
            self.scheduler.wakes_left = self.scheduler.wakes_left.saturating_sub(donor.chain());
            next = donor.next_donor();
            self.make_ready(donor);
        }
        self.scheduler.wake_no_more(context);
    }

    /// Wakes donors that the steps before left, as many as this step may.
    #[cold]
    pub(super) fn wake_rest(&mut self) {
        self.scheduler.wakes_left = WAKES;
        while self.scheduler.wakes_left > 0 {
            let Some(context) = self.scheduler.waking.pop_front() else {
                return self.scheduler.specials_changed();
            };
            if context.state() == State::Dead {
                self.scheduler.wakes_left = 0;
                self.fail_donors(context);
                self.release(context);
                break;
            }
            self.scheduler.wakes_left -= 1;
            let next = context.next_to_wake.take();
            // If the end of its chain is blocked, what unblocks that begins anew.
            if let Some(next) = next.filter(|_| end_of_chain(context).is_some()) {
                self.wake_donors(context, next);
            }
        }
        self.scheduler.arm_timer(self.scheduler.since_ns);
    }

    /// Empties the list after all contexts of this core have ended.
    pub(crate) fn drain_waking(&mut self) {
        while let Some(context) = self.scheduler.waking.pop_front() {
            assert!(context.state() == State::Dead && context.first_donor().is_none(), "all have ended");
            self.release(context);
        }
        self.destroy_queued(&mut Budget::all());
    }

    /// Handles the timer: ends waits whose deadline passed and probes watched contexts.
    pub fn on_timer(&mut self) {
        self.scheduler.timer_ns = u64::MAX;
        self.scheduler.changed = true;
        let now_ns = hardware::now_ns();
        let mut left = WAKES;
        while left > 0
            && let Some(context) = first(self.scheduler.timeouts.front().get(), |context| &context.timeout_ns, now_ns)
        {
            left = left.saturating_sub(context.chain());
            let result = if context.state() == State::Waiting { Ok([0; 3]) } else { Err(Error::Timeout) };
            self.complete(context, result);
        }
        for _ in 0..WATCHES {
            let due = first(self.scheduler.watches.front().get(), |context| &context.watch_ns, now_ns);
            let Some(context) = due else { break };
            self.update_accounting();
            self.watch_probe(context, now_ns);
        }
        let scheduler = &mut self.scheduler;
        let timeout = scheduler.timeouts.front().get().map(|context| context.timeout_ns.get());
        let watch = scheduler.watches.front().get().map(|context| context.watch_ns.get());
        if let Some(next_ns) = timeout.into_iter().chain(watch).min() {
            scheduler.arm_timer(next_ns);
        }
    }
}

/// The first context of a tree, if its time has come.
fn first(context: Option<&Context>, at_ns: fn(&Context) -> &Cell<u64>, now_ns: u64) -> Option<Ptr<Context>> {
    // SAFETY: contexts in the trees are alive.
    context.filter(|context| at_ns(context).get() <= now_ns).map(|context| unsafe { Ptr::new(NonNull::from(context)) })
}
