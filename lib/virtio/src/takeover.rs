//! How a driver goes on with the device that its predecessor left running.
//!
//! What the driver's own records say is the driver's; here is what all drivers ask of the device
//! before they believe it.

use crate::transport::{DeviceOwner, NotRunning, QueueAddresses, Transport, adopt};

/// So many drivers in a row may go on with the device without serving for long; the next resets it.
pub const HEIRS_MAX: u8 = 2;

/// How a device was found; `W` says why it was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<W> {
    /// As a predecessor left it, which it works on for; nothing was lost.
    Running,
    /// It was reset: it had no driver before,
    Fresh,
    /// or not one whose work can be gone on with.
    Reset(W),
}

/// How a predecessor left the device, by its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Running with these features; `None`: it was being reset.
    pub features: Option<u64>,
    /// Drivers that went on with it without serving for long.
    pub heirs: u8,
}

/// Why a device cannot be gone on with; remedy: reset it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The driver died while it reset the device.
    Starting,
    /// So many drivers went on with it and died soon.
    Heirs(u8),
    /// The device is not as the driver left it.
    Device(NotRunning),
}

impl Left {
    /// Goes on with the device, if it is as it was left with these queues (number, entries,
    /// addresses); gives the features. `keep_heirs` records that one more driver does so.
    pub fn adopt<T: Transport + ?Sized>(
        self,
        transport: &mut T,
        owner: &mut dyn DeviceOwner,
        needed: u64,
        queues: &[(u16, u16, QueueAddresses)],
        keep_heirs: impl FnOnce(u8),
    ) -> Result<u64, Unfit> {
        let features = self.features.ok_or(Unfit::Starting)?;
        if self.heirs >= HEIRS_MAX {
            return Err(Unfit::Heirs(self.heirs));
        }
        keep_heirs(self.heirs + 1);
        adopt(transport, owner, features | needed, queues).map_err(Unfit::Device)?;
        Ok(features)
    }
}
