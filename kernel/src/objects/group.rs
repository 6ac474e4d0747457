//! Group: those that share one turn of the core, however many they are (decision 65).
//!
//! A group belongs to an account, and accounts split from that one share it, so that a program
//! gets no more time by making contexts or accounts. Each priority has a band of its own in it.
//! Invariants: the first of a band's waiting time represents the band in the ready queue of its
//! priority, and the rest waits in the band; while none of its time runs, some of its turn is left;
//! the account that a group belongs to outlives all that share it.

use super::{List, Made, Ptr, Ram, Schedule};
use crate::memory::{PAGE_BYTES, phys_to_virt, virt_to_phys};
use crate::scheduler::PRIORITIES;
use crate::state::Kernel;
use abi::Error;
use core::cell::Cell;
use core::ptr::NonNull;

/// How long a group runs before others of the priority do.
pub const TURN_NS: i64 = 5_000_000;
/// How far apart the watchdog's probes of a group's contexts are, on average: 12 contexts can have
/// one each 12.5 ms.
pub const PROBE_NS: u64 = 1_000_000;

/// A group's ready time of one priority.
pub struct Band {
    /// The first that waits: it is in the ready queue.
    pub(crate) head: Cell<Option<Ptr<Schedule>>>,
    /// What waits behind it.
    pub(crate) rest: List<Schedule, 0>,
    /// What is left of its turn.
    pub(crate) left_ns: Cell<i64>,
}

impl Band {
    /// Begins a new turn, less what the last one was overrun by.
    pub(crate) fn refill(&self) {
        self.left_ns.set((self.left_ns.get().saturating_add(TURN_NS)).clamp(1, TURN_NS));
    }
}

/// Those that share turns.
pub struct Group {
    bands: [Band; PRIORITIES],
    /// Until when probes of its contexts are taken.
    probes_ns: Cell<u64>,
}
const _: () = assert!(size_of::<Group>() <= PAGE_BYTES);

/// Whose turns an account shares.
#[derive(Clone, Copy)]
pub enum Turns {
    /// Those of the account it is split from.
    Parents,
    /// Its own.
    Own,
    /// Those of another account.
    Of(Ptr<Ram>),
}

impl Group {
    /// Its ready time of that priority.
    pub(super) fn band(&self, priority: usize) -> Ptr<Band> {
        // SAFETY: a band of a group, which lives as long as any account that shares it.
        unsafe { Ptr::new(NonNull::from(&self.bands[priority])) }
    }

    /// Takes the next probe of one of its contexts: when it may be at the earliest.
    pub(crate) fn take_probe(&self, now_ns: u64) -> u64 {
        self.probes_ns.set(self.probes_ns.get().max(now_ns) + PROBE_NS);
        self.probes_ns.get()
    }

    /// A group in a page of its own, charged to `payer`, or to nobody.
    pub(super) fn create(kernel: &mut Kernel, payer: Option<Ptr<Ram>>) -> Made<Group> {
        let frame = match payer {
            Some(ram) => kernel.allocate_page(ram)?,
            None => kernel.frames.allocate().ok_or(Error::NoMemory)?,
        };
        let band = || Band { head: Cell::new(None), rest: List::new(), left_ns: Cell::new(TURN_NS) };
        let place = NonNull::new(phys_to_virt(frame).cast::<Group>()).expect("direct map is not at zero");
        // SAFETY: a fresh page in the direct map.
        unsafe {
            place.write(Group { bands: core::array::from_fn(|_| band()), probes_ns: Cell::new(0) });
            Ok(Ptr::new(place))
        }
    }

    /// Gives its page back.
    pub(super) fn destroy(kernel: &mut Kernel, group: Ptr<Group>, payer: Ptr<Ram>) {
        let is_idle = |band: &Band| band.rest.is_empty() && band.head.get().is_none();
        assert!(group.bands.iter().all(is_idle), "time is destroyed before the account that pays for it");
        let frame = virt_to_phys(group.address().as_ptr().cast()).expect("groups lie in the direct map");
        kernel.free_page(payer, frame);
    }
}
