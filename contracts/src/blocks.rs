//! A disk: sectors of 512 bytes between a disk server and what keeps its data there.
//!
//! Bytes lie in the region `disk-data`, which the server's clients share; each has a part of its
//! own, in which it chooses places for its requests. What travels is where they are. A client
//! numbers its requests, so that one that is asked again, after the server was restarted, is not
//! carried out while the first is under way.

use contract::contract;
use serde::{Deserialize, Serialize};

/// Bytes of the disk's name.
pub const NAME_BYTES: usize = 20;

/// Bytes of a channel's bulk area that a dispatcher of a server's, on another core than the device,
/// shares with the first one (`lib/block-calls`).
pub const DESK_BYTES: u32 = 8192;

/// A disk, and a client's part of the data region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Its size in sectors; `resized` tells of changes.
    pub sectors: u64,
    /// Requests begin and end with whole blocks of so many bytes; 512 to 4,096.
    pub block_bytes: u32,
    /// Best are requests of a multiple of so many bytes; 0: no matter.
    pub optimal_bytes: u32,
    /// It may not be written.
    pub is_read_only: bool,
    /// What was written may be lost with the power until it was flushed.
    pub keeps_back: bool,
    /// Most sectors of a read or write,
    pub sectors_max: u32,
    /// of a discard (0: it has none),
    pub discard_sectors_max: u32,
    /// and of writing zeros (0: it has none; write some).
    pub zeroes_sectors_max: u32,
    /// First byte of the client's part of the data region, and its bytes.
    pub data_offset: u32,
    pub data_bytes: u32,
    /// Most requests that a client may have under way.
    pub requests_max: u16,
}

/// Some sectors, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    pub sector: u64,
    pub sectors: u32,
}

/// What a flush did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flushed {
    /// What was kept back is stored.
    Stored,
    /// The device keeps nothing back.
    WritesThrough,
}

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlocksError {
    /// The extent is behind the end, no whole blocks or too long, or the bytes are not in the
    /// client's part of the data region. Remedy: see `Disk`.
    Range,
    /// The disk may not be written.
    ReadOnly,
    /// The device cannot do that. Remedy: do without, or write zeros oneself.
    Unsupported,
    /// The client has `Disk::requests_max` requests under way. Remedy: wait for one.
    Full,
    /// The number is that of another request that is under way. Remedy: another one.
    Number,
    /// The machine has no such device. Remedy: start it with a virtio disk.
    NoDevice,
    /// The device says that it failed. What stands in the extent of a write is not known; after a
    /// failed flush, nor what was written before it.
    Io,
}

/// Sectors. Order: none between requests that are under way together; who wants one waits. A flush
/// covers the writes that were answered before it was asked. Limits: `Disk`. Rights: a client
/// reaches the whole disk. Every request is carried out at least once: a write that is asked again
/// is that of the same bytes, so they are not to be changed before its answer. A request whose call
/// is dropped goes on, and keeps its bytes until the next `attach` is answered.
#[contract(name = "blocks", version = 1)]
pub trait Blocks {
    /// Begins a client's life: it numbers its requests from `first` on, which is larger than any
    /// number of its earlier lives (the time of its start, say). Answered when none of theirs is
    /// under way. Asked again with the same number it tells of the disk as it is now.
    #[op(repeatable)]
    async fn attach(&self, first: u64) -> Result<Disk, BlocksError>;

    /// Reads into the data region at `offset`.
    #[op(repeatable)]
    async fn read(&self, number: u64, from: Extent, offset: u32) -> Result<(), BlocksError>;

    /// Writes from the data region at `offset`.
    #[op(repeatable)]
    async fn write(&self, number: u64, to: Extent, offset: u32) -> Result<(), BlocksError>;

    /// What was written survives the loss of power. `Io`.
    #[op(repeatable)]
    async fn flush(&self, number: u64) -> Result<Flushed, BlocksError>;

    /// What stands there is of no use any more; it may read as anything.
    #[op(repeatable)]
    async fn discard(&self, number: u64, extent: Extent) -> Result<(), BlocksError>;

    /// Zeros are read there afterwards; with `may_discard` the disk may give up the room.
    #[op(repeatable)]
    async fn write_zeroes(&self, number: u64, extent: Extent, may_discard: bool) -> Result<(), BlocksError>;

    /// The disk's name, ASCII, with zeros behind it.
    #[op(repeatable)]
    async fn identify(&self, number: u64) -> Result<[u8; NAME_BYTES], BlocksError>;

    /// The disk has another size.
    #[event]
    fn resized(&self, sectors: u64);
}
