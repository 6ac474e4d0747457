//! Bytes between a description and its client.

use contracts::descriptions::{DescriptionError as Error, DescriptionId};
use packet::Memory;
use smoltcp::socket::tcp::State;

use crate::connection::RECEIVE_BYTES;
use crate::engine::ConnectionId;
use crate::sockets::{ClientId, Kind, Sockets};

impl<M: Memory> Sockets<M> {
    /// Reads at most `length` bytes into `sink`, which is given offset and bytes and says whether
    /// it could take them.
    pub fn read(
        &mut self,
        client: ClientId,
        id: DescriptionId,
        length: usize,
        mut sink: impl FnMut(usize, &[u8]) -> bool,
    ) -> Result<usize, Error> {
        let connection = self.readable(client, id)?;
        let Some(connection) = connection else { return Ok(0) };
        let Some(socket) = self.tcp.socket_mut(connection) else { return Ok(0) };
        let mut taken = 0;
        // The library's buffer is a ring: two pieces at most.
        for _ in 0..2 {
            let piece = socket.recv(|bytes| {
                let bytes = &bytes[..bytes.len().min(length - taken)];
                if sink(taken, bytes) { (bytes.len(), Some(bytes.len())) } else { (0, None) }
            });
            taken += piece.unwrap_or(Some(0)).ok_or(Error::Invalid)?;
        }
        Ok(taken)
    }

    /// Looks at bytes without taking them.
    pub fn peek(
        &mut self,
        client: ClientId,
        id: DescriptionId,
        length: usize,
        sink: impl FnOnce(&[u8]) -> bool,
    ) -> Result<usize, Error> {
        let Some(connection) = self.readable(client, id)? else { return Ok(0) };
        let Some(socket) = self.tcp.socket_mut(connection) else { return Ok(0) };
        let mut bytes = alloc::vec![0; length.min(RECEIVE_BYTES)];
        let length = socket.peek_slice(&mut bytes).unwrap_or(0);
        if sink(&bytes[..length]) { Ok(length) } else { Err(Error::Invalid) }
    }

    /// The connection if it has bytes; `None` at its end.
    fn readable(&mut self, client: ClientId, id: DescriptionId) -> Result<Option<ConnectionId>, Error> {
        let description = self.get(client, id)?;
        let Kind::Connected(connection) = description.kind else { return Err(Error::NotConnected) };
        let read_ended = description.read_ended;
        let (has_bytes, open) = self.tcp.socket(connection).map_or((false, false), |socket| {
            let opening = matches!(socket.state(), State::SynSent | State::SynReceived);
            (socket.can_recv(), opening || socket.may_recv())
        });
        if has_bytes {
            return Ok(Some(connection));
        }
        self.fault(connection)?;
        if open && !read_ended { Err(Error::WouldBlock) } else { Ok(None) }
    }

    /// Writes at most `length` bytes that `source` fills in, given an offset. With `more`, others
    /// are to follow.
    pub fn write(
        &mut self,
        client: ClientId,
        id: DescriptionId,
        length: usize,
        more: bool,
        source: impl FnMut(usize, &mut [u8]) -> bool,
    ) -> Result<usize, Error> {
        let description = self.get(client, id)?;
        let holds = more || description.is_corked;
        let Kind::Connected(connection) = description.kind else { return Err(Error::NotConnected) };
        self.fault(connection)?;
        let Some(connection) = self.tcp.connection_mut(connection) else { return Err(Error::BrokenPipe) };
        if matches!(connection.socket().state(), State::SynSent | State::SynReceived) {
            return Err(Error::WouldBlock);
        }
        let taken = connection.write(length, holds, source)?;
        if taken == 0 && length > 0 { Err(Error::WouldBlock) } else { Ok(taken) }
    }
}
