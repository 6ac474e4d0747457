//! The `descriptions` contract of files and directories of the volume.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};

use channel::Peer;
use contracts::BulkSpan;
use contracts::descriptions::*;
use ext4::{BLOCK_BYTES, Blocks, Inode, Kind as Ext4Kind, Place, Stop, Volume};
use open_files::Server as _;
use runtime::Bulk;
use system::file_name;
use volume_core::walk::Halt;
use volume_core::words;

use crate::server::{Now, Pins, Server};

/// What a message of the contract carries.
const MESSAGE_BYTES: usize = 888;
/// Bytes of one answer with entries.
const ENTRIES_BYTES_MAX: usize = 700;
/// Encoded size of an entry besides its name, at most.
const ENTRY_BYTES: usize = 14;
// An answer carries any entry, or nobody could list what is behind it.
const _: () = assert!(file_name::GROWTH_MAX * ext4::NAME_MAX + ENTRY_BYTES <= MESSAGE_BYTES);

/// Blocks that a reader has asked for and not come to are at most this part of the cache.
const AHEAD_PART: u64 = 8;

/// The span must lie in the bulk region before anything is done.
pub fn check(bulk: &Bulk, span: BulkSpan) -> Result<Bulk, DescriptionError> {
    bulk.window(span).map_err(|_| DescriptionError::Invalid)
}

/// Those of the blocks of the disk, which these blocks of a file are, that are not there.
fn missing(volume: &Volume, blocks: &Now<'_>, inode: &Inode, wanted: Range<u64>) -> Result<Vec<u64>, Stop> {
    let end = inode.size.div_ceil(BLOCK_BYTES as u64).min(wanted.end);
    let mut found = Vec::new();
    let mut logical = wanted.start;
    while logical < end {
        // A file's blocks have numbers of 32 bits: its size was checked.
        let stretch = volume.find(blocks, inode, logical as u32)?;
        let count = stretch.blocks.min(end - logical);
        if let Place::Written(first) = stretch.place {
            found.extend((first..first + count).filter(|block| blocks.block(*block).is_none()));
        }
        logical += count;
    }
    Ok(found)
}

/// Finds the next byte of a file that is data, or a hole's, from a place on; `None` if there is
/// none. Goes on where it says if it has looked at much.
fn next_place(
    volume: &Volume,
    blocks: &Now<'_>,
    number: u32,
    (mut at, is_data_wanted): (u64, bool),
) -> Result<ControlFlow<Option<u64>, u64>, Stop> {
    const STRETCHES_MAX: usize = 64;
    const BLOCK: u64 = BLOCK_BYTES as u64;
    let inode = volume.inode(blocks, number)?;
    for _ in 0..STRETCHES_MAX {
        if at >= inode.size {
            return Ok(ControlFlow::Break((!is_data_wanted).then_some(inode.size)));
        }
        // A file's blocks have numbers of 32 bits: its size was checked.
        let stretch = volume.find(blocks, &inode, (at / BLOCK) as u32)?;
        if matches!(stretch.place, Place::Written(_)) == is_data_wanted {
            return Ok(ControlFlow::Break(Some(at)));
        }
        at = (at / BLOCK + stretch.blocks) * BLOCK;
    }
    Ok(ControlFlow::Continue(at))
}

/// Copies bytes of a file into the window; gives how many.
fn copy_out(
    volume: &Volume,
    blocks: &Now<'_>,
    (inode, at): (&Inode, u64),
    window: &Bulk,
) -> Result<Result<usize, DescriptionError>, Stop> {
    let mut done = 0;
    while done < window.len() {
        let bytes = volume.bytes(blocks, inode, at + done as u64, window.len() - done)?;
        if bytes.is_empty() {
            break;
        }
        if window.write(done, bytes).is_err() {
            return Ok(Err(DescriptionError::Invalid));
        }
        done += bytes.len();
    }
    Ok(Ok(done))
}

impl Server {
    /// Reads bytes of a file: all blocks that are missing are asked for together, and with them
    /// those that will be wanted soon.
    async fn read_file(
        &self,
        peer: &Peer,
        id: DescriptionId,
        (number, at): (u32, u64),
        window: &Bulk,
    ) -> Result<usize, DescriptionError> {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let device = self.device().await?;
        let wanted = at / BLOCK..at.saturating_add(window.len() as u64).div_ceil(BLOCK);
        let (missed, end, copied) = self
            .ask(|volume, blocks| {
                let inode = volume.inode(blocks, number)?;
                // Most often all is there, and is looked up once.
                let (missed, copied) = match copy_out(volume, blocks, (&inode, at), window) {
                    Err(Stop::Need(_)) => (missing(volume, blocks, &inode, wanted.clone())?, None),
                    copied => (Vec::new(), Some(copied?)),
                };
                Ok((missed, inode.size.div_ceil(BLOCK), copied))
            })
            .await?;
        let most = device.cache.borrow().limit() as u64 / AHEAD_PART;
        let ahead = self.with(peer, id, |open| Ok(open.target.ahead.read(wanted, end, most)))?;
        let soon = self.missing_soon(number, ahead).await;
        device.begin(missed.iter().copied().chain(soon));
        if let Some(copied) = copied {
            return copied;
        }
        let mut pins = Pins::new(device.clone());
        for block in missed {
            pins.add(block).await.map_err(|_| DescriptionError::Failed)?;
        }
        let copied =
            |volume: &Volume, blocks: &Now<'_>| copy_out(volume, blocks, (&volume.inode(blocks, number)?, at), window);
        self.answer_with(&mut pins, copied).await?
    }

    /// Those blocks of a file that are not there. None if that cannot be told: who comes to them
    /// hears why.
    async fn missing_soon(&self, number: u32, ahead: Range<u64>) -> Vec<u64> {
        if ahead.is_empty() {
            return Vec::new();
        }
        let found = self.ask(|volume, blocks| missing(volume, blocks, &volume.inode(blocks, number)?, ahead.clone()));
        found.await.unwrap_or_default()
    }

    /// Entries of a directory from a place on, as many as an answer carries, and the place behind
    /// them.
    async fn list(&self, number: u32, from: u64) -> Result<(Vec<Entry>, u64), DescriptionError> {
        self.ask(|volume, blocks| {
            let directory = volume.inode(blocks, number)?;
            let (mut entries, mut next, mut bytes) = (Vec::new(), from, 0);
            for found in volume.list(blocks, &directory, from)? {
                let name = file_name::to_text(&found.name);
                bytes += name.len() + ENTRY_BYTES;
                if bytes > ENTRIES_BYTES_MAX && !entries.is_empty() {
                    break;
                }
                let kind = found.kind.map_or(Kind::Anonymous, words::kind);
                entries.push(Entry { name, inode: found.inode.into(), kind });
                next = found.next;
            }
            Ok((entries, next))
        })
        .await
    }

    /// The inode that a description of a client's is of.
    pub async fn opened_inode(&self, peer: &Peer, id: DescriptionId) -> Result<Inode, DescriptionError> {
        self.inode(self.number(peer, id)?).await
    }

    /// The next byte of a file from a place on that is data, or a hole's. `PastEnd`.
    async fn seek_place(&self, number: u32, from: i64, is_data_wanted: bool) -> Result<u64, DescriptionError> {
        let mut at = u64::try_from(from).map_err(|_| DescriptionError::PastEnd)?;
        if at >= self.inode(number).await?.size {
            return Err(DescriptionError::PastEnd);
        }
        loop {
            let looked = self.ask(|volume, blocks| next_place(volume, blocks, number, (at, is_data_wanted)));
            match looked.await? {
                ControlFlow::Break(found) => return found.ok_or(DescriptionError::PastEnd),
                ControlFlow::Continue(next) => at = next,
            }
        }
    }

    /// Asks with blocks that are kept there already.
    async fn answer_with<T>(
        &self,
        pins: &mut Pins,
        question: impl Fn(&Volume, &Now<'_>) -> Result<T, Stop>,
    ) -> Result<T, DescriptionError> {
        let found = self.walk_with(pins, |volume, blocks| question(volume, blocks).map_err(Halt::from)).await;
        found.map_err(crate::server::not_of_paths)
    }
}

impl DescriptionsServer for Server {
    async fn read(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        at: Option<u64>,
        _wait: bool,
    ) -> Result<u32, DescriptionError> {
        let window = check(&peer.bulk(), span)?;
        let (number, from) = self.with(peer, id, |open| match open.target.kind {
            _ if !open.reads => Err(DescriptionError::BadId),
            Ext4Kind::Directory => Err(DescriptionError::IsDirectory),
            _ => Ok((open.target.inode, at.unwrap_or_else(|| open.offset()))),
        })?;
        let count = self.read_file(peer, id, (number, from), &window).await?;
        if at.is_none() {
            self.with(peer, id, |open| {
                open.move_to(from + count as u64);
                Ok(())
            })?;
        }
        Ok(count as u32)
    }

    async fn read_and_keep(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        at: Option<u64>,
        words: u32,
    ) -> Result<Copied, DescriptionError> {
        let window = check(&peer.bulk(), span)?;
        // What changes while this waits for the disk is heard of.
        let from = self.open.table.borrow_mut().keep(peer, id, (at, span.length), words)?;
        let number = self.number(peer, id)?;
        let count = self.read_file(peer, id, (number, from), &window).await?;
        Ok(Copied { from, count: count as u32 })
    }

    async fn write(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        at: Option<u64>,
        _wait: bool,
    ) -> Result<u32, DescriptionError> {
        let window = check(&peer.bulk(), span)?;
        let mut bytes = vec![0; window.len()];
        window.read(0, &mut bytes).map_err(|_| DescriptionError::Invalid)?;
        let number = self.to_write(peer, id)?;
        let place = self.with(peer, id, |open| Ok((!open.appends).then(|| at.unwrap_or_else(|| open.offset()))))?;
        let (from, count) = self.write_file(peer, number, place, &bytes).await?;
        if at.is_none() && count > 0 {
            self.with(peer, id, |open| {
                open.move_to(from + count as u64);
                Ok(())
            })?;
        }
        Ok(count as u32)
    }

    async fn seek(&self, peer: &Peer, id: DescriptionId, offset: i64, whence: Whence) -> Result<u64, DescriptionError> {
        let base = match whence {
            Whence::End => self.opened_inode(peer, id).await?.size,
            Whence::Start | Whence::Current => 0,
            Whence::Data | Whence::Hole => {
                let number = self.with(peer, id, |open| match open.target.kind {
                    Ext4Kind::File => Ok(open.target.inode),
                    _ => Err(DescriptionError::Invalid),
                })?;
                let place = self.seek_place(number, offset, whence == Whence::Data).await?;
                return self.with(peer, id, |open| open.seek(place, 0));
            }
        };
        self.with(peer, id, |open| {
            let base = if whence == Whence::Current { open.offset() } else { base };
            open.seek(base, offset)
        })
    }

    async fn status(&self, peer: &Peer, id: DescriptionId) -> Result<Status, DescriptionError> {
        Ok(words::status(&self.opened_inode(peer, id).await?))
    }

    async fn resize(&self, peer: &Peer, id: DescriptionId, size: u64) -> Result<(), DescriptionError> {
        let number = self.with(peer, id, |open| match open.target.kind {
            Ext4Kind::File if open.writes => Ok(open.target.inode),
            _ => Err(DescriptionError::Invalid),
        })?;
        self.set_size(peer, number, size).await
    }

    async fn entries(&self, peer: &Peer, id: DescriptionId, from: u64) -> Result<(Vec<Entry>, u64), DescriptionError> {
        self.list(self.number(peer, id)?, from).await
    }

    async fn control(
        &self,
        peer: &Peer,
        id: DescriptionId,
        request: Control,
    ) -> Result<ControlReply, DescriptionError> {
        match request {
            Control::Available => {
                let offset = self.with(peer, id, |open| Ok(open.offset()))?;
                let size = self.opened_inode(peer, id).await?.size;
                Ok(ControlReply::Number(size.saturating_sub(offset)))
            }
            Control::Attribute(request) => self.attribute(peer, id, request).await,
            _ => Err(DescriptionError::NotTerminal),
        }
    }

    async fn poll(&self, peer: &Peer, id: DescriptionId, mask: u32, _watch: WatchFor) -> Result<u32, DescriptionError> {
        self.with(peer, id, |_| Ok(mask & (ready::READ | ready::WRITE)))
    }

    async fn inherit(&self, peer: &Peer, child: u64) -> Result<(), DescriptionError> {
        self.open.inherit(peer, child)
    }

    async fn export(&self, peer: &Peer, id: DescriptionId) -> Result<u64, DescriptionError> {
        self.open.export(peer, id)
    }

    async fn claim(&self, peer: &Peer, ticket: u64) -> Result<DescriptionId, DescriptionError> {
        self.open.table.borrow_mut().claim(peer, ticket)
    }

    async fn close(&self, peer: &Peer, id: DescriptionId) -> Result<(), DescriptionError> {
        if self.release(peer.id(), id) { Ok(()) } else { Err(DescriptionError::BadId) }
    }

    fn peer_closed(&self, peer: &Peer) {
        self.release_all_of(peer);
    }

    fn peer_restarted(&self, peer: &Peer) {
        self.release_all_of(peer);
    }
}
