//! The descriptions of a server, and who waits for them: for a lock, or for word of what a sender
//! that ended has sent.
//!
//! Single-threaded: a `RefCell` borrow never crosses an await.

use alloc::vec::Vec;
use core::cell::RefCell;

use channel::{Clients, Peer};
use contracts::descriptions::{DescriptionError, DescriptionId};
use contracts::files::{Lock, LockKind};
use contracts::in_flight::{Exporter, settle_unknown};
use contracts::process::ProcessClient;
use runtime::Watch;

use crate::locks::Owner;
use crate::{FileId, Open, Released, Table, Target};

/// See the module's head.
pub struct Descriptions<T> {
    /// The descriptions, their locks, and what clients pass to each other.
    pub table: RefCell<Table<T>>,
    /// Some lock went or shrank.
    unlocked: Watch,
    /// Tickets of senders that have ended, and word of that.
    unsure: RefCell<Vec<u64>>,
    exporter_ended: Watch,
    /// The programs that may be given descriptions.
    pub clients: Clients,
}

/// Somebody waits for a lock, until this is dropped.
struct Waiting<'a, T: Target> {
    table: &'a RefCell<Table<T>>,
    owner: Owner,
}

impl<T: Target> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        self.table.borrow_mut().locks.wait_is_over(self.owner);
    }
}

/// A lock as a client asks for it, by one of its descriptions.
struct Request<'a, F> {
    peer: &'a Peer,
    id: DescriptionId,
    lock: &'a Lock,
    may: F,
}

impl<T: Target> Descriptions<T> {
    /// Nothing is open. As for [`Table::new`].
    pub fn new(max: usize, before: DescriptionId) -> Descriptions<T> {
        Descriptions {
            table: RefCell::new(Table::new(max, before)),
            unlocked: Watch::new(),
            unsure: RefCell::default(),
            exporter_ended: Watch::new(),
            clients: Clients::default(),
        }
    }

    /// Works on a description the client holds. `BadId`.
    pub fn with<R>(
        &self,
        peer: &Peer,
        id: DescriptionId,
        work: impl FnOnce(&mut Open<T>) -> Result<R, DescriptionError>,
    ) -> Result<R, DescriptionError> {
        work(self.table.borrow_mut().get(peer, id)?)
    }

    /// Gives a child that is being forked what its parent holds. `Invalid` if there is none.
    pub fn inherit(&self, peer: &Peer, child: u64) -> Result<(), DescriptionError> {
        if !self.clients.is_newborn(child) {
            return Err(DescriptionError::Invalid);
        }
        self.table.borrow_mut().inherit(peer.id(), child);
        Ok(())
    }

    /// Exports what a client holds: a ticket stands for one more reference. As for
    /// [`Table::export`].
    pub fn export(&self, peer: &Peer, id: DescriptionId) -> Result<u64, DescriptionError> {
        let mut ticket = [0; 8];
        runtime::fill_random(&mut ticket);
        let ticket = u64::from_ne_bytes(ticket);
        self.table.borrow_mut().export(peer, id, ticket).map(|()| ticket)
    }

    /// A client gives one reference back, or all at its end.
    pub fn release(&self, client: u64, id: DescriptionId, at_end: bool) -> Released<T> {
        let released = self.table.borrow_mut().release(client, id, at_end);
        if released.freed_locks {
            self.unlocked.changed();
        }
        released
    }

    /// Releases all that a client held, which ended; `each` is told what went by that.
    pub fn release_all_of(&self, gone: &Peer, mut each: impl FnMut(T)) {
        self.table.borrow_mut().end_copies_of(gone);
        let held = self.table.borrow().held_by(gone);
        for (client, id) in held {
            self.release(client, id, true).last.into_iter().for_each(&mut each);
        }
        // What it exported and did not send has to be found.
        let tickets = self.table.borrow().tickets_of(|exporter| gone.was(exporter));
        if !tickets.is_empty() {
            self.unsure.borrow_mut().extend(tickets);
            self.exporter_ended.changed();
        }
    }

    /// Settles what nobody will claim, for as long as the machine runs. `exporter` is the server.
    pub async fn settle_unsent(&self, exporter: &impl Exporter, processes: &ProcessClient) {
        loop {
            let take = || Some(self.unsure.take()).filter(|unsure| !unsure.is_empty());
            let unsure = self.exporter_ended.until(take).await;
            settle_unknown(exporter, processes, unsure).await;
        }
    }

    fn to_lock<F>(&self, request: &Request<'_, F>) -> Result<(FileId, Owner), DescriptionError>
    where
        F: Fn(FileId, &Lock) -> Result<(), DescriptionError>,
    {
        let found = self.table.borrow_mut().to_lock(request.peer, request.id, request.lock)?;
        (request.may)(found.0, request.lock)?;
        Ok(found)
    }

    /// What was closed meanwhile cannot be locked any more.
    fn try_lock<F>(&self, request: &Request<'_, F>) -> Result<(), DescriptionError>
    where
        F: Fn(FileId, &Lock) -> Result<(), DescriptionError>,
    {
        let (file, owner) = self.to_lock(request)?;
        let mut table = self.table.borrow_mut();
        if table.locks.set(file, owner, request.lock)? {
            self.unlocked.changed();
        }
        if matches!(request.lock.kind, LockKind::Mapped(_)) && request.lock.hold.is_some() {
            // From now on bytes change without us.
            table.changed(file);
        }
        Ok(())
    }

    /// Takes or gives back a lock, as `files` has it. `may` tells whether the server allows it.
    pub async fn lock(
        &self,
        peer: &Peer,
        id: DescriptionId,
        lock: &Lock,
        wait: bool,
        may: impl Fn(FileId, &Lock) -> Result<(), DescriptionError>,
    ) -> Result<(), DescriptionError> {
        let request = Request { peer, id, lock, may };
        let mut done = self.try_lock(&request);
        if done == Err(DescriptionError::WouldBlock) {
            self.look().await;
            done = self.try_lock(&request);
        }
        if !wait || done != Err(DescriptionError::WouldBlock) {
            return done;
        }
        let (file, owner) = self.to_lock(&request)?;
        self.table.borrow_mut().locks.wait(file, owner, lock)?;
        let _waiting = Waiting { table: &self.table, owner };
        let look = || Some(self.try_lock(&request)).filter(|done| *done != Err(DescriptionError::WouldBlock));
        self.unlocked.until(look).await
    }

    /// Another program may have let go of a lock: by its end, or by a message in a channel that was
    /// not looked at yet.
    async fn look(&self) {
        self.clients.look();
        runtime::take_in_all().await;
    }

    /// The lock that stands in the way of this one, as `files` has it. `may` as for
    /// [`Descriptions::lock`].
    pub async fn blocking_lock(
        &self,
        peer: &Peer,
        id: DescriptionId,
        lock: &Lock,
        may: impl Fn(FileId, &Lock) -> Result<(), DescriptionError>,
    ) -> Result<Option<Lock>, DescriptionError> {
        let (file, owner) = self.to_lock(&Request { peer, id, lock, may })?;
        let test = || self.table.borrow().locks.test(file, owner, lock);
        if test().is_some() {
            self.look().await;
        }
        Ok(test())
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, poll_fn};
    use std::pin::{Pin, pin};
    use std::task::Poll;

    use channel::{Layout, ServerChannel, Wiring, loopback_memory, loopback_wiring};
    use contracts::descriptions::copy_words;
    use contracts::files::{Hold, open};
    use contracts::testing::two_programs;

    use super::*;

    /// A file, by its number.
    struct File(FileId);

    impl Target for File {
        fn file(&self) -> Option<FileId> {
            Some(self.0)
        }
    }

    fn anything(_: FileId, _: &Lock) -> Result<(), DescriptionError> {
        Ok(())
    }

    /// Whether something does not wait: to take in what was sent before takes it some turns.
    async fn is_ready(mut waits: Pin<&mut impl Future>) -> bool {
        const TURNS: usize = 8;
        for _ in 0..TURNS {
            runtime::yield_now().await;
            if poll_fn(|context| Poll::Ready(waits.as_mut().poll(context).is_ready())).await {
                return true;
            }
        }
        false
    }

    /// Two programs that have two files open each; the first file is locked by the first program,
    /// the second by the second.
    struct Fixture {
        all: Descriptions<File>,
        peers: [Peer; 2],
        ids: [[DescriptionId; 2]; 2],
    }

    impl Fixture {
        async fn new() -> Fixture {
            let all = Descriptions::new(8, 0);
            let (_, channels) = two_programs(|channel| all.clients.add(channel));
            let peers = channels.map(|channel| channel.peer().clone());
            let add = |peer, file| all.table.borrow_mut().add(peer, File(file), open::READ | open::WRITE);
            let ids = peers.each_ref().map(|peer| [1, 2].map(|file| add(peer, file)));
            let fixture = Fixture { all, peers, ids };
            for own in [0, 1] {
                assert_eq!(fixture.lock(own, own, false).await, Ok(()));
            }
            fixture
        }

        /// A program locks all of a file for itself.
        async fn lock(&self, program: usize, file: usize, wait: bool) -> Result<(), DescriptionError> {
            let (kind, hold) = (LockKind::Client, Some(Hold::Exclusive));
            let lock = Lock { kind, hold, from: 0, to: u64::MAX, process: 1 };
            self.all.lock(&self.peers[program], self.ids[program][file], &lock, wait, anything).await
        }
    }

    #[test]
    fn who_waits_for_a_lock_has_it_once_it_is_free() {
        runtime::testing::run(async {
            let fixture = Fixture::new().await;
            assert_eq!(fixture.lock(1, 0, false).await, Err(DescriptionError::WouldBlock));
            let mut waits = pin!(fixture.lock(1, 0, true));
            assert!(!is_ready(waits.as_mut()).await, "the other one has it");
            fixture.all.release(fixture.peers[0].id(), fixture.ids[0][0], false);
            assert_eq!(waits.await, Ok(()));
        });
    }

    #[test]
    fn who_gave_up_waiting_closes_no_circle() {
        runtime::testing::run(async {
            let fixture = Fixture::new().await;
            {
                let mut waits = pin!(fixture.lock(0, 1, true));
                assert!(!is_ready(waits.as_mut()).await);
                assert_eq!(fixture.lock(1, 0, true).await, Err(DescriptionError::Deadlock));
            }
            let mut waits = pin!(fixture.lock(1, 0, true));
            assert!(!is_ready(waits.as_mut()).await, "it waits, as nobody waits for it");
        });
    }

    #[test]
    fn what_is_kept_of_a_file_is_over_when_a_program_maps_it_and_by_no_other_lock() {
        runtime::testing::run(async {
            let all = Descriptions::new(8, 0);
            let [memory] = loopback_memory(Layout { bulk_bytes: 256, ..Layout::default() });
            let peer = ServerChannel::new(Wiring { peer_set: 4, ..loopback_wiring(memory, false) }).peer().clone();
            let id = all.table.borrow_mut().add(&peer, File(1), open::READ | open::WRITE);
            let (held, not_held) = (Some(Hold::Exclusive), None);
            let cases = [(LockKind::Client, held), (LockKind::Mapped(3), not_held), (LockKind::Mapped(3), held)];
            let mut over = Vec::new();
            for (kind, hold) in cases {
                assert_eq!(all.table.borrow_mut().keep(&peer, id, (Some(0), 100), 0), Ok(0));
                let lock = Lock { kind, hold, from: 0, to: 9, process: 1 };
                assert_eq!(all.lock(&peer, id, &lock, false, anything).await, Ok(()));
                over.push(peer.bulk().load_u32(copy_words::OVER));
            }
            assert_eq!(over, [Ok(0), Ok(0), Ok(1)]);
        });
    }
}
