//! The scheduler: ready queues of time, donations, deadlines.
//!
//! Invariants: time is in a ready queue exactly if it is not the one running and its context's
//! chain of donations was seen to end in a runnable context. A chain that has blocked since is
//! noticed when its time is picked; what unblocks the chain's end queues the time again. The core's
//! timer is armed only if something waits for it: the earliest deadline, the earliest probe of the
//! watchdog, or the end of the running slice while other time of the same priority is ready or a
//! context of the core asked for preemption upcalls. Picking is round robin among groups per
//! priority, highest first, and within a group ([`queues`]); a slice that is preempted goes to the
//! front of its queue with what is left of it. A step wakes a bounded number of contexts
//! ([`wakes`]) and drops as much time that cannot run; a timer for now begins the next step, which
//! does the rest. Time of a gang ([`windows`]) is ready in its windows only, and then before others
//! of its priority.

pub(crate) mod ledger;
mod queues;
mod wakes;
mod windows;

use crate::arch::context::Registers;
use crate::hardware;
use crate::objects::context::State;
use crate::objects::notification::Notification;
use crate::objects::{Context, List, Ptr, Schedule, upcall};
use crate::state::Kernel;
use crate::steps::{QUEUE_WORK, WAKES};
use crate::trace::Event;
use abi::call::kinds::Number;
use core::ptr::NonNull;
use intrusive_collections::{KeyAdapter, RBTree, UnsafeRef, intrusive_adapter};

pub use ledger::Ledger;
use windows::ByTurn;
pub use windows::{GangWindow, MEMBERS_MAX};

/// Number of priorities.
pub const PRIORITIES: usize = 8;
/// Ready queues: two of each priority.
const LEVELS: usize = Schedule::level_of(PRIORITIES);

/// Steps of a throttled core's turn: in some of them, the first, it runs programs.
pub const THROTTLE_STEPS: u64 = *Number::Eighths.limits().end();

intrusive_adapter!(ByTimeout = UnsafeRef<Context>: Context { timeout => intrusive_collections::RBTreeLink });
impl<'a> KeyAdapter<'a> for ByTimeout {
    type Key = u64;
    fn get_key(&self, context: &'a Context) -> u64 {
        context.timeout_ns.get()
    }
}

/// The end of a slice that was given up: before the end of any slice that runs.
const YIELDED: u64 = 0;

/// Probes of a stalling context before the watchdog reports it.
const WATCH_PROBES: u64 = 8;
/// A probe counts if the context had one part in so many of the time since the last one.
const WATCH_SHARE: u64 = 4;

intrusive_adapter!(ByWatch = UnsafeRef<Context>: Context { watch => intrusive_collections::RBTreeLink });
impl<'a> KeyAdapter<'a> for ByWatch {
    type Key = u64;
    fn get_key(&self, context: &'a Context) -> u64 {
        context.watch_ns.get()
    }
}

/// What the core does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Go on with these registers.
    Resume(NonNull<Registers>),
    /// Nothing to do.
    Idle,
}

/// The scheduler of one core.
pub struct Scheduler {
    /// The first ready time of each group, and that of gangs in their windows.
    ready: [List<Schedule, 0>; LEVELS],
    /// Bit n: there is ready time of level n.
    ready_set: u32,
    /// The context whose registers the processor has.
    current: Option<Ptr<Context>>,
    /// The time that it uses.
    pub(crate) running: Option<Ptr<Schedule>>,
    /// Something changed that may make another context run.
    changed: bool,
    /// When time was last accounted.
    since_ns: u64,
    /// Since when what runs has not been charged.
    began_ns: u64,
    /// When its slice or the turn of its group ends; [`YIELDED`]: now.
    until_ns: u64,
    /// When the timer fires; `u64::MAX`: never.
    timer_ns: u64,
    idle: bool,
    /// In how many steps of [`THROTTLE_STEPS`] programs may run.
    speed: u64,
    /// Contexts that asked for an upcall at the end of their slices.
    preemption_upcalls: usize,
    /// Contexts of a domain that died have not ended yet: the core is held.
    ends_contexts: bool,
    /// Set if the core is held or throttled, or preemption upcalls, gang windows or donors to be
    /// woken are there; the fast path tests only this.
    is_special: bool,
    timeouts: RBTree<ByTimeout>,
    watches: RBTree<ByWatch>,
    turns: RBTree<ByTurn>,
    /// All time that has windows.
    members: List<Schedule, 1>,
    /// Contexts that were woken, or ended, and have donors that were not told yet.
    waking: List<Context, 4>,
    /// How many donors of contexts with several may still be woken before the next decision.
    wakes_left: u32,
}

fn entry(context: Ptr<Context>) -> UnsafeRef<Context> {
    // SAFETY: contexts are taken out of the trees before they end.
    unsafe { UnsafeRef::from_raw(context.address().as_ptr()) }
}

impl Scheduler {
    /// Nothing to run.
    pub(crate) const fn new() -> Scheduler {
        Scheduler {
            ready: [const { List::new() }; LEVELS],
            ready_set: 0,
            current: None,
            running: None,
            changed: true,
            since_ns: 0,
            began_ns: 0,
            until_ns: 0,
            timer_ns: u64::MAX,
            idle: false,
            speed: THROTTLE_STEPS,
            preemption_upcalls: 0,
            ends_contexts: false,
            is_special: false,
            timeouts: RBTree::new(ByTimeout::NEW),
            watches: RBTree::new(ByWatch::NEW),
            turns: RBTree::new(ByTurn::NEW),
            members: List::new(),
            waking: List::new(),
            wakes_left: WAKES,
        }
    }

    /// The context whose event is being handled.
    pub fn current(&self) -> Option<Ptr<Context>> {
        self.current
    }

    /// Priority of the time in use; the lowest if there is none.
    #[cfg(test)]
    pub fn running_priority(&self) -> usize {
        self.running.map_or(0, |schedule| schedule.priority)
    }

    /// Lets programs run in `steps` of 8 steps only, of 1 ms each; the kernel's own work goes on.
    /// Cores throttled alike pause together.
    pub fn throttle(&mut self, steps: u64) {
        self.speed = steps;
        self.specials_changed();
    }

    /// Turns upcalls at the end of the slices of `context` on or off.
    #[inline(never)]
    pub fn set_preemption_upcalls(&mut self, context: Ptr<Context>, wanted: bool) {
        let wanted_before = context.wants_preemption_upcalls.replace(wanted);
        assert!(self.preemption_upcalls > 0 || !wanted_before, "a context with preemption upcalls was not counted");
        self.preemption_upcalls -= usize::from(wanted_before);
        self.preemption_upcalls += usize::from(wanted);
        self.specials_changed();
    }

    fn specials_changed(&mut self) {
        let is_waiting = !self.turns.is_empty() || !self.waking.is_empty() || self.ends_contexts;
        self.is_special = self.speed != THROTTLE_STEPS || self.preemption_upcalls > 0 || is_waiting;
        self.changed = true;
    }

    /// Holds the core, so that nothing runs, while contexts of a domain that died have not ended.
    pub fn hold(&mut self, is_held: bool) {
        if core::mem::replace(&mut self.ends_contexts, is_held) != is_held {
            self.specials_changed();
        }
    }

    /// Has the next decision pick anew.
    pub fn reschedule(&mut self) {
        self.changed = true;
    }

    /// Gives up the rest of the running slice.
    pub fn yield_slice(&mut self) {
        self.until_ns = YIELDED;
        self.changed = true;
    }

    /// Wakes `context` with `Timeout` at `at_ns`, unless something else does before.
    #[inline(always)]
    pub fn set_timeout(&mut self, context: Ptr<Context>, at_ns: u64) {
        if at_ns != u64::MAX {
            self.insert_timeout(context, at_ns);
        }
    }

    #[inline(never)]
    fn insert_timeout(&mut self, context: Ptr<Context>, at_ns: u64) {
        context.timeout_ns.set(at_ns);
        self.timeouts.insert(entry(context));
        self.arm_timer(at_ns);
    }

    /// Cancels the timeout of `context`, if it has one.
    #[inline]
    pub fn cancel_timeout(&mut self, context: Ptr<Context>) {
        if context.timeout.is_linked() {
            // SAFETY: it is in this tree.
            unsafe { self.timeouts.cursor_mut_from_ptr(context.address().as_ptr()).remove() };
        }
    }

    /// Starts the watchdog of a watched context that got its first pending bit.
    pub fn arm_watch(&mut self, context: Ptr<Context>) {
        if context.pending.get() != 0 {
            self.start_watch(context);
        }
    }

    /// Starts the watchdog of the context, if it is watched: somebody waits for it.
    pub fn start_watch(&mut self, context: Ptr<Context>) {
        if context.watch_limit_ns.get() != 0 && !context.watch.is_linked() {
            context.watch_left.set((WATCH_PROBES, progress(context)));
            self.watch_at(context, hardware::now_ns().saturating_add(step_ns(context)));
        }
    }

    /// Goes on with the watchdog of one that serves beyond its callers' deadlines: where nobody
    /// waited for it at the last probe, what it had of the time until then counts. So callers who
    /// give up and come again cannot hide a hang.
    pub fn resume_watch(&mut self, context: Ptr<Context>) {
        if context.watch_left.get().0 == 0 {
            return self.start_watch(context);
        }
        if context.watch_limit_ns.get() != 0 && !context.watch.is_linked() {
            let now_ns = hardware::now_ns();
            let soon_ns = now_ns.saturating_add(step_ns(context) / WATCH_PROBES);
            self.watch_at(context, soon_ns.max(take_probe(context, now_ns)));
        }
    }

    /// Has the context probed at that time.
    fn watch_at(&mut self, context: Ptr<Context>, at_ns: u64) {
        context.watch_ns.set(at_ns);
        self.watches.insert(entry(context));
        self.arm_timer(at_ns);
    }

    /// Arms the timer for `at_ns` or earlier. One that fires too early has no effect; that is
    /// cheaper than arming it anew at each change.
    pub(crate) fn arm_timer(&mut self, at_ns: u64) {
        if at_ns < self.timer_ns {
            self.timer_ns = at_ns;
            hardware::set_deadline(Some(at_ns));
        }
    }

    /// Disarms the timer so that a stale deadline cannot interrupt the next user of the core.
    pub fn disarm_timer(&mut self) {
        assert!(self.timeouts.is_empty() && self.watches.is_empty(), "nothing is left that waits");
        self.timer_ns = u64::MAX;
        hardware::set_deadline(None);
    }

    /// Stops the watchdog of `context`.
    pub fn cancel_watch(&mut self, context: Ptr<Context>) {
        if context.watch.is_linked() {
            // SAFETY: it is in this tree.
            unsafe { self.watches.cursor_mut_from_ptr(context.address().as_ptr()).remove() };
        }
    }

    /// Whether time of that level or a higher one is ready.
    fn is_contended(&self, level: usize) -> bool {
        self.ready_set.wrapping_shr(level as u32) != 0
    }

    /// Whether time of a higher level is ready.
    #[inline(always)]
    fn is_contended_above(&self, level: usize) -> bool {
        self.ready_set.wrapping_shr(level as u32) > 1
    }
}

/// What a context's domain has done so far, to tell a busy program from a hung one.
#[derive(Clone, Copy, Default)]
pub struct Progress {
    cpu_ns: u64,
    soft_faults: u64,
}

/// Between two probes of a context.
fn step_ns(context: Ptr<Context>) -> u64 {
    context.watch_limit_ns.get().div_ceil(WATCH_PROBES)
}

/// When a context's payer may have it probed next; that is taken.
fn take_probe(context: Ptr<Context>, now_ns: u64) -> u64 {
    context.header().payer().expect("only the root Ram pays for itself").group().take_probe(now_ns)
}

fn progress(context: Ptr<Context>) -> Progress {
    let domain = context.domain();
    Progress { cpu_ns: domain.cpu_ns.get(), soft_faults: domain.soft_faults.get() }
}

/// The end of the donation chain of `schedule`, if it can run.
#[inline(always)]
fn resolve(schedule: Ptr<Schedule>) -> Option<Ptr<Context>> {
    schedule.context.get().and_then(end_of_chain)
}

/// The end of a context's own donation chain, if it can run.
#[inline(always)]
fn end_of_chain(mut context: Ptr<Context>) -> Option<Ptr<Context>> {
    while let Some(callee) = context.donates_to() {
        context = callee;
    }
    (context.state() == State::Runnable).then_some(context)
}

impl Kernel {
    /// Blocks `context`.
    pub fn block(&mut self, context: Ptr<Context>, state: State) {
        context.set_state(state);
        self.scheduler.changed = true;
    }

    /// Unblocks a context that waited.
    #[inline]
    pub fn unblock(&mut self, context: Ptr<Context>) {
        context.set_state(State::Runnable);
        self.scheduler.changed = true;
        self.make_ready(context);
    }

    /// Returns the time of a mailbox caller that was notified, before the callee idles. If that
    /// time was running the callee, the callee goes on with its own, if it has some of the same
    /// priority or a higher one, so that it may finish its batch.
    pub fn return_donation(&mut self, donor: Ptr<Context>, callee: Ptr<Context>) {
        let own = callee.schedule.get();
        let donated = donor.schedule.get();
        let scheduler = &mut self.scheduler;
        if let (Some(own), Some(donated)) = (own, donated)
            && scheduler.running == Some(donated)
            && scheduler.current == Some(callee)
            && own.level.get() >= donated.level.get()
            && own.is_queued()
        {
            self.update_accounting();
            let scheduler = &mut self.scheduler;
            scheduler.dequeue(own);
            scheduler.leave(donated);
            scheduler.enter(own);
        }
        self.complete(donor, Ok([0; 3]));
    }

    /// Takes a context that ends, and its time, out of all that refers to them.
    pub fn flush_running(&mut self, context: Ptr<Context>) {
        self.update_accounting();
        let scheduler = &mut self.scheduler;
        scheduler.changed = true;
        if let Some(schedule) = context.schedule.get() {
            scheduler.withdraw(schedule);
        }
        scheduler.wake_no_more(context);
        assert!(!context.wants_preemption_upcalls.get(), "a context that ended has preemption upcalls");
        if scheduler.current == Some(context) {
            scheduler.current = None;
            hardware::set_current(None);
        }
        if self.bases_of == Some(context) {
            self.bases_of = None;
        }
        if self.vectors_of == Some(context) {
            self.vectors_of = None;
        }
    }

    /// Charges what ran until now to its time and its domain.
    #[inline(never)]
    pub fn update_accounting(&mut self) {
        self.account_apart();
        self.scheduler.charge();
    }

    #[inline(never)]
    fn account_apart(&mut self) {
        self.account();
    }

    /// Charges the time since the last accounting to the domain that ran, and books who paid.
    #[inline(always)]
    fn account(&mut self) {
        let now_ns = hardware::now_ns_inlined();
        let scheduler = &mut self.scheduler;
        let elapsed = now_ns.saturating_sub(scheduler.since_ns);
        scheduler.since_ns = now_ns;
        let Some(context) = scheduler.current else { return self.account_rest(elapsed) };
        let domain = context.domain();
        domain.cpu_ns.set(domain.cpu_ns.get().wrapping_add(elapsed));
        if let Some(payer) = scheduler.running {
            domain.ledger.add(payer, elapsed);
        }
    }

    /// Charges time in which no context ran to idling, or to the kernel.
    #[cold]
    fn account_rest(&mut self, elapsed: u64) {
        let scheduler = &mut self.scheduler;
        if !core::mem::take(&mut scheduler.idle) {
            self.counters.kernel_ns += elapsed;
            return;
        }
        self.counters.idle_ns += elapsed;
        // While the core is held, what runs keeps its slice.
        scheduler.began_ns = scheduler.began_ns.wrapping_add(elapsed);
        if scheduler.until_ns != YIELDED {
            scheduler.until_ns = scheduler.until_ns.wrapping_add(elapsed);
        }
    }

    /// Probes a context that has bits pending. The probe counts only if the context could have
    /// taken them: not if the host did not run this virtual processor, not before the context had
    /// its part of the time, at once or in several slices, and not if it touched pages for the
    /// first time, which an emulator translates slowly and no endless loop does for long. A context
    /// that waits in the kernel for something other than its bits needs no time for that: no
    /// pending bit ends such a wait. Where the context donates its time until a callee idles, the
    /// callee is watched too: it may hang after it took its own bits, and its donor cannot notify
    /// it.
    fn watch_probe(&mut self, context: Ptr<Context>, now_ns: u64) {
        self.scheduler.cancel_watch(context);
        if context.pending.get() == 0 && context.first_donor().is_none() {
            return;
        }
        if let State::Donation(callee) = context.state() {
            self.scheduler.start_watch(callee);
        }
        let (left, then) = context.watch_left.get();
        let now = progress(context);
        let step_ns = step_ns(context);
        let vcpu_stalled = now_ns - context.watch_ns.get() > step_ns / 2;
        let made_progress = now.soft_faults != then.soft_faults;
        let hangs = match context.state() {
            State::Runnable => now.cpu_ns - then.cpu_ns >= step_ns / WATCH_SHARE && !made_progress,
            State::OnSemaphore(_) | State::Accepting => true,
            // A context blocked on a reply is not the hung one.
            _ => false,
        };
        let counts = hangs && !vcpu_stalled;
        let left = left - u64::from(counts);
        // Time too short to count adds up, so that neither a small budget nor a small share hides a
        // hang.
        let adds_up = context.state() == State::Runnable && !counts && !made_progress && !vcpu_stalled;
        let since = if adds_up { Progress { cpu_ns: then.cpu_ns, ..now } } else { now };
        context.watch_left.set((left, since));
        if left > 0 {
            let next_ns = now_ns.saturating_add(step_ns).max(take_probe(context, now_ns));
            self.scheduler.watch_at(context, next_ns);
        } else if let Some(target) = Notification::kept(&context.watch_target) {
            target.send(self);
        } else if self.first == Some(context.domain()) {
            self.end_hung_first();
        }
    }

    /// Decides what runs next; cheap if nothing changed.
    #[inline(always)]
    pub fn decide(&mut self) -> Decision {
        if self.scheduler.changed {
            self.choose();
        }
        match self.scheduler.current {
            Some(context) => self.resume(context),
            None => Decision::Idle,
        }
    }

    /// Resumes `context`, which is current.
    #[inline(always)]
    pub fn resume(&mut self, context: Ptr<Context>) -> Decision {
        if context.pending.get() != 0 {
            upcall::interrupt_program(context);
        }
        Decision::Resume(context.registers_at())
    }

    /// Switches directly to `callee`, which can run and was donated the running time, or without
    /// one to the context that this time was returned to. The scheduler is asked only if something
    /// else has changed: a slice, a window or a hold of the core ends by a timer. `None`: it is
    /// asked.
    #[inline(always)]
    pub fn direct_switch(&mut self, callee: Option<Ptr<Context>>) -> Option<Ptr<Context>> {
        let scheduler = &self.scheduler;
        if let Some(schedule) = scheduler.running.filter(|_| !scheduler.changed)
            && let Some(context) = callee.or_else(|| resolve(schedule))
        {
            self.account();
            if self.scheduler.is_within() {
                self.switch_to(context, Some(schedule));
                return Some(context);
            }
        }
        self.scheduler.changed = true;
        None
    }

    #[inline(never)]
    fn choose(&mut self) {
        self.account_apart();
        let is_held = self.scheduler.is_special && {
            self.wake_rest();
            !self.scheduler.turn_windows() || self.scheduler.is_held()
        };
        self.scheduler.wakes_left = WAKES;
        self.scheduler.changed = false;
        match if is_held { None } else { self.pick() } {
            Some(context) => {
                assert!(context.state() == State::Runnable, "what is picked cannot run");
                self.switch_to(context, self.scheduler.running);
                self.scheduler.arm_slice_timer();
            }
            None => self.go_idle(),
        }
    }

    /// Picks the context to run; its time becomes the running one. Mostly the running time goes on,
    /// with the context that it is donated to now: then no queue is touched.
    fn pick(&mut self) -> Option<Ptr<Context>> {
        let scheduler = &mut self.scheduler;
        if let Some(schedule) = scheduler.running {
            match resolve(schedule) {
                None => scheduler.leave(schedule),
                Some(context) if !scheduler.is_within() => scheduler.end_slice(schedule, context),
                Some(context) if scheduler.is_contended_above(schedule.level.get()) => {
                    scheduler.preempt(schedule, context);
                }
                going_on => return going_on,
            }
        }
        let mut looks = WAKES;
        while let Some(schedule) = scheduler.take_first() {
            hardware::count_work(QUEUE_WORK);
            if let Some(context) = resolve(schedule) {
                if !schedule.is_spent(scheduler.since_ns) {
                    scheduler.enter(schedule);
                    return Some(context);
                }
                scheduler.close_until(schedule, schedule.refill_at_ns.get());
            }
            looks -= 1;
            if looks == 0 {
                scheduler.arm_timer(scheduler.since_ns);
                break;
            }
        }
        scheduler.running = None;
        None
    }

    #[inline(always)]
    fn switch_to(&mut self, context: Ptr<Context>, time: Option<Ptr<Schedule>>) {
        debug_assert!(context.state() == State::Runnable, "what is switched to cannot run");
        let before = self.scheduler.current.replace(context);
        if before == Some(context) {
            return;
        }
        self.counters.switches += 1;
        if before.is_none() {
            hardware::set_used(|used| used.begin(self.scheduler.since_ns));
        }
        let before = before.map_or(0, |before| before.header().id());
        let time = time.map_or(0, |schedule| schedule.header().id());
        self.trace.add(self.scheduler.since_ns, Event::Switch, context.header().id(), [before, time]);
        hardware::set_current(Some(context.registers_at()));
        let range = context.domain().range();
        if self.loaded != Some(range) {
            self.counters.space_switches += 1;
            hardware::load_root(range.root());
            self.loaded = Some(range);
        }
        if self.bases_of != Some(context) {
            let before = self.bases_of.replace(context);
            hardware::switch_bases(before.as_ref().map(|before| &before.bases), &context.bases);
        }
        if self.vectors_open | context.has_vectors() {
            self.switch_vectors(context);
        }
    }

    /// Switches the vector registers lazily: a context's stay loaded until another context that has
    /// some runs. Meanwhile touching them is an exception, so that a context without any neither
    /// reads nor changes another's.
    #[inline(never)]
    fn switch_vectors(&mut self, context: Ptr<Context>) {
        if self.vectors_open != context.has_vectors() {
            self.vectors_open = context.has_vectors();
            hardware::open_vectors(self.vectors_open);
        }
        if !context.has_vectors() || self.vectors_of == Some(context) {
            return;
        }
        if let Some(before) = self.vectors_of.replace(context) {
            before.with_vectors(hardware::save_vectors);
        }
        context.with_vectors(|area| hardware::restore_vectors(area));
    }

    fn go_idle(&mut self) {
        self.scheduler.current = None;
        self.scheduler.idle = true;
        self.counters.idles += 1;
        hardware::set_used(|used| used.end(self.scheduler.since_ns));
    }

    /// Adds a record to the trace.
    pub fn trace(&mut self, event: Event, context: u64, words: [u64; 2]) {
        self.trace.add(hardware::now_ns(), event, context, words);
    }
}
