//! Ending the machine.

use super::serial;
use crate::hardware::{halt, port_write8};
use core::fmt::Write;

/// QEMU's isa-debug-exit; a write of S ends the emulator with status 2 S + 1. Nobody listens
/// elsewhere.
const DEBUG_EXIT: u16 = 0xf4;

/// Prints `pelago: exit STATUS` and stops the machine: debug exit, else the reset line of the
/// keyboard controller, else halt.
pub fn power_off(status: u8) -> ! {
    let _ = writeln!(serial::Direct, "pelago: exit {status}");
    port_write8(DEBUG_EXIT, status);
    // Under `-no-reboot`, and on Firecracker, a reset request ends the machine.
    port_write8(0x64, 0xfe);
    halt()
}
