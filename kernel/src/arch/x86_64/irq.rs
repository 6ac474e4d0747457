//! Device interrupts of this core: vectors, and the two ways they are raised (I/O APIC line, MSI-X
//! message).
//!
//! Vectors belong to the core that allocated them; the kernel's own are above 0xef. Vector numbers
//! say nothing about priority between devices.

use super::{apic, cores, cpu, ioapic};
use crate::boot::info::machine;
use crate::core_local::CoreLocal;
use crate::devices::{DeviceInfo, config_read, config_write};
use crate::memory::DEVICE_MAP;
use core::ptr;

/// First vector devices may have; below are exceptions and the legacy controller's.
pub const FIRST_VECTOR: u8 = 0x30;
/// Last vector devices may have.
pub const LAST_VECTOR: u8 = 0xef;
/// The local timer.
pub const TIMER_VECTOR: u8 = 0xf0;
/// Another core posted to the mailbox.
pub const WAKE_VECTOR: u8 = 0xf1;
/// The local APIC's own noise.
pub const SPURIOUS_VECTOR: u8 = 0xff;

const MSIX_ENTRY_BYTES: u64 = 16;
const MSIX_ENABLE: u32 = 1 << 31;
const MSIX_FUNCTION_MASK: u32 = 1 << 30;
const MESSAGE_BASE: u32 = 0xfee0_0000;

static TAKEN: CoreLocal<[u64; 4]> = CoreLocal::new([0; 4]);

/// Why an interrupt cannot be set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IrqError {
    /// No I/O APIC serves the line; use one the machine has.
    NoSuchLine,
    /// The core does not exist, or its APIC id is too large for a message (no interrupt remapping).
    NoSuchCore,
    /// The vector is not one of [`allocate_vector`].
    BadVector,
    /// The device has no MSI-X, or not so many entries.
    NoSuchEntry,
    /// I/O APICs are core 0's; send it a message.
    NotHere,
}

/// A free device vector of this core; `None` when all 192 are taken.
pub fn allocate_vector() -> Option<u8> {
    TAKEN.with(|taken| {
        let vector =
            (FIRST_VECTOR..=LAST_VECTOR).find(|vector| taken[usize::from(vector / 64)] >> (vector % 64) & 1 == 0)?;
        taken[usize::from(vector / 64)] |= 1 << (vector % 64);
        Some(vector)
    })
}

/// Gives a vector back; its sources must be masked.
pub fn free_vector(vector: u8) {
    TAKEN.with(|taken| {
        assert!(taken[usize::from(vector / 64)] >> (vector % 64) & 1 != 0, "a vector is freed twice");
        taken[usize::from(vector / 64)] &= !(1 << (vector % 64));
    });
}

fn check_vector(vector: u8) -> Result<(), IrqError> {
    (FIRST_VECTOR..=LAST_VECTOR).contains(&vector).then_some(()).ok_or(IrqError::BadVector)
}

/// Messages and redirections carry 8 bits of APIC id.
fn destination(core: usize) -> Result<u32, IrqError> {
    machine().cores().get(core).map(|core| core.apic_id).filter(|id| *id < 255).ok_or(IrqError::NoSuchCore)
}

/// Sends the edges of `line` (global interrupt number) to `vector` of `core`, unmasked. Core 0
/// only.
pub fn route_ioapic(line: u32, vector: u8, core: usize) -> Result<(), IrqError> {
    check_vector(vector)?;
    if cores::this_core() != 0 {
        return Err(IrqError::NotHere);
    }
    let found = ioapic::redirect(line, u32::from(vector), destination(core)?);
    if found { Ok(()) } else { Err(IrqError::NoSuchLine) }
}

/// Stops a line. Core 0 only.
pub fn mask_ioapic(line: u32) {
    ioapic::set_masked(line, true);
}

/// Lets a line through. Core 0 only.
pub fn unmask_ioapic(line: u32) {
    ioapic::set_masked(line, false);
}

fn msix_entry(device: &DeviceInfo, entry: u16) -> Result<*mut u32, IrqError> {
    let msix = device.msix.filter(|msix| entry < msix.entries).ok_or(IrqError::NoSuchEntry)?;
    let offset = DEVICE_MAP + msix.table.0 + u64::from(entry) * MSIX_ENTRY_BYTES;
    Ok(ptr::with_exposed_provenance_mut(offset as usize))
}

/// Makes MSI-X entry `entry` of `device` raise `vector` on this core, unmasked, and switches MSI-X
/// on.
pub fn program_msix(device: &DeviceInfo, entry: u16, vector: u8) -> Result<(), IrqError> {
    check_vector(vector)?;
    let words = msix_entry(device, entry)?;
    let apic_id = destination(cores::this_core())?;
    // SAFETY: boot mapped the whole table in the device map and checked that it lies in a BAR; a
    // message is an interrupt to this core.
    unsafe {
        words.add(3).write_volatile(1);
        words.write_volatile(MESSAGE_BASE | apic_id << 12);
        words.add(1).write_volatile(0);
        words.add(2).write_volatile(u32::from(vector));
        words.add(3).write_volatile(0);
    }
    let capability = device.msix.ok_or(IrqError::NoSuchEntry)?.capability;
    let control = config_read(device, capability).ok_or(IrqError::NoSuchEntry)?;
    config_write(device, capability, control & !MSIX_FUNCTION_MASK | MSIX_ENABLE).ok_or(IrqError::NoSuchEntry)
}

/// Masks or unmasks one MSI-X entry.
pub fn mask_msix(device: &DeviceInfo, entry: u16, masked: bool) -> Result<(), IrqError> {
    let words = msix_entry(device, entry)?;
    // SAFETY: as in `program_msix`.
    unsafe { words.add(3).write_volatile(u32::from(masked)) };
    Ok(())
}

/// Silences the legacy interrupt controllers: their vectors would look like exceptions.
pub fn mask_legacy() {
    for (port, value) in
        [(0x20, 0x11), (0xa0, 0x11), (0x21, 0x20), (0xa1, 0x28), (0x21, 4), (0xa1, 2), (0x21, 1), (0xa1, 1)]
    {
        cpu::port_write8(port, value);
    }
    cpu::port_write8(0x21, 0xff);
    cpu::port_write8(0xa1, 0xff);
}

/// Wakes `core`: it sees `Event::Wake`.
pub fn send_wake(core: usize) {
    if let Some(target) = machine().cores().get(core) {
        apic::send(target.apic_id, WAKE_VECTOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_run_out_and_come_back() {
        let taken: Vec<u8> = core::iter::from_fn(allocate_vector).collect();
        assert_eq!(taken, (FIRST_VECTOR..=LAST_VECTOR).collect::<Vec<u8>>());
        free_vector(0x42);
        assert_eq!((allocate_vector(), allocate_vector()), (Some(0x42), None));
        assert_eq!(check_vector(TIMER_VECTOR), Err(IrqError::BadVector));
    }
}
