//! The table of descriptions as a server uses it: who holds what, which locks go with it, and what
//! is in flight.
#![forbid(unsafe_code)]

use channel::{IN_FLIGHT, Layout, Peer, ServerChannel, Wiring, client_id, loopback_memory, loopback_wiring};
use contracts::descriptions::{DescriptionError as Error, copy_words};
use contracts::files::{Hold, Lock, LockKind, open};
use open_files::{FileId, Released, Table, Target};

/// A file by its number, or what is none.
#[derive(Debug, PartialEq)]
struct File(Option<FileId>);

impl Target for File {
    fn file(&self) -> Option<FileId> {
        self.0
    }
}

const FILE: FileId = 7;
/// The last id of an earlier life.
const BEFORE: u64 = 100;

fn program(set: u32) -> ServerChannel {
    let [memory] = loopback_memory(Layout::default());
    ServerChannel::new(Wiring { peer_set: set, ..loopback_wiring(memory, false) })
}

fn peer(set: u32) -> Peer {
    program(set).peer().clone()
}

fn table() -> (Table<File>, [Peer; 2]) {
    (Table::new(8, BEFORE), [1, 2].map(peer))
}

fn lock(kind: LockKind, hold: Option<Hold>, from: u64, to: u64) -> Lock {
    Lock { kind, hold, from, to, process: 1 }
}

/// Locks a whole file by a description. Whether it could.
fn takes(table: &mut Table<File>, peer: &Peer, id: u64, kind: LockKind) -> bool {
    let lock = lock(kind, Some(Hold::Exclusive), 0, u64::MAX);
    let (file, owner) = table.to_lock(peer, id, &lock).unwrap();
    table.locks.set(file, owner, &lock).is_ok()
}

/// What was said of a release.
fn told(released: Released<File>) -> (bool, bool, bool) {
    (released.was_held, released.freed_locks, released.last.is_some())
}

#[test]
fn a_description_is_its_clients_and_does_what_it_was_opened_for() {
    let (mut table, [one, other]) = table();
    let flags = [0, open::READ, open::WRITE, open::APPEND, open::READ | open::WRITE | open::CREATE];
    let ids = flags.map(|flags| table.add(&one, File(None), flags));
    assert_eq!(ids, [1, 2, 3, 4, 5].map(|at| BEFORE + at));
    let may = ids.map(|id| table.get(&one, id).map(|open| [open.reads, open.writes, open.appends]).unwrap());
    let expected = [[false; 3], [true, false, false], [false, true, false], [false, false, true], [true, true, false]];
    assert_eq!(may, expected);
    assert_eq!(table.get(&other, ids[0]).err(), Some(Error::BadId));
    for (id, error) in [(0, Error::BadId), (1, Error::Failed), (BEFORE, Error::Failed), (BEFORE + 6, Error::BadId)] {
        assert_eq!(table.get(&one, id).err(), Some(error), "{id}");
    }
}

#[test]
fn an_offset_is_none_that_is_negative() {
    let (mut table, [one, _]) = table();
    let id = table.add(&one, File(None), open::READ);
    let open = table.get(&one, id).unwrap();
    assert_eq!((open.seek(10, -3), open.offset()), (Ok(7), 7));
    let last = i64::MAX as u64;
    for (base, moved) in [(10, -11), (last, 1), (u64::MAX, i64::MAX)] {
        assert_eq!((open.seek(base, moved), open.offset()), (Err(Error::Invalid), 7), "{base} {moved}");
    }
    assert_eq!((open.seek(last, 0), open.seek(3, -3)), (Ok(last), Ok(0)));
}

#[test]
fn a_lock_is_taken_by_who_may_do_what_it_guards() {
    let (mut table, [one, _]) = table();
    let [reader, writer] = [open::READ, open::WRITE].map(|flags| table.add(&one, File(Some(FILE)), flags));
    let none = table.add(&one, File(None), open::READ);
    let mut may = |id, kind, hold| table.to_lock(&one, id, &lock(kind, hold, 0, 1)).map(|(file, _)| file);
    for (hold, reads, writes) in [
        (Some(Hold::Shared), Ok(FILE), Err(Error::BadId)),
        (Some(Hold::Exclusive), Err(Error::BadId), Ok(FILE)),
        (None, Ok(FILE), Ok(FILE)),
    ] {
        assert_eq!((may(reader, LockKind::Client, hold), may(writer, LockKind::Client, hold)), (reads, writes));
        assert_eq!([reader, writer].map(|id| may(id, LockKind::Whole, hold)), [Ok(FILE); 2], "flock takes any");
    }
    assert_eq!(may(none, LockKind::Client, None), Err(Error::Invalid), "no file");
}

#[test]
fn a_client_has_half_at_most() {
    let (mut table, [one, other]) = (Table::new(4, 0), [1, 2].map(peer));
    for _ in 0..2 {
        assert_eq!(table.room(&one), Ok(()));
        table.add(&one, File(None), 0);
    }
    assert_eq!((table.room(&one), table.room(&other)), (Err(Error::TooMany), Ok(())));
}

#[test]
fn a_description_goes_with_its_last_reference() {
    let (mut table, [one, other]) = table();
    let id = table.add(&one, File(None), 0);
    table.inherit(one.id(), other.id());
    assert_eq!(told(table.release(9, id, false)), (false, false, false));
    assert_eq!(told(table.release(one.id(), id + 1, false)), (false, false, false));
    assert_eq!(told(table.release(one.id(), id, false)), (true, false, false));
    assert!(table.get(&one, id).is_err() && table.get(&other, id).is_ok());
    let last = table.release(other.id(), id, true);
    assert_eq!((last.was_held, last.last), (true, Some(File(None))));
    assert_eq!(told(table.release(other.id(), id, true)), (false, false, false));
}

#[test]
fn a_clients_locks_go_when_it_closes_any_description_of_the_file() {
    let (mut table, [one, other]) = table();
    let [first, second] = [(); 2].map(|()| table.add(&one, File(Some(FILE)), open::WRITE));
    let others = table.add(&other, File(Some(FILE)), open::WRITE);
    assert!(takes(&mut table, &one, first, LockKind::Client));
    // What it does not hold, it does not close.
    assert_eq!(told(table.release(one.id(), others, false)), (false, false, false));
    // It holds one of its own twice; closing that once closes nothing.
    table.export(&one, second, 55).unwrap();
    table.claim(&one, 55).unwrap();
    assert_eq!(told(table.release(one.id(), second, false)), (true, false, false));
    assert!(!takes(&mut table, &other, others, LockKind::Client));
    assert_eq!(told(table.release(one.id(), second, false)), (true, true, false));
    assert!(takes(&mut table, &other, others, LockKind::Client));
}

#[test]
fn a_descriptions_locks_go_with_it_and_not_before() {
    let (mut table, [one, other]) = table();
    let id = table.add(&one, File(Some(FILE)), open::WRITE);
    let others = table.add(&other, File(Some(FILE)), open::WRITE);
    table.inherit(one.id(), 9);
    assert!(takes(&mut table, &one, id, LockKind::Description));
    assert_eq!(told(table.release(9, id, false)), (true, false, false));
    assert!(!takes(&mut table, &other, others, LockKind::Description));
    assert_eq!(told(table.release(one.id(), id, false)), (true, true, true));
    assert!(takes(&mut table, &other, others, LockKind::Description));
}

#[test]
fn what_is_memory_of_programs_is_changed_by_these_only() {
    let (mut table, [one, other]) = table();
    let ids = [&one, &other, &one].map(|peer| table.add(peer, File(Some(FILE)), open::READ | open::WRITE));
    let claim = |table: &mut Table<File>, peer, id, memory, from, hold| {
        let claim = lock(LockKind::Mapped(memory), Some(hold), from, from + 4096);
        let (file, owner) = table.to_lock(peer, id, &claim).unwrap();
        table.locks.set(file, owner, &claim).unwrap();
    };
    claim(&mut table, &one, ids[0], 50, 0, Hold::Exclusive);
    for hold in [Hold::Exclusive, Hold::Shared] {
        claim(&mut table, &other, ids[1], 60, 8192, hold);
    }
    assert_eq!(table.may_change(&one, FILE, 0..8192), Ok(()));
    assert_eq!(table.may_change(&other, FILE, 4096..12288), Ok(()));
    assert_eq!(table.may_change(&other, FILE, 4095..4096), Err(Error::Denied));
    for bytes in [8192..8193, 0..12288] {
        assert_eq!(table.may_change(&one, FILE, bytes), Err(Error::Denied));
    }
    claim(&mut table, &one, ids[2], 60, 8192, Hold::Shared);
    assert_eq!(table.may_change(&one, FILE, 0..12288), Ok(()), "it has the same memory");
}

#[test]
fn what_a_client_that_ended_held_is_known() {
    let (mut table, [other, _]) = table();
    let one = program(5);
    let ids = [one.peer(), one.peer(), &other].map(|peer| table.add(peer, File(None), 0));
    let ended = client_id(9, 3);
    assert_eq!(table.held_by(&peer(9)), []);
    table.inherit(one.peer().id(), ended);
    assert_eq!(table.held_by(&peer(9)), [(ended, ids[0]), (ended, ids[1])]);
    assert_eq!(table.held_by(one.peer()), [], "it lives");
}

#[test]
fn a_ticket_is_a_reference_until_it_is_settled() {
    let (mut table, [one, other]) = table();
    let id = table.add(&one, File(None), 0);
    assert_eq!(table.export(&other, id, 44), Err(Error::BadId));
    assert_eq!((table.export(&one, id, 55), table.export(&one, id, 55)), (Ok(()), Err(Error::Failed)));
    assert_eq!((table.tickets_of(|exporter| exporter == one.id()), table.tickets_of(|_| false)), (vec![55], vec![]));
    assert_eq!(told(table.release(one.id(), id, true)), (true, false, false), "it is in flight");
    assert_eq!((table.claim(&other, 44), table.claim(&other, 55)), (Err(Error::BadId), Ok(id)));
    assert!(table.get(&other, id).is_ok());
    assert_eq!((table.settle(55), table.settle(55), table.claim(&one, 55)), (Some(id), None, Err(Error::BadId)));
    assert_eq!(told(table.release(IN_FLIGHT, id, false)), (true, false, false));
    assert_eq!(told(table.release(other.id(), id, false)), (true, false, true));
}

#[test]
fn words_for_a_file_that_did_not_change_stay_and_others_begin_anew() {
    let [memory] = loopback_memory(Layout { bulk_bytes: 4096, ..Layout::default() });
    let client = ServerChannel::new(Wiring { peer_set: 1, ..loopback_wiring(memory, false) });
    let (one, bulk, mut table) = (client.peer().clone(), client.peer().bulk(), table().0);
    let id = table.add(&one, File(Some(FILE)), open::READ);
    let other = table.add(&one, File(Some(FILE + 1)), open::READ);
    let word = |place: usize| bulk.load_u32(place).unwrap();
    // What the client stores before it asks, and what it finds then.
    let ask = |table: &mut Table<File>, id, at: Option<u64>| {
        bulk.store_u32(copy_words::READ, 1).unwrap();
        assert!(table.keep(&one, id, (at, 100), 0).is_ok());
        (word(copy_words::READ), word(copy_words::OVER))
    };
    assert_eq!(ask(&mut table, id, Some(0)), (0, 0), "of nothing before");
    assert_eq!(ask(&mut table, id, Some(4096)), (1, 0), "more of the same");
    table.changed(FILE);
    assert_eq!(word(copy_words::OVER), 1);
    assert_eq!(ask(&mut table, id, Some(0)), (0, 0), "of one that changed");
    assert_eq!(ask(&mut table, other, Some(0)), (0, 0), "of another file");
    assert_eq!(ask(&mut table, other, None), (0, 0), "at the offset");
    assert_eq!(ask(&mut table, other, Some(0)), (0, 0), "at a place again");
    // A change is heard by what was kept later, too.
    assert_eq!(ask(&mut table, other, Some(100)), (1, 0));
    table.changed(FILE + 1);
    assert_eq!(word(copy_words::OVER), 1);
}
