//! Open file descriptions: what a descriptor of a Linux program stands for, whichever server holds
//! it.
//!
//! Files (`fs`, `volume`), pipes and event counters (`process`), terminals (`console`) and sockets
//! (`tcp`) all speak this one conversation, so the proxy needs one path for read, write and poll. A
//! description is held by reference: one per client domain, dropped when the domain ends. Names are
//! free of Linux: errno is made from [`DescriptionError`] in `linux/proxy` alone.

use alloc::string::String;
use alloc::vec::Vec;
use contract::contract;
use serde::{Deserialize, Serialize};

use crate::BulkSpan;

/// Names a description at its server, for every client that holds a reference; never used again by
/// that server.
pub type DescriptionId = u64;

/// The terminal at `console`: every client of that server holds it from the start and cannot lose
/// it, so nobody opens or inherits it there.
pub const TERMINAL: DescriptionId = 1;

/// Standard input, output and error of the first program, at `console` too and held as the terminal
/// is. Each is a pipe to the host, or the terminal.
pub const STANDARD: [DescriptionId; 3] = [2, 3, 4];

/// Whether a client may have one more of a server's `max`, of which `taken` are: while it holds
/// fewer than are free, so that the most that one can have is half, and a client that holds little
/// finds room whatever others do. `own` counts what it holds; asked only if more than half are
/// taken.
pub fn may_have(max: usize, taken: usize, own: impl FnOnce() -> usize) -> bool {
    let free = max.saturating_sub(taken);
    taken < free || own() < free
}

/// Readiness bits, of [`Descriptions::poll`] and its event.
pub mod ready {
    /// A read gives data, end of file or an error at once.
    pub const READ: u32 = 1;
    /// A write takes at least one byte.
    pub const WRITE: u32 = 2;
    /// An error is pending.
    pub const ERROR: u32 = 4;
    /// The other side will send nothing more and take nothing more.
    pub const HANGUP: u32 = 8;
    /// The other side will send nothing more.
    pub const READ_HANGUP: u32 = 16;
}

/// Why an operation on a description or path failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DescriptionError {
    /// The client holds no such description. Remedy: open again.
    BadId,
    /// Nothing under that name.
    NotFound,
    /// Rights do not allow it.
    Denied,
    /// The name is taken.
    Exists,
    /// A part of the path is no directory.
    NotDirectory,
    /// It is a directory.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// Too many symbolic links on the way.
    Loop,
    /// A name or path is too long.
    NameTooLong,
    /// An argument has no meaning here.
    Invalid,
    /// This kind of description cannot do that.
    NotSupported,
    /// Nothing now, and the caller did not want to wait.
    WouldBlock,
    /// Nobody reads the other end.
    BrokenPipe,
    /// Cannot be positioned (pipe, socket, terminal).
    NotSeekable,
    /// The store or the account is full.
    NoSpace,
    /// The server or the client has as many as it may have.
    TooMany,
    /// A symbolic link crosses devices, or a rename would.
    CrossDevice,
    /// Not a terminal.
    NotTerminal,
    /// The file is too large for the store.
    TooLarge,
    /// The other side ended the connection hard.
    ConnectionReset,
    /// Nobody listens there.
    ConnectionRefused,
    /// The connection was given up.
    ConnectionAborted,
    /// Local address and port are taken.
    AddressInUse,
    /// The address is not ours, or of a family we lack.
    AddressNotAvailable,
    /// No connection yet.
    NotConnected,
    /// Connected already.
    AlreadyConnected,
    /// A connection attempt runs.
    InProgress,
    /// No answer in time.
    TimedOut,
    /// No way to that address.
    Unreachable,
    /// The server failed inside; it was logged there.
    Failed,
    /// To wait for that lock would be to wait for oneself.
    Deadlock,
    /// The server holds as many locks as it may.
    NoLocks,
    /// A socket of another kind is there.
    WrongKind,
    /// A message is longer than this kind of socket carries.
    MessageTooLong,
    /// A datagram needs an address to go to.
    DestinationRequired,
    /// What the path names is not opened but connected to.
    NoDevice,
    /// It is in use in a way that stands against it.
    Busy,
    /// Nothing is written there: it is mounted so, or had to become so.
    ReadOnly,
    /// A file would have more names than its store can count.
    TooManyLinks,
    /// The file ends before that place, or has only holes behind it.
    PastEnd,
    /// The file has no attribute of that name.
    NoAttribute,
}

/// What a client that polls wants to be told later, by one `ready` event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchFor {
    /// Nothing.
    Nothing,
    /// When something comes to hold, if nothing does now.
    Level,
    /// At the next change: something comes to hold that does not now, or more can be read.
    Edge,
}

/// A watch as its server keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    mask: u32,
    /// What has held all the time since it began.
    before: u32,
}

impl Watched {
    /// What a poll for `mask` has to keep when `found` holds of it.
    pub fn new(watch: WatchFor, mask: u32, found: u32) -> Option<Watched> {
        let keeps = match watch {
            WatchFor::Nothing => false,
            WatchFor::Level => found == 0,
            WatchFor::Edge => true,
        };
        keeps.then_some(Watched { mask, before: found })
    }

    /// One client's two watches of one description, of two threads or epoll sets, as one.
    pub fn join(self, other: Watched) -> Watched {
        Watched { mask: self.mask | other.mask, before: self.before & other.before }
    }

    /// There was a change, and `holds` is what holds now: what to tell, 0 = nothing yet.
    pub fn at_change(&mut self, holds: u32) -> u32 {
        let holds = holds & (self.mask | ready::ERROR | ready::HANGUP);
        let is_news = holds & ready::READ != 0 || holds & !self.before != 0;
        self.before &= holds;
        if is_news { holds } else { 0 }
    }
}

/// What was copied of a file, for a client to keep: the answer of [`Descriptions::read_and_keep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// Place of the first byte in the file.
    pub from: u64,
    /// Bytes; fewer than were asked for, if the file ends behind them.
    pub count: u32,
}

/// Words in the client's bulk that go with such a copy ([`Descriptions::read_and_keep`]), as
/// bytes from the first one. Each has 32 bits, which the server sets to 0 when it is asked.
pub mod copy_words {
    /// Not 0: it may not be given any more. The server's to write.
    pub const OVER: usize = 0;
    /// So many bytes were read of it at the description's own offset. The client's to write.
    pub const READ: usize = 4;
    /// Bytes of all.
    pub const BYTES: usize = 8;
    /// Bytes at the end of a bulk area that are for such words: a page, which is there once it is
    /// used. What is before it is for data.
    pub const AREA_BYTES: u32 = 4096;
}

/// What kind of thing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    File,
    Directory,
    SymbolicLink,
    Pipe,
    Terminal,
    Socket,
    /// Character device such as null, zero, random: `minor` tells which.
    Device,
    /// Nothing that a path could name, such as an event counter.
    Anonymous,
}

/// What is known of a file or description (stat).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub kind: Kind,
    /// Permission bits 0o7777.
    pub permissions: u32,
    /// Bytes.
    pub size: u64,
    /// Number in its store, and the store's number.
    pub inode: u64,
    pub device: u64,
    pub links: u32,
    pub user: u32,
    pub group: u32,
    /// Device number major << 8 | minor for `Kind::Device` and `Kind::Terminal`.
    pub special: u32,
    /// Sectors of 512 bytes that it takes in its store.
    pub sectors: u64,
    /// Nanoseconds since 1970 of last change and last access.
    pub modified_ns: u64,
    pub accessed_ns: u64,
}

impl Status {
    /// Of what is no file: root's, with one link, without bytes and times.
    pub fn of_no_file(kind: Kind, permissions: u32, inode: u64, device: u64) -> Status {
        Status {
            kind,
            permissions,
            size: 0,
            inode,
            device,
            links: 1,
            user: 0,
            group: 0,
            special: 0,
            sectors: 0,
            modified_ns: 0,
            accessed_ns: 0,
        }
    }
}

/// Where a seek counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whence {
    Start,
    Current,
    End,
    /// The next byte from the offset on that is no hole's: `PastEnd` if there is none.
    Data,
    /// The next one that is a hole's, or the end: `PastEnd` if that is before the offset.
    Hole,
}

/// Description-specific requests (ioctl).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// Terminal settings as the kernel's 36-byte `struct termios` image.
    GetTerminal,
    SetTerminal {
        settings: Vec<u8>,
        flush_input: bool,
    },
    /// Rows and columns.
    GetWindow,
    SetWindow {
        rows: u16,
        columns: u16,
    },
    /// Foreground process group.
    GetForeground,
    SetForeground {
        group: u32,
    },
    /// Becomes the caller's controlling terminal.
    MakeControlling {
        session: u32,
    },
    /// Bytes that can be read now.
    Available,
    /// Bytes that a pipe holds at most. `NotSupported` for what is none.
    GetCapacity,
    /// Makes it hold so many, rounded up to a power of two of pages; gives how many. `Denied` for
    /// more than it may have, `Busy` for less than lies in it.
    SetCapacity {
        bytes: u32,
    },
    /// Extended attributes of a file.
    Attribute(AttributeRequest),
}

/// What an extended attribute is to be when it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttributeChange {
    /// There or not.
    Any,
    /// Not there: `Exists`.
    New,
    /// There: `NoAttribute`.
    Old,
}

/// What is asked about extended attributes of a file. Values and lists lie in the bulk. Names begin
/// with `user.`, `trusted.` or `security.`: `NotSupported` for others, and where no file has any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttributeRequest {
    /// Puts the value at `span`, as far as it fits, and gives how many bytes it has.
    /// `NoAttribute`.
    Get { name: Vec<u8>, span: BulkSpan },
    /// Sets the value to the bytes at `span`. `Denied` for a name of programs on what is no file
    /// or directory, `NoSpace` if all of the file's would not fit.
    Set { name: Vec<u8>, span: BulkSpan, change: AttributeChange },
    /// Removes one. `NoAttribute`.
    Remove { name: Vec<u8> },
    /// Puts the names of all, each with a zero behind it, at `span`, as far as they fit, and gives
    /// how many bytes they have.
    List { span: BulkSpan },
}

/// Answers to [`Control`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlReply {
    Done,
    Terminal(Vec<u8>),
    Window { rows: u16, columns: u16 },
    Number(u64),
}

/// One directory entry as [`Descriptions::entries`] gives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub name: String,
    pub inode: u64,
    pub kind: Kind,
}

/// The server whose description is in flight from one program to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Origin {
    Files,
    Process,
    Console,
    Network,
    Volume,
}

/// Descriptions that one message may carry.
pub const RIGHTS_MAX: usize = 32;

/// A description in flight from one program to another, in a message of a socket of `process`. The
/// message holds it, whatever becomes of the sender, until it was received or is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Right {
    pub origin: Origin,
    /// The ticket of [`Descriptions::export`]; at `process`, and at `console` where everybody holds
    /// everything, the description itself.
    pub token: u64,
    /// What the sending proxy lets the receiving one know.
    pub note: u64,
}

/// Operations on open file descriptions. Order: requests of one client on one description are
/// served in the order sent, except reads and writes that wait. Limits: data of one read or write
/// at most the channel's bulk region. Rights: a client reaches only descriptions it opened or was
/// given by `inherit`. Bulk: data of read and write, values and names of attributes.
#[contract(name = "descriptions", version = 5)]
pub trait Descriptions {
    /// Reads up to `span.length` bytes into the bulk at `span`; at `at`, or at the description's
    /// own offset which then moves. 0 = end of file. With `wait`, waits for the first byte;
    /// without, `WouldBlock`. What lies in a pipe is read `at` a place after its oldest byte
    /// without being taken.
    #[op]
    async fn read(
        &self,
        id: DescriptionId,
        span: BulkSpan,
        at: Option<u64>,
        wait: bool,
    ) -> Result<u32, DescriptionError>;

    /// As `read` of a file, whose bytes the client may keep: it answers its program's reads of them
    /// itself, as long as the word [`copy_words::OVER`] at `words` of its bulk is 0. Before the
    /// server answers whatever changes bytes or size of the file, that is 1. Without `at` the
    /// offset moves as the client says by the word [`copy_words::READ`]: the server looks there
    /// when it needs it, and what was kept is over then. What the words were for before is over,
    /// and both are 0; but words for bytes of the same file, read at places, which has not changed,
    /// stay as they are: a client that stored something in `READ` before it asked, and finds it
    /// there, may go on giving what it kept by them. `Busy`: somebody may change the bytes, or move
    /// the offset, without the server; `TooMany`: the client keeps as much as it may;
    /// `NotSupported`: it is no file.
    #[op]
    async fn read_and_keep(
        &self,
        id: DescriptionId,
        span: BulkSpan,
        at: Option<u64>,
        words: u32,
    ) -> Result<Copied, DescriptionError> {
        Err(DescriptionError::NotSupported)
    }

    /// Writes bytes of the bulk; gives how many were taken (at least 1 unless the span is empty).
    /// `BrokenPipe`, `NoSpace`, `WouldBlock`.
    #[op]
    async fn write(
        &self,
        id: DescriptionId,
        span: BulkSpan,
        at: Option<u64>,
        wait: bool,
    ) -> Result<u32, DescriptionError>;

    /// As `read` at the own offset, for a server that restarts: asked again, with the number that
    /// the client gave no other request, it is carried out once and told again. `NotSupported`.
    #[op]
    async fn read_once(
        &self,
        id: DescriptionId,
        span: BulkSpan,
        number: u64,
        wait: bool,
    ) -> Result<u32, DescriptionError> {
        Err(DescriptionError::NotSupported)
    }

    /// The same for `write`.
    #[op]
    async fn write_once(
        &self,
        id: DescriptionId,
        span: BulkSpan,
        number: u64,
        wait: bool,
    ) -> Result<u32, DescriptionError> {
        Err(DescriptionError::NotSupported)
    }

    /// Moves the offset; gives the new one. `NotSeekable`, `Invalid` for a negative result.
    #[op]
    async fn seek(&self, id: DescriptionId, offset: i64, whence: Whence) -> Result<u64, DescriptionError>;

    /// What is known of it.
    #[op(repeatable)]
    async fn status(&self, id: DescriptionId) -> Result<Status, DescriptionError>;

    /// Sets the size of a file. `Invalid` for what has none.
    #[op(repeatable)]
    async fn resize(&self, id: DescriptionId, size: u64) -> Result<(), DescriptionError>;

    /// The next directory entries from cookie `from` (0 = first), and the cookie to go on with; an
    /// empty list is the end. As many at a time as a message carries.
    #[op(repeatable)]
    async fn entries(&self, id: DescriptionId, from: u64) -> Result<(Vec<Entry>, u64), DescriptionError>;

    /// Terminal and device requests. `NotTerminal`, `NotSupported`.
    #[op]
    async fn control(&self, id: DescriptionId, request: Control) -> Result<ControlReply, DescriptionError>;

    /// Which of `mask` holds now (ERROR and HANGUP always count). One `ready` event follows as
    /// `watch` says.
    #[op(repeatable)]
    async fn poll(&self, id: DescriptionId, mask: u32, watch: WatchFor) -> Result<u32, DescriptionError>;

    /// Gives the client `child` (`channel::client_id`), which is being forked by the caller, a
    /// reference to each description the caller holds. `Invalid`: no program of that id waits to be
    /// started.
    #[op]
    async fn inherit(&self, child: u64) -> Result<(), DescriptionError>;

    /// Exports a description that the caller holds, so that it can be sent in a message of a socket
    /// of `process`: gives a ticket that any process that knows it may claim, until `process` says
    /// that it is settled. `TooMany`, `NotSupported` where no ticket is needed.
    #[op]
    async fn export(&self, id: DescriptionId) -> Result<u64, DescriptionError>;

    /// Gives the caller a reference to the description that this ticket stands for. `BadId` for a
    /// ticket that is settled.
    #[op]
    async fn claim(&self, ticket: u64) -> Result<DescriptionId, DescriptionError>;

    /// Drops one reference of the caller's.
    #[op]
    async fn close(&self, id: DescriptionId) -> Result<(), DescriptionError>;

    /// A watched description became ready.
    #[event]
    fn ready(&self, id: DescriptionId, mask: u32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel::Peer;
    use core::future::Future;
    use core::pin::{Pin, pin};
    use core::task::{Context, Poll, Waker};

    #[test]
    fn a_watch_tells_what_is_new() {
        assert_eq!(Watched::new(WatchFor::Nothing, ready::READ, 0), None);
        assert_eq!(Watched::new(WatchFor::Level, ready::READ, ready::READ), None);
        let mut level = Watched::new(WatchFor::Level, ready::READ, 0).unwrap();
        assert_eq!((level.at_change(ready::WRITE), level.at_change(ready::READ | ready::WRITE)), (0, ready::READ));
        assert_eq!(level.at_change(ready::HANGUP), ready::HANGUP);
        let both = ready::READ | ready::WRITE;
        let mut edge = Watched::new(WatchFor::Edge, both, both).unwrap();
        // More to read is news, room that was there is not.
        assert_eq!((edge.at_change(ready::WRITE), edge.at_change(both)), (0, both));
        let other = Watched::new(WatchFor::Edge, ready::WRITE, 0).unwrap();
        assert_eq!(edge.join(other).at_change(ready::WRITE), ready::WRITE);
        let reads = Watched::new(WatchFor::Edge, ready::READ, 0).unwrap();
        assert_eq!([reads, other].map(|watched| watched.join(reads).at_change(both)), [ready::READ, both]);
        // What nobody watches for is told whether somebody watches for it or not.
        for mask in [0, ready::ERROR, ready::HANGUP, ready::ERROR | ready::HANGUP] {
            let told = [ready::ERROR, ready::HANGUP, ready::WRITE]
                .map(|holds| Watched::new(WatchFor::Level, mask, 0).unwrap().at_change(holds));
            assert_eq!(told, [ready::ERROR, ready::HANGUP, 0], "{mask}");
        }
        // A hang-up after a writer that came and went is another one.
        let mut ended = Watched::new(WatchFor::Edge, ready::READ, ready::HANGUP).unwrap();
        let told = [ready::HANGUP, 0, ready::HANGUP].map(|holds| ended.at_change(holds));
        assert_eq!(told, [0, 0, ready::HANGUP]);
    }

    /// Clients that take what they can get, one after the other, and then some that want little.
    #[test]
    fn a_client_that_holds_little_finds_room() {
        const MAX: usize = 512;
        let mut held = [0; 12];
        let take = |held: &mut [usize], client: usize| {
            let may = may_have(MAX, held.iter().sum(), || held[client]);
            held[client] += usize::from(may);
            may
        };
        (0..4).for_each(|greedy| while take(&mut held, greedy) {});
        assert_eq!(held[..4], [256, 128, 64, 32]);
        assert!((4..12).all(|modest| take(&mut held, modest) && take(&mut held, modest)));
        assert!((0..4).all(|greedy| !take(&mut held, greedy)));
    }

    /// A server of nothing.
    struct Nothing;

    const NO: DescriptionError = DescriptionError::BadId;

    impl DescriptionsServer for Nothing {
        async fn read(&self, _: &Peer, _: u64, _: BulkSpan, _: Option<u64>, _: bool) -> Result<u32, DescriptionError> {
            Err(NO)
        }
        async fn write(&self, _: &Peer, _: u64, _: BulkSpan, _: Option<u64>, _: bool) -> Result<u32, DescriptionError> {
            Err(NO)
        }
        async fn seek(&self, _: &Peer, _: u64, _: i64, _: Whence) -> Result<u64, DescriptionError> {
            Err(NO)
        }
        async fn status(&self, _: &Peer, _: u64) -> Result<Status, DescriptionError> {
            Err(NO)
        }
        async fn resize(&self, _: &Peer, _: u64, _: u64) -> Result<(), DescriptionError> {
            Err(NO)
        }
        async fn entries(&self, _: &Peer, _: u64, _: u64) -> Result<(Vec<Entry>, u64), DescriptionError> {
            Err(NO)
        }
        async fn control(&self, _: &Peer, _: u64, _: Control) -> Result<ControlReply, DescriptionError> {
            Err(NO)
        }
        async fn poll(&self, _: &Peer, _: u64, _: u32, _: WatchFor) -> Result<u32, DescriptionError> {
            Err(NO)
        }
        async fn inherit(&self, _: &Peer, _: u64) -> Result<(), DescriptionError> {
            Err(NO)
        }
        async fn export(&self, _: &Peer, _: u64) -> Result<u64, DescriptionError> {
            Err(NO)
        }
        async fn claim(&self, _: &Peer, _: u64) -> Result<DescriptionId, DescriptionError> {
            Err(NO)
        }
        async fn close(&self, _: &Peer, _: u64) -> Result<(), DescriptionError> {
            Err(NO)
        }
    }

    #[test]
    fn a_server_that_keeps_no_results_says_that_it_carries_nothing_out_once() {
        let (_client, channel) = channel::loopback(channel::Layout::default());
        let (peer, span) = (channel.peer(), BulkSpan { offset: 0, length: 1 });
        let now = |asked: Pin<&mut dyn Future<Output = Result<u32, DescriptionError>>>| {
            asked.poll(&mut Context::from_waker(Waker::noop()))
        };
        let refused = Poll::Ready(Err(DescriptionError::NotSupported));
        assert_eq!(now(pin!(Nothing.read_once(peer, 1, span, 7, true))), refused);
        assert_eq!(now(pin!(Nothing.write_once(peer, 1, span, 7, true))), refused);
    }
}
