//! Every interleaving and every allowed reordering of small cases, by the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p pelago-buffers --test loom`.
#![cfg(loom)]
#![forbid(unsafe_code)]

use buffers::{Local, locals};
use lock::{AtomicU64, Ordering::Relaxed, Relax};
use loom::thread;

#[derive(Default)]
struct Yield;

impl Relax for Yield {
    fn relax(&mut self) {
        thread::yield_now();
    }
}

/// A block of two relaxed words, of which the checker gives out old values where nothing forbids
/// it.
struct Pair([AtomicU64; 2]);

impl Pair {
    fn new() -> Pair {
        Pair([AtomicU64::new(0), AtomicU64::new(0)])
    }

    fn put(&self, value: u64) {
        self.0.iter().for_each(|word| word.store(value, Relaxed));
    }

    fn value(&self) -> u64 {
        let seen = self.0.each_ref().map(|word| word.load(Relaxed));
        assert_eq!(seen[0], seen[1], "half of another block");
        seen[0]
    }
}

fn put(local: &mut Local<Pair>, key: u64, value: u64) -> bool {
    local.insert::<Yield>(key, |pair| pair.put(value)).is_ok()
}

fn get(local: &Local<Pair>, key: u64) -> Option<u64> {
    let section = local.read();
    section.get(key).map(|(_, pair)| {
        let value = pair.value();
        assert_eq!(pair.value(), value, "it changed under its reader");
        value
    })
}

fn check(body: impl Fn(Local<Pair>, Local<Pair>) + Sync + Send + 'static, frames: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 10_000;
    model.check(move || {
        let mut cores = locals(2, 4, frames, Pair::new).unwrap();
        let (second, first) = (cores.pop().unwrap(), cores.pop().unwrap());
        body(first, second);
    });
}

/// A reader beside one who takes the block out, and has another one in the same frame.
#[test]
fn no_block_is_used_again_under_a_reader() {
    check(
        |mut first, second| {
            assert!(put(&mut first, 1, 11));
            let reader = thread::spawn(move || {
                let seen = get(&second, 1);
                assert!(matches!(seen, None | Some(11)), "{seen:?}");
                let seen = get(&second, 3);
                assert!(matches!(seen, None | Some(33)), "{seen:?}");
            });
            assert!(first.remove(1));
            assert!(put(&mut first, 3, 33));
            reader.join().unwrap();
            assert_eq!((get(&first, 1), get(&first, 3)), (None, Some(33)));
        },
        1,
    );
}

/// A reader beside one who puts another version there sees one of the two, whole.
#[test]
fn a_version_is_seen_whole() {
    check(
        |mut first, second| {
            assert!(put(&mut first, 1, 11));
            let reader = thread::spawn(move || {
                let seen = get(&second, 1);
                assert!(matches!(seen, Some(11 | 12)), "{seen:?}");
            });
            assert!(put(&mut first, 1, 12));
            reader.join().unwrap();
        },
        2,
    );
}

/// One takes the last block of a node out, another puts one there: it is found afterwards.
#[test]
fn nothing_is_put_into_a_node_that_goes() {
    check(
        |mut first, mut second| {
            assert!(put(&mut first, 0, 10));
            let other = thread::spawn(move || {
                assert!(put(&mut second, 1, 21));
                assert_eq!(get(&second, 1), Some(21));
                second
            });
            assert!(first.remove(0));
            let second = other.join().unwrap();
            assert_eq!((get(&first, 0), get(&second, 1)), (None, Some(21)));
        },
        1,
    );
}

/// Both change a block by what it is: neither change is lost.
#[test]
fn no_change_is_lost() {
    check(
        |mut first, mut second| {
            assert!(put(&mut first, 2, 5));
            let add = |local: &mut Local<Pair>| {
                assert_eq!(local.change::<Yield>(2, |old, new| new.put(old.value() + 1)), Ok(true));
            };
            let other = thread::spawn(move || {
                add(&mut second);
                second
            });
            add(&mut first);
            let _second = other.join().unwrap();
            assert_eq!(get(&first, 2), Some(7));
        },
        2,
    );
}

/// What another core took out is its own core's again.
#[test]
fn frames_go_home() {
    check(
        |mut first, mut second| {
            assert!(put(&mut first, 0, 1));
            let other = thread::spawn(move || {
                assert!(second.remove(0));
                second.reclaim::<Yield>();
                second
            });
            let early = put(&mut first, 3, 2);
            let _second = other.join().unwrap();
            assert!(early || put(&mut first, 3, 2), "its frame is home");
            assert_eq!((get(&first, 0), get(&first, 3)), (None, Some(2)));
        },
        1,
    );
}
