//! CRC32C as ext4 uses it: with a start value, and not inverted at the end.

/// A sum under way. Sums go on from each other: that of a volume's identity, with an inode's number
/// and generation, is what the blocks of that inode start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checksum(pub u32);

impl Checksum {
    /// The start of a sum that goes on from nothing.
    pub const START: Checksum = Checksum(!0);

    /// The sum with `bytes` behind it.
    pub fn with(self, bytes: &[u8]) -> Checksum {
        Checksum(crc32c::with(self.0, bytes))
    }

    /// The sum with a number of 32 bits behind it.
    pub fn with_u32(self, number: u32) -> Checksum {
        self.with(&number.to_le_bytes())
    }

    /// The sum that becomes this one with `bytes` behind it.
    pub fn before(self, bytes: &[u8]) -> Checksum {
        let before = |sum: u32, byte: &u8| sum << 8 ^ BACK[(sum >> 24) as usize] ^ u32::from(*byte);
        Checksum(bytes.iter().rev().fold(self.0, before))
    }

    /// The number whose four bytes lead from this sum to `sum`.
    pub fn word_to(self, sum: Checksum) -> u32 {
        self.0 ^ sum.before(&[0; 4]).0
    }
}

/// What a byte of zeros made of the sum whose upper byte is the index, and whose others are 0.
static BACK: [u32; 256] = {
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    let (mut table, mut index) = ([0; 256], 0);
    while index < table.len() {
        let (mut sum, mut bits) = ((index as u32) << 24, 0);
        while bits < 8 {
            sum = if sum >> 31 != 0 { (sum ^ POLYNOMIAL) << 1 | 1 } else { sum << 1 };
            bits += 1;
        }
        table[index] = sum;
        index += 1;
    }
    table
};

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
