//! A client: transfers without a pause until the load is over, and writes down what it saw.
//!
//! Bytes move when they come, and when this machine's own buffers take them. Those may take all
//! that is left of an upload at once, so the guest answers each line of it that it has.
//!
//! A download has a connection of its own. An upload client keeps one for all its uploads, opened
//! before the load: to start a program for a new one costs a second if the guest's only core is
//! busy, without any fault.
//!
//! Every connection has a port of its own, since all ports of this machine lead to the same two of
//! the guest: two clients with one port would be one connection there, which breaks both.
//!
//! A client goes on after a transfer that failed, so that a run shows how often that happens.

use super::content::{Content, DOWNLOAD_PORT, LINE_BYTES, LONG, Run, SHORT, UPLOAD_PORT};
use super::stalls::{Meter, Stall};
use crate::machine::liveness::GuestLiveness;
use anyhow::{Context, Result, bail, ensure};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, socket};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A transfer in which nothing moves for so long has failed: longer than any stall that ends.
const GIVE_UP: Duration = Duration::from_secs(20);
/// Ports that the clients' connections have in turn: none that this machine chooses by itself.
const OWN_PORTS: std::ops::Range<u16> = 10_000..32_000;
/// Until a server that does not serve yet is asked again.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// Whose transfers fail so often makes no more of them.
const FAILURES_MAX: usize = 5;
/// Longer than the head of any answer.
const HEAD_BYTES_MAX: usize = 4096;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;
/// So many clients make short transfers, one of each kind.
const SHORT_ONES: usize = 2;

/// What clients and the one who breaks things tell each other.
pub struct Board {
    start: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    begun: usize,
    connections: usize,
    is_over: bool,
}

impl Board {
    pub fn new() -> Board {
        Board { start: Instant::now(), state: Mutex::default(), changed: Condvar::new() }
    }

    /// Time since the start of the load.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        result
    }

    /// How many transfers have begun.
    pub fn begun(&self) -> usize {
        self.state(|state| state.begun)
    }

    /// Counts a transfer that begins; gives when that is, and whether it is the client's last.
    fn begin(&self) -> (Duration, bool) {
        self.state(|state| {
            state.begun += 1;
            // Within the lock: who waits for it gives its next order later.
            (self.now(), state.is_over)
        })
    }

    /// The port of the next connection.
    fn next_port(&self) -> u16 {
        self.state(|state| {
            state.connections += 1;
            OWN_PORTS.start + (state.connections % OWN_PORTS.len()) as u16
        })
    }

    /// Has each client begin one more transfer, and no other.
    pub fn end(&self) {
        self.state(|state| state.is_over = true);
    }

    /// Waits until more than `before` transfers have begun; false if none begins in time.
    pub fn wait_for_more(&self, before: usize, limit: Duration) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, limit, |state| state.begun <= before);
        waited.is_ok_and(|(state, _)| state.begun > before)
    }
}

/// What a client saw.
pub struct Record {
    pub client: usize,
    /// When each transfer began.
    pub begun: Vec<Duration>,
    /// Bytes of the transfers that ended well.
    pub bytes: usize,
    pub failures: Vec<Failure>,
    pub stalls: Vec<Stall>,
    pub longest: Duration,
}

/// A transfer that failed.
pub struct Failure {
    pub at: Duration,
    /// When the client's last byte moved.
    pub last_byte: Duration,
    pub transfer: usize,
    pub what: anyhow::Error,
}

/// Clients with even numbers download, those with odd ones upload.
#[derive(Clone, Copy)]
pub struct Client<'a> {
    pub number: usize,
    pub address: SocketAddr,
    pub content: &'a Content,
    pub board: &'a Board,
    pub liveness: GuestLiveness,
}

impl Client<'_> {
    /// What a client of that number does.
    pub fn kind(number: usize) -> &'static str {
        if number.is_multiple_of(2) { "download" } else { "upload" }
    }

    /// Who serves that in the guest.
    pub fn guest_port(number: usize) -> u16 {
        if number.is_multiple_of(2) { DOWNLOAD_PORT } else { UPLOAD_PORT }
    }

    /// Opens the connection that an upload client keeps, and tries it.
    pub fn open(self, limit: Duration) -> Result<Option<TcpStream>> {
        let (end, mut kept) = (self.board.now() + limit, None);
        while Self::kind(self.number) == "upload" {
            let meter = Mutex::new(Meter::new(self.board.now()));
            match self.upload(Run::new(self.number, 0, SHORT), &meter, &mut kept) {
                Ok(()) => break,
                Err(problem) if self.board.now() > end => {
                    return Err(problem.context(format!("no upload within {} s", limit.as_secs())));
                }
                Err(_) => std::thread::sleep(TRY_AGAIN),
            }
            self.liveness.check()?;
        }
        Ok(kept)
    }

    /// Transfers until the load is over, and once more.
    pub fn work(self, mut kept: Option<TcpStream>) -> Record {
        let mut record = Record {
            client: self.number,
            begun: Vec::new(),
            bytes: 0,
            failures: Vec::new(),
            stalls: Vec::new(),
            longest: Duration::ZERO,
        };
        let meter = Mutex::new(Meter::new(self.board.now()));
        let lines = if self.number < SHORT_ONES { SHORT } else { LONG };
        for transfer in 1.. {
            let (at, is_last) = self.board.begin();
            record.begun.push(at);
            let run = Run::new(self.number, transfer, lines);
            let result = match Self::kind(self.number) {
                "download" => self.download(run, &meter),
                _ => self.upload(run, &meter, &mut kept),
            };
            match result {
                Ok(()) => record.bytes += run.bytes(),
                Err(what) => {
                    let (at, last_byte) = self.locked(&meter, |meter, now| {
                        meter.give_up(now);
                        (now, meter.last_byte())
                    });
                    record.failures.push(Failure { at, last_byte, transfer, what });
                }
            }
            if is_last || record.failures.len() >= FAILURES_MAX || self.liveness.check().is_err() {
                break;
            }
        }
        (record.longest, record.stalls) = meter.into_inner().unwrap_or_else(PoisonError::into_inner).finish();
        record
    }

    /// Does something with the meter and the time, which runs forwards only within the lock.
    fn locked<T>(&self, meter: &Mutex<Meter>, work: impl FnOnce(&mut Meter, Duration) -> T) -> T {
        let mut meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut meter, self.board.now())
    }

    fn connect(&self) -> Result<TcpStream> {
        let own = socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::TCP))?;
        // A connection of before may have that port still, or another program of this machine.
        let is_bound = |port| bind(&own, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).is_ok();
        let ports = std::iter::repeat_with(|| self.board.next_port()).take(OWN_PORTS.len());
        ensure!({ ports }.any(is_bound), "no port from {} to {} is free", OWN_PORTS.start, OWN_PORTS.end);
        for which in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&own, which, Some(GIVE_UP))?;
        }
        connect(&own, &self.address).context("cannot connect")?;
        Ok(own.into())
    }

    fn download(&self, run: Run, meter: &Mutex<Meter>) -> Result<()> {
        let mut stream = self.connect()?;
        write!(stream, "GET {} HTTP/1.0\r\n\r\n", run.path()).context("cannot ask")?;
        let mut answer = Answer { client: self, stream: &stream, meter, buffer: Vec::new() };
        answer.head()?;
        let mut place = 0;
        loop {
            let (got, expected) = (std::mem::take(&mut answer.buffer), &self.content.of(run)[place..]);
            ensure!(got.len() <= expected.len(), "more came than the {} bytes that were meant", run.bytes());
            if let Some(wrong) = first_difference(&got, expected) {
                bail!("byte {} of {} is another", place + wrong, run.bytes());
            }
            place += got.len();
            if !answer.more().with_context(|| format!("after {place} bytes of {}", run.bytes()))? {
                break;
            }
        }
        ensure!(place == run.bytes(), "the connection ended after {place} bytes of {}", run.bytes());
        Ok(())
    }

    /// Uploads over the connection that is kept, or a new one; keeps it if all went well.
    fn upload(&self, run: Run, meter: &Mutex<Meter>, kept: &mut Option<TcpStream>) -> Result<()> {
        let stream = kept.take().map_or_else(|| self.connect(), Ok)?;
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| self.send(&stream, run, meter));
            let taken = self.take_answers(&stream, run, meter);
            if taken.is_err() {
                // The sender may wait for somebody who reads. It may be closed already.
                let _ = stream.shutdown(Shutdown::Both);
            }
            let sent = sender.join().unwrap_or_else(|_| bail!("the sender failed"));
            // If the answers are not right the sender's failure may be what we did.
            taken.and(sent)
        })?;
        *kept = Some(stream);
        Ok(())
    }

    fn send(&self, mut stream: &TcpStream, run: Run, meter: &Mutex<Meter>) -> Result<()> {
        writeln!(stream, "{}", run.file()).context("cannot ask")?;
        for (number, line) in (1..).zip(self.content.of(run).chunks(LINE_BYTES)) {
            stream.write_all(line).with_context(|| format!("line {number} cannot be sent"))?;
            self.locked(meter, Meter::moved);
        }
        Ok(())
    }

    /// Reads the number of each line.
    fn take_answers(&self, stream: &TcpStream, run: Run, meter: &Mutex<Meter>) -> Result<()> {
        let mut answer = Answer { client: self, stream, meter, buffer: Vec::new() };
        let lines = run.bytes() / LINE_BYTES;
        for number in 1..=lines {
            let line = answer.line().with_context(|| format!("after {} of {lines} lines", number - 1))?;
            ensure!(line == number.to_string(), "the guest says {line:?} of line {number} of {lines}");
        }
        ensure!(answer.buffer.is_empty(), "more comes behind the last line");
        Ok(())
    }
}

/// Where two texts first differ; what only one of them has does not count.
fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let common = one.len().min(other.len());
    let differs = one[..common] != other[..common];
    differs.then(|| one.iter().zip(other).position(|(one, other)| one != other)).flatten()
}

/// What comes over a connection.
struct Answer<'a> {
    client: &'a Client<'a>,
    stream: &'a TcpStream,
    meter: &'a Mutex<Meter>,
    buffer: Vec<u8>,
}

impl Answer<'_> {
    /// Reads more; false at the end.
    fn more(&mut self) -> Result<bool> {
        let mut bytes = [0; READ_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(count) => {
                self.client.locked(self.meter, Meter::moved);
                self.buffer.extend_from_slice(&bytes[..count]);
                Ok(count > 0)
            }
            Err(problem) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&problem.kind()) => {
                bail!("nothing came for {} s", GIVE_UP.as_secs())
            }
            Err(problem) => Err(problem.into()),
        }
    }

    /// Takes the line that comes next, without its end.
    fn line(&mut self) -> Result<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            ensure!(self.buffer.len() < HEAD_BYTES_MAX, "a line does not end");
            ensure!(self.more()?, "the connection ended");
        }
    }

    /// Takes the head of an answer by HTTP, which has to be a good one.
    fn head(&mut self) -> Result<()> {
        let status = self.line().context("no answer")?;
        ensure!(
            status.starts_with("HTTP/1.") && status.get(8..12) == Some(" 200"),
            "the answer begins with {status:?}"
        );
        while !self.line().context("half the head of an answer")?.is_empty() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::TcpListener;

    /// Serves one connection: reads the request's head, then gives `answer`.
    fn with_server(answer: Vec<u8>, test: impl FnOnce(SocketAddr)) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            // Who found a mistake hangs up.
            let _ = stream.write_all(&answer);
        });
        test(address);
        server.join().unwrap();
    }

    fn download_of(answer: Vec<u8>) -> Result<()> {
        let (content, board) = (Content::new(), Board::new());
        let mut result = Ok(());
        with_server(answer, |address| {
            let client =
                Client { number: 0, address, content: &content, board: &board, liveness: GuestLiveness::default() };
            result = client.download(Run::new(0, 0, SHORT), &Mutex::new(Meter::new(board.now())));
        });
        result
    }

    #[test]
    fn a_download_is_compared_byte_by_byte() {
        let content = Content::new();
        let answer = [b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n", content.of(Run::new(0, 0, SHORT))].concat();
        download_of(answer.clone()).unwrap();
        let message = |answer: Vec<u8>| format!("{:#}", download_of(answer).unwrap_err());
        assert!(message(answer[..answer.len() - 1].to_vec()).contains("ended after 262143 bytes of 262144"));
        assert!(message([&answer[..], b"x"].concat()).contains("more came"));
        let mut other = answer;
        *other.last_mut().unwrap() ^= 1;
        assert!(message(other).contains("byte 262143 of 262144 is another"));
        assert!(message(b"HTTP/1.1 404 Not Found\r\n\r\n".to_vec()).contains("404"));
        assert!(message(Vec::new()).contains("no answer"));
    }

    /// Two ports of this machine do not keep two connections apart in the guest.
    #[test]
    fn no_two_connections_have_one_port() {
        let (content, board) = (Content::new(), Board::new());
        let servers = [0, 1].map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let connect = |number: usize| {
            let address = servers[number % 2].local_addr().unwrap();
            let client =
                Client { number, address, content: &content, board: &board, liveness: GuestLiveness::default() };
            client.connect().unwrap()
        };
        let all: Vec<TcpStream> = (0..100).map(connect).collect();
        let ports: BTreeSet<u16> = all.iter().map(|stream| stream.local_addr().unwrap().port()).collect();
        assert_eq!(ports.len(), all.len());
    }

    #[test]
    fn who_waits_for_a_transfer_hears_of_it() {
        let board = Board::new();
        assert!(!board.wait_for_more(0, Duration::from_millis(1)));
        std::thread::scope(|scope| {
            scope.spawn(|| board.begin());
            assert!(board.wait_for_more(0, GIVE_UP));
        });
        assert_eq!(board.begun(), 1);
    }
}
