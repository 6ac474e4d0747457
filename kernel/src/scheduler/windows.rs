//! Windows of gangs (Barrelfish section 4.8; decision 39): time that runs in `[n * period +
//! phase, + slice)` of the clock only.
//!
//! All cores have one clock, so members of a gang on several cores run together without a message:
//! each core's kernel computes the windows by itself. In its window a member comes before other
//! time of its priority and after higher ones; while it waits, others use the window. Outside its
//! window it does not run. It is in `turns` while it is ready or running, ordered by when its
//! window next opens or closes. A member that is blocked when its window closes leaves `turns`, so
//! a core whose gangs sleep arms no timer for them. The steps of a throttled core are windows of
//! all its time. A step opens and closes a bounded number of windows; nothing runs until all that
//! are due are done.

use super::{Scheduler, THROTTLE_STEPS, resolve};
use crate::hardware;
use crate::objects::{Ptr, Schedule, upcall};
use crate::steps::{WAKE_WORK, WAKES};
use core::ptr::NonNull;
use intrusive_collections::{KeyAdapter, UnsafeRef, intrusive_adapter};

intrusive_adapter!(pub(super) ByTurn = UnsafeRef<Schedule>: Schedule { turn => intrusive_collections::RBTreeLink });
impl<'a> KeyAdapter<'a> for ByTurn {
    type Key = u64;
    fn get_key(&self, schedule: &'a Schedule) -> u64 {
        schedule.turn_ns.get()
    }
}

/// When time of a gang may run, in nanoseconds of the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GangWindow {
    /// From one window to the next; at least `slice_ns`.
    pub period_ns: u64,
    /// How long it is open; at least 1.
    pub slice_ns: u64,
    /// When the first one opens; below `period_ns`.
    pub phase_ns: u64,
}

impl GangWindow {
    /// Whether it is open, and when that next changes or, if it never closes, the next one begins.
    pub fn at(self, now_ns: u64) -> (bool, u64) {
        let place_ns = (now_ns + (self.period_ns - self.phase_ns)) % self.period_ns;
        let is_open = place_ns < self.slice_ns;
        let end_ns = if is_open { self.slice_ns } else { self.period_ns };
        (is_open, now_ns + (end_ns - place_ns))
    }

    /// Whether the two are never open at once: openings are apart by their difference in phase and
    /// any multiple of what divides both periods.
    pub fn is_clear_of(self, other: GangWindow) -> bool {
        let step_ns = greatest_common_divisor(self.period_ns, other.period_ns);
        let after_ns = (other.phase_ns + step_ns - self.phase_ns % step_ns) % step_ns;
        self.slice_ns <= after_ns && other.slice_ns <= step_ns - after_ns
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Time with windows that one core has at most: a new one is compared with all others in one step.
pub const MEMBERS_MAX: usize = WAKES as usize;

/// Length of a step of a throttled core's turn.
const THROTTLE_STEP_NS: u64 = 1_000_000;

impl Scheduler {
    /// Whether there are fewer than [`MEMBERS_MAX`] other members on this core, asleep or not, and
    /// none of them has a window that is ever open together with this one.
    pub fn has_room(&self, schedule: Ptr<Schedule>, window: GangWindow) -> bool {
        let members = core::iter::successors(self.members.first(), |member| member.member.next());
        let others = members.filter(|member| *member != schedule).filter_map(|member| member.window.get());
        let mut places = 1..MEMBERS_MAX;
        others
            .inspect(|_| hardware::count_work(WAKE_WORK))
            .all(|other| places.next().is_some() && window.is_clear_of(other))
    }

    /// `schedule` runs in these windows only, for which there is room, or again at any time.
    pub fn set_window(&mut self, schedule: Ptr<Schedule>, window: Option<GangWindow>) {
        assert!(window.is_none() || schedule.period_ns.get() == 0, "time has a budget or windows");
        let is_ready = self.withdraw(schedule);
        if schedule.window.replace(window).is_some() {
            self.members.remove(schedule);
        }
        if window.is_some() {
            self.members.push_back(schedule);
        }
        schedule.level.set(window.map_or(Schedule::level_of(schedule.priority), |_| Schedule::CLOSED));
        if is_ready {
            self.enqueue(schedule);
        }
        self.changed = true;
    }

    /// Whether programs may not run now; a throttled core arms its timer for when that changes.
    #[cold]
    pub(super) fn is_held(&mut self) -> bool {
        if self.ends_contexts || self.speed == THROTTLE_STEPS {
            return self.ends_contexts;
        }
        let step = self.since_ns / THROTTLE_STEP_NS;
        let (turn, place) = (step - step % THROTTLE_STEPS, step % THROTTLE_STEPS);
        let is_held = place >= self.speed;
        self.arm_timer((turn + if is_held { THROTTLE_STEPS } else { self.speed }) * THROTTLE_STEP_NS);
        is_held
    }

    /// Puts ready time with a window aside until the window opens.
    #[cold]
    pub(super) fn await_window(&mut self, schedule: Ptr<Schedule>) {
        if !schedule.turn.is_linked() {
            self.turn(schedule, hardware::now_ns());
        }
    }

    /// Opens and closes windows and ends periods of budgets that are due, as many as one step may,
    /// and arms the timer for the next one; tells whether none that is due is left. The clock was
    /// just read.
    pub(super) fn turn_windows(&mut self) -> bool {
        for _ in 0..WAKES {
            let due = self.turns.front().get().filter(|schedule| schedule.turn_ns.get() <= self.since_ns);
            let Some(schedule) = due else { break };
            hardware::count_work(WAKE_WORK);
            // SAFETY: time is withdrawn before it ends.
            let schedule = unsafe { Ptr::new(NonNull::from(schedule)) };
            let was_open = schedule.level.get() != Schedule::CLOSED;
            let context = resolve(schedule);
            if let Some(context) =
                context.filter(|context| self.running == Some(schedule) && self.current == Some(*context))
            {
                upcall::preempted(context);
            }
            self.withdraw(schedule);
            // A blocked member needs no windows until it is made ready.
            if !was_open || context.is_some() {
                self.turn(schedule, self.since_ns);
            }
        }
        let Some(next_ns) = self.turns.front().get().map(|first| first.turn_ns.get()) else { return true };
        self.arm_timer(next_ns);
        next_ns > self.since_ns
    }

    /// Takes it out of all queues and trees; tells whether it was ready or running.
    pub(super) fn withdraw(&mut self, schedule: Ptr<Schedule>) -> bool {
        let (is_queued, is_running) = (schedule.is_queued(), self.running == Some(schedule));
        if is_queued {
            self.dequeue(schedule);
        }
        if is_running {
            self.leave(schedule);
            self.running = None;
        }
        let is_linked = schedule.turn.is_linked();
        if is_linked {
            // SAFETY: it is in this tree.
            unsafe { self.turns.cursor_mut_from_ptr(schedule.address().as_ptr()).remove() };
            schedule.level.set(Schedule::CLOSED);
            self.specials_changed();
        }
        assert!(!schedule.is_queued() && !schedule.turn.is_linked(), "withdrawn time is still queued");
        is_queued || is_running || is_linked
    }

    /// Puts time whose budget is spent aside until its period ends. A callee that it is donated to
    /// runs on other time only.
    #[cold]
    pub(super) fn close_until(&mut self, schedule: Ptr<Schedule>, at_ns: u64) {
        assert!(schedule.window.get().is_none() && !schedule.is_queued(), "time has a budget or windows");
        schedule.level.set(Schedule::CLOSED);
        self.turn_at(schedule, at_ns);
    }

    fn turn_at(&mut self, schedule: Ptr<Schedule>, at_ns: u64) {
        schedule.turn_ns.set(at_ns);
        // SAFETY: time is withdrawn before it ends.
        self.turns.insert(unsafe { UnsafeRef::from_raw(schedule.address().as_ptr()) });
        self.arm_timer(at_ns);
        self.specials_changed();
    }

    /// Queues it if its window is open, or puts it aside until the window opens. Time without
    /// windows gets a new budget.
    fn turn(&mut self, schedule: Ptr<Schedule>, now_ns: u64) {
        let Some(window) = schedule.window.get() else {
            schedule.level.set(Schedule::level_of(schedule.priority));
            return if resolve(schedule).is_some() {
                self.enqueue(schedule)
            };
        };
        let (is_open, next_ns) = window.at(now_ns);
        assert!(next_ns > now_ns, "a window opens or closes in the past");
        self.turn_at(schedule, next_ns);
        schedule.level.set(if is_open { Schedule::level_of(schedule.priority) + 1 } else { Schedule::CLOSED });
        if is_open {
            self.enqueue(schedule);
        }
    }
}
