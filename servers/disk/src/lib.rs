//! What the disk server keeps beside its driver: who waits for which request, those who call, and
//! how the driver's words are the contract's; and what its dispatchers on other cores do.
//!
//! Deliberately unknown here: devices, channels.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod calls;
pub mod part;
pub mod waiting;
pub mod without;
pub mod words;

pub use waiting::Waiting;
