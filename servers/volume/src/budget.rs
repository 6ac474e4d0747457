//! Memory for blocks: how many may be newer than the disk, and how many are kept beside them.
//!
//! What is newer than the disk cannot be dropped, so it is bounded, and who would make more waits
//! until some was written. Clean blocks have what is left, and are the first to go.

/// Part of the account that blocks may take altogether; the rest is for requests under way, open
/// files and the program itself.
const ALL: (usize, usize) = (3, 4);
/// Parts for blocks that a commit has still to write, and for those that only the log has.
const DIRTY_PART: usize = 8;
const LOGGED_PART: usize = 8;
/// An account that is smaller is no good: one change may take so many.
const DIRTY_MIN: usize = 64;
/// Part of the account that is left, or is free in the heap, for those who want memory next.
const SPARE_PART: usize = 16;

/// How many blocks may be in memory, for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Pages of the account.
    pages: usize,
}

impl Budget {
    /// That of an account of so many pages.
    pub fn of(pages: usize) -> Budget {
        Budget { pages }
    }

    /// Blocks that a commit has to write: with more than so many who changes something waits.
    pub fn dirty_max(&self) -> usize {
        (self.pages / DIRTY_PART).max(DIRTY_MIN)
    }

    /// With so many a commit begins.
    pub fn dirty_begin(&self) -> usize {
        self.dirty_max() / 2
    }

    /// Blocks that only the log has: with so many they are written to their places.
    pub fn logged_max(&self) -> usize {
        (self.pages / LOGGED_PART).max(DIRTY_MIN)
    }
}

/// What blocks take of the budget now. The heap keeps what it once had, so what is dropped is free
/// for others in this component, and blocks never ask for more than the most that they ever had
/// while nothing else is left.
#[derive(Clone, Copy, Debug)]
pub struct Balance {
    budget: Budget,
    /// Blocks that are newer than the disk.
    held: usize,
    /// Most blocks that there ever were.
    peak: usize,
}

impl Balance {
    /// None yet.
    pub fn of(budget: Budget) -> Balance {
        Balance { budget, held: 0, peak: 0 }
    }

    /// So many blocks are newer than the disk. Whether that is so much more or less than at the
    /// last look that clean ones have to be counted again.
    pub fn hold(&mut self, held: usize) -> bool {
        const STEP: usize = 16;
        self.held.abs_diff(held) >= STEP && {
            self.held = held;
            true
        }
    }

    /// How many clean blocks there may be, now that there are `cached`, and the account and the
    /// core can give `available` pages more.
    pub fn clean_max(&mut self, cached: usize, available: usize) -> usize {
        self.peak = self.peak.max(self.held + cached);
        let spare = self.budget.pages / SPARE_PART;
        let all = (self.budget.pages / ALL.1 * ALL.0).min((self.peak + available).saturating_sub(spare));
        all.saturating_sub(self.held).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_divided() {
        let budget = Budget::of(16_384);
        assert_eq!((budget.dirty_begin(), budget.dirty_max(), budget.logged_max()), (1024, 2048, 2048));
        assert_eq!(Budget::of(0).dirty_max(), 64);
    }
    #[test]
    fn clean_blocks_have_what_dirty_ones_and_others_leave() {
        let mut balance = Balance::of(Budget::of(16_384));
        assert_eq!(balance.clean_max(0, 16_000), 12_288, "three quarters");
        assert!(balance.hold(4096) && !balance.hold(4100) && balance.hold(4000));
        assert_eq!(balance.clean_max(8000, 1 << 20), 8288, "what is dirty is taken off");
        assert!(balance.hold(0));
        // There were 12,000 at once; the account has 500 left, and 1,024 are to be spare.
        assert_eq!(balance.clean_max(100, 500), 12_000 + 500 - 1024);
        assert_eq!(balance.clean_max(12_000, 0), 12_000 - 1024, "others need it more");
        assert_eq!(balance.clean_max(9000, 0), 12_000 - 1024, "no fewer for having dropped some");
        assert!(balance.hold(20_000));
        assert_eq!(balance.clean_max(0, 1 << 20), 1, "one is always there");
        assert_eq!(Balance::of(Budget::of(16_384)).clean_max(0, 24), 1, "a core without memory");
    }
}
