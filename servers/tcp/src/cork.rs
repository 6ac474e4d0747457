//! Bytes of a stream that wait for more, so that no short segment goes: TCP_CORK and MSG_MORE
//! (tcp(7)).
//!
//! The library sends all that is in its buffer. So what would make a short segment stays out of it,
//! here, for 200 ms at most, as in Linux.
//!
//! Invariant: what is held follows all that the library has.

use alloc::vec::Vec;

/// What waits goes after this.
pub const HELD_NS: u64 = 200_000_000;

/// What one connection holds back.
#[derive(Debug, Default)]
pub struct Cork {
    held: Vec<u8>,
    due_ns: Option<u64>,
}

impl Cork {
    /// Bytes that are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// How many of `new` bytes go at once if none may go in a short segment, behind `unsent` that
    /// the library has; what is held goes before them. `None` if nothing goes.
    pub fn goes(&self, unsent: usize, new: usize, segment_bytes: usize) -> Option<usize> {
        let before = unsent + self.held.len();
        let whole = (before + new) / segment_bytes.max(1) * segment_bytes.max(1);
        if whole > unsent { whole.checked_sub(before) } else { None }
    }

    /// Holds so many bytes more, which `fill` puts there; false if it could not.
    pub fn hold(&mut self, count: usize, fill: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let before = self.held.len();
        self.held.resize(before + count, 0);
        let is_filled = fill(&mut self.held[before..]);
        if !is_filled {
            self.held.truncate(before);
        }
        is_filled
    }

    /// Takes what is held; it waits no longer.
    pub fn take(&mut self) -> Vec<u8> {
        self.due_ns = None;
        core::mem::take(&mut self.held)
    }

    /// Has it waited long enough? The wait begins when this is asked first.
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        !self.held.is_empty() && *self.due_ns.get_or_insert(now_ns + HELD_NS) <= now_ns
    }

    /// When it has.
    pub fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(count: usize) -> Cork {
        let mut cork = Cork::default();
        assert!(cork.hold(count, |bytes| {
            bytes.fill(7);
            true
        }));
        cork
    }

    #[test]
    fn whole_segments_go_and_the_rest_waits() {
        assert_eq!(Cork::default().goes(0, 99, 100), None);
        assert_eq!(Cork::default().goes(0, 100, 100), Some(100));
        assert_eq!(Cork::default().goes(0, 350, 100), Some(300));
        assert_eq!(holding(60).goes(0, 39, 100), None);
        assert_eq!(holding(60).goes(0, 40, 100), Some(40));
        assert_eq!(holding(60).goes(0, 145, 100), Some(140));
    }

    #[test]
    fn what_the_library_has_not_sent_is_part_of_the_segment() {
        assert_eq!(Cork::default().goes(30, 69, 100), None);
        assert_eq!(Cork::default().goes(30, 75, 100), Some(70));
        assert_eq!(holding(60).goes(30, 11, 100), Some(10));
        // It has more than a segment, and a short rest.
        assert_eq!(Cork::default().goes(130, 60, 100), None);
        assert_eq!(Cork::default().goes(130, 75, 100), Some(70));
    }

    #[test]
    fn it_waits_200_ms_from_the_first_byte_on() {
        let mut cork = Cork::default();
        assert!(!cork.is_due(5) && cork.due_ns().is_none());
        cork = holding(1);
        assert!(!cork.is_due(5) && !cork.is_due(HELD_NS));
        assert!(cork.hold(1, |_| true) && !cork.hold(1, |_| false));
        assert_eq!((cork.len(), cork.due_ns(), cork.is_due(5 + HELD_NS)), (2, Some(5 + HELD_NS), true));
        assert_eq!(cork.take(), [7, 0]);
        assert!(!cork.is_due(u64::MAX) && cork.due_ns().is_none());
    }
}
