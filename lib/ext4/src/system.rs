//! Blocks that are no file's: super blocks, descriptors, bitmaps, tables of inodes, the journal.
//!
//! No two of them are one, and a file that has one of them is corrupt.

use alloc::vec::Vec;
use core::ops::Range;

use crate::BLOCK_BYTES;
use crate::error::{Error, Stop};
use crate::group::{self, Group};
use crate::super_block::{DESCRIPTOR_BYTES, GROUP_BLOCKS, Geometry, Settings};

/// The blocks that are no file's: ranges in order, none of them touching another.
#[derive(Clone, Debug)]
pub(crate) struct System(Vec<Range<u64>>);

impl System {
    /// Those of a volume with these groups, and a journal in these blocks.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: one of them is two things.
    pub fn new(geometry: &Geometry, settings: &Settings, groups: &[Group], journal: &[u64]) -> Result<System, Stop> {
        let mut ranges: Vec<Range<u64>> = journal.iter().map(|block| *block..block + 1).collect();
        for (number, group) in (0..).zip(groups) {
            ranges.extend(head(geometry, settings, number));
            ranges.extend([group.block_bitmap..group.block_bitmap + 1, group.inode_bitmap..group.inode_bitmap + 1]);
            ranges.push(group.inode_table..group.inode_table + group::table_blocks(geometry));
        }
        ranges.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.start < last.end => return Err(Error::corrupt("where the groups' parts lie", 0)),
                Some(last) if range.start == last.end => last.end = range.end,
                _ => joined.push(range),
            }
        }
        Ok(System(joined))
    }

    /// Those of them that are among `blocks`.
    pub fn among(&self, blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|range| range.end <= blocks.start);
        let among = self.0[first..].iter().take_while(move |range| range.start < blocks.end);
        among.map(move |range| range.start.max(blocks.start)..range.end.min(blocks.end))
    }

    /// Whether one of `blocks` is no file's.
    pub fn has(&self, blocks: Range<u64>) -> bool {
        self.among(blocks).next().is_some()
    }
}

/// The super block and the descriptors at the head of group `number`, or their copies.
fn head(geometry: &Geometry, settings: &Settings, number: u32) -> Option<Range<u64>> {
    let is_power = |base: u32| {
        let mut power = base;
        while power < number {
            power = power.saturating_mul(base);
        }
        power == number
    };
    if settings.is_sparse && number > 1 && !is_power(3) && !is_power(5) && !is_power(7) {
        return None;
    }
    let descriptors = (u64::from(geometry.groups) * DESCRIPTOR_BYTES as u64).div_ceil(BLOCK_BYTES as u64);
    let first = u64::from(number) * GROUP_BLOCKS;
    Some(first..(first + 1 + descriptors + u64::from(settings.reserved_descriptor_blocks)).min(geometry.blocks))
}
