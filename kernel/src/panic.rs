//! What happens when the kernel itself is wrong: one report, straight to the UART, then the machine
//! ends.
//!
//! A panic inside the report ends at once. Nothing here allocates, locks or trusts more than the
//! stack it runs on.

use crate::arch::{cores, power, serial};
use crate::backtrace;
use core::fmt::{self, Write};

/// Exit status of a machine whose kernel panicked.
pub const STATUS: u8 = 101;

/// Reports a panic of this core and powers off.
pub fn report(message: &dyn fmt::Display) -> ! {
    let out = &mut serial::Direct;
    let _ = writeln!(out, "\npelago: kernel panic on core {}: {message}", cores::this_core());
    backtrace::print_here(out);
    power::power_off(STATUS)
}
