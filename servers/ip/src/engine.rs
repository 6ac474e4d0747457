//! The step machine: what is known, what is on its way, and what is to be passed on.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use packet::{BUFFERS, BufferSet, HEADROOM, IP_TRANSMIT_BUFFERS, MTU, Memory, Number, Pool, Span};
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, IpAddress, IpProtocol,
    Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};

use crate::address::Host;
use crate::counters::Counters;
use crate::dhcp::{Change, Dhcp, Lease, Message};
use crate::neighbours::{Neighbours, Resolution};
use crate::state::{self, Kept};

/// Bytes of an Ethernet header.
pub(crate) const ETHERNET_BYTES: usize = 14;
/// Packets wait so long for a TCP to attach. They may be all that the pool has, and then ARP and
/// DHCP wait with them.
const EARLY_NS: u64 = 1_000_000_000;
/// DHCP client and server ports.
pub(crate) const DHCP_PORTS: (u16, u16) = (68, 67);
const IPV4_HEADER_BYTES: usize = 20;

/// What the driver said when we attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its Ethernet address.
    pub ethernet: EthernetAddress,
    /// Transmit buffers still with the device.
    pub busy: BufferSet,
    /// Nothing that the device had was lost.
    pub kept: bool,
    /// Of the next frame; of its epoch the device has those before and no other.
    pub next: Number,
}

/// A frame that was given to a driver and not yet reported as read.
#[derive(Clone, Copy)]
struct Sent {
    /// A length of 0 stands for a frame of our predecessor.
    frame: Span,
    /// `None`: no driver was there.
    number: Option<Number>,
}

/// What TCP is told when it attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Our address, if there is one.
    pub host: Option<Host>,
    /// Its transmit buffers that are still on their way. Of the others, those with a number have
    /// left.
    pub busy: BufferSet,
    /// Nothing was lost by a reset that no TCP was told of.
    pub kept: bool,
}

/// What is to be passed on; taken as a whole at the end of a turn.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// To the driver: frames to send,
    pub transmit: Vec<Span>,
    /// receive buffers it may use again.
    pub released: Vec<u16>,
    /// To TCP: packets that arrived,
    pub received: Vec<Span>,
    /// transmit buffers that are free,
    pub sent: Vec<u16>,
    /// a changed address,
    pub address: Option<Option<Host>>,
    /// and that the card is back, which lost packets.
    pub resumed: bool,
}

/// IP.
pub struct Ip<M> {
    pub(crate) receive: Pool<M>,
    pub(crate) transmit: Pool<M>,
    state: M,
    pub(crate) ethernet: EthernetAddress,
    attached: bool,
    pub(crate) host: Option<Host>,
    pub(crate) neighbours: Neighbours,
    pub(crate) dhcp: Option<Dhcp>,
    lease: Option<Lease>,
    fixed: bool,
    /// Own transmit buffers that are free.
    own: BufferSet,
    /// Oldest first.
    on_the_way: VecDeque<Sent>,
    /// The next one's.
    next: Number,
    /// Receive buffers that TCP has.
    with_tcp: BufferSet,
    /// Packets that came before TCP attached, as those do that our predecessor left.
    early: Vec<Span>,
    /// When those have waited long enough.
    early_until_ns: Option<u64>,
    pub(crate) tcp: bool,
    /// A reset of the device that no TCP was told of.
    is_untold: bool,
    pub(crate) counters: Counters,
    pub(crate) output: Output,
}

impl<M: Memory> Ip<M> {
    /// IP over its two pools and the region that survives it. With a `fixed` address no DHCP is
    /// spoken; else what the region has is used until its end.
    pub fn new(receive: M, transmit: M, state: M, fixed: Option<Host>) -> Ip<M> {
        let Kept { lease, neighbours } = state::recall(&state);
        let lease = lease.filter(|_| fixed.is_none());
        Ip {
            receive: Pool::new(receive),
            transmit: Pool::new(transmit),
            state,
            ethernet: EthernetAddress([0; 6]),
            attached: false,
            host: fixed.or(lease.map(|lease| lease.host)),
            neighbours: Neighbours::adopt(neighbours.into_iter()),
            dhcp: None,
            lease,
            fixed: fixed.is_some(),
            own: BufferSet::range(0, IP_TRANSMIT_BUFFERS),
            on_the_way: VecDeque::new(),
            next: Number { epoch: 0, number: 0 },
            with_tcp: BufferSet::EMPTY,
            early: Vec::new(),
            early_until_ns: None,
            tcp: false,
            is_untold: false,
            counters: Counters::default(),
            output: Output::default(),
        }
    }

    /// Our address.
    pub fn host(&self) -> Option<Host> {
        self.host
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The driver is gone or new: gives the receive buffers we hold, to be said in `attach`.
    pub fn detach_driver(&mut self) -> BufferSet {
        self.attached = false;
        self.output.transmit.clear();
        self.output.released.clear();
        self.early.iter().fold(self.with_tcp, |mut held, packet| {
            held.insert(packet.buffer);
            held
        })
    }

    /// The driver answered `attach`. What the device has not read goes to it again, in order; of a
    /// device that was reset nobody knows that.
    pub fn attach_driver(&mut self, link: Link, now_ns: u64) {
        self.attached = true;
        if self.ethernet != link.ethernet {
            self.ethernet = link.ethernet;
            // The first link, or a swapped device: what waits was addressed with nothing better,
            // and stays.
            self.rewrite_sources();
        }
        if self.dhcp.is_none() && !self.fixed {
            // A seed of the address and the time: two machines started together still differ.
            let seed = self.ethernet.0.iter().fold(now_ns as u32, |seed, byte| seed.rotate_left(5) ^ u32::from(*byte));
            self.dhcp = Some(Dhcp::new(self.ethernet, self.lease, seed, now_ns));
        }
        let known = self.with_device();
        // Our predecessor's frames still with the device come back like our own.
        for buffer in link.busy.without(&known).iter() {
            self.on_the_way.push_back(Sent { frame: Span { buffer, offset: 0, length: 0 }, number: None });
            self.own.remove(buffer);
        }
        self.output.transmit.clear();
        // What is ours and was not read goes out (again); a predecessor's frame that the device
        // does not have is done.
        self.next = link.next;
        let is_read = |number: Number| number.is_before(link.next);
        self.forget_unread();
        let mut done = Vec::new();
        for sent in self.on_the_way.iter_mut().filter(|sent| !link.busy.contains(sent.frame.buffer)) {
            if sent.frame.length == 0 || sent.number.is_some_and(is_read) {
                done.push(sent.frame.buffer);
                continue;
            }
            sent.number = Some(next(&mut self.next));
            // A buffer that was written before can be written again.
            let _ = self.transmit.set_number(sent.frame.buffer, sent.number);
            self.output.transmit.push(sent.frame);
        }
        self.counters.resubmitted += self.output.transmit.len() as u64;
        self.transmitted(&done);
        if !link.kept {
            self.lost();
        }
    }

    /// The device was reset: packets may be lost.
    pub fn lost(&mut self) {
        if self.tcp {
            self.output.resumed = true;
        } else {
            self.is_untold = true;
        }
    }

    /// Is a driver attached?
    pub fn driver_attached(&self) -> bool {
        self.attached
    }

    /// TCP began, or begins again, and holds no receive buffer.
    pub fn attach_tcp(&mut self) -> Attached {
        self.detach_tcp();
        self.tcp = true;
        self.early_until_ns = None;
        core::mem::take(&mut self.early).into_iter().for_each(|packet| self.pass_to_tcp(packet));
        let busy = self.with_device().without(&BufferSet::range(0, IP_TRANSMIT_BUFFERS));
        Attached { host: self.host, busy, kept: !core::mem::take(&mut self.is_untold) }
    }

    /// Takes the numbers away from TCP's packets that the device did not read, as far as is known:
    /// a predecessor of ours gave them to a driver that did not come to them.
    fn forget_unread(&self) {
        for buffer in IP_TRANSMIT_BUFFERS..BUFFERS {
            if self.transmit.number(buffer).is_some_and(|number| !number.is_before(self.next)) {
                // A number that was read can be written.
                let _ = self.transmit.set_number(buffer, None);
            }
        }
    }

    /// Buffers of frames that are on their way.
    fn with_device(&self) -> BufferSet {
        self.on_the_way.iter().fold(BufferSet::EMPTY, |mut set, sent| {
            set.insert(sent.frame.buffer);
            set
        })
    }

    /// TCP is gone: its receive buffers go back, the packets it wanted to send and that wait for a
    /// neighbour are dropped.
    pub fn detach_tcp(&mut self) {
        self.tcp = false;
        self.output.released.extend(self.with_tcp.iter());
        self.with_tcp = BufferSet::EMPTY;
        self.output.received.clear();
        self.output.sent.clear();
        let waiting = self.neighbours.flush_waiting();
        self.free_unsent(waiting);
        self.output.sent.clear();
    }

    /// Packets from TCP.
    pub fn send(&mut self, packets: &[Span], now_ns: u64) {
        for &packet in packets {
            self.counters.from_tcp += 1;
            let mut header = [0; IPV4_HEADER_BYTES];
            let ours = usize::from(packet.offset) >= HEADROOM && packet.buffer >= IP_TRANSMIT_BUFFERS;
            let fits = (IPV4_HEADER_BYTES..=MTU).contains(&usize::from(packet.length));
            let twice = self.on_the_way.iter().rev().any(|sent| sent.frame.buffer == packet.buffer);
            if !ours || !fits || twice || self.transmit.read(packet, &mut header).is_err() {
                self.counters.bad_send += 1;
                continue;
            }
            let destination = Ipv4Packet::new_unchecked(&header[..]).dst_addr();
            self.route(packet, destination, now_ns);
        }
    }

    /// Receive buffers from TCP.
    pub fn release_buffers(&mut self, buffers: &[u16]) {
        for &buffer in buffers {
            if self.with_tcp.remove(buffer) {
                self.output.released.push(buffer);
            } else {
                self.counters.bad_releases += 1;
            }
        }
    }

    /// The driver's device has read these.
    pub fn transmitted(&mut self, buffers: &[u16]) {
        for &buffer in buffers {
            let Some(index) = self.on_the_way.iter().position(|sent| sent.frame.buffer == buffer) else { continue };
            self.on_the_way.remove(index);
            self.free(buffer);
        }
    }

    /// Does what is due.
    pub fn poll(&mut self, now_ns: u64) {
        if self.attached {
            if self.early_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
                self.drop_early();
            }
            let due = self.neighbours.poll(now_ns);
            due.ask.into_iter().for_each(|address| self.ask(address));
            self.counters.unreachable += due.given_up.len() as u64;
            self.free_unsent(due.given_up);
            let (message, change) = self.dhcp.as_mut().map_or((None, None), |dhcp| dhcp.poll(now_ns));
            self.apply(change);
            if let Some(message) = message {
                self.send_dhcp(&message, now_ns);
            }
        }
    }

    /// When `poll` is due next; `None` while nothing is pending.
    pub fn next_ns(&self) -> Option<u64> {
        let dhcp = self.dhcp.as_ref().map(Dhcp::next_ns);
        let timers = [dhcp, self.neighbours.next_ns(), self.early_until_ns];
        if self.attached { timers.into_iter().flatten().min() } else { None }
    }

    /// What to pass on. While no driver is attached what is for it stays inside, and so for TCP.
    pub fn take_output(&mut self) -> Output {
        let mut output = core::mem::take(&mut self.output);
        if !self.attached {
            // Frames are on the way already and go out when a driver attaches.
            output.transmit.clear();
            // A buffer given back between `detach_driver` and the driver's answer was in the set we
            // said we hold.
            self.output.released = core::mem::take(&mut output.released);
        }
        output
    }

    /// A packet for TCP waits until there is one; false if as many do as the pool has buffers:
    /// then the driver tells some twice.
    pub(crate) fn keep_for_tcp(&mut self, packet: Span, now_ns: u64) -> bool {
        let has_room = self.early.len() < usize::from(BUFFERS);
        if has_room {
            self.early_until_ns.get_or_insert(now_ns.saturating_add(EARLY_NS));
            self.early.push(packet);
        }
        has_room
    }

    /// No TCP came for them.
    fn drop_early(&mut self) {
        self.early_until_ns = None;
        self.counters.no_tcp += self.early.len() as u64;
        self.output.released.extend(self.early.drain(..).map(|packet| packet.buffer));
    }

    /// A packet for TCP: its buffer is TCP's until it comes back.
    pub(crate) fn pass_to_tcp(&mut self, packet: Span) {
        self.with_tcp.insert(packet.buffer);
        self.counters.to_tcp += 1;
        self.output.received.push(packet);
    }

    /// A changed lease.
    pub(crate) fn apply(&mut self, change: Option<Change>) {
        let Some(change) = change else { return };
        self.lease = if let Change::Leased(lease) = change { Some(lease) } else { None };
        let host = self.lease.map(|lease| lease.host);
        if self.host != host {
            self.host = host;
            self.output.address = Some(host);
            let waiting = self.neighbours.clear();
            self.free_unsent(waiting);
        }
        self.keep();
    }

    /// Writes down what a successor needs.
    pub(crate) fn keep(&self) {
        // A region that is too small costs a recovery its memory, nothing else.
        let _ = state::keep(&self.state, self.lease, self.neighbours.entries());
    }

    /// Sends an IPv4 packet that lies in a transmit buffer.
    pub(crate) fn route(&mut self, packet: Span, destination: Ipv4Addr, now_ns: u64) {
        let host = self.host.filter(|_| crate::address::is_host(destination));
        let Some(next_hop) = host.and_then(|host| host.next_hop(destination)) else {
            self.counters.unreachable += 1;
            return self.free(packet.buffer);
        };
        match self.neighbours.resolve(next_hop, packet, now_ns) {
            Resolution::Known(ethernet) => self.frame(packet, ethernet, EthernetProtocol::Ipv4),
            Resolution::Waiting => {}
            Resolution::Refused => {
                self.counters.unreachable += 1;
                self.free(packet.buffer);
            }
        }
    }

    /// Puts the Ethernet header in front and gives it to the driver.
    pub(crate) fn frame(&mut self, packet: Span, destination: EthernetAddress, protocol: EthernetProtocol) {
        let mut header = [0; ETHERNET_BYTES];
        let mut frame = EthernetFrame::new_unchecked(&mut header[..]);
        frame.set_src_addr(self.ethernet);
        frame.set_dst_addr(destination);
        frame.set_ethertype(protocol);
        let offset = usize::from(packet.offset) - ETHERNET_BYTES;
        let Ok(start) = self.transmit.write(packet.buffer, offset, &header) else { return self.free(packet.buffer) };
        let frame = Span { length: packet.length + start.length, ..start };
        let number = self.attached.then(|| next(&mut self.next));
        if self.transmit.set_number(packet.buffer, number).is_err() {
            return self.free(packet.buffer);
        }
        self.on_the_way.push_back(Sent { frame, number });
        self.output.transmit.push(frame);
    }

    /// An own transmit buffer.
    pub(crate) fn own_buffer(&mut self) -> Option<u16> {
        let buffer = self.own.take();
        self.counters.no_buffer += u64::from(buffer.is_none());
        buffer
    }

    /// Sends bytes that are a whole IPv4 packet to a neighbour.
    pub(crate) fn send_own(&mut self, packet: &[u8], ethernet: EthernetAddress, protocol: EthernetProtocol) {
        let Some(buffer) = self.own_buffer() else { return };
        match self.transmit.write_packet(buffer, packet) {
            Ok(span) => self.frame(span, ethernet, protocol),
            Err(_) => self.free(buffer),
        }
    }

    fn ask(&mut self, target: Ipv4Addr) {
        let Some(host) = self.host else { return };
        self.send_arp(ArpOperation::Request, host.address, EthernetAddress::BROADCAST, target);
    }

    pub(crate) fn send_arp(&mut self, operation: ArpOperation, from: Ipv4Addr, to: EthernetAddress, target: Ipv4Addr) {
        let known = operation == ArpOperation::Reply;
        let message = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: self.ethernet,
            source_protocol_addr: from,
            target_hardware_addr: if known { to } else { EthernetAddress([0; 6]) },
            target_protocol_addr: target,
        };
        let mut bytes = [0; 28];
        message.emit(&mut ArpPacket::new_unchecked(&mut bytes[..]));
        self.send_own(&bytes, to, EthernetProtocol::Arp);
    }

    pub(crate) fn send_dhcp(&mut self, message: &Message, now_ns: u64) {
        let (client, server) = DHCP_PORTS;
        let datagram = UdpRepr { src_port: client, dst_port: server };
        let header = Ipv4Repr {
            src_addr: message.source,
            dst_addr: message.destination,
            next_header: IpProtocol::Udp,
            payload_len: datagram.header_len() + message.bytes.len(),
            hop_limit: 64,
        };
        let mut bytes = [0; MTU];
        let length = header.buffer_len() + header.payload_len;
        let Some(packet) = bytes.get_mut(..length) else { return };
        header.emit(&mut Ipv4Packet::new_unchecked(&mut *packet), &Default::default());
        let (source, destination) = (IpAddress::Ipv4(message.source), IpAddress::Ipv4(message.destination));
        datagram.emit(
            &mut UdpPacket::new_unchecked(&mut packet[header.buffer_len()..]),
            &source,
            &destination,
            message.bytes.len(),
            |payload| payload.copy_from_slice(&message.bytes),
            &Default::default(),
        );
        if message.destination.is_broadcast() {
            return self.send_own(packet, EthernetAddress::BROADCAST, EthernetProtocol::Ipv4);
        }
        let Some(buffer) = self.own_buffer() else { return };
        match self.transmit.write_packet(buffer, packet) {
            Ok(span) => self.route(span, message.destination, now_ns),
            Err(_) => self.free(buffer),
        }
    }

    fn rewrite_sources(&mut self) {
        for span in self.on_the_way.iter().map(|sent| sent.frame).filter(|span| span.length > 0) {
            // The source address is the second of the header's fields. A checked span cannot fail
            // here.
            let _ = self.transmit.write(span.buffer, usize::from(span.offset) + 6, &self.ethernet.0);
        }
    }

    fn free_unsent(&mut self, packets: Vec<Span>) {
        packets.into_iter().for_each(|packet| self.free(packet.buffer));
    }

    fn free(&mut self, buffer: u16) {
        if buffer < IP_TRANSMIT_BUFFERS {
            self.own.insert(buffer);
        } else if self.tcp {
            self.output.sent.push(buffer);
        }
    }
}

/// The next number, which is taken.
fn next(number: &mut Number) -> Number {
    let taken = *number;
    number.number = number.number.wrapping_add(1);
    taken
}
