//! Device: the claim of this core on a device, and where its interrupts go.
//!
//! Invariants: a device is claimed at most once in the machine (`devices::claims`); each of its
//! interrupts that is routed has a vector of this core, which goes back when the device object
//! goes. A device whose last capability goes has its interrupts masked, but is not reset: the
//! monitor holds the device and decides. Registers, DMA and MSI-X tables are trusted to the driver:
//! without an IOMMU a driver can reach all memory anyway.

use super::notification::Notification;
use super::slot::Source;
use super::{Header, Made, Object, Ptr, Ram, Slot};
use crate::devices::DeviceInfo;
use crate::hardware;
use crate::state::Kernel;
use abi::{Error, ObjectType};
use core::cell::Cell;

/// Most interrupts of one device that can be routed.
pub const INTERRUPTS_MAX: usize = 16;
const VECTORS: usize = 256;
/// Hardware id of the first device that is only ports.
pub const PORTS_HWID: u64 = 0x2_0000;

/// A device that is only ports.
pub struct Ports {
    /// The first one.
    pub base: u16,
    /// How many.
    pub count: u16,
    /// Its I/O APIC line.
    line: u32,
}

/// Those there are, by number: the first serial port and the real-time clock.
pub static PORTS: [Ports; 2] = [Ports { base: 0x3f8, count: 8, line: 4 }, Ports { base: 0x70, count: 2, line: 8 }];

/// What a device is.
#[derive(Clone, Copy)]
pub enum Hardware {
    /// Found by boot.
    Found(&'static DeviceInfo),
    /// One of [`PORTS`].
    Ports(usize),
}

#[derive(Clone, Copy)]
struct Route {
    entry: u16,
    vector: u8,
}

/// A claim.
#[repr(C)]
pub struct Device {
    header: Header,
    /// Position in the device list.
    index: usize,
    hardware: Hardware,
    routes: [Cell<Option<Route>>; INTERRUPTS_MAX],
}

// SAFETY: repr(C), header first.
unsafe impl Object for Device {
    const TYPE: ObjectType = ObjectType::Device;
}

/// Who is told of each vector of this core.
///
/// | from | by what | to |
/// |---|---|---|
/// | free, no target | `route` of an entry or line that has none | routed |
/// | routed, masked | `route` of the same entry: another target | as before |
/// | routed | `set_master` off: its hardware does not raise it | masked |
/// | masked | `set_master` on | routed |
/// | routed, masked | its device object goes | free |
///
/// A vector that is free has no target; `route` asserts that.
pub struct Interrupts {
    targets: [Slot; VECTORS],
}

impl Interrupts {
    /// Nothing routed.
    pub(crate) const fn new() -> Interrupts {
        Interrupts { targets: [const { Slot::new() }; VECTORS] }
    }
}

impl Device {
    /// The device boot found; `NotFound` for one that is only ports.
    pub fn found(&self) -> Result<&'static DeviceInfo, Error> {
        match self.hardware {
            Hardware::Found(info) => Ok(info),
            Hardware::Ports(_) => Err(Error::NotFound),
        }
    }

    /// Its I/O APIC line; `None`: it sends messages.
    fn line(&self) -> Option<u32> {
        match self.hardware {
            Hardware::Found(info) => info.line,
            Hardware::Ports(number) => Some(PORTS[number].line),
        }
    }

    /// The port at `offset`, for an access of `width` bytes.
    pub fn port(&self, offset: u64, width: u64) -> Result<u16, Error> {
        let Hardware::Ports(number) = self.hardware else { return Err(Error::NotFound) };
        let Ports { base, count, .. } = PORTS[number];
        let fits = matches!(width, 1 | 2 | 4) && offset.checked_add(width).is_some_and(|end| end <= count.into());
        if fits { Ok(base + offset as u16) } else { Err(Error::BadArgument) }
    }
}

impl Hardware {
    /// The device at a position of the list: what boot found, then those that are only ports.
    pub fn at(kernel: &Kernel, index: u64) -> Option<Hardware> {
        let found = kernel.info.map_or(&[][..], |info| info.devices);
        let index = usize::try_from(index).ok()?;
        match found.get(index) {
            Some(info) => Some(Hardware::Found(info)),
            None => Some(index - found.len()).filter(|number| *number < PORTS.len()).map(Hardware::Ports),
        }
    }

    /// Claims it, for this core against all; `Busy` if it is claimed.
    pub fn claim(self, kernel: &mut Kernel, ram: Ptr<Ram>, index: usize) -> Made<Device> {
        if !hardware::claim_device(index) {
            return Err(Error::Busy);
        }
        let routes = [const { Cell::new(None) }; INTERRUPTS_MAX];
        let made = kernel.create(ram, |header| Device { header, index, hardware: self, routes });
        if made.is_err() {
            hardware::free_device(index);
        }
        made
    }
}

impl Ptr<Device> {
    /// Routes interrupt `entry` to whom the capability names; it passed `Notification::decode`.
    pub fn route(self, kernel: &mut Kernel, entry: u64, target: Source) -> Result<(), Error> {
        let entry = u16::try_from(entry).map_err(|_| Error::NotFound)?;
        if let Some(route) = self.routes.iter().filter_map(Cell::get).find(|route| route.entry == entry) {
            aim(kernel, route.vector, Some(target));
            return Ok(());
        }
        let free = self.routes.iter().find(|route| route.get().is_none()).ok_or(Error::Busy)?;
        let vector = hardware::allocate_vector().ok_or(Error::Busy)?;
        if let Err(error) = self.connect(kernel.core(), entry, vector) {
            hardware::free_vector(vector);
            return Err(error);
        }
        assert!(kernel.interrupts.targets[usize::from(vector)].get().is_none(), "a free vector has a target");
        aim(kernel, vector, Some(target));
        free.set(Some(Route { entry, vector }));
        Ok(())
    }

    /// Makes the hardware raise `vector` of this core. Lines are edges: the serial port's, and
    /// those of virtio-mmio windows on microvm (its device table says so).
    fn connect(self, core: usize, entry: u16, vector: u8) -> Result<(), Error> {
        let connected = match self.line() {
            None => hardware::program_msix(self.found()?, entry, vector),
            Some(line) if entry == 0 => hardware::route_ioapic(line, vector, core),
            Some(_) => None,
        };
        connected.ok_or(Error::NotFound)
    }

    /// Lets it reach memory, or makes it quiet: no DMA, no interrupts.
    pub fn set_master(self, on: bool) -> Result<(), Error> {
        hardware::set_bus_master(self.found()?, on);
        for route in self.routes.iter().filter_map(Cell::get) {
            mask(self, route.entry, !on);
        }
        Ok(())
    }
}

/// A device interrupt came.
pub fn interrupt(kernel: &mut Kernel, vector: u8) {
    if let Some(notification) = Notification::kept(&kernel.interrupts.targets[usize::from(vector)]) {
        notification.send(kernel);
    }
}

fn aim(kernel: &mut Kernel, vector: u8, target: Option<Source>) {
    let slot = kernel.interrupts.targets[usize::from(vector)].place();
    kernel.keep(&slot, target.map(|(_, capability)| capability), target.map(|(from, _)| from));
}

fn mask(device: Ptr<Device>, entry: u16, masked: bool) {
    match (device.line(), device.found()) {
        (Some(line), _) => hardware::mask_ioapic(line, masked),
        (None, Ok(info)) => hardware::mask_msix(info, entry, masked),
        (None, Err(_)) => (),
    }
}

pub(super) fn destroy(kernel: &mut Kernel, device: Ptr<Device>) {
    // Nobody answers for what it would still do.
    device.found().into_iter().for_each(|info| hardware::set_bus_master(info, false));
    for route in device.routes.iter().filter_map(Cell::take) {
        mask(device, route.entry, true);
        aim(kernel, route.vector, None);
        hardware::free_vector(route.vector);
    }
    hardware::free_device(device.index);
}
