//! The virtio block driver (virtio 1.2, section 5.2) as a step machine: one queue of tables of
//! descriptors. A disk server has it as a library.
//!
//! Invariants: the ring region and the data outlive the driver. Each request that was accepted and
//! has not ended stands in the region (`ledger.rs`), so that a successor goes on with the running
//! device if all that it finds is what its predecessor would have left (decision 77), and otherwise
//! resets it and gives what has not ended to it again, in order. A request ends once, by a
//! [`Completion`]. What the device writes is decoded: a number, a length or a status that cannot be
//! makes the driver start it anew, and a request with which that happened too often fails.
//!
//! Deliberately unknown here: clocks, channels, who the clients are, what stands on the disk.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod command;
pub mod driver;
pub mod geometry;
pub mod ledger;
pub mod record;
pub mod request;

/// Number of a block device (virtio 1.2, section 5).
pub const KIND: u32 = 2;

pub use driver::{Driver, Found, Places, StartError};
pub use geometry::Geometry;
pub use request::{Answer, Completion, Failure, Operation, Refused, Request};
