//! SchedulingContext: time of a priority, in slices, for the context it belongs to and for the
//! callees that this context donates it to.

use super::group::Band;
use super::{Context, Header, Link, Object, Ptr, linked};
use crate::scheduler::GangWindow;
use crate::state::Kernel;
use abi::ObjectType;
use core::cell::Cell;
use intrusive_collections::RBTreeLink;

/// Time.
#[repr(C)]
pub struct Schedule {
    header: Header,
    /// The context that it belongs to; not counted as a reference. `None` once that ended.
    pub(crate) context: Cell<Option<Ptr<Context>>>,
    /// 0 to 7, 7 first.
    pub(crate) priority: usize,
    /// Its ready queue; [`Schedule::CLOSED`] outside its window.
    pub(crate) level: Cell<usize>,
    /// If it is of a gang: when it may run, and its place among those of this core.
    pub(crate) window: Cell<Option<GangWindow>>,
    pub(crate) member: Link<Schedule>,
    /// Linked while it is ready or running and has a window: by when that next opens or closes.
    pub(crate) turn: RBTreeLink,
    pub(crate) turn_ns: Cell<u64>,
    /// Length of a slice.
    pub(crate) slice_ns: Cell<u64>,
    /// Rest of the current slice when it was last charged; below zero if it was overrun.
    pub(crate) left_ns: Cell<i64>,
    /// Length of a period of its budget, which is a slice; 0: it has none.
    pub(crate) period_ns: Cell<u64>,
    /// When the period ends that has begun.
    pub(crate) refill_at_ns: Cell<u64>,
    /// The band of its group in which it waits; all time of a group has one share of the core.
    pub(crate) band: Cell<Ptr<Band>>,
    /// What was charged in earlier slices.
    spent_ns: Cell<u64>,
    ready: Link<Schedule>,
}

// SAFETY: repr(C), header first.
unsafe impl Object for Schedule {
    const TYPE: ObjectType = ObjectType::SchedulingContext;
}

linked!(Schedule, 0: ready);
linked!(Schedule, 1: member);

impl Schedule {
    /// Level of time that may not run now.
    pub(crate) const CLOSED: usize = usize::MAX;

    /// Where time of that priority queues. The level above it is that of the same priority's gangs
    /// in their windows.
    pub(crate) const fn level_of(priority: usize) -> usize {
        2 * priority
    }

    /// Time for `context`; the header comes from `Kernel::create`.
    pub fn new(header: Header, context: Ptr<Context>, priority: usize, slice_ns: u64) -> Schedule {
        let (slice, left_ns, spent_ns) = (Cell::new(slice_ns), Cell::new(slice_ns as i64), Cell::new(0));
        let band = header.payer().expect("only the root Ram pays for itself").group().band(priority);
        Schedule {
            header,
            context: Cell::new(Some(context)),
            priority,
            level: Cell::new(Schedule::level_of(priority)),
            window: Cell::new(None),
            member: Link::new(),
            turn: RBTreeLink::new(),
            turn_ns: Cell::new(0),
            slice_ns: slice,
            left_ns,
            period_ns: Cell::new(0),
            refill_at_ns: Cell::new(0),
            band: Cell::new(band),
            spent_ns,
            ready: Link::new(),
        }
    }

    /// What was charged to it so far, for all contexts that ran on it.
    pub(crate) fn used_ns(&self) -> u64 {
        self.spent_ns.get().wrapping_add(self.slice_ns.get()).wrapping_sub(self.left_ns.get() as u64)
    }

    /// Charges its slice and its band's turn; gives what is left of the turn.
    #[inline(always)]
    pub(crate) fn charge(&self, used_ns: i64) -> i64 {
        self.left_ns.set(self.left_ns.get().wrapping_sub(used_ns));
        let band = self.band.get();
        let band_left_ns = band.left_ns.get().wrapping_sub(used_ns);
        band.left_ns.set(band_left_ns);
        band_left_ns
    }

    /// Changes the length of slices; a current one that is longer is cut. With a period the slice
    /// is the budget of each, the first of which begins now.
    pub(crate) fn set_slice(&self, slice_ns: u64, period_ns: u64, now_ns: u64) {
        let used_ns = self.used_ns();
        self.slice_ns.set(slice_ns);
        self.period_ns.set(period_ns);
        self.refill_at_ns.set(now_ns.saturating_add(period_ns));
        self.set_left(used_ns, self.left_ns.get().min(slice_ns as i64));
    }

    /// Changes what is left of the slice, not what was charged so far.
    fn set_left(&self, used_ns: u64, left_ns: i64) {
        self.spent_ns.set(used_ns.wrapping_sub(self.slice_ns.get()).wrapping_add(left_ns as u64));
        self.left_ns.set(left_ns);
    }

    /// Whether its budget is spent, until [`Schedule::refill_at_ns`]. A period begins when it first
    /// runs on a full budget; one that is over gives a new budget, less what was overrun.
    #[inline(always)]
    pub(crate) fn is_spent(&self, now_ns: u64) -> bool {
        self.period_ns.get() != 0 && self.is_budget_spent(now_ns)
    }

    #[cold]
    fn is_budget_spent(&self, now_ns: u64) -> bool {
        if now_ns >= self.refill_at_ns.get() {
            let (slice_ns, debt_ns) = (self.slice_ns.get() as i64, self.left_ns.get().min(0));
            self.set_left(self.used_ns(), slice_ns.saturating_add(debt_ns));
            self.refill_at_ns.set(now_ns.saturating_add(self.period_ns.get()));
        }
        self.left_ns.get() <= 0
    }

    /// Begins a new slice, or, with a budget, gives the rest of it up until the next period.
    pub(crate) fn refill(&self) {
        let is_bounded = self.period_ns.get() != 0;
        self.set_left(self.used_ns(), if is_bounded { self.left_ns.get().min(0) } else { self.slice_ns.get() as i64 });
    }

    /// Whether it waits in a ready queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.ready.is_linked()
    }
}

pub(super) fn destroy(_: &mut Kernel, schedule: Ptr<Schedule>) {
    let is_idle = !schedule.is_queued() && !schedule.turn.is_linked() && !schedule.member.is_linked();
    assert!(is_idle && schedule.context.get().is_none(), "a context holds a reference of its time");
}
