//! AddressRange: which segments a domain sees where.
//!
//! The truth is a balanced tree of mappings ordered by address; the hardware tables are a cache of it, filled at faults (`fault`) and emptied whenever a
//! mapping or a segment's page is taken away or narrowed. Invariants: mappings never overlap; each holds a reference of its segment and is on that
//! segment's list; a hardware entry never allows more than its mapping and its page do; stale translations of the loaded space are flushed before the call
//! ends. Mappings and table pages are paid by the range's Ram. Table pages stay until the range ends.

use super::revoke::Budget;
use super::{Header, Link, Linked, Object, Ptr, Ram, Segment, ram};
use crate::arch::paging::{self, Flags, Pte, Root};
use crate::hardware;
use crate::memory::{PAGE_BYTES, USER_END, USER_START};
use crate::state::Kernel;
use abi::layout::protection;
use abi::{Error, ObjectType};
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use intrusive_collections::{Bound, KeyAdapter, RBTree, RBTreeLink, UnsafeRef, intrusive_adapter};

const PAGE: u64 = PAGE_BYTES as u64;
/// Pages that one table of leaves covers.
const LEAF_TABLE: u64 = 512;
/// From this many pages on, everything is flushed instead of page by page.
const FLUSH_ALL_PAGES: u64 = 32;
/// Most mappings of one range (Linux's default limit is about the same).
pub const MAPPINGS_MAX: u64 = 65_536;

/// Part of a segment at an address.
pub struct Mapping {
    tree: RBTreeLink,
    of_segment: Link<Mapping>,
    start: Cell<u64>,
    pages: Cell<u64>,
    first: Cell<u64>,
    segment: Ptr<Segment>,
    range: Ptr<Range>,
    protection: Cell<u8>,
    /// What the capability allowed when it was mapped.
    allowed: u8,
}

impl Linked<1> for Mapping {
    fn link(&self) -> &Link<Self> {
        &self.of_segment
    }
}

intrusive_adapter!(ByAddress = UnsafeRef<Mapping>: Mapping { tree => RBTreeLink });
impl<'a> KeyAdapter<'a> for ByAddress {
    type Key = u64;
    fn get_key(&self, mapping: &'a Mapping) -> u64 {
        mapping.start.get()
    }
}

/// A set of mappings and the tables that cache it.
#[repr(C)]
pub struct Range {
    header: Header,
    root: Root,
    mappings: RefCell<RBTree<ByAddress>>,
    count: Cell<u64>,
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

/// Where and what to map; checked by [`Place::decode`].
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// First address.
    pub start: u64,
    /// Length in pages.
    pub pages: u64,
}

impl Place {
    /// Page aligned, not empty, inside the user window.
    pub fn decode(start: u64, pages: u64) -> Result<Place, Error> {
        let end = pages.checked_mul(PAGE).and_then(|bytes| start.checked_add(bytes)).ok_or(Error::BadArgument)?;
        let fits = start.is_multiple_of(PAGE) && pages > 0 && start >= USER_START && end <= USER_END;
        fits.then_some(Place { start, pages }).ok_or(Error::BadArgument)
    }

    /// First address after it.
    pub fn end(self) -> u64 {
        self.start + self.pages * PAGE
    }
}

impl Mapping {
    /// First address.
    pub fn start(&self) -> u64 {
        self.start.get()
    }
    /// First address after it.
    pub fn end(&self) -> u64 {
        self.start.get() + self.pages.get() * PAGE
    }
    /// Length in pages.
    pub fn pages(&self) -> u64 {
        self.pages.get()
    }
    /// Its first page's number in the segment.
    pub fn first(&self) -> u64 {
        self.first.get()
    }
    /// What it shows.
    pub fn segment(&self) -> Ptr<Segment> {
        self.segment
    }
    /// `layout::protection` bits.
    pub fn protection(&self) -> u64 {
        u64::from(self.protection.get())
    }
    /// The widest protection `RangeProtect` may set.
    pub fn allowed(&self) -> u64 {
        u64::from(self.allowed)
    }
    /// The segment's page at `address`.
    pub fn page_at(&self, address: u64) -> u64 {
        self.first.get() + (address - self.start.get()) / PAGE
    }
}

impl Ptr<Mapping> {
    pub(super) fn next_of_segment(self) -> Option<Ptr<Mapping>> {
        self.of_segment.next()
    }

    fn place(self) -> Place {
        Place { start: self.start(), pages: self.pages() }
    }

    /// Takes the hardware entries of some of the segment's pages away.
    pub(super) fn hide(self, kernel: &mut Kernel, first: u64, pages: u64) {
        let from = first.max(self.first.get());
        let to = (first + pages).min(self.first.get() + self.pages.get());
        if from < to {
            let place = Place { start: self.start() + (from - self.first.get()) * PAGE, pages: to - from };
            self.range.change_entries(kernel, place, |_| Pte::EMPTY);
        }
    }

    /// Takes up to so many pages off its end, the last ones with the mapping itself.
    pub(super) fn trim(self, kernel: &mut Kernel, pages: u64) {
        let kept = self.pages().saturating_sub(pages);
        let tail = Place { start: self.start() + kept * PAGE, pages: self.pages() - kept };
        self.range.change_entries(kernel, tail, |_| Pte::EMPTY);
        if kept == 0 {
            self.range.delete(kernel, self);
        } else {
            self.pages.set(kept);
        }
    }

    /// Makes its hardware entries read-only.
    pub(super) fn deny_writes(self, kernel: &mut Kernel) {
        if self.protection() & protection::WRITE != 0 {
            let read_only = |entry: Pte| Pte::new(entry.address(), entry.flags().without(Flags::WRITE));
            self.range.change_entries(kernel, self.place(), read_only);
        }
    }
}

impl Ptr<Range> {
    /// An empty range; its root page is charged to `ram`.
    pub fn create(kernel: &mut Kernel, ram: Ptr<Ram>, write_execute: bool) -> Result<Ptr<Range>, Error> {
        let frame = kernel.allocate_page(ram)?;
        let made = kernel.create(ram, |header| Range {
            header,
            root: paging::new_root(frame),
            mappings: RefCell::new(RBTree::new(ByAddress::new())),
            count: Cell::new(0),
            write_execute,
            dead: Cell::new(false),
            is_cleared: Cell::new(false),
        });
        if made.is_err() {
            kernel.free_page(ram, frame);
        }
        made
    }

    /// The hardware tables.
    pub fn root(self) -> Root {
        self.root
    }

    /// Whether its domain lives.
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
    fn within(self, place: Place) -> impl Iterator<Item = Ptr<Mapping>> {
        let mut next = place.start;
        core::iter::from_fn(move || {
            let mapping = self.at_or_after(next).filter(|mapping| mapping.start() < place.end())?;
            next = mapping.end();
            Some(mapping)
        })
    }

    /// Whether the protection is one the range may have.
    pub fn check_protection(self, wanted: u64) -> Result<(), Error> {
        let known = wanted & !(protection::READ | protection::WRITE | protection::EXECUTE) == 0;
        let readable = wanted == 0 || wanted & protection::READ != 0;
        let both = protection::WRITE | protection::EXECUTE;
        let fits = known && readable && (wanted & both != both || self.write_execute);
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
        self.add(kernel, place, segment, first, [protection as u8, allowed as u8])
    }

    fn add(
        self,
        kernel: &mut Kernel,
        place: Place,
        segment: Ptr<Segment>,
        first: u64,
        [protection, allowed]: [u8; 2],
    ) -> Result<(), Error> {
        if self.count.get() >= MAPPINGS_MAX {
            return Err(Error::NoMemory);
        }
        let node = ram::allocate_small(kernel, self.ram(), size_of::<Mapping>())?.cast::<Mapping>();
        let mapping = Mapping {
            tree: RBTreeLink::new(),
            of_segment: Link::new(),
            start: Cell::new(place.start),
            pages: Cell::new(place.pages),
            first: Cell::new(first),
            segment,
            range: self,
            protection: Cell::new(protection),
            allowed,
        };
        // SAFETY: a fresh place of sufficient size and alignment; the node stays there until `delete`.
        let node = unsafe {
            node.write(mapping);
            Ptr::new(node)
        };
        kernel.retain(segment);
        segment.mappings.push_back(node);
        // SAFETY: the node outlives its membership.
        self.mappings.borrow_mut().insert(unsafe { UnsafeRef::from_raw(node.address().as_ptr()) });
        self.count.set(self.count.get() + 1);
        Ok(())
    }

    fn delete(self, kernel: &mut Kernel, mapping: Ptr<Mapping>) {
        // SAFETY: the node is in this range's tree.
        let removed = unsafe { self.mappings.borrow_mut().cursor_mut_from_ptr(mapping.address().as_ptr()).remove() };
        assert!(removed.is_some());
        let segment = mapping.segment;
        segment.mappings.remove(mapping);
        self.count.set(self.count.get() - 1);
        ram::free_small(kernel, self.ram(), mapping.address().cast(), size_of::<Mapping>());
        kernel.release(segment);
    }

    /// Makes `address` a border between mappings, if it lies inside one. Changes nothing a user can see.
    fn split(self, kernel: &mut Kernel, address: u64) -> Result<(), Error> {
        let Some(mapping) = self.at(address).filter(|mapping| mapping.start() < address) else { return Ok(()) };
        let kept = (address - mapping.start()) / PAGE;
        let all = mapping.pages.replace(kept);
        let rest = Place { start: address, pages: all - kept };
        let rights = [mapping.protection.get(), mapping.allowed];
        let made = self.add(kernel, rest, mapping.segment, mapping.first() + kept, rights);
        if made.is_err() {
            mapping.pages.set(all);
        }
        made
    }

    /// Takes everything inside `place` away; tells how many pages that were.
    pub fn unmap(self, kernel: &mut Kernel, place: Place) -> Result<u64, Error> {
        self.split(kernel, place.start)?;
        self.split(kernel, place.end())?;
        let mut pages = 0;
        while let Some(mapping) = self.within(place).next() {
            pages += mapping.pages();
            self.change_entries(kernel, mapping.place(), |_| Pte::EMPTY);
            self.delete(kernel, mapping);
        }
        Ok(pages)
    }

    /// Whether all of `place` is mapped by capabilities that allow `wanted`.
    pub fn check_cover(self, place: Place, wanted: u64) -> Result<(), Error> {
        let mut next = place.start;
        for mapping in self.within(place) {
            if mapping.start() > next {
                return Err(Error::BadArgument);
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
            self.change_entries(kernel, mapping.place(), |entry| narrow(entry, wanted));
            self.join_with_previous(kernel, mapping);
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
        let continues = previous.segment == mapping.segment
            && previous.first() + previous.pages() == mapping.first()
            && previous.protection() == mapping.protection()
            && previous.allowed == mapping.allowed;
        if continues {
            let pages = mapping.pages();
            self.delete(kernel, mapping);
            previous.pages.set(previous.pages() + pages);
        }
    }

    /// Changes the present hardware entries of `place` and flushes what changed.
    fn change_entries(self, kernel: &mut Kernel, place: Place, change: impl Fn(Pte) -> Pte) {
        let is_loaded = kernel.loaded == Some(self.root);
        let mut changed = 0u64;
        let mut address = place.start;
        while address < place.end() {
            let Some(mut entry) = paging::lookup(self.root, address) else {
                address = (address / PAGE / LEAF_TABLE + 1) * LEAF_TABLE * PAGE;
                continue;
            };
            let run = (LEAF_TABLE - address / PAGE % LEAF_TABLE).min((place.end() - address) / PAGE);
            for step in 0..run {
                if entry.is_present() {
                    let new = change(*entry);
                    if new != *entry {
                        *entry = new;
                        changed += 1;
                        if is_loaded && changed <= FLUSH_ALL_PAGES {
                            hardware::flush_page(address + step * PAGE);
                        }
                    }
                }
                if step + 1 < run {
                    // SAFETY: entries of one table lie side by side, and the run ends with the table.
                    entry = unsafe { &mut *core::ptr::from_mut(entry).add(1) };
                }
            }
            address += run * PAGE;
        }
        if is_loaded && changed > FLUSH_ALL_PAGES {
            hardware::flush_all();
        }
    }

    /// Puts one entry into the hardware tables.
    pub(super) fn set_entry(self, kernel: &mut Kernel, address: u64, new: Pte) -> Result<(), Error> {
        let ram = self.ram();
        let entry = paging::walk(self.root, address, &mut || kernel.allocate_page(ram).ok()).ok_or(Error::NoMemory)?;
        let old = core::mem::replace(entry, new);
        if old.is_present() && kernel.loaded == Some(self.root) {
            hardware::flush_page(address);
        }
        Ok(())
    }

    /// The hardware entries from `start` on, as far as one table holds them and it exists. New ones need no flush.
    pub(super) fn entries(self, start: u64, pages: u64) -> Option<&'static mut [Pte]> {
        paging::lookup_run(self.root, start, pages as usize)
    }

    /// Its domain died: nothing is mapped any more.
    pub fn close(self) {
        self.dead.set(true);
    }

    /// All mappings and tables of a closed range go; tells whether the budget sufficed.
    pub fn clear(self, kernel: &mut Kernel, budget: &mut Budget) -> bool {
        if self.is_cleared.get() {
            return true;
        }
        if kernel.loaded == Some(self.root) {
            kernel.load_kernel_space();
        }
        while let Some(mapping) = self.at_or_after(0) {
            if !budget.spend(1) {
                return false;
            }
            self.delete(kernel, mapping);
        }
        self.is_cleared.set(true);
        let ram = self.ram();
        paging::for_each_table(self.root, &mut |frame| kernel.free_page(ram, frame));
        kernel.free_page(ram, self.root.0);
        true
    }

    /// Number of mappings.
    pub fn count(self) -> u64 {
        self.count.get()
    }
}

/// What stays of an entry under a protection; more rights come by faults.
fn narrow(entry: Pte, wanted: u64) -> Pte {
    let mut flags = entry.flags();
    if wanted & protection::READ == 0 {
        return Pte::EMPTY;
    }
    if wanted & protection::WRITE == 0 {
        flags = flags.without(Flags::WRITE);
    }
    if wanted & protection::EXECUTE == 0 {
        flags = flags | Flags::NO_EXECUTE;
    }
    Pte::new(entry.address(), flags)
}

pub(super) fn dismantle(kernel: &mut Kernel, range: Ptr<Range>) {
    range.close();
    range.clear(kernel, &mut Budget::all());
}
