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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{self, Place};

    /// Its clock is 1.8432 MHz, of which one bit takes 16 times the divisor. Registers as in the
    /// data sheet of the 16550.
    #[test]
    fn it_sends_bytes_of_8_bits_at_115200_baud_without_interrupts() {
        hardware::take_port_writes();
        init();
        let writes = hardware::take_port_writes();
        let divisor = [(0x3fb, 0x80), (0x3f8, 1), (0x3f9, 0), (0x3fb, 3)];
        assert!(writes.windows(4).any(|four| four == divisor));
        let last = |port: u16| writes.iter().rfind(|(at, _)| *at == port).map(|(_, value)| *value);
        assert_eq!([0x3f9, 0x3fa, 0x3fb, 0x3fc].map(last), [Some(0), Some(7), Some(3), Some(0xb)]);
    }

    #[test]
    fn each_byte_waits_for_room_but_not_for_ever() {
        let status = 0x3fd;
        hardware::remove_registers();
        hardware::set_port(status, 0xdf);
        hardware::says_first(Place::Port(status), &[0x40, 0, 0x60, 0x20, 0x99]);
        write(b"ab");
        assert_eq!(hardware::take_port_writes(), [(0x3f8, b'a'), (0x3f8, b'b')]);
        assert_eq!(port_read8(status), 0x99, "no longer than there was none");
        write(b"c");
        assert_eq!(hardware::take_port_writes(), [(0x3f8, b'c')], "there is none for ever");
        hardware::remove_registers();
    }
}
