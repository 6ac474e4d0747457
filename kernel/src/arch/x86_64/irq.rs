//! Device interrupts of this core: vectors, and the two ways they are raised (I/O APIC line, MSI-X
//! message).
//!
//! Vectors belong to the core that allocated them; the kernel's own are above 0xef. Vector numbers
//! say nothing about priority between devices.

pub use super::ioapic::set_masked as mask_ioapic;
use super::{apic, cores, ioapic};
use crate::core_local::CoreLocal;
use crate::devices::{DeviceInfo, config_read, config_write};
use crate::hardware::{machine, port_write8, write_register};

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

/// The APIC id of a core. `None`: it does not exist, or its id is too large: messages and
/// redirections carry 8 bits of it (no interrupt remapping).
fn destination(core: usize) -> Option<u32> {
    machine().cores().get(core).map(|core| core.apic_id).filter(|id| *id < 255)
}

/// Sends the edges of `line` (global interrupt number) to `vector` of `core`, which comes from
/// [`allocate_vector`], unmasked. `None`: the machine has no such line or core, or this is not core
/// 0, whose the I/O APICs are.
pub fn route_ioapic(line: u32, vector: u8, core: usize) -> Option<()> {
    debug_assert!((FIRST_VECTOR..=LAST_VECTOR).contains(&vector), "a vector of the kernel's own");
    let destination = destination(core).filter(|_| cores::this_core() == 0)?;
    ioapic::redirect(line, u32::from(vector), destination)
}

/// Boot mapped the whole table in the device map and checked that it lies in a BAR.
fn msix_entry(device: &DeviceInfo, entry: u16) -> Option<u64> {
    let msix = device.msix.filter(|msix| entry < msix.entries)?;
    Some(msix.table.0 + u64::from(entry) * MSIX_ENTRY_BYTES)
}

/// Makes MSI-X entry `entry` of `device` raise `vector`, which comes from [`allocate_vector`], on
/// this core, unmasked, and switches MSI-X on. `None`: the device has no MSI-X or not so many
/// entries, or this core cannot be named in a message.
pub fn program_msix(device: &DeviceInfo, entry: u16, vector: u8) -> Option<()> {
    debug_assert!((FIRST_VECTOR..=LAST_VECTOR).contains(&vector), "a vector of the kernel's own");
    let at = msix_entry(device, entry)?;
    let apic_id = destination(cores::this_core())?;
    for (offset, word) in [(12, 1), (0, MESSAGE_BASE | apic_id << 12), (4, 0), (8, u32::from(vector)), (12, 0)] {
        write_register(at + offset, word);
    }
    let capability = device.msix?.capability;
    let control = config_read(device, capability)?;
    config_write(device, capability, control & !MSIX_FUNCTION_MASK | MSIX_ENABLE)
}

/// Masks or unmasks one MSI-X entry; one that is not there is ignored.
pub fn mask_msix(device: &DeviceInfo, entry: u16, masked: bool) {
    if let Some(at) = msix_entry(device, entry) {
        write_register(at + 12, u32::from(masked));
    }
}

/// Silences the legacy interrupt controllers: their vectors would look like exceptions.
pub fn mask_legacy() {
    for (port, value) in
        [(0x20, 0x11), (0xa0, 0x11), (0x21, 0x20), (0xa1, 0x28), (0x21, 4), (0xa1, 2), (0x21, 1), (0xa1, 1)]
    {
        port_write8(port, value);
    }
    port_write8(0x21, 0xff);
    port_write8(0xa1, 0xff);
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
    use crate::boot::acpi::{Ecam, IoApic};
    use crate::boot::info::CoreEntry;
    use crate::devices::Msix;
    use crate::hardware;
    use crate::memory::PhysAddr;
    use crate::tests::machine::{self, Played};

    const TABLE: u64 = 0xfeb0_2000;

    #[test]
    fn vectors_run_out_and_come_back() {
        let _alone = Played::new(|_| ());
        let taken: Vec<u8> = core::iter::from_fn(allocate_vector).collect();
        assert_eq!(taken, (FIRST_VECTOR..=LAST_VECTOR).collect::<Vec<u8>>());
        free_vector(0x42);
        assert_eq!((allocate_vector(), allocate_vector()), (Some(0x42), None));
        taken.into_iter().for_each(free_vector);
    }

    fn with_cores(apic_ids: &[u32]) -> Played {
        hardware::remove_registers();
        Played::new(|machine| {
            machine.core_count = apic_ids.len();
            let cores = apic_ids.iter().map(|apic_id| CoreEntry { apic_id: *apic_id, node: 0 });
            machine.cores.iter_mut().zip(cores).for_each(|(core, entry)| *core = entry);
            machine.facts.ioapics.push(IoApic { base: 0xfec0_0000, first_line: 0 });
            machine.facts.ioapics.push(IoApic { base: 0xfec1_0000, first_line: 24 });
            machine.facts.ecam = Ecam { base: 0xb000_0000, first_bus: 0, last_bus: 0 };
        })
    }

    /// Messages have 8 bits for it, of which all ones are everybody.
    #[test]
    fn a_core_whose_number_no_message_has_gets_none() {
        let _machine = with_cores(&[255, 254, 256]);
        assert_eq!([0, 1, 2, 3].map(destination), [None, Some(254), None, None]);
        let msix = Some(Msix { capability: 0x40, entries: 1, table: PhysAddr(TABLE) });
        let card = DeviceInfo { msix, ..DeviceInfo::NONE };
        assert_eq!(program_msix(&card, 0, 0x50), None);
        assert_eq!(route_ioapic(3, 0x50, 0), None);
        assert_eq!(hardware::take_register_writes(), []);
    }

    #[test]
    fn a_line_is_routed_by_the_chip_that_has_it() {
        let _machine = with_cores(&[9, 7]);
        for base in [0xfec0_0000, 0xfec1_0000] {
            hardware::set_register(base + 0x10, 0x17_0020, 0);
        }
        assert_eq!(route_ioapic(25, 0x50, 1), Some(()));
        let writes = hardware::take_register_writes();
        let chip = 0xfec1_0000;
        let wrote = |register: u32, value: u32| [(chip, register), (chip + 0x10, value)];
        let all = [wrote(0x12, 1 << 16), wrote(0x13, 7 << 24), wrote(0x12, 0x50)].concat();
        assert_eq!(writes[writes.len() - 6..], all);
        assert_eq!((route_ioapic(48, 0x50, 1), route_ioapic(25, 0x50, 2)), (None, None));
        hardware::take_register_writes();
    }

    #[test]
    fn only_entries_that_there_are_are_written() {
        let _machine = with_cores(&[3]);
        let control = 0xb000_0000 + (8 << 12) + 0x40;
        hardware::set_register(control, 0x4001_0011, u32::MAX);
        let msix = Some(Msix { capability: 0x40, entries: 2, table: PhysAddr(TABLE) });
        let card = DeviceInfo { hwid: 8, msix, ..DeviceInfo::NONE };
        assert_eq!(program_msix(&card, 2, 0x50), None);
        mask_msix(&card, 2, true);
        assert_eq!((program_msix(&DeviceInfo::NONE, 0, 0x50), hardware::take_register_writes()), (None, vec![]));
        assert_eq!(program_msix(&card, 1, 0x50), Some(()));
        // Masked first, open last; then the function's own mask goes and its messages are on.
        let at = TABLE + 16;
        let entry = [(at + 12, 1), (at, 0xfee0_3000), (at + 4, 0), (at + 8, 0x50), (at + 12, 0)];
        assert_eq!(hardware::take_register_writes(), [&entry[..], &[(control, 0x8001_0011)]].concat());
        // What was on stays on.
        assert_eq!((program_msix(&card, 1, 0x51), config_read(&card, 0x40)), (Some(()), Some(0x8001_0011)));
        hardware::take_register_writes();
        mask_msix(&card, 0, true);
        mask_msix(&card, 1, false);
        assert_eq!(hardware::take_register_writes(), [(TABLE + 12, 1), (at + 12, 0)]);
    }

    /// Their interrupts would look like exceptions: they are moved behind those, and masked.
    #[test]
    fn the_old_controllers_are_silent() {
        hardware::take_port_writes();
        mask_legacy();
        let writes = hardware::take_port_writes();
        for (command, data, first_vector) in [(0x20, 0x21, 0x20), (0xa0, 0xa1, 0x28)] {
            let of: Vec<_> = writes.iter().filter(|(port, _)| [command, data].contains(port)).collect();
            assert_eq!((of[0], of[1]), (&(command, 0x11), &(data, first_vector)));
            assert_eq!(of.last(), Some(&&(data, 0xff)));
        }
    }

    #[test]
    fn a_wake_up_goes_to_the_core_named_and_to_none_that_is_not_there() {
        static LOCAL: u64 = 0;
        let _machine = Played::of_cores(2, &raw const LOCAL);
        send_wake(2);
        assert_eq!(machine::take_interrupts(), []);
        send_wake(1);
        assert_eq!(machine::take_interrupts(), [(1, 1 << 14 | u32::from(WAKE_VECTOR))]);
    }
}
