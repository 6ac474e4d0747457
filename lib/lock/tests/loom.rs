//! Every interleaving and every allowed reordering of small cases, by the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p pelago-lock --test loom`.
#![cfg(loom)]
#![forbid(unsafe_code)]

use lock::{AtomicU64, Entry, Kind, Line, LineIndex, Lock, Memory, Ordering, Reader, Relax, Shootdown, Spare, Table};
use loom::sync::Arc;
use loom::thread;

#[derive(Default)]
struct Yield;

impl Relax for Yield {
    fn relax(&mut self) {
        thread::yield_now();
    }
}

/// A lock, and what it guards: two relaxed words that differ only while somebody writes, of which
/// the checker gives out old values where nothing forbids it.
struct Guarded {
    kind: Kind,
    word: AtomicU64,
    lines: Vec<Line>,
    pair: [AtomicU64; 2],
}

impl Guarded {
    fn new(kind: Kind, cores: usize) -> Arc<Guarded> {
        let lines = (0..kind.lines(cores)).map(|_| Line::new()).collect();
        Arc::new(Guarded { kind, word: AtomicU64::new(0), lines, pair: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    fn lock(&self) -> Lock<'_> {
        Lock::new(self.kind, &self.word, &self.lines)
    }

    /// The lock is held.
    fn value(&self) -> u64 {
        let seen = self.pair.each_ref().map(|word| word.load(Ordering::Relaxed));
        assert_eq!(seen[0], seen[1], "a change is seen half");
        seen[0]
    }

    fn add(&self, core: usize) {
        let _held = self.lock().write::<Yield>(core);
        let next = self.value() + 1;
        self.pair.iter().for_each(|word| word.store(next, Ordering::Relaxed));
    }
}

fn check(cores: usize, kind: Kind, times: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if cores > 2 { 2 } else { 3 });
    model.max_branches = 10_000;
    model.check(move || {
        let guarded = Guarded::new(kind, cores);
        let others: Vec<_> = (1..cores)
            .map(|core| {
                let guarded = guarded.clone();
                thread::spawn(move || (0..times).for_each(|_| guarded.add(core)))
            })
            .collect();
        (0..times).for_each(|_| guarded.add(0));
        others.into_iter().for_each(|other| other.join().unwrap());
        let _held = guarded.lock().read::<Yield>(0);
        assert_eq!(guarded.value(), (cores * times) as u64);
        assert_eq!(guarded.lock().stat().acquires, (cores * times) as u64 + 1);
    });
}

#[test]
fn spinners_are_alone() {
    check(2, Kind::Spin, 2);
}

#[test]
fn writers_beside_readers_are_alone() {
    check(2, Kind::ReadWrite, 2);
    check(2, Kind::ScalableReadWrite, 2);
}

#[test]
fn two_cores_queue() {
    check(2, Kind::Mcs, 2);
}

#[test]
fn three_cores_queue() {
    check(3, Kind::Mcs, 1);
}

#[test]
fn readers_see_whole_changes() {
    for kind in [Kind::ReadWrite, Kind::ScalableReadWrite] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let guarded = Guarded::new(kind, 2);
            let peer = guarded.clone();
            let reader = thread::spawn(move || {
                let seen = [0; 2].map(|_| {
                    let _held = peer.lock().read::<Yield>(1);
                    peer.value()
                });
                assert!(seen.is_sorted() && seen[1] <= 2, "{seen:?}");
            });
            (0..2).for_each(|_| guarded.add(0));
            reader.join().unwrap();
        });
    }
}

struct Pool(Vec<Line>);

impl Memory for Pool {
    fn line(&self, place: LineIndex) -> &Line {
        &self.0[place as usize]
    }
}

struct Shared {
    pool: Pool,
    buckets: Vec<Line>,
    readers: Vec<Reader>,
    guard: Guarded,
}

impl Shared {
    fn new(cores: usize) -> Arc<Shared> {
        let kind = Kind::Spin;
        let guard = Guarded {
            kind,
            word: AtomicU64::new(0),
            lines: vec![Line::new()],
            pair: [AtomicU64::new(0), AtomicU64::new(0)],
        };
        Arc::new(Shared {
            pool: Pool((0..4).map(|_| Line::new()).collect()),
            buckets: vec![Line::new()],
            readers: (0..cores).map(|_| Reader::new()).collect(),
            guard,
        })
    }

    fn table(&self) -> Table<'_> {
        Table::new(&self.buckets)
    }
}

fn entry(id: u64) -> Entry {
    Entry { id, object: id * 10, rights: id * 100 }
}

/// What stands in a line that was given up.
const FREED: u64 = 0xdead;

#[test]
fn a_lookup_beside_a_delete_never_sees_freed_memory() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Shared::new(2);
        // One bucket's chain: 1 in the middle of the table's only line would be found by its own
        // bucket, so all three ids share one.
        let ids = same_bucket();
        for (place, id) in (1..).zip(ids) {
            shared.table().insert(&shared.pool, place, entry(id));
        }
        let reader = shared.clone();
        let lookup = thread::spawn(move || {
            let section = reader.readers[1].enter();
            for id in [ids[1], ids[0]] {
                let found = reader.table().find(&reader.pool, id, &section);
                assert!(found.is_none_or(|found| found == entry(id)), "{found:?}");
                assert!(found.is_some() || id == ids[1], "an entry that was never removed is found");
            }
        });
        let removed = {
            let _held = shared.guard.lock().write::<Yield>(0);
            shared.table().remove(&shared.pool, ids[1]).unwrap()
        };
        assert_eq!(removed.0, entry(ids[1]).object);
        Reader::wait_for_all::<Yield>(shared.readers.iter());
        // The line is used for something else now, with an id that is asked for and a link that
        // leads nowhere.
        let line = &shared.pool.line(removed.1).0;
        line[1].store(3, Ordering::Relaxed);
        line[2].store(FREED, Ordering::Relaxed);
        line[0].store(ids[0], Ordering::Relaxed);
        lookup.join().unwrap();
    });
}

/// Three ids of one bucket of a table of one line.
fn same_bucket() -> [u64; 3] {
    let bucket = |id: u64| (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) & 7;
    let mut ids = (1..).filter(|id| bucket(*id) == 0);
    core::array::from_fn(|_| ids.next().unwrap())
}

#[test]
fn two_cores_change_one_table() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let shared = Shared::new(2);
        let ids = same_bucket();
        let other = shared.clone();
        let peer = thread::spawn(move || {
            let _held = other.guard.lock().write::<Yield>(0);
            other.table().insert(&other.pool, 2, entry(ids[1]));
        });
        {
            let _held = shared.guard.lock().write::<Yield>(0);
            assert!(!shared.table().knows(&shared.pool, ids[0]));
            shared.table().insert(&shared.pool, 1, entry(ids[0]));
            assert!(shared.table().knows(&shared.pool, ids[0]));
        }
        peer.join().unwrap();
        let section = shared.readers[0].enter();
        for id in &ids[..2] {
            assert_eq!(shared.table().find(&shared.pool, *id, &section), Some(entry(*id)));
        }
        drop(section);
        let mut left = Vec::new();
        shared.table().drain(&shared.pool, |object| {
            left.push(object);
            true
        });
        left.sort();
        assert_eq!(left, [0, 1].map(|index| entry(ids[index]).object));
    });
}

#[test]
fn an_entry_is_found_complete_or_not_at_all() {
    loom::model(|| {
        let shared = Shared::new(2);
        let reader = shared.clone();
        let lookup = thread::spawn(move || {
            let section = reader.readers[1].enter();
            let found = reader.table().find(&reader.pool, 7, &section);
            assert!(found.is_none_or(|found| found == entry(7)), "{found:?}");
        });
        shared.table().insert(&shared.pool, 1, entry(7));
        lookup.join().unwrap();
    });
}

/// Two cores take and give lines: under the lock, and without. Nobody gets a line that another has,
/// or sees what its last user did not finish.
#[test]
fn a_line_is_of_one_user_at_a_time() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Shared::new(2);
        let top = Arc::new(AtomicU64::new(0));
        for place in 1..=2 {
            Spare(&top).give(&shared.pool, place);
        }
        let use_lines = |core: usize, shared: &Shared, top: &AtomicU64| {
            for _ in 0..2 {
                let place = {
                    let _held = shared.guard.lock().write::<Yield>(core);
                    Spare(top).take(&shared.pool).expect("there is one for each")
                };
                let word = &shared.pool.line(place).0[3];
                assert_eq!(word.load(Ordering::Relaxed), 0, "another uses it");
                word.store(1, Ordering::Relaxed);
                word.store(0, Ordering::Relaxed);
                Spare(top).give(&shared.pool, place);
            }
        };
        let peers = (shared.clone(), top.clone());
        let other = thread::spawn(move || use_lines(1, &peers.0, &peers.1));
        use_lines(0, &shared, &top);
        other.join().unwrap();
        let mut left: Vec<_> = std::iter::from_fn(|| Spare(&top).take(&shared.pool)).collect();
        left.sort();
        assert_eq!(left, [1, 2], "a line is lost, or there twice");
    });
}

/// Two cores that show a page by one entry, each with what its processor remembers; a page that is
/// used otherwise is written by nobody who remembers it.
#[test]
fn what_was_asked_to_be_forgotten_is_before_the_memory_is_used_again() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        // The entry: 1 while the page is shown. The page: 1 once it is used otherwise.
        let entry = Arc::new(AtomicU64::new(1));
        let page = Arc::new(AtomicU64::new(0));
        let asked = Arc::new(Shootdown::<1>::new());
        let ended = Arc::new(AtomicU64::new(0));
        let other = {
            let (entry, page, asked, ended) = (entry.clone(), page.clone(), asked.clone(), ended.clone());
            thread::spawn(move || {
                let mut remembered = entry.load(Ordering::Relaxed) == 1;
                while ended.load(Ordering::Relaxed) == 0 {
                    assert!(!remembered || page.load(Ordering::Relaxed) == 0, "used while it is remembered");
                    asked.answer(|| remembered = false);
                    remembered |= entry.load(Ordering::Relaxed) == 1;
                    thread::yield_now();
                }
            })
        };
        entry.store(0, Ordering::Relaxed);
        asked.ask(0);
        while !asked.is_answered(0) {
            thread::yield_now();
        }
        page.store(1, Ordering::Relaxed);
        ended.store(1, Ordering::Relaxed);
        other.join().unwrap();
    });
}

/// Two cores ask each other at once, and each answers while it waits.
#[test]
fn two_who_ask_each_other_both_go_on() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let cores = Arc::new([Shootdown::<1>::new(), Shootdown::<1>::new()]);
        let ended = Arc::new(AtomicU64::new(0));
        let ask = |own: usize, cores: &[Shootdown<1>; 2], ended: &AtomicU64| {
            let mut forgotten = 0;
            cores[1 - own].ask(own);
            while !cores[1 - own].is_answered(own) {
                forgotten += cores[own].answer(|| ());
                thread::yield_now();
            }
            // Back in a program, which an interrupt finds.
            ended.fetch_add(1, Ordering::SeqCst);
            while ended.load(Ordering::SeqCst) < 2 {
                forgotten += cores[own].answer(|| ());
                thread::yield_now();
            }
            forgotten
        };
        let peers = (cores.clone(), ended.clone());
        let other = thread::spawn(move || ask(1, &peers.0, &peers.1));
        let forgotten = ask(0, &cores, &ended);
        assert_eq!([forgotten, other.join().unwrap()], [1, 1]);
    });
}
