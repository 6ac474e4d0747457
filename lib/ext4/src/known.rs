//! What is known of a block that is there: whose checksums were compared since it came.
//!
//! Invariant: who changes a block puts its checksums right before anybody else sees it, so what was
//! found right stays so; a block that comes anew begins with nothing known. Only checksums are
//! compared once, and what takes long: whatever is used of a block is in its range each time.

use core::cell::Cell;
use core::ops::Deref;

use crate::error::Stop;
use crate::{BLOCK_BYTES, Block, Blocks};

/// What was found right of a block since it came.
#[derive(Clone, Debug, Default)]
pub struct Known(Cell<u64>);

impl Known {
    /// Another block is there now.
    pub fn clear(&self) {
        self.0.set(0);
    }

    /// Was nothing found right yet?
    pub fn is_nothing(&self) -> bool {
        self.0.get() == 0
    }

    fn is_right(&self, part: Part) -> bool {
        let bits = self.0.get();
        if part.is_whole { bits == part.bits } else { bits & part.bits == part.bits }
    }

    /// A part of it is right.
    pub(crate) fn note_right(&self, part: Part) {
        self.0.set(if part.is_whole { part.bits } else { self.0.get() | part.bits });
    }
}

/// Of what a checksum is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    bits: u64,
    /// A whole block is known as one thing only; of parts some are.
    is_whole: bool,
}

/// Bytes that are known together.
const PIECE_BYTES: usize = BLOCK_BYTES / u64::BITS as usize;

impl Part {
    /// So many bytes from one on, both multiples of 64.
    pub fn of(at: usize, bytes: usize) -> Part {
        let (first, pieces) = (at / PIECE_BYTES, bytes / PIECE_BYTES);
        assert!((1..=u64::BITS as usize).contains(&pieces) && first + pieces <= u64::BITS as usize);
        Part { bits: (u64::MAX >> (u64::BITS as usize - pieces)) << first, is_whole: false }
    }

    /// All of it, by what its checksum begins from, or has to be.
    pub fn whole(sum: u32) -> Part {
        Part { bits: u64::from(sum) << 32 | u64::from(u32::MAX), is_whole: true }
    }
}

/// A block that is there.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a> {
    pub block: &'a Block,
    pub known: Option<&'a Known>,
}

/// Block `number`, or a request for it.
pub(crate) fn find<B: Blocks>(blocks: &B, number: u64) -> Result<Found<'_>, Stop> {
    let (block, known) = blocks.block_known(number).ok_or(Stop::Need(number))?;
    Ok(Found { block, known })
}

impl<'a> Found<'a> {
    /// The block, of which a part was found right by `check` since it came.
    pub fn once(self, part: Part, check: impl FnOnce(&'a Block) -> Result<(), Stop>) -> Result<&'a Block, Stop> {
        if !self.known.is_some_and(|known| known.is_right(part)) {
            check(self.block)?;
            if let Some(known) = self.known {
                known.note_right(part);
            }
        }
        Ok(self.block)
    }
}

impl Deref for Found<'_> {
    type Target = Block;

    fn deref(&self) -> &Block {
        self.block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    static BLOCK: Block = [0; BLOCK_BYTES];

    /// Whether a part of the block has to be checked, of which that is known.
    fn is_checked(known: Option<&Known>, part: Part) -> bool {
        let mut is_checked = false;
        let check = |_: &Block| {
            is_checked = true;
            Ok(())
        };
        Found { block: &BLOCK, known }.once(part, check).unwrap();
        is_checked
    }

    #[test]
    fn a_part_is_checked_once_until_another_block_comes() {
        let known = Known::default();
        let parts = [Part::of(0, 64), Part::of(64, 256), Part::of(4032, 64), Part::of(64, 320), Part::whole(7)];
        for part in parts {
            assert!(is_checked(Some(&known), part) && !is_checked(Some(&known), part), "{part:?}");
        }
        assert!(is_checked(Some(&known), Part::whole(8)), "of another file");
        known.clear();
        assert!(is_checked(Some(&known), Part::whole(8)) && is_checked(None, Part::whole(8)));
    }

    #[test]
    fn nothing_is_known_until_something_was_right_and_when_another_block_came() {
        let known = Known::default();
        assert!(known.is_nothing());
        assert!(is_checked(Some(&known), Part::of(64, 64)) && !known.is_nothing());
        known.clear();
        assert!(known.is_nothing());
    }

    #[test]
    fn what_is_wrong_is_checked_again() {
        let known = Known::default();
        let found = Found { block: &BLOCK, known: Some(&known) };
        assert!(found.once(Part::whole(1), |_| Err(Error::NoSpace.into())).is_err());
        assert!(is_checked(Some(&known), Part::whole(1)));
    }
}
