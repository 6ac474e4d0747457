//! Devices: claimed once, kept, lent to whoever runs now.

use alloc::collections::BTreeMap;
use alloc::string::String;

use abi::start::{DeviceRecord, StartRecord, kind};
use abi::{Error, Handle, Rights};

use crate::Book;
use crate::domains::Parts;
use crate::machine::Machine;
use crate::start_page::record;

/// More devices than this are not looked at.
const DEVICES_MAX: u64 = 256;
/// `DeviceRecord::hwid` of the first serial port.
const SERIAL: u64 = 0x2_0000;

/// No device but a right: to end the machine (and, as the kernel has it, all else the core object allows: CAVEATS.md).
const POWER: &str = "power";

/// Claims by kind.
#[derive(Default)]
pub(crate) struct Devices {
    claimed: BTreeMap<String, Claim>,
}

#[derive(Clone, Copy)]
struct Claim {
    device: Handle,
    index: u64,
    id: u64,
}

fn is_of_kind(record: &DeviceRecord, kind: &str) -> bool {
    match kind {
        "serial" => record.hwid == SERIAL,
        // Modern and transitional network devices of VIRTIO 1.2, 5.1; a memory-mapped one is listed with the modern id.
        "virtio-net" => record.vendor == 0x1af4 && matches!(record.device, 0x1041 | 0x1000),
        _ => false,
    }
}

impl<M: Machine> Book<M> {
    /// The first device of a kind for a domain; `None` if the machine has none.
    pub(crate) fn lend(&mut self, name: &str, into: &Parts) -> Result<Option<StartRecord>, Error> {
        if name == POWER {
            let mut made = record(kind::CAPABILITY, POWER, "");
            made.handle = self.machine.grant(into.domain, Handle::PCORE, Rights::CONTROL)?.0;
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
                let device = self.machine.claim(index)?;
                let claim = Claim { device, index, id: (found.vendor as u64) << 16 | found.device as u64 };
                self.devices.claimed.insert(name.into(), claim);
                claim
            }
        };
        let mut made = record(kind::DEVICE, name, "");
        made.handle = self.machine.grant(into.domain, claim.device, Rights::ALL)?.0;
        (made.a, made.b) = (claim.index, claim.id);
        Ok(Some(made))
    }

    /// Makes devices quiet whose user is gone: from here on they touch none of its memory.
    pub(crate) fn quieten(&mut self, kinds: &[String]) {
        for claim in kinds.iter().filter_map(|kind| self.devices.claimed.get(kind).copied()) {
            // A serial port has nothing to stop and says so.
            let _ = self.machine.quiet(claim.device);
        }
    }
}
