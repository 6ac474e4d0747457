//! A hash table from 64-bit ids to entries, changed under a lock of the caller's and read in a read
//! section.
//!
//! A bucket is a word that names the first line of a chain; an entry is a line. Invariants: a chain
//! ends (changes happen one at a time, and an entry is put in front complete); an entry that was
//! taken out keeps its link and its words until no section is open that could have found it, so a
//! reader who stands on it gets to the end of the chain. Ids are never used twice, so an entry
//! found is the one meant.

use crate::{AtomicU64, Line, Ordering, Section};

/// Where a line is; 0 is none.
pub type LineIndex = u64;

/// The lines that entries lie in.
pub trait Memory {
    /// The line at a place that was given to [`Table::insert`].
    fn line(&self, place: LineIndex) -> &Line;
}

const ID: usize = 0;
const NEXT: usize = 1;
const OBJECT: usize = 2;
const RIGHTS: usize = 3;

/// What a table knows of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The id.
    pub id: u64,
    /// What it names, as the caller counts.
    pub object: u64,
    /// With what rights.
    pub rights: u64,
}

/// A table over buckets that were zero at the start; their number is a power of two.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    buckets: &'a [Line],
}

impl<'a> Table<'a> {
    /// The table there.
    #[inline]
    pub fn new(buckets: &'a [Line]) -> Table<'a> {
        assert!(buckets.len().is_power_of_two());
        Table { buckets }
    }

    #[inline]
    fn bucket(&self, id: u64) -> &'a AtomicU64 {
        let words = self.buckets[0].0.len();
        // Fibonacci hashing: ids of one core follow each other, those of different cores differ in
        // the highest bits.
        let hash = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let index = hash as usize & (self.buckets.len() * words - 1);
        &self.buckets[index / words].0[index % words]
    }

    /// What is known of `id`, for use while the section is open.
    pub fn find(&self, memory: &impl Memory, id: u64, _section: &Section<'_>) -> Option<Entry> {
        self.search(memory, id).map(|(_, place)| read(memory.line(place)))
    }

    /// The word that names the entry, and its place. Either a section is open or the lock is held.
    fn search<'b>(&self, memory: &'b impl Memory, id: u64) -> Option<(&'b AtomicU64, LineIndex)>
    where
        'a: 'b,
    {
        let mut link: &'b AtomicU64 = self.bucket(id);
        loop {
            // Acquire: the entry was complete before it was linked.
            let place = link.load(Ordering::Acquire);
            if place == 0 {
                return None;
            }
            let words = &memory.line(place).0;
            if words[ID].load(Ordering::Relaxed) == id {
                return Some((link, place));
            }
            link = &words[NEXT];
        }
    }

    /// Whether `id` is known. The lock is held.
    pub fn knows(&self, memory: &impl Memory, id: u64) -> bool {
        self.search(memory, id).is_some()
    }

    /// Makes `place`, a line that nobody sees, the entry of an id that is not known. The lock is
    /// held.
    pub fn insert(&self, memory: &impl Memory, place: LineIndex, entry: Entry) {
        let bucket = self.bucket(entry.id);
        let words = &memory.line(place).0;
        words[ID].store(entry.id, Ordering::Relaxed);
        words[OBJECT].store(entry.object, Ordering::Relaxed);
        words[RIGHTS].store(entry.rights, Ordering::Relaxed);
        words[NEXT].store(bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        bucket.store(place, Ordering::Release);
    }

    /// Takes the entry of `id` out: what it named, and its line, which may be used again after
    /// [`crate::Reader::wait_for_all`]. The lock is held.
    pub fn remove(&self, memory: &impl Memory, id: u64) -> Option<(u64, LineIndex)> {
        let (link, place) = self.search(memory, id)?;
        let line = memory.line(place);
        link.store(line.0[NEXT].load(Ordering::Relaxed), Ordering::Release);
        Some((line.0[OBJECT].load(Ordering::Relaxed), place))
    }

    /// Takes the entries out of a table that nobody else sees any more, as long as `f`, which gets
    /// what they named, takes it; tells whether it took all.
    pub fn drain(&self, memory: &impl Memory, mut f: impl FnMut(u64) -> bool) -> bool {
        self.buckets.iter().flat_map(|line| &line.0).all(|bucket| {
            loop {
                let place = bucket.load(Ordering::Relaxed);
                if place == 0 {
                    return true;
                }
                let line = memory.line(place);
                if !f(line.0[OBJECT].load(Ordering::Relaxed)) {
                    return false;
                }
                bucket.store(line.0[NEXT].load(Ordering::Relaxed), Ordering::Relaxed);
            }
        })
    }
}

/// Lines that nobody uses, behind a word that was zero at the start: a stack (Treiber 1986) where
/// anybody gives and one at a time takes, so the line on top keeps its link until it is taken.
#[derive(Clone, Copy)]
pub struct Spare<'a>(pub &'a AtomicU64);

impl Spare<'_> {
    /// Puts a line there that nobody sees.
    pub fn give(self, memory: &impl Memory, place: LineIndex) {
        let link = &memory.line(place).0[NEXT];
        // Release: what was done with the line, for who takes it; the link for who takes the next.
        let _ = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, |top| {
            link.store(top, Ordering::Relaxed);
            Some(place)
        });
    }

    /// Takes a line, whatever is in it. The lock is held.
    pub fn take(self, memory: &impl Memory) -> Option<LineIndex> {
        let below = |top: LineIndex| (top != 0).then(|| memory.line(top).0[NEXT].load(Ordering::Relaxed));
        self.0.fetch_update(Ordering::Acquire, Ordering::Acquire, below).ok()
    }
}

#[inline]
fn read(line: &Line) -> Entry {
    let word = |index: usize| line.0[index].load(Ordering::Relaxed);
    Entry { id: word(ID), object: word(OBJECT), rights: word(RIGHTS) }
}
