//! I/O APICs: device lines to vectors (Intel 82093AA).
//!
//! Registers are reached through an index register, so only core 0 may come here; others ask it by
//! message.

use crate::boot::acpi::IoApic;
use crate::hardware::{machine, read_register, write_register};

/// Where the register that the index register names is seen.
const DATA: u64 = 0x10;
const VERSION: u32 = 1;
const TABLE: u32 = 0x10;
/// Redirection bit: no interrupts.
pub const MASKED: u32 = 1 << 16;

fn read(apic: &IoApic, register: u32) -> u32 {
    write_register(apic.base, register);
    read_register(apic.base + DATA)
}

fn write(apic: &IoApic, register: u32, value: u32) {
    write_register(apic.base, register);
    write_register(apic.base + DATA, value);
}

/// The I/O APIC that serves `line`, and the line's number there.
fn find(line: u32) -> Option<(&'static IoApic, u32)> {
    machine().facts.ioapics.all().iter().find_map(|apic| {
        let pin = line.checked_sub(apic.first_line)?;
        let pins = (read(apic, VERSION) >> 16 & 0xff) + 1;
        (pin < pins).then_some((apic, pin))
    })
}

/// Writes the redirection of a line: low word as given, destination an APIC id below 255. `None`:
/// no such line.
pub fn redirect(line: u32, low: u32, apic_id: u32) -> Option<()> {
    let (apic, pin) = find(line)?;
    write(apic, TABLE + 2 * pin, MASKED);
    write(apic, TABLE + 2 * pin + 1, apic_id << 24);
    write(apic, TABLE + 2 * pin, low);
    Some(())
}

/// Masks or unmasks a line; unknown lines are ignored.
pub fn set_masked(line: u32, masked: bool) {
    if let Some((apic, pin)) = find(line) {
        let low = read(apic, TABLE + 2 * pin) & !MASKED;
        write(apic, TABLE + 2 * pin, low | if masked { MASKED } else { 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{self, Place};
    use crate::tests::machine::Played;

    const LOW: u64 = 0xfec0_0000;
    const HIGH: u64 = 0xfec1_0000;
    /// Of a chip with 24 pins.
    const VERSION_24: u32 = 0x17_0020;

    fn played() -> Played {
        hardware::remove_registers();
        [LOW, HIGH].into_iter().for_each(|base| hardware::set_register(base + DATA, VERSION_24, 0));
        Played::new(|machine| {
            machine.facts.ioapics.push(IoApic { base: LOW, first_line: 0 });
            machine.facts.ioapics.push(IoApic { base: HIGH, first_line: 24 });
        })
    }

    #[test]
    fn a_line_is_a_pin_of_the_chip_that_has_it() {
        let _machine = played();
        let place = |line: u32| find(line).map(|(apic, pin)| (apic.base, pin));
        let last = [47, 48, u32::MAX].map(place);
        assert_eq!([0, 23, 24].map(place), [Some((LOW, 0)), Some((LOW, 23)), Some((HIGH, 0))]);
        assert_eq!(last, [Some((HIGH, 23)), None, None]);
    }

    #[test]
    fn a_line_is_masked_while_it_is_aimed_anew() {
        let _machine = played();
        assert_eq!(redirect(27, 0x50, 9), Some(()));
        let set = |register: u32, value: u32| [(HIGH, register), (HIGH + DATA, value)];
        let writes = hardware::take_register_writes();
        let aimed = [set(0x16, MASKED), set(0x17, 9 << 24), set(0x16, 0x50)].concat();
        assert_eq!(writes[writes.len() - 6..], aimed);
        assert_eq!(redirect(48, 0x50, 9), None);
    }

    #[test]
    fn masking_changes_nothing_else_of_a_line() {
        let _machine = played();
        for (before, masked, after) in
            [(0x8051, true, 0x1_8051), (0x1_8051, true, 0x1_8051), (0x1_8051, false, 0x8051), (0x8051, false, 0x8051)]
        {
            hardware::says_first(Place::Register(HIGH + DATA), &[VERSION_24, before]);
            set_masked(27, masked);
            let writes = hardware::take_register_writes();
            let of_the_line = [(HIGH, 0x16), (HIGH, 0x16), (HIGH + DATA, after)];
            assert_eq!(writes[writes.len() - 3..], of_the_line, "{before:#x} {masked}");
        }
        set_masked(48, true);
        assert!(hardware::take_register_writes().iter().all(|(_, index)| *index == VERSION), "no such line");
    }
}
