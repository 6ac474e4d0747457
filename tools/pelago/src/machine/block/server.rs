//! Serves one disk to one client at a time, and gives faults on demand.
//!
//! A thread for each connection takes requests as they come, so that it is known of a flush what
//! had been completed by then; another does them in that order. What was written is read back at
//! once, and stays over a lost connection: the disk has power until the server goes.

use crate::host::late::late;
use crate::machine::block::SECTOR_BYTES;
use crate::machine::block::image::Image;
use crate::machine::block::log::{Content, Entry, Log};
use crate::machine::block::wire::{self, Command, Errno, Request};
use anyhow::{Context, Result, anyhow};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Requests that wait to be done: the emulator has 16 on the way (QEMU's block/nbd.c,
/// MAX_NBD_REQUESTS).
const WAITING_MAX: usize = 64;

/// Which requests a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Reads,
    /// Trims and zeros too.
    Writes,
    Flushes,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not done, and its answer is EIO.
    Error,
    /// It is done, and all after it, so much later.
    Delay(Duration),
    /// It is done, and the connection is closed instead of an answer; the next one is taken.
    Disconnect,
    /// Of a read: half of what was read is answered, and the connection closed.
    Short,
}

/// A request that is not done, and none behind it, until this goes.
#[must_use = "it is done at once"]
pub struct Held {
    _until: Sender<()>,
}

/// Who holds a request: is told that one has come, and lets go of the other.
type Hold = (Sender<()>, Receiver<()>);

struct State {
    disk: Image,
    log: Log,
    /// For which requests, how many of them, and what.
    faults: Vec<(On, u32, Fault)>,
    /// For the next write or flush.
    hold: Option<Hold>,
    connection: Option<UnixStream>,
    connections: u32,
    is_over: bool,
    problem: Option<anyhow::Error>,
}

/// See the module's head. When it goes, its client's connection is closed.
pub struct Server {
    state: Arc<Mutex<State>>,
    /// The thread's, to be shut down.
    listener: UnixListener,
    serving: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves a disk at a new local socket of that path. All that is on the disk is durable.
    pub fn start(socket: &Path, disk: Image) -> Result<Server> {
        let listener =
            UnixListener::bind(socket).with_context(|| format!("cannot serve a disk at {}", socket.display()))?;
        let log = Log::new(disk.clone());
        let (faults, hold, connection) = (Vec::new(), None, None);
        let state = State { disk, log, faults, hold, connection, connections: 0, is_over: false, problem: None };
        let state = Arc::new(Mutex::new(state));
        let (shared, taking) = (state.clone(), listener.try_clone().context("cannot double a socket")?);
        let serving = std::thread::spawn(move || {
            loop {
                let taken = taking.accept().context("cannot take a client");
                if lock(&shared).is_over {
                    return;
                }
                let is_lost = taken.is_err();
                if let Err(problem) = taken.and_then(|(stream, _)| serve(&shared, stream)) {
                    lock(&shared).problem.get_or_insert(problem);
                }
                if is_lost {
                    return;
                }
            }
        });
        Ok(Server { state, listener, serving: Some(serving) })
    }

    /// Notes in the log what the disk's user says that it has kept.
    pub fn mark(&self, number: u64) -> Result<()> {
        lock(&self.state).log.add(Entry::Mark(number))
    }

    /// Does that to the next `count` requests of those that do not have a fault coming yet.
    pub fn inject(&self, on: On, count: u32, fault: Fault) {
        lock(&self.state).faults.push((on, count, fault));
    }

    /// Waits until the next write or flush comes, and has it wait;
    /// [`Late`](crate::host::late::Late) if none comes.
    pub fn hold(&self, limit: Duration) -> Result<Held> {
        let ((told, came), (until, released)) = (channel(), channel());
        lock(&self.state).hold = Some((told, released));
        let words = || format!("no write or flush came to the disk's server within {:.0} s", limit.as_secs_f64());
        came.recv_timeout(limit).map_err(|_| late(words(), &[]))?;
        Ok(Held { _until: until })
    }

    /// How often a client has connected.
    pub fn connections(&self) -> u32 {
        lock(&self.state).connections
    }

    /// Ends it. The log of all that happened; an error if the client broke the protocol or the log
    /// is too long.
    pub fn finish(mut self) -> Result<Log> {
        self.end();
        let mut state = lock(&self.state);
        match state.problem.take() {
            Some(problem) => Err(problem.context("the disk's server")),
            None => Ok(state.log.clone()),
        }
    }

    fn end(&mut self) {
        {
            let mut state = lock(&self.state);
            state.is_over = true;
            state.connection.take().iter().for_each(close);
        }
        if let Some(serving) = self.serving.take() {
            // Ends its wait for a client, wherever the socket's path is by now. It fails for no
            // socket that listens, and a thread that panicked has told it.
            let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
            let _ = serving.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A thread that panicked left a log that is as good as before.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Its peer may have been faster.
fn close(stream: &UnixStream) {
    let _ = stream.shutdown(Shutdown::Both);
}

/// Serves a client until it leaves or is to be left.
fn serve(state: &Mutex<State>, mut stream: UnixStream) -> Result<()> {
    let disk_bytes = {
        let mut state = lock(state);
        if state.is_over {
            return Ok(());
        }
        state.connection = Some(stream.try_clone().context("cannot double a socket")?);
        state.connections += 1;
        state.disk.bytes()
    };
    let result = match wire::greet(&mut stream, disk_bytes) {
        Ok(true) => transmit(state, stream),
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };
    lock(state).connection = None;
    if result.as_ref().is_err_and(is_gone) { Ok(()) } else { result }
}

/// The client's end is no breach of the protocol: emulators are killed. Nor is ours.
fn is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some()
}

fn transmit(state: &Mutex<State>, mut stream: UnixStream) -> Result<()> {
    let mut input = stream.try_clone().context("cannot double a socket")?;
    let (sender, requests) = sync_channel(WAITING_MAX);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            while let Some(request) = wire::read_request(&mut input)? {
                let completed = lock(state).log.entries().len();
                if sender.send((request, completed)).is_err() {
                    break;
                }
            }
            Ok(())
        });
        let result =
            requests.iter().try_for_each(|(request, completed)| serve_request(state, &mut stream, request, completed));
        close(&stream);
        drop(requests);
        let read = reader.join().unwrap_or_else(|_| Err(anyhow!("the thread that reads requests panicked")));
        match result {
            Err(Some(error)) => Err(error),
            // It was us who left.
            Err(None) => Ok(()),
            Ok(()) => read,
        }
    })
}

/// Does a request that came when so many entries of the log were complete. An error without words
/// ends the connection.
fn serve_request(
    state: &Mutex<State>,
    stream: &mut UnixStream,
    request: Request,
    completed: usize,
) -> Result<(), Option<anyhow::Error>> {
    if request.command == Command::Disconnect {
        return Err(None);
    }
    let (hold, fault) = lock(state).take_faults(request.command);
    if let Some((told, released)) = hold {
        // Who asked for it may be gone, and then lets go as well.
        let _ = told.send(());
        let _ = released.recv();
    }
    let cookie = request.cookie;
    if let Some(Fault::Delay(time)) = fault {
        std::thread::sleep(time);
    }
    let result = match fault {
        Some(Fault::Error) => Err(Errno::Io),
        _ => lock(state).execute(request, completed),
    };
    match (fault, &result) {
        (Some(Fault::Disconnect), _) => return Err(None),
        (Some(Fault::Short), Ok(data)) => {
            let half = wire::reply(stream, cookie, Ok(&data[..data.len() / 2]));
            return Err(half.err().filter(|error| !is_gone(error)));
        }
        _ => {}
    }
    wire::reply(stream, cookie, result.as_deref().map_err(|error| *error)).map_err(Some)
}

impl State {
    /// Whether it is held, and what else becomes of it.
    fn take_faults(&mut self, command: Command) -> (Option<Hold>, Option<Fault>) {
        let on = match command {
            Command::Read => On::Reads,
            Command::Flush => On::Flushes,
            Command::Write | Command::Trim | Command::WriteZeroes => On::Writes,
            Command::Disconnect | Command::Other => return (None, None),
        };
        let hold = if on == On::Reads { None } else { self.hold.take() };
        let fault = self.faults.iter_mut().find(|(of, left, _)| *of == on && *left > 0);
        let fault = fault.map(|(_, left, fault)| {
            *left -= 1;
            *fault
        });
        (hold, fault)
    }

    /// Does it; what was read.
    fn execute(&mut self, request: Request, completed: usize) -> Result<Vec<u8>, Errno> {
        let Request { command, offset, bytes, is_through, data, .. } = request;
        let is_aligned = offset.is_multiple_of(SECTOR_BYTES) && u64::from(bytes).is_multiple_of(SECTOR_BYTES);
        match command {
            Command::Flush => self.add(Entry::Flush { covers: completed }).map(|()| Vec::new()),
            Command::Disconnect | Command::Other => Err(Errno::Invalid),
            _ if !is_aligned || self.disk.check(offset, bytes.into()).is_err() => Err(Errno::Invalid),
            Command::Read if bytes > wire::REQUEST_BYTES_MAX => Err(Errno::Invalid),
            Command::Read => {
                let mut data = vec![0; bytes as usize];
                self.disk.read(offset, &mut data);
                Ok(data)
            }
            Command::Write => self.write(offset, Content::Data(data), is_through),
            Command::Trim | Command::WriteZeroes => self.write(offset, Content::Zeros(bytes.into()), is_through),
        }
    }

    fn write(&mut self, offset: u64, content: Content, is_through: bool) -> Result<Vec<u8>, Errno> {
        content.apply(&mut self.disk, offset, 0, content.bytes());
        self.add(Entry::Write { offset, content, is_through })?;
        Ok(Vec::new())
    }

    fn add(&mut self, entry: Entry) -> Result<(), Errno> {
        self.log.add(entry).map_err(|problem| {
            self.problem.get_or_insert(problem);
            Errno::NoSpace
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::late::Late;
    use crate::machine::block::cut::{Cache, Cut, Disk};
    use std::io::{Read, Write};

    const DISK_BYTES: u64 = 1 << 20;
    /// Requests of this number are written through.
    const THROUGH: u64 = 99;

    /// A client as small as can be.
    struct Client(UnixStream);

    impl Client {
        /// Names the export in the old way.
        fn connect(socket: &Path) -> Client {
            let mut stream = UnixStream::connect(socket).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut hello = [0; 18];
            stream.read_exact(&mut hello).unwrap();
            stream.write_all(&[&3u32.to_be_bytes()[..], &hello[8..16], &[0, 0, 0, 1, 0, 0, 0, 0]].concat()).unwrap();
            let mut export = [0; 10];
            stream.read_exact(&mut export).unwrap();
            assert_eq!(export[..8], DISK_BYTES.to_be_bytes());
            Client(stream)
        }

        fn send(&mut self, command: u16, cookie: u64, offset: u64, bytes: u32, data: &[u8]) {
            // The high half of a command is its flags.
            let command = u32::from(command).to_be_bytes();
            let command = if cookie == THROUGH { [0, 1, command[2], command[3]] } else { command };
            let head = [&0x2560_9513u32.to_be_bytes()[..], &command, &cookie.to_be_bytes()];
            let place = [&offset.to_be_bytes()[..], &bytes.to_be_bytes()];
            self.0.write_all(&[&head.concat()[..], &place.concat(), data].concat()).unwrap();
        }

        /// Cookie and error of the next answer; none: the server has gone.
        fn answer(&mut self) -> Option<(u64, u32)> {
            let mut head = [0; 16];
            self.0.read_exact(&mut head).ok()?;
            assert_eq!(head[..4], 0x6744_6698u32.to_be_bytes());
            let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
            Some((u64::from_be_bytes(head[8..].try_into().unwrap()), error))
        }

        fn ask(&mut self, command: u16, offset: u64, bytes: u32, data: &[u8]) -> Option<u32> {
            self.send(command, 7, offset, bytes, data);
            self.answer().map(|(_, error)| error)
        }

        fn write(&mut self, sector: u64, byte: u8) -> Option<u32> {
            self.ask(1, sector * SECTOR_BYTES, SECTOR_BYTES as u32, &[byte; SECTOR_BYTES as usize])
        }

        fn read(&mut self, sector: u64) -> u8 {
            assert_eq!(self.ask(0, sector * SECTOR_BYTES, SECTOR_BYTES as u32, &[]), Some(0));
            let mut data = [0; SECTOR_BYTES as usize];
            self.0.read_exact(&mut data).unwrap();
            assert!(data.iter().all(|byte| *byte == data[0]));
            data[0]
        }

        fn flush(&mut self) -> Option<u32> {
            self.ask(3, 0, 0, &[])
        }
    }

    fn served() -> (tempfile::TempDir, Server, Client) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("disk");
        let server = Server::start(&socket, Image::zeros(DISK_BYTES)).unwrap();
        let client = Client::connect(&socket);
        (folder, server, client)
    }

    #[test]
    fn what_is_done_is_in_the_log_in_order() {
        let (_folder, server, mut client) = served();
        assert_eq!((client.write(3, 5), client.read(3), client.read(4)), (Some(0), 5, 0));
        assert_eq!(client.flush(), Some(0));
        server.mark(1).unwrap();
        let (trim, zeros) = (4, 6);
        assert_eq!(client.ask(zeros, 3 * SECTOR_BYTES, 512, &[]), Some(0));
        assert_eq!(client.ask(trim, 0, 1024, &[]), Some(0));
        assert_eq!(client.read(3), 0);
        client.send(zeros, THROUGH, 512, 512, &[]);
        assert_eq!(client.answer(), Some((THROUGH, 0)));
        for (offset, bytes) in [(1, 512), (0, 1), (DISK_BYTES, 512), (u64::MAX - 511, 512)] {
            assert_eq!(client.ask(0, offset, bytes, &[]), Some(Errno::Invalid as u32), "{offset} {bytes}");
        }
        // A kind that was not offered.
        assert_eq!(client.ask(7, 0, 512, &[]), Some(Errno::Invalid as u32));
        let write = |offset, content| Entry::Write { offset, content, is_through: offset == 512 };
        let wanted = [
            write(1536, Content::Data(vec![5; 512])),
            Entry::Flush { covers: 1 },
            Entry::Mark(1),
            write(1536, Content::Zeros(512)),
            write(0, Content::Zeros(1024)),
            write(512, Content::Zeros(512)),
        ];
        assert_eq!(server.finish().unwrap().entries(), wanted);
    }

    #[test]
    fn a_flush_covers_what_was_complete_when_it_came() {
        let (_folder, server, mut client) = served();
        assert_eq!(client.write(0, 1), Some(0));
        server.inject(On::Writes, 1, Fault::Delay(Duration::from_secs(1)));
        client.send(1, 8, SECTOR_BYTES, 512, &[2; 512]);
        client.send(3, 9, 0, 0, &[]);
        assert_eq!((client.answer(), client.answer()), (Some((8, 0)), Some((9, 0))));
        let log = server.finish().unwrap();
        assert_eq!(log.entries()[2], Entry::Flush { covers: 1 });
        let lost = |number| {
            let disk = Disk { cache: Cache::Honest, whole: |_, _| Vec::new() };
            let (image, mut byte) = (Cut { seed: 0, number, position: 3 }.image(&log, disk), [0; 513]);
            image.read(0, &mut byte);
            assert_eq!(byte[0], 1);
            byte[512] == 0
        };
        assert!((0..50).any(lost));
    }

    #[test]
    fn faults_come_as_they_were_ordered() {
        let (folder, server, mut client) = served();
        server.inject(On::Writes, 2, Fault::Error);
        server.inject(On::Flushes, 1, Fault::Error);
        server.inject(On::Writes, 1, Fault::Disconnect);
        let io = Some(Errno::Io as u32);
        assert_eq!((client.read(0), client.flush(), client.flush()), (0, io, Some(0)));
        assert_eq!((client.write(0, 1), client.write(0, 1), client.read(0)), (io, io, 0));
        // Done, but nobody says so; and kept over the loss.
        assert_eq!(client.write(0, 2), None);
        let mut client = Client::connect(&folder.path().join("disk"));
        assert_eq!((client.read(0), client.write(0, 3), server.connections()), (2, Some(0), 2));
        server.inject(On::Reads, 1, Fault::Short);
        client.send(0, 7, 0, SECTOR_BYTES as u32, &[]);
        assert_eq!(client.answer(), Some((7, 0)));
        let mut half = Vec::new();
        client.0.read_to_end(&mut half).unwrap();
        assert_eq!(half, [3; SECTOR_BYTES as usize / 2]);
        let mut client = Client::connect(&folder.path().join("disk"));
        assert_eq!((client.read(0), server.connections()), (3, 3));
        assert_eq!(server.finish().unwrap().entries().len(), 3);
        assert_eq!(client.answer(), None);
    }

    #[test]
    fn what_is_held_is_done_when_it_is_let_go() {
        let (_folder, server, mut client) = served();
        let asked = std::thread::spawn(move || {
            // What only reads is not held.
            let before = client.read(0);
            (before, client.write(0, 1), client.read(0))
        });
        let held = server.hold(Duration::from_secs(60)).unwrap();
        assert!(server.hold(Duration::from_millis(200)).is_err_and(|error| error.is::<Late>()));
        assert!(lock(&server.state).log.entries().is_empty());
        drop(held);
        assert_eq!(asked.join().unwrap(), (0, Some(0), 1));
        server.finish().unwrap();
    }

    #[test]
    fn one_whose_folder_is_gone_ends() {
        let (folder, server, client) = served();
        drop(folder);
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || ended.send(server.finish().map(drop)));
        end.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
        drop(client);
    }

    #[test]
    fn breaches_of_the_protocol_are_told() {
        let (_folder, server, mut client) = served();
        client.0.write_all(&[1; 28]).unwrap();
        assert_eq!(client.answer(), None);
        let told = format!("{:#}", server.finish().map(drop).unwrap_err());
        assert_eq!(told, "the disk's server: the NBD client sends no request");
        let (_folder, server, mut client) = served();
        client.send(2, 0, 0, 0, &[]);
        assert_eq!(client.answer(), None);
        server.finish().unwrap();
        // One that is killed breaks none.
        let (_folder, server, mut client) = served();
        client.0.write_all(&[1; 3]).unwrap();
        drop(client);
        server.finish().unwrap();
    }
}
