//! Devices found at boot: PCI functions and virtio-mmio windows, in one table.
//!
//! Invariants: memory decoding is on for every PCI function listed and its BARs have addresses; bus
//! mastering is off until a component claims the device. The kernel drives none of them. What a
//! device says of itself is a claim: sizes are checked, counts are bounded.

use crate::memory::{PhysAddr, PhysRange};

pub mod claims;
pub mod pci;
pub mod virtio_mmio;

/// Most devices kept.
pub const DEVICES_MAX: usize = 64;
const _: () = assert!(DEVICES_MAX < claims::INDICES, "and the serial port");

/// A base address register, decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bar {
    /// Physical address, or port number.
    pub base: PhysAddr,
    /// Length; 0 means that there is no such register.
    pub bytes: u64,
    /// Memory, as opposed to ports.
    pub is_mmio: bool,
}

impl Bar {
    /// The memory it decodes; `None` for ports and absent registers.
    pub fn memory(&self) -> Option<PhysRange> {
        (self.is_mmio && self.bytes > 0).then(|| PhysRange::new(self.base.0, self.bytes))
    }
}

/// Where a function's MSI-X table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Msix {
    /// Offset of the capability in configuration space.
    pub capability: u16,
    /// Number of entries, at most 2048.
    pub entries: u16,
    /// Physical address of entry 0.
    pub table: PhysAddr,
}

/// One device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceInfo {
    /// PCI: bus << 8 | device << 3 | function. A virtio-mmio window: [`virtio_mmio::FIRST_HWID`] +
    /// its number.
    pub hwid: u32,
    /// PCI vendor; 0x1af4 for virtio-mmio.
    pub vendor: u16,
    /// PCI device; 0x1040 + DeviceID for virtio-mmio, as for a modern virtio PCI function.
    pub device: u16,
    /// class << 16 | subclass << 8 | programming interface; 0 for virtio-mmio.
    pub class: u32,
    /// Register windows.
    pub bars: [Bar; 6],
    /// Message-signalled interrupts; `None` if it has none.
    pub msix: Option<Msix>,
    /// I/O APIC line of a virtio-mmio window.
    pub line: Option<u32>,
}

impl DeviceInfo {
    /// No device; fills unused table entries.
    pub const NONE: DeviceInfo = DeviceInfo {
        hwid: 0,
        vendor: 0,
        device: 0,
        class: 0,
        bars: [Bar { base: PhysAddr(0), bytes: 0, is_mmio: false }; 6],
        msix: None,
        line: None,
    };

    /// Whether it is a PCI function.
    pub fn is_pci(&self) -> bool {
        self.hwid < virtio_mmio::FIRST_HWID
    }
}

/// Base classes by number (PCI Code and ID Assignment Specification 1.11, section 1).
const CLASS_NAMES: [&str; 18] = [
    "old device",
    "storage",
    "network",
    "display",
    "multimedia",
    "memory",
    "bridge",
    "communication",
    "system peripheral",
    "input",
    "docking station",
    "processor",
    "serial bus",
    "wireless",
    "intelligent controller",
    "satellite",
    "encryption",
    "signal processing",
];
/// Device ids of virtio devices (VIRTIO 1.2, section 5), less the 0x1040 of modern ones.
const VIRTIO_NETWORK: u16 = 0x1041;
const VIRTIO_BLOCK: u16 = 0x1042;

impl DeviceInfo {
    /// What kind of thing it is, for people.
    pub fn class_name(&self) -> &'static str {
        match (self.is_pci(), self.device) {
            (true, _) => CLASS_NAMES.get((self.class >> 16) as usize).copied().unwrap_or("unknown"),
            (false, VIRTIO_NETWORK) => "network",
            (false, VIRTIO_BLOCK) => "storage",
            (false, _) => "virtio",
        }
    }
}

impl core::fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.is_pci() {
            let (bus, device, function) = (self.hwid >> 8, self.hwid >> 3 & 31, self.hwid & 7);
            write!(
                f,
                "{bus:02x}:{device:02x}.{function} {:04x}:{:04x} {} (class {:06x})",
                self.vendor,
                self.device,
                self.class_name(),
                self.class
            )?;
            for bar in self.bars.iter().filter_map(Bar::memory) {
                write!(f, " {:#x}+{:#x}", bar.base.0, bar.bytes)?;
            }
            self.msix.map_or(Ok(()), |msix| write!(f, " msi-x {}", msix.entries))
        } else {
            let window = &self.bars[0];
            write!(f, "mmio:{:02x} {:04x}:{:04x}", self.hwid & 0xff, self.vendor, self.device)?;
            write!(f, " {}", self.class_name())?;
            write!(f, " {:#x}+{:#x} line {}", window.base.0, window.bytes, self.line.unwrap_or(0))
        }
    }
}

/// A bounded list of devices. All zero bytes are an empty table.
pub struct DeviceTable {
    count: usize,
    entries: core::mem::MaybeUninit<[DeviceInfo; DEVICES_MAX]>,
}

impl Default for DeviceTable {
    fn default() -> Self {
        DeviceTable { count: 0, entries: core::mem::MaybeUninit::uninit() }
    }
}

impl DeviceTable {
    /// Adds a device; false when the table is full.
    pub fn push(&mut self, device: DeviceInfo) -> bool {
        if self.count == DEVICES_MAX {
            return false;
        }
        // SAFETY: `count` is in bounds, and the pointer comes from an array of that many entries.
        unsafe { self.entries.as_mut_ptr().cast::<DeviceInfo>().add(self.count).write(device) };
        self.count += 1;
        true
    }

    /// The devices added.
    pub fn all(&self) -> &[DeviceInfo] {
        // SAFETY: `push` wrote the first `count` entries.
        unsafe { core::slice::from_raw_parts(self.entries.as_ptr().cast::<DeviceInfo>(), self.count) }
    }
}

pub use pci::{config_read, config_write, set_bus_master};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_decodes_memory_if_it_has_a_size_and_is_no_port() {
        let memory = |bytes, is_mmio| Bar { base: PhysAddr(0x1000), bytes, is_mmio }.memory();
        assert_eq!(memory(16, true), Some(PhysRange::new(0x1000, 16)));
        assert_eq!([memory(0, true), memory(16, false), memory(0, false)], [None; 3]);
    }

    #[test]
    fn a_table_keeps_devices_in_order_until_it_is_full() {
        let mut table = DeviceTable::default();
        assert!(table.all().is_empty());
        let fits: Vec<bool> =
            (0..DEVICES_MAX as u32 + 2).map(|hwid| table.push(DeviceInfo { hwid, ..DeviceInfo::NONE })).collect();
        assert!(fits.iter().enumerate().all(|(at, fits)| *fits == (at < DEVICES_MAX)));
        assert!(table.all().iter().map(|device| device.hwid).eq(0..DEVICES_MAX as u32));
    }

    /// What people read in the machine's log, and what scripts look for.
    #[test]
    fn a_device_is_written_as_people_know_it() {
        let mut card =
            DeviceInfo { hwid: 0x12a5, vendor: 0x1af4, device: 0x1041, class: 0x02_0001, ..DeviceInfo::NONE };
        assert_eq!(card.to_string(), "12:14.5 1af4:1041 network (class 020001)");
        card.bars[1] = Bar { base: PhysAddr(0xfeb0_0000), bytes: 0x1000, is_mmio: true };
        card.msix = Some(Msix { capability: 0, entries: 3, table: PhysAddr(0) });
        assert_eq!(card.to_string(), "12:14.5 1af4:1041 network (class 020001) 0xfeb00000+0x1000 msi-x 3");
        assert_eq!(DeviceInfo { class: 0xff_0000, ..card }.class_name(), "unknown");
        let names = [0x1041, 0x1042, 0x1044]
            .map(|device| DeviceInfo { hwid: virtio_mmio::FIRST_HWID, device, ..DeviceInfo::NONE }.class_name());
        assert_eq!(names, ["network", "storage", "virtio"]);
        let window = DeviceInfo { hwid: 0x1_0007, vendor: 0x1af4, device: 0x1042, line: Some(9), ..DeviceInfo::NONE };
        assert_eq!(window.to_string(), "mmio:07 1af4:1042 storage 0x0+0x0 line 9");
    }
}
