//! Physical pages of this core: who gets one, and how often each is shared.
//!
//! Memory comes in regions (what boot gave this core, and what `RamAdd` brought). Each region
//! keeps, at its own start, a bitmap of free pages, one of carved pages (which were given to
//! another core), and a reference count per page; nothing else in the machine knows whether a page
//! is free. Invariants: a set bit in either map means that the page has no count, and then the
//! table of counts is not looked at, so that it is not touched before pages are given out, and runs
//! come and go by whole words of the maps; no page is both free and carved; `free` is the number of
//! free ones; a count changes only through [`Frames`], which asserts that no page is freed twice.
//! Single pages are taken near the last one freed or found (next fit), contiguous runs from the top
//! of a region, so that the two mix little. This file does not know what a page is used for.

use crate::hardware;
use crate::memory::{PAGE, PAGE_BYTES, PhysAddr, PhysRange, phys_to_virt};
use crate::steps::FREE_WORK;

/// Most regions of one core: boot gives up to four, the rest is for `RamAdd`.
pub const REGIONS_MAX: usize = 64;
/// Pages of a large page (2 MiB).
pub const LARGE_PAGE: u64 = 512;
/// The maps of a region's pages: those that are free, those that another core got.
const FREE: usize = 0;
const CARVED: usize = 1;
/// Most references to one page; far above what slots and segments of a core can reach.
const REFERENCES_MAX: u32 = 1 << 30;

/// One run of memory with its tables.
#[derive(Clone, Copy)]
struct Region {
    /// First page that can be given out; the tables lie before it.
    base: PhysAddr,
    pages: usize,
    /// The whole range, tables included.
    whole: PhysRange,
    counts: *mut u32,
    /// Words of the two maps: of free pages, then of carved ones.
    bits: *mut u64,
    /// Word of the bitmap to look at first.
    hint: usize,
}

impl Region {
    const NONE: Region = Region {
        base: PhysAddr(0),
        pages: 0,
        whole: PhysRange { base: PhysAddr(0), bytes: 0 },
        counts: core::ptr::null_mut(),
        bits: core::ptr::null_mut(),
        hint: 0,
    };

    /// Lays the tables into `range`; `None` if it is too small to hold them and one page.
    fn new(range: PhysRange) -> Option<Region> {
        let range = range.whole_pages();
        let pages = (range.bytes / PAGE) as usize;
        let words = pages.div_ceil(64);
        let table_pages = (words * 16 + pages * 4).div_ceil(PAGE_BYTES);
        if table_pages >= pages {
            return None;
        }
        let bits = phys_to_virt(range.base).cast::<u64>();
        let counts = phys_to_virt(range.base + words as u64 * 16).cast::<u32>();
        let base = range.base + table_pages as u64 * PAGE;
        let mut region = Region { base, pages: pages - table_pages, whole: range, counts, bits, hint: 0 };
        // SAFETY: the tables fit into the first `table_pages` pages of a range that is RAM of this
        // core and in no other use.
        unsafe { bits.write_bytes(0, words * 2) };
        region.set(FREE, 0, region.pages, true);
        Some(region)
    }

    fn words(&self) -> usize {
        self.pages.div_ceil(64)
    }

    fn count(&mut self, page: usize) -> u32 {
        // SAFETY: in bounds, as `is_free` asserts, of the table that `new` made room for; written
        // when the page was taken.
        if self.is_free(page) { 0 } else { unsafe { self.counts.add(page).read() } }
    }

    fn set_count(&mut self, page: usize, count: u32) {
        assert!(page < self.pages, "a page outside of a region");
        hardware::count_work(1);
        self.set_free(page, count == 0);
        // SAFETY: as for `count`; nobody else touches the table.
        unsafe { self.counts.add(page).write(count) };
    }

    fn word(&mut self, map: usize, index: usize) -> &mut u64 {
        assert!(index < self.words(), "a page outside of a region");
        // SAFETY: in bounds of the maps made in `new`, which nobody else touches.
        unsafe { &mut *self.bits.add(map * self.words() + index) }
    }

    fn is_free(&mut self, page: usize) -> bool {
        assert!(page < self.pages, "a page outside of a region");
        *self.word(FREE, page / 64) >> (page % 64) & 1 != 0
    }

    fn set_free(&mut self, page: usize, free: bool) {
        let mask = 1 << (page % 64);
        let word = self.word(FREE, page / 64);
        *word = if free { *word | mask } else { *word & !mask };
    }

    /// Sets or clears the bits of a run of pages, a word of them at a time.
    #[inline(never)]
    fn set(&mut self, map: usize, first: usize, pages: usize, to: bool) {
        for (index, mask) in masks(first, pages) {
            let word = self.word(map, index);
            *word = if to { *word | mask } else { *word & !mask };
        }
    }

    fn find(&mut self) -> Option<usize> {
        let words = self.words();
        let hint = self.hint;
        for index in (hint..words).chain(0..hint) {
            let word = *self.word(FREE, index);
            hardware::count_work(1);
            if word != 0 {
                self.hint = index;
                return Some(index * 64 + word.trailing_zeros() as usize);
            }
        }
        None
    }

    /// The highest run of `wanted` free pages whose first has a number (by physical address) that
    /// is a multiple of `align`.
    fn find_run(&mut self, wanted: usize, align: u64) -> Option<usize> {
        // Pages `low..high` are a free run that may go on below `low`.
        let (mut low, mut high) = (self.words() * 64, self.words() * 64);
        for index in (0..self.words()).rev() {
            let (word, begin) = (*self.word(FREE, index), index * 64);
            hardware::count_work(1);
            low -= word.leading_ones() as usize;
            if let found @ Some(_) = self.highest_start(low, high, wanted, align) {
                return found;
            }
            if word != u64::MAX {
                if let Some(within) = run_within(word, wanted) {
                    return Some(begin + within);
                }
                (low, high) = (begin, begin + word.trailing_ones() as usize);
            }
        }
        None
    }

    /// Where the highest run of `wanted` pages within `low..high` begins.
    fn highest_start(&self, low: usize, high: usize, wanted: usize, align: u64) -> Option<usize> {
        let start = high.checked_sub(wanted)?;
        let past = self.address(start).0 / PAGE % align;
        start.checked_sub(past as usize).filter(|start| *start >= low)
    }

    fn address(&self, page: usize) -> PhysAddr {
        self.base + page as u64 * PAGE
    }

    fn index(&self, frame: PhysAddr) -> Option<usize> {
        let page = (frame.0.checked_sub(self.base.0)? / PAGE) as usize;
        (page < self.pages).then_some(page)
    }
}

/// The words of a map that have bits of a run of pages, and which.
fn masks(first: usize, pages: usize) -> impl Iterator<Item = (usize, u64)> {
    (first / 64..(first + pages).div_ceil(64)).map(move |index| {
        hardware::count_work(1);
        let low = first.saturating_sub(index * 64);
        let high = (first + pages - index * 64).min(64);
        (index, u64::MAX << low & u64::MAX >> (64 - high))
    })
}

/// The highest bit at which `wanted` set bits of a word begin, if it has so many in a row.
fn run_within(word: u64, wanted: usize) -> Option<usize> {
    if wanted > 64 {
        return None;
    }
    let (mut starts, mut length) = (word, 1);
    while length < wanted {
        // A set bit begins `length` set ones.
        let more = length.min(wanted - length);
        starts &= starts >> more;
        length += more;
    }
    (starts != 0).then(|| 63 - starts.leading_zeros() as usize)
}

/// All pages of this core.
pub struct Frames {
    regions: [Region; REGIONS_MAX],
    region_count: usize,
    /// Region looked at first.
    hint: usize,
    free: u64,
    total: u64,
}

/// Why memory could not be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddError {
    /// It overlaps pages this core has.
    Overlap,
    /// The region table is full.
    Full,
    /// Too small to be worth its tables.
    Small,
}

impl Frames {
    /// No memory yet.
    pub(crate) const fn new() -> Frames {
        Frames { regions: [Region::NONE; REGIONS_MAX], region_count: 0, hint: 0, free: 0, total: 0 }
    }

    /// Free pages.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Pages that can be given out or are given out; carved ones are not counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Takes over memory. Pages carved from this core come back to where they were; anything else
    /// becomes a new region.
    pub fn add(&mut self, range: PhysRange) -> Result<(), AddError> {
        let overlapping = (0..self.region_count).find(|&index| self.regions[index].whole.overlaps(&range));
        if let Some(index) = overlapping {
            return self.add_back(index, range);
        }
        if self.region_count == REGIONS_MAX {
            return Err(AddError::Full);
        }
        let region = Region::new(range).ok_or(AddError::Small)?;
        self.free += region.pages as u64;
        self.total += region.pages as u64;
        self.regions[self.region_count] = region;
        self.region_count += 1;
        Ok(())
    }

    fn add_back(&mut self, index: usize, range: PhysRange) -> Result<(), AddError> {
        let region = &mut self.regions[index];
        let pages = (range.bytes / PAGE) as usize;
        let first = region.index(range.base).ok_or(AddError::Overlap)?;
        let is_within = first + pages <= region.pages;
        if !is_within || !masks(first, pages).all(|(index, mask)| *region.word(CARVED, index) & mask == mask) {
            return Err(AddError::Overlap);
        }
        region.set(CARVED, first, pages, false);
        region.set(FREE, first, pages, true);
        self.free += pages as u64;
        self.total += pages as u64;
        assert!(self.free <= self.total, "more pages are free than there are");
        Ok(())
    }

    /// One page with count 1; its contents are whatever was there.
    pub fn allocate(&mut self) -> Option<PhysAddr> {
        if self.free == 0 {
            return None;
        }
        for step in 0..self.region_count {
            let index = (self.hint + step) % self.region_count;
            let region = &mut self.regions[index];
            if let Some(page) = region.find() {
                region.set_count(page, 1);
                let frame = region.address(page);
                self.hint = index;
                self.free -= 1;
                return Some(frame);
            }
        }
        unreachable!("{} pages are free but none is found", self.free)
    }

    /// Contiguous pages, each with count 1. As many as a large page, or more, begin like one if
    /// there is such a place.
    pub fn allocate_run(&mut self, pages: u64) -> Option<PhysAddr> {
        let base = self.reserve_run(pages)?;
        (0..pages).for_each(|page| self.count_reserved(base + page * PAGE, 1));
        Some(base)
    }

    /// As `allocate_run`, without counts: each page gets its own when it is used
    /// (`count_reserved`), or goes back (`free_reserved`), a step at a time.
    pub fn reserve_run(&mut self, pages: u64) -> Option<PhysAddr> {
        if pages == 0 || pages > self.free {
            return None;
        }
        let large = (pages >= LARGE_PAGE).then_some(LARGE_PAGE);
        large.and_then(|align| self.reserve_aligned_run(pages, align)).or_else(|| self.reserve_aligned_run(pages, 1))
    }

    /// A reserved page is used now.
    pub fn count_reserved(&mut self, frame: PhysAddr, count: u32) {
        let (region, page) = self.find(frame);
        assert!(!region.is_free(page), "a page that was not reserved");
        region.set_count(page, count);
    }

    /// A reserved page is free again.
    pub fn free_reserved(&mut self, frame: PhysAddr) {
        let (region, page) = self.find(frame);
        assert!(!region.is_free(page), "a page that was not reserved");
        region.set_free(page, true);
        assert!(self.free < self.total, "more pages are free than there are");
        self.free += 1;
    }

    /// Contiguous pages that leave this core for good.
    pub fn carve(&mut self, pages: u64) -> Option<PhysAddr> {
        let base = self.reserve_run(pages)?;
        let (region, first) = self.find(base);
        region.set(CARVED, first, pages as usize, true);
        assert!(self.total - self.free >= pages, "pages leave the core that are free");
        self.total -= pages;
        Some(base)
    }

    fn reserve_aligned_run(&mut self, pages: u64, align: u64) -> Option<PhysAddr> {
        for region in &mut self.regions[..self.region_count] {
            if let Some(first) = region.find_run(pages as usize, align) {
                assert!(self.free >= pages, "a run of free pages is longer than the count");
                region.set(FREE, first, pages as usize, false);
                self.free -= pages;
                return Some(region.address(first));
            }
        }
        None
    }

    /// The region and page of a frame of ours.
    fn find(&mut self, frame: PhysAddr) -> (&mut Region, usize) {
        let regions = &mut self.regions[..self.region_count];
        let found = regions.iter_mut().find_map(|region| region.index(frame).map(|page| (region, page)));
        found.expect("frame belongs to this core")
    }

    /// How many refer to the page.
    pub fn count(&mut self, frame: PhysAddr) -> u32 {
        let (region, page) = self.find(frame);
        region.count(page)
    }

    /// One more reference to an allocated page.
    pub fn share(&mut self, frame: PhysAddr) {
        hardware::count_work(FREE_WORK);
        let (region, page) = self.find(frame);
        let count = region.count(page);
        assert!((1..REFERENCES_MAX).contains(&count), "sharing a page with count {count}");
        region.set_count(page, count + 1);
    }

    /// One reference less; the last frees the page.
    pub fn release(&mut self, frame: PhysAddr) {
        hardware::count_work(FREE_WORK);
        let (region, page) = self.find(frame);
        let count = region.count(page);
        assert!((1..=REFERENCES_MAX).contains(&count), "releasing a page with count {count}");
        region.set_count(page, count - 1);
        if count == 1 {
            region.hint = page / 64;
            assert!(self.free < self.total, "more pages are free than there are");
            self.free += 1;
        }
    }
}

/// Work of clearing or copying a page.
const PAGE_WORK: u64 = 50;

/// Fills a page with zeroes through the direct map.
pub fn clear(frame: PhysAddr) {
    hardware::count_work(PAGE_WORK);
    // SAFETY: callers own the frame, which is a whole page of RAM in the direct map.
    unsafe { core::ptr::write_bytes(phys_to_virt(frame).cast::<u64>(), 0, PAGE_BYTES / 8) }
}

/// Copies a whole page.
pub fn copy(from: PhysAddr, to: PhysAddr) {
    hardware::count_work(PAGE_WORK);
    // SAFETY: two different frames owned by the caller.
    unsafe {
        core::ptr::copy_nonoverlapping(phys_to_virt(from).cast::<u64>(), phys_to_virt(to).cast::<u64>(), PAGE_BYTES / 8)
    }
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
