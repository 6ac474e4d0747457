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
/// Bytes taken before echo goes out: the receive queue of the chip.
const PIECE_BYTES: usize = 16;

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
        drain(device.handle, &console).await;
        runtime::notified(BIT).await;
    }
}

fn enable(device: Handle) -> Result<(), abi::Error> {
    let notification = sys::cap_mint(Handle::SELF_CONTEXT, Rights::NOTIFY, BIT)?;
    sys::device_interrupt(device, ENTRY, notification)?;
    sys::device_port_write(device, INTERRUPT_ENABLE, 1, RECEIVE_INTERRUPT)
}

/// Takes bytes until the chip has none. Without room in the terminal they stay there, and the
/// sender waits.
async fn drain(device: Handle, console: &Console) {
    loop {
        console.room().await;
        let mut bytes = [0; PIECE_BYTES];
        let mut count = 0;
        while count < PIECE_BYTES
            && sys::device_port_read(device, LINE_STATUS, 1).is_ok_and(|status| status & DATA_READY != 0)
        {
            let Ok(byte) = sys::device_port_read(device, DATA, 1) else { return };
            bytes[count] = byte as u8;
            count += 1;
        }
        if count == 0 {
            return;
        }
        let mut taken = 0;
        while taken < count {
            taken += console.receive(&bytes[taken..count]);
            console.room().await;
        }
        runtime::yield_now().await;
    }
}
