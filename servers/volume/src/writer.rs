//! Writing: one batch at a time, when somebody waits for it or some seconds after a change.

use alloc::rc::Rc;

use channel::Peer;
use contracts::descriptions::{DescriptionError, DescriptionId};
use contracts::storage::{StorageError, StorageServer};
use ext4::{Batch, Flush, Mount};
use volume_core::words;

use crate::server::{Server, State};

/// So long after a change it is committed, if nobody asks before.
const COMMIT_NS: u64 = 5_000_000_000;
/// With so many blocks of files that are newer than the disk a commit begins, 4 MiB, and with so
/// many who writes waits for one, 8 MiB.
const DIRTY_BEGIN: usize = 1024;
pub const DIRTY_MAX: usize = 2048;
/// With so many that only the log has they are written to their places: 8 MiB.
const LOGGED_MAX: usize = 2048;

impl Server {
    /// Works on the volume, if it is written.
    pub fn mount<T>(&self, work: impl FnOnce(&mut Mount) -> T) -> Option<T> {
        match &mut *self.state.borrow_mut() {
            State::Writable(mount) => Some(work(mount)),
            _ => None,
        }
    }

    /// Has what was changed of a file so far last. `Failed`, once for each description, if some of
    /// it was lost; `ReadOnly` if nothing is written any more.
    pub async fn synchronize(&self, peer: &Peer, id: DescriptionId) -> Result<(), DescriptionError> {
        let inode = self.number(peer, id)?;
        if let Some(number) = self.mount(|mount| mount.sync(inode)).flatten() {
            // What is lost by then is known then.
            let _ = self.until_lasting(number).await;
        }
        self.with(peer, id, |open| match self.lost.borrow_mut().tell(inode, &mut open.target.heard) {
            true => Err(DescriptionError::Failed),
            false => Ok(()),
        })?;
        if self.mount(|mount| mount.is_lost()) == Some(true) { Err(DescriptionError::ReadOnly) } else { Ok(()) }
    }

    /// The same of all files; what was lost of any is told to a description, if there is one.
    pub async fn synchronize_all(&self, asking: Option<(&Peer, DescriptionId)>) -> Result<(), DescriptionError> {
        if let Some(number) = self.mount(Mount::sync_all).flatten() {
            let _ = self.until_lasting(number).await;
        }
        let Some((peer, id)) = asking else { return Ok(()) };
        let mut losses = self.losses.get();
        let is_news = self.with(peer, id, |open| Ok(losses.tell(&mut open.target.heard_of_all)))?;
        self.losses.set(losses);
        if is_news { Err(DescriptionError::Failed) } else { Ok(()) }
    }

    /// Changes of a file could not be written: who has it open is told by fsync.
    fn lose(&self, inode: u32) {
        self.lost.borrow_mut().add(inode, self.opens.borrow().contains_key(&inode));
        let mut losses = self.losses.get();
        losses.add();
        self.losses.set(losses);
    }

    /// The journal cannot be written: what does not last by now never will.
    fn lose_all(&self) {
        runtime::log!("{}: its journal cannot be written: it is only read from now on", self.path);
        self.mount(|mount| mount.uncommitted_inodes()).into_iter().flatten().for_each(|inode| self.lose(inode));
    }

    /// Writes a batch; whether what it is about can be relied upon.
    async fn write(&self, batch: Batch) -> bool {
        let Ok(device) = self.device().await else { return false };
        let lost = device.write_all(batch.writes).await;
        lost.iter().filter(|inode| **inode != 0).for_each(|inode| self.lose(*inode));
        if lost.contains(&0) {
            return false;
        }
        match batch.flush {
            Flush::No => true,
            Flush::Own | Flush::All => device.flush().await.is_ok(),
        }
    }
}

impl StorageServer for Server {
    /// Ends the volume: what nobody has any more is reclaimed, all is written, and nothing is
    /// changed after that.
    async fn close(&self, _: &Peer) -> Result<(), StorageError> {
        // Programs may have ended, or closed files by messages that were not looked at yet.
        self.open.clients.look();
        runtime::take_in_all().await;
        self.reclaim_all().await;
        if self.mount(Mount::close).is_none() {
            return Ok(());
        }
        self.wake_writer();
        let end = |mount: &mut Mount| match (mount.is_closed(), mount.is_lost()) {
            (true, _) => Some(Ok(())),
            (_, true) => Some(Err(StorageError::Io)),
            (false, false) => None,
        };
        self.lasting.until(|| self.mount(end).flatten()).await
    }
}

/// Writes what there is to write, for ever.
pub async fn write_all(server: Rc<Server>) {
    loop {
        server.changed.until(|| server.is_changed.take().then_some(())).await;
        let next = || {
            let now = words::time(runtime::realtime_ns());
            server.mount(|mount| {
                if mount.data_blocks() > DIRTY_BEGIN {
                    mount.sync_all();
                }
                if mount.log_blocks() > LOGGED_MAX {
                    mount.write_places();
                }
                mount.next(now)
            })
        };
        while let Some(batch) = next().flatten() {
            let is_written = server.write(batch).await;
            server.mount(|mount| mount.done(is_written));
            if !is_written {
                server.lose_all();
            }
            server.lasting.changed();
        }
        server.lasting.changed();
    }
}

/// Has what was changed committed some seconds later.
pub async fn commit_in_time(server: Rc<Server>) {
    loop {
        server.dirtied.until(|| server.is_dirty.take().then_some(())).await;
        runtime::sleep(COMMIT_NS).await;
        if server.mount(Mount::sync_all).flatten().is_some() {
            server.wake_writer();
        }
    }
}
