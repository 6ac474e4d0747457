//! Opens the device through the kernel: windows, interrupt, memory access.
#![allow(unsafe_code)]

use abi::{Handle, Rights};
use alloc::boxed::Box;
use runtime::Start;
use virtio_net::Transport;
use virtio_net::mmio::Mmio;
use virtio_net::pci::{self, Pci, Place};
use virtio_net::registers::Registers;

/// A claimed device.
#[derive(Clone, Copy)]
pub struct Claim {
    handle: Handle,
    /// Its interrupt is a line that has to be opened again.
    line: bool,
}

/// Opens the device named `virtio-net` in the start page; `None` after logging why not.
pub fn open(start: &Start, interrupt: u64) -> Option<(Box<dyn Transport>, Claim)> {
    let Some(device) = start.device("virtio-net") else {
        runtime::log!("no device virtio-net was given: start the machine with a virtio network card");
        return None;
    };
    let pci = device.vendor == 0x1af4 && sys::device_conf_read(device.handle, 0, 2).is_ok();
    let opened = if pci { open_pci(device.handle) } else { open_mmio(device.handle) };
    let transport = match opened {
        Ok(transport) => transport,
        Err(reason) => {
            runtime::log!("the device cannot be used: {reason}");
            return None;
        }
    };
    let ready = sys::device_master(device.handle, true)
        .and_then(|()| sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, interrupt))
        .and_then(|notification| sys::device_interrupt(device.handle, 0, notification));
    if let Err(error) = ready {
        runtime::log!("no interrupt or memory access for the device: {error:?}");
        return None;
    }
    Some((transport, Claim { handle: device.handle, line: !pci }))
}

/// An interrupt came: quiets the device by `acknowledge` where it holds a line up, and opens the line.
pub fn answered(claim: Claim, acknowledge: &mut dyn FnMut()) {
    if claim.line {
        acknowledge();
        // A device that is ours cannot refuse this; if it did, the next turn still looks at the rings.
        let _ = sys::device_interrupt_done(claim.handle, 0);
    }
}

fn open_pci(device: Handle) -> Result<Box<dyn Transport>, &'static str> {
    let places = pci::find(|offset, width| sys::device_conf_read(device, offset, width).ok())
        .ok_or("it has no virtio 1 structures (QEMU: disable-legacy=on)")?;
    let mut windows = [None; 6];
    let mut map = |place: Place| -> Result<Registers, &'static str> {
        let slot = windows.get_mut(usize::from(place.window)).ok_or("a structure lies in no window")?;
        let window = match *slot {
            Some(window) => window,
            None => *slot.insert(map_window(device, place.window.into())?),
        };
        Ok(window.part(place.offset.into(), place.bytes.into()))
    };
    let (common, notify, own) = (map(places.common)?, map(places.notify)?, map(places.device)?);
    Ok(Box::new(Pci::new(common, notify, places.notify_step, own)))
}

fn open_mmio(device: Handle) -> Result<Box<dyn Transport>, &'static str> {
    let registers = map_window(device, 0)?;
    match Mmio::new(registers) {
        Ok(transport) => Ok(Box::new(transport)),
        Err(_) => {
            Err("it is no network device of virtio-mmio version 2 (QEMU: -global virtio-mmio.force-legacy=false)")
        }
    }
}

fn map_window(device: Handle, window: u64) -> Result<Registers, &'static str> {
    let (segment, offset) =
        sys::device_window(device, Handle::SELF_RAM, window).map_err(|_| "a register window is missing")?;
    let (address, bytes, keeper) = runtime::map_segment(segment).map_err(|_| "no room to map registers")?;
    core::mem::forget(keeper);
    // SAFETY: just mapped, and never unmapped: the keeper is forgotten. The kernel maps a device's window and nothing else.
    Ok(unsafe { Registers::new(address + offset, bytes.saturating_sub(offset)) })
}
