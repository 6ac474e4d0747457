//! The local APIC: acknowledging interrupts, sending them to other cores, and the registers of its
//! timer (Intel SDM 3A, chapter 11).
//!
//! x2APIC registers are MSRs, xAPIC ones memory in the device map; core 0 decides at boot, once for
//! all cores.

use super::cpu::{self, msr};
use crate::core_local::Shared;
use crate::hardware::{machine, read_msr, read_register, write_apic_msr, write_register};

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
        return read_msr(0x800 + (register >> 4)) as u32;
    }
    read_register(address(register))
}

/// Writes a register.
pub fn write(register: u32, value: u32) {
    if is_x2apic() {
        write_apic_msr(0x800 + (register >> 4), u64::from(value));
    } else {
        write_register(address(register), value);
    }
}

/// Switches this core's APIC on, with everything masked but inter-processor interrupts.
pub fn enable(spurious_vector: u8) {
    let base = read_msr(msr::APIC_BASE) | BASE_ENABLE | if is_x2apic() { BASE_X2APIC } else { 0 };
    write_apic_msr(msr::APIC_BASE, base);
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
        write_apic_msr(0x800 + (register::COMMAND >> 4), u64::from(apic_id) << 32 | u64::from(command));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{self, Place};
    use crate::tests::machine::Played;

    const BASE: u64 = 0xfee0_0000;

    fn played() -> Played {
        hardware::remove_registers();
        Played::new(|machine| machine.facts.local_apic = BASE)
    }

    /// A machine whose APICs' registers are model-specific ones, of which each has 64 bits.
    struct X2Apic {
        _machine: Played,
    }

    impl X2Apic {
        fn new() -> X2Apic {
            let machine = played();
            // SAFETY: who plays a machine is alone, and nobody else asks.
            unsafe { *X2APIC.write_alone() = 1 };
            X2Apic { _machine: machine }
        }
    }

    impl Drop for X2Apic {
        fn drop(&mut self) {
            // SAFETY: as in `new`.
            unsafe { *X2APIC.write_alone() = 0 };
        }
    }

    /// What is masked, and in which words everything else is let through.
    const ENABLED: [(u32, u32); 6] =
        [(0x320, 1 << 16), (0x350, 1 << 16), (0x360, 1 << 16), (0x370, 1 << 16), (0x80, 0), (0xf0, 0x1ff)];

    #[test]
    fn a_core_lets_nothing_in_but_what_other_cores_send() {
        // Firmware may have switched it on already.
        let at = BASE | 1 << 8;
        let machine = played();
        for found in [at, at | 1 << 11] {
            hardware::set_msr(msr::APIC_BASE, found);
            enable(0xff);
            assert_eq!(hardware::take_register_writes(), ENABLED.map(|(at, value)| (BASE + u64::from(at), value)));
            assert_eq!(hardware::take_msr_writes(), [(msr::APIC_BASE, at | 1 << 11)]);
        }
        drop(machine);
        let _machine = X2Apic::new();
        for found in [at, at | 3 << 10] {
            hardware::set_msr(msr::APIC_BASE, found);
            enable(0xff);
            let all = ENABLED.map(|(at, value)| (0x800 + at / 16, u64::from(value)));
            assert_eq!(hardware::take_msr_writes(), [&[(msr::APIC_BASE, at | 3 << 10)][..], &all].concat());
            assert_eq!(hardware::take_register_writes(), []);
        }
    }

    /// As Intel SDM 3A, 11.12, has it: one word names the core and what is sent, and none waits.
    #[test]
    fn cores_of_large_numbers_are_sent_commands_too() {
        let _machine = X2Apic::new();
        hardware::set_msr(0x839, 0x1234_5678);
        assert_eq!(read(register::TIMER_CURRENT), 0x1234_5678);
        acknowledge();
        send(0x1_0007, 0xf1);
        send_startup(300, 0x9f);
        let written = [(0x80b, 0), (0x830, 0x1_0007_0000_40f1), (0x830, 300 << 32 | 0x469f)];
        assert_eq!((hardware::take_msr_writes(), hardware::take_register_writes()), (written.to_vec(), vec![]));
    }

    #[test]
    fn registers_are_those_of_the_machines_apic() {
        let _machine = played();
        hardware::set_register(BASE + 0x390, 0x1234_5678, 0);
        assert_eq!(read(register::TIMER_CURRENT), 0x1234_5678);
        write(register::TIMER_INITIAL, 77);
        acknowledge();
        assert_eq!(hardware::take_register_writes(), [(BASE + 0x380, 77), (BASE + 0xb0, 0)]);
    }

    /// Kinds and bits as Intel SDM 3A, 11.6.1, has them.
    #[test]
    fn commands_name_a_core_first_and_then_what_is_sent() {
        let _machine = played();
        hardware::set_register(BASE + 0x300, 0, 0);
        send(7, 0xf1);
        send_init_to_others();
        send_init(8);
        send_startup(254, 0x9f);
        let commands = [(7, 0x40f1), (0, 0xc4500), (8, 0x4500), (254, 0x469f)];
        let all: Vec<_> =
            commands.iter().flat_map(|(id, command)| [(BASE + 0x310, id << 24), (BASE + 0x300, *command)]).collect();
        assert_eq!(hardware::take_register_writes(), all);
    }

    #[test]
    fn a_command_waits_for_the_one_before_but_not_for_ever() {
        const PENDING: u32 = 1 << 12;
        const AFTER: u32 = 99;
        let _machine = played();
        let at = Place::Register(BASE + 0x300);
        hardware::set_register(BASE + 0x300, PENDING, 0);
        hardware::says_first(at, &[PENDING | 1, PENDING, !PENDING, AFTER]);
        send(7, 0xf1);
        assert_eq!(hardware::take_register_writes(), [(BASE + 0x310, 7 << 24), (BASE + 0x300, 0x40f1)]);
        assert_eq!(read(register::COMMAND), AFTER, "no longer than it was pending");
        send(7, 0xf1);
        assert_eq!(hardware::take_register_writes().len(), 2, "it is pending for ever");
    }
}
