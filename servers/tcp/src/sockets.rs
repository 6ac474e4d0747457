//! Descriptions: sockets as programs know them, with references, errors, readiness and the rules of
//! closing.
//!
//! A description is held by reference, one per client domain; with the last reference it ends as
//! Linux would end it: a listener resets what waits, a connection with unread bytes or a linger of
//! 0 is reset, any other sends what was written and then its end. Nothing here waits: what cannot
//! be done now is `WouldBlock`, and [`Sockets::settle`] tells whom a turn concerns.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use contracts::descriptions::{DescriptionError as Error, DescriptionId, WatchFor, Watched, may_have, ready};
use contracts::in_flight::Tickets;
use contracts::sockets::{Accepted, Address, Family, Shutdown, SocketAddress, SocketAddress6, SocketKind};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use core::ops::RangeInclusive;
use core::task::Waker;
use packet::Memory;
use runtime::{Holders, IN_FLIGHT};
use smoltcp::socket::tcp::State;

use crate::changes::Change;
use crate::connection::Fault;
use crate::engine::{ConnectionId, Refused, Tcp};

/// Most descriptions of all clients, of which one may have half: as many as a program begins with
/// room for. Connections are bounded by their memory before.
pub const DESCRIPTIONS_MAX: usize = 2048;
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
    /// Listens to IPv6, from where nobody comes.
    Unheard,
    Connected(ConnectionId),
    Datagrams,
}

pub(crate) struct Description {
    pub(crate) kind: Kind,
    pub(crate) bound: Option<SocketAddress>,
    pub(crate) holders: Holders,
    pub(crate) watchers: BTreeMap<ClientId, Watched>,
    pub(crate) waiters: Vec<Waker>,
    pub(crate) read_ended: bool,
    pub(crate) reuse: bool,
    pub(crate) keep_alive: bool,
    pub(crate) no_delay: bool,
    /// What would go in a short segment waits for more.
    pub(crate) is_corked: bool,
    pub(crate) linger_s: Option<u32>,
    pub(crate) shares_port: bool,
    pub(crate) only_6: bool,
    pub(crate) family: Family,
}

impl Description {
    pub(crate) fn is_datagrams(&self) -> bool {
        matches!(self.kind, Kind::Datagrams)
    }

    /// What it calls an address.
    fn told(&self, own: SocketAddress) -> Address {
        match self.family {
            Family::Internet6 => {
                let ip = Ipv4Addr::from(own.address);
                let mapped = if ip.is_unspecified() { Ipv6Addr::UNSPECIFIED } else { ip.to_ipv6_mapped() };
                Address::Internet6(SocketAddress6 { address: mapped.octets(), port: own.port })
            }
            _ => Address::Internet(own),
        }
    }
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
    /// Who has each port of TCP; several only if all share it.
    pub(crate) bound: BTreeMap<u16, Vec<DescriptionId>>,
    next_id: DescriptionId,
    /// What clients pass to each other.
    pub tickets: Tickets,
}

impl<M: Memory> Sockets<M> {
    /// No descriptions yet.
    pub fn new(tcp: Tcp<M>) -> Sockets<M> {
        Sockets {
            tcp,
            table: BTreeMap::new(),
            connections: BTreeMap::new(),
            bound: BTreeMap::new(),
            next_id: 1,
            tickets: Tickets::default(),
        }
    }

    /// See the contract; so for all that bear the names of its operations.
    pub fn socket(&mut self, client: ClientId, family: Family, kind: SocketKind) -> Result<DescriptionId, Error> {
        let kind = match kind {
            _ if family == Family::Local => return Err(Error::NotSupported),
            SocketKind::Stream => Kind::Fresh,
            SocketKind::Datagram => Kind::Datagrams,
            SocketKind::Packets => return Err(Error::NotSupported),
        };
        self.add(client, family, kind)
    }

    fn add(&mut self, client: ClientId, family: Family, kind: Kind) -> Result<DescriptionId, Error> {
        self.may_add(client)?;
        let id = self.next_id;
        self.next_id += 1;
        let description = Description {
            kind,
            bound: None,
            holders: Holders::of(client),
            watchers: BTreeMap::new(),
            waiters: Vec::new(),
            read_ended: false,
            reuse: false,
            keep_alive: false,
            no_delay: false,
            is_corked: false,
            linger_s: None,
            shares_port: false,
            only_6: false,
            family,
        };
        self.table.insert(id, description);
        match kind {
            Kind::Connected(connection) => drop(self.connections.insert(connection, id)),
            Kind::Datagrams => self.tcp.datagrams.add(id),
            Kind::Fresh | Kind::Listening(_) | Kind::Unheard => {}
        }
        Ok(id)
    }

    /// `TooMany`: the client holds as many as may be, or its share of them.
    fn may_add(&self, client: ClientId) -> Result<(), Error> {
        let own = || self.table.values().filter(|description| description.holders.contains(client)).count();
        if may_have(DESCRIPTIONS_MAX, self.table.len(), own) { Ok(()) } else { Err(Error::TooMany) }
    }

    pub(crate) fn get(&mut self, client: ClientId, id: DescriptionId) -> Result<&mut Description, Error> {
        self.table.get_mut(&id).filter(|description| description.holders.contains(client)).ok_or(Error::BadId)
    }

    /// The IPv4 address that a program means. `Invalid` for one of another family,
    /// `AddressNotAvailable` for one that is IPv6's alone.
    pub fn meant(&mut self, client: ClientId, id: DescriptionId, address: &Address) -> Result<SocketAddress, Error> {
        match (self.get(client, id)?.family, address) {
            (Family::Internet, Address::Internet(address)) => Ok(*address),
            (Family::Internet6, Address::Internet6(SocketAddress6 { address, port })) => {
                let ip = Ipv6Addr::from(*address);
                let any = ip.is_unspecified().then_some(Ipv4Addr::UNSPECIFIED);
                let ip = ip.to_ipv4_mapped().or(any).ok_or(Error::AddressNotAvailable)?;
                Ok(SocketAddress { address: ip.octets(), port: *port })
            }
            _ => Err(Error::Invalid),
        }
    }

    /// What a description calls an address.
    pub fn told(&mut self, client: ClientId, id: DescriptionId, own: SocketAddress) -> Result<Address, Error> {
        self.get(client, id).map(|description| description.told(own))
    }

    /// Binds.
    pub fn bind(&mut self, client: ClientId, id: DescriptionId, address: SocketAddress) -> Result<(), Error> {
        let description = self.get(client, id)?;
        if !matches!(description.kind, Kind::Fresh | Kind::Datagrams) || description.bound.is_some() {
            return Err(Error::Invalid);
        }
        let (is_datagrams, only_6, shares) = (description.is_datagrams(), description.only_6, description.shares_port);
        let ip = Ipv4Addr::from(address.address);
        if !(ip.is_unspecified() || ip.is_loopback() || self.tcp.host() == Some(ip)) {
            return Err(Error::AddressNotAvailable);
        }
        if is_datagrams {
            return self.bind_datagrams(id, end_of(address));
        }
        let is_free = |sockets: &Sockets<M>, port| !sockets.bound.contains_key(&port);
        let port = if address.port == 0 { self.free_port(is_free).ok_or(Error::AddressInUse)? } else { address.port };
        if !only_6 {
            let in_the_way = |other: &DescriptionId| {
                !(shares && self.table.get(other).is_some_and(|description| description.shares_port))
            };
            if self.bound.get(&port).is_some_and(|others| others.iter().any(in_the_way)) {
                return Err(Error::AddressInUse);
            }
            self.bound.entry(port).or_default().push(id);
        }
        self.get(client, id)?.bound = Some(SocketAddress { port, ..address });
        Ok(())
    }

    pub(crate) fn free_port(&mut self, is_free: impl Fn(&Self, u16) -> bool) -> Option<u16> {
        let first = self.tcp.initial_numbers.port();
        let port = |step| FREE_PORTS_FIRST + first.wrapping_add(step) % FREE_PORTS_FIRST;
        (0..FREE_PORTS_FIRST).map(port).find(|port| is_free(self, *port))
    }

    /// Listens; `backlog` connections may wait.
    pub fn listen(&mut self, client: ClientId, id: DescriptionId, backlog: u32) -> Result<(), Error> {
        match self.get(client, id)?.kind {
            Kind::Listening(_) | Kind::Unheard => return Ok(()),
            Kind::Connected(_) => return Err(Error::Invalid),
            Kind::Datagrams => return Err(Error::NotSupported),
            Kind::Fresh => {}
        }
        if self.get(client, id)?.bound.is_none() {
            self.bind(client, id, SocketAddress::default())?;
        }
        let Some(SocketAddress { address, port }) = self.get(client, id)?.bound else { return Err(Error::Failed) };
        if self.get(client, id)?.only_6 {
            self.get(client, id)?.kind = Kind::Unheard;
            return Ok(());
        }
        let only = Some(Ipv4Addr::from(address)).filter(|address| !address.is_unspecified());
        // Who shares the port shares what waits there.
        if !self.is_heard(port) {
            self.tcp.listen(port, only, backlog).map_err(refused)?;
        }
        self.get(client, id)?.kind = Kind::Listening(port);
        Ok(())
    }

    /// Does somebody listen to the port?
    fn is_heard(&self, port: u16) -> bool {
        let listens = |id| self.table.get(id).is_some_and(|known| matches!(known.kind, Kind::Listening(_)));
        self.bound.get(&port).into_iter().flatten().any(listens)
    }

    /// Ends what a description listened to, if nobody else does: it does not any more.
    fn unheard(&mut self, port: u16) {
        if !self.is_heard(port) {
            self.tcp.unlisten(port);
        }
    }

    /// Accepts.
    pub fn accept(&mut self, client: ClientId, id: DescriptionId) -> Result<Accepted, Error> {
        let description = self.get(client, id)?;
        let family = description.family;
        let (keep_alive, no_delay, is_corked) = (description.keep_alive, description.no_delay, description.is_corked);
        let linger_s = description.linger_s;
        let port = match description.kind {
            Kind::Listening(port) => port,
            Kind::Unheard => return Err(Error::WouldBlock),
            Kind::Datagrams => return Err(Error::NotSupported),
            Kind::Fresh | Kind::Connected(_) => return Err(Error::Invalid),
        };
        self.may_add(client)?;
        let connection = self.tcp.accept(port).ok_or(Error::WouldBlock)?;
        let peer = self.tcp.pair(connection).map_or(SocketAddress::default(), |pair| address_of(pair.remote));
        let id = self.add(client, family, Kind::Connected(connection))?;
        // As on Linux it begins with what its listener was told.
        let description = self.get(client, id)?;
        (description.keep_alive, description.no_delay, description.is_corked) = (keep_alive, no_delay, is_corked);
        description.linger_s = linger_s;
        if keep_alive || no_delay {
            self.apply_options(client, id)?;
        }
        Ok(Accepted { id, peer: self.told(client, id, peer)? })
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
            Kind::Fresh | Kind::Datagrams => {}
            Kind::Listening(_) | Kind::Unheard => return Err(Error::Invalid),
            Kind::Connected(_) => return self.connected(client, id).and(Err(Error::AlreadyConnected)),
        }
        let (port, is_datagrams) = (description.bound.map(|bound| bound.port), description.is_datagrams());
        // Linux takes 0.0.0.0 for this machine itself.
        let ip = Ipv4Addr::from(to.address);
        let ip = if ip.is_unspecified() { Ipv4Addr::LOCALHOST } else { ip };
        if is_datagrams {
            return self.connect_datagrams(id, Some(SocketAddrV4::new(ip, to.port)));
        }
        let connection = self.tcp.connect(SocketAddrV4::new(ip, to.port), port, now_ns).map_err(refused)?;
        self.get(client, id)?.kind = Kind::Connected(connection);
        self.connections.insert(connection, id);
        self.apply_options(client, id)
    }

    /// Ends what a description of datagrams is connected to. `Invalid` for others.
    pub fn disconnect(&mut self, client: ClientId, id: DescriptionId) -> Result<(), Error> {
        if self.has_datagrams(client, id)? { self.connect_datagrams(id, None) } else { Err(Error::Invalid) }
    }

    /// Is it connected? `InProgress` while it is not known.
    pub fn connected(&mut self, client: ClientId, id: DescriptionId) -> Result<(), Error> {
        if self.has_datagrams(client, id)? {
            return Ok(());
        }
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
                self.unheard(port);
                return Ok(());
            }
            Kind::Datagrams => return self.shut_datagrams(id, how),
            Kind::Fresh | Kind::Unheard => return Err(Error::NotConnected),
        };
        if how != Shutdown::Write {
            description.read_ended = true;
        }
        if how != Shutdown::Read
            && let Some(connection) = self.tcp.connection_mut(connection)
        {
            connection.release();
            connection.socket_mut().close();
        }
        self.wake(id);
        Ok(())
    }

    /// Both addresses; of a connection that is not there yet, or is over, its own.
    pub fn names(
        &mut self,
        client: ClientId,
        id: DescriptionId,
    ) -> Result<(SocketAddress, Option<SocketAddress>), Error> {
        let description = self.get(client, id)?;
        if description.is_datagrams() {
            return self.datagram_names(id);
        }
        let bound = description.bound.unwrap_or_default();
        let Kind::Connected(connection) = description.kind else { return Ok((bound, None)) };
        let pair = self.tcp.pair(connection).ok_or(Error::NotConnected)?;
        let state = self.tcp.socket(connection).map_or(State::Closed, |socket| socket.state());
        let is_there = !matches!(state, State::Closed | State::SynSent);
        Ok((address_of(pair.local), is_there.then(|| address_of(pair.remote))))
    }

    /// Bytes that can be read now.
    pub fn available(&mut self, client: ClientId, id: DescriptionId) -> Result<usize, Error> {
        let description = self.get(client, id)?;
        if description.is_datagrams() {
            return Ok(self.tcp.datagrams.get(id)?.first().map_or(0, |first| first.bytes.len()));
        }
        let Kind::Connected(connection) = description.kind else { return Err(Error::Invalid) };
        Ok(self.tcp.socket(connection).map_or(0, |socket| socket.recv_queue()))
    }

    /// What holds of `mask`; the client is told once as `watch` says.
    pub fn poll(&mut self, client: ClientId, id: DescriptionId, mask: u32, watch: WatchFor) -> Result<u32, Error> {
        self.get(client, id)?;
        let holds = self.readiness(id) & (mask | ready::ERROR | ready::HANGUP);
        if let Some(watched) = Watched::new(watch, mask, holds) {
            // Another thread of the client may watch for something else.
            let watchers = &mut self.get(client, id)?.watchers;
            watchers.entry(client).and_modify(|known| *known = known.join(watched)).or_insert(watched);
        }
        Ok(holds)
    }

    fn readiness(&self, id: DescriptionId) -> u32 {
        let Some(description) = self.table.get(&id) else { return 0 };
        let connection = match description.kind {
            Kind::Fresh => return ready::WRITE | ready::HANGUP,
            Kind::Unheard => return 0,
            Kind::Datagrams => return self.datagrams_ready(id),
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
            (ready::WRITE, self.tcp.send_room(connection) > 0 || !socket.may_send()),
            (ready::READ_HANGUP, ended),
            (ready::HANGUP, closed && ended),
        ];
        bits.into_iter().filter(|(_, holds)| *holds).fold(fault, |mask, (bit, _)| mask | bit)
    }

    /// A child gets what its parent holds.
    pub fn inherit(&mut self, parent: ClientId, child: ClientId) {
        self.table.values_mut().for_each(|description| description.holders.inherit(parent, child));
    }

    /// Exports what a client holds: a ticket stands for one more reference.
    pub fn export(&mut self, client: ClientId, id: DescriptionId, ticket: u64) -> Result<u64, Error> {
        self.get(client, id)?;
        self.tickets.add(ticket, id, client)?;
        self.get(client, id)?.holders.add(IN_FLIGHT);
        Ok(ticket)
    }

    /// Gives a client a reference to what a ticket stands for.
    pub fn claim(&mut self, client: ClientId, ticket: u64) -> Result<DescriptionId, Error> {
        let id = self.tickets.get(ticket)?;
        self.get(IN_FLIGHT, id)?.holders.add(client);
        Ok(id)
    }

    /// Nobody will claim it any more.
    pub fn settle_ticket(&mut self, ticket: u64) {
        if let Some(id) = self.tickets.settle(ticket) {
            // The message in flight holds it: this cannot fail.
            let _ = self.close(IN_FLIGHT, id);
        }
    }

    /// Drops a reference.
    pub fn close(&mut self, client: ClientId, id: DescriptionId) -> Result<(), Error> {
        let description = self.get(client, id)?;
        description.holders.remove(client);
        if !description.holders.contains(client) {
            description.watchers.remove(&client);
        }
        if !description.holders.is_empty() {
            return Ok(());
        }
        self.wake(id);
        let Some(description) = self.table.remove(&id) else { return Ok(()) };
        if let Some(bound) = description.bound
            && let Some(sharers) = self.bound.get_mut(&bound.port)
        {
            sharers.retain(|sharer| *sharer != id);
            if sharers.is_empty() {
                self.bound.remove(&bound.port);
            }
        }
        match description.kind {
            Kind::Fresh | Kind::Unheard => {}
            Kind::Listening(port) => self.unheard(port),
            Kind::Datagrams => self.tcp.datagrams.remove(id),
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
            let holders = description.holders.among(ids.clone()).filter(|holder| is_gone(*holder));
            holders.map(|holder| (holder, *id)).collect::<Vec<_>>()
        };
        let held: Vec<_> = self.table.iter().flat_map(of_gone).collect();
        for (client, id) in held {
            // It holds it, perhaps more than once: this fails only when it does no longer.
            while self.close(client, id).is_ok() {}
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

    pub(crate) fn wake(&mut self, id: DescriptionId) {
        if let Some(description) = self.table.get_mut(&id) {
            description.waiters.drain(..).for_each(Waker::wake);
        }
    }

    /// After a turn: wakes who waits and gives the events for who watches.
    pub fn settle(&mut self) -> Vec<Ready> {
        let mut events = Vec::new();
        for change in self.tcp.take_changes() {
            match change {
                Change::Connection(connection) => {
                    if let Some(&id) = self.connections.get(&connection) {
                        self.changed(id, &mut events);
                    }
                }
                Change::Listener(port) => {
                    let sharers = self.bound.get(&port).cloned().unwrap_or_default();
                    sharers.into_iter().for_each(|id| self.changed(id, &mut events));
                }
                Change::Datagrams(id) => self.changed(id, &mut events),
            }
        }
        events
    }

    fn changed(&mut self, id: DescriptionId, events: &mut Vec<Ready>) {
        self.wake(id);
        let holds = self.readiness(id);
        let Some(description) = self.table.get_mut(&id) else { return };
        description.watchers.retain(|&client, watched| {
            let mask = watched.at_change(holds);
            if mask != 0 {
                events.push(Ready { client, id, mask });
            }
            mask == 0
        });
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

/// An address of the contract's as the library has it.
pub(crate) fn end_of(address: SocketAddress) -> SocketAddrV4 {
    SocketAddrV4::new(address.address.into(), address.port)
}

pub(crate) fn address_of(address: SocketAddrV4) -> SocketAddress {
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
