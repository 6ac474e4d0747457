//! A range of a pool: the same tables for every core that maps it (Corey section 3.1), changed
//! under its own lock.
//!
//! It maps segments of its pool, with demand paging by its own faults. Each core maps it through an
//! alias, nested in ranges of its own. Invariants: its line and its mappings are ordinary memory
//! that only the holder of its lock reads; processors read the tables at any time. A core counts
//! itself before it installs its first entry that leads here, and leaves after it has flushed its
//! TLB; unmap and downgrade shoot down exactly the cores that are counted. What was unmapped is
//! held until all of them have served the shootdown, and that is waited for without the lock
//! (decision 33).
//!
//! ```text
//!   core that changes (lock held)      core that begins to map it
//!   change the entries                 count itself
//!   fence                              fence
//!   read the counts; unlock            make the entry that leads to the tables
//!   shoot down those, wait
//! ```
//! A core whose count is not seen yet reads the entries as they are after the change.

use super::object::{ObjectKind, SharedObject};
use super::pool::PAGE_LINES;
use super::{SpinWait, registry};
use crate::arch::paging::{self, Leaves, Pte, Table};
use crate::boot::info::CORES_MAX;
use crate::hardware;
use crate::memory::PhysAddr;
use crate::objects::fault::{Access, Refused, Resolved, large_place};
use crate::objects::mapping::{MapTarget, Mapping, PAGE, PageRun, Tree};
use crate::objects::space::{Space, TlbScope, flags_under};
use crate::objects::{Made, Ptr};
use crate::state::Kernel;
use crate::steps::{Budget, MAPPING_UNITS, MAPPING_WORK, TABLE_UNITS};
use abi::layout::protection;
use abi::{Error, RangeEntry};
use core::cell::Cell;
use core::ptr::NonNull;
use lock::{AtomicU64, Guard, LINE_WORDS, Line, LineIndex, Ordering, Relax, Stat, fence};

/// What its lock guards besides mappings and tables.
struct Body {
    mappings: Tree<Pooled>,
    tables: Cell<u64>,
    faults: Cell<u64>,
    invalidations: Cell<u64>,
    /// Changes whose shootdown is not served by all cores yet; counted down without the lock.
    pending_shootdowns: AtomicU64,
}
const _: () = assert!(size_of::<Body>() <= size_of::<Line>());

/// The segment of its pool that a mapping maps, to which it has a reference. Places in a pool fit
/// into 32 bits.
pub struct Pooled {
    segment: u32,
    /// Of a mapping that was removed: the place of the next one.
    next: Cell<u32>,
}
const _: () = assert!(size_of::<Mapping<Pooled>>() <= size_of::<Line>());
const _: () = assert!(abi::layout::SEGMENT_PAGES_MAX * PAGE_LINES <= u32::MAX as u64);

impl MapTarget for Pooled {
    type What = LineIndex;
    fn what(&self) -> LineIndex {
        self.segment.into()
    }
    fn table(&self) -> Option<Table> {
        None
    }
}

/// The protection that a frozen page may have.
pub(super) const READ_ONLY: u64 = protection::READ | protection::EXECUTE;

/// Cores, a bit each.
type Cores = [u64; CORES_MAX.div_ceil(64)];

/// What a shared range has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeStat {
    /// Of its lock.
    pub lock: Stat,
    /// Faults served.
    pub faults: u64,
    /// Table pages below its uppermost.
    pub tables: u64,
    /// TLB shootdowns of other cores.
    pub invalidations: u64,
    /// Cores that map it now.
    pub cores: u64,
}

/// Lines of a shared range behind its lock's: its own, and a word per core that counts the ranges
/// of that core that map it.
pub(super) fn lines() -> u64 {
    1 + registry::cores().div_ceil(LINE_WORDS) as u64
}

impl SharedObject {
    /// Makes a new object an empty range of that level.
    pub(super) fn become_range(self, core: usize, level: u32, write_execute: bool) -> Result<(), Error> {
        let body = Body {
            mappings: Tree::new(),
            tables: Cell::new(0),
            faults: Cell::new(0),
            invalidations: Cell::new(0),
            pending_shootdowns: AtomicU64::new(0),
        };
        // SAFETY: the line is this object's, big enough and aligned for it, and nobody else knows
        // the object yet.
        unsafe { self.body().cast_mut().write(body) };
        let top = self.pool.allocate_pages(core, 1, 1)?;
        self.set_run(top, u64::from(level) | u64::from(write_execute) << 8);
        Ok(())
    }

    fn body(self) -> *const Body {
        core::ptr::from_ref(self.pool.at(self.behind_lock())).cast()
    }

    /// Its uppermost table.
    pub fn top(self) -> Table {
        let (frame, shape) = self.run();
        Table { frame, level: shape as u32 & 0xff }
    }

    /// Whether code in it may be writable.
    pub fn may_write_execute(self) -> bool {
        self.run().1 >> 8 != 0
    }

    /// The word of a core.
    fn mapped_on(self, core: usize) -> &'static AtomicU64 {
        &self.pool.at(self.behind_lock() + 1 + (core / LINE_WORDS) as u64).0[core % LINE_WORDS]
    }

    /// Counts a range of this core that is about to map it.
    pub fn mapped_more(self, core: usize) {
        let word = self.mapped_on(core);
        word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Before the entry that leads here: see the head of this file.
        fence(Ordering::SeqCst);
    }

    /// Counts a range of this core less that mapped it; this core has flushed its translations.
    pub fn mapped_less(self, core: usize) {
        let word = self.mapped_on(core);
        assert!(word.load(Ordering::Relaxed) > 0, "more mappings of a range go than came");
        word.store(word.load(Ordering::Relaxed) - 1, Ordering::Release);
    }

    /// The cores that map it, read after what this core has changed.
    fn mapped_by(self) -> Cores {
        fence(Ordering::SeqCst);
        let mut all: Cores = Default::default();
        for core in (0..registry::cores()).filter(|core| self.mapped_on(*core).load(Ordering::Acquire) != 0) {
            all[core / 64] |= 1 << (core % 64);
        }
        all
    }

    /// The place of `segment` for a mapping in this range. `BadArgument`: it lies in another pool.
    pub fn beside(self, segment: SharedObject) -> Result<LineIndex, Error> {
        if segment.pool == self.pool { Ok(segment.place) } else { Err(Error::BadArgument) }
    }

    /// What it has counted.
    pub fn range_stat(self, core: usize) -> RangeStat {
        let range = SharedRange::new(self, core);
        let _held = self.held(core);
        let stat = self.lock().stat();
        let body = range.body();
        RangeStat {
            // Without this reading.
            lock: Stat { acquires: stat.acquires - 1, ..stat },
            faults: body.faults.get(),
            tables: body.tables.get(),
            invalidations: body.invalidations.get(),
            cores: self.mapped_by().iter().map(|word| u64::from(word.count_ones())).sum(),
        }
    }
}

/// A shared range whose lock is held.
pub struct SharedRange {
    object: SharedObject,
    core: usize,
    /// Processors may have stale translations.
    stale: bool,
    /// The mapping removed last.
    gone: LineIndex,
    /// A segment, with a reference, and the frame that it had at a page before.
    replaced: Option<(SharedObject, PhysAddr)>,
}

impl SharedRange {
    fn new(object: SharedObject, core: usize) -> SharedRange {
        SharedRange { object, core, stale: false, gone: 0, replaced: None }
    }

    fn body(&self) -> &Body {
        // SAFETY: written when the range was made; a holder of a `SharedRange` has its lock, or is
        // the last one that knows it.
        unsafe { &*self.object.body() }
    }

    fn segment(&self, mapping: &Mapping<Pooled>) -> SharedObject {
        SharedObject { pool: self.object.pool, place: mapping.target().what() }
    }

    fn mapping(&self, place: LineIndex) -> Ptr<Mapping<Pooled>> {
        let line = NonNull::from(self.object.pool.at(place)).cast();
        // SAFETY: places of mappings come from `make` only; one stays until `free_gone`.
        unsafe { Ptr::new(line) }
    }

    /// What `RangeGet` tells of the mapping at an address, or the first after it.
    pub fn get(&self, address: u64) -> Option<RangeEntry> {
        let mapping = self.mappings().at_or_after(address)?;
        Some(mapping.entry(self.segment(&mapping).id()))
    }

    /// Makes an access possible at an address of the range, which a space of this core maps at
    /// `seen`: gives the frame that the entry now maps. `None`: other cores have to serve a
    /// shootdown before.
    fn resolve(&mut self, address: u64, access: Access, seen: u64) -> Result<Option<PhysAddr>, Refused> {
        let mapping = self.mappings().at(address).ok_or(Refused::NotAllowed)?;
        if mapping.protection() & access.needs() == 0 {
            return Err(Refused::NotAllowed);
        }
        let faults = &self.body().faults;
        faults.set(faults.get() + 1);
        let segment = self.segment(&mapping);
        let page = mapping.page_at(address);
        let frame = segment.touch(self.core, page).map_err(|_| Refused::NoMemory)?;
        let writable = segment.may_write(frame);
        if access == Access::Write && !writable {
            return self.break_cow(segment, page).map(|()| None).map_err(|_| Refused::NoMemory);
        }
        let flags = flags_under(mapping.protection(), writable);
        let run = segment.base().map(|base| (base, segment.pages()));
        let large = large_place(mapping, self.top().level, run, address);
        // A table that is there stays: other processors walk it.
        let was_there = match large.filter(|start| !matches!(paging::leaves(self.top(), *start, 1), Leaves::Small(_))) {
            Some(start) => {
                let first = PhysAddr(frame.0 - (address / PAGE * PAGE - start));
                self.map_large(start, Pte::new(first, flags | paging::Flags::LARGE))
            }
            None => self.map_entry(mapping, address & !(PAGE - 1), Pte::new(frame, flags)),
        };
        if was_there.map_err(|_| Refused::NoMemory)? {
            // Another core was faster, or it allowed less of the same frame.
            hardware::flush_page(seen);
        }
        Ok(Some(frame))
    }

    /// Breaks copy-on-write: gives a segment a frame of its own for a page, which is not mapped
    /// yet.
    fn break_cow(&mut self, segment: SharedObject, page: u64) -> Result<(), Error> {
        if let Some(shared) = segment.break_cow(self.core, page)? {
            segment.retain();
            self.replaced = Some((segment, shared));
            self.downgrade_pages(segment, page, 1, 0);
        }
        Ok(())
    }

    /// Reduces all entries of some of a segment's pages to what the protection allows. If
    /// shootdowns of earlier changes are pending, this change waits for those, too.
    pub(super) fn downgrade_pages(&mut self, segment: SharedObject, first: u64, pages: u64, wanted: u64) {
        self.stale |= self.body().pending_shootdowns.load(Ordering::Acquire) > 0;
        let mut next = 0;
        while let Some(mapping) = { self.mappings().at_or_after(next) } {
            next = mapping.end();
            if mapping.target().what() == segment.place
                && let Some(place) = mapping.place_of(first, pages)
            {
                self.downgrade_entries(place, wanted);
            }
        }
    }

    /// Frees what was removed or replaced, after all cores have flushed their translations of it.
    fn free_gone(&mut self) {
        while self.gone != 0 {
            let (place, mapping) = (self.gone, self.mapping(self.gone));
            self.gone = mapping.target().next.get().into();
            let segment = self.segment(&mapping);
            self.object.free_line(place);
            segment.leave(self.core);
            segment.release(self.core);
        }
        if let Some((segment, shared)) = self.replaced.take() {
            let pool = self.object.pool;
            segment.unfreeze(self.core);
            pool.release_pages(self.core, &mut core::iter::once(pool.page_of(shared)));
            segment.release(self.core);
        }
    }
}

impl Space for SharedRange {
    type MapTarget = Pooled;

    fn top(&self) -> Table {
        self.object.top()
    }
    fn may_write_execute(&self) -> bool {
        self.object.may_write_execute()
    }
    fn mappings(&self) -> &Tree<Pooled> {
        &self.body().mappings
    }

    fn make(&mut self, place: PageRun, segment: LineIndex, first: u64, rights: [u8; 2]) -> Made<Mapping<Pooled>> {
        let pool = self.object.pool;
        let segment = SharedObject { pool, place: segment };
        segment.enter(self.core, self.object.place)?;
        let line = self.object.take_line(self.core).inspect_err(|_| segment.leave(self.core))?;
        segment.retain();
        let made = self.mapping(line);
        let target = Pooled { segment: segment.place as u32, next: Cell::new(0) };
        // SAFETY: a line that nobody else uses, of the size and alignment asserted above.
        unsafe { made.address().write(Mapping::new(place, target, first, rights)) };
        Ok(made)
    }

    fn end(&mut self, mapping: Ptr<Mapping<Pooled>>) {
        mapping.target().next.set(self.gone as u32);
        self.gone = self.object.pool.place_of(mapping.address().as_ptr().cast());
    }

    fn allocate_table(&mut self) -> Option<PhysAddr> {
        let place = self.object.pool.allocate_pages(self.core, 1, 1).ok()?;
        let tables = &self.body().tables;
        tables.set(tables.get() + 1);
        Some(self.object.pool.frame(place))
    }

    fn free_table(&mut self, _frame: PhysAddr) {
        unreachable!("tables of a shared range stay until it ends");
    }

    fn tlb_scope(&self) -> TlbScope {
        TlbScope::Anywhere
    }
    fn flush_page(&mut self, _address: u64) {
        self.stale = true;
    }
    fn flush_all_translations(&mut self) {
        self.stale = true;
    }

    fn fault_around(&mut self, mapping: Ptr<Mapping<Pooled>>, page: u64) -> Option<Pte> {
        let segment = self.segment(&mapping);
        let frame = segment.frame(page)?;
        Some(Pte::new(frame, flags_under(mapping.protection(), segment.may_write(frame))))
    }
}

/// Destroys the mappings and tables of a range that nobody refers to, so that no core maps it.
/// Tells whether the budget sufficed.
pub(super) fn drain(object: SharedObject, core: usize, budget: &mut Budget) -> bool {
    assert!(object.kind() == ObjectKind::Range);
    let (pool, range) = (object.pool, SharedRange::new(object, core));
    while let Some(mapping) = { range.mappings().at_or_after(0) } {
        if !budget.spend(MAPPING_UNITS) {
            return false;
        }
        hardware::count_work(MAPPING_WORK);
        range.mappings().remove(mapping);
        range.segment(&mapping).leave(core);
        range.segment(&mapping).release_later();
    }
    if object.has_run() {
        let give = |frame| pool.release_pages(core, &mut core::iter::once(pool.page_of(frame)));
        let mut free = |frame: PhysAddr| budget.spend(TABLE_UNITS).then(|| give(frame)).is_some();
        if !paging::for_each_table(object.top(), &mut free) || !free(object.top().frame) {
            return false;
        }
        object.set_run(0, 0);
    }
    true
}

impl Kernel {
    /// Changes a shared range, or reads it. When this returns, no core can access what was unmapped
    /// or downgraded.
    pub fn change_shared<R>(&mut self, object: SharedObject, change: impl FnOnce(&mut SharedRange) -> R) -> R {
        self.change_and_wait(object, change).0
    }

    /// Makes an access possible; see [`SharedRange::resolve`].
    pub fn resolve_shared(&mut self, object: SharedObject, address: u64, access: Access, seen: u64) -> Resolved {
        let mut wait = SpinWait::default();
        loop {
            // During the wait others may have removed the mapping and freed its frame.
            let (resolved, has_waited) = self.change_and_wait(object, |range| range.resolve(address, access, seen));
            match resolved {
                Ok(Some(frame)) if !has_waited => return Ok(frame),
                Err(refused) if !has_waited => return Err(refused),
                _ => (),
            }
            self.service_tlb_shootdowns();
            wait.relax();
        }
    }

    fn change_and_wait<R>(&mut self, object: SharedObject, change: impl FnOnce(&mut SharedRange) -> R) -> (R, bool) {
        let core = self.core();
        let mut range = SharedRange::new(object, core);
        let held = object.held(core);
        let result = change(&mut range);
        self.wait_for_shootdown(&mut range, held);
        (result, range.stale)
    }

    /// Ends a change: releases the lock, and waits until all cores that may have stale translations
    /// have flushed them.
    #[inline(never)]
    fn wait_for_shootdown(&mut self, range: &mut SharedRange, held: Guard<'static, SpinWait>) {
        let (object, core) = (range.object, range.core);
        let mut others = if range.stale { object.mapped_by() } else { Cores::default() };
        let own = others[core / 64] >> (core % 64) & 1 != 0;
        others[core / 64] &= !(1 << (core % 64));
        if others != Cores::default() {
            let count = &range.body().invalidations;
            count.set(count.get() + 1);
        }
        let pending_shootdowns = &range.body().pending_shootdowns;
        pending_shootdowns.fetch_add(range.stale.into(), Ordering::Relaxed);
        drop(held);
        self.invalidate(others);
        if own {
            hardware::flush_all();
        }
        pending_shootdowns.fetch_sub(range.stale.into(), Ordering::Release);
        self.counters.copy_faults += u64::from(range.replaced.is_some());
        range.free_gone();
    }

    /// Shoots down all translations of user memory on those cores, and waits. No lock is held;
    /// requests of other cores are served meanwhile, so that two may shoot down each other.
    fn invalidate(&mut self, cores: Cores) {
        let each = || (0..registry::cores()).filter(|core| cores[core / 64] >> (core % 64) & 1 != 0);
        for core in each() {
            self.counters.shootdowns_sent += 1;
            hardware::send_tlb_shootdown(core);
        }
        for core in each() {
            let mut wait = SpinWait::default();
            while !hardware::shootdown_is_done(core) {
                self.service_tlb_shootdowns();
                wait.relax();
            }
        }
    }

    /// Invalidates all translations of user memory if other cores request it.
    pub fn service_tlb_shootdowns(&mut self) {
        self.counters.shootdowns_serviced += hardware::service_tlb_shootdowns();
    }
}
