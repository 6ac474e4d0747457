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

    /// The sum that becomes this one with `bytes` behind it.
    pub fn before(self, bytes: &[u8]) -> Checksum {
        let sum = bytes.iter().rev().fold(self.0, |sum, byte| back(sum) ^ u32::from(*byte));
        Checksum(sum)
    }

    /// The number whose four bytes lead from this sum to `sum`.
    pub fn word_to(self, sum: Checksum) -> u32 {
        self.0 ^ sum.before(&[0; 4]).0
    }
}

/// Undoes a byte of zeros.
fn back(sum: u32) -> u32 {
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    (0..8).fold(sum, |sum, _| if sum >> 31 != 0 { (sum ^ POLYNOMIAL) << 1 | 1 } else { sum << 1 })
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

    #[test]
    fn four_bytes_lead_to_any_sum() {
        let (start, end) = (Checksum::START.with(b"first"), Checksum(0x1234_5678));
        assert_eq!(start.with(b"more").before(b"more"), start);
        let word = start.word_to(end.before(b"behind"));
        assert_eq!(start.with_u32(word).with(b"behind"), end);
    }
}
