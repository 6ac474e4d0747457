//! A small web server: one process, epoll, one page from memory. Its measurements are taken by the
//! client on the host.
//!
//! It knows of HTTP only where a request ends (an empty line) and whether the client wants the
//! connection kept (HTTP/1.1, or an own word). It keeps nothing of a client but what was received
//! of its request.

use crate::problem::{During, Result, last};
use crate::system::check;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A request longer than this is no request for our page.
const REQUEST_BYTES_MAX: usize = 8 << 10;
const EVENTS: usize = 64;

struct Client {
    stream: TcpStream,
    request: Vec<u8>,
}

/// What is to be done with a client.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Keep,
    Close,
}

/// Serves `page` at `port` for ever; says `measure: serving` when clients may come.
pub fn serve(port: u16, page: &[u8]) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).during("TCP socket")?;
    let set = epoll()?;
    watch(&set, &listener)?;
    println!("measure: serving");
    let mut clients = HashMap::new();
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
    loop {
        for event in wait(&set, &mut events)? {
            let descriptor = event.u64 as i32;
            if descriptor == listener.as_raw_fd() {
                let (stream, _) = listener.accept().during("accept")?;
                // A page is one write; the next request must not wait for its acknowledgement.
                stream.set_nodelay(true).during("TCP_NODELAY")?;
                watch(&set, &stream)?;
                clients.insert(stream.as_raw_fd(), Client { stream, request: Vec::new() });
            } else if let Some(client) = clients.get_mut(&descriptor)
                && client.step(page) == Next::Close
            {
                clients.remove(&descriptor);
            }
        }
    }
}

/// A set to wait with.
pub fn epoll() -> Result<OwnedFd> {
    // SAFETY: makes a descriptor, which is then ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(check("epoll_create1", libc::epoll_create1(0))?) })
}

/// What of the set is ready, once something is.
pub fn wait<'e>(set: &OwnedFd, events: &'e mut [libc::epoll_event]) -> Result<&'e [libc::epoll_event]> {
    // SAFETY: room for as many events as are named.
    let count = unsafe { libc::epoll_wait(set.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, -1) };
    Ok(&events[..check("epoll_wait", count)? as usize])
}

/// Has the set tell when the file can be read.
pub fn watch(set: &OwnedFd, file: &impl AsRawFd) -> Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: file.as_raw_fd() as u64 };
    // SAFETY: both descriptors are open, and the pointer is to an event of ours.
    match unsafe { libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_ADD, file.as_raw_fd(), &raw mut event) } {
        0 => Ok(()),
        _ => Err(last("epoll_ctl")),
    }
}

impl Client {
    /// Reads once and answers each whole request. A client's own errors end its connection only.
    fn step(&mut self, page: &[u8]) -> Next {
        let mut bytes = [0; 2048];
        match self.stream.read(&mut bytes) {
            Ok(count @ 1..) => self.request.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Next::Keep,
            _ => return Next::Close,
        }
        while let Some(end) = end_of_request(&self.request) {
            let next = wants(&self.request[..end]);
            self.request.drain(..end);
            if self.stream.write_all(&answer(page, &next)).is_err() || next == Next::Close {
                return Next::Close;
            }
        }
        if self.request.len() > REQUEST_BYTES_MAX { Next::Close } else { Next::Keep }
    }
}

fn end_of_request(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|place| place + 4)
}

fn wants(request: &[u8]) -> Next {
    let has = |words: &[u8]| request.windows(words.len()).any(|window| window.eq_ignore_ascii_case(words));
    if has(b"connection: close") || has(b" http/1.0\r\n") { Next::Close } else { Next::Keep }
}

fn answer(page: &[u8], next: &Next) -> Vec<u8> {
    let connection = if *next == Next::Keep { "keep-alive" } else { "close" };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n", page.len());
    [head.as_bytes(), page].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_cut_and_understood() {
        assert_eq!(end_of_request(b"GET / HTTP/1.1\r\n\r\nGET"), Some(18));
        assert_eq!(end_of_request(b"GET / HTTP/1.1\r\n"), None);
        assert_eq!(wants(b"GET / HTTP/1.1\r\n\r\n"), Next::Keep);
        assert_eq!(wants(b"GET / HTTP/1.0\r\n\r\n"), Next::Close);
        assert_eq!(wants(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"), Next::Close);
    }
}
