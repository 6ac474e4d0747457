//! Reading ahead: which blocks of a file a reader will want soon.
//!
//! Who reads in order has a window: as many blocks as may be asked for before they are wanted. When
//! less than half of it is left before the reader, the other half is asked for, and the window
//! doubles. Who reads elsewhere has none. Deliberately unknown here: where blocks are, and whether
//! they are in memory.

use core::ops::Range;

/// The first window, in blocks.
const WINDOW_MIN: u64 = 8;
/// The largest one: 256 KiB, two requests of 128 KiB.
pub const WINDOW_MAX: u64 = 64;

/// What is known of a reader. Numbers are of blocks in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Where one who reads in order goes on.
    next: u64,
    /// Blocks before this one were asked for.
    until: u64,
    /// The window; 0 for one who does not read in order.
    window: u64,
}

impl Ahead {
    /// These blocks are read now, of a file that ends before `end`. Gives those to be asked for
    /// with them, most of the time none; there are at most `most` between reader and window's end.
    pub fn read(&mut self, now: Range<u64>, end: u64, most: u64) -> Range<u64> {
        // A block of which the last reader took a part is read again.
        let goes_on = now.start == self.next || now.start + 1 == self.next;
        self.next = now.end;
        if !goes_on || now.end >= end {
            (self.until, self.window) = (now.end, 0);
            return now.end..now.end;
        }
        self.until = self.until.max(now.end);
        if self.until - now.end > self.window / 2 {
            return self.until..self.until;
        }
        self.window = (2 * self.window).max(WINDOW_MIN).min(most.min(WINDOW_MAX));
        let from = self.until;
        self.until = (from + self.window.div_ceil(2)).min(end).max(from);
        from..self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_in_order_is_ahead_by_half_a_window_and_more() {
        let (mut ahead, mut asked, mut times) = (Ahead::default(), 0, 0);
        for block in 0..1000 {
            let more = ahead.read(block..block + 1, 1000, WINDOW_MAX);
            if !more.is_empty() {
                assert_eq!(more.start, asked.max(block + 1), "nothing is asked for twice or left out");
                (asked, times) = (more.end, times + 1);
            }
            let before = asked - (block + 1).min(asked);
            assert!(before <= WINDOW_MAX && asked <= 1000);
            assert!(block < 100 || before >= WINDOW_MAX / 2 - 1 || asked == 1000, "{block}: {before}");
        }
        assert_eq!((asked, times), (1000, 34));
    }

    #[test]
    fn parts_of_blocks_go_on_in_order() {
        let mut ahead = Ahead::default();
        let mut asked = 0;
        for at in (0..100_000u64).step_by(1000) {
            asked += ahead.read(at / 4096..(at + 1000).div_ceil(4096), 1000, WINDOW_MAX).count();
        }
        assert!(asked >= 100_000 / 4096, "{asked}");
    }

    #[test]
    fn nothing_is_asked_for_elsewhere_behind_the_end_or_without_room() {
        let mut ahead = Ahead::default();
        for block in [7, 3, 900, 20, 40, 10] {
            assert!(ahead.read(block..block + 1, 1000, WINDOW_MAX).is_empty(), "{block}");
        }
        assert_eq!(ahead.read(11..12, 1000, WINDOW_MAX), 12..16, "in order from here on");
        assert!(ahead.read(500..501, 1000, WINDOW_MAX).is_empty());
        assert_eq!(ahead.read(501..502, 504, WINDOW_MAX), 502..504);
        assert!(Ahead::default().read(0..1, 1, WINDOW_MAX).is_empty());
        assert!(Ahead::default().read(0..1, 1000, 0).is_empty());
        assert_eq!(Ahead::default().read(0..9, 1000, 1), 9..10);
    }
}
