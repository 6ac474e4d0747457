//! AES-256 by the processor's instructions (Intel SDM, AESENC and its fellows), for programs that
//! are compiled without vector registers: each piece of assembly takes what it needs from memory
//! and leaves nothing in a register.
//!
//! Invariants: there is a cipher only where the processor has the instructions. The kernel must
//! give the program vector registers, too: it ends one without at its first such instruction. Keys
//! are wiped when they end.
//!
//! Deliberately unknown here: modes, sectors, where keys come from.
#![no_std]

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 16;
/// Blocks that are done at once: the instructions for one wait for each other, so that eight keep
/// the processor busy.
pub const LANES: usize = 8;
const ROUNDS: usize = 14;
/// Words of a key, and of the keys of all rounds.
const KEY_WORDS: usize = 8;
const WORDS: usize = 4 * (ROUNDS + 1);

/// A block.
pub type Block = [u8; BLOCK_BYTES];

/// What is added to blocks before and after they are encrypted (XTS).
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Tweaks(pub [u128; LANES]);

/// The keys of all rounds, aligned as the instructions want their operands.
#[repr(C, align(16))]
struct RoundKeys([u32; WORDS]);

impl Drop for RoundKeys {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// AES-256 with its key expanded, for both directions.
pub struct Aes256 {
    encryption: RoundKeys,
    decryption: RoundKeys,
}

impl ZeroizeOnDrop for Aes256 {}

/// Whether the processor has the instructions.
pub fn is_supported() -> bool {
    is_told(__cpuid(1).ecx)
}

/// Whether ECX of leaf 1 tells of AES's instructions; the others are in every processor of 64 bits.
fn is_told(ecx: u32) -> bool {
    const AES: u32 = 1 << 25;
    ecx & AES != 0
}

/// Puts eight blocks through all rounds, `$round` thirteen times and `$last` once, and wipes the
/// registers.
macro_rules! rounds {
    ($round:literal, $last:literal, $keys:expr, $blocks:expr, $tweaks:expr) => {
        asm!(
            rounds!(@each "movdqu xmm", ", [{blocks} + 16 * ", "]"),
            rounds!(@each "pxor xmm", ", [{tweaks} + 16 * ", "]"),
            "movdqa xmm8, [{keys}]",
            rounds!(@all "pxor"),
            "lea {last}, [{keys} + 208]",
            "2:",
            "add {keys}, 16",
            "movdqa xmm8, [{keys}]",
            rounds!(@all $round),
            "cmp {keys}, {last}",
            "jne 2b",
            "movdqa xmm8, [{keys} + 16]",
            rounds!(@all $last),
            rounds!(@each "pxor xmm", ", [{tweaks} + 16 * ", "]"),
            rounds!(@store 0 1 2 3 4 5 6 7),
            "pxor xmm8, xmm8",
            keys = inout(reg) $keys.0.as_ptr() => _,
            last = out(reg) _,
            blocks = in(reg) $blocks.as_mut_ptr(),
            tweaks = in(reg) $tweaks.0.as_ptr(),
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _,
            out("xmm5") _, out("xmm6") _, out("xmm7") _, out("xmm8") _,
            options(nostack),
        )
    };
    (@each $first:literal, $middle:literal, $end:literal) => {
        rounds!(@list $first, $middle, $end, 0 1 2 3 4 5 6 7)
    };
    (@list $first:literal, $middle:literal, $end:literal, $($lane:literal)*) => {
        concat!($($first, $lane, $middle, $lane, $end, "\n"),*)
    };
    (@all $what:literal) => {
        rounds!(@with $what, 0 1 2 3 4 5 6 7)
    };
    (@with $what:literal, $($lane:literal)*) => {
        concat!($($what, " xmm", $lane, ", xmm8\n"),*)
    };
    (@store $($lane:literal)*) => {
        concat!($("movdqu [{blocks} + 16 * ", $lane, "], xmm", $lane, "\npxor xmm", $lane, ", xmm", $lane, "\n"),*)
    };
}

impl Aes256 {
    /// The cipher of a key, if the processor has the instructions.
    pub fn new(key: &[u8; 32]) -> Option<Aes256> {
        is_supported().then(|| {
            let encryption = expand(key);
            let decryption = inverted(&encryption);
            Aes256 { encryption, decryption }
        })
    }

    /// Encrypts blocks, each between two additions of its tweak.
    pub fn encrypt(&self, blocks: &mut [Block; LANES], tweaks: &Tweaks) {
        // SAFETY: the processor has the instructions, as there is a cipher. The assembly reads the
        // keys and the tweaks, which are aligned, reads and writes the blocks, and touches no other
        // memory; it says which registers it changes.
        unsafe { rounds!("aesenc", "aesenclast", self.encryption, blocks, tweaks) }
    }

    /// Decrypts blocks, as [`encrypt`](Aes256::encrypt) encrypts them.
    pub fn decrypt(&self, blocks: &mut [Block; LANES], tweaks: &Tweaks) {
        // SAFETY: as `encrypt`.
        unsafe { rounds!("aesdec", "aesdeclast", self.decryption, blocks, tweaks) }
    }
}

/// The keys of the rounds (FIPS 197, section 5.2).
fn expand(key: &[u8; 32]) -> RoundKeys {
    let mut keys = RoundKeys([0; WORDS]);
    let words = &mut keys.0;
    for (word, bytes) in words.iter_mut().zip(key.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    for at in KEY_WORDS..WORDS {
        let before = words[at - 1];
        let mixed = match at % KEY_WORDS {
            0 => substituted(before).rotate_right(8) ^ 1 << (at / KEY_WORDS - 1),
            4 => substituted(before),
            _ => before,
        };
        words[at] = words[at - KEY_WORDS] ^ mixed;
    }
    keys
}

/// Each byte replaced by AES's table, which the instructions have. A column that stands four times
/// is not moved by what else the last round does.
fn substituted(word: u32) -> u32 {
    let mut word = word;
    // SAFETY: the processor has the instructions; only registers are used, and all that are changed
    // are named.
    unsafe {
        asm!(
            "movd xmm0, {word:e}",
            "pshufd xmm0, xmm0, 0",
            "pxor xmm1, xmm1",
            "aesenclast xmm0, xmm1",
            "movd {word:e}, xmm0",
            "pxor xmm0, xmm0",
            word = inout(reg) word,
            out("xmm0") _, out("xmm1") _,
            options(pure, nomem, nostack),
        );
    }
    word
}

/// The keys of the equivalent inverse cipher (FIPS 197, section 5.3.5).
fn inverted(keys: &RoundKeys) -> RoundKeys {
    let mut inverted = RoundKeys(keys.0);
    for (from, to) in keys.0.as_chunks::<4>().0.iter().rev().zip(inverted.0.as_chunks_mut().0) {
        *to = *from;
    }
    for key in &mut inverted.0.as_chunks_mut::<4>().0[1..ROUNDS] {
        // SAFETY: the processor has the instructions; the key is read and written, and the register
        // is named.
        unsafe {
            asm!(
                "movdqu xmm0, [{key}]",
                "aesimc xmm0, xmm0",
                "movdqu [{key}], xmm0",
                "pxor xmm0, xmm0",
                key = in(reg) key.as_mut_ptr(),
                out("xmm0") _,
                options(nostack),
            );
        }
    }
    inverted
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
    use core::mem::ManuallyDrop;
    use proptest::prelude::*;

    #[test]
    fn one_bit_tells_of_the_instructions() {
        assert_eq!([0, 1 << 25, !(1 << 25), !0].map(is_told), [false, true, false, true]);
        assert!(is_supported(), "the tests' processors have had them since 2010");
    }

    #[test]
    fn keys_are_wiped_when_they_end() {
        let mut keys = ManuallyDrop::new(expand(&[7; 32]));
        let words = core::ptr::from_ref(&keys.0);
        // SAFETY: it is dropped once; its memory stays, and is plain words.
        let left = unsafe {
            ManuallyDrop::drop(&mut keys);
            words.read_volatile()
        };
        assert_eq!(left, [0; WORDS]);
    }

    /// FIPS 197, appendix C.3.
    #[test]
    fn the_standards_example() {
        let key: [u8; 32] = core::array::from_fn(|at| at as u8);
        let Some(cipher) = Aes256::new(&key) else { return };
        let plain: Block = core::array::from_fn(|at| at as u8 * 0x11);
        let mut blocks = [plain; LANES];
        cipher.encrypt(&mut blocks, &Tweaks::default());
        let expected = 0x8ea2_b7ca_5167_45bf_eafc_4990_4b49_6089_u128.to_be_bytes();
        assert_eq!(blocks, [expected; LANES]);
        cipher.decrypt(&mut blocks, &Tweaks::default());
        assert_eq!(blocks, [plain; LANES]);
    }

    proptest! {
        /// Another implementation makes the same of each block.
        #[test]
        fn blocks_are_those_of_another_implementation(
            key in any::<[u8; 32]>(),
            plain in any::<[Block; LANES]>(),
            tweaks in any::<[u128; LANES]>(),
        ) {
            let (Some(ours), theirs) = (Aes256::new(&key), aes::Aes256::new(&key.into())) else { return Ok(()) };
            let add = |block: Block, tweak: u128| (u128::from_le_bytes(block) ^ tweak).to_le_bytes();
            let mut blocks = plain;
            ours.encrypt(&mut blocks, &Tweaks(tweaks));
            for ((block, plain), tweak) in blocks.iter().zip(plain).zip(tweaks) {
                let mut expected = add(plain, tweak).into();
                theirs.encrypt_block(&mut expected);
                prop_assert_eq!(*block, add(expected.into(), tweak));
            }
            let mut back = blocks;
            ours.decrypt(&mut back, &Tweaks(tweaks));
            prop_assert_eq!(back, plain);
            let mut decrypted = add(blocks[3], tweaks[3]).into();
            theirs.decrypt_block(&mut decrypted);
            prop_assert_eq!(add(decrypted.into(), tweaks[3]), plain[3]);
        }
    }
}
