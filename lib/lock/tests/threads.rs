//! Threads of the host at the real atomics: whole changes under each kind of lock, and a table that
//! is read while entries go and their lines are used again.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

use lock::{
    AtomicU64, Entry, Kind, LINE_WORDS, Line, LineIndex, Lock, Memory, Ordering, Reader, Relax, Spare, Stat, Table,
};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::thread;

const CORES: usize = 4;

/// Gives the host's processor away, which may have fewer cores than there are threads.
#[derive(Default)]
struct Polite(u32);

impl Relax for Polite {
    fn relax(&mut self) {
        self.0 += 1;
        assert!(self.0 < 50_000_000, "nobody lets go of the lock, or comes to it");
        thread::yield_now();
    }
}

struct Guarded {
    word: AtomicU64,
    lines: Vec<Line>,
    /// Always equal when nobody writes.
    pair: [AtomicU64; 2],
}

impl Guarded {
    fn new(kind: Kind) -> Guarded {
        let lines = (0..kind.lines(CORES)).map(|_| Line::new()).collect();
        Guarded { word: AtomicU64::new(0), lines, pair: [AtomicU64::new(0), AtomicU64::new(0)] }
    }
}

#[test]
fn changes_under_each_kind_are_whole() {
    const TIMES: u64 = 4000;
    for kind in Kind::ALL {
        let guarded = Guarded::new(kind);
        let lock = || Lock::new(kind, &guarded.word, &guarded.lines);
        thread::scope(|scope| {
            for core in 0..CORES {
                let (guarded, lock) = (&guarded, &lock);
                scope.spawn(move || {
                    for turn in 0..TIMES {
                        if turn % 4 == 0 {
                            let _held = lock().write::<Polite>(core);
                            let next = guarded.pair[0].load(Ordering::Relaxed) + 1;
                            guarded.pair[0].store(next, Ordering::Relaxed);
                            // Long enough that others come in between if they can.
                            (0..20).for_each(|_| std::hint::spin_loop());
                            guarded.pair[1].store(next, Ordering::Relaxed);
                        } else {
                            let _held = lock().read::<Polite>(core);
                            let seen = guarded.pair.each_ref().map(|word| word.load(Ordering::Relaxed));
                            assert_eq!(seen[0], seen[1], "{kind:?}");
                        }
                    }
                });
            }
        });
        assert_eq!(guarded.pair[1].load(Ordering::Relaxed), CORES as u64 * TIMES / 4, "{kind:?}");
        assert_eq!(lock().stat().acquires, CORES as u64 * TIMES, "{kind:?}");
    }
}

#[test]
fn waits_are_counted_and_only_they() {
    for kind in Kind::ALL {
        let guarded = Guarded::new(kind);
        let lock = || Lock::new(kind, &guarded.word, &guarded.lines);
        (0..100).for_each(|turn| drop(lock().write::<Polite>(turn % CORES)));
        assert_eq!(lock().stat(), Stat { acquires: 100, waits: 0 }, "{kind:?}");
        let held = lock().write::<Polite>(0);
        thread::scope(|scope| {
            let other = scope.spawn(|| drop(lock().write::<Blocked>(1)));
            BLOCKED.store(false, Ordering::Relaxed);
            let mut polite = Polite::default();
            while !BLOCKED.load(Ordering::Relaxed) {
                polite.relax();
            }
            drop(held);
            other.join().unwrap();
        });
        assert_eq!(lock().stat(), Stat { acquires: 102, waits: 1 }, "{kind:?}");
    }
}

static BLOCKED: AtomicBool = AtomicBool::new(false);

/// Tells that it waits.
#[derive(Default)]
struct Blocked;

impl Relax for Blocked {
    fn relax(&mut self) {
        BLOCKED.store(true, Ordering::Relaxed);
        thread::yield_now();
    }
}

struct Pool(Vec<Line>);

impl Memory for Pool {
    fn line(&self, place: LineIndex) -> &Line {
        &self.0[place as usize]
    }
}

#[test]
fn entries_found_while_others_come_and_go_are_whole() {
    const IDS: u64 = 24;
    let pool = Pool((0..IDS + 1).map(|_| Line::new()).collect());
    let buckets = [Line::new()];
    let readers: Vec<Reader> = (0..CORES).map(|_| Reader::new()).collect();
    let table = Table::new(&buckets);
    let done = AtomicBool::new(false);
    let entry = |id: u64| Entry { id, object: id * 3, rights: id * 5 };
    thread::scope(|scope| {
        for reader in &readers[1..] {
            let (pool, done) = (&pool, &done);
            scope.spawn(move || {
                let mut turn = 0;
                while !done.load(Ordering::Relaxed) {
                    turn += 1;
                    if turn % 64 == 0 {
                        thread::yield_now();
                    }
                    let section = reader.enter();
                    let id = turn % (IDS * 8) + 1;
                    if let Some(seen) = table.find(pool, id, &section) {
                        assert_eq!(seen, entry(id));
                        FOUND.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let _done = Done(&done);
        // Ids rise, lines are used again at once.
        let mut free: Vec<LineIndex> = (1..=IDS).collect();
        let mut live = VecDeque::new();
        for round in 0.. {
            // Long enough for the others to begin.
            if round > 600 && (FOUND.load(Ordering::Relaxed) > 100 || round > 1_000_000) {
                break;
            }
            if free.len() < 4 {
                let gone = live.pop_front().unwrap();
                let (seen, place) = table.remove(&pool, gone).expect("it was put in");
                assert_eq!(seen, entry(gone).object);
                Reader::wait_for_all::<Polite>(readers.iter());
                let line = &pool.line(place).0;
                (0..LINE_WORDS).for_each(|word| line[word].store(u64::MAX / 2, Ordering::Relaxed));
                free.push(place);
            }
            let id = round % (IDS * 8) + 1;
            live.push_back(id);
            table.insert(&pool, free.pop().unwrap(), entry(id));
        }
    });
    assert!(FOUND.load(Ordering::Relaxed) > 0, "nothing was found at all");
}

#[test]
fn lines_given_while_others_are_taken_are_neither_lost_nor_there_twice() {
    const TURNS: u64 = 20_000;
    let pool = Pool((0..CORES as u64 + 1).map(|_| Line::new()).collect());
    let (top, word, lines) = (AtomicU64::new(0), AtomicU64::new(0), [Line::new()]);
    let spare = Spare(&top);
    (1..=CORES as u64).for_each(|place| spare.give(&pool, place));
    thread::scope(|scope| {
        for core in 0..CORES {
            let (pool, lock) = (&pool, Lock::new(Kind::Spin, &word, &lines));
            scope.spawn(move || {
                for _ in 0..TURNS {
                    let held = lock.write::<Polite>(core);
                    let place = spare.take(pool).expect("there is one for each");
                    drop(held);
                    let user = &pool.line(place).0[USER];
                    assert_eq!(user.swap(core as u64 + 1, Ordering::Relaxed), 0, "another uses it");
                    user.store(0, Ordering::Relaxed);
                    spare.give(pool, place);
                }
            });
        }
    });
    let mut left: Vec<_> = std::iter::from_fn(|| spare.take(&pool)).collect();
    left.sort();
    assert_eq!(left, (1..=CORES as u64).collect::<Vec<_>>());
}

/// A word of a line that no table and no stack uses.
const USER: usize = 5;

static FOUND: AtomicU64 = AtomicU64::new(0);

/// Tells the others when the one who changes is done, or has failed.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
