//! What only the linked kernel image has: the assembly files and the symbols of `link.ld`. Host
//! builds use `image_host.rs` instead.

use super::context::{self, Registers};
use super::segments::TSS;
use super::start;
use crate::boot::info::CORES_MAX;
use crate::memory::{PhysAddr, PhysRange};
use core::arch::global_asm;
use core::cell::UnsafeCell;

/// A static that only assembly and boot touch.
#[repr(transparent)]
pub struct AssemblyCell<T>(UnsafeCell<T>);

// SAFETY: core-local.
unsafe impl<T> Sync for AssemblyCell<T> {}

static USER_RSP: AssemblyCell<u64> = AssemblyCell(UnsafeCell::new(0));

global_asm!(
    include_str!("entry.s"),
    user_rsp = sym USER_RSP,
    tss = sym TSS,
    entered_by_syscall = sym context::entered_by_syscall,
    entered_by_vector = sym context::entered_by_vector,
    fatal = sym context::fatal,
);

global_asm!(
    include_str!("boot.s"),
    include_str!("multiboot.s"),
    boot_core = sym start::boot_core,
    other_core = sym start::other_core,
    apic_ids = sym start::APIC_IDS,
    stacks = sym start::STACKS,
    cores_max = const CORES_MAX,
);

unsafe extern "C" {
    safe static __data_load: u8;
    safe static boot_tsc: u64;
    safe static ap_trampoline: u8;
    safe static ap_trampoline_end: u8;
    safe static boot_root: u8;
    static mut boot_low: [u64; 512];
    static mut boot_directory: [u64; 4 * 512];

    fn syscall_entry();
    fn vector_stubs();
    safe fn wait_for_event() -> !;
    #[link_name = "leave_by_iret"]
    fn iret(registers: *mut Registers) -> !;
    #[link_name = "leave_by_sysret"]
    fn sysret(registers: *mut Registers) -> !;
    #[link_name = "on_fresh_stack"]
    fn fresh_stack(function: extern "C" fn(u64) -> !, argument: u64) -> !;
    #[link_name = "enter_root"]
    fn enter_root_at(root: u64, stack: u64, function: extern "C" fn(u64) -> !, argument: u64) -> !;
}

/// Distance between the image's virtual and physical addresses.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;
/// Bytes between two stubs.
const STUB_BYTES: u64 = 16;

fn address(symbol: &u8) -> u64 {
    core::ptr::from_ref(symbol) as u64
}

/// From the names of `link.ld` to [`Layout`].
macro_rules! layout {
    ($($name:ident = $symbol:ident,)*) => {
        unsafe extern "C" {
            $(safe static $symbol: u8;)*
        }

        /// Where `link.ld` put things; virtual addresses, see there.
        #[derive(Clone, Copy)]
        #[allow(missing_docs)]
        pub struct Layout {
            $(pub $name: u64,)*
            /// The pristine copy of .data.
            pub data_template: PhysAddr,
        }

        /// The layout of this image.
        pub fn layout() -> Layout {
            Layout { $($name: address(&$symbol),)* data_template: PhysAddr(address(&__data_load)) }
        }
    };
}

layout! {
    image_start = __image_start, text_end = __text_end, rodata_end = __rodata_end, shared_end = __shared_end, start_end = __start_end,
    core_start = __core_start, stack_bottom = __stack_bottom, stack_top = __stack_top,
    fault_stack_bottom = __fault_stack_bottom, fault_stack_top = __fault_stack_top,
    data_start = __data_start, data_end = __data_end, bss_start = __bss_start, core_end = __core_end,
}

/// The physical memory of the image, template of .data included.
pub fn image_range() -> PhysRange {
    let layout = layout();
    let base = layout.image_start - KERNEL_BASE;
    PhysRange::new(base, layout.data_template.0 + (layout.data_end - layout.data_start) - base)
}

/// TSC at the first instruction.
pub fn tsc_at_entry() -> u64 {
    boot_tsc
}

/// Physical address of the tables every core starts on.
pub fn boot_tables() -> PhysAddr {
    PhysAddr(address(&boot_root) - KERNEL_BASE)
}

/// Leaves of the identity mapping of the boot tables only the first 2 MiB, executable and
/// read-only: they hold trampoline and start code.
///
/// # Safety
/// Core 0 at boot, when nothing else uses the tables that boot.s made.
pub unsafe fn restrict_boot_identity() {
    const PRESENT_LARGE: u64 = 0x81;
    // SAFETY: by contract; the image still maps them writable.
    unsafe {
        (&raw mut boot_low).cast::<u64>().add(1).write_bytes(0, 511);
        (&raw mut boot_directory).cast::<u64>().write(PRESENT_LARGE);
        (&raw mut boot_directory).cast::<u64>().add(1).write_bytes(0, 4 * 512 - 1);
    }
}

/// The code other cores start with, to be copied below 1 MiB.
pub fn trampoline() -> &'static [u8] {
    let bytes = address(&ap_trampoline_end) - address(&ap_trampoline);
    // SAFETY: the two symbols enclose code of boot.s in read-only memory.
    unsafe { core::slice::from_raw_parts(&ap_trampoline, bytes as usize) }
}

/// Whether the caller runs on its core's own stacks, so that core-local statics exist.
pub fn instance_is_live() -> bool {
    let here = 0u8;
    address(&here) >= address(&__core_start)
}

/// Top of the stack of NMI, double fault and machine check.
pub fn fault_stack_top() -> u64 {
    address(&__fault_stack_top)
}

/// Where a vector enters.
pub fn stub_address(vector: usize) -> u64 {
    vector_stubs as *const () as u64 + vector as u64 * STUB_BYTES
}

/// Where SYSCALL enters.
pub fn syscall_address() -> u64 {
    syscall_entry as *const () as u64
}

/// Back to user mode with all registers as given.
///
/// # Safety
/// The registers are current and sane, see `context::resume`.
pub unsafe fn leave_by_iret(registers: &mut Registers) -> ! {
    // SAFETY: by contract.
    unsafe { iret(registers) }
}

/// Back to user mode after a SYSCALL.
///
/// # Safety
/// As [`leave_by_iret`].
#[inline(always)]
pub unsafe fn leave_by_sysret(registers: &mut Registers) -> ! {
    // SAFETY: by contract.
    unsafe { sysret(registers) }
}

/// Waits for an interrupt on a fresh stack.
pub fn wait() -> ! {
    wait_for_event()
}

/// Continues at `function` on a fresh stack; the present one is discarded.
///
/// # Safety
/// Nothing on the present stack is needed any more.
pub unsafe fn on_fresh_stack(function: extern "C" fn(u64) -> !, argument: u64) -> ! {
    // SAFETY: by contract.
    unsafe { fresh_stack(function, argument) }
}

/// Goes on at `function` in another address space, on its kernel stack.
///
/// # Safety
/// `root` maps the image and a core region.
pub unsafe fn enter_root(root: PhysAddr, function: extern "C" fn(u64) -> !, argument: u64) -> ! {
    // SAFETY: by contract.
    unsafe { enter_root_at(root.0, address(&__stack_top), function, argument) }
}
