//! What servers of files do alike, with a process server that is played.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::rc::Rc;

use channel::{Broken, Dispatch, Layout, Peer, ServerChannel, Task, client_id, decode, loopback};
use contracts::descriptions::{self, DescriptionError as Error, DescriptionId};
use contracts::files::{Hold, Lock, LockKind, open};
use contracts::process::{self, ProcessClient, ProcessError, ProcessEvents};
use contracts::testing::two_programs;
use open_files::{Descriptions, FileId, Server, Target, settle_in_flight};

struct File(FileId);

impl Target for File {
    fn file(&self) -> Option<FileId> {
        Some(self.0)
    }
}

/// A server of files: what is open, and what was closed.
struct Files {
    all: Descriptions<File>,
    closed: RefCell<Vec<FileId>>,
}

impl Server for Files {
    type Target = File;

    fn descriptions(&self) -> &Descriptions<File> {
        &self.all
    }

    fn closed(&self, target: File) {
        self.closed.borrow_mut().push(target.0);
    }
}

impl Files {
    fn new() -> Rc<Files> {
        Rc::new(Files { all: Descriptions::new(8, 0), closed: RefCell::default() })
    }

    fn open(&self, peer: &Peer, file: FileId) -> DescriptionId {
        self.all.table.borrow_mut().add(peer, File(file), open::READ)
    }

    /// What was closed since this was asked last.
    async fn closed(&self) -> Vec<FileId> {
        for _ in 0..8 {
            runtime::yield_now().await;
        }
        self.closed.take()
    }
}

/// Knows some tickets, and answers nothing but what it is asked of tickets.
struct Processes {
    known: Rc<RefCell<Vec<u64>>>,
    asked: Rc<RefCell<Vec<u64>>>,
}

impl Dispatch for Processes {
    fn request(&self, peer: &Peer, _: u16, correlation: u32, body: &[u8]) -> Result<Task, Broken> {
        let (tickets,): (Vec<u64>,) = decode(body)?;
        let known = self.known.borrow();
        let known: Vec<u64> = tickets.iter().filter(|ticket| known.contains(ticket)).copied().collect();
        self.asked.borrow_mut().extend(tickets);
        let peer = peer.clone();
        Ok(Box::pin(async move { peer.answer(correlation, &Ok::<_, ProcessError>(known)) }))
    }

    fn one_way(&self, _: &Peer, _: u16, _: &[u8]) -> Result<(), Broken> {
        Err(Broken)
    }

    fn closed(&self, _: &Peer) {}

    fn restarted(&self, _: &Peer) {}
}

/// Closes what its client names, whatever it asks for.
struct Closing(Rc<Files>);

impl Dispatch for Closing {
    fn request(&self, peer: &Peer, _: u16, correlation: u32, body: &[u8]) -> Result<Task, Broken> {
        let (id,) = decode(body)?;
        let was_held = self.0.release(peer.id(), id);
        let answer = if was_held { Ok(()) } else { Err(Error::BadId) };
        let peer = peer.clone();
        Ok(Box::pin(async move { peer.answer(correlation, &answer) }))
    }

    fn one_way(&self, _: &Peer, _: u16, _: &[u8]) -> Result<(), Broken> {
        Err(Broken)
    }

    fn closed(&self, _: &Peer) {}

    fn restarted(&self, _: &Peer) {}
}

fn programs(files: &Files) -> [ServerChannel; 2] {
    two_programs(|channel| files.all.clients.add(channel)).1
}

/// The program's end. It is known by that afterwards.
fn end(program: ServerChannel) -> Peer {
    program.peer().clone()
}

#[test]
fn what_is_released_last_is_closed() {
    runtime::testing::run(async {
        let files = Files::new();
        let [first, second] = programs(&files);
        let [one, other] = [7, 8].map(|file| files.open(first.peer(), file));
        assert!(!files.release(99, one) && !files.release(first.peer().id(), 99));
        assert_eq!(files.all.with(first.peer(), one, |open| Ok(open.reads)), Ok(true));
        assert!(files.release(first.peer().id(), one));
        assert_eq!(files.closed().await, [7]);
        // What the first one holds too is not closed by the end of the other.
        let [own, shared] = [(&second, 9), (&first, 10)].map(|(program, file)| files.open(program.peer(), file));
        files.all.table.borrow_mut().inherit(first.peer().id(), second.peer().id());
        let ended = end(second);
        files.release_all_of(&ended);
        assert_eq!(files.closed().await, [9]);
        assert_eq!(files.all.with(&ended, own, |_| Ok(())), Err(Error::BadId));
        assert_eq!([other, shared].map(|id| files.all.with(first.peer(), id, |_| Ok(()))), [Ok(()); 2]);
    });
}

#[test]
fn a_child_is_given_what_its_parent_holds_before_it_runs() {
    runtime::testing::run(async {
        let files = Files::new();
        let [first, child] = programs(&files);
        files.all.clients.add(&child);
        let id = files.open(first.peer(), 7);
        assert_eq!(files.all.inherit(first.peer(), client_id(8, 1)), Err(Error::Invalid));
        assert_eq!(files.all.with(child.peer(), id, |_| Ok(())), Err(Error::BadId));
        assert_eq!(files.all.inherit(first.peer(), child.peer().id()), Ok(()));
        assert_eq!(files.all.with(child.peer(), id, |_| Ok(())), Ok(()));
    });
}

#[test]
fn who_is_in_the_way_of_a_lock_is_told_to_who_may_ask() {
    runtime::testing::run(async {
        let files = Files::new();
        let [first, second] = programs(&files);
        let [own, others] = [&first, &second].map(|program| files.open(program.peer(), 7));
        let lock = |from, hold| Lock { kind: LockKind::Client, hold, from, to: from + 10, process: 3 };
        let [shared, exclusive] = [Some(Hold::Shared), Some(Hold::Exclusive)];
        let any = |_: FileId, _: &Lock| Ok(());
        files.all.table.borrow_mut().get(second.peer(), others).unwrap().writes = true;
        assert_eq!(files.all.lock(first.peer(), own, &lock(0, shared), false, any).await, Ok(()));
        let ask = async |from, hold, may: &dyn Fn(FileId, &Lock) -> Result<(), Error>| {
            files.all.blocking_lock(second.peer(), others, &lock(from, hold), may).await
        };
        assert_eq!((ask(5, shared, &any).await, ask(10, exclusive, &any).await), (Ok(None), Ok(None)));
        assert_eq!(ask(9, exclusive, &any).await, Ok(Some(lock(0, shared))));
        let denied = |_: FileId, _: &Lock| Err(Error::Denied);
        assert_eq!(ask(9, exclusive, &denied).await, Err(Error::Denied));
        assert_eq!(files.all.lock(second.peer(), others, &lock(20, shared), true, denied).await, Err(Error::Denied));
    });
}

#[test]
fn a_lock_is_free_once_its_holder_has_sent_that_it_closes_the_file() {
    runtime::testing::run(async {
        for is_asked_about in [false, true] {
            let files = Files::new();
            let (client, [first, second]) = two_programs(|channel| files.all.clients.add(channel));
            let [own, others] = [&first, &second].map(|program| files.open(program.peer(), 7));
            let lock = Lock { kind: LockKind::Whole, hold: Some(Hold::Exclusive), from: 0, to: 1, process: 3 };
            let any = |_: FileId, _: &Lock| Ok(());
            assert_eq!(files.all.lock(first.peer(), own, &lock, false, any).await, Ok(()));
            runtime::spawn(first.serve(descriptions::HASH, Rc::new(Closing(files.clone()))));
            assert_eq!(files.all.lock(second.peer(), others, &lock, false, any).await, Err(Error::WouldBlock));
            let closes = client.close(own);
            if is_asked_about {
                assert_eq!(files.all.blocking_lock(second.peer(), others, &lock, any).await, Ok(None));
            } else {
                assert_eq!(files.all.lock(second.peer(), others, &lock, false, any).await, Ok(()));
            }
            assert_eq!(closes.await, Ok(()));
        }
    });
}

#[test]
fn what_is_in_flight_is_closed_when_nobody_will_claim_it() {
    runtime::testing::run(async {
        let files = Files::new();
        let [first, second] = programs(&files);
        let ids = [7, 8, 9, 10].map(|file| files.open(second.peer(), file));
        // A number that nobody guesses, and others beside it.
        let first_ticket = files.all.export(second.peer(), ids[0]).unwrap();
        let tickets = [0, 1, 2, 3].map(|more| first_ticket + more);
        for at in 1..4 {
            files.all.table.borrow_mut().export(second.peer(), ids[at], tickets[at]).unwrap();
        }
        let (client, served) = loopback(Layout::default());
        let process = served.peer().clone();
        let asked = Rc::<RefCell<Vec<u64>>>::default();
        let known = Rc::new(RefCell::new(tickets[..3].to_vec()));
        runtime::spawn(served.serve(process::HASH, Rc::new(Processes { known: known.clone(), asked: asked.clone() })));
        settle_in_flight(&files, &ProcessClient::new(client));
        // One that exported nothing ends: nobody is asked.
        files.release_all_of(&end(first));
        assert_eq!((files.closed().await, asked.take()), (vec![], vec![]));
        // The exporter ends: what it did not send is closed.
        files.release_all_of(&end(second));
        let all = |mut tickets: Vec<u64>| {
            tickets.sort();
            tickets
        };
        assert_eq!((files.closed().await, all(asked.take())), (vec![10], all(tickets.to_vec())));
        // One is settled.
        ProcessEvents::new(&process).settled(tickets[0]).unwrap();
        assert_eq!(files.closed().await, [7]);
        // Word of another was lost: all that are left are asked for.
        known.borrow_mut().retain(|ticket| *ticket == tickets[1]);
        process.lost();
        assert_eq!((files.closed().await, all(asked.take())), (vec![9], all(tickets[1..3].to_vec())));
    });
}
