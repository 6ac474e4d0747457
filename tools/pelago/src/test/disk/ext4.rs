//! What ext4 relies on disks not to tear, though it is more than a sector: what has one checksum
//! for all of it and is not journaled itself. Where only some of its sectors are new, Linux does
//! not mount the disk, and `e2fsck -p` does more than recover the journal.

use crate::machine::block::log::Content;
use std::ops::Range;

/// The first superblock (Linux, Documentation/filesystems/ext4/super.rst). Its checksum is in its
/// second sector.
const SUPERBLOCK: Range<u64> = 1024..2048;
const BLOCK_BYTES: usize = 4096;
/// The block that ends a transaction of the journal (the same, journal.rst): magic number and type.
/// A wrong checksum in it counts as a damaged journal, not as a transaction that was not ended.
const COMMIT_BLOCK: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];

/// Such stretches of the disk near a write that begins at `offset`.
pub fn whole(offset: u64, content: &Content) -> Vec<Range<u64>> {
    let mut all = vec![SUPERBLOCK];
    if let Content::Data(data) = content {
        let offsets = (offset..).step_by(BLOCK_BYTES);
        let commits = offsets.zip(data.chunks(BLOCK_BYTES)).filter(|(_, block)| block.starts_with(&COMMIT_BLOCK));
        all.extend(commits.map(|(at, block)| at..at + block.len() as u64));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_blocks_are_found_in_a_write() {
        let mut data = vec![0; 3 * BLOCK_BYTES];
        data[BLOCK_BYTES..BLOCK_BYTES + 8].copy_from_slice(&COMMIT_BLOCK);
        // Within a block it is something else.
        data[2 * BLOCK_BYTES + 8..2 * BLOCK_BYTES + 16].copy_from_slice(&COMMIT_BLOCK);
        assert_eq!(whole(8192, &Content::Data(data)), [SUPERBLOCK, 12288..16384]);
        assert_eq!(whole(0, &Content::Zeros(8192)), [SUPERBLOCK]);
    }
}
