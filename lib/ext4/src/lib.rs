//! ext4: what lies on the disk, and operations on it, as a step machine.
//!
//! An operation is a function over the blocks that are there ([`Blocks`]). When it meets one that
//! is not, it ends with [`Stop::Need`] and has changed nothing; the caller reads that block and
//! calls again. So one miss never holds up another operation, nothing here waits, and there is no
//! state of an operation to keep. Each call that ends so has named a block that was not there
//! before, so an operation ends after as many calls as it has blocks.
//!
//! [`Volume`] reads. [`Mount`] changes: the head of its file tells a component what to do, step by
//! step. [`Format`] makes new volumes.
//!
//! Invariants: what came from the disk is checked before it is used (ranges, order, checksums), and
//! what does not hold is [`Error::Corrupt`], never a panic; each loop is bounded by a block, a
//! depth or a count that was checked. A volume with a feature that is not known here is refused by
//! the feature's name.
//!
//! Deliberately unknown here: devices, caches, time, tasks, clients.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod allocate;
mod bytes;
mod checksum;
mod directory;
mod entries;
mod error;
mod extent;
mod feature;
mod format;
mod group;
mod hash;
mod index;
mod inode;
mod journal;
mod known;
mod mount;
mod names;
mod operation;
mod orphans;
mod super_block;
mod system;
#[cfg(test)]
mod testing;
mod transaction;
mod volume;
mod xattr;

pub use directory::{Entry, NAME_MAX};
pub use error::{Error, Refusal, Stop};
pub use extent::{Place, Stretch};
pub use format::{Action, Format, FormatError, FormatOptions, is_unfinished, unfinished};
pub use inode::{Inode, Kind, New, ROOT, Time};
pub use journal::{Batch, Flush, Put, Recovered, Recovery, Step, Write};
pub use known::Known;
pub use mount::{Mount, View};
pub use names::{How, Removed};
pub use operation::{Attributes, Operation};
pub use orphans::Progress;
pub use super_block::{Geometry, JOURNAL_INODE};
pub use volume::Volume;
pub use xattr::SetXattr;

/// Bytes of a block. Volumes of other sizes are refused.
pub const BLOCK_BYTES: usize = 4096;

/// A block as it lies on the disk.
pub type Block = [u8; BLOCK_BYTES];

/// One that nobody wrote.
static ZEROS: Block = [0; BLOCK_BYTES];

/// The blocks that are there.
pub trait Blocks {
    /// Block `number` of the volume, or `None` if it has to be read first. A block that was there
    /// stays until the operation has ended.
    fn block(&self, number: u64) -> Option<&Block>;

    /// The same, with a place for what is known of it while it is there, if there is one: then its
    /// checksums are compared once, else each time.
    fn block_known(&self, number: u64) -> Option<(&Block, Option<&Known>)> {
        self.block(number).map(|block| (block, None))
    }
}

/// Block `number`, or a request for it.
fn need<B: Blocks>(blocks: &B, number: u64) -> Result<&Block, Stop> {
    blocks.block(number).ok_or(Stop::Need(number))
}
