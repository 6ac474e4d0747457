//! Copies bytes that may change meanwhile. In assembly, so that the compiler can neither assume
//! that they hold still nor read them twice.

use core::arch::asm;

/// Copies upwards.
///
/// # Safety
/// `from` must be readable and `to` writable for `bytes`.
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: promised by the caller; the direction flag is clear by the calling convention.
    unsafe {
        asm!(
            "rep movsq",
            "mov ecx, edx",
            "rep movsb",
            inout("rcx") bytes / 8 => _, in("edx") bytes % 8,
            inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
}
