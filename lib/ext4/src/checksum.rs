//! CRC32C as ext4 uses it: with a start value, and not inverted at the end.

use crc::{Algorithm, Crc, Table};

/// CRC-32/ISCSI without the inversion at the end.
static CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&Algorithm { xorout: 0, ..crc::CRC_32_ISCSI });

/// A sum under way. Sums go on from each other: that of a volume's identity, with an inode's number
/// and generation, is what the blocks of that inode start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checksum(pub u32);

impl Checksum {
    /// The start of a sum that goes on from nothing.
    pub const START: Checksum = Checksum(!0);

    /// The sum with `bytes` behind it.
    pub fn with(self, bytes: &[u8]) -> Checksum {
        let mut digest = CRC32C.digest_with_initial(self.0.reverse_bits());
        digest.update(bytes);
        Checksum(digest.finalize())
    }

    /// The sum with a number of 32 bits behind it.
    pub fn with_u32(self, number: u32) -> Checksum {
        self.with(&number.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_crc32c_and_goes_on_from_itself() {
        // The check value of CRC-32/ISCSI is 0xe3069283, inverted at the end.
        assert_eq!(Checksum::START.with(b"123456789").0, !0xe306_9283);
        assert_eq!(Checksum::START.with(b"1234").with(b"56789"), Checksum::START.with(b"123456789"));
        assert_eq!(Checksum::START.with(b""), Checksum::START);
    }
}
