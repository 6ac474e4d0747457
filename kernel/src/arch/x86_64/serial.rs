//! The first UART (16550) of a PC, polled. Only core 0 uses it in normal running; a panicking core
//! prints at once.
//!
//! No state in memory, so that it works before a core has any.

use crate::hardware::{port_read8, port_write8};
use core::fmt;

const DATA: u16 = 0x3f8;
const INTERRUPT_ENABLE: u16 = DATA + 1;
const FIFO_CONTROL: u16 = DATA + 2;
const LINE_CONTROL: u16 = DATA + 3;
const MODEM_CONTROL: u16 = DATA + 4;
const LINE_STATUS: u16 = DATA + 5;
/// Polls before a byte is given up: a missing or stuck UART must not stop the kernel.
const POLLS_MAX: u32 = 1 << 16;

/// Sets 115200 baud, 8N1, FIFO on, no interrupts.
pub fn init() {
    for (port, value) in [
        (INTERRUPT_ENABLE, 0),
        (LINE_CONTROL, 0x80),
        (DATA, 1),
        (INTERRUPT_ENABLE, 0),
        (LINE_CONTROL, 0x03),
        (FIFO_CONTROL, 0x07),
        (MODEM_CONTROL, 0x0b),
    ] {
        port_write8(port, value);
    }
}

/// Sends bytes, waiting for room; a byte the UART does not take in time is dropped.
pub fn write(bytes: &[u8]) {
    for byte in bytes {
        let mut polls = 0;
        while port_read8(LINE_STATUS) & 0x20 == 0 && polls < POLLS_MAX {
            polls += 1;
        }
        port_write8(DATA, *byte);
    }
}

/// The UART as a formatter's sink.
pub struct Direct;

impl fmt::Write for Direct {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write(text.as_bytes());
        Ok(())
    }
}
