//! The contracts `sockets` and `descriptions` over [`Sockets`]: waiting, bulk regions and events.
//!
//! An operation that may wait tries, waits for the description's next change, and tries again;
//! dropping it (the client cancelled) leaves nothing behind.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use contracts::BulkSpan;
use contracts::descriptions::*;
use contracts::in_flight::{Exporter, settle_unknown};
use contracts::process::ProcessClient;
use contracts::sockets::*;
use core::cell::{Cell, RefCell};
use core::future::poll_fn;
use core::task::Poll;
use packet::Notify;
use runtime::{Bulk, Clients, Peer, Watch};
use tcp::{Ready, Sockets};

type Outcome<T> = Result<T, DescriptionError>;

/// Shared by all clients' channels.
pub struct Service {
    pub sockets: RefCell<Sockets<Bulk>>,
    pub wakeup: Notify,
    /// IP is attached.
    pub attached: Cell<bool>,
    /// The programs that may be given descriptions.
    pub clients: Clients,
    /// What was kept back is for an IP that is no more.
    pub stale: Cell<bool>,
    events: RefCell<BTreeMap<u64, DescriptionsEvents>>,
    /// Tickets of senders that have ended, and word of that.
    unsure: RefCell<Vec<u64>>,
    exporter_ended: Watch,
}

impl Service {
    pub fn new(sockets: Sockets<Bulk>) -> Service {
        Service {
            sockets: RefCell::new(sockets),
            wakeup: Notify::default(),
            attached: Cell::new(false),
            clients: Clients::default(),
            stale: Cell::new(false),
            events: RefCell::new(BTreeMap::new()),
            unsure: RefCell::default(),
            exporter_ended: Watch::default(),
        }
    }

    /// Sends `ready` events. One that finds its channel full is lost with the channel's own notice
    /// (`Lost`), upon which the client polls again.
    pub fn tell(&self, ready: &[Ready]) {
        let events = self.events.borrow();
        for event in ready {
            if let Some(client) = events.get(&event.client) {
                let _ = client.ready(event.id, event.mask);
            }
        }
    }

    /// An operation that changes something: the turn follows.
    fn act<T>(&self, operation: impl FnOnce(&mut Sockets<Bulk>) -> Outcome<T>) -> Outcome<T> {
        let result = operation(&mut self.sockets.borrow_mut());
        self.wakeup.notify();
        result
    }

    /// Claims an address. One that is in use may be a program's that has ended and was waited for:
    /// then its end is seen now. Or another program closed what had it, and that lies in a channel
    /// which was not looked at yet.
    async fn claim(&self, operation: impl Fn(&mut Sockets<Bulk>) -> Outcome<()>) -> Outcome<()> {
        let result = self.act(&operation);
        if result != Err(DescriptionError::AddressInUse) {
            return result;
        }
        self.clients.look();
        runtime::take_in_all().await;
        self.act(&operation)
    }

    /// Tries until the result is not `not_yet`, or once if not to `wait`.
    async fn repeat<T>(
        &self,
        id: DescriptionId,
        wait: bool,
        not_yet: DescriptionError,
        mut operation: impl FnMut(&mut Sockets<Bulk>) -> Outcome<T>,
    ) -> Outcome<T> {
        loop {
            match self.act(&mut operation) {
                Err(error) if error == not_yet && wait => self.changed(id).await,
                result => return result,
            }
        }
    }

    async fn changed(&self, id: DescriptionId) {
        let mut asked = false;
        poll_fn(|context| {
            if core::mem::replace(&mut asked, true) || !self.sockets.borrow_mut().wait(id, context.waker()) {
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }

    async fn send_datagram(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        to: Option<SocketAddress>,
        wait: bool,
    ) -> Outcome<u32> {
        let bulk = window(peer, span)?;
        let send = |sockets: &mut Sockets<Bulk>| {
            sockets.send_datagram(peer.id(), id, bulk.len(), to, |bytes| bulk.read(0, bytes).is_ok())
        };
        self.repeat(id, wait, DescriptionError::WouldBlock, send).await.map(bytes_done)
    }

    /// Writes to what is connected; with `more`, others are to follow.
    async fn write_to(&self, peer: &Peer, id: DescriptionId, span: BulkSpan, more: bool, wait: bool) -> Outcome<u32> {
        if self.sockets.borrow_mut().has_datagrams(peer.id(), id)? {
            return self.send_datagram(peer, id, span, None, wait).await;
        }
        let bulk = window(peer, span)?;
        let write = |sockets: &mut Sockets<Bulk>| {
            sockets.write(peer.id(), id, bulk.len(), more, |offset, room| bulk.read(offset, room).is_ok())
        };
        self.repeat(id, wait, DescriptionError::WouldBlock, write).await.map(bytes_done)
    }

    async fn receive_datagram(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        peek: bool,
        wait: bool,
    ) -> Outcome<Received> {
        let bulk = window(peer, span)?;
        let receive = |sockets: &mut Sockets<Bulk>| {
            let sink = |bytes: &[u8]| bulk.write(0, bytes).is_ok();
            let taken = sockets.receive_datagram(peer.id(), id, bulk.len(), peek, sink)?;
            let source = taken.source.map(|source| sockets.told(peer.id(), id, source)).transpose()?;
            let (bytes, whole) = (bytes_done(taken.bytes), bytes_done(taken.whole));
            Ok(Received { bytes, whole, source, ..Received::default() })
        };
        self.repeat(id, wait, DescriptionError::WouldBlock, receive).await
    }

    fn gone(&self, peer: &Peer) {
        self.events.borrow_mut().retain(|client, _| !peer.was(*client));
        self.sockets.borrow_mut().client_gone(peer.ids(), |client| peer.was(client));
        self.wakeup.notify();
        // What it exported and did not send has to be found.
        let tickets = self.sockets.borrow().tickets.of(|exporter| peer.was(exporter));
        if !tickets.is_empty() {
            self.unsure.borrow_mut().extend(tickets);
            self.exporter_ended.changed();
        }
    }

    /// Settles what nobody will claim, for as long as the machine runs.
    pub async fn settle_unsent(&self, processes: &ProcessClient) {
        loop {
            let take = || Some(self.unsure.take()).filter(|unsure| !unsure.is_empty());
            let unsure = self.exporter_ended.until(take).await;
            settle_unknown(self, processes, unsure).await;
        }
    }
}

impl Exporter for Service {
    fn settle(&self, ticket: u64) {
        self.sockets.borrow_mut().settle_ticket(ticket);
        self.wakeup.notify();
    }

    fn tickets(&self) -> Vec<u64> {
        self.sockets.borrow().tickets.of(|_| true)
    }
}

fn window(peer: &Peer, span: BulkSpan) -> Outcome<Bulk> {
    peer.bulk().window(span).map_err(|_| DescriptionError::Invalid)
}

fn bytes_done(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

impl SocketsServer for Service {
    async fn socket(&self, peer: &Peer, family: Family, kind: SocketKind) -> Outcome<DescriptionId> {
        self.act(|sockets| sockets.socket(peer.id(), family, kind))
    }

    async fn pair(&self, _: &Peer, _: SocketKind) -> Outcome<(DescriptionId, DescriptionId)> {
        Err(DescriptionError::NotSupported)
    }

    async fn bind(&self, peer: &Peer, id: DescriptionId, address: Address) -> Outcome<()> {
        let address = self.sockets.borrow_mut().meant(peer.id(), id, &address)?;
        self.claim(|sockets| sockets.bind(peer.id(), id, address)).await
    }

    async fn listen(&self, peer: &Peer, id: DescriptionId, backlog: u32) -> Outcome<()> {
        self.claim(|sockets| sockets.listen(peer.id(), id, backlog)).await
    }

    async fn accept(&self, peer: &Peer, id: DescriptionId, wait: bool) -> Outcome<Accepted> {
        self.repeat(id, wait, DescriptionError::WouldBlock, |sockets| sockets.accept(peer.id(), id)).await
    }

    async fn connect(&self, peer: &Peer, id: DescriptionId, address: Address, wait: bool) -> Outcome<()> {
        if address == Address::Local(LocalAddress::default()) {
            return self.act(|sockets| sockets.disconnect(peer.id(), id));
        }
        let address = self.sockets.borrow_mut().meant(peer.id(), id, &address)?;
        self.act(|sockets| sockets.connect(peer.id(), id, address, runtime::now_ns()))?;
        self.repeat(id, wait, DescriptionError::InProgress, |sockets| sockets.connected(peer.id(), id)).await
    }

    async fn shutdown(&self, peer: &Peer, id: DescriptionId, how: Shutdown) -> Outcome<()> {
        self.act(|sockets| sockets.shutdown(peer.id(), id, how))
    }

    async fn names(&self, peer: &Peer, id: DescriptionId) -> Outcome<(Address, Option<Address>)> {
        self.act(|sockets| {
            let (own, other) = sockets.names(peer.id(), id)?;
            let other = other.map(|other| sockets.told(peer.id(), id, other)).transpose()?;
            Ok((sockets.told(peer.id(), id, own)?, other))
        })
    }

    async fn set_option(&self, peer: &Peer, id: DescriptionId, option: SocketOption) -> Outcome<()> {
        self.act(|sockets| sockets.set_option(peer.id(), id, option))
    }

    async fn option(&self, peer: &Peer, id: DescriptionId, name: SocketOptionName) -> Outcome<SocketOption> {
        self.act(|sockets| sockets.option(peer.id(), id, name, runtime::now_ns()))
    }

    async fn send(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        to: Option<Address>,
        rights: Vec<Right>,
        SendOptions { wait, more }: SendOptions,
    ) -> Outcome<u32> {
        // Only what is within the machine carries them.
        if !rights.is_empty() {
            return Err(DescriptionError::NotSupported);
        }
        match to {
            Some(to) if self.sockets.borrow_mut().has_datagrams(peer.id(), id)? => {
                let to = self.sockets.borrow_mut().meant(peer.id(), id, &to)?;
                self.send_datagram(peer, id, span, Some(to), wait).await
            }
            // A stream is connected, and Linux looks at no address then.
            _ => self.write_to(peer, id, span, more, wait).await,
        }
    }

    async fn receive(
        &self,
        peer: &Peer,
        id: DescriptionId,
        span: BulkSpan,
        peek: bool,
        _rights: u32,
        wait: bool,
    ) -> Outcome<Received> {
        if self.sockets.borrow_mut().has_datagrams(peer.id(), id)? {
            return self.receive_datagram(peer, id, span, peek, wait).await;
        }
        let bytes = if peek {
            let bulk = window(peer, span)?;
            let peek = |sockets: &mut Sockets<Bulk>| {
                sockets.peek(peer.id(), id, bulk.len(), |bytes| bulk.write(0, bytes).is_ok())
            };
            self.repeat(id, wait, DescriptionError::WouldBlock, peek).await.map(bytes_done)?
        } else {
            self.read(peer, id, span, None, wait).await?
        };
        Ok(Received { bytes, whole: bytes, ..Received::default() })
    }

    fn peer_closed(&self, peer: &Peer) {
        self.gone(peer);
    }

    fn peer_restarted(&self, peer: &Peer) {
        self.gone(peer);
    }
}

impl DescriptionsServer for Service {
    async fn read(&self, peer: &Peer, id: DescriptionId, span: BulkSpan, at: Option<u64>, wait: bool) -> Outcome<u32> {
        if at.is_some() {
            return Err(DescriptionError::NotSeekable);
        }
        if self.sockets.borrow_mut().has_datagrams(peer.id(), id)? {
            return self.receive_datagram(peer, id, span, false, wait).await.map(|got| got.bytes);
        }
        let bulk = window(peer, span)?;
        let read = |sockets: &mut Sockets<Bulk>| {
            sockets.read(peer.id(), id, bulk.len(), |offset, bytes| bulk.write(offset, bytes).is_ok())
        };
        self.repeat(id, wait, DescriptionError::WouldBlock, read).await.map(bytes_done)
    }

    async fn write(&self, peer: &Peer, id: DescriptionId, span: BulkSpan, at: Option<u64>, wait: bool) -> Outcome<u32> {
        if at.is_some() {
            return Err(DescriptionError::NotSeekable);
        }
        self.write_to(peer, id, span, false, wait).await
    }

    async fn seek(&self, _: &Peer, _: DescriptionId, _: i64, _: Whence) -> Outcome<u64> {
        Err(DescriptionError::NotSeekable)
    }

    async fn status(&self, peer: &Peer, id: DescriptionId) -> Outcome<Status> {
        self.act(|sockets| {
            sockets.names(peer.id(), id).map(drop).or_else(|error| match error {
                DescriptionError::NotConnected => Ok(()),
                error => Err(error),
            })
        })?;
        Ok(Status::of_no_file(Kind::Socket, 0o777, id, 0))
    }

    async fn resize(&self, _: &Peer, _: DescriptionId, _: u64) -> Outcome<()> {
        Err(DescriptionError::Invalid)
    }

    async fn entries(&self, _: &Peer, _: DescriptionId, _: u64) -> Outcome<(Vec<Entry>, u64)> {
        Err(DescriptionError::NotDirectory)
    }

    async fn control(&self, peer: &Peer, id: DescriptionId, request: Control) -> Outcome<ControlReply> {
        match request {
            Control::Available => {
                let available = self.act(|sockets| sockets.available(peer.id(), id))?;
                Ok(ControlReply::Number(available as u64))
            }
            _ => Err(DescriptionError::NotTerminal),
        }
    }

    async fn poll(&self, peer: &Peer, id: DescriptionId, mask: u32, watch: WatchFor) -> Outcome<u32> {
        if watch != WatchFor::Nothing {
            self.events.borrow_mut().entry(peer.id()).or_insert_with(|| DescriptionsEvents::new(peer));
        }
        self.sockets.borrow_mut().poll(peer.id(), id, mask, watch)
    }

    async fn inherit(&self, peer: &Peer, child: u64) -> Outcome<()> {
        if !self.clients.is_newborn(child) {
            return Err(DescriptionError::Invalid);
        }
        self.sockets.borrow_mut().inherit(peer.id(), child);
        Ok(())
    }

    async fn export(&self, peer: &Peer, id: DescriptionId) -> Outcome<u64> {
        let mut ticket = [0; 8];
        runtime::fill_random(&mut ticket);
        self.sockets.borrow_mut().export(peer.id(), id, u64::from_ne_bytes(ticket))
    }

    async fn claim(&self, peer: &Peer, ticket: u64) -> Outcome<DescriptionId> {
        self.sockets.borrow_mut().claim(peer.id(), ticket)
    }

    async fn close(&self, peer: &Peer, id: DescriptionId) -> Outcome<()> {
        self.act(|sockets| sockets.close(peer.id(), id))
    }

    fn peer_closed(&self, peer: &Peer) {
        self.gone(peer);
    }

    fn peer_restarted(&self, peer: &Peer) {
        self.gone(peer);
    }
}
