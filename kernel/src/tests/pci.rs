//! What boot finds on PCI, of devices that do as they should and of devices that lie.

use super::machine::Played;
use crate::boot::acpi::Ecam;
use crate::devices::pci::{BarWindow, scan};
use crate::devices::{Bar, DeviceInfo, Msix, config_read, config_write, set_bus_master};
use crate::hardware;
use crate::memory::{PhysAddr, PhysRange};

const BASE: u64 = 0xb000_0000;
const COMMAND: u64 = 4;
const MEMORY: u32 = 2;
const NO_INTX: u32 = 1 << 10;
/// Status bit: there is a list of capabilities.
const LISTED: u32 = 1 << 20;
/// What the mask of a 32-bit BAR of 4 KiB can be written to.
const PAGE_MASK: u32 = 0xffff_f000;

/// A function at a place of the bus, with the registers given: offset, value, writable bits.
fn function(hwid: u64, registers: &[(u64, u32, u32)]) {
    // A function has all of its registers; those that are not named are zero.
    for offset in (0..0x100).step_by(4) {
        hardware::set_register(BASE + (hwid << 12) + offset, 0, 0);
    }
    hardware::set_register(BASE + (hwid << 12), 0x1000_1af4 + ((hwid as u32) << 16), 0);
    hardware::set_register(BASE + (hwid << 12) + COMMAND, 0, 0xffff);
    for (offset, value, writable) in registers {
        hardware::set_register(BASE + (hwid << 12) + offset, *value, *writable);
    }
}

fn register(hwid: u64, offset: u64) -> u32 {
    hardware::read_register(BASE + (hwid << 12) + offset)
}

/// BARs without an address are placed from here on.
fn window() -> BarWindow {
    BarWindow::below_4_gib(&[PhysRange::new(0, 0xd000_0000), PhysRange::new(0xe000_0000, 0x1000_0000)])
}

fn scan_of(first_bus: u8, last_bus: u8) -> Vec<DeviceInfo> {
    let mut found = Vec::new();
    scan(Ecam { base: BASE, first_bus, last_bus }, &mut window(), &mut |device| found.push(device));
    found
}

fn hwids(first_bus: u8, last_bus: u8) -> Vec<u32> {
    scan_of(first_bus, last_bus).iter().map(|device| device.hwid).collect()
}

fn mmio(base: u64, bytes: u64) -> Bar {
    Bar { base: PhysAddr(base), bytes, is_mmio: true }
}

const NO_BAR: Bar = Bar { base: PhysAddr(0), bytes: 0, is_mmio: true };

/// The header type: a bridge, or several functions.
const BRIDGE: u32 = 1 << 16;
const SEVERAL: u32 = 0x80 << 16;

/// The register of a bridge's bus numbers.
fn leads_to(bus: u32) -> (u64, u32, u32) {
    (0x18, 0xff_00_00 | bus << 8, 0)
}

#[test]
fn every_function_behind_bridges_is_found_once_and_in_order() {
    hardware::remove_registers();
    function(0x00 << 3, &[(0x0c, SEVERAL, 0)]);
    // Not 1 to 4: a function may be missing before another.
    function(5, &[(0x0c, SEVERAL, 0)]);
    // Its other functions are the same one again, as it does not say that there are several.
    function(0x1f << 3, &[]);
    function(0x1f << 3 | 1, &[]);
    function(0x02 << 3, &[(0x0c, BRIDGE | SEVERAL, 0), leads_to(70)]);
    function(70 << 8 | 0x03 << 3, &[(0x0c, BRIDGE, 0), leads_to(200)]);
    function(200 << 8, &[]);
    // No bridge leads there.
    function(71 << 8, &[]);
    function(201 << 8, &[]);
    assert_eq!(hwids(0, 255), [0, 5, 0x10, 0x1f << 3, 70 << 8 | 3 << 3, 200 << 8]);
    assert_eq!(hwids(0, 199), [0, 5, 0x10, 0x1f << 3, 70 << 8 | 3 << 3]);
    hardware::remove_registers();
}

/// A bus that two bridges lead to is met once; none that is not above the bridge's own.
#[test]
fn bridges_that_lie_lead_nowhere_twice() {
    hardware::remove_registers();
    for (device, bus) in [(0, 0), (1, 2), (2, 2), (3, 0)] {
        function(device << 3, &[(0x0c, BRIDGE, 0), leads_to(bus)]);
    }
    function(2 << 8, &[(0x0c, BRIDGE, 0), leads_to(1)]);
    function(2 << 8 | 1 << 3, &[(0x0c, BRIDGE, 0), leads_to(2)]);
    function(2 << 8 | 2 << 3, &[(0x0c, BRIDGE, 0), leads_to(66)]);
    // A device that is no bridge says nothing of buses.
    function(2 << 8 | 3 << 3, &[leads_to(3)]);
    function(1 << 8, &[]);
    function(3 << 8, &[]);
    function(66 << 8, &[]);
    let behind = [2 << 8, 2 << 8 | 1 << 3, 2 << 8 | 2 << 3, 2 << 8 | 3 << 3, 66 << 8];
    assert_eq!(hwids(0, 255), [&[0, 8, 16, 24][..], &behind].concat());
    hardware::remove_registers();
}

/// A window need not begin with bus 0: its address is that of bus 0 all the same, and so are
/// hardware ids.
#[test]
fn a_window_that_begins_late_begins_at_its_first_bus() {
    hardware::remove_registers();
    function(1 << 8, &[]);
    function(64 << 8 | 2 << 3, &[(0x0c, BRIDGE, 0), leads_to(66)]);
    function(64 << 8 | 3 << 3, &[(0x0c, BRIDGE, 0), leads_to(64)]);
    function(65 << 8, &[]);
    function(66 << 8, &[]);
    assert_eq!(hwids(64, 70), [64 << 8 | 2 << 3, 64 << 8 | 3 << 3, 66 << 8]);
    assert_eq!(hwids(64, 65), [64 << 8 | 2 << 3, 64 << 8 | 3 << 3]);
    assert_eq!(hwids(65, 65), [65 << 8]);
    hardware::remove_registers();
}

#[test]
fn what_has_no_vendor_is_no_device() {
    hardware::remove_registers();
    function(0, &[(0, 0x1000_0000, 0)]);
    function(8, &[(0, 0x1000_ffff, 0)]);
    assert_eq!(hwids(0, 0), [] as [u32; 0]);
    hardware::remove_registers();
}

#[test]
fn what_a_function_is_and_what_it_has_are_told() {
    hardware::remove_registers();
    let all = [
        (0, 0x1041_1af4, 0),
        (COMMAND, LISTED | 1 << 27 | 0x147, 0xffff),
        (8, 0x0200_0103, 0),
        // 4 KiB with an address, prefetchable.
        (0x10, 0xfebf_1008, PAGE_MASK),
        // 64 KiB of 64 bits, above 4 GiB.
        (0x14, 0x4, 0xffff_0000),
        (0x18, 0x38, u32::MAX),
        // 32 ports, of 16 bits.
        (0x1c, 0xc041, 0xffe0),
        // 8 KiB without an address: it is given one.
        (0x20, 0, 0xffff_e000),
        (0x24, 0, 0),
        (0x34, 0x40, 0),
        (0x40, 0x4c09, 0),
        (0x4c, 0x0003_0011, 0),
        // Its table is in the second BAR, at 0x2000.
        (0x50, 0x2001, 0),
    ];
    function(0x08, &all);
    hardware::take_register_writes();
    let [card] = scan_of(0, 0)[..] else { panic!("one function") };
    assert_eq!((card.hwid, card.vendor, card.device, card.class), (8, 0x1af4, 0x1041, 0x02_0001));
    let ports = Bar { base: PhysAddr(0xc040), bytes: 32, is_mmio: false };
    let wide = 0x38_0000_0000;
    assert_eq!(
        card.bars,
        [mmio(0xfebf_1000, 0x1000), mmio(wide, 0x1_0000), Bar::default(), ports, mmio(0xd000_0000, 0x2000), NO_BAR]
    );
    assert_eq!(card.msix, Some(Msix { capability: 0x4c, entries: 4, table: PhysAddr(wide + 0x2000) }));
    assert_eq!(card.line, None);
    // The addresses are the device's too, as they were or as they were given.
    let words = [0x10, 0x14, 0x18, 0x1c, 0x20, 0x24].map(|offset| register(8, offset));
    assert_eq!(words, [0xfebf_1008, 4, 0x38, 0xc041, 0xd000_0000, 0].map(|word: u32| word));
    // It decodes memory and ports, has no DMA and no old interrupt; the rest is as it was. While
    // its BARs were sized it decoded nothing.
    let writes = hardware::take_register_writes();
    let commands: Vec<_> = writes.iter().filter(|(at, _)| *at == BASE + 0x8000 + COMMAND).map(|it| it.1).collect();
    assert_eq!(commands, [0x140 | NO_INTX, 0x143 | NO_INTX]);
    assert_eq!((writes.first().unwrap().1, writes.last().unwrap().1), (commands[0], commands[1]));
    hardware::remove_registers();
}

#[test]
fn a_device_without_old_interrupts_stays_so() {
    hardware::remove_registers();
    function(0, &[(COMMAND, NO_INTX | 7, 0xffff)]);
    assert_eq!((scan_of(0, 0).len(), register(0, COMMAND)), (1, NO_INTX | MEMORY));
    hardware::remove_registers();
}

/// Of a bridge nothing is changed: it keeps passing requests.
#[test]
fn a_bridge_is_left_as_firmware_made_it() {
    hardware::remove_registers();
    function(0, &[(0x0c, BRIDGE, 0), (COMMAND, LISTED | 7, 0xffff), (0x10, 0xfebf_1000, PAGE_MASK), leads_to(9)]);
    let [bridge] = scan_of(0, 0)[..] else { panic!("one function") };
    assert_eq!((bridge.bars, bridge.msix), ([Bar::default(); 6], None));
    assert_eq!(hardware::take_register_writes(), []);
    hardware::remove_registers();
}

/// The first BARs of a function that has these registers there.
fn bars(registers: &[(u32, u32)]) -> [Bar; 6] {
    hardware::remove_registers();
    let at = (0x10..).step_by(4);
    function(0, &at.zip(registers).map(|(at, (value, writable))| (at, *value, *writable)).collect::<Vec<_>>());
    let [device] = scan_of(0, 0)[..] else { panic!("one function") };
    let command = register(0, COMMAND);
    let has_ports = device.bars.iter().any(|bar| !bar.is_mmio && bar.bytes > 0);
    assert_eq!(command, NO_INTX | MEMORY | u32::from(has_ports));
    hardware::remove_registers();
    device.bars
}

#[test]
fn a_base_address_register_that_lies_is_none() {
    // Nothing can be written: no size, even with an address.
    assert_eq!(bars(&[(0xfebf_0000, 0)])[0].bytes, 0);
    // Bits that are no size.
    assert_eq!(bars(&[(0xfebf_0000, 0xff0f_f000)])[0].bytes, 0);
    assert_eq!(bars(&[(0xfeb0_0004, 0xfff0_0000), (0, 0x0000_0fff)])[0].bytes, 0, "half of the upper half");
    // Ports without an address.
    let none = bars(&[(1, 0xffe0)])[0];
    assert_eq!((none.bytes, none.is_mmio), (0, false));
    // More than there is room for stays without an address.
    assert_eq!(bars(&[(0, 0x8000_0000)])[0], NO_BAR);
    assert_eq!(bars(&[(4, 0), (0x80, 0xffff_ff80)])[0].bytes, 0, "512 GiB");
    assert_eq!(bars(&[(4, 0), (0x40, 0xffff_ffc0)])[0], mmio(0x40_0000_0000, 1 << 38));
    assert_eq!(bars(&[(4, 0), (1, u32::MAX)])[0], mmio(1 << 32, 1 << 32), "no bit of the lower half");
    assert_eq!(bars(&[(0x7eb0_0000, 0x7ff0_0000)])[0].bytes, 0, "31 bits");
    // All that the last register could be is 32 bits wide, whatever it says.
    let last = bars(&[(0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0xfeb0_0004, 0xffff_0000)]);
    assert_eq!(last[5], mmio(0xfeb0_0000, 0x1_0000));
    let pair = bars(&[(0, 0), (0, 0), (0, 0), (0, 0), (0xfeb0_0004, 0xffff_0000), (1, u32::MAX)]);
    assert_eq!((pair[4], pair[5]), (mmio(0x1_feb0_0000, 0x1_0000), Bar::default()));
    // Ports are never wide: the next register is one of its own.
    let ports = bars(&[(0xc005, 0xfffc), (0xfebf_0000, PAGE_MASK)]);
    assert_eq!(
        (ports[0], ports[1]),
        (Bar { base: PhysAddr(0xc004), bytes: 4, is_mmio: false }, mmio(0xfebf_0000, 4096))
    );
}

/// Those without an address lie side by side, aligned, and none at the place of another.
#[test]
fn base_addresses_are_given_upwards_and_apart() {
    let given = bars(&[(0, PAGE_MASK), (4, 0xffff_0000), (0, u32::MAX), (0, 0xffff_ff00), (0xfebf_0000, PAGE_MASK)]);
    let (first, second, third) = (0xd000_0000, 0xd001_0000, 0xd002_0000);
    assert_eq!(given[..2], [mmio(first, 0x1000), mmio(second, 0x1_0000)]);
    assert_eq!(given[3..], [mmio(third, 0x100), mmio(0xfebf_0000, 0x1000), NO_BAR]);
}

/// MSI-X of a function whose capabilities are these words, and whose first BAR has 4 KiB.
fn msix_of(status: u32, first: u32, words: &[(u64, u32)]) -> Option<Msix> {
    hardware::remove_registers();
    let mut all = vec![(COMMAND, status, 0xffff), (0x34, first, 0), (0x10, 0xfebf_1000, PAGE_MASK)];
    all.push((0x14, 0xc001, 0xff00));
    all.extend(words.iter().map(|(at, word)| (*at, *word, 0)));
    function(0, &all);
    let msix = scan_of(0, 0)[0].msix;
    hardware::remove_registers();
    msix
}

#[test]
fn a_table_of_interrupts_is_believed_if_it_lies_in_memory_of_the_device() {
    let found = |entries, at: u64| Some(Msix { capability: 0x40, entries, table: PhysAddr(0xfebf_1000 + at) });
    let msix = |control: u32, place| msix_of(LISTED, 0x40, &[(0x40, control << 16 | 0x11), (0x44, place)]);
    assert_eq!(msix(0, 0), found(1, 0));
    // Its lower bits are not the offset's; enabled and masked are not of its size.
    assert_eq!(msix(0xc003, 0x800), found(4, 0x800));
    assert_eq!(msix(0xff, 0), found(0x100, 0), "it ends where the memory does");
    assert_eq!(msix(0xff, 8), None, "it ends behind it");
    assert_eq!(msix(0, 0x1000), None);
    assert_eq!(msix(0, 0xffff_fff8), None);
    // In ports; in no register; in no register that there could be.
    assert_eq!([1, 2, 6, 7].map(|bar| msix(0, bar)), [None; 4]);
    // No list, whatever is there.
    assert_eq!(msix_of(0, 0x40, &[(0x40, 0x11), (0x44, 0)]), None);
}

#[test]
fn a_list_of_capabilities_that_lies_has_an_end() {
    let table = |at: u64| [(at, 0x11), (at + 4, 0)];
    let found = |capability| Some(Msix { capability, entries: 1, table: PhysAddr(0xfebf_1000) });
    // Bits 0 and 1 of a link count for nothing.
    assert_eq!(msix_of(LISTED, 0x43, &[&[(0x40, 0x8305)][..], &table(0x80)].concat()), found(0x80));
    // It leads to itself; in a circle; into the header; to the end.
    assert_eq!(msix_of(LISTED, 0x40, &[(0x40, 0x4009)]), None);
    assert_eq!(msix_of(LISTED, 0x40, &[(0x40, 0x5009), (0x50, 0x4009)]), None);
    assert_eq!(msix_of(LISTED, 0x3c, &[(0x3c, 0x4011), (0x40, 0x11)]), None);
    assert_eq!(msix_of(LISTED, 0x40, &[&[(0x40, 0x0009)][..], &table(0x80)].concat()), None);
    assert_eq!(msix_of(LISTED, 0, &table(0x40)), None);
    // All that fit are looked at, and none more.
    let chain: Vec<_> = (0..47).map(|at| (0x40 + 4 * at, ((0x44 + 4 * at) << 8 | 9) as u32)).collect();
    assert_eq!(chain.last(), Some(&(0xf8, 0xfc09)));
    assert_eq!(msix_of(LISTED, 0x40, &[&chain[..], &[(0xfc, 0x11)]].concat()), None, "its place would be past it");
    let short = &chain[..46];
    assert_eq!(msix_of(LISTED, 0x40, &[short, &[(0xf8, 0x11), (0xfc, 0)]].concat()), found(0xf8));
}

const CARD: DeviceInfo = DeviceInfo { hwid: 0x108, ..DeviceInfo::NONE };

fn with_bus() -> Played {
    Played::new(|machine| machine.facts.ecam = Ecam { base: BASE, first_bus: 0, last_bus: 3 })
}

#[test]
fn configuration_space_is_read_and_written_in_words_of_the_device() {
    let _machine = with_bus();
    function(0x108, &[(0x40, 0x1234_5678, u32::MAX)]);
    function(0, &[(0x40, 0x9abc_def0, u32::MAX)]);
    hardware::set_register(BASE + (0x108 << 12) + 0xffc, 77, 0);
    assert_eq!((config_read(&CARD, 0x40), config_read(&CARD, 0xffc)), (Some(0x1234_5678), Some(77)));
    assert_eq!([0x41, 0x42, 0x1000, 0xfffc].map(|offset| config_read(&CARD, offset)), [None; 4]);
    assert_eq!((config_write(&CARD, 0x40, 5), config_write(&CARD, 0x42, 6), config_write(&CARD, 0x1000, 7)), {
        (Some(()), None, None)
    });
    assert_eq!(hardware::take_register_writes(), [(BASE + (0x108 << 12) + 0x40, 5)]);
    assert_eq!((config_read(&CARD, 0x40), register(0, 0x40)), (Some(5), 0x9abc_def0));
    let window = DeviceInfo { hwid: 0x1_0000, ..DeviceInfo::NONE };
    assert_eq!((config_read(&window, 0x40), config_write(&window, 0x40, 1)), (None, None));
}

#[test]
fn a_machine_without_configuration_space_has_no_registers_there() {
    let _machine = Played::new(|_| ());
    hardware::set_register(0x108 << 12, 0x1000_1af4, u32::MAX);
    assert_eq!((config_read(&CARD, 0), config_write(&CARD, 0, 1)), (None, None));
    assert_eq!(hardware::take_register_writes(), []);
}

/// Status bits in the upper half are cleared by ones: none is written.
#[test]
fn only_the_bit_that_lets_a_device_reach_memory_changes() {
    let _machine = with_bus();
    let at = BASE + (0x108 << 12) + COMMAND;
    for (before, on, after) in
        [(0x0403, true, 0x0407), (0x0407, true, 0x0407), (0x0407, false, 0x0403), (0x0403, false, 0x0403)]
    {
        function(0x108, &[(COMMAND, 0xf9b0_0000 | before, 0xffff)]);
        hardware::take_register_writes();
        set_bus_master(&CARD, on);
        assert_eq!(hardware::take_register_writes(), [(at, after)]);
    }
    set_bus_master(&DeviceInfo { hwid: 0x1_0000, ..CARD }, true);
    assert_eq!(hardware::take_register_writes(), []);
}
