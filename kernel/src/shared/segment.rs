//! A segment that a pool keeps: one run of pages from the start, or pages that come at their first touch (decision 49).
//!
//! Of the latter each page has a word behind the segment's lock: 0 = absent, else the frame. Invariants: a word leaves 0 under the lock, once, for a frame that is zeroed before; so all cores that
//! touch a page at once get the same frame, cleared by the first. A present page is found without the lock. The lock is taken inside a range's, and the pool's inside it.

use super::Patience;
use super::object::Object;
use crate::memory::{PAGE_BYTES, PhysAddr};
use abi::Error;
use lock::{AtomicU64, LINE_WORDS, Ordering};

/// Lines of such a segment behind its lock's.
pub(super) fn lines(pages: u64, contiguous: bool) -> u64 {
    if contiguous { 0 } else { pages.div_ceil(LINE_WORDS as u64) }
}

impl Object {
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
        let _held = self.lock().write::<Patience>(core);
        if let Some(frame) = self.frame(page) {
            return Ok(frame);
        }
        let frame = self.pool.frame(self.pool.allocate_pages(core, 1)?);
        self.entry(page).store(frame.0, Ordering::Release);
        self.entries().store(self.present() + 1, Ordering::Relaxed);
        Ok(frame)
    }

    /// Pages that have a frame.
    pub fn present(self) -> u64 {
        if self.has_run() { self.pages() } else { self.entries().load(Ordering::Relaxed) }
    }

    /// Nobody refers to the segment any more: its frames go.
    pub(super) fn free_frames(self, core: usize) {
        let frames = (0..self.pages()).filter_map(|page| self.frame(page));
        self.pool.give_back(core, frames.map(|frame| self.pool.page_of(frame)));
    }
}
