//! Devices.

use super::records::*;
use super::{Answer, NOTHING, Outcome, Request, one};
use crate::devices::{self, DeviceInfo};
use crate::hardware::{port_read8, port_write8};
use crate::memory::{PAGE, PhysAddr};
use crate::objects::device::{Hardware, PORTS, PORTS_HWID};
use crate::objects::segment::Kind;
use crate::objects::{Ptr, Segment, user_memory};
use crate::state::Kernel;
use abi::layout::SEGMENT_PAGES_MAX;
use abi::start::DeviceRecord;
use abi::{Error, Rights};
use zerocopy::IntoBytes;

fn record(hardware: Hardware) -> DeviceRecord {
    match hardware {
        Hardware::Found(info) => found_record(info),
        Hardware::Ports(number) => {
            let mut windows = [[0; 2]; 6];
            windows[0] = [PORTS[number].base.into(), PORTS[number].count.into()];
            DeviceRecord { hwid: PORTS_HWID + number as u64, windows, interrupts: 1, ..DeviceRecord::default() }
        }
    }
}

fn found_record(info: &DeviceInfo) -> DeviceRecord {
    let windows = core::array::from_fn(|index| {
        let bar = &info.bars[index];
        if bar.bytes == 0 { [0; 2] } else { [bar.base.0, bar.bytes] }
    });
    let messages = info.msix.map_or(0, |msix| u64::from(msix.entries));
    DeviceRecord {
        hwid: u64::from(info.hwid),
        vendor: info.vendor,
        device: info.device,
        class: info.class,
        windows,
        interrupts: if info.line.is_some() { 1 } else { messages },
    }
}

pub(super) fn device_list(kernel: &mut Kernel, request: Request, call: DeviceList) -> Answer {
    let hardware = Hardware::at(kernel, call.index).ok_or(Error::NotFound)?;
    let record = record(hardware);
    user_memory::write(kernel, request.caller.domain().range(), call.record, record.as_bytes())?;
    NOTHING
}

pub(super) fn device_alloc(kernel: &mut Kernel, request: Request, call: DeviceAlloc) -> Answer {
    let all = (0..).map_while(|index| Some((index, Hardware::at(kernel, index)?)));
    let mut named = all.filter(|(_, hardware)| record(*hardware).hwid == call.hwid);
    let (index, hardware) = named.next().ok_or(Error::NotFound)?;
    request.place_new(kernel, |kernel| hardware.claim(kernel, call.ram, index as usize))
}

pub(super) fn device_window(kernel: &mut Kernel, request: Request, call: DeviceWindow) -> Answer {
    let (device, (_, held)) = call.device;
    let info = device.found()?;
    let bar = usize::try_from(call.window).ok().and_then(|index| info.bars.get(index)).ok_or(Error::NotFound)?;
    let memory = bar.memory().ok_or(Error::NotFound)?;
    let offset = memory.base.0 % PAGE;
    let pages = (offset + memory.bytes).div_ceil(PAGE);
    if pages > SEGMENT_PAGES_MAX {
        return Err(Error::BadArgument);
    }
    let slot = request.slot(kernel)?;
    let kind = Kind::Imported { base: PhysAddr(memory.base.0 - offset), uncached: true, is_ram: false };
    let segment = Ptr::<Segment>::new_imported(kernel, call.ram, pages, kind)?;
    // Registers are as dangerous as what is configured: who may not write that may not write these.
    let rights = if held.rights.contains(Rights::WRITE) { Rights::ALL } else { Rights::READ.union(Rights::GRANT) };
    Ok(Outcome::Done([request.place(slot, segment.any(), rights), offset, 0]))
}

/// Where in a dword of configuration space an access of `width` bytes lies: (offset of the dword,
/// shift, mask).
fn configuration(offset: u64, width: u64) -> Result<(u16, u32, u32), Error> {
    let fits = matches!(width, 1 | 2 | 4) && offset < 4096 && offset.is_multiple_of(width);
    if !fits {
        return Err(Error::BadArgument);
    }
    let mask = (u64::from(u32::MAX) >> (32 - 8 * width)) as u32;
    Ok((offset as u16 & !3, 8 * (offset as u32 & 3), mask))
}

pub(super) fn device_conf_read(_: &Kernel, _: Request, call: DeviceConfRead) -> Answer {
    let info = call.device.found()?;
    let (offset, shift, mask) = configuration(call.offset, call.width)?;
    let dword = devices::config_read(info, offset).ok_or(Error::NotFound)?;
    one(u64::from(dword >> shift & mask))
}

/// Whether a driver may write this dword, in a space that `read` reads: not identification and
/// command (DMA is `DeviceMaster`'s), not base addresses, ROM, interrupt line or bridge registers,
/// not the MSI-X and MSI capabilities, which decide where messages go, nor enhanced allocation,
/// which has base addresses. Of the extended space nothing: there are the base addresses of virtual
/// functions, the sizes of base addresses, and what lets requests past translation.
fn is_writable(read: impl Fn(u16) -> Option<u32>, offset: u16) -> bool {
    const HEADER_BYTES: u16 = 0x40;
    const EXTENDED: u16 = 0x100;
    const MSI: u32 = 0x05;
    const MSIX: u32 = 0x11;
    const ENHANCED_ALLOCATION: u32 = 0x14;
    if !(HEADER_BYTES..EXTENDED).contains(&offset) {
        return false;
    }
    // Capabilities are a list through configuration space; 48 are all that fit.
    let mut at = read(0x34).map_or(0, |dword| dword as u16 & 0xfc);
    for _ in 0..48 {
        if at < HEADER_BYTES {
            break;
        }
        let Some(dword) = read(at) else { break };
        let bytes = match dword & 0xff {
            MSI => 24,
            MSIX => 12,
            ENHANCED_ALLOCATION => EXTENDED - at,
            _ => 0,
        };
        if (at..at + bytes).contains(&offset) {
            return false;
        }
        at = (dword >> 8) as u16 & 0xfc;
    }
    true
}

pub(super) fn device_conf_write(_: &Kernel, _: Request, call: DeviceConfWrite) -> Answer {
    let info = call.device.found()?;
    let (offset, shift, mask) = configuration(call.offset, call.width)?;
    let dword = devices::config_read(info, offset).ok_or(Error::NotFound)?;
    if !is_writable(|at| devices::config_read(info, at), offset) {
        return Err(Error::NoRights);
    }
    let value = dword & !(mask << shift) | (call.value as u32 & mask) << shift;
    devices::config_write(info, offset, value).ok_or(Error::NotFound)?;
    NOTHING
}

pub(super) fn device_interrupt(kernel: &mut Kernel, _: Request, call: DeviceInterrupt) -> Answer {
    let (_, target) = call.target;
    call.device.route(kernel, call.entry, target)?;
    NOTHING
}

pub(super) fn device_master(_: &Kernel, _: Request, call: DeviceMaster) -> Answer {
    call.device.set_master(call.on)?;
    NOTHING
}

pub(super) fn device_port_read(_: &Kernel, _: Request, call: DevicePortRead) -> Answer {
    let DevicePortRead { device, offset, width } = call;
    let port = device.port(offset, width)?;
    // The port belongs to the device claimed.
    one((0..width as u16).fold(0, |value, byte| value | u64::from(port_read8(port + byte)) << (8 * byte)))
}

pub(super) fn device_port_write(_: &Kernel, _: Request, call: DevicePortWrite) -> Answer {
    let DevicePortWrite { device, offset, width, value } = call;
    let port = device.port(offset, width)?;
    for byte in 0..width as u16 {
        port_write8(port + byte, (value >> (8 * byte)) as u8);
    }
    NOTHING
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function with MSI at 0x50, a vendor's capability at 0x70, MSI-X at 0x90, enhanced
    /// allocation at 0xc0, and SR-IOV and resizable base addresses in the extended space.
    fn read(at: u16) -> Option<u32> {
        Some(match at {
            0x34 => 0x50,
            0x50 => 0x7005,
            0x70 => 0x9009,
            0x90 => 0xc011,
            0xc0 => 0x0014,
            0x100 => 0x1401_0010,
            0x140 => 0x0001_0015,
            _ => 0,
        })
    }

    #[test]
    fn what_decides_where_a_device_is_and_what_it_reaches_is_not_the_drivers() {
        let writable = |from: u16, to: u16| (from..to).step_by(4).all(|at| is_writable(read, at));
        let refused = |from: u16, to: u16| (from..to).step_by(4).all(|at| !is_writable(read, at));
        assert!(refused(0, 0x40) && writable(0x40, 0x50));
        assert!(refused(0x50, 0x68) && writable(0x68, 0x90));
        assert!(refused(0x90, 0x9c) && writable(0x9c, 0xc0));
        // Base addresses of virtual functions are at 0x124.
        assert!(refused(0xc0, 0x1000));
    }

    /// The list begins at the first byte behind the header, and ends where it leads into that.
    #[test]
    fn the_header_is_no_part_of_the_list() {
        let first = |at: u16| {
            Some(match at {
                0x34 => 0x40,
                0x40 => 0x0005,
                _ => 0,
            })
        };
        assert!(!is_writable(first, 0x40));
        let into_it = |at: u16| {
            Some(match at {
                0x34 => 0x20,
                0x20 => 0x6011,
                0x60 => 0x0005,
                _ => 0,
            })
        };
        assert!(is_writable(into_it, 0x60));
    }

    #[test]
    fn a_list_that_goes_in_circles_ends() {
        assert!(is_writable(|_| Some(0x4040_4009), 0x80));
    }
}
