//! What programs do to the protocol, through `sockets.rs`: listen, accept, connect, let go.

use contracts::sockets::ConnectionInfo;
use core::net::{Ipv4Addr, SocketAddrV4};
use packet::Memory;
use smoltcp::socket::tcp::{Socket, State};

use crate::connection::{Connection, Fault, Owner};
use crate::engine::{CONNECTIONS_MAX, ConnectionId, Refused, Tcp};
use crate::listener::Listener;
use crate::options::CLOSED;
use crate::segment::Pair;

/// Ports for connections of our own (RFC 6335).
pub(crate) const EPHEMERAL_PORTS: core::ops::RangeInclusive<u16> = 49152..=65535;

impl<M: Memory> Tcp<M> {
    /// Takes connections to a port from now on; `backlog` of them may wait, within `listener.rs`'s
    /// limits.
    pub fn listen(&mut self, port: u16, address: Option<Ipv4Addr>, backlog: u32) -> Result<(), Refused> {
        if self.listeners.contains_key(&port) {
            return Err(Refused::InUse);
        }
        self.listeners.insert(port, Listener::new(address, backlog));
        Ok(())
    }

    /// Stops; what waits there is reset.
    pub fn unlisten(&mut self, port: u16) {
        let Some(listener) = self.listeners.remove(&port) else { return };
        listener.waiting.into_iter().for_each(|id| self.abandon(id, true));
    }

    /// Is a connection to be accepted?
    pub fn acceptable(&self, port: u16) -> bool {
        self.first_acceptable(port).is_some()
    }

    /// The oldest connection that is open.
    pub fn accept(&mut self, port: u16) -> Option<ConnectionId> {
        let id = self.first_acceptable(port)?;
        self.listeners.get_mut(&port)?.remove(id);
        self.connections.get_mut(&id)?.owner = Owner::Description;
        Some(id)
    }

    fn first_acceptable(&self, port: u16) -> Option<ConnectionId> {
        let open = |id: &&ConnectionId| {
            let state = self.connections.get(id).map(|connection| connection.state);
            !matches!(state, None | Some(State::Closed | State::Listen | State::SynSent | State::SynReceived))
        };
        self.listeners.get(&port)?.waiting.iter().find(open).copied()
    }

    /// Begins to connect, from `port` or any.
    pub fn connect(&mut self, remote: SocketAddrV4, port: Option<u16>, now_ns: u64) -> Result<ConnectionId, Refused> {
        let address = if remote.ip().is_loopback() { Some(Ipv4Addr::LOCALHOST) } else { self.host };
        let address = address.ok_or(Refused::NoAddress)?;
        if self.connections.len() >= CONNECTIONS_MAX {
            return Err(Refused::TooMany);
        }
        let pair = |port| Pair { local: SocketAddrV4::new(address, port), remote };
        let port = match port {
            Some(port) => Some(port).filter(|port| !self.pairs.contains_key(&pair(*port))),
            None => self.free_port(pair),
        };
        let pair = pair(port.ok_or(Refused::InUse)?);
        self.time_wait.remove(&pair);
        let (sockets, handle) = self.buffer_pool.take();
        let id = self.next_id();
        let mut connection = Connection::new(sockets, handle, id, pair, Owner::Description, now_ns);
        self.number(pair, now_ns);
        let context = self.interface.context();
        if connection.socket_mut().connect(context, pair.remote, pair.local).is_err() {
            self.buffer_pool.put(connection);
            return Err(Refused::Invalid);
        }
        connection.state = State::SynSent;
        self.insert(connection);
        self.touch(id);
        Ok(id)
    }

    fn free_port(&mut self, pair: impl Fn(u16) -> Pair) -> Option<u16> {
        let first = self.initial_numbers.port();
        for step in 0..EPHEMERAL_PORTS.len() as u16 {
            let port = EPHEMERAL_PORTS.start() + first.wrapping_add(step) % EPHEMERAL_PORTS.len() as u16;
            let taken = self.pairs.contains_key(&pair(port)) || self.listeners.contains_key(&port);
            if !taken && !self.time_wait.contains_key(&pair(port)) {
                return Some(port);
            }
        }
        None
    }

    /// The library's socket of a connection.
    pub fn socket(&self, id: ConnectionId) -> Option<&Socket<'static>> {
        self.connections.get(&id).map(Connection::socket)
    }

    /// The same, to change it; the connection will be polled in this turn.
    pub fn socket_mut(&mut self, id: ConnectionId) -> Option<&mut Socket<'static>> {
        self.touch(id);
        self.connections.get_mut(&id).map(Connection::socket_mut)
    }

    /// The connection, if it is there; it will be polled.
    pub fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.touch(id);
        self.connections.get_mut(&id)
    }

    /// What a program may know of it; of one that is over, that it is.
    pub fn info(&self, id: ConnectionId, now_ns: u64) -> ConnectionInfo {
        let closed = || ConnectionInfo { state: CLOSED, ..ConnectionInfo::default() };
        self.connections.get(&id).map_or_else(closed, |connection| connection.info(now_ns))
    }

    /// Bytes that may be written to it now.
    pub fn send_room(&self, id: ConnectionId) -> usize {
        self.connections.get(&id).map_or(0, Connection::send_room)
    }

    /// Its ends.
    pub fn pair(&self, id: ConnectionId) -> Option<Pair> {
        self.connections.get(&id).map(|connection| connection.record.pair)
    }

    /// Why it ended; told once.
    pub fn take_fault(&mut self, id: ConnectionId) -> Option<Fault> {
        self.connections.get_mut(&id)?.fault.take()
    }

    /// Is a fault to be told?
    pub fn has_fault(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.fault.is_some())
    }

    /// Its program lets go. `reset`: now, after as much of what was written as may be sent now;
    /// else all of that is still sent, then it ends in order.
    pub fn abandon(&mut self, id: ConnectionId, reset: bool) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Owner::Listener(port) = core::mem::replace(&mut connection.owner, Owner::Nobody)
            && let Some(listener) = self.listeners.get_mut(&port)
        {
            listener.remove(id);
        }
        let unread = connection.socket().recv_queue() > 0;
        if connection.is_gone() {
            return self.remove(id);
        }
        if reset || unread {
            connection.is_to_reset = true;
        } else {
            connection.release();
            connection.socket_mut().close();
        }
        self.touch(id);
    }

    /// It will be polled in this turn.
    pub fn touch(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !core::mem::replace(&mut connection.dirty, true)
        {
            self.dirty.push_back(id);
        }
    }
}
