//! SchedulingContext: time of a priority, in slices, for the context it belongs to and for whoever that one lends it to.

use super::{Context, Header, Link, Linked, Object, Ptr};
use crate::state::Kernel;
use abi::ObjectType;
use core::cell::Cell;

/// Time.
#[repr(C)]
pub struct Schedule {
    header: Header,
    /// Whose time it is; not counted as a reference. `None` once that context ended.
    pub(crate) context: Cell<Option<Ptr<Context>>>,
    /// 0 to 7, 7 first.
    pub(crate) priority: usize,
    /// Length of a slice.
    pub(crate) slice_ns: Cell<u64>,
    /// What is left of the current one.
    pub(crate) left_ns: Cell<u64>,
    /// The bill: all that ran on it since it was made, whoever that was.
    pub(crate) used_ns: Cell<u64>,
    ready: Link<Schedule>,
}

// SAFETY: repr(C), header first.
unsafe impl Object for Schedule {
    const TYPE: ObjectType = ObjectType::SchedulingContext;
}

impl Linked<0> for Schedule {
    fn link(&self) -> &Link<Self> {
        &self.ready
    }
}

impl Schedule {
    /// Time for `context`; the header comes from `Kernel::create`.
    pub fn new(header: Header, context: Ptr<Context>, priority: usize, slice_ns: u64) -> Schedule {
        let [slice_ns, left_ns, used_ns] = [slice_ns, slice_ns, 0].map(Cell::new);
        Schedule { header, context: Cell::new(Some(context)), priority, slice_ns, left_ns, used_ns, ready: Link::new() }
    }

    /// Whether it waits in a ready queue.
    pub(crate) fn is_queued(&self) -> bool {
        self.ready.is_linked()
    }
}

pub(super) fn dismantle(_: &mut Kernel, schedule: Ptr<Schedule>) {
    assert!(!schedule.is_queued() && schedule.context.get().is_none(), "a context holds a reference of its time");
}
