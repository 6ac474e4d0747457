//! The terminal and the streams as descriptions: reads that wait, writes, settings, polls.
//!
//! Invariant: what a read takes and what it answers happen in one step, so a cancelled read loses
//! no byte, and a cancelled write has written all or nothing. Every client may use every
//! description; there is nothing to open, and nothing to give back but a client's watch.

use alloc::vec;
use alloc::vec::Vec;

use channel::Peer;
use contracts::BulkSpan;
use contracts::descriptions::*;

use virtio::ports::Out;

use crate::service::{Console, Stream, Waiting};
use crate::streams::Request;

/// Bytes moved in one request, whatever the client's bulk region holds.
const MOVE_BYTES_MAX: usize = 64 << 10;
/// Watches of clients at once, one for each description.
const WATCHES_MAX: usize = 1024;
/// `/dev/ttyS0` as Linux numbers it: major 4, minor 64.
const DEVICE_NUMBER: u32 = 4 << 8 | 64;
/// The store's number in `Status::device`; `fs` is 1, pipes are 2.
const STORE: u64 = 3;

fn request_of(peer: &Peer, number: u64) -> Option<Request> {
    // The upper half is the place among clients, which a restart of ours does not change.
    let client = peer.id() >> 32;
    (client != 0).then_some(Request { client, number })
}

fn not_positioned(at: Option<u64>) -> Result<(), DescriptionError> {
    if at.is_none() { Ok(()) } else { Err(DescriptionError::NotSeekable) }
}

impl Console {
    async fn read_stream(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        request: Option<Request>,
        wait: bool,
    ) -> Result<u32, DescriptionError> {
        let stream = self.stream(id)?;
        // Checked before anything is taken: bytes must not be lost to a wrong span.
        let window = peer.bulk().window(span).map_err(|_| DescriptionError::Invalid)?;
        let wanted = window.len().min(MOVE_BYTES_MAX);
        let Some(streams) = self.streams.as_ref().filter(|_| stream == Stream::Input) else {
            if stream != Stream::Terminal {
                return Err(DescriptionError::Invalid);
            }
            let bytes = self.input(wanted, wait).await?;
            window.write(0, &bytes).map_err(|_| DescriptionError::Invalid)?;
            return Ok(bytes.len() as u32);
        };
        if let Some(result) = streams.result(request) {
            return Ok(result);
        }
        let take = || streams.take_input(wanted, request, |bytes| window.write(0, bytes).is_ok());
        match take() {
            Some(count) => Ok(count as u32),
            None if !wait => Err(DescriptionError::WouldBlock),
            None => Ok(self.changed.until(take).await as u32),
        }
    }

    async fn write_stream(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        request: Option<Request>,
        wait: bool,
    ) -> Result<u32, DescriptionError> {
        let stream = self.stream(id)?;
        let window = peer.bulk().window(span).map_err(|_| DescriptionError::Invalid)?;
        let read = || {
            let mut bytes = vec![0; window.len().min(MOVE_BYTES_MAX)];
            window.read(0, &mut bytes).map_err(|_| DescriptionError::Invalid).map(|()| bytes)
        };
        let Some(streams) = &self.streams else {
            if self.terminal.borrow().is_stopped() && !wait {
                return Err(DescriptionError::WouldBlock);
            }
            self.changed.until(|| (!self.terminal.borrow().is_stopped()).then_some(())).await;
            let bytes = read()?;
            // Without a further await: a cancelled write has written all or nothing.
            self.output(&bytes);
            return Ok(bytes.len() as u32);
        };
        if let Some(result) = streams.result(request) {
            return Ok(result);
        }
        let bytes = read()?;
        let out = match stream {
            Stream::Input => return Err(DescriptionError::Invalid),
            Stream::Output(out) => out,
            Stream::Terminal => Out::Screen,
        };
        // As many as there is room for at once: nothing is awaited after the first.
        let write = || {
            if bytes.is_empty() {
                return Some(Ok(0));
            }
            let count = match stream {
                Stream::Terminal if self.terminal.borrow().is_stopped() => 0,
                Stream::Terminal => self.show(streams, &bytes, request),
                _ if streams.is_closed(out) => return Some(Err(DescriptionError::BrokenPipe)),
                _ => streams.write(out, &bytes, request, |count| count),
            };
            match count {
                0 if streams.is_broken() => Some(Err(DescriptionError::BrokenPipe)),
                0 => None,
                _ => Some(Ok(count as u32)),
            }
        };
        match write() {
            Some(result) => result,
            None if !wait => Err(DescriptionError::WouldBlock),
            None => self.changed.until(write).await,
        }
    }
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
        not_positioned(at)?;
        self.read_stream(peer, id, span, None, wait).await
    }

    async fn write(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        at: Option<u64>,
        wait: bool,
    ) -> Result<u32, DescriptionError> {
        not_positioned(at)?;
        self.write_stream(peer, id, span, None, wait).await
    }

    async fn read_once(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        number: u64,
        wait: bool,
    ) -> Result<u32, DescriptionError> {
        self.read_stream(peer, id, span, request_of(peer, number), wait).await
    }

    async fn write_once(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        number: u64,
        wait: bool,
    ) -> Result<u32, DescriptionError> {
        self.write_stream(peer, id, span, request_of(peer, number), wait).await
    }

    async fn seek(
        &self,
        _peer: &Peer,
        id: DescriptionId,
        _offset: i64,
        _whence: Whence,
    ) -> Result<u64, DescriptionError> {
        self.stream(id)?;
        Err(DescriptionError::NotSeekable)
    }

    async fn status(&self, _peer: &Peer, id: DescriptionId) -> Result<Status, DescriptionError> {
        let stream = self.stream(id)?;
        Ok(match stream {
            Stream::Terminal => {
                let status = Status::of_no_file(Kind::Terminal, 0o620, TERMINAL, STORE);
                Status { special: DEVICE_NUMBER, ..status }
            }
            _ => Status::of_no_file(Kind::Pipe, 0o600, id, STORE),
        })
    }

    async fn resize(&self, _peer: &Peer, id: DescriptionId, _size: u64) -> Result<(), DescriptionError> {
        self.stream(id)?;
        Err(DescriptionError::Invalid)
    }

    async fn entries(
        &self,
        _peer: &Peer,
        id: DescriptionId,
        _from: u64,
    ) -> Result<(Vec<Entry>, u64), DescriptionError> {
        self.stream(id)?;
        Err(DescriptionError::NotDirectory)
    }

    async fn control(
        &self,
        _peer: &Peer,
        id: DescriptionId,
        request: Control,
    ) -> Result<ControlReply, DescriptionError> {
        let state = self.state.get();
        match (self.stream(id)?, &self.streams) {
            (Stream::Terminal, _) => {}
            (Stream::Input, Some(streams)) if request == Control::Available => {
                return Ok(ControlReply::Number(streams.input_held() as u64));
            }
            _ => return Err(DescriptionError::NotTerminal),
        }
        match request {
            Control::GetCapacity | Control::SetCapacity { .. } | Control::Attribute(_) => {
                return Err(DescriptionError::NotSupported);
            }
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

    async fn poll(&self, peer: &Peer, id: DescriptionId, mask: u32, watch: WatchFor) -> Result<u32, DescriptionError> {
        self.stream(id)?;
        let found = self.ready(id, mask);
        if let Some(watched) = Watched::new(watch, mask, found) {
            let mut waiting = self.waiting.borrow_mut();
            // Another thread of the client may watch for something else.
            if let Some(known) = waiting.iter_mut().find(|known| known.events.peer() == peer && known.id == id) {
                known.watched = known.watched.join(watched);
                return Ok(found);
            }
            if waiting.len() >= WATCHES_MAX {
                return Err(DescriptionError::TooMany);
            }
            waiting.push(Waiting { events: DescriptionsEvents::new(peer), id, watched });
        }
        Ok(found)
    }

    async fn inherit(&self, _peer: &Peer, _child: u64) -> Result<(), DescriptionError> {
        Ok(())
    }

    async fn export(&self, _peer: &Peer, _id: DescriptionId) -> Result<u64, DescriptionError> {
        Err(DescriptionError::NotSupported)
    }

    async fn claim(&self, _peer: &Peer, _ticket: u64) -> Result<DescriptionId, DescriptionError> {
        Err(DescriptionError::NotSupported)
    }

    async fn close(&self, peer: &Peer, id: DescriptionId) -> Result<(), DescriptionError> {
        self.stream(id)?;
        self.waiting.borrow_mut().retain(|waiting| waiting.events.peer() != peer || waiting.id != id);
        Ok(())
    }

    fn peer_closed(&self, peer: &Peer) {
        self.waiting.borrow_mut().retain(|waiting| waiting.events.peer() != peer);
    }

    fn peer_restarted(&self, peer: &Peer) {
        self.peer_closed(peer);
    }
}
