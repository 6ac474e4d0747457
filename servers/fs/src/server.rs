//! State of the file server: the store and the open descriptions.
//!
//! Invariants: a description lives while a client holds it; each description of an inode counts
//! once in the store's `opens`; a client has locks of its own only on files of which it holds a
//! description.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::Range;

use channel::{Clients, Holders, IN_FLIGHT, Peer};
use contracts::descriptions::{DescriptionError, DescriptionId, Entry, may_have};
use contracts::files::{Hold, Lock, LockKind, seal};
use contracts::in_flight::{Exporter, Tickets, settle_unknown};
use contracts::memory::MemoryClient;
use contracts::process::ProcessClient;
use fs_core::locks::{Locks, Owner};
use fs_core::store::{InodeId, Store};
use runtime::Watch;

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

/// An open description.
#[derive(Debug)]
pub struct Open {
    pub target: Target,
    pub offset: u64,
    pub reads: bool,
    pub writes: bool,
    pub appends: bool,
    /// Directory and name by which it was opened, of a file.
    pub name: Option<(InodeId, String)>,
    holders: Holders,
}

impl Open {
    /// May its holder take that lock? As fcntl(2) has it; flock(2) takes any description.
    pub fn permits(&self, lock: &Lock) -> bool {
        match lock.hold {
            _ if lock.kind == LockKind::Whole => true,
            Some(Hold::Shared) => self.reads,
            Some(Hold::Exclusive) => self.writes,
            None => true,
        }
    }
}

/// All state.
pub struct Server {
    pub store: RefCell<Store>,
    pub processes: Option<ProcessClient>,
    pub memory: Option<MemoryClient>,
    pub cores: u32,
    pub open: RefCell<BTreeMap<DescriptionId, Open>>,
    pub locks: RefCell<Locks>,
    /// What clients pass to each other.
    pub tickets: RefCell<Tickets>,
    /// Tickets of senders that have ended, and word of that.
    unsure: RefCell<Vec<u64>>,
    exporter_ended: Watch,
    /// Some lock went or shrank.
    pub unlocked: Watch,
    last_id: Cell<DescriptionId>,
    /// The programs that may be given descriptions.
    pub clients: Clients,
}

impl Server {
    pub fn new(store: Store, processes: Option<ProcessClient>, memory: Option<MemoryClient>, cores: u32) -> Server {
        Server {
            store: RefCell::new(store),
            processes,
            memory,
            cores,
            open: RefCell::default(),
            locks: RefCell::default(),
            tickets: RefCell::default(),
            unsure: RefCell::default(),
            exporter_ended: Watch::default(),
            unlocked: Watch::default(),
            last_id: Cell::new(0),
            clients: Clients::default(),
        }
    }

    /// Is there room for one more description of a client's? `TooMany`.
    pub fn room(&self, peer: &Peer) -> Result<(), DescriptionError> {
        let open = self.open.borrow();
        let own = || open.values().filter(|one| one.holders.contains(peer.id())).count();
        if may_have(OPEN_MAX, open.len(), own) { Ok(()) } else { Err(DescriptionError::TooMany) }
    }

    /// Opens `target` for a client. `flags` are `files::open`'s. `TooMany`.
    pub fn add(&self, peer: &Peer, target: Target, flags: u32) -> Result<DescriptionId, DescriptionError> {
        self.room(peer)?;
        if let Target::Inode(inode) | Target::Device(inode, _) = target {
            self.store.borrow_mut().open(inode)?;
        }
        Ok(self.add_opened(peer, target, flags))
    }

    /// The same for what the store holds open already, where there is room.
    pub fn add_opened(&self, peer: &Peer, target: Target, flags: u32) -> DescriptionId {
        use contracts::files::open::{APPEND, READ, WRITE};
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        let open = Open {
            target,
            offset: 0,
            reads: flags & READ != 0,
            writes: flags & WRITE != 0,
            appends: flags & APPEND != 0,
            name: None,
            holders: Holders::of(peer.id()),
        };
        self.open.borrow_mut().insert(id, open);
        id
    }

    /// Works on a description the client holds. `BadId`.
    pub fn with<T>(
        &self,
        peer: &Peer,
        id: DescriptionId,
        work: impl FnOnce(&mut Open) -> Result<T, DescriptionError>,
    ) -> Result<T, DescriptionError> {
        let mut open = self.open.borrow_mut();
        work(open.get_mut(&id).filter(|open| open.holders.contains(peer.id())).ok_or(DescriptionError::BadId)?)
    }

    /// May a client change those bytes of a file? `Denied` while they are memory of programs and it
    /// is none of these.
    pub fn may_change(&self, peer: &Peer, inode: InodeId, bytes: Range<u64>) -> Result<(), DescriptionError> {
        let (locks, open) = (self.locks.borrow(), self.open.borrow());
        let is_own = |id| open.get(&id).is_some_and(|mapping| mapping.holders.contains(peer.id()));
        if locks.mapped(inode, bytes).all(is_own) { Ok(()) } else { Err(DescriptionError::Denied) }
    }

    /// Adds seals for a client. `Denied` if it cannot write there, `Busy` for seals against writing
    /// while bytes of the file are memory of programs.
    pub fn seal(&self, peer: &Peer, id: DescriptionId, seals: u32) -> Result<(), DescriptionError> {
        let inode = self.with(peer, id, |open| match open.target {
            Target::Inode(inode) if open.writes => Ok(inode),
            Target::Inode(_) => Err(DescriptionError::Denied),
            _ => Err(DescriptionError::Invalid),
        })?;
        let is_mapped = self.locks.borrow().mapped(inode, 0..u64::MAX).next().is_some();
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

    /// A client gives one reference back, or all at its end.
    pub fn release(&self, client: u64, id: DescriptionId, at_end: bool) -> bool {
        let mut all = self.open.borrow_mut();
        let Some(open) = all.get_mut(&id) else { return false };
        let held = if at_end { open.holders.remove_all(client) } else { open.holders.remove(client) };
        let is_last = open.holders.is_empty();
        if let Target::Inode(inode) = open.target {
            let mut locks = self.locks.borrow_mut();
            let holds_no_more = held && !open.holders.contains(client);
            let mut freed = holds_no_more && locks.release(inode, Owner::Client(client));
            freed |= is_last && locks.release(inode, Owner::Description(id));
            if freed {
                self.unlocked.changed();
            }
        }
        if is_last && let Some(Open { target: Target::Inode(inode) | Target::Device(inode, _), .. }) = all.remove(&id) {
            self.store.borrow_mut().close(inode);
        }
        held
    }

    /// A child gets what the client holds.
    pub fn inherit(&self, client: u64, child: u64) {
        self.open.borrow_mut().values_mut().for_each(|open| open.holders.inherit(client, child));
    }

    /// Releases all that a client held, which ended.
    pub fn release_all_of(&self, gone: &Peer) {
        let of_gone = |(id, open): (&DescriptionId, &Open)| {
            let holders = open.holders.among(gone.ids()).filter(|holder| gone.was(*holder));
            holders.map(|holder| (holder, *id)).collect::<Vec<_>>()
        };
        let held: Vec<_> = self.open.borrow().iter().flat_map(of_gone).collect();
        for (client, id) in held {
            self.release(client, id, true);
        }
        // What it exported and did not send has to be found.
        let tickets = self.tickets.borrow().of(|exporter| gone.was(exporter));
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
        self.with(peer, id, |open| {
            self.tickets.borrow_mut().add(ticket, id, peer.id())?;
            open.holders.add(IN_FLIGHT);
            Ok(ticket)
        })
    }

    /// Gives a client a reference to what a ticket stands for.
    pub fn claim(&self, peer: &Peer, ticket: u64) -> Result<DescriptionId, DescriptionError> {
        let id = self.tickets.borrow().get(ticket)?;
        self.open.borrow_mut().get_mut(&id).ok_or(DescriptionError::BadId)?.holders.add(peer.id());
        Ok(id)
    }
}

impl Exporter for Server {
    fn settle(&self, ticket: u64) {
        let exported = self.tickets.borrow_mut().settle(ticket);
        if let Some(id) = exported {
            self.release(IN_FLIGHT, id, false);
        }
    }

    fn tickets(&self) -> Vec<u64> {
        self.tickets.borrow().of(|_| true)
    }
}
