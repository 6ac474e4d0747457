//! AddressRange: what is seen where.
//!
//! The truth is a balanced tree of mappings (`mapping`) ordered by address, of segments and of nested ranges (`nest`); the hardware tables are a cache of
//! it (`tables`), filled at faults (`fault`) and emptied whenever a mapping or a segment's page is taken away or narrowed. A root is a domain's space, any other
//! range is seen through the ranges it is nested in. Invariants: mappings lie inside the window and never overlap. Mappings and table pages
//! are paid by the range's Ram. Table pages stay until the range ends. No address is known here but the window's.

use super::mapping::{ByAddress, Mapping, PAGE, Place, Shown, Window};
use super::revoke::Budget;
use super::tables::narrow;
use super::{Header, List, Object, Ptr, Ram, Segment, ram};
use crate::arch::paging::{self, Pte, Root, Table};
use crate::state::Kernel;
use abi::layout::protection;
use abi::{Error, ObjectType};
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use intrusive_collections::{Bound, RBTree, UnsafeRef};

/// Most mappings of one range (Linux's default limit is about the same).
pub const MAPPINGS_MAX: u64 = 65_536;

/// A set of mappings and the tables that cache it.
#[repr(C)]
pub struct Range {
    header: Header,
    top: Table,
    window: Window,
    mappings: RefCell<RBTree<ByAddress>>,
    count: Cell<u64>,
    /// The mappings that show it; roots have none.
    pub(super) parents: List<Mapping, 1>,
    /// Writable code may be mapped.
    write_execute: bool,
    dead: Cell<bool>,
    /// Its tables went.
    is_cleared: Cell<bool>,
}

// SAFETY: repr(C), header first.
unsafe impl Object for Range {
    const TYPE: ObjectType = ObjectType::AddressRange;
}

impl Range {
    /// An empty range over the table `top`, whose page has been charged to `ram`.
    pub(super) fn create(
        kernel: &mut Kernel,
        ram: Ptr<Ram>,
        top: Table,
        window: Window,
        write_execute: bool,
    ) -> Result<Ptr<Range>, Error> {
        kernel.create(ram, |header| Range {
            header,
            top,
            window,
            mappings: RefCell::new(RBTree::new(ByAddress::new())),
            count: Cell::new(0),
            parents: List::new(),
            write_execute,
            dead: Cell::new(false),
            is_cleared: Cell::new(false),
        })
    }

    /// Its tables.
    pub fn top(&self) -> Table {
        self.top
    }

    /// The level of its tables.
    pub fn level(&self) -> u32 {
        self.top.level
    }

    /// Whether it is a whole space.
    pub fn is_root(&self) -> bool {
        self.level() == Table::TOP_LEVEL
    }

    /// The addresses it may use.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Pages of it that are its window, or for a nested range what it takes in a parent.
    pub fn pages(&self) -> u64 {
        (self.window.end - self.window.start) / PAGE
    }

    /// A part of it; `BadArgument` if not inside.
    pub fn place(&self, start: u64, pages: u64) -> Result<Place, Error> {
        self.window.place(start, pages)
    }

    /// Whether code that is mapped may be writable.
    pub fn may_write_execute(&self) -> bool {
        self.write_execute
    }
}

impl Ptr<Range> {
    /// An empty space; its root page is charged to `ram`.
    pub fn create_root(kernel: &mut Kernel, ram: Ptr<Ram>, write_execute: bool) -> Result<Ptr<Range>, Error> {
        let frame = kernel.allocate_page(ram)?;
        let window = kernel.user_window;
        let made = Range::create(kernel, ram, paging::new_root(frame).top(), window, write_execute);
        if made.is_err() {
            kernel.free_page(ram, frame);
        }
        made
    }

    /// The hardware tables of a space.
    pub fn root(self) -> Root {
        self.top.root()
    }

    /// Whether its domain lives, and its memory was not revoked.
    pub fn is_alive(self) -> bool {
        !self.dead.get()
    }

    /// The mapping that covers `address`, or the first after it.
    pub fn at_or_after(self, address: u64) -> Option<Ptr<Mapping>> {
        let mappings = self.mappings.borrow();
        let mut cursor = mappings.upper_bound(Bound::Included(&address));
        match cursor.get() {
            Some(mapping) if mapping.end() > address => (),
            _ => cursor.move_next(),
        }
        // SAFETY: mappings in the tree are alive, and are unlinked before they go.
        cursor.get().map(|mapping| unsafe { Ptr::new(NonNull::from(mapping)) })
    }

    /// The mapping that covers `address`.
    pub fn at(self, address: u64) -> Option<Ptr<Mapping>> {
        self.at_or_after(address).filter(|mapping| mapping.start() <= address)
    }

    /// The mappings that touch `place`, in order.
    pub(super) fn within(self, place: Place) -> impl Iterator<Item = Ptr<Mapping>> {
        let mut next = place.start;
        core::iter::from_fn(move || {
            let mapping = self.at_or_after(next).filter(|mapping| mapping.start() < place.end())?;
            next = mapping.end();
            Some(mapping)
        })
    }

    /// Whether the protection is one that pages of the range may have.
    pub fn check_protection(self, wanted: u64) -> Result<(), Error> {
        let both = protection::WRITE | protection::EXECUTE;
        let fits = wanted & both != both || self.write_execute;
        fits.then_some(()).ok_or(Error::BadArgument)
    }

    /// Shows `segment` from page `first` on. Protection and rights have been checked; `Busy` if something is there.
    pub fn map(
        self,
        kernel: &mut Kernel,
        place: Place,
        segment: Ptr<Segment>,
        first: u64,
        [protection, allowed]: [u64; 2],
    ) -> Result<(), Error> {
        let last = first.checked_add(place.pages).ok_or(Error::BadArgument)?;
        if last > segment.pages() {
            return Err(Error::BadArgument);
        }
        self.map_copy(kernel, place, segment, first, [protection, allowed])
    }

    /// As `map`, but the segment may be shorter: a copy of a mapping whose segment was shrunk behind it.
    pub(super) fn map_copy(
        self,
        kernel: &mut Kernel,
        place: Place,
        segment: Ptr<Segment>,
        first: u64,
        [protection, allowed]: [u64; 2],
    ) -> Result<(), Error> {
        if self.within(place).next().is_some() {
            return Err(Error::Busy);
        }
        self.add(kernel, place, Shown::Segment(segment), first, [protection as u8, allowed as u8])
    }

    pub(super) fn add(
        self,
        kernel: &mut Kernel,
        place: Place,
        shown: Shown,
        first: u64,
        rights: [u8; 2],
    ) -> Result<(), Error> {
        if self.count.get() >= MAPPINGS_MAX {
            return Err(Error::NoMemory);
        }
        let node = ram::allocate_small(kernel, self.ram(), size_of::<Mapping>())?.cast::<Mapping>();
        // SAFETY: a fresh place of sufficient size and alignment; the node stays there until `delete`.
        let node = unsafe {
            node.write(Mapping::new(self, place, shown, first, rights));
            Ptr::new(node)
        };
        match shown {
            Shown::Segment(segment) => {
                kernel.retain(segment);
                segment.mappings.push_back(node);
            }
            Shown::Range(nested) => {
                kernel.retain(nested);
                nested.parents.push_back(node);
            }
        }
        // SAFETY: the node outlives its membership.
        self.mappings.borrow_mut().insert(unsafe { UnsafeRef::from_raw(node.address().as_ptr()) });
        self.count.set(self.count.get() + 1);
        Ok(())
    }

    pub(super) fn delete(self, kernel: &mut Kernel, mapping: Ptr<Mapping>) {
        // SAFETY: the node is in this range's tree.
        let removed = unsafe { self.mappings.borrow_mut().cursor_mut_from_ptr(mapping.address().as_ptr()).remove() };
        assert!(removed.is_some());
        let shown = mapping.shown();
        match shown {
            Shown::Segment(segment) => segment.mappings.remove(mapping),
            Shown::Range(nested) => nested.parents.remove(mapping),
        }
        self.count.set(self.count.get() - 1);
        ram::free_small(kernel, self.ram(), mapping.address().cast(), size_of::<Mapping>());
        match shown {
            Shown::Segment(segment) => kernel.release(segment),
            Shown::Range(nested) => kernel.release(nested),
        }
    }

    /// Makes `address` a border between mappings, if it lies inside one, of a segment. Changes nothing a user can see.
    fn split(self, kernel: &mut Kernel, address: u64) -> Result<(), Error> {
        let Some(mapping) = self.at(address).filter(|mapping| mapping.start() < address) else { return Ok(()) };
        let kept = (address - mapping.start()) / PAGE;
        let all = mapping.pages.replace(kept);
        let rest = Place { start: address, pages: all - kept };
        let rights = [mapping.protection() as u8, mapping.allowed() as u8];
        let made = self.add(kernel, rest, mapping.shown(), mapping.first() + kept, rights);
        if made.is_err() {
            mapping.pages.set(all);
        }
        made
    }

    /// Takes everything inside `place` away; tells how many pages that were. `BadArgument` if a part of a nested range is meant.
    pub fn unmap(self, kernel: &mut Kernel, place: Place) -> Result<u64, Error> {
        self.check_borders(place)?;
        self.split(kernel, place.start)?;
        self.split(kernel, place.end())?;
        let mut pages = 0;
        while let Some(mapping) = self.within(place).next() {
            pages += mapping.pages();
            match mapping.shown() {
                Shown::Segment(_) => {
                    self.change_entries(kernel, mapping.place(), |_| Pte::EMPTY);
                    self.delete(kernel, mapping);
                }
                Shown::Range(nested) => self.unnest(kernel, mapping, nested),
            }
        }
        Ok(pages)
    }

    /// Whether all of `place` is mapped by capabilities that allow `wanted`, nested ranges as a whole.
    pub fn check_cover(self, place: Place, wanted: u64) -> Result<(), Error> {
        self.check_borders(place)?;
        let mut next = place.start;
        for mapping in self.within(place) {
            if mapping.start() > next {
                return Err(Error::BadArgument);
            }
            if mapping.segment().is_some() {
                self.check_protection(wanted)?;
            }
            if mapping.allowed() & wanted != wanted {
                return Err(Error::NoRights);
            }
            next = mapping.end();
        }
        if next >= place.end() { Ok(()) } else { Err(Error::BadArgument) }
    }

    /// Sets the protection of all pages of `place`; `check_cover` has been passed.
    pub fn protect(self, kernel: &mut Kernel, place: Place, wanted: u64) -> Result<(), Error> {
        self.split(kernel, place.start)?;
        self.split(kernel, place.end())?;
        let mut next = place.start;
        while let Some(mapping) = self.within(Place { start: next, pages: (place.end() - next) / PAGE }).next() {
            next = mapping.end();
            mapping.protection.set(wanted as u8);
            match mapping.shown() {
                Shown::Segment(_) => {
                    self.change_entries(kernel, mapping.place(), |entry| narrow(entry, wanted));
                    self.join_with_previous(kernel, mapping);
                }
                Shown::Range(nested) => self.protect_nested(kernel, mapping, nested),
            }
            if next >= place.end() {
                break;
            }
        }
        if let Some(after) = self.at(place.end()) {
            self.join_with_previous(kernel, after);
        }
        Ok(())
    }

    /// Makes one mapping of two that continue each other, so that protecting back and forth leaves no trace.
    fn join_with_previous(self, kernel: &mut Kernel, mapping: Ptr<Mapping>) {
        let Some(previous) = mapping.start().checked_sub(PAGE).and_then(|before| self.at(before)) else { return };
        let continues = previous.segment().is_some()
            && previous.shown() == mapping.shown()
            && previous.first() + previous.pages() == mapping.first()
            && previous.protection() == mapping.protection()
            && previous.allowed() == mapping.allowed();
        if continues {
            let pages = mapping.pages();
            self.delete(kernel, mapping);
            previous.pages.set(previous.pages() + pages);
        }
    }

    /// Its domain died or its memory is revoked: nothing is mapped any more.
    pub fn close(self) {
        self.dead.set(true);
    }

    /// All mappings and tables of a closed range, which is shown nowhere, go; tells whether the budget sufficed.
    pub fn clear(self, kernel: &mut Kernel, budget: &mut Budget) -> bool {
        if self.is_cleared.get() {
            return true;
        }
        assert!(self.parents.is_empty(), "what shows a range holds a reference");
        if self.is_shown(kernel) {
            kernel.load_kernel_space();
        }
        while let Some(mapping) = self.at_or_after(0) {
            if !budget.spend(1) {
                return false;
            }
            match mapping.shown() {
                Shown::Segment(_) => self.delete(kernel, mapping),
                Shown::Range(nested) => self.unnest(kernel, mapping, nested),
            }
        }
        self.is_cleared.set(true);
        let ram = self.ram();
        paging::for_each_table(self.top, &mut |frame| kernel.free_page(ram, frame));
        kernel.free_page(ram, self.top.frame);
        true
    }

    /// Number of mappings.
    pub fn count(self) -> u64 {
        self.count.get()
    }
}

pub(super) fn dismantle(kernel: &mut Kernel, range: Ptr<Range>) {
    range.close();
    range.clear(kernel, &mut Budget::all());
}
