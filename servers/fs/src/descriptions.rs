//! The `descriptions` contract: files never wait, so no operation here does.

use alloc::vec;
use alloc::vec::Vec;

use channel::{Bulk, Peer};
use contracts::BulkSpan;
use contracts::descriptions::*;
use fs_core::store::{InodeId, Store};
use open_files::Server as _;

use crate::processes;
use crate::server::{Open, Server, Target};

/// Entries in one answer.
const ENTRIES_MAX: usize = 32;
/// The same of /proc, whose names are short.
const LISTED_MAX: usize = 16;
/// Bytes moved in one request, whatever the client's bulk region holds.
const MOVE_BYTES_MAX: usize = 256 << 10;

/// Minor numbers of memory devices, as Linux has them.
mod minor {
    pub const NULL: u32 = 3;
    pub const FULL: u32 = 7;
    pub const RANDOM: u32 = 8;
    pub const URANDOM: u32 = 9;
}

fn put(bulk: &Bulk, span: BulkSpan, offset: usize, bytes: &[u8]) -> Result<(), DescriptionError> {
    bulk.write(span.offset as usize + offset, bytes).map_err(|_| DescriptionError::Invalid)
}

/// The span must lie in the bulk region before anything is done.
fn check(bulk: &Bulk, span: BulkSpan) -> Result<usize, DescriptionError> {
    let end = u64::from(span.offset) + u64::from(span.length);
    if end > bulk.len() as u64 {
        Err(DescriptionError::Invalid)
    } else {
        Ok((span.length as usize).min(MOVE_BYTES_MAX))
    }
}

fn read_device(minor: u32, bulk: &Bulk, span: BulkSpan, length: usize) -> Result<usize, DescriptionError> {
    if minor == minor::NULL {
        return Ok(0);
    }
    let mut bytes = vec![0; length];
    if minor == minor::RANDOM || minor == minor::URANDOM {
        runtime::fill_random(&mut bytes);
    }
    put(bulk, span, 0, &bytes).map(|()| length)
}

fn read_at(
    store: &Store,
    open: &Open,
    bulk: &Bulk,
    span: BulkSpan,
    length: usize,
    at: u64,
) -> Result<usize, DescriptionError> {
    match &open.target {
        Target::Inode(inode) => {
            let mut result = Ok(());
            let count =
                store.data(*inode)?.read(at, length, |offset, part| result = result.and(put(bulk, span, offset, part)));
            result.map(|()| count)
        }
        Target::Device(_, minor) => read_device(*minor, bulk, span, length),
        Target::Text(_, text, _) => {
            let from = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
            let part = &text[from..text.len().min(from.saturating_add(length))];
            put(bulk, span, 0, part).map(|()| part.len())
        }
        Target::Listing(..) => Err(DescriptionError::IsDirectory),
    }
}

/// The next byte of a file from a place on that is data, or a hole's. `PastEnd`.
fn next_place(store: &Store, file: InodeId, from: i64, is_data_wanted: bool) -> Result<u64, DescriptionError> {
    let data = store.data(file)?;
    let from = u64::try_from(from).map_err(|_| DescriptionError::PastEnd)?;
    let found = if is_data_wanted { data.next_data(from) } else { data.next_hole(from) };
    found.ok_or(DescriptionError::PastEnd)
}

impl Server {
    fn status_of(&self, target: &Target) -> Result<Status, DescriptionError> {
        match target {
            Target::Inode(inode) | Target::Device(inode, _) => self.store.borrow().status(*inode),
            Target::Text(path, _, owner) | Target::Listing(path, _, owner) => {
                Ok(processes::status(path, processes::kind(target), *owner))
            }
        }
    }
}

fn listing(names: &[Entry], from: u64) -> (Vec<Entry>, u64) {
    let start = usize::try_from(from).unwrap_or(usize::MAX).min(names.len());
    let some = &names[start..names.len().min(start + LISTED_MAX)];
    (some.to_vec(), (start + some.len()) as u64)
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
        let bulk = peer.bulk();
        let length = check(&bulk, span)?;
        self.with(peer, id, |open| {
            if !open.reads {
                return Err(DescriptionError::BadId);
            }
            let from = at.unwrap_or_else(|| open.offset());
            let count = read_at(&self.store.borrow(), open, &bulk, span, length, from)?;
            if at.is_none() {
                open.move_to(from + count as u64);
            }
            Ok(count as u32)
        })
    }

    async fn read_and_keep(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        at: Option<u64>,
        words: u32,
    ) -> Result<Copied, DescriptionError> {
        let bulk = peer.bulk();
        let length = check(&bulk, span)?;
        let from = self.open.table.borrow_mut().keep(peer, id, (at, span.length), words)?;
        let count = self.with(peer, id, |open| read_at(&self.store.borrow(), open, &bulk, span, length, from))?;
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
        let bulk = peer.bulk();
        let mut bytes = vec![0; check(&bulk, span)?];
        bulk.read(span.offset as usize, &mut bytes).map_err(|_| DescriptionError::Invalid)?;
        let place = self.with(peer, id, |open| {
            if !open.writes {
                return Err(DescriptionError::BadId);
            }
            let inode = match open.target {
                Target::Inode(inode) => inode,
                Target::Device(_, minor::FULL) => return Err(DescriptionError::NoSpace),
                Target::Device(..) => return Ok(None),
                _ => return Err(DescriptionError::BadId),
            };
            let end = self.store.borrow().data(inode)?.size();
            Ok(Some((inode, if open.appends { end } else { at.unwrap_or_else(|| open.offset()) })))
        })?;
        let Some((inode, from)) = place else { return Ok(bytes.len() as u32) };
        self.may_change(peer, inode, from..from.saturating_add(bytes.len() as u64))?;
        let count = self.store.borrow_mut().write(inode, from, &bytes, runtime::realtime_ns())?;
        self.open.table.borrow_mut().changed(inode);
        if at.is_none() {
            self.with(peer, id, |open| {
                open.move_to(from + count as u64);
                Ok(())
            })?;
        }
        Ok(count as u32)
    }

    async fn seek(&self, peer: &Peer, id: DescriptionId, offset: i64, whence: Whence) -> Result<u64, DescriptionError> {
        self.with(peer, id, |open| {
            let base = match whence {
                Whence::Start => 0,
                Whence::Current => open.offset(),
                Whence::End => match &open.target {
                    Target::Text(_, text, _) => text.len() as u64,
                    target => self.status_of(target)?.size,
                },
                Whence::Data | Whence::Hole => {
                    let Target::Inode(inode) = open.target else { return Err(DescriptionError::Invalid) };
                    let place = next_place(&self.store.borrow(), inode, offset, whence == Whence::Data)?;
                    return open.seek(place, 0);
                }
            };
            open.seek(base, offset)
        })
    }

    async fn status(&self, peer: &Peer, id: DescriptionId) -> Result<Status, DescriptionError> {
        self.with(peer, id, |open| self.status_of(&open.target))
    }

    async fn resize(&self, peer: &Peer, id: DescriptionId, size: u64) -> Result<(), DescriptionError> {
        let inode = self.with(peer, id, |open| match open.target {
            Target::Inode(inode) if open.writes => Ok(inode),
            _ => Err(DescriptionError::Invalid),
        })?;
        self.set_size(peer, inode, size)
    }

    async fn entries(&self, peer: &Peer, id: DescriptionId, from: u64) -> Result<(Vec<Entry>, u64), DescriptionError> {
        self.with(peer, id, |open| match &open.target {
            Target::Inode(inode) => self.store.borrow().entries(*inode, from, ENTRIES_MAX),
            Target::Listing(_, names, _) => Ok(listing(names, from)),
            _ => Err(DescriptionError::NotDirectory),
        })
    }

    async fn control(
        &self,
        peer: &Peer,
        id: DescriptionId,
        request: Control,
    ) -> Result<ControlReply, DescriptionError> {
        self.with(peer, id, |open| match request {
            Control::Available => {
                let size = self.status_of(&open.target)?.size;
                Ok(ControlReply::Number(size.saturating_sub(open.offset())))
            }
            // What lies in memory has none.
            Control::Attribute(_) => Err(DescriptionError::NotSupported),
            _ => Err(DescriptionError::NotTerminal),
        })
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
