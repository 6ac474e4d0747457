//! Segment: a physical memory object.
//!
//! Anonymous segments have an entry per page: 0 = absent (demand-zero), else the frame. A frame may
//! be in entries of several segments (copy-on-write, copy-on-reference); its reference count in
//! [`super::frames`] tells of how many, and only an entry whose frame has count 1 may be mapped
//! writable. Contiguous segments own one run of frames; imported ones own nothing and cover memory
//! of a device or of another core. Invariants: each present entry is charged to the segment's Ram;
//! every mapping of the segment is on its list, so that a change of an entry can downgrade the
//! hardware tables, too. Entries of small segments are in the object, those of larger ones in a
//! table page, or in table pages under an index page; these are made at first use. Segments with
//! pages in *common* are all written to the same pages: these were made at once, a fork gives the
//! child one more such segment, charged to its own Ram, and a page is freed with the last.
//!
//! ```text
//!   an entry:             first touch          share_until_written (count 2 and more)
//!                absent ─────────────► own, count 1 ─────────────────────────────────► shared
//!                                           ▲    a write, by a copy in a frame of its own │
//!                                           ├─────────────────────────────────────────────┤
//!                                           └─────────────────────────────────────────────┘
//!                                            a write after all others dropped it: as it is
//! ```

use super::mapping::Mapping;
use super::shared_objects::Alias;
use super::{Header, List, Made, Object, Ptr, Ram, frames};
use crate::memory::{PAGE_BYTES, PhysAddr, phys_to_virt};
use crate::state::Kernel;
use crate::steps::{Budget, PAGE_UNITS};
use abi::layout::{SEGMENT_PAGES_MAX, SHARE_SLOTS_MAX};
use abi::{Error, ObjectType};
use core::cell::Cell;

const INLINE: usize = 16;
const ENTRIES: usize = PAGE_BYTES / 8;
const _: () = assert!(SEGMENT_PAGES_MAX as usize <= ENTRIES * ENTRIES);
/// Pages that a step unmaps when the segment is revoked: a table of leaves; and its cost as frees
/// of single pages.
const PIECE_PAGES: u64 = ENTRIES as u64;
const PIECE_UNITS: u32 = 16;
/// Pages that a step frees of a segment that nothing refers to.
const DRAIN_PAGES: u64 = 16;
/// Pages that a step shares when the segment is copied, and their cost as frees of single pages: so
/// a step shares a thousand pages.
const SHARE_PAGES: u64 = 64;
const SHARE_UNITS: u32 = 16;

/// A shared frame is copied at the first access of any kind, not at the first write: so pages are
/// on the node of the core that uses them.
const BY_REFERENCE: u8 = 1;
/// Its pages are those of other segments, too, for all to write.
const COMMON: u8 = 2;
const _: () = assert!(SHARE_SLOTS_MAX <= 1 << u16::BITS, "a slot's number is kept in 16 bits");

/// The kinds of segments, by the source of their pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Pages of this core, one by one.
    Anonymous,
    /// One run of pages of this core.
    Contiguous(PhysAddr),
    /// Memory that this core does not own.
    Imported {
        /// Its first byte.
        base: PhysAddr,
        /// Device registers.
        uncached: bool,
        /// It is RAM, so the kernel may read and write it through the direct map.
        is_ram: bool,
    },
    /// Pages of a pool.
    Shared(Ptr<Alias>),
}

/// A physical memory object.
#[repr(C)]
pub struct Segment {
    header: Header,
    kind: Kind,
    /// At most [`SEGMENT_PAGES_MAX`].
    pages: Cell<u32>,
    present: Cell<u32>,
    /// Pages made so far by the call that makes it: of a contiguous one, those with a count.
    made: Cell<u32>,
    /// 0: entries are inline; 1: in the page at `table`; 2: `table` is an index of such pages.
    levels: Cell<u8>,
    /// [`BY_REFERENCE`], [`COMMON`].
    ways: Cell<u8>,
    /// The slot where the last fork of a domain found it first; 0: none did.
    pub(super) fork_slot: Cell<u16>,
    /// Its mappings, in any ranges.
    pub(crate) mappings: List<Mapping, 1>,
    /// Of a copy that is being made: its source, which may be destroyed.
    source: Cell<Option<Ptr<Segment>>>,
    table: Cell<u64>,
    inline: [Cell<u64>; INLINE],
}

// SAFETY: repr(C), header first.
unsafe impl Object for Segment {
    const TYPE: ObjectType = ObjectType::Segment;
}
const _: () = assert!(size_of::<Segment>() <= super::ram::SMALL_BYTES);

fn levels_for(pages: u64) -> u8 {
    u8::from(pages as usize > INLINE) + u8::from(pages as usize > ENTRIES)
}

fn table(frame: u64) -> &'static [Cell<u64>; ENTRIES] {
    // SAFETY: only frames of table pages of live segments are given, zeroed when made.
    unsafe { &*phys_to_virt(PhysAddr(frame)).cast() }
}

/// The page behind the word, made if it is absent.
fn ensure_table(kernel: &mut Kernel, ram: Ptr<Ram>, word: &Cell<u64>) -> Result<&'static [Cell<u64>; ENTRIES], Error> {
    if word.get() == 0 {
        word.set(kernel.allocate_clear_page(ram)?.0);
    }
    Ok(table(word.get()))
}

impl Segment {
    /// Size in pages.
    pub fn pages(&self) -> u64 {
        self.pages.get().into()
    }

    fn cut_to(&self, pages: u64) {
        assert!(pages <= SEGMENT_PAGES_MAX && u64::from(self.present.get()) <= pages, "pages past the end are present");
        self.pages.set(pages as u32);
    }

    /// Pages that have a frame.
    pub fn present(&self) -> u64 {
        match self.kind {
            Kind::Anonymous => u64::from(self.present.get()),
            Kind::Shared(alias) => alias.object().present(),
            _ => self.pages(),
        }
    }

    /// At most [`SEGMENT_PAGES_MAX`].
    fn set_present(&self, pages: u64) {
        assert!(pages <= self.pages(), "more pages present than it has");
        self.present.set(pages as u32);
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its alias, if it represents a shared one.
    pub fn alias(&self) -> Option<Ptr<Alias>> {
        match self.kind {
            Kind::Shared(alias) => Some(alias),
            _ => None,
        }
    }

    /// Physical address, if its pages are one run.
    pub fn base(&self) -> Option<PhysAddr> {
        match self.kind {
            Kind::Anonymous => None,
            Kind::Contiguous(base) | Kind::Imported { base, .. } => Some(base),
            Kind::Shared(alias) => alias.object().base(),
        }
    }

    /// The frame of a page, if present; for runs always.
    #[inline(always)]
    pub fn frame(&self, page: u64) -> Option<PhysAddr> {
        if page >= self.pages() {
            return None;
        }
        match (self.kind, self.base()) {
            (_, Some(base)) => Some(base + page * PAGE_BYTES as u64),
            (Kind::Shared(alias), None) => alias.object().frame(page),
            _ => self.entry(page).map(Cell::get).filter(|entry| *entry != 0).map(PhysAddr),
        }
    }

    #[inline(always)]
    fn entry(&self, page: u64) -> Option<&Cell<u64>> {
        let (high, low) = (page as usize / ENTRIES, page as usize % ENTRIES);
        match self.levels.get() {
            0 => self.inline.get(page as usize),
            1 => (self.table.get() != 0).then(|| &table(self.table.get())[low]),
            _ => {
                let index = (self.table.get() != 0).then(|| table(self.table.get()))?;
                let word = index[high].get();
                (word != 0).then(|| &table(word)[low])
            }
        }
    }

    /// The entries of the table page, or the object itself, that hold page `first`, the first of
    /// its table.
    pub(crate) fn block(&self, first: u64) -> Option<&[Cell<u64>]> {
        match self.levels.get() {
            0 => Some(&self.inline),
            1 => (self.table.get() != 0).then(|| &table(self.table.get())[..]),
            _ => {
                let word = (self.table.get() != 0).then(|| table(self.table.get())[first as usize / ENTRIES].get())?;
                (word != 0).then(|| &table(word)[..])
            }
        }
    }
}

impl Ptr<Segment> {
    /// A segment of absent pages.
    pub fn new_anonymous(kernel: &mut Kernel, ram: Ptr<Ram>, pages: u64) -> Made<Segment> {
        Self::create(kernel, ram, pages, Kind::Anonymous)
    }

    /// Makes a segment over memory of another core or a device.
    pub fn new_imported(kernel: &mut Kernel, ram: Ptr<Ram>, pages: u64, kind: Kind) -> Made<Segment> {
        assert!(matches!(kind, Kind::Imported { .. }), "an imported segment is of another kind");
        Self::create(kernel, ram, pages, kind)
    }

    /// Makes a segment that represents a shared one and owns the alias.
    pub fn new_shared(kernel: &mut Kernel, ram: Ptr<Ram>, pages: u64, alias: Ptr<Alias>) -> Made<Segment> {
        Self::create(kernel, ram, pages, Kind::Shared(alias))
    }

    /// Makes a segment over one run of zeroed pages.
    pub fn new_contiguous(kernel: &mut Kernel, ram: Ptr<Ram>, pages: u64) -> Made<Segment> {
        let made = Self::reserve_contiguous(kernel, ram, pages)?;
        made.populate(kernel, &mut Budget::all())?;
        Ok(made)
    }

    /// As `new_contiguous`, but to be populated before anybody can name it.
    pub fn reserve_contiguous(kernel: &mut Kernel, ram: Ptr<Ram>, pages: u64) -> Made<Segment> {
        ram.charge(pages)?;
        let run = kernel.frames.reserve_run(pages).ok_or(Error::NoMemory);
        let made = run.and_then(|base| {
            let made = Self::create(kernel, ram, pages, Kind::Contiguous(base));
            if made.is_err() {
                (0..pages).for_each(|page| kernel.frames.free_reserved(base + page * PAGE_BYTES as u64));
            }
            made
        });
        if made.is_err() {
            ram.uncharge(pages);
        }
        made
    }

    #[inline(never)]
    fn create(kernel: &mut Kernel, ram: Ptr<Ram>, pages: u64, kind: Kind) -> Made<Segment> {
        let is_bounded = pages <= SEGMENT_PAGES_MAX || matches!(kind, Kind::Shared(_));
        assert!(is_bounded, "a segment has more pages than its tables");
        kernel.create(ram, |header| Segment {
            header,
            kind,
            pages: Cell::new(pages as u32),
            present: Cell::new(0),
            made: Cell::new(0),
            mappings: List::new(),
            source: Cell::new(None),
            fork_slot: Cell::new(0),
            levels: Cell::new(levels_for(pages)),
            ways: Cell::new(0),
            table: Cell::new(0),
            inline: [const { Cell::new(0) }; INLINE],
        })
    }

    fn ensure_entry(&self, kernel: &mut Kernel, page: u64) -> Result<&Cell<u64>, Error> {
        let (high, low) = (page as usize / ENTRIES, page as usize % ENTRIES);
        let ram = self.ram();
        Ok(match self.levels.get() {
            0 => &self.inline[page as usize],
            1 => &ensure_table(kernel, ram, &self.table)?[low],
            _ => {
                let index = ensure_table(kernel, ram, &self.table)?;
                &ensure_table(kernel, ram, &index[high])?[low]
            }
        })
    }

    /// The frame of a page of an anonymous segment, made of zeroes if absent. The page must be
    /// inside.
    pub fn touch(self, kernel: &mut Kernel, page: u64) -> Result<PhysAddr, Error> {
        assert!(page < self.pages() && self.kind == Kind::Anonymous, "a page outside of a segment");
        let entry = self.ensure_entry(kernel, page)?;
        if entry.get() == 0 {
            let frame = kernel.allocate_clear_page(self.ram())?;
            entry.set(frame.0);
            self.set_present(self.present() + 1);
        }
        Ok(PhysAddr(entry.get()))
    }

    /// As `touch`, but the frame is this segment's alone: a shared one is copied. Tells whether it
    /// was.
    pub fn touch_to_write(self, kernel: &mut Kernel, page: u64) -> Result<(PhysAddr, bool), Error> {
        let shared = self.touch(kernel, page)?;
        if self.is_writable(kernel, shared) {
            return Ok((shared, false));
        }
        // The charge stays as it is: this entry held one page before and holds one after.
        let own = kernel.frames.allocate().ok_or(Error::NoMemory)?;
        frames::copy(shared, own);
        kernel.frames.release(shared);
        debug_assert!(kernel.frames.count(own) == 1 && own != shared, "a copy of a page has other users");
        self.ensure_entry(kernel, page)?.set(own.0);
        self.unmap_pages(kernel, page, 1);
        Ok((own, true))
    }

    /// Whether this frame of it may be written as it is.
    #[inline(always)]
    pub fn is_writable(self, kernel: &mut Kernel, frame: PhysAddr) -> bool {
        kernel.frames.count(frame) == 1 || self.is_common()
    }

    /// Whether other segments have its pages, too, to write.
    pub fn is_common(self) -> bool {
        self.ways.get() & COMMON != 0
    }

    /// Notes the source of a copy that is being made: later steps go on with no other.
    pub fn set_source(self, source: Option<Ptr<Segment>>) {
        self.source.set(source);
    }

    /// Whether it was begun as a copy of that source.
    pub fn is_made_of(self, source: Option<Ptr<Segment>>) -> bool {
        self.source.get() == source
    }

    /// Makes it common: a fork shares its pages, all of which are made.
    pub fn make_common(self) {
        assert!(self.kind == Kind::Anonymous && self.present() == self.pages(), "pages in common are absent");
        self.ways.set(COMMON);
    }

    /// Makes an empty segment of `ram` that is to become a copy of this one, or to have the same
    /// pages if it is common.
    pub(super) fn begin_copy(self, kernel: &mut Kernel, ram: Ptr<Ram>) -> Made<Segment> {
        let copy = Self::new_anonymous(kernel, ram, self.pages())?;
        copy.ways.set(self.ways.get() & COMMON);
        copy.set_source(Some(self));
        Ok(copy)
    }

    /// Makes all pages of a segment that is not mapped yet; tells whether the budget sufficed. On
    /// failure those made stay.
    pub fn populate(self, kernel: &mut Kernel, budget: &mut Budget) -> Result<bool, Error> {
        self.make_pages(budget, |page| {
            if let Kind::Contiguous(base) = self.kind {
                let frame = base + page * PAGE_BYTES as u64;
                kernel.frames.count_reserved(frame, 1);
                frames::clear(frame);
                return Ok(());
            }
            self.touch(kernel, page).map(|_| ())
        })
    }

    /// Makes one page after the other from where it was left; tells whether the budget sufficed.
    fn make_pages(self, budget: &mut Budget, mut make: impl FnMut(u64) -> Result<(), Error>) -> Result<bool, Error> {
        while u64::from(self.made.get()) < self.pages() {
            if !budget.spend(PAGE_UNITS) {
                return Ok(false);
            }
            make(self.made.get().into())?;
            self.made.set(self.made.get() + 1);
        }
        Ok(true)
    }

    /// Whether a frame that others share must be copied before it is mapped.
    pub fn copies_by_reference(&self) -> bool {
        self.ways.get() & BY_REFERENCE != 0
    }

    /// Makes it copy-on-reference: it gets frames of its own at the first access, also to read.
    pub fn set_by_reference(&self) {
        self.ways.set(self.ways.get() | BY_REFERENCE);
    }

    /// Shares its frames with `copy`, an empty one that is not mapped yet, until either is written,
    /// or those of a common one for good, as far as the budget allows; tells whether those were
    /// all. On failure those shared stay.
    pub fn share_until_written(self, kernel: &mut Kernel, copy: Self, budget: &mut Budget) -> Result<bool, Error> {
        while u64::from(copy.made.get()) < self.pages() {
            let first = u64::from(copy.made.get());
            let has_table = self.block(first - first % ENTRIES as u64).is_some();
            let (piece, units) = if has_table { (SHARE_PAGES, SHARE_UNITS) } else { (ENTRIES as u64, 1) };
            let end = self.pages().min((first / piece + 1) * piece);
            if !budget.spend(units) {
                return Ok(false);
            }
            if has_table {
                self.share_piece(kernel, copy, first, end)?;
            }
            copy.made.set(end as u32);
        }
        Ok(true)
    }

    /// Shares the frames of one table: all or, on failure, none.
    fn share_piece(self, kernel: &mut Kernel, copy: Ptr<Segment>, first: u64, end: u64) -> Result<(), Error> {
        let begin = first - first % ENTRIES as u64;
        let part = (first - begin) as usize..(end - begin) as usize;
        let Some(from) = self.block(begin).map(|block| &block[part.clone()]) else { return Ok(()) };
        let present = from.iter().filter(|entry| entry.get() != 0).count() as u64;
        if present == 0 {
            return Ok(());
        }
        assert!(copy.kind == Kind::Anonymous && copy.mappings.is_empty(), "a copy is seen before it is whole");
        copy.ensure_entry(kernel, first)?;
        copy.ram().charge(present)?;
        let to = &copy.block(begin).expect("its first entry was made")[part];
        for (from, to) in from.iter().zip(to).filter(|(from, _)| from.get() != 0) {
            debug_assert!(to.get() == 0, "a copy has a page already");
            kernel.frames.share(PhysAddr(from.get()));
            to.set(from.get());
        }
        copy.set_present(copy.present() + present);
        if !self.is_common() {
            self.deny_writes(kernel, first, end - first);
        }
        Ok(())
    }

    /// Copies its pages into those of `copy`, an empty one that is not mapped yet; tells whether
    /// the budget sufficed.
    pub fn copy_pages(self, kernel: &mut Kernel, copy: Ptr<Segment>, budget: &mut Budget) -> Result<bool, Error> {
        copy.make_pages(budget, |page| {
            let Some(from) = self.frame(page) else { return Ok(()) };
            let entry = copy.ensure_entry(kernel, page)?;
            let own = kernel.allocate_page(copy.ram())?;
            match self.alias() {
                Some(alias) => alias.object().read_page(kernel.core(), page, own),
                None => frames::copy(from, own),
            }
            entry.set(own.0);
            copy.set_present(copy.present() + 1);
            Ok(())
        })
    }

    /// Grows or shrinks an anonymous segment.
    pub fn set_pages(self, kernel: &mut Kernel, pages: u64) -> Result<(), Error> {
        assert!(self.kind == Kind::Anonymous && !self.is_common(), "a segment of another kind is resized");
        let old = self.pages();
        while self.levels.get() < levels_for(pages) {
            self.raise(kernel)?;
        }
        if pages < old {
            self.discard(kernel, pages, old);
        }
        self.cut_to(pages);
        Ok(())
    }

    /// Adds a level of tables above the present ones.
    fn raise(self, kernel: &mut Kernel) -> Result<(), Error> {
        assert!(self.levels.get() < 2, "tables of a segment are two levels high");
        let has_entries = self.levels.get() == 0 || self.table.get() != 0;
        if has_entries {
            let frame = kernel.allocate_clear_page(self.ram())?.0;
            if self.levels.get() == 0 {
                self.inline.iter().zip(table(frame)).for_each(|(from, to)| to.set(from.take()));
            } else {
                table(frame)[0].set(self.table.get());
            }
            self.table.set(frame);
        }
        self.levels.set(self.levels.get() + 1);
        Ok(())
    }

    /// Frees the pages of an anonymous segment from `first` to before `end`; they are absent then.
    pub fn discard(self, kernel: &mut Kernel, first: u64, end: u64) {
        assert!(self.kind == Kind::Anonymous && first <= end && end <= self.pages(), "pages outside of a segment");
        if self.present() == 0 {
            return;
        }
        self.unmap_pages(kernel, first, end - first);
        let held = self.present();
        let mut left = held;
        let mut next = first;
        while next < end && left > 0 {
            let block_end = end.min((next / ENTRIES as u64 + 1) * ENTRIES as u64);
            let block = self.block(next - next % ENTRIES as u64).unwrap_or_default();
            let wanted = block.iter().skip(next as usize % ENTRIES).take((block_end - next) as usize);
            for entry in wanted {
                if left == 0 {
                    break;
                }
                if entry.get() != 0 {
                    kernel.frames.release(PhysAddr(entry.take()));
                    left -= 1;
                }
            }
            next = block_end;
        }
        self.ram().uncharge(held - left);
        self.set_present(left);
    }

    /// Checks that its one page can be retyped: it is not mapped, and nothing but one capability
    /// names it.
    pub fn check_lone(self) -> Result<(), Error> {
        if self.pages() != 1 || !matches!(self.kind, Kind::Contiguous(_)) {
            return Err(Error::BadArgument);
        }
        let is_lone = self.mappings.is_empty() && self.header().references() == 1;
        if is_lone { Ok(()) } else { Err(Error::Busy) }
    }

    /// Gives its pages, and the charge for them, to another object; they are not mapped.
    pub(crate) fn transfer_pages(self) {
        assert!(self.mappings.is_empty(), "pages are given away that are mapped");
        self.cut_to(0);
    }

    /// Unmaps it in all address spaces, a piece at a time, and invalidates the translations of each
    /// page; tells whether the budget sufficed.
    pub(crate) fn unmap_everywhere(self, kernel: &mut Kernel, budget: &mut Budget) -> bool {
        while let Some(mapping) = self.mappings.first() {
            if !budget.spend(PIECE_UNITS) {
                return false;
            }
            mapping.trim(kernel, PIECE_PAGES);
        }
        true
    }

    /// Frees its pages and tables, to which nothing refers; tells whether the budget sufficed.
    pub(super) fn drain(self, kernel: &mut Kernel, budget: &mut Budget) -> bool {
        self.free_pages(kernel, budget) && self.free_tables(kernel, budget)
    }

    fn free_tables(self, kernel: &mut Kernel, budget: &mut Budget) -> bool {
        let (ram, index) = (self.ram(), self.table.get());
        if index == 0 {
            return true;
        }
        let lower = table(index).iter().filter(|word| self.levels.get() == 2 && word.get() != 0);
        for word in lower.rev() {
            if !budget.spend(1) {
                return false;
            }
            kernel.free_page(ram, PhysAddr(word.take()));
        }
        kernel.free_page(ram, PhysAddr(self.table.take()));
        true
    }

    /// Frees its pages from the end on; nobody has it mapped. Tells whether the budget sufficed.
    pub(crate) fn free_pages(self, kernel: &mut Kernel, budget: &mut Budget) -> bool {
        assert!(self.mappings.is_empty(), "pages are freed that are mapped");
        while let Some(last) = self.pages().checked_sub(1) {
            if !budget.spend(1) {
                return false;
            }
            match self.kind {
                Kind::Imported { .. } | Kind::Shared(_) => self.cut_to(0),
                Kind::Contiguous(base) => {
                    self.free_of_run(kernel, base, last);
                    self.cut_to(last);
                }
                Kind::Anonymous if self.present() == 0 => self.cut_to(0),
                Kind::Anonymous => {
                    let has_table = self.block(last - last % ENTRIES as u64).is_some();
                    let piece = if has_table { DRAIN_PAGES } else { ENTRIES as u64 };
                    let (first, before) = (last / piece * piece, self.present());
                    self.discard(kernel, first, last + 1);
                    self.cut_to(first);
                    budget.spend((before - self.present()) as u32);
                }
            }
        }
        true
    }

    /// Frees a page of a run, which may not have been made yet.
    fn free_of_run(self, kernel: &mut Kernel, base: PhysAddr, page: u64) {
        let frame = base + page * PAGE_BYTES as u64;
        if page < u64::from(self.made.get()) {
            return kernel.free_page(self.ram(), frame);
        }
        kernel.frames.free_reserved(frame);
        self.ram().uncharge(1);
    }

    /// Removes the entries of pages from the hardware tables of every mapping.
    fn unmap_pages(self, kernel: &mut Kernel, first: u64, pages: u64) {
        self.for_each_mapping(|mapping| mapping.unmap_pages(kernel, first, pages));
    }

    /// Removes the right to write pages from the hardware tables of every mapping.
    fn deny_writes(self, kernel: &mut Kernel, first: u64, pages: u64) {
        self.for_each_mapping(|mapping| mapping.deny_writes(kernel, first, pages));
    }

    fn for_each_mapping(self, mut f: impl FnMut(Ptr<Mapping>)) {
        let mut next = self.mappings.first();
        while let Some(mapping) = next {
            next = mapping.next_of_mapped();
            f(mapping);
        }
    }

    /// Whether the kernel may reach its bytes through the direct map.
    pub fn is_ram(self) -> bool {
        !matches!(self.kind, Kind::Imported { is_ram: false, .. })
    }
}

pub(super) fn destroy(kernel: &mut Kernel, segment: Ptr<Segment>) {
    assert!(segment.mappings.is_empty(), "mappings hold references");
    let ram = segment.ram();
    match segment.kind {
        Kind::Imported { .. } => (),
        Kind::Shared(alias) => kernel.drop_alias(ram, alias),
        Kind::Contiguous(_) => assert!(segment.pages() == 0, "it was drained"),
        Kind::Anonymous => assert!(segment.table.get() == 0 && segment.present() == 0, "it was drained"),
    }
}
