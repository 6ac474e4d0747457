//! Locks of four kinds behind one face; who makes a shared object chooses (Corey section 4.1).
//!
//! | kind | a holder takes | good for |
//! |---|---|---|
//! | `Spin` | one atomic compare-and-exchange | few cores: cheapest while nobody waits; each release sends all that wait to the same line |
//! | `ReadWrite` | one atomic add | readers beside each other, but all at the same line |
//! | `Mcs` | one exchange, and a line of its own to wait at | many cores: first come, first served; a release touches one waiter's line |
//! | `ScalableReadWrite` | a reader only its own line; a writer all of them | lookups on every core, changes seldom |
//!
//! A lock is a word and lines: one, or one per core for the last two kinds. Each line also counts:
//! acquisitions, and those that had to wait. The lines of a core are written by that core, but for
//! `state` and `next` of `Mcs`. A core holds a lock once; it may hold several locks.

use crate::{AtomicU64, Line, Ordering, Relax, fence};

/// A lock's kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Test and test-and-set.
    Spin = 0,
    /// A count of readers, or one writer.
    ReadWrite = 1,
    /// A queue (Mellor-Crummey and Scott 1991).
    Mcs = 2,
    /// A flag per reading core.
    ScalableReadWrite = 3,
}

impl Kind {
    /// All, by number.
    pub const ALL: [Kind; 4] = [Kind::Spin, Kind::ReadWrite, Kind::Mcs, Kind::ScalableReadWrite];

    /// From its number.
    #[inline]
    pub fn decode(number: u64) -> Option<Kind> {
        match number {
            0 => Some(Kind::Spin),
            1 => Some(Kind::ReadWrite),
            2 => Some(Kind::Mcs),
            3 => Some(Kind::ScalableReadWrite),
            _ => None,
        }
    }

    /// Lines that a lock of this kind needs on a machine of so many cores.
    pub const fn lines(self, cores: usize) -> usize {
        match self {
            Kind::Spin | Kind::ReadWrite => 1,
            Kind::Mcs | Kind::ScalableReadWrite => cores,
        }
    }
}

// Words of a line.
/// `Mcs`: 1 while its core waits. `ScalableReadWrite`: 1 while its core reads.
const STATE: usize = 0;
/// `Mcs`: who comes after its core, plus 1.
const NEXT: usize = 1;
const ACQUIRES: usize = 2;
const WAITS: usize = 3;

/// `ReadWrite`: a writer holds the lock. Below it the count of readers.
const WRITER: u64 = 1 << 63;

/// How often a lock was taken, and how often somebody had to wait for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// Acquisitions.
    pub acquires: u64,
    /// Those that did not succeed at once.
    pub waits: u64,
}

/// A lock of `kind` over a word and lines that were zero at the start.
#[derive(Clone, Copy)]
pub struct Lock<'a> {
    kind: Kind,
    word: &'a AtomicU64,
    lines: &'a [Line],
}

/// Held until dropped.
#[must_use]
pub struct Guard<'a, R: Relax> {
    lock: Lock<'a>,
    core: usize,
    reads: bool,
    relax: core::marker::PhantomData<R>,
}

impl<'a> Lock<'a> {
    /// The lock there. `lines` has [`Kind::lines`] of them.
    #[inline]
    pub fn new(kind: Kind, word: &'a AtomicU64, lines: &'a [Line]) -> Lock<'a> {
        assert!(!lines.is_empty());
        Lock { kind, word, lines }
    }

    /// Whether nobody had it or waited for it at this look.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.word.load(Ordering::Relaxed) == 0
    }

    /// Counts so far; exact while nobody holds it.
    pub fn stat(&self) -> Stat {
        let sum = |word: usize| self.lines.iter().map(|line| line.0[word].load(Ordering::Relaxed)).sum();
        Stat { acquires: sum(ACQUIRES), waits: sum(WAITS) }
    }

    /// Alone. A spin lock that nobody holds is taken without a call.
    #[inline]
    pub fn write<R: Relax>(self, core: usize) -> Guard<'a, R> {
        if self.kind == Kind::Spin && self.take_now(1) {
            add(&self.lines[0].0[ACQUIRES], 1);
        } else {
            self.wait_to_write::<R>(core);
        }
        Guard { lock: self, core, reads: false, relax: core::marker::PhantomData }
    }

    #[inline(never)]
    fn wait_to_write<R: Relax>(self, core: usize) {
        // A spin lock was not free at once.
        let mut wait = Wait::<R> { relax: R::default(), waited: self.kind == Kind::Spin };
        match self.kind {
            Kind::Spin => self.take_free(1, &mut wait),
            Kind::ReadWrite => self.take_free(WRITER, &mut wait),
            Kind::Mcs => self.queue_up(core, &mut wait),
            Kind::ScalableReadWrite => {
                self.take_free(1, &mut wait);
                // A reader that this fence comes before sees the word taken; one that it comes
                // after is seen here.
                fence(Ordering::SeqCst);
                for line in self.lines {
                    wait.until(|| line.0[STATE].load(Ordering::Acquire) == 0);
                }
            }
        }
        self.count(core, false, wait.waited);
    }

    /// Beside other readers, if the kind knows them.
    pub fn read<R: Relax>(self, core: usize) -> Guard<'a, R> {
        let mut wait = Wait::<R>::new();
        match self.kind {
            Kind::Spin | Kind::Mcs => return self.write(core),
            Kind::ReadWrite => wait.until(|| {
                let seen = self.word.load(Ordering::Relaxed);
                let next = seen + 1;
                seen & WRITER == 0
                    && self.word.compare_exchange(seen, next, Ordering::Acquire, Ordering::Relaxed).is_ok()
            }),
            Kind::ScalableReadWrite => {
                let state = &self.lines[core].0[STATE];
                loop {
                    state.store(1, Ordering::Relaxed);
                    fence(Ordering::SeqCst);
                    if self.word.load(Ordering::Acquire) == 0 {
                        break;
                    }
                    // A writer is there or waits for us: make room, and only look until it went.
                    state.store(0, Ordering::Release);
                    wait.waited = true;
                    wait.until(|| self.word.load(Ordering::Relaxed) == 0);
                }
            }
        }
        self.count(core, true, wait.waited);
        Guard { lock: self, core, reads: true, relax: core::marker::PhantomData }
    }

    fn count(&self, core: usize, reads: bool, waited: bool) {
        let line = self.line(core);
        if reads && self.kind == Kind::ReadWrite {
            // Several readers count at one line at once.
            line.0[ACQUIRES].fetch_add(1, Ordering::Relaxed);
            line.0[WAITS].fetch_add(u64::from(waited), Ordering::Relaxed);
        } else {
            add(&line.0[ACQUIRES], 1);
            add(&line.0[WAITS], u64::from(waited));
        }
    }

    fn line(&self, core: usize) -> &'a Line {
        match self.kind {
            Kind::Spin | Kind::ReadWrite => &self.lines[0],
            Kind::Mcs | Kind::ScalableReadWrite => &self.lines[core],
        }
    }

    fn take_free<R: Relax>(&self, taken: u64, wait: &mut Wait<R>) {
        wait.until(|| self.take_now(taken));
    }

    #[inline]
    fn take_now(&self, taken: u64) -> bool {
        // The load in front keeps those that wait from taking the line away from each other.
        self.word.load(Ordering::Relaxed) == 0
            && self.word.compare_exchange(0, taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The word is the last in the queue, plus 1.
    fn queue_up<R: Relax>(&self, core: usize, wait: &mut Wait<R>) {
        let own = &self.lines[core].0;
        own[NEXT].store(0, Ordering::Relaxed);
        own[STATE].store(1, Ordering::Relaxed);
        // Release: who comes next finds this line made. Acquire: who was before has made his, and
        // if the queue was empty, what was guarded is seen.
        let before = self.word.swap(core as u64 + 1, Ordering::AcqRel);
        if before != 0 {
            self.lines[before as usize - 1].0[NEXT].store(core as u64 + 1, Ordering::Release);
            wait.until(|| own[STATE].load(Ordering::Acquire) == 0);
        }
    }

    fn leave_queue<R: Relax>(&self, core: usize) {
        let own = &self.lines[core].0;
        let mut next = own[NEXT].load(Ordering::Acquire);
        if next == 0 {
            if self.word.compare_exchange(core as u64 + 1, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
            // Somebody came after us and is about to say so.
            Wait::<R>::new().until(|| {
                next = own[NEXT].load(Ordering::Acquire);
                next != 0
            });
        }
        self.lines[next as usize - 1].0[STATE].store(0, Ordering::Release);
    }

    #[inline(never)]
    fn leave<R: Relax>(self, core: usize, reads: bool) {
        match self.kind {
            Kind::ReadWrite if reads => {
                self.word.fetch_sub(1, Ordering::Release);
            }
            Kind::ScalableReadWrite if reads => self.lines[core].0[STATE].store(0, Ordering::Release),
            Kind::Mcs => self.leave_queue::<R>(core),
            Kind::Spin | Kind::ReadWrite | Kind::ScalableReadWrite => self.word.store(0, Ordering::Release),
        }
    }
}

impl<R: Relax> Drop for Guard<'_, R> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.kind == Kind::Spin {
            self.lock.word.store(0, Ordering::Release);
        } else {
            self.lock.leave::<R>(self.core, self.reads);
        }
    }
}

/// Only one core at a time adds.
#[inline]
fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// One acquisition's waits.
struct Wait<R> {
    relax: R,
    waited: bool,
}

impl<R: Relax> Wait<R> {
    fn new() -> Self {
        Wait { relax: R::default(), waited: false }
    }

    fn until(&mut self, mut ready: impl FnMut() -> bool) {
        while !ready() {
            self.waited = true;
            self.relax.relax();
        }
    }
}
