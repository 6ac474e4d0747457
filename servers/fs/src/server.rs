//! State of the file server: the store and the open descriptions.
//!
//! Invariant: each description of an inode counts once in the store's `opens`.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ops::Range;

use channel::Peer;
use contracts::descriptions::{DescriptionError, DescriptionId, Entry};
use contracts::files::{Hold, Lock, LockKind, seal};
use contracts::memory::MemoryClient;
use contracts::process::ProcessClient;
use fs_core::store::{InodeId, Store};
use open_files::Descriptions;
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
    pub open: Descriptions<Target>,
    /// The volume on the disk, if the machine has one.
    pub mount: Option<Mount>,
}

impl Server {
    pub fn new(
        store: Store,
        processes: Option<ProcessClient>,
        memory: Option<MemoryClient>,
        cores: u32,
        mount: Option<Mount>,
    ) -> Server {
        Server { store: RefCell::new(store), processes, memory, cores, open: Descriptions::new(OPEN_MAX, 0), mount }
    }

    /// Is there room for one more description of a client's? `TooMany`.
    pub fn room(&self, peer: &Peer) -> Result<(), DescriptionError> {
        self.open.table.borrow().room(peer)
    }

    /// Opens `target` for a client. `flags` are `files::open`'s. `TooMany`.
    pub fn add(&self, peer: &Peer, target: Target, flags: u32) -> Result<DescriptionId, DescriptionError> {
        self.room(peer)?;
        if let Target::Inode(inode) | Target::Device(inode, _) = target {
            self.store.borrow_mut().open(inode)?;
        }
        Ok(self.open.table.borrow_mut().add(peer, target, flags))
    }

    /// Works on a description the client holds. `BadId`.
    pub fn with<T>(
        &self,
        peer: &Peer,
        id: DescriptionId,
        work: impl FnOnce(&mut Open) -> Result<T, DescriptionError>,
    ) -> Result<T, DescriptionError> {
        self.open.with(peer, id, work)
    }

    /// May a client change those bytes of a file? `Denied` while they are memory of programs and it
    /// is none of these.
    pub fn may_change(&self, peer: &Peer, inode: InodeId, bytes: Range<u64>) -> Result<(), DescriptionError> {
        self.open.table.borrow().may_change(peer, inode, bytes)
    }

    /// Adds seals for a client. `Denied` if it cannot write there, `Busy` for seals against writing
    /// while bytes of the file are memory of programs.
    pub fn seal(&self, peer: &Peer, id: DescriptionId, seals: u32) -> Result<(), DescriptionError> {
        let inode = self.with(peer, id, |open| match open.target {
            Target::Inode(inode) if open.writes => Ok(inode),
            Target::Inode(_) => Err(DescriptionError::Denied),
            _ => Err(DescriptionError::Invalid),
        })?;
        let is_mapped = self.open.table.borrow().locks.mapped(inode, 0..u64::MAX).next().is_some();
        let mut store = self.store.borrow_mut();
        if is_mapped && seals & AGAINST_WRITES & !store.seals(inode)? != 0 {
            return Err(DescriptionError::Busy);
        }
        store.add_seals(inode, seals)
    }

    /// May a client have bytes of a file as memory that it writes to? `Denied` if it is sealed.
    pub fn may_map(&self, inode: InodeId, lock: &Lock) -> Result<(), DescriptionError> {
        let is_claim = matches!(lock.kind, LockKind::Mapped(_)) && lock.hold == Some(Hold::Exclusive);
        let seals = self.store.borrow().seals(inode).unwrap_or(0);
        if is_claim && seals & AGAINST_WRITES != 0 { Err(DescriptionError::Denied) } else { Ok(()) }
    }

    /// Sets the size of a file for a client. `Denied` as for [`Server::may_change`].
    pub fn set_size(&self, peer: &Peer, inode: InodeId, size: u64) -> Result<(), DescriptionError> {
        let before = self.store.borrow().status(inode)?.size;
        self.may_change(peer, inode, before.min(size)..before.max(size))?;
        self.store.borrow_mut().resize(inode, size, runtime::realtime_ns())?;
        self.open.table.borrow_mut().changed(inode);
        Ok(())
    }
}

impl open_files::Server for Server {
    type Target = Target;

    fn descriptions(&self) -> &Descriptions<Target> {
        &self.open
    }

    fn closed(&self, target: Target) {
        if let Target::Inode(inode) | Target::Device(inode, _) = target {
            self.store.borrow_mut().close(inode);
        }
    }
}
