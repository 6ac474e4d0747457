//! What a worker checks before it hands a request on: the driver checks the same again.

use core::sync::atomic::{AtomicU64, Ordering};

use contracts::blocks::{BlocksError, Disk};

use crate::slot::{Ended, Operation, Request};

const SECTOR_BYTES: u32 = 512;

/// A client's disk and its part of the data region.
pub struct Limits {
    disk: Disk,
    /// Its size now.
    sectors: AtomicU64,
}

impl Limits {
    /// Those of a client that is told this.
    pub fn of(disk: Disk) -> Limits {
        Limits { disk, sectors: AtomicU64::new(disk.sectors) }
    }

    /// The disk has another size.
    pub fn resize(&self, sectors: u64) {
        self.sectors.store(sectors, Ordering::Relaxed);
    }

    /// `Some`: how the request ends without the device.
    pub(crate) fn answer(&self, request: &Request) -> Option<Ended> {
        match self.check(request) {
            Err(why) => Some(Ended::Failed(why)),
            Ok(()) if request.operation == Operation::Flush && !self.disk.keeps_back => Some(Ended::WritesThrough),
            Ok(()) => None,
        }
    }

    fn check(&self, request: &Request) -> Result<(), BlocksError> {
        let Request { operation, extent, offset, .. } = *request;
        let (is_write, most) = match operation {
            Operation::Read => (false, self.disk.sectors_max),
            Operation::Write => (true, self.disk.sectors_max),
            Operation::Discard => (true, self.disk.discard_sectors_max),
            Operation::WriteZeroes { .. } => (true, self.disk.zeroes_sectors_max),
            Operation::Flush => return Ok(()),
        };
        if is_write && self.disk.is_read_only {
            return Err(BlocksError::ReadOnly);
        }
        if most == 0 {
            return Err(BlocksError::Unsupported);
        }
        let block = (self.disk.block_bytes / SECTOR_BYTES).max(1);
        let end = extent.sector.checked_add(extent.sectors.into());
        let is_whole = extent.sector.is_multiple_of(block.into()) && extent.sectors.is_multiple_of(block);
        let is_inside = end.is_some_and(|end| end <= self.sectors.load(Ordering::Relaxed));
        let has_data = matches!(operation, Operation::Read | Operation::Write);
        let is_placed = if has_data { self.holds(offset, extent.sectors) } else { offset == 0 };
        let is_right = (1..=most).contains(&extent.sectors) && is_whole && is_inside && is_placed;
        if is_right { Ok(()) } else { Err(BlocksError::Range) }
    }

    /// Whether the bytes are in the client's part of the data region.
    fn holds(&self, offset: u32, sectors: u32) -> bool {
        let bytes = sectors.checked_mul(SECTOR_BYTES);
        let first = offset.checked_sub(self.disk.data_offset);
        let end = bytes.and_then(|bytes| first?.checked_add(bytes));
        end.is_some_and(|end| end <= self.disk.data_bytes)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use contracts::blocks::Extent;

    pub(crate) const DISK: Disk = Disk {
        sectors: 80,
        block_bytes: 4096,
        optimal_bytes: 0,
        is_read_only: false,
        keeps_back: true,
        sectors_max: 32,
        discard_sectors_max: 16,
        zeroes_sectors_max: 0,
        data_offset: 8192,
        data_bytes: 8192,
        requests_max: 64,
    };

    #[test]
    fn what_the_driver_would_refuse_is_refused_at_once() {
        let asked = |disk: Disk, operation, sector, sectors, offset| {
            let request = Request { operation, number: 1, extent: Extent { sector, sectors }, offset };
            Limits::of(disk).answer(&request)
        };
        let range = Some(Ended::Failed(BlocksError::Range));
        for (sector, sectors, offset, expected) in [
            (72, 8, 8192, None),
            (72, 8, 12_288, None),
            (64, 16, 8192, None),
            (72, 16, 8192, range),
            (0, 0, 8192, range),
            (4, 8, 8192, range),
            (8, 4, 8192, range),
            (80, 8, 8192, range),
            (u64::MAX - 7, 8, 8192, range),
            (0, 0x8000_0000, 8192, range),
            (0, 8, 8191, range),
            (0, 8, 12_289, range),
            (0, 8, u32::MAX, range),
            (0, 40, 8192, range),
        ] {
            let found = asked(DISK, Operation::Read, sector, sectors, offset);
            assert_eq!(found, expected, "{sector} {sectors} {offset}");
        }
        assert_eq!(asked(DISK, Operation::Discard, 0, 16, 0), None);
        assert_eq!(asked(DISK, Operation::Discard, 0, 16, 1), range);
        let zeroes = Operation::WriteZeroes { may_discard: true };
        assert_eq!(asked(DISK, zeroes, 0, 8, 0), Some(Ended::Failed(BlocksError::Unsupported)));
        let locked = Disk { is_read_only: true, ..DISK };
        assert_eq!(asked(locked, Operation::Write, 0, 8, 8192), Some(Ended::Failed(BlocksError::ReadOnly)));
        assert_eq!(asked(locked, Operation::Read, 0, 8, 8192), None);
        let through = Disk { keeps_back: false, ..DISK };
        assert_eq!(asked(through, Operation::Flush, 0, 0, 0), Some(Ended::WritesThrough));
        assert_eq!(asked(DISK, Operation::Flush, 0, 0, 0), None);
    }

    #[test]
    fn a_disk_that_grew_is_used() {
        let limits = Limits::of(DISK);
        let extent = Extent { sector: 80, sectors: 8 };
        let request = Request { operation: Operation::Read, number: 1, extent, offset: 8192 };
        assert_eq!(limits.answer(&request), Some(Ended::Failed(BlocksError::Range)));
        limits.resize(88);
        assert_eq!(limits.answer(&request), None);
    }
}
