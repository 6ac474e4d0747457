//! The protocol as a step machine: demultiplexing, listeners, timers, TIME-WAIT and what happens
//! after a link came back.
//!
//! One turn: packets in ([`Tcp::received`]), operations of programs ([`Tcp::touch`] marks what they
//! changed), then [`Tcp::turn`] polls exactly the connections that have something to do, so that
//! what a turn wrote leaves in as few segments as it can.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use packet::{BufferSet, MTU, Memory, Pool, Span};
use smoltcp::iface::{Config, Interface, PollResult, SocketSet};
use smoltcp::socket::tcp::State;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr, IpProtocol, Ipv4Cidr, Ipv4Packet};

use crate::changes::{Change, Changes};
use crate::connection::{BufferPool, Connection, Fault, Owner};
use crate::datagrams::Datagrams;
use crate::isn::{InitialNumbers, seed_for};
use crate::listener::{DropCause, Listener, Notice, Tally};
use crate::record::Record;
use crate::segment::{Pair, Segment, shortened, with_acknowledgement};
use crate::time_wait::TimeWait;
use crate::wire::{LOCAL_MAX, Wire};

/// Names a connection; never used again.
pub type ConnectionId = u64;

/// Most connections at once: with 129 KiB each they fill 65 of the 80 MiB TCP may have.
pub const CONNECTIONS_MAX: usize = 512;
/// A half-open connection is dropped after this.
const HALF_OPEN_NS: u64 = 10_000_000_000;
/// An own attempt to connect fails after this.
const CONNECT_NS: u64 = 60_000_000_000;
/// A peer that leaves data unacknowledged this long is given up (Linux: about 15 minutes).
const GIVE_UP_NS: u64 = 900_000_000_000;
/// An ended connection nobody holds waits this long for the peer's end (Linux: tcp_fin_timeout).
const ORPHAN_NS: u64 = 60_000_000_000;
/// Segments of one connection in one go, so that one does not take the turn of all.
pub(crate) const BURST: usize = 64;
/// Rounds of a turn for packets between programs of this machine.
const ROUNDS: usize = 16;
/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The port has a listener, or all ports are in use.
    InUse,
    /// We have no address, or not this one.
    NoAddress,
    /// Connections are at their limit.
    TooMany,
    /// No such destination can be.
    Invalid,
}

/// What happened to segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments that came.
    pub segments: u64,
    /// Of those, malformed or with a wrong checksum, or a span outside the pool.
    pub bad: u64,
    /// SYNs dropped because a queue or the table was full.
    pub dropped_syns: u64,
    /// Segments for nobody.
    pub no_socket: u64,
    /// Segments with nothing but what was acknowledged before, left without one more answer.
    pub old: u64,
    /// Times that connections were told of a link that came back.
    pub resumes: u64,
    /// Buffers named as sent that were not out.
    pub bad_sent: u64,
}

/// For IP: packets to send and receive buffers to give back.
#[derive(Debug, Default)]
pub struct Output {
    /// Packets.
    pub send: Vec<Span>,
    /// Buffers.
    pub released: Vec<u16>,
}

/// TCP.
pub struct Tcp<M> {
    pub(crate) interface: Interface,
    pub(crate) wire: Wire<M>,
    pub(crate) receive: Pool<M>,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) pairs: BTreeMap<Pair, ConnectionId>,
    pub(crate) listeners: BTreeMap<u16, Listener>,
    pub(crate) datagrams: Datagrams,
    pub(crate) time_wait: BTreeMap<Pair, TimeWait>,
    pub(crate) time_wait_order: VecDeque<Pair>,
    pub(crate) timers: BTreeSet<(u64, ConnectionId)>,
    pub(crate) dirty: VecDeque<ConnectionId>,
    pub(crate) changes: Changes,
    notices: Vec<Notice>,
    given_up: Tally,
    pub(crate) buffer_pool: BufferPool,
    pub(crate) empty_set: SocketSet<'static>,
    pub(crate) host: Option<Ipv4Addr>,
    pub(crate) released: Vec<u16>,
    pub(crate) next_id: ConnectionId,
    pub(crate) initial_numbers: InitialNumbers,
    pub(crate) counters: Counters,
}

impl<M: Memory> Tcp<M> {
    /// TCP over the two pools. `secret`, from the best source there is, makes sequence numbers and
    /// ports hard to guess.
    pub fn new(receive: M, transmit: M, secret: [u8; 16]) -> Tcp<M> {
        let mut wire = Wire::new(transmit);
        let config = Config::new(HardwareAddress::Ip);
        Tcp {
            interface: Interface::new(config, &mut wire, Instant::ZERO),
            wire,
            receive: Pool::new(receive),
            connections: BTreeMap::new(),
            pairs: BTreeMap::new(),
            listeners: BTreeMap::new(),
            datagrams: Datagrams::default(),
            time_wait: BTreeMap::new(),
            time_wait_order: VecDeque::new(),
            timers: BTreeSet::new(),
            dirty: VecDeque::new(),
            changes: Changes::default(),
            notices: Vec::new(),
            given_up: Tally::default(),
            buffer_pool: BufferPool::default(),
            empty_set: SocketSet::new(Vec::new()),
            host: None,
            released: Vec::new(),
            next_id: 1,
            initial_numbers: InitialNumbers::new(secret),
            counters: Counters::default(),
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Our address.
    pub fn host(&self) -> Option<Ipv4Addr> {
        self.host
    }

    /// The host's address changed. Connections of the old one end.
    pub fn set_host(&mut self, host: Option<(Ipv4Addr, u8)>) {
        let own = host.filter(|(address, bits)| crate::wire::is_host(*address) && *bits <= 32);
        self.host = own.map(|(address, _)| address);
        self.wire.set_own(self.host);
        self.interface.update_ip_addrs(|addresses| {
            addresses.clear();
            let all = [Some((Ipv4Addr::LOCALHOST, 8)), own];
            // The library's table has two places, for these two.
            all.into_iter().flatten().for_each(|(address, bits)| {
                let _ = addresses.push(IpCidr::Ipv4(Ipv4Cidr::new(address, bits)));
            });
        });
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        all.into_iter().for_each(|id| self.touch(id));
    }

    /// IP began, or began again: what was on its way is sent again as it is, except what is `busy`
    /// with the device and what has left the machine. If the link was not `kept` packets may be
    /// lost: see [`Tcp::resume`]. Gives how many packets go again.
    pub fn attached(&mut self, busy: &BufferSet, kept: bool, now_ns: u64) -> usize {
        self.released.clear();
        let again = self.wire.restart(busy);
        self.datagrams_may_go();
        if !kept {
            self.resume(now_ns);
        }
        again
    }

    /// Transmit buffers that are free.
    pub fn free_buffers(&self) -> usize {
        self.wire.free()
    }

    /// IP has sent these.
    pub fn sent(&mut self, buffers: &[u16], now_ns: u64) {
        self.wire.set_now(now_ns);
        for &buffer in buffers {
            self.counters.bad_sent += u64::from(!self.wire.freed(buffer));
        }
        for (pair, first) in self.wire.take_sent_late() {
            let Some(&id) = self.pairs.get(&pair) else { continue };
            if self.connections.get_mut(&id).is_some_and(|connection| connection.sent_late(first, now_ns)) {
                self.touch(id);
            }
        }
        self.datagrams_may_go();
    }

    /// Packets from IP.
    pub fn received(&mut self, packets: &[Span], now_ns: u64) {
        self.wire.set_now(now_ns);
        for &packet in packets {
            let mut bytes = [0; MTU];
            let read = self.receive.read(packet, &mut bytes).map(|bytes| &*bytes);
            match read {
                Ok(bytes) => match Ipv4Packet::new_checked(bytes).map(|packet| packet.next_header()) {
                    Ok(IpProtocol::Udp) => self.datagram_arrived(bytes, now_ns),
                    Ok(IpProtocol::Icmp) => self.refusal_arrived(bytes),
                    _ => self.arrived(bytes, true, now_ns),
                },
                Err(_) => self.counters.bad += 1,
            }
            self.released.push(packet.buffer);
        }
    }

    /// Polls what has something to do.
    pub fn turn(&mut self, now_ns: u64) {
        self.wire.set_now(now_ns);
        while let Some(&(when, id)) = self.timers.first()
            && when <= now_ns
        {
            self.timers.pop_first();
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.timer_ns = None;
            }
            self.touch(id);
        }
        for _ in 0..ROUNDS {
            for _ in 0..self.dirty.len() {
                let Some(id) = self.dirty.pop_front() else { break };
                self.flush(id, now_ns);
            }
            let mut turned = false;
            for _ in 0..LOCAL_MAX {
                let Some(packet) = self.wire.take_local() else { break };
                // It never left this memory, so nobody made a checksum.
                self.arrived(&packet, false, now_ns);
                turned = true;
            }
            if !turned {
                break;
            }
        }
    }

    /// When `turn` is due next if nothing comes; `None` while nothing waits.
    pub fn next_ns(&self) -> Option<u64> {
        // What is dirty and cannot send waits for a buffer, not for time.
        let busy = self.wire.has_local() || !self.dirty.is_empty() && self.wire.can_send();
        if busy { Some(0) } else { self.timers.first().map(|(when, _)| *when) }
    }

    /// What IP gets.
    pub fn take_output(&mut self) -> Output {
        Output { send: self.wire.take_out(), released: core::mem::take(&mut self.released) }
    }

    /// What programs may want to know, each once, in the order of arrival.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.changes.take()
    }

    /// What is for the log.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        core::mem::take(&mut self.notices)
    }

    /// Every connection's record.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.connections.values().map(|connection| Record { phase: connection.phase(), ..connection.record })
    }

    /// A private copy of a segment; `verify` if it came from outside.
    fn arrived(&mut self, packet: &[u8], verify: bool, now_ns: u64) {
        self.counters.segments += 1;
        let Some(segment) = Segment::decode(packet, verify) else {
            self.counters.bad += 1;
            return;
        };
        let pair = segment.received_pair();
        let opening = segment.syn && segment.acknowledged.is_none() && !segment.reset;
        if let Some(&id) = self.pairs.get(&pair) {
            return self.deliver(id, packet, &segment, now_ns);
        }
        if self.answer_late(pair, &segment, now_ns) {
            return;
        }
        if opening
            && let Some(listener) = self.listeners.get_mut(&pair.local.port())
            && listener.listens_at(*pair.local.ip())
        {
            let (cause, most) = match listener.has_room() {
                true if self.connections.len() < CONNECTIONS_MAX => return self.open(pair, packet, &segment, now_ns),
                true => (DropCause::Connections, CONNECTIONS_MAX),
                false => (DropCause::Backlog, listener.most),
            };
            self.counters.dropped_syns += 1;
            if let Some(dropped) = listener.refuse(now_ns) {
                self.notices.push(Notice::NotTaken { port: pair.local.port(), cause, dropped, most });
            }
            return;
        }
        self.counters.no_socket += 1;
        self.wire.offer(packet);
        let now = Instant::from_micros((now_ns / 1000) as i64);
        self.interface.poll_ingress_single(now, &mut self.wire, &mut self.empty_set);
        self.wire.take_sent();
    }

    pub(crate) fn deliver(&mut self, id: ConnectionId, packet: &[u8], segment: &Segment, now_ns: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let opening = connection.state == State::SynSent;
        let was_readable = connection.is_readable();
        let alone = connection.acknowledged_alone(segment);
        // It leaves the bytes, too, of one whose acknowledgement was overtaken.
        let renewed = connection.record.renewed(segment);
        let renewed = renewed.map(|(number, window)| with_acknowledgement(packet, number, window));
        let packet = renewed.as_deref().unwrap_or(packet);
        // The library takes the window of its SYN for a scaled one, and too much for it is its end;
        // of a segment that does not fit it leaves bytes and takes the end of the stream.
        let fitting = connection.record.fitting(segment).map(|bytes| shortened(packet, bytes));
        let packet = fitting.as_deref().unwrap_or(packet);
        let is_answered = !connection.record.is_old(segment) || connection.quiet.may_answer_old(now_ns);
        connection.received(segment, now_ns);
        for packet in [alone.as_ref().map(|alone| &alone[..]), is_answered.then_some(packet)].into_iter().flatten() {
            let now = connection.instant(now_ns);
            self.wire.suppress(connection.suppressed(now_ns));
            self.wire.offer(packet);
            self.interface.poll_ingress_single(now, &mut self.wire, &mut connection.sockets);
            self.wire.suppress(None);
            for answer in self.wire.take_sent() {
                connection.sent(&answer, now_ns);
            }
            if self.wire.take_suppressed() {
                connection.quiet.suppressed();
            }
        }
        if !is_answered {
            self.counters.old += 1;
            if alone.is_none() {
                return;
            }
        }
        if segment.reset && connection.socket().state() == State::Closed {
            connection.fault = connection.fault.or(Some(if opening { Fault::Refused } else { Fault::Reset }));
        }
        if connection.is_readable() && !was_readable {
            self.changes.note_arrival(Change::Connection(id));
        } else {
            self.changes.note(Change::Connection(id));
        }
        self.touch(id);
        self.settle(id, now_ns);
    }

    /// A SYN that a listener takes: a connection of its own for it.
    fn open(&mut self, pair: Pair, packet: &[u8], segment: &Segment, now_ns: u64) {
        let (sockets, handle) = self.buffer_pool.take();
        let id = self.next_id();
        let owner = Owner::Listener(pair.local.port());
        let mut connection = Connection::new(sockets, handle, id, pair, owner, now_ns);
        if connection.socket_mut().listen(pair.local).is_err() {
            return self.buffer_pool.put(connection);
        }
        connection.state = State::Listen;
        self.insert(connection);
        if let Some(listener) = self.listeners.get_mut(&pair.local.port()) {
            listener.waiting.push_back(id);
        }
        self.number(pair, now_ns);
        self.deliver(id, packet, segment, now_ns);
    }

    /// The next connection that the library opens has our sequence number.
    pub(crate) fn number(&mut self, pair: Pair, now_ns: u64) {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed_for(self.initial_numbers.sequence(&pair, now_ns));
        let addresses: Vec<IpCidr> = self.interface.ip_addrs().to_vec();
        self.interface = Interface::new(config, &mut self.wire, Instant::ZERO);
        self.interface.update_ip_addrs(|own| own.extend(addresses));
    }

    /// Lets one connection send what it wants to and notes when it wants to be asked again.
    fn flush(&mut self, id: ConnectionId, now_ns: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.dirty = false;
        if connection.cork.is_due(now_ns) {
            connection.release();
        }
        self.wire.aim(connection.record.pair.remote);
        let waits_here = |pair: &Pair, number| self.wire.has_on_the_way(pair, number);
        if let Some(again) = connection.repeats_now(waits_here, now_ns) {
            self.repeat(id, again, now_ns);
            // There is room for one segment more.
            self.changes.note(Change::Connection(id));
        }
        self.tell_after_all(id, now_ns);
        let mut more = self.send(id, now_ns);
        if !more && self.resets_now(id, now_ns) {
            more = self.send(id, now_ns);
        }
        self.give_up(id, now_ns);
        self.settle(id, now_ns);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let now = connection.instant(now_ns);
        // The library's own TIME-WAIT would throw unread data away.
        let wish =
            if connection.state == State::TimeWait { None } else { self.interface.poll_at(now, &connection.sockets) };
        let is_due = more || wish.is_some_and(|when| when <= now);
        let ahead = wish.map(|when| now_ns + (when - now).total_micros().saturating_mul(1000).max(1000));
        let resets = connection.resets_at_ns(self.wire.is_aimed_here()).filter(|due_ns| *due_ns > now_ns);
        let held = connection.cork.due_ns();
        let others = [connection.repeats_at_ns(), connection.quiet.due_ns(), deadline(connection), resets, held];
        let timer = others.into_iter().chain([ahead.filter(|_| !is_due)]).flatten().min();
        self.set_timer(id, timer);
        if is_due {
            self.touch(id);
        }
    }

    /// Sends what may be sent at once; whether there is more of it than fits into a turn.
    fn send(&mut self, id: ConnectionId, now_ns: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let now = connection.instant(now_ns);
        for _ in 0..BURST {
            let result = self.interface.poll_egress(now, &mut self.wire, &mut connection.sockets);
            for segment in self.wire.take_sent() {
                connection.sent(&segment, now_ns);
            }
            if result == PollResult::None {
                return false;
            }
        }
        true
    }

    /// Resets what is to be reset, unless something of it waits for a buffer, or for its
    /// acknowledgement (`RESET_AFTER_NS`). As in Linux, where a write sends by itself, a peer has
    /// what was written and fits its window before it has the reset.
    fn resets_now(&mut self, id: ConnectionId, now_ns: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let due_ns = connection.resets_at_ns(self.wire.is_aimed_here());
        if due_ns.is_none_or(|due_ns| now_ns < due_ns) {
            return false;
        }
        let now = connection.instant(now_ns);
        if self.interface.poll_at(now, &connection.sockets).is_some_and(|when| when <= now) {
            return false;
        }
        connection.is_to_reset = false;
        connection.socket_mut().abort();
        true
    }

    /// Ends what the peer has left alone for too long.
    fn give_up(&mut self, id: ConnectionId, now_ns: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if deadline(connection).is_none_or(|deadline| now_ns < deadline) || connection.is_gone() {
            return;
        }
        if connection.owner != Owner::Nobody {
            connection.fault = connection.fault.or(Some(Fault::TimedOut));
        }
        connection.socket_mut().abort();
        let (now, pair) = (connection.instant(now_ns), connection.record.pair);
        if connection.record.unacknowledged()
            && !matches!(connection.state, State::SynReceived | State::SynSent)
            && let Some(count) = self.given_up.add(now_ns)
        {
            self.notices.push(Notice::GivenUp { pair, count });
        }
        self.wire.aim(connection.record.pair.remote);
        self.interface.poll_egress(now, &mut self.wire, &mut connection.sockets);
        self.wire.take_sent();
    }

    /// Draws the consequences of a new state.
    pub(crate) fn settle(&mut self, id: ConnectionId, now_ns: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (before, state) = (connection.state, connection.socket().state());
        connection.state = state;
        if before != state {
            self.changes.note(Change::Connection(id));
            if let Owner::Listener(port) = connection.owner {
                self.changes.note(Change::Listener(port));
            }
        }
        let is_left = connection.owner == Owner::Nobody && connection.socket().recv_queue() > 0;
        if is_left && state != State::Closed && !core::mem::replace(&mut connection.is_to_reset, true) {
            // Nobody will read it: say so, as Linux does.
            self.touch(id);
            return;
        }
        if state == State::TimeWait && connection.owner == Owner::Nobody {
            self.remember(id, now_ns);
            return self.remove(id);
        }
        if connection.is_gone() {
            match connection.owner {
                Owner::Description => {
                    let pair = connection.record.pair;
                    self.pairs.remove(&pair);
                }
                Owner::Listener(_) | Owner::Nobody => self.remove(id),
            }
        }
    }

    pub(crate) fn insert(&mut self, connection: Connection) {
        self.pairs.insert(connection.record.pair, connection.record.connection);
        self.connections.insert(connection.record.connection, connection);
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.remove(&id) else { return };
        if self.pairs.get(&connection.record.pair) == Some(&id) {
            self.pairs.remove(&connection.record.pair);
        }
        if let Some(timer) = connection.timer_ns {
            self.timers.remove(&(timer, id));
        }
        if let Owner::Listener(port) = connection.owner
            && let Some(listener) = self.listeners.get_mut(&port)
        {
            listener.remove(id);
        }
        self.buffer_pool.put(connection);
    }

    fn set_timer(&mut self, id: ConnectionId, timer: Option<u64>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(old) = core::mem::replace(&mut connection.timer_ns, timer) {
            self.timers.remove(&(old, id));
        }
        if let Some(new) = timer {
            self.timers.insert((new, id));
        }
    }

    pub(crate) fn next_id(&mut self) -> ConnectionId {
        self.next_id += 1;
        self.next_id - 1
    }
}

/// When patience with a connection ends; not again for one that is over and still held.
fn deadline(connection: &Connection) -> Option<u64> {
    let patience = match (connection.state, connection.owner) {
        (State::Closed, _) => return None,
        (State::SynReceived | State::Listen, _) => HALF_OPEN_NS,
        (State::SynSent, _) => CONNECT_NS,
        _ if connection.record.unacknowledged() => GIVE_UP_NS,
        (_, Owner::Nobody) => ORPHAN_NS,
        _ => return None,
    };
    Some(connection.heard_ns.saturating_add(patience))
}
