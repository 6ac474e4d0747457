//! The driver against a device made here, and its deaths.
//!
//! One program, so that what all tests stand on is compiled once.

mod common;
mod deaths;
mod device;
mod settings;
