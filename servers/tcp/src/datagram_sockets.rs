//! Descriptions of datagrams: what programs do to an endpoint.

use contracts::descriptions::{DescriptionError as Error, DescriptionId, ready};
use contracts::sockets::{Shutdown, SocketAddress};
use core::net::{Ipv4Addr, SocketAddrV4};
use packet::Memory;

use crate::datagrams::{DATAGRAM_MAX, Endpoint};
use crate::sockets::{ClientId, Sockets, address_of, end_of};

/// One datagram, as far as there was room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes given.
    pub bytes: usize,
    /// Bytes it had.
    pub whole: usize,
    /// Who sent it; `None` at the end of reading.
    pub source: Option<SocketAddress>,
}

impl<M: Memory> Sockets<M> {
    /// Does it carry datagrams? `BadId`.
    pub fn has_datagrams(&mut self, client: ClientId, id: DescriptionId) -> Result<bool, Error> {
        self.get(client, id).map(|description| description.is_datagrams())
    }

    pub(crate) fn bind_datagrams(&mut self, id: DescriptionId, wanted: SocketAddrV4) -> Result<(), Error> {
        if self.tcp.datagrams.get(id)?.local.is_some() {
            return Err(Error::Invalid);
        }
        let port = match wanted.port() {
            0 => self.free_port(|sockets, port| sockets.tcp.datagrams.is_free(port)).ok_or(Error::AddressInUse)?,
            port => port,
        };
        self.tcp.datagrams.bind(id, SocketAddrV4::new(*wanted.ip(), port))
    }

    /// Sends and receives with `to` only from now on; `None` ends that.
    pub(crate) fn connect_datagrams(&mut self, id: DescriptionId, to: Option<SocketAddrV4>) -> Result<(), Error> {
        if let Some(to) = to {
            let source = self.tcp.source_for(*to.ip())?;
            if self.tcp.datagrams.get(id)?.local.is_none() {
                self.bind_datagrams(id, SocketAddrV4::new(source, 0))?;
            }
        }
        let endpoint = self.tcp.datagrams.get_mut(id)?;
        endpoint.peer = to;
        endpoint.refused = false;
        Ok(())
    }

    pub(crate) fn shut_datagrams(&mut self, id: DescriptionId, how: Shutdown) -> Result<(), Error> {
        let endpoint = self.tcp.datagrams.get_mut(id)?;
        endpoint.read_ended |= how != Shutdown::Write;
        endpoint.write_ended |= how != Shutdown::Read;
        let connected = endpoint.peer.is_some();
        self.wake(id);
        if connected { Ok(()) } else { Err(Error::NotConnected) }
    }

    /// Both addresses.
    pub(crate) fn datagram_names(&self, id: DescriptionId) -> Result<(SocketAddress, Option<SocketAddress>), Error> {
        let Endpoint { local, peer, .. } = self.tcp.datagrams.get(id)?;
        Ok((local.map(address_of).unwrap_or_default(), peer.map(address_of)))
    }

    pub(crate) fn datagrams_ready(&self, id: DescriptionId) -> u32 {
        let Ok(endpoint) = self.tcp.datagrams.get(id) else { return 0 };
        let ended = endpoint.read_ended && endpoint.write_ended;
        let bits = [
            (ready::READ, endpoint.first().is_some() || endpoint.read_ended),
            (ready::WRITE, endpoint.may_send()),
            (ready::READ_HANGUP, endpoint.read_ended),
            (ready::HANGUP, ended),
            (ready::ERROR, endpoint.refused),
        ];
        bits.into_iter().filter(|(_, holds)| *holds).fold(0, |mask, (bit, _)| mask | bit)
    }

    /// What was sent met nobody: said once.
    pub(crate) fn datagram_fault(&mut self, id: DescriptionId) -> Result<(), Error> {
        let refused = core::mem::take(&mut self.tcp.datagrams.get_mut(id)?.refused);
        if refused { Err(Error::ConnectionRefused) } else { Ok(()) }
    }

    /// Takes the oldest datagram, or with `peek` looks at it. What has no room in `length` is lost.
    pub fn receive_datagram(
        &mut self,
        client: ClientId,
        id: DescriptionId,
        length: usize,
        peek: bool,
        sink: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Taken, Error> {
        self.get(client, id)?;
        self.datagram_fault(id)?;
        let endpoint = self.tcp.datagrams.get(id)?;
        let Some(first) = endpoint.first() else {
            let end = Taken { bytes: 0, whole: 0, source: None };
            return if endpoint.read_ended { Ok(end) } else { Err(Error::WouldBlock) };
        };
        let bytes = first.bytes.len().min(length);
        let taken = Taken { bytes, whole: first.bytes.len(), source: Some(address_of(first.source)) };
        if !sink(&first.bytes[..bytes]) {
            return Err(Error::Invalid);
        }
        if !peek {
            self.tcp.datagrams.take(id);
        }
        Ok(taken)
    }

    /// Sends one datagram, to whom it is connected if `to` is not given.
    pub fn send_datagram(
        &mut self,
        client: ClientId,
        id: DescriptionId,
        length: usize,
        to: Option<SocketAddress>,
        source: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<usize, Error> {
        self.get(client, id)?;
        self.datagram_fault(id)?;
        let Endpoint { peer, write_ended, local, .. } = self.tcp.datagrams.get(id)?;
        let (write_ended, is_bound) = (*write_ended, local.is_some());
        let to = to.map(end_of).or(*peer).ok_or(Error::DestinationRequired)?;
        if write_ended {
            return Err(Error::BrokenPipe);
        }
        if length > DATAGRAM_MAX {
            return Err(Error::MessageTooLong);
        }
        if to.port() == 0 {
            return Err(Error::Invalid);
        }
        if !is_bound {
            self.bind_datagrams(id, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        }
        let mut bytes = alloc::vec![0; length];
        if !source(&mut bytes) {
            return Err(Error::Invalid);
        }
        self.tcp.send_datagram(id, to, &bytes).map(|()| length)
    }
}
