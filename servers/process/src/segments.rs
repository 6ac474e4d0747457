//! System V shared memory: what the pure table decides, done with the monitor's memory.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;

use channel::{CallError, Peer, queued};
use contracts::process::ProcessError;
use contracts::shared_memory::*;
use contracts::spawn::{DomainId, MemoryId, SpawnError};
use process_core::shared_memory::{Caller, Part, SharedMemory};
use runtime::Watch;

use crate::server::Server;

const NS_PER_S: u64 = 1_000_000_000;

/// Now, in seconds since 1970.
fn now_s() -> u64 {
    runtime::realtime_ns() / NS_PER_S
}

/// A number that nobody guesses.
fn secret() -> u64 {
    let mut number = [0; 8];
    runtime::fill_random(&mut number);
    u64::from_le_bytes(number)
}

fn refused(error: CallError<SpawnError>) -> SegmentError {
    match error {
        CallError::Server(SpawnError::NoMemory) => SegmentError::NoMemory,
        error => {
            runtime::log!("a shared memory segment has no memory: {error:?}");
            SegmentError::Failed
        }
    }
}

impl Server {
    /// Works on the table as a caller.
    fn as_caller<T>(
        &self,
        peer: &Peer,
        work: impl FnOnce(&mut SharedMemory, Caller) -> Result<T, SegmentError>,
    ) -> Result<T, SegmentError> {
        let process = self.caller(peer).map_err(|_: ProcessError| SegmentError::Failed)?;
        let table = self.table.borrow();
        let identity = &table.get(process).ok_or(SegmentError::Failed)?.identity;
        work(&mut self.shared_memory.borrow_mut(), Caller { process, identity, now_s: now_s() })
    }

    /// The segment of a key.
    pub fn find_segment(&self, peer: &Peer, wish: SegmentWish) -> Result<SegmentId, SegmentError> {
        self.as_caller(peer, |memory, caller| memory.find(caller, wish, secret()))
    }

    /// Memory without a key, which the caller has once.
    pub fn lend_memory(&self, peer: &Peer, pages: u64) -> Result<Attached, SegmentError> {
        self.as_caller(peer, |memory, caller| memory.add_nameless(caller.process, pages, secret()))
    }

    /// The caller has such memory once more.
    pub fn join_memory(&self, peer: &Peer, number: u64) -> Result<Attached, SegmentError> {
        self.as_caller(peer, |memory, caller| memory.join(caller.process, number))
    }

    /// The caller has a segment once more.
    pub fn attach_segment(&self, peer: &Peer, id: SegmentId, is_writer: bool) -> Result<Attached, SegmentError> {
        self.as_caller(peer, |memory, caller| memory.attach(caller, id, is_writer))
    }

    /// How a segment stands.
    pub fn segment_state(&self, peer: &Peer, name: SegmentName) -> Result<SegmentState, SegmentError> {
        self.as_caller(peer, |memory, caller| memory.state(caller, name))
    }

    /// Changes a segment.
    pub fn change_segment(
        self: &Rc<Self>,
        peer: &Peer,
        id: SegmentId,
        change: SegmentChange,
    ) -> Result<(), SegmentError> {
        let unused = self.as_caller(peer, |memory, caller| memory.change(caller, id, change))?;
        self.release(unused);
        Ok(())
    }

    /// The caller has that segment once less.
    pub fn detach_segment(self: &Rc<Self>, peer: &Peer, number: u64) {
        if let Ok(process) = self.caller(peer) {
            let unused = self.shared_memory.borrow_mut().detach(process, number, now_s());
            self.release(unused);
        }
    }

    /// A process ended, or was never started: it has no segment any more.
    pub fn leaves_segments(self: &Rc<Self>, process: u32) {
        let unused = self.shared_memory.borrow_mut().ended(process, now_s());
        self.release(unused);
    }

    /// Gives the caller a part of a segment that it has, made if it is not there yet.
    pub async fn segment_part(self: &Rc<Self>, peer: &Peer, number: u64, part: u32) -> Result<u64, SegmentError> {
        let process = self.caller(peer).map_err(|_| SegmentError::Failed)?;
        let domain = self.table.borrow().get(process).map(|process| process.domain).ok_or(SegmentError::Failed)?;
        let look = || self.shared_memory.borrow_mut().part(process, number, part);
        if let Part::Missing(pages, spare_pages) = look()? {
            // Whatever becomes of the caller: what is made is entered or released.
            let told = Rc::new((Cell::new(None), Watch::default()));
            let (server, making) = (self.clone(), told.clone());
            runtime::spawn(async move {
                making.0.set(Some(server.make_part(domain, (number, part), (pages, spare_pages)).await));
                making.1.changed();
            });
            told.1.until(|| told.0.take()).await?;
        }
        let Part::Made(memory, is_writer) = look()? else { return Err(SegmentError::NoMemory) };
        queued(|| self.spawn.lend(memory, domain, is_writer)).await.map_err(refused)
    }

    async fn make_part(
        self: Rc<Self>,
        domain: DomainId,
        (number, part): (u64, u32),
        (pages, spare_pages): (u64, u64),
    ) -> Result<(), SegmentError> {
        match queued(|| self.spawn.common(domain, pages, spare_pages)).await {
            Ok(memory) => {
                let unused = self.shared_memory.borrow_mut().made(number, part, memory);
                self.release(unused.into_iter().collect());
                Ok(())
            }
            Err(error) => {
                let unused = self.shared_memory.borrow_mut().not_made(number);
                self.release(unused);
                Err(refused(error))
            }
        }
    }

    /// Drops memory that no segment has any more.
    fn release(self: &Rc<Self>, unused: Vec<MemoryId>) {
        if unused.is_empty() {
            return;
        }
        let server = self.clone();
        runtime::spawn(async move {
            for memory in unused {
                if let Err(error) = queued(|| server.spawn.release(memory)).await {
                    runtime::log!("memory {memory:#x} stays: {error:?}");
                }
            }
        });
    }
}
