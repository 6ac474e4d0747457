//! virtio over PCI (virtio 1.2, section 4.1): where the structures are, and the registers of the
//! common one.
//!
//! Message 0 of MSI-X serves the queues, save one that has a message of its own; message 1 changes
//! of the configuration.

use alloc::boxed::Box;

use crate::doorbell::{Doorbell, DoorbellRegister};
use crate::registers::Registers;
use crate::transport::{QueueAddresses, Transport};

/// Vendor-specific capability.
const VENDOR_CAPABILITY: u8 = 9;
/// Longest list of capabilities that fits into configuration space.
const CAPABILITIES_MAX: usize = 48;
/// Most queues that a driver of ours uses of one device, counted from the first.
const QUEUES_MAX: usize = 16;
/// Message of configuration changes, and what a device that has no such message keeps instead.
const CONFIGURATION: u16 = 1;
const NO_VECTOR: u16 = 0xffff;

/// BarRegion of a structure: window, offset, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarRegion {
    /// Register window 0 to 5.
    pub window: u8,
    /// First byte.
    pub offset: u32,
    /// Bytes.
    pub bytes: u32,
}

/// BarRegions of the four structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarRegions {
    /// Common configuration.
    pub common: BarRegion,
    /// Notifications, and bytes between those of two queues.
    pub notify: BarRegion,
    /// See `notify`.
    pub notify_step: u32,
    /// Device configuration.
    pub device: BarRegion,
}

/// Finds the structures through `read(offset, width)` of configuration space; `None` if the device
/// is no modern virtio one.
pub fn find(mut read: impl FnMut(u64, u64) -> Option<u64>) -> Option<BarRegions> {
    let (mut common, mut notify, mut step, mut device) = (None, None, 0, None);
    let mut at = read(0x34, 1)? & 0xfc;
    for _ in 0..CAPABILITIES_MAX {
        if at == 0 {
            break;
        }
        if read(at, 1)? as u8 == VENDOR_CAPABILITY {
            let place = BarRegion {
                window: read(at + 4, 1)? as u8,
                offset: read(at + 8, 4)? as u32,
                bytes: read(at + 12, 4)? as u32,
            };
            let usable = place.window < 6 && place.offset.checked_add(place.bytes).is_some();
            // The first usable one of a kind counts (section 4.1.4.1).
            match read(at + 3, 1)? {
                1 if usable && common.is_none() => common = Some(place),
                2 if usable && notify.is_none() => (notify, step) = (Some(place), read(at + 16, 4)? as u32),
                4 if usable && device.is_none() => device = Some(place),
                _ => {}
            }
        }
        at = read(at + 1, 1)? & 0xfc;
    }
    Some(BarRegions { common: common?, notify: notify?, notify_step: step, device: device? })
}

/// A device's structures, mapped.
pub struct Pci {
    common: Registers,
    notify: Registers,
    notify_step: u32,
    device: Registers,
    /// Per queue: where to notify.
    notify_offsets: [u64; QUEUES_MAX],
    /// Per queue: by which message it interrupts.
    messages: [u16; QUEUES_MAX],
}

impl Pci {
    /// Over mapped structures.
    pub fn new(common: Registers, notify: Registers, notify_step: u32, device: Registers) -> Pci {
        Pci { common, notify, notify_step, device, notify_offsets: [0; QUEUES_MAX], messages: [0; QUEUES_MAX] }
    }
}

impl Pci {
    /// The queue is selected.
    fn learn_to_notify(&mut self, queue: u16) {
        if let Some(offset) = self.notify_offsets.get_mut(usize::from(queue)) {
            *offset = u64::from(self.common.read_u16(30)) * u64::from(self.notify_step);
        }
    }

    fn message(&self, queue: u16) -> u16 {
        self.messages.get(usize::from(queue)).copied().unwrap_or(0)
    }
}

impl Transport for Pci {
    fn status(&mut self) -> u8 {
        self.common.read_u8(20)
    }
    fn set_status(&mut self, status: u8) {
        self.common.write_u8(20, status);
    }
    fn features(&mut self) -> u64 {
        let half = |which| {
            self.common.write_u32(0, which);
            u64::from(self.common.read_u32(4))
        };
        half(0) | half(1) << 32
    }
    fn set_features(&mut self, features: u64) {
        for (which, half) in [(0, features as u32), (1, (features >> 32) as u32)] {
            self.common.write_u32(8, which);
            self.common.write_u32(12, half);
        }
        // A device that has no such message keeps none.
        self.common.write_u16(16, CONFIGURATION);
    }
    fn queue_entries(&mut self, queue: u16) -> u16 {
        self.common.write_u16(22, queue);
        self.common.read_u16(24)
    }
    fn set_queue(&mut self, queue: u16, entries: u16, addresses: QueueAddresses) {
        self.common.write_u16(22, queue);
        self.common.write_u16(24, entries);
        self.common.write_u16(26, self.message(queue));
        for (offset, address) in [(32, addresses.descriptors), (40, addresses.available), (48, addresses.used)] {
            self.common.write_u32(offset, address as u32);
            self.common.write_u32(offset + 4, (address >> 32) as u32);
        }
        self.learn_to_notify(queue);
        self.common.write_u16(28, 1);
    }
    fn adopt_queue(&mut self, queue: u16, entries: u16, addresses: QueueAddresses) -> bool {
        self.common.write_u16(22, queue);
        let is_heard = matches!(self.common.read_u16(16), CONFIGURATION | NO_VECTOR);
        let words = [24, 26, 28].map(|offset| self.common.read_u16(offset));
        let address =
            |offset| u64::from(self.common.read_u32(offset)) | u64::from(self.common.read_u32(offset + 4)) << 32;
        let found = [32, 40, 48].map(address);
        self.learn_to_notify(queue);
        let QueueAddresses { descriptors, available, used } = addresses;
        is_heard && words == [entries, self.message(queue), 1] && found == [descriptors, available, used]
    }
    fn set_message(&mut self, queue: u16, message: u16) {
        if let Some(place) = self.messages.get_mut(usize::from(queue)) {
            *place = message;
        }
    }
    fn notify(&mut self, queue: u16) {
        if let Some(&offset) = self.notify_offsets.get(usize::from(queue)) {
            self.notify.write_u16(offset, queue);
        }
    }
    fn doorbell(&mut self, queue: u16) -> Box<dyn Doorbell> {
        // A queue that no driver of ours uses has one that reaches nothing.
        let offset = self.notify_offsets.get(usize::from(queue)).copied().unwrap_or(u64::MAX);
        Box::new(DoorbellRegister::narrow(self.notify, offset, queue))
    }
    fn configuration(&mut self, offset: u64) -> u8 {
        self.device.read_u8(offset)
    }
    fn acknowledge(&mut self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::tests::memory;

    fn space() -> [u8; 256] {
        let mut space = [0u8; 256];
        space[0x34] = 0x40;
        let mut put = |at: usize, next: u8, kind: u8, window: u8, offset: u32| {
            space[at..at + 5].copy_from_slice(&[9, next, 20, kind, window]);
            space[at + 8..at + 12].copy_from_slice(&offset.to_le_bytes());
            space[at + 12..at + 16].copy_from_slice(&0x1000u32.to_le_bytes());
            space[at + 16] = 4 * kind;
        };
        put(0x40, 0x60, 1, 4, 0);
        put(0x60, 0x80, 2, 4, 0x3000);
        put(0x80, 0xa0, 4, 4, 0x2000);
        put(0xa0, 0x40, 1, 9, 0); // unusable, and back to the start
        space
    }

    fn read(space: &[u8; 256]) -> impl FnMut(u64, u64) -> Option<u64> + '_ {
        |offset, width| {
            let bytes = space.get(offset as usize..(offset + width) as usize)?;
            Some(bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
        }
    }

    #[test]
    fn structures_are_found_and_damage_is_refused() {
        let space = space();
        let places = find(read(&space)).unwrap();
        assert_eq!((places.common.window, places.notify.offset, places.device.offset), (4, 0x3000, 0x2000));
        assert_eq!(places.notify_step, 8, "of the notifications' own structure");
        for index in 0..256 {
            for value in [0, 0x40, 0xff] {
                let mut bad = space;
                bad[index] = value;
                let _ = find(read(&bad));
            }
        }
        assert_eq!(find(read(&[0; 256])), None);
    }

    #[test]
    fn the_first_structure_of_a_kind_that_can_be_used_counts() {
        let mut bad = space();
        // The list begins with what cannot be used: no such window, or bytes beyond any.
        bad[0x34] = 0xa0;
        let places = find(read(&space())).unwrap();
        assert_eq!(find(read(&bad)), Some(places));
        bad[0xa4] = 6;
        assert_eq!(find(read(&bad)), Some(places));
        bad[0xa4] = 4;
        bad[0xa8..0xac].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(find(read(&bad)), Some(places));
        bad[0xa8..0xac].copy_from_slice(&0x500u32.to_le_bytes());
        for kind in [1, 2, 4] {
            bad[0xa3] = kind;
            let found = find(read(&bad)).unwrap();
            let offsets = [found.common.offset, found.notify.offset, found.device.offset];
            let mut expected = [0, 0x3000, 0x2000];
            expected[usize::from(kind) / 2] = 0x500;
            assert_eq!((offsets, found.common.bytes), (expected, 0x1000));
        }
        // Others are passed over; of those that are needed none may lack.
        bad[0xa3] = 3;
        assert_eq!(find(read(&bad)), Some(places));
        bad[0xa0] = 8;
        bad[0xa3] = 1;
        assert_eq!(find(read(&bad)), Some(places), "no virtio structure");
        for at in [0x40, 0x60, 0x80] {
            let mut bad = space();
            bad[at] = 8;
            assert_eq!(find(read(&bad)), None);
        }
    }

    /// Common structure, notifications and device configuration that keep what is written, and do
    /// nothing.
    fn device() -> ([Registers; 3], Pci) {
        let parts = [memory(8), memory(8), memory(8)];
        (parts, Pci::new(parts[0], parts[1], 4, parts[2]))
    }

    const ADDRESSES: QueueAddresses =
        QueueAddresses { descriptors: 0x1_0000_1000, available: 0x2_0000_2000, used: 0x3_0000_3000 };

    #[test]
    fn status_features_and_configuration_have_their_registers() {
        let ([common, _, own], mut pci) = device();
        pci.set_status(0x8f);
        assert_eq!((common.read_u32(20), pci.status()), (0x8f, 0x8f));
        common.write_u32(4, 0x8000_0001);
        assert_eq!((pci.features(), common.read_u32(0)), (0x8000_0001_8000_0001, 1), "the upper half last");
        pci.set_features(0x1234_5678_9abc_def0);
        assert_eq!([8, 12, 16].map(|at| common.read_u32(at)), [1, 0x1234_5678, CONFIGURATION.into()]);
        own.write_u32(0, 0x0403_0201);
        assert_eq!([0, 1, 3].map(|offset| pci.configuration(offset)), [1, 2, 4]);
        assert!(!pci.acknowledge());
    }

    #[test]
    fn a_queue_is_set_and_notified_where_it_says() {
        let ([common, notify, _], mut pci) = device();
        common.write_u16(24, 512);
        assert_eq!((pci.queue_entries(5), common.read_u16(22)), (512, 5));
        common.write_u16(26, 9);
        common.write_u16(30, 3);
        pci.set_queue(2, 256, ADDRESSES);
        assert_eq!([22, 24, 26, 28].map(|at| common.read_u16(at)), [2, 256, 0, 1]);
        let written = [32, 40, 48].map(|at| [common.read_u32(at), common.read_u32(at + 4)]);
        assert_eq!(written, [[0x1000, 1], [0x2000, 2], [0x3000, 3]]);
        notify.write_u16(12, 7);
        pci.notify(2);
        assert_eq!(notify.read_u16(12), 2);
        notify.write_u16(12, 7);
        pci.doorbell(2).ring();
        assert_eq!(notify.read_u16(12), 2);
        // A queue that no driver of ours uses is not notified.
        pci.set_queue(QUEUES_MAX as u16, 256, ADDRESSES);
        pci.notify(QUEUES_MAX as u16);
        pci.doorbell(QUEUES_MAX as u16).ring();
        assert_eq!((notify.read_u16(12), notify.read_u16(0)), (2, 0));
    }

    #[test]
    fn a_queue_is_gone_on_with_as_it_was_set() {
        let ([common, notify, own], mut first) = device();
        first.set_features(0);
        common.write_u16(30, 3);
        first.set_queue(2, 256, ADDRESSES);
        let mut pci = Pci::new(common, notify, 4, own);
        assert!(pci.adopt_queue(2, 256, ADDRESSES));
        pci.notify(2);
        assert_eq!((notify.read_u16(12), common.read_u16(22)), (2, 2));
        assert!(!pci.adopt_queue(2, 128, ADDRESSES));
        let QueueAddresses { descriptors, available, used } = ADDRESSES;
        for wrong in [
            QueueAddresses { descriptors: descriptors + (1 << 32), ..ADDRESSES },
            QueueAddresses { available: available + 1, ..ADDRESSES },
            QueueAddresses { used: used + (1 << 33), ..ADDRESSES },
        ] {
            assert!(!pci.adopt_queue(2, 256, wrong));
        }
        for (offset, right, wrong) in [(16, NO_VECTOR, 0), (26, 0, 1), (28, 1, 0)] {
            common.write_u16(offset, wrong);
            assert!(!pci.adopt_queue(2, 256, ADDRESSES), "{offset}");
            common.write_u16(offset, right);
            assert!(pci.adopt_queue(2, 256, ADDRESSES), "{offset}");
        }
        // One that interrupts by another message is another's, until it is set so.
        pci.set_message(2, 2);
        assert!(!pci.adopt_queue(2, 256, ADDRESSES));
        pci.set_queue(2, 256, ADDRESSES);
        assert!(pci.adopt_queue(2, 256, ADDRESSES) && common.read_u16(26) == 2);
        pci.set_queue(1, 256, ADDRESSES);
        assert_eq!(common.read_u16(26), 0);
    }
}
