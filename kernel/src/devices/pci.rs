//! PCI functions found through memory-mapped configuration space (ECAM, PCI Express 5.0, 7.2.2),
//! segment 0.
//!
//! Where firmware has given BARs no address (PVH loaders without firmware), memory BARs are placed
//! from the largest hole below the I/O APIC that is neither RAM nor reserved nor taken; see
//! [`BarWindow`]. Ports are not assigned: modern devices need none. Bridges are entered by the bus
//! numbers firmware gave them; a bridge without numbers is left alone.

use super::{Bar, DeviceInfo, Msix};
use crate::boot::acpi::Ecam;
use crate::hardware::{machine, read_register, write_register};
use crate::memory::{PAGE_BYTES, PhysAddr, PhysRange};

const CONFIG_BYTES: u16 = 4096;
const COMMAND: u16 = 0x04;
const COMMAND_PORTS: u32 = 1;
const COMMAND_MEMORY: u32 = 1 << 1;
const COMMAND_BUS_MASTER: u32 = 1 << 2;
const COMMAND_NO_INTX: u32 = 1 << 10;
const STATUS_CAPABILITIES: u32 = 1 << 20;
const FIRST_BAR: u16 = 0x10;
const CAPABILITIES: u16 = 0x34;
const CAPABILITIES_MAX: usize = 48;
const CAPABILITY_MSIX: u32 = 0x11;
const MSIX_ENTRY_BYTES: u64 = 16;
/// From here on every machine known passes what is not RAM to the PCI bus; microvm routes nothing
/// below.
const HOLE_START: u64 = 0xc000_0000;
/// I/O APIC, local APIC and firmware live above.
const HOLE_END: u64 = 0xfec0_0000;

/// Configuration space of one function.
#[derive(Clone, Copy)]
struct Function {
    ecam: Ecam,
    hwid: u32,
}

impl Function {
    /// The buses of `ecam` are mapped, and `hwid` lies in them.
    fn register(self, offset: u16) -> u64 {
        self.ecam.base + (u64::from(self.hwid) << 12) + u64::from(offset)
    }

    fn read(self, offset: u16) -> u32 {
        read_register(self.register(offset))
    }

    fn write(self, offset: u16, value: u32) {
        write_register(self.register(offset), value);
    }

    fn exists(self) -> bool {
        !matches!(self.read(0) & 0xffff, 0 | 0xffff)
    }

    fn header(self) -> u32 {
        self.read(0x0c) >> 16 & 0xff
    }
}

/// Where BARs without an address go: handed out upwards, each aligned to its own size.
pub struct BarWindow {
    next: u64,
    end: u64,
}

impl BarWindow {
    /// The largest hole between [`HOLE_START`] and [`HOLE_END`] that `taken` leaves.
    pub fn below_4_gib(taken: &[PhysRange]) -> BarWindow {
        let mut best = BarWindow { next: 0, end: 0 };
        // A hole starts where something ends, or at the start.
        for start in taken.iter().map(|range| range.end().0).chain([HOLE_START]) {
            let start = start.max(HOLE_START);
            let inside = |range: &&PhysRange| !range.is_empty() && range.base.0 <= start && start < range.end().0;
            if start >= HOLE_END || taken.iter().any(|range| inside(&range)) {
                continue;
            }
            let next =
                taken.iter().filter(|range| !range.is_empty() && range.base.0 > start).map(|range| range.base.0).min();
            let end = next.unwrap_or(HOLE_END).min(HOLE_END);
            if end - start > best.end - best.next {
                best = BarWindow { next: start, end };
            }
        }
        best
    }

    /// An aligned piece; `None` when the hole is full.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let base = self.next.checked_next_multiple_of(bytes.max(PAGE_BYTES as u64))?;
        let end = base.checked_add(bytes).filter(|end| *end <= self.end)?;
        self.next = end;
        Some(base)
    }
}

/// Calls `found` with every function, prepared as the module head of `devices` says.
pub fn scan(ecam: Ecam, window: &mut BarWindow, found: &mut dyn FnMut(DeviceInfo)) {
    let mut buses = [0u64; 4];
    buses[usize::from(ecam.first_bus / 64)] |= 1 << (ecam.first_bus % 64);
    // Bridges lead to higher bus numbers only, so one pass upwards meets all.
    for bus in ecam.first_bus..=ecam.last_bus {
        if buses[usize::from(bus / 64)] >> (bus % 64) & 1 == 0 {
            continue;
        }
        for device in 0..32 {
            let hwid = u32::from(bus) << 8 | device << 3;
            let multiple = Function { ecam, hwid }.header() & 0x80 != 0;
            for function in 0..if multiple { 8 } else { 1 } {
                let function = Function { ecam, hwid: hwid | function };
                if !function.exists() {
                    continue;
                }
                if function.header() & 0x7f == 1 {
                    let below = (function.read(0x18) >> 8 & 0xff) as u8;
                    if below > bus {
                        buses[usize::from(below / 64)] |= 1 << (below % 64);
                    }
                }
                found(prepare(function, window));
            }
        }
    }
}

/// Reads, and where needed gives, addresses; switches memory decoding on.
fn prepare(function: Function, window: &mut BarWindow) -> DeviceInfo {
    let id = function.read(0);
    let mut device = DeviceInfo {
        hwid: function.hwid,
        vendor: id as u16,
        device: (id >> 16) as u16,
        class: function.read(8) >> 8,
        ..DeviceInfo::NONE
    };
    let command = function.read(COMMAND) & 0xffff;
    let off = command & !(COMMAND_MEMORY | COMMAND_PORTS | COMMAND_BUS_MASTER) | COMMAND_NO_INTX;
    // Sizing changes the BARs for a moment, so the device must not decode meanwhile. A bridge keeps
    // passing requests.
    let bridge = function.header() & 0x7f != 0;
    let bar_count = if bridge { 0 } else { 6 };
    if !bridge {
        function.write(COMMAND, off);
    }
    let mut index = 0;
    while index < bar_count {
        let (bar, is_wide) = read_bar(function, index, window);
        device.bars[usize::from(index)] = bar;
        index += if is_wide { 2 } else { 1 };
    }
    if !bridge {
        let ports = if device.bars.iter().any(|bar| bar.bytes > 0 && !bar.is_mmio) { COMMAND_PORTS } else { 0 };
        function.write(COMMAND, off | COMMAND_MEMORY | ports);
        device.msix = find_msix(function, &device.bars);
    }
    device
}

/// One BAR with its size, and whether it takes two registers.
fn read_bar(function: Function, index: u16, window: &mut BarWindow) -> (Bar, bool) {
    let offset = FIRST_BAR + 4 * index;
    let low = function.read(offset);
    let is_mmio = low & 1 == 0;
    let is_wide = is_mmio && low & 6 == 4 && index < 5;
    let flag_bits: u32 = if is_mmio { 0xf } else { 3 };
    let high = if is_wide { function.read(offset + 4) } else { 0 };
    function.write(offset, !0);
    if is_wide {
        function.write(offset + 4, !0);
    }
    let mask_low = function.read(offset) & !flag_bits;
    // Of 32 bits the highest stands for those that are not there.
    let mask_high = if is_wide { function.read(offset + 4) } else { (mask_low as i32 >> 31) as u32 };
    let bytes = size_of_mask(u64::from(mask_high) << 32 | u64::from(mask_low), is_mmio);
    let mut base = u64::from(high) << 32 | u64::from(low & !flag_bits);
    if base == 0 && is_mmio && bytes > 0 {
        base = window.take(bytes).unwrap_or(0);
    }
    function.write(offset, base as u32);
    if is_wide {
        function.write(offset + 4, (base >> 32) as u32);
    }
    // A BAR without an address is as good as none.
    let bytes = if base == 0 { 0 } else { bytes };
    (Bar { base: PhysAddr(base), bytes, is_mmio }, is_wide)
}

/// The size a BAR's writable bits tell; 0 for an absent or nonsensical one.
fn size_of_mask(mask: u64, is_mmio: bool) -> u64 {
    // Ports may implement 16 bits only.
    let mask = if is_mmio || mask == 0 { mask } else { mask | !0xffff };
    let bytes = mask.wrapping_neg();
    if bytes.is_power_of_two() && bytes < 1 << 39 { bytes } else { 0 }
}

/// The MSI-X capability, if its table lies within a memory BAR.
fn find_msix(function: Function, bars: &[Bar; 6]) -> Option<Msix> {
    if function.read(COMMAND) & STATUS_CAPABILITIES == 0 {
        return None;
    }
    let mut offset = (function.read(CAPABILITIES) & 0xfc) as u16;
    for _ in 0..CAPABILITIES_MAX {
        if offset < 0x40 {
            return None;
        }
        let head = function.read(offset);
        if head & 0xff == CAPABILITY_MSIX {
            let entries = (head >> 16 & 0x7ff) as u16 + 1;
            let place = function.read(offset + 4);
            let bar = bars.get((place & 7) as usize)?.memory()?;
            let table = PhysRange::new(bar.base.0 + u64::from(place & !7), u64::from(entries) * MSIX_ENTRY_BYTES);
            return (table.end() <= bar.end()).then_some(Msix { capability: offset, entries, table: table.base });
        }
        offset = (head >> 8 & 0xfc) as u16;
    }
    None
}

fn function_of(device: &DeviceInfo, offset: u16) -> Option<Function> {
    let ecam = machine().facts.ecam;
    let usable = device.is_pci() && ecam.base != 0 && offset < CONFIG_BYTES && offset.is_multiple_of(4);
    usable.then_some(Function { ecam, hwid: device.hwid })
}

/// Reads an aligned word of configuration space; `None`: not a PCI function, or no such register.
pub fn config_read(device: &DeviceInfo, offset: u16) -> Option<u32> {
    Some(function_of(device, offset)?.read(offset))
}

/// Writes an aligned word of configuration space; `None` as for [`config_read`].
pub fn config_write(device: &DeviceInfo, offset: u16, value: u32) -> Option<()> {
    function_of(device, offset)?.write(offset, value);
    Some(())
}

/// Allows or forbids the device to reach memory and to send messages; nothing happens for devices
/// that are not PCI.
pub fn set_bus_master(device: &DeviceInfo, on: bool) {
    if let Some(function) = function_of(device, COMMAND) {
        let command = function.read(COMMAND) & 0xffff & !COMMAND_BUS_MASTER;
        function.write(COMMAND, command | if on { COMMAND_BUS_MASTER } else { 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size_of_mask(0xffff_ffff_ffff_f000, true), 0x1000);
        assert_eq!(size_of_mask(0xffff_ffff_0000_0000, true), 1 << 32);
        assert_eq!([0xffff_ffe0, 0xffe0].map(|mask| size_of_mask(mask, false)), [0x20; 2], "ports");
        assert_eq!(size_of_mask(0xffff_fff0_0000_0000, true), 1 << 36);
        assert_eq!([true, false].map(|is_mmio| size_of_mask(0, is_mmio)), [0; 2], "it is not there");
        // A hole in the mask, a register of 31 bits, and more than a register may ask for.
        for mask in [0xffff_ffff_f0f0_0000, 0x7fff_f000, 0xffff_ff80_0000_0000, 1 << 63] {
            assert_eq!(size_of_mask(mask, true), 0, "{mask:#x}");
        }
        assert_eq!(size_of_mask(0xffff_ffc0_0000_0000, true), 1 << 38, "the most");
    }

    #[test]
    fn the_largest_hole() {
        let taken = [PhysRange::new(0, 0x4000_0000), PhysRange::new(0xe000_0000, 0x1000_0000), PhysRange::default()];
        let mut window = BarWindow::below_4_gib(&taken);
        assert_eq!((window.next, window.end), (0xc000_0000, 0xe000_0000));
        assert_eq!(window.take(0x100), Some(0xc000_0000));
        assert_eq!(window.take(0x4000), Some(0xc000_4000));
        assert_eq!(window.take(0x1_0000_0000), None);
        // Of two the larger, and of two equal ones the lower.
        let holes = |second: u64| {
            let low = [(0, 0xc010_0000), (0xc110_0000, 0xef0_0000)];
            let high = [(0xd000_0000 + second, 0x1000_0000), (0xe000_0000, 0x1ec0_0000)];
            let taken = [low, high].concat();
            let taken: Vec<_> = taken.into_iter().map(|(base, bytes)| PhysRange::new(base, bytes)).collect();
            BarWindow::below_4_gib(&taken).next
        };
        assert_eq!([0x100_0000, 0x100_1000, 0xff_f000].map(holes), [0xc010_0000, 0xd000_0000, 0xc010_0000]);
        let full_of_ram = [PhysRange::new(0, 0xd000_0000)];
        assert_eq!(BarWindow::below_4_gib(&full_of_ram).take(16), Some(0xd000_0000));
        assert_eq!(BarWindow::below_4_gib(&[PhysRange::new(0, 1 << 32)]).take(16), None);
    }
}
