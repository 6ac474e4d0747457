//! Giving out blocks and inodes, by the bitmaps of the groups.
//!
//! Blocks that were freed are given out again only when the transaction that freed them lasts:
//! until then a cut could bring back who had them.

use alloc::sync::Arc;

use crate::checksum::Checksum;
use crate::error::{Error, Stop};
use crate::group::{self, FLAG_NO_BLOCKS, FLAG_NO_INODES, Group};
use crate::inode::{Kind, ROOT};
use crate::known::{Part, find};
use crate::operation::Operation;
use crate::super_block::GROUP_BLOCKS;
use crate::transaction::copy_of;
use crate::{Block, Blocks, ZEROS};

/// Blocks that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub first: u64,
    /// At least 1.
    pub blocks: u32,
}

fn corrupt(what: &'static str, group: u32) -> Stop {
    Error::corrupt(what, u64::from(group))
}

/// Bits that are looked at at once.
const WORD_BITS: u32 = u64::BITS;

/// The word of a bitmap that has a bit, from that bit on.
fn word_from(bitmap: &Block, bit: u32) -> u64 {
    let (words, _) = bitmap.as_chunks::<8>();
    u64::from_le_bytes(words[(bit / WORD_BITS) as usize]) >> (bit % WORD_BITS)
}

fn is_set(bitmap: &Block, bit: u32) -> bool {
    bitmap[bit as usize / 8] >> (bit % 8) & 1 != 0
}

/// Sets or clears `count` bits from `first` on. Returns whether all of them were the opposite.
fn put_bits(bitmap: &mut Block, first: u32, count: u32, value: bool) -> bool {
    let mut all = true;
    for bit in first..first + count {
        all &= is_set(bitmap, bit) != value;
        let mask = 1 << (bit % 8);
        let byte = &mut bitmap[bit as usize / 8];
        *byte = if value { *byte | mask } else { *byte & !mask };
    }
    all
}

/// Where the first clear bit at `from` or behind is, before `end`.
fn find_clear(bitmap: &Block, from: u32, end: u32) -> Option<u32> {
    let mut bit = from;
    while bit < end {
        let (set, left) = (word_from(bitmap, bit).trailing_ones(), WORD_BITS - bit % WORD_BITS);
        if set < left {
            return Some(bit + set).filter(|bit| *bit < end);
        }
        bit += left;
    }
    None
}

/// How many bits are clear from `first` on, before `end`.
fn count_clear(bitmap: &Block, first: u32, end: u32) -> u32 {
    let mut bit = first;
    while bit < end {
        let (clear, left) = (word_from(bitmap, bit).trailing_zeros(), WORD_BITS - bit % WORD_BITS);
        if clear < left {
            return (bit + clear).min(end) - first;
        }
        bit += left;
    }
    end - first
}

/// Clear bits from `goal` on, which is before `end`; else the first run of `most`, or the longest
/// of the group.
fn find_run(bitmap: &Block, goal: u32, end: u32, most: u32) -> Option<(u32, u32)> {
    let length = |first: u32| count_clear(bitmap, first, end.min(first.saturating_add(most)));
    if !is_set(bitmap, goal) {
        return Some((goal, length(goal)));
    }
    let mut best: Option<(u32, u32)> = None;
    // From the goal to the end, then from the beginning.
    for (from, end) in [(goal, end), (0, goal)] {
        let mut at = from;
        while let Some(first) = find_clear(bitmap, at, end) {
            let count = length(first);
            if best.is_none_or(|(_, longest)| count > longest) {
                best = Some((first, count));
            }
            if count == most {
                return best;
            }
            at = first + count;
        }
    }
    best
}

impl<B: Blocks> Operation<'_, B> {
    /// Blocks that group `number` has: the last one has fewer.
    fn group_blocks(&self, number: u32) -> u32 {
        let left = self.volume().geometry().blocks - u64::from(number) * GROUP_BLOCKS;
        left.min(GROUP_BLOCKS) as u32
    }

    fn put_group(&mut self, number: u32, group: &Group) -> Result<(), Stop> {
        let geometry = self.volume().geometry();
        group::encode(geometry, number, self.blocks.edit(group::descriptor_block(number))?, group);
        Ok(())
    }

    /// The bitmap of the blocks of a group, checked.
    fn block_bitmap(&self, number: u32, group: &Group) -> Result<Arc<Block>, Stop> {
        if group.flags & FLAG_NO_BLOCKS != 0 {
            return self.new_block_bitmap(number, group);
        }
        let sum = group.block_bitmap_sum;
        let bitmap = find(self, group.block_bitmap)?.once(Part::whole(sum), |bitmap| {
            let is_right = Checksum(self.volume().geometry().checksum_seed).with(bitmap).0 == sum;
            if is_right { Ok(()) } else { Err(corrupt("the checksum of a bitmap of blocks", number)) }
        })?;
        Ok(copy_of(bitmap))
    }

    /// The bitmap of a group of which no file has a block.
    fn new_block_bitmap(&self, number: u32, group: &Group) -> Result<Arc<Block>, Stop> {
        let (first, count) = (u64::from(number) * GROUP_BLOCKS, self.group_blocks(number));
        let mut whole = copy_of(&ZEROS);
        let bitmap = Arc::make_mut(&mut whole);
        let mut free = count;
        for range in self.mount.system().among(first..first + u64::from(count)) {
            let length = (range.end - range.start) as u32;
            put_bits(bitmap, (range.start - first) as u32, length, true);
            free -= length;
        }
        put_bits(bitmap, count, GROUP_BLOCKS as u32 - count, true);
        if free == group.free_blocks { Ok(whole) } else { Err(corrupt("the free blocks of a group", number)) }
    }

    fn put_block_bitmap(&mut self, number: u32, group: &mut Group, bitmap: Arc<Block>) -> Result<(), Stop> {
        group.flags &= !FLAG_NO_BLOCKS;
        group.block_bitmap_sum = Checksum(self.volume().geometry().checksum_seed).with(&bitmap[..]).0;
        self.blocks.put_right(group.block_bitmap, bitmap, Part::whole(group.block_bitmap_sum));
        self.put_group(number, group)
    }

    /// Marks blocks that wait for a commit as not free.
    fn take_waiting(&self, number: u32, bitmap: &mut Arc<Block>) {
        let (start, end) = (u64::from(number) * GROUP_BLOCKS, u64::from(number + 1) * GROUP_BLOCKS);
        let others = self.mount.uncommitted().map(|transaction| &transaction.changes);
        for changes in others.chain([&self.blocks.changes]) {
            let before = changes.freed.range(..start).next_back();
            for (&first, &blocks) in before.into_iter().chain(changes.freed.range(start..end)) {
                let (first, last) = (first.max(start), (first + blocks).min(end));
                if first < last {
                    put_bits(Arc::make_mut(bitmap), (first - start) as u32, (last - first) as u32, true);
                }
            }
        }
    }

    /// Gives out up to `most` blocks that follow each other, at `goal` or near it.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Stop::Commit`]: blocks are free only when that lasts; [`Error::NoSpace`];
    /// [`Error::Corrupt`].
    pub(crate) fn allocate(&mut self, goal: u64, most: u32) -> Result<Run, Stop> {
        let geometry = self.volume().geometry();
        let goal = if goal < geometry.blocks { goal } else { 0 };
        let first = (goal / GROUP_BLOCKS) as u32;
        for offset in 0..geometry.groups {
            let number = ((u64::from(first) + u64::from(offset)) % u64::from(geometry.groups)) as u32;
            let group = self.volume().group(self, number)?;
            let goal = if offset == 0 { (goal % GROUP_BLOCKS) as u32 } else { 0 };
            if group.free_blocks > 0
                && let Some(run) = self.allocate_in(number, group, goal, most)?
            {
                return Ok(run);
            }
        }
        match self.mount.uncommitted().filter(|transaction| !transaction.changes.freed.is_empty()).last() {
            Some(waiting) => Err(Stop::Commit(waiting.number)),
            None => Err(Error::NoSpace.into()),
        }
    }

    fn allocate_in(&mut self, number: u32, mut group: Group, goal: u32, most: u32) -> Result<Option<Run>, Stop> {
        let mut bitmap = self.block_bitmap(number, &group)?;
        // A copy only if something waits.
        let mut seen = bitmap.clone();
        self.take_waiting(number, &mut seen);
        let Some((bit, count)) = find_run(&seen, goal, self.group_blocks(number), most) else { return Ok(None) };
        let first = u64::from(number) * GROUP_BLOCKS + u64::from(bit);
        let is_right = count <= group.free_blocks && !self.mount.system().has(first..first + u64::from(count));
        drop(seen);
        if !put_bits(Arc::make_mut(&mut bitmap), bit, count, true) || !is_right {
            return Err(corrupt("a bitmap of blocks", number));
        }
        group.free_blocks -= count;
        self.blocks.changes.free_blocks -= i64::from(count);
        self.put_block_bitmap(number, &mut group, bitmap)?;
        Ok(Some(Run { first, blocks: count }))
    }

    /// Frees blocks; those of metadata do not count any more in the log.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::Corrupt`]: some are free, or no file's.
    pub(crate) fn free(&mut self, first: u64, blocks: u64, is_metadata: bool) -> Result<(), Stop> {
        let end = first.checked_add(blocks).filter(|end| *end <= self.volume().geometry().blocks);
        let end = end.ok_or(Error::corrupt("blocks that are to be freed", 0))?;
        let mut at = first;
        while at < end {
            let number = (at / GROUP_BLOCKS) as u32;
            let part = end.min((u64::from(number) + 1) * GROUP_BLOCKS) - at;
            self.free_in(number, at, part as u32)?;
            at += part;
        }
        self.blocks.changes.free(first, blocks);
        if is_metadata {
            self.blocks.changes.revoked.extend(first..end);
        }
        Ok(())
    }

    fn free_in(&mut self, number: u32, first: u64, count: u32) -> Result<(), Stop> {
        let mut group = self.volume().group(self, number)?;
        let mut bitmap = self.block_bitmap(number, &group)?;
        let is_system = self.mount.system().has(first..first + u64::from(count));
        let free = group.free_blocks + count;
        let was_taken = put_bits(Arc::make_mut(&mut bitmap), (first % GROUP_BLOCKS) as u32, count, false);
        if is_system || !was_taken || free > self.group_blocks(number) {
            return Err(corrupt("blocks that are to be freed", number));
        }
        group.free_blocks = free;
        self.blocks.changes.free_blocks += i64::from(count);
        self.put_block_bitmap(number, &mut group, bitmap)
    }

    fn inode_bitmap(&self, number: u32, group: &Group) -> Result<Arc<Block>, Stop> {
        let geometry = self.volume().geometry();
        let per_group = geometry.inodes_per_group;
        if group.flags & FLAG_NO_INODES != 0 {
            if group.free_inodes != per_group {
                return Err(corrupt("the free inodes of a group", number));
            }
            let mut bitmap = copy_of(&ZEROS);
            put_bits(Arc::make_mut(&mut bitmap), per_group, GROUP_BLOCKS as u32 - per_group, true);
            return Ok(bitmap);
        }
        let sum = group.inode_bitmap_sum;
        let bitmap = find(self, group.inode_bitmap)?.once(Part::whole(sum), |bitmap| {
            let is_right = self.inode_bitmap_sum(bitmap) == sum;
            if is_right { Ok(()) } else { Err(corrupt("the checksum of a bitmap of inodes", number)) }
        })?;
        Ok(copy_of(bitmap))
    }

    fn inode_bitmap_sum(&self, bitmap: &Block) -> u32 {
        let geometry = self.volume().geometry();
        Checksum(geometry.checksum_seed).with(&bitmap[..geometry.inodes_per_group as usize / 8]).0
    }

    fn put_inode_bitmap(&mut self, number: u32, group: &mut Group, bitmap: Arc<Block>) -> Result<(), Stop> {
        group.flags &= !FLAG_NO_INODES;
        group.inode_bitmap_sum = self.inode_bitmap_sum(&bitmap);
        self.blocks.put_right(group.inode_bitmap, bitmap, Part::whole(group.inode_bitmap_sum));
        self.put_group(number, group)
    }

    /// Gives out an inode: near its parent; directories in the root far from each other.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::NoSpace`]; [`Error::Corrupt`].
    pub(crate) fn allocate_inode(&mut self, parent: u32, kind: Kind) -> Result<u32, Stop> {
        let geometry = self.volume().geometry();
        let near = (parent - 1) / geometry.inodes_per_group;
        let first = if kind == Kind::Directory && parent == ROOT { self.emptiest_group()? } else { near };
        for offset in 0..geometry.groups {
            let number = ((u64::from(first) + u64::from(offset)) % u64::from(geometry.groups)) as u32;
            let group = self.volume().group(self, number)?;
            if group.free_inodes > 0 {
                return self.allocate_inode_in(number, group, kind);
            }
        }
        Err(Error::NoSpace.into())
    }

    /// The group with the fewest directories, and of these that with the most free blocks.
    fn emptiest_group(&self) -> Result<u32, Stop> {
        let mut best = (u32::MAX, 0, 0);
        for number in 0..self.volume().geometry().groups {
            let group = self.volume().group(self, number)?;
            if group.free_inodes > 0 && group.free_blocks > 0 {
                best = best.min((group.directories, u32::MAX - group.free_blocks, number));
            }
        }
        Ok(best.2)
    }

    fn allocate_inode_in(&mut self, number: u32, mut group: Group, kind: Kind) -> Result<u32, Stop> {
        let per_group = self.volume().geometry().inodes_per_group;
        let mut bitmap = self.inode_bitmap(number, &group)?;
        let bit = find_clear(&bitmap, 0, per_group).ok_or(corrupt("the free inodes of a group", number))?;
        let inode = number * per_group + bit + 1;
        if inode < self.mount.settings.first_inode {
            return Err(corrupt("a bitmap of inodes", number));
        }
        // The blocks' bitmap of a group with an inode is there.
        if group.flags & FLAG_NO_BLOCKS != 0 {
            let blocks = self.block_bitmap(number, &group)?;
            self.put_block_bitmap(number, &mut group, blocks)?;
        }
        put_bits(Arc::make_mut(&mut bitmap), bit, 1, true);
        group.free_inodes -= 1;
        // The table behind the last inode that was ever used may be anything: nobody reads it.
        group.unused_inodes = group.unused_inodes.min(per_group - bit - 1);
        group.directories += u32::from(kind == Kind::Directory);
        self.blocks.changes.free_inodes -= 1;
        self.put_inode_bitmap(number, &mut group, bitmap)?;
        Ok(inode)
    }

    /// Frees an inode; what it was is filled with zeros.
    ///
    /// # Errors
    /// [`Stop::Need`]; [`Error::Corrupt`].
    pub(crate) fn free_inode(&mut self, inode: u32, kind: Kind) -> Result<(), Stop> {
        let geometry = self.volume().geometry();
        let (block, at) = self.volume().inode_place(self, inode)?;
        let number = (inode - 1) / geometry.inodes_per_group;
        let mut group = self.volume().group(self, number)?;
        let mut bitmap = self.inode_bitmap(number, &group)?;
        let was_taken = put_bits(Arc::make_mut(&mut bitmap), (inode - 1) % geometry.inodes_per_group, 1, false);
        if !was_taken || group.free_inodes >= geometry.inodes_per_group {
            return Err(corrupt("an inode that is to be freed", number));
        }
        group.free_inodes += 1;
        group.directories = group.directories.saturating_sub(u32::from(kind == Kind::Directory));
        self.blocks.changes.free_inodes += 1;
        self.put_inode_bitmap(number, &mut group, bitmap)?;
        self.blocks.edit(block)?[at..at + usize::from(geometry.inode_bytes)].fill(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
