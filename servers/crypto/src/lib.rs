//! The path of one request through the cipher: [`Path::prepare`] checks what a client asks and
//! encrypts what it writes, then the disk has it, then [`Path::complete`] decrypts what was read.
//!
//! Invariants: the client's bytes and the disk's lie in two regions, and a request has the same
//! place in both. So there is nothing to allocate and nothing to remember between the two calls,
//! and a request that is made again gives the disk the same bytes at the same place. No byte of the
//! client's region is changed but by a read of its own. What a client asks for beyond the segment
//! is refused here: before and behind it are the volume's headers and keys.
//!
//! Deliberately unknown here: channels, tasks, where the key comes from, what stands on the disk.
#![no_std]
#![forbid(unsafe_code)]

use contracts::blocks::{BlocksError, Disk, Extent};
use luks::{Handover, SectorCipher, Segment};
use packet::Memory;
use zeroize::Zeroize;

/// What the contract counts in.
const SECTOR_BYTES: u64 = 512;
/// Most sectors of a read or write: 128 KiB, so that other requests are not behind one for long.
const SECTORS_MAX: u32 = 256;
/// Bytes that are encrypted or decrypted at a time; whole sectors of every size.
const PIECE_BYTES: usize = 4096;

/// Which way the bytes of a request go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// A place of a client's request: where it is on the client's disk, and in its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Sectors.
    pub extent: Extent,
    /// First byte in the region.
    pub offset: u32,
}

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The processor's AES instructions.
    Instructions,
    /// Code for any processor.
    Software,
}

/// The cipher between a client's region and the disk's.
pub struct Path<M> {
    how: How,
    cipher: SectorCipher,
    segment: Segment,
    /// What the disk's server said of it.
    disk: Disk,
    /// What the client is told.
    seen: Disk,
    plain: M,
    encrypted: M,
    piece: [u8; PIECE_BYTES],
}

impl<M> Drop for Path<M> {
    fn drop(&mut self) {
        self.piece.zeroize();
    }
}

impl<M: Memory> Path<M> {
    /// Between the client's region `plain`, of `plain_bytes`, and the disk's region. Nothing if the
    /// volume's segment is not on the disk, or the disk has blocks that are not the volume's.
    pub fn new(handover: &Handover, disk: Disk, plain: M, plain_bytes: u64, encrypted: M) -> Option<Path<M>> {
        let segment = handover.segment.clone();
        let end = (segment.offset.checked_add(segment.bytes)?).div_ceil(SECTOR_BYTES);
        let is_whole = segment.offset.is_multiple_of(disk.block_bytes.into());
        if end > disk.sectors || !is_whole {
            return None;
        }
        let block_bytes = disk.block_bytes.max(segment.sector.get() as u32);
        let whole = |sectors: u32| sectors / (block_bytes / SECTOR_BYTES as u32) * (block_bytes / SECTOR_BYTES as u32);
        let seen = Disk {
            sectors: segment.bytes / u64::from(block_bytes) * u64::from(block_bytes) / SECTOR_BYTES,
            block_bytes,
            sectors_max: whole(disk.sectors_max.min(SECTORS_MAX)),
            discard_sectors_max: if segment.allows_discards { whole(disk.discard_sectors_max) } else { 0 },
            // Zeros on the disk are not zeros when they were decrypted.
            zeroes_sectors_max: 0,
            data_offset: 0,
            data_bytes: u32::try_from(plain_bytes).unwrap_or(u32::MAX).min(disk.data_bytes),
            ..disk
        };
        let cipher = SectorCipher::by_instructions(&handover.key, &segment);
        let (how, cipher) = match cipher {
            Some(cipher) => (How::Instructions, cipher),
            None => (How::Software, SectorCipher::new(&handover.key, &segment)),
        };
        Some(Path { how, cipher, segment, disk, seen, plain, encrypted, piece: [0; PIECE_BYTES] })
    }

    /// What computes.
    pub fn how(&self) -> How {
        self.how
    }

    /// What the client is told of its disk.
    pub fn seen(&self) -> Disk {
        self.seen
    }

    /// Checks a request, and encrypts its bytes if it is a write. Gives its place for the disk's
    /// server.
    ///
    /// # Errors
    /// `Range` and `ReadOnly`, as the contract has them.
    pub fn prepare(&mut self, direction: Direction, place: Place) -> Result<Place, BlocksError> {
        if direction == Direction::Write && self.seen.is_read_only {
            return Err(BlocksError::ReadOnly);
        }
        let to = self.on_disk(place.extent, self.seen.sectors_max)?;
        let bytes = place.extent.sectors * SECTOR_BYTES as u32;
        let end = place.offset.checked_add(bytes).ok_or(BlocksError::Range)?;
        if end > self.seen.data_bytes {
            return Err(BlocksError::Range);
        }
        if direction == Direction::Write {
            self.each_piece(place, |path, at, plain, encrypted, count| {
                // In bounds: it was looked at above.
                let piece = &mut path.piece[..count];
                path.plain.read(plain, piece).map_err(|_| BlocksError::Range)?;
                path.cipher.encrypt(at, piece).map_err(|_| BlocksError::Range)?;
                path.encrypted.write(encrypted, piece).map_err(|_| BlocksError::Range)
            })?;
        }
        Ok(Place { extent: to, offset: self.disk.data_offset + place.offset })
    }

    /// Decrypts what the disk's server read for a request that [`prepare`](Path::prepare) let
    /// through.
    ///
    /// # Errors
    /// `Range` for one that it did not.
    pub fn complete(&mut self, place: Place) -> Result<(), BlocksError> {
        self.each_piece(place, |path, at, plain, encrypted, count| {
            let piece = &mut path.piece[..count];
            path.encrypted.read(encrypted, piece).map_err(|_| BlocksError::Range)?;
            path.cipher.decrypt(at, piece).map_err(|_| BlocksError::Range)?;
            path.plain.write(plain, piece).map_err(|_| BlocksError::Range)
        })
    }

    /// Where an extent to be discarded is on the disk.
    ///
    /// # Errors
    /// `Unsupported` unless the volume allows it; `Range`, `ReadOnly`.
    pub fn discard(&self, extent: Extent) -> Result<Extent, BlocksError> {
        if self.seen.is_read_only {
            return Err(BlocksError::ReadOnly);
        }
        if self.seen.discard_sectors_max == 0 {
            return Err(BlocksError::Unsupported);
        }
        self.on_disk(extent, self.seen.discard_sectors_max)
    }

    /// Where whole blocks of the segment are on the disk.
    fn on_disk(&self, extent: Extent, sectors_max: u32) -> Result<Extent, BlocksError> {
        let block = u64::from(self.seen.block_bytes) / SECTOR_BYTES;
        let end = extent.sector.checked_add(extent.sectors.into()).ok_or(BlocksError::Range)?;
        let is_whole = extent.sector.is_multiple_of(block) && u64::from(extent.sectors).is_multiple_of(block);
        if !is_whole || end > self.seen.sectors || !(1..=sectors_max).contains(&extent.sectors) {
            return Err(BlocksError::Range);
        }
        Ok(Extent { sector: extent.sector + self.segment.offset / SECTOR_BYTES, ..extent })
    }

    /// Does `work` for each piece of a request: with its first byte in the segment, its places in
    /// both regions, and its bytes.
    fn each_piece(
        &mut self,
        Place { extent, offset }: Place,
        work: impl Fn(&mut Self, u64, usize, usize, usize) -> Result<(), BlocksError>,
    ) -> Result<(), BlocksError> {
        let bytes = extent.sectors as usize * SECTOR_BYTES as usize;
        for done in (0..bytes).step_by(PIECE_BYTES) {
            let plain = offset as usize + done;
            let encrypted = self.disk.data_offset as usize + plain;
            let count = PIECE_BYTES.min(bytes - done);
            work(self, extent.sector * SECTOR_BYTES + done as u64, plain, encrypted, count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
