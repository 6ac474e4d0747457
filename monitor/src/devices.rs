//! Devices: claimed once, kept, and assigned to the domain that runs now.
//!
//! A device goes on when its user dies: all it reaches lies in regions that outlive the user, and
//! the next one goes on with it (decision 25). If nobody comes to serve with it for [`ALONE_NS`] it
//! is made quiet.

use alloc::collections::BTreeMap;
use alloc::string::String;

use abi::start::{DeviceRecord, StartRecord, kind};
use abi::{Error, Handle, Rights};

use crate::Registry;
use crate::domains::Parts;
use crate::machine::Machine;
use crate::start_page::record;

/// More devices than this are not looked at.
const DEVICES_MAX: u64 = 256;
/// `DeviceRecord::hwid` of the first virtio-mmio window.
const MMIO: u64 = 0x1_0000;
/// `DeviceRecord::hwid` of the first serial port.
const SERIAL: u64 = 0x2_0000;

/// No devices but rights. To end the machine, and nothing else.
const POWER: &str = "power";
/// To do with cores and their memory whatever the kernel can: for programs that manage cores of
/// their own.
const CORES: &str = "cores";

/// A device whose user died and of which nobody serves for so long is made quiet.
pub const ALONE_NS: u64 = 2_000_000_000;

/// Claims by kind.
#[derive(Default)]
pub(crate) struct Devices {
    claimed: BTreeMap<String, Claim>,
    /// Those whose user died, and since when they are known to be without one that serves.
    alone: BTreeMap<String, Option<u64>>,
}

#[derive(Clone, Copy)]
struct Claim {
    device: Handle,
    index: u64,
    id: u64,
}

impl Devices {
    /// Whether none was claimed.
    pub(crate) fn is_empty(&self) -> bool {
        self.claimed.is_empty()
    }
}

fn is_of_kind(record: &DeviceRecord, kind: &str) -> bool {
    match kind {
        "serial" => record.hwid == SERIAL,
        // Modern and transitional devices of VIRTIO 1.2, 5.1, 5.2 and 5.3; a memory-mapped one is
        // listed with the modern id.
        "virtio-net" => record.vendor == 0x1af4 && matches!(record.device, 0x1041 | 0x1000),
        "virtio-blk" => record.vendor == 0x1af4 && matches!(record.device, 0x1042 | 0x1001),
        "virtio-console" => record.vendor == 0x1af4 && matches!(record.device, 0x1043 | 0x1003),
        _ => false,
    }
}

/// For people: which of `kinds` a device is, that is whose driver the system has; and its place as
/// the kernel prints it.
pub fn describe(device: &DeviceRecord, kinds: &[&str]) -> (Option<String>, String) {
    let kind = kinds.iter().find(|kind| is_of_kind(device, kind)).map(|kind| (*kind).into());
    let hwid = device.hwid;
    let place = match hwid {
        SERIAL.. => alloc::format!("port:{:02x}", hwid - SERIAL),
        MMIO.. => alloc::format!("mmio:{:02x}", hwid - MMIO),
        _ => alloc::format!("{:02x}:{:02x}.{}", hwid >> 8, hwid >> 3 & 31, hwid & 7),
    };
    (kind, place)
}

impl<M: Machine> Registry<M> {
    /// The first device of a kind for a domain that is to have so many handlers of it; `None` if
    /// the machine has none.
    pub(crate) fn assign_device(
        &mut self,
        name: &str,
        handlers: u8,
        into: &Parts,
    ) -> Result<Option<StartRecord>, Error> {
        let right = match name {
            POWER => Some(Rights::POWER),
            CORES => Some(Rights::ALL),
            _ => None,
        };
        if let Some(right) = right {
            let mut made = record(kind::CAPABILITY, name, "");
            made.handle = self.machine.grant(into.domain, Handle::PCORE, right)?.0;
            return Ok(Some(made));
        }
        let claim = match self.devices.claimed.get(name) {
            Some(claim) => *claim,
            None => {
                let machine = &mut self.machine;
                let all = (0..DEVICES_MAX).map_while(|index| Some((index, machine.device(index)?)));
                let mut fitting = all.filter(|(_, device)| is_of_kind(device, name));
                let Some((index, found)) = fitting.next() else { return Ok(None) };
                drop(fitting);
                let device = self.machine.claim(found.hwid)?;
                let claim = Claim { device, index, id: (found.vendor as u64) << 16 | found.device as u64 };
                self.devices.claimed.insert(name.into(), claim);
                claim
            }
        };
        let mut made = record(kind::DEVICE, name, "");
        made.handle = self.machine.grant(into.domain, claim.device, Rights::ALL)?.0;
        (made.a, made.b) = (claim.index, u64::from(handlers) << 32 | claim.id);
        Ok(Some(made))
    }

    /// The user of these devices died.
    pub(crate) fn leave(&mut self, kinds: &[String]) {
        for kind in kinds.iter().filter(|kind| self.devices.claimed.contains_key(*kind)) {
            self.devices.alone.entry(kind.clone()).or_insert(None);
        }
    }

    /// Their user serves.
    pub(crate) fn serve_with(&mut self, kinds: &[String]) {
        self.devices.alone.retain(|kind, _| !kinds.contains(kind));
    }

    /// Makes devices quiet with which nobody serves any more, save one whose next user is starting:
    /// if that dies, it is asked for again. Gives how many nanoseconds later it is to be called
    /// again at the latest, if it is. To be called after each look at deaths.
    pub fn quiesce_unused(&mut self, now_ns: u64) -> Option<u64> {
        let mut next_ns = None;
        for (kind, since) in &mut self.devices.alone {
            let alone_ns = now_ns.saturating_sub(*since.get_or_insert(now_ns));
            if alone_ns < ALONE_NS {
                next_ns = next_ns.max(Some(ALONE_NS - alone_ns));
            } else if !self.domains.values().any(|domain| domain.plan.devices.contains(kind))
                && let Some(claim) = self.devices.claimed.get(kind)
            {
                // A serial port has nothing to stop and says so.
                let _ = self.machine.quiet(claim.device);
            }
        }
        next_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_the_kernel_names_them() {
        let device = |hwid, vendor, device| DeviceRecord { hwid, vendor, device, ..DeviceRecord::default() };
        let kinds = ["serial", "virtio-net"];
        let card = describe(&device(0x108, 0x1af4, 0x1041), &kinds);
        assert_eq!(card, (Some("virtio-net".into()), "01:01.0".into()));
        assert_eq!(describe(&device(0xfb, 0x8086, 0x2930), &kinds), (None, "00:1f.3".into()));
        assert_eq!(describe(&device(0x10002, 0x1af4, 0x1042), &kinds), (None, "mmio:02".into()));
        for disk in [0x1042, 0x1001] {
            assert_eq!(describe(&device(0x10, 0x1af4, disk), &["virtio-blk"]).0, Some("virtio-blk".into()));
        }
        assert_eq!(describe(&device(SERIAL, 0, 0), &kinds), (Some("serial".into()), "port:00".into()));
        assert_eq!(describe(&device(0x108, 0x1af4, 0x1041), &[]).0, None);
        let drivers = ["virtio-net", "virtio-blk", "virtio-console"];
        let numbers = [0x1041, 0x1000, 0x1042, 0x1001, 0x1043, 0x1003];
        let kinds = numbers.map(|number| describe(&device(0x108, 0x1af4, number), &drivers).0);
        let [net, disk, console] = drivers.map(|kind| Some(kind.into()));
        assert_eq!(kinds, [net.clone(), net, disk.clone(), disk, console.clone(), console]);
        // Another maker's numbers mean something else.
        assert!(numbers.iter().all(|number| describe(&device(0x108, 0x8086, *number), &drivers).0.is_none()));
        assert_eq!(describe(&device(0x108, 0x1af4, 0x1044), &drivers).0, None);
    }
}
