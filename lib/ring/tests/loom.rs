//! Every interleaving and every allowed reordering of a small ring, by the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p pelago-ring --test loom`.
#![cfg(loom)]
#![forbid(unsafe_code)]

use loom::sync::Arc;
use loom::thread;
use ring::{AtomicU64, Buffer, Header, Kind, Ordering, Reader, Slot, Writer};

struct Shared {
    slots: Vec<Slot>,
    index: AtomicU64,
    generation: AtomicU64,
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared {
        slots: (0..2).map(|_| Slot::empty()).collect(),
        index: AtomicU64::new(0),
        generation: AtomicU64::new(1),
    })
}

fn header(correlation: u32) -> Header {
    Header { kind: Kind::Request, operation: 1, correlation }
}

/// A body that names its message in every word.
fn body(number: u32, words: usize) -> Vec<u8> {
    u64::from(number).to_le_bytes().repeat(words)
}

#[test]
fn messages_arrive_whole_and_in_order() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = shared();
        let peer = shared.clone();
        // Two slots: one message of one slot, one of two, one of one; each but the first waits for
        // room.
        let lengths = [1, 7, 2];
        let writer = thread::spawn(move || {
            let mut writer = Writer::new(1);
            for (number, words) in (0..).zip(lengths) {
                while writer.write(&peer.slots, &peer.index, header(number), &body(number, words)).is_err() {
                    thread::yield_now();
                }
            }
        });
        let mut reader = Reader::new(1, &shared.index);
        let mut buffer = Buffer::default();
        for (number, words) in (0..).zip(lengths) {
            let (got, bytes) = loop {
                match reader.read(&shared.slots, &shared.index, &mut buffer).unwrap() {
                    Some(message) => break message,
                    None => thread::yield_now(),
                }
            };
            assert_eq!((got, &buffer.0[..bytes]), (header(number), &body(number, words)[..]));
        }
        writer.join().unwrap();
    });
}

/// Beside the ring, where bulk is: what the writer put there before a message is there for the
/// reader once that is ready, and what the reader puts there before it takes the message is there
/// for the writer once the slot had room for another.
#[test]
fn what_lies_beside_a_message_came_before_it_and_goes_before_its_slot() {
    const MESSAGES: usize = 4;
    const ASKED: u64 = 1;
    const ANSWERED: u64 = 2;
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = shared();
        let beside: Arc<Vec<AtomicU64>> = Arc::new((0..MESSAGES).map(|_| AtomicU64::new(0)).collect());
        let (peer, beside_peer) = (shared.clone(), beside.clone());
        let writer = thread::spawn(move || {
            let mut writer = Writer::new(1);
            for number in 0..MESSAGES {
                beside_peer[number].store(ASKED, Ordering::Relaxed);
                while writer.write(&peer.slots, &peer.index, header(number as u32), &[]).is_err() {
                    thread::yield_now();
                }
                if let Some(taken) = number.checked_sub(peer.slots.len()) {
                    assert_eq!(beside_peer[taken].load(Ordering::Relaxed), ANSWERED);
                }
            }
        });
        let mut reader = Reader::new(1, &shared.index);
        let mut buffer = Buffer::default();
        for word in beside.iter() {
            while !reader.ready(&shared.slots) {
                thread::yield_now();
            }
            assert_eq!(word.load(Ordering::Relaxed), ASKED);
            word.store(ANSWERED, Ordering::Relaxed);
            assert!(reader.read(&shared.slots, &shared.index, &mut buffer).unwrap().is_some());
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_successor_that_overwrites_is_noticed() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(|| {
        let shared = shared();
        let mut reader = Reader::new(1, &shared.index);
        Writer::new(1).write(&shared.slots, &shared.index, header(1), &body(1, 2)).unwrap();
        let peer = shared.clone();
        // The first writer has died; the monitor raises the generation and a successor begins at
        // once.
        let successor = thread::spawn(move || {
            peer.generation.store(2, Ordering::Release);
            assert_eq!(peer.generation.load(Ordering::Acquire), 2);
            let _ = Writer::new(2).write(&peer.slots, &peer.index, header(2), &body(2, 2));
        });
        let mut buffer = Buffer::default();
        let read = reader.read(&shared.slots, &shared.index, &mut buffer);
        let same = shared.generation.load(Ordering::Acquire) == 1;
        if let (Ok(Some((got, bytes))), true) = (read, same) {
            assert_eq!((got, &buffer.0[..bytes]), (header(1), &body(1, 2)[..]));
        }
        successor.join().unwrap();
    });
}

#[test]
fn an_announced_sleeper_is_rung_or_looks_again() {
    loom::model(|| {
        let shared = shared();
        let asleep = Arc::new(AtomicU64::new(0));
        let (peer, peer_asleep) = (shared.clone(), asleep.clone());
        // What `channel` does: publish, fence, look whether the peer sleeps.
        let writer = thread::spawn(move || {
            Writer::new(1).write(&peer.slots, &peer.index, header(1), &body(1, 1)).unwrap();
            ring::fence(Ordering::SeqCst);
            peer_asleep.load(Ordering::Relaxed) == 1
        });
        let reader = Reader::new(1, &shared.index);
        asleep.store(1, Ordering::Relaxed);
        ring::fence(Ordering::SeqCst);
        let seen = reader.ready(&shared.slots);
        let notified = writer.join().unwrap();
        assert!(seen || notified, "the message would be slept over");
    });
}
