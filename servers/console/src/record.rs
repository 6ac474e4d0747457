//! What survives the console's own crash: settings, window size, foreground group and the control
//! request that is under way, in the region `console-state`.
//!
//! One fixed record, written whole at the first start and after each change, with version and
//! checksum: one that a crash cut short is refused, and the defaults hold. What was typed and not
//! read is lost with the component; its readers' calls end with `PeerRestarted`.

use crate::control::REQUEST_MAX;
use crate::settings::{IMAGE_BYTES, Settings};

/// Name of the region.
pub const REGION: &str = "console-state";
/// Bytes of the record.
pub const RECORD_BYTES: usize = REQUEST_AT + 4 + REQUEST_BYTES;
/// "CONS" and the record's version.
const MAGIC: u64 = 0x434f_4e53_0000_0002;
const CHECKSUM: core::ops::Range<usize> = 8..16;
const NUMBERS_AT: usize = 16 + IMAGE_BYTES;
const REQUEST_AT: usize = NUMBERS_AT + 8;
/// One more than may be: a request that is too long must still be so after a restart.
const REQUEST_BYTES: usize = REQUEST_MAX + 1;

/// How far a control request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is none.
    None = 0,
    /// Its last byte has not come.
    Partial = 1,
    /// It is whole and not answered yet.
    UnderWay = 2,
}

/// The control request that waits for its end or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// How far it is.
    pub progress: Progress,
    bytes: [u8; REQUEST_BYTES],
    length: u16,
}

impl Request {
    /// No request.
    pub const NONE: Request = Request { progress: Progress::None, bytes: [0; REQUEST_BYTES], length: 0 };

    /// One with these bytes, cut at one more than is allowed.
    pub fn new(progress: Progress, text: &[u8]) -> Request {
        let length = text.len().min(REQUEST_BYTES);
        let mut request = Request { progress, length: length as u16, ..Request::NONE };
        request.bytes[..length].copy_from_slice(&text[..length]);
        request
    }

    /// Its bytes so far.
    pub fn text(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    fn decode(image: &[u8]) -> Option<Request> {
        let progress = match image[0] {
            0 => Progress::None,
            1 => Progress::Partial,
            2 => Progress::UnderWay,
            _ => return None,
        };
        let length = usize::from(u16::from_le_bytes([image[2], image[3]]));
        Some(Request::new(progress, image[4..].get(..length)?))
    }
}

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
    /// The control request.
    pub request: Request,
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
        record[REQUEST_AT] = self.request.progress as u8;
        record[REQUEST_AT + 2..][..2].copy_from_slice(&self.request.length.to_le_bytes());
        record[REQUEST_AT + 4..].copy_from_slice(&self.request.bytes);
        let sum = sum(&record);
        record[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        record
    }

    /// Reads it back; `None` if it is damaged, of another version or was never written.
    pub fn decode(record: &[u8; RECORD_BYTES]) -> Option<Kept> {
        let number = |at: usize, bytes: usize| {
            record[at..at + bytes].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        if number(0, 8) != MAGIC || number(CHECKSUM.start, 8) != sum(record) {
            return None;
        }
        Some(Kept {
            settings: Settings::from_image(&record[16..NUMBERS_AT])?,
            foreground: number(NUMBERS_AT, 4) as u32,
            rows: number(NUMBERS_AT + 4, 2) as u16,
            columns: number(NUMBERS_AT + 6, 2) as u16,
            request: Request::decode(&record[REQUEST_AT..])?,
        })
    }
}

/// Of the record with its checksum as zero.
fn sum(record: &[u8; RECORD_BYTES]) -> u64 {
    checksum(record.iter().enumerate().map(|(at, byte)| if CHECKSUM.contains(&at) { 0 } else { *byte }))
}

/// FNV-1a.
pub(crate) fn checksum(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_read_back_and_damage_is_not_believed() {
        let request = Request::new(Progress::UnderWay, b" chaos kill console");
        let kept = Kept { settings: Settings::default(), rows: 50, columns: 132, foreground: 0x1234_5678, request };
        let mut record = kept.encode();
        assert_eq!(Kept::decode(&record), Some(kept));
        for at in 0..RECORD_BYTES {
            record[at] ^= 0x40;
            assert_eq!(Kept::decode(&record), None, "byte {at}");
            record[at] ^= 0x40;
        }
        assert_eq!(Kept::decode(&[0; RECORD_BYTES]), None);
        for request in [Request::NONE, Request::new(Progress::Partial, b" chaos ki")] {
            let kept = Kept { request, ..kept };
            assert_eq!(Kept::decode(&kept.encode()), Some(kept));
        }
        assert!(Request::new(Progress::Partial, &[b'x'; 9999]).text().len() > REQUEST_MAX, "it is still too long");
    }
}
