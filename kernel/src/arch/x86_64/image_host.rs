//! The host's stand-in for `image.rs`: tests have no kernel image, so whatever needs one panics.
//! Where its parts would lie a test may say (`hardware::set_image`).

use super::context::Registers;
use crate::memory::{PhysAddr, PhysRange};

pub use crate::hardware::{boot_tables, layout};

/// Distance between the image's virtual and physical addresses.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

fn bare_only() -> ! {
    panic!("only on the bare machine")
}

/// As in `image.rs`.
pub fn image_range() -> PhysRange {
    bare_only()
}

/// As in `image.rs`.
pub fn tsc_at_entry() -> u64 {
    0
}

/// As in `image.rs`.
///
/// # Safety
/// Never returns and does nothing.
pub unsafe fn restrict_boot_identity() {
    bare_only()
}

/// As in `image.rs`.
pub fn trampoline() -> &'static [u8] {
    bare_only()
}

/// Statics always exist on the host.
pub fn instance_is_live() -> bool {
    true
}

/// As in `image.rs`.
pub fn fault_stack_top() -> u64 {
    bare_only()
}

/// As in `image.rs`.
pub fn stub_address(_vector: usize) -> u64 {
    bare_only()
}

/// As in `image.rs`.
pub fn syscall_address() -> u64 {
    bare_only()
}

/// As in `image.rs`.
///
/// # Safety
/// Never returns and does nothing.
pub unsafe fn leave_by_iret(_registers: &mut Registers) -> ! {
    bare_only()
}

/// As in `image.rs`.
///
/// # Safety
/// Never returns and does nothing.
pub unsafe fn leave_by_sysret(_registers: &mut Registers) -> ! {
    bare_only()
}

/// As in `image.rs`.
pub fn wait() -> ! {
    bare_only()
}

/// As in `image.rs`.
///
/// # Safety
/// Never returns and does nothing.
pub unsafe fn on_fresh_stack(_function: extern "C" fn(u64) -> !, _argument: u64) -> ! {
    bare_only()
}

/// As in `image.rs`.
///
/// # Safety
/// Never returns and does nothing.
pub unsafe fn enter_root(_root: PhysAddr, _function: extern "C" fn(u64) -> !, _argument: u64) -> ! {
    bare_only()
}
