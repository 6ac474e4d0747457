//! A disk server without a disk: who asks it for anything is told.

use contracts::blocks::{BlocksError, BlocksServer, Disk, Extent, Flushed, NAME_BYTES};
use runtime::Peer;

/// Refuses all.
pub struct NoDevice;

impl BlocksServer for NoDevice {
    async fn attach(&self, _: &Peer, _: u64) -> Result<Disk, BlocksError> {
        Err(BlocksError::NoDevice)
    }

    async fn read(&self, _: &Peer, _: u64, _: Extent, _: u32) -> Result<(), BlocksError> {
        Err(BlocksError::NoDevice)
    }

    async fn write(&self, _: &Peer, _: u64, _: Extent, _: u32) -> Result<(), BlocksError> {
        Err(BlocksError::NoDevice)
    }

    async fn flush(&self, _: &Peer, _: u64) -> Result<Flushed, BlocksError> {
        Err(BlocksError::NoDevice)
    }

    async fn discard(&self, _: &Peer, _: u64, _: Extent) -> Result<(), BlocksError> {
        Err(BlocksError::NoDevice)
    }

    async fn write_zeroes(&self, _: &Peer, _: u64, _: Extent, _: bool) -> Result<(), BlocksError> {
        Err(BlocksError::NoDevice)
    }

    async fn identify(&self, _: &Peer, _: u64) -> Result<[u8; NAME_BYTES], BlocksError> {
        Err(BlocksError::NoDevice)
    }
}
