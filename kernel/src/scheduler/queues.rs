//! Ready queues: round robin among the groups of a priority, and within each (decision 65).
//!
//! The first group of a queue runs its first time. It stays first until its turn is over or nothing
//! in it is ready; then it goes to the end, however many contexts it has. Invariants: a bit of
//! `ready_set` says whether a queue has anything; the time that runs is in no queue, and only it
//! has something granted.
//!
//! ```text
//!            make_ready            pick: grant
//!  blocked ────────────▶ waiting ─────────────▶ running
//!     ▲                     ▲                      │ slice over: refilled, last of its group
//!     │                     └──────────────────────┤ turn over: group refilled, last of its queue
//!     └────────────────────────────────────────────┘ preempted: first of the first group
//!              the end of its chain blocks: settle
//! ```

use super::Scheduler;
use crate::objects::{Ptr, Schedule};

/// Where time goes in its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// It goes on when the group does.
    Front,
    /// All others of the group come first.
    Back,
}

impl Scheduler {
    #[inline(always)]
    pub(super) fn enqueue(&mut self, schedule: Ptr<Schedule>) {
        if !schedule.is_queued() && self.running != Some(schedule) {
            self.push(schedule);
        }
    }

    #[inline(never)]
    fn push(&mut self, schedule: Ptr<Schedule>) {
        if schedule.level.get() == Schedule::CLOSED {
            return self.await_window(schedule);
        }
        let band = schedule.band;
        self.insert(schedule, Place::Back, if band.is_queued() { None } else { Some(Place::Back) });
        self.changed = true;
    }

    /// Puts it into its queue, and its group too if that has to move.
    fn insert(&mut self, schedule: Ptr<Schedule>, place: Place, group: Option<Place>) {
        let (level, band) = (schedule.level.get(), schedule.band);
        let queue = if Self::is_window(level) { &self.in_windows[level / 2] } else { &band.waiting };
        match place {
            Place::Front => queue.push_front(schedule),
            Place::Back => queue.push_back(schedule),
        }
        if let Some(place) = group.filter(|_| !Self::is_window(level)) {
            let groups = &self.ready[schedule.priority];
            if band.is_queued() {
                groups.remove(band);
            }
            match place {
                Place::Front => groups.push_front(band),
                Place::Back => groups.push_back(band),
            }
        }
        self.ready_set |= 1 << level;
    }

    pub(super) fn dequeue(&mut self, schedule: Ptr<Schedule>) {
        let (level, band) = (schedule.level.get(), schedule.band);
        assert!(self.ready_set & 1 << level != 0, "a queue that has something is known to have it");
        let is_empty = if Self::is_window(level) {
            let queue = &self.in_windows[level / 2];
            queue.remove(schedule);
            queue.is_empty()
        } else {
            let groups = &self.ready[schedule.priority];
            band.waiting.remove(schedule);
            if band.waiting.is_empty() {
                groups.remove(band);
            }
            groups.is_empty()
        };
        if is_empty {
            self.ready_set &= !(1 << level);
        }
    }

    /// Takes out what is first of all.
    pub(super) fn take_first(&mut self) -> Option<Ptr<Schedule>> {
        let level = self.ready_set.checked_ilog2()? as usize;
        let first = if Self::is_window(level) {
            self.in_windows[level / 2].first()
        } else {
            self.ready[level / 2].first().and_then(|band| band.waiting.first())
        };
        let schedule = first.expect("a band is queued exactly if time waits in it");
        self.dequeue(schedule);
        Some(schedule)
    }

    /// Levels between those of two priorities are for gangs in their windows.
    const fn is_window(level: usize) -> bool {
        level % 2 == 1
    }

    /// What runs from now on, if anything; bills are up to date.
    pub(super) fn run(&mut self, next: Option<Ptr<Schedule>>) {
        if let Some(before) = self.running.take() {
            before.settle();
            self.end_turn_if(before, before.band.left_ns.get() <= 0);
        }
        next.iter().for_each(|schedule| schedule.grant());
        self.running = next;
    }

    /// What runs is over, given up, or of a lower level than what is ready: it stops. Tells where
    /// it and its group belong then, and whether something else comes first.
    pub(super) fn stop(&mut self, schedule: Ptr<Schedule>, yielded: bool, is_over: bool) -> ([Place; 2], bool) {
        let level = schedule.level.get();
        schedule.settle();
        self.running = None;
        let ends_slice = yielded || schedule.left_ns.get() <= 0;
        if ends_slice {
            schedule.refill();
        }
        let ends_turn = yielded || schedule.band.left_ns.get() <= 0;
        self.end_turn_if(schedule, ends_turn);
        // Within the slice, others of its own group do not count.
        let is_behind_group = self.ready[level / 2].first().is_some_and(|first| first != schedule.band);
        let is_behind = is_over && self.is_rivalled(level) && (ends_slice || is_behind_group);
        let place_if = |ends| if ends { Place::Back } else { Place::Front };
        ([place_if(ends_slice), place_if(ends_turn)], is_behind || self.is_rivalled(level + 1))
    }

    /// Puts what stopped into its queue.
    pub(super) fn put_back(&mut self, schedule: Ptr<Schedule>, [place, group]: [Place; 2]) {
        self.insert(schedule, place, Some(group));
    }

    /// If its group has had its turn, the others come first.
    fn end_turn_if(&mut self, schedule: Ptr<Schedule>, is_over: bool) {
        let band = schedule.band;
        if is_over {
            band.refill();
            if band.is_queued() {
                let groups = &self.ready[schedule.priority];
                groups.remove(band);
                groups.push_back(band);
            }
        }
    }

    /// The length of slices from now on, and, if not 0, the period whose budget one is.
    pub fn set_slice(&mut self, schedule: Ptr<Schedule>, slice_ns: u64, period_ns: u64) {
        let is_running = self.running == Some(schedule);
        if is_running {
            schedule.settle();
        }
        schedule.set_slice(slice_ns, period_ns, self.since_ns);
        if is_running {
            schedule.grant();
        }
        self.changed = true;
    }
}
