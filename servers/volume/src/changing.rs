//! Changing files of the volume: bytes, sizes, and the end of what nobody has any more.

use alloc::rc::Rc;

use channel::Peer;
use contracts::descriptions::{DescriptionError, DescriptionId};
use ext4::{BLOCK_BYTES, Error, Progress, Stop};
use volume_core::cache::Seen;

use crate::server::Server;

/// Why an operation inside a change did nothing: the volume's word, or the server's.
type Answer<T> = Result<Result<T, DescriptionError>, Stop>;

impl Server {
    /// Changes a file, and up to so many blocks of its bytes. One that is being cut off is cut to
    /// the end first.
    async fn change_file<T>(
        &self,
        number: u32,
        blocks: usize,
        operation: impl Fn(&mut ext4::Operation<'_, Seen<'_>>) -> Answer<T>,
    ) -> Result<T, DescriptionError> {
        loop {
            let outcome = self.change_much(blocks, |under_way| match operation(under_way) {
                Err(Stop::Failed(Error::BeingCut)) => Ok(None),
                other => other.map(Some),
            });
            match outcome.await? {
                Some(answer) => return answer,
                None => self.trim(number).await?,
            }
        }
    }

    /// Goes on with cutting off a file, to the end.
    async fn trim(&self, number: u32) -> Result<(), DescriptionError> {
        while self.change(|operation| operation.trim(number)).await? == Progress::More {}
        Ok(())
    }

    /// Writes bytes of a file, at its end if there is no place. Gives where, and how many. `Denied`
    /// while they are memory of programs.
    pub async fn write_file(
        &self,
        peer: &Peer,
        number: u32,
        place: Option<u64>,
        bytes: &[u8],
    ) -> Result<(u64, usize), DescriptionError> {
        if bytes.is_empty() {
            return Ok((place.unwrap_or(0), 0));
        }
        self.change_file(number, bytes.len().div_ceil(BLOCK_BYTES) + 1, |operation| {
            let from = match place {
                Some(place) => place,
                None => operation.inode(number)?.size,
            };
            let end = from.saturating_add(bytes.len() as u64);
            if let Err(error) = self.open.table.borrow().may_change(peer, number.into(), from..end) {
                return Ok(Err(error));
            }
            let count = operation.write(number, from, bytes)?;
            self.open.table.borrow_mut().changed(number.into());
            Ok(Ok((from, count)))
        })
        .await
    }

    /// Sets the size of a file. `Denied` as for writing.
    pub async fn set_size(&self, peer: &Peer, number: u32, size: u64) -> Result<(), DescriptionError> {
        let progress = self.change_file(number, 0, |operation| {
            let before = operation.inode(number)?.size;
            let changed = before.min(size)..before.max(size);
            if let Err(error) = self.open.table.borrow().may_change(peer, number.into(), changed) {
                return Ok(Err(error));
            }
            let progress = operation.truncate(number, size)?;
            self.open.table.borrow_mut().changed(number.into());
            Ok(Ok(progress))
        });
        match progress.await? {
            Progress::Done => Ok(()),
            Progress::More => self.trim(number).await,
        }
    }

    /// A name is gone: what has none now goes when nobody has it open.
    pub fn lost_name(&self, removed: ext4::Removed) {
        if removed.is_last {
            self.unused(removed.inode);
        }
    }

    /// Whether an inode has no name, and nobody has it open.
    fn is_unused(&self, number: u32) -> bool {
        let is_orphan = self.mount(|mount| mount.orphans().contains(&number)).unwrap_or(false);
        is_orphan && !self.opens.borrow().contains_key(&number)
    }

    /// Nobody has an inode open, perhaps: if it has no name either it is reclaimed.
    pub fn unused(&self, number: u32) {
        if self.is_unused(number) {
            self.unused.borrow_mut().push(number);
            self.reclaiming.changed();
        }
    }

    /// Reclaims an inode that has no name, unless somebody has it open.
    async fn reclaim_one(&self, number: u32) -> Result<(), DescriptionError> {
        while self.is_unused(number) {
            if self.change(|operation| operation.reclaim(number)).await? == Progress::Done {
                self.lost.borrow_mut().remove(number);
            }
        }
        Ok(())
    }

    /// Reclaims all such inodes. One that cannot be stays on the volume's list.
    pub async fn reclaim_all(&self) {
        let orphans = self.mount(|mount| mount.orphans().to_vec()).unwrap_or_default();
        for number in orphans {
            let _ = self.reclaim_one(number).await;
        }
    }

    /// The inode that a description is of, for writing. `BadId`.
    pub fn to_write(&self, peer: &Peer, id: DescriptionId) -> Result<u32, DescriptionError> {
        self.with(peer, id, |open| if open.writes { Ok(open.target.inode) } else { Err(DescriptionError::BadId) })
    }
}

/// Reclaims what nobody has any more, for ever; first what an earlier life left.
pub async fn reclaim(server: Rc<Server>) {
    if server.device().await.is_err() {
        return;
    }
    let left = server.mount(|mount| mount.orphans().to_vec()).unwrap_or_default();
    server.unused.borrow_mut().extend(left);
    loop {
        let number = server.reclaiming.until(|| server.unused.borrow_mut().pop()).await;
        match server.reclaim_one(number).await {
            Ok(()) => {}
            // It stays on the volume's list, for the next mount or e2fsck.
            Err(DescriptionError::ReadOnly) => return,
            Err(error) => runtime::log!("{}: inode {number} is not reclaimed: {error:?}", server.path),
        }
    }
}
