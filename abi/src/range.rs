//! What `RangeGet` tells of a mapping.

/// A mapping of a range: enough to make the same one in another range, for a caller with a
/// capability for the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RangeEntry {
    /// First address in its range.
    pub start: u64,
    /// Length in pages, fewer than 2^32.
    pub pages: u64,
    /// First page shown of the segment, fewer than 2^32; 0 for a nested range.
    pub first: u64,
    /// `layout::protection` bits.
    pub protection: u64,
    /// The widest protection that `RangeProtect` grants.
    pub allowed: u64,
    /// A nested range, not a segment.
    pub is_range: bool,
    /// Id of the segment or range, as in `CapStat`.
    pub object: u64,
}

const PROTECTION_BITS: u64 = 7;

impl RangeEntry {
    /// The results of the call. An address is a multiple of the page size, so its low bits are
    /// free.
    pub const fn words(self) -> [u64; 3] {
        let flags = self.protection | self.allowed << 3 | (self.is_range as u64) << 6;
        [self.start | flags, self.pages | self.first << 32, self.object]
    }

    /// From the results of the call.
    pub const fn from_words(words: [u64; 3]) -> RangeEntry {
        let flags = words[0] % crate::PAGE_BYTES;
        RangeEntry {
            start: words[0] - flags,
            pages: words[1] & 0xffff_ffff,
            first: words[1] >> 32,
            protection: flags & PROTECTION_BITS,
            allowed: flags >> 3 & PROTECTION_BITS,
            is_range: flags >> 6 & 1 != 0,
            object: words[2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_carry_everything() {
        let entry = RangeEntry {
            start: 0x7fff_ffff_e000,
            pages: 1 << 27,
            first: 496 * 512 - 1,
            protection: 5,
            allowed: 7,
            is_range: true,
            object: 0xff << 48 | 12,
        };
        assert_eq!(RangeEntry::from_words(entry.words()), entry);
        let other = RangeEntry { is_range: false, allowed: 0, ..entry };
        assert_eq!(RangeEntry::from_words(other.words()), other);
    }
}
