//! Two machines with TCP and a wire between them that can be cut.

use contracts::descriptions::{DescriptionError, DescriptionId};
use contracts::sockets::{Address, Family, SocketAddress, SocketKind};
use packet::{BufferSet, POOL_BYTES, Pool, Span};
use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use tcp::{Sockets, Tcp};

pub type Region = Rc<RefCell<Vec<u8>>>;
pub const SERVER: [u8; 4] = [10, 0, 2, 15];
pub const CLIENT: [u8; 4] = [10, 0, 2, 2];
/// The one client domain of each machine.
pub const ME: u64 = 1;

pub struct Machine {
    pub sockets: Sockets<Region>,
    receive: Region,
    pub transmit: Region,
    /// Its driver takes frames and says of none that it left.
    pub holds: bool,
}

impl Machine {
    pub fn new(address: [u8; 4]) -> Machine {
        Machine::with_secret(address, [address[3]; 16])
    }

    pub fn with_secret(address: [u8; 4], secret: [u8; 16]) -> Machine {
        let region = || Rc::new(RefCell::new(vec![0u8; POOL_BYTES]));
        let (receive, transmit) = (region(), region());
        let mut tcp = Tcp::new(receive.clone(), transmit.clone(), secret);
        tcp.attached(&BufferSet::EMPTY, true, 0);
        tcp.set_host(Some((Ipv4Addr::from(address), 24)));
        Machine { sockets: Sockets::new(tcp), receive, transmit, holds: false }
    }

    /// A turn; gives the packets that left.
    pub fn turn(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        self.sockets.tcp.turn(now_ns);
        self.sockets.settle();
        let output = self.sockets.tcp.take_output();
        let pool = Pool::new(self.transmit.clone());
        let packets = output.send.iter().map(|span| {
            let mut bytes = vec![0; 2048];
            pool.read(*span, &mut bytes).unwrap().to_vec()
        });
        let packets = packets.collect();
        if !self.holds {
            self.sockets.tcp.sent(&output.send.iter().map(|span| span.buffer).collect::<Vec<_>>(), now_ns);
        }
        packets
    }

    pub fn deliver(&mut self, packet: &[u8], now_ns: u64) {
        let span = Pool::new(self.receive.clone()).write(7, 26, packet).unwrap();
        self.sockets.tcp.received(&[span], now_ns);
    }

    pub fn deliver_span(&mut self, span: Span, now_ns: u64) {
        self.sockets.tcp.received(&[span], now_ns);
    }

    pub fn listen(&mut self, port: u16) -> DescriptionId {
        self.listen_with(port, 0)
    }

    pub fn listen_with(&mut self, port: u16, backlog: u32) -> DescriptionId {
        let id = self.sockets.socket(ME, Family::Internet, SocketKind::Stream).unwrap();
        self.sockets.bind(ME, id, SocketAddress { address: [0; 4], port }).unwrap();
        self.sockets.listen(ME, id, backlog).unwrap();
        id
    }

    pub fn connect(&mut self, address: [u8; 4], port: u16, now_ns: u64) -> DescriptionId {
        let id = self.sockets.socket(ME, Family::Internet, SocketKind::Stream).unwrap();
        self.sockets.connect(ME, id, SocketAddress { address, port }, now_ns).unwrap();
        id
    }

    pub fn write(&mut self, id: DescriptionId, bytes: &[u8]) -> Result<usize, DescriptionError> {
        self.write_with(id, bytes, false)
    }

    /// With `more`, others are to follow.
    pub fn write_with(&mut self, id: DescriptionId, bytes: &[u8], more: bool) -> Result<usize, DescriptionError> {
        self.sockets.write(ME, id, bytes.len(), more, |offset, room| {
            room.copy_from_slice(&bytes[offset..offset + room.len()]);
            true
        })
    }

    pub fn read(&mut self, id: DescriptionId, most: usize) -> Result<Vec<u8>, DescriptionError> {
        let mut all = Vec::new();
        self.sockets.read(ME, id, most, |_, bytes| {
            all.extend_from_slice(bytes);
            true
        })?;
        Ok(all)
    }
}

pub struct Net {
    pub server: Machine,
    pub client: Machine,
    pub now_ns: u64,
    pub cut: bool,
    pub carried: u64,
}

impl Net {
    pub fn new() -> Net {
        Net {
            server: Machine::new(SERVER),
            client: Machine::new(CLIENT),
            now_ns: 1_000_000_000,
            cut: false,
            carried: 0,
        }
    }

    /// Carries packets until nobody has any; time stands still.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            let (down, up) = (self.server.turn(self.now_ns), self.client.turn(self.now_ns));
            if down.is_empty() && up.is_empty() {
                return;
            }
            if !self.cut {
                self.carried += (down.len() + up.len()) as u64;
                down.iter().for_each(|packet| self.client.deliver(packet, self.now_ns));
                up.iter().for_each(|packet| self.server.deliver(packet, self.now_ns));
            }
        }
        panic!("packets for ever");
    }

    /// Lets time pass, timers firing on their way.
    pub fn pass(&mut self, ns: u64) {
        let end = self.now_ns + ns;
        loop {
            self.settle();
            let next = [&self.server, &self.client].iter().filter_map(|side| side.sockets.tcp.next_ns()).min();
            match next {
                Some(next) if next <= end => self.now_ns = self.now_ns.max(next),
                _ => break,
            }
        }
        self.now_ns = end;
        self.settle();
    }

    /// A connection: its description at the server and at the client.
    pub fn connection(&mut self, listener: DescriptionId, port: u16) -> (DescriptionId, DescriptionId) {
        let at_client = self.client.connect(SERVER, port, self.now_ns);
        self.settle();
        let accepted = self.server.sockets.accept(ME, listener).unwrap();
        assert!(matches!(accepted.peer, Address::Internet(SocketAddress { address: CLIENT, .. })));
        self.client.sockets.connected(ME, at_client).unwrap();
        (accepted.id, at_client)
    }
}

/// Makes TCP's checksum of a packet.
pub fn repair(packet: &mut [u8]) {
    use smoltcp::wire::{Ipv4Packet, TcpPacket};
    let ip = Ipv4Packet::new_unchecked(&packet[..]);
    let (from, to) = (ip.src_addr().into(), ip.dst_addr().into());
    TcpPacket::new_unchecked(&mut packet[20..]).fill_checksum(&from, &to);
}

/// Takes the offer to be told of pieces out of a SYN: the option becomes two that say nothing.
pub fn without_pieces(syn: &mut [u8]) {
    let at = syn.windows(2).rposition(|option| option == [4, 2]).unwrap();
    syn[at..at + 2].copy_from_slice(&[1, 1]);
    repair(syn);
}
