//! Single instructions of the CPU as functions: ports, model-specific and control registers, CPUID,
//! HLT; and the feature switches every core sets.
//!
//! They are safe where the worst outcome is a fault reported as our bug; `unsafe` where they can
//! break memory safety.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};

/// Model-specific registers used.
pub mod msr {
    /// Local APIC base and mode.
    pub const APIC_BASE: u32 = 0x1b;
    /// TSC value at which the local timer fires.
    pub const TSC_DEADLINE: u32 = 0x6e0;
    /// SYSCALL, long mode, NX.
    pub const EFER: u32 = 0xc000_0080;
    /// Selectors of SYSCALL and SYSRET.
    pub const STAR: u32 = 0xc000_0081;
    /// Entry point of SYSCALL.
    pub const LSTAR: u32 = 0xc000_0082;
    /// Flags that SYSCALL clears.
    pub const FMASK: u32 = 0xc000_0084;
    /// User's FS base.
    pub const FS_BASE: u32 = 0xc000_0100;
    /// User's GS base.
    pub const GS_BASE: u32 = 0xc000_0101;
}

const EFER_SYSCALL: u64 = 1;
const EFER_NX: u64 = 1 << 11;
const CR0_MONITOR_FPU: u64 = 1 << 1;
const CR0_EMULATE_FPU: u64 = 1 << 2;
const CR0_TASK_SWITCHED: u64 = 1 << 3;
const CR0_NUMERIC_ERROR: u64 = 1 << 5;
const CR0_WRITE_PROTECT: u64 = 1 << 16;
const CR4_GLOBAL: u64 = 1 << 7;
const CR4_FXSAVE: u64 = 1 << 9;
const CR4_SIMD_EXCEPTIONS: u64 = 1 << 10;
const CR4_UMIP: u64 = 1 << 11;
const CR4_FSGSBASE: u64 = 1 << 16;
const CR4_SMEP: u64 = 1 << 20;
const CR4_SMAP: u64 = 1 << 21;

/// Writes a byte to an I/O port.
pub fn port_write8(port: u16, value: u8) {
    // SAFETY: the kernel touches only ports of devices it owns (UART, PIC, PIT, debug exit); none
    // can write memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) }
}

/// Reads a byte from an I/O port.
pub fn port_read8(port: u16) -> u8 {
    let value;
    // SAFETY: as for `port_write8`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Reads a model-specific register; faults if there is none.
pub fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading a register of the list above has no side effect on memory.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags))
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
///
/// # Safety
/// The value must leave the kernel's memory and entry points intact.
pub unsafe fn write_msr(register: u32, value: u64) {
    // SAFETY: by contract.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack, preserves_flags))
    }
}

/// CPUID with sub-leaf 0; all zero for a leaf the CPU does not have.
pub fn cpuid(leaf: u32) -> CpuidResult {
    cpuid_count(leaf, 0)
}

/// CPUID; all zero for a leaf the CPU does not have.
pub fn cpuid_count(leaf: u32, subleaf: u32) -> CpuidResult {
    let highest = match leaf {
        0x4000_0000..0x5000_0000 => __cpuid(0x4000_0000).eax,
        _ => __cpuid(leaf & 0x8000_0000).eax,
    };
    if leaf > highest { CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 } } else { __cpuid_count(leaf, subleaf) }
}

/// Whether a hypervisor says that it is there (then leaf 0x40000000 means something).
pub fn has_hypervisor() -> bool {
    cpuid(1).ecx & 1 << 31 != 0
}

/// Whether RDFSBASE and friends exist.
pub fn has_fsgsbase() -> bool {
    cpuid(7).ebx & 1 != 0
}

/// Whether 1 GiB pages exist.
pub fn has_huge_pages() -> bool {
    cpuid(0x8000_0001).edx & 1 << 26 != 0
}

/// Address that caused the last page fault.
pub fn fault_address() -> u64 {
    let value;
    // SAFETY: reading CR2 has no side effect.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Physical address of the top-level page table in use.
pub fn page_table() -> u64 {
    let value: u64;
    // SAFETY: reading CR3 has no side effect.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) }
    value & !0xfff
}

/// Loads another top-level page table.
///
/// # Safety
/// It must map the running code, stack and data of this kernel as the present one does.
pub unsafe fn set_page_table(root: u64) {
    // SAFETY: by contract.
    unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) }
}

/// The caller's frame pointer.
#[inline(always)]
pub fn frame_pointer() -> u64 {
    let frame;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags)) };
    frame
}

/// Stops until something odd (NMI) happens, for ever; interrupts stay off.
pub fn halt() -> ! {
    loop {
        // SAFETY: HLT with interrupts off only waits.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
}

/// A hint for short polling loops.
pub fn pause() {
    core::hint::spin_loop();
}

/// Switches on, on the calling core, every protection it has: NX, write protection, SMEP, SMAP,
/// UMIP; and FXSAVE, global pages, FSGSBASE.
pub fn enable_features() {
    let (extended, standard) = (cpuid(7), cpuid(1));
    let when = |present: bool, bit: u64| if present { bit } else { 0 };
    let on = CR4_FXSAVE
        | CR4_SIMD_EXCEPTIONS
        | when(standard.edx & 1 << 13 != 0, CR4_GLOBAL)
        | when(extended.ebx & 1 != 0, CR4_FSGSBASE)
        | when(extended.ebx & 1 << 7 != 0, CR4_SMEP)
        | when(extended.ebx & 1 << 20 != 0, CR4_SMAP)
        | when(extended.ecx & 1 << 2 != 0, CR4_UMIP);
    // SAFETY: the bits restrict what may be accessed, or enable instructions; the kernel's mappings
    // obey the restrictions (W^X, no user pages dereferenced), and the FPU bits only make SSE legal
    // for users.
    unsafe {
        write_msr(msr::EFER, read_msr(msr::EFER) | EFER_SYSCALL | EFER_NX);
        asm!("mov {t}, cr4", "or {t}, {on}", "mov cr4, {t}", t = out(reg) _, on = in(reg) on, options(nostack));
        let (off, on) = (CR0_EMULATE_FPU | CR0_TASK_SWITCHED, CR0_MONITOR_FPU | CR0_NUMERIC_ERROR | CR0_WRITE_PROTECT);
        asm!("mov {t}, cr0", "and {t}, {keep}", "or {t}, {on}", "mov cr0, {t}",
             t = out(reg) _, keep = in(reg) !off, on = in(reg) on, options(nostack));
    }
}
