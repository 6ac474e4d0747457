//! Requests to a server that nobody here wrote, over the loopback interface: the server is a child
//! of ours, and the client of each row is another.
//!
//! A client keeps its connections. In a round it sends one request on each of them, and then reads
//! the answers in the same order. Rounds before the measured ones warm both sides up. Unknown
//! here: how a server works, beyond the port where it answers.

use crate::network::{LIMIT, Server};
use crate::problem::{During, Problem, Result};
use crate::rows::{self, Setting};
use crate::sample::{SAMPLES, Sample, measured, now_ns};
use crate::system;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// Of a stretch, all connections together.
const REQUESTS: usize = 100;
/// Before the first stretch; enough for a compiler that waits for code to be run often.
const WARM_UP: usize = 1000;
/// A server that does not answer by then does not start; or within the limit of an answer, if that
/// is longer.
const START_LIMIT: Duration = Duration::from_secs(60);
const START_STEP: Duration = Duration::from_millis(10);
/// Longer than any answer.
const ANSWER_BYTES_MAX: usize = 8 << 10;

/// What redis' own benchmark sends, a key and three bytes, and what it is answered.
const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$16\r\nkey:__rand_int__\r\n";
const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$16\r\nkey:__rand_int__\r\n$3\r\nVXK\r\n";
const GOT: &[u8] = b"$3\r\nVXK\r\n";
const DONE: &[u8] = b"+OK\r\n";
const PAGE: &[u8] = b"GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Get,
    Set,
    Page,
}

/// A measurement of a server.
pub struct Row {
    /// As the host names it.
    pub name: &'static str,
    request: Request,
    clients: usize,
    /// Of the whole row, and of each answer.
    limit_s: u32,
    answer_limit: Duration,
}

const fn row(name: &'static str, request: Request, clients: usize) -> Row {
    Row { name, request, clients, limit_s: rows::LIMIT_S, answer_limit: LIMIT }
}

/// The server writes to a disk: the clock of a guest that is counted leaps while it waits for that.
const fn on_disk(name: &'static str, request: Request, clients: usize) -> Row {
    let (limit_s, answer_limit) = (rows::DISK_LIMIT_S, Duration::from_secs(rows::DISK_LIMIT_S as u64));
    Row { limit_s, answer_limit, ..row(name, request, clients) }
}

/// Every row.
pub const ROWS: [Row; 11] = [
    row("redis-get/1-client", Request::Get, 1),
    row("redis-set/1-client", Request::Set, 1),
    row("redis-get/50-clients", Request::Get, 50),
    row("redis-set/50-clients", Request::Set, 50),
    row("page-keep-alive/nginx", Request::Page, 4),
    row("page-keep-alive/go", Request::Page, 4),
    row("page-keep-alive/node", Request::Page, 4),
    on_disk("disk-redis-set/always/1-client", Request::Set, 1),
    on_disk("disk-redis-set/always/50-clients", Request::Set, 50),
    on_disk("disk-redis-set/everysec/1-client", Request::Set, 1),
    on_disk("disk-redis-set/everysec/50-clients", Request::Set, 50),
];

/// True if [`run`] knows a row of that name.
pub fn knows(name: &str) -> bool {
    ROWS.iter().any(|row| row.name == name) || rows::ROWS.iter().any(|row| row.name == name)
}

/// Starts the server `words`, waits until it answers at `port`, and runs the rows of those names,
/// other rows among them, in the order of the names.
pub fn run(port: u16, names: &[&str], words: &[&str], setting: &Setting) -> Result<()> {
    let _server = start(words)?;
    let asked = ROWS.iter().find(|row| names.contains(&row.name));
    let (request, limit) = asked.map_or((Request::Page, LIMIT), |row| (row.request, row.answer_limit));
    wait(port, request, limit)?;
    for name in names {
        if let Some(row) = ROWS.iter().find(|row| row.name == *name) {
            rows::tell_about(row.name, || rows::in_child(row.name, row.limit_s, || row.measure(port)));
        }
        rows::ROWS.iter().filter(|row| row.name == *name).for_each(|row| rows::run(row, setting));
    }
    Ok(())
}

fn start(words: &[&str]) -> Result<Server> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(Problem::Failed("no server is named".into()));
    };
    system::fork(|| Err(Problem::of("execve", &Command::new(program).args(arguments).exec()))).map(Server)
}

/// Asks until there is an answer.
fn wait(port: u16, request: Request, limit: Duration) -> Result<()> {
    let (start_ns, limit_ns) = (now_ns(), START_LIMIT.max(limit).as_nanos() as u64);
    // A key that nothing was put at has no answer of three bytes.
    let request = if request == Request::Get { Request::Set } else { request };
    loop {
        match Client::connect(port, limit).and_then(|mut client| client.ask(request)) {
            Err(_) if now_ns() - start_ns < limit_ns => std::thread::sleep(START_STEP),
            result => return result,
        }
    }
}

impl Row {
    fn measure(&self, port: u16) -> Result<Vec<Sample>> {
        let mut clients =
            (0..self.clients).map(|_| Client::connect(port, self.answer_limit)).collect::<Result<Vec<_>>>()?;
        if self.request == Request::Get {
            clients[0].ask(Request::Set)?;
        }
        let mut rounds =
            |requests: usize| (0..requests / self.clients).try_for_each(|_| round(&mut clients, self.request));
        rounds(WARM_UP)?;
        (0..SAMPLES).map(|_| measured(REQUESTS as u64, || rounds(REQUESTS))).collect()
    }
}

fn round(clients: &mut [Client], request: Request) -> Result<()> {
    clients.iter_mut().try_for_each(|client| client.send(request))?;
    clients.iter_mut().try_for_each(|client| client.receive(request))
}

/// A connection that is kept.
struct Client {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Client {
    /// An answer that does not come within the limit is lost.
    fn connect(port: u16, limit: Duration) -> Result<Client> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).during("connect")?;
        stream.set_read_timeout(Some(limit)).during("SO_RCVTIMEO")?;
        stream.set_nodelay(true).during("TCP_NODELAY")?;
        Ok(Client { stream, answer: vec![0; ANSWER_BYTES_MAX] })
    }

    fn ask(&mut self, request: Request) -> Result<()> {
        self.send(request)?;
        self.receive(request)
    }

    fn send(&mut self, request: Request) -> Result<()> {
        self.stream.write_all(request.bytes()).during("write (TCP)")
    }

    /// Reads one whole answer.
    fn receive(&mut self, request: Request) -> Result<()> {
        let mut count = 0;
        while !request.is_answered(&self.answer[..count])? {
            match self.stream.read(&mut self.answer[count..]).during("read (TCP)")? {
                0 => return Err(Problem::Failed(format!("the server ended a connection after {count} bytes"))),
                more => count += more,
            }
        }
        Ok(())
    }
}

impl Request {
    fn bytes(self) -> &'static [u8] {
        match self {
            Request::Get => GET,
            Request::Set => SET,
            Request::Page => PAGE,
        }
    }

    /// True if that is the whole answer, false if more must come; an error if it is another.
    fn is_answered(self, answer: &[u8]) -> Result<bool> {
        let whole = match self {
            Request::Get => wanted(answer, GOT),
            Request::Set => wanted(answer, DONE),
            Request::Page => page(answer),
        };
        let other = || Problem::Failed(format!("the server answers `{}`", String::from_utf8_lossy(answer).trim_end()));
        whole.ok_or_else(other)
    }
}

/// `None` if it is no beginning of what is wanted.
fn wanted(answer: &[u8], wanted: &[u8]) -> Option<bool> {
    wanted.starts_with(answer).then_some(answer.len() == wanted.len())
}

/// `None` if it is no page.
fn page(answer: &[u8]) -> Option<bool> {
    const OK: &[u8] = b"HTTP/1.1 200 ";
    const LENGTH: &str = "content-length:";
    if !answer.starts_with(&OK[..OK.len().min(answer.len())]) {
        return None;
    }
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Some(false) };
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let is_length = |line: &&str| line.get(..LENGTH.len()).is_some_and(|start| start.eq_ignore_ascii_case(LENGTH));
    let bytes: usize = head.lines().find(is_length)?[LENGTH.len()..].trim().parse().ok()?;
    let rest = answer.len() - end - 4;
    (rest <= bytes).then_some(rest == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn answers_are_told_from_errors_and_from_their_parts() {
        for (request, whole) in [(Request::Get, GOT), (Request::Set, DONE)] {
            assert_eq!(request.is_answered(whole), Ok(true));
            assert_eq!((request.is_answered(&whole[..3]), request.is_answered(b"")), (Ok(false), Ok(false)));
            assert!(matches!(request.is_answered(b"-ERR\r\n"), Err(Problem::Failed(text)) if text.contains("-ERR")));
            assert!(request.is_answered(&[whole, b"+"].concat()).is_err());
        }
    }

    #[test]
    fn a_page_is_whole_with_the_bytes_that_its_head_tells_of() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-Length: 5\r\nDate: x\r\n\r\nhello";
        assert_eq!(Request::Page.is_answered(answer), Ok(true));
        for bytes in [0, 5, 20, answer.len() - 1] {
            assert_eq!(Request::Page.is_answered(&answer[..bytes]), Ok(false), "{bytes}");
        }
        let longer = [&answer[..], b"!"].concat();
        for other in [&b"HTTP/1.1 404 Not Found\r\n"[..], b"HTTP/1.1 200 OK\r\n\r\n", &longer] {
            assert!(Request::Page.is_answered(other).is_err());
        }
    }

    /// A round is one request on each connection, and all answers.
    #[test]
    fn each_connection_asks_once_a_round() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut clients: Vec<_> = (0..3).map(|_| Client::connect(port, LIMIT).unwrap()).collect();
        let mut server: Vec<_> = (0..3).map(|_| listener.accept().unwrap().0).collect();
        // Answers that come before they are asked for, in two parts, are read when they are.
        for stream in &mut server {
            stream.write_all(&GOT[..4]).unwrap();
            stream.write_all(&GOT[4..]).unwrap();
        }
        round(&mut clients, Request::Get).unwrap();
        for stream in &mut server {
            let mut asked = vec![0; GET.len()];
            stream.read_exact(&mut asked).unwrap();
            assert_eq!(asked, GET);
            stream.set_nonblocking(true).unwrap();
            assert!(stream.read(&mut asked).is_err(), "more than one request came");
        }
        drop(server);
        assert!(clients[0].receive(Request::Get).is_err());
    }

    #[test]
    fn stretches_and_warm_up_are_whole_rounds() {
        for row in &ROWS {
            assert!(REQUESTS.is_multiple_of(row.clients) && WARM_UP.is_multiple_of(row.clients), "{}", row.name);
            assert!(knows(row.name) && rows::ROWS.iter().all(|other| other.name != row.name), "{}", row.name);
        }
        assert!(knows("known-loop") && !knows("redis-get"));
    }
}
