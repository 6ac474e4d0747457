//! The terminal as a description: reads that wait, writes, settings, polls.
//!
//! Invariant: what a read takes and what it answers happen in one step, so a cancelled read loses
//! no byte, and a cancelled write has written all or nothing. Every client may use the one
//! description; there is nothing to open, and nothing to give back but a client's watch.

use alloc::vec;
use alloc::vec::Vec;

use channel::Peer;
use contracts::BulkSpan;
use contracts::descriptions::*;

use crate::service::{Console, TERMINAL, Waiting};

/// Bytes moved in one request, whatever the client's bulk region holds.
const MOVE_BYTES_MAX: usize = 64 << 10;
/// Clients that may watch at once.
const WATCHES_MAX: usize = 256;
/// `/dev/ttyS0` as Linux numbers it: major 4, minor 64.
const DEVICE_NUMBER: u32 = 4 << 8 | 64;
/// The store's number in `Status::device`; `fs` is 1, pipes are 2.
const STORE: u64 = 3;

fn known(id: DescriptionId) -> Result<(), DescriptionError> {
    if id == TERMINAL { Ok(()) } else { Err(DescriptionError::BadId) }
}

fn not_positioned(at: Option<u64>) -> Result<(), DescriptionError> {
    if at.is_none() { Ok(()) } else { Err(DescriptionError::NotSeekable) }
}

impl DescriptionsServer for Console {
    async fn read(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        at: Option<u64>,
        wait: bool,
    ) -> Result<u32, DescriptionError> {
        known(id)?;
        not_positioned(at)?;
        // Checked before anything is taken: bytes must not be lost to a wrong span.
        let window = peer.bulk().window(span).map_err(|_| DescriptionError::Invalid)?;
        let bytes = self.input(window.len().min(MOVE_BYTES_MAX), wait).await?;
        window.write(0, &bytes).map_err(|_| DescriptionError::Invalid)?;
        Ok(bytes.len() as u32)
    }

    async fn write(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        at: Option<u64>,
        wait: bool,
    ) -> Result<u32, DescriptionError> {
        known(id)?;
        not_positioned(at)?;
        let window = peer.bulk().window(span).map_err(|_| DescriptionError::Invalid)?;
        if self.terminal.borrow().is_stopped() && !wait {
            return Err(DescriptionError::WouldBlock);
        }
        self.changed.until(|| (!self.terminal.borrow().is_stopped()).then_some(())).await;
        let mut bytes = vec![0; window.len().min(MOVE_BYTES_MAX)];
        window.read(0, &mut bytes).map_err(|_| DescriptionError::Invalid)?;
        // Without a further await: a cancelled write has written all or nothing.
        self.output(&bytes);
        Ok(bytes.len() as u32)
    }

    async fn seek(
        &self,
        _peer: &Peer,
        id: DescriptionId,
        _offset: i64,
        _whence: Whence,
    ) -> Result<u64, DescriptionError> {
        known(id)?;
        Err(DescriptionError::NotSeekable)
    }

    async fn status(&self, _peer: &Peer, id: DescriptionId) -> Result<Status, DescriptionError> {
        known(id)?;
        Ok(Status {
            kind: Kind::Terminal,
            permissions: 0o620,
            size: 0,
            inode: TERMINAL,
            device: STORE,
            links: 1,
            user: 0,
            group: 0,
            special: DEVICE_NUMBER,
            modified_ns: 0,
            accessed_ns: 0,
        })
    }

    async fn resize(&self, _peer: &Peer, id: DescriptionId, _size: u64) -> Result<(), DescriptionError> {
        known(id)?;
        Err(DescriptionError::Invalid)
    }

    async fn entries(
        &self,
        _peer: &Peer,
        id: DescriptionId,
        _from: u64,
    ) -> Result<(Vec<Entry>, u64), DescriptionError> {
        known(id)?;
        Err(DescriptionError::NotDirectory)
    }

    async fn control(
        &self,
        _peer: &Peer,
        id: DescriptionId,
        request: Control,
    ) -> Result<ControlReply, DescriptionError> {
        known(id)?;
        let state = self.state.get();
        match request {
            Control::GetTerminal => return Ok(ControlReply::Terminal(state.settings.image().to_vec())),
            Control::GetWindow => return Ok(ControlReply::Window { rows: state.rows, columns: state.columns }),
            Control::GetForeground => return Ok(ControlReply::Number(state.foreground.into())),
            Control::Available => return Ok(ControlReply::Number(self.terminal.borrow().available() as u64)),
            Control::SetTerminal { settings, flush_input } => self.set_terminal(&settings, flush_input)?,
            Control::SetWindow { rows, columns } => self.set_window(rows, columns),
            // Group 0 would be the caller's own to `process`, and nobody's here.
            Control::SetForeground { group: 0 } | Control::MakeControlling { session: 0 } => {
                return Err(DescriptionError::Invalid);
            }
            Control::SetForeground { group } => self.change_state(|state| state.foreground = group),
            // The new session's leader begins in the foreground, in the group of its own id.
            Control::MakeControlling { session } => self.change_state(|state| state.foreground = session),
        }
        Ok(ControlReply::Done)
    }

    async fn poll(&self, peer: &Peer, id: DescriptionId, mask: u32, watch: bool) -> Result<u32, DescriptionError> {
        known(id)?;
        let found = self.ready(mask);
        if found == 0 && watch {
            let mut waiting = self.waiting.borrow_mut();
            waiting.retain(|waiting| waiting.events.peer() != peer);
            if waiting.len() >= WATCHES_MAX {
                return Err(DescriptionError::TooMany);
            }
            waiting.push(Waiting { events: DescriptionsEvents::new(peer), mask });
        }
        Ok(found)
    }

    async fn inherit(&self, _peer: &Peer, _child: u64) -> Result<(), DescriptionError> {
        Ok(())
    }

    async fn close(&self, peer: &Peer, id: DescriptionId) -> Result<(), DescriptionError> {
        known(id)?;
        self.peer_closed(peer);
        Ok(())
    }

    fn peer_closed(&self, peer: &Peer) {
        self.waiting.borrow_mut().retain(|waiting| waiting.events.peer() != peer);
    }

    fn peer_restarted(&self, peer: &Peer) {
        self.peer_closed(peer);
    }
}
