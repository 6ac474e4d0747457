//! Nested ranges: a range mapped whole in another one (Corey 4.3, `ar_set_ar`).
//!
//! A range that can be nested is one table of its level: its size is what such a table covers, and
//! in a parent it takes the place of one entry. So every parent leads to the same table pages, and
//! a fault served through one of them serves all. Invariants: the level of a nested range is below
//! its parent's, so there are no cycles and a tree is at most four high; the entry in the parent
//! exists as long as the mapping, and bounds the protection of all accesses through it; a range
//! that is mapped somewhere is alive.

use super::mapping::{Mapped, Mapping, PAGE, VaRange};
use super::shared_objects::SharedObject;
use super::space::{Space, link};
use super::{Made, Ptr, Ram, Range, Segment, frames};
use crate::arch::paging::Table;
use crate::memory::PhysAddr;
use crate::state::Kernel;
use crate::steps::Budget;
use abi::Error;

/// The target of an address.
pub enum Backing {
    /// A mapping of a core's own range, and its segment.
    Own(Ptr<Mapping>, Ptr<Segment>),
    /// A place in a range of a pool, whatever is mapped there.
    Shared(SharedObject),
}

/// The mapping of an address, through all nested ranges.
pub struct Found {
    /// The mapping, or the shared range.
    pub backing: Backing,
    /// The address in the range it is in.
    pub local: u64,
    /// The protection that all ranges on the way allow; `layout::protection` bits.
    pub allowed: u64,
}

/// Work of unmapping a range in a parent, as frees of single pages.
const LEAVE_UNITS: u32 = 2;

/// The lowest level whose tables cover so many pages; `None` for none or too many.
pub fn level_for(pages: u64) -> Option<u32> {
    let fits = |level: &u32| Table::bytes(*level) / PAGE >= pages;
    (0..Table::TOP_LEVEL).find(fits).filter(|_| pages > 0)
}

impl Ptr<Range> {
    /// Makes an empty range of a core, of [`level_for`] that many pages; its table page is charged
    /// to `ram`.
    pub fn create_nested(kernel: &mut Kernel, ram: Ptr<Ram>, pages: u64, write_execute: bool) -> Made<Range> {
        let level = level_for(pages).ok_or(Error::BadArgument)?;
        let frame = kernel.allocate_page(ram)?;
        let made = create_over(kernel, ram, frame, level, write_execute);
        if made.is_err() {
            kernel.free_page(ram, frame);
        }
        made
    }

    /// As `create_nested`, over the page of a segment that passed `check_lone`: it has none
    /// afterwards.
    pub fn create_from(kernel: &mut Kernel, segment: Ptr<Segment>, pages: u64, write_execute: bool) -> Made<Range> {
        let level = level_for(pages).ok_or(Error::BadArgument)?;
        let frame = segment.frame(0).ok_or(Error::BadArgument)?;
        let made = create_over(kernel, segment.ram(), frame, level, write_execute)?;
        segment.transfer_pages();
        Ok(made)
    }

    /// Maps `child` at `start`. Rights have been checked; `BadArgument` if it does not fit
    /// there, `Busy` if something is mapped there.
    pub fn nest(self, kernel: &mut Kernel, start: u64, child: Ptr<Range>, rights: [u64; 2]) -> Result<(), Error> {
        let level = child.level();
        let bytes = Table::bytes(level);
        if level >= self.level()
            || !start.is_multiple_of(bytes)
            || child.may_write_execute() && !self.may_write_execute()
            || self.shared().is_some()
        {
            return Err(Error::BadArgument);
        }
        let place = self.place(start, bytes / PAGE)?;
        if self.at_or_after(start).is_some_and(|mapping| mapping.start() < place.end()) {
            return Err(Error::Busy);
        }
        let mut own = self.own(kernel);
        let entry = own.open_link(start, level)?;
        own.add(place, Mapped::Range(child), 0, rights.map(|rights| rights as u8))?;
        *entry = link(child.top(), rights[0]);
        Ok(())
    }

    /// Unmaps it in all its parents; tells whether the budget sufficed.
    pub(crate) fn leave_parents(self, kernel: &mut Kernel, budget: &mut Budget) -> bool {
        while let Some(mapping) = self.parents.first() {
            if !budget.spend(LEAVE_UNITS) {
                return false;
            }
            mapping.range().own(kernel).take_out(mapping);
        }
        true
    }

    /// As `leave_parents`, without a limit.
    #[cfg(test)]
    pub fn leave_all(self, kernel: &mut Kernel) -> bool {
        self.leave_parents(kernel, &mut Budget::all())
    }

    /// Finds the mapping of `address`, through all nested ranges.
    pub fn find(self, address: u64) -> Option<Found> {
        let (mut range, mut local, mut allowed) = (self, address, u64::MAX);
        // Each turn goes down a level.
        loop {
            if let Some(shared) = range.shared() {
                return Some(Found { backing: Backing::Shared(shared), local, allowed });
            }
            let mapping = range.at(local)?;
            allowed &= mapping.protection();
            match mapping.mapped() {
                Mapped::Segment(segment) => {
                    return Some(Found { backing: Backing::Own(mapping, segment), local, allowed });
                }
                Mapped::Range(nested) => {
                    debug_assert!(nested.level() < range.level(), "a range is nested in one that is no larger");
                    (range, local) = (nested, local - mapping.start());
                }
            }
        }
    }
}

/// Makes a range over a page that is charged to `ram`.
fn create_over(kernel: &mut Kernel, ram: Ptr<Ram>, frame: PhysAddr, level: u32, write_execute: bool) -> Made<Range> {
    let window = VaRange::of_level(level);
    let made = Range::create(kernel, ram, (Table { frame, level }, window), write_execute, None);
    made.inspect(|_| frames::clear(frame))
}
