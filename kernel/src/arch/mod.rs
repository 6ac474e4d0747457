//! The machine layer: everything that depends on the instruction set, one folder per architecture,
//! chosen here and nowhere else.
//!
//! What the rest of the kernel may use is what is re-exported here; a second architecture has to
//! offer the same names.

// Host builds have no image, so nothing calls the way into and out of the kernel there.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(target_os = "none"), allow(dead_code))]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{bases, context, cores, cpu, fpu, instance, irq, paging, power, serial, time};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("only x86-64 so far; AArch64 is the next folder");
