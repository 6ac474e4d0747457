//! The `syscall` instruction with the register convention of `abi::call`.

use core::arch::asm;

/// RAX after the call and the six result registers.
///
/// # Safety
/// As [`crate::call`].
#[inline(always)]
pub unsafe fn enter(number: u64, arguments: [u64; 6]) -> (u64, [u64; 6]) {
    let [mut a, mut b, mut c, mut d, mut e, mut f] = arguments;
    let mut status = number;
    // SAFETY: the kernel keeps every register but those named here; memory it may write is named by
    // the arguments, and the block is not `nomem`, so the compiler expects that.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") status, inlateout("rdi") a, inlateout("rsi") b, inlateout("rdx") c,
            inlateout("r10") d, inlateout("r8") e, inlateout("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    (status, [a, b, c, d, e, f])
}
