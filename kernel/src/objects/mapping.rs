//! Mapping: part of a segment, or a whole range, at an address of a range; and the tree of them.
//!
//! Invariants: a mapping holds a reference of what it maps, and one of a core's own range is on
//! that object's list, so that a change of the object can downgrade the hardware tables; its
//! place lies inside its range's window; it is linked into one range's tree from `Space::add` to
//! `Space::delete`; mappings of a tree never overlap.

use super::shared_objects::SharedObject;
use super::space::Space;
use super::{Link, Ptr, Range, Segment, linked};
use crate::arch::paging::Table;
use crate::hardware;
use crate::state::Kernel;
use abi::layout::protection;
use abi::{Error, RangeEntry, Rights};
use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use intrusive_collections::{Bound, KeyAdapter, RBTree, RBTreeLink, UnsafeRef, intrusive_adapter};

/// Bytes of a page.
pub use crate::memory::PAGE;

/// Work of finding a mapping among as many as a range may have.
const TREE_WORK: u64 = 15;

/// The widest protection a capability for a segment allows.
pub fn allowed_by(rights: Rights) -> u64 {
    [(Rights::READ, protection::READ), (Rights::WRITE, protection::WRITE), (Rights::EXECUTE, protection::EXECUTE)]
        .into_iter()
        .filter(|(right, _)| rights.contains(*right))
        .fold(0, |all, (_, bit)| all | bit)
}

/// The target of a mapping of a core's own range.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mapped {
    /// Pages of a segment.
    Segment(Ptr<Segment>),
    /// A nested range, all of it.
    Range(Ptr<Range>),
}

impl Mapped {
    /// The shared object, if it is a segment of a pool.
    pub(super) fn pooled(self) -> Option<SharedObject> {
        match self {
            Mapped::Segment(segment) => segment.alias().map(|alias| alias.object()),
            Mapped::Range(_) => None,
        }
    }
}

/// What a mapping keeps of its target.
pub trait MapTarget {
    /// What that is.
    type What: Copy + PartialEq;
    /// Its target.
    fn what(&self) -> Self::What;
    /// The table that it leads to, if it maps a whole range.
    fn table(&self) -> Option<Table>;
}

/// What a mapping of a core's own range keeps of its target.
pub struct Listed {
    mapped: Mapped,
    range: Ptr<Range>,
    of_mapped: Link<Mapping>,
}

impl Listed {
    /// In no list yet.
    pub(super) fn new(mapped: Mapped, range: Ptr<Range>) -> Listed {
        Listed { mapped, range, of_mapped: Link::new() }
    }
}

impl MapTarget for Listed {
    type What = Mapped;
    fn what(&self) -> Mapped {
        self.mapped
    }
    fn table(&self) -> Option<Table> {
        match self.mapped {
            Mapped::Range(range) => Some(range.top()),
            Mapped::Segment(_) => None,
        }
    }
}

/// What is mapped at an address.
pub struct Mapping<S = Listed> {
    tree: RBTreeLink,
    start: Cell<u64>,
    pages: Cell<u64>,
    first: Cell<u64>,
    target: S,
    protection: Cell<u8>,
    /// What the capability allowed when it was mapped.
    allowed: u8,
}
const _: () = assert!(size_of::<Mapping>() <= 128);

linked!(Mapping, 1: target.of_mapped);

intrusive_adapter!(ByAddress<S> = UnsafeRef<Mapping<S>>: Mapping<S> { tree => RBTreeLink });
impl<'a, S> KeyAdapter<'a> for ByAddress<S> {
    type Key = u64;
    fn get_key(&self, mapping: &'a Mapping<S>) -> u64 {
        mapping.start.get()
    }
}

/// Mappings by address.
pub struct Tree<S = Listed> {
    mappings: RefCell<RBTree<ByAddress<S>>>,
    count: Cell<u64>,
}

impl<S> Tree<S> {
    /// Without mappings.
    pub const fn new() -> Tree<S> {
        Tree { mappings: RefCell::new(RBTree::new(ByAddress::NEW)), count: Cell::new(0) }
    }

    /// Number of mappings.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// The mapping that covers `address`, or the first after it.
    pub fn at_or_after(&self, address: u64) -> Option<Ptr<Mapping<S>>> {
        hardware::count_work(TREE_WORK);
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
    pub fn at(&self, address: u64) -> Option<Ptr<Mapping<S>>> {
        self.at_or_after(address).filter(|mapping| mapping.start() <= address)
    }

    /// The mappings that touch `place`, in order.
    pub fn within(&self, place: PageRun) -> impl Iterator<Item = Ptr<Mapping<S>>> {
        let mut next = place.start;
        core::iter::from_fn(move || {
            let mapping = self.at_or_after(next).filter(|mapping| mapping.start() < place.end())?;
            next = mapping.end();
            Some(mapping)
        })
    }

    pub(crate) fn insert(&self, mapping: Ptr<Mapping<S>>) {
        let mut mappings = self.mappings.borrow_mut();
        // SAFETY: the mapping outlives its membership.
        let cursor = mappings.insert(unsafe { UnsafeRef::from_raw(mapping.address().as_ptr()) });
        debug_assert!(
            cursor.peek_prev().get().is_none_or(|before| before.end() <= mapping.start())
                && cursor.peek_next().get().is_none_or(|after| mapping.end() <= after.start()),
            "mappings overlap"
        );
        self.count.set(self.count.get() + 1);
    }

    pub(crate) fn remove(&self, mapping: Ptr<Mapping<S>>) {
        // SAFETY: the mapping is in this tree.
        let removed = unsafe { self.mappings.borrow_mut().cursor_mut_from_ptr(mapping.address().as_ptr()).remove() };
        assert!(removed.is_some(), "a mapping is in no tree");
        debug_assert!(self.count.get() > 0, "more mappings go than came");
        self.count.set(self.count.get() - 1);
    }
}

impl<S> Default for Tree<S> {
    fn default() -> Self {
        Tree::new()
    }
}

/// Pages of a range's window; checked by [`VaRange::place`].
#[derive(Clone, Copy, Debug)]
pub struct PageRun {
    /// First address.
    pub start: u64,
    /// Length in pages.
    pub pages: u64,
}

impl PageRun {
    /// First address after it.
    pub fn end(self) -> u64 {
        self.start + self.pages * PAGE
    }
}

/// The addresses a range may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VaRange {
    /// First address.
    pub start: u64,
    /// First address past it.
    pub end: u64,
}

impl VaRange {
    /// All that a table of the level covers.
    pub const fn of_level(level: u32) -> VaRange {
        VaRange { start: 0, end: Table::bytes(level) }
    }

    /// How many pages that are.
    pub const fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE
    }

    /// Page aligned, not empty, inside.
    pub fn place(&self, start: u64, pages: u64) -> Result<PageRun, Error> {
        let end = pages.checked_mul(PAGE).and_then(|bytes| start.checked_add(bytes)).ok_or(Error::BadArgument)?;
        let fits = start.is_multiple_of(PAGE) && pages > 0 && start >= self.start && end <= self.end;
        fits.then_some(PageRun { start, pages }).ok_or(Error::BadArgument)
    }
}

impl<S> Mapping<S> {
    /// In no tree yet.
    pub fn new(place: PageRun, target: S, first: u64, [protection, allowed]: [u8; 2]) -> Mapping<S> {
        assert!(place.pages > 0 && place.start.is_multiple_of(PAGE), "a mapping is of no pages");
        assert!(protection & !allowed == 0, "a mapping allows more than its capability");
        Mapping {
            tree: RBTreeLink::new(),
            start: Cell::new(place.start),
            pages: Cell::new(place.pages),
            first: Cell::new(first),
            target,
            protection: Cell::new(protection),
            allowed,
        }
    }

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
    /// Its first page's number in the segment; 0 for a range.
    pub fn first(&self) -> u64 {
        self.first.get()
    }
    /// Its target.
    pub fn target(&self) -> &S {
        &self.target
    }
    /// Where it is.
    pub fn place(&self) -> PageRun {
        PageRun { start: self.start(), pages: self.pages() }
    }
    /// `layout::protection` bits.
    pub fn protection(&self) -> u64 {
        u64::from(self.protection.get())
    }
    /// The widest protection `RangeProtect` may set.
    pub fn allowed(&self) -> u64 {
        u64::from(self.allowed)
    }
    /// Its rights, as [`Mapping::new`] takes them.
    pub(super) fn rights(&self) -> [u8; 2] {
        [self.protection.get(), self.allowed]
    }
    /// The segment's page at `address`.
    pub fn page_at(&self, address: u64) -> u64 {
        self.first() + (address - self.start.get()) / PAGE
    }
    /// The part of its place that maps some of the segment's pages, if there is one.
    pub fn place_of(&self, first: u64, pages: u64) -> Option<PageRun> {
        let from = first.max(self.first());
        let to = (first + pages).min(self.first() + self.pages());
        (from < to).then(|| PageRun { start: self.start() + (from - self.first()) * PAGE, pages: to - from })
    }
    /// What `RangeGet` tells of it; `object` is the id of its target.
    pub fn entry(&self, object: u64) -> RangeEntry
    where
        S: MapTarget,
    {
        RangeEntry {
            start: self.start(),
            pages: self.pages(),
            first: self.first(),
            protection: self.protection(),
            allowed: self.allowed(),
            is_range: self.target.table().is_some(),
            object,
        }
    }
    pub(super) fn set_pages(&self, pages: u64) {
        assert!(pages > 0, "a mapping is of no pages");
        self.pages.set(pages);
    }
    /// Drops so many pages at its start, fewer than it has; it keeps its place in the tree.
    pub(super) fn advance(&self, pages: u64) {
        assert!(pages < self.pages(), "a mapping gives up all its pages");
        self.start.set(self.start() + pages * PAGE);
        self.first.set(self.first() + pages);
        self.pages.set(self.pages() - pages);
    }
    pub(super) fn set_protection(&self, protection: u64) {
        assert!(protection & !self.allowed() == 0, "a mapping allows more than its capability");
        self.protection.set(protection as u8);
    }
}

impl Mapping {
    /// What it maps.
    pub fn mapped(&self) -> Mapped {
        self.target.mapped
    }
    /// The segment it maps, if it maps one.
    pub fn segment(&self) -> Option<Ptr<Segment>> {
        match self.mapped() {
            Mapped::Segment(segment) => Some(segment),
            Mapped::Range(_) => None,
        }
    }
    /// The range it is in.
    pub fn range(&self) -> Ptr<Range> {
        self.target.range
    }
}

impl Ptr<Mapping> {
    pub(super) fn next_of_mapped(self) -> Option<Ptr<Mapping>> {
        self.target.of_mapped.next()
    }

    /// Removes the hardware entries of some of the segment's pages.
    pub(super) fn unmap_pages(self, kernel: &mut Kernel, first: u64, pages: u64) {
        if let Some(place) = self.place_of(first, pages) {
            self.range().own(kernel).downgrade_entries(place, 0);
        }
    }

    /// Unmaps up to so many pages at the end of a segment's mapping, the last ones with the mapping
    /// itself.
    pub(super) fn trim(self, kernel: &mut Kernel, pages: u64) {
        let kept = self.pages().saturating_sub(pages);
        let tail = PageRun { start: self.start() + kept * PAGE, pages: self.pages() - kept };
        let mut range = self.range().own(kernel);
        range.downgrade_entries(tail, 0);
        if kept == 0 {
            range.delete(self);
        } else {
            self.set_pages(kept);
        }
    }

    /// Makes the hardware entries of some of the segment's pages read-only: also those that allow
    /// more than it does, while a `RangeProtect` of several steps goes on.
    pub(super) fn deny_writes(self, kernel: &mut Kernel, first: u64, pages: u64) {
        if let Some(place) = self.place_of(first, pages) {
            self.range().own(kernel).downgrade_entries(place, self.protection() & !protection::WRITE);
        }
    }
}
