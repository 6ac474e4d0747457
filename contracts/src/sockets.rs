//! Sockets: what `tcp`, and `process` for those within the machine, do besides `descriptions`
//! (read, write, poll, close, inherit go there).
//!
//! A connection's record, made to survive TCP's own crash later, is `servers/tcp/src/record.rs`;
//! nothing here exposes protocol state.

use alloc::vec::Vec;

use contract::contract;
use serde::{Deserialize, Serialize};

use crate::BulkSpan;
use crate::descriptions::{DescriptionError, DescriptionId, Right};
use crate::process::Credentials;

/// IPv4 address and port; port 0 asks for any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketAddress {
    pub address: [u8; 4],
    pub port: u16,
}

/// Bytes of a [`LocalAddress`]'s name, at most.
pub const LOCAL_NAME_MAX: usize = 108;

/// A name within the machine: a file's, or one that only sockets know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalAddress {
    /// The number of the file (at `fs`, of kind socket) that stands for it.
    pub file: Option<u64>,
    /// The path as it was given; or a zero and the abstract name; or nothing if it has none.
    pub name: Vec<u8>,
}

/// IPv6 address and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketAddress6 {
    pub address: [u8; 16],
    pub port: u16,
}

/// Where a socket is, or is to be connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    Internet(SocketAddress),
    /// Of a socket of [`Family::Internet6`].
    Internet6(SocketAddress6),
    Local(LocalAddress),
}

/// Whose addresses a socket has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    #[default]
    Internet,
    /// IPv6. Until the network has it, such a socket speaks IPv4 under addresses that are mapped
    /// (RFC 4291, section 2.5.5.2), and one that is to speak IPv6 only hears nothing.
    Internet6,
    /// Within the machine.
    Local,
}

/// What a new socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketKind {
    Stream,
    Datagram,
    /// Messages, in the order sent, over a connection.
    Packets,
}

/// Which direction to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shutdown {
    Read,
    Write,
    Both,
}

/// Settings of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketOption {
    ReuseAddress(bool),
    KeepAlive(bool),
    NoDelay(bool),
    /// Seconds to linger at close; `None` = off.
    Linger(Option<u32>),
    /// Bytes; the server keeps what it can and tells by `option`.
    SendBuffer(u32),
    ReceiveBuffer(u32),
    /// Reading takes and clears the pending error.
    Error(Option<DescriptionError>),
    /// Is it listening?
    Listening(bool),
    /// Stream or datagram.
    Kind(SocketKind),
    /// The process that connected, listens or made the pair at the other end, as whom it acted
    /// then.
    Peer(Credentials),
    /// The sender's process comes with what is received.
    TellsSender(bool),
    /// Others may share its port that allow it, too.
    ReusePort(bool),
    /// It speaks IPv6, and never IPv4.
    Only6(bool),
    /// Reading only.
    Family(Family),
    /// What would go in a short segment waits for more, for 200 ms at most.
    Cork(bool),
    /// Reading only.
    Info(ConnectionInfo),
}

/// How a connection of TCP stands: what TCP_INFO tells. Sums begin with the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionInfo {
    /// As Linux numbers the states of RFC 9293.
    pub state: u8,
    /// How often in a row it was sent again without an answer.
    pub in_vain: u32,
    /// The peer takes pieces behind a gap (RFC 2018).
    pub takes_pieces: bool,
    /// Window scales: the peer's and its own, if both have one.
    pub scales: Option<(u8, u8)>,
    /// When it sends again what is not acknowledged.
    pub repeats_after_us: u32,
    /// Bytes of a whole segment.
    pub segment_bytes: u32,
    /// Whole segments that are not acknowledged.
    pub segments_on_the_way: u32,
    /// How long ago bytes were sent.
    pub bytes_sent_before_ms: u32,
    /// How long ago bytes came.
    pub bytes_came_before_ms: u32,
    /// How long ago the peer acknowledged something.
    pub acknowledged_before_ms: u32,
    /// Smoothed round trip, 0 before the first.
    pub round_trip_us: u32,
    /// Its variation.
    pub variation_us: u32,
    /// Most segments that were on the way at once since the last loss.
    pub most_segments: u32,
    /// Segments that were sent again.
    pub repeated_segments: u32,
    /// Bytes that the peer acknowledged.
    pub bytes_acknowledged: u64,
    /// Bytes that came.
    pub bytes_received: u64,
    /// Segments that left and that came.
    pub segments: [u32; 2],
    /// Of those, with bytes.
    pub segments_with_bytes: [u32; 2],
    /// Bytes that were written and not sent yet.
    pub unsent_bytes: u32,
    /// What the peer takes.
    pub send_window: u32,
}

/// Names an option to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketOptionName {
    ReuseAddress,
    KeepAlive,
    NoDelay,
    Linger,
    SendBuffer,
    ReceiveBuffer,
    Error,
    Listening,
    Kind,
    Peer,
    TellsSender,
    ReusePort,
    Only6,
    Family,
    Cork,
    Info,
}

/// A connection taken from a listening socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    pub id: DescriptionId,
    pub peer: Address,
}

/// How [`Sockets::send`] sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendOptions {
    /// Until there is room; else `WouldBlock`.
    pub wait: bool,
    /// Others are to follow.
    pub more: bool,
}

/// What [`Sockets::receive`] gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Bytes in the bulk.
    pub bytes: u32,
    /// Bytes that the message had; more than `bytes` if it was cut.
    pub whole: u32,
    /// Who sent it, if that has an address.
    pub source: Option<Address>,
    /// The process that sent it and who that really was then, if the socket tells that.
    pub sender: Option<Credentials>,
    /// Descriptions that came with it. Those of `process` the caller holds now; tickets are to be
    /// claimed, and then `process.claimed` says so.
    pub rights: Vec<Right>,
    /// More of them came than were wanted, and are lost.
    pub lost_rights: bool,
}

/// Socket operations beyond those of descriptions. Order: as sent. Limits: those of `servers/tcp`
/// and `servers/process`. Rights: as `descriptions`; who knows a name within the machine may
/// connect to it. If the server restarts, operations end with PeerRestarted unless
/// repeatable; descriptions are kept or lost as the server's CAVEATS entry says.
#[contract(name = "sockets", version = 5)]
pub trait Sockets {
    /// A new socket. `NotSupported` for a kind or family this server lacks, `TooMany`.
    #[op]
    async fn socket(&self, family: Family, kind: SocketKind) -> Result<DescriptionId, DescriptionError>;

    /// Two sockets within the machine that are connected to each other. `NotSupported`, `TooMany`.
    #[op]
    async fn pair(&self, kind: SocketKind) -> Result<(DescriptionId, DescriptionId), DescriptionError>;

    /// Gives it a local address; within the machine, a free one for a name of no bytes.
    /// `AddressInUse`, `AddressNotAvailable`, `Invalid` if it has one.
    #[op]
    async fn bind(&self, id: DescriptionId, address: Address) -> Result<(), DescriptionError>;

    /// Takes connections from now on. `backlog` is how many may wait; less than 128 count as 128,
    /// more than 256 as 256.
    #[op]
    async fn listen(&self, id: DescriptionId, backlog: u32) -> Result<(), DescriptionError>;

    /// The next connection. With `wait` waits for one, else `WouldBlock`.
    #[op]
    async fn accept(&self, id: DescriptionId, wait: bool) -> Result<Accepted, DescriptionError>;

    /// Connects. With `wait` until done or failed, else `InProgress` and `poll` for WRITE tells.
    #[op]
    async fn connect(&self, id: DescriptionId, address: Address, wait: bool) -> Result<(), DescriptionError>;

    /// Ends one or both directions.
    #[op]
    async fn shutdown(&self, id: DescriptionId, how: Shutdown) -> Result<(), DescriptionError>;

    /// Local and remote address; remote is `None` if not connected.
    #[op(repeatable)]
    async fn names(&self, id: DescriptionId) -> Result<(Address, Option<Address>), DescriptionError>;

    /// Changes a setting. Unknown sizes are rounded, never refused.
    #[op(repeatable)]
    async fn set_option(&self, id: DescriptionId, option: SocketOption) -> Result<(), DescriptionError>;

    /// Reads a setting.
    #[op]
    async fn option(&self, id: DescriptionId, name: SocketOptionName) -> Result<SocketOption, DescriptionError>;

    /// Sends the bytes at `span` of this channel's bulk, and gives how many were taken: of a stream
    /// at least one, of a message all. `to` is for sockets that are not connected. As `write`, and
    /// `MessageTooLong`, `ConnectionRefused`, `WrongKind`; `BadId` for a right of `process` that
    /// the caller does not hold. What is not sent, the tickets in it are settled. With `more` the
    /// rest of a stream that would go in a short segment waits for what follows, for 200 ms at
    /// most.
    #[op]
    async fn send(
        &self,
        id: DescriptionId,
        span: BulkSpan,
        to: Option<Address>,
        rights: Vec<Right>,
        options: SendOptions,
    ) -> Result<u32, DescriptionError>;

    /// Receives into the bulk of this channel: of a stream what there is, else one message, whose
    /// rest is lost; and so many rights with it. With `peek` nothing is taken.
    #[op]
    async fn receive(
        &self,
        id: DescriptionId,
        span: BulkSpan,
        peek: bool,
        rights: u32,
        wait: bool,
    ) -> Result<Received, DescriptionError>;
}
