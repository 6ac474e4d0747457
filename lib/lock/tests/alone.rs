//! What one thread can see of each part: case by case, the same in each run.
#![cfg(not(loom))]
#![forbid(unsafe_code)]

use lock::{
    AtomicU64, Entry, Guard, Kind, Line, LineIndex, Lock, Memory, Ordering, Reader, Relax, Section, Shootdown, Spare,
    Stat, Table,
};
use std::cell::{Cell, RefCell};

/// One that is alone waits for nobody.
#[derive(Default)]
struct Never;

impl Relax for Never {
    fn relax(&mut self) {
        panic!("it waits, and nobody else is there");
    }
}

#[test]
fn kinds_are_known_by_number() {
    let known: Vec<_> = (0..9).map_while(Kind::decode).collect();
    assert_eq!(known, Kind::ALL);
    assert!(Kind::ALL.iter().zip(0..).all(|(kind, number)| *kind as u64 == number));
    assert_eq!(Kind::ALL.map(|kind| kind.lines(7)), [1, 1, 7, 7]);
}

#[test]
fn a_lock_is_free_while_nobody_has_it_to_write() {
    for kind in Kind::ALL {
        let (word, lines) = (AtomicU64::new(0), [Line::new(), Line::new()]);
        let lock = Lock::new(kind, &word, &lines[..kind.lines(2)]);
        assert!(lock.is_free());
        let held = lock.write::<Never>(1);
        assert!(!lock.is_free());
        drop(held);
        assert!(lock.is_free());
        drop(lock.read::<Never>(0));
        assert!(lock.is_free(), "{kind:?}");
    }
}

#[test]
fn readers_hold_a_lock_together_if_its_kind_knows_them() {
    for kind in [Kind::ReadWrite, Kind::ScalableReadWrite] {
        let (word, lines) = (AtomicU64::new(0), [Line::new(), Line::new()]);
        let lock = Lock::new(kind, &word, &lines[..kind.lines(2)]);
        let both = [0, 1].map(|core| lock.read::<Never>(core));
        drop(both);
        drop(lock.write::<Never>(0));
        assert_eq!((lock.stat().acquires, lock.stat().waits), (3, 0), "{kind:?}");
    }
}

std::thread_local! {
    static HELD: RefCell<Option<Guard<'static, Never>>> = const { RefCell::new(None) };
}

/// Lets go of the lock that is held at the first look.
#[derive(Default)]
struct Leaving;

impl Relax for Leaving {
    fn relax(&mut self) {
        drop(HELD.take().expect("nobody waits for who has left"));
    }
}

/// A lock for two cores.
fn fresh(kind: Kind) -> Lock<'static> {
    let lines = (0..kind.lines(2)).map(|_| Line::new()).collect();
    Lock::new(kind, Box::leak(Box::new(AtomicU64::new(0))), Vec::leak(lines))
}

#[test]
fn who_comes_waits_for_who_is_there() {
    for kind in Kind::ALL {
        for (holds_to_read, comes_to_read) in [(false, false), (false, true), (true, false)] {
            let lock = fresh(kind);
            HELD.set(Some(if holds_to_read { lock.read(1) } else { lock.write(1) }));
            drop(if comes_to_read { lock.read::<Leaving>(0) } else { lock.write::<Leaving>(0) });
            assert!(HELD.take().is_none(), "{kind:?}: both had it, {holds_to_read} {comes_to_read}");
            assert_eq!((lock.stat(), lock.is_free()), (Stat { acquires: 2, waits: 1 }, true), "{kind:?}");
        }
    }
}

#[test]
fn who_writes_waits_for_the_last_reader() {
    for kind in [Kind::ReadWrite, Kind::ScalableReadWrite] {
        let lock = fresh(kind);
        let first = lock.read::<Never>(0);
        HELD.set(Some(lock.read(1)));
        drop(first);
        drop(lock.write::<Leaving>(0));
        assert!(HELD.take().is_none(), "{kind:?}: beside a reader");
    }
}

std::thread_local! {
    static QUEUE: Cell<Option<&'static [Line]>> = const { Cell::new(None) };
}

// Words of a line in a queue: see `Kind::Mcs`.
const STATE: usize = 0;
const NEXT: usize = 1;

/// The second core says to the first, at whose first look for that, that it is next.
#[derive(Default)]
struct Late;

impl Relax for Late {
    fn relax(&mut self) {
        let lines = QUEUE.take().expect("it was said already");
        lines[0].0[NEXT].store(2, Ordering::Release);
    }
}

#[test]
fn who_leaves_a_queue_waits_for_the_word_of_who_is_about_to_be_next() {
    let (word, lines) = (AtomicU64::new(0), Vec::leak(vec![Line::new(), Line::new()]));
    let held = Lock::new(Kind::Mcs, &word, lines).write::<Late>(0);
    // The second core comes: it is the last of the queue.
    lines[1].0[STATE].store(1, Ordering::Relaxed);
    word.store(2, Ordering::Relaxed);
    QUEUE.set(Some(lines));
    drop(held);
    assert!(QUEUE.get().is_none(), "nobody was told that it is free");
    assert_eq!((lines[1].0[STATE].load(Ordering::Relaxed), word.load(Ordering::Relaxed)), (0, 2));
}

static READER: Reader = Reader::new();
static OUTSIDE: Reader = Reader::new();

std::thread_local! {
    static OPEN: RefCell<Option<Section<'static>>> = const { RefCell::new(None) };
    static LOOKS: Cell<u32> = const { Cell::new(0) };
}

/// Ends the open section at the third look.
#[derive(Default)]
struct Ending;

impl Relax for Ending {
    fn relax(&mut self) {
        LOOKS.set(LOOKS.get() + 1);
        if LOOKS.get() == 3 {
            drop(OPEN.take().expect("nobody waits for what has ended"));
        }
    }
}

#[test]
fn a_section_is_waited_for_until_it_ends() {
    OPEN.set(Some(READER.enter()));
    Reader::wait_for_all::<Ending>([&OUTSIDE, &READER].into_iter());
    assert_eq!(LOOKS.get(), 3);
    // Those that have ended are not, and another may begin.
    Reader::wait_for_all::<Never>([&OUTSIDE, &READER].into_iter());
    drop(READER.enter());
    Reader::wait_for_all::<Never>([&OUTSIDE, &READER].into_iter());
}

static BUSY: Reader = Reader::new();

/// Leaves the open section for another.
#[derive(Default)]
struct Moving;

impl Relax for Moving {
    fn relax(&mut self) {
        LOOKS.set(LOOKS.get() + 1);
        assert_eq!(LOOKS.get(), 1, "it waits for a section that was not open when it began");
        drop(OPEN.take());
        OPEN.set(Some(BUSY.enter()));
    }
}

#[test]
fn a_section_that_begins_later_is_not_waited_for() {
    OPEN.set(Some(BUSY.enter()));
    Reader::wait_for_all::<Moving>([&BUSY].into_iter());
    assert_eq!(LOOKS.get(), 1);
}

#[test]
#[should_panic(expected = "a read section inside another")]
fn a_section_inside_another_is_a_mistake() {
    let reader = Reader::new();
    let _outer = reader.enter();
    let _inner = reader.enter();
}

#[test]
fn who_asks_for_an_invalidation_is_answered_after_it() {
    let asked = Shootdown::<2>::new();
    assert!(!asked.is_asked());
    assert!(asked.ask(3), "the first of a word rings");
    assert!(!asked.ask(5), "the second has nobody told twice");
    assert!(asked.ask(64 + 3));
    assert!(asked.is_asked());
    let open = |asker: &usize| !asked.is_answered(*asker);
    let all: Vec<_> = (0..128).filter(open).collect();
    assert_eq!(all, [3, 5, 67]);
    let mut flushes = 0;
    let times = asked.answer(|| {
        flushes += 1;
        match flushes {
            // Not yet answered, and one comes that this flush is too early for.
            1 => assert!(open(&3) && open(&5) && !asked.ask(9)),
            2 => assert!(!open(&3) && !open(&5) && open(&9)),
            _ => assert!(!open(&9) && open(&67)),
        }
    });
    assert_eq!((times, flushes), (3, 3));
    assert!(!asked.is_asked() && !(0..128).any(|asker| open(&asker)));
    assert_eq!(asked.answer(|| panic!("nobody asks")), 0);
}

struct Pool(Vec<Line>);

impl Pool {
    fn of(lines: usize) -> Pool {
        Pool((0..lines).map(|_| Line::new()).collect())
    }
}

impl Memory for Pool {
    fn line(&self, place: LineIndex) -> &Line {
        &self.0[place as usize]
    }
}

fn entry(id: u64) -> Entry {
    Entry { id, object: id * 3, rights: id * 5 }
}

#[test]
fn a_table_knows_what_was_put_in_and_not_taken_out() {
    let (pool, buckets, reader) = (Pool::of(65), [Line::new(), Line::new()], Reader::new());
    let table = Table::new(&buckets);
    (1..=64).for_each(|id| table.insert(&pool, id, entry(id)));
    let found = |id| table.find(&pool, id, &reader.enter());
    assert!((1..=64).all(|id| table.knows(&pool, id) && found(id) == Some(entry(id))));
    assert!(!table.knows(&pool, 0) && !table.knows(&pool, 65) && found(65).is_none());
    for id in (1..=64).filter(|id| id % 3 == 0) {
        assert_eq!(table.remove(&pool, id), Some((id * 3, id)));
        assert_eq!(table.remove(&pool, id), None);
    }
    assert!((1..=64).all(|id| table.knows(&pool, id) == (id % 3 != 0)));
}

#[test]
fn ids_that_follow_each_other_lie_in_all_buckets() {
    let (pool, buckets) = (Pool::of(65), [Line::new(), Line::new()]);
    let table = Table::new(&buckets);
    (1..=64).for_each(|id| table.insert(&pool, id, entry(id)));
    let is_used = |bucket: &&AtomicU64| bucket.load(Ordering::Relaxed) != 0;
    assert_eq!(buckets.iter().flat_map(|line| &line.0).filter(is_used).count(), 16);
}

#[test]
fn a_table_is_drained_until_its_entries_are_not_taken() {
    let (pool, buckets) = (Pool::of(10), [Line::new()]);
    let table = Table::new(&buckets);
    (1..10).for_each(|id| table.insert(&pool, id, entry(id)));
    let mut seen = Vec::new();
    let refused = |object| {
        let takes = seen.len() < 4;
        if takes {
            seen.push(object);
        }
        takes
    };
    assert!(!table.drain(&pool, refused));
    assert_eq!((1..10).filter(|id| table.knows(&pool, *id)).count(), 5, "what was refused stays");
    let all = |object| {
        seen.push(object);
        true
    };
    assert!(table.drain(&pool, all));
    seen.sort();
    assert_eq!(seen, (1..10).map(|id| id * 3).collect::<Vec<_>>());
    assert!(table.drain(&pool, |_| panic!("it is empty")));
}

#[test]
fn spare_lines_come_back_last_in_first_out() {
    let (pool, top) = (Pool::of(4), AtomicU64::new(0));
    let spare = Spare(&top);
    assert_eq!(spare.take(&pool), None);
    [3, 1, 2].into_iter().for_each(|place| spare.give(&pool, place));
    assert_eq!([(); 4].map(|()| spare.take(&pool)), [Some(2), Some(1), Some(3), None]);
}
