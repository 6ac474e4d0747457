//! What survives the console's own crash: settings, window size and foreground group, in the region `console-state`.
//!
//! One fixed record, written whole after each change, with version and checksum: one that a crash cut short is refused, and the defaults hold.
//! What was typed and not read is lost with the component; its readers' calls end with `PeerRestarted`.

use crate::settings::{IMAGE_BYTES, Settings};

/// Name of the region.
pub const REGION: &str = "console-state";
/// Bytes of the record.
pub const RECORD_BYTES: usize = 64;
/// "CONS" and the record's version.
const MAGIC: u64 = 0x434f_4e53_0000_0001;
const CHECKSUM: core::ops::Range<usize> = 8..16;
const NUMBERS_AT: usize = 16 + IMAGE_BYTES;

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// See [`Settings`].
    pub settings: Settings,
    /// Window size.
    pub rows: u16,
    /// Window size.
    pub columns: u16,
    /// Foreground process group.
    pub foreground: u32,
}

impl Kept {
    /// The record.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(&MAGIC.to_le_bytes());
        record[16..NUMBERS_AT].copy_from_slice(&self.settings.image());
        record[NUMBERS_AT..][..4].copy_from_slice(&self.foreground.to_le_bytes());
        record[NUMBERS_AT + 4..][..2].copy_from_slice(&self.rows.to_le_bytes());
        record[NUMBERS_AT + 6..][..2].copy_from_slice(&self.columns.to_le_bytes());
        let sum = checksum(&record);
        record[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        record
    }

    /// Reads it back; `None` if it is damaged, of another version or was never written.
    pub fn decode(record: &[u8; RECORD_BYTES]) -> Option<Kept> {
        let number = |at: usize, bytes: usize| {
            record[at..at + bytes].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        if number(0, 8) != MAGIC || number(CHECKSUM.start, 8) != checksum(record) {
            return None;
        }
        Some(Kept {
            settings: Settings::from_image(&record[16..NUMBERS_AT])?,
            foreground: number(NUMBERS_AT, 4) as u32,
            rows: number(NUMBERS_AT + 4, 2) as u16,
            columns: number(NUMBERS_AT + 6, 2) as u16,
        })
    }
}

/// FNV-1a of the record with its checksum as zero.
fn checksum(record: &[u8; RECORD_BYTES]) -> u64 {
    let counted = |(at, byte): (usize, &u8)| if CHECKSUM.contains(&at) { 0 } else { u64::from(*byte) };
    let add = |hash: u64, byte: u64| (hash ^ byte).wrapping_mul(0x100_0000_01b3);
    record.iter().enumerate().map(counted).fold(0xcbf2_9ce4_8422_2325, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_read_back_and_damage_is_not_believed() {
        let kept = Kept { settings: Settings::default(), rows: 50, columns: 132, foreground: 0x1234_5678 };
        let mut record = kept.encode();
        assert_eq!(Kept::decode(&record), Some(kept));
        for at in 0..RECORD_BYTES {
            record[at] ^= 0x40;
            assert_eq!(Kept::decode(&record), None, "byte {at}");
            record[at] ^= 0x40;
        }
        assert_eq!(Kept::decode(&[0; RECORD_BYTES]), None);
    }
}
