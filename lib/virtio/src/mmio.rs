//! virtio over MMIO (virtio 1.2, section 4.2), version 2.

use crate::registers::Registers;
use crate::transport::{QueueAddresses, Transport};

/// "virt".
const MAGIC: u32 = 0x7472_6976;

/// A mapped device.
pub struct Mmio(Registers);

/// No device of that kind, or not of the version we speak. QEMU shows version 1 unless started with
/// `-global virtio-mmio.force-legacy=false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOurs {
    /// What the version register says.
    pub version: u32,
    /// What the device register says.
    pub device: u32,
}

impl Mmio {
    /// Over a mapped window with a device of that kind (section 5).
    pub fn new(registers: Registers, kind: u32) -> Result<Mmio, NotOurs> {
        let (magic, version, device) = (registers.read_u32(0), registers.read_u32(4), registers.read_u32(8));
        if (magic, version, device) == (MAGIC, 2, kind) {
            Ok(Mmio(registers))
        } else {
            Err(NotOurs { version, device })
        }
    }
}

impl Transport for Mmio {
    fn status(&mut self) -> u8 {
        self.0.read_u32(0x70) as u8
    }
    fn set_status(&mut self, status: u8) {
        self.0.write_u32(0x70, status.into());
    }
    fn features(&mut self) -> u64 {
        let half = |which| {
            self.0.write_u32(0x14, which);
            u64::from(self.0.read_u32(0x10))
        };
        half(0) | half(1) << 32
    }
    fn set_features(&mut self, features: u64) {
        for (which, half) in [(0, features as u32), (1, (features >> 32) as u32)] {
            self.0.write_u32(0x24, which);
            self.0.write_u32(0x20, half);
        }
    }
    fn queue_entries(&mut self, queue: u16) -> u16 {
        self.0.write_u32(0x30, queue.into());
        self.0.read_u32(0x34).min(0x8000) as u16
    }
    fn set_queue(&mut self, queue: u16, entries: u16, addresses: QueueAddresses) {
        self.0.write_u32(0x30, queue.into());
        self.0.write_u32(0x38, entries.into());
        for (offset, address) in [(0x80, addresses.descriptors), (0x90, addresses.available), (0xa0, addresses.used)] {
            self.0.write_u32(offset, address as u32);
            self.0.write_u32(offset + 4, (address >> 32) as u32);
        }
        self.0.write_u32(0x44, 1);
    }
    // Size and addresses cannot be read back.
    fn adopt_queue(&mut self, queue: u16, _: u16, _: QueueAddresses) -> bool {
        self.0.write_u32(0x30, queue.into());
        self.0.read_u32(0x44) == 1
    }
    fn notify(&mut self, queue: u16) {
        self.0.write_u32(0x50, queue.into());
    }
    fn configuration(&mut self, offset: u64) -> u8 {
        self.0.read_u8(0x100 + offset)
    }
    fn acknowledge(&mut self) -> bool {
        let pending = self.0.read_u32(0x60);
        self.0.write_u32(0x64, pending & 3);
        pending & 2 != 0
    }
}
