//! The users' floating-point state in FXSAVE form (x87, MMX, SSE). The kernel itself uses none of
//! it.
//!
//! CR4.OSXSAVE stays off, so programs see no AVX; XSAVE is the next step.

use core::arch::asm;

/// Bytes of a state.
pub const AREA_BYTES: usize = 512;

/// A saved state.
#[repr(C, align(16))]
#[derive(Clone)]
pub struct Area([u8; AREA_BYTES]);

impl Area {
    /// The state a program starts with: all exceptions masked, registers zero (FCW 0x37f, MXCSR
    /// 0x1f80).
    pub const fn new() -> Area {
        let mut bytes = [0; AREA_BYTES];
        bytes[0] = 0x7f;
        bytes[1] = 0x03;
        bytes[24] = 0x80;
        bytes[25] = 0x1f;
        Area(bytes)
    }
}

impl Default for Area {
    fn default() -> Self {
        Area::new()
    }
}

/// Saves this core's state.
pub fn save(area: &mut Area) {
    // SAFETY: the area has the size and alignment FXSAVE wants.
    unsafe { asm!("fxsave64 [{}]", in(reg) area.0.as_mut_ptr(), options(nostack, preserves_flags)) }
}

/// Makes `area` this core's state.
pub fn restore(area: &Area) {
    // SAFETY: size and alignment as above; reserved bits of MXCSR are clear in every `Area`.
    unsafe { asm!("fxrstor64 [{}]", in(reg) area.0.as_ptr(), options(nostack, preserves_flags)) }
}

/// Lets user mode touch the registers, or makes each touch a device-not-available exception
/// (CR0.TS; Intel SDM volume 3, 2.5).
pub fn open(open: bool) {
    if open {
        // SAFETY: clears CR0.TS and nothing else.
        unsafe { asm!("clts", options(nostack, nomem, preserves_flags)) }
    } else {
        // SAFETY: sets CR0.TS and nothing else; the kernel itself uses no such register but in
        // `save` and `restore`, which follow `open(true)`.
        unsafe { asm!("mov {t}, cr0", "or {t}, 8", "mov cr0, {t}", t = out(reg) _, options(nostack, nomem)) }
    }
}
