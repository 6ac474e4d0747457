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
