//! XTS by the processor's AES instructions, for programs that are compiled without vector registers
//! and were given some: there `aes` is the bitsliced code.

use aes_instructions::{Aes256, Block, LANES, Tweaks};

use crate::key::KEY_BYTES;
use crate::xts::times_x;

/// AES-256-XTS with its two keys expanded; they are wiped when it ends.
pub(crate) struct Instructions {
    data: Aes256,
    tweak: Aes256,
}

impl Instructions {
    /// The cipher of a key, as `Xts` has it; nothing if the processor lacks the instructions.
    pub fn new(key: &[u8; KEY_BYTES]) -> Option<Instructions> {
        let (halves, _) = key.as_chunks();
        Some(Instructions { data: Aes256::new(&halves[0])?, tweak: Aes256::new(&halves[1])? })
    }

    /// Encrypts sectors of `size` bytes in place; each has a number that is `step` more than that
    /// of the one before it.
    pub fn encrypt(&self, first: u64, step: u64, size: usize, sectors: &mut [u8]) {
        self.each_group(first, step, size, sectors, |blocks, tweaks| self.data.encrypt(blocks, tweaks));
    }

    /// Decrypts sectors, as [`encrypt`](Instructions::encrypt) encrypts them.
    pub fn decrypt(&self, first: u64, step: u64, size: usize, sectors: &mut [u8]) {
        self.each_group(first, step, size, sectors, |blocks, tweaks| self.data.decrypt(blocks, tweaks));
    }

    /// Has `work` done for all blocks, as many at a time as the instructions take.
    fn each_group(
        &self,
        first: u64,
        step: u64,
        size: usize,
        sectors: &mut [u8],
        work: impl Fn(&mut [Block; LANES], &Tweaks),
    ) {
        let mut number = first;
        for batch in sectors.chunks_mut(LANES * size) {
            let mut starts = [Block::default(); LANES];
            for start in &mut starts {
                *start = u128::from(number).to_le_bytes();
                number = number.wrapping_add(step);
            }
            self.tweak.encrypt(&mut starts, &Tweaks::default());
            for (sector, start) in batch.chunks_mut(size).zip(starts) {
                let mut tweak = u128::from_le_bytes(start);
                let (groups, rest) = sector.as_chunks_mut().0.as_chunks_mut();
                assert!(rest.is_empty(), "a sector is whole groups of blocks");
                for group in groups {
                    let mut tweaks = Tweaks::default();
                    for place in &mut tweaks.0 {
                        *place = tweak;
                        tweak = times_x(tweak);
                    }
                    work(group, &tweaks);
                }
            }
        }
    }
}
