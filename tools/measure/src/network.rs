//! UDP and TCP over the loopback interface, client and server in two processes, on two cores if
//! there are.

use crate::page_server;
use crate::problem::{During, Problem, Result};
use crate::rows::Setting;
use crate::sample::{SAMPLES, Sample, measured, repeat};
use crate::system::{self, Child};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Payload of a datagram.
pub const DATAGRAM_BYTES: usize = 1000;
/// Written at once to a stream; an operation of the row.
pub const CHUNK_BYTES: usize = 64 << 10;
const DATAGRAMS: u64 = 500;
/// Datagrams sent before the receiver's word is awaited: fewer than any receive queue holds, so
/// none is lost.
const WINDOW: u64 = 50;
const CHUNKS: u64 = 64;
const CONNECTIONS: u64 = 50;
const REQUESTS: u64 = 100;
const REQUEST: [u8; 40] = [b'?'; 40];
const REPLY: [u8; 128] = [b'x'; 128];
/// A word that does not come within this is lost.
pub const LIMIT: Duration = Duration::from_secs(5);

/// The two sides of a row: the server is a child on the first core, and ends with its first failed
/// call or when it is killed.
fn beside(setting: &Setting, server: impl FnOnce() -> Result<()>) -> Result<Server> {
    let child = system::fork(|| {
        system::pin(0);
        server()
    })?;
    system::pin(usize::from(setting.workers > 1));
    Ok(Server(child))
}

/// A server, which ends when this value does.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill();
        let _ = self.0.wait();
    }
}

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Datagrams one way, with a word back after each window.
pub fn udp(setting: &Setting) -> Result<Vec<Sample>> {
    let receiver = UdpSocket::bind(anywhere()).during("UDP socket")?;
    let sender = UdpSocket::bind(anywhere()).during("UDP socket")?;
    sender.connect(receiver.local_addr().during("getsockname")?).during("connect (UDP)")?;
    receiver.connect(sender.local_addr().during("getsockname")?).during("connect (UDP)")?;
    sender.set_read_timeout(Some(LIMIT)).during("SO_RCVTIMEO")?;
    let _server = beside(setting, || {
        let mut datagram = [0; DATAGRAM_BYTES];
        loop {
            for _ in 0..WINDOW {
                receiver.recv(&mut datagram).during("recv (UDP)")?;
            }
            receiver.send(&[1]).during("send (UDP)")?;
        }
    })?;
    let datagram = [7; DATAGRAM_BYTES];
    let sample = || {
        measured(DATAGRAMS, || {
            for _ in 0..DATAGRAMS / WINDOW {
                (0..WINDOW).try_for_each(|_| sender.send(&datagram).map(drop).during("send (UDP)"))?;
                sender.recv(&mut [0]).during("recv (UDP)")?;
            }
            Ok(())
        })
    };
    sample()?;
    (0..SAMPLES).map(|_| sample()).collect()
}

/// A stream one way.
pub fn tcp_stream(setting: &Setting) -> Result<Vec<Sample>> {
    let listener = TcpListener::bind(anywhere()).during("TCP socket")?;
    let address = listener.local_addr().during("getsockname")?;
    let _server = beside(setting, || {
        let (mut stream, _) = listener.accept().during("accept")?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut count = 0;
        loop {
            match stream.read(&mut chunk).during("read (TCP)")? {
                0 => return Ok(()),
                more => count += more as u64,
            }
            // A word after each sample: what was written has arrived.
            if count >= CHUNKS * CHUNK_BYTES as u64 {
                count = 0;
                stream.write_all(&[1]).during("write (TCP)")?;
            }
        }
    })?;
    let mut stream = TcpStream::connect(address).during("connect")?;
    stream.set_read_timeout(Some(LIMIT)).during("SO_RCVTIMEO")?;
    let chunk = vec![7; CHUNK_BYTES];
    let mut sample = || {
        measured(CHUNKS, || {
            (0..CHUNKS).try_for_each(|_| stream.write_all(&chunk).during("write (TCP)"))?;
            stream.read_exact(&mut [0]).during("read (TCP)")
        })
    };
    sample()?;
    (0..SAMPLES).map(|_| sample()).collect()
}

/// Asks over one connection a server that waits by epoll, as most do: 40 bytes, 128 back.
pub fn tcp_request(setting: &Setting) -> Result<Vec<Sample>> {
    let listener = TcpListener::bind(anywhere()).during("TCP socket")?;
    let address = listener.local_addr().during("getsockname")?;
    let _server = beside(setting, || {
        let (mut stream, _) = listener.accept().during("accept")?;
        stream.set_nodelay(true).during("TCP_NODELAY")?;
        let set = page_server::epoll()?;
        page_server::watch(&set, &stream)?;
        let mut request = [0; REQUEST.len()];
        loop {
            page_server::wait(&set, &mut [libc::epoll_event { events: 0, u64: 0 }])?;
            stream.read_exact(&mut request).during("read (TCP)")?;
            stream.write_all(&REPLY).during("write (TCP)")?;
        }
    })?;
    let mut stream = TcpStream::connect(address).during("connect")?;
    stream.set_read_timeout(Some(LIMIT)).during("SO_RCVTIMEO")?;
    stream.set_nodelay(true).during("TCP_NODELAY")?;
    repeat(REQUESTS, || {
        stream.write_all(&REQUEST).during("write (TCP)")?;
        stream.read_exact(&mut [0; REPLY.len()]).during("read (TCP)")
    })
}

/// Connects, receives 128 bytes, and sees the end: Corey's short connections.
pub fn tcp_connections(setting: &Setting) -> Result<Vec<Sample>> {
    let listener = TcpListener::bind(anywhere()).during("TCP socket")?;
    let address = listener.local_addr().during("getsockname")?;
    let _server = beside(setting, || {
        loop {
            let (mut stream, _) = listener.accept().during("accept")?;
            stream.write_all(&REPLY).during("write (TCP)")?;
        }
    })?;
    repeat(CONNECTIONS, || {
        let mut stream = TcpStream::connect(address).during("connect")?;
        stream.set_read_timeout(Some(LIMIT)).during("SO_RCVTIMEO")?;
        let mut reply = [0; REPLY.len()];
        stream.read_exact(&mut reply).during("read (TCP)")?;
        match stream.read(&mut reply).during("read (TCP)")? {
            0 => Ok(()),
            _ => Err(Problem::Failed("more than the reply came".into())),
        }
    })
}
