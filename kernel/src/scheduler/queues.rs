//! Ready queues: round robin among the groups of a priority, and within each (decision 65).
//!
//! The first of a group's ready time represents the group in the queue of its priority, the rest
//! waits in the group: so a group with one ready context costs no more than a plain queue. The
//! first group of a queue runs its first time. It stays first until its turn is over or nothing in
//! it is ready; then it goes to the end, however many contexts it has. Time is charged when it
//! stops running: until then one comparison with the clock tells whether its slice and its group's
//! turn go on. Invariants: a bit of `ready_set` is set exactly if its queue is not empty; the time
//! that runs is in no queue.
//!
//! ```text
//!            make_ready            pick: enter
//!  blocked ────────────▶ waiting ─────────────▶ running
//!     ▲                     ▲                      │ slice over: refilled, last of its group
//!     │                     └──────────────────────┤ turn over: group refilled, last of its queue
//!     └────────────────────────────────────────────┘ preempted: first of the first group
//!              the end of its chain blocks: leave
//! ```

use super::{Scheduler, YIELDED};
use crate::objects::group::Band;
use crate::objects::{Context, Ptr, Schedule, upcall};

impl Scheduler {
    #[inline(always)]
    pub(super) fn enqueue(&mut self, schedule: Ptr<Schedule>) {
        if !schedule.is_queued() && self.running != Some(schedule) {
            self.push(schedule);
        }
    }

    #[inline(never)]
    fn push(&mut self, schedule: Ptr<Schedule>) {
        let level = schedule.level.get();
        let Some(queue) = self.ready.get(level) else { return self.await_window(schedule) };
        debug_assert!(self.ready_set >> level & 1 == u32::from(!queue.is_empty()), "a level's bit is not its queue's");
        let band = schedule.band.get();
        if is_window(level) {
            queue.push_back(schedule);
        } else if band.head.get().is_some() {
            band.rest.push_back(schedule);
        } else {
            band.head.set(Some(schedule));
            queue.push_back(schedule);
        }
        self.ready_set |= 1 << level;
        self.changed = true;
    }

    pub(super) fn dequeue(&mut self, schedule: Ptr<Schedule>) {
        let (level, band) = (schedule.level.get(), schedule.band.get());
        assert!(self.ready_set >> level & 1 != 0, "a level's bit is not set though time waits there");
        let queue = &self.ready[level];
        if band.head.get() == Some(schedule) {
            let next = band.rest.pop_front();
            band.head.set(next);
            if let Some(next) = next {
                queue.insert_after(schedule, next);
            }
        } else if !is_window(level) {
            return band.rest.remove(schedule);
        }
        queue.remove(schedule);
        if queue.is_empty() {
            self.ready_set &= !(1 << level);
        }
    }

    /// The first time of the highest queue.
    fn first(&self) -> Option<Ptr<Schedule>> {
        self.ready[self.ready_set.checked_ilog2()? as usize].first()
    }

    /// Takes the first time of the highest queue out.
    #[inline(always)]
    pub(super) fn take_first(&mut self) -> Option<Ptr<Schedule>> {
        let level = self.ready_set.checked_ilog2()?;
        let queue = &self.ready[level as usize];
        let first = queue.pop_front()?;
        debug_assert!(first.level.get() == level as usize, "time waits at another level than its own");
        let band = first.band.get();
        if band.head.get() == Some(first) {
            let next = band.rest.pop_front();
            band.head.set(next);
            next.iter().for_each(|next| queue.push_front(*next));
        }
        if queue.is_empty() {
            self.ready_set &= !(1 << level);
        }
        Some(first)
    }

    /// Makes `schedule` the running time; accounting is up to date.
    #[inline(always)]
    pub(super) fn enter(&mut self, schedule: Ptr<Schedule>) {
        debug_assert!(!schedule.is_queued() && schedule.level.get() < self.ready.len(), "time runs and waits");
        self.running = Some(schedule);
        self.began_ns = self.since_ns;
        self.set_end(schedule);
    }

    fn set_end(&mut self, schedule: Ptr<Schedule>) {
        let left_ns = schedule.left_ns.get().min(schedule.band.get().left_ns.get());
        self.until_ns = self.since_ns.wrapping_add_signed(left_ns);
    }

    /// Whether neither the running slice nor the turn of its group is over.
    #[inline(always)]
    pub(super) fn is_within(&self) -> bool {
        self.since_ns < self.until_ns
    }

    /// Arms the timer for the end of the running slice, if anything waits for that or it is a
    /// budget.
    #[inline(always)]
    pub(super) fn arm_slice_timer(&mut self) {
        if let Some(schedule) = self.running
            && (self.is_contended(schedule.level.get()) || self.preemption_upcalls > 0 || schedule.period_ns.get() > 0)
        {
            self.arm_timer(self.until_ns);
        }
    }

    /// Charges the running time; domains are charged already.
    #[inline(always)]
    pub(super) fn charge(&mut self) {
        if let Some(schedule) = self.running {
            schedule.charge(self.since_ns.wrapping_sub(self.began_ns) as i64);
            self.began_ns = self.since_ns;
        }
    }

    /// Charges the running time, which stops; the caller chooses what runs instead.
    #[inline(always)]
    pub(super) fn leave(&mut self, schedule: Ptr<Schedule>) {
        if schedule.charge(self.since_ns.wrapping_sub(self.began_ns) as i64) <= 0 {
            self.end_turn(schedule.band.get(), schedule.priority);
        }
    }

    /// Ends the turn of a group: the others come first.
    #[cold]
    fn end_turn(&mut self, band: Ptr<Band>, priority: usize) {
        band.refill();
        if let Some(head) = band.head.get() {
            let queue = &self.ready[Schedule::level_of(priority)];
            queue.remove(head);
            queue.push_back(head);
        }
    }

    /// Preempts the running time, which could go on with `context`, for ready time of a higher
    /// level.
    #[inline(always)]
    pub(super) fn preempt(&mut self, schedule: Ptr<Schedule>, context: Ptr<Context>) {
        if self.is_special && self.current == Some(context) {
            upcall::preempted(context);
        }
        self.leave(schedule);
        self.push_first(schedule);
    }

    /// Ends the running slice, which could go on with `context`, because it is over or given up or
    /// the turn of its group is over: queues the time where it belongs.
    #[cold]
    pub(super) fn end_slice(&mut self, schedule: Ptr<Schedule>, context: Ptr<Context>) {
        assert!(self.running == Some(schedule) && !schedule.is_queued(), "a slice ends that does not run");
        self.charge();
        let (band, yielded) = (schedule.band.get(), self.until_ns == YIELDED);
        let ends_slice = yielded || schedule.left_ns.get() <= 0;
        let ends_turn = yielded || band.left_ns.get() <= 0;
        if ends_slice {
            schedule.refill();
        }
        if schedule.is_spent(self.since_ns) {
            self.close_until(schedule, schedule.refill_at_ns.get());
        } else if let Some(head) = band.head.get().filter(|_| ends_slice && !is_window(schedule.level.get())) {
            band.rest.push_back(schedule);
            let queue = &self.ready[schedule.level.get()];
            queue.remove(head);
            queue.push_front(head);
        } else {
            self.push_first(schedule);
        }
        if ends_turn {
            self.end_turn(band, schedule.priority);
        }
        let is_told = self.is_special && !yielded && self.current == Some(context);
        if is_told && (ends_slice || self.first() != Some(schedule)) {
            upcall::preempted(context);
        }
    }

    /// Makes it the first time of the first group of its priority.
    #[inline(always)]
    fn push_first(&mut self, schedule: Ptr<Schedule>) {
        let level = schedule.level.get();
        let queue = &self.ready[level];
        if !is_window(level)
            && let Some(head) = schedule.band.get().head.replace(Some(schedule))
        {
            queue.remove(head);
            schedule.band.get().rest.push_front(head);
        }
        queue.push_front(schedule);
        self.ready_set |= 1 << level;
    }

    /// Moves it to the band of another group, of its own priority. Accounting is up to date.
    pub fn set_band(&mut self, schedule: Ptr<Schedule>, band: Ptr<Band>) {
        let is_ready = self.withdraw(schedule);
        schedule.band.set(band);
        if is_ready {
            self.enqueue(schedule);
        }
        self.changed = true;
    }

    /// Sets the length of slices and, if not 0, the period whose budget a slice is. Accounting is
    /// up to date.
    pub fn set_slice(&mut self, schedule: Ptr<Schedule>, slice_ns: u64, period_ns: u64) {
        assert!(slice_ns > 0 && (period_ns == 0 || slice_ns <= period_ns), "a budget is longer than its period");
        assert!(period_ns == 0 || schedule.window.get().is_none(), "time has a budget or windows");
        schedule.set_slice(slice_ns, period_ns, self.since_ns);
        if self.running == Some(schedule) {
            self.set_end(schedule);
        }
        self.changed = true;
    }
}

/// Levels between those of two priorities are for gangs in their windows.
const fn is_window(level: usize) -> bool {
    level % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Linked;

    fn all(first: Option<Ptr<Schedule>>) -> impl Iterator<Item = Ptr<Schedule>> {
        core::iter::successors(first, |schedule| Linked::<0>::link(&**schedule).next())
    }

    impl Scheduler {
        /// Asserts the invariants at the head of this file.
        pub(crate) fn assert_queues(&self) {
            for (level, queue) in self.ready.iter().enumerate() {
                assert_eq!(self.ready_set & 1 << level != 0, !queue.is_empty());
                for first in all(queue.first()) {
                    assert!(first.level.get() == level && first.is_queued() && self.running != Some(first));
                    assert_eq!(
                        first.band.get().head.get() == Some(first),
                        !is_window(level),
                        "the first of a group represents it"
                    );
                    if is_window(level) {
                        continue;
                    }
                    assert!(
                        first.priority * 2 == level && first.band.get().left_ns.get() > 0 || self.running.is_some()
                    );
                    for next in all(first.band.get().rest.first()) {
                        assert!(
                            next.level.get() == level
                                && next.band.get() == first.band.get()
                                && self.running != Some(next)
                        );
                    }
                }
            }
        }
    }
}
