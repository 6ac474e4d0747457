//! The local APIC: acknowledging interrupts, sending them to other cores, and the registers of its
//! timer (Intel SDM 3A, chapter 11).
//!
//! x2APIC registers are MSRs, xAPIC ones memory in the device map; core 0 decides at boot, once for
//! all cores.

use super::cpu::{self, msr};
use crate::core_local::Shared;
use crate::hardware::{machine, read_register, write_register};

/// Registers, by xAPIC offset.
pub mod register {
    /// Task priority.
    pub const PRIORITY: u32 = 0x80;
    /// End of interrupt.
    pub const ACKNOWLEDGE: u32 = 0xb0;
    /// Spurious vector and enable bit.
    pub const SPURIOUS: u32 = 0xf0;
    /// Interrupt command; the high half is 16 bytes further in xAPIC mode.
    pub const COMMAND: u32 = 0x300;
    /// Timer vector and mode.
    pub const TIMER: u32 = 0x320;
    /// External pins.
    pub const PIN_0: u32 = 0x350;
    /// External pins.
    pub const PIN_1: u32 = 0x360;
    /// Error vector.
    pub const ERROR: u32 = 0x370;
    /// Timer start value.
    pub const TIMER_INITIAL: u32 = 0x380;
    /// Timer value.
    pub const TIMER_CURRENT: u32 = 0x390;
    /// Timer divider.
    pub const TIMER_DIVIDER: u32 = 0x3e0;
}

const MASKED: u32 = 1 << 16;
const ENABLE: u32 = 1 << 8;
const BASE_ENABLE: u64 = 1 << 11;
const BASE_X2APIC: u64 = 1 << 10;
const COMMAND_PENDING: u32 = 1 << 12;
const COMMAND_ASSERT: u32 = 1 << 14;
const COMMAND_OTHERS: u32 = 3 << 18;
const INIT: u32 = 5 << 8;
const STARTUP: u32 = 6 << 8;
/// Polls before a pending command is given up. Emulators never leave one pending.
const PENDING_POLLS_MAX: u32 = 100_000;
/// Registers start here unless ACPI says otherwise.
pub const DEFAULT_BASE: u64 = 0xfee0_0000;

#[unsafe(link_section = ".bss.shared.x2apic")]
static X2APIC: Shared<u8> = Shared::zeroed();

/// Decides between the two modes.
///
/// # Safety
/// Core 0 during boot, before any use of the APIC.
pub unsafe fn choose_mode() {
    // SAFETY: by contract.
    unsafe { *X2APIC.write_alone() = u8::from(cpu::cpuid(1).ecx & 1 << 21 != 0) }
}

fn is_x2apic() -> bool {
    // SAFETY: zero bytes are valid, written only at boot.
    unsafe { *X2APIC.get() != 0 }
}

fn address(register: u32) -> u64 {
    machine().facts.local_apic + u64::from(register)
}

/// Reads a register.
pub fn read(register: u32) -> u32 {
    if is_x2apic() {
        return cpu::read_msr(0x800 + (register >> 4)) as u32;
    }
    read_register(address(register))
}

/// Writes a register.
pub fn write(register: u32, value: u32) {
    if is_x2apic() {
        // SAFETY: APIC registers have no effect on memory; what interrupts do is decided by the
        // IDT.
        unsafe { cpu::write_msr(0x800 + (register >> 4), u64::from(value)) }
    } else {
        write_register(address(register), value);
    }
}

/// Switches this core's APIC on, with everything masked but inter-processor interrupts.
pub fn enable(spurious_vector: u8) {
    let base = cpu::read_msr(msr::APIC_BASE) | BASE_ENABLE | if is_x2apic() { BASE_X2APIC } else { 0 };
    // SAFETY: enabling the APIC changes no memory.
    unsafe { cpu::write_msr(msr::APIC_BASE, base) };
    for pin in [register::TIMER, register::PIN_0, register::PIN_1, register::ERROR] {
        write(pin, MASKED);
    }
    write(register::PRIORITY, 0);
    write(register::SPURIOUS, ENABLE | u32::from(spurious_vector));
}

/// Ends the interrupt being served.
pub fn acknowledge() {
    write(register::ACKNOWLEDGE, 0);
}

fn command(apic_id: u32, command: u32) {
    if is_x2apic() {
        // SAFETY: sends an interrupt; what it does is decided by the receiver's IDT.
        unsafe { cpu::write_msr(0x800 + (register::COMMAND >> 4), u64::from(apic_id) << 32 | u64::from(command)) };
        return;
    }
    let mut polls = 0;
    while read(register::COMMAND) & COMMAND_PENDING != 0 && polls < PENDING_POLLS_MAX {
        polls += 1;
        cpu::pause();
    }
    write(register::COMMAND + 0x10, apic_id << 24);
    write(register::COMMAND, command);
}

/// Sends an interrupt to another core.
pub fn send(apic_id: u32, vector: u8) {
    command(apic_id, COMMAND_ASSERT | u32::from(vector));
}

/// Resets all other cores: each waits for [`send_startup`].
pub fn send_init_to_others() {
    command(0, COMMAND_OTHERS | COMMAND_ASSERT | INIT);
}

/// Resets another core: it waits for [`send_startup`].
pub fn send_init(apic_id: u32) {
    command(apic_id, COMMAND_ASSERT | INIT);
}

/// Makes a core that waits after INIT start in real mode at `page` << 12.
pub fn send_startup(apic_id: u32, page: u8) {
    command(apic_id, COMMAND_ASSERT | STARTUP | u32::from(page));
}
