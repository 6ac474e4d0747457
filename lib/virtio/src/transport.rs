//! What PCI and MMIO have in common (virtio 1.2, section 4).

/// Device status bits (section 2.1).
pub mod status {
    /// The device was seen.
    pub const ACKNOWLEDGE: u8 = 1;
    /// There is a driver.
    pub const DRIVER: u8 = 2;
    /// The driver is ready.
    pub const DRIVER_OK: u8 = 4;
    /// Features are agreed.
    pub const FEATURES_OK: u8 = 8;
}

/// Physical addresses of a queue's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueAddresses {
    /// Descriptor table.
    pub descriptors: u64,
    /// Available ring.
    pub available: u64,
    /// Used ring.
    pub used: u64,
}

/// Registers of a device.
pub trait Transport {
    /// Status; 0 after a reset that is done.
    fn status(&mut self) -> u8;
    /// Sets status; 0 resets.
    fn set_status(&mut self, status: u8);
    /// Features offered.
    fn features(&mut self) -> u64;
    /// Features wanted.
    fn set_features(&mut self, features: u64);
    /// Most entries of a queue; 0 if there is no such queue.
    fn queue_entries(&mut self, queue: u16) -> u16;
    /// Switches a queue on.
    fn set_queue(&mut self, queue: u16, entries: u16, addresses: QueueAddresses);
    /// Learns what is needed to notify a queue that is switched on already.
    fn adopt_queue(&mut self, _queue: u16) {}
    /// Tells the device that a queue has news.
    fn notify(&mut self, queue: u16);
    /// A byte of the device's configuration.
    fn configuration(&mut self, offset: u64) -> u8;
    /// Answers an interrupt that needs an answer; tells whether it was for a changed configuration
    /// too.
    fn acknowledge(&mut self) -> bool;
}

impl<T: Transport + ?Sized> Transport for alloc::boxed::Box<T> {
    fn status(&mut self) -> u8 {
        (**self).status()
    }
    fn set_status(&mut self, status: u8) {
        (**self).set_status(status);
    }
    fn features(&mut self) -> u64 {
        (**self).features()
    }
    fn set_features(&mut self, features: u64) {
        (**self).set_features(features);
    }
    fn queue_entries(&mut self, queue: u16) -> u16 {
        (**self).queue_entries(queue)
    }
    fn set_queue(&mut self, queue: u16, entries: u16, addresses: QueueAddresses) {
        (**self).set_queue(queue, entries, addresses);
    }
    fn adopt_queue(&mut self, queue: u16) {
        (**self).adopt_queue(queue);
    }
    fn notify(&mut self, queue: u16) {
        (**self).notify(queue);
    }
    fn configuration(&mut self, offset: u64) -> u8 {
        (**self).configuration(offset)
    }
    fn acknowledge(&mut self) -> bool {
        (**self).acknowledge()
    }
}
