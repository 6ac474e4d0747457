//! GDT, TSS and IDT: what 64-bit mode still needs of segmentation, and where events enter.
//!
//! GDT and TSS are core-local (loading a TSS marks it busy in the GDT); the IDT is one for all
//! cores, in `.shared`, because stubs and stacks have the same addresses everywhere.

use super::cpu::{self, msr};
use super::image;
use crate::core_local::{CoreLocal, Shared};
use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::size_of;

/// Kernel code selector; the data selector follows, as SYSCALL wants.
pub const KERNEL_CODE: u16 = 0x08;
/// User data selector with privilege 3; SYSRET wants it before the code selector.
pub const USER_DATA: u16 = 0x20 | 3;
/// User code selector with privilege 3.
pub const USER_CODE: u16 = 0x28 | 3;
const SYSRET_BASE: u16 = 0x18 | 3;
const TSS_SELECTOR: u16 = 0x30;
/// TF, IF, DF, IOPL, NT, AC: off when SYSCALL enters.
const SYSCALL_CLEARS: u64 = 0x0004_7700;
const BREAKPOINT: usize = 3;
const FATAL_VECTORS: [usize; 3] = [2, 8, 18];

/// Task state segment (Intel SDM 3A, 8.7).
#[repr(C, packed(4))]
pub struct Tss {
    reserved: u32,
    entry_stacks: [u64; 3],
    reserved_2: u64,
    interrupt_stacks: [u64; 7],
    reserved_3: u64,
    reserved_4: u16,
    port_map: u16,
}

/// A [`Tss`] that `entry.s` reads; no re-entry guard, so that RSP0 has a known offset.
#[repr(transparent)]
pub struct TssCell(UnsafeCell<Tss>);

// SAFETY: core-local, like every static of the kernel.
unsafe impl Sync for TssCell {}

/// This core's task state.
pub static TSS: TssCell = TssCell(UnsafeCell::new(Tss {
    reserved: 0,
    entry_stacks: [0; 3],
    reserved_2: 0,
    interrupt_stacks: [0; 7],
    reserved_3: 0,
    reserved_4: 0,
    // Beyond the limit: no port is open to users.
    port_map: size_of::<Tss>() as u16,
}));

/// The fourth place is that of 32-bit user code, which there is none of: in such a segment SYSCALL
/// would enter by CSTAR where the CPU has it (AMD, QEMU).
static GDT: CoreLocal<[u64; 8]> = CoreLocal::new([
    0,
    0x00af_9a00_0000_ffff,
    0x00cf_9200_0000_ffff,
    0,
    0x00cf_f200_0000_ffff,
    0x00af_fa00_0000_ffff,
    0,
    0,
]);

#[unsafe(link_section = ".bss.shared.idt")]
static IDT: Shared<[[u64; 2]; 256]> = Shared::zeroed();

/// Operand of LGDT and LIDT.
#[repr(C, packed(2))]
struct Pointer {
    limit: u16,
    base: u64,
}

/// Sets where the CPU pushes when it leaves user mode.
pub fn set_entry_stack(end: u64) {
    // SAFETY: core-local and single-threaded; an aligned-enough store into a packed field of a live
    // static.
    unsafe { (&raw mut (*TSS.0.get()).entry_stacks[0]).write_unaligned(end) }
}

/// Fills the IDT.
///
/// # Safety
/// Core 0 during boot, once.
pub unsafe fn fill_idt() {
    // SAFETY: by contract nobody else uses it; zero bytes are valid gates.
    let idt = unsafe { IDT.write_alone() };
    for (vector, gate) in idt.iter_mut().enumerate() {
        let privilege: u64 = if vector == BREAKPOINT { 3 } else { 0 };
        *gate = interrupt_gate(image::stub_address(vector), 0, privilege);
    }
}

/// Gives NMI, double fault and machine check their own stack; needs a TSS on each core that takes
/// them.
///
/// # Safety
/// Core 0 during boot, after it has loaded its TSS.
pub unsafe fn give_fatal_vectors_a_stack() {
    // SAFETY: as above.
    let idt = unsafe { IDT.write_alone() };
    for vector in FATAL_VECTORS {
        idt[vector] = interrupt_gate(image::stub_address(vector), 1, 0);
    }
}

/// A 64-bit interrupt gate (interrupts go off on entry).
const fn interrupt_gate(address: u64, interrupt_stack: u64, privilege: u64) -> [u64; 2] {
    let low = address & 0xffff
        | (KERNEL_CODE as u64) << 16
        | interrupt_stack << 32
        | 0x8e << 40
        | privilege << 45
        | (address >> 16 & 0xffff) << 48;
    [low, address >> 32]
}

/// The descriptor of the task state at `base`.
const fn task_descriptor(base: u64) -> [u64; 2] {
    let limit = size_of::<Tss>() as u64 - 1;
    [limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56, base >> 32]
}

/// Loads the IDT.
pub fn load_idt() {
    let pointer = Pointer { limit: (256 * 16 - 1) as u16, base: IDT.as_ptr() as u64 };
    // SAFETY: the gates lead to the stubs of `entry.s`.
    unsafe { asm!("lidt [{}]", in(reg) &pointer, options(readonly, nostack, preserves_flags)) }
}

/// Loads this core's GDT and TSS and tells SYSCALL where to go. Needs the core's own instance.
pub fn load() {
    let tss = TSS.0.get() as u64;
    // SAFETY: core-local; nothing reads it concurrently.
    unsafe { (&raw mut (*TSS.0.get()).interrupt_stacks[0]).write_unaligned(image::fault_stack_top()) };
    let base = GDT.with(|gdt| {
        [gdt[6], gdt[7]] = task_descriptor(tss);
        gdt.as_ptr() as u64
    });
    let pointer = Pointer { limit: 8 * 8 - 1, base };
    // SAFETY: the GDT holds the same kernel code and data segments as the one in use, and a TSS
    // that lives for ever.
    unsafe {
        asm!(
            "lgdt [{pointer}]",
            "mov ds, {data:x}", "mov es, {data:x}", "mov fs, {data:x}", "mov gs, {data:x}", "mov ss, {kernel_data:x}",
            "push {code}", "lea {t}, [rip + 2f]", "push {t}", "retfq", "2:",
            "ltr {tss:x}",
            pointer = in(reg) &pointer, data = in(reg) 0, kernel_data = in(reg) KERNEL_CODE + 8, code = in(reg) u64::from(KERNEL_CODE),
            tss = in(reg) TSS_SELECTOR, t = out(reg) _,
        );
        cpu::write_msr(msr::STAR, u64::from(SYSRET_BASE) << 48 | u64::from(KERNEL_CODE) << 32);
        cpu::write_msr(msr::LSTAR, image::syscall_address());
        cpu::write_msr(msr::FMASK, SYSCALL_CLEARS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_no_code_segment_but_the_64_bit_one() {
        const CODE: u64 = 0x18 << 40;
        const USER: u64 = 3 << 45;
        const LONG: u64 = 1 << 53;
        let all = GDT.with(|gdt| *gdt);
        let of_users: Vec<u64> = all.into_iter().filter(|entry| entry & CODE == CODE && entry & USER == USER).collect();
        assert_eq!(of_users.len(), 1);
        assert!(of_users[0] & LONG != 0 && all[usize::from(USER_CODE >> 3)] == of_users[0]);
    }

    /// Intel SDM 2B, SYSCALL and SYSRET: each finds two selectors behind the one it is told.
    #[test]
    fn calls_enter_and_leave_by_segments_of_their_privilege() {
        assert_eq!([USER_DATA, USER_CODE], [SYSRET_BASE + 8, SYSRET_BASE + 16]);
        let privilege = |selector: u16| GDT.with(|gdt| gdt[usize::from(selector >> 3)] >> 45 & 3);
        assert_eq!([KERNEL_CODE, KERNEL_CODE + 8, USER_DATA, USER_CODE].map(privilege), [0, 0, 3, 3]);
        assert_eq!([KERNEL_CODE, USER_DATA, USER_CODE].map(|selector| selector & 7), [0, 3, 3]);
    }

    /// The fields as Intel SDM 3A, 8.2.3 and 6.14.1, have them.
    #[test]
    fn descriptors_lead_to_where_they_are_told() {
        for address in [0xffff_ffff_8123_4567, 0x1234_5678_9abc_def0, 0] {
            let [low, high] = task_descriptor(address);
            let base = low >> 16 & 0xff_ffff | low >> 56 << 24 | high << 32;
            let (limit, kind) = (low & 0xffff | low >> 48 & 0xf, low >> 40 & 0xff);
            assert_eq!((base, limit, kind), (address, 103, 0x89), "present, available, for 64 bits");
            let [low, high] = interrupt_gate(address, 1, 3);
            let offset = low & 0xffff | low >> 48 << 16 | high << 32;
            assert_eq!((offset, low >> 16 & 0xffff), (address, u64::from(KERNEL_CODE)));
            // An interrupt gate, present, for users too, on stack 1.
            assert_eq!((low >> 40 & 0xff, low >> 32 & 0xff), (0x8e | 3 << 5, 1));
        }
    }

    /// RSP0 is the second word of the state, at byte 4.
    #[test]
    fn the_processor_enters_on_the_stack_that_was_set() {
        set_entry_stack(0x1234_5678_9abc_def0);
        // SAFETY: as for `set_entry_stack`; no other test uses it.
        let stack = unsafe { TSS.0.get().cast::<u8>().add(4).cast::<u64>().read_unaligned() };
        assert_eq!(stack, 0x1234_5678_9abc_def0);
    }
}
