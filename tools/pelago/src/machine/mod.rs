//! The emulator and the guest in it: how it is started, spoken to, and watched.

pub mod accelerator;
pub mod block;
pub mod bochs;
pub mod console_filter;
pub mod control;
pub mod emulator;
pub mod guest;
pub mod liveness;
pub mod passt;
pub mod record;
pub mod streams;
pub mod testbed;
