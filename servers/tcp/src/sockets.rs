//! Descriptions: sockets as programs know them, with references, errors, readiness and the rules of
//! closing.
//!
//! A description is held by reference, one per client domain; with the last reference it ends as
//! Linux would end it: a listener resets what waits, a connection with unread bytes or a linger of
//! 0 is reset, any other sends what was written and then its end. Nothing here waits: what cannot
//! be done now is `WouldBlock`, and [`Sockets::settle`] tells whom a turn concerns.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use contracts::descriptions::{DescriptionError as Error, DescriptionId, ready};
use contracts::sockets::{Accepted, Shutdown, SocketAddress, SocketKind};
use core::net::{Ipv4Addr, SocketAddrV4};
use core::ops::RangeInclusive;
use core::task::Waker;
use packet::Memory;
use smoltcp::socket::tcp::State;

use crate::connection::Fault;
use crate::engine::{Change, ConnectionId, Refused, Tcp};

/// Most descriptions of all clients.
pub const DESCRIPTIONS_MAX: usize = 1024;
/// Waiting operations per description before all are asked to look again; bounds what cancelled
/// ones leave behind.
const WAITERS_MAX: usize = 64;
/// Ports for those who bind to any: the upper half.
const FREE_PORTS_FIRST: u16 = 1 << 15;
/// A client domain's number.
pub type ClientId = u64;

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Fresh,
    Listening(u16),
    Connected(ConnectionId),
}

pub(crate) struct Description {
    pub(crate) kind: Kind,
    pub(crate) bound: Option<SocketAddress>,
    pub(crate) holders: BTreeSet<ClientId>,
    pub(crate) watchers: BTreeMap<ClientId, u32>,
    pub(crate) waiters: Vec<Waker>,
    pub(crate) read_ended: bool,
    pub(crate) reuse: bool,
    pub(crate) keep_alive: bool,
    pub(crate) no_delay: bool,
    pub(crate) linger_s: Option<u32>,
}

/// A `ready` event to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// To whom.
    pub client: ClientId,
    /// About what.
    pub id: DescriptionId,
    /// What holds.
    pub mask: u32,
}

/// All descriptions, over TCP.
pub struct Sockets<M> {
    /// The protocol.
    pub tcp: Tcp<M>,
    pub(crate) table: BTreeMap<DescriptionId, Description>,
    pub(crate) connections: BTreeMap<ConnectionId, DescriptionId>,
    pub(crate) bound: BTreeMap<u16, DescriptionId>,
    next_id: DescriptionId,
}

impl<M: Memory> Sockets<M> {
    /// No descriptions yet.
    pub fn new(tcp: Tcp<M>) -> Sockets<M> {
        Sockets { tcp, table: BTreeMap::new(), connections: BTreeMap::new(), bound: BTreeMap::new(), next_id: 1 }
    }

    /// See the contract; so for all that bear the names of its operations.
    pub fn socket(&mut self, client: ClientId, kind: SocketKind) -> Result<DescriptionId, Error> {
        if kind != SocketKind::Stream {
            return Err(Error::NotSupported);
        }
        self.add(client, Kind::Fresh)
    }

    fn add(&mut self, client: ClientId, kind: Kind) -> Result<DescriptionId, Error> {
        if self.table.len() >= DESCRIPTIONS_MAX {
            return Err(Error::TooMany);
        }
        let id = self.next_id;
        self.next_id += 1;
        let description = Description {
            kind,
            bound: None,
            holders: BTreeSet::from([client]),
            watchers: BTreeMap::new(),
            waiters: Vec::new(),
            read_ended: false,
            reuse: false,
            keep_alive: false,
            no_delay: false,
            linger_s: None,
        };
        self.table.insert(id, description);
        if let Kind::Connected(connection) = kind {
            self.connections.insert(connection, id);
        }
        Ok(id)
    }

    pub(crate) fn get(&mut self, client: ClientId, id: DescriptionId) -> Result<&mut Description, Error> {
        self.table.get_mut(&id).filter(|description| description.holders.contains(&client)).ok_or(Error::BadId)
    }

    /// Binds.
    pub fn bind(&mut self, client: ClientId, id: DescriptionId, address: SocketAddress) -> Result<(), Error> {
        let description = self.get(client, id)?;
        if !matches!(description.kind, Kind::Fresh) || description.bound.is_some() {
            return Err(Error::Invalid);
        }
        let ip = Ipv4Addr::from(address.address);
        if !(ip.is_unspecified() || ip.is_loopback() || self.tcp.host() == Some(ip)) {
            return Err(Error::AddressNotAvailable);
        }
        let port = if address.port == 0 { self.free_port().ok_or(Error::AddressInUse)? } else { address.port };
        if self.bound.contains_key(&port) {
            return Err(Error::AddressInUse);
        }
        self.bound.insert(port, id);
        self.get(client, id)?.bound = Some(SocketAddress { port, ..address });
        Ok(())
    }

    fn free_port(&mut self) -> Option<u16> {
        let first = self.tcp.opening.port();
        for step in 0..FREE_PORTS_FIRST {
            let port = FREE_PORTS_FIRST + first.wrapping_add(step) % FREE_PORTS_FIRST;
            if !self.bound.contains_key(&port) {
                return Some(port);
            }
        }
        None
    }

    /// Listens; `backlog` connections may wait.
    pub fn listen(&mut self, client: ClientId, id: DescriptionId, backlog: u32) -> Result<(), Error> {
        match self.get(client, id)?.kind {
            Kind::Listening(_) => return Ok(()),
            Kind::Connected(_) => return Err(Error::Invalid),
            Kind::Fresh => {}
        }
        if self.get(client, id)?.bound.is_none() {
            self.bind(client, id, SocketAddress::default())?;
        }
        let Some(SocketAddress { address, port }) = self.get(client, id)?.bound else { return Err(Error::Failed) };
        let only = Some(Ipv4Addr::from(address)).filter(|address| !address.is_unspecified());
        self.tcp.listen(port, only, backlog).map_err(refused)?;
        self.get(client, id)?.kind = Kind::Listening(port);
        Ok(())
    }

    /// Accepts.
    pub fn accept(&mut self, client: ClientId, id: DescriptionId) -> Result<Accepted, Error> {
        let Kind::Listening(port) = self.get(client, id)?.kind else { return Err(Error::Invalid) };
        if self.table.len() >= DESCRIPTIONS_MAX {
            return Err(Error::TooMany);
        }
        let connection = self.tcp.accept(port).ok_or(Error::WouldBlock)?;
        let peer = self.tcp.pair(connection).map_or(SocketAddress::default(), |pair| address_of(pair.remote));
        Ok(Accepted { id: self.add(client, Kind::Connected(connection))?, peer })
    }

    /// Begins to connect; [`Sockets::connected`] tells how it went.
    pub fn connect(
        &mut self,
        client: ClientId,
        id: DescriptionId,
        to: SocketAddress,
        now_ns: u64,
    ) -> Result<(), Error> {
        let description = self.get(client, id)?;
        match description.kind {
            Kind::Fresh => {}
            Kind::Listening(_) => return Err(Error::Invalid),
            Kind::Connected(_) => return self.connected(client, id).and(Err(Error::AlreadyConnected)),
        }
        let port = description.bound.map(|bound| bound.port);
        // Linux takes 0.0.0.0 for this machine itself.
        let ip = Ipv4Addr::from(to.address);
        let ip = if ip.is_unspecified() { Ipv4Addr::LOCALHOST } else { ip };
        let connection = self.tcp.connect(SocketAddrV4::new(ip, to.port), port, now_ns).map_err(refused)?;
        self.get(client, id)?.kind = Kind::Connected(connection);
        self.connections.insert(connection, id);
        self.apply_options(client, id)
    }

    /// Is it connected? `InProgress` while it is not known.
    pub fn connected(&mut self, client: ClientId, id: DescriptionId) -> Result<(), Error> {
        let Kind::Connected(connection) = self.get(client, id)?.kind else { return Err(Error::NotConnected) };
        self.fault(connection)?;
        match self.tcp.socket(connection).map(|socket| socket.state()) {
            Some(State::SynSent | State::SynReceived) => Err(Error::InProgress),
            Some(State::Closed) | None => Err(Error::ConnectionAborted),
            Some(_) => Ok(()),
        }
    }

    /// Ends directions.
    pub fn shutdown(&mut self, client: ClientId, id: DescriptionId, how: Shutdown) -> Result<(), Error> {
        let description = self.get(client, id)?;
        let connection = match description.kind {
            Kind::Connected(connection) => connection,
            Kind::Listening(port) => {
                description.kind = Kind::Fresh;
                self.tcp.unlisten(port);
                return Ok(());
            }
            Kind::Fresh => return Err(Error::NotConnected),
        };
        if how != Shutdown::Write {
            description.read_ended = true;
        }
        if how != Shutdown::Read
            && let Some(socket) = self.tcp.socket_mut(connection)
        {
            socket.close();
        }
        self.wake(id);
        Ok(())
    }

    /// Both addresses.
    pub fn names(
        &mut self,
        client: ClientId,
        id: DescriptionId,
    ) -> Result<(SocketAddress, Option<SocketAddress>), Error> {
        let description = self.get(client, id)?;
        let bound = description.bound.unwrap_or_default();
        let Kind::Connected(connection) = description.kind else { return Ok((bound, None)) };
        let pair = self.tcp.pair(connection).ok_or(Error::NotConnected)?;
        Ok((address_of(pair.local), Some(address_of(pair.remote))))
    }

    /// Bytes that can be read now.
    pub fn available(&mut self, client: ClientId, id: DescriptionId) -> Result<usize, Error> {
        let Kind::Connected(connection) = self.get(client, id)?.kind else { return Err(Error::Invalid) };
        Ok(self.tcp.socket(connection).map_or(0, |socket| socket.recv_queue()))
    }

    /// What holds of `mask`; if nothing does and `watch`, the client is told once when something
    /// does.
    pub fn poll(&mut self, client: ClientId, id: DescriptionId, mask: u32, watch: bool) -> Result<u32, Error> {
        self.get(client, id)?;
        let holds = self.readiness(id) & (mask | ready::ERROR | ready::HANGUP);
        if holds == 0 && watch {
            self.get(client, id)?.watchers.insert(client, mask);
        }
        Ok(holds)
    }

    fn readiness(&self, id: DescriptionId) -> u32 {
        let Some(description) = self.table.get(&id) else { return 0 };
        let connection = match description.kind {
            Kind::Fresh => return ready::WRITE | ready::HANGUP,
            Kind::Listening(port) => return if self.tcp.acceptable(port) { ready::READ } else { 0 },
            Kind::Connected(connection) => connection,
        };
        let fault = if self.tcp.has_fault(connection) { ready::ERROR } else { 0 };
        let Some(socket) = self.tcp.socket(connection) else { return ready::HANGUP | ready::READ };
        if matches!(socket.state(), State::SynSent | State::SynReceived) {
            return fault;
        }
        let ended = !socket.may_recv() || description.read_ended;
        let closed = matches!(socket.state(), State::Closed | State::TimeWait | State::LastAck | State::Closing);
        let bits = [
            (ready::READ, socket.can_recv() || ended || fault != 0),
            (ready::WRITE, socket.can_send() || !socket.may_send()),
            (ready::READ_HANGUP, ended),
            (ready::HANGUP, closed && ended),
        ];
        bits.into_iter().filter(|(_, holds)| *holds).fold(fault, |mask, (bit, _)| mask | bit)
    }

    /// A child gets what its parent holds.
    pub fn inherit(&mut self, parent: ClientId, child: ClientId) {
        for description in self.table.values_mut().filter(|description| description.holders.contains(&parent)) {
            description.holders.insert(child);
        }
    }

    /// Drops a reference.
    pub fn close(&mut self, client: ClientId, id: DescriptionId) -> Result<(), Error> {
        let description = self.get(client, id)?;
        description.holders.remove(&client);
        description.watchers.remove(&client);
        if !description.holders.is_empty() {
            return Ok(());
        }
        self.wake(id);
        let Some(description) = self.table.remove(&id) else { return Ok(()) };
        if let Some(bound) = description.bound {
            self.bound.remove(&bound.port);
        }
        match description.kind {
            Kind::Fresh => {}
            Kind::Listening(port) => self.tcp.unlisten(port),
            Kind::Connected(connection) => {
                self.connections.remove(&connection);
                self.tcp.abandon(connection, description.linger_s == Some(0));
            }
        }
        Ok(())
    }

    /// A client is gone, one of `ids`: all its references are.
    pub fn client_gone(&mut self, ids: RangeInclusive<ClientId>, is_gone: impl Fn(ClientId) -> bool) {
        let of_gone = |(id, description): (&DescriptionId, &Description)| {
            let holders = description.holders.range(ids.clone()).filter(|holder| is_gone(**holder));
            holders.map(|holder| (*holder, *id)).collect::<Vec<_>>()
        };
        let held: Vec<_> = self.table.iter().flat_map(of_gone).collect();
        for (client, id) in held {
            // It holds it: this cannot fail.
            let _ = self.close(client, id);
        }
    }

    /// Wakes `waker` at the description's next change; false if there is none such.
    pub fn wait(&mut self, id: DescriptionId, waker: &Waker) -> bool {
        let Some(description) = self.table.get_mut(&id) else { return false };
        if description.waiters.len() >= WAITERS_MAX {
            description.waiters.drain(..).for_each(Waker::wake);
        }
        description.waiters.push(waker.clone());
        true
    }

    fn wake(&mut self, id: DescriptionId) {
        if let Some(description) = self.table.get_mut(&id) {
            description.waiters.drain(..).for_each(Waker::wake);
        }
    }

    /// After a turn: wakes who waits and gives the events for who watches.
    pub fn settle(&mut self) -> Vec<Ready> {
        let mut events = Vec::new();
        for change in self.tcp.take_changes() {
            let id = match change {
                Change::Connection(connection) => self.connections.get(&connection),
                Change::Listener(port) => self.bound.get(&port),
            };
            let Some(&id) = id else { continue };
            self.wake(id);
            let holds = self.readiness(id);
            let Some(description) = self.table.get_mut(&id) else { continue };
            description.watchers.retain(|&client, mask| {
                let mask = holds & (*mask | ready::ERROR | ready::HANGUP);
                if mask != 0 {
                    events.push(Ready { client, id, mask });
                }
                mask == 0
            });
        }
        events
    }

    pub(crate) fn fault(&mut self, connection: ConnectionId) -> Result<(), Error> {
        match self.tcp.take_fault(connection) {
            None => Ok(()),
            Some(Fault::Reset) => Err(Error::ConnectionReset),
            Some(Fault::Refused) => Err(Error::ConnectionRefused),
            Some(Fault::TimedOut) => Err(Error::TimedOut),
        }
    }
}

fn address_of(address: SocketAddrV4) -> SocketAddress {
    SocketAddress { address: address.ip().octets(), port: address.port() }
}

fn refused(refused: Refused) -> Error {
    match refused {
        Refused::InUse => Error::AddressInUse,
        Refused::NoAddress => Error::Unreachable,
        Refused::TooMany => Error::TooMany,
        Refused::Invalid => Error::Invalid,
    }
}
