//! A segment that a pool keeps: one run of pages from the start, or pages that come at their first
//! touch (decision 49) and can be shared with copies until one side writes (decision 50).
//!
//! Of the latter each page has a word behind the segment's lock: 0 = absent, else the frame.
//! Invariants: a word changes under the lock only; it leaves 0 once, for a frame that is zeroed
//! before, so all cores that touch a page at once get the same frame, cleared by the first; a
//! present page is found without the lock. The lock is taken inside a range's, and the pool's
//! inside it. A segment that has to do with copies is shown by one range of its pool at most, so
//! that whoever changes its pages knows by whose lock and whom to ask. While it is `FROZEN` nothing
//! of it is shown so that it can be written.

use super::SpinWait;
use super::object::{SEGMENT_WORDS, SharedObject};
use super::range::READ_ONLY;
use crate::memory::{PAGE_BYTES, PhysAddr};
use crate::objects::frames;
use crate::state::Kernel;
use abi::Error;
use lock::{AtomicU64, LINE_WORDS, LineIndex, Ordering, Relax};

/// How many mappings show it, and if these are all in one range of the pool, which: else
/// [`NO_RANGE`].
const MAPPINGS: usize = SEGMENT_WORDS;
const RANGE: usize = SEGMENT_WORDS + 1;
/// Whether it has to do with copies; changed with the lock held.
///
/// | from | by what | to |
/// |---|---|---|
/// | `PLAIN` | it was made as a copy | `COPIED` |
/// | `PLAIN`, `COPIED` | a copy of it begins, or a page gets a frame of its own | `FROZEN` |
/// | `FROZEN` | all cores have seen that: `settle`, or all frames are shared | `COPIED` |
///
/// `set_state` asserts that a change is one of these where that takes tests down only: the word is
/// other cores' to write, too.
const STATE: usize = SEGMENT_WORDS + 2;
const PLAIN: u64 = 0;
const COPIED: u64 = 1;
const FROZEN: u64 = 2;

/// A range of a core's own, as a segment knows those that show it.
pub const NO_RANGE: LineIndex = 0;

/// Lines of such a segment behind its lock's.
pub(super) fn lines(pages: u64, contiguous: bool) -> u64 {
    if contiguous { 0 } else { pages.div_ceil(LINE_WORDS as u64) }
}

impl SharedObject {
    /// Makes a new object a segment.
    pub(super) fn become_segment(self, core: usize, pages: u64, contiguous: bool) -> Result<(), Error> {
        let run = if contiguous { self.pool.allocate_pages(core, pages)? } else { 0 };
        self.set_run(run, pages);
        Ok(())
    }

    /// A segment's size.
    pub fn pages(self) -> u64 {
        self.run().1
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

    /// The same, made of zeroes if absent. `NoMemory`: the pool is full.
    pub fn touch(self, core: usize, page: u64) -> Result<PhysAddr, Error> {
        if let Some(frame) = self.frame(page) {
            return Ok(frame);
        }
        let _held = self.held(core);
        if let Some(frame) = self.frame(page) {
            return Ok(frame);
        }
        let frame = self.pool.frame(self.pool.allocate_pages(core, 1)?);
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

    /// One mapping more shows a segment, in that range of its pool or in [`NO_RANGE`]. `Busy`: it
    /// has to do with copies, and another range shows it.
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

    /// One mapping less, and what it showed is forgotten.
    #[inline(never)]
    pub fn leave(self, core: usize) {
        if !self.has_run() {
            let _held = self.held(core);
            debug_assert!(self.get(MAPPINGS) > 0, "more mappings go than came");
            self.set(MAPPINGS, self.get(MAPPINGS) - 1);
        }
    }

    /// Whether a frame of the segment may be shown so that it can be written.
    pub(super) fn may_write(self, frame: PhysAddr) -> bool {
        match self.get(STATE) {
            PLAIN => true,
            COPIED => self.pool.sharers(frame) == 1,
            _ => false,
        }
    }

    /// Puts a copy in the place of a frame that others have too; still until
    /// [`SharedObject::settle`]. Gives the frame, which is to be given back when all have forgotten
    /// it. `None`: somebody else has to settle first.
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

    /// Makes it still, to be copied; gives the range that shows it, with a reference. `None`:
    /// somebody else has to settle first. `Busy`: ranges of cores' own show it, or several.
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
        // One that is being taken apart shows nothing any more.
        Ok(Some((mappings > 0 && range.try_retain()).then_some(range)))
    }

    /// What was changed is seen by all.
    pub(super) fn settle(self, core: usize) {
        let _held = self.held(core);
        self.set_state(COPIED);
    }

    fn share_frames(self, core: usize, copy: SharedObject) {
        let _held = self.held(core);
        debug_assert!(self.get(STATE) == FROZEN && copy.get(MAPPINGS) == 0, "frames are shared while somebody writes");
        for page in 0..self.pages() {
            if let Some(frame) = self.frame(page) {
                self.pool.share(core, frame);
                copy.entry(page).store(frame.0, Ordering::Release);
            }
        }
        copy.set_state(COPIED);
        copy.entries().store(self.present(), Ordering::Relaxed);
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

    /// Nobody refers to the segment any more: its frames go.
    #[inline(never)]
    pub(super) fn free_frames(self, core: usize) {
        debug_assert!(self.has_run() || self.get(MAPPINGS) == 0, "mappings hold references");
        let frames = (0..self.pages()).filter_map(|page| self.frame(page));
        self.pool.give_back(core, &mut frames.map(|frame| self.pool.page_of(frame)));
    }
}

impl Kernel {
    /// Gives a segment that nobody knows yet all pages of another of the same pool, until either is
    /// written: as they are when no core can write them. `Busy`: see [`SharedObject::begin_copy`].
    pub(super) fn copy_shared(&mut self, source: SharedObject, copy: SharedObject) -> Result<(), Error> {
        let core = self.core();
        let mut wait = SpinWait::default();
        let range = loop {
            if let Some(range) = source.begin_copy(core)? {
                break range;
            }
            self.shoot_down_others();
            wait.relax();
        };
        if let Some(range) = range {
            self.change_shared(range, |range| range.downgrade_pages(source, 0, source.pages(), READ_ONLY));
            range.release(core);
        }
        source.share_frames(core, copy);
        Ok(())
    }
}
