//! What the TCP library sees as its network device: one packet in, packets out into transmit
//! buffers.
//!
//! Invariants: a packet handed in is a private copy; every packet out lies in a buffer taken from
//! `free` and is listed in `out`, in `on_the_way` until IP names its buffer as sent or a new IP has
//! left it its number, and, decoded, in `sent`. A buffer is in exactly one of `free` and
//! `on_the_way`, or still with the device for a TCP before us. With no buffer free the library is
//! told so and asks again later. TCP's checksum is made where a packet leaves the machine. Packets
//! for this machine itself turn round in `local`: a connection may send while fewer than
//! [`LOCAL_MAX`] wait there, answers always, so that nothing is lost on that way, and who sends
//! faster than is read waits.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use core::net::{Ipv4Addr, SocketAddrV4};
use packet::{BUFFERS, BufferSet, IP_TRANSMIT_BUFFERS, MTU, Memory, Pool, Span};
use smoltcp::phy::{self, Checksum, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

use crate::connection::UNTOLD;
use crate::quiet::Told;
use crate::segment::{self, Pair, Segment, before};

/// Packets to ourselves that may wait before connections have to.
pub const LOCAL_MAX: usize = 128;

/// Bytes that waited here for longer than this before they left are told of, see
/// [`Wire::take_sent_late`].
const LATE_NS: u64 = 50_000_000;

/// The device.
pub struct Wire<M> {
    incoming: Vec<u8>,
    full: bool,
    sender: Sender<M>,
}

/// A packet that IP has, and what it carries of a connection.
struct Packet {
    span: Span,
    /// Whose, and its numbers from the first to that after the last; `None` if it is not TCP's.
    carries: Option<(Pair, u32, u32)>,
    given_ns: u64,
}

struct Sender<M> {
    transmit: Pool<M>,
    free: BufferSet,
    scratch: Box<[u8; MTU]>,
    out: Vec<Span>,
    /// Oldest first: what a new IP gets again.
    on_the_way: VecDeque<Packet>,
    /// Bytes that have left late: whose, and their first number.
    late: Vec<(Pair, u32)>,
    now_ns: u64,
    sent: Vec<Segment>,
    own: Option<Ipv4Addr>,
    local: VecDeque<Vec<u8>>,
    /// What connections send now is for ourselves.
    is_local: bool,
    /// The acknowledgement that is not sent now.
    suppressed: Option<Told>,
    has_hushed: bool,
}

impl<M: Memory> Wire<M> {
    /// A device over the transmit pool.
    pub fn new(transmit: M) -> Wire<M> {
        let sender = Sender {
            transmit: Pool::new(transmit),
            free: BufferSet::range(IP_TRANSMIT_BUFFERS, BUFFERS),
            scratch: Box::new([0; MTU]),
            out: Vec::new(),
            on_the_way: VecDeque::new(),
            late: Vec::new(),
            now_ns: 0,
            sent: Vec::new(),
            own: None,
            local: VecDeque::new(),
            is_local: false,
            suppressed: None,
            has_hushed: false,
        };
        Wire { incoming: Vec::with_capacity(MTU), full: false, sender }
    }

    /// The next packet the library will find.
    pub fn offer(&mut self, packet: &[u8]) {
        self.incoming.clear();
        self.incoming.extend_from_slice(packet);
        self.full = true;
    }

    /// Sends a packet made elsewhere; false if no buffer is free.
    pub fn send(&mut self, packet: &[u8]) -> bool {
        if !self.can_send() {
            return false;
        }
        let length = packet.len().min(MTU);
        self.sender.scratch[..length].copy_from_slice(&packet[..length]);
        self.sender.send(length);
        true
    }

    /// Sends a packet that is not TCP's, with its checksums; false if no buffer is free.
    pub fn pass(&mut self, packet: &[u8]) -> bool {
        let Some(buffer) = self.sender.free.take() else { return false };
        let span = self.sender.transmit.write_packet(buffer, packet);
        span.map(|span| self.sender.go(span, None)).is_ok()
    }

    /// Is a buffer free?
    pub fn can_send(&self) -> bool {
        !self.sender.free.is_empty()
    }

    /// What is sent from now on is for that end.
    pub fn aim(&mut self, remote: SocketAddrV4) {
        self.sender.is_local = is_local(*remote.ip(), self.sender.own);
    }

    /// Whether that end is in this machine.
    pub fn is_aimed_here(&self) -> bool {
        self.sender.is_local
    }

    /// From now on this acknowledgement without bytes is not sent: it says nothing new.
    pub fn suppress(&mut self, told: Option<Told>) {
        self.sender.suppressed = told;
    }

    /// Whether one was not sent since this was asked last.
    pub fn take_suppressed(&mut self) -> bool {
        core::mem::take(&mut self.sender.has_hushed)
    }

    /// Do packets to ourselves wait?
    pub fn has_local(&self) -> bool {
        !self.sender.local.is_empty()
    }

    /// Our address: packets for it do not leave.
    pub fn set_own(&mut self, own: Option<Ipv4Addr>) {
        self.sender.own = own;
    }

    /// Segments sent since the last call.
    pub fn take_sent(&mut self) -> Vec<Segment> {
        core::mem::take(&mut self.sender.sent)
    }

    /// Packets for IP since the last call.
    pub fn take_out(&mut self) -> Vec<Span> {
        core::mem::take(&mut self.sender.out)
    }

    /// The oldest packet to ourselves.
    pub fn take_local(&mut self) -> Option<Vec<u8>> {
        self.sender.local.pop_front()
    }

    /// What time it is from now on.
    pub fn set_now(&mut self, now_ns: u64) {
        self.sender.now_ns = now_ns;
    }

    /// IP named a buffer as read; true if it was out.
    pub fn freed(&mut self, buffer: u16) -> bool {
        let sender = &mut self.sender;
        let position = sender.on_the_way.iter().position(|packet| packet.span.buffer == buffer);
        let packet = position.and_then(|position| sender.on_the_way.remove(position));
        if let Some(Packet { carries: Some((pair, first, end)), given_ns, .. }) = packet
            && first != end
            && sender.now_ns.saturating_sub(given_ns) > LATE_NS
        {
            sender.late.push((pair, first));
        }
        // What the device had for a TCP before us is not in the list.
        buffer >= IP_TRANSMIT_BUFFERS && self.sender.free.insert(buffer)
    }

    /// IP was restarted, and of our buffers only `busy` are still with the device. Of everything
    /// else that was out, what has a number has left, and the rest goes out again, in order. Gives
    /// how many packets.
    pub fn restart(&mut self, busy: &BufferSet) -> usize {
        let transmit = &self.sender.transmit;
        let is_on_its_way = |buffer: u16| busy.contains(buffer) || transmit.number(buffer).is_none();
        self.sender.on_the_way.retain(|packet| is_on_its_way(packet.span.buffer));
        let spans = || self.sender.on_the_way.iter().map(|packet| packet.span);
        let free = BufferSet::range(IP_TRANSMIT_BUFFERS, BUFFERS).without(busy);
        let free = spans().fold(free, |mut free, span| {
            free.remove(span.buffer);
            free
        });
        let out = spans().filter(|span| !busy.contains(span.buffer)).collect();
        (self.sender.free, self.sender.out) = (free, out);
        self.sender.out.len()
    }

    /// Whose bytes have left late, and their first number, since this was asked last: how long the
    /// peer takes counts from then.
    pub fn take_sent_late(&mut self) -> Vec<(Pair, u32)> {
        core::mem::take(&mut self.sender.late)
    }

    /// Whether a segment of the connection with this number in it has not left the machine, as far
    /// as we were told.
    pub fn has_on_the_way(&self, pair: &Pair, number: u32) -> bool {
        self.sender
            .on_the_way
            .iter()
            .filter_map(|packet| packet.carries)
            .any(|(whose, first, end)| whose == *pair && !before(number, first) && before(number, end))
    }

    /// Buffers that are free.
    pub fn free(&self) -> usize {
        self.sender.free.len()
    }
}

impl<M: Memory> Sender<M> {
    /// Sends the first bytes of `scratch`, or loses them for want of a buffer.
    fn send(&mut self, length: usize) {
        let packet = &mut self.scratch[..length];
        let Some(segment) = Segment::decode(packet, false) else { return };
        if segment.is_bare() && segment.acknowledged.map(|number| (number, segment.window)) == self.suppressed {
            self.has_hushed = true;
            return;
        }
        let destination = *segment.destination.ip();
        if is_local(destination, self.own) {
            self.local.push_back(packet.to_vec());
        } else {
            let Some(buffer) = self.free.take() else { return };
            segment::fill_checksum(packet);
            let Ok(span) = self.transmit.write_packet(buffer, packet) else { return };
            self.go(span, Some((segment.sent_pair(), segment.sequence, segment.end)));
        }
        self.sent.push(segment);
    }

    fn go(&mut self, span: Span, carries: Option<(Pair, u32, u32)>) {
        self.out.push(span);
        self.on_the_way.push_back(Packet { span, carries, given_ns: self.now_ns });
    }
}

fn is_local(address: Ipv4Addr, own: Option<Ipv4Addr>) -> bool {
    address.is_loopback() || own == Some(address)
}

/// Can this be one host's address?
pub fn is_host(address: Ipv4Addr) -> bool {
    !(address.is_unspecified() || address.is_broadcast() || address.is_multicast() || address.is_loopback())
}

/// A received packet for the library.
pub struct Received<'a>(&'a [u8]);

impl phy::RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

/// Room for one packet of the library's.
pub struct Sending<'a, M>(&'a mut Sender<M>);

impl<M: Memory> phy::TxToken for Sending<'_, M> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        // The library was told the largest packet; one that is larger all the same would be its own
        // error.
        let length = length.min(MTU);
        let result = fill(&mut self.0.scratch[..length]);
        segment::shorten_window(&mut self.0.scratch[..length], UNTOLD);
        self.0.send(length);
        result
    }
}

impl<M: Memory> phy::Device for Wire<M> {
    type RxToken<'a>
        = Received<'a>
    where
        M: 'a;
    type TxToken<'a>
        = Sending<'a, M>
    where
        M: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sending<'_, M>)> {
        // An answer for which no buffer is free is lost; the peer repeats its question.
        core::mem::take(&mut self.full).then_some((Received(&self.incoming), Sending(&mut self.sender)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_, M>> {
        let sender = &mut self.sender;
        let has_room = if sender.is_local { sender.local.len() < LOCAL_MAX } else { !sender.free.is_empty() };
        has_room.then_some(Sending(sender))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        // Verified once, when a segment is decoded; made when one leaves.
        capabilities.checksum.tcp = Checksum::None;
        capabilities
    }
}
