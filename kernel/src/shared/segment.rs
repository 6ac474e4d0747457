//! A segment of a pool: one run of pages from the start, or demand-zero pages (decision 49) that
//! can be shared with copies until one side writes (decision 50).
//!
//! Of the latter each page has a word behind the segment's lock: 0 = absent, else the frame.
//! Invariants: a word changes under the lock only; it leaves 0 once, for a frame that is zeroed
//! before, so all cores that touch a page at once get the same frame, cleared by the first; a
//! present page is found without the lock. The lock is taken inside a range's, and the pool's
//! inside it. A segment that is or has a copy is mapped by one range of its pool at most, so that a
//! core that changes its pages knows which lock to take and which cores to shoot down. While it is
//! `FROZEN` none of its pages is mapped writable.

use super::SpinWait;
use super::object::{RUN, RUN_PAGES, SEGMENT_WORDS, SharedObject};
use super::pool::PAGE_LINES;
use super::range::READ_ONLY;
use crate::memory::{PAGE_BYTES, PhysAddr};
use crate::objects::frames;
use crate::state::Kernel;
use crate::steps::{Budget, PAGE_UNITS};
use abi::Error;
use lock::{AtomicU64, LINE_WORDS, LineIndex, Ordering, Relax};

/// The number of its mappings, and the range of the pool that has them all, if one has: else
/// [`NO_RANGE`].
const MAPPINGS: usize = SEGMENT_WORDS;
const RANGE: usize = SEGMENT_WORDS + 1;
/// Copy state; changed with the lock held.
///
/// | from | by what | to |
/// |---|---|---|
/// | `PLAIN` | it is made as a copy | `COPIED` |
/// | `PLAIN`, `COPIED` | a copy of it begins, or a page breaks copy-on-write | `FROZEN` |
/// | `FROZEN` | all cores served the shootdown: `unfreeze`, or all frames are shared | `COPIED` |
///
/// `set_state` asserts in tests alone that a change is one of these: other cores may write the
/// word, too.
const STATE: usize = SEGMENT_WORDS + 2;
const PLAIN: u64 = 0;
const COPIED: u64 = 1;
const FROZEN: u64 = 2;

/// How many pages are made: those that the segment lies in, then those of its run or copied; and
/// how many of a segment that nobody refers to are freed.
const MADE: usize = SEGMENT_WORDS + 3;
const FREED: usize = SEGMENT_WORDS + 5;
/// Pages that are freed at a time of a segment that nobody refers to.
const FREE_PAGES: u64 = 32;
/// Pages that are copied in one step.
const COPY_PAGES: u64 = 512;

/// Stands for a range of a core's own, or for several ranges, in [`RANGE`].
pub const NO_RANGE: LineIndex = 0;

/// Lines of such a segment behind its lock's.
pub(super) fn lines(pages: u64, contiguous: bool) -> u64 {
    if contiguous { 0 } else { pages.div_ceil(LINE_WORDS as u64) }
}

impl SharedObject {
    /// Makes a new object a segment, whose pages are still to be made.
    pub(super) fn become_segment(self, pages: u64, contiguous: bool) -> Result<(), Error> {
        self.set(MADE, 1);
        // A run may begin behind the pool's first page.
        self.set_run(if contiguous { PAGE_LINES } else { 0 }, pages);
        if contiguous && pages > self.pool.free_pages() { Err(Error::NoMemory) } else { Ok(()) }
    }

    /// Clears the next pages of a new segment that its entries are in, then allocates those of its
    /// run: past a page that is not free the run begins anew, and gives back what it has, from its
    /// beginning. Tells whether all are made. `NoMemory`: no run is that long.
    fn make_pages(self, core: usize, budget: &mut Budget) -> Result<bool, Error> {
        let (own, pages) = (self.own_pages(), self.pages());
        let end = own + if self.has_run() { pages } else { 0 };
        while self.get(MADE) < end && budget.spend(1) {
            let (made, first) = (self.get(MADE), self.word(RUN).load(Ordering::Relaxed) / PAGE_LINES);
            let page = if made < own { self.place / PAGE_LINES } else { first - own } + made;
            if made < own || self.pool.take_within(core, 1, page..page + 1).is_ok() {
                budget.spend(PAGE_UNITS);
                frames::clear(self.pool.page(page));
                self.set(MADE, made + 1);
            } else if first + pages < self.pool.pages() {
                let given = u64::from(made > own);
                self.pool.release_pages(core, &mut (first..first + given));
                self.set(MADE, made - given);
                self.set_run((first + 1) * PAGE_LINES, pages);
            } else {
                return Err(Error::NoMemory);
            }
        }
        Ok(self.get(MADE) >= end)
    }

    /// A segment's size.
    pub fn pages(self) -> u64 {
        self.word(RUN_PAGES).load(Ordering::Relaxed)
    }

    /// Where a segment's pages lie, if they are one run.
    pub fn base(self) -> Option<PhysAddr> {
        self.has_run().then(|| self.run().0)
    }

    fn entry(self, page: u64) -> &'static AtomicU64 {
        assert!(page < self.pages(), "a page outside of a shared segment");
        &self.pool.at(self.behind_lock() + page / LINE_WORDS as u64).0[page as usize % LINE_WORDS]
    }

    /// The frame of a segment's page, if present.
    #[inline(never)]
    pub fn frame(self, page: u64) -> Option<PhysAddr> {
        if let Some(base) = self.base() {
            return Some(base + page * PAGE_BYTES as u64);
        }
        // Acquire: it was cleared before it was put there.
        Some(PhysAddr(self.entry(page).load(Ordering::Acquire))).filter(|frame| frame.0 != 0)
    }

    /// The frame of a segment's page, which is made of zeroes if absent. `NoMemory`: the pool is
    /// full.
    pub fn touch(self, core: usize, page: u64) -> Result<PhysAddr, Error> {
        if let Some(frame) = self.frame(page) {
            return Ok(frame);
        }
        let _held = self.held(core);
        if let Some(frame) = self.frame(page) {
            return Ok(frame);
        }
        let frame = self.pool.frame(self.pool.allocate_pages(core, 1, 1)?);
        self.entry(page).store(frame.0, Ordering::Release);
        self.entries().store(self.present() + 1, Ordering::Relaxed);
        debug_assert!(self.present() <= self.pages(), "more pages are present than there are");
        Ok(frame)
    }

    fn get(self, word: usize) -> u64 {
        self.guarded(word).load(Ordering::Acquire)
    }

    fn set(self, word: usize, value: u64) {
        self.guarded(word).store(value, Ordering::Release);
    }

    fn set_state(self, state: u64) {
        debug_assert!(
            matches!((self.get(STATE), state), (PLAIN | COPIED, FROZEN) | (PLAIN | FROZEN, COPIED)),
            "a change of state that no copy makes"
        );
        self.set(STATE, state);
    }

    /// Counts a mapping of the segment, in that range of its pool or in [`NO_RANGE`]. `Busy`: it is
    /// or has a copy, and another range maps it.
    pub fn enter(self, core: usize, range: LineIndex) -> Result<(), Error> {
        if self.has_run() {
            return Ok(());
        }
        let _held = self.held(core);
        let before = self.get(MAPPINGS);
        let range = if before == 0 || self.get(RANGE) == range { range } else { NO_RANGE };
        if range == NO_RANGE && self.get(STATE) != PLAIN {
            return Err(Error::Busy);
        }
        self.set(RANGE, range);
        self.set(MAPPINGS, before + 1);
        Ok(())
    }

    /// Counts a mapping of the segment less, after its translations were flushed.
    #[inline(never)]
    pub fn leave(self, core: usize) {
        if !self.has_run() {
            let _held = self.held(core);
            debug_assert!(self.get(MAPPINGS) > 0, "more mappings go than came");
            self.set(MAPPINGS, self.get(MAPPINGS) - 1);
        }
    }

    /// Whether a frame of the segment may be mapped writable.
    pub(super) fn may_write(self, frame: PhysAddr) -> bool {
        match self.get(STATE) {
            PLAIN => true,
            COPIED => self.pool.sharers(frame) == 1,
            _ => false,
        }
    }

    /// Breaks copy-on-write: replaces a frame that others have, too, by a copy; the segment is
    /// frozen until [`SharedObject::unfreeze`]. Gives the old frame, which is to be freed when all
    /// cores have flushed it. `None`: another core has to unfreeze first.
    pub(super) fn break_cow(self, core: usize, page: u64) -> Result<Option<PhysAddr>, Error> {
        let _held = self.held(core);
        if self.get(STATE) == FROZEN {
            return Ok(None);
        }
        let own = self.pool.page(self.pool.take(core, 1)?);
        let shared = self.frame(page).expect("it was touched");
        frames::copy(shared, own);
        self.entry(page).store(own.0, Ordering::Release);
        self.set_state(FROZEN);
        Ok(Some(shared))
    }

    /// Freezes it, to be copied; gives the range that maps it, with a reference. `None`: another
    /// core has to unfreeze first. `Busy`: ranges of cores' own map it, or several do.
    fn begin_copy(self, core: usize) -> Result<Option<Option<SharedObject>>, Error> {
        let _held = self.held(core);
        let (mappings, range) = (self.get(MAPPINGS), SharedObject { place: self.get(RANGE), ..self });
        if mappings > 0 && range.place == NO_RANGE {
            return Err(Error::Busy);
        }
        if self.get(STATE) == FROZEN {
            return Ok(None);
        }
        self.set_state(FROZEN);
        // A range that is being destroyed maps nothing any more.
        Ok(Some((mappings > 0 && range.try_retain()).then_some(range)))
    }

    /// Unfreezes it, when all cores have served the shootdown.
    pub(super) fn unfreeze(self, core: usize) {
        let _held = self.held(core);
        self.set_state(COPIED);
    }

    fn share_frames(self, core: usize, copy: SharedObject, first: u64, end: u64) {
        let _held = self.held(core);
        debug_assert!(self.get(STATE) == FROZEN && copy.get(MAPPINGS) == 0, "frames are shared while somebody writes");
        let present = || (first..end).filter_map(|page| Some((page, self.frame(page)?)));
        self.pool.share(core, &mut present().map(|(_, frame)| frame));
        present().for_each(|(page, frame)| copy.entry(page).store(frame.0, Ordering::Release));
        copy.entries().store(copy.present() + present().count() as u64, Ordering::Relaxed);
        copy.set(MADE, copy.own_pages() + end);
        copy.set(STATE, COPIED);
        self.set_state(COPIED);
    }

    /// Copies a page that is present.
    pub fn read_page(self, core: usize, page: u64, into: PhysAddr) {
        // So that it is not given back meanwhile.
        let _held = self.held(core);
        frames::copy(self.frame(page).expect("it stays present"), into);
    }

    /// Pages that have a frame.
    pub fn present(self) -> u64 {
        if self.has_run() { self.pages() } else { self.entries().load(Ordering::Relaxed) }
    }

    /// Frees the frames of a segment that nobody refers to any more. Tells whether the budget
    /// sufficed.
    pub(super) fn free_frames(self, core: usize, budget: &mut Budget) -> bool {
        debug_assert!(self.has_run() || self.get(MAPPINGS) == 0, "mappings hold references");
        // Of a segment that was given up, those that are made.
        let (mut freed, made) = (self.get(FREED), self.get(MADE).checked_sub(self.own_pages()));
        let pages = made.map_or(0, |made| if self.has_run() { made } else { self.pages() });
        while freed < pages && budget.spend(FREE_PAGES as u32 / 4) {
            let frames = (freed..pages.min(freed + FREE_PAGES)).filter_map(|page| self.frame(page));
            self.pool.release_pages(core, &mut frames.map(|frame| self.pool.page_of(frame)));
            freed += FREE_PAGES;
        }
        self.set(FREED, freed);
        freed >= pages
    }

    /// Makes the next pages of a segment that nobody knows yet. Those that a copy shares with its
    /// source, until either is written, are as they are once no core can write them. Tells whether
    /// it has all. `NoMemory`: the pool lacks them; `Busy`: see [`SharedObject::begin_copy`].
    pub fn fill(self, kernel: &mut Kernel, source: Option<SharedObject>) -> Result<bool, Error> {
        let core = kernel.core();
        let is_made = self.make_pages(core, &mut Budget::step())?;
        let Some(source) = source.filter(|_| is_made) else { return Ok(is_made) };
        let first = self.get(MADE) - self.own_pages();
        let end = source.pages().min(first + COPY_PAGES);
        let mut wait = SpinWait::default();
        let range = loop {
            if let Some(range) = source.begin_copy(core)? {
                break range;
            }
            kernel.service_tlb_shootdowns();
            wait.relax();
        };
        if let Some(range) = range {
            kernel.change_shared(range, |range| range.downgrade_pages(source, first, end - first, READ_ONLY));
            range.release(core);
        }
        source.share_frames(core, self, first, end);
        Ok(end == source.pages())
    }
}
