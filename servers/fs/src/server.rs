//! State of the file server: the store and the open descriptions.
//!
//! Invariant: each description of an inode counts once in the store's `opens`.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Range;

use channel::{Clients, IN_FLIGHT, Peer};
use contracts::descriptions::{DescriptionError, DescriptionId, Entry};
use contracts::files::{Hold, Lock, LockKind, seal};
use contracts::in_flight::{Exporter, settle_unknown};
use contracts::memory::MemoryClient;
use contracts::process::ProcessClient;
use fs_core::store::{InodeId, Store};
use open_files::Table;
use runtime::Watch;
use system::Mount;

/// Descriptions at once: 200 processes of 256 are more; the store's users share this.
const OPEN_MAX: usize = 8192;
const AGAINST_WRITES: u32 = seal::WRITE | seal::FUTURE_WRITE;

/// What a description reads and writes.
#[derive(Clone, Debug)]
pub enum Target {
    /// A file or directory.
    Inode(InodeId),
    /// /dev/null and friends, by minor number.
    Device(InodeId, u32),
    /// A text of /proc: its path there, and what it was when opened.
    Text(String, Vec<u8>, (u32, u32)),
    /// A directory of /proc: its path there, and what is in it.
    Listing(String, Vec<Entry>, (u32, u32)),
}

impl open_files::Target for Target {
    fn file(&self) -> Option<InodeId> {
        if let Target::Inode(inode) = self { Some(*inode) } else { None }
    }
}

/// An open description.
pub type Open = open_files::Open<Target>;

/// All state.
pub struct Server {
    pub store: RefCell<Store>,
    pub processes: Option<ProcessClient>,
    pub memory: Option<MemoryClient>,
    pub cores: u32,
    /// Descriptions, their locks, and what clients pass to each other.
    pub open: RefCell<Table<Target>>,
    /// The volume on the disk, if the machine has one.
    pub mount: Option<Mount>,
    /// Tickets of senders that have ended, and word of that.
    unsure: RefCell<Vec<u64>>,
    exporter_ended: Watch,
    /// Some lock went or shrank.
    pub unlocked: Watch,
    /// The programs that may be given descriptions.
    pub clients: Clients,
}

impl Server {
    pub fn new(
        store: Store,
        processes: Option<ProcessClient>,
        memory: Option<MemoryClient>,
        cores: u32,
        mount: Option<Mount>,
    ) -> Server {
        Server {
            store: RefCell::new(store),
            processes,
            memory,
            cores,
            open: RefCell::new(Table::new(OPEN_MAX, 0)),
            mount,
            unsure: RefCell::default(),
            exporter_ended: Watch::default(),
            unlocked: Watch::default(),
            clients: Clients::default(),
        }
    }

    /// Is there room for one more description of a client's? `TooMany`.
    pub fn room(&self, peer: &Peer) -> Result<(), DescriptionError> {
        self.open.borrow().room(peer)
    }

    /// Opens `target` for a client. `flags` are `files::open`'s. `TooMany`.
    pub fn add(&self, peer: &Peer, target: Target, flags: u32) -> Result<DescriptionId, DescriptionError> {
        self.room(peer)?;
        if let Target::Inode(inode) | Target::Device(inode, _) = target {
            self.store.borrow_mut().open(inode)?;
        }
        Ok(self.open.borrow_mut().add(peer, target, flags))
    }

    /// Works on a description the client holds. `BadId`.
    pub fn with<T>(
        &self,
        peer: &Peer,
        id: DescriptionId,
        work: impl FnOnce(&mut Open) -> Result<T, DescriptionError>,
    ) -> Result<T, DescriptionError> {
        work(self.open.borrow_mut().get(peer, id)?)
    }

    /// May a client change those bytes of a file? `Denied` while they are memory of programs and it
    /// is none of these.
    pub fn may_change(&self, peer: &Peer, inode: InodeId, bytes: Range<u64>) -> Result<(), DescriptionError> {
        self.open.borrow().may_change(peer, inode, bytes)
    }

    /// Adds seals for a client. `Denied` if it cannot write there, `Busy` for seals against writing
    /// while bytes of the file are memory of programs.
    pub fn seal(&self, peer: &Peer, id: DescriptionId, seals: u32) -> Result<(), DescriptionError> {
        let inode = self.with(peer, id, |open| match open.target {
            Target::Inode(inode) if open.writes => Ok(inode),
            Target::Inode(_) => Err(DescriptionError::Denied),
            _ => Err(DescriptionError::Invalid),
        })?;
        let is_mapped = self.open.borrow().locks.mapped(inode, 0..u64::MAX).next().is_some();
        let mut store = self.store.borrow_mut();
        if is_mapped && seals & AGAINST_WRITES & !store.seals(inode)? != 0 {
            return Err(DescriptionError::Busy);
        }
        store.add_seals(inode, seals)
    }

    /// May a client have bytes of a file as memory that it writes to? `Denied` if it is sealed.
    pub fn may_map(&self, inode: InodeId, lock: &Lock) -> Result<(), DescriptionError> {
        let is_claim = lock.kind == LockKind::Mapped && lock.hold == Some(Hold::Exclusive);
        let seals = self.store.borrow().seals(inode).unwrap_or(0);
        if is_claim && seals & AGAINST_WRITES != 0 { Err(DescriptionError::Denied) } else { Ok(()) }
    }

    /// Sets the size of a file for a client. `Denied` as for [`Server::may_change`].
    pub fn set_size(&self, peer: &Peer, inode: InodeId, size: u64) -> Result<(), DescriptionError> {
        let before = self.store.borrow().status(inode)?.size;
        self.may_change(peer, inode, before.min(size)..before.max(size))?;
        self.store.borrow_mut().resize(inode, size, runtime::realtime_ns())
    }

    /// A client gives one reference back, or all at its end. Whether it had one.
    pub fn release(&self, client: u64, id: DescriptionId, at_end: bool) -> bool {
        let released = self.open.borrow_mut().release(client, id, at_end);
        if released.freed_locks {
            self.unlocked.changed();
        }
        if let Some(Target::Inode(inode) | Target::Device(inode, _)) = released.last {
            self.store.borrow_mut().close(inode);
        }
        released.was_held
    }

    /// Releases all that a client held, which ended.
    pub fn release_all_of(&self, gone: &Peer) {
        let held = self.open.borrow().held_by(gone);
        for (client, id) in held {
            self.release(client, id, true);
        }
        // What it exported and did not send has to be found.
        let tickets = self.open.borrow().tickets_of(|exporter| gone.was(exporter));
        if !tickets.is_empty() {
            self.unsure.borrow_mut().extend(tickets);
            self.exporter_ended.changed();
        }
    }

    /// Settles what nobody will claim, for as long as the machine runs.
    pub async fn settle_unsent(&self, processes: &ProcessClient) {
        loop {
            let take = || Some(self.unsure.take()).filter(|unsure| !unsure.is_empty());
            let unsure = self.exporter_ended.until(take).await;
            settle_unknown(self, processes, unsure).await;
        }
    }

    /// Exports what a client holds: a ticket stands for one more reference.
    pub fn export(&self, peer: &Peer, id: DescriptionId) -> Result<u64, DescriptionError> {
        let mut ticket = [0; 8];
        runtime::fill_random(&mut ticket);
        let ticket = u64::from_ne_bytes(ticket);
        self.open.borrow_mut().export(peer, id, ticket).map(|()| ticket)
    }
}

impl Exporter for Server {
    fn settle(&self, ticket: u64) {
        let exported = self.open.borrow_mut().settle(ticket);
        if let Some(id) = exported {
            self.release(IN_FLIGHT, id, false);
        }
    }

    fn tickets(&self) -> Vec<u64> {
        self.open.borrow().tickets_of(|_| true)
    }
}
