//! What `disk-check` writes, and in which pieces: for the scenarios `disk/*`.
//!
//! Each sector has its number and the round in which it was written, so that one that is of another
//! place, of an earlier round or of nobody is told from what was written last.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;

use contracts::blocks::Extent;

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;

/// What stands in a sector after a round, from 1: eight bytes, again and again.
pub fn word(sector: u64, round: u32) -> [u8; 8] {
    (u64::from(round) << 32 | sector).to_le_bytes()
}

/// xorshift64: the same chances in every run.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Pieces of `sectors` from the disk's begin on, each whole blocks and at most `most` sectors long,
/// that cover all of it and are in no order; others in each round.
pub fn pieces(round: u32, sectors: u64, block_sectors: u32, most: u32) -> Vec<Extent> {
    let mut chance = u64::from(round) << 8 | 1;
    let blocks_most = u64::from(most / block_sectors).max(1);
    let mut all = Vec::new();
    let mut sector = 0;
    while sector < sectors {
        let blocks = 1 + random(&mut chance) % blocks_most;
        let length = (blocks * u64::from(block_sectors)).min(sectors - sector);
        all.push(Extent { sector, sectors: length as u32 });
        sector += length;
    }
    for last in (1..all.len()).rev() {
        all.swap(last, random(&mut chance) as usize % (last + 1));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_a_round_are_all_of_it_once() {
        for (round, block, most) in [(1, 1, 128), (2, 8, 128), (3, 8, 8), (4, 1, 1)] {
            let mut all = pieces(round, 4096, block, most);
            assert!(round == 4 || all.windows(2).any(|two| two[0].sector > two[1].sector), "they are in order");
            all.sort_by_key(|piece| piece.sector);
            let end = all.iter().fold(0, |at, piece| {
                assert_eq!(piece.sector, at);
                assert!((1..=most).contains(&piece.sectors) && piece.sectors.is_multiple_of(block));
                at + u64::from(piece.sectors)
            });
            assert_eq!(end, 4096);
        }
        assert_ne!(pieces(1, 4096, 1, 128), pieces(2, 4096, 1, 128));
        assert_ne!(word(1, 2), word(2, 1));
    }
}
