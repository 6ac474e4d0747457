//! Devices and the console port.

use abi::start::DeviceRecord;
use abi::{Call, Handle};

use crate::{Outcome, call};

/// `ConsoleWrite`: raw bytes, at most 4096.
pub fn console_write(device: Handle, bytes: &[u8]) -> Outcome<()> {
    // SAFETY: the kernel reads `bytes`.
    unsafe { call(Call::ConsoleWrite, [device.0, bytes.as_ptr() as u64, bytes.len() as u64, 0, 0, 0]) }.map(drop)
}

/// `DeviceList`: the device with that index; `NotFound` past the last.
pub fn device_list(index: u64) -> Outcome<DeviceRecord> {
    let mut record = DeviceRecord::default();
    // SAFETY: the kernel fills `record`, plain data of this layout.
    unsafe { call(Call::DeviceList, [index, &raw mut record as u64, 0, 0, 0, 0]) }?;
    Ok(record)
}

/// `DeviceAlloc`: `hwid` is that of a `DeviceRecord`.
pub fn device_alloc(pcore: Handle, ram: Handle, hwid: u64) -> Outcome<Handle> {
    // SAFETY: makes an object.
    let results = unsafe { call(Call::DeviceAlloc, [pcore.0, ram.0, hwid, 0, 0, 0]) }?;
    Ok(Handle(results.words[0]))
}

/// `DeviceWindow`: a segment over register window 0..6, and the window's offset in its first page.
pub fn device_window(device: Handle, ram: Handle, window: u64) -> Outcome<(Handle, u64)> {
    // SAFETY: makes an object.
    let results = unsafe { call(Call::DeviceWindow, [device.0, ram.0, window, 0, 0, 0]) }?;
    Ok((Handle(results.words[0]), results.words[1]))
}

/// `DeviceConfRead`: `width` 1, 2 or 4 bytes.
pub fn device_conf_read(device: Handle, offset: u64, width: u64) -> Outcome<u64> {
    // SAFETY: reads only.
    let results = unsafe { call(Call::DeviceConfRead, [device.0, offset, width, 0, 0, 0]) }?;
    Ok(results.words[0])
}

/// `DeviceConfWrite`.
pub fn device_conf_write(device: Handle, offset: u64, width: u64, value: u64) -> Outcome<()> {
    // SAFETY: registers that decide about memory are refused by the kernel.
    unsafe { call(Call::DeviceConfWrite, [device.0, offset, width, value, 0, 0]) }.map(drop)
}

/// `DeviceInterrupt`.
pub fn device_interrupt(device: Handle, entry: u64, notification: Handle) -> Outcome<()> {
    // SAFETY: no memory of ours.
    unsafe { call(Call::DeviceInterrupt, [device.0, entry, notification.0, 0, 0, 0]) }.map(drop)
}

/// `DeviceMaster`: lets the device reach memory, or stops it. Safe in itself: addresses reach a
/// device through its registers only, and writing those is unsafe (or needs a DMA right) already.
pub fn device_master(device: Handle, on: bool) -> Outcome<()> {
    // SAFETY: see above.
    unsafe { call(Call::DeviceMaster, [device.0, on.into(), 0, 0, 0, 0]) }.map(drop)
}

/// `DevicePortRead`.
pub fn device_port_read(device: Handle, offset: u64, width: u64) -> Outcome<u64> {
    // SAFETY: a device's registers are no memory of ours.
    let results = unsafe { call(Call::DevicePortRead, [device.0, offset, width, 0, 0, 0]) }?;
    Ok(results.words[0])
}

/// `DevicePortWrite`.
pub fn device_port_write(device: Handle, offset: u64, width: u64, value: u64) -> Outcome<()> {
    // SAFETY: as `device_port_read`.
    unsafe { call(Call::DevicePortWrite, [device.0, offset, width, value, 0, 0]) }.map(drop)
}
