//! XTS (IEEE 1619) over whole blocks of AES-256, as many at a time as the processor takes.
//!
//! The mode is ours and not `xts-mode`'s, which gives the cipher one block after the other: then
//! each waits for the one before it, with AES instructions as well as in the bitsliced code, which
//! works on four anyway. `xts-mode` is the judge in the tests.

use aes::cipher::array::{Array, ArraySize};
use aes::cipher::consts::U16;
use aes::cipher::{
    Block, BlockCipherDecBackend, BlockCipherDecClosure, BlockCipherDecrypt, BlockCipherEncBackend,
    BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit, ParBlocks, ParBlocksSizeUser,
};
use aes::{Aes256, Aes256Enc};

use crate::key::KEY_BYTES;

/// A block of AES.
type AesBlock = Array<u8, U16>;
/// Bytes of a block of AES.
const BLOCK_BYTES: usize = 16;
/// Sectors that are done together: at 4,096 bytes as many as a call of `blocks` picks up.
const BATCH: usize = 32;

/// AES-256-XTS with its two keys expanded; they are wiped when it ends.
pub(crate) struct Xts {
    data: Aes256,
    tweak: Aes256Enc,
}

impl Xts {
    /// The cipher of a key: its first half for the data, its second for the tweaks.
    pub fn new(key: &[u8; KEY_BYTES]) -> Xts {
        let (halves, _) = key.as_chunks();
        Xts { data: Aes256::new((&halves[0]).into()), tweak: Aes256Enc::new((&halves[1]).into()) }
    }

    /// Encrypts sectors of `size` bytes in place; each has a number that is `step` more than that
    /// of the one before it.
    pub fn encrypt(&self, first: u64, step: u64, size: usize, sectors: &mut [u8]) {
        self.each_batch(first, step, size, sectors, |pass| self.data.encrypt_with_backend(pass));
    }

    /// Decrypts sectors, as [`encrypt`](Xts::encrypt) encrypts them.
    pub fn decrypt(&self, first: u64, step: u64, size: usize, sectors: &mut [u8]) {
        self.each_batch(first, step, size, sectors, |pass| self.data.decrypt_with_backend(pass));
    }

    /// Has `work` done for all sectors, up to [`BATCH`] at a time.
    fn each_batch(&self, first: u64, step: u64, size: usize, sectors: &mut [u8], work: impl Fn(Pass)) {
        assert!(size.is_multiple_of(BLOCK_BYTES) && sectors.len().is_multiple_of(size), "sectors are whole");
        let mut number = first;
        for batch in sectors.chunks_mut(BATCH * size) {
            let mut starts = [AesBlock::default(); BATCH];
            let starts = &mut starts[..batch.len() / size];
            for start in &mut *starts {
                *start = u128::from(number).to_le_bytes().into();
                number = number.wrapping_add(step);
            }
            self.tweak.encrypt_blocks(starts);
            let (blocks, _) = Array::slice_as_chunks_mut(batch);
            work(Pass { starts, tweak: 0, left: 0, blocks_per_sector: size / BLOCK_BYTES, blocks });
        }
    }
}

/// Some sectors on their way through the cipher.
struct Pass<'a> {
    /// The tweaks of the first blocks of sectors that have not begun.
    starts: &'a [AesBlock],
    /// The tweak of the next block, if its sector has begun.
    tweak: u128,
    /// Blocks that its sector still has.
    left: usize,
    blocks_per_sector: usize,
    blocks: &'a mut [AesBlock],
}

impl Pass<'_> {
    /// Puts the blocks through the cipher, `Count` at a time and then the rest, each between two
    /// additions of its tweak.
    #[inline(always)]
    fn run<Count: ArraySize>(mut self, many: impl Fn(&mut Array<AesBlock, Count>), few: impl Fn(&mut [AesBlock])) {
        let (groups, rest) = Array::<_, Count>::slice_as_chunks_mut(core::mem::take(&mut self.blocks));
        let mut tweaks = Array::<u128, Count>::default();
        for group in groups {
            self.fill(&mut tweaks);
            add(group, &tweaks);
            many(group);
            add(group, &tweaks);
        }
        self.fill(&mut tweaks[..rest.len()]);
        add(rest, &tweaks);
        few(rest);
        add(rest, &tweaks);
    }

    /// The tweaks of the next blocks.
    #[inline(always)]
    fn fill(&mut self, tweaks: &mut [u128]) {
        for tweak in tweaks {
            if self.left == 0
                && let Some((start, others)) = self.starts.split_first()
            {
                (self.tweak, self.starts) = (u128::from_le_bytes((*start).into()), others);
                self.left = self.blocks_per_sector;
            }
            *tweak = self.tweak;
            self.left = self.left.wrapping_sub(1);
            self.tweak = times_x(self.tweak);
        }
    }
}

/// Times x in GF(2^128): the bit that leaves at the top comes in as x^7 + x^2 + x + 1.
#[inline(always)]
pub(crate) fn times_x(tweak: u128) -> u128 {
    let carry = (tweak.cast_signed() >> 127).cast_unsigned() & 0x87;
    tweak << 1 ^ carry
}

#[inline(always)]
fn add(blocks: &mut [AesBlock], tweaks: &[u128]) {
    for (block, tweak) in blocks.iter_mut().zip(tweaks) {
        let sum = u128::from_le_bytes((*block).into()) ^ tweak;
        *block = sum.to_le_bytes().into();
    }
}

impl BlockSizeUser for Pass<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Pass<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        self.run::<B::ParBlocksSize>(
            |blocks: &mut ParBlocks<B>| backend.encrypt_par_blocks_inplace(blocks),
            |blocks: &mut [Block<B>]| backend.encrypt_tail_blocks_inplace(blocks),
        );
    }
}

impl BlockCipherDecClosure for Pass<'_> {
    #[inline(always)]
    fn call<B: BlockCipherDecBackend<BlockSize = U16>>(self, backend: &B) {
        self.run::<<B as ParBlocksSizeUser>::ParBlocksSize>(
            |blocks: &mut ParBlocks<B>| backend.decrypt_par_blocks_inplace(blocks),
            |blocks: &mut [Block<B>]| backend.decrypt_tail_blocks_inplace(blocks),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "sectors are whole")]
    fn a_part_of_a_sector_is_not_encrypted() {
        Xts::new(&[7; KEY_BYTES]).encrypt(0, 1, 512, &mut [0; 512 + 16]);
    }

    #[test]
    #[should_panic(expected = "sectors are whole")]
    fn a_sector_has_whole_blocks() {
        Xts::new(&[7; KEY_BYTES]).encrypt(0, 1, 24, &mut [0; 48]);
    }
}
