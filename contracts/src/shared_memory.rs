//! System V shared memory (shmget(2)), as the process server tells its clients of it.

use serde::{Deserialize, Serialize};

use crate::process::ProcessId;

/// Names a segment; never used again while the machine runs.
pub type SegmentId = u32;

/// The key that is no key: each segment with it is another one (IPC_PRIVATE).
pub const KEY_PRIVATE: u32 = 0;

/// Pages of one part of a segment: all but the last have as many.
pub const PART_PAGES: u64 = 1024;
/// Most parts of a segment, so that a part's number fits below the segment's.
pub const PARTS_MAX: u64 = 1 << 16;

/// Most segments at once, as Linux has it (SHMMNI).
pub const SEGMENTS_MAX: usize = 4096;
/// Most pages of all segments together (SHMALL). Memory is taken when a segment is attached first.
pub const PAGES_MAX: u64 = PARTS_MAX * PART_PAGES;

/// What shmget is to do if there is no segment of that key, or if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentWish {
    pub key: u32,
    pub bytes: u64,
    /// Makes one that is not there.
    pub creates: bool,
    /// With that: refuses one that is.
    pub is_new: bool,
    /// Permission bits of a new one, or those that the caller must have: nine.
    pub mode: u16,
}

/// A segment that the caller has attached once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// A number that nobody guesses, of its first part; that of part `n` is `n` more.
    pub number: u64,
    pub pages: u64,
}

/// Which segment is asked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SegmentName {
    Id(SegmentId),
    /// By its place among all, as SHM_STAT counts them; to be read by anybody with `is_open`
    /// (SHM_STAT_ANY).
    Place {
        place: u32,
        is_open: bool,
    },
}

/// How a segment stands; times in seconds since 1970, 0 for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentState {
    pub id: SegmentId,
    /// [`KEY_PRIVATE`] too, once it is to be removed.
    pub key: u32,
    pub bytes: u64,
    /// User and group that own it, and that made it.
    pub owner: [u32; 2],
    pub creator: [u32; 2],
    pub mode: u16,
    /// It goes with the last process that has it.
    pub is_removed: bool,
    pub is_locked: bool,
    pub attached_s: u64,
    pub detached_s: u64,
    pub changed_s: u64,
    pub creator_process: ProcessId,
    /// Which attached or detached it last.
    pub last_process: ProcessId,
    /// How many times it is attached.
    pub attaches: u64,
}

/// All segments together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentsSum {
    pub segments: u32,
    pub pages: u64,
    /// Of those that have memory.
    pub present_pages: u64,
}

/// A change of a segment by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SegmentChange {
    /// It goes, now or with the last process that has it (IPC_RMID).
    Remove,
    /// Whose it is, and its permission bits (IPC_SET).
    Set { owner: [u32; 2], mode: u16 },
    /// SHM_LOCK and SHM_UNLOCK: memory is never paged out, so it is only told.
    Lock(bool),
}

/// Why an operation on a segment was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SegmentError {
    /// No segment of that key.
    NotFound,
    /// There is one.
    Exists,
    /// No segment of that id, or a size that it has not.
    Invalid,
    /// Its permission bits do not allow that.
    Denied,
    /// Only its owner may.
    NotOwner,
    /// There is no memory for it. Remedy: give the machine more.
    NoMemory,
    /// As many segments, or pages of them, as there may be. Remedy: remove some (ipcrm(1)).
    TooMany,
    /// The server failed inside; it was logged there.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 256 GiB, more than such a machine has; and no number of a part is another segment's.
    #[test]
    fn limits_are_no_small_ones() {
        assert_eq!((PARTS_MAX, PAGES_MAX), (65_536, 67_108_864));
        assert_eq!(crate::files::OF_VOLUME, 0x8000_0000_0000_0000);
    }
}
