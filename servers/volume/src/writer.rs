//! Writing: one batch at a time, when somebody waits for it or some seconds after a change.

use alloc::rc::Rc;

use channel::Peer;
use contracts::descriptions::{DescriptionError, DescriptionId};
use contracts::storage::{StorageError, StorageServer};
use ext4::{Batch, Flush, Mount};
use volume_core::words;

use crate::device::Device;
use crate::server::{Server, State};

/// So long after a change it is committed, if nobody asks before.
const COMMIT_NS: u64 = 5_000_000_000;

/// Room for blocks that a change under way makes newer than the disk.
pub struct Room<'a> {
    server: &'a Server,
    blocks: usize,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let reserved = &self.server.reserved;
        reserved.set(reserved.get() - self.blocks);
        self.server.room_freed.changed();
    }
}

impl Server {
    /// Waits until so many blocks more may be newer than the disk: some are written first. If that
    /// fails for good, the change that comes now hears it.
    pub async fn room(&self, device: &Device, blocks: usize) -> Room<'_> {
        let most = device.budget().dirty_max();
        let take = || {
            let dirty = self.mount(|mount| if mount.is_lost() { 0 } else { mount.dirty_blocks() });
            let used = dirty.unwrap_or(0) + self.reserved.get();
            // One change alone has room, however much it is.
            (used == 0 || used + blocks <= most).then(|| {
                self.reserved.set(self.reserved.get() + blocks);
                Room { server: self, blocks }
            })
        };
        if let Some(room) = take() {
            return room;
        }
        self.mount(Mount::sync_all);
        self.wake_writer();
        self.room_freed.until(take).await
    }

    /// Tells the device how many blocks are newer than it.
    pub fn hold(&self, device: &Device) {
        if let Some(held) = self.mount(|mount| mount.dirty_blocks() + mount.log_blocks()) {
            device.hold(held);
        }
    }

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
    let Ok(device) = server.device().await else { return };
    let budget = device.budget();
    loop {
        server.changed.until(|| server.is_changed.take().then_some(())).await;
        let next = || {
            let now = words::time(runtime::realtime_ns());
            server.mount(|mount| {
                if mount.dirty_blocks() > budget.dirty_begin() {
                    mount.sync_all();
                }
                if mount.log_blocks() > budget.logged_max() {
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
            server.hold(&device);
            server.lasting.changed();
            server.room_freed.changed();
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
