//! What PCI and MMIO have in common (virtio 1.2, section 4): how a device is started anew, and how
//! a driver finds that it runs for a predecessor and may be gone on with.

use alloc::boxed::Box;

use crate::doorbell::Doorbell;

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
    /// All of these: it works for a driver. With any other bit (DEVICE_NEEDS_RESET, FAILED) it does
    /// not.
    pub const RUNNING: u8 = ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK;
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
    /// Learns what is needed to notify a queue that is switched on already. False if the device
    /// tells that it is not, or that it has another size, place or interrupt than
    /// [`set_queue`](Self::set_queue) gives it; not all devices tell all of that.
    fn adopt_queue(&mut self, queue: u16, entries: u16, addresses: QueueAddresses) -> bool;
    /// Which message a queue interrupts by that is switched on or gone on with after this; else it
    /// is 0. Of a device without messages nothing comes of it.
    fn set_message(&mut self, queue: u16, message: u16);
    /// Tells the device that a queue has news.
    fn notify(&mut self, queue: u16);
    /// The doorbell of a queue that was switched on or gone on with, which does what
    /// [`notify`](Self::notify) does for that queue. A queue that is switched on again has another.
    fn doorbell(&mut self, queue: u16) -> Box<dyn Doorbell>;
    /// A byte of the device's configuration.
    fn configuration(&mut self, offset: u64) -> u8;
    /// Answers an interrupt that needs an answer; tells whether it was for a changed configuration
    /// too.
    fn acknowledge(&mut self) -> bool;
}

/// Why a device did not come as far as having its queues set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetError {
    /// Status did not read 0 in time after a reset. Remedy: none; its memory must not be used.
    NoReset,
    /// It lacks a feature that is needed. Remedy: another device model.
    Features,
    /// The kernel refused it access to memory. Remedy: none.
    NoMemoryAccess,
}

/// What a start needs of the holder of the device.
pub trait DeviceOwner {
    /// Whether the device reaches memory.
    fn reaches_memory(&mut self) -> bool;
    /// Lets a device that was reset reach memory; false if the kernel refuses.
    fn enable_bus_master(&mut self) -> bool;
    /// Whether to give up; asked after each look at a device that takes its time.
    fn has_timed_out(&mut self) -> bool;
}

/// Resets a device and waits until it is: from here on it touches no memory.
pub fn stop<T: Transport + ?Sized>(transport: &mut T, owner: &mut dyn DeviceOwner) -> Result<(), ResetError> {
    transport.set_status(0);
    while transport.status() != 0 {
        if owner.has_timed_out() {
            return Err(ResetError::NoReset);
        }
    }
    Ok(())
}

/// Resets a device, gives it access to memory, as what it did for an earlier driver is over then,
/// and agrees on features (section 3.1.1, in its order): all of `needed`, and each set of `wanted`
/// that it offers whole; gives those.
pub fn reset<T: Transport + ?Sized>(
    transport: &mut T,
    needed: u64,
    wanted: &[u64],
    owner: &mut dyn DeviceOwner,
) -> Result<u64, ResetError> {
    stop(transport, owner)?;
    if !owner.enable_bus_master() {
        return Err(ResetError::NoMemoryAccess);
    }
    transport.set_status(status::ACKNOWLEDGE | status::DRIVER);
    let offered = transport.features();
    if offered & needed != needed {
        return Err(ResetError::Features);
    }
    let agreed = wanted.iter().filter(|wanted| offered & **wanted == **wanted).fold(needed, |all, wanted| all | wanted);
    transport.set_features(agreed);
    transport.set_status(status::RUNNING & !status::DRIVER_OK);
    if transport.status() & status::FEATURES_OK == 0 {
        return Err(ResetError::Features);
    }
    Ok(agreed)
}

/// Ends what [`reset`] began, when the queues are set: the device works from here on.
pub fn run<T: Transport + ?Sized>(transport: &mut T) {
    transport.set_status(status::RUNNING);
}

/// Why a device cannot be gone on with as it is; remedy: reset it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRunning {
    /// It may not reach memory, as somebody made it quiet.
    Quiet,
    /// Its status, which is not [`status::RUNNING`].
    Status(u8),
    /// It does not offer what was agreed.
    Features,
    /// That queue is not as the predecessor set it.
    Queue(u16),
}

/// Goes on with a device that a predecessor started with these features and queues (number,
/// entries, addresses).
pub fn adopt<T: Transport + ?Sized>(
    transport: &mut T,
    owner: &mut dyn DeviceOwner,
    agreed: u64,
    queues: &[(u16, u16, QueueAddresses)],
) -> Result<(), NotRunning> {
    if !owner.reaches_memory() {
        return Err(NotRunning::Quiet);
    }
    let found = transport.status();
    if found != status::RUNNING {
        return Err(NotRunning::Status(found));
    }
    if transport.features() & agreed != agreed {
        return Err(NotRunning::Features);
    }
    for &(queue, entries, addresses) in queues {
        if !transport.adopt_queue(queue, entries, addresses) {
            return Err(NotRunning::Queue(queue));
        }
    }
    Ok(())
}

impl<T: Transport + ?Sized> Transport for Box<T> {
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
    fn adopt_queue(&mut self, queue: u16, entries: u16, addresses: QueueAddresses) -> bool {
        (**self).adopt_queue(queue, entries, addresses)
    }
    fn set_message(&mut self, queue: u16, message: u16) {
        (**self).set_message(queue, message);
    }
    fn notify(&mut self, queue: u16) {
        (**self).notify(queue);
    }
    fn doorbell(&mut self, queue: u16) -> Box<dyn Doorbell> {
        (**self).doorbell(queue)
    }
    fn configuration(&mut self, offset: u64) -> u8 {
        (**self).configuration(offset)
    }
    fn acknowledge(&mut self) -> bool {
        (**self).acknowledge()
    }
}

#[cfg(test)]
mod tests;
