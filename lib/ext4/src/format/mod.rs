//! Making a new volume: mkfs.
//!
//! [`Format`] is an iterator of what has to be done to the device, one block in memory at a time.
//! Where everything lies is a function of the size ([`layout`]), and so are the bytes of each block
//! ([`content`]). Features and sizes are those of mkfs.ext4, without room to grow on line
//! (`resize_inode`) and with nothing kept back for root; the journal is 512 MiB at most.
//!
//! A volume is there at once or not at all. The first thing written is a mark in front of the
//! superblock's place; the superblock comes last, and then the mark goes. A device whose first
//! block has the mark ([`is_unfinished`]) has lost its power meanwhile, and has to be formatted
//! again: nothing can be stored on it.
//!
//! Deliberately unknown here: whether a device may be formatted, where time and random numbers come
//! from.

mod content;
mod layout;

use alloc::boxed::Box;
use alloc::vec::{self, Vec};
use core::fmt;

use crate::Block;
use crate::group::DESCRIPTORS_OF_BLOCK;
use content::Content;
use layout::Layout;

/// What a device begins with while it is formatted.
const MARK: &[u8; 24] = b"ext4 is being made here\n";

/// What a new volume is to be.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Blocks of 4 KiB of the device. The volume may have a few less: a last group that would not
    /// hold more than its own inodes is left out.
    pub device_blocks: u64,
    /// The volume's identity, random.
    pub uuid: [u8; 16],
    /// What hashes of names start from, random.
    pub hash_seed: [u8; 16],
    /// The volume's name, with zeros behind it.
    pub label: [u8; 16],
    /// Seconds since 1970.
    pub now_seconds: u64,
    /// Whether all of the device reads as zeros: then no zeros are written.
    pub is_zero: bool,
}

/// What has to be done next. Between two flushes the order does not matter: no two of them are
/// about the same block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write a block.
    Write {
        /// Its number.
        block: u64,
        /// What it is to have.
        bytes: Box<Block>,
    },
    /// Write zeros.
    Zero {
        /// The first block.
        first: u64,
        /// How many, at least 1.
        blocks: u64,
    },
    /// Wait until all that was written is there for good, then go on.
    Flush,
}

/// Why a device cannot be formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// It has fewer blocks than the least, [`FormatError::BLOCKS_MIN`]. Take a larger one.
    TooSmall {
        /// Blocks of 4 KiB of the device.
        blocks: u64,
    },
    /// It has more blocks than [`FormatError::BLOCKS_MAX`]. Take a part of it.
    TooLarge {
        /// Blocks of 4 KiB of the device.
        blocks: u64,
    },
}

impl FormatError {
    /// Fewest blocks of a volume: 8 MiB.
    pub const BLOCKS_MIN: u64 = layout::BLOCKS_MIN;
    /// Most blocks of a volume: 16 TiB.
    pub const BLOCKS_MAX: u64 = layout::BLOCKS_MAX;
}

impl fmt::Display for FormatError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |blocks: u64| blocks / 256;
        match *self {
            FormatError::TooSmall { blocks } => {
                write!(out, "{} MiB is too small for ext4: at least {} MiB", mib(blocks), mib(layout::BLOCKS_MIN))
            }
            FormatError::TooLarge { blocks } => {
                write!(out, "{} MiB is too large: at most {} MiB", mib(blocks), mib(layout::BLOCKS_MAX))
            }
        }
    }
}

/// Whether a device, whose first block this is, was being formatted when it was cut off. What else
/// is on it does not count; format it again.
pub fn is_unfinished(first: &Block) -> bool {
    first.starts_with(MARK)
}

/// The first block of a device that is being formatted: for who makes something around a volume,
/// and wants it seen as not ended.
pub fn unfinished() -> Box<Block> {
    let mut block = Box::new([0; crate::BLOCK_BYTES]);
    block[..MARK.len()].copy_from_slice(MARK);
    block
}

/// A thing to do, before it has its bytes.
#[derive(Clone, Copy, Debug)]
enum Item {
    Mark,
    Flush,
    Zero {
        first: u64,
        blocks: u64,
    },
    /// Block `index` of the descriptors, in the copy that begins in `group`.
    Descriptors {
        group: u32,
        index: u32,
    },
    /// The superblock's copy in `group`.
    Copy {
        group: u32,
    },
    BlockBitmap {
        group: u32,
    },
    InodeBitmap,
    Inodes,
    Root,
    LostFound {
        index: u64,
    },
    Journal,
    /// The superblock, with the mark still in front of it.
    MarkedSuperBlock,
    SuperBlock,
}

/// What has to be done to a device to make a volume of it, in order.
#[derive(Debug)]
pub struct Format {
    content: Content,
    plan: vec::IntoIter<Item>,
}

impl Format {
    /// Plans it. Nothing is written yet.
    ///
    /// # Errors
    /// [`FormatError`]: the device is too small or too large.
    pub fn new(options: &FormatOptions) -> Result<Format, FormatError> {
        let layout = Layout::new(options.device_blocks)?;
        let plan = plan(&layout, options.is_zero).into_iter();
        Ok(Format { content: Content::new(layout, options), plan })
    }

    /// Blocks that the volume will have.
    pub fn blocks(&self) -> u64 {
        self.content.layout.blocks
    }
}

/// All there is to do.
fn plan(layout: &Layout, is_zero: bool) -> Vec<Item> {
    let mut plan = Vec::from([Item::Mark, Item::Flush]);
    if !is_zero {
        plan.extend(zeros(layout));
    }
    for group in 0..layout.groups {
        if layout::has_copy(group) {
            // The copy of group 0 is the superblock itself: it comes last.
            plan.extend((group > 0).then_some(Item::Copy { group }));
            plan.extend(
                (0..layout.groups.div_ceil(DESCRIPTORS_OF_BLOCK)).map(|index| Item::Descriptors { group, index }),
            );
        }
        if !layout.is_untouched(group) {
            plan.push(Item::BlockBitmap { group });
        }
    }
    plan.extend([Item::InodeBitmap, Item::Inodes, Item::Root, Item::Journal]);
    plan.extend((0..layout::LOST_FOUND_BLOCKS).map(|index| Item::LostFound { index }));
    plan.extend([Item::Flush, Item::MarkedSuperBlock, Item::Flush, Item::SuperBlock, Item::Flush]);
    plan
}

/// Inodes and the log, without the blocks that get bytes.
fn zeros(layout: &Layout) -> impl Iterator<Item = Item> {
    let tables = (0..layout.groups).map(|group| {
        let table = layout.inode_table(group);
        table.start + u64::from(group == 0)..table.end
    });
    let log = layout.journal.start + 1..layout.journal.end;
    tables
        .chain([log])
        .filter(|range| !range.is_empty())
        .map(|range| Item::Zero { first: range.start, blocks: range.end - range.start })
}

impl Iterator for Format {
    type Item = Action;

    fn next(&mut self) -> Option<Action> {
        let (content, layout) = (&self.content, &self.content.layout);
        let (block, bytes) = match self.plan.next()? {
            Item::Flush => return Some(Action::Flush),
            Item::Zero { first, blocks } => return Some(Action::Zero { first, blocks }),
            Item::Mark => (0, content.mark()),
            Item::Descriptors { group, index } => {
                (layout.first(group) + 1 + u64::from(index), content.descriptors(index))
            }
            Item::Copy { group } => (layout.first(group), content.copy(group)),
            Item::BlockBitmap { group } => (layout.block_bitmap(group), content.block_bitmap(group)),
            Item::InodeBitmap => (layout.inode_bitmap(0), content.inode_bitmap()),
            Item::Inodes => (layout.inode_table(0).start, content.inodes()),
            Item::Root => (layout.root(), content.root()),
            Item::LostFound { index } => (layout.lost_found().start + index, content.lost_found(index)),
            Item::Journal => (layout.journal.start, content.journal()),
            Item::MarkedSuperBlock => (0, content.marked_super_block()),
            Item::SuperBlock => (0, content.super_block()),
        };
        Some(Action::Write { block, bytes })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::ops::Range;

    use super::*;
    use crate::super_block::{GROUP_BLOCKS, OFFSET};
    use crate::testing::options;

    fn written(options: &FormatOptions) -> Vec<u64> {
        let blocks = Format::new(options).unwrap().filter_map(|action| match action {
            Action::Write { block, .. } => Some(block),
            _ => None,
        });
        blocks.collect()
    }

    /// The stretches that get zeros.
    fn zeroed(options: &FormatOptions) -> Vec<Range<u64>> {
        let stretches = Format::new(options).unwrap().filter_map(|action| match action {
            Action::Zero { first, blocks } => Some(first..first + blocks),
            _ => None,
        });
        stretches.collect()
    }

    #[test]
    fn all_copies_of_super_block_and_descriptors_are_written() {
        // Seventy groups, whose descriptors take two blocks.
        let written = written(&options(69 * GROUP_BLOCKS + 5000));
        let is_written = |block: u64| written.contains(&block);
        for group in 0..70 {
            let first = group * GROUP_BLOCKS;
            let has_copy = [0, 1, 3, 5, 7, 9, 25, 27, 49].contains(&group);
            // In the first of sixteen groups without a copy its bitmaps begin.
            let begins = has_copy || group % 16 == 0;
            assert_eq!(is_written(first), begins, "group {group}");
            assert_eq!([1, 2].map(|at| is_written(first + at)), [has_copy; 2], "group {group}");
        }
    }

    #[test]
    fn a_copy_says_of_which_group_it_is() {
        let mut groups = vec![];
        for action in Format::new(&options(4 * GROUP_BLOCKS)).unwrap() {
            if let Action::Write { block, bytes } = action
                && block > 0
                && bytes[0x38..0x3A] == [0x53, 0xEF]
            {
                assert_eq!(u64::from(bytes[0x5A]) * GROUP_BLOCKS, block);
                groups.push(bytes[0x5A]);
            }
        }
        assert_eq!(groups, [1, 3]);
        assert_eq!(Format::new(&options(4 * GROUP_BLOCKS)).unwrap().blocks(), 4 * GROUP_BLOCKS);
        // A last group that has no room is left out.
        assert_eq!(Format::new(&options(4 * GROUP_BLOCKS + 20)).unwrap().blocks(), 4 * GROUP_BLOCKS);
    }

    #[test]
    fn inodes_and_log_get_zeros_where_they_get_no_bytes_and_only_on_a_device_with_others() {
        let small = options(FormatError::BLOCKS_MIN);
        assert_eq!(zeroed(&small), []);
        // Super block, descriptors, two bitmaps; 128 blocks of inodes, whose first has bytes;
        // root directory and /lost+found; the journal.
        let small = FormatOptions { is_zero: false, ..small };
        assert_eq!(zeroed(&small), [5..132, 138..1161]);
        let two = FormatOptions { is_zero: false, ..options(2 * GROUP_BLOCKS) };
        assert_eq!(zeroed(&two), [7..2054, 2054..4102, 4108..8203]);
    }

    #[test]
    fn the_super_block_comes_last_and_the_mark_first() {
        let mut first = Vec::new();
        for action in Format::new(&options(FormatError::BLOCKS_MIN)).unwrap() {
            if let Action::Write { block: 0, bytes } = action {
                first.push((is_unfinished(&bytes), bytes[OFFSET + 0x38..][..2] == [0x53, 0xEF]));
            }
        }
        assert_eq!(first, [(true, false), (true, true), (false, true)]);
    }
}
