//! Sockets: what `tcp` does besides `descriptions` (read, write, poll, close, inherit go there).
//!
//! A connection's record, made to survive TCP's own crash later, is `servers/tcp/src/record.rs`;
//! nothing here exposes protocol state.

use contract::contract;
use serde::{Deserialize, Serialize};

use crate::BulkSpan;
use crate::descriptions::{DescriptionError, DescriptionId};

/// IPv4 address and port; port 0 asks for any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketAddress {
    pub address: [u8; 4],
    pub port: u16,
}

/// What a new socket carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketKind {
    Stream,
    Datagram,
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
}

/// A connection taken from a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    pub id: DescriptionId,
    pub peer: SocketAddress,
}

/// Socket operations beyond those of descriptions. Order: as sent. Limits: those of `servers/tcp`.
/// Rights: as `descriptions`. If the server restarts, operations end with PeerRestarted unless
/// repeatable; descriptions are kept or lost as the server's CAVEATS entry says.
#[contract(name = "sockets", version = 1)]
pub trait Sockets {
    /// A new socket. `NotSupported` for a kind this server lacks, `TooMany`.
    #[op]
    async fn socket(&self, kind: SocketKind) -> Result<DescriptionId, DescriptionError>;

    /// Gives it a local address. `AddressInUse`, `AddressNotAvailable`, `Invalid` if it has one.
    #[op]
    async fn bind(&self, id: DescriptionId, address: SocketAddress) -> Result<(), DescriptionError>;

    /// Takes connections from now on. `backlog` is how many may wait; less than 128 count as 128,
    /// more than 256 as 256.
    #[op]
    async fn listen(&self, id: DescriptionId, backlog: u32) -> Result<(), DescriptionError>;

    /// The next connection. With `wait` waits for one, else `WouldBlock`.
    #[op]
    async fn accept(&self, id: DescriptionId, wait: bool) -> Result<Accepted, DescriptionError>;

    /// Connects. With `wait` until done or failed, else `InProgress` and `poll` for WRITE tells.
    #[op]
    async fn connect(&self, id: DescriptionId, address: SocketAddress, wait: bool) -> Result<(), DescriptionError>;

    /// Ends one or both directions.
    #[op]
    async fn shutdown(&self, id: DescriptionId, how: Shutdown) -> Result<(), DescriptionError>;

    /// Local and remote address; remote is `None` if not connected.
    #[op(repeatable)]
    async fn names(&self, id: DescriptionId) -> Result<(SocketAddress, Option<SocketAddress>), DescriptionError>;

    /// Changes a setting. Unknown sizes are rounded, never refused.
    #[op(repeatable)]
    async fn set_option(&self, id: DescriptionId, option: SocketOption) -> Result<(), DescriptionError>;

    /// Reads a setting.
    #[op]
    async fn option(&self, id: DescriptionId, name: SocketOptionName) -> Result<SocketOption, DescriptionError>;

    /// Looks at the first bytes without taking them (MSG_PEEK), into the bulk of this channel.
    #[op(repeatable)]
    async fn peek(&self, id: DescriptionId, span: BulkSpan, wait: bool) -> Result<u32, DescriptionError>;
}
