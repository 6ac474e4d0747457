//! Random bytes from the processor (Intel SDM volume 1, 7.3.17: RDRAND).

use core::arch::x86_64::{__cpuid, _rdtsc};

/// RDRAND may run dry; the SDM advises ten tries.
const TRIES: u32 = 10;

fn word() -> Option<u64> {
    // CPUID leaf 1, ECX bit 30.
    let present = __cpuid(1).ecx & 1 << 30 != 0;
    (0..TRIES).filter(|_| present).find_map(|_| {
        let (word, valid): (u64, u8);
        // SAFETY: the instruction exists (checked above), and only writes the named registers and
        // flags.
        unsafe {
            core::arch::asm!("rdrand {}", "setc {}", out(reg) word, out(reg_byte) valid, options(nomem, nostack))
        };
        (valid != 0).then_some(word)
    })
}

/// Fills the buffer. Without RDRAND the bytes come from the time stamp counter and are guessable
/// (CAVEATS).
pub fn fill_random(bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(8) {
        let word = word().unwrap_or_else(|| {
            // SAFETY: RDTSC is there on every x86-64 and allowed in user mode here (the runtime's
            // clock uses it).
            let ticks = unsafe { _rdtsc() };
            ticks.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        });
        chunk.copy_from_slice(&word.to_ne_bytes()[..chunk.len()]);
    }
}
