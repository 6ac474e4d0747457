//! How long one step of the kernel may be.
//!
//! Between an entry to the kernel and its exit interrupts are off, so each step does a bounded
//! amount of work (decision 60). A call that may have more to do takes a [`Budget`], does as much
//! of it as that allows, and leaves: it says so to its caller (`RamRevoke`), or the kernel retries
//! the call, with its progress written into the call's arguments (`calls::Outcome::Retry`). Then
//! interrupts are taken and others have their turn before it goes on. Tests count the work of each
//! step (`hardware::count_work`).

/// Units of work in one entry to the kernel: frames freed, capabilities taken. About as long as a
/// fork of a small program.
pub const UNITS: u32 = 256;
/// Of a page that is cleared or copied.
pub const PAGE_UNITS: u32 = 3;
/// Of one mapping that is checked, changed or removed.
pub const MAPPING_UNITS: u32 = 2;
/// Of a table of leaves whose entries are changed.
pub const TABLE_UNITS: u32 = 8;
/// Contexts that one entry wakes for the same reason, and scheduling contexts that it checks to
/// find one that can run.
pub const WAKES: u32 = UNITS / 4;
/// Work of waking a context, as tests count it, and of queueing or dropping time.
pub const WAKE_WORK: u64 = 30;
/// See above.
pub const QUEUE_WORK: u64 = 6;
/// Units of destruction at the end of a step: about a third of the end of a small program.
pub const END_UNITS: u32 = UNITS / 2;
/// Of the end of a context, and of telling one of its callers.
pub const CONTEXT_UNITS: u32 = 8;
/// See above.
pub const CALLER_UNITS: u32 = 2;
/// Of a search of all wake slots of the core for those of one object.
pub const WAKE_SLOTS_UNITS: u32 = 32;
/// Work of freeing or sharing a page, as tests count it, of removing a mapping, and of the end of a
/// context.
pub const FREE_WORK: u64 = 4;
/// See above.
pub const MAPPING_WORK: u64 = 12;
/// See above.
pub const CONTEXT_WORK: u64 = 60;

/// Work that may still be done in this entry.
pub struct Budget(u32);

impl Budget {
    /// So many units.
    pub const fn new(units: u32) -> Budget {
        Budget(units)
    }

    /// The budget of one entry to the kernel.
    pub const fn step() -> Budget {
        Budget(UNITS)
    }

    /// No limit: more than a core's memory holds objects.
    pub const fn all() -> Budget {
        Budget(u32::MAX)
    }

    /// Counts work; tells whether there was room for any. The last piece may be larger than the
    /// room.
    pub fn spend(&mut self, units: u32) -> bool {
        let left = self.0;
        self.0 = left.saturating_sub(units);
        left > 0
    }
}
