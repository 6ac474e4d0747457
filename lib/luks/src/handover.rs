//! What the one that opened a volume hands to the one that encrypts its sectors: the key, and where
//! the data is. So that one needs neither passphrase nor header.

use zeroize::Zeroizing;

use crate::key::{KEY_BYTES, VolumeKey};
use crate::sector::{NUMBER_BYTES, SectorBytes, Segment};

/// Bytes of a handover.
pub const HANDOVER_BYTES: usize = SUM_AT + 8;
/// "VKEY" and the record's version.
const MAGIC: u64 = 0x564b_4559_0000_0001;
const KEY_AT: usize = 40;
const SUM_AT: usize = KEY_AT + KEY_BYTES;

/// A volume that was opened.
pub struct Handover {
    /// Its key.
    pub key: VolumeKey,
    /// Where its data is.
    pub segment: Segment,
}

impl Handover {
    /// As bytes, which are wiped when they end.
    pub fn encode(&self) -> Zeroizing<[u8; HANDOVER_BYTES]> {
        let Segment { offset, bytes, sector, tweak, allows_discards } = self.segment;
        let sector = sector.get() as u64 | u64::from(allows_discards) << 32;
        let mut record = Zeroizing::new([0; HANDOVER_BYTES]);
        for (place, word) in record.chunks_exact_mut(8).zip([MAGIC, offset, bytes, tweak, sector]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        record[KEY_AT..SUM_AT].copy_from_slice(self.key.bytes());
        let sum = sum(&record[..SUM_AT]);
        record[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        record
    }

    /// Reads one back; nothing if it was never written, is damaged or of another version, or tells
    /// of a segment that cannot be. The bytes are the caller's to wipe.
    pub fn decode(record: &[u8; HANDOVER_BYTES]) -> Option<Handover> {
        let word = |at: usize| record[at..at + 8].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        if word(0) != MAGIC || word(SUM_AT) != sum(&record[..SUM_AT]) {
            return None;
        }
        let (offset, bytes, tweak, form) = (word(8), word(16), word(24), word(32));
        let sector = [SectorBytes::B512, SectorBytes::B4096];
        let sector = sector.into_iter().find(|sector| sector.get() as u64 == form & u64::from(u32::MAX))?;
        let is_whole = bytes.is_multiple_of(sector.get() as u64) && offset.is_multiple_of(NUMBER_BYTES);
        offset.checked_add(bytes).filter(|_| is_whole && bytes > 0)?;
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        key.copy_from_slice(&record[KEY_AT..SUM_AT]);
        let allows_discards = form >> 32 & 1 != 0;
        let segment = Segment { offset, bytes, sector, tweak, allows_discards };
        Some(Handover { key: VolumeKey::take(&mut key), segment })
    }
}

/// FNV-1a: against a record that was cut short, not against an enemy.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handover(segment: Segment) -> Handover {
        Handover { key: VolumeKey::take(&mut core::array::from_fn(|at| at as u8 + 1)), segment }
    }

    const SEGMENT: Segment =
        Segment { offset: 16 << 20, bytes: 48 << 20, sector: SectorBytes::B512, tweak: 7, allows_discards: true };

    #[test]
    fn what_is_handed_over_is_read_back() {
        for segment in [SEGMENT, Segment { sector: SectorBytes::B4096, allows_discards: false, ..SEGMENT }] {
            let record = handover(segment.clone()).encode();
            let read = Handover::decode(&record).unwrap();
            assert_eq!((&read.segment, read.key.bytes()), (&segment, handover(segment.clone()).key.bytes()));
        }
    }

    #[test]
    fn damage_and_what_cannot_be_are_refused() {
        let good = handover(SEGMENT).encode();
        for at in 0..HANDOVER_BYTES {
            let mut record = *good;
            record[at] ^= 0x10;
            assert!(Handover::decode(&record).is_none(), "byte {at}");
        }
        assert!(Handover::decode(&[0; HANDOVER_BYTES]).is_none());
        for segment in [
            Segment { bytes: 0, ..SEGMENT },
            Segment { bytes: 511, ..SEGMENT },
            Segment { offset: 100, ..SEGMENT },
            Segment { offset: u64::MAX / 512 * 512, ..SEGMENT },
        ] {
            assert!(Handover::decode(&handover(segment.clone()).encode()).is_none(), "{segment:?}");
        }
    }
}
