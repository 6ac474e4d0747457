//! AddressRange: a tree of mappings with hardware tables.
//!
//! A root is a domain's space, any other range is mapped through the ranges it is nested in
//! (`nest`). A range is a core's own, or represents one of a pool for several cores
//! (`shared::range`); `space` has what both do, `fault` soft faults. Invariants: mappings and table
//! pages of a core's own range are charged to its Ram, and table pages stay until it ends. A core
//! has translations of the loaded space only (loading another drops them all), so a root
//! invalidates its own pages one by one, and a nested range, which the loaded space may map
//! anywhere and more than once, invalidates all.

use super::mapping::{Listed, Mapped, Mapping, PageRun, Tree, VaRange};
use super::segment::Segment;
use super::shared_objects::{Alias, NO_RANGE, SharedObject};
use super::space::{Space, TlbScope, check_protection};
use super::{Header, List, Made, Object, Ptr, Ram, fault, ram};
use crate::arch::paging::{self, Pte, Root, Table};
use crate::hardware;
use crate::memory::PhysAddr;
use crate::state::Kernel;
use crate::steps::{Budget, MAPPING_UNITS, MAPPING_WORK};
use abi::{Error, ObjectType, RangeEntry};
use core::cell::Cell;

/// The stages of a range's life.
///
/// | from | by what | to |
/// |---|---|---|
/// | `Open` | its domain dies, or its memory is revoked: nothing new is mapped | `Closed` |
/// | `Closed`, or `Open` and unused | the last of its mappings and tables is freed | `Cleared` |
///
/// A range that represents a pool's has no tables of its own and is never `Cleared`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    Closed,
    Cleared,
}

/// A set of mappings and the tables that cache it.
#[repr(C)]
pub struct Range {
    header: Header,
    top: Table,
    window: VaRange,
    /// Of a core's own.
    mappings: Tree,
    /// Its alias, if it represents a range of a pool.
    alias: Option<Ptr<Alias>>,
    /// The mappings that map it; roots have none.
    pub(crate) parents: List<Mapping, 1>,
    /// Writable code may be mapped.
    write_execute: bool,
    stage: Cell<Stage>,
}

// SAFETY: repr(C), header first.
unsafe impl Object for Range {
    const TYPE: ObjectType = ObjectType::AddressRange;
}

impl Range {
    /// Makes an empty range over the table `top`, whose page has been charged to `ram`; or, over a
    /// table of a pool, one that represents the pool's range and owns the alias.
    #[inline(never)]
    pub(crate) fn create(
        kernel: &mut Kernel,
        ram: Ptr<Ram>,
        (top, window): (Table, VaRange),
        write_execute: bool,
        alias: Option<Ptr<Alias>>,
    ) -> Made<Range> {
        kernel.create(ram, |header| Range {
            header,
            top,
            window,
            mappings: Tree::new(),
            alias,
            parents: List::new(),
            write_execute,
            stage: Cell::new(Stage::Open),
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

    /// The addresses it may use.
    pub fn window(&self) -> VaRange {
        self.window
    }

    /// Pages of its window; a nested range takes as many in a parent.
    pub fn pages(&self) -> u64 {
        self.window.pages()
    }

    /// A part of its window; `BadArgument` if not inside.
    pub fn place(&self, start: u64, pages: u64) -> Result<PageRun, Error> {
        self.window.place(start, pages)
    }

    /// Whether code that is mapped may be writable.
    pub fn may_write_execute(&self) -> bool {
        self.write_execute
    }

    /// Whether the protection is one that pages of the range may have.
    pub fn check_protection(&self, wanted: u64) -> Result<(), Error> {
        check_protection(wanted, self.write_execute)
    }

    /// The shared range that it represents.
    pub fn shared(&self) -> Option<SharedObject> {
        self.alias.map(|alias| alias.object())
    }
}

/// A core's own range with the kernel, for changes.
pub struct Own<'a> {
    kernel: &'a mut Kernel,
    range: Ptr<Range>,
}

impl Space for Own<'_> {
    type MapTarget = Listed;

    fn top(&self) -> Table {
        self.range.top
    }
    fn may_write_execute(&self) -> bool {
        self.range.write_execute
    }
    fn mappings(&self) -> &Tree {
        &self.range.mappings
    }

    fn make(&mut self, place: PageRun, mapped: Mapped, first: u64, rights: [u8; 2]) -> Made<Mapping> {
        assert!(self.range.stage.get() == Stage::Open, "a mapping is made in a range that is closed");
        assert!(self.range.place(place.start, place.pages).is_ok(), "a mapping lies outside of its range");
        let (core, pooled) = (self.kernel.core(), mapped.pooled());
        pooled.map_or(Ok(()), |segment| segment.enter(core, NO_RANGE))?;
        let node = ram::allocate_small(self.kernel, self.range.ram(), size_of::<Mapping>());
        let node = node.inspect_err(|_| pooled.iter().for_each(|segment| segment.leave(core)))?.cast::<Mapping>();
        // SAFETY: a fresh place of sufficient size and alignment; the mapping stays there until
        // `end`.
        let node = unsafe {
            node.write(Mapping::new(place, Listed::new(mapped, self.range), first, rights));
            Ptr::new(node)
        };
        match mapped {
            Mapped::Segment(segment) => {
                self.kernel.retain(segment);
                segment.mappings.push_back(node);
            }
            Mapped::Range(nested) => {
                self.kernel.retain(nested);
                nested.parents.push_back(node);
                nested.shared().inspect(|range| range.mapped_more(self.kernel.core()));
            }
        }
        Ok(node)
    }

    fn end(&mut self, mapping: Ptr<Mapping>) {
        hardware::count_work(MAPPING_WORK);
        let mapped = mapping.mapped();
        match mapped {
            Mapped::Segment(segment) => {
                segment.mappings.remove(mapping);
                mapped.pooled().inspect(|segment| segment.leave(self.kernel.core()));
            }
            Mapped::Range(nested) => {
                nested.parents.remove(mapping);
                nested.shared().inspect(|range| range.mapped_less(self.kernel.core()));
            }
        }
        ram::free_small(self.kernel, self.range.ram(), mapping.address().cast(), size_of::<Mapping>());
        match mapped {
            Mapped::Segment(segment) => self.kernel.release(segment),
            Mapped::Range(nested) => self.kernel.release(nested),
        }
    }

    fn allocate_table(&mut self) -> Option<PhysAddr> {
        self.kernel.allocate_page(self.range.ram()).ok()
    }
    fn free_table(&mut self, frame: PhysAddr) {
        self.kernel.free_page(self.range.ram(), frame);
    }

    fn tlb_scope(&self) -> TlbScope {
        match self.kernel.loaded {
            Some(range) if range == self.range => TlbScope::Here,
            Some(_) if !self.range.parents.is_empty() => TlbScope::Anywhere,
            _ => TlbScope::Nowhere,
        }
    }
    fn flush_page(&mut self, address: u64) {
        hardware::flush_page(address);
    }
    fn flush_all_translations(&mut self) {
        hardware::flush_all();
    }

    #[inline]
    fn fault_around(&mut self, mapping: Ptr<Mapping>, page: u64) -> Option<Pte> {
        fault::fault_around(self.kernel, mapping, page)
    }
}

impl Ptr<Range> {
    /// An empty space; its root page is charged to `ram`.
    pub fn create_root(kernel: &mut Kernel, ram: Ptr<Ram>, write_execute: bool) -> Made<Range> {
        let frame = kernel.allocate_page(ram)?;
        let window = kernel.user_window;
        let made = Range::create(kernel, ram, (paging::new_root(frame).top(), window), write_execute, None);
        if made.is_err() {
            kernel.free_page(ram, frame);
        }
        made
    }

    /// The hardware tables of a space.
    pub fn root(self) -> Root {
        self.top.root()
    }

    /// Whether its domain or pool lives, and its memory was not revoked.
    pub fn is_alive(self) -> bool {
        self.stage.get() == Stage::Open && self.shared().is_none_or(|object| object.is_alive())
    }

    /// A core's own range, for changes.
    #[inline]
    pub(super) fn own(self, kernel: &mut Kernel) -> Own<'_> {
        assert!(self.alias.is_none(), "it is a pool's");
        Own { kernel, range: self }
    }

    /// The mapping that covers `address`, or the first after it; of a core's own.
    pub fn at_or_after(self, address: u64) -> Option<Ptr<Mapping>> {
        self.mappings.at_or_after(address)
    }

    /// The mapping that covers `address`; of a core's own.
    pub fn at(self, address: u64) -> Option<Ptr<Mapping>> {
        self.mappings.at(address)
    }

    /// What is mapped at `address`, or first after it.
    pub fn get(self, kernel: &mut Kernel, address: u64) -> Option<RangeEntry> {
        if let Some(range) = self.shared() {
            return kernel.change_shared(range, |range| range.get(address));
        }
        let mapping = self.at_or_after(address)?;
        let object = match mapping.mapped() {
            Mapped::Segment(segment) => segment.any(),
            Mapped::Range(nested) => nested.any(),
        };
        Some(mapping.entry(object.id()))
    }

    /// Whether another core is stuck with it: see `SharedObject::is_stuck`.
    #[inline]
    pub fn is_stuck(self) -> bool {
        self.shared().is_some_and(|range| range.is_stuck())
    }

    /// Maps `segment` from page `first` on. Protection and rights have been checked; `Busy` if
    /// something is there.
    pub fn map(
        self,
        kernel: &mut Kernel,
        place: PageRun,
        segment: Ptr<Segment>,
        first: u64,
        rights: [u64; 2],
    ) -> Result<(), Error> {
        let last = first.checked_add(place.pages).ok_or(Error::BadArgument)?;
        if last > segment.pages() {
            return Err(Error::BadArgument);
        }
        match self.shared() {
            None => self.map_copy(kernel, place, segment, first, rights),
            Some(range) => {
                let object = range.beside(segment.alias().ok_or(Error::WrongType)?.object())?;
                kernel.change_shared(range, |range| range.map(place, object, first, rights))
            }
        }
    }

    /// As `map`, in a core's own, but the segment may be shorter: a copy of a mapping whose segment
    /// was shrunk behind it.
    pub(super) fn map_copy(
        self,
        kernel: &mut Kernel,
        place: PageRun,
        segment: Ptr<Segment>,
        first: u64,
        rights: [u64; 2],
    ) -> Result<(), Error> {
        self.own(kernel).map(place, Mapped::Segment(segment), first, rights)
    }

    /// Unmaps what is inside `place`, as [`Space::unmap`]. When this returns, no core can access
    /// what was unmapped.
    pub fn unmap(self, kernel: &mut Kernel, place: PageRun, budget: &mut Budget) -> Result<(u64, u64), Error> {
        match self.shared() {
            None => self.own(kernel).unmap(place, budget),
            Some(range) => kernel.change_shared(range, |range| range.unmap(place, budget)),
        }
    }

    /// Checks that `protect` is allowed, as [`Space::check_cover`].
    pub fn check_cover(
        self,
        kernel: &mut Kernel,
        place: PageRun,
        wanted: u64,
        from: u64,
        budget: &mut Budget,
    ) -> Result<u64, Error> {
        match self.shared() {
            None => self.own(kernel).check_cover(place, wanted, from, budget),
            Some(range) => kernel.change_shared(range, |range| range.check_cover(place, wanted, from, budget)),
        }
    }

    /// Sets the protection of pages of `place`, as [`Space::protect`].
    pub fn protect(self, kernel: &mut Kernel, place: PageRun, wanted: u64, budget: &mut Budget) -> Result<u64, Error> {
        match self.shared() {
            None => self.own(kernel).protect(place, wanted, budget),
            Some(range) => kernel.change_shared(range, |range| range.protect(place, wanted, budget)),
        }
    }

    fn set_stage(self, stage: Stage) {
        let before = self.stage.replace(stage);
        assert!(before != Stage::Cleared && before != stage, "a change of stage that no range makes");
    }

    /// Closes it, since its domain died or its memory is revoked: nothing new is mapped.
    pub fn close(self) {
        if self.stage.get() == Stage::Open {
            self.set_stage(Stage::Closed);
        }
    }

    /// Destroys all mappings and tables of a closed range that is mapped nowhere; tells whether the
    /// budget sufficed.
    pub fn clear(self, kernel: &mut Kernel, budget: &mut Budget) -> bool {
        // A pool's range is destroyed with its last name.
        if self.stage.get() == Stage::Cleared || self.alias.is_some() {
            return true;
        }
        assert!(self.parents.is_empty(), "a mapping of a range holds a reference");
        if kernel.loaded == Some(self) {
            kernel.load_kernel_space();
        }
        let mut own = self.own(kernel);
        while let Some(mapping) = self.at_or_after(0) {
            if !budget.spend(MAPPING_UNITS) {
                return false;
            }
            match mapping.mapped() {
                Mapped::Segment(_) => own.delete(mapping),
                Mapped::Range(_) => own.take_out(mapping),
            }
        }
        let ram = self.ram();
        let has_no_tables = paging::for_each_table(self.top, &mut |frame| {
            budget.spend(1) && {
                kernel.free_page(ram, frame);
                true
            }
        });
        if has_no_tables {
            self.set_stage(Stage::Cleared);
            kernel.free_page(ram, self.top.frame);
        }
        has_no_tables
    }

    /// Number of mappings of a core's own.
    pub fn count(self) -> u64 {
        self.mappings.count()
    }
}

pub(super) fn destroy(kernel: &mut Kernel, range: Ptr<Range>) {
    assert!(range.stage.get() == Stage::Cleared || range.alias.is_some(), "a range ends with its tables");
    assert!(range.parents.is_empty() && range.count() == 0, "a range ends with mappings");
    if let Some(alias) = range.alias {
        kernel.drop_alias(range.ram(), alias);
    }
}
