//! The `sockets` contract for those within the machine.

use alloc::vec::Vec;

use channel::Peer;
use contracts::BulkSpan;
use contracts::descriptions::{DescriptionError, DescriptionId, Right};
use contracts::sockets::*;
use process_core::open::Descriptions;
use process_core::sockets::{CAPACITY_BYTES, ReceiveOptions, Sender, Sockets};

use crate::descriptions::{Service, length_of};

type Outcome<T> = Result<T, DescriptionError>;

fn local(address: Address) -> Outcome<LocalAddress> {
    if let Address::Local(address) = address { Ok(address) } else { Err(DescriptionError::AddressNotAvailable) }
}

impl Service {
    /// Works on a socket that the client holds.
    fn with_socket<T>(
        &self,
        peer: &Peer,
        id: DescriptionId,
        work: impl FnOnce(&mut Sockets) -> Outcome<T>,
    ) -> Outcome<T> {
        self.act(|table| work(table.sockets(peer.id(), id)?))
    }
}

/// Rights of a message that is not sent yet; they are lost when this is dropped.
struct Unsent<'a> {
    service: &'a Service,
    rights: &'a [Right],
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        if !self.rights.is_empty() {
            self.service.act(|table| table.lose(self.rights));
        }
    }
}

impl SocketsServer for Service {
    async fn socket(&self, peer: &Peer, family: Family, kind: SocketKind) -> Outcome<DescriptionId> {
        if family != Family::Local {
            return Err(DescriptionError::NotSupported);
        }
        let owner = self.acting(peer.id());
        self.act(|table| table.socket(peer.id(), kind, owner))
    }

    async fn pair(&self, peer: &Peer, kind: SocketKind) -> Outcome<(DescriptionId, DescriptionId)> {
        let owner = self.acting(peer.id());
        self.act(|table| table.pair(peer.id(), kind, owner))
    }

    async fn bind(&self, peer: &Peer, id: DescriptionId, address: Address) -> Outcome<()> {
        let address = local(address)?;
        let bind = |sockets: &mut Sockets| sockets.bind(id, address.clone());
        let result = self.with_socket(peer, id, bind);
        if result != Err(DescriptionError::AddressInUse) {
            return result;
        }
        // It may be a program's that has ended and was waited for: then its end is seen now. Or it
        // was closed by a message in a channel that was not looked at yet.
        self.clients.look();
        runtime::take_in_all().await;
        self.with_socket(peer, id, bind)
    }

    async fn listen(&self, peer: &Peer, id: DescriptionId, backlog: u32) -> Outcome<()> {
        let owner = self.acting(peer.id());
        self.with_socket(peer, id, |sockets| sockets.listen(id, backlog, owner))
    }

    async fn accept(&self, peer: &Peer, id: DescriptionId, wait: bool) -> Outcome<Accepted> {
        let taken = self.repeat(id, wait, |table| table.accept(peer.id(), id)).await?;
        let (_, source) = self.with_socket(peer, taken, |sockets| sockets.names(taken))?;
        Ok(Accepted { id: taken, peer: Address::Local(source.unwrap_or_default()) })
    }

    async fn connect(&self, peer: &Peer, id: DescriptionId, address: Address, wait: bool) -> Outcome<()> {
        let (address, owner) = (local(address)?, self.acting(peer.id()));
        self.repeat(id, wait, |table| table.connect(peer.id(), id, &address, owner)).await
    }

    async fn shutdown(&self, peer: &Peer, id: DescriptionId, how: Shutdown) -> Outcome<()> {
        self.with_socket(peer, id, |sockets| sockets.shutdown(id, how))
    }

    async fn names(&self, peer: &Peer, id: DescriptionId) -> Outcome<(Address, Option<Address>)> {
        let (own, other) = self.with_socket(peer, id, |sockets| sockets.names(id))?;
        Ok((Address::Local(own), other.map(Address::Local)))
    }

    async fn set_option(&self, peer: &Peer, id: DescriptionId, option: SocketOption) -> Outcome<()> {
        self.with_socket(peer, id, |sockets| match option {
            SocketOption::TellsSender(tells) => sockets.tells_sender(id).map(|own| *own = tells),
            // They are about networks; a buffer has one size here.
            SocketOption::ReuseAddress(_)
            | SocketOption::ReusePort(_)
            | SocketOption::KeepAlive(_)
            | SocketOption::Linger(_)
            | SocketOption::SendBuffer(_)
            | SocketOption::ReceiveBuffer(_) => Ok(()),
            SocketOption::NoDelay(_) | SocketOption::Cork(_) | SocketOption::Only6(_) => {
                Err(DescriptionError::NotSupported)
            }
            SocketOption::Error(_)
            | SocketOption::Listening(_)
            | SocketOption::Kind(_)
            | SocketOption::Family(_)
            | SocketOption::Info(_)
            | SocketOption::Peer(_) => Err(DescriptionError::Invalid),
        })
    }

    async fn option(&self, peer: &Peer, id: DescriptionId, name: SocketOptionName) -> Outcome<SocketOption> {
        self.with_socket(peer, id, |sockets| {
            Ok(match name {
                SocketOptionName::SendBuffer => SocketOption::SendBuffer(CAPACITY_BYTES as u32),
                SocketOptionName::ReceiveBuffer => SocketOption::ReceiveBuffer(CAPACITY_BYTES as u32),
                SocketOptionName::Error => SocketOption::Error(sockets.take_error(id)?),
                SocketOptionName::Listening => SocketOption::Listening(sockets.is_listening(id)?),
                SocketOptionName::Kind => SocketOption::Kind(sockets.kind(id)?),
                SocketOptionName::Peer => SocketOption::Peer(sockets.peer_owner(id)?),
                SocketOptionName::TellsSender => SocketOption::TellsSender(*sockets.tells_sender(id)?),
                SocketOptionName::Family => SocketOption::Family(Family::Local),
                SocketOptionName::ReuseAddress
                | SocketOptionName::ReusePort
                | SocketOptionName::Only6
                | SocketOptionName::KeepAlive
                | SocketOptionName::NoDelay
                | SocketOptionName::Cork
                | SocketOptionName::Info
                | SocketOptionName::Linger => return Err(DescriptionError::NotSupported),
            })
        })
    }

    async fn send(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        to: Option<Address>,
        rights: Vec<Right>,
        options: SendOptions,
    ) -> Outcome<u32> {
        let (to, bulk, who) = (to.map(local).transpose()?, peer.bulk(), self.sender(peer.id()));
        // Also if this is dropped because the client does not wait any longer.
        let mut unsent = Unsent { service: self, rights: &rights };
        let sender = Sender { who, to: to.as_ref(), rights: &rights };
        let get = |into: &mut [u8]| bulk.read(span.offset as usize, into).is_ok();
        let send = |table: &mut Descriptions| table.send(peer.id(), id, &sender, span.length as usize, get);
        let sent = self.repeat(id, options.wait, send).await?;
        unsent.rights = &[];
        Ok(sent as u32)
    }

    async fn receive(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        peek: bool,
        rights: u32,
        wait: bool,
    ) -> Outcome<Received> {
        let bulk = peer.bulk();
        let put = |offset: usize, bytes: &[u8]| bulk.write(span.offset as usize + offset, bytes).is_ok();
        let options = ReceiveOptions { room: length_of(span), rights: rights as usize, peek };
        self.repeat(id, wait, |table| table.receive(peer.id(), id, options, put)).await
    }

    fn peer_closed(&self, peer: &Peer) {
        self.remove_clients(peer.ids(), |client| peer.was(client));
    }

    fn peer_restarted(&self, peer: &Peer) {
        self.remove_clients(peer.ids(), |client| peer.was(client));
    }
}
