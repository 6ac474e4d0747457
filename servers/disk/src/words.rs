//! The contract's words for the driver's.

use block_calls::Ended;
use contracts::blocks::{BlocksError, Disk, Extent};
use virtio_blk::request::REQUESTS_EACH_MAX;
use virtio_blk::{Answer, Failure, Geometry, Operation, Refused, Request};

use crate::waiting::Outcome;

/// What a client is told of the disk; `part` is its part of the data region.
pub fn disk(geometry: &Geometry, part: (u32, u32)) -> Disk {
    Disk {
        sectors: geometry.sectors,
        block_bytes: geometry.block_bytes,
        optimal_bytes: geometry.optimal_bytes,
        is_read_only: geometry.is_read_only,
        keeps_back: geometry.keeps_back,
        sectors_max: geometry.sectors_max,
        discard_sectors_max: geometry.discard_sectors_max,
        zeroes_sectors_max: geometry.zeroes_sectors_max,
        data_offset: part.0,
        data_bytes: part.1,
        requests_max: REQUESTS_EACH_MAX as u16,
    }
}

/// A request of a client.
pub fn request(client: u8, number: u64, operation: Operation, extent: Extent, offset: u32) -> Request {
    Request { client, id: number, operation, sector: extent.sector, sectors: extent.sectors, offset }
}

/// Why the driver did not take it.
pub fn refused(why: Refused) -> BlocksError {
    match why {
        Refused::Full => BlocksError::Full,
        Refused::Number => BlocksError::Number,
        Refused::Range => BlocksError::Range,
        Refused::ReadOnly => BlocksError::ReadOnly,
        Refused::Unsupported => BlocksError::Unsupported,
    }
}

/// How it failed.
pub fn failed(how: Failure) -> BlocksError {
    match how {
        Failure::Io => BlocksError::Io,
        Failure::Unsupported => BlocksError::Unsupported,
    }
}

/// A request that a client called for.
pub fn called(client: u8, asked: &block_calls::Request) -> Request {
    let operation = match asked.operation {
        block_calls::Operation::Read => Operation::Read,
        block_calls::Operation::Write => Operation::Write,
        block_calls::Operation::Flush => Operation::Flush,
        block_calls::Operation::Discard => Operation::Discard,
        block_calls::Operation::WriteZeroes { may_discard } => Operation::WriteZeroes { may_discard },
    };
    request(client, asked.number, operation, asked.extent, asked.offset)
}

/// How it ended.
pub fn ended(outcome: Outcome) -> Ended {
    match outcome {
        // A name does not fit: nobody calls for it.
        Ok(Answer::Done | Answer::Identity(_)) => Ended::Done,
        Ok(Answer::WritesThrough) => Ended::WritesThrough,
        Err(how) => Ended::Failed(failed(how)),
    }
}
