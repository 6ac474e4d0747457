//! virtio over MMIO (virtio 1.2, section 4.2), version 2.

use alloc::boxed::Box;

use crate::doorbell::{Doorbell, DoorbellRegister};
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
    fn set_message(&mut self, _: u16, _: u16) {}
    fn notify(&mut self, queue: u16) {
        self.0.write_u32(0x50, queue.into());
    }
    fn doorbell(&mut self, queue: u16) -> Box<dyn Doorbell> {
        Box::new(DoorbellRegister::wide(self.0, 0x50, queue))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::tests::memory;

    const KIND: u32 = 3;

    /// A device that keeps what is written, and does nothing.
    fn device() -> (Registers, Mmio) {
        let registers = memory(64);
        for (offset, word) in [(0, MAGIC), (4, 2), (8, KIND)] {
            registers.write_u32(offset, word);
        }
        (registers, Mmio::new(registers, KIND).expect("it is one"))
    }

    #[test]
    fn another_device_is_not_taken() {
        for (offset, word) in [(0, MAGIC + 1), (4, 1), (8, KIND + 1)] {
            let (registers, _) = device();
            registers.write_u32(offset, word);
            let (version, device) = (registers.read_u32(4), registers.read_u32(8));
            assert_eq!(Mmio::new(registers, KIND).err(), Some(NotOurs { version, device }));
        }
    }

    #[test]
    fn status_and_features_have_their_registers() {
        let (registers, mut mmio) = device();
        mmio.set_status(0x8f);
        assert_eq!((registers.read_u32(0x70), mmio.status()), (0x8f, 0x8f));
        registers.write_u32(0x10, 0x8000_0001);
        assert_eq!((mmio.features(), registers.read_u32(0x14)), (0x8000_0001_8000_0001, 1), "the upper half last");
        mmio.set_features(0x1234_5678_9abc_def0);
        assert_eq!((registers.read_u32(0x24), registers.read_u32(0x20)), (1, 0x1234_5678));
        registers.write_u32(0x100, 0x0403_0201);
        assert_eq!([0, 1, 3].map(|offset| mmio.configuration(offset)), [1, 2, 4]);
    }

    #[test]
    fn a_queue_is_selected_and_set() {
        let (registers, mut mmio) = device();
        for (most, entries) in [(0, 0), (256, 256), (0x1_0000, 0x8000)] {
            registers.write_u32(0x34, most);
            assert_eq!((mmio.queue_entries(5), registers.read_u32(0x30)), (entries, 5));
        }
        let addresses = QueueAddresses { descriptors: 0x1_0000_1000, available: 0x2_0000_2000, used: 0x3_0000_3000 };
        assert!(!mmio.adopt_queue(4, 256, addresses), "it is off");
        mmio.set_queue(2, 256, addresses);
        assert_eq!([0x30, 0x38, 0x44].map(|at| registers.read_u32(at)), [2, 256, 1]);
        let written = [0x80, 0x90, 0xa0].map(|at| [registers.read_u32(at), registers.read_u32(at + 4)]);
        assert_eq!(written, [[0x1000, 1], [0x2000, 2], [0x3000, 3]]);
        assert!(mmio.adopt_queue(4, 256, addresses) && registers.read_u32(0x30) == 4);
        mmio.notify(3);
        assert_eq!(registers.read_u32(0x50), 3);
        mmio.doorbell(4).ring();
        assert_eq!(registers.read_u32(0x50), 4);
    }

    #[test]
    fn what_is_pending_is_acknowledged() {
        let (registers, mut mmio) = device();
        for (pending, acknowledged, is_configuration) in [(0, 0, false), (1, 1, false), (6, 2, true), (7, 3, true)] {
            registers.write_u32(0x60, pending);
            assert_eq!((mmio.acknowledge(), registers.read_u32(0x64)), (is_configuration, acknowledged), "{pending}");
        }
    }
}
