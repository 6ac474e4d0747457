//! x86-64. Assembly lives in `boot.s` (how a core gets into 64-bit mode) and `entry.s` (how the
//! kernel is entered and left), because both start where Rust cannot: without a stack, or with a
//! user's registers in place. Everything else is Rust with one-instruction `asm!`.

pub mod apic;
pub mod bases;
pub mod context;
pub mod cores;
pub mod cpu;
pub mod fpu;
#[cfg_attr(not(target_os = "none"), path = "image_host.rs")]
mod image;
pub mod instance;
pub mod ioapic;
pub mod irq;
pub mod paging;
pub mod power;
pub mod segments;
pub mod serial;
pub mod start;
pub mod time;
