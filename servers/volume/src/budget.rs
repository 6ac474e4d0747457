//! Memory for blocks: how many may be newer than the disk, and how many are kept beside them.
//!
//! What is newer than the disk cannot be dropped, so it is bounded, and who would make more waits
//! until some was written.

/// Part of the account for clean blocks.
const CLEAN_PART: usize = 2;
/// Parts for blocks that a commit has still to write, and for those that only the log has.
const DIRTY_PART: usize = 8;
const LOGGED_PART: usize = 8;
/// An account that is smaller is no good: one change may take so many.
const DIRTY_MIN: usize = 64;
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

    /// Clean blocks.
    pub fn clean_max(&self) -> usize {
        self.pages / CLEAN_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_divided() {
        let budget = Budget::of(16_384);
        assert_eq!((budget.dirty_begin(), budget.dirty_max(), budget.logged_max()), (1024, 2048, 2048));
        assert_eq!(budget.clean_max(), 8192);
        assert_eq!(Budget::of(0).dirty_max(), 64);
    }
}
