//! The emulator and the guest in it: how it is started, spoken to, and watched.

pub mod accelerator;
pub mod bochs;
pub mod control;
pub mod emulator;
pub mod guest;
pub mod lifeline;
pub mod news;
pub mod passt;
pub mod record;
pub mod streams;
pub mod testbed;
