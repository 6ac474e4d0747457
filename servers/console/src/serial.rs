//! The serial line: a 16550 UART behind port and interrupt calls. The kernel has set speed and
//! frame; only receiving is ours.
//!
//! Registers: National Semiconductor PC16550D data sheet, section 8.

use abi::Handle;
use abi::handle::Rights;
use console_core::service::Console;
use runtime::Device;

const DATA: u64 = 0;
const INTERRUPT_ENABLE: u64 = 1;
const LINE_STATUS: u64 = 5;
const RECEIVE_INTERRUPT: u64 = 1;
const DATA_READY: u64 = 1;
/// The line's only interrupt.
const ENTRY: u64 = 0;
/// Our badge bit for it.
const BIT: u64 = 1 << runtime::OWN_BITS.start;

/// Writes bytes, at most 4096. A line that is gone has nobody to tell.
pub fn write(device: Handle, bytes: &[u8]) {
    let _ = sys::console_write(device, bytes);
}

/// Hands what comes in to the console, for ever. Ends if the line cannot interrupt us.
pub async fn receive(device: Device, console: alloc::rc::Rc<Console>) {
    if let Err(error) = enable(device.handle) {
        return runtime::log!("the serial line gives no interrupts ({error:?}): no input");
    }
    loop {
        console.drain(|| next(device.handle)).await;
        runtime::notified(BIT).await;
    }
}

fn enable(device: Handle) -> Result<(), abi::Error> {
    let notification = sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, BIT)?;
    sys::device_interrupt(device, ENTRY, notification)?;
    sys::device_port_write(device, INTERRUPT_ENABLE, 1, RECEIVE_INTERRUPT)
}

/// The next byte that the chip holds.
fn next(device: Handle) -> Option<u8> {
    let status = sys::device_port_read(device, LINE_STATUS, 1).ok()?;
    if status & DATA_READY == 0 {
        return None;
    }
    sys::device_port_read(device, DATA, 1).ok().map(|byte| byte as u8)
}
