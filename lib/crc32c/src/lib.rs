//! CRC32C: by the processor's instruction (Intel SDM, CRC32, of SSE4.2) where there is one, which
//! takes no vector register, so that programs have it that are compiled without them; else by
//! tables.
//!
//! Deliberately unknown here: what is summed, and where sums stand.
#![no_std]

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::sync::atomic::{AtomicU8, Ordering};

use crc::{Algorithm, Crc, Table};

/// CRC-32/ISCSI without the inversion at the end.
static BY_TABLES: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&Algorithm { xorout: 0, ..crc::CRC_32_ISCSI });

/// Bytes that an instruction takes.
const WORD_BYTES: usize = 8;

/// What is known of the processor: nothing yet, and so the first look tells.
static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const HAS: u8 = 1;
const LACKS: u8 = 2;

/// The sum that `sum` becomes with `bytes` behind it, without inversion at beginning and end: a
/// whole one begins with all ones.
#[inline]
pub fn with(sum: u32, bytes: &[u8]) -> u32 {
    if has_instruction() { by_instruction(sum, bytes) } else { by_tables(sum, bytes) }
}

/// Whether the processor has the instruction. It is asked once, since in a virtual machine that is
/// a trap.
#[inline]
fn has_instruction() -> bool {
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => look(),
        known => known == HAS,
    }
}

#[cold]
fn look() -> bool {
    let has = is_told(__cpuid(1).ecx);
    KNOWN.store(if has { HAS } else { LACKS }, Ordering::Relaxed);
    has
}

/// Whether ECX of leaf 1 tells of the instruction.
fn is_told(ecx: u32) -> bool {
    const SSE4_2: u32 = 1 << 20;
    ecx & SSE4_2 != 0
}

fn by_tables(sum: u32, bytes: &[u8]) -> u32 {
    let mut digest = BY_TABLES.digest_with_initial(sum.reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

/// Where the processor has the instruction: others end the program.
fn by_instruction(sum: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    let mut sum = u64::from(sum);
    for word in words {
        let word = u64::from_le_bytes(*word);
        // SAFETY: the processor has the instruction, which changes one general register.
        unsafe { asm!("crc32 {}, {}", inout(reg) sum, in(reg) word, options(pure, nomem, nostack, preserves_flags)) };
    }
    let mut sum = sum as u32;
    for byte in rest {
        // SAFETY: as above.
        unsafe {
            asm!("crc32 {:e}, {}", inout(reg) sum, in(reg_byte) *byte, options(pure, nomem, nostack, preserves_flags));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_ways_give_the_known_sum() {
        // The check value of CRC-32/ISCSI is 0xe3069283, inverted at the end.
        const BYTES: &[u8] = b"123456789";
        assert_eq!([by_tables(!0, BYTES), by_instruction(!0, BYTES), with(!0, BYTES)], [!0xe306_9283; 3]);
        assert_eq!([by_tables(5, b""), by_instruction(5, b"")], [5; 2]);
    }

    #[test]
    fn one_bit_tells_of_the_instruction() {
        assert_eq!([0, 1 << 20, !(1 << 20), !0].map(is_told), [false, true, false, true]);
    }

    #[test]
    fn the_processor_is_asked_once() {
        assert_eq!([look(), has_instruction()], [true; 2], "the tests' processors have had it since 2008");
        KNOWN.store(LACKS, Ordering::Relaxed);
        assert!(!has_instruction());
        KNOWN.store(HAS, Ordering::Relaxed);
    }

    proptest! {
        #[test]
        fn both_ways_agree_wherever_bytes_are_cut(
            sum in any::<u32>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            cut in 0..200usize,
        ) {
            let bytes: Vec<u8> = bytes;
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            let whole = by_tables(sum, &bytes);
            prop_assert_eq!(by_instruction(sum, &bytes), whole);
            prop_assert_eq!(by_instruction(by_tables(sum, head), tail), whole);
        }
    }
}
