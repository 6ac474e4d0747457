//! What clients ask of a disk, and how it ends.

/// What devices count in, whatever their blocks are (section 5.2.4).
pub const SECTOR_BYTES: u32 = 512;
/// Most sectors of a request that has data: 1 MiB, the largest that is worth one command.
pub const SECTORS_MAX: u32 = 2048;
/// Most clients of a driver.
pub const CLIENTS_MAX: u8 = 4;
/// Most requests of one client that have not ended: all clients together have as many as the queue
/// has entries.
pub const REQUESTS_EACH_MAX: usize = 64;
/// Bytes of a device's name (section 5.2.6).
pub const IDENTITY_BYTES: usize = 20;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the disk into the data region.
    Read,
    /// From the data region to the disk.
    Write,
    /// All writes that ended before this was asked are to survive the loss of power.
    Flush,
    /// The device's name.
    Identify,
    /// What stands there is of no use any more; it may read as anything.
    Discard,
    /// Zeros are to be read there.
    WriteZeroes {
        /// The device may give up the room.
        may_discard: bool,
    },
}

impl Operation {
    /// Whether bytes of the data region go with it.
    pub fn has_data(self) -> bool {
        matches!(self, Operation::Read | Operation::Write)
    }
}

/// A request. Between requests that have not ended there is no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose, below the number of clients.
    pub client: u8,
    /// A number that the client gives no other request.
    pub id: u64,
    /// What is to be done.
    pub operation: Operation,
    /// The first sector of 512 bytes, and how many; 0 for [`Operation::Flush`] and
    /// [`Operation::Identify`].
    pub sector: u64,
    /// See `sector`.
    pub sectors: u32,
    /// Where its bytes begin in the data region, if it has such; else 0.
    pub offset: u32,
}

impl Request {
    /// The sector behind it; `None` if there is no such number.
    pub fn end(&self) -> Option<u64> {
        self.sector.checked_add(self.sectors.into())
    }

    /// Bytes of its data.
    pub fn bytes(&self) -> u32 {
        if self.operation.has_data() { self.sectors.saturating_mul(SECTOR_BYTES) } else { 0 }
    }
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The client has [`REQUESTS_EACH_MAX`] already. Remedy: ask again when one has ended.
    Full,
    /// The client has another request of that number.
    Number,
    /// Behind the end of the disk, no whole blocks, too long, or not in the client's part of the
    /// data region.
    Range,
    /// The disk may not be written.
    ReadOnly,
    /// The device cannot do it.
    Unsupported,
}

/// What a request gave that the device carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// A flush had nothing to do: the device keeps nothing back.
    WritesThrough,
    /// Its name, ASCII, shorter ones ended by a zero.
    Identity([u8; IDENTITY_BYTES]),
}

/// Why the device did not carry it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It says that it failed; or it had to be reset too often with this request.
    Io,
    /// It says that it cannot do this.
    Unsupported,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Whose.
    pub client: u8,
    /// Which.
    pub id: u64,
    /// How it ended.
    pub outcome: Result<Answer, Failure>,
}
