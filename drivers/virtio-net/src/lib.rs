//! The virtio network driver (virtio 1.2, sections 2.7, 4.1, 4.2, 5.1): one receive and one
//! transmit queue, and the control queue where the device has one.
//!
//! Invariants: ring memory and buffers are regions that outlive the driver. A successor goes on
//! with the running device if all that it finds is what its predecessor would have left; otherwise
//! it resets the device, into the other half of the region, so that whatever a dead predecessor had
//! given it is quiet, and reads what it had completed before those rings are used again
//! (`journal.rs`). A descriptor's number is its buffer's number, so there is nothing to allocate
//! and nothing to leak. What the device writes is decoded: a number or an index that cannot be
//! makes the driver start it anew.
//!
//! Registers and calls are `lib/virtio`'s. Deliberately unknown here: IP, addresses, what a frame
//! means.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod control;
pub mod driver;
pub mod journal;
pub mod receive;
pub mod transmit;

/// Number of a network device (virtio 1.2, section 5).
pub const KIND: u32 = 1;

pub use driver::{Driver, Found, Output, Places, StartError};
pub use virtio::stillness::Stillness;
pub use virtio::transport::DeviceOwner;
pub use virtio::{Transport, device, transport};
