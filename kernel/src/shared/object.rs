//! What lies in a pool: the head that every shared object has, references, and the end.
//!
//! An object is a run of pages. Invariants: an id is the making core and its sequence number; a
//! reference is an alias, an entry of a share, or held by a call under way; a count that reached 0
//! stays there, and the core that brought it there destroys the object, if it is small, or leaves
//! it to the pool's home, which does so in bounded steps (decision 60). A core that reads an object
//! has a reference, or is in a read section in which it found an entry that has one: entries drop
//! theirs only after the sections that may have found them.

use super::pool::{PAGE_LINES, Pool};
use super::{SpinWait, is_stuck, range, share};
use crate::hardware;
use crate::memory::PhysAddr;
use crate::objects::remote::SHARED_SLOT;
use crate::steps::{Budget, QUEUE_WORK};
use abi::Error;
use lock::{AtomicU64, Guard, Kind, LineIndex, Lock, Ordering, Spare};

/// A name given at making; up to 16 bytes, zeroes behind.
pub type Name = [u64; 2];

/// Kinds of shared objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ObjectKind {
    /// A table from ids to objects.
    Share = 1,
    /// Pages.
    Segment = 2,
    /// Mappings and the tables that cache them.
    Range = 3,
}

// Words of the first line.
const ID: usize = 0;
const REFERENCES: usize = 1;
/// Kind, kind of lock << 8, its lines << 16, pages of the object << 32.
const SHAPE: usize = 2;
const NAME: usize = 3;
/// Of a segment: its first line, if it is one run; and its pages. Of a range: its uppermost table;
/// and its level, with whether code in it may be writable << 8.
pub(super) const RUN: usize = 5;
pub(super) const RUN_PAGES: usize = 6;
// Words of the second line: what its lock guards; when nobody refers to the object, the second is
// the link to the next such.
const LOCK: usize = 0;
const ENTRIES: usize = 1;
/// The first of a segment's own words there.
pub(super) const SEGMENT_WORDS: usize = 2;
/// Of shares and ranges: a line that nobody uses, which names the next such; the first page taken
/// for lines, whose first line names the next.
const SPARE: usize = 5;
const LINE_PAGES: usize = 6;
/// Of what is destroyed at once: 32 frames, four mappings.
const RELEASE_UNITS: u32 = 8;
/// The first of the lock's lines.
const LOCK_LINES: u64 = 2;

/// An object, as somebody who has a reference sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SharedObject {
    pub(super) pool: Pool,
    pub(super) place: LineIndex,
}

impl SharedObject {
    /// A new one with one reference, the caller's, and so many lines behind its lock's.
    pub(super) fn create(
        pool: Pool,
        core: usize,
        kind: ObjectKind,
        lines: u64,
        lock: Kind,
        id: u64,
        name: Name,
    ) -> Result<SharedObject, Error> {
        let lock_lines = lock.lines(super::registry::cores()) as u64;
        let lines = LOCK_LINES + lock_lines + lines;
        let pages = lines.div_ceil(PAGE_LINES);
        // Those of a segment are cleared in steps, but for the first.
        let cleared = if kind == ObjectKind::Segment { 1 } else { pages };
        let object = SharedObject { pool, place: pool.allocate_pages(core, pages, cleared)? };
        let shape = kind as u64 | (lock as u64) << 8 | lock_lines << 16 | pages << 32;
        for (word, value) in [(ID, id), (REFERENCES, 1), (SHAPE, shape), (NAME, name[0]), (NAME + 1, name[1])] {
            object.word(word).store(value, Ordering::Relaxed);
        }
        if kind != ObjectKind::Segment {
            (lines..pages * PAGE_LINES).for_each(|line| object.free_line(object.place + line));
        }
        Ok(object)
    }

    fn spare(self) -> Spare<'static> {
        Spare(self.guarded(SPARE))
    }

    /// A line for an entry or a mapping, with whatever is in it; pages taken for lines stay until
    /// the object goes. Its lock is held.
    #[inline]
    pub(super) fn take_line(self, core: usize) -> Result<LineIndex, Error> {
        self.spare().take(&self.pool).map_or_else(|| self.take_page_of_lines(core), Ok)
    }

    #[inline(never)]
    fn take_page_of_lines(self, core: usize) -> Result<LineIndex, Error> {
        let page = self.pool.take(core, 1)? * PAGE_LINES;
        let pages = self.guarded(LINE_PAGES);
        self.pool.at(page).0[0].store(pages.load(Ordering::Relaxed), Ordering::Relaxed);
        pages.store(page, Ordering::Relaxed);
        (page + 2..page + PAGE_LINES).for_each(|line| self.free_line(line));
        Ok(page + 1)
    }

    /// Frees a line that nobody sees any more.
    pub(super) fn free_line(self, place: LineIndex) {
        self.spare().give(&self.pool, place);
    }

    pub(super) fn word(self, word: usize) -> &'static AtomicU64 {
        &self.pool.at(self.place).0[word]
    }

    fn shape(self) -> u64 {
        self.word(SHAPE).load(Ordering::Relaxed)
    }

    /// The pages that it lies in.
    pub(super) fn own_pages(self) -> u64 {
        self.shape() >> 32
    }

    /// Its id.
    pub fn id(self) -> u64 {
        self.word(ID).load(Ordering::Relaxed)
    }

    /// Its kind.
    pub fn kind(self) -> ObjectKind {
        match self.shape() as u8 {
            kind if kind == ObjectKind::Share as u8 => ObjectKind::Share,
            kind if kind == ObjectKind::Range as u8 => ObjectKind::Range,
            _ => ObjectKind::Segment,
        }
    }

    /// Its name.
    pub fn name(self) -> Name {
        [NAME, NAME + 1].map(|word| self.word(word).load(Ordering::Relaxed))
    }

    /// Its lock.
    #[inline]
    pub(super) fn lock(self) -> Lock<'static> {
        let shape = self.shape();
        let kind = Kind::decode(shape >> 8 & 0xff).expect("made of a kind");
        let lines = self.pool.lines(self.place + LOCK_LINES, (shape >> 16 & 0xffff) as usize);
        Lock::new(kind, self.guarded(LOCK), lines)
    }

    /// Whether the holder of its lock, or of its pool's, has stopped or is very slow: a call or an
    /// access that would take the lock is retried, so that this kernel serves others meanwhile.
    #[inline(never)]
    pub fn is_stuck(self) -> bool {
        let is_held = self.guarded(LOCK).load(Ordering::Relaxed) | self.pool.lock_word();
        is_held != 0 && self.stays_stuck()
    }

    #[cold]
    fn stays_stuck(self) -> bool {
        [self.lock(), self.pool.own_lock()].into_iter().any(is_stuck)
    }

    /// Takes the lock for a test, as a core does that stops while it holds it.
    #[cfg(test)]
    pub(crate) fn hold(self, core: usize) -> Guard<'static, SpinWait> {
        self.held(core)
    }

    /// Takes its lock.
    #[inline(never)]
    pub(super) fn held(self, core: usize) -> Guard<'static, SpinWait> {
        self.lock().write(core)
    }

    /// How many entries a share has, and a segment that is not one run; changes under its lock.
    pub(super) fn entries(self) -> &'static AtomicU64 {
        self.guarded(ENTRIES)
    }

    /// A word of the second line.
    pub(super) fn guarded(self, word: usize) -> &'static AtomicU64 {
        &self.pool.at(self.place + 1).0[word]
    }

    /// Whether its pool's Ram was not revoked.
    pub fn is_alive(self) -> bool {
        !self.pool.is_dead()
    }

    /// The first of a share's buckets, a range's own line, or the first of a segment's entries.
    pub(super) fn behind_lock(self) -> LineIndex {
        self.place + LOCK_LINES + (self.shape() >> 16 & 0xffff)
    }

    /// Its two words about memory, the first as an address.
    pub(super) fn run(self) -> (PhysAddr, u64) {
        let [place, shape] = [RUN, RUN_PAGES].map(|word| self.word(word).load(Ordering::Relaxed));
        (self.pool.frame(place), shape)
    }

    /// Whether there is such memory.
    pub(super) fn has_run(self) -> bool {
        self.word(RUN).load(Ordering::Relaxed) != 0
    }

    /// Says where its memory is.
    pub(super) fn set_run(self, place: LineIndex, pages: u64) {
        self.word(RUN).store(place, Ordering::Relaxed);
        self.word(RUN_PAGES).store(pages, Ordering::Relaxed);
    }

    /// References counted now.
    pub fn references(self) -> u64 {
        self.word(REFERENCES).load(Ordering::Relaxed)
    }

    /// One reference more. Relaxed is enough: who counts has one, or is in a section that keeps an
    /// entry's.
    pub(super) fn retain(self) {
        let before = self.word(REFERENCES).fetch_add(1, Ordering::Relaxed);
        assert!(before > 0, "retaining a shared object that is gone");
    }

    /// One reference more, unless the last has gone.
    pub(super) fn try_retain(self) -> bool {
        let more = |count: u64| (count > 0).then_some(count + 1);
        self.word(REFERENCES).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Drops a reference; with the last it destroys the object if it is small, else begins to.
    #[inline(never)]
    pub(super) fn release(self, core: usize) {
        if self.drop_reference() {
            self.drain(core, &mut Budget::new(RELEASE_UNITS));
        }
    }

    /// Drops a reference that an object being destroyed had, and leaves the rest to the home: no
    /// recursion, for a share of shares of shares is as deep as its makers like.
    pub(super) fn release_later(self) {
        hardware::count_work(QUEUE_WORK);
        if self.drop_reference() {
            self.leave_to_home();
        }
    }

    #[inline]
    fn drop_reference(self) -> bool {
        // Release: what others did with it comes before it is taken apart. Acquire: by who takes it
        // apart.
        let before = self.word(REFERENCES).fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "releasing a shared object that is gone");
        before == 1
    }

    #[inline(never)]
    fn leave_to_home(self) {
        self.pool.unnamed().give(&self.pool, self.place + 1);
        hardware::post(self.pool.home(), SHARED_SLOT);
    }

    /// On the pool's home: destroys what nobody refers to; tells whether the budget sufficed.
    pub(super) fn drain_unnamed(pool: Pool, core: usize, budget: &mut Budget) -> bool {
        let mut lines = core::iter::from_fn(|| pool.unnamed().take(&pool));
        lines.all(|line| SharedObject { pool, place: line - 1 }.drain(core, budget))
    }

    /// Destroys an object that nobody refers to any more; tells whether the budget sufficed. If
    /// not, the home does the rest.
    #[inline(never)]
    fn drain(self, core: usize, budget: &mut Budget) -> bool {
        let is_empty = match self.kind() {
            ObjectKind::Share => share::empty(self, budget),
            ObjectKind::Range => range::drain(self, core, budget),
            ObjectKind::Segment => self.free_frames(core, budget),
        };
        if is_empty {
            let first = self.place / PAGE_LINES;
            let mut next = self.guarded(LINE_PAGES).load(Ordering::Relaxed);
            let line_pages = core::iter::from_fn(|| {
                let page = Some(next).filter(|page| *page != 0)?;
                next = self.pool.at(page).0[0].load(Ordering::Relaxed);
                Some(page / PAGE_LINES)
            });
            self.pool.release_pages(core, &mut (first..first + self.own_pages()).chain(line_pages));
        } else {
            self.leave_to_home();
        }
        is_empty
    }
}
