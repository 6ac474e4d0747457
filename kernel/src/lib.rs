//! The Pelago kernel: one instance per core, single-threaded, event-driven, never preempted.
//!
//! Every core runs the same text on its own copy of all writable data, so statics are core-local by
//! construction. A core enters the kernel by an event (system call, exception, interrupt) and
//! leaves it by resuming a user context or idling; nothing else runs. `boot` learns what the
//! machine is, `arch` hides what kind of machine it is, the rest is the kernel proper.

#![cfg_attr(target_os = "none", no_std)]

pub mod arch;
pub mod backtrace;
pub mod boot;
mod calls;
pub mod clock;
pub mod core_commands;
pub mod core_local;
pub mod counters;
pub mod devices;
#[cfg_attr(not(target_os = "none"), path = "hardware_host.rs")]
pub mod hardware;
pub mod log;
pub mod mailbox;
pub mod memory;
pub mod objects;
pub mod panic;
pub mod polling;
pub mod scheduler;
pub mod shared;
pub mod start;
pub mod state;
pub mod steps;
pub mod trace;
pub mod trap;

#[cfg(test)]
mod tests;
