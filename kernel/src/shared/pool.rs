//! Pool: a run of pages of one core that several kernels write, as cache lines of atomic words.
//!
//! The first lines are its head; behind them is a word per page: its references, 0 for a free page;
//! then a word per [`GROUP`] of pages: how many are used, so that a search skips what is full.
//! Pages are allocated in runs. Invariants: counts change under the pool's lock only; an allocated
//! page is zero; `ALIASES` counts the aliases of all cores and ends at 0: nobody can raise it from
//! there, and only then, and after all read sections of that moment, does the home free the pages.
//!
//! ```text
//!   core that makes an alias         home, when the Ram is revoked
//!   set own bit in CORES             DEAD = 1
//!   read DEAD                        read CORES, ring each one's doorbell
//! ```
//! All four are sequentially consistent, so either an alias of a dead pool is not made, or the
//! doorbell has its core destroy it.

use super::{SpinWait, registry};
use crate::hardware;
use crate::memory::{PAGE_BYTES, PhysAddr, phys_to_virt};
use crate::objects::frames;
use abi::Error;
use core::ops::Range;
use lock::{AtomicU64, Guard, Kind, LINE_WORDS, Line, LineIndex, Lock, Memory, Ordering, Reader, Spare, fence};

const LINE_BYTES: usize = size_of::<Line>();
/// Lines of a page.
pub(super) const PAGE_LINES: u64 = (PAGE_BYTES / LINE_BYTES) as u64;
const WORDS: u64 = LINE_WORDS as u64;
/// Smallest pool: head and counts, the first share, and something for it to hold.
pub const PAGES_MIN: u64 = 8;

// Lines and words of the head.
const HEAD: u64 = 0;
const PAGES: usize = 0;
const ALIASES: usize = 1;
const DEAD: usize = 2;
const HOME: usize = 3;
const ID: usize = 4;
const FIRST: usize = 5;
/// How many bits of `CORES` are set.
const USERS: usize = 6;
/// Objects that nobody refers to and that the home is to destroy.
const UNNAMED: usize = 7;
/// The pool's lock and what it guards.
const GUARDED: u64 = 1;
const LOCK: usize = 0;
const FREE: usize = 1;
/// No page below this one is free.
const LOWEST: usize = 2;
const LOCK_LINE: u64 = 2;
/// A bit per core that had an alias.
const CORES: u64 = 3;
const COUNTS: u64 = 4;
/// Pages whose used ones are counted together.
const GROUP: u64 = 512;

/// A pool in use. A holder of this value knows of an alias in it, or has just made it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    base: PhysAddr,
}

impl core::fmt::Debug for Pool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "pool at {:#x}", self.base.0)
    }
}

impl Memory for Pool {
    fn line(&self, place: LineIndex) -> &Line {
        self.at(place)
    }
}

impl Pool {
    /// Makes a pool of zeroed pages that nobody else knows, with one alias counted and the first
    /// share's place still to be set.
    pub(super) fn new(base: PhysAddr, pages: u64, home: usize, id: u64) -> Pool {
        let pool = Pool { base };
        for (word, value) in [(PAGES, pages), (ALIASES, 1), (HOME, home as u64), (ID, id)] {
            pool.head(word).store(value, Ordering::Relaxed);
        }
        let used = (pool.groups() + pages.div_ceil(GROUP * WORDS)).div_ceil(PAGE_LINES);
        pool.guarded(FREE).store(pages, Ordering::Relaxed);
        (0..used).for_each(|page| pool.set_used(page));
        pool
    }

    /// The pool there.
    ///
    /// # Safety
    /// A pool was made at `base` and is not taken back while the value is used.
    pub(super) unsafe fn at_address(base: PhysAddr) -> Pool {
        Pool { base }
    }

    /// Where it begins.
    pub fn base(self) -> PhysAddr {
        self.base
    }

    /// The line at a place that this pool gave out, or of its head.
    pub(super) fn at(self, place: LineIndex) -> &'static Line {
        let line = phys_to_virt(self.base).cast::<Line>().wrapping_add(place as usize);
        // SAFETY: places come from this pool's own head and links, so the line is in its pages,
        // which the direct map covers and nobody refers to but as atomic words; they stay while the
        // pool does (see the head of this file), and a holder of a `Pool` knows that it does.
        unsafe { &*line }
    }

    /// The place of a line of this pool.
    pub(super) fn place_of(self, line: *const Line) -> LineIndex {
        (line.addr() - phys_to_virt(self.base).addr()) as u64 / LINE_BYTES as u64
    }

    /// Lines side by side.
    pub(super) fn lines(self, place: LineIndex, count: usize) -> &'static [Line] {
        // SAFETY: as for `at`; callers give runs that were given out as such.
        unsafe { core::slice::from_raw_parts(self.at(place), count) }
    }

    /// Where the page of a place is.
    pub(super) fn frame(self, place: LineIndex) -> PhysAddr {
        self.page(place / PAGE_LINES)
    }

    /// Where a page is.
    pub(super) fn page(self, number: u64) -> PhysAddr {
        self.base + number * PAGE_BYTES as u64
    }

    /// The number of a page.
    pub(super) fn page_of(self, frame: PhysAddr) -> u64 {
        (frame.0 - self.base.0) / PAGE_BYTES as u64
    }

    fn head(self, word: usize) -> &'static AtomicU64 {
        &self.at(HEAD).0[word]
    }

    fn guarded(self, word: usize) -> &'static AtomicU64 {
        &self.at(GUARDED).0[word]
    }

    /// Its id, from its home.
    pub fn id(self) -> u64 {
        self.head(ID).load(Ordering::Relaxed)
    }

    /// The core whose memory it is.
    pub fn home(self) -> usize {
        self.head(HOME).load(Ordering::Relaxed) as usize
    }

    /// Pages in all.
    pub fn pages(self) -> u64 {
        self.head(PAGES).load(Ordering::Relaxed)
    }

    /// Pages nobody uses.
    pub fn free_pages(self) -> u64 {
        self.guarded(FREE).load(Ordering::Relaxed)
    }

    /// Its first share.
    pub(super) fn first(self) -> LineIndex {
        self.head(FIRST).load(Ordering::Relaxed)
    }

    pub(super) fn set_first(self, place: LineIndex) {
        self.head(FIRST).store(place, Ordering::Relaxed);
    }

    /// Objects that nobody refers to, by their second lines: any core adds some, the home takes
    /// them.
    pub(super) fn unnamed(self) -> Spare<'static> {
        Spare(self.head(UNNAMED))
    }

    /// Whether its Ram was revoked.
    pub fn is_dead(self) -> bool {
        self.head(DEAD).load(Ordering::SeqCst) != 0
    }

    /// The cores that had an alias.
    pub(super) fn users(self) -> impl Iterator<Item = usize> {
        (0..registry::cores())
            .filter(move |core| self.at(CORES).0[core / 64].load(Ordering::SeqCst) >> (core % 64) & 1 != 0)
    }

    /// Waits until no core can still see what this core, in no section, has unlinked. A reader has
    /// made an alias before: the fence of its section orders its mark and the unlinking.
    #[inline]
    pub(super) fn wait_for_readers(self) {
        fence(Ordering::SeqCst);
        if self.head(USERS).load(Ordering::Relaxed) > 1 {
            wait_for_readers(self.users());
        }
    }

    /// Marks it dead, so that nobody makes an alias any more. Gives the cores that had any.
    pub(super) fn end(self) -> impl Iterator<Item = usize> {
        self.head(DEAD).store(1, Ordering::SeqCst);
        self.users()
    }

    /// Aliases of all cores.
    pub fn aliases(self) -> u64 {
        self.head(ALIASES).load(Ordering::Acquire)
    }

    /// Counts one more alias, of `core`, which knows of another.
    pub(super) fn add_alias(self, core: usize) -> Result<(), Error> {
        self.mark(core)?;
        self.head(ALIASES).fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// As `add_alias`, for a core that knows of no other alias: fails if none is left. In a read
    /// section that found the pool published.
    pub(super) fn add_first_alias(self, core: usize) -> Result<(), Error> {
        let more = |count: u64| (count > 0).then_some(count + 1);
        let added = self.head(ALIASES).fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        added.map_err(|_| Error::NotFound)?;
        let marked = self.mark(core);
        if marked.is_err() {
            self.drop_alias();
        }
        marked
    }

    pub(super) fn mark(self, core: usize) -> Result<(), Error> {
        let word = &self.at(CORES).0[core / 64];
        if word.load(Ordering::Relaxed) >> (core % 64) & 1 == 0 {
            word.fetch_or(1 << (core % 64), Ordering::SeqCst);
            self.head(USERS).fetch_add(1, Ordering::SeqCst);
        }
        if self.is_dead() { Err(Error::PeerDead) } else { Ok(()) }
    }

    /// Counts one alias less; tells whether that was the last. A core does not use the pool after
    /// it dropped its own last one.
    pub(super) fn drop_alias(self) -> bool {
        // Release: what this core did in the pool comes before the home takes it back. Acquire: if
        // this is the home.
        let before = self.head(ALIASES).fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "an alias was not counted");
        before == 1
    }

    /// Its lock.
    pub(super) fn own_lock(self) -> Lock<'static> {
        Lock::new(Kind::Spin, self.guarded(LOCK), self.lines(LOCK_LINE, 1))
    }

    #[inline(never)]
    fn lock(self, core: usize) -> Guard<'static, SpinWait> {
        self.own_lock().write(core)
    }

    /// 0: nobody has the lock.
    pub(super) fn lock_word(self) -> u64 {
        self.guarded(LOCK).load(Ordering::Relaxed)
    }

    fn count(self, page: u64) -> &'static AtomicU64 {
        &self.at(COUNTS + page / WORDS).0[(page % WORDS) as usize]
    }

    /// Where the counts of groups are.
    fn groups(self) -> LineIndex {
        COUNTS + self.pages().div_ceil(WORDS)
    }

    /// How many pages of the group of a page are used.
    fn used_of_group(self, page: u64) -> &'static AtomicU64 {
        &self.at(self.groups() + page / GROUP / WORDS).0[(page / GROUP % WORDS) as usize]
    }

    fn set_used(self, page: u64) {
        self.count(page).store(1, Ordering::Relaxed);
        self.add_used(page, 1);
    }

    /// Counts a page as used, or with -1 as free.
    fn add_used(self, page: u64, change: i64) {
        let (free, used) = (self.guarded(FREE), self.used_of_group(page));
        free.store(free.load(Ordering::Relaxed).wrapping_add_signed(-change), Ordering::Relaxed);
        used.store(used.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Relaxed);
    }

    /// How many segments have a frame.
    pub(super) fn sharers(self, frame: PhysAddr) -> u64 {
        self.count(self.page_of(frame)).load(Ordering::Relaxed)
    }

    /// Counts one reference more of each of them.
    pub(super) fn share(self, core: usize, frames: &mut dyn Iterator<Item = PhysAddr>) {
        let _held = self.lock(core);
        for frame in frames {
            hardware::count_work(1);
            let count = self.count(self.page_of(frame));
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// The lowest run of free pages there. For a single page it reads a word for each group on the
    /// way, and those of two groups.
    fn find_run(self, wanted: u64, within: Range<u64>) -> Option<u64> {
        let (mut run, mut page) = (0, within.start);
        while run < wanted && page < within.end {
            hardware::count_work(1);
            let is_full = page % GROUP == 0 && self.used_of_group(page).load(Ordering::Relaxed) == GROUP;
            let is_free = !is_full && self.count(page).load(Ordering::Relaxed) == 0;
            run = if is_free { run + 1 } else { 0 };
            page += if is_full { GROUP } else { 1 };
        }
        (run == wanted).then(|| page - wanted)
    }

    /// Allocates a run of pages, and clears the first so many of them.
    pub(super) fn allocate_pages(self, core: usize, pages: u64, cleared: u64) -> Result<LineIndex, Error> {
        let first = self.take(core, pages)?;
        // Nobody else knows them.
        (first..first + cleared).for_each(|page| frames::clear(self.page(page)));
        Ok(first * PAGE_LINES)
    }

    /// Allocates a run of pages that are not cleared; gives the number of the first.
    pub(super) fn take(self, core: usize, pages: u64) -> Result<u64, Error> {
        self.take_within(core, pages, 0..self.pages())
    }

    /// As `take`, of these pages of the pool.
    #[inline(never)]
    pub(super) fn take_within(self, core: usize, pages: u64, within: Range<u64>) -> Result<u64, Error> {
        let _held = self.lock(core);
        if pages == 0 || pages > self.free_pages() {
            return Err(Error::NoMemory);
        }
        let lowest = self.guarded(LOWEST).load(Ordering::Relaxed);
        let first = self.find_run(pages, within.start.max(lowest)..within.end).ok_or(Error::NoMemory)?;
        (first..first + pages).for_each(|page| self.set_used(page));
        if pages == 1 && within.start <= lowest {
            self.guarded(LOWEST).store(first + 1, Ordering::Relaxed);
        }
        Ok(first)
    }

    /// Drops a reference of each of these pages, by their numbers; frees those without any left.
    #[inline(never)]
    pub(super) fn release_pages(self, core: usize, pages: &mut dyn Iterator<Item = u64>) {
        let _held = self.lock(core);
        pages.for_each(|page| self.release_page(page));
    }

    #[inline(never)]
    fn release_page(self, page: u64) {
        hardware::count_work(1);
        let left = self.count(page).load(Ordering::Relaxed).checked_sub(1).expect("a page of a pool is freed twice");
        self.count(page).store(left, Ordering::Relaxed);
        if left > 0 {
            return;
        }
        debug_assert!(self.free_pages() < self.pages(), "more pages are free than there are");
        self.add_used(page, -1);
        let lowest = self.guarded(LOWEST);
        lowest.store(lowest.load(Ordering::Relaxed).min(page), Ordering::Relaxed);
    }
}

/// Waits until none of those cores is in a read section that may have seen what was unlinked.
#[inline(never)]
pub(super) fn wait_for_readers(cores: impl Iterator<Item = usize>) {
    Reader::wait_for_all::<SpinWait>(cores.filter_map(registry::reader_of));
}
