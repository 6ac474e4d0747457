//! What the tests have: IP's memory, packets, and an IP that knows its peer.

use ip::{Host, Ip, Link};
use packet::{BufferSet, Number, POOL_BYTES, Pool, Span};
use smoltcp::wire::*;
use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;

pub type Region = Rc<RefCell<Vec<u8>>>;

pub const OUR_ETHERNET: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
pub const PEER_ETHERNET: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 2]);
pub const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

pub struct Machine {
    pub receive: Region,
    pub transmit: Region,
    pub state: Region,
}

pub fn region(bytes: usize) -> Region {
    Rc::new(RefCell::new(vec![0; bytes]))
}

impl Machine {
    pub fn new() -> Machine {
        Machine { receive: region(POOL_BYTES), transmit: region(POOL_BYTES), state: region(4096) }
    }

    pub fn ip(&self) -> Ip<Region> {
        let host = Host { address: OURS, prefix_bits: 24, gateway: Some(PEER) };
        Ip::new(self.receive.clone(), self.transmit.clone(), self.state.clone(), Some(host))
    }

    pub fn arrive(&self, buffer: u16, frame: &[u8]) -> Span {
        Pool::new(self.receive.clone()).write(buffer, 12, frame).unwrap()
    }

    pub fn sent(&self, frame: Span) -> Vec<u8> {
        let mut bytes = vec![0; 2048];
        Pool::new(self.transmit.clone()).read(frame, &mut bytes).unwrap().to_vec()
    }

    pub fn packet(&self, buffer: u16, destination: Ipv4Addr) -> Span {
        let bytes = ipv4(OURS, destination, IpProtocol::Tcp, &[7; 40]);
        Pool::new(self.transmit.clone()).write_packet(buffer, &bytes).unwrap()
    }
}

pub fn number(epoch: u32, number: u16) -> Number {
    Number { epoch, number }
}

pub fn link(busy: BufferSet) -> Link {
    Link { ethernet: OUR_ETHERNET, busy, kept: false, next: number(1, 0) }
}

pub fn ethernet(destination: EthernetAddress, protocol: EthernetProtocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 14];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
    frame.set_src_addr(PEER_ETHERNET);
    frame.set_dst_addr(destination);
    frame.set_ethertype(protocol);
    bytes.extend_from_slice(payload);
    bytes
}

pub fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let header = Ipv4Repr {
        src_addr: source,
        dst_addr: destination,
        next_header: protocol,
        payload_len: payload.len(),
        hop_limit: 64,
    };
    let mut bytes = vec![0; 20];
    bytes.extend_from_slice(payload);
    header.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[..]), &Default::default());
    bytes
}

pub fn arp(operation: ArpOperation, target: Ipv4Addr) -> Vec<u8> {
    let mut bytes = vec![0; 28];
    ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: PEER_ETHERNET,
        source_protocol_addr: PEER,
        target_hardware_addr: OUR_ETHERNET,
        target_protocol_addr: target,
    }
    .emit(&mut ArpPacket::new_unchecked(&mut bytes[..]));
    let destination = if operation == ArpOperation::Request { EthernetAddress::BROADCAST } else { OUR_ETHERNET };
    ethernet(destination, EthernetProtocol::Arp, &bytes)
}

pub fn ping() -> Vec<u8> {
    let echo = Icmpv4Repr::EchoRequest { ident: 1, seq_no: 2, data: b"hello" };
    let mut bytes = vec![0; echo.buffer_len()];
    echo.emit(&mut Icmpv4Packet::new_unchecked(&mut bytes[..]), &Default::default());
    ethernet(OUR_ETHERNET, EthernetProtocol::Ipv4, &ipv4(PEER, OURS, IpProtocol::Icmp, &bytes))
}

/// An IP that knows its peer and has TCP attached.
pub fn running(machine: &Machine) -> Ip<Region> {
    let mut ip = machine.ip();
    ip.detach_driver();
    ip.attach_driver(link(BufferSet::EMPTY), 0);
    let attached = ip.attach_tcp();
    assert_eq!((attached.host, attached.busy), (ip.host(), BufferSet::EMPTY));
    ip.received(&[machine.arrive(0, &arp(ArpOperation::Request, OURS))], 1);
    let output = ip.take_output();
    assert_eq!((output.released, output.transmit.len()), (vec![0], 1));
    ip.transmitted(&[output.transmit[0].buffer]);
    ip
}
