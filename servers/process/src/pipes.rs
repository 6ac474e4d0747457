//! Pipes as descriptions.
//!
//! Invariants: an end lives while at least one client holds it; a pipe lives while one of its ends
//! does. Ids are never used again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::ops::RangeInclusive;

use channel::{Clients, Peer};
use contracts::BulkSpan;
use contracts::descriptions::*;
use process_core::pipe::{ATOMIC_BYTES, Pipe, Room};
use runtime::Watch;

/// Pipes at once; with 64 KiB each this bounds the server's memory for them to 16 MiB.
const PIPES_MAX: usize = 256;
/// Bytes moved in one request, whatever the client's bulk region holds.
const MOVE_BYTES_MAX: usize = 64 << 10;
/// Watches of one pipe at once; a client polls each of its descriptors once.
const WATCHES_MAX: usize = 256;

struct Waiting {
    events: DescriptionsEvents,
    client: u64,
    id: DescriptionId,
    reads: bool,
    mask: u32,
}

#[derive(Default)]
struct Shared {
    pipe: RefCell<Pipe>,
    changed: Watch,
    waiting: RefCell<Vec<Waiting>>,
}

struct End {
    shared: Rc<Shared>,
    reads: bool,
    holders: BTreeSet<u64>,
}

/// All pipes.
#[derive(Default)]
pub struct Pipes {
    ends: RefCell<BTreeMap<DescriptionId, End>>,
    last_id: Cell<DescriptionId>,
    /// The programs that may be given ends.
    pub clients: Clients,
}

impl Shared {
    fn ready(&self, reads: bool, mask: u32) -> u32 {
        let pipe = self.pipe.borrow();
        let found = if reads {
            let data = if pipe.readable(1) == Room::Wait { 0 } else { ready::READ };
            data | if pipe.writers_gone { ready::HANGUP } else { 0 }
        } else {
            let room = if pipe.writable(ATOMIC_BYTES) == Room::Wait { 0 } else { ready::WRITE };
            room | if pipe.readers_gone { ready::ERROR } else { 0 }
        };
        found & (mask | ready::ERROR | ready::HANGUP)
    }

    fn notify(&self) {
        self.changed.changed();
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|waiting| {
            let found = self.ready(waiting.reads, waiting.mask);
            if found != 0 {
                // A client with a full event queue is told `Lost` by its own side and polls again.
                let _ = waiting.events.ready(waiting.id, found);
            }
            found == 0
        });
    }
}

impl Pipes {
    /// A new pipe held by `client`: reading and writing end. `None` when there are too many.
    pub fn create(&self, client: u64) -> Option<(DescriptionId, DescriptionId)> {
        let mut ends = self.ends.borrow_mut();
        if ends.len() >= 2 * PIPES_MAX {
            return None;
        }
        let shared = Rc::new(Shared::default());
        let reading = self.last_id.get() + 1;
        self.last_id.set(reading + 1);
        for (id, reads) in [(reading, true), (reading + 1, false)] {
            ends.insert(id, End { shared: shared.clone(), reads, holders: BTreeSet::from([client]) });
        }
        Some((reading, reading + 1))
    }

    fn held(
        &self,
        peer: &Peer,
        id: DescriptionId,
        reads: Option<bool>,
    ) -> Result<(Rc<Shared>, bool), DescriptionError> {
        let ends = self.ends.borrow();
        let end = ends.get(&id).filter(|end| end.holders.contains(&peer.id())).ok_or(DescriptionError::BadId)?;
        if reads.is_some_and(|reads| reads != end.reads) {
            return Err(DescriptionError::BadId);
        }
        Ok((end.shared.clone(), end.reads))
    }

    fn release(&self, client: u64, id: DescriptionId) -> bool {
        let mut ends = self.ends.borrow_mut();
        let Some(end) = ends.get_mut(&id) else { return false };
        let held = end.holders.remove(&client);
        end.shared.waiting.borrow_mut().retain(|waiting| waiting.client != client || waiting.id != id);
        let gone = if end.holders.is_empty() { ends.remove(&id) } else { None };
        drop(ends);
        if let Some(end) = gone {
            let mut pipe = end.shared.pipe.borrow_mut();
            if end.reads {
                pipe.readers_gone = true;
            } else {
                pipe.writers_gone = true;
            }
            drop(pipe);
            end.shared.notify();
        }
        held
    }

    /// A client ended: all it held goes. It is one of `ids`.
    pub fn forget(&self, ids: RangeInclusive<u64>, is_gone: impl Fn(u64) -> bool) {
        let of_gone = |(id, end): (&DescriptionId, &End)| {
            let holders = end.holders.range(ids.clone()).filter(|holder| is_gone(**holder));
            holders.map(|holder| (*holder, *id)).collect::<Vec<_>>()
        };
        let held: Vec<_> = self.ends.borrow().iter().flat_map(of_gone).collect();
        for (client, id) in held {
            self.release(client, id);
        }
    }
}

/// Gives `Ok(None)` from `look` as "not yet"; turned into `WouldBlock` by those who do not wait.
async fn attempt<T>(shared: &Shared, wait: bool, mut look: impl FnMut() -> Option<T>) -> Result<T, DescriptionError> {
    match look() {
        Some(found) => Ok(found),
        None if wait => Ok(shared.changed.until(look).await),
        None => Err(DescriptionError::WouldBlock),
    }
}

impl DescriptionsServer for Pipes {
    async fn read(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        at: Option<u64>,
        wait: bool,
    ) -> Result<u32, DescriptionError> {
        let (shared, _) = self.held(peer, id, Some(true))?;
        if at.is_some() {
            return Err(DescriptionError::NotSeekable);
        }
        let wanted = (span.length as usize).min(MOVE_BYTES_MAX);
        let look = || match shared.pipe.borrow().readable(wanted) {
            Room::Bytes(count) => Some(count),
            Room::Over => Some(0),
            Room::Wait => None,
        };
        let count = attempt(&shared, wait, look).await?;
        let mut bytes = vec![0; count];
        let count = shared.pipe.borrow_mut().take(&mut bytes);
        peer.bulk().write(span.offset as usize, &bytes[..count]).map_err(|_| DescriptionError::Invalid)?;
        shared.notify();
        Ok(count as u32)
    }

    async fn write(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        at: Option<u64>,
        wait: bool,
    ) -> Result<u32, DescriptionError> {
        let (shared, _) = self.held(peer, id, Some(false))?;
        if at.is_some() {
            return Err(DescriptionError::NotSeekable);
        }
        let offered = (span.length as usize).min(MOVE_BYTES_MAX);
        let look = || match shared.pipe.borrow().writable(offered) {
            Room::Bytes(count) => Some(Ok(count)),
            Room::Over => Some(Err(DescriptionError::BrokenPipe)),
            Room::Wait => None,
        };
        let count = attempt(&shared, wait, look).await??;
        let mut bytes = vec![0; count];
        peer.bulk().read(span.offset as usize, &mut bytes).map_err(|_| DescriptionError::Invalid)?;
        let count = shared.pipe.borrow_mut().put(&bytes);
        shared.notify();
        Ok(count as u32)
    }

    async fn read_once(
        &self,
        _: &Peer,
        _: DescriptionId,
        _: BulkSpan,
        _: u64,
        _: bool,
    ) -> Result<u32, DescriptionError> {
        Err(DescriptionError::NotSupported)
    }

    async fn write_once(
        &self,
        _: &Peer,
        _: DescriptionId,
        _: BulkSpan,
        _: u64,
        _: bool,
    ) -> Result<u32, DescriptionError> {
        Err(DescriptionError::NotSupported)
    }

    async fn seek(
        &self,
        peer: &Peer,
        id: DescriptionId,
        _offset: i64,
        _whence: Whence,
    ) -> Result<u64, DescriptionError> {
        self.held(peer, id, None)?;
        Err(DescriptionError::NotSeekable)
    }

    async fn status(&self, peer: &Peer, id: DescriptionId) -> Result<Status, DescriptionError> {
        self.held(peer, id, None)?;
        Ok(Status {
            kind: Kind::Pipe,
            permissions: 0o600,
            size: 0,
            inode: id,
            device: 2,
            links: 1,
            user: 0,
            group: 0,
            special: 0,
            modified_ns: 0,
            accessed_ns: 0,
        })
    }

    async fn resize(&self, peer: &Peer, id: DescriptionId, _size: u64) -> Result<(), DescriptionError> {
        self.held(peer, id, None)?;
        Err(DescriptionError::Invalid)
    }

    async fn entries(&self, peer: &Peer, id: DescriptionId, _from: u64) -> Result<(Vec<Entry>, u64), DescriptionError> {
        self.held(peer, id, None)?;
        Err(DescriptionError::NotDirectory)
    }

    async fn control(
        &self,
        peer: &Peer,
        id: DescriptionId,
        request: Control,
    ) -> Result<ControlReply, DescriptionError> {
        let (shared, reads) = self.held(peer, id, None)?;
        match request {
            Control::Available if reads => Ok(ControlReply::Number(shared.pipe.borrow().held() as u64)),
            _ => Err(DescriptionError::NotTerminal),
        }
    }

    async fn poll(&self, peer: &Peer, id: DescriptionId, mask: u32, watch: bool) -> Result<u32, DescriptionError> {
        let (shared, reads) = self.held(peer, id, None)?;
        let found = shared.ready(reads, mask);
        if found == 0 && watch {
            let mut waiting = shared.waiting.borrow_mut();
            waiting.retain(|waiting| waiting.client != peer.id() || waiting.id != id);
            if waiting.len() >= WATCHES_MAX {
                return Err(DescriptionError::TooMany);
            }
            waiting.push(Waiting { events: DescriptionsEvents::new(peer), client: peer.id(), id, reads, mask });
        }
        Ok(found)
    }

    async fn inherit(&self, peer: &Peer, child: u64) -> Result<(), DescriptionError> {
        if !self.clients.is_newborn(child) {
            return Err(DescriptionError::Invalid);
        }
        for end in self.ends.borrow_mut().values_mut().filter(|end| end.holders.contains(&peer.id())) {
            end.holders.insert(child);
        }
        Ok(())
    }

    async fn close(&self, peer: &Peer, id: DescriptionId) -> Result<(), DescriptionError> {
        if self.release(peer.id(), id) { Ok(()) } else { Err(DescriptionError::BadId) }
    }

    fn peer_closed(&self, peer: &Peer) {
        self.forget(peer.ids(), |client| peer.was(client));
    }

    fn peer_restarted(&self, peer: &Peer) {
        self.peer_closed(peer);
    }
}
