//! The desk by its worker and its handler, together and apart.

use super::*;
use crate::limits::tests::DISK;
use std::sync::mpsc;
use std::thread;

const BADGE: u64 = 9;
const FIRST: u64 = 1000;
/// The core of a desk.
const CORE: u32 = 5;

fn page() -> &'static Page {
    Box::leak(Box::new([const { AtomicU64::new(0) }; 512]))
}

/// A desk whose second client is alone in calling.
fn desk() -> (&'static Desk, &'static Page) {
    let page = page();
    let client = Client::new(BADGE, page, Limits::of(DISK), Handle::NONE);
    let desk = Desk::leak(Vec::from([None, Some(client)]), CORE);
    desk.attached(1, FIRST);
    (desk, page)
}

fn read(number: u64) -> Request {
    Request { operation: Operation::Read, number, extent: Extent { sector: 0, sectors: 8 }, offset: 8192 }
}

fn call(desk: &Desk, ask: u64, pick_up: u64) -> Worked {
    desk.call(BADGE, [ask, pick_up, 0, 0], || 5)
}

#[test]
fn a_batch_is_asked_carried_out_and_picked_up() {
    let (desk, page) = desk();
    (0..32).for_each(|slot| slot::fill(page, slot, &read(FIRST + slot as u64)));
    let all = u64::from(u32::MAX);
    assert_eq!(call(desk, all, 0), Worked { words: [0, all, 0], is_news: true });
    for slot in 0..32 {
        assert_eq!(desk.take(1), Some(Asked { slot, request: read(FIRST + slot as u64) }), "in order");
    }
    assert_eq!(desk.take(1), None);
    assert_eq!(call(desk, 0, all).words, [0, all, 0], "nothing has ended");
    for slot in (0..32).filter(|slot| slot % 2 == 0) {
        let ended = if slot == 4 { Ended::Failed(BlocksError::Io) } else { Ended::Done };
        assert!(desk.end(1, FIRST + slot, ended, 20, 21));
        assert!(!desk.end(1, FIRST + slot, ended, 20, 21), "once");
    }
    let even = all & 0x5555_5555;
    // Half is picked up and asked anew in the same call.
    (32..48).for_each(|slot| slot::fill(page, slot, &read(FIRST + slot as u64)));
    assert_eq!(call(desk, 0xffff << 32, even), Worked { words: [even, 0xffff << 32, 0], is_news: true });
    assert_eq!(slot::ended(page, 4), Ended::Failed(BlocksError::Io));
    assert_eq!(slot::ended(page, 6), Ended::Done);
    assert_eq!(call(desk, 0, even).words, [even, 0, 0]);
    assert_eq!(slot::ended(page, 6), Ended::NotAsked, "it was picked up");
}

#[test]
fn a_call_of_too_much_or_of_a_stranger_is_refused() {
    let (desk, page) = desk();
    let why = |ask, pick_up| call(desk, ask, pick_up).words;
    assert_eq!(why(0x1_ffff_ffff, 0), [0, 0, refused::BATCH]);
    assert_eq!(why(0xffff_ffff, 1 << 40), [0, 0, refused::BATCH]);
    assert_eq!(why(1, 1), [0, 0, refused::BATCH]);
    assert_eq!(desk.call(BADGE + 1, [1, 0, 0, 0], || 0).words, [0, 0, refused::CALLER]);
    let fresh = Desk::leak(Vec::from([Some(Client::new(BADGE, page, Limits::of(DISK), Handle(7)))]), CORE);
    assert_eq!((fresh.handler(BADGE), fresh.handler(BADGE + 1)), (Some(Handle(7)), None));
    assert_eq!(call(fresh, 1, 0).words, [0, 0, refused::CALLER], "it has not attached");
}

#[test]
fn what_is_refused_is_answered_without_the_handler() {
    let (desk, page) = desk();
    let behind = Request { extent: Extent { sector: 80, sectors: 8 }, ..read(FIRST) };
    slot::fill(page, 0, &behind);
    slot::fill(page, 1, &read(FIRST - 1));
    assert_eq!(call(desk, 7, 0), Worked { words: [7, 0, 0], is_news: false });
    let ended = [0, 1, 2].map(|slot| slot::ended(page, slot));
    let errors = [BlocksError::Range, BlocksError::Number, BlocksError::Number];
    assert_eq!(ended, errors.map(Ended::Failed));
    assert_eq!(desk.take(1), None);
    let cores = Phases { submit_core: CORE, program_core: CORE, ..Phases::default() };
    let times = Phases { preprocess_ns: 5, submit_ns: 5, program_ns: 5, ..cores };
    assert_eq!(slot::phases(page, 0), Phases { interrupt_ns: 5, signal_ns: 5, ..times });
}

#[test]
fn who_asks_again_joins_and_another_request_does_not() {
    let (desk, page) = desk();
    slot::fill(page, 5, &read(FIRST));
    assert!(call(desk, 1 << 5, 0).is_news);
    assert_eq!(call(desk, 1 << 5, 0), Worked { words: [0, 1 << 5, 0], is_news: false });
    slot::fill(page, 5, &read(FIRST + 1));
    assert_eq!(call(desk, 1 << 5, 0).words, [1 << 5, 0, 0]);
    assert_eq!(slot::ended(page, 5), Ended::Failed(BlocksError::Number));
    assert!(desk.take(1).is_some() && desk.take(1).is_none(), "it is in the ring once");
    assert!(desk.end(1, FIRST, Ended::Done, 0, 0));
    slot::fill(page, 5, &read(FIRST));
    assert_eq!(call(desk, 1 << 5, 0).words, [1 << 5, 0, 0]);
    assert_eq!(slot::ended(page, 5), Ended::Done);
}

#[test]
fn what_a_life_left_is_nobodys() {
    let (desk, page) = desk();
    (0..3).for_each(|slot| slot::fill(page, slot, &read(FIRST + slot as u64)));
    assert_eq!(call(desk, 3, 0).words, [0, 3, 0]);
    assert!(desk.take(1).is_some() && desk.take(1).is_some());
    assert!(desk.end(1, FIRST, Ended::Done, 0, 0));
    // One that was asked for the dead client after its successor had attached.
    assert_eq!(call(desk, 4, 0).words, [0, 4, 0]);
    desk.attached(1, FIRST + 100);
    (0..3).for_each(|slot| slot::fill(page, slot, &read(FIRST + 100 + slot as u64)));
    assert_eq!(call(desk, 7, 0).words, [4, 3, 0]);
    assert_eq!(slot::ended(page, 2), Ended::Failed(BlocksError::Full), "the old one is in the ring");
    assert_eq!([desk.take(1), desk.take(1)].map(|asked| asked.unwrap().request.number), [FIRST + 100, FIRST + 101]);
    assert_eq!(desk.take(1), None);
    assert!(!desk.end(1, FIRST + 1, Ended::Done, 0, 0), "nobody waits for the old one");
    assert_eq!(call(desk, 4, 0).words, [0, 4, 0]);
    assert_eq!(desk.take(1).unwrap().request.number, FIRST + 102);
}

#[test]
fn a_client_reads_when_its_request_was_where() {
    let (desk, page) = desk();
    let clock = AtomicU64::new(100);
    let call = |ask, pick_up| {
        let now_ns = || clock.fetch_add(1, Ordering::Relaxed);
        desk.call(BADGE, [ask, pick_up, 0, 0], now_ns).words
    };
    (2..4).for_each(|slot| slot::fill(page, slot, &read(FIRST + slot as u64)));
    assert_eq!(call(12, 0), [0, 12, 0]);
    assert!(desk.take(1).is_some() && desk.take(1).is_some());
    desk.programmed(&[(0, 2), (1, 3), (1, 64), (2, 3)], 200);
    assert!(desk.end(1, FIRST + 2, Ended::Done, 300, 400) && desk.end(1, FIRST + 3, Ended::Done, 500, 600));
    assert_eq!(call(0, 12), [12, 0, 0]);
    let cores = Phases { submit_core: CORE, program_core: CORE, ..Phases::default() };
    let times = Phases { preprocess_ns: 102, submit_ns: 103, program_ns: 200, ..cores };
    let phases = Phases { interrupt_ns: 500, signal_ns: 600, ..times };
    assert_eq!(slot::phases(page, 3), phases);
    let times = Phases { preprocess_ns: 100, submit_ns: 101, program_ns: 101, ..cores };
    let never = Phases { interrupt_ns: 300, signal_ns: 400, ..times };
    assert_eq!(slot::phases(page, 2), never, "it was not told of as given to the device");
    // What a slot was asked before is not told of what it is asked next.
    slot::fill(page, 3, &read(FIRST + 4));
    assert_eq!(call(8, 0), [0, 8, 0]);
    assert!(desk.take(1).is_some() && desk.end(1, FIRST + 4, Ended::Done, 107, 108));
    assert_eq!(call(0, 8), [8, 0, 0]);
    let times = Phases { preprocess_ns: 104, submit_ns: 105, program_ns: 105, ..cores };
    let anew = Phases { interrupt_ns: 107, signal_ns: 108, ..times };
    assert_eq!(slot::phases(page, 3), anew);
}

#[test]
fn a_client_that_attaches_once_more_keeps_what_is_under_way() {
    let (desk, page) = desk();
    (0..2).for_each(|slot| slot::fill(page, slot, &read(FIRST + slot as u64)));
    assert_eq!(call(desk, 3, 0).words, [0, 3, 0]);
    assert!(desk.take(1).is_some() && desk.take(1).is_some());
    desk.attached(1, FIRST);
    assert!(desk.end(1, FIRST, Ended::Done, 0, 0) && desk.end(1, FIRST + 1, Ended::Done, 0, 0));
    assert_eq!(call(desk, 0, 3).words, [3, 0, 0]);
}

#[test]
fn all_clients_hear_that_the_disk_grew() {
    let (desk, page) = desk();
    let behind = Request { extent: Extent { sector: 80, sectors: 8 }, ..read(FIRST) };
    slot::fill(page, 0, &behind);
    assert_eq!(call(desk, 1, 0).words, [1, 0, 0]);
    assert_eq!(slot::ended(page, 0), Ended::Failed(BlocksError::Range));
    desk.resize(88);
    assert_eq!(call(desk, 1, 0).words, [0, 1, 0]);
}

/// A handler that sleeps until it is notified misses nothing.
#[test]
fn no_news_is_lost() {
    const ROUNDS: u64 = 20_000;
    let (desk, page) = desk();
    let (notify, notified) = mpsc::channel();
    let handler = thread::spawn(move || {
        let mut done = 0;
        while notified.recv().is_ok() {
            while let Some(asked) = desk.take(1) {
                assert!(desk.end(1, asked.request.number, Ended::Done, 0, 0));
                done += 1;
            }
        }
        done
    });
    let (mut number, mut free, mut done) = (FIRST, u64::MAX, 0);
    let begin = std::time::Instant::now();
    while done < ROUNDS {
        assert!(begin.elapsed().as_secs() < 120, "the handler sleeps over {number}");
        let ask = slots(free).take(16).fold(0, |all, slot| all | 1 << slot);
        slots(ask).for_each(|slot| {
            slot::fill(page, slot, &read(number));
            number += 1;
        });
        let pick_up = slots(!free).take(16).fold(0, |all, slot| all | 1 << slot);
        let Worked { words: [ended, pending, why], is_news } = call(desk, ask, pick_up);
        assert_eq!((why, ended & pending), (0, 0));
        if is_news {
            notify.send(()).unwrap();
        }
        assert!(slots(ended).all(|slot| slot::ended(page, slot) == Ended::Done));
        free = free & !pending | ended;
        done += u64::from(ended.count_ones());
    }
    drop(notify);
    let all = handler.join().unwrap() + core::iter::from_fn(|| desk.take(1)).count() as u64;
    assert_eq!(all, number - FIRST, "each was seen once");
}

/// The cores of a worker and of a handler that are apart.
const APART: [u32; 2] = [2, CORE];

/// What a worker and a handler on two cores share, zeroed or not.
fn words() -> &'static [AtomicU64] {
    const BYTES: usize = contracts::blocks::DESK_BYTES as usize;
    Box::leak(Box::new([const { AtomicU64::new(u64::MAX) }; BYTES / 8]))
}

/// The desk of a handler whose clients' workers are elsewhere.
fn handler(shared: &[&'static Shared]) -> &'static Desk {
    let clients = shared.iter().map(|shared| Some(Client::of_handler(shared)));
    Desk::leak(clients.collect(), APART[1])
}

/// The desk of the worker of one such client.
fn worker(shared: &'static Shared) -> (&'static Desk, &'static Page) {
    let page = page();
    let client = Client::of_worker(BADGE, page, Limits::of(DISK), Handle::NONE, shared);
    (Desk::leak(Vec::from([Some(client)]), APART[0]), page)
}

#[test]
fn a_worker_and_a_handler_on_two_cores_have_a_desk_each() {
    let words = words();
    assert!(Shared::over(&words[..words.len() / 2]).is_none(), "too few");
    let shared = Shared::over(words).unwrap();
    let (handler, (worker, page)) = (handler(&[shared]), worker(shared));
    assert_eq!((shared.is_asked(), shared.has_end(), handler.take(0)), (false, false, None), "it was cleared");
    handler.attached(0, FIRST);
    slot::fill(page, 7, &read(FIRST));
    assert_eq!(call(worker, 1 << 7, 0).words, [0, 0, refused::CALLER], "the worker was not told");
    worker.worker_attached(0, FIRST);
    assert_eq!(call(worker, 1 << 7, 0), Worked { words: [0, 1 << 7, 0], is_news: true });
    assert!(shared.is_asked());
    assert_eq!(handler.take(0), Some(Asked { slot: 7, request: read(FIRST) }));
    assert!(!shared.is_asked());
    handler.programmed(&[(0, 7)], 20);
    assert!(handler.end(0, FIRST, Ended::Done, 30, 31));
    assert!(shared.tell_end() && !shared.tell_end(), "who was told and has not looked is not told again");
    assert!(shared.has_end() && shared.take_end() && !shared.has_end() && !shared.take_end());
    assert!(shared.tell_end());
    assert_eq!(call(worker, 0, 1 << 7).words, [1 << 7, 0, 0]);
    let Phases { submit_core, program_core, program_ns, .. } = slot::phases(page, 7);
    assert_eq!(([submit_core, program_core], program_ns), (APART, 20));
    assert_eq!(handler.call(BADGE, [0; 4], || 5).words, [0, 0, refused::CALLER], "it is not called there");
}

/// The whole server begins anew: what was asked of it is nowhere, and is asked again.
#[test]
fn nothing_of_an_earlier_life_of_the_server_is_left_between_cores() {
    let shared = Shared::over(words()).unwrap();
    let (first, (old, page)) = (handler(&[shared]), worker(shared));
    first.attached(0, FIRST);
    old.worker_attached(0, FIRST);
    (0..3).for_each(|slot| slot::fill(page, slot, &read(FIRST + slot as u64)));
    assert_eq!(call(old, 7, 0).words, [0, 7, 0]);
    assert!(first.take(0).is_some() && first.take(0).is_some());
    assert!(first.end(0, FIRST, Ended::Done, 0, 0) && shared.tell_end());

    let (handler, (worker, page)) = (handler(&[shared]), worker(shared));
    assert_eq!((shared.is_asked(), shared.has_end(), handler.take(0)), (false, false, None));
    handler.attached(0, FIRST);
    worker.worker_attached(0, FIRST);
    assert_eq!(call(worker, 0, 7).words, [7, 0, 0]);
    assert_eq!([0, 1, 2].map(|slot| slot::ended(page, slot)), [Ended::NotAsked; 3]);
    (0..3).for_each(|slot| slot::fill(page, slot, &read(FIRST + slot as u64)));
    assert_eq!(call(worker, 7, 0), Worked { words: [0, 7, 0], is_news: true });
    let again: Vec<_> = core::iter::from_fn(|| handler.take(0)).map(|asked| asked.request.number).collect();
    assert_eq!(again, [FIRST, FIRST + 1, FIRST + 2], "in order");
}

/// One client on its core, which sleeps until it is told when nothing has ended: how many of its
/// requests were done.
fn asks_and_sleeps(shared: &'static Shared, news: &mpsc::Sender<()>, told: &mpsc::Receiver<()>, rounds: u64) -> u64 {
    let (worker, page) = worker(shared);
    worker.worker_attached(0, FIRST);
    let (mut number, mut under_way, mut done) = (FIRST, 0u64, 0);
    while done < rounds {
        let ask = slots(!under_way).take(16).fold(0, |all, slot| all | 1 << slot);
        slots(ask).for_each(|slot| {
            slot::fill(page, slot, &read(number));
            number += 1;
        });
        let pick_up = slots(under_way).take(16).fold(0, |all, slot| all | 1 << slot);
        let Worked { words: [ended, pending, why], is_news } = call(worker, ask, pick_up);
        assert_eq!((why, ended & pending), (0, 0));
        if is_news {
            news.send(()).unwrap();
        }
        assert!(slots(ended).all(|slot| slot::ended(page, slot) == Ended::Done));
        under_way = (under_way | pending) & !ended;
        done += u64::from(ended.count_ones());
        if ended == 0 && !shared.take_end() {
            let slept = told.recv_timeout(std::time::Duration::from_secs(60));
            assert!(slept.is_ok(), "nobody said that something ended: {done} are done, {under_way:#x} under way");
            shared.take_end();
        }
    }
    number - FIRST
}

/// Clients of several cores ask at once, and sleep; so does the handler, which takes what each
/// asked in its order.
#[test]
fn cores_ask_at_once_and_nothing_is_lost_or_overtaken() {
    const ROUNDS: u64 = 10_000;
    let all: [&'static Shared; 3] = [(); 3].map(|()| Shared::over(words()).unwrap());
    let handler = handler(&all);
    (0..all.len()).for_each(|client| handler.attached(client, FIRST));
    let (news, heard) = mpsc::channel();
    let (mut tells, mut clients) = (Vec::new(), Vec::new());
    for shared in all {
        let (tell, told) = mpsc::channel();
        let news = news.clone();
        tells.push(tell);
        clients.push(thread::spawn(move || asks_and_sleeps(shared, &news, &told, ROUNDS)));
    }
    drop(news);
    let mut next = [FIRST; 3];
    while heard.recv_timeout(std::time::Duration::from_secs(60)).is_ok() {
        for client in 0..all.len() {
            let before = next[client];
            while let Some(asked) = handler.take(client) {
                assert_eq!(asked.request.number, next[client], "of client {client}");
                next[client] += 1;
                assert!(handler.end(client, asked.request.number, Ended::Done, 0, 0));
            }
            if next[client] != before && all[client].tell_end() {
                // It may have all that it wants by now.
                let _ = tells[client].send(());
            }
        }
    }
    for (client, asked) in clients.into_iter().enumerate() {
        let rest = core::iter::from_fn(|| handler.take(client)).count() as u64;
        assert_eq!(asked.join().unwrap(), next[client] - FIRST + rest, "each of client {client} was seen once");
    }
}
