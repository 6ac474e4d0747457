//! Places for blocks in the region of the disk's data, and how many requests may be under way.

use alloc::vec::Vec;
use core::ops::Range;

/// What is free of both. Places are numbered from 0 on.
#[derive(Debug)]
pub struct Places {
    /// Free ones, in order; no two ranges touch each other.
    free: Vec<Range<u32>>,
    /// Requests that may begin.
    requests: u32,
}

impl Places {
    /// So many places and requests.
    pub fn new(places: u32, requests: u32) -> Places {
        Places { free: (places > 0).then_some(0..places).into_iter().collect(), requests }
    }

    /// For one request: places side by side, `wanted` or, where there are not so many, fewer.
    /// `None` while there is not one, or no request may begin.
    pub fn take(&mut self, wanted: u32) -> Option<Range<u32>> {
        if self.requests == 0 || wanted == 0 {
            return None;
        }
        let all = || self.free.iter().enumerate();
        // The smallest that is enough leaves large ones for those who want many.
        let enough = all().filter(|(_, range)| count(range) >= wanted).min_by_key(|(_, range)| count(range));
        let (index, _) = enough.or_else(|| all().max_by_key(|(_, range)| count(range)))?;
        let range = &mut self.free[index];
        let taken = range.start..range.end.min(range.start + wanted);
        range.start = taken.end;
        if count(range) == 0 {
            self.free.remove(index);
        }
        self.requests -= 1;
        Some(taken)
    }

    /// A request has ended: its places are free.
    pub fn give(&mut self, taken: Range<u32>) {
        self.requests += 1;
        let at = self.free.partition_point(|range| range.start < taken.start);
        self.free.insert(at, taken);
        for index in [at, at.saturating_sub(1)] {
            if let Some(next) = self.free.get(index + 1).cloned()
                && self.free[index].end == next.start
            {
                self.free[index].end = next.end;
                self.free.remove(index + 1);
            }
        }
    }
}

fn count(range: &Range<u32>) -> u32 {
    range.end - range.start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_side_by_side_and_nobody_has_another_ones() {
        let mut places = Places::new(16, 100);
        let taken: Vec<_> = [4, 2, 5].map(|wanted| places.take(wanted)).into_iter().flatten().collect();
        assert_eq!(taken, [0..4, 4..6, 6..11]);
        places.give(4..6);
        assert_eq!(places.take(1), Some(4..5), "the smallest range that is enough");
        assert_eq!(places.take(9), Some(11..16), "as many as there are");
        assert_eq!((places.take(9), places.take(9)), (Some(5..6), None));
        for range in [6..11, 0..4, 5..6, 11..16, 4..5] {
            places.give(range);
        }
        assert_eq!(places.take(99), Some(0..16), "what is free again is in one piece");
    }

    #[test]
    fn no_more_requests_begin_than_may() {
        let mut places = Places::new(16, 2);
        assert_eq!(
            (places.take(0), places.take(1), places.take(1), places.take(1)),
            (None, Some(0..1), Some(1..2), None)
        );
        places.give(0..1);
        assert_eq!(places.take(3), Some(2..5));
        assert_eq!((Places::new(0, 9).take(1), Places::new(9, 0).take(1)), (None, None));
    }
}
