//! From what loader, firmware and command line say to a [`info::Machine`]: pure decoders, tested on
//! the host. `arch::start` drives them.

pub mod acpi;
pub mod command_line;
pub mod info;
pub mod memmap;
pub mod split;
pub mod start_info;
