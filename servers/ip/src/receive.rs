//! What arrives: Ethernet, ARP, IPv4 and ICMP checked field by field, each refusal counted.
//!
//! A header is copied out of the shared buffer before it is looked at, so what was checked is what
//! is acted on. A TCP segment is passed on by reference: TCP copies it before it looks, and checks
//! it again.

use core::net::Ipv4Addr;
use packet::{MTU, Memory, Span};
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, Icmpv4Message, Icmpv4Packet,
    IpProtocol, Ipv4Packet, UdpPacket,
};

use crate::address::is_host;
use crate::engine::{DHCP_PORTS, ETHERNET_BYTES, Ip};

/// Longest IPv4 header.
const IPV4_HEADER_MAX: usize = 60;
const HEADERS: usize = ETHERNET_BYTES + IPV4_HEADER_MAX;

/// What a checked IPv4 header says.
struct Header {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: IpProtocol,
    header_bytes: u16,
}

/// What becomes of a frame's buffer.
enum Fate {
    /// It is done with.
    Done,
    /// TCP has it.
    Passed,
}

impl<M: Memory> Ip<M> {
    /// Frames from the driver.
    pub fn received(&mut self, frames: &[Span], now_ns: u64) {
        for &frame in frames {
            self.counters.frames += 1;
            if let Fate::Done = self.frame_arrived(frame, now_ns) {
                self.output.released.push(frame.buffer);
            }
        }
    }

    fn frame_arrived(&mut self, frame: Span, now_ns: u64) -> Fate {
        let mut headers = [0; HEADERS];
        let Ok(headers) = self.receive.read(frame, &mut headers) else {
            self.counters.bad_span += 1;
            return Fate::Done;
        };
        let Ok(ethernet) = EthernetFrame::new_checked(&*headers) else {
            self.counters.bad_ethernet += 1;
            return Fate::Done;
        };
        if !ethernet.src_addr().is_unicast() {
            self.counters.bad_ethernet += 1;
            return Fate::Done;
        }
        if ethernet.dst_addr() != self.ethernet && !ethernet.dst_addr().is_broadcast() {
            self.counters.other_ethernet += 1;
            return Fate::Done;
        }
        let payload = frame.skip(ETHERNET_BYTES as u16);
        match ethernet.ethertype() {
            EthernetProtocol::Arp => self.arp_arrived(&headers[ETHERNET_BYTES..], now_ns),
            EthernetProtocol::Ipv4 => {
                return self.ipv4_arrived(payload, &headers[ETHERNET_BYTES..], ethernet.src_addr(), now_ns);
            }
            _ => self.counters.other_protocol += 1,
        }
        Fate::Done
    }

    fn arp_arrived(&mut self, bytes: &[u8], now_ns: u64) {
        let message = ArpPacket::new_checked(bytes).and_then(|packet| ArpRepr::parse(&packet));
        let Ok(ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr,
            target_protocol_addr,
            ..
        }) = message
        else {
            self.counters.bad_arp += 1;
            return;
        };
        let Some(host) = self.host else { return };
        if !source_hardware_addr.is_unicast() || !is_host(source_protocol_addr) || !host.on_link(source_protocol_addr) {
            self.counters.bad_arp += 1;
            return;
        }
        let asks_us = operation == ArpOperation::Request && target_protocol_addr == host.address;
        let (changed, ready) = self.neighbours.confirm(source_protocol_addr, source_hardware_addr, asks_us, now_ns);
        for packet in ready {
            self.frame(packet, source_hardware_addr, EthernetProtocol::Ipv4);
        }
        if changed {
            self.keep();
        }
        if asks_us {
            self.send_arp(ArpOperation::Reply, host.address, source_hardware_addr, source_protocol_addr);
        }
    }

    fn ipv4_arrived(&mut self, packet: Span, bytes: &[u8], from: EthernetAddress, now_ns: u64) -> Fate {
        let Some((packet, header)) = self.check_ipv4(packet, bytes) else { return Fate::Done };
        let payload = packet.skip(header.header_bytes);
        let for_us = self.host.is_some_and(|host| host.address == header.destination);
        match header.protocol {
            IpProtocol::Udp if self.is_for_dhcp(payload) => self.dhcp_arrived(payload, now_ns),
            _ if !for_us => self.counters.other_destination += 1,
            IpProtocol::Tcp | IpProtocol::Udp if self.tcp => {
                self.pass_to_tcp(packet);
                return Fate::Passed;
            }
            IpProtocol::Tcp if self.keep_for_tcp(packet, now_ns) => return Fate::Passed,
            // The sender of a datagram sends it again.
            IpProtocol::Tcp | IpProtocol::Udp => self.counters.no_tcp += 1,
            IpProtocol::Icmp => return self.icmp_arrived(packet, &header, from),
            _ => self.counters.other_transport += 1,
        }
        Fate::Done
    }

    /// Checks what RFC 1122 section 3.2.1 wants checked; gives the packet without Ethernet's
    /// padding.
    fn check_ipv4(&mut self, packet: Span, bytes: &[u8]) -> Option<(Span, Header)> {
        let header = Ipv4Packet::new_unchecked(bytes);
        let sound = bytes.len() >= 20
            && header.version() == 4
            && (20..=bytes.len()).contains(&usize::from(header.header_len()))
            && (u16::from(header.header_len())..=packet.length.min(MTU as u16)).contains(&header.total_len());
        if !sound {
            self.counters.bad_header += 1;
            return None;
        }
        let header_bytes = u16::from(header.header_len());
        let refused = if !header.verify_checksum() {
            &mut self.counters.bad_checksum
        } else if header.hop_limit() == 0 {
            &mut self.counters.bad_time_to_live
        } else if header.more_frags() || header.frag_offset() != 0 {
            &mut self.counters.fragment
        } else if !is_host(header.src_addr()) || self.host.is_some_and(|host| host.address == header.src_addr()) {
            &mut self.counters.bad_source
        } else {
            let header = Header {
                source: header.src_addr(),
                destination: header.dst_addr(),
                protocol: header.next_header(),
                header_bytes,
            };
            return Some((packet.first(Ipv4Packet::new_unchecked(bytes).total_len()), header));
        };
        *refused += 1;
        None
    }

    /// The client's port of DHCP is IP's own; what else comes by UDP is TCP's to look at.
    fn is_for_dhcp(&self, payload: Span) -> bool {
        let mut ports = [0; 4];
        let ports = self.receive.read(payload, &mut ports);
        ports.is_ok_and(|ports| ports.get(2..4) == Some(&DHCP_PORTS.0.to_be_bytes()))
    }

    fn dhcp_arrived(&mut self, payload: Span, now_ns: u64) {
        let mut bytes = [0; MTU];
        let Ok(bytes) = self.receive.read(payload, &mut bytes) else { return };
        let (client, server) = DHCP_PORTS;
        let datagram = UdpPacket::new_checked(&*bytes).ok();
        let ports = |datagram: &UdpPacket<_>| (datagram.dst_port(), datagram.src_port()) == (client, server);
        let Some(datagram) = datagram.filter(ports) else {
            self.counters.bad_dhcp += 1;
            return;
        };
        let change = self.dhcp.as_mut().and_then(|dhcp| dhcp.answer(datagram.payload(), now_ns));
        match change {
            Some(change) => self.apply(change),
            None => self.counters.bad_dhcp += 1,
        }
    }

    /// An echo request is turned round and sent to whom it came from (RFC 792); its route back
    /// needs no table. That something met nobody, TCP is told, which sent it.
    fn icmp_arrived(&mut self, packet: Span, header: &Header, from: EthernetAddress) -> Fate {
        let mut bytes = [0; MTU];
        let Ok(bytes) = self.receive.read(packet, &mut bytes) else { return Fate::Done };
        let Some(payload) = bytes.get_mut(usize::from(header.header_bytes)..) else { return Fate::Done };
        let message = Icmpv4Packet::new_checked(payload);
        let Some(mut message) = message.ok().filter(Icmpv4Packet::verify_checksum) else {
            self.counters.bad_icmp += 1;
            return Fate::Done;
        };
        match message.msg_type() {
            Icmpv4Message::EchoRequest => {}
            Icmpv4Message::DstUnreachable if self.tcp => {
                self.pass_to_tcp(packet);
                return Fate::Passed;
            }
            _ => {
                self.counters.other_icmp += 1;
                return Fate::Done;
            }
        }
        message.set_msg_type(Icmpv4Message::EchoReply);
        message.fill_checksum();
        // The header was copied a second time, so it is written anew where it matters and its sum
        // made again.
        let mut answer = Ipv4Packet::new_unchecked(&mut *bytes);
        answer.set_src_addr(header.destination);
        answer.set_dst_addr(header.source);
        answer.set_hop_limit(64);
        let sound = answer.version() == 4 && u16::from(answer.header_len()) == header.header_bytes;
        if !sound || answer.total_len() != packet.length {
            self.counters.bad_header += 1;
            return Fate::Done;
        }
        answer.fill_checksum();
        self.counters.echoes += 1;
        self.send_own(bytes, from, EthernetProtocol::Ipv4);
        Fate::Done
    }
}
