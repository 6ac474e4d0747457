//! The path of one request through the cipher: [`Path::prepare`] checks what a client asks and
//! encrypts what it writes, then the disk has it, then [`Path::complete`] decrypts what was read.
//!
//! Invariants: the client's bytes and the disk's lie in two regions, and a request has the same
//! place in its client's parts of both. So there is nothing to allocate and nothing to remember
//! between the two calls, and a request that is made again gives the disk the same bytes at the
//! same place. No byte of the client's region is changed but by a read of its own. What a client
//! asks for beyond the segment is refused here: before and behind it are the volume's headers and
//! keys.
//!
//! Deliberately unknown here: channels, tasks, where the key comes from, what stands on the disk.

use contracts::blocks::{BlocksError, Disk, Extent};
use luks::{Handover, SectorCipher, Segment};
use packet::{Memory, OutOfBounds};
use runtime::Region;

/// What the contract counts in.
const SECTOR_BYTES: u64 = 512;
/// Most sectors of a read or write: 128 KiB, so that other requests are not behind one for long.
pub const SECTORS_MAX: u32 = 256;
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

/// A region, for several contexts.
#[derive(Clone, Copy)]
pub struct Shared(pub Region);

impl Memory for Shared {
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), OutOfBounds> {
        self.0.memory().read(offset, bytes).map_err(|_| OutOfBounds)
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfBounds> {
        self.0.memory().write(offset, bytes).map_err(|_| OutOfBounds)
    }
}

/// The cipher between a client's part of one region and of the disk's.
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
}

impl<M: Memory> Path<M> {
    /// Between the region `plain`, of which the client has a part (first byte, bytes), and the
    /// disk's region. Nothing if the volume's segment is not on the disk, or the disk has blocks
    /// that are not the volume's.
    pub fn new(handover: &Handover, disk: Disk, plain: M, part: (u32, u32), encrypted: M) -> Option<Path<M>> {
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
            data_offset: part.0,
            data_bytes: part.1.min(disk.data_bytes),
            ..disk
        };
        let cipher = SectorCipher::by_instructions(&handover.key, &segment);
        let (how, cipher) = match cipher {
            Some(cipher) => (How::Instructions, cipher),
            None => (How::Software, SectorCipher::new(&handover.key, &segment)),
        };
        Some(Path { how, cipher, segment, disk, seen, plain, encrypted })
    }

    /// What computes.
    pub fn how(&self) -> How {
        self.how
    }

    /// What the client is told of its disk.
    pub fn seen(&self) -> Disk {
        self.seen
    }

    /// Checks a request. Gives its place for the disk's server.
    ///
    /// # Errors
    /// `Range` and `ReadOnly`, as the contract has them.
    pub fn check(&self, direction: Direction, place: Place) -> Result<Place, BlocksError> {
        if direction == Direction::Write && self.seen.is_read_only {
            return Err(BlocksError::ReadOnly);
        }
        let extent = self.on_disk(place.extent, self.seen.sectors_max)?;
        let first = place.offset.checked_sub(self.seen.data_offset).ok_or(BlocksError::Range)?;
        let end = first.checked_add(extent.sectors * SECTOR_BYTES as u32).ok_or(BlocksError::Range)?;
        if end > self.seen.data_bytes {
            return Err(BlocksError::Range);
        }
        Ok(Place { extent, offset: self.disk.data_offset + first })
    }

    /// The same, and encrypts the bytes of a write.
    ///
    /// # Errors
    /// Those of [`check`](Path::check).
    pub fn prepare(&self, direction: Direction, place: Place) -> Result<Place, BlocksError> {
        let to = self.check(direction, place)?;
        if direction == Direction::Write {
            self.each_piece(place, to, |at, plain, encrypted, piece| {
                // In bounds: it was looked at above.
                self.plain.read(plain, piece).map_err(|_| BlocksError::Range)?;
                self.cipher.encrypt(at, piece).map_err(|_| BlocksError::Range)?;
                self.encrypted.write(encrypted, piece).map_err(|_| BlocksError::Range)
            })?;
        }
        Ok(to)
    }

    /// Decrypts what the disk's server read for a request that [`prepare`](Path::prepare) let
    /// through.
    ///
    /// # Errors
    /// `Range` for one that it did not.
    pub fn complete(&self, place: Place) -> Result<(), BlocksError> {
        let from = self.check(Direction::Read, place)?;
        self.each_piece(place, from, |at, plain, encrypted, piece| {
            self.encrypted.read(encrypted, piece).map_err(|_| BlocksError::Range)?;
            self.cipher.decrypt(at, piece).map_err(|_| BlocksError::Range)?;
            self.plain.write(plain, piece).map_err(|_| BlocksError::Range)
        })
    }

    /// Gives the client bytes that a read of that place would bring.
    ///
    /// # Errors
    /// Those of [`check`](Path::check).
    pub fn give(&self, place: Place, bytes: &[u8]) -> Result<(), BlocksError> {
        self.check(Direction::Read, place)?;
        self.plain.write(place.offset as usize, bytes).map_err(|_| BlocksError::Range)
    }

    /// Takes the client's bytes at that place.
    ///
    /// # Errors
    /// Those of [`check`](Path::check).
    pub fn take(&self, place: Place, bytes: &mut [u8]) -> Result<(), BlocksError> {
        self.check(Direction::Read, place)?;
        self.plain.read(place.offset as usize, bytes).map_err(|_| BlocksError::Range)
    }

    /// The client's place of a request that has that one for the disk's server.
    ///
    /// # Errors
    /// `Range`: there is none.
    pub fn back(&self, Place { extent, offset }: Place) -> Result<Place, BlocksError> {
        let sector = extent.sector.checked_sub(self.segment.offset / SECTOR_BYTES);
        let inside = offset.checked_sub(self.disk.data_offset);
        let offset = inside.and_then(|inside| inside.checked_add(self.seen.data_offset));
        let (Some(sector), Some(offset)) = (sector, offset) else { return Err(BlocksError::Range) };
        Ok(Place { extent: Extent { sector, ..extent }, offset })
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
    /// both regions, and room for its bytes. It is not wiped: the plain region has the same.
    fn each_piece(
        &self,
        Place { extent, offset }: Place,
        behind: Place,
        work: impl Fn(u64, usize, usize, &mut [u8]) -> Result<(), BlocksError>,
    ) -> Result<(), BlocksError> {
        let bytes = extent.sectors as usize * SECTOR_BYTES as usize;
        let mut piece = [0; PIECE_BYTES];
        for done in (0..bytes).step_by(PIECE_BYTES) {
            let piece = &mut piece[..PIECE_BYTES.min(bytes - done)];
            let at = extent.sector * SECTOR_BYTES + done as u64;
            work(at, offset as usize + done, behind.offset as usize + done, piece)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
