//! From the loader's memory map to the RAM the kernel may hand out.
//!
//! Invariants of [`FreeRam`]: ranges are page aligned, disjoint, not empty and ascending. The first
//! MiB is never free (firmware data, the page other cores start on). A range that would be the 33rd
//! is dropped: less memory, never wrong memory.

use crate::memory::PhysRange;

/// Most disjoint ranges kept.
pub const RANGES_MAX: usize = 32;
/// Below this address firmware and loader keep things nobody lists.
const LOW_MEMORY_BYTES: u64 = 1 << 20;

/// RAM nobody uses yet.
#[derive(Clone)]
pub struct FreeRam {
    ranges: [PhysRange; RANGES_MAX],
    count: usize,
}

impl Default for FreeRam {
    fn default() -> Self {
        FreeRam { ranges: [PhysRange::default(); RANGES_MAX], count: 0 }
    }
}

impl FreeRam {
    /// The ranges, ascending.
    pub fn ranges(&self) -> &[PhysRange] {
        &self.ranges[..self.count]
    }

    /// Bytes in all ranges.
    pub fn bytes(&self) -> u64 {
        self.ranges().iter().map(|range| range.bytes).sum()
    }

    /// Free bytes inside `window`.
    pub fn bytes_in(&self, window: PhysRange) -> u64 {
        self.ranges().iter().map(|range| range.overlap_bytes(&window)).sum()
    }

    /// Adds RAM that the map lists. Overlap with what is there already (a broken map) is added only
    /// once.
    pub fn add(&mut self, range: PhysRange) {
        let end = range.end().0;
        let base = range.base.0.max(LOW_MEMORY_BYTES);
        self.reserve(range);
        let pages = PhysRange::new(base, end.saturating_sub(base)).whole_pages();
        if pages.is_empty() || self.count == RANGES_MAX {
            return;
        }
        let at = self.ranges().iter().position(|other| other.base > pages.base).unwrap_or(self.count);
        self.ranges.copy_within(at..self.count, at + 1);
        self.ranges[at] = pages;
        self.count += 1;
    }

    /// Takes every page that `range` touches out.
    pub fn reserve(&mut self, range: PhysRange) {
        if range.is_empty() {
            return;
        }
        let before = core::mem::take(self);
        for free in before.ranges() {
            if !free.overlaps(&range) {
                self.append(*free);
                continue;
            }
            let left = range.base.0.saturating_sub(free.base.0);
            self.append(PhysRange::new(free.base.0, left).whole_pages());
            let right = free.end().0.saturating_sub(range.end().0);
            self.append(PhysRange::new(free.end().0 - right, right).whole_pages());
        }
    }

    fn append(&mut self, range: PhysRange) {
        if !range.is_empty() && self.count < RANGES_MAX {
            self.ranges[self.count] = range;
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_memory_is_never_free() {
        let mut free = FreeRam::default();
        free.add(PhysRange::new(0, 0x9f000));
        assert_eq!(free.bytes(), 0);
        free.add(PhysRange::new(0, 0x200000));
        assert_eq!(free.ranges(), [PhysRange::new(0x100000, 0x100000)]);
    }

    #[test]
    fn reserving_agrees_with_a_page_set() {
        // Reference model: a set of page numbers.
        let mut free = FreeRam::default();
        let mut model = std::collections::BTreeSet::new();
        for (base, bytes) in [(0x400000u64, 0x40000u64), (0x100000, 0x80000), (0x420000, 0x30000)] {
            free.add(PhysRange::new(base, bytes));
            model.extend(base / 4096..(base + bytes) / 4096);
        }
        for (base, bytes) in [(0x101001u64, 1u64), (0x120000, 0x3fff), (0x40f800, 0x1000), (0x17f000, 0x281000)] {
            free.reserve(PhysRange::new(base, bytes));
            model.retain(|page| page * 4096 + 4096 <= base || page * 4096 >= base + bytes);
        }
        let pages: Vec<u64> = free.ranges().iter().flat_map(|r| r.base.0 / 4096..r.end().0 / 4096).collect();
        assert!(pages.iter().eq(model.iter()));
    }

    #[test]
    fn what_fits_is_kept_and_what_does_not_is_dropped() {
        let mut free = FreeRam::default();
        let at = |number: u64| PhysRange::new((number + 1) << 20, 0x2000);
        (0..RANGES_MAX as u64 + 2).for_each(|number| free.add(at(number)));
        let all: Vec<_> = (0..RANGES_MAX as u64).map(at).collect();
        assert_eq!(free.ranges(), all);
        // A cut makes two of one: there is no room for the second.
        free.add(PhysRange::new(at(3).base.0, 0x2000));
        assert_eq!(free.ranges(), all);
        free.reserve(PhysRange::new(at(0).base.0 + 0x800, 1));
        assert_eq!(free.ranges()[0], PhysRange::new(at(0).base.0 + 0x1000, 0x1000));
        // None of what is not a whole page.
        let mut free = FreeRam::default();
        free.add(PhysRange::new(0x20_0800, 0x1000));
        assert_eq!(free.ranges(), []);
    }

    #[test]
    fn a_full_list_loses_the_upper_part_of_a_cut() {
        let mut free = FreeRam::default();
        (0..RANGES_MAX as u64).for_each(|number| free.add(PhysRange::new((number + 1) << 20, 0x3000)));
        free.reserve(PhysRange::new((3 << 20) + 0x1000, 0x1000));
        assert_eq!(free.ranges().len(), RANGES_MAX);
        let last = free.ranges().last().unwrap().base.0;
        assert_eq!(last, (RANGES_MAX as u64 - 1) << 20);
    }
}
